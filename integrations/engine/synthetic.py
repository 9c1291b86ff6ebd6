"""A model without weights, for experiments with the step: any vocabulary size, any forward time."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..._numba import helper, kernel
from .model import OverlappedForward

_SPREAD = np.float32(0.03)


@helper
def _mix(value: np.uint64) -> np.uint64:
    """Finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014)."""
    mixed: np.uint64 = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    return mixed


@kernel("void(uint64[:, ::1], int64, int32[::1], int64, uint64)")
def take_in(histories: npt.NDArray[np.uint64], slot: int, tokens: npt.NDArray[np.int32], start: int, seed: int) -> None:
    """Fold tokens into the hash of their row's history; entry p covers the tokens before position p."""
    history = np.uint64(seed) if start == 0 else histories[slot, start]
    histories[slot, start] = history
    for i in range(len(tokens)):
        history = _mix((history + np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(tokens[i]))
        histories[slot, start + i + 1] = history


@kernel("void(uint64[:, ::1], int32[::1], int32[::1], uint64, float32[:, ::1])")
def take_in_all(
    histories: npt.NDArray[np.uint64],
    tokens: npt.NDArray[np.int32],
    positions: npt.NDArray[np.int32],
    seed: int,
    logits: npt.NDArray[np.float32],
) -> None:
    """One token a row, then the row's logits: a hash of (row history, token id), near a normal distribution."""
    for row in range(len(tokens)):
        take_in(histories, row, tokens[row : row + 1], np.int64(positions[row]), seed)
        history = histories[row, positions[row] + 1]
        low = np.uint32(history)
        high = np.uint32(history >> np.uint64(32))
        for token in range(logits.shape[1]):
            # 32-bit integer hash ("lowbias32" of C. Wellons' hash prospector), which LLVM turns into vector code.
            # Numba makes a product of two uint32 a uint64, hence the conversions.
            mixed = np.uint32(np.uint32(token) * np.uint32(0x9E3779B9)) ^ low
            mixed = np.uint32((mixed ^ (mixed >> np.uint32(16))) * np.uint32(0x7FEB352D))
            mixed = np.uint32((mixed ^ (mixed >> np.uint32(15)) ^ high) * np.uint32(0x846CA68B))
            mixed = mixed ^ (mixed >> np.uint32(16))
            # The sum of the four bytes has mean 510 and standard deviation 148.
            total = (
                (mixed & np.uint32(255))
                + ((mixed >> np.uint32(8)) & np.uint32(255))
                + ((mixed >> np.uint32(16)) & np.uint32(255))
                + (mixed >> np.uint32(24))
            )
            logits[row, token] = (np.float32(total) - np.float32(510.0)) * _SPREAD


@dataclass(frozen=True)
class SyntheticCache:
    """`histories[slot, p]`: hash of the slot's tokens before position p, uint64. `logits`: the last answer."""

    histories: npt.NDArray[np.uint64]
    logits: npt.NDArray[np.float32]


class SyntheticModel(OverlappedForward):
    """Logits that depend on a row's own tokens and a seed alone, after a forward pass of a given length.

    `forward_seconds` is waited for without the interpreter lock, as a forward pass on a device is; the
    time to make the logits counts towards it. A prefill call takes `prefill_seconds`.
    """

    def __init__(
        self,
        vocabulary_size: int,
        *,
        forward_seconds: float = 0.0,
        prefill_seconds: float = 0.0,
        prefill_chunk: int = 64,
        seed: int = 0,
    ) -> None:
        if vocabulary_size < 1 or prefill_chunk < 1:
            raise ValueError("vocabulary_size and prefill_chunk must be at least 1")
        if forward_seconds < 0 or prefill_seconds < 0:
            raise ValueError("a forward pass cannot take less than no time")
        self._vocabulary_size = vocabulary_size
        self._forward_seconds = forward_seconds
        self._prefill_seconds = prefill_seconds
        self._prefill_chunk = prefill_chunk
        self._seed = np.uint64(seed)
        self._deadline = 0.0

    @property
    def vocabulary_size(self) -> int:
        return self._vocabulary_size

    @property
    def prefill_chunk(self) -> int:
        return self._prefill_chunk

    def open(self, slots: int, max_length: int) -> SyntheticCache:
        """A cache whose pages are touched already."""
        histories = np.zeros((slots, max_length + self._prefill_chunk + 1), np.uint64)
        logits = np.zeros((slots, self._vocabulary_size), np.float32)
        return SyntheticCache(histories, logits)

    def prefill(self, cache: SyntheticCache, slot: int, tokens: npt.NDArray[np.int32], start: int) -> None:
        """See `Model.prefill`."""
        deadline = time.perf_counter() + self._prefill_seconds
        take_in(cache.histories, slot, np.ascontiguousarray(tokens, np.int32), start, self._seed)
        _wait_until(deadline)

    def begin(
        self,
        cache: SyntheticCache,
        tokens: npt.NDArray[np.int32],
        positions: npt.NDArray[np.int32],
        slots: npt.NDArray[np.int32] | None,
    ) -> None:
        """See `OverlappedModel.begin`. The logits are made at once, as if a device did."""
        self._deadline = time.perf_counter() + self._forward_seconds
        if slots is not None:
            lent = np.flatnonzero(slots != np.arange(len(slots)))
            for row in lent[np.argsort(positions[lent], kind="stable")].tolist():
                start = int(positions[row])
                take_in(cache.histories, int(slots[row]), tokens[row : row + 1], start, self._seed)
            # Their own slots take a token at a position of the cache that no sequence has.
            positions = positions.copy()
            positions[lent] = cache.histories.shape[1] - 2
        take_in_all(cache.histories, tokens, positions, self._seed, cache.logits)

    def finish(self, cache: SyntheticCache) -> npt.NDArray[np.float32]:
        """See `OverlappedModel.finish`."""
        _wait_until(self._deadline)
        return cache.logits


def _wait_until(deadline: float) -> None:
    remaining = deadline - time.perf_counter()
    if remaining > 0:
        time.sleep(remaining)
