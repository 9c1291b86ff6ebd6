"""The mask of a configuration: one walk of the vocabulary a head, resumable at any point.

Two ways through the vocabulary. TRIE: depth first through the trie, leaving out dead subtrees; cheap where few tokens
are alive. RANKS: after `masks.wide` has settled most tokens, the others in sorted order: from where they leave the
loop, or each from where it differs from the one before; then TRIES, what `masks.suffixes` knows of. All stop when the
fuel is spent and go on from the cursor in the job's block. The path from the root to the cursor is kept as one state a
byte; where a token leaves the head's frame or calls another, as a whole configuration.

Fuel: 1 a byte edge, CONFIG_COST a stepped configuration, TOKEN_COST and one more an undecided token, and the bitmap
work of `masks.wide`.
"""

from __future__ import annotations

from .._numba import helper, kernel
from ..grammar.automaton import CALLS, FINAL, H_FLAGS, H_N_CLASSES, HAS_CALLS, HAS_TOKENS, LAZY
from .fuel import count
from .layout import (
    B_JOB,
    B_JOB_CHILDREN,
    B_JOB_RANKS,
    B_JOB_REGISTER,
    B_JOB_SELECTION,
    B_JOB_STATE,
    B_JOB_TOTAL,
    B_WORDS,
    CONFIG_FIRST_HEAD,
    CONFIG_HEADS,
    COUNT_WORK,
    FIND,
    G_AUTOMATON,
    G_BOUNDARY,
    G_TOKEN_IDS,
    HEAD_WORDS,
    IDLE,
    J_CURSOR,
    J_DIRTY,
    J_GRAMMAR,
    J_HEAD,
    J_LIST,
    J_LOOP,
    J_PATH_LENGTH,
    J_PATH_RANK,
    J_SOURCE,
    J_STAGE,
    J_SUFFIX,
    J_UNFINISHED,
    J_VOCABULARY,
    L_SELF,
    NEXT_HEAD,
    RANKS,
    SELECT,
    SUBTREES,
    TRIE_REGISTER,
    TRIE_STATE,
    TRIES,
)
from .machine import (
    AT_BYTE_CLASS,
    AT_DENSE,
    AT_EDGES,
    AT_STATE_FLAGS,
    AT_TOKEN_START,
    AT_TOKEN_SYMBOL,
    flags_of,
    head_at,
    top_state,
)
from .memory import count_trailing_zeros, load_i32, load_i64, load_u8, section, store_i64
from .path import TOKEN_COST, add_tokens, set_bit, shared_bytes, step_fast, step_slow
from .suffixes import add_suffix_tokens, end_trie, has_tries, next_trie, trie_at
from .trie import (
    RECORD_BYTES,
    RECORD_LENGTH,
    RECORD_VALID,
    TOKEN_ENDS,
    V_FIRST_RANK,
    V_NODE,
    V_RANK_BYTES,
    V_RANK_ID,
    V_RANK_START,
    V_RANK_WORDS,
    V_RECORD,
    V_ROOT,
    V_SUFFIX_NODE,
)
from .walk_begin import begin_head, find_wide, select_undecided


@helper
def _may_end_token(batch, grammar, depth):  # type: ignore[no-untyped-def]
    """May a token end where the path is (only languages that the vocabulary spells badly have places where not)?"""
    boundary = load_i64(grammar, G_BOUNDARY)
    if boundary == 0:
        return True
    return load_u8(boundary, load_i64(load_i64(batch, B_JOB_STATE), depth)) != 0


