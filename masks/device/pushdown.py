"""Grammars with calls as pushdown automata that a device can step: one table of actions, numbers on a stack.

A *number* stands for a state of the grammar's automaton with the register that its frame has there, so that counters
need nothing of their own. A sequence is a stack of numbers: the states that calls return to, and on top the state that
it is in. A byte, or a special token that the grammar names, is a column of the table; where a number's action for it is

* a number, that is the next state;
* a push, some numbers go below the next state: calls on the way to the byte;
* POP, the frame returns, and the number below is asked for the same byte;
* DEAD, the byte is not legal;
* ESCAPE, the device does not know: two actions are possible (a union of calls that begin alike, a frame that may both
  return and go on), the frame has members in any order, or calls begin with themselves.

A call that nothing follows leaves nothing on the stack. So all of `masks.graph` is there for a sequence with one way to
read its text, and ESCAPE says where there may be two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...grammar.automaton import (
    COUNTER,
    FINAL,
    GUARDED,
    H_ROOT_FRAME,
    HAS_CALLS,
    HAS_OPERATIONS,
    HAS_TOKENS,
    MEMBERS,
    Automaton,
)

#: Actions that are no number and no push.
DEAD, POP, ESCAPE = -1, -2, -3
#: Numbers of one grammar: what is reached past so many is one number that only escapes. A number takes some 60
#: columns of 4 bytes, and some 20 microseconds on the host.
MAX_NUMBERS = 4096
#: The number of what is past `MAX_NUMBERS`.
BEYOND = 0

#: Numbers that go below the next one, from the bottom up, and the next one.
Option = tuple[tuple[int, ...], int]


class _LeftRecursion(Exception):
    """A call that begins with itself."""


@dataclass(frozen=True, eq=False)
class Pushdown:
    """The automaton of one grammar for the device.

    `columns` int32[256]: the column of each byte; those of the named tokens follow, in their order. `actions`
    int32[numbers, columns]: see the module; from `len(actions)` on an action is a push, counted from there. `pushes`:
    its numbers and the next one. `returns` bool[numbers]: may the frame return? `frame` int32[numbers]; `options`: of
    each number and column that has any, all that is possible without returning; None: not known. `start`: the number
    of the empty text. `below`: the numbers that may lie under a frame's level on a stack, and -1 for its bottom.
    """

    columns: NDArray[np.int32]
    actions: NDArray[np.int32]
    pushes: list[Option]
    returns: NDArray[np.bool_]
    frame: NDArray[np.int32]
    options: list[dict[int, list[Option]] | None]
    start: int

    @cached_property
    def below(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {int(self.frame[self.start]): {-1}}
        inherits: set[tuple[int, int]] = set()
        for number, options in enumerate(self.options):
            for pushed, target in {option for some in (options or {}).values() for option in some}:
                levels = (*pushed, target)
                inherits.add((int(self.frame[number]), int(self.frame[levels[0]])))
                for under, over in pairwise(levels):
                    found.setdefault(int(self.frame[over]), set()).add(under)
        changed = True
        while changed:
            changed = False
            for caller, callee in inherits:
                more = found.get(caller, set()) - found.setdefault(callee, set())
                changed = changed or bool(more)
                found[callee] |= more
        return found


class _Builder:
    """Numbers in the order in which they are reached, and what each can do."""

    def __init__(self, automaton: Automaton, tokens: int, most: int) -> None:
        self._a = automaton
        self._most = most
        self._targets: dict[int, list[int]] = {}
        self._options: dict[int, dict[int, list[Option]] | None] = {BEYOND: None}
        self.pairs: list[tuple[int, int]] = [(-1, 0)]
        self._number_of: dict[tuple[int, int], int] = {}
        single = np.zeros(256, np.bool_)
        single[automaton["single_byte"]] = True
        kinds = automaton["byte_class"].astype(np.int64) * 512 + np.where(single, np.arange(256), 256)
        _, first, columns = np.unique(kinds, return_index=True, return_inverse=True)
        self.columns = columns.astype(np.int32)
        #: A byte of each column.
        self._byte_of = first
        self.bytes, self.width = len(first), len(first) + tokens
        follow = np.ascontiguousarray(automaton["frame_follow"]).view(np.uint8)
        bits = np.unpackbits(follow, bitorder="little").reshape(-1, 256)
        #: bool[frames, columns]: may a byte of the column come after the frame? Any token may.
        self._follows = np.ones((len(bits), self.width), np.bool_)
        for column in range(self.bytes):
            self._follows[:, column] = bits[:, self.columns == column].any(axis=1)

    def number(self, state: int, register: int) -> int:
        known = self._number_of.get((state, register))
        if known is None:
            known = len(self.pairs) if len(self.pairs) < self._most else BEYOND
            self._number_of[state, register] = known
            if known != BEYOND:
                self.pairs.append((state, register))
        return known

    def frame(self, number: int) -> int:
        return -1 if number == BEYOND else int(self._a["state_frame"][self.pairs[number][0]])

    def may_return(self, number: int) -> bool:
        """`machine.may_return`, of frames without members."""
        if number == BEYOND:
            return False
        state, register = self.pairs[number]
        if not self._flags(state) & FINAL:
            return False
        frame = self.frame(number)
        return self._kind(frame) != COUNTER or register + 1 >= int(self._a["frame_minimum"][frame])

    def _restart(self, number: int) -> tuple[int, int] | None:
        """(state, register) from which another item of a counter begins, as `machine.restart_of`."""
        state, register = self.pairs[number]
        frame = self.frame(number)
        if not self._flags(state) & FINAL or self._kind(frame) != COUNTER:
            return None
        maximum, minimum = int(self._a["frame_maximum"][frame]), int(self._a["frame_minimum"][frame])
        if maximum < 0:
            return int(self._a["frame_start"][frame]), min(register + 1, max(minimum - 1, 0))
        return (int(self._a["frame_start"][frame]), register + 1) if register + 1 < maximum else None

    def _flags(self, state: int) -> int:
        return int(self._a["state_flags"][state])

    def _kind(self, frame: int) -> int:
        return int(self._a["frame_kind"][frame])

    def _byte_edges(self, state: int) -> Iterator[tuple[int, int]]:
        """(column, target) of the byte edges."""
        edge = int(self._a["edges"][state])
        if edge <= -2:
            yield int(self.columns[self._a["single_byte"][-2 - edge]]), int(self._a["single_target"][-2 - edge])
        elif edge >= 0:
            classes = self._a["byte_class"][self._byte_of]
            targets = self._a["dense"][edge * self._a.n_classes + classes.astype(np.int64)]
            for column in np.flatnonzero(targets >= 0).tolist():
                yield column, int(targets[column])

    def _only_returns(self, number: int) -> bool:
        """Does nothing follow here but the return?"""
        if number == BEYOND or not self.may_return(number) or self._kind(self.frame(number)) == MEMBERS:
            return False
        state = self.pairs[number][0]
        other = self._flags(state) & (HAS_CALLS | HAS_TOKENS | GUARDED | HAS_OPERATIONS)
        return not other and int(self._a["edges"][state]) == -1 and self._restart(number) is None

    def options(self, number: int) -> dict[int, list[Option]] | None:
        """What each column can lead to without a return; None where that is not known."""
        try:
            return self._options_of(number, ())
        except _LeftRecursion:
            self._options[number] = None
            return None

    def _options_of(self, number: int, callers: tuple[int, ...]) -> dict[int, list[Option]] | None:
        if number in self._options:
            return self._options[number]
        if number in callers:
            raise _LeftRecursion
        state, register = self.pairs[number]
        if self._kind(self.frame(number)) == MEMBERS or self._flags(state) & (GUARDED | HAS_OPERATIONS):
            self._options[number] = None
            return None
        found: dict[int, list[Option]] = {}
        again = self._restart(number)
        for own, count in [(state, register)] if again is None else [(state, register), again]:
            for column, target in self._byte_edges(own):
                found.setdefault(column, []).append(((), self.number(target, count)))
            for call in range(*self._a["call_start"][own : own + 2].tolist()):
                back = self.number(int(self._a["call_target"][call]), count)
                entry = self.number(int(self._a["frame_start"][self._a["call_frame"][call]]), 0)
                inner = self._options_of(entry, (*callers, number))
                if inner is None or back == BEYOND:
                    self._options[number] = None
                    return None
                kept = () if self._only_returns(back) else (back,)
                for column, options in inner.items():
                    found.setdefault(column, []).extend(((*kept, *pushed), target) for pushed, target in options)
        for edge in range(*self._a["token_start"][state : state + 2].tolist()):
            column = self.bytes + int(self._a["token_symbol"][edge])
            target = self.number(int(self._a["token_target"][edge]), register)
            found.setdefault(column, []).append(((), target))
        self._options[number] = {column: list(dict.fromkeys(options)) for column, options in found.items()}
        return self._options[number]

    def ambiguous(self, number: int, column: int) -> bool:
        """May the byte of a column, which the frame itself can take, also come after its return?"""
        return self.may_return(number) and bool(self._follows[self.frame(number), column])


def pushdown(automaton: Automaton, tokens: int, most: int = MAX_NUMBERS) -> Pushdown:
    """The automaton of a grammar that is not lazy and names so many tokens, with at most `most` numbers."""
    builder = _Builder(automaton, tokens, most)
    start = builder.number(int(automaton["frame_start"][int(automaton.header[H_ROOT_FRAME])]), 0)
    pushes: dict[Option, int] = {}
    rows: list[NDArray[np.int64]] = []
    all_options: list[dict[int, list[Option]] | None] = []
    number = 0
    while number < len(builder.pairs):
        options = builder.options(number)
        all_options.append(options)
        row = np.full(builder.width, POP if builder.may_return(number) else DEAD, np.int64)
        if options is None:
            row[:] = ESCAPE
        for column, possible in (options or {}).items():
            if len(possible) > 1 or builder.ambiguous(number, column):
                row[column] = ESCAPE
            elif possible[0][0]:
                # Counted from the number of numbers, which is not known yet.
                row[column] = most + pushes.setdefault(possible[0], len(pushes))
            else:
                row[column] = possible[0][1]
        rows.append(row)
        number += 1
    actions = np.array(rows)
    actions[actions >= most] += len(rows) - most
    return Pushdown(
        builder.columns,
        actions.astype(np.int32),
        list(pushes),
        np.array([builder.may_return(i) for i in range(len(rows))]),
        np.array([builder.frame(i) for i in range(len(rows))], np.int32),
        all_options,
        start,
    )
