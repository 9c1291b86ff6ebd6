"""The candidates of waiting rows on CPUs: the best tokens by score, their ranks and the weights above them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._numba import helper, kernel
from .keys_numba import KEY_LOWEST, build_mask, composite, composite_key, composite_token, logit_key, read_key, scaled
from .layout import PENDING
from .noise import NOISE_MAX, ONE, gumbel, random_block, weight
from .sampling_numba import TEMPERATURE_LOWEST
from .scan_numba import scan, top_k_key, total_weight

_WAITING = np.uint8(PENDING)


@helper
def insert(values: NDArray[Any], count: int, most: int, value: int) -> int:
    """Keep the `most` lowest values seen, ascending; how many there are now."""
    if count == most:
        if value >= values[most - 1]:
            return count
        at = most - 1
    else:
        at = count
        count += 1
    while at > 0 and values[at - 1] > value:
        values[at] = values[at - 1]
        at -= 1
    values[at] = value
    return count


@helper
def first_in_order(
    bits: NDArray[Any],
    base: int,
    shift: int,
    mask: NDArray[Any],
    vocabulary: int,
    block_key: NDArray[Any],
    lowest: int,
    most: int,
    best: NDArray[Any],
) -> int:
    """Write the first `most` composites of the mask's tokens in truncation order; how many. Keys reach `lowest`."""
    count = np.int64(0)
    for block in range((vocabulary + 31) >> 5):
        if block_key[block] < lowest:
            continue
        word = mask[block]
        first = block << 5
        for j in range(min(32, vocabulary - first)):
            key = read_key(bits, base + first + j, shift)
            if (word >> np.uint32(j)) & np.uint32(1) and key >= lowest:
                count = insert(best, count, most, composite(key, first + j))
    return count


@helper
def first_in_score(
    bits: NDArray[Any],
    base: int,
    shift: int,
    mask: NDArray[Any],
    vocabulary: int,
    block_key: NDArray[Any],
    inverse_temperature: float,
    likely: int,
    seed: int,
    position: int,
    words: NDArray[Any],
    most: int,
    best: NDArray[Any],
) -> int:
    """Write the composites of the `most` best scores in place of logits; how many.

    Blocks with a key of at least `likely` come first: with their scores known, few others can matter.
    """
    count = np.int64(0)
    for turn in range(2):
        for block in range((vocabulary + 31) >> 5):
            if block_key[block] == KEY_LOWEST or (block_key[block] >= likely) != (turn == 0):
                continue
            highest = np.uint32(0xFFFFFFFF)
            if count == most:
                worst = scaled(composite_key(best[most - 1]), ONE)
                largest = scaled(block_key[block], inverse_temperature)
                if largest + NOISE_MAX < worst:
                    continue
                # As in `scan_numba.draw_wide`: the lowest noise with which the block's best gets in.
                behind = np.float64(worst) - np.float64(largest)
                behind -= 0.01 + 1e-6 * abs(np.float64(worst))
                if behind > 0.0:
                    bound = max((np.uint64(1) << np.uint64(32)) >> np.uint64(min(behind / 0.69315, 32.0)), np.uint64(1))
                    highest = np.uint32(bound - np.uint64(1))
            random_block(seed, position, block, words)
            first = block << 5
            mask_word = mask[block]
            for i in range(32):
                word = words[i]
                if word > highest:
                    continue
                token = first + 4 * (i & 7) + (i >> 3)
                if token >= vocabulary or not (mask_word >> np.uint32(token & 31)) & np.uint32(1):
                    continue
                key = read_key(bits, base + token, shift)
                if key > KEY_LOWEST:
                    score = np.float32(scaled(key, inverse_temperature) + gumbel(word))
                    count = insert(best, count, most, composite(logit_key(np.int32(score.view(np.int32))), token))
    return count


@helper
def measure(
    bits: NDArray[Any],
    base: int,
    shift: int,
    mask: NDArray[Any],
    vocabulary: int,
    block_key: NDArray[Any],
    inverse_temperature: float,
    maximum: float,
    weigh: bool,
    count: int,
    order: NDArray[Any],
    above_count: NDArray[Any],
    above_weight: NDArray[Any],
) -> None:
    """For `count` ascending composites in `order`: tokens above each, and with `weigh` the sums of their weights."""
    for i in range(count):
        above_count[i] = 0
        above_weight[i] = 0
    last = order[count - 1]
    lowest = composite_key(last)
    for block in range((vocabulary + 31) >> 5):
        if block_key[block] < lowest:
            continue
        word = mask[block]
        first = block << 5
        for j in range(min(32, vocabulary - first)):
            key = read_key(bits, base + first + j, shift)
            if not (word >> np.uint32(j)) & np.uint32(1) or key < lowest:
                continue
            value = composite(key, first + j)
            if value >= last:
                continue
            i = 0
            while order[i] <= value:
                i += 1
            above_count[i] += 1
            if weigh:
                above_weight[i] += weight(scaled(key, inverse_temperature) - maximum)
    for i in range(1, count):
        above_count[i] += above_count[i - 1]
        above_weight[i] += above_weight[i - 1]


