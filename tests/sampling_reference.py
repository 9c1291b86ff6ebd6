"""The sampling semantics in plain NumPy: one row at a time, full sorts, every token looked at.

Shares only constants with the kernels. Each float32 operation is one NumPy operation, hence one rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepmask.masks import noise
from stepmask.masks.tables import ALL_ENDS, EndSets, MaskTables

F = np.float32


def philox(counter: list[Any], key: tuple[int, int]) -> list[NDArray[np.uint32]]:
    """Philox4x32-10 of four counters (arrays or numbers)."""
    c = [np.asarray(part, np.uint64) for part in counter]
    k0, k1 = key
    low = np.uint64(0xFFFFFFFF)
    high = np.uint64(32)
    for _ in range(10):
        p0 = c[0] * np.uint64(0xD2511F53)
        p1 = c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> high) ^ c[1] ^ np.uint64(k0), p1 & low, (p0 >> high) ^ c[3] ^ np.uint64(k1), p0 & low]
        k0 = (k0 + 0x9E3779B9) & 0xFFFFFFFF
        k1 = (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return [part.astype(np.uint32) for part in c]


def random_words(seed: int, position: int, tokens: NDArray[np.int64]) -> NDArray[np.uint32]:
    seed &= (1 << 64) - 1
    position &= (1 << 64) - 1
    zero = np.zeros(tokens.shape, np.uint64)
    low, high = position & 0xFFFFFFFF, position >> 32
    counter = [zero + np.uint64(low), zero + np.uint64(high), (tokens >> 2).astype(np.uint64), zero]
    four = np.stack(philox(counter, (seed & 0xFFFFFFFF, seed >> 32)))
    return four[tokens & 3, np.arange(tokens.size)]


def _polynomial(f: NDArray[np.float32], coefficients: list[np.float32]) -> NDArray[np.float32]:
    result = np.full_like(f, coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * f + coefficient
    return result


LOG = [noise.LOG_0, noise.LOG_1, noise.LOG_2, noise.LOG_3, noise.LOG_4, noise.LOG_5, noise.LOG_6, noise.LOG_7]
LOG = [*LOG, noise.LOG_8]
EXP = [noise.EXP_0, noise.EXP_1, noise.EXP_2, noise.EXP_3, noise.EXP_4, noise.EXP_5]


def log32(x: NDArray[np.float32]) -> NDArray[np.float32]:
    m, exponent = np.frexp(x)  # m in [1/2, 1)
    below = m.view(np.int32) < np.float32(np.sqrt(0.5)).view(np.int32)
    m = np.where(below, m * F(2), m)
    exponent = (exponent - below).astype(np.float32)
    f = m - F(1)
    y = (f * (f * f)) * _polynomial(f, LOG)
    y = y + exponent * noise.LN2_LOW
    y = y - F(0.5) * (f * f)
    return (f + y) + exponent * noise.LN2_HIGH


def gumbel(words: NDArray[np.uint32]) -> NDArray[np.float32]:
    scale = F(2.0**-32)
    v = (words.astype(np.float32) + F(0.5)) * scale
    f = -v
    y = (f * (f * f)) * _polynomial(f, LOG)
    y = y - F(0.5) * (f * f)
    small = f + y
    large = log32(((~words).astype(np.float32) + F(0.5)) * scale)
    return -log32(-np.where(words < (1 << 30), small, large))


def exp32(x: NDArray[np.float32]) -> NDArray[np.float32]:
    y = np.maximum(x, F(-87))
    n = np.rint(y * noise.LOG2_E)
    r = (y - n * noise.LN2_HIGH) - n * noise.LN2_LOW
    p = _polynomial(r, EXP)
    p = (p * (r * r) + r) + F(1)
    return np.ldexp(p, n.astype(np.int32))


def weights(x: NDArray[np.float32]) -> NDArray[np.int64]:
    return (exp32(x) * F(2.0**noise.WEIGHT_BITS) + F(0.5)).astype(np.int64)


def as_float32(logits: NDArray[Any]) -> NDArray[np.float32]:
    """Logits as the semantics see them: bfloat16 widened, NaN as -inf, +inf as the largest finite value."""
    if logits.dtype == np.uint16:
        logits = (logits.astype(np.uint32) << 16).view(np.float32)
    clean = np.where(np.isnan(logits), F(-np.inf), logits)
    return np.minimum(clean, np.finfo(np.float32).max).astype(np.float32)


def legal_tokens(
    mask_id: int, pool: MaskTables, end_allowed: int, ends: NDArray[np.int32], vocabulary: int
) -> NDArray[np.bool_]:
    """bool[vocabulary] of a row: mask id and end tokens, of which bit i of `end_allowed` says whether it is legal."""
    legal = np.zeros(vocabulary, np.bool_)
    kind, index = mask_id >> 28, mask_id & ((1 << 28) - 1)
    if mask_id == -1:
        legal[:] = True
    elif kind == 0:
        bits = np.unpackbits(pool.dense[index].view(np.uint8), bitorder="little")[:vocabulary]
        legal[: bits.size] = bits
    elif kind == 1:
        start = pool.list_offset[index]
        legal[pool.list_tokens[start : start + pool.list_length[index]]] = True
    elif kind == 2:
        legal[index] = True
    for i, end in enumerate(ends.tolist()):
        if end < vocabulary:
            legal[end] = end_allowed >> i & 1
    return legal


@dataclass
class Row:
    """Everything about one row's distribution. `tokens` are the survivors, in truncation order."""

    token: int
    logprob: float
    tokens: NDArray[np.int64]
    weights: NDArray[np.int64]


