"""Tool parameters as XML elements, against xgrammar and by what is taken and refused."""

from __future__ import annotations

import itertools
import json
import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tag_formats import Format, Verdict, by_matcher, by_oracle, token_verdict

from stepmask.grammar.choice import choice
from stepmask.grammar.errors import GrammarError, GrammarSyntaxError, GrammarUnsatisfiable, GrammarUnsupported
from stepmask.grammar.expression import Grammar
from stepmask.grammar.json_value import json_value
from stepmask.grammar.regex import regex
from stepmask.grammar.structural_tag import structural_tag
from stepmask.masks.compiled import compile
from stepmask.masks.vocabulary import Vocabulary


@pytest.fixture(autouse=True)
def schemas(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A front end for schemas that knows just what is asked for here, and the schemas it was given."""
    asked = []

    def json_schema(schema: Any, **options: Any) -> Grammar:
        asked.append(schema)
        if "enum" in schema:
            return choice([json.dumps(value) for value in schema["enum"]])
        kinds = {"integer": regex("-?(0|[1-9][0-9]*)"), "boolean": choice(["true", "false"]), "null": choice(["null"])}
        return kinds.get(schema["type"], json_value())

    module = ModuleType("stepmask.grammar.json_schema")
    module.json_schema = json_schema  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return asked


def xml(schema: Any, style: str = "qwen_xml", **fields: Any) -> Format:
    return {"type": "json_schema", "json_schema": schema, "style": style, **fields}


def parameter(name: str, value: str) -> str:
    return f"<parameter={name}>{value}</parameter>"


STRING, INTEGER = {"type": "string"}, {"type": "integer"}
TWO = {"type": "object", "properties": {"a": STRING, "b": INTEGER}, "required": ["b"]}
SCHEMAS = [
    {"type": "object", "properties": {"a": STRING, "b": INTEGER}, "required": ["a", "b"]},
    TWO,
    {"type": "object", "properties": {"a": {"enum": ["x", "yy", 1]}, "b": {"type": "boolean"}}},
    {"type": "object", "properties": {"a": {"const": "x"}, "b": {"type": "string", "minLength": 1, "maxLength": 2}}},
    {"type": "object", "properties": {"a": {"anyOf": [STRING, {"type": "null"}]}, "b": {"type": ["integer", "null"]}}},
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/s"}, "b": True}, "$defs": {"s": STRING}},
    {"type": "object", "properties": {}},
    {"type": "object", "properties": {}, "additionalProperties": False},
    {"type": "object", "properties": {}, "additionalProperties": INTEGER},
    {"type": "object"},
]  # fmt: skip
PIECES = [
    "<parameter=a>",
    "<parameter=b>",
    "<parameter=c_1>",
    "</parameter>",
    "x",
    "yy",
    "1",
    "true",
    "null",
    "\n",
    "</p",
]
WHOLE = [parameter(name, value) for name in "ab" for value in ("x", "1", "", "\n1\n", "null", "yy", "true")]


@given(st.sampled_from(SCHEMAS), st.lists(st.sampled_from(PIECES + WHOLE * 2), max_size=5).map("".join))
def test_as_in_xgrammar(schema: Any, text: str) -> None:
    assert ours(schema)(text)[0] == theirs(schema)(text)


_KNOWN: dict[str, Any] = {}


def ours(schema: Any) -> Verdict:
    key = f"ours {json.dumps(schema)}"
    if key not in _KNOWN:
        _KNOWN[key] = by_oracle(structural_tag(xml(schema)))
    verdict: Verdict = _KNOWN[key]
    return verdict


def theirs(schema: Any) -> Any:
    xgrammar = pytest.importorskip("xgrammar")
    from xgrammar.testing import _is_grammar_accept_string

    key = json.dumps(schema)
    if key not in _KNOWN:
        _KNOWN[key] = xgrammar.Grammar.from_structural_tag(
            json.dumps({"format": xml(schema), "type": "structural_tag"})
        )
    return lambda text: _is_grammar_accept_string(_KNOWN[key], text)


def test_compiled() -> None:
    verdict = by_matcher(structural_tag(xml(TWO)))
    assert verdict("<parameter=a>x <y></parameter>\n<parameter=b>\n-12\n</parameter>")[0]
    assert verdict(parameter("b", "1"))[0] and not verdict(parameter("a", ""))[0]
    assert not verdict(parameter("b", "1") + parameter("a", ""))[1] and not verdict("<parameter=c")[1]


def test_the_older_format() -> None:
    verdict = by_oracle(structural_tag({"type": "qwen_xml_parameter", "json_schema": TWO}))
    assert verdict(parameter("b", "1"))[0] and not verdict(parameter("a", ""))[0]


@pytest.mark.parametrize(
    ("style", "text"),
    [
        ("minimax_xml", '<parameter name="a">x</parameter>\n<parameter name="b">1</parameter>'),
        ("glm_xml", "<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n<arg_key>b</arg_key><arg_value>1</arg_value>"),
    ],
)
def test_styles(style: str, text: str) -> None:
    xgrammar = pytest.importorskip("xgrammar")
    from xgrammar.testing import _is_grammar_accept_string

    grammar = xgrammar.Grammar.from_structural_tag({"format": xml(TWO, style), "type": "structural_tag"})
    verdict = by_oracle(structural_tag(xml(TWO, style)))
    for changed in (
        text,
        text.replace("1", "x"),
        text.replace("x", ""),
        text + "x",
        text.replace("\n", "z"),
        text[:-1],
    ):
        assert verdict(changed)[0] == _is_grammar_accept_string(grammar, changed)
    assert verdict(text)[0]


@pytest.mark.parametrize(("style", "space"), [("deepseek_xml", ""), ("deepseek_v4_1_xml", " ")])
def test_styles_that_tell_strings_from_json(style: str, space: str) -> None:
    xgrammar = pytest.importorskip("xgrammar")
    from xgrammar.testing import _is_grammar_accept_string

    properties = {"a": {"anyOf": [STRING, INTEGER]}, "b": {"enum": ["x", 1]}, "c": STRING, "d": {}}
    schema = {"type": "object", "properties": properties, "required": ["b"]}
    grammar = xgrammar.Grammar.from_structural_tag({"format": xml(schema, style), "type": "structural_tag"})
    verdict = by_oracle(structural_tag(xml(schema, style)))

    def one(name: str, raw: str, value: str) -> str:
        return f'<｜DSML｜{space}parameter name="{name}" string="{raw}">{value}</｜DSML｜{space}parameter>'

    assert verdict(one("b", "true", "x") + one("d", "false", "[1]"))[0]
    assert not verdict(one("b", "false", "x"))[0] and not verdict(one("b", "true", "1"))[0]
    for name, raw, value in itertools.product("abcd", ("true", "false"), ("x", "1", "[1]")):
        text = one(name, raw, value)
        for whole in (text, text + one("b", "true", "x"), one("b", "false", "1") + text):
            assert verdict(whole)[0] == _is_grammar_accept_string(grammar, whole), whole


def test_additional_parameters() -> None:
    verdict = by_oracle(structural_tag(xml({"properties": {"a": STRING}, "additionalProperties": True})))
    assert verdict(parameter("a", "") + parameter("b", "x") + parameter("ab", "x"))[0]
    # Unlike in xgrammar, one that is declared stands in its place, and once.
    assert not verdict(parameter("b", "") + parameter("a", ""))[0]
    assert not verdict(parameter("a", "") * 2)[0]
    assert not verdict(parameter("1", ""))[0]


def test_white_space_is_bounded() -> None:
    schema = {"properties": {"b": INTEGER}}
    for options, most in (({}, 64), ({"max_whitespace_cnt": 2}, 2)):
        verdict = by_oracle(structural_tag(xml(schema, **options)))
        assert verdict(" " * most + parameter("b", " " * most + "1"))[0]
        assert not verdict(" " * (most + 1))[1] and not verdict("<parameter=b>" + " " * (most + 1))[1]


def test_values_that_are_no_strings_go_to_their_front_end(schemas: list[Any]) -> None:
    definitions = {"n": INTEGER}
    properties = {"a": {"type": "array", "items": {"$ref": "#/$defs/n"}}, "b": {"const": 1}, "c": {"enum": ["x", 2]}}
    structural_tag(xml({"properties": properties, "$defs": definitions}))
    assert schemas == [
        {"$defs": definitions, **properties["a"]},
        {"$defs": definitions, "enum": [1]},
        {"$defs": definitions, "enum": [2]},
    ]


@pytest.mark.parametrize(
    ("schema", "kind", "place"),
    [
        (False, GrammarSyntaxError, ""),
        ({"type": "array"}, GrammarUnsupported, "/type"),
        ({"minProperties": 1}, GrammarUnsupported, "/minProperties"),
        ({"properties": []}, GrammarSyntaxError, "/properties"),
        ({"properties": {"a": 1}}, GrammarSyntaxError, "/properties/a"),
        ({"properties": {"a": {"minLength": 1}}}, GrammarUnsupported, "/properties/a"),
        (
            {"properties": {"a/b": {"type": "string", "contentSchema": {}}}},
            GrammarUnsupported,
            "/properties/a~1b/contentSchema",
        ),
        ({"properties": {"a": {"allOf": [STRING, STRING]}}}, GrammarUnsupported, "/properties/a/allOf"),
        ({"properties": {"a": {"oneOf": [STRING, STRING]}}}, GrammarUnsupported, "/properties/a/oneOf"),
        ({"properties": {"a": {"oneOf": [STRING, True]}}}, GrammarUnsupported, "/properties/a/oneOf"),
        ({"properties": {"a": {"type": "text"}}}, GrammarUnsupported, "/properties/a/type"),
        ({"properties": {"a": {"$ref": "#/properties/9"}}}, GrammarSyntaxError, "/properties/a/$ref"),
        ({"properties": {"a": {"enum": ["</parameter>"]}}}, GrammarUnsupported, "/properties/a/enum"),
        ({"properties": {"a": {"$ref": "other.json"}}}, GrammarUnsupported, "/properties/a/$ref"),
        ({"properties": {"a": {"$ref": "#/$defs/x"}}}, GrammarSyntaxError, "/properties/a/$ref"),
        ({"properties": {"a": {"$ref": "#/properties/a"}}}, GrammarUnsupported, "/properties/a/$ref"),
        ({"properties": {"a": STRING}, "required": ["b"]}, GrammarUnsupported, "/required/0"),
    ],
)
def test_what_is_refused(schema: Any, kind: type[GrammarError], place: str) -> None:
    with pytest.raises(kind) as caught:
        structural_tag(xml(schema))
    assert type(caught.value) is kind and caught.value.place == f"/json_schema{place}"


def test_any_order() -> None:
    verdict = by_matcher(structural_tag(xml({**TWO, "additionalProperties": STRING}, any_order=True)))
    a, b, c = parameter("a", "x"), parameter("b", "1"), parameter("c", "y")
    assert verdict(a + b)[0] and verdict(f"\n{b}\n{a}\n")[0] and verdict(b + c + a + c)[0]
    assert not verdict(a)[0] and not verdict(a + b + a)[1] and not verdict(b + parameter("b", "2"))[1]


def test_excluded_texts() -> None:
    properties = {"a": STRING, "b": {"enum": ["x", "nox"]}, "no": STRING, "d": {"type": "string", "maxLength": 3}}
    verdict = by_matcher(structural_tag(xml({"properties": properties, "additionalProperties": True}, excludes=["no"])))
    assert verdict(parameter("a", "n o") + parameter("b", "x") + parameter("d", "abc"))[0]
    for text in (("a", "a no"), ("b", "nox"), ("no", ""), ("d", "no"), ("xno", "")):
        assert not verdict(parameter(*text))[1]
    for schema, place in (
        ({"properties": {"no": STRING}, "required": ["no"]}, "/required/0"),
        ({"properties": {"a": {"const": "no"}}}, "/properties/a/const"),
    ):
        with pytest.raises(GrammarUnsatisfiable) as caught:
            structural_tag(xml(schema, excludes=["no"]))
        assert caught.value.place == f"/json_schema{place}"


def kimi(name: str, kind: str, value: str) -> str:
    return f'<|open|>argument key="{name}" type="{kind}"<|sep|>{value}<|close|>argument<|sep|>'


def test_a_style_that_names_the_kind() -> None:
    properties = {"a": {"anyOf": [STRING, INTEGER]}, 'b"&': {"enum": ["x", 1, None]}, "c": STRING, "d": {}}
    verdict = by_oracle(structural_tag(xml({"properties": properties}, "kimi_k3_xml")))
    assert verdict(kimi("a", "string", "1") + kimi("b&quot;&amp;", "null", "null") + kimi("d", "array", "[1]"))[0]
    assert verdict(kimi("a", "number", " 1 ") + kimi("d", "string", "<|close|>"))[0]
    for name, kind, value in (
        ("a", "number", "x"),
        ("a", "integer", "1"),
        ("b&quot;&amp;", "string", "y"),
        ("c", "null", "null"),
    ):
        assert not verdict(kimi(name, kind, value))[1]
    assert not verdict(kimi("d", "null", "x"))[1]
    # Markers that are special tokens.
    names = {"<|open|>": 256, "<|close|>": 257, "<|sep|>": 258}
    tokens = [bytes([byte]) for byte in range(256)] + [name.encode() for name in names] + [b""]
    vocabulary = Vocabulary.from_bytes(tokens, eos=[259], special=[*names.values(), 259], names=names)
    grammar = structural_tag(xml({"properties": {"c": STRING}}, "kimi_k3_xml"), special_tokens=names)
    accepts = token_verdict(compile(grammar, vocabulary, use_cache=False))
    before = (256, 'argument key="c" type="string"', 258)
    assert accepts(*before, "<|close|>argument<|sep|>", 257, "argument", 258) and not accepts(kimi("c", "string", ""))
    with pytest.raises(GrammarUnsupported, match="any_order"):
        structural_tag(xml({"properties": {"c": STRING}}, "kimi_k3_xml", any_order=True), special_tokens=names)
