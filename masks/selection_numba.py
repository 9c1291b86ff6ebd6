"""Exact selection in the truncation order without sorting: a radix descent on composites."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._numba import helper

_DIGIT_BITS = 11
#: Bins of one digit of the descent.
BINS = 1 << _DIGIT_BITS
_DIGIT = np.uint64(BINS - 1)
#: Few enough left to sort by insertion.
_FEW = 32
#: Result of `select` when the limit is not reached: every composite is at most this.
EVERYTHING = np.uint64(0xFFFFFFFFFFFFFFFF)
#: The unit of a limit. No literals: Numba compiles a function anew for each value of one.
BY_WEIGHT = np.uint8(0)
BY_COUNT = np.uint8(1)


@helper
def _sort(values: NDArray[Any], weights: NDArray[Any], count: int) -> None:
    for i in range(1, count):
        value = values[i]
        value_weight = weights[i]
        j = i - 1
        while j >= 0 and values[j] > value:
            values[j + 1] = values[j]
            weights[j + 1] = weights[j]
            j -= 1
        values[j + 1] = value
        weights[j + 1] = value_weight


@helper
def select(
    values: NDArray[Any],
    weights: NDArray[Any],
    count: int,
    limit: int,
    unit: int,
    values_scratch: NDArray[Any],
    weights_scratch: NDArray[Any],
    histogram: NDArray[Any],
) -> Any:
    """The first of distinct `values` in ascending order at which the running weight reaches `limit` (>= 1).

    `unit` says whose weight: `BY_WEIGHT` for `weights`, `BY_COUNT` for 1 each. `EVERYTHING` where the total is below
    the limit.
    """
    remaining = limit
    for i in range(count):
        values_scratch[i] = values[i]
        weights_scratch[i] = 1 if unit else weights[i]
    # The top digit holds sign, exponent and two bits of the fraction, later ones refine it. Ids are distinct, so
    # the last digit leaves one value.
    for shift in (53, 42, 31, 20, 9, 0):
        if count <= _FEW:
            break
        for i in range(BINS):
            histogram[i] = 0
        for i in range(count):
            histogram[np.int64((values_scratch[i] >> np.uint64(shift)) & _DIGIT)] += weights_scratch[i]
        chosen = 0
        while chosen < BINS and histogram[chosen] < remaining:
            remaining -= histogram[chosen]
            chosen += 1
        if chosen == BINS:
            return EVERYTHING
        kept = 0
        for i in range(count):
            if np.int64((values_scratch[i] >> np.uint64(shift)) & _DIGIT) == chosen:
                values_scratch[kept] = values_scratch[i]
                weights_scratch[kept] = weights_scratch[i]
                kept += 1
        count = kept
    _sort(values_scratch, weights_scratch, count)
    for i in range(count):
        remaining -= weights_scratch[i]
        if remaining <= 0:
            return values_scratch[i]
    return EVERYTHING


@helper
def keep_to(values: NDArray[Any], count: int, last: int) -> int:
    """Keep the values up to `last`, in place and in order; how many are left."""
    kept = 0
    for i in range(count):
        if values[i] <= last:
            values[kept] = values[i]
            kept += 1
    return kept
