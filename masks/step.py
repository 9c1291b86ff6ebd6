"""The two calls of a step: `plan` looks up or computes the mask of every row, `advance` accepts a token each."""

from __future__ import annotations

from .._numba import helper, kernel
from ..grammar.automaton import H_FLAGS, LAZY, RECURSIVE, TOKENS
from .ahead import LEAD, fetch_rows
from .arena import ACCEPTED
from .context_store import room_for_mask
from .contexts import mask_of_graph
from .fuel import affords, count, fuel_left, give_fuel, work_done
from .graph_call import call_symbol
from .history import config_at
from .lanes import choose_row, is_blocked, may_run, switch_lane
from .layout import (
    B_ADVANCE_ROWS,
    B_ADVANCE_TOKEN,
    B_BEHIND,
    B_EFFORT,
    B_END_COUNT,
    B_ENDS,
    B_EPOCH,
    B_FINISHED,
    B_JOB,
    B_JOB_TOTAL,
    B_LOOK_EXTRA,
    B_LOOKING,
    B_MIN_TOKENS,
    B_PLANS,
    B_POSITION,
    B_ROW_FLAGS,
    B_ROW_MASK,
    B_ROW_OF,
    B_RUN_JOB,
    B_SCRATCH,
    B_SLOT_GRAMMAR,
    B_STEP_EPOCH,
    B_TEXT_START,
    B_VOCABULARY,
    B_VOCABULARY_START,
    B_WAITING,
    B_WORDS,
    B_WORK_BEGIN,
    B_WORK_LIMIT,
    COMPLETE,
    CONFIG_FLAGS,
    CONFIG_HEADS,
    COUNT_HITS,
    COUNT_LOOKED,
    COUNT_MISSES,
    COUNT_PENDING,
    COUNT_RECALLED,
    COUNT_WORK,
    FINISHED,
    G_AUTOMATON,
    G_LAZY_MASK,
    G_NUMBER,
    G_READY_DENSE,
    G_READY_ROWS,
    G_READY_START,
    G_READY_TOKENS,
    G_STATE_MASK,
    G_TOKEN_IDS,
    HEAD_DEPTH,
    HEAD_REGISTERS,
    HEAD_STATES,
    IDLE,
    J_MOST,
    J_SLOT,
    J_STAGE,
    J_TAKEN,
    KIND_EMPTY,
    KIND_SHIFT,
    LANE_CHEAPEST,
    LANE_LOOK,
    LANE_OLDEST,
    LIMIT,
    MAX_ENDS,
    PENDING,
    READY,
    ROW_BITS,
    WORK_CONFIG_WORDS,
)
from .lazy import mix
from .machine import (
    head_at,
    register_class,
    step_token_symbol,
)
from .memory import call_kernel, call_kernel_6, load_i32, load_i64, load_u8, shift_right, store_i32, store_i64, store_u8
from .places import NAMES, PLACE_FLAGS, PLACE_HIGH, PLACE_LOW, current_place
from .pool import current_mask, expand_mask, find_entry, intern_mask, make_room, mask_cost, resolve
from .tables import ALL_ENDS
from .transitions import note_mask
from .trie import V_MAX_BYTES
from .walk import begin_job
from .whole_stack import KEY_COST

#: Fuel of looking up a row whose mask is there, which is no part of the work: a few reads from far apart.
ROW_COST = 16
#: Fuel that a look may take for putting the mask of one row together.
LOOK_FUEL = 512
#: Fuel that the walks of `settle` and of `advance` have in any case: a token of some bytes, so that even the least
#: budget settles a row, and one row at a time is not left in the middle of its token.
WALK_FUEL = 256
#: Rows among which one is chosen in the time of one byte edge.
ROWS_A_UNIT = 16
#: In B_ADVANCE_TOKEN: the slot is not in the middle of a token. Below: it could not take it.
NO_TOKEN = -1
#: What `plan_rows` returns where a slot is not in use.
NO_SUCH_SLOT = -(1 << 62)
LOOK_TURN, OLDEST_TURN, CHEAPEST_TURN, LAST_TURN = range(4)
#: Uses of `advance.advance_rows`.
ROWS, DRAFT, ASK, RESUME = range(4)


