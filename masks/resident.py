"""A compiled grammar in one batch: what the kernels read of it, and the masks found so far."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..grammar.automaton import COUNTER, H_LAZY_STATES, RECURSIVE, Automaton
from .layout import (
    CONTEXT_WORDS,
    G_AUTOMATON,
    G_BOUNDARY,
    G_CALL_STAMPS,
    G_CONTEXT_TABLE,
    G_CONTEXTS,
    G_FIELDS,
    G_FRAME_STAMPS,
    G_ITEMS,
    G_KINDS,
    G_LAZY_CAPACITY,
    G_LAZY_LOOP,
    G_LAZY_MASK,
    G_LAZY_RENAMED,
    G_LAZY_SETS,
    G_LAZY_TABLE,
    G_LAZY_TABLE_SIZE,
    G_LAZY_WORDS,
    G_LIST_NODES,
    G_LIST_TABLE,
    G_LISTS,
    G_LIVE,
    G_LOOP_BITS,
    G_LOOP_EXACT,
    G_LOOP_SIZE,
    G_NUMBER,
    G_READY_DENSE,
    G_READY_ROWS,
    G_READY_START,
    G_READY_TOKENS,
    G_SINGLE,
    G_STATE_MASK,
    G_TOKEN_IDS,
    ITEM_WORDS,
    KIND_BYTES,
    KIND_COUNT,
    KIND_FIRST,
    KIND_OF,
    KIND_WORDS,
    LIST_WORDS,
    MAX_CONTEXTS,
    MAX_ITEMS,
    MAX_LIST_NODES,
    MAX_LISTS,
)
from .memory import Block
from .prepare import exact_loops, lazy_loops, loop_members
from .spelling import live_bytes
from .trie import tables_of

if TYPE_CHECKING:
    from .compiled import CompiledGrammar

#: Memory for interned state sets of one lazy grammar in one batch, bytes; past it those in use are kept.
LAZY_BYTES = 64 << 20


def _single_items(automaton: Automaton) -> npt.NDArray[np.uint8]:
    """For each frame: is it a counter whose items are one code point each?"""
    frames = len(automaton["frame_start"])
    single = np.zeros(max(frames, 1), np.uint8)
    edges, dense, flags = automaton["edges"], automaton["dense"], automaton["state_flags"]
    classes = automaton["byte_class"]

    def targets(state: int, low: int, high: int) -> list[int]:
        edge = int(edges[state])
        if edge == -1:
            return []
        if edge <= -2:
            byte = int(automaton["single_byte"][-2 - edge])
            return [int(automaton["single_target"][-2 - edge])] if low <= byte <= high else []
        row = dense[edge * automaton.n_classes : (edge + 1) * automaton.n_classes]
        found = np.unique(row[np.unique(classes[low : high + 1])])
        return [int(t) for t in found if t >= 0]

    for frame in range(frames):
        if automaton["frame_kind"][frame] != COUNTER:
            continue
        good = True
        for low, high, more in ((0, 0x7F, 0), (0xC2, 0xDF, 1), (0xE0, 0xEF, 2), (0xF0, 0xF4, 3)):
            level = targets(int(automaton["frame_start"][frame]), low, high)
            for _ in range(more):
                good = good and not any(flags[s] & 3 for s in level)
                level = sorted({t for s in level for t in targets(s, 0, 255)})
            good = good and all(flags[s] & 1 and not flags[s] & 2 and edges[s] == -1 for s in level)
        good = good and not flags[automaton["frame_start"][frame]] & 2
        single[frame] = good
    return single


def _byte_kinds(automaton: Automaton) -> npt.NDArray[np.int64]:
    """The words of G_KINDS: the byte classes, and each byte of a state with one edge by itself."""
    kind = automaton["byte_class"].astype(np.int64)
    singles = np.flatnonzero(np.bincount(automaton["single_byte"], minlength=256))
    kind[singles] = 256 + singles
    _, first, kind = np.unique(kind, return_index=True, return_inverse=True)
    words = np.zeros(KIND_WORDS, np.int64)
    words[KIND_COUNT] = len(first)
    words[KIND_OF:KIND_FIRST] = kind
    words[KIND_FIRST : KIND_FIRST + len(first)] = first
    members = np.packbits(kind == np.arange(len(first))[:, None], axis=1, bitorder="little")
    words[KIND_BYTES : KIND_BYTES + 4 * len(first)] = members.view(np.int64).reshape(-1)
    return words


class Resident:
    """One compiled grammar's block in one batch. `users` counts the sequences that hold it."""

    def __init__(self, compiled: CompiledGrammar, number: int, words: int) -> None:
        automaton = compiled.automaton
        tables = tables_of(compiled.vocabulary)
        block = Block(G_FIELDS)
        block.set_number(G_AUTOMATON, automaton.address)
        block.set_number(G_NUMBER, number)
        block.set_array(G_TOKEN_IDS, np.append(compiled.token_ids, np.int32(-1)))
        block.set_array(G_STATE_MASK, np.full(max(automaton.n_states, 1), -1, np.int64))
        block.set_array(G_SINGLE, _single_items(automaton))
        block.set_array(G_KINDS, _byte_kinds(automaton))
        block.set_array(G_LIVE, np.packbits(live_bytes(automaton), bitorder="little").view(np.int64).copy())
        bounds = automaton["loop_start"]
        if len(bounds) > 1:
            members = [
                loop_members(tables, automaton["loop_ranges"][2 * a : 2 * b]) for a, b in itertools.pairwise(bounds)
            ]
            sizes = np.zeros(len(bounds) - 1, np.int64)
            for i, (a, b) in enumerate(itertools.pairwise(bounds)):
                ranges = automaton["loop_ranges"][2 * a : 2 * b].reshape(-1, 2)
                sizes[i] = np.maximum(ranges[:, 1] - np.maximum(ranges[:, 0], 0x80) + 1, 0).sum()
            counts = [int(np.bitwise_count(m[0].view(np.uint64)).sum()) for m in members]
            block.set_array(G_LOOP_SIZE, np.array(counts, np.int32))
            exact = np.zeros(automaton.n_states, np.uint8)
            exact_loops(automaton.address, automaton.n_states, sizes, exact)
            block.set_array(G_LOOP_EXACT, exact)
            block.set_array(G_LOOP_BITS, np.stack(members))
        if compiled.boundary is not None:
            block.set_array(G_BOUNDARY, compiled.boundary)
        if compiled.ready is not None:
            block.set_array(G_READY_START, compiled.ready.bounds)
            block.set_array(G_READY_TOKENS, compiled.ready.tokens)
            block.set_array(G_READY_DENSE, compiled.ready.dense_row)
            block.set_array(G_READY_ROWS, compiled.ready.rows)
        positions = int(automaton.header[H_LAZY_STATES])
        self.lazy_words = -(-positions // 64)
        if positions:
            capacity = max(1024, min(65536, LAZY_BYTES // (8 * self.lazy_words)))
            block.set_number(G_LAZY_WORDS, self.lazy_words)
            block.set_number(G_LAZY_CAPACITY, capacity)
            block.set_array(G_LAZY_SETS, np.zeros((capacity, self.lazy_words), np.int64))
            block.set_array(G_LAZY_TABLE, np.full(2 * capacity, -1, np.int32))
            block.set_number(G_LAZY_TABLE_SIZE, 2 * capacity)
            block.set_array(G_LAZY_MASK, np.full(capacity, -1, np.int64))
            block.set_array(G_LAZY_RENAMED, np.zeros(capacity, np.int32))
            loops = np.zeros((positions, 3), np.int64)
            scratch = np.zeros((5, self.lazy_words), np.int64)
            lazy_loops(automaton.address, self.lazy_words, scratch.ctypes.data, loops)
            block.set_array(G_LAZY_LOOP, loops)
        if automaton.flags & RECURSIVE:
            block.set_array(G_FRAME_STAMPS, np.zeros(len(automaton["frame_start"]), np.int64))
            calls = len(automaton["call_frame"])
            for field, array in (
                (G_CONTEXTS, np.zeros((MAX_CONTEXTS, CONTEXT_WORDS), np.int64)),
                (G_CONTEXT_TABLE, np.full(2 * MAX_CONTEXTS, -1, np.int32)),
                (G_LISTS, np.zeros((MAX_LISTS, LIST_WORDS), np.int64)),
                (G_LIST_TABLE, np.full(2 * MAX_LISTS, -1, np.int32)),
                (G_ITEMS, np.zeros((MAX_ITEMS, ITEM_WORDS), np.int64)),
                (G_LIST_NODES, np.zeros(MAX_LIST_NODES, np.int32)),
                (G_CALL_STAMPS, np.zeros(1 + calls + len(automaton["operation_bit"]), np.int64)),
            ):
                block.set_array(field, array)
        self.block = block
        self.compiled = compiled
        self.users = 0
