"""Models that tests have in a process of their own."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from stepmask.integrations.engine.synthetic import SyntheticModel


class Waiting(SyntheticModel):
    """A forward pass that goes on until the file `go` is there; it makes the file `begun`."""

    def __init__(self, width: int, begun: Path, go: Path) -> None:
        super().__init__(width, seed=1)
        self._begun, self._go = begun, go

    def decode(self, *arguments: Any) -> Any:
        self._begun.touch()
        while not self._go.exists():
            time.sleep(0.001)
        return super().decode(*arguments)


class Failing(SyntheticModel):
    """A prompt that begins with 1 fails, and so does the `fails_at`-th forward pass, or it ends the process."""

    def __init__(self, width: int, fails_at: int, *, ends: bool = False) -> None:
        super().__init__(width, seed=1)
        self._left, self._ends = fails_at, ends

    def prefill(self, cache: Any, slot: int, tokens: Any, start: int) -> None:
        if tokens[0] == 1:
            raise MemoryError("no room for this prompt")
        super().prefill(cache, slot, tokens, start)

    def decode(self, *arguments: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            if self._ends:
                os._exit(7)
            raise ArithmeticError("a forward pass failed")
        return super().decode(*arguments)


class Single:
    """No `decode_runs`."""


def refuse() -> Any:
    """Loading that fails."""
    raise ValueError("no such model")
