"""What the background thread does with a batch while the model runs forward: masks that rows wait for, then successors.

While it runs the batch is its own: `masks.prefetch` hands it over and takes it back, so there is never more than one
writer. The work is that of the step itself, in slices: `step.plan_rows` for the waiting rows; for the others, one token
ahead, `advance.advance_rows`, `step.plan_rows`, and the row is put back. Between slices it asks whether it is to stop.
"""

from __future__ import annotations

from .._numba import helper, kernel
from ..grammar.automaton import H_FLAGS, RECURSIVE
from .history import config_at, current_config
from .lanes import drop_job
from .layout import (
    B_ARENAS,
    B_COUNTERS,
    B_DENSE_USED,
    B_EPOCH,
    B_HALF,
    B_LIST_LENGTH,
    B_LIST_OFFSET,
    B_LIST_TOKENS,
    B_LIST_TOKENS_HALF,
    B_LIST_TOKENS_USED,
    B_LIST_USED,
    B_LISTS,
    B_OLDEST,
    B_POSITION,
    B_ROW_MASK,
    B_SLOT_GRAMMAR,
    B_SLOTS,
    B_WAITING,
    BLOCK_COUNT,
    BLOCK_TRIPLES,
    CONFIG_BLOCK,
    CONFIG_FLAGS,
    CONFIG_HEADS,
    COUNT_CONTEXTS,
    COUNT_MASKS,
    COUNT_WORK,
    COUNTERS,
    FINISHED,
    G_AUTOMATON,
    G_NUMBER,
    KIND_LIST,
    KIND_SHIFT,
    KIND_SINGLE,
    MASK_INDEX,
    MAX_LIST,
    PENDING,
    READY,
)
from .lazy import mix
from .machine import head_at, top_state
from .memory import call_kernel_6, call_kernel_7, load_i32, load_i64, load_u8, shift_right, store_i32, store_i64
from .step import DRAFT

#: Tokens that are followed from one row: at most so many, and as many are remembered for each place of a grammar.
SUCCESSORS = 4
#: Places of grammars whose next tokens are remembered; 72 bytes each.
PLACES = 1 << 12
#: Key, then (token, times) of each.
PLACE_WORDS = 1 + 2 * SUCCESSORS
#: Times are halved when one of them reaches this.
MOST_TIMES = 1 << 16

(
    P_BATCH,  # address of the batch's block
    P_PLAN_ROWS,  # address of the kernel step.plan_rows
    P_ADVANCE_ROWS,  # address of the kernel advance.advance_rows
    P_STOP,  # 1: stop after this slice
    P_SLICE,  # fuel between two looks at P_STOP
    P_FUEL,  # fuel of one run
    P_EPOCH,  # pool epoch of the plan whose masks are in use meanwhile
    P_ROWS,  # rows of that plan
    P_SLOTS,  # int32[slots] their slots
    P_MASKS,  # int32[slots] their mask ids
    P_STATUS,  # uint8[slots] their status
    P_WAIT_SLOTS,  # int32[slots] those that wait
    P_OUT_MASKS,  # int32[slots] scratch for plan_rows
    P_OUT_END,  # uint32[slots]
    P_OUT_STATUS,  # uint8[slots]
    P_TOKEN,  # int32[SUCCESSORS] scratch: tokens to follow
    P_KEPT,  # int64[COUNTERS] the batch's counters, which are those of steps
    P_PLACES,  # int64[PLACES][PLACE_WORDS]
    P_MADE,  # int32[slots][SUCCESSORS] tokens that lead to masks made ahead; -1
    P_MADE_AT,  # int64[slots] tokens that the slot had then
    P_EXPECT,  # int64[slots] 1 + position at which a mask made ahead is the row's, 0: none
    P_COUNTERS,  # int64[PREFETCH_COUNTERS]
    P_FIELDS,
) = range(23)
(
    PREFETCH_RUNS,
    PREFETCH_WORK,  # units of fuel spent
    PREFETCH_FINISHED,  # masks finished that rows waited for
    PREFETCH_AHEAD,  # masks made for a token that had not been chosen
    PREFETCH_TRIED,  # tokens followed
    PREFETCH_HITS,  # rows that a plan found READY by one of those masks
    PREFETCH_MISSES,  # rows that a plan left PENDING
    PREFETCH_WASTED,  # masks made for a token that was not chosen
    PREFETCH_FULL,  # runs that ended because the pool was full
    PREFETCH_COUNTERS,
) = range(10)


