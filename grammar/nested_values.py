"""Arguments of a tool call in formats that are not JSON at any depth: objects and arrays have a form of their own.

Cohere's ``<cofl:value name="k" type="dict">...</cofl:value>``, Gemma 4's ``{k:<|"|>text<|"|>,l:[1]}``, and
``]<]minimax[>[<k>...]<]minimax[>[</k>`` of MiniMax M3. Strings stand raw in all of them. Within a schema with
`properties` no others are allowed unless `additionalProperties` says so, and behind `prefixItems` none unless `items`
does, as these are the signature of a tool. What is not enforced is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .errors import GrammarSyntaxError, GrammarUnsupported
from .expression import (
    ALL_CODE_POINTS,
    EMPTY,
    Alternation,
    Bytes,
    Characters,
    Expression,
    Machine,
    Reference,
    Repeat,
    Sequence,
    Source,
)
from .json_fields import Fields, literal, within
from .ranges import subtract
from .tool_values import ANNOTATIONS, Schemas, Values, constrained_text, writable
from .xml_parameters import NAME, Layout, Parts, ReadSchema, Signature, any_order, arranged, other_names

#: A value with what says of which kind it is (one of `tool_values.KINDS`).
_Typed = tuple[str, Expression]


def nested_values(
    schema: Any, place: str, style: str, read_schema: ReadSchema, layout: Layout, rules: dict[str, Expression]
) -> Expression:
    """The arguments that the schema of an object, at the JSON pointer `place`, describes; `style` is one of `STYLES`.

    Objects and arrays become rules, added to `rules`. Scalars that are no strings are left to `read_schema`.
    """
    schema = {} if schema is True else schema
    if not isinstance(schema, Mapping):
        raise GrammarSyntaxError("the schema of arguments is an object, or true", place)
    return STYLES[style](schema, place, read_schema, layout, rules).whole(schema, place)


class _Writer:
    """Writes the values of a schema; what all styles have in common."""

    #: What may not stand in a string besides what the layout excludes.
    closing: str

    def __init__(
        self,
        document: Mapping[str, Any],
        place: str,
        read_schema: ReadSchema,
        layout: Layout,
        rules: dict[str, Expression],
    ) -> None:
        self._schemas = Schemas(document, place)
        self._place = place
        self._read_schema = read_schema
        self._rules = rules
        self._known: dict[tuple[int, str], str] = {}
        self.layout = layout
        self.blanks = layout.blanks
        self.text = layout.markers.text_before(self.closing, layout.excludes)

    # What styles differ in

    def member(self, name: Expression, value: Any, place: str) -> tuple[Expression, Expression]:
        """A member of an object: its text up to where its name is known, and the rest."""
        raise NotImplementedError

    def members(self, members: Parts, required: int) -> Expression:
        """The body of an object: members with a bit at most once, those of the bit set `required` at least once."""
        return arranged(members, required, self.layout, self._place)

    def items(self, first: list[Any], rest: Any, least: int, most: int | None, place: str) -> Expression:
        """An array of at most `most` items: those of the schemas `first`, then of `rest` (False: no more)."""
        raise NotImplementedError

    def string(self, text: Expression, *, is_plain: bool) -> Expression:
        """A string; `is_plain` where nothing is asked of it."""
        raise NotImplementedError

    def any(self, place: str) -> Iterable[_Typed]:
        """Every value whatever."""
        raise NotImplementedError

    def listed_value(self, value: Any, place: str) -> Expression:
        """One value that is no string."""
        return self.json({"const": value}, place)

    def other_name(self, taken: Iterable[str], place: str) -> Expression:
        """Names that no schema names, without `taken`."""
        return other_names(NAME, taken, self.layout.excludes)

    def name(self, name: str, place: str) -> Expression:
        """A name as it is written."""
        return literal(name, place)

    # What they have in common

    def raw(self, text: str, place: str) -> Expression:
        """A string within a listed value, as it stands."""
        if self.closing in text and not self.layout.markers.stand_in(self.closing):
            raise GrammarUnsupported(f"the value {text!r} holds what ends it", place)
        return literal(text, place)

    def whole(self, schema: Mapping[str, Any], place: str) -> Expression:
        """All arguments."""
        return self._object(schema, place)

    def marker(self, text: str, place: str) -> Expression:
        """What is no part of a value."""
        return self.layout.markers.literal(text, place)

    def json(self, schema: Mapping[str, Any], place: str) -> Expression:
        """A value that is no string, object or array."""
        return self._read_schema(self._schemas.with_definitions(schema), place)

    def typed(self, schema: Any, place: str) -> Iterable[_Typed]:
        """The values that `schema` allows."""
        for values in self._schemas.values(schema, place):
            if values.kind == "any":
                yield from self.any(values.place)
            elif values.kind == "string":
                yield "string", self._string(values)
            elif values.listed is not None:
                found = tuple(self.listed_value(value, values.place) for value in values.listed)
                yield ("listed" if values.kind in ("array", "object") else values.kind), Alternation(found)
            elif values.kind in ("array", "object"):
                yield values.kind, self._composite(values)
            else:
                yield values.kind, self.json(values.schema, values.place)

    def _string(self, values: Values) -> Expression:
        if values.listed is None:
            return self.string(constrained_text(values, self.text), is_plain=values.is_plain)
        excluded = self.layout.excludes
        if not self.layout.markers.stand_in(self.closing):
            excluded = (*excluded, self.closing)
        texts = tuple(literal(text, values.place) for text in writable(values, excluded))
        return self.string(Alternation(texts), is_plain=False)

    def _composite(self, values: Values) -> Reference:
        """An object or array, which is a rule, as it may hold itself."""
        key = id(values.schema), values.kind
        if key not in self._known:
            name = f"{values.place} {values.kind}"
            number = 1
            while name in self._rules:
                number += 1
                name = f"{values.place} {values.kind} ({number})"
            self._known[key] = name
            self._rules[name] = EMPTY  # until it is known
            make = self._object if values.kind == "object" else self._array
            self._rules[name] = make(values.schema, values.place)
        name = self._known[key]
        return Reference(name, source=Source(values.kind, values.place))

    def rule(self, name: str, make: Callable[[], Expression]) -> Reference:
        """A rule that is made once and may refer to itself."""
        name = f"{self._place} {name}"
        if name not in self._rules:
            self._rules[name] = EMPTY
            self._rules[name] = make()
        return Reference(name)

    def _object(self, schema: Mapping[str, Any], place: str) -> Expression:
        signature = Signature.read(schema, place, self.layout)
        found: list[tuple[Expression, Expression, int | None]] = []
        required = 0
        for bit, (name, (value, inner)) in enumerate(signature.properties.items()):
            found.append((*self.member(self.name(name, inner), value, inner), bit))
            required |= (name in signature.required) << bit
        if signature.others is not False:
            inner = within(place, "additionalProperties")
            found.append((*self.member(self.other_name(signature.properties, inner), signature.others, inner), None))
        return self.members(found, required)

    def _array(self, schema: Mapping[str, Any], place: str) -> Expression:
        fields = Fields(schema, "the schema of an array", place)
        fields.only(("type", "items", "prefixItems", "minItems", "maxItems", *ANNOTATIONS))
        least, most = fields.number("minItems", 0), fields.number("maxItems", None)
        assert least is not None
        first = [value for value, _ in fields.items("prefixItems", [])]
        rest = fields.get("items", not first)
        if isinstance(rest, list):
            raise GrammarUnsupported("items is a list: use prefixItems", fields.place_of("items"))
        if (most is not None and most < least) or (rest is False and least > len(first)):
            raise GrammarUnsupported("no array is as long as minItems asks for", fields.place_of("minItems"))
        return self.items(first, rest, least, most, place)

    def listed(
        self,
        item: Callable[[Any, str], Expression],
        first: list[Any],
        rest: Any,
        least: int,
        most: int | None,
        place: str,
        between: Expression,
    ) -> Expression:
        """Items in a row, `between` each two of them."""
        items = [item(value, f"{place}/prefixItems/{number}") for number, value in enumerate(first)]
        other = None if rest is False else item(rest, f"{place}/items")
        if not items and other is not None:
            items = [other]
        if most is not None:
            items = items[:most]
        tail: Expression = EMPTY
        n = len(items)
        if other is not None and (most is None or most > n):
            more = Sequence((between, other))
            tail = Repeat(more, max(0, least - n), None if most is None else most - n)
        for number in reversed(range(n)):
            tail = Sequence((between if number else EMPTY, items[number], tail))
            if number >= least:
                tail = Repeat(tail, 0, 1)
        return tail


class _Cohere(_Writer):
    closing = "</cofl:value>"
    _entities: Mapping[str, str] = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}
    #: What the format calls each kind.
    _types: Mapping[str, str] = {"string": "raw", "object": "dict", "array": "list"}

    def name(self, name: str, place: str) -> Expression:
        return literal("".join(self._entities.get(letter, letter) for letter in name), place)

    def other_name(self, taken: Iterable[str], place: str) -> Expression:
        special = tuple((ord(letter), ord(letter)) for letter in sorted((*self._entities, "\0")))
        entities = tuple(Bytes(entity.encode()) for entity in self._entities.values())
        letter = Alternation((Characters(subtract(ALL_CODE_POINTS, special)), *entities))
        written = ["".join(self._entities.get(letter, letter) for letter in name) for name in taken]
        return other_names(Repeat(letter, 1, None), written, self.layout.excludes)

    def member(self, name: Expression, value: Any, place: str) -> tuple[Expression, Expression]:
        key = Sequence((self.marker('<cofl:value name="', place), name, self.marker('" type="', place)))
        return key, self._rest(value, place)

    def _rest(self, value: Any, place: str) -> Expression:
        """An element behind what says that its type follows."""
        by_type: dict[str, list[Expression]] = {}
        for kind, body in self.typed(value, place):
            by_type.setdefault(self._types.get(kind, "json"), []).append(body)
        options = tuple(
            Sequence((literal(f'{name}">', place), self._body(name, bodies))) for name, bodies in by_type.items()
        )
        return Sequence((Alternation(options), self.marker(self.closing, place)))

    def _body(self, name: str, bodies: list[Expression]) -> Expression:
        body = Alternation(tuple(bodies))
        # Strings and objects have their own white space.
        return body if name in ("raw", "dict") else Sequence((self.blanks, body, self.blanks))

    def items(self, first: list[Any], rest: Any, least: int, most: int | None, place: str) -> Expression:
        def item(value: Any, inner: str) -> Expression:
            return Sequence((self.marker('<cofl:value type="', inner), self._rest(value, inner)))

        return self.listed(item, first, rest, least, most, place, EMPTY)

    def string(self, text: Expression, *, is_plain: bool) -> Expression:
        return text if is_plain else Sequence((self.blanks, text, self.blanks))

    def any(self, place: str) -> Iterable[_Typed]:
        yield "string", self.text
        yield "number", self.json({"type": ["number", "boolean", "null"]}, place)
        yield "object", self.rule("any object", lambda: self._object({}, place))
        yield "array", self.rule("any array", lambda: self._array({}, place))


class _Gemma(_Writer):
    closing = '<|"|>'

    def name(self, name: str, place: str) -> Expression:
        if not name or ":" in name or self.closing in name:
            raise GrammarUnsupported(f"{name!r} cannot be a name that stands without quotes", place)
        return literal(name, place)

    def member(self, name: Expression, value: Any, place: str) -> tuple[Expression, Expression]:
        return Sequence((name, self.blanks, Bytes(b":"))), Sequence((self.blanks, self._value(value, place)))

    def _value(self, value: Any, place: str) -> Expression:
        return Alternation(tuple(body for _, body in self.typed(value, place)))

    def members(self, members: Parts, required: int) -> Expression:
        comma = Sequence((self.blanks, Bytes(b","), self.blanks))
        if self.layout.any_order:
            return self._bracketed(b"{", any_order(members, required, comma, self._place), b"}")
        return self._bracketed(b"{", self._in_order(members, required, comma), b"}")

    def _in_order(self, members: Parts, required: int, separator: Expression) -> Expression:
        """Members in their order, `separator` between each two of them."""
        # State 2 i + j: the first i have been dealt with; j is 1 where some member is there.
        members = list(members)
        sources: list[int] = []
        labels: list[Expression] = []
        targets: list[int] = []
        for number, (key, rest, bit) in enumerate(members):
            again = bit is None  # such a member may stand any number of times, and is the last
            for some in range(2):
                at = 2 * number + some
                target = 2 * number + 1 if again else 2 * number + 3
                sources.append(at)
                labels.append(Sequence((separator, key, rest) if some else (key, rest)))
                targets.append(target)
                if bit is None or not required >> bit & 1:
                    sources.append(at)
                    labels.append(EMPTY)
                    targets.append(at + 2)
        end = 2 * len(members)
        return Machine(tuple(sources), tuple(labels), tuple(targets), (end, end + 1))

    def _bracketed(self, opening: bytes, inner: Expression, closing: bytes) -> Expression:
        return Sequence((Bytes(opening), self.blanks, inner, self.blanks, Bytes(closing)))

    def items(self, first: list[Any], rest: Any, least: int, most: int | None, place: str) -> Expression:
        comma = Sequence((self.blanks, Bytes(b","), self.blanks))
        return self._bracketed(b"[", self.listed(self._value, first, rest, least, most, place, comma), b"]")

    def string(self, text: Expression, *, is_plain: bool) -> Expression:
        delimiter = self.marker(self.closing, self._place)
        return Sequence((delimiter, text, delimiter))

    def listed_value(self, value: Any, place: str) -> Expression:
        if isinstance(value, str):
            return self.string(self.raw(value, place), is_plain=False)
        if isinstance(value, list):
            return self._joined(b"[", [self.listed_value(item, place) for item in value], b"]")
        if isinstance(value, Mapping):
            pairs = [
                Sequence((self.name(name, place), Bytes(b":"), self.listed_value(item, place)))
                for name, item in value.items()
            ]
            return self._joined(b"{", pairs, b"}")
        return literal(json.dumps(value), place)

    def _joined(self, opening: bytes, parts: Iterable[Expression], closing: bytes) -> Expression:
        found: list[Expression] = [Bytes(opening)]
        for number, part in enumerate(parts):
            found += [Bytes(b",") if number else EMPTY, part]
        return Sequence((*found, Bytes(closing)))

    def any(self, place: str) -> Iterable[_Typed]:
        yield "string", self.string(self.text, is_plain=True)
        yield "number", self.json({"type": ["number", "boolean", "null"]}, place)
        yield "object", self.rule("any object", lambda: self._object({}, place))
        yield "array", self.rule("any array", lambda: self._array({}, place))


class _MiniMax(_Writer):
    closing = "]<]minimax[>["
    _item = "item"

    def name(self, name: str, place: str) -> Expression:
        if not name.strip() or name.startswith("/") or ">" in name or self.closing in name:
            raise GrammarUnsupported(f"{name!r} cannot be the name of an element", place)
        return literal(name, place)

    def other_name(self, taken: Iterable[str], place: str) -> Expression:
        message = "names that no schema names are not supported: a closing tag has the name of its opening one"
        raise GrammarUnsupported(message, place)

    def any(self, place: str) -> Iterable[_Typed]:
        self.other_name((), place)
        return ()

    def member(self, name: Expression, value: Any, place: str) -> tuple[Expression, Expression]:
        key = Sequence((self.marker(f"{self.closing}<", place), name, Bytes(b">")))
        values = Alternation(tuple(body for _, body in self.typed(value, place)))
        return key, Sequence((values, self.marker(f"{self.closing}</", place), name, Bytes(b">")))

    def items(self, first: list[Any], rest: Any, least: int, most: int | None, place: str) -> Expression:
        def item(value: Any, inner: str) -> Expression:
            return Sequence((*self.member(Bytes(self._item.encode()), value, inner), self.blanks))

        inner = self.listed(item, first, rest, least, most, place, EMPTY)
        return Sequence((self.blanks, inner))

    def string(self, text: Expression, *, is_plain: bool) -> Expression:
        return text

    def listed_value(self, value: Any, place: str) -> Expression:
        if isinstance(value, str):
            return self.raw(value, place)
        if isinstance(value, list):
            return Sequence(tuple(self._element(self._item, item, place) for item in value))
        if isinstance(value, Mapping):
            return Sequence(tuple(self._element(name, item, place) for name, item in value.items()))
        return literal(json.dumps(value), place)

    def _element(self, name: str, value: Any, place: str) -> Expression:
        opening, closing = f"{self.closing}<", f"{self.closing}</"
        parts = (self.marker(opening, place), self.name(name, place), Bytes(b">"), self.listed_value(value, place))
        return Sequence((*parts, self.marker(closing, place), self.name(name, place), Bytes(b">")))


STYLES: dict[str, type[_Writer]] = {"cohere_xml": _Cohere, "gemma": _Gemma, "minimax_m3_xml": _MiniMax}
