"""Sets of schemas as rules: one for each set of objects or arrays, and library rules for what all schemas share."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ..expression import NOTHING, Alternation, Bytes, Expression, Intersection, Reference, Sequence
from ..limits import Limits
from ..nets import share
from ..simplify import Simplifier, contains
from ..triggers import text_without
from .arrays import array_expression
from .dialects import Dialect
from .emptiness import Emptiness
from .escapes import QUOTE, spelled_text
from .expand import Expander
from .names import other_names
from .numbers import ANY_NUMBER, NumberConstraint, number_expression
from .objects import object_expression
from .options import Layout, TextOptions
from .patterns import is_empty
from .schemas import ANY, NOTHING_VALID, Literals, SchemaStore
from .strings import ANY_STRING, StringConstraint
from .values import KINDS

#: Levels of a text with line breaks and indentation; arrays and objects deeper than that are not written.
MAX_INDENTED = 24
#: Constrained texts of at most so many values or so long a pattern stand where they are used; others are rules.
_INLINE_VALUES = 32


class Writer:
    """The rules of one schema, made as they are asked for."""

    def __init__(self, store: SchemaStore, options: TextOptions, limits: Limits) -> None:
        self.options = options
        self.limits = limits
        self.layout = Layout(options)
        self.emptiness = Emptiness()
        self.expander = Expander(store, limits, self.emptiness, options.formats, options.property_order)
        self.emptiness.expander = self.expander
        self.rules: dict[str, Expression] = dict(self.layout.rules)
        self._store = store
        self._values: dict[tuple[Literals, int], Expression | None] = {}
        self._names: dict[tuple[Any, ...], str] = {}
        #: By name wanted for a rule, the last number given to tell apart those that wanted it.
        self._numbered: dict[str, int] = {}
        self._keys: dict[str, Expression] = {}
        self._waiting: list[tuple[str, str, list[Any], int]] = []

    def value(self, literals: Literals, depth: int) -> Expression | None:
        """The texts of the values that satisfy a set; None where there are none, as far as that is easily seen."""
        if not self.layout.depends_on_depth:
            depth = 0
        key = literals, depth
        found = self._values.get(key, ...)
        if found is ...:
            if not literals and not self.layout.depends_on_depth:
                found = self._anything()
            else:
                found = None if (NOTHING_VALID, True) in literals else self._value(literals, depth)
            self._values[key] = found
        return found

    def _anything(self) -> Expression | None:
        """The texts of all values: most schemas allow them somewhere, and their rules are the same for all schemas."""
        shared = _writer_of_anything(self.options, self.limits)
        if any(name in self.rules and key not in self._names for key, name in shared._names.items()):
            return self._value(ANY, 0)
        for key, name in shared._names.items():
            if key not in self._names:
                self._names[key] = name
                self.rules[name] = shared.rules[name]
        return shared._values[ANY, 0]

    def _value(self, literals: Literals, depth: int) -> Expression | None:
        if self.emptiness.is_empty(literals):
            return None
        options: list[Expression] = []
        for kind in self.expander.kinds(literals):
            clauses = self.expander.clauses(literals, kind)
            if not clauses:
                continue
            if kind in ("array", "object"):
                if depth > MAX_INDENTED:
                    continue
                options.append(self._composite(literals, kind, clauses, depth))
            elif kind == "number":
                options += self._numbers([clause.constraint for clause in clauses])
            elif kind == "string":
                options += self._strings([clause.constraint for clause in clauses])
            else:
                allowed = frozenset().union(*(clause.allowed for clause in clauses))
                words = {None: b"null", True: b"true", False: b"false"} if kind == "boolean" else {None: b"null"}
                options += [
                    Bytes(word)
                    for value, word in words.items()
                    if value in allowed and (value is None) == (kind == "null")
                ]
        if not options:
            return None
        return options[0] if len(options) == 1 else Alternation(tuple(options))

    # ------------------------------------------------------------------------------------------------------- scalars
    def _numbers(self, constraints: list[NumberConstraint]) -> list[Expression]:
        if ANY_NUMBER in constraints:
            constraints = [ANY_NUMBER]
        found: list[Expression] = []
        for constraint in _merged(constraints):
            key = ("number", constraint)
            if key not in self._names:
                expression = number_expression(constraint, max_digits=self.options.max_digits, limits=self.limits)
                if expression is None:
                    continue
                self._add(key, self._described("number", constraint), expression)
            found.append(Reference(self._names[key]))
        return found

    def _strings(self, constraints: list[StringConstraint]) -> list[Expression]:
        if ANY_STRING in constraints:
            constraints = [ANY_STRING]
        found: list[Expression] = []
        for constraint in _merged(constraints):
            key = ("string", constraint)
            if key not in self._names:
                expression = self._string(constraint)
                if expression is None:
                    continue
                if constraint.allowed is not None and len(constraint.allowed) <= _INLINE_VALUES:
                    found.append(expression)
                    continue
                self._add(key, self._described("string", constraint), expression)
            found.append(Reference(self._names[key]))
        return found

    def _string(self, constraint: StringConstraint) -> Expression | None:
        return self._without_excluded(
            self.expander.strings(
                constraint, escapes=self.options.escapes, allow_unicode_escapes=self.options.unicode_escapes
            )
        )

    def _without_excluded(self, text: Expression | None) -> Expression | None:
        """Those of the texts of strings within whose quotes none of the excluded ones stands; None for none."""
        if text is None or not self.options.excludes:
            return text
        allowed = Sequence((QUOTE, text_without(self.options.excludes), QUOTE))
        found = Simplifier({}, self.limits).simplify(Intersection((text, allowed)))
        return None if is_empty(found, self.limits) else found

    def _described(self, kind: str, constraint: Any) -> str:
        return kind if constraint in (ANY_NUMBER, ANY_STRING) else f"{kind} {len(self._names)}"

    def finite_values(self, literals: Literals) -> list[Expression] | None:
        """The texts of a set of scalars, one each; None where it has other values or too many."""
        found: list[Expression] = []
        for kind in KINDS:
            for clause in self.expander.clauses(literals, kind):
                if kind in ("array", "object"):
                    if not self.emptiness.is_contradictory(kind, clause):
                        return None
                    continue
                if kind in ("null", "boolean"):
                    values = clause.allowed & ({None} if kind == "null" else {True, False})
                    found += [
                        Bytes({None: b"null", True: b"true", False: b"false"}[v]) for v in sorted(values, key=str)
                    ]
                    continue
                allowed = clause.constraint.allowed
                if allowed is None:
                    return None
                write: Any = self._numbers if kind == "number" else self._strings
                for value in sorted(allowed):
                    alone = type(clause.constraint)(allowed=frozenset((value,)))
                    # One value is written in one way, whatever else was asked of it.
                    texts = write([alone]) if write([clause.constraint.intersect(alone)]) else []
                    found += [text for text in texts if text not in found]
        return found

    # ---------------------------------------------------------------------------------------------------- composites
    def _composite(self, literals: Literals, kind: str, clauses: list[Any], depth: int) -> Expression:
        name = self._names.get((kind, literals, depth))
        if name is None:
            first = min(literals, default=None)
            place = self._store[first[0]].pointer if first is not None else ""
            name = self._add((kind, literals, depth), f"{place} {kind}".strip(), Alternation(()))
            self._waiting.append((name, kind, clauses, depth))
        return Reference(name)

    def finish(self) -> None:
        """Write the rules of all arrays and objects that were asked for, and of those that these ask for."""
        while self._waiting:
            name, kind, clauses, depth = self._waiting.pop(0)
            if kind == "object":
                found = [object_expression(self, clause, depth, len(clauses)) for clause in clauses]
            else:
                found = [array_expression(self, clause, depth) for clause in clauses]
            options = tuple(option for option in found if option is not None)
            self.rules[name] = options[0] if len(options) == 1 else Alternation(options)
        # They refer to each other: all that was made along the way would be left to the garbage collector.
        del self.emptiness.expander

    def _add(self, key: tuple[Any, ...], name: str, expression: Expression) -> str:
        wanted, number = name, self._numbered.get(name, 1)
        while name in self.rules:
            number += 1
            name = f"{wanted} ({number})"
        self._numbered[wanted] = number
        self._names[key] = name
        self.rules[name] = expression
        return name

    # ---------------------------------------------------------------------------------------------------------- keys
    def key(self, name: str) -> Expression:
        """The texts of one property name."""
        found = self._keys.get(name)
        if found is None:
            spelled = spelled_text(name, self.options.escapes, self.options.unicode_escapes)
            found = self._keys[name] = self._without_excluded(spelled) or NOTHING
        return found

    def inlined(self, expression: Expression) -> Expression:
        """An expression with the rules put in that it refers to, which refer to no others."""
        if isinstance(expression, Reference):
            return self.inlined(self.rules[expression.rule])
        if isinstance(expression, Sequence):
            return Sequence(tuple(map(self.inlined, expression.parts)))
        return expression

    def other_key(self, constraint: StringConstraint) -> Expression | None:
        """The texts of the names that satisfy a constraint; None where there are none."""
        if constraint == ANY_STRING:
            return self._strings([constraint])[0]
        key = ("name", constraint)
        if key not in self._names:
            expression: Expression | None
            if constraint.only_excludes:
                expression = self._without_excluded(
                    other_names(sorted(constraint.excluded), self.options.escapes, self.options.unicode_escapes)
                )
            else:
                expression = self._string(constraint)
            if expression is None:
                return None
            self._add(key, f"name {len(self._names)}", expression)
        return Reference(self._names[key])


@lru_cache(maxsize=64)
def _writer_of_anything(options: TextOptions, limits: Limits) -> Writer:
    """A writer that has written the rules of all values, and no others."""
    writer = Writer(SchemaStore(True, None, Dialect.DRAFT2020_12), options, limits)
    writer._values[ANY, 0] = writer._value(ANY, 0)
    writer.finish()
    for body in writer.rules.values():
        if contains(body, Reference):
            share(body)
    return writer


def _merged(constraints: list[Any]) -> list[Any]:
    """The constraints, those that only say which values are allowed joined into one."""
    if len(constraints) == 1:
        return constraints
    plain: frozenset[Any] | None = None
    others: dict[Any, None] = {}
    for constraint in constraints:
        kind = type(constraint)
        if constraint.allowed is not None and constraint == kind(allowed=constraint.allowed):
            plain = constraint.allowed if plain is None else plain | constraint.allowed
        else:
            others[constraint] = None
    return list(others) if plain is None else [kind(allowed=plain), *others]
