"""What leaves a frame during the walk of a context: at which trie nodes it may return, or follow which call.

One list for the returns and one for each call edge (with each register) that is met; first a log of all, in the order
of the walk, from which `masks.context_store` makes the lists.
"""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import COUNTER, FINAL, H_N_STATES, HAS_CALLS, MEMBERS
from .layout import (
    B_JOB,
    B_JOB_CHILDREN,
    B_JOB_EVENTS,
    B_JOB_KEYS,
    B_JOB_REGISTER,
    B_JOB_STATE,
    G_CALL_STAMPS,
    G_KINDS,
    J_ADDED,
    J_EVENT_COUNT,
    J_FAILED,
    J_FOLLOW,
    J_KEY_COUNT,
    J_LEAVING,
    J_REGISTER,
    J_ROOM,
    J_STAMP,
    KEY_CALL,
    KEY_COUNT,
    KEY_REGISTER,
    KEY_WORDS,
    KIND_BYTES,
    KIND_COUNT,
    KIND_FIRST,
    LEAVING_BYTES,
    LEAVING_STATE,
    LEAVING_STATES,
    LEAVING_STAYS,
    LEAVING_WORDS,
    MAX_EVENTS,
    MAX_KEYS,
)
from .loop_sets import EDGES_A_UNIT
from .machine import (
    AT_CALL_FRAME,
    AT_CALL_START,
    AT_CALL_TARGET,
    AT_FRAME_FIRST,
    AT_FRAME_KIND,
    AT_FRAME_START,
    delta,
    flags_of,
    frame_of,
    may_return,
    next_register,
    restart_of,
)
from .members import AT_OPERATION_START, asks, goes_on_with_any, may_go_on
from .memory import load_i32, load_i64, load_u8, section, store_i64
from .trie import GROUPS_HIGH, GROUPS_LOW, GROUPS_SHIFT, V_NODE, V_NODE_PARENT, V_RANK_NODE

#: In the place of a call edge: the frame returns.
RETURNS = -1
#: Fuel of looking what leaves at one node of the trie, and children of it that are read in the time of one byte edge.
NOTE_COST = 8
CHILDREN_A_UNIT = 4


@helper
def note_asked(batch):  # type: ignore[no-untyped-def]
    """Note that the walk depends on the register, whatever it is."""
    store_i64(load_i64(batch, B_JOB), J_ADDED, 0x7FFFFFFFFFFFFFFF)


@helper
def note_asked_any(batch):  # type: ignore[no-untyped-def]
    """Note that the walk depends on whether a member without a bit is allowed, which it is."""
    store_i64(load_i64(batch, B_JOB), J_ROOM, 0x7FFFFFFFFFFFFFFF)


@helper
def ask(batch, automaton, state, register):  # type: ignore[no-untyped-def]
    """`may_go_on`, and a note of what that depends on."""
    if goes_on_with_any(automaton, state, register):
        note_asked_any(batch)
        return True
    note_asked(batch)
    return may_go_on(automaton, state, register)


@helper
def note_added(batch, register):  # type: ignore[no-untyped-def]
    """Note that the walk has come to this register of its counter."""
    job = load_i64(batch, B_JOB)
    added = register - load_i64(job, J_REGISTER)
    if added > load_i64(job, J_ADDED):
        store_i64(job, J_ADDED, added)


@helper
def _note(batch, grammar, call, register, node):  # type: ignore[no-untyped-def]
    """At trie node `node` call edge `call` may be followed with this register, or (RETURNS) the frame may return."""
    job = load_i64(batch, B_JOB)
    keys = load_i64(batch, B_JOB_KEYS)
    n = load_i64(job, J_KEY_COUNT)
    stamps = load_i64(grammar, G_CALL_STAMPS)
    stamp = load_i64(job, J_STAMP)
    # The first place of the table is that of RETURNS.
    known = load_i64(stamps, call + 1)
    number = known & 0xFFFF
    if known >> 16 != stamp or load_i64(keys + 8 * KEY_WORDS * number, KEY_REGISTER) != register:
        number = 0
        while number < n and (
            load_i64(keys + 8 * KEY_WORDS * number, KEY_CALL) != call
            or load_i64(keys + 8 * KEY_WORDS * number, KEY_REGISTER) != register
        ):
            number += 1
        if number == MAX_KEYS:
            store_i64(job, J_FAILED, 1)
            return
        if number == n:
            store_i64(keys + 8 * KEY_WORDS * n, KEY_CALL, call)
            store_i64(keys + 8 * KEY_WORDS * n, KEY_REGISTER, register)
            store_i64(keys + 8 * KEY_WORDS * n, KEY_COUNT, 0)
            store_i64(job, J_KEY_COUNT, n + 1)
        store_i64(stamps, call + 1, (stamp << 16) | number)
    event = (number << 32) | node
    events = load_i64(batch, B_JOB_EVENTS)
    at = load_i64(job, J_EVENT_COUNT)
    for back in range(min(at, 8)):
        if load_i64(events, at - 1 - back) == event:
            return
    if at == MAX_EVENTS:
        store_i64(job, J_FAILED, 1)
        return
    store_i64(events, at, event)
    store_i64(job, J_EVENT_COUNT, at + 1)
    key = keys + 8 * KEY_WORDS * number
    store_i64(key, KEY_COUNT, load_i64(key, KEY_COUNT) + 1)


