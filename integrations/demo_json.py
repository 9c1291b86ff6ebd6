"""The requests of `stepmask demo` for JSON that follows a schema."""

from __future__ import annotations

import json
from typing import Any

ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "customer": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "pattern": "^[A-Z][a-z]+( [A-Z][a-z]+)?$", "maxLength": 30},
                "phone": {"type": "string", "pattern": "^[0-9]{3}-[0-9]{4}$"},
            },
            "required": ["name"],
            "additionalProperties": False,
        },
        "size": {"enum": ["small", "medium", "large"]},
        "toppings": {
            "type": "array",
            "items": {"enum": ["cheese", "ham", "mushrooms", "olives", "onions"]},
            "minItems": 1,
            "maxItems": 3,
            "uniqueItems": True,
        },
        "quantity": {"type": "integer", "minimum": 1, "maximum": 9},
        "note": {"type": "string", "maxLength": 8},
    },
    "required": ["customer", "size", "toppings", "quantity"],
    "additionalProperties": False,
}
EVENT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 3, "maxLength": 16},
        "date": {"type": "string", "format": "date"},
        "price": {"type": "number", "minimum": 0, "maximum": 500, "multipleOf": 0.5},
        "place": {"anyOf": [{"type": "string", "maxLength": 12}, {"type": "null"}]},
    },
    "required": ["title", "date", "place"],
    "additionalProperties": False,
}
LINKED: dict[str, Any] = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer", "minimum": 0, "maximum": 99},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            },
            "required": ["value", "next"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}


def is_valid(schema: dict[str, Any], text: str) -> bool:
    """Whether a text is JSON that the `jsonschema` library finds valid, formats included."""
    import jsonschema

    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return bool(jsonschema.Draft202012Validator(schema, format_checker=checker).is_valid(value))
