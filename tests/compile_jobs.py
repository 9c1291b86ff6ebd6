"""What a worker of the compile service calls in tests: it compiles, and does what the text says before.

A text ``!name argument;pattern`` calls the fault of that name; then the pattern, if there is one, is compiled.
Every text is written to the file ``STEPMASK_TEST_RUNS`` when its turn comes.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from stepmask.integrations.compile_service.worker import compile_job


def run(payload: memoryview, vocabulary: Any, limits: Any) -> Any:
    text = json.loads(bytes(payload[1:])).get("text", "") if payload[:1] == b"s" else "a grammar"
    with open(os.environ["STEPMASK_TEST_RUNS"], "a") as file:
        file.write(f"{text}\n")
    if not isinstance(text, str) or not text.startswith("!"):
        return compile_job(payload, vocabulary, limits)
    command, _, pattern = text.partition(";")
    name, _, argument = command.partition(" ")
    restored = globals()[name[1:]](argument)
    specification = {"kind": "regex", "text": pattern}
    try:
        return compile_job(memoryview(b"s" + json.dumps(specification).encode()), vocabulary, limits)
    finally:
        if restored is not None:
            restored()


def gate(path: str) -> None:
    """Wait for a file."""
    while not os.path.exists(path):
        time.sleep(0.002)


def spin(_: str) -> None:
    """Never end, using the processor."""
    while True:
        pass


def deaf(_: str) -> None:
    """Never end, whatever is asked."""
    while True:
        try:
            while True:
                time.sleep(0.01)
        except BaseException:
            pass


def translate(_: str) -> None:
    """Never end; make another error of what is raised, as calls into compiled code do."""
    try:
        spin("")
    except BaseException:
        raise SystemError("something else") from None


def die(_: str) -> None:
    """End as when the system runs out of memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_once(path: str) -> None:
    """The same, the first time only."""
    if not os.path.exists(path):
        Path(path).touch()
        die("")


def hoard(_: str) -> None:
    """More and more memory."""
    kept = []
    while True:
        kept.append(np.ones(1 << 20, np.uint8))


def bug(_: str) -> None:
    raise AssertionError("a bug in the compiler")


def modules(names: str) -> None:
    """An error that says which of these are loaded."""
    raise ValueError(" ".join(name for name in names.split() if name in sys.modules))


def threads(_: str) -> None:
    raise ValueError(str(len(os.listdir("/proc/self/task"))))


def disk(number: str) -> Any:
    """No temporary file can be made, for the reason of this number."""
    import tempfile

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(int(number), os.strerror(int(number)))

    before = tempfile.mkstemp
    tempfile.mkstemp = fail
    return lambda: setattr(tempfile, "mkstemp", before)


def half_written(_: str) -> None:
    """Killed in the middle of writing a cache file."""
    from stepmask.masks import cache

    def stop(*_: Any) -> None:
        die("")

    os.replace = stop
    cache.MIN_SECONDS = 0.0


def garble(argument: str) -> None:
    """This result is damaged on its way, unless so many were."""
    from stepmask.integrations.compile_service import worker

    path, most = argument.split()
    with open(path, "a") as file:
        file.write(".")
        if file.tell() > int(most):
            return
    before = worker._file_of

    def damaged(compiled: Any) -> tuple[int, bool]:
        worker._file_of = before
        data = bytearray(compiled.pack().data)
        data[len(data) // 2] ^= 4
        return worker.unnamed_file(bytes(data)), False

    worker._file_of = damaged


FULL, READ_ONLY = errno.ENOSPC, errno.EROFS
