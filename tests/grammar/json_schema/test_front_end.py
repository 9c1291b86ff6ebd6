"""JSON Schema: what texts the schemas of all kinds have, what is refused and where it is said to stand."""

from __future__ import annotations

import json
from typing import Any

import pytest

import stepmask
from stepmask import GrammarError, GrammarSyntaxError, GrammarTooLarge, GrammarUnsatisfiable, GrammarUnsupported

BYTES = stepmask.Vocabulary.from_bytes([bytes([i]) for i in range(256)] + [b""], eos=[256])


def reads(schema: Any, **options: Any) -> Any:
    """A test of texts: whether they are complete texts of the schema."""
    grammar = stepmask.json_schema(schema, **options)
    compiled = stepmask.compile(grammar, BYTES, use_cache=False)

    def read(text: str) -> bool:
        matcher = compiled.matcher()
        return matcher.accept_bytes(text.encode()) and matcher.is_complete

    return read


CASES: list[tuple[Any, dict[str, Any], list[str], list[str]]] = [
    ({}, {}, ["{}", '[1,2,{"a":[]}]', '"x"', "1e5", "null"], ["{,}", "", " 1", "1 "]),
    (
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]},
        {},
        ['{"a":1}', '{"a": 1, "b": "x", "zz": [1,{}]}', '{"a":1,"c":null}'],
        ["{}", '{"b":"x"}', '{"b":"x","a":1}', '{"a":1,"a":2}', '{"a":1,"b":2}'],
    ),
    (
        {"allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"b": True}, "required": ["b"]}]},
        {},
        ['{"a":1,"b":2}', '{"b":[]}', "7"],
        ['{"a":1}', '{"b":1,"a":1}', '{"a":"x","b":1}'],
    ),
    (
        {"oneOf": [{"type": "number", "multipleOf": 2}, {"type": "number", "multipleOf": 3}]},
        {},
        ["2", "9", "-4"],
        ["6", "5", "0"],
    ),
    (
        {
            "if": {"properties": {"k": {"const": 1}}, "required": ["k"]},
            "then": {"required": ["x"]},
            "else": {"maxProperties": 1},
        },
        {"property_order": "any"},
        ['{"k":1,"x":0}', '{"x":0,"k":1}', '{"k":2}', "{}", "3"],
        ['{"k":1}', '{"k":2,"x":0}'],
    ),
    ({"type": "object", "not": {"required": ["a"]}}, {}, ["{}", '{"b":1}'], ['{"a":1}']),
    (
        {"type": "object", "not": {"properties": {"a": {"type": "integer"}}}},
        {},
        ['{"a":"x"}'],
        ["{}", '{"a":1}', '{"b":"x"}'],
    ),
    (
        {
            "allOf": [
                {"not": {"additionalProperties": {"maximum": 1}}},
                {"not": {"additionalProperties": {"maximum": 9}}},
            ]
        },
        {},
        ['{"a":81}', '{"a":2,"b":61}'],
        ['{"a":1}', '{"a":5}', "1"],
    ),
    (
        {"allOf": [{"not": {"items": {"maximum": 1}}}, {"not": {"items": {"maximum": 9}}}]},
        {},
        ["[81]", "[5,61]"],
        ["[5]", "[]"],
    ),
    (
        {
            "unevaluatedProperties": False,
            "anyOf": [
                {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"properties": {"b": {"type": "string"}}, "required": ["b"]},
            ],
        },
        {},
        ['{"a":1}', '{"a":1,"b":"x"}', '{"b":"x"}'],
        ['{"c":1}', '{"a":1,"c":2}', '{"a":1,"b":2}', "{}"],
    ),
    (
        {"prefixItems": [{"const": 1}], "contains": {"const": 2}, "unevaluatedItems": False},
        {},
        ["[1,2]", "[1,2,2]"],
        ["[1]", "[1,3,2]"],
    ),
    (
        {"propertyNames": {"pattern": "^[a-c]$"}, "maxProperties": 1},
        {},
        ["{}", '{"a":1}'],
        ['{"d":1}', '{"a":1,"b":2}'],
    ),
    ({"propertyNames": False}, {}, ["{}", "1"], ['{"a":1}']),
    (
        {"properties": {"id": {}}, "patternProperties": {"^x_": {"type": "boolean"}}, "additionalProperties": False},
        {},
        ['{"id":1,"x_a":true}', "{}"],
        ['{"y":1}', '{"x_a":1}'],
    ),
    ({"contains": {"const": 7}, "maxContains": 2}, {}, ["[7]", "[1,7,7]", "3"], ["[]", "[7,7,7]"]),
    ({"items": {"enum": ["a", "b", "c"]}, "uniqueItems": True}, {}, ["[]", '["c","a","b"]'], ['["a","a"]']),
    (
        {"items": {"anyOf": [{"enum": [1, 2]}, {"enum": [2, 3], "minimum": 0}]}, "uniqueItems": True},
        {},
        ["[2,1,3]"],
        ["[2,2]", "[2,2.0]"],
    ),
    (
        {"prefixItems": [{"type": "boolean"}, {"enum": [True, 1, "a"]}], "items": False, "uniqueItems": True},
        {},
        ["[]", "[true]", "[true,1]", '[false,"a"]', "[false,true]"],
        ["[true,true]", "[1]", "[true,false]", "[false,true,1]"],
    ),
    (
        {"prefixItems": [{"const": 1}], "items": {"enum": [1, 2, 3], "minimum": 0}, "uniqueItems": True, "minItems": 2},
        {},
        ["[1,3]", "[1,3,2]"],
        ["[1]", "[1,1]", "[1,2,1]", "[2,1]", "[1,2,2]"],
    ),
    (
        {"items": {"enum": [f"v{i}" for i in range(20)]}, "uniqueItems": True, "maxItems": 3},
        {},
        ['["v19","v1","v0"]', "[]"],
        ['["v1","v1"]', '["v0","v1","v2","v3"]'],
    ),
    (
        {"items": {"enum": [*range(63), "v"]}, "uniqueItems": True, "minItems": 3},
        {},
        ["[" + ",".join(map(str, range(63))) + ',"v"]', '["v",62,6.0]', "[1,10,11.00]"],
        ['["v",62]', '["v",62,"v"]', "[62,61,62]", "[62,61,63]", "[1,10,1.0]", "[6,62,6]"],
    ),
    (
        {
            "properties": {c: {"type": "integer"} for c in "abcdefgh"},
            "required": ["a"],
            "dependentRequired": {"b": ["c"]},
        },
        {"property_order": "any"},
        ['{"a":2}', '{"z":1,"a":2,"c":1,"b":2}', '{"b":1,"a":1,"c":2}'],
        ['{"b":1,"a":1}', '{"c":1}', '{"a":1,"c":1,"a":2}'],
    ),
    (
        {"enum": [{"k": [1, 2]}, "x", None, 1.0]},
        {},
        ['{"k":[1,2]}', '{"k": [1.0, 2]}', '"x"', "null", "1"],
        ['{"k":[1]}', "{}"],
    ),
    ({"not": {"const": {"k": 1}}, "type": "object"}, {}, ["{}", '{"k":2}', '{"k":1,"j":1}', '{"j":1}'], ['{"k":1}']),
    ({"format": "int32", "type": "integer"}, {}, ["2147483647", "-2147483648"], ["2147483648"]),
    (
        {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True},
        {},
        ["1.1"],
        ["1"],
    ),
    (
        {"$defs": {"t": {"properties": {"l": {"$ref": "#/$defs/t"}, "v": {}}, "required": ["v"]}}, "$ref": "#/$defs/t"},
        {},
        ['{"l":{"l":{"v":1},"v":2},"v":3}', "1"],
        ['{"l":{},"v":1}'],
    ),
    ({"type": "array", "items": {"type": "integer"}}, {"whitespace": "compact"}, ["[1,2]"], ["[1, 2]"]),
    ({"type": "array", "items": {"type": "integer"}}, {"whitespace": "single"}, ["[1, 2]"], ["[1,2]"]),
    ({"type": "array", "items": {"type": "integer"}}, {"separators": (" , ", ":")}, ["[1 , 2]"], ["[1,2]"]),
    ({"properties": {"a": {}}}, {"indent": 2}, ['{\n  "a": [\n    1,\n    {}\n  ]\n}', "{}"], ['{"a":1}']),
    ({"type": "string"}, {"unicode_escapes": False}, ['"a\\n"'], ['"\\u0041"']),
    ({"const": "a/"}, {"escapes": "any"}, ['"a/"', '"\\u0061\\/"'], ['"b/"']),
]


