r"""Character properties, the shorthands ``\d \w \s``, POSIX classes and case folding, as code point ranges.

Everything comes from `unicode_data.json` (see `generate_unicode_data.py`), so that a grammar compiles to the same
automaton whatever Unicode version the running Python knows. The file is read when a property is first asked for.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from .expression import ALL_CODE_POINTS, Ranges
from .ranges import intersect, negate, normalise, union

ASCII: Ranges = ((0, 0x7F),)
_CATEGORY_GROUPS = {
    "c": ("cc", "cf", "cn", "co"),
    "l": ("lu", "ll", "lt", "lm", "lo"),
    "lc": ("lu", "ll", "lt"),
    "m": ("mn", "mc", "me"),
    "n": ("nd", "nl", "no"),
    "p": ("pc", "pd", "ps", "pe", "pi", "pf", "po"),
    "s": ("sm", "sc", "sk", "so"),
    "z": ("zs", "zl", "zp"),
}
_KINDS = {
    "gc": "gc", "generalcategory": "gc", "category": "gc", "sc": "sc", "script": "sc",
    "scx": "scx", "scriptextensions": "scx", "blk": "blk", "block": "blk",
}  # fmt: skip
_TRUE, _FALSE = {"y", "yes", "t", "true"}, {"n", "no", "f", "false"}
_ASCII_SHORTHANDS: dict[str, Ranges] = {
    "d": ((48, 57),),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "s": ((9, 13), (32, 32)),
}
#: POSIX classes in their ASCII meaning.
POSIX_CLASSES: dict[str, Ranges] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ASCII,
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": ((48, 57),),
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _ASCII_SHORTHANDS["w"],
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    text = Path(__file__).with_name("unicode_data.json").read_text(encoding="ascii")
    data: dict[str, Any] = json.loads(text)
    return data


def unicode_version() -> str:
    """The Unicode version of the properties, e.g. ``18.0.0``."""
    version: str = _data()["unicode"]
    return version


def _decode(words: str) -> Ranges:
    """The ranges behind one entry of the data file: steps from range to range in base 36, ``gap`` or ``gap-length``."""
    result = []
    position = 0
    for word in words.split():
        gap, _, length = word.partition("-")
        first = position + int(gap, 36)
        position = first + int(length, 36) if length else first
        result.append((first, position))
        position += 1
    return normalise(result)


@cache
def _stored(key: str) -> Ranges | None:
    """The set of a normalised name such as ``gc=lu``, or None where there is none."""
    data = _data()
    kind, _, name = key.partition("=")
    if kind == "scx":
        script = data["aliases"].get(f"sc={name}", f"sc={name}")
        extended = data["sets"].get(script.replace("sc=", "scx=", 1))
        return _stored(script) if extended is None else _decode(extended)
    key = data["aliases"].get(key, key)
    kind, _, name = key.partition("=")
    if kind == "gc":
        if name in _CATEGORY_GROUPS:
            return union(*(_stored(f"gc={part}") or () for part in _CATEGORY_GROUPS[name]))
        if name == "cs":
            return ()
        if name == "cn":
            assigned = (words for key, words in data["sets"].items() if key.startswith("gc="))
            return negate(union(*map(_decode, assigned)))
    words = data["sets"].get(key)
    return None if words is None else _decode(words)


def _normalised(name: str) -> str:
    return "".join(name.split()).replace("_", "").replace("-", "").lower()


@lru_cache(maxsize=256)
def property_ranges(name: str) -> Ranges | None:
    r"""The code points of a property as it is written between the braces of ``\p{...}``; None where no such is known.

    Known are general categories (``L``, ``Lu``, ``Uppercase_Letter``, ``L&``, ``gc=Lu``), scripts (``Greek``,
    ``Script=Greek``, ``sc=Grek``, ``scx=Grek`` with extensions), blocks (``InGreek``, ``Block=Greek``), and yes-or-no
    properties (``Alphabetic``, ``Emoji=No``); letter case, blanks, ``-`` and ``_`` make no difference. A leading ``^``
    negates. As everywhere, there are no surrogates: ``\p{Cs}`` is empty.
    """
    if name.startswith("^"):
        positive = property_ranges(name[1:])
        return None if positive is None else negate(positive)
    kind, equals, value = name.partition("=")
    if not equals:
        kind, equals, value = name.partition(":")
    if equals:
        kind, value = _normalised(kind), _normalised(value)
        if kind in _KINDS:
            return _stored(f"{_KINDS[kind]}={value}")
        if value in _TRUE | _FALSE:
            positive = _bare(kind)
            return negate(positive) if positive is not None and value in _FALSE else positive
        return None
    return _bare(_normalised(name))


def _bare(name: str) -> Ranges | None:
    special = {"any": ALL_CODE_POINTS, "ascii": ASCII}.get(name)
    if special is not None:
        return special
    if name == "assigned":
        return negate(_stored("gc=cn") or ())
    for kind in ("gc", "sc", "is"):
        found = _stored(f"{kind}={name}")
        if found is not None:
            return found
    if name.startswith("is"):
        return _bare(name[2:])
    return _stored(f"blk={name[2:]}") if name.startswith("in") else None


def similar_properties(name: str) -> list[str]:
    """Up to three known names that look like `name`, for messages."""
    import difflib

    data = _data()
    known = {key.partition("=")[2] for part in ("sets", "aliases") for key in data[part]}
    return difflib.get_close_matches(_normalised(name.rpartition("=")[2]), sorted(known), 3)


@cache
def shorthand(letter: str, unicode: bool) -> Ranges:
    r"""The code points of ``\d``, ``\w``, ``\s`` and, capital, of their negations, as Python's `re` has them."""
    if letter.isupper():
        return negate(shorthand(letter.lower(), unicode))
    if not unicode:
        return _ASCII_SHORTHANDS[letter]
    if letter == "d":
        return _stored("gc=nd") or ()
    if letter == "w":
        return _stored("re=w") or ()
    return union(_stored("is=space") or (), ((0x1C, 0x1F),))


