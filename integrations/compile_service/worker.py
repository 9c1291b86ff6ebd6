"""The program of a worker process: take a job, compile, answer, until the service's end of the channel closes.

The main thread compiles. A second thread waits for messages, so that a worker in the middle of a long compile still
notices that it is to give it up, or that the service's process has ended.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import queue
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from ..messages import Channel, Closed, contents, unnamed_file

#: Takes (payload of the job, vocabulary, limits), returns a `CompiledGrammar`.
JobFunction = Callable[[memoryview, Any, Any], Any]


class _GivenUp(BaseException):
    """Raised in the middle of a job. Not an Exception: no compiler pass may catch it."""


def main(descriptor: int) -> None:
    """Serve the channel whose descriptor this process was started with."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: it is for the service's process, and its end is ours
    channel = Channel(socket.socket(fileno=descriptor))
    try:
        settings, (vocabulary,) = channel.receive()
    except Closed:
        return
    worker = _Worker(channel, settings)
    threading.Thread(target=worker.listen, daemon=True).start()
    worker.load(vocabulary)
    channel.send({"ready": True})
    worker.serve()


def function_of(name: str) -> JobFunction:
    """The function that ``"module:name"`` stands for."""
    module, _, attribute = name.partition(":")
    function: JobFunction = getattr(importlib.import_module(module), attribute)
    return function


class _Worker:
    def __init__(self, channel: Channel, settings: dict[str, Any]) -> None:
        self._channel = channel
        self._memory_limit = int(settings["memory_limit_bytes"])
        self._function_name = settings["function"]
        self._jobs: queue.SimpleQueue[tuple[dict[str, Any], int]] = queue.SimpleQueue()
        self._main = threading.get_ident()
        #: The job that may be given up right now, and the one that is to be.
        self._current: int | None = None
        self._unwanted: int | None = None
        #: Why the last job was given up: "asked", "cpu", or None.
        self._given_up: str | None = None
        self._recursion_limit = sys.getrecursionlimit()
        signal.signal(signal.SIGUSR1, self._interrupt)
        signal.signal(signal.SIGPROF, self._interrupt)

    def load(self, vocabulary: int) -> None:
        """Everything that jobs need: kernels, front ends, the vocabulary and its tables.

        So no job waits for an import, or is given up in the middle of one.
        """
        from ...grammar.limits import Limits
        from ...masks.trie import tables_of
        from ...masks.warm_up import warm_up
        from .requests import available_kinds

        package = importlib.import_module(__name__.partition(".")[0])
        for name in available_kinds():
            getattr(package, name)  # imports it
        warm_up(processes=1)  # a process of its own would outlive a worker that is killed
        self._vocabulary, limits = pickle.loads(contents(vocabulary))
        assert isinstance(limits, Limits)
        self._limits = limits
        tables_of(self._vocabulary)
        self._function = function_of(self._function_name)
        gc.collect()
        gc.freeze()  # what stays for good need not be looked at after each job
        self._resident = _statm(1)

    # ------------------------------------------------------------------------------------------ messages and signals
    def listen(self) -> None:
        """Take messages; end this process with the channel. Runs on the second thread."""
        try:
            while True:
                message, descriptors = self._channel.receive()
                if "give_up" in message:
                    self._unwanted = message["give_up"]
                    signal.pthread_kill(self._main, signal.SIGUSR1)
                else:
                    self._jobs.put((message, descriptors[0]))
        finally:
            os._exit(0)  # nothing here needs a tidy end, and the main thread may be in a kernel

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._current is None or (number == signal.SIGUSR1 and self._current != self._unwanted):
            return
        self._current = None  # once a job, so that what follows it is not interrupted
        self._given_up = "asked" if number == signal.SIGUSR1 else "cpu"
        raise _GivenUp

    # ---------------------------------------------------------------------------------------------------------- jobs
    def serve(self) -> None:
        """One job after the other."""
        while True:
            message, payload = self._jobs.get()
            answer, descriptors = self._answer(message, payload)
            self._end_of_job()
            answer["job"] = message["job"]
            answer["retires"] = answer["outcome"] == "memory" or _statm(1) - self._resident > self._memory_limit
            try:
                self._channel.send(answer, descriptors)
            except Closed:
                return
            for descriptor in descriptors:
                os.close(descriptor)
            if answer["retires"]:
                return

    def _answer(self, message: dict[str, Any], payload: int) -> tuple[dict[str, Any], list[int]]:
        from .failures import Failure

        self._given_up = None
        try:
            compiled = self._compile(message, payload)
            _limit_memory(None)
            descriptor, kept = _file_of(compiled)
            return {"outcome": "done", "kept": kept, "from_cache": compiled.from_cache}, [descriptor]
        except _GivenUp:
            return self._give_up()
        except MemoryError:
            return {"outcome": "memory"}, []
        except Exception as error:
            if self._given_up is not None:  # a call into compiled code makes a SystemError of it
                return self._give_up()
            return {"outcome": "error", "failure": Failure.of(error).as_message()}, []

    def _give_up(self) -> tuple[dict[str, Any], list[int]]:
        # What several compiles share may be in the middle of something.
        self._vocabulary.shared.clear()
        sys.setrecursionlimit(self._recursion_limit)
        return {"outcome": self._given_up}, []

    def _compile(self, message: dict[str, Any], payload: int) -> Any:
        data = memoryview(contents(payload, mark=True))
        _limit_memory(_statm(0) + self._memory_limit)
        signal.setitimer(signal.ITIMER_PROF, message["cpu_limit_s"])
        try:
            self._current = message["job"]
            if self._unwanted == self._current:  # it was asked before it began
                self._given_up = "asked"
                raise _GivenUp
            return self._function(data, self._vocabulary, self._limits)
        finally:
            self._current = None

    def _end_of_job(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        _limit_memory(None)
        gc.collect()


def compile_job(payload: memoryview, vocabulary: Any, limits: Any) -> Any:
    """What a worker does with a job: read the grammar and compile it, or take it from the cache on disk."""
    from ...masks.compiled import compile
    from .requests import grammar_of

    return compile(grammar_of(payload, limits), vocabulary, limits)


def _file_of(compiled: Any) -> tuple[int, bool]:
    """A descriptor of a file that holds `compiled`, and whether it is the cache's."""
    from ...masks import cache

    path = cache.path_of(compiled.fingerprint)
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return unnamed_file(compiled.pack().data), False
    # The folder may be one where nothing can be written any more: what lies there may be damaged, or another's.
    found = cache.load_quietly(path, lambda: cache.read(os.dup(descriptor)))
    if found is not None and found[1].get("fingerprint") == compiled.fingerprint:
        return descriptor, True
    os.close(descriptor)
    return unnamed_file(compiled.pack().data), False


def _limit_memory(size: int | None) -> None:
    """Let the address space grow to `size` bytes, None: without bound."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    soft = hard if size is None else size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _statm(field: int) -> int:
    """Bytes of this process: 0 its address space, 1 what of it is in memory."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[field]) * resource.getpagesize()
