"""Texts some parts of which are special tokens: begins, ends and triggers of tags as the shapes of JSON write them.

A model whose vocabulary has ``<|call|>`` as a special token writes that token, which is no text. The shapes know
strings only, so that a reader has to be told which of them are tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from .expression import Expression, Sequence, Source, Token
from .json_fields import literal
from .triggers import text_without


class Markers:
    """Reads texts that hold special tokens, `names`; where two of them begin at one place, the longer is meant."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        if isinstance(names, str):
            raise TypeError("special_tokens is a list of names, not one string: write special_tokens=[...]")
        longest_first = sorted({name for name in names if name}, key=lambda name: (-len(name), name))
        self._found = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def pieces(self, text: str) -> list[tuple[str, bool]]:
        """The parts of `text`, none of them empty, and whether each is a special token."""
        parts: list[tuple[str, bool]] = []
        end = 0
        for found in self._found.finditer(text) if self._found else ():
            if found.start() > end:
                parts.append((text[end : found.start()], False))
            parts.append((found[0], True))
            end = found.end()
        return [*parts, (text[end:], False)] if end < len(text) else parts

    def stand_in(self, text: str) -> bool:
        """Whether a special token stands in `text`."""
        return self._found is not None and self._found.search(text) is not None

    def literal(self, text: str, place: str) -> Expression:
        """`text` itself, which stands at a JSON pointer. Raises `GrammarSyntaxError` for a lone surrogate."""
        if not self.stand_in(text):
            return literal(text, place)
        parts = tuple(
            Token(part, source=Source(part, place)) if is_token else literal(part, place)
            for part, is_token in self.pieces(text)
        )
        return parts[0] if len(parts) == 1 else Sequence(parts)

    def text_before(self, end: str, excluded: Iterable[str] = ()) -> Expression:
        """Texts that hold neither `end`, which follows them, nor any of `excluded`.

        Text holds no special token, and so no `end` that has one in it.
        """
        ends = [end] if end and not self.stand_in(end) else []
        return text_without([*ends, *excluded])

    def whole(self, begin: str, trigger: str) -> str:
        """`trigger`, with which `begin` begins, and the rest of the special token of `begin` within which it ends."""
        end = 0
        for part, is_token in self.pieces(begin):
            end += len(part)
            if end >= len(trigger):
                return begin[:end] if is_token else trigger
        return trigger
