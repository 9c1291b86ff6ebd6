"""The sampling of `masks.sampling` in plain torch operations: for devices without Triton, and to check kernels against.

Rows are taken a few at a time, every token is looked at, and truncation sorts. It waits for the device (a list's length
is looked up on the host), so it cannot be captured in a graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..keys_numba import KEY_LOWEST
from ..layout import PENDING
from ..noise import WEIGHT_BITS
from ..tables import INDEX_BITS, KIND_DENSE, KIND_LIST, KIND_SHIFT, KIND_SINGLE
from .noise_torch import gumbel, log64, random_words, weight
from .tables import DeviceCandidates, DeviceEnds, DeviceParameters, DeviceResult, DeviceTables

#: Rows that are worked on together: about 100 bytes for each of their tokens.
ROWS_AT_ONCE = 8
_LOWEST = int(KEY_LOWEST)
#: The order of a token that is not legal; orders are those of `rows_triton`.
_NONE = _LOWEST << 32
_LOW = 0xFFFFFFFF
_FLOAT_MAX = torch.finfo(torch.float32).max


def keys(values: torch.Tensor) -> torch.Tensor:
    """int32 in the order of float32 values: NaN as -inf, -0 as +0, +inf as the largest finite value."""
    bits = values.contiguous().view(torch.int32)
    key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    key = torch.where(key > 0x7F800000, _LOWEST, key.clamp(max=0x7F7FFFFF))
    return torch.where(key == -1, 0, key)


def values_of(key: torch.Tensor) -> torch.Tensor:
    """float32 of keys."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).view(torch.float32)


