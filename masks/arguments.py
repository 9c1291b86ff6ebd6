"""Numbers that callers give: refused where they are none, or where they would be silently changed."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def whole(value: Any, what: str) -> int:
    """`value` as an int. Raises `TypeError` for what is no integer, as 1.0 and "1" are none."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be an integer, not {type(value).__name__}: {value!r:.60}") from None


def converted(values: Any, dtype: type[np.generic], what: str) -> NDArray[Any]:
    """`values` as an array of `dtype`. Raises `ValueError` where that would change integers or make some of text."""
    if np.dtype(dtype).kind not in "iu":
        return np.asarray(values, dtype)
    given = np.asarray(values) if hasattr(values, "dtype") else np.asarray(values, object)
    try:
        with np.errstate(invalid="ignore"):
            result = np.asarray(values, dtype)
    except (TypeError, ValueError, OverflowError):
        result = None
    if result is None or not np.array_equal(result, given):
        raise ValueError(f"{what} must be integers of {np.dtype(dtype)}, not {values!r:.60}")
    return result


def token_ids(values: Sequence[Any], what: str) -> list[int]:
    """Token ids as ints of 32 bits; -1, which no token has, where one is beyond that."""
    found = [whole(value, what) for value in values]
    return [token if 0 <= token < 2**31 else -1 for token in found]
