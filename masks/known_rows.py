"""A step's rows of which all is known: their masks came with their last tokens, and what these do was done before.

Those are nearly all rows of a warm step. Little code serves them, which reads little: a forward pass leaves neither
the one nor the other in the caches, and each line of either is waited for. The other rows are handed on, beside each
other, to the kernels that serve any row.

A row is known by B_ROW_FLAGS, its mask by B_ROW_MASK, and what its token does by `masks.transitions`. Of the next rows
the lines are asked for ahead: a place tells where its transition is, and that what is read and written for it.
"""

from __future__ import annotations

from .._numba import helper, kernel
from .advance import is_at_end
from .ahead import begins_line
from .arena import ACCEPTED, ENDED, REFUSED, TOO_DEEP, UNFINISHED
from .fuel import affords, count, give_fuel, work_done
from .history import config_at
from .layout import (
    B_ADVANCE_FROM,
    B_ADVANCE_FUEL,
    B_ADVANCE_ROWS,
    B_ADVANCE_TOKEN,
    B_ARENA_NEXT,
    B_ARENA_USED,
    B_ARENAS,
    B_BEHIND,
    B_EFFORT,
    B_END_BITS,
    B_EPOCH,
    B_FINISHED,
    B_FOUND,
    B_HISTORY,
    B_MIN_TOKENS,
    B_MOVES,
    B_OLDEST,
    B_PLAN_ROWS,
    B_PLANS,
    B_POSITION,
    B_REST,
    B_ROW_FLAGS,
    B_ROW_MASK,
    B_SLOTS,
    B_STEP_EPOCH,
    B_TELLS_ENDS,
    B_TRANSITION_OF,
    B_WAITING,
    COMPLETE,
    COUNT_ACCEPTED,
    COUNT_ADVANCED,
    COUNT_HITS,
    COUNT_LOOKED,
    COUNT_RECALLED,
    KIND_EMPTY,
    KIND_SHIFT,
    READY,
)
from .memory import call_kernel_6, call_kernel_7, load_i32, load_i64, load_u8, prefetch, store_i32, store_i64, store_u8
from .places import NAMES, PLACE_FLAGS, PLACE_LOW, PLACE_MASK, current_place, place_at
from .pool import current_mask, make_room
from .step import NO_SUCH_SLOT, NO_TOKEN, ROW_COST, ROWS, WALK_FUEL, is_end
from .tables import ALL_ENDS
from .transitions import (
    TRANSITION_WORDS,
    bucket_at,
    find_transition,
    is_transition,
    stack_of_place,
    take_transition,
)

#: Arrays at B_REST, of the rows that are handed on: which they are and what is known of them, and the answers.
REST_ROWS, REST_SLOTS, REST_TOKENS, REST_FLAGS, REST_POSITIONS, REST_MASKS, REST_ENDS, REST_ANSWERS = range(8)
REST_FIELDS = 8
#: Rows between two stages of asking for lines, and how many there are; arrays with a number a slot come first.
DISTANCE, STAGES = 4, 4
LEAD = STAGES * DISTANCE
#: Places at B_FOUND: more than DISTANCE, a power of two.
FOUND = 16
assert FOUND > DISTANCE
#: Those of 8 bytes a slot that a plan reads, and that an advance reads or writes.
OF_PLANS = (B_ROW_MASK, B_ROW_FLAGS)
OF_ADVANCES = (
    B_POSITION, B_MOVES, B_ROW_MASK, B_ROW_FLAGS, B_ARENAS, B_ARENA_USED, B_ARENA_NEXT, B_OLDEST, B_END_BITS,
)  # fmt: skip


@helper
def _rest(batch, field):  # type: ignore[no-untyped-def]
    """Address of an array of the rows that are handed on."""
    return load_i64(batch, B_REST) + 4 * load_i64(batch, B_SLOTS) * field


