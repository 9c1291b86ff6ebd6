"""DFAs that call each other into the sections of an `Automaton`: one kernel for all frames of a grammar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .._numba import allocating_helper, kernel
from .automaton import COUNTER, FINAL, HAS_CALLS, HAS_TOKENS
from .lengths import frame_lengths
from .members import FAR, Guards
from .position import Int32Array, Uint8Array, grown

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Frames:
    """All frames of a grammar, the root first, one behind the other; frame `f` has the states from ``state_at[f]`` on.

    `edge_start` int64[states + 1], `edge_low`, `edge_high`, `edge_target` are as in `Dfa`, targets being a frame's own;
    `class_of`, from ``class_at[f]`` on: class of each byte and then of each symbol of the frame; `callee` int32: by
    frame and symbol, the frame that it calls, or -1; `token`: the number of the token that it is, or -1. `kind`,
    `minimum`, `maximum` as in `Automaton`; `guards`: what frames of members ask of their registers, by frame.
    """

    state_at: Int64Array
    class_at: Int64Array
    edge_start: Int64Array
    edge_low: Int32Array
    edge_high: Int32Array
    edge_target: Int32Array
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
    at = frames.state_at, frames.class_at, frames.edge_start
    short = *at, frames.edge_low, frames.edge_target, frames.final
    columns = *at, frames.edge_low, frames.edge_high, frames.edge_target, frames.final
    lengths = np.full(len(frames.kind), FAR, np.int64)
    fixed = np.zeros(len(frames.kind), np.uint8)
    for number in frames.guards:
        fixed[number] = 1
    distance = np.empty(int(frames.state_at[-1]), np.int64)
    changed = True
    while changed:
        acyclic = frame_lengths(
            *short, frames.class_of, frames.callee, frames.kind, frames.minimum, fixed, lengths, distance
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


@allocating_helper
def _merged_columns(table, n_rows, n_bytes, column):  # type: ignore[no-untyped-def]
    """Set column[c] to the first class that leads where `c` does in all rows of `table`, flat [n_rows, n_bytes]."""
    hashes = np.zeros(n_bytes, np.uint64)
    for r in range(n_rows):
        for c in range(n_bytes):
            mixed = (hashes[c] ^ np.uint64(np.int64(table[r * n_bytes + c]) + 1)) * np.uint64(0x9E3779B97F4A7C15)
            hashes[c] = mixed ^ (mixed >> np.uint64(29))
    for c in range(n_bytes):
        column[c] = c
        for other in range(c):
            if column[other] == other and hashes[other] == hashes[c]:
                same = True
                for r in range(n_rows):
                    if table[r * n_bytes + c] != table[r * n_bytes + other]:
                        same = False
                        break
                if same:
                    column[c] = other
                    break


@allocating_helper
def _refined(byte_class, n, class_of, begin, column, pairs, numbers, turn):  # type: ignore[no-untyped-def]
    """Split the classes of bytes by the columns of a frame, numbered by their first bytes; returns how many there are.

    `pairs` int64[512] and `numbers` int32[512] are a table of the pairs met in this `turn`, which is another one at
    each call, from 1 on; `pairs` is all 0 before the first.
    """
    count = 0
    new = np.empty(256, np.uint8)
    for b in range(256):
        pair = np.int64(turn) << 16 | np.int64(byte_class[b]) << 8 | np.int64(column[class_of[begin + b]])
        slot = (pair ^ (pair >> 7)) & 511
        while pairs[slot] >> 16 == turn and pairs[slot] != pair:
            slot = (slot + 1) & 511
        if pairs[slot] != pair:
            pairs[slot] = pair
            numbers[slot] = count
            count += 1
        new[b] = numbers[slot]
    if count > n:
        for b in range(256):
            byte_class[b] = new[b]
    return count


@allocating_helper
def _symbol_edges(  # type: ignore[no-untyped-def]
    state_at, class_at, edge_start, edge_low, edge_target, class_of, numbers, state_flags, flag
):
    """(start, number, target) of the edges on the symbols with numbers, sorted by state and number; sets `flag`."""
    n_frames = len(class_at) - 1
    n_states = state_at[n_frames]
    start = np.zeros(n_states + 1, np.int32)
    number = np.empty(64, np.int32)
    target = np.empty(64, np.int32)
    n = 0
    symbol_at = 0
    for f in range(n_frames):
        # The symbols of a class are neighbours.
        n_bytes = class_of[class_at[f] + 255] + 1
        n_symbols = class_at[f + 1] - class_at[f] - 256
        first = np.zeros(class_of[class_at[f + 1] - 1] + 2, np.int32)
        for i in range(n_symbols):
            first[class_of[class_at[f] + 256 + i] + 1] = i + 1
        for s in range(state_at[f], state_at[f + 1]):
            begin = n
            k = edge_start[s + 1]
            while k > edge_start[s] and edge_low[k - 1] >= n_bytes:
                k -= 1
            for e in range(k, edge_start[s + 1]):
                c = edge_low[e]
                for i in range(first[c], first[c + 1]):
                    own = numbers[symbol_at + i]
                    if own < 0:
                        continue
                    if n == len(number):
                        number = grown(number, 2 * n)
                        target = grown(target, 2 * n)
                    at = n
                    while at > begin and number[at - 1] > own:
                        number[at] = number[at - 1]
                        target[at] = target[at - 1]
                        at -= 1
                    number[at] = own
                    target[at] = edge_target[e] + state_at[f]
                    n += 1
            if n > begin:
                state_flags[s] |= flag
            start[s + 1] = n
        symbol_at += n_symbols
    return start, number[:n].copy(), target[:n].copy()


@allocating_helper
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
    "(int64[::1], int64[::1], int64[::1], int32[::1], int32[::1], int32[::1], uint8[::1], int32[::1], int32[::1], "
    "int32[::1], uint8[::1], int64[::1])",
    allocates=True,
)
def _link(  # type: ignore[no-untyped-def]
    state_at, class_at, edge_start, edge_low, edge_high, edge_target, final, class_of, callee, token, kind, distance
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
    pairs = np.zeros(512, np.int64)
    numbers = np.empty(512, np.int32)
    column = np.empty(256, np.int32)
    table = np.empty(0, np.int32)  # the dense rows of a frame
    count = 1
    n_single = 0
    n_dense = 0
    for f in range(n_frames):
        n_bytes = class_of[class_at[f] + 255] + 1
        lowest = np.zeros(n_bytes + 1, np.int32)  # bytes of each class, and the end
        lowest[n_bytes] = 256
        for b in range(255, -1, -1):
            lowest[class_of[class_at[f] + b]] = b
        n_rows = 0
        for s in range(state_at[f], state_at[f + 1]):
            state_frame[s] = f
            state_flags[s] = FINAL if final[s] else 0
            n_alive = 0
            past = edge_start[s]  # its edges on symbols come last
            while past < edge_start[s + 1] and edge_low[past] < n_bytes:
                b = lowest[edge_low[past]]
                last = lowest[edge_high[past] + 1] - 1
                n_alive += last - b + 1
                for w in range(b >> 6, (last >> 6) + 1):
                    bits = ~np.uint64(0)
                    if w == b >> 6:
                        bits &= ~np.uint64(0) << np.uint64(b & 63)
                    if w == last >> 6:
                        bits &= ~np.uint64(0) >> np.uint64(63 - (last & 63))
                    own[s, w] |= np.int64(bits)
                past += 1
            if n_alive == 1:
                edges[s] = -2 - n_single
                single_byte[n_single] = lowest[edge_low[past - 1]]
                single_target[n_single] = edge_target[past - 1] + state_at[f]
                n_single += 1
            elif n_alive > 1:
                edges[s] = n_dense
                dense_state[n_dense] = s
                n_dense += 1
                if (n_rows + 1) * n_bytes > len(table):
                    table = grown(table, 2 * (n_rows + 1) * n_bytes)
                for c in range(n_rows * n_bytes, (n_rows + 1) * n_bytes):
                    table[c] = -1
                for k in range(edge_start[s], past):
                    for c in range(edge_low[k], edge_high[k] + 1):
                        table[n_rows * n_bytes + c] = edge_target[k]
                n_rows += 1
        if n_rows > 0:
            _merged_columns(table, n_rows, n_bytes, column)
            count = _refined(byte_class, count, class_of, class_at[f], column, pairs, numbers, f + 1)
    first_of = np.zeros(count, np.int32)
    for b in range(255, -1, -1):
        first_of[byte_class[b]] = b
    dense = np.empty(n_dense * count, np.int32)
    row = np.full(256, -1, np.int32)  # by class of the frame's bytes; all -1 between two states
    before = -1
    for d in range(n_dense):
        s = dense_state[d]
        f = state_frame[s]
        if f != before:
            before = f
            n_bytes = class_of[class_at[f] + 255] + 1
            for k in range(count):
                column[k] = class_of[class_at[f] + first_of[k]]
        for k in range(edge_start[s], edge_start[s + 1]):
            if edge_low[k] < n_bytes:
                for c in range(edge_low[k], edge_high[k] + 1):
                    row[c] = edge_target[k] + state_at[f]
        for k in range(count):
            dense[d * count + k] = row[column[k]]
        for c in range(n_bytes):
            row[c] = -1
    call_start, call_frame, call_target = _symbol_edges(
        state_at, class_at, edge_start, edge_low, edge_target, class_of, callee, state_flags, HAS_CALLS
    )
    token_start, token_symbol, token_target = _symbol_edges(
        state_at, class_at, edge_start, edge_low, edge_target, class_of, token, state_flags, HAS_TOKENS
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
