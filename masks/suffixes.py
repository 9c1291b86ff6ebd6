"""What leaves a loop, once for many tokens: the suffixes of tokens from a byte on, as a trie.

A wide state that stays in one state on a set of bytes is there after any string of these. So what becomes of a
token that leaves the set is up to its *suffix* from the first byte outside alone, and few suffixes belong to many
tokens: of Llama 3's 2,221 tokens with a line feed after their first byte there are 40 suffixes from the line feed on.
The table holds, for each ASCII byte that is no letter or digit, the suffixes from the first such byte of each token of
text, unless that is the token's first byte; the suffixes of one byte are one subtree. With each node go the tokens that
end there and the nodes of the main trie that it stands for, each with the bytes before the suffix, as these must
all lie within the set.

Tokens that begin with a byte outside the set are a subtree of the main trie.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._numba import helper
from .groups import LETTERS
from .layout import (
    L_BASE,
    L_CLASS,
    L_COVERED,
    L_INNER,
    L_LEAVE,
    L_STAY,
    L_SUBTREES,
    L_TEXT,
)
from .memory import Block, count_trailing_zeros, load_i32, load_i64, load_u8, store_i64
from .path import set_bit
from .trie import (
    RECORD_BYTES,
    V_BYTE_NODE,
    V_FIRST_RANK,
    V_NODE,
    V_RANK_BYTES,
    V_RANK_START,
    V_SUFFIX_BYTE,
    V_SUFFIX_NODE,
    V_SUFFIX_PLACE_START,
    V_SUFFIX_PLACES,
    V_SUFFIX_TOKEN_START,
    V_SUFFIX_TOKENS,
    flatten_trie,
)

#: ASCII bytes whose suffixes are in the table, as int64 words.
SUFFIX_BYTES = bytes(b for b in range(128) if not chr(b).isalnum())
SUFFIX_LOW, SUFFIX_HIGH = (
    int(np.packbits([byte in SUFFIX_BYTES for byte in range(first, first + 64)], bitorder="little").view("<i8")[0])
    for first in (0, 64)
)
#: So many tokens that begin with a byte are a subtree for certain: where bitmaps tell little of them, or much.
MANY_BEGIN, MOST_BEGIN = 512, 8192
#: Words of an entry of V_SUFFIX_TOKENS and V_SUFFIX_PLACES: the first RECORD_BYTES bytes before the suffix with their
#: number in the highest byte; rank of a token << 32 | token id, or node of the main trie.
ENTRY_WORDS = 2


def add_suffixes(
    block: Block,
    data: npt.NDArray[np.uint8],
    rank_start: npt.NDArray[np.int32],
    rank_id: npt.NDArray[np.int32],
    valid: npt.NDArray[np.bool_],
    rank_node: npt.NDArray[np.int32],
    parent: npt.NDArray[np.int32],
) -> None:
    """Put the table of the sorted tokens data[rank_start[r]:rank_start[r + 1]] into a vocabulary's block.

    `valid`: which of them are text; `rank_node`, `parent`: V_RANK_NODE, V_NODE_PARENT.
    """
    wanted = np.zeros(256, np.bool_)
    wanted[list(SUFFIX_BYTES)] = True
    at = np.flatnonzero(wanted[data])
    rank = np.searchsorted(rank_start, at, "right") - 1
    # The first of each byte in each token.
    _, first = np.unique(rank * 256 + data[at], return_index=True)
    at, rank = at[first], rank[first]
    before = at - rank_start[rank]
    keep = valid[rank] & (before > 0) & (before < 128)
    at, rank, before = at[keep], rank[keep], before[keep]
    raw = data.tobytes()
    ends = rank_start[rank + 1]
    suffixes = [raw[a:b] for a, b in zip(at.tolist(), ends.tolist(), strict=True)]
    distinct = sorted(set(suffixes))
    number_of = {suffix: i for i, suffix in enumerate(distinct)}
    number = np.array([number_of[suffix] for suffix in suffixes], np.int64)
    trie = flatten_trie(distinct)
    records = np.append(data, np.zeros(8, np.uint8))[rank_start[rank][:, None] + np.arange(8)]
    records = records * (np.arange(8) < before[:, None])
    records[:, RECORD_BYTES] = before
    record = np.ascontiguousarray(records.astype(np.uint8)).view("<i8")[:, 0]
    by_node = np.argsort(trie.end_node[number], kind="stable")
    tokens = np.stack([record, (rank << 32) | rank_id[rank]], 1)[by_node]
    # The nodes of both tries for each suffix's bytes, from its end on.
    mine, other, own = trie.end_node[number], rank_node[rank].astype(np.int64), np.arange(len(at))
    pairs = []
    while len(own):
        pairs.append((mine, other, own))
        mine, other = trie.parent[mine], parent[other].astype(np.int64)
        inside = mine >= 0
        mine, other, own = mine[inside], other[inside], own[inside]
    none = np.zeros(0, np.int64)
    mine, other, own = (np.concatenate([none, *(pair[i] for pair in pairs)]) for i in range(3))
    _, first = np.unique((mine << 32) | other, return_index=True)
    places = np.stack([record[own[first]], (rank[own[first]] << 32) | other[first]], 1)
    nodes = np.full(256, -1, np.int32)
    top = np.flatnonzero(trie.parent < 0)
    nodes[trie.node[top] & 0xFF] = top
    for field, array in (
        (V_SUFFIX_NODE, trie.node),
        (V_SUFFIX_BYTE, nodes),
        (V_SUFFIX_TOKEN_START, _bounds(trie.end_node[number], len(trie.node))),
        (V_SUFFIX_TOKENS, tokens),
        (V_SUFFIX_PLACE_START, _bounds(mine[first], len(trie.node))),
        (V_SUFFIX_PLACES, places),
    ):
        block.set_array(field, np.ascontiguousarray(array))


def _bounds(numbers: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int32]:
    """int32[count + 1]: where the entries of each number begin when they are sorted by it."""
    return np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=count))]).astype(np.int32)


@helper
def _suffix_bytes(loop):  # type: ignore[no-untyped-def]
    """The bytes, 2 words, on which a head leaves its loop by suffixes: it is in one state up to there."""
    stay = load_i64(loop, L_STAY) | load_i64(loop, L_STAY + 1) | load_i64(loop, L_TEXT)
    # Characters of its class may be outside the loop, and still accepted.
    beside = load_i64(loop, L_CLASS) >= 0 and load_i64(loop, L_TEXT) == 0
    if load_i64(loop, L_BASE) < 0 or stay == 0 or beside:
        return 0, 0
    return load_i64(loop, L_LEAVE) & SUFFIX_LOW, load_i64(loop, L_LEAVE + 1) & SUFFIX_HIGH


@helper
def _letters_left_out(loop):  # type: ignore[no-untyped-def]
    """Do bitmaps tell much of what follows a byte outside the loop: is a letter neither in it nor leaves it?"""
    known = load_i64(loop, L_STAY + 1) | load_i64(loop, L_LEAVE + 1)
    return LETTERS & ~known != 0


@helper
def outside_first(loop, next_bytes, word):  # type: ignore[no-untyped-def]
    """Of `next_bytes` those, in one word, that are not in the loop nor in a group."""
    # What follows one of L_COVERED is known by bitmaps, and otherwise walked token by token.
    return load_i64(next_bytes, word) & ~load_i64(loop, L_STAY + word) & ~load_i64(loop, L_COVERED + word)


@helper
def choose_tries(vocabulary, loop, next_bytes):  # type: ignore[no-untyped-def]
    """Set L_INNER of a wide head, and those of L_SUBTREES that are certain, which are taken from `next_bytes`.

    The others are up to how many of their tokens are undecided (`undecided.sort_undecided`).
    """
    first_rank = load_i64(vocabulary, V_FIRST_RANK)
    inner_low, inner_high = _suffix_bytes(loop)
    least = MOST_BEGIN if _letters_left_out(loop) else MANY_BEGIN
    for word in range(2):
        inner = (inner_low if word == 0 else inner_high) & ~load_i64(loop, L_COVERED + word)
        own = outside_first(loop, next_bytes, word)
        certain = 0
        while own != 0:
            byte = 64 * word + count_trailing_zeros(own)
            tokens = load_i32(first_rank, byte + 1) - load_i32(first_rank, byte)
            bit = own & -own
            own &= own - 1
            if tokens >= least:
                certain |= bit
            elif tokens >= MANY_BEGIN:
                inner &= ~bit
            else:
                # Tokens with this byte are none of the undecided, so those that begin with it must be looked at.
                certain |= inner & bit
        store_i64(loop, L_INNER + word, inner)
        store_i64(loop, L_SUBTREES + word, certain)
        store_i64(next_bytes, word, load_i64(next_bytes, word) & ~certain)


@helper
def no_tries(loop):  # type: ignore[no-untyped-def]
    """Nothing is to be walked but the undecided tokens, or the whole trie."""
    for word in range(2):
        store_i64(loop, L_SUBTREES + word, 0)
        store_i64(loop, L_INNER + word, 0)


@helper
def has_tries(loop):  # type: ignore[no-untyped-def]
    """Is any subtree or suffix left?"""
    more = load_i64(loop, L_SUBTREES) | load_i64(loop, L_SUBTREES + 1)
    return more | load_i64(loop, L_INNER) | load_i64(loop, L_INNER + 1) != 0


@helper
def next_trie(vocabulary, loop):  # type: ignore[no-untyped-def]
    """(byte, whether of suffixes, word of a root whose one child is its node, or without one): what is to be walked."""
    inner = load_i64(loop, L_SUBTREES) | load_i64(loop, L_SUBTREES + 1) == 0
    words = L_INNER if inner else L_SUBTREES
    low = load_i64(loop, words)
    byte = count_trailing_zeros(low) if low != 0 else 64 + count_trailing_zeros(load_i64(loop, words + 1))
    node = load_i32(load_i64(vocabulary, V_SUFFIX_BYTE if inner else V_BYTE_NODE), byte)
    return byte, inner, (node << 32) | (1 << 16) if node >= 0 else 0


@helper
def end_trie(loop):  # type: ignore[no-untyped-def]
    """What `next_trie` names has been walked."""
    inner = load_i64(loop, L_SUBTREES) | load_i64(loop, L_SUBTREES + 1) == 0
    words = L_INNER if inner else L_SUBTREES
    low = load_i64(loop, words)
    if low != 0:
        store_i64(loop, words, low & (low - 1))
    else:
        high = load_i64(loop, words + 1)
        store_i64(loop, words + 1, high & (high - 1))


@helper
def nodes_of(vocabulary, inner):  # type: ignore[no-untyped-def]
    """The table of trie nodes that a walk goes through."""
    return load_i64(vocabulary, V_SUFFIX_NODE if inner else V_NODE)


@helper
def is_inside(vocabulary, stay, entry):  # type: ignore[no-untyped-def]
    """Do all bytes before the suffix of an entry lie within the loop, whose 256 bytes are at `stay`?"""
    record = load_i64(entry, 0)
    before = record >> 56
    outside = 0
    for i in range(RECORD_BYTES):
        outside |= (1 - load_u8(stay, (record >> (8 * i)) & 0xFF)) << i
    if outside & ((1 << min(before, RECORD_BYTES)) - 1) != 0:
        return False
    if before > RECORD_BYTES:
        begin = load_i32(load_i64(vocabulary, V_RANK_START), load_i64(entry, 1) >> 32)
        data = load_i64(vocabulary, V_RANK_BYTES)
        for i in range(RECORD_BYTES, before):
            if load_u8(stay, load_u8(data, begin + i)) == 0:
                return False
    return True


@helper
def add_suffix_tokens(vocabulary, stay, node, mask):  # type: ignore[no-untyped-def]
    """Set the bits of the tokens that end at a node of the suffixes; returns how many were looked at."""
    starts = load_i64(vocabulary, V_SUFFIX_TOKEN_START)
    begin, end = load_i32(starts, node), load_i32(starts, node + 1)
    entries = load_i64(vocabulary, V_SUFFIX_TOKENS)
    for i in range(begin, end):
        entry = entries + 8 * ENTRY_WORDS * i
        if is_inside(vocabulary, stay, entry):
            set_bit(mask, load_i64(entry, 1) & 0xFFFFFFFF)
    return end - begin


@helper
def places_of(vocabulary, node):  # type: ignore[no-untyped-def]
    """(first, last + 1) of the entries in V_SUFFIX_PLACES of a node of the suffixes."""
    starts = load_i64(vocabulary, V_SUFFIX_PLACE_START)
    return load_i32(starts, node), load_i32(starts, node + 1)


@helper
def place_at(vocabulary, i):  # type: ignore[no-untyped-def]
    """Address of entry `i` of V_SUFFIX_PLACES."""
    return load_i64(vocabulary, V_SUFFIX_PLACES) + 8 * ENTRY_WORDS * i
