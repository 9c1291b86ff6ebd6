"""The minimal DFAs of many nets in one call: a call of a kernel costs more than most of these automata."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain

import numpy as np
import numpy.typing as npt

from .._numba import allocating_helper, kernel
from .determinize import Dfa, determinized
from .limits import Limits
from .nets import Nets
from .position import EDGES_PER_POSITION, Int32Array, Uint8Array, eliminated, grown, trimmed_arrays

Int64Array = npt.NDArray[np.int64]
_TOO_MANY_EDGES, _TOO_MANY_STATES = -1, -2


#: A rule has so many times `Limits.max_dfa_work`, half a second by default, as it cannot become a lazy frame: an object
#: of 2,000 optional properties whose names begin alike takes twice as much.
_WORK_OF_RULES = 5


@dataclass(frozen=True, eq=False)
class RuleDfas:
    """DFAs of rules, one behind the other; that of rule `i` has the states from ``state_at[i]`` on.

    `edge_start` int64[states + 1], `edge_low`, `edge_high`, `edge_target` are as in `Dfa`, targets being counted within
    the rule; `class_of`, from ``class_at[i]`` on: the class of each byte and symbol; `final`: flags. `nullable` uint8:
    rules that match the empty string, which their DFAs do not (but that of the start rule). `failed`: number of a rule
    that passes a limit, or -1.
    """

    state_at: Int64Array
    class_at: Int64Array
    edge_start: Int64Array
    edge_low: Int32Array
    edge_high: Int32Array
    edge_target: Int32Array
    final: Uint8Array
    class_of: Int32Array
    nullable: Uint8Array
    failed: int
    too_many_edges: bool

    def dfa(self, number: int) -> Dfa:
        """The DFA of one rule."""
        begin, end = self.state_at[number : number + 2]
        start = self.edge_start[begin : end + 1]
        class_of = self.class_of[self.class_at[number] : self.class_at[number + 1]]
        return Dfa(
            (start - start[0]).astype(np.int32),
            self.edge_low[start[0] : start[-1]],
            self.edge_high[start[0] : start[-1]],
            self.edge_target[start[0] : start[-1]],
            self.final[begin:end],
            class_of,
            np.flatnonzero(np.diff(class_of, prepend=-1)).astype(np.int32),
        )


def rule_dfas(
    nets: Nets, callees: list[list[int]], nullable: Uint8Array, start: int, limits: Limits, absent: frozenset[int]
) -> RuleDfas:
    """The DFAs of `nets`.

    `callees`: by net, the numbers of the rules that it calls; the nets are rules 0, 1, ..., and `nullable` says of the
    rules behind them whether they match the empty string. `start`: the rule that keeps the empty string.
    """
    edges, skips, words = nets.arrays()
    call_at = np.fromiter(accumulate(map(len, callees), initial=0), np.int64, len(nets) + 1)
    result = _rule_dfas(
        edges,
        skips,
        words,
        np.frombuffer(nets.text or bytearray(1), np.uint8),
        np.frombuffer(nets.edge_at, np.int64),
        np.frombuffer(nets.skip_at, np.int64),
        np.frombuffer(nets.word_at, np.int64),
        np.frombuffer(nets.n_states, np.int64),
        call_at,
        np.array(list(chain.from_iterable(callees)), np.int32),
        nullable,
        _kept(absent),
        bool(absent),
        start,
        limits.max_dfa_states,
        _WORK_OF_RULES * limits.max_dfa_work,
        EDGES_PER_POSITION * limits.max_positions,
    )
    status, failed, state_at, class_at, edge_start, edge_low, edge_high, edge_target, final, class_of = result
    n_states = state_at[-1]
    n_edges = edge_start[n_states]
    return RuleDfas(
        state_at,
        class_at,
        edge_start[: n_states + 1],
        edge_low[:n_edges],
        edge_high[:n_edges],
        edge_target[:n_edges],
        final[:n_states],
        class_of,
        nullable,
        failed if status < 0 else -1,
        status == _TOO_MANY_EDGES,
    )


@lru_cache(maxsize=16)
def _kept(absent: frozenset[int]) -> Uint8Array:
    """Flags of the bytes but `absent`."""
    kept = np.ones(256, np.uint8)
    kept[list(absent)] = 0
    return kept


@allocating_helper
def _without_bytes(source, low, high, target, kept):  # type: ignore[no-untyped-def]
    """The edges, cut where a byte is not kept."""
    n = 0
    for pass_ in range(2):
        if pass_ == 1:
            new_source = np.empty(n, np.int32)
            new_low = np.empty(n, np.int32)
            new_high = np.empty(n, np.int32)
            new_target = np.empty(n, np.int32)
            n = 0
        for e in range(len(source)):
            begin = low[e]
            for symbol in range(low[e], high[e] + 2):
                if symbol <= high[e] and (symbol > 255 or kept[symbol]):
                    continue
                if begin < symbol:
                    if pass_ == 1:
                        new_source[n] = source[e]
                        new_low[n] = begin
                        new_high[n] = symbol - 1
                        new_target[n] = target[e]
                    n += 1
                begin = np.int32(symbol + 1)
    return new_source, new_low, new_high, new_target


@allocating_helper
def _grow_nullable(skips, skip_at, edges, edge_at, n_states, call_at, callee, nullable):  # type: ignore[no-untyped-def]
    """Set `nullable` of the nets: a least fixpoint."""
    n = len(n_states)
    most = 2
    for i in range(n):
        most = max(most, n_states[i])
    reached = np.full(most, -1, np.int64)
    turn = 0
    changed = True
    while changed:
        changed = False
        for i in range(n - 1, -1, -1):
            if nullable[i]:
                continue
            # States are mostly numbered along the paths, so that few passes are needed.
            turn += 1
            reached[0] = turn
            more = True
            while more:
                more = False
                for k in range(skip_at[i], skip_at[i + 1]):
                    if reached[skips[k, 0]] == turn and reached[skips[k, 1]] != turn:
                        reached[skips[k, 1]] = turn
                        more = True
                for k in range(edge_at[i], edge_at[i + 1]):
                    if (
                        edges[k, 1] > 255
                        and nullable[callee[call_at[i] + edges[k, 1] - 256]]
                        and reached[edges[k, 0]] == turn
                        and reached[edges[k, 3]] != turn
                    ):
                        reached[edges[k, 3]] = turn
                        more = True
            if reached[1] == turn:
                nullable[i] = 1
                changed = True


@kernel(
    "(int32[:, ::1], int32[:, ::1], int32[:, ::1], uint8[::1], int64[::1], int64[::1], int64[::1], int64[::1], "
    "int64[::1], int32[::1], uint8[::1], uint8[::1], boolean, int64, int64, int64, int64)",
    allocates=True,
)
def _rule_dfas(  # type: ignore[no-untyped-def]
    edges, skips, words, text, edge_at, skip_at, word_at, n_states, call_at, callee, nullable, kept, cut, start,
    max_states, max_work, max_edges,
):  # fmt: skip
    """(status, net at which it stopped, and the arrays of `RuleDfas`, those of edges and states with room to spare)."""
    n = len(n_states)
    _grow_nullable(skips, skip_at, edges, edge_at, n_states, call_at, callee, nullable)
    state_at = np.zeros(n + 1, np.int64)
    class_at = np.zeros(n + 1, np.int64)
    for i in range(n):
        class_at[i + 1] = class_at[i] + 256 + call_at[i + 1] - call_at[i]
    out_start = np.zeros(257, np.int64)
    out_low = np.empty(1024, np.int32)
    out_high = np.empty(1024, np.int32)
    out_target = np.empty(1024, np.int32)
    out_final = np.empty(256, np.uint8)
    out_class = np.empty(class_at[n], np.int32)
    status = 0
    i = 0
    while i < n and status == 0:
        letters = 0
        for w in range(word_at[i], word_at[i + 1]):
            letters += words[w, 2]
        own = edge_at[i + 1] - edge_at[i]
        source = np.empty(own + letters, np.int32)
        low = np.empty(own + letters, np.int32)
        high = np.empty(own + letters, np.int32)
        target = np.empty(own + letters, np.int32)
        bypassed = 0
        for k in range(own):
            e = edge_at[i] + k
            source[k] = edges[e, 0]
            low[k] = edges[e, 1]
            high[k] = edges[e, 2]
            target[k] = edges[e, 3]
            if low[k] > 255 and nullable[callee[call_at[i] + low[k] - 256]]:
                bypassed += 1
        k = own
        count = n_states[i]
        for w in range(word_at[i], word_at[i + 1]):
            at = words[w, 0]
            for j in range(words[w, 2]):
                source[k] = at
                low[k] = text[words[w, 1] + j]
                high[k] = low[k]
                if j + 1 < words[w, 2]:
                    at = np.int32(count)
                    count += 1
                else:
                    at = words[w, 3]
                target[k] = at
                k += 1
        skipped = skip_at[i + 1] - skip_at[i]
        skip_source = np.empty(skipped + bypassed, np.int32)
        skip_target = np.empty(skipped + bypassed, np.int32)
        skip_kind = np.zeros(skipped + bypassed, np.int32)
        for k in range(skipped):
            skip_source[k] = skips[skip_at[i] + k, 0]
            skip_target[k] = skips[skip_at[i] + k, 1]
        for k in range(own):
            if low[k] > 255 and nullable[callee[call_at[i] + low[k] - 256]]:
                skip_source[skipped] = source[k]
                skip_target[skipped] = target[k]
                skipped += 1
        if cut:
            source, low, high, target = _without_bytes(source, low, high, target, kept)
        n_positions, edge_start, low, high, target, final = eliminated(
            count, 0, 1, True, source, low, high, target, skip_source, skip_kind, skip_target, max_edges
        )
        if n_positions < 0:
            status = _TOO_MANY_EDGES
            break
        if i != start:
            final[0] = 0
        n_edges, edge_start, low, high, target, final = trimmed_arrays(
            edge_start[: n_positions + 1], low, high, target, final[:n_positions]
        )
        count, _, dfa_start, dfa_low, dfa_high, dfa_target, final, class_of, _ = determinized(
            edge_start, low[:n_edges], high[:n_edges], target[:n_edges], final,
            class_at[i + 1] - class_at[i], max_states + 2 * len(final), max_work,
        )  # fmt: skip
        if count < 0:
            status = _TOO_MANY_STATES
            break
        for k in range(len(class_of)):
            out_class[class_at[i] + k] = class_of[k]
        first = state_at[i]
        begin = out_start[first]
        state_at[i + 1] = first + count
        if first + count > len(out_final):
            out_final = grown(out_final, 2 * (first + count))
            out_start = grown(out_start, 2 * (first + count) + 1)
        if begin + dfa_start[count] > len(out_target):
            out_low = grown(out_low, 2 * (begin + dfa_start[count]))
            out_high = grown(out_high, 2 * (begin + dfa_start[count]))
            out_target = grown(out_target, 2 * (begin + dfa_start[count]))
        for k in range(count):
            out_final[first + k] = final[k]
            out_start[first + k + 1] = begin + dfa_start[k + 1]
        for k in range(dfa_start[count]):
            out_low[begin + k] = dfa_low[k]
            out_high[begin + k] = dfa_high[k]
            out_target[begin + k] = dfa_target[k]
        i += 1
    return status, i, state_at, class_at, out_start, out_low, out_high, out_target, out_final, out_class
