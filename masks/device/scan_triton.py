"""The passes over the logits of all rows: one program for each row and part of the vocabulary.

Each program leaves its results in its own place, so the order in which programs run changes nothing. Rows of a short
mask (list, single token, none) are looked at by the programs that hold their entries, the first as a rule.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from .noise_triton import random_tile, random_words, weight
from .rows_triton import (
    ALL,
    DENSE,
    KEY_LOWEST,
    NONE,
    best_score,
    entries_of,
    key_of,
    mask_tile,
    masked_orders,
    order_tile,
    scaled,
    source_of,
    token_of,
)

#: Distances below the largest scaled logit at which the weight of rows with top-p is known, so that few tokens are
#: gathered that do not survive: 16 steps of half a nat.
STEPS = tl.constexpr(16)
STEP = tl.constexpr(0.5)


@triton.jit
def inverse_of(inverses, row):
    """(greedy, 1 / temperature, which is 1 for a greedy row)."""
    inverse = tl.load(inverses + row)
    return inverse == 0.0, tl.where(inverse == 0.0, 1.0, inverse)


@triton.jit(do_not_specialize=["vocabulary", "dense_rows", "lists"])
def scan(
    logits, stride, rows, vocabulary, mask_ids, dense, dense_stride, dense_rows, list_offset, list_length, list_tokens,
    lists, ends, end_counts, end_allowed, inverses, top_ks, top_ps, min_ps, seeds, positions,
    part_first, part_score, part_legal, group_keys,
    ENDS: tl.constexpr, GROUPS: tl.constexpr, FORMAT: tl.constexpr, TRUNCATES: tl.constexpr,
):  # fmt: skip
    """Of each part: the first order, the best score of rows without truncation, and what truncation needs.

    `part_first`, `part_score` int64[rows, parts]; `part_legal` int32[rows, parts], its legal tokens; `group_keys`
    int32[rows, 32-token groups], the largest key of each.
    """
    row = tl.program_id(0)
    part = tl.program_id(1)
    parts = tl.num_programs(1)
    first = part * 8 * GROUPS
    place = row.to(tl.int64) * parts + part
    source, index = source_of(tl.load(mask_ids + row), dense_rows, lists)
    end_count = tl.load(end_counts + row)
    greedy, inverse = inverse_of(inverses, row)
    truncated = False
    if TRUNCATES:
        truncated = (tl.load(top_ks + row) > 0) | (tl.load(top_ps + row) < 1.0) | (tl.load(min_ps + row) > 0.0)
    best = tl.full((), NONE, tl.int64)
    score = tl.full((), NONE, tl.int64)
    legal = tl.full((), 0, tl.int32)
    wide = (source == ALL) | (source == DENSE)
    if first < entries_of(source, index, list_length, end_count, vocabulary):
        order = order_tile(
            source, index, first, vocabulary, logits + tl.load(rows + row) * stride, dense, dense_stride, list_offset,
            list_length, list_tokens, ends + row * ENDS, end_count, tl.load(end_allowed + row), GROUPS, FORMAT,
        )  # fmt: skip
        best = tl.max(order)
        if (best != NONE) & (greedy == 0) & (truncated == 0):
            seed = tl.load(seeds + row)
            position = tl.load(positions + row)
            if wide:
                word = random_tile(first, seed, position, GROUPS)
            else:
                word = random_words(token_of(order), seed, position)
            score = best_score(order, word, inverse, seed, position)
        if TRUNCATES:
            legal = tl.sum((order != NONE).to(tl.int32))
            if wide & truncated:
                keys = tl.where(order == NONE, KEY_LOWEST, key_of(order))
                keys = tl.max(tl.reshape(tl.max(keys, 1), (GROUPS // 4, 4)), 1)
                group = place * (GROUPS // 4) + tl.arange(0, GROUPS // 4)
                tl.store(group_keys + group, keys)
    tl.store(part_first + place, best)
    tl.store(part_score + place, score)
    if TRUNCATES:
        tl.store(part_legal + place, legal)


@triton.jit
def first_of_row(part_first, row, parts, PARTS: tl.constexpr):
    """The largest of a row's results: PARTS is `parts` rounded up to a power of 2."""
    part = tl.arange(0, PARTS)
    return tl.max(tl.load(part_first + row.to(tl.int64) * parts + part, mask=part < parts, other=NONE), 0)


