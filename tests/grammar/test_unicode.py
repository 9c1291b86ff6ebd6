"""Character properties and case folding, against `unicodedata` and Python's `re`.

The data may be of a newer Unicode version than the running Python: code points count only where both assign them.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmask.grammar import ranges as algebra
from stepmask.grammar.expression import ALL_CODE_POINTS, Ranges
from stepmask.grammar.unicode import (
    POSIX_CLASSES,
    case_orbit,
    fold,
    property_ranges,
    shorthand,
    similar_properties,
    unicode_version,
)

EVERY = [*range(0xD800), *range(0xE000, 0x110000)]
CATEGORY = {code_point: unicodedata.category(chr(code_point)) for code_point in EVERY}
ASSIGNED_HERE = {code_point for code_point, category in CATEGORY.items() if category != "Cn"}


def members(ranges: Ranges | None) -> set[int]:
    assert ranges is not None
    return {code_point for first, last in ranges for code_point in range(first, last + 1)}


@pytest.fixture(scope="module")
def assigned() -> set[int]:
    """Code points that both this Python and the data assign."""
    both = ASSIGNED_HERE & members(property_ranges("Assigned"))
    if unicodedata.unidata_version <= unicode_version():
        assert both == ASSIGNED_HERE
    return both


def well_formed(ranges: Ranges) -> bool:
    flat = [end for pair in ranges for end in pair]
    gaps = all(right[0] > left[1] + 1 for left, right in pairwise(ranges))
    return gaps and flat == sorted(flat) and not any(last >= 0xD800 and first <= 0xDFFF for first, last in ranges)


@pytest.mark.parametrize("letter", ["d", "w", "s", "D", "W", "S"])
def test_shorthands_agree_with_re(letter: str, assigned: set[int]) -> None:
    text = "".join(map(chr, sorted(assigned)))
    expected = set(map(ord, re.findall(rf"\{letter}", text)))
    assert members(shorthand(letter, True)) & assigned == expected
    expected = set(map(ord, re.findall(rf"\{letter}", text, re.ASCII)))
    assert members(shorthand(letter, False)) & assigned == expected


def test_categories_agree_with_unicodedata(assigned: set[int]) -> None:
    by_category: dict[str, set[int]] = {}
    for code_point in assigned:
        by_category.setdefault(CATEGORY[code_point], set()).add(code_point)
    moved = set()
    for category, expected in by_category.items():
        found = members(property_ranges(category)) & assigned
        moved |= found ^ expected
        assert property_ranges(f"gc={category}") == property_ranges(category)
    # A new version moves a handful of old characters to another category.
    assert len(moved) <= (0 if unicodedata.unidata_version == unicode_version() else 10)


def test_categories_partition_the_code_points() -> None:
    text = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn"
    letters = text.split()
    sets = [property_ranges(name) or () for name in letters]
    assert sum(map(algebra.size, sets)) == len(EVERY)
    assert algebra.union(*sets) == ALL_CODE_POINTS
    for group in "LMNPSZC":
        parts = (ranges for name, ranges in zip(letters, sets, strict=True) if name[0] == group)
        assert property_ranges(group) == algebra.union(*parts)


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("Letter", "L"),
        ("Uppercase_Letter", "Lu"),
        ("uppercase letter", "Lu"),
        ("General_Category=Lu", "Lu"),
        ("L&", "LC"),
        ("Cased_Letter", "LC"),
        ("Punctuation", "P"),
        ("digit", "Nd"),
        ("Script=Greek", "Greek"),
        ("sc=Grek", "Greek"),
        ("IsGreek", "Greek"),
        ("script:greek", "Greek"),
        ("Alpha", "Alphabetic"),
        ("Alphabetic=Yes", "Alphabetic"),
        ("Alphabetic=no", "^Alphabetic"),
        ("WSpace", "White_Space"),
        ("AHex", "ASCII_Hex_Digit"),
        ("^^L", "L"),
        ("Block=Basic_Latin", "ASCII"),
        ("InBasicLatin", "ASCII"),
        ("IDS", "ID_Start"),
    ],
)
def test_names(name: str, same: str) -> None:
    assert property_ranges(name) is not None
    assert property_ranges(name) == property_ranges(same)


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("Greek", "αΩ", "aж"),
        ("Han", "日本語", "あア"),
        ("Hiragana", "あ", "ア日"),
        ("Script_Extensions=Hira", "あー", "a"),
        ("Cyrillic", "привет", "hello"),
        ("Lu", "AÉЖ", "aé1"),
        ("LC", "aAǅ", "ªא日"),
        ("Sc", "$€", "+"),
        ("Zs", " \u00a0", "\n"),
        ("ASCII", "a\x7f", "é"),
        ("Any", "a\n\U0010ffff", ""),
        ("White_Space", " \n\u2028", "a\x1c"),
        ("Emoji", "😀1", "a"),
        ("Extended_Pictographic", "😀", "1"),
        ("Assigned", "a", "\u0378"),
        ("InGreek", "α\u0378", "a"),
        ("Cn", "\u0378", "a"),
    ],
)
def test_members(name: str, inside: str, outside: str) -> None:
    found = property_ranges(name)
    assert found is not None and well_formed(found)
    assert all(algebra.contains(found, ord(character)) for character in inside)
    assert not any(algebra.contains(found, ord(character)) for character in outside)
    assert property_ranges(f"^{name}") == algebra.negate(found)


def test_surrogates_are_nowhere() -> None:
    assert property_ranges("Cs") == () and property_ranges("Any") == ALL_CODE_POINTS


@pytest.mark.parametrize(
    "name", ["", "Lx", "Greeek", "Script=Klingon", "gc=Greek", "sc=Lu", "Foo=Yes", "=", "^", "In", "is"]
)
def test_unknown_names(name: str) -> None:
    assert property_ranges(name) is None


def test_similar_names() -> None:
    assert "greek" in similar_properties("Greeek")


def test_case_orbits_agree_with_re(assigned: set[int]) -> None:
    cased = [code_point for code_point in sorted(assigned) if len(case_orbit(code_point)) > 1]
    assert len(cased) > 2500
    text = "".join(map(chr, cased))
    for code_point in cased:
        orbit = case_orbit(code_point)
        assert code_point in orbit and all(case_orbit(other) == orbit for other in orbit)
        if all(other in assigned for other in orbit):
            assert set(map(ord, re.findall(re.escape(chr(code_point)), text, re.IGNORECASE))) == set(orbit)
    for code_point in assigned - set(cased):
        character = chr(code_point)
        if character.lower() != character and len(character.lower()) == 1:
            assert not re.fullmatch(re.escape(character), character.lower(), re.IGNORECASE)


def test_case_orbits_by_name() -> None:
    assert case_orbit(ord("k")) == (ord("K"), ord("k"), 0x212A)
    assert case_orbit(ord("S")) == (ord("S"), ord("s"), 0x17F)
    assert case_orbit(ord("1")) == (ord("1"),)
    assert case_orbit(ord("k"), unicode=False) == (ord("K"), ord("k"))
    assert case_orbit(ord("é"), unicode=False) == (ord("é"),)


code_points = st.integers(0, sys.maxunicode).filter(lambda code_point: not 0xD800 <= code_point <= 0xDFFF)
near = st.integers(0, 40) | st.integers(0xD7F0, 0xD7FF) | st.integers(0xE000, 0xE010) | st.just(0x10FFFF)
small_sets = st.sets(near, max_size=12).map(lambda chosen: algebra.normalise((c, c) for c in chosen))


@given(small_sets, small_sets)
def test_algebra(left: Ranges, right: Ranges) -> None:
    a, b = members(left), members(right)
    results = {
        algebra.union(left, right): a | b,
        algebra.intersect(left, right): a & b,
        algebra.subtract(left, right): a - b,
    }
    for ranges, expected in results.items():
        assert well_formed(ranges) and members(ranges) == expected
    negated = algebra.negate(left)
    assert well_formed(negated) and algebra.negate(negated) == left
    assert algebra.size(negated) == len(EVERY) - len(a)
    assert all(algebra.contains(left, c) == (c in a) for c in a | b)


@given(st.lists(st.tuples(code_points, code_points), max_size=6))
def test_normalise(pairs: list[tuple[int, int]]) -> None:
    ranges = algebra.normalise(pairs)
    assert well_formed(ranges)
    for code_point in {end for pair in pairs for end in pair}:
        assert algebra.contains(ranges, code_point) == any(first <= code_point <= last for first, last in pairs)


def test_normalise_drops_surrogates() -> None:
    assert algebra.normalise([(0, 0x10FFFF)]) == ALL_CODE_POINTS
    assert algebra.normalise([(0xD900, 0xD901)]) == () == algebra.normalise([])


@given(
    st.sets(st.integers(0, 0x250) | st.integers(0x1E90, 0x1EA0) | st.integers(0x2120, 0x2130), max_size=8),
    st.booleans(),
)
def test_fold(chosen: set[int], unicode: bool) -> None:
    folded = fold(algebra.normalise((c, c) for c in chosen), unicode)
    assert well_formed(folded)
    assert members(folded) == {other for c in chosen for other in case_orbit(c, unicode)}
    assert fold(folded, unicode) == folded


def test_fold_of_everything() -> None:
    assert fold(ALL_CODE_POINTS) == ALL_CODE_POINTS == fold(ALL_CODE_POINTS, False)


def test_posix_classes_are_ascii() -> None:
    for name, ranges in POSIX_CLASSES.items():
        assert well_formed(ranges) and ranges[-1][1] < 128, name
    assert members(POSIX_CLASSES["alpha"]) == {c for c in range(128) if chr(c).isalpha()}
    assert members(POSIX_CLASSES["punct"]) == {c for c in range(33, 127) if not chr(c).isalnum()}
