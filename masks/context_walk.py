"""Contexts: what one state does to the vocabulary whatever is below it on the stack. Resumable like `masks.walk`.

The walk begins in a frame whose stack is unknown: its only continuation is to leave. Tokens that stay alive inside
are the context's own mask; each trie node at which the frame may return goes on its *residual* list, to be walked
again from the states that a real stack returns to. A context is walked over the whole vocabulary (from byte edges
only: what the state calls are heads of their own) or over such a list. Without contexts the same walk goes over the
whole real configuration; then nothing is left over.
"""

from __future__ import annotations

from .._numba import helper, kernel
from ..grammar.automaton import FINAL, H_N_CLASSES, H_N_FRAMES, HAS_CALLS, HAS_TOKENS, PLAIN
from .graph import block_at, close_graph, put_bottom, reach_byte_graph
from .layout import (
    B_JOB,
    B_JOB_CHILDREN,
    B_JOB_CONFIGS,
    B_JOB_GRAPH,
    B_JOB_RANKS,
    B_JOB_REGISTER,
    B_JOB_SELECTION,
    B_JOB_STATE,
    B_JOB_TOTAL,
    B_JOB_UNDECIDED,
    B_VOCABULARY,
    B_WORDS,
    BLOCK_COUNT,
    BLOCK_TRIPLES,
    COMPLETE,
    CONFIG_FLAGS,
    CONFIG_WORDS,
    COUNT_CONTEXTS,
    COUNT_WORK,
    DIRECT,
    G_AUTOMATON,
    G_RESIDUALS,
    G_RESIDUALS_USED,
    G_TOKEN_IDS,
    IDLE,
    J_CURSOR,
    J_FOLLOW,
    J_GRAMMAR,
    J_KEY_HIGH,
    J_KEY_LOW,
    J_LIST,
    J_LIST_AT,
    J_LIST_LENGTH,
    J_LOOP,
    J_PATH_LENGTH,
    J_PATH_RANK,
    J_RESIDUAL_LENGTH,
    J_STAGE,
    J_UNFINISHED,
    J_VOCABULARY,
    L_SELF,
    LISTS,
    MAX_RESIDUALS,
    NEXT_HEAD,
    RANKS,
    S_ARENA,
    S_COUNT,
    S_FAILED,
    S_FLAGS,
    S_REACHED,
    S_SCRATCH,
    S_USED,
    S_WORK,
    SCRATCH_BASE,
    TRIE,
)
from .machine import (
    AT_BYTE_CLASS,
    AT_DENSE,
    AT_EDGES,
    AT_FRAME_FOLLOW,
    AT_FRAME_KIND,
    AT_STATE_FLAGS,
    AT_TOKEN_START,
    AT_TOKEN_SYMBOL,
    delta,
    flags_of,
    frame_of,
    may_return,
    next_register,
    restart_of,
)
from .memory import count_trailing_zeros, load_i32, load_i64, load_u8, section, store_i32, store_i64
from .pool import count
from .trie import (
    RECORD_LENGTH,
    RECORD_VALID,
    SAME_TOKENS,
    TOKEN_ENDS,
    V_FIRST_RANK,
    V_NEXT_SAME,
    V_NODE,
    V_NODE_PARENT,
    V_NODE_TOKEN,
    V_RANK_BYTES,
    V_RANK_ID,
    V_RANK_NODE,
    V_RANK_WORDS,
    V_RECORD,
    V_ROOT,
)
from .walk import CONFIG_COST, MAX_UNDECIDED, fill_stay, set_bit, sort_undecided, step_fast
from .wide import add_state_bytes, find_loops, select_wide

#: Words of an entry of B_JOB_CONFIGS here: the block of the heads, and the scratch in use once it was made.
_BLOCK, _USED = 2, 3
#: What `run_context` returns where a limit of the stack graph was passed, so that there is no mask.
FAILED = -2


@helper
def _entry(batch, depth):  # type: ignore[no-untyped-def]
    return load_i64(batch, B_JOB_CONFIGS) + 8 * CONFIG_WORDS * depth


@helper
def _is_simple(automaton, state, register):  # type: ignore[no-untyped-def]
    """Is nothing called in `state`, nor where another item of its counter begins?"""
    if flags_of(automaton, state) & HAS_CALLS:
        return False
    start = restart_of(automaton, state, register)
    return start < 0 or flags_of(automaton, start) & HAS_CALLS == 0


