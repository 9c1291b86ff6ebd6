"""Lazily determinised state sets of a grammar that is kept as a position automaton.

A set is a bitmap over positions. Sets that a sequence rests on are interned in the grammar's block;
those met while a mask is computed live on the walk's own stack. When the table of interned sets is
full, `lazy_make_room` keeps those that live sequences need, the latest first, with their numbers.
"""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import H_LAZY_STATES
from .fuel import count
from .lanes import drop_job
from .layout import (
    B_ADVANCE_BYTES,
    B_ADVANCE_TOKEN,
    B_CONFIGS,
    B_HISTORY,
    B_OLDEST,
    B_POSITION,
    B_SLOT_GRAMMAR,
    B_SLOTS,
    CONFIG_FIRST_HEAD,
    CONFIG_HEADS,
    CONFIG_WORDS,
    COUNT_WORK,
    G_AUTOMATON,
    G_LAZY_CAPACITY,
    G_LAZY_COUNT,
    G_LAZY_HASH,
    G_LAZY_MASK,
    G_LAZY_SETS,
    G_LAZY_TABLE,
    G_LAZY_TABLE_SIZE,
    G_LAZY_UNUSED,
    G_LAZY_UNUSED_COUNT,
    G_LAZY_WORDS,
    HEAD_STATES,
)
from .machine import AT_BYTE_CLASS, AT_LAZY_EDGE_START, AT_LAZY_EDGES, AT_LAZY_FINAL
from .memory import count_trailing_zeros, load_i32, load_i64, load_u8, section, shift_right, store_i32, store_i64

#: When a table of sets is full: entries that are looked at in the time of one byte edge, and how long each place of a
#: history takes, and each set that is kept, far from the last one.
SWEPT_ENTRIES, HISTORY_COST = 8, 3


@helper
def mix(h, value):  # type: ignore[no-untyped-def]
    """One round of a 64-bit hash (the finaliser of MurmurHash3, on int64 with wrap-around)."""
    h = (h ^ value) * -0x61C8864680B583EB
    h = (h ^ shift_right(h, 29)) * -0x4B47D0C5A6B1E0A3
    return h ^ shift_right(h, 32)


@helper
def lazy_step(automaton, source, words, byte, target):  # type: ignore[no-untyped-def]
    """Write to `target` the set reached from `source` by `byte`. Returns the edges visited; < 0: empty."""
    for word in range(words):
        store_i64(target, word, 0)
    column = load_u8(section(automaton, AT_BYTE_CLASS), byte)
    starts = section(automaton, AT_LAZY_EDGE_START)
    edges = section(automaton, AT_LAZY_EDGES)
    visited = words
    some = False
    for word in range(words):
        bits = load_i64(source, word)
        while bits != 0:
            position = word * 64 + count_trailing_zeros(bits)
            bits &= bits - 1
            for edge in range(load_i32(starts, position), load_i32(starts, position + 1)):
                visited += 1
                if load_i32(edges, 3 * edge) <= column <= load_i32(edges, 3 * edge + 1):
                    reached = load_i32(edges, 3 * edge + 2)
                    at = reached >> 6
                    store_i64(target, at, load_i64(target, at) | (1 << (reached & 63)))
                    some = True
    return visited if some else -visited


@helper
def lazy_is_final(automaton, address, words):  # type: ignore[no-untyped-def]
    final = section(automaton, AT_LAZY_FINAL)
    for word in range(words):
        bits = load_i64(address, word)
        while bits != 0:
            if load_u8(final, word * 64 + count_trailing_zeros(bits)):
                return True
            bits &= bits - 1
    return False


@helper
def lazy_leads_on(automaton, address, words):  # type: ignore[no-untyped-def]
    """Has any position of the set an outgoing edge?"""
    starts = section(automaton, AT_LAZY_EDGE_START)
    for word in range(words):
        bits = load_i64(address, word)
        while bits != 0:
            position = word * 64 + count_trailing_zeros(bits)
            if load_i32(starts, position) != load_i32(starts, position + 1):
                return True
            bits &= bits - 1
    return False


@helper
def _hash_set(address, words):  # type: ignore[no-untyped-def]
    h = words
    for word in range(words):
        h = mix(h, load_i64(address, word))
    return shift_right(h, 1)


