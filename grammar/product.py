"""Products of position automata: intersection, and paths with lookaheads pending."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from .._numba import kernel
from .determinize import Dfa
from .errors import GrammarTooLarge
from .position import END_SKIP, LOOKAHEAD, START_SKIP, Int32Array, Net, PositionAutomaton, Uint8Array, grown, trimmed


def intersection(
    left: PositionAutomaton, right: PositionAutomaton, max_states: int, place: str | None = None
) -> PositionAutomaton:
    """The strings of both, trimmed (so emptiness is exact). Raises `GrammarTooLarge` past `max_states` pairs."""
    room = 0
    while True:
        room = min(max_states, 16 * room or 1024)
        count, n_edges, edge_start, low, high, target, final = _intersect(
            left.edge_start, left.low, left.high, left.target, left.final,
            right.edge_start, right.low, right.high, right.target, right.final,
            room,
        )  # fmt: skip
        if count >= 0:
            return trimmed(edge_start[: count + 1], low[:n_edges], high[:n_edges], target[:n_edges], final[:count])
        if room == max_states:
            raise GrammarTooLarge("the automaton of an intersection is too large", place, limit="max_product_states")


@kernel(
    "(int32[::1], int32[::1], int32[::1], int32[::1], uint8[::1], "
    "int32[::1], int32[::1], int32[::1], int32[::1], uint8[::1], int64)",
    allocates=True,
)
def _intersect(
    start_a: Int32Array,
    low_a: Int32Array,
    high_a: Int32Array,
    target_a: Int32Array,
    final_a: Uint8Array,
    start_b: Int32Array,
    low_b: Int32Array,
    high_b: Int32Array,
    target_b: Int32Array,
    final_b: Uint8Array,
    room: int,
) -> tuple[int, int, Int32Array, Int32Array, Int32Array, Int32Array, Uint8Array]:
    """(pairs, edges, edge_start, low, high, target, final); pairs is -1 where there are more than `room`."""
    n_b = len(final_b)
    slots = 256
    while slots < 2 * room:
        slots *= 2
    table = np.empty(slots, np.int32)
    for k in range(slots):
        table[k] = -1
    pairs = np.empty(room, np.int64)
    out_start = np.empty(room + 1, np.int32)
    final = np.empty(room, np.uint8)
    low = np.empty(256, np.int32)
    high = np.empty(256, np.int32)
    target = np.empty(256, np.int32)
    pairs[0] = 0
    out_start[0] = 0
    final[0] = final_a[0] & final_b[0]
    table[0] = 0
    n_edges = 0
    count = 1
    i = 0
    while i < count:
        p = pairs[i] // n_b
        q = pairs[i] % n_b
        for e in range(start_a[p], start_a[p + 1]):
            for f in range(start_b[q], start_b[q + 1]):
                first = max(low_a[e], low_b[f])
                last = min(high_a[e], high_b[f])
                if first > last:
                    continue
                pair = np.int64(target_a[e]) * n_b + target_b[f]
                mixed = np.uint64(pair) * np.uint64(0x9E3779B97F4A7C15)
                slot = np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(slots - 1))
                while table[slot] >= 0 and pairs[table[slot]] != pair:
                    slot = (slot + 1) & (slots - 1)
                if table[slot] < 0:
                    if count >= room:
                        return -1, 0, out_start, low, high, target, final
                    pairs[count] = pair
                    final[count] = final_a[target_a[e]] & final_b[target_b[f]]
                    table[slot] = count
                    count += 1
                if n_edges == len(low):
                    low = grown(low, 2 * n_edges)
                    high = grown(high, 2 * n_edges)
                    target = grown(target, 2 * n_edges)
                low[n_edges] = first
                high[n_edges] = last
                target[n_edges] = table[slot]
                n_edges += 1
        i += 1
        out_start[i] = n_edges
    return count, n_edges, out_start, low, high, target, final


#: What the rest of the text still has to satisfy: (number of the DFA, its state), sorted.
_Pending = tuple[tuple[int, int], ...]


class _Obligations:
    """The lookaheads of a net as DFAs: two of each, for its place at the start of the text and elsewhere."""

    def __init__(self, dfas: list[tuple[Dfa, Dfa]], other: int) -> None:
        self._dfas = [dfa for pair in dfas for dfa in pair]
        self._other = other
        self._universal = [_universal_state(dfa) for dfa in self._dfas]
        self._delta = [dfa.delta.tolist() for dfa in self._dfas]
        self._class_of = [dfa.class_of.tolist() for dfa in self._dfas]
        self._cuts = [dfa.first_of.tolist() for dfa in self._dfas]
        self._final = [dfa.final.tolist() for dfa in self._dfas]

    def begin(self, pending: _Pending, lookaheads: frozenset[int], at_start: bool) -> _Pending | None:
        """`pending` and fresh `lookaheads`; None where one of them can never hold."""
        joined = set(pending)
        for number in lookaheads:
            dfa = 2 * number + (0 if at_start else 1)
            if not self._final[dfa][0] and max(self._delta[dfa][0]) < 0:
                return None
            if self._universal[dfa] != 0:
                joined.add((dfa, 0))
        return tuple(sorted(joined))

    def satisfied(self, pending: _Pending) -> bool:
        """Whether all hold if the text ends here."""
        return all(self._final[dfa][state] for dfa, state in pending)

    def pieces(self, low: int, high: int, pending: _Pending) -> Iterator[tuple[int, int, _Pending]]:
        """The parts of an edge's range on which nothing becomes impossible, each with what is then pending."""
        if low >= self._other:  # a symbol: one and the same to all lookaheads
            cuts = [low, high + 1]
        else:
            inner = {cut for dfa, _ in pending for cut in self._cuts[dfa] if low < cut <= high}
            cuts = [low, *sorted(inner), high + 1]
        for first, past in pairwise(cuts):
            symbol = min(first, self._other)
            moved: set[tuple[int, int]] = set()
            for dfa, state in pending:
                to = self._delta[dfa][state][self._class_of[dfa][symbol]]
                if to < 0:
                    break
                if to != self._universal[dfa]:
                    moved.add((dfa, to))
            else:
                yield first, past - 1, tuple(sorted(moved))


