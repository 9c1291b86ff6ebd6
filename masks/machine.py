"""Stepping configurations by one byte: heads with plain stacks, counters, lazily built state sets.

Exactly what `grammar.automaton` says a state means. `tests/oracles.py` has the same in plain Python.
"""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import (
    COUNTER,
    FINAL,
    H_N_CLASSES,
    H_SECTIONS,
    HAS_CALLS,
    HAS_TOKENS,
    MEMBERS,
    SECTION_INDEX,
)
from ..grammar.members import BY_BITS
from .layout import (
    COMPLETE,
    CONFIG_FIRST_HEAD,
    CONFIG_FLAGS,
    CONFIG_HEADS,
    HEAD_DEPTH,
    HEAD_REGISTERS,
    HEAD_STATES,
    HEAD_WORDS,
    MAX_DEPTH,
    MAX_HEADS,
    OVERFLOW,
    WORK_HEADS,
)
from .members import is_met, may_add_any, members_distance
from .memory import load_i32, load_i64, load_u8, section, store_i64

#: More items than any token can hold.
FAR = 1 << 20

_AT = {name: H_SECTIONS + i for name, i in SECTION_INDEX.items()}
AT_BYTE_CLASS, AT_EDGES, AT_DENSE = _AT["byte_class"], _AT["edges"], _AT["dense"]
AT_SINGLE_BYTE, AT_SINGLE_TARGET = _AT["single_byte"], _AT["single_target"]
AT_STATE_FLAGS, AT_STATE_FRAME, AT_STATE_LOOP = _AT["state_flags"], _AT["state_frame"], _AT["state_loop"]
AT_CALL_START, AT_CALL_FRAME, AT_CALL_TARGET = _AT["call_start"], _AT["call_frame"], _AT["call_target"]
AT_TOKEN_START, AT_TOKEN_SYMBOL, AT_TOKEN_TARGET = _AT["token_start"], _AT["token_symbol"], _AT["token_target"]
AT_FRAME_START, AT_FRAME_KIND = _AT["frame_start"], _AT["frame_kind"]
AT_FRAME_MINIMUM, AT_FRAME_MAXIMUM = _AT["frame_minimum"], _AT["frame_maximum"]
AT_FRAME_FIRST, AT_FRAME_FOLLOW = _AT["frame_first"], _AT["frame_follow"]
AT_LOOP_START, AT_LOOP_RANGES, AT_LAZY_LOOP = _AT["loop_start"], _AT["loop_ranges"], _AT["lazy_loop"]
AT_STATE_DISTANCE, AT_FRAME_LENGTH = _AT["state_distance"], _AT["frame_length"]
AT_LAZY_EDGE_START, AT_LAZY_EDGES, AT_LAZY_FINAL = _AT["lazy_edge_start"], _AT["lazy_edges"], _AT["lazy_final"]


@helper
def delta(automaton, state, byte):  # type: ignore[no-untyped-def]
    """Target of the byte edge, or -1."""
    edge = load_i32(section(automaton, AT_EDGES), state)
    if edge >= 0:
        column = load_u8(section(automaton, AT_BYTE_CLASS), byte)
        return load_i32(section(automaton, AT_DENSE), edge * load_i64(automaton, H_N_CLASSES) + column)
    if edge == -1:
        return edge
    single = -2 - edge
    if load_u8(section(automaton, AT_SINGLE_BYTE), single) == byte:
        return load_i32(section(automaton, AT_SINGLE_TARGET), single)
    return -1


@helper
def flags_of(automaton, state):  # type: ignore[no-untyped-def]
    return load_u8(section(automaton, AT_STATE_FLAGS), state)


@helper
def frame_of(automaton, state):  # type: ignore[no-untyped-def]
    return load_i32(section(automaton, AT_STATE_FRAME), state)


@helper
def only_operations(automaton, state):  # type: ignore[no-untyped-def]
    """Is a state with operations nothing else?"""
    others = flags_of(automaton, state) & (FINAL | HAS_CALLS | HAS_TOKENS)
    return others == 0 and load_i32(section(automaton, AT_EDGES), state) == -1


