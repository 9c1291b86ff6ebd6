"""What kernels ask of an automaton besides its sections: found in one call when a grammar comes to a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._numba import allocating_helper, kernel
from ..grammar.automaton import COUNTER, FINAL, H_LAZY_STATES, H_N_CLASSES, H_N_FRAMES, H_N_LOOPS, HAS_CALLS
from .layout import (
    G_KINDS,
    G_LIVE,
    G_LOOP_EXACT,
    G_SINGLE,
    G_SPREAD_BYTES,
    G_SPREAD_GROUP,
    G_STATE_MASK,
    KIND_BYTES,
    KIND_COUNT,
    KIND_FIRST,
    KIND_NEXT,
    KIND_OF,
    KIND_WORDS,
)
from .loop_class import find_exact, find_spread
from .machine import (
    AT_BYTE_CLASS,
    AT_DENSE,
    AT_EDGES,
    AT_FRAME_KIND,
    AT_FRAME_START,
    AT_LAZY_EDGE_START,
    AT_LAZY_EDGES,
    AT_LOOP_RANGES,
    AT_LOOP_START,
    AT_SINGLE_BYTE,
    AT_STATE_FLAGS,
    delta,
)
from .memory import load_i32, load_i64, load_u8, section

if TYPE_CHECKING:
    import numpy.typing as npt

    from ..grammar.automaton import Automaton
    from .memory import Block


@allocating_helper
def _single_items(automaton, n_states, single):  # type: ignore[no-untyped-def]
    """Set `single` at the frames that are counters whose items are one code point each."""
    starts, kinds = section(automaton, AT_FRAME_START), section(automaton, AT_FRAME_KIND)
    edges, flags = section(automaton, AT_EDGES), section(automaton, AT_STATE_FLAGS)
    seen = np.zeros(0, np.int32)
    turn = 0
    for frame in range(load_i64(automaton, H_N_FRAMES)):
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


@allocating_helper
def _byte_kinds(automaton, n_states, words):  # type: ignore[no-untyped-def]
    """Set the words of G_KINDS: the byte classes, and behind them each byte of a state with one edge by itself."""
    edges, single_byte = section(automaton, AT_EDGES), section(automaton, AT_SINGLE_BYTE)
    byte_class = section(automaton, AT_BYTE_CLASS)
    alone = np.zeros(256, np.uint8)
    for state in range(n_states):
        edge = load_i32(edges, state)
        if edge < -1:
            alone[load_u8(single_byte, -2 - edge)] = 1
    number = np.full(512, -1, np.int64)
    for b in range(256):
        number[256 + b if alone[b] else load_u8(byte_class, b)] = 0
    count = 0
    for k in range(512):
        if number[k] == 0:
            number[k] = count
            count += 1
    words[KIND_COUNT] = count
    for b in range(255, -1, -1):
        kind = number[256 + b if alone[b] else load_u8(byte_class, b)]
        words[KIND_OF + b] = kind
        words[KIND_FIRST + kind] = b
        alike = b < 255 and words[KIND_OF + b + 1] == kind
        words[KIND_NEXT + b] = words[KIND_NEXT + b + 1] if alike else b + 1
        words[KIND_BYTES + 4 * kind + (b >> 6)] |= np.int64(1) << np.int64(b & 63)


@allocating_helper
def _find_live(automaton, n_states, live):  # type: ignore[no-untyped-def]
    """Set the bits in `live`, int64[4], of the bytes on any edge."""
    edges, dense = section(automaton, AT_EDGES), section(automaton, AT_DENSE)
    n_classes = load_i64(automaton, H_N_CLASSES)
    classes = np.zeros(256, np.uint8)
    for state in range(n_states):
        row = load_i32(edges, state)
        if row >= 0:
            for c in range(n_classes):
                classes[c] |= np.uint8(load_i32(dense, row * n_classes + c) >= 0)
        elif row < -1:
            byte = load_u8(section(automaton, AT_SINGLE_BYTE), -2 - row)
            live[byte >> 6] |= np.int64(1) << np.int64(byte & 63)
    positions = load_i64(automaton, H_LAZY_STATES)
    lazy_edges = section(automaton, AT_LAZY_EDGES)
    for k in range(load_i32(section(automaton, AT_LAZY_EDGE_START), positions) if positions > 0 else 0):
        for c in range(load_i32(lazy_edges, 3 * k), load_i32(lazy_edges, 3 * k + 1) + 1):
            classes[c] = 1
    for byte in range(256):
        if classes[load_u8(section(automaton, AT_BYTE_CLASS), byte)]:
            live[byte >> 6] |= np.int64(1) << np.int64(byte & 63)


@kernel("void(int64, int64, int64[::1])", allocates=True)
def _live_bytes(automaton, n_states, live):  # type: ignore[no-untyped-def]
    _find_live(automaton, n_states, live)


def live_bytes(automaton: Automaton) -> npt.NDArray[np.bool_]:
    """bool[256]: the bytes on any edge."""
    live = np.zeros(4, np.int64)
    _live_bytes(automaton.address, automaton.n_states, live)
    return np.unpackbits(live.view(np.uint8), bitorder="little").view(np.bool_)


@kernel(
    "(int64, int64, uint8[::1], int64[::1], int64[::1], int64[::1], uint8[::1], int32[::1], int64[::1])",
    allocates=True,
)
def _describe(  # type: ignore[no-untyped-def]
    automaton, n_states, single, kinds, live, masks, exact, group, sizes
):
    """Fill the arrays of `describe`; returns that of G_SPREAD_BYTES."""
    _single_items(automaton, n_states, single)
    _byte_kinds(automaton, n_states, kinds)
    _find_live(automaton, n_states, live)
    for k in range(len(masks)):
        masks[k] = -1
    for k in range(len(group)):
        group[k] = -1
    ranges, bounds = section(automaton, AT_LOOP_RANGES), section(automaton, AT_LOOP_START)
    for k in range(len(sizes)):
        for i in range(load_i32(bounds, k), load_i32(bounds, k + 1)):
            sizes[k] += max(0, load_i32(ranges, 2 * i + 1) - max(load_i32(ranges, 2 * i), 0x80) + 1)
    find_exact(automaton, sizes, exact)
    return find_spread(automaton, len(sizes), exact, group)


def describe(block: Block, automaton: Automaton) -> npt.NDArray[np.int64]:
    """Give a grammar's block what is found out of its automaton alone, and its masks, none of them known.

    Returns how many code points above U+007F each loop class has.
    """
    n_states, n_loops = automaton.n_states, int(automaton.header[H_N_LOOPS])
    states = n_states if n_loops else 0
    single, kinds, live, masks, exact, group = block.add_zeros(
        (G_SINGLE, max(len(automaton["frame_start"]), 1), np.uint8),
        (G_KINDS, KIND_WORDS, np.int64),
        (G_LIVE, 4, np.int64),
        (G_STATE_MASK, max(n_states, 1), np.int64),
        (G_LOOP_EXACT, states, np.uint8),
        (G_SPREAD_GROUP, states, np.int32),
    )
    sizes = np.zeros(n_loops, np.int64)
    entries = _describe(automaton.address, n_states, single, kinds, live, masks, exact, group, sizes)
    if len(entries):
        block.set_array(G_SPREAD_BYTES, entries)
    return sizes
