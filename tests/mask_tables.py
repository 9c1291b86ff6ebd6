"""Tables of masks as a pool has them, for tests of sampling on any back end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stepmask.masks.tables import KIND_SHIFT, MaskTables

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
