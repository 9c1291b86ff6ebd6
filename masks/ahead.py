"""Rows of a step, fetched into the caches while the rows before them are served.

A forward pass, or a sampler that reads a batch's logits, leaves nothing of the rows in the caches. What one row reads
lies in some 25 cache lines, most of which tell where the next one is; served one row after the other, each of them is
waited for. So each row asks for the lines of rows after it, in four stages: what its slot says, then what its
configuration and its grammar say, then what its state says, then where that leads to. A stage reads only what an
earlier one has fetched. Nothing is changed, and nothing else depends on it.
"""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import H_FLAGS, H_N_CLASSES, LAZY, RECURSIVE
from .history import config_at
from .layout import (
    B_ARENA_USED,
    B_ARENAS,
    B_POSITION,
    B_SLOT_GRAMMAR,
    B_VOCABULARY,
    BLOCK_TRIPLES,
    CONFIG_BLOCK,
    CONFIG_FIRST_HEAD,
    CONFIG_HEADS,
    G_AUTOMATON,
    G_FRAME_STAMPS,
    G_STAMP,
    G_STATE_MASK,
    HEAD_STATES,
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
from .memory import fetch, load_i32, load_i64, section
from .trie import V_SIZE, V_TOKEN_BYTES, V_TOKEN_START, V_TOKEN_TEXT

#: Rows between two stages: long enough for a line to come, and few enough that it is still there.
DISTANCE = 4
#: Bytes of a cache line.
_LINE = 64


@helper
def _fetch_lines(address, first, last):  # type: ignore[no-untyped-def]
    """The cache lines of the words `first` to `last` at an address."""
    for word in range(first, last + 8, 8):
        fetch(address + 8 * word)


@helper
def _fetch_slot(batch, slot, token):  # type: ignore[no-untyped-def]
    """What the slot says: its configuration, the place of the next one, its grammar, the token."""
    grammar = load_i64(load_i64(batch, B_SLOT_GRAMMAR), slot)
    if grammar == 0:
        return
    position = load_i64(load_i64(batch, B_POSITION), slot)
    fetch(config_at(batch, slot, position))
    fetch(config_at(batch, slot, position + 1))
    fetch(grammar)
    fetch(grammar + 8 * G_STAMP)
    vocabulary = load_i64(batch, B_VOCABULARY)
    if 0 <= token < load_i64(vocabulary, V_SIZE):
        fetch(load_i64(vocabulary, V_TOKEN_START) + 8 * token)
        fetch(load_i64(vocabulary, V_TOKEN_TEXT) + token)


@helper
def _fetch_grammar(batch, slot, token):  # type: ignore[no-untyped-def]
    """What the configuration and the grammar say: the automaton's header, the stack's last block, the token's bytes."""
    grammar = load_i64(load_i64(batch, B_SLOT_GRAMMAR), slot)
    if grammar == 0:
        return
    automaton = load_i64(grammar, G_AUTOMATON)
    _fetch_lines(automaton, 0, AT_FRAME_MAXIMUM)
    arena = load_i64(load_i64(batch, B_ARENAS), slot)
    if arena != 0:
        config = config_at(batch, slot, load_i64(load_i64(batch, B_POSITION), slot))
        fetch(arena + 8 * load_i64(config, CONFIG_BLOCK))
        fetch(arena + 8 * load_i64(load_i64(batch, B_ARENA_USED), slot))
        fetch(load_i64(grammar, G_FRAME_STAMPS))
    vocabulary = load_i64(batch, B_VOCABULARY)
    if 0 <= token < load_i64(vocabulary, V_SIZE):
        fetch(load_i64(vocabulary, V_TOKEN_BYTES) + load_i64(load_i64(vocabulary, V_TOKEN_START), token))


@helper
def _first_state(batch, slot, grammar):  # type: ignore[no-untyped-def]
    """State of the slot's first head, and address of the block of its stack's last node or 0; -1: none."""
    config = config_at(batch, slot, load_i64(load_i64(batch, B_POSITION), slot))
    flags = load_i64(load_i64(grammar, G_AUTOMATON), H_FLAGS)
    if load_i64(config, CONFIG_HEADS) == 0 or flags & LAZY:
        return -1, 0
    if flags & RECURSIVE == 0:
        return load_i64(config, CONFIG_FIRST_HEAD + HEAD_STATES), 0
    arena = load_i64(load_i64(batch, B_ARENAS), slot)
    block = arena + 8 * load_i64(config, CONFIG_BLOCK)
    return load_i64(block, BLOCK_TRIPLES + 1), arena + 8 * load_i64(block, BLOCK_TRIPLES)


@helper
def _fetch_state(batch, slot):  # type: ignore[no-untyped-def]
    """What the state of the first head says, and the frames: most grammars have few."""
    grammar = load_i64(load_i64(batch, B_SLOT_GRAMMAR), slot)
    if grammar == 0:
        return
    state, node = _first_state(batch, slot, grammar)
    if state < 0:
        return
    if node != 0:
        fetch(node)
    else:
        fetch(load_i64(grammar, G_STATE_MASK) + 8 * state)
    automaton = load_i64(grammar, G_AUTOMATON)
    fetch(section(automaton, AT_EDGES) + 4 * state)
    fetch(section(automaton, AT_STATE_FLAGS) + state)
    fetch(section(automaton, AT_STATE_FRAME) + 4 * state)
    fetch(section(automaton, AT_CALL_START) + 4 * state)
    fetch(section(automaton, AT_FRAME_KIND))
    fetch(section(automaton, AT_FRAME_START))
    fetch(section(automaton, AT_FRAME_MINIMUM))
    fetch(section(automaton, AT_FRAME_MAXIMUM))
    _fetch_lines(section(automaton, AT_BYTE_CLASS), 4, 15)  # of ASCII's punctuation and letters


@helper
def _fetch_edges(batch, slot):  # type: ignore[no-untyped-def]
    """Where the edges and calls of that state lead to."""
    grammar = load_i64(load_i64(batch, B_SLOT_GRAMMAR), slot)
    if grammar == 0:
        return
    state, _ = _first_state(batch, slot, grammar)
    if state < 0:
        return
    automaton = load_i64(grammar, G_AUTOMATON)
    edge = load_i32(section(automaton, AT_EDGES), state)
    if edge >= 0:
        fetch(section(automaton, AT_DENSE) + 4 * edge * load_i64(automaton, H_N_CLASSES))
    else:
        fetch(section(automaton, AT_SINGLE_BYTE) - 2 - edge)
        fetch(section(automaton, AT_SINGLE_TARGET) + 4 * (-2 - edge))
    call = load_i32(section(automaton, AT_CALL_START), state)
    fetch(section(automaton, AT_CALL_FRAME) + 4 * call)
    fetch(section(automaton, AT_CALL_TARGET) + 4 * call)


@helper
def fetch_rows(batch, slots, tokens, row, rows):  # type: ignore[no-untyped-def]
    """Ask for what the next rows after number `row` of int32[rows] at `slots` read, with the tokens at `tokens` (or 0).

    To be called for each row in turn.
    """
    for stage in range(4):
        at = row + (4 - stage) * DISTANCE
        if at < rows:
            slot = load_i32(slots, at)
            if slot >= 0:
                token = -1
                if tokens != 0:
                    token = load_i32(tokens, at)
                if stage == 0:
                    _fetch_slot(batch, slot, token)
                elif stage == 1:
                    _fetch_grammar(batch, slot, token)
                elif stage == 2:
                    _fetch_state(batch, slot)
                else:
                    _fetch_edges(batch, slot)
