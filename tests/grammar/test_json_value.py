"""Any JSON value, against Python's own JSON parser."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from earley import Earley
from hypothesis import given
from hypothesis import strategies as st

from stepmask.grammar.expression import Grammar
from stepmask.grammar.json_value import json_object, json_value


def oracle(grammar: Grammar) -> Earley:
    return Earley(grammar.rules, grammar.start)


FLEXIBLE = oracle(json_value(max_whitespace=None, max_digits=None))
OBJECT = oracle(json_object(max_whitespace=None, max_digits=None))
COMPACT = oracle(json_value(whitespace="compact"))
SINGLE = oracle(json_value(whitespace="single"))
BOUNDED = oracle(json_value(max_whitespace=2, max_digits=3))


def is_json(text: str) -> bool:
    """Whether `text` is a JSON value with nothing around it."""

    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    try:
        json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return False
    return text.strip(" \t\n\r") == text


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(values, st.booleans(), st.sampled_from([None, 0, 1, "\t\r"]))
def test_takes_what_python_writes(value: Any, ascii_only: bool, indent: int | str | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    try:
        data = text.encode()
    except UnicodeEncodeError:  # a lone surrogate, unescaped
        return
    assert FLEXIBLE.complete(data)
    assert OBJECT.complete(data) == isinstance(value, dict)
    assert FLEXIBLE.alive(data[: len(data) // 2])


@given(values, st.booleans())
def test_fixed_white_space(value: Any, ascii_only: bool) -> None:
    for separators, fits in (((",", ":"), COMPACT), ((", ", ": "), SINGLE)):
        text = json.dumps(value, ensure_ascii=ascii_only, separators=separators)
        data = text.encode(errors="replace")
        assert fits.complete(data)
        other = SINGLE if fits is COMPACT else COMPACT
        assert other.complete(data) == (json.dumps(value, separators=(",", ":")) == json.dumps(value))


@given(
    st.lists(
        st.sampled_from([*'{}[]:,"\\', *"0019.-+eE", "true", "null", "/", "\\u00", "aF", " ", "\n", "\x1f", "é"]),
        max_size=9,
    )
)
def test_same_as_python(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert FLEXIBLE.complete(text.encode()) == is_json(text)


@given(values, st.data())
def test_same_as_python_when_mutated(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value)
    position = data.draw(st.integers(0, len(text)))
    text = (
        text[:position]
        + data.draw(st.text('{}[]:,"\\ue0.- \n\x00é', max_size=2))
        + text[position + data.draw(st.integers(0, 2)) :]
    )
    assert FLEXIBLE.complete(text.encode()) == is_json(text)


def test_all_short_texts() -> None:
    for size in range(5):
        for pieces in itertools.product('[]{}",:0', repeat=size):
            text = "".join(pieces)
            assert FLEXIBLE.complete(text.encode()) == is_json(text), text


@pytest.mark.parametrize(
    "text", ['"\\ud83d"', '"\\udc00\\ud800"', '"\\uD83D\\uDE00"', '"\x7f\u2028"', '{"a":1,"a":2}', "1E+05", "-0"]
)
def test_taken(text: str) -> None:
    assert FLEXIBLE.complete(text.encode())


@pytest.mark.parametrize(
    "text",
    ["NaN", "-Infinity", "'a'", "+1", "1.", ".5", "00", "1e", '"\\x41"', '"\\u12g4"', " 1", "1 ", "[1,]", "// c", ""],
)
def test_refused(text: str) -> None:
    assert not FLEXIBLE.complete(text.encode())


def test_bytes_that_are_no_text_are_refused() -> None:
    for data in (b'"\xff', b'"\xed\xa0\x80', b'"\xc0\x80'):
        assert not FLEXIBLE.alive(data)


def test_bounds() -> None:
    for text in ("[ \n1\t ,\r 2 ]", '{"a"  :  1}', "123.456e789", "{  }", "[[  ]]"):
        assert BOUNDED.complete(text.encode())
    for text in ("[   1]", "[1,   2]", '{"a":   1}', '{"a"   :1}', "{   }", "1234", "0.1234", "1e1234"):
        assert not BOUNDED.complete(text.encode())
    default = oracle(json_value())
    assert default.complete(b"[" + b" " * 64 + b"]") and not default.alive(b"[" + b" " * 65)
    assert default.complete(b"1" * 40) and not default.alive(b"1" * 41)
    assert default.complete(b"0." + b"1" * 40) and not default.alive(b"0." + b"1" * 41)


@pytest.mark.parametrize(
    "options", [{"whitespace": "tight"}, {"max_whitespace": -1}, {"max_digits": 0}, {"max_digits": 1.5}]
)
def test_other_arguments_are_refused(options: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        json_value(**options)
