"""Where the text of a recursive grammar must go: the bytes that are forced, and a shortest completion."""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import HAS_TOKENS
from .arena import graph_of_slot, mark_blocks, move_blocks
from .freeze import block_at
from .graph import close_graph, reach_byte_graph
from .layout import (
    B_ARENA_USED,
    BLOCK_COUNT,
    BLOCK_DONE,
    BLOCK_MARK,
    BLOCK_TRIPLES,
    COMPLETE,
    CONFIG_BLOCK,
    CONFIG_FLAGS,
    CONFIG_HEADS,
    EXIT,
    FINISHED,
    G_AUTOMATON,
    S_ARENA,
    S_FAILED,
    S_FLAGS,
    S_REACHED,
    S_SCRATCH,
    S_STACK,
    S_USED,
    SCRATCH_BASE,
    SCRATCH_BLOCK_WORDS,
)
from .machine import flags_of, level_distance
from .memory import load_i64, store_i64, store_u8

_FAR = 1 << 40


@helper
def _has_symbols(automaton, graph, block):  # type: ignore[no-untyped-def]
    heads = block_at(graph, block)
    for i in range(load_i64(heads, BLOCK_COUNT)):
        if flags_of(automaton, load_i64(heads, BLOCK_TRIPLES + 3 * i + 1)) & HAS_TOKENS:
            return True
    return False


@helper
def forced_graph(batch, grammar, slot, config, out, most):  # type: ignore[no-untyped-def]
    """Write to `out` (uint8[most]) the bytes that every continuation begins with; returns how many."""
    automaton = load_i64(grammar, G_AUTOMATON)
    graph = graph_of_slot(batch, slot)
    flags, block = load_i64(config, CONFIG_FLAGS), load_i64(config, CONFIG_BLOCK)
    n = 0
    if load_i64(config, CONFIG_HEADS) == 0:
        return n
    while n < most and flags & (COMPLETE | FINISHED) == 0 and not _has_symbols(automaton, graph, block):
        only = -1
        for byte in range(256):
            if reach_byte_graph(automaton, graph, block, byte) > 0:
                if only >= 0:
                    return n
                only = byte
        if only < 0:
            break
        count = reach_byte_graph(automaton, graph, block, only)
        block = _empty_scratch(graph, close_graph(grammar, automaton, graph, count))
        if load_i64(graph, S_FAILED):
            break
        flags = load_i64(graph, S_FLAGS)
        store_u8(out, n, only)
        n += 1
    return n


@helper
def _empty_scratch(graph, block):  # type: ignore[no-untyped-def]
    """Where scratch is half full, keep only what `block` needs; returns its new number."""
    if load_i64(graph, S_USED) <= SCRATCH_BLOCK_WORDS // 2 or load_i64(graph, S_FAILED):
        return block
    scratch = load_i64(graph, S_SCRATCH)
    end = scratch + 8 * load_i64(graph, S_USED)
    at = scratch
    while at < end:
        store_i64(at, BLOCK_MARK, 0)
        at += 8 * (BLOCK_TRIPLES + 3 * load_i64(at, BLOCK_COUNT) + load_i64(at, BLOCK_DONE))
    store_i64(load_i64(graph, S_STACK), 0, block)
    mark_blocks(graph, 1, SCRATCH_BASE)
    # The block was made last, so it is the last one that is kept.
    words = move_blocks(graph, scratch, end, SCRATCH_BASE, scratch, SCRATCH_BASE)
    store_i64(graph, S_USED, words)
    at = scratch
    last = scratch
    while at < scratch + 8 * words:
        last = at
        at += 8 * (BLOCK_TRIPLES + 3 * load_i64(at, BLOCK_COUNT) + load_i64(at, BLOCK_DONE))
    return SCRATCH_BASE + (last - scratch) // 8


@helper
def _measure(automaton, graph, begin, end):  # type: ignore[no-untyped-def]
    """Set BLOCK_MARK of the blocks between two addresses to the fewest bytes from their call's return to the end.

    Continuations lead to older blocks, which are measured, or to those of the same position: hence more than one turn.
    """
    at = begin
    while at < end:
        store_i64(at, BLOCK_MARK, _FAR)
        at += 8 * (BLOCK_TRIPLES + 3 * load_i64(at, BLOCK_COUNT) + load_i64(at, BLOCK_DONE))
    changed = True
    while changed:
        changed = False
        at = begin
        while at < end:
            count = load_i64(at, BLOCK_COUNT)
            best = load_i64(at, BLOCK_MARK)
            for k in range(count):
                parent = load_i64(at, BLOCK_TRIPLES + 3 * k)
                distance = 0
                if parent != EXIT:
                    state, register = load_i64(at, BLOCK_TRIPLES + 3 * k + 1), load_i64(at, BLOCK_TRIPLES + 3 * k + 2)
                    distance = level_distance(automaton, state, register)
                    distance += load_i64(block_at(graph, parent), BLOCK_MARK)
                if distance < best:
                    best = distance
                    changed = True
            store_i64(at, BLOCK_MARK, best)
            at += 8 * (BLOCK_TRIPLES + 3 * count + load_i64(at, BLOCK_DONE))


@helper
def _complete(batch, grammar, automaton, graph, block, out, most):  # type: ignore[no-untyped-def]
    """`complete_graph` over a measured arena."""
    reached = load_i64(graph, S_REACHED)
    n = 0
    while n < most:
        best, chosen = _FAR, -1
        for byte in range(256):
            for i in range(reach_byte_graph(automaton, graph, block, byte)):
                state, register = load_i64(reached, 3 * i + 1), load_i64(reached, 3 * i + 2)
                distance = level_distance(automaton, state, register)
                distance += load_i64(block_at(graph, load_i64(reached, 3 * i)), BLOCK_MARK)
                if distance < best:
                    best, chosen = distance, byte
        if chosen < 0:
            return -1
        store_u8(out, n, chosen)
        n += 1
        count = reach_byte_graph(automaton, graph, block, chosen)
        block = _empty_scratch(graph, close_graph(grammar, automaton, graph, count))
        if load_i64(graph, S_FAILED):
            return -1
        if load_i64(graph, S_FLAGS) & COMPLETE:
            return n
        scratch = load_i64(graph, S_SCRATCH)
        _measure(automaton, graph, scratch, scratch + 8 * load_i64(graph, S_USED))
    return -1


@helper
def complete_graph(batch, grammar, slot, config, out, most):  # type: ignore[no-untyped-def]
    """Write a shortest byte string that completes the slot's text to `out`; returns its length, or -1 past `most`."""
    if load_i64(config, CONFIG_HEADS) == 0:
        return -1
    automaton = load_i64(grammar, G_AUTOMATON)
    graph = graph_of_slot(batch, slot)
    arena = load_i64(graph, S_ARENA)
    end = arena + 8 * load_i64(load_i64(batch, B_ARENA_USED), slot)
    _measure(automaton, graph, arena, end)
    n = _complete(batch, grammar, automaton, graph, load_i64(config, CONFIG_BLOCK), out, most)
    at = arena
    while at < end:  # marks are 0 between calls
        store_i64(at, BLOCK_MARK, 0)
        at += 8 * (BLOCK_TRIPLES + 3 * load_i64(at, BLOCK_COUNT) + load_i64(at, BLOCK_DONE))
    return n
