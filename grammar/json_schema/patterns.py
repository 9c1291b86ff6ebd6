"""Patterns as languages of code points, and what can be said of such languages before anything is compiled.

A pattern is found anywhere in a string, and its anchors may stand anywhere. Most are rid of them here, so that what is
left may stand within a larger text and keep its counted repeats; the others become an operand of an intersection, a
language of its own in which anchors and lookaheads see that string only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise, product
from typing import NamedTuple

from ..build import closed_positions
from ..determinize import determinize
from ..errors import GrammarTooLarge
from ..expression import (
    EMPTY,
    NOTHING,
    Alternation,
    Bytes,
    Characters,
    Complement,
    EndAnchor,
    Expression,
    Intersection,
    Lookahead,
    Repeat,
    Sequence,
    StartAnchor,
)
from ..limits import DEFAULT_LIMITS, Limits
from ..regex_ecma import ecma_pattern
from ..simplify import Simplifier, contains, is_nullable
from .escapes import ANY_TEXT, SURROGATE, is_text, one_of

#: What stands for a lone surrogate, which no UTF-8 text holds, when strings are matched: a noncharacter.
_STAND_IN = "\U0010fffe"
#: What is built as an automaton of its own.
CLOSED = (Intersection, Complement, Lookahead)
#: States, and members of state sets visited (about 5 ns each), up to which strings are matched by a DFA.
_MATCHER_STATES, _MATCHER_WORK = 2_000, 200_000
#: Options that a bound of a sequence may become, about 50 us each to build.
_MOST_OPTIONS = 8


@lru_cache(maxsize=4096)
def pattern_content(pattern: str, limits: Limits = DEFAULT_LIMITS) -> Expression:
    """The strings, as code points, in which `pattern` (ECMA 262) is found; without anchors outside intersections.

    Raises `GrammarError` as `ecma_pattern` does.
    """
    found = ecma_pattern(pattern, limits)
    with nesting_checked():
        return Simplifier({}, limits).simplify(_found_anywhere(found))


@contextmanager
def nesting_checked() -> Iterator[None]:
    """Raises `GrammarTooLarge` where an expression is nested deeper than Python's stack has room for."""
    try:
        yield
    except RecursionError:
        raise GrammarTooLarge("the expression is nested too deeply", limit="max_depth") from None


def _found_anywhere(found: Expression) -> Expression:
    parts = None if contains(found, Lookahead) else _parts(found)
    if parts is None:
        return Intersection((Sequence((ANY_TEXT, found, ANY_TEXT)),), source=found.source)
    begun, ended = _shortened(parts.begins, last=True), _shortened(parts.ends, last=False)
    free = _shortened(_shortened(parts.free, last=True), last=False)
    if any(is_nullable(part) for part in (free, begun, ended)):
        return ANY_TEXT
    return one_of((_joined(ANY_TEXT, free, ANY_TEXT), _joined(begun, ANY_TEXT), _joined(ANY_TEXT, ended), parts.whole))


def matches(pattern: str, text: str) -> bool:
    """Whether `pattern` (ECMA 262) is found in `text`. Raises `GrammarError` as `ecma_pattern` does."""
    return accepts(pattern_content(pattern), text)


# Anchors


class _Parts(NamedTuple):
    """What an expression matches, by what it asks of the place: `begins` only where the text begins, `ends` only where
    it ends, `whole` both, `free` neither. None has anchors."""

    free: Expression = NOTHING
    begins: Expression = NOTHING
    ends: Expression = NOTHING
    whole: Expression = NOTHING


def _joined(*parts: Expression) -> Expression:
    if NOTHING in parts:
        return NOTHING
    kept = tuple(part for part in parts if part != EMPTY)
    return kept[0] if len(kept) == 1 else Sequence(kept) if kept else EMPTY


def _parts(node: Expression) -> _Parts | None:
    """The parts of `node`, or None where a repeated part has anchors. It holds no lookahead."""
    if isinstance(node, StartAnchor):
        return _Parts(begins=EMPTY)
    if isinstance(node, EndAnchor):
        return _Parts(ends=EMPTY)
    if not contains(node, (StartAnchor, EndAnchor)):
        return _Parts(free=node)
    if isinstance(node, Repeat):
        body = _parts(node.body)
        if body is None or node.maximum != 1:
            return None
        return body._replace(free=one_of((body.free, EMPTY)))
    if isinstance(node, Alternation):
        options = [_parts(option) for option in node.options]
        known = [option for option in options if option is not None]
        return _Parts(*map(one_of, zip(*known, strict=True))) if len(known) == len(options) else None
    assert isinstance(node, Sequence)
    result = _Parts(free=EMPTY)
    run: list[Expression] = []  # parts without anchors are joined at once
    for part in node.parts:
        if not contains(part, (StartAnchor, EndAnchor)):
            run.append(part)
            continue
        inner = _parts(part)
        if inner is None:
            return None
        result = _followed(_followed(result, _Parts(free=_joined(*run))), inner)
        run = []
    return _followed(result, _Parts(free=_joined(*run)))


