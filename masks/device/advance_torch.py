"""Advancing rows by sampled tokens in plain torch operations. It waits for the device: loops end when all rows have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...grammar.automaton import FINAL
from ..tables import KIND_EMPTY, KIND_SHIFT
from .grammars import (
    D_BYTE_CLASS,
    D_CLASSES,
    D_DENSE,
    D_EDGES,
    D_FLAGS,
    D_MASK,
    D_NAMED,
    D_SINGLE_BYTE,
    D_SINGLE_TARGET,
    D_TOKEN_ID,
    D_TOKEN_START,
    D_TOKEN_TARGET,
    FINISHED_STATE,
)

if TYPE_CHECKING:
    from .grammars import DeviceGrammars

_EMPTY = KIND_EMPTY << KIND_SHIFT


def _read(array: torch.Tensor, place: torch.Tensor, chosen: torch.Tensor, other: int) -> torch.Tensor:
    """array[place] as int64 where chosen, else `other`."""
    return torch.where(chosen, array[torch.where(chosen, place, 0)].to(torch.int64), other)


def ends_of(g: DeviceGrammars, token: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(is the token of each of `rows` an end token of the row, and a legal one)."""
    slot = torch.arange(g.ends.tokens.shape[1], dtype=torch.int32, device=g.device)
    same = (g.ends.tokens == token[:, None]) & (slot < g.ends.count[:, None]) & rows[:, None]
    return same.any(1), (same & ((g.end_allowed[:, None] >> slot) & 1 != 0)).any(1)


def end_bits_of(g: DeviceGrammars, all_of_them: torch.Tensor, named: torch.Tensor) -> torch.Tensor:
    """int32 of each row's legal end tokens: all, or those whose bits of the grammar's named tokens are set."""
    slot = torch.arange(g.ends.tokens.shape[1], device=g.device)
    names = g.end_names.to(torch.int64)
    bits = ((named[:, None] >> names.clamp(min=0)) & 1) * (names >= 0)
    return torch.where(all_of_them, -1, (bits << slot).sum(1)).to(torch.int32)


def run(grammars: DeviceGrammars, tokens: torch.Tensor | None) -> None:
    """Advance the rows of `grammars` by `tokens`; None: only look up their masks."""
    g = grammars
    image, image_bytes = g.images.image, g.images.image.view(torch.uint8)
    active = g.grammar >= 0
    entry = g.images.directory[g.grammar.clamp(min=0).to(torch.int64)]
    state, position = g.state.to(torch.int64), g.position
    if tokens is not None:
        token = torch.where(active, tokens, -1).to(torch.int64)
        open_row = active & (state != FINISHED_STATE)
        is_end, ends_now = ends_of(g, token, open_row & (token >= 0))
        target = torch.full_like(state, -1)
        starts = entry[:, D_TOKEN_START] + state
        edge, last = _read(image, starts, open_row, 0), _read(image, starts + 1, open_row, 0)
        for _ in range(int((last - edge).max())):
            named = open_row & (edge < last)
            named &= _read(image, entry[:, D_TOKEN_ID] + edge, named, -1) == token
            target = torch.where(named, _read(image, entry[:, D_TOKEN_TARGET] + edge, named, -1), target)
            edge = edge + 1
        text = open_row & ~is_end & (target < 0) & (token >= 0) & (token < g.vocabulary.size)
        text &= _read(g.token_text, token, text, 0) != 0
        at, stop = _read(g.token_start, token, text, 0), _read(g.token_start, token + 1, text, 0)
        walked = state
        for _ in range(int((stop - at).max())):
            more = text & (at < stop) & (walked >= 0)
            byte = _read(g.token_bytes, at, more, 0)
            walked = torch.where(more, _next_state(entry, image, image_bytes, walked, byte, more), walked)
            at = at + 1
        target = torch.where(text, walked, target)
        rests = open_row & (target >= 0)
        rests &= _read(image, entry[:, D_MASK] + target, rests, -1) != -1
        state = torch.where(ends_now, FINISHED_STATE, torch.where(rests, target, state))
        moved = ends_now | rests
        position = position + moved.to(torch.int32)
        g.state.copy_(state)
        g.position.copy_(position)
        g.accepted.copy_(moved | ~active)
    open_row = active & (state != FINISHED_STATE)
    mask = _read(image, entry[:, D_MASK] + state, open_row, _EMPTY)
    final = (_read(image_bytes, entry[:, D_FLAGS] + state, open_row, 0) & FINAL) != 0
    end = final & ((position >= g.min_tokens) | (mask == _EMPTY))
    g.mask_ids.copy_(torch.where(active, mask, g.mask_ids))
    named = _read(image, entry[:, D_NAMED] + state, open_row, 0)
    g.end_allowed.copy_(torch.where(active, end_bits_of(g, end, named), g.end_allowed))


def _next_state(
    entry: torch.Tensor,
    image: torch.Tensor,
    image_bytes: torch.Tensor,
    state: torch.Tensor,
    byte: torch.Tensor,
    active: torch.Tensor,
) -> torch.Tensor:
    edge = _read(image, entry[:, D_EDGES] + state, active, -1)
    column = _read(image_bytes, entry[:, D_BYTE_CLASS] + byte, edge >= 0, 0)
    target = _read(image, entry[:, D_DENSE] + edge * entry[:, D_CLASSES] + column, edge >= 0, -1)
    one = edge <= -2
    fits = one & (_read(image_bytes, entry[:, D_SINGLE_BYTE] - 2 - edge, one, 0) == byte)
    return torch.where(fits, _read(image, entry[:, D_SINGLE_TARGET] - 2 - edge, fits, -1), target)
