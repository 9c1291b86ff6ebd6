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
#: So many edges of a position are brought in order, which spares most sets of one position the general way.
_SORTED_EDGES = 64


@dataclass(frozen=True, eq=False)
class Dfa:
    """A minimal, trimmed, canonically numbered DFA: equal languages have equal tables.

    State `s` has the edges from ``edge_start[s]`` on, in the order of their classes: from class `edge_low` to class
    `edge_high`, both inclusive, to `edge_target`. Neighbouring classes of bytes that lead to one state are one edge;
    each class of symbols has its own. `final[s]` is a flag, `class_of[a]` the class of byte or symbol `a` and
    `first_of[c]` the lowest member of class `c`: a class is an interval of the alphabet.
    """

    edge_start: Int32Array
    edge_low: Int32Array
    edge_high: Int32Array
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
        edges = self.edge_start.nbytes + self.edge_low.nbytes + self.edge_high.nbytes + self.edge_target.nbytes
        return edges + self.final.nbytes + self.class_of.nbytes + self.first_of.nbytes

    @cached_property
    def delta(self) -> Int32Array:
        """The target of each state and class, -1: none. int32[states, classes], made when it is first asked for."""
        result: Int32Array = np.full((self.n_states, len(self.first_of)), -1, np.int32)
        source = np.repeat(np.arange(self.n_states), np.diff(self.edge_start))
        width = self.edge_high - self.edge_low + 1
        ends = np.cumsum(width)
        klass = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - width - self.edge_low, width)
        result[np.repeat(source, width), klass] = np.repeat(self.edge_target, width)
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
    count, n_classes, edge_start, edge_low, edge_high, edge_target, final, class_of, first_of = _determinize(
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
        edge_low[:n_edges].copy(),
        edge_high[:n_edges].copy(),
        edge_target[:n_edges].copy(),
        final[:count].copy(),
        class_of,
        first_of[:n_classes].copy(),
    )


def positions_of_dfa(dfa: Dfa, *, complement: bool = False) -> PositionAutomaton:
    """The DFA as a position automaton; with `complement`, that of all other strings over its alphabet.

    Nothing leads to the start of a position automaton, so that one of a DFA to which something does is there twice.
    """
    n, last_class = dfa.n_states, len(dfa.first_of) - 1
    counts, final = np.diff(dfa.edge_start), dfa.final
    source = np.repeat(np.arange(n, dtype=np.int32), counts)
    low, high, target = dfa.edge_low, dfa.edge_high, dfa.edge_target
    if complement:  # what leads nowhere leads to one more state
        filled = counts > 0
        before = np.concatenate([np.full(1, -1, np.int32), high[:-1]])[: len(high)]
        before[dfa.edge_start[:-1][filled]] = -1
        last = np.full(n + 1, -1, np.int32)
        last[:-1][filled] = high[dfa.edge_start[1:][filled] - 1]
        gaps, open_ends = np.flatnonzero(low > before + 1), np.flatnonzero(last < last_class)
        source = np.concatenate([source, source[gaps], open_ends])
        low = np.concatenate([low, before[gaps] + 1, last[open_ends] + 1])
        high = np.concatenate([high, low[gaps] - 1, np.full(len(open_ends), last_class)])
        target = np.concatenate([target, np.full(len(gaps) + len(open_ends), n)])
        order = np.lexsort((low, source))
        source, low, high, target = source[order], low[order], high[order], target[order]
        final = np.append(1 - final, 1)
        n += 1
    if (target == 0).any():
        again = source == 0
        source = np.concatenate([source[again], source + 1])
        low, high, target = (np.concatenate([column[again], column]) for column in (low, high, target + 1))
        final = np.append(final[:1], final)
        n += 1
    edge_start = np.zeros(n + 1, np.int32)
    np.cumsum(np.bincount(source, minlength=n), out=edge_start[1:])
    past = np.append(dfa.first_of[1:], np.int32(len(dfa.class_of)))
    columns = (dfa.first_of[low], past[high] - 1, target)
    low, high, target = (np.ascontiguousarray(column, np.int32) for column in columns)
    final = np.ascontiguousarray(final, np.uint8)
    if complement:
        return trimmed(edge_start, low, high, target, final)
    return PositionAutomaton(edge_start, low, high, target, final)


