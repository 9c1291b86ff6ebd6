"""Conditions on which properties an object has: formulas over names, in negation normal form.

In declared order each name is settled once, so what is left of a formula is a state of the object's automaton: an
ordered decision diagram, in which a condition that can no longer hold is no state at all (R. Bryant, "Graph-based
algorithms for Boolean function manipulation", 1986).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Union

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


class Wanted(NamedTuple):
    """Names that must be there, names that must not, and sets of names of each of which one must: none overlap."""

    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    groups: frozenset[frozenset[str]] = frozenset()


def alternatives(formula: Formula, most: int) -> list[Wanted] | None:
    """What a formula asks for, as ways any of which will do; None where there are more than `most`.

    That one of several names is there is no choice but a group, so that a conjunction of such does not multiply.
    """
    if isinstance(formula, bool):
        return [Wanted()] if formula else []
    kind, rest = formula
    if isinstance(rest, str):
        one = frozenset((rest,))
        return [Wanted(required=one) if kind == "has" else Wanted(forbidden=one)]
    if kind == "or":
        names = frozenset(str(part[1]) for part in rest if isinstance(part, tuple) and part[0] == "has")
        others = [part for part in rest if isinstance(part, tuple) and part[0] != "has"]
        found: dict[Wanted, None] = {}
        if names:
            found.update(dict.fromkeys(_consistent(Wanted(groups=frozenset((names,))))))
        for part in others:
            inner = alternatives(part, most)
            if inner is None or len(found) + len(inner) > most:
                return None
            found.update(dict.fromkeys(inner))
        return list(found)
    found = {Wanted(): None}
    for conjunct in rest:
        inner = alternatives(conjunct, most)
        if inner is None or len(found) * len(inner) > most * most:
            return None
        found = {
            both: None
            for left in found
            for right in inner
            for both in _consistent(
                Wanted(left.required | right.required, left.forbidden | right.forbidden, left.groups | right.groups)
            )
        }
        if len(found) > most:
            return None
    return list(found)


def _consistent(wanted: Wanted) -> list[Wanted]:
    """The same without contradictions, groups that say nothing new, and names in two groups."""
    required, forbidden = wanted.required, wanted.forbidden
    groups = wanted.groups
    while True:
        if required & forbidden:
            return []
        groups = frozenset(group - forbidden for group in groups if not group & required)
        single = frozenset().union(*(group for group in groups if len(group) < 2))
        if frozenset() in groups:
            return []
        if not single:
            break
        required |= single
    groups = frozenset(group for group in groups if not any(other < group for other in groups))
    counts = Counter(name for group in groups for name in group)
    shared = max(sorted(counts), key=counts.__getitem__, default="")
    if counts[shared] < 2:
        return [Wanted(required, forbidden, groups)]
    # With the name all groups with it are met; without it they are met by the others.
    without = frozenset(group - {shared} for group in groups)
    return _consistent(Wanted(required | {shared}, forbidden, groups)) + _consistent(
        Wanted(required, forbidden, without)
    )
