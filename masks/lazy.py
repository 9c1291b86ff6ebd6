"""Lazily determinised state sets of a grammar that is kept as a position automaton.

A set is a bitmap over positions. Sets that a sequence rests on are interned in the grammar's block;
those met while a mask is computed live on the walk's own stack. When the table of interned sets is
full, `compact` keeps those that live sequences need, the latest first.
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
    G_LAZY_MASK,
    G_LAZY_SETS,
    G_LAZY_TABLE,
    G_LAZY_TABLE_SIZE,
    G_LAZY_WORDS,
    HEAD_STATES,
)
from .machine import AT_BYTE_CLASS, AT_LAZY_EDGE_START, AT_LAZY_EDGES, AT_LAZY_FINAL
from .memory import count_trailing_zeros, load_i32, load_i64, load_u8, section, shift_right, store_i32, store_i64

#: When a table of sets is full: words of sets that are moved, and entries that are looked at, in the time of one byte
#: edge; and how long each place of a history takes, far from the last one.
MOVED_WORDS, SWEPT_ENTRIES, HISTORY_COST = 2, 3, 5


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
    place = _hash_set(address, words) % size
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
    count = load_i64(grammar, G_LAZY_COUNT)
    if count == load_i64(grammar, G_LAZY_CAPACITY):
        return -1
    stored = sets + 8 * words * count
    for word in range(words):
        store_i64(stored, word, load_i64(address, word))
    store_i32(table, place, count)
    store_i64(load_i64(grammar, G_LAZY_MASK), count, -1)
    store_i64(grammar, G_LAZY_COUNT, count + 1)
    return count


@helper
def lazy_compact(batch, grammar, renamed):  # type: ignore[no-untyped-def]
    """Keep the sets that sequences of this grammar rest on, or may be rolled back to while half the table suffices.

    `renamed` is int32 scratch for one number a set. Sequences whose older history does not fit can
    no longer be rolled back that far. All of it is done at once (`docs/step_contract.md` has what it takes).
    """
    # A mask that is being computed is known by the number of its set, which is about to be another's.
    drop_job(batch, grammar, -1)
    capacity = load_i64(grammar, G_LAZY_CAPACITY)
    words = load_i64(grammar, G_LAZY_WORDS)
    sets = load_i64(grammar, G_LAZY_SETS)
    history = load_i64(batch, B_HISTORY)
    for number in range(capacity):
        store_i32(renamed, number, 0)
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
                if load_i32(renamed, number) == 0:
                    store_i32(renamed, number, 1)
                    marked += 1
    size = load_i64(grammar, G_LAZY_TABLE_SIZE)
    table = load_i64(grammar, G_LAZY_TABLE)
    masks = load_i64(grammar, G_LAZY_MASK)
    for place in range(size):
        store_i32(table, place, -1)
    kept = 0
    for number in range(load_i64(grammar, G_LAZY_COUNT)):
        if load_i32(renamed, number) == 0:
            continue
        source = sets + 8 * words * number
        for word in range(words):
            store_i64(sets + 8 * words * kept, word, load_i64(source, word))
        store_i64(masks, kept, load_i64(masks, number))
        store_i32(renamed, number, kept + 1)
        place = _hash_set(source, words) % size
        while load_i32(table, place) >= 0:
            place = (place + 1) % size
        store_i32(table, place, kept)
        kept += 1
    store_i64(grammar, G_LAZY_COUNT, kept)
    count(batch, COUNT_WORK, capacity // SWEPT_ENTRIES + HISTORY_COST * places + kept * words // MOVED_WORDS)
    for slot in range(load_i64(batch, B_SLOTS)):
        if load_i64(load_i64(batch, B_SLOT_GRAMMAR), slot) != grammar:
            continue
        last = load_i64(load_i64(batch, B_POSITION), slot)
        if load_i32(tokens, slot) >= 0 and load_i64(load_i64(batch, B_ADVANCE_BYTES), slot) > 0:
            last += 1
        for position in range(load_i64(load_i64(batch, B_OLDEST), slot), last + 1):
            config = load_i64(batch, B_CONFIGS) + 8 * CONFIG_WORDS * (slot * history + position % history)
            if load_i64(config, CONFIG_HEADS) > 0:
                number = load_i64(config, CONFIG_FIRST_HEAD + HEAD_STATES)
                store_i64(config, CONFIG_FIRST_HEAD + HEAD_STATES, load_i32(renamed, number) - 1)


@helper
def lazy_positions(grammar):  # type: ignore[no-untyped-def]
    return load_i64(load_i64(grammar, G_AUTOMATON), H_LAZY_STATES)
