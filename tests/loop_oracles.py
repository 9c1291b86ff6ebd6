"""Slow and obviously right versions of what is found out about loops: by reading every code point of a class."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import cache

import numpy as np
import numpy.typing as npt

from stepmask.grammar.automaton import COUNTER, FINAL, HAS_CALLS, HAS_OPERATIONS, SPREAD, Automaton

Ranges = Iterable[tuple[int, int]]


def staying(next_state: Callable[[int, int], int], points: Iterable[int], candidates: Iterable[int]) -> set[int]:
    """The largest part of `candidates` from which every one of the code points `points` leads back into the part.

    `next_state(state, byte)`: where a byte leads, -1: nowhere.
    """
    spelled = [chr(point).encode() for point in points]

    def after(state: int, data: bytes) -> int:
        for byte in data:
            state = next_state(state, byte) if state >= 0 else -1
        return state

    left = set(candidates)
    while True:
        gone = {state for state in left if any(after(state, data) not in left for data in spelled)}
        if not gone:
            return left
        left -= gone


@cache
def _spelled() -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]]:
    """The code points above U+007F of 2, 3 and 4 bytes each, and their bytes: uint8[points, bytes]."""
    found = []
    for length, first, last in ((2, 0x80, 0x7FF), (3, 0x800, 0xFFFF), (4, 0x10000, 0x10FFFF)):
        points = np.array([p for p in range(first, last + 1) if not 0xD800 <= p <= 0xDFFF])
        text = "".join(map(chr, points.tolist())).encode()
        found.append((points, np.frombuffer(text, np.uint8).reshape(-1, length)))
    return found


def edge_table(automaton: Automaton) -> npt.NDArray[np.int64]:
    """Where each state leads by each byte, int64[states + 1, 256], -1: nowhere; the last row is of no state."""
    a = {name: automaton[name] for name in ("edges", "dense", "byte_class", "single_byte", "single_target")}
    n = automaton.n_states
    table = np.full((n + 1, 256), -1, np.int64)
    for state in range(n):
        row = int(a["edges"][state])
        if row >= 0:
            table[state] = a["dense"][row * automaton.n_classes + a["byte_class"].astype(np.int64)]
        elif row < -1:
            table[state, a["single_byte"][-2 - row]] = a["single_target"][-2 - row]
    return table


def next_after_class(automaton: Automaton, state: int) -> tuple[set[int], bool]:
    """What may come next after strings of the class of a SPREAD state: bytes, and whether the frame may end.

    As it is defined: what the states of its frame do that loop on its class or on a larger one.
    """
    table = edge_table(automaton)
    loop, frame, flags = (automaton[name] for name in ("state_loop", "state_frame", "state_flags"))
    found: set[int] = set()
    ends = False
    for other in range(automaton.n_states):
        plain = not flags[other] & (HAS_CALLS | HAS_OPERATIONS) and automaton["edges"][other] >= 0
        if plain and frame[other] == frame[state] and 0 <= loop[other] <= loop[state]:
            found.update(np.flatnonzero(table[other] >= 0).tolist())
            ends = ends or bool(flags[other] & FINAL)
    assert flags[state] & SPREAD
    return found, ends


def exact_states(automaton: Automaton) -> list[bool]:
    """By state: has it a loop class, and are that class's code points above U+007F all that may come next in its frame?

    In a counter the next item may begin, where there may be one after the first.
    """
    n = automaton.n_states
    table = edge_table(automaton)

    def alive(state: int) -> npt.NDArray[np.bool_]:
        """By code point above U+007F: does it lead anywhere?"""
        found = np.zeros(0x110000, np.bool_)
        for points, data in _spelled():
            at = np.full(len(points), state)
            for column in data.T:
                at = table[at, column]
            found[points] = at >= 0
        return found

    def class_of(number: int) -> npt.NDArray[np.bool_]:
        found = np.zeros(0x110000, np.bool_)
        begin, end = automaton["loop_start"][number : number + 2]
        for low, high in automaton["loop_ranges"].reshape(-1, 2)[begin:end].tolist():
            found[low : high + 1] = True
        found[:0x80] = False
        return found

    answers = []
    for state in range(n):
        number = int(automaton["state_loop"][state])
        if number < 0:
            answers.append(False)
            continue
        may_come = alive(state)
        frame = int(automaton["state_frame"][state])
        counts = automaton["frame_kind"][frame] == COUNTER and automaton["state_flags"][state] & FINAL
        if counts and automaton["frame_maximum"][frame] != 1:
            may_come |= alive(int(automaton["frame_start"][frame]))
        answers.append(bool((may_come == class_of(number)).all()))
    return answers


class PositionSets:
    """A lazy automaton by sets of positions."""

    def __init__(self, automaton: Automaton) -> None:
        self._classes = automaton["byte_class"].tolist()
        start, edges = automaton["lazy_edge_start"].tolist(), automaton["lazy_edges"].reshape(-1, 3).tolist()
        self._edges = [edges[a:b] for a, b in itertools.pairwise(start)]
        self._known: dict[tuple[frozenset[int], int], frozenset[int]] = {}

    def after(self, positions: frozenset[int], byte: int) -> frozenset[int]:
        """The positions that `byte` leads to."""
        key = positions, self._classes[byte]
        if key not in self._known:
            self._known[key] = frozenset(
                target for p in positions for low, high, target in self._edges[p] if low <= key[1] <= high
            )
        return self._known[key]

    def targets(self, position: int) -> list[int]:
        """Where its edges lead, in their order."""
        return [target for _, _, target in self._edges[position]]

    def all_text_leads(self, position: int, goal: int) -> bool:
        """Does every code point above U+007F lead from `position` to `goal`, among others?"""

        @cache
        def leads(positions: frozenset[int], more: int, low: int, high: int) -> bool:
            for byte in range(low, high + 1):
                reached = self.after(positions, byte)
                if not (leads(reached, more - 1, 0x80, 0xBF) if more > 1 else goal in reached):
                    return False
            return True

        for lead in range(0xC2, 0xF5):  # RFC 3629
            more = 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
            low = {0xE0: 0xA0, 0xF0: 0x90}.get(lead, 0x80)
            high = {0xED: 0x9F, 0xF4: 0x8F}.get(lead, 0xBF)
            if not leads(self.after(frozenset({position}), lead), more, low, high):
                return False
        return True


def lazy_loops(automaton: Automaton) -> list[tuple[set[int], bool]]:
    """By position: the ASCII bytes, and whether all code points above U+007F, on which it leads back to itself.

    One that does so on none has those of the position that it leads to with most, as far as it leads there by them.
    """
    sets = PositionSets(automaton)
    loops: list[tuple[set[int], bool]] = []
    n = len(automaton["lazy_edge_start"]) - 1
    for p in range(n):
        own = {byte for byte in range(128) if p in sets.after(frozenset({p}), byte)}
        loops.append((own, bool(own) and sets.all_text_leads(p, p)))
    for p in range(n):
        if loops[p][0]:
            continue
        best = 0
        for other in sets.targets(p):
            theirs, text = loops[other]
            if other == p or len(theirs) <= best:
                continue
            common = {byte for byte in theirs if other in sets.after(frozenset({p}), byte)}
            loops[p] = common, text and sets.all_text_leads(p, other)
            best = len(common)
    return loops