@lru_cache(maxsize=1)
def _orbits() -> tuple[dict[int, tuple[int, ...]], list[int]]:
    """All members of the case orbit of each code point that has one, and these code points sorted."""
    orbit_of: dict[int, tuple[int, ...]] = {}
    position = 0
    for word in _data()["orbits"].split():
        steps = [int(step, 36) for step in word.split("-")]
        position += steps[0]
        members = [position]
        for step in steps[1:]:
            members.append(members[-1] + step)
        orbit = tuple(members)
        for member in orbit:
            orbit_of[member] = orbit
    return orbit_of, sorted(orbit_of)


def case_orbit(code_point: int, unicode: bool = True) -> tuple[int, ...]:
    """The code points that equal this one when case is ignored, itself included, sorted.

    They are those of Python's ``re.IGNORECASE``: simple case folding, where ``k``, ``K`` and the Kelvin sign are one,
    and ``i`` has both Turkish forms. Without `unicode` only ASCII letters have another case.
    """
    if unicode:
        return _orbits()[0].get(code_point, (code_point,))
    if 65 <= code_point <= 90:
        return (code_point, code_point + 32)
    if 97 <= code_point <= 122:
        return (code_point - 32, code_point)
    return (code_point,)


def fold(ranges: Ranges, unicode: bool = True) -> Ranges:
    """`ranges` with the whole case orbit of each of its members."""
    if not unicode:
        lower, upper = intersect(ranges, ((97, 122),)), intersect(ranges, ((65, 90),))
        return union(ranges, tuple((a - 32, b - 32) for a, b in lower), tuple((a + 32, b + 32) for a, b in upper))
    orbit_of, cased = _orbits()
    extra: set[int] = set()
    for first, last in ranges:
        for code_point in cased[bisect_left(cased, first) : bisect_left(cased, last + 1)]:
            extra.update(orbit_of[code_point])
    return union(ranges, normalise((code_point, code_point) for code_point in extra)) if extra else ranges
