"""Accepting: tokens for whole batches, bytes and drafts for one sequence, and going back."""

from __future__ import annotations

from .._numba import helper, kernel
from ..grammar.automaton import (
    H_FLAGS,
    H_ROOT_FRAME,
    HAS_TOKENS,
    LAZY,
    RECURSIVE,
)
from .accept import accept_data, accept_token, copy_config, rest_at_boundary, rest_on_set, token_at
from .ahead import LEAD, fetch_rows
from .arena import ACCEPTED, ENDED, LEAST_COMPACTED, REFUSED, TOO_DEEP, UNFINISHED, note_moved
from .fuel import NO_FUEL_LIMIT, affords, count, give_fuel, work_done
from .graph import leads_on
from .graph_call import call_forced, call_start
from .history import config_at, current_config
from .lanes import drop_job
from .layout import (
    B_ADVANCE_BYTES,
    B_ADVANCE_FROM,
    B_ADVANCE_FUEL,
    B_ADVANCE_TOKEN,
    B_ARENA_NEXT,
    B_ARENA_USED,
    B_ARENAS,
    B_BEHIND,
    B_BYTES_DONE,
    B_EFFORT,
    B_END_BITS,
    B_END_COUNT,
    B_ENDS,
    B_HISTORY,
    B_LARGE_ARENAS,
    B_MIN_TOKENS,
    B_MOVES,
    B_OLDEST,
    B_PLANS,
    B_POSITION,
    B_ROW_FLAGS,
    B_ROW_MASK,
    B_SCRATCH,
    B_SET_SCRATCH,
    B_SLOT_GRAMMAR,
    B_SMALL_ARENAS,
    B_TELLS_ENDS,
    B_TEXT_START,
    B_TRANSITION_OF,
    B_VOCABULARY,
    B_VOCABULARY_START,
    B_WAITING,
    BLOCK_COUNT,
    BLOCK_TRIPLES,
    COMPLETE,
    CONFIG_BLOCK,
    CONFIG_FIRST_HEAD,
    CONFIG_FLAGS,
    CONFIG_HEADS,
    COUNT_ACCEPTED,
    COUNT_ADVANCED,
    COUNT_LEARNED,
    COUNT_REFUSED,
    COUNT_UNFINISHED,
    FINISHED,
    G_AUTOMATON,
    G_LAZY_SETS,
    G_LAZY_WORDS,
    HEAD_STATES,
    MAX_ENDS,
    WORK_CONFIG_WORDS,
)
from .lazy import lazy_intern, lazy_is_final, lazy_step
from .machine import (
    flags_of,
    head_at,
    reach_byte,
    start_config,
    step_config,
    top_state,
)
from .memory import load_i32, load_i64, load_u8, store_i32, store_i64, store_u8
from .places import (
    PLACE_FLAGS,
    PLACE_HIGH,
    PLACE_LOW,
    PLACE_MASK,
    current_place,
    find_place,
    forget_place,
    forget_places,
)
from .pool import find_entry
from .step import ASK, DRAFT, NO_TOKEN, RESUME, ROWS, WALK_FUEL, is_end
from .transitions import find_transition, learn_transition, stack_of_place, take_transition


@helper
def _forget_row(batch, slot):  # type: ignore[no-untyped-def]
    """The slot is in another place: nothing is known of its mask."""
    store_i64(load_i64(batch, B_WAITING), slot, 0)
    store_i64(load_i64(batch, B_EFFORT), slot, 0)
    store_i64(load_i64(batch, B_ROW_MASK), slot, -1)
    store_i64(load_i64(batch, B_ROW_FLAGS), slot, -1)


@helper
def _set_token(batch, slot, token):  # type: ignore[no-untyped-def]
    """The slot is in the middle of `token`, or of none (NO_TOKEN), or could not take one (below)."""
    tokens = load_i64(batch, B_ADVANCE_TOKEN)
    if (load_i32(tokens, slot) > NO_TOKEN) != (token > NO_TOKEN):
        store_i64(batch, B_BEHIND, load_i64(batch, B_BEHIND) + (1 if token > NO_TOKEN else -1))
    store_i32(tokens, slot, token)
    store_i64(load_i64(batch, B_ADVANCE_BYTES), slot, 0)


