"""What goes into the model next, row by row, and what comes out: tokens, their positions, logits that are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .model import Model, OverlappedModel, RunModel


class Feed:
    """The tokens that the model has not taken yet, of each of the engine's rows.

    A row's first such token is at `positions[row]`. There are more where a grammar allowed a single token several times
    in a row, which needed no logits. They go in together as far as the forward pass has rows that carry nothing of
    their own: those of empty slots, of rows that are deferred, and the last `spare_rows`.
    """

    def __init__(
        self, model: Model, slots: int, max_length: int, spare_rows: int, *, runs: bool, overlap: bool
    ) -> None:
        """`runs`: several tokens of a row may go in together; `overlap`: use `begin` and `finish`. Raises ValueError
        where the model cannot do that.
        """
        if spare_rows < 0:
            raise ValueError(f"spare_rows must be at least 0, not {spare_rows}")
        if runs and not isinstance(model, RunModel):
            raise ValueError("this model's forward pass takes one token a slot (it has no decode_runs)")
        if overlap and not isinstance(model, OverlappedModel):
            raise ValueError("this model's forward pass cannot go on by itself (it has no begin and finish)")
        self._model: Any = model
        self._rows = slots + spare_rows
        self._slots = slots
        self._has_runs = runs
        self._cache = model.open(self._rows, max_length)
        # One entry a row of the forward pass: the token that goes in next, its position, and whether it is in already.
        self.tokens = np.zeros(self._rows, np.int32)
        self.positions = np.zeros(self._rows, np.int32)
        self._is_in = np.zeros(slots, np.bool_)
        self._ahead: list[list[int]] = [[] for _ in range(slots)]
        #: How many tokens wait behind each row's next one, int32[slots].
        self.ahead = np.zeros(slots, np.int32)
        self._own = np.arange(self._rows, dtype=np.int32)
        # Logits that deferred rows are sampled from until they have a token.
        self._kept = np.zeros((slots, model.vocabulary_size), np.float32)
        self._holds = np.zeros(slots, np.bool_)
        self._turn = 0
        # What was arranged: the model's arguments, the rows that take a token, and what goes in beside (row, tokens).
        self._arrays: tuple[Any, ...] | None = None
        self._feeding = np.zeros(slots, np.bool_)
        self._runs_taken: list[tuple[int, int]] = []
        #: Forward passes so far, and tokens that went in beside another one of the same row.
        self.forwards = 0
        self.chunked = 0

    def touch(self) -> None:
        """Touch every page now rather than in a step."""
        self._kept += 0

    def prefill(self, row: int, tokens: npt.NDArray[np.int32]) -> None:
        """A piece of a prompt at the row's position, which moves on."""
        start = int(self.positions[row])
        if len(tokens):
            self._model.prefill(self._cache, row, tokens, start)
        self.positions[row] = start + len(tokens)

    def clear(self, row: int) -> None:
        """The row is empty from here on."""
        self.tokens[row] = self.positions[row] = 0
        self._is_in[row] = self._holds[row] = False
        self._ahead[row].clear()
        self.ahead[row] = 0

    def begin_row(self, row: int, token: int) -> None:
        """`token` is the row's next, at its position."""
        self.tokens[row] = token

    def push(self, row: int, token: int) -> None:
        """One more token of the row."""
        if self._is_in[row] and not self.ahead[row]:
            self.tokens[row] = token
            self.positions[row] += 1
            self._is_in[row] = False
        else:
            self._ahead[row].append(token)
            self.ahead[row] += 1

    def ready(self, decoding: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """The rows in `decoding` of which the model has taken all tokens: whose logits are there, bool[slots]."""
        ready: npt.NDArray[np.bool_] = decoding & self._is_in & (self.ahead == 0)
        return ready

    def arrange(self, decoding: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Decide what the next forward pass takes of the rows in `decoding`; what `ready` will say behind it."""
        waiting = np.flatnonzero(decoding & (self.ahead > 0)).tolist()
        for row in waiting:
            if self._is_in[row]:
                self.tokens[row] = self._ahead[row].pop(0)
                self.positions[row] += 1
                self.ahead[row] -= 1
                self._is_in[row] = False
        self._feeding = decoding & ~self._is_in
        self._holds = decoding & self._is_in
        self._runs_taken = []
        arrays: tuple[Any, ...] = self.tokens, self.positions, None
        if self._has_runs and waiting:
            arrays = self._with_runs(waiting)
        self._arrays = arrays if self._feeding.any() else None
        ready: npt.NDArray[np.bool_] = decoding & (self.ahead == 0)
        for row, count in self._runs_taken:
            ready[row] = count == self.ahead[row]
        return ready

    def _with_runs(self, waiting: list[int]) -> tuple[npt.NDArray[np.int32], ...]:
        """Tokens that wait go into rows that carry nothing; the last one of a slot is in the slot's own row."""
        free = [*range(self._slots, self._rows), *np.flatnonzero(~self._feeding).tolist()]
        tokens, positions, slots = self.tokens.copy(), self.positions.copy(), self._own.copy()
        self._turn += 1
        first = self._turn % len(waiting)
        for row in (*waiting[first:], *waiting[:first]):
            count = min(int(self.ahead[row]), len(free))
            for token in self._ahead[row][:count]:
                carrier = free.pop()
                slots[carrier], tokens[carrier], positions[carrier] = row, tokens[row], positions[row]
                tokens[row] = token
                positions[row] += 1
            if count:
                self._runs_taken.append((row, count))
        return tokens, positions, slots

    def _taken(self) -> None:
        """The model has what was arranged."""
        for row, count in self._runs_taken:
            self.tokens[row] = self._ahead[row][count - 1]
            self.positions[row] += count
            del self._ahead[row][:count]
            self.ahead[row] -= count
            self.chunked += count
        self._is_in |= self._feeding
        self.forwards += self._arrays is not None

    def forward(self) -> npt.NDArray[np.float32]:
        """Logits of all rows, as arranged; those of deferred rows are the ones they had.

        The model's one shape leaves a deferred row no way out of the others' forward pass: unless the row is lent to
        another one, it takes the same token at the same position again, which changes nothing. If no row has a token to
        take there is no forward pass.
        """
        logits = self._kept
        if self._arrays is not None:
            tokens, positions, slots = self._arrays
            if slots is None:
                logits = self._model.decode(self._cache, tokens, positions)
            else:
                logits = self._model.decode_runs(self._cache, tokens, positions, slots)
        self._taken()
        return self._with_kept(logits)

    def begin(self) -> None:
        """Begin the forward pass as arranged."""
        if self._arrays is not None:
            self._model.begin(self._cache, *self._arrays)
        self._taken()

    def finish(self) -> npt.NDArray[np.float32]:
        """Wait for what was begun; as `forward`."""
        return self._kept if self._arrays is None else self._with_kept(self._model.finish(self._cache))

    def _with_kept(self, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        if logits is not self._kept:
            for row in np.flatnonzero(self._holds).tolist():
                logits[row] = self._kept[row]
        return logits

    def keep(self, logits: npt.NDArray[np.float32], deferred: npt.NDArray[np.bool_]) -> None:
        """Keep the logits of rows that were deferred in this step, bool[slots]."""
        if logits is not self._kept:
            for row in np.flatnonzero(deferred & ~self._holds).tolist():
                self._kept[row] = logits[row]
