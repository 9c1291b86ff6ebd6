"""Which schemas of a `oneOf` a value may satisfy together: for all others, "exactly one" is no more than "one"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .schemas import ANYTHING, NOTHING_VALID, Schema
from .values import Named

if TYPE_CHECKING:
    from .expand import Expander

#: How far references and `allOf` are followed to see what a schema's properties must be.
_LEVELS = 8
#: Pairs of which all of both schemas is looked at, about 100 us each: those of 70 schemas. No others are told apart so.
_MOST_PAIRS = 5_000
#: What a required property must be one of, by name; "" for the value itself, scalars only.
Discriminators = Mapping[str, frozenset[tuple[str, Any]]]


def overlapping(expander: Expander, branches: list[Schema]) -> Callable[[int, int], list[int]]:
    """Of a branch, the other ones from a number on that some value of the expander's kind may satisfy with it.

    Branches are told by their numbers. Usually constants of one property or the types tell; only where they do not, all
    of both schemas is looked at.
    """
    kind = expander.kind
    marks = [_discriminators(expander, branch, kind, _LEVELS) for branch in branches]
    looked_at = 0
    # Branches that name values of one property are found by these: of two hundred, only those that share one are met.
    counts = Counter(name for found in marks if found is not None for name in found)
    telling = max(counts, key=counts.__getitem__, default=None)
    by_value: dict[tuple[str, Any], list[int]] = {}
    others: list[int] = []
    for i, found in enumerate(marks):
        if found is None:
            continue
        if telling is None or telling not in found:
            others.append(i)
        else:
            for value in found[telling]:
                by_value.setdefault(value, []).append(i)

    def candidates(number: int) -> Iterable[int]:
        found = marks[number]
        if found is None:
            return [i for i, branch in enumerate(branches) if branch is branches[number]]
        if telling is None or telling not in found:
            return range(len(branches))
        return sorted(set(others).union(*(by_value[value] for value in found[telling])))

    def overlap(left: int, right: int) -> bool:
        if branches[left] is branches[right]:
            return True
        first, second = marks[left], marks[right]
        if first is None or second is None:
            return False
        for name, values in first.items():
            other = second.get(name)
            if other is not None and values.isdisjoint(other):
                return False
        nonlocal looked_at
        looked_at += 1
        if looked_at > _MOST_PAIRS:
            return True
        both = frozenset((expander.store.literal(branches[left]), expander.store.literal(branches[right])))
        return not expander.emptiness.is_empty_kind(both, kind)

    return lambda number, first: [i for i in candidates(number) if i >= first and i != number and overlap(number, i)]


def ask_nothing(expander: Expander, branches: list[Schema]) -> int:
    """How many of `branches` hold for every value of the expander's kind, as far as their own keywords say so."""
    return sum(_asks_nothing(expander, branch, _LEVELS) for branch in branches)


def _asks_nothing(expander: Expander, schema: Schema, levels: int) -> bool:
    if schema.number <= NOTHING_VALID or schema.options is not None:
        return schema.number == ANYTHING
    for name, value in expander.checked(schema).keywords.items():
        if not expander.is_about(name):
            continue
        if name == "type" and expander.kind in ([value] if isinstance(value, str) else value):
            continue
        if (
            name != "$ref"
            or not levels
            or not _asks_nothing(expander, expander.store.resolve(schema, name), levels - 1)
        ):
            return False
    return True


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