@helper
def _find_start(batch, grammar, slot, config):  # type: ignore[no-untyped-def]
    """Find the place of a recursive slot before its first token, and its mask if that is there: the next plan would."""
    at_start = load_u8(load_i64(batch, B_TEXT_START), slot)
    vocabulary = load_i64(batch, B_VOCABULARY_START if at_start else B_VOCABULARY)
    place = find_place(batch, grammar, vocabulary, slot, 0, config, 1 if at_start else 0)
    low = load_i64(place, PLACE_LOW)
    if low != 0:
        entry = find_entry(batch, low, load_i64(place, PLACE_HIGH))
        store_i64(load_i64(batch, B_ROW_MASK), slot, load_i64(entry, 2))
        store_i64(load_i64(batch, B_ROW_FLAGS), slot, load_i64(place, PLACE_FLAGS))


@helper
def start_slot(batch, slot):  # type: ignore[no-untyped-def]
    """Put `slot` before its first token."""
    grammar = load_i64(load_i64(batch, B_SLOT_GRAMMAR), slot)
    automaton = load_i64(grammar, G_AUTOMATON)
    config = config_at(batch, slot, 0)
    store_i64(load_i64(batch, B_POSITION), slot, 0)
    store_i64(load_i64(batch, B_OLDEST), slot, 0)
    _forget_row(batch, slot)
    forget_places(batch, slot)
    _set_token(batch, slot, NO_TOKEN)
    if load_i64(automaton, H_FLAGS) & RECURSIVE:
        if not call_start(batch, grammar, slot, config):
            return False
        if load_i64(config, CONFIG_HEADS) > 0:
            _find_start(batch, grammar, slot, config)
        return True
    if load_i64(automaton, H_FLAGS) & LAZY:
        words = load_i64(grammar, G_LAZY_WORDS)
        work = load_i64(batch, B_SET_SCRATCH)
        for word in range(words):
            store_i64(work, word, 0)
        store_i64(work, 0, 1)
        return rest_on_set(batch, grammar, automaton, work, config)
    start_config(automaton, load_i64(automaton, H_ROOT_FRAME), load_i64(batch, B_SCRATCH), config)
    return load_i64(config, CONFIG_HEADS) == 0 or rest_at_boundary(grammar, config)


@helper
def _move_on(batch, slot):  # type: ignore[no-untyped-def]
    """One more position of the slot's history; the oldest may be given up for it."""
    positions = load_i64(batch, B_POSITION)
    history = load_i64(batch, B_HISTORY)
    position = load_i64(positions, slot)
    oldest = load_i64(batch, B_OLDEST)
    store_i64(positions, slot, position + 1)
    _forget_row(batch, slot)
    place = current_place(batch, slot)
    if place != 0:
        store_i64(load_i64(batch, B_ROW_MASK), slot, load_i64(place, PLACE_MASK))
        store_i64(load_i64(batch, B_ROW_FLAGS), slot, load_i64(place, PLACE_FLAGS))
    if position + 1 - load_i64(oldest, slot) > history - 2:
        store_i64(oldest, slot, position + 3 - history)


@helper
def _accept(batch, grammar, slot, position, config, token, target, keep):  # type: ignore[no-untyped-def]
    """`accept_token`, by a transition where there is one; else one is learned, where it is kept. The place of the
    slot's next position holds, or is forgotten."""
    place = current_place(batch, slot) if keep and token >= 0 else 0
    if place != 0 and (load_i64(place, PLACE_LOW) == 0 or is_end(batch, slot, token)):
        place = 0
    if place != 0:
        low, high = stack_of_place(place)
        transition = find_transition(batch, low, high, token)
        if transition != 0 and take_transition(batch, slot, position, place, transition, target):
            store_i64(load_i64(batch, B_TRANSITION_OF), slot, transition)
            return ACCEPTED
    before, moves = load_i64(load_i64(batch, B_ARENA_USED), slot), load_i64(load_i64(batch, B_MOVES), slot)
    answer = accept_token(batch, grammar, slot, position, config, token, target, keep)
    if keep:
        forget_place(batch, slot, position + 1)
        if place != 0 and answer == ACCEPTED and load_i64(load_i64(batch, B_MOVES), slot) == moves:
            begin = work_done(batch)
            learn_transition(batch, grammar, slot, position, place, token, before, target)
            count(batch, COUNT_LEARNED, work_done(batch) - begin)
    return answer