@triton.jit(do_not_specialize=["vocabulary", "dense_rows", "lists"])
def weigh(
    logits, stride, rows, vocabulary, mask_ids, dense, dense_stride, dense_rows, list_offset, list_length, list_tokens,
    lists, ends, end_counts, end_allowed, inverses, top_ks, top_ps, want_logprob, part_first, part_weight, part_steps,
    ENDS: tl.constexpr, GROUPS: tl.constexpr, FORMAT: tl.constexpr, PARTS: tl.constexpr, TRUNCATES: tl.constexpr,
):  # fmt: skip
    """`part_weight` int64[rows, parts]: the weights of each part's legal tokens, for rows that need their sum.

    Those are rows that ask for a log-probability, or have top-p without top-k. Parts whose first token weighs nothing
    are not read again. `part_steps` int64[rows, parts, STEPS], for rows with top-p: the weights of the tokens at most
    STEP, 2 * STEP, ... below the row's largest scaled logit.
    """
    row = tl.program_id(0)
    part = tl.program_id(1)
    parts = tl.num_programs(1)
    place = row.to(tl.int64) * parts + part
    shares = (tl.load(top_ps + row) < 1.0) & (tl.load(top_ks + row) <= 0)
    needed = (tl.load(want_logprob + row) != 0) | shares
    if TRUNCATES:  # noqa: SIM102
        if shares:
            tl.store(part_steps + place * STEPS + tl.arange(0, STEPS), tl.full((STEPS,), 0, tl.int64))
    best = first_of_row(part_first, row, parts, PARTS)
    own = tl.load(part_first + place)
    total = tl.full((), 0, tl.int64)
    _greedy, inverse = inverse_of(inverses, row)
    if needed & (own != NONE):
        maximum = scaled(key_of(best), inverse)
        # Below exp(-29) a weight is 0: `masks.scan_numba.lowest_key_of`.
        if scaled(key_of(own), inverse) - maximum >= -29.0:
            source, index = source_of(tl.load(mask_ids + row), dense_rows, lists)
            order = order_tile(
                source, index, part * 8 * GROUPS, vocabulary, logits + tl.load(rows + row) * stride, dense,
                dense_stride, list_offset, list_length, list_tokens, ends + row * ENDS, tl.load(end_counts + row),
                tl.load(end_allowed + row), GROUPS, FORMAT,
            )  # fmt: skip
            below = scaled(key_of(order), inverse) - maximum
            value = tl.where(order != NONE, weight(below), 0)
            total = tl.sum(value)
            if TRUNCATES:  # noqa: SIM102
                if shares:
                    for i in range(STEPS):
                        within = tl.sum(tl.where(below >= (i + 1) * -STEP, value, 0))
                        tl.store(part_steps + place * STEPS + i, within)
    tl.store(part_weight + place, total)


@triton.jit(do_not_specialize=["vocabulary", "dense_rows", "lists", "capacity"])
def gather(
    logits, stride, rows, vocabulary, mask_ids, dense, dense_stride, dense_rows, list_offset, list_length, list_tokens,
    lists, ends, end_counts, end_allowed, inverses, top_ps, part_first, group_keys, lowest_keys, candidate_count,
    candidates, candidate_weights, capacity,
    ENDS: tl.constexpr, GROUPS: tl.constexpr, FORMAT: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Orders of the tokens that can survive truncation, in any order, with their weights where top-p needs them.

    `lowest_keys` int32[rows]: the least key that can, or KEY_LOWEST where nothing is to be gathered (`bound`).
    `candidates`, `candidate_weights` int64[rows, capacity]; past `capacity` they are counted only.
    """
    row = tl.program_id(0)
    part = tl.program_id(1)
    parts = tl.num_programs(1)
    lowest = tl.load(lowest_keys + row)
    own = tl.load(part_first + row.to(tl.int64) * parts + part)
    if (lowest > KEY_LOWEST) & (key_of(own) >= lowest):
        source, index = source_of(tl.load(mask_ids + row), dense_rows, lists)
        first = part * 8 * GROUPS
        bits = mask_tile(
            source, index, first, vocabulary, dense, dense_stride, ends + row * ENDS, tl.load(end_counts + row),
            tl.load(end_allowed + row), GROUPS,
        )  # fmt: skip
        # Groups of 32 without such a token are not read again.
        group = (row.to(tl.int64) * parts + part) * (GROUPS // 4) + tl.arange(0, GROUPS // 4)
        reached = (tl.load(group_keys + group) >= lowest).to(tl.int32)
        reached = tl.reshape(tl.broadcast_to(reached[:, None], (GROUPS // 4, 4)), (GROUPS,))
        bits = tl.where(reached != 0, bits, 0)
        order = masked_orders(bits, first, vocabulary, logits + tl.load(rows + row) * stride, GROUPS, FORMAT)
        order = tl.reshape(order, (8 * GROUPS,))
        chosen = (order != NONE) & (key_of(order) >= lowest)
        begin = tl.atomic_add(candidate_count + row, tl.sum(chosen.to(tl.int32), 0))
        slot = begin + tl.cumsum(chosen.to(tl.int32), 0) - 1
        chosen = chosen & (slot < capacity)
        base = row.to(tl.int64) * capacity
        tl.store(candidates + base + slot, order, mask=chosen)
        if tl.load(top_ps + row) < 1.0:
            _greedy, inverse = inverse_of(inverses, row)
            maximum = scaled(key_of(first_of_row(part_first, row, parts, PARTS)), inverse)
            value = weight(scaled(key_of(order), inverse) - maximum)
            tl.store(candidate_weights + base + slot, value, mask=chosen)
