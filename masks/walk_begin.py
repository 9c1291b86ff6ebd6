"""How the walk of a head begins: most tokens at once where its state is wide, and what is left to be walked."""

from __future__ import annotations

from .._numba import helper
from .groups import find_loops
from .layout import (
    B_JOB,
    B_JOB_LIST,
    B_JOB_RANKS,
    B_JOB_REGISTER,
    B_JOB_SELECTION,
    B_JOB_SETS,
    B_JOB_STATE,
    B_JOB_TOTAL,
    B_JOB_UNDECIDED,
    B_SCRATCH,
    B_VOCABULARY,
    CONFIG_FLAGS,
    CONFIG_HEADS,
    COUNT_CONTEXTS,
    G_BOUNDARY,
    G_LAZY_LOOP,
    G_LAZY_SETS,
    G_LAZY_WORDS,
    G_LIVE,
    HEAD_DEPTH,
    HEAD_STATES,
    HEAD_WORDS,
    J_CURSOR,
    J_FOLLOW,
    J_HEAD,
    J_LOOP,
    J_PATH_LENGTH,
    J_PATH_RANK,
    J_SOURCE,
    J_STAGE,
    L_AFTER,
    L_CLASS,
    L_COVERED,
    L_EXACT,
    L_GROUPS,
    L_LEAVE,
    L_LIMIT,
    L_SELF,
    L_STAY,
    L_TEXT,
    MAX_UNDECIDED,
    NO_LIMIT,
    RANKS,
    TRIE,
)
from .machine import add_head, close, head_at, top_register, top_state
from .memory import count_bits, count_trailing_zeros, load_i64, store_i64
from .path import CONFIG_COST, config_of
from .pool import count
from .select import select_wide
from .suffixes import choose_tries, has_tries, no_tries
from .trie import V_RANK_WORDS
from .undecided import fill_stay, sort_undecided
from .wide import MIN_WIDE_BYTES, add_next_bytes


@helper
def _begin_lazy(batch, grammar, automaton, vocabulary, state):  # type: ignore[no-untyped-def]
    """Prepare the walk of a lazy state set. Returns the work done."""
    job = load_i64(batch, B_JOB)
    loop = load_i64(job, J_LOOP)
    words = load_i64(grammar, G_LAZY_WORDS)
    source = load_i64(grammar, G_LAZY_SETS) + 8 * words * state
    best = -1
    weight = MIN_WIDE_BYTES - 1
    loops = load_i64(grammar, G_LAZY_LOOP)
    for word in range(words):
        bits = load_i64(source, word)
        store_i64(load_i64(batch, B_JOB_SETS), word, bits)
        while bits != 0:
            position = 64 * word + count_trailing_zeros(bits)
            bits &= bits - 1
            own = (
                count_bits(load_i64(loops, 3 * position))
                + count_bits(load_i64(loops, 3 * position + 1))
                + 128 * load_i64(loops, 3 * position + 2)
            )
            if own > weight:
                weight = own
                best = position
    if best < 0:
        return -1
    for k in range(3):
        store_i64(loop, L_STAY + k, load_i64(loops, 3 * best + k))
    store_i64(loop, L_CLASS, -1)
    for word in range(2):
        store_i64(loop, L_COVERED + word, 0)
    store_i64(loop, L_AFTER, 0)
    store_i64(loop, L_GROUPS, 0)
    store_i64(loop, L_SELF, 0)
    store_i64(loop, L_LIMIT, NO_LIMIT)
    store_i64(loop, L_EXACT, 0)
    for word in range(4):
        store_i64(loop, L_LEAVE + word, load_i64(load_i64(grammar, G_LIVE), word))
    for word in range(2):
        store_i64(loop, L_LEAVE + word, load_i64(loop, L_LEAVE + word) & ~load_i64(loop, L_STAY + word))
        if load_i64(loop, L_TEXT) != 0:
            store_i64(loop, L_LEAVE + 2 + word, 0)
    return words


