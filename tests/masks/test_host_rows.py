"""The kernels around a batch's calls against the NumPy lines that they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stepmask
from stepmask.masks.host_rows import copy_plan, copy_rows
from stepmask.masks.layout import LIMIT, PENDING, READY


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    stepmask.warm_up()


@st.composite
def rows(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """A step's arrays, with all kinds of rows."""
    count = draw(st.integers(0, 12))

    def array(values: st.SearchStrategy[Any], dtype: Any) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=count, max_size=count)), dtype)

    return {
        "slots": array(st.integers(-1, 5), np.int32),
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
