"""What is computed once a grammar meets a vocabulary: what loops in lazy automata, and the masks built ahead."""

from __future__ import annotations

import numpy as np

from .._numba import helper, kernel
from ..grammar.automaton import HAS_TOKENS
from .layout import (
    B_JOB_TOTAL,
    B_RUN_JOB,
    B_SCRATCH,
    B_VOCABULARY,
    B_WORDS,
    CONFIG_FIRST_HEAD,
    CONFIG_FLAGS,
    CONFIG_HEADS,
    G_AUTOMATON,
    G_TOKEN_IDS,
    HEAD_DEPTH,
    HEAD_REGISTERS,
    HEAD_STATES,
    MAX_LIST,
    WORK_CONFIG_WORDS,
)
from .lazy import lazy_step
from .machine import (
    AT_BYTE_CLASS,
    AT_EDGES,
    AT_LAZY_EDGE_START,
    AT_LAZY_EDGES,
    AT_TOKEN_START,
    AT_TOKEN_SYMBOL,
    AT_TOKEN_TARGET,
    delta,
    flags_of,
)
from .memory import call_kernel, count_bits, count_trailing_zeros, load_i32, load_i64, load_u8, section, store_i64
from .trie import V_TOKEN_BYTES, V_TOKEN_START, V_TOKEN_TEXT
from .walk import begin_job


@helper
def _returns(automaton, words, sets, level, low, high, more, position):  # type: ignore[no-untyped-def]
    """Does every string of 1 + `more` continuation bytes, the first in low..high, lead from set `level` to `position`?

    Bytes of one class do the same, so one of each run is tried.
    """
    source = sets + 8 * words * level
    target = sets + 8 * words * (level + 1)
    classes = section(automaton, AT_BYTE_CLASS)
    previous = -1
    for byte in range(low, high + 1):
        column = load_u8(classes, byte)
        if column == previous:
            continue
        previous = column
        if lazy_step(automaton, source, words, byte, target) < 0:
            return False
        if more == 0:
            if (load_i64(target, position >> 6) >> (position & 63)) & 1 == 0:
                return False
        else:
            second = -1
            for inner in range(0x80, 0xC0):
                inner_column = load_u8(classes, inner)
                if inner_column == second:
                    continue
                second = inner_column
                third = sets + 8 * words * (level + 2)
                if lazy_step(automaton, target, words, inner, third) < 0:
                    return False
                if more == 1:
                    if (load_i64(third, position >> 6) >> (position & 63)) & 1 == 0:
                        return False
                    continue
                last = -1
                for end in range(0x80, 0xC0):
                    end_column = load_u8(classes, end)
                    if end_column == last:
                        continue
                    last = end_column
                    fourth = sets + 8 * words * (level + 3)
                    if lazy_step(automaton, third, words, end, fourth) < 0:
                        return False
                    if (load_i64(fourth, position >> 6) >> (position & 63)) & 1 == 0:
                        return False
    return True


@helper
def _text_returns(automaton, words, sets, position):  # type: ignore[no-untyped-def]
    """Do all code points above U+007F lead from set 0 to `position`?"""
    reached = sets + 8 * words
    previous = -1
    for lead in range(0xC2, 0xF5):
        column = load_u8(section(automaton, AT_BYTE_CLASS), lead)
        low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
        high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
        more = 0 if lead < 0xE0 else 1 if lead < 0xF0 else 2
        kind = (column << 20) | (low << 12) | (high << 4) | more
        if kind != previous:
            previous = kind
            if lazy_step(automaton, sets, words, lead, reached) < 0 or not _returns(
                automaton, words, sets, 1, low, high, more, position
            ):
                return False
    return True


@helper
def _borrow(automaton, words, sets, loops, position, other):  # type: ignore[no-untyped-def]
    """Give `position` the part of `other`'s loop whose first character leads there; returns its ASCII bytes."""
    for word in range(words):
        store_i64(sets, word, 0)
    store_i64(sets, position >> 6, 1 << (position & 63))
    reached = sets + 8 * words
    loops[position, 0] = 0
    loops[position, 1] = 0
    total = 0
    for byte in range(128):
        if (loops[other, byte >> 6] >> np.int64(byte & 63)) & 1 == 0:
            continue
        if (
            lazy_step(automaton, sets, words, byte, reached) >= 0
            and (load_i64(reached, other >> 6) >> (other & 63)) & 1 != 0
        ):
            loops[position, byte >> 6] |= np.int64(1) << np.int64(byte & 63)
            total += 1
    loops[position, 2] = 1 if loops[other, 2] != 0 and _text_returns(automaton, words, sets, other) else 0
    return total


