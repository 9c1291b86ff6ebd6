"""What surrounds the calls of a batch: copies and counts of rows, each a few lines of NumPy else."""

from __future__ import annotations

from .._numba import kernel
from .layout import PENDING, READY
from .memory import store_i32, store_u8


@kernel("int64(int32[::1], int64)")
def copy_rows(values, target):  # type: ignore[no-untyped-def]
    """Copy the values to int32[...] at an address. Returns the largest, -1 where none is larger; 2^31 where one is less
    than -1."""
    largest = -1
    for row in range(values.size):
        value = values[row]
        largest = max(largest, value if value >= -1 else 1 << 31)
        store_i32(target, row, value)
    return largest


@kernel("int64(int32[::1], uint8[::1], int64, int64)")
def copy_plan(slots, status, own_slots, own_status):  # type: ignore[no-untyped-def]
    """Copy a plan's slots and status to int32[rows] and uint8[rows] at addresses.

    Returns how many rows with a grammar are READY, times 2^32, plus how many rows are PENDING.
    """
    ready, pending = 0, 0
    for row in range(slots.size):
        if status[row] == PENDING:
            pending += 1
        elif status[row] == READY and slots[row] >= 0:
            ready += 1
        store_i32(own_slots, row, slots[row])
        store_u8(own_status, row, status[row])
    return (ready << 32) + pending
