"""Expressions to position automata: how large they are, and how they begin."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import expression_matches

from stepmask.grammar import build
from stepmask.grammar.build import build_positions, closed_positions
from stepmask.grammar.determinize import determinize
from stepmask.grammar.errors import GrammarTooLarge
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
from stepmask.grammar.product import intersection
from stepmask.grammar.remembered import Remembered


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


class Products:
    """The states of all products, as they are made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.states: list[int] = []
        monkeypatch.setattr(build, "intersection", self)
        monkeypatch.setattr(build, "REMEMBERED", Remembered(100, 1 << 20))

    def __call__(self, *arguments: Any) -> PositionAutomaton:
        result = intersection(*arguments)
        self.states.append(result.n_states)
        return result


def found_somewhere(text: bytes) -> Expression:
    return Sequence((Repeat(LETTER, 0, None), Bytes(text), Repeat(LETTER, 0, None)))


LETTER = Characters(((97, 122),))
WORDS = (b"ab", b"bc", b"ca", b"dd", b"ed")


@pytest.mark.parametrize("first", [True, False])
def test_what_counts_far_is_met_last(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound of the length multiplies all that it is met with, wherever it stands among the conditions."""
    made = Products(monkeypatch)
    far = Repeat(LETTER, 0, 300)
    operands = [found_somewhere(word) for word in WORDS]
    operands.insert(0 if first else len(operands), far)
    result = closed_positions(Intersection(tuple(operands)), Limits())
    assert len(made.states) == len(WORDS)
    assert made.states[-1] == result.n_states > 10_000
    assert sum(made.states[:-1]) < 500


def test_where_the_smallest_two_pass_a_limit_their_own_order_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Products(monkeypatch)
    long = Alternation(tuple(Bytes(bytes((97 + i, 97 + j)) * 12) for i in range(3) for j in range(3)))
    counts = [Repeat(Repeat(LETTER, k, k), 0, None) for k in (29, 31)]
    language = Intersection((counts[0], long, counts[1]))
    with pytest.raises(GrammarTooLarge):
        closed_positions(Intersection(tuple(counts)), Limits(max_product_states=800))
    result = closed_positions(language, Limits(max_product_states=800))
    assert result.is_empty
    assert closed_positions(language, Limits()).is_empty
    assert made.states
    pair = Intersection((*counts, long))
    with pytest.raises(GrammarTooLarge):
        closed_positions(pair, Limits(max_product_states=800))


def test_equal_languages_are_made_once() -> None:
    def language() -> Expression:
        return Intersection((Repeat(Characters(((97, 99),)), 1, 7), Complement(Bytes(b"abcabca"))))

    first = closed_positions(language(), Limits())
    assert closed_positions(language(), Limits()) is first
    assert closed_positions(language(), Limits(max_product_states=199_999)) is not first
    with pytest.raises(GrammarTooLarge):
        closed_positions(language(), Limits(max_product_states=5))


@settings(deadline=None)
@given(st.lists(st.deferred(lambda: LANGUAGES), min_size=3, max_size=5))
def test_many_operands(operands: list[Expression]) -> None:
    """In whatever order they are met, the strings are those of all."""
    language = Intersection(tuple(operands))
    node, limits = language, Limits()
    parts = [closed_positions(operand, limits) for operand in operands]
    found = [build._met(parts, limits, node, smallest_first=flag) for flag in (True, False)]
    for length in range(6):
        for text in map(bytes, itertools.product(b"ab", repeat=length)):
            wanted = all(expression_matches(operand, text) for operand in operands)
            assert [matches(positions, text) for positions in found] == [wanted, wanted]


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
            low, high = dfa.edge_low[begin:end].tolist(), dfa.edge_high[begin:end].tolist()
            assert all(map(int.__le__, low, high)) and all(map(int.__lt__, high, low[1:]))
        tables.append((dfa.delta.tolist(), dfa.final.tolist()))
    assert tables[0] == tables[1] == tables[2]
