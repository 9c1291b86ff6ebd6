r"""The pieces of regex syntax that stand for themselves: escapes, classes, flags, and what is refused by name.

Positions are indices into the pattern; places in messages are 1-based columns.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .errors import GrammarSyntaxError, GrammarUnsupported
from .expression import Ranges
from .ranges import negate, normalise, union
from .unicode import POSIX_CLASSES, fold, property_ranges, shorthand, similar_properties


class CharacterSet(NamedTuple):
    """A set out of an escape. Shorthands do not fold: Python's ``\\W`` is not widened by ``(?i)``."""

    ranges: Ranges
    folds: bool


# Flags, as bits.
UNICODE, IGNORE_CASE, DOTALL, VERBOSE = 1, 2, 4, 8
_FLAG_LETTERS = {"i": IGNORE_CASE, "s": DOTALL, "x": VERBOSE}
_FLAGS = re.compile(r"\(\?([A-Za-z]*)(?:-([A-Za-z]*))?([:)])")

_SIMPLE = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11, "a": 7, "e": 27}
_HEXADECIMAL = re.compile(r"\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]*)")
_DIGITS = {"x": 2, "u": 4, "U": 8}
_LOW_SURROGATE = re.compile(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})")
_POSIX = re.compile(r"\[:(\^?)([A-Za-z]*):\]")
_NOT_REMEMBERED = "is not supported: what a group matched is not remembered; repeat the sub-pattern itself"
_NOT_RECURSIVE = "is not supported in a regex; use a GBNF or Lark grammar"
_UNSUPPORTED = {
    "b": r"the word boundary \b is not supported; spell out what may stand on each side, or use a lookahead",
    "B": r"the non-boundary \B is not supported; spell out what may stand on each side, or use a lookahead",
    "G": r"\G (the end of the previous match) is not supported; a text is matched once, so leave it out",
    "K": r"\K (keep out) is not supported; the language is the same without it, so leave it out",
    "R": r"\R (any line break) is not supported; write (?:\r\n|[\n\v\f\r\u0085\u2028\u2029])",
    "X": r"\X (a grapheme cluster) is not supported; write (?:.\p{M}*) or what you need of it",
    "C": r"\C (a single byte) is not supported; patterns are about characters",
    "N": r"\N is not supported; write the character itself or \u{...}, or [^\n] for all but a newline",
    "h": r"\h (horizontal space) is not supported; write [\t\p{Zs}]",
    "H": r"\H (no horizontal space) is not supported; write [^\t\p{Zs}]",
    "V": r"\V (no vertical space) is not supported; write [^\n\v\f\r\u0085\u2028\u2029]",
    "Q": r"\Q...\E quoting is not supported; escape each special character",
    "E": r"\Q...\E quoting is not supported; escape each special character",
    "g": r"the back-reference or call \g is not supported; repeat the sub-pattern itself",
    "k": rf"the back-reference \k {_NOT_REMEMBERED}",
}
_UNSUPPORTED_GROUPS = (
    ("(?<=", "lookbehind (?<=...) is not supported; say what comes before in the pattern itself"),
    ("(?<!", "negative lookbehind (?<!...) is not supported; say what comes before in the pattern itself"),
    ("(?>", "atomic groups (?>...) are not supported: they depend on the order of matching; write (?:...)"),
    ("(?P=", f"the back-reference (?P=...) {_NOT_REMEMBERED}"),
    ("(?P>", f"recursion (?P>...) {_NOT_RECURSIVE}"),
    ("(?&", f"recursion (?&...) {_NOT_RECURSIVE}"),
    ("(?R", f"recursion (?R) {_NOT_RECURSIVE}"),
    ("(?(", "conditionals (?(...)...|...) are not supported; write both cases as alternatives"),
    ("(?|", "branch reset groups (?|...) are not supported; write (?:...)"),
)
_SET_OPERATIONS = {
    "--": "the class difference -- is not supported; write the remaining ranges, or \\- for a hyphen",
    "&&": "the class intersection && is not supported; write the common ranges, or \\& for an ampersand",
}
_RECURSION = re.compile(r"\(\?[+-]?[0-9]")


def syntax_error(message: str, position: int) -> GrammarSyntaxError:
    """The error to raise for what is no pattern at this position."""
    return GrammarSyntaxError(message, f"column {position + 1}")


def unsupported(message: str, position: int) -> GrammarUnsupported:
    """The error to raise for a known construct at this position that is not enforced."""
    return GrammarUnsupported(message, f"column {position + 1}")


