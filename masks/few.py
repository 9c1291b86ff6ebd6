"""The tokens of a context's own mask: listed as they are found while they are few, as most contexts have a handful.

B_JOB_TOTAL is a bitmap of all tokens: clearing it, hashing it and searching it for its bits takes far longer than
walking a short list of trie nodes. So the bits that are set in it are listed in B_JOB_LIST up to MAX_FEW of them, and
cleared one by one when the mask is stored.
"""

from __future__ import annotations

from .._numba import helper
from .layout import B_JOB, B_JOB_LIST, B_JOB_TOTAL, B_WORDS, J_DIRTY, J_FEW, MAX_FEW
from .memory import load_i32, load_i64, store_i32, store_i64
from .pool import WORDS_OF_A_MASK, intern_few, intern_mask
from .trie import SAME_TOKENS, TOKEN_ENDS, V_BELOW, V_NEXT_SAME, V_NODE_TOKEN, V_RANK_ID

#: Tokens of a subtree that are taken in one piece, and in the time of one byte edge.
MOST_BELOW, BELOW_A_UNIT = 512, 2


@helper
def begin_few(batch):  # type: ignore[no-untyped-def]
    """B_JOB_TOTAL becomes empty."""
    job = load_i64(batch, B_JOB)
    if load_i64(job, J_DIRTY) != 0:
        total = load_i64(batch, B_JOB_TOTAL)
        for word in range(load_i64(batch, B_WORDS)):
            store_i64(total, word, 0)
    store_i64(job, J_DIRTY, 1)
    store_i64(job, J_FEW, 0)


@helper
def take_token(batch, total, token):  # type: ignore[no-untyped-def]
    """Set the bit of a token in `total`, which is B_JOB_TOTAL."""
    bits = load_i64(total, token >> 6)
    bit = 1 << (token & 63)
    if bits & bit != 0:
        return
    store_i64(total, token >> 6, bits | bit)
    job = load_i64(batch, B_JOB)
    n = load_i64(job, J_FEW)
    if n < 0:
        return
    if n == MAX_FEW:
        store_i64(job, J_FEW, -1)
    else:
        store_i32(load_i64(batch, B_JOB_LIST), n, token)
        store_i64(job, J_FEW, n + 1)


@helper
def take_below(batch, vocabulary, total, node):  # type: ignore[no-untyped-def]
    """`take_token` for all tokens below trie node `node`. Returns the work; 0: they are too many for one piece."""
    ranks = load_i64(load_i64(vocabulary, V_BELOW), node)
    begin, end = ranks & 0xFFFFFFFF, ranks >> 32
    if end - begin > MOST_BELOW:
        return 0
    rank_id = load_i64(vocabulary, V_RANK_ID)
    job = load_i64(batch, B_JOB)
    for rank in range(begin, end):
        token = load_i32(rank_id, rank)
        if load_i64(job, J_FEW) < 0:
            store_i64(total, token >> 6, load_i64(total, token >> 6) | 1 << (token & 63))
        else:
            take_token(batch, total, token)
    return 1 + (end - begin) // BELOW_A_UNIT


@helper
def take_tokens(batch, vocabulary, total, node, packed):  # type: ignore[no-untyped-def]
    """`take_token` for all tokens that end at trie node `node`, whose word is `packed`."""
    if packed & TOKEN_ENDS != 0:
        token = load_i32(load_i64(vocabulary, V_NODE_TOKEN), node)
        take_token(batch, total, token)
        if packed & SAME_TOKENS != 0:
            token = load_i32(load_i64(vocabulary, V_NEXT_SAME), token)
            while token >= 0:
                take_token(batch, total, token)
                token = load_i32(load_i64(vocabulary, V_NEXT_SAME), token)


@helper
def work_of_total(batch):  # type: ignore[no-untyped-def]
    """Fuel of storing B_JOB_TOTAL with `intern_total`, its clearing included."""
    few = load_i64(load_i64(batch, B_JOB), J_FEW)
    return few if few >= 0 else load_i64(batch, B_WORDS) // WORDS_OF_A_MASK


@helper
def intern_total(batch):  # type: ignore[no-untyped-def]
    """`pool.intern_mask` of B_JOB_TOTAL."""
    job = load_i64(batch, B_JOB)
    total, few = load_i64(batch, B_JOB_TOTAL), load_i64(job, J_FEW)
    if few < 0:
        return intern_mask(batch, total)
    tokens = load_i64(batch, B_JOB_LIST)
    packed = intern_few(batch, total, tokens, few)
    for i in range(few):
        store_i64(total, load_i32(tokens, i) >> 6, 0)
    store_i64(job, J_DIRTY, 0)
    return packed
