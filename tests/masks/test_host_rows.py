"""The kernels around a step's calls against the NumPy lines that they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stepmask
from stepmask.masks.host_rows import (
    choose_rows,
    copy_plan,
    copy_rows,
    finish_plan,
    take_tokens,
)
from stepmask.masks.layout import LIMIT, PENDING, READY
from stepmask.masks.tables import ALL_ENDS, INDEX_BITS, KIND_EMPTY, KIND_SHIFT, KIND_SINGLE

NOTHING = KIND_EMPTY << KIND_SHIFT


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    stepmask.warm_up()


@st.composite
def rows(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """A step's arrays, with all kinds of rows."""
    count = draw(st.integers(0, 12))

    def array(values: st.SearchStrategy[Any], dtype: Any) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=count, max_size=count)), dtype)

    ids = st.sampled_from([-1, 0, 7, INDEX_BITS, KIND_SINGLE << KIND_SHIFT | 5, NOTHING])
    return {
        "decoding": array(st.booleans(), np.bool_),
        "slots": array(st.integers(-1, 5), np.int32),
        "tokens": array(st.integers(-1, 3), np.int32),
        "positions": array(st.integers(0, 4), np.int64),
        "min_tokens": array(st.integers(0, 4), np.int64),
        "mask_ids": array(ids, np.int32),
        "end_allowed": array(st.sampled_from([0, 1, ALL_ENDS]), np.uint32),
        "status": array(st.sampled_from([READY, PENDING, LIMIT]), np.uint8),
    }


@given(rows())
def test_copies(step: dict[str, np.ndarray]) -> None:
    slots, status = step["slots"], step["status"]
    own_slots, own_status = np.full(len(slots) + 1, 77, np.int32), np.full(len(slots) + 1, 77, np.uint8)
    assert copy_rows(slots, own_slots.ctypes.data) == max(slots, default=-1)
    np.testing.assert_array_equal(own_slots, [*slots, 77])
    slots = slots - 1
    assert copy_rows(slots, own_slots.ctypes.data) == (1 << 31 if -2 in slots else max(slots, default=-1))
    np.testing.assert_array_equal(own_slots, [*slots, 77])
    slots = step["slots"]
    own_slots[:] = 77
    counts = copy_plan(slots, status, own_slots.ctypes.data, own_status.ctypes.data)
    np.testing.assert_array_equal(own_slots, [*slots, 77])
    np.testing.assert_array_equal(own_status, [*status, 77])
    assert counts >> 32 == np.count_nonzero((status == READY) & (slots >= 0))
    assert counts & 0xFFFFFFFF == np.count_nonzero(status == PENDING)


@given(rows())
def test_choosing_and_taking(step: dict[str, np.ndarray]) -> None:
    decoding, slots, tokens = step["decoding"], step["slots"], step["tokens"]
    chosen = np.full(len(slots), 77, np.int32)
    choose_rows(decoding, slots, chosen)
    np.testing.assert_array_equal(chosen, np.where(decoding, slots, -1))
    positions = step["positions"].copy()
    taken = decoding & (tokens >= 0)
    take_tokens(decoding, tokens, slots, positions, chosen)
    np.testing.assert_array_equal(chosen, np.where(taken, slots, -1))
    np.testing.assert_array_equal(positions, step["positions"] + taken)


@given(rows())
def test_what_a_plan_means(step: dict[str, np.ndarray]) -> None:
    decoding, status, mask_ids = step["decoding"], step["status"], step["mask_ids"]
    count = len(decoding)
    own_ids, own_ends = np.full(count, 77, np.int32), np.full(count, 77, np.uint32)
    only_end, limit = np.ones(count, np.bool_), np.ones(count, np.bool_)
    found = finish_plan(
        *(decoding, step["slots"], step["positions"], step["min_tokens"], mask_ids, step["end_allowed"], status),
        *(own_ids, own_ends, only_end, limit),
    )
    ready, has_grammar = decoding & (status == READY), step["slots"] >= 0
    may_end = np.where(step["positions"] >= step["min_tokens"], np.uint32(ALL_ENDS), np.uint32(0))
    np.testing.assert_array_equal(own_ids, np.where(ready, mask_ids, NOTHING))
    np.testing.assert_array_equal(own_ends, np.where(ready, np.where(has_grammar, step["end_allowed"], may_end), 0))
    np.testing.assert_array_equal(only_end, ready & has_grammar & (mask_ids == NOTHING))
    np.testing.assert_array_equal(limit, decoding & (status == LIMIT))
    assert found is bool(only_end.any() or limit.any())
