"""The masks of recursive grammars: contexts, shared by all sequences of a grammar, put together along real stacks.

A context is interned by (state, what its tokens have learned of its register, list of trie nodes walked):
`masks.context_walk` says what it holds. A mask is the union over all pairs (stack node, context) that are reached from
the heads. A pair whose context has a list of returns leads to the states that its node's continuations return to, each
with that list. A pair whose context makes calls leads to the starts of the frames called, each with its own list; the
node of such a call is made here, one for each frame and list, so that left recursion is a node among its own
continuations, as in `masks.graph`. Every return and every list reads at least a byte of the token, so this ends.

Visiting is resumable: what was visited stays with the lane that works for the row, with cursors. Fuel: VISIT_COST for
each pair, item and continuation, and one for `COMPARISONS` of those before it among which it is looked for.

Contexts are a cache: where they do not suffice the configuration itself is walked (`masks.stack_walk`).
"""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import H_N_STATES
from .context_store import BY_STACK, FORGOTTEN, LATER, NEVER, context_of, room_for_mask
from .context_union import unite
from .context_walk import FAILED
from .freeze import COMPARISONS
from .fuel import affords, count, fuel_left
from .graph import leads_on
from .lanes import may_run
from .layout import (
    B_ARENAS,
    B_CALLED,
    B_CONTINUATIONS,
    B_COUNTERS,
    B_DIRECT,
    B_JOB,
    B_JOB_TOTAL,
    B_MOVES,
    B_PAIRS,
    B_POSITION,
    B_RETURNS,
    B_ROW_MASK,
    B_RUN_STACK,
    B_SCRATCH,
    B_VISIT,
    B_VOCABULARY,
    B_VOCABULARY_START,
    BLOCK_COUNT,
    BLOCK_TRIPLES,
    CALLED_BASE,
    CALLED_FRAME,
    CALLED_LIST,
    CALLED_WORDS,
    COLLECTING,
    CONFIG_BLOCK,
    CONFIG_HEADS,
    CONTEXT_ITEM,
    CONTEXT_ITEMS,
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
    COUNT_RECALLED,
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
    MAX_CALLED,
    MAX_CONTINUATIONS,
    MAX_PAIRS,
    MAX_RETURNS,
    NOT_VISITED,
    PAIR_CONTEXT,
    PAIR_NODE,
    PAIR_REGISTER,
    PAIR_WORDS,
    RETURN_LIST,
    RETURN_NODE,
    RETURN_WORDS,
    UNITING,
    VISIT_BY_STACK,
    VISIT_CALLED,
    VISIT_CONTINUATIONS,
    VISIT_DONE,
    VISIT_FULL,
    VISIT_HEAD,
    VISIT_HIGH,
    VISIT_ITEM,
    VISIT_LOW,
    VISIT_NEXT,
    VISIT_PAIRS,
    VISIT_RETURN,
    VISIT_RETURNS,
    VISIT_STAGE,
    VISIT_TIMES,
    VISIT_WORDS,
    WHOLE,
)
from .lazy import mix
from .machine import AT_CALL_FRAME, AT_CALL_START, AT_CALL_TARGET, AT_FRAME_START, frame_of, may_return, moved_register
from .members import AT_OPERATION_BIT, AT_OPERATION_TARGET, after_member
from .memo import recall_mask
from .memory import call_kernel, load_i32, load_i64, section, store_i64
from .places import PLACE_HIGH, PLACE_LOW, current_place, find_place
from .pool import find_entry, intern_mask, mask_cost, resolve
from .stack_walk import begin_stack_walk
from .whole_stack import KEY_COST, MOST_READ, mask_of_stack

#: Fuel of one visit: its context is looked for in a table.
VISIT_COST = 6
#: A row whose contexts were forgotten more often than this while it was visited is walked on its own stack.
MOST_TIMES = 4