@helper
def restart_of(automaton, state, register):  # type: ignore[no-untyped-def]
    """Start state from which another item of a counter may begin in `state`, or -1."""
    if flags_of(automaton, state) & FINAL == 0:
        return -1
    frame = frame_of(automaton, state)
    if load_u8(section(automaton, AT_FRAME_KIND), frame) != COUNTER:
        return -1
    maximum = load_i64(section(automaton, AT_FRAME_MAXIMUM), frame)
    if maximum >= 0 and register + 1 >= maximum:
        return -1
    return load_i32(section(automaton, AT_FRAME_START), frame)


@helper
def next_register(automaton, state, register):  # type: ignore[no-untyped-def]
    """The counter's register when another item begins."""
    frame = frame_of(automaton, state)
    if load_i64(section(automaton, AT_FRAME_MAXIMUM), frame) >= 0:
        return register + 1
    return min(register + 1, max(load_i64(section(automaton, AT_FRAME_MINIMUM), frame) - 1, 0))


@helper
def may_return(automaton, state, register):  # type: ignore[no-untyped-def]
    """May the frame return in `state`?"""
    if flags_of(automaton, state) & FINAL == 0:
        return False
    frame = frame_of(automaton, state)
    kind = load_u8(section(automaton, AT_FRAME_KIND), frame)
    if kind == MEMBERS:
        return is_met(automaton, frame, register)
    if kind != COUNTER:
        return True
    return register + 1 >= load_i64(section(automaton, AT_FRAME_MINIMUM), frame)


@helper
def register_class(automaton, state, register, reach):  # type: ignore[no-untyped-def]
    """What a token of at most `reach` bytes can learn of a counter: equal classes, equal masks.

    An item takes at least one byte, so only the distances to the two bounds count, up to `reach`.
    """
    frame = frame_of(automaton, state)
    if load_u8(section(automaton, AT_FRAME_KIND), frame) != COUNTER:
        return 0
    below = load_i64(section(automaton, AT_FRAME_MINIMUM), frame) - 1 - register
    below = min(max(below, 0), reach + 1)
    maximum = load_i64(section(automaton, AT_FRAME_MAXIMUM), frame)
    above = reach + 1
    if maximum >= 0:
        above = min(maximum - 1 - register, reach + 1)
    return below * (reach + 2) + above


@helper
def counter_distances(automaton, state, register, reach):  # type: ignore[no-untyped-def]
    """Items that a counter lacks to its minimum after the one being read, and how many there is room for: FAR past
    what a token of at most `reach` bytes can get to, as an item takes at least one byte.

    Of a frame of members the first is a number of its own for each register, as if a minimum were so far away, and the
    second says whether members without a bit are allowed; where all have one, the two together are such a number.
    `state` -1, as below a stack's root frame, has nothing to count.
    """
    if state < 0:
        return 0, FAR
    frame = frame_of(automaton, state)
    kind = load_u8(section(automaton, AT_FRAME_KIND), frame)
    if kind == MEMBERS:
        if load_i64(section(automaton, AT_FRAME_MAXIMUM), frame) == BY_BITS:
            return (1 << 61) | (register & 0xFFFFFFFF), (1 << 61) | ((register >> 32) & 0xFFFFFFFF)
        return (1 << 62) | register, 1 if may_add_any(automaton, frame, register) else FAR
    if kind != COUNTER:
        return 0, FAR
    below = max(load_i64(section(automaton, AT_FRAME_MINIMUM), frame) - 1 - register, 0)
    maximum = load_i64(section(automaton, AT_FRAME_MAXIMUM), frame)
    above = FAR
    if maximum >= 0 and maximum - 1 - register <= reach:
        above = maximum - 1 - register
    return below if below <= reach else FAR, above


@helper
def moved_register(automaton, state, register, added):  # type: ignore[no-untyped-def]
    """The register of a counter after `added` more items."""
    frame = frame_of(automaton, state)
    if added == 0 or load_i64(section(automaton, AT_FRAME_MAXIMUM), frame) >= 0:
        return register + added
    return min(register + added, max(load_i64(section(automaton, AT_FRAME_MINIMUM), frame) - 1, 0))


