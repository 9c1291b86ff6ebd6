"""What may follow a text and which rules are open there: against Earley's oracle, and rules as they are written."""

from __future__ import annotations

import pytest
from bnf_texts import random_rules
from earley import Earley
from hypothesis import given
from hypothesis import strategies as st

import stepmask
from stepmask.grammar.explain import Expected, expected_at, token_names, token_text
from stepmask.grammar.expression import Expression, Grammar

EVERYTHING = range(256)


def followers(grammar: Grammar, text: bytes) -> set[int]:
    """The bytes that some construct is said to begin with after a text."""
    return {byte for byte in EVERYTHING if expected_at(grammar, text, [byte])}


def live_bytes(grammar: Grammar, text: bytes) -> set[int]:
    """The same by the oracle."""
    oracle = Earley(grammar.rules, grammar.start)
    state = oracle.read(oracle.start(), text)
    return set() if state is None else {symbol for symbol in oracle.live_symbols(state) if symbol < 256}


@given(random_rules, st.lists(st.integers(0, 9), max_size=4))
def test_whatever_keeps_a_random_text_alive_is_explained(rules: dict[str, Expression], choices: list[int]) -> None:
    grammar = Grammar("gbnf", "", rules, "root")
    text = b""
    for choice in choices:
        live = sorted(live_bytes(grammar, text))
        if not live:
            break
        text += bytes([live[choice % len(live)]])
    # Rules that match nothing at all expect things that lead nowhere, so there may be more.
    assert live_bytes(grammar, text) <= followers(grammar, text)


@pytest.mark.parametrize(
    ("grammar", "texts"),
    [
        (stepmask.regex(r"[0-9]{4}-(ab|ac)+"), ["", "12", "1234", "1234-a", "1234-aba"]),
        (stepmask.regex(r"(?!ab)[a-c]{2,3}$"), ["", "a", "aa", "aaa"]),
        (stepmask.regex("é{2,}|ж[а-ю]"), ["", "é", "ж"]),
        (stepmask.regex("(a{1,3}b?){2}"), ["", "a", "aab", "aaa", "abaaa"]),
        (stepmask.choice(["red", "rose", "blue"]), ["", "r", "ro", "red"]),
        (stepmask.json_value(), ["", "[", '{"a', '{"a":', "[1, -", '"\\u00']),
        (stepmask.gbnf('root ::= root root | "a" | "" | other\nother ::= other'), ["", "a", "aaa"]),
        (stepmask.gbnf('root ::= ("" | "a")* "b"'), ["", "a", "aab"]),
        (stepmask.lark('start: "[" (start ",")* "]"\n%ignore " "'), ["", " [", "[[ ]"]),
        (stepmask.lark('start: (A | B)+\nA: /a(?!bb)[a-z]{2}/\nB: /ab?c/'), ["", "a", "ab", "abc"]),
        (stepmask.lark('start: (NAME | "if")+\nNAME: /[a-z]+/\n%ignore " "', lexer="longest"), ["", "i", "if", "if "]),
    ],
    ids=str,
)  # fmt: skip
def test_every_kind_of_construct_is_read(grammar: Grammar, texts: list[str]) -> None:
    for text in texts:
        by_bytes = stepmask.compile(grammar, BYTES).matcher()
        assert by_bytes.accept_bytes(text.encode())
        allowed = {byte for byte in EVERYTHING if by_bytes.allows(byte)}
        assert followers(grammar, text.encode()) == allowed


BYTES = stepmask.Vocabulary.from_bytes([*(bytes([byte]) for byte in EVERYTHING), b""], eos=[256], special=[256])


def test_rules_are_told_from_the_outermost_with_their_beginnings() -> None:
    grammar = stepmask.gbnf('root ::= "x" list\nlist ::= "(" (root ",")* ")"')
    found = expected_at(grammar, b"x(x(),", EVERYTHING)
    assert found == [
        Expected('"x"', "line 1:10", (("root", 0), ("list", 1), ("root", 6))),
        Expected('")"', "line 2:26", (("root", 0), ("list", 1))),
    ]
    assert expected_at(grammar, b"x(x(),", b")") == found[1:]
    assert expected_at(grammar, b"x(x()x", EVERYTHING) == []


def test_left_recursion_is_told_once() -> None:
    found = expected_at(stepmask.gbnf('root ::= root "+" item | item\nitem ::= "1"'), b"1+1", EVERYTHING)
    assert found == [Expected('"+"', "line 1:15", (("root", 0),))]


def test_constructs_without_a_place_are_written_out() -> None:
    found = expected_at(stepmask.json_value(), b'"\\', EVERYTHING)
    assert found is not None
    assert sorted(one.what for one in found) == ["'u'", '["/\\\\b...]']
    assert {one.place for one in found} == {None}


def test_special_tokens_are_symbols() -> None:
    grammar = stepmask.gbnf('root ::= "a" <|eot|> <[7]> "b"')
    assert token_names(grammar) in (["<|eot|>", 7], [7, "<|eot|>"])
    assert [token_text(name) for name in ("<|eot|>", 7)] == ["<|eot|>", "<[7]>"]
    assert [one.what for one in expected_at(grammar, [97], ["<|eot|>"]) or []] == ["<|eot|>"]
    assert [one.what for one in expected_at(grammar, [97, "<|eot|>", "<[7]>"], EVERYTHING) or []] == ['"b"']
    assert expected_at(grammar, [97, "<[7]>"], EVERYTHING) == []
    assert expected_at(grammar, b"a", EVERYTHING) == []


def test_too_much_work_is_given_up() -> None:
    grammar = stepmask.gbnf('root ::= root root root | root root | "a"')
    assert expected_at(grammar, b"a" * 10, EVERYTHING)
    assert expected_at(grammar, b"a" * 40, EVERYTHING, max_items=2000) is None
