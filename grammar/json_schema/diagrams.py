"""Formulas over the properties of an object, each equal one made once, and what is left of them as properties come.

Atoms: an object has a property; its value satisfies a literal; all properties of a selector satisfy a literal. Asked
for the properties one after the other, what is left of a formula is a node of a decision diagram, whose variables are
the properties: absent, or with a value of one of a few classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .schemas import Literal

if TYPE_CHECKING:
    from .clauses import Selector

#: A formula by its number; these two are known.
FALSE, TRUE = 0, 1
#: ("has", name), ("value", name, literal), which is asked only where the name is there, and ("all", number of a rule).
Atom = tuple[Any, ...]
_Node = tuple[str, frozenset[int]] | tuple[Atom, bool]


class Formulas:
    """Formulas in negation normal form, by number."""

    def __init__(self) -> None:
        self._nodes: list[_Node] = [("or", frozenset()), ("and", frozenset())]
        self._numbers: dict[_Node, int] = {node: number for number, node in enumerate(self._nodes)}
        #: By formula, the atoms in it.
        self._atoms: list[frozenset[Atom]] = [frozenset(), frozenset()]
        self._negated: dict[int, int] = {FALSE: TRUE, TRUE: FALSE}

        #: Formulas looked at to see what is left of them, and parts of them, about 1 us each.
        self.visited = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def _number(self, node: _Node, atoms: frozenset[Atom]) -> int:
        number = self._numbers.get(node)
        if number is None:
            number = self._numbers[node] = len(self._nodes)
            self._nodes.append(node)
            self._atoms.append(atoms)
        return number

    def atom(self, atom: Atom, holds: bool = True) -> int:
        """The formula that an atom holds, or does not."""
        found = self._numbers.get((atom, holds))
        if found is None:
            atoms = frozenset((atom,))
            found, opposite = self._number((atom, holds), atoms), self._number((atom, not holds), atoms)
            self._negated[found], self._negated[opposite] = opposite, found
        return found

    def atoms(self, formula: int) -> frozenset[Atom]:
        """What a formula asks about."""
        return self._atoms[formula]

    def all_of(self, formulas: Iterable[int]) -> int:
        return self._joined("and", formulas)

    def any_of(self, formulas: Iterable[int]) -> int:
        return self._joined("or", formulas)

    def _joined(self, kind: str, formulas: Iterable[int]) -> int:
        neutral, decided = (TRUE, FALSE) if kind == "and" else (FALSE, TRUE)
        parts: set[int] = set()
        for formula in formulas:
            node = self._nodes[formula]
            if formula == decided:
                return decided
            if formula != neutral:
                parts.update(node[1] if node[0] == kind else (formula,))
        if any(self._negated.get(part) in parts for part in parts):
            return decided
        # What is implied by another part says nothing: a and (a or b), a or (a and b).
        for part in list(parts):
            inner = self._nodes[part]
            if isinstance(inner[0], str) and not parts.isdisjoint(inner[1]):
                parts.discard(part)
        if len(parts) < 2:
            return next(iter(parts), neutral)
        return self._number((kind, frozenset(parts)), frozenset().union(*(self._atoms[part] for part in parts)))

    def negated(self, formula: int) -> int:
        """The opposite."""
        found = self._negated.get(formula)
        if found is None:
            kind, parts = self._nodes[formula]
            opposite = [self.negated(part) for part in parts]  # type: ignore[union-attr]  # no atom, whose is known
            found = self._joined("or" if kind == "and" else "and", opposite)
            self._negated[formula], self._negated[found] = found, formula
        return found

    def exactly_one(self, formulas: list[int]) -> int:
        """One of them holds and the others do not; as many parts as there are formulas."""
        none, one = TRUE, FALSE
        for formula in reversed(formulas):
            opposite = self.negated(formula)
            one = self.any_of((self.all_of((formula, none)), self.all_of((opposite, one))))
            none = self.all_of((opposite, none))
        return one

    def parts(self, formula: int) -> list[int]:
        """The formulas of which it is the conjunction."""
        kind, parts = self._nodes[formula]
        return sorted(parts) if kind == "and" else [formula]  # type: ignore[arg-type]

    def as_atom(self, formula: int) -> tuple[Atom, bool] | None:
        """The atom that it is, and whether it holds."""
        kind, holds = self._nodes[formula]
        return None if isinstance(kind, str) else (kind, bool(holds))

    def options(self, formula: int) -> list[int]:
        """The formulas of which it is the disjunction."""
        kind, parts = self._nodes[formula]
        return sorted(parts) if kind == "or" else [formula]  # type: ignore[arg-type]

    def settled(self, formula: int, known: Mapping[Atom, bool]) -> int:
        """What is left of a formula when it is known of some atoms whether they hold."""
        return self._settled(formula, known, {})

    def _settled(self, formula: int, known: Mapping[Atom, bool], done: dict[int, int]) -> int:
        found = done.get(formula)
        if found is None:
            self.visited += 1
            if self._atoms[formula].isdisjoint(known):
                found = formula
            else:
                kind, parts = self._nodes[formula]
                if isinstance(kind, str):
                    self.visited += len(parts)  # type: ignore[arg-type]
                    left = [self._settled(part, known, done) for part in parts]  # type: ignore[union-attr]
                    found = self._joined(kind, left)
                else:
                    found = TRUE if known[kind] == parts else FALSE
            done[formula] = found
        return found


@dataclass(frozen=True)
class Condition:
    """One of `formulas`, by number; ("all", i) in it: all properties of a selector satisfy a literal, of `rules[i]`."""

    formulas: Formulas
    formula: int
    rules: tuple[tuple[Selector, Literal], ...]
