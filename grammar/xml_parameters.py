"""Parameters of a tool call as XML elements, one a parameter, the way some models write them.

Values that are strings stand raw, up to the closing tag; all others are JSON. As in xgrammar, a schema with
`properties` allows no others unless `additionalProperties` does: they are the signature of a tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import GrammarSyntaxError, GrammarUnsatisfiable, GrammarUnsupported
from .expression import (
    EMPTY,
    Alternation,
    Bytes,
    Characters,
    Complement,
    Condition,
    Expression,
    Intersection,
    Member,
    Members,
    Repeat,
    Sequence,
    Token,
)
from .json_fields import Fields, literal, within
from .markers import Markers
from .simplify import contains
from .tool_values import ANNOTATIONS, DEFINITIONS, KINDS, Schemas, Values, constrained_text, writable
from .triggers import text_without


@dataclass(frozen=True)
class _Style:
    """What stands before a key and behind it, around a value, and what says of which kind the value is.

    `kinds`: what stands behind the key and `behind`, by kind of value; "": nothing, for all kinds. `names`: other names
    of kinds, which only a value of any kind may have. `escapes`: characters of keys that are written otherwise.
    """

    before: str
    behind: str
    closing: str
    opening: str = ""
    kinds: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(KINDS, ""))
    names: Mapping[str, str] = field(default_factory=dict)
    escapes: Mapping[str, str] = field(default_factory=dict)

    def key(self, name: str) -> str:
        """A key as it is written."""
        return "".join(self.escapes.get(letter, letter) for letter in name)


def _deepseek(space: str) -> _Style:
    kinds = {kind: 'true">' if kind == "string" else 'false">' for kind in KINDS}
    return _Style(f'<｜DSML｜{space}parameter name="', '" string="', f"</｜DSML｜{space}parameter>", kinds=kinds)


STYLES = {
    "qwen_xml": _Style("<parameter=", ">", "</parameter>"),
    "minimax_xml": _Style('<parameter name="', '">', "</parameter>"),
    "glm_xml": _Style("<arg_key>", "</arg_key>", "</arg_value>", "<arg_value>"),
    "deepseek_xml": _deepseek(""),
    "deepseek_v4_1_xml": _deepseek(" "),
    "kimi_k3_xml": _Style(
        '<|open|>argument key="',
        '" type="',
        "<|close|>argument<|sep|>",
        kinds={kind: f'{kind}"<|sep|>' for kind in KINDS},
        names={"integer": 'integer"<|sep|>'},
        escapes={"&": "&amp;", '"': "&quot;"},
    ),
}

_BLANKS = Characters(((0x09, 0x0A), (0x0D, 0x0D), (0x20, 0x20)))
_FIRST_LETTER = ((0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
#: Names of parameters that no schema names.
NAME = Sequence((Characters(_FIRST_LETTER), Repeat(Characters(((0x30, 0x39), *_FIRST_LETTER)), 0, None)))

#: The expression of JSON that follows a schema (the front end for schemas), by schema and place.
ReadSchema = Callable[[Any, str], Expression]


@dataclass(frozen=True)
class Layout:
    """How parameters are written besides their style.

    `max_whitespace`: characters in a run of white space, None for any number. With `any_order` parameters may stand in
    any order, each at most once. None of `excludes` may be in a string or a name.
    """

    max_whitespace: int | None
    any_order: bool
    excludes: tuple[str, ...]
    markers: Markers

    @property
    def blanks(self) -> Expression:
        """A run of white space."""
        return Repeat(_BLANKS, 0, self.max_whitespace)

    def holds_excluded(self, name: str) -> bool:
        """Whether a name cannot be written."""
        return any(text in name for text in self.excludes)


@dataclass(frozen=True)
class Signature:
    """The schema of an object taken apart: the schemas of its properties, which are required, and that of others.

    `others` is False where no others are allowed.
    """

    properties: Mapping[str, tuple[Any, str]]
    required: frozenset[str]
    others: Any
    place: str

    @classmethod
    def read(cls, schema: Mapping[str, Any], place: str, layout: Layout) -> Signature:
        """Raises `GrammarUnsupported` for keywords that are not enforced."""
        fields = Fields(schema, "the schema of parameters", place)
        known = ("type", "properties", "required", "additionalProperties")
        fields.only((*known, *ANNOTATIONS, *DEFINITIONS))
        if fields.get("type", "object") != "object":
            raise GrammarUnsupported("parameters are the properties of an object", fields.place_of("type"))
        properties = fields.get("properties", {})
        if not isinstance(properties, Mapping):
            raise fields.wrong("properties", "an object")
        required = fields.strings("required", empty=True)
        for number, name in enumerate(required):
            number_place = f"{fields.place_of('required')}/{number}"
            if name not in properties:
                message = f"the required parameter {name!r} is not among the properties"
                raise GrammarUnsupported(message, number_place)
            if layout.holds_excluded(name):
                raise GrammarUnsatisfiable(f"the required parameter {name!r} holds an excluded text", number_place)
        return cls(
            {
                name: (value, within(fields.place_of("properties"), name))
                for name, value in properties.items()
                if not layout.holds_excluded(name)
            },
            frozenset(required),
            fields.get("additionalProperties", "properties" not in schema),
            place,
        )


#: Parameters: the text up to where it is known which one it is, the rest, and a bit. None: as many as one likes.
Parts = Iterable[tuple[Expression, Expression, int | None]]


def any_order(parts: Parts, required: int, separator: Expression, place: str) -> Members:
    """Parameters in any order, those of the bit set `required` among them. Raises `GrammarUnsupported`."""
    options = tuple(Member(key, rest, bit) for key, rest, bit in parts)
    if any(contains(option.key, Token) for option in options):
        raise GrammarUnsupported("any_order with names between special tokens is not supported", place)
    return Members(options, separator, (Condition(required=required),))


def arranged(parts: Parts, required: int, layout: Layout, place: str) -> Expression:
    """Parameters one after the other, white space around them."""
    spaced = [(key, Sequence((rest, layout.blanks)), bit) for key, rest, bit in parts]
    if layout.any_order:
        return Sequence((layout.blanks, any_order(spaced, required, EMPTY, place)))
    found: list[Expression] = [layout.blanks]
    for key, rest, bit in spaced:
        least = 0 if bit is None else required >> bit & 1
        found.append(Repeat(Sequence((key, rest)), least, None if bit is None else 1))
    return Sequence(tuple(found))


def xml_parameters(schema: Any, place: str, style: str, read_schema: ReadSchema, layout: Layout) -> Expression:
    """The parameters that the schema of an object, at the JSON pointer `place`, describes, in the order it declares.

    White space may stand around them and around values that are not plain strings. Raises `GrammarUnsupported` for
    keywords that are not enforced here; those of values that are no strings are left to `read_schema`.
    """
    return _Parameters(schema, place, style, read_schema, layout).all()


class _Parameters:
    def __init__(self, schema: Any, place: str, style: str, read_schema: ReadSchema, layout: Layout) -> None:
        schema = {} if schema is True else schema
        if not isinstance(schema, Mapping):
            raise GrammarSyntaxError("the schema of parameters is an object, or true", place)
        self._schemas = Schemas(schema, place)
        self._signature = Signature.read(schema, place, layout)
        self._place = place
        self._style = STYLES[style]
        self._read_schema = read_schema
        self._layout = layout
        self._text = layout.markers.text_before(self._style.closing, layout.excludes)

    def all(self) -> Expression:
        signature, style = self._signature, self._style
        parts: list[tuple[Expression, Expression, int | None]] = []
        required = 0
        for bit, (name, (value, inner)) in enumerate(signature.properties.items()):
            key = self._key(literal(style.key(name), inner), inner)
            parts.append((key, self._value(value, inner), bit))
            required |= (name in signature.required) << bit
        if signature.others is not False:
            place = within(self._place, "additionalProperties")
            key = self._key(other_names(NAME, signature.properties, self._layout.excludes), place)
            parts.append((key, self._value(signature.others, place), None))
        return arranged(parts, required, self._layout, self._place)

    def _literal(self, text: str, place: str) -> Expression:
        return self._layout.markers.literal(text, place)

    def _key(self, name: Expression, place: str) -> Expression:
        return Sequence((self._literal(self._style.before, place), name, self._literal(self._style.behind, place)))

    def _value(self, schema: Any, place: str) -> Expression:
        """What stands behind a key and what always follows it, up to the end of the parameter."""
        by_kind: dict[str, list[Expression]] = {}
        for kind, value in self._texts(schema, place):
            by_kind.setdefault(kind, []).append(value)
        opening = (self._layout.blanks, self._literal(self._style.opening, place)) if self._style.opening else ()
        options = tuple(
            Sequence((self._literal(kind, place), *opening, Alternation(tuple(values))))
            for kind, values in by_kind.items()
        )
        return Sequence((Alternation(options), self._literal(self._style.closing, place)))

    def _texts(self, schema: Any, place: str) -> Iterable[tuple[str, Expression]]:
        """What may stand between the tags of a parameter, each with what says of which kind it is."""
        kinds = self._style.kinds
        for values in self._schemas.values(schema, place):
            if values.kind == "any":
                yield from self._any(values)
            elif values.kind == "string":
                yield kinds["string"], self._string(values)
            else:
                yield kinds[values.kind], self._spaced(self._json(values.schema, values.place))

    def _any(self, values: Values) -> Iterable[tuple[str, Expression]]:
        style = self._style
        yield style.kinds["string"], self._text
        others = {text: kind for kind, text in style.kinds.items() if text != style.kinds["string"]}
        if len(others) == 1:  # as text it takes all JSON in, so that need not be told apart where nothing tells it
            yield next(iter(others)), self._spaced(self._json({}, values.place))
        elif others:
            others |= {text: kind for kind, text in style.names.items()}
            for text, kind in others.items():
                yield text, self._spaced(self._json({"type": kind}, values.place))

    def _spaced(self, value: Expression) -> Expression:
        return Sequence((self._layout.blanks, value, self._layout.blanks))

    def _string(self, values: Values) -> Expression:
        if values.listed is None:
            text = constrained_text(values, self._text)
            return text if values.is_plain else self._spaced(text)
        for text in values.listed:
            if not self._layout.markers.stand_in(self._style.closing) and self._style.closing in text:
                raise GrammarUnsupported(f"the value {text!r} holds the tag that ends it", values.place)
        found = writable(values, self._layout.excludes)
        return self._spaced(Alternation(tuple(literal(text, values.place) for text in found)))

    def _json(self, schema: Mapping[str, Any], place: str) -> Expression:
        return self._read_schema(self._schemas.with_definitions(schema), place)


def other_names(names: Expression, taken: Iterable[str], excludes: Iterable[str]) -> Expression:
    """Those of a regular language of `names` that are none of `taken` and hold none of `excludes`."""
    operands = [names]
    listed = tuple(Bytes(name.encode()) for name in taken)
    if listed:
        operands.append(Complement(Alternation(listed)))
    excludes = tuple(excludes)
    if excludes:
        operands.append(text_without(excludes))
    return operands[0] if len(operands) == 1 else Intersection(tuple(operands))