@helper
def _close_entry(batch, grammar, automaton, graph, reached, depth):  # type: ignore[no-untyped-def]
    """Make the closed form of the `reached` triples in S_REACHED the path's entry `depth`."""
    block = close_graph(grammar, automaton, graph, reached)
    entry = _entry(batch, depth)
    states = load_i64(batch, B_JOB_STATE)
    store_i64(entry, CONFIG_FLAGS, load_i64(graph, S_FLAGS))
    store_i64(entry, _BLOCK, block)
    store_i64(entry, _USED, load_i64(graph, S_USED))
    store_i64(states, depth, -1)
    if load_i64(graph, S_COUNT) == 1 and load_i64(graph, S_FAILED) == 0:
        # Back in the frame the walk began in, with one head: the short form.
        heads = block_at(graph, block)
        state, register = load_i64(heads, BLOCK_TRIPLES + 1), load_i64(heads, BLOCK_TRIPLES + 2)
        if load_i64(heads, BLOCK_TRIPLES) == SCRATCH_BASE and _is_simple(automaton, state, register):
            store_i64(states, depth, state)
            store_i64(load_i64(batch, B_JOB_REGISTER), depth, register)


@helper
def _put_reached(reached, index, state, register):  # type: ignore[no-untyped-def]
    store_i64(reached, 3 * index, SCRATCH_BASE)
    store_i64(reached, 3 * index + 1, state)
    store_i64(reached, 3 * index + 2, register)


@helper
def _step_context(batch, grammar, automaton, graph, depth, byte):  # type: ignore[no-untyped-def]
    """Extend the path by one byte: entry `depth` -> entry `depth + 1`. Returns the work, negative where it dies.

    An entry is one head of the frame the walk began in (B_JOB_STATE, B_JOB_REGISTER) or, the state being -1, a block.
    Either way CONFIG_FLAGS says whether that frame may return there.
    """
    states, registers = load_i64(batch, B_JOB_STATE), load_i64(batch, B_JOB_REGISTER)
    state = load_i64(states, depth)
    used = load_i64(_entry(batch, depth), _USED)
    store_i64(graph, S_USED, used)
    reached = load_i64(graph, S_REACHED)
    if state >= 0:
        register = load_i64(registers, depth)
        target = delta(automaton, state, byte)
        start = restart_of(automaton, state, register)
        other, again = -1, register
        if start >= 0:
            other, again = delta(automaton, start, byte), next_register(automaton, state, register)
        if target < 0 and other < 0:
            return -1
        n = 0
        if target >= 0:
            _put_reached(reached, 0, target, register)
            n = 1
        if other >= 0:
            _put_reached(reached, n, other, again)
            n += 1
        if n == 1:
            if target < 0:
                target, register = other, again
            if _is_simple(automaton, target, register):
                entry = _entry(batch, depth + 1)
                store_i64(entry, CONFIG_FLAGS, COMPLETE if may_return(automaton, target, register) else 0)
                store_i64(entry, _USED, used)
                store_i64(states, depth + 1, target)
                store_i64(registers, depth + 1, register)
                return 1
    else:
        n = reach_byte_graph(automaton, graph, load_i64(_entry(batch, depth), _BLOCK), byte)
        if n == 0:
            return -2
    _close_entry(batch, grammar, automaton, graph, n, depth + 1)
    return CONFIG_COST


@helper
def _slow_states(automaton):  # type: ignore[no-untyped-def]
    """Flags of states that are more than their byte edges and the return of a plain frame: see `walk.step_fast`."""
    kinds = section(automaton, AT_FRAME_KIND)
    for frame in range(load_i64(automaton, H_N_FRAMES)):
        if load_u8(kinds, frame) != PLAIN:
            return FINAL | HAS_CALLS
    return HAS_CALLS


@helper
def _note_return(batch, grammar, vocabulary, node):  # type: ignore[no-untyped-def]
    """The frame may return at trie node `node`: put it on the residual list if any token goes on as one may there."""
    packed = load_i64(load_i64(vocabulary, V_NODE), node)
    children = (packed >> 16) & 0xFFFF
    if children == 0:
        return
    job = load_i64(batch, B_JOB)
    follow = load_i64(job, J_FOLLOW)
    table = load_i64(vocabulary, V_NODE)
    first = packed >> 32
    goes_on = False
    for child in range(first, first + children):
        byte = load_i64(table, child) & 0xFF
        if (load_i64(follow, byte >> 6) >> (byte & 63)) & 1 != 0:
            goes_on = True
            break
    if not goes_on:
        return
    n = load_i64(job, J_RESIDUAL_LENGTH)
    listed = load_i64(grammar, G_RESIDUALS) + 4 * load_i64(grammar, G_RESIDUALS_USED)
    for back in range(min(n, 4)):
        if load_i32(listed, n - 1 - back) == node:
            return
    if load_i64(grammar, G_RESIDUALS_USED) + n < MAX_RESIDUALS:
        store_i32(listed, n, node)
    store_i64(job, J_RESIDUAL_LENGTH, n + 1)


