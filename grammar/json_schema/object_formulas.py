"""Sets of schemas as one formula over the properties of an object, where the union of clauses is too long.

A clause has no alternatives left, so that a `oneOf` of many schemas that a value may satisfy together becomes very many
of them: each other schema may be violated in each of its properties. As one formula they are what they are, and the
object's automaton has a state for each thing that may be left of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .clauses import ObjectClause, Selector, Violation
from .conditions import branches_of
from .diagrams import FALSE, TRUE, Condition, Formulas
from .object_keywords import OBJECT_KEYWORDS, rest_of
from .schemas import ANYTHING, NOTHING_VALID, Literal, Literals, Schema
from .values import Named

if TYPE_CHECKING:
    from .expand import Expander

#: Formulas of one set, about 2 us each; past it the union of clauses is what there is.
_MOST_FORMULAS = 50_000


class _NotFormulaError(Exception):
    """What a schema asks is no formula over the properties of an object."""


def object_formula(expander: Expander, literals: Literals) -> ObjectClause | None:
    """The objects that satisfy a set, as one clause with a formula; None where a keyword cannot be one.

    Raises `GrammarError` as the expansion does.
    """
    try:
        return _Reader(expander).clause(literals)
    except _NotFormulaError:
        return None


class _Reader:
    def __init__(self, expander: Expander) -> None:
        self._expander = expander
        self._store = expander.store
        self._formulas = Formulas()
        self._clause = ObjectClause()
        self._known: dict[tuple[int, bool], int] = {}
        self._rules: dict[tuple[Selector, Literal], int] = {}

    def clause(self, literals: Literals) -> ObjectClause:
        formulas, clause = self._formulas, self._clause
        wanted = [self._literal(literal, True) for literal in sorted(literals)]
        whole = formulas.all_of(wanted)
        rules = list(self._rules)
        kept = [part for part in formulas.parts(whole) if not self._is_taken(part, rules)]
        clause.formula = Condition(formulas, formulas.all_of(kept), tuple(rules))
        # Its names and patterns tell properties apart.
        clause.violations = [Violation(selector) for selector, _ in rules]
        return clause

    def _is_taken(self, part: int, rules: list[tuple[Selector, Literal]]) -> bool:
        """Tell the clause of what must hold in any case; False: the formula has to."""
        formulas, clause = self._formulas, self._clause
        options = [formulas.as_atom(option) for option in formulas.options(part)]
        known = sorted((option for option in options if option is not None), key=repr)
        if len(known) != len(options) or not known:
            return False
        atom, holds = known[0]
        if len(known) == 1 and atom[0] == "has":
            (clause.require if holds else clause.forbid)(atom[1])
            return False  # the clause says so to whom it may concern, and the formula sees to it
        if len(known) == 1 and atom[0] == "all" and holds:
            clause.others.append(rules[atom[1]])
            return True
        if len(known) == 2 and atom[0] == "has" and not holds:
            value, is_valid = known[1]
            if value[0] == "value" and is_valid and value[1] == atom[1]:
                return clause.property(value[1], value[2])
        return False

    # ------------------------------------------------------------------------------------------------------- schemas
    def _literal(self, literal: Literal, always: bool = False) -> int:
        """`always`: it is asked for whatever else holds."""
        number, positive = literal
        found = self._schema(self._store[number], always and positive)
        return found if positive else self._formulas.negated(found)

    def _schema(self, schema: Schema, always: bool = False) -> int:
        if schema.number <= NOTHING_VALID:
            return TRUE if schema.number == ANYTHING else FALSE
        key = schema.number, always
        found = self._known.get(key)
        if found is None:
            if schema.options is not None:
                found = self._formulas.any_of(map(self._literal, schema.options))
            else:
                keywords = self._expander.checked(schema).keywords
                found = self._formulas.all_of([self._keyword(schema, name, always) for name in keywords])
            self._known[key] = found
            if len(self._formulas) > _MOST_FORMULAS:
                raise _NotFormulaError
        return found

    def _child(self, schema: Schema, *path: Any) -> int:
        return self._schema(self._store.child(schema, *path))

    def _keyword(self, schema: Schema, name: str, always: bool) -> int:
        value, formulas = schema.keywords[name], self._formulas
        if name == "type":
            return TRUE if "object" in ([value] if isinstance(value, str) else value) else FALSE
        if name in ("enum", "const"):
            named = Named(value if name == "enum" else [value], schema.place(name))
            made = (self._store.derived(one, schema) for one in named.composites.get("object", ()))
            return formulas.any_of([self._schema(one) for one in made])
        if name in ("allOf", "anyOf", "oneOf"):
            branches = branches_of(self._expander, schema, name)
            if name == "allOf":
                return formulas.all_of([self._schema(branch, always) for branch in branches])
            found = [self._schema(branch) for branch in branches]
            return formulas.any_of(found) if name == "anyOf" else formulas.exactly_one(found)
        if name == "not":
            return formulas.negated(self._child(schema, name))
        if name == "if":
            condition = self._child(schema, name)
            then, other = (self._child(schema, part) if part in schema.keywords else TRUE for part in ("then", "else"))
            opposite = formulas.negated(condition)
            return formulas.all_of((formulas.any_of((opposite, then)), formulas.any_of((condition, other))))
        if name in ("$ref", "$dynamicRef", "$recursiveRef"):
            return self._schema(self._store.resolve(schema, name), always)
        if name in _OF_PROPERTIES:
            return self._about_properties(schema, name, value, always)
        return TRUE

    # ---------------------------------------------------------------------------------------------------- properties
    def _has(self, name: str, holds: bool = True) -> int:
        self._clause.mentioned[name] = None
        return self._formulas.atom(("has", name), holds)

    def _rule(self, selector: Selector, schema: Schema) -> int:
        """All properties of a selector satisfy a schema."""
        literal = self._store.literal(schema)
        if literal[0] == ANYTHING:
            return TRUE
        number = self._rules.setdefault((selector, literal), len(self._rules))
        return self._formulas.atom(("all", number))

    def _about_properties(self, schema: Schema, name: str, value: Any, always: bool) -> int:
        formulas, clause, places = self._formulas, self._clause, self._expander.places
        if name == "properties":
            clause.declared.update(dict.fromkeys(value))
            return formulas.all_of([self._property(schema, key) for key in value])
        if name == "patternProperties":
            for pattern in value:
                places.setdefault(pattern, schema.place(name, pattern))
            return formulas.all_of([self._rule(Selector(p), self._store.child(schema, name, p)) for p in value])
        if name == "additionalProperties":
            for pattern in schema.keywords.get("patternProperties", ()):
                places.setdefault(pattern, schema.place("patternProperties", pattern))
            return self._rule(rest_of(schema), self._store.child(schema, name))
        if name == "required":
            return formulas.all_of(map(self._has, value))
        if name in ("dependentRequired", "dependencies", "dependentSchemas"):
            return formulas.all_of([self._dependency(schema, name, key) for key in value])
        if name == "propertyNames":
            literal = self._store.literal(self._store.child(schema, name))
            if literal[0] != ANYTHING:
                self._only(always)
                clause.names[literal] = None
            return TRUE
        if name in ("minProperties", "maxProperties"):
            self._only(always)
            if name == "minProperties":
                return TRUE if clause.limit(minimum=int(value), place=schema.place(name)) else FALSE
            return TRUE if clause.limit(maximum=int(value)) else FALSE
        raise _NotFormulaError  # what is evaluated depends on the way that was taken

    def _only(self, always: bool) -> None:
        if not always:
            raise _NotFormulaError

    def _property(self, schema: Schema, name: str) -> int:
        literal = self._store.literal(self._store.child(schema, "properties", name))
        if literal[0] == ANYTHING:
            return TRUE
        lacks = self._has(name, False)
        if literal[0] == NOTHING_VALID:
            return lacks
        return self._formulas.any_of((lacks, self._formulas.atom(("value", name, literal))))

    def _dependency(self, schema: Schema, keyword: str, name: str) -> int:
        needed = schema.keywords[keyword][name]
        if isinstance(needed, (list, str)):
            names = [needed] if isinstance(needed, str) else needed
            inner = self._formulas.all_of(map(self._has, names))
        else:
            inner = self._child(schema, keyword, name)
        return self._formulas.any_of((self._has(name, False), inner))


_OF_PROPERTIES = frozenset(OBJECT_KEYWORDS)
