"""The masks of recursive rows by all of their stack, where that is small.

What a row's mask depends on can be reached from its heads: the states and registers on all ways out. Of most rows these
are a handful, so their mask is kept by a key of them, as the masks of other grammars' configurations are: one read from
far away. A path of steps (`masks.memo`), which serves all other rows, takes one read for each of them, of which each
says where the next one is; it also knows equal masks of stacks that differ further out than a token can get.

Fuel: KEY_COST, and one for each (node, state, register) read.
"""

from __future__ import annotations

from .._numba import helper
from .context_store import room_for_mask
from .fuel import affords, count
from .layout import (
    B_MEMO_NODES,
    B_SCRATCH,
    BLOCK_COUNT,
    BLOCK_TRIPLES,
    COUNT_VISITED,
    COUNT_WORK,
    EXIT,
    G_AUTOMATON,
    G_NUMBER,
)
from .lazy import mix
from .machine import counter_distances
from .memo import local_number
from .memory import load_i64, shift_right, store_i64
from .pool import current_mask, find_entry, mask_cost, resolve
from .trie import V_MAX_BYTES

#: Triples of a stack that is looked up as a whole; a larger one is left to `masks.memo`. At most `MAX_STEPS`.
MOST_READ = 16
#: Fuel of finding an entry: a read or two from far apart.
KEY_COST = 10


@helper
def whole_stack_key(batch, grammar, vocabulary, arena, block, at_start):  # type: ignore[no-untyped-def]
    """128-bit key, in two halves, of all that the heads in `block` stand on; how many nodes there are; the registers.

    The nodes are numbered in the order in which they are read, as they are in B_MEMO_NODES then, so that equal stacks
    of any sequence have equal keys. In the key registers are as tokens can ask for them, as in `masks.memo`; the last
    number is a hash of all of them, 0 where all are 0. `at_start`: 1 where the vocabulary is that of the start of a
    text. (0, 0, 0, 0): the stack is too large.
    """
    automaton = load_i64(grammar, G_AUTOMATON)
    reach = load_i64(vocabulary, V_MAX_BYTES)
    nodes = load_i64(batch, B_MEMO_NODES)
    low = mix(0x452821E638D01377, (load_i64(grammar, G_NUMBER) << 1) | at_start)
    high = low ^ 0x34E90C6CBE5466CF
    at = arena + 8 * block
    read, known, followed, registers = 0, 0, 0, 0
    while True:
        n = load_i64(at, BLOCK_COUNT)
        read += n
        if read > MOST_READ:
            count(batch, COUNT_WORK, read - n)
            count(batch, COUNT_VISITED, read - n)
            return 0, 0, 0, 0
        for i in range(n):
            triple = at + 8 * (BLOCK_TRIPLES + 3 * i)
            node, state = load_i64(triple, 0), load_i64(triple, 1)
            place = EXIT
            if node != EXIT:
                place = local_number(batch, known, node)
                if place == known:
                    store_i64(nodes, known, node)
                    known += 1
            register = load_i64(triple, 2)
            if register != 0:
                registers = mix(registers ^ (read << 8) ^ i, register)
            below, above = counter_distances(automaton, state, register, reach)
            way = (((n << 8) | (place & 0xFF)) << 32) | state
            low = mix(mix(mix(low, way), below), above)
            high = (high ^ way) * -0x4B47D0C5A6B1E0A3
            high = (high ^ shift_right(high, 31) ^ below) * -0x61C8864680B583EB
            high = (high ^ shift_right(high, 29) ^ above) * -0x4B47D0C5A6B1E0A3
            high ^= shift_right(high, 30)
        if followed == known:
            count(batch, COUNT_WORK, KEY_COST + read)
            count(batch, COUNT_VISITED, KEY_COST + read)
            return low, high, known, registers
        at = arena + 8 * load_i64(nodes, followed)
        followed += 1


@helper
def mask_of_stack(batch, low, high):  # type: ignore[no-untyped-def]
    """Mask slot of a stack of this key, or -1: it is not known, or has been forgotten."""
    entry = find_entry(batch, low, high)
    mask_id = current_mask(batch, entry, 2)
    if mask_id < 0 and load_i64(entry, 2) >= 0 and affords(batch, mask_cost(batch)) and room_for_mask(batch):
        mask_id = resolve(batch, entry, 2, load_i64(batch, B_SCRATCH))
    return load_i64(entry, 2) if mask_id >= 0 else -1
