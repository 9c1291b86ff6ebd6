"""Contents of structural tags that follow a JSON Schema, in each of the styles in which models write arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from .errors import GrammarSyntaxError, GrammarUnsupported
from .expression import Expression, Grammar
from .json_fields import Fields, described
from .json_value import DEFAULT_MAX_WHITESPACE, json_object, json_value
from .markers import Markers
from .nested_values import STYLES as NESTED_STYLES
from .nested_values import nested_values
from .xml_parameters import STYLES as FLAT_STYLES
from .xml_parameters import Layout, xml_parameters


class Embedded(Protocol):
    """A reference to the start rule of a grammar, which is made once for each key."""

    def __call__(self, key: Any, place: str, make: Callable[[], Grammar], kept: Any = None) -> Expression:
        """`kept` is what the key is the identity of, if it is."""


class SchemaReader:
    """Reads schemas into expressions; what these refer to is embedded or among `rules`."""

    def __init__(self, embedded: Embedded, rules: dict[str, Expression], markers: Markers) -> None:
        self._embedded = embedded
        self._rules = rules
        self._markers = markers

    def read(self, fields: Fields, style: str | None = None) -> Expression:
        """The format `json_schema`, or one that has that field and is of this style."""
        if style is None:
            style = fields.get("style", "json")
        if style != "json" and style not in FLAT_STYLES and style not in NESTED_STYLES:
            message = f"the style {style!r} of json_schema is not supported"
            raise GrammarUnsupported(message, fields.place_of("style"))
        excludes = tuple(dict.fromkeys(fields.strings("excludes")))
        options: dict[str, Any] = {"excludes": excludes} if excludes else {}
        if fields.flag("any_order", False):
            options["property_order"] = "any"
        most = fields.number("max_whitespace_cnt", None)
        if most is not None:
            options["max_whitespace"] = most
        schema, place = fields.get("json_schema"), fields.place_of("json_schema")
        if style == "json":
            return self.json(schema, place, options)
        layout = Layout(
            options.get("max_whitespace", DEFAULT_MAX_WHITESPACE), "property_order" in options, excludes, self._markers
        )

        def read_schema(value: Any, where: str) -> Expression:
            return self.json(value, where, options)

        if style in FLAT_STYLES:
            return xml_parameters(schema, place, style, read_schema, layout)
        return nested_values(schema, place, style, read_schema, layout, self._rules)

    def json(self, schema: Any, place: str, options: dict[str, Any]) -> Expression:
        """JSON that follows `schema`; the front end for schemas is not needed where there is nothing to follow."""
        if isinstance(schema, (bool, Mapping)):
            plain = dict(schema) if isinstance(schema, Mapping) else {} if schema else None
            if plain in ({}, {"type": "object"}) and "excludes" not in options:
                spaces = {name: bound for name, bound in options.items() if name == "max_whitespace"}
                make = json_object if plain else json_value
                return self._embedded(("json", make, *spaces.items()), place, lambda: make(**spaces))
        elif not isinstance(schema, type):  # a pydantic model is left to the front end
            raise GrammarSyntaxError("a JSON Schema is an object or a boolean", place)
        from .json_schema import json_schema  # and what it needs to resolve references

        identity = id(schema) if isinstance(schema, type) else described(schema, place)
        return self._embedded(
            ("schema", identity, *options.items()),
            place,
            lambda: json_schema(schema, **options),
            schema,
        )
