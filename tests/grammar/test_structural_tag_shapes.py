"""Structural tags: the shapes that they are written in, special tokens, and what is refused."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from mask_sets import byte_vocabulary
from tag_formats import (
    Format,
    Verdict,
    by_matcher,
    by_oracle,
    literal,
    regex_format,
    tag,
    token_verdict,
    token_vocabulary,
    triggered,
)

from stepmask.grammar.choice import choice
from stepmask.grammar.errors import (
    GrammarError,
    GrammarSyntaxError,
    GrammarTooLarge,
    GrammarUnsatisfiable,
    GrammarUnsupported,
)
from stepmask.grammar.expression import Grammar
from stepmask.grammar.json_value import json_object, json_value
from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex
from stepmask.grammar.structural_tag import structural_tag
from stepmask.masks.compiled import compile
from stepmask.masks.vocabulary import VocabularyError

# --- the other shapes ---


def test_shapes_of_the_whole() -> None:
    value = literal("a")
    whole = {"type": "structural_tag", "format": value}
    for shape in (whole, {"format": value}, value, json.dumps(whole), json.dumps(value)):
        assert by_oracle(structural_tag(shape))("a")[0]


@pytest.mark.parametrize("schema", [{"type": "object"}, '{"type": "object"}'])
def test_older_shape(schema: Any) -> None:
    structures = [{"begin": f"<function={name}>", "schema": schema, "end": "</function>"} for name in "fg"]
    value = {"type": "structural_tag", "structures": structures, "triggers": ["<function="]}
    verdict = by_oracle(structural_tag(value))
    for text in ("", "hi", '<function=f>{"a": [1]}</function>.', "<function=f>{}</function><function=g>{ }</function>"):
        assert verdict(text)[0]
    for text in ("<function=", "<function=h>{}</function>", "<function=f>[]</function>"):
        assert not verdict(text)[0]


def test_tags_from_python() -> None:
    calls = [
        {"begin": "<a>", "content": regex("^[0-9]$|x"), "end": "</a>"},
        {"begin": "<b>", "content": choice(["yes", "no"]), "end": ["</b>", "/"]},
        {"begin": "<c>", "content": literal("!"), "end": ""},
    ]
    verdict = by_matcher(structural_tag(calls))
    for text in ("", "<a", "<d>", "<a>1</a>", "<a>x</a>..<b>no/<c>!<"):
        assert verdict(text)[0]
    for text in ("<a>", "<a>1x</a>", "<b>maybe/", "<c>"):
        assert not verdict(text)[0]
    verdict = by_matcher(structural_tag(calls, ["<"], at_least_one=True, stop_after_first=True))
    assert verdict("<c>!")[0] and not verdict("")[0] and not verdict("<c>!!")[0]
    verdict = by_matcher(structural_tag(iter(calls), ["<"], excludes=["no"]))
    assert verdict("<b>no/")[0] and not verdict("no")[0] and not verdict("<d>")[0]


@pytest.mark.parametrize("judge", [by_oracle, by_matcher])
def test_tool_calls_in_json(judge: Callable[[Grammar], Verdict]) -> None:
    call = {"begin": "<tool_call>", "content": json_object(), "end": "</tool_call>"}
    verdict = judge(structural_tag([call]))
    assert verdict('I look.<tool_call>{"name": "f", "arguments": {"</tool_call>": [1, {}]}}</tool_call>Done <tool')[0]
    assert verdict("<tool_call>{")[1]
    assert not verdict("<tool_call>[")[1] and not verdict("<tool_call>{}</tool_call><tool_call>")[0]


def test_equal_contents_share_their_rules() -> None:
    content = json_value()
    calls = [{"begin": f"<{name}>", "content": content, "end": "/"} for name in range(50)]
    assert len(structural_tag(calls).rules) == 1 + len(content.rules)
    schemas = [{"begin": f"<{name}>", "schema": {"type": "object"}, "end": "/"} for name in range(50)]
    assert len(structural_tag(schemas).rules) == 1 + len(content.rules)


def test_many_tags() -> None:
    calls = [
        {"begin": f"<function=tool_{name}>", "content": regex("[a-z]*"), "end": "</function>"} for name in range(200)
    ]
    for triggers in (["<function="], None):
        verdict = by_matcher(structural_tag(calls, triggers))
        assert verdict("text <function=tool_199>abc</function> <function=tool_7></function>")[0]
        assert not verdict("<function=tool_7>A")[1]


@pytest.mark.parametrize("schema", [True, {}, {"type": "object"}], ids=str)
def test_schemas_that_ask_for_nothing(schema: Any) -> None:
    value = {"type": "json_schema", "json_schema": schema}
    verdict = by_oracle(structural_tag(value))
    assert verdict('{"a": [true]}')[0] and not verdict("{")[0]
    assert verdict("[1]")[0] == (schema != {"type": "object"})
    long = "{" + " " * 65 + "}"
    assert not verdict(long)[1]
    assert not by_oracle(structural_tag({**value, "max_whitespace_cnt": None}))(long)[1]
    assert by_oracle(structural_tag({**value, "max_whitespace_cnt": 65}))(long)[0]
    short = by_oracle(structural_tag({**value, "max_whitespace_cnt": 1, "any_order": True}))
    assert short("{ }")[0] and not short("{  }")[1]


def test_a_schema_goes_to_its_front_end(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def json_schema(schema: Any, **options: Any) -> Grammar:
        asked.append((schema, options))
        if schema["type"] == "wrong":
            raise GrammarUnsupported("no such type", "/type")
        return choice([schema["type"]])

    module = ModuleType("stepmask.grammar.json_schema")
    module.json_schema = json_schema  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    value = {"type": "json_schema", "json_schema": {"type": "integer"}, "any_order": True, "max_whitespace_cnt": 3}
    verdict = by_oracle(structural_tag({"type": "sequence", "elements": [value, value]}))
    assert verdict("integerinteger")[0]
    assert asked == [({"type": "integer"}, {"property_order": "any", "max_whitespace": 3})]
    with pytest.raises(GrammarUnsupported) as caught:
        structural_tag([{"begin": "<", "schema": '{"type": "wrong"}', "end": ""}])
    assert caught.value.place == "/tags/0/schema, /type"
    assert str(caught.value) == "no such type (/tags/0/schema, /type)"


def test_grammars() -> None:
    both = [{"type": "grammar", "grammar": 'root ::= "(" root ")" | "x"'}]
    both.append({"type": "grammar", "grammar": 'start: "(" start ")" | "y"', "syntax": "lark"})
    verdict = by_oracle(structural_tag({"type": "sequence", "elements": both}))
    assert (
        verdict("((x))y")[0]
        and verdict("x(y)")[0]
        and not verdict("(y)(y)")[0]
        and verdict("((x)")[1]
        and not verdict("((x)y")[1]
    )
    for syntax, text in (("ebnf", "root ::= ("), ("lark", "start: (")):
        with pytest.raises(GrammarSyntaxError) as caught:
            structural_tag({"type": "optional", "content": {"type": "grammar", "grammar": text, "syntax": syntax}})
        assert caught.value.place is not None
        assert re.fullmatch(r"/content/grammar, line \d+:\d+", caught.value.place)


def test_anchors_within_a_content_see_the_content_only() -> None:
    elements = [regex_format("^a$|^b(?!c)"), regex_format("c?$"), {"type": "star", "content": regex_format("^[xy]$")}]
    verdict = by_matcher(structural_tag({"type": "sequence", "elements": elements}))
    assert verdict("ac")[0] and verdict("bc")[0] and verdict("acxyx")[0]


# --- tokens ---


def token(name: str | int) -> Format:
    return {"type": "token", "token": name}


def test_tags_of_special_tokens() -> None:
    content = regex_format("[0-9]+")
    calls = [{"begin": token("<|call|>"), "content": content, "end": token("<|end|>")}]
    value = {"type": "token_triggered_tags", "trigger_tokens": ["<|call|>"], "tags": calls}
    for grammar in (
        structural_tag(value),
        structural_tag([{"begin": {"token": "<|call|>"}, "content": content, "end": {"token": 257}}]),
        structural_tag(
            {"type": "token_dispatch", "rules": [["<|call|>", {"type": "sequence", "elements": [content, token(257)]}]]}
        ),
    ):
        accepts = token_verdict(compile(grammar, token_vocabulary(), use_cache=False))
        assert accepts() and accepts("<|call|>é") and accepts("a", 256, "12", 257, "b", 256, "1", 257)
        assert not accepts(256) and not accepts(256, "1") and not accepts(256, "1<|end|>")
        assert not accepts(257) and not accepts(258) and not accepts(256, "x")
    first = token_verdict(compile(structural_tag({**value, "at_least_one": True}), token_vocabulary(), use_cache=False))
    assert first(256, "1", 257, "b") and not first() and not first("a", 256, "1", 257)
    once = token_verdict(
        compile(structural_tag({**value, "stop_after_first": True}), token_vocabulary(), use_cache=False)
    )
    assert once("a", 256, "1", 257) and not once(256, "1", 257, "b")


def test_token_formats() -> None:
    inside = {"type": "any_tokens", "exclude_tokens": ["<|other|>", 259]}
    grammar = structural_tag({"type": "sequence", "elements": [tag("<", inside, token("<|end|>")), token(65)]})
    assert grammar.options == {"special_tokens": ["<|other|>", 259]}
    accepts = token_verdict(compile(grammar, token_vocabulary(), use_cache=False))
    assert accepts("<", 257, 65) and accepts("<x>", 257, 65)
    assert not accepts("<", 258, 257, 65) and not accepts("<", 257)
    with pytest.raises(VocabularyError, match=re.escape("<|end|>")):
        compile(grammar, byte_vocabulary(), use_cache=False)
    nothing = structural_tag(tag("<", {"type": "any_tokens", "max_tokens": 0}, ">"))
    assert by_oracle(nothing)("<>")[0] and not by_oracle(nothing)("<a>")[0]


def test_markers_that_are_special_tokens() -> None:
    """Where the names are given, a string holds the tokens; a trigger may end within one, or hold text before it."""
    vocabulary = token_vocabulary()

    def accepts(value: Format) -> Callable[..., bool]:
        grammar = structural_tag(value, special_tokens=vocabulary.special_names)
        return token_verdict(compile(grammar, vocabulary, use_cache=False))

    for trigger in ("<|call|>", "<|ca", "<|call|>f"):
        value = triggered([trigger], [("<|call|>f", "[0-9]+", "<|end|>"), ("<|call|>fg", "x", "!<|end|>")])
        taken = accepts(value)
        assert taken() and taken("a<|call|>b<|end|>") and taken("a", 256, "f1", 257, "b", 256, "fgx!", 257)
        assert not taken(256, "f1") and not taken(257) and not taken(256, "g1", 257) and not taken(258)
    value = triggered(["to=<|call|>", "to<"], [("to=<|call|>", "x", "<|end|>"), ("to<", "y", "/")])
    taken = accepts(value)
    assert taken("I to=", 256, "x", 257, "to<y/.") and taken("to=") and not taken(256, "x", 257)
    assert not taken("to", 256) and not taken("to<")
    value = {"type": "dispatch", "rules": [["<|call|>", regex_format("x")], ["b", literal("<|other|>!")]]}
    assert accepts(value)("a", 256, "xb", 258, "!<|end|>") and not accepts(value)("a", 256, "y")
    # The free text of a tag that a token ends may hold the token's name as text.
    inside = tag("<|call|>", {"type": "any_text", "excludes": ["no"]}, ["<|end|>", "/"])
    assert accepts(inside)(256, "a<|end|>", 257) and accepts(inside)(256, "a/") and not accepts(inside)(256, "no", 257)
    separated = {"type": "tags_with_separator", "tags": [tag("a", "x", "")], "separator": "<|other|>"}
    assert accepts(separated)("ax", 258, "ax") and not accepts(separated)("ax<|other|>ax")
    with pytest.raises(TypeError, match="special_tokens"):
        structural_tag(literal("a"), special_tokens="<|end|>")


# --- what is refused ---

CALL = {"begin": "<f>", "content": literal("x"), "end": "/"}
ONE_TAG = {"type": "triggered_tags", "triggers": ["<"], "tags": [CALL]}
WRONG: list[tuple[Any, type[GrammarError], str]] = [
    ([1], GrammarSyntaxError, "/"),
    ({}, GrammarSyntaxError, "/"),
    ({"type": "structural_tag"}, GrammarSyntaxError, "/"),
    ({"format": {"value": "a"}}, GrammarSyntaxError, "/format"),
    ({"format": []}, GrammarSyntaxError, "/format"),
    ({"format": literal("a"), "strict": True}, GrammarUnsupported, "/strict"),
    ({"format": {"type": "magic"}}, GrammarUnsupported, "/format/type"),
    ({"type": ["tag"]}, GrammarUnsupported, "/type"),
    ({"type": "const_string"}, GrammarSyntaxError, "/"),
    ({"type": "const_string", "value": 1}, GrammarSyntaxError, "/value"),
    ({"type": "const_string", "value": "a\ud800"}, GrammarSyntaxError, "/value, column 2"),
    ({"type": "const_string", "value": "a", "a/b": 1}, GrammarUnsupported, "/a~1b"),
    ({"type": "regex", "pattern": "a("}, GrammarSyntaxError, "/pattern, column 2"),
    ({"type": "regex", "pattern": r"(a)\1"}, GrammarUnsupported, "/pattern, column 4"),
    ({"type": "any_text", "max_tokens": 5}, GrammarUnsupported, "/max_tokens"),
    ({"type": "any_text", "max_chars": -1}, GrammarSyntaxError, "/max_chars"),
    ({"type": "any_text", "max_chars": True}, GrammarSyntaxError, "/max_chars"),
    ({"type": "any_text", "excludes": "ab"}, GrammarSyntaxError, "/excludes"),
    ({"type": "any_text", "excludes": ["a", ""]}, GrammarSyntaxError, "/excludes/1"),
    ({"type": "sequence", "elements": []}, GrammarSyntaxError, "/elements"),
    ({"type": "sequence", "elements": [literal("a"), {"type": "tag"}]}, GrammarSyntaxError, "/elements/1"),
    ({"type": "repeat", "min": 3, "max": 2, "content": literal("a")}, GrammarSyntaxError, "/"),
    ({"type": "repeat", "min": 3, "max": -2, "content": literal("a")}, GrammarSyntaxError, "/max"),
    ({"type": "tag", "begin": 1, "content": literal("a"), "end": ""}, GrammarSyntaxError, "/begin"),
    ({"type": "tag", "begin": "", "content": literal("a"), "end": []}, GrammarSyntaxError, "/end"),
    ({"type": "tag", "begin": "", "content": literal("a"), "end": {"type": "tag"}}, GrammarSyntaxError, "/end"),
    ({"type": "tag", "begin": {"token": -1}, "content": literal("a"), "end": ""}, GrammarSyntaxError, "/begin/token"),
    ({"type": "tag", "begin": "", "content": {"type": "?"}, "end": ""}, GrammarUnsupported, "/content/type"),
    (triggered(["<g"], [("<f>", "x", "/")]), GrammarSyntaxError, "/tags/0"),
    (triggered(["<f", "<g"], [("<f>", "x", "/")]), GrammarSyntaxError, "/triggers/1"),
    (triggered([], [("<f>", "x", "/")]), GrammarSyntaxError, "/triggers"),
    (triggered(["<f"], []), GrammarSyntaxError, "/tags"),
    (triggered(["<f"], [("<f>", "x", "/")], ["f"]), GrammarUnsatisfiable, "/triggers"),
    ({**triggered(["<f"], [("<f>", "x", "/")]), "at_least_one": 1}, GrammarSyntaxError, "/at_least_one"),
    ({**ONE_TAG, "tags": ["<f>"]}, GrammarSyntaxError, "/tags/0"),
    ({**ONE_TAG, "tags": [{**CALL, "type": "or"}]}, GrammarUnsupported, "/tags/0/type"),
    ({**ONE_TAG, "tags": [{**CALL, "x": 1}]}, GrammarUnsupported, "/tags/0/x"),
    ({**ONE_TAG, "tags": [{**CALL, "begin": token(1)}]}, GrammarSyntaxError, "/tags/0/begin"),
    ({"type": "dispatch", "rules": [["", literal("a")]]}, GrammarSyntaxError, "/rules/0/0"),
    ({"type": "dispatch", "rules": [["a"]]}, GrammarSyntaxError, "/rules/0"),
    ({"type": "dispatch", "rules": [["a", {"type": "?"}]]}, GrammarUnsupported, "/rules/0/1/type"),
    ({"type": "dispatch", "rules": [["a", literal("")], ["ab", literal("")]]}, GrammarUnsatisfiable, "/rules"),
    ({"type": "token_triggered_tags", "trigger_tokens": [1], "tags": [CALL]}, GrammarSyntaxError, "/tags/0/begin"),
    (
        {"type": "token_triggered_tags", "trigger_tokens": [1], "tags": [{**CALL, "begin": token(2)}]},
        GrammarSyntaxError,
        "/tags/0/begin",
    ),
    (
        {"type": "token_triggered_tags", "trigger_tokens": [1, 2], "tags": [{**CALL, "begin": token(1)}]},
        GrammarSyntaxError,
        "/trigger_tokens/1",
    ),
    ({"type": "token", "token": ""}, GrammarSyntaxError, "/token"),
    ({"type": "exclude_token", "exclude_tokens": []}, GrammarUnsupported, "/type"),
    ({"type": "any_tokens", "max_tokens": 2}, GrammarUnsupported, "/max_tokens"),
    ({"type": "any_tokens", "exclude_tokens": [1.5]}, GrammarSyntaxError, "/exclude_tokens/0"),
    ({"type": "json_schema", "json_schema": 1}, GrammarSyntaxError, "/json_schema"),
    ({"type": "json_schema", "json_schema": {}, "style": "yaml"}, GrammarUnsupported, "/style"),
    ({"type": "json_schema", "json_schema": {}, "excludes": ["a", ""]}, GrammarSyntaxError, "/excludes/1"),
    ({"type": "json_schema", "json_schema": {"const": 1, "enum": []}}, GrammarUnsatisfiable, "/json_schema, #"),
    ({"type": "grammar", "grammar": "root ::= x", "syntax": "yacc"}, GrammarUnsupported, "/syntax"),
    (
        {"structures": [{"begin": "<", "schema": "{", "end": ""}], "triggers": ["<"]},
        GrammarSyntaxError,
        "/structures/0/schema, line 1:2",
    ),
    ({"structures": [], "triggers": ["<"]}, GrammarSyntaxError, "/structures"),
    ({"structures": [{"begin": "<", "schema": {}, "end": ""}], "triggers": ["<"], "x": 1}, GrammarUnsupported, "/x"),
    ('{"format": ', GrammarSyntaxError, "line 1:12"),
    ('{"type": "const_string", "value": "a", "value": "b"}', GrammarSyntaxError, "value"),
    ('{"type": "repeat", "min": NaN}', GrammarSyntaxError, "NaN"),
    ("[" * 100_000, GrammarTooLarge, "max_depth"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "kind", "place"), WRONG, ids=lambda value: str(value)[:50])
def test_what_is_refused(value: Any, kind: type[GrammarError], place: str) -> None:
    with pytest.raises(kind) as caught:
        structural_tag(value if not isinstance(value, list) else json.dumps(value))
    assert type(caught.value) is kind
    if place.startswith(("/", "line")):
        assert caught.value.place == place
    assert place in str(caught.value)


def test_nesting_is_limited() -> None:
    value = literal("a")
    for _ in range(200):
        value = {"type": "optional", "content": value}
    assert by_oracle(structural_tag(value))("a")[0]
    with pytest.raises(GrammarTooLarge, match="max_depth"):
        structural_tag(value, limits=Limits(max_depth=200))


def test_values_within_themselves() -> None:
    value: Format = {"type": "optional"}
    value["content"] = value
    with pytest.raises(GrammarTooLarge, match="max_depth"):
        structural_tag(value)
    schema: Format = {"type": "array"}
    schema["items"] = schema
    with pytest.raises(GrammarError) as caught:
        structural_tag({"type": "json_schema", "json_schema": schema})
    assert caught.value.place == "/json_schema"


@pytest.mark.parametrize(
    ("arguments", "options"),
    [(({"type": "any_text"}, ["<"]), {}), (("{}",), {"at_least_one": True}), (([CALL], "<"), {})],
)
def test_arguments_that_do_not_go_together(arguments: tuple[Any, ...], options: Any) -> None:
    with pytest.raises(TypeError, match="triggers"):
        structural_tag(*arguments, **options)
