"""Stack graphs: configurations of recursive grammars, stepped by one byte.

A *node* is one call at one position of the text; what it holds are its *continuations*, the (parent node, state,
register) triples of heads that appear when the call returns, nullable returns already followed. A head is such a
triple too: it rests in a state of its node's frame. Since every call consumes at least one byte, all edges of a node
are known when its position is closed, so it never changes afterwards: rolling back and forking cost nothing, and left
recursion is a node among its own continuations.

Closing a position, each step once: the heads reached by the byte, those that returns lead to, *pruning*, calls, and
the continuations of the new nodes. Pruned is a head (m, s, r) where (n, s, r) is present and m returns whenever n
does (m is in n's `done` list): only the language matters, not the parses. A new node whose continuations are those of
a node that its own return leads through is that node, so tail calls leave nothing behind.

Fuel: 1 for each head, call, edge and continuation looked at.
"""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import GUARDED, HAS_CALLS, HAS_OPERATIONS, HAS_TOKENS
from .freeze import block_at, freeze, fresh_at, note_done, prune, put_triple, rename
from .layout import (
    BLOCK_COUNT,
    BLOCK_DONE,
    BLOCK_MARK,
    BLOCK_TRIPLES,
    COMPLETE,
    EDGE_KIND,
    EDGE_NEXT,
    EDGE_NODE,
    EDGE_REGISTER,
    EDGE_STATE,
    EDGE_WORDS,
    EXIT,
    FRESH_BASE,
    FRESH_FIRST,
    FRESH_THROUGH,
    G_FRAME_STAMPS,
    G_STAMP,
    LEADS_ON,
    MAX_EDGES,
    MAX_FRESH,
    MAX_GRAPH_HEADS,
    S_COUNT,
    S_EDGES,
    S_FAILED,
    S_FLAGS,
    S_HEADS,
    S_REACHED,
    S_SCRATCH,
    S_USED,
    S_WORK,
    SCRATCH_BASE,
    SCRATCH_BLOCK_WORDS,
    THROUGH,
)
from .machine import (
    AT_CALL_FRAME,
    AT_CALL_START,
    AT_CALL_TARGET,
    AT_EDGES,
    AT_FRAME_START,
    delta,
    flags_of,
    frame_of,
    may_return,
    next_register,
    only_operations,
    restart_of,
)
from .members import (
    AT_OPERATION_BIT,
    AT_OPERATION_START,
    AT_OPERATION_TARGET,
    after_member,
    is_dead_end,
    may_go_on,
)
from .memory import load_i32, load_i64, section, store_i64


@helper
def leads_on(automaton, state, register):  # type: ignore[no-untyped-def]
    """Has a head here any edge of its own, or of another item of its counter?"""
    if flags_of(automaton, state) & GUARDED and not may_go_on(automaton, state, register):
        return False
    return (
        load_i32(section(automaton, AT_EDGES), state) != -1
        or flags_of(automaton, state) & (HAS_CALLS | HAS_TOKENS) != 0
        or restart_of(automaton, state, register) >= 0
    )


@helper
def rests(automaton, state, register):  # type: ignore[no-untyped-def]
    """Has a head here byte or token edges? (What it calls are heads of their own.)"""
    edges = section(automaton, AT_EDGES)
    if load_i32(edges, state) != -1 or flags_of(automaton, state) & HAS_TOKENS:
        return flags_of(automaton, state) & GUARDED == 0 or may_go_on(automaton, state, register)
    start = restart_of(automaton, state, register)
    return start >= 0 and load_i32(edges, start) != -1


@helper
def _arrive(automaton, graph, reached, count, node, target, register):  # type: ignore[no-untyped-def]
    """Add the heads that a byte edge to `target` leads to: what begins members has been followed."""
    flags = flags_of(automaton, target)
    if flags & (GUARDED | HAS_OPERATIONS) != 0:
        if is_dead_end(automaton, target, register):
            return count
        if flags & HAS_OPERATIONS != 0:
            starts = section(automaton, AT_OPERATION_START)
            for at in range(load_i32(starts, target), load_i32(starts, target + 1)):
                bit = load_i32(section(automaton, AT_OPERATION_BIT), at)
                allowed, after = after_member(automaton, frame_of(automaton, target), register, bit)
                if allowed:
                    begun = load_i32(section(automaton, AT_OPERATION_TARGET), at)
                    count = put_triple(graph, reached, count, MAX_GRAPH_HEADS, node, begun, after)
            if only_operations(automaton, target):
                return count
    return put_triple(graph, reached, count, MAX_GRAPH_HEADS, node, target, register)