@helper
def _count(block, counter, amount):  # type: ignore[no-untyped-def]
    counters = load_i64(block, P_COUNTERS)
    store_i64(counters, counter, load_i64(counters, counter) + amount)


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
def _goes_on(block, begin):  # type: ignore[no-untyped-def]
    """Not stopped, fuel left, and room in the pool?"""
    counters = load_i64(load_i64(block, P_BATCH), B_COUNTERS)
    if load_i64(block, P_STOP) != 0 or load_i64(counters, COUNT_WORK) - begin >= load_i64(block, P_FUEL):
        return False
    if _room(block):
        return True
    _count(block, PREFETCH_FULL, 1)
    return False


@helper
def _finish_waiting(block, begin):  # type: ignore[no-untyped-def]
    """Finish the masks of the rows that wait. False: not all of them."""
    batch = load_i64(block, P_BATCH)
    slots, status = load_i64(block, P_SLOTS), load_i64(block, P_STATUS)
    waiting, out = load_i64(block, P_WAIT_SLOTS), load_i64(block, P_OUT_STATUS)
    expect, positions = load_i64(block, P_EXPECT), load_i64(batch, B_POSITION)
    grammars = load_i64(batch, B_SLOT_GRAMMAR)
    n = 0
    for row in range(load_i64(block, P_ROWS)):
        # The sequence may have gone since the plan.
        if load_u8(status, row) == PENDING and load_i64(grammars, load_i32(slots, row)) != 0:
            store_i32(waiting, n, load_i32(slots, row))
            n += 1
    while n > 0:
        if not _goes_on(block, begin):
            return False
        _plan(block, waiting, n)
        left = 0
        for i in range(n):
            slot = load_i32(waiting, i)
            if load_u8(out, i) == PENDING:
                store_i32(waiting, left, slot)
                left += 1
            elif load_u8(out, i) == READY:
                store_i64(expect, slot, load_i64(positions, slot) + 1)
                _count(block, PREFETCH_FINISHED, 1)
        n = left
    return True


@helper
def _place_of(block, slot):  # type: ignore[no-untyped-def]
    """Address of the slot's place in its grammar, and its key: the states that it may be in, not its stack."""
    batch = load_i64(block, P_BATCH)
    grammar = load_i64(load_i64(batch, B_SLOT_GRAMMAR), slot)
    config = current_config(batch, slot)
    key = mix(0x13198A2E03707344, load_i64(grammar, G_NUMBER))
    if load_i64(config, CONFIG_HEADS) > 0:
        if load_i64(load_i64(grammar, G_AUTOMATON), H_FLAGS) & RECURSIVE:
            heads = load_i64(load_i64(batch, B_ARENAS), slot) + 8 * load_i64(config, CONFIG_BLOCK)
            for i in range(load_i64(heads, BLOCK_COUNT)):
                key = mix(key, load_i64(heads, BLOCK_TRIPLES + 3 * i + 1))
        else:
            for i in range(load_i64(config, CONFIG_HEADS)):
                key = mix(key, top_state(head_at(config, i)))
    place = load_i64(block, P_PLACES) + 8 * PLACE_WORDS * (shift_right(key, 1) % PLACES)
    return place, key | 1


