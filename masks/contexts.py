"""The masks of recursive grammars: a tree of contexts, shared by all sequences of a grammar.

A context is interned by (state, what a token can learn of its register, residual list walked): `masks.context_walk`
says what it holds. The mask of a configuration is the union over pairs (stack node, context): those of its heads, and
where a context has a residual list, for every continuation of the node the context of (return state, that list). Every
level consumes a byte of the token, so this ends. Contexts are a cache: where they do not suffice the configuration
itself is walked, which is always exact.
"""

from __future__ import annotations

from .._numba import helper
from .context_walk import FAILED, begin_context, begin_direct
from .layout import (
    B_ARENAS,
    B_DENSE_USED,
    B_DIRECT,
    B_EPOCH,
    B_HALF,
    B_JOB,
    B_JOB_TOTAL,
    B_LIST_TOKENS_HALF,
    B_LIST_TOKENS_USED,
    B_LIST_USED,
    B_LISTS,
    B_PAIRS,
    B_RUN_CONTEXT,
    B_SCRATCH,
    B_SLOTS,
    B_STEP_EPOCH,
    B_VOCABULARY,
    B_VOCABULARY_START,
    B_WORDS,
    BLOCK_COUNT,
    BLOCK_TRIPLES,
    CONFIG_BLOCK,
    CONFIG_HEADS,
    CONTEXT_HIGH,
    CONTEXT_LENGTH,
    CONTEXT_LIST,
    CONTEXT_LIST_HIGH,
    CONTEXT_LIST_LOW,
    CONTEXT_LOW,
    CONTEXT_MASK,
    CONTEXT_WORDS,
    COUNT_HITS,
    COUNT_MISSES,
    EXIT,
    G_AUTOMATON,
    G_CONTEXT_COUNT,
    G_CONTEXT_TABLE,
    G_CONTEXTS,
    G_NUMBER,
    G_RESIDUALS,
    G_RESIDUALS_USED,
    IDLE,
    J_KEY_HIGH,
    J_KEY_LOW,
    J_RESIDUAL_LENGTH,
    J_STAGE,
    KIND_EMPTY,
    KIND_SHIFT,
    MAX_CONTEXTS,
    MAX_LIST,
    MAX_PAIRS,
    MAX_RESIDUALS,
    PAIR_CONTEXT,
    PAIR_NODE,
    PAIR_WORDS,
)
from .lazy import mix
from .machine import register_class
from .memory import call_kernel, load_i32, load_i64, shift_right, store_i32, store_i64
from .pool import count, expand_mask, find_entry, intern_mask, new_epoch, resolve
from .trie import V_MAX_BYTES

#: Instead of a context's number: the mask cannot be known now, or a limit of the stack graph was passed.
_PENDING, _FAILED, _AGAIN = -1, -2, -3


@helper
def _room_for_mask(batch):  # type: ignore[no-untyped-def]
    """Is there room in the pool for one more mask, and for one of each slot after it? At most one new epoch a step."""
    most = load_i64(batch, B_SLOTS) + 1
    if (
        load_i64(batch, B_DENSE_USED) + most <= load_i64(batch, B_HALF)
        and load_i64(batch, B_LIST_USED) + most <= load_i64(batch, B_LISTS)
        and load_i64(batch, B_LIST_TOKENS_USED) + most * MAX_LIST <= load_i64(batch, B_LIST_TOKENS_HALF)
    ):
        return True
    if load_i64(batch, B_EPOCH) != load_i64(batch, B_STEP_EPOCH):
        return False
    new_epoch(batch)
    return True


@helper
def _find_context(grammar, low, high):  # type: ignore[no-untyped-def]
    """Number of the context of this key, or -1."""
    table, contexts = load_i64(grammar, G_CONTEXT_TABLE), load_i64(grammar, G_CONTEXTS)
    place = shift_right(low, 1) & (2 * MAX_CONTEXTS - 1)
    while True:
        number = load_i32(table, place)
        if number < 0:
            return -1
        context = contexts + 8 * CONTEXT_WORDS * number
        if load_i64(context, CONTEXT_LOW) == low and load_i64(context, CONTEXT_HIGH) == high:
            return number
        place = (place + 1) & (2 * MAX_CONTEXTS - 1)


