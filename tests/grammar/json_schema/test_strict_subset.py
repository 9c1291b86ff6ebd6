"""OpenAI's strict subset of JSON Schema works as it is sent: all keys required and closed, `anyOf`, references."""

from __future__ import annotations

import random
from typing import Any

import pytest
from json_schema_oracles import Language, Validator, canonical, random_text

STEPS = {
    "type": "object",
    "properties": {
        "steps": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"explanation": {"type": "string"}, "output": {"type": "string"}},
                "required": ["explanation", "output"],
                "additionalProperties": False,
            },
        },
        "final_answer": {"type": "string"},
    },
    "required": ["steps", "final_answer"],
    "additionalProperties": False,
}
OPTIONAL = {
    "type": "object",
    "properties": {
        "location": {"type": "string", "description": "The city"},
        "unit": {"type": ["string", "null"], "enum": ["celsius", "fahrenheit", None]},
        "days": {"type": ["integer", "null"], "minimum": 1, "maximum": 14},
    },
    "required": ["location", "unit", "days"],
    "additionalProperties": False,
}
EITHER = {
    "type": "object",
    "properties": {
        "item": {
            "anyOf": [
                {
                    "type": "object",
                    "description": "A person",
                    "properties": {"name": {"type": "string"}, "age": {"type": "number"}},
                    "additionalProperties": False,
                    "required": ["name", "age"],
                },
                {
                    "type": "object",
                    "properties": {"number": {"type": "string"}, "street": {"type": "string"}},
                    "additionalProperties": False,
                    "required": ["number", "street"],
                },
            ]
        }
    },
    "additionalProperties": False,
    "required": ["item"],
}
SCREEN = {
    "type": "object",
    "properties": {
        "type": {"type": "string", "enum": ["div", "button", "field"]},
        "label": {"type": "string"},
        "children": {"type": "array", "items": {"$ref": "#"}},
        "attributes": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
                "additionalProperties": False,
                "required": ["name", "value"],
            },
        },
    },
    "required": ["type", "label", "children", "attributes"],
    "additionalProperties": False,
}
LIST = {
    "type": "object",
    "properties": {"linked_list": {"$ref": "#/$defs/linked_list_node"}},
    "$defs": {
        "linked_list_node": {
            "type": "object",
            "properties": {
                "value": {"type": "number"},
                "next": {"anyOf": [{"$ref": "#/$defs/linked_list_node"}, {"type": "null"}]},
            },
            "additionalProperties": False,
            "required": ["next", "value"],
        }
    },
    "additionalProperties": False,
    "required": ["linked_list"],
}
BOUNDED = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "The user's name", "pattern": "^[a-zA-Z_]+$"},
        "email": {"type": "string", "format": "email"},
        "born": {"type": "string", "format": "date"},
        "score": {"type": "number", "multipleOf": 0.5, "exclusiveMinimum": 0, "maximum": 10},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "email", "born", "score", "tags"],
    "additionalProperties": False,
}
#: Schemas with values that are valid and values that are not.
CASES: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "steps": (
        STEPS,
        [{"steps": [], "final_answer": "7"}, {"steps": [{"explanation": "é", "output": "\n"}], "final_answer": ""}],
        [{"steps": []}, {"steps": [{"explanation": "a"}], "final_answer": "7"}, {"steps": [], "final_answer": 7}],
    ),
    "nulls for optional": (
        OPTIONAL,
        [{"location": "Rom", "unit": None, "days": None}, {"location": "", "unit": "celsius", "days": 14}],
        [{"location": "Rom", "unit": "kelvin", "days": 1}, {"location": "Rom", "unit": None, "days": 15}],
    ),
    "either": (
        EITHER,
        [{"item": {"name": "a", "age": 1.5}}, {"item": {"number": "12b", "street": "High St"}}],
        [{"item": {"name": "a", "street": "b"}}, {"item": {}}, {}],
    ),
    "a reference to the root": (
        SCREEN,
        [
            {"type": "div", "label": "", "children": [
                {"type": "button", "label": "OK", "children": [], "attributes": [{"name": "id", "value": "1"}]},
            ], "attributes": []},
        ],
        [{"type": "div", "label": "", "children": [{"type": "button"}], "attributes": []}],
    ),
    "a linked list": (
        LIST,
        [{"linked_list": {"value": 1, "next": {"value": 2, "next": None}}}],
        [{"linked_list": {"value": 1}}, {"linked_list": None}],
    ),
    "bounds and formats": (
        BOUNDED,
        [{"name": "a_B", "email": "a@b.org", "born": "2024-02-29", "score": 9.5, "tags": ["a", "bcdef"]}],
        [
            {"name": "a b", "email": "a@b.org", "born": "2024-02-29", "score": 9.5, "tags": ["a"]},
            {"name": "a", "email": "a@b.org", "born": "2023-02-29", "score": 9.5, "tags": ["a"]},
            {"name": "a", "email": "a@b.org", "born": "2023-02-28", "score": 9.7, "tags": ["a"]},
            {"name": "a", "email": "a@b.org", "born": "2023-02-28", "score": 9.5, "tags": []},
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    schema, valid, invalid = CASES[name]
    found = Language(schema)
    in_order = [list(schema["properties"])]
    for value in valid:
        assert [list(value)] == in_order, "a test value in declared order"
        assert found.has(canonical(value)), value
    for value in invalid:
        assert not found.has(canonical(value)), value


@pytest.mark.parametrize("name", CASES)
def test_what_can_be_written_is_valid(name: str) -> None:
    schema = CASES[name][0]
    found, validator, rng = Language(schema), Validator(schema), random.Random(name)
    for _ in range(10):
        assert validator.is_valid_whichever(random_text(found, rng, rng.randint(0, 120)))


def test_models_of_pydantic() -> None:
    pydantic = pytest.importorskip("pydantic")
    part = pydantic.create_model("Part", name=(str, ...), weight=(float | None, None))
    model = pydantic.create_model("Order", id=(int, ...), parts=(list[part], ...))
    found = Language(model)
    assert found.has('{"id": 1, "parts": [{"name": "a", "weight": null}, {"name": "b"}]}')
    assert not found.has('{"id": "1", "parts": []}') and not found.has('{"id": 1, "parts": [{"weight": 1}]}')


def test_as_many_properties_as_may_be_sent() -> None:
    """5,000 properties, 10 levels, 1,000 values of an enum."""
    schema: dict[str, Any] = {"type": "string", "enum": [f"value {i}" for i in range(1000)]}
    for level in range(10):
        names = [f"p{level}_{i}" for i in range(499)]
        properties: dict[str, Any] = {name: {"type": "integer"} for name in names} | {"next": schema}
        schema = {
            "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False,
        }  # fmt: skip
    found = Language(schema)
    value: Any = "value 999"
    for level in range(10):
        value = {f"p{level}_{i}": i for i in range(499)} | {"next": value}
    assert found.has(canonical(value))
    del value["next"]["p8_498"]
    assert not found.has(canonical(value))
