"""A host's step in two kernels: its rows are planned, and take their tokens, with what surrounds that.

A host has more rows than those with a grammar, and they come and go: prompts that are not read yet, rows that wait.
Each of the things to do about that is a line of Python or a few, of which a step would have dozens, each with caches
that a forward pass has emptied. A kernel reads the same few arrays in one go.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .._numba import entry_address, helper, kernel
from .foresight import learn_rows, note_plan
from .fuel import count, work_done
from .known_rows import advance_all, plan_all
from .layout import (
    B_ADVANCE_FUEL,
    B_TELLS_ENDS,
    COUNT_READY,
    KIND_EMPTY,
    KIND_SHIFT,
    LIMIT,
    PENDING,
    READY,
)
from .memory import (
    Block,
    call_kernel_4,
    call_kernel_5,
    call_kernel_7,
    load_i32,
    load_i64,
    load_u8,
    store_i32,
    store_i64,
    store_u8,
)
from .tables import ALL_ENDS

#: Slot of a row without a grammar, and of a row that sits a step out.
NO_SLOT = -1
# Arrays have one entry a row of the host.
(
    H_SLOTS,  # int32: slot of the row's grammar in the batch, or NO_SLOT
    H_POSITIONS,  # int64: tokens made
    H_MIN_TOKENS,  # int64: tokens made before an end
    H_CHOSEN,  # int32: slots of the rows that the batch is asked about
    H_DECODING,  # bool: rows that are to get a token
    H_MASK_IDS,  # int32: as `Plan.mask_ids`; nothing for rows that are not decoding or have no mask
    H_ENDS,  # uint32: as `Plan.end_allowed`
    H_STATUS,  # uint8: as `Plan.status`; READY for rows that are not decoding
    H_ONLY_END,  # bool: rows whose grammar allows nothing but an end
    H_LIMIT,  # bool: rows that cannot have a mask
    H_TOKENS,  # int32: the tokens that were chosen
    H_ANSWERS,  # uint8: as `Batch.advance`
    H_PLAN_ROWS,  # address of the kernel known_rows.plan_all
    H_ADVANCE_ROWS,  # address of the kernel known_rows.advance_all
    H_PLAN_FUEL,  # units that the plans of one step have, and `settle` and `advance`
    H_SETTLE_FUEL,
    H_ADVANCE_FUEL,
    H_PLAN_LEFT,  # what this step's plans have left of it, and its `advance`s
    H_ADVANCE_LEFT,
    H_SETTLE_LEFT,  # what `settle` has, and once it is over what it has left for `advance`
    H_SPENT,  # units spent so far, by all calls
    H_READY,  # rows with a grammar and a mask that `settle` has not counted
    H_AHEAD,  # address of the block of what makes masks ahead (`Prefetcher.block`), 0: nothing does
    H_NOTE_PLAN,  # address of the kernel foresight.note_plan
    H_LEARN_ROWS,  # address of the kernel foresight.learn_rows
    H_FIELDS,
) = range(26)
#: What `plan_step` says of its rows, or-ed together: some have nothing to choose from any more, some wait for a mask.
ANY_ENDS, ANY_PENDING = 1, 2


def host_block(slots: int) -> Block:
    """The block of a host with so many rows, none of which has a grammar."""
    arrays: tuple[tuple[int, npt.NDArray[Any]], ...] = (
        (H_SLOTS, np.full(slots, NO_SLOT, np.int32)),
        (H_MIN_TOKENS, np.zeros(slots, np.int64)),
        (H_CHOSEN, np.full(slots, NO_SLOT, np.int32)),
        (H_DECODING, np.zeros(slots, np.bool_)),
        (H_MASK_IDS, np.zeros(slots, np.int32)),
        (H_ENDS, np.zeros(slots, np.uint32)),
        (H_STATUS, np.zeros(slots, np.uint8)),
        (H_ONLY_END, np.zeros(slots, np.bool_)),
        (H_LIMIT, np.zeros(slots, np.bool_)),
        (H_TOKENS, np.zeros(slots, np.int32)),
        (H_ANSWERS, np.zeros(slots, np.uint8)),
    )
    block = Block.packed(H_FIELDS, arrays)
    block.set_number(H_PLAN_ROWS, entry_address(plan_all))
    block.set_number(H_ADVANCE_ROWS, entry_address(advance_all))
    block.set_number(H_NOTE_PLAN, entry_address(note_plan))
    block.set_number(H_LEARN_ROWS, entry_address(learn_rows))
    return block


@helper
def _finish_row(host, row, slot):  # type: ignore[no-untyped-def]
    """What the plan means for a row whose slot it was asked about: H_MASK_IDS and the others of a row; ANY_..."""
    mask_ids, ends, status = load_i64(host, H_MASK_IDS), load_i64(host, H_ENDS), load_u8(load_i64(host, H_STATUS), row)
    mask_id = load_i32(mask_ids, row)
    allowed = load_i32(ends, row)
    if slot == NO_SLOT:
        made = load_i64(load_i64(host, H_POSITIONS), row)
        allowed = ALL_ENDS if made >= load_i64(load_i64(host, H_MIN_TOKENS), row) else 0
    only_end = status == READY and slot != NO_SLOT and mask_id >> KIND_SHIFT == KIND_EMPTY
    if status != READY:
        mask_id, allowed = KIND_EMPTY << KIND_SHIFT, 0
    store_i32(mask_ids, row, mask_id)
    store_i32(ends, row, allowed)
    store_u8(load_i64(host, H_ONLY_END), row, 1 if only_end else 0)
    store_u8(load_i64(host, H_LIMIT), row, 1 if status == LIMIT else 0)
    if only_end or status == LIMIT:
        return ANY_ENDS
    return ANY_PENDING if status == PENDING else 0


@kernel("int64(int64, int64, boolean[::1], boolean)")
def plan_step(batch, host, decoding, again):  # type: ignore[no-untyped-def]
    """Plan the rows in `decoding`, within what the step's plans have; `again`: not the step's first one.

    Written are the arrays of `host` from H_CHOSEN to H_LIMIT. Returns ANY_ENDS and ANY_PENDING where they are true.
    """
    rows = decoding.size
    slots, chosen, decodes = load_i64(host, H_SLOTS), load_i64(host, H_CHOSEN), load_i64(host, H_DECODING)
    for row in range(rows):
        store_u8(decodes, row, 1 if decoding[row] else 0)
        store_i32(chosen, row, load_i32(slots, row) if decoding[row] else NO_SLOT)
    if not again:
        store_i64(host, H_PLAN_LEFT, load_i64(host, H_PLAN_FUEL))
        store_i64(host, H_ADVANCE_LEFT, load_i64(host, H_ADVANCE_FUEL))
    fuel, before = load_i64(host, H_PLAN_LEFT), work_done(batch)
    mask_ids, ends, status = load_i64(host, H_MASK_IDS), load_i64(host, H_ENDS), load_i64(host, H_STATUS)
    left = call_kernel_7(load_i64(host, H_PLAN_ROWS), batch, chosen, rows, fuel, mask_ids, ends, status)
    ahead = load_i64(host, H_AHEAD)
    if ahead != 0:
        call_kernel_5(load_i64(host, H_NOTE_PLAN), ahead, chosen, rows, mask_ids, status)
    spent = work_done(batch) - before
    store_i64(host, H_SPENT, load_i64(host, H_SPENT) + spent)
    store_i64(host, H_PLAN_LEFT, max(1, fuel - spent))
    store_i64(host, H_SETTLE_LEFT, max(0, load_i64(host, H_SETTLE_FUEL) + left))
    found, ready = 0, 0
    for row in range(rows):
        if decoding[row]:
            slot = load_i32(chosen, row)
            found |= _finish_row(host, row, slot)
            if slot != NO_SLOT and load_u8(status, row) == READY:
                ready += 1
        else:
            store_i32(mask_ids, row, KIND_EMPTY << KIND_SHIFT)
            store_i32(ends, row, 0)
            store_u8(load_i64(host, H_ONLY_END), row, 0)
            store_u8(load_i64(host, H_LIMIT), row, 0)
    store_i64(host, H_READY, ready)
    return found


@kernel("void(int64, int64, int32[::1], boolean)")
def advance_step(batch, host, tokens, decoded):  # type: ignore[no-untyped-def]
    """Accept the rows' tokens (-1: none) within what the step's `advance`s have; H_ANSWERS is as `Batch.advance`.

    `decoded`: they were made by a forward pass for the rows in H_DECODING, which are the only ones that take one and
    are a token further, whatever the answer. They may be told ENDED. Otherwise tokens are of all rows, and what they
    mean for their positions is the caller's to say.
    """
    rows = tokens.size
    slots, chosen, own = load_i64(host, H_SLOTS), load_i64(host, H_CHOSEN), load_i64(host, H_TOKENS)
    decodes, positions = load_i64(host, H_DECODING), load_i64(host, H_POSITIONS)
    for row in range(rows):
        takes = tokens[row] >= 0 and (not decoded or load_u8(decodes, row) != 0)
        store_i32(own, row, tokens[row])
        store_i32(chosen, row, load_i32(slots, row) if takes else NO_SLOT)
        if takes and decoded:
            store_i64(positions, row, load_i64(positions, row) + 1)
    if decoded:
        count(batch, COUNT_READY, load_i64(host, H_READY))
        store_i64(host, H_READY, 0)
    ahead = load_i64(host, H_AHEAD)
    if ahead != 0:
        call_kernel_4(load_i64(host, H_LEARN_ROWS), ahead, chosen, rows, own)
    fuel, before = load_i64(host, H_ADVANCE_LEFT), work_done(batch)
    store_i64(batch, B_ADVANCE_FUEL, fuel + load_i64(host, H_SETTLE_LEFT))
    store_i64(host, H_SETTLE_LEFT, 0)
    store_i64(batch, B_TELLS_ENDS, 1 if decoded else 0)
    answers = load_i64(host, H_ANSWERS)
    call_kernel_5(load_i64(host, H_ADVANCE_ROWS), batch, chosen, rows, own, answers)
    spent = work_done(batch) - before
    store_i64(host, H_ADVANCE_LEFT, max(0, fuel - spent))
    store_i64(host, H_SPENT, load_i64(host, H_SPENT) + spent)
