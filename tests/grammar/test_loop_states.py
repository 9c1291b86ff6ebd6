"""States that lead to states like them on every code point of a class, against reading every code point."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from loop_oracles import staying

from stepmask.grammar.automaton import PLAIN, SPREAD
from stepmask.grammar.loops import find_loops
from stepmask.grammar.ranges import normalise
from stepmask.masks.warm_up import warm_up

#: Code points of one to four bytes, some with a lead byte or all but the last byte in common.
POINTS = [
    0x61,
    0x62,
    0x7A,
    0xE9,
    0xEA,
    0x3B1,
    0x800,
    0x4E2D,
    0x4E2E,
    0xD7FF,
    0xE000,
    0xFFFD,
    0x10000,
    0x1F600,
    0x10FFFF,
]
#: Bytes that some code point of these has, each of a class of its own at most.
BYTES = sorted({byte for point in POINTS for byte in chr(point).encode()})


@st.composite
def problems(draw: Any) -> dict[str, Any]:
    """A DFA of few classes of bytes, most of whose bytes lead somewhere; a class; and candidates."""
    n, n_classes = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    byte_class = np.zeros(256, np.uint8)
    byte_class[BYTES] = draw(st.lists(st.integers(0, n_classes - 1), min_size=len(BYTES), max_size=len(BYTES)))
    targets = st.sampled_from([-1, *list(range(n)) * 4])
    edges, dense, single_byte, single_target = [], [], [], []
    for _ in range(n):
        kind = draw(st.sampled_from(["dense"] * 6 + ["single", "none"]))
        if kind == "dense":
            edges.append(len(dense) // n_classes)
            dense += draw(st.lists(targets, min_size=n_classes, max_size=n_classes))
        elif kind == "single":
            edges.append(-2 - len(single_byte))
            single_byte.append(draw(st.sampled_from(BYTES)))
            single_target.append(draw(st.integers(0, n - 1)))
        else:
            edges.append(-1)
    return {
        "byte_class": byte_class,
        "edges": np.array(edges, np.int32),
        "dense": np.array(dense, np.int32),
        "single_byte": np.array(single_byte, np.uint8),
        "single_target": np.array(single_target, np.int32),
        "n_classes": n_classes,
        # ASCII alone is not looked for.
        "points": sorted({draw(st.sampled_from(POINTS[3:])), *draw(st.sets(st.sampled_from(POINTS)))}),
        "candidates": draw(st.permutations(sorted(draw(st.sets(st.integers(0, n - 1)))))),
    }


def next_state(problem: dict[str, Any], state: int, byte: int) -> int:
    row = int(problem["edges"][state])
    if row >= 0:
        return int(problem["dense"][row * problem["n_classes"] + int(problem["byte_class"][byte])])
    if row == -1 or problem["single_byte"][-2 - row] != byte:
        return -1
    return int(problem["single_target"][-2 - row])


def check(problem: dict[str, Any]) -> int:
    """How many states stay, and that it is the right ones."""
    warm_up()
    points, edges = problem["points"], problem["edges"]
    n = len(edges)
    candidates = set(problem["candidates"]) & set(np.flatnonzero(edges >= 0).tolist())
    asked = np.ones(n, np.bool_)
    asked[list(candidates)] = False
    names = ("byte_class", "edges", "dense", "single_byte", "single_target")
    arrays: dict[str, Any] = {name: problem[name] for name in names} | {
        "state_flags": np.zeros(n, np.uint8), "state_frame": np.zeros(n, np.int32),
        "frame_start": np.zeros(1, np.int32), "frame_kind": np.full(1, PLAIN, np.uint8),
    }  # fmt: skip
    ranges = normalise([(point, point) for point in points])
    loop, classes = find_loops(arrays, problem["n_classes"], asked, [ranges])
    marked = set(np.flatnonzero(loop >= 0).tolist())
    spread = set(np.flatnonzero(arrays["state_flags"] & SPREAD).tolist())
    assert classes == [ranges] * bool(marked)

    def next_of(state: int, byte: int) -> int:
        return next_state(problem, state, byte)

    expected = staying(next_of, points, candidates)
    # The others loop on the class by themselves: all of it leads to one state, theirs or one like them.
    assert spread <= expected <= marked <= staying(next_of, points, range(n))
    return len(expected)


@given(problems())
def test_states_stay_that_every_code_point_leads_to_some_of(problem: dict[str, Any]) -> None:
    check(problem)


def test_one_that_leaves_takes_with_it_what_leads_to_it() -> None:
    """A chain in which only the last one leaves, in either order of the candidates; without it all stay."""
    n = 40
    problem: dict[str, Any] = {
        "byte_class": np.zeros(256, np.uint8),
        "edges": np.arange(n, dtype=np.int32),
        "dense": np.append(np.arange(1, n), -1).astype(np.int32),
        "single_byte": np.zeros(0, np.uint8),
        "single_target": np.zeros(0, np.int32),
        "n_classes": 1,
        "points": [0x61, 0x4E2D, 0x1F600],
        "candidates": list(range(n)),
    }
    assert check(problem) == 0
    assert check({**problem, "candidates": list(range(n))[::-1]}) == 0
    problem["dense"][-1] = 0
    assert check(problem) == n
    assert check({**problem, "candidates": [*range(7), *range(8, n)]}) == 0


def test_the_pairs_of_many_candidates_have_room() -> None:
    n = 400
    problem: dict[str, Any] = {
        "byte_class": np.zeros(256, np.uint8),
        "edges": np.arange(n, dtype=np.int32),
        "dense": ((np.arange(n) * 7 + 3) % n).astype(np.int32),
        "single_byte": np.zeros(0, np.uint8),
        "single_target": np.zeros(0, np.int32),
        "n_classes": 1,
        "points": [0x62, 0x10FFFF],
        "candidates": list(range(n)),
    }
    assert check(problem) == n