@helper
def _key(grammar, automaton, config, start, reach):  # type: ignore[no-untyped-def]
    """128-bit key, in two halves, of what the configuration's mask depends on."""
    low = mix(0x243F6A8885A308D, (load_i64(grammar, G_NUMBER) << 1) | start)
    high = low ^ 0x3707344A4093822
    for i in range(load_i64(config, CONFIG_HEADS)):
        head = head_at(config, i)
        depth = load_i64(head, HEAD_DEPTH)
        for level in range(depth):
            state = load_i64(head, HEAD_STATES + level)
            klass = register_class(automaton, state, load_i64(head, HEAD_REGISTERS + level), reach)
            value = (klass << 32) | state
            low = mix(low, value)
            high = (high ^ value) * -0x4B47D0C5A6B1E0A3
            high ^= shift_right(high, 31)
        low = mix(low, depth)
    return low, high


@helper
def _ready_mask(batch, grammar, state):  # type: ignore[no-untyped-def]
    """Mask slot of a state whose mask was built ahead with the grammar, or -1."""
    starts = load_i64(grammar, G_READY_START)
    if starts == 0:
        return -1
    words = load_i64(batch, B_WORDS)
    scratch = load_i64(batch, B_SCRATCH)
    row = load_i32(load_i64(grammar, G_READY_DENSE), state)
    first, last = load_i32(starts, 2 * state), load_i32(starts, 2 * state + 1)
    if row == -1 and first == last:
        return -1
    if row >= 0:
        return intern_mask(batch, load_i64(grammar, G_READY_ROWS) + 8 * words * row)
    for word in range(words):
        store_i64(scratch, word, 0)
    for i in range(first, last):
        token = load_i32(load_i64(grammar, G_READY_TOKENS), i)
        store_i64(scratch, token >> 6, load_i64(scratch, token >> 6) | (1 << (token & 63)))
    return intern_mask(batch, scratch)


@helper
def mask_of(batch, grammar, config, at_start):  # type: ignore[no-untyped-def]
    """Mask id, or -1: not yet, of a configuration that is not finished. The mask of no head is empty."""
    if load_i64(config, CONFIG_HEADS) == 0:
        return KIND_EMPTY << KIND_SHIFT
    automaton = load_i64(grammar, G_AUTOMATON)
    flags = load_i64(automaton, H_FLAGS)
    vocabulary = load_i64(batch, B_VOCABULARY_START if at_start else B_VOCABULARY)
    head = head_at(config, 0)
    plain = load_i64(config, CONFIG_HEADS) == 1 and load_i64(head, HEAD_DEPTH) == 1 and not at_start
    if plain:
        state = load_i64(head, HEAD_STATES)
        slots = load_i64(grammar, G_LAZY_MASK if flags & LAZY else G_STATE_MASK)
        low, high = slots, state
    else:
        reach = load_i64(vocabulary, V_MAX_BYTES)
        low, high = _key(grammar, automaton, config, 1 if at_start else 0, reach)
        slots = find_entry(batch, low, high)
        state = 2
    mask_id = current_mask(batch, slots, state)
    if mask_id < 0 and affords(batch, mask_cost(batch)):
        mask_id = resolve(batch, slots, state, load_i64(batch, B_SCRATCH))
        if mask_id < 0 and plain and flags & LAZY == 0:
            packed = _ready_mask(batch, grammar, state)
            if packed >= 0:
                store_i64(slots, state, packed)
                count(batch, COUNT_WORK, mask_cost(batch))
                return packed & 0x7FFFFFFF
    if mask_id >= 0:
        count(batch, COUNT_HITS, 1)
        return mask_id
    if not affords(batch, mask_cost(batch)) or not may_run(batch, low, high):
        return -1
    if load_i64(load_i64(batch, B_JOB), J_STAGE) == IDLE:
        count(batch, COUNT_MISSES, 1)
        begin_job(batch, grammar, vocabulary, config, low, high)
    if call_kernel(load_i64(batch, B_RUN_JOB), batch, fuel_left(batch)) < 0:
        return -1
    packed = intern_mask(batch, load_i64(batch, B_JOB_TOTAL))
    store_i64(slots, state, packed)
    count(batch, COUNT_WORK, mask_cost(batch))
    return packed & 0x7FFFFFFF


@helper
def _row_at_start(batch, slot, position):  # type: ignore[no-untyped-def]
    return position == 0 and load_u8(load_i64(batch, B_TEXT_START), slot) != 0


