"""Advancing rows by sampled tokens: one lane a row, the bytes of its token through the grammar's byte automaton."""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

from ...grammar.automaton import FINAL as _FINAL
from ..tables import KIND_EMPTY as _KIND_EMPTY
from ..tables import KIND_SHIFT as _KIND_SHIFT
from . import grammars as _g

if TYPE_CHECKING:
    from .grammars import DeviceGrammars

FINAL = tl.constexpr(_FINAL)
EMPTY = tl.constexpr(_KIND_EMPTY << _KIND_SHIFT)
FINISHED_STATE = tl.constexpr(_g.FINISHED_STATE)
D_BYTE_CLASS = tl.constexpr(_g.D_BYTE_CLASS)
D_FLAGS = tl.constexpr(_g.D_FLAGS)
D_SINGLE_BYTE = tl.constexpr(_g.D_SINGLE_BYTE)
D_EDGES = tl.constexpr(_g.D_EDGES)
D_DENSE = tl.constexpr(_g.D_DENSE)
D_SINGLE_TARGET = tl.constexpr(_g.D_SINGLE_TARGET)
D_TOKEN_START = tl.constexpr(_g.D_TOKEN_START)
D_TOKEN_ID = tl.constexpr(_g.D_TOKEN_ID)
D_TOKEN_TARGET = tl.constexpr(_g.D_TOKEN_TARGET)
D_MASK = tl.constexpr(_g.D_MASK)
D_NAMED = tl.constexpr(_g.D_NAMED)
D_CLASSES = tl.constexpr(_g.D_CLASSES)
D_FIELDS = tl.constexpr(_g.D_FIELDS)
#: Rows of one program.
LANES = 32
OPTIONS = {"num_warps": 1, "enable_fp_fusion": False}


@triton.jit
def next_state(entry, image, image_bytes, state, byte, active):
    """The target of a byte edge of each lane, -1 where there is none or the lane is not active."""
    edge = tl.load(image + tl.load(entry + D_EDGES, mask=active, other=0) + state, mask=active, other=-1)
    column = tl.load(
        image_bytes + tl.load(entry + D_BYTE_CLASS, mask=active, other=0) + byte, mask=edge >= 0, other=0
    ).to(tl.int32)
    row = edge.to(tl.int64) * tl.load(entry + D_CLASSES, mask=active, other=0) + column
    target = tl.load(image + tl.load(entry + D_DENSE, mask=active, other=0) + row, mask=edge >= 0, other=-1)
    one = edge <= -2
    place = (-2 - edge).to(tl.int64)
    own = tl.load(image_bytes + tl.load(entry + D_SINGLE_BYTE, mask=active, other=0) + place, mask=one, other=0)
    fits = one & (own.to(tl.int32) == byte)
    single = tl.load(image + tl.load(entry + D_SINGLE_TARGET, mask=active, other=0) + place, mask=fits, other=-1)
    return tl.where(fits, single, target)


@triton.jit
def ends_of(token, row, rows, ends, end_counts, end_allowed, ENDS: tl.constexpr):
    """Of each lane in `rows`: is its token an end token of the row, and is that one legal?"""
    is_end = row < 0
    legal = row < 0
    allowed = tl.load(end_allowed + row, mask=rows, other=0)
    count = tl.load(end_counts + row, mask=rows, other=0)
    for i in range(tl.max(count, 0)):
        own = rows & (i < count)
        same = own & (tl.load(ends + row * ENDS + i, mask=own, other=-1) == token) & (token >= 0)
        is_end = is_end | same
        legal = legal | (same & (((allowed >> i) & 1) != 0))
    return is_end, legal


@triton.jit
def end_bits_of(all_of_them, named, row, rows, end_names, end_counts, ENDS: tl.constexpr):
    """Bits of each lane's legal end tokens: all, or those whose bits of the grammar's named tokens are set."""
    bits = tl.where(all_of_them, -1, 0)
    count = tl.load(end_counts + row, mask=rows & (named != 0), other=0)
    for i in range(tl.max(count, 0)):
        name = tl.load(end_names + row * ENDS + i, mask=rows & (i < count), other=-1)
        bits = bits | tl.where(name >= 0, ((named >> tl.maximum(name, 0)) & 1) << i, 0)
    return bits


