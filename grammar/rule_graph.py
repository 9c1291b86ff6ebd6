"""Rules that refer to each other as a graph: which a rule needs, which need themselves, how often and how large."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from .errors import GrammarError
from .expression import ByteAutomaton, Bytes, Characters, Expression, Reference, Repeat
from .simplify import children, place_of


def needed_rules(rules: Mapping[str, Expression], start: str) -> tuple[list[str], frozenset[str]]:
    """The rules that `start` needs, callees first, and those of them that need themselves.

    Raises `GrammarError` for one that is not there.
    """
    needs = {}
    stack = [(start, None)]
    while stack:
        name, source = stack.pop()
        if name in needs:
            continue
        if name not in rules:
            raise GrammarError(f"there is no rule {name!r}", place_of(source))
        found = references(rules[name])
        needs[name] = list(found)
        stack += [(other, node.source) for other, node in found.items()]  # type: ignore[misc]
    groups = components(needs)
    recursive = frozenset(name for group in groups for name in group if len(group) > 1 or name in needs[name])
    return [name for group in groups for name in group], recursive


def references(node: Expression) -> dict[str, Reference]:
    """The references in `node`, operands of any kind included, the first of each rule."""
    found: dict[str, Reference] = {}
    stack, seen = [node], set()
    while stack:
        at = stack.pop()
        if id(at) in seen:
            continue
        seen.add(id(at))
        if isinstance(at, Reference):
            found.setdefault(at.rule, at)
        stack.extend(reversed(children(at)))
    return found


def components(graph: Mapping[str, list[str]]) -> list[list[str]]:
    """Strongly connected components, callees first.

    R. Tarjan, "Depth-first search and linear graph algorithms", SIAM Journal on Computing 1 (1972).
    """
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: list[str] = []
    is_open: set[str] = set()
    result = []
    for root in graph:
        work = [(root, 0)] if root not in index else []
        while work:
            name, at = work.pop()
            if at == 0:
                index[name] = low[name] = len(index)
                open_.append(name)
                is_open.add(name)
            for i in range(at, len(graph[name])):
                other = graph[name][i]
                if other not in index:
                    work += [(name, i + 1), (other, 0)]
                    break
                if other in is_open:
                    low[name] = min(low[name], low[other], index[other])
            else:
                if low[name] == index[name]:
                    group = []
                    while True:
                        group.append(open_.pop())
                        is_open.discard(group[-1])
                        if group[-1] == name:
                            break
                    result.append(group)
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[name])
    return result


def needed(rules: dict[str, Expression], start: str) -> dict[str, Expression]:
    """Those that `start` needs, in the order in which they are met."""
    found: dict[str, Expression] = {}
    work = [start]
    while work:
        name = work.pop()
        if name not in found:
            found[name] = rules[name]
            work += reversed(references(rules[name]))
    return found


def count_uses(node: Expression) -> Counter[str]:
    """How often each rule would be referred to, repeats unrolled."""
    total: Counter[str] = Counter()
    stack = [(node, 1)]
    while stack:
        at, times = stack.pop()
        if isinstance(at, Reference):
            total[at.rule] += times
        elif isinstance(at, Repeat):
            stack.append((at.body, times * max(1, at.minimum, at.maximum or 0)))
        else:
            stack += [(child, times) for child in children(at)]
    return total


def size_of(node: Expression, size_of_rule: Callable[[str], int], known: dict[int, int] | None = None) -> int:
    """Positions of `node`, about, its repeats unrolled."""
    known = {} if known is None else known
    if id(node) not in known:
        if isinstance(node, Bytes):
            total = len(node.text)
        elif isinstance(node, ByteAutomaton):
            total = len(node.final)
        elif isinstance(node, Characters):
            total = len(node.ranges)
        elif isinstance(node, Reference):
            total = size_of_rule(node.rule)
        elif isinstance(node, Repeat):
            total = max(1, node.minimum, node.maximum or 0) * size_of(node.body, size_of_rule, known)
        else:
            total = sum(size_of(child, size_of_rule, known) for child in children(node)) + (not children(node))
        known[id(node)] = total
    return known[id(node)]
