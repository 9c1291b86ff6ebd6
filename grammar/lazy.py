"""Automata that are determinised at run time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .assemble import loop_sections
from .automaton import LAZY, LAZY_FRAME, Automaton
from .determinize import alphabet_classes
from .position import Int32Array, PositionAutomaton, Uint8Array

#: Rounds of merging; each lets merges of the one before show further up.
_ROUNDS = 4


def lazy_automaton(positions: PositionAutomaton) -> Automaton:
    """One lazy frame: the position automaton itself, its equal positions merged."""
    positions = merge_equal_positions(positions)
    class_of, first_of = alphabet_classes(positions, 256)
    edges = np.stack([class_of[positions.low], class_of[positions.high], positions.target], axis=1)
    arrays: dict[str, npt.NDArray[Any]] = {
        "byte_class": class_of.astype(np.uint8),
        "call_start": np.zeros(1, np.int32),
        "token_start": np.zeros(1, np.int32),
        "frame_start": np.zeros(1, np.int32),
        "frame_kind": np.array([LAZY_FRAME], np.uint8),
        "frame_minimum": np.zeros(1, np.int64),
        "frame_maximum": np.zeros(1, np.int64),
        "frame_length": np.array([_shortest(positions)], np.int64),
        "lazy_edge_start": positions.edge_start,
        "lazy_edges": edges.astype(np.int32).reshape(-1),
        "lazy_final": positions.final,
        **loop_sections([]),
    }
    return Automaton.build(arrays, n_classes=len(first_of), root_frame=0, flags=LAZY, metadata={"tokens": []})


def merge_equal_positions(positions: PositionAutomaton) -> PositionAutomaton:
    """Merge positions with equal finality and equal edges, and what becomes equal by that, a few rounds deep.

    Edges come out sorted and distinct; the start stays state 0.
    """
    for _ in range(_ROUNDS):
        n = positions.n_states
        source, low, high, target = _distinct_edges(positions)
        same_as = _equal_rows(n, source, low, high, target, positions.final)
        kept = same_as == np.arange(n)
        number = (np.cumsum(kept) - 1).astype(np.int32)
        used = kept[source]
        source, low, high, target = source[used], low[used], high[used], target[used]
        edge_start = np.zeros(int(kept.sum()) + 1, np.int32)
        np.cumsum(np.bincount(number[source], minlength=len(edge_start) - 1), out=edge_start[1:])
        positions = PositionAutomaton(edge_start, low, high, number[same_as[target]], positions.final[kept])
        if kept.all():
            break
    return positions


def _distinct_edges(positions: PositionAutomaton) -> tuple[Int32Array, Int32Array, Int32Array, Int32Array]:
    n = positions.n_states
    source = np.repeat(np.arange(n, dtype=np.int32), np.diff(positions.edge_start))
    columns = np.stack([source, positions.low, positions.high, positions.target])
    columns = columns[:, np.lexsort(columns[::-1])]
    new = np.ones(columns.shape[1], np.bool_)
    new[1:] = (columns[:, 1:] != columns[:, :-1]).any(axis=0)
    source, low, high, target = (np.ascontiguousarray(column[new]) for column in columns)
    return source, low, high, target


def _equal_rows(
    n: int, source: Int32Array, low: Int32Array, high: Int32Array, target: Int32Array, final: Uint8Array
) -> npt.NDArray[np.int64]:
    """For each position the first one with the same finality and edges (sorted); the start is like no other."""
    starts = np.searchsorted(source, np.arange(n + 1))
    rows = np.ascontiguousarray(np.stack([low, high, target], axis=1))
    data, width = rows.tobytes(), rows.itemsize * 3
    first: dict[tuple[int, bytes], int] = {}
    result = np.arange(n)
    begins, flags = (starts * width).tolist(), final.tolist()
    for state in range(1, n):
        key = (flags[state], data[begins[state] : begins[state + 1]])
        result[state] = first.setdefault(key, state)
    return result


def _shortest(positions: PositionAutomaton) -> int:
    """The length of the shortest string."""
    edge_start, target, final = positions.edge_start.tolist(), positions.target.tolist(), positions.final.tolist()
    level, seen, length = [0], {0}, 0
    while not any(final[state] for state in level):
        following: list[int] = []
        for state in level:
            for to in target[edge_start[state] : edge_start[state + 1]]:
                if to not in seen:
                    seen.add(to)
                    following.append(to)
        level = following
        length += 1
    return length
