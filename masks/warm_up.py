"""Compiling all kernels before anything waits for them."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

#: Modules whose import declares every kernel.
KERNEL_MODULES = (".grammar.compile", ".masks.batch", ".masks.compiled", ".masks.sampling")
#: Kernels whose first compilation takes as long as that of all others: two processes share the work so.
SECOND_PROCESS = (
    ".masks.walk",
    ".masks.context_walk",
    ".masks.prepare",
    ".masks.sampling_numba",
    ".masks.candidates_numba",
    ".grammar.link",
    ".grammar.determinize",
)
_LOCK = threading.Lock()
_DONE: set[int] = set()


def warm_up(progress: bool | Callable[[int, int, str], None] = False, *, processes: int = 2) -> float:
    """Compile every kernel, or load it from the on-disk cache; returns the seconds it took.

    The first run on a machine took 41 s on two cores, later ones 0.8 s; a second call in one process
    returns at once. `progress`: True writes one line to standard error; a function is called with (done, total,
    name) before each kernel. With `processes` = 2 a child process compiles some of them into the cache meanwhile.
    Safe to call from several threads.
    """
    from .._numba import REGISTRY, stamp

    if _DONE and len(_DONE) == len(REGISTRY):  # every grammar that is compiled asks
        return 0.0
    with _LOCK:
        begin = time.perf_counter()
        package = __package__.rpartition(".")[0]
        for module in KERNEL_MODULES:
            importlib.import_module(module, package)
        todo = [(d, s) for d, s in REGISTRY if id(d) not in _DONE]
        for dispatcher, _ in todo:
            stamp(dispatcher)
        child = None
        if processes > 1 and any(_is_second(d) for d, _ in todo) and not any(_is_cached(d) for d, _ in todo):
            child = _spawn(package)
            todo.sort(key=lambda entry: _is_second(entry[0]))
        for done, (dispatcher, signature) in enumerate(todo):
            if child is not None and _is_second(dispatcher):
                _report(progress, done, len(todo), "the rest in another process")
                child.wait()
                child = None
            _report(progress, done, len(todo), dispatcher.__name__)
            dispatcher.compile(signature)
            _DONE.add(id(dispatcher))
        if progress is True:
            sys.stderr.write("\r\x1b[K")
        return time.perf_counter() - begin


def _is_second(dispatcher: Any) -> bool:
    return any(part in f".{dispatcher.__module__.partition('.')[2]}" for part in SECOND_PROCESS)


def _is_cached(dispatcher: Any) -> bool:
    return bool(dispatcher._cache._cache_file._load_index())


def _spawn(package: str) -> subprocess.Popen[bytes]:
    """A process that compiles the second part into the cache. What it does not manage, this one does."""
    code = f"from {package}.masks.warm_up import compile_second; compile_second()"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def compile_second() -> None:
    """Compile the kernels of `SECOND_PROCESS` into the cache."""
    package = __package__.rpartition(".")[0]
    for module in KERNEL_MODULES:
        importlib.import_module(module, package)
    from .._numba import REGISTRY, stamp

    for dispatcher, signature in REGISTRY:
        if _is_second(dispatcher):
            stamp(dispatcher)
            dispatcher.compile(signature)


def _report(progress: bool | Callable[[int, int, str], None], done: int, total: int, name: str) -> None:
    if callable(progress):
        progress(done, total, name)
    elif progress:
        sys.stderr.write(f"\r\x1b[Kcompiling kernels {done + 1}/{total}: {name}")
        sys.stderr.flush()
