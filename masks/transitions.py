"""Tokens that took a small stack somewhere before: what they do is looked up, not done again.

A token changes a stack in a way that only the stack and the token decide. So what it did is kept as a *transition*: the
key of the stack before (`masks.whole_stack`) and the token lead to the key of the stack after, the blocks that came,
and which node of the one is which of the other. A row that is at an equal stack, in any slot, at any depth of another
text, then writes those blocks instead of stepping the token's bytes. That is a deterministic automaton over tokens,
made as it is needed, of the stacks that there really are.

A stack is told by its key and its registers: the key has these only as masks depend on them. Nodes that a block's
`done` list names and that nothing else leads to are left out: such lists only save work (`layout.MAX_DONE`).

Fuel: TRANSITION_COST, and one for each WORDS_A_UNIT words written; learning LEARNING_COST, and what reading the stack
takes, which the next plan then does not.
"""

from __future__ import annotations

from .._numba import helper
from .arena import WORDS_A_UNIT
from .fuel import affords, count
from .layout import (
    B_ARENA_NEXT,
    B_ARENA_USED,
    B_ARENA_WORDS,
    B_ARENAS,
    B_MEMO_NODES,
    B_TRANSITION_BUCKETS,
    B_TRANSITION_OF,
    B_TRANSITIONS,
    B_VOCABULARY,
    BLOCK_COUNT,
    BLOCK_DONE,
    BLOCK_MARK,
    BLOCK_TRIPLES,
    CONFIG_BLOCK,
    CONFIG_BLOCK_HEADS,
    CONFIG_FLAGS,
    CONFIG_HEADS,
    COUNT_LOOKED_UP,
    COUNT_WORK,
    EXIT,
    KIND_EMPTY,
    KIND_SHIFT,
)
from .lazy import mix
from .memo import local_number
from .memory import load_i32, load_i64, load_u8, shift_right, store_i32, store_i64, store_u8
from .places import (
    NAMES,
    PLACE_BLOCK,
    PLACE_FLAGS,
    PLACE_HIGH,
    PLACE_LOW,
    PLACE_REGISTERS,
    find_place,
    node_of_place,
    nodes_of_place,
    set_place,
)
from .whole_stack import KEY_COST, MOST_READ

#: Fuel of taking a token by its transition: two or three reads from far apart, of which none waits for another.
TRANSITION_COST = 10
#: Fuel of writing a transition.
LEARNING_COST = 10
#: Transitions of all grammars of a batch: 4 MB. A new one takes the place of the oldest of its bucket.
TRANSITIONS, TRANSITIONS_A_BUCKET = 1 << 15, 2
(
    T_LOW,  # key of the stack before
    T_HIGH,  # with its registers
    T_TOKEN,  # the token, and from bit 32 on what `_pack` says
    T_NEXT_LOW,  # key of the stack after
    T_NEXT_HIGH,
    T_NEXT_REGISTERS,
    T_MASK,  # mask slot of the stack after, -1: not known
    T_NODES,  # uint8[MOST_READ] which node each one of the stack after is: of the stack before, or _NEW | number
) = range(8)
#: Then, in 32 bits each, the new nodes' blocks, and the heads' if it is new. First how many triples, how many entries
#: of the `done` list << 8, _REGISTERS, and these entries, 5 bits each from bit 12 on. Then the triples, a state and a
#: node << 27, with _REGISTERS followed by the two halves of the register. Nodes are those of the stack after, or _EXIT.
T_BLOCKS = T_NODES + MOST_READ // 8
#: Two cache lines.
TRANSITION_WORDS = 16
#: Entries of a `done` list that are kept.
MOST_DONE = 4
#: States of the grammars that transitions are learned of.
STATE_BITS = 27
_NEW, _EXIT, _REGISTERS = 0x40, 31, 1 << 11


