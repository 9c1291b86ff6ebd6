"""A compiled grammar in one batch: what the kernels read of it, and the masks found so far."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from .._numba import kernel
from ..grammar.automaton import COUNTER, FINAL, H_LAZY_STATES, HAS_CALLS, RECURSIVE
from .context_memory import ContextMemory
from .layout import (
    G_AUTOMATON,
    G_BOUNDARY,
    G_CALL_STAMPS,
    G_FIELDS,
    G_FRAME_STAMPS,
    G_KINDS,
    G_LAZY_CAPACITY,
    G_LAZY_HASH,
    G_LAZY_LOOP,
    G_LAZY_MASK,
    G_LAZY_SETS,
    G_LAZY_TABLE,
    G_LAZY_TABLE_SIZE,
    G_LAZY_UNUSED,
    G_LAZY_WORDS,
    G_LIBRARY,
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
    G_SPREAD_BYTES,
    G_SPREAD_GROUP,
    G_STATE_MASK,
    G_TOKEN_IDS,
    KIND_BYTES,
    KIND_COUNT,
    KIND_FIRST,
    KIND_NEXT,
    KIND_OF,
    KIND_WORDS,
)
from .loop_class import exact_loops, spread_bytes
from .machine import AT_EDGES, AT_FRAME_KIND, AT_FRAME_START, AT_STATE_FLAGS, delta
from .memory import Block, load_i32, load_u8, section
from .prepare import lazy_loops, loop_members
from .ready import only_start
from .spelling import live_bytes
from .trie import tables_of

if TYPE_CHECKING:
    from .compiled import CompiledGrammar

#: Memory for interned state sets of one lazy grammar in one batch, bytes; past it those in use are kept.
LAZY_BYTES = 64 << 20


@kernel("void(int64, int64, uint8[::1])", allocates=True)
def _single_items(automaton, n_states, single):  # type: ignore[no-untyped-def]
    """Set `single` at the frames that are counters whose items are one code point each."""
    starts, kinds = section(automaton, AT_FRAME_START), section(automaton, AT_FRAME_KIND)
    edges, flags = section(automaton, AT_EDGES), section(automaton, AT_STATE_FLAGS)
    seen = np.zeros(0, np.int32)
    turn = 0
    for frame in range(len(single)):
        if load_u8(kinds, frame) != COUNTER:
            continue
        if len(seen) == 0:
            seen = np.zeros(n_states, np.int32)
            level = np.empty(n_states, np.int32)
            after = np.empty(n_states, np.int32)
        start = load_i32(starts, frame)
        good = load_u8(flags, start) & HAS_CALLS == 0
        for more in range(4):
            level[0] = start
            count = 1
            for step in range(more + 1):
                low, high = 0, 255
                if step == 0:
                    low = 0 if more == 0 else 0xC2 if more == 1 else 0xE0 if more == 2 else 0xF0
                    high = 0x7F if more == 0 else 0xDF if more == 1 else 0xEF if more == 2 else 0xF4
                turn += 1
                found = 0
                for i in range(count):
                    state = level[i]
                    if step > 0 and load_u8(flags, state) & (FINAL | HAS_CALLS) != 0:
                        good = False
                    for byte in range(low, high + 1):
                        target = delta(automaton, state, byte)
                        if target >= 0 and seen[target] != turn:
                            seen[target] = turn
                            after[found] = target
                            found += 1
                level, after = after, level
                count = found
            for i in range(count):
                state = level[i]
                if load_u8(flags, state) & (FINAL | HAS_CALLS) != FINAL or load_i32(edges, state) != -1:
                    good = False
        single[frame] = 1 if good else 0


@kernel("void(uint8[::1], uint8[::1], int64[::1])", allocates=True)
def _byte_kinds(byte_class, single_byte, words):  # type: ignore[no-untyped-def]
    """Set the words of G_KINDS: the byte classes, and behind them each byte of a state with one edge by itself."""
    alone = np.zeros(256, np.uint8)
    for k in range(len(single_byte)):
        alone[single_byte[k]] = 1
    number = np.full(512, -1, np.int64)
    for b in range(256):
        number[256 + b if alone[b] else byte_class[b]] = 0
    count = 0
    for k in range(512):
        if number[k] == 0:
            number[k] = count
            count += 1
    words[KIND_COUNT] = count
    for b in range(255, -1, -1):
        kind = number[256 + b if alone[b] else byte_class[b]]
        words[KIND_OF + b] = kind
        words[KIND_FIRST + kind] = b
        alike = b < 255 and words[KIND_OF + b + 1] == kind
        words[KIND_NEXT + b] = words[KIND_NEXT + b + 1] if alike else b + 1
        words[KIND_BYTES + 4 * kind + (b >> 6)] |= np.int64(1) << np.int64(b & 63)


class Resident:
    """One compiled grammar's block in one batch. `users` counts the sequences that hold it.

    `contexts`: memory for the contexts of a recursive grammar. Given some, it is that of a grammar that is gone, kept
    here for the next one where this one has no use for it.
    """

    def __init__(
        self, compiled: CompiledGrammar, number: int, words: int, contexts: ContextMemory | None = None
    ) -> None:
        self.contexts = contexts
        automaton = compiled.automaton
        tables = tables_of(compiled.vocabulary)
        block = Block(G_FIELDS)
        block.set_number(G_AUTOMATON, automaton.address)
        block.set_number(G_NUMBER, number)
        block.set_array(G_TOKEN_IDS, np.append(compiled.token_ids, np.int32(-1)))
        block.set_array(G_STATE_MASK, np.full(max(automaton.n_states, 1), -1, np.int64))
        single = np.zeros(max(len(automaton["frame_start"]), 1), np.uint8)
        if len(automaton["frame_start"]):
            _single_items(automaton.address, automaton.n_states, single)
        block.set_array(G_SINGLE, single)
        kinds = np.zeros(KIND_WORDS, np.int64)
        _byte_kinds(automaton["byte_class"], automaton["single_byte"], kinds)
        block.set_array(G_KINDS, kinds)
        block.set_array(G_LIVE, np.packbits(live_bytes(automaton), bitorder="little").view(np.int64).copy())
        bounds = automaton["loop_start"]
        if len(bounds) > 1:
            parts = [automaton["loop_ranges"][2 * a : 2 * b] for a, b in itertools.pairwise(bounds)]
            above = [part.reshape(-1, 2) for part in parts]
            sizes = np.array([np.maximum(r[:, 1] - np.maximum(r[:, 0], 0x80) + 1, 0).sum() for r in above], np.int64)
            # A class of ASCII alone says no more than which bytes stay.
            nothing = np.zeros((2, words), np.int64)
            members = [loop_members(tables, part) if n else nothing for part, n in zip(parts, sizes, strict=True)]
            counts = [int(np.bitwise_count(m[0].view(np.uint64)).sum()) for m in members]
            block.set_array(G_LOOP_SIZE, np.array(counts, np.int32))
            block.set_array(G_LOOP_EXACT, exact_loops(automaton, sizes))
            group, entries = spread_bytes(automaton)
            if len(entries):
                block.set_array(G_SPREAD_GROUP, group)
                block.set_array(G_SPREAD_BYTES, entries)
            block.set_array(G_LOOP_BITS, np.stack(members))
        if compiled.boundary is not None:
            block.set_array(G_BOUNDARY, compiled.boundary)
        ready = compiled.ready
        if ready is None and compiled.start_tokens is not None:
            ready = only_start(automaton, compiled.start_tokens, words)
        if ready is not None:
            block.set_array(G_READY_START, ready.bounds)
            block.set_array(G_READY_TOKENS, ready.tokens)
            block.set_array(G_READY_DENSE, ready.dense_row)
            block.set_array(G_READY_ROWS, ready.rows)
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
            block.set_array(G_LAZY_UNUSED, np.zeros(capacity, np.int32))
            block.set_array(G_LAZY_HASH, np.zeros(capacity, np.int64))
            loops = np.zeros((positions, 3), np.int64)
            scratch = np.zeros((5, self.lazy_words), np.int64)
            lazy_loops(automaton.address, self.lazy_words, scratch.ctypes.data, loops)
            block.set_array(G_LAZY_LOOP, loops)
        if compiled.library:
            library = np.zeros((len(automaton["frame_start"]), 2), np.int64)
            library[:, 1] = np.searchsorted(automaton["state_frame"], np.arange(len(library)))
            for frame, entry in compiled.library:
                library[frame, 0] = entry.address
            block.set_array(G_LIBRARY, library)
        if automaton.flags & RECURSIVE:
            block.set_array(G_FRAME_STAMPS, np.zeros(len(automaton["frame_start"]), np.int64))
            calls = len(automaton["call_frame"])
            block.set_array(G_CALL_STAMPS, np.zeros(1 + calls + len(automaton["operation_bit"]), np.int64))
            self.contexts = self.contexts or ContextMemory()
            self.contexts.give(block)
        self.block = block
        self.compiled = compiled
        self.users = 0
