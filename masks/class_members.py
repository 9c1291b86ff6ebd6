"""The tokens made of the code points of one class, by vocabulary: all grammars share them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from .._numba import kernel
from .memory import load_i32, load_i64, load_u8
from .trie import V_RANK_BYTES, V_RANK_ID, V_RANK_START, V_RANKS

if TYPE_CHECKING:
    from .trie import VocabularyTables


class ClassMembers(NamedTuple):
    """`bits`, int64[2, words]: the tokens made of a class alone, and those that are so after one space, `made` of the
    former. `address`: of `bits`, for kernels."""

    bits: npt.NDArray[np.int64]
    made: int
    address: int


@kernel("void(int64, uint8[::1], int64[:, ::1])")
def _class_members(vocabulary, table, by_id):  # type: ignore[no-untyped-def]
    """Bitmaps of the tokens all of whose code points have their bit set in `table` (one bit a code point).

    Row 0: all of them; row 1: all but the first, which is a space. The last one may be cut short.
    """
    starts = load_i64(vocabulary, V_RANK_START)
    data = load_i64(vocabulary, V_RANK_BYTES)
    rank_id = load_i64(vocabulary, V_RANK_ID)
    for rank in range(load_i64(vocabulary, V_RANKS)):
        i, end = load_i32(starts, rank), load_i32(starts, rank + 1)
        good = True
        inside = True
        begin = i
        while good and i < end:
            b = load_u8(data, i)
            more = 0 if b < 0x80 else 1 if b < 0xE0 else 2 if b < 0xF0 else 3
            if 0x80 <= b < 0xC2 or b > 0xF4:
                good = False
                break
            point = b if more == 0 else b & (0x3F >> more)
            cut = 0
            for k in range(1, more + 1):
                c = 0x80
                if i + k < end:
                    c = load_u8(data, i + k)
                else:
                    cut += 1
                good = good and c & 0xC0 == 0x80
                point = (point << 6) | (c & 0x3F)
            # An overlong form or a surrogate decodes to a code point, but is no text.
            lowest = 0 if more == 0 else 0x80 if more == 1 else 0x800 if more == 2 else 0x10000
            if cut > 0:
                # Cut short: alive if any code point of the class begins so.
                some = False
                for other in range(max(point, lowest), min(point + (1 << (6 * cut)), 0x110000)):
                    if table[other >> 3] >> (other & 7) & 1 != 0:
                        some = True
                        break
                good = good and some
                if good:
                    break
                continue
            good = good and lowest <= point < 0x110000 and not (0xD800 <= point < 0xE000)
            if good and table[point >> 3] >> (point & 7) & 1 == 0:
                good = i == begin and b == 0x20 and end > begin + 1
                inside = False
            i += more + 1
        if good:
            token = load_i32(rank_id, rank)
            if inside:
                by_id[0, token >> 6] |= np.int64(1) << np.int64(token & 63)
            if load_u8(data, begin) == 0x20 and end > begin + 1:
                by_id[1, token >> 6] |= np.int64(1) << np.int64(token & 63)


def keep_members(tables: VocabularyTables, ranges: npt.NDArray[np.int32], bits: npt.NDArray[np.int64]) -> ClassMembers:
    """Keep the bitmaps of a class with the tables, as long as these are there."""
    count = int(np.bitwise_count(bits[0].view(np.uint64)).sum())
    members = ClassMembers(bits, count, bits.ctypes.data)
    tables.class_members[ranges.tobytes()] = members
    return members


def class_members(tables: VocabularyTables, ranges: npt.NDArray[np.int32]) -> ClassMembers:
    """The members of the class of code points in `ranges`, rows of first and last; kept with the tables."""
    found = tables.class_members.get(ranges.tobytes())
    if found is not None:
        return found
    paint = np.zeros(0x110000, np.bool_)
    for low, high in ranges.reshape(-1, 2).tolist():
        paint[low : high + 1] = True
    bits = np.zeros((2, tables.words), np.int64)
    _class_members(tables.address, np.packbits(paint, bitorder="little"), bits)
    return keep_members(tables, ranges, bits)
