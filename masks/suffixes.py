"""What leaves a loop, once for many tokens: the suffixes of tokens from a byte on, as a trie.

A wide state that stays in one state on a set of bytes is there after any string of these. So what becomes of a
token that leaves the set is up to its *suffix* from the first byte outside alone, and few suffixes belong to many
tokens: of Llama 3's 2,221 tokens with a line feed after their first byte there are 40 suffixes from the line feed on.
The table holds, for each ASCII byte that is no letter or digit, the suffixes from the first such byte of each token of
text, unless that is the token's first byte; the suffixes of one byte are one subtree. With each node go the tokens that
end there, each with the bytes before the suffix, as these must all lie within the set.

Tokens that begin with a byte outside the set are a subtree of the main trie.

So there are kinds of tries to be walked: SUBTREES, SUFFIXES, and where a first byte leads to another loop
(`masks.wide`), the suffixes that leave that one: NEAR, right after the first byte, and FAR.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._numba import helper
from ..grammar.automaton import COUNTER, FINAL, GUARDED, H_FLAGS, HAS_CALLS, HAS_OPERATIONS, RECURSIVE
from .layout import (
    FAR,
    G_KINDS,
    J_SUFFIX,
    J_TRIES,
    KIND_BYTES,
    KIND_COUNT,
    KIND_FIRST,
    L_AFTER,
    L_CLASS,
    L_FIRST,
    L_FIRST_TEXT,
    L_LEAVE,
    L_REACHED,
    L_SELF,
    L_STATES,
    L_STAY,
    L_TEXT,
    LOOP_WORDS,
    MAX_LOOP_STATES,
    NEAR,
    SUBTREES,
    SUFFIXES,
    TRIE_BYTES,
    TRIE_BYTES_HIGH,
    TRIE_KINDS,
    TRIE_LEAST,
    TRIE_MOST,
    TRIE_REGISTER,
    TRIE_STATE,
    TRIE_WORDS,
)
from .machine import AT_FRAME_KIND, AT_STATE_LOOP, delta, flags_of, frame_of
from .memory import Block, count_bits, count_trailing_zeros, load_i32, load_i64, load_u8, section, store_i64
from .path import set_bit
from .stays import local_step, text_stays
from .trie import (
    RECORD_BYTES,
    V_ABSENT,
    V_BYTE_NODE,
    V_FIRST_RANK,
    V_RANK_BYTES,
    V_RANK_START,
    V_RANKS,
    V_SUFFIX_BYTE,
    V_SUFFIX_NODE,
    V_SUFFIX_TOKEN_START,
    V_SUFFIX_TOKENS,
    ascii_words,
    flatten_trie,
)
from .undecided import fill_bytes

#: ASCII bytes whose suffixes are in the table, as int64 words.
SUFFIX_BYTES = bytes(b for b in range(128) if not chr(b).isalnum())
SUFFIX_LOW, SUFFIX_HIGH = ascii_words(SUFFIX_BYTES)
#: Of a byte with which so many tokens begin, the subtree may be larger than what bitmaps leave of its tokens.
MANY_BEGIN = 512
#: After first bytes with which fewer than this part of all tokens begin, the undecided tokens are the fewer.
FEW_AFTER = 8
#: Bytes at most: of more of them the undecided tokens are walked.
MAX_BYTES = 8
#: Bytes before a suffix of the table at most.
MOST_BEFORE = 127
#: Fuel of looking at a token of a suffix (`bench/fuel.py`), and tokens between two looks at what is left of it: of 256k
#: tokens 6,400 have one suffix.
SUFFIX_COST, SUFFIXES_AT_ONCE = 2, 128
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
    keep = valid[rank] & (before > 0) & (before <= MOST_BEFORE)
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
def trie_at(job, kind):  # type: ignore[no-untyped-def]
    """The job's words about one kind of trie."""
    return job + 8 * (J_TRIES + TRIE_WORDS * kind)


