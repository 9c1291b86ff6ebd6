"""The contexts of one grammar in one batch: found by key, walked where they are new, kept with their lists."""

from __future__ import annotations

from .._numba import helper
from .context_begin import begin_context, begin_storing
from .context_walk import FAILED
from .few import intern_total, work_of_total
from .fuel import affords, count, fuel_left
from .known import load_known
from .lanes import may_run
from .layout import (
    B_DENSE_USED,
    B_EPOCH,
    B_HALF,
    B_JOB,
    B_JOB_EVENTS,
    B_JOB_KEYS,
    B_JOB_SORTED,
    B_LIST_TOKENS_HALF,
    B_LIST_TOKENS_USED,
    B_LIST_USED,
    B_LISTS,
    B_RUN_CONTEXT,
    B_SCRATCH,
    B_SLOTS,
    B_STEP_EPOCH,
    B_VOCABULARY,
    CONTEXT_ABOVE,
    CONTEXT_ADDED,
    CONTEXT_BELOW,
    CONTEXT_BUCKETS,
    CONTEXT_ITEM,
    CONTEXT_ITEMS,
    CONTEXT_MASK,
    CONTEXT_NEXT,
    CONTEXT_RETURN,
    CONTEXT_ROOM,
    CONTEXT_STATE,
    CONTEXT_WORDS,
    COUNT_MISSES,
    COUNT_WORK,
    G_AUTOMATON,
    G_CONTEXT_COUNT,
    G_CONTEXT_EPOCH,
    G_CONTEXT_TABLE,
    G_CONTEXTS,
    G_ITEM_COUNT,
    G_ITEMS,
    G_LIST_COUNT,
    G_LIST_NODES,
    G_LIST_NODES_USED,
    G_LIST_TABLE,
    G_LISTS,
    G_NUMBER,
    IDLE,
    INCLUSIVE,
    ITEM_ADDED,
    ITEM_CALL,
    ITEM_LIST,
    ITEM_WORDS,
    J_ADDED,
    J_EVENT_COUNT,
    J_HASH_HIGH,
    J_HASH_LOW,
    J_KEY_AT,
    J_KEY_COUNT,
    J_LIST_NEW,
    J_NODE_AT,
    J_REGISTER,
    J_ROOM,
    J_SORTED,
    J_STAGE,
    KEY_CALL,
    KEY_COUNT,
    KEY_PLACE,
    KEY_REGISTER,
    KEY_WORDS,
    KIND_EMPTY,
    KIND_SHIFT,
    KIND_SINGLE,
    LIST_BEGIN,
    LIST_BUCKETS,
    LIST_HIGH,
    LIST_LENGTH,
    LIST_LOW,
    LIST_NEXT,
    LIST_WORDS,
    MAX_CONTEXTS,
    MAX_EVENTS,
    MAX_ITEMS,
    MAX_KEYS,
    MAX_LIST,
    MAX_LIST_NODES,
    MAX_LISTS,
    STORE,
    WHOLE,
)
from .lazy import mix
from .leaving import RETURNS
from .machine import FAR, counter_distances
from .memory import call_kernel, load_i32, load_i64, shift_right, store_i32, store_i64
from .pool import mask_cost, new_epoch, resolve
from .trie import V_MAX_BYTES

#: Nodes that leave the frame of a context: sorted into lists at a time, and in the time of one byte edge.
STORED_AT_ONCE = 512
NODES_A_UNIT = 4
#: Unfinished masks at once: one of each lane (`masks.lanes`), and one that is made ahead (`masks.prefetch_numba`).
JOBS = 3
#: Heads of chains that are cleared in the time of one byte edge.
BUCKETS_A_UNIT = 16

#: Instead of a context's number: the mask cannot be known now, or a limit of the stack graph was passed, or contexts
#: were forgotten meanwhile, or contexts do not suffice.
LATER, NEVER, FORGOTTEN, BY_STACK = -1, -2, -3, -4


