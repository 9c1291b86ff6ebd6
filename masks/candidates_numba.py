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
from .scan_numba import highest_word, lowest_key_of, scan, top_k_key
from .tables import ALL_ENDS

_WAITING = np.uint8(PENDING)
_EVERY_END = np.uint32(ALL_ENDS)


@helper
def insert(values: NDArray[Any], count: Any, most: Any, value: Any) -> Any:
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
    base: Any,
    shift: Any,
    mask: NDArray[Any],
    vocabulary: Any,
    block_key: NDArray[Any],
    lowest: Any,
    most: Any,
    best: NDArray[Any],
) -> Any:
    """Write the first `most` composites of the mask's tokens in truncation order; how many. Keys reach `lowest`."""
    count: Any = np.int64(0)
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
    base: Any,
    shift: Any,
    mask: NDArray[Any],
    vocabulary: Any,
    block_key: NDArray[Any],
    inverse_temperature: Any,
    likely: Any,
    seed: Any,
    position: Any,
    words: NDArray[Any],
    most: Any,
    best: NDArray[Any],
) -> Any:
    """Write the composites of the `most` best scores in place of logits; how many.

    Blocks with a key of at least `likely` come first: with their scores known, few others can matter.
    """
    count: Any = np.int64(0)
    one: Any = ONE
    for turn in range(2):
        for block in range((vocabulary + 31) >> 5):
            if block_key[block] == KEY_LOWEST or (block_key[block] >= likely) != (turn == 0):
                continue
            highest = np.uint32(0xFFFFFFFF)
            if count == most:
                worst = scaled(composite_key(best[most - 1]), one)
                largest = scaled(block_key[block], inverse_temperature)
                if largest + NOISE_MAX < worst:
                    continue
                highest = highest_word(worst, largest)
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
                    score: Any = np.float32(scaled(key, inverse_temperature) + gumbel(word))
                    count = insert(best, count, most, composite(logit_key(score.view(np.int32)), token))
    return count


@helper
def measure(
    bits: NDArray[Any],
    base: Any,
    shift: Any,
    mask: NDArray[Any],
    vocabulary: Any,
    block_key: NDArray[Any],
    inverse_temperature: Any,
    best_key: Any,
    weigh: Any,
    count: Any,
    order: NDArray[Any],
    above_count: NDArray[Any],
    above_weight: NDArray[Any],
    keys: NDArray[Any],
    block_weights: NDArray[Any],
) -> Any:
    """For `count` ascending composites in `order`: tokens above each, and with `weigh` the sums of their weights.

    Returns the weight of all tokens of the mask, 0 without `weigh`.
    """
    for i in range(count):
        above_count[i] = 0
        above_weight[i] = 0
    total = np.int64(0)
    one: Any = np.int64(1)
    maximum = scaled(best_key, inverse_temperature)
    lowest = composite_key(order[count - 1])
    if weigh:
        lowest = min(lowest, lowest_key_of(one, best_key, inverse_temperature))
    for block in range((vocabulary + 31) >> 5):
        largest = block_key[block]
        if largest < lowest:
            continue
        word = mask[block]
        first = block << 5
        # Loops of a constant number of rounds without branches, which compilers turn into vector code.
        if first + 32 <= vocabulary:
            for j in range(32):
                key = read_key(bits, base + first + j, shift)
                keys[j] = key if (word >> np.uint32(j)) & np.uint32(1) else KEY_LOWEST
        else:
            for j in range(32):
                keys[j] = KEY_LOWEST
            for j in range(vocabulary - first):
                if (word >> np.uint32(j)) & np.uint32(1):
                    keys[j] = read_key(bits, base + first + j, shift)
        if weigh:
            own = np.int64(0)
            for j in range(32):
                value = weight(scaled(keys[j], inverse_temperature) - maximum)
                block_weights[j] = value if keys[j] > KEY_LOWEST else np.int64(0)
                own += block_weights[j]
            total += own
        for i in range(count):
            key = composite_key(order[i])
            token = np.int64(composite_token(order[i]))
            # Of equal keys those of lower ids are above.
            least = key if first < token else np.int32(key + 1)
            if largest < least:
                continue
            number = np.int64(0)
            mass = np.int64(0)
            if token >= first and token < first + 32:
                for j in range(32):
                    if keys[j] > key or (keys[j] == key and first + j < token):
                        number += 1
                        mass += block_weights[j]
            else:
                for j in range(32):
                    number += np.int64(1) if keys[j] >= least else np.int64(0)
                if weigh:
                    for j in range(32):
                        mass += block_weights[j] if keys[j] >= least else np.int64(0)
            above_count[i] += number
            above_weight[i] += mass
    return total


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
    block_keys: NDArray[Any],
    block_weights: NDArray[Any],
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
    first_mask: Any = np.int64(0)
    for i in range(rows.size):
        counts[i] = -1
        if status[i] != _WAITING:
            continue
        counts[i] = 0
        sampled[i] = -1
        if want_logprob[i]:
            continue
        base = origin + rows[i] * stride
        build_mask(first_mask, possible, end_tokens[end_start[i] : end_start[i + 1]], _EVERY_END, vocabulary, mask)
        best_key, best_token, legal = scan(bits, base, shift, mask, vocabulary, block_key)
        if best_token < 0:
            continue
        most: Any = min(np.int64(tokens.shape[1]), legal)
        greedy = not temperatures[i] >= TEMPERATURE_LOWEST
        inverse: Any = ONE if greedy else ONE / temperatures[i]
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
            token: Any = np.int64(composite_token(values[j]))
            key = read_key(bits, base + token, shift)
            tokens[i, j] = token
            xs[i, j] = scaled(key, inverse)
            insert(order, j, count, composite(key, token))
        if greedy or not (top_ks[i] > 0 or top_ps[i] < ONE or min_ps[i] > 0):
            continue
        weigh = top_ps[i] < ONE
        maximum = scaled(best_key, inverse)
        largests[i] = maximum
        total = measure(
            bits, base, shift, mask, vocabulary, block_key, inverse, best_key, weigh, count, order, weights,
            weights_scratch, block_keys, block_weights,
        )  # fmt: skip
        if weigh:
            possibles[i] = legal
            totals[i] = total
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
    "int32[::1], int64[::1], int32[::1], int32[:, ::1], float32[:, ::1], int32[:, ::1], int64[:, ::1], "
    "int64[:, ::1], int32[::1], int64[::1], float32[::1], int32[::1]"
)
#: One waiting row after another for float32 bits (shift 0) and bfloat16 bits (shift 16).
candidate_rows_32 = kernel(f"void(uint32[::1], {_ARGUMENTS})")(_candidate_rows)
candidate_rows_16 = kernel(f"void(uint16[::1], {_ARGUMENTS})")(_candidate_rows)
