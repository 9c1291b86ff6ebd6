"""Strings under constraints: their texts, decoded, are exactly the strings that satisfy the constraint."""

from __future__ import annotations

import json
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_spellings import any_spelling
from oracles import ReferenceMatcher

from stepmask.grammar.compile import compile_grammar
from stepmask.grammar.errors import GrammarSyntaxError, GrammarUnsupported
from stepmask.grammar.expression import (
    NOTHING,
    Alternation,
    Bytes,
    Characters,
    Expression,
    Grammar,
    Intersection,
    Reference,
    Repeat,
    Sequence,
    Source,
)
from stepmask.grammar.json_schema.escapes import Escapes, canonical_text
from stepmask.grammar.json_schema.patterns import accepts, pattern_content
from stepmask.grammar.json_schema.strings import StringConstraint, key_expression, string_content, string_expression
from stepmask.grammar.json_value import json_value
from stepmask.grammar.literals import literal_options
from stepmask.grammar.simplify import contains

LETTERS = 'aab1é😀"\\/\n\x01'
TEXTS = st.text(st.sampled_from(LETTERS), max_size=5)
#: Patterns that Python's `re` reads in the same way.
PATTERNS = [
    "a",
    "^a",
    "b\\Z",
    "^[ab]+\\Z",
    "^.{2}\\Z",
    "^(a|b1)*\\Z",
    "[^a]",
    "\\\\",
    '^[^"]*\\Z',
    "^(?!a)",
    "(?=.*1)b",
    "é|😀",
    "",
]


def in_ecma(pattern: str) -> str:
    return pattern.replace("\\Z", "$")


def constraints() -> st.SearchStrategy[StringConstraint]:
    some = st.frozensets(st.sampled_from(PATTERNS).map(in_ecma), max_size=2)
    formats = st.frozensets(st.sampled_from(["json-pointer", "ipv4"]), max_size=1)
    return st.builds(
        StringConstraint,
        min_length=st.integers(0, 3),
        max_length=st.one_of(st.none(), st.integers(0, 4)),
        patterns=some,
        not_patterns=some,
        formats=formats,
        not_formats=formats,
        allowed=st.one_of(st.none(), st.frozensets(TEXTS, max_size=4)),
        excluded=st.frozensets(TEXTS, max_size=2),
    )


def satisfies(constraint: StringConstraint, text: str) -> bool:
    def found(pattern: str) -> bool:
        return re.search(pattern.replace("$", r"\Z"), text) is not None

    def conforms(name: str) -> bool:
        if name == "json-pointer":
            return re.fullmatch(r"(?:/(?:[^~/]|~[01])*)*", text) is not None
        return re.fullmatch(r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}", text) is not None

    return (
        constraint.min_length <= len(text)
        and (constraint.max_length is None or len(text) <= constraint.max_length)
        and all(map(found, constraint.patterns))
        and not any(map(found, constraint.not_patterns))
        and all(map(conforms, constraint.formats))
        and not any(map(conforms, constraint.not_formats))
        and (constraint.allowed is None or text in constraint.allowed)
        and text not in constraint.excluded
    )


@given(
    constraints(),
    st.lists(TEXTS, min_size=1, max_size=8),
    st.sampled_from(["canonical", "any"]),
    st.booleans(),
    st.randoms(),
)
def test_exactly_the_strings_that_satisfy_it(
    constraint: StringConstraint,
    texts: list[str],
    escapes: Escapes,
    unicode_escapes: bool,
    chance: random.Random,
) -> None:
    expression = string_expression(constraint, escapes=escapes, allow_unicode_escapes=unicode_escapes)
    for text in [*texts, *sorted(constraint.allowed or ())]:
        writable = unicode_escapes or "\x01" not in text
        wanted = satisfies(constraint, text) and writable
        found = expression is not None and accepts(expression, canonical_text(text).decode())
        assert found == wanted, text
        if writable and (escapes == "any" or constraint.is_spelled_freely):
            written = any_spelling(text, chance, unicode_escapes=unicode_escapes)
            assert (expression is not None and accepts(expression, f'"{written}"')) == wanted, written
    if constraint.allowed is None or unicode_escapes:
        content = string_content(constraint)
        for text in texts:
            assert (content != NOTHING and accepts(content, text)) == satisfies(constraint, text)


