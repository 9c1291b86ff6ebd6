"""Mask ids and the tables they point into: what a step ships instead of masks.

A mask id is one int32 a row. Masks hold no end-token bits: which tokens end a row is the row's own (`EndSets`), because
it differs by request, and so is which of them are legal now: a uint32 a row, of which bit i is the i-th token of the
row's end set. As a rule that is all of them or none, but a grammar may name end tokens as symbols of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arguments import converted
from .layout import MAX_ENDS

#: Mask id of a row without a grammar: every token below the vocabulary size.
UNCONSTRAINED = -1
#: `mask_id >> KIND_SHIFT` is the kind, `mask_id & INDEX_BITS` the index or the token.
KIND_SHIFT = 28
INDEX_BITS = (1 << KIND_SHIFT) - 1
#: The index is a row of `MaskTables.dense`.
KIND_DENSE = 0
#: The index is a list of tokens.
KIND_LIST = 1
#: The index is itself the only legal token.
KIND_SINGLE = 2
#: No token is legal, except perhaps an end token.
KIND_EMPTY = 3
#: Every end token of the row is legal.
ALL_ENDS = 0xFFFFFFFF


def plain(array: Any, dtype: type[np.generic], dimensions: int, what: str = "values") -> NDArray[Any]:
    """`array` as a writable C-contiguous array of `dtype`, sharing memory where it can.

    Kernels are compiled for exactly this form: a read-only or strided view would be another type
    and would be compiled during a step. Raises `ValueError` for other dimensions and for what are no such integers.
    """
    if isinstance(array, np.ndarray) and array.dtype == dtype and array.flags.carray:
        result = array
    else:
        result = np.require(converted(array, dtype, what), dtype, ["C", "W"])
    if result.ndim != dimensions:
        raise ValueError(f"{what}: expected {dimensions} dimensions, got {result.ndim}")
    return result


def end_bits(allowed: Any) -> NDArray[np.uint32]:
    """What kernels take of `end_allowed`: uint32, bit i for the row's i-th end token; bool is all of them or none.

    Raises `TypeError` for other types: whether the 1 of a uint8 is a bit or a yes cannot be told.
    """
    array = np.asarray(allowed)
    if array.dtype == np.bool_:
        array = np.where(array, np.uint32(ALL_ENDS), np.uint32(0))
    if array.dtype != np.uint32:
        raise TypeError(f"end_allowed must be uint32 (a bit for each end token) or bool, not {array.dtype}")
    return plain(array, np.uint32, 1)


@dataclass(frozen=True)
class MaskTables:
    """What mask ids point into.

    `dense` uint32[masks, words]: LSB first, 1 = allowed, bits past the vocabulary zero.
    `list_offset`, `list_length` int32[lists]: where a list lies in `list_tokens` int32[total]; tokens
    of a list are distinct.
    """

    dense: NDArray[np.uint32]
    list_offset: NDArray[np.int32]
    list_length: NDArray[np.int32]
    list_tokens: NDArray[np.int32]

    def __post_init__(self) -> None:
        object.__setattr__(self, "dense", plain(self.dense, np.uint32, 2, "dense"))
        for name in ("list_offset", "list_length", "list_tokens"):
            object.__setattr__(self, name, plain(getattr(self, name), np.int32, 1, name))
        if self.list_offset.size != self.list_length.size:
            raise ValueError("list_offset and list_length differ in length")

    @classmethod
    def empty(cls, words: int) -> MaskTables:
        """Tables without any mask, for rows that are all unconstrained or single tokens."""
        none = np.zeros(0, np.int32)
        return cls(np.zeros((0, words), np.uint32), none, none, none)


@dataclass(frozen=True)
class EndSets:
    """Each row's end tokens: `tokens[start[row]:start[row + 1]]`. `start` int32[rows + 1], `tokens` int32[total].

    Those of a row are distinct (one that is there twice must have two equal bits), and at most `layout.MAX_ENDS`: more
    are a `ValueError`.
    """

    start: NDArray[np.int32]
    tokens: NDArray[np.int32]

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", plain(self.start, np.int32, 1))
        object.__setattr__(self, "tokens", plain(self.tokens, np.int32, 1, "end tokens"))
        if self.start.size > 1 and int((self.start[1:] - self.start[:-1]).max()) > MAX_ENDS:
            raise ValueError(f"a row has more than {MAX_ENDS} end tokens")

    @classmethod
    def same(cls, rows: int, tokens: Sequence[int] = ()) -> EndSets:
        """The same end tokens for each of `rows` rows."""
        start = np.arange(rows + 1, dtype=np.int32) * np.int32(len(tokens))
        return cls(start, np.tile(plain(tokens, np.int32, 1, "end tokens"), rows))