def _universal_state(dfa: Dfa) -> int:
    """The state from which everything matches, or -1. A minimal DFA has at most one."""
    everything = (dfa.delta == np.arange(dfa.n_states)[:, None]).all(axis=1) & (dfa.final != 0)
    return int(np.flatnonzero(everything)[0]) if everything.any() else -1


def resolve_lookaheads(net: Net, dfas: list[tuple[Dfa, Dfa]], other: int, max_states: int) -> PositionAutomaton:
    """The net's positions, each with the lookaheads still pending there.

    `dfas[i]` decides lookahead `i` over bytes and `other`. A satisfied lookahead is forgotten, a path on
    which one cannot hold any more ends. Raises `GrammarTooLarge` past `max_states` states.
    """
    obligations = _Obligations(dfas, other)
    edges: dict[int, list[tuple[int, int, int]]] = {}
    for source, low, high, target in zip(net.source, net.low, net.high, net.target, strict=True):
        edges.setdefault(source, []).append((low, high, target))
    skips: dict[int, list[tuple[int, int]]] = {}
    for source, kind, target in zip(net.skip_source, net.skip_kind, net.skip_target, strict=True):
        skips.setdefault(source, []).append((kind, target))

    def closure(state: int, at_start: bool) -> list[tuple[int, frozenset[int], bool]]:
        """(state, lookaheads passed on the way, whether an end anchor was) of all ways without a byte."""
        found = {(state, frozenset[int](), False): None}
        stack = list(found)
        while stack:
            at, passed, ended = stack.pop()
            for kind, target in skips.get(at, ()):
                if kind == START_SKIP and not at_start:
                    continue
                more = passed | {kind - LOOKAHEAD} if kind >= LOOKAHEAD else passed
                key = (target, more, ended or kind == END_SKIP)
                if key not in found:
                    if len(found) >= max_states:
                        raise GrammarTooLarge("too many lookaheads at one place", limit="max_product_states")
                    found[key] = None
                    stack.append(key)
        return list(found)

    closures: dict[int, list[tuple[int, frozenset[int], bool]]] = {}
    number: dict[tuple[int, _Pending], int] = {}
    queue: list[tuple[int, _Pending]] = [(net.start, ())]
    starts, lows, highs, targets, final = [0], [], [], [], []
    for index, (state, pending) in enumerate(queue):  # grows while it is read
        at_start = index == 0 and net.at_text_start
        if index == 0 or state not in closures:
            ways = closure(state, at_start)
            if index:
                closures[state] = ways
        else:
            ways = closures[state]
        is_final = False
        out: dict[tuple[int, int, int], None] = {}
        for at, passed, ended in ways:
            now = obligations.begin(pending, passed, at_start) if passed else pending
            if now is None:
                continue
            if at == net.accept and obligations.satisfied(now):
                is_final = True
            if ended:
                continue
            for low, high, target in edges.get(at, ()):
                for first, last, then in obligations.pieces(low, high, now):
                    key = (target, then)
                    to = number.get(key)
                    if to is None:
                        if len(queue) >= max_states:
                            raise GrammarTooLarge("the lookaheads are too large", limit="max_product_states")
                        to = number[key] = len(queue)
                        queue.append(key)
                    out[first, last, to] = None
        for first, last, to in out:
            lows.append(first)
            highs.append(last)
            targets.append(to)
        starts.append(len(lows))
        final.append(is_final)
    return trimmed(
        np.array(starts, np.int32),
        np.array(lows, np.int32),
        np.array(highs, np.int32),
        np.array(targets, np.int32),
        np.array(final, np.uint8),
    )
