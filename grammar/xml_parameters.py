"""Parameters of a tool call as XML elements, one a parameter, the way some models write them.

Values that are strings stand raw, up to the closing tag; all others are JSON. As in xgrammar, a schema with
`properties` allows no others unless `additionalProperties` does: they are the signature of a tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from .errors import GrammarSyntaxError, GrammarUnsupported
from .expression import (
    ANY_CHARACTER,
    Alternation,
    Bytes,
    Characters,
    Complement,
    Expression,
    Intersection,
    Repeat,
    Sequence,
)
from .json_fields import Fields, literal, within
from .triggers import text_without


@dataclass(frozen=True)
class _Style:
    """What stands before a key, behind that of a string and behind that of any other value, and around a value."""

    before: str
    behind_string: str
    behind_json: str
    opening: str
    closing: str


STYLES = {
    "qwen_xml": _Style("<parameter=", ">", ">", "", "</parameter>"),
    "minimax_xml": _Style('<parameter name="', '">', '">', "", "</parameter>"),
    "glm_xml": _Style("<arg_key>", "</arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    "deepseek_xml": _Style(
        '<｜DSML｜parameter name="', '" string="true">', '" string="false">', "", "</｜DSML｜parameter>"
    ),
    "deepseek_v4_1_xml": _Style(
        '<｜DSML｜ parameter name="', '" string="true">', '" string="false">', "", "</｜DSML｜ parameter>"
    ),
}

#: Keywords that say nothing about what is valid.
_ANNOTATIONS = ("title", "description", "default", "examples", "deprecated", "$comment", "$schema")
_DEFINITIONS = ("$defs", "definitions")
_JSON_TYPES = ("integer", "number", "boolean", "null", "array", "object")

_BLANKS = Characters(((0x09, 0x0A), (0x0D, 0x0D), (0x20, 0x20)))
_FIRST_LETTER = ((0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_NAME = Sequence((Characters(_FIRST_LETTER), Repeat(Characters(((0x30, 0x39), *_FIRST_LETTER)), 0, None)))

#: The expression of JSON that follows a schema (the front end for schemas), by schema and place.
ReadSchema = Callable[[Any, str], Expression]


def xml_parameters(
    schema: Any, place: str, style: str, read_schema: ReadSchema, max_whitespace: int | None
) -> Expression:
    """The parameters that the schema of an object, at the JSON pointer `place`, describes, in the order it declares.

    White space may stand around them and around values that are not plain strings. Raises `GrammarUnsupported` for
    keywords that are not enforced here; those of values that are no strings are left to `read_schema`.
    """
    return _Parameters(schema, place, style, read_schema, max_whitespace).all()


#: Expressions of the values that are strings, and of all others.
_Values = tuple[tuple[Expression, ...], tuple[Expression, ...]]


def _bytes(text: str) -> Bytes:
    return Bytes(text.encode())


def _joined(values: Iterable[_Values]) -> _Values:
    strings, others = zip(*values, strict=True)
    return tuple(chain(*strings)), tuple(chain(*others))


class _Parameters:
    def __init__(self, schema: Any, place: str, style: str, read_schema: ReadSchema, most: int | None) -> None:
        self._schema: Mapping[str, Any] = {} if schema is True else schema
        self._place = place
        self._style = STYLES[style]
        self._read_schema = read_schema
        self._blanks = Repeat(_BLANKS, 0, most)
        self._text = text_without([self._style.closing])

    def all(self) -> Expression:
        if not isinstance(self._schema, Mapping):
            raise GrammarSyntaxError("the schema of parameters is an object, or true", self._place)
        fields = Fields(self._schema, "the schema of parameters", self._place)
        known = ("type", "properties", "required", "additionalProperties")
        fields.only((*known, *_ANNOTATIONS, *_DEFINITIONS))
        if fields.get("type", "object") != "object":
            raise GrammarUnsupported("parameters are the properties of an object", fields.place_of("type"))
        properties = fields.get("properties", {})
        if not isinstance(properties, Mapping):
            raise fields.wrong("properties", "an object")
        required = fields.strings("required", empty=True)
        for number, name in enumerate(required):
            if name not in properties:
                message = f"the required parameter {name!r} is not among the properties"
                raise GrammarUnsupported(message, f"{fields.place_of('required')}/{number}")
        parts: list[Expression] = [self._blanks]
        for name, value in properties.items():
            inner = within(fields.place_of("properties"), name)
            one = Sequence((self._parameter(literal(name, inner), value, inner), self._blanks))
            parts.append(one if name in required else Repeat(one, 0, 1))
        others = fields.get("additionalProperties", "properties" not in self._schema)
        if others is not False:
            taken = Alternation(tuple(literal(name, self._place) for name in properties))
            key = Intersection((_NAME, Complement(taken))) if properties else _NAME
            more = self._parameter(key, others, fields.place_of("additionalProperties"))
            parts.append(Repeat(Sequence((more, self._blanks)), 0, None))
        return Sequence(tuple(parts))

    def _parameter(self, key: Expression, schema: Any, place: str) -> Expression:
        style = self._style
        strings, others = self._values(schema, place, ())
        options = [(style.behind_string, strings), (style.behind_json, others)]
        if style.behind_string == style.behind_json:
            options = [(style.behind_string, (*strings, *others))]
        values = tuple(
            Sequence((_bytes(behind), *self._opening(), Alternation(found))) for behind, found in options if found
        )
        return Sequence((_bytes(style.before), key, Alternation(values), _bytes(style.closing)))

    def _opening(self) -> tuple[Expression, ...]:
        return (self._blanks, _bytes(self._style.opening)) if self._style.opening else ()

    def _values(self, schema: Any, place: str, references: tuple[str, ...]) -> _Values:
        """What may stand between the tags of a parameter: the strings, and the JSON of other values."""
        schema = {} if schema is True else schema
        if not isinstance(schema, Mapping):
            raise GrammarSyntaxError("the schema of a parameter is an object, or true", place)
        keys = tuple(key for key in schema if key not in _ANNOTATIONS)
        if not keys:  # as text it takes all JSON in, so that need not be told apart
            told_apart = self._style.behind_string != self._style.behind_json
            return (self._text,), (self._spaced(self._json({}, place)),) if told_apart else ()
        kind = schema.get("type")
        if keys == ("type",) and kind == "string":
            return (self._text,), ()
        if keys == ("$ref",):
            target = schema["$ref"]
            if target in references:
                raise GrammarUnsupported(f"the reference {target!r} leads back to itself", within(place, "$ref"))
            return self._values(self._resolved(target, within(place, "$ref")), place, (*references, target))
        if keys == ("anyOf",):
            options = Fields(schema, "the schema of a parameter", place).items("anyOf")
            return _joined(self._values(option, inner, references) for option, inner in options)
        if isinstance(kind, list) and kind:
            return _joined(self._values({**schema, "type": one}, place, references) for one in kind)
        if kind in _JSON_TYPES:
            return (), (self._spaced(self._json(schema, place)),)
        if {"const"} <= set(keys) <= {"const", "type"}:
            return self._listed([schema["const"]], kind, place, "const")
        if {"enum"} <= set(keys) <= {"enum", "type"}:
            values = Fields(schema, "the schema of a parameter", place).items("enum")
            return self._listed([value for value, _ in values], kind, place, "enum")
        if kind == "string":
            return (self._spaced(self._string(schema, place)),), ()
        raise GrammarUnsupported("the type of this parameter is not clear: only strings stand raw", place)

    def _spaced(self, value: Expression) -> Expression:
        return Sequence((self._blanks, value, self._blanks))

    def _listed(self, values: list[Any], kind: Any, place: str, key: str) -> _Values:
        """Just these values; of `kind` string or None, for any."""
        if kind not in (None, "string"):
            raise GrammarUnsupported(f"there is no type {kind!r}", within(place, "type"))
        raw = [value for value in values if isinstance(value, str)]
        for text in raw:
            if self._style.closing in text:
                raise GrammarUnsupported(f"the value {text!r} holds the tag that ends it", within(place, key))
        strings = tuple(self._spaced(literal(text, within(place, key))) for text in raw)
        others = [value for value in values if not isinstance(value, str)] if kind is None else []
        return strings, (self._spaced(self._json({"enum": others}, place)),) if others else ()

    def _string(self, schema: Mapping[str, Any], place: str) -> Expression:
        fields = Fields(schema, "a string parameter", place)
        fields.only(("type", "minLength", "maxLength", *_ANNOTATIONS))
        least = fields.number("minLength", 0)
        assert least is not None
        return Intersection((self._text, Repeat(ANY_CHARACTER, least, fields.number("maxLength", None))))

    def _json(self, schema: Mapping[str, Any], place: str) -> Expression:
        definitions = {key: self._schema[key] for key in _DEFINITIONS if key in self._schema}
        return self._read_schema({**definitions, **schema}, place)

    def _resolved(self, reference: Any, place: str) -> Any:
        """What a reference within the document leads to, a JSON pointer (RFC 6901) behind ``#``."""
        found: Any = self._schema
        if not isinstance(reference, str) or not reference.startswith("#/"):
            raise GrammarUnsupported(f"the reference {reference!r} leads out of the schema", place)
        for key in reference[2:].split("/"):
            key = key.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or key not in found:
                raise GrammarSyntaxError(f"the reference {reference!r} leads nowhere", place)
            found = found[key]
        return found
