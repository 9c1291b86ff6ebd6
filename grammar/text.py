"""Is every string of a grammar valid UTF-8? Where it is, tokens that are no text need no look."""

from __future__ import annotations

from .expression import Bytes, Expression, Grammar


def matches_text_only(grammar: Grammar) -> bool:
    """True if all literal bytes are valid UTF-8 each by itself, so that all strings are. May be False for others."""
    work: list[object] = list(grammar.rules.values())
    while work:
        item = work.pop()
        if isinstance(item, Bytes):
            try:
                item.text.decode()
            except UnicodeDecodeError:
                return False
        elif isinstance(item, Expression):
            work.extend(value for value in vars(item).values() if isinstance(value, (Expression, tuple)))
        elif isinstance(item, tuple) and item and isinstance(item[0], Expression):
            work.extend(item)
    return True
