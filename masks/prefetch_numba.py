"""What the background thread does with batches while the model runs forward: masks that rows wait for, and successors.

While it runs the batches are its own: `masks.prefetch` hands them over and takes them back, so there is never more than
one writer. The work is that of the step itself, in slices: `step.plan_rows` for the rows that wait; for the others, one
token ahead, `advance.advance_rows`, `step.plan_rows` with an unfinished mask of its own, and the row is put back.
Between slices it asks whether it is to stop.

Whose turn it is: each batch has been served for its work over its weight, and within a batch each row with tokens to
follow for its work over its share; whoever has been served least comes next. Whoever had nothing to do for a while
counts as served as long as the one that was served last, so that nothing is saved up. The rows that wait count as one,
which has the shares of them all, or as much as all rows with tokens to follow if that is more; among each other they
come as in a step (`masks.lanes`). A token whose mask takes more than a turn is set aside, and tried again with four
times as much once its row's other tokens have had their turns. So what one row's masks take comes out of its own part,
however much it is.
"""

from __future__ import annotations

from .._numba import helper, kernel
from .foresight import candidates_of, count_ahead
from .fuel import count, work_done
from .history import config_at
from .lanes import drop_job, share_of, switch_lane
from .layout import (
    B_COUNTERS,
    B_DENSE_USED,
    B_EPOCH,
    B_HALF,
    B_LANES,
    B_LIST_TOKENS_HALF,
    B_LIST_TOKENS_USED,
    B_LIST_USED,
    B_LISTS,
    B_OLDEST,
    B_POSITION,
    B_ROW_FLAGS,
    B_ROW_MASK,
    B_SLOT_GRAMMAR,
    B_SLOTS,
    B_WAITING,
    CONFIG_FLAGS,
    COUNT_CONTEXTS,
    COUNT_MASKS,
    COUNT_WORK,
    COUNTERS,
    FINISHED,
    LANE_OLDEST,
    MAX_LIST,
    PENDING,
    READY,
)
from .memory import (
    call_kernel_6,
    call_kernel_7,
    count_trailing_zeros,
    load_f64,
    load_i32,
    load_i64,
    load_u8,
    store_f64,
    store_i32,
    store_i64,
    store_u8,
)
from .prefetch_fields import (
    P_ADVANCE_ROWS,
    P_BATCH,
    P_DONE,
    P_EFFORT,
    P_EPOCH,
    P_EXPECT,
    P_KEPT,
    P_LANES,
    P_MADE,
    P_MADE_AT,
    P_NEXT,
    P_NOW,
    P_ONE,
    P_OPEN,
    P_OUT_END,
    P_OUT_MASKS,
    P_OUT_STATUS,
    P_PLAN_ROWS,
    P_ROWS,
    P_SERVED,
    P_SLICE,
    P_SLOTS,
    P_SPENT,
    P_STATUS,
    P_TOKEN,
    P_WAIT_SLOTS,
    P_WAITING,
    PREFETCH_AHEAD,
    PREFETCH_ASIDE,
    PREFETCH_FINISHED,
    PREFETCH_FULL,
    PREFETCH_RUNS,
    PREFETCH_TRIED,
    PREFETCH_WAITED,
    PREFETCH_WORK,
    Q_ACTIVE,
    Q_COUNT,
    Q_FUEL,
    Q_MEMBERS,
    Q_NOW,
    Q_SERVED,
    Q_STOP,
    Q_WEIGHTS,
    SUCCESSORS,
)
from .step import DRAFT, ROWS_A_UNIT

#: Units of work that a token is followed for in one turn at first, and how many times as much at each further try. So
#: what was left unfinished is at most a third of the last try.
FIRST_TURN, NEXT_TURN = 4096, 4
#: Instead of a row: those that wait, or no one.
_WAITING, _NO_ONE = -1, -2


