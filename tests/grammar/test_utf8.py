"""Code point sets as byte automata, against Python's own encoder."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from stepmask.grammar.expression import ALL_CODE_POINTS, Ranges
from stepmask.grammar.utf8 import Fragment, coalesce, count_code_points, fragment

#: Where the length of an encoding or its lead byte's rules change, and their neighbours.
EDGES = [0x7F, 0x7FF, 0x800, 0xFFF, 0x1000, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x3FFFF, 0x40000, 0x10FFFF, 0x61, 0xE9]
code_points = st.one_of(st.sampled_from(EDGES), st.integers(0, 0xD7FF), st.integers(0xE000, 0x10FFFF))
ranges_lists = st.lists(st.tuples(code_points, code_points).map(lambda pair: (min(pair), max(pair))), max_size=8)


def run(part: Fragment, data: bytes) -> bool:
    state = 0
    for byte in data:
        targets = [target for source, low, high, target in part.edges if source == state and low <= byte <= high]
        assert len(targets) <= 1  # deterministic
        if not targets:
            return False
        state = targets[0]
    return state == 1


@given(ranges_lists, st.lists(code_points, max_size=10))
def test_a_fragment_takes_exactly_its_code_points(pairs: list[tuple[int, int]], others: list[int]) -> None:
    ranges = coalesce(pairs)
    part = fragment(ranges)
    ends = [end for pair in ranges for end in pair]
    for code_point in {*others, *EDGES, *ends, *(end + step for end in ends for step in (-1, 1))}:
        if 0 <= code_point <= 0x10FFFF and not 0xD800 <= code_point <= 0xDFFF:
            wanted = any(low <= code_point <= high for low, high in ranges)
            assert run(part, chr(code_point).encode()) == wanted


def test_surrogates_and_overlong_forms_are_never_taken() -> None:
    part = fragment(ALL_CODE_POINTS)
    surrogates, overlong = [b"\xed\xa0\x80", b"\xed\xbf\xbf"], [b"\xc0\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80"]
    for data in (*surrogates, *overlong, b"\xf4\x90\x80\x80"):
        assert not run(part, data)
    assert part.n_states == 9  # minimal: start, end, 1 to 3 more bytes, and behind E0, ED, F0 and F4


@given(ranges_lists)
def test_coalescing_keeps_the_code_points(pairs: list[tuple[int, int]]) -> None:
    ranges: Ranges = coalesce(pairs)
    assert all(before[1] + 1 < after[0] for before, after in itertools.pairwise(ranges))
    assert not any(low <= 0xDFFF and high >= 0xD800 for low, high in ranges)
    edges = sorted({cut for low, high in pairs for cut in (low, high + 1)} | {0xD800, 0xE000})
    inside = [
        low for low in edges if any(first <= low <= last for first, last in pairs) and not 0xD800 <= low <= 0xDFFF
    ]
    assert all(any(low <= point <= high for low, high in ranges) for point in inside)
    assert count_code_points(coalesce([*pairs, *pairs])) == count_code_points(ranges)
