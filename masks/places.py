"""What is known of a recursive slot's stack at its position: the key of all of it, and its nodes in the key's order.

That is all that planning and advancing a row need where its mask and its next token are known (`masks.transitions`):
neither its grammar nor its configuration is read then. A *place* has a position and a state of the arena for which it
holds (`B_MOVES`), so going back, forking and compacting need not look for it. Each slot has two, for even and for odd
positions: who looks one token ahead and comes back finds the first one as it was.
"""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import H_FLAGS, TOKENS
from .layout import (
    B_ARENAS,
    B_DIRECT,
    B_MEMO_NODES,
    B_MOVES,
    B_PLACES,
    B_POSITION,
    CONFIG_BLOCK,
    CONFIG_FLAGS,
    G_AUTOMATON,
)
from .memory import load_i32, load_i64, store_i32, store_i64
from .whole_stack import MOST_READ, whole_stack_key

(
    PLACE_POSITION,  # position for which it holds, -1: none
    PLACE_MOVES,  # and B_MOVES
    PLACE_LOW,  # key of the stack; 0: it is too large to be looked up as a whole
    PLACE_HIGH,
    PLACE_REGISTERS,  # hash of the registers, which together with the key tells the stack
    PLACE_BLOCK,  # CONFIG_BLOCK
    PLACE_FLAGS,  # CONFIG_FLAGS, NAMES, and how many nodes there are << COUNT_SHIFT
    PLACE_NODES,  # int32[MOST_READ] numbers of their blocks in the slot's arena
) = range(8)
PLACE_MASK = PLACE_NODES + MOST_READ // 2  # mask slot of the stack, -1: not known
#: Two cache lines.
PLACE_WORDS = 16
assert PLACE_MASK < PLACE_WORDS
#: In PLACE_FLAGS: the slot's grammar names tokens, which may be end tokens.
NAMES = 1 << 8
COUNT_SHIFT = 16


@helper
def place_at(batch, slot, position):  # type: ignore[no-untyped-def]
    """Address of the slot's place of this position, whether it holds or not."""
    return load_i64(batch, B_PLACES) + 8 * PLACE_WORDS * (2 * slot + (position & 1))


@helper
def current_place(batch, slot):  # type: ignore[no-untyped-def]
    """Address of what is known of the slot where it is, or 0."""
    position = load_i64(load_i64(batch, B_POSITION), slot)
    place = place_at(batch, slot, position)
    if (
        load_i64(place, PLACE_POSITION) != position
        or load_i64(place, PLACE_MOVES) != load_i64(load_i64(batch, B_MOVES), slot)
        or load_i64(batch, B_DIRECT) != 0
    ):
        return 0
    return place


@helper
def forget_place(batch, slot, position):  # type: ignore[no-untyped-def]
    """Nothing is known of the slot's stack at this position."""
    store_i64(place_at(batch, slot, position), PLACE_POSITION, -1)


@helper
def forget_places(batch, slot):  # type: ignore[no-untyped-def]
    """The slot has another sequence."""
    forget_place(batch, slot, 0)
    forget_place(batch, slot, 1)


@helper
def set_place(batch, slot, position, low, high, registers, count, block, flags, mask):  # type: ignore[no-untyped-def]
    """Remember a key, the first `count` nodes in B_MEMO_NODES, and the rest as in the words above."""
    place = place_at(batch, slot, position)
    store_i64(place, PLACE_POSITION, position)
    store_i64(place, PLACE_MOVES, load_i64(load_i64(batch, B_MOVES), slot))
    store_i64(place, PLACE_LOW, low)
    store_i64(place, PLACE_HIGH, high)
    store_i64(place, PLACE_REGISTERS, registers)
    store_i64(place, PLACE_BLOCK, block)
    store_i64(place, PLACE_FLAGS, flags | (count << COUNT_SHIFT))
    store_i64(place, PLACE_MASK, mask)
    nodes = load_i64(batch, B_MEMO_NODES)
    for i in range(count):
        store_i32(place + 8 * PLACE_NODES, i, load_i64(nodes, i))
    return place


@helper
def find_place(batch, grammar, vocabulary, slot, position, config, at_start):  # type: ignore[no-untyped-def]
    """Read the stack of the configuration `config`, and remember its key as the slot's at `position`."""
    arena, block = load_i64(load_i64(batch, B_ARENAS), slot), load_i64(config, CONFIG_BLOCK)
    low, high, count, registers = whole_stack_key(batch, grammar, vocabulary, arena, block, at_start)
    flags = load_i64(config, CONFIG_FLAGS)
    if load_i64(load_i64(grammar, G_AUTOMATON), H_FLAGS) & TOKENS:
        flags |= NAMES
    return set_place(batch, slot, position, low, high, registers, count, block, flags, -1)


@helper
def node_of_place(place, number):  # type: ignore[no-untyped-def]
    """Number in the arena of a place's node."""
    return load_i32(place + 8 * PLACE_NODES, number)


@helper
def nodes_of_place(place):  # type: ignore[no-untyped-def]
    """How many nodes a place has."""
    return load_i64(place, PLACE_FLAGS) >> COUNT_SHIFT
