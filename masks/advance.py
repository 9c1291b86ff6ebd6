"""Accepting: tokens for whole batches, bytes and drafts for one sequence, and going back."""

from __future__ import annotations

from .._numba import helper, kernel
from ..grammar.automaton import (
    CALLS,
    FINAL,
    H_FLAGS,
    H_N_CLASSES,
    H_ROOT_FRAME,
    HAS_CALLS,
    HAS_TOKENS,
    LAZY,
    RECURSIVE,
    TOKENS,
)
from .arena import ACCEPTED, REFUSED, TOO_DEEP, UNFINISHED, note_moved
from .fuel import NO_FUEL_LIMIT, affords, count, give_fuel, work_done
from .graph_call import call_accept, call_forced, call_start, call_symbol
from .lanes import drop_job
from .layout import (
    B_ADVANCE_BYTES,
    B_ADVANCE_FROM,
    B_ADVANCE_FUEL,
    B_ADVANCE_TOKEN,
    B_ARENA_USED,
    B_ARENAS,
    B_BEHIND,
    B_BYTES_DONE,
    B_EFFORT,
    B_END_COUNT,
    B_ENDS,
    B_HISTORY,
    B_MIN_TOKENS,
    B_OLDEST,
    B_PLANS,
    B_POSITION,
    B_ROW_MASK,
    B_SCRATCH,
    B_SET_SCRATCH,
    B_SLOT_GRAMMAR,
    B_TEXT_START,
    B_VOCABULARY,
    B_VOCABULARY_START,
    B_WAITING,
    COMPLETE,
    CONFIG_FIRST_HEAD,
    CONFIG_FLAGS,
    CONFIG_HEADS,
    COUNT_ACCEPTED,
    COUNT_ADVANCED,
    COUNT_REFUSED,
    COUNT_UNFINISHED,
    COUNT_WORK,
    FINISHED,
    G_AUTOMATON,
    G_BOUNDARY,
    G_LAZY_RENAMED,
    G_LAZY_SETS,
    G_LAZY_WORDS,
    G_TOKEN_IDS,
    HEAD_DEPTH,
    HEAD_REGISTERS,
    HEAD_STATES,
    HEAD_WORDS,
    MAX_ENDS,
    WORK_CONFIG_WORDS,
)
from .lazy import lazy_compact, lazy_intern, lazy_is_final, lazy_leads_on, lazy_step
from .machine import (
    AT_BYTE_CLASS,
    AT_DENSE,
    AT_EDGES,
    AT_SINGLE_BYTE,
    AT_SINGLE_TARGET,
    add_head,
    close,
    delta,
    flags_of,
    head_at,
    may_return,
    next_register,
    reach_byte,
    restart_of,
    start_config,
    step_config,
    step_token_symbol,
    top_state,
)
from .memory import load_i32, load_i64, load_u8, section, store_i32, store_i64, store_u8
from .path import CONFIG_COST, LAZY_READS, closing_cost
from .step import ASK, DRAFT, NO_TOKEN, RESUME, ROWS, WALK_FUEL, config_at, current_config, is_end
from .trie import V_SIZE, V_TOKEN_BYTES, V_TOKEN_START, V_TOKEN_TEXT


@helper
def _forget_row(batch, slot):  # type: ignore[no-untyped-def]
    """The slot is in another place: nothing is known of its mask."""
    store_i64(load_i64(batch, B_WAITING), slot, 0)
    store_i64(load_i64(batch, B_EFFORT), slot, 0)
    store_i64(load_i64(batch, B_ROW_MASK), slot, -1)


@helper
def _set_token(batch, slot, token):  # type: ignore[no-untyped-def]
    """The slot is in the middle of `token`, or of none (NO_TOKEN), or could not take one (below)."""
    tokens = load_i64(batch, B_ADVANCE_TOKEN)
    if (load_i32(tokens, slot) > NO_TOKEN) != (token > NO_TOKEN):
        store_i64(batch, B_BEHIND, load_i64(batch, B_BEHIND) + (1 if token > NO_TOKEN else -1))
    store_i32(tokens, slot, token)
    store_i64(load_i64(batch, B_ADVANCE_BYTES), slot, 0)


