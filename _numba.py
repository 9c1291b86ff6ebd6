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
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])

#: (compiled-function object, signature) of every kernel of the modules imported so far.
REGISTRY: list[tuple[Any, str]] = []
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


@functools.lru_cache(maxsize=1)
def source_digest() -> str:
    """Hex digest of all modules that hold kernels or helpers."""
    digest = hashlib.blake2b(digest_size=16)
    root = Path(__file__).parent
    for path in sorted([Path(__file__), *(root / "grammar").glob("*.py"), *(root / "masks").glob("*.py")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def kernel(signature: str) -> Callable[[F], F]:
    """A function called from Python: compiled for exactly `signature` by `warm_up()`."""

    def declare(function: F) -> F:
        dispatcher = numba.njit(cache=True, **_OPTIONS)(function)
        # Numba's cache knows a function's own file only; a kernel made of helpers from other files would be
        # taken from the cache after those have changed. So the stamp covers them all.
        file = dispatcher._cache._cache_file
        file._source_stamp = (file._source_stamp, source_digest())
        REGISTRY.append((dispatcher, signature))
        return dispatcher  # type: ignore[no-any-return]

    return declare


def helper(function: F) -> F:
    """A function called from kernels only: compiled with them, without the wrappers that Python and C would need."""
    return numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_OPTIONS)(function)  # type: ignore[no-any-return]


def entry_address(dispatcher: Any) -> int:
    """Machine address of a compiled kernel, for `masks.memory.call_kernel`. The kernel must be warm."""
    (result,) = dispatcher.overloads.values()
    return int(result.library.get_pointer_to_function(result.fndesc.llvm_func_name))
