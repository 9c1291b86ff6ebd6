"""Position automata: non-deterministic, without epsilon edges; and the nets with epsilon edges they come from.

The alphabet is the bytes 0-255 and, from 256 on, symbols (tokens and calls). An edge carries a range of it.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from .._numba import allocating_helper, kernel
from .errors import GrammarTooLarge
from .utf8 import Fragment

#: Kinds of epsilon edges; a kind of LOOKAHEAD + i asks lookahead `i` of the net.
PLAIN_SKIP, START_SKIP, END_SKIP, LOOKAHEAD = 0, 1, 2, 3

#: Edges of a position automaton for each position that the limit allows.
EDGES_PER_POSITION = 32

#: Passes over all states, from the last to the first, in which it is tried to find all of use, about 2 ns a state each.
_PASSES = 3

Number = TypeVar("Number", bound=np.generic)
Int32Array = npt.NDArray[np.int32]
Uint8Array = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class PositionAutomaton:
    """States 0 .. n-1, 0 the start; state `s` has the edges `edge_start[s]` to `edge_start[s + 1]`.

    `low`, `high`: ends of the edge's range, both inclusive; `target`: where it leads. All int32. Every
    state is reachable and leads to a final one, but for the start of an empty language.
    """

    edge_start: Int32Array
    low: Int32Array
    high: Int32Array
    target: Int32Array
    final: Uint8Array

    @property
    def n_states(self) -> int:
        return len(self.final)

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        edges = self.edge_start.nbytes + self.low.nbytes + self.high.nbytes + self.target.nbytes
        return edges + self.final.nbytes

    @property
    def is_empty(self) -> bool:
        """Whether no string at all matches."""
        return len(self.low) == 0 and not self.final[0]

    def without_empty_string(self) -> PositionAutomaton:
        """The same language less the empty string (nothing leads to the start, so it may just stop being final)."""
        final = self.final.copy()
        final[0] = 0
        return trimmed(self.edge_start, self.low, self.high, self.target, final)

    def without_bytes(self, absent: frozenset[int]) -> PositionAutomaton:
        """The strings of the language that hold none of these bytes."""
        kept = [b not in absent for b in range(256)]
        if all(kept):
            return self
        edges: list[tuple[int, int, int, int]] = []
        source = np.repeat(np.arange(self.n_states), np.diff(self.edge_start))
        for state, low, high, target in zip(
            source.tolist(), self.low.tolist(), self.high.tolist(), self.target.tolist(), strict=True
        ):
            begin = low
            for byte in range(low, min(high, 255) + 1):
                if not kept[byte]:
                    if begin < byte:
                        edges.append((state, begin, byte - 1, target))
                    begin = byte + 1
            if begin <= high:
                edges.append((state, begin, high, target))
        table = np.array(edges, np.int32).reshape(-1, 4)
        edge_start = np.searchsorted(table[:, 0], np.arange(self.n_states + 1)).astype(np.int32)
        low_, high_, target_ = (np.ascontiguousarray(table[:, i]) for i in (1, 2, 3))
        return trimmed(edge_start, low_, high_, target_, self.final)


class Net:
    """An automaton with epsilon edges under construction, as flat arrays. `start` and `accept` are its ends.

    `at_text_start`: whether the start is the start of the text, where start anchors hold.
    """

    def __init__(self) -> None:
        self.n_states = 2
        self.start, self.accept = 0, 1
        self.at_text_start = True
        self.source, self.low, self.high, self.target = array("i"), array("i"), array("i"), array("i")
        self.skip_source, self.skip_kind, self.skip_target = array("i"), array("i"), array("i")
        self._placeholder = 0

    def state(self) -> int:
        """A new state."""
        self.n_states += 1
        return self.n_states - 1

    def edge(self, source: int, low: int, high: int, target: int) -> None:
        """An edge on the bytes or symbols from `low` to `high`."""
        self.source.append(source)
        self.low.append(low)
        self.high.append(high)
        self.target.append(target)

    def skip(self, source: int, target: int, kind: int = PLAIN_SKIP) -> None:
        """An epsilon edge."""
        self.skip_source.append(source)
        self.skip_kind.append(kind)
        self.skip_target.append(target)

    def fragment(self, part: Fragment, start: int, end: int) -> None:
        """The edges of one code point between two states."""
        offset = self.n_states - 2
        self.n_states += part.n_states - 2
        for source, low, high, target in part.edges:
            self.edge(start if source == 0 else source + offset, low, high, end if target == 1 else target + offset)

    def automaton(self, part: PositionAutomaton, start: int, end: int) -> None:
        """The strings of `part` between two states."""
        source = np.repeat(np.arange(part.n_states, dtype=np.int32), np.diff(part.edge_start))
        self.table(np.stack([source, part.low, part.high, part.target], axis=1), part.final, start, end)

    def table(self, edges: Int32Array, final: Uint8Array, start: int, end: int) -> None:
        """What `edges`, rows (source, low, high, target), spell from their state 0 to one that is `final`."""
        offset = np.int32(self.n_states)
        self.n_states += len(final)
        self.source.frombytes((edges[:, 0] + offset).tobytes())
        self.low.frombytes(edges[:, 1].tobytes())
        self.high.frombytes(edges[:, 2].tobytes())
        self.target.frombytes((edges[:, 3] + offset).tobytes())
        self.skip(start, int(offset))
        for state in np.flatnonzero(final).tolist():
            self.skip(state + int(offset), end)

    def placeholder(self) -> int:
        """A stand-in for the end of a part that is to be copied: that state's number is not known yet."""
        self._placeholder -= 1
        return self._placeholder

    def repeat_part(self, edges: int, skips: int, first: int, end: int, count: int) -> int:
        """Put `count` copies of the newest part in a row; returns the state where the last one ends.

        The part is all edges from number `edges`, all skips from number `skips` and all states from
        `first`, its start; `end` is the placeholder of its end. Copy `i` starts where copy `i - 1` ends,
        at state ``first + i * stride``.
        """
        stride = self.n_states - first
        shifts = (np.arange(count, dtype=np.int32) * np.int32(stride))[:, None]
        for column, moves in (
            (self.source, True),
            (self.target, True),
            (self.low, False),
            (self.high, False),
        ):
            _repeat_tail(column, edges, first, end, stride, shifts if moves else shifts * 0)
        for column, moves in ((self.skip_source, True), (self.skip_target, True), (self.skip_kind, False)):
            _repeat_tail(column, skips, first, end, stride, shifts if moves else shifts * 0)
        self.n_states = first + count * stride + 1
        return self.n_states - 1

    def positions(self, max_positions: int) -> PositionAutomaton:
        """Without epsilon edges. The net has no lookaheads. Raises `GrammarTooLarge`."""
        columns = (
            self.source, self.low, self.high, self.target, self.skip_source, self.skip_kind, self.skip_target
        )  # fmt: skip
        ends = (self.n_states, self.start, self.accept, self.at_text_start)
        arrays = [np.array(column, np.int32) for column in columns]
        arguments: Any = (*ends, *arrays, EDGES_PER_POSITION * max_positions)
        count, edge_start, low, high, target, final = _eliminate(*arguments)
        if count < 0:
            raise GrammarTooLarge("the expression has too many edges between its positions", limit="max_positions")
        return trimmed(edge_start[: count + 1], low, high, target, final[:count])


