"""The masks of recursive rows by what was read of their stacks: a row like an earlier one need not be visited again.

What `masks.contexts` finds depends on the heads of a row, and on the stack nodes whose continuations it followed:
nothing else of the stack. So a mask is remembered as a path of *steps*, one for each (node, state, register) read:
first the heads, then the continuations of one such node after the other. Nodes are numbered in the order in which they
are read, so that equal stacks of any sequence, at any depth, have equal steps. A register is there as tokens can ask
for it (`machine.counter_distances`). The last step of a block says which node was followed next, or is the end, and
has the mask slot. A step's key is the number of the step before it and what it read, compared in whole.

What a path says stays true: it does not depend on which contexts there are. Only its mask may be forgotten by the pool,
as any other. Steps have numbers that never come again: one that is replaced takes with it all that come after it.

Fuel: STEP_COST for each step.
"""

from __future__ import annotations

from .._numba import helper
from .context_store import room_for_mask
from .fuel import affords, count
from .layout import (
    B_MEMO,
    B_MEMO_BUCKETS,
    B_MEMO_NODES,
    B_MEMO_STEPS,
    B_RETURNS,
    B_SCRATCH,
    B_VISIT,
    BLOCK_COUNT,
    BLOCK_TRIPLES,
    CALLED_BASE,
    COUNT_RECALLED,
    COUNT_VISITED,
    COUNT_WORK,
    EXIT,
    G_AUTOMATON,
    G_NUMBER,
    RETURN_NODE,
    RETURN_WORDS,
    VISIT_RETURNS,
)
from .lazy import mix
from .machine import counter_distances
from .memory import load_i64, shift_right, store_i64
from .pool import current_mask, mask_cost, resolve
from .trie import V_MAX_BYTES

# A step. READ: (node, state, register) of its block << 8 | place of the node (MAX_STEPS: EXIT).
(
    STEP_BEFORE,  # number of the step before; of a head, below 0: the grammar, and which vocabulary
    STEP_READ,
    STEP_STATE,
    STEP_BELOW,  # how far a counter's minimum is away, or which register it is
    STEP_ABOVE,
    STEP_NUMBER,  # its own, never given twice; 0: free
    STEP_MASK,  # mask slot, where it is the last
    STEP_NEXT,  # place of the node whose continuations are read next
    STEP_WORDS,
) = range(9)
STEPS_A_BUCKET = 4
#: Steps that are remembered, of all grammars of a batch; 2 MB. A JSON grammar's rows have some hundreds.
MEMO_STEPS = 1 << 15
#: Steps of one row's path; a row that would take more is visited each time.
MAX_STEPS = 32

#: Fuel of a step: three or four reads from far apart, 275 ns with cold caches (23 ns a unit; a visit has 13).
STEP_COST = 12
#: In STEP_NEXT: nothing was followed after this; it is not known what was.
_END, _UNKNOWN = -1, -2


@helper
def local_number(batch, known, node):  # type: ignore[no-untyped-def]
    """Place of `node` among the `known` nodes read, which is `known` where it is new."""
    nodes = load_i64(batch, B_MEMO_NODES)
    for i in range(known):
        if load_i64(nodes, i) == node:
            return i
    return known


@helper
def _step(batch, before, read, state, below, above, learns):  # type: ignore[no-untyped-def]
    """Address of the step of this key, or 0. With `learns` it is made, in the place of the oldest of its bucket."""
    low = mix(mix(mix(mix(0x13198A2E03707344, before), (read << 32) ^ state), below), above)
    bucket = load_i64(batch, B_MEMO) + 8 * STEP_WORDS * STEPS_A_BUCKET * (
        shift_right(low, 1) % load_i64(batch, B_MEMO_BUCKETS)
    )
    oldest = bucket
    for i in range(STEPS_A_BUCKET):
        step = bucket + 8 * STEP_WORDS * i
        if (
            load_i64(step, STEP_BEFORE) == before
            and load_i64(step, STEP_READ) == read
            and load_i64(step, STEP_STATE) == state
            and load_i64(step, STEP_BELOW) == below
            and load_i64(step, STEP_ABOVE) == above
        ):
            return step
        if load_i64(step, STEP_NUMBER) < load_i64(oldest, STEP_NUMBER):
            oldest = step
    if not learns:
        return 0
    number = load_i64(batch, B_MEMO_STEPS) + 1
    store_i64(batch, B_MEMO_STEPS, number)
    store_i64(oldest, STEP_BEFORE, before)
    store_i64(oldest, STEP_READ, read)
    store_i64(oldest, STEP_STATE, state)
    store_i64(oldest, STEP_BELOW, below)
    store_i64(oldest, STEP_ABOVE, above)
    store_i64(oldest, STEP_NUMBER, number)
    store_i64(oldest, STEP_MASK, -1)
    store_i64(oldest, STEP_NEXT, _UNKNOWN)
    return oldest


