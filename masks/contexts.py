"""The masks of recursive grammars: contexts, shared by all sequences of a grammar, put together along real stacks.

A context is interned by (state, what its tokens have learned of its register, list of trie nodes walked):
`masks.context_walk` says what it holds. A mask is the union over all pairs (stack node, context) that are reached from
the heads. A pair whose context has a list of returns leads to the states that its node's continuations return to, each
with that list. A pair whose context makes calls leads to the starts of the frames called, each with its own list; the
node of such a call is made here, one for each frame and list, so that left recursion is a node among its own
continuations, as in `masks.graph`. Every return and every list reads at least a byte of the token, so this ends.

Contexts are a cache: where they do not suffice the configuration itself is walked (`masks.stack_walk`).
"""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import H_N_STATES
from .context_store import BY_STACK, FORGOTTEN, LATER, NEVER, context_of, may_run, parts_of, room_for_mask
from .context_walk import FAILED
from .graph import leads_on
from .layout import (
    B_ARENAS,
    B_CALLED,
    B_CONTINUATIONS,
    B_COUNTERS,
    B_DIRECT,
    B_EPOCH,
    B_JOB,
    B_JOB_TOTAL,
    B_MOVES,
    B_PAIRS,
    B_RETURNS,
    B_RUN_STACK,
    B_SCRATCH,
    B_VISIT,
    B_VOCABULARY,
    B_VOCABULARY_START,
    B_WORDS,
    BLOCK_COUNT,
    BLOCK_TRIPLES,
    CALLED_BASE,
    CALLED_FRAME,
    CALLED_LIST,
    CALLED_WORDS,
    CONFIG_BLOCK,
    CONFIG_HEADS,
    CONTEXT_ITEM,
    CONTEXT_ITEMS,
    CONTEXT_MASK,
    CONTEXT_RETURN,
    CONTEXT_WORDS,
    CONTINUATION_NODE,
    CONTINUATION_OF,
    CONTINUATION_REGISTER,
    CONTINUATION_STATE,
    CONTINUATION_WORDS,
    COUNT_CONTEXTS,
    COUNT_HITS,
    COUNT_MISSES,
    COUNT_VISITED,
    COUNT_WORK,
    EXIT,
    G_AUTOMATON,
    G_CONTEXT_EPOCH,
    G_CONTEXTS,
    G_ITEMS,
    G_NUMBER,
    IDLE,
    INCLUSIVE,
    ITEM_ADDED,
    ITEM_CALL,
    ITEM_LIST,
    ITEM_WORDS,
    J_STAGE,
    KIND_EMPTY,
    KIND_SHIFT,
    KIND_SINGLE,
    MAX_CALLED,
    MAX_CONTINUATIONS,
    MAX_PAIRS,
    MAX_RETURNS,
    PAIR_CONTEXT,
    PAIR_NODE,
    PAIR_REGISTER,
    PAIR_WORDS,
    RETURN_LIST,
    RETURN_NODE,
    RETURN_WORDS,
    VISIT_CALLED,
    VISIT_CONTINUATIONS,
    VISIT_FULL,
    VISIT_PAIRS,
    VISIT_RETURNS,
    VISIT_WORDS,
    WHOLE,
)
from .lazy import mix
from .machine import AT_CALL_FRAME, AT_CALL_START, AT_CALL_TARGET, AT_FRAME_START, frame_of, may_return, moved_register
from .members import AT_OPERATION_BIT, AT_OPERATION_TARGET, after_member
from .memory import call_kernel, load_i32, load_i64, section, shift_right, store_i64
from .pool import count, expand_mask, find_entry, intern_mask, resolve
from .stack_walk import begin_stack_walk

#: So many of what was visited before are looked at in the time of one byte edge (`bench/fuel.py`).
COMPARISONS = 32


@helper
def _visit(batch, grammar, vocabulary, node, state, register, list_number, fuel):  # type: ignore[no-untyped-def]
    """Add the pair of `node` and a context unless it is there, or those of the two parts of the list.

    (0, or what `context_of` says instead; fuel left).
    """
    visit, pairs = load_i64(batch, B_VISIT), load_i64(batch, B_PAIRS)
    first, last = parts_of(grammar, list_number)
    for part in range(1 if first == last else 2):
        number, fuel = context_of(batch, grammar, vocabulary, state, register, first if part == 0 else last, fuel)
        if number < 0:
            return number, fuel
        n = load_i64(visit, VISIT_PAIRS)
        own = register
        if load_i64(load_i64(grammar, G_CONTEXTS) + 8 * CONTEXT_WORDS * number, CONTEXT_ITEMS) == 0:
            own = 0  # nothing comes back to it
        known = False
        for i in range(n):
            if (
                load_i64(pairs, PAIR_WORDS * i + PAIR_NODE) == node
                and load_i64(pairs, PAIR_WORDS * i + PAIR_CONTEXT) == number
                and load_i64(pairs, PAIR_WORDS * i + PAIR_REGISTER) == own
            ):
                known = True
                break
        if known:
            continue
        if n == MAX_PAIRS:
            return BY_STACK, fuel
        store_i64(pairs, PAIR_WORDS * n + PAIR_NODE, node)
        store_i64(pairs, PAIR_WORDS * n + PAIR_CONTEXT, number)
        store_i64(pairs, PAIR_WORDS * n + PAIR_REGISTER, own)
        store_i64(visit, VISIT_PAIRS, n + 1)
    return 0, fuel


