"""Settling rows whose masks are not there yet: a token that their masks would certainly have given, or none.

A row's candidates (`masks.candidates`) are looked up in its grammar in the order of their scores. The first legal one
that top-k, top-p and min-p keep is the token that the whole mask would give, with the same noise. They apply to legal
tokens only, of which the row knows those it has looked up, so there are three answers: kept for certain, left out for
certain, or open. If open, further candidates are looked up, which narrows both sides; past the last one the row is
deferred. The bounds, with A the tokens known to be legal and R those known not to be:

* top-k: a token is kept if fewer than k tokens above it are not in R, left out if k above it are in A.
* top-p: kept if the weight above it, less that of R above it, is below top_p times the weight of A (with top-k: of
  those in A that are certain to be among the first k); left out if the weight of A above it is at least top_p
  times the weight of all possible tokens less that of R.
* min-p: by its weight relative to the largest legal logit, known or bounded from either side.
* A token that is certain to be the first legal one in the truncation order is kept by all three.

Weights are relative to the largest *possible* logit, the mask's are to the largest *legal* one. Where a token of A has
the former, they are the same integers and the comparisons are exact. Otherwise the ratio of two weights is
the same but for rounding: `noise.weight` is within 0.51 + 2e-7 of its value, and its argument, x less the maximum, is
rounded at 2**-24 of at most 30. So a sum S of n weights stands for a true one between S * (1 - SLACK) - 2 * n and
S * (1 + SLACK) + 2 * n, in its own unit or a larger one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._numba import helper, kernel
from .accept import accept_token
from .arena import ACCEPTED, REFUSED
from .candidates import CANDIDATES, Candidates
from .fuel import count as count_up
from .fuel import fuel_left, give_fuel, work_done
from .history import config_at
from .host_rows import copy_plan
from .layout import (
    B_ADVANCE_TOKEN,
    B_MIN_TOKENS,
    B_POSITION,
    B_SCRATCH,
    B_SETTLE_FROM,
    B_SLOT_GRAMMAR,
    B_WORK_LIMIT,
    COMPLETE,
    CONFIG_FLAGS,
    COUNT_CHECKS,
    COUNT_DEFERRED,
    COUNT_READY,
    COUNT_SETTLED,
    COUNT_VERIFIED,
    COUNT_WORK,
    DEFERRED,
    FINISHED,
    PENDING,
    READY,
    VERIFIED,
    WORK_CONFIG_WORDS,
)
from .memory import load_i32, load_i64, load_u8, store_i64, store_u8
from .noise import ONE, weight
from .outcome import Outcome, Plan
from .sampling_numba import TEMPERATURE_LOWEST, mass_limit, weight_limit
from .step import WALK_FUEL, is_end, names

#: Fuel of looking a candidate up, besides its bytes (a few reads from far apart), and of asking top-k, top-p and min-p.
CHECK_COST = 32
DECISION_COST = 16
#: Pairs of candidates that a decision compares in the time of one byte edge.
PAIRS_OF_A_DECISION = 32
#: Relative error that two sums of weights relative to different maxima may have, both together.
SLACK = 2.0**-17
#: What is known of a candidate. CLOSING: an end token that is legal only where nothing else is.
_REFUSED, _LEGAL, _CLOSING, _OPEN = range(4)
#: Whether top-k, top-p and min-p keep a token.
_OUT, _IN, _UNSURE = range(3)


@helper
def _end_state(batch, grammar, slot, config, position, token):  # type: ignore[no-untyped-def]
    """What an end token of the row is, as `step.plan_rows` has it where the mask is not empty."""
    flags = load_i64(config, CONFIG_FLAGS)
    if flags & FINISHED:
        return _REFUSED
    late = position >= load_i64(load_i64(batch, B_MIN_TOKENS), slot)
    if (flags & COMPLETE and late) or names(batch, grammar, slot, config, token):
        return _LEGAL
    return _CLOSING if flags & COMPLETE else _REFUSED


@helper
def _look_up(batch, grammar, slot, token):  # type: ignore[no-untyped-def]
    """What the slot's grammar says of one token."""
    position = load_i64(load_i64(batch, B_POSITION), slot)
    config = config_at(batch, slot, position)
    if is_end(batch, slot, token):
        return _end_state(batch, grammar, slot, config, position, token)
    target = load_i64(batch, B_SCRATCH) + 8 * WORK_CONFIG_WORDS
    answer = accept_token(batch, grammar, slot, position, config, token, target, False)
    if answer == ACCEPTED:
        return _LEGAL
    # Past a limit of the stack graph, or of the fuel, it is not known whether the mask would have it.
    return _REFUSED if answer == REFUSED else _OPEN


