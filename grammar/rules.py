"""Rules that refer to each other: what they can match, and as few of them as the language needs.

Each rule left over becomes a frame that others call. Fewer calls mean fewer stack nodes at run time, so what matches
nothing goes, and the others are solved and inlined as far as that stays small (`solving`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from .build import closed_positions
from .errors import GrammarUnsatisfiable, GrammarUnsupported
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
    Members,
    Reference,
    Repeat,
    Sequence,
    Token,
)
from .limits import Limits
from .members import ANY, accepts_none, terms_of
from .rule_graph import count_uses, needed, references, size_of
from .simplify import CONTEXTUAL, Simplifier, children, contains, place_of
from .solving import solved


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
    return solved(kept, start, limits)


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
        uses.update(count_uses(rules[name]))
    size = dict.fromkeys(recursive, 1)
    large = set()
    for name in order:
        if name in recursive:
            continue
        size[name] = size_of(rules[name], lambda rule: size[rule])
        multiple = uses[name] > 1 and name != start
        if multiple and size[name] > limits.max_inlined_positions and not contains(rules[name], CONTEXTUAL):
            large.add(name)
            size[name] = 1
    return frozenset(large)


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
    return needed(rules, start)
