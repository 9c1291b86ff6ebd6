"""Tokens that a wide state leaves undecided: put in rank order, and how far each stays within the loop."""

from __future__ import annotations

from .._numba import helper
from .layout import L_STAY, L_TEXT
from .memory import count_bits, count_trailing_zeros, load_i32, load_i64, prefetch, store_i32, store_i64, store_u8
from .path import set_bit
from .trie import V_FIRST_RANK, V_ID_RANK, V_RANK_WORDS, V_RECORD, V_WORDS

#: Tokens that are sorted at a time, but for the last word of them.
SORTED_AT_ONCE = 256
#: Words of the bitmap that are looked through at a time.
MOST_WORDS = 4096


@helper
def sort_undecided(vocabulary, undecided, found, ranks, begin):  # type: ignore[no-untyped-def]
    """Add undecided tokens to `ranks`, from word `begin` of the bitmap on. Returns (word after the last, how many).

    `found`: room for a list of SORTED_AT_ONCE + 128.
    """
    id_rank = load_i64(vocabulary, V_ID_RANK)
    record = load_i64(vocabulary, V_RECORD)
    if begin == 0:
        for word in range(load_i64(vocabulary, V_RANK_WORDS)):
            store_i64(ranks, word, 0)
    # First a list: where a word has few bits two are written whatever there are, as a branch on each word would be
    # mispredicted more often than not.
    n = 0
    word = begin
    end = min(load_i64(vocabulary, V_WORDS), begin + MOST_WORDS)
    while word < end and n < SORTED_AT_ONCE:
        bits = load_i64(undecided, word)
        after = n + count_bits(bits)
        for i in range(2):
            store_i32(found, n + i, 64 * word + count_bits((bits & -bits) - 1))
            bits &= bits - 1
        n += 2
        while bits != 0:
            store_i32(found, n, 64 * word + count_trailing_zeros(bits))
            n += 1
            bits &= bits - 1
        n = after
        word += 1
    for i in range(n):
        rank = load_i32(id_rank, load_i32(found, i))
        prefetch(record + 8 * rank)
        set_bit(ranks, rank)
    return word, n


@helper
def keep_first_bytes(vocabulary, next_bytes, ranks):  # type: ignore[no-untyped-def]
    """Drop from `ranks` the tokens whose first byte is none of `next_bytes` (4 words)."""
    # Tokens with one first byte are neighbours.
    first_rank = load_i64(vocabulary, V_FIRST_RANK)
    byte = 0
    while byte < 256:
        after = byte
        while after < 256 and (load_i64(next_bytes, after >> 6) >> (after & 63)) & 1 == 0:
            after += 1
        begin, end = load_i32(first_rank, byte), load_i32(first_rank, after)
        byte = after + 1
        if begin == end:
            continue
        first, last = begin >> 6, (end - 1) >> 6
        below = (1 << (begin & 63)) - 1
        above = 0 if end & 63 == 0 else -1 << (end & 63)
        if first == last:
            store_i64(ranks, first, load_i64(ranks, first) & (below | above))
            continue
        store_i64(ranks, first, load_i64(ranks, first) & below)
        for word in range(first + 1, last):
            store_i64(ranks, word, 0)
        store_i64(ranks, last, load_i64(ranks, last) & above)


@helper
def fill_bytes(low, high, text, into):  # type: ignore[no-untyped-def]
    """Set the 256 bytes at `into` to 1 for those of a set, to 0 for others."""
    for byte in range(256):
        bits = low if byte < 64 else high if byte < 128 else -text
        store_u8(into, byte, (bits >> (byte & 63)) & 1)


@helper
def fill_stay(loop, stay):  # type: ignore[no-untyped-def]
    """Set the 256 bytes at `stay` to 1 for the bytes inside the loop, to 0 for others."""
    fill_bytes(load_i64(loop, L_STAY), load_i64(loop, L_STAY + 1), load_i64(loop, L_TEXT), stay)
