"""Text that a Lark grammar ignores: what may stand before, between and after terminals.

lark skips one ignored terminal after another, each of them as far as it matches: after ``//`` the rest of the line is
comment, and after a blank no other one may stand. So where a piece of ignored text ends is a question of what follows:
it may not be what the piece would have gone on with. One character settles that in all but odd grammars, which are
refused. Pieces that forbid the same characters behind them are of one *class*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .eliminate import expression_of
from .errors import GrammarTooLarge, GrammarUnsupported
from .expression import EMPTY, Expression, Ranges
from .limits import Limits
from .match_threads import ThreadAutomaton, character_classes, live, outcomes_on
from .ranges import intersect, union

#: (number of the ignored terminal, state of its automaton)
_At = tuple[int, int]


class Ignored:
    """The ignored terminals of a grammar.

    `automata` has for each the automaton of its first matches, and `starters` for each terminal that may follow, by
    name, its first characters and a function that makes its automaton. Raises `GrammarUnsupported` where one character
    does not settle whether ignored text ends.
    """

    def __init__(
        self,
        automata: Mapping[str, ThreadAutomaton],
        starters: Mapping[str, tuple[Ranges, Callable[[], ThreadAutomaton]]],
        places: Mapping[str, str],
        limits: Limits,
    ) -> None:
        self._names = list(automata)
        self._automata = [live(automaton) for automaton in automata.values()]
        self._places = places
        self._limit = limits.max_terminal_states
        self._starters = dict(starters)
        for name, automaton in automata.items():
            self._starters[name] = (self._first(automaton), lambda automaton=automaton: automaton)  # type: ignore[misc]
        #: For each class the characters that may not follow.
        self.forbidden: list[Ranges] = []
        self._class_of: dict[_At, int] = {}
        for number, automaton in enumerate(self._automata):
            for state, final in enumerate(automaton.final):
                if final:
                    ranges = self._going_on(number, state)
                    if ranges not in self.forbidden:
                        self.forbidden.append(ranges)
                    self._class_of[number, state] = self.forbidden.index(ranges)

    @property
    def classes(self) -> frozenset[int]:
        """All classes."""
        return frozenset(range(len(self.forbidden)))

    def classes_before(self, first: Ranges) -> frozenset[int]:
        """The classes of what may end before any of the characters `first`."""
        return frozenset(k for k in self.classes if not intersect(self.forbidden[k], first))

    def splits(self, classes: frozenset[int]) -> bool:
        """Whether runs that end in `classes` and then ``run(others, others)`` are all runs, wherever they are split."""
        others = self.classes - classes
        first: Ranges = ()
        for (number, _), kind in self._class_of.items():
            if kind in others:
                first = union(first, self._first(self._automata[number]))
        return all(not intersect(self.forbidden[kind], first) for kind in classes)

    def run(self, ends: frozenset[int], between: frozenset[int] | None = None) -> Expression:
        """Pieces of ignored text in a row, or none, of which the last is of a class in `ends`.

        All others are of a class in `between`; of any where it is None.
        """
        inner = self.classes if between is None else between
        sets, masks = character_classes(ranges for automaton in self._automata for ranges in automaton.classes)
        # For each terminal, state and set of characters, the next state.
        steps: list[list[dict[int, int]]] = []
        for automaton in self._automata:
            symbols = [[s for s in range(len(sets)) if masks[ranges] >> s & 1] for ranges in automaton.classes]
            steps.append([{s: to for c, to in moves.items() for s in symbols[c]} for moves in automaton.moves])
        forbidden = [{s for s, ranges in enumerate(sets) if intersect(ranges, kind)} for kind in self.forbidden]
        start: frozenset[_At] = frozenset()  # before any piece
        number = {start: 0}
        queue = [start]
        moves: list[dict[int, int]] = []
        for ats in queue:  # grows while it is read
            ended = {kind for kind in map(self._class_of.get, ats) if kind is not None} & inner
            may_begin = {s for s in range(len(sets)) if not ats or any(s not in forbidden[kind] for kind in ended)}
            moves.append({})
            for s in range(len(sets)):
                targets = {(g, steps[g][q][s]) for g, q in ats if s in steps[g][q]}
                if s in may_begin:
                    targets |= {(g, steps[g][0][s]) for g in range(len(steps)) if s in steps[g][0]}
                if targets:
                    key = frozenset(targets)
                    if key not in number:
                        if len(queue) >= self._limit:
                            raise GrammarTooLarge(
                                "the ignored terminals have too many states together",
                                self._places[self._names[0]],
                                limit="max_terminal_states",
                            )
                        number[key] = len(queue)
                        queue.append(key)
                    moves[-1][s] = number[key]
        final = [not ats or any(self._class_of.get(at) in ends for at in ats) for ats in queue]
        return expression_of(sets, moves, final, EMPTY, self._limit)

    @staticmethod
    def _first(automaton: ThreadAutomaton) -> Ranges:
        return union(*(automaton.classes[symbol] for symbol in automaton.moves[0]))

    def _going_on(self, number: int, state: int) -> Ranges:
        """The characters with which the match that ends at `state` would have been longer."""
        automaton = self._automata[number]
        longer: Ranges = ()
        for symbol, target in automaton.moves[state].items():
            ranges = automaton.classes[symbol]
            if automaton.final[target]:
                longer = union(longer, ranges)
                continue
            outcomes: set[str] = set()
            for first, make in self._starters.values():
                if intersect(ranges, first):
                    outcomes |= outcomes_on(automaton, target, live(make()), ranges)
            if outcomes == {"longer"}:
                longer = union(longer, ranges)
            elif outcomes - {"ended"}:
                character = chr(ranges[0][0])
                message = (
                    f"the ignored terminal {self._names[number]} may or may not go on where {character!r} follows it, "
                    "which the characters after that decide; this is not supported"
                )
                raise GrammarUnsupported(message, self._places[self._names[number]])
        return longer