@kernel("void(int64, int64, int64, int64[:, ::1])")
def lazy_loops(automaton, words, sets, loops):  # type: ignore[no-untyped-def]
    """loops[p] = (2 words of ASCII bytes, 1 if all other code points) on which position p leads back to itself.

    `sets`: address of int64[5][words] scratch.
    """
    one = np.int64(1)
    starts = section(automaton, AT_LAZY_EDGE_START)
    edges = section(automaton, AT_LAZY_EDGES)
    classes = section(automaton, AT_BYTE_CLASS)
    for position in range(loops.shape[0]):
        for edge in range(load_i32(starts, position), load_i32(starts, position + 1)):
            if load_i32(edges, 3 * edge + 2) == position:
                for byte in range(128):
                    if load_i32(edges, 3 * edge) <= load_u8(classes, byte) <= load_i32(edges, 3 * edge + 1):
                        loops[position, byte >> 6] |= one << np.int64(byte & 63)
        whole = loops[position, 0] != 0 or loops[position, 1] != 0
        if whole:
            for word in range(words):
                store_i64(sets, word, 0)
            store_i64(sets, position >> 6, one << np.int64(position & 63))
        whole = whole and _text_returns(automaton, words, sets, position)
        loops[position, 2] = 1 if whole else 0
    # A position without a loop of its own may lead to one that has: the start of `.*` does.
    for position in range(loops.shape[0]):
        if loops[position, 0] != 0 or loops[position, 1] != 0:
            continue
        best = 0
        for edge in range(load_i32(starts, position), load_i32(starts, position + 1)):
            other = load_i32(edges, 3 * edge + 2)
            if other != position and count_bits(loops[other, 0]) + count_bits(loops[other, 1]) > best:
                best = _borrow(automaton, words, sets, loops, position, other)


@kernel("int64(int64, int64, int64, int32[::1], int32[:, ::1], int32[::1], int32[::1], int64[:, ::1], int64, int64)")
def build_ready(batch, grammar, start, queue, bounds, tokens, dense_row, rows, most, work):  # type: ignore[no-untyped-def]
    """Masks of all states in which a token can end, breadth first from `start`: the complete token-level DFA.

    `bounds` int32[states][2] and `dense_row` int32[states] (-1 at first; -2 marks a queued state) say where the mask
    of a state is, in `tokens` or `rows`. Returns the number of states with masks, or -1 where `most` of them, the
    room, or `work` do not suffice.
    """
    automaton = load_i64(grammar, G_AUTOMATON)
    vocabulary = load_i64(batch, B_VOCABULARY)
    words = load_i64(batch, B_WORDS)
    starts = load_i64(vocabulary, V_TOKEN_START)
    data = load_i64(vocabulary, V_TOKEN_BYTES)
    text = load_i64(vocabulary, V_TOKEN_TEXT)
    ids = load_i64(grammar, G_TOKEN_IDS)
    symbol_starts = section(automaton, AT_TOKEN_START)
    config = load_i64(batch, B_SCRATCH) + 8 * WORK_CONFIG_WORDS
    queue[0] = start
    dense_row[start] = -2
    done, queued, used, dense = 0, 1, 0, 0
    while done < queued:
        state = queue[done]
        done += 1
        dense_row[state] = -1
        if load_i32(section(automaton, AT_EDGES), state) == -1 and flags_of(automaton, state) & HAS_TOKENS == 0:
            continue
        store_i64(config, CONFIG_HEADS, 1)
        store_i64(config, CONFIG_FLAGS, 0)
        store_i64(config, CONFIG_FIRST_HEAD + HEAD_DEPTH, 1)
        store_i64(config, CONFIG_FIRST_HEAD + HEAD_STATES, state)
        store_i64(config, CONFIG_FIRST_HEAD + HEAD_REGISTERS, 0)
        begin_job(batch, grammar, vocabulary, config, 0, 0)
        left = call_kernel(load_i64(batch, B_RUN_JOB), batch, work)
        if left < 0:
            return -1
        work = left
        mask = load_i64(batch, B_JOB_TOTAL)
        total = 0
        for word in range(words):
            total += count_bits(load_i64(mask, word))
        work -= 4 * total
        if work < 0 or used + total > len(tokens):
            return -1
        bounds[state, 0] = used
        bounds[state, 1] = used
        if total > MAX_LIST:
            if dense == rows.shape[0]:
                return -1
            for word in range(words):
                rows[dense, word] = load_i64(mask, word)
            dense_row[state] = dense
            dense += 1
        else:
            bounds[state, 1] = used + total
        for word in range(words):
            bits = load_i64(mask, word)
            while bits != 0:
                token = 64 * word + count_trailing_zeros(bits)
                bits &= bits - 1
                if total <= MAX_LIST:
                    tokens[used] = token
                    used += 1
                first, last = load_i32(symbol_starts, state), load_i32(symbol_starts, state + 1)
                for edge in range(first - 1, last):
                    target = np.int64(state)
                    if edge >= first:  # what the grammar names has no text, or none that counts here
                        if load_i32(ids, load_i32(section(automaton, AT_TOKEN_SYMBOL), edge)) != token:
                            continue
                        target = np.int64(load_i32(section(automaton, AT_TOKEN_TARGET), edge))
                    elif load_u8(text, token) == 0:
                        continue
                    else:
                        for i in range(load_i64(starts, token), load_i64(starts, token + 1)):
                            if target >= 0:
                                target = delta(automaton, target, load_u8(data, i))
                    if target >= 0 and dense_row[target] == -1 and bounds[target, 0] < 0:
                        if queued == most:
                            return -1
                        dense_row[target] = -2
                        bounds[target, 0] = 0
                        bounds[target, 1] = 0
                        queue[queued] = target
                        queued += 1
    return queued