@helper
def _charge(batch, others):  # type: ignore[no-untyped-def]
    """Count a visit of something that was looked for among so many others."""
    count(batch, COUNT_WORK, VISIT_COST + others // COMPARISONS)
    count(batch, COUNT_VISITED, VISIT_COST + others // COMPARISONS)


@helper
def _visit(batch, grammar, vocabulary, node, state, register, list_number):  # type: ignore[no-untyped-def]
    """Add the pair of `node` and a context unless it is there: 0, or what `context_of` says instead."""
    number = context_of(batch, grammar, vocabulary, state, register, list_number)
    if number < 0:
        return number
    visit, pairs = load_i64(batch, B_VISIT), load_i64(batch, B_PAIRS)
    n = load_i64(visit, VISIT_PAIRS)
    _charge(batch, n)
    if load_i64(load_i64(grammar, G_CONTEXTS) + 8 * CONTEXT_WORDS * number, CONTEXT_ITEMS) == 0:
        register = 0  # nothing comes back to it
    for i in range(n):
        if (
            load_i64(pairs, PAIR_WORDS * i + PAIR_NODE) == node
            and load_i64(pairs, PAIR_WORDS * i + PAIR_CONTEXT) == number
            and load_i64(pairs, PAIR_WORDS * i + PAIR_REGISTER) == register
        ):
            return 0
    if n == MAX_PAIRS:
        return BY_STACK
    store_i64(pairs, PAIR_WORDS * n + PAIR_NODE, node)
    store_i64(pairs, PAIR_WORDS * n + PAIR_CONTEXT, number)
    store_i64(pairs, PAIR_WORDS * n + PAIR_REGISTER, register)
    store_i64(visit, VISIT_PAIRS, n + 1)
    return 0


@helper
def _return_from(batch, node, list_number):  # type: ignore[no-untyped-def]
    """Note that `node` returns at the nodes of a list. False: no room."""
    visit, returns = load_i64(batch, B_VISIT), load_i64(batch, B_RETURNS)
    n = load_i64(visit, VISIT_RETURNS)
    _charge(batch, n)
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
def _go_on(batch, grammar, vocabulary, node, state, register, list_number, nullable):  # type: ignore[no-untyped-def]
    """A return leads to this head, on a list. With `nullable` it may itself return at once. As `_visit`."""
    automaton = load_i64(grammar, G_AUTOMATON)
    # The pair first: where it cannot be visited now, all of this comes again, and nothing must have been spent on it.
    if leads_on(automaton, state, register):
        answer = _visit(batch, grammar, vocabulary, node, state, register, list_number)
        if answer < 0:
            return answer
    if nullable and may_return(automaton, state, register) and not _return_from(batch, node, list_number):
        return BY_STACK
    return 0


@helper
def _call_frame(batch, grammar, vocabulary, node, register, item):  # type: ignore[no-untyped-def]
    """Follow a call, or the beginning of a member, that a context has for `node` and a register. As `_visit`."""
    automaton = load_i64(grammar, G_AUTOMATON)
    visit = load_i64(batch, B_VISIT)
    called = load_i64(batch, B_CALLED)
    call, list_number = load_i64(item, ITEM_CALL), load_i64(item, ITEM_LIST)
    calls = load_i32(section(automaton, AT_CALL_START), load_i64(automaton, H_N_STATES))
    if call >= calls:
        begun = load_i32(section(automaton, AT_OPERATION_TARGET), call - calls)
        bit = load_i32(section(automaton, AT_OPERATION_BIT), call - calls)
        allowed, after = after_member(automaton, frame_of(automaton, begun), register, bit)
        if not allowed:
            return 0
        return _visit(batch, grammar, vocabulary, node, begun, after, list_number | INCLUSIVE)
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
            return BY_STACK
        store_i64(called, CALLED_WORDS * n + CALLED_FRAME, frame)
        store_i64(called, CALLED_WORDS * n + CALLED_LIST, list_number)
        store_i64(visit, VISIT_CALLED, n + 1)
    continuations = load_i64(batch, B_CONTINUATIONS)
    m = load_i64(visit, VISIT_CONTINUATIONS)
    if m == MAX_CONTINUATIONS:
        return BY_STACK
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
            _charge(batch, n + m)
            return 0
    # What is known to return from this node goes on here too.
    returns = load_i64(batch, B_RETURNS)
    at = load_i64(visit, VISIT_RETURN)
    while at < load_i64(visit, VISIT_FULL):
        if load_i64(returns, RETURN_WORDS * at + RETURN_NODE) == own:
            if not affords(batch, 1):
                store_i64(visit, VISIT_RETURN, at)
                return LATER
            back = load_i64(returns, RETURN_WORDS * at + RETURN_LIST)
            answer = _go_on(batch, grammar, vocabulary, node, target, register, back, True)
            if answer < 0:
                store_i64(visit, VISIT_RETURN, at)
                return answer
        at += 1
    store_i64(visit, VISIT_RETURN, at)
    entry = load_i32(section(automaton, AT_FRAME_START), frame)
    answer = _visit(batch, grammar, vocabulary, own, entry, 0, list_number)
    if answer < 0:
        return answer
    # Only now is this item done with: it may have been taken up several times.
    store_i64(visit, VISIT_RETURN, 0)
    at = CONTINUATION_WORDS * m
    store_i64(continuations, at + CONTINUATION_OF, own)
    store_i64(continuations, at + CONTINUATION_NODE, node)
    store_i64(continuations, at + CONTINUATION_STATE, target)
    store_i64(continuations, at + CONTINUATION_REGISTER, register)
    store_i64(visit, VISIT_CONTINUATIONS, m + 1)
    _charge(batch, n + m + load_i64(visit, VISIT_FULL))
    return 0


@helper
def _follow_return(batch, grammar, vocabulary, arena):  # type: ignore[no-untyped-def]
    """Follow the next return along all continuations that its node has. As `_visit`."""
    visit = load_i64(batch, B_VISIT)
    returns, continuations = load_i64(batch, B_RETURNS), load_i64(batch, B_CONTINUATIONS)
    number = load_i64(visit, VISIT_FULL)
    node = load_i64(returns, RETURN_WORDS * number + RETURN_NODE)
    back = load_i64(returns, RETURN_WORDS * number + RETURN_LIST)
    virtual = node >= CALLED_BASE
    block = arena + 8 * node
    n = load_i64(visit, VISIT_CONTINUATIONS) if virtual else load_i64(block, BLOCK_COUNT)
    at = load_i64(visit, VISIT_NEXT)
    while at < n:
        if virtual:
            triple = continuations + 8 * (CONTINUATION_WORDS * at + CONTINUATION_NODE)
            follow = load_i64(continuations, CONTINUATION_WORDS * at + CONTINUATION_OF) == node
        else:
            triple = block + 8 * (BLOCK_TRIPLES + 3 * at)
            follow = load_i64(triple, 0) != EXIT
        if follow:
            answer = LATER
            if affords(batch, 1):
                # Real continuations have nullable returns followed already.
                answer = _go_on(
                    batch, grammar, vocabulary,
                    load_i64(triple, 0), load_i64(triple, 1), load_i64(triple, 2), back, virtual,
                )  # fmt: skip
            if answer < 0:
                store_i64(visit, VISIT_NEXT, at)
                return answer
        at += 1
    store_i64(visit, VISIT_NEXT, 0)
    store_i64(visit, VISIT_FULL, number + 1)
    _charge(batch, n)
    return 0


@helper
def _collect(batch, grammar, vocabulary, arena, block):  # type: ignore[no-untyped-def]
    """Go on with B_VISIT: 0 where all pairs of the heads in `block` are in B_PAIRS, else what `context_of` says."""
    visit = load_i64(batch, B_VISIT)
    contexts, items = load_i64(grammar, G_CONTEXTS), load_i64(grammar, G_ITEMS)
    pairs = load_i64(batch, B_PAIRS)
    heads = arena + 8 * block
    while load_i64(visit, VISIT_HEAD) < load_i64(heads, BLOCK_COUNT):
        if not affords(batch, 1):
            return LATER
        at = BLOCK_TRIPLES + 3 * load_i64(visit, VISIT_HEAD)
        answer = _visit(
            batch, grammar, vocabulary,
            load_i64(heads, at), load_i64(heads, at + 1), load_i64(heads, at + 2), WHOLE,
        )  # fmt: skip
        if answer < 0:
            return answer
        store_i64(visit, VISIT_HEAD, load_i64(visit, VISIT_HEAD) + 1)
    while True:
        done = load_i64(visit, VISIT_DONE)
        if done < load_i64(visit, VISIT_PAIRS):
            node = load_i64(pairs, PAIR_WORDS * done + PAIR_NODE)
            register = load_i64(pairs, PAIR_WORDS * done + PAIR_REGISTER)
            context = contexts + 8 * CONTEXT_WORDS * load_i64(pairs, PAIR_WORDS * done + PAIR_CONTEXT)
            at = load_i64(visit, VISIT_ITEM)
            back = load_i64(context, CONTEXT_RETURN)
            while at < load_i64(context, CONTEXT_ITEMS):
                if not affords(batch, 1):
                    return LATER
                item = items + 8 * ITEM_WORDS * (load_i64(context, CONTEXT_ITEM) + at)
                answer = _call_frame(batch, grammar, vocabulary, node, register, item)
                if answer < 0:
                    return answer
                at += 1
                store_i64(visit, VISIT_ITEM, at)
            if back >= 0 and not _return_from(batch, node, back):
                return BY_STACK
            store_i64(visit, VISIT_ITEM, 0)
            store_i64(visit, VISIT_DONE, done + 1)
        elif load_i64(visit, VISIT_FULL) < load_i64(visit, VISIT_RETURNS):
            answer = _follow_return(batch, grammar, vocabulary, arena)
            if answer < 0:
                return answer
        else:
            return 0


@helper
def _walk_stack(batch, grammar, vocabulary, arena, block, low, high):  # type: ignore[no-untyped-def]
    """Mask slot, or LATER, NEVER, of the heads in `block`, without contexts."""
    if not room_for_mask(batch) or not affords(batch, mask_cost(batch)):
        return LATER
    entry = find_entry(batch, low, high)
    if resolve(batch, entry, 2, load_i64(batch, B_SCRATCH)) >= 0:
        return load_i64(entry, 2)
    if not may_run(batch, low, high):
        return LATER
    if load_i64(load_i64(batch, B_JOB), J_STAGE) == IDLE:
        count(batch, COUNT_MISSES, 1)
        begin_stack_walk(batch, grammar, vocabulary, arena, block, low, high)
        count(batch, COUNT_WORK, mask_cost(batch))
    left = call_kernel(load_i64(batch, B_RUN_STACK), batch, fuel_left(batch))
    if left == FAILED:
        return NEVER
    if left < 0:
        return LATER
    packed = intern_mask(batch, load_i64(batch, B_JOB_TOTAL))
    store_i64(find_entry(batch, low, high), 2, packed)
    return packed


@helper
def _visit_key(batch, grammar, slot, block, at_start):  # type: ignore[no-untyped-def]
    """What a row's mask is put together from; a block never changes, and none takes another's place but in a move."""
    moves = load_i64(load_i64(batch, B_MOVES), slot)
    low = mix(mix(mix(0x9E3779B97F4A7C15, 2 * slot + at_start), block), moves)
    return low, mix(low, load_i64(grammar, G_NUMBER))


@helper
def mask_of_graph(batch, grammar, slot, config, at_start):  # type: ignore[no-untyped-def]
    """Mask id, -1 where it is not known yet, -2 where a limit was passed, of a recursive configuration."""
    if load_i64(config, CONFIG_HEADS) == 0:
        return KIND_EMPTY << KIND_SHIFT
    vocabulary = load_i64(batch, B_VOCABULARY_START if at_start else B_VOCABULARY)
    arena = load_i64(load_i64(batch, B_ARENAS), slot)
    block = load_i64(config, CONFIG_BLOCK)
    visit = load_i64(batch, B_VISIT)
    start = 1 if at_start else 0
    low, high = _visit_key(batch, grammar, slot, block, start)
    walked = load_i64(load_i64(batch, B_COUNTERS), COUNT_CONTEXTS)
    answer = FORGOTTEN
    stack, stack_high = 0, 0
    direct = load_i64(batch, B_DIRECT) != 0
    # Only before a visit begins: what it has at least in each phase is then its own.
    if load_i64(visit, VISIT_LOW) != low and not direct:
        known = -1
        place = current_place(batch, slot)
        if place != 0:
            count(batch, COUNT_WORK, KEY_COST)
        elif affords(batch, KEY_COST + MOST_READ):
            position = load_i64(load_i64(batch, B_POSITION), slot)
            place = find_place(batch, grammar, vocabulary, slot, position, config, start)
        if place != 0:
            stack, stack_high = load_i64(place, PLACE_LOW), load_i64(place, PLACE_HIGH)
        if stack != 0:
            known = mask_of_stack(batch, stack, stack_high)
            if known >= 0:
                count(batch, COUNT_RECALLED, 1)
                stack = 0  # nothing to keep
        if known < 0:
            known = recall_mask(batch, grammar, vocabulary, arena, block, start, -1)
        if known >= 0:
            answer = known
    for _ in range(MOST_TIMES + 2):
        if answer != FORGOTTEN:
            break
        epoch = mix(high, load_i64(grammar, G_CONTEXT_EPOCH))
        if load_i64(visit, VISIT_LOW) != low or load_i64(visit, VISIT_HIGH) != epoch:
            times = load_i64(visit, VISIT_TIMES) + 1 if load_i64(visit, VISIT_LOW) == low else 0
            for word in range(VISIT_WORDS):
                store_i64(visit, word, 0)
            store_i64(visit, VISIT_LOW, low)
            store_i64(visit, VISIT_HIGH, epoch)
            store_i64(visit, VISIT_TIMES, times)
            if times > MOST_TIMES:
                store_i64(visit, VISIT_STAGE, VISIT_BY_STACK)
        stage = load_i64(visit, VISIT_STAGE)
        answer = BY_STACK if stage == VISIT_BY_STACK or direct else 0
        if answer == 0 and stage <= COLLECTING:
            store_i64(visit, VISIT_STAGE, COLLECTING)
            answer = _collect(batch, grammar, vocabulary, arena, block)
        if answer == 0:
            store_i64(visit, VISIT_STAGE, UNITING)
            answer = unite(batch, grammar)
        if answer == FORGOTTEN:
            store_i64(visit, VISIT_HIGH, 0)  # from the beginning
        elif answer >= 0:
            recall_mask(batch, grammar, vocabulary, arena, block, start, answer)
    if answer == BY_STACK:
        store_i64(visit, VISIT_STAGE, VISIT_BY_STACK)
        answer = _walk_stack(batch, grammar, vocabulary, arena, block, low, high)
    if answer == FORGOTTEN:
        answer = LATER
    if answer >= 0:
        store_i64(visit, VISIT_LOW, 0)
        store_i64(visit, VISIT_STAGE, NOT_VISITED)
        store_i64(load_i64(batch, B_ROW_MASK), slot, answer)
        if stack != 0:
            store_i64(find_entry(batch, stack, stack_high), 2, answer)
        if load_i64(load_i64(batch, B_COUNTERS), COUNT_CONTEXTS) == walked:
            count(batch, COUNT_HITS, 1)
        return answer & 0x7FFFFFFF
    return answer