@helper
def _hand_on(batch, n, row, slot, token):  # type: ignore[no-untyped-def]
    store_i32(_rest(batch, REST_ROWS), n, row)
    store_i32(_rest(batch, REST_SLOTS), n, slot)
    store_i32(_rest(batch, REST_TOKENS), n, token)


@helper
def _plan_known(batch, slots, rows, mask_ids, end_allowed, status):  # type: ignore[no-untyped-def]
    """Plan the rows that are known; how many are not, which are at B_REST."""
    known, known_flags = load_i64(batch, B_ROW_MASK), load_i64(batch, B_ROW_FLAGS)
    tokens = load_i64(batch, B_ADVANCE_TOKEN)
    n, served = 0, 0
    for i in range(-LEAD, rows):
        ahead = i + LEAD
        if ahead < rows:
            slot = load_i32(slots, ahead)
            if slot >= 0 and begins_line(slots, ahead, slot):
                for k in range(len(OF_PLANS)):
                    prefetch(load_i64(batch, OF_PLANS[k]) + 8 * slot)
                prefetch(tokens + 4 * slot)
        if i < 0:
            continue
        slot = load_i32(slots, i)
        mask_id, ends = -1, ALL_ENDS
        if slot >= 0:
            mask_id, flags, ends = current_mask(batch, known, slot), load_i64(known_flags, slot), 0
            if mask_id < 0 or flags < 0 or flags & NAMES or load_i32(tokens, slot) != NO_TOKEN:
                _hand_on(batch, n, i, slot, NO_TOKEN)
                n += 1
                continue
            served += 1
            if flags & COMPLETE and (
                mask_id == KIND_EMPTY << KIND_SHIFT
                or load_i64(load_i64(batch, B_POSITION), slot) >= load_i64(load_i64(batch, B_MIN_TOKENS), slot)
            ):
                ends = ALL_ENDS
        store_i32(mask_ids, i, mask_id)
        store_i32(end_allowed, i, ends)
        store_u8(status, i, READY)
    count(batch, COUNT_LOOKED, ROW_COST * served)
    count(batch, COUNT_HITS, served)
    count(batch, COUNT_RECALLED, served)
    return n


@kernel("int64(int64, int64, int64, int64, int64, int64, int64)")
def plan_all(batch, slots, rows, fuel, mask_ids, end_allowed, status):  # type: ignore[no-untyped-def]
    """As `step.plan_rows`, for no more rows than there are slots."""
    general = load_i64(batch, B_PLAN_ROWS)
    if load_i64(batch, B_BEHIND) > 0:  # rows in the middle of a token come first
        return call_kernel_7(general, batch, slots, rows, fuel, mask_ids, end_allowed, status)
    make_room(batch, rows)
    n = _plan_known(batch, slots, rows, mask_ids, end_allowed, status)
    if n == 0:
        store_i64(batch, B_STEP_EPOCH, load_i64(batch, B_EPOCH))
        store_i64(batch, B_PLANS, load_i64(batch, B_PLANS) + 1)
        store_i64(batch, B_FINISHED, load_i64(batch, B_FINISHED) + 1)
        return max(fuel, 1)
    masks, ends, answers = _rest(batch, REST_MASKS), _rest(batch, REST_ENDS), _rest(batch, REST_ANSWERS)
    left = call_kernel_7(general, batch, _rest(batch, REST_SLOTS), n, fuel, masks, ends, answers)
    if left != NO_SUCH_SLOT:
        for k in range(n):
            row = load_i32(_rest(batch, REST_ROWS), k)
            store_i32(mask_ids, row, load_i32(masks, k))
            store_i32(end_allowed, row, load_i32(ends, k))
            store_u8(status, row, load_u8(answers, k))
    return left


@helper
def _fetch_place(batch, slot):  # type: ignore[no-untyped-def]
    """The slot's place, and what is written for the next one."""
    position = load_i64(load_i64(batch, B_POSITION), slot)
    for at in range(position, position + 2):
        place = place_at(batch, slot, at)
        prefetch(place)
        prefetch(place + 64)
    prefetch(config_at(batch, slot, position + 1))


