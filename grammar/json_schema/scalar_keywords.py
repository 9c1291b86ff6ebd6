"""Keywords about values of any kind, numbers and strings."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ..errors import GrammarUnsupported
from .expand import HOLDS, Expander, Fact, Keyword, Option, State
from .formats import ANNOTATION_FORMATS, FORMATS, REFUSED_FORMATS
from .schemas import NOTHING_VALID, Schema
from .values import KINDS, Named, exact

_NUMBER, _STRING = frozenset(("number",)), frozenset(("string",))
SCALARS = ("null", "boolean", "number", "string")


def satisfies(**fields: Any) -> Fact:
    """The fact that a scalar satisfies a constraint (`StringConstraint`, `NumberConstraint`, or `ScalarClause`)."""
    return lambda clause: clause.intersect(**fields)


# ---------------------------------------------------------------------------------------------------------- any value
def _type(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    types = [value] if isinstance(value, str) else value
    if expander.kind in types:
        return True
    return expander.kind == "number" and "integer" in types and state.clause.intersect(integer=True)


def _no_type(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    types = [value] if isinstance(value, str) else value
    if expander.kind in types:
        return []
    if expander.kind == "number" and "integer" in types:
        return [Option(facts=(satisfies(fractional=True),))]
    return HOLDS


def _named(expander: Expander, schema: Schema, name: str) -> Named:
    value = schema.value[name]
    key = schema.number, name
    found: Named | None = expander.named.get(key)
    if found is None:
        found = expander.named[key] = Named(value if name == "enum" else [value], schema.place(name))
    return found


#: What a schema may hold that only lists values.
_LISTING = frozenset(("type", "enum", "const"))


def listed_values(expander: Expander, schema: Schema, kind: str) -> frozenset[Any] | None:
    """The values of `kind`, of scalars, that satisfy a schema that only lists values; None for other schemas."""
    key = schema.number, kind
    if key not in expander.listed:
        expander.listed[key] = _read_listed(expander, schema, kind)
    return expander.listed[key]


def _read_listed(expander: Expander, schema: Schema, kind: str) -> frozenset[Any] | None:
    keywords = expander.checked(schema).keywords
    if keywords.keys() == {"$ref"}:
        return listed_values(expander, expander.store.resolve(schema, "$ref"), kind)
    if not keywords or not keywords.keys() <= _LISTING or keywords.keys() == {"type"}:
        return None
    found = [frozenset(_named(expander, schema, n).scalars.get(kind, ())) for n in keywords if n != "type"]
    values = found[0].intersection(*found[1:])
    types = keywords.get("type", kind)
    types = [types] if isinstance(types, str) else types
    if kind in types:
        return values
    if kind == "number" and "integer" in types:
        return frozenset(value for value in values if value.denominator == 1)
    return frozenset()


def listed_scalars(expander: Expander, schema: Schema) -> frozenset[tuple[str, Any]] | None:
    """The values, with their kinds, of a schema that only lists scalars; None for other schemas."""
    if schema.number <= NOTHING_VALID or expander.kinds(frozenset((expander.store.literal(schema),))) == KINDS:
        return None
    found: set[tuple[str, Any]] = set()
    for kind in expander.kinds(frozenset((expander.store.literal(schema),))):
        values = listed_values(expander, schema, kind) if kind in SCALARS else None
        if values is None:
            return None
        found.update((kind, value) for value in values)
    return frozenset(found)


def _values(name: str) -> Keyword:
    def positive(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
        named = _named(expander, schema, name)
        kind = expander.kind
        if kind in SCALARS:
            scalars = named.scalars.get(kind)
            return scalars is not None and state.clause.intersect(allowed=frozenset(scalars))
        composites = named.composites.get(kind, [])
        derived = (expander.store.literal(expander.store.derived(value, schema)) for value in composites)
        return expander.choose(state, [Option(((*literal, ()),)) for literal in derived])

    def negative(expander: Expander, schema: Schema, value: Any) -> list[Option]:
        named = _named(expander, schema, name)
        if not named.has(expander.kind):
            return HOLDS
        if expander.kind in SCALARS:
            return [Option(facts=(satisfies(excluded=frozenset(named.scalars[expander.kind])),))]
        derived = (expander.store.derived(value, schema) for value in named.composites[expander.kind])
        return [Option(tuple((*expander.store.literal(other, False), ()) for other in derived))]

    return Keyword(frozenset(KINDS), positive, negative)


# ------------------------------------------------------------------------------------------------------------ numbers
def _bound(name: str) -> Keyword:
    """minimum and maximum; a boolean beside them says whether they are exclusive, in draft 4."""
    exclusive = "exclusive" + name[0].upper() + name[1:]
    other = "maximum" if name == "minimum" else "minimum"

    def number(schema: Schema, value: Any) -> tuple[Fraction, bool]:
        return exact(value, schema.place(name)), schema.value.get(exclusive) is True

    def positive(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
        bound, is_open = number(schema, value)
        return bool(state.clause.intersect(**{name: bound, f"exclusive_{name}": is_open}))

    def negative(expander: Expander, schema: Schema, value: Any) -> list[Option]:
        bound, is_open = number(schema, value)
        return [Option(facts=(satisfies(**{other: bound, f"exclusive_{other}": not is_open}),))]

    return Keyword(_NUMBER, positive, negative)


def _exclusive_bound(name: str) -> Keyword:
    """exclusiveMinimum and exclusiveMaximum with a number."""
    bound = name.replace("exclusiveM", "m")
    other = "maximum" if bound == "minimum" else "minimum"

    def positive(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
        if isinstance(value, bool):
            return True
        number = exact(value, schema.place(name))
        return bool(state.clause.intersect(**{bound: number, f"exclusive_{bound}": True}))

    def negative(expander: Expander, schema: Schema, value: Any) -> list[Option]:
        if isinstance(value, bool):
            return []
        return [Option(facts=(satisfies(**{other: exact(value, schema.place(name))}),))]

    return Keyword(_NUMBER, positive, negative)


def _multiple(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    return bool(state.clause.intersect(multiples=frozenset((exact(value, schema.place("multipleOf")),))))


def _no_multiple(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    return [Option(facts=(satisfies(non_multiples=frozenset((exact(value, schema.place("multipleOf")),))),))]


# ------------------------------------------------------------------------------------------------------------ strings
def _min_length(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    return bool(state.clause.intersect(min_length=int(value)))


def _no_min_length(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    return [Option(facts=(satisfies(max_length=int(value) - 1),))] if value > 0 else []


def _max_length(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    return bool(state.clause.intersect(max_length=int(value)))


def _no_max_length(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    return [Option(facts=(satisfies(min_length=int(value) + 1),))]


def _pattern(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    expander.places.setdefault(value, schema.place("pattern"))
    return bool(state.clause.intersect(patterns=frozenset((value,))))


def _no_pattern(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    expander.places.setdefault(value, schema.place("pattern"))
    return [Option(facts=(satisfies(not_patterns=frozenset((value,))),))]


def _format_fields(expander: Expander, schema: Schema, value: str) -> dict[str, Any] | None:
    """What a format asks of a value of the expander's kind; None: nothing. Raises `GrammarUnsupported`."""
    if expander.formats == "ignore":
        return None
    value = FORMAT_ALIASES.get(value, value)
    if value in FORMATS:
        return {"formats": frozenset((value,))} if expander.kind == "string" else None
    if value in NUMBER_FORMATS:
        bits = NUMBER_FORMATS[value]
        if bits is None or expander.kind == "string":
            return None
        return {"integer": True, "minimum": Fraction(-(2 ** (bits - 1))), "maximum": Fraction(2 ** (bits - 1) - 1)}
    if value in ANNOTATION_FORMATS or expander.formats == "known":
        return None
    if value in REFUSED_FORMATS:
        raise GrammarUnsupported(
            f"the format {value!r} is not enforced: {REFUSED_FORMATS[value]}", schema.place("format")
        )
    raise GrammarUnsupported(
        f"the format {value!r} is not known; formats='known' takes it as a comment", schema.place("format")
    )


