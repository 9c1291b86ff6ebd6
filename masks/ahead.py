"""Rows of a step, fetched into the caches while the rows before them are served.

A forward pass, or a sampler that reads a batch's logits, leaves nothing of the rows in the caches. What one row reads
lies in up to 25 cache lines, most of which tell where the next one is; served one row after the other, each of them is
waited for. So each row asks for the lines of rows after it, in stages: its place (`masks.places`), then the mask that
is known there. Where that is not enough: what its slot says, then what its configuration and its grammar say, then what
its state says, then where that leads to. A stage reads only what an earlier one has fetched. Nothing is
changed, and nothing else depends on it.
"""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import H_FLAGS, H_N_CLASSES, LAZY, RECURSIVE
from .history import config_at
from .layout import (
    B_ADVANCE_BYTES,
    B_ADVANCE_TOKEN,
    B_ARENA_NEXT,
    B_ARENA_USED,
    B_ARENAS,
    B_EFFORT,
    B_END_COUNT,
    B_ENDS,
    B_MIN_TOKENS,
    B_MOVES,
    B_OLDEST,
    B_POSITION,
    B_ROW_FLAGS,
    B_ROW_MASK,
    B_ROW_OF,
    B_SLOT_GRAMMAR,
    B_VOCABULARY,
    B_WAITING,
    BLOCK_TRIPLES,
    CONFIG_BLOCK,
    CONFIG_FIRST_HEAD,
    CONFIG_HEADS,
    G_AUTOMATON,
    G_FRAME_STAMPS,
    G_STAMP,
    G_STATE_MASK,
    HEAD_STATES,
    MAX_ENDS,
)
from .machine import (
    AT_BYTE_CLASS,
    AT_CALL_FRAME,
    AT_CALL_START,
    AT_CALL_TARGET,
    AT_DENSE,
    AT_EDGES,
    AT_FRAME_KIND,
    AT_FRAME_MAXIMUM,
    AT_FRAME_MINIMUM,
    AT_FRAME_START,
    AT_SINGLE_BYTE,
    AT_SINGLE_TARGET,
    AT_STATE_FLAGS,
    AT_STATE_FRAME,
)
from .memory import load_i32, load_i64, prefetch, section
from .places import PLACE_LOW, current_place, place_at
from .pool import entry_at
from .trie import V_SIZE, V_TOKEN_BYTES, V_TOKEN_START, V_TOKEN_TEXT

#: Rows between two stages: long enough for a line to come, and few enough that it is still there.
DISTANCE = 3
#: Stages: one for the arrays that have a number for each slot, then two for places.
STAGES = 7
#: So many rows before the first one, fetching begins.
LEAD = STAGES * DISTANCE
#: Arrays of 8 bytes a slot, and of 4, that are read or written for every row.
OF_SLOTS = (
    B_SLOT_GRAMMAR, B_POSITION, B_MOVES, B_ROW_MASK, B_ROW_FLAGS, B_WAITING, B_EFFORT, B_MIN_TOKENS, B_ROW_OF, B_ARENAS,
    B_ARENA_USED, B_ARENA_NEXT, B_OLDEST, B_ADVANCE_BYTES,
)  # fmt: skip


@helper
def _fetch_lines(address, first, last):  # type: ignore[no-untyped-def]
    """The cache lines of the words `first` to `last` at an address."""
    for word in range(first, last + 8, 8):
        prefetch(address + 8 * word)


@helper
def _fetch_slot(grammar, vocabulary, config, following, token):  # type: ignore[no-untyped-def]
    """What the slot says: its configuration, the place of the next one, its grammar, the token."""
    prefetch(config)
    prefetch(following)
    prefetch(grammar)
    prefetch(grammar + 8 * G_STAMP)
    if token >= 0:
        prefetch(load_i64(vocabulary, V_TOKEN_START) + 8 * token)
        prefetch(load_i64(vocabulary, V_TOKEN_TEXT) + token)


@helper
def _fetch_grammar(grammar, vocabulary, config, arena, used, token):  # type: ignore[no-untyped-def]
    """What the configuration and the grammar say: the automaton's header, the stack's last block, the token's bytes."""
    _fetch_lines(load_i64(grammar, G_AUTOMATON), 0, AT_FRAME_MAXIMUM)
    if arena != 0:
        prefetch(arena + 8 * load_i64(config, CONFIG_BLOCK))
        prefetch(arena + 8 * used)
        prefetch(load_i64(grammar, G_FRAME_STAMPS))
    if token >= 0:
        prefetch(load_i64(vocabulary, V_TOKEN_BYTES) + load_i64(load_i64(vocabulary, V_TOKEN_START), token))


