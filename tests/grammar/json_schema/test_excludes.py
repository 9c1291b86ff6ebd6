"""Texts that may stand in no string and no name: against the same schema without, by what its strings hold."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stepmask
from stepmask import GrammarUnsatisfiable

BYTES = stepmask.Vocabulary.from_bytes([bytes([i]) for i in range(256)] + [b""], eos=[256])
STRING: dict[str, Any] = {"type": "string"}
SCHEMAS: list[Any] = [
    {},
    {"type": "object", "properties": {"a": STRING, "xab": STRING, "b": {"type": "array", "items": STRING}}},
    {"type": "object", "additionalProperties": STRING, "properties": {"a": STRING}, "minProperties": 1},
    {"type": "object", "patternProperties": {"^a": STRING}, "additionalProperties": False},
    {"type": ["string", "object"], "maxLength": 4, "additionalProperties": STRING},
    {"enum": ["ab", "a", "<x>", {"a": "b"}, 1]},
    {"type": "string", "pattern": "^[a<]+[bx]"},
    {"type": "object", "propertyNames": {"enum": ["ab", "a"]}, "dependentRequired": {"a": ["ab"]}},
]
EXCLUDES = ["ab", "<x>", "\\n"]
PIECES = st.sampled_from(
    ['"', '"a"', '"ab"', '"<x', "a", "b", "<", "x", ">", "\\\\", "\\n", "{", "}", ":", ",", "[", "]", "1"]
)
WHOLE = st.sampled_from(
    ['"a":"b"', '"b":["ab"]', '"a":"<x>"', '"ab":"x"', '{"a":"b"}', '{"xab":"b"}', '{"ab":""}', '"a\\nb"']
)
_KNOWN: dict[Any, Any] = {}


def reads(number: int, excludes: tuple[str, ...], order: str) -> Any:
    key = number, excludes, order
    if key not in _KNOWN:
        grammar = stepmask.json_schema(SCHEMAS[number], excludes=excludes, property_order=order)  # type: ignore[arg-type]
        _KNOWN[key] = stepmask.compile(grammar, BYTES, use_cache=False).matcher()
    matcher = _KNOWN[key]

    def read(text: str) -> bool:
        matcher.reset()
        return matcher.accept_bytes(text.encode()) and matcher.is_complete

    return read


@given(
    st.integers(0, len(SCHEMAS) - 1),
    st.sampled_from(["declared", "any"]),
    st.lists(WHOLE | PIECES, max_size=6).map("".join),
    st.booleans(),
)
def test_as_without_but_for_what_strings_hold(number: int, order: str, text: str, braces: bool) -> None:
    text = f"{{{text}}}" if braces else text
    strings = re.findall(r'"((?:[^"\\]|\\.)*)"', text)
    clean = not any(excluded in string for excluded in EXCLUDES for string in strings)
    assert reads(number, tuple(EXCLUDES), order)(text) == (clean and reads(number, (), order)(text))


@pytest.mark.parametrize(
    "schema",
    [{"const": "xab"}, {"type": "object", "properties": {"ab": STRING}, "required": ["ab"]}, {"enum": ["ab", "<x>"]}],
)
def test_nothing_is_left(schema: Any) -> None:
    with pytest.raises(GrammarUnsatisfiable):
        stepmask.compile(stepmask.json_schema(schema, excludes=EXCLUDES), BYTES, use_cache=False)


def test_no_dead_ends() -> None:
    """Where all that is left of a property cannot be written, it is not begun."""
    schema = {"type": "object", "properties": {"a": {"const": "ab"}, "b": STRING}, "additionalProperties": False}
    for order in ("declared", "any"):
        grammar = stepmask.json_schema(schema, excludes=["ab"], property_order=order)  # type: ignore[arg-type]
        matcher = stepmask.compile(grammar, BYTES, use_cache=False).matcher()
        assert matcher.accept_bytes(b'{"') and not matcher.accept_bytes(b"a") and matcher.accept_bytes(b'b":"a')
        assert not matcher.accept_bytes(b"b") and matcher.accept_bytes(b'c"}') and matcher.is_complete


@pytest.mark.parametrize("excludes", ["ab", [""], [1]])
def test_excludes_are_strings(excludes: Any) -> None:
    with pytest.raises(ValueError, match="excludes"):
        stepmask.json_schema({}, excludes=excludes)