@helper
def _certain_rank(row: int, j: int, n: int, ranks: NDArray[Any], known: NDArray[Any]) -> Any:
    """The most legal tokens that can be above candidate j."""
    above = np.int64(ranks[row, j])
    for i in range(n):
        if ranks[row, i] < ranks[row, j] and (known[i] == _REFUSED or known[i] == _CLOSING):
            above -= 1
    return above


@helper
def _keeps_mass(
    row: int,
    j: int,
    n: int,
    ranks: NDArray[Any],
    weights: NDArray[Any],
    aboves: NDArray[Any],
    xs: NDArray[Any],
    known: NDArray[Any],
    top_k: Any,
    top_p: Any,
    possible: Any,
    total: Any,
    largest: Any,
) -> int:
    """The answer of top-p for candidate j; the first n candidates are known."""
    same: Any = False  # whether weights are those relative to the largest legal logit
    most_above = np.int64(aboves[row, j])
    tokens_above = np.int64(ranks[row, j])
    least_above = np.int64(0)
    legal_above = 0
    least: Any = np.int64(0)
    legal = 0
    most: Any = np.int64(total)
    for i in range(n):
        own = weights[row, i]
        higher = ranks[row, i] < ranks[row, j]
        if known[i] == _LEGAL:
            same = same or xs[row, i] == largest
            if higher:
                least_above += own
                legal_above += 1
            if top_k <= 0 or _certain_rank(row, i, n, ranks, known) < top_k:
                least += own
                legal += 1
        elif known[i] != _OPEN:
            most -= own
            if higher:
                most_above -= own
                tokens_above -= 1
    if same:
        if most_above < mass_limit(least, top_p):
            return _IN
        return _OUT if least_above >= mass_limit(most, top_p) else _UNSURE
    share = np.float64(top_p)
    if most_above * (1.0 + SLACK) + 2.0 * tokens_above < share * (least * (1.0 - SLACK) - 2.0 * legal):
        return _IN
    if least_above * (1.0 - SLACK) - 2.0 * legal_above >= share * (most * (1.0 + SLACK) + 2.0 * possible) + 2.0:
        return _OUT
    return _UNSURE


@helper
def _keeps_weight(
    row: int,
    j: int,
    n: int,
    ranks: NDArray[Any],
    xs: NDArray[Any],
    known: NDArray[Any],
    limit: int,
    largest: float,
) -> int:
    """The answer of min-p for candidate j; `limit` is the least weight that it keeps."""
    # No legal token is above `most`: those of the lowest ranks are known not to be.
    most = largest
    rank = 0
    found = True
    while found:
        found = False
        for i in range(n):
            if ranks[row, i] == rank:
                most = xs[row, i]
                found = known[i] == _REFUSED or known[i] == _CLOSING
        rank += 1
    best = xs[row, j]
    for i in range(n):
        if known[i] == _LEGAL:
            best = max(best, xs[row, i])
    if best == most:
        return _IN if weight(xs[row, j] - most) >= limit else _OUT
    if weight(xs[row, j] - most) * (1.0 - SLACK) - 2.0 >= limit:
        return _IN
    return _OUT if weight(xs[row, j] - best) * (1.0 + SLACK) + 2.0 < limit else _UNSURE


