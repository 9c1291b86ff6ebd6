"""Arrays: the automaton over the items of one clause.

Most arrays are a few items of their own and a counted repeat of the others. Only where some items must satisfy more
than their place asks for (`contains`, negations) a state says how many items there are and what is still to be shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import GrammarTooLarge, GrammarUnsupported
from ..expression import (
    EMPTY,
    Alternation,
    Bytes,
    Condition,
    Expression,
    Machine,
    Member,
    Members,
    Repeat,
    Sequence,
)
from .clauses import ArrayClause
from .schemas import ANYTHING, NOTHING_VALID, Literal, Literals
from .shapes import ItemShapes, subsets

if TYPE_CHECKING:
    from .writer import Writer

#: Values of an array of distinct ones: up to the second number every set of those seen is a state, more are a register.
MAX_DISTINCT = 64
_MAX_TRACKED = 12


@dataclass(frozen=True)
class _Progress:
    """How many items there are, as far as that matters, how many satisfy each `contains`, and what is to be shown."""

    count: int
    found: tuple[int, ...]
    pending: frozenset[int]


def array_expression(writer: Writer, clause: ArrayClause, depth: int) -> Expression | None:
    """The arrays that satisfy a clause; None where that is easily seen to be none. Raises `GrammarError`."""
    return _Array(writer, clause, depth).expression()


class _Array:
    def __init__(self, writer: Writer, clause: ArrayClause, depth: int) -> None:
        self._writer = writer
        self._depth = depth
        self._clause = clause
        self._items = list(clause.items)
        for scope, literal in clause.unevaluated:
            evaluated = clause.evaluated.get(scope)
            if evaluated is None or not evaluated.everything:
                first = 0 if evaluated is None else evaluated.items
                others = () if evaluated is None else tuple(evaluated.contained)
                self._items.append(
                    (first, None, writer.expander.store.either((*others, literal)) if others else literal)
                )
        self._shapes = ItemShapes(self._items)
        self._alike = self._shapes.alike
        self._minimum, self._maximum = clause.minimum, clause.maximum
        for index in range(self._alike + 1):
            if self._maximum is not None and index >= self._maximum:
                break
            if self._item(index) is None:
                self._maximum = index
                break

    def _item(self, index: int, more: tuple[Literal, ...] = ()) -> Expression | None:
        literals: Literals = self._shapes.literals(min(index, self._alike)) | frozenset(more)
        if (NOTHING_VALID, True) in literals:
            return None
        return self._writer.value(frozenset(lit for lit in literals if lit[0] != ANYTHING), self._depth + 1)

    def expression(self) -> Expression | None:
        if self._maximum is not None and self._maximum < self._minimum:
            return None
        clause, layout = self._clause, self._writer.layout
        if clause.unique is not None and (self._maximum is None or self._maximum > 1):
            return self._distinct(clause.unique)
        if clause.contains or clause.violations:
            return self._tracked()
        opening, closing = layout.opening(b"[", self._depth), layout.closing(b"]", self._depth)
        options: list[Expression] = [] if self._minimum else [layout.empty(b"[", b"]")]
        if self._maximum == 0:
            return options[0]
        listed = self._listed()
        options.append(Sequence((opening, listed, closing)))
        return Alternation(tuple(options))

    def _listed(self) -> Expression:
        """One item and all that may follow it."""
        comma = layout_comma = self._writer.layout.comma(self._depth)
        single = self._alike if self._maximum is None else min(self._alike, self._maximum)
        single = max(single, 1)  # the first item has no comma before it
        rest: Expression = EMPTY
        if self._maximum is None or self._maximum > single:
            item = self._item(single)
            assert item is not None
            more = None if self._maximum is None else self._maximum - single
            rest = Repeat(Sequence((comma, item)), max(self._minimum - single, 0), more)
        sources, labels, targets = [], [], []
        for index in range(single):
            item = self._item(index)
            assert item is not None
            sources.append(index)
            labels.append(item if index == 0 else Sequence((layout_comma, item)))
            targets.append(index + 1)
        finals = list(range(max(self._minimum, 1), single))
        if single == 1:
            return Sequence((labels[0], rest))
        if rest != EMPTY:
            sources.append(single)
            labels.append(rest)
            targets.append(single + 1)
            return Machine(tuple(sources), tuple(labels), tuple(targets), (*finals, single + 1))
        return Machine(tuple(sources), tuple(labels), tuple(targets), (*finals, single))

    # ------------------------------------------------------------------------------------------------------- tracked
    def _tracked(self) -> Expression | None:
        clause, layout = self._clause, self._writer.layout
        start = _Progress(0, (0,) * len(clause.contains), frozenset(range(len(clause.violations))))
        comma, closing = layout.comma(self._depth), layout.closing(b"]", self._depth)
        numbers: dict[_Progress, int] = {start: 1}
        work = [start]
        sources, labels, targets = [0], [layout.opening(b"[", self._depth)], [1]
        if self._may_end(start):
            sources.append(0)
            labels.append(layout.empty(b"[", b"]"))
            targets.append(2)
        for state in work:  # grows while it is read
            at = numbers[state]
            if state is not start and self._may_end(state):
                sources.append(at)
                labels.append(closing)
                targets.append(2)
            for item, target in self._steps(state):
                number = numbers.get(target)
                if number is None:
                    number = numbers[target] = len(numbers) + 2
                    work.append(target)
                    if len(numbers) > self._writer.limits.max_schema_states:
                        raise GrammarTooLarge("an array has too many states", limit="max_schema_states")
                sources.append(at)
                labels.append(item if state.count == 0 else Sequence((comma, item)))
                targets.append(number)
        return Machine(tuple(sources), tuple(labels), tuple(targets), (2,))

    def _steps(self, state: _Progress) -> list[tuple[Expression, _Progress]]:
        clause = self._clause
        if self._maximum is not None and state.count >= self._maximum:
            return []
        bound = max(self._alike, self._minimum, 0 if self._maximum is None else self._maximum)
        bound = max([bound, 1, *(first + 1 for first, _ in clause.violations)])
        count = min(state.count + 1, bound)
        ways: list[tuple[tuple[Literal, ...], tuple[int, ...]]] = [((), state.found)]
        for i, contains in enumerate(clause.contains):
            grown = []
            opposite = self._writer.expander.negated(contains.literal)
            cap = contains.minimum if contains.maximum is None else contains.maximum
            for more, found in ways:
                # Where there is no maximum an item need not be known not to satisfy it.
                grown.append(((*more, opposite) if contains.maximum is not None else more, found))
                if contains.maximum is None and found[i] >= cap:
                    continue
                if found[i] < cap:
                    raised = (*found[:i], found[i] + 1, *found[i + 1 :])
                    grown.append(((*more, contains.literal), raised))
            ways = grown
        result = []
        for more, found in ways:
            shown: list[tuple[tuple[Literal, ...], frozenset[int]]] = [(more, state.pending)]
            able = [i for i in sorted(state.pending) if state.count >= clause.violations[i][0]]
            for chosen in subsets(able):
                literals = tuple(clause.violations[i][1] for i in chosen)
                shown.append(((*more, *literals), state.pending.difference(chosen)))
            for literals, pending in shown:
                item = self._item(state.count, literals)
                if item is not None:
                    result.append((item, _Progress(count, found, pending)))
        return result

    def _may_end(self, state: _Progress) -> bool:
        enough = all(n >= contains.minimum for n, contains in zip(state.found, self._clause.contains, strict=True))
        return state.count >= self._minimum and enough and not state.pending

    # ------------------------------------------------------------------------------------------------------ distinct
    def _distinct(self, place: str) -> Expression | None:
        """Arrays of distinct items out of a finite set."""
        clause = self._clause
        last = self._alike if self._maximum is None else min(self._alike, self._maximum - 1)
        #: The values of each of the first items, those of the last of them being the values of all that follow.
        values_at: list[list[Expression]] = []
        for index in range(last + 1):
            found = self._writer.finite_values(self._shapes.literals(index))
            if found is None or clause.contains or clause.violations:
                raise GrammarUnsupported(
                    f"uniqueItems is enforced where items are of up to {MAX_DISTINCT} scalars ({_MAX_TRACKED} where "
                    "they are not alike), or at most 1",
                    place,
                )
            values_at.append(found)
        values = list(dict.fromkeys(value for found in values_at for value in found))
        if len(values) > _MAX_TRACKED:
            if last > 0:
                raise GrammarTooLarge(
                    f"uniqueItems of {len(values)} values in items that are not alike", place, limit="max_schema_states"
                )
            return self._distinct_members(values, place)
        layout = self._writer.layout
        comma, closing = layout.comma(self._depth), layout.closing(b"]", self._depth)
        sources, labels, targets = [0], [layout.opening(b"[", self._depth)], [2]
        if self._minimum == 0:
            sources.append(0)
            labels.append(layout.empty(b"[", b"]"))
            targets.append(1)
        numbers = {0: 2}
        work = [0]
        for seen in work:  # grows while it is read
            count = seen.bit_count()
            if count and count >= self._minimum:
                sources.append(numbers[seen])
                labels.append(closing)
                targets.append(1)
            if self._maximum is not None and count >= self._maximum:
                continue
            for i, value in enumerate(values):
                if seen >> i & 1 or value not in values_at[min(count, last)]:
                    continue
                then = seen | 1 << i
                if then not in numbers:
                    numbers[then] = len(numbers) + 2
                    work.append(then)
                sources.append(numbers[seen])
                labels.append(Sequence((comma, value)) if seen else value)
                targets.append(numbers[then])
        return Machine(tuple(sources), tuple(labels), tuple(targets), (1,))

    def _distinct_members(self, values: list[Expression], place: str) -> Expression:
        """Many values, each of one spelling that its last byte ends: a register says which have been seen."""
        if len(values) > MAX_DISTINCT:
            raise GrammarTooLarge(
                f"uniqueItems of {len(values)} values: the sets of values seen are too many",
                place,
                limit="max_schema_states",
            )
        layout = self._writer.layout
        options = tuple(self._distinct_member(value, bit) for bit, value in enumerate(values))
        maximum = None if self._maximum is None or self._maximum >= len(values) else self._maximum
        listed = Members(
            options,
            self._writer.inlined(layout.comma(self._depth)),
            (Condition(minimum=max(self._minimum, 1), maximum=maximum),),
        )
        whole = Sequence((layout.opening(b"[", self._depth), listed, layout.closing(b"]", self._depth)))
        return whole if self._minimum else Alternation((layout.empty(b"[", b"]"), whole))

    def _distinct_member(self, value: Expression, bit: int) -> Member:
        """A value as a member, which begins where the value is known: one of several spellings ends before that is."""
        if isinstance(value, Bytes) and len(value.text) > 1:
            return Member(Bytes(value.text[:-1]), Bytes(value.text[-1:]), bit)
        return Member(self._writer.inlined(value), EMPTY, bit)