@helper
def _fetch_state(grammar, automaton, arena, block, state):  # type: ignore[no-untyped-def]
    """What the state of the first head says, and the frames: most grammars have few."""
    if block != 0:
        prefetch(arena + 8 * load_i64(block, BLOCK_TRIPLES))  # the node that it is in
    else:
        prefetch(load_i64(grammar, G_STATE_MASK) + 8 * state)
    prefetch(section(automaton, AT_EDGES) + 4 * state)
    prefetch(section(automaton, AT_STATE_FLAGS) + state)
    prefetch(section(automaton, AT_STATE_FRAME) + 4 * state)
    prefetch(section(automaton, AT_CALL_START) + 4 * state)
    prefetch(section(automaton, AT_FRAME_KIND))
    prefetch(section(automaton, AT_FRAME_START))
    prefetch(section(automaton, AT_FRAME_MINIMUM))
    prefetch(section(automaton, AT_FRAME_MAXIMUM))
    _fetch_lines(section(automaton, AT_BYTE_CLASS), 4, 15)  # of ASCII's punctuation and letters


@helper
def _fetch_edges(automaton, state):  # type: ignore[no-untyped-def]
    """Where the edges and calls of that state lead to."""
    edge = load_i32(section(automaton, AT_EDGES), state)
    if edge >= 0:
        prefetch(section(automaton, AT_DENSE) + 4 * edge * load_i64(automaton, H_N_CLASSES))
    else:
        prefetch(section(automaton, AT_SINGLE_BYTE) - 2 - edge)
        prefetch(section(automaton, AT_SINGLE_TARGET) + 4 * (-2 - edge))
    call = load_i32(section(automaton, AT_CALL_START), state)
    prefetch(section(automaton, AT_CALL_FRAME) + 4 * call)
    prefetch(section(automaton, AT_CALL_TARGET) + 4 * call)


@helper
def begins_line(slots, row, slot):  # type: ignore[no-untyped-def]
    """Is a slot's number, in an array of 8 bytes a slot, in another line than that of the row before?"""
    return row == 0 or slot & 7 == 0 or load_i32(slots, row - 1) != slot - 1


@helper
def _fetch_numbers(batch, slot):  # type: ignore[no-untyped-def]
    """The arrays that have a number for each slot."""
    for i in range(len(OF_SLOTS)):
        prefetch(load_i64(batch, OF_SLOTS[i]) + 8 * slot)
    prefetch(load_i64(batch, B_ADVANCE_TOKEN) + 4 * slot)
    prefetch(load_i64(batch, B_END_COUNT) + 4 * slot)


@helper
def fetch_rows(batch, slots, tokens, first, row, rows):  # type: ignore[no-untyped-def]
    """Ask for what the next rows after number `row` of int32[rows] at `slots` read, with the tokens at `tokens` (or 0).

    To be called for each row in turn, from -LEAD on. Rows are numbered from `first` on, as if in a circle.
    """
    vocabulary = load_i64(batch, B_VOCABULARY)
    positions = load_i64(batch, B_POSITION)
    for stage in range(STAGES):
        at = row + (STAGES - stage) * DISTANCE
        slot = -1
        if 0 <= at < rows:
            at += first
            if at >= rows:
                at -= rows
            slot = load_i32(slots, at)
        if slot < 0:
            continue
        if stage == 0:
            if begins_line(slots, at, slot):
                _fetch_numbers(batch, slot)
            continue
        if tokens == 0 and load_i64(load_i64(batch, B_ROW_FLAGS), slot) >= 0:
            continue  # its mask came with its last token
        if stage == 1:
            place = place_at(batch, slot, load_i64(positions, slot))
            prefetch(place)
            if tokens != 0:
                prefetch(load_i64(batch, B_ENDS) + 4 * MAX_ENDS * slot)
                following = place_at(batch, slot, load_i64(positions, slot) + 1)
                prefetch(following)
                prefetch(following + 64)
            continue
        grammar = load_i64(load_i64(batch, B_SLOT_GRAMMAR), slot)
        if grammar == 0:
            continue
        token = -1
        if tokens != 0:
            token = load_i32(tokens, at)
            if token >= load_i64(vocabulary, V_SIZE):
                token = -1
        if tokens == 0:
            place = current_place(batch, slot)
            if place != 0 and load_i64(place, PLACE_LOW) != 0:  # where its mask is found, if it is there
                if stage == 2:
                    prefetch(entry_at(batch, load_i64(place, PLACE_LOW)))
                continue
        if stage == 2:
            continue
        position = load_i64(positions, slot)
        config = config_at(batch, slot, position)
        arena = load_i64(load_i64(batch, B_ARENAS), slot)
        if stage == 3:
            _fetch_slot(grammar, vocabulary, config, config_at(batch, slot, position + 1), token)
            continue
        if stage == 4:
            _fetch_grammar(grammar, vocabulary, config, arena, load_i64(load_i64(batch, B_ARENA_USED), slot), token)
            continue
        automaton = load_i64(grammar, G_AUTOMATON)
        flags = load_i64(automaton, H_FLAGS)
        if load_i64(config, CONFIG_HEADS) == 0 or flags & LAZY:
            continue
        block = 0
        state = load_i64(config, CONFIG_FIRST_HEAD + HEAD_STATES)
        if flags & RECURSIVE:
            block = arena + 8 * load_i64(config, CONFIG_BLOCK)
            state = load_i64(block, BLOCK_TRIPLES + 1)
        if stage == 5:
            _fetch_state(grammar, automaton, arena, block, state)
        else:
            _fetch_edges(automaton, state)
