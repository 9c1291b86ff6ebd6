"""The path of a walk through the vocabulary, one byte longer: a state as a rule, else a whole configuration."""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import HAS_CALLS
from .layout import (
    B_JOB,
    B_JOB_CONFIGS,
    B_JOB_REGISTER,
    B_JOB_SETS,
    B_JOB_STATE,
    B_SCRATCH,
    CONFIG_FLAGS,
    CONFIG_HEADS,
    CONFIG_WORDS,
    G_LAZY_WORDS,
    HEAD_DEPTH,
    J_FOLLOW,
)
from .lazy import lazy_step
from .machine import (
    AT_SINGLE_BYTE,
    AT_SINGLE_TARGET,
    add_head,
    close,
    delta,
    flags_of,
    head_at,
    may_return,
    next_register,
    restart_of,
    step_config,
)
from .memory import count_trailing_zeros, load_i32, load_i64, load_u8, section, store_i64
from .trie import RECORD_BYTES, RECORD_LENGTH, SAME_TOKENS, TOKEN_ENDS, V_NEXT_SAME, V_NODE_TOKEN

CONFIG_COST = 8  # fuel of stepping a configuration, in byte edges
#: Fuel of coming to an undecided token, besides its bytes: what is known of it lies far from the one before.
TOKEN_COST = 3
#: Words and edges of a lazy state set that are read in the time of one byte edge (`bench/fuel.py`).
LAZY_READS = 4


@helper
def closing_cost(work):  # type: ignore[no-untyped-def]
    """Fuel of the configuration that was closed last in scratch: its heads are compared with each other."""
    heads = load_i64(work, CONFIG_HEADS)
    return CONFIG_COST + 2 * heads + heads * heads // 8


@helper
def set_bit(words, bit):  # type: ignore[no-untyped-def]
    store_i64(words, bit >> 6, load_i64(words, bit >> 6) | (1 << (bit & 63)))


@helper
def add_tokens(vocabulary, node, packed, mask):  # type: ignore[no-untyped-def]
    """Set the bits of the tokens that end at trie node `node`, whose word is `packed`."""
    if packed & TOKEN_ENDS != 0:
        token = load_i32(load_i64(vocabulary, V_NODE_TOKEN), node)
        set_bit(mask, token)
        if packed & SAME_TOKENS != 0:
            token = load_i32(load_i64(vocabulary, V_NEXT_SAME), token)
            while token >= 0:
                set_bit(mask, token)
                token = load_i32(load_i64(vocabulary, V_NEXT_SAME), token)


@helper
def config_of(batch, index):  # type: ignore[no-untyped-def]
    return load_i64(batch, B_JOB_CONFIGS) + 8 * CONFIG_WORDS * index


@helper
def _single_head(batch, automaton, state, register, out):  # type: ignore[no-untyped-def]
    """`out` = the closed configuration whose one head is the job's head with another top."""
    base = head_at(config_of(batch, 0), 0)
    work = load_i64(batch, B_SCRATCH)
    store_i64(work, CONFIG_HEADS, 0)
    store_i64(work, CONFIG_FLAGS, 0)
    add_head(work, base, load_i64(base, HEAD_DEPTH), state, register)
    close(automaton, work, out)


