"""The normal form of expressions."""

from __future__ import annotations

import itertools

import pytest

from stepmask.grammar.expression import (
    EMPTY,
    NOTHING,
    Alternation,
    Bytes,
    Characters,
    Expression,
    Repeat,
    Sequence,
)
from stepmask.grammar.limits import Limits
from stepmask.grammar.simplify import Simplifier, joined_bounds

A, B = Bytes(b"a"), Bytes(b"b")
DIGIT = Characters(((48, 57),))
NULLABLE = Sequence((Repeat(A, 0, 1), Repeat(B, 0, 1)))


@pytest.mark.parametrize(
    ("node", "simple"),
    [
        (Sequence((A, Sequence((B, EMPTY)), DIGIT, A, A)), Sequence((Bytes(b"ab"), DIGIT, Bytes(b"aa")))),
        (Sequence((A, NOTHING)), NOTHING),
        (Sequence(()), EMPTY),
        (Alternation((A, NOTHING, Alternation((B, A)))), Alternation((A, B))),
        (Alternation((Sequence((A,)), A)), A),
        (Characters(((97, 97),)), A),
        (Characters(((48, 50), (51, 57))), DIGIT),
        (Repeat(A, 1, 1), A),
        (Repeat(A, 0, 0), EMPTY),
        (Repeat(NOTHING, 0, None), EMPTY),
        (Repeat(NOTHING, 2, None), NOTHING),
        (Repeat(Repeat(DIGIT, 0, None), 3, 5), Repeat(DIGIT, 0, None)),
        (Repeat(Repeat(DIGIT, 0, 100), 0, 100), Repeat(DIGIT, 0, 10_000)),
        (Repeat(Repeat(DIGIT, 2, 3), 4, 5), Repeat(DIGIT, 8, 15)),
        (Repeat(Repeat(DIGIT, 3, 3), 4, 5), Repeat(Repeat(DIGIT, 3, 3), 4, 5)),
        (Repeat(NULLABLE, 3, 9), Repeat(NULLABLE, 0, 9)),
    ],
)
def test_normal_form(node: Expression, simple: Expression) -> None:
    assert Simplifier({}, Limits()).simplify(node) == simple


def test_nested_bounds_join_exactly_where_their_intervals_touch() -> None:
    highest = 60  # beyond every finite sum below

    def counts(bounds: tuple[int, int | None]) -> set[int]:
        return set(range(bounds[0], (highest if bounds[1] is None else bounds[1]) + 1))

    ends: list[int | None] = [None, 0, 1, 2, 3, 4]
    every = [(low, high) for low, high in itertools.product(range(4), ends) if high is None or high >= low]
    for inner, outer in itertools.product(every, every):
        if inner[1] == 0:
            continue  # the empty string: simplified before
        reached: set[int] = set()
        for times in counts(outer):
            top = highest if inner[1] is None and times else times * (inner[1] or 0)
            reached |= set(range(times * inner[0], min(top, highest) + 1))
        joined = joined_bounds(inner, outer)
        contiguous = reached == set(range(min(reached), max(reached) + 1))
        assert (joined is not None) == contiguous
        if joined is not None:
            assert {count for count in counts(joined) if count <= highest} == reached