@helper
def reach_byte_graph(automaton, graph, block, byte):  # type: ignore[no-untyped-def]
    """Put into S_REACHED the heads that byte edges lead to from the block's; returns how many."""
    heads = block_at(graph, block)
    n = load_i64(heads, BLOCK_COUNT)
    reached = load_i64(graph, S_REACHED)
    count = 0
    for i in range(n):
        node = load_i64(heads, BLOCK_TRIPLES + 3 * i)
        state = load_i64(heads, BLOCK_TRIPLES + 3 * i + 1)
        register = load_i64(heads, BLOCK_TRIPLES + 3 * i + 2)
        target = delta(automaton, state, byte)
        if target >= 0:
            count = _arrive(automaton, graph, reached, count, node, target, register)
        start = restart_of(automaton, state, register)
        if start >= 0:
            target = delta(automaton, start, byte)
            if target >= 0:
                again = next_register(automaton, state, register)
                count = put_triple(graph, reached, count, MAX_GRAPH_HEADS, node, target, again)
    store_i64(graph, S_WORK, load_i64(graph, S_WORK) + n)
    return count


@helper
def _call(grammar, automaton, graph, count, fresh, edges):  # type: ignore[no-untyped-def]
    """Follow the calls of the `count` heads in S_HEADS and of those they lead to. Returns (heads, nodes, edges)."""
    heads = load_i64(graph, S_HEADS)
    stamp = load_i64(grammar, G_STAMP) + 1
    store_i64(grammar, G_STAMP, stamp)
    stamps = load_i64(grammar, G_FRAME_STAMPS)
    starts = section(automaton, AT_CALL_START)
    table = load_i64(graph, S_EDGES)
    i = 0
    while i < count:
        node = load_i64(heads, 3 * i)
        state = load_i64(heads, 3 * i + 1)
        register = load_i64(heads, 3 * i + 2)
        i += 1
        again = restart_of(automaton, state, register)
        for turn in range(2):
            if turn == 1:
                if again < 0:
                    break
                register = next_register(automaton, state, register)
                state = again
            if flags_of(automaton, state) & HAS_CALLS == 0:
                continue
            for call in range(load_i32(starts, state), load_i32(starts, state + 1)):
                target = load_i32(section(automaton, AT_CALL_TARGET), call)
                if is_dead_end(automaton, target, register):
                    continue
                frame = load_i32(section(automaton, AT_CALL_FRAME), call)
                known = load_i64(stamps, frame)
                number = known & 0xFFFF
                if known >> 16 != stamp:
                    if fresh == MAX_FRESH or edges == MAX_EDGES:
                        store_i64(graph, S_FAILED, 1)
                        return count, fresh, edges
                    number = fresh
                    store_i64(stamps, frame, (stamp << 16) | number)
                    record = fresh_at(graph, FRESH_BASE + number)
                    store_i64(record, FRESH_FIRST, -1)
                    store_i64(record, FRESH_THROUGH, 0)
                    fresh += 1
                    entry = load_i32(section(automaton, AT_FRAME_START), frame)
                    count = put_triple(graph, heads, count, MAX_GRAPH_HEADS, FRESH_BASE + number, entry, 0)
                if edges == MAX_EDGES:
                    store_i64(graph, S_FAILED, 1)
                    return count, fresh, edges
                kind = LEADS_ON if leads_on(automaton, target, register) else 0
                if may_return(automaton, target, register):
                    kind |= THROUGH
                edge = table + 8 * EDGE_WORDS * edges
                record = fresh_at(graph, FRESH_BASE + number)
                store_i64(edge, EDGE_NODE, node)
                store_i64(edge, EDGE_STATE, target)
                store_i64(edge, EDGE_REGISTER, register)
                store_i64(edge, EDGE_KIND, kind)
                store_i64(edge, EDGE_NEXT, load_i64(record, FRESH_FIRST))
                store_i64(record, FRESH_FIRST, edges)
                if kind & THROUGH:
                    store_i64(record, FRESH_THROUGH, 1)
                edges += 1
    return count, fresh, edges


