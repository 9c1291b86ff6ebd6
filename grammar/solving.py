"""Rules put into each other and solved, as few of them as stay small.

* A rule that refers to itself at its ends needs no recursion there. ``A = A a A | A c | d A | b`` has the language
  ``X (a X)*`` with ``X = d* b c*``; with one end only that is Arden's lemma (D. Arden, "Delayed-logic and finite-state
  machines", 1961). References to A within b are calls that stay;
* a rule that does not refer to itself is put in the place of its references.

So mutually right-linear rules end as one regular expression, as by Gaussian elimination, and the usual grammar of
arithmetic ends as one frame that calls itself between parentheses.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from .expression import (
    EMPTY,
    NOTHING,
    Alternation,
    Bytes,
    Characters,
    Expression,
    Machine,
    Member,
    Members,
    Reference,
    Repeat,
    Sequence,
)
from .limits import Limits
from .rule_graph import components, count_uses, needed, references, size_of
from .simplify import Simplifier, children, depth, with_children


def solved(rules: dict[str, Expression], start: str, limits: Limits) -> dict[str, Expression]:
    """The rules with as few references as solving and inlining leave, within `max_inlined_positions`."""
    most = limits.max_inlined_positions
    if not most:
        return rules
    system = _System(rules, limits)
    group_of = {}
    for number, group in enumerate(components({name: list(uses) for name, uses in system.uses.items()})):
        group_of.update(dict.fromkeys(group, number))
    while True:
        system.solve()
        # Rules whose references stand between bytes are called seldom: they are inlined last, and one by one.
        exposed = {(group_of[caller], name) for caller in system.rules for name in system.exposed[caller]}
        order: list[tuple[bool, int, int, str]] = []
        for name in system.rules:
            growth = system.growth(name)
            if name != start and growth is not None and growth < most:
                order.append(((group_of[name], name) not in exposed, growth, len(order), name))
        if not order:
            return needed(system.rules, start)
        order.sort()
        for guarded, *_, name in order[:1] if order[0][0] else order:
            growth = system.growth(name)
            if guarded and not order[0][0]:
                break
            if growth is not None and growth < most:
                system.inline(name)


class _System:
    """Rules being solved: for each its body, size, the references in it, and those that do not stand between bytes."""

    def __init__(self, rules: dict[str, Expression], limits: Limits) -> None:
        self._limits = limits
        self.rules = dict(rules)
        self.size: dict[str, int] = {}
        self._depth: dict[str, int] = {}
        self.uses: dict[str, Counter[str]] = {}
        self.exposed: dict[str, set[str]] = {}
        self._total: Counter[str] = Counter()
        self._unsolved = set(rules)
        for name, body in rules.items():
            self._put(name, body)

    def _put(self, name: str, body: Expression) -> None:
        self._total.subtract(self.uses.get(name, Counter()))
        self.rules[name] = body
        self.size[name] = size_of(body, lambda rule: 1)
        self._depth[name] = depth(body)
        self.uses[name] = count_uses(body)
        self.exposed[name] = _exposed(body)
        self._total.update(self.uses[name])

    def _simplified(self, node: Expression) -> Expression:
        return Simplifier(self.rules, self._limits, frozenset(self.rules)).simplify(node)

    def solve(self) -> None:
        """Replace what refers to itself at its ends only, as far as that does not make it too large."""
        for name in [name for name in self.rules if name in self._unsolved]:
            self._unsolved.discard(name)
            solution = _solution(self.rules[name], name) if self.uses[name][name] else None
            if solution is not None:
                solution = self._simplified(solution)
                if size_of(solution, lambda rule: 1) <= max(self._limits.max_inlined_positions, 2 * self.size[name]):
                    self._put(name, solution)

    def growth(self, name: str) -> int | None:
        """Positions that putting the rule in the place of its references would add; None where it is not possible."""
        if self.uses[name][name] or 2 * self._depth[name] > self._limits.max_depth:
            return None
        return self.size[name] * (self._total[name] - 1)

    def inline(self, name: str) -> None:
        """Put the rule in the place of its references, and drop it."""
        body = self.rules[name]
        callers = [caller for caller, uses in self.uses.items() if uses[name] and caller != name]
        if any(self._depth[caller] + self._depth[name] > self._limits.max_depth for caller in callers):
            self._depth[name] = self._limits.max_depth  # not again
            return
        del self.rules[name]
        self._total.subtract(self.uses.pop(name))
        for caller in callers:
            self._put(caller, self._simplified(_substituted(self.rules[caller], name, body, {})))
            self._unsolved.add(caller)


def _exposed(node: Expression, before: bool = False, after: bool = False) -> set[str]:
    """The rules with a reference in `node` that has no bytes before or after it."""
    if isinstance(node, Reference):
        return set() if before and after else {node.rule}
    if isinstance(node, Sequence):
        solid = [isinstance(part, Bytes | Characters) for part in node.parts]
        first = solid.index(True) if True in solid else len(solid)
        last = len(solid) - 1 - solid[::-1].index(True) if True in solid else -1
        found = set()
        for i, part in enumerate(node.parts):
            found |= _exposed(part, before or first < i, after or i < last)
        return found
    return set().union(*(_exposed(child, before, after) for child in children(node)))


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
        elif isinstance(node, Machine):
            result = replace(node, labels=tuple(_substituted(label, name, body, done) for label in node.labels))
        elif isinstance(node, Repeat):
            result = replace(node, body=_substituted(node.body, name, body, done))
        elif isinstance(node, Member | Members):
            result = with_children(node, tuple(_substituted(c, name, body, done) for c in children(node)))
        done[id(node)] = result
    return done[id(node)]


def _split(node: Expression, name: str, last: bool) -> tuple[Expression, Expression]:
    """(P, Q) with ``node = P name | Q`` (`last`) or ``name P | Q``, few references left in Q."""
    if isinstance(node, Reference) and node.rule == name:
        return EMPTY, NOTHING
    if isinstance(node, Alternation):
        pairs = [_split(option, name, last) for option in node.options]
        if all(pair[0] is NOTHING for pair in pairs):
            return NOTHING, node
        return Alternation(tuple(pair[0] for pair in pairs)), Alternation(tuple(pair[1] for pair in pairs))
    if isinstance(node, Sequence):
        end, rest = (node.parts[-1], node.parts[:-1]) if last else (node.parts[0], node.parts[1:])
        pair = _split(end, name, last)
        if pair[0] is NOTHING:
            return NOTHING, node
        if last:
            return Sequence((*rest, pair[0])), Sequence((*rest, pair[1]))
        return Sequence((pair[0], *rest)), Sequence((pair[1], *rest))
    if isinstance(node, Repeat) and node.minimum == 0 and node.maximum == 1:
        pair = _split(node.body, name, last)
        return (NOTHING, node) if pair[0] is NOTHING else (pair[0], Alternation((pair[1], EMPTY)))
    return NOTHING, node


def _solution(body: Expression, name: str) -> Expression | None:
    """The least solution of ``name = body`` for the references at the ends of `body`; None where there are none.

    Others, if they stand between bytes, are taken as given and stay. That may be done one after the other: H. Bekic,
    "Definable operations in general algebras, and the theory of automata and flowcharts" (1969).
    """
    after, rest = _split(body, name, False)
    both, ended = _split(after, name, True)
    begun, base = _split(rest, name, True)
    if both is NOTHING and ended is NOTHING and begun is NOTHING:
        return None
    # Not where a call would be guessed instead of a turn of the loop that begins alike, as after ``if c then`` in a
    # dangling else: with the rule as it is, the call is one for both and what follows decides.
    if any(name in references(part) for part in (both, ended, begun)):
        return None
    if name in _exposed(base) or (begun is not NOTHING and name in references(base)):
        return None
    item = Sequence((Repeat(begun, 0, None), base, Repeat(ended, 0, None)))
    return Sequence((item, Repeat(Sequence((both, item)), 0, None)))
