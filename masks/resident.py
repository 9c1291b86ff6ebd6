"""A compiled grammar in one batch: what the kernels read of it, and the masks found so far."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from ..grammar.automaton import H_LAZY_STATES, RECURSIVE
from .class_members import class_members
from .context_memory import ContextMemory
from .describe import describe
from .layout import (
    G_AUTOMATON,
    G_BOUNDARY,
    G_CALL_STAMPS,
    G_FIELDS,
    G_FRAME_STAMPS,
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
    G_LOOP_BITS,
    G_LOOP_SIZE,
    G_NUMBER,
    G_READY_DENSE,
    G_READY_ROWS,
    G_READY_START,
    G_READY_TOKENS,
    G_TOKEN_IDS,
)
from .memory import Block
from .prepare import lazy_loops
from .ready import only_start
from .trie import tables_of

if TYPE_CHECKING:
    from .compiled import CompiledGrammar

#: Memory for interned state sets of one lazy grammar in one batch, bytes; past it those in use are kept.
LAZY_BYTES = 64 << 20


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
        named = len(compiled.token_ids)
        token_ids, *_ = block.add_zeros((G_TOKEN_IDS, named + 1, np.int32))
        token_ids[:named], token_ids[named] = compiled.token_ids, -1
        sizes = describe(block, automaton).tolist()
        if sizes:
            bounds = automaton["loop_start"].tolist()
            addresses, counts = block.add_zeros(
                (G_LOOP_BITS, len(sizes), np.int64), (G_LOOP_SIZE, len(sizes), np.int32)
            )
            for k, (size, (begin, end)) in enumerate(zip(sizes, itertools.pairwise(bounds), strict=True)):
                if size:  # a class of ASCII alone says no more than which bytes stay
                    members = class_members(tables, automaton["loop_ranges"][2 * begin : 2 * end])
                    addresses[k], counts[k] = members.address, members.made
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
            calls = 1 + len(automaton["call_frame"]) + len(automaton["operation_bit"])
            block.add_zeros((G_FRAME_STAMPS, len(automaton["frame_start"]), np.int64), (G_CALL_STAMPS, calls, np.int64))
            self.contexts = self.contexts or ContextMemory()
            self.contexts.give(block)
        self.block = block
        self.compiled = compiled
        self.users = 0
