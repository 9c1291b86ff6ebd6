"""Expressions to position automata: how large they are, and how they begin."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmask.grammar.build import build_positions, closed_positions
from stepmask.grammar.determinize import determinize
from stepmask.grammar.expression import (
    ANY_CHARACTER,
    Alternation,
    Bytes,
    Characters,
    Complement,
    Expression,
    Intersection,
    Repeat,
    Sequence,
)
from stepmask.grammar.limits import Limits
from stepmask.grammar.position import PositionAutomaton


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


BODIES = [Characters(((97, 98),)), Bytes(b"ab"), Alternation((Bytes(b"a"), Bytes(b"bb"))), Repeat(Bytes(b"b"), 2, 3)]
REPEATS = st.builds(Repeat, st.sampled_from(BODIES), st.sampled_from([0, 1, 2]), st.just(None))
LANGUAGES = st.recursive(
    REPEATS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda operands: Intersection(tuple(operands))),
        inner.map(Complement),
        st.lists(inner, min_size=2, max_size=2).map(lambda options: Alternation(tuple(options))),
    ),
    max_leaves=4,
)


def matches(positions: PositionAutomaton, text: bytes) -> bool:
    states = {0}
    for byte in text:
        states = {
            int(positions.target[e])
            for state in states
            for e in range(positions.edge_start[state], positions.edge_start[state + 1])
            if positions.low[e] <= byte <= positions.high[e]
        }
    return any(positions.final[state] for state in states)


@given(LANGUAGES)
def test_nothing_leads_to_the_start(language: Expression) -> None:
    """So the empty string may be left out, and others put before and after, without a look at the rest."""
    positions = closed_positions(language, Limits())
    assert not (positions.target == 0).any()
    others = positions.without_empty_string()
    assert not matches(others, b"")
    for length in range(1, 6):
        for text in map(bytes, itertools.product(b"ab", repeat=length)):
            assert matches(others, text) == matches(positions, text)


@pytest.mark.parametrize("after", [0, 3, 9])
def test_state_sets_may_be_many_more_than_positions(after: int) -> None:
    """An `a` that far from the end: a state for each of the last letters that were read, exactly."""
    letter = Characters(((97, 98),))
    parts = (Repeat(letter, 0, None), Bytes(b"a"), *(letter for _ in range(after)))
    positions = build_positions(Sequence(parts), Limits())
    states = 2 ** (after + 1)
    assert determinize(positions, 256, states - 1, 1_000_000) is None
    dfa = determinize(positions, 256, states + 2, 1_000_000)  # the sets of the first positions are others
    assert dfa is not None and dfa.n_states == states and positions.n_states < after + 5
    for text in itertools.product(b"ab", repeat=after + 2):
        state = 0
        for byte in text:
            state = int(dfa.delta[state, dfa.class_of[byte]])
        assert bool(dfa.final[state]) == (text[-after - 1] == ord("a"))


def test_edges_are_in_the_order_of_classes_whatever_the_order_of_options() -> None:
    words = [bytes((first, second)) for first in b"zmaqcx" for second in b"yab"]
    tables = []
    for order in (words, words[::-1], sorted(words)):
        dfa = determinize(build_positions(Alternation(tuple(map(Bytes, order))), Limits()), 256, 100, 10_000)
        assert dfa is not None
        for begin, end in itertools.pairwise(dfa.edge_start.tolist()):
            classes = dfa.edge_class[begin:end].tolist()
            assert classes == sorted(set(classes))
        tables.append((dfa.delta.tolist(), dfa.final.tolist()))
    assert tables[0] == tables[1] == tables[2]