@helper
def _return_from(batch, node, list_number):  # type: ignore[no-untyped-def]
    """Note that `node` returns at the nodes of a list. False: no room."""
    visit, returns = load_i64(batch, B_VISIT), load_i64(batch, B_RETURNS)
    n = load_i64(visit, VISIT_RETURNS)
    for i in range(n):
        if (
            load_i64(returns, RETURN_WORDS * i + RETURN_NODE) == node
            and load_i64(returns, RETURN_WORDS * i + RETURN_LIST) == list_number
        ):
            return True
    if n == MAX_RETURNS:
        return False
    store_i64(returns, RETURN_WORDS * n + RETURN_NODE, node)
    store_i64(returns, RETURN_WORDS * n + RETURN_LIST, list_number)
    store_i64(visit, VISIT_RETURNS, n + 1)
    return True


@helper
def _go_on(batch, grammar, vocabulary, node, state, register, list_number, nullable, fuel):  # type: ignore[no-untyped-def]
    """A return leads to this head, on a list. With `nullable` it may itself return at once. As `_visit`."""
    automaton = load_i64(grammar, G_AUTOMATON)
    if nullable and may_return(automaton, state, register) and not _return_from(batch, node, list_number):
        return BY_STACK, fuel
    if not leads_on(automaton, state, register):
        return 0, fuel
    return _visit(batch, grammar, vocabulary, node, state, register, list_number, fuel)


@helper
def _call_frame(batch, grammar, vocabulary, node, register, item, fuel):  # type: ignore[no-untyped-def]
    """Follow a call, or the beginning of a member, that a context has for `node` and a register. As `_visit`."""
    automaton = load_i64(grammar, G_AUTOMATON)
    visit = load_i64(batch, B_VISIT)
    called = load_i64(batch, B_CALLED)
    call, list_number = load_i64(item, ITEM_CALL), load_i64(item, ITEM_LIST)
    calls = load_i32(section(automaton, AT_CALL_START), load_i64(automaton, H_N_STATES))
    if call >= calls:
        begun = load_i32(section(automaton, AT_OPERATION_TARGET), call - calls)
        bit = load_i32(section(automaton, AT_OPERATION_BIT), call - calls)
        after = after_member(automaton, frame_of(automaton, begun), register, bit)
        if after < 0:
            return 0, fuel
        return _visit(batch, grammar, vocabulary, node, begun, after, list_number | INCLUSIVE, fuel)
    frame = load_i32(section(automaton, AT_CALL_FRAME), call)
    n = load_i64(visit, VISIT_CALLED)
    number = 0
    while number < n and (
        load_i64(called, CALLED_WORDS * number + CALLED_FRAME) != frame
        or load_i64(called, CALLED_WORDS * number + CALLED_LIST) != list_number
    ):
        number += 1
    if number == n:
        if n == MAX_CALLED:
            return BY_STACK, fuel
        store_i64(called, CALLED_WORDS * n + CALLED_FRAME, frame)
        store_i64(called, CALLED_WORDS * n + CALLED_LIST, list_number)
        store_i64(visit, VISIT_CALLED, n + 1)
    continuations = load_i64(batch, B_CONTINUATIONS)
    m = load_i64(visit, VISIT_CONTINUATIONS)
    if m == MAX_CONTINUATIONS:
        return BY_STACK, fuel
    own = CALLED_BASE + number
    target = load_i32(section(automaton, AT_CALL_TARGET), call)
    register = moved_register(automaton, target, register, load_i64(item, ITEM_ADDED))
    for i in range(m):
        at = CONTINUATION_WORDS * i
        if (
            load_i64(continuations, at + CONTINUATION_OF) == own
            and load_i64(continuations, at + CONTINUATION_NODE) == node
            and load_i64(continuations, at + CONTINUATION_STATE) == target
            and load_i64(continuations, at + CONTINUATION_REGISTER) == register
        ):
            return 0, fuel
    at = CONTINUATION_WORDS * m
    store_i64(continuations, at + CONTINUATION_OF, own)
    store_i64(continuations, at + CONTINUATION_NODE, node)
    store_i64(continuations, at + CONTINUATION_STATE, target)
    store_i64(continuations, at + CONTINUATION_REGISTER, register)
    store_i64(visit, VISIT_CONTINUATIONS, m + 1)
    # What is known to return from this node goes on here too.
    returns = load_i64(batch, B_RETURNS)
    answer = 0
    for i in range(load_i64(visit, VISIT_RETURNS)):
        if answer == 0 and i < load_i64(visit, VISIT_FULL) and load_i64(returns, RETURN_WORDS * i + RETURN_NODE) == own:
            back = load_i64(returns, RETURN_WORDS * i + RETURN_LIST)
            answer, fuel = _go_on(batch, grammar, vocabulary, node, target, register, back, True, fuel)
    if answer == 0:
        entry = load_i32(section(automaton, AT_FRAME_START), frame)
        answer, fuel = _visit(batch, grammar, vocabulary, own, entry, 0, list_number, fuel)
    return answer, fuel


