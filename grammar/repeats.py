"""Counted repeats as counter frames: which are worth it, and the proof that they keep the run-time heads few.

A head is one open way to read the text so far. A repeat is called as a counter frame only if
(a) within its item the count is unambiguous, and at every call (b) the next byte decides whether the
callee is entered and (c) whether it is left. Where (b) or (c) fail, a call that happens at most once in
a text, or in one string of a rule, is still fine: see `_Proof._bounded`.

In a grammar of rules the call of a rule is a symbol like a byte: with (a) to (c) the counter frame has a head for each
one that the unrolled repeat has, so that counting is never the worse of the two.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .assemble import Frame
from .expression import (
    ByteAutomaton,
    Bytes,
    Characters,
    Complement,
    EndAnchor,
    Expression,
    Intersection,
    Lookahead,
    Member,
    Members,
    Reference,
    Repeat,
    StartAnchor,
    Token,
)
from .limits import Limits
from .loops import is_wide
from .simplify import children
from .utf8 import fragment

#: In a grammar of rules such a part of `max_unrolled_positions` is unrolled.
PART_IN_RULES = 8
#: Bound of a repeated wide class from which on it is worth a frame.
_LEAST_WIDE_BOUND = 4
#: Frames within frames, the root being the first.
_MAX_NESTING = 6
#: Calls of the root frame that may be ambiguous, and heads that what follows one of them may have.
_MAX_AMBIGUOUS, _MAX_HEADS = 4, 8
#: Sets of states looked at to bound the heads behind an ambiguous call.
_MAX_SETS = 64
#: Pairs of places looked at to tell two sides apart.
_MAX_PAIRS = 1024


class Sizes:
    """Positions of every part of one expression; the repeats chosen as counters are one position each.

    `in_rules`: of a rule, where counters may hold references and may be nested as deep as they like.
    """

    def __init__(
        self,
        root: Expression,
        excluded: dict[Expression, None],
        limits: Limits,
        *,
        with_counters: bool = True,
        in_rules: bool = False,
    ) -> None:
        self._excluded = excluded
        self._limits = limits
        self._unrolled = limits.max_unrolled_positions // (PART_IN_RULES if in_rules else 1)
        self._in_rules = in_rules
        self._size: dict[int, int] = {}
        self._nesting: dict[int, int] = {}
        self._fixed: dict[int, bool] = {}
        #: Repeats that become calls, by identity.
        self.counters: dict[int, Repeat] = {}
        self._root = root
        self._with_counters = with_counters and not _has_lookahead(root)
        self._visit(root)

    @property
    def total(self) -> int:
        """Positions of the whole."""
        return self._size[id(self._root)]

    def of(self, node: Expression) -> int:
        """Positions of one part, its repeats that are no counters unrolled."""
        return self._size[id(node)]

    def knows(self, node: Expression) -> bool:
        """Whether `node` is a part of the expression outside all operands that are built on their own."""
        return id(node) in self._size

    def _visit(self, node: Expression) -> None:
        """Sets the size, the nesting of counters within, and whether the node may not be called (`fixed`)."""
        key = id(node)
        if key in self._size:
            return
        # Closed operands are built on their own, where no repeat is a call; nor is one in the keys of members.
        closed = isinstance(node, (Intersection, Complement, Lookahead))
        parts = children(node)
        size = nesting = 0
        fixed = isinstance(node, Lookahead)
        for part in parts:
            between = isinstance(node, Members) and part is node.separator
            if closed or between or (isinstance(node, Member) and part is node.key):
                size += Sizes(part, {}, self._limits, with_counters=False).total
                continue
            self._visit(part)
            size += self._size[id(part)]
            nesting = max(nesting, self._nesting[id(part)])
            fixed = fixed or self._fixed[id(part)]
        if isinstance(node, Bytes):
            size = len(node.text)
        elif isinstance(node, ByteAutomaton):
            size = len(node.final)
        elif isinstance(node, Characters):
            size = fragment(node.ranges).n_states - 1
        elif isinstance(node, Members):
            fixed = False
        elif isinstance(node, Reference):
            size, fixed = 1, not self._in_rules
        elif isinstance(node, (StartAnchor, EndAnchor, Token)):
            size, fixed = int(isinstance(node, Token)), True
        elif isinstance(node, Repeat):
            bound = node.minimum if node.maximum is None else node.maximum
            body = self._size[id(node.body)]
            size = max(1, bound) * body
            shallow = self._in_rules or nesting + 2 <= _MAX_NESTING
            if self._with_counters and not fixed and shallow and body and bound > 1:
                wide = is_wide(node.body) and bound >= _LEAST_WIDE_BOUND and node.maximum is not None
                if (size > self._unrolled or wide) and node not in self._excluded:
                    self.counters[key] = node
                    size = 1
                    nesting += 1
        self._size[key], self._nesting[key], self._fixed[key] = size, nesting, fixed


def _has_lookahead(node: Expression) -> bool:
    """Whether a lookahead may have to look into a call: it sees bytes only."""
    stack, seen = [node], set()
    while stack:
        at = stack.pop()
        if isinstance(at, Lookahead):
            return True
        if id(at) not in seen and not isinstance(at, (Intersection, Complement)):
            seen.add(id(at))
            stack.extend(children(at))
    return False


def unproved(callers: list[Frame], called: dict[int, Frame], rules: list[int] | None = None) -> list[int]:
    """The symbols of those calls in `called` that might make the heads many; none: all is well.

    `callers` are the other frames: the root alone, or those of all rules, whose symbols are `rules`.
    """
    # Without calls there is nothing to prove, and tables of all states over all bytes are large.
    return sorted(_Proof(callers, called, rules or []).failing()) if called else []


#: Places where bytes may be read next: (frame, state).
_Places = frozenset[tuple[int, int]]


class _Proof:
    """The conditions on all calls. The frames that are no counters are symbols 0, -1, -2, ..."""

    def __init__(self, callers: list[Frame], called: dict[int, Frame], rules: list[int]) -> None:
        self._rules = rules
        self._frames = {**{-i: frame for i, frame in enumerate(callers)}, **called}
        self._calls = {
            number: [(symbol, int(frame.dfa.class_of[symbol])) for symbol in called]
            for number, frame in self._frames.items()
        }
        #: By frame: the states that have calls, and the table over bytes (and token symbols) alone.
        self._has_calls: dict[int, npt.NDArray[np.bool_]] = {}
        self._table: dict[int, npt.NDArray[np.int32]] = {}
        for number, frame in self._frames.items():
            table = frame.dfa.columns(0, len(frame.dfa.class_of)).copy()
            self._has_calls[number] = np.zeros(len(table), np.bool_)
            for symbol in called:
                self._has_calls[number] |= table[:, symbol] >= 0
                table[:, symbol] = -1
            self._table[number] = table
        self._follow: dict[int, _Places] = {}
        #: By callee: (caller, states with the call, states after it).
        self._sites: dict[int, list[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int32]]]] = {}
        for symbol in called:
            sites = []
            for caller, frame in self._frames.items():
                column = frame.dfa.columns(symbol, 1)[:, 0]
                states = np.flatnonzero(column >= 0)
                if len(states):
                    sites.append((caller, states, column[states]))
            self._sites[symbol] = sites
        self._known: dict[tuple[_Places, _Places], bool] = {}

    def failing(self) -> set[int]:
        """The callees to unroll."""
        found: set[int] = set()
        #: By caller: (callee, state, state after it, whether it is left in doubt).
        ambiguous: dict[int, list[tuple[int, int, int, bool]]] = {}
        for callee, sites in self._sites.items():
            frame = self._frames[callee]
            first = self._places(callee, 0)
            leaving = self._leaving(callee)
            if not self._separate(leaving, first):
                found.add(callee)
                continue
            # Where the number of items is fixed, the callee may not both end and begin another item.
            goes_on = leaving if frame.minimum == frame.maximum else leaving | first
            for caller, states, targets in sites:
                for state, target in zip(states.tolist(), targets.tolist(), strict=True):
                    entered = self._separate(self._places(caller, state, without=callee), first)
                    left = self._separate(self._after(caller, target), goes_on)
                    if entered and left:
                        continue
                    if caller <= 0:
                        ambiguous.setdefault(caller, []).append((callee, state, target, not left))
                    else:
                        found.add(callee)
        for caller, calls in ambiguous.items():
            many = len(calls) > _MAX_AMBIGUOUS
            for callee, state, target, in_doubt in calls:
                if many or not self._bounded(caller, state, target, in_doubt):
                    found.add(callee)
        return found

    def _places(self, number: int, state: int, without: int = 0) -> _Places:
        """The state itself and the starts of what it calls, but for the callee `without`."""
        found = {(number, state)}
        if self._has_calls[number][state]:
            row = self._frames[number].dfa.delta[state]
            for symbol, klass in self._calls[number]:
                if symbol != without and row[klass] >= 0:
                    found |= self._places(symbol, 0)
        return frozenset(found)

    def _leaving(self, symbol: int) -> _Places:
        """Where an item might as well end, one of each kind."""
        dfa = self._frames[symbol].dfa
        final = np.flatnonzero(dfa.final)
        kinds = np.unique(dfa.delta[final], axis=0, return_index=True)[1]
        return frozenset().union(*(self._places(symbol, int(state)) for state in final[kinds]))

    def _after(self, caller: int, target: int) -> _Places:
        """Where a head may be after a return to `target`."""
        places = self._places(caller, target)
        if caller > 0 and self._frames[caller].dfa.final[target]:
            places |= self._places(caller, 0) | self._follow_of(caller)
        return places

    def _follow_of(self, symbol: int) -> _Places:
        if symbol not in self._follow:
            sites = ((caller, target) for caller, _, targets in self._sites[symbol] for target in set(targets.tolist()))
            self._follow[symbol] = frozenset().union(*(self._after(caller, target) for caller, target in sites))
        return self._follow[symbol]

    def _separate(self, left: _Places, right: _Places) -> bool:
        """Whether the next bytes tell the two sides apart: the next one, or the rest of one UTF-8 sequence."""
        key = (left, right)
        if key not in self._known:
            self._known[key] = not (self._live(left) & self._live(right)).any() or (
                len(left) * len(right) <= _MAX_PAIRS
                and all(self._told_apart(one, other, 3) for one in left for other in right)
            )
        return self._known[key]

    def _live(self, places: _Places) -> npt.NDArray[np.bool_]:
        live: npt.NDArray[np.bool_] = np.zeros(len(self._frames[0].dfa.class_of), np.bool_)
        for number, state in places:
            live |= self._table[number][state] >= 0
        return live

    def _told_apart(self, one: tuple[int, int], other: tuple[int, int], more: int) -> bool:
        """Whether no byte, or only bytes within a code point, lead both on; `more` of them at most."""
        left, right = self._table[one[0]][one[1]], self._table[other[0]][other[1]]
        common = np.flatnonzero((left >= 0) & (right >= 0))
        if not len(common):
            return True
        if not more or common[0] < 0xC0 - 0x40 * (more < 3) or common[-1] > 0xFF:
            return False
        for pair in sorted(set(zip(left[common].tolist(), right[common].tolist(), strict=True))):
            for (number, _), state in zip((one, other), pair, strict=True):
                if self._has_calls[number][state] or self._frames[number].dfa.final[state]:
                    return False
            if not self._told_apart((one[0], pair[0]), (other[0], pair[1]), more - 1):
                return False
        return True

    def _bounded(self, caller: int, state: int, target: int, left_in_doubt: bool) -> bool:
        """Whether an ambiguous call of a frame that is no counter leaves the heads few.

        It must lie on no cycle, so that it is entered at one place of the frame's string at most. In doubt about
        entering, a head becomes two. In doubt about leaving, the callee is left at any number of places:
        what follows must contain no call, and only few of its states may be open at the same time.
        """
        delta = self._frames[caller].dfa.delta
        if _reachable(delta, delta[state])[state]:
            return False
        if not left_in_doubt:
            return True
        behind = np.flatnonzero(_reachable(delta, np.array([target])))
        if self._has_calls[caller][behind].any() or (self._table[caller][behind][:, self._rules] >= 0).any():
            return False
        if len(behind) <= _MAX_HEADS:
            return True
        rows = {int(s): delta[s] for s in behind}
        start = frozenset({target})
        seen, stack = {start}, [start]
        while stack:
            at = stack.pop()
            table = np.stack([rows[s] for s in sorted(at)])
            for column in np.unique(table, axis=1).T:
                then = frozenset(column[column >= 0].tolist()) | start
                if then not in seen:
                    if len(seen) >= _MAX_SETS or len(then) > _MAX_HEADS:
                        return False
                    seen.add(then)
                    stack.append(then)
        return True


def _reachable(delta: npt.NDArray[np.int32], sources: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """Which states can be reached from `sources` (-1 is no state), themselves among them."""
    reached = np.zeros(len(delta), np.bool_)
    new = np.unique(sources[sources >= 0])
    while len(new):
        reached[new] = True
        targets = np.unique(delta[new])
        targets = targets[targets >= 0]
        new = targets[~reached[targets]]
    return reached
