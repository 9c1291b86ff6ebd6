"""Spellings of strings: what they decode to, and that spelling commutes with the rest of the language."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_spellings import any_spelling
from oracles import expression_matches

from stepmask.grammar.expression import (
    ANY_CHARACTER,
    NOTHING,
    Alternation,
    Bytes,
    Characters,
    Complement,
    Expression,
    Intersection,
    Lookahead,
    Repeat,
    Sequence,
)
from stepmask.grammar.json_schema.escapes import (
    Escapes,
    Speller,
    canonical_text,
    plain_content,
    spelled_characters,
    spelled_text,
)
from stepmask.grammar.json_schema.patterns import accepts
from stepmask.grammar.ranges import contains, normalise

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
AWKWARD = [
    '"',
    "\\",
    "/",
    "\b",
    "\f",
    "\n",
    "\r",
    "\t",
    "\x00",
    "\x1f",
    "\x7f",
    "\u2028",
    "é",
    "\ud7ff",
    "😀",
    "\U0010ffff",
]
AWKWARD_TEXT = st.text(st.sampled_from([*AWKWARD, "a", "u"]), max_size=5)


@given(st.text(st.one_of(st.characters(), st.sampled_from(AWKWARD)), max_size=8))
def test_canonical_text_is_that_of_json(value: str) -> None:
    text = canonical_text(value).decode()
    assert json.loads(text) == value
    if not any("\ud800" <= character <= "\udfff" for character in value):
        assert text == json.dumps(value, ensure_ascii=False)


@pytest.mark.parametrize("value, text", [("\x01\x1f\x7f", b'"\\u0001\\u001f\x7f"'), ("/\ud800", b'"/\\ud800"')])
def test_canonical_text_has_small_digits_and_a_raw_slash(value: str, text: bytes) -> None:
    assert canonical_text(value) == text


@given(
    st.lists(st.tuples(st.integers(0, 0x10FFFF), st.integers(0, 0x300)), max_size=4),
    st.lists(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(AWKWARD)), min_size=1, max_size=8),
    st.sampled_from(["canonical", "any"]),
    st.booleans(),
    st.randoms(),
)
def test_each_spelling_is_there_exactly_for_the_characters_of_the_set(
    pairs: list[tuple[int, int]], characters: list[str], escapes: Escapes, unicode_escapes: bool, chance: random.Random
) -> None:
    ranges = normalise([(low, min(low + length, 0x10FFFF)) for low, length in pairs])
    expression = spelled_characters(ranges, escapes, unicode_escapes)
    if ranges:
        low, high = ranges[chance.randrange(len(ranges))]
        characters.append(chr(chance.randint(low, high)))
    for character in characters:
        canonical = canonical_text(character)[1:-1].decode()
        text = any_spelling(character, chance)
        wanted = contains(ranges, ord(character)) and (escapes == "any" or text == canonical)
        if not unicode_escapes and "\\u" in text:
            wanted = False
        assert expression_matches(expression, text) == wanted, text


@pytest.mark.parametrize("escapes", ["canonical", "any"])
def test_the_spellings_of_one_character(escapes: Escapes) -> None:
    every = {
        "/": ["/", "\\/", "\\u002f", "\\u002F"],
        "\n": ["\\n", "\\u000a", "\\u000A"],
        "\x01": ["\\u0001"],
        '"': ['\\"', "\\u0022"],
        "a": ["a", "\\u0061"],
        "é": ["é", "\\u00e9", "\\u00E9"],
        "😀": ["😀", "\\ud83d\\ude00", "\\uD83D\\ude00", "\\uD83D\\uDE00"],
    }
    others = ["\n", '"', "\\", "\\a", "\\u00", "\\ud83d", "\\ude00", "\\ud83d\\u0061", "\\U0061", ""]
    for character, ways in every.items():
        code_point = ord(character)
        expression = spelled_characters(((code_point, code_point),), escapes, True)
        taken = ways if escapes == "any" else ways[:1]
        for way in [way for list_ in every.values() for way in list_] + others:
            assert expression_matches(expression, way) == (way in taken), (character, way)


def contents() -> st.SearchStrategy[Expression]:
    """Languages of code points, with everything they are made of."""
    characters = st.lists(st.sampled_from([*AWKWARD, "a", "b"]), min_size=1, max_size=4)
    leaves = st.one_of(
        st.builds(lambda text: Bytes(text.encode()), AWKWARD_TEXT),
        st.builds(lambda chosen: Characters(normalise((ord(c), ord(c)) for c in chosen)), characters),
        st.just(ANY_CHARACTER),
        st.just(Repeat(ANY_CHARACTER, 0, None)),
    )

    def larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        several = st.lists(inner, min_size=1, max_size=3).map(tuple)
        return st.one_of(
            st.builds(Sequence, several),
            st.builds(Alternation, several),
            st.builds(Repeat, inner, st.integers(0, 2), st.sampled_from([2, 3, None])),
            st.builds(Intersection, several),
            st.builds(Complement, inner),
            st.builds(
                lambda operand, negative: Sequence((Lookahead(operand, negative), Repeat(ANY_CHARACTER, 0, None))),
                inner,
                st.booleans(),
            ),
        )

    return st.recursive(leaves, larger, max_leaves=5)


@given(contents(), st.lists(AWKWARD_TEXT, min_size=1, max_size=6), st.sampled_from(["canonical", "any"]), st.randoms())
def test_spelling_commutes_with_the_language(
    content: Expression, texts: list[str], escapes: Escapes, chance: random.Random
) -> None:
    spelled = Intersection((Speller(escapes).spell(content),))
    for text in texts:
        written = canonical_text(text)[1:-1].decode()
        if escapes == "any":
            written = any_spelling(text, chance)
        assert accepts(spelled, written) == accepts(Intersection((content,)), text)


@given(contents(), st.text(st.sampled_from('\\"/ua0bn\n'), max_size=6), st.sampled_from(["canonical", "any"]))
def test_what_is_no_spelling_is_never_taken(content: Expression, text: str, escapes: Escapes) -> None:
    spelled = Intersection((Speller(escapes).spell(content),))
    if accepts(spelled, text):
        value = json.loads(f'"{text}"')
        assert escapes == "any" or canonical_text(value).decode() == f'"{text}"'


@given(AWKWARD_TEXT, st.sampled_from(["canonical", "any"]), st.booleans(), st.randoms())
def test_given_values(value: str, escapes: Escapes, unicode_escapes: bool, chance: random.Random) -> None:
    expression = spelled_text(value, escapes, unicode_escapes)
    controls = any(character < " " and character not in "\b\f\n\r\t" for character in value)
    assert (expression == NOTHING) == (controls and not unicode_escapes)
    if expression == NOTHING:
        return
    assert expression_matches(expression, canonical_text(value))
    other = f'"{any_spelling(value, chance, unicode_escapes=unicode_escapes)}"'
    assert expression_matches(expression, other) == (escapes == "any" or other.encode() == canonical_text(value))


def test_a_lone_surrogate_among_given_values_is_escaped() -> None:
    assert spelled_text("a\udc00", "canonical", True) == Bytes(b'"a\\udc00"')
    assert spelled_text("a\udc00", "canonical", False) == spelled_text("a\udc00", "any", False) == NOTHING
    assert expression_matches(spelled_text("a\udc00", "any", True), '"\\u0061\\uDC00"')


@given(st.text(st.sampled_from('\\"/ua0bDd8Ff\n\x7f'), max_size=8), st.booleans())
def test_plain_strings_are_those_of_json(text: str, unicode_escapes: bool) -> None:
    try:
        json.loads(f'"{text}"', strict=True)
        valid = True
    except ValueError:
        valid = False
    without = "\\u" not in text.replace("\\\\", "")
    assert expression_matches(plain_content(unicode_escapes), text) == (valid and (unicode_escapes or without))
