"""How kernels are declared and compiled: signatures at import, machine code in `warm_up()`.

Numba compiles a decorated signature at import, which would make `import stepmask` slow and would
hide compilation inside whatever ran first. Here a kernel only registers its signature;
`warm_up()` compiles all registered ones, from the on-disk cache where they are there already.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeVar

import numba
import numpy as np
from numba.core import compiler, types
from numba.core.caching import IndexDataCacheFile
from numba.core.codegen import JITCodeLibrary
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic

from ._compiler import cheap_compiler

F = TypeVar("F", bound=Callable[..., Any])

#: (compiled-function object, signature) of every kernel of the modules imported so far.
REGISTRY: list[tuple[Any, str]] = []
#: Passes over Numba's own representation that do nothing for kernels: these have no closures, no `with`, no literal
#: lists, no overloads in need of inlining, and no expressions that a rewrite knows. Each costs a full analysis.
_NEEDLESS_PASSES = frozenset(
    {
        "WithLifting",
        "InlineClosureLikes",
        "RewriteSemanticConstants",
        "DeadBranchPrune",
        "GenericRewrites",
        "RewriteDynamicRaises",
        "MakeFunctionToJitFunction",
        "InlineInlinables",
        "FindLiterallyCalls",
        "LiteralUnroll",
        "LiteralPropagationSubPipelinePass",
        "InlineOverloads",
        "NopythonRewrites",
        "AnnotateTypes",
        "DumpParforDiagnostics",
    }
)


class _NoEnvironment:
    """Stands for the code generator of a library that has no machine code."""

    def set_env(self, name: str, environment: Any) -> None:
        """Nothing to set: helpers raise nothing and print nothing."""


class _HelperLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The LLVM module of a helper. It is only ever linked into a kernel's: that one is optimised and made machine
    code, this one neither (Numba would do both for each function by itself, half of all the time)."""

    codegen = _NoEnvironment()

    def _optimize_functions(self, module: Any) -> None:
        """Only what makes the module small: the kernel's own passes do the rest, and do it again anyway."""
        module.data_layout = self._codegen._data_layout
        manager, builder = self._codegen._function_pass_manager(opt=1)
        for function in module.functions:
            if not function.is_declaration:
                manager.run(function, builder)

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0


