"""Subset construction over byte classes, and deterministic automata back to position automata."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .._numba import allocating_helper, helper, kernel
from .minimize import minimized
from .position import Int32Array, PositionAutomaton, Uint8Array, grown, trimmed

_NO_WORK_LEFT = -2


@dataclass(frozen=True, eq=False)
class Dfa:
    """A minimal, trimmed, canonically numbered DFA: equal languages have equal tables.

    State `s` has the edges from ``edge_start[s]`` on, in the order of their classes: `edge_class`, `edge_target`.
    `final[s]` is a flag, `class_of[a]` the class of byte or symbol `a` and `first_of[c]` the lowest member of class
    `c`: a class is an interval of the alphabet.
    """

    edge_start: Int32Array
    edge_class: Int32Array
    edge_target: Int32Array
    final: Uint8Array
    class_of: Int32Array
    first_of: Int32Array

    @property
    def n_states(self) -> int:
        return len(self.final)

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        edges = self.edge_start.nbytes + self.edge_class.nbytes + self.edge_target.nbytes
        return edges + self.final.nbytes + self.class_of.nbytes + self.first_of.nbytes

    @cached_property
    def delta(self) -> Int32Array:
        """The target of each state and class, -1: none. int32[states, classes], made when it is first asked for."""
        result: Int32Array = np.full((self.n_states, len(self.first_of)), -1, np.int32)
        source = np.repeat(np.arange(self.n_states), np.diff(self.edge_start))
        result[source, self.edge_class] = self.edge_target
        return result

    def columns(self, first: int, count: int) -> Int32Array:
        """The targets on the `count` bytes or symbols from `first` on, [n_states, count]."""
        result: Int32Array = self.delta[:, self.class_of[first : first + count]]
        return result


def alphabet_classes(automaton: PositionAutomaton, alphabet: int) -> tuple[Int32Array, Int32Array]:
    """(class_of, first_of) as in `Dfa`: cut wherever a range of some edge begins or ends, and after the bytes."""
    cuts = np.zeros(alphabet + 1, np.int32)
    cuts[automaton.low] = 1
    cuts[automaton.high + 1] = 1
    cuts[0] = 0
    if alphabet > 256:
        cuts[256] = 1
    class_of = np.cumsum(cuts[:alphabet], dtype=np.int32)
    first_of = np.concatenate([np.zeros(1, np.int32), np.flatnonzero(cuts[:alphabet]).astype(np.int32)])
    return class_of, first_of


def determinize(automaton: PositionAutomaton, alphabet: int, max_states: int, max_work: int) -> Dfa | None:
    """The minimal DFA over symbols 0 .. alphabet - 1; None where a limit is passed.

    `max_work` bounds the sum of the sizes of all state sets met. An empty language has one state.
    """
    count, n_classes, edge_start, edge_class, edge_target, final, class_of, first_of = _determinize(
        automaton.edge_start,
        automaton.low,
        automaton.high,
        automaton.target,
        automaton.final,
        alphabet,
        max_states,
        max_work,
    )
    if count < 0:
        return None
    n_edges = edge_start[count]
    return Dfa(
        edge_start[: count + 1].copy(),
        edge_class[:n_edges].copy(),
        edge_target[:n_edges].copy(),
        final[:count].copy(),
        class_of,
        first_of[:n_classes].copy(),
    )


def positions_of_dfa(dfa: Dfa, *, complement: bool = False) -> PositionAutomaton:
    """The DFA as a position automaton; with `complement`, that of all other strings over its alphabet.

    Nothing leads to the start of a position automaton, so that one of a DFA to which something does is there twice.
    """
    delta, final = dfa.delta, dfa.final
    n = dfa.n_states
    if complement:
        sink = np.full((1, delta.shape[1]), n, np.int32)
        delta = np.concatenate([np.where(delta < 0, n, delta).astype(np.int32), sink])
        final = np.concatenate([1 - final, np.ones(1, np.uint8)]).astype(np.uint8)
        n += 1
    if (delta == 0).any():
        delta = np.where(delta >= 0, delta + 1, -1).astype(np.int32)
        delta = np.concatenate([delta[:1], delta])
        final = np.concatenate([final[:1], final])
        n += 1
    begins = np.ones(delta.shape, np.bool_)
    begins[:, 1:] = delta[:, 1:] != delta[:, :-1]
    source, klass = np.nonzero(begins)
    target = delta[source, klass]
    low = dfa.first_of[klass]
    # A run ends where the next one of the same state begins, or with the alphabet.
    high = np.append(low[1:], np.int32(0)) - 1
    high = np.where(high < low, len(dfa.class_of) - 1, high).astype(np.int32)
    used = target >= 0
    edge_start = np.zeros(n + 1, np.int32)
    np.cumsum(np.bincount(source[used], minlength=n), out=edge_start[1:])
    low, high, target = (np.ascontiguousarray(column[used], np.int32) for column in (low, high, target))
    return trimmed(edge_start, low, high, target, final)


@helper
def _mixed(value: np.uint64) -> np.uint64:
    """A position as a well-spread number (the finaliser of splitmix64)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.uint64 = value ^ (value >> np.uint64(31))
    return mixed


