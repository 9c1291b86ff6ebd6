"""Arguments in formats that are not JSON at any depth, and constrained strings: against xgrammar and one by one."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tag_formats import Format, Verdict, by_matcher, token_verdict

from stepmask.grammar.errors import GrammarError, GrammarUnsatisfiable, GrammarUnsupported
from stepmask.grammar.structural_tag import structural_tag
from stepmask.masks.compiled import compile
from stepmask.masks.vocabulary import Vocabulary

STRING, INTEGER = {"type": "string"}, {"type": "integer"}


def arguments(schema: Any, style: str, **fields: Any) -> Format:
    return {"type": "json_schema", "json_schema": schema, "style": style, **fields}


def verdict(schema: Any, style: str, **fields: Any) -> Verdict:
    return by_matcher(structural_tag(arguments(schema, style, **fields)))


def cohere(name: str, kind: str, body: str) -> str:
    return f'<cofl:value name="{name}" type="{kind}">{body}</cofl:value>'


def item(kind: str, body: str) -> str:
    return f'<cofl:value type="{kind}">{body}</cofl:value>'


def minimax(name: str, body: str) -> str:
    return f"]<]minimax[>[<{name}>{body}]<]minimax[>[</{name}>"


PIECES = {
    "cohere_xml": [
        *('<cofl:value name="a" type="', '<cofl:value name="b" type="', '<cofl:value type="', "raw", "json", "dict"),
        *("list", '">', "x", "1", "true", "null", " ", "</cofl:value>"),
        '{"a":[1,"x"]}',
    ],
    "gemma": ["{", "}", "a:", "b:", ",", "[", "]", '<|"|>', "x", "1", "true", "null", " ", 'a:[1,<|"|>x<|"|>]}'],
    "minimax_m3_xml": [
        *(f"]<]minimax[>[<{slash}{name}>" for name in ("a", "b", "item") for slash in ("", "/")),
        *("x", "1", "true", "null"),
    ],
}
OBJECTS: list[dict[str, Any]] = [
    {"a": STRING, "b": INTEGER},
    {"a": {"type": "object", "properties": {"b": STRING}, "required": ["b"]}, "b": {"type": "array", "items": INTEGER}},
    {"a": {"enum": ["x", "y"]}, "b": {"type": "boolean"}},
    {"a": {"type": "array", "items": STRING, "minItems": 1, "maxItems": 2}, "b": {"type": ["integer", "null"]}},
    {"a": {"type": "array", "items": {"type": "array", "items": INTEGER}}},
    {"a": {"enum": ["x", 1]}, "b": {"const": {"a": [1, "x"]}}},
    {"a": {}},
]  # fmt: skip


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize("number", range(len(OBJECTS)))
@pytest.mark.parametrize("style", PIECES)
def test_as_in_xgrammar(style: str, number: int, required: bool) -> None:
    xgrammar = pytest.importorskip("xgrammar")
    from xgrammar.testing import _is_grammar_accept_string

    schema: Any = {"type": "object", "properties": OBJECTS[number]}
    if required:
        schema["required"] = list(OBJECTS[number])[-1:]
    if OBJECTS[number] == {"a": {}} and style == "minimax_m3_xml":
        with pytest.raises(GrammarUnsupported):
            structural_tag(arguments(schema, style))
        return
    theirs = xgrammar.Grammar.from_structural_tag({"type": "structural_tag", "format": arguments(schema, style)})
    ours = verdict(schema, style)
    rng = random.Random(f"{style} {number} {required}")
    taken = 0
    for _ in range(12):
        text = ""
        for _ in range(12):
            order = rng.sample(PIECES[style], len(PIECES[style]))
            for piece in ["", *order[:3]]:
                assert ours(text + piece)[0] == _is_grammar_accept_string(theirs, text + piece), text + piece
            taken += ours(text)[0]
            text = next((text + piece for piece in order if ours(text + piece)[1]), text)
    assert taken


TREE: Any = {
    "properties": {"tree": {"$ref": "#/$defs/node"}},
    "required": ["tree"],
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"value": INTEGER, "next": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["value"],
        }
    },
}


def test_schemas_that_refer_to_themselves() -> None:
    leaf = "{value:1}"
    check = verdict(TREE, "gemma")
    assert check(f"{{tree:{{value:2,next:[{leaf},{leaf}]}}}}")[0] and not check(f"{{tree:{{next:[{leaf}]")[1]
    leaf = cohere("value", "json", "1")
    check = verdict(TREE, "cohere_xml")
    assert check(cohere("tree", "dict", leaf + cohere("next", "list", item("dict", leaf) * 2)))[0]
    assert not check(cohere("tree", "dict", cohere("next", "list", item("dict", ""))))[1]
    leaf = minimax("value", "1")
    check = verdict(TREE, "minimax_m3_xml")
    assert check(minimax("tree", leaf + minimax("next", minimax("item", leaf) + "\n" + minimax("item", leaf))))[0]


def test_names() -> None:
    check = verdict({"properties": {'a"<': STRING}, "additionalProperties": INTEGER}, "cohere_xml")
    assert check(cohere("a&quot;&lt;", "raw", "x") + cohere("é b&amp;", "json", "1"))[0]
    assert not check(cohere("a&quot;&lt;", "json", "1"))[1] and not check(cohere("a&", "json", "1"))[1]
    check = verdict({"properties": {"é b": STRING}, "additionalProperties": INTEGER}, "gemma")
    assert check('{é b:<|"|>x<|"|>, b : 1}')[0] and not check("{1b")[1] and not check("{é b:1")[1]


def test_arrays() -> None:
    schema = {"properties": {"a": {"type": "array", "prefixItems": [STRING, INTEGER], "minItems": 1}}}
    check = verdict(schema, "gemma")
    assert check('{a:[<|"|>x<|"|>]}')[0] and check('{a:[ <|"|>x<|"|> , 1 ]}')[0]
    assert not check("{a:[]")[1] and not check('{a:[<|"|>x<|"|>,1,')[1]
    schema["properties"]["a"] |= {"items": {"type": "boolean"}, "maxItems": 4}
    check = verdict(schema, "cohere_xml")
    items = [item("raw", "x"), item("json", "1"), item("json", "true"), item("json", "false"), item("json", "true")]
    for count in range(6):
        assert check(cohere("a", "list", "".join(items[:count])))[0] == (1 <= count <= 4)


def test_any_order() -> None:
    schema = {"properties": {"a": STRING, "b": INTEGER}, "required": ["a"]}
    check = verdict(schema, "gemma", any_order=True)
    assert check('{b:1, a:<|"|><|"|>}')[0] and not check("{b:1}")[0] and not check("{b:1,b")[1]
    check = verdict(schema, "cohere_xml", any_order=True)
    a, b = cohere("a", "raw", "x"), cohere("b", "json", "1")
    assert check(f" {b} {a} ")[0] and not check(b)[0] and not check(a + b + a)[1]
    check = verdict(schema, "minimax_m3_xml", any_order=True)
    assert check(minimax("b", "1") + minimax("a", "x"))[0] and not check(minimax("b", "1"))[0]


def test_strings_under_constraints() -> None:
    strings = [
        ({"pattern": "^[a-z]+$"}, ["ab"], ["aB", ""]),
        ({"pattern": "b", "maxLength": 3}, ["b", "abc"], ["abcd", "ac"]),
        ({"format": "date"}, ["2024-02-29"], ["2024-02-30"]),
        ({"minLength": 2}, ["éé"], ["é"]),
    ]
    for keywords, taken, refused in strings:
        schema = {"properties": {"a": {"type": "string", **keywords}}}
        gemma, qwen, m3 = (verdict(schema, style) for style in ("gemma", "qwen_xml", "minimax_m3_xml"))
        for texts, expected in ((taken, True), (refused, False)):
            for text in texts:
                assert gemma(f'{{a:<|"|>{text}<|"|>}}')[0] == expected
                assert m3(minimax("a", text))[0] == expected
                assert qwen(f"<parameter=a>{text}</parameter>")[0] == expected
    # Nothing that a pattern takes closes the string.
    assert not verdict({"properties": {"a": {"type": "string", "pattern": "x$"}}}, "gemma")('{a:<|"|><|"|>x<|"|>}')[1]
    with pytest.raises(GrammarUnsupported) as caught:
        verdict({"properties": {"a": {"type": "string", "format": "runes"}}}, "gemma")
    assert caught.value.place == "/json_schema/properties/a/format"


def test_excluded_texts() -> None:
    schema = {"properties": {"a": STRING, "b": {"enum": ["no", "yes"]}}, "additionalProperties": True}
    check = verdict(schema, "gemma", excludes=["no"])
    assert check('{a:<|"|>n<|"|>,b:<|"|>yes<|"|>,c:[<|"|>o<|"|>]}')[0]
    for text in ('{a:<|"|>no', '{b:<|"|>n', "{no", '{c:[<|"|>no', "{c:{no"):
        assert not check(text)[1]
    assert not verdict(schema, "cohere_xml", excludes=["no"])(cohere("c", "list", item("raw", "no")))[1]
    assert not verdict({"properties": {"a": STRING}}, "minimax_m3_xml", excludes=["no"])(minimax("a", "no"))[1]


def test_delimiters_that_are_special_tokens() -> None:
    tokens = [bytes([byte]) for byte in range(256)] + [b'<|"|>', b""]
    vocabulary = Vocabulary.from_bytes(tokens, eos=[257], special=[256, 257], names={'<|"|>': 256})
    grammar = structural_tag(arguments({"properties": {"a": STRING}}, "gemma"), special_tokens=vocabulary.special_names)
    accepts = token_verdict(compile(grammar, vocabulary, use_cache=False))
    assert accepts("{a:", 256, 'x<|"|>y', 256, "}") and not accepts('{a:<|"|>x<|"|>}')


#: Schemas of the property "a".
REFUSED: list[tuple[Any, str, type[GrammarError], str]] = [
    ({"const": ['<|"|>']}, "gemma", GrammarUnsupported, "/const"),
    ({"const": '<|"|>'}, "gemma", GrammarUnsatisfiable, "/const"),
    ({"type": "array", "uniqueItems": True}, "gemma", GrammarUnsupported, "/uniqueItems"),
    ({"type": "array", "items": [STRING]}, "gemma", GrammarUnsupported, "/items"),
    ({"type": "array", "minItems": 2, "maxItems": 1}, "gemma", GrammarUnsupported, "/minItems"),
    ({"type": "object", "minProperties": 1}, "gemma", GrammarUnsupported, "/minProperties"),
    ({"type": "object", "properties": {"a:b": STRING}}, "gemma", GrammarUnsupported, "/properties/a:b"),
    ({"type": "object", "properties": {"/": STRING}}, "minimax_m3_xml", GrammarUnsupported, "/properties/~1"),
    ({"type": "object"}, "minimax_m3_xml", GrammarUnsupported, "/additionalProperties"),
    ({}, "minimax_m3_xml", GrammarUnsupported, ""),
]


@pytest.mark.parametrize(("schema", "style", "kind", "place"), REFUSED, ids=str)
def test_what_is_refused(schema: Any, style: str, kind: type[GrammarError], place: str) -> None:
    with pytest.raises(kind) as caught:
        structural_tag(arguments({"properties": {"a": schema}}, style))
    assert type(caught.value) is kind and caught.value.place == f"/json_schema/properties/a{place}"
