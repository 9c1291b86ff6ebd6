"""A row's legal tokens as tiles of *orders*, for Triton kernels.

An order is one int64 a token: the key of its logit (`masks.keys_numba`) in the upper 32 bits, 2**32 - 1 - token in the
lower. Larger orders come first in the truncation order (logit descending, id ascending), so the first token of a tile
is a plain maximum. Scores are ordered in the same way. `NONE` stands for a token that is not legal.

Logits are read as their bits: FORMAT is 32 (float32), 16 (bfloat16) or 10 (float16, as its number of fraction bits).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from ..keys_numba import KEY_LOWEST as _KEY_LOWEST
from ..tables import INDEX_BITS as _INDEX_BITS
from ..tables import KIND_DENSE as _KIND_DENSE
from ..tables import KIND_LIST as _KIND_LIST
from ..tables import KIND_SHIFT as _KIND_SHIFT
from ..tables import KIND_SINGLE as _KIND_SINGLE
from .noise_triton import FLOAT_MAX, gumbel, gumbel_bound, random_words

KEY_LOWEST = tl.constexpr(int(_KEY_LOWEST))
KEY_INFINITE = tl.constexpr(0x7F800000)
KEY_LARGEST = tl.constexpr(0x7F7FFFFF)
NONE = tl.constexpr(int(_KEY_LOWEST) << 32)
INDEX_BITS = tl.constexpr(_INDEX_BITS)
KIND_SHIFT = tl.constexpr(_KIND_SHIFT)
KIND_DENSE = tl.constexpr(_KIND_DENSE)
KIND_LIST = tl.constexpr(_KIND_LIST)
KIND_SINGLE = tl.constexpr(_KIND_SINGLE)
#: Sources of a row's tokens: none, the whole vocabulary, a row of the pool, a list, one token.
NOTHING = tl.constexpr(0)
ALL = tl.constexpr(1)
DENSE = tl.constexpr(2)
LIST = tl.constexpr(3)
SINGLE = tl.constexpr(4)


@triton.jit
def float_key(value):
    """int32 in the order of the floats: NaN as -inf, -0 as +0, +inf as the largest finite value."""
    bits = value.to(tl.int32, bitcast=True)
    key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    key = tl.where(key > KEY_INFINITE, KEY_LOWEST, tl.minimum(key, KEY_LARGEST))
    return tl.where(key == -1, 0, key)


@triton.jit
def load_keys(logits, place, legal, FORMAT: tl.constexpr):
    """Keys of the logits at these places; those that are not legal are not read."""
    if FORMAT == 32:
        value = tl.load(logits + place, mask=legal, other=0).to(tl.float32, bitcast=True)
    elif FORMAT == 16:
        value = (tl.load(logits + place, mask=legal, other=0).to(tl.int32) << 16).to(tl.float32, bitcast=True)
    else:
        value = tl.load(logits + place, mask=legal, other=0).to(tl.float16, bitcast=True).to(tl.float32)
    return float_key(value)


@triton.jit
def scaled(key, inverse):
    """Logit of a key over the temperature, finite. The key is not that of -inf."""
    value = (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True) * inverse
    return tl.minimum(tl.maximum(value, -FLOAT_MAX), FLOAT_MAX)


@triton.jit
def order_of(key, token):
    return (key.to(tl.int64) << 32) | (0xFFFFFFFF - token.to(tl.int64))


@triton.jit
def token_of(order):
    return (0xFFFFFFFF - (order & 0xFFFFFFFF)).to(tl.int32)


@triton.jit
def key_of(order):
    return (order >> 32).to(tl.int32)


@triton.jit
def source_of(mask_id, dense_rows, lists):
    """(source, index or token) of a mask id; an id that names nothing allows nothing."""
    kind = mask_id >> KIND_SHIFT
    index = mask_id & INDEX_BITS
    source = tl.where((kind == KIND_DENSE) & (index < dense_rows), DENSE, NOTHING)
    source = tl.where((kind == KIND_LIST) & (index < lists), LIST, source)
    source = tl.where(kind == KIND_SINGLE, SINGLE, source)
    return tl.where(mask_id < 0, ALL, source), index


@triton.jit
def tile_places(first, GROUPS: tl.constexpr):
    """first, first + 1, ... as a tile of GROUPS rows of 8."""
    return first + 8 * tl.arange(0, GROUPS)[:, None] + tl.arange(0, 8)[None, :]


@triton.jit
def mask_tile(
    source, index, first, vocabulary, dense, dense_stride, ends, end_count, end_allowed, GROUPS: tl.constexpr
):  # fmt: skip
    """Which of the tokens from `first` on are legal, for a source of ALL or DENSE: int32 of GROUPS bytes of the mask.

    Bits past the vocabulary are 0. `end_allowed`: bit i says whether the row's i-th end token is legal.
    """
    byte = (first >> 3) + tl.arange(0, GROUPS)
    bits = tl.full((GROUPS,), 0xFF, tl.int32)
    if source == DENSE:
        inside = byte < ((vocabulary + 7) >> 3)
        bits = tl.load(dense + index.to(tl.int64) * dense_stride + byte, mask=inside, other=0).to(tl.int32)
    left = tl.minimum(tl.maximum(vocabulary - 8 * byte, 0), 8)
    bits = bits & ((1 << left) - 1)
    for i in range(end_count):
        end = tl.load(ends + i)
        if (end >= first) & (end < first + 8 * GROUPS) & (end < vocabulary):
            bit = tl.where(byte == (end >> 3), 1 << (end & 7), 0)
            bits = tl.where(((end_allowed >> i) & 1) != 0, bits | bit, bits & (bit ^ 0xFF))
    return bits


@triton.jit
def list_tile(
    source, index, first, vocabulary, list_offset, list_length, list_tokens, ends, end_count, end_allowed,
    GROUPS: tl.constexpr,
):  # fmt: skip
    """Entries from `first` on of a short row, which are its end tokens and then its list: (token, legal)."""
    entry = tile_places(first, GROUPS)
    token = tl.load(ends + entry, mask=entry < end_count, other=-1)
    legal = (entry < end_count) & (((end_allowed >> tl.minimum(entry, 31)) & 1) != 0)
    if source == LIST:
        offset = tl.load(list_offset + index)
        listed = (entry >= end_count) & (entry - end_count < tl.load(list_length + index))
        token = tl.where(listed, tl.load(list_tokens + offset + entry - end_count, mask=listed, other=-1), token)
        legal = legal | listed
    elif source == SINGLE:
        token = tl.where(entry == end_count, index, token)
        legal = legal | (entry == end_count)
    for i in range(end_count):
        # An end token counts once, as such.
        legal = legal & ((token != tl.load(ends + i)) | (entry <= i))
    return token, legal & (token >= 0) & (token < vocabulary)


@triton.jit
def entries_of(source, index, list_length, end_count, vocabulary):
    """How many tokens there are to look at."""
    entries = end_count
    if source == LIST:
        entries = end_count + tl.load(list_length + index)
    elif source == SINGLE:
        entries = end_count + 1
    elif source != NOTHING:
        entries = vocabulary
    return entries


@triton.jit
def masked_orders(bits, first, vocabulary, logits, GROUPS: tl.constexpr, FORMAT: tl.constexpr):
    """Orders of the tokens from `first` on whose bit is set in `bits` (`mask_tile`).

    Without any the logits are not looked at, else they are read in groups of 8 whose byte of the mask is not 0: the 32
    bytes of a sector in float32.
    """
    order = tl.full((GROUPS, 8), NONE, tl.int64)
    if tl.max(bits, 0) != 0:
        token = tile_places(first, GROUPS)
        read = tl.broadcast_to((bits != 0)[:, None], (GROUPS, 8))
        # Whole groups, in wide loads; in the last tile none of the places past the vocabulary.
        if first + 8 * GROUPS > vocabulary:
            key = load_keys(logits, token, read & (token < vocabulary), FORMAT)
        else:
            key = load_keys(logits, token, read, FORMAT)
        legal = ((bits[:, None] >> tl.arange(0, 8)[None, :]) & 1) != 0
        order = tl.where(legal & (key > KEY_LOWEST), order_of(key, token), NONE)
    return order


@triton.jit
def order_tile(
    source, index, first, vocabulary, logits, dense, dense_stride, list_offset, list_length, list_tokens,
    ends, end_count, end_allowed, GROUPS: tl.constexpr, FORMAT: tl.constexpr,
):  # fmt: skip
    """Orders of a tile of the row, NONE where not legal."""
    order = tl.full((GROUPS, 8), NONE, tl.int64)
    if (source == ALL) | (source == DENSE):
        bits = mask_tile(source, index, first, vocabulary, dense, dense_stride, ends, end_count, end_allowed, GROUPS)
        order = masked_orders(bits, first, vocabulary, logits, GROUPS, FORMAT)
    else:
        token, legal = list_tile(
            source, index, first, vocabulary, list_offset, list_length, list_tokens, ends, end_count, end_allowed,
            GROUPS,
        )  # fmt: skip
        key = load_keys(logits, token, legal, FORMAT)
        order = tl.where(legal & (key > KEY_LOWEST), order_of(key, token), NONE)
    return order


@triton.jit
def best_score(order, word, inverse, seed, position):
    """The largest order of a score x + gumbel(word) in a tile of orders, or NONE.

    Exact noise costs some hundred operations, a bound above it seven: the token of the largest bound is scored, until
    no bound is left above the best score. That is once or twice a tile.
    """
    bound = scaled(key_of(order), inverse) + gumbel_bound(word)
    bounds = tl.where(order != NONE, order_of(float_key(bound), token_of(order)), NONE)
    keys = key_of(order)
    best = tl.full((), NONE, tl.int64)
    top = tl.max(bounds)
    while top > best:
        token = token_of(top)
        # The key of the one token that is looked at: all others are lower.
        key = tl.max(tl.where(bounds == top, keys, KEY_LOWEST))
        score = scaled(key, inverse) + gumbel(random_words(token, seed, position))
        best = tl.maximum(best, order_of(float_key(score), token))
        bounds = tl.where(bounds == top, NONE, bounds)
        top = tl.max(bounds)
    return best