@helper
def _mask_of_place(batch, slot, place):  # type: ignore[no-untyped-def]
    """Mask id of a recursive slot by its place alone, or -1: that does not tell it.

    Only in a look, and of a row that does not wait already: what a lane has at least in each phase is for its job.
    """
    low = load_i64(place, PLACE_LOW)
    looks = load_i64(batch, B_LOOKING) != 0 and load_i64(load_i64(batch, B_WAITING), slot) == 0
    if not looks or low == 0 or not affords(batch, KEY_COST):
        return -1
    entry = find_entry(batch, low, load_i64(place, PLACE_HIGH))
    mask_id = current_mask(batch, entry, 2)
    count(batch, COUNT_WORK, KEY_COST)
    if mask_id >= 0:
        store_i64(load_i64(batch, B_ROW_MASK), slot, load_i64(entry, 2))
        note_mask(batch, slot, place, load_i64(entry, 2))
        count(batch, COUNT_RECALLED, 1)
        count(batch, COUNT_HITS, 1)
    return mask_id


@helper
def _plan_row(batch, slot):  # type: ignore[no-untyped-def]
    """(mask id, -1 where it is not known yet, -2 past a limit; bits of legal end tokens) of a slot."""
    # Of most rows in which all is known two arrays that have a number for each slot say it. (Of a row without a stack
    # they say nothing.)
    known = load_i64(batch, B_ROW_MASK)
    mask_id, flags, place = current_mask(batch, known, slot), load_i64(load_i64(batch, B_ROW_FLAGS), slot), 0
    if mask_id >= 0 and flags >= 0:
        count(batch, COUNT_HITS, 1)
        count(batch, COUNT_RECALLED, 1)
    else:
        place = current_place(batch, slot)
        if place != 0:
            flags = load_i64(place, PLACE_FLAGS)
            if mask_id < 0:
                mask_id = _mask_of_place(batch, slot, place)
    grammar = load_i64(load_i64(batch, B_SLOT_GRAMMAR), slot)
    position = load_i64(load_i64(batch, B_POSITION), slot)
    config = config_at(batch, slot, position)
    if flags < 0:
        flags = load_i64(config, CONFIG_FLAGS) | NAMES
    if mask_id < 0:
        if flags & FINISHED:
            return KIND_EMPTY << KIND_SHIFT, 0
        at_start = _row_at_start(batch, slot, position)
        if load_i64(load_i64(grammar, G_AUTOMATON), H_FLAGS) & RECURSIVE:
            if affords(batch, mask_cost(batch)) and room_for_mask(batch):
                mask_id = resolve(batch, known, slot, load_i64(batch, B_SCRATCH))
            # In a look, what did not suffice before is left to the lanes.
            if mask_id < 0 and (load_i64(batch, B_LOOKING) == 0 or load_i64(load_i64(batch, B_WAITING), slot) == 0):
                mask_id = mask_of_graph(batch, grammar, slot, config, at_start)
            if mask_id >= 0 and place != 0:
                note_mask(batch, slot, place, load_i64(known, slot))
        else:
            mask_id = mask_of(batch, grammar, config, at_start)
    ends = 0
    if flags & COMPLETE and (
        position >= load_i64(load_i64(batch, B_MIN_TOKENS), slot) or mask_id == KIND_EMPTY << KIND_SHIFT
    ):
        ends = ALL_ENDS
    elif mask_id >= 0 and flags & NAMES:
        ends = _named_ends(batch, grammar, config, slot)
    return mask_id, ends


@helper
def is_end(batch, slot, token):  # type: ignore[no-untyped-def]
    ends = load_i64(batch, B_ENDS) + 4 * MAX_ENDS * slot
    for i in range(load_i32(load_i64(batch, B_END_COUNT), slot)):
        if load_i32(ends, i) == token:
            return True
    return False


@helper
def names(batch, grammar, slot, config, token):  # type: ignore[no-untyped-def]
    """Does the grammar itself name `token` as what may come next?"""
    automaton = load_i64(grammar, G_AUTOMATON)
    if load_i64(automaton, H_FLAGS) & TOKENS == 0:
        return False
    if load_i64(automaton, H_FLAGS) & RECURSIVE:
        return call_symbol(batch, grammar, slot, config, token, config, False) == ACCEPTED
    work = load_i64(batch, B_SCRATCH)
    spare = work + 8 * WORK_CONFIG_WORDS
    return step_token_symbol(automaton, load_i64(grammar, G_TOKEN_IDS), config, token, work, spare)


