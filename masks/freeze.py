"""The continuations of the nodes of one position, found when it is closed: after that a node never changes."""

from __future__ import annotations

from .._numba import helper
from .layout import (
    BLOCK_COUNT,
    BLOCK_DONE,
    BLOCK_MARK,
    BLOCK_TRIPLES,
    EDGE_KIND,
    EDGE_NEXT,
    EDGE_NODE,
    EDGE_REGISTER,
    EDGE_STATE,
    EDGE_WORDS,
    FRESH_BASE,
    FRESH_DONE,
    FRESH_DONE_COUNT,
    FRESH_FIRST,
    FRESH_NUMBER,
    FRESH_THROUGH,
    FRESH_WORDS,
    LEADS_ON,
    MAX_DONE,
    MAX_EDGES,
    S_ARENA,
    S_EDGES,
    S_FAILED,
    S_FRESH,
    S_SCRATCH,
    S_STACK,
    S_TRIPLES,
    S_USED,
    S_WORK,
    SCRATCH_BASE,
    SCRATCH_BLOCK_WORDS,
    THROUGH,
)
from .memory import load_i64, store_i64

#: Triples among which another is looked for in the time of one byte edge.
COMPARISONS = 32


@helper
def block_at(graph, number):  # type: ignore[no-untyped-def]
    """Address of a block."""
    if number >= SCRATCH_BASE:
        return load_i64(graph, S_SCRATCH) + 8 * (number - SCRATCH_BASE)
    return load_i64(graph, S_ARENA) + 8 * number


