"""The memory of a batch, laid out once: nothing is allocated in a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .._numba import entry_address
from .advance import advance_rows
from .arena import LEAST_COMPACTED
from .bitmaps import SELECTION_WORDS
from .context_walk import run_context
from .graph_call import graph_call
from .known_rows import REST_FIELDS
from .layout import (
    B_ADVANCE_BYTES,
    B_ADVANCE_ROWS,
    B_ADVANCE_TOKEN,
    B_ARENA_NEXT,
    B_ARENA_USED,
    B_ARENA_WORDS,
    B_ARENAS,
    B_BLOCKED,
    B_CALLED,
    B_CONFIGS,
    B_CONTINUATIONS,
    B_COUNTERS,
    B_DEDUP,
    B_DEDUP_SIZE,
    B_DENSE,
    B_EFFORT,
    B_END_BITS,
    B_END_COUNT,
    B_ENDS,
    B_EPOCH,
    B_FIELDS,
    B_FOUND,
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
    B_JOB_SORTED,
    B_JOB_STATE,
    B_JOB_TOTAL,
    B_JOB_UNDECIDED,
    B_LANES,
    B_LARGE_ARENAS,
    B_LIST_LENGTH,
    B_LIST_OFFSET,
    B_LIST_TOKENS,
    B_LIST_TOKENS_HALF,
    B_LISTS,
    B_MEMO,
    B_MEMO_BUCKETS,
    B_MEMO_NODES,
    B_MIN_TOKENS,
    B_MOVES,
    B_OLDEST,
    B_PAIRS,
    B_PLACES,
    B_PLAN_ROWS,
    B_POSITION,
    B_REQUEST,
    B_REST,
    B_RETURNS,
    B_ROW_FLAGS,
    B_ROW_MASK,
    B_ROW_OF,
    B_RUN_CONTEXT,
    B_RUN_JOB,
    B_RUN_STACK,
    B_SCRATCH,
    B_SET_SCRATCH,
    B_SHARE,
    B_SLOT_GRAMMAR,
    B_SLOTS,
    B_SMALL_ARENAS,
    B_TABLE,
    B_TABLE_AGE,
    B_TABLE_SIZE,
    B_TEXT_START,
    B_TRANSITION_BUCKETS,
    B_TRANSITION_OF,
    B_TRANSITIONS,
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
    IDLE,
    J_FOLLOW,
    J_LEAVING,
    J_LOOP,
    J_MEMO,
    J_SLOT,
    J_SOURCE,
    J_STAGE,
    JOB_WORDS,
    KEY_WORDS,
    LANE_FIELDS,
    LANE_LOOK,
    LANE_OF,
    LANES,
    LEAVING_STATES,
    LEAVING_WORDS,
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
    MEMO_WORDS,
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
from .memo import MAX_STEPS, MEMO_STEPS, STEP_WORDS, STEPS_A_BUCKET
from .memory import Block, room, untouched
from .places import PLACE_WORDS
from .stack_walk import run_stack_walk
from .step import plan_rows
from .transitions import TRANSITION_WORDS, TRANSITIONS, TRANSITIONS_A_BUCKET
from .undecided import SORTED_AT_ONCE
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
) -> tuple[Block, Lanes]:
    """The block of a batch (`layout`'s B_ words), every page of it touched, and its lanes.

    `history`: configurations kept for each slot; `path`: entries of a walk's path; `rows`: dense masks in each half of
    the pool; `stack_words`: words of the arena of each recursive sequence.
    """
    words = tables.words
    lists = max(4096, 4 * slots)
    dedup = 1 << (4 * (rows + lists)).bit_length()
    table = 1 << 16
    arrays: list[tuple[int, npt.NDArray[Any]]] = [
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
        (B_COUNTERS, np.zeros(COUNTERS, np.int64)),
        (B_ARENAS, np.zeros(slots, np.int64)),
        (B_REQUEST, np.zeros(REQUEST_WORDS, np.int64)),
        (B_ARENA_USED, np.zeros(slots, np.int64)),
        (B_ARENA_NEXT, np.zeros(slots, np.int64)),
        (B_MOVES, np.zeros(slots, np.int64)),
        (B_SHARE, np.ones(slots, np.float64)),
        (B_EFFORT, np.zeros(slots, np.int64)),
        (B_ROW_MASK, np.full(slots, -1, np.int64)),
        (B_ROW_FLAGS, np.full(slots, -1, np.int64)),
        (B_ROW_OF, np.full(slots, -1, np.int64)),
        (B_BLOCKED, np.full(slots, -1, np.int64)),
        (B_ADVANCE_TOKEN, np.full(slots, -1, np.int32)),
        (B_ADVANCE_BYTES, np.zeros(slots, np.int64)),
        (B_MEMO, np.zeros((MEMO_STEPS // STEPS_A_BUCKET, STEPS_A_BUCKET, STEP_WORDS), np.int64)),
        (B_MEMO_NODES, np.zeros(MAX_STEPS, np.int64)),
        (B_PLACES, np.full((slots, 2, PLACE_WORDS), -1, np.int64)),
        (B_TRANSITION_OF, np.zeros(slots, np.int64)),
        (B_END_BITS, np.zeros(slots, np.int64)),
        (B_REST, np.zeros((REST_FIELDS, slots), np.int32)),
        (B_FOUND, np.zeros(16, np.int64)),
        (B_TRANSITIONS, np.zeros((TRANSITIONS, TRANSITION_WORDS), np.int64)),
        *job_arrays(tables, path),
    ]
    block = Block.packed(B_FIELDS, arrays)
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
        (B_ADVANCE_ROWS, entry_address(advance_rows)),
        (B_PLAN_ROWS, entry_address(plan_rows)),
        (B_TABLE_AGE, 1),
        (B_GRAPH_CALL, entry_address(graph_call)),
        (B_ARENA_WORDS, stack_words),
        (B_MEMO_BUCKETS, MEMO_STEPS // STEPS_A_BUCKET),
        (B_TRANSITION_BUCKETS, TRANSITIONS // TRANSITIONS_A_BUCKET),
    ):
        block.set_number(field, number)
    return block, Lanes(block, tables, path)


def job_arrays(tables: VocabularyTables, path: int) -> list[tuple[int, npt.NDArray[Any]]]:
    """What one unfinished mask needs."""
    words = tables.words
    return [
        (B_JOB, np.zeros(JOB_WORDS, np.int64)),
        (B_JOB_UNDECIDED, np.zeros(words, np.int64)),
        (B_JOB_RANKS, np.zeros(tables.rank_words, np.int64)),
        (B_JOB_STATE, np.zeros(path, np.int64)),
        (B_JOB_REGISTER, np.zeros(path, np.int64)),
        (B_JOB_CONFIGS, np.zeros((path, CONFIG_WORDS), np.int64)),
        (B_JOB_SETS, np.zeros(path, np.int64)),
        (B_JOB_LIST, np.zeros(SORTED_AT_ONCE + 128, np.int32)),
        (B_JOB_CHILDREN, np.zeros(path, np.int64)),
        (B_JOB_TOTAL, np.zeros(words, np.int64)),
        (B_JOB_SELECTION, np.zeros(SELECTION_WORDS, np.int64)),
    ]


class Lanes:
    """What the lanes of a batch have for themselves (`masks.lanes`): each a job, and all of them what they visit.

    `block`: the batch's, whose own fields are those of the lane of the oldest between two calls.
    """

    def __init__(self, block: Block, tables: VocabularyTables, path: int) -> None:
        self._block = block
        slots, words = int(block.header[B_SLOTS]), int(block.header[B_ARENA_WORDS])
        self._vocabulary, self._path, self._lazy_words = tables, path, 0
        #: Blocks whose fields are those of each lane; a look has no job.
        self._lanes = (block, Block.packed(B_FIELDS, job_arrays(tables, path)), Block(B_FIELDS))
        # Those of the table for what is made ahead, if there is one.
        self._ahead: tuple[Block, ...] = ()
        self._ahead_table = np.zeros((LANES, LANE_FIELDS), np.int64)
        #: Where the stack of each slot's sequence is, if it has one, int64[slots][LEAST_COMPACTED], every page touched;
        #: and where it goes on if it outgrows that, int64[slots][B_ARENA_WORDS].
        self.small_arenas = room(8 * LEAST_COMPACTED * slots).view(np.int64).reshape(slots, LEAST_COMPACTED)
        self.small_arenas[:] = 0
        self.large_arenas = untouched(slots, words)
        block.set_array(B_SMALL_ARENAS, self.small_arenas)
        block.set_array(B_LARGE_ARENAS, self.large_arenas.ctypes.data + 8 * words * np.arange(slots, dtype=np.int64))
        # Room for stepping stack graphs: the rows' own, and one of each lane with a job.
        self._graphs = [_graph(words)]
        block.set_number(B_GRAPH, self._graphs[0].address)
        self._parts: list[list[npt.NDArray[np.int64]]] = []
        for lane in self._lanes[:LANE_LOOK]:
            self._give_parts(lane)
            self._give_graph(lane)
        for lane in self._lanes:
            self._give_visits(lane)
        block.set_array(B_LANES, np.zeros((LANES, LANE_FIELDS), np.int64))
        self._link()

    def _give_parts(self, lane: Block) -> None:
        """What a job points to."""
        sizes = (CONFIG_WORDS, 4, 2 * LOOP_WORDS, MEMO_WORDS, LEAVING_STATES * LEAVING_WORDS)
        parts = [np.zeros(n, np.int64) for n in sizes]
        self._parts.append(parts)
        for field, part in zip((J_SOURCE, J_FOLLOW, J_LOOP, J_MEMO, J_LEAVING), parts, strict=True):
            lane.arrays[B_JOB][field] = part.ctypes.data

    @property
    def _with_jobs(self) -> tuple[Block, ...]:
        return (*self._lanes[:LANE_LOOK], *self._ahead[:1])

    def _link(self) -> None:
        """Write the lanes' addresses for kernels. What is unfinished is forgotten."""
        self._write(self._block.arrays[B_LANES], self._lanes)
        if self._ahead:
            self._write(self._ahead_table, self._ahead)
        self.drop()

    def _write(self, table: npt.NDArray[np.int64], lanes: tuple[Block, ...]) -> None:
        for number, lane in enumerate(lanes):
            for i, field in enumerate(LANE_OF):
                source = lane if field in lane.arrays or lane.header[field] else self._block
                if field in source.arrays:
                    source.header[field] = source.arrays[field].ctypes.data
                table[number, i] = source.header[field]

    def drop(self) -> None:
        """Forget what is unfinished."""
        for lane in (*self._lanes[:LANE_LOOK], *self._ahead[:LANE_LOOK]):
            lane.arrays[B_JOB][J_STAGE] = IDLE
            lane.arrays[B_JOB][J_SLOT] = -1

    def give_ahead(self) -> int:
        """Address of other lanes, as in B_LANES, in which masks are made ahead without a loss of what is unfinished.

        The lane of the oldest has a job, and that of the cheapest never gets one. Kept, and changed with the others.
        """
        if not self._ahead:
            idle = Block(B_FIELDS)
            idle.set_array(B_JOB, np.zeros(JOB_WORDS, np.int64))
            own = Block.packed(B_FIELDS, job_arrays(self._vocabulary, self._path))
            self._give_parts(own)
            self._ahead = (own, idle, self._lanes[LANE_LOOK])
            if self._lazy_words:
                own.set_array(B_JOB_SETS, np.zeros((self._path, self._lazy_words), np.int64))
            self._give_graph(own)
            self._give_visits(own)
            self._link()
        return int(self._ahead_table.ctypes.data)

    def give_sets(self, path: int, lazy_words: int) -> None:
        """Room for state sets of so many words along a path."""
        self._lazy_words = lazy_words
        for lane in self._with_jobs:
            lane.set_array(B_JOB_SETS, np.zeros((path, lazy_words), np.int64))
        self._block.set_array(B_SET_SCRATCH, np.zeros((2, lazy_words), np.int64))
        self._link()

    def _give_graph(self, lane: Block) -> None:
        graph = _graph(MAX_EDGES)
        self._graphs.append(graph)
        lane.set_number(B_JOB_GRAPH, graph.address)
        lane.set_array(B_JOB_EVENTS, _touched(MAX_EVENTS))
        lane.set_array(B_JOB_KEYS, _touched(MAX_KEYS, KEY_WORDS))
        lane.set_array(B_JOB_SORTED, _touched(MAX_EVENTS).view(np.int32)[:MAX_EVENTS])

    def _give_visits(self, lane: Block) -> None:
        for field, shape in (
            (B_PAIRS, (MAX_PAIRS, PAIR_WORDS)),
            (B_CALLED, (MAX_CALLED, CALLED_WORDS)),
            (B_RETURNS, (MAX_RETURNS, RETURN_WORDS)),
            (B_CONTINUATIONS, (MAX_CONTINUATIONS, CONTINUATION_WORDS)),
            (B_VISIT, (VISIT_WORDS,)),
        ):
            lane.set_array(field, _touched(*shape))


def _touched(*shape: int) -> npt.NDArray[np.int64]:
    array = np.zeros(shape, np.int64)
    array += 0
    return array


def _graph(stack: int) -> Block:
    """Room for stepping a stack graph; `stack` numbers of blocks."""
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
        graph.set_array(part, _touched(*shape))
    return graph