def refuse_group(pattern: str, start: int) -> None:
    """Raise `GrammarUnsupported` where the group at `start` is of a known kind that is not enforced."""
    for prefix, message in _UNSUPPORTED_GROUPS:
        if pattern.startswith(prefix, start):
            raise unsupported(message, start)
    if _RECURSION.match(pattern, start):
        raise unsupported(f"recursion by number {_NOT_RECURSIVE}", start)


def read_escape(pattern: str, start: int, unicode: bool, in_class: bool) -> tuple[int | CharacterSet, int]:
    """The code point or set that the escape at `start` means, and where it ends. Anchors are not for this function."""
    if start + 1 >= len(pattern):
        raise syntax_error("a backslash at the end of the pattern; write \\\\ for a backslash", start)
    letter = pattern[start + 1]
    end = start + 2
    if not letter.isascii() or not letter.isalnum():
        return ord(letter), end
    if letter in _SIMPLE:
        return _SIMPLE[letter], end
    if letter in "dDwWsS":
        return CharacterSet(shorthand(letter, unicode), False), end
    if letter in "xuU":
        return _read_code(pattern, start, letter)
    if letter in "pP":
        return _read_property(pattern, start)
    if letter.isdigit():
        return _read_digit(pattern, start, in_class)
    if letter == "c":
        control = pattern[end : end + 1]
        if not (control.isascii() and control.isalpha()):
            raise syntax_error("\\c must be followed by an ASCII letter, as in \\cM", start)
        return ord(control) & 31, end + 1
    if in_class:
        if letter == "b":
            return 8, end
    elif letter in _UNSUPPORTED:
        raise unsupported(_UNSUPPORTED[letter], start)
    where = " in a character class" if in_class else ""
    raise syntax_error(f"unknown escape \\{letter}{where}; write {letter} for the letter itself", start)


def _read_digit(pattern: str, start: int, in_class: bool) -> tuple[int, int]:
    if pattern[start + 1] != "0":
        if in_class:
            raise syntax_error("octal escapes other than \\0 are not known; write \\xNN", start)
        number = pattern[start + 1 : start + 3]
        number = number if number.isdigit() else number[0]
        raise unsupported(f"the back-reference \\{number} {_NOT_REMEMBERED}", start)
    following = pattern[start + 2 : start + 3]
    if following.isascii() and following.isdigit():
        raise syntax_error("octal escapes other than \\0 are not known; write \\xNN", start)
    return 0, start + 2


def _read_code(pattern: str, start: int, letter: str) -> tuple[int, int]:
    r"""``\xNN``, ``\x{N...}``, ``\uNNNN``, ``\u{N...}``, ``\UNNNNNNNN``; two ``\u`` surrogates are one character."""
    match = _HEXADECIMAL.match(pattern, start + 2)
    assert match is not None
    braced, digits = match.groups()
    if braced is not None and letter != "U":
        value, end = int(braced, 16), match.end()
    else:
        wanted = _DIGITS[letter]
        if digits is None or len(digits) < wanted:
            other = "" if letter == "U" else f", or \\{letter}{{...}}"
            raise syntax_error(f"\\{letter} needs {wanted} hexadecimal digits{other}", start)
        value, end = int(digits[:wanted], 16), start + 2 + wanted
    if 0xD800 <= value <= 0xDBFF and letter == "u" and braced is None:
        low = _LOW_SURROGATE.match(pattern, end)
        if low is not None:
            return 0x10000 + (value - 0xD800 << 10) + (int(low[1], 16) - 0xDC00), low.end()
    if value > 0x10FFFF:
        raise syntax_error(f"{pattern[start:end]} is past the last code point, 10FFFF", start)
    if 0xD800 <= value <= 0xDFFF:
        advice = "write a pair, as in \\uD83D\\uDE00, or \\u{1F600}"
        raise syntax_error(f"{pattern[start:end]} is a lone surrogate, which is not a character; {advice}", start)
    return value, end


def _read_property(pattern: str, start: int) -> tuple[CharacterSet, int]:
    if pattern.startswith("{", start + 2):
        close = pattern.find("}", start + 3)
        if close < 0:
            raise syntax_error(f"\\{pattern[start + 1]}{{ is not closed by }}", start)
        name, end = pattern[start + 3 : close], close + 1
    else:
        name, end = pattern[start + 2 : start + 3], start + 3
        if not name:
            raise syntax_error(f"\\{pattern[start + 1]} needs a property, as in \\p{{L}}", start)
    ranges = property_ranges(name)
    if ranges is None:
        similar = similar_properties(name)
        advice = (
            f"did you mean {' or '.join(similar)}?" if similar else "general categories, scripts and blocks are known"
        )
        raise syntax_error(f"unknown character property {name!r}; {advice}", start)
    return CharacterSet(negate(ranges) if pattern[start + 1] == "P" else ranges, True), end


