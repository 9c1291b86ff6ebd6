"""The usual case of a stack graph: one head, which stays in its frame or returns to one place.

A byte then changes one triple and makes no node, so a run of such bytes needs neither heads nor edges nor blocks
between them: inside a string, a number, a key. What may lead anywhere else is left to `masks.graph`, byte by byte.
"""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import FINAL, GUARDED, HAS_CALLS, HAS_OPERATIONS, HAS_TOKENS
from .freeze import block_at
from .fuel import affords
from .layout import (
    BLOCK_COUNT,
    BLOCK_DONE,
    BLOCK_MARK,
    BLOCK_TRIPLES,
    EXIT,
    S_COUNT,
    S_FLAGS,
    S_SCRATCH,
    S_USED,
    S_WORK,
    SCRATCH_BASE,
    SCRATCH_BLOCK_WORDS,
)
from .machine import AT_EDGES, delta, flags_of, may_return, restart_of
from .memory import load_i32, load_i64, load_u8, section, store_i64

#: Words of a block of one head.
_WORDS = BLOCK_TRIPLES + 3


@helper
def _is_plain(automaton, state):  # type: ignore[no-untyped-def]
    """Has a head here edges of its own, and no call, guard or member to look at?"""
    flags = flags_of(automaton, state)
    if flags & (GUARDED | HAS_OPERATIONS | HAS_CALLS) != 0:
        return False
    return flags & HAS_TOKENS != 0 or load_i32(section(automaton, AT_EDGES), state) != -1


@helper
def _step(automaton, graph, node, state, register, byte):  # type: ignore[no-untyped-def]
    """The only head (node, state, register) that a byte leads to from the only head; state -1: not told here."""
    target = delta(automaton, state, byte)
    if target < 0:
        return node, -1, register
    start = restart_of(automaton, state, register)
    if start >= 0 and delta(automaton, start, byte) >= 0:
        return node, -1, register
    flags = flags_of(automaton, target)
    if flags & FINAL == 0 or not may_return(automaton, target, register):
        # An item of a counter that may not return yet may still begin another one, of which no call may be.
        if not _is_plain(automaton, target) or restart_of(automaton, target, register) >= 0:
            return node, -1, register
        return node, target, register
    if (
        flags & (GUARDED | HAS_OPERATIONS | HAS_CALLS | HAS_TOKENS)
        or load_i32(section(automaton, AT_EDGES), target) != -1
    ):
        return node, -1, register
    if restart_of(automaton, target, register) >= 0:
        return node, -1, register
    # It returns, and that is all. Where the caller may return as well, that is among the continuations.
    block = block_at(graph, node)
    after = load_i64(block, BLOCK_TRIPLES)
    if load_i64(block, BLOCK_COUNT) != 1 or after == EXIT:
        return node, -1, register
    state, register = load_i64(block, BLOCK_TRIPLES + 1), load_i64(block, BLOCK_TRIPLES + 2)
    if not _is_plain(automaton, state) or restart_of(automaton, state, register) >= 0:
        return node, -1, register
    return after, state, register


@helper
def run_one_head(batch, automaton, graph, block, data, begin, end):  # type: ignore[no-untyped-def]
    """(block, number of the first byte not taken) after the bytes from data[begin] on that leave one head.

    S_COUNT and S_FLAGS are those of the block where any byte was taken. Within the fuel of the phase: one unit a byte.
    """
    heads = block_at(graph, block)
    if load_i64(heads, BLOCK_COUNT) != 1:
        return block, begin
    node, state, register = (
        load_i64(heads, BLOCK_TRIPLES), load_i64(heads, BLOCK_TRIPLES + 1), load_i64(heads, BLOCK_TRIPLES + 2)
    )  # fmt: skip
    at = begin
    while at < end and affords(batch, at - begin + 1):
        after, reached, above = _step(automaton, graph, node, state, register, load_u8(data, at))
        if reached < 0:
            break
        node, state, register = after, reached, above
        at += 1
    used = load_i64(graph, S_USED)
    if at == begin or used + _WORDS > SCRATCH_BLOCK_WORDS:
        return block, begin
    store_i64(graph, S_WORK, load_i64(graph, S_WORK) + at - begin)
    store_i64(graph, S_FLAGS, 0)
    store_i64(graph, S_COUNT, 1)
    if (
        load_i64(heads, BLOCK_TRIPLES) == node
        and load_i64(heads, BLOCK_TRIPLES + 1) == state
        and load_i64(heads, BLOCK_TRIPLES + 2) == register
    ):
        return block, at
    heads = load_i64(graph, S_SCRATCH) + 8 * used
    store_i64(heads, BLOCK_COUNT, 1)
    store_i64(heads, BLOCK_DONE, 0)
    store_i64(heads, BLOCK_MARK, 0)
    store_i64(heads, BLOCK_TRIPLES, node)
    store_i64(heads, BLOCK_TRIPLES + 1, state)
    store_i64(heads, BLOCK_TRIPLES + 2, register)
    store_i64(graph, S_USED, used + _WORDS)
    return SCRATCH_BASE + used, at