@helper
def _go_on_with_token(batch, slot):  # type: ignore[no-untyped-def]
    """Go on with the token that the slot is in the middle of, within the phase's fuel. As `accept_token`."""
    grammar = load_i64(load_i64(batch, B_SLOT_GRAMMAR), slot)
    position = load_i64(load_i64(batch, B_POSITION), slot)
    token = load_i32(load_i64(batch, B_ADVANCE_TOKEN), slot)
    done = load_i64(load_i64(batch, B_ADVANCE_BYTES), slot)
    config, target = config_at(batch, slot, position), config_at(batch, slot, position + 1)
    forget_place(batch, slot, position + 1)
    if done == 0:
        answer = accept_token(batch, grammar, slot, position, config, token, target, True)
    else:
        data, begin, end = token_at(batch, slot, position, token)
        answer = accept_data(batch, grammar, slot, target, data, begin + done, end, target, True)
    return answer


@helper
def _note_answer(batch, slot, token, answer):  # type: ignore[no-untyped-def]
    """Move the slot on if it took its token, remember how far it got if it is unfinished."""
    if answer == UNFINISHED:
        _, begin, _ = token_at(batch, slot, load_i64(load_i64(batch, B_POSITION), slot), token)
        _set_token(batch, slot, token)
        store_i64(load_i64(batch, B_ADVANCE_BYTES), slot, load_i64(batch, B_BYTES_DONE) - begin)
    else:
        _set_token(batch, slot, NO_TOKEN)
        if answer == ACCEPTED:
            _move_on(batch, slot)


@helper
def is_at_end(batch, slot):  # type: ignore[no-untyped-def]
    """May the slot's text end here, and go on in no way? False where that is not seen at a glance."""
    config = current_config(batch, slot)
    # Most rows, and most of those at their end: without a look at their grammars.
    if load_i64(config, CONFIG_FLAGS) != COMPLETE:
        return False
    if load_i64(config, CONFIG_HEADS) == 0:  # heads that lead nowhere are dropped when it is closed
        return True
    automaton = load_i64(load_i64(load_i64(batch, B_SLOT_GRAMMAR), slot), G_AUTOMATON)
    if load_i64(automaton, H_FLAGS) & RECURSIVE == 0:
        return False
    heads = load_i64(load_i64(batch, B_ARENAS), slot) + 8 * load_i64(config, CONFIG_BLOCK)
    for i in range(load_i64(heads, BLOCK_COUNT)):
        triple = heads + 8 * (BLOCK_TRIPLES + 3 * i)
        if leads_on(automaton, load_i64(triple, 1), load_i64(triple, 2)):
            return False
    return True