@helper
def no_tries(job):  # type: ignore[no-untyped-def]
    """Nothing is to be walked but the undecided tokens, or the whole trie."""
    for kind in range(TRIE_KINDS):
        store_i64(trie_at(job, kind), TRIE_BYTES, 0)
        store_i64(trie_at(job, kind), TRIE_BYTES_HIGH, 0)


@helper
def _add_trie(job, kind, low, high, state, register, least, most):  # type: ignore[no-untyped-def]
    """Have one kind of trie walked."""
    trie = trie_at(job, kind)
    store_i64(trie, TRIE_BYTES, low)
    store_i64(trie, TRIE_BYTES_HIGH, high)
    store_i64(trie, TRIE_STATE, state)
    store_i64(trie, TRIE_REGISTER, register)
    store_i64(trie, TRIE_LEAST, least)
    store_i64(trie, TRIE_MOST, most)


@helper
def base_of(grammar, automaton, vocabulary, register, loop):  # type: ignore[no-untyped-def]
    """The state after any string of the set but the empty one, or -1: its own, or the other one of two."""
    states = loop + 8 * L_STATES
    state = load_i64(states, 0)
    if load_i64(loop, L_SELF) != 0:
        return state
    if load_i64(states, MAX_LOOP_STATES) != 2:
        return -1
    kinds = load_i64(grammar, G_KINDS)
    contexts = load_i64(automaton, H_FLAGS) & RECURSIVE != 0
    after = load_i64(states, 1)
    store_i64(states, 0, after)
    store_i64(states, MAX_LOOP_STATES, 1)
    good = True
    for turn in range(2):
        member = state if turn == 0 else after
        flags = flags_of(automaton, member)
        # Where an item may end or a call begins, the path may lead away. In a context no byte of the set does.
        ends = flags & FINAL != 0 and load_u8(section(automaton, AT_FRAME_KIND), frame_of(automaton, member)) == COUNTER
        calls = flags & HAS_CALLS != 0 and not contexts
        good = good and not ends and not calls and flags & (GUARDED | HAS_OPERATIONS) == 0
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
def _leave_by(vocabulary, loop):  # type: ignore[no-untyped-def]
    """The bytes, 2 words, that leave a loop; none where suffixes do not tell all that becomes of the tokens with one.

    They do where few bytes leave it, and no character of its class is outside its set.
    """
    low, high = load_i64(loop, L_LEAVE), load_i64(loop, L_LEAVE + 1)
    beside = load_i64(loop, L_CLASS) >= 0 and load_i64(loop, L_TEXT) == 0
    absent = load_i64(vocabulary, V_ABSENT)
    more = (load_i64(loop, L_LEAVE + 2) & ~load_i64(absent, 2)) | (load_i64(loop, L_LEAVE + 3) & ~load_i64(absent, 3))
    low &= ~load_i64(absent, 0)
    high &= ~load_i64(absent, 1)
    good = more == 0 and not beside and (low & ~SUFFIX_LOW) | (high & ~SUFFIX_HIGH) == 0
    if load_i64(loop, L_STAY) | load_i64(loop, L_STAY + 1) | load_i64(loop, L_TEXT) == 0:
        good = False
    if not good or count_bits(low) + count_bits(high) > MAX_BYTES:
        return 0, 0
    return low, high


@helper
def _most_begin(vocabulary, low, high):  # type: ignore[no-untyped-def]
    """(tokens that begin with one of these bytes, those that begin with the one of them that most do)."""
    first_rank = load_i64(vocabulary, V_FIRST_RANK)
    total, most = 0, 0
    for half in range(2):
        bits = low if half == 0 else high
        while bits != 0:
            byte = 64 * half + count_trailing_zeros(bits)
            n = load_i32(first_rank, byte + 1) - load_i32(first_rank, byte)
            total += n
            most = max(most, n)
            bits &= bits - 1
    return total, most


