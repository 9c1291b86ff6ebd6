"""Setting the logits of tokens that are not legal to -inf, in place, for hosts that sample themselves."""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from .rows_triton import ALL, DENSE, LIST, SINGLE, mask_tile, source_of, tile_places


@triton.jit(do_not_specialize=["vocabulary", "dense_rows", "lists", "width"])
def apply(
    logits, stride, rows, vocabulary, mask_ids, dense, dense_stride, dense_rows, list_offset, list_length, list_tokens,
    lists, ends, end_counts, end_allowed, width,
    ENDS: tl.constexpr, GROUPS: tl.constexpr, MINUS_INFINITY: tl.constexpr,
):  # fmt: skip
    """`logits` are integers of the logits' bits. Writes only what is not legal, and reads no logit at all."""
    row = tl.program_id(0)
    first = tl.program_id(1) * 8 * GROUPS
    source, index = source_of(tl.load(mask_ids + row), dense_rows, lists)
    end_count = tl.load(end_counts + row)
    allowed = tl.load(end_allowed + row)
    own_ends = ends + row * ENDS
    token = tile_places(first, GROUPS)
    if (source == ALL) | (source == DENSE):
        bits = mask_tile(source, index, first, vocabulary, dense, dense_stride, own_ends, end_count, allowed, GROUPS)
        barred = ((bits[:, None] >> tl.arange(0, 8)[None, :]) & 1) == 0
    else:
        barred = token >= 0
        if source == LIST:
            offset = tl.load(list_offset + index)
            for i in range(tl.load(list_length + index)):
                listed = tl.load(list_tokens + offset + i)
                if (listed >= first) & (listed < first + 8 * GROUPS):
                    barred = barred & (token != listed)
        elif source == SINGLE:
            barred = token != index
        for i in range(end_count):
            end = tl.load(own_ends + i)
            if ((allowed >> i) & 1) != 0:
                barred = barred & (token != end)
            else:
                barred = barred | (token == end)
    barred = (barred | (token >= vocabulary)) & (token < width)
    value = tl.full((GROUPS, 8), MINUS_INFINITY, logits.dtype.element_ty)
    tl.store(logits + tl.load(rows + row) * stride + token, value, mask=barred)