@helper
def _forget_contexts(grammar):  # type: ignore[no-untyped-def]
    table = load_i64(grammar, G_CONTEXT_TABLE)
    for place in range(2 * MAX_CONTEXTS):
        store_i32(table, place, -1)
    store_i64(grammar, G_CONTEXT_COUNT, 0)
    store_i64(grammar, G_RESIDUALS_USED, 0)


@helper
def _store_context(batch, grammar, number, low, high):  # type: ignore[no-untyped-def]
    """Keep the context that was walked last, in the place of `number` unless that is -1; returns its number."""
    job = load_i64(batch, B_JOB)
    contexts = load_i64(grammar, G_CONTEXTS)
    length = load_i64(job, J_RESIDUAL_LENGTH)
    used = load_i64(grammar, G_RESIDUALS_USED)
    if number < 0:
        number = load_i64(grammar, G_CONTEXT_COUNT)
        store_i64(grammar, G_CONTEXT_COUNT, number + 1)
        table = load_i64(grammar, G_CONTEXT_TABLE)
        place = shift_right(low, 1) & (2 * MAX_CONTEXTS - 1)
        while load_i32(table, place) >= 0:
            place = (place + 1) & (2 * MAX_CONTEXTS - 1)
        store_i32(table, place, number)
        listed = load_i64(grammar, G_RESIDUALS) + 4 * used
        list_low, list_high = 0x3243F6A8885A308D + length, 0x13198A2E03707344
        for i in range(length):
            node = load_i32(listed, i)
            list_low = mix(list_low, node)
            list_high = (list_high ^ node) * -0x4B47D0C5A6B1E0A3
            list_high ^= shift_right(list_high, 29)
        context = contexts + 8 * CONTEXT_WORDS * number
        store_i64(context, CONTEXT_LOW, low)
        store_i64(context, CONTEXT_HIGH, high)
        store_i64(context, CONTEXT_LIST, used)
        store_i64(context, CONTEXT_LENGTH, length)
        store_i64(context, CONTEXT_LIST_LOW, list_low)
        store_i64(context, CONTEXT_LIST_HIGH, list_high)
        store_i64(grammar, G_RESIDUALS_USED, used + length)
    store_i64(contexts + 8 * CONTEXT_WORDS * number, CONTEXT_MASK, intern_mask(batch, load_i64(batch, B_JOB_TOTAL)))
    return number


@helper
def _run(batch, fuel):  # type: ignore[no-untyped-def]
    """Go on with the job: (0 when done, or _PENDING, or _FAILED; fuel left)."""
    left = call_kernel(load_i64(batch, B_RUN_CONTEXT), batch, fuel)
    if left == FAILED:
        return _FAILED, fuel
    if left < 0:
        return _PENDING, 0
    return 0, left


@helper
def _may_run(batch, low, high):  # type: ignore[no-untyped-def]
    """Is the job idle, or this one?"""
    job = load_i64(batch, B_JOB)
    return load_i64(job, J_STAGE) == IDLE or (load_i64(job, J_KEY_LOW) == low and load_i64(job, J_KEY_HIGH) == high)