@helper
def stack_of_place(place):  # type: ignore[no-untyped-def]
    """T_LOW and T_HIGH of the stack of a place."""
    return load_i64(place, PLACE_LOW), load_i64(place, PLACE_HIGH) ^ load_i64(place, PLACE_REGISTERS)


@helper
def bucket_at(batch, low, high, token):  # type: ignore[no-untyped-def]
    """Address of the bucket of the transition by `token` of a stack."""
    number = mix(low ^ high, token) & (load_i64(batch, B_TRANSITION_BUCKETS) - 1)
    return load_i64(batch, B_TRANSITIONS) + 8 * TRANSITION_WORDS * TRANSITIONS_A_BUCKET * number


@helper
def is_transition(transition, low, high, token):  # type: ignore[no-untyped-def]
    """Is this the transition by `token` of a stack?"""
    return (
        load_i64(transition, T_LOW) == low
        and load_i64(transition, T_HIGH) == high
        and load_i64(transition, T_TOKEN) & 0xFFFFFFFF == token
    )


@helper
def find_transition(batch, low, high, token):  # type: ignore[no-untyped-def]
    """Address of the transition by `token` of a stack, or 0."""
    transition = bucket_at(batch, low, high, token)
    for _ in range(TRANSITIONS_A_BUCKET):
        if is_transition(transition, low, high, token):
            return transition
        transition += 8 * TRANSITION_WORDS
    return 0


@helper
def _sizes(entry):  # type: ignore[no-untyped-def]
    """Of the block that is described at `entry`: triples, entries of its `done` list, bytes of a triple there."""
    head = load_i32(entry, 0)
    return head & 0xFF, (head >> 8) & 7, 12 if head & _REGISTERS else 4


@helper
def _write_block(batch, entry, at):  # type: ignore[no-untyped-def]
    """Write the block that `entry` describes at address `at`; returns (address behind it, that of the next entry)."""
    nodes = load_i64(batch, B_MEMO_NODES)
    triples, done, size = _sizes(entry)
    store_i64(at, BLOCK_COUNT, triples)
    store_i64(at, BLOCK_DONE, done)
    store_i64(at, BLOCK_MARK, 0)
    for k in range(triples):
        source = entry + 4 + size * k
        triple = load_i32(source, 0) & 0xFFFFFFFF
        node, place = triple >> STATE_BITS, BLOCK_TRIPLES + 3 * k
        leaves = node == _EXIT
        store_i64(at, place, EXIT if leaves else load_i64(nodes, node))
        # Leaving the root frame has no state.
        store_i64(at, place + 1, EXIT if leaves else triple & ((1 << STATE_BITS) - 1))
        register = 0
        if size > 4:
            register = (load_i32(source, 1) & 0xFFFFFFFF) | (load_i32(source, 2) << 32)
        store_i64(at, place + 2, register)
    last = BLOCK_TRIPLES + 3 * triples
    for k in range(done):
        store_i64(at, last + k, load_i64(nodes, (load_i32(entry, 0) >> (12 + 5 * k)) & 31))
    return at + 8 * (last + done), entry + 4 + size * triples