@helper
def _walk_children(batch, grammar, automaton, graph, vocabulary, packed, fuel):  # type: ignore[no-untyped-def]
    """Go on through the subtree below the trie node of word `packed`. Returns the fuel left; see J_UNFINISHED."""
    job = load_i64(batch, B_JOB)
    total = load_i64(batch, B_JOB_TOTAL)
    table = load_i64(vocabulary, V_NODE)
    node_token = load_i64(vocabulary, V_NODE_TOKEN)
    next_same = load_i64(vocabulary, V_NEXT_SAME)
    children = load_i64(batch, B_JOB_CHILDREN)
    edges = section(automaton, AT_EDGES)
    dense = section(automaton, AT_DENSE)
    classes = section(automaton, AT_BYTE_CLASS)
    n_classes = load_i64(automaton, H_N_CLASSES)
    flags = section(automaton, AT_STATE_FLAGS)
    states = load_i64(batch, B_JOB_STATE)
    registers = load_i64(batch, B_JOB_REGISTER)
    configs = load_i64(batch, B_JOB_CONFIGS)
    special = _slow_states(automaton)
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
        if fuel <= 0 or load_i64(graph, S_FAILED):
            store_i64(children, depth, child | (end << 32))
            store_i64(job, J_PATH_LENGTH, depth)
            store_i64(job, J_UNFINISHED, 1)
            return fuel
        node = child
        packed = load_i64(table, node)
        child += 1
        byte = packed & 0xFF
        target = step_fast(automaton, edges, dense, classes, n_classes, flags, special, load_i64(states, depth), byte)
        returns = False
        if target == -1:
            fuel -= 1
            continue
        if target >= 0:
            fuel -= 1
            store_i64(states, depth + 1, target)
            store_i64(registers, depth + 1, load_i64(registers, depth))
            here = configs + 8 * (CONFIG_WORDS * depth + _USED)
            store_i64(here, CONFIG_WORDS, load_i64(here, 0))
            returns = load_u8(flags, target) & FINAL != 0
        else:
            work = _step_context(batch, grammar, automaton, graph, depth, byte)
            fuel -= abs(work)
            if work < 0:
                continue
            returns = load_i64(configs + 8 * CONFIG_WORDS * (depth + 1), CONFIG_FLAGS) & COMPLETE != 0
        if packed & TOKEN_ENDS != 0:
            token = load_i32(node_token, node)
            set_bit(total, token)
            if packed & SAME_TOKENS != 0:
                token = load_i32(next_same, token)
                while token >= 0:
                    set_bit(total, token)
                    token = load_i32(next_same, token)
        if returns:
            _note_return(batch, grammar, vocabulary, node)
        if packed & (0xFFFF << 16) != 0:
            store_i64(children, depth, child | (end << 32))
            depth += 1
            child = packed >> 32
            end = child + ((packed >> 16) & 0xFFFF)
    store_i64(job, J_UNFINISHED, 0)
    store_i64(job, J_PATH_LENGTH, -1)
    return fuel


@helper
def _ancestor(vocabulary, rank, up):  # type: ignore[no-untyped-def]
    """The trie node of the token of `rank` without its last `up` bytes."""
    node = load_i32(load_i64(vocabulary, V_RANK_NODE), rank)
    for _ in range(up):
        node = load_i32(load_i64(vocabulary, V_NODE_PARENT), node)
    return node


