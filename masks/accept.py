"""The configuration after a token or after bytes, for every kind of grammar; `advance` keeps it, `settle` only asks."""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import (
    CALLS,
    FINAL,
    H_FLAGS,
    H_N_CLASSES,
    HAS_CALLS,
    HAS_TOKENS,
    LAZY,
    RECURSIVE,
    TOKENS,
)
from .arena import ACCEPTED, REFUSED, TOO_DEEP, UNFINISHED
from .fuel import affords, count
from .graph_call import call_accept, call_symbol
from .layout import (
    B_BYTES_DONE,
    B_MIN_TOKENS,
    B_SCRATCH,
    B_SET_SCRATCH,
    B_TEXT_START,
    B_VOCABULARY,
    B_VOCABULARY_START,
    COMPLETE,
    CONFIG_FIRST_HEAD,
    CONFIG_FLAGS,
    CONFIG_HEADS,
    COUNT_WORK,
    FINISHED,
    G_AUTOMATON,
    G_BOUNDARY,
    G_LAZY_SETS,
    G_LAZY_WORDS,
    G_TOKEN_IDS,
    HEAD_DEPTH,
    HEAD_REGISTERS,
    HEAD_STATES,
    HEAD_WORDS,
)
from .lazy import lazy_intern, lazy_is_final, lazy_leads_on, lazy_make_room, lazy_step
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
    restart_of,
    step_config,
    step_token_symbol,
)
from .memory import load_i32, load_i64, load_u8, section, store_i64
from .path import CONFIG_COST, LAZY_READS, closing_cost
from .step import is_end
from .trie import V_SIZE, V_TOKEN_BYTES, V_TOKEN_START, V_TOKEN_TEXT


@helper
def copy_config(source, target):  # type: ignore[no-untyped-def]
    """Write to `target` what `source` has."""
    for word in range(CONFIG_FIRST_HEAD + load_i64(source, CONFIG_HEADS) * HEAD_WORDS):
        store_i64(target, word, load_i64(source, word))


@helper
def rest_on_set(batch, grammar, automaton, address, config):  # type: ignore[no-untyped-def]
    """Write the configuration that rests on the state set at `address`. False: there is no room."""
    words = load_i64(grammar, G_LAZY_WORDS)
    number = lazy_intern(grammar, address)
    if number < 0:
        lazy_make_room(batch, grammar)
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
def rest_at_boundary(grammar, config):  # type: ignore[no-untyped-def]
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
                return UNFINISHED if rest_on_set(batch, grammar, automaton, source, target) else TOO_DEEP
            reached = room + 8 * words * side
            work = lazy_step(automaton, source, words, load_u8(data, i), reached)
            count(batch, COUNT_WORK, 1 + abs(work) // LAZY_READS)
            if work < 0:
                return REFUSED
            source = reached
            side ^= 1
        if not keep:
            return ACCEPTED
        return ACCEPTED if rest_on_set(batch, grammar, automaton, source, target) else TOO_DEEP
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
    return ACCEPTED if rest_at_boundary(grammar, target) else REFUSED


@helper
def token_at(batch, slot, position, token):  # type: ignore[no-untyped-def]
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
    data, begin, end = token_at(batch, slot, position, token)
    return accept_data(batch, grammar, slot, config, data, begin, end, target, keep)
