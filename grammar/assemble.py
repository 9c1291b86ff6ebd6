"""Frames of minimal DFAs into the sections of an `Automaton`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from .._numba import kernel
from .automaton import (
    CALLS,
    COUNTER,
    FINAL,
    FINITE,
    GUARDED,
    HAS_CALLS,
    HAS_OPERATIONS,
    HAS_TOKENS,
    PLAIN,
    RECURSIVE,
    TOKENS,
    Automaton,
)
from .build import Symbols
from .determinize import Dfa
from .expression import Ranges
from .loops import find_loops, spread_loops
from .members import ANY, Guards
from .position import Int32Array, Uint8Array

_FAR = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Frame:
    """One frame: the DFA of a rule or of one item, and for a counted repeat how many items (`maximum` -1: no bound)."""

    dfa: Dfa
    kind: int = PLAIN
    minimum: int = 0
    maximum: int = 0
    guards: Guards | None = None

    @cached_property
    def symbols(self) -> list[int]:
        """The tokens and calls on its edges, ascending."""
        alive = np.asarray((self.dfa.delta >= 0).any(axis=0))
        found: list[int] = (256 + np.flatnonzero(alive[self.dfa.class_of[256:]])).tolist()
        return found


def assemble(
    root: Frame, called: dict[int, Frame], symbols: Symbols, loops: list[Ranges], *, recursive: bool = False
) -> Automaton:
    """The automaton of `root` and the frames it calls, `called` being by symbol; frames are numbered breadth first.

    `recursive`: stacks have no bound that is known, and `root` itself may be among the called.
    """
    token_symbols = {symbol: name for name, symbol in symbols.tokens.items()}
    frames = [root]
    frame_of = {symbol: 0 for symbol, frame in called.items() if frame is root}
    for frame in frames:  # grows while it is read
        for symbol in frame.symbols:
            if symbol in called and symbol not in frame_of:
                frame_of[symbol] = len(frames)
                frames.append(called[symbol])
    offsets = np.cumsum([0] + [frame.dfa.n_states for frame in frames])
    n_states = int(offsets[-1])
    used_tokens = sorted({symbol for frame in frames for symbol in frame.symbols if symbol in token_symbols})

    arrays: dict[str, Any] = _byte_sections(frames, offsets)
    n_classes = arrays.pop("n_classes")
    flags = np.concatenate([frame.dfa.final for frame in frames]) * np.uint8(FINAL)
    for name, numbers in (("call", frame_of), ("token", {symbol: i for i, symbol in enumerate(used_tokens)})):
        state, value, target = _symbol_edges(frames, offsets, numbers)
        start = np.zeros(n_states + 1, np.int32)
        np.cumsum(np.bincount(state, minlength=n_states), out=start[1:])
        arrays[f"{name}_start"], arrays[f"{name}_target"] = start, target
        arrays["call_frame" if name == "call" else "token_symbol"] = value
        flags[np.unique(state)] |= HAS_CALLS if name == "call" else HAS_TOKENS
    _add_guards(arrays, frames, offsets, flags)
    arrays["state_flags"] = flags.astype(np.uint8)
    arrays["state_frame"] = np.repeat(np.arange(len(frames)), np.diff(offsets)).astype(np.int32)
    arrays["frame_start"] = offsets[:-1].astype(np.int32)
    arrays["frame_kind"] = np.array([frame.kind for frame in frames], np.uint8)
    bounds = [(f.guards.shift, f.guards.most) if f.guards else (f.minimum, f.maximum) for f in frames]
    arrays["frame_minimum"], arrays["frame_maximum"] = np.array(bounds, np.int64).T.copy()
    lengths, distances, acyclic = _frame_lengths(frames, frame_of)
    arrays["frame_length"] = np.array(lengths, np.int64)
    arrays["state_distance"] = np.concatenate(distances).astype(np.int32)
    _add_costs(arrays, frames, distances)
    _next_bytes(arrays, n_classes, frames, offsets)
    arrays["state_loop"], found = find_loops(arrays, n_classes, loops)
    for frame, offset in zip(frames, offsets.tolist(), strict=False):
        if frame.guards is not None:
            part = slice(offset, offset + frame.dfa.n_states)
            keys = frame.guards.keys
            asked = (keys >= 0) & (keys >> ANY & 1 == 0)
            bytes_ = frame.dfa.columns(0, 256)
            spread_loops(bytes_, arrays["state_flags"][part], asked, arrays["state_loop"][part], found)
    arrays.update(loop_sections(found))

    header_flags = (CALLS if frame_of else 0) | (TOKENS if used_tokens else 0)
    if len(frames) == 1 and not frame_of and acyclic[0]:
        header_flags |= FINITE
    if recursive and frame_of:  # without a call it is a plain DFA after all
        header_flags |= RECURSIVE
    metadata = {"tokens": [token_symbols[symbol] for symbol in used_tokens]}
    return Automaton.build(arrays, n_classes=n_classes, root_frame=0, flags=header_flags, metadata=metadata)


def _add_guards(
    arrays: dict[str, Any], frames: list[Frame], offsets: npt.NDArray[np.int64], flags: npt.NDArray[Any]
) -> None:
    """Adds the sections of frames of members, and the flags of their states."""
    keys = np.full(int(offsets[-1]), -1, np.int64)
    operations: list[tuple[int, int, int]] = []
    terms: list[tuple[int, int, int, int]] = []
    term_start = [0]
    for frame, offset in zip(frames, offsets.tolist(), strict=False):
        if frame.guards is not None:
            keys[offset : offset + frame.dfa.n_states] = frame.guards.keys
            operations += [(state + offset, bit, target + offset) for state, bit, target in frame.guards.operations]
            terms += frame.guards.terms
        term_start.append(len(terms))
    table = np.array(operations, np.int64).reshape(-1, 3)
    start = np.zeros(len(keys) + 1, np.int32)
    np.cumsum(np.bincount(table[:, 0], minlength=len(keys)), out=start[1:])
    flags[keys >= 0] |= GUARDED
    flags[np.unique(table[:, 0])] |= HAS_OPERATIONS
    arrays["state_keys"], arrays["operation_start"] = keys, start
    arrays["operation_bit"], arrays["operation_target"] = (table[:, i].astype(np.int32) for i in (1, 2))
    arrays["term_start"] = np.array(term_start, np.int32)
    columns = np.array(terms, np.int64).reshape(-1, 4)
    for i, name in enumerate(("required", "forbidden", "minimum", "maximum")):
        arrays[f"term_{name}"] = columns[:, i].copy()


def _add_costs(arrays: dict[str, Any], frames: list[Frame], distances: list[npt.NDArray[np.int64]]) -> None:
    """Adds ``state_costs``, ``frame_costs`` and ``member_cost``."""
    rows: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
    state_costs = np.full(len(arrays["edges"]), -1, np.int32)
    frame_costs = np.full(len(frames), -1, np.int32)
    used = 0
    for number, frame in enumerate(frames):
        if frame.guards is None:
            continue
        costs = frame.guards.costs(distances[number])
        chosen = np.flatnonzero(~frame.guards.ends)
        table = np.concatenate([costs[frame.guards.ends].min(axis=0, initial=_FAR)[None, :], costs[chosen]])
        frame_costs[number] = used
        state_costs[arrays["frame_start"][number] + chosen] = used + table.shape[1] * (1 + np.arange(len(chosen)))
        rows.append(table.reshape(-1))
        used += table.size
    arrays["state_costs"], arrays["frame_costs"] = state_costs, frame_costs
    arrays["member_cost"] = np.concatenate(rows).astype(np.int32)


def loop_sections(found: list[Ranges]) -> dict[str, Int32Array]:
    """The sections that list the classes of `state_loop`."""
    starts = np.cumsum([0] + [len(ranges) for ranges in found]).astype(np.int32)
    pairs = [end for ranges in found for pair in ranges for end in pair]
    return {"loop_start": starts, "loop_ranges": np.array(pairs, np.int32)}


def coarsest_classes(columns: list[npt.NDArray[Any]]) -> tuple[Uint8Array, Int32Array]:
    """Byte classes from tables [rows, 256]: (class of each byte, first byte of each class), by first occurrence."""
    keys: list[list[bytes]] = []
    for table in columns:
        turned = np.ascontiguousarray(table.T)
        keys.append([row.tobytes() for row in turned])
    byte_class = np.zeros(256, np.uint8)
    numbers: dict[tuple[bytes, ...], int] = {}
    firsts: list[int] = []
    for byte, key in enumerate(zip(*keys, strict=True) if keys else [()] * 256):
        if key not in numbers:
            numbers[key] = len(firsts)
            firsts.append(byte)
        byte_class[byte] = numbers[key]
    return byte_class, np.array(firsts, np.int32)


def _byte_sections(frames: list[Frame], offsets: npt.NDArray[np.int64]) -> dict[str, Any]:
    """byte_class, edges, dense, single_byte, single_target and n_classes."""
    edges: list[npt.NDArray[Any]] = []
    rows: list[npt.NDArray[Any]] = []
    tables: list[npt.NDArray[Any]] = []  # for each frame with dense rows: the class of each byte by its column
    single_byte: list[npt.NDArray[Any]] = []
    single_target: list[npt.NDArray[Any]] = []
    n_rows = n_single = 0
    for frame, offset in zip(frames, offsets, strict=False):
        dfa = frame.dfa
        byte_classes = int(dfa.class_of[255]) + 1
        delta = dfa.delta[:, :byte_classes]
        sizes = np.bincount(dfa.class_of[:256], minlength=byte_classes)
        n_bytes = (delta >= 0) @ sizes
        single, dense = np.flatnonzero(n_bytes == 1), np.flatnonzero(n_bytes > 1)
        row = np.full(dfa.n_states, -1, np.int64)
        row[single] = -2 - (n_single + np.arange(len(single)))
        row[dense] = n_rows + np.arange(len(dense))
        edges.append(row)
        klass = np.argmax(delta[single] >= 0, axis=1) if len(single) else np.zeros(0, np.int64)
        single_byte.append(dfa.first_of[klass])
        single_target.append(delta[single, klass] + offset)
        n_single += len(single)
        if len(dense):
            n_rows += len(dense)
            part = np.where(delta[dense] >= 0, delta[dense] + offset, -1).astype(np.int32)
            column_class, firsts = _merge_columns(part)
            tables.append(column_class[dfa.class_of[:256]])
            rows.append(part[:, firsts])
    byte_class, first_of = coarsest_classes([table[None, :] for table in tables])
    dense_rows = [part[:, table[first_of]] for part, table in zip(rows, tables, strict=True)]
    return {
        "n_classes": len(first_of),
        "byte_class": byte_class,
        "edges": np.concatenate(edges).astype(np.int32),
        "dense": np.concatenate(dense_rows).reshape(-1).astype(np.int32) if rows else np.zeros(0, np.int32),
        "single_byte": np.concatenate(single_byte).astype(np.uint8),
        "single_target": np.concatenate(single_target).astype(np.int32),
    }


def _merge_columns(table: Int32Array) -> tuple[Int32Array, Int32Array]:
    """Equal columns as one: (new number of each column, a column of each number), by first occurrence."""
    turned = np.ascontiguousarray(table.T)
    numbers: dict[bytes, int] = {}
    merged = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in turned], np.int32)
    return merged, np.unique(merged, return_index=True)[1].astype(np.int32)


def _symbol_edges(
    frames: list[Frame], offsets: npt.NDArray[np.int64], numbers: dict[int, int]
) -> tuple[npt.NDArray[np.int64], Int32Array, Int32Array]:
    """Edges on the symbols in `numbers`, sorted by state and number: (state, number, target)."""
    found: list[npt.NDArray[np.int64]] = [np.zeros((0, 3), np.int64)]
    for frame, offset in zip(frames, offsets, strict=False):
        for symbol in frame.symbols:
            if symbol in numbers:
                column = frame.dfa.columns(symbol, 1)[:, 0]
                states = np.flatnonzero(column >= 0)
                number = np.full(len(states), numbers[symbol])
                found.append(np.stack([states + offset, number, column[states] + offset], axis=1))
    table = np.concatenate(found)
    table = table[np.lexsort((table[:, 1], table[:, 0]))]
    return table[:, 0], table[:, 1].astype(np.int32), table[:, 2].astype(np.int32)


def _frame_lengths(
    frames: list[Frame], frame_of: dict[int, int]
) -> tuple[list[int], list[npt.NDArray[np.int64]], list[bool]]:
    """By frame: fewest bytes of a string, fewest bytes from each state to a final one, whether it has no cycle.

    Frames may call each other: a least fixpoint from below the callees' lengths that are known already.
    """
    length = [_FAR] * len(frames)
    distances: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)] * len(frames)
    acyclic = [False] * len(frames)
    changed = True
    while changed:
        changed = False
        for number in range(len(frames) - 1, -1, -1):
            frame = frames[number]
            dfa = frame.dfa
            weight = np.ones(dfa.delta.shape[1], np.int64)
            for symbol in frame.symbols:
                weight[dfa.class_of[symbol]] = length[frame_of[symbol]] if symbol in frame_of else 0
            distance, acyclic[number] = _measure(np.ascontiguousarray(dfa.delta).reshape(-1), dfa.final, weight)
            distances[number] = np.minimum(distance, _FAR)
            if frame.guards is not None:
                total = frame.guards.shortest(frame.guards.costs(distances[number]))
                changed = changed or total < length[number]
                length[number] = min(length[number], total)
                continue
            items = frame.minimum if frame.kind == COUNTER else 1
            # A counter's frame must have one item at least: it never matches the empty string.
            total = min(int(distances[number][0]) * max(items, 1), _FAR)
            if total < length[number]:
                length[number] = total
                changed = True
    return length, distances, acyclic


def _next_bytes(arrays: dict[str, Any], n_classes: int, frames: list[Frame], offsets: npt.NDArray[np.int64]) -> None:
    """Adds ``frame_first`` and ``frame_follow``: bytes that a string of a frame begins with, and that may follow it."""
    n = len(frames)
    own = np.zeros((len(arrays["edges"]), 256), np.bool_)
    for frame, offset in zip(frames, offsets, strict=False):
        own[offset : offset + frame.dfa.n_states] = frame.dfa.columns(0, 256) >= 0
    starts = offsets[:-1]
    caller = np.repeat(np.arange(len(own)), np.diff(arrays["call_start"]))
    callee, target = arrays["call_frame"], arrays["call_target"]
    caller_frame = arrays["state_frame"][caller]
    final = arrays["state_flags"][target] & FINAL != 0
    counter = np.array([frame.kind == COUNTER for frame in frames])
    first = own[starts]
    while True:
        before = first.copy()
        begins = np.isin(caller, starts)
        np.logical_or.at(first, caller_frame[begins], first[callee[begins]])
        if (first == before).all():
            break
    after = own.copy()  # bytes that may come next in a state, in its frame or in one that it calls
    np.logical_or.at(after, caller, first[callee])
    follow = np.zeros((n, 256), np.bool_)
    np.logical_or.at(follow, callee, after[target])
    again = final & counter[caller_frame]
    np.logical_or.at(follow, callee[again], first[caller_frame[again]])
    while True:
        before = follow.copy()
        np.logical_or.at(follow, callee[final], follow[caller_frame[final]])
        if (follow == before).all():
            break
    for name, table in (("frame_first", first), ("frame_follow", follow)):
        arrays[name] = np.packbits(table, axis=1, bitorder="little").view(np.int64).reshape(-1)


@kernel("(int32[::1], uint8[::1], int64[::1])")
def _measure(delta: Int32Array, final: Uint8Array, weight: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], bool]:
    """Least weight to a final state, from each state of a trimmed DFA, and whether the DFA has no cycle."""
    n = len(final)
    n_classes = len(weight)
    back_start = np.zeros(n + 1, np.int64)
    for k in range(n * n_classes):
        if delta[k] >= 0:
            back_start[delta[k] + 1] += 1
    for s in range(n):
        back_start[s + 1] += back_start[s]
    place = back_start[:n].copy()
    source = np.empty(back_start[n], np.int32)
    cost = np.empty(back_start[n], np.int64)
    waiting = np.zeros(n, np.int64)  # edges out of a state that are not known to be on no cycle
    for s in range(n):
        for c in range(n_classes):
            t = delta[s * n_classes + c]
            if t >= 0:
                source[place[t]] = s
                cost[place[t]] = weight[c]
                place[t] += 1
                waiting[s] += 1
    distance = np.full(n, np.int64(1) << 62, np.int64)
    queue = np.empty(n + 1, np.int32)  # a ring: a state is in it at most once
    queued = np.zeros(n, np.uint8)
    head = 0
    size = 0
    for s in range(n):
        if final[s]:
            distance[s] = 0
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
            if distance[s] + cost[k] < distance[p]:
                distance[p] = distance[s] + cost[k]
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
    return distance, removed == n
