"""The blocks of one sequence of a recursive grammar: kept in an arena of fixed size, compacted now and then.

The arena is a small one at first, beside those of other slots, so that a step finds them all in few pages; a stack that
needs more moves to a large one. The bytes of a token are stepped in scratch. When all of them were legal, the blocks
that its configuration needs are copied to the end of the slot's arena: older blocks never refer to newer ones. The
configurations of the history keep blocks alive; what nothing keeps goes when the arena is compacted, which keeps the
order. `done` lists keep nothing. Compaction is done at once, so it comes when there is twice as much as the last one
left: it takes as long as the stack is high, not as the arena is large.
"""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import H_ROOT_FRAME
from .freeze import block_at, put_triple
from .fuel import affords
from .fuel import count as count_up
from .graph import close_graph, put_bottom, reach_byte_graph
from .history import config_at
from .layout import (
    B_ARENA_NEXT,
    B_ARENA_USED,
    B_ARENA_WORDS,
    B_ARENAS,
    B_BYTES_DONE,
    B_GRAPH,
    B_LARGE_ARENAS,
    B_MOVES,
    B_OLDEST,
    B_POSITION,
    B_SMALL_ARENAS,
    BLOCK_COUNT,
    BLOCK_DONE,
    BLOCK_MARK,
    BLOCK_TRIPLES,
    CONFIG_BLOCK,
    CONFIG_BLOCK_HEADS,
    CONFIG_FLAGS,
    CONFIG_HEADS,
    COUNT_WORK,
    G_AUTOMATON,
    G_TOKEN_IDS,
    MAX_GRAPH_HEADS,
    S_ARENA,
    S_COUNT,
    S_FAILED,
    S_FLAGS,
    S_REACHED,
    S_SCRATCH,
    S_STACK,
    S_USED,
    S_WORK,
    SCRATCH_BASE,
    SCRATCH_BLOCK_WORDS,
)
from .machine import AT_FRAME_START, AT_TOKEN_START, AT_TOKEN_SYMBOL, AT_TOKEN_TARGET
from .memory import load_i32, load_i64, load_u8, section, store_i64
from .one_head import run_one_head

#: What accepting says: legal, not legal, legal but past a limit of the stack graph (nothing has changed), or that the
#: fuel was spent before all bytes were looked at.
REFUSED, ACCEPTED, TOO_DEEP, UNFINISHED, ENDED = 0, 1, 2, 3, 4
#: Words of blocks that are copied in the time of one byte edge.
WORDS_A_UNIT = 16
#: Words of a small arena, which are never too many to be left as they are. Compacting them takes as long as 512 byte
#: edges, so no more than a phase may do at once (`outcome.PIECE_FUEL`).
LEAST_COMPACTED = 4096
#: Words of an arena that are looked at and moved in the time of one byte edge, when it is compacted.
COMPACTED_A_UNIT = 8
#: In the place of a block that nothing keeps, in a `done` list.
_GONE = -2


@helper
def mark_blocks(graph, n, lowest):  # type: ignore[no-untyped-def]
    """Mark the blocks from number `lowest` on that the `n` block numbers in S_STACK lead to; returns their words."""
    stack = load_i64(graph, S_STACK)
    words = 0
    while n > 0:
        n -= 1
        number = load_i64(stack, n)
        block = block_at(graph, number)
        if number < lowest or load_i64(block, BLOCK_MARK):
            continue
        store_i64(block, BLOCK_MARK, 1)
        triples = load_i64(block, BLOCK_COUNT)
        words += BLOCK_TRIPLES + 3 * triples + load_i64(block, BLOCK_DONE)
        for k in range(triples):
            other = load_i64(block, BLOCK_TRIPLES + 3 * k)
            if other >= lowest and load_i64(block_at(graph, other), BLOCK_MARK) == 0:
                store_i64(stack, n, other)
                n += 1
    return words


@helper
def _renewed(graph, number, lowest):  # type: ignore[no-untyped-def]
    """The new number of a block that is being moved; `_GONE` where it is not moved with the others."""
    if number < lowest:
        return number
    mark = load_i64(block_at(graph, number), BLOCK_MARK)
    return mark - 2 if mark > 0 else _GONE


