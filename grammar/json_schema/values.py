"""JSON values that a schema names: what equals what, and schemas that say no more than `const`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ..errors import GrammarSyntaxError

#: The kinds of JSON value; an integer is a number.
KINDS = ("null", "boolean", "number", "string", "array", "object")


def kind_of(value: Any, place: str) -> str:
    """The kind of a value. Raises `GrammarSyntaxError` for one that JSON does not have."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float, Decimal)):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (list, tuple)):
        return "array"
    if isinstance(value, Mapping):
        return "object"
    raise GrammarSyntaxError(f"{value!r} is no JSON value", place)


def exact(value: Any, place: str) -> Fraction:
    """A number exactly: a float is the decimal number that it is written as. Raises `GrammarSyntaxError`."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise GrammarSyntaxError(f"must be a number, not {value!r}", place)
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not number.is_finite():
        raise GrammarSyntaxError(f"{value!r} is no JSON number", place)
    if abs(number.adjusted()) > _MAX_EXPONENT and number:
        raise GrammarSyntaxError(f"the number {value!r} has an exponent beyond {_MAX_EXPONENT}", place)
    return Fraction(number)


#: Numbers in a schema with a larger power of ten are refused: they are written out.
_MAX_EXPONENT = 1000


class Named:
    """The values of `const` or `enum` by kind: scalars themselves, arrays and objects as schemas that mean them."""

    def __init__(self, values: Iterable[Any], place: str) -> None:
        self.scalars: dict[str, set[Any]] = {}
        self.composites: dict[str, list[dict[str, Any]]] = {}
        for value in values:
            kind = kind_of(value, place)
            if kind in ("array", "object"):
                self.composites.setdefault(kind, []).append(schema_of(value, place))
            else:
                self.scalars.setdefault(kind, set()).add(_scalar(value, kind, place))

    def has(self, kind: str) -> bool:
        """Whether a value of this kind is among them."""
        return kind in self.scalars or kind in self.composites


def _scalar(value: Any, kind: str, place: str) -> Any:
    if kind == "number":
        return exact(value, place)
    return value


def schema_of(value: Any, place: str) -> dict[str, Any]:
    """A schema whose only value is `value`, an array or an object."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise GrammarSyntaxError(f"{key!r} is no name of a JSON object", place)
        return {
            "type": "object",
            "properties": {key: _constant(item, place) for key, item in value.items()},
            "required": list(value),
            "additionalProperties": False,
        }
    return {
        "type": "array",
        "prefixItems": [_constant(item, place) for item in value],
        "items": False,
        "minItems": len(value),
    }


def _constant(value: Any, place: str) -> dict[str, Any]:
    composite = kind_of(value, place) in ("array", "object")
    return schema_of(value, place) if composite else {"const": value}
