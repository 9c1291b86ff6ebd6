"""Compiling all kernels before anything waits for them."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

#: Modules whose import declares every kernel.
KERNEL_MODULES = (
    ".grammar.compile",
    ".grammar.name_trie",
    ".masks.batch",
    ".masks.compiled",
    ".masks.host_step",
    ".masks.sampling",
)
#: What the child process compiles first: kernels made of the same helpers, which each process infers for itself, stand
#: beside each other, so that the two have few helpers in common. Each list has what takes longest first.
FIRST_IN_CHILD = (
    ".masks.context_walk",
    ".masks.step",
    ".masks.walk",
    ".masks.graph_call",
    ".masks.advance",
    ".masks.stack_walk",
    ".masks.finish",
    ".masks.prefetch_numba",
    ".masks.describe",
    ".masks.prepare",
    ".masks.foresight",
)
#: What this process compiles first. All other kernels are small, and go to whichever has time.
FIRST_HERE = (
    ".masks.sampling_numba",
    ".masks.candidates_numba",
    ".masks.settle",
    ".grammar.lengths",
    ".grammar.link",
    ".grammar.determinize",
    ".grammar.rule_dfas",
    ".grammar.position",
    ".grammar.loops",
    ".grammar.literals",
    ".grammar.product",
    ".grammar.name_trie",
)
#: Functions to be compiled from which on a second process is worth its start (1.5 s of a core).
SHARED_FROM = 4
_LOCK = threading.Lock()
_DONE: set[int] = set()
# The registry of kernels, once it was needed: to import it takes longer than to look at it.
_registered: list[tuple[Any, str]] = []


def warm_up(progress: bool | Callable[[int, int, str], None] = False, *, processes: int = 2) -> float:
    """Compile every kernel, or load it from the on-disk cache; returns the seconds it took.

    The first run on a machine took 24 s on two cores, later ones 0.5 s; a second call in one process
    returns at once. `progress`: True writes one line to standard error; a function is called with (done, total,
    name) before each kernel. With `processes` = 2 a child process compiles half of them into the cache meanwhile.
    Safe to call from several threads.
    """
    global _registered
    if _registered and len(_DONE) == len(_registered):  # every grammar that is compiled asks
        return 0.0
    from .._compiler import cheap_compiler
    from .._numba import REGISTRY, compile_kernel

    with _LOCK, cheap_compiler():
        begin = time.perf_counter()
        _import_all()
        todo = [(d, s) for d, s in REGISTRY if id(d) not in _DONE]
        shared = processes > 1 and _share(_in_order(d for d, s in todo if not _is_cached(d, s)), progress)
        for done, (dispatcher, signature) in enumerate(todo):
            if not shared:
                _report(progress, done, len(todo), dispatcher.__name__)
            compile_kernel(dispatcher, signature)
            _DONE.add(id(dispatcher))
        for dispatcher, _ in todo:  # a call with other types would be compiled there and then, in a step
            dispatcher.disable_compile()
        _registered = REGISTRY
        if progress is True:
            sys.stderr.write("\r\x1b[K")
        return time.perf_counter() - begin


def _share(names: list[str], progress: bool | Callable[[int, int, str], None]) -> bool:
    """Compile these functions (see `_name`) in two processes, this one beginning at the end of the list.

    Both take one from their end for each ticket that they get out of a pipe, so they meet wherever they have got to.
    What a child that dies leaves undone is compiled by the caller. False: they are too few.
    """
    if len(names) < SHARED_FROM:
        return False
    tickets, source = os.pipe()
    try:
        os.write(source, bytes(number % 256 for number in range(len(names))))
    finally:
        os.close(source)
    code = f"from {__name__} import compile_shared; compile_shared()"
    arguments = [sys.executable, "-c", code, str(tickets), json.dumps(names)]
    try:
        nowhere = subprocess.DEVNULL
        child = subprocess.Popen(arguments, stdout=nowhere, stderr=nowhere, pass_fds=[tickets])
        for done, name in _compile_by_ticket(tickets, reversed(names)):
            _report(progress, done, len(names), name)
    finally:
        os.read(tickets, len(names))  # should this process be interrupted, the child finishes what it has begun
        os.close(tickets)
    _report(progress, len(names) - 1, len(names), "the last in another process")
    child.wait()
    return True


def compile_shared() -> None:
    """What the child process does: compile functions into the cache while there are tickets (`_share`)."""
    from .._compiler import cheap_compiler

    tickets, names = int(sys.argv[1]), json.loads(sys.argv[2])
    _import_all()
    with cheap_compiler():
        for _ in _compile_by_ticket(tickets, names):
            pass


def _compile_by_ticket(tickets: int, names: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Before each compilation, how many have been begun by both processes, and its name."""
    from .._numba import REGISTRY, compile_kernel

    for name in names:
        ticket = os.read(tickets, 1)
        if not ticket:
            return
        yield ticket[0], name
        for dispatcher, signature in REGISTRY:
            if _name(dispatcher) == name:
                compile_kernel(dispatcher, signature)


def _import_all() -> None:
    package = __package__.rpartition(".")[0]
    for module in KERNEL_MODULES:
        importlib.import_module(module, package)


def _name(dispatcher: Any) -> str:
    """Of a function. Kernels of several signatures share it and one file of the cache: one process makes them all."""
    return f"{dispatcher.__module__}.{dispatcher.__qualname__}"


def _in_order(dispatchers: Iterable[Any]) -> list[str]:
    """Names of the functions of this package, the first for the child at the beginning, for this process at the end."""
    package = __package__.rpartition(".")[0]
    ranks = {package + part: place for place, part in enumerate(FIRST_IN_CHILD)}
    ranks |= {package + part: 1000 - place for place, part in enumerate(FIRST_HERE)}
    kernels = {_name(d): ranks.get(d.__module__, 500) for d in dispatchers if d.__module__.startswith(f"{package}.")}
    return sorted(kernels, key=kernels.__getitem__)


def _is_cached(dispatcher: Any, signature: str) -> bool:
    cache = dispatcher._cache
    return cache._index_key(signature, dispatcher.targetctx.codegen()) in cache._cache_file._load_index()


def _report(progress: bool | Callable[[int, int, str], None], done: int, total: int, name: str) -> None:
    if callable(progress):
        progress(done, total, name)
    elif progress:
        sys.stderr.write(f"\r\x1b[Kcompiling kernels {done + 1}/{total}: {name}")
        sys.stderr.flush()
