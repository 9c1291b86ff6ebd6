"""The selection of a wide state: which rows of the vocabulary's tables tell its tokens apart."""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import H_FLAGS, UTF8
from .bitmaps import (
    S_AFTER_LENGTH,
    S_AFTER_MEMBERS,
    S_COUNTS,
    S_LENGTH,
    S_LONGER,
    S_MASK,
    S_MEMBERS,
    S_ROWS,
    S_SHORT,
    S_UNDECIDED,
    S_UNSETTLED,
    S_VALID,
    S_WORDS,
    SELECTION_WORDS,
    select_tokens,
)
from .groups import MAX_FIRST, copy_part
from .layout import (
    G_AUTOMATON,
    G_LIVE,
    G_LOOP_BITS,
    L_AFTER,
    L_ASKED,
    L_CLASS,
    L_COVERED,
    L_EXACT,
    L_FIRST,
    L_FIRST_TEXT,
    L_GROUPS,
    L_INNER,
    L_LEAVE,
    L_LIMIT,
    L_STAY,
    L_SUBTREES,
    L_TEXT,
    LOOP_WORDS,
)
from .memory import count_trailing_zeros, load_i64, store_i64
from .trie import (
    PUNCTUATION,
    PUNCTUATION_HIGH,
    PUNCTUATION_LOW,
    V_ABSENT,
    V_BEGIN,
    V_LENGTH,
    V_MAX_LENGTH,
    V_PRESENCE,
    V_REST,
    V_VALID,
    V_WORDS,
)

#: More rows of first bytes than this are not worth their memory traffic: for a set of dead ones.
MAX_ALIVE = 3


@helper
def _block_bits(size, byte):  # type: ignore[no-untyped-def]
    """Bits, in its own word, of the aligned block of at most 64 bytes that begins at `byte`."""
    return -1 if size == 64 else ((1 << size) - 1) << (byte & 63)