@kernel("int64(int64, int64, int64, int64, int64, int64)")
def advance_rows(batch, slots, rows, tokens, accepted, mode):  # type: ignore[no-untyped-def]
    """Accept tokens[i] (int32) in slots[i] (int32; negative: an unconstrained row, always accepted).

    accepted[i] (uint8) is ACCEPTED, or REFUSED (also where the slot is free) or TOO_DEEP and nothing changed. Returns
    the number of those accepted. One kernel for several uses, because each would be compiled with a copy of the rest.
    `mode` ROWS: as above, within B_ADVANCE_FUEL, or WALK_FUEL if that is more; accepted[i] is UNFINISHED where that did
    not suffice, and such rows come first the next time; ENDED is said where B_TELLS_ENDS is set. DRAFT: all tokens one
    after the other in slots[0], up to the first that is not accepted. ASK: nothing changes. RESUME: the slots that are
    in the middle of a token go on with it, within the fuel that the caller has given; `tokens` and `accepted` are not
    used.
    """
    store = load_i64(batch, B_SLOT_GRAMMAR)
    positions = load_i64(batch, B_POSITION)
    middle = load_i64(batch, B_ADVANCE_TOKEN)
    from_row = 0
    if mode == ROWS:
        give_fuel(batch, max(load_i64(batch, B_ADVANCE_FUEL), WALK_FUEL))
        from_row = load_i64(batch, B_ADVANCE_FROM)
    elif mode == RESUME:
        from_row = load_i64(batch, B_PLANS)
    else:
        give_fuel(batch, NO_FUEL_LIMIT)
    begin = work_done(batch)
    behind = -1
    n = 0
    for i in range(-LEAD if mode == ROWS else 0, rows):
        if mode == ROWS:
            fetch_rows(batch, slots, tokens, from_row % rows, i, rows)
            if i < 0:
                continue
        row = (from_row + i) % rows if mode == ROWS or mode == RESUME else i
        slot = load_i32(slots, 0 if mode == DRAFT else row)
        answer = ACCEPTED
        if slot >= 0:
            answer = REFUSED
            grammar = load_i64(store, slot)
            going = grammar != 0 and load_i32(middle, slot) > NO_TOKEN
            token = load_i32(middle, slot) if mode == RESUME else load_i32(tokens, row)
            if mode == RESUME and not going:
                continue
            if mode == ROWS and grammar != 0 and not going and token >= 0 and not affords(batch, 1):
                answer = UNFINISHED
                _set_token(batch, slot, token)
            elif mode == RESUME:
                if not affords(batch, 1):
                    break
                answer = _go_on_with_token(batch, slot)
                _note_answer(batch, slot, token, answer)
                if answer == REFUSED or answer == TOO_DEEP:
                    _set_token(batch, slot, NO_TOKEN - 1)
            elif grammar != 0 and not going:
                position = load_i64(positions, slot)
                # The new configuration takes the place of the oldest one, which is given up only if the token is
                # legal: the last of the history's places is never part of it.
                target = config_at(batch, slot, position + 1)
                if mode == ASK:
                    target = load_i64(batch, B_SCRATCH) + 8 * WORK_CONFIG_WORDS
                config = config_at(batch, slot, position)
                answer = _accept(batch, grammar, slot, position, config, token, target, mode != ASK)
                if mode != ASK:
                    _note_answer(batch, slot, token, answer)
        if answer == UNFINISHED:
            count(batch, COUNT_UNFINISHED, 1)
            if behind < 0:
                behind = row
        if answer == ACCEPTED:
            n += 1
            if mode == ROWS and slot >= 0 and load_i64(batch, B_TELLS_ENDS) != 0 and is_at_end(batch, slot):
                answer = ENDED
        if mode != RESUME:
            store_u8(accepted, 0 if mode == DRAFT else row, answer)
        if mode == DRAFT and answer != ACCEPTED:
            break
    if mode == ROWS:
        count(batch, COUNT_ACCEPTED, n)
        count(batch, COUNT_REFUSED, rows - n)
        if behind >= 0:
            store_i64(batch, B_ADVANCE_FROM, behind)
    if mode == ROWS or mode == RESUME:
        count(batch, COUNT_ADVANCED, work_done(batch) - begin)
    return n


@kernel("boolean(int64, int64)")
def start(batch, slot):  # type: ignore[no-untyped-def]
    """Put `slot` before its first token. False: no room for its first state set."""
    return start_slot(batch, slot)


@kernel("void(int64, int64, int64)")
def drop_jobs(batch, grammar, slot):  # type: ignore[no-untyped-def]
    """`lanes.drop_job`."""
    drop_job(batch, grammar, slot)


@kernel("void(int64, int64)")
def drop_token(batch, slot):  # type: ignore[no-untyped-def]
    """The slot is in the middle of no token any more."""
    _set_token(batch, slot, NO_TOKEN)


@kernel("int64(int64, int64, int64, int64)")
def accept_bytes(batch, slot, data, length):  # type: ignore[no-untyped-def]
    """Accept raw bytes as if they were one token of text: ACCEPTED, or REFUSED or TOO_DEEP and nothing changed."""
    grammar = load_i64(load_i64(batch, B_SLOT_GRAMMAR), slot)
    position = load_i64(load_i64(batch, B_POSITION), slot)
    config = config_at(batch, slot, position)
    target = config_at(batch, slot, position + 1)
    if load_i64(config, CONFIG_FLAGS) & FINISHED:
        return REFUSED
    give_fuel(batch, NO_FUEL_LIMIT)
    forget_place(batch, slot, position + 1)
    answer = accept_data(batch, grammar, slot, config, data, 0, length, target, True)
    if answer == ACCEPTED:
        _move_on(batch, slot)
    return answer


@kernel("int64(int64, int64, int64)")
def flags_after(batch, slot, position):  # type: ignore[no-untyped-def]
    """Flags of the slot's configuration: COMPLETE, FINISHED, OVERFLOW."""
    return load_i64(config_at(batch, slot, position), CONFIG_FLAGS)