@triton.jit(do_not_specialize=["vocabulary", "rows"])
def advance(
    image, image_bytes, directory, token_start, token_bytes, token_text, vocabulary, grammars, states, positions,
    min_tokens, ends, end_counts, end_names, tokens, mask_ids, end_allowed, accepted, rows,
    ENDS: tl.constexpr, LANES: tl.constexpr, MOVE: tl.constexpr,
):  # fmt: skip
    """Move each row by its token where MOVE, then write its mask id and whether it may end."""
    row = tl.program_id(0) * LANES + tl.arange(0, LANES)
    inside = row < rows
    grammar = tl.load(grammars + row, mask=inside, other=-1)
    active = grammar >= 0
    entry = directory + grammar.to(tl.int64) * D_FIELDS
    state = tl.load(states + row, mask=active, other=0)
    position = tl.load(positions + row, mask=active, other=0)
    minimum = tl.load(min_tokens + row, mask=active, other=0)
    masks = tl.load(entry + D_MASK, mask=active, other=0)
    flags_at = tl.load(entry + D_FLAGS, mask=active, other=0)
    if MOVE:
        token = tl.load(tokens + row, mask=active, other=-1)
        open_row = active & (state != FINISHED_STATE)
        is_end, ends_now = ends_of(token, row, open_row, ends, end_counts, end_allowed, ENDS)
        target = tl.full((LANES,), -1, tl.int32)
        starts = tl.load(entry + D_TOKEN_START, mask=open_row, other=0)
        edge = tl.load(image + starts + state, mask=open_row, other=0)
        last = tl.load(image + starts + state + 1, mask=open_row, other=0)
        for i in range(tl.max(last - edge, 0)):
            named = open_row & (edge + i < last)
            place = tl.load(entry + D_TOKEN_ID, mask=named, other=0) + edge + i
            named = named & (tl.load(image + place, mask=named, other=-1) == token)
            place = tl.load(entry + D_TOKEN_TARGET, mask=named, other=0) + edge + i
            target = tl.where(named, tl.load(image + place, mask=named, other=-1), target)
        known = open_row & (is_end == 0) & (target < 0) & (token >= 0) & (token < vocabulary)
        text = known & (tl.load(token_text + token, mask=known, other=0) != 0)
        at = tl.load(token_start + token, mask=text, other=0)
        stop = tl.load(token_start + token + 1, mask=text, other=0)
        walked = state
        more = text & (at < stop)
        while tl.max(more.to(tl.int32), 0) > 0:
            byte = tl.load(token_bytes + at, mask=more, other=0).to(tl.int32)
            walked = tl.where(more, next_state(entry, image, image_bytes, walked, byte, more), walked)
            at += 1
            more = more & (at < stop) & (walked >= 0)
        target = tl.where(text, walked, target)
        # A token must end where tokens can end.
        rests = open_row & (target >= 0)
        rests = rests & (tl.load(image + masks + target, mask=rests, other=-1) != -1)
        state = tl.where(ends_now, FINISHED_STATE, tl.where(rests, target, state))
        moved = ends_now | rests
        position = position + moved.to(tl.int32)
        tl.store(states + row, state, mask=active)
        tl.store(positions + row, position, mask=active)
        tl.store(accepted + row, (moved | (grammar < 0)).to(tl.uint8), mask=inside)
    open_row = active & (state != FINISHED_STATE)
    mask = tl.load(image + masks + state, mask=open_row, other=EMPTY)
    final = (tl.load(image_bytes + flags_at + state, mask=open_row, other=0) & FINAL) != 0
    end = final & ((position >= minimum) | (mask == EMPTY))
    tl.store(mask_ids + row, mask, mask=active)
    named_at = tl.load(entry + D_NAMED, mask=open_row, other=0)
    named = tl.load(image + named_at + state, mask=open_row, other=0)
    bits = end_bits_of(end, named, row, open_row, end_names, end_counts, ENDS)
    tl.store(end_allowed + row, bits, mask=active)


def launch_of(grammars: DeviceGrammars, tokens: torch.Tensor | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(arguments, constants) of the launch that `run` makes."""
    g = grammars
    arguments = (
        *(
            g.images.image,
            g.images.image.view(torch.uint8),
            g.images.directory,
            g.token_start,
            g.token_bytes,
            g.token_text,
        ),
        *(g.vocabulary.size, g.grammar, g.state, g.position, g.min_tokens, g.ends.tokens, g.ends.count, g.end_names),
        *(g.state if tokens is None else tokens, g.mask_ids, g.end_allowed, g.accepted, g.state.shape[0]),
    )
    return arguments, {"ENDS": g.ends.tokens.shape[1], "LANES": LANES, "MOVE": tokens is not None, **OPTIONS}


def run(grammars: DeviceGrammars, tokens: torch.Tensor | None) -> None:
    """Advance the rows of `grammars` by `tokens`; None: only look up their masks."""
    arguments, constants = launch_of(grammars, tokens)
    advance[(triton.cdiv(grammars.state.shape[0], LANES),)](*arguments, **constants)