class _KernelLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The LLVM module of a kernel and of all that it calls. Numba optimises a module twice, first so that few
    operations on reference counts are left; kernels have a handful of those, and get all from the second time."""

    def _optimize_final_module(self) -> None:
        manager, builder = self._codegen._module_pass_manager()
        manager.run(self._final_module, builder)


class _Pipeline(compiler.CompilerBase):  # type: ignore[misc]
    """Numba's pipeline without the passes that kernels do not need."""

    def define_pipelines(self) -> list[Any]:
        self.state.library = self.library()
        pipeline = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.passes = [entry for entry in pipeline.passes if entry[0].__name__ not in _NEEDLESS_PASSES]
        pipeline.finalize()
        return [pipeline]

    def library(self) -> JITCodeLibrary:
        library = _KernelLibrary(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        library.enable_object_caching()
        return library


class _HelperPipeline(_Pipeline):
    """The same for helpers."""

    def library(self) -> JITCodeLibrary:
        return _HelperLibrary(self.state.targetctx.codegen(), self.state.func_id.func_qualname)


_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_rewrites": True}


@functools.lru_cache(maxsize=1)
def source_digest() -> str:
    """Hex digest of all modules that may be compiled into a kernel: its helpers, intrinsics and numbers."""
    digest = hashlib.blake2b(digest_size=16)
    root = Path(__file__).parent
    for path in sorted([Path(__file__), *(root / "grammar").glob("*.py"), *(root / "masks").glob("*.py")]):
        text = path.read_bytes()
        # Most of `grammar` is front ends, which no kernel needs; their numbers come from `automaton` alone.
        if path.parent.name != "grammar" or b"helper\n" in text or b"@kernel" in text or path.name == "automaton.py":
            digest.update(path.name.encode() + b"\0" + text)
    return digest.hexdigest()


def kernel(signature: str, *, allocates: bool = False) -> Callable[[F], F]:
    """A function called from Python: compiled for exactly `signature` by `warm_up()`.

    Unless it `allocates`, neither it nor a helper may make an array or return one that it was not given: Numba
    compiles it without its counts of references and refuses what would need them. The step's kernels are such ones.
    """

    def declare(function: F) -> F:
        without = {"no_cfunc_wrapper": True, "pipeline_class": _Pipeline, "_nrt": allocates}
        dispatcher = numba.njit(cache=True, **without, **_OPTIONS)(function)
        dispatcher._cache._cache_file = _StampedIndex(dispatcher)
        REGISTRY.append((dispatcher, signature))
        return dispatcher  # type: ignore[no-any-return]

    return declare


def helper(function: F) -> F:
    """A function called from kernels only: compiled with them, without the wrappers that Python and C would need."""
    return _helper(function, allocates=False)


def allocating_helper(function: F) -> F:
    """A helper that makes arrays. Only kernels that allocate, and others of its kind, may call it."""
    return _helper(function, allocates=True)


def _helper(function: F, allocates: bool) -> F:
    without = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": _HelperPipeline}
    dispatcher = numba.njit(**without, _nrt=allocates, **_OPTIONS)(function)
    template = dispatcher.get_call_template

    def get_call_template(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Numba's, for numbers of any value: it would compile `f(x, 0)`, `f(x, 1)` and `f(x, y)` once each, a sixth
        of the time for all kernels. LLVM knows the numbers of calls that it inlines in any case."""
        return template(tuple(map(types.unliteral, args)), {k: types.unliteral(v) for k, v in keywords.items()})

    dispatcher.get_call_template = get_call_template
    return dispatcher  # type: ignore[no-any-return]


def compile_kernel(dispatcher: Any, signature: str) -> None:
    """Compile a kernel, or take it from the cache."""
    with cheap_compiler():
        dispatcher.compile(signature)


class _StampedIndex(IndexDataCacheFile):  # type: ignore[misc]
    """Tells Numba's cache what a kernel is made of: its own code, and all that it calls and all numbers it names.

    Numba's own stamp is the size and time of the function's file: a kernel made of helpers from other files would be
    taken from the cache after those have changed, and compiled anew after each copy of the sources. The stamp is made
    when it is first asked for, since what a kernel calls may be declared after it.
    """

    def __init__(self, dispatcher: Any) -> None:
        self.__dict__.update(dispatcher._cache._cache_file.__dict__)
        del self.__dict__["_source_stamp"]
        self._dispatcher = dispatcher

    @functools.cached_property
    def _source_stamp(self) -> str:
        return _digest(self._dispatcher)


def _digest(dispatcher: Any) -> str:
    digest = hashlib.blake2b(Path(__file__).read_bytes(), digest_size=16)
    seen: set[int] = set()
    todo: list[Any] = [dispatcher]
    while todo:
        item = todo.pop()
        if isinstance(item, Dispatcher):
            if id(item) in seen:
                continue
            seen.add(id(item))
            function = item.py_func
            allocates = item.targetoptions.get("_nrt", True)
            digest.update(f"{function.__module__}.{function.__qualname__} {allocates}\0".encode())
            _feed_code(digest, function.__code__)
            todo += [function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__]
            todo += [cell.cell_contents for cell in function.__closure__ or ()]
        elif isinstance(item, _Intrinsic):
            _feed_intrinsic(digest, item)
        elif isinstance(item, np.ndarray):
            digest.update(repr((item.dtype, item.shape)).encode() + item.tobytes())
        elif isinstance(item, (bool, int, float, str, tuple, np.generic)) or item is None:
            digest.update(repr(item).encode() + b"\0")
        elif not _module(item).startswith(__package__):  # a type or function of numpy, numba or Python
            digest.update(f"{_module(item)}.{getattr(item, '__name__', item)}\0".encode())
        else:  # nothing is known of what may come of it
            digest.update(source_digest().encode())
    return digest.hexdigest()


def _module(item: Any) -> str:
    return str(item.__name__ if isinstance(item, ModuleType) else getattr(item, "__module__", ""))


def _feed_code(digest: Any, code: CodeType) -> None:
    digest.update(code.co_code)
    digest.update(repr((code.co_names, code.co_varnames, code.co_freevars, code.co_argcount)).encode())
    digest.update(repr(code.co_consts).encode())


def _feed_intrinsic(digest: Any, intrinsic: _Intrinsic) -> None:
    """The text of its module, with the numbers that this takes from others and those it was made with."""
    function = intrinsic._defn
    digest.update(_module_text(function.__code__.co_filename))
    numbers = {name: value for name, value in function.__globals__.items() if isinstance(value, int)}
    digest.update(repr((function.__name__, sorted(numbers.items()))).encode())
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    digest.update(repr([value for value in cells if isinstance(value, int)]).encode())


@functools.cache
def _module_text(path: str) -> bytes:
    return Path(path).read_bytes()


def entry_address(dispatcher: Any) -> int:
    """Machine address of a compiled kernel, for `masks.memory.call_kernel`. The kernel must be warm."""
    (result,) = dispatcher.overloads.values()
    return int(result.library.get_pointer_to_function(result.fndesc.llvm_func_name))
