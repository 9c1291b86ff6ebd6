"""Truncation without a sort, and the token of each row: kernels of one program a row.

What survives top-k and top-p is a beginning of the truncation order. Its end is found by bisection on the order itself:
how many tokens, or how much weight, come before an order falls as the order rises. Counts and weights are integers, so
every sum is exact and the cut is the one a full sort would make.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from .noise_triton import WEIGHT_SCALE, log64, random_words, weight
from .rows_triton import (
    ALL,
    DENSE,
    KEY_LOWEST,
    NONE,
    best_score,
    entries_of,
    key_of,
    load_keys,
    order_tile,
    scaled,
    source_of,
    tile_places,
    token_of,
)
from .scan_triton import STEP, STEPS, first_of_row, inverse_of

#: Source of a row's tokens beside those of `rows_triton`: what `gather` left.
GATHERED = tl.constexpr(5)


@triton.jit
def mass_limit(total, top_p):
    """A token survives top-p iff the weight before it is below this."""
    limit = tl.math.ceil(total.to(tl.float64) * top_p.to(tl.float64)).to(tl.int64)
    return tl.maximum(tl.minimum(limit, total), 1)


@triton.jit
def weight_limit(min_p):
    """A token survives min-p iff its weight is at least this."""
    return tl.math.ceil(tl.minimum(min_p.to(tl.float64), 1.0) * WEIGHT_SCALE).to(tl.int64)


@triton.jit
def key_within(distance, maximum_key, inverse):
    """The least key whose scaled logit is at most -`distance` below the largest."""
    maximum = scaled(maximum_key, inverse)
    low = tl.full((), KEY_LOWEST + 1, tl.int64)
    high = maximum_key.to(tl.int64)
    while low < high:
        middle = (low + high) >> 1
        if scaled(middle.to(tl.int32), inverse) - maximum >= distance:
            high = middle
        else:
            low = middle + 1
    return low.to(tl.int32)


@triton.jit
def lowest_key_of(limit, maximum_key, inverse):
    """A key such that every token below it weighs less than `limit` (`masks.scan_numba`)."""
    least = tl.maximum(limit, 2).to(tl.float64)
    ratio = tl.full((), 2.0 * WEIGHT_SCALE, tl.float64) / least
    bound = -(log64(ratio).to(tl.float32) + 0.01)
    return key_within(tl.where(limit <= 1, -29.0, bound), maximum_key, inverse)


@triton.jit(do_not_specialize=["vocabulary", "dense_rows", "lists", "parts", "groups"])
def bound(
    vocabulary, mask_ids, dense_rows, lists, inverses, top_ks, top_ps, min_ps,
    part_first, part_legal, part_weight, part_steps, group_keys, lowest_keys, candidate_count, parts, groups,
    PARTS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """For each truncated row with a wide mask, a key below which no token can survive (see `scan_triton.gather`)."""
    row = tl.program_id(0)
    source, _index = source_of(tl.load(mask_ids + row), dense_rows, lists)
    top_k = tl.load(top_ks + row)
    top_p = tl.load(top_ps + row)
    min_p = tl.load(min_ps + row)
    greedy, inverse = inverse_of(inverses, row)
    best = first_of_row(part_first, row, parts, PARTS)
    lowest = tl.full((), KEY_LOWEST, tl.int32)
    truncated = (top_k > 0) | (top_p < 1.0) | (min_p > 0.0)
    if ((source == ALL) | (source == DENSE)) & truncated & (greedy == 0) & (best != NONE):
        lowest = tl.full((), KEY_LOWEST + 1, tl.int32)
        part = tl.arange(0, PARTS)
        place = row.to(tl.int64) * parts + part
        if top_k > 0:
            # The k-th largest of the groups' largest keys is reached by k tokens, if there are as many groups.
            base = row.to(tl.int64) * groups
            low = tl.full((), KEY_LOWEST + 1, tl.int64)
            high = key_of(best).to(tl.int64)
            while low < high:
                middle = (low + high + 1) >> 1
                reached = tl.full((), 0, tl.int32)
                for begin in range(0, groups, TILE):
                    group = begin + tl.arange(0, TILE)
                    key = tl.load(group_keys + base + group, mask=group < groups, other=KEY_LOWEST)
                    reached += tl.sum((key >= middle.to(tl.int32)).to(tl.int32), 0)
                if reached >= top_k:
                    low = middle
                else:
                    high = middle - 1
            lowest = low.to(tl.int32)
        elif top_p < 1.0:
            total = tl.sum(tl.load(part_weight + place, mask=part < parts, other=0), 0)
            legal = tl.sum(tl.load(part_legal + place, mask=part < parts, other=0), 0)
            # Tokens lighter than this weigh less together than what top-p leaves out.
            light = (total - mass_limit(total, top_p)) // legal + 1
            lowest = lowest_key_of(light, key_of(best), inverse)
            # None survives below a distance within which there is enough weight.
            enough = tl.full((), 0, tl.int32) + STEPS
            for i in range(STEPS):
                within = tl.sum(tl.load(part_steps + place * STEPS + i, mask=part < parts, other=0), 0)
                if (within >= mass_limit(total, top_p)) & (i < enough):
                    enough = tl.full((), 0, tl.int32) + i
            if enough < STEPS:
                lowest = tl.maximum(lowest, key_within((enough + 1).to(tl.float32) * -STEP, key_of(best), inverse))
        if (min_p > 0.0) & ((top_k <= 0) | (top_p >= 1.0)):
            lowest = tl.maximum(lowest, lowest_key_of(weight_limit(min_p), key_of(best), inverse))
    tl.store(lowest_keys + row, lowest)
    tl.store(candidate_count + row, 0)


@triton.jit
def survivors_tile(
    source, index, first, vocabulary, logits, dense, dense_stride, list_offset, list_length, list_tokens,
    ends, end_count, end_allowed, candidates, count, lowest, GROUPS: tl.constexpr, FORMAT: tl.constexpr,
):  # fmt: skip
    """Orders of a tile of the tokens that truncation has to look at, from whatever source."""
    order = tl.full((GROUPS, 8), NONE, tl.int64)
    if source == GATHERED:
        entry = tile_places(first, GROUPS)
        order = tl.load(candidates + entry, mask=entry < count, other=NONE)
    else:
        order = order_tile(
            source, index, first, vocabulary, logits, dense, dense_stride, list_offset, list_length, list_tokens,
            ends, end_count, end_allowed, GROUPS, FORMAT,
        )  # fmt: skip
        order = tl.where(key_of(order) >= lowest, order, NONE)
    return order


@triton.jit
def split_at(
    middle, low, high, by_weight, source, index, vocabulary, logits, dense, dense_stride, list_offset, list_length,
    list_tokens, ends, end_count, end_allowed, candidates, candidate_weights, count, lowest, inverse, maximum,
    GROUPS: tl.constexpr, FORMAT: tl.constexpr,
):  # fmt: skip
    """Of the orders from `low` to `high`: the largest up to `middle`, the least beyond it; and how many tokens of the
    row, or how much weight, come before `middle`."""
    before = tl.full((), 0, tl.int64)
    below = low
    above = high
    for first in range(0, count, 8 * GROUPS):
        order = survivors_tile(
            source, index, first, vocabulary, logits, dense, dense_stride, list_offset, list_length, list_tokens, ends,
            end_count, end_allowed, candidates, count, lowest, GROUPS, FORMAT,
        )  # fmt: skip
        value = (order > middle).to(tl.int64)
        if by_weight:
            if source == GATHERED:
                entry = tile_places(first, GROUPS)
                value = value * tl.load(candidate_weights + entry, mask=entry < count, other=0)
            else:
                value = value * weight(scaled(key_of(order), inverse) - maximum)
        before += tl.sum(value)
        below = tl.maximum(below, tl.max(tl.where(order <= middle, order, low)))
        above = tl.minimum(above, tl.min(tl.where((order > middle) & (order != NONE), order, high)))
    return before, below, above


@triton.jit(do_not_specialize=["vocabulary", "dense_rows", "lists", "parts", "capacity"])
def finish(
    logits, stride, rows, vocabulary, mask_ids, dense, dense_stride, dense_rows, list_offset, list_length, list_tokens,
    lists, ends, end_counts, end_allowed, inverses, top_ks, top_ps, min_ps, seeds, positions, want_logprob,
    part_first, part_score, part_weight, lowest_keys, candidate_count, candidates, candidate_weights,
    capacity, tokens, logprobs, parts,
    ENDS: tl.constexpr, GROUPS: tl.constexpr, FORMAT: tl.constexpr, PARTS: tl.constexpr,
    TRUNCATES: tl.constexpr, LOGPROBS: tl.constexpr,
):  # fmt: skip
    """The token of each row and its log-probability, from what the passes before have left."""
    row = tl.program_id(0)
    greedy, inverse = inverse_of(inverses, row)
    best = first_of_row(part_first, row, parts, PARTS)
    maximum = scaled(key_of(best), inverse)
    chosen = best
    total = tl.full((), 0, tl.int64)
    if TRUNCATES or LOGPROBS:
        part = tl.arange(0, PARTS)
        place = row.to(tl.int64) * parts + part
        total = tl.sum(tl.load(part_weight + place, mask=part < parts, other=0), 0)
    truncated = False
    if TRUNCATES:
        top_k = tl.load(top_ks + row)
        top_p = tl.load(top_ps + row)
        min_p = tl.load(min_ps + row)
        truncated = (top_k > 0) | (top_p < 1.0) | (min_p > 0.0)
        if truncated & (best != NONE) & (greedy == 0):
            seed = tl.load(seeds + row)
            position = tl.load(positions + row)
            source, index = source_of(tl.load(mask_ids + row), dense_rows, lists)
            end_count = tl.load(end_counts + row)
            allowed = tl.load(end_allowed + row)
            lowest = tl.load(lowest_keys + row)
            gathered = tl.load(candidate_count + row)
            count = entries_of(source, index, list_length, end_count, vocabulary)
            if ((source == ALL) | (source == DENSE)) & (gathered <= capacity):
                source = source * 0 + GATHERED
                count = gathered
            own_logits = logits + tl.load(rows + row) * stride
            own_ends = ends + row * ENDS
            own = candidates + row.to(tl.int64) * capacity
            own_weights = candidate_weights + row.to(tl.int64) * capacity
            last = tl.full((), NONE, tl.int64)
            # First top-k, then top-p of what it leaves: each may move `last`, the last order that survives.
            for turn in range(2):
                by_weight = turn == 1
                wanted = tl.where(by_weight, top_p < 1.0, top_k > 0)
                if wanted:
                    limit = top_k.to(tl.int64)
                    if by_weight:
                        mass = total
                        if top_k > 0:
                            mass, below, above = split_at(
                                last - 1, best, best, by_weight, source, index, vocabulary, own_logits, dense,
                                dense_stride, list_offset, list_length, list_tokens, own_ends, end_count, allowed,
                                own, own_weights, count, lowest, inverse, maximum, GROUPS, FORMAT,
                            )  # fmt: skip
                        limit = mass_limit(mass, top_p)
                    # The least order of a token with less than `limit` before it, by bisection.
                    low = tl.full((), NONE, tl.int64) + 1
                    high = best
                    while low < high:
                        middle = (low >> 1) + (high >> 1) + (low & high & 1)
                        before, below, above = split_at(
                            middle, low, high, by_weight, source, index, vocabulary, own_logits, dense, dense_stride,
                            list_offset, list_length, list_tokens, own_ends, end_count, allowed, own,
                            own_weights, count, lowest, inverse, maximum, GROUPS, FORMAT,
                        )  # fmt: skip
                        if before < limit:
                            high = below
                        else:
                            low = above
                    last = tl.maximum(last, low)
            least = tl.full((), 0, tl.int64)
            if min_p > 0.0:
                least = weight_limit(min_p)
            score = tl.full((), NONE, tl.int64)
            for first in range(0, count, 8 * GROUPS):
                order = survivors_tile(
                    source, index, first, vocabulary, own_logits, dense, dense_stride, list_offset, list_length,
                    list_tokens, own_ends, end_count, allowed, own, count, lowest, GROUPS, FORMAT,
                )  # fmt: skip
                order = tl.where(order >= last, order, NONE)
                if least > 0:
                    order = tl.where(weight(scaled(key_of(order), inverse) - maximum) >= least, order, NONE)
                word = random_words(token_of(order), seed, position)
                score = tl.maximum(score, best_score(order, word, inverse, seed, position))
            chosen = score
    if (best != NONE) & (greedy == 0) & (truncated == 0):
        chosen = first_of_row(part_score, row, parts, PARTS)
    token = token_of(chosen)
    tl.store(tokens + row, token)
    if LOGPROBS:
        logprob = tl.full((), float("nan"), tl.float32)
        if (best != NONE) & (tl.load(want_logprob + row) != 0):
            key = load_keys(logits + tl.load(rows + row) * stride, token, best != NONE, FORMAT)
            difference = scaled(key, inverse).to(tl.float64) - maximum.to(tl.float64)
            logprob = (difference - log64(total.to(tl.float64) / WEIGHT_SCALE)).to(tl.float32)
        tl.store(logprobs + row, logprob)