@helper
def _collect(batch, grammar, vocabulary, arena, block, fuel):  # type: ignore[no-untyped-def]
    """(0 where all pairs of the heads in `block` are in B_PAIRS, or what `context_of` says instead; fuel left)."""
    visit = load_i64(batch, B_VISIT)
    for word in range(VISIT_WORDS):
        store_i64(visit, word, 0)
    contexts, items = load_i64(grammar, G_CONTEXTS), load_i64(grammar, G_ITEMS)
    pairs, returns = load_i64(batch, B_PAIRS), load_i64(batch, B_RETURNS)
    continuations = load_i64(batch, B_CONTINUATIONS)
    heads = arena + 8 * block
    answer = 0
    for i in range(load_i64(heads, BLOCK_COUNT)):
        at = BLOCK_TRIPLES + 3 * i
        answer, fuel = _visit(
            batch, grammar, vocabulary,
            load_i64(heads, at), load_i64(heads, at + 1), load_i64(heads, at + 2), WHOLE, fuel,
        )  # fmt: skip
        if answer < 0:
            return answer, fuel
    done_pairs = 0
    while done_pairs < load_i64(visit, VISIT_PAIRS) or load_i64(visit, VISIT_FULL) < load_i64(visit, VISIT_RETURNS):
        if done_pairs < load_i64(visit, VISIT_PAIRS):
            node = load_i64(pairs, PAIR_WORDS * done_pairs + PAIR_NODE)
            register = load_i64(pairs, PAIR_WORDS * done_pairs + PAIR_REGISTER)
            context = contexts + 8 * CONTEXT_WORDS * load_i64(pairs, PAIR_WORDS * done_pairs + PAIR_CONTEXT)
            done_pairs += 1
            back = load_i64(context, CONTEXT_RETURN)
            if back >= 0 and not _return_from(batch, node, back):
                return BY_STACK, fuel
            first = load_i64(context, CONTEXT_ITEM)
            for k in range(first, first + load_i64(context, CONTEXT_ITEMS)):
                item = items + 8 * ITEM_WORDS * k
                answer, fuel = _call_frame(batch, grammar, vocabulary, node, register, item, fuel)
                if answer < 0:
                    return answer, fuel
            continue
        # VISIT_FULL: returns that have been followed along all continuations there were.
        at = load_i64(visit, VISIT_FULL)
        store_i64(visit, VISIT_FULL, at + 1)
        node = load_i64(returns, RETURN_WORDS * at + RETURN_NODE)
        back = load_i64(returns, RETURN_WORDS * at + RETURN_LIST)
        virtual = node >= CALLED_BASE
        block_of_node = arena + 8 * node
        n = load_i64(visit, VISIT_CONTINUATIONS) if virtual else load_i64(block_of_node, BLOCK_COUNT)
        for i in range(n):
            if virtual:
                triple = continuations + 8 * (CONTINUATION_WORDS * i + CONTINUATION_NODE)
                if load_i64(continuations, CONTINUATION_WORDS * i + CONTINUATION_OF) != node:
                    continue
            else:
                triple = block_of_node + 8 * (BLOCK_TRIPLES + 3 * i)
                if load_i64(triple, 0) == EXIT:
                    continue
            # Real continuations have nullable returns followed already.
            answer, fuel = _go_on(
                batch, grammar, vocabulary,
                load_i64(triple, 0), load_i64(triple, 1), load_i64(triple, 2), back, virtual, fuel,
            )  # fmt: skip
            if answer < 0:
                return answer, fuel
    return 0, fuel


