"""Keywords about arrays."""

from __future__ import annotations

from typing import Any

from ..errors import GrammarUnsupported
from .clauses import ArrayClause, Contains
from .dialects import Dialect
from .expand import Expander, Fact, Keyword, Option, State
from .object_keywords import unevaluated
from .schemas import ANYTHING, NOTHING_VALID, Literal, Schema

_ARRAY = frozenset(("array",))


def _tuple_keyword(schema: Schema) -> str | None:
    """The keyword with a schema for each of the first items."""
    if "prefixItems" in schema.keywords:
        return "prefixItems"
    return "items" if isinstance(schema.keywords.get("items"), list) else None


def _evaluate(state: State, scopes: tuple[int, ...], items: int = 0, everything: bool = False) -> None:
    for scope in scopes:
        evaluated = state.clause.evaluation(scope)
        evaluated.items = max(evaluated.items, items)
        evaluated.everything |= everything


def _tuple(expander: Expander, schema: Schema, keyword: str, state: State, scopes: tuple[int, ...]) -> bool:
    count = len(schema.value[keyword])
    for i in range(count):
        literal = expander.store.literal(expander.store.child(schema, keyword, i))
        if literal[0] != ANYTHING:
            state.clause.items.append((i, i + 1, literal))
    _evaluate(state, scopes, items=count)
    return True


def _items_from(
    expander: Expander, schema: Schema, keyword: str, first: int, state: State, scopes: tuple[int, ...]
) -> bool:
    literal = expander.store.literal(expander.store.child(schema, keyword))
    _evaluate(state, scopes, everything=True)
    if literal[0] == NOTHING_VALID:
        return bool(state.clause.limit(maximum=first))
    if literal[0] != ANYTHING:
        state.clause.items.append((first, None, literal))
    return True


def _violation(first: int, literal: Literal) -> Fact:
    def fact(clause: ArrayClause) -> bool:
        if literal[0] == ANYTHING:
            return clause.limit(minimum=first + 1)
        clause.violations.append((first, literal))
        return True

    return fact


def _none_valid(expander: Expander, schema: Schema, keyword: str, first: int) -> list[Option]:
    literal = expander.negated(expander.store.literal(expander.store.child(schema, keyword)))
    return [] if literal[0] == NOTHING_VALID else [Option(facts=(_violation(first, literal),))]


def _one_violated(expander: Expander, schema: Schema, keyword: str) -> list[Option]:
    options = []
    for i in range(len(schema.value[keyword])):
        literal = expander.negated(expander.store.literal(expander.store.child(schema, keyword, i)))
        if literal[0] != NOTHING_VALID:

            def fact(clause: ArrayClause, i: int = i, literal: Literal = literal) -> bool:
                if literal[0] != ANYTHING:
                    clause.items.append((i, i + 1, literal))
                return clause.limit(minimum=i + 1)

            options.append(Option(facts=(fact,)))
    return options


def _prefix(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    return _tuple(expander, schema, "prefixItems", state, scopes)


def _not_prefix(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    return _one_violated(expander, schema, "prefixItems")


def _items(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    if isinstance(value, list):
        return _tuple(expander, schema, "items", state, scopes)
    return _items_from(expander, schema, "items", len(schema.keywords.get("prefixItems", ())), state, scopes)


def _not_items(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    if isinstance(value, list):
        return _one_violated(expander, schema, "items")
    return _none_valid(expander, schema, "items", len(schema.keywords.get("prefixItems", ())))


def _additional(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    if not isinstance(schema.keywords.get("items"), list):
        return True  # without a list of items it means nothing
    return _items_from(expander, schema, "additionalItems", len(schema.keywords["items"]), state, scopes)


def _not_additional(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    items = schema.keywords.get("items")
    return _none_valid(expander, schema, "additionalItems", len(items)) if isinstance(items, list) else []


def _limits(schema: Schema) -> tuple[int, int | None]:
    maximum = schema.keywords.get("maxContains")
    return int(schema.keywords.get("minContains", 1)), None if maximum is None else int(maximum)


def _contains(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    literal = expander.store.literal(expander.store.child(schema, "contains"))
    minimum, maximum = _limits(schema)
    if schema.dialect >= Dialect.DRAFT2020_12:
        for scope in scopes:
            state.clause.evaluation(scope).contained[literal] = None
    return _contained(state.clause, literal, minimum, maximum)


def _contained(clause: ArrayClause, literal: Literal, minimum: int, maximum: int | None) -> bool:
    if literal[0] == ANYTHING:
        return clause.limit(minimum, maximum)
    if literal[0] == NOTHING_VALID:
        return minimum == 0
    if maximum is not None and maximum < minimum:
        return False
    if minimum or maximum is not None:
        clause.contains.append(Contains(literal, minimum, maximum))
    return True


def _not_contains(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    literal = expander.store.literal(expander.store.child(schema, "contains"))
    minimum, maximum = _limits(schema)
    options = []
    if minimum:
        options.append(Option(facts=(lambda clause: _contained(clause, literal, 0, minimum - 1),)))
    if maximum is not None:
        options.append(Option(facts=(lambda clause: _contained(clause, literal, maximum + 1, None),)))
    return options


def _min_items(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    return bool(state.clause.limit(minimum=int(value)))


def _max_items(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    return bool(state.clause.limit(maximum=int(value)))


def _fewer(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    return [Option(facts=(lambda clause: clause.limit(maximum=int(value) - 1),))] if value > 0 else []


def _more(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    return [Option(facts=(lambda clause: clause.limit(minimum=int(value) + 1),))]


def _unique(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    if value:
        state.clause.unique = schema.place("uniqueItems")
    return True


def _not_unique(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    if not value:
        return []
    raise GrammarUnsupported("the negation of uniqueItems is not enforced", schema.place("uniqueItems"))


ARRAY_KEYWORDS = {
    "prefixItems": Keyword(_ARRAY, _prefix, _not_prefix),
    "items": Keyword(_ARRAY, _items, _not_items),
    "additionalItems": Keyword(_ARRAY, _additional, _not_additional),
    "contains": Keyword(_ARRAY, _contains, _not_contains),
    "minItems": Keyword(_ARRAY, _min_items, _fewer),
    "maxItems": Keyword(_ARRAY, _max_items, _more),
    "unevaluatedItems": unevaluated("array", "unevaluatedItems"),
    "uniqueItems": Keyword(_ARRAY, _unique, _not_unique),
}
