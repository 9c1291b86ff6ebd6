"""What surrounds the calls of a step, for all rows at once: copies, choices and counts.

Each is a line of NumPy or a few, of which a step would have dozens, each with caches that a forward pass has emptied. A
kernel reads the same few arrays in one go.
"""

from __future__ import annotations

from .._numba import kernel
from .layout import KIND_EMPTY, KIND_SHIFT, LIMIT, PENDING, READY
from .memory import store_i32, store_u8
from .tables import ALL_ENDS

#: Slot of a row without a grammar, and of a row that sits a step out.
NO_SLOT = -1


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


@kernel("void(boolean[::1], int32[::1], int32[::1])")
def choose_rows(decoding, slots, chosen):  # type: ignore[no-untyped-def]
    """`chosen` int32[rows]: the slots of the rows that are decoding, -1 for the others."""
    for row in range(decoding.size):
        chosen[row] = slots[row] if decoding[row] else NO_SLOT


@kernel(
    "boolean(boolean[::1], int32[::1], int64[::1], int64[::1], int32[::1], uint32[::1], uint8[::1], int32[::1], "
    "uint32[::1], boolean[::1], boolean[::1])"
)
def finish_plan(  # type: ignore[no-untyped-def]
    decoding, chosen, positions, min_tokens, mask_ids, end_allowed, status, own_ids, own_ends, only_end, limit
):
    """What a plan means for rows of which some are not decoding, and some have no grammar (`chosen` -1).

    `positions`, `min_tokens`: tokens made, and needed before an end; `mask_ids`, `end_allowed`, `status`: the plan's.
    Written, of each row: `own_ids` (a mask of nothing unless it is decoding and READY), `own_ends`, `only_end`: its
    grammar allows nothing but an end; `limit`: it cannot have a mask. Returns whether either is true of any row.
    """
    found = False
    for row in range(decoding.size):
        ready = decoding[row] and status[row] == READY
        own_ids[row] = KIND_EMPTY << KIND_SHIFT
        own_ends[row] = 0
        only_end[row] = False
        limit[row] = decoding[row] and status[row] == LIMIT
        if limit[row]:
            found = True
        if not ready:
            continue
        own_ids[row] = mask_ids[row]
        if chosen[row] != NO_SLOT:
            own_ends[row] = end_allowed[row]
            if mask_ids[row] >> KIND_SHIFT == KIND_EMPTY:
                only_end[row] = True
                found = True
        elif positions[row] >= min_tokens[row]:
            own_ends[row] = ALL_ENDS
    return found


@kernel("void(boolean[::1], int32[::1], int32[::1], int64[::1], int32[::1])")
def take_tokens(decoding, tokens, slots, positions, chosen):  # type: ignore[no-untyped-def]
    """`chosen` int32[rows]: slots of decoding rows that have a token (not -1), whose `positions` move on; else -1."""
    for row in range(decoding.size):
        chosen[row] = NO_SLOT
        if decoding[row] and tokens[row] >= 0:
            chosen[row] = slots[row]
            positions[row] += 1
