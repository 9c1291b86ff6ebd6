"""Advancing rows of recursive grammars in plain torch operations. It waits for the device at each turn of a loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ..tables import KIND_EMPTY, KIND_SHIFT
from .advance_torch import end_bits_of, ends_of
from .grammars import ACCEPTED, ESCAPED, FINISHED_STATE, REFUSED
from .pushdown import DEAD, ESCAPE, POP
from .pushdown_contexts import DEEPER, UNKNOWN
from .pushdowns import (
    HASH_CONTEXT,
    HASH_NUMBER,
    HASH_SHIFT,
    MAX_PUSHED,
    NO_GRAMMAR,
    P_ACTION,
    P_COLUMN,
    P_COLUMNS,
    P_MASK,
    P_NAMED,
    P_NUMBERS,
    P_PUSH,
    P_PUSHED,
    P_RETURNS,
    P_ROOT,
    P_SLOT,
    P_SLOTS,
    P_TOKEN,
    P_TOKENS,
)

if TYPE_CHECKING:
    from .pushdowns import DevicePushdowns

_EMPTY = KIND_EMPTY << KIND_SHIFT


def _read(array: torch.Tensor, place: torch.Tensor, chosen: torch.Tensor, other: int) -> torch.Tensor:
    """array[place] as int64 where chosen, else `other`."""
    return torch.where(chosen, array[torch.where(chosen, place, 0)].to(torch.int64), other)


@dataclass
class _Stacks:
    """Stacks while a token is read: `low` levels of what each row had, and `count` of its own on them."""

    kept: torch.Tensor
    fresh: torch.Tensor
    low: torch.Tensor
    count: torch.Tensor

    def at(self, level: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """The number at a level of each chosen row."""
        own = level >= self.low
        row = torch.arange(len(level), device=level.device)
        fresh = self.fresh[row, torch.where(chosen & own, level - self.low, 0)]
        kept = self.kept[row, torch.where(chosen & ~own, level, 0)]
        return torch.where(own, fresh, kept).to(torch.int64)


def run(pushdowns: DevicePushdowns, tokens: torch.Tensor | None) -> None:
    """Advance the rows by `tokens`; None: only look up their masks."""
    p, g = pushdowns, pushdowns.rows
    image = p.images.image
    active = p.grammar != NO_GRAMMAR
    entry = p.images.directory[p.grammar.clamp(min=0).to(torch.int64)]
    before = p.state.to(torch.int64)
    stacks = _Stacks(p.stack, p.fresh, p.depth.to(torch.int64), torch.zeros_like(before))
    state, moved = before, active & (before != FINISHED_STATE)
    escapes = ends_now = torch.zeros_like(active)
    if tokens is not None:
        token = torch.where(moved, tokens, -1).to(torch.int64)
        is_end, ends_now = ends_of(g, token, moved & (token >= 0))
        moved = moved & ~is_end & (token >= 0) & (token < g.vocabulary.size)
        state, moved, escapes = _read_token(p, stacks, state, token, moved)
    moved = moved & ~escapes
    escapes = escapes | (moved & (stacks.low + stacks.count > p.levels))
    moved = moved & ~escapes
    complete = _complete(image, entry, stacks, state, moved)
    mask, context = _mask(image, entry, stacks, state, moved)
    escapes = escapes | (moved & (mask == UNKNOWN))
    moved = moved & ~escapes
    if tokens is not None:
        for i in range(int(torch.where(moved, stacks.count, 0).max())):
            rows = torch.nonzero(moved & (i < stacks.count))[:, 0]
            p.stack[rows, stacks.low[rows] + i] = p.fresh[rows, i]
        p.depth.copy_(torch.where(moved, stacks.low + stacks.count, p.depth))
        p.state.copy_(torch.where(ends_now, FINISHED_STATE, torch.where(moved, state, before)))
        g.position.copy_(g.position + (moved | ends_now).to(torch.int32))
        outcome = torch.where(escapes, ESCAPED, torch.where(moved | ends_now, ACCEPTED, REFUSED)).to(torch.uint8)
        g.accepted.copy_(torch.where(active, outcome, g.accepted))
    end = moved & complete & ((g.position >= g.min_tokens) | (mask == _EMPTY))
    changed = moved | ends_now | escapes
    g.mask_ids.copy_(torch.where(changed, torch.where(moved, mask, _EMPTY), g.mask_ids))
    named = _read(image, entry[:, P_NAMED] + context, moved, 0)
    g.end_allowed.copy_(torch.where(changed, end_bits_of(g, end, named), g.end_allowed))
    g.escaped.copy_(torch.where(escapes, 1, g.escaped))
    p.grammar.copy_(torch.where(escapes, NO_GRAMMAR, p.grammar))


def _read_token(
    p: DevicePushdowns, stacks: _Stacks, state: torch.Tensor, token: torch.Tensor, rows: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(number, is the token legal, does the row escape) of `rows` after their tokens; their stacks are changed."""
    g, image = p.rows, p.images.image
    entry = p.images.directory[p.grammar.clamp(min=0).to(torch.int64)]
    columns, numbers, names = entry[:, P_COLUMNS], entry[:, P_NUMBERS], entry[:, P_TOKENS]
    column = torch.full_like(state, -1)
    for i in range(int(torch.where(rows, names, 0).max())):
        listed = rows & (i < names)
        own = _read(image, entry[:, P_TOKEN] + i, listed, -1)
        column = torch.where(listed & (own == token), columns - names + i, column)
    named = rows & (column >= 0)
    text = rows & ~named
    text &= _read(g.token_text, token, text, 0) != 0
    at, stop = _read(g.token_start, token, text, 0), _read(g.token_start, token + 1, text, 1)
    legal = named | text
    more = legal & (at < stop)
    escapes = torch.zeros_like(rows)
    while bool(more.any()):
        byte = _read(g.token_bytes, at, more & text, 0)
        place = torch.where(named, column, _read(image, entry[:, P_COLUMN] + byte, more & text, 0))
        action = _read(image, entry[:, P_ACTION] + state * columns + place, more, DEAD)
        push, pop = more & (action >= numbers), more & (action == POP)
        record = entry[:, P_PUSH] + 3 * (action - numbers)
        begin, size = _read(image, record, push, 0), _read(image, record + 1, push, 0)
        too_many = push & (stacks.count + size > MAX_PUSHED)
        escapes = escapes | too_many | (more & (action == ESCAPE))
        push = push & ~too_many
        for i in range(int(torch.where(push, size, 0).max())):
            one = torch.nonzero(push & (i < size))[:, 0]
            place_of = entry[one, P_PUSHED] + begin[one] + i
            p.fresh[one, stacks.count[one] + i] = image[place_of]
        bottom = pop & (stacks.low + stacks.count == 0)
        legal = legal & ~bottom & ~(more & (action == DEAD))
        pop = pop & ~bottom
        under = stacks.at(stacks.low + stacks.count - 1, pop)
        from_fresh = pop & (stacks.count > 0)
        stacks.low = stacks.low - (pop & ~from_fresh).to(torch.int64)
        stacks.count = stacks.count + torch.where(push, size, 0) - from_fresh.to(torch.int64)
        go_on = push | (more & (action >= 0) & (action < numbers))
        target = torch.where(push, _read(image, record + 2, push, 0), action)
        state = torch.where(go_on, target, torch.where(pop, under, state))
        at = at + go_on.to(torch.int64)
        more = more & legal & ~escapes & (at < stop)
    return state, legal, escapes & legal


