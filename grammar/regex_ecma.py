r"""Patterns as ECMA 262 has them, for JSON Schema: the language of what a pattern matches somewhere in a text.

A pattern is read as ``new RegExp(pattern, "u")`` reads it, by code points (ECMA 262, 16th edition, section 22.2).
Where that is a syntax error, but all flavours of regex agree on what is meant, that is taken: ``\-`` and other escaped
punctuation, a brace or bracket that closes nothing, a hyphen beside a set as in ``[\w-.]`` (all of these are in annex
B.1.2), ``(?P<name>...)``, and the flags i and s as in ``(?i)``. All else is refused.
"""

from __future__ import annotations

import re
from functools import cache

from .expression import ALL_CODE_POINTS, Characters, Expression, Ranges, Source
from .limits import Limits, checked_limits
from .ranges import negate, normalise, subtract, union
from .regex import PatternParser
from .regex_syntax import (
    DOTALL,
    IGNORE_CASE,
    UNICODE,
    CharacterSet,
    read_escape,
    syntax_error,
    unsupported,
)  # fmt: skip
from .unicode import fold, property_ranges, shorthand

#: What ``.`` matches: all but LineTerminator.
_DOT = subtract(ALL_CODE_POINTS, ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)))
#: Escaped letters and digits that ECMA 262 knows in patterns with the flag u; the rest is refused.
_LETTERS = frozenset("dDwWsSbBfnrtv0cxupPk123456789")
_ADVICE = {
    "A": "write ^ for the start of the text",
    "z": "write $ for the end of the text",
    "Z": "write $ for the end of the text",
    "a": "write \\x07 for the bell, or a for the letter",
    "e": "write \\x1B for escape, or e for the letter",
    "U": "write \\u{...}",
    "h": "write [\\t\\p{Zs}]",
    "R": "write (?:\\r\\n|[\\n\\v\\f\\r\\x85\\u2028\\u2029])",
}
_FLAGS = re.compile(r"\(\?([A-Za-z-]+)")
_POSIX = re.compile(r"\[:\^?[A-Za-z]+:\]")
_SURROGATES = range(0xD800, 0xE000)


@cache
def _space() -> Ranges:
    """WhiteSpace and LineTerminator.

    They are the spaces of Unicode (Zs), tab, line feed, vertical tab, form feed, carriage return, the line and
    paragraph separators, and the byte order mark.
    """
    return union(property_ranges("Zs") or (), ((0x09, 0x0D), (0x2028, 0x2029), (0xFEFF, 0xFEFF)))


def ecma_pattern(pattern: str, limits: Limits | None = None) -> Expression:
    """The expression of one match of `pattern`, its anchors and lookaheads left in it.

    Raises `GrammarSyntaxError` for what is no pattern, `GrammarUnsupported` for back-references, lookbehind and word
    boundaries, `GrammarTooLarge` past `limits.max_repeat` or `limits.max_depth`; each names the column.
    """
    try:
        pattern.encode()
    except UnicodeEncodeError as error:
        message = "the pattern holds a lone surrogate, which is not a character; write \\u{...}"
        raise syntax_error(message, error.start) from None
    return EcmaParser(pattern, UNICODE, checked_limits(limits)).parse()


class EcmaParser(PatternParser):
    """The parser of one pattern of ECMA 262."""

    def __init__(self, pattern: str, flags: int, limits: Limits) -> None:
        super().__init__(pattern, flags, limits)
        shown = pattern if len(pattern) <= 40 else pattern[:37] + "..."
        self._of_pattern = f" of pattern {shown!r}"

    def source(self, start: int, end: int) -> Source:
        return Source(self.pattern[start:end], f"column {start + 1}{self._of_pattern}")

    def special(self, character: str, position: int) -> int:
        if character == ".":
            ranges = ALL_CODE_POINTS if self.flags & DOTALL else _DOT
            self.add(Characters(ranges, source=self.source(position, position + 1)), position)
            return position + 1
        if character == "[":
            ranges, end = _read_class(self.pattern, position, bool(self.flags & IGNORE_CASE))
            self.add(Characters(ranges, source=self.source(position, end)), position)
            return end
        return super().special(character, position)

    def escape(self, position: int) -> int:
        value, end = _read_escape(self.pattern, position, in_class=False)
        if not isinstance(value, CharacterSet):
            if value not in _SURROGATES:
                self.add_character(chr(value), position, end)
                return end
            value = CharacterSet((), False)  # a code point that no text of Unicode characters holds
        ranges = value.ranges
        if value.folds and self.flags & IGNORE_CASE:
            ranges = fold(ranges)
        self.add(Characters(ranges, source=self.source(position, end)), position)
        return end

    def quantifier(self, character: str, position: int) -> int:
        if self.pattern.startswith("{,", position) and self.pattern[position + 2 :].lstrip("0123456789")[:1] == "}":
            raise unsupported(
                "{,...} is a bound in some flavours and literal text in ECMA 262; write {0,...}", position
            )
        # Not what is in a group: its item begins with the parenthesis.
        if not self.literal and self.group.items and self.pattern[self.item_start] in "^$":
            raise syntax_error("an anchor cannot be repeated; leave the quantifier out", position)
        return super().quantifier(character, position)

    def inline_flags(self, position: int) -> int:
        written = _FLAGS.match(self.pattern, position)
        if written is not None and not set(written[1]) <= set("ims-"):
            raise unsupported(f"the flags {written[1]} are not supported; i and s are", position)
        return super().inline_flags(position)


