"""JSON objects read field by field: what is wrong with one is an error that names the JSON pointer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from .errors import GrammarSyntaxError, GrammarTooLarge, GrammarUnsupported
from .expression import Bytes, Source

_MISSING: Any = object()
_TEXT_OF = json.JSONEncoder(ensure_ascii=False, default=repr).encode


class Fields:
    """The fields of one JSON object, checked as they are read."""

    def __init__(self, value: Mapping[str, Any], kind: str, place: str) -> None:
        self.value = value
        self.kind = kind
        self.place = place

    def place_of(self, key: str) -> str:
        """The JSON pointer of a field."""
        return within(self.place, key)

    def get(self, key: str, default: Any = _MISSING) -> Any:
        """Any value; the field must be there unless there is a default. So too below."""
        found = self.value.get(key, default)
        if found is _MISSING:
            raise GrammarSyntaxError(f"{self.kind} needs the field {key!r}", self.place or "/")
        return found

    def wrong(self, key: str, what: str) -> GrammarSyntaxError:
        """The error for a field that is not `what` it should be."""
        return GrammarSyntaxError(f"{key} of {self.kind} must be {what}", self.place_of(key))

    def only(self, known: Iterable[str]) -> None:
        """Refuse the first field that is not `known`. Raises `GrammarUnsupported`."""
        for key in self.value:
            if key not in known:
                raise GrammarUnsupported(f"{self.kind} has no field {key!r}", self.place_of(key))

    def string(self, key: str) -> str:
        """A string."""
        found = self.get(key)
        if not isinstance(found, str):
            raise self.wrong(key, "a string")
        return found

    def flag(self, key: str, default: bool) -> bool:
        """A boolean."""
        found = self.get(key, default)
        if not isinstance(found, bool):
            raise self.wrong(key, "true or false")
        return found

    def number(self, key: str, default: Any = _MISSING, least: int = 0) -> int | None:
        """An integer; None where it is null and need not be there."""
        found = self.get(key, default)
        if found is None and default is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int) or found < least:
            raise self.wrong(key, f"an integer from {least} on")
        return found

    def items(self, key: str, default: Any = _MISSING) -> list[tuple[Any, str]]:
        """The items of a list, which may be empty only if it need not be there, and the place of each."""
        found = self.get(key, default)
        if isinstance(found, (str, Mapping)) or not isinstance(found, Iterable):
            raise self.wrong(key, "a list")
        items = [(value, f"{self.place_of(key)}/{number}") for number, value in enumerate(found)]
        if not items and default is _MISSING:
            raise self.wrong(key, "a list that is not empty")
        return items

    def strings(self, key: str, *, required: bool = False, empty: bool = False) -> list[str]:
        """The strings of a list, which must be there only if `required`; none of them is empty unless `empty`."""
        found = []
        for value, place in self.items(key) if required else self.items(key, []):
            if not isinstance(value, str) or not (value or empty):
                raise GrammarSyntaxError(f"{key} of {self.kind} must be strings that are not empty", place)
            literal(value, place)
            found.append(value)
        return found


def within(place: str, key: object) -> str:
    """The JSON pointer (RFC 6901) of `key` in what stands at `place`."""
    return f"{place}/{str(key).replace('~', '~0').replace('/', '~1')}"


def literal(text: str, place: str) -> Bytes:
    """`text` itself. Raises `GrammarSyntaxError` for a lone surrogate."""
    try:
        return Bytes(text.encode(), source=Source(text, place))
    except UnicodeEncodeError as error:
        message = f"{text!r} holds a lone surrogate, which is not text"
        raise GrammarSyntaxError(message, f"{place}, column {error.start + 1}") from None


def parse_json(text: str, place: str) -> Any:
    """JSON text, strictly: no constant that JSON does not have, no key twice in an object."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise GrammarSyntaxError(f"the key {key!r} is there twice", place or None)
            found[key] = value
        return found

    def refuse(constant: str) -> Any:
        raise GrammarSyntaxError(f"{constant} is not JSON", place or None)

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}:{error.colno}"
        raise GrammarSyntaxError(f"this is not JSON: {error.msg}", f"{place}, {where}" if place else where) from None
    except RecursionError:
        raise GrammarTooLarge("the JSON is nested too deeply", place or None, limit="max_depth") from None


def described(value: Any, place: str) -> str:
    """A value as JSON text; what is no JSON in it by its representation. Raises `GrammarError` for one in itself."""
    try:
        return _TEXT_OF(value)
    except RecursionError:
        raise GrammarTooLarge("the JSON is nested too deeply", place or None, limit="max_depth") from None
    except ValueError:
        raise GrammarSyntaxError("the JSON holds itself", place or None) from None
