"""Expressions brought into a small normal form of the same language before anything is built from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .errors import GrammarError, GrammarTooLarge, GrammarUnsupported
from .expression import (
    EMPTY,
    NOTHING,
    Alternation,
    ByteAutomaton,
    Bytes,
    Characters,
    Complement,
    EndAnchor,
    Expression,
    Intersection,
    Lookahead,
    Machine,
    Member,
    Members,
    Reference,
    Repeat,
    Sequence,
    Source,
    StartAnchor,
)
from .limits import Limits
from .members import accepts_none
from .utf8 import coalesce


def place_of(source: Source | None) -> str | None:
    """Where a construct stands, for an error message."""
    return source.place if source else None


class Simplifier:
    """Inlines references and simplifies bottom up; every node object is visited once.

    After it: sequences and alternations are flat and have at least two parts, adjacent bytes are joined,
    parts that match nothing are gone (or the whole is `NOTHING`), a single code point is `Bytes`, and a
    repeat of a repeat is one repeat where that is the same language.
    """

    def __init__(self, rules: Mapping[str, Expression], limits: Limits, keep: frozenset[str] = frozenset()) -> None:
        self._rules = rules
        self._limits = limits
        self._keep = keep  # rules whose references stay
        self._done: dict[int, tuple[Expression, Expression]] = {}  # by identity; the key's object is kept alive
        self._open: list[str] = []
        self._rule_done: dict[str, Expression] = {}

    def rule(self, name: str, source: Source | None = None) -> Expression:
        """The simplified expression of a rule. Raises `GrammarError` where there is none or it is recursive."""
        if name in self._rule_done:
            return self._rule_done[name]
        if name not in self._rules:
            raise GrammarError(f"there is no rule {name!r}", place_of(source))
        if name in self._open:
            raise GrammarUnsupported(f"rule {name!r} refers to itself", place_of(source))
        self._open.append(name)
        result = self._rule_done[name] = self.simplify(self._rules[name])
        self._open.pop()
        return result

    def kept_rule(self, name: str) -> Expression:
        """The simplified expression of a rule whose references stay."""
        return self.simplify(self._rules[name])

    def simplify(self, node: Expression) -> Expression:
        """The simplified form of `node`."""
        found = self._done.get(id(node))
        if found is not None:
            return found[1]
        result: Expression
        if isinstance(node, Sequence):
            result = self._sequence(node)
        elif isinstance(node, Alternation):
            result = self._alternation(node)
        elif isinstance(node, Repeat):
            result = self._repeat(node)
        elif isinstance(node, Characters):
            result = _characters(node)
        elif isinstance(node, Reference):
            result = node if node.rule in self._keep else self.rule(node.rule, node.source)
        elif isinstance(node, Intersection):
            operands = []
            for operand in node.operands:
                operands.append(self.simplify(operand))
            result = NOTHING if NOTHING in operands else replace(node, operands=tuple(operands))
        elif isinstance(node, Complement | Lookahead):
            result = replace(node, operand=self.simplify(node.operand))
        elif isinstance(node, Machine):
            result = replace(node, labels=tuple(self.simplify(label) for label in node.labels))
        elif isinstance(node, Members):
            result = self._members(node)
        else:
            result = node
        self._done[id(node)] = (node, result)
        return result

    def _sequence(self, node: Sequence) -> Expression:
        parts: list[Expression] = []
        literal: list[bytes] = []
        for part in node.parts:
            part = self.simplify(part)
            for piece in part.parts if isinstance(part, Sequence) else (part,):
                if piece == NOTHING:
                    return NOTHING
                if isinstance(piece, Bytes):
                    literal.append(piece.text)
                    continue
                if literal:
                    parts.append(Bytes(b"".join(literal)))
                    literal = []
                parts.append(piece)
        if literal:
            parts.append(Bytes(b"".join(literal)))
        parts = [part for part in parts if part != EMPTY]
        if len(parts) < 2:
            return parts[0] if parts else EMPTY
        return replace(node, parts=tuple(parts))

    def _alternation(self, node: Alternation) -> Expression:
        options: dict[Expression, None] = {}
        for option in node.options:
            option = self.simplify(option)
            if isinstance(option, Alternation):
                options.update(dict.fromkeys(option.options))
            else:
                options[option] = None
        if len(options) == 1:
            return next(iter(options))
        return replace(node, options=tuple(options)) if options else NOTHING

    def _repeat(self, node: Repeat) -> Expression:
        body = self.simplify(node.body)
        minimum, maximum = node.minimum, node.maximum
        if max(minimum, maximum or 0) > self._limits.max_repeat:
            raise GrammarTooLarge(
                f"a repeat of {max(minimum, maximum or 0)} is too large", place_of(node.source), limit="max_repeat"
            )
        if maximum is not None and maximum < minimum:
            return NOTHING
        if maximum == 0 or body == EMPTY:
            return EMPTY
        if body == NOTHING:
            return EMPTY if minimum == 0 else NOTHING
        if is_nullable(body):
            minimum = 0
        if isinstance(body, Repeat):
            joined = joined_bounds((body.minimum, body.maximum), (minimum, maximum))
            if joined is not None:
                body, (minimum, maximum) = body.body, joined
        if (minimum, maximum) == (1, 1):
            return body
        return replace(node, body=body, minimum=minimum, maximum=maximum)

    def _members(self, node: Members) -> Expression:
        """Keys and separators hold no references afterwards, whatever `keep` says."""
        inner = Simplifier(self._rules, self._limits) if self._keep else self
        options = []
        for option in node.options:
            key, rest = inner.simplify(option.key), self.simplify(option.rest)
            if NOTHING not in (key, rest):
                options.append(replace(option, key=key, rest=rest))
        separator = inner.simplify(node.separator)
        if not options:
            return EMPTY if accepts_none(node) else NOTHING
        return replace(node, options=tuple(options), separator=separator)


def _characters(node: Characters) -> Expression:
    ranges = coalesce(node.ranges)
    if not ranges:
        return NOTHING
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return Bytes(chr(ranges[0][0]).encode(), source=node.source)
    return node if ranges == node.ranges else replace(node, ranges=ranges)


def joined_bounds(inner: tuple[int, int | None], outer: tuple[int, int | None]) -> tuple[int, int | None] | None:
    """Bounds of one repeat that equals ``(x{inner}){outer}`` whatever `x` is, or None where there are none.

    The numbers of `x` are the union of the intervals [k * a, k * b] for k in the outer bounds. The gap
    between neighbours k and k + 1 shrinks as k grows (b >= a), so only the first one need be looked at.
    """
    (low, high), (least, most) = inner, outer
    if least != most and high is None:
        contiguous = least > 0 or low <= 1
    elif least != most and high is not None:
        contiguous = (least + 1) * low <= least * high + 1
    else:
        contiguous = True
    if not contiguous:
        return None
    if most == 0:
        return (0, 0)
    return (least * low, None if high is None or most is None else most * high)


def is_nullable(node: Expression) -> bool:
    """Whether the empty string matches wherever `node` stands; False also where that is not clear."""
    if isinstance(node, Bytes):
        return not node.text
    if isinstance(node, Sequence):
        return all(is_nullable(part) for part in node.parts)
    if isinstance(node, Alternation):
        return any(is_nullable(option) for option in node.options)
    if isinstance(node, Repeat):
        return node.minimum == 0 or is_nullable(node.body)
    if isinstance(node, Intersection):
        return all(is_nullable(operand) for operand in node.operands)
    if isinstance(node, ByteAutomaton):
        return node.final[:1] == b"\x01"
    return isinstance(node, Members) and accepts_none(node)


def children(node: Expression) -> tuple[Expression, ...]:
    """The direct parts of a node."""
    if isinstance(node, Sequence):
        return node.parts
    if isinstance(node, Alternation):
        return node.options
    if isinstance(node, Repeat):
        return (node.body,)
    if isinstance(node, Intersection):
        return node.operands
    if isinstance(node, Complement | Lookahead):
        return (node.operand,)
    if isinstance(node, Member):
        return (node.key, node.rest)
    if isinstance(node, Members):
        return (*node.options, node.separator)
    return node.labels if isinstance(node, Machine) else ()


def with_children(node: Expression, parts: tuple[Expression, ...]) -> Expression:
    """`node` with other parts, as many as `children` finds."""
    if isinstance(node, Sequence):
        return replace(node, parts=parts)
    if isinstance(node, Alternation):
        return replace(node, options=parts)
    if isinstance(node, Intersection):
        return replace(node, operands=parts)
    if isinstance(node, Repeat):
        return replace(node, body=parts[0])
    if isinstance(node, Member):
        return replace(node, key=parts[0], rest=parts[1])
    if isinstance(node, Machine):
        return replace(node, labels=parts)
    if isinstance(node, Members):
        return replace(node, options=parts[:-1], separator=parts[-1])  # type: ignore[arg-type]
    assert isinstance(node, Complement | Lookahead)
    return replace(node, operand=parts[0])


def depth(root: Expression) -> int:
    """How deep nodes are nested in `root`; references are not followed."""
    known: dict[int, int] = {}
    opened: set[int] = set()
    stack = [root]
    while stack:
        at = stack[-1]
        key = id(at)
        inner = children(at)
        if key not in opened:
            opened.add(key)
            stack.extend(child for child in inner if id(child) not in opened)
        else:
            stack.pop()
            known[key] = 1 + max((known.get(id(child), 0) for child in inner), default=0)
    return known[id(root)]


def contains(node: Expression, kinds: type[Expression] | tuple[type[Expression], ...]) -> bool:
    """Whether `node` or anything within it is of one of `kinds`."""
    stack, seen = [node], set()
    while stack:
        at = stack.pop()
        if isinstance(at, kinds):
            return True
        if id(at) not in seen:
            seen.add(id(at))
            stack.extend(children(at))
    return False


#: What looks at the text around it, so that its place matters.
CONTEXTUAL = (StartAnchor, EndAnchor, Lookahead)