@helper
def begin_head(batch, grammar, automaton, lazy, vocabulary):  # type: ignore[no-untyped-def]
    """Prepare the walk of the job's next head: TRIE or RANKS. Returns the work done."""
    job = load_i64(batch, B_JOB)
    loop = load_i64(job, J_LOOP)
    follow = load_i64(job, J_FOLLOW)
    source = load_i64(job, J_SOURCE)
    spare = config_of(batch, 2)  # entries 1 and 2 are free until the walk begins
    store_i64(job, J_PATH_RANK, -1)
    store_i64(job, J_PATH_LENGTH, 0)
    store_i64(job, J_CURSOR, 0)
    no_tries(loop)
    head = head_at(config_of(batch, 0), 0)
    for word in range(HEAD_WORDS):
        store_i64(head, word, load_i64(head_at(source, load_i64(job, J_HEAD)), word))
    count(batch, COUNT_CONTEXTS, 1)
    work = 1
    wide = False
    if lazy:
        store_i64(load_i64(batch, B_JOB_STATE), 0, -1)
        work = _begin_lazy(batch, grammar, automaton, vocabulary, top_state(head))
        wide = work >= 0 and vocabulary == load_i64(batch, B_VOCABULARY)
        work = max(work, 1)
    else:
        for word in range(4):
            store_i64(follow, word, 0)
        state, register = top_state(head), top_register(head)
        store_i64(load_i64(batch, B_JOB_STATE), 0, state)
        store_i64(load_i64(batch, B_JOB_REGISTER), 0, register)
        depth = load_i64(head, HEAD_DEPTH)
        if depth > 1:
            scratch = load_i64(batch, B_SCRATCH)
            store_i64(scratch, CONFIG_HEADS, 0)
            store_i64(scratch, CONFIG_FLAGS, 0)
            add_head(
                scratch,
                head,
                depth - 1,
                load_i64(head, HEAD_STATES + depth - 2),
                load_i64(head, HEAD_STATES + depth - 2 + (HEAD_WORDS - 1) // 2),
            )
            close(automaton, scratch, spare)
            add_next_bytes(grammar, automaton, spare, follow)
            work += CONFIG_COST
        if load_i64(grammar, G_BOUNDARY) == 0 and vocabulary == load_i64(batch, B_VOCABULARY):
            wide = find_loops(grammar, automaton, vocabulary, state, register, follow, loop)
            work += 2 * CONFIG_COST
    if wide:
        # Which first bytes are alive.
        next_bytes = config_of(batch, 1)
        for word in range(4):
            store_i64(next_bytes, word, -1 if lazy else 0)
        if not lazy:
            one = load_i64(batch, B_SCRATCH)
            store_i64(one, CONFIG_HEADS, 1)
            for word in range(HEAD_WORDS):
                store_i64(head_at(one, 0), word, load_i64(head, word))
            add_next_bytes(grammar, automaton, one, next_bytes)
            choose_tries(vocabulary, loop, next_bytes)
        undecided = load_i64(batch, B_JOB_UNDECIDED)
        accepted, left, more = select_wide(
            grammar,
            vocabulary,
            loop,
            next_bytes,
            load_i64(batch, B_JOB_SELECTION),
            load_i64(batch, B_JOB_TOTAL),
            undecided,
        )
        work += more
        # Where more tokens are left than were accepted, the trie with its dead subtrees is the shorter way.
        wide = left < min(2 * accepted + 1024, MAX_UNDECIDED)
        if wide:
            if left > 0 or has_tries(loop):
                fill_stay(loop, load_i64(batch, B_JOB_SELECTION))
            if left == 0:
                store_i64(job, J_CURSOR, load_i64(vocabulary, V_RANK_WORDS))
            else:
                sort_undecided(
                    vocabulary, loop, undecided, load_i64(batch, B_JOB_LIST), next_bytes, load_i64(batch, B_JOB_RANKS)
                )
            work += left
    if not wide:
        store_i64(job, J_PATH_LENGTH, -1)
        no_tries(loop)
    store_i64(job, J_STAGE, RANKS if wide else TRIE)
    return work
