"""Is every string of a grammar valid UTF-8? Where it is, tokens that are no text need no look."""

from __future__ import annotations

from collections.abc import Iterable

from .expression import Bytes, Expression, Grammar


def is_utf8(text: bytes) -> bool:
    """Whether these bytes are valid UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def matches_text_only(grammar: Grammar) -> bool:
    """True if all literal bytes are valid UTF-8 each by itself, so that all strings are. May be False for others."""
    return _are_text(grammar.rules.values())


def expression_is_text(node: Expression) -> bool:
    """The same of one expression, references not followed."""
    return _are_text((node,))


def _are_text(nodes: Iterable[Expression]) -> bool:
    work: list[object] = list(nodes)
    while work:
        item = work.pop()
        if isinstance(item, Bytes):
            if not is_utf8(item.text):
                return False
        elif isinstance(item, Expression):
            work.extend(value for value in vars(item).values() if isinstance(value, (Expression, tuple)))
        elif isinstance(item, tuple) and item and isinstance(item[0], Expression):
            work.extend(item)
    return True