def _followed(left: _Parts, right: _Parts) -> _Parts:
    """`left`, then `right`. Behind what ends the text, and before what begins it, only the empty string may stand."""
    found: tuple[list[Expression], ...] = ([], [], [], [])
    # Of the bits of a part's number 1 is: begins, 2: ends.
    there = [(j, part) for j, part in enumerate(right) if part != NOTHING]
    for i, before in enumerate(left):
        if before == NOTHING:
            continue
        for j, after in there:
            ended, begun = i & 2, j & 1
            if not ended and not begun:
                found[i | j].append(_joined(before, after))
            elif (not begun or is_nullable(before)) and (not ended or is_nullable(after)):
                found[i | j].append(EMPTY if ended and begun else before if ended else after)
    return _Parts(*(one_of(dict.fromkeys(options)) for options in found))


def _shortened(node: Expression, *, last: bool) -> Expression:
    """A language that, with any text after it (`last`) or before it, is the same as `node`, and smaller.

    Any text takes up what an end may be without: optional parts go, and repeats keep their least count.
    """
    if isinstance(node, Sequence):
        parts = list(node.parts)
        while parts:
            end = -1 if last else 0
            parts[end] = _shortened(parts[end], last=last)
            if not is_nullable(parts[end]):
                break
            del parts[end]
        return _joined(*parts)
    if isinstance(node, Alternation):
        options = dict.fromkeys(_shortened(option, last=last) for option in node.options)
        return EMPTY if any(map(is_nullable, options)) else one_of(options)
    if isinstance(node, Repeat) and not is_nullable(node.body):
        return EMPTY if node.minimum == 0 else Repeat(node.body, node.minimum, node.minimum, source=node.source)
    return EMPTY if is_nullable(node) else node


# Lengths


@lru_cache(maxsize=4096)
def lengths(node: Expression) -> tuple[int, int | None]:
    """Bounds of the numbers of code points of the strings of `node`; the real ones may be narrower, for some nodes.

    The upper bound is None where there is none. What matches nothing has the bounds of the empty string.
    """
    if isinstance(node, Bytes):
        length = len(node.text.decode())
        return length, length
    if isinstance(node, Characters):
        return 1, 1
    if isinstance(node, Sequence):
        bounds = [lengths(part) for part in node.parts]
        longest = [high for _, high in bounds]
        return sum(low for low, _ in bounds), None if None in longest else sum(filter(None, longest))
    if isinstance(node, Alternation):
        bounds = [lengths(option) for option in node.options] or [(0, 0)]
        longest = [high for _, high in bounds]
        return min(low for low, _ in bounds), None if None in longest else max(filter(None, longest), default=0)
    if isinstance(node, Repeat):
        low, high = lengths(node.body)
        if high == 0 or node.maximum == 0:
            return 0, 0
        return low * node.minimum, None if high is None or node.maximum is None else high * node.maximum
    if isinstance(node, Intersection):
        bounds = [lengths(operand) for operand in node.operands]
        most = [high for _, high in bounds if high is not None]
        return max((low for low, _ in bounds), default=0), min(most, default=None)
    return 0, None if isinstance(node, Complement) else 0