@given(constraints(), st.text(st.sampled_from('ab1\\"un/0d8\n'), max_size=6), st.sampled_from(["canonical", "any"]))
def test_what_is_taken_is_json(constraint: StringConstraint, inner: str, escapes: Escapes) -> None:
    expression = string_expression(constraint, escapes=escapes)
    text = f'"{inner}"'
    if expression is not None and accepts(expression, text):
        value = json.loads(text)
        assert satisfies(constraint, value)
        if escapes == "canonical" and not constraint.is_spelled_freely:
            assert canonical_text(value) == text.encode()


@given(constraints(), constraints(), st.lists(TEXTS, min_size=1, max_size=6))
def test_both_of_two(left: StringConstraint, right: StringConstraint, texts: list[str]) -> None:
    both = left.intersect(right)
    assert both == right.intersect(left)
    for text in texts:
        assert satisfies(both, text) == (satisfies(left, text) and satisfies(right, text))


def test_a_string_without_constraints_is_that_of_any_json_value() -> None:
    expression = string_expression(StringConstraint())
    assert expression == json_value().rules["string"]
    assert string_expression(StringConstraint()) is expression
    without = string_expression(StringConstraint(), allow_unicode_escapes=False)
    assert without is not None and accepts(without, '"\\n\\/"') and not accepts(without, '"\\u0041"')


@pytest.mark.parametrize("text", ['"\\ud83d"', '"\\ude00"', '"\\ud83d\\ud83d\\ude00"', '"x\\uDC00"'])
def test_lone_surrogates_only_where_next_to_nothing_is_asked_for(text: str) -> None:
    for constraint, taken in [
        (StringConstraint(), True),
        (StringConstraint(1), True),
        (StringConstraint(0, 9), False),
        (StringConstraint(2), False),
        (StringConstraint(patterns=frozenset({"."})), False),
    ]:
        expression = string_expression(constraint, escapes="any")
        assert expression is not None and accepts(expression, text) == taken


@pytest.mark.parametrize("text", ['"é日"', '"\\u00e9\\u65E5"', '"😀\\ud83d\\ude00"', '"\\n\\/"', '"ab"'])
def test_lengths_count_code_points(text: str) -> None:
    for bounds, taken in [((2, 2), True), ((0, 2), True), ((0, 1), False), ((3, None), False), ((1, None), True)]:
        expression = string_expression(StringConstraint(*bounds))
        assert expression is not None and accepts(expression, text) == taken


def test_lengths_beside_a_pattern_are_bounds_of_its_repeats() -> None:
    letters = Characters(((97, 122),))
    expression = string_expression(StringConstraint(0, 64, frozenset({"^[a-z]+$"})))
    assert expression == Sequence((Bytes(b'"'), Repeat(letters, 1, 64), Bytes(b'"')))
    implied = string_expression(StringConstraint(2, 9, frozenset({"^[a-z]{3,4}$"})))
    assert implied == Sequence((Bytes(b'"'), Repeat(letters, 3, 4), Bytes(b'"')))


@pytest.mark.parametrize(
    "constraint",
    [
        StringConstraint(3, 2),
        StringConstraint(allowed=frozenset()),
        StringConstraint(0, 1, allowed=frozenset({"ab"})),
        StringConstraint(patterns=frozenset({"^a"}), allowed=frozenset({"b"})),
        StringConstraint(allowed=frozenset({"a"}), excluded=frozenset({"a"})),
        StringConstraint(0, 1, frozenset({"^[a-z]{2}"})),
        StringConstraint(patterns=frozenset({"^.*[ab].{20}$", "^.*[cd].{20}$"})),
        StringConstraint(patterns=frozenset({"^a"}), not_patterns=frozenset({"^."})),
        StringConstraint(patterns=frozenset({"^[ab]$"}), excluded=frozenset({"a", "b"})),
        StringConstraint(0, 0, excluded=frozenset({""})),
        StringConstraint(0, 4, formats=frozenset({"ipv4"})),
        StringConstraint(formats=frozenset({"ipv4", "ipv6"})),
        StringConstraint(formats=frozenset({"date"}), not_formats=frozenset({"date"})),
        StringConstraint(patterns=frozenset({"[]"})),
        StringConstraint(patterns=frozenset({"(?=a)b"})),
    ],
)
def test_no_string_at_all(constraint: StringConstraint) -> None:
    assert string_expression(constraint) is None
    assert string_expression(constraint, escapes="any") is None


