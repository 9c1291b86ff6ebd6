"""The two calls of a step: `plan` looks up or computes the mask of every row, `advance` accepts a token each."""

from __future__ import annotations

from .._numba import helper, kernel
from ..grammar.automaton import H_FLAGS, LAZY, RECURSIVE, TOKENS
from .arena import ACCEPTED
from .contexts import mask_of_graph
from .graph_call import call_symbol
from .layout import (
    B_CONFIGS,
    B_COUNTERS,
    B_END_COUNT,
    B_ENDS,
    B_EPOCH,
    B_HISTORY,
    B_JOB,
    B_JOB_TOTAL,
    B_MIN_TOKENS,
    B_PLANS,
    B_POSITION,
    B_RUN_JOB,
    B_SCRATCH,
    B_SLOT_GRAMMAR,
    B_STEP_EPOCH,
    B_TEXT_START,
    B_VOCABULARY,
    B_VOCABULARY_START,
    B_WAITING,
    B_WORDS,
    COMPLETE,
    CONFIG_FLAGS,
    CONFIG_HEADS,
    CONFIG_WORDS,
    COUNT_HITS,
    COUNT_MISSES,
    COUNT_PENDING,
    COUNT_VISITED,
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
    J_KEY_HIGH,
    J_KEY_LOW,
    J_STAGE,
    KIND_EMPTY,
    KIND_SHIFT,
    LIMIT,
    MAX_ENDS,
    PENDING,
    READY,
    WORK_CONFIG_WORDS,
)
from .lazy import mix
from .machine import (
    head_at,
    register_class,
    step_token_symbol,
)
from .memory import call_kernel, load_i32, load_i64, load_u8, shift_right, store_i32, store_i64, store_u8
from .pool import count, expand_mask, find_entry, intern_mask, make_room, resolve
from .tables import ALL_ENDS
from .trie import V_MAX_BYTES
from .walk import begin_job

NO_FUEL_LIMIT = 1 << 62
#: A place in the order of waiting: number of a plan << ROW_BITS | row.
ROW_BITS = 20


@helper
def config_at(batch, slot, position):  # type: ignore[no-untyped-def]
    """Configuration of `slot` after `position` tokens."""
    history = load_i64(batch, B_HISTORY)
    return load_i64(batch, B_CONFIGS) + 8 * CONFIG_WORDS * (slot * history + position % history)


@helper
def current_config(batch, slot):  # type: ignore[no-untyped-def]
    return config_at(batch, slot, load_i64(load_i64(batch, B_POSITION), slot))


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
def mask_of(batch, grammar, config, at_start, fuel):  # type: ignore[no-untyped-def]
    """(mask id or -1, fuel left) of a configuration that is not finished. The mask of no head is empty."""
    if load_i64(config, CONFIG_HEADS) == 0:
        return KIND_EMPTY << KIND_SHIFT, fuel
    automaton = load_i64(grammar, G_AUTOMATON)
    flags = load_i64(automaton, H_FLAGS)
    job = load_i64(batch, B_JOB)
    idle = load_i64(job, J_STAGE) == IDLE
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
    mask_id = resolve(batch, slots, state, load_i64(batch, B_SCRATCH))
    if mask_id >= 0:
        count(batch, COUNT_HITS, 1)
        return mask_id, fuel
    if plain and flags & LAZY == 0:
        packed = _ready_mask(batch, grammar, state)
        if packed >= 0:
            store_i64(slots, state, packed)
            return packed & 0x7FFFFFFF, fuel
    if fuel <= 0:
        return -1, fuel
    if not idle and (load_i64(job, J_KEY_LOW) != low or load_i64(job, J_KEY_HIGH) != high):
        return -1, fuel
    if idle:
        count(batch, COUNT_MISSES, 1)
        begin_job(batch, grammar, vocabulary, config, low, high)
    left = call_kernel(load_i64(batch, B_RUN_JOB), batch, fuel)
    if left < 0:
        return -1, 0
    packed = intern_mask(batch, load_i64(batch, B_JOB_TOTAL))
    store_i64(slots, state, packed)
    return packed & 0x7FFFFFFF, left


@helper
def _row_at_start(batch, slot, position):  # type: ignore[no-untyped-def]
    return position == 0 and load_u8(load_i64(batch, B_TEXT_START), slot) != 0