@helper
def _room(block):  # type: ignore[no-untyped-def]
    """Does no mask that the plan shipped lose its place if one call of plan_rows needs more?

    That may begin one new epoch at most, and not at once: what the plan shipped is in the current half, or in the other
    one if it began an epoch itself, and then nothing more is done.
    """
    batch = load_i64(block, P_BATCH)
    most = load_i64(batch, B_SLOTS) + 1
    return (
        load_i64(batch, B_EPOCH) == load_i64(block, P_EPOCH)
        and load_i64(batch, B_DENSE_USED) + most <= load_i64(batch, B_HALF)
        and load_i64(batch, B_LIST_USED) + most <= load_i64(batch, B_LISTS)
        and load_i64(batch, B_LIST_TOKENS_USED) + most * MAX_LIST <= load_i64(batch, B_LIST_TOKENS_HALF)
    )


@helper
def _made(batch):  # type: ignore[no-untyped-def]
    """Contexts and masks computed so far."""
    counters = load_i64(batch, B_COUNTERS)
    return load_i64(counters, COUNT_CONTEXTS) + load_i64(counters, COUNT_MASKS)


@helper
def _plan(block, slots, rows):  # type: ignore[no-untyped-def]
    """A slice of fuel for these rows."""
    call_kernel_7(
        load_i64(block, P_PLAN_ROWS), load_i64(block, P_BATCH), slots, rows, load_i64(block, P_SLICE),
        load_i64(block, P_OUT_MASKS), load_i64(block, P_OUT_END), load_i64(block, P_OUT_STATUS),
    )  # fmt: skip


@helper
def _begin(block):  # type: ignore[no-untyped-def]
    """Which rows wait for their masks, and which have tokens to follow; the batch's counters are kept."""
    batch = load_i64(block, P_BATCH)
    counters, kept = load_i64(batch, B_COUNTERS), load_i64(block, P_KEPT)
    for i in range(COUNTERS):
        store_i64(kept, i, load_i64(counters, i))
    count_ahead(block, PREFETCH_RUNS, 1)
    slots, status, opened = load_i64(block, P_SLOTS), load_i64(block, P_STATUS), load_i64(block, P_OPEN)
    positions, grammars = load_i64(batch, B_POSITION), load_i64(batch, B_SLOT_GRAMMAR)
    made_at = load_i64(block, P_MADE_AT)
    n = 0
    for row in range(load_i64(block, P_ROWS)):
        slot = load_i32(slots, row)
        store_u8(opened, row, 0)
        # The sequence may have gone since the plan.
        if slot < 0 or load_i64(grammars, slot) == 0:
            continue
        if load_u8(status, row) == PENDING:
            store_i32(load_i64(block, P_WAIT_SLOTS), n, slot)
            n += 1
        elif load_u8(status, row) == READY:
            store_u8(opened, row, 1)
            if load_i64(made_at, slot) != load_i64(positions, slot):
                store_i64(made_at, slot, load_i64(positions, slot))
                store_i64(load_i64(block, P_DONE), slot, 0)
                store_i64(load_i64(block, P_NEXT), slot, 0)
                store_i64(load_i64(block, P_EFFORT), slot, FIRST_TURN)
                for i in range(SUCCESSORS):
                    store_i32(load_i64(block, P_MADE) + 4 * SUCCESSORS * slot, i, -1)
    store_i64(block, P_WAITING, n)


@helper
def _end(block):  # type: ignore[no-untyped-def]
    """The batch's counters are as before: they are of steps."""
    counters, kept = load_i64(load_i64(block, P_BATCH), B_COUNTERS), load_i64(block, P_KEPT)
    count_ahead(block, PREFETCH_WORK, load_i64(counters, COUNT_WORK) - load_i64(kept, COUNT_WORK))
    for i in range(COUNTERS):
        store_i64(counters, i, load_i64(kept, i))


