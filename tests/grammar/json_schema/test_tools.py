"""A list of tools is one grammar: the name decides which parameters follow."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest
from json_schema_oracles import bytes_only, canonical

import stepmask


def tool(name: str, parameters: Any = None, *, wrapped: bool = True) -> dict[str, Any]:
    function: dict[str, Any] = {"name": name, "description": f"Calls {name}"}
    if parameters is not None:
        function["parameters"] = parameters
    return {"type": "function", "function": function} if wrapped else function


WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TREE = {
    "type": "object",
    "properties": {"value": {"$ref": "#/$defs/number"}, "children": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["value"],
    "additionalProperties": False,
    "$defs": {"number": {"type": "integer", "minimum": 0}},
}
#: A draft in which `items` lists places, and a base URI of its own.
OLD = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "$id": "https://example.com/pair.json",
    "type": "object",
    "properties": {
        "pair": {"type": "array", "items": [{"type": "string"}, {"$ref": "#/definitions/flag"}], "minItems": 2},
    },
    "required": ["pair"],
    "definitions": {"flag": {"type": "boolean"}},
}
TOOLS = [tool("weather", WEATHER), tool("tree", TREE, wrapped=False), tool("pair", OLD), tool("now"), tool('say "hi"')]


def has(grammar: stepmask.Grammar, value: Any) -> bool:
    matcher = stepmask.compile(grammar, bytes_only()).matcher()
    text = value if isinstance(value, str) else canonical(value)
    return matcher.accept_bytes(text.encode()) and matcher.is_complete


def call(name: str, arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


VALID = [
    call("weather", {"city": "Rom", "unit": "C"}),
    call("tree", {"value": 1, "children": [{"value": 2, "children": []}, {"value": 0}]}),
    call("pair", {"pair": ["a", True], "more": 1}),
    call("now", {}),
    call('say "hi"', {}),
]
INVALID = [
    call("weather", {"value": 1}),
    call("weather", {"unit": "C"}),
    call("tree", {"value": -1}),
    call("tree", {"value": 1, "children": [{"value": "a"}]}),
    call("pair", {"pair": ["a", 1]}),
    call("now", {"zone": "UTC"}),
    call("nothing", {}),
    {"name": "now"},
    {"name": "now", "arguments": {}, "id": 1},
    [call("now", {})],
]


def test_one_call() -> None:
    grammar = stepmask.tools(TOOLS)
    for value in VALID:
        assert has(grammar, value), value
    for value in INVALID:
        assert not has(grammar, value), value


def test_several_calls() -> None:
    grammar = stepmask.tools(TOOLS, parallel=True)
    assert has(grammar, VALID) and has(grammar, VALID[:1])
    assert not has(grammar, []) and not has(grammar, VALID[0]) and not has(grammar, [*VALID, INVALID[0]])


def test_names_of_the_keys_and_the_text_form() -> None:
    grammar = stepmask.tools(TOOLS, name_key="function", arguments_key="parameters", whitespace="compact")
    assert has(grammar, '{"function":"now","parameters":{}}')
    assert not has(grammar, '{"function": "now", "parameters": {}}') and not has(grammar, call("now", {}))
    assert has(stepmask.tools(TOOLS, property_order="any"), {"arguments": {}, "name": "now"})


def test_a_name_decides_the_arguments() -> None:
    """After the name only that tool's parameters go on."""
    matcher = stepmask.compile(stepmask.tools(TOOLS), bytes_only()).matcher()
    assert matcher.accept_bytes(b'{"name": "weather", "arguments": {')
    assert not matcher.accept_bytes(b'"value"') and matcher.accept_bytes(b'"city": "')


def test_many_tools_like_each_other() -> None:
    rng = random.Random(4)
    tools = []
    for i in range(128):
        names = rng.sample([f"p{j}" for j in range(30)], 6)
        properties = {name: {"type": rng.choice(["string", "integer", "boolean"])} for name in names}
        parameters = {"type": "object", "properties": properties, "required": names[:2], "additionalProperties": False}
        tools.append(tool(f"tool_{i}", parameters))
    grammar = stepmask.tools(tools)
    values = {"string": "a", "integer": 1, "boolean": True}
    compiled = stepmask.compile(grammar, bytes_only())
    for one in rng.sample(tools, 20):
        schema = one["function"]["parameters"]
        arguments = {name: values[part["type"]] for name, part in schema["properties"].items()}
        for other in rng.sample(tools, 5):
            matcher = compiled.matcher()
            text = canonical(call(other["function"]["name"], arguments))
            accepted = matcher.accept_bytes(text.encode()) and matcher.is_complete
            valid = jsonschema.Draft202012Validator(other["function"]["parameters"]).is_valid(arguments)
            in_order = [k for k in other["function"]["parameters"]["properties"] if k in arguments] == list(arguments)
            assert accepted == (valid and in_order), text


@pytest.mark.parametrize(
    "tools",
    [
        [],
        [{"type": "function", "function": {}}],
        [tool("a"), tool("a")],
        [tool("a", [])],
        [tool("a", {"$ref": "#/$defs/none"})],
        ["a"],
    ],
    ids=lambda tools: json.dumps(tools)[:40],
)
def test_what_is_no_list_of_tools(tools: Any) -> None:
    with pytest.raises(stepmask.GrammarError):
        stepmask.tools(tools)
