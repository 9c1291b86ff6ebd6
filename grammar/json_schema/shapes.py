"""What a clause says of each property of an object and each item of an array."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from ..errors import GrammarTooLarge
from .clauses import ObjectClause, Selector, StringClause, Violation
from .name_classes import MAX_CLASSES, name_classes
from .names import listed
from .patterns import matches, pattern_content
from .presence import names_in
from .schemas import NOTHING_VALID, Literal, Literals
from .strings import ANY_STRING, StringConstraint, string_content

if TYPE_CHECKING:
    from .expand import Expander

#: Names that `propertyNames` lists, up to which each is a name of its own.
_MAX_LISTED = 64
#: Schemas that some property or item must violate: one may violate any set of them at once.
MAX_VIOLATIONS = 6


class ItemShapes:
    """What each item of an array satisfies, by index."""

    def __init__(self, items: list[tuple[int, int | None, Literal]]) -> None:
        self._single: dict[int, list[Literal]] = {}
        self._ranges = [item for item in items if item[1] != item[0] + 1]
        for low, high, literal in items:
            if high == low + 1:
                self._single.setdefault(low, []).append(literal)
        #: From here on all items are alike.
        self.alike = max([low if high is None else high for low, high, _ in items] or [0])

    def literals(self, index: int) -> Literals:
        """What the item at `index` satisfies."""
        found = [lit for low, high, lit in self._ranges if low <= index and (high is None or index < high)]
        return frozenset((*found, *self._single.get(index, ())))


class OtherNames:
    """A class of the names that no keyword names: those found by some patterns and not by others."""

    def __init__(self, constraint: StringConstraint, literals: Literals, violations: frozenset[int]) -> None:
        self.constraint = constraint
        self.literals = literals
        #: The violations that a property of this class may be.
        self.violations = violations


class ObjectShape:
    """The names of one clause, in their order, and what their values satisfy."""

    def __init__(self, expander: Expander, clause: ObjectClause) -> None:
        self._expander = expander
        self.clause = clause
        self._listed: list[str] = []
        self._names: list[str] | None = None
        self._literals: dict[str, Literals] = {}
        self.others: list[tuple[Selector, Literal]] = list(clause.others)
        for scope, literal in clause.unevaluated:
            evaluated = clause.evaluated.get(scope)
            if evaluated is None:
                self.others.append((Selector(), literal))
            elif not evaluated.everything:
                self.others.append((Selector(None, frozenset(evaluated.names), tuple(evaluated.patterns)), literal))

    @property
    def names(self) -> list[str]:
        """Every name that some keyword names: the declared ones first, then the required, then others."""
        if self._names is None:
            self._names = self._found_names()
        return self._names

    def _found_names(self) -> list[str]:
        clause = self.clause
        found = dict.fromkeys((*clause.declared, *clause.required, *clause.properties))
        for condition in clause.conditions:
            found.update(names_in(condition))
        found.update(clause.mentioned)
        found.update(clause.absent)
        found.update(dict.fromkeys(self._listed))
        if clause.names:
            allowed = [constraint.allowed for constraint in self._name_constraints(frozenset(clause.names))]
            if None not in allowed:  # no others but these
                listed = sorted(frozenset().union(*(names for names in allowed if names is not None)))
                found.update(dict.fromkeys(listed if len(listed) <= _MAX_LISTED else ()))
        selectors = [selector for selector, _ in self.others] + [violation.selector for violation in clause.violations]
        for selector in selectors:
            if not found.keys() >= selector.names:
                found.update(dict.fromkeys(sorted(selector.names)))
        return list(found)

    def literals(self, name: str) -> Literals:
        """What the value of a name satisfies."""
        found = self._literals.get(name)
        if found is None:
            literals = self.clause.properties.get(name, ())
            for selector, literal in self.others:
                if self.selects(selector, name):
                    literals = (*literals, literal)
            found = self._literals[name] = frozenset(literals)
        return found

    def selects(self, selector: Selector, name: str) -> bool:
        """Whether a selector is about `name`."""
        if name in selector.names:
            return False
        if selector.patterns and any(self._finds(pattern, name) for pattern in selector.patterns):
            return False
        return selector.pattern is None or self._finds(selector.pattern, name)

    def _finds(self, pattern: str, name: str) -> bool:
        return self._expander.located(pattern, lambda: matches(pattern, name))

    def may_have(self, name: str) -> bool:
        """Whether an object may have this property, as far as can be seen."""
        clause = self.clause
        if name in clause.absent or (clause.names and not self.is_name(name)):
            return False
        literals = self.literals(name)
        return (NOTHING_VALID, True) not in literals and not self._expander.emptiness.is_empty(literals)

    def is_name(self, name: str, literals: Literals | None = None) -> bool:
        """Whether `propertyNames` (or `literals`) allows a name."""
        if literals is None:
            if not self.clause.names:
                return True
            literals = frozenset(self.clause.names)
        one = StringConstraint(allowed=frozenset((name,)))
        return any(self._expander.strings(c.intersect(one)) is not None for c in self._name_constraints(literals))

    def _name_constraints(self, literals: Literals) -> list[StringConstraint]:
        clauses: list[StringClause] = self._expander.clauses(literals, "string")
        return [clause.constraint for clause in clauses]

    def list_others(self) -> None:
        """Take the names that no keyword names for names of their own, if they are few."""
        names: list[str] = []
        for other in self.other_names():
            found = listed(string_content(other.constraint, self._expander.limits), _MAX_LISTED, self._expander.limits)
            if found is None or len(names) + len(found) > _MAX_LISTED:
                return
            names += found
        self._listed = sorted(set(names))
        self._names = None

    def other_names(self) -> list[OtherNames]:
        """The classes of the names that are not named. Raises `GrammarTooLarge`."""
        clause = self.clause
        patterns: dict[str, None] = {}
        for selector in [selector for selector, _ in self.others] + [v.selector for v in clause.violations]:
            if selector.pattern is not None:
                patterns[selector.pattern] = None
            patterns.update(dict.fromkeys(selector.patterns))
        if len(patterns) > 1:
            for pattern in patterns:
                self._expander.located(pattern, lambda pattern=pattern: pattern_content(pattern, self._expander.limits))  # type: ignore[misc]
        classes = name_classes(list(patterns), self._expander.limits)
        if classes is None:
            raise GrammarTooLarge(
                f"{len(patterns)} patterns sort the names of one object into more than {MAX_CLASSES} classes",
                self._expander.places.get(next(iter(patterns))),
                limit="max_schema_states",
            )
        excluded = frozenset(self.names)
        bases = [ANY_STRING]
        if clause.names:
            bases = self._name_constraints(frozenset(clause.names))
        found = []
        for matched, unmatched in classes:

            def selects(selector: Selector, matched: frozenset[str] = matched) -> bool:
                wanted = selector.pattern is None or selector.pattern in matched
                return wanted and matched.isdisjoint(selector.patterns)

            literals = frozenset(literal for selector, literal in self.others if selects(selector))
            if (NOTHING_VALID, True) in literals or self._expander.emptiness.is_empty(literals):
                continue
            violations = frozenset(i for i, violation in enumerate(clause.violations) if selects(violation.selector))
            asked = StringConstraint(patterns=matched, not_patterns=unmatched, excluded=excluded)
            for base in bases:
                found += self._by_names(base.intersect(asked), literals, violations)
        return found

    def _by_names(
        self, constraint: StringConstraint, literals: Literals, violations: frozenset[int]
    ) -> list[OtherNames]:
        """A class as it is, and the part of it in which a name violates `propertyNames`."""
        if not violations:
            return [OtherNames(constraint, literals, violations)]
        by_name = [i for i in violations if self.clause.violations[i].name is not None]
        found = [OtherNames(constraint, literals, violations.difference(by_name))]
        for chosen in subsets(by_name):
            names = [constraint]
            for i in chosen:
                name = self.clause.violations[i].name
                assert name is not None
                more = self._name_constraints(frozenset((name,)))
                names = [left.intersect(right) for left in names for right in more]
            shown = violations.difference(by_name).union(chosen)
            found += [OtherNames(one, literals, shown) for one in names]
        return found

    def may_violate(self, violation: Violation, name: str) -> bool:
        """Whether a named property can be what a violation asks for, its value aside."""
        if not self.selects(violation.selector, name):
            return False
        return violation.name is None or self.is_name(name, frozenset((violation.name,)))


def subsets(numbers: list[int]) -> list[tuple[int, ...]]:
    """All sets of `numbers` but the empty one. Raises `GrammarTooLarge`."""
    if len(numbers) > MAX_VIOLATIONS:
        raise GrammarTooLarge(
            f"{len(numbers)} schemas that some part must violate, in one value", limit="max_schema_alternatives"
        )
    return [chosen for size in range(1, len(numbers) + 1) for chosen in combinations(numbers, size)]
