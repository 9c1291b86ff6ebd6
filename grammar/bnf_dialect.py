"""What a dialect of ``name ::= alternatives`` brings, and places in a grammar's text."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from string import hexdigits
from typing import TYPE_CHECKING, TypeAlias

from .errors import GrammarSyntaxError, GrammarUnsupported
from .expression import Expression, Source

if TYPE_CHECKING:
    import lark

    Tree: TypeAlias = lark.Tree[lark.Token]

_LINE_END = re.compile(r"\r\n|\r|\n")


class GrammarText:
    """The text of a grammar: places in it, and errors at them. Offsets count characters from 0."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = [0, *(end.end() for end in _LINE_END.finditer(text))]

    def place(self, offset: int) -> str:
        line = bisect_right(self._lines, offset)
        return f"line {line}:{offset - self._lines[line - 1] + 1}"

    def source(self, start: int, end: int) -> Source:
        return Source(self.text[start:end], self.place(start))

    def begins_line(self, offset: int) -> bool:
        """Whether only blanks stand before `offset` in its line."""
        start = self._lines[bisect_right(self._lines, offset) - 1]
        return not self.text[start:offset].strip()

    def wrong(self, message: str, offset: int) -> GrammarSyntaxError:
        return GrammarSyntaxError(message, self.place(offset))

    def unsupported(self, message: str, offset: int) -> GrammarUnsupported:
        return GrammarUnsupported(message, self.place(offset))

    def token_id(self, digits: str, offset: int) -> int:
        if len(digits.lstrip("0")) > 18:
            raise self.wrong(f"{digits[:17]}... is no token id", offset)
        return int(digits)


class Dialect:
    """What a front end brings. Its lark grammar names its rules and terminals as `bnf_tree` reads them."""

    kind: str
    #: For lark.
    grammar: str
    #: Whether a rule may be defined again; the last definition holds.
    redefines: bool
    #: Letters after a backslash that stand for one character, and how many hexadecimal digits (0: any) follow others.
    escapes: Mapping[str, int]
    hexadecimal: Mapping[str, int]

    def line_ends(self, tokens: Iterator[lark.Token]) -> Iterator[lark.Token]:
        """`tokens` without those line ends that mean nothing."""
        return tokens

    def read_escape(self, where: GrammarText, position: int, in_class: bool) -> tuple[int, int]:
        """The code point of the escape at `position`, which holds a backslash, and where the escape ends."""
        letter = where.text[position + 1]
        if letter in self.escapes:
            return self.escapes[letter], position + 2
        if letter not in self.hexadecimal:
            raise where.wrong(f"unknown escape \\{letter}", position)
        count = self.hexadecimal[letter]
        end = position + 2
        while end < len(where.text) and where.text[end] in hexdigits and (not count or end < position + 2 + count):
            end += 1
        digits = where.text[position + 2 : end]
        if len(digits) < (count or 1):
            raise where.wrong(f"\\{letter} takes {count or 'some'} hexadecimal digits", position)
        if len(digits.lstrip("0")) > 6 or int(digits, 16) > 0x10FFFF:
            raise where.wrong(f"\\{letter}{digits} is no character: the last one is \\U0010FFFF", position)
        return int(digits, 16), end

    def check_empty_class(self, where: GrammarText, start: int, negated: bool) -> None:
        """Refuse ``[]`` or ``[^]`` at `start` where this dialect does not take it."""

    def check_rule(self, where: GrammarText, rule: Tree) -> None:
        """Refuse what stands beside the alternatives of a rule and is not enforced."""

    def atom(self, where: GrammarText, token: lark.Token, source: Source) -> Expression:
        """The meaning of a token that only this dialect has."""
        raise NotImplementedError(token.type)

    def construct(self, where: GrammarText, part: Tree, source: Source) -> Expression:
        """The meaning of a part of the tree that only this dialect has."""
        raise NotImplementedError(part.data)

    def explain_character(self, character: str) -> str | None:
        """What to write instead of a character that begins nothing."""
        return None

    def explain(self, token: lark.Token, previous: str, expected: set[str]) -> str | None:
        """What is wrong with `token` after one of type `previous` (or ""); None for the usual message."""
        return None


def describe(token: lark.Token) -> str:
    """`token` as a message calls it."""
    return {"$END": "end of the grammar", "_NEWLINE": "end of the line"}.get(token.type, repr(str(token)))
