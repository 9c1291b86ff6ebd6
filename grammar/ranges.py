"""Algebra on sets of code points, kept as `Ranges`: inclusive, sorted, disjoint, not touching, no surrogates."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from .expression import Ranges

_LAST = 0x10FFFF


def normalise(pairs: Iterable[tuple[int, int]]) -> Ranges:
    """Ranges from (first, last) pairs in any order that may overlap or hold surrogates; empty pairs are dropped."""
    result: list[tuple[int, int]] = []
    current_first, current_last = -2, -2
    for first, last in sorted(pairs):
        if first > last:
            continue
        if first <= current_last + 1 and result:
            if last > current_last:
                current_last = last
                result[-1] = (current_first, last)
        else:
            current_first, current_last = first, last
            result.append((first, last))
    if any(last >= 0xD800 and first <= 0xDFFF for first, last in result):
        return _without_surrogates(result)
    return tuple(result)


def _without_surrogates(pairs: Iterable[tuple[int, int]]) -> Ranges:
    result: list[tuple[int, int]] = []
    for first, last in pairs:
        if last < 0xD800 or first > 0xDFFF:
            result.append((first, last))
            continue
        if first < 0xD800:
            result.append((first, 0xD7FF))
        if last > 0xDFFF:
            result.append((0xE000, last))
    return tuple(result)


def union(*operands: Ranges) -> Ranges:
    """Code points in any of the operands."""
    filled = [ranges for ranges in operands if ranges]
    if len(filled) == 1:
        return filled[0]
    return normalise(pair for ranges in filled for pair in ranges)


def negate(ranges: Ranges) -> Ranges:
    """All code points, surrogates aside, that are not in `ranges`."""
    result: list[tuple[int, int]] = []
    start = 0
    for first, last in ranges:
        if first > start:
            result.append((start, first - 1))
        start = last + 1
    if start <= _LAST:
        result.append((start, _LAST))
    return _without_surrogates(result)


def intersect(left: Ranges, right: Ranges) -> Ranges:
    """Code points in both."""
    result: list[tuple[int, int]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        first = max(left[i][0], right[j][0])
        last = min(left[i][1], right[j][1])
        if first <= last:
            result.append((first, last))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return tuple(result)


def subtract(left: Ranges, right: Ranges) -> Ranges:
    """Code points in `left` and not in `right`."""
    return intersect(left, negate(right))


def contains(ranges: Ranges, code_point: int) -> bool:
    """Whether `code_point` is in `ranges`."""
    i = bisect_right(ranges, (code_point, _LAST)) - 1
    return i >= 0 and code_point <= ranges[i][1]


def size(ranges: Ranges) -> int:
    """How many code points there are in `ranges`."""
    return sum(last - first + 1 for first, last in ranges)