@helper
def _walk_trie(batch, grammar, automaton, lazy, vocabulary, packed, kind, fuel):  # type: ignore[no-untyped-def]
    """Go on below the root of word `packed`, in the trie that `masks.suffixes` has of this kind.

    Returns the fuel left; J_UNFINISHED says whether it ran out first.
    """
    job = load_i64(batch, B_JOB)
    total = load_i64(batch, B_JOB_TOTAL)
    inner = kind != SUBTREES
    table = load_i64(vocabulary, V_SUFFIX_NODE if inner else V_NODE)
    sets = load_i64(batch, B_JOB_SELECTION)
    children = load_i64(batch, B_JOB_CHILDREN)
    edges = section(automaton, AT_EDGES)
    dense = section(automaton, AT_DENSE)
    classes = section(automaton, AT_BYTE_CLASS)
    n_classes = load_i64(automaton, H_N_CLASSES)
    flags = section(automaton, AT_STATE_FLAGS)
    states = load_i64(batch, B_JOB_STATE)
    registers = load_i64(batch, B_JOB_REGISTER)
    # In a grammar of one frame no state has more than its byte edges.
    special = FINAL | HAS_CALLS if load_i64(automaton, H_FLAGS) & CALLS else 0
    depth = load_i64(job, J_PATH_LENGTH)
    child = packed >> 32
    end = child + ((packed >> 16) & 0xFFFF)
    # Before a suffix there are bytes of the loop: the head may return there.
    base = 1 if inner else 0
    if depth >= 0:
        packed = load_i64(children, depth)
        child, end = packed & 0xFFFFFFFF, packed >> 32
    else:
        depth = base
        if inner:
            store_i64(states, base, load_i64(trie_at(job, kind), TRIE_STATE))
            store_i64(registers, base, load_i64(trie_at(job, kind), TRIE_REGISTER))
    while True:
        if child == end:
            if depth == base:
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
        packed = load_i64(table, child)
        child += 1
        byte = packed & 0xFF
        target = step_fast(automaton, edges, dense, classes, n_classes, flags, special, load_i64(states, depth), byte)
        if target == -1:
            fuel -= 1
            continue
        if target >= 0:
            fuel -= 1
            store_i64(states, depth + 1, target)
            if special != 0:
                store_i64(registers, depth + 1, load_i64(registers, depth))
        else:
            work = step_slow(batch, grammar, automaton, lazy, depth, byte)
            fuel -= abs(work)
            if work < 0:
                continue
        if packed & TOKEN_ENDS != 0 and _may_end_token(batch, grammar, depth + 1):
            if inner:
                fuel = add_suffix_tokens(vocabulary, job, kind, sets, child - 1, fuel, total)
                if load_i64(job, J_SUFFIX) != 0:  # the fuel is spent: it comes to this node again
                    child -= 1
                    continue
            else:
                add_tokens(vocabulary, child - 1, packed, total)
        if packed & (0xFFFF << 16) != 0:
            store_i64(children, depth, child | (end << 32))
            depth += 1
            child = packed >> 32
            end = child + ((packed >> 16) & 0xFFFF)
    store_i64(job, J_UNFINISHED, 0)
    return fuel


