"""From a deterministic automaton over classes of characters back to an expression."""

from __future__ import annotations

from .errors import GrammarTooLarge
from .expression import EMPTY, NOTHING, Alternation, Characters, Expression, Ranges, Repeat, Sequence
from .ranges import union
from .simplify import place_of


def expression_of(
    classes: list[Ranges], moves: list[dict[int, int]], final: list[bool], whole: Expression, max_size: int
) -> Expression:
    """The strings that lead from state 0 to a final one; `moves` has for each state class -> next state.

    States are merged where they are equal and then taken out one by one (Brzozowski and McCluskey, "Signal flow graph
    techniques for sequential circuit state diagrams", 1963), those first that add least. Raises `GrammarTooLarge`,
    with the place of `whole`, where the expression would have more than `max_size` parts.
    """
    block = _equal_states(moves, final)
    start, end = -1, -2
    edges: dict[int, dict[int, tuple[Expression, int]]] = {start: {block[0]: (EMPTY, 0)}}
    for state, targets in enumerate(moves):
        if block[state] < 0:
            continue
        characters: dict[int, Ranges] = {}
        for symbol, target in targets.items():
            if block[target] >= 0:
                characters[block[target]] = union(characters.get(block[target], ()), classes[symbol])
        edges[block[state]] = {target: (Characters(ranges), 1) for target, ranges in characters.items()}
        if final[state]:
            edges[block[state]][end] = (EMPTY, 0)
    if block[0] < 0:
        return NOTHING
    sources: dict[int, set[int]] = {}
    for state, targets_of in edges.items():
        for target in targets_of:
            sources.setdefault(target, set()).add(state)
    left = set(edges) - {start}
    while left:
        # The smallest number breaks ties, so that the result does not depend on the order of a set.
        state = min(left, key=lambda at: (_cost(edges, sources, at), at))
        if _cost(edges, sources, state) > max_size:
            message = "the order of matching decides what this terminal matches, and as an expression that is too large"
            raise GrammarTooLarge(message, place_of(whole.source), limit="max_terminal_states")
        left.remove(state)
        _take_out(edges, sources, state)
    return edges[start][end][0]


def _cost(edges: dict[int, dict[int, tuple[Expression, int]]], sources: dict[int, set[int]], state: int) -> int:
    """How many parts the expressions would have that stand for the ways through a state."""
    loop = edges[state].get(state, (EMPTY, 0))[1]
    ways_in = [edges[source][state][1] for source in sources[state] if source != state]
    ways_out = [size for target, (_, size) in edges[state].items() if target != state]
    return len(ways_out) * sum(ways_in) + len(ways_in) * (sum(ways_out) + len(ways_out) * loop)


def _take_out(edges: dict[int, dict[int, tuple[Expression, int]]], sources: dict[int, set[int]], state: int) -> None:
    targets = edges.pop(state)
    loop = targets.pop(state, None)
    around: list[tuple[Expression, int]] = [(Repeat(loop[0], 0, None), loop[1])] if loop is not None else []
    before = sorted(sources.pop(state) - {state})
    for target in targets:
        sources[target].discard(state)
    for source in before:
        entering = edges[source].pop(state)
        for target, leaving in targets.items():
            parts = [part for part in (entering, *around, leaving) if part[0] != EMPTY]
            way = (
                parts[0] if len(parts) == 1 else (Sequence(tuple(p for p, _ in parts)), sum(size for _, size in parts))
            )
            edges[source][target] = _either(edges[source].get(target), way if parts else (EMPTY, 0))
            sources[target].add(source)


def _either(known: tuple[Expression, int] | None, way: tuple[Expression, int]) -> tuple[Expression, int]:
    if known is None or known[0] == way[0]:
        return way
    options = (known[0].options if isinstance(known[0], Alternation) else (known[0],)) + (way[0],)
    return Alternation(options), known[1] + way[1]


def _equal_states(moves: list[dict[int, int]], final: list[bool]) -> list[int]:
    """For each state the number of those equal to it, -1 where no final state can be reached."""
    alive = {state for state, is_final in enumerate(final) if is_final}
    grown = True
    while grown:
        more = {state for state, targets in enumerate(moves) if not alive.isdisjoint(targets.values())}
        grown = not more <= alive
        alive |= more
    block = [int(is_final) if state in alive else -1 for state, is_final in enumerate(final)]
    count = 0
    while True:
        numbers: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
        refined = []
        for state, targets in enumerate(moves):
            if block[state] < 0:
                refined.append(-1)
                continue
            steps = tuple(sorted((symbol, block[target]) for symbol, target in targets.items() if block[target] >= 0))
            refined.append(numbers.setdefault((block[state], steps), len(numbers)))
        if len(numbers) == count:
            return refined
        block, count = refined, len(numbers)
