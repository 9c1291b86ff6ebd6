"""Whether the values of keywords have the form that the specification asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

from ..errors import GrammarSyntaxError
from .dialects import Dialect
from .schemas import Schema

TYPES = ("null", "boolean", "number", "integer", "string", "array", "object")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and _are_strings(value)


def _are_strings(values: Iterable[Any]) -> bool:
    for value in values:
        if not isinstance(value, str):
            return False
    return True


def _is_type(value: Any) -> bool:
    return value in TYPES if isinstance(value, str) else _is_strings(value) and all(item in TYPES for item in value)


def _is_schema(value: Any) -> bool:
    return isinstance(value, (bool, dict, Mapping))


def _is_schemas(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_schema, value))


def _is_named(value: Any) -> bool:
    return isinstance(value, (dict, Mapping)) and _are_strings(value)


def _is_map_of_schemas(value: Any) -> bool:
    return _is_named(value) and all(map(_is_schema, value.values()))


_COUNT = (_is_count, "a number of things, 0 or more")
_NUMBER = (_is_number, "a number")
_STRING = (lambda value: isinstance(value, str), "a string")
_SCHEMA = (_is_schema, "a schema")
_SCHEMAS = (_is_schemas, "a list of schemas")
_MAP = (_is_map_of_schemas, "an object of schemas")
_OPEN_BOUND = (lambda value: isinstance(value, bool) or _is_number(value), "a number, or in draft 4 a boolean")
_COUNTS = ("Properties", "Contains", "Items", "Length")
_FORMS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "type": (_is_type, f"one of {', '.join(TYPES)}, or a list of them"),
    "enum": (lambda value: isinstance(value, list), "a list"),
    "required": (_is_strings, "a list of names"),
    "dependentRequired": (
        lambda value: _is_named(value) and all(map(_is_strings, value.values())),
        "an object of lists of names",
    ),
    "dependencies": (
        lambda value: (
            _is_named(value)
            and all(_is_schema(item) or _is_strings(item) or isinstance(item, str) for item in value.values())
        ),
        "an object of schemas and lists of names",
    ),
    "uniqueItems": (lambda value: isinstance(value, bool), "true or false"),
    "multipleOf": (lambda value: _is_number(value) and value > 0, "a number above 0"),
    "minimum": _NUMBER,
    "maximum": _NUMBER,
    "exclusiveMinimum": _OPEN_BOUND,
    "exclusiveMaximum": _OPEN_BOUND,
    "items": (lambda value: _is_schema(value) or _is_schemas(value), "a schema or a list of schemas"),
    **dict.fromkeys((end + of for end in ("min", "max") for of in _COUNTS), _COUNT),
    **dict.fromkeys(("pattern", "format", "$ref", "$dynamicRef", "$recursiveRef"), _STRING),
    **dict.fromkeys(
        ("not", "if", "then", "else", "additionalProperties", "propertyNames", "unevaluatedProperties",
         "additionalItems", "contains", "unevaluatedItems"),
        _SCHEMA,
    ),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _SCHEMAS),
    **dict.fromkeys(("properties", "patternProperties", "dependentSchemas"), _MAP),
}  # fmt: skip


def check_keywords(schema: Schema) -> None:
    """Raise `GrammarSyntaxError` for the first keyword whose value has not the form that it should have."""
    keywords = schema.keywords
    for name, value in keywords.items():
        form = _FORMS.get(name)
        if form is not None and not form[0](value):
            hint = ""
            if name == "required" and isinstance(value, bool):
                hint = ": a boolean is of draft 3, list the names in the schema of the object"
            raise GrammarSyntaxError(f"{name} must be {form[1]}{hint}", schema.place(name))
    for name in ("exclusiveMinimum", "exclusiveMaximum"):
        if keywords.get(name) is True and schema.dialect > Dialect.DRAFT4:
            bound = name.replace("exclusiveM", "m")
            if bound not in keywords:
                raise GrammarSyntaxError(f"{name} as a boolean needs {bound}", schema.place(name))
