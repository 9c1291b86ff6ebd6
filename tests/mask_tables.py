"""Tables of masks as a pool has them, for tests of sampling on any back end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stepmask.masks.layout import MAX_ENDS
from stepmask.masks.tables import ALL_ENDS, KIND_SHIFT, EndSets, MaskTables

#: Mask ids of each kind, plus its number.
DENSE, LIST, SINGLE, EMPTY = (kind << KIND_SHIFT for kind in range(4))


def pack(masks: NDArray[np.bool_]) -> NDArray[np.uint32]:
    rows, width = masks.shape
    padded = np.zeros((rows, -(-width // 32) * 32), np.bool_)
    padded[:, :width] = masks
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint32)


def tables(masks: NDArray[np.bool_], lists: list[list[int]] | None = None) -> MaskTables:
    lists = lists or []
    lengths = np.array([len(tokens) for tokens in lists], np.int32)
    offsets = (np.cumsum(lengths) - lengths).astype(np.int32)
    return MaskTables(pack(masks), offsets, lengths, np.array([t for tokens in lists for t in tokens], np.int32))


def bfloat16_bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def random_ends(rng: np.random.Generator, rows: int, vocabulary: int) -> tuple[EndSets, NDArray[np.uint32]]:
    """(end tokens of rows, which of them are legal): few as a rule, now and then as many as a row may have."""
    counts = np.minimum(rng.choice([0, 1, 1, 2, 3, MAX_ENDS], rows), vocabulary)
    chosen = [rng.choice(vocabulary, count, replace=False).astype(np.int32) for count in counts.tolist()]
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    bits = rng.integers(0, 2**32, rows, np.uint32)
    bits[rng.random(rows) < 0.2] = ALL_ENDS
    bits[rng.random(rows) < 0.2] = 0
    return EndSets(start, np.concatenate([np.zeros(0, np.int32), *chosen])), bits
