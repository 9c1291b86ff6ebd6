"""The context of a state from the library of frames (`masks.library`), as if the job had walked it."""

from __future__ import annotations

from .._numba import helper
from .few import begin_few, take_token
from .fuel import count
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
    J_KEY_COUNT,
    J_REGISTER,
    J_ROOM,
    KEY_CALL,
    KEY_COUNT,
    KEY_REGISTER,
    KEY_WORDS,
)
from .leaving import RETURNS
from .machine import AT_CALL_START, AT_FRAME_FOLLOW, frame_of
from .memory import load_i32, load_i64, load_u8, section, store_i64


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
def load_known(batch, grammar, vocabulary, state, register, below, above):  # type: ignore[no-untyped-def]
    """Fill the idle job with what it would find for a state and the whole vocabulary; False: not known.

    What the library has of a counter is where it may return and may begin another item.
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
    job = load_i64(batch, B_JOB)
    events = load_i64(batch, B_JOB_EVENTS)
    total = load_i64(batch, B_JOB_TOTAL)
    begin_few(batch)
    row = load_i32(load_i64(known, E_ROW), local)
    if row >= 0:
        words = load_i64(batch, B_WORDS)
        source = load_i64(known, E_ROWS) + 8 * words * row
        for word in range(words):
            store_i64(total, word, load_i64(source, word))
        store_i64(job, J_FEW, -1)
    starts = load_i64(known, E_TOKEN_START)
    for i in range(load_i32(starts, local), load_i32(starts, local + 1)):
        take_token(batch, total, load_i32(load_i64(known, E_TOKENS), i))
    store_i64(job, J_REGISTER, register)
    store_i64(job, J_ADDED, added)
    store_i64(job, J_ROOM, room)
    store_i64(job, J_KEY_COUNT, 0)
    n = 0
    # Where the frame may return counts only where the grammar has something to follow.
    follow = section(automaton, AT_FRAME_FOLLOW) + 32 * frame
    a, b, c, d = load_i64(follow, 0), load_i64(follow, 1), load_i64(follow, 2), load_i64(follow, 3)
    starts, nodes = load_i64(known, E_RETURN_START), load_i64(known, E_RETURNS)
    begin, end = load_i32(starts, local), load_i32(starts, local + 1)
    for i in range(begin, end):
        bytes_of = load_i64(known, E_RETURN_BYTES) + 32 * i
        common = load_i64(bytes_of, 0) & a | load_i64(bytes_of, 1) & b
        common |= load_i64(bytes_of, 2) & c | load_i64(bytes_of, 3) & d
        store_i64(events, n, load_i32(nodes, i))
        n += 1 if common != 0 else 0
    _add_key(batch, RETURNS, 0, n)
    work = end - begin
    calls = load_i32(section(automaton, AT_CALL_START), first)
    starts, items = load_i64(known, E_ITEM_START), load_i64(known, E_ITEMS)
    for i in range(load_i32(starts, local), load_i32(starts, local + 1)):
        item = items + 32 * i
        begin, end = load_i64(item, 2), load_i64(item, 3)
        number = _add_key(batch, calls + load_i64(item, 0), register + load_i64(item, 1), end - begin)
        for k in range(begin, end):
            store_i64(events, n, (number << 32) | load_i32(load_i64(known, E_ITEM_NODES), k))
            n += 1
        work += end - begin
    store_i64(job, J_EVENT_COUNT, n)
    count(batch, COUNT_LIBRARY, 1)
    count(batch, COUNT_WORK, work + 1)
    return True