@helper
def _choose(block):  # type: ignore[no-untyped-def]
    """(row whose turn it is, _WAITING or _NO_ONE; how long it has been served; its weight)."""
    batch = load_i64(block, P_BATCH)
    slots, opened, served = load_i64(block, P_SLOTS), load_i64(block, P_OPEN), load_i64(block, P_SERVED)
    now = load_f64(load_i64(block, P_NOW), 0)
    waiting = load_i64(block, P_WAITING)
    chosen, least, weight = _NO_ONE, 0.0, 0.0
    if waiting > 0:
        chosen, least = _WAITING, max(load_f64(served, load_i64(batch, B_SLOTS)), now)
    total = 0.0
    for row in range(load_i64(block, P_ROWS)):
        if load_u8(opened, row) == 0:
            continue
        slot = load_i32(slots, row)
        share = share_of(batch, slot)
        total += share
        at = max(load_f64(served, slot), now)
        if chosen == _NO_ONE or at < least:
            chosen, least, weight = row, at, share
    if chosen == _WAITING:
        for i in range(waiting):
            weight += share_of(batch, load_i32(load_i64(block, P_WAIT_SLOTS), i))
        weight = max(weight, total)
    return chosen, least, weight


@helper
def _serve_waiting(block):  # type: ignore[no-untyped-def]
    """A slice for the rows that wait."""
    batch = load_i64(block, P_BATCH)
    waiting, out = load_i64(block, P_WAIT_SLOTS), load_i64(block, P_OUT_STATUS)
    n = load_i64(block, P_WAITING)
    _plan(block, waiting, n)
    left = 0
    for i in range(n):
        slot = load_i32(waiting, i)
        if load_u8(out, i) == PENDING:
            store_i32(waiting, left, slot)
            left += 1
        elif load_u8(out, i) == READY:
            store_i64(load_i64(block, P_EXPECT), slot, load_i64(load_i64(batch, B_POSITION), slot) + 1)
            count_ahead(block, PREFETCH_FINISHED, 1)
    store_i64(block, P_WAITING, left)


@helper
def _follow(group, block, row, left):  # type: ignore[no-untyped-def]
    """Make the mask that the row will have after the next of its tokens, with at most about `left` units of fuel.

    The row is moved on by that token, and put back. Its new configuration stands in a place of the history that is
    never part of it, and on an arena at the end, where the next one may move it. What is unfinished is forgotten.
    """
    batch = load_i64(block, P_BATCH)
    slot = load_i32(load_i64(block, P_SLOTS), row)
    following, efforts, finished = load_i64(block, P_NEXT), load_i64(block, P_EFFORT), load_i64(block, P_DONE)
    every = (1 << candidates_of(block, row)) - 1
    left_over = every & ~load_i64(finished, slot)
    if left_over == 0:
        store_u8(load_i64(block, P_OPEN), row, 0)
        return
    behind = left_over & (-1 << load_i64(following, slot))
    if behind == 0:  # a round is over: those that were set aside come again
        behind = left_over
        store_i64(efforts, slot, NEXT_TURN * load_i64(efforts, slot))
    place, effort = count_trailing_zeros(behind), load_i64(efforts, slot)
    positions, oldest = load_i64(batch, B_POSITION), load_i64(batch, B_OLDEST)
    waiting, known = load_i64(batch, B_WAITING), load_i64(batch, B_ROW_MASK)
    known_flags = load_i64(batch, B_ROW_FLAGS)
    mask, flags = load_i64(known, slot), load_i64(known_flags, slot)
    position, first, since = load_i64(positions, slot), load_i64(oldest, slot), load_i64(waiting, slot)
    one, out = load_i64(block, P_ONE), load_i64(block, P_OUT_STATUS)
    token = load_i64(block, P_TOKEN) + 4 * place
    store_i32(one, 0, slot)
    begin = work_done(batch)
    done = True
    if call_kernel_6(load_i64(block, P_ADVANCE_ROWS), batch, one, 1, token, out, DRAFT) == 1:
        before = _made(batch)
        lanes = load_i64(batch, B_LANES)
        store_i64(batch, B_LANES, load_i64(block, P_LANES))
        most = min(effort, left)
        goes_on = load_i64(config_at(batch, slot, position + 1), CONFIG_FLAGS) & FINISHED == 0
        done = not goes_on
        while goes_on:
            _plan(block, one, 1)
            done = load_u8(out, 0) != PENDING
            goes_on = not done and work_done(batch) - begin < most and load_i64(group, Q_STOP) == 0 and _room(block)
        if _made(batch) != before and load_u8(out, 0) == READY:
            made = load_i64(block, P_MADE) + 4 * SUCCESSORS * slot
            for i in range(SUCCESSORS):
                if load_i32(made, i) < 0:
                    store_i32(made, i, load_i32(token, 0))
                    break
            count_ahead(block, PREFETCH_AHEAD, 1)
        drop_job(batch, 0, slot)
        store_i64(batch, B_LANES, lanes)
        switch_lane(batch, LANE_OLDEST)
        store_i64(positions, slot, position)
        store_i64(oldest, slot, first)
        store_i64(waiting, slot, since)
        store_i64(known, slot, mask)
        store_i64(known_flags, slot, flags)
    store_i64(following, slot, place + 1)
    if done:
        count_ahead(block, PREFETCH_TRIED, 1)
        store_i64(finished, slot, load_i64(finished, slot) | (1 << place))
    else:
        count_ahead(block, PREFETCH_ASIDE, 1)