def _repeat_tail(column: array[int], start: int, first: int, end: int, stride: int, shifts: Int32Array) -> None:
    tail = np.array(column[start:], np.int32)
    tail[tail == end] = first + stride
    del column[start:]
    # States before the part (there are none but its ends) would not move; all others do.
    column.frombytes((tail[None, :] + shifts).astype(np.int32).tobytes())


def trimmed(
    edge_start: Int32Array, low: Int32Array, high: Int32Array, target: Int32Array, final: Uint8Array
) -> PositionAutomaton:
    """The automaton less the states that cannot be reached or lead to no final state; order kept."""
    n_edges, *columns, final = _trim(edge_start, low, high, target, final)
    edge_start, low, high, target = columns
    return PositionAutomaton(edge_start, low[:n_edges], high[:n_edges], target[:n_edges], final)


@allocating_helper
def grown(values: npt.NDArray[Number], size: int) -> npt.NDArray[Number]:
    """A copy with room for `size` values. By a loop: assigning slices takes Numba seconds to compile."""
    result = np.empty(size, values.dtype)
    for i in range(len(values)):
        result[i] = values[i]
    return result


@allocating_helper
def group(n: int, keys: Int32Array) -> tuple[Int32Array, Int32Array]:
    """Counting sort: where each key's items begin, and the items' numbers in order of their keys."""
    start = np.zeros(n + 1, np.int32)
    for key in keys:
        start[key + 1] += 1
    for i in range(n):
        start[i + 1] += start[i]
    place = start[:n].copy()
    order = np.empty(len(keys), np.int32)
    for i in range(len(keys)):
        order[place[keys[i]]] = i
        place[keys[i]] += 1
    return start, order


