"""Contexts: what one state does to the vocabulary within its own frame, whatever stack is below. Resumable.

The walk never leaves the frame. It finds the tokens alive there (the context's own mask), the trie nodes at which the
frame may return, and for each call edge the trie nodes at which that call may be made: lists that are walked again,
from the states that a real stack returns to and from the starts of the frames called (`masks.contexts`). A context is
walked over the whole vocabulary, from byte edges only (what a resting head calls are heads of their own), or below the
nodes of such a list, where calls may come first.
"""

from __future__ import annotations

from .._numba import helper, kernel
from ..grammar.automaton import (
    COUNTER,
    FINAL,
    GUARDED,
    H_N_CLASSES,
    HAS_CALLS,
    HAS_OPERATIONS,
    HAS_TOKENS,
    MEMBERS,
)
from .context_begin import begin_whole, note_list, select_whole
from .few import take_below, take_token, take_tokens, work_of_total
from .fuel import count
from .layout import (
    B_JOB,
    B_JOB_CHILDREN,
    B_JOB_RANKS,
    B_JOB_REGISTER,
    B_JOB_SELECTION,
    B_JOB_STATE,
    B_JOB_TOTAL,
    B_VOCABULARY,
    COUNT_WORK,
    FIND,
    G_AUTOMATON,
    G_TOKEN_IDS,
    IDLE,
    J_CURSOR,
    J_DEPTH,
    J_FAILED,
    J_GRAMMAR,
    J_LIST,
    J_LIST_AT,
    J_LIST_LENGTH,
    J_PATH_BEGUN,
    J_PATH_LENGTH,
    J_PATH_NOTED,
    J_PATH_RANK,
    J_RUN,
    J_SKIP,
    J_STAGE,
    J_UNFINISHED,
    J_VOCABULARY,
    LISTS,
    NEXT_HEAD,
    NOTE,
    RANKS,
    SELECT,
    SUBTREES,
    TRIE,
    TRIES,
)
from .leaving import (
    NOTE_COST,
    ask,
    bytes_leaving,
    groups_staying,
    node_of,
    note_added,
    note_at,
    note_children,
    note_operations,
)
from .machine import (
    AT_BYTE_CLASS,
    AT_DENSE,
    AT_EDGES,
    AT_FRAME_KIND,
    AT_STATE_FLAGS,
    AT_TOKEN_START,
    AT_TOKEN_SYMBOL,
    delta,
    flags_of,
    frame_of,
    next_register,
    only_operations,
    restart_of,
)
from .members import asks
from .memory import count_trailing_zeros, load_i32, load_i64, load_u8, section, store_i64
from .path import TOKEN_COST, set_bit, shared_bytes, step_fast
from .suffixes import end_trie, has_tries, next_trie
from .trie import (
    ALL_GROUPS,
    GROUPS_SHIFT,
    RECORD_BYTES,
    RECORD_LENGTH,
    RECORD_VALID,
    V_BYTE_NODE,
    V_FIRST_RANK,
    V_NODE,
    V_RANK_BYTES,
    V_RANK_ID,
    V_RANK_START,
    V_RANK_WORDS,
    V_RECORD,
    V_ROOT,
)

#: What `run_context` returns where there is no context for this state: its counter may go on in two ways at once.
FAILED = -2


@helper
def _slow_states(automaton, state):  # type: ignore[no-untyped-def]
    """Flags of the states of this one's frame that are more than their byte edges, as `path.step_fast` takes them.

    The ends of items in a counter, and where members begin or registers are asked.
    """
    kind = load_u8(section(automaton, AT_FRAME_KIND), frame_of(automaton, state))
    flags = 0
    if kind == COUNTER:
        flags = FINAL
    elif kind == MEMBERS:
        flags = GUARDED | HAS_OPERATIONS
    return flags