@helper
def level_distance(automaton, state, register):  # type: ignore[no-untyped-def]
    """Fewest bytes until the frame can return."""
    distance = load_i32(section(automaton, AT_STATE_DISTANCE), state)
    frame = frame_of(automaton, state)
    kind = load_u8(section(automaton, AT_FRAME_KIND), frame)
    if kind == MEMBERS:
        return members_distance(automaton, state, register, distance)
    if kind == COUNTER:
        minimum = load_i64(section(automaton, AT_FRAME_MINIMUM), frame)
        item = load_i64(section(automaton, AT_FRAME_LENGTH), frame) // max(minimum, 1)
        distance += max(minimum - 1 - register, 0) * item
    return distance


@helper
def head_at(config, index):  # type: ignore[no-untyped-def]
    return config + 8 * (CONFIG_FIRST_HEAD + index * HEAD_WORDS)


@helper
def top_state(head):  # type: ignore[no-untyped-def]
    return load_i64(head, HEAD_STATES + load_i64(head, HEAD_DEPTH) - 1)


@helper
def top_register(head):  # type: ignore[no-untyped-def]
    return load_i64(head, HEAD_REGISTERS + load_i64(head, HEAD_DEPTH) - 1)


@helper
def _put_level(head, level, state, register):  # type: ignore[no-untyped-def]
    store_i64(head, HEAD_STATES + level, state)
    store_i64(head, HEAD_REGISTERS + level, register)


@helper
def _begin_head(work, base, levels, depth):  # type: ignore[no-untyped-def]
    """Room for one more head, with the lowest `levels` levels of `base`; 0 (and OVERFLOW) where there is none."""
    n = load_i64(work, CONFIG_HEADS)
    if n >= WORK_HEADS or depth > MAX_DEPTH:
        store_i64(work, CONFIG_FLAGS, load_i64(work, CONFIG_FLAGS) | OVERFLOW)
        return 0
    head = head_at(work, n)
    store_i64(head, HEAD_DEPTH, depth)
    for level in range(levels):
        _put_level(head, level, load_i64(base, HEAD_STATES + level), load_i64(base, HEAD_REGISTERS + level))
    return head


@helper
def _same_head(head, other):  # type: ignore[no-untyped-def]
    depth = load_i64(head, HEAD_DEPTH)
    if load_i64(other, HEAD_DEPTH) != depth:
        return False
    for level in range(depth):
        if load_i64(other, HEAD_STATES + level) != load_i64(head, HEAD_STATES + level) or load_i64(
            other, HEAD_REGISTERS + level
        ) != load_i64(head, HEAD_REGISTERS + level):
            return False
    return True


@helper
def _commit_head(work):  # type: ignore[no-untyped-def]
    """Keep the head begun last, unless an equal one is there."""
    n = load_i64(work, CONFIG_HEADS)
    head = head_at(work, n)
    for i in range(n):
        if _same_head(head, head_at(work, i)):
            return
    store_i64(work, CONFIG_HEADS, n + 1)


@helper
def add_head(work, base, depth, state, register):  # type: ignore[no-untyped-def]
    """Add the head with `base`'s levels below `depth - 1` and (state, register) on top, unless it is there."""
    head = _begin_head(work, base, depth - 1, depth)
    if head != 0:
        _put_level(head, depth - 1, state, register)
        _commit_head(work)


@helper
def _call(automaton, work, base, depth, caller, register):  # type: ignore[no-untyped-def]
    """Follow the call edges of `caller`, the top of `base`: the return state replaces it, the callee goes on top."""
    starts = section(automaton, AT_CALL_START)
    for call in range(load_i32(starts, caller), load_i32(starts, caller + 1)):
        head = _begin_head(work, base, depth - 1, depth + 1)
        if head != 0:
            frame = load_i32(section(automaton, AT_CALL_FRAME), call)
            _put_level(head, depth - 1, load_i32(section(automaton, AT_CALL_TARGET), call), register)
            _put_level(head, depth, load_i32(section(automaton, AT_FRAME_START), frame), 0)
            _commit_head(work)