def bounded(node: Expression, minimum: int, maximum: int | None) -> Expression | None:
    """The strings of `node` of `minimum` to `maximum` code points, where bounds within it can say so; None otherwise.

    So ``[a-z]+`` of at most 64 is ``[a-z]{1,64}``. Where not, an intersection with ``.{minimum,maximum}`` does.
    """
    low, high = lengths(node)
    if low >= minimum and (maximum is None or (high is not None and high <= maximum)):
        return node
    if (high is not None and high < minimum) or (maximum is not None and low > maximum):
        return NOTHING
    if isinstance(node, Alternation):
        options = [bounded(option, minimum, maximum) for option in node.options]
        known = [option for option in options if option is not None]
        return one_of(known) if len(known) == len(options) else None
    if isinstance(node, Sequence):
        return _bounded_sequence(node, minimum, maximum)
    if isinstance(node, Repeat):
        if node.minimum == 0 and node.maximum == 1:
            inner = bounded(node.body, minimum, maximum)
            return inner if inner is None or minimum > 0 else one_of((EMPTY, inner))
        each, most = lengths(node.body)
        if each != most or each == 0:
            return None
        least = max(node.minimum, -(-minimum // each))
        upper = [bound for bound in (node.maximum, None if maximum is None else maximum // each) if bound is not None]
        greatest = min(upper, default=None)
        if greatest is not None and greatest < least:
            return NOTHING
        return EMPTY if greatest == 0 else Repeat(node.body, least, greatest, source=node.source)
    return None


def _bounded_sequence(node: Sequence, minimum: int, maximum: int | None) -> Expression | None:
    """As `bounded`: one part takes the bounds; where others have a few lengths each, there is an option for each."""
    ranges = [lengths(part) for part in node.parts]
    loose = [index for index, (low, high) in enumerate(ranges) if low != high]
    spread = {index: math.inf if high is None else high - low for index, (low, high) in enumerate(ranges)}
    widest = max(loose, key=spread.__getitem__)
    loose.remove(widest)
    if math.prod(spread[index] + 1 for index in loose) > _MOST_OPTIONS:
        return None
    options: list[Expression] = []
    for chosen in product(*(range(ranges[index][0], (ranges[index][1] or 0) + 1) for index in loose)):
        parts = list(node.parts)
        for index, length in zip(loose, chosen, strict=True):
            part = bounded(parts[index], length, length)
            if part is None:
                return None
            parts[index] = part
        if NOTHING in parts:
            continue
        others = sum(low for index, (low, _) in enumerate(ranges) if index != widest and index not in loose)
        others += sum(chosen)
        part = bounded(parts[widest], max(minimum - others, 0), None if maximum is None else maximum - others)
        if part is None:
            return None
        parts[widest] = part
        options.append(_joined(*parts))
    return one_of(options)


# Membership and emptiness


@lru_cache(maxsize=4096)
def is_empty(expression: Expression, limits: Limits = DEFAULT_LIMITS) -> bool:
    """Whether no string at all matches `expression`, which refers to no rules; exact.

    Raises `GrammarTooLarge` where the products and complements in it pass `limits`.
    """
    simplified = Simplifier({}, limits).simplify(expression)
    if simplified == NOTHING:
        return True
    if not contains(simplified, CLOSED):
        return False
    return closed_positions(simplified, limits).is_empty


class _Matcher:
    """Membership in a language: by its DFA, which is a list of rows of targets, or by sets of positions."""

    def __init__(self, expression: Expression, limits: Limits) -> None:
        positions = closed_positions(Simplifier({}, limits).simplify(expression), limits)
        dfa = determinize(positions, 256, _MATCHER_STATES, _MATCHER_WORK)
        self._columns, self._rows, self._edges = b"", [], []
        if dfa is not None:
            self._columns, self._rows = bytes(dfa.class_of.tolist()), dfa.delta.tolist()
            self._final = dfa.final.tolist()
        else:
            edges = list(zip(positions.low.tolist(), positions.high.tolist(), positions.target.tolist(), strict=True))
            self._edges = [edges[i:j] for i, j in pairwise(positions.edge_start.tolist())]
            self._final = positions.final.tolist()

    def accepts(self, text: bytes) -> bool:
        rows = self._rows
        if not rows:
            return self._accepts_by_sets(text)
        state = 0
        for column in text.translate(self._columns):
            state = rows[state][column]
            if state < 0:
                return False
        return bool(self._final[state])

    def _accepts_by_sets(self, text: bytes) -> bool:
        states = {0}
        for byte in text:
            states = {target for state in states for low, high, target in self._edges[state] if low <= byte <= high}
        return any(self._final[state] for state in states)


@lru_cache(maxsize=256)
def _matcher(expression: Expression, limits: Limits) -> _Matcher:
    return _Matcher(expression, limits)


def accepts(expression: Expression, text: str, limits: Limits = DEFAULT_LIMITS) -> bool:
    """Whether `text` is in the language of code points `expression`; a lone surrogate counts as a noncharacter."""
    if not is_text(text):
        text = SURROGATE.sub(_STAND_IN, text)
    return _matcher(expression, limits).accepts(text.encode())
