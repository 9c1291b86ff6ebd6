"""What a state does on the code points of its loop class: `grammar.loops` says which class that is."""

from __future__ import annotations

import numpy as np

from .._numba import allocating_helper, helper
from ..grammar.automaton import FINAL, H_N_CLASSES, HAS_CALLS, HAS_OPERATIONS, SPREAD
from .layout import G_LOOP_EXACT, G_SPREAD_BYTES, G_SPREAD_GROUP, L_LEAVE, L_STAY
from .machine import (
    AT_BYTE_CLASS,
    AT_DENSE,
    AT_EDGES,
    AT_LOOP_RANGES,
    AT_LOOP_START,
    AT_STATE_FLAGS,
    AT_STATE_FRAME,
    AT_STATE_LOOP,
    delta,
    flags_of,
    restart_of,
)
from .memory import load_i32, load_i64, load_u8, section, store_i64
from .stays import after_byte, local_step

#: Words of an entry of G_SPREAD_BYTES: four of bytes, and 1 where what follows the frame may come next as well.
SPREAD_WORDS = 5

#: Above U+007F, surrogates left out.
CODE_POINTS_ABOVE_ASCII = 0x110000 - 0x80 - 0x800


@helper
def _count_last(automaton, state, known):  # type: ignore[no-untyped-def]
    """Continuation bytes that are alive from `state`; remembered in `known`."""
    if known[state, 0] < 0:
        total = 0
        for byte in range(0x80, 0xC0):
            if delta(automaton, state, byte) >= 0:
                total += 1
        known[state, 0] = total
    return known[state, 0]


@helper
def _count_two(automaton, state, column, low, high, known):  # type: ignore[no-untyped-def]
    """Strings of two continuation bytes, the first in low..high, that are alive from `state`; see `_count_after`."""
    if known[state, column] < 0:
        total = 0
        for byte in range(low, high + 1):
            target = delta(automaton, state, byte)
            if target >= 0:
                total += _count_last(automaton, target, known)
        known[state, column] = total
    return known[state, column]


@helper
def _count_after(automaton, state, lead, known):  # type: ignore[no-untyped-def]
    """Code points that are alive from `state`, to which their first byte `lead` has led.

    Remembered in `known` int32[states, 7], -1 at first: by what may come after the lead.
    """
    if lead < 0xE0:
        return _count_last(automaton, state, known)
    if lead < 0xF0:
        if lead == 0xE0:
            return _count_two(automaton, state, 2, 0xA0, 0xBF, known)
        if lead == 0xED:
            return _count_two(automaton, state, 3, 0x80, 0x9F, known)
        return _count_two(automaton, state, 1, 0x80, 0xBF, known)
    column = 4 if lead == 0xF0 else 5 if lead == 0xF4 else 6
    if known[state, column] < 0:
        total = 0
        for byte in range(0x90 if lead == 0xF0 else 0x80, 0x90 if lead == 0xF4 else 0xC0):
            target = delta(automaton, state, byte)
            if target >= 0:
                total += _count_two(automaton, target, 1, 0x80, 0xBF, known)
        known[state, column] = total
    return known[state, column]


@allocating_helper
def find_exact(automaton, sizes, exact):  # type: ignore[no-untyped-def]
    """exact[s] = 1 where the code points above U+007F that may come next in `s` are those of its loop class alone.

    `sizes`: how many such code points each loop class has. All of them are alive in `s`, so counting suffices.
    """
    known = np.full((0, 7), -1, np.int32)
    for state in range(len(exact)):
        klass = load_i32(section(automaton, AT_STATE_LOOP), state)
        if klass < 0:
            continue
        if sizes[klass] == CODE_POINTS_ABOVE_ASCII:
            exact[state] = 1
            continue
        if len(known) == 0:
            known = np.full((len(exact), 7), -1, np.int32)
        start = restart_of(automaton, state, 0)
        total = 0
        for lead in range(0xC2, 0xF5):
            one = delta(automaton, state, lead)
            if one >= 0:
                total += _count_after(automaton, one, lead, known)
            if start >= 0:
                two = delta(automaton, start, lead)
                if two >= 0:
                    total += _count_after(automaton, two, lead, known)
        exact[state] = 1 if total == sizes[klass] else 0


