"""What a state does on the code points of its loop class: `grammar.loops` says which class that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .._numba import helper, kernel
from ..grammar.automaton import FINAL, HAS_CALLS, HAS_OPERATIONS, SPREAD
from .layout import G_LOOP_EXACT, G_SPREAD_BYTES, G_SPREAD_GROUP, L_LEAVE, L_STAY
from .machine import AT_EDGES, AT_LOOP_RANGES, AT_LOOP_START, AT_STATE_LOOP, delta, flags_of, restart_of
from .memory import load_i32, load_i64, load_u8, section, store_i64
from .stays import after_byte, local_step

if TYPE_CHECKING:
    from ..grammar.automaton import Automaton

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


@kernel("void(int64, int64, int64[::1], uint8[::1])", allocates=True)
def _exact_states(automaton, n_states, sizes, exact):  # type: ignore[no-untyped-def]
    """exact[s] = 1 where the code points above U+007F that may come next in `s` are those of its loop class alone.

    `sizes`: how many such code points each loop class has. All of them are alive in `s`, so counting suffices.
    """
    known = np.full((0, 7), -1, np.int32)
    for state in range(n_states):
        klass = load_i32(section(automaton, AT_STATE_LOOP), state)
        if klass < 0:
            continue
        if sizes[klass] == CODE_POINTS_ABOVE_ASCII:
            exact[state] = 1
            continue
        if len(known) == 0:
            known = np.full((n_states, 7), -1, np.int32)
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


def exact_loops(automaton: Automaton, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """uint8[states], 1 where no code point above U+007F but those of its loop class may come next.

    Nor after some of these. `sizes`: how many such code points each loop class has.
    """
    exact = np.zeros(automaton.n_states, np.uint8)
    _exact_states(automaton.address, automaton.n_states, sizes, exact)
    spread = automaton["state_flags"] & SPREAD != 0
    if not spread.any():
        return exact
    loop, frame = automaton["state_loop"].astype(np.int64), automaton["state_frame"]
    # What a SPREAD state's class leads to loops on it too, or on a larger one, whose other code points are alive.
    group = frame * len(sizes) + loop
    least = np.ones(len(automaton["frame_kind"]) * len(sizes), np.uint8)
    np.minimum.at(least, group[loop >= 0], exact[loop >= 0])
    largest = np.full(len(automaton["frame_kind"]), len(sizes))
    np.minimum.at(largest, frame[loop >= 0], loop[loop >= 0])
    exact[spread] = least[group[spread]] & (loop[spread] == largest[frame[spread]])
    return exact


def spread_bytes(automaton: Automaton) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """What may come next after any string of the class of a SPREAD state: (group of each state or -1, their entries).

    One group for each frame and class: its states, and those of larger classes of the frame, to which these lead.
    """
    loop, frame, flags = automaton["state_loop"], automaton["state_frame"], automaton["state_flags"]
    spread = np.flatnonzero(flags & SPREAD)
    group = np.full(len(loop), -1, np.int32)
    if not len(spread):
        return group, np.zeros((0, SPREAD_WORDS), np.int64)
    # A pair as one number: to sort columns takes many times as long.
    most = int(loop.max()) + 1
    keys, numbers = np.unique(frame[spread].astype(np.int64) * most + loop[spread], return_inverse=True)
    group[spread] = numbers.reshape(-1)
    entries = np.zeros((len(keys), SPREAD_WORDS), np.int64)
    alive = automaton["dense"].reshape(-1, automaton.n_classes) >= 0
    # In other states no string of the class goes on for certain; in these all have dense rows.
    kept = np.flatnonzero((loop >= 0) & (flags & (HAS_CALLS | HAS_OPERATIONS) == 0) & (automaton["edges"] >= 0))
    if not len(kept):
        return group, entries
    key = frame[kept].astype(np.int64) * most + loop[kept]
    order = np.argsort(key, kind="stable")
    kept, key = kept[order], key[order]
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    some = np.logical_or.reduceat(alive[automaton["edges"][kept]], starts, axis=0)
    ends = np.logical_or.reduceat(flags[kept] & FINAL != 0, starts)
    own = key[starts]
    for i in (1 + np.flatnonzero(own[1:] // most == own[:-1] // most)).tolist():  # larger classes come first
        some[i] |= some[i - 1]
        ends[i] |= ends[i - 1]
    at = np.searchsorted(own, keys, "right") - 1
    there = (at >= 0) & (own[at] // most == keys // most)
    bits = np.packbits(some[at[there]][:, automaton["byte_class"]], axis=1, bitorder="little")
    entries[there, :4] = np.ascontiguousarray(bits).view(np.int64)
    entries[there, 4] = ends[at[there]]
    return group, entries


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
