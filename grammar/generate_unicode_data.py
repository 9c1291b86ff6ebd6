"""Write `unicode_data.json`, the character properties and case orbits that `unicode.py` reads.

Run it with the PyPI module `regex` installed, whenever that module has moved to a newer Unicode version::

    pip install regex && python -m stepmask.grammar.generate_unicode_data

(as a module: as a script it would take its neighbour `regex.py` for that module) and change `UNICODE_VERSION` below to
the version that `regex` documents. Properties come from `regex`. Case orbits
are what Python's `re.IGNORECASE` takes for equal (as of the Python that runs this), together with the pairs of newer
characters that only `regex` knows. The result is committed, so that grammars compile to the same arrays on every
Python version.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import regex  # type: ignore[import-untyped]
from regex import _regex

UNICODE_VERSION = "18.0.0"
ALL_TEXT = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_YES_AND_NO = {"NO", "N", "F", "FALSE", "YES", "Y", "T", "TRUE"}
#: Yes-or-no properties that are left out: parts of other properties, `regex`'s own, and derived ones that nobody names.
_SKIPPED = re.compile(
    "OTHER|POSIX|CHANGESWHEN|ANY$|ALPHANUMERIC|BLANK|GRAPH|HORIZ|VERT|PRINT|WORD|XDIGIT$|IDCOMPAT|HYPHEN"
)
_GROUPS = {"C", "L", "M", "N", "P", "S", "Z", "LC", "ASSIGNED"}


def base36(number: int) -> str:
    text = ""
    while number:
        number, digit = divmod(number, 36)
        text = DIGITS[digit] + text
    return text or "0"


def encoded(item: str) -> str:
    """The set of the regular expression `item`: for each range its distance from the last one, and its length - 1."""
    words = []
    position = 0
    for match in regex.finditer(f"{item}+", ALL_TEXT):
        first, last = ord(match[0][0]), ord(match[0][-1])
        words.append(base36(first - position) + (f"-{base36(last - first)}" if last > first else ""))
        position = last + 1
    return " ".join(words)


def names_by_id(names: dict[str, int]) -> list[list[str]]:
    groups: dict[int, list[str]] = {}
    for name, number in names.items():
        groups.setdefault(number, []).append(name)
    return [sorted(group, key=lambda name: (len(name), name)) for group in groups.values()]


def orbits() -> list[list[int]]:
    """Sets of at least two code points that a case-insensitive match takes for each other."""

    def cases(character: str) -> str:
        return character.lower() + character.upper() + character.casefold()

    candidates = {character for character in ALL_TEXT if cases(character) != 3 * character}
    candidates |= {part for character in candidates for part in cases(character)}
    text = "".join(sorted(candidates))
    groups = [set(map(ord, re.findall(re.escape(character), text, re.IGNORECASE))) for character in text]
    known = {code_point for group in groups for code_point in group if len(group) > 1}
    for character in ALL_TEXT:
        others = set(_regex.get_all_cases(int(regex.IGNORECASE | regex.UNICODE), ord(character)))
        if len(others) > 1 and not others <= known:
            groups.append(others)
    merged: dict[int, set[int]] = {}
    for group in groups:
        for code_point in list(group):
            group |= merged.get(code_point, set())
        for code_point in group:
            merged[code_point] = group
    return sorted({tuple(sorted(group)): sorted(group) for group in merged.values() if len(group) > 1}.values())


def encoded_orbits() -> str:
    """Orbits joined by blanks; in each the distance from the last orbit's first member, then from member to member."""
    words = []
    position = 0
    for orbit in orbits():
        steps = [orbit[0] - position, *(right - left for left, right in pairwise(orbit))]
        words.append("-".join(map(base36, steps)))
        position = orbit[0]
    return " ".join(words)


def main() -> None:
    properties = _regex.get_properties()
    sets: dict[str, str] = {}
    aliases: dict[str, str] = {}

    def add(kind: str, names: list[str], item: str) -> None:
        key = f"{kind}={names[0].lower()}"
        sets[key] = encoded(item)
        for name in names[1:]:
            aliases[f"{kind}={name.lower()}"] = key

    for names in names_by_id(properties["GC"][1]):
        names = [name for name in names if not name.endswith("&")]
        if names[0] in _GROUPS:
            aliases.update({f"gc={name.lower()}": f"gc={names[0].lower()}" for name in names[1:]})
        elif names[0] not in ("CN", "CS"):
            add("gc", names, rf"\p{{GC={names[0]}}}")
    aliases |= {"gc=unassigned": "gc=cn", "gc=surrogate": "gc=cs", "gc=l&": "gc=lc"}
    for names in names_by_id(properties["SC"][1]):
        add("sc", names, rf"\p{{SC={names[0]}}}")
        extended = encoded(rf"\p{{SCX={names[0]}}}")
        if extended != sets[f"sc={names[0].lower()}"]:
            sets[f"scx={names[0].lower()}"] = extended
    for names in names_by_id(properties["BLK"][1]):
        if names[0] != "NB":
            add("blk", names, rf"\p{{BLK={names[0]}}}")
    binary: dict[int, list[str]] = {}
    for name, (number, values) in properties.items():
        if set(values) == _YES_AND_NO:
            binary.setdefault(number, []).append(name)
    for names in binary.values():
        if not any(map(_SKIPPED.match, names)):
            add("is", sorted(names, key=len), rf"\p{{{names[0]}}}")
    sets["re=w"] = encoded(r"[\p{L}\p{nt=de}\p{nt=di}\p{nt=nu}_]")
    data = {"unicode": UNICODE_VERSION, "aliases": aliases, "orbits": encoded_orbits(), "sets": sets}
    text = json.dumps(data, indent=0, sort_keys=True)
    Path(__file__).with_name("unicode_data.json").write_text(text + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