@helper
def _mixed(value: np.uint64) -> np.uint64:
    """A position as a well-spread number (the finaliser of splitmix64)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.uint64 = value ^ (value >> np.uint64(31))
    return mixed


@helper
def _in_order(touched: Int32Array, n: int, place: npt.NDArray[np.int64], n_classes: int) -> None:
    """Sort the first `n` of `touched`, which are those below `n_classes` with a `place`; mostly they nearly are."""
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
def _are_in_order(p: int, edge_start: Int32Array, low: Int32Array, high: Int32Array) -> bool:
    """Whether the edges of a position are in the order of their classes, none of which has two."""
    for e in range(edge_start[p] + 1, edge_start[p + 1]):
        if low[e] <= high[e - 1]:
            return False
    return True


@helper
def _add_edge(
    low: int,
    high: int,
    target: int,
    n_bytes: int,
    begin: int,
    n_out: int,
    out_low: Int32Array,
    out_high: Int32Array,
    out_target: Int32Array,
) -> int:
    """Add the edges, as in `Dfa`, of the classes from `low` to `high` of a state, whose edges begin at `begin`.

    Returns the number of edges of all states.
    """
    if low < n_bytes:
        last = min(high, n_bytes - 1)
        if n_out > begin and out_target[n_out - 1] == target and out_high[n_out - 1] + 1 == low:
            out_high[n_out - 1] = last
        else:
            out_low[n_out] = low
            out_high[n_out] = last
            out_target[n_out] = target
            n_out += 1
        low = n_bytes
    for c in range(low, high + 1):
        out_low[n_out] = c
        out_high[n_out] = c
        out_target[n_out] = target
        n_out += 1
    return n_out


@allocating_helper
def _subsets(
    edge_start: Int32Array,
    low: Int32Array,
    high: Int32Array,
    target: Int32Array,
    final: Uint8Array,
    n_classes: int,
    n_bytes: int,
    max_states: int,
    max_work: int,
) -> tuple[int, Int32Array, Int32Array, Int32Array, Int32Array, Uint8Array]:
    """Subset construction; (states, edge_start, edge_low, edge_high, edge_target, final flags), with room to spare.

    Edges are as in `Dfa`; the first `n_bytes` classes are of bytes. States is -1 where there are more than
    `max_states`, `_NO_WORK_LEFT` where `max_work` is passed. The hash of a set does not depend on the order of its
    members, and neither does their comparison.
    """
    n = len(final)
    # Room for the most states allowed is far too much for most.
    room = min(max_states, n + 64)
    mix = np.empty(n, np.uint64)
    for p in range(n):
        mix[p] = _mixed(np.uint64(p) + np.uint64(0x9E3779B97F4A7C15))
    out_start = np.zeros(room + 1, np.int32)
    out_low = np.empty(256, np.int32)
    out_high = np.empty(256, np.int32)
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
    bucket_end = np.zeros(n_classes + 1, np.int64)
    place = np.zeros(n_classes + 1, np.int64)  # all 0 between two states
    touched = np.empty(n_classes + 1, np.int32)  # the first and the last of some classes that lead to one set
    until = np.empty(n_classes + 1, np.int32)
    stamp = np.zeros(n, np.int64)
    now = 0
    alone = np.full(n, -1, np.int32)  # the state of the set of one position
    alone[0] = 0
    i = 0
    while i < count:
        n_touched = 0
        total = np.int64(0)
        p = members[set_start[i]]
        if set_start[i + 1] - set_start[i] == 1 and _are_in_order(p, edge_start, low, high):
            for e in range(edge_start[p], edge_start[p + 1]):
                touched[n_touched] = low[e]
                until[n_touched] = high[e]
                bucket_start[n_touched] = n_touched
                bucket[n_touched] = target[e]
                bucket_end[n_touched] = n_touched + 1
                total += high[e] - low[e] + 1
                n_touched += 1
        else:
            # Classes between two ends of edges lead to one set.
            n_cuts = 0
            for k in range(set_start[i], set_start[i + 1]):
                p = members[k]
                for e in range(edge_start[p], edge_start[p + 1]):
                    total += high[e] - low[e] + 1
                    for c in (np.int64(low[e]), np.int64(high[e]) + 1):
                        if place[c] == 0:
                            place[c] = 1
                            touched[n_cuts] = c
                            n_cuts += 1
            _in_order(touched, n_cuts, place, n_classes + 1)
            for j in range(n_cuts):
                place[touched[j]] = j
                bucket_end[j] = 0
            for k in range(set_start[i], set_start[i + 1]):
                p = members[k]
                for e in range(edge_start[p], edge_start[p + 1]):
                    for j in range(place[low[e]], place[high[e] + 1]):
                        bucket_end[j] += 1
            size = np.int64(0)
            for j in range(n_cuts):
                bucket_start[j] = size
                size += bucket_end[j]
                bucket_end[j] = bucket_start[j]
            if size > len(bucket):
                bucket = np.empty(2 * size, np.int32)
            for k in range(set_start[i], set_start[i + 1]):
                p = members[k]
                for e in range(edge_start[p], edge_start[p + 1]):
                    for j in range(place[low[e]], place[high[e] + 1]):
                        bucket[bucket_end[j]] = target[e]
                        bucket_end[j] += 1
            for j in range(n_cuts):
                place[touched[j]] = 0
                if bucket_end[j] > bucket_start[j]:
                    touched[n_touched] = touched[j]
                    until[n_touched] = touched[j + 1] - 1
                    bucket_start[n_touched] = bucket_start[j]
                    bucket_end[n_touched] = bucket_end[j]
                    n_touched += 1
        work += total
        if work > max_work:
            return _NO_WORK_LEFT, out_start, out_low, out_high, out_target, out_final
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
        most = n_out + n_touched + n_classes - n_bytes  # symbols have edges of their own
        if most > len(out_low):
            out_low, out_high = grown(out_low, 2 * most), grown(out_high, 2 * most)
            out_target = grown(out_target, 2 * most)
        for turn in range(n_touched):
            first = bucket_start[turn]
            if bucket_end[turn] == first + 1 and alone[bucket[first]] >= 0:
                n_out = _add_edge(
                    touched[turn],
                    until[turn],
                    alone[bucket[first]],
                    n_bytes,
                    out_start[i],
                    n_out,
                    out_low,
                    out_high,
                    out_target,
                )
                continue
            now += 1
            size = 0
            value = np.uint64(0)
            for k in range(first, bucket_end[turn]):
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
                    return -1, out_start, out_low, out_high, out_target, out_final
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
            n_out = _add_edge(
                touched[turn], until[turn], found, n_bytes, out_start[i], n_out, out_low, out_high, out_target
            )
        i += 1
        out_start[i] = n_out
    return count, out_start, out_low, out_high, out_target, out_final


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
) -> tuple[int, int, Int32Array, Int32Array, Int32Array, Int32Array, Uint8Array, Int32Array, Int32Array]:
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
    sorted_target = np.empty(len(low), np.int32)
    for s in range(len(final)):
        begin = edge_start[s]
        is_short = edge_start[s + 1] - begin <= _SORTED_EDGES
        for e in range(begin, edge_start[s + 1]):
            c = class_of[low[e]]
            k = e
            while is_short and k > begin and low_class[k - 1] > c:
                low_class[k] = low_class[k - 1]
                high_class[k] = high_class[k - 1]
                sorted_target[k] = sorted_target[k - 1]
                k -= 1
            low_class[k] = c
            high_class[k] = class_of[high[e]]
            sorted_target[k] = target[e]
    n_bytes = class_of[256] if alphabet > 256 else n_classes
    count, out_start, out_low, out_high, out_target, out_final = _subsets(
        edge_start, low_class, high_class, sorted_target, final, n_classes, n_bytes, max_states, max_work
    )
    if count >= 0:
        count, out_start, out_low, out_high, out_target, out_final = minimized(
            out_start[: count + 1], out_low, out_high, out_target, out_final[:count], n_classes, n_bytes
        )
    return count, n_classes, out_start, out_low, out_high, out_target, out_final, class_of, first_of


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
) -> tuple[int, int, Int32Array, Int32Array, Int32Array, Int32Array, Uint8Array, Int32Array, Int32Array]:
    return determinized(edge_start, low, high, target, final, alphabet, max_states, max_work)