@helper
def _in_order(touched: Int32Array, n: int, place: npt.NDArray[np.int64], n_classes: int) -> None:
    """Sort the first `n` of `touched`, which are the classes with a `place`; mostly they are nearly in order."""
    if 8 * n > n_classes:
        k = 0
        for c in range(n_classes):
            if place[c] > 0:
                touched[k] = c
                k += 1
        return
    for i in range(1, n):
        c = touched[i]
        k = i
        while k > 0 and touched[k - 1] > c:
            touched[k] = touched[k - 1]
            k -= 1
        touched[k] = c


@helper
def _targets(
    p: int,
    edge_start: Int32Array,
    low: Int32Array,
    high: Int32Array,
    target: Int32Array,
    touched: Int32Array,
    place: npt.NDArray[np.int64],
) -> int:
    """Set `place` to 1 + the target of a position, by class, and `touched` to these classes; how many they are.

    -1 where a class leads to two: `place` is all 0 then, as it is before.
    """
    n = 0
    for e in range(edge_start[p], edge_start[p + 1]):
        for c in range(low[e], high[e] + 1):
            if place[c] == 0:
                place[c] = 1 + target[e]
                touched[n] = c
                n += 1
            elif place[c] != 1 + target[e]:
                for k in range(n):
                    place[touched[k]] = 0
                return -1
    return n


@allocating_helper
def _subsets(
    edge_start: Int32Array,
    low: Int32Array,
    high: Int32Array,
    target: Int32Array,
    final: Uint8Array,
    n_classes: int,
    max_states: int,
    max_work: int,
) -> tuple[int, Int32Array, Int32Array, Int32Array, Uint8Array]:
    """Subset construction; (states, edge_start, edge_class, edge_target, final flags), with room to spare.

    Edges are as in `Dfa`. States is -1 where there are more than `max_states`, `_NO_WORK_LEFT` where `max_work` is
    passed. The hash of a set does not depend on the order of its members, and neither does their comparison.
    """
    n = len(final)
    # Room for the most states allowed is far too much for most.
    room = min(max_states, n + 64)
    mix = np.empty(n, np.uint64)
    for p in range(n):
        mix[p] = _mixed(np.uint64(p) + np.uint64(0x9E3779B97F4A7C15))
    out_start = np.zeros(room + 1, np.int32)
    out_class = np.empty(256, np.int32)
    out_target = np.empty(256, np.int32)
    n_out = 0
    set_start = np.empty(room + 1, np.int64)
    hashes = np.empty(room, np.uint64)
    out_final = np.empty(room, np.uint8)
    members = np.empty(1024, np.int32)
    slots = 256
    while slots < 2 * room:
        slots *= 2
    table = np.empty(slots, np.int32)
    for k in range(slots):
        table[k] = -1
    set_start[0] = 0
    set_start[1] = 1
    members[0] = 0
    out_final[0] = final[0]
    hashes[0] = mix[0]
    table[np.int64(mix[0] & np.uint64(slots - 1))] = 0
    count = 1
    work = 0
    bucket = np.empty(max(1024, n_classes), np.int32)
    bucket_start = np.zeros(n_classes + 1, np.int64)
    place = np.zeros(n_classes + 1, np.int64)  # all 0 between two states
    touched = np.empty(n_classes + 1, np.int32)
    stamp = np.zeros(n, np.int64)
    now = 0
    alone = np.full(n, -1, np.int32)  # the state of the set of one position
    alone[0] = 0
    i = 0
    while i < count:
        n_touched = -1
        if set_start[i + 1] - set_start[i] == 1:
            # Most positions lead from each class to one.
            n_touched = _targets(members[set_start[i]], edge_start, low, high, target, touched, place)
        if n_touched >= 0:
            _in_order(touched, n_touched, place, n_classes)
            total = np.int64(n_touched)
            for k in range(n_touched):
                bucket_start[k] = k
                bucket[k] = place[touched[k]] - 1
        else:
            n_touched = 0
            for k in range(set_start[i], set_start[i + 1]):
                p = members[k]
                for e in range(edge_start[p], edge_start[p + 1]):
                    for c in range(low[e], high[e] + 1):
                        if place[c] == 0:
                            touched[n_touched] = c
                            n_touched += 1
                        place[c] += 1
            _in_order(touched, n_touched, place, n_classes)
            total = np.int64(0)
            for k in range(n_touched):
                c = touched[k]
                bucket_start[k] = total
                total += place[c]
                place[c] = bucket_start[k]
            if total > len(bucket):
                bucket = np.empty(2 * total, np.int32)
            for k in range(set_start[i], set_start[i + 1]):
                p = members[k]
                for e in range(edge_start[p], edge_start[p + 1]):
                    for c in range(low[e], high[e] + 1):
                        bucket[place[c]] = target[e]
                        place[c] += 1
        bucket_start[n_touched] = total
        work += total
        if work > max_work:
            return _NO_WORK_LEFT, out_start, out_class, out_target, out_final
        needed = min(count + n_touched, max_states)
        if needed > room:
            room = min(max(2 * room, needed), max_states)
            out_start, set_start = grown(out_start, room + 1), grown(set_start, room + 1)
            out_final, hashes = grown(out_final, room), grown(hashes, room)
            while slots < 2 * room:
                slots *= 2
            if slots > len(table):
                table = np.full(slots, -1, np.int32)
                for s in range(count):
                    slot = np.int64(hashes[s] & np.uint64(slots - 1))
                    while table[slot] >= 0:
                        slot = (slot + 1) & (slots - 1)
                    table[slot] = s
        if n_out + n_touched > len(out_class):
            out_class = grown(out_class, 2 * (n_out + n_touched))
            out_target = grown(out_target, 2 * (n_out + n_touched))
        for turn in range(n_touched):
            c = touched[turn]
            place[c] = 0
            first = bucket_start[turn]
            if bucket_start[turn + 1] == first + 1 and alone[bucket[first]] >= 0:
                out_class[n_out + turn] = c
                out_target[n_out + turn] = alone[bucket[first]]
                continue
            now += 1
            size = 0
            value = np.uint64(0)
            for k in range(first, bucket_start[turn + 1]):
                t = bucket[k]
                if stamp[t] != now:
                    stamp[t] = now
                    bucket[first + size] = t
                    size += 1
                    value += mix[t]
            slot = np.int64(value & np.uint64(slots - 1))
            found = np.int64(-1)
            while table[slot] >= 0 and found < 0:
                s = table[slot]
                if hashes[s] == value and set_start[s + 1] - set_start[s] == size:
                    k = set_start[s]
                    while k < set_start[s + 1] and stamp[members[k]] == now:
                        k += 1
                    if k == set_start[s + 1]:
                        found = np.int64(s)
                slot = (slot + 1) & (slots - 1)
            if found < 0:
                if count >= max_states:
                    return -1, out_start, out_class, out_target, out_final
                while table[slot] >= 0:
                    slot = (slot + 1) & (slots - 1)
                found = count
                count += 1
                table[slot] = found
                if size == 1:
                    alone[bucket[first]] = found
                hashes[found] = value
                end = set_start[found]
                set_start[found + 1] = end + size
                if end + size > len(members):
                    members = grown(members, 2 * (end + size))
                any_final = np.uint8(0)
                for k in range(size):
                    members[end + k] = bucket[first + k]
                    any_final |= final[bucket[first + k]]
                out_final[found] = any_final
            out_class[n_out + turn] = c
            out_target[n_out + turn] = found
        n_out += n_touched
        i += 1
        out_start[i] = n_out
    return count, out_start, out_class, out_target, out_final


