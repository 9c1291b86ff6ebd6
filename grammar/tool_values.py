"""Schemas of tool parameters, taken apart by kind of value.

The formats of tool calls that are no JSON write strings raw, and say at times of what kind a value is. So what a schema
allows is needed kind by kind. What is not taken apart here is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import GrammarSyntaxError, GrammarUnsatisfiable, GrammarUnsupported
from .expression import ANY_CHARACTER, Expression, Intersection, Repeat
from .json_fields import Fields, within

#: The kinds of JSON values.
KINDS = ("string", "number", "boolean", "null", "array", "object")
#: Keywords that say nothing about what is valid.
ANNOTATIONS = (
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema", "$id"
)  # fmt: skip
#: Where schemas stand that are only referred to.
DEFINITIONS = ("$defs", "definitions")


@dataclass(frozen=True)
class Values:
    """What a schema allows of one kind.

    `kind`: one of `KINDS`, or "any" for every value whatever. `schema` allows values of that kind alone; `place` is
    its JSON pointer. `listed`: the values, where they are listed.
    """

    kind: str
    schema: Mapping[str, Any]
    place: str
    listed: tuple[Any, ...] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether all values of the kind are allowed."""
        return self.listed is None and not set(self.schema) - {"type", *ANNOTATIONS}


class Schemas:
    """The schema of the parameters of a tool, `document`, at the JSON pointer `place`, and those within it."""

    def __init__(self, document: Mapping[str, Any], place: str) -> None:
        self._document = document
        self._place = place

    def with_definitions(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """`schema` as a document of its own, in which references lead where they did."""
        return {**{key: self._document[key] for key in DEFINITIONS if key in self._document}, **schema}

    def values(self, schema: Any, place: str) -> list[Values]:
        """What `schema`, which stands at `place`, allows; one of each kind or several.

        Raises `GrammarUnsupported` where that is not clear kind by kind.
        """
        return self._values(schema, place, ())

    def _values(self, schema: Any, place: str, references: tuple[str, ...]) -> list[Values]:
        schema = {} if schema is True else schema
        if not isinstance(schema, Mapping):
            raise GrammarSyntaxError("the schema of a parameter is an object, or true", place)
        keys = {key for key in schema if key not in ANNOTATIONS}
        if not keys:
            return [Values("any", schema, place)]
        if keys == {"$ref"}:
            target = schema["$ref"]
            if target in references:
                raise GrammarUnsupported(f"the reference {target!r} leads back to itself", within(place, "$ref"))
            return self._values(self._resolved(target, within(place, "$ref")), place, (*references, target))
        if len(keys) == 1 and not keys.isdisjoint(("allOf", "anyOf", "oneOf")):
            return self._combined(schema, keys.pop(), place, references)
        kind = schema.get("type")
        if isinstance(kind, list) and kind:
            return [one for each in kind for one in self._values({**schema, "type": each}, place, references)]
        if kind == "integer":
            return [Values("number", schema, place)]
        if kind in KINDS and kind != "string":
            return [Values(str(kind), schema, place)]
        if kind not in (None, "string"):
            raise GrammarUnsupported(f"there is no type {kind!r}", within(place, "type"))
        for key in ("const", "enum"):
            if {key} <= keys <= {key, "type"}:
                return list(self._listed(schema, key, place))
        if kind is None:
            raise GrammarUnsupported("the type of this parameter is not clear: only strings stand raw", place)
        return [Values("string", schema, place)]

    def _combined(self, schema: Any, key: str, place: str, references: tuple[str, ...]) -> list[Values]:
        options = Fields(schema, "the schema of a parameter", place).items(key)
        if key == "allOf" and len(options) > 1:
            message = "allOf of several schemas is not supported: write what they ask for in one"
            raise GrammarUnsupported(message, within(place, key))
        found = [self._values(option, inner, references) for option, inner in options]
        if key == "oneOf":
            kinds = [kind for values in found for kind in {one.kind for one in values}]
            if len(set(kinds)) < len(kinds) or (len(found) > 1 and "any" in kinds):
                message = "oneOf is not supported but for schemas of different types: use anyOf"
                raise GrammarUnsupported(message, within(place, key))
        return [one for values in found for one in values]

    def _listed(self, schema: Mapping[str, Any], key: str, place: str) -> Iterable[Values]:
        fields = Fields(schema, "the schema of a parameter", place)
        values = [schema["const"]] if key == "const" else [value for value, _ in fields.items("enum")]
        for kind in KINDS:
            of_kind = tuple(value for value in values if kind_of(value, within(place, key)) == kind)
            if of_kind and schema.get("type", kind) == kind:
                yield Values(kind, {"enum": list(of_kind)}, within(place, key), of_kind)

    def _resolved(self, reference: Any, place: str) -> Any:
        """What a reference within the document leads to, a JSON pointer (RFC 6901) behind ``#``."""
        found: Any = self._document
        if reference == "#":
            return found
        if not isinstance(reference, str) or not reference.startswith("#/"):
            raise GrammarUnsupported(f"the reference {reference!r} leads out of the schema", place)
        for key in reference[2:].split("/"):
            key = key.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            elif isinstance(found, Mapping) and key in found:
                found = found[key]
            else:
                raise GrammarSyntaxError(f"the reference {reference!r} leads nowhere", place)
        return found


def kind_of(value: Any, place: str) -> str:
    """The kind of a JSON value. Raises `GrammarSyntaxError` for what is none."""
    kinds = ((str, "string"), (bool, "boolean"), ((int, float), "number"), (list, "array"), (Mapping, "object"))
    for types, kind in kinds:
        if isinstance(value, types):
            return kind
    if value is not None:
        raise GrammarSyntaxError(f"{value!r} is no JSON value", place)
    return "null"


def constrained_text(values: Values, text: Expression) -> Expression:
    """Strings of `text` that satisfy the schema of strings, which does not list them.

    A length is in code points, a pattern is found in the string as JSON Schema has it, and the formats are those of
    the front end for schemas. Raises `GrammarUnsupported` for other keywords.
    """
    fields = Fields(values.schema, "a string parameter", values.place)
    fields.only(("type", "minLength", "maxLength", "pattern", "format", *ANNOTATIONS))
    least, most = fields.number("minLength", 0), fields.number("maxLength", None)
    assert least is not None
    operands: list[Expression] = [text]
    if least or most is not None:
        operands.append(Repeat(ANY_CHARACTER, least, most))
    if "pattern" in values.schema or "format" in values.schema:
        from .json_schema.formats import FORMATS
        from .json_schema.patterns import pattern_content

        if "pattern" in values.schema:
            operands.append(pattern_content(fields.string("pattern")))
        if "format" in values.schema:
            name = fields.string("format")
            if name not in FORMATS:
                raise GrammarUnsupported(f"the format {name!r} is not known", fields.place_of("format"))
            operands.append(FORMATS[name].expression)
    return operands[0] if len(operands) == 1 else Intersection(tuple(operands))


def writable(values: Values, excluded: Iterable[str]) -> list[str]:
    """The strings among the listed values that hold none of `excluded`. Raises `GrammarUnsatisfiable` for none."""
    excluded = [text for text in excluded if text]
    found = [value for value in values.listed or () if not any(text in value for text in excluded)]
    if not found:
        raise GrammarUnsatisfiable("each of the values holds a text that may not stand in it", values.place)
    return found
