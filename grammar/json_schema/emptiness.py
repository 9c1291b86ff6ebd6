"""Sets of schemas that no value satisfies, as far as that can be seen before any automaton is built.

"Empty" is always true when it is said. What is not seen here - a schema that needs itself, an object whose conditions
exclude each other in some deep way - is found when the automata are trimmed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..limits import Limits
from .clauses import ArrayClause, NumberClause, ObjectClause, ScalarClause, StringClause
from .diagrams import FALSE
from .numbers import ANY_NUMBER, NumberConstraint, number_expression
from .presence import settled
from .schemas import NONE, NOTHING_VALID, Literals
from .shapes import ItemShapes, ObjectShape
from .strings import ANY_STRING, StringConstraint

if TYPE_CHECKING:
    from .expand import Expander

#: Sets within sets that are looked into.
_MAX_DEPTH = 6


class Emptiness:
    """Answers, remembered by set and kind."""

    def __init__(self) -> None:
        self.expander: Expander = None  # type: ignore[assignment]  # they need each other
        self._known: dict[tuple[Literals, str], bool] = {}
        self._of_sets: dict[Literals, bool] = {}
        #: The questions being answered, the first being number 0.
        self._open: dict[tuple[Literals, str], int] = {}
        #: The first open question that an answer hangs on, of those given since the newest question was opened; -1: it
        #: hangs on how many are open.
        self._hangs_on = _MAX_DEPTH

    def is_empty(self, literals: Literals) -> bool:
        """No value at all satisfies the set."""
        if not literals:
            return False
        known = self._of_sets.get(literals)
        if known is not None:
            return known
        if literals == NONE or (NOTHING_VALID, True) in literals:
            return True
        for kind in self.expander.kinds(literals):
            if not self.is_empty_kind(literals, kind):
                if (literals, kind) in self._known:
                    self._of_sets[literals] = False
                return False
        self._of_sets[literals] = True
        return True

    def is_empty_kind(self, literals: Literals, kind: str) -> bool:
        """No value of `kind` satisfies the set."""
        key = literals, kind
        known = self._known.get(key)
        if known is not None:
            return known
        number = len(self._open)
        if key in self._open or number >= _MAX_DEPTH:
            self._hangs_on = min(self._hangs_on, self._open.get(key, -1))
            return False  # of what needs itself nothing is said
        before, self._hangs_on = self._hangs_on, _MAX_DEPTH
        self._open[key] = number
        found = False
        try:
            clauses = self.expander.clauses(literals, kind)
            found = not clauses or all(self.is_contradictory(kind, clause) for clause in clauses)
        finally:
            del self._open[key]
            # An answer that hangs on another open question might be another one without it, unless it is yes.
            is_settled = found or self._hangs_on >= number
            self._hangs_on = before if is_settled else min(before, self._hangs_on)
        if is_settled or not number:
            self._known[key] = found
        return found

    def is_contradictory(self, kind: str, clause: Any) -> bool:
        """No value of `kind` satisfies a clause."""
        if isinstance(clause, ScalarClause):
            return clause.allowed.isdisjoint((None,) if kind == "null" else (True, False))
        if isinstance(clause, NumberClause):
            return clause.constraint is not ANY_NUMBER and _lacks_numbers(clause.constraint, self.expander.limits)
        if isinstance(clause, StringClause):
            if clause.constraint is ANY_STRING:
                return False
            if clause.constraint == StringConstraint(allowed=clause.constraint.allowed):
                return clause.constraint.allowed is not None and not clause.constraint.allowed
            return self.expander.strings(clause.constraint) is None
        if isinstance(clause, ArrayClause):
            return self._array(clause)
        return self._object(clause)

    def _array(self, clause: ArrayClause) -> bool:
        if clause.maximum is not None and clause.maximum < clause.minimum:
            return True
        shapes = ItemShapes(clause.items)
        return any(self.is_empty(shapes.literals(i)) for i in range(min(clause.minimum, shapes.alike + 1)))

    def _object(self, clause: ObjectClause) -> bool:
        if clause.formula is not None and clause.formula.formula == FALSE:
            return True
        if clause.maximum is not None and (clause.maximum < clause.minimum or clause.maximum < len(clause.required)):
            return True
        if clause.conditions:
            known = {**dict.fromkeys(clause.required, True), **dict.fromkeys(clause.absent, False)}
            if any(settled(condition, known) is False for condition in clause.conditions):
                return True
        if not clause.required:
            return False
        shape = ObjectShape(self.expander, clause)
        return any(not shape.may_have(name) for name in clause.required)


def _lacks_numbers(constraint: NumberConstraint, limits: Limits) -> bool:
    if constraint.allowed is not None:
        return not any(map(constraint.admits, constraint.allowed))
    return number_expression(constraint, limits=limits) is None