@helper
def _named_ends(batch, grammar, config, slot):  # type: ignore[no-untyped-def]
    """Which of the slot's end tokens the grammar itself names here: bit i for the i-th."""
    bits = 0
    ends = load_i64(batch, B_ENDS) + 4 * MAX_ENDS * slot
    for i in range(load_i32(load_i64(batch, B_END_COUNT), slot)):
        if names(batch, grammar, slot, config, load_i32(ends, i)):
            bits |= 1 << i
    return bits


@helper
def _begin_plan(batch, slots, rows, mask_ids, end_allowed, status):  # type: ignore[no-untyped-def]
    """Make all rows PENDING but the unconstrained ones. (how many, is any waiting already); -1: no such slot.

    A row whose last token turned out not to fit is LIMIT.
    """
    store, waiting = load_i64(batch, B_SLOT_GRAMMAR), load_i64(batch, B_WAITING)
    tokens, places = load_i64(batch, B_ADVANCE_TOKEN), load_i64(batch, B_ROW_OF)
    number = load_i64(batch, B_PLANS)
    cold, before = 0, False
    for row in range(rows):
        slot = load_i32(slots, row)
        store_i32(mask_ids, row, KIND_EMPTY << KIND_SHIFT)
        store_i32(end_allowed, row, 0)
        store_u8(status, row, PENDING)
        if slot < 0:
            store_i32(mask_ids, row, -1)
            store_i32(end_allowed, row, ALL_ENDS)
            store_u8(status, row, READY)
            continue
        if load_i64(store, slot) == 0:
            return -1, False
        if load_i32(tokens, slot) < NO_TOKEN:
            store_u8(status, row, LIMIT)
            continue
        store_i64(places, slot, (number << ROW_BITS) | row)
        before = before or load_i64(waiting, slot) != 0
        cold += 1
    return cold, before