@helper
def room_for_mask(batch):  # type: ignore[no-untyped-def]
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
def _find_context(grammar, key, below, above):  # type: ignore[no-untyped-def]
    """Number of the context of this key; where there is none, -1 - its bucket."""
    table, contexts = load_i64(grammar, G_CONTEXT_TABLE), load_i64(grammar, G_CONTEXTS)
    bucket = shift_right(mix(mix(key, below), above), 1) & (CONTEXT_BUCKETS - 1)
    number = load_i32(table, bucket) - 1
    while number >= 0:
        context = contexts + 8 * CONTEXT_WORDS * number
        if (
            load_i64(context, CONTEXT_STATE) == key
            and load_i64(context, CONTEXT_BELOW) == below
            and load_i64(context, CONTEXT_ABOVE) == above
        ):
            return number
        number = load_i64(context, CONTEXT_NEXT) - 1
    return -1 - bucket


@helper
def _with_vocabulary(batch, vocabulary, above):  # type: ignore[no-untyped-def]
    return 2 * above + (1 if vocabulary != load_i64(batch, B_VOCABULARY) else 0)


@helper
def _known_context(batch, grammar, vocabulary, key, below, above):  # type: ignore[no-untyped-def]
    """Number of a context that does for a register so far from its counter's bounds, or -1.

    The intervals of registers that tokens can tell apart are nested: first those whose bounds no token gets to.
    """
    contexts = load_i64(grammar, G_CONTEXTS)
    for turn in range(4):
        own_below, own_above = below, above
        if turn & 1 == 0:
            own_above = FAR
        elif above == FAR:
            continue
        if turn & 2 == 0:
            own_below = FAR if below > 0 else 0
        elif below == 0 or below == FAR:
            continue
        number = _find_context(grammar, key, own_below, _with_vocabulary(batch, vocabulary, own_above))
        if number >= 0:
            context = contexts + 8 * CONTEXT_WORDS * number
            if own_below == FAR and below != FAR and below <= load_i64(context, CONTEXT_ADDED):
                continue
            if own_above == FAR and above != FAR and above <= load_i64(context, CONTEXT_ROOM):
                continue
            return number
    return -1


@helper
def _new_context(batch, grammar, vocabulary, key, below, above):  # type: ignore[no-untyped-def]
    """Keep what the job has found as a context, for all registers that its tokens cannot tell apart; its number."""
    job = load_i64(batch, B_JOB)
    own_below, own_above = below, above
    if below > load_i64(job, J_ADDED):
        own_below = FAR
    if above > max(load_i64(job, J_ADDED), load_i64(job, J_ROOM)):
        own_above = FAR
    own_above = _with_vocabulary(batch, vocabulary, own_above)
    number = _find_context(grammar, key, own_below, own_above)
    if number < 0:  # else there is one that does for fewer registers, as it was found in another way
        table, bucket = load_i64(grammar, G_CONTEXT_TABLE), -1 - number
        number = load_i64(grammar, G_CONTEXT_COUNT)
        store_i64(grammar, G_CONTEXT_COUNT, number + 1)
        newest = load_i64(grammar, G_CONTEXTS) + 8 * CONTEXT_WORDS * number
        store_i64(newest, CONTEXT_NEXT, load_i32(table, bucket))
        store_i32(table, bucket, number + 1)
    context = load_i64(grammar, G_CONTEXTS) + 8 * CONTEXT_WORDS * number
    store_i64(context, CONTEXT_STATE, key)
    store_i64(context, CONTEXT_BELOW, own_below)
    store_i64(context, CONTEXT_ABOVE, own_above)
    _give_lists(batch, grammar, context)
    return number


