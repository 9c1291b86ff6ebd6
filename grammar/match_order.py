r"""Patterns whose choices are tried in order, as Python's `re` tries them, and which of them the order matters to.

`re.match` does not look for the longest match: of all ways through the pattern it takes the first that succeeds.
``a|ab`` never matches ``ab``, and ``".*?"`` ends at the first quote. The strings whose first match is the whole string
are a regular language too. For most patterns it is the language that the pattern has whatever the order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .expression import (
    Alternation,
    Bytes,
    Characters,
    EndAnchor,
    Expression,
    Lookahead,
    Ranges,
    Repeat,
    Sequence,
    StartAnchor,
)
from .ranges import contains, intersect, union


@dataclass(frozen=True)
class LazyRepeat(Repeat):
    """A repeat that prefers few."""


@dataclass(frozen=True)
class Lookbehind(Expression):
    """Empty; holds where what comes before ends with a match of `operand` (or does not)."""

    operand: Expression
    negative: bool


#: Expressions that match the empty string or nothing, as what is around them decides.
ASSERTIONS = (Lookahead, Lookbehind, StartAnchor, EndAnchor)


def may_be_empty(node: Expression) -> bool:
    """Whether a way through `node` takes no character."""
    if isinstance(node, Bytes):
        return not node.text
    if isinstance(node, Sequence):
        return all(map(may_be_empty, node.parts))
    if isinstance(node, Alternation):
        return any(map(may_be_empty, node.options))
    if isinstance(node, Repeat):
        return node.minimum == 0 or may_be_empty(node.body)
    return isinstance(node, ASSERTIONS)


def without_order(node: Expression) -> Expression:
    """The same with every repeat a plain one."""
    if isinstance(node, Sequence):
        return replace(node, parts=tuple(map(without_order, node.parts)))
    if isinstance(node, Alternation):
        return replace(node, options=tuple(map(without_order, node.options)))
    if isinstance(node, Repeat):
        return Repeat(without_order(node.body), node.minimum, node.maximum, source=node.source)
    return node


def prefers_longest(node: Expression) -> bool:
    """Whether it is plain to see that the first match of `node` is the longest one, and so every match a first one.

    It is where the next character alone decides on the way to go on (Brüggemann-Klein and Wood, "One-unambiguous
    regular languages", 1998), and going on is tried before ending: repeats are greedy, and only the last of several
    options may be empty. False also where that is not clear.
    """
    return _deterministic(node, ())


def _deterministic(node: Expression, following: Ranges) -> bool:
    """The same for `node` within a pattern where the characters `following` may come after it."""
    if isinstance(node, ASSERTIONS) or (isinstance(node, LazyRepeat) and node.minimum != node.maximum):
        return False
    if isinstance(node, Sequence):
        for part in reversed(node.parts):
            if not _deterministic(part, following):
                return False
            following = union(first_characters(part), following) if may_be_empty(part) else first_characters(part)
        return True
    if isinstance(node, Alternation) and all(isinstance(option, Bytes) and option.text for option in node.options):
        return _longer_first([option.text.decode() for option in node.options if isinstance(option, Bytes)], following)
    if isinstance(node, Alternation):
        seen = following if any(map(may_be_empty, node.options)) else ()
        for option in node.options:
            first = first_characters(option)
            if intersect(first, seen) or not _deterministic(option, following):
                return False
            seen = union(seen, first)
        return not any(map(may_be_empty, node.options[:-1]))
    if isinstance(node, Repeat):
        first = first_characters(node.body)
        if may_be_empty(node.body) or (node.minimum != node.maximum and intersect(first, following)):
            return False
        return _deterministic(node.body, union(first, following) if node.maximum != 1 else following)
    return True


def _longer_first(words: list[str], following: Ranges) -> bool:
    """Whether of any two words, one of which begins with the other, the longer one is tried first, and the next
    character tells them apart."""
    number = {word: i for i, word in reversed(list(enumerate(words)))}
    for word, i in number.items():
        for length in range(1, len(word)):
            shorter = number.get(word[:length])
            if shorter is not None and (shorter < i or contains(following, ord(word[length]))):
                return False
    return True


def first_words(node: Alternation) -> Alternation | None:
    """The options of `node` that begin with none tried earlier, if all are plain strings."""
    kept: list[Expression] = []
    known: set[bytes] = set()
    for option in node.options:
        if not isinstance(option, Bytes):
            return None
        if not any(option.text[:length] in known for length in range(len(option.text) + 1)):
            known.add(option.text)
            kept.append(option)
    return replace(node, options=tuple(kept))


def first_characters(node: Expression) -> Ranges:
    """The characters that a string of `node` may begin with."""
    if isinstance(node, Bytes):
        code_points = [ord(character) for character in node.text.decode()[:1]]
        return tuple((code_point, code_point) for code_point in code_points)
    if isinstance(node, Characters):
        return node.ranges
    if isinstance(node, Sequence):
        first: Ranges = ()
        for part in node.parts:
            first = union(first, first_characters(part))
            if not may_be_empty(part):
                break
        return first
    if isinstance(node, Alternation):
        return union(*map(first_characters, node.options))
    if isinstance(node, Repeat) and node.maximum != 0:
        return first_characters(node.body)
    return ()