@allocating_helper
def determinized(
    edge_start: Int32Array,
    low: Int32Array,
    high: Int32Array,
    target: Int32Array,
    final: Uint8Array,
    alphabet: int,
    max_states: int,
    max_work: int,
) -> tuple[int, int, Int32Array, Int32Array, Int32Array, Uint8Array, Int32Array, Int32Array]:
    """(states, classes, and the fields of `Dfa`), the arrays but `class_of` with room to spare.

    States is negative where a limit is passed.
    """
    cuts = np.zeros(alphabet + 1, np.uint8)
    for e in range(len(low)):
        cuts[low[e]] = 1
        cuts[high[e] + 1] = 1
    cuts[0] = 0
    if alphabet > 256:
        cuts[256] = 1
    class_of = np.empty(alphabet, np.int32)
    first_of = np.zeros(alphabet, np.int32)
    n_classes = 1
    for a in range(alphabet):
        if cuts[a]:
            first_of[n_classes] = a
            n_classes += 1
        class_of[a] = n_classes - 1
    low_class = np.empty(len(low), np.int32)
    high_class = np.empty(len(low), np.int32)
    for e in range(len(low)):
        low_class[e] = class_of[low[e]]
        high_class[e] = class_of[high[e]]
    count, out_start, out_class, out_target, out_final = _subsets(
        edge_start, low_class, high_class, target, final, n_classes, max_states, max_work
    )
    if count >= 0:
        count, out_start, out_class, out_target, out_final = minimized(
            out_start[: count + 1], out_class, out_target, out_final[:count], n_classes
        )
    return count, n_classes, out_start, out_class, out_target, out_final, class_of, first_of


@kernel("(int32[::1], int32[::1], int32[::1], int32[::1], uint8[::1], int64, int64, int64)", allocates=True)
def _determinize(
    edge_start: Int32Array,
    low: Int32Array,
    high: Int32Array,
    target: Int32Array,
    final: Uint8Array,
    alphabet: int,
    max_states: int,
    max_work: int,
) -> tuple[int, int, Int32Array, Int32Array, Int32Array, Uint8Array, Int32Array, Int32Array]:
    return determinized(edge_start, low, high, target, final, alphabet, max_states, max_work)