@helper
def close(automaton, work, config):  # type: ignore[no-untyped-def]
    """Follow all returns and calls from the heads of `work`; leave the resting heads in `config`."""
    index = 0
    while index < load_i64(work, CONFIG_HEADS):
        head = head_at(work, index)
        index += 1
        depth = load_i64(head, HEAD_DEPTH)
        state = load_i64(head, HEAD_STATES + depth - 1)
        register = load_i64(head, HEAD_REGISTERS + depth - 1)
        if may_return(automaton, state, register):
            if depth == 1:
                store_i64(work, CONFIG_FLAGS, load_i64(work, CONFIG_FLAGS) | COMPLETE)
            else:
                below = depth - 2
                add_head(
                    work,
                    head,
                    depth - 1,
                    load_i64(head, HEAD_STATES + below),
                    load_i64(head, HEAD_REGISTERS + below),
                )
        if flags_of(automaton, state) & HAS_CALLS:
            _call(automaton, work, head, depth, state, register)
        start = restart_of(automaton, state, register)
        if start >= 0 and flags_of(automaton, start) & HAS_CALLS:
            _call(automaton, work, head, depth, start, next_register(automaton, state, register))
    kept = 0
    flags = load_i64(work, CONFIG_FLAGS)
    edges = section(automaton, AT_EDGES)
    for i in range(load_i64(work, CONFIG_HEADS)):
        head = head_at(work, i)
        state = top_state(head)
        rests = load_i32(edges, state) != -1 or flags_of(automaton, state) & HAS_TOKENS != 0
        if not rests:
            start = restart_of(automaton, state, top_register(head))
            rests = start >= 0 and load_i32(edges, start) != -1
        if rests:
            if kept == MAX_HEADS:
                flags |= OVERFLOW
                break
            target = head_at(config, kept)
            for word in range(HEAD_WORDS):
                store_i64(target, word, load_i64(head, word))
            kept += 1
    store_i64(config, CONFIG_HEADS, kept)
    store_i64(config, CONFIG_FLAGS, flags)


@helper
def reach_byte(automaton, config, byte, work):  # type: ignore[no-untyped-def]
    """Put into `work` the heads that the byte edges of `config`'s heads lead to."""
    store_i64(work, CONFIG_HEADS, 0)
    store_i64(work, CONFIG_FLAGS, 0)
    for i in range(load_i64(config, CONFIG_HEADS)):
        head = head_at(config, i)
        depth = load_i64(head, HEAD_DEPTH)
        state = load_i64(head, HEAD_STATES + depth - 1)
        register = load_i64(head, HEAD_REGISTERS + depth - 1)
        target = delta(automaton, state, byte)
        if target >= 0:
            add_head(work, head, depth, target, register)
        start = restart_of(automaton, state, register)
        if start >= 0:
            target = delta(automaton, start, byte)
            if target >= 0:
                add_head(work, head, depth, target, next_register(automaton, state, register))


@helper
def step_config(automaton, config, byte, work, out):  # type: ignore[no-untyped-def]
    """One byte: `config` -> `out` (they may be the same). Returns False where no head is left (`out` untouched)."""
    reach_byte(automaton, config, byte, work)
    if load_i64(work, CONFIG_HEADS) == 0:
        return False
    close(automaton, work, out)
    return True


@helper
def start_config(automaton, root_frame, work, out):  # type: ignore[no-untyped-def]
    """The configuration before the first byte."""
    store_i64(work, CONFIG_HEADS, 1)
    store_i64(work, CONFIG_FLAGS, 0)
    head = head_at(work, 0)
    store_i64(head, HEAD_DEPTH, 1)
    store_i64(head, HEAD_STATES, load_i32(section(automaton, AT_FRAME_START), root_frame))
    store_i64(head, HEAD_REGISTERS, 0)
    close(automaton, work, out)


@helper
def step_token_symbol(automaton, token_ids, config, token, work, out):  # type: ignore[no-untyped-def]
    """Follow the edges labelled with special token `token`. Returns False where there are none."""
    store_i64(work, CONFIG_HEADS, 0)
    store_i64(work, CONFIG_FLAGS, 0)
    starts = section(automaton, AT_TOKEN_START)
    for i in range(load_i64(config, CONFIG_HEADS)):
        head = head_at(config, i)
        state = top_state(head)
        if flags_of(automaton, state) & HAS_TOKENS == 0:
            continue
        for edge in range(load_i32(starts, state), load_i32(starts, state + 1)):
            symbol = load_i32(section(automaton, AT_TOKEN_SYMBOL), edge)
            if load_i32(token_ids, symbol) == token:
                target = load_i32(section(automaton, AT_TOKEN_TARGET), edge)
                add_head(work, head, load_i64(head, HEAD_DEPTH), target, top_register(head))
    if load_i64(work, CONFIG_HEADS) == 0:
        return False
    close(automaton, work, out)
    return True
