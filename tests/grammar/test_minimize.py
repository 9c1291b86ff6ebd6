"""Minimal DFAs against subsets and rounds of Moore's refinement in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stepmask.grammar.determinize import determinize, positions_of_dfa
from stepmask.grammar.position import PositionAutomaton, trimmed
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
    rows, ends = minimal(*found)
    for first in (0, 250):  # bytes alone, and bytes and symbols
        dfa = determinize(positions_of(*found, first), first + ALPHABET, 1000, 1_000_000)
        assert dfa is not None
        assert dfa.final.astype(bool).tolist() == ends
        columns = dfa.columns(first, ALPHABET)
        assert [{i: int(t) for i, t in enumerate(row) if t >= 0} for row in columns] == rows


def positions_of(edges: list[Edge], final: list[bool], first: int = 0) -> PositionAutomaton:
    """The automaton, its lowest symbol being `first`."""
    return trimmed(*columns_of(edges, final, first))


def columns_of(edges: list[Edge], final: list[bool], first: int = 0) -> tuple[Any, ...]:
    table = np.array(sorted(edges), np.int32).reshape(-1, 4)
    edge_start = np.searchsorted(table[:, 0], np.arange(len(final) + 1)).astype(np.int32)
    low, high, target = (np.ascontiguousarray(table[:, i]) for i in (1, 2, 3))
    return edge_start, low + np.int32(first), high + np.int32(first), target, np.array(final, np.uint8)


@given(automata())
def test_what_is_of_no_use_goes_and_the_order_is_kept(found: tuple[list[Edge], list[bool]]) -> None:
    edges, final = found
    edges = sorted(edges)
    reached, ending = {0}, {s for s, flag in enumerate(final) if flag}
    for _ in final:
        reached |= {t for s, _, _, t in edges if s in reached}
        ending |= {s for s, _, _, t in edges if t in ending}
    kept = sorted((reached & ending) | {0})
    number = {s: i for i, s in enumerate(kept)}
    wanted = [(number[s], low, high, number[t]) for s, low, high, t in edges if s in reached and t in reached & ending]
    result = positions_of(edges, final)
    source = np.repeat(np.arange(result.n_states), np.diff(result.edge_start)).tolist()
    assert list(zip(source, result.low.tolist(), result.high.tolist(), result.target.tolist(), strict=True)) == wanted
    assert result.final.tolist() == [int(final[s] and s in ending) for s in kept]


@settings(max_examples=200)
@given(automata(), st.sampled_from([0, 250]))
def test_a_dfa_as_positions(found: tuple[list[Edge], list[bool]], first: int) -> None:
    """The same language or all other strings, deterministic, without states of no use, nothing leading to the start."""
    alphabet = first + ALPHABET
    dfa = determinize(positions_of(*found, first), alphabet, 1000, 1_000_000)
    assert dfa is not None
    table = dfa.columns(0, alphabet)
    for complement in (False, True):
        result = positions_of_dfa(dfa, complement=complement)
        assert not (result.target == 0).any()
        again = trimmed(result.edge_start, result.low, result.high, result.target, result.final)
        assert again.n_states == result.n_states and len(again.low) == len(result.low)
        # The two side by side: a state of the DFA (-1: none) and one of the positions (-1: none).
        seen = {(0, 0)}
        work = [(0, 0)]
        while work:
            left, right = work.pop()
            matched = left >= 0 and bool(dfa.final[left])
            assert (right >= 0 and bool(result.final[right])) == (matched != complement)
            own = range(result.edge_start[right], result.edge_start[right + 1]) if right >= 0 else range(0)
            for symbol in range(alphabet):
                ways = [int(result.target[e]) for e in own if result.low[e] <= symbol <= result.high[e]]
                assert len(ways) <= 1
                pair = (int(table[left, symbol]) if left >= 0 else -1, ways[0] if ways else -1)
                if pair not in seen:
                    seen.add(pair)
                    work.append(pair)
