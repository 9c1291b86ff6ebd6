r"""Any JSON value, whatever is in it.

The syntax is RFC 8259's, to the letter: no control character stands raw in a string, the escapes are ``\" \\ \/ \b
\f \n \r \t`` and any ``\uXXXX`` (halves of surrogate pairs too), numbers have no leading zeros. Keys may repeat, as
RFC 8259 lets them.
"""

from __future__ import annotations

from typing import Literal

from .expression import (
    ALL_CODE_POINTS,
    EMPTY,
    Alternation,
    Bytes,
    Characters,
    Expression,
    Grammar,
    Reference,
    Repeat,
    Sequence,
)
from .ranges import subtract

#: The longest run of white space between two tokens, and of digits in a number, where none is given.
DEFAULT_MAX_WHITESPACE, DEFAULT_MAX_DIGITS = 64, 40

Whitespace = Literal["flexible", "single", "compact"]

_BLANKS = Characters(((0x09, 0x0A), (0x0D, 0x0D), (0x20, 0x20)))
_DIGIT = Characters(((0x30, 0x39),))
_HEXADECIMAL = Characters(((0x30, 0x39), (0x41, 0x46), (0x61, 0x66)))
_UNESCAPED = Characters(subtract(ALL_CODE_POINTS, ((0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C))))
_ESCAPED = Alternation(
    (
        Characters(tuple((ord(letter), ord(letter)) for letter in '"/\\bfnrt')),
        Sequence((Bytes(b"u"), Repeat(_HEXADECIMAL, 4, 4))),
    )
)


def json_value(
    *,
    whitespace: Whitespace = "flexible",
    max_whitespace: int | None = DEFAULT_MAX_WHITESPACE,
    max_digits: int | None = DEFAULT_MAX_DIGITS,
) -> Grammar:
    """Any JSON value, with no white space before or after it.

    `whitespace` between tokens: ``flexible`` is runs of at most `max_whitespace` characters (None: of any length),
    ``single`` one space after each ``:`` and ``,`` and none elsewhere, ``compact`` none at all. A run of digits (of the
    integer, the fraction or the exponent) has at most `max_digits` (None: any number). The bounds stop models that
    would go on for ever. Raises `ValueError` for other arguments.
    """
    return _grammar("value", whitespace, max_whitespace, max_digits)


def json_object(
    *,
    whitespace: Whitespace = "flexible",
    max_whitespace: int | None = DEFAULT_MAX_WHITESPACE,
    max_digits: int | None = DEFAULT_MAX_DIGITS,
) -> Grammar:
    """Any JSON object; otherwise as `json_value`."""
    return _grammar("object", whitespace, max_whitespace, max_digits)


def _grammar(start: str, whitespace: Whitespace, max_whitespace: int | None, max_digits: int | None) -> Grammar:
    options = {"whitespace": whitespace, "max_whitespace": max_whitespace, "max_digits": max_digits}
    if whitespace not in ("flexible", "single", "compact"):
        raise ValueError(f"whitespace is flexible, single or compact, not {whitespace!r}")
    for name, least in (("max_whitespace", 0), ("max_digits", 1)):
        bound = options[name]
        if bound is not None and (not isinstance(bound, int) or isinstance(bound, bool) or bound < least):
            raise ValueError(f"{name} is None or a number from {least} on, not {bound!r}")
    between: Expression = EMPTY
    after: Expression = EMPTY
    if whitespace == "flexible":
        between = after = Repeat(_BLANKS, 0, max_whitespace)
    elif whitespace == "single":
        after = Bytes(b" ")
    value, string = Reference("value"), Reference("string")
    member = Sequence((string, between, Bytes(b":"), after, value))
    rules: dict[str, Expression] = {
        "value": Alternation(
            (
                Reference("object"),
                Reference("array"),
                string,
                Reference("number"),
                *(Bytes(word) for word in (b"true", b"false", b"null")),
            )
        ),
        "object": _listed(b"{", member, b"}", between, after),
        "array": _listed(b"[", value, b"]", between, after),
        "string": Sequence(
            (
                Bytes(b'"'),
                Repeat(Alternation((_UNESCAPED, Sequence((Bytes(b"\\"), _ESCAPED)))), 0, None),
                Bytes(b'"'),
            )
        ),
        "number": number(max_digits),
    }
    return Grammar(f"json_{start}", f"any JSON {start}", rules, start=start, options=options)


def _listed(opening: bytes, item: Expression, closing: bytes, between: Expression, after: Expression) -> Expression:
    more = Repeat(Sequence((between, Bytes(b","), after, item)), 0, None)
    items = Sequence((item, more, between, Bytes(closing)))
    return Sequence((Bytes(opening), between, Alternation((Bytes(closing), items))))


def number(max_digits: int | None) -> Expression:
    """Any JSON number whose runs of digits have at most `max_digits` digits (None: any number)."""
    digits = Repeat(_DIGIT, 1, max_digits)
    more = Repeat(_DIGIT, 0, None if max_digits is None else max_digits - 1)
    integer = Alternation((Bytes(b"0"), Sequence((Characters(((0x31, 0x39),)), more))))
    fraction = Sequence((Bytes(b"."), digits))
    sign = Characters(((0x2B, 0x2B), (0x2D, 0x2D)))
    exponent = Sequence((Characters(((0x45, 0x45), (0x65, 0x65))), Repeat(sign, 0, 1), digits))
    return Sequence((Repeat(Bytes(b"-"), 0, 1), integer, Repeat(fraction, 0, 1), Repeat(exponent, 0, 1)))
