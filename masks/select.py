"""The selection of a wide state: which rows of the vocabulary's tables tell its tokens apart."""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import H_FLAGS, UTF8
from .bitmaps import (
    S_AFTER_MEMBERS,
    S_COUNTS,
    S_FIRST,
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
from .layout import (
    B_JOB,
    B_JOB_LIST,
    B_JOB_RANKS,
    B_JOB_SELECTION,
    B_JOB_UNDECIDED,
    G_AUTOMATON,
    G_LIVE,
    G_LOOP_BITS,
    J_ACCEPTED,
    J_CURSOR,
    J_LEFT,
    J_ROWS,
    J_SORTING,
    L_AFTER,
    L_CLASS,
    L_EXACT,
    L_FIRST,
    L_FIRST_TEXT,
    L_LEAVE,
    L_LIMIT,
    L_STAY,
    L_TEXT,
    LOOP_WORDS,
    MAX_UNDECIDED,
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
    V_RANK_WORDS,
    V_REST,
    V_VALID,
    V_WORDS,
)
from .undecided import keep_first_bytes, sort_undecided
from .wide import MAX_FIRST

#: Fuel that selecting and sorting tokens take at a time, about.
SELECTION_FUEL = 256
#: Words of the tables' rows that are read in the time of one byte edge (`bench/fuel.py`).
SELECTION_READS = 16
#: Rows that are read and written besides those that tell tokens apart.
SELECTION_ROWS = 12
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
def begin_selection(grammar, vocabulary, loop, next_bytes, selection, total, undecided):  # type: ignore[no-untyped-def]
    """Prepare to add to `total` the tokens accepted wholesale, and to set `undecided` to those that must be walked.

    Returns how many rows of the tables are read. Three sets of bytes tell tokens apart: those that leave the
    loop, those on no edge of the grammar at all, and all others outside the loop. `loop`'s second half describes
    the state after a first byte likewise, for what follows it. `next_bytes`: the first bytes that are alive.
    """
    row_bytes = 8 * load_i64(vocabulary, V_WORDS)
    presence = load_i64(vocabulary, V_PRESENCE)
    nothing = presence
    longest = load_i64(vocabulary, V_MAX_LENGTH)
    lengths = load_i64(vocabulary, V_LENGTH)
    live = load_i64(grammar, G_LIVE)
    absent = load_i64(vocabulary, V_ABSENT)
    after = load_i64(loop, L_AFTER) != 0
    store_i64(selection, S_MASK, total)
    store_i64(selection, S_UNDECIDED, undecided)
    store_i64(selection, S_VALID, load_i64(vocabulary, V_VALID))
    store_i64(selection, S_SHORT, lengths + row_bytes)
    # Where every string is text, a token that is none is dead, or holds a byte that leaves the set.
    text_only = load_i64(load_i64(grammar, G_AUTOMATON), H_FLAGS) & UTF8 != 0
    store_i64(selection, S_UNSETTLED, nothing if text_only else presence + row_bytes)
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
        if part == 1 and not after:
            klass, limit = -1, 0
        else:
            limit = min(max(load_i64(own, L_LIMIT), 0) + part, longest)
        members = nothing
        if klass >= 0:
            members = load_i64(grammar, G_LOOP_BITS) + row_bytes * (2 * klass + part)
        store_i64(fields, S_MEMBERS, members)
        store_i64(fields, S_LENGTH, lengths + row_bytes * limit)
        none_longer = load_i64(own, L_EXACT) != 0 or (part == 1 and not after)
        store_i64(fields, S_LONGER, lengths + row_bytes * (longest if none_longer else limit))
        for kind in range(3):
            if part == 1 and kind == 1:
                continue
            count = 0
            if part == 0 or after:
                for word in range(4):
                    leave, dead = load_i64(own, L_LEAVE + word), ~load_i64(live, word)
                    inside = load_i64(own, L_STAY + word) if word < 2 else -load_i64(own, L_TEXT)
                    apart = dead
                    if together and word < 2:
                        apart &= ~(PUNCTUATION_LOW if word == 0 else PUNCTUATION_HIGH)
                    whole, part_of = ~inside, ~inside & ~leave & ~apart
                    if kind == 0:
                        whole, part_of = leave, leave
                    elif kind == 1:
                        whole, part_of = dead, apart
                    # No token has the absent bytes.
                    store_i64(wanted, word, whole | load_i64(absent, word))
                    store_i64(needed, word, part_of & ~load_i64(absent, word))
                table = presence if part == 0 else load_i64(vocabulary, V_REST)
                count = _cover(table, row_bytes, needed, wanted, selection + 8 * (S_ROWS + n))
            store_i64(selection, S_COUNTS + (kind if part == 0 else 3 + kind // 2), count)
            n += count
    # Tokens that begin with a dead byte are left out where few rows tell which; else at least those that begin with
    # a space, as if nothing were alive after one.
    begin = load_i64(vocabulary, V_BEGIN)
    low, high, text = 0, 0, 0
    if after:
        low, high = load_i64(loop, LOOP_WORDS + L_FIRST), load_i64(loop, LOOP_WORDS + L_FIRST + 1)
        text = -load_i64(loop, LOOP_WORDS + L_FIRST_TEXT)
    others = (load_i64(next_bytes, 0) & ~low) | (load_i64(next_bytes, 1) & ~high)
    others |= (load_i64(next_bytes, 2) | load_i64(next_bytes, 3)) & ~text
    for word in range(4):
        bits, none = load_i64(next_bytes, word), load_i64(absent, word)
        store_i64(wanted, word, bits | none)
        store_i64(needed, word, bits & ~none)
    alive_rows = selection + 8 * (S_ROWS + n + MAX_FIRST)
    alive = _cover(begin, row_bytes, needed, wanted, alive_rows)
    if others != 0 and alive > MAX_ALIVE:
        spaced = (load_i64(next_bytes, 0) >> 0x20) & 1 != 0
        if after and not spaced:
            for word in range(4):
                bits = ~(1 << 0x20) if word == 0 else -1
                store_i64(wanted, word, bits)
                store_i64(needed, word, bits & ~load_i64(absent, word))
            alive = _cover(begin, row_bytes, needed, wanted, alive_rows)
        else:
            store_i64(alive_rows, 0, presence + row_bytes)  # all tokens
            alive = 1
            if not spaced:
                low = 1 << 0x20
    for word in range(4):
        bits, none = (low if word == 0 else high if word == 1 else text), load_i64(absent, word)
        store_i64(wanted, word, bits | none)
        store_i64(needed, word, bits & ~none)
    count = _cover(begin, row_bytes, needed, wanted, selection + 8 * (S_ROWS + n))
    for i in range(alive):
        store_i64(selection, S_ROWS + n + count + i, load_i64(alive_rows, i))
    store_i64(selection, S_COUNTS + 5, count)
    store_i64(selection, S_COUNTS + 6, alive)
    n += count + alive
    return n + SELECTION_ROWS


@helper
def select_some(batch, vocabulary, next_bytes):  # type: ignore[no-untyped-def]
    """Go on with what `begin_selection` prepared, for about SELECTION_FUEL; then sort the undecided, likewise.

    Returns (work, 0 as long as there is more to do; then 1, or -1 where the trie is the shorter way). The job's stage
    is SELECT until then. `next_bytes`: the first bytes that are alive.
    """
    job = load_i64(batch, B_JOB)
    selection, undecided = load_i64(batch, B_JOB_SELECTION), load_i64(batch, B_JOB_UNDECIDED)
    words = load_i64(vocabulary, V_WORDS)
    first = load_i64(job, J_CURSOR)
    if load_i64(job, J_SORTING) == 0:
        rows = load_i64(job, J_ROWS)
        last = min(words, first + max(16, (SELECTION_FUEL * SELECTION_READS // rows) & -16))
        store_i64(selection, S_FIRST, first)
        store_i64(selection, S_WORDS, last)
        counts = select_tokens(selection)
        store_i64(job, J_ACCEPTED, load_i64(job, J_ACCEPTED) + (counts & 0xFFFFFFFF))
        store_i64(job, J_LEFT, load_i64(job, J_LEFT) + (counts >> 32))
        store_i64(job, J_CURSOR, last)
        work = (last - first) * rows // SELECTION_READS + 1
        if last < words:
            return work, 0
        store_i64(job, J_CURSOR, 0)
        # Where more tokens are left than were accepted, the trie with its dead subtrees is the shorter way.
        left = load_i64(job, J_LEFT)
        if left >= min(2 * load_i64(job, J_ACCEPTED) + 1024, MAX_UNDECIDED):
            return work, -1
        if left == 0:
            store_i64(job, J_CURSOR, load_i64(vocabulary, V_RANK_WORDS))
            return work, 1
        store_i64(job, J_SORTING, 1)
        return work, 0
    ranks = load_i64(batch, B_JOB_RANKS)
    last, found = sort_undecided(vocabulary, undecided, load_i64(batch, B_JOB_LIST), ranks, first)
    store_i64(job, J_CURSOR, last)
    work = (last - first) // SELECTION_READS + found + 1
    if last < words:
        return work, 0
    keep_first_bytes(vocabulary, next_bytes, ranks)
    store_i64(job, J_CURSOR, 0)
    return work, 1
