"""The pool of finished masks: deduplicated, addressed by id, in two halves.

A mask id names a dense row, a token list, a single token, or nothing (`layout`). Rows and lists are
filled into one half of the pool. When that half is full the *epoch* advances and the other half is
used, whose masks are forgotten: so what a step shipped stays valid until the pool has been filled
once more, and a mask that is asked for again meanwhile is copied over. Both halves must hold at
least two steps' worth of new masks, which `Batch` checks.
"""

from __future__ import annotations

from .._numba import helper
from .fuel import count
from .layout import (
    B_DEDUP,
    B_DEDUP_SIZE,
    B_DENSE,
    B_DENSE_USED,
    B_EPOCH,
    B_HALF,
    B_LIST_LENGTH,
    B_LIST_OFFSET,
    B_LIST_TOKENS,
    B_LIST_TOKENS_HALF,
    B_LIST_TOKENS_USED,
    B_LIST_USED,
    B_LISTS,
    B_TABLE,
    B_TABLE_AGE,
    B_TABLE_SIZE,
    B_TABLE_USED,
    B_WORDS,
    COUNT_FLUSHES,
    COUNT_MASKS,
    COUNT_PROMOTED,
    COUNT_WORK,
    KIND_DENSE,
    KIND_EMPTY,
    KIND_LIST,
    KIND_SHIFT,
    KIND_SINGLE,
    MASK_INDEX,
    MAX_LIST,
)
from .lazy import mix
from .memory import count_bits, count_trailing_zeros, load_i32, load_i64, shift_right, store_i32, store_i64

#: Words of a mask that are cleared, read, hashed and stored in the time of one byte edge.
WORDS_OF_A_MASK = 3


@helper
def mask_cost(batch):  # type: ignore[no-untyped-def]
    """Fuel of one pass of reading, hashing and storing a mask."""
    return load_i64(batch, B_WORDS) // WORDS_OF_A_MASK + 1


@helper
def make_room(batch, masks):  # type: ignore[no-untyped-def]
    """Begin a new epoch unless `masks` more of any kind fit. To be called between steps' uses of ids, never within."""
    fits = (
        load_i64(batch, B_DENSE_USED) + masks <= load_i64(batch, B_HALF)
        and load_i64(batch, B_LIST_USED) + masks <= load_i64(batch, B_LISTS)
        and load_i64(batch, B_LIST_TOKENS_USED) + masks * MAX_LIST <= load_i64(batch, B_LIST_TOKENS_HALF)
    )
    if not fits:
        new_epoch(batch)


@helper
def new_epoch(batch):  # type: ignore[no-untyped-def]
    """Go on in the other half of the pool, whose masks are forgotten."""
    # Entries of B_DEDUP name their epoch, so nothing has to be cleared within a step.
    store_i64(batch, B_EPOCH, load_i64(batch, B_EPOCH) + 1)
    store_i64(batch, B_DENSE_USED, 0)
    store_i64(batch, B_LIST_USED, 0)
    store_i64(batch, B_LIST_TOKENS_USED, 0)
    count(batch, COUNT_FLUSHES, 1)


@helper
def _same_mask(batch, mask_id, words, n_words, total):  # type: ignore[no-untyped-def]
    """Has the stored mask the content of the bitmap at `words`, which holds `total` tokens?"""
    index = mask_id & MASK_INDEX
    if mask_id >> KIND_SHIFT == KIND_DENSE:
        row = load_i64(batch, B_DENSE) + 8 * n_words * index
        for word in range(n_words):
            if load_i64(row, word) != load_i64(words, word):
                return False
        return True
    # The list's tokens must be set, and no others.
    length = load_i32(load_i64(batch, B_LIST_LENGTH), index)
    tokens = load_i64(batch, B_LIST_TOKENS) + 4 * load_i32(load_i64(batch, B_LIST_OFFSET), index)
    for i in range(length):
        token = load_i32(tokens, i)
        if (load_i64(words, token >> 6) >> (token & 63)) & 1 == 0:
            return False
    return total == length


@helper
def _find_mask(batch, words, total, h):  # type: ignore[no-untyped-def]
    """(id of the mask with the content of the bitmap at `words`, whose hash is `h`, or -1; its place in B_DEDUP)."""
    n_words = load_i64(batch, B_WORDS)
    size = load_i64(batch, B_DEDUP_SIZE)
    dedup = load_i64(batch, B_DEDUP)
    place = h % size
    while True:
        mask_id = load_i64(dedup, 2 * place + 1)
        if mask_id >> 32 != load_i64(batch, B_EPOCH):
            return -1, place
        if load_i64(dedup, 2 * place) == h:
            mask_id &= 0x7FFFFFFF
            if _same_mask(batch, mask_id, words, n_words, total):
                return mask_id, place
        place += 1
        if place == size:
            place = 0


