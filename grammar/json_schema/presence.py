"""Conditions on which properties an object has: formulas over names, in negation normal form.

In declared order each name is settled once, so what is left of a formula is a state of the object's automaton: an
ordered decision diagram, in which a condition that can no longer hold is no state at all (R. Bryant, "Graph-based
algorithms for Boolean function manipulation", 1986).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Union

#: True, False, ("has", name), ("lacks", name), ("and", formulas), ("or", formulas).
Formula = Union[bool, tuple[str, str], tuple[str, tuple["Formula", ...]]]  # noqa: UP007  # not with a name within


def has(name: str) -> Formula:
    return ("has", name)


def lacks(name: str) -> Formula:
    return ("lacks", name)


def all_of(formulas: Iterable[Formula]) -> Formula:
    return _joined("and", formulas)


def any_of(formulas: Iterable[Formula]) -> Formula:
    return _joined("or", formulas)


def exactly_one(formulas: list[Formula]) -> Formula:
    """One of `formulas` holds and the others do not."""
    return any_of(
        all_of([formula, *(negated(other) for j, other in enumerate(formulas) if j != i)])
        for i, formula in enumerate(formulas)
    )


def negated(formula: Formula) -> Formula:
    """The opposite (De Morgan)."""
    if isinstance(formula, bool):
        return not formula
    kind, rest = formula
    if isinstance(rest, str):
        return ("lacks" if kind == "has" else "has", rest)
    return _joined("or" if kind == "and" else "and", [negated(part) for part in rest])


def _joined(kind: str, formulas: Iterable[Formula]) -> Formula:
    neutral = kind == "and"
    parts: dict[Formula, None] = {}
    for formula in formulas:
        if isinstance(formula, bool):
            if formula is not neutral:
                return formula
        elif formula[0] == kind:
            parts.update(dict.fromkeys(formula[1]))  # type: ignore[arg-type]
        else:
            parts[formula] = None
    for formula in parts:
        if isinstance(formula, tuple) and isinstance(formula[1], str) and negated(formula) in parts:
            return not neutral
    if len(parts) < 2:
        return next(iter(parts), neutral)
    return (kind, tuple(parts))


def settled(formula: Formula, known: Mapping[str, bool]) -> Formula:
    """What is left of a formula when it is known of some names whether they are there."""
    if isinstance(formula, bool):
        return formula
    kind, rest = formula
    if isinstance(rest, str):
        found = known.get(rest)
        return formula if found is None else found == (kind == "has")
    return _joined(kind, [settled(part, known) for part in rest])


def holds_without(formula: Formula) -> bool:
    """Whether a formula holds if no further name is there."""
    if isinstance(formula, bool):
        return formula
    kind, rest = formula
    if isinstance(rest, str):
        return kind == "lacks"
    return (all if kind == "and" else any)(holds_without(part) for part in rest)


def names_in(formula: Formula) -> dict[str, None]:
    """The names that a formula asks about, in its order."""
    found: dict[str, None] = {}
    stack = [formula]
    while stack:
        at = stack.pop()
        if isinstance(at, tuple):
            if isinstance(at[1], str):
                found[at[1]] = None
            else:
                stack.extend(reversed(at[1]))
    return found


def alternatives(formula: Formula, most: int) -> list[tuple[frozenset[str], frozenset[str]]] | None:
    """Pairs of names that must and must not be there, any of which will do; None where there are more than `most`."""
    if isinstance(formula, bool):
        return [(frozenset(), frozenset())] if formula else []
    kind, rest = formula
    if isinstance(rest, str):
        one = frozenset((rest,))
        return [(one, frozenset())] if kind == "has" else [(frozenset(), one)]
    found: dict[tuple[frozenset[str], frozenset[str]], None] = (
        {} if kind == "or" else {(frozenset(), frozenset()): None}
    )
    for part in rest:
        inner = alternatives(part, most)
        if inner is None:
            return None
        if kind == "or":
            found.update(dict.fromkeys(inner))
        else:
            found = {
                (left[0] | right[0], left[1] | right[1]): None
                for left in found
                for right in inner
                if (left[0] | right[0]).isdisjoint(left[1] | right[1])
            }
        if len(found) > most:
            return None
    return list(found)