@helper
def _step_register(batch, automaton, depth, byte):  # type: ignore[no-untyped-def]
    """Extend the path by one byte that may begin another item or ask. Returns the target, -1 where it dies."""
    states, registers = load_i64(batch, B_JOB_STATE), load_i64(batch, B_JOB_REGISTER)
    state, register = load_i64(states, depth), load_i64(registers, depth)
    target = delta(automaton, state, byte)
    start = restart_of(automaton, state, register)
    if start >= 0:
        other = delta(automaton, start, byte)
        if other >= 0:
            if target >= 0:
                store_i64(load_i64(batch, B_JOB), J_FAILED, 1)
            target = other
            register = next_register(automaton, state, register)
            note_added(batch, register)
    elif target >= 0 and asks(automaton, target) and not ask(batch, automaton, target, register):
        target = -1
    store_i64(states, depth + 1, target)
    store_i64(registers, depth + 1, register)
    return target


@helper
def _walk_children(batch, grammar, automaton, vocabulary, special, packed, fuel):  # type: ignore[no-untyped-def]
    """Go on through the subtree below the trie node of word `packed`. Returns the fuel left; see J_UNFINISHED.

    `special`: `_slow_states`.
    """
    job = load_i64(batch, B_JOB)
    total = load_i64(batch, B_JOB_TOTAL)
    table = load_i64(vocabulary, V_NODE)
    children = load_i64(batch, B_JOB_CHILDREN)
    edges = section(automaton, AT_EDGES)
    dense = section(automaton, AT_DENSE)
    classes = section(automaton, AT_BYTE_CLASS)
    n_classes = load_i64(automaton, H_N_CLASSES)
    flags = section(automaton, AT_STATE_FLAGS)
    states = load_i64(batch, B_JOB_STATE)
    registers = load_i64(batch, B_JOB_REGISTER)
    depth = load_i64(job, J_PATH_LENGTH)
    child = packed >> 32
    end = child + ((packed >> 16) & 0xFFFF)
    if depth >= 0:
        packed = load_i64(children, depth)
        child, end = packed & 0xFFFFFFFF, packed >> 32
    else:
        depth = 0
    while True:
        if child == end:
            if depth == 0:
                break
            depth -= 1
            packed = load_i64(children, depth)
            child, end = packed & 0xFFFFFFFF, packed >> 32
            continue
        if fuel <= 0:
            store_i64(children, depth, child | (end << 32))
            store_i64(job, J_PATH_LENGTH, depth)
            store_i64(job, J_UNFINISHED, 1)
            return fuel
        node = child
        packed = load_i64(table, node)
        child += 1
        byte = packed & 0xFF
        fuel -= 1
        target = step_fast(automaton, edges, dense, classes, n_classes, flags, special, load_i64(states, depth), byte)
        if target == -1:
            continue
        if target >= 0:
            store_i64(states, depth + 1, target)
            store_i64(registers, depth + 1, load_i64(registers, depth))
        else:
            target = _step_register(batch, automaton, depth, byte)
            if target < 0:
                continue
            if load_u8(flags, target) & HAS_OPERATIONS != 0:
                # What the members that begin here do is a context of its own.
                note_operations(batch, grammar, automaton, target, load_i64(registers, depth + 1), node)
                fuel -= NOTE_COST
                if only_operations(automaton, target):
                    continue
        take_tokens(batch, vocabulary, total, node, packed)
        if packed & (0xFFFF << 16) != 0:
            # All that is below, where a state stays itself on all bytes there are.
            if target == load_i64(states, depth) and load_u8(flags, target) & special == 0:
                groups, work = groups_staying(batch, grammar, automaton, target)
                fuel -= work
                if packed & (ALL_GROUPS << GROUPS_SHIFT) & ~groups == 0:
                    work = take_below(batch, vocabulary, total, node)
                    fuel -= work
                    if work > 0:
                        continue
            if load_u8(flags, target) & (FINAL | HAS_CALLS) != 0:
                register = load_i64(registers, depth + 1)
                fuel -= note_children(batch, grammar, automaton, vocabulary, target, register, node, packed)
            store_i64(children, depth, child | (end << 32))
            depth += 1
            child = packed >> 32
            end = child + ((packed >> 16) & 0xFFFF)
    store_i64(job, J_UNFINISHED, 0)
    store_i64(job, J_PATH_LENGTH, -1)
    return fuel