def _complete(
    image: torch.Tensor, entry: torch.Tensor, stacks: _Stacks, state: torch.Tensor, rows: torch.Tensor
) -> torch.Tensor:
    """May all levels of `rows` return?"""
    level = stacks.low + stacks.count
    returns = _read(image, entry[:, P_RETURNS] + state, rows, 0) != 0
    down = rows & returns & (level > 0)
    while bool(down.any()):
        level = level - down.to(torch.int64)
        state = torch.where(down, stacks.at(level, down), state)
        returns = torch.where(down, _read(image, entry[:, P_RETURNS] + state, down, 0) != 0, returns)
        down = down & returns & (level > 0)
    return returns & (level == 0)


def _mask(
    image: torch.Tensor, entry: torch.Tensor, stacks: _Stacks, state: torch.Tensor, rows: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The mask id of `rows`, or UNKNOWN; and its context."""
    level = stacks.low + stacks.count
    slots = entry[:, P_SLOTS]
    context = _read(image, entry[:, P_ROOT] + state, rows, 0)
    mask = _read(image, entry[:, P_MASK] + context, rows, UNKNOWN)
    deeper = rows & (mask == DEEPER)
    while bool(deeper.any()):
        inner = deeper & (level > 0)
        level = level - inner.to(torch.int64)
        under = torch.where(inner, stacks.at(level, inner), entry[:, P_NUMBERS])
        mixed = context * HASH_CONTEXT + under * HASH_NUMBER
        slot = (mixed ^ (mixed >> HASH_SHIFT)) & slots
        found = torch.full_like(context, -1)
        search = deeper
        while bool(search.any()):
            place = entry[:, P_SLOT] + 3 * slot
            owner = _read(image, place, search, -1)
            hit = search & (owner == context) & (_read(image, place + 1, search, -1) == under)
            found = torch.where(hit, _read(image, place + 2, hit, -1), found)
            search = search & ~hit & (owner >= 0)
            slot = (slot + 1) & slots
        context = torch.where(deeper, found, context)
        known = deeper & (found >= 0)
        mask = torch.where(deeper, _read(image, entry[:, P_MASK] + found, known, UNKNOWN), mask)
        deeper = deeper & (mask == DEEPER)
    return mask, context
