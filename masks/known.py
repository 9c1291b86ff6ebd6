"""The context of a state from the library of frames (`masks.library`), as if the job had walked it."""

from __future__ import annotations

from .._numba import helper
from .context_begin import begin_storing
from .few import begin_few, take_token
from .fuel import count, fuel_left
from .layout import (
    B_JOB,
    B_JOB_EVENTS,
    B_JOB_KEYS,
    B_JOB_TOTAL,
    B_VOCABULARY,
    B_WORDS,
    COUNT_LIBRARY,
    COUNT_WORK,
    E_ADDED,
    E_ITEM_NODES,
    E_ITEM_START,
    E_ITEMS,
    E_KNOWN,
    E_RETURN_BYTES,
    E_RETURN_START,
    E_RETURNS,
    E_ROOM,
    E_ROW,
    E_ROWS,
    E_TOKEN_START,
    E_TOKENS,
    G_AUTOMATON,
    G_LIBRARY,
    J_ADDED,
    J_EVENT_COUNT,
    J_FEW,
    J_GRAMMAR,
    J_KEY_COUNT,
    J_KEY_HIGH,
    J_KEY_LOW,
    J_REGISTER,
    J_ROOM,
    J_VOCABULARY,
    KEY_CALL,
    KEY_COUNT,
    KEY_REGISTER,
    KEY_WORDS,
)
from .leaving import RETURNS
from .machine import AT_CALL_START, AT_FRAME_FOLLOW, frame_of
from .memory import load_i32, load_i64, load_u8, section, store_i64
from .pool import WORDS_OF_A_MASK


@helper
def _add_key(batch, call, register, number):  # type: ignore[no-untyped-def]
    """One more of the lists that the job has found, with `number` nodes, if any; returns its place."""
    job = load_i64(batch, B_JOB)
    n = load_i64(job, J_KEY_COUNT)
    key = load_i64(batch, B_JOB_KEYS) + 8 * KEY_WORDS * n
    store_i64(key, KEY_CALL, call)
    store_i64(key, KEY_REGISTER, register)
    store_i64(key, KEY_COUNT, number)
    if number > 0:
        store_i64(job, J_KEY_COUNT, n + 1)
    return n


@helper
def _part(starts, i):  # type: ignore[no-untyped-def]
    """Where the part `i` begins and ends, by a table of where each begins."""
    return load_i32(starts, i), load_i32(starts, i + 1)


@helper
def load_known(batch, grammar, vocabulary, state, register, below, above, low, high):  # type: ignore[no-untyped-def]
    """Fill the idle job, of the key `low` and `high`, with what it would find for a state and the whole vocabulary.

    False: it is not known, or takes more than the fuel: a walk does it piece by piece then. What the library has of a
    counter is where it may return and may begin another item.
    """
    library = load_i64(grammar, G_LIBRARY)
    if library == 0 or vocabulary != load_i64(batch, B_VOCABULARY):
        return False
    automaton = load_i64(grammar, G_AUTOMATON)
    frame = frame_of(automaton, state)
    known, first = load_i64(library, 2 * frame), load_i64(library, 2 * frame + 1)
    if known == 0 or load_u8(load_i64(known, E_KNOWN), state - first) == 0:
        return False
    local = state - first
    added, room = load_i64(load_i64(known, E_ADDED), local), load_i64(load_i64(known, E_ROOM), local)
    if below != 0 or above <= max(added, room):
        return False
    row = load_i32(load_i64(known, E_ROW), local)
    first_token, last_token = _part(load_i64(known, E_TOKEN_START), local)
    first_return, last_return = _part(load_i64(known, E_RETURN_START), local)
    first_item, last_item = _part(load_i64(known, E_ITEM_START), local)
    items = load_i64(known, E_ITEMS)
    work = 1 + last_token - first_token + last_return - first_return
    if row >= 0:
        work += load_i64(batch, B_WORDS) // WORDS_OF_A_MASK
    for i in range(first_item, last_item):
        work += load_i64(items + 32 * i, 3) - load_i64(items + 32 * i, 2)
    if work > fuel_left(batch):
        return False
    job = load_i64(batch, B_JOB)
    events = load_i64(batch, B_JOB_EVENTS)
    total = load_i64(batch, B_JOB_TOTAL)
    begin_few(batch)
    if row >= 0:
        words = load_i64(batch, B_WORDS)
        source = load_i64(known, E_ROWS) + 8 * words * row
        for word in range(words):
            store_i64(total, word, load_i64(source, word))
        store_i64(job, J_FEW, -1)
    for i in range(first_token, last_token):
        take_token(batch, total, load_i32(load_i64(known, E_TOKENS), i))
    store_i64(job, J_REGISTER, register)
    store_i64(job, J_ADDED, added)
    store_i64(job, J_ROOM, room)
    store_i64(job, J_KEY_COUNT, 0)
    n = 0
    # Where the frame may return counts only where the grammar has something to follow.
    follow = section(automaton, AT_FRAME_FOLLOW) + 32 * frame
    a, b, c, d = load_i64(follow, 0), load_i64(follow, 1), load_i64(follow, 2), load_i64(follow, 3)
    nodes = load_i64(known, E_RETURNS)
    for i in range(first_return, last_return):
        bytes_of = load_i64(known, E_RETURN_BYTES) + 32 * i
        common = load_i64(bytes_of, 0) & a | load_i64(bytes_of, 1) & b
        common |= load_i64(bytes_of, 2) & c | load_i64(bytes_of, 3) & d
        store_i64(events, n, load_i32(nodes, i))
        n += 1 if common != 0 else 0
    _add_key(batch, RETURNS, 0, n)
    calls = load_i32(section(automaton, AT_CALL_START), first)
    for i in range(first_item, last_item):
        item = items + 32 * i
        begin, end = load_i64(item, 2), load_i64(item, 3)
        number = _add_key(batch, calls + load_i64(item, 0), register + load_i64(item, 1), end - begin)
        for k in range(begin, end):
            store_i64(events, n, (number << 32) | load_i32(load_i64(known, E_ITEM_NODES), k))
            n += 1
    store_i64(job, J_EVENT_COUNT, n)
    count(batch, COUNT_LIBRARY, 1)
    count(batch, COUNT_WORK, work)
    store_i64(job, J_KEY_LOW, low)
    store_i64(job, J_KEY_HIGH, high)
    store_i64(job, J_GRAMMAR, grammar)
    store_i64(job, J_VOCABULARY, vocabulary)
    begin_storing(batch)
    return True