def _candidate_rows(
    bits: NDArray[Any],
    origin: int,
    stride: int,
    shift: int,
    rows: NDArray[Any],
    vocabulary: int,
    status: NDArray[Any],
    possible: NDArray[Any],
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
    block_key: NDArray[Any],
    values: NDArray[Any],
    weights: NDArray[Any],
    values_scratch: NDArray[Any],
    weights_scratch: NDArray[Any],
    histogram: NDArray[Any],
    words: NDArray[Any],
    counts: NDArray[Any],
    tokens: NDArray[Any],
    xs: NDArray[Any],
    ranks: NDArray[Any],
    token_weights: NDArray[Any],
    aboves: NDArray[Any],
    possibles: NDArray[Any],
    totals: NDArray[Any],
    largests: NDArray[Any],
    sampled: NDArray[Any],
) -> None:
    blocks = (vocabulary + 31) >> 5
    for i in range(rows.size):
        counts[i] = -1
        if status[i] != _WAITING:
            continue
        counts[i] = 0
        sampled[i] = -1
        if want_logprob[i]:
            continue
        base = origin + rows[i] * stride
        build_mask(np.int64(0), possible, end_tokens[end_start[i] : end_start[i + 1]], 1, vocabulary, mask)
        best_key, best_token, legal = scan(bits, base, shift, mask, vocabulary, block_key)
        if best_token < 0:
            continue
        most = min(np.int64(tokens.shape[1]), legal)
        greedy = not temperatures[i] >= TEMPERATURE_LOWEST
        inverse = ONE if greedy else ONE / temperatures[i]
        likely = top_k_key(blocks, block_key, most, values, weights, values_scratch, weights_scratch, histogram)
        if greedy:
            count = first_in_order(bits, base, shift, mask, vocabulary, block_key, likely, most, values)
        else:
            count = first_in_score(
                bits, base, shift, mask, vocabulary, block_key, inverse, likely, seeds[i], positions[i], words, most,
                values,
            )  # fmt: skip
        counts[i] = count
        # Entry j in truncation order is entry `place[j]` in the order of scores.
        order = values_scratch
        for j in range(count):
            token = np.int64(composite_token(values[j]))
            key = read_key(bits, base + token, shift)
            tokens[i, j] = token
            xs[i, j] = scaled(key, inverse)
            insert(order, j, count, composite(key, token))
        if greedy or not (top_ks[i] > 0 or top_ps[i] < ONE or min_ps[i] > 0):
            continue
        weigh = top_ps[i] < ONE
        maximum = scaled(best_key, inverse)
        largests[i] = maximum
        if weigh:
            possibles[i] = legal
            totals[i] = total_weight(bits, base, shift, mask, vocabulary, block_key, inverse, best_key)
        measure(
            bits, base, shift, mask, vocabulary, block_key, inverse, maximum, weigh, count, order, weights,
            weights_scratch,
        )  # fmt: skip
        for j in range(count):
            token = np.int64(tokens[i, j])
            own = composite(read_key(bits, base + token, shift), token)
            place = 0
            while order[place] != own:
                place += 1
            ranks[i, j] = weights[place]
            if weigh:
                aboves[i, j] = weights_scratch[place]
                token_weights[i, j] = weight(xs[i, j] - maximum)


_ARGUMENTS = (
    "int64, int64, int64, int64[::1], int64, uint8[::1], uint32[:, ::1], int32[::1], int32[::1], "
    "float32[::1], int32[::1], float32[::1], float32[::1], uint64[::1], int64[::1], uint8[::1], "
    "uint32[::1], int32[::1], uint64[::1], int64[::1], uint64[::1], int64[::1], int64[::1], uint32[::1], "
    "int32[::1], int32[:, ::1], float32[:, ::1], int32[:, ::1], int64[:, ::1], int64[:, ::1], int32[::1], "
    "int64[::1], float32[::1], int32[::1]"
)
#: One waiting row after another for float32 bits (shift 0) and bfloat16 bits (shift 16).
candidate_rows_32 = kernel(f"void(uint32[::1], {_ARGUMENTS})")(_candidate_rows)
candidate_rows_16 = kernel(f"void(uint16[::1], {_ARGUMENTS})")(_candidate_rows)