@helper
def number_blocks(source, end, first):  # type: ignore[no-untyped-def]
    """Number the marked blocks between two addresses as if they lay one after the other from `first` on.

    A number, plus 2, is kept in BLOCK_MARK. Returns the number after the last.
    """
    number = first
    at = source
    while at < end:
        size = BLOCK_TRIPLES + 3 * load_i64(at, BLOCK_COUNT) + load_i64(at, BLOCK_DONE)
        if load_i64(at, BLOCK_MARK):
            store_i64(at, BLOCK_MARK, number + 2)
            number += size
        at += 8 * size
    return number


@helper
def move_blocks(graph, source, end, lowest, target, first):  # type: ignore[no-untyped-def]
    """Move the marked blocks between the addresses `source` and `end` to `target`, in order; returns the words moved.

    All numbers from `lowest` on are those of blocks in this part; the new ones begin with `first`. Each block's new
    number stays in BLOCK_MARK of its old place, plus 2, unless another block has been moved there.
    """
    number = number_blocks(source, end, first)
    at = source
    while at < end:
        triples, done = load_i64(at, BLOCK_COUNT), load_i64(at, BLOCK_DONE)
        if load_i64(at, BLOCK_MARK):
            for k in range(triples):
                place = BLOCK_TRIPLES + 3 * k
                store_i64(at, place, _renewed(graph, load_i64(at, place), lowest))
            for place in range(BLOCK_TRIPLES + 3 * triples, BLOCK_TRIPLES + 3 * triples + done):
                store_i64(at, place, _renewed(graph, load_i64(at, place), lowest))
        at += 8 * (BLOCK_TRIPLES + 3 * triples + done)
    at = source
    while at < end:
        size = BLOCK_TRIPLES + 3 * load_i64(at, BLOCK_COUNT) + load_i64(at, BLOCK_DONE)
        mark = load_i64(at, BLOCK_MARK)
        if mark:
            to = target + 8 * (mark - 2 - first)
            for word in range(size):
                store_i64(to, word, load_i64(at, word))
            store_i64(to, BLOCK_MARK, 0)
        at += 8 * size
    return number - first


@helper
def note_moved(batch, slot):  # type: ignore[no-untyped-def]
    """Numbers of blocks of the slot's arena no longer mean what they did."""
    moves = load_i64(batch, B_MOVES)
    store_i64(moves, slot, load_i64(moves, slot) + 1)