@helper
def _walk_undecided(batch, grammar, automaton, graph, vocabulary, fuel):  # type: ignore[no-untyped-def]
    """`walk._walk_ranks` for a context: go on through the undecided tokens, each by the path of the one before."""
    job = load_i64(batch, B_JOB)
    total = load_i64(batch, B_JOB_TOTAL)
    ranks = load_i64(batch, B_JOB_RANKS)
    rank_words = load_i64(vocabulary, V_RANK_WORDS)
    record = load_i64(vocabulary, V_RECORD)
    data = load_i64(vocabulary, V_RANK_BYTES)
    rank_id = load_i64(vocabulary, V_RANK_ID)
    first_rank = load_i64(vocabulary, V_FIRST_RANK)
    follow = load_i64(job, J_FOLLOW)
    previous = load_i64(job, J_PATH_RANK)
    alive = load_i64(job, J_PATH_LENGTH)
    itself = load_i64(load_i64(job, J_LOOP), L_SELF) != 0
    stay = load_i64(batch, B_JOB_SELECTION)
    word = load_i64(job, J_CURSOR)
    edges = section(automaton, AT_EDGES)
    dense = section(automaton, AT_DENSE)
    classes = section(automaton, AT_BYTE_CLASS)
    n_classes = load_i64(automaton, H_N_CLASSES)
    flags = section(automaton, AT_STATE_FLAGS)
    states = load_i64(batch, B_JOB_STATE)
    registers = load_i64(batch, B_JOB_REGISTER)
    configs = load_i64(batch, B_JOB_CONFIGS)
    own, register = load_i64(states, 0), load_i64(registers, 0)
    own_returns = itself and may_return(automaton, own, register)
    special = _slow_states(automaton)
    while word < rank_words:
        bits = load_i64(ranks, word)
        while bits != 0:
            if fuel <= 0 or load_i64(graph, S_FAILED):
                store_i64(ranks, word, bits)
                store_i64(job, J_CURSOR, word)
                store_i64(job, J_PATH_RANK, previous)
                store_i64(job, J_PATH_LENGTH, alive)
                store_i64(job, J_UNFINISHED, 1)
                return fuel
            rank = 64 * word + count_trailing_zeros(bits)
            bits &= bits - 1
            first = load_i64(record, 2 * rank)
            place = load_i64(record, 2 * rank + 1)
            begin, length = place >> 16, place & RECORD_LENGTH
            depth = 0
            if itself:
                if place & RECORD_VALID != 0:
                    inside = 0
                    for i in range(8):
                        inside |= load_u8(stay, (first >> (8 * i)) & 0xFF) << i
                    depth = min(count_trailing_zeros(~inside), length)
                    if depth == 8:
                        while depth < length and load_u8(stay, load_u8(data, begin + depth)) != 0:
                            depth += 1
                store_i64(states, depth, own)
                store_i64(registers, depth, register)
                store_i64(configs + 8 * CONFIG_WORDS * depth, _USED, load_i64(configs, _USED))
                # The bytes it stays on never follow the frame, so it need not be asked before the first other one.
                if own_returns and 0 < depth < length:
                    byte = load_u8(data, begin + depth)
                    if (load_i64(follow, byte >> 6) >> (byte & 63)) & 1 != 0:
                        _note_return(batch, grammar, vocabulary, _ancestor(vocabulary, rank, length - depth))
            elif previous >= 0:
                other = load_i64(record, 2 * previous + 1)
                most = min(length, other & RECORD_LENGTH)
                differ = first ^ load_i64(record, 2 * previous)
                depth = 8 if differ == 0 else count_trailing_zeros(differ) >> 3
                if depth == 8:
                    other >>= 16
                    while depth < most and load_u8(data, begin + depth) == load_u8(data, other + depth):
                        depth += 1
                depth = min(depth, most)
            fuel -= 1
            if depth > alive and not itself:
                continue  # it shares the byte that killed the token before
            dead = False
            while depth < length:
                byte = (first >> (8 * depth)) & 0xFF if depth < 8 else load_u8(data, begin + depth)
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
                    store_i64(registers, depth + 1, load_i64(registers, depth))
                    here = configs + 8 * (CONFIG_WORDS * depth + _USED)
                    store_i64(here, CONFIG_WORDS, load_i64(here, 0))
                    returns = load_u8(flags, target) & FINAL != 0
                else:
                    work = _step_context(batch, grammar, automaton, graph, depth, byte)
                    fuel -= abs(work)
                    if work < 0:
                        dead = True
                        break
                    returns = load_i64(configs + 8 * CONFIG_WORDS * (depth + 1), CONFIG_FLAGS) & COMPLETE != 0
                depth += 1
                if returns and depth < length:
                    _note_return(batch, grammar, vocabulary, _ancestor(vocabulary, rank, length - depth))
            if not itself:
                previous = rank
                alive = depth
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
def _begin_whole(batch, grammar, automaton, vocabulary):  # type: ignore[no-untyped-def]
    """Prepare the walk of the whole vocabulary: RANKS where the state is wide, else TRIE. Returns the work done."""
    job = load_i64(batch, B_JOB)
    loop, follow = load_i64(job, J_LOOP), load_i64(job, J_FOLLOW)
    state = load_i64(load_i64(batch, B_JOB_STATE), 0)
    register = load_i64(load_i64(batch, B_JOB_REGISTER), 0)
    work = 1
    wide = False
    if state >= 0 and vocabulary == load_i64(batch, B_VOCABULARY):
        wide = find_loops(grammar, automaton, vocabulary, state, register, follow, loop)
        work += CONFIG_COST
    if wide:
        next_bytes = _entry(batch, 1)
        for word in range(4):
            store_i64(next_bytes, word, 0)
        add_state_bytes(grammar, automaton, state, register, next_bytes)
        undecided = load_i64(batch, B_JOB_UNDECIDED)
        selection = load_i64(batch, B_JOB_SELECTION)
        accepted, left, more = select_wide(
            grammar, vocabulary, loop, next_bytes, selection, load_i64(batch, B_JOB_TOTAL), undecided
        )
        work += more
        wide = left < min(2 * accepted + 1024, MAX_UNDECIDED)
        if wide:
            fill_stay(loop, selection)
            sort_undecided(vocabulary, undecided, next_bytes, load_i64(batch, B_JOB_RANKS))
            work += left // 4
    store_i64(job, J_CURSOR, 0)
    store_i64(job, J_PATH_RANK, -1)
    store_i64(job, J_PATH_LENGTH, 0 if wide else -1)
    store_i64(job, J_STAGE, RANKS if wide else TRIE)
    return work


