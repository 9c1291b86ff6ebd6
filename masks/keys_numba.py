"""Logits as order-preserving integers, and a row's mask id as a bitmap or a list.

Logits come as their bits, float32 as uint32 with shift 0 and bfloat16 as uint16 with shift 16. They are compared as
*keys*: int32 in the order of the floats, NaN as -inf, -0 as +0, +inf as the largest finite value. The truncation order
(logit descending, id ascending) is the ascending order of *composites*: inverted key in the upper 32
bits, id in the lower.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._numba import helper
from .noise import FLOAT_MAX
from .tables import INDEX_BITS, KIND_LIST, KIND_SHIFT, KIND_SINGLE

#: Key of -inf and of NaN; a token with it is as good as not legal.
KEY_LOWEST = np.int32(-2139095041)
_KEY_INFINITE = np.int32(0x7F800000)
_KEY_LARGEST = np.int32(0x7F7FFFFF)
_LOW_31 = np.int32(0x7FFFFFFF)
_ALL = np.uint32(0xFFFFFFFF)


@helper
def logit_key(bits: int) -> Any:
    """The key of a logit's float32 bits."""
    signed = np.int32(bits)
    key = np.int32(signed ^ np.int32((signed >> 31) & _LOW_31))
    key = KEY_LOWEST if key > _KEY_INFINITE else key
    key = min(key, _KEY_LARGEST)
    return np.int32(0) if key == np.int32(-1) else key


@helper
def scaled(key: int, inverse_temperature: float) -> Any:
    """Logit of a key over the temperature, finite. The key is not that of -inf."""
    signed = np.int32(key)
    value = np.int32(signed ^ np.int32((signed >> 31) & _LOW_31)).view(np.float32)
    return min(max(value * inverse_temperature, -FLOAT_MAX), FLOAT_MAX)


@helper
def composite(key: int, token: int) -> Any:
    """Truncation order as one number."""
    return (np.uint64(np.uint32(np.int32(key) ^ _LOW_31)) << np.uint64(32)) | np.uint64(np.uint32(token))


@helper
def composite_key(value: int) -> Any:
    return np.int32(np.int32(np.uint32(np.uint64(value) >> np.uint64(32))) ^ _LOW_31)


@helper
def composite_token(value: int) -> Any:
    return np.int32(np.uint32(value))


@helper
def read_key(bits: NDArray[Any], place: int, shift: int) -> Any:
    return logit_key(np.uint32(np.uint32(bits[np.uint64(place)]) << np.uint32(shift)))


@helper
def mark(marks: NDArray[Any], token: int, vocabulary: int) -> bool:
    """Set a token's mark; whether it is a token of the vocabulary and had none."""
    if token < 0 or token >= vocabulary:
        return False
    bit = np.uint32(1) << np.uint32(token & 31)
    if marks[token >> 5] & bit:
        return False
    marks[token >> 5] |= bit
    return True


@helper
def end_is_legal(end_allowed: int, i: int) -> Any:
    """Is the row's i-th end token legal?"""
    return (end_allowed >> np.uint32(i & 31)) & np.uint32(1) != 0


@helper
def build_mask(
    index: int, dense: NDArray[Any], ends: NDArray[Any], end_allowed: int, vocabulary: int, mask: NDArray[Any]
) -> None:
    """Write a row's mask with its end tokens: dense row `index`, or all tokens where `index` is -1.

    `end_allowed`: bits of the row's legal end tokens, here and below.
    """
    words = (vocabulary + 31) >> 5
    # Loops, as everywhere in the kernels: slice assignments take Numba seconds to compile.
    for word in range(words):
        mask[word] = _ALL if index < 0 else dense[index, word]
    if vocabulary & 31:
        mask[words - 1] &= np.uint32((1 << (vocabulary & 31)) - 1)
    for i in range(ends.size):
        token = ends[i]
        if 0 <= token < vocabulary:
            bit = np.uint32(1) << np.uint32(token & 31)
            if end_is_legal(end_allowed, i):
                mask[token >> 5] |= bit
            else:
                mask[token >> 5] &= ~bit


@helper
def build_listed(
    listed: NDArray[Any], ends: NDArray[Any], end_allowed: int, vocabulary: int, mask: NDArray[Any]
) -> None:
    """Write the bitmap of listed tokens with the row's end tokens."""
    for word in range((vocabulary + 31) >> 5):
        mask[word] = 0
    for token in listed:
        mark(mask, token, vocabulary)
    for i in range(ends.size):
        token = ends[i]
        if end_is_legal(end_allowed, i):
            mark(mask, token, vocabulary)
        elif 0 <= token < vocabulary:
            mask[token >> 5] &= ~(np.uint32(1) << np.uint32(token & 31))


@helper
def listed_span(mask_id: int, list_offset: NDArray[Any], list_length: NDArray[Any]) -> tuple[int, int]:
    """Where a list's tokens begin and end; -1 and 0 for a single token, 0 and 0 for another kind or an unknown list."""
    kind = mask_id >> KIND_SHIFT
    index = mask_id & INDEX_BITS
    if kind == KIND_SINGLE:
        return -1, 0
    if kind == KIND_LIST and index < list_offset.size:
        return np.int64(list_offset[index]), np.int64(list_offset[index]) + list_length[index]
    return 0, 0


@helper
def collect(
    bits: NDArray[Any],
    base: int,
    shift: int,
    listed: NDArray[Any],
    ends: NDArray[Any],
    end_allowed: int,
    vocabulary: int,
    marks: NDArray[Any],
    values: NDArray[Any],
) -> int:
    """Write the composites of listed and end tokens, each once; how many. `marks` is zero before and after."""
    count = 0
    for i in range(ends.size):
        token = ends[i]
        if mark(marks, token, vocabulary) and end_is_legal(end_allowed, i):
            key = read_key(bits, base + token, shift)
            if key > KEY_LOWEST:
                values[count] = composite(key, token)
                count += 1
    for token in listed:
        if mark(marks, token, vocabulary):
            key = read_key(bits, base + token, shift)
            if key > KEY_LOWEST:
                values[count] = composite(key, token)
                count += 1
    for token in ends:
        if 0 <= token < vocabulary:
            marks[token >> 5] = 0
    for token in listed:
        if 0 <= token < vocabulary:
            marks[token >> 5] = 0
    return count