def test_without_unicode_escapes_controls_cannot_be_written() -> None:
    for constraint in (
        StringConstraint(patterns=frozenset({"^\x01$"})),
        StringConstraint(patterns=frozenset({"\x01"}), not_patterns=frozenset({"a"})),
        StringConstraint(allowed=frozenset({"\x01"})),
        StringConstraint(allowed=frozenset({"\ud800"})),
    ):
        for escapes in ("canonical", "any"):
            assert string_expression(constraint, escapes=escapes) is not None
            assert string_expression(constraint, escapes=escapes, allow_unicode_escapes=False) is None


def test_many_values_are_plain_strings_whatever_else_is_asked_for() -> None:
    values = frozenset(f'value {i} of "many" é' for i in range(50_000))
    expression = string_expression(StringConstraint(allowed=values))
    assert expression is not None
    options = literal_options(expression)
    assert options == [canonical_text(value) for value in sorted(values)]
    filtered = string_expression(StringConstraint(0, 21, frozenset({"7"}), allowed=values))
    assert filtered is not None
    wanted = [value for value in sorted(values) if "7" in value and len(value) <= 21]
    assert literal_options(filtered) == [canonical_text(value) for value in wanted]


def test_excluded_values_of_other_lengths_cost_nothing() -> None:
    excluded = frozenset({"long enough", "\ud800", ""})
    expression = string_expression(StringConstraint(0, 3, excluded=excluded))
    assert expression is not None and not contains(expression, Intersection)
    assert expression == string_expression(StringConstraint(1, 3, excluded=frozenset({"also long"})))


@pytest.mark.parametrize("pattern, kind", [("(a", GrammarSyntaxError), ("(a)\\1", GrammarUnsupported)])
def test_errors_of_patterns_are_raised_wherever_they_stand(pattern: str, kind: type[Exception]) -> None:
    for constraint in (
        StringConstraint(patterns=frozenset({pattern})),
        StringConstraint(not_patterns=frozenset({pattern})),
        StringConstraint(patterns=frozenset({pattern}), allowed=frozenset({"a"})),
    ):
        with pytest.raises(kind):
            string_expression(constraint)


def test_the_source_is_that_of_the_schema() -> None:
    source = Source("string", "#/properties/a")
    for constraint in (StringConstraint(), StringConstraint(0, 3), StringConstraint(allowed=frozenset({"a"}))):
        expression = string_expression(constraint, source=source)
        assert expression is not None and expression.source == source
        assert expression == string_expression(constraint)


def test_names_of_properties() -> None:
    key = key_expression(pattern_content('^"?x_'))
    assert key is not None
    assert (
        accepts(key, '"x_é"') and accepts(key, '"\\"x_"') and not accepts(key, '"\\u0078_"') and not accepts(key, '"y"')
    )
    anyhow = key_expression(pattern_content("^x_"), escapes="any")
    assert anyhow is not None and accepts(anyhow, '"\\u0078_"')
    assert key_expression(Intersection((pattern_content("^a$"), pattern_content("^b$")))) is None


def texts_of(expression: Expression) -> Grammar:
    """Arrays of arrays of strings: a recursive grammar with `expression` within."""
    value = Alternation((Reference("string"), Sequence((Bytes(b"["), Reference("start"), Bytes(b"]")))))
    return Grammar("test", "", {"start": value, "string": expression})


@pytest.mark.parametrize(
    "constraint, taken, refused",
    [
        (StringConstraint(patterns=frozenset({"^(?!no)[a-z]+$"})), ["yes"], ["no", "nope", "", "a1"]),
        (StringConstraint(patterns=frozenset({"^a|b$"})), ["ax", "xb"], ["xbx", ""]),
        (StringConstraint(0, 3, excluded=frozenset({"no"})), ["", "yes", "non", '"\\é'], ["no", "nope"]),
        (StringConstraint(0, 9, formats=frozenset({"email"})), ["a@b.co"], ["long.name@example.org"]),
        (StringConstraint(formats=frozenset({"date"})), ["2024-02-29"], ["2023-02-29"]),
        (StringConstraint(2, 300), ["é日", "x" * 300], ["a", "x" * 301]),
        (StringConstraint(allowed=frozenset({"a", "\n"})), ["a", "\n"], ["b"]),
    ],
)
def test_in_recursive_grammars(constraint: StringConstraint, taken: list[str], refused: list[str]) -> None:
    expression = string_expression(constraint)
    assert expression is not None
    automaton = compile_grammar(texts_of(expression))
    for texts, wanted in ((taken, True), (refused, False)):
        for text in texts:
            matcher = ReferenceMatcher(automaton)
            data = b"[[" + canonical_text(text) + b"]]"
            assert (matcher.accept(data) and matcher.is_complete) == wanted, text
