"""The tokens of lark's basic lexer: at each place the first terminal that matches, as far as it matches.

Terminals are tried in lark's order (priority, then width, length and name), each by its own first match. A string that
a pattern of equal priority also matches is not tried itself: where that pattern matches the string's text, it is the
string's token. So keywords come before names. All terminals together are one automaton of threads, and a token ends
where nothing better could still come. That is a question of the text behind it. One character settles it, or the
grammar is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lark.lexer import PatternRE, PatternStr, TerminalDef

from .eliminate import expression_of
from .errors import GrammarUnsupported
from .expression import NOTHING, Alternation, Complement, Expression, Intersection, Ranges
from .lark_terminals import Terminal
from .limits import Limits
from .match_order import first_characters
from .match_threads import ThreadAutomaton, Threads, live, outcomes_on
from .ranges import intersect, union


@dataclass(frozen=True)
class Variant:
    """Tokens of one terminal, behind all of which the same characters may stand."""

    name: str
    ignored: bool
    expression: Expression
    #: The characters that they begin with.
    first: Ranges
    #: The characters, of those that something that may follow begins with, that would have made the token another one.
    forbidden: Ranges


class Lexer:
    """The tokens of a grammar's terminals.

    `followers` has for each terminal those that may stand right behind it. Raises `GrammarUnsupported`, with the
    terminal's name and place, where more than one character decides where a token ends.
    """

    def __init__(
        self,
        definitions: Sequence[TerminalDef],
        patterns: Mapping[str, Terminal],
        places: Mapping[str, str],
        ignored: Collection[str],
        followers: Mapping[str, Collection[str]],
        limits: Limits,
    ) -> None:
        self._patterns = patterns
        self._places = places
        self._ignored = ignored
        self._followers = followers
        self._size = limits.max_terminal_states
        ordered = sorted(definitions, key=_rank)
        self._strings, embedded = _strings_within(ordered, patterns)
        self._tried = [definition for definition in ordered if definition.name not in embedded]
        nodes = [patterns[tried.name].node for tried in self._tried] or [NOTHING]
        self._automaton = live(Threads(nodes, limits).automaton())
        self._starts = {name: first_characters(pattern.expression()) for name, pattern in patterns.items()}

    def variants(self) -> Iterator[Variant]:
        """All tokens."""
        automaton = self._automaton
        for number, tried in enumerate(self._tried):
            states = [state for state, matched in enumerate(automaton.matched) if matched == number]
            earlier: list[Expression] = []
            for name in [*self._strings.get(tried.name, ()), tried.name]:
                own = states
                pattern = self._patterns[name].expression()
                if name != tried.name:
                    own = [state for state in states if state in self._reached(self._patterns[name].automaton())]
                groups: dict[Ranges, list[int]] = {}
                for state in own:
                    groups.setdefault(self._forbidden(state, name, tried.name), []).append(state)
                for forbidden, group in groups.items():
                    final = [state in group for state in range(len(automaton.final))]
                    tokens = expression_of(automaton.classes, automaton.moves, final, pattern, self._size)
                    operands = [tokens]
                    if name != tried.name:
                        operands.append(pattern)
                    if earlier:
                        operands.append(Complement(Alternation(tuple(earlier))))
                    first = first_characters(tokens)
                    if name != tried.name:
                        first = intersect(first, self._starts[name])
                    whole = tokens if len(operands) == 1 else Intersection(tuple(operands))
                    yield Variant(name, tried.name in self._ignored, whole, first, forbidden)
                if name != tried.name:
                    earlier.append(pattern)

    def _reached(self, other: ThreadAutomaton) -> set[int]:
        """The states that strings of `other` lead to."""
        pairs = {(0, 0): None}
        stack = [(0, 0)]
        found = set()
        while stack:
            at, beside = stack.pop()
            if other.final[beside]:
                found.add(at)
            for symbol, to in other.moves[beside].items():
                for going, then in self._automaton.moves[at].items():
                    if (then, to) not in pairs and intersect(other.classes[symbol], self._automaton.classes[going]):
                        pairs[then, to] = None
                        stack.append((then, to))
        return found

    def _forbidden(self, state: int, name: str, tried: str) -> Ranges:
        automaton = self._automaton
        starts = {
            follower: self._starts[follower] for follower in self._followers.get(name, ()) if follower in self._starts
        }
        wanted = union(*starts.values()) if starts else ()
        longer: Ranges = ()
        for symbol, target in automaton.moves[state].items():
            ranges = intersect(automaton.classes[symbol], wanted)
            if not ranges:
                continue
            if automaton.final[target]:
                longer = union(longer, ranges)
                continue
            outcomes: set[str] = set()
            for follower, first in starts.items():
                if intersect(ranges, first):
                    outcomes |= outcomes_on(automaton, target, live(self._patterns[follower].automaton()), ranges)
            if outcomes == {"longer"}:
                longer = union(longer, ranges)
            elif outcomes - {"ended"}:
                message = (
                    f"with lexer='longest' more than the character behind it decides where the terminal {tried} ends: "
                    f"it may be followed by {chr(ranges[0][0])!r}, and may go on with that as well"
                )
                raise GrammarUnsupported(message, self._places[tried])
        return longer


def _rank(definition: TerminalDef) -> tuple[int, int, int, str]:
    pattern = definition.pattern
    return (-definition.priority, -pattern.max_width, -len(pattern.value), definition.name)


def _strings_within(
    ordered: Sequence[TerminalDef], patterns: Mapping[str, Terminal]
) -> tuple[dict[str, list[str]], set[str]]:
    """For each pattern the strings that it matches too, and the strings that are therefore not tried themselves."""
    within: dict[str, list[str]] = {}
    embedded: set[str] = set()
    for larger in ordered:
        if not isinstance(larger.pattern, PatternRE):
            continue
        automaton = patterns[larger.name].automaton()
        for definition in ordered:
            if not isinstance(definition.pattern, PatternStr) or definition.priority != larger.priority:
                continue
            if automaton.accepts(definition.pattern.value):
                within.setdefault(larger.name, []).append(definition.name)
                if set(definition.pattern.flags) <= set(larger.pattern.flags):
                    embedded.add(definition.name)
    return within, embedded