@helper
def _walk_stack(batch, grammar, vocabulary, arena, block, low, high, fuel):  # type: ignore[no-untyped-def]
    """(mask id, or LATER, NEVER; fuel left) of the heads in `block`, without contexts."""
    if not room_for_mask(batch):
        return LATER, fuel
    mask_id = resolve(batch, find_entry(batch, low, high), 2, load_i64(batch, B_SCRATCH))
    if mask_id >= 0:
        return mask_id, fuel
    if fuel <= 0 or not may_run(batch, low, high):
        return LATER, fuel
    if load_i64(load_i64(batch, B_JOB), J_STAGE) == IDLE:
        count(batch, COUNT_MISSES, 1)
        begin_stack_walk(batch, grammar, vocabulary, arena, block, low, high)
    left = call_kernel(load_i64(batch, B_RUN_STACK), batch, fuel)
    if left == FAILED:
        return NEVER, fuel
    if left < 0:
        return LATER, 0
    packed = intern_mask(batch, load_i64(batch, B_JOB_TOTAL))
    store_i64(find_entry(batch, low, high), 2, packed)
    return packed & 0x7FFFFFFF, left


@helper
def _union(batch, grammar, fuel):  # type: ignore[no-untyped-def]
    """(mask id, or FORGOTTEN, or LATER; fuel left) of the pairs in B_PAIRS."""
    contexts = load_i64(grammar, G_CONTEXTS)
    table = load_i64(batch, B_PAIRS)
    pairs = load_i64(load_i64(batch, B_VISIT), VISIT_PAIRS)
    scratch = load_i64(batch, B_SCRATCH)
    low = mix(mix(0x2545F4914F6CDD1D, load_i64(grammar, G_NUMBER)), load_i64(grammar, G_CONTEXT_EPOCH))
    high = low * -0x2917014799A6026D
    parts = 0
    only = KIND_EMPTY << KIND_SHIFT
    for i in range(pairs):
        number = load_i64(table, PAIR_WORDS * i + PAIR_CONTEXT)
        context = contexts + 8 * CONTEXT_WORDS * number
        packed = load_i64(context, CONTEXT_MASK)
        mask_id = packed & 0x7FFFFFFF
        kind = mask_id >> KIND_SHIFT
        if kind == KIND_EMPTY:
            continue
        if kind != KIND_SINGLE and packed >> 32 != load_i64(batch, B_EPOCH):
            if not room_for_mask(batch):
                return LATER, fuel
            mask_id = resolve(batch, context, CONTEXT_MASK, scratch)
            if mask_id < 0:
                return FORGOTTEN, fuel
        parts += 1
        only = mask_id
        low = mix(low, number)
        high = (high ^ number) * -0x4B47D0C5A6B1E0A3
        high ^= shift_right(high, 31)
    if parts < 2:
        return only, fuel
    if not room_for_mask(batch):
        return LATER, fuel
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
        if load_i64(batch, B_EPOCH) - (packed >> 32) > 1 and mask_id >> KIND_SHIFT < KIND_SINGLE:
            return FORGOTTEN, fuel  # a new epoch began meanwhile
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
    answer = BY_STACK if load_i64(batch, B_DIRECT) != 0 else FORGOTTEN
    visit = load_i64(batch, B_VISIT)
    walked = load_i64(load_i64(batch, B_COUNTERS), COUNT_CONTEXTS)
    for _ in range(4):
        if answer == FORGOTTEN:
            answer, fuel = _collect(batch, grammar, vocabulary, arena, block, fuel)
            # What was visited; each is looked for among those before it.
            work = load_i64(visit, VISIT_PAIRS) + load_i64(visit, VISIT_RETURNS) + load_i64(visit, VISIT_CONTINUATIONS)
            work += work * work // COMPARISONS
            count(batch, COUNT_WORK, work)
            count(batch, COUNT_VISITED, work)
            fuel -= work
            if answer == 0:
                answer, fuel = _union(batch, grammar, fuel)
    if answer == FORGOTTEN or answer == BY_STACK:
        # A block never changes, and none takes the place of another but in a move.
        low = mix(mix(mix(0x9E3779B97F4A7C15, slot), block), load_i64(batch, B_MOVES))
        high = mix(low, load_i64(grammar, G_NUMBER))
        return _walk_stack(batch, grammar, vocabulary, arena, block, low, high, fuel)
    if answer >= 0 and load_i64(load_i64(batch, B_COUNTERS), COUNT_CONTEXTS) == walked:
        count(batch, COUNT_HITS, 1)
    return answer, fuel
