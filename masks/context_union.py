"""The mask of a recursive row as the union of the masks of its contexts (`masks.contexts`), resumable."""

from __future__ import annotations

from .._numba import helper
from .context_store import FORGOTTEN, LATER, room_for_mask
from .fuel import affords, count
from .layout import (
    B_EPOCH,
    B_JOB,
    B_JOB_TOTAL,
    B_LOOKING,
    B_PAIRS,
    B_SCRATCH,
    B_VISIT,
    B_WORDS,
    CONTEXT_MASK,
    CONTEXT_WORDS,
    COUNT_WORK,
    G_CONTEXT_EPOCH,
    G_CONTEXTS,
    G_NUMBER,
    J_DIRTY,
    KIND_DENSE,
    KIND_EMPTY,
    KIND_SHIFT,
    KIND_SINGLE,
    PAIR_CONTEXT,
    PAIR_WORDS,
    VISIT_PAIRS,
    VISIT_PART,
)
from .lazy import mix
from .memory import load_i64, shift_right, store_i64
from .pool import WORDS_OF_A_MASK, expand_mask, find_entry, intern_mask, mask_cost, resolve

#: Pairs of which the key of a union is made in the time of one byte edge.
PAIRS_OF_A_KEY = 8


@helper
def _union_key(batch, grammar):  # type: ignore[no-untyped-def]
    """(parts of the union of the masks of B_PAIRS, place of one of them, two halves of a key), or parts < 0."""
    contexts = load_i64(grammar, G_CONTEXTS)
    table = load_i64(batch, B_PAIRS)
    low = mix(mix(0x2545F4914F6CDD1D, load_i64(grammar, G_NUMBER)), load_i64(grammar, G_CONTEXT_EPOCH))
    high = low * -0x2917014799A6026D
    parts, only = 0, -1
    for i in range(load_i64(load_i64(batch, B_VISIT), VISIT_PAIRS)):
        number = load_i64(table, PAIR_WORDS * i + PAIR_CONTEXT)
        packed = load_i64(contexts + 8 * CONTEXT_WORDS * number, CONTEXT_MASK)
        kind = (packed & 0x7FFFFFFF) >> KIND_SHIFT
        if kind == KIND_EMPTY:
            continue
        if load_i64(batch, B_EPOCH) - (packed >> 32) > 1 and kind != KIND_SINGLE:
            return FORGOTTEN, only, low, high  # new epochs began meanwhile
        parts += 1
        only = contexts + 8 * (CONTEXT_WORDS * number + CONTEXT_MASK)
        low = mix(low, number)
        high = (high ^ number) * -0x4B47D0C5A6B1E0A3
        high ^= shift_right(high, 31)
    return parts, only, low, high


@helper
def unite(batch, grammar):  # type: ignore[no-untyped-def]
    """Mask slot, or FORGOTTEN, or LATER, of the pairs in B_PAIRS: their masks are put together in B_JOB_TOTAL.

    A look, which has no job, puts them together in scratch, at once or not at all.
    """
    visit, table = load_i64(batch, B_VISIT), load_i64(batch, B_PAIRS)
    contexts = load_i64(grammar, G_CONTEXTS)
    pairs = load_i64(visit, VISIT_PAIRS)
    scratch = load_i64(batch, B_SCRATCH)
    parts, only, low, high = _union_key(batch, grammar)
    if parts < 0:
        return parts
    if parts == 0:
        return (load_i64(batch, B_EPOCH) << 32) | (KIND_EMPTY << KIND_SHIFT)
    cost = mask_cost(batch)
    looking = load_i64(batch, B_LOOKING) != 0
    if parts == 1:
        current = load_i64(only, 0) >> 32 == load_i64(batch, B_EPOCH)
        if not current and (not room_for_mask(batch) or not affords(batch, cost)):
            return LATER
        resolve(batch, only, 0, scratch)
        count(batch, COUNT_WORK, 1 + pairs // PAIRS_OF_A_KEY)
        return load_i64(only, 0)
    at = load_i64(visit, VISIT_PART)
    if at == 0 or looking:
        if not room_for_mask(batch) or not affords(batch, cost):
            return LATER
        entry = find_entry(batch, low, high)
        if resolve(batch, entry, 2, scratch) >= 0:
            count(batch, COUNT_WORK, 1 + pairs // PAIRS_OF_A_KEY)
            return load_i64(entry, 2)
        at = 0
    total = scratch
    if looking:
        if not affords(batch, 2 * cost + parts * (cost // WORDS_OF_A_MASK + 1)):
            return LATER
    else:
        total = load_i64(batch, B_JOB_TOTAL)
        store_i64(load_i64(batch, B_JOB), J_DIRTY, 1)
    if at == 0:
        for word in range(load_i64(batch, B_WORDS)):
            store_i64(total, word, 0)
    while at < pairs:
        packed = load_i64(contexts + 8 * CONTEXT_WORDS * load_i64(table, PAIR_WORDS * at + PAIR_CONTEXT), CONTEXT_MASK)
        expand_mask(batch, packed & 0x7FFFFFFF, total)
        at += 1
        if (packed & 0x7FFFFFFF) >> KIND_SHIFT == KIND_DENSE:
            store_i64(visit, VISIT_PART, at)
            count(batch, COUNT_WORK, cost // WORDS_OF_A_MASK + 1)
            if not looking and not affords(batch, cost):
                return LATER
    if not room_for_mask(batch):
        return LATER
    packed = intern_mask(batch, total)
    store_i64(find_entry(batch, low, high), 2, packed)
    count(batch, COUNT_WORK, cost + 1 + pairs // PAIRS_OF_A_KEY)
    return packed
