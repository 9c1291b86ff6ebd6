"""The selection of a wide state: which rows of the vocabulary's tables tell its tokens apart."""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import H_FLAGS, UTF8
from .bitmaps import (
    AFTER_LEAVING,
    AFTER_OUTSIDE,
    BLOCK_WORDS,
    COMMON,
    DEAD,
    EXCLUDED,
    FIRST,
    LEAVING,
    LISTS,
    OUTSIDE,
    S_AFTER_MEMBERS,
    S_COUNTS,
    S_EVERYTHING,
    S_FIRST,
    S_KEPT,
    S_KNOWN,
    S_LENGTH,
    S_LONGER,
    S_MASK,
    S_MEMBERS,
    S_NOTHING,
    S_ROWS,
    S_SETS,
    S_UNDECIDED,
    S_UNSETTLED,
    S_VALID,
    S_WORDS,
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
from .memory import count_bits, count_trailing_zeros, load_i32, load_i64, store_i64
from .trie import (
    NAMED,
    NAMED_HIGH,
    NAMED_LOW,
    V_ABSENT,
    V_BEGIN,
    V_FIRST_RANK,
    V_LENGTH,
    V_MAX_LENGTH,
    V_PRESENCE,
    V_RANK_WORDS,
    V_REST,
    V_VALID,
    V_WORDS,
)
from .undecided import keep_first_bytes, sort_undecided

#: Fuel that selecting and sorting tokens take at a time, about.
SELECTION_FUEL = 256
#: Words of the tables' rows that are read in the time of one byte edge (`bench/fuel.py`).
SELECTION_READS = 12
#: Rows that are read and written in any case: of tokens that are text, of the mask and of those undecided.
ROWS_ALWAYS = 4
#: So many tokens that begin with a byte are worth a row: those that lead to another loop, or are dead.
MANY_FIRST, MANY_EXCLUDED = 64, 256
#: More rows of dead first bytes are not worth their memory traffic.
MAX_EXCLUDED = 3
#: Bytes of a segment that may hold a named set.
LARGE_SEGMENT = 16


@helper
def _block_bits(size, byte):  # type: ignore[no-untyped-def]
    """Bits, in its own word, of the aligned block of at most 64 bytes that begins at `byte`."""
    return -1 if size == 64 else ((1 << size) - 1) << (byte & 63)


@helper
def _cover(table, row_bytes, sets, rows):  # type: ignore[no-untyped-def]
    """Addresses, at `rows`, of table rows whose union holds the bytes of one set and only bytes of another; how many.

    `sets`: 4 words each, the second behind the first, which is emptied. Segments grow from each byte while they stay
    within.
    """
    needed, wanted = sets, sets + 8 * 4
    n = 0
    # Large segments before the named sets, the others after them.
    for turn in range(2):
        for i in range(len(NAMED_LOW) if turn == 1 else 0):
            low, high = load_i64(needed, 0) & NAMED_LOW[i], load_i64(needed, 1) & NAMED_HIGH[i]
            beside = (NAMED_LOW[i] & ~load_i64(wanted, 0)) | (NAMED_HIGH[i] & ~load_i64(wanted, 1))
            if count_bits(low) + count_bits(high) > 1 and beside == 0:
                store_i64(rows, n, table + row_bytes * (NAMED + i))
                n += 1
                store_i64(needed, 0, load_i64(needed, 0) & ~low)
                store_i64(needed, 1, load_i64(needed, 1) & ~high)
        for word in range(4):
            left = load_i64(needed, word)
            while left != 0:
                byte = 64 * word + count_trailing_zeros(left)
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
                own = _block_bits(min(size, 64), byte & -min(size, 64))
                left &= ~own
                if turn == 0 and size < LARGE_SEGMENT:
                    continue
                store_i64(needed, word, load_i64(needed, word) & ~own)
                for other in range(begin >> 6, (begin + size) >> 6 if size > 64 else 0):
                    store_i64(needed, other, 0)
                store_i64(rows, n, table + row_bytes * ((256 + begin) // size))
                n += 1
    return n


@helper
def _inside(loop, word):  # type: ignore[no-untyped-def]
    """A word of the bytes of which the strings are made that stay in the loop."""
    return load_i64(loop, L_STAY + word) if word < 2 else -load_i64(loop, L_TEXT)


@helper
def _first(loop, word):  # type: ignore[no-untyped-def]
    """A word of the first bytes that lead to the state which the second half of `loop` describes."""
    other = loop + 8 * LOOP_WORDS
    if load_i64(loop, L_AFTER) == 0:
        return 0
    return load_i64(other, L_FIRST + word) if word < 2 else -load_i64(other, L_FIRST_TEXT)


@helper
def _often_first(vocabulary, bits, word, least):  # type: ignore[no-untyped-def]
    """Those of a word of bytes with which at least so many tokens begin."""
    first_rank = load_i64(vocabulary, V_FIRST_RANK)
    often = 0
    while bits != 0:
        byte = 64 * word + count_trailing_zeros(bits)
        if load_i32(first_rank, byte + 1) - load_i32(first_rank, byte) >= least:
            often |= bits & -bits
        bits &= bits - 1
    return often


@helper
def _find_sets(grammar, vocabulary, loop, next_bytes, kind, empty, told, sets):  # type: ignore[no-untyped-def]
    """Of list `kind`, the bytes of which its rows must tell, and those of which they may: 4 words each at `sets`.

    `empty`: the head itself stays nowhere.
    """
    other = loop + 8 * LOOP_WORDS
    after = load_i64(loop, L_AFTER) != 0
    live, absent = load_i64(grammar, G_LIVE), load_i64(vocabulary, V_ABSENT)
    # Dead punctuation is not told apart where one row holds all that is outside the loop.
    low, high = NAMED_LOW[0], NAMED_HIGH[0]
    stay_low, stay_high = load_i64(loop, L_STAY), load_i64(loop, L_STAY + 1)
    if after:
        stay_low |= load_i64(other, L_STAY)
        stay_high |= load_i64(other, L_STAY + 1)
    together = (low & stay_low) | (high & stay_high) == 0 and (
        (low & load_i64(live, 0)) | (high & load_i64(live, 1)) != 0
    )
    # Nor are dead bytes above U+007F, unless they all are.
    no_text = (load_i64(live, 2) & ~load_i64(absent, 2)) | (load_i64(live, 3) & ~load_i64(absent, 3)) == 0
    rows = 0
    for word in range(4):
        none, alive, first = load_i64(absent, word), load_i64(next_bytes, word), _first(loop, word)
        dead = ~load_i64(live, word)
        apart = dead
        if word < 2:
            if together:
                apart &= ~(low if word == 0 else high)
        elif not no_text:
            apart = 0
        inside, leave = _inside(loop, word), load_i64(loop, L_LEAVE + word)
        outside = ~inside & ~leave & ~apart
        inside_after, leave_after = _inside(other, word), load_i64(other, L_LEAVE + word)
        outside_after = ~inside_after & ~leave_after & ~apart
        common = outside & outside_after & ~first
        if empty or not after:
            common = 0
        needed, wanted = 0, 0
        if kind == LEAVING:
            needed = alive & ~first if empty else leave
            wanted = needed
        elif kind == DEAD:
            needed, wanted = apart, dead
        elif kind == OUTSIDE and not empty:
            needed, wanted = outside & ~common, ~inside
        elif kind == COMMON:
            needed, wanted = common, ~inside & ~inside_after & ~first
        elif kind == AFTER_LEAVING and after:
            needed, wanted = leave_after, leave_after
        elif kind == AFTER_OUTSIDE and after:
            needed, wanted = outside_after & ~common, ~inside_after
        elif kind == FIRST and after:
            # Tokens with other first bytes are told apart with the rest, where those that leave the loop are.
            apart_from_rest = empty or told & 1 != 0
            needed, wanted = first if apart_from_rest else _often_first(vocabulary, first, word, MANY_FIRST), first
        elif kind == EXCLUDED and rows < MAX_EXCLUDED and not empty and told & 1 == 0:
            needed, wanted = _often_first(vocabulary, ~alive & ~none & ~apart, word, MANY_EXCLUDED), ~alive
            rows += count_bits(needed)
        # No token has the absent bytes.
        store_i64(sets, word, needed & ~none)
        store_i64(sets, 4 + word, wanted | none)


@helper
def begin_selection(  # type: ignore[no-untyped-def]
    grammar, vocabulary, loop, next_bytes, selection, total, undecided, known, told
):
    """Prepare to add to `total` the tokens accepted wholesale, and to set `undecided` to those that must be walked.

    Returns how many rows of the tables are read. Three sets of bytes tell tokens apart: those that leave the
    loop, those on no edge of the grammar at all, and all others outside the loop. `loop`'s second half describes
    the state after a first byte likewise, for what follows it. `next_bytes`: the first bytes that are alive. `known`: a
    bitmap of tokens that are never undecided, or 0. `told`: 1 where those that leave the loop are not, 2 where those
    are not that leave it after a first byte.
    """
    row_bytes = 8 * load_i64(vocabulary, V_WORDS)
    presence = load_i64(vocabulary, V_PRESENCE)
    longest = load_i64(vocabulary, V_MAX_LENGTH)
    lengths = load_i64(vocabulary, V_LENGTH)
    nothing, everything = selection + 8 * S_NOTHING, selection + 8 * S_EVERYTHING
    for word in range(BLOCK_WORDS):
        store_i64(nothing, word, 0)
        store_i64(everything, word, -1)
    store_i64(selection, S_MASK, total)
    store_i64(selection, S_UNDECIDED, undecided)
    store_i64(selection, S_KNOWN, known if known != 0 else nothing)
    store_i64(selection, S_VALID, load_i64(vocabulary, V_VALID))
    n = ROWS_ALWAYS
    # Where every string is text, a token that is none is dead, or holds a byte that leaves the set.
    text_only = load_i64(load_i64(grammar, G_AUTOMATON), H_FLAGS) & UTF8 != 0
    store_i64(selection, S_UNSETTLED, nothing if text_only else presence + row_bytes)
    n += 0 if text_only else 1
    stays = load_i64(loop, L_STAY) | load_i64(loop, L_STAY + 1) | load_i64(loop, L_TEXT)
    after, other = load_i64(loop, L_AFTER) != 0, loop + 8 * LOOP_WORDS
    # Members of a class of which the head's other strings are not made are no matter of the set: they may stand beside
    # what follows a first byte.
    apart = after and load_i64(other, L_CLASS) < 0 and min(load_i64(loop, L_LIMIT), load_i64(other, L_LIMIT)) >= longest
    empty = stays == 0 and (load_i64(loop, L_CLASS) < 0 or apart)
    for part in range(2):
        own = loop + 8 * LOOP_WORDS * part
        fields = selection + 8 * (S_AFTER_MEMBERS - S_MEMBERS) * part
        members, length, longer = nothing, everything, everything
        klass, limit = load_i64(own, L_CLASS), min(max(load_i64(own, L_LIMIT), 0) + part, longest)
        if part == 0 and empty:
            length = nothing
        elif part == 0 or after:
            if klass >= 0:
                members = load_i64(load_i64(grammar, G_LOOP_BITS), klass) + row_bytes * part
            elif empty and load_i64(loop, L_CLASS) >= 0:
                members = load_i64(load_i64(grammar, G_LOOP_BITS), load_i64(loop, L_CLASS))
            n += 1 if members != nothing else 0
            if limit < longest:
                length = lengths + row_bytes * limit
                n += 1
                if load_i64(own, L_EXACT) == 0:
                    longer = length
        store_i64(fields, S_MEMBERS, members)
        store_i64(fields, S_LENGTH, length)
        store_i64(fields, S_LONGER, longer)
        store_i64(fields, S_KEPT, nothing if told & (1 + part) != 0 else everything)
    rows = 0
    for kind in range(LISTS):
        sets = selection + 8 * S_SETS
        _find_sets(grammar, vocabulary, loop, next_bytes, kind, empty, told, sets)
        table = presence
        if kind == AFTER_LEAVING or kind == AFTER_OUTSIDE:
            table = load_i64(vocabulary, V_REST)
        elif kind == FIRST or kind == EXCLUDED or (kind == LEAVING and empty):
            table = load_i64(vocabulary, V_BEGIN)
        count = _cover(table, row_bytes, sets, selection + 8 * (S_ROWS + rows))
        store_i64(selection, S_COUNTS + kind, count)
        rows += count
    return n + rows


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
