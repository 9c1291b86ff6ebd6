"""Passes over the logits of a row with a wide mask, in blocks of 32 tokens: one word of the mask each.

A word of zeros costs no look at the logits. The first pass finds the largest legal logit of each block, and all
later ones skip by it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._numba import helper
from .keys_numba import KEY_LOWEST, composite, composite_key, read_key, scaled
from .noise import NOISE_MAX, WEIGHT_BITS, gumbel, log64, random_block, weight
from .selection_numba import BY_COUNT, select

_WEIGHT_ONE = 2.0**WEIGHT_BITS


@helper
def scan(
    bits: NDArray[Any], base: int, shift: int, mask: NDArray[Any], vocabulary: int, block_key: NDArray[Any]
) -> tuple[int, int, int]:
    """Largest key of each block's legal tokens; the row's largest, the lowest token with it, and the legal tokens."""
    best = KEY_LOWEST
    best_block = -1
    legal = 0
    for block in range((vocabulary + 31) >> 5):
        word = mask[block]
        largest = KEY_LOWEST
        if word != 0:
            first = block << 5
            if first + 32 <= vocabulary:
                for j in range(32):
                    key = read_key(bits, base + first + j, shift)
                    key = key if (word >> np.uint32(j)) & np.uint32(1) else KEY_LOWEST
                    largest = max(largest, key)
                    legal += np.int64((word >> np.uint32(j)) & np.uint32(1))
            else:
                for j in range(vocabulary - first):
                    if (word >> np.uint32(j)) & np.uint32(1):
                        largest = max(largest, read_key(bits, base + first + j, shift))
                        legal += 1
        block_key[block] = largest
        if largest > best:
            best = largest
            best_block = block
    if best_block < 0:
        return KEY_LOWEST, -1, legal
    token = best_block << 5
    while not ((mask[best_block] >> np.uint32(token & 31)) & 1) or read_key(bits, base + token, shift) != best:
        token += 1
    return best, token, legal


@helper
def lowest_key_of(weight_limit: int, maximum_key: int, inverse_temperature: float) -> Any:
    """A key such that every token below it has a weight below `weight_limit` (>= 1).

    Found by bisection on a monotone stand-in for the weight: half the limit leaves room for the
    rounding of `weight`, which is monotone only up to that.
    """
    maximum = scaled(maximum_key, inverse_temperature)
    low = np.int64(KEY_LOWEST) + 1
    high = np.int64(maximum_key)
    if weight_limit <= 1:
        bound = np.float32(-29.0)
    else:
        bound = -np.float32(log64(_WEIGHT_ONE / (0.5 * weight_limit)) + 0.01)
    while low < high:
        middle = (low + high) >> 1
        if scaled(np.int32(middle), inverse_temperature) - maximum >= bound:
            high = middle
        else:
            low = middle + 1
    return np.int32(low)


@helper
def total_weight(
    bits: NDArray[Any],
    base: int,
    shift: int,
    mask: NDArray[Any],
    vocabulary: int,
    block_key: NDArray[Any],
    inverse_temperature: float,
    maximum_key: int,
) -> Any:
    """Sum of the legal tokens' weights."""
    total = np.int64(0)
    maximum = scaled(maximum_key, inverse_temperature)
    lowest_key = lowest_key_of(np.int64(1), maximum_key, inverse_temperature)
    for block in range((vocabulary + 31) >> 5):
        if block_key[block] < lowest_key:
            continue
        word = mask[block]
        first = block << 5
        if first + 32 <= vocabulary:
            # A constant number of rounds without branches, which compilers turn into vector code.
            for j in range(32):
                key = read_key(bits, base + first + j, shift)
                key = key if (word >> np.uint32(j)) & np.uint32(1) else KEY_LOWEST
                value = weight(scaled(key, inverse_temperature) - maximum)
                total += value if key > KEY_LOWEST else np.int64(0)
        else:
            for j in range(vocabulary - first):
                key = read_key(bits, base + first + j, shift)
                if (word >> np.uint32(j)) & np.uint32(1) and key > KEY_LOWEST:
                    total += weight(scaled(key, inverse_temperature) - maximum)
    return total


@helper
def gather(
    bits: NDArray[Any],
    base: int,
    shift: int,
    mask: NDArray[Any],
    vocabulary: int,
    block_key: NDArray[Any],
    lowest_key: int,
    values: NDArray[Any],
) -> int:
    """Write the composites of legal tokens with a key of at least `lowest_key`, in id order; how many."""
    count = 0
    for block in range((vocabulary + 31) >> 5):
        if block_key[block] < lowest_key:
            continue
        word = mask[block]
        first = block << 5
        for j in range(min(32, vocabulary - first)):
            key = read_key(bits, base + first + j, shift)
            if (word >> np.uint32(j)) & np.uint32(1) and key >= lowest_key:
                values[count] = composite(key, first + j)
                count += 1
    return count


@helper
def top_k_key(
    blocks: int,
    block_key: NDArray[Any],
    top_k: int,
    values: NDArray[Any],
    weights: NDArray[Any],
    values_scratch: NDArray[Any],
    weights_scratch: NDArray[Any],
    histogram: NDArray[Any],
) -> Any:
    """A key that at least `top_k` legal tokens reach: the k-th largest of the blocks' largest, if there are k."""
    count = np.int64(0)
    for block in range(blocks):
        if block_key[block] > KEY_LOWEST:
            values[count] = composite(block_key[block], block)
            count += 1
    if count < top_k:
        return np.int32(KEY_LOWEST + 1)
    return composite_key(select(values, weights, count, top_k, BY_COUNT, values_scratch, weights_scratch, histogram))


@helper
def highest_word(score: Any, largest: Any) -> Any:
    """The highest word of noise with which a scaled logit of at most `largest` may come to `score`.

    gumbel(word) <= -log((word + 1/2) / 2**32), so that takes word < 2**(32 - n) where `largest` is n * log(2) behind.
    The slack is far above the rounding of scores and noise.
    """
    behind = np.float64(score) - np.float64(largest)
    behind -= 0.01 + 1e-6 * abs(np.float64(score))
    bound = np.uint64(1) << np.uint64(32)
    if behind > 0.0:
        bound = max(bound >> np.uint64(min(behind / 0.69315, 32.0)), np.uint64(1))
    return np.uint32(bound - np.uint64(1))


@helper
def draw_wide(
    bits: NDArray[Any],
    base: int,
    shift: int,
    mask: NDArray[Any],
    vocabulary: int,
    block_key: NDArray[Any],
    inverse_temperature: float,
    maximum: float,
    last: int,
    least: int,
    lowest_key: int,
    seed: int,
    position: int,
    best_token: int,
    best: float,
    words: NDArray[Any],
) -> int:
    """The token of the best score among legal tokens up to composite `last` and of a weight of at least `least`.

    Their keys are at least `lowest_key`. The search starts from one candidate and its score.
    """
    for block in range((vocabulary + 31) >> 5):
        if block_key[block] < lowest_key:
            continue
        largest = scaled(block_key[block], inverse_temperature)
        if largest + NOISE_MAX < best:
            continue
        highest = highest_word(best, largest)
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
            token_key = read_key(bits, base + token, shift)
            if token_key < lowest_key or composite(token_key, token) > last:
                continue
            x = scaled(token_key, inverse_temperature)
            score = x + gumbel(word)
            better = score > best or (score == best and token < best_token)
            if better and (least == 0 or weight(x - maximum) >= least):
                best = score
                best_token = token
    return best_token
