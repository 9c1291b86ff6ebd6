"""How the walk of a context begins: over the whole vocabulary, below the nodes of a list, or after one space."""

from __future__ import annotations

from .._numba import helper
from .few import begin_few, take_tokens
from .fuel import count
from .layout import (
    B_JOB,
    B_JOB_CONFIGS,
    B_JOB_REGISTER,
    B_JOB_SELECTION,
    B_JOB_STATE,
    B_JOB_TOTAL,
    B_JOB_UNDECIDED,
    COUNT_CONTEXTS,
    FIND,
    G_AUTOMATON,
    G_STAMP,
    J_ACCEPTED,
    J_ADDED,
    J_CURSOR,
    J_DEPTH,
    J_EVENT_COUNT,
    J_FAILED,
    J_FEW,
    J_FOLLOW,
    J_GRAMMAR,
    J_HASH_HIGH,
    J_INCLUSIVE,
    J_KEY_COUNT,
    J_KEY_HIGH,
    J_KEY_LOW,
    J_LEFT,
    J_LIST,
    J_LIST_AT,
    J_LIST_LENGTH,
    J_LIST_NEW,
    J_LOOP,
    J_MEMO,
    J_PATH_LENGTH,
    J_PATH_RANK,
    J_REGISTER,
    J_ROOM,
    J_ROWS,
    J_RUN,
    J_SKIP,
    J_SORTED,
    J_SORTING,
    J_STAGE,
    J_STAMP,
    J_VOCABULARY,
    L_AFTER,
    L_ASKED,
    L_CLASS,
    L_FIRST,
    L_FIRST_TEXT,
    L_LIMIT,
    L_REACHED,
    LISTS,
    LOOP_WORDS,
    MEMO_UNFINISHED,
    NEXT_HEAD,
    NO_LIMIT,
    NOTE,
    RANKS,
    SELECT,
    STORE,
    TRIE,
)
from .leaving import (
    children_bytes,
    forget_leaving,
    note_added,
    note_asked,
    note_asked_any,
    note_calls,
    note_leaving,
    noting_cost,
)
from .loop_sets import begin_finding, loop_work, take_up
from .machine import AT_FRAME_FOLLOW, frame_of
from .memory import load_i32, load_i64, section, store_i64
from .path import CONFIG_COST
from .select import begin_selection, select_some
from .suffixes import base_of, choose_subtrees, no_tries
from .trie import V_MAX_LENGTH, V_NODE, V_NODE_PARENT
from .undecided import fill_stay
from .wide import add_first_bytes, find_loop, find_loops

#: Fuel that the nodes of a list take at a time, about.
NOTED_FUEL = 256


@helper
def begin_whole(batch, grammar, automaton, vocabulary):  # type: ignore[no-untyped-def]
    """Prepare the walk of the whole vocabulary, or of what follows one space: SELECT if the state is wide, else TRIE.

    FIND where finding that out is interrupted: this is called again then.

    Returns the work done.
    """
    job = load_i64(batch, B_JOB)
    loop, follow, memo = load_i64(job, J_LOOP), load_i64(job, J_FOLLOW), load_i64(job, J_MEMO)
    skipped = load_i64(job, J_DEPTH)
    state = load_i64(load_i64(batch, B_JOB_STATE), skipped)
    register = load_i64(load_i64(batch, B_JOB_REGISTER), skipped)
    work = CONFIG_COST
    own = loop + 8 * LOOP_WORDS * skipped
    for part in range(2):
        store_i64(loop + 8 * LOOP_WORDS * part, L_ASKED, 0)
    if skipped == 0:
        wide = find_loops(grammar, automaton, vocabulary, state, register, follow, loop, memo)
    else:
        # Nothing but a space may come first; then the state is what it is after one space.
        take_up(memo)
        wide = find_loop(grammar, automaton, vocabulary, state, register, follow, own, False, 0, memo)
        for word in range(LOOP_WORDS):
            store_i64(loop, word, 0)
        store_i64(loop, L_CLASS, -1)
        store_i64(loop, L_LIMIT, NO_LIMIT)
        store_i64(own, L_FIRST, 1 << 0x20)
        store_i64(own, L_FIRST + 1, 0)
        store_i64(own, L_FIRST_TEXT, 0)
        store_i64(own, L_REACHED, register)
        store_i64(loop, L_AFTER, 1)
    work += loop_work(loop)
    if load_i64(memo, MEMO_UNFINISHED) != 0:
        store_i64(job, J_STAGE, FIND)
        return work
    if wide:
        next_bytes = load_i64(batch, B_JOB_CONFIGS)
        for word in range(4):
            store_i64(next_bytes, word, 0)
        if skipped:
            store_i64(next_bytes, 0, 1 << 0x20)
        else:
            add_first_bytes(grammar, automaton, state, register, loop, next_bytes)
            work += choose_subtrees(automaton, job, loop, state, register, next_bytes)
        rows = begin_selection(
            grammar, vocabulary, loop, next_bytes,
            load_i64(batch, B_JOB_SELECTION), load_i64(batch, B_JOB_TOTAL), load_i64(batch, B_JOB_UNDECIDED), 0, 0,
        )  # fmt: skip
        store_i64(job, J_FEW, -1)
        store_i64(job, J_ROWS, rows)
        work += rows
        store_i64(job, J_ACCEPTED, 0)
        store_i64(job, J_LEFT, 0)
        store_i64(job, J_SORTING, 0)
        store_i64(job, J_CURSOR, 0)
        store_i64(job, J_STAGE, SELECT)
    else:
        _begin_narrow(batch, state, register)
    return work