@helper
def _context_of(batch, grammar, vocabulary, state, register, parent, fuel):  # type: ignore[no-untyped-def]
    """(context number, or _PENDING, _FAILED, _AGAIN; fuel left) of a state and the residual list of context `parent`.

    `parent` is -1 for the whole vocabulary. _AGAIN: all contexts were forgotten.
    """
    automaton = load_i64(grammar, G_AUTOMATON)
    contexts = load_i64(grammar, G_CONTEXTS)
    klass = register_class(automaton, state, register, load_i64(vocabulary, V_MAX_BYTES))
    low = mix(0x452821E638D01377 ^ state, klass)
    high = (low ^ 0x3BD3B7D4BE5466CF) * -0x4B47D0C5A6B1E0A3
    high ^= shift_right(high, 31)
    listed, length = 0, 0
    if parent >= 0:
        context = contexts + 8 * CONTEXT_WORDS * parent
        low = mix(low, load_i64(context, CONTEXT_LIST_LOW))
        high = (high ^ load_i64(context, CONTEXT_LIST_HIGH)) * -0x2917014799A6026D
        high ^= shift_right(high, 31)
        listed = load_i64(grammar, G_RESIDUALS) + 4 * load_i64(context, CONTEXT_LIST)
        length = load_i64(context, CONTEXT_LENGTH)
    if vocabulary != load_i64(batch, B_VOCABULARY):
        low = mix(low, 1)
    number = _find_context(grammar, low, high)
    if not _room_for_mask(batch):
        return _PENDING, fuel
    if (
        number >= 0
        and resolve(batch, contexts + 8 * CONTEXT_WORDS * number, CONTEXT_MASK, load_i64(batch, B_SCRATCH)) >= 0
    ):
        return number, fuel
    # Which grammar's job this is: so far the key tells states apart only.
    job_low = mix(low, load_i64(grammar, G_NUMBER))
    if fuel <= 0 or not _may_run(batch, job_low, high):
        return _PENDING, fuel
    job = load_i64(batch, B_JOB)
    if load_i64(job, J_STAGE) == IDLE:
        if load_i64(grammar, G_CONTEXT_COUNT) == MAX_CONTEXTS or load_i64(grammar, G_RESIDUALS_USED) == MAX_RESIDUALS:
            _forget_contexts(grammar)
            return _AGAIN, fuel
        count(batch, COUNT_MISSES, 1)
        begin_context(batch, grammar, vocabulary, state, register, listed, length, job_low, high)
    done, fuel = _run(batch, fuel)
    if done < 0:
        return done, fuel
    if load_i64(grammar, G_RESIDUALS_USED) + load_i64(job, J_RESIDUAL_LENGTH) > MAX_RESIDUALS:
        _forget_contexts(grammar)
        return _AGAIN, fuel
    return _store_context(batch, grammar, number, low, high), fuel


@helper
def _add_pair(batch, pairs, node, context):  # type: ignore[no-untyped-def]
    """Add a pair unless it is there; returns the new number of pairs, MAX_PAIRS + 1 where there is no room."""
    table = load_i64(batch, B_PAIRS)
    for i in range(pairs):
        if (
            load_i64(table, PAIR_WORDS * i + PAIR_NODE) == node
            and load_i64(table, PAIR_WORDS * i + PAIR_CONTEXT) == context
        ):
            return pairs
    if pairs >= MAX_PAIRS:
        return MAX_PAIRS + 1
    store_i64(table, PAIR_WORDS * pairs + PAIR_NODE, node)
    store_i64(table, PAIR_WORDS * pairs + PAIR_CONTEXT, context)
    return pairs + 1


@helper
def _collect(batch, grammar, vocabulary, arena, block, fuel):  # type: ignore[no-untyped-def]
    """(pairs in B_PAIRS, or _PENDING, _FAILED, _AGAIN; fuel left) of the heads in `block`."""
    heads = arena + 8 * block
    contexts = load_i64(grammar, G_CONTEXTS)
    table = load_i64(batch, B_PAIRS)
    pairs = 0
    at = -1
    while at < pairs:
        # Turn -1 visits the heads, turn i the continuations of pair i.
        triples, parent = heads, -1
        if at >= 0:
            parent = load_i64(table, PAIR_WORDS * at + PAIR_CONTEXT)
            if load_i64(contexts + 8 * CONTEXT_WORDS * parent, CONTEXT_LENGTH) == 0:
                at += 1
                continue
            triples = arena + 8 * load_i64(table, PAIR_WORDS * at + PAIR_NODE)
        for i in range(load_i64(triples, BLOCK_COUNT)):
            node = load_i64(triples, BLOCK_TRIPLES + 3 * i)
            if node == EXIT:
                continue
            state = load_i64(triples, BLOCK_TRIPLES + 3 * i + 1)
            register = load_i64(triples, BLOCK_TRIPLES + 3 * i + 2)
            context, fuel = _context_of(batch, grammar, vocabulary, state, register, parent, fuel)
            if context < 0:
                return context, fuel
            pairs = _add_pair(batch, pairs, node, context)
            if pairs > MAX_PAIRS:
                return pairs, fuel
        at += 1
    return pairs, fuel


@helper
def _walk_directly(batch, grammar, vocabulary, arena, block, low, high, fuel):  # type: ignore[no-untyped-def]
    """(mask id, or _PENDING, _FAILED; fuel left) of the heads in `block`, without contexts."""
    if fuel <= 0 or not _may_run(batch, low, high) or not _room_for_mask(batch):
        return _PENDING, fuel
    if load_i64(load_i64(batch, B_JOB), J_STAGE) == IDLE:
        count(batch, COUNT_MISSES, 1)
        begin_direct(batch, grammar, vocabulary, arena, block, low, high)
    done, fuel = _run(batch, fuel)
    if done < 0:
        return done, fuel
    return intern_mask(batch, load_i64(batch, B_JOB_TOTAL)) & 0x7FFFFFFF, fuel


