"""Automata that are determinised at run time."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from .assemble import loop_sections
from .automaton import LAZY, LAZY_FRAME, Automaton
from .determinize import alphabet_classes
from .expression import Ranges
from .loops import class_edges
from .position import Int32Array, PositionAutomaton, Uint8Array

#: Rounds of merging; each lets merges of the one before show further up.
_ROUNDS = 4
#: Positions with an edge to themselves of which it is asked whether classes lead back to them, and half of the times
#: that this is asked in all, about 0.2 ms each; masks of sets of other positions take longer.
MAX_TRIED = 200


def lazy_automaton(positions: PositionAutomaton, classes: list[Ranges]) -> Automaton:
    """One lazy frame: the position automaton itself, its equal positions merged.

    `classes`: those of code points that positions may loop on, largest first.
    """
    positions = merge_equal_positions(positions)
    loop, found = lazy_loops(positions, classes)
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
        "lazy_loop": loop,
        **loop_sections(found),
    }
    return Automaton.build(arrays, n_classes=len(first_of), root_frame=0, flags=LAZY, metadata={"tokens": []})


class _Returning:
    """Whether all code points of a class lead from one position to another, as one run of bytes follows the other."""

    def __init__(self, positions: PositionAutomaton, ranges: Ranges) -> None:
        starts, low, high, target = (column.tolist() for column in class_edges(ranges))
        self._class = [
            list(zip(low[a:b], high[a:b], target[a:b], strict=True)) for a, b in itertools.pairwise(starts)
        ]  # fmt: skip
        self._starts = positions.edge_start
        self._edges = np.stack([positions.low, positions.high, positions.target], axis=1)

    def leads(self, position: int, to: int) -> bool:
        """Do they lead from `position` to `to`, other places besides?"""
        self._to = to
        self._known: dict[tuple[int, int], bool] = {}
        return self._all(0, position)

    def _all(self, at: int, position: int) -> bool:
        """The same of what is left of a code point in state `at` of the class."""
        if at == 1:
            return position == self._to
        known = self._known.get((at, position))
        if known is None:
            edges = self._edges[self._starts[position] : self._starts[position + 1]].tolist()
            known = self._known[at, position] = all(self._covers(edges, *edge) for edge in self._class[at])
        return known

    def _covers(self, edges: list[list[int]], low: int, high: int, then: int) -> bool:
        for first, last, target in sorted(edges):
            if first <= low <= last and self._all(then, target):
                low = last + 1
        return low > high


def lazy_loops(positions: PositionAutomaton, classes: list[Ranges]) -> tuple[Int32Array, list[Ranges]]:
    """By position, the class of which every string leads on from it, or -1; and those classes.

    `classes`: largest first. All its code points lead back to the position, or from it to one where they do. Of
    positions with an edge to themselves on all of a class that is ASCII, MAX_TRIED at most, and those before them.
    """
    n = positions.n_states
    loop = np.full(n, -1, np.int32)
    used: list[Ranges] = []
    source = np.repeat(np.arange(n, dtype=np.int32), np.diff(positions.edge_start))
    own = np.flatnonzero(source == positions.target)
    tried = np.unique(source[own])[:MAX_TRIED]
    own = own[source[own] <= tried[-1]] if len(tried) else own
    covered = np.zeros((len(tried), 128), np.bool_)
    rows = np.searchsorted(tried, source[own])
    for row, low, high in zip(rows.tolist(), positions.low[own].tolist(), positions.high[own].tolist(), strict=True):
        covered[row, low : high + 1] = True
    left = 2 * MAX_TRIED
    for ranges in classes:
        ascii_points = [point for low, high in ranges for point in range(low, min(high, 0x7F) + 1)]
        if not ascii_points or ranges[-1][1] <= 0x7F:
            continue  # nothing that the bytes alone do not say
        returning = _Returning(positions, ranges)
        whole = tried[covered[:, ascii_points].all(axis=1) & (loop[tried] < 0)]
        found = [state for state in whole[:left].tolist() if returning.leads(state, state)]
        left -= len(whole[:left])
        if not found:
            continue
        loop[found] = len(used)
        before = np.flatnonzero(np.isin(positions.target, found) & (loop[source] < 0))
        pairs = dict.fromkeys(zip(source[before].tolist(), positions.target[before].tolist(), strict=True))
        for state, to in list(pairs)[:left]:
            if loop[state] < 0 and returning.leads(state, to):
                loop[state] = len(used)
        left -= min(left, len(pairs))
        used.append(ranges)
    return loop, used


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
