"""Keywords about objects."""

from __future__ import annotations

from typing import Any

from ..errors import GrammarUnsupported
from .clauses import ObjectClause, Selector, Violation
from .expand import Expander, Fact, Keyword, Option, State
from .presence import Formula, all_of, any_of, has, lacks
from .schemas import ANYTHING, NOTHING_VALID, Literal, Schema

_OBJECT = frozenset(("object",))


def _wish(formula: Formula) -> Fact:
    def fact(clause: ObjectClause) -> bool:
        return clause.condition(formula)

    return fact


# ---------------------------------------------------------------------------------------------- values of properties
def _literal(expander: Expander, schema: Schema, *path: Any) -> Literal:
    return expander.store.literal(expander.store.child(schema, *path))


def _evaluate(
    state: State, scopes: tuple[int, ...], names: Any = (), patterns: Any = (), everything: bool = False
) -> None:
    for scope in scopes:
        evaluated = state.clause.evaluation(scope)
        evaluated.names.update(dict.fromkeys(names))
        evaluated.patterns.update(dict.fromkeys(patterns))
        evaluated.everything |= everything


def _properties(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    clause: ObjectClause = state.clause
    store = expander.store
    for name in value:
        clause.declared[name] = None
        clause.property(name, store.literal(store.child(schema, "properties", name)))
    _evaluate(state, scopes, names=value)
    return True


def _has_and(name: str, literal: Literal) -> Option:
    """The object has a property, and its value satisfies a literal."""
    return Option(facts=(lambda clause: clause.require(name) and clause.property(name, literal),))


def _not_properties(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    literals = [(name, expander.negated(_literal(expander, schema, "properties", name))) for name in value]
    return [_has_and(name, literal) for name, literal in literals if literal[0] != NOTHING_VALID]


def _pattern_properties(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    for pattern in value:
        expander.places.setdefault(pattern, schema.place("patternProperties", pattern))
        state.clause.others.append((Selector(pattern), _literal(expander, schema, "patternProperties", pattern)))
    _evaluate(state, scopes, patterns=value)
    return True


def _violating(selector: Selector, literal: Literal) -> list[Option]:
    """Some property of `selector` violates a literal."""
    if literal[0] == ANYTHING:
        return []
    value = None if literal[0] == NOTHING_VALID else (literal[0], not literal[1])

    def fact(clause: ObjectClause) -> bool:
        clause.violations.append(Violation(selector, value))
        return True

    return [Option(facts=(fact,))]


def _not_pattern_properties(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    options = []
    for pattern in value:
        expander.places.setdefault(pattern, schema.place("patternProperties", pattern))
        options += _violating(Selector(pattern), _literal(expander, schema, "patternProperties", pattern))
    return options


def rest_of(schema: Schema) -> Selector:
    """The properties that `additionalProperties` is about."""
    keywords = schema.keywords
    return Selector(None, frozenset(keywords.get("properties", ())), tuple(keywords.get("patternProperties", ())))


def _additional(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    literal = _literal(expander, schema, "additionalProperties")
    if literal[0] != ANYTHING:
        for pattern in schema.keywords.get("patternProperties", ()):
            expander.places.setdefault(pattern, schema.place("patternProperties", pattern))
        state.clause.others.append((rest_of(schema), literal))
    _evaluate(state, scopes, everything=True)
    return True


def _not_additional(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    return _violating(rest_of(schema), _literal(expander, schema, "additionalProperties"))


def _names(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    literal = _literal(expander, schema, "propertyNames")
    if literal[0] != ANYTHING:
        state.clause.names[literal] = None
    return True


def _not_names(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    literal = _literal(expander, schema, "propertyNames")
    if literal[0] == ANYTHING:
        return []
    name = None if literal[0] == NOTHING_VALID else (literal[0], not literal[1])

    def fact(clause: ObjectClause) -> bool:
        clause.violations.append(Violation(Selector(), None, name))
        return True

    return [Option(facts=(fact,))]


# -------------------------------------------------------------------------------------------------- which and how many
def _required(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    return all(map(state.clause.require, value))


def _not_required(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    return [Option(facts=(_wish(lacks(name)),)) for name in value]


def _dependent_required(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    return all(
        state.clause.condition(any_of((lacks(name), all_of(map(has, needed))))) for name, needed in value.items()
    )


def _not_dependent_required(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    return [
        Option(facts=(_wish(all_of((has(name), any_of(map(lacks, needed))))),))
        for name, needed in value.items()
        if needed
    ]


def _dependencies(keyword: str) -> Keyword:
    """dependencies and dependentSchemas: lists of names, and schemas for the whole object."""

    def positive(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
        for name, needed in value.items():
            if isinstance(needed, (list, str)):
                names = [needed] if isinstance(needed, str) else needed
                if not state.clause.condition(any_of((lacks(name), all_of(map(has, names))))):
                    return False
                continue
            literal = _literal(expander, schema, keyword, name)
            if literal[0] == ANYTHING:
                continue
            holds = Option(((*literal, scopes),), (_wish(has(name)),))
            if not expander.choose(state, [Option(facts=(_wish(lacks(name)),)), holds]):
                return False
        return True

    def negative(expander: Expander, schema: Schema, value: Any) -> list[Option]:
        options = []
        for name, needed in value.items():
            if isinstance(needed, (list, str)):
                names = [needed] if isinstance(needed, str) else needed
                options.append(Option(facts=(_wish(all_of((has(name), any_of(map(lacks, names))))),)))
            else:
                literal = expander.negated(_literal(expander, schema, keyword, name))
                options.append(Option(((*literal, ()),), (_wish(has(name)),)))
        return options

    return Keyword(_OBJECT, positive, negative)


def _min_properties(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    return bool(state.clause.limit(minimum=int(value), place=schema.place("minProperties")))


def _max_properties(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
    return bool(state.clause.limit(maximum=int(value)))


def _fewer(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    return [Option(facts=(lambda clause: clause.limit(maximum=int(value) - 1),))] if value > 0 else []


def _more(expander: Expander, schema: Schema, value: Any) -> list[Option]:
    place = schema.place("maxProperties")
    return [Option(facts=(lambda clause: clause.limit(minimum=int(value) + 1, place=place),))]


def unevaluated(kind: str, keyword: str) -> Keyword:
    """Unevaluated keywords: the expander notes them before the keywords that they look at."""

    def positive(expander: Expander, schema: Schema, value: Any, state: State, scopes: tuple[int, ...]) -> bool:
        return True

    def negative(expander: Expander, schema: Schema, value: Any) -> list[Option]:
        if _literal(expander, schema, keyword)[0] == ANYTHING:
            return []
        raise GrammarUnsupported(f"the negation of {keyword} is not enforced", schema.place(keyword))

    return Keyword(frozenset((kind,)), positive, negative)


OBJECT_KEYWORDS = {
    "properties": Keyword(_OBJECT, _properties, _not_properties),
    "patternProperties": Keyword(_OBJECT, _pattern_properties, _not_pattern_properties),
    "additionalProperties": Keyword(_OBJECT, _additional, _not_additional),
    "propertyNames": Keyword(_OBJECT, _names, _not_names),
    "required": Keyword(_OBJECT, _required, _not_required),
    "dependentRequired": Keyword(_OBJECT, _dependent_required, _not_dependent_required),
    "dependencies": _dependencies("dependencies"),
    "dependentSchemas": _dependencies("dependentSchemas"),
    "minProperties": Keyword(_OBJECT, _min_properties, _fewer),
    "maxProperties": Keyword(_OBJECT, _max_properties, _more),
    "unevaluatedProperties": unevaluated("object", "unevaluatedProperties"),
}