@helper
def _begin_narrow(batch, state, register):  # type: ignore[no-untyped-def]
    """All is walked in the trie, from this state."""
    job = load_i64(batch, B_JOB)
    no_tries(job)
    store_i64(job, J_CURSOR, 0)
    store_i64(job, J_PATH_RANK, -1)
    store_i64(job, J_PATH_LENGTH, -1)
    if load_i64(job, J_DEPTH) == 0:
        store_i64(job, J_STAGE, TRIE)
    else:
        store_i64(load_i64(batch, B_JOB_STATE), 0, state)
        store_i64(load_i64(batch, B_JOB_REGISTER), 0, register)
        store_i64(job, J_STAGE, LISTS)


@helper
def select_whole(batch, vocabulary):  # type: ignore[no-untyped-def]
    """Go on choosing the tokens that must be walked one by one: the job goes on from SELECT. Returns the work done."""
    job = load_i64(batch, B_JOB)
    loop = load_i64(job, J_LOOP)
    skipped = load_i64(job, J_DEPTH)
    work, answer = select_some(batch, vocabulary, load_i64(batch, B_JOB_CONFIGS))
    if answer == 0:
        return work
    if answer < 0:
        states, registers = load_i64(batch, B_JOB_STATE), load_i64(batch, B_JOB_REGISTER)
        _begin_narrow(batch, load_i64(states, skipped), load_i64(registers, skipped))
        return work
    asked = load_i64(loop, L_ASKED) | load_i64(loop + 8 * LOOP_WORDS, L_ASKED)
    if asked & 1 != 0:
        note_asked_any(batch)
    if asked & 2 != 0:
        note_asked(batch)
    other = loop + 8 * LOOP_WORDS
    after = load_i64(loop, L_AFTER) != 0
    if after:
        note_added(batch, load_i64(other, L_REACHED))
    if (after and load_i64(other, L_LIMIT) != NO_LIMIT) or load_i64(loop, L_LIMIT) != NO_LIMIT:
        # A counter: which tokens are short enough depends on its room as far as the longest.
        store_i64(job, J_ROOM, load_i64(vocabulary, V_MAX_LENGTH))
    if skipped:
        for word in range(LOOP_WORDS):
            store_i64(loop, word, load_i64(loop + 8 * LOOP_WORDS, word))
    fill_stay(loop, load_i64(batch, B_JOB_SELECTION))
    grammar, register = load_i64(job, J_GRAMMAR), load_i64(load_i64(batch, B_JOB_REGISTER), skipped)
    store_i64(job, J_RUN, base_of(grammar, load_i64(grammar, G_AUTOMATON), vocabulary, register, loop))
    store_i64(job, J_PATH_RANK, -1)
    store_i64(job, J_PATH_LENGTH, skipped)
    store_i64(job, J_STAGE, RANKS)
    return work


