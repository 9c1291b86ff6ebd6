"""A pattern as threads in order of preference, and the automaton of their lists.

Each character takes every thread one step, best first; a thread that comes where a better one is ends, and where a
thread has matched, all behind it are cut off. These are Pike's threads (Cox, "Regular expression matching: the virtual
machine approach", 2009). The lists of threads are the states of a deterministic automaton.

A lookahead goes along with its thread until it is decided, a lookbehind is followed from the start of the text on.
Where either would have to look outside the string, it is refused: what is there is not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Sequence_
from dataclasses import dataclass, field

from .errors import GrammarTooLarge, GrammarUnsupported
from .expression import Alternation, Bytes, Characters, Expression, Lookahead, Ranges, Repeat, Sequence
from .limits import Limits
from .match_order import LazyRepeat, Lookbehind, may_be_empty
from .ranges import contains, intersect, normalise, union
from .simplify import place_of

#: Kinds of instructions. CHECK ends a loop whose turn took nothing; ENTER is a choice that begins such a turn.
CHARACTER, CHOICE, ENTER, CHECK, LOOK, MATCH = range(6)

#: What a thread has yet to see of its lookaheads: (number of the lookahead, its instructions), sorted.
Pending = tuple[tuple[int, frozenset[int]], ...]
#: (instruction, pending, whether a better thread has matched).
Thread = tuple[int, Pending, bool]
#: For each lookbehind its instructions now, of attempts that began within the text, and of ones before it.
Behind = tuple[tuple[frozenset[int], frozenset[int]], ...]


@dataclass
class ThreadAutomaton:
    """A partial deterministic automaton over classes of characters; state 0 is the start."""

    classes: list[Ranges]
    #: For each state, class -> next state.
    moves: list[dict[int, int]] = field(default_factory=list)
    #: Whether the first match of a text that leads here is the whole text.
    final: list[bool] = field(default_factory=list)
    #: Which of the patterns then matches, or -1.
    matched: list[int] = field(default_factory=list)

    def accepts(self, text: str) -> bool:
        """Whether the first match of `text` is the whole text."""
        state = 0
        for character in text:
            moves = self.moves[state]
            state = next((to for symbol, to in moves.items() if contains(self.classes[symbol], ord(character))), -1)
            if state < 0:
                return False
        return self.final[state]


def character_classes(operands: Iterable[Ranges]) -> tuple[list[Ranges], dict[Ranges, int]]:
    """The sets of characters that no operand tells apart, and each operand's sets as a bit mask."""
    numbers: dict[Ranges, int] = {}
    for ranges in operands:
        numbers.setdefault(ranges, len(numbers))
    changes: dict[int, int] = {}
    for ranges, number in numbers.items():
        for low, high in ranges:
            changes[low] = changes.get(low, 0) ^ 1 << number
            changes[high + 1] = changes.get(high + 1, 0) ^ 1 << number
    pieces: dict[int, list[tuple[int, int]]] = {}
    within, begin = 0, 0
    for at in sorted(changes):
        if within:
            pieces.setdefault(within, []).append((begin, at - 1))
        within, begin = within ^ changes[at], at
    masks = dict.fromkeys(numbers, 0)
    for index, signature in enumerate(pieces):
        for ranges, number in numbers.items():
            if signature >> number & 1:
                masks[ranges] |= 1 << index
    return [normalise(parts) for parts in pieces.values()], masks


