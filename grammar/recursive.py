"""Rules that call each other, and their counted repeats, to the frames of one automaton."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .assemble import Frame, assemble
from .automaton import COUNTER, MEMBERS, PLAIN, Automaton
from .build import Symbols, build_positions
from .determinize import determinize
from .errors import GrammarTooLarge, GrammarUnsatisfiable
from .expression import EMPTY, Alternation, Expression, Members, Reference, Repeat
from .limits import Limits
from .loops import loop_classes, without_absent
from .members import Part, accepts_none, check_bits, guards_of, list_of, terms_of
from .position import Int32Array, PositionAutomaton, trimmed
from .repeats import Sizes, unproved
from .rule_graph import references
from .rules import Nullable
from .simplify import place_of

#: Name of the rule around a start rule that matches the empty string and is called: a called frame must not.
_ROOT = ""
#: After so many rounds of unrolling one repeat, all that are in doubt are unrolled.
_SINGLE_ROUNDS = 6
_KINDS = {Repeat: "the item of", Members: "the list of members", Part: "a value of the members"}
#: What has a frame: a rule, by its name, a counted repeat, members in any order, what follows a key of theirs.
_Callee = str | Repeat | Members | Part


def compile_rules(rules: Mapping[str, Expression], start: str, limits: Limits, absent: frozenset[int]) -> Automaton:
    """The automaton of reduced rules (`rules.reduced_rules`). Raises `GrammarTooLarge`, `GrammarUnsatisfiable`."""
    nullable = Nullable(rules, limits)
    rules = dict(rules)
    if nullable.rules[start] and any(start in references(body) for body in rules.values()):
        rules[_ROOT] = Alternation((EMPTY, Reference(start)))
        start = _ROOT
    builder = _Builder(rules, start, nullable.rules, limits, absent)
    builder.build_proved()
    loops = {ranges: None for body in rules.values() for ranges in loop_classes(body)}
    found = [without_absent(ranges, absent) for ranges in loops]
    return assemble(builder.frames[start], builder.called(), builder.symbols, found, recursive=True)


@dataclass(frozen=True, eq=False)
class RuleFrames:
    """The frame of one rule, which does not match the empty string, and those of its counters.

    `nullable`: whether the rule matches it. `calls`: by frame, what each of its symbols from 256 on
    calls: a rule by its name, or the frame of that number.
    """

    frames: tuple[Frame, ...]
    calls: tuple[tuple[int | str, ...], ...]
    nullable: bool


def rule_frames(
    name: str, body: Expression, nullable: Mapping[str, bool], limits: Limits, absent: frozenset[int]
) -> RuleFrames:
    """The frames of a simplified rule by itself; `nullable` says of the rules that it calls what they match.

    Raises `GrammarTooLarge`, `GrammarUnsatisfiable`.
    """
    builder = _Builder({name: body}, name, nullable, limits, absent, keep_empty=False)
    builder.build_proved()
    called = {symbol: frame for symbol, frame in builder.called().items() if frame is not builder.frames[name]}
    number = {symbol: i + 1 for i, symbol in enumerate(called)}
    calls: list[int | str] = [-1] * len(builder.symbols)
    for node, symbol in builder.symbols.calls.items():
        calls[symbol - 256] = node.rule if isinstance(node, Reference) else number.get(symbol, -1)
    frames = (builder.frames[name], *called.values())
    return RuleFrames(frames, (tuple(calls),) * len(frames), builder.is_nullable(name))


class _Builder:
    """The frames of rules and of those of their repeats that are counters."""

    def __init__(
        self,
        rules: Mapping[str, Expression],
        start: str,
        nullable: Mapping[str, bool],
        limits: Limits,
        absent: frozenset[int],
        *,
        keep_empty: bool = True,
    ) -> None:
        self._keep_empty = keep_empty
        self.symbols = Symbols()
        self.frames: dict[_Callee, Frame] = {}
        self._rules, self._start, self._nullable = rules, start, nullable
        self._limits, self._absent = limits, absent
        self._sizes: dict[str, Sizes] = {}
        #: By callee: its positions, and whether its repeat, or the body of its rule, matches the empty string as well.
        self._positions: dict[_Callee, tuple[PositionAutomaton, bool]] = {}

    def build_proved(self) -> None:
        """Set `frames`, those repeats unrolled that might make the heads many."""
        excluded: dict[Expression, None] = {}
        rounds = 0
        while True:
            self.build(excluded)
            failing = self.unproved()
            if not failing:
                return
            rounds += 1
            # Unrolling the smallest costs least, and may be all that the others need.
            excluded.update(dict.fromkeys(failing if rounds > _SINGLE_ROUNDS else failing[:1]))

    def is_nullable(self, name: str) -> bool:
        """Whether a rule matches the empty string."""
        return self._positions[name][1]

    def build(self, excluded: dict[Expression, None]) -> None:
        """Set `frames`, the repeats in `excluded` unrolled."""
        self._sizes.clear()
        self._positions.clear()
        total = 0
        for name, body in self._rules.items():
            self._sizes[name] = Sizes(body, excluded, self._limits, in_rules=True)
            total += self._sizes[name].total
            if total > self._limits.max_positions:
                raise GrammarTooLarge(
                    f"the rules up to {name!r} have {total} positions", place_of(body.source), limit="max_positions"
                )
        for name, body in self._rules.items():
            built = self._built(body, name)
            kept = name == self._start and self._keep_empty
            self._positions[name] = built if kept else built.without_empty_string(), bool(built.final[0])
        callee_of = {symbol: key for key, symbol in self._symbols().items()}
        positions = {key: automaton for key, (automaton, _) in self._positions.items()}
        positions = self._without_empty_callees(positions, callee_of)
        if positions[self._start].is_empty:
            lacking = " that this vocabulary has the bytes for" if self._absent else ""
            raise GrammarUnsatisfiable("no string matches" + lacking, place_of(self._rules[self._start].source))
        self.frames.clear()
        for key, automaton in positions.items():
            if not automaton.is_empty:
                self.frames[key] = self._frame(key, automaton)

    def called(self) -> dict[int, Frame]:
        """The frames by their symbols."""
        return {symbol: self.frames[key] for key, symbol in self._symbols().items() if key in self.frames}

    def unproved(self) -> list[Repeat]:
        """The counters that might make the heads many, the smallest first."""
        callers = [frame for frame in self.frames.values() if frame.kind != COUNTER]
        called = self.called()
        counters = {symbol: frame for symbol, frame in called.items() if frame.kind == COUNTER}
        callee_of = {symbol: key for key, symbol in self._symbols().items()}
        if not counters:
            return []
        names = [symbol for symbol in called if symbol not in counters]
        found = [callee_of[symbol] for symbol in unproved(callers, counters, names)]
        return sorted((key for key in found if isinstance(key, Repeat)), key=self._unrolled_size)

    def _symbols(self) -> dict[_Callee, int]:
        found: dict[_Callee, int] = {}
        for node, symbol in self.symbols.calls.items():
            key = node.rule if isinstance(node, Reference) else node
            if key in self._positions:
                found[key] = symbol
        return found

    def _unrolled_size(self, repeat: Repeat) -> int:
        size = next(sizes.of(repeat.body) for sizes in self._sizes.values() if sizes.knows(repeat.body))
        return max(repeat.minimum, repeat.maximum or 0) * size

    def _built(self, node: Expression, rule: str, *, counters: bool = True) -> PositionAutomaton:
        """The positions of a part of a rule; without `counters` all its own repeats are unrolled."""

        def call_of(node: Expression) -> tuple[int | None, bool] | None:
            if isinstance(node, Reference):
                # Equal references are one symbol whatever their sources are.
                return self.symbols.call(Reference(node.rule)), self._nullable[node.rule]
            if isinstance(node, Repeat) and not (counters and id(node) in self._sizes[rule].counters):
                return None
            assert isinstance(node, Members | Part | Repeat)
            if node not in self._positions:
                if isinstance(node, Members):
                    check_bits(node)
                    body = self._built(list_of(node), rule, counters=False)
                else:
                    body = self._built(node.body, rule)
                self._positions[node] = body.without_empty_string(), bool(body.final[0])
            item, nullable = self._positions[node]
            if isinstance(node, Members):
                nullable = accepts_none(node)
            elif isinstance(node, Repeat):
                nullable = nullable or node.minimum == 0
            return None if item.is_empty else self.symbols.call(node), nullable

        return build_positions(node, self._limits, self.symbols, call_of).without_bytes(self._absent)

    def _without_empty_callees(
        self, positions: dict[_Callee, PositionAutomaton], callee_of: dict[int, _Callee]
    ) -> dict[_Callee, PositionAutomaton]:
        """The automata without calls of what matches nothing (but the empty string, which callers bypass)."""
        symbol_of = {callee: symbol for symbol, callee in callee_of.items()}
        callers: dict[_Callee, list[_Callee]] = {}
        for key, automaton in positions.items():
            for symbol in np.unique(automaton.low[automaton.low >= 256]).tolist():
                if symbol in callee_of:
                    callers.setdefault(callee_of[symbol], []).append(key)
        dead = dict.fromkeys(callee_of)

        bit_of = {symbol: bit for bit, symbol in self.symbols.operations.items()}

        def alive(key: _Callee) -> PositionAutomaton:
            found = _without_symbols(positions[key], np.array(list(dead), np.int32))
            if isinstance(key, Members):
                bits = {bit_of[symbol] for symbol in np.unique(found.low).tolist() if symbol in bit_of}
                if not terms_of(key, sum(1 << bit for bit in bits)):
                    return _without_symbols(found, found.low)
            return found

        work = [key for key in positions if key in symbol_of]  # callees come last, and are asked first
        while work:
            key = work.pop()
            if symbol_of[key] in dead and not alive(key).is_empty:
                del dead[symbol_of[key]]
                work += [caller for caller in callers.get(key, ()) if caller in symbol_of]
        return {key: alive(key) for key in positions}

    def _frame(self, key: _Callee, automaton: PositionAutomaton) -> Frame:
        limits = self._limits
        most = limits.max_dfa_states + 2 * automaton.n_states
        dfa = determinize(automaton, self.symbols.alphabet, most, limits.max_dfa_work)
        if dfa is None:
            source = self._rules[key].source if isinstance(key, str) else key.source
            what = f"rule {key!r}" if isinstance(key, str) else f"{_KINDS[type(key)]} {source.text if source else ''}"
            raise GrammarTooLarge(
                f"{what} of a recursive grammar has too many states", place_of(source), limit="max_dfa_states"
            )
        if isinstance(key, Members):
            bit_of = {symbol: bit for bit, symbol in self.symbols.operations.items()}
            return Frame(dfa, MEMBERS, guards=guards_of(key, dfa, bit_of))
        if not isinstance(key, Repeat):
            return Frame(dfa, PLAIN)
        # Callers bypass a repeat that may be empty, and items that are empty count as if they were there.
        minimum = 1 if self._positions[key][1] else max(key.minimum, 1)
        return Frame(dfa, COUNTER, minimum, -1 if key.maximum is None else key.maximum)


def _without_symbols(automaton: PositionAutomaton, symbols: Int32Array) -> PositionAutomaton:
    gone = np.isin(automaton.low, symbols)
    if not gone.any():
        return automaton
    source = np.repeat(np.arange(automaton.n_states), np.diff(automaton.edge_start))[~gone]
    edge_start = np.searchsorted(source, np.arange(automaton.n_states + 1)).astype(np.int32)
    low, high, target = (column[~gone] for column in (automaton.low, automaton.high, automaton.target))
    return trimmed(edge_start, low, high, target, automaton.final)