@helper
def put_triple(graph, triples, count, most, node, state, register):  # type: ignore[no-untyped-def]
    """Add a triple to a list unless it is there; returns the new length. S_FAILED where there is no room."""
    for i in range(count):
        if (
            load_i64(triples, 3 * i) == node
            and load_i64(triples, 3 * i + 1) == state
            and load_i64(triples, 3 * i + 2) == register
        ):
            return count
    if count >= COMPARISONS:
        store_i64(graph, S_WORK, load_i64(graph, S_WORK) + count // COMPARISONS)
    if count == most:
        store_i64(graph, S_FAILED, 1)
        return count
    store_i64(triples, 3 * count, node)
    store_i64(triples, 3 * count + 1, state)
    store_i64(triples, 3 * count + 2, register)
    return count + 1


@helper
def fresh_at(graph, node):  # type: ignore[no-untyped-def]
    return load_i64(graph, S_FRESH) + 8 * FRESH_WORDS * (node - FRESH_BASE)


@helper
def _returns_with(graph, node, other):  # type: ignore[no-untyped-def]
    """Is it known that `other` returns whenever `node` does?"""
    if node < 0:
        return False
    if node >= FRESH_BASE:
        fresh = fresh_at(graph, node)
        for i in range(load_i64(fresh, FRESH_DONE_COUNT)):
            if load_i64(fresh, FRESH_DONE + i) == other:
                return True
        return False
    block = block_at(graph, node)
    done = BLOCK_TRIPLES + 3 * load_i64(block, BLOCK_COUNT)
    for i in range(load_i64(block, BLOCK_DONE)):
        if load_i64(block, done + i) == other:
            return True
    return False


@helper
def prune(graph, triples, count):  # type: ignore[no-untyped-def]
    """Drop the triples that others make needless; newest nodes first. Returns the number left."""
    alike = False
    for i in range(count):
        state, register = load_i64(triples, 3 * i + 1), load_i64(triples, 3 * i + 2)
        for j in range(i):
            if load_i64(triples, 3 * j + 1) == state and load_i64(triples, 3 * j + 2) == register:
                alike = True
    store_i64(graph, S_WORK, load_i64(graph, S_WORK) + count + count * count // (2 * COMPARISONS))
    if not alike:
        return count
    for i in range(1, count):
        node = load_i64(triples, 3 * i)
        state, register = load_i64(triples, 3 * i + 1), load_i64(triples, 3 * i + 2)
        j = i
        while j > 0 and load_i64(triples, 3 * j - 3) < node:
            for word in range(3):
                store_i64(triples, 3 * j + word, load_i64(triples, 3 * j - 3 + word))
            j -= 1
        store_i64(triples, 3 * j, node)
        store_i64(triples, 3 * j + 1, state)
        store_i64(triples, 3 * j + 2, register)
    kept = 0
    for i in range(count):
        node = load_i64(triples, 3 * i)
        state, register = load_i64(triples, 3 * i + 1), load_i64(triples, 3 * i + 2)
        needless = False
        for j in range(kept):
            if (
                load_i64(triples, 3 * j + 1) == state
                and load_i64(triples, 3 * j + 2) == register
                and _returns_with(graph, load_i64(triples, 3 * j), node)
            ):
                needless = True
                break
        if not needless:
            store_i64(triples, 3 * kept, node)
            store_i64(triples, 3 * kept + 1, state)
            store_i64(triples, 3 * kept + 2, register)
            kept += 1
    store_i64(graph, S_WORK, load_i64(graph, S_WORK) + count * kept)
    return kept


@helper
def _returning(graph, node):  # type: ignore[no-untyped-def]
    """Put into S_STACK `node` and the fresh nodes that return with it, then others; returns (fresh ones, all)."""
    table = load_i64(graph, S_EDGES)
    found = load_i64(graph, S_STACK)
    store_i64(found, 0, node)
    n = 1
    at = 0
    while at < n:
        edge_number = load_i64(fresh_at(graph, load_i64(found, at)), FRESH_FIRST)
        at += 1
        while edge_number >= 0:
            edge = table + 8 * EDGE_WORDS * edge_number
            edge_number = load_i64(edge, EDGE_NEXT)
            other = load_i64(edge, EDGE_NODE)
            if load_i64(edge, EDGE_KIND) & THROUGH == 0 or other < FRESH_BASE:
                continue
            known = False
            for i in range(n):
                known = known or load_i64(found, i) == other
            if not known:
                store_i64(found, n, other)
                n += 1
    total = n
    for at in range(n):
        edge_number = load_i64(fresh_at(graph, load_i64(found, at)), FRESH_FIRST)
        while edge_number >= 0:
            edge = table + 8 * EDGE_WORDS * edge_number
            edge_number = load_i64(edge, EDGE_NEXT)
            other = load_i64(edge, EDGE_NODE)
            if load_i64(edge, EDGE_KIND) & THROUGH == 0 or other >= FRESH_BASE:
                continue
            known = False
            for i in range(n, total):
                known = known or load_i64(found, i) == other
            if not known:
                store_i64(found, total, other)
                total += 1
    store_i64(graph, S_WORK, load_i64(graph, S_WORK) + total)
    return n, total


@helper
def note_done(graph, node):  # type: ignore[no-untyped-def]
    """Fill in a fresh node's list of nodes that return with it, the nearest first."""
    record = fresh_at(graph, node)
    store_i64(record, FRESH_DONE, node)
    count = 1
    if load_i64(record, FRESH_THROUGH):
        own, total = _returning(graph, node)
        found = load_i64(graph, S_STACK)
        for i in range(1, total):
            if count < MAX_DONE:
                store_i64(record, FRESH_DONE + count, load_i64(found, i))
                count += 1
        for i in range(own, total):
            block = block_at(graph, load_i64(found, i))
            done = BLOCK_TRIPLES + 3 * load_i64(block, BLOCK_COUNT)
            for k in range(load_i64(block, BLOCK_DONE)):
                other = load_i64(block, done + k)
                known = False
                for j in range(count):
                    known = known or load_i64(record, FRESH_DONE + j) == other
                if not known and count < MAX_DONE:
                    store_i64(record, FRESH_DONE + count, other)
                    count += 1
    store_i64(record, FRESH_DONE_COUNT, count)


@helper
def _same_continuations(graph, node, count, parent):  # type: ignore[no-untyped-def]
    """Are the `count` triples in S_TRIPLES those of `parent`, `node` standing for `parent` in them?"""
    block = block_at(graph, parent)
    if load_i64(block, BLOCK_COUNT) != count:
        return False
    triples = load_i64(graph, S_TRIPLES)
    for i in range(count):
        other = load_i64(triples, 3 * i)
        if other == node:
            other = parent
        found = False
        for k in range(count):
            found = found or (
                load_i64(block, BLOCK_TRIPLES + 3 * k) == other
                and load_i64(block, BLOCK_TRIPLES + 3 * k + 1) == load_i64(triples, 3 * i + 1)
                and load_i64(block, BLOCK_TRIPLES + 3 * k + 2) == load_i64(triples, 3 * i + 2)
            )
        if not found:
            return False
    return True


@helper
def freeze(graph, node):  # type: ignore[no-untyped-def]
    """Give a fresh node its continuations and a block, or let it be the node that it equals."""
    record = fresh_at(graph, node)
    table = load_i64(graph, S_EDGES)
    triples = load_i64(graph, S_TRIPLES)
    found = load_i64(graph, S_STACK)
    own, total = 1, 1
    store_i64(found, 0, node)
    if load_i64(record, FRESH_THROUGH):
        own, total = _returning(graph, node)
    count = 0
    for i in range(own):
        edge_number = load_i64(fresh_at(graph, load_i64(found, i)), FRESH_FIRST)
        while edge_number >= 0:
            edge = table + 8 * EDGE_WORDS * edge_number
            edge_number = load_i64(edge, EDGE_NEXT)
            if load_i64(edge, EDGE_KIND) & LEADS_ON:
                count = put_triple(
                    graph, triples, count, MAX_EDGES,
                    load_i64(edge, EDGE_NODE), load_i64(edge, EDGE_STATE), load_i64(edge, EDGE_REGISTER),
                )  # fmt: skip
    for i in range(own, total):
        block = block_at(graph, load_i64(found, i))
        for k in range(load_i64(block, BLOCK_COUNT)):
            at = BLOCK_TRIPLES + 3 * k
            count = put_triple(
                graph, triples, count, MAX_EDGES, load_i64(block, at), load_i64(block, at + 1), load_i64(block, at + 2)
            )
    store_i64(graph, S_WORK, load_i64(graph, S_WORK) + count)
    if count > 1:
        count = prune(graph, triples, count)
    for i in range(own, total):
        if _same_continuations(graph, node, count, load_i64(found, i)):
            store_i64(record, FRESH_NUMBER, load_i64(found, i))
            return
    done_count = load_i64(record, FRESH_DONE_COUNT)
    used = load_i64(graph, S_USED)
    size = BLOCK_TRIPLES + 3 * count + done_count
    if used + size > SCRATCH_BLOCK_WORDS:
        store_i64(graph, S_FAILED, 1)
        store_i64(record, FRESH_NUMBER, 0)
        return
    block = load_i64(graph, S_SCRATCH) + 8 * used
    store_i64(block, BLOCK_COUNT, count)
    store_i64(block, BLOCK_DONE, done_count)
    store_i64(block, BLOCK_MARK, 0)
    for word in range(3 * count):
        store_i64(block, BLOCK_TRIPLES + word, load_i64(triples, word))
    for i in range(done_count):
        store_i64(block, BLOCK_TRIPLES + 3 * count + i, load_i64(record, FRESH_DONE + i))
    store_i64(graph, S_USED, used + size)
    store_i64(record, FRESH_NUMBER, SCRATCH_BASE + used)


@helper
def rename(graph, number):  # type: ignore[no-untyped-def]
    """The number of the block of what may be a fresh node."""
    return load_i64(fresh_at(graph, number), FRESH_NUMBER) if number >= FRESH_BASE else number
