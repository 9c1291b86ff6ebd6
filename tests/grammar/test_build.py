"""Expressions to position automata: how large they are."""

from __future__ import annotations

import pytest

from stepmask.grammar.build import build_positions, closed_positions
from stepmask.grammar.expression import ANY_CHARACTER, Alternation, Bytes, Characters, Intersection, Repeat, Sequence
from stepmask.grammar.limits import Limits


def test_products_are_of_minimal_automata() -> None:
    # Many positions for few states: each option is the same.
    words = Alternation(tuple(Sequence((Characters(((97, 122),)), Bytes(b"-" * k), Bytes(b"b"))) for k in (1, 1, 1, 2)))
    words = Repeat(words, 1, None)
    counted = Repeat(ANY_CHARACTER, 0, 30)
    alone = closed_positions(words, Limits()).n_states
    product = closed_positions(Intersection((words, counted)), Limits())
    assert alone > 10 and product.n_states <= 5 * 31
    with_one = closed_positions(Intersection((words,)), Limits())
    assert with_one.n_states == alone


@pytest.mark.parametrize("maximum", [1, 4, 5, 30])
@pytest.mark.parametrize("minimum", [0, 1])
def test_repeats_have_a_position_for_each_copy(minimum: int, maximum: int) -> None:
    for body in (Characters(((97, 122),)), Sequence((Bytes(b"a"), Repeat(Bytes(b"b"), 0, 1)))):
        size = build_positions(body, Limits()).n_states - 1
        assert build_positions(Repeat(body, minimum, maximum), Limits()).n_states == maximum * size + 1
