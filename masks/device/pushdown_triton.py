"""Advancing rows of recursive grammars: one lane a row, its token's bytes through the table of actions.

What a token pushes lies apart from the stack until the token is known to be legal and its mask is found: so a row that
refuses it or escapes keeps what it had.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

from . import grammars as _g
from . import pushdown as _a
from . import pushdown_contexts as _c
from . import pushdowns as _p
from .advance_triton import EMPTY, LANES, OPTIONS, end_bits_of, ends_of

if TYPE_CHECKING:
    from .pushdowns import DevicePushdowns

FINISHED_STATE = tl.constexpr(_g.FINISHED_STATE)
REFUSED, ACCEPTED, ESCAPED = tl.constexpr(_g.REFUSED), tl.constexpr(_g.ACCEPTED), tl.constexpr(_g.ESCAPED)
NO_GRAMMAR = tl.constexpr(_p.NO_GRAMMAR)
DEAD, POP, ESCAPE = tl.constexpr(_a.DEAD), tl.constexpr(_a.POP), tl.constexpr(_a.ESCAPE)
DEEPER, UNKNOWN = tl.constexpr(_c.DEEPER), tl.constexpr(_c.UNKNOWN)
P_COLUMN = tl.constexpr(_p.P_COLUMN)
P_ACTION = tl.constexpr(_p.P_ACTION)
P_PUSH = tl.constexpr(_p.P_PUSH)
P_PUSHED = tl.constexpr(_p.P_PUSHED)
P_RETURNS = tl.constexpr(_p.P_RETURNS)
P_ROOT = tl.constexpr(_p.P_ROOT)
P_MASK = tl.constexpr(_p.P_MASK)
P_NAMED = tl.constexpr(_p.P_NAMED)
P_SLOT = tl.constexpr(_p.P_SLOT)
P_TOKEN = tl.constexpr(_p.P_TOKEN)
P_COLUMNS = tl.constexpr(_p.P_COLUMNS)
P_NUMBERS = tl.constexpr(_p.P_NUMBERS)
P_TOKENS = tl.constexpr(_p.P_TOKENS)
P_SLOTS = tl.constexpr(_p.P_SLOTS)
P_FIELDS = tl.constexpr(_p.P_FIELDS)
HASH_CONTEXT, HASH_NUMBER = tl.constexpr(_p.HASH_CONTEXT), tl.constexpr(_p.HASH_NUMBER)
HASH_SHIFT = tl.constexpr(_p.HASH_SHIFT)


@triton.jit
def section(image, entry, FIELD: tl.constexpr, active):
    """Where a section of each lane's grammar begins."""
    return image + tl.load(entry + FIELD, mask=active, other=0)


@triton.jit
def number_at(level, low, fresh, stack, active):
    """The number at a level of each lane's stack: from `low` on those of this token."""
    own = level >= low
    new = tl.load(fresh + level - low, mask=active & own, other=0)
    return tl.where(own, new, tl.load(stack + level, mask=active & (own == 0), other=0))


@triton.jit
def find_mask(image, entry, state, depth, low, fresh, stack, rows):
    """The mask id of each lane in `rows`, or UNKNOWN; and its context."""
    numbers = tl.load(entry + P_NUMBERS, mask=rows, other=0).to(tl.int32)
    slots = tl.load(entry + P_SLOTS, mask=rows, other=0)
    masks = section(image, entry, P_MASK, rows)
    table = section(image, entry, P_SLOT, rows)
    context = tl.load(section(image, entry, P_ROOT, rows) + state, mask=rows, other=0)
    mask = tl.load(masks + context, mask=rows, other=UNKNOWN)
    level = depth
    deeper = rows & (mask == DEEPER)
    while tl.max(deeper.to(tl.int32), 0) > 0:
        inner = deeper & (level > 0)
        level = tl.where(inner, level - 1, level)
        under = tl.where(inner, number_at(level, low, fresh, stack, inner), numbers)
        mixed = context.to(tl.int64) * HASH_CONTEXT + under.to(tl.int64) * HASH_NUMBER
        slot = (mixed ^ (mixed >> HASH_SHIFT)) & slots
        found = tl.full(context.shape, -1, tl.int32)
        search = deeper
        while tl.max(search.to(tl.int32), 0) > 0:
            owner = tl.load(table + 3 * slot, mask=search, other=-1)
            hit = search & (owner == context) & (tl.load(table + 3 * slot + 1, mask=search, other=-1) == under)
            found = tl.where(hit, tl.load(table + 3 * slot + 2, mask=hit, other=-1), found)
            search = search & (hit == 0) & (owner >= 0)
            slot = (slot + 1) & slots
        context = tl.where(deeper, found, context)
        own = tl.load(masks + found, mask=deeper & (found >= 0), other=UNKNOWN)
        mask = tl.where(deeper, own, mask)
        deeper = deeper & (mask == DEEPER)
    return mask, context