@helper
def begin_context(batch, grammar, vocabulary, state, register, listed, length, low, high):  # type: ignore[no-untyped-def]
    """Begin the walk of a context: of the whole vocabulary (`listed` 0), or of `length` trie nodes at that address."""
    job = load_i64(batch, B_JOB)
    automaton = load_i64(grammar, G_AUTOMATON)
    graph = load_i64(batch, B_JOB_GRAPH)
    total = load_i64(batch, B_JOB_TOTAL)
    for word in range(load_i64(batch, B_WORDS)):
        store_i64(total, word, 0)
    store_i64(graph, S_ARENA, 0)
    store_i64(graph, S_FAILED, 0)
    store_i64(graph, S_USED, put_bottom(load_i64(graph, S_SCRATCH), SCRATCH_BASE))
    follow = load_i64(job, J_FOLLOW)
    frame = frame_of(automaton, state)
    for word in range(4):
        store_i64(follow, word, load_i64(section(automaton, AT_FRAME_FOLLOW), 4 * frame + word))
    entry = _entry(batch, 0)
    store_i64(entry, CONFIG_FLAGS, 0)
    store_i64(entry, _USED, load_i64(graph, S_USED))
    store_i64(load_i64(batch, B_JOB_STATE), 0, state)
    store_i64(load_i64(batch, B_JOB_REGISTER), 0, register)
    if listed != 0 and not _is_simple(automaton, state, register):
        _put_reached(load_i64(graph, S_REACHED), 0, state, register)
        _close_entry(batch, grammar, automaton, graph, 1, 0)
    _begin(job, grammar, vocabulary, low, high)
    store_i64(job, J_LIST, listed)
    store_i64(job, J_LIST_LENGTH, length)
    count(batch, COUNT_CONTEXTS, 1)


@helper
def _begin(job, grammar, vocabulary, low, high):  # type: ignore[no-untyped-def]
    store_i64(job, J_STAGE, NEXT_HEAD)
    store_i64(job, J_KEY_LOW, low)
    store_i64(job, J_KEY_HIGH, high)
    store_i64(job, J_GRAMMAR, grammar)
    store_i64(job, J_VOCABULARY, vocabulary)
    store_i64(job, J_LIST_AT, 0)
    store_i64(job, J_RESIDUAL_LENGTH, 0)
    store_i64(job, J_PATH_LENGTH, -1)


