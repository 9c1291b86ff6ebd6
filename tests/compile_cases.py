"""What the tests of the compile service share."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import stepmask
from stepmask.integrations.compile_service import CompileFuture, CompileService

VOCABULARY = stepmask.Vocabulary.from_bytes([*(bytes([b]) for b in range(256)), b"</s>"], eos=[256], special=[256])
#: Longer than anything here takes on a slow machine; a test that waits so long has failed.
PATIENCE = 240.0
Make = Callable[..., CompileService]
Runs = Callable[[], list[str]]


def descriptors() -> int:
    """Open descriptors of this process, but for those of cache files, which live as long as their grammar."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing
            found += not os.readlink(f"/proc/self/fd/{name}").endswith((".stepmask", ".stepmask (deleted)"))
    return found


def children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(pid) for pid in file.read().split()]


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)


def spec(text: str, **options: Any) -> dict[str, Any]:
    return {"kind": "regex", "text": text, **options}


def error_of(future: CompileFuture) -> BaseException | None:
    return future.exception(PATIENCE)


def check(compiled: stepmask.CompiledGrammar, pattern: str) -> None:
    """`compiled` is what `stepmask.compile` makes here."""
    here = stepmask.compile(stepmask.regex(pattern), VOCABULARY, use_cache=False)
    assert compiled.fingerprint == here.fingerprint
    assert np.array_equal(compiled.automaton.buffer, here.automaton.buffer)
    one, other = compiled.matcher(), here.matcher()
    for _ in range(6):
        assert np.array_equal(one.mask(), other.mask())
        legal = [token for token in range(256) if other.allows(token)]
        if not legal:
            break
        assert one.accept(legal[0]) and other.accept(legal[0])


class Gate:
    """Keeps the only worker busy until it is opened."""

    def __init__(self, service: CompileService, folder: Path, runs: Runs, **options: Any) -> None:
        self._path = folder / f"gate{time.monotonic_ns()}"
        self.text = f"!gate {self._path};gate"
        self.future = service.submit(spec(self.text), **options)
        wait_until(lambda: self.text in runs())

    def open(self) -> None:
        self._path.touch()