@helper
def _compact(batch, graph, slot):  # type: ignore[no-untyped-def]
    """Drop what neither the slot's history nor the marked blocks in scratch need, and renumber what these refer to."""
    arena = load_i64(graph, S_ARENA)
    end = arena + 8 * load_i64(load_i64(batch, B_ARENA_USED), slot)
    scratch = load_i64(graph, S_SCRATCH)
    scratch_end = scratch + 8 * load_i64(graph, S_USED)
    first = load_i64(load_i64(batch, B_OLDEST), slot)
    last = load_i64(load_i64(batch, B_POSITION), slot)
    note_moved(batch, slot)
    stack = load_i64(graph, S_STACK)
    store_i64(stack, 0, 0)  # the bottom node
    mark_blocks(graph, 1, 0)
    at = scratch
    while at < scratch_end:
        triples = load_i64(at, BLOCK_COUNT)
        if load_i64(at, BLOCK_MARK):
            for k in range(triples):
                other = load_i64(at, BLOCK_TRIPLES + 3 * k)
                if other < SCRATCH_BASE:
                    store_i64(stack, 0, other)
                    mark_blocks(graph, 1, 0)
        at += 8 * (BLOCK_TRIPLES + 3 * triples + load_i64(at, BLOCK_DONE))
    for position in range(first, last + 1):
        config = config_at(batch, slot, position)
        if load_i64(config, CONFIG_HEADS):
            store_i64(stack, 0, load_i64(config, CONFIG_BLOCK))
            mark_blocks(graph, 1, 0)
    # The numbers outside the arena are renewed while the old places still tell the new ones.
    number_blocks(arena, end, 0)
    for position in range(first, last + 1):
        config = config_at(batch, slot, position)
        if load_i64(config, CONFIG_HEADS):
            store_i64(config, CONFIG_BLOCK, _renewed(graph, load_i64(config, CONFIG_BLOCK), 0))
    at = scratch
    while at < scratch_end:
        triples, done = load_i64(at, BLOCK_COUNT), load_i64(at, BLOCK_DONE)
        if load_i64(at, BLOCK_MARK):
            for k in range(triples + done):
                place = BLOCK_TRIPLES + (3 * k if k < triples else 2 * triples + k)
                if load_i64(at, place) < SCRATCH_BASE:
                    store_i64(at, place, _renewed(graph, load_i64(at, place), 0))
        at += 8 * (BLOCK_TRIPLES + 3 * triples + done)
    count_up(batch, COUNT_WORK, (end - arena) // (8 * COMPACTED_A_UNIT))
    store_i64(load_i64(batch, B_ARENA_USED), slot, move_blocks(graph, arena, end, 0, arena, 0))


@helper
def _enlarge(batch, graph, slot):  # type: ignore[no-untyped-def]
    """Go on in the slot's large arena."""
    arenas, large = load_i64(batch, B_ARENAS), load_i64(load_i64(batch, B_LARGE_ARENAS), slot)
    arena = load_i64(arenas, slot)
    if arena != large:
        used = load_i64(load_i64(batch, B_ARENA_USED), slot)
        for word in range(used):
            store_i64(large, word, load_i64(arena, word))
        store_i64(arenas, slot, large)
        store_i64(graph, S_ARENA, large)
        count_up(batch, COUNT_WORK, used // WORDS_A_UNIT)


@helper
def _commit(batch, graph, slot, block):  # type: ignore[no-untyped-def]
    """Copy scratch block `block` and what it needs to the slot's arena; returns its new number, -1: no room.

    The arena is compacted where B_ARENA_NEXT says so, or there is no room otherwise. Scratch is empty afterwards.
    """
    if block < SCRATCH_BASE:
        return block
    store_i64(load_i64(graph, S_STACK), 0, block)
    words = mark_blocks(graph, 1, SCRATCH_BASE)
    count_up(batch, COUNT_WORK, words // WORDS_A_UNIT)
    used = load_i64(load_i64(batch, B_ARENA_USED), slot)
    following = load_i64(batch, B_ARENA_NEXT)
    if used + words > min(load_i64(following, slot), load_i64(batch, B_ARENA_WORDS)):
        _compact(batch, graph, slot)
        used = load_i64(load_i64(batch, B_ARENA_USED), slot)
        store_i64(following, slot, max(LEAST_COMPACTED, 2 * (used + words)))
        if used + words > load_i64(batch, B_ARENA_WORDS):
            return -1
        if load_i64(following, slot) > LEAST_COMPACTED:
            _enlarge(batch, graph, slot)
    scratch = load_i64(graph, S_SCRATCH)
    end = scratch + 8 * load_i64(graph, S_USED)
    move_blocks(graph, scratch, end, SCRATCH_BASE, load_i64(graph, S_ARENA) + 8 * used, used)
    store_i64(load_i64(batch, B_ARENA_USED), slot, used + words)
    number = load_i64(block_at(graph, block), BLOCK_MARK) - 2
    store_i64(graph, S_USED, 0)
    return number


@helper
def graph_of_slot(batch, slot):  # type: ignore[no-untyped-def]
    """The block for accepting, over the slot's arena and with empty scratch."""
    graph = load_i64(batch, B_GRAPH)
    store_i64(graph, S_ARENA, load_i64(load_i64(batch, B_ARENAS), slot))
    store_i64(graph, S_USED, 0)
    store_i64(graph, S_FAILED, 0)
    store_i64(graph, S_WORK, 0)
    return graph


@helper
def _write_config(batch, graph, slot, block, config):  # type: ignore[no-untyped-def]
    """Make what was closed last the configuration at `config`."""
    heads, flags = load_i64(graph, S_COUNT), load_i64(graph, S_FLAGS)
    number = _commit(batch, graph, slot, block)
    if number < 0:
        return TOO_DEEP
    store_i64(config, CONFIG_HEADS, 1 if heads > 0 else 0)
    store_i64(config, CONFIG_FLAGS, flags)
    store_i64(config, CONFIG_BLOCK, number)
    store_i64(config, CONFIG_BLOCK_HEADS, heads)
    return ACCEPTED


@helper
def start_graph(batch, grammar, slot, config):  # type: ignore[no-untyped-def]
    """Put the slot of a recursive grammar before its first token."""
    automaton = load_i64(grammar, G_AUTOMATON)
    store_i64(load_i64(batch, B_ARENAS), slot, load_i64(batch, B_SMALL_ARENAS) + 8 * LEAST_COMPACTED * slot)
    graph = graph_of_slot(batch, slot)
    note_moved(batch, slot)
    store_i64(config, CONFIG_HEADS, 0)
    store_i64(load_i64(batch, B_ARENA_NEXT), slot, LEAST_COMPACTED)
    store_i64(load_i64(batch, B_ARENA_USED), slot, put_bottom(load_i64(graph, S_ARENA), 0))
    reached = load_i64(graph, S_REACHED)
    store_i64(reached, 0, 0)
    store_i64(reached, 1, load_i32(section(automaton, AT_FRAME_START), load_i64(automaton, H_ROOT_FRAME)))
    store_i64(reached, 2, 0)
    block = close_graph(grammar, automaton, graph, 1)
    return load_i64(graph, S_FAILED) == 0 and _write_config(batch, graph, slot, block, config) == ACCEPTED


@helper
def accept_graph(batch, grammar, slot, config, data, begin, end, target, keep):  # type: ignore[no-untyped-def]
    """Write to `target` the configuration after bytes data[begin:end]: as `advance.accept_data`.

    Without `keep` only the answer counts: nothing is written, and TOO_DEEP is not asked for.
    """
    if load_i64(config, CONFIG_HEADS) == 0:
        return REFUSED
    automaton = load_i64(grammar, G_AUTOMATON)
    graph = graph_of_slot(batch, slot)
    block = load_i64(config, CONFIG_BLOCK)
    i = begin
    while i < end:
        if i > begin and not affords(batch, 1):
            store_i64(batch, B_BYTES_DONE, i)
            if not keep:
                return UNFINISHED
            return UNFINISHED if _write_config(batch, graph, slot, block, target) == ACCEPTED else TOO_DEEP
        block, after = run_one_head(batch, automaton, graph, block, data, i, end)
        count = 1
        if after == i:
            count = reach_byte_graph(automaton, graph, block, load_u8(data, i))
            if count > 0:
                block = close_graph(grammar, automaton, graph, count)
            after += 1
        i = after
        count_up(batch, COUNT_WORK, load_i64(graph, S_WORK))
        store_i64(graph, S_WORK, 0)
        if count == 0:
            return REFUSED
        if load_i64(graph, S_FAILED):
            return TOO_DEEP
        if load_i64(graph, S_USED) > SCRATCH_BLOCK_WORDS // 2 and i < end:
            # A long text: keep what it has come to, and go on with empty scratch.
            heads, flags = load_i64(graph, S_COUNT), load_i64(graph, S_FLAGS)
            block = _commit(batch, graph, slot, block)
            if block < 0:
                return TOO_DEEP
            store_i64(graph, S_COUNT, heads)
            store_i64(graph, S_FLAGS, flags)
    if not keep:
        return ACCEPTED
    return _write_config(batch, graph, slot, block, target)


@helper
def accept_symbol_graph(batch, grammar, slot, config, token, target, keep):  # type: ignore[no-untyped-def]
    """The same for the edges labelled with special token `token`."""
    if load_i64(config, CONFIG_HEADS) == 0:
        return REFUSED
    automaton = load_i64(grammar, G_AUTOMATON)
    token_ids = load_i64(grammar, G_TOKEN_IDS)
    graph = graph_of_slot(batch, slot)
    heads = block_at(graph, load_i64(config, CONFIG_BLOCK))
    reached = load_i64(graph, S_REACHED)
    starts = section(automaton, AT_TOKEN_START)
    count = 0
    count_up(batch, COUNT_WORK, load_i64(heads, BLOCK_COUNT) // WORDS_A_UNIT)
    for i in range(load_i64(heads, BLOCK_COUNT)):
        at = BLOCK_TRIPLES + 3 * i
        state = load_i64(heads, at + 1)
        for edge in range(load_i32(starts, state), load_i32(starts, state + 1)):
            symbol = load_i32(section(automaton, AT_TOKEN_SYMBOL), edge)
            if load_i32(token_ids, symbol) == token:
                goal = load_i32(section(automaton, AT_TOKEN_TARGET), edge)
                count = put_triple(
                    graph, reached, count, MAX_GRAPH_HEADS, load_i64(heads, at), goal, load_i64(heads, at + 2)
                )
    if count == 0:
        return REFUSED
    if not keep:
        return ACCEPTED
    block = close_graph(grammar, automaton, graph, count)
    if load_i64(graph, S_FAILED):
        return TOO_DEEP
    return _write_config(batch, graph, slot, block, target)