@helper
def _next_turn(batch, turn, limit, finished):  # type: ignore[no-untyped-def]
    """Give the next turn its fuel: half for the oldest, the rest for the cheapest, what that leaves for the oldest.

    Returns its number, LAST_TURN + 1 where there is none.
    """
    turn += 1
    if turn == LAST_TURN and finished and fuel_left(batch) > 0:
        turn = CHEAPEST_TURN  # what was finished may serve others
    left = limit - work_done(batch)
    if turn == OLDEST_TURN:
        # A minimum is always done.
        give_fuel(batch, max(left - left // 2, 1))
    elif left <= 0:
        return LAST_TURN + 1
    else:
        store_i64(batch, B_WORK_LIMIT, limit)
    return turn


@kernel("int64(int64, int64, int64, int64, int64, int64, int64)")
def plan_rows(batch, slots, rows, fuel, mask_ids, end_allowed, status):  # type: ignore[no-untyped-def]
    """Masks of `rows` rows.

    `slots`: address of int32[rows], a negative slot is an unconstrained row. Written: `mask_ids`
    (int32[rows]), `end_allowed` (uint32[rows]: bit i for the slot's i-th end token), `status` (uint8[rows]: READY,
    PENDING or LIMIT). First tokens that were not taken within an earlier step are; then masks that are there are looked
    up; then others are computed while `fuel` lasts, in two lanes (`masks.lanes`). At least one piece of work is always
    done. Returns the fuel left, negative where more was used, or NO_SUCH_SLOT where a slot is
    not in use.
    """
    make_room(batch, rows)
    store_i64(batch, B_STEP_EPOCH, load_i64(batch, B_EPOCH))
    waiting = load_i64(batch, B_WAITING)
    number = load_i64(batch, B_PLANS) + 1
    store_i64(batch, B_PLANS, number)
    store_i64(batch, B_FINISHED, load_i64(batch, B_FINISHED) + 1)
    fuel = max(fuel, 1)
    limit = work_done(batch) + fuel
    if load_i64(batch, B_BEHIND) > 0:
        give_fuel(batch, max(fuel // 2, 1))
        call_kernel_6(load_i64(batch, B_ADVANCE_ROWS), batch, slots, rows, 0, status, RESUME)
    cold, before = _begin_plan(batch, slots, rows, mask_ids, end_allowed, status)
    if cold < 0:
        return NO_SUCH_SLOT
    count(batch, COUNT_LOOKED, ROW_COST * cold)
    tokens = load_i64(batch, B_ADVANCE_TOKEN)
    # Looks leave the lanes their half if a row is waiting for it. They may have some of what is `settle`'s besides: a
    # row whose mask is put together needs no settling.
    looks = limit + load_i64(batch, B_LOOK_EXTRA) - (fuel // 2 if before else 0)
    store_i64(batch, B_WORK_BEGIN, -1)
    turn, lane, at, finished = LOOK_TURN, LANE_LOOK, -LEAD, False
    switch_lane(batch, lane)
    # One place calls `_plan_row`, because each would be compiled with a copy of it.
    while cold > 0 and turn <= LAST_TURN:
        if turn == LOOK_TURN:
            row = at
            at += 1
            fetch_rows(batch, slots, 0, 0, row, rows)
            if row < 0 or (
                row < rows and (load_u8(status, row) != PENDING or load_i32(tokens, load_i32(slots, row)) > NO_TOKEN)
            ):
                continue
            store_i64(batch, B_WORK_LIMIT, min(work_done(batch) + LOOK_FUEL, looks))
            if row == rows:
                row = -1
        else:
            lane = LANE_CHEAPEST if turn == CHEAPEST_TURN else LANE_OLDEST
            row = choose_row(batch, slots, rows, status, lane)
            switch_lane(batch, lane)
            if row >= 0 and lane == LANE_CHEAPEST:
                job = load_i64(batch, B_JOB)
                most = load_i64(job, J_MOST) - load_i64(job, J_TAKEN)
                store_i64(batch, B_WORK_LIMIT, min(limit, work_done(batch) + most))
        if row < 0:
            turn = _next_turn(batch, turn, limit, finished)
            finished = False
            continue
        slot = load_i32(slots, row)
        begin = work_done(batch)
        mask_id, ends = _plan_row(batch, slot)
        job = load_i64(batch, B_JOB)
        if mask_id != -1:
            store_i32(mask_ids, row, mask_id if mask_id >= 0 else KIND_EMPTY << KIND_SHIFT)
            store_i32(end_allowed, row, ends)
            store_u8(status, row, READY if mask_id >= 0 else LIMIT)
            store_i64(waiting, slot, 0)
            store_i64(load_i64(batch, B_EFFORT), slot, 0)
            cold -= 1
        elif load_i64(waiting, slot) == 0:
            store_i64(waiting, slot, number)
        if turn == LOOK_TURN:
            continue
        store_i64(job, J_TAKEN, load_i64(job, J_TAKEN) + work_done(batch) - begin)
        if work_done(batch) > begin:
            count(batch, COUNT_WORK, rows // ROWS_A_UNIT)  # choosing it
        if mask_id != -1:
            store_i64(job, J_SLOT, -1)
            store_i64(batch, B_FINISHED, load_i64(batch, B_FINISHED) + 1)
            finished = True
            done = work_done(batch) >= load_i64(batch, B_WORK_LIMIT)
        else:
            # It goes on in a later turn or plan, unless it is left to the other lane, or has had what it was given.
            done = not is_blocked(batch, slot) and (
                lane == LANE_OLDEST or load_i64(job, J_TAKEN) < load_i64(job, J_MOST) or work_done(batch) >= limit
            )
        if done:
            turn = _next_turn(batch, turn, limit, finished)
            finished = False
    switch_lane(batch, LANE_OLDEST)
    count(batch, COUNT_PENDING, cold)
    return limit - work_done(batch)


@kernel("void(int64, int64, int64, int64, int64)")
def write_mask(batch, slot, mask_id, end_allowed, words):  # type: ignore[no-untyped-def]
    """Write the slot's whole mask, given what `plan_rows` found for it, to `words` (int64[B_WORDS])."""
    for word in range(load_i64(batch, B_WORDS)):
        store_i64(words, word, 0)
    expand_mask(batch, mask_id, words)
    ends = load_i64(batch, B_ENDS) + 4 * MAX_ENDS * slot
    for i in range(load_i32(load_i64(batch, B_END_COUNT), slot)):
        token = load_i32(ends, i)
        bits = load_i64(words, token >> 6) & ~(1 << (token & 63))
        store_i64(words, token >> 6, bits | ((end_allowed >> i) & 1) << (token & 63))
