"""States that stay alive while code points of some class are read, whatever their order."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from .._numba import allocating_helper, helper, kernel
from .automaton import COUNTER, FINAL, HAS_CALLS, HAS_OPERATIONS, PLAIN, SPREAD
from .expression import ByteAutomaton, Characters, Expression, Machine, Ranges, Repeat
from .position import Int32Array, Uint8Array, grown
from .ranges import normalise, subtract
from .simplify import children
from .utf8 import count_code_points, fragment

#: Classes of more code points than this, or with one that is not ASCII, are worth looking for.
WIDE = 16
#: Pairs of a state of the automaton and one of a class's (two bytes each) up to which it is asked among which states
#: the class stays; past it only states that loop on it by themselves are known, and masks of others take longer.
MAX_SPREAD_PAIRS = 1 << 24


def is_wide(node: Expression) -> bool:
    """Whether `node` is a class of more than `WIDE` code points."""
    return isinstance(node, Characters) and count_code_points(node.ranges) > WIDE


def is_worth_marking(node: Characters) -> bool:
    """Whether states that loop on this class are worth knowing."""
    return bool(node.ranges) and (is_wide(node) or node.ranges[-1][1] > 0x7F)


def loop_classes(node: Expression) -> list[Ranges]:
    """The distinct classes under repeats that states may loop on, largest first."""
    found: dict[Ranges, None] = {}
    seen: set[tuple[int, bool]] = set()
    stack = [(node, False)]
    while stack:
        at, repeated = stack.pop()
        if (id(at), repeated) in seen:
            continue
        seen.add((id(at), repeated))
        if isinstance(at, Characters):
            if repeated and is_worth_marking(at):
                found[at.ranges] = None
            continue
        if isinstance(at, ByteAutomaton):
            found.update(dict.fromkeys(at.loops))
        repeated = repeated or isinstance(at, Repeat | Machine)
        stack.extend((child, repeated) for child in reversed(children(at)))
    return sorted(found, key=lambda ranges: (-count_code_points(ranges), ranges))


#: The sections that `_mark_loops` takes first.
_COLUMNS = (
    "byte_class",
    "edges",
    "dense",
    "single_byte",
    "single_target",
    "state_flags",
    "state_frame",
    "frame_start",
    "frame_kind",
)


#: Code points that begin with each UTF-8 lead byte (RFC 3629).
_LEADS = {
    **{0xC0 + i: (i << 6, (i << 6) + 0x3F) for i in range(2, 0x20)},
    **{0xE0 + i: (max(i << 12, 0x800), (i << 12) + 0xFFF) for i in range(0x10)},
    **{0xF0 + i: (max(i << 18, 0x10000), min((i << 18) + 0x3FFFF, 0x10FFFF)) for i in range(5)},
}


def without_absent(ranges: Ranges, absent: frozenset[int]) -> Ranges:
    """`ranges` less the code points whose first UTF-8 byte is in `absent`."""
    lost = [(b, b) for b in absent if b < 0x80] + [_LEADS[b] for b in absent if b in _LEADS]
    return subtract(ranges, normalise(lost)) if lost else ranges


@lru_cache(maxsize=256)
def class_edges(ranges: Ranges) -> tuple[Int32Array, Int32Array, Int32Array, Int32Array]:
    """The automaton of a class: where the edges of each state begin, their lowest and highest bytes, their targets."""
    part = fragment(ranges)
    table = np.array(part.edges, np.int32).reshape(-1, 4)
    edge_start = np.searchsorted(table[:, 0], np.arange(part.n_states + 1)).astype(np.int32)
    return edge_start, *(np.ascontiguousarray(table[:, i]) for i in (1, 2, 3))  # type: ignore[return-value]


@lru_cache(maxsize=256)
def _edges_of_all(
    classes: tuple[Ranges, ...],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Int32Array, Int32Array, Int32Array, Int32Array, Uint8Array]:
    """`class_edges` of all, one behind the other: where each begins among the states' starts and among the edges, and
    the columns; and whether it has code points above U+007F."""
    parts = [class_edges(ranges) for ranges in classes]
    none: Any = (np.zeros(0, np.int32),) * 4
    columns = [np.concatenate(column) for column in zip(none, *parts, strict=True)]
    state_at, edge_at = (np.cumsum([0, *(len(part[i]) for part in parts)], dtype=np.int64) for i in (0, 1))
    above = np.array([bool(ranges) and ranges[-1][1] > 0x7F for ranges in classes], np.uint8)
    return state_at, edge_at, *columns, above


def find_loops(
    arrays: dict[str, npt.NDArray[Any]], n_classes: int, asked: npt.NDArray[np.bool_], classes: list[Ranges]
) -> tuple[Int32Array, list[Ranges]]:
    """(`state_loop`, the classes that some state loops on) for the sections `arrays` of an automaton.

    `classes`: largest first. `asked`: states that a head may come to or not, as the members that were there say. Sets
    the flag SPREAD of states whose class leads on to others.
    """
    loop = np.full(len(arrays["edges"]), -1, np.int32)
    if not classes:
        return loop, []
    columns = [arrays[name] for name in _COLUMNS]
    arguments: Any = (*columns, n_classes, asked.view(np.uint8), *_edges_of_all(tuple(classes)), loop)
    used = _find_loops(*arguments)  # type: ignore[no-untyped-call]
    return loop, [ranges for ranges, some in zip(classes, used.tolist(), strict=True) if some]


@helper
def _edge(
    state: int,
    byte: int,
    byte_class: Uint8Array,
    edges: Int32Array,
    dense: Int32Array,
    single_byte: Uint8Array,
    single_target: Int32Array,
    n_classes: int,
) -> np.int64:
    row = edges[state]
    target: np.int64 = np.int64(-1)
    if row >= 0:
        target = np.int64(dense[np.int64(row) * n_classes + byte_class[byte]])
    elif row != -1 and single_byte[-2 - row] == byte:
        target = np.int64(single_target[-2 - row])
    return target


@allocating_helper
def _staying(
    byte_class: Uint8Array,
    edges: Int32Array,
    dense: Int32Array,
    single_byte: Uint8Array,
    single_target: Int32Array,
    n_classes: int,
    class_edge: Int32Array,
    low: Int32Array,
    high: Int32Array,
    target: Int32Array,
    candidates: Int32Array,
) -> Uint8Array:
    """Which of `candidates` every code point of a class leads to some of them, by flag of state.

    `alive[s, c]`: in the middle of a code point, at state `c` of the class's automaton, all ways to go on lead to
    states that stay. At 0, between code points, only candidates do. Only pairs that candidates lead to are looked at.
    """
    n, m = len(edges), len(class_edge) - 1
    # By state of the class: one byte of each class of bytes, where it leads, and how many bytes there are.
    way_start = np.zeros(m + 1, np.int32)
    way_byte = np.empty(256 * m, np.int32)
    way_next = np.empty(256 * m, np.int32)
    n_bytes = np.zeros(m, np.int32)
    met = np.empty(256, np.int32)
    count = 0
    for at in range(m):
        for k in range(256):
            met[k] = -1
        for e in range(class_edge[at], class_edge[at + 1]):
            after = np.int32(0 if target[e] == 1 else target[e])
            for byte in range(low[e], high[e] + 1):
                n_bytes[at] += 1
                if met[byte_class[byte]] != after:
                    met[byte_class[byte]] = after
                    way_byte[count] = byte
                    way_next[count] = after
                    count += 1
        way_start[at + 1] = count
    alive = np.zeros((n, m), np.uint8)
    pairs = np.empty(256, np.int64)
    if len(candidates) > len(pairs):
        pairs = np.empty(2 * len(candidates), np.int64)
    n_pairs = 0
    for i in range(len(candidates) - 1, -1, -1):  # mostly numbered along the paths: what is led to comes first
        alive[candidates[i], 0] = 1
        pairs[n_pairs] = np.int64(candidates[i]) * m
        n_pairs += 1
    seen = alive.copy()
    trusted = np.zeros((n, m), np.uint8)  # taken for alive by another
    changed = False
    i = 0
    while i < n_pairs:  # grows while it is read
        s, at = pairs[i] // m, pairs[i] % m
        i += 1
        row = np.int64(edges[s])
        last, last_after = np.int64(-1), np.int32(-1)
        for way in range(way_start[at], way_start[at + 1]):
            after = way_next[way]
            if row >= 0:
                to = np.int64(dense[row * n_classes + byte_class[way_byte[way]]])
            else:
                to = _edge(s, way_byte[way], byte_class, edges, dense, single_byte, single_target, n_classes)
            if to == last and after == last_after:
                continue
            if to < 0 or (row < 0 and n_bytes[at] > 1) or (after == 0 and not alive[to, 0]):
                alive[s, at] = 0
                changed = changed or trusted[s, at] != 0
                break
            last, last_after = to, after
            trusted[to, after] = 1
            if after > 0 and not seen[to, after]:
                seen[to, after] = 1
                alive[to, after] = 1
                if n_pairs == len(pairs):
                    pairs = grown(pairs, 2 * n_pairs)
                pairs[n_pairs] = to * m + after
                n_pairs += 1
    while changed:
        changed = False
        for i in range(n_pairs):
            s, at = pairs[i] // m, pairs[i] % m
            if not alive[s, at]:
                continue
            for way in range(way_start[at], way_start[at + 1]):
                to = _edge(s, way_byte[way], byte_class, edges, dense, single_byte, single_target, n_classes)
                if not alive[to, way_next[way]]:
                    alive[s, at] = 0
                    changed = True
                    break
    result = np.zeros(n, np.uint8)
    for i in range(len(candidates)):
        result[candidates[i]] = alive[candidates[i], 0]
    return result


@allocating_helper
def _mark_class(
    byte_class: Uint8Array,
    edges: Int32Array,
    dense: Int32Array,
    single_byte: Uint8Array,
    single_target: Int32Array,
    state_flags: Uint8Array,
    state_frame: Int32Array,
    frame_start: Int32Array,
    frame_kind: Uint8Array,
    n_classes: int,
    class_edge: Int32Array,
    low: Int32Array,
    high: Int32Array,
    target: Int32Array,
    loop: Int32Array,
    index: int,
) -> None:
    """Set `loop` to `index` at the free states that every code point of the class leads back to.

    And at those that all of them lead to one such state, as the start of `[a-z]+` does: what counts is
    that every string over the class stays alive. In a counter frame either all code points of the class
    begin an item or none does; within a code point no item may end, as then its bytes would count differently.
    """
    n_class_states = len(class_edge) - 1
    limit = 4 * n_class_states + 64
    size = 256
    while size < 2 * limit:
        size *= 2
    table = np.zeros(size, np.int64)
    stamp = np.zeros(size, np.int32)
    stack = np.empty(limit + 1, np.int64)
    now = 0
    # One byte of each class of bytes that are a code point of their own.
    letters = np.empty(256, np.int32)
    met = np.zeros(256, np.uint8)
    n_letters, n_single = 0, 0
    for e in range(class_edge[0], class_edge[1]):
        if target[e] == 1:
            for byte in range(low[e], high[e] + 1):
                n_single += 1
                if not met[byte_class[byte]]:
                    met[byte_class[byte]] = 1
                    letters[n_letters] = byte
                    n_letters += 1
    landing = np.full(len(edges), -1, np.int64)
    for s in range(len(edges)):
        if loop[s] >= 0 or (edges[s] == -1 and not state_flags[s] & FINAL):
            continue
        start = np.int64(-1)
        if frame_kind[state_frame[s]] == COUNTER and state_flags[s] & FINAL:
            start = np.int64(frame_start[state_frame[s]])
        if start < 0 and n_letters > 0:
            # Most states are told here: these all lead to one state, or it is none.
            row = np.int64(edges[s])
            if row < 0 and n_single > 1:
                continue
            if row >= 0:
                first = dense[row * n_classes + byte_class[letters[0]]]
                k = 0
                while k < n_letters and first >= 0 and dense[row * n_classes + byte_class[letters[k]]] == first:
                    k += 1
                if k < n_letters:
                    continue
        now += 1
        stack[0] = s
        top = 1
        count = 1
        begins = -1
        land = np.int64(-1)
        good = True
        while top > 0 and good:
            top -= 1
            at_class = stack[top] >> 32
            at = stack[top] & 0xFFFFFFFF
            for e in range(class_edge[at_class], class_edge[at_class + 1]):
                previous = -1
                for byte in range(low[e], high[e] + 1):
                    if edges[at] >= 0 and (start < 0 or at_class > 0) and byte_class[byte] == previous:
                        continue
                    previous = byte_class[byte]
                    to = _edge(at, byte, byte_class, edges, dense, single_byte, single_target, n_classes)
                    if at_class == 0 and start >= 0:
                        from_start = 0
                        if to < 0:
                            from_start = 1
                            to = _edge(start, byte, byte_class, edges, dense, single_byte, single_target, n_classes)
                        if begins >= 0 and begins != from_start:
                            good = False
                            break
                        begins = from_start
                    if to < 0 or (target[e] == 1 and land >= 0 and to != land):
                        good = False
                        break
                    if target[e] == 1:
                        land = to
                        continue
                    key = np.int64(target[e]) << 32 | to
                    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
                    slot = np.int64((mixed >> np.uint64(32)) & np.uint64(size - 1))
                    while stamp[slot] == now and table[slot] != key:
                        slot = (slot + 1) & (size - 1)
                    if stamp[slot] != now:
                        if count >= limit:
                            good = False
                            break
                        stamp[slot] = now
                        table[slot] = key
                        stack[top] = key
                        top += 1
                        count += 1
                if not good:
                    break
        if good and land == s:
            loop[s] = index
        elif good and land >= 0 and state_frame[land] == state_frame[s]:
            landing[s] = land
    for s in range(len(edges)):
        if landing[s] >= 0 and loop[landing[s]] == index:
            loop[s] = index


@allocating_helper
def _spread_class(  # type: ignore[no-untyped-def]
    byte_class, edges, dense, single_byte, single_target, state_flags, state_frame, frame_kind, n_classes, asked,
    class_edge, low, high, target, loop, index,
):  # fmt: skip
    """Set `loop` to `index` also at states that a class leads to states like them, and never away: a greatest fixpoint.

    So are the states within the names of an object that may have others beside them: whatever a name begins with, all
    characters but its end go on. So are those of a pattern that is searched for in a text, whatever was read of it,
    and those of several conditions on one text. Sets their flag SPREAD. Classes come largest first: states of larger
    ones stay theirs.
    """
    # Most states have no edge for some first byte of the class.
    met = np.zeros(256, np.uint8)
    needed = np.empty(256, np.int32)
    n_needed = 0
    for e in range(class_edge[0], class_edge[1]):
        for byte in range(low[e], high[e] + 1):
            if not met[byte_class[byte]]:
                met[byte_class[byte]] = 1
                needed[n_needed] = byte_class[byte]
                n_needed += 1
    candidates = np.empty(len(edges), np.int32)
    found = 0
    lesser = False
    for s in range(len(edges)):
        row = np.int64(edges[s])
        kind = frame_kind[state_frame[s]]
        # In a counter and where members begin, what a final state does depends on more than itself.
        if (
            row < 0
            or asked[s]
            or state_flags[s] & (HAS_CALLS | HAS_OPERATIONS)
            or kind == COUNTER
            or (state_flags[s] & FINAL and kind != PLAIN)
        ):
            continue
        i = 0
        while i < n_needed and dense[row * n_classes + needed[i]] >= 0:
            i += 1
        if i == n_needed:
            candidates[found] = s
            found += 1
            lesser = lesser or loop[s] < 0 or loop[s] > index
    if not lesser:
        return
    stays = _staying(
        byte_class, edges, dense, single_byte, single_target, n_classes, class_edge, low, high, target,
        candidates[:found],
    )  # fmt: skip
    for s in range(len(edges)):
        if stays[s] and (loop[s] < 0 or loop[s] > index):
            loop[s] = index
            state_flags[s] |= SPREAD


@kernel(
    "(uint8[::1], int32[::1], int32[::1], uint8[::1], int32[::1], uint8[::1], int32[::1], int32[::1], uint8[::1], "
    "int64, uint8[::1], int64[::1], int64[::1], int32[::1], int32[::1], int32[::1], int32[::1], uint8[::1], "
    "int32[::1])",
    allocates=True,
)
def _find_loops(  # type: ignore[no-untyped-def]
    byte_class, edges, dense, single_byte, single_target, state_flags, state_frame, frame_start, frame_kind, n_classes,
    asked, state_at, edge_at, class_edge, low, high, target, above, loop,
):  # fmt: skip
    """Set `loop`, by classes that some state loops on, numbered in their order; which ones these are, by flag."""
    n, count = len(edges), len(above)
    for k in range(count):
        begin, end = edge_at[k], edge_at[k + 1]
        _mark_class(
            byte_class, edges, dense, single_byte, single_target, state_flags, state_frame, frame_start, frame_kind,
            n_classes, class_edge[state_at[k] : state_at[k + 1]], low[begin:end], high[begin:end], target[begin:end],
            loop, k,
        )  # fmt: skip
    for s in range(n):
        if state_flags[s] & HAS_OPERATIONS and loop[s] >= 0:  # what it loops on begins members
            klass = loop[s]
            for other in range(n):
                if loop[other] == klass and state_frame[other] == state_frame[s]:
                    loop[other] = -1
    for k in range(count):
        # Of classes without code points above U+007F, `masks.wide` finds what it needs by itself.
        if above[k] and n * (state_at[k + 1] - state_at[k]) <= MAX_SPREAD_PAIRS:
            begin, end = edge_at[k], edge_at[k + 1]
            _spread_class(  # type: ignore[no-untyped-call]
                byte_class, edges, dense, single_byte, single_target, state_flags, state_frame, frame_kind, n_classes,
                asked, class_edge[state_at[k] : state_at[k + 1]], low[begin:end], high[begin:end], target[begin:end],
                loop, k,
            )  # fmt: skip
    used = np.zeros(count, np.uint8)
    for s in range(n):
        if loop[s] >= 0:
            used[loop[s]] = 1
    number = np.zeros(count, np.int32)
    for k in range(1, count):
        number[k] = number[k - 1] + used[k - 1]
    for s in range(n):
        if loop[s] >= 0:
            loop[s] = number[loop[s]]
    return used
