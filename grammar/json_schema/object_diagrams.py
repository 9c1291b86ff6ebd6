"""Objects whose properties depend on each other in many ways: the automaton of a formula.

A state says how far the object is and what is left of the formula, so it is the node of a decision diagram whose
variables are the properties (R. Bryant, "Graph-based algorithms for Boolean function manipulation", 1986). The values
of a property are told apart as far as what is left asks: each class of them is a way on.
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
from .scalar_keywords import listed_scalars
from .schemas import ANYTHING, Literal, Literals
from .shapes import ObjectShape, OtherNames

if TYPE_CHECKING:
    from .writer import Writer

#: Formulas and parts of them that are looked at, in all, to see what is left of them: a second or two.
_MOST_VISITED = 2_000_000
#: Classes of values of one property, about 0.1 ms each.
_MAX_CLASSES = 256


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
        self._split: dict[tuple[Literals, tuple[Literal, ...]], list[int]] = {}
        self._ways: dict[tuple[int, int], list[tuple[Literals, int]]] = {}

    # ------------------------------------------------------------------------------------------------------- values
    def _classes(self, base: Literals, asked: tuple[Literal, ...]) -> list[int]:
        """The classes of the values of `base` by which of the literals they satisfy, bit i for the literal i.

        Most that have no values are left out; what is asked of others comes to nothing when it is to be written.
        """
        key = base, asked
        found = self._split.get(key)
        if found is not None:
            return found
        expander = self._writer.expander
        bits: dict[tuple[str, object], int] = {}
        others = []
        for i, (number, positive) in enumerate(asked):
            values = listed_scalars(expander, expander.store[number]) if positive else None
            if values is None:
                others.append(i)
            for value in values or ():
                bits[value] = bits.get(value, 0) | 1 << i
        found = list(dict.fromkeys((*sorted(bits.values()), 0)))  # a set lists its values in any order
        self._check_classes(found)
        known = [i for i in range(len(asked)) if i not in others]
        for i in others:
            grown: list[int] = []
            for bit in (1 << i, 0):
                grown += [
                    signs | bit
                    for signs in found
                    if not self._is_empty(base | self._chosen(asked, signs | bit, (*_telling(known, signs), i)))
                ]
            known.append(i)
            found = grown
            self._check_classes(found)
        self._split[key] = found
        return found

    def _check_classes(self, found: list[int]) -> None:
        if len(found) > _MAX_CLASSES:
            raise GrammarTooLarge(
                f"the values of one property are told apart in {len(found)} ways", limit="max_schema_states"
            )

    def _is_empty(self, literals: Literals) -> bool:
        try:
            return self._writer.emptiness.is_empty(literals - {(ANYTHING, True)})
        except GrammarError:  # it may come to nothing: what is to be written is looked at again
            return False

    def _chosen(self, asked: Sequence[Literal], signs: int, which: Iterable[int]) -> Literals:
        negated = self._writer.expander.negated
        return frozenset(asked[i] if signs >> i & 1 else negated(asked[i]) for i in which)

    def _values(
        self, base: Literals, asked: tuple[Literal, ...], targets: dict[int, int]
    ) -> list[tuple[Literals, int]]:
        """What values satisfy and what is then left of a formula: few and simple sets, as far as easily found."""
        found: list[tuple[Literals, int]] = []
        for target in dict.fromkeys(targets.values()):
            if target == FALSE:
                continue
            outside = [signs for signs, to in targets.items() if to != target]
            left = [signs for signs, to in targets.items() if to == target]
            while left:
                signs = left[0]
                # That literals hold is enough more often than not, and a negation is more to write.
                kept = signs
                if any(not (other ^ signs) & kept for other in outside):
                    kept = (1 << len(asked)) - 1
                for i in sorted(range(len(asked)), key=lambda i: signs >> i & 1):
                    fewer = kept & ~(1 << i)
                    if fewer != kept and all((other ^ signs) & fewer for other in outside):
                        kept = fewer
                left = [other for other in left if (other ^ signs) & kept]
                which = [i for i in range(len(asked)) if kept >> i & 1]
                found.append((base | self._chosen(asked, signs, which), target))
        return found

    def _settled(
        self, formula: int, base: Literals, name: str | None, about: Iterable[int]
    ) -> list[tuple[Literals, int]]:
        """The ways on with a property: what its value satisfies, and what is left of a formula."""
        formulas = self._formulas
        atoms = formulas.atoms(formula)
        rules = [i for i in about if ("all", i) in atoms]
        own = sorted(atom[2] for atom in atoms if atom[0] == "value" and atom[1] == name)
        asked = tuple(dict.fromkeys((*own, *(self._rules[i][1] for i in rules))))
        targets: dict[int, int] = {}
        for signs in self._classes(base, asked):
            holds = {literal: bool(signs >> i & 1) for i, literal in enumerate(asked)}
            known: dict[Atom, bool] = {("all", i): False for i in rules if not holds[self._rules[i][1]]}
            if name is not None:
                known["has", name] = True
                known.update((("value", name, literal), holds[literal]) for literal in own)
            targets[signs] = formulas.settled(formula, known)
            if formulas.visited > _MOST_VISITED:
                raise self._too_large()
        return self._values(base, asked, targets)

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
                        raise self._too_large()
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

    def _too_large(self) -> GrammarTooLarge:
        return GrammarTooLarge(
            f"an object of {len(self._names)} properties that depend on each other has too many states",
            limit="max_schema_states",
        )

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


def _telling(known: Sequence[int], signs: int) -> list[int]:
    """Of some literals those that say what a class is: one that holds says more than the rest."""
    holding = [i for i in known if signs >> i & 1]
    return holding or list(known)