@allocating_helper
def eliminated(
    n_states: int,
    start: int,
    accept: int,
    at_text_start: bool,
    source: Int32Array,
    low: Int32Array,
    high: Int32Array,
    target: Int32Array,
    skip_source: Int32Array,
    skip_kind: Int32Array,
    skip_target: Int32Array,
    max_edges: int,
) -> tuple[int, Int32Array, Int32Array, Int32Array, Int32Array, Uint8Array]:
    """Epsilon elimination: a position for the start and for each state that some edge leads to.

    A position's edges are those of its closure. Only the start's closure passes start anchors; behind
    an end anchor there may only be epsilon edges to `accept`. Returns the number of positions (-1 where
    they would have more than `max_edges` edges) and arrays with room to spare.
    """
    edge_at, edge_order = group(n_states, source)
    skip_at, skip_order = group(n_states, skip_source)
    position = np.full(n_states, -1, np.int32)
    owner = np.empty(n_states + 1, np.int32)
    owner[0] = start
    count = 1
    seen = np.full(n_states, -1, np.int32)
    ended = np.full(n_states, -1, np.int32)
    stack = np.empty(2 * n_states + 2, np.int32)
    final = np.zeros(n_states + 1, np.uint8)
    out_start = np.zeros(n_states + 2, np.int32)
    out_edge = np.empty(len(source) + 16, np.int32)
    n_out = 0
    i = 0
    ok = True
    while i < count and ok:
        seen[owner[i]] = i
        stack[0] = owner[i]
        top = 1
        while top > 0:
            top -= 1
            at = stack[top]
            behind_end = at < 0
            if behind_end:
                at = -1 - at
            if at == accept:
                final[i] = 1
            if not behind_end:
                needed = n_out + edge_at[at + 1] - edge_at[at]
                if needed > max_edges:
                    ok = False
                    break
                if needed > len(out_edge):
                    out_edge = grown(out_edge, 2 * needed)
                for k in range(edge_at[at], edge_at[at + 1]):
                    e = edge_order[k]
                    if position[target[e]] < 0:
                        position[target[e]] = count
                        owner[count] = target[e]
                        count += 1
                    out_edge[n_out] = e
                    n_out += 1
            for k in range(skip_at[at], skip_at[at + 1]):
                e = skip_order[k]
                if skip_kind[e] == START_SKIP and not (at_text_start and i == 0):
                    continue
                to = skip_target[e]
                if behind_end or skip_kind[e] == END_SKIP:
                    if ended[to] != i:
                        ended[to] = i
                        stack[top] = -1 - to
                        top += 1
                elif seen[to] != i:
                    seen[to] = i
                    stack[top] = to
                    top += 1
        i += 1
        out_start[i] = n_out
    out_low = np.empty(n_out, np.int32)
    out_high = np.empty(n_out, np.int32)
    out_target = np.empty(n_out, np.int32)
    for k in range(n_out):
        e = out_edge[k]
        out_low[k] = low[e]
        out_high[k] = high[e]
        out_target[k] = position[target[e]]
    return count if ok else -1, out_start, out_low, out_high, out_target, final