@helper
def _new_list(batch, total):  # type: ignore[no-untyped-def]
    """(id of a new list of `total` tokens; where they are to be written)."""
    side = load_i64(batch, B_EPOCH) & 1
    index = side * load_i64(batch, B_LISTS) + load_i64(batch, B_LIST_USED)
    offset = side * load_i64(batch, B_LIST_TOKENS_HALF) + load_i64(batch, B_LIST_TOKENS_USED)
    store_i32(load_i64(batch, B_LIST_OFFSET), index, offset)
    store_i32(load_i64(batch, B_LIST_LENGTH), index, total)
    store_i64(batch, B_LIST_USED, load_i64(batch, B_LIST_USED) + 1)
    store_i64(batch, B_LIST_TOKENS_USED, load_i64(batch, B_LIST_TOKENS_USED) + total)
    return (KIND_LIST << KIND_SHIFT) | index, load_i64(batch, B_LIST_TOKENS) + 4 * offset


@helper
def _remember_mask(batch, place, h, mask_id):  # type: ignore[no-untyped-def]
    dedup = load_i64(batch, B_DEDUP)
    store_i64(dedup, 2 * place, h)
    store_i64(dedup, 2 * place + 1, (load_i64(batch, B_EPOCH) << 32) | mask_id)
    count(batch, COUNT_MASKS, 1)


@helper
def intern_few(batch, words, tokens, total):  # type: ignore[no-untyped-def]
    """`intern_mask` of a bitmap whose few tokens are known: int32 at `tokens`, which are sorted here."""
    epoch = load_i64(batch, B_EPOCH)
    if total == 0:
        return (epoch << 32) | (KIND_EMPTY << KIND_SHIFT)
    if total == 1:
        return (epoch << 32) | (KIND_SINGLE << KIND_SHIFT) | load_i32(tokens, 0)
    for i in range(1, total):
        token = load_i32(tokens, i)
        j = i
        while j > 0 and load_i32(tokens, j - 1) > token:
            store_i32(tokens, j, load_i32(tokens, j - 1))
            j -= 1
        store_i32(tokens, j, token)
    h, last = total, -1
    for i in range(total):
        word = load_i32(tokens, i) >> 6
        if word != last:
            last = word
            h = mix(h ^ word, load_i64(words, word))
    h = shift_right(h, 1) | 1
    mask_id, place = _find_mask(batch, words, total, h)
    if mask_id < 0:
        mask_id, into = _new_list(batch, total)
        for i in range(total):
            store_i32(into, i, load_i32(tokens, i))
        _remember_mask(batch, place, h, mask_id)
    return (epoch << 32) | mask_id


@helper
def intern_mask(batch, words):  # type: ignore[no-untyped-def]
    """Mask slot (epoch << 32 | mask id) of the bitmap at `words`, stored if it is new."""
    n_words = load_i64(batch, B_WORDS)
    epoch = load_i64(batch, B_EPOCH)
    total = 0
    for word in range(n_words):
        total += count_bits(load_i64(words, word))
    last = 0
    h = total
    if total > MAX_LIST:
        # Four independent chains: one multiplication waits for another otherwise.
        h0, h1, h2, h3 = 1, 2, 3, 4
        whole = n_words & ~3
        for word in range(0, whole, 4):
            h0 = (h0 ^ load_i64(words, word)) * -0x61C8864680B583EB
            h1 = (h1 ^ load_i64(words, word + 1)) * -0x61C8864680B583EB
            h2 = (h2 ^ load_i64(words, word + 2)) * -0x61C8864680B583EB
            h3 = (h3 ^ load_i64(words, word + 3)) * -0x61C8864680B583EB
            # The highest bits of a product know of all bits of its factors, the lowest of none above.
            h0 ^= shift_right(h0, 32)
            h1 ^= shift_right(h1, 32)
            h2 ^= shift_right(h2, 32)
            h3 ^= shift_right(h3, 32)
        for word in range(whole, n_words):
            h0 = mix(h0, load_i64(words, word))
        h = mix(mix(mix(h0, h1), h2), h3)
    else:
        for word in range(n_words):
            bits = load_i64(words, word)
            if bits != 0:
                last = word
                h = mix(h ^ word, bits)
    if total == 0:
        return (epoch << 32) | (KIND_EMPTY << KIND_SHIFT)
    if total == 1:
        token = 64 * last + count_trailing_zeros(load_i64(words, last))
        return (epoch << 32) | (KIND_SINGLE << KIND_SHIFT) | token
    h = shift_right(h, 1) | 1
    mask_id, place = _find_mask(batch, words, total, h)
    if mask_id >= 0:
        return (epoch << 32) | mask_id
    if total > MAX_LIST:
        index = (epoch & 1) * load_i64(batch, B_HALF) + load_i64(batch, B_DENSE_USED)
        row = load_i64(batch, B_DENSE) + 8 * n_words * index
        for word in range(n_words):
            store_i64(row, word, load_i64(words, word))
        store_i64(batch, B_DENSE_USED, load_i64(batch, B_DENSE_USED) + 1)
        mask_id = (KIND_DENSE << KIND_SHIFT) | index
    else:
        mask_id, tokens = _new_list(batch, total)
        n = 0
        for word in range(n_words):
            bits = load_i64(words, word)
            while bits != 0:
                store_i32(tokens, n, 64 * word + count_trailing_zeros(bits))
                n += 1
                bits &= bits - 1
    _remember_mask(batch, place, h, mask_id)
    return (epoch << 32) | mask_id