@helper
def _turn(group, block, left):  # type: ignore[no-untyped-def]
    """Serve whoever has been served least, with at most about `left` units of fuel. Returns the work done.

    Negative: nothing is left to do, or there is no room for it.
    """
    batch = load_i64(block, P_BATCH)
    row, at, weight = _choose(block)
    if row == _NO_ONE:
        return -1
    if not _room(block):
        count_ahead(block, PREFETCH_FULL, 1)
        return -1
    begin = work_done(batch)
    count(batch, COUNT_WORK, 1 + load_i64(block, P_ROWS) // ROWS_A_UNIT)
    who = load_i64(batch, B_SLOTS)
    if row == _WAITING:
        _serve_waiting(block)
    else:
        who = load_i32(load_i64(block, P_SLOTS), row)
        _follow(group, block, row, left)
    done = work_done(batch) - begin
    if row == _WAITING:
        count_ahead(block, PREFETCH_WAITED, done)
    else:
        spent = load_i64(block, P_SPENT)
        store_i64(spent, who, load_i64(spent, who) + done)
    store_f64(load_i64(block, P_SERVED), who, at + done / weight)
    store_f64(load_i64(block, P_NOW), 0, at)
    return done


@kernel("int64(int64)")
def run_prefetch(group):  # type: ignore[no-untyped-def]
    """Work ahead until Q_STOP is set, the fuel is spent, the pools are full, or nothing is left to do.

    `group`: the thread's block, of the Q_ fields. Returns the work done.
    """
    members, weights = load_i64(group, Q_MEMBERS), load_i64(group, Q_WEIGHTS)
    served, active = load_i64(group, Q_SERVED), load_i64(group, Q_ACTIVE)
    now = load_i64(group, Q_NOW)
    n = load_i64(group, Q_COUNT)
    for i in range(n):
        store_i64(active, i, 1 if load_f64(weights, i) > 0.0 else 0)
        if load_f64(weights, i) > 0.0:
            _begin(load_i64(members, i))
    fuel = load_i64(group, Q_FUEL)
    work = 0
    while work < fuel and load_i64(group, Q_STOP) == 0:
        chosen, least = -1, 0.0
        for i in range(n):
            if load_i64(active, i) != 0:
                at = max(load_f64(served, i), load_f64(now, 0))
                if chosen < 0 or at < least:
                    chosen, least = i, at
        if chosen < 0:
            break
        done = _turn(group, load_i64(members, chosen), fuel - work)
        if done < 0:
            store_i64(active, chosen, 0)
            continue
        work += done
        store_f64(served, chosen, least + done / load_f64(weights, chosen))
        store_f64(now, 0, least)
    for i in range(n):
        if load_f64(weights, i) > 0.0:
            _end(load_i64(members, i))
    return work
