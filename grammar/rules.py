"""Rules that refer to each other: what they can match, and as few of them as the language needs.

Each rule left over becomes a frame that others call. Fewer calls mean fewer stack nodes at run time, so rules are
first solved and inlined as far as that stays small:

* a rule that refers to itself only at its ends is no recursion. ``A = A a A | A c | d A | b`` (none of a, b, c, d
  holding A) has the language ``X (a X)*`` with ``X = d* b c*``; with one end only that is Arden's lemma (D. Arden,
  "Delayed-logic and finite-state machines", 1961);
* a rule that does not refer to itself is put in the place of its references.

So mutually right-linear rules end as one regular expression, as by Gaussian elimination, and the usual grammar of
arithmetic ends as one frame that calls itself between parentheses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from .build import closed_positions
from .errors import GrammarError, GrammarUnsatisfiable, GrammarUnsupported
from .expression import (
    EMPTY,
    NOTHING,
    Alternation,
    Bytes,
    Characters,
    Complement,
    Expression,
    Intersection,
    Lookahead,
    Reference,
    Repeat,
    Sequence,
)
from .limits import Limits
from .simplify import CONTEXTUAL, Simplifier, children, contains, place_of


def recursive_rules(rules: Mapping[str, Expression], start: str) -> frozenset[str]:
    """The rules, of those that `start` needs, that need themselves. Raises `GrammarError` for one that is not there."""
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
    return frozenset(name for group in _components(needs) for name in group if len(group) > 1 or name in needs[name])


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


def _components(graph: Mapping[str, list[str]]) -> list[list[str]]:
    """Strongly connected components, callees first (R. Tarjan, "Depth-first search and linear graph algorithms", 1972)."""
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


def reduced_rules(
    rules: Mapping[str, Expression], start: str, recursive: frozenset[str], limits: Limits
) -> dict[str, Expression]:
    """Simplified rules of the same language, each proper (it has a non-empty string) and needed; `start` is one of them.

    Raises `GrammarUnsatisfiable` where `start` matches nothing, `GrammarUnsupported` for anchors, lookaheads and
    recursive operands, which only a regular grammar may have.
    """
    for name in recursive:
        for node in _nodes(rules[name]):
            if isinstance(node, Intersection | Complement | Lookahead):
                inner = recursive.intersection(references(node))
                if inner:
                    kind = type(node).__name__.lower()
                    raise GrammarUnsupported(
                        f"the operand of {_article(kind)} must be regular: rule {min(inner)!r} is recursive",
                        place_of(node.source),
                    )
    simplifier = Simplifier(rules, limits, recursive | _too_large(rules, start, recursive, limits))
    kept: dict[str, Expression] = {}
    work = [start]
    while work:
        name = work.pop()
        if name not in kept:
            kept[name] = simplifier.kept_rule(name)
            work += references(kept[name])
    for body in kept.values():
        for node in _nodes(body):
            if isinstance(node, CONTEXTUAL):
                raise GrammarUnsupported(
                    "an anchor or lookahead may stand in a recursive grammar only within the operand of an intersection",
                    place_of(node.source),
                )
    kept = _productive(kept, start, limits)
    return _solved(kept, start, limits)


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _nodes(node: Expression) -> list[Expression]:
    """`node` and what is within, but not within operands that are languages of their own."""
    found, stack, seen = [], [node], set()
    while stack:
        at = stack.pop()
        if id(at) not in seen:
            seen.add(id(at))
            found.append(at)
            if not isinstance(at, Intersection | Complement):
                stack.extend(children(at))
    return found


def _too_large(
    rules: Mapping[str, Expression], start: str, recursive: frozenset[str], limits: Limits
) -> frozenset[str]:
    """Rules without recursion that are not to be inlined: large ones that are used more than once."""
    uses: Counter[str] = Counter()
    order: list[str] = []
    seen: set[str] = set()
    work: list[tuple[str, bool]] = [(start, False)]
    while work:  # callees before callers, but for recursive ones, which count as one position
        name, done = work.pop()
        if done:
            order.append(name)
        elif name not in seen:
            seen.add(name)
            found = references(rules[name])
            uses.update(_count_uses(rules[name]))
            work.append((name, True))
            work += [(other, False) for other in found if other not in seen]
    size: dict[str, int] = {}
    large = set()
    for name in order:
        size[name] = _size(rules[name], lambda rule: 1 if rule in recursive or rule in large else size.get(rule, 1))
        if size[name] > limits.max_inlined_positions and uses[name] > 1 and name not in recursive and name != start:
            if not contains(rules[name], CONTEXTUAL):
                large.add(name)
    return frozenset(large)


def _size(node: Expression, size_of_rule: Callable[[str], int], known: dict[int, int] | None = None) -> int:
    """Positions of `node`, about, its repeats unrolled."""
    known = {} if known is None else known
    if id(node) not in known:
        if isinstance(node, Bytes):
            total = len(node.text)
        elif isinstance(node, Characters):
            total = len(node.ranges)
        elif isinstance(node, Reference):
            total = size_of_rule(node.rule)
        elif isinstance(node, Repeat):
            total = max(1, node.minimum, node.maximum or 0) * _size(node.body, size_of_rule, known)
        else:
            total = sum(_size(child, size_of_rule, known) for child in children(node)) + (not children(node))
        known[id(node)] = total
    return known[id(node)]


# ------------------------------------------------------------------------------- what rules can match


class Nullable:
    """Which rules and expressions match the empty string: a least fixpoint. Asked of simplified expressions."""

    def __init__(self, rules: Mapping[str, Expression], limits: Limits) -> None:
        self._limits = limits
        self._closed: dict[Expression, tuple[bool, bool]] = {}
        self.rules = dict.fromkeys(rules, False)
        changed = True
        while changed:
            changed = False
            for name, body in rules.items():
                if not self.rules[name] and self.of(body):
                    self.rules[name] = changed = True

    def of(self, node: Expression) -> bool:
        """Does `node` match the empty string?"""
        if isinstance(node, Bytes):
            return not node.text
        if isinstance(node, Sequence):
            return all(self.of(part) for part in node.parts)
        if isinstance(node, Alternation):
            return any(self.of(option) for option in node.options)
        if isinstance(node, Repeat):
            return node.minimum == 0 or self.of(node.body)
        if isinstance(node, Reference):
            return self.rules[node.rule]
        return self.closed(node)[0] if isinstance(node, Intersection | Complement) else False

    def closed(self, node: Expression) -> tuple[bool, bool]:
        """(matches the empty string, matches others) of an intersection or complement."""
        if node not in self._closed:
            positions = closed_positions(node, self._limits)
            self._closed[node] = bool(positions.final[0]), not positions.without_empty_string().is_empty
        return self._closed[node]


def _productive(rules: dict[str, Expression], start: str, limits: Limits) -> dict[str, Expression]:
    """The rules less what matches nothing; references to rules of the empty string alone are gone too."""
    nullable = Nullable(rules, limits)
    proper = dict.fromkeys(rules, False)

    def is_proper(node: Expression) -> bool:
        if isinstance(node, Bytes):
            return bool(node.text)
        if isinstance(node, Characters):
            return bool(node.ranges)
        if isinstance(node, Sequence):
            return all(is_proper(p) or nullable.of(p) for p in node.parts) and any(is_proper(p) for p in node.parts)
        if isinstance(node, Alternation):
            return any(is_proper(option) for option in node.options)
        if isinstance(node, Repeat):
            return is_proper(node.body)
        if isinstance(node, Reference):
            return proper[node.rule]
        return nullable.closed(node)[1] if isinstance(node, Intersection | Complement) else True

    changed = True
    while changed:
        changed = False
        for name, body in rules.items():
            if not proper[name] and is_proper(body):
                proper[name] = changed = True
    if not proper[start] and not nullable.rules[start]:
        raise GrammarUnsatisfiable(f"rule {start!r} matches no string")
    gone = {name: EMPTY if nullable.rules[name] else NOTHING for name in rules if not proper[name] and name != start}
    if gone:
        simplifier = Simplifier({**rules, **gone}, limits, frozenset(rules) - set(gone))
        rules = {name: simplifier.kept_rule(name) for name in rules if name not in gone}
    return _needed(rules, start)


def _needed(rules: dict[str, Expression], start: str) -> dict[str, Expression]:
    """Those that `start` needs, in the order in which they are met."""
    found: dict[str, Expression] = {}
    work = [start]
    while work:
        name = work.pop()
        if name not in found:
            found[name] = rules[name]
            work += reversed(references(rules[name]))
    return found


# ------------------------------------------------------------------------------- solving and inlining


def _solved(rules: dict[str, Expression], start: str, limits: Limits) -> dict[str, Expression]:
    """The rules with as few references as solving and inlining leave, within `max_inlined_positions`."""
    most = limits.max_inlined_positions
    if not most:
        return rules

    keep = frozenset(rules)
    sizes: dict[str, int] = {}
    uses: dict[str, Counter[str]] = {}
    total: Counter[str] = Counter()
    callers: dict[str, dict[str, None]] = {name: {} for name in rules}
    guarded: dict[str, dict[str, bool]] = {}  # by caller, then callee
    unsolvable: set[str] = set()

    def simplified(node: Expression) -> Expression:
        return Simplifier(rules, limits, keep).simplify(node)

    def size(node: Expression) -> int:
        return _size(node, lambda rule: 1)

    def put(name: str, body: Expression) -> None:
        take_out(name)
        rules[name], sizes[name], uses[name], guarded[name] = body, size(body), _count_uses(body), {}
        total.update(uses[name])
        for other in uses[name]:
            callers[other][name] = None

    def take_out(name: str) -> None:
        total.subtract(uses.get(name, ()))
        for other in uses.pop(name, ()):
            del callers[other][name]

    def is_guarded(name: str) -> bool:
        inside = [caller for caller in callers[name] if group_of[caller] == group_of[name]]
        for caller in inside:
            if name not in guarded[caller]:
                guarded[caller][name] = _is_guarded(rules[caller], name)
        return bool(inside) and all(guarded[caller][name] for caller in inside)

    for name, body in rules.items():
        put(name, body)
    group_of = {name: i for i, group in enumerate(_components({n: list(uses[n]) for n in rules})) for name in group}
    while True:
        for name in list(rules):
            if uses[name][name] and name not in unsolvable:
                solution = _solution(rules[name], name)
                if solution is not None:
                    solution = simplified(solution)
                if solution is None or size(solution) > max(most, 2 * sizes[name]):
                    unsolvable.add(name)
                else:
                    put(name, solution)
        best, least = None, (True, most)
        for name in rules:
            if name != start and not uses[name][name]:
                growth = sizes[name] * (total[name] - 1)
                if growth < most and (is_guarded(name), growth) < least:
                    best, least = name, (is_guarded(name), growth)
        if best is None:
            return _needed(rules, start)
        take_out(best)
        body = rules.pop(best)
        for name in list(callers[best]):
            put(name, simplified(_substituted(rules[name], best, body, {})))
            unsolvable.discard(name)


def _count_uses(node: Expression) -> Counter[str]:
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


def _is_guarded(node: Expression, name: str, before: bool = False, after: bool = False) -> bool:
    """Do bytes stand on both sides of each reference to `name`? Calls there are few, so such a rule is inlined last."""
    if isinstance(node, Reference):
        return node.rule != name or (before and after)
    if isinstance(node, Sequence):
        solid = [isinstance(part, Bytes | Characters) for part in node.parts]
        return all(
            _is_guarded(part, name, before or any(solid[:i]), after or any(solid[i + 1 :]))
            for i, part in enumerate(node.parts)
        )
    return all(_is_guarded(child, name, before, after) for child in children(node))


def _substituted(node: Expression, name: str, body: Expression, done: dict[int, Expression]) -> Expression:
    """`node` with `body` for each reference to `name`."""
    if id(node) not in done:
        result = node
        if isinstance(node, Reference):
            result = body if node.rule == name else node
        elif isinstance(node, Sequence):
            result = replace(node, parts=tuple(_substituted(p, name, body, done) for p in node.parts))
        elif isinstance(node, Alternation):
            result = replace(node, options=tuple(_substituted(o, name, body, done) for o in node.options))
        elif isinstance(node, Repeat):
            result = replace(node, body=_substituted(node.body, name, body, done))
        done[id(node)] = result
    return done[id(node)]


def _mentions(node: Expression, name: str) -> bool:
    return any(isinstance(at, Reference) and at.rule == name for at in _nodes(node))


def _split(node: Expression, name: str, last: bool) -> tuple[Expression, Expression] | None:
    """(P, Q) with ``node = P name | Q`` (`last`) or ``name P | Q``, Q without `name` at that end; None where it is not so."""
    if isinstance(node, Reference) and node.rule == name:
        return EMPTY, NOTHING
    if not _mentions(node, name):
        return NOTHING, node
    if isinstance(node, Alternation):
        pairs = [_split(option, name, last) for option in node.options]
        if None in pairs:
            return None
        return Alternation(tuple(p[0] for p in pairs if p)), Alternation(tuple(p[1] for p in pairs if p))
    if isinstance(node, Sequence):
        end, rest = (node.parts[-1], node.parts[:-1]) if last else (node.parts[0], node.parts[1:])
        pair = _split(end, name, last)
        if pair is None:
            return None
        if last:
            return Sequence((*rest, pair[0])), Sequence((*rest, pair[1]))
        return Sequence((pair[0], *rest)), Sequence((pair[1], *rest))
    if isinstance(node, Repeat) and node.minimum == 0 and node.maximum == 1:
        pair = _split(node.body, name, last)
        return None if pair is None else (pair[0], Alternation((pair[1], EMPTY)))
    return None


def _solution(body: Expression, name: str) -> Expression | None:
    """An expression without `name` that is the least solution of ``name = body``; None where this finds none."""
    first = _split(body, name, False)
    if first is None:
        return None
    after, rest = first
    both, ended = _split(after, name, True) or (None, None)
    begun, base = _split(rest, name, True) or (None, None)
    if both is None or ended is None or begun is None or base is None:
        return None
    if any(_mentions(part, name) for part in (both, ended, begun, base)):
        return None
    item = Sequence((Repeat(begun, 0, None), base, Repeat(ended, 0, None)))
    return Sequence((item, Repeat(Sequence((both, item)), 0, None)))
