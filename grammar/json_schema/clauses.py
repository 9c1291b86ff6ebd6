"""Clauses: what values of one kind must satisfy, with no alternatives left. A set of schemas is a union of clauses."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from .diagrams import Condition
from .numbers import ANY_NUMBER, NumberConstraint
from .presence import Formula
from .schemas import Literal
from .strings import ANY_STRING, StringConstraint


@dataclass(frozen=True)
class Selector:
    """The properties a schema is about: those of `pattern` (None: all), but `names` and those of `patterns`."""

    pattern: str | None = None
    names: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Violation:
    """Some property of `selector` has a value that satisfies `value`, and a name that satisfies `name`."""

    selector: Selector
    value: Literal | None = None
    name: Literal | None = None


@dataclass(frozen=True)
class Contains:
    """At least `minimum` items satisfy `literal`, and at most `maximum` (None: any number)."""

    literal: Literal
    minimum: int
    maximum: int | None


class Clause:
    """What all kinds have: a place to note what unevaluated keywords look at."""

    def __init__(self) -> None:
        #: By scope, what has been evaluated there: see `Evaluated`.
        self.evaluated: dict[int, Evaluated] = {}
        self.unevaluated: list[tuple[int, Literal]] = []

    def copy(self) -> Any:
        """A clause that can go on its own way."""
        other = object.__new__(type(self))  # `copy.copy` takes several times as long
        other.__dict__.update(
            (name, value.copy() if isinstance(value, (dict, list)) else value) for name, value in vars(self).items()
        )
        other.evaluated = {scope: evaluated.copy() for scope, evaluated in self.evaluated.items()}
        return other

    def evaluation(self, scope: int) -> Evaluated:
        return self.evaluated.setdefault(scope, Evaluated())


class Evaluated:
    """The properties or items that keywords within one scope have evaluated."""

    def __init__(self) -> None:
        self.everything = False
        self.names: dict[str, None] = {}
        self.patterns: dict[str, None] = {}
        self.items = 0
        self.contained: dict[Literal, None] = {}

    def copy(self) -> Evaluated:
        other = copy(self)
        other.names, other.patterns, other.contained = self.names.copy(), self.patterns.copy(), self.contained.copy()
        return other


class ScalarClause(Clause):
    """null or a boolean: one of `allowed` (None: any)."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed: frozenset[Any] = frozenset((None, True, False))

    def intersect(self, *, allowed: frozenset[Any] | None = None, excluded: frozenset[Any] = frozenset()) -> bool:
        self.allowed = (self.allowed if allowed is None else self.allowed & allowed) - excluded
        return bool(self.allowed)


class NumberClause(Clause):
    """A number."""

    def __init__(self) -> None:
        super().__init__()
        self.constraint = ANY_NUMBER

    def intersect(self, **fields: Any) -> bool:
        self.constraint = self.constraint.intersect(NumberConstraint(**fields))
        return self.constraint.allowed is None or bool(self.constraint.allowed)


class StringClause(Clause):
    """A string."""

    def __init__(self) -> None:
        super().__init__()
        self.constraint = ANY_STRING

    def intersect(self, **fields: Any) -> bool:
        constraint = self.constraint.intersect(StringConstraint(**fields))
        if constraint.allowed is not None and constraint.excluded:
            constraint = replace(constraint, allowed=constraint.allowed - constraint.excluded, excluded=frozenset())
        self.constraint = constraint
        short = constraint.max_length is not None and constraint.max_length < constraint.min_length
        return not short and (constraint.allowed is None or bool(constraint.allowed))


class ArrayClause(Clause):
    """An array. `items`: (from which index on, below which or None, what it satisfies)."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[tuple[int, int | None, Literal]] = []
        self.contains: list[Contains] = []
        #: Some item from an index on satisfies a literal.
        self.violations: list[tuple[int, Literal]] = []
        self.minimum, self.maximum = 0, None
        self.unique: str | None = None

    maximum: int | None

    def limit(self, minimum: int = 0, maximum: int | None = None) -> bool:
        self.minimum = max(self.minimum, minimum)
        if maximum is not None:
            self.maximum = maximum if self.maximum is None else min(self.maximum, maximum)
        return self.maximum is None or self.minimum <= self.maximum


class ObjectClause(Clause):
    """An object. `declared`: the names of `properties` keywords, which come first and in this order."""

    def __init__(self) -> None:
        super().__init__()
        self.declared: dict[str, None] = {}
        #: What the value of a name satisfies, if it is there.
        self.properties: dict[str, tuple[Literal, ...]] = {}
        self.others: list[tuple[Selector, Literal]] = []
        self.names: dict[Literal, None] = {}
        self.required: dict[str, None] = {}
        self.absent: dict[str, None] = {}
        self.conditions: list[Formula] = []
        self.violations: list[Violation] = []
        self.minimum = 0
        self.maximum: int | None = None
        self.minimum_place = ""
        #: What is asked besides, where the alternatives are too many for a clause each, and the names it is about.
        self.formula: Condition | None = None
        self.mentioned: dict[str, None] = {}

    def property(self, name: str, literal: Literal) -> bool:
        known = self.properties.get(name, ())
        if literal not in known:
            self.properties[name] = (*known, literal)
        return True

    def require(self, name: str) -> bool:
        self.required[name] = None
        return name not in self.absent

    def forbid(self, name: str) -> bool:
        self.absent[name] = None
        return name not in self.required

    def condition(self, formula: Formula) -> bool:
        """Add a condition on names; a plain one is a required or absent name."""
        if isinstance(formula, bool):
            return formula
        kind, rest = formula
        if isinstance(rest, str):
            return self.require(rest) if kind == "has" else self.forbid(rest)
        if kind == "and":
            return all(self.condition(part) for part in rest)
        self.conditions.append(formula)
        return True

    def limit(self, minimum: int = 0, maximum: int | None = None, place: str = "") -> bool:
        if minimum > self.minimum:
            self.minimum, self.minimum_place = minimum, place
        if maximum is not None:
            self.maximum = maximum if self.maximum is None else min(self.maximum, maximum)
        return self.maximum is None or self.minimum <= self.maximum


CLAUSES: dict[str, Callable[[], Any]] = {
    "null": ScalarClause,
    "boolean": ScalarClause,
    "number": NumberClause,
    "string": StringClause,
    "array": ArrayClause,
    "object": ObjectClause,
}
