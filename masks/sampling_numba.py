"""The sampling kernel for CPUs: one nogil call for all rows, no allocation.

A row with a wide mask (dense, unconstrained) is scanned in one pass for its largest legal logit; greedy rows
need no more. Noise is bounded, so a second pass draws only for blocks and tokens that can still win. Truncation gathers
only tokens that can survive it and selects among them without a sort. A row with a list of tokens touches those
alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._numba import helper, kernel
from .keys_numba import (
    KEY_LOWEST,
    build_listed,
    build_mask,
    collect,
    composite_key,
    composite_token,
    listed_span,
    read_key,
    scaled,
)
from .noise import NOISE_MAX, ONE, WEIGHT_BITS, gumbel, log64, random_word, weight
from .scan_numba import draw_wide, gather, lowest_key_of, scan, top_k_key, total_weight
from .selection_numba import BY_COUNT, BY_WEIGHT, EVERYTHING, keep_to, select
from .tables import INDEX_BITS, KIND_DENSE, KIND_SHIFT

#: Temperatures below this are greedy: there a unit in the last place of a logit decides anyway.
TEMPERATURE_LOWEST = np.float32(2.0**-20)
_WEIGHT_ONE = 2.0**WEIGHT_BITS
_NOT_A_NUMBER = np.float32(np.nan)


@helper
def draw(
    values: NDArray[Any],
    count: int,
    inverse_temperature: float,
    maximum: float,
    last: int,
    least: int,
    seed: int,
    position: int,
    best_token: int,
    best: float,
) -> int:
    """The token of the best score among composites up to `last` and of a weight of at least `least`.

    The search starts from one candidate and its score.
    """
    for i in range(count):
        x = scaled(composite_key(values[i]), inverse_temperature)
        if values[i] > last or x + NOISE_MAX < best:
            continue
        token = composite_token(values[i])
        score = x + gumbel(random_word(seed, position, np.int64(token)))
        better = score > best or (score == best and token < best_token)
        if better and (least == 0 or weight(x - maximum) >= least):
            best = score
            best_token = token
    return best_token


@helper
def weigh(values: NDArray[Any], weights: NDArray[Any], count: int, inverse_temperature: float, maximum: float) -> Any:
    """Write the weights of composites; their sum."""
    total = np.int64(0)
    for i in range(count):
        weights[i] = weight(scaled(composite_key(values[i]), inverse_temperature) - maximum)
        total += weights[i]
    return total


@helper
def mass_limit(total: int, top_p: float) -> Any:
    """A token survives top-p iff the weight above it is below this."""
    return max(min(np.int64(np.ceil(np.float64(total) * np.float64(top_p))), total), np.int64(1))


@helper
def weight_limit(min_p: float) -> Any:
    """A token survives min-p iff its weight is at least this: `min_p` times the largest weight, rounded up."""
    return np.int64(np.ceil(min(np.float64(min_p), 1.0) * _WEIGHT_ONE))


@helper
def truncate(
    values: NDArray[Any],
    weights: NDArray[Any],
    count: int,
    total: int,
    top_k: int,
    top_p: float,
    inverse_temperature: float,
    maximum: float,
    values_scratch: NDArray[Any],
    weights_scratch: NDArray[Any],
    histogram: NDArray[Any],
) -> Any:
    """The last composite that survives top-k and then top-p.

    `total` is the weight that top-p is a share of, where `values` may lack tokens that cannot survive; else -1.
    """
    last = EVERYTHING
    if 0 < top_k < count:
        last = select(values, weights, count, top_k, BY_COUNT, values_scratch, weights_scratch, histogram)
        if top_p < ONE:
            count = keep_to(values, count, last)
    if top_p < ONE:
        mass = weigh(values, weights, count, inverse_temperature, maximum)
        limit = mass_limit(mass if total < 0 else total, top_p)
        last = min(last, select(values, weights, count, limit, BY_WEIGHT, values_scratch, weights_scratch, histogram))
    return last


def _sample_rows(
    bits: NDArray[Any],
    origin: int,
    stride: int,
    shift: int,
    rows: NDArray[Any],
    vocabulary: int,
    mask_ids: NDArray[Any],
    dense: NDArray[Any],
    list_offset: NDArray[Any],
    list_length: NDArray[Any],
    list_tokens: NDArray[Any],
    end_allowed: NDArray[Any],
    end_start: NDArray[Any],
    end_tokens: NDArray[Any],
    temperatures: NDArray[Any],
    top_ks: NDArray[Any],
    top_ps: NDArray[Any],
    min_ps: NDArray[Any],
    seeds: NDArray[Any],
    positions: NDArray[Any],
    want_logprob: NDArray[Any],
    mask: NDArray[Any],
    marks: NDArray[Any],
    block_key: NDArray[Any],
    values: NDArray[Any],
    weights: NDArray[Any],
    values_scratch: NDArray[Any],
    weights_scratch: NDArray[Any],
    histogram: NDArray[Any],
    words: NDArray[Any],
    single: NDArray[Any],
    tokens: NDArray[Any],
    logprobs: NDArray[Any],
) -> None:
    for i in range(mask_ids.size):
        tokens[i] = -1
        logprobs[i] = _NOT_A_NUMBER
        base = origin + rows[i] * stride
        mask_id = np.int64(mask_ids[i])
        index = np.int64(-1) if mask_id < 0 else mask_id & INDEX_BITS
        wide = mask_id < 0 or (mask_id >> KIND_SHIFT == KIND_DENSE and index < dense.shape[0])
        ends = end_tokens[end_start[i] : end_start[i + 1]]
        count = np.int64(0)
        legal = np.int64(0)
        if wide:
            build_mask(index, dense, ends, end_allowed[i], vocabulary, mask)
            best_key, best_token, legal = scan(bits, base, shift, mask, vocabulary, block_key)
            if best_token < 0:
                continue
        else:
            single[0] = index
            begin, end = listed_span(mask_id, list_offset, list_length)
            listed = single if begin < 0 else list_tokens[begin:end]
            count = collect(bits, base, shift, listed, ends, end_allowed[i], vocabulary, marks, values)
            if count == 0:
                continue
            first = values[0]
            for j in range(1, count):
                first = min(first, values[j])
            best_key = composite_key(first)
            best_token = composite_token(first)

        greedy = not temperatures[i] >= TEMPERATURE_LOWEST
        inverse = ONE if greedy else ONE / temperatures[i]
        maximum = scaled(best_key, inverse)
        top_k = np.int64(top_ks[i])
        top_p = top_ps[i]
        min_p = min_ps[i]
        shared = top_p < ONE and top_k <= 0
        total = np.int64(-1)
        if want_logprob[i] or (wide and shared and not greedy):
            if wide:
                total = total_weight(bits, base, shift, mask, vocabulary, block_key, inverse, best_key)
            else:
                total = weigh(values, weights, count, inverse, maximum)
        token = np.int64(best_token)
        if not greedy:
            least = weight_limit(min_p) if min_p > 0 else np.int64(0)
            last = EVERYTHING
            lowest = np.int32(KEY_LOWEST + 1)
            if wide:
                if top_k > 0:
                    blocks = (vocabulary + 31) >> 5
                    lowest = top_k_key(
                        blocks, block_key, top_k, values, weights, values_scratch, weights_scratch, histogram
                    )
                elif shared:
                    # Legal tokens lighter than this weigh less together than what top-p leaves out.
                    light = (total - mass_limit(total, top_p)) // legal + 1
                    lowest = lowest_key_of(light, best_key, inverse)
                if top_k > 0 or shared:
                    count = gather(bits, base, shift, mask, vocabulary, block_key, lowest, values)
            if top_k > 0 or shared:
                last = truncate(
                    values,
                    weights,
                    count,
                    total if shared else np.int64(-1),
                    top_k,
                    top_p,
                    inverse,
                    maximum,
                    values_scratch,
                    weights_scratch,
                    histogram,
                )
            seed = seeds[i]
            position = positions[i]
            score = maximum + gumbel(random_word(seed, position, token))
            if wide:
                lowest = max(lowest, composite_key(last))
                if least > 0:
                    lowest = max(lowest, lowest_key_of(least, best_key, inverse))
                token = draw_wide(
                    bits,
                    base,
                    shift,
                    mask,
                    vocabulary,
                    block_key,
                    inverse,
                    maximum,
                    last,
                    least,
                    lowest,
                    seed,
                    position,
                    token,
                    score,
                    words,
                )
            else:
                token = draw(values, count, inverse, maximum, last, least, seed, position, token, score)
        tokens[i] = token
        if want_logprob[i]:
            difference = np.float64(scaled(read_key(bits, base + token, shift), inverse)) - np.float64(maximum)
            logprobs[i] = np.float32(difference - log64(np.float64(total) / _WEIGHT_ONE))


_ARGUMENTS = (
    "int64, int64, int64, int64[::1], int64, int32[::1], uint32[:, ::1], int32[::1], int32[::1], int32[::1], "
    "uint32[::1], int32[::1], int32[::1], float32[::1], int32[::1], float32[::1], float32[::1], uint64[::1], "
    "int64[::1], uint8[::1], uint32[::1], uint32[::1], int32[::1], uint64[::1], int64[::1], uint64[::1], "
    "int64[::1], int64[::1], uint32[::1], int32[::1], int32[::1], float32[::1]"
)
#: One row after another for float32 bits (shift 0) and bfloat16 bits (shift 16).
sample_rows_32 = kernel(f"void(uint32[::1], {_ARGUMENTS})")(_sample_rows)
sample_rows_16 = kernel(f"void(uint16[::1], {_ARGUMENTS})")(_sample_rows)


def _apply_rows(
    bits: NDArray[Any],
    origin: int,
    stride: int,
    width: int,
    minus_infinity: int,
    rows: NDArray[Any],
    vocabulary: int,
    mask_ids: NDArray[Any],
    dense: NDArray[Any],
    list_offset: NDArray[Any],
    list_length: NDArray[Any],
    list_tokens: NDArray[Any],
    end_allowed: NDArray[Any],
    end_start: NDArray[Any],
    end_tokens: NDArray[Any],
    mask: NDArray[Any],
    single: NDArray[Any],
) -> None:
    for i in range(mask_ids.size):
        base = origin + rows[i] * stride
        mask_id = np.int64(mask_ids[i])
        index = np.int64(-1) if mask_id < 0 else mask_id & INDEX_BITS
        ends = end_tokens[end_start[i] : end_start[i + 1]]
        if mask_id < 0 or (mask_id >> KIND_SHIFT == KIND_DENSE and index < dense.shape[0]):
            build_mask(index, dense, ends, end_allowed[i], vocabulary, mask)
        else:
            single[0] = index
            begin, end = listed_span(mask_id, list_offset, list_length)
            listed = single if begin < 0 else list_tokens[begin:end]
            build_listed(listed, ends, end_allowed[i], vocabulary, mask)
        for block in range((vocabulary + 31) >> 5):
            word = mask[block]
            first = base + (block << 5)
            for j in range(min(32, vocabulary - (block << 5))):
                if not (word >> np.uint32(j)) & np.uint32(1):
                    bits[np.uint64(first + j)] = minus_infinity
        for token in range(vocabulary, width):
            bits[np.uint64(base + token)] = minus_infinity


_APPLY_ARGUMENTS = (
    "int64, int64, int64, int64, int64[::1], int64, int32[::1], uint32[:, ::1], int32[::1], int32[::1], "
    "int32[::1], uint32[::1], int32[::1], int32[::1], uint32[::1], int32[::1]"
)
apply_rows_32 = kernel(f"void(uint32[::1], {_APPLY_ARGUMENTS})")(_apply_rows)
apply_rows_16 = kernel(f"void(uint16[::1], {_APPLY_ARGUMENTS})")(_apply_rows)