@helper
def choose_tries(grammar, automaton, vocabulary, job, loop, register, next_bytes):  # type: ignore[no-untyped-def]
    """Have tries walked for a wide head where that is worth it; their first bytes are taken from `next_bytes`.

    Returns what `begin_selection` is told: 1 where they tell all of the tokens that leave the loop, and 2 where they
    tell all of those that leave it after a first byte.
    """
    told = 0
    other = loop + 8 * LOOP_WORDS
    after = load_i64(loop, L_AFTER) != 0
    low, high = _leave_by(vocabulary, loop)
    if low | high != 0:
        base = base_of(grammar, automaton, vocabulary, register, loop)
        # Tokens that begin with a byte which leaves the loop have to be looked at, but for those decided after it.
        first_low, first_high = low & load_i64(next_bytes, 0), high & load_i64(next_bytes, 1)
        if after:
            first_low &= ~load_i64(other, L_FIRST)
            first_high &= ~load_i64(other, L_FIRST + 1)
        if base >= 0 and _most_begin(vocabulary, first_low, first_high)[1] < MANY_BEGIN:
            told = 1
            _add_trie(job, SUFFIXES, low, high, base, register, 1, MOST_BEFORE)
            _add_trie(job, SUBTREES, first_low, first_high, base, register, 0, 0)
            store_i64(next_bytes, 0, load_i64(next_bytes, 0) & ~first_low)
            store_i64(next_bytes, 1, load_i64(next_bytes, 1) & ~first_high)
    if after and (load_i64(other, L_FIRST_TEXT) == 0 or load_i64(other, L_SELF) != 0):
        low, high = _leave_by(vocabulary, other)
        # The table has the suffixes from the first byte of each kind on, which must not be the token's first.
        first_low, first_high = load_i64(other, L_FIRST), load_i64(other, L_FIRST + 1)
        once = (low & first_low) | (high & first_high) == 0
        many = _most_begin(vocabulary, first_low, first_high)[0] >= load_i64(vocabulary, V_RANKS) // FEW_AFTER
        if low | high != 0 and once and many:
            reached = load_i64(other, L_REACHED)
            near = load_i64(other, L_STATES)
            base = base_of(grammar, automaton, vocabulary, reached, other)
            if base >= 0:
                told |= 2
                # The state after the first byte alone may be another one than that after more.
                _add_trie(job, FAR, low, high, base, reached, 1 if base == near else 2, MOST_BEFORE)
                if base != near:
                    _add_trie(job, NEAR, low, high, near, reached, 1, 1)
    return told


@helper
def choose_subtrees(automaton, job, loop, state, register, next_bytes):  # type: ignore[no-untyped-def]
    """Have the tokens of a wide context that begin with a byte which leaves its loop walked in the trie.

    Nothing settles them at once, but for those after a first byte and those of its class, so that as a rule all of them
    would be walked one by one; in the trie each byte that they share is read once, and all that is below a node may be
    alive. They are taken from `next_bytes`. Returns the work done.
    """
    klass, klasses = load_i64(loop, L_CLASS), section(automaton, AT_STATE_LOOP)
    other = loop + 8 * LOOP_WORDS
    after = load_i64(loop, L_AFTER) != 0
    low = high = 0
    work = 1
    for half in range(2):
        bits = load_i64(next_bytes, half) & ~load_i64(loop, L_STAY + half)
        if after:
            bits &= ~load_i64(other, L_FIRST + half)
        while bits != 0:
            bit = bits & -bits
            bits ^= bit
            byte = 64 * half + count_trailing_zeros(bit)
            target = local_step(automaton, state, byte, register)
            work += 1
            if target < 0 or (klass >= 0 and load_i32(klasses, target) == klass):
                continue
            if half == 0:
                low |= bit
            else:
                high |= bit
    _add_trie(job, SUBTREES, low, high, 0, 0, 0, 0)
    store_i64(next_bytes, 0, load_i64(next_bytes, 0) & ~low)
    store_i64(next_bytes, 1, load_i64(next_bytes, 1) & ~high)
    return work