@helper
def _followed_next(batch, known, followed):  # type: ignore[no-untyped-def]
    """Of the stack nodes that the visit has followed, the first not among the `followed`, a bit each; or _END."""
    returns = load_i64(batch, B_RETURNS)
    for i in range(load_i64(load_i64(batch, B_VISIT), VISIT_RETURNS)):
        node = load_i64(returns, RETURN_WORDS * i + RETURN_NODE)
        if node < CALLED_BASE:
            place = local_number(batch, known, node)
            if place == known:
                return _UNKNOWN
            if (followed >> place) & 1 == 0:
                return place
    return _END


@helper
def _end_of_path(batch, grammar, vocabulary, arena, block, at_start, learns):  # type: ignore[no-untyped-def]
    """Address of the last step of the path of the heads in `block`, or 0: it is not known, or too long.

    With `learns` the path is made as far as the fuel lasts, given what B_VISIT and B_RETURNS say of the row.
    """
    automaton = load_i64(grammar, G_AUTOMATON)
    reach = load_i64(vocabulary, V_MAX_BYTES)
    nodes = load_i64(batch, B_MEMO_NODES)
    before = -1 - (2 * load_i64(grammar, G_NUMBER) + at_start)
    read_from = arena + 8 * block
    taken, known, followed = 0, 0, 0
    while True:
        n = load_i64(read_from, BLOCK_COUNT)
        taken += n
        if n == 0 or taken > MAX_STEPS or not affords(batch, STEP_COST * n):
            return 0
        step = 0
        for i in range(n):
            triple = read_from + 8 * (BLOCK_TRIPLES + 3 * i)
            node, state = load_i64(triple, 0), load_i64(triple, 1)
            place = MAX_STEPS
            if node != EXIT:
                place = local_number(batch, known, node)
                if place == known:
                    store_i64(nodes, known, node)
                    known += 1
            below, above = counter_distances(automaton, state, load_i64(triple, 2), reach)
            count(batch, COUNT_WORK, STEP_COST)
            count(batch, COUNT_VISITED, STEP_COST)
            step = _step(batch, before, (n << 8) | place, state, below, above, learns)
            if step == 0:
                return 0
            before = load_i64(step, STEP_NUMBER)
        place = load_i64(step, STEP_NEXT)
        if place == _UNKNOWN and learns:
            place = _followed_next(batch, known, followed)
            store_i64(step, STEP_NEXT, place)
        if place == _UNKNOWN:
            return 0
        if place == _END:
            return step
        followed |= 1 << place
        read_from = arena + 8 * load_i64(nodes, place)


@helper
def recall_mask(batch, grammar, vocabulary, arena, block, at_start, packed):  # type: ignore[no-untyped-def]
    """Mask slot of the heads in `block` of an arena, or -1: it is not remembered.

    Given a mask slot as `packed`, which a visit of all of the row has just found, that is remembered. `at_start`: 1
    where the vocabulary is that of the start of a text.
    """
    step = _end_of_path(batch, grammar, vocabulary, arena, block, at_start, packed >= 0)
    if step == 0:
        return packed
    if packed >= 0:
        store_i64(step, STEP_MASK, packed)
        return packed
    mask_id = current_mask(batch, step, STEP_MASK)
    if mask_id < 0 and load_i64(step, STEP_MASK) >= 0 and affords(batch, mask_cost(batch)) and room_for_mask(batch):
        mask_id = resolve(batch, step, STEP_MASK, load_i64(batch, B_SCRATCH))
    if mask_id < 0:
        return -1
    count(batch, COUNT_RECALLED, 1)
    return load_i64(step, STEP_MASK)