@pytest.mark.parametrize(
    ("schema", "options", "accepted", "rejected"), CASES, ids=[json.dumps(case[0])[:60] for case in CASES]
)
def test_texts(schema: Any, options: dict[str, Any], accepted: list[str], rejected: list[str]) -> None:
    read = reads(schema, **options)
    assert [text for text in accepted if not read(text)] == []
    assert [text for text in rejected if read(text)] == []


@pytest.mark.parametrize(
    ("schema", "error", "part"),
    [
        ({"$ref": "#"}, GrammarSyntaxError, "without end"),
        ({"anyOf": [{"$ref": "#"}, {"type": "string"}]}, GrammarSyntaxError, "without end"),
        ({"type": "array", "uniqueItems": True}, GrammarUnsupported, "#/uniqueItems"),
        ({"properties": {"a": {"format": "foo"}}}, GrammarUnsupported, "#/properties/a/format"),
        ({"type": "string", "pattern": "(a"}, GrammarSyntaxError, "#/pattern"),
        ({"patternProperties": {"(a": True}}, GrammarSyntaxError, "#/patternProperties/(a"),
        ({"properties": {"a/b": {"type": "strin"}}}, GrammarSyntaxError, "#/properties/a~1b/type"),
        ({"properties": {"a": {"required": True}}}, GrammarSyntaxError, "draft 3"),
        (False, GrammarUnsatisfiable, "#"),
        ({"properties": {"a": False}, "required": ["a"], "type": "object"}, GrammarUnsatisfiable, "#"),
        ({"type": "integer", "minimum": 1, "maximum": 0}, GrammarUnsatisfiable, "#"),
        ({"enum": []}, GrammarUnsatisfiable, "#"),
        ({"$ref": "http://example.com/other"}, GrammarUnsupported, "#/$ref"),
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, GrammarUnsupported, "draft-03"),
        ({"extends": {}}, GrammarUnsupported, "#/extends"),
        ({"minLength": -1}, GrammarSyntaxError, "#/minLength"),
        ({"multipleOf": 0}, GrammarSyntaxError, "#/multipleOf"),
        ('{"a":', GrammarSyntaxError, "line 1 column 6"),
        ({"not": {"uniqueItems": True}}, GrammarUnsupported, "#/not/uniqueItems"),
        ({"type": "object", "minProperties": 2}, GrammarUnsupported, "#/minProperties"),
    ],
)
def test_refused(schema: Any, error: type[GrammarError], part: str) -> None:
    with pytest.raises(error) as caught:
        reads(schema)
    assert part in str(caught.value)