@allocating_helper
def trimmed_arrays(
    edge_start: Int32Array, low: Int32Array, high: Int32Array, target: Int32Array, final: Uint8Array
) -> tuple[int, Int32Array, Int32Array, Int32Array, Int32Array, Uint8Array]:
    """The number of edges left, and the arrays of the automaton, those of edges with room to spare.

    Where all states are of use the arrays are those given.
    """
    n = len(final)
    reached = np.zeros(n, np.uint8)
    stack = np.empty(n + 1, np.int32)
    stack[0] = 0
    reached[0] = 1
    top = 1
    while top > 0:
        top -= 1
        s = stack[top]
        for e in range(edge_start[s], edge_start[s + 1]):
            if not reached[target[e]]:
                reached[target[e]] = 1
                stack[top] = target[e]
                top += 1
    alive = np.zeros(n, np.uint8)
    n_alive = 0
    # States are mostly numbered along the paths, and mostly all are of use.
    for _ in range(_PASSES):
        before = n_alive
        for s in range(n - 1, -1, -1):
            if alive[s] or not reached[s]:
                continue
            more = final[s] != 0
            e = edge_start[s]
            while not more and e < edge_start[s + 1]:
                more = alive[target[e]] != 0
                e += 1
            if more:
                alive[s] = 1
                n_alive += 1
        if n_alive == n:
            return len(target), edge_start, low, high, target, final
        if n_alive == before:
            break
    back_start, back = group(n, target)
    source = np.empty(len(target), np.int32)
    for s in range(n):
        for e in range(edge_start[s], edge_start[s + 1]):
            source[e] = s
    for s in range(n):
        if alive[s]:
            stack[top] = s
            top += 1
    while top > 0:
        top -= 1
        s = stack[top]
        for k in range(back_start[s], back_start[s + 1]):
            p = source[back[k]]
            if reached[p] and not alive[p]:
                alive[p] = 1
                stack[top] = p
                top += 1
    number = np.full(n, -1, np.int32)
    count = 0
    for s in range(n):
        if alive[s] or s == 0:
            number[s] = count
            count += 1
    new_start = np.zeros(count + 1, np.int32)
    new_final = np.zeros(count, np.uint8)
    new_low = np.empty(len(low), np.int32)
    new_high = np.empty(len(low), np.int32)
    new_target = np.empty(len(low), np.int32)
    n_edges = 0
    for s in range(n):
        if number[s] < 0:
            continue
        new_final[number[s]] = final[s]
        for e in range(edge_start[s], edge_start[s + 1]):
            if alive[target[e]]:
                new_low[n_edges] = low[e]
                new_high[n_edges] = high[e]
                new_target[n_edges] = number[target[e]]
                n_edges += 1
        new_start[number[s] + 1] = n_edges
    return n_edges, new_start, new_low, new_high, new_target, new_final


@kernel(
    "(int64, int64, int64, boolean, int32[::1], int32[::1], int32[::1], int32[::1], "
    "int32[::1], int32[::1], int32[::1], int64)",
    allocates=True,
)
def _eliminate(
    n_states: int,
    start: int,
    accept: int,
    at_text_start: bool,
    source: Int32Array,
    low: Int32Array,
    high: Int32Array,
    target: Int32Array,
    skip_source: Int32Array,
    skip_kind: Int32Array,
    skip_target: Int32Array,
    max_edges: int,
) -> tuple[int, Int32Array, Int32Array, Int32Array, Int32Array, Uint8Array]:
    return eliminated(
        n_states,
        start,
        accept,
        at_text_start,
        source,
        low,
        high,
        target,
        skip_source,
        skip_kind,
        skip_target,
        max_edges,
    )


@kernel("(int32[::1], int32[::1], int32[::1], int32[::1], uint8[::1])", allocates=True)
def _trim(
    edge_start: Int32Array, low: Int32Array, high: Int32Array, target: Int32Array, final: Uint8Array
) -> tuple[int, Int32Array, Int32Array, Int32Array, Int32Array, Uint8Array]:
    return trimmed_arrays(edge_start, low, high, target, final)
