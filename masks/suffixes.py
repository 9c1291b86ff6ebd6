"""What leaves a loop, once for many tokens: the suffixes of tokens from a byte on, as a trie.

A wide state that stays in one state on a set of bytes is there after any string of these. So what becomes of a
token that leaves the set is up to its *suffix* from the first byte outside alone, and few suffixes belong to many
tokens: of Llama 3's 2,221 tokens with a line feed after their first byte there are 40 suffixes from the line feed on.
The table holds, for each ASCII byte that is no letter or digit, the suffixes from the first such byte of each token of
text, unless that is the token's first byte; the suffixes of one byte are one subtree. With each node go the tokens that
end there, each with the bytes before the suffix, as these must all lie within the set.

Tokens that begin with a byte outside the set are a subtree of the main trie.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._numba import helper
from ..grammar.automaton import COUNTER, FINAL, GUARDED, HAS_CALLS, HAS_OPERATIONS
from .layout import (
    G_KINDS,
    J_BASE,
    J_SUBTREES,
    J_SUFFIXES,
    KIND_BYTES,
    KIND_COUNT,
    KIND_FIRST,
    L_AFTER,
    L_CLASS,
    L_FIRST,
    L_LEAVE,
    L_SELF,
    L_STATES,
    L_STAY,
    L_TEXT,
    LOOP_WORDS,
    MAX_LOOP_STATES,
)
from .machine import AT_FRAME_KIND, delta, flags_of, frame_of
from .memory import Block, count_bits, count_trailing_zeros, load_i32, load_i64, load_u8, section, store_i64
from .path import set_bit
from .stays import text_stays
from .trie import (
    RECORD_BYTES,
    V_ABSENT,
    V_BYTE_NODE,
    V_FIRST_RANK,
    V_NODE,
    V_PRESENCE,
    V_RANK_BYTES,
    V_RANK_START,
    V_SUFFIX_BYTE,
    V_SUFFIX_NODE,
    V_SUFFIX_TOKEN_START,
    V_SUFFIX_TOKENS,
    V_VALID,
    V_WORDS,
    flatten_trie,
)

#: ASCII bytes whose suffixes are in the table, as int64 words.
SUFFIX_BYTES = bytes(b for b in range(128) if not chr(b).isalnum())
SUFFIX_LOW, SUFFIX_HIGH = (
    int(np.packbits([byte in SUFFIX_BYTES for byte in range(first, first + 64)], bitorder="little").view("<i8")[0])
    for first in (0, 64)
)
#: Of a byte with which so many tokens begin, the subtree may be larger than what bitmaps leave of its tokens.
MANY_BEGIN = 512
#: Words of rows that are read and written in the time of one byte edge.
ROW_WORDS = 16
#: Bytes at most, as the tokens with each are left out by a row of their own.
MAX_BYTES = 4
#: Words of an entry of V_SUFFIX_TOKENS: the first RECORD_BYTES bytes before the suffix with their number in the highest
#: byte; rank of a token << 32 | token id.
ENTRY_WORDS = 2


def add_suffixes(
    block: Block,
    data: npt.NDArray[np.uint8],
    rank_start: npt.NDArray[np.int32],
    rank_id: npt.NDArray[np.int32],
    valid: npt.NDArray[np.bool_],
) -> None:
    """Put the table of the sorted tokens data[rank_start[r]:rank_start[r + 1]] into a vocabulary's block.

    `valid`: which of them are text.
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
    nodes = np.full(256, -1, np.int32)
    top = np.flatnonzero(trie.parent < 0)
    nodes[trie.node[top] & 0xFF] = top
    for field, array in (
        (V_SUFFIX_NODE, trie.node),
        (V_SUFFIX_BYTE, nodes),
        (V_SUFFIX_TOKEN_START, _bounds(trie.end_node[number], len(trie.node))),
        (V_SUFFIX_TOKENS, tokens),
    ):
        block.set_array(field, np.ascontiguousarray(array))


def _bounds(numbers: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int32]:
    """int32[count + 1]: where the entries of each number begin when they are sorted by it."""
    return np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=count))]).astype(np.int32)


@helper
def no_tries(job):  # type: ignore[no-untyped-def]
    """Nothing is to be walked but the undecided tokens, or the whole trie."""
    for word in range(2):
        store_i64(job, J_SUBTREES + word, 0)
        store_i64(job, J_SUFFIXES + word, 0)


@helper
def _base_of(grammar, automaton, vocabulary, state, register, loop):  # type: ignore[no-untyped-def]
    """The state after any string of the set but the empty one, or -1: its own, or the other one of two."""
    states = loop + 8 * L_STATES
    if load_i64(loop, L_SELF) != 0:
        return state
    if load_i64(states, MAX_LOOP_STATES) != 2 or load_i64(states, 0) != state:
        return -1
    kinds = load_i64(grammar, G_KINDS)
    after = load_i64(states, 1)
    store_i64(states, 0, after)
    store_i64(states, MAX_LOOP_STATES, 1)
    good = True
    for turn in range(2):
        member = state if turn == 0 else after
        flags = flags_of(automaton, member)
        # Where an item may end or a call begins, the path may lead away.
        ends = flags & FINAL != 0 and load_u8(section(automaton, AT_FRAME_KIND), frame_of(automaton, member)) == COUNTER
        good = good and not ends and flags & (HAS_CALLS | GUARDED | HAS_OPERATIONS) == 0
        for kind in range(load_i64(kinds, KIND_COUNT)):
            members = kinds + 8 * (KIND_BYTES + 4 * kind)
            common = load_i64(loop, L_STAY) & load_i64(members, 0) | load_i64(loop, L_STAY + 1) & load_i64(members, 1)
            if good and common != 0:
                good = delta(automaton, member, load_i64(kinds, KIND_FIRST + kind)) == after
        if good and load_i64(loop, L_TEXT) != 0:
            good = text_stays(automaton, vocabulary, kinds, member, register, loop, 1)
    store_i64(states, 0, state)
    store_i64(states, 1, after)
    store_i64(states, MAX_LOOP_STATES, 2)
    return after if good else -1