class Threads:
    """The program of patterns, the first of which that matches is taken.

    Raises `GrammarTooLarge` past `limits.max_terminal_states` instructions.
    """

    def __init__(self, patterns: Sequence_[Expression], limits: Limits) -> None:
        self._limit = limits.max_terminal_states
        self._whole = patterns[0]
        self._kind: list[int] = []
        self._targets: list[tuple[int, ...]] = []
        self._ranges: dict[int, Ranges] = {}
        self._looks: list[tuple[Lookahead | Lookbehind, int, int]] = []  # (node, first instruction, its match)
        self._look_at: dict[int, int] = {}
        #: Instruction -> the number of the pattern that has matched there.
        self._accepts = {self._new(MATCH): number for number in range(len(patterns))}
        starts = [self._add(node, accept) for node, accept in zip(patterns, self._accepts, strict=True)]
        self._start = self._new(CHOICE, *starts)
        self._behinds = [i for i, (look, _, _) in enumerate(self._looks) if isinstance(look, Lookbehind)]
        self._classes, self._members = self._character_classes()

    # The program, from its end to its start

    def _new(self, kind: int, *targets: int) -> int:
        if len(self._kind) > self._limit:
            raise self._too_large()
        self._kind.append(kind)
        self._targets.append(targets)
        return len(self._kind) - 1

    def _too_large(self) -> GrammarTooLarge:
        message = "the order of matching decides what this terminal matches, and working that out takes too many states"
        return GrammarTooLarge(message, place_of(self._whole.source), limit="max_terminal_states")

    def _add(self, node: Expression, after: int) -> int:
        """Add `node` with `after` behind it; the instruction where it begins."""
        if isinstance(node, Bytes):
            for character in reversed(node.text.decode()):
                after = self._character(((ord(character), ord(character)),), after)
            return after
        if isinstance(node, Characters):
            return self._character(node.ranges, after)
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                after = self._add(part, after)
            return after
        if isinstance(node, Alternation):
            return self._new(CHOICE, *[self._add(option, after) for option in node.options])
        if isinstance(node, Repeat):
            return self._repeat(node, after)
        if isinstance(node, Lookahead | Lookbehind):
            match = self._new(MATCH)
            self._looks.append((node, self._add(node.operand, match), match))
            self._look_at[look := self._new(LOOK, after)] = len(self._looks) - 1
            return look
        sign = node.source.text if node.source else "this"
        message = f"the anchor {sign} within a terminal looks at the text around the terminal; leave it out"
        raise GrammarUnsupported(message, place_of(node.source))

    def _character(self, ranges: Ranges, after: int) -> int:
        at = self._new(CHARACTER, after)
        self._ranges[at] = ranges
        return at

    def _repeat(self, node: Repeat, after: int) -> int:
        entry = after
        if node.maximum is None:
            entry = self._turn(node, None, after)
        else:
            for _ in range(node.maximum - node.minimum):
                entry = self._turn(node, entry, after)
        for _ in range(node.minimum):
            entry = self._add(node.body, entry)
        return entry

    def _turn(self, node: Repeat, following: int | None, after: int) -> int:
        """One more turn, or not; `following` is what comes after the turn, None for the same again."""
        empty = may_be_empty(node.body)
        choice = self._new(ENTER if empty else CHOICE)
        again = choice if following is None else following
        # A turn that takes nothing is the last one.
        body = self._add(node.body, self._new(CHECK, choice, again, after) if empty else again)
        self._targets[choice] = (after, body) if isinstance(node, LazyRepeat) else (body, after)
        return choice

    def _character_classes(self) -> tuple[list[Ranges], dict[int, int]]:
        """The sets of characters that no instruction tells apart, and each instruction's sets as a bit mask."""
        sets, masks = character_classes(self._ranges.values())
        return sets, {at: masks[ranges] for at, ranges in self._ranges.items()}

    # Looking around

    def _closed(self, starts: frozenset[int] | set[int]) -> frozenset[int]:
        """What an operand of a lookaround may be at without a character more."""
        found = set(starts)
        stack = list(starts)
        while stack:
            at = stack.pop()
            kind = self._kind[at]
            if kind == LOOK:
                source = self._looks[self._look_at[at]][0].source
                raise GrammarUnsupported("a lookaround within another is not supported", place_of(source))
            if kind in (CHOICE, ENTER, CHECK):
                for target in self._targets[at][1:] if kind == CHECK else self._targets[at]:
                    if target not in found:
                        found.add(target)
                        stack.append(target)
        return frozenset(at for at in found if self._kind[at] in (CHARACTER, MATCH))

    def _stepped(self, ats: frozenset[int], symbol: int) -> frozenset[int]:
        moved = {
            self._targets[at][0]
            for at in ats
            if self._kind[at] == CHARACTER and self._members[at] >> symbol & 1
        }  # fmt: skip
        return self._closed(moved)

    def _after_any(self, ats: frozenset[int]) -> frozenset[int]:
        return self._closed({self._targets[at][0] for at in ats if self._kind[at] == CHARACTER})

    def _first_behind(self) -> Behind:
        behind = []
        for number in self._behinds:
            _, start, _ = self._looks[number]
            inside = self._closed({start})
            # An attempt that began before the text may be anywhere behind its first character.
            before: frozenset[int] = frozenset()
            grown = self._after_any(inside)
            while not grown <= before:
                before |= grown
                grown = self._after_any(before)
            behind.append((inside, before))
        return tuple(behind)

    def _next_behind(self, behind: Behind, symbol: int) -> Behind:
        return tuple(
            (
                self._stepped(inside, symbol) | self._closed({self._looks[number][1]}),
                self._stepped(before, symbol),
            )
            for number, (inside, before) in zip(self._behinds, behind, strict=True)
        )

    def _holds_behind(self, number: int, behind: Behind) -> bool:
        look, _, match = self._looks[number]
        inside, before = behind[self._behinds.index(number)]
        assert isinstance(look, Lookbehind)
        if match in inside:
            return not look.negative
        if match in before:
            message = "this lookbehind would see what comes before the terminal, which is not supported"
            raise GrammarUnsupported(message, place_of(look.source))
        return look.negative

    def _advanced(self, pending: Pending, symbol: int) -> Pending | None:
        """What is pending after a character; None where a lookahead has failed."""
        left: list[tuple[int, frozenset[int]]] = []
        for number, ats in pending:
            after = self._opened(number, self._stepped(ats, symbol))
            if after is None:
                return None
            left += after
        return tuple(sorted(set(left), key=lambda item: (item[0], sorted(item[1]))))

    def _opened(self, number: int, ats: frozenset[int]) -> Pending | None:
        """A lookahead with its operand at `ats`, unless that decides it; None where it has failed."""
        look, _, match = self._looks[number]
        if match in ats or not ats:
            return () if (match in ats) != look.negative else None
        return ((number, ats),)

    # The automaton

    def always_longest(self) -> bool:
        """Whether every match of the pattern, which may not look around, is a first one."""
        return not self._looks and self._explore(with_cut=True) is None

    def automaton(self) -> ThreadAutomaton:
        """The automaton of the strings whose first match is the whole string.

        Raises `GrammarTooLarge`, and `GrammarUnsupported` for what looks at the text around.
        """
        result = self._explore(with_cut=False)
        assert result is not None
        return result

    def _explore(self, with_cut: bool) -> ThreadAutomaton | None:
        """The automaton; with the threads that are cut off too, None if none of these ever matches alone."""
        result = ThreadAutomaton(self._classes)
        behind = self._first_behind()
        threads = self._threads([(self._start, (), False)], behind, with_cut)
        number = {(threads, behind): 0}
        queue = [(threads, behind)]
        for threads, behind in queue:  # grows while it is read
            matches = [cut for at, _, cut in threads if at in self._accepts]
            result.final.append(False in matches)
            taken = [self._accepts[at] for at, _, cut in threads if at in self._accepts and not cut]
            result.matched.append(taken[0] if taken else -1)
            if with_cut and matches and False not in matches:
                return result
            moves: dict[int, int] = {}
            for symbol in range(len(self._classes)):
                moved = []
                for at, pending, cut in threads:
                    if at not in self._accepts and self._members[at] >> symbol & 1:
                        after = self._advanced(pending, symbol) if pending else ()
                        if after is not None:
                            moved.append((self._targets[at][0], after, cut))
                if moved:
                    behind_now = self._next_behind(behind, symbol)
                    key = (self._threads(moved, behind_now, with_cut), behind_now)
                    if key[0]:
                        if key not in number:
                            if len(queue) >= self._limit:
                                raise self._too_large()
                            number[key] = len(queue)
                            queue.append(key)
                        moves[symbol] = number[key]
            result.moves.append(moves)
        return None if with_cut else result

    def _threads(self, moved: list[Thread], behind: Behind, with_cut: bool) -> tuple[Thread, ...]:
        """The threads, best first, that come of these without a character more."""
        found: list[Thread] = []
        at_same: dict[int, list[set[tuple[int, frozenset[int]]]]] = {}
        visited: set[tuple[int, Pending, frozenset[int]]] = set()
        matched = False
        for start, obligations, cut in moved:
            stack: list[tuple[int, Pending, frozenset[int]]] = [(start, obligations, frozenset())]
            while stack:
                item = at, pending, entered = stack.pop()
                if item in visited:
                    continue
                visited.add(item)
                kind, targets = self._kind[at], self._targets[at]
                if kind == CHOICE:
                    stack += [(target, pending, entered) for target in reversed(targets)]
                elif kind == ENTER:
                    stack += [(target, pending, entered | {at}) for target in reversed(targets)]
                elif kind == CHECK:
                    stack.append((targets[2] if targets[0] in entered else targets[1], pending, entered))
                elif kind == LOOK:
                    number = self._look_at[at]
                    if isinstance(self._looks[number][0], Lookbehind):
                        if self._holds_behind(number, behind):
                            stack.append((targets[0], pending, entered))
                    else:
                        more = self._opened(number, self._closed({self._looks[number][1]}))
                        if more is not None:
                            both = tuple(sorted({*pending, *more}, key=lambda item: (item[0], sorted(item[1]))))
                            stack.append((targets[0], both, entered))
                elif not any(less <= set(pending) for less in at_same.get(at, ())):
                    at_same.setdefault(at, []).append(set(pending))
                    if at in self._accepts and pending and not (cut or matched):
                        look = self._looks[pending[0][0]][0]
                        message = "this lookahead would see what comes after the terminal, which is not supported"
                        raise GrammarUnsupported(message, place_of(look.source))
                    found.append((at, pending, cut or matched))
                    if at in self._accepts:
                        matched = True
                        if not with_cut:
                            return tuple(found)
        return tuple(found)


