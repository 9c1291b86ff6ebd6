"""Choices: which strings, in which order, and what is refused."""

from __future__ import annotations

import pytest
from oracles import expression_matches

from stepmask.grammar.choice import choice
from stepmask.grammar.errors import GrammarSyntaxError, GrammarUnsatisfiable
from stepmask.grammar.expression import Alternation, Bytes


def test_matches_its_options_only() -> None:
    start = choice(["yes", "no", "y", "", "naïve", b"\xff"]).rules["start"]
    for text in ("yes", "no", "y", "", "naïve", b"\xff"):
        assert expression_matches(start, text)
    for text in ("ye", "yesno", " ", "naive", b"\xc3", b"\xfe"):
        assert not expression_matches(start, text)


def test_characters_are_literal() -> None:
    start = choice(["a.c|(", "[x]*"]).rules["start"]
    assert expression_matches(start, "a.c|(") and expression_matches(start, "[x]*")
    assert not expression_matches(start, "abc") and not expression_matches(start, "x")


def test_duplicates_go_and_the_order_stays() -> None:
    start = choice(["b", "a", "b", b"a", "c"]).rules["start"]
    assert start == Alternation((Bytes(b"b"), Bytes(b"a"), Bytes(b"c")))
    assert [option.source.place for option in start.options if option.source] == ["option 0", "option 1", "option 4"]
    assert choice(["b", "a", "b"]).rules == choice(["b", "a"]).rules


def test_takes_any_iterable_and_one_option() -> None:
    assert choice(text for text in ("x",)).rules["start"] == Bytes(b"x")
    assert choice(dict.fromkeys(["x", "y"])).rules == choice(["x", "y"]).rules


def test_no_options() -> None:
    with pytest.raises(GrammarUnsatisfiable, match="at least one option"):
        choice([])


@pytest.mark.parametrize("bad", [None, 7, ["a"], True])
def test_names_the_option_that_is_no_string(bad: object) -> None:
    with pytest.raises(TypeError, match=f"option 2 .*{type(bad).__name__}"):
        choice(["a", b"b", bad])  # type: ignore[list-item]


@pytest.mark.parametrize("bad", ["abc", b"abc"])
def test_one_string_is_no_list(bad: str | bytes) -> None:
    with pytest.raises(TypeError, match="not one"):
        choice(bad)


def test_lone_surrogate() -> None:
    with pytest.raises(GrammarSyntaxError, match="surrogate") as caught:
        choice(["a", "bc\ud800"])
    assert caught.value.place == "option 1, column 3"


def test_repr_is_short() -> None:
    assert len(repr(choice([f"option number {i}" for i in range(5000)]))) < 120