@helper
def close_graph(grammar, automaton, graph, count):  # type: ignore[no-untyped-def]
    """The block, in scratch, of the heads that rest after the `count` triples in S_REACHED.

    Sets S_FLAGS and S_COUNT. S_FAILED, which the caller clears, is 1 where a limit was passed.
    """
    reached = load_i64(graph, S_REACHED)
    heads = load_i64(graph, S_HEADS)
    flags = 0
    n = 0
    for i in range(count):
        state, register = load_i64(reached, 3 * i + 1), load_i64(reached, 3 * i + 2)
        if leads_on(automaton, state, register):
            n = put_triple(graph, heads, n, MAX_GRAPH_HEADS, load_i64(reached, 3 * i), state, register)
    work = count
    for i in range(count):
        state, register = load_i64(reached, 3 * i + 1), load_i64(reached, 3 * i + 2)
        if may_return(automaton, state, register):
            block = block_at(graph, load_i64(reached, 3 * i))
            returns = load_i64(block, BLOCK_COUNT)
            work += returns
            for k in range(returns):
                at = BLOCK_TRIPLES + 3 * k
                if load_i64(block, at) == EXIT:
                    flags |= COMPLETE
                else:
                    n = put_triple(
                        graph, heads, n, MAX_GRAPH_HEADS,
                        load_i64(block, at), load_i64(block, at + 1), load_i64(block, at + 2),
                    )  # fmt: skip
    if n > 1:
        n = prune(graph, heads, n)
    n, fresh, edges = _call(grammar, automaton, graph, n, 0, 0)
    if load_i64(graph, S_FAILED) == 0 and fresh > 0:
        first = load_i64(graph, S_USED)
        for i in range(fresh):
            note_done(graph, FRESH_BASE + i)
        for i in range(fresh):
            freeze(graph, FRESH_BASE + i)
        # Only now is it known which block each node has.
        scratch = load_i64(graph, S_SCRATCH)
        at = first
        while at < load_i64(graph, S_USED):
            block = scratch + 8 * at
            triples, done = load_i64(block, BLOCK_COUNT), load_i64(block, BLOCK_DONE)
            for k in range(triples):
                store_i64(block, BLOCK_TRIPLES + 3 * k, rename(graph, load_i64(block, BLOCK_TRIPLES + 3 * k)))
            for k in range(BLOCK_TRIPLES + 3 * triples, BLOCK_TRIPLES + 3 * triples + done):
                store_i64(block, k, rename(graph, load_i64(block, k)))
            at += BLOCK_TRIPLES + 3 * triples + done
    store_i64(graph, S_WORK, load_i64(graph, S_WORK) + work + n + edges)
    used = load_i64(graph, S_USED)
    if used + BLOCK_TRIPLES + 3 * n > SCRATCH_BLOCK_WORDS:
        store_i64(graph, S_FAILED, 1)
    if load_i64(graph, S_FAILED):
        store_i64(graph, S_COUNT, 0)
        return 0
    block = load_i64(graph, S_SCRATCH) + 8 * used
    kept = 0
    for i in range(n):
        state, register = load_i64(heads, 3 * i + 1), load_i64(heads, 3 * i + 2)
        if rests(automaton, state, register):
            node = rename(graph, load_i64(heads, 3 * i))
            kept = put_triple(graph, block + 8 * BLOCK_TRIPLES, kept, MAX_GRAPH_HEADS, node, state, register)
    store_i64(block, BLOCK_COUNT, kept)
    store_i64(block, BLOCK_DONE, 0)
    store_i64(block, BLOCK_MARK, 0)
    store_i64(graph, S_USED, used + BLOCK_TRIPLES + 3 * kept)
    store_i64(graph, S_FLAGS, flags)
    store_i64(graph, S_COUNT, kept)
    return SCRATCH_BASE + used


@helper
def put_bottom(address, number):  # type: ignore[no-untyped-def]
    """Write the node whose return leaves the root frame, as block `number`; returns its words."""
    store_i64(address, BLOCK_COUNT, 1)
    store_i64(address, BLOCK_DONE, 1)
    store_i64(address, BLOCK_MARK, 0)
    store_i64(address, BLOCK_TRIPLES, EXIT)
    store_i64(address, BLOCK_TRIPLES + 1, EXIT)
    store_i64(address, BLOCK_TRIPLES + 2, 0)
    store_i64(address, BLOCK_TRIPLES + 3, number)
    return BLOCK_TRIPLES + 4
