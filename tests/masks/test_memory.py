"""Memory for kernels: where it begins, that it stays, and that what is packed is what was given."""

from __future__ import annotations

import gc
import itertools
import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmask.masks.memory import LARGE_PAGE, Block, room, untouched


@pytest.mark.parametrize("size", [0, 1, 4096, LARGE_PAGE - 1, LARGE_PAGE, 3 * LARGE_PAGE + 5])
def test_room_begins_at_a_line_and_large_room_at_a_large_page(size: int) -> None:
    memory = room(size)
    assert memory.shape == (size,) and memory.dtype == np.uint8 and memory.flags.writeable
    large = size >= LARGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE")
    assert not size or memory.ctypes.data % (LARGE_PAGE if large else 64) == 0
    part = memory[size // 2 :]
    memory[:] = 7
    del memory
    gc.collect()
    assert (part == 7).all()


@given(st.lists(st.tuples(st.sampled_from(["u1", "i4", "i8", "f8"]), st.integers(0, 70), st.booleans()), max_size=6))
def test_packed_arrays_are_those_given(shapes: list[tuple[str, int, bool]]) -> None:
    """In their types and shapes, each at a line of its own, none within another; kernels' addresses are theirs."""
    rng = np.random.default_rng(len(shapes))
    given = [rng.integers(0, 99, (length, 3) if wide else length).astype(dtype) for dtype, length, wide in shapes]
    given.append(np.arange(5))
    block = Block.packed(len(given), enumerate(given))
    spans = []
    for i, array in enumerate(given):
        own = block.arrays[i]
        assert own.dtype == array.dtype and own.shape == array.shape
        np.testing.assert_array_equal(own, array)
        if array.nbytes:
            assert block.header[i] == own.ctypes.data and own.ctypes.data % 64 == 0
            spans.append((own.ctypes.data, own.ctypes.data + own.nbytes))
    spans.sort()
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


def test_zeros_beside_each_other_and_arrays_of_another_block() -> None:
    block, other = Block(5), Block(5)
    small, words, none = block.add_zeros((0, 3, np.uint8), (1, 2, np.int64), (4, 0, np.int32))
    assert (small.shape, words.shape, none.shape) == ((3,), (2,), (0,))
    assert small.dtype == np.uint8 and words.dtype == np.int64 and not small.any() and not words.any()
    assert block.header[0] == small.ctypes.data and block.header[1] == words.ctypes.data == small.ctypes.data + 8
    small[:], words[:] = 255, 7
    assert small.tolist() == [255] * 3 and words.tolist() == [7, 7]
    kept = np.arange(4)
    other.set_array(2, kept)
    block.share(other)
    assert block.header.tolist()[2:4] == [kept.ctypes.data, 0] and block.arrays[2] is kept


def test_what_is_untouched_takes_no_memory() -> None:
    """Gigabytes of zeros, of which a page is used."""
    arena = untouched(1 << 10, 1 << 19)
    assert arena.shape == (1 << 10, 1 << 19) and arena.dtype == np.int64 and arena.flags.writeable
    arena[3, 5] = 7
    assert (arena[3, 5], arena[3, 6], arena[-1, -1]) == (7, 0, 0)
    with pytest.raises(MemoryError, match="address space"):
        untouched(1 << 20, 1 << 40)