@kernel("void(int64, int64, int64)")
def fork_slot(batch, source, target):  # type: ignore[no-untyped-def]
    """Make slot `target` equal to slot `source`, history and end tokens included."""
    position = load_i64(load_i64(batch, B_POSITION), source)
    _forget_row(batch, target)
    forget_places(batch, target)
    _set_token(batch, target, NO_TOKEN)
    oldest = load_i64(load_i64(batch, B_OLDEST), source)
    for at in range(oldest, position + 1):
        copy_config(config_at(batch, source, at), config_at(batch, target, at))
    arenas, used = load_i64(batch, B_ARENAS), load_i64(batch, B_ARENA_USED)
    # A slot keeps the arena of an earlier sequence, which other slots need not have.
    automaton = load_i64(load_i64(load_i64(batch, B_SLOT_GRAMMAR), source), G_AUTOMATON)
    if load_i64(automaton, H_FLAGS) & RECURSIVE:
        note_moved(batch, target)
        own = load_i64(batch, B_SMALL_ARENAS) + 8 * LEAST_COMPACTED * target
        if load_i64(arenas, source) == load_i64(load_i64(batch, B_LARGE_ARENAS), source):
            own = load_i64(load_i64(batch, B_LARGE_ARENAS), target)
        store_i64(arenas, target, own)
        for word in range(load_i64(used, source)):
            store_i64(load_i64(arenas, target), word, load_i64(load_i64(arenas, source), word))
        store_i64(used, target, load_i64(used, source))
    for field in (B_POSITION, B_OLDEST, B_SLOT_GRAMMAR, B_MIN_TOKENS, B_ARENA_NEXT, B_END_BITS):
        address = load_i64(batch, field)
        store_i64(address, target, load_i64(address, source))
    ends = load_i64(batch, B_ENDS)
    for i in range(MAX_ENDS):
        store_i32(ends, MAX_ENDS * target + i, load_i32(ends, MAX_ENDS * source + i))
    counts = load_i64(batch, B_END_COUNT)
    store_i32(counts, target, load_i32(counts, source))
    starts = load_i64(batch, B_TEXT_START)
    store_u8(starts, target, load_u8(starts, source))


@kernel("int64(int64, int64, int64, int64)")
def forced(batch, slot, out, most):  # type: ignore[no-untyped-def]
    """Write to `out` (uint8[most]) the bytes that every continuation of the slot begins with; returns how many.

    Ends where the text may end, or where two bytes are possible. A special token that may come counts as a choice.
    """
    grammar = load_i64(load_i64(batch, B_SLOT_GRAMMAR), slot)
    automaton = load_i64(grammar, G_AUTOMATON)
    if load_i64(automaton, H_FLAGS) & RECURSIVE:
        return call_forced(batch, grammar, slot, current_config(batch, slot), out, most)
    lazy = load_i64(automaton, H_FLAGS) & LAZY != 0
    source = current_config(batch, slot)
    here = load_i64(batch, B_SCRATCH) + 8 * WORK_CONFIG_WORDS
    copy_config(source, here)
    work = load_i64(batch, B_SCRATCH)
    n = 0
    words = 0
    sets = load_i64(batch, B_SET_SCRATCH)
    side = 0
    current = sets
    final = False
    if lazy:
        words = load_i64(grammar, G_LAZY_WORDS)
        current = load_i64(grammar, G_LAZY_SETS) + 8 * words * load_i64(here, CONFIG_FIRST_HEAD + HEAD_STATES)
        final = load_i64(here, CONFIG_FLAGS) & COMPLETE != 0
    while n < most:
        if load_i64(here, CONFIG_FLAGS) & (COMPLETE | FINISHED) and not lazy:
            break
        if lazy and final:
            break
        for i in range(load_i64(here, CONFIG_HEADS)):
            if not lazy and flags_of(automaton, top_state(head_at(here, i))) & HAS_TOKENS:
                return n
        only = -1
        for byte in range(256):
            if lazy:
                alive = lazy_step(automaton, current, words, byte, sets + 8 * words * side) >= 0
            else:
                reach_byte(automaton, here, byte, work)
                alive = load_i64(work, CONFIG_HEADS) > 0
            if alive:
                if only >= 0:
                    only = -2
                    break
                only = byte
        if only < 0:
            break
        store_u8(out, n, only)
        n += 1
        if lazy:
            reached = sets + 8 * words * side
            lazy_step(automaton, current, words, only, reached)
            current = reached
            side ^= 1
            final = lazy_is_final(automaton, current, words)
        else:
            step_config(automaton, here, only, work, here)
    return n


@kernel("int64(int64, int64)")
def import_set(grammar, address):  # type: ignore[no-untyped-def]
    """Number of the state set at `address` in this grammar's table; -1: no room."""
    return lazy_intern(grammar, address)