def live(automaton: ThreadAutomaton) -> ThreadAutomaton:
    """The automaton without moves into states that lead to no match; states keep their numbers."""
    live = {state for state, final in enumerate(automaton.final) if final}
    grown = True
    while grown:
        more = {state for state, moves in enumerate(automaton.moves) if not live.isdisjoint(moves.values())}
        grown = not more <= live
        live |= more
    moves = [{symbol: to for symbol, to in moves.items() if to in live} for moves in automaton.moves]
    return ThreadAutomaton(automaton.classes, moves, automaton.final, automaton.matched)


def outcomes_on(automaton: ThreadAutomaton, state: int, other: ThreadAutomaton, first: Ranges) -> set[str]:
    """How a match, at `state` after a character of `first`, fares on the strings of `other` that begin with that.

    ``longer``: it matches within the string; ``ended``: it fails there; ``open``: neither when the string is over.
    """
    outcomes: set[str] = set()
    pairs = {(state, to): None for symbol, to in other.moves[0].items() if intersect(other.classes[symbol], first)}
    stack = list(pairs)
    while stack:
        at, beside = stack.pop()
        if automaton.final[at]:
            outcomes.add("longer")
            continue
        if other.final[beside]:
            outcomes.add("open")
        for symbol, to in other.moves[beside].items():
            left = other.classes[symbol]
            met: Ranges = ()
            for going, then in automaton.moves[at].items():
                common = intersect(left, automaton.classes[going])
                met = union(met, common)
                if common and (then, to) not in pairs:
                    pairs[then, to] = None
                    stack.append((then, to))
            if met != left:
                outcomes.add("ended")
    return outcomes