@helper
def _walk_ranks(batch, grammar, automaton, lazy, vocabulary, fuel):  # type: ignore[no-untyped-def]
    """Go on through the undecided tokens. Returns the fuel left; J_UNFINISHED says whether it ran out first."""
    job = load_i64(batch, B_JOB)
    total = load_i64(batch, B_JOB_TOTAL)
    ranks = load_i64(batch, B_JOB_RANKS)
    rank_words = load_i64(vocabulary, V_RANK_WORDS)
    record = load_i64(vocabulary, V_RECORD)
    rank_start = load_i64(vocabulary, V_RANK_START)
    rank_id = load_i64(vocabulary, V_RANK_ID)
    data = load_i64(vocabulary, V_RANK_BYTES)
    first_rank = load_i64(vocabulary, V_FIRST_RANK)
    previous = load_i64(job, J_PATH_RANK)
    alive = load_i64(job, J_PATH_LENGTH)
    loop = load_i64(job, J_LOOP)
    itself = load_i64(loop, L_SELF) != 0
    stay = load_i64(batch, B_JOB_SELECTION)
    word = load_i64(job, J_CURSOR)
    edges = section(automaton, AT_EDGES)
    dense = section(automaton, AT_DENSE)
    classes = section(automaton, AT_BYTE_CLASS)
    n_classes = load_i64(automaton, H_N_CLASSES)
    flags = section(automaton, AT_STATE_FLAGS)
    states = load_i64(batch, B_JOB_STATE)
    registers = load_i64(batch, B_JOB_REGISTER)
    # In a grammar of one frame no state has more than its byte edges.
    special = FINAL | HAS_CALLS if load_i64(automaton, H_FLAGS) & CALLS else 0
    # Steps without a branch begin with a dense row.
    blind = itself and load_i32(edges, load_i64(states, 0)) >= 0
    while word < rank_words:
        bits = load_i64(ranks, word)
        while bits != 0:
            if fuel <= 0:
                store_i64(ranks, word, bits)
                store_i64(job, J_CURSOR, word)
                store_i64(job, J_PATH_RANK, previous)
                store_i64(job, J_PATH_LENGTH, alive)
                store_i64(job, J_UNFINISHED, 1)
                return fuel
            rank = 64 * word + count_trailing_zeros(bits)
            bits &= bits - 1
            first = load_i64(record, rank)
            length = (first >> 56) & RECORD_LENGTH
            depth = 0
            if itself and (first >> 56) & RECORD_VALID != 0:
                # Up to the first byte outside the set the state is the head's own; for all in the record at once.
                inside = 0
                for i in range(RECORD_BYTES):
                    inside |= load_u8(stay, (first >> (8 * i)) & 0xFF) << i
                depth = min(count_trailing_zeros(~inside), length)
            dead = False
            if blind and depth < RECORD_BYTES:
                # What follows the loop's bytes is short and hard to predict: three steps without a branch.
                state = load_i64(states, 0)
                left = length - depth
                known = min(left, RECORD_BYTES - depth)
                rest = first >> (8 * depth)
                odd = 0
                for i in range(3):
                    edge = load_i32(edges, max(state, 0))
                    target = load_i32(dense, max(edge, 0) * n_classes + load_u8(classes, rest & 0xFF))
                    target |= (edge >> 63) | (state >> 63)
                    more = load_u8(flags, max(state, 0)) & special
                    odd |= 1 if ((edge < -1) | (more != 0)) & (i < known) & (state >= 0) else 0
                    state = target if i < known else state
                    rest >>= 8
                if odd == 0 and (state < 0 or (left <= 3 and left == known)):
                    fuel -= TOKEN_COST + min(known, 3)
                    if state >= 0:
                        set_bit(total, load_i32(rank_id, rank))
                    continue
            begin = load_i32(rank_start, rank)
            length = load_i32(rank_start, rank + 1) - begin
            if itself:
                if depth == RECORD_BYTES:
                    while depth < length and load_u8(stay, load_u8(data, begin + depth)) != 0:
                        depth += 1
                store_i64(states, depth, load_i64(states, 0))
                store_i64(registers, depth, load_i64(registers, 0))
            elif previous >= 0:
                depth = shared_bytes(record, rank_start, data, rank, length, previous)
            fuel -= TOKEN_COST
            if depth > alive and not itself:
                continue  # it shares the byte that killed the token before
            while depth < length:
                byte = (first >> (8 * depth)) & 0xFF if depth < RECORD_BYTES else load_u8(data, begin + depth)
                target = step_fast(
                    automaton, edges, dense, classes, n_classes, flags, special, load_i64(states, depth), byte
                )
                if target == -1:
                    fuel -= 1
                    dead = True
                    break
                if target >= 0:
                    fuel -= 1
                    store_i64(states, depth + 1, target)
                    if special != 0:
                        store_i64(registers, depth + 1, load_i64(registers, depth))
                else:
                    work = step_slow(batch, grammar, automaton, lazy, depth, byte)
                    fuel -= abs(work)
                    if work < 0:
                        dead = True
                        break
                depth += 1
            if not itself:
                previous = rank
                alive = depth
            if not dead:
                set_bit(total, load_i32(rank_id, rank))
            elif depth == 0:
                # No token with this first byte is alive: on to the next byte.
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
def _add_token_symbols(grammar, automaton, config, mask):  # type: ignore[no-untyped-def]
    """Set the bits of the special tokens that the grammar names in the heads' states."""
    starts = section(automaton, AT_TOKEN_START)
    ids = load_i64(grammar, G_TOKEN_IDS)
    for i in range(load_i64(config, CONFIG_HEADS)):
        state = top_state(head_at(config, i))
        if flags_of(automaton, state) & HAS_TOKENS:
            for edge in range(load_i32(starts, state), load_i32(starts, state + 1)):
                set_bit(mask, load_i32(ids, load_i32(section(automaton, AT_TOKEN_SYMBOL), edge)))