@helper
def lazy_intern(grammar, address):  # type: ignore[no-untyped-def]
    """Number of the set at `address`; -1 where the table is full."""
    words = load_i64(grammar, G_LAZY_WORDS)
    sets = load_i64(grammar, G_LAZY_SETS)
    table = load_i64(grammar, G_LAZY_TABLE)
    size = load_i64(grammar, G_LAZY_TABLE_SIZE)
    h = _hash_set(address, words)
    place = h % size
    while True:
        number = load_i32(table, place)
        if number < 0:
            break
        stored = sets + 8 * words * number
        same = True
        for word in range(words):
            if load_i64(stored, word) != load_i64(address, word):
                same = False
                break
        if same:
            return number
        place += 1
        if place == size:
            place = 0
    unused = load_i64(grammar, G_LAZY_UNUSED_COUNT)
    if unused > 0:
        number = load_i32(load_i64(grammar, G_LAZY_UNUSED), unused - 1)
        store_i64(grammar, G_LAZY_UNUSED_COUNT, unused - 1)
    else:
        number = load_i64(grammar, G_LAZY_COUNT)
        if number == load_i64(grammar, G_LAZY_CAPACITY):
            return -1
        store_i64(grammar, G_LAZY_COUNT, number + 1)
    stored = sets + 8 * words * number
    for word in range(words):
        store_i64(stored, word, load_i64(address, word))
    store_i64(load_i64(grammar, G_LAZY_HASH), number, h)
    store_i32(table, place, number)
    store_i64(load_i64(grammar, G_LAZY_MASK), number, -1)
    return number


@helper
def lazy_make_room(batch, grammar):  # type: ignore[no-untyped-def]
    """Take their numbers from the sets that no sequence of this grammar rests on or may be rolled back to.

    Of what may only be rolled back to, half a table is kept at most: sequences whose older history does not fit can no
    longer be rolled back that far. All of it is done at once (`docs/step_contract.md` has what it takes).
    """
    # A mask that is being computed is known by the number of its set, which may be another's soon.
    drop_job(batch, grammar, -1)
    capacity = load_i64(grammar, G_LAZY_CAPACITY)
    unused = load_i64(grammar, G_LAZY_UNUSED)
    # While numbers are being marked, the place of each says whether its set is in use.
    for number in range(capacity):
        store_i32(unused, number, 0)
    history = load_i64(batch, B_HISTORY)
    marked = 0
    places = 0
    tokens = load_i64(batch, B_ADVANCE_TOKEN)
    for back in range(-1, history):
        for slot in range(load_i64(batch, B_SLOTS)):
            if load_i64(load_i64(batch, B_SLOT_GRAMMAR), slot) != grammar:
                continue
            if back < 0 and (load_i32(tokens, slot) < 0 or load_i64(load_i64(batch, B_ADVANCE_BYTES), slot) == 0):
                continue  # not in the middle of a token, whose set stands behind the last
            position = load_i64(load_i64(batch, B_POSITION), slot) - back
            if position < load_i64(load_i64(batch, B_OLDEST), slot):
                continue
            if back > 0 and marked > capacity // 2:
                store_i64(load_i64(batch, B_OLDEST), slot, position + 1)
                continue
            config = load_i64(batch, B_CONFIGS) + 8 * CONFIG_WORDS * (slot * history + position % history)
            places += 1
            if load_i64(config, CONFIG_HEADS) > 0:
                number = load_i64(config, CONFIG_FIRST_HEAD + HEAD_STATES)
                if load_i32(unused, number) == 0:
                    store_i32(unused, number, 1)
                    marked += 1
    size = load_i64(grammar, G_LAZY_TABLE_SIZE)
    table, hashes = load_i64(grammar, G_LAZY_TABLE), load_i64(grammar, G_LAZY_HASH)
    for place in range(size):
        store_i32(table, place, -1)
    n = 0
    for number in range(load_i64(grammar, G_LAZY_COUNT)):
        if load_i32(unused, number) == 0:
            store_i32(unused, n, number)
            n += 1
            continue
        place = load_i64(hashes, number) % size
        while load_i32(table, place) >= 0:
            place = (place + 1) % size
        store_i32(table, place, number)
    store_i64(grammar, G_LAZY_UNUSED_COUNT, n)
    count(batch, COUNT_WORK, capacity // SWEPT_ENTRIES + HISTORY_COST * (places + marked))


@helper
def lazy_positions(grammar):  # type: ignore[no-untyped-def]
    return load_i64(load_i64(grammar, G_AUTOMATON), H_LAZY_STATES)