@helper
def _note_edges(batch, grammar, automaton, state, register, node, a, b, c, d):  # type: ignore[no-untyped-def]
    """Note the call edges of `state` at `node` that may begin with one of the bytes in the words a to d."""
    starts = section(automaton, AT_CALL_START)
    first = section(automaton, AT_FRAME_FIRST)
    for call in range(load_i32(starts, state), load_i32(starts, state + 1)):
        frame = load_i32(section(automaton, AT_CALL_FRAME), call)
        common = load_i64(first, 4 * frame) & a | load_i64(first, 4 * frame + 1) & b
        common |= load_i64(first, 4 * frame + 2) & c | load_i64(first, 4 * frame + 3) & d
        if common != 0:
            target = load_i32(section(automaton, AT_CALL_TARGET), call)
            if asks(automaton, target) and not ask(batch, automaton, target, register):
                continue
            _note(batch, grammar, call, register, node)


@helper
def note_operations(batch, grammar, automaton, state, register, node):  # type: ignore[no-untyped-def]
    """Note at `node` that members begin in `state`: which of them may is asked of the real register."""
    starts = section(automaton, AT_OPERATION_START)
    calls = load_i32(section(automaton, AT_CALL_START), load_i64(automaton, H_N_STATES))
    for at in range(load_i32(starts, state), load_i32(starts, state + 1)):
        _note(batch, grammar, calls + at, register, node)


@helper
def note_calls(batch, grammar, automaton, state, register, node, a, b, c, d):  # type: ignore[no-untyped-def]
    """Note the calls at `node` of `state` and of its counter's next item that may begin with one of the bytes."""
    if flags_of(automaton, state) & HAS_CALLS:
        _note_edges(batch, grammar, automaton, state, register, node, a, b, c, d)
    start = restart_of(automaton, state, register)
    if start >= 0 and flags_of(automaton, start) & HAS_CALLS:
        again = next_register(automaton, state, register)
        _note_edges(batch, grammar, automaton, start, again, node, a, b, c, d)


@helper
def note_leaving(batch, grammar, automaton, state, register, node, a, b, c, d):  # type: ignore[no-untyped-def]
    """The path is in `state` at trie node `node`, and goes on with the bytes in the words a to d: note what leaves."""
    if flags_of(automaton, state) & FINAL:
        follow = load_i64(load_i64(batch, B_JOB), J_FOLLOW)
        common = load_i64(follow, 0) & a | load_i64(follow, 1) & b | load_i64(follow, 2) & c | load_i64(follow, 3) & d
        if common != 0:
            if load_u8(section(automaton, AT_FRAME_KIND), frame_of(automaton, state)) == MEMBERS:
                note_asked(batch)
            if may_return(automaton, state, register):
                _note(batch, grammar, RETURNS, 0, node)
    note_calls(batch, grammar, automaton, state, register, node, a, b, c, d)


@helper
def forget_leaving(job):  # type: ignore[no-untyped-def]
    """Nothing is known of what leaves the states: the job begins."""
    for place in range(LEAVING_STATES):
        store_i64(load_i64(job, J_LEAVING), LEAVING_WORDS * place + LEAVING_STATE, -1)


@helper
def bytes_leaving(batch, automaton, state):  # type: ignore[no-untyped-def]
    """(address of 4 words: all bytes with which `note_leaving` may note anything in `state`, fuel of finding them)."""
    job = load_i64(batch, B_JOB)
    entry = load_i64(job, J_LEAVING) + 8 * LEAVING_WORDS * (state & (LEAVING_STATES - 1))
    words = entry + 8 * LEAVING_BYTES
    if load_i64(entry, LEAVING_STATE) == state:
        return words, 0
    store_i64(entry, LEAVING_STATE, state)
    store_i64(entry, LEAVING_STAYS, -1)
    final = flags_of(automaton, state) & FINAL != 0
    for word in range(4):
        store_i64(words, word, load_i64(load_i64(job, J_FOLLOW), word) if final else 0)
    starts, first = section(automaton, AT_CALL_START), section(automaton, AT_FRAME_FIRST)
    work = NOTE_COST
    # Another item may begin in a state that ends one, whatever the register says.
    frame = frame_of(automaton, state)
    counter = final and load_u8(section(automaton, AT_FRAME_KIND), frame) == COUNTER
    for turn in range(2 if counter else 1):
        caller = load_i32(section(automaton, AT_FRAME_START), frame) if turn == 1 else state
        if flags_of(automaton, caller) & HAS_CALLS != 0:
            for call in range(load_i32(starts, caller), load_i32(starts, caller + 1)):
                callee = load_i32(section(automaton, AT_CALL_FRAME), call)
                work += 1
                for word in range(4):
                    store_i64(words, word, load_i64(words, word) | load_i64(first, 4 * callee + word))
    return words, work