@helper
def _walk_undecided(batch, grammar, automaton, vocabulary, special, fuel):  # type: ignore[no-untyped-def]
    """`walk._walk_ranks` for a context: go on through the undecided tokens, each by the path of the one before.

    The path is known from byte J_PATH_BEGUN on, where the run of bytes inside the loop has ended.
    """
    job = load_i64(batch, B_JOB)
    total = load_i64(batch, B_JOB_TOTAL)
    ranks = load_i64(batch, B_JOB_RANKS)
    rank_words = load_i64(vocabulary, V_RANK_WORDS)
    record = load_i64(vocabulary, V_RECORD)
    rank_start = load_i64(vocabulary, V_RANK_START)
    data = load_i64(vocabulary, V_RANK_BYTES)
    rank_id = load_i64(vocabulary, V_RANK_ID)
    first_rank = load_i64(vocabulary, V_FIRST_RANK)
    previous = load_i64(job, J_PATH_RANK)
    alive = load_i64(job, J_PATH_LENGTH)
    begun = load_i64(job, J_PATH_BEGUN)
    noted = load_i64(job, J_PATH_NOTED)
    skipped = load_i64(job, J_DEPTH)
    run_state = load_i64(job, J_RUN)
    stay = load_i64(batch, B_JOB_SELECTION)
    word = load_i64(job, J_CURSOR)
    edges = section(automaton, AT_EDGES)
    dense = section(automaton, AT_DENSE)
    classes = section(automaton, AT_BYTE_CLASS)
    n_classes = load_i64(automaton, H_N_CLASSES)
    flags = section(automaton, AT_STATE_FLAGS)
    states = load_i64(batch, B_JOB_STATE)
    registers = load_i64(batch, B_JOB_REGISTER)
    nodes = load_i64(batch, B_JOB_CHILDREN)
    register = load_i64(registers, skipped)
    while word < rank_words:
        bits = load_i64(ranks, word)
        while bits != 0:
            if fuel <= 0:
                store_i64(ranks, word, bits)
                store_i64(job, J_CURSOR, word)
                store_i64(job, J_PATH_RANK, previous)
                store_i64(job, J_PATH_LENGTH, alive)
                store_i64(job, J_PATH_BEGUN, begun)
                store_i64(job, J_PATH_NOTED, noted)
                store_i64(job, J_UNFINISHED, 1)
                return fuel
            rank = 64 * word + count_trailing_zeros(bits)
            bits &= bits - 1
            fuel -= TOKEN_COST
            first = load_i64(record, rank)
            length = (first >> 56) & RECORD_LENGTH
            begin = 0
            if length > RECORD_BYTES:
                begin = load_i32(rank_start, rank)
                length = load_i32(rank_start, rank + 1) - begin
            shared = -1
            if previous >= 0:
                shared = shared_bytes(record, rank_start, data, rank, length, previous)
                if shared > alive:
                    continue  # it shares the byte that killed the token before
                noted = min(noted, shared)
            depth = shared
            if shared <= begun:
                # Up to the first byte outside the set the state is known.
                depth = skipped
                if run_state >= 0 and (first >> 56) & RECORD_VALID != 0:
                    inside = (1 << skipped) - 1
                    for i in range(RECORD_BYTES):
                        inside |= load_u8(stay, (first >> (8 * i)) & 0xFF) << i
                    depth = min(count_trailing_zeros(~inside), length)
                    if depth == RECORD_BYTES:
                        while depth < length and load_u8(stay, load_u8(data, begin + depth)) != 0:
                            depth += 1
                    if depth > skipped:
                        store_i64(states, depth, run_state)
                        store_i64(registers, depth, register)
                if depth != begun or shared < begun:
                    begun = depth
                    noted = skipped
            dead = False
            last = False
            while depth < length and not last:
                byte = (first >> (8 * depth)) & 0xFF if depth < RECORD_BYTES else load_u8(data, begin + depth)
                state = load_i64(states, depth)
                # The bytes of a run never follow the frame nor begin a call: no need to ask before it has ended.
                if depth > skipped and load_u8(flags, state) & (FINAL | HAS_CALLS) != 0:
                    leaving, work = bytes_leaving(batch, automaton, state)
                    fuel -= work
                    if (load_i64(leaving, byte >> 6) >> (byte & 63)) & 1 != 0:
                        for between in range(noted + 1, depth):
                            store_i64(nodes, between, -1)
                        if depth > noted or load_i64(nodes, depth) < 0:
                            noted = max(noted, depth)
                            store_i64(nodes, depth, node_of(vocabulary, rank, length - depth))
                            fuel -= (length - depth) // 2
                        last = load_i32(edges, state) == -1 and load_u8(flags, state) & special == 0
                        fuel -= note_at(batch, grammar, automaton, vocabulary, depth, byte, last)
                fuel -= 1
                target = step_fast(automaton, edges, dense, classes, n_classes, flags, special, state, byte)
                if target >= 0:
                    store_i64(states, depth + 1, target)
                    store_i64(registers, depth + 1, load_i64(registers, depth))
                elif target == -2:
                    target = _step_register(batch, automaton, depth, byte)
                    if target >= 0 and load_u8(flags, target) & HAS_OPERATIONS != 0:
                        node = node_of(vocabulary, rank, length - depth - 1)
                        note_operations(batch, grammar, automaton, target, load_i64(registers, depth + 1), node)
                        fuel -= NOTE_COST + (length - depth) // 2
                        if only_operations(automaton, target):
                            target = -1
                if target < 0:
                    dead = True
                    break
                depth += 1
            previous = rank
            # Where nothing but what was noted follows, all tokens that begin with the bytes so far are done with.
            alive = depth - 1 if last else depth
            if not dead:
                set_bit(total, load_i32(rank_id, rank))
            elif depth == 0:
                rank = load_i32(first_rank, (first & 0xFF) + 1)
                if rank >> 6 != word:
                    word = rank >> 6
                    if word >= rank_words:
                        bits = 0
                        break
                    bits = load_i64(ranks, word)
                bits &= -1 << (rank & 63)
        word += 1
    store_i64(job, J_UNFINISHED, 0)
    return fuel