@helper
def _plan_row(batch, slot, fuel):  # type: ignore[no-untyped-def]
    """(mask id, -1 where it is not known yet, -2 past a limit; bits of legal end tokens; fuel left) of a slot."""
    grammar = load_i64(load_i64(batch, B_SLOT_GRAMMAR), slot)
    position = load_i64(load_i64(batch, B_POSITION), slot)
    config = config_at(batch, slot, position)
    flags = load_i64(config, CONFIG_FLAGS)
    if flags & FINISHED:
        return KIND_EMPTY << KIND_SHIFT, 0, fuel
    at_start = _row_at_start(batch, slot, position)
    if load_i64(load_i64(grammar, G_AUTOMATON), H_FLAGS) & RECURSIVE:
        mask_id, fuel = mask_of_graph(batch, grammar, slot, config, at_start, fuel)
    else:
        mask_id, fuel = mask_of(batch, grammar, config, at_start, fuel)
    ends = 0
    if flags & COMPLETE and (
        position >= load_i64(load_i64(batch, B_MIN_TOKENS), slot) or mask_id == KIND_EMPTY << KIND_SHIFT
    ):
        ends = ALL_ENDS
    elif mask_id >= 0:
        ends = _named_ends(batch, grammar, config, slot)
    return mask_id, ends, fuel


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
def _longest_waiting(batch, slots, rows, status, after):  # type: ignore[no-untyped-def]
    """Place of the PENDING row that has waited longest, of those behind the place `after`; -1: there is none."""
    waiting = load_i64(batch, B_WAITING)
    first = -1
    for row in range(rows):
        if load_u8(status, row) == PENDING:
            place = (load_i64(waiting, load_i32(slots, row)) << ROW_BITS) | row
            if place > after and (first < 0 or place < first):
                first = place
    return first


@helper
def _work_on_masks(batch):  # type: ignore[no-untyped-def]
    """Work done on unfinished masks so far."""
    counters = load_i64(batch, B_COUNTERS)
    return load_i64(counters, COUNT_WORK) - load_i64(counters, COUNT_VISITED)


@kernel("int64(int64, int64, int64, int64, int64, int64, int64)")
def plan_rows(batch, slots, rows, fuel, mask_ids, end_allowed, status):  # type: ignore[no-untyped-def]
    """Masks of `rows` rows.

    `slots`: address of int32[rows], a negative slot is an unconstrained row. Written: `mask_ids`
    (int32[rows]), `end_allowed` (uint32[rows]: bit i for the slot's i-th end token), `status` (uint8[rows]: READY,
    PENDING or LIMIT). Cold masks are computed while `fuel` lasts, an unfinished one first, then those of the rows that
    have waited longest; at least one unit of work is always done. So a row is PENDING in at most as many plans as the
    masks that were waited for before its own take, rounded up, and one more.
    Returns the fuel left, or -1 where a slot is not in use.
    """
    make_room(batch, rows)
    store_i64(batch, B_STEP_EPOCH, load_i64(batch, B_EPOCH))
    store = load_i64(batch, B_SLOT_GRAMMAR)
    job = load_i64(batch, B_JOB)
    waiting = load_i64(batch, B_WAITING)
    number = load_i64(batch, B_PLANS) + 1
    store_i64(batch, B_PLANS, number)
    cold = rows
    fuel = max(fuel, 1)
    # Turn 0 looks up what is there. Turn 1 only finishes the mask that an earlier step began, for any row; turn 2
    # computes others. If that mask is still unfinished it is of no row planned now: turn 3 drops it and serves these.
    # One place calls `_plan_row`, because each would be compiled with a copy of it.
    for turn in range(4):
        if cold == 0 or (turn == 3 and (fuel <= 0 or load_i64(job, J_STAGE) == IDLE)):
            break
        if turn == 3:
            store_i64(job, J_STAGE, IDLE)
        place = -1
        for attempt in range(rows):
            row = attempt
            if turn == 1 and load_i64(job, J_STAGE) == IDLE:
                break
            if turn > 0 and fuel > 0:
                place = _longest_waiting(batch, slots, rows, status, place)
                if place < 0:
                    break
                row = place & ((1 << ROW_BITS) - 1)
                fuel = max(fuel - rows // 16, 1)
            slot = load_i32(slots, row)
            if turn == 0:
                store_u8(status, row, PENDING)
                if slot >= 0 and load_i64(store, slot) == 0:
                    return -1
                if slot < 0:
                    store_i32(mask_ids, row, -1)
                    store_i32(end_allowed, row, ALL_ENDS)
                    store_u8(status, row, READY)
                    cold -= 1
                    continue
            elif fuel <= 0 or load_u8(status, row) != PENDING:
                continue
            before = _work_on_masks(batch)
            mask_id, ends, left = _plan_row(batch, slot, 0 if turn == 0 else fuel)
            # What a row costs that must wait for another's mask is not charged: the fuel would never reach that one.
            if turn > 0 and (mask_id != -1 or _work_on_masks(batch) != before):
                fuel = left
            if mask_id != -1:
                store_i32(mask_ids, row, mask_id if mask_id >= 0 else KIND_EMPTY << KIND_SHIFT)
                store_i32(end_allowed, row, ends)
                store_u8(status, row, READY if mask_id >= 0 else LIMIT)
                store_i64(waiting, slot, 0)
                cold -= 1
            elif load_i64(waiting, slot) == 0:
                store_i64(waiting, slot, number)
    for row in range(rows):
        if load_u8(status, row) == PENDING:
            store_i32(mask_ids, row, KIND_EMPTY << KIND_SHIFT)
            store_i32(end_allowed, row, 0)
    count(batch, COUNT_PENDING, cold)
    return max(fuel, 0)


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
