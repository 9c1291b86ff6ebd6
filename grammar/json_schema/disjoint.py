"""Which schemas of a `oneOf` no value can satisfy together: for those, "exactly one" is no more than "one"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .schemas import Schema
from .values import Named

if TYPE_CHECKING:
    from .expand import Expander

#: How far references and `allOf` are followed to see what a schema's properties must be.
_LEVELS = 8
#: Pairs of which all of both schemas is looked at, about 100 us each: those of 70 schemas. No others are told apart so.
_MOST_PAIRS = 5_000
#: What a required property must be one of, by name; "" for the value itself, scalars only.
Discriminators = Mapping[str, frozenset[tuple[str, Any]]]


def are_disjoint(expander: Expander, branches: list[Schema]) -> Callable[[Schema, Schema], bool]:
    """A test of two of `branches`: whether no value of the expander's kind satisfies both, as far as that can be seen.

    Usually constants of one property or the types tell; only where they do not, all of both schemas is looked at.
    """
    kind = expander.kind
    marks = {branch.number: _discriminators(expander, branch, kind, _LEVELS) for branch in branches}
    looked_at = 0

    def disjoint(left: Schema, right: Schema) -> bool:
        if left is right:
            return False
        first, second = marks[left.number], marks[right.number]
        if first is None or second is None:
            return True
        for name, values in first.items():
            other = second.get(name)
            if other is not None and values.isdisjoint(other):
                return True
        nonlocal looked_at
        looked_at += 1
        if looked_at > _MOST_PAIRS:
            return False
        both = frozenset((expander.store.literal(left), expander.store.literal(right)))
        return bool(expander.emptiness.is_empty_kind(both, kind))

    return disjoint


def _discriminators(expander: Expander, schema: Schema, kind: str, levels: int) -> Discriminators | None:
    """What values of `kind` must be like to satisfy `schema`; None where none does."""
    if schema.options is not None:
        return {}
    keywords = expander.checked(schema).keywords
    if schema.value is False:
        return None
    types = keywords.get("type")
    if types is not None:
        types = [types] if isinstance(types, str) else types
        if kind not in types and not (kind == "number" and "integer" in types):
            return None
    found: dict[str, frozenset[tuple[str, Any]]] = {}

    def add(name: str, values: frozenset[tuple[str, Any]]) -> None:
        found[name] = found[name] & values if name in found else values

    scalars = _scalars(schema, keywords)
    if scalars is not None:
        of_kind = frozenset(value for value in scalars if value[0] == kind)
        if not of_kind:
            return None
        if kind not in ("array", "object"):
            add("", of_kind)
    if kind == "object":
        for name in keywords.get("required", ()):
            inner = keywords.get("properties", {}).get(name)
            if inner is not None:
                child = expander.store.child(schema, "properties", name)
                values = _scalars(child, child.keywords) if isinstance(child.value, Mapping) else None
                if values is not None:
                    add(name, values)
    if levels:
        inside = [expander.store.child(schema, "allOf", i) for i in range(len(keywords.get("allOf", ())))]
        inside += [expander.store.resolve(schema, name) for name in ("$ref",) if name in keywords]
        for part in inside:
            marks = _discriminators(expander, part, kind, levels - 1)
            if marks is None:
                return None
            for name, values in marks.items():
                add(name, values)
    return found


def _scalars(schema: Schema, keywords: Mapping[str, Any]) -> frozenset[tuple[str, Any]] | None:
    """The values of `const` or `enum`, arrays and objects standing for all of their kind; None without either."""
    for name in ("const", "enum"):
        if name in keywords:
            place = schema.place(name)
            values = keywords[name] if name == "enum" else [keywords[name]]
            named = Named(values, place)
            found = {(kind, value) for kind, scalars in named.scalars.items() for value in scalars}
            # One that is no scalar may equal any other.
            found.update((kind, None) for kind in named.composites)
            return frozenset(found)
    return None
