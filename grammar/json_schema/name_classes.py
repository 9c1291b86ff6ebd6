"""Classes of names: those that some patterns match and others do not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ..errors import GrammarTooLarge
from ..expression import Alternation, Bytes, Characters, Complement, Expression, Intersection
from ..expression import Sequence as Joined
from ..limits import Limits
from .patterns import is_empty, pattern_content

#: Classes of one object's names, about 0.5 ms each.
MAX_CLASSES = 256


class NameClass(NamedTuple):
    """The names in which all patterns of `matched` are found and none of `unmatched`. Others cannot be or must be."""

    matched: frozenset[str] = frozenset()
    unmatched: frozenset[str] = frozenset()


def name_classes(patterns: Sequence[str], limits: Limits) -> list[NameClass] | None:
    """The classes that patterns (ECMA 262) sort names into; None where they are more than `MAX_CLASSES`.

    Every name is in one class, and some class may have no names. What pairs of patterns exclude or imply is left out,
    so that patterns of which no two match a name together, however many, are a class each and one for all other names.
    """
    found = [NameClass()]
    for pattern in patterns:
        grown: list[NameClass] = []
        for matched, unmatched in found:
            if any(_exclude_each_other(pattern, other, limits) for other in matched):
                grown.append(NameClass(matched, unmatched))
                continue
            # Names that one of the unmatched patterns must match are no names of this class.
            if not any(_implies(pattern, other, limits) for other in unmatched):
                left = frozenset(other for other in unmatched if not _exclude_each_other(pattern, other, limits))
                grown.append(NameClass(matched | {pattern}, left))
            if not any(_implies(other, pattern, limits) for other in matched):
                grown.append(NameClass(matched, unmatched | {pattern}))
        found = grown
        if len(found) > MAX_CLASSES:
            return None
    return found


@lru_cache(maxsize=4096)
def _exclude_each_other(left: str, right: str, limits: Limits) -> bool:
    """Whether no string matches both patterns."""
    first, second = pattern_content(left, limits), pattern_content(right, limits)
    if _differ(_beginning(first), _beginning(second)):
        return True
    return _is_empty(Intersection((first, second)), limits)


@lru_cache(maxsize=4096)
def _implies(left: str, right: str, limits: Limits) -> bool:
    """Whether every string that matches `left` matches `right`."""
    first, second = pattern_content(left, limits), pattern_content(right, limits)
    if _differ(_beginning(first), _beginning(second)):
        return _is_empty(first, limits)
    return _is_empty(Intersection((first, Complement(second))), limits)


def _is_empty(language: Expression, limits: Limits) -> bool:
    """Whether a language is empty, as far as that can be said within the limits."""
    try:
        return is_empty(language, limits)
    except GrammarTooLarge:
        return False


def _differ(left: bytes, right: bytes) -> bool:
    return not left.startswith(right) and not right.startswith(left)


def _beginning(node: Expression) -> bytes:
    """What all strings of a language begin with, as far as that is easily seen."""
    return _fixed(node)[0]


def _fixed(node: Expression) -> tuple[bytes, bool]:
    """What all strings of a language begin with, and whether that is all of it."""
    if isinstance(node, Bytes):
        return node.text, True
    if isinstance(node, Characters) and len(node.ranges) == 1 and node.ranges[0][0] == node.ranges[0][1]:
        return chr(node.ranges[0][0]).encode(), True
    if isinstance(node, Joined):
        text = b""
        for part in node.parts:
            more, whole = _fixed(part)
            text += more
            if not whole:
                return text, False
        return text, True
    if isinstance(node, Alternation) and node.options:
        common = _fixed(node.options[0])[0]
        for option in node.options[1:]:
            text = _fixed(option)[0]
            while not text.startswith(common):
                common = common[:-1]
        return common, False
    return b"", False
