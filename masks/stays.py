"""Which states a wide state stays among: one byte after the other, and one code point above U+007F."""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import HAS_OPERATIONS
from .layout import (
    KIND_BYTES,
    KIND_COUNT,
    KIND_FIRST,
    KIND_NEXT,
    KIND_OF,
    L_AGAIN,
    L_ASKED,
    L_STATES,
    L_STAY,
    L_WORK,
    MAX_LOOP_STATES,
)
from .machine import delta, flags_of, restart_of
from .members import asks, goes_on_with_any, may_go_on
from .memory import count_bits, load_i64, store_i64
from .trie import V_ABSENT

#: Byte edges above U+007F that are looked at from one state: where more differ, its tokens are walked one by one.
MAX_TEXT_EDGES = 1024
#: States that are compared in the time of looking at a byte edge.
STATES_AN_EDGE = 8


@helper
def local_step(automaton, state, byte, register):  # type: ignore[no-untyped-def]
    """Target of `byte` inside the frame, another item of a counter included; -1: none."""
    target = delta(automaton, state, byte)
    if target < 0:
        start = restart_of(automaton, state, register)
        if start >= 0:
            target = delta(automaton, start, byte)
    return target


@helper
def _narrows(automaton, kinds, loop, state, register):  # type: ignore[no-untyped-def]
    """Are most bytes of L_STAY dead in `state`?

    It would take them out of the set, so the one byte that leads to it goes instead: the last one of a string after
    which free text does not go on as it likes.
    """
    total = count_bits(load_i64(loop, L_STAY)) + count_bits(load_i64(loop, L_STAY + 1))
    kept, lost, looked = 0, 0, 0
    n_kinds = load_i64(kinds, KIND_COUNT)
    while looked < n_kinds and 2 * kept < total and 2 * lost <= total:
        members = kinds + 8 * (KIND_BYTES + 4 * looked)
        n = count_bits(load_i64(loop, L_STAY) & load_i64(members, 0))
        n += count_bits(load_i64(loop, L_STAY + 1) & load_i64(members, 1))
        if n > 0 and local_step(automaton, state, load_i64(kinds, KIND_FIRST + looked), register) >= 0:
            kept += n
        else:
            lost += n
        looked += 1
    store_i64(loop, L_WORK, load_i64(loop, L_WORK) + looked)
    return 2 * kept < total


@helper
def _keep_state(automaton, kinds, loop, state, register, only):  # type: ignore[no-untyped-def]
    """Is `state` one of L_STATES, or can it be added (fewer than `only` are there)? Not where members begin."""
    if state < 0 or flags_of(automaton, state) & HAS_OPERATIONS != 0:
        return False
    if asks(automaton, state):
        if goes_on_with_any(automaton, state, register):
            store_i64(loop, L_ASKED, load_i64(loop, L_ASKED) | 1)
        else:
            store_i64(loop, L_ASKED, load_i64(loop, L_ASKED) | 2)
            if not may_go_on(automaton, state, register):
                return False
    states = loop + 8 * L_STATES
    n = load_i64(states, MAX_LOOP_STATES)
    i = 0
    while i < n and load_i64(states, i) != state:
        i += 1
    store_i64(loop, L_WORK, load_i64(loop, L_WORK) + i // STATES_AN_EDGE)
    if i < n:
        if i == 0:
            store_i64(loop, L_AGAIN, 1)
        return True
    if n >= only or _narrows(automaton, kinds, loop, state, register):
        return False
    store_i64(states, n, state)
    store_i64(states, MAX_LOOP_STATES, n + 1)
    return True


@helper
def keep_both(automaton, kinds, loop, one, two, register, only):  # type: ignore[no-untyped-def]
    """`_keep_state` for those of two targets that exist; False where neither does."""
    if one < 0 and two < 0:
        return False
    return (one < 0 or _keep_state(automaton, kinds, loop, one, register, only)) and (
        two < 0 or _keep_state(automaton, kinds, loop, two, register, only)
    )


@helper
def after_byte(automaton, state, byte):  # type: ignore[no-untyped-def]
    return -1 if state < 0 else delta(automaton, state, byte)


@helper
def _text_stays(automaton, vocabulary, kinds, state, register, loop, only, known):  # type: ignore[no-untyped-def]
    """`text_stays`: how many bytes were looked at, negative where not all lead there.

    A lead byte may go on with the item and begin another one, so two states are followed. Bytes that no
    token has do not count. Neighbours of one kind, or with equal targets, are looked at once.
    """
    of, after = kinds + 8 * KIND_OF, kinds + 8 * KIND_NEXT
    absent = load_i64(vocabulary, V_ABSENT)
    start = restart_of(automaton, state, register)
    before, before1, before2 = -1, -2, -2
    looked = 1
    # What `keep_both` looks at counts as well.
    most = MAX_TEXT_EDGES + load_i64(loop, L_WORK)
    for lead in range(0xC2, 0xF5):
        special = lead == 0xE0 or lead == 0xED or lead == 0xF0 or lead == 0xF4
        kind = load_i64(of, lead)
        if (kind == before and not special) or (load_i64(absent, lead >> 6) >> (lead & 63)) & 1 != 0:
            continue
        before = -1 if special else kind
        looked += 2
        if looked + load_i64(loop, L_WORK) > most:
            return -looked
        a1, b1 = delta(automaton, state, lead), after_byte(automaton, start, lead)
        if known >= 0 and b1 < 0 and a1 == delta(automaton, known, lead):
            continue
        if a1 == before1 and b1 == before2 and not special:
            continue
        before1, before2 = (-2, -2) if special else (a1, b1)
        byte2 = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
        high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
        p1, q1 = -2, -2
        while byte2 <= high:
            looked += 2
            a2, b2 = after_byte(automaton, a1, byte2), after_byte(automaton, b1, byte2)
            byte2 = load_i64(after, byte2)
            if a2 == p1 and b2 == q1:
                continue
            p1, q1 = a2, b2
            if lead < 0xE0:
                if not keep_both(automaton, kinds, loop, a2, b2, register, only):
                    return -looked
                continue
            p2, q2 = -2, -2
            byte3 = 0x80
            while byte3 < 0xC0:
                looked += 2
                if looked + load_i64(loop, L_WORK) > most:
                    return -looked
                a3, b3 = after_byte(automaton, a2, byte3), after_byte(automaton, b2, byte3)
                byte3 = load_i64(after, byte3)
                if a3 == p2 and b3 == q2:
                    continue
                p2, q2 = a3, b3
                if lead < 0xF0:
                    if not keep_both(automaton, kinds, loop, a3, b3, register, only):
                        return -looked
                    continue
                p3, q3 = -2, -2
                byte4 = 0x80
                while byte4 < 0xC0:
                    looked += 2
                    a4, b4 = after_byte(automaton, a3, byte4), after_byte(automaton, b3, byte4)
                    byte4 = load_i64(after, byte4)
                    if a4 == p3 and b4 == q3:
                        continue
                    p3, q3 = a4, b4
                    if not keep_both(automaton, kinds, loop, a4, b4, register, only):
                        return -looked
    return looked


@helper
def text_stays(automaton, vocabulary, kinds, state, register, loop, only, known=-1):  # type: ignore[no-untyped-def]
    """Does every code point above U+007F lead from `state` to L_STATES only (RFC 3629's ranges)?

    `known`: a state of which that is known already, and where no other item may begin; or -1.
    """
    looked = _text_stays(automaton, vocabulary, kinds, state, register, loop, only, known)
    store_i64(loop, L_WORK, load_i64(loop, L_WORK) + abs(looked))
    return looked > 0