@helper
def has_tries(job):  # type: ignore[no-untyped-def]
    """Is any trie left?"""
    more = 0
    for kind in range(TRIE_KINDS):
        more |= load_i64(trie_at(job, kind), TRIE_BYTES) | load_i64(trie_at(job, kind), TRIE_BYTES_HIGH)
    return more != 0


@helper
def next_trie(vocabulary, job):  # type: ignore[no-untyped-def]
    """(its kind, word of a root whose one child is its node, or without one): what is to be walked."""
    kind = 0
    while load_i64(trie_at(job, kind), TRIE_BYTES) | load_i64(trie_at(job, kind), TRIE_BYTES_HIGH) == 0:
        kind += 1
    trie = trie_at(job, kind)
    low = load_i64(trie, TRIE_BYTES)
    byte = count_trailing_zeros(low) if low != 0 else 64 + count_trailing_zeros(load_i64(trie, TRIE_BYTES_HIGH))
    node = load_i32(load_i64(vocabulary, V_BYTE_NODE if kind == SUBTREES else V_SUFFIX_BYTE), byte)
    return kind, (node << 32) | (1 << 16) if node >= 0 else 0


@helper
def end_trie(job, kind):  # type: ignore[no-untyped-def]
    """What `next_trie` names has been walked."""
    trie = trie_at(job, kind)
    low, high = load_i64(trie, TRIE_BYTES), load_i64(trie, TRIE_BYTES_HIGH)
    store_i64(trie, TRIE_BYTES, low & (low - 1))
    if low == 0:
        store_i64(trie, TRIE_BYTES_HIGH, high & (high - 1))


@helper
def fill_sets(loop, sets):  # type: ignore[no-untyped-def]
    """What `add_suffix_tokens` needs at `sets` besides the bytes inside the loop: those after a first byte, and these.

    256 bytes each, as `undecided.fill_stay` makes them.
    """
    other = loop + 8 * LOOP_WORDS
    fill_bytes(load_i64(other, L_STAY), load_i64(other, L_STAY + 1), load_i64(other, L_TEXT), sets + 256)
    fill_bytes(load_i64(other, L_FIRST), load_i64(other, L_FIRST + 1), load_i64(other, L_FIRST_TEXT), sets + 512)


@helper
def _is_inside(vocabulary, stay, first, entry):  # type: ignore[no-untyped-def]
    """Do all bytes before the suffix of an entry lie within the 256 bytes at `stay`, the first of them in `first`?"""
    record = load_i64(entry, 0)
    before = record >> 56
    outside = 1 - load_u8(first, record & 0xFF)
    for i in range(1, RECORD_BYTES):
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
def add_suffix_tokens(vocabulary, job, kind, sets, node, fuel, mask):  # type: ignore[no-untyped-def]
    """Set the bits of the tokens that end at a node of the suffixes, from J_SUFFIX on; returns the fuel left.

    J_SUFFIX is above 0 then where that ran out before all were looked at. `sets`: the bytes inside the loop, and what
    `fill_sets` adds.
    """
    trie = trie_at(job, kind)
    least, most = load_i64(trie, TRIE_LEAST), load_i64(trie, TRIE_MOST)
    stay, first = (sets, sets) if kind == SUFFIXES else (sets + 256, sets + 512)
    starts = load_i64(vocabulary, V_SUFFIX_TOKEN_START)
    begin, end = load_i32(starts, node), load_i32(starts, node + 1)
    entries = load_i64(vocabulary, V_SUFFIX_TOKENS)
    at = begin + load_i64(job, J_SUFFIX)
    while at < end:
        last = min(end, at + SUFFIXES_AT_ONCE)
        for i in range(at, last):
            entry = entries + 8 * ENTRY_WORDS * i
            if least <= load_i64(entry, 0) >> 56 <= most and _is_inside(vocabulary, stay, first, entry):
                set_bit(mask, load_i64(entry, 1) & 0xFFFFFFFF)
        fuel -= SUFFIX_COST * (last - at)
        at = last
        if fuel <= 0:
            break
    store_i64(job, J_SUFFIX, at - begin if at < end else 0)
    return fuel
