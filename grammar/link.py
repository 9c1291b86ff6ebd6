"""DFAs that call each other into the sections of an `Automaton`: one kernel for all frames of a grammar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .._numba import helper, kernel
from .automaton import COUNTER, FINAL, HAS_CALLS, HAS_TOKENS
from .members import FAR, Guards
from .position import Int32Array, Uint8Array

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Frames:
    """All frames of a grammar, the root first, one behind the other; frame `f` has the states from ``state_at[f]`` on.

    `delta`: flat tables [states, classes] of a frame's own states, -1 for none; `n_classes` int32 their widths;
    `class_of`: class of each byte and then of each symbol of the frame; `callee` int32: by frame and symbol, the frame
    that it calls, or -1; `token`: the number of the token that it is, or -1. `kind`, `minimum`, `maximum` as in
    `Automaton`; `guards`: what frames of members ask of their registers, by frame.
    """

    state_at: Int64Array
    delta_at: Int64Array
    class_at: Int64Array
    n_classes: Int32Array
    delta: Int32Array
    final: Uint8Array
    class_of: Int32Array
    callee: Int32Array
    token: Int32Array
    kind: Uint8Array
    minimum: Int64Array
    maximum: Int64Array
    guards: dict[int, Guards]


#: Names of the kernel's results from the second on.
_SECTIONS = (
    "byte_class", "edges", "dense", "single_byte", "single_target", "state_flags", "state_frame", "state_distance",
    "call_start", "call_frame", "call_target", "token_start", "token_symbol", "token_target",
    "frame_first", "frame_follow",
)  # fmt: skip


def link(frames: Frames) -> tuple[dict[str, npt.NDArray[Any]], int, bool]:
    """(sections but those of loops and members, number of byte classes, whether the root frame has no cycle).

    A frame without a string has the length `FAR`.
    """
    columns = frames.state_at, frames.delta_at, frames.class_at, frames.n_classes, frames.delta, frames.final
    lengths = np.full(len(frames.kind), FAR, np.int64)
    fixed = np.zeros(len(frames.kind), np.uint8)
    fixed[list(frames.guards)] = 1
    distance = np.empty(int(frames.state_at[-1]), np.int64)
    changed = True
    while changed:
        acyclic = _lengths(
            *columns, frames.class_of, frames.callee, frames.kind, frames.minimum, fixed, lengths, distance
        )
        changed = False
        for number, guards in frames.guards.items():  # the length of a list of members is found otherwise
            own = distance[frames.state_at[number] : frames.state_at[number + 1]]
            total = guards.shortest(guards.costs(own))
            if total < lengths[number]:
                lengths[number] = total
                changed = True
    n_classes, *results = _link(*columns, frames.class_of, frames.callee, frames.token, frames.kind, distance)
    sections = dict(zip(_SECTIONS, results, strict=True))
    sections["frame_length"] = lengths
    sections["frame_start"] = frames.state_at[:-1].astype(np.int32)
    sections["frame_kind"] = frames.kind
    sections["frame_minimum"] = frames.minimum
    sections["frame_maximum"] = frames.maximum
    return sections, n_classes, acyclic


@helper
def _merged_columns(delta, begin, width, n_bytes, rows, n_rows, column):  # type: ignore[no-untyped-def]
    """Set column[c] to the first class that leads where `c` does in all of the `rows`."""
    hashes = np.zeros(n_bytes, np.uint64)
    for r in range(n_rows):
        row = begin + np.int64(rows[r]) * width
        for c in range(n_bytes):
            mixed = (hashes[c] ^ np.uint64(np.int64(delta[row + c]) + 1)) * np.uint64(0x9E3779B97F4A7C15)
            hashes[c] = mixed ^ (mixed >> np.uint64(29))
    for c in range(n_bytes):
        column[c] = c
        for other in range(c):
            if column[other] == other and hashes[other] == hashes[c]:
                same = True
                for r in range(n_rows):
                    row = begin + np.int64(rows[r]) * width
                    if delta[row + c] != delta[row + other]:
                        same = False
                        break
                if same:
                    column[c] = other
                    break


@helper
def _refined(byte_class, n, class_of, begin, column, pair):  # type: ignore[no-untyped-def]
    """Split the classes of bytes by the columns of a frame, numbered by their first bytes; returns how many there are.

    `pair` int32[256, 256] is -1 all over, before and after.
    """
    count = 0
    for b in range(256):
        c = column[class_of[begin + b]]
        if pair[byte_class[b], c] < 0:
            pair[byte_class[b], c] = count
            count += 1
    if count > n:
        new = np.empty(256, np.uint8)
        for b in range(256):
            new[b] = pair[byte_class[b], column[class_of[begin + b]]]
        for b in range(256):
            pair[byte_class[b], column[class_of[begin + b]]] = -1
        for b in range(256):
            byte_class[b] = new[b]
    else:
        for b in range(256):
            pair[byte_class[b], column[class_of[begin + b]]] = -1
    return count


@helper
def _symbol_edges(state_at, delta_at, class_at, n_classes, delta, class_of, numbers, state_flags, flag):  # type: ignore[no-untyped-def]
    """(start, number, target) of the edges on the symbols with numbers, sorted by state and number; sets `flag`."""
    n_frames = len(n_classes)
    n_states = state_at[n_frames]
    start = np.zeros(n_states + 1, np.int32)
    symbol = 0
    for f in range(n_frames):
        for i in range(class_at[f + 1] - class_at[f] - 256):
            c = class_of[class_at[f] + 256 + i]
            if numbers[symbol + i] >= 0:
                for s in range(state_at[f], state_at[f + 1]):
                    if delta[delta_at[f] + (s - state_at[f]) * n_classes[f] + c] >= 0:
                        start[s + 1] += 1
                        state_flags[s] |= flag
        symbol += class_at[f + 1] - class_at[f] - 256
    for s in range(n_states):
        start[s + 1] += start[s]
    place = start[:n_states].copy()
    number = np.empty(start[n_states], np.int32)
    target = np.empty(start[n_states], np.int32)
    symbol = 0
    for f in range(n_frames):
        count = class_at[f + 1] - class_at[f] - 256
        order = np.empty(count, np.int32)
        n = 0
        for i in range(count):
            if numbers[symbol + i] >= 0:
                k = n
                while k > 0 and numbers[symbol + order[k - 1]] > numbers[symbol + i]:
                    order[k] = order[k - 1]
                    k -= 1
                order[k] = i
                n += 1
        for k in range(n):
            c = class_of[class_at[f] + 256 + order[k]]
            for s in range(state_at[f], state_at[f + 1]):
                to = delta[delta_at[f] + (s - state_at[f]) * n_classes[f] + c]
                if to >= 0:
                    number[place[s]] = numbers[symbol + order[k]]
                    target[place[s]] = to + state_at[f]
                    place[s] += 1
        symbol += count
    return start, number, target


@helper
def _measure(delta, begin, n, width, final, first_state, weight, distance):  # type: ignore[no-untyped-def]
    """Set `distance` to the least weight from each of a frame's `n` states to a final one; whether it has no cycle.

    Neighbouring classes that lead to one state with one weight are one edge.
    """
    again = np.zeros(width, np.uint8)
    for c in range(1, width):
        again[c] = weight[c] == weight[c - 1]
    back_start = np.zeros(n + 1, np.int64)
    for s in range(n):
        previous = -1
        for c in range(width):
            t = delta[begin + s * width + c]
            if t >= 0 and (t != previous or not again[c]):
                back_start[t + 1] += 1
            previous = t
    for s in range(n):
        back_start[s + 1] += back_start[s]
    place = back_start[:n].copy()
    source = np.empty(back_start[n], np.int32)
    cost = np.empty(back_start[n], np.int64)
    waiting = np.zeros(n, np.int64)  # edges out of a state that are not known to be on no cycle
    for s in range(n):
        previous = -1
        for c in range(width):
            t = delta[begin + s * width + c]
            if t >= 0 and (t != previous or not again[c]):
                source[place[t]] = s
                cost[place[t]] = weight[c]
                place[t] += 1
                waiting[s] += 1
            previous = t
    queue = np.empty(n + 1, np.int32)  # a ring: a state is in it at most once
    queued = np.zeros(n, np.uint8)
    head = 0
    size = 0
    for s in range(n):
        distance[first_state + s] = FAR
        if final[first_state + s]:
            distance[first_state + s] = 0
            queue[size] = s
            queued[s] = 1
            size += 1
    while size > 0:
        s = queue[head]
        head = (head + 1) % (n + 1)
        size -= 1
        queued[s] = 0
        for k in range(back_start[s], back_start[s + 1]):
            p = source[k]
            if distance[first_state + s] + cost[k] < distance[first_state + p]:
                distance[first_state + p] = distance[first_state + s] + cost[k]
                if not queued[p]:
                    queued[p] = 1
                    queue[(head + size) % (n + 1)] = p
                    size += 1
    removed = 0
    top = 0
    for s in range(n):
        if waiting[s] == 0:
            queue[top] = s
            top += 1
    while top > 0:
        top -= 1
        s = queue[top]
        removed += 1
        for k in range(back_start[s], back_start[s + 1]):
            p = source[k]
            waiting[p] -= 1
            if waiting[p] == 0:
                queue[top] = p
                top += 1
    return removed == n


@kernel(
    "boolean(int64[::1], int64[::1], int64[::1], int32[::1], int32[::1], uint8[::1], int32[::1], int32[::1], "
    "uint8[::1], int64[::1], uint8[::1], int64[::1], int64[::1])"
)
def _lengths(  # type: ignore[no-untyped-def]
    state_at, delta_at, class_at, n_classes, delta, final, class_of, callee, kind, minimum, fixed, length, distance
):
    """Set `distance` and `length`, fewest bytes of a string by frame (not of the `fixed`); has the root no cycle?

    Frames may call each other: a least fixpoint from below the callees' lengths that are known already. A frame is
    looked at again where the length of one that it calls has changed.
    """
    n_frames = len(n_classes)
    stale = np.ones(n_frames, np.uint8)
    symbol_at = np.zeros(n_frames + 1, np.int64)
    for f in range(n_frames):
        symbol_at[f + 1] = symbol_at[f] + class_at[f + 1] - class_at[f] - 256
    caller_at = np.zeros(n_frames + 1, np.int64)
    for k in range(len(callee)):
        if callee[k] >= 0:
            caller_at[callee[k] + 1] += 1
    for f in range(n_frames):
        caller_at[f + 1] += caller_at[f]
    place = caller_at.copy()
    caller = np.empty(caller_at[n_frames], np.int32)
    for f in range(n_frames):
        for k in range(symbol_at[f], symbol_at[f + 1]):
            if callee[k] >= 0:
                caller[place[callee[k]]] = f
                place[callee[k]] += 1
    acyclic = False
    changed = True
    while changed:
        changed = False
        for f in range(n_frames - 1, -1, -1):
            if not stale[f]:
                continue
            stale[f] = 0
            weight = np.ones(n_classes[f], np.int64)
            for i in range(symbol_at[f + 1] - symbol_at[f]):
                other = callee[symbol_at[f] + i]
                weight[class_of[class_at[f] + 256 + i]] = length[other] if other >= 0 else 0
            no_cycle = _measure(
                delta, delta_at[f], state_at[f + 1] - state_at[f], n_classes[f], final, state_at[f], weight, distance
            )
            if f == 0:
                acyclic = no_cycle
            # A counter's frame must have one item at least: it never matches the empty string.
            items = max(minimum[f], 1) if kind[f] == COUNTER else 1
            total = min(distance[state_at[f]] * items, FAR)
            if total < length[f] and not fixed[f]:
                length[f] = total
                changed = True
                for k in range(caller_at[f], caller_at[f + 1]):
                    stale[caller[k]] = 1
    return acyclic


@helper
def _next_bytes(state_at, own, kind, final, state_frame, call_start, call_frame, call_target):  # type: ignore[no-untyped-def]
    """(first, follow) int64[frames * 4]: bytes that a string of a frame begins with, and that may follow it.

    `own`: the bytes on the edges of each state.
    """
    n_frames = len(kind)
    n_states = len(state_frame)
    first = np.zeros((n_frames, 4), np.int64)
    follow = np.zeros((n_frames, 4), np.int64)
    for f in range(n_frames):
        for w in range(4):
            first[f, w] = own[state_at[f], w]
    changed = True
    while changed:
        changed = False
        for f in range(n_frames - 1, -1, -1):
            s = state_at[f]
            for k in range(call_start[s], call_start[s + 1]):
                for w in range(4):
                    new = first[f, w] | first[call_frame[k], w]
                    if new != first[f, w]:
                        first[f, w] = new
                        changed = True
    for s in range(n_states):  # bytes that may come next in a state, in its frame or in one that it calls
        for k in range(call_start[s], call_start[s + 1]):
            for w in range(4):
                own[s, w] |= first[call_frame[k], w]
    for s in range(n_states):
        for k in range(call_start[s], call_start[s + 1]):
            t = call_target[k]
            for w in range(4):
                follow[call_frame[k], w] |= own[t, w]
                if final[t] and kind[state_frame[s]] == COUNTER:
                    follow[call_frame[k], w] |= first[state_frame[s], w]
    changed = True
    while changed:
        changed = False
        for s in range(n_states):
            for k in range(call_start[s], call_start[s + 1]):
                if final[call_target[k]]:
                    for w in range(4):
                        new = follow[call_frame[k], w] | follow[state_frame[s], w]
                        if new != follow[call_frame[k], w]:
                            follow[call_frame[k], w] = new
                            changed = True
    return first.reshape(-1), follow.reshape(-1)


@kernel(
    "(int64[::1], int64[::1], int64[::1], int32[::1], int32[::1], uint8[::1], int32[::1], int32[::1], int32[::1], "
    "uint8[::1], int64[::1])"
)
def _link(  # type: ignore[no-untyped-def]
    state_at, delta_at, class_at, n_classes, delta, final, class_of, callee, token, kind, distance
):
    """The number of byte classes, and the sections `_SECTIONS`."""
    n_frames = len(kind)
    n_states = state_at[n_frames]
    edges = np.full(n_states, -1, np.int32)
    state_frame = np.empty(n_states, np.int32)
    state_flags = np.empty(n_states, np.uint8)
    own = np.zeros((n_states, 4), np.int64)
    single_byte = np.empty(n_states, np.uint8)
    single_target = np.empty(n_states, np.int32)
    dense_state = np.empty(n_states, np.int32)
    byte_class = np.zeros(256, np.uint8)
    pair = np.full((256, 256), -1, np.int32)
    column = np.empty(256, np.int32)
    rows = np.empty(n_states, np.int32)
    count = 1
    n_single = 0
    n_dense = 0
    for f in range(n_frames):
        width = n_classes[f]
        n_bytes = class_of[class_at[f] + 255] + 1
        members = np.zeros((n_bytes, 4), np.int64)
        size = np.zeros(n_bytes, np.int32)
        lowest = np.zeros(n_bytes, np.int32)
        highest = np.zeros(n_bytes, np.int32)
        for b in range(255, -1, -1):
            c = class_of[class_at[f] + b]
            members[c, b >> 6] |= np.int64(1) << np.int64(b & 63)
            if size[c] == 0:
                highest[c] = b
            size[c] += 1
            lowest[c] = b
        n_rows = 0
        for s in range(state_at[f], state_at[f + 1]):
            state_frame[s] = f
            state_flags[s] = FINAL if final[s] else 0
            row = delta_at[f] + (s - state_at[f]) * width
            n_alive = 0
            alive = 0
            for c in range(n_bytes):
                if delta[row + c] >= 0:
                    n_alive += size[c]
                    alive = c
                    for w in range(lowest[c] >> 6, (highest[c] >> 6) + 1):
                        own[s, w] |= members[c, w]
            if n_alive == 1:
                edges[s] = -2 - n_single
                single_byte[n_single] = lowest[alive]
                single_target[n_single] = delta[row + alive] + state_at[f]
                n_single += 1
            elif n_alive > 1:
                edges[s] = n_dense
                dense_state[n_dense] = s
                n_dense += 1
                rows[n_rows] = s - state_at[f]
                n_rows += 1
        if n_rows > 0:
            _merged_columns(delta, delta_at[f], width, n_bytes, rows, n_rows, column)
            count = _refined(byte_class, count, class_of, class_at[f], column, pair)
    first_of = np.zeros(count, np.int32)
    for b in range(255, -1, -1):
        first_of[byte_class[b]] = b
    dense = np.empty(n_dense * count, np.int32)
    for d in range(n_dense):
        s = dense_state[d]
        f = state_frame[s]
        row = delta_at[f] + (s - state_at[f]) * n_classes[f]
        for k in range(count):
            to = delta[row + class_of[class_at[f] + first_of[k]]]
            dense[d * count + k] = to + state_at[f] if to >= 0 else -1
    call_start, call_frame, call_target = _symbol_edges(
        state_at, delta_at, class_at, n_classes, delta, class_of, callee, state_flags, HAS_CALLS
    )
    token_start, token_symbol, token_target = _symbol_edges(
        state_at, delta_at, class_at, n_classes, delta, class_of, token, state_flags, HAS_TOKENS
    )
    small = np.empty(n_states, np.int32)
    for s in range(n_states):
        small[s] = distance[s]
    first, follow = _next_bytes(state_at, own, kind, final, state_frame, call_start, call_frame, call_target)
    return (
        count, byte_class, edges, dense, single_byte[:n_single].copy(), single_target[:n_single].copy(),
        state_flags, state_frame, small, call_start, call_frame, call_target, token_start, token_symbol, token_target,
        first, follow,
    )  # fmt: skip