def _read_escape(pattern: str, start: int, in_class: bool) -> tuple[int | CharacterSet, int]:
    letter = pattern[start + 1 : start + 2]
    if letter.isascii() and letter.isalnum():
        if letter in "sS":
            return CharacterSet(_space() if letter == "s" else negate(_space()), False), start + 2
        if letter in "dDwW":
            return CharacterSet(shorthand(letter, unicode=False), False), start + 2
        if letter not in _LETTERS:
            advice = _ADVICE.get(letter, f"write {letter} for the letter itself")
            raise unsupported(f"\\{letter} is no escape of ECMA 262; {advice}", start)
        if letter in "xpP" and pattern.startswith("{", start + 2) != (letter != "x"):
            braces = "two hexadecimal digits" if letter == "x" else "braces, as in \\p{L}"
            raise syntax_error(f"\\{letter} needs {braces}", start)
        if letter == "u":
            lone = _lone_surrogate(pattern, start)
            if lone is not None:
                return lone
    return read_escape(pattern, start, True, in_class)


def _lone_surrogate(pattern: str, start: int) -> tuple[int, int] | None:
    r"""The surrogate that ``\uD800`` to ``\uDFFF`` at `start` names where it is not the first half of a pair."""
    end = start + 6
    if pattern.startswith("{", start + 2):
        end = pattern.find("}", start) + 1
    digits = pattern[start + 2 : end].strip("{}")
    try:
        value = int(digits, 16)
    except ValueError:
        return None
    if value not in _SURROGATES:
        return None
    following = pattern[end : end + 6].lower()
    if end == start + 6 and value < 0xDC00 and following[:3] == "\\ud" and following[3:4] in tuple("cdef"):
        return None
    return value, end


def _read_class(pattern: str, start: int, ignore_case: bool) -> tuple[Ranges, int]:
    """The code points of the character class whose ``[`` is at `start`, and where it ends."""
    position = start + 1
    negated = pattern.startswith("^", position)
    if negated:
        position += 1
    pairs: list[tuple[int, int]] = []
    folding: list[Ranges] = []
    fixed: list[Ranges] = []
    while not pattern.startswith("]", position):
        if position >= len(pattern):
            raise syntax_error("the character class is not closed; add ], or write \\[ for a bracket", start)
        item = position
        low, position = _read_item(pattern, position)
        if pattern.startswith("-", position) and position + 1 < len(pattern) and pattern[position + 1] != "]":
            high, end = _read_item(pattern, position + 1)
            if not isinstance(low, CharacterSet) and not isinstance(high, CharacterSet):
                if high < low:
                    raise syntax_error(f"the range {pattern[item:end]} is in the wrong order", item)
                pairs.append((low, high))
                position = end
                continue
            # A hyphen beside a set, as in [\w-.], is a hyphen, and what comes behind it begins no range.
            pairs.append((0x2D, 0x2D))
            position = end
            for value in (low, high):
                if isinstance(value, CharacterSet):
                    (folding if value.folds else fixed).append(value.ranges)
                else:
                    pairs.append((value, value))
            continue
        if isinstance(low, CharacterSet):
            (folding if low.folds else fixed).append(low.ranges)
        else:
            pairs.append((low, low))
    ranges = union(normalise(pairs), *folding)
    if ignore_case:
        ranges = fold(ranges)
    ranges = union(ranges, *fixed) if fixed else ranges
    return negate(ranges) if negated else ranges, position + 1


def _read_item(pattern: str, position: int) -> tuple[int | CharacterSet, int]:
    if pattern[position] == "\\":
        return _read_escape(pattern, position, in_class=True)
    if _POSIX.match(pattern, position):
        raise unsupported("POSIX classes such as [:alpha:] are not in ECMA 262; write the characters", position)
    return ord(pattern[position]), position + 1