def _format(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    fields = _format_fields(expander, schema, value)
    return fields is None or bool(state.clause.intersect(**fields))


def _no_format(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    fields = _format_fields(expander, schema, value)
    if fields is None:
        return []
    if "formats" in fields:
        return [Option(facts=(satisfies(not_formats=fields["formats"]),))]
    return [
        Option(facts=(satisfies(fractional=True),)),
        Option(facts=(satisfies(maximum=fields["minimum"], exclusive_maximum=True),)),
        Option(facts=(satisfies(minimum=fields["maximum"], exclusive_minimum=True),)),
    ]


#: Formats of numbers, of the OpenAPI registry and of draft 3: the bits of a signed integer, None for any number.
NUMBER_FORMATS = {"int32": 32, "int64": 64, "float": None, "double": None, "utc-millisec": None}
#: Other names of formats: those of draft 3, and one in wide use.
FORMAT_ALIASES = {"host-name": "hostname", "ip-address": "ipv4", "url": "uri"}

_ANY_KIND = frozenset(KINDS)
SCALAR_KEYWORDS = {
    "type": Keyword(_ANY_KIND, _type, _no_type),
    "enum": _values("enum"),
    "const": _values("const"),
    "minimum": _bound("minimum"),
    "maximum": _bound("maximum"),
    "exclusiveMinimum": _exclusive_bound("exclusiveMinimum"),
    "exclusiveMaximum": _exclusive_bound("exclusiveMaximum"),
    "multipleOf": Keyword(_NUMBER, _multiple, _no_multiple),
    "minLength": Keyword(_STRING, _min_length, _no_min_length),
    "maxLength": Keyword(_STRING, _max_length, _no_max_length),
    "pattern": Keyword(_STRING, _pattern, _no_pattern),
    "format": Keyword(_STRING | _NUMBER, _format, _no_format),
}
