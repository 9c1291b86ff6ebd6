"""Numba while kernels are compiled, without costs that bring kernels nothing.

All of it is Numba's own meaning, reached for less: what is answered anew each time is remembered, what nobody reads is
not made. Other threads that compile wait meanwhile, as they do for any compilation.
"""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator
from typing import Any

from numba.core import base, event, ir, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.types.functions import BaseFunction

#: New objects between two runs of the garbage collector while a kernel compiles. Numba makes some ten million objects
#: that live as long as the process: at Python's 700, collections took an eighth of the time of compiling; at 50,000 a
#: fiftieth, for 30 MB more memory.
COLLECT_EVERY = 50_000
#: Types of which the meaning of an operation depends on nothing else: these are remembered while kernels compile.
_PLAIN_TYPES = (types.Number, types.Boolean, types.NoneType, types.Array)
#: (operation, types of its arguments) and the signature found.
_RESOLVED: dict[tuple[Any, tuple[Any, ...]], Any] = {}
#: Fields of instructions that hold no variable.
_WITHOUT_VARIABLES = frozenset({ir.Loc, ir.Scope, ir.Const, ir.Global, ir.FreeVar, ir.Arg, str, int, bool, type(None)})


@contextlib.contextmanager
def cheap_compiler() -> Iterator[None]:
    """Compile kernels within this.

    Garbage is collected less often. What an operation on numbers and arrays means is looked up once, not for each
    ``a + b`` of each function among forty rules (a fifth of the time); whether a rule wants a place in the source,
    once for each rule. The variables of an instruction are found without asking of each field what it is in six ways
    (a twentieth). Nothing is broadcast of the half a million times that LLVM is called and left.
    """
    with global_compiler_lock, contextlib.ExitStack() as stack:
        thresholds = gc.get_threshold()
        if 0 < thresholds[0] < COLLECT_EVERY:
            gc.set_threshold(COLLECT_EVERY, *thresholds[1:])
            stack.callback(gc.set_threshold, *thresholds)
        for holder, name, replacement in (
            (BaseFunction, "get_call_type", _remembering(BaseFunction.get_call_type)),
            (base, "_has_loc", functools.cache(base._has_loc)),
            (ir.Inst, "_rec_list_vars", _variables_in),
            (event, "start_event", _silent),
            (event, "end_event", _silent),
        ):
            stack.callback(setattr, holder, name, getattr(holder, name))
            setattr(holder, name, replacement)
        yield


def _silent(kind: str, data: Any = None, exc_details: Any = None) -> None:
    """Stands for an event's start and end."""


def _remembering(resolve: Callable[..., Any]) -> Callable[..., Any]:
    """`BaseFunction.get_call_type` that asks `resolve` once for each operation on plain types."""

    def get_call_type(self: Any, context: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if keywords or not all(isinstance(arg, _PLAIN_TYPES) for arg in args):
            return resolve(self, context, args, keywords)
        found = _RESOLVED.get((self, args))
        if found is None:
            found = _RESOLVED[self, args] = resolve(self, context, args, keywords)
        return found

    return get_call_type


def _variables_in(instruction: Any, value: Any) -> list[Any]:
    """The variables of a field of an instruction, or of several in a list, tuple or dictionary, in their order."""
    found: list[Any] = []
    _add_variables(value, found)
    return found


def _add_variables(value: Any, found: list[Any]) -> None:
    kind = type(value)
    if kind is ir.Var:
        found.append(value)
    elif kind is dict:
        for part in value.values():
            if type(part) not in _WITHOUT_VARIABLES:
                _add_variables(part, found)
    elif kind is list or kind is tuple:
        for part in value:
            _add_variables(part, found)
    elif isinstance(value, ir.Inst):
        found.extend(value.list_vars())
