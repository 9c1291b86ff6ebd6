"""Objects: the automaton over the names of one clause.

A state says which names are settled, how many properties there are as far as that matters, what is left of the
conditions on names, and which violations are still to be shown. In declared order names are settled one after the
other; in any order a state holds the set of names seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ..errors import GrammarTooLarge, GrammarUnsupported
from ..expression import EMPTY, Alternation, Condition, Expression, Machine, Member, Members, Sequence
from .clauses import ObjectClause
from .object_diagrams import diagram_expression
from .presence import Formula, all_of, alternatives, has, holds_without, names_in, settled
from .schemas import Literals
from .shapes import ObjectShape, OtherNames, subsets

if TYPE_CHECKING:
    from .writer import Writer


#: In any order: up to so many names every set of them that may have been seen is a state; more are a register.
_MAX_SETS_OF = 4
#: Names behind the declared ones, each with the other names beside it, up to which these are put in.
_MAX_UNDECLARED = 8
#: And alternatives of one object: put into each of many, other names would multiply the states of one automaton.
_MAX_WAYS = 4
#: States that putting them in may cost: at each place for a name, those of all names that may not stand there.
_MAX_PUT_IN = 8_000
#: Properties that are counted by states.
_MAX_COUNTED = 16
#: Bits of that register, those that count included, and alternatives that a condition on names may come to.
_MAX_BITS, _MAX_CONDITIONS = 62, 64


@dataclass(frozen=True)
class _Settled:
    """How far an object is: `position` in declared order or the bit set of names seen, and what is still asked."""

    position: int
    count: int
    condition: Formula
    pending: frozenset[int]
    others: int = 0


class _Member:
    """A way to write one property: its name, the parts that follow, and which violations it shows."""

    __slots__ = ("key", "rest", "shows", "text")

    def __init__(self, key: Expression, rest: tuple[Expression, ...], shows: frozenset[int]) -> None:
        self.key, self.rest, self.shows = key, rest, shows
        self.text = Sequence((key, *rest))


def object_expression(writer: Writer, clause: ObjectClause, depth: int, ways: int) -> Expression | None:
    """The objects that satisfy a clause; None where that is easily seen to be none. Raises `GrammarError`.

    `ways`: how many clauses there are beside each other, this one included.
    """
    if clause.formula is not None:
        return diagram_expression(writer, clause, clause.formula, depth)
    return _Object(writer, clause, depth, ways).expression()


class _Object:
    def __init__(self, writer: Writer, clause: ObjectClause, depth: int, ways: int) -> None:
        self._ways = ways
        self._writer = writer
        self._clause = clause
        self._depth = depth
        self._shape = ObjectShape(writer.expander, clause)
        if clause.minimum > 1:
            self._shape.list_others()
        self._names = [name for name in self._shape.names if self._shape.may_have(name)]
        known = set(self._names)
        self._declared = sum(name in clause.declared for name in self._names)
        self._in_order = writer.options.property_order == "declared"
        #: A required name that cannot be had.
        self._lacks_name = not known.issuperset(clause.required)
        self._members = [self._named_members(name) for name in self._names]
        self._other_members = [m for names in self._shape.other_names() for m in self._other_names(names)]
        self._count_to = max(clause.minimum, 0 if clause.maximum is None else clause.maximum + 1)
        if clause.minimum > 1 and self._other_members and clause.minimum > len(clause.required) + 1:
            raise GrammarUnsupported(
                f"minProperties {clause.minimum} with more than one property whose name is not given: whether names "
                "repeat is not tracked",
                clause.minimum_place,
            )

    @cached_property
    def _formula(self) -> Formula:
        """What is asked of the names that an object may have."""
        clause, known = self._clause, set(self._names)
        formula = all_of((*clause.conditions, *(has(name) for name in clause.required)))
        return settled(formula, {name: False for name in names_in(formula) if name not in known})

    # ------------------------------------------------------------------------------------------------------- members
    def _named_members(self, name: str) -> list[_Member]:
        key = self._writer.key(name)
        literals = self._shape.literals(name)
        violations = self._clause.violations
        able = [i for i, v in enumerate(violations) if self._shape.may_violate(v, name)] if violations else []
        return self._with_values(key, literals, able)

    def _other_names(self, names: OtherNames) -> list[_Member]:
        key = self._writer.other_key(names.constraint)
        # Put in beside the given names, both are one state in most places: a call would be a second way to read on.
        states = len(self._names) * sum(map(len, self._names))
        few = self._ways <= _MAX_WAYS and len(self._names) - self._declared <= _MAX_UNDECLARED
        if key is not None and few and states <= _MAX_PUT_IN:
            key = self._writer.inlined(key)
        return [] if key is None else self._with_values(key, names.literals, sorted(names.violations))

    def _with_values(self, key: Expression, literals: Literals, able: list[int]) -> list[_Member]:
        members = []
        value = self._writer.value(literals, self._depth + 1)
        colon = self._writer.layout.colon.parts
        if not able:
            return [] if value is None else [_Member(key, (*colon, value), frozenset())]
        by_name = frozenset(i for i in able if self._clause.violations[i].value is None)
        if value is not None:
            members.append(_Member(key, (*colon, value), by_name))
        # One value may show several violations at once.
        with_value = [i for i in able if self._clause.violations[i].value is not None]
        for shown in subsets(with_value):
            more = {self._clause.violations[i].value for i in shown}
            value = self._writer.value(
                literals.union(literal for literal in more if literal is not None), self._depth + 1
            )
            if value is not None:
                members.append(_Member(key, (*colon, value), by_name.union(shown)))
        return members

    # ------------------------------------------------------------------------------------------------------ any order
    def _in_any_order(self) -> Expression | None:
        """The object as a list of members whose register is the names seen; None where that does not count right."""
        clause, layout = self._clause, self._writer.layout
        if clause.minimum > 1 and self._other_members:
            return None
        terms = alternatives(self._formula, _MAX_CONDITIONS)
        count_bits = (
            (max(clause.minimum, clause.maximum or 0) + 1).bit_length() if clause.minimum or clause.maximum else 0
        )
        if terms is None or len(self._names) + count_bits > _MAX_BITS:
            return None
        bit_of = {name: i for i, name in enumerate(self._names)}
        options = [
            Member(member.key, Sequence(member.rest), bit_of[name])
            for name, members in zip(self._names, self._members, strict=True)
            for member in members
        ]
        options += [
            Member(self._writer.inlined(member.key), Sequence(member.rest), None) for member in self._other_members
        ]
        conditions = tuple(
            Condition(
                sum(1 << bit_of[name] for name in required),
                sum(1 << bit_of[name] for name in forbidden),
                max(clause.minimum, 1),
                clause.maximum,
                tuple(sum(1 << bit_of[name] for name in group) for group in sorted(map(sorted, groups))),
            )
            for required, forbidden, groups in terms
        )
        separator = self._writer.inlined(layout.comma(self._depth))
        listed = Members(tuple(options), separator, conditions)
        found: list[Expression] = []
        if conditions and options and clause.maximum != 0:
            found.append(Sequence((layout.opening(b"{", self._depth), listed, layout.closing(b"}", self._depth))))
        if clause.minimum == 0 and holds_without(self._formula):
            found.append(layout.empty(b"{", b"}"))
        return Alternation(tuple(found))

    # -------------------------------------------------------------------------------------------------------- states
    def _in_declared_order(self) -> Expression:
        """The object where no more is asked of its names than that some are there: two states for each name.

        State ``2 + 2 * i`` is where name `i` may begin, the one behind it is behind a value, name `i` being the next.
        """
        layout, depth, n = self._writer.layout, self._depth, len(self._names)
        required = [name in self._clause.required for name in self._names]
        # From here on nothing more has to come.
        enough = n - required[::-1].index(True) if True in required else 0
        edges: list[tuple[int, Expression, int]] = [(0, layout.opening(b"{", depth), 2)]
        if not enough:
            edges.append((0, layout.empty(b"{", b"}"), 1))
        others = [member.text for member in self._other_members]
        begun = []
        before: list[_Member] = []
        for i in range(n + 1):
            at = 2 + 2 * i
            has_others = others and i >= self._declared
            if before or has_others:
                begun.append(at)
            if i < n:
                before = self._members[i]
                for member in before:
                    edges.append((at, member.text, at + 3))
                if not required[i]:
                    edges.append((at, EMPTY, at + 2))
            if has_others:
                for text in others:
                    edges.append((at, text, at + 1))
        comma, closing = layout.comma(depth), layout.closing(b"}", depth)
        for at in begun:
            edges.append((at + 1, comma, at))
            if at >= 2 + 2 * enough:
                edges.append((at + 1, closing, 1))
        sources, labels, targets = zip(*edges, strict=True)
        return Machine(sources, labels, targets, (1,))

    def expression(self) -> Expression | None:
        if self._lacks_name:
            return None
        layout = self._writer.layout
        clause = self._clause
        if self._in_order and not clause.conditions and not clause.violations and not self._count_to:
            return self._in_declared_order()
        unordered = not self._in_order and len(self._names) > _MAX_SETS_OF
        # Where no name is given there is no order, and large counts are better counted than told apart.
        if (unordered or (not self._names and self._count_to > _MAX_COUNTED)) and not clause.violations:
            found = self._in_any_order()
            if found is not None:
                return found
        start = _Settled(0, 0, self._formula, frozenset(range(len(clause.violations))))
        if start.condition is False:
            return None
        sources: list[int] = []
        labels: list[Expression] = []
        targets: list[int] = []
        numbers: dict[tuple[str, _Settled], int] = {}
        work: list[tuple[str, _Settled]] = []

        def number(kind: str, state: _Settled) -> int:
            key = kind, state
            found = numbers.get(key)
            if found is None:
                found = numbers[key] = len(numbers) + 2
                work.append(key)
                if len(numbers) > self._writer.limits.max_schema_states:
                    raise GrammarTooLarge(
                        f"an object of {len(self._names)} properties has too many states", limit="max_schema_states"
                    )
            return found

        def edge(source: int, label: Expression, target: int) -> None:
            sources.append(source)
            labels.append(label)
            targets.append(target)

        edge(0, layout.opening(b"{", self._depth), number("key", start))
        if self._may_end(start):
            edge(0, layout.empty(b"{", b"}"), 1)
        comma, closing = layout.comma(self._depth), layout.closing(b"}", self._depth)
        while work:
            kind, state = work.pop()
            at = numbers[kind, state]
            if kind == "value":
                edge(at, comma, number("key", state))
                if self._may_end(state):
                    edge(at, closing, 1)
                continue
            for label, target_kind, target in self._steps(state):
                edge(at, label, number(target_kind, target))
        return Machine(tuple(sources), tuple(labels), tuple(targets), (1,))

    def _steps(self, state: _Settled) -> list[tuple[Expression, str, _Settled]]:
        """What may come where a property is to begin: texts, and names that are left out."""
        found: list[tuple[Expression, str, _Settled]] = []
        if self._in_order:
            if state.position < len(self._names):
                found += self._write(state, state.position, state.position + 1)
                left_out = settled(state.condition, {self._names[state.position]: False})
                if left_out is not False:
                    found.append(
                        (EMPTY, "key", _Settled(state.position + 1, state.count, left_out, state.pending, state.others))
                    )
            if state.position >= self._declared:
                found += self._write_other(state)
            return found
        for i in range(len(self._names)):
            if not state.position >> i & 1:
                found += self._write(state, i, state.position | 1 << i)
        return found + self._write_other(state)

    def _write(self, state: _Settled, name: int, position: int) -> list[tuple[Expression, str, _Settled]]:
        condition = settled(state.condition, {self._names[name]: True})
        count = self._counted(state.count)
        if condition is False or count is None:
            return []
        return [
            (member.text, "value", _Settled(position, count, condition, state.pending - member.shows, state.others))
            for member in self._members[name]
        ]

    def _write_other(self, state: _Settled) -> list[tuple[Expression, str, _Settled]]:
        """Properties of other names. Which of them are new is not known, so only the first counts for a minimum."""
        count = self._counted(state.count)
        if count is None:
            return []
        least = self._clause.minimum
        others = 0
        if least:
            others = state.others + 1 if self._clause.maximum is not None else 1
            if self._clause.maximum is None and state.others:
                count = state.count
        return [
            (
                member.text,
                "value",
                _Settled(state.position, count, state.condition, state.pending - member.shows, others),
            )
            for member in self._other_members
        ]

    def _counted(self, count: int) -> int | None:
        """One property more; None where that is one too many."""
        if self._clause.maximum is not None and count >= self._clause.maximum:
            return None
        return min(count + 1, self._count_to)

    def _may_end(self, state: _Settled) -> bool:
        repeated = max(state.others - 1, 0) if self._clause.maximum is not None else 0
        return state.count - repeated >= self._clause.minimum and not state.pending and holds_without(state.condition)