@helper
def _place_of(batch, slot):  # type: ignore[no-untyped-def]
    """Address of the place of a slot that is known, or 0."""
    place = 0
    if load_i64(load_i64(batch, B_ROW_FLAGS), slot) >= 0:
        place = current_place(batch, slot)
        if place != 0 and load_i64(place, PLACE_LOW) == 0:
            place = 0
    return place


@helper
def _fetch_bucket(batch, slot, token):  # type: ignore[no-untyped-def]
    """What tells the transitions of the slot's place by tokens like this one."""
    place = _place_of(batch, slot)
    if place != 0:
        low, high = stack_of_place(place)
        bucket = bucket_at(batch, low, high, token)
        prefetch(bucket)
        prefetch(bucket + 8 * TRANSITION_WORDS)


@helper
def _find(batch, slot, token):  # type: ignore[no-untyped-def]
    """The transition of the slot's place by a token, or 0; what it reads and writes is asked for."""
    place = _place_of(batch, slot)
    found = 0
    if place != 0:
        low, high = stack_of_place(place)
        found = find_transition(batch, low, high, token)
        if found != 0:
            prefetch(found + 64)
            arena = load_i64(load_i64(batch, B_ARENAS), slot) + 8 * load_i64(load_i64(batch, B_ARENA_USED), slot)
            prefetch(arena)
            prefetch(arena + 64)
    return found


@helper
def _take(batch, slot, token, transition):  # type: ignore[no-untyped-def]
    """Let the slot take its token by a transition that was found for it. False: it is handed on, unchanged."""
    # What was found may be of another place by now, where a slot has two rows.
    place = _place_of(batch, slot)
    if transition == 0 or place == 0 or load_i32(load_i64(batch, B_ADVANCE_TOKEN), slot) != NO_TOKEN:
        return False
    low, high = stack_of_place(place)
    may_be_end = (load_i64(load_i64(batch, B_END_BITS), slot) >> (token & 63)) & 1 != 0
    if not is_transition(transition, low, high, token) or (may_be_end and is_end(batch, slot, token)):
        return False
    positions, masks = load_i64(batch, B_POSITION), load_i64(batch, B_ROW_MASK)
    position = load_i64(positions, slot)
    if not affords(batch, 1) or not take_transition(
        batch, slot, position, place, transition, config_at(batch, slot, position + 1)
    ):
        return False
    if current_mask(batch, masks, slot) < 0:  # it may have waited for its mask
        store_i64(load_i64(batch, B_WAITING), slot, 0)
        store_i64(load_i64(batch, B_EFFORT), slot, 0)
    after = place_at(batch, slot, position + 1)
    store_i64(positions, slot, position + 1)
    store_i64(masks, slot, load_i64(after, PLACE_MASK))
    store_i64(load_i64(batch, B_ROW_FLAGS), slot, load_i64(after, PLACE_FLAGS))
    if current_mask(batch, masks, slot) < 0:
        store_i64(load_i64(batch, B_TRANSITION_OF), slot, transition)  # for `note_mask`
    history, oldest = load_i64(batch, B_HISTORY), load_i64(batch, B_OLDEST)
    if position + 1 - load_i64(oldest, slot) > history - 2:
        store_i64(oldest, slot, position + 3 - history)
    return True


