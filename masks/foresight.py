"""Which tokens a row may take next: those that its mask leaves, or those that others took in the same place before."""

from __future__ import annotations

from .._numba import helper, kernel
from ..grammar.automaton import H_FLAGS, RECURSIVE
from .history import current_config
from .layout import (
    B_ARENAS,
    B_LIST_LENGTH,
    B_LIST_OFFSET,
    B_LIST_TOKENS,
    B_POSITION,
    B_SLOT_GRAMMAR,
    B_STEP_EPOCH,
    BLOCK_COUNT,
    BLOCK_TRIPLES,
    CONFIG_BLOCK,
    CONFIG_HEADS,
    G_AUTOMATON,
    G_NUMBER,
    KIND_LIST,
    KIND_SHIFT,
    KIND_SINGLE,
    MASK_INDEX,
    PENDING,
    READY,
)
from .lazy import mix
from .machine import head_at, top_state
from .memory import load_i32, load_i64, load_u8, shift_right, store_i32, store_i64, store_u8
from .prefetch_fields import (
    MOST_TIMES,
    P_BATCH,
    P_COUNTERS,
    P_EPOCH,
    P_EXPECT,
    P_LEARN_FROM,
    P_MADE,
    P_MADE_AT,
    P_MASKS,
    P_PLACES,
    P_ROWS,
    P_SLOTS,
    P_STATUS,
    P_TOKEN,
    PLACE_WORDS,
    PLACES,
    PREFETCH_HITS,
    PREFETCH_MISSES,
    PREFETCH_WASTED,
    SUCCESSORS,
)

#: Rows whose tokens are counted in one step: each is three reads from far apart, and which tokens usually come next is
#: known just as well from some of them.
LEARNED_ROWS = 16


@helper
def count_ahead(block, counter, amount):  # type: ignore[no-untyped-def]
    """Add to one of the counters of what is made ahead."""
    counters = load_i64(block, P_COUNTERS)
    store_i64(counters, counter, load_i64(counters, counter) + amount)


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
def candidates_of(block, row):  # type: ignore[no-untyped-def]
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


@kernel("int64(int64, int64, int64, int64)")
def learn_rows(block, slots, rows, tokens):  # type: ignore[no-untyped-def]
    """Before an advance: count each row's token (int32[rows]) at its place, and see whether its mask was made ahead.

    Of many rows LEARNED_ROWS are counted at a time, in turn. The plan is done with. Returns `rows`.
    """
    batch = load_i64(block, P_BATCH)
    store_i64(block, P_ROWS, 0)
    first = load_i64(block, P_LEARN_FROM)
    if rows <= LEARNED_ROWS or first >= rows:
        first = 0
    store_i64(block, P_LEARN_FROM, first + LEARNED_ROWS)
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
                    count_ahead(block, PREFETCH_WASTED, 1)
            store_i64(made_at, slot, -1)
        if row < first or row >= first + LEARNED_ROWS:
            continue
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
    return rows


@kernel("int64(int64, int64, int64, int64, int64)")
def note_plan(block, slots, rows, mask_ids, status):  # type: ignore[no-untyped-def]
    """After a plan, given its arrays: keep these, as its masks must keep their places until the next one; count the
    rows that were READY by a mask made ahead, and those that were PENDING. Returns `rows`."""
    batch = load_i64(block, P_BATCH)
    store_i64(block, P_EPOCH, load_i64(batch, B_STEP_EPOCH))
    store_i64(block, P_ROWS, rows)
    expect, positions = load_i64(block, P_EXPECT), load_i64(batch, B_POSITION)
    for row in range(rows):
        slot = load_i32(slots, row)
        store_i32(load_i64(block, P_SLOTS), row, slot)
        store_i32(load_i64(block, P_MASKS), row, load_i32(mask_ids, row))
        store_u8(load_i64(block, P_STATUS), row, load_u8(status, row))
        if slot < 0:
            continue
        if load_u8(status, row) == PENDING:
            count_ahead(block, PREFETCH_MISSES, 1)
        elif load_u8(status, row) == READY and load_i64(expect, slot) == load_i64(positions, slot) + 1:
            count_ahead(block, PREFETCH_HITS, 1)
        store_i64(expect, slot, 0)
    return rows
