"""Lark grammars with the longest match: what they match, against lark's own basic lexer."""

from __future__ import annotations

import functools
import logging
import random

import lark
import pytest
from earley import Earley
from hypothesis import assume, given
from hypothesis import strategies as st
from lark_grammars import C_LIKE, GRAMMARS
from sentences import Sentences, near

import stepmask

logging.getLogger("lark").setLevel(logging.CRITICAL)  # it warns of terminals with common strings

LONGEST = dict(GRAMMARS)
# Where a `/` ends is not settled by a `*` behind it, as long as there are comments and pointers.
LONGEST["c-like"] = (C_LIKE.replace("%ignore C_COMMENT", ""), GRAMMARS["c-like"][1])


def parses(known: lark.Lark, text: str) -> bool:
    try:
        known.parse(text)
    except lark.UnexpectedInput:
        return False
    return True


def longest(text: str, **options: object) -> Earley:
    grammar = stepmask.lark(text, lexer="longest", **options)  # type: ignore[arg-type]
    return Earley(grammar.rules, grammar.start)


@functools.cache
def loaded(name: str) -> tuple[lark.Lark, Earley, Sentences, str]:
    text, letters = LONGEST[name]
    plain = stepmask.lark(text)
    return lark.Lark(text, parser="lalr", lexer="basic"), longest(text), Sentences(plain.rules, plain.start), letters


@pytest.mark.parametrize("name", LONGEST)
@given(seed=st.integers(0, 2**32))
def test_grammars_that_people_use(name: str, seed: int) -> None:
    known, judge, sentences, letters = loaded(name)
    chance = random.Random(seed)
    text = sentences.text(chance)
    assume(len(text) < 200)
    for string in (text, near(text, chance, letters), near(text, chance, letters + " ")):
        assert judge.complete(string.encode()) == parses(known, string), string


TERMINALS = ['"a"', '"b"', '"ab"', "/a+/", "/[ab]/", "/a|ab/", "/b*?a/", "A", "B", '"A"i', "/a?b/", '"aa"', '"c"']
TERMINALS += ["/c[ab]*/", "/[ab]+/i", "C"]
OPERATORS = ["", "", "", "", "?", "*", "+", "~2", "~1..2", "~0..3", "~0"]
IGNORED = ["/c+/", '"c"', "/ +/", "/c.*?c/", "/#[^c]*/", '" "', "/[ c]/", "B"]


def expansions(terminals: list[str], groups: int) -> st.SearchStrategy[str]:
    atoms = [st.sampled_from(terminals), st.sampled_from(["start", "x", "y"])]
    if groups:
        inner = expansions(terminals, groups - 1)
        atoms += [inner.map("({})".format), inner.map("[{}]".format)]
    items = st.tuples(st.one_of(atoms), st.sampled_from(OPERATORS)).map("".join)
    return st.lists(st.lists(items, max_size=3).map(" ".join), min_size=1, max_size=3).map(" | ".join)


@st.composite
def random_grammars(draw: st.DrawFn) -> str:
    terminals = draw(st.lists(st.sampled_from(TERMINALS), min_size=1, max_size=4))
    rules = [f"{name}: {draw(expansions(terminals, name == 'start'))}" for name in ("start", "x", "y")]
    rules.append("A: " + draw(st.sampled_from(['"a"', '"a" "b"?', '("a"|"ab")', "/[^b c]/", '"a".."b"', '"a"~2'])))
    rules += ['B.3: "b"+', "C.-1: /[abc]+/"]
    rules += [f"%ignore {ignored}" for ignored in draw(st.lists(st.sampled_from(IGNORED), max_size=2))]
    return "\n".join(rules) + "\n"


@given(random_grammars(), st.lists(st.text("aabbc A#", max_size=7), min_size=30, max_size=30))
def test_random_grammars(text: str, strings: list[str]) -> None:
    try:
        known = lark.Lark(text, parser="earley", lexer="basic")  # LALR would refuse most of them
    except lark.GrammarError as error:
        assert "Rules defined twice" in str(error)
        return
    try:
        judge = longest(text)
    except stepmask.GrammarUnsupported as error:
        assert "more than the character behind it decides" in error.message
        return
    for string in strings:
        try:
            expected = parses(known, string)
        except RuntimeError:  # an ambiguity that lark gives up at
            continue
        assert judge.complete(string.encode()) == expected, (text, string)


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        # Keywords come before names, and names take all their letters.
        ('start: "if" N | N "=" N\nN: /[a-z]+/\n%ignore " "', ["if x", "iff = x"], ["ifx", "if = x", "x = if"]),
        ('start: "<" "=" | "<=" "!"\n', ["<=!"], ["<="]),
        ('start: (NUMBER | "." | NAME)+\nNUMBER: /[0-9]+/\nNAME: /[a-z]+/', ["1.a", "a1"], ["_"]),
        ("start: A B\nA.2: /a+/\nB: /[ab]+/", ["ab", "aab"], ["aa", "ba"]),
        # Where a string has another priority, or the pattern lacks its flag, it is tried for itself.
        ('start: IF | NAME "!"\nIF.1: "if"\nNAME: /[a-z]+/', ["if", "x!"], ["if!"]),
        ('start: IF x\nx: NAME\nIF.1: "if"\nNAME: /[a-z]+/', ["ifx"], ["if"]),
        ('start: "IF"i "!" | NAME\nNAME: /[a-z]+/', ["IF!", "x", "if"], ["if!"]),
        ('start: ("a" "b")~3..1000 "c"', ["ababab" + "c", "ab" * 50 + "c"], ["ababc"]),
        ('start: (A A)~1..3 "!"\nA: /a/\n%ignore " "', ["aa!", "a a a a!"], ["aaa!"]),
    ],
)  # fmt: skip
def test_the_longest_match(text: str, yes: list[str], no: list[str]) -> None:
    judge, known = longest(text), lark.Lark(text, parser="earley", lexer="basic")
    for string in yes:
        assert judge.complete(string.encode()) and parses(known, string), string
    for string in no:
        assert not judge.complete(string.encode()) and not parses(known, string), string


def test_a_token_ends_the_one_before() -> None:
    judge = longest('start: NAME END NAME\nNAME: /[a-z]+/\n%declare END\n%ignore " "', tokens={"END": 7})
    end = judge.tokens[7]
    assert judge.complete([*b"ab", end, *b"c"])
    assert judge.complete([*b"ab ", end, *b" c"])
    assert not judge.complete([*b"ab", end])


@pytest.mark.parametrize(
    ("text", "name", "place"),
    [
        (C_LIKE, "SLASH", "line 13:22"),
        ('start: (NUMBER | "." | NAME)+\nNUMBER: /[0-9]+(\\.[0-9]+)?/\nNAME: /[a-z]+/', "NUMBER", "line 2:10"),
        ('start: ("a" | "abc" | "b")+', "A", "line 1:10"),
    ],
)  # fmt: skip
def test_what_one_character_does_not_settle_is_refused(text: str, name: str, place: str) -> None:
    with pytest.raises(stepmask.GrammarUnsupported, match=f"decides where the terminal {name} ends") as caught:
        stepmask.lark(text, lexer="longest")
    assert caught.value.place == place


def test_too_many_turns_to_tell_apart_are_refused() -> None:
    text = 'start: (A | "!")~0..200\nA: /a+/\n'
    with pytest.raises(stepmask.GrammarTooLarge, match="turns of this repeat") as caught:
        stepmask.lark(text, lexer="longest")
    assert caught.value.place == "line 1:17"