@helper
def begin_direct(batch, grammar, vocabulary, arena, block, low, high):  # type: ignore[no-untyped-def]
    """Begin the walk of the whole configuration in `block` of the arena at address `arena`."""
    job = load_i64(batch, B_JOB)
    graph = load_i64(batch, B_JOB_GRAPH)
    total = load_i64(batch, B_JOB_TOTAL)
    for word in range(load_i64(batch, B_WORDS)):
        store_i64(total, word, 0)
    store_i64(graph, S_ARENA, arena)
    store_i64(graph, S_FAILED, 0)
    store_i64(graph, S_USED, put_bottom(load_i64(graph, S_SCRATCH), SCRATCH_BASE))
    for word in range(4):
        store_i64(load_i64(job, J_FOLLOW), word, 0)
    entry = _entry(batch, 0)
    store_i64(entry, CONFIG_FLAGS, 0)
    store_i64(entry, _BLOCK, block)
    store_i64(entry, _USED, load_i64(graph, S_USED))
    store_i64(load_i64(batch, B_JOB_STATE), 0, -1)
    _begin(job, grammar, vocabulary, low, high)
    store_i64(job, J_LIST, DIRECT)
    count(batch, COUNT_CONTEXTS, 1)


@helper
def _add_symbols(grammar, automaton, state, mask):  # type: ignore[no-untyped-def]
    """Set the bits of the special tokens that the grammar names in `state`."""
    if flags_of(automaton, state) & HAS_TOKENS:
        starts = section(automaton, AT_TOKEN_START)
        ids = load_i64(grammar, G_TOKEN_IDS)
        for edge in range(load_i32(starts, state), load_i32(starts, state + 1)):
            set_bit(mask, load_i32(ids, load_i32(section(automaton, AT_TOKEN_SYMBOL), edge)))


@kernel("int64(int64, int64)")
def run_context(batch, fuel):  # type: ignore[no-untyped-def]
    """Go on with the job. Returns the fuel left, -1 where it ran out, or FAILED.

    When it is done the context's own mask is in B_JOB_TOTAL, its residual list behind those of G_RESIDUALS, its length
    in J_RESIDUAL_LENGTH, and the job idle.
    """
    job = load_i64(batch, B_JOB)
    grammar = load_i64(job, J_GRAMMAR)
    vocabulary = load_i64(job, J_VOCABULARY)
    automaton = load_i64(grammar, G_AUTOMATON)
    graph = load_i64(batch, B_JOB_GRAPH)
    total = load_i64(batch, B_JOB_TOTAL)
    begin = fuel
    stage = load_i64(job, J_STAGE)
    store_i64(graph, S_WORK, 0)
    store_i64(job, J_UNFINISHED, 0)
    if stage == NEXT_HEAD:
        if load_i64(job, J_LIST) > 0:
            store_i64(job, J_STAGE, LISTS)
        else:
            fuel -= _begin_whole(batch, grammar, automaton, vocabulary)
            state = load_i64(load_i64(batch, B_JOB_STATE), 0)
            if state >= 0:
                _add_symbols(grammar, automaton, state, total)
            else:
                heads = block_at(graph, load_i64(_entry(batch, 0), _BLOCK))
                for i in range(load_i64(heads, BLOCK_COUNT)):
                    _add_symbols(grammar, automaton, load_i64(heads, BLOCK_TRIPLES + 3 * i + 1), total)
        stage = load_i64(job, J_STAGE)
    if stage == RANKS:
        fuel = _walk_undecided(batch, grammar, automaton, graph, vocabulary, fuel)
    else:
        # One place calls `_walk_children`: the whole trie is one list of its root.
        at = load_i64(job, J_LIST_AT)
        last = load_i64(job, J_LIST_LENGTH) if stage == LISTS else 1
        while at < last and load_i64(job, J_UNFINISHED) == 0:
            packed = load_i64(vocabulary, V_ROOT)
            if stage == LISTS:
                packed = load_i64(load_i64(vocabulary, V_NODE), load_i32(load_i64(job, J_LIST), at))
            fuel = _walk_children(batch, grammar, automaton, graph, vocabulary, packed, fuel)
            if load_i64(job, J_UNFINISHED) == 0:
                at += 1
        store_i64(job, J_LIST_AT, at)
    count(batch, COUNT_WORK, begin - fuel + load_i64(graph, S_WORK))
    if load_i64(graph, S_FAILED):
        store_i64(job, J_STAGE, IDLE)
        return FAILED
    if load_i64(job, J_UNFINISHED):
        return -1
    store_i64(job, J_STAGE, IDLE)
    return max(fuel, 0)