@helper
def _add_symbols(batch, grammar, automaton, state):  # type: ignore[no-untyped-def]
    """Add the special tokens that the grammar names in `state` to the mask."""
    if flags_of(automaton, state) & HAS_TOKENS:
        starts = section(automaton, AT_TOKEN_START)
        ids = load_i64(grammar, G_TOKEN_IDS)
        for edge in range(load_i32(starts, state), load_i32(starts, state + 1)):
            token = load_i32(ids, load_i32(section(automaton, AT_TOKEN_SYMBOL), edge))
            take_token(batch, load_i64(batch, B_JOB_TOTAL), token)


@kernel("int64(int64, int64)")
def run_context(batch, fuel):  # type: ignore[no-untyped-def]
    """Go on with the job. Returns the fuel left, -1 where it ran out, or FAILED.

    When it is done the context's own mask is in B_JOB_TOTAL, and what leaves the frame in B_JOB_EVENTS and B_JOB_KEYS.
    """
    job = load_i64(batch, B_JOB)
    grammar = load_i64(job, J_GRAMMAR)
    vocabulary = load_i64(job, J_VOCABULARY)
    automaton = load_i64(grammar, G_AUTOMATON)
    begin = fuel
    stage = load_i64(job, J_STAGE)
    listed = load_i64(job, J_LIST)
    store_i64(job, J_UNFINISHED, 0)
    # The walk stays in one frame.
    special = _slow_states(automaton, load_i64(load_i64(batch, B_JOB_STATE), 0))
    while stage == NOTE and fuel > 0:
        fuel -= note_list(batch, grammar, vocabulary)
        stage = load_i64(job, J_STAGE)
    if stage == NEXT_HEAD:
        store_i64(job, J_STAGE, LISTS if listed != 0 else TRIE)
        if listed == 0:
            _add_symbols(batch, grammar, automaton, load_i64(load_i64(batch, B_JOB_STATE), 0))
        if (listed == 0 or load_i64(job, J_DEPTH) > 0) and vocabulary == load_i64(batch, B_VOCABULARY):
            store_i64(job, J_STAGE, FIND)
        elif load_i64(job, J_DEPTH) > 0:
            store_i64(load_i64(batch, B_JOB_STATE), 0, load_i64(load_i64(batch, B_JOB_STATE), 1))
            store_i64(load_i64(batch, B_JOB_REGISTER), 0, load_i64(load_i64(batch, B_JOB_REGISTER), 1))
        stage = load_i64(job, J_STAGE)
    while (stage == FIND or stage == SELECT) and fuel > 0:
        if stage == FIND:
            fuel -= begin_whole(batch, grammar, automaton, vocabulary)
        else:
            fuel -= select_whole(batch, vocabulary)
        stage = load_i64(job, J_STAGE)
    if stage == NOTE or stage == FIND or stage == SELECT:
        store_i64(job, J_UNFINISHED, 1)
    if stage == RANKS:
        fuel = _walk_undecided(batch, grammar, automaton, vocabulary, special, fuel)
        if load_i64(job, J_UNFINISHED) == 0 and has_tries(job):
            store_i64(job, J_PATH_LENGTH, -1)
            store_i64(job, J_STAGE, TRIES)
            stage = TRIES
        elif load_i64(job, J_UNFINISHED) == 0 and load_i64(job, J_LIST_LENGTH) > 1 and listed != 0:
            # The nodes of the list but for that of the space, which is done.
            store_i64(load_i64(batch, B_JOB_STATE), 0, load_i64(load_i64(batch, B_JOB_STATE), 1))
            store_i64(load_i64(batch, B_JOB_REGISTER), 0, load_i64(load_i64(batch, B_JOB_REGISTER), 1))
            store_i64(job, J_PATH_LENGTH, -1)
            store_i64(job, J_SKIP, load_i32(load_i64(vocabulary, V_BYTE_NODE), 0x20))
            store_i64(job, J_STAGE, LISTS)
            stage = LISTS
    if stage == TRIE or stage == LISTS or stage == TRIES:
        # One place calls `_walk_children`: the whole trie is what is below its root.
        at = load_i64(job, J_LIST_AT)
        last = load_i64(job, J_LIST_LENGTH) if stage == LISTS else 1
        while at < last and load_i64(job, J_UNFINISHED) == 0:
            packed = load_i64(vocabulary, V_ROOT)
            if stage == TRIES:
                packed = next_trie(vocabulary, job)[1]
            if stage == LISTS:
                node = load_i32(listed, at)
                packed = load_i64(load_i64(vocabulary, V_NODE), node)
                if node == load_i64(job, J_SKIP):
                    at += 1
                    continue
            fuel = _walk_children(batch, grammar, automaton, vocabulary, special, packed, fuel)
            if load_i64(job, J_UNFINISHED) == 0:
                if stage == TRIES:
                    end_trie(job, SUBTREES)
                if stage != TRIES or not has_tries(job):
                    at += 1
        store_i64(job, J_LIST_AT, at)
    if load_i64(job, J_FAILED) == 0 and load_i64(job, J_UNFINISHED) == 0:
        fuel -= work_of_total(batch)
    count(batch, COUNT_WORK, begin - fuel)
    if load_i64(job, J_FAILED):
        store_i64(job, J_STAGE, IDLE)
        return FAILED
    if load_i64(job, J_UNFINISHED):
        return -1
    return max(fuel, 0)
