"""The memory of a batch, laid out once: nothing is allocated in a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .._numba import entry_address
from .bitmaps import SELECTION_WORDS
from .context_walk import run_context
from .graph_call import graph_call
from .layout import (
    B_ARENA_USED,
    B_ARENA_WORDS,
    B_ARENAS,
    B_CALLED,
    B_CONFIGS,
    B_CONTINUATIONS,
    B_COUNTERS,
    B_DEDUP,
    B_DEDUP_SIZE,
    B_DENSE,
    B_END_COUNT,
    B_ENDS,
    B_EPOCH,
    B_FIELDS,
    B_GRAPH,
    B_GRAPH_CALL,
    B_HALF,
    B_HISTORY,
    B_JOB,
    B_JOB_CHILDREN,
    B_JOB_CONFIGS,
    B_JOB_EVENTS,
    B_JOB_GRAPH,
    B_JOB_KEYS,
    B_JOB_LIST,
    B_JOB_RANKS,
    B_JOB_REGISTER,
    B_JOB_SELECTION,
    B_JOB_SETS,
    B_JOB_STATE,
    B_JOB_TOTAL,
    B_JOB_UNDECIDED,
    B_LIST_LENGTH,
    B_LIST_OFFSET,
    B_LIST_TOKENS,
    B_LIST_TOKENS_HALF,
    B_LISTS,
    B_MIN_TOKENS,
    B_OLDEST,
    B_PAIRS,
    B_POSITION,
    B_REQUEST,
    B_RETURNS,
    B_RUN_CONTEXT,
    B_RUN_JOB,
    B_RUN_STACK,
    B_SCRATCH,
    B_SET_SCRATCH,
    B_SLOT_GRAMMAR,
    B_SLOTS,
    B_TABLE,
    B_TABLE_SIZE,
    B_TEXT_START,
    B_VISIT,
    B_VOCABULARY,
    B_VOCABULARY_START,
    B_WAITING,
    B_WORDS,
    CALLED_WORDS,
    CONFIG_WORDS,
    CONTINUATION_WORDS,
    COUNTERS,
    EDGE_WORDS,
    FRESH_WORDS,
    J_FOLLOW,
    J_LOOP,
    J_SOURCE,
    JOB_WORDS,
    KEY_WORDS,
    LOOP_PARTS,
    LOOP_WORDS,
    MAX_CALLED,
    MAX_CONTINUATIONS,
    MAX_EDGES,
    MAX_ENDS,
    MAX_EVENTS,
    MAX_FRESH,
    MAX_GRAPH_HEADS,
    MAX_KEYS,
    MAX_PAIRS,
    MAX_RETURNS,
    MAX_UNDECIDED,
    PAIR_WORDS,
    REQUEST_WORDS,
    RETURN_WORDS,
    S_EDGES,
    S_FIELDS,
    S_FRESH,
    S_HEADS,
    S_REACHED,
    S_SCRATCH,
    S_STACK,
    S_TRIPLES,
    SCRATCH_BLOCK_WORDS,
    SCRATCH_WORDS,
    VISIT_WORDS,
)
from .memory import Block
from .stack_walk import run_stack_walk
from .walk import run_job

if TYPE_CHECKING:
    from .trie import VocabularyTables


def batch_block(
    tables: VocabularyTables,
    start_tables: VocabularyTables,
    slots: int,
    history: int,
    path: int,
    rows: int,
    stack_words: int,
) -> tuple[Block, tuple[npt.NDArray[np.int64], ...]]:
    """The block of a batch (`layout`'s B_ words), every page of it touched, and the parts that its job points to.

    `history`: configurations kept for each slot; `path`: entries of a walk's path; `rows`: dense masks in each half of
    the pool; `stack_words`: words of the arena of each recursive sequence.
    """
    words = tables.words
    lists = max(4096, 4 * slots)
    dedup = 1 << (4 * (rows + lists)).bit_length()
    table = 1 << 15
    block = Block(B_FIELDS)
    for field, number in (
        (B_VOCABULARY, tables.address),
        (B_VOCABULARY_START, start_tables.address),
        (B_WORDS, words),
        (B_SLOTS, slots),
        (B_HISTORY, history),
        (B_EPOCH, 1),
        (B_HALF, rows),
        (B_LISTS, lists),
        (B_LIST_TOKENS_HALF, 256 * lists),
        (B_DEDUP_SIZE, dedup),
        (B_TABLE_SIZE, table),
        (B_RUN_JOB, entry_address(run_job)),
        (B_RUN_CONTEXT, entry_address(run_context)),
        (B_RUN_STACK, entry_address(run_stack_walk)),
        (B_GRAPH_CALL, entry_address(graph_call)),
        (B_ARENA_WORDS, stack_words),
    ):
        block.set_number(field, number)
    for field, array in (
        (B_SLOT_GRAMMAR, np.zeros(slots, np.int64)),
        (B_CONFIGS, np.zeros((slots, history, CONFIG_WORDS), np.int64)),
        (B_POSITION, np.zeros(slots, np.int64)),
        (B_OLDEST, np.zeros(slots, np.int64)),
        (B_WAITING, np.zeros(slots, np.int64)),
        (B_ENDS, np.full((slots, MAX_ENDS), -1, np.int32)),
        (B_END_COUNT, np.zeros(slots, np.int32)),
        (B_MIN_TOKENS, np.zeros(slots, np.int64)),
        (B_TEXT_START, np.zeros(slots, np.uint8)),
        (B_DENSE, np.zeros((2 * rows, 2 * words), np.uint32)),
        (B_LIST_OFFSET, np.zeros(2 * lists, np.int32)),
        (B_LIST_LENGTH, np.zeros(2 * lists, np.int32)),
        (B_LIST_TOKENS, np.zeros(2 * 256 * lists, np.int32)),
        (B_DEDUP, np.zeros((dedup, 2), np.int64)),
        (B_TABLE, np.zeros((table, 4), np.int64)),
        (B_SCRATCH, np.zeros(max(SCRATCH_WORDS, words), np.int64)),
        (B_SET_SCRATCH, np.zeros(2, np.int64)),
        (B_JOB, np.zeros(JOB_WORDS, np.int64)),
        (B_JOB_UNDECIDED, np.zeros(words, np.int64)),
        (B_JOB_RANKS, np.zeros(tables.rank_words, np.int64)),
        (B_JOB_STATE, np.zeros(path, np.int64)),
        (B_JOB_REGISTER, np.zeros(path, np.int64)),
        (B_JOB_CONFIGS, np.zeros((path, CONFIG_WORDS), np.int64)),
        (B_JOB_SETS, np.zeros(path, np.int64)),
        (B_JOB_LIST, np.zeros(MAX_UNDECIDED + 64, np.int32)),
        (B_JOB_CHILDREN, np.zeros(path, np.int64)),
        (B_JOB_TOTAL, np.zeros(words, np.int64)),
        (B_JOB_SELECTION, np.zeros(SELECTION_WORDS, np.int64)),
        (B_COUNTERS, np.zeros(COUNTERS, np.int64)),
        (B_ARENAS, np.zeros(slots, np.int64)),
        (B_REQUEST, np.zeros(REQUEST_WORDS, np.int64)),
        (B_ARENA_USED, np.zeros(slots, np.int64)),
    ):
        array += 0  # touch every page now rather than in a step
        block.set_array(field, array)
    block.pack()
    job = block.arrays[B_JOB]
    parts = (np.zeros(CONFIG_WORDS, np.int64), np.zeros(4, np.int64), np.zeros(LOOP_PARTS * LOOP_WORDS, np.int64))
    for field, part in zip((J_SOURCE, J_FOLLOW, J_LOOP), parts, strict=True):
        job[field] = part.ctypes.data
    return block, parts


def graph_blocks(block: Block) -> list[Block]:
    """Give the block of a batch room for stepping stack graphs: for accepting, and for the mask being computed."""
    graphs = []
    words = int(block.header[B_ARENA_WORDS])
    for field, stack in ((B_GRAPH, words), (B_JOB_GRAPH, MAX_EDGES)):
        graph = Block(S_FIELDS)
        for part, shape in (
            (S_SCRATCH, (SCRATCH_BLOCK_WORDS,)),
            (S_REACHED, (MAX_GRAPH_HEADS, 3)),
            (S_HEADS, (MAX_GRAPH_HEADS, 3)),
            (S_TRIPLES, (MAX_EDGES, 3)),
            (S_EDGES, (MAX_EDGES, EDGE_WORDS)),
            (S_FRESH, (MAX_FRESH, FRESH_WORDS)),
            (S_STACK, (max(stack, MAX_EDGES) + MAX_FRESH,)),
        ):
            array = np.zeros(shape, np.int64)
            array += 0
            graph.set_array(part, array)
        graphs.append(graph)
        block.set_number(field, graph.address)
    for field, shape in (
        (B_PAIRS, (MAX_PAIRS, PAIR_WORDS)),
        (B_CALLED, (MAX_CALLED, CALLED_WORDS)),
        (B_RETURNS, (MAX_RETURNS, RETURN_WORDS)),
        (B_CONTINUATIONS, (MAX_CONTINUATIONS, CONTINUATION_WORDS)),
        (B_VISIT, (VISIT_WORDS,)),
        (B_JOB_EVENTS, (MAX_EVENTS,)),
        (B_JOB_KEYS, (MAX_KEYS, KEY_WORDS)),
    ):
        array = np.zeros(shape, np.int64)
        array += 0
        block.set_array(field, array)
    return graphs
