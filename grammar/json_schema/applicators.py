"""Keywords that apply schemas to the same value: logic, conditions and references."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

from ..errors import GrammarTooLarge
from .conditions import branches_of
from .disjoint import ask_nothing, overlapping
from .expand import HOLDS, Expander, Item, Keyword, Option, State
from .scalar_keywords import SCALARS, listed_values, satisfies
from .schemas import Schema
from .values import KINDS

_ANY_KIND = frozenset(KINDS)
#: Schemas of an `anyOf` within the scope of an unevaluated keyword: every set of them that may hold is looked at.
_MAX_SETTLED = 8
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def _item(expander: Expander, schema: Schema, positive: bool, scopes: tuple[int, ...] = ()) -> Item:
    return (*expander.store.literal(schema, positive), scopes)


# -------------------------------------------------------------------------------------------------------------- logic
def _all_of(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    return all(state.push(expander.store.literal(part), scopes) for part in branches_of(expander, schema, "allOf"))


def _not_all_of(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    return [Option((_item(expander, part, False),)) for part in branches_of(expander, schema, "allOf")]


def _any_of(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    branches = branches_of(expander, schema, "anyOf")
    if expander.kind in SCALARS:
        return expander.choose(state, _joined_values(expander, branches))
    if not scopes:
        return expander.choose(state, [Option((_item(expander, branch, True),)) for branch in branches])
    # What is evaluated depends on which of them hold: each is said to hold or not to.
    if len(branches) > _MAX_SETTLED:
        raise GrammarTooLarge(
            f"an anyOf of {len(branches)} schemas, whose evaluated parts matter to an unevaluated keyword around it",
            schema.place("anyOf"),
            limit="max_schema_alternatives",
        )
    options = []
    for holds in product((True, False), repeat=len(branches)):
        if any(holds):
            parts = zip(branches, holds, strict=True)
            options.append(Option(tuple(_item(expander, part, held, scopes if held else ()) for part, held in parts)))
    return expander.choose(state, options)


def _not_any_of(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    return [Option(tuple(_item(expander, branch, False) for branch in branches_of(expander, schema, "anyOf")))]


def _joined_values(expander: Expander, branches: list[Schema]) -> list[Option]:
    """The ways of an anyOf of scalars: those of its schemas that list values are one."""
    options = []
    listed: set[Any] = set()
    for branch in branches:
        values = listed_values(expander, branch, expander.kind)
        if values is None:
            options.append(Option((_item(expander, branch, True),)))
        else:
            listed |= values
    return [*options, Option(facts=(satisfies(allowed=frozenset(listed)),))] if listed else options


def _values_of_one(expander: Expander, branches: list[Schema]) -> frozenset[Any] | None:
    """The scalars that exactly one of some schemas lists; None where not all of these list values."""
    if expander.kind not in SCALARS:
        return None
    counts: Counter[Any] = Counter()
    for branch in branches:
        values = listed_values(expander, branch, expander.kind)
        if values is None:
            return None
        counts.update(values)
    return frozenset(value for value, count in counts.items() if count == 1)


def _one_of(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    branches = branches_of(expander, schema, "oneOf")
    values = _values_of_one(expander, branches)
    if values is not None:
        return bool(state.clause.intersect(allowed=values))
    if ask_nothing(expander, branches) > 1:
        return False
    others = overlapping(expander, branches)
    options = []
    for i, branch in enumerate(branches):
        items = [_item(expander, branch, True, scopes)]
        items += [_item(expander, branches[j], False) for j in others(i, 0)]
        options.append(Option(tuple(items)))
    return expander.choose(state, options)


def _not_one_of(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    branches = branches_of(expander, schema, "oneOf")
    values = _values_of_one(expander, branches)
    if values is not None:
        return [Option(facts=(satisfies(excluded=values),))] if values else HOLDS
    if ask_nothing(expander, branches) > 1:
        return HOLDS
    options = [Option(tuple(_item(expander, branch, False) for branch in branches))]
    others = overlapping(expander, branches)
    for i, branch in enumerate(branches):
        options += [
            Option((_item(expander, branch, True), _item(expander, branches[j], True))) for j in others(i, i + 1)
        ]
    return options


def _not(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    return state.push(expander.store.literal(expander.store.child(schema, "not"), False))


def _not_not(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    return [Option((_item(expander, expander.store.child(schema, "not"), True),))]


def _condition(
    expander: Expander, schema: Schema, positive: bool, scopes: tuple[int, ...]
) -> tuple[list[Option], bool]:
    """The ways of `if`, and whether there is anything to decide."""
    condition = expander.store.child(schema, "if")
    options = []
    for holds, name in ((True, "then"), (False, "else")):
        items = [_item(expander, condition, holds, scopes if holds else ())]
        if name in schema.keywords:
            items.append(_item(expander, expander.store.child(schema, name), positive, scopes if positive else ()))
        elif not positive:
            continue
        options.append(Option(tuple(items)))
    return options, bool({"then", "else"} & schema.keywords.keys()) or bool(scopes)


def _if(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    options, matters = _condition(expander, schema, True, scopes)
    return not matters or expander.choose(state, options)


def _not_if(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    return _condition(expander, schema, False, ())[0]


# --------------------------------------------------------------------------------------------------------- references
def _reference(name: str) -> Keyword:
    def positive(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
        return state.push(expander.store.literal(expander.store.resolve(schema, name)), scopes)

    def negative(expander: Expander, schema: Schema, value: Any) -> list[Option]:
        return [Option((_item(expander, expander.store.resolve(schema, name), False),))]

    return Keyword(_ANY_KIND, positive, negative)


APPLICATORS = {
    "allOf": Keyword(_ANY_KIND, _all_of, _not_all_of),
    "anyOf": Keyword(_ANY_KIND, _any_of, _not_any_of),
    "oneOf": Keyword(_ANY_KIND, _one_of, _not_one_of),
    "not": Keyword(_ANY_KIND, _not, _not_not),
    "if": Keyword(_ANY_KIND, _if, _not_if),
    **{name: _reference(name) for name in _REFERENCES},
}