@kernel(
    "int64(int64, int64, int64, int64, int32[::1], int32[:, ::1], float32[:, ::1], int32[:, ::1], int64[:, ::1], "
    "int64[:, ::1], int32[::1], int64[::1], float32[::1], float32[::1], int32[::1], float32[::1], float32[::1], "
    "uint8[:, ::1], int32[::1], int64, int64)"
)
def settle_rows(
    batch: int,
    slots: int,
    rows: int,
    fuel: int,
    counts: NDArray[Any],
    tokens: NDArray[Any],
    xs: NDArray[Any],
    ranks: NDArray[Any],
    weights: NDArray[Any],
    aboves: NDArray[Any],
    possibles: NDArray[Any],
    totals: NDArray[Any],
    largests: NDArray[Any],
    temperatures: NDArray[Any],
    top_ks: NDArray[Any],
    top_ps: NDArray[Any],
    min_ps: NDArray[Any],
    known: NDArray[Any],
    sampled: NDArray[Any],
    status: int,
    everything: int,
) -> int:
    """Settle `rows` rows in turn; `slots` is the address of int32[rows]. Returns the fuel left, at least 0.

    Candidates are looked up while `fuel` lasts; the first one has WALK_FUEL at least. A walk ends with the fuel, so
    that no more is used beyond it than one byte's, CHECK_COST and DECISION_COST. A row that it ends in forgets what it
    knows: it looks the same up again. The next call begins with the row after that one.
    `status` (uint8[rows], `plan_rows`'s) and `sampled` get what became of the PENDING ones. `known` uint8[rows,
    most]: what was found out of each candidate. With `everything` all are looked up, and none is settled.
    """
    store = load_i64(batch, B_SLOT_GRAMMAR)
    give_fuel(batch, max(fuel, 1))
    begin, stop = work_done(batch), load_i64(batch, B_WORK_LIMIT)
    store_i64(batch, B_WORK_LIMIT, max(stop, begin + WALK_FUEL))
    middle = load_i64(batch, B_ADVANCE_TOKEN)
    first = load_i64(batch, B_SETTLE_FROM)
    ended = -1
    checks = 0
    verified = 0
    deferred = 0
    ready = 0
    for turn in range(rows):
        row = (first + turn) % rows
        slot = load_i32(slots, row)
        state = load_u8(status, row)
        if state == READY and slot >= 0:
            ready += 1
        if state != PENDING or slot < 0:
            continue
        grammar = load_i64(store, slot)
        n = np.int64(counts[row]) if grammar != 0 and load_i32(middle, slot) < 0 else np.int64(0)
        for j in range(n):
            known[row, j] = _OPEN
        greedy = not temperatures[row] >= TEMPERATURE_LOWEST
        top_k = np.int64(top_ks[row])
        top_p = top_ps[row]
        min_p = min_ps[row]
        at = 0
        looked = 0
        fresh = False
        token = np.int64(-1)
        while at < n:
            if at < looked and everything == 0:
                if known[row, at] == _REFUSED or known[row, at] == _CLOSING:
                    at += 1
                    continue
                if known[row, at] == _OPEN:
                    break
                answer = _IN
                if not greedy and (top_k > 0 or top_p < ONE or min_p > 0):
                    if fuel_left(batch) <= 0 and not fresh:
                        break
                    fresh = False
                    count_up(batch, COUNT_WORK, DECISION_COST + looked * looked // PAIRS_OF_A_DECISION)
                    highest = _certain_rank(row, at, looked, ranks, known[row])
                    if highest > 0:
                        legal_above = 0
                        for i in range(looked):
                            if known[row, i] == _LEGAL and ranks[row, i] < ranks[row, at]:
                                legal_above += 1
                        if top_k > 0 and highest >= top_k:
                            answer = _OUT if legal_above >= top_k else _UNSURE
                        if top_p < ONE and answer != _OUT:
                            kept = _keeps_mass(
                                row, at, looked, ranks, weights, aboves, xs, known[row], top_k, top_p, possibles[row],
                                totals[row], largests[row],
                            )  # fmt: skip
                            answer = kept if kept != _IN else answer
                        if min_p > 0 and answer != _OUT:
                            limit = weight_limit(min_p)
                            kept = _keeps_weight(row, at, looked, ranks, xs, known[row], limit, largests[row])
                            answer = kept if kept != _IN else answer
                if answer == _IN:
                    token = np.int64(tokens[row, at])
                    break
                if answer == _OUT:
                    at += 1
                    continue
            if looked == n:
                break
            if fuel_left(batch) <= 0:
                if ended < 0:
                    ended = row
                break
            known[row, looked] = _look_up(batch, grammar, slot, np.int64(tokens[row, looked]))
            count_up(batch, COUNT_WORK, CHECK_COST)
            store_i64(batch, B_WORK_LIMIT, stop)
            looked += 1
            checks += 1
            fresh = True
        if everything != 0:
            continue
        sampled[row] = token
        store_u8(status, row, VERIFIED if token >= 0 else DEFERRED)
        if token >= 0:
            verified += 1
        else:
            deferred += 1
    if ended >= 0:
        store_i64(batch, B_SETTLE_FROM, ended + 1)
    count_up(batch, COUNT_SETTLED, work_done(batch) - begin)
    count_up(batch, COUNT_CHECKS, checks)
    count_up(batch, COUNT_READY, ready)
    count_up(batch, COUNT_VERIFIED, verified)
    count_up(batch, COUNT_DEFERRED, deferred)
    return max(stop - work_done(batch), 0)  # type: ignore[no-any-return]


class Settler:
    """What a batch keeps from its plan for settling the rows: their slots and status, copied, and the fuel for it."""

    def __init__(self, slots: int, counters: NDArray[np.int64]) -> None:
        """`counters`: the batch's, by number (`layout.COUNT_READY`)."""
        self._counters = counters
        self.fuel = 0
        #: What is left of it after settling.
        self.left = 0
        self._rows = 0
        self._slots = np.zeros(slots, np.int32)
        self._planned = np.zeros(slots, np.uint8)
        self._status = np.zeros(slots, np.uint8)
        self._views = self._slots[:0], self._planned[:0], self._status[:0]
        #: Of the plan: rows with a grammar that have a mask, and rows that wait for one.
        self._ready = self._pending = 0
        self._slots_at, self._planned_at, self._status_at = (
            array.ctypes.data for array in (self._slots, self._planned, self._status)
        )
        self._known = np.zeros((slots, CANDIDATES), np.uint8)

    def take(self, plan: Plan, fuel: int) -> None:
        """The rows to settle next, and the fuel for that."""
        self.fuel = self.left = fuel
        counts = copy_plan(plan.slots, plan.status, self._slots_at, self._planned_at)
        self._ready, self._pending = counts >> 32, counts & 0xFFFFFFFF
        rows = len(plan.slots)
        if rows != self._rows:
            self._rows = rows
            self._views = self._slots[:rows], self._planned[:rows], self._status[:rows]

    def settle(self, batch: int, candidates: Candidates) -> Outcome:
        """`Batch.settle` of the batch at this address."""
        tokens = self._tokens_of(candidates)
        slots, planned, status = self._views
        if self._pending == 0:  # as a rule: the kernel's arguments alone take longer than this
            self._counters[COUNT_READY] += self._ready
            self.left = max(self.fuel, 0)
            return Outcome(slots, tokens, planned)
        self._run(batch, candidates, tokens, False)
        return Outcome(slots, tokens, status)

    def legal(self, batch: int, candidates: Candidates) -> NDArray[np.bool_]:
        """Which candidates of each row are known to be legal, bool[rows, most]: all looked up while the fuel lasts."""
        self._run(batch, candidates, self._tokens_of(candidates), True)
        there = np.arange(candidates.tokens.shape[1]) < candidates.count[: self._rows, None]
        legal: NDArray[np.bool_] = there & (self._known[: self._rows] == _LEGAL)
        return legal

    def _tokens_of(self, candidates: Candidates) -> NDArray[np.int32]:
        """Tokens of the candidates' rows, which must be the plan's."""
        if not isinstance(candidates, Candidates):
            raise TypeError(f"candidates come from sampling, not {type(candidates).__name__}: {candidates!r:.60}")
        tokens = candidates.sampled
        if (
            candidates.rows != self._rows
            or tokens is None
            or candidates.parameters is None
            or len(tokens) != self._rows
        ):
            raise ValueError(f"candidates of {candidates.rows} rows for a plan of {self._rows}")
        return tokens

    def _run(self, batch: int, candidates: Candidates, tokens: NDArray[np.int32], everything: bool) -> None:
        parameters = candidates.parameters
        assert parameters is not None
        if self._known.shape[1] != candidates.tokens.shape[1]:
            self._known = np.zeros((len(self._slots), candidates.tokens.shape[1]), np.uint8)
        _, planned, status = self._views
        status[:] = planned
        self.left = 0
        arguments: tuple[Any, ...] = (batch, self._slots_at, self._rows, self.fuel, *candidates.arrays())
        arguments += (parameters.temperature, parameters.top_k, parameters.top_p, parameters.min_p)
        arguments += (self._known, tokens, self._status_at, int(everything))
        self.left = settle_rows(*arguments)
