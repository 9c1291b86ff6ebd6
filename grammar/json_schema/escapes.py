r"""How a JSON text writes the code points of a string: escaping as a substitution on languages of code points.

A language of code points becomes that of its spellings by putting, for each code point, the choice of what it may be
written as. The spellings of all code points together are a prefix code: no spelling begins with another one, and a
text is read in one way only. So the substitution commutes with everything that expressions are made of, lookaheads
and intersections among them, and with complements within the texts that are spellings at all.

*Canonical* spelling has one form for each code point, that of ``JSON.stringify`` and of ``json.dumps`` without its
`ensure_ascii`: raw, but ``\" \\ \b \f \n \r \t``, and ``\u00xx`` with lower-case digits for the other controls (RFC
8259, section 7).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from json.encoder import encode_basestring
from typing import Literal

from ..expression import (
    ALL_CODE_POINTS,
    ANY_CHARACTER,
    EMPTY,
    NOTHING,
    Alternation,
    Bytes,
    Characters,
    Complement,
    Expression,
    Intersection,
    Lookahead,
    Ranges,
    Repeat,
    Sequence,
)
from ..ranges import intersect, normalise, subtract

Escapes = Literal["canonical", "any"]

QUOTE = Bytes(b'"')
_CONTROLS: Ranges = ((0x00, 0x1F),)
#: Code points that have no raw form.
_ESCAPED: Ranges = (*_CONTROLS, (0x22, 0x22), (0x5C, 0x5C))
#: Code points that may stand for themselves.
RAW = subtract(ALL_CODE_POINTS, _ESCAPED)
#: Code point to the letter behind the backslash; the slash may be written so, and need not be.
_SHORT = {0x22: '"', 0x5C: "\\", 0x08: "b", 0x0C: "f", 0x0A: "n", 0x0D: "r", 0x09: "t"}
_SLASH = 0x2F
_BACKSLASH = Bytes(b"\\")
_HEXADECIMAL = tuple(f"{digit:x}" if digit < 10 else f"{digit:x}{digit:X}" for digit in range(16))

#: Places of a number written out: what stands before the digit, and how each value of the digit is written.
_Places = tuple[tuple[Expression, tuple[str, ...]], ...]


SURROGATE = re.compile("[\ud800-\udfff]")


def is_text(value: str) -> bool:
    """Whether `value` holds no lone surrogate."""
    return value.isascii() or SURROGATE.search(value) is None


def characters(letters: Iterable[str]) -> Characters:
    """Any one of these characters."""
    return Characters(normalise((ord(letter), ord(letter)) for letter in letters))


def one_of(options: Iterable[Expression]) -> Expression:
    """Any one of `options`, without those that match nothing."""
    filled = tuple(option for option in options if option != NOTHING)
    return filled[0] if len(filled) == 1 else Alternation(filled) if filled else NOTHING


_D = characters("dD")
_UNIT: _Places = tuple((EMPTY, _HEXADECIMAL) for _ in range(4))
_PAIR: _Places = (
    (_D, _HEXADECIMAL[0x8:0xC]),
    (EMPTY, _HEXADECIMAL),
    (EMPTY, _HEXADECIMAL),
    (Sequence((Bytes(b"\\u"), _D)), _HEXADECIMAL[0xC:]),
    (EMPTY, _HEXADECIMAL),
    (EMPTY, _HEXADECIMAL),
)


@lru_cache(maxsize=1024)
def _numbers(ranges: tuple[tuple[int, int], ...], places: _Places) -> Expression:
    """The numbers in `ranges`, each written with one digit a place."""
    if not places:
        return EMPTY
    size = 1
    for _, digits in places[1:]:
        size *= len(digits)
    rests: dict[tuple[tuple[int, int], ...], list[str]] = {}
    before, symbols = places[0]
    for digit, written in enumerate(symbols):
        base = digit * size
        rest = intersect(ranges, ((base, base + size - 1),))
        if rest:
            rests.setdefault(tuple((low - base, high - base) for low, high in rest), []).append(written)
    return one_of(
        Sequence((before, characters("".join(written)), _numbers(rest, places[1:]))) for rest, written in rests.items()
    )


@lru_cache(maxsize=1024)
def spelled_characters(ranges: Ranges, escapes: Escapes, allow_unicode_escapes: bool) -> Expression:
    """One code point of `ranges`, in each of its spellings."""
    raw = intersect(ranges, RAW)
    special = intersect(ranges, _ESCAPED)
    options: list[Expression] = [Characters(raw) if raw else NOTHING]
    escaped: list[Expression] = []
    slash: Ranges = ((_SLASH, _SLASH),) if escapes == "any" else ()
    letters = [_SHORT.get(point, "") for low, high in special for point in range(low, high + 1)]
    letters += ["/" for _ in intersect(ranges, slash)]
    if any(letters):
        escaped.append(characters("".join(letters)))
    if allow_unicode_escapes and escapes == "any":
        unit = _numbers(intersect(ranges, ((0, 0xFFFF),)), _UNIT)
        above = tuple((low - 0x10000, high - 0x10000) for low, high in intersect(ranges, ((0x10000, 0x10FFFF),)))
        written = one_of((unit, _numbers(above, _PAIR)))
        escaped.append(NOTHING if written == NOTHING else Sequence((Bytes(b"u"), written)))
    elif allow_unicode_escapes:
        controls = [f"{p:02x}" for low, high in special for p in range(low, high + 1) if p < 0x20 and p not in _SHORT]
        for first in "01":
            digits = [control[1] for control in controls if control[0] == first]
            if digits:
                escaped.append(Sequence((Bytes(b"u00" + first.encode()), characters(digits))))
    if any(option != NOTHING for option in escaped):
        options.append(Sequence((_BACKSLASH, one_of(escaped))))
    return one_of(options)


def content(escapes: Escapes, allow_unicode_escapes: bool) -> Repeat:
    """The contents of all strings of Unicode characters (code points that are no surrogates)."""
    return Repeat(spelled_characters(ALL_CODE_POINTS, escapes, allow_unicode_escapes), 0, None)


@cache
def plain_content(allow_unicode_escapes: bool) -> Repeat:
    r"""The contents of all strings whatever, as RFC 8259 has them: halves of surrogate pairs may be escaped too."""
    letters: Expression = characters('"/\\bfnrt')
    if allow_unicode_escapes:
        four = Repeat(characters("0123456789abcdefABCDEF"), 4, 4)
        letters = Alternation((letters, Sequence((Bytes(b"u"), four))))
    return Repeat(Alternation((Characters(RAW), Sequence((_BACKSLASH, letters)))), 0, None)


def canonical_text(value: str) -> bytes:
    r"""The canonical spelling of `value` with its quotes; lone surrogates, which have no raw form, as ``\udxxx``."""
    text: str = encode_basestring(value)  # as `json.dumps` has it, which makes an encoder for each text
    try:
        return text.encode()
    except UnicodeEncodeError:
        return "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text).encode()


def spelled_text(value: str, escapes: Escapes, allow_unicode_escapes: bool) -> Expression:
    """All spellings of `value` with its quotes; `NOTHING` where it has none."""
    if escapes == "canonical":
        text = canonical_text(value)
        # Behind an escaped backslash a `u` is a letter.
        if not allow_unicode_escapes and b"\\u" in text.replace(b"\\\\", b""):
            return NOTHING
        return Bytes(text)
    parts: list[Expression] = [QUOTE]
    for character in value:
        point = ord(character)
        if 0xD800 <= point <= 0xDFFF:
            unit = _numbers(((point, point),), _UNIT) if allow_unicode_escapes else NOTHING
            parts.append(NOTHING if unit == NOTHING else Sequence((Bytes(b"\\u"), unit)))
        else:
            parts.append(spelled_characters(((point, point),), escapes, allow_unicode_escapes))
        if parts[-1] == NOTHING:
            return NOTHING
    return Sequence((*parts, QUOTE))


class Speller:
    """Puts spellings into languages of code points; equal nodes are done once."""

    def __init__(self, escapes: Escapes = "canonical", allow_unicode_escapes: bool = True) -> None:
        self.escapes = escapes
        self.allow_unicode_escapes = allow_unicode_escapes
        self._done: dict[int, tuple[Expression, Expression]] = {}  # by identity; the key's object is kept alive

    def spell(self, node: Expression) -> Expression:
        """The spellings of `node`, which holds no references or tokens, and whose bytes are whole characters."""
        found = self._done.get(id(node))
        if found is None:
            found = self._done[id(node)] = (node, self._spelled(node))
        return found[1]

    def _spelled(self, node: Expression) -> Expression:
        source = node.source
        if isinstance(node, Characters):
            return spelled_characters(node.ranges, self.escapes, self.allow_unicode_escapes)
        if isinstance(node, Bytes):
            return self._literal(node)
        if isinstance(node, Sequence):
            return Sequence(tuple(self.spell(part) for part in node.parts), source=source)
        if isinstance(node, Alternation):
            return Alternation(tuple(self.spell(option) for option in node.options), source=source)
        if isinstance(node, Repeat):
            return Repeat(self.spell(node.body), node.minimum, node.maximum, source=source)
        if isinstance(node, Lookahead):
            return Lookahead(self.spell(node.operand), node.negative, source=source)
        if isinstance(node, Complement):
            return Intersection((self._complement(node), content(self.escapes, self.allow_unicode_escapes)))
        if isinstance(node, Intersection):
            return self._intersection(node)
        return node  # an anchor

    def _complement(self, node: Complement) -> Expression:
        return Complement(self.spell(node.operand), source=node.source)

    def _intersection(self, node: Intersection) -> Expression:
        # Where one operand holds nothing but spellings, the others need not be told what these are.
        positive = any(not isinstance(operand, Complement) for operand in node.operands)
        operands = [
            self._complement(operand) if isinstance(operand, Complement) else self.spell(operand)
            for operand in node.operands
        ]
        if not positive:
            operands.insert(0, content(self.escapes, self.allow_unicode_escapes))
        return Intersection(tuple(operands), source=node.source)

    def _literal(self, node: Bytes) -> Expression:
        text = node.text.decode()
        if self.escapes == "canonical":
            if all(character >= " " and character not in '"\\' for character in text):
                return node
            spelled = canonical_text(text)[1:-1]
            if self.allow_unicode_escapes or b"\\u" not in spelled.replace(b"\\\\", b""):
                return Bytes(spelled, source=node.source)
            return NOTHING
        pieces = (spelled_characters(((ord(c), ord(c)),), self.escapes, self.allow_unicode_escapes) for c in text)
        return Sequence(tuple(pieces), source=node.source)


#: Any string of Unicode characters, as a language of code points.
ANY_TEXT = Repeat(ANY_CHARACTER, 0, None)