@helper
def _cover(table, row_bytes, needed, wanted, rows):  # type: ignore[no-untyped-def]
    """Addresses, at `rows`, of table rows whose union holds the bytes of `needed` and only bytes of `wanted`; how many.

    Both sets are 4 words, `needed` is emptied. Segments grow from each byte while they stay within `wanted`.
    """
    n = 0
    if (load_i64(needed, 0) & PUNCTUATION_LOW) | (load_i64(needed, 1) & PUNCTUATION_HIGH) != 0 and (
        (PUNCTUATION_LOW & ~load_i64(wanted, 0)) | (PUNCTUATION_HIGH & ~load_i64(wanted, 1)) == 0
    ):
        store_i64(rows, 0, table + row_bytes * PUNCTUATION)
        n = 1
        store_i64(needed, 0, load_i64(needed, 0) & ~PUNCTUATION_LOW)
        store_i64(needed, 1, load_i64(needed, 1) & ~PUNCTUATION_HIGH)
    for word in range(4):
        while load_i64(needed, word) != 0:
            byte = 64 * word + count_trailing_zeros(load_i64(needed, word))
            size = 1
            while size < 256:
                begin = byte & -(2 * size)
                missing = 0
                if size < 64:
                    missing = _block_bits(2 * size, begin) & ~load_i64(wanted, begin >> 6)
                else:
                    for other in range(begin >> 6, (begin + 2 * size) >> 6):
                        missing |= ~load_i64(wanted, other)
                if missing != 0:
                    break
                size *= 2
            begin = byte & -size
            if size <= 64:
                store_i64(needed, word, load_i64(needed, word) & ~_block_bits(size, begin))
            else:
                for other in range(begin >> 6, (begin + size) >> 6):
                    store_i64(needed, other, 0)
            store_i64(rows, n, table + row_bytes * ((256 + begin) // size))
            n += 1
    return n


@helper
def _select_group(grammar, vocabulary, loop, group, next_bytes, selection, total, undecided):  # type: ignore[no-untyped-def]
    """Add to `total` the tokens accepted wholesale, to `undecided` those that must be walked.

    Returns (tokens accepted, tokens undecided, work done). Three sets of bytes tell tokens apart: those that leave the
    loop, those on no edge of the grammar at all, and all others outside the loop. `loop`'s second half describes
    the state after a first byte likewise, for what follows it. `next_bytes`: the first bytes that are alive, but for
    those of subtrees. Tokens that are told by their suffixes (L_INNER) are none of the undecided. `group` > 0:
    only of what `loop`'s second half describes.
    """
    words = load_i64(vocabulary, V_WORDS)
    row_bytes = 8 * words
    presence = load_i64(vocabulary, V_PRESENCE)
    longest = load_i64(vocabulary, V_MAX_LENGTH)
    lengths = load_i64(vocabulary, V_LENGTH)
    live = load_i64(grammar, G_LIVE)
    absent = load_i64(vocabulary, V_ABSENT)
    after = load_i64(loop, L_AFTER) != 0
    store_i64(selection, S_WORDS, words)
    store_i64(selection, S_MASK, total)
    store_i64(selection, S_UNDECIDED, undecided)
    store_i64(selection, S_VALID, load_i64(vocabulary, V_VALID))
    # A first byte by itself is one of the undecided in the first group, and alive in the others.
    store_i64(selection, S_SHORT, lengths + row_bytes if after and group == 0 else 0)
    # Where every string is text, a token that is none is dead, or holds a byte that leaves the set.
    text_only = load_i64(load_i64(grammar, G_AUTOMATON), H_FLAGS) & UTF8 != 0
    store_i64(selection, S_UNSETTLED, 0 if text_only or group > 0 else presence + row_bytes)
    # The two sets that a list of rows is made from lie behind all lists.
    needed = selection + 8 * (SELECTION_WORDS - 8)
    wanted = needed + 8 * 4
    # Dead punctuation is not told apart where one row holds all that is outside the loop.
    low, high = PUNCTUATION_LOW & load_i64(loop, L_STAY), PUNCTUATION_HIGH & load_i64(loop, L_STAY + 1)
    together = low | high == 0 and ((PUNCTUATION_LOW & load_i64(live, 0)) | (PUNCTUATION_HIGH & load_i64(live, 1)) != 0)
    n = 0
    for part in range(2):
        own = loop + 8 * LOOP_WORDS * part
        fields = selection + 8 * (S_AFTER_MEMBERS - S_MEMBERS) * part
        klass, limit = load_i64(own, L_CLASS), longest
        if (part == 1 and not after) or (part == 0 and group > 0):
            klass, limit = -1, 0
        else:
            limit = min(max(load_i64(own, L_LIMIT), 0) + part, longest)
        members = 0
        if klass >= 0:
            members = load_i64(grammar, G_LOOP_BITS) + row_bytes * (2 * klass + part)
        store_i64(fields, S_MEMBERS, members)
        short = 0 if limit == longest and members == 0 else lengths + row_bytes * limit
        store_i64(fields, S_LENGTH, short)
        none_longer = load_i64(own, L_EXACT) != 0 or (part == 1 and not after)
        store_i64(fields, S_LONGER, 0 if none_longer else short)
        for kind in range(-1 if part == 0 else 0, 3):
            if part == 1 and kind == 1:
                continue
            count = 0
            if part == 0 and group > 0 and kind != 1:
                if kind == 2:
                    store_i64(selection, S_ROWS + n, presence + row_bytes)  # all tokens
                    count = 1
            elif part == 0 or after:
                for word in range(4):
                    leave, dead = load_i64(own, L_LEAVE + word), ~load_i64(live, word)
                    inside = load_i64(own, L_STAY + word) if word < 2 else -load_i64(own, L_TEXT)
                    apart = dead
                    if together and word < 2:
                        apart &= ~(PUNCTUATION_LOW if word == 0 else PUNCTUATION_HIGH)
                    inner = load_i64(loop, L_INNER + word) if part == 0 and word < 2 else 0
                    whole, part_of = ~inside, ~inside & ~leave & ~apart
                    if kind == -1:
                        whole, part_of = inner, inner
                    elif kind == 0:
                        whole, part_of = leave & ~inner, leave & ~inner
                    elif kind == 1:
                        whole, part_of = dead, apart
                    # No token has the absent bytes.
                    store_i64(wanted, word, whole | load_i64(absent, word))
                    store_i64(needed, word, part_of & ~load_i64(absent, word))
                table = presence if part == 0 else load_i64(vocabulary, V_REST)
                count = _cover(table, row_bytes, needed, wanted, selection + 8 * (S_ROWS + n))
            store_i64(selection, S_COUNTS + (1 + kind if part == 0 else 4 + kind // 2), count)
            n += count
    # Tokens that begin with a dead byte are left out where few rows tell which; else at least those that begin with
    # a space, as if nothing were alive after one.
    begin = load_i64(vocabulary, V_BEGIN)
    low, high, text = 0, 0, 0
    if after:
        low, high = load_i64(loop, LOOP_WORDS + L_FIRST), load_i64(loop, LOOP_WORDS + L_FIRST + 1)
        text = -load_i64(loop, LOOP_WORDS + L_FIRST_TEXT)
    if group > 0:
        store_i64(selection, S_LENGTH, 0)
        store_i64(selection, S_LONGER, 0)
    # The first bytes of other groups are up to these.
    apart_low, apart_high = load_i64(loop, L_COVERED) & ~low, load_i64(loop, L_COVERED + 1) & ~high
    others = (load_i64(next_bytes, 0) & ~low) | (load_i64(next_bytes, 1) & ~high)
    others |= (load_i64(next_bytes, 2) | load_i64(next_bytes, 3)) & ~text
    for word in range(4):
        bits, none = load_i64(next_bytes, word), load_i64(absent, word)
        bits &= ~apart_low if word == 0 else ~apart_high if word == 1 else -1
        store_i64(wanted, word, bits | none)
        store_i64(needed, word, bits & ~none)
    alive_rows = selection + 8 * (S_ROWS + n + MAX_FIRST)
    alive = _cover(begin, row_bytes, needed, wanted, alive_rows)
    if alive == 0:
        store_i64(alive_rows, 0, presence)  # no token
        alive = 1
    if group > 0:
        alive = 0  # all tokens
    elif others != 0 and alive > MAX_ALIVE:
        away_low, away_high = load_i64(loop, L_SUBTREES) | apart_low, load_i64(loop, L_SUBTREES + 1) | apart_high
        if (load_i64(next_bytes, 0) >> 0x20) & 1 == 0:
            away_low |= 1 << 0x20
        if after and away_low | away_high != 0:
            for word in range(4):
                bits = ~away_low if word == 0 else ~away_high if word == 1 else -1
                store_i64(wanted, word, bits)
                store_i64(needed, word, bits & ~load_i64(absent, word))
            alive = _cover(begin, row_bytes, needed, wanted, alive_rows)
        else:
            alive = 0  # all tokens
            low |= away_low
            high |= away_high
    for word in range(4):
        bits, none = (low if word == 0 else high if word == 1 else text), load_i64(absent, word)
        store_i64(wanted, word, bits | none)
        store_i64(needed, word, bits & ~none)
    count = _cover(begin, row_bytes, needed, wanted, selection + 8 * (S_ROWS + n))
    if not after:
        # These first bytes only leave tokens out.
        store_i64(selection, S_AFTER_LENGTH, presence if count > 0 else 0)
    for i in range(alive):
        store_i64(selection, S_ROWS + n + count + i, load_i64(alive_rows, i))
    store_i64(selection, S_COUNTS + 6, count)
    store_i64(selection, S_COUNTS + 7, alive)
    n += count + alive
    counts = select_tokens(selection)
    return counts & 0xFFFFFFFF, counts >> 32, words * (n + 12) // 64


@helper
def select_wide(grammar, vocabulary, loop, next_bytes, selection, total, undecided):  # type: ignore[no-untyped-def]
    """Select for the state and all groups of first bytes of `loop`; as `_select_group`, `undecided` being set.

    Afterwards L_ASKED is that of all, and L_LIMIT is NO_LIMIT only where it is of all.
    """
    for word in range(load_i64(vocabulary, V_WORDS)):
        store_i64(undecided, word, 0)
    accepted, left, work = 0, 0, 0
    asked, limit = load_i64(loop, L_ASKED), load_i64(loop, L_LIMIT)
    for group in range(max(load_i64(loop, L_GROUPS), 1)):
        if group > 0:
            copy_part(loop, 2 + group, 1)
        if load_i64(loop, L_AFTER) != 0:
            asked |= load_i64(loop, LOOP_WORDS + L_ASKED)
            limit = min(limit, load_i64(loop, LOOP_WORDS + L_LIMIT))
        a, b, c = _select_group(grammar, vocabulary, loop, group, next_bytes, selection, total, undecided)
        accepted += a
        left += b
        work += c
    store_i64(loop, L_ASKED, asked)
    store_i64(loop, L_LIMIT, limit)
    return accepted, left, work