@helper
def _advance_known(batch, slots, rows, first, tokens, accepted):  # type: ignore[no-untyped-def]
    """Let the rows that are known take their tokens, from number `first` on as if in a circle: (how many did, how many
    are not known, which are at B_REST)."""
    found = load_i64(batch, B_FOUND)
    tells = load_i64(batch, B_TELLS_ENDS) != 0
    n, served = 0, 0
    for i in range(-LEAD, rows):
        # The farthest first: what it asks for takes longest to be needed.
        for stage in range(STAGES + 1):
            at = i + (STAGES - stage) * DISTANCE
            if at < 0 or at >= rows:
                continue
            row = first + at
            if row >= rows:
                row -= rows
            slot, token = load_i32(slots, row), load_i32(tokens, row)
            if slot < 0:
                if stage == STAGES:
                    store_u8(accepted, row, ACCEPTED)
                    served += 1
            elif stage == 0:
                if begins_line(slots, row, slot):
                    for k in range(len(OF_ADVANCES)):
                        prefetch(load_i64(batch, OF_ADVANCES[k]) + 8 * slot)
                    prefetch(load_i64(batch, B_ADVANCE_TOKEN) + 4 * slot)
            elif stage == 1:
                _fetch_place(batch, slot)
            elif stage == 2:
                _fetch_bucket(batch, slot, token)
            elif stage == 3:
                store_i64(found, at & (FOUND - 1), _find(batch, slot, token))
            elif _take(batch, slot, token, load_i64(found, at & (FOUND - 1))):
                store_u8(accepted, row, ENDED if tells and is_at_end(batch, slot) else ACCEPTED)
                served += 1
            else:
                _hand_on(batch, n, row, slot, token)
                # Another row of this slot comes after it.
                flags = load_i64(batch, B_ROW_FLAGS)
                store_i32(_rest(batch, REST_FLAGS), n, load_i64(flags, slot))
                store_i32(_rest(batch, REST_POSITIONS), n, load_i64(load_i64(batch, B_POSITION), slot))
                store_i64(flags, slot, -1)
                n += 1
    return served, n


@helper
def _stay(batch, k):  # type: ignore[no-untyped-def]
    """Row `k` of those at B_REST did not take its token: what its slot is known by is as before, but where another row
    of the slot has moved it."""
    slot = load_i32(_rest(batch, REST_SLOTS), k)
    if load_i64(load_i64(batch, B_POSITION), slot) == load_i32(_rest(batch, REST_POSITIONS), k):
        store_i64(load_i64(batch, B_ROW_FLAGS), slot, load_i32(_rest(batch, REST_FLAGS), k))


@kernel("int64(int64, int64, int64, int64, int64)")
def advance_all(batch, slots, rows, tokens, accepted):  # type: ignore[no-untyped-def]
    """As `advance.advance_rows` in mode ROWS, for no more rows than there are slots."""
    general, first = load_i64(batch, B_ADVANCE_ROWS), load_i64(batch, B_ADVANCE_FROM)
    if load_i64(batch, B_BEHIND) > 0:  # rows in the middle of a token come first
        return call_kernel_6(general, batch, slots, rows, tokens, accepted, ROWS)
    if first >= rows:
        first = 0
    fuel = max(load_i64(batch, B_ADVANCE_FUEL), WALK_FUEL)
    give_fuel(batch, fuel)
    begin = work_done(batch)
    served, n = _advance_known(batch, slots, rows, first, tokens, accepted)
    spent = work_done(batch) - begin
    count(batch, COUNT_ACCEPTED, served)
    count(batch, COUNT_ADVANCED, spent)
    if n == 0:
        return served
    answers = _rest(batch, REST_ANSWERS)
    store_i64(batch, B_ADVANCE_FUEL, max(fuel - spent, 0))
    store_i64(batch, B_ADVANCE_FROM, 0)
    served += call_kernel_6(general, batch, _rest(batch, REST_SLOTS), n, _rest(batch, REST_TOKENS), answers, ROWS)
    store_i64(batch, B_ADVANCE_FROM, first)
    for k in range(n - 1, -1, -1):
        row, answer = load_i32(_rest(batch, REST_ROWS), k), load_u8(answers, k)
        store_u8(accepted, row, answer)
        if answer == UNFINISHED:
            store_i64(batch, B_ADVANCE_FROM, row)
        elif answer == REFUSED or answer == TOO_DEEP:
            _stay(batch, k)
    return served