def read_flags(pattern: str, start: int, flags: int, multiline: bool = False) -> tuple[int, bool, int]:
    """Read the ``(?i-s)`` or ``(?i-s:`` at `start`, inside `flags`: the new flags, whether a group begins, the end.

    With `multiline` the flag m is read and has no effect, as is right where there are no anchors.
    """
    match = _FLAGS.match(pattern, start)
    if match is None:
        raise syntax_error("unknown kind of group; write (?:...), or \\( for a parenthesis", start)
    on, off, close = match.groups(default="")
    if not on and not off:
        raise syntax_error("a group with no flags to set; write (?:...)", start)
    for letter in on + off:
        if letter == "m" and not multiline:
            advice = "write (?:^|\\n) and (?:$|\\n)"
            raise unsupported(f"the flag m (anchors at each line) is not supported; {advice}", start)
        if letter == "L":
            raise unsupported("the flag L (locale) is not supported; leave it out", start)
    for letter in on:
        if letter in "au":
            flags = flags & ~UNICODE | UNICODE * (letter == "u")
        elif letter in _FLAG_LETTERS:
            flags |= _FLAG_LETTERS[letter]
        elif letter != "m":
            raise syntax_error(f"unknown flag {letter}; known are a, i, s, u and x", start)
    for letter in off:
        if letter not in _FLAG_LETTERS and letter != "m":
            raise syntax_error(f"the flag {letter} cannot be turned off; i, s and x can", start)
        flags &= ~_FLAG_LETTERS.get(letter, 0)
    return flags, close == ":", match.end()


def read_class(pattern: str, start: int, unicode: bool, ignore_case: bool) -> tuple[Ranges, int]:
    """The code points of the character class whose ``[`` is at `start`, and where it ends."""
    position = start + 1
    negated = pattern.startswith("^", position)
    if negated:
        position += 1
    first = position
    pairs: list[tuple[int, int]] = []
    folding: list[Ranges] = []
    fixed: list[Ranges] = []
    while True:
        if position >= len(pattern):
            raise syntax_error("the character class is not closed; add ], or write \\[ for a bracket", start)
        if pattern[position] == "]" and position != first:
            break
        item = position
        low, position = _read_item(pattern, position, first, unicode)
        if pattern.startswith("-", position) and position + 1 < len(pattern) and pattern[position + 1] != "]":
            _refuse_set_operation(pattern, position)
            if not isinstance(low, CharacterSet):
                high, end = _read_item(pattern, position + 1, first, unicode)
                if not isinstance(high, CharacterSet):
                    if high < low:
                        raise syntax_error(f"the range {pattern[item:end]} is in the wrong order", item)
                    pairs.append((low, high))
                    position = end
                    continue
            # A hyphen beside a set, as in [\w-.], is a hyphen: it cannot be anything else.
            pairs.append((0x2D, 0x2D))
            position += 1
        if isinstance(low, CharacterSet):
            (folding if low.folds else fixed).append(low.ranges)
        else:
            pairs.append((low, low))
    ranges = union(normalise(pairs), *folding)
    if ignore_case:
        ranges = fold(ranges, unicode)
    if fixed:
        ranges = union(ranges, *fixed)
    return negate(ranges) if negated else ranges, position + 1


def _read_item(pattern: str, position: int, first: int, unicode: bool) -> tuple[int | CharacterSet, int]:
    character = pattern[position]
    if character == "\\":
        return read_escape(pattern, position, unicode, in_class=True)
    if character == "[" and pattern.startswith("[:", position):
        posix = _POSIX.match(pattern, position)
        if posix is not None:
            ranges = POSIX_CLASSES.get(posix[2].lower())
            if ranges is None:
                raise syntax_error(f"unknown POSIX class {posix[0]}; known are {', '.join(POSIX_CLASSES)}", position)
            return CharacterSet(negate(ranges) if posix[1] else ranges, True), posix.end()
    if position != first and character in "&-":
        _refuse_set_operation(pattern, position)
    return ord(character), position + 1


def _refuse_set_operation(pattern: str, position: int) -> None:
    """Raise where Unicode sets have an operation: ``&&`` or ``--`` inside a class, with something on both sides."""
    operator = pattern[position : position + 2]
    if operator in _SET_OPERATIONS and not pattern.startswith("]", position + 2):
        raise unsupported(_SET_OPERATIONS[operator], position)
