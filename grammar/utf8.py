"""Sets of code points as minimal byte automata (UTF-8 as RFC 3629 has it: no surrogates, no overlong forms)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from .expression import Ranges

_LAST = 0x10FFFF
#: (first code point, last, lead byte of code point 0 of that length, code points under one lead byte).
_LENGTHS = ((0x80, 0x7FF, 0xC0, 1 << 6), (0x800, 0xFFFF, 0xE0, 1 << 12), (0x10000, _LAST, 0xF0, 1 << 18))


@dataclass(frozen=True)
class Fragment:
    """A deterministic automaton of one code point: state 0 is its start, state 1 its only final state.

    `edges` are (state, lowest byte, highest byte, target), sorted by state within a level of the UTF-8
    sequence; the automaton is minimal, as equal rests of a sequence share a state.
    """

    n_states: int
    edges: tuple[tuple[int, int, int, int], ...]


def coalesce(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Sorted, disjoint, non-adjacent ranges of the same code points, without surrogates."""
    result: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        low, high = max(low, 0), min(high, _LAST)
        if low > high:
            continue
        if result and low <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(result[-1][1], high))
        else:
            result.append((low, high))
    if not any(low <= 0xDFFF and high >= 0xD800 for low, high in result):
        return tuple(result)
    cut: list[tuple[int, int]] = []
    for low, high in result:
        if low < 0xD800:
            cut.append((low, min(high, 0xD7FF)))
        if high > 0xDFFF:
            cut.append((max(low, 0xE000), high))
    return tuple(cut)


@lru_cache(maxsize=512)
def count_code_points(ranges: Ranges) -> int:
    """How many code points `ranges` (disjoint) holds."""
    return sum(high - low + 1 for low, high in ranges)


def _split(ranges: Iterable[tuple[int, int]], size: int) -> list[tuple[int, int, Ranges]]:
    """Cut `ranges` into blocks of `size`: (first block, last block, ranges within each of these blocks)."""
    pieces: list[tuple[int, int, list[tuple[int, int]]]] = []

    def add(first: int, last: int, low: int, high: int) -> None:
        if pieces and pieces[-1][0] == first == last == pieces[-1][1]:
            pieces[-1][2].append((low, high))
        else:
            pieces.append((first, last, [(low, high)]))

    for low, high in ranges:
        first, low_rest = divmod(low, size)
        last, high_rest = divmod(high, size)
        if first == last:
            add(first, last, low_rest, high_rest)
            continue
        if low_rest:
            add(first, first, low_rest, size - 1)
            first += 1
        whole_last = last if high_rest == size - 1 else last - 1
        if first <= whole_last:
            add(first, whole_last, 0, size - 1)
        if whole_last < last:
            add(last, last, 0, high_rest)
    return [(first, last, tuple(within)) for first, last, within in pieces]


@lru_cache(maxsize=512)
def fragment(ranges: Ranges) -> Fragment:
    """The minimal automaton of the UTF-8 encodings of the code points in `ranges`."""
    ranges = coalesce(ranges)
    edges: list[tuple[int, int, int, int]] = []
    known: dict[tuple[int, Ranges], int] = {(1, ((0, 0),)): 1}
    pending: list[tuple[int, int, Ranges]] = []

    def state(size: int, rest: Ranges) -> int:
        found = known.get((size, rest))
        if found is None:
            found = known[size, rest] = len(known) + 1
            pending.append((found, size, rest))
        return found

    def expand(source: int, size: int, base: int, rest: Iterable[tuple[int, int]]) -> None:
        for first, last, within in _split(rest, size):
            target = state(size, within)
            if edges and edges[-1][0] == source and edges[-1][2] == base + first - 1 and edges[-1][3] == target:
                edges[-1] = (source, edges[-1][1], base + last, target)
            else:
                edges.append((source, base + first, base + last, target))

    expand(0, 1, 0, [(low, min(high, 0x7F)) for low, high in ranges if low <= 0x7F])
    for lowest, highest, lead, size in _LENGTHS:
        clipped = [(max(low, lowest), min(high, highest)) for low, high in ranges if low <= highest and high >= lowest]
        expand(0, size, lead, clipped)
    for source, size, rest in pending:  # grows while it is read
        expand(source, size >> 6, 0x80, rest)
    return Fragment(len(known) + 1, tuple(edges))