@helper
def begin_context(batch, grammar, vocabulary, state, register, listed, length, inclusive, low, high):  # type: ignore[no-untyped-def]
    """Begin the walk of a context: of the whole vocabulary (`listed` 0), or below the `length` trie nodes there.

    `inclusive`: of what ends or leaves the frame at these nodes as well.
    """
    job = load_i64(batch, B_JOB)
    automaton = load_i64(grammar, G_AUTOMATON)
    begin_few(batch)
    follow = load_i64(job, J_FOLLOW)
    frame = frame_of(automaton, state)
    for word in range(4):
        store_i64(follow, word, load_i64(section(automaton, AT_FRAME_FOLLOW), 4 * frame + word))
    stamp = load_i64(grammar, G_STAMP) + 1
    store_i64(grammar, G_STAMP, stamp)
    store_i64(load_i64(batch, B_JOB_STATE), 0, state)
    store_i64(load_i64(batch, B_JOB_REGISTER), 0, register)
    begin_finding(load_i64(job, J_MEMO))
    forget_leaving(job)
    store_i64(job, J_STAGE, NOTE if listed != 0 else NEXT_HEAD)
    store_i64(job, J_INCLUSIVE, 1 if inclusive else 0)
    store_i64(job, J_KEY_LOW, low)
    store_i64(job, J_KEY_HIGH, high)
    store_i64(job, J_GRAMMAR, grammar)
    store_i64(job, J_VOCABULARY, vocabulary)
    store_i64(job, J_LIST, listed)
    store_i64(job, J_LIST_LENGTH, length)
    store_i64(job, J_LIST_AT, 0)
    store_i64(job, J_PATH_LENGTH, -1)
    store_i64(job, J_DEPTH, 0)
    store_i64(job, J_STAMP, stamp)
    store_i64(job, J_EVENT_COUNT, 0)
    store_i64(job, J_KEY_COUNT, 0)
    store_i64(job, J_SKIP, -1)
    no_tries(job)
    store_i64(job, J_FAILED, 0)
    store_i64(job, J_REGISTER, register)
    store_i64(job, J_ADDED, 0)
    store_i64(job, J_ROOM, 0)
    count(batch, COUNT_CONTEXTS, 1)


@helper
def begin_storing(batch):  # type: ignore[no-untyped-def]
    """What the job has found is all there is: its lists are sorted, hashed and stored from here on."""
    job = load_i64(batch, B_JOB)
    for word in range(J_SORTED, J_HASH_HIGH + 1):
        store_i64(job, word, 0)
    store_i64(job, J_LIST_NEW, -1)
    store_i64(job, J_STAGE, STORE)


@helper
def note_list(batch, grammar, vocabulary):  # type: ignore[no-untyped-def]
    """Go on with what happens at the nodes of the job's list themselves, for about NOTED_FUEL. Returns the work done.

    Calls may come first: on the same list, as a rule all of it. The stage is NEXT_HEAD when all are done.
    """
    job = load_i64(batch, B_JOB)
    automaton = load_i64(grammar, G_AUTOMATON)
    listed, length = load_i64(job, J_LIST), load_i64(job, J_LIST_LENGTH)
    states, registers = load_i64(batch, B_JOB_STATE), load_i64(batch, B_JOB_REGISTER)
    state, register = load_i64(states, 0), load_i64(registers, 0)
    table, parents = load_i64(vocabulary, V_NODE), load_i64(vocabulary, V_NODE_PARENT)
    inclusive = load_i64(job, J_INCLUSIVE) != 0
    at = load_i64(job, J_LIST_AT)
    work = 1
    while at < length and work < NOTED_FUEL:
        node = load_i32(listed, at)
        at += 1
        packed = load_i64(table, node)
        # What follows one space is half of all tokens: not walked in the trie where the state is wide.
        if packed & 0xFF == 0x20 and load_i32(parents, node) < 0:
            store_i64(job, J_DEPTH, 1)
        a, b, c, d = children_bytes(vocabulary, packed)
        work += noting_cost(packed)
        if inclusive:
            take_tokens(batch, vocabulary, load_i64(batch, B_JOB_TOTAL), node, packed)
            note_leaving(batch, grammar, automaton, state, register, node, a, b, c, d)
        else:
            note_calls(batch, grammar, automaton, state, register, node, a, b, c, d)
    store_i64(job, J_LIST_AT, at)
    if at == length:
        store_i64(job, J_LIST_AT, 0)
        store_i64(job, J_STAGE, NEXT_HEAD)
        if load_i64(job, J_DEPTH) > 0:
            store_i64(states, 1, state)
            store_i64(registers, 1, register)
    return work