@triton.jit
def is_complete(image, entry, state, depth, low, fresh, stack, rows):
    """May all levels of each lane in `rows` return?"""
    all_returns = section(image, entry, P_RETURNS, rows)
    returns = tl.load(all_returns + state, mask=rows, other=0) != 0
    level = depth
    down = rows & returns & (level > 0)
    while tl.max(down.to(tl.int32), 0) > 0:
        level = tl.where(down, level - 1, level)
        under = number_at(level, low, fresh, stack, down)
        returns = tl.where(down, tl.load(all_returns + under, mask=down, other=0) != 0, returns)
        down = down & returns & (level > 0)
    return returns & (level == 0)


@triton.jit(do_not_specialize=["vocabulary", "rows"])
def advance_pushdown(
    image, directory, token_start, token_bytes, token_text, vocabulary, grammars, states, depths, stacks, all_fresh,
    positions, min_tokens, ends, end_counts, end_names, tokens, mask_ids, end_allowed, accepted, escaped, rows,
    ENDS: tl.constexpr, LANES: tl.constexpr, LEVELS: tl.constexpr, PUSHED: tl.constexpr, MOVE: tl.constexpr,
):  # fmt: skip
    """Move each row by its token where MOVE, then write its mask id and whether it may end."""
    row = tl.program_id(0) * LANES + tl.arange(0, LANES)
    inside = row < rows
    grammar = tl.load(grammars + row, mask=inside, other=NO_GRAMMAR)
    active = grammar != NO_GRAMMAR
    entry = directory + grammar.to(tl.int64) * P_FIELDS
    before = tl.load(states + row, mask=active, other=0)
    low = tl.load(depths + row, mask=active, other=0)
    position = tl.load(positions + row, mask=active, other=0)
    stack = stacks + row.to(tl.int64) * LEVELS
    fresh = all_fresh + row.to(tl.int64) * PUSHED
    count = tl.zeros_like(low)
    state = before
    moved = active & (before != FINISHED_STATE)
    escapes = row < 0
    ends_now = row < 0
    if MOVE:
        token = tl.load(tokens + row, mask=moved, other=-1)
        is_end, ends_now = ends_of(token, row, moved, ends, end_counts, end_allowed, ENDS)
        moved = moved & (is_end == 0) & (token >= 0) & (token < vocabulary)
        columns = tl.load(entry + P_COLUMNS, mask=moved, other=0).to(tl.int32)
        numbers = tl.load(entry + P_NUMBERS, mask=moved, other=0).to(tl.int32)
        names = tl.load(entry + P_TOKENS, mask=moved, other=0).to(tl.int32)
        column = tl.full((LANES,), -1, tl.int32)
        for i in range(tl.max(names, 0)):
            own = tl.load(section(image, entry, P_TOKEN, moved) + i, mask=moved & (i < names), other=-1)
            column = tl.where(moved & (i < names) & (own == token), columns - names + i, column)
        named = moved & (column >= 0)
        text = moved & (column < 0)
        text = text & (tl.load(token_text + token, mask=text, other=0) != 0)
        at = tl.load(token_start + token, mask=text, other=0)
        stop = tl.load(token_start + token + 1, mask=text, other=1)
        moved = named | text
        more = moved & (at < stop)
        while tl.max(more.to(tl.int32), 0) > 0:
            byte = tl.load(token_bytes + at, mask=more & text, other=0).to(tl.int32)
            of_byte = tl.load(section(image, entry, P_COLUMN, more & text) + byte, mask=more & text, other=0)
            place = state.to(tl.int64) * columns + tl.where(named, column, of_byte)
            action = tl.load(section(image, entry, P_ACTION, more) + place, mask=more, other=DEAD)
            push = more & (action >= numbers)
            record = section(image, entry, P_PUSH, push) + 3 * (action - numbers)
            size = tl.load(record + 1, mask=push, other=0)
            too_many = push & (count + size > PUSHED)
            escapes = escapes | too_many | (more & (action == ESCAPE))
            push = push & (too_many == 0)
            pushed = section(image, entry, P_PUSHED, push) + tl.load(record, mask=push, other=0)
            size = tl.where(push, size, 0)
            for i in range(tl.max(size, 0)):
                one = i < size
                tl.store(fresh + count + i, tl.load(pushed + i, mask=one, other=0), mask=one)
            pop = more & (action == POP)
            bottom = pop & (low + count == 0)
            moved = moved & (bottom == 0) & ((more & (action == DEAD)) == 0)
            pop = pop & (bottom == 0)
            under = number_at(low + count - 1, low, fresh, stack, pop)
            from_fresh = pop & (count > 0)
            low = tl.where(pop & (from_fresh == 0), low - 1, low)
            count = tl.where(from_fresh, count - 1, count + size)
            go_on = push | (more & (action >= 0) & (action < numbers))
            target = tl.where(push, tl.load(record + 2, mask=push, other=0), action)
            state = tl.where(go_on, target, tl.where(pop, under, state))
            at += go_on.to(tl.int32)
            more = more & moved & (escapes == 0) & (at < stop)
        escapes = escapes & moved
    depth = low + count
    escapes = escapes | (moved & (depth > LEVELS))
    moved = moved & (escapes == 0)
    mask, context = find_mask(image, entry, state, depth, low, fresh, stack, moved)
    complete = is_complete(image, entry, state, depth, low, fresh, stack, moved)
    escapes = escapes | (moved & (mask == UNKNOWN))
    moved = moved & (escapes == 0)
    if MOVE:
        kept = tl.where(moved, count, 0)
        for i in range(tl.max(kept, 0)):
            one = i < kept
            tl.store(stack + low + i, tl.load(fresh + i, mask=one, other=0), mask=one)
        position += (moved | ends_now).to(tl.int32)
        tl.store(depths + row, depth, mask=moved)
        tl.store(states + row, tl.where(ends_now, FINISHED_STATE, state), mask=moved | ends_now)
        tl.store(positions + row, position, mask=active)
        outcome = tl.where(escapes, ESCAPED, tl.where(moved | ends_now, ACCEPTED, REFUSED))
        tl.store(accepted + row, outcome.to(tl.uint8), mask=active)
    minimum = tl.load(min_tokens + row, mask=active, other=0)
    end = moved & complete & ((position >= minimum) | (mask == EMPTY))
    changed = moved | ends_now | escapes
    tl.store(mask_ids + row, tl.where(moved, mask, EMPTY), mask=changed)
    named = tl.load(section(image, entry, P_NAMED, moved) + context, mask=moved, other=0)
    tl.store(end_allowed + row, end_bits_of(end, named, row, moved, end_names, end_counts, ENDS), mask=changed)
    tl.store(escaped + row, tl.full((LANES,), 1, tl.uint8), mask=escapes)
    tl.store(grammars + row, tl.full((LANES,), NO_GRAMMAR, tl.int32), mask=escapes)


def launch_of(pushdowns: DevicePushdowns, tokens: torch.Tensor | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(arguments, constants) of the launch that `run` makes."""
    p, g = pushdowns, pushdowns.rows
    arguments = (
        *(p.images.image, p.images.directory, g.token_start, g.token_bytes, g.token_text, g.vocabulary.size),
        *(p.grammar, p.state, p.depth, p.stack, p.fresh, g.position, g.min_tokens),
        *(g.ends.tokens, g.ends.count, g.end_names),
        *(g.state if tokens is None else tokens, g.mask_ids, g.end_allowed, g.accepted, g.escaped, g.state.shape[0]),
    )
    sizes = {"ENDS": g.ends.tokens.shape[1], "LEVELS": p.stack.shape[1], "PUSHED": p.fresh.shape[1]}
    return arguments, {**sizes, "LANES": LANES, "MOVE": tokens is not None, **OPTIONS}


def run(pushdowns: DevicePushdowns, tokens: torch.Tensor | None) -> None:
    """Advance the rows by `tokens`; None: only look up their masks."""
    arguments, constants = launch_of(pushdowns, tokens)
    advance_pushdown[(triton.cdiv(pushdowns.grammar.shape[0], LANES),)](*arguments, **constants)