@helper
def choose_tries(grammar, automaton, vocabulary, job, loop, state, register, next_bytes):  # type: ignore[no-untyped-def]
    """Set J_SUFFIXES of a wide head, and J_SUBTREES, which are taken from `next_bytes`, where that is worth it.

    Only where it is in one state (J_BASE) after any string of the set, no character of its class is outside that, and
    few bytes leave it.
    """
    stay = load_i64(loop, L_STAY) | load_i64(loop, L_STAY + 1) | load_i64(loop, L_TEXT)
    beside = load_i64(loop, L_CLASS) >= 0 and load_i64(loop, L_TEXT) == 0
    if stay == 0 or beside:
        return
    first_rank, absent = load_i64(vocabulary, V_FIRST_RANK), load_i64(vocabulary, V_ABSENT)
    n, most = 0, 0
    for word in range(4):
        bits = load_i64(loop, L_LEAVE + word) & ~load_i64(absent, word)
        n += count_bits(bits)
        known = SUFFIX_LOW if word == 0 else SUFFIX_HIGH if word == 1 else 0
        if load_i64(loop, L_AFTER) != 0 and word < 2:
            known &= ~load_i64(loop, LOOP_WORDS + L_FIRST + (word & 1))
        if bits & ~known != 0 or n > MAX_BYTES:
            return
        while bits != 0:
            byte = 64 * word + count_trailing_zeros(bits)
            most = max(most, load_i32(first_rank, byte + 1) - load_i32(first_rank, byte))
            bits &= bits - 1
    if most >= MANY_BEGIN or n == 0:
        return
    store_i64(job, J_BASE, _base_of(grammar, automaton, vocabulary, state, register, loop))
    if load_i64(job, J_BASE) < 0:
        return
    for word in range(2):
        bits = load_i64(loop, L_LEAVE + word) & ~load_i64(absent, word)
        store_i64(job, J_SUFFIXES + word, bits)
        # Their tokens are none of the undecided, so those that begin with one of them must be looked at.
        store_i64(job, J_SUBTREES + word, bits & load_i64(next_bytes, word))
        store_i64(next_bytes, word, load_i64(next_bytes, word) & ~bits)


@helper
def leave_out(vocabulary, job, undecided):  # type: ignore[no-untyped-def]
    """Take the text that has a byte of J_SUFFIXES, which suffixes and subtrees decide, from `undecided`.

    Returns the work done.
    """
    words = load_i64(vocabulary, V_WORDS)
    valid = load_i64(vocabulary, V_VALID)
    n = 0
    for half in range(2):
        bits = load_i64(job, J_SUFFIXES + half)
        while bits != 0:
            row = load_i64(vocabulary, V_PRESENCE) + 8 * words * (256 + 64 * half + count_trailing_zeros(bits))
            for word in range(words):
                kept = load_i64(undecided, word) & ~(load_i64(row, word) & load_i64(valid, word))
                store_i64(undecided, word, kept)
            n += 1
            bits &= bits - 1
    return n * words // ROW_WORDS


@helper
def has_tries(job):  # type: ignore[no-untyped-def]
    """Is any subtree or suffix left?"""
    more = load_i64(job, J_SUBTREES) | load_i64(job, J_SUBTREES + 1)
    return more | load_i64(job, J_SUFFIXES) | load_i64(job, J_SUFFIXES + 1) != 0


@helper
def _next_set(job):  # type: ignore[no-untyped-def]
    """Where the set that is being walked begins."""
    more = load_i64(job, J_SUBTREES) | load_i64(job, J_SUBTREES + 1)
    return J_SUBTREES if more != 0 else J_SUFFIXES


@helper
def next_trie(vocabulary, job):  # type: ignore[no-untyped-def]
    """(whether of suffixes, word of a root whose one child is its node, or without one): what is to be walked."""
    at = _next_set(job)
    low = load_i64(job, at)
    byte = count_trailing_zeros(low) if low != 0 else 64 + count_trailing_zeros(load_i64(job, at + 1))
    inner = at == J_SUFFIXES
    node = load_i32(load_i64(vocabulary, V_SUFFIX_BYTE if inner else V_BYTE_NODE), byte)
    return inner, (node << 32) | (1 << 16) if node >= 0 else 0


@helper
def end_trie(job):  # type: ignore[no-untyped-def]
    """What `next_trie` names has been walked."""
    at = _next_set(job)
    low, high = load_i64(job, at), load_i64(job, at + 1)
    store_i64(job, at, low & (low - 1))
    if low == 0:
        store_i64(job, at + 1, high & (high - 1))


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