def sample_row(
    logits: NDArray[Any],
    legal: NDArray[np.bool_],
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    seed: int,
    position: int,
) -> Row:
    values = as_float32(logits[: legal.size])
    order = np.flatnonzero(legal & (values > -np.inf))
    order = order[np.lexsort((order, -values[order]))]
    if order.size == 0:
        return Row(-1, float("nan"), order, order)
    greedy = temperature < 2.0**-20
    inverse = F(1) if greedy else F(1) / F(temperature)
    largest = np.finfo(np.float32).max
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.clip(values[order] * inverse, -largest, largest)
        y = x - x[0]
    weight = weights(y)
    total = int(weight.sum())
    kept = np.ones(order.size, np.bool_)
    if top_k > 0:
        kept[top_k:] = False
    if top_p < 1:
        mass = int(weight[kept].sum())
        limit = max(1, min(mass, int(np.ceil(np.float64(mass) * np.float64(F(top_p))))))
        kept &= (np.cumsum(weight) - weight) < limit
    if min_p > 0:
        kept &= weight >= int(np.ceil(np.float64(F(min_p)) * 2.0**noise.WEIGHT_BITS))
    if greedy:
        winner = 0
    else:
        score = np.where(kept, x + gumbel(random_words(seed, position, order)), F(-np.inf))
        best = np.flatnonzero(score == score.max())
        winner = int(best[np.argmin(order[best])])
    logprob = F(np.float64(x[winner]) - np.float64(x[0]) - np.log(np.float64(total) / 2.0**noise.WEIGHT_BITS))
    return Row(int(order[winner]), float(logprob), order[kept], weight[kept])


@dataclass
class RowCandidates:
    """The best tokens of a waiting row: arrays of one entry each, best score first; the rest is of the whole row."""

    tokens: NDArray[np.int64]
    x: NDArray[np.float32]
    rank: NDArray[np.int64]
    weight: NDArray[np.int64]
    above: NDArray[np.int64]
    total: int
    largest: float


def candidates_of(
    logits: NDArray[Any], possible: NDArray[np.bool_], temperature: float, seed: int, position: int, most: int
) -> RowCandidates:
    """See `stepmask.masks.candidates.Candidates`; everything is there for every row that has any possible token."""
    values = as_float32(logits[: possible.size])
    order = np.flatnonzero(possible & (values > -np.inf))
    order = order[np.lexsort((order, -values[order]))]
    greedy = temperature < 2.0**-20
    inverse = F(1) if greedy else F(1) / F(temperature)
    limit = np.finfo(np.float32).max
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.clip(values[order] * inverse, -limit, limit)
        weight = weights(x - x[:1])
    score = values[order] if greedy else x + gumbel(random_words(seed, position, order))
    best = np.lexsort((order, -score))[:most]
    above = np.cumsum(weight) - weight
    return RowCandidates(
        order[best], x[best], best, weight[best], above[best], int(weight.sum()), float(x[0]) if x.size else 0.0
    )


def sample(
    logits: NDArray[Any],
    mask_ids: NDArray[np.int32],
    pool: MaskTables,
    end_allowed: NDArray[np.uint32] | NDArray[np.bool_],
    end_sets: EndSets,
    parameters: Any,
    vocabulary: int,
    rows: NDArray[np.int64],
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Tokens and log-probabilities of all rows (NaN where not asked for)."""
    bits = np.where(end_allowed, ALL_ENDS, 0) if end_allowed.dtype == np.bool_ else end_allowed
    tokens = np.zeros(mask_ids.size, np.int32)
    logprobs = np.full(mask_ids.size, np.nan, np.float32)
    for i in range(mask_ids.size):
        ends = end_sets.tokens[end_sets.start[i] : end_sets.start[i + 1]]
        legal = legal_tokens(int(mask_ids[i]), pool, int(bits[i]), ends, vocabulary)
        row = sample_row(
            logits[rows[i]],
            legal,
            float(parameters.temperature[i]),
            int(parameters.top_k[i]),
            float(parameters.top_p[i]),
            float(parameters.min_p[i]),
            int(parameters.seed[i]),
            int(parameters.position[i]),
        )
        tokens[i] = row.token
        if parameters.want_logprob[i]:
            logprobs[i] = row.logprob
    return tokens, logprobs