@helper
def _union(batch, grammar, pairs, fuel):  # type: ignore[no-untyped-def]
    """(mask id, or _AGAIN, or _PENDING; fuel left) of the `pairs` pairs in B_PAIRS."""
    contexts = load_i64(grammar, G_CONTEXTS)
    table = load_i64(batch, B_PAIRS)
    scratch = load_i64(batch, B_SCRATCH)
    low, high = mix(0x2545F4914F6CDD1D, load_i64(grammar, G_NUMBER)), 0
    parts = 0
    only = KIND_EMPTY << KIND_SHIFT
    for i in range(pairs):
        context = contexts + 8 * CONTEXT_WORDS * load_i64(table, PAIR_WORDS * i + PAIR_CONTEXT)
        mask_id = load_i64(context, CONTEXT_MASK) & 0x7FFFFFFF
        if mask_id >> KIND_SHIFT == KIND_EMPTY:
            continue
        if not _room_for_mask(batch):
            return _PENDING, fuel
        mask_id = resolve(batch, context, CONTEXT_MASK, scratch)
        if mask_id < 0:
            return _AGAIN, fuel
        parts += 1
        only = mask_id
        low = mix(low, load_i64(context, CONTEXT_LOW))
        high = (high ^ load_i64(context, CONTEXT_HIGH)) * -0x4B47D0C5A6B1E0A3
        high ^= shift_right(high, 31)
    if parts < 2:
        return only, fuel
    if not _room_for_mask(batch):
        return _PENDING, fuel
    entry = find_entry(batch, low, high)
    mask_id = resolve(batch, entry, 2, scratch)
    if mask_id >= 0:
        return mask_id, fuel
    words = load_i64(batch, B_WORDS)
    for word in range(words):
        store_i64(scratch, word, 0)
    for i in range(pairs):
        context = contexts + 8 * CONTEXT_WORDS * load_i64(table, PAIR_WORDS * i + PAIR_CONTEXT)
        packed = load_i64(context, CONTEXT_MASK)
        mask_id = packed & 0x7FFFFFFF
        if load_i64(batch, B_EPOCH) - (packed >> 32) > 1 and mask_id >> KIND_SHIFT < 2:
            return _AGAIN, fuel  # a new epoch began meanwhile
        expand_mask(batch, mask_id, scratch)
    packed = intern_mask(batch, scratch)
    store_i64(entry, 2, packed)
    return packed & 0x7FFFFFFF, fuel - words * (parts + 2) // 64


@helper
def mask_of_graph(batch, grammar, slot, config, at_start, fuel):  # type: ignore[no-untyped-def]
    """(mask id, -1 where it is not known yet, -2 where a limit was passed; fuel left) of a recursive configuration."""
    if load_i64(config, CONFIG_HEADS) == 0:
        return KIND_EMPTY << KIND_SHIFT, fuel
    vocabulary = load_i64(batch, B_VOCABULARY_START if at_start else B_VOCABULARY)
    arena = load_i64(load_i64(batch, B_ARENAS), slot)
    block = load_i64(config, CONFIG_BLOCK)
    direct = load_i64(batch, B_DIRECT) != 0
    begin = fuel
    for _ in range(4):
        if direct:
            break
        pairs, fuel = _collect(batch, grammar, vocabulary, arena, block, fuel)
        if pairs == _PENDING or pairs == _FAILED:
            return pairs, fuel
        if pairs > MAX_PAIRS:
            direct = True
        elif pairs >= 0:
            mask_id, fuel = _union(batch, grammar, pairs, fuel)
            if mask_id != _AGAIN:
                if fuel == begin and mask_id >= 0:
                    count(batch, COUNT_HITS, 1)
                return mask_id, fuel
    # The slot's number and block tell it from others; batches drop the job when a slot changes under it.
    low = mix(0x9E3779B97F4A7C15 ^ slot, block)
    return _walk_directly(batch, grammar, vocabulary, arena, block, low, mix(low, load_i64(grammar, G_NUMBER)), fuel)