@helper
def _candidates(block, row):  # type: ignore[no-untyped-def]
    """Write the tokens to follow from a row to P_TOKEN: the only ones there are, or usual ones. Returns how many."""
    batch = load_i64(block, P_BATCH)
    tokens = load_i64(block, P_TOKEN)
    mask = load_i32(load_i64(block, P_MASKS), row)
    kind, index = mask >> KIND_SHIFT, mask & MASK_INDEX
    if mask >= 0 and kind == KIND_SINGLE:
        store_i32(tokens, 0, index)
        return 1
    if mask >= 0 and kind == KIND_LIST:
        length = load_i32(load_i64(batch, B_LIST_LENGTH), index)
        if length <= SUCCESSORS:
            source = load_i64(batch, B_LIST_TOKENS) + 4 * load_i32(load_i64(batch, B_LIST_OFFSET), index)
            for i in range(length):
                store_i32(tokens, i, load_i32(source, i))
            return length
    place, key = _place_of(block, load_i32(load_i64(block, P_SLOTS), row))
    if load_i64(place, 0) != key:
        return 0
    n = 0
    below = MOST_TIMES + 1
    before = -1
    # By times, the highest first; among equal ones in the order of the places.
    while n < SUCCESSORS:
        best, most = -1, 0
        for i in range(SUCCESSORS):
            times = load_i64(place, 2 + 2 * i)
            if times > most and (times < below or (times == below and i > before)):
                best, most = i, times
        if best < 0:
            break
        store_i32(tokens, n, load_i64(place, 1 + 2 * best))
        below, before = most, best
        n += 1
    return n


@helper
def _follow(block, slot, place, begin):  # type: ignore[no-untyped-def]
    """Make the mask that the slot will have after token number `place` of P_TOKEN. False: stopped before it was done.

    The slot is moved on by that token, and put back. Its new configuration stands in a place of the history that is
    never part of it, and on an arena at the end, where the next one may move it.
    """
    batch = load_i64(block, P_BATCH)
    positions, oldest = load_i64(batch, B_POSITION), load_i64(batch, B_OLDEST)
    waiting, known = load_i64(batch, B_WAITING), load_i64(batch, B_ROW_MASK)
    mask = load_i64(known, slot)
    position, first, since = load_i64(positions, slot), load_i64(oldest, slot), load_i64(waiting, slot)
    one = load_i64(block, P_WAIT_SLOTS)
    token = load_i64(block, P_TOKEN) + 4 * place
    out = load_i64(block, P_OUT_STATUS)
    store_i32(one, 0, slot)
    _count(block, PREFETCH_TRIED, 1)
    taken = call_kernel_6(load_i64(block, P_ADVANCE_ROWS), batch, one, 1, token, out, DRAFT)
    done = True
    if taken == 1:
        before = _made(batch)
        if load_i64(config_at(batch, slot, position + 1), CONFIG_FLAGS) & FINISHED == 0:
            done = False
            while not done and _goes_on(block, begin):
                _plan(block, one, 1)
                done = load_u8(out, 0) != PENDING
        if done and _made(batch) != before and load_u8(out, 0) == READY:
            made = load_i64(block, P_MADE) + 4 * SUCCESSORS * slot
            for i in range(SUCCESSORS):
                if load_i32(made, i) < 0:
                    store_i32(made, i, load_i32(token, 0))
                    break
            _count(block, PREFETCH_AHEAD, 1)
        drop_job(batch, 0, slot)  # what is unfinished is not of where the slot is
        store_i64(positions, slot, position)
        store_i64(oldest, slot, first)
        store_i64(waiting, slot, since)
        store_i64(known, slot, mask)
    return done


@kernel("int64(int64)")
def run_prefetch(block):  # type: ignore[no-untyped-def]
    """Work ahead until P_STOP is set, the fuel is spent, the pool is full, or nothing is left to do.

    The batch's counters are as before: they are of steps. Returns the work done.
    """
    batch = load_i64(block, P_BATCH)
    counters, kept = load_i64(batch, B_COUNTERS), load_i64(block, P_KEPT)
    positions, grammars = load_i64(batch, B_POSITION), load_i64(batch, B_SLOT_GRAMMAR)
    for i in range(COUNTERS):
        store_i64(kept, i, load_i64(counters, i))
    begin = load_i64(counters, COUNT_WORK)
    _count(block, PREFETCH_RUNS, 1)
    goes_on = _finish_waiting(block, begin)
    for row in range(load_i64(block, P_ROWS)):
        if not goes_on or load_i64(block, P_STOP) != 0:
            break
        slot = load_i32(load_i64(block, P_SLOTS), row)
        if slot < 0 or load_u8(load_i64(block, P_STATUS), row) != READY or load_i64(grammars, slot) == 0:
            continue
        made = load_i64(block, P_MADE) + 4 * SUCCESSORS * slot
        if load_i64(load_i64(block, P_MADE_AT), slot) != load_i64(positions, slot):
            store_i64(load_i64(block, P_MADE_AT), slot, load_i64(positions, slot))
            for i in range(SUCCESSORS):
                store_i32(made, i, -1)
        n = _candidates(block, row)
        for i in range(n):
            if goes_on:
                goes_on = load_i64(block, P_STOP) == 0 and _room(block) and _follow(block, slot, i, begin)
    work = load_i64(counters, COUNT_WORK) - begin
    _count(block, PREFETCH_WORK, work)
    for i in range(COUNTERS):
        store_i64(counters, i, load_i64(kept, i))
    return work