@allocating_helper
def _add_spread(automaton, begin, end, n_loops, exact, group, entries, n):  # type: ignore[no-untyped-def]
    """`find_spread` for the states begin..end of one frame, of which some are SPREAD; entries from `n` on."""
    loops, flags = section(automaton, AT_STATE_LOOP), section(automaton, AT_STATE_FLAGS)
    edges, dense = section(automaton, AT_EDGES), section(automaton, AT_DENSE)
    n_classes = load_i64(automaton, H_N_CLASSES)
    alive = np.zeros((n_loops, n_classes), np.uint8)
    ends = np.zeros(n_loops, np.uint8)
    least = np.ones(n_loops, np.uint8)
    place = np.full(n_loops, -1, np.int32)
    largest = n_loops
    for state in range(begin, end):
        klass = load_i32(loops, state)
        if klass < 0:
            continue
        largest = min(largest, klass)
        least[klass] &= exact[state]
        own = load_u8(flags, state)
        if own & SPREAD:
            place[klass] = 0
        row = load_i32(edges, state)
        # In other states no string of the class goes on for certain; in these all have dense rows.
        if own & (HAS_CALLS | HAS_OPERATIONS) == 0 and row >= 0:
            for c in range(n_classes):
                alive[klass, c] |= np.uint8(load_i32(dense, row * n_classes + c) >= 0)
            ends[klass] |= np.uint8(own & FINAL != 0)
    for klass in range(n_loops):
        if klass > 0:  # larger classes come first, and smaller ones lead to states of theirs
            for c in range(n_classes):
                alive[klass, c] |= alive[klass - 1, c]
            ends[klass] |= ends[klass - 1]
        if place[klass] == 0:
            if n == len(entries):
                more = np.zeros((2 * n, SPREAD_WORDS), np.int64)
                more[:n] = entries
                entries = more
            place[klass] = n
            for byte in range(256):
                if alive[klass, load_u8(section(automaton, AT_BYTE_CLASS), byte)]:
                    entries[n, byte >> 6] |= np.int64(1) << np.int64(byte & 63)
            entries[n, 4] = ends[klass]
            n += 1
    for state in range(begin, end):
        if load_u8(flags, state) & SPREAD:
            klass = load_i32(loops, state)
            group[state] = place[klass]
            # What its class leads to loops on that too, or on a larger one, whose other code points are alive.
            exact[state] = least[klass] if klass == largest else np.uint8(0)
    return entries, n


@allocating_helper
def find_spread(automaton, n_loops, exact, group):  # type: ignore[no-untyped-def]
    """What may come next after any string of the class of a SPREAD state: int64[groups, SPREAD_WORDS].

    One group for each frame and class, `group` of each SPREAD state (it is -1 before): its states, and those of larger
    classes of the frame, to which these lead. `exact` holds for a SPREAD state where it does for all these.
    """
    frames, flags = section(automaton, AT_STATE_FRAME), section(automaton, AT_STATE_FLAGS)
    entries = np.zeros((4, SPREAD_WORDS), np.int64)
    n = 0
    begin = 0
    while begin < len(group):  # a frame's states stand beside each other
        end = begin
        some = False
        while end < len(group) and load_i32(frames, end) == load_i32(frames, begin):
            some = some or load_u8(flags, end) & SPREAD != 0
            end += 1
        if some:
            entries, n = _add_spread(automaton, begin, end, n_loops, exact, group, entries, n)
        begin = end
    return entries[:n].copy()


@helper
def ends_item(automaton, state, start):  # type: ignore[no-untyped-def]
    """Does each code point that leads to this state end an item that cannot go on?"""
    flags = flags_of(automaton, state)
    if flags & HAS_CALLS:
        return False
    return state == start or (flags & FINAL != 0 and load_i32(section(automaton, AT_EDGES), state) == -1)


@helper
def landing(automaton, state, klass, register):  # type: ignore[no-untyped-def]
    """The one state to which all code points of a class lead from one that loops on it (not SPREAD), itself perhaps."""
    ranges = section(automaton, AT_LOOP_RANGES)
    point = load_i32(ranges, 2 * load_i32(section(automaton, AT_LOOP_START), klass))
    if point < 0x80:
        return local_step(automaton, state, point, register)
    more = 1 if point < 0x800 else 2 if point < 0x10000 else 3
    target = local_step(automaton, state, (0xFF00 >> (more + 1)) & 0xFF | point >> (6 * more), register)
    for i in range(more):
        target = after_byte(automaton, target, 0x80 | (point >> (6 * (more - 1 - i))) & 0x3F)
    return target


@helper
def has_ascii(automaton, klass, low, high):  # type: ignore[no-untyped-def]
    """Are the ASCII bytes in these two words all of a class?"""
    ranges = section(automaton, AT_LOOP_RANGES)
    for i in range(
        load_i32(section(automaton, AT_LOOP_START), klass), load_i32(section(automaton, AT_LOOP_START), klass + 1)
    ):
        first, last = load_i32(ranges, 2 * i), load_i32(ranges, 2 * i + 1)
        if first > 0x7F:
            break
        for byte in range(first, min(last, 0x7F) + 1):
            if byte < 64:
                low &= ~(1 << byte)
            else:
                high &= ~(1 << (byte - 64))
    return low | high == 0


@helper
def is_exact(grammar, automaton, state, klass, loop):  # type: ignore[no-untyped-def]
    """May no code point above U+007F but those of its loop class come next in `state`, nor in any that these lead to?

    Nor any string of them and of L_STAY that is none of the class.
    """
    return (
        load_u8(load_i64(grammar, G_LOOP_EXACT), state) != 0
        and load_i32(section(automaton, AT_STATE_LOOP), state) == klass
        and has_ascii(automaton, klass, load_i64(loop, L_STAY), load_i64(loop, L_STAY + 1))
    )


@helper
def add_spread_bytes(grammar, state, follow, loop):  # type: ignore[no-untyped-def]
    """OR the bytes that may come next after some string of the class of `state`, which is SPREAD, into L_LEAVE."""
    group = load_i32(load_i64(grammar, G_SPREAD_GROUP), state)
    entry = load_i64(grammar, G_SPREAD_BYTES) + 8 * SPREAD_WORDS * group
    follows = -load_i64(entry, 4)
    for word in range(4):
        more = load_i64(entry, word) | (load_i64(follow, word) & follows)
        store_i64(loop, L_LEAVE + word, load_i64(loop, L_LEAVE + word) | more)
