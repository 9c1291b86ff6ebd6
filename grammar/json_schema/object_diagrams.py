"""Objects whose properties depend on each other in many ways: the automaton of a formula.

A state says how far the object is and what is left of the formula, so it is the node of a decision diagram whose
variables are the properties (R. Bryant, "Graph-based algorithms for Boolean function manipulation", 1986). The values of
a property are told apart as far as what is left asks: each class of them is a way on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import GrammarError, GrammarTooLarge, GrammarUnsupported
from ..expression import EMPTY, Expression, Machine
from ..expression import Sequence as Joined
from .clauses import ObjectClause
from .diagrams import FALSE, TRUE, Atom, Condition
from .schemas import ANYTHING, Literal, Literals
from .shapes import ObjectShape, OtherNames

if TYPE_CHECKING:
    from .writer import Writer

#: Classes of values of one property, about 0.1 ms each.
_MAX_CLASSES = 256

#: For each of some literals, whether the values of a class satisfy it.
_Signs = tuple[bool, ...]


@dataclass(frozen=True)
class _State:
    """`position` in declared order or the bit set of names seen; of `others` only the first counts for a minimum."""

    position: int
    count: int
    formula: int
    others: int = 0


def diagram_expression(writer: Writer, clause: ObjectClause, condition: Condition, depth: int) -> Expression | None:
    """The objects that satisfy a clause and its formula; None where that is easily seen to be none.

    Raises `GrammarError`.
    """
    return _Diagram(writer, clause, condition, depth).expression()


class _Diagram:
    def __init__(self, writer: Writer, clause: ObjectClause, condition: Condition, depth: int) -> None:
        self._writer = writer
        self._clause = clause
        self._formulas, self._rules = condition.formulas, condition.rules
        self._depth = depth
        self._in_order = writer.options.property_order == "declared"
        shape = self._shape = ObjectShape(writer.expander, clause)
        if clause.minimum > 1:
            shape.list_others()
        self._names = [name for name in shape.names if shape.may_have(name)]
        self._declared = sum(name in clause.declared for name in self._names)
        self._keys = [writer.key(name) for name in self._names]
        self._literals = [shape.literals(name) for name in self._names]
        #: The rules that are about a name.
        self._about = [
            [i for i, (selector, _) in enumerate(self._rules) if shape.selects(selector, name)] for name in self._names
        ]
        self._others: list[tuple[Expression, OtherNames]] = []
        for names in shape.other_names():
            key = writer.other_key(names.constraint)
            if key is not None:
                self._others.append((key, names))
        if clause.minimum > 1 and self._others and clause.minimum > len(clause.required) + 1:
            raise GrammarUnsupported(
                f"minProperties {clause.minimum} with more than one property whose name is not given: whether names "
                "repeat is not tracked",
                clause.minimum_place,
            )
        known = {name: i for i, name in enumerate(self._names)}
        gone: dict[Atom, bool] = {}
        for atom in condition.formulas.atoms(condition.formula):
            if atom[0] != "all" and atom[1] not in known:
                gone[atom] = False
        wanted = condition.formulas.settled(condition.formula, gone)
        self._start = wanted
        self._count_to = max(clause.minimum, 0 if clause.maximum is None else clause.maximum + 1)
        self._split: dict[tuple[Literals, tuple[Literal, ...]], list[_Signs]] = {}
        self._ways: dict[tuple[int, int], list[tuple[Literals, int]]] = {}

    # ------------------------------------------------------------------------------------------------------- values
    def _classes(self, base: Literals, asked: tuple[Literal, ...]) -> list[_Signs]:
        """The classes of the values of `base` by which of the literals they satisfy, without those seen to be empty."""
        key = base, asked
        found = self._split.get(key)
        if found is not None:
            return found
        found = [()]
        for i, literal in enumerate(asked):
            opposite = self._writer.expander.negated(literal)
            grown: list[_Signs] = []
            for signs in found:
                chosen = self._chosen(asked[:i], signs, range(i))
                grown += [
                    (*signs, holds)
                    for holds, one in ((True, literal), (False, opposite))
                    if not self._is_empty(base | chosen | {one})
                ]
            found = grown
            if len(found) > _MAX_CLASSES:
                raise GrammarTooLarge("the values of one property are told apart too finely", limit="max_schema_states")
        self._split[key] = found
        return found

    def _is_empty(self, literals: Literals) -> bool:
        try:
            return self._writer.emptiness.is_empty(literals - {(ANYTHING, True)})
        except GrammarError:  # it may come to nothing: what is to be written is looked at again
            return False

    def _chosen(self, asked: Sequence[Literal], signs: _Signs, which: Iterable[int]) -> Literals:
        negated = self._writer.expander.negated
        return frozenset(asked[i] if signs[i] else negated(asked[i]) for i in which)

    def _values(self, base: Literals, asked: tuple[Literal, ...], targets: dict[_Signs, int]) -> list[tuple[Literals, int]]:
        """What values satisfy, and what is left of the formula with them: as few and as simple sets as are easily found."""
        found: list[tuple[Literals, int]] = []
        for target in dict.fromkeys(targets.values()):
            inside = [signs for signs, to in targets.items() if to == target]
            outside = [signs for signs, to in targets.items() if to != target]
            covered: set[_Signs] = set()
            for signs in inside:
                if signs in covered:
                    continue
                kept = list(range(len(asked)))
                # That a literal does not hold is asked for last: a negation is more to write.
                for i in sorted(kept, key=lambda i: signs[i]):
                    fewer = [j for j in kept if j != i]
                    if not any(all(other[j] == signs[j] for j in fewer) for other in outside):
                        kept = fewer
                covered.update(other for other in inside if all(other[j] == signs[j] for j in kept))
                found.append((base | self._chosen(asked, signs, kept), target))
        return found

    def _settled(self, formula: int, base: Literals, name: str | None, about: Iterable[int]) -> list[tuple[Literals, int]]:
        """The ways on with a property: what its value satisfies, and what is left of a formula."""
        formulas = self._formulas
        atoms = formulas.atoms(formula)
        rules = [i for i in about if ("all", i) in atoms]
        own = sorted(atom[2] for atom in atoms if atom[0] == "value" and atom[1] == name)  # type: ignore[misc]
        asked = tuple(dict.fromkeys((*own, *(self._rules[i][1] for i in rules))))
        targets: dict[_Signs, int] = {}
        for signs in self._classes(base, asked):
            holds = dict(zip(asked, signs, strict=True))
            known: dict[Atom, bool] = {("all", i): False for i in rules if not holds[self._rules[i][1]]}
            if name is not None:
                known["has", name] = True
                known.update((("value", name, literal), holds[literal]) for literal in own)
            targets[signs] = formulas.settled(formula, known)
        return [(literals, left) for literals, left in self._values(base, asked, targets) if left != FALSE]

    def _named(self, formula: int, position: int) -> list[tuple[Literals, int]]:
        key = formula, position
        if key not in self._ways:
            name = self._names[position]
            self._ways[key] = self._settled(formula, self._literals[position], name, self._about[position])
        return self._ways[key]

    def _unnamed(self, formula: int, number: int) -> list[tuple[Literals, int]]:
        key = formula, -1 - number
        if key not in self._ways:
            names = self._others[number][1]
            self._ways[key] = self._settled(formula, names.literals, None, sorted(names.violations))
        return self._ways[key]

    def _without(self, formula: int, name: str) -> int:
        """What is left where a property is not there."""
        return self._formulas.settled(
            formula, {atom: False for atom in self._formulas.atoms(formula) if atom[0] != "all" and atom[1] == name}
        )

    # ------------------------------------------------------------------------------------------------------- states
    def expression(self) -> Expression | None:
        if self._start == FALSE:
            return None
        layout, depth = self._writer.layout, self._depth
        sources: list[int] = []
        labels: list[Expression] = []
        targets: list[int] = []
        numbers: dict[tuple[str, _State], int] = {}
        work: list[tuple[str, _State]] = []

        def edge(source: int, label: Expression, kind: str, state: _State | None) -> None:
            target = 1
            if state is not None:
                key = kind, state
                target = numbers.setdefault(key, len(numbers) + 2)
                if target == len(numbers) + 1:
                    work.append(key)
                    if len(numbers) > self._writer.limits.max_schema_states:
                        raise GrammarTooLarge(
                            f"an object of {len(self._names)} properties that depend on each other has too many states",
                            limit="max_schema_states",
                        )
            sources.append(source)
            labels.append(label)
            targets.append(target)

        start = _State(0, 0, self._start)
        edge(0, layout.opening(b"{", depth), "key", start)
        if self._may_end(start):
            edge(0, layout.empty(b"{", b"}"), "", None)
        comma, closing = layout.comma(depth), layout.closing(b"}", depth)
        while work:
            kind, state = work.pop()
            at = numbers[kind, state]
            if kind == "value":
                edge(at, comma, "key", state)
                if self._may_end(state):
                    edge(at, closing, "", None)
                continue
            for label, target_kind, target in self._steps(state):
                edge(at, label, target_kind, target)
        return Machine(tuple(sources), tuple(labels), tuple(targets), (1,))

    def _steps(self, state: _State) -> list[tuple[Expression, str, _State]]:
        found: list[tuple[Expression, str, _State]] = []
        count = state.count + 1
        full = self._clause.maximum is not None and count > self._clause.maximum
        count = min(count, self._count_to)
        if self._in_order:
            may_come = [state.position] if state.position < len(self._names) else []
        else:
            may_come = [i for i in range(len(self._names)) if not state.position >> i & 1]
        for i in may_come if not full else ():
            position = i + 1 if self._in_order else state.position | 1 << i
            for literals, left in self._named(state.formula, i):
                label = self._property(self._keys[i], literals)
                if label is not None:
                    found.append((label, "value", _State(position, count, left, state.others)))
        if self._in_order and may_come:
            left = self._without(state.formula, self._names[state.position])
            if left != FALSE:
                found.append((EMPTY, "key", _State(state.position + 1, state.count, left, state.others)))
        if not full and (not self._in_order or state.position >= self._declared):
            found += self._other_steps(state, count)
        return found

    def _other_steps(self, state: _State, count: int) -> list[tuple[Expression, str, _State]]:
        """Properties of other names. Which of them are new is not known, so only the first counts for a minimum."""
        others = 0
        if self._clause.minimum:
            others = state.others + 1 if self._clause.maximum is not None else 1
            if self._clause.maximum is None and state.others:
                count = state.count
        found = []
        for number, (key, _) in enumerate(self._others):
            for literals, left in self._unnamed(state.formula, number):
                label = self._property(key, literals)
                if label is not None:
                    found.append((label, "value", _State(state.position, count, left, others)))
        return found

    def _property(self, key: Expression, literals: Literals) -> Expression | None:
        value = self._writer.value(literals - {(ANYTHING, True)}, self._depth + 1)
        return None if value is None else Joined((key, self._writer.layout.colon, value))

    def _may_end(self, state: _State) -> bool:
        """Whether it may end: what is not there is not, and all that there was kept the rules that are left."""
        repeated = max(state.others - 1, 0) if self._clause.maximum is not None else 0
        if state.count - repeated < self._clause.minimum:
            return False
        atoms = self._formulas.atoms(state.formula)
        return self._formulas.settled(state.formula, {atom: atom[0] == "all" for atom in atoms}) == TRUE