@helper
def groups_staying(batch, grammar, automaton, state):  # type: ignore[no-untyped-def]
    """(groups of bytes, as in a trie node, on all of which `state` stays itself and nothing leaves; the work of that).

    Of a state that is more than its byte edges (`special` of a walk) nobody asks.
    """
    words, work = bytes_leaving(batch, automaton, state)
    stays = words + 8 * (LEAVING_STAYS - LEAVING_BYTES)
    groups = load_i64(stays, 0)
    if groups < 0:
        kinds = load_i64(grammar, G_KINDS)
        n = load_i64(kinds, KIND_COUNT)
        low = high = 0
        for kind in range(n):
            if delta(automaton, state, load_i64(kinds, KIND_FIRST + kind)) == state:
                low |= load_i64(kinds, KIND_BYTES + 4 * kind)
                high |= load_i64(kinds, KIND_BYTES + 4 * kind + 1)
        low &= ~load_i64(words, 0)
        high &= ~load_i64(words, 1)
        groups = 0
        for group in range(len(GROUPS_LOW)):
            if (GROUPS_LOW[group] & ~low) | (GROUPS_HIGH[group] & ~high) == 0:
                groups |= 1 << (GROUPS_SHIFT + group)
        store_i64(stays, 0, groups)
        work += n // EDGES_A_UNIT
    return groups, work


@helper
def note_children(batch, grammar, automaton, vocabulary, state, register, node, packed):  # type: ignore[no-untyped-def]
    """Note what leaves `state` at the trie node of word `packed` by a byte that it goes on with. Returns the work."""
    words, work = bytes_leaving(batch, automaton, state)
    if load_i64(words, 0) | load_i64(words, 1) | load_i64(words, 2) | load_i64(words, 3) != 0:
        a, b, c, d = children_bytes(vocabulary, packed)
        work += 1 + ((packed >> 16) & 0xFFFF) // CHILDREN_A_UNIT
        common = load_i64(words, 0) & a | load_i64(words, 1) & b | load_i64(words, 2) & c | load_i64(words, 3) & d
        if common != 0:
            note_leaving(batch, grammar, automaton, state, register, node, a, b, c, d)
            work += NOTE_COST
    return work


@helper
def children_bytes(vocabulary, packed):  # type: ignore[no-untyped-def]
    """The bytes, 4 words, of the children of the trie node whose word is `packed`."""
    table = load_i64(vocabulary, V_NODE)
    first = packed >> 32
    a, b, c, d = 0, 0, 0, 0
    for child in range(first, first + ((packed >> 16) & 0xFFFF)):
        byte = load_i64(table, child) & 0xFF
        bit = 1 << (byte & 63)
        if byte < 64:
            a |= bit
        elif byte < 128:
            b |= bit
        elif byte < 192:
            c |= bit
        else:
            d |= bit
    return a, b, c, d


@helper
def noting_cost(packed):  # type: ignore[no-untyped-def]
    """Fuel of noting what leaves at the trie node whose word is `packed`: its children are looked at."""
    return NOTE_COST + ((packed >> 16) & 0xFFFF) // CHILDREN_A_UNIT


@helper
def node_of(vocabulary, rank, behind):  # type: ignore[no-untyped-def]
    """The trie node of all but the last `behind` bytes of the token of `rank`."""
    node = load_i32(load_i64(vocabulary, V_RANK_NODE), rank)
    parents = load_i64(vocabulary, V_NODE_PARENT)
    for _ in range(behind):
        node = load_i32(parents, node)
    return node


@helper
def note_at(batch, grammar, automaton, vocabulary, depth, byte, whole):  # type: ignore[no-untyped-def]
    """`note_leaving` at the path's entry `depth` for a token that goes on with `byte`; returns the work.

    With `whole` for all tokens that go on from there. The path's nodes are in B_JOB_CHILDREN.
    """
    node = load_i64(load_i64(batch, B_JOB_CHILDREN), depth)
    state, register = load_i64(load_i64(batch, B_JOB_STATE), depth), load_i64(load_i64(batch, B_JOB_REGISTER), depth)
    bit = 1 << (byte & 63)
    quarter = byte >> 6
    a, b = bit if quarter == 0 else 0, bit if quarter == 1 else 0
    c, d = bit if quarter == 2 else 0, bit if quarter == 3 else 0
    work = NOTE_COST
    if whole:
        packed = load_i64(load_i64(vocabulary, V_NODE), node)
        a, b, c, d = children_bytes(vocabulary, packed)
        work = noting_cost(packed)
    note_leaving(batch, grammar, automaton, state, register, node, a, b, c, d)
    return work
