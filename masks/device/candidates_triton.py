"""Candidates of waiting rows (`masks.candidates`): the best tokens by score, their ranks and the weights above them.

Three kernels: the best scores of each part of the vocabulary, the best of those, and what lies above each candidate.
Other rows cost a load of their status.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from ..layout import PENDING as _PENDING
from .noise_triton import gumbel, random_tile, weight
from .rows_triton import (
    ALL,
    DENSE,
    NONE,
    float_key,
    key_of,
    load_keys,
    mask_tile,
    order_of,
    order_tile,
    scaled,
    token_of,
)
from .scan_triton import first_of_row, inverse_of

PENDING = tl.constexpr(int(_PENDING))


@triton.jit
def possible_tile(
    first, vocabulary, logits, possible, ends, end_count, GROUPS: tl.constexpr, FORMAT: tl.constexpr,
    EVERY: tl.constexpr,
):  # fmt: skip
    """Orders of the possible tokens of a tile, end tokens among them."""
    source = ALL if EVERY else DENSE
    # No list is looked at: `ends` stands for its three tables.
    return order_tile(
        source,
        end_count * 0,
        first,
        vocabulary,
        logits,
        possible,
        0,
        ends,
        ends,
        ends,
        ends,
        end_count,
        end_count * 0 - 1,
        GROUPS,
        FORMAT,
    )


@triton.jit(do_not_specialize=["vocabulary"])
def score_parts(
    logits, stride, rows, vocabulary, status, possible, ends, end_counts, inverses, seeds, positions,
    want_logprob, part_first, part_legal, part_best,
    ENDS: tl.constexpr, GROUPS: tl.constexpr, FORMAT: tl.constexpr, MOST: tl.constexpr,
    EVERY: tl.constexpr,
):  # fmt: skip
    """Of each part: its first order, its possible tokens, and `part_best` int64[rows, parts, MOST], its best scores."""
    row = tl.program_id(0)
    part = tl.program_id(1)
    place = row.to(tl.int64) * tl.num_programs(1) + part
    if (tl.load(status + row) == PENDING) & (tl.load(want_logprob + row) == 0):
        first = part * 8 * GROUPS
        own_ends = ends + row * ENDS
        end_count = tl.load(end_counts + row)
        source = ALL if EVERY else DENSE
        bits = mask_tile(
            source, end_count * 0, first, vocabulary, possible, 0, own_ends, end_count, end_count * 0 - 1, GROUPS
        )
        order = possible_tile(
            first, vocabulary, logits + tl.load(rows + row) * stride, possible, own_ends, end_count,
            GROUPS, FORMAT, EVERY,
        )  # fmt: skip
        legal = tl.sum((bits[:, None] >> tl.arange(0, 8)[None, :]) & 1)
        tl.store(part_first + place, tl.max(order))
        tl.store(part_legal + place, legal)
        scores = order
        greedy, inverse = inverse_of(inverses, row)
        if greedy == 0:
            word = random_tile(first, tl.load(seeds + row), tl.load(positions + row), GROUPS)
            score = scaled(key_of(order), inverse) + gumbel(word)
            scores = tl.where(order != NONE, order_of(float_key(score), token_of(order)), NONE)
        for i in range(MOST):
            best = tl.max(scores)
            tl.store(part_best + place * MOST + i, best)
            scores = tl.where(scores == best, NONE, scores)


@triton.jit(do_not_specialize=["parts"])
def merge_parts(
    logits, stride, rows, status, inverses, want_logprob, parts, part_first, part_legal, part_best, sampled,
    counts, tokens, xs, ranks, weights, aboves, possibles, totals, largests, orders,
    FORMAT: tl.constexpr, PARTS: tl.constexpr, MOST: tl.constexpr,
):  # fmt: skip
    """The candidates of each row, with `orders` int64[rows, MOST] for `measure`, and zeros for it to add to."""
    row = tl.program_id(0)
    count = tl.full((), -1, tl.int32)
    if tl.load(status + row) == PENDING:
        tl.store(sampled + row, -1)
        count = tl.full((), 0, tl.int32)
        if tl.load(want_logprob + row) == 0:
            _greedy, inverse = inverse_of(inverses, row)
            best = first_of_row(part_first, row, parts, PARTS)
            maximum = scaled(key_of(best), inverse)
            part = tl.arange(0, PARTS)
            legal = tl.load(part_legal + row.to(tl.int64) * parts + part, mask=part < parts, other=0)
            tl.store(possibles + row, tl.sum(legal, 0))
            tl.store(totals + row, tl.full((), 0, tl.int64))
            tl.store(largests + row, maximum)
            base = row.to(tl.int64) * parts * MOST
            last = tl.full((), 0x7FFFFFFFFFFFFFFF, tl.int64)
            for i in range(MOST):
                score = tl.full((), NONE, tl.int64)
                for first in range(0, parts * MOST, PARTS):
                    entry = first + tl.arange(0, PARTS)
                    value = tl.load(part_best + base + entry, mask=entry < parts * MOST, other=NONE)
                    score = tl.maximum(score, tl.max(tl.where(value < last, value, NONE), 0))
                order = tl.full((), NONE, tl.int64)
                place = row * MOST + i
                if score != NONE:
                    count += 1
                    last = score
                    token = token_of(score)
                    key = load_keys(logits + tl.load(rows + row) * stride, token, token >= 0, FORMAT)
                    order = order_of(key, token)
                    x = scaled(key, inverse)
                    tl.store(tokens + place, token)
                    tl.store(xs + place, x)
                    tl.store(weights + place, weight(x - maximum))
                tl.store(orders + place, order)
                tl.store(ranks + place, 0)
                tl.store(aboves + place, tl.full((), 0, tl.int64))
    tl.store(counts + row, count)


@triton.jit(do_not_specialize=["vocabulary"])
def measure(
    logits, stride, rows, vocabulary, status, possible, ends, end_counts, inverses, top_ks, top_ps,
    min_ps, want_logprob, part_first, orders, ranks, aboves, totals,
    ENDS: tl.constexpr, GROUPS: tl.constexpr, FORMAT: tl.constexpr, PARTS: tl.constexpr, MOST: tl.constexpr,
    EVERY: tl.constexpr,
):  # fmt: skip
    """Add each part's tokens, and with top-p their weights, to what is above each candidate of a truncated row.

    Sums of integers: whichever program adds first, they are the same.
    """
    row = tl.program_id(0)
    part = tl.program_id(1)
    parts = tl.num_programs(1)
    greedy, inverse = inverse_of(inverses, row)
    weighs = tl.load(top_ps + row) < 1.0
    truncated = (tl.load(top_ks + row) > 0) | weighs | (tl.load(min_ps + row) > 0.0)
    waits = (tl.load(status + row) == PENDING) & (tl.load(want_logprob + row) == 0) & (greedy == 0) & truncated
    if waits:
        order = possible_tile(
            part * 8 * GROUPS, vocabulary, logits + tl.load(rows + row) * stride, possible,
            ends + row * ENDS, tl.load(end_counts + row), GROUPS, FORMAT, EVERY,
        )  # fmt: skip
        value = tl.full((GROUPS, 8), 0, tl.int64)
        if weighs:
            maximum = scaled(key_of(first_of_row(part_first, row, parts, PARTS)), inverse)
            value = tl.where(order != NONE, weight(scaled(key_of(order), inverse) - maximum), 0)
            tl.atomic_add(totals + row, tl.sum(value))
        for i in range(MOST):
            place = row * MOST + i
            own = tl.load(orders + place)
            if own != NONE:
                above = order > own
                tl.atomic_add(ranks + place, tl.sum(above.to(tl.int32)))
                if weighs:
                    tl.atomic_add(aboves + place, tl.sum(tl.where(above, value, 0)))