@helper
def take_transition(batch, slot, position, place, transition, target):  # type: ignore[no-untyped-def]
    """Write to `target` the configuration that a transition leads to from `place`, the slot's. False: no room for it.

    The place of the next position is known then.
    """
    meta = shift_right(load_i64(transition, T_TOKEN), 32)
    n, fresh, words = meta & 31, (meta >> 5) & 31, meta >> 19
    used = load_i64(load_i64(batch, B_ARENA_USED), slot)
    room = min(load_i64(load_i64(batch, B_ARENA_NEXT), slot), load_i64(batch, B_ARENA_WORDS))
    if words > 0 and used + words > room:
        return False
    nodes = load_i64(batch, B_MEMO_NODES)
    entry = transition + 8 * T_BLOCKS
    number = used
    for i in range(fresh):
        store_i64(nodes, MOST_READ + i, number)
        triples, done, size = _sizes(entry)
        number += BLOCK_TRIPLES + 3 * triples + done
        entry += 4 + size * triples
    for i in range(n):
        which = load_u8(transition + 8 * T_NODES, i)
        if which & _NEW:
            store_i64(nodes, i, load_i64(nodes, MOST_READ + (which & (_NEW - 1))))
        else:
            store_i64(nodes, i, node_of_place(place, which))
    at = load_i64(load_i64(batch, B_ARENAS), slot) + 8 * used
    entry = transition + 8 * T_BLOCKS
    for _ in range(fresh):
        at, entry = _write_block(batch, entry, at)
    block = load_i64(place, PLACE_BLOCK)
    if (meta >> 10) & 1:
        _write_block(batch, entry, at)
        block = number
    store_i64(load_i64(batch, B_ARENA_USED), slot, used + words)
    heads = (meta >> 11) & 31
    store_i64(target, CONFIG_HEADS, 1 if heads > 0 else 0)
    flags = (meta >> 16) & 7
    store_i64(target, CONFIG_FLAGS, flags)
    store_i64(target, CONFIG_BLOCK, block)
    store_i64(target, CONFIG_BLOCK_HEADS, heads)
    low, high = load_i64(transition, T_NEXT_LOW), load_i64(transition, T_NEXT_HIGH)
    flags |= load_i64(place, PLACE_FLAGS) & NAMES
    registers = load_i64(transition, T_NEXT_REGISTERS)
    mask = load_i64(transition, T_MASK)
    set_place(batch, slot, position + 1, low, high, registers, n, block, flags, mask)
    count(batch, COUNT_WORK, TRANSITION_COST + words // WORDS_A_UNIT)
    count(batch, COUNT_LOOKED_UP, 1)
    return True


@helper
def _describe_block(batch, known, block, entry, end):  # type: ignore[no-untyped-def]
    """Describe a block whose nodes are among the `known` ones in B_MEMO_NODES.

    Returns (address behind the description, 0: it is too much; words of the block).
    """
    triples = load_i64(block, BLOCK_COUNT)
    registers = 0
    for k in range(triples):
        registers |= load_i64(block, BLOCK_TRIPLES + 3 * k + 2)
    size = 4 if registers == 0 else 12
    if entry + 4 + size * triples > end:
        return 0, 0
    head, kept = triples | (0 if registers == 0 else _REGISTERS), 0
    last = BLOCK_TRIPLES + 3 * triples
    for k in range(load_i64(block, BLOCK_DONE)):
        node = local_number(batch, known, load_i64(block, last + k))
        if node < known and kept < MOST_DONE:
            head |= node << (12 + 5 * kept)
            kept += 1
    store_i32(entry, 0, head | (kept << 8))
    for k in range(triples):
        place, target = BLOCK_TRIPLES + 3 * k, entry + 4 + size * k
        node, state = load_i64(block, place), load_i64(block, place + 1)
        if state >> STATE_BITS > 0:
            return 0, 0
        local = _EXIT if node == EXIT else local_number(batch, known, node)
        store_i32(target, 0, (local << STATE_BITS) | (0 if node == EXIT else state))
        if size > 4:
            store_i32(target, 1, load_i64(block, place + 2))
            store_i32(target, 2, load_i64(block, place + 2) >> 32)
    return entry + 4 + size * triples, last + kept


@helper
def _pack(token, nodes, fresh, new_heads, heads, flags, words):  # type: ignore[no-untyped-def]
    """T_TOKEN: a token, how many nodes there are after it, and how many of them are new, whether the heads' block is
    new, how many heads there are, CONFIG_FLAGS, and the words of the new blocks."""
    meta = nodes | (fresh << 5) | (new_heads << 10) | (heads << 11) | (flags << 16) | (words << 19)
    return (meta << 32) | token


@helper
def learn_transition(batch, grammar, slot, position, place, token, before, target):  # type: ignore[no-untyped-def]
    """Remember that `token` led from `place`, the slot's, to the configuration `target`, whose place is found.

    `before`: the words of the slot's arena that were in use; blocks from there on are new. Too much is not kept.
    """
    if not affords(batch, KEY_COST + MOST_READ + LEARNING_COST):
        return
    low, high = stack_of_place(place)
    heads = load_i64(target, CONFIG_BLOCK_HEADS) if load_i64(target, CONFIG_HEADS) else 0
    block = load_i64(target, CONFIG_BLOCK)
    known, next_low, next_high, registers = 0, 0, 0, 0
    nodes = load_i64(batch, B_MEMO_NODES)
    if heads > 0:
        after = find_place(batch, grammar, load_i64(batch, B_VOCABULARY), slot, position + 1, target, 0)
        next_low, next_high = load_i64(after, PLACE_LOW), load_i64(after, PLACE_HIGH)
        known, registers = nodes_of_place(after), load_i64(after, PLACE_REGISTERS)
        if next_low == 0 or (block < before and block != load_i64(place, PLACE_BLOCK)):
            return
    transition = bucket_at(batch, low, high, token)
    for word in range(TRANSITION_WORDS * TRANSITIONS_A_BUCKET - 1, TRANSITION_WORDS - 1, -1):
        store_i64(transition, word, load_i64(transition, word - TRANSITION_WORDS))
    store_i64(transition, T_LOW, 0)  # until it is whole
    fresh = 0
    for i in range(known):
        node = load_i64(nodes, i)
        which = -1
        if node >= before:
            which = _NEW
            for k in range(known):
                if before <= load_i64(nodes, k) < node:
                    which += 1
            fresh += 1
        else:
            for k in range(nodes_of_place(place)):
                if node_of_place(place, k) == node:
                    which = k
        if which < 0:
            return
        store_u8(transition + 8 * T_NODES, i, which)
    arena = load_i64(load_i64(batch, B_ARENAS), slot)
    entry, end = transition + 8 * T_BLOCKS, transition + 8 * TRANSITION_WORDS
    words = 0
    for number in range(fresh):
        for i in range(known):
            if load_u8(transition + 8 * T_NODES, i) == _NEW | number:
                entry, size = _describe_block(batch, known, arena + 8 * load_i64(nodes, i), entry, end)
                words += size
        if entry == 0:
            return
    is_new = heads > 0 and block >= before
    if is_new:
        entry, size = _describe_block(batch, known, arena + 8 * block, entry, end)
        words += size
        if entry == 0:
            return
    flags, new_heads = load_i64(target, CONFIG_FLAGS), 1 if is_new else 0
    store_i64(transition, T_HIGH, high)
    store_i64(transition, T_TOKEN, _pack(token, known, fresh, new_heads, heads, flags, words))
    store_i64(transition, T_NEXT_LOW, next_low)
    store_i64(transition, T_NEXT_HIGH, next_high)
    store_i64(transition, T_NEXT_REGISTERS, registers)
    store_i64(transition, T_MASK, -1 if heads > 0 else KIND_EMPTY << KIND_SHIFT)
    store_i64(transition, T_LOW, low)
    store_i64(load_i64(batch, B_TRANSITION_OF), slot, transition)
    count(batch, COUNT_WORK, LEARNING_COST)


@helper
def note_mask(batch, slot, place, packed):  # type: ignore[no-untyped-def]
    """Remember a mask slot with the transition that led the slot to its place, if there was one.

    B_TRANSITION_OF may be of an earlier place, or another transition by now: it says itself where it leads to. (That
    does not tell stacks that are too large, whose keys are all 0.)
    """
    transition = load_i64(load_i64(batch, B_TRANSITION_OF), slot)
    if (
        transition != 0
        and load_i64(place, PLACE_LOW) != 0
        and load_i64(transition, T_NEXT_LOW) == load_i64(place, PLACE_LOW)
        and load_i64(transition, T_NEXT_HIGH) == load_i64(place, PLACE_HIGH)
    ):
        store_i64(transition, T_MASK, packed)
