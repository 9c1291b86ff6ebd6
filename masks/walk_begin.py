"""How the walk of a head begins: most tokens at once where its state is wide, and what is left to be walked."""

from __future__ import annotations

from .._numba import helper
from .fuel import count
from .layout import (
    B_JOB,
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
    FIND,
    G_BOUNDARY,
    G_LAZY_LOOP,
    G_LAZY_SETS,
    G_LAZY_WORDS,
    G_LIVE,
    G_LOOP_SIZE,
    HEAD_DEPTH,
    HEAD_STATES,
    HEAD_WORDS,
    J_ACCEPTED,
    J_CURSOR,
    J_FOLLOW,
    J_HEAD,
    J_LEFT,
    J_LOOP,
    J_MEMO,
    J_PATH_LENGTH,
    J_PATH_RANK,
    J_ROWS,
    J_SORTING,
    J_SOURCE,
    J_STAGE,
    L_AFTER,
    L_CLASS,
    L_EXACT,
    L_LEAVE,
    L_LIMIT,
    L_SELF,
    L_STAY,
    L_TEXT,
    MEMO_UNFINISHED,
    NO_LIMIT,
    RANKS,
    SELECT,
    TRIE,
)
from .loop_sets import begin_finding, loop_work
from .machine import AT_LAZY_LOOP, add_head, close, head_at, top_register, top_state
from .memory import count_bits, count_trailing_zeros, load_i32, load_i64, section, store_i64
from .path import CONFIG_COST, config_of
from .select import begin_selection, select_some
from .suffixes import choose_tries, fill_sets, has_tries, no_tries
from .undecided import fill_stay
from .wide import MIN_CLASS_TOKENS, MIN_WIDE_BYTES, add_first_bytes, add_next_bytes, find_loops


@helper
def _begin_lazy(batch, grammar, automaton, vocabulary, state):  # type: ignore[no-untyped-def]
    """Prepare the walk of a lazy state set. Returns the work done."""
    job = load_i64(batch, B_JOB)
    loop = load_i64(job, J_LOOP)
    words = load_i64(grammar, G_LAZY_WORDS)
    source = load_i64(grammar, G_LAZY_SETS) + 8 * words * state
    best, best_class = -1, -1
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
            klass = -1
            if load_i64(loops, 3 * position + 2) == 0:
                klass = load_i32(section(automaton, AT_LAZY_LOOP), position)
                if klass >= 0 and load_i32(load_i64(grammar, G_LOOP_SIZE), klass) >= MIN_CLASS_TOKENS:
                    own += 64
                else:
                    klass = -1
            if own > weight:
                weight = own
                best, best_class = position, klass
    if best < 0:
        return -1
    for k in range(3):
        store_i64(loop, L_STAY + k, load_i64(loops, 3 * best + k))
    store_i64(loop, L_CLASS, best_class)
    store_i64(loop, L_AFTER, 0)
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
    """Prepare the walk of the job's next head: its stage is FIND then. Returns the work done."""
    job = load_i64(batch, B_JOB)
    follow = load_i64(job, J_FOLLOW)
    source = load_i64(job, J_SOURCE)
    spare = config_of(batch, 2)  # entries 1 and 2 are free until the walk begins
    store_i64(job, J_PATH_RANK, -1)
    store_i64(job, J_PATH_LENGTH, 0)
    store_i64(job, J_CURSOR, 0)
    head = head_at(config_of(batch, 0), 0)
    for word in range(HEAD_WORDS):
        store_i64(head, word, load_i64(head_at(source, load_i64(job, J_HEAD)), word))
    count(batch, COUNT_CONTEXTS, 1)
    work = 1
    begin_finding(load_i64(job, J_MEMO))
    no_tries(job)
    store_i64(job, J_STAGE, FIND)
    if not lazy:
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
    return work


@helper
def find_wide(batch, grammar, automaton, lazy, vocabulary):  # type: ignore[no-untyped-def]
    """Find out whether the head is wide: SELECT then, else TRIE; FIND where that is interrupted. Returns the work."""
    job = load_i64(batch, B_JOB)
    loop, memo = load_i64(job, J_LOOP), load_i64(job, J_MEMO)
    head = head_at(config_of(batch, 0), 0)
    wide = False
    if lazy:
        store_i64(load_i64(batch, B_JOB_STATE), 0, -1)
        work = _begin_lazy(batch, grammar, automaton, vocabulary, top_state(head))
        wide = work >= 0 and vocabulary == load_i64(batch, B_VOCABULARY)
        work = max(work, 1)
    else:
        work = CONFIG_COST
        if load_i64(grammar, G_BOUNDARY) == 0 and vocabulary == load_i64(batch, B_VOCABULARY):
            state, register = load_i64(load_i64(batch, B_JOB_STATE), 0), load_i64(load_i64(batch, B_JOB_REGISTER), 0)
            wide = find_loops(grammar, automaton, vocabulary, state, register, load_i64(job, J_FOLLOW), loop, memo)
            work += loop_work(loop)
            if load_i64(memo, MEMO_UNFINISHED) != 0:
                return work
    if wide:
        # Which first bytes are alive.
        next_bytes, told = config_of(batch, 1), 0
        for word in range(4):
            store_i64(next_bytes, word, -1 if lazy else 0)
        if not lazy:
            add_first_bytes(grammar, automaton, top_state(head), top_register(head), loop, next_bytes)
            told = choose_tries(grammar, automaton, vocabulary, job, loop, top_register(head), next_bytes)
        total = load_i64(batch, B_JOB_TOTAL)
        rows = begin_selection(
            grammar, vocabulary, loop, next_bytes,
            load_i64(batch, B_JOB_SELECTION), total, load_i64(batch, B_JOB_UNDECIDED), total, told,
        )  # fmt: skip
        store_i64(job, J_ROWS, rows)
        store_i64(job, J_ACCEPTED, 0)
        store_i64(job, J_LEFT, 0)
        store_i64(job, J_SORTING, 0)
        work += rows
    else:
        store_i64(job, J_PATH_LENGTH, -1)
    store_i64(job, J_STAGE, SELECT if wide else TRIE)
    return work


@helper
def select_undecided(batch, vocabulary):  # type: ignore[no-untyped-def]
    """Go on choosing the tokens that must be walked one by one. Returns the work done."""
    job = load_i64(batch, B_JOB)
    work, answer = select_some(batch, vocabulary, config_of(batch, 1))
    loop, sets = load_i64(job, J_LOOP), load_i64(batch, B_JOB_SELECTION)
    if answer > 0:
        fill_stay(loop, sets)
        if has_tries(job):
            fill_sets(loop, sets)
        store_i64(job, J_STAGE, RANKS)
    elif answer < 0:
        no_tries(job)
        store_i64(job, J_PATH_LENGTH, -1)
        store_i64(job, J_STAGE, TRIE)
    return work