@helper
def _forget_contexts(batch, grammar):  # type: ignore[no-untyped-def]
    # A piece of its own, which is seldom taken.
    count(batch, COUNT_WORK, (CONTEXT_BUCKETS + LIST_BUCKETS) // BUCKETS_A_UNIT)
    table = load_i64(grammar, G_CONTEXT_TABLE)
    for bucket in range(CONTEXT_BUCKETS):
        store_i32(table, bucket, 0)
    table = load_i64(grammar, G_LIST_TABLE)
    for bucket in range(LIST_BUCKETS):
        store_i32(table, bucket, 0)
    for field in (G_CONTEXT_COUNT, G_LIST_COUNT, G_ITEM_COUNT, G_LIST_NODES_USED):
        store_i64(grammar, field, 0)
    store_i64(grammar, G_CONTEXT_EPOCH, load_i64(grammar, G_CONTEXT_EPOCH) + 1)


@helper
def _find_list(grammar, low, high, length):  # type: ignore[no-untyped-def]
    """Number of the list of this hash and length, or -1."""
    lists = load_i64(grammar, G_LISTS)
    number = load_i32(load_i64(grammar, G_LIST_TABLE), shift_right(low, 1) & (LIST_BUCKETS - 1)) - 1
    while number >= 0:
        entry = lists + 8 * LIST_WORDS * number
        if (
            load_i64(entry, LIST_LOW) == low
            and load_i64(entry, LIST_HIGH) == high
            and load_i64(entry, LIST_LENGTH) == length
        ):
            return number
        number = load_i64(entry, LIST_NEXT) - 1
    return -1


@helper
def _new_list(grammar, low, high, begin, length):  # type: ignore[no-untyped-def]
    """Number of a new list, whose nodes are in their place."""
    table, bucket = load_i64(grammar, G_LIST_TABLE), shift_right(low, 1) & (LIST_BUCKETS - 1)
    number = load_i64(grammar, G_LIST_COUNT)
    store_i64(grammar, G_LIST_COUNT, number + 1)
    entry = load_i64(grammar, G_LISTS) + 8 * LIST_WORDS * number
    store_i64(entry, LIST_NEXT, load_i32(table, bucket))
    store_i32(table, bucket, number + 1)
    store_i64(entry, LIST_BEGIN, begin)
    store_i64(entry, LIST_LENGTH, length)
    store_i64(entry, LIST_LOW, low)
    store_i64(entry, LIST_HIGH, high)
    return number


@helper
def _sort_events(batch):  # type: ignore[no-untyped-def]
    """Go on putting the nodes of B_JOB_EVENTS in the order of their lists; returns how many this time."""
    job = load_i64(batch, B_JOB)
    events, keys, into = load_i64(batch, B_JOB_EVENTS), load_i64(batch, B_JOB_KEYS), load_i64(batch, B_JOB_SORTED)
    first = load_i64(job, J_SORTED)
    if first == 0:
        place = 0
        for number in range(load_i64(job, J_KEY_COUNT)):
            key = keys + 8 * KEY_WORDS * number
            store_i64(key, KEY_PLACE, place)
            place += load_i64(key, KEY_COUNT)
    last = min(first + STORED_AT_ONCE, load_i64(job, J_EVENT_COUNT))
    for i in range(first, last):
        event = load_i64(events, i)
        key = keys + 8 * KEY_WORDS * (event >> 32)
        at = load_i64(key, KEY_PLACE)
        store_i32(into, at, event & 0xFFFFFFFF)
        store_i64(key, KEY_PLACE, at + 1)
    store_i64(job, J_SORTED, last)
    return last - first


@helper
def _store_list(batch, grammar):  # type: ignore[no-untyped-def]
    """Go on with the next list: hash its nodes, and copy them where it is new. Its number is KEY_PLACE then.

    Returns how many nodes this time.
    """
    job = load_i64(batch, B_JOB)
    key = load_i64(batch, B_JOB_KEYS) + 8 * KEY_WORDS * load_i64(job, J_KEY_AT)
    length = load_i64(key, KEY_COUNT)
    source = load_i64(batch, B_JOB_SORTED) + 4 * (load_i64(key, KEY_PLACE) - length)
    first, into = load_i64(job, J_NODE_AT), load_i64(job, J_LIST_NEW)
    low, high = load_i64(job, J_HASH_LOW), load_i64(job, J_HASH_HIGH)
    last = min(first + STORED_AT_ONCE, length)
    if into >= 0:
        nodes = load_i64(grammar, G_LIST_NODES) + 4 * into
        for i in range(first, last):
            store_i32(nodes, i, load_i32(source, i))
    else:
        if first == 0:
            low, high = 0x3243F6A8885A308D + length, 0x13198A2E03707344
        for i in range(first, last):
            node = load_i32(source, i)
            low = mix(low, node)
            high = (high ^ node) * -0x4B47D0C5A6B1E0A3
            high ^= shift_right(high, 29)
        store_i64(job, J_HASH_LOW, low)
        store_i64(job, J_HASH_HIGH, high)
    store_i64(job, J_NODE_AT, last)
    if last == length:
        number = _find_list(grammar, low, high, length)
        if number < 0 and into < 0:
            store_i64(job, J_LIST_NEW, load_i64(grammar, G_LIST_NODES_USED))
            store_i64(grammar, G_LIST_NODES_USED, load_i64(grammar, G_LIST_NODES_USED) + length)
        else:
            if number < 0:
                number = _new_list(grammar, low, high, into, length)
            store_i64(key, KEY_PLACE, number)
            store_i64(job, J_KEY_AT, load_i64(job, J_KEY_AT) + 1)
            store_i64(job, J_LIST_NEW, -1)
        store_i64(job, J_NODE_AT, 0)
    return last - first


@helper
def _lists_are_stored(batch, grammar):  # type: ignore[no-untyped-def]
    """Go on storing the lists that the walk has found; False where the fuel ends first."""
    job = load_i64(batch, B_JOB)
    while True:
        if not affords(batch, 1):
            return False
        if load_i64(job, J_SORTED) < load_i64(job, J_EVENT_COUNT):
            done = _sort_events(batch)
        elif load_i64(job, J_KEY_AT) < load_i64(job, J_KEY_COUNT):
            done = _store_list(batch, grammar)
        else:
            return True
        count(batch, COUNT_WORK, 1 + done // NODES_A_UNIT)


@helper
def _give_lists(batch, grammar, context):  # type: ignore[no-untyped-def]
    """Give a new context the lists that have been stored."""
    job = load_i64(batch, B_JOB)
    keys, items = load_i64(batch, B_JOB_KEYS), load_i64(grammar, G_ITEMS)
    store_i64(context, CONTEXT_RETURN, -1)
    store_i64(context, CONTEXT_ITEM, load_i64(grammar, G_ITEM_COUNT))
    n_items = 0
    for number in range(load_i64(job, J_KEY_COUNT)):
        key = keys + 8 * KEY_WORDS * number
        list_number = load_i64(key, KEY_PLACE)
        if load_i64(key, KEY_CALL) == RETURNS:
            store_i64(context, CONTEXT_RETURN, list_number)
        else:
            item = items + 8 * ITEM_WORDS * load_i64(grammar, G_ITEM_COUNT)
            store_i64(grammar, G_ITEM_COUNT, load_i64(grammar, G_ITEM_COUNT) + 1)
            store_i64(item, ITEM_CALL, load_i64(key, KEY_CALL))
            store_i64(item, ITEM_ADDED, load_i64(key, KEY_REGISTER) - load_i64(job, J_REGISTER))
            store_i64(item, ITEM_LIST, list_number)
            n_items += 1
    store_i64(context, CONTEXT_ITEMS, n_items)
    store_i64(context, CONTEXT_ADDED, load_i64(job, J_ADDED))
    store_i64(context, CONTEXT_ROOM, max(load_i64(job, J_ADDED), load_i64(job, J_ROOM)))


@helper
def _has_room(grammar):  # type: ignore[no-untyped-def]
    """Is there room for one more context, whatever it has, and for one of each other job that has begun to store?"""
    return (
        load_i64(grammar, G_CONTEXT_COUNT) + JOBS <= MAX_CONTEXTS
        and load_i64(grammar, G_LIST_COUNT) + JOBS * MAX_KEYS <= MAX_LISTS
        and load_i64(grammar, G_ITEM_COUNT) + JOBS * MAX_KEYS <= MAX_ITEMS
        and load_i64(grammar, G_LIST_NODES_USED) + JOBS * MAX_EVENTS <= MAX_LIST_NODES
    )


@helper
def context_of(batch, grammar, vocabulary, state, register, list_number):  # type: ignore[no-untyped-def]
    """The number of the context of a state and list `list_number`, or WHOLE; else LATER, FORGOTTEN or BY_STACK.

    A list with INCLUSIVE: the tokens that end at its nodes, too.
    """
    contexts = load_i64(grammar, G_CONTEXTS)
    automaton = load_i64(grammar, G_AUTOMATON)
    below, above = counter_distances(automaton, state, register, load_i64(vocabulary, V_MAX_BYTES))
    key = state | (list_number << 32)
    number = _known_context(batch, grammar, vocabulary, key, below, above)
    if number >= 0:
        packed = load_i64(contexts + 8 * CONTEXT_WORDS * number, CONTEXT_MASK)
        kind = (packed & 0x7FFFFFFF) >> KIND_SHIFT
        if packed >> 32 == load_i64(batch, B_EPOCH) or kind == KIND_SINGLE or kind == KIND_EMPTY:
            return number
    if not room_for_mask(batch) or not affords(batch, mask_cost(batch)):
        return LATER
    if number >= 0:
        context = contexts + 8 * CONTEXT_WORDS * number
        if resolve(batch, context, CONTEXT_MASK, load_i64(batch, B_SCRATCH)) >= 0:
            return number
    low = mix(mix(0x452821E638D01377, key), _with_vocabulary(batch, vocabulary, above))
    low = mix(mix(low, below), load_i64(grammar, G_NUMBER))
    high = (low ^ load_i64(grammar, G_CONTEXT_EPOCH)) * -0x2917014799A6026D
    if not may_run(batch, low, high):
        return LATER
    job = load_i64(batch, B_JOB)
    if load_i64(job, J_STAGE) == IDLE:
        if not _has_room(grammar):
            _forget_contexts(batch, grammar)
            return FORGOTTEN
        listed, length = 0, 0
        if list_number != WHOLE:
            entry = load_i64(grammar, G_LISTS) + 8 * LIST_WORDS * (list_number & ~INCLUSIVE)
            listed = load_i64(grammar, G_LIST_NODES) + 4 * load_i64(entry, LIST_BEGIN)
            length = load_i64(entry, LIST_LENGTH)
        count(batch, COUNT_MISSES, 1)
        if list_number != WHOLE or not load_known(batch, grammar, vocabulary, state, register, below, above, low, high):
            inclusive = list_number != WHOLE and list_number & INCLUSIVE != 0
            begin_context(batch, grammar, vocabulary, state, register, listed, length, inclusive, low, high)
    if load_i64(job, J_STAGE) != STORE:
        left = call_kernel(load_i64(batch, B_RUN_CONTEXT), batch, fuel_left(batch))
        if left == FAILED:
            return BY_STACK
        if left < 0:
            return LATER
        begin_storing(batch)
    if load_i64(job, J_SORTED) == 0 and not _has_room(grammar):  # the other lane has taken it
        store_i64(job, J_STAGE, IDLE)
        _forget_contexts(batch, grammar)
        return FORGOTTEN
    if not _lists_are_stored(batch, grammar):
        return LATER
    store_i64(job, J_STAGE, IDLE)
    # Its mask was cleared when it began, and is hashed and stored now.
    count(batch, COUNT_WORK, 2 * work_of_total(batch))
    if number < 0:
        number = _new_context(batch, grammar, vocabulary, key, below, above)
    store_i64(contexts + 8 * CONTEXT_WORDS * number, CONTEXT_MASK, intern_total(batch))
    return number
