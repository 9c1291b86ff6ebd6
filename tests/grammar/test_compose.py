"""A grammar within another: names kept apart, anchors and lookaheads confined to the part's own text."""

from __future__ import annotations

import itertools
import re

import pytest
from earley import Earley
from hypothesis import given
from hypothesis import strategies as st
from mask_sets import byte_vocabulary

from stepmask.grammar.choice import choice
from stepmask.grammar.compose import embed
from stepmask.grammar.errors import GrammarUnsatisfiable, GrammarUnsupported
from stepmask.grammar.expression import (
    EMPTY,
    Alternation,
    Bytes,
    Complement,
    Expression,
    Grammar,
    Intersection,
    Lookahead,
    Reference,
    Repeat,
    Sequence,
    Source,
    StartAnchor,
    Token,
)
from stepmask.grammar.regex import regex
from stepmask.masks.compiled import compile

VOCABULARY = byte_vocabulary()
NESTED = {
    "start": Sequence((Bytes(b"("), Repeat(Reference("start"), 0, None), Bytes(b")"))),
    "unused": Reference("start"),
}


def around(*grammars: Grammar, between: bytes = b"") -> Grammar:
    """The grammars one after the other, each behind `between`."""
    rules: dict[str, Expression] = {}
    parts: list[Expression] = []
    for number, grammar in enumerate(grammars):
        more, start = embed(grammar, f"part{number}")
        assert rules.keys().isdisjoint(more)
        rules |= more
        parts += [Bytes(between), Reference(start)]
    return Grammar("test", "", {"start": Sequence(tuple(parts)), **rules})


def test_rules_are_renamed_and_the_unused_left_out() -> None:
    rules, start = embed(Grammar("test", "", NESTED), "a")
    assert start == "a.start"
    assert rules == {"a.start": Sequence((Bytes(b"("), Repeat(Reference("a.start"), 0, None), Bytes(b")")))}


def test_equal_names_do_not_meet() -> None:
    first = Grammar("test", "", {"start": Sequence((Reference("x"), Reference("x"))), "x": Bytes(b"1")})
    second = Grammar("test", "", {"start": Reference("x"), "x": Bytes(b"2")})
    oracle = Earley((both := around(first, second)).rules, both.start)
    assert oracle.complete(b"112")
    assert not oracle.complete(b"111") and not oracle.complete(b"222")


def test_references_within_every_kind_of_node_are_renamed() -> None:
    inner = Reference("x")
    start = Alternation((Intersection((inner, Complement(inner))), Sequence((inner, Repeat(inner, 0, 2)))))
    rules, _ = embed(Grammar("test", "", {"start": start, "x": Bytes(b"1")}), "p")
    renamed = Reference("p.x")
    expected = Alternation((Intersection((renamed, Complement(renamed))), Sequence((renamed, Repeat(renamed, 0, 2)))))
    assert rules == {"p.start": expected, "p.x": Bytes(b"1")}


def test_what_needs_no_change_is_kept() -> None:
    grammar = choice([f"option {number}" for number in range(1000)])
    assert embed(grammar, "p")[0]["p.start"] is grammar.rules["start"]


def test_deep_expressions() -> None:
    node: Expression = Reference("x")
    for _ in range(20_000):
        node = Sequence((Bytes(b"("), node))
    rules, _ = embed(Grammar("test", "", {"start": node, "x": Bytes(b"1")}), "p")
    for _ in range(20_000):
        found = rules["p.start"]
        assert isinstance(found, Sequence)
        rules["p.start"] = found.parts[1]
    assert rules["p.start"] == Reference("p.x")


def test_a_missing_rule_is_left_to_the_compiler() -> None:
    rules, start = embed(Grammar("test", "", {"start": Reference("gone")}), "p")
    assert (rules, start) == ({"p.start": Reference("p.gone")}, "p.start")


@pytest.mark.parametrize(
    ("pattern", "plain"), [("^ab$", "ab"), ("(?:^a|^b$)c$", "(?:a|^b$)c"), ("^(?:a|b)$", "a|b"), ("^$", "")]
)
def test_anchors_at_the_edges_are_left_out(pattern: str, plain: str) -> None:
    rules, _ = embed(regex(pattern), "p")
    assert compiled_text(rules) == compiled_text(embed(regex(plain), "p")[0])