@helper
def start_slot(batch, slot):  # type: ignore[no-untyped-def]
    """Put `slot` before its first token."""
    grammar = load_i64(load_i64(batch, B_SLOT_GRAMMAR), slot)
    automaton = load_i64(grammar, G_AUTOMATON)
    config = config_at(batch, slot, 0)
    store_i64(load_i64(batch, B_POSITION), slot, 0)
    store_i64(load_i64(batch, B_OLDEST), slot, 0)
    _forget_row(batch, slot)
    _set_token(batch, slot, NO_TOKEN)
    if load_i64(automaton, H_FLAGS) & RECURSIVE:
        return call_start(batch, grammar, slot, config)
    if load_i64(automaton, H_FLAGS) & LAZY:
        words = load_i64(grammar, G_LAZY_WORDS)
        work = load_i64(batch, B_SET_SCRATCH)
        for word in range(words):
            store_i64(work, word, 0)
        store_i64(work, 0, 1)
        return _rest_on_set(batch, grammar, automaton, work, config)
    start_config(automaton, load_i64(automaton, H_ROOT_FRAME), load_i64(batch, B_SCRATCH), config)
    return load_i64(config, CONFIG_HEADS) == 0 or _rest_at_boundary(grammar, config)


@helper
def _rest_on_set(batch, grammar, automaton, address, config):  # type: ignore[no-untyped-def]
    """Write the configuration that rests on the state set at `address`. False: no room even after compaction."""
    words = load_i64(grammar, G_LAZY_WORDS)
    number = lazy_intern(grammar, address)
    if number < 0:
        lazy_compact(batch, grammar, load_i64(grammar, G_LAZY_RENAMED))
        number = lazy_intern(grammar, address)
        if number < 0:
            return False
    store_i64(config, CONFIG_HEADS, 1 if lazy_leads_on(automaton, address, words) else 0)
    store_i64(config, CONFIG_FLAGS, COMPLETE if lazy_is_final(automaton, address, words) else 0)
    head = head_at(config, 0)
    store_i64(head, HEAD_DEPTH, 1)
    store_i64(head, HEAD_STATES, number)
    store_i64(head, HEAD_REGISTERS, 0)
    return True


@helper
def _copy_config(source, target):  # type: ignore[no-untyped-def]
    for word in range(CONFIG_FIRST_HEAD + load_i64(source, CONFIG_HEADS) * HEAD_WORDS):
        store_i64(target, word, load_i64(source, word))


@helper
def _accept_plain(automaton, config, data, begin, end, target):  # type: ignore[no-untyped-def]
    """Bytes in a grammar without calls, one state being the whole configuration: the number of the first refused."""
    if load_i64(config, CONFIG_HEADS) == 0:
        return begin
    state = load_i64(config, CONFIG_FIRST_HEAD + HEAD_STATES)
    edges = section(automaton, AT_EDGES)
    dense = section(automaton, AT_DENSE)
    classes = section(automaton, AT_BYTE_CLASS)
    single_byte = section(automaton, AT_SINGLE_BYTE)
    single_target = section(automaton, AT_SINGLE_TARGET)
    n_classes = load_i64(automaton, H_N_CLASSES)
    for i in range(begin, end):
        byte = load_u8(data, i)
        edge = load_i32(edges, state)
        if edge >= 0:
            state = load_i32(dense, edge * n_classes + load_u8(classes, byte))
            if state < 0:
                return i
        elif edge == -1 or load_u8(single_byte, -2 - edge) != byte:
            return i
        else:
            state = load_i32(single_target, -2 - edge)
    flags = flags_of(automaton, state)
    store_i64(target, CONFIG_HEADS, 1 if load_i32(edges, state) != -1 or flags & HAS_TOKENS else 0)
    store_i64(target, CONFIG_FLAGS, COMPLETE if flags & FINAL else 0)
    store_i64(target, CONFIG_FIRST_HEAD + HEAD_DEPTH, 1)
    store_i64(target, CONFIG_FIRST_HEAD + HEAD_STATES, state)
    store_i64(target, CONFIG_FIRST_HEAD + HEAD_REGISTERS, 0)
    return end