def test_two_patterns_that_exclude_each_other_are_found() -> None:
    with pytest.raises(GrammarUnsatisfiable):
        reads({"type": "string", "pattern": "^.*[ab].{20}$", "allOf": [{"pattern": "^.*[cd].{20}$"}]})


def test_alternatives_are_limited() -> None:
    parts = [{"anyOf": [{"properties": {f"{i}{j}": {"type": "string"}}} for j in range(3)]} for i in range(8)]
    with pytest.raises(GrammarTooLarge, match="max_schema_alternatives"):
        stepmask.json_schema({"allOf": parts}, limits=stepmask.Limits(max_schema_alternatives=100))


def test_documents_of_a_registry() -> None:
    import referencing
    import referencing.jsonschema

    other = referencing.jsonschema.DRAFT7.create_resource({"definitions": {"n": {"type": "integer"}}})
    registry = referencing.Registry().with_resource("http://example.com/other", other)
    read = reads({"$ref": "http://example.com/other#/definitions/n"}, registry=registry)
    assert read("1") and not read('"x"')


def test_pointers_past_schemas_with_a_uri_of_their_own() -> None:
    inner = {"$id": "http://a.test/inner", "$defs": {"b": {"properties": {"x": {"$ref": "#/$defs/c"}}},
                                                     "c": {"type": "integer"}}}  # fmt: skip
    schema = {
        "$id": "http://a.test/root",
        "$defs": {"a": inner, "c": {"type": "string"}, "d": {"properties": {"x": {"$ref": "#/$defs/c"}}}},
        "properties": {"p": {"$ref": "#/$defs/a/$defs/b"}, "q": {"$ref": "#/$defs/d"}},
    }
    read = reads(schema)
    assert read('{"p": {"x": 1}, "q": {"x": "s"}}')
    assert not read('{"p": {"x": "s"}}') and not read('{"q": {"x": 1}}')


def test_an_id_that_is_no_uri_is_none() -> None:
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", "items": {"id": {"type": "string"}}}
    assert reads(schema)("[1]") and reads({**schema, "id": {}})("[1]")


def test_a_model_with_a_schema_of_its_own() -> None:
    class Model:
        @staticmethod
        def model_json_schema() -> dict[str, Any]:
            return {"type": "integer"}

    assert reads(Model)("1")


def test_tools() -> None:
    weather = {"type": "object", "properties": {"city": {"$ref": "#/$defs/c"}}, "required": ["city"]}
    listed = [
        {
            "type": "function",
            "function": {"name": "weather", "parameters": {**weather, "$defs": {"c": {"type": "string"}}}},
        },
        {"name": "now"},
    ]
    compiled = stepmask.compile(stepmask.tools(listed), BYTES, use_cache=False)
    for text, valid in (
        ('{"name":"weather","arguments":{"city":"x"}}', True),
        ('{"name": "now", "arguments": {}}', True),
        ('{"name":"now","arguments":{"city":"x"}}', False),
        ('{"name":"weather","arguments":{}}', False),
    ):
        matcher = compiled.matcher()
        assert (matcher.accept_bytes(text.encode()) and matcher.is_complete) == valid
    with pytest.raises(GrammarSyntaxError, match="no other tool"):
        stepmask.tools([{"name": "a"}, {"name": "a"}])


def test_equal_schemas_make_equal_grammars() -> None:
    schema = {"properties": {"a": {"type": "string", "description": "one"}, "b": {"type": "string"}}, "anyOf": [{}, {}]}
    first, second = (
        stepmask.compile(stepmask.json_schema(s), BYTES, use_cache=False) for s in (schema, json.dumps(schema))
    )
    assert first.fingerprint == second.fingerprint