@helper
def begin_job(batch, grammar, vocabulary, config, key_low, key_high):  # type: ignore[no-untyped-def]
    """Begin the mask of `config` (copied, so that its sequence may go away meanwhile)."""
    job = load_i64(batch, B_JOB)
    source = load_i64(job, J_SOURCE)
    for word in range(CONFIG_FIRST_HEAD + load_i64(config, CONFIG_HEADS) * HEAD_WORDS):
        store_i64(source, word, load_i64(config, word))
    total = load_i64(batch, B_JOB_TOTAL)
    for word in range(load_i64(batch, B_WORDS)):
        store_i64(total, word, 0)
    store_i64(job, J_DIRTY, 1)
    store_i64(job, J_STAGE, NEXT_HEAD)
    store_i64(job, 1, key_low)
    store_i64(job, 2, key_high)
    store_i64(job, J_GRAMMAR, grammar)
    store_i64(job, J_VOCABULARY, vocabulary)
    store_i64(job, J_HEAD, 0)
    store_i64(job, J_LIST, 0)
    store_i64(job, J_SUFFIX, 0)


@kernel("int64(int64, int64)")
def run_job(batch, fuel):  # type: ignore[no-untyped-def]
    """Go on with the job. Returns the fuel left (the mask is in B_JOB_TOTAL, the job idle), or -1 where it ran out."""
    job = load_i64(batch, B_JOB)
    grammar = load_i64(job, J_GRAMMAR)
    vocabulary = load_i64(job, J_VOCABULARY)
    automaton = load_i64(grammar, G_AUTOMATON)
    lazy = load_i64(automaton, H_FLAGS) & LAZY != 0
    source = load_i64(job, J_SOURCE)
    total = load_i64(batch, B_JOB_TOTAL)
    begin = fuel
    unfinished = False
    while True:
        stage = load_i64(job, J_STAGE)
        if stage == NEXT_HEAD:
            if load_i64(job, J_HEAD) == load_i64(source, CONFIG_HEADS):
                break
            if fuel <= 0:
                unfinished = True
                break
            fuel -= begin_head(batch, grammar, automaton, lazy, vocabulary)
            continue
        if stage == FIND or stage == SELECT:
            if fuel <= 0:
                unfinished = True
                break
            if stage == FIND:
                fuel -= find_wide(batch, grammar, automaton, lazy, vocabulary)
            else:
                fuel -= select_undecided(batch, vocabulary)
            continue
        if stage == RANKS:
            fuel = _walk_ranks(batch, grammar, automaton, lazy, vocabulary, fuel)
        else:
            # One place calls `_walk_trie`: the whole trie is what is below its root.
            kind, packed = SUBTREES, load_i64(vocabulary, V_ROOT)
            if stage == TRIES:
                kind, packed = next_trie(vocabulary, job)
            fuel = _walk_trie(batch, grammar, automaton, lazy, vocabulary, packed, kind, fuel)
        if load_i64(job, J_UNFINISHED):
            unfinished = True
            break
        if stage == TRIES:
            end_trie(job, kind)
        if has_tries(job):
            store_i64(job, J_PATH_LENGTH, -1)
            store_i64(job, J_STAGE, TRIES)
            continue
        store_i64(job, J_HEAD, load_i64(job, J_HEAD) + 1)
        store_i64(job, J_STAGE, NEXT_HEAD)
    count(batch, COUNT_WORK, begin - fuel)
    if unfinished:
        return -1
    if not lazy:
        _add_token_symbols(grammar, automaton, source, total)
    store_i64(job, J_STAGE, IDLE)
    return max(fuel, 0)