@helper
def _step_path(batch, automaton, depth, byte):  # type: ignore[no-untyped-def]
    """Extend the path by one byte: entry `depth` -> entry `depth + 1`. Returns the work, negative where it dies."""
    states = load_i64(batch, B_JOB_STATE)
    registers = load_i64(batch, B_JOB_REGISTER)
    state = load_i64(states, depth)
    work = load_i64(batch, B_SCRATCH)
    if state >= 0:
        register = load_i64(registers, depth)
        leaves = False
        if depth > 0:
            follow = load_i64(load_i64(batch, B_JOB), J_FOLLOW)
            leaves = (load_i64(follow, byte >> 6) >> (byte & 63)) & 1 != 0 and may_return(automaton, state, register)
        if not leaves:
            target = delta(automaton, state, byte)
            start = restart_of(automaton, state, register)
            if start >= 0:
                other = delta(automaton, start, byte)
                if other >= 0 and target >= 0:
                    # The byte may go on with the item or begin another one: two heads.
                    work = load_i64(batch, B_SCRATCH)
                    base = head_at(config_of(batch, 0), 0)
                    store_i64(work, CONFIG_HEADS, 0)
                    store_i64(work, CONFIG_FLAGS, 0)
                    add_head(work, base, load_i64(base, HEAD_DEPTH), target, register)
                    again = next_register(automaton, state, register)
                    add_head(work, base, load_i64(base, HEAD_DEPTH), other, again)
                    close(automaton, work, config_of(batch, depth + 1))
                    store_i64(states, depth + 1, -1)
                    return closing_cost(work)
                if other >= 0:
                    target = other
                    register = next_register(automaton, state, register)
            if target < 0:
                return -1
            calls = flags_of(automaton, target) & HAS_CALLS
            if calls == 0:
                start = restart_of(automaton, target, register)
                if start >= 0:
                    calls = flags_of(automaton, start) & HAS_CALLS
            if calls == 0:
                store_i64(states, depth + 1, target)
                store_i64(registers, depth + 1, register)
                return 1
            _single_head(batch, automaton, target, register, config_of(batch, depth + 1))
            store_i64(states, depth + 1, -1)
            return closing_cost(work)
        _single_head(batch, automaton, state, register, config_of(batch, depth))
    if not step_config(automaton, config_of(batch, depth), byte, work, config_of(batch, depth + 1)):
        return -closing_cost(work)
    store_i64(states, depth + 1, -1)
    return closing_cost(work)


@helper
def _step_lazy(batch, grammar, automaton, depth, byte):  # type: ignore[no-untyped-def]
    """`_step_path` of a lazy grammar: the path holds state sets, and -1 for each state."""
    store_i64(load_i64(batch, B_JOB_STATE), depth + 1, -1)
    words = load_i64(grammar, G_LAZY_WORDS)
    sets = load_i64(batch, B_JOB_SETS)
    reads = lazy_step(automaton, sets + 8 * words * depth, words, byte, sets + 8 * words * (depth + 1))
    work = 1 + abs(reads) // LAZY_READS
    return work if reads > 0 else -work


@helper
def step_slow(batch, grammar, automaton, lazy, depth, byte):  # type: ignore[no-untyped-def]
    """Extend the path by one byte where that may be more than a byte edge. Returns the work, negative where it dies."""
    if lazy:
        return _step_lazy(batch, grammar, automaton, depth, byte)
    return _step_path(batch, automaton, depth, byte)


@helper
def step_fast(automaton, edges, dense, classes, n_classes, flags, special, state, byte):  # type: ignore[no-untyped-def]
    """Target of the byte, -1 where it dies, -2 where `step_slow` must find out. Sections are looked up once a walk.

    `special`: flags of states that may be left by other ways than a byte edge; 0: there are none.
    """
    if state < 0 or (special != 0 and load_u8(flags, state) & special != 0):
        return -2
    edge = load_i32(edges, state)
    target = -1
    if edge >= 0:
        target = load_i32(dense, edge * n_classes + load_u8(classes, byte))
    elif edge != -1 and load_u8(section(automaton, AT_SINGLE_BYTE), -2 - edge) == byte:
        target = load_i32(section(automaton, AT_SINGLE_TARGET), -2 - edge)
    if special != 0 and target >= 0 and load_u8(flags, target) & special != 0:
        return -2
    return target


@helper
def shared_bytes(record, rank_start, data, rank, length, previous):  # type: ignore[no-untyped-def]
    """How many first bytes the token of `rank`, of `length` bytes, shares with that of rank `previous`."""
    first, other = load_i64(record, rank), load_i64(record, previous)
    most = min(length, (other >> 56) & RECORD_LENGTH)
    differ = (first ^ other) & ((1 << (8 * RECORD_BYTES)) - 1)
    shared = RECORD_BYTES if differ == 0 else count_trailing_zeros(differ) >> 3
    if most > RECORD_BYTES and shared == RECORD_BYTES:
        begin, before = load_i32(rank_start, rank), load_i32(rank_start, previous)
        most = min(length, load_i32(rank_start, previous + 1) - before)
        while shared < most and load_u8(data, begin + shared) == load_u8(data, before + shared):
            shared += 1
    return min(shared, most)