@kernel("void(int64, int64, int64, int64)")
def learn_rows(block, slots, rows, tokens):  # type: ignore[no-untyped-def]
    """Before an advance: count each row's token (int32[rows]) at its place, and see whether its mask was made ahead."""
    batch = load_i64(block, P_BATCH)
    positions, grammars = load_i64(batch, B_POSITION), load_i64(batch, B_SLOT_GRAMMAR)
    expect, made_at = load_i64(block, P_EXPECT), load_i64(block, P_MADE_AT)
    for row in range(rows):
        slot, token = load_i32(slots, row), load_i32(tokens, row)
        if slot < 0 or token < 0 or load_i64(grammars, slot) == 0:
            continue
        position = load_i64(positions, slot)
        store_i64(expect, slot, 0)
        if load_i64(made_at, slot) == position:
            made = load_i64(block, P_MADE) + 4 * SUCCESSORS * slot
            for i in range(SUCCESSORS):
                if load_i32(made, i) == token:
                    store_i64(expect, slot, position + 2)
                elif load_i32(made, i) >= 0:
                    _count(block, PREFETCH_WASTED, 1)
            store_i64(made_at, slot, -1)
        place, key = _place_of(block, slot)
        if load_i64(place, 0) != key:
            # Another place has this entry: it loses it when it has been seen less often than others came by.
            most = 0
            for i in range(SUCCESSORS):
                times = max(load_i64(place, 2 + 2 * i) - 1, 0)
                store_i64(place, 2 + 2 * i, times)
                most = max(most, times)
            if most > 0:
                continue
            store_i64(place, 0, key)
            for i in range(2 * SUCCESSORS):
                store_i64(place, 1 + i, 0)
        at, least = 0, MOST_TIMES + 1
        for i in range(SUCCESSORS):
            times = load_i64(place, 2 + 2 * i)
            if times > 0 and load_i64(place, 1 + 2 * i) == token:
                at, least = i, -1
            elif least >= 0 and times < least:
                at, least = i, times
        if least > 0:
            # All are taken by others: the rarest loses one (as Misra and Gries count, but of one token at a time).
            store_i64(place, 2 + 2 * at, least - 1)
            continue
        if least == 0:
            store_i64(place, 1 + 2 * at, token)
        times = load_i64(place, 2 + 2 * at) + 1
        store_i64(place, 2 + 2 * at, times)
        if times == MOST_TIMES:
            for i in range(SUCCESSORS):
                store_i64(place, 2 + 2 * i, shift_right(load_i64(place, 2 + 2 * i), 1))


@kernel("void(int64, int64, int64, int64)")
def score_rows(block, slots, rows, status):  # type: ignore[no-untyped-def]
    """After a plan: count the rows that were READY by a mask made ahead, and those that were PENDING."""
    expect = load_i64(block, P_EXPECT)
    positions = load_i64(load_i64(block, P_BATCH), B_POSITION)
    for row in range(rows):
        slot = load_i32(slots, row)
        if slot < 0:
            continue
        if load_u8(status, row) == PENDING:
            _count(block, PREFETCH_MISSES, 1)
        elif load_u8(status, row) == READY and load_i64(expect, slot) == load_i64(positions, slot) + 1:
            _count(block, PREFETCH_HITS, 1)
        store_i64(expect, slot, 0)
