"""The mask of a recursive configuration by walking the vocabulary on its own stack: always exact, for any grammar.

`masks.contexts` is the fast way; this one is taken where that gives up. Resumable like `masks.walk`; the path from the
root of the trie to the cursor is kept as one configuration a byte, in scratch.
"""

from __future__ import annotations

from .._numba import helper, kernel
from ..grammar.automaton import HAS_TOKENS
from .freeze import block_at
from .fuel import count
from .graph import close_graph, reach_byte_graph
from .layout import (
    B_JOB,
    B_JOB_CHILDREN,
    B_JOB_CONFIGS,
    B_JOB_GRAPH,
    B_JOB_TOTAL,
    B_WORDS,
    BLOCK_COUNT,
    BLOCK_TRIPLES,
    CONFIG_WORDS,
    COUNT_CONTEXTS,
    COUNT_WORK,
    DIRECT,
    G_AUTOMATON,
    G_TOKEN_IDS,
    IDLE,
    J_DIRTY,
    J_GRAMMAR,
    J_KEY_HIGH,
    J_KEY_LOW,
    J_LIST,
    J_PATH_LENGTH,
    J_STAGE,
    J_UNFINISHED,
    J_VOCABULARY,
    S_ARENA,
    S_FAILED,
    S_USED,
    S_WORK,
    TRIE,
)
from .machine import AT_TOKEN_START, AT_TOKEN_SYMBOL, flags_of
from .memory import load_i32, load_i64, section, store_i64
from .path import CONFIG_COST, add_tokens, set_bit
from .trie import V_NODE, V_ROOT

#: Words of an entry of B_JOB_CONFIGS here: the block of the heads, and the scratch in use once it was made.
_BLOCK, _USED = 2, 3
#: What `run_stack_walk` returns where a limit of the stack graph was passed, so that there is no mask.
FAILED = -2


@helper
def _entry(batch, depth):  # type: ignore[no-untyped-def]
    return load_i64(batch, B_JOB_CONFIGS) + 8 * CONFIG_WORDS * depth


@helper
def _step(batch, grammar, automaton, graph, depth, byte):  # type: ignore[no-untyped-def]
    """Extend the path by one byte: entry `depth` -> entry `depth + 1`. Returns the work, negative where it dies."""
    # Where nothing may follow there are no heads to count, so looking itself is a unit of work.
    before = load_i64(graph, S_WORK)
    store_i64(graph, S_USED, load_i64(_entry(batch, depth), _USED))
    n = reach_byte_graph(automaton, graph, load_i64(_entry(batch, depth), _BLOCK), byte)
    if n == 0:
        return before - load_i64(graph, S_WORK) - 1
    block = close_graph(grammar, automaton, graph, n)
    entry = _entry(batch, depth + 1)
    store_i64(entry, _BLOCK, block)
    store_i64(entry, _USED, load_i64(graph, S_USED))
    return CONFIG_COST + load_i64(graph, S_WORK) - before


@helper
def begin_stack_walk(batch, grammar, vocabulary, arena, block, low, high):  # type: ignore[no-untyped-def]
    """Begin the mask of the heads in `block` of the arena at address `arena`."""
    job = load_i64(batch, B_JOB)
    graph = load_i64(batch, B_JOB_GRAPH)
    total = load_i64(batch, B_JOB_TOTAL)
    automaton = load_i64(grammar, G_AUTOMATON)
    for word in range(load_i64(batch, B_WORDS)):
        store_i64(total, word, 0)
    store_i64(job, J_DIRTY, 1)
    store_i64(graph, S_ARENA, arena)
    store_i64(graph, S_FAILED, 0)
    store_i64(graph, S_USED, 0)
    entry = _entry(batch, 0)
    store_i64(entry, _BLOCK, block)
    store_i64(entry, _USED, 0)
    heads = block_at(graph, block)
    starts = section(automaton, AT_TOKEN_START)
    ids = load_i64(grammar, G_TOKEN_IDS)
    for i in range(load_i64(heads, BLOCK_COUNT)):
        state = load_i64(heads, BLOCK_TRIPLES + 3 * i + 1)
        if flags_of(automaton, state) & HAS_TOKENS:
            for edge in range(load_i32(starts, state), load_i32(starts, state + 1)):
                set_bit(total, load_i32(ids, load_i32(section(automaton, AT_TOKEN_SYMBOL), edge)))
    store_i64(job, J_STAGE, TRIE)
    store_i64(job, J_KEY_LOW, low)
    store_i64(job, J_KEY_HIGH, high)
    store_i64(job, J_GRAMMAR, grammar)
    store_i64(job, J_VOCABULARY, vocabulary)
    store_i64(job, J_LIST, DIRECT)
    store_i64(job, J_PATH_LENGTH, -1)
    count(batch, COUNT_CONTEXTS, 1)


@kernel("int64(int64, int64)")
def run_stack_walk(batch, fuel):  # type: ignore[no-untyped-def]
    """Go on with the job. Returns the fuel left (the mask is in B_JOB_TOTAL, the job idle), -1 (no fuel) or FAILED."""
    job = load_i64(batch, B_JOB)
    grammar = load_i64(job, J_GRAMMAR)
    vocabulary = load_i64(job, J_VOCABULARY)
    automaton = load_i64(grammar, G_AUTOMATON)
    graph = load_i64(batch, B_JOB_GRAPH)
    total = load_i64(batch, B_JOB_TOTAL)
    table = load_i64(vocabulary, V_NODE)
    children = load_i64(batch, B_JOB_CHILDREN)
    begin = fuel
    depth = load_i64(job, J_PATH_LENGTH)
    packed = load_i64(vocabulary, V_ROOT)
    child = packed >> 32
    end = child + ((packed >> 16) & 0xFFFF)
    if depth >= 0:
        packed = load_i64(children, depth)
        child, end = packed & 0xFFFFFFFF, packed >> 32
    else:
        depth = 0
    store_i64(job, J_UNFINISHED, 0)
    while load_i64(graph, S_FAILED) == 0:
        if child == end:
            if depth == 0:
                break
            depth -= 1
            packed = load_i64(children, depth)
            child, end = packed & 0xFFFFFFFF, packed >> 32
            continue
        if fuel <= 0:
            store_i64(children, depth, child | (end << 32))
            store_i64(job, J_PATH_LENGTH, depth)
            store_i64(job, J_UNFINISHED, 1)
            break
        node = child
        packed = load_i64(table, node)
        child += 1
        work = _step(batch, grammar, automaton, graph, depth, packed & 0xFF)
        fuel -= abs(work)
        if work < 0:
            continue
        add_tokens(vocabulary, node, packed, total)
        if packed & (0xFFFF << 16) != 0:
            store_i64(children, depth, child | (end << 32))
            depth += 1
            child = packed >> 32
            end = child + ((packed >> 16) & 0xFFFF)
    count(batch, COUNT_WORK, begin - fuel)
    if load_i64(graph, S_FAILED):
        store_i64(job, J_STAGE, IDLE)
        return FAILED
    if load_i64(job, J_UNFINISHED):
        return -1
    store_i64(job, J_STAGE, IDLE)
    return max(fuel, 0)
