"""Settling one row in plain Python: the rules of `stepmask.masks.settle`, exact integers wherever it claims them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import sampling_reference as reference

F = np.float32
SLACK = 2.0**-17
LEGAL, REFUSED, CLOSING, OPEN = "legal", "refused", "closing", "open"


def settle_row(
    row: reference.RowCandidates,
    possible: int,
    look_up: Callable[[int], str],
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
) -> int | None:
    """The token that is certainly the row's, or None. `possible`: how many tokens are; `look_up`: what a token is."""
    known: list[str] = []
    n = len(row.tokens)
    at = 0
    while at < n:
        if at == len(known):
            known.append(look_up(int(row.tokens[at])))
        if known[at] == OPEN:
            return None
        if known[at] != LEGAL:
            at += 1
            continue
        verdict: bool | None = True
        if temperature >= 2.0**-20:
            verdict = kept(row, possible, known, at, top_k, F(top_p), F(min_p))
        if verdict:
            return int(row.tokens[at])
        if verdict is None:
            if len(known) == n:
                return None
            known.append(look_up(int(row.tokens[len(known)])))
        else:
            at += 1
    return None


def kept(
    row: reference.RowCandidates, possible: int, known: list[str], at: int, top_k: int, top_p: np.float32, min_p: F
) -> bool | None:
    """Do top-k, top-p and min-p keep candidate `at`? None: not certain."""
    if top_k <= 0 and top_p >= 1 and min_p <= 0:
        return True
    rank, weight = [int(r) for r in row.rank], [int(w) for w in row.weight]
    legal = [i for i, state in enumerate(known) if state == LEGAL]
    gone = [i for i, state in enumerate(known) if state in (REFUSED, CLOSING)]

    def highest(i: int) -> int:
        return rank[i] - sum(rank[g] < rank[i] for g in gone)

    if highest(at) == 0:
        return True
    verdicts: list[bool | None] = []
    over = [i for i in legal if rank[i] < rank[at]]
    if top_k > 0:
        verdicts.append(True if highest(at) < top_k else False if len(over) >= top_k else None)
    if top_p < 1:
        verdicts.append(keeps_mass(row, possible, legal, gone, over, highest, at, top_k, top_p, rank, weight))
    if min_p > 0:
        limit = int(np.ceil(min(np.float64(min_p), 1.0) * 2.0**40))
        removed = {rank[g]: row.x[g] for g in gone}
        first = 0
        while first in removed:
            first += 1
        there = [row.x[i] for i in range(len(known)) if rank[i] == first]
        most = there[0] if there else F(row.largest) if first == 0 else removed[first - 1]
        best = max(row.x[i] for i in legal)
        own = int(reference.weights(np.array([row.x[at] - most], F))[0])
        if best == most:
            verdicts.append(own >= limit)
        elif own * (1 - SLACK) - 2 >= limit:
            verdicts.append(True)
        else:
            own = int(reference.weights(np.array([row.x[at] - best], F))[0])
            verdicts.append(False if own * (1 + SLACK) + 2 < limit else None)
    if False in verdicts:
        return False
    return None if None in verdicts else True


def keeps_mass(
    row: reference.RowCandidates,
    possible: int,
    legal: list[int],
    gone: list[int],
    over: list[int],
    highest: Callable[[int], int],
    at: int,
    top_k: int,
    top_p: np.float32,
    rank: list[int],
    weight: list[int],
) -> bool | None:
    certain = [i for i in legal if top_k <= 0 or highest(i) < top_k]
    least, most = sum(weight[i] for i in certain), row.total - sum(weight[g] for g in gone)
    above = int(row.above[at]) - sum(weight[g] for g in gone if rank[g] < rank[at])
    surely_above = sum(weight[i] for i in over)

    def limit(mass: int) -> int:
        return max(1, min(mass, int(np.ceil(np.float64(mass) * np.float64(top_p)))))

    if any(row.x[i] == F(row.largest) for i in legal):
        return True if above < limit(least) else False if surely_above >= limit(most) else None
    share = float(top_p)
    if above * (1 + SLACK) + 2.0 * highest(at) < share * (least * (1 - SLACK) - 2.0 * len(certain)):
        return True
    if surely_above * (1 - SLACK) - 2.0 * len(over) >= share * (most * (1 + SLACK) + 2.0 * possible) + 2.0:
        return False
    return None