@helper
def _ends_after_return(automaton, head, depth):  # type: ignore[no-untyped-def]
    """Does nothing follow once the top frame has returned: is each level below in a state without edges?"""
    edges = section(automaton, AT_EDGES)
    for level in range(depth - 1):
        state = load_i64(head, HEAD_STATES + level)
        if load_i32(edges, state) != -1 or flags_of(automaton, state) & (HAS_CALLS | HAS_TOKENS):
            return False
        if level > 0 and flags_of(automaton, state) & FINAL:
            return False  # a counter that may begin another item
    return True


@helper
def _accept_in_frame(automaton, config, data, begin, end, work, target):  # type: ignore[no-untyped-def]
    """Bytes that keep one head in its top frame: the number of the first byte that does not, `target` being before it.

    The usual case of counters. Only the last configuration is closed.
    """
    head = head_at(config, 0)
    depth = load_i64(head, HEAD_DEPTH)
    state = load_i64(head, HEAD_STATES + depth - 1)
    register = load_i64(head, HEAD_REGISTERS + depth - 1)
    last = _ends_after_return(automaton, head, depth)
    at = begin
    while at < end:
        if at > begin and not last and may_return(automaton, state, register):
            break
        byte = load_u8(data, at)
        reached = delta(automaton, state, byte)
        start = restart_of(automaton, state, register)
        count_up = False
        if start >= 0:
            again = delta(automaton, start, byte)
            if again >= 0:
                if reached >= 0:
                    break
                reached = again
                count_up = True
        if reached < 0 or flags_of(automaton, reached) & HAS_CALLS:
            break
        if count_up:
            register = next_register(automaton, state, register)
        state = reached
        at += 1
    if at == begin:
        return at
    store_i64(work, CONFIG_HEADS, 0)
    store_i64(work, CONFIG_FLAGS, 0)
    add_head(work, head, depth, state, register)
    close(automaton, work, target)
    return at


@helper
def _rest_at_boundary(grammar, config):  # type: ignore[no-untyped-def]
    """May a token end here? Where no token goes on from here, the configuration loses its head."""
    boundary = load_i64(grammar, G_BOUNDARY)
    if boundary == 0:
        return True
    kind = load_u8(boundary, load_i64(config, CONFIG_FIRST_HEAD + HEAD_STATES))
    if kind == 2:
        store_i64(config, CONFIG_HEADS, 0)
    return kind != 0