@helper
def expand_mask(batch, mask_id, words):  # type: ignore[no-untyped-def]
    """OR the tokens of `mask_id` into the bitmap at `words`."""
    kind = mask_id >> KIND_SHIFT
    index = mask_id & MASK_INDEX
    if kind == KIND_DENSE:
        n_words = load_i64(batch, B_WORDS)
        row = load_i64(batch, B_DENSE) + 8 * n_words * index
        for word in range(n_words):
            store_i64(words, word, load_i64(words, word) | load_i64(row, word))
    elif kind == KIND_LIST:
        tokens = load_i64(batch, B_LIST_TOKENS) + 4 * load_i32(load_i64(batch, B_LIST_OFFSET), index)
        for i in range(load_i32(load_i64(batch, B_LIST_LENGTH), index)):
            token = load_i32(tokens, i)
            store_i64(words, token >> 6, load_i64(words, token >> 6) | (1 << (token & 63)))
    elif kind == KIND_SINGLE:
        store_i64(words, index >> 6, load_i64(words, index >> 6) | (1 << (index & 63)))


@helper
def current_mask(batch, slots, index):  # type: ignore[no-untyped-def]
    """Mask id of mask slot `slots[index]` where that can be used as it is, else -1."""
    packed = load_i64(slots, index)
    if packed < 0:
        return -1
    mask_id = packed & 0x7FFFFFFF
    kind = mask_id >> KIND_SHIFT
    if packed >> 32 == load_i64(batch, B_EPOCH) or kind == KIND_SINGLE or kind == KIND_EMPTY:
        return mask_id
    return -1


@helper
def resolve(batch, slots, index, scratch):  # type: ignore[no-untyped-def]
    """Mask id of mask slot `slots[index]`, or -1 where it is unknown or forgotten; copies it from the other half.

    That takes `mask_cost`; the caller asks for it first.
    """
    mask_id = current_mask(batch, slots, index)
    packed = load_i64(slots, index)
    if mask_id >= 0 or packed < 0 or packed >> 32 != load_i64(batch, B_EPOCH) - 1:
        return mask_id
    mask_id = packed & 0x7FFFFFFF
    for word in range(load_i64(batch, B_WORDS)):
        store_i64(scratch, word, 0)
    expand_mask(batch, mask_id, scratch)
    packed = intern_mask(batch, scratch)
    store_i64(slots, index, packed)
    count(batch, COUNT_PROMOTED, 1)
    count(batch, COUNT_WORK, mask_cost(batch))
    return packed & 0x7FFFFFFF


@helper
def entry_at(batch, low):  # type: ignore[no-untyped-def]
    """Address of the first place where the table may have an entry of this key."""
    return load_i64(batch, B_TABLE) + 32 * (shift_right(low, 1) % load_i64(batch, B_TABLE_SIZE))


@helper
def find_entry(batch, low, high):  # type: ignore[no-untyped-def]
    """Address of the table entry of this key (4 words: key, mask slot, age), made if it is new.

    A table that is half full grows a year older, which empties it: entries of another age are free.
    """
    size = load_i64(batch, B_TABLE_SIZE)
    table = load_i64(batch, B_TABLE)
    if 2 * load_i64(batch, B_TABLE_USED) > size:
        store_i64(batch, B_TABLE_AGE, load_i64(batch, B_TABLE_AGE) + 1)
        store_i64(batch, B_TABLE_USED, 0)
    age = load_i64(batch, B_TABLE_AGE)
    entry = entry_at(batch, low)
    while True:
        if load_i64(entry, 3) != age:
            store_i64(entry, 0, low)
            store_i64(entry, 1, high)
            store_i64(entry, 2, -1)
            store_i64(entry, 3, age)
            store_i64(batch, B_TABLE_USED, load_i64(batch, B_TABLE_USED) + 1)
            return entry
        if load_i64(entry, 0) == low and load_i64(entry, 1) == high:
            return entry
        entry += 32
        if entry == table + 32 * size:
            entry = table
