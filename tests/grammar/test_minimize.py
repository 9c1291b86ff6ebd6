"""Minimal DFAs against subsets and rounds of Moore's refinement in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stepmask.grammar.determinize import determinize
from stepmask.grammar.position import trimmed
from stepmask.masks.warm_up import warm_up

ALPHABET = 12
#: (source, lowest symbol, highest symbol, target); nothing leads to the start, as in position automata.
Edge = tuple[int, int, int, int]


@st.composite
def automata(draw: Any) -> tuple[list[Edge], list[bool]]:
    """A few states; wide and narrow edges, so that runs of symbols begin and end next to each other."""
    n = draw(st.integers(2, 9))
    symbol = st.integers(0, ALPHABET - 1)
    edges = draw(
        st.lists(
            st.tuples(st.integers(0, n - 1), symbol, symbol, st.integers(1, n - 1)).map(
                lambda edge: (edge[0], min(edge[1:3]), max(edge[1:3]), edge[3])
            ),
            max_size=24,
        )
    )
    return edges, draw(st.lists(st.booleans(), min_size=n, max_size=n))


def minimal(edges: list[Edge], final: list[bool]) -> tuple[list[dict[int, int]], list[bool]]:
    """(where each symbol leads, final flags) of the states, numbered breadth first; without dead ones."""
    start = frozenset({0})
    delta: dict[frozenset[int], dict[int, frozenset[int]]] = {}
    queue = [start]
    for subset in queue:
        if subset not in delta:
            delta[subset] = {
                symbol: reached
                for symbol in range(ALPHABET)
                if (reached := frozenset(t for s, low, high, t in edges if s in subset and low <= symbol <= high))
            }
            queue.extend(delta[subset].values())
    is_final = {subset: any(final[s] for s in subset) for subset in delta}
    alive = {subset for subset in delta if is_final[subset]}
    while more := {s for s in delta if s not in alive and not alive.isdisjoint(delta[s].values())}:
        alive |= more
    if start not in alive:
        return [{}], [False]
    delta = {s: {symbol: t for symbol, t in delta[s].items() if t in alive} for s in alive}
    block: dict[frozenset[int], int] = {s: int(is_final[s]) for s in alive}
    while True:
        signs = {s: (block[s], *sorted((symbol, block[t]) for symbol, t in delta[s].items())) for s in alive}
        numbers: dict[Any, int] = {}
        refined = {s: numbers.setdefault(signs[s], len(numbers)) for s in sorted(alive, key=sorted)}
        if len(numbers) == len(set(block.values())):
            break
        block = refined
    order, one_of = [block[start]], {block[s]: s for s in alive}
    rows = []
    for number in order:
        row = delta[one_of[number]]
        order.extend(dict.fromkeys(block[row[symbol]] for symbol in sorted(row) if block[row[symbol]] not in order))
        rows.append({symbol: order.index(block[t]) for symbol, t in row.items()})
    return rows, [is_final[one_of[number]] for number in order]


@settings(max_examples=300)
@given(automata())
# From symbol 4 on, one state leads to an equivalent state by another run: no end of a run that counts.
@example(([(0, 0, 0, 1), (0, 1, 1, 2), (1, 2, 3, 3), (1, 4, 6, 4), (2, 2, 6, 3), (3, 7, 7, 3), (4, 7, 7, 4)],
          [False, False, False, True, True]))  # fmt: skip
def test_states_are_minimal_and_in_order(found: tuple[list[Edge], list[bool]]) -> None:
    warm_up()
    edges, final = found
    table = np.array(sorted(edges), np.int32).reshape(-1, 4)
    edge_start = np.searchsorted(table[:, 0], np.arange(len(final) + 1)).astype(np.int32)
    low, high, target = (np.ascontiguousarray(table[:, i]) for i in (1, 2, 3))
    positions = trimmed(edge_start, low, high, target, np.array(final, np.uint8))
    dfa = determinize(positions, ALPHABET, 1000, 1_000_000)
    assert dfa is not None
    rows, ends = minimal(edges, final)
    assert dfa.final.astype(bool).tolist() == ends
    columns = dfa.columns(0, ALPHABET)
    assert [{i: int(t) for i, t in enumerate(row) if t >= 0} for row in columns] == rows
