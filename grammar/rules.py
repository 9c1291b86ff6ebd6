"""Rules that refer to each other: what they can match, and as few of them as the language needs.

Each rule left over becomes a frame that others call. Fewer calls mean fewer stack nodes at run time, so rules are
first solved and inlined as far as that stays small:

* a rule that refers to itself at its ends needs no recursion there. ``A = A a A | A c | d A | b`` has the language
  ``X (a X)*`` with ``X = d* b c*``; with one end only that is Arden's lemma (D. Arden, "Delayed-logic and finite-state
  machines", 1961). References to A within b are calls that stay;
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
    ByteAutomaton,
    Bytes,
    Characters,
    Complement,
    Expression,
    Intersection,
    Lookahead,
    Machine,
    Member,
    Members,
    Reference,
    Repeat,
    Sequence,
    Token,
)
from .limits import Limits
from .members import ANY, accepts_none, terms_of
from .simplify import CONTEXTUAL, Simplifier, children, contains, depth, place_of, with_children


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
    groups = _components(needs)
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


def _components(graph: Mapping[str, list[str]]) -> list[list[str]]:
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


def reduced_rules(
    rules: Mapping[str, Expression], start: str, order: list[str], recursive: frozenset[str], limits: Limits
) -> dict[str, Expression]:
    """Simplified rules of the same language, each of them needed and with a non-empty string; `start` is among them.

    `order` and `recursive` are what `needed_rules` says.
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
    simplifier = Simplifier(rules, limits, recursive | _too_large(rules, start, order, recursive, limits))
    for name in order:
        simplifier.kept_rule(name)
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
                    "in a recursive grammar an anchor or lookahead may stand only within an operand of an intersection",
                    place_of(node.source),
                )
            if isinstance(node, Members):
                for part in (*(option.key for option in node.options), node.separator):
                    if contains(part, Token):
                        raise GrammarUnsupported(
                            "a token may not stand in the key of a member or between members", place_of(part.source)
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
    rules: Mapping[str, Expression], start: str, order: list[str], recursive: frozenset[str], limits: Limits
) -> frozenset[str]:
    """Rules without recursion that are not to be inlined: large ones that are used more than once."""
    uses: Counter[str] = Counter()
    for name in order:
        uses.update(_count_uses(rules[name]))
    size = dict.fromkeys(recursive, 1)
    large = set()
    for name in order:
        if name in recursive:
            continue
        size[name] = _size(rules[name], lambda rule: size[rule])
        multiple = uses[name] > 1 and name != start
        if multiple and size[name] > limits.max_inlined_positions and not contains(rules[name], CONTEXTUAL):
            large.add(name)
            size[name] = 1
    return frozenset(large)


def _size(node: Expression, size_of_rule: Callable[[str], int], known: dict[int, int] | None = None) -> int:
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
        if isinstance(node, Machine):
            reached, left = {0}, [0]
            while left:
                at = left.pop()
                for source, label, target in zip(node.sources, node.labels, node.targets, strict=True):
                    if source == at and target not in reached and self.of(label):
                        reached.add(target)
                        left.append(target)
            return not reached.isdisjoint(node.finals)
        if isinstance(node, Members):
            return accepts_none(node)
        return self.closed(node)[0] if isinstance(node, Intersection | Complement | ByteAutomaton) else False

    def closed(self, node: Expression) -> tuple[bool, bool]:
        """(matches the empty string, matches others) of an intersection, a complement or an automaton."""
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
        if isinstance(node, Members):
            bits = [ANY if o.bit is None else o.bit for o in node.options if nullable.of(o.rest) or is_proper(o.rest)]
            return bool(terms_of(node, sum(1 << bit for bit in set(bits))))
        return nullable.closed(node)[1] if isinstance(node, Intersection | Complement | ByteAutomaton) else True

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
    system = _System(rules, limits)
    group_of = {}
    for number, group in enumerate(_components({name: list(uses) for name, uses in system.uses.items()})):
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
            return _needed(system.rules, start)
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
        self.size[name] = _size(body, lambda rule: 1)
        self._depth[name] = depth(body)
        self.uses[name] = _count_uses(body)
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
                if _size(solution, lambda rule: 1) <= max(self._limits.max_inlined_positions, 2 * self.size[name]):
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
