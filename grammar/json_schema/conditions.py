"""Schemas that ask only which names an object has, as formulas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .presence import Formula, all_of, any_of, exactly_one, has, lacks, negated
from .schemas import Schema

if TYPE_CHECKING:
    from .expand import Expander

_LOGIC = ("allOf", "anyOf", "oneOf")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
#: Keywords that apply schemas to the same value.
_IN_PLACE = frozenset((*_LOGIC, *_REFERENCES, "not", "if", "then", "else", "dependentSchemas", "dependencies"))
#: What a schema may hold for its conditions on names to be one formula.
_PRESENCE = frozenset(
    ("required", "dependentRequired", "dependencies", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "type")
)


def presence(expander: Expander, schema: Schema, positive: bool) -> Formula | None:
    """A schema that asks only which names an object has, or its negation, as a formula; None for other schemas.

    So conditions that would multiply to very many alternatives stay one.
    """
    found = _presence(expander, schema)
    return found if found is None or positive else negated(found)


def _presence(expander: Expander, schema: Schema) -> Formula | None:
    if isinstance(schema.value, bool):
        return schema.value
    known = expander.presences.get(schema.number, ...)
    if known is not ...:
        return known
    expander.presences[schema.number] = None
    expander.presences[schema.number] = found = _read_presence(expander, schema)
    return found


def _read_presence(expander: Expander, schema: Schema) -> Formula | None:
    keywords = expander.checked(schema).keywords
    if schema.options is not None or not keywords.keys() <= _PRESENCE:
        return None
    parts: list[Formula] = []
    for name in keywords:
        part = keyword_presence(expander, schema, name)
        if part is None:
            return None
        parts.append(part)
    return all_of(parts)


def keyword_presence(expander: Expander, schema: Schema, name: str) -> Formula | None:
    """What one keyword of a schema asks, as a formula; None where it asks more than which names there are."""
    value = schema.keywords[name]
    if name == "type":
        return "object" in ([value] if isinstance(value, str) else value)
    if name == "required":
        return all_of(map(has, value))
    if name in ("dependentRequired", "dependencies"):
        return _dependencies(expander, schema, name)
    if name in _LOGIC:
        found = [_presence(expander, branch) for branch in branches_of(expander, schema, name)]
        known = [formula for formula in found if formula is not None]
        if len(known) < len(found):
            return None
        return all_of(known) if name == "allOf" else any_of(known) if name == "anyOf" else exactly_one(known)
    if name == "not":
        inner = _presence(expander, expander.store.child(schema, name))
        return None if inner is None else negated(inner)
    if name == "if":
        condition, then, other = (
            _presence(expander, expander.store.child(schema, part)) if part in schema.keywords else True
            for part in ("if", "then", "else")
        )
        if condition is None or then is None or other is None:
            return None
        return all_of((any_of((negated(condition), then)), any_of((condition, other))))
    return True if name in ("then", "else") else None


def _dependencies(expander: Expander, schema: Schema, name: str) -> Formula | None:
    parts: list[Formula] = []
    for key, needed in schema.keywords[name].items():
        if isinstance(needed, (bool, Mapping)):
            inner = _presence(expander, expander.store.child(schema, name, key))
            if inner is None:
                return None
            parts.append(any_of((lacks(key), inner)))
        else:
            names = [needed] if isinstance(needed, str) else needed
            parts.append(any_of((lacks(key), all_of(map(has, names)))))
    return all_of(parts)


def branches_of(expander: Expander, schema: Schema, name: str) -> list[Schema]:
    """The schemas of a keyword that has a list of them."""
    return [expander.store.child(schema, name, i) for i in range(len(schema.keywords[name]))]


def in_place(expander: Expander, schema: Schema) -> list[Schema]:
    """The schemas that a schema applies to the same value."""
    store, keywords = expander.store, schema.keywords
    if _IN_PLACE.isdisjoint(keywords):
        return []
    found = [store.child(schema, name, i) for name in _LOGIC if name in keywords for i in range(len(keywords[name]))]
    found += [store.child(schema, name) for name in ("not", "if", "then", "else") if name in keywords]
    for name in ("dependentSchemas", "dependencies"):
        for key, value in keywords.get(name, {}).items():
            if not isinstance(value, (list, str)):
                found.append(store.child(schema, name, key))
    return found + [store.resolve(schema, name) for name in _REFERENCES if name in keywords]
