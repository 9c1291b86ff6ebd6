"""What leaves a frame along suffixes (`masks.suffixes`) during the walk of a context, noted for tokens' own nodes."""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import FINAL, HAS_CALLS
from .layout import B_JOB, B_JOB_REGISTER, B_JOB_SELECTION, J_LOOP, L_BASE
from .leaving import children_bytes, note_leaving
from .machine import flags_of
from .memory import load_i32, load_i64
from .suffixes import is_inside, place_at, places_of
from .trie import V_NODE, V_NODE_PARENT, V_SUFFIX_BYTE


@helper
def note_before(batch, grammar, automaton, vocabulary, byte):  # type: ignore[no-untyped-def]
    """Note what leaves before the suffixes from `byte` on, within the loop. Returns the work done."""
    node = load_i32(load_i64(vocabulary, V_SUFFIX_BYTE), byte)
    state = load_i64(load_i64(load_i64(batch, B_JOB), J_LOOP), L_BASE)
    if node < 0 or flags_of(automaton, state) & (FINAL | HAS_CALLS) == 0:
        return 0
    return note_places(batch, grammar, automaton, vocabulary, node, state, 0, byte)


@helper
def note_places(batch, grammar, automaton, vocabulary, node, state, depth, byte):  # type: ignore[no-untyped-def]
    """Note what leaves from `state` at the nodes that a node of the suffixes stands for; returns the work done.

    With `byte` >= 0: at the nodes before these, for that byte. The path's entry `depth` has the register.
    """
    register = load_i64(load_i64(batch, B_JOB_REGISTER), depth)
    stay = load_i64(batch, B_JOB_SELECTION)
    begin, end = places_of(vocabulary, node)
    for i in range(begin, end):
        entry = place_at(vocabulary, i)
        if is_inside(vocabulary, stay, entry):
            place = load_i64(entry, 1) & 0xFFFFFFFF
            if byte >= 0:
                place = load_i32(load_i64(vocabulary, V_NODE_PARENT), place)
                a = 1 << byte if byte < 64 else 0
                b = 1 << (byte - 64) if byte >= 64 else 0
                c, d = 0, 0
            else:
                a, b, c, d = children_bytes(vocabulary, load_i64(load_i64(vocabulary, V_NODE), place))
            note_leaving(batch, grammar, automaton, state, register, place, a, b, c, d)
    return 4 * (end - begin)