def orders(key: torch.Tensor, legal: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
    """int64, larger is earlier in the order (key descending, id ascending); `_NONE` where not legal."""
    order = (key.to(torch.int64) << 32) | (_LOW - token)
    return torch.where(legal & (key > _LOWEST), order, _NONE)


def tokens_of(order: torch.Tensor) -> torch.Tensor:
    return _LOW - (order & _LOW)


def bits_to_bool(words: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """bool[rows, vocabulary] of int32[rows, words]."""
    bits = (words[:, :, None] >> torch.arange(32, dtype=torch.int32, device=words.device)) & 1
    return bits.reshape(words.shape[0], -1)[:, :vocabulary] != 0


def set_tokens(legal: torch.Tensor, tokens: torch.Tensor, chosen: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """`legal` with `value` [rows] at the `tokens` [rows, n] that are `chosen` and in the vocabulary."""
    vocabulary = legal.shape[1]
    inside = chosen & (tokens >= 0) & (tokens < vocabulary)
    marked = torch.zeros(legal.shape[0], vocabulary + 1, dtype=torch.bool, device=legal.device)
    marked.scatter_(1, torch.where(inside, tokens, vocabulary).to(torch.int64), True)
    return torch.where(marked[:, :vocabulary], value[:, None], legal)


def set_ends(legal: torch.Tensor, ends: DeviceEnds, allowed: torch.Tensor) -> torch.Tensor:
    """`legal` with each row's end tokens as the bits of `allowed` (int32[rows]) say."""
    entry = torch.arange(ends.tokens.shape[1], device=legal.device)
    own, bits = entry < ends.count[:, None], (allowed[:, None] >> entry.to(torch.int32)) & 1 != 0
    legal = set_tokens(legal, ends.tokens, own & ~bits, torch.zeros_like(own[:, 0]))
    return set_tokens(legal, ends.tokens, own & bits, torch.ones_like(own[:, 0]))


def legal_tokens(
    mask_ids: torch.Tensor, pool: DeviceTables, allowed: torch.Tensor, ends: DeviceEnds, vocabulary: int
) -> torch.Tensor:
    """bool[rows, vocabulary] of rows: mask ids and end tokens."""
    rows, device = mask_ids.shape[0], mask_ids.device
    kind, index = mask_ids >> KIND_SHIFT, (mask_ids & INDEX_BITS).to(torch.int64)
    legal = (mask_ids < 0)[:, None].expand(rows, vocabulary)
    if pool.dense.shape[0]:
        dense = (kind == KIND_DENSE) & (mask_ids >= 0) & (index < pool.dense.shape[0])
        words = pool.dense[torch.where(dense, index, 0)]
        legal = legal | (bits_to_bool(words, vocabulary) & dense[:, None])
    if pool.list_offset.shape[0]:
        listed = (kind == KIND_LIST) & (index < pool.list_offset.shape[0])
        which = torch.where(listed, index, 0)
        length = torch.where(listed, pool.list_length[which], 0)
        entry = torch.arange(int(length.max()), device=device)
        chosen = entry < length[:, None]
        place = torch.where(chosen, pool.list_offset[which][:, None] + entry, 0)
        if entry.shape[0]:
            legal = set_tokens(legal, pool.list_tokens[place], chosen, torch.ones_like(listed))
    single = kind == KIND_SINGLE
    legal = set_tokens(legal, index[:, None], single[:, None], torch.ones_like(single))
    return set_ends(legal, ends, allowed)


@dataclass
class _Rows:
    """A few rows: `order` int64[rows, V], `x` float32[rows, V] logits over the temperature; of each row the largest."""

    order: torch.Tensor
    x: torch.Tensor
    best: torch.Tensor
    maximum: torch.Tensor
    token: torch.Tensor
    greedy: torch.Tensor


def _rows_of(logits: torch.Tensor, legal: torch.Tensor, inverse_temperature: torch.Tensor) -> _Rows:
    greedy = inverse_temperature == 0
    inverse = torch.where(greedy, 1.0, inverse_temperature)
    token = torch.arange(legal.shape[1], device=legal.device)
    order = orders(keys(logits[:, : legal.shape[1]].to(torch.float32)), legal, token)
    best = order.amax(1)
    x = scaled(order, inverse[:, None])
    return _Rows(order, x, best, scaled(best, inverse), token, greedy)


def scaled(order: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
    """The logits of orders over the temperature, finite."""
    return (values_of((order >> 32).to(torch.int32)) * inverse).clamp(-_FLOAT_MAX, _FLOAT_MAX)


def _scores(rows: _Rows, seed: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """Orders of the scores of legal tokens."""
    score = rows.x + gumbel(random_words(rows.token, seed[:, None], position[:, None]))
    return orders(keys(score), rows.order > _NONE, rows.token)


def _survivors(rows: _Rows, mass: torch.Tensor, p: DeviceParameters, at: slice) -> torch.Tensor:
    """bool[rows, V]: what top-k, top-p and min-p leave. `mass` int64[rows, V]: weights, 0 where not legal."""
    top_k, top_p, min_p = p.top_k[at, None], p.top_p[at, None], p.min_p[at, None]
    ordered, place = rows.order.sort(dim=1, descending=True)
    weights = mass.gather(1, place)
    kept = (ordered > _NONE) & ((top_k <= 0) | (rows.token < top_k))
    total = torch.where(kept, weights, 0).sum(1, keepdim=True)
    limit = (total.to(torch.float64) * top_p.to(torch.float64)).ceil().to(torch.int64)
    limit = torch.minimum(limit, total).clamp(min=1)
    kept &= (top_p >= 1) | ((weights.cumsum(1) - weights) < limit)
    least = (min_p.to(torch.float64).clamp(max=1.0) * 2.0**WEIGHT_BITS).ceil().to(torch.int64)
    kept &= (min_p <= 0) | (weights >= least)
    return torch.zeros_like(kept).scatter_(1, place, kept)


class TorchSampler:
    """The calls of `DeviceSampler`. `most`: candidates of a row."""

    def __init__(self, vocabulary: int, most: int) -> None:
        self.vocabulary = vocabulary
        self.most = most

    def sample(
        self,
        logits: torch.Tensor,
        rows: torch.Tensor,
        mask_ids: torch.Tensor,
        pool: DeviceTables,
        end_allowed: torch.Tensor,
        ends: DeviceEnds,
        parameters: DeviceParameters,
        out: DeviceResult,
    ) -> None:
        p = parameters
        for first in range(0, mask_ids.shape[0], ROWS_AT_ONCE):
            at = slice(first, first + ROWS_AT_ONCE)
            own_ends = DeviceEnds(ends.tokens[at][: mask_ids[at].shape[0]], ends.count[at][: mask_ids[at].shape[0]])
            legal = legal_tokens(mask_ids[at], pool, end_allowed[at], own_ends, self.vocabulary)
            some = _rows_of(logits[rows[at]], legal, p.inverse_temperature[at])
            mass = torch.where(some.order > _NONE, weight(some.x - some.maximum[:, None]), 0)
            score = _scores(some, p.seed[at], p.position[at])
            if p.truncates:
                score = torch.where(_survivors(some, mass, p, at), score, _NONE)
            token = tokens_of(torch.where(some.greedy, some.best, score.amax(1)))
            token = torch.where(some.best > _NONE, token, -1)
            out.tokens[at] = token.to(torch.int32)
            if p.logprobs:
                x = some.x.gather(1, token.clamp(min=0)[:, None])[:, 0]
                share = (mass.sum(1).to(torch.float64) / 2.0**WEIGHT_BITS).clamp(min=1.0)
                logprob = (x.to(torch.float64) - some.maximum.to(torch.float64) - log64(share)).to(torch.float32)
                wanted = (p.want_logprob[at] != 0) & (some.best > _NONE)
                out.logprobs[at] = torch.where(wanted, logprob, float("nan"))

    def look_ahead(
        self,
        logits: torch.Tensor,
        rows: torch.Tensor,
        status: torch.Tensor,
        possible: torch.Tensor | None,
        ends: DeviceEnds,
        parameters: DeviceParameters,
        sampled: torch.Tensor,
        out: DeviceCandidates,
    ) -> None:
        p = parameters
        everything = torch.ones(1, self.vocabulary, dtype=torch.bool, device=logits.device)
        base = everything if possible is None else bits_to_bool(possible[None, :], self.vocabulary)
        waits = status == PENDING
        sampled[: status.shape[0]][waits] = -1
        for first in range(0, status.shape[0], ROWS_AT_ONCE):
            at = slice(first, first + ROWS_AT_ONCE)
            count = status[at].shape[0]
            into = slice(first, first + count)
            own_ends = DeviceEnds(ends.tokens[into], ends.count[into])
            allowed = torch.full((count,), -1, dtype=torch.int32, device=logits.device)
            legal = set_ends(base.expand(count, self.vocabulary), own_ends, allowed)
            some = _rows_of(logits[rows[at]], legal, p.inverse_temperature[at])
            score = torch.where(some.greedy[:, None], some.order, _scores(some, p.seed[at], p.position[at]))
            most = min(self.most, self.vocabulary)
            best = score.topk(most, dim=1).values
            token = tokens_of(best).clamp(max=self.vocabulary - 1)
            mass = torch.where(some.order > _NONE, weight(some.x - some.maximum[:, None]), 0)
            found = (best > _NONE).sum(1).to(torch.int32)
            found = torch.where(p.want_logprob[at] != 0, 0, found)
            out.count[into] = torch.where(waits[at], found, -1)
            out.tokens[into, :most] = token.to(torch.int32)
            out.x[into, :most] = some.x.gather(1, token)
            out.weight[into, :most] = mass.gather(1, token)
            own = some.order.gather(1, token)
            for i in range(most):
                above = some.order > own[:, i : i + 1]
                out.rank[into, i] = above.sum(1).to(torch.int32)
                out.above[into, i] = torch.where(above, mass, 0).sum(1)
            out.possible[into] = legal.sum(1).to(torch.int32)
            out.total[into] = mass.sum(1)
            out.largest[into] = some.maximum

    def apply_masks(
        self,
        logits: torch.Tensor,
        rows: torch.Tensor,
        mask_ids: torch.Tensor,
        pool: DeviceTables,
        end_allowed: torch.Tensor,
        ends: DeviceEnds,
    ) -> None:
        for first in range(0, mask_ids.shape[0], ROWS_AT_ONCE):
            at = slice(first, first + ROWS_AT_ONCE)
            count = mask_ids[at].shape[0]
            own_ends = DeviceEnds(ends.tokens[at][:count], ends.count[at][:count])
            legal = legal_tokens(mask_ids[at], pool, end_allowed[at], own_ends, self.vocabulary)
            legal = torch.nn.functional.pad(legal, (0, logits.shape[1] - self.vocabulary))
            logits[rows[at]] = logits[rows[at]].masked_fill(~legal, float("-inf"))