@helper
def accept_data(batch, grammar, slot, config, data, begin, end, target, keep):  # type: ignore[no-untyped-def]
    """Write to `target` the configuration after bytes data[begin:end]: REFUSED (`target` garbage), ACCEPTED, TOO_DEEP.

    UNFINISHED where the fuel of the phase (`masks.fuel`) ends first: `target` is the configuration before the byte
    of number B_BYTES_DONE, which is not the first. Without `keep` only the answer is wanted, nothing of the sequence
    or its grammar changes, and what is unfinished is lost. Work is counted as in `masks.walk`.
    """
    automaton = load_i64(grammar, G_AUTOMATON)
    flags = load_i64(automaton, H_FLAGS)
    if flags & RECURSIVE:
        return call_accept(batch, grammar, slot, config, data, begin, end, target, keep)
    if flags & LAZY:
        if load_i64(config, CONFIG_HEADS) == 0:
            return REFUSED
        words = load_i64(grammar, G_LAZY_WORDS)
        source = load_i64(grammar, G_LAZY_SETS) + 8 * words * load_i64(config, CONFIG_FIRST_HEAD + HEAD_STATES)
        room = load_i64(batch, B_SET_SCRATCH)
        side = 0
        for i in range(begin, end):
            if i > begin and not affords(batch, 1):
                store_i64(batch, B_BYTES_DONE, i)
                if not keep:
                    return UNFINISHED
                return UNFINISHED if _rest_on_set(batch, grammar, automaton, source, target) else TOO_DEEP
            reached = room + 8 * words * side
            work = lazy_step(automaton, source, words, load_u8(data, i), reached)
            count(batch, COUNT_WORK, 1 + abs(work) // LAZY_READS)
            if work < 0:
                return REFUSED
            source = reached
            side ^= 1
        if not keep:
            return ACCEPTED
        return ACCEPTED if _rest_on_set(batch, grammar, automaton, source, target) else TOO_DEEP
    if flags & CALLS == 0:
        done = _accept_plain(automaton, config, data, begin, end, target)
        count(batch, COUNT_WORK, done - begin + 1)
        if done < end or load_i64(config, CONFIG_HEADS) == 0:
            return REFUSED
    else:
        source = config
        if load_i64(config, CONFIG_HEADS) == 1:
            done = _accept_in_frame(automaton, config, data, begin, end, load_i64(batch, B_SCRATCH), target)
            count(batch, COUNT_WORK, done - begin + CONFIG_COST)
            if done > begin:
                source = target
                begin = done
        first = begin
        work = load_i64(batch, B_SCRATCH)
        for i in range(begin, end):
            if i > first and not affords(batch, 1):
                store_i64(batch, B_BYTES_DONE, i)
                return UNFINISHED
            alive = step_config(automaton, source, load_u8(data, i), work, target)
            count(batch, COUNT_WORK, closing_cost(work))
            if not alive:
                return REFUSED
            source = target
    return ACCEPTED if _rest_at_boundary(grammar, target) else REFUSED


@helper
def _token_at(batch, slot, position, token):  # type: ignore[no-untyped-def]
    """Where the bytes of a token of text are, and the numbers of the first and of the one after the last."""
    vocabulary = load_i64(batch, B_VOCABULARY)
    if load_u8(load_i64(batch, B_TEXT_START), slot) and position == 0:
        vocabulary = load_i64(batch, B_VOCABULARY_START)
    starts = load_i64(vocabulary, V_TOKEN_START)
    return load_i64(vocabulary, V_TOKEN_BYTES), load_i64(starts, token), load_i64(starts, token + 1)


@helper
def accept_token(batch, grammar, slot, position, config, token, target, keep):  # type: ignore[no-untyped-def]
    """Write to `target` the configuration after `token`: REFUSED, ACCEPTED or TOO_DEEP, as `accept_data`."""
    vocabulary = load_i64(batch, B_VOCABULARY)
    if load_i64(config, CONFIG_FLAGS) & FINISHED or token < 0 or token >= load_i64(vocabulary, V_SIZE):
        return REFUSED
    automaton = load_i64(grammar, G_AUTOMATON)
    named = REFUSED
    if load_i64(automaton, H_FLAGS) & TOKENS:
        if load_i64(automaton, H_FLAGS) & RECURSIVE:
            named = call_symbol(batch, grammar, slot, config, token, target, keep)
        elif step_token_symbol(
            automaton, load_i64(grammar, G_TOKEN_IDS), config, token, load_i64(batch, B_SCRATCH), target
        ):
            named = ACCEPTED
    if is_end(batch, slot, token):
        if named == ACCEPTED:
            store_i64(target, CONFIG_FLAGS, load_i64(target, CONFIG_FLAGS) | FINISHED)
        if named != REFUSED:
            return named
        if load_i64(config, CONFIG_FLAGS) & COMPLETE == 0:
            return REFUSED
        if position < load_i64(load_i64(batch, B_MIN_TOKENS), slot) and load_i64(config, CONFIG_HEADS) > 0:
            return REFUSED
        store_i64(target, CONFIG_HEADS, 0)
        store_i64(target, CONFIG_FLAGS, COMPLETE | FINISHED)
        return ACCEPTED
    if named != REFUSED:
        return named
    if load_u8(load_i64(batch, B_TEXT_START), slot) and position == 0:
        vocabulary = load_i64(batch, B_VOCABULARY_START)
    if load_u8(load_i64(vocabulary, V_TOKEN_TEXT), token) == 0:
        return REFUSED
    data, begin, end = _token_at(batch, slot, position, token)
    return accept_data(batch, grammar, slot, config, data, begin, end, target, keep)


@helper
def _move_on(batch, slot):  # type: ignore[no-untyped-def]
    """One more position of the slot's history; the oldest may be given up for it."""
    positions = load_i64(batch, B_POSITION)
    history = load_i64(batch, B_HISTORY)
    position = load_i64(positions, slot)
    oldest = load_i64(batch, B_OLDEST)
    store_i64(positions, slot, position + 1)
    _forget_row(batch, slot)
    if position + 1 - load_i64(oldest, slot) > history - 2:
        store_i64(oldest, slot, position + 3 - history)


@helper
def _go_on_with_token(batch, slot):  # type: ignore[no-untyped-def]
    """Go on with the token that the slot is in the middle of, within the phase's fuel. As `accept_token`."""
    grammar = load_i64(load_i64(batch, B_SLOT_GRAMMAR), slot)
    position = load_i64(load_i64(batch, B_POSITION), slot)
    token = load_i32(load_i64(batch, B_ADVANCE_TOKEN), slot)
    done = load_i64(load_i64(batch, B_ADVANCE_BYTES), slot)
    config, target = config_at(batch, slot, position), config_at(batch, slot, position + 1)
    if done == 0:
        answer = accept_token(batch, grammar, slot, position, config, token, target, True)
    else:
        data, begin, end = _token_at(batch, slot, position, token)
        answer = accept_data(batch, grammar, slot, target, data, begin + done, end, target, True)
    return answer


@helper
def _note_answer(batch, slot, token, answer):  # type: ignore[no-untyped-def]
    """Move the slot on if it took its token, remember how far it got if it is unfinished."""
    if answer == UNFINISHED:
        _, begin, _ = _token_at(batch, slot, load_i64(load_i64(batch, B_POSITION), slot), token)
        _set_token(batch, slot, token)
        store_i64(load_i64(batch, B_ADVANCE_BYTES), slot, load_i64(batch, B_BYTES_DONE) - begin)
    else:
        _set_token(batch, slot, NO_TOKEN)
        if answer == ACCEPTED:
            _move_on(batch, slot)


@kernel("int64(int64, int64, int64, int64, int64, int64)")
def advance_rows(batch, slots, rows, tokens, accepted, mode):  # type: ignore[no-untyped-def]
    """Accept tokens[i] (int32) in slots[i] (int32; negative: an unconstrained row, always accepted).

    accepted[i] (uint8) is ACCEPTED, or REFUSED (also where the slot is free) or TOO_DEEP and nothing changed. Returns
    the number of those accepted. One kernel for several uses, because each would be compiled with a copy of the rest.
    `mode` ROWS: as above, within B_ADVANCE_FUEL, or WALK_FUEL if that is more; accepted[i] is UNFINISHED where that did
    not suffice, and such rows come first the next time. DRAFT: all tokens one after the other in slots[0], up to the
    first that is not accepted. ASK: nothing changes. RESUME: the slots that are in the middle of a token go on with it,
    within the fuel that the caller has given; `tokens` and `accepted` are not used.
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
    for i in range(rows):
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
                answer = accept_token(batch, grammar, slot, position, config, token, target, mode != ASK)
                if mode != ASK:
                    _note_answer(batch, slot, token, answer)
        if answer == UNFINISHED:
            count(batch, COUNT_UNFINISHED, 1)
            if behind < 0:
                behind = row
        if mode != RESUME:
            store_u8(accepted, 0 if mode == DRAFT else row, answer)
        if answer == ACCEPTED:
            n += 1
        elif mode == DRAFT:
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
    _set_token(batch, target, NO_TOKEN)
    oldest = load_i64(load_i64(batch, B_OLDEST), source)
    for at in range(oldest, position + 1):
        _copy_config(config_at(batch, source, at), config_at(batch, target, at))
    arenas, used = load_i64(batch, B_ARENAS), load_i64(batch, B_ARENA_USED)
    # A slot keeps the arena of an earlier sequence, which other slots need not have.
    automaton = load_i64(load_i64(load_i64(batch, B_SLOT_GRAMMAR), source), G_AUTOMATON)
    if load_i64(automaton, H_FLAGS) & RECURSIVE:
        note_moved(batch, target)
        for word in range(load_i64(used, source)):
            store_i64(load_i64(arenas, target), word, load_i64(load_i64(arenas, source), word))
        store_i64(used, target, load_i64(used, source))
    for field in (B_POSITION, B_OLDEST, B_SLOT_GRAMMAR, B_MIN_TOKENS):
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
    _copy_config(source, here)
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