def compiled_text(rules: dict[str, Expression]) -> bytes:
    return compile(Grammar("test", "", rules, start="p.start"), VOCABULARY).automaton.buffer.tobytes()


PIECES = [
    "a",
    "b",
    "ab",
    "^",
    "$",
    "(?=a)",
    "(?!b)",
    "(?!.*b)",
    "(?=.*b)",
    "",
    "a*",
    "^a|b$",
    "a|b|^$",
    "(?=a$)",
    "(?=^a)",
]


@given(st.lists(st.sampled_from(PIECES), max_size=4), st.lists(st.sampled_from(PIECES), max_size=4), st.data())
def test_anchors_and_lookaheads_see_the_part_only(first: list[str], second: list[str], data: st.DataObject) -> None:
    patterns = ["".join(f"(?:{piece})" for piece in pieces) for pieces in (first, second)]
    try:
        compiled = compile(around(*map(regex, patterns), between=b","), VOCABULARY, use_cache=False)
    except GrammarUnsatisfiable:
        compiled = None
    for _ in range(8):
        texts = data.draw(st.tuples(st.text("ab", max_size=4), st.text("ab", max_size=4)))
        expected = all(re.fullmatch(pattern, text) for pattern, text in zip(patterns, texts, strict=True))
        if compiled is None:
            assert not expected
            continue
        matcher = compiled.matcher()
        got = matcher.accept_bytes("".join(f",{text}" for text in texts).encode()) and matcher.is_complete
        assert got == expected, (patterns, texts)


@pytest.mark.parametrize("first", ["a", "^", "$", "(?:^|b)", "(?:a|$)", "(?=a)", "(?!b)", "a*"])
def test_every_place_of_an_anchor(first: str) -> None:
    texts = ["".join(letters) for size in range(4) for letters in itertools.product("ab", repeat=size)]
    for more in itertools.product(["a", "b?", "^", "$", "(?=b)", "(?!a)"], repeat=2):
        pattern = first + "".join(more)
        fitting = {text for text in texts if re.fullmatch(pattern, text)}
        try:
            matcher = compile(around(regex("b"), regex(pattern), regex("a")), VOCABULARY, use_cache=False).matcher()
        except GrammarUnsatisfiable:
            assert not fitting
            continue
        for text in texts:
            matcher.reset()
            assert (matcher.accept_bytes(f"b{text}a".encode()) and matcher.is_complete) == (text in fitting)


def test_rules_with_anchors_are_put_into_one() -> None:
    grammar = Grammar(
        "test", "", {"start": Sequence((Reference("x"), Reference("y"))), "x": StartAnchor(), "y": Bytes(b"1")}
    )
    rules, _ = embed(grammar, "p")
    assert list(rules) == ["p.start"]
    compiled = compile(around(grammar, grammar), VOCABULARY)
    assert compiled.matcher().accept_bytes(b"11")


def test_anchors_that_are_confined_already_do_not_matter() -> None:
    terminal = Intersection((regex("a(?!b).").rules["start"],))
    grammar = Grammar("test", "", {"start": Sequence((terminal, Repeat(Reference("start"), 0, 1)))})
    rules, _ = embed(grammar, "p")
    assert rules["p.start"] == Sequence((terminal, Repeat(Reference("p.start"), 0, 1)))


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (
            Sequence((Lookahead(Bytes(b"a"), False, source=Source("(?=a)", "column 3")), Reference("start"))),
            "recursive",
        ),
        (Sequence((Token("<x>"), EMPTY, StartAnchor(source=Source("^", "column 3")))), "names tokens"),
    ],
)
def test_what_cannot_be_confined_is_refused(start: Expression, what: str) -> None:
    with pytest.raises(GrammarUnsupported, match=what) as caught:
        embed(Grammar("test", "", {"start": start}), "p")
    assert caught.value.place == "column 3"
