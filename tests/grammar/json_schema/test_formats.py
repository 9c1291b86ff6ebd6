"""Formats: the JSON Schema Test Suite, the standard library's parsers, and what the standards give as examples."""

from __future__ import annotations

import calendar
import ipaddress
import json
import os
import random
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import ReferenceMatcher

from stepmask.grammar.compile import compile_grammar
from stepmask.grammar.errors import GrammarError
from stepmask.grammar.expression import Grammar
from stepmask.grammar.json_schema.formats import ANNOTATION_FORMATS, DRAFTS, FORMATS, REFUSED_FORMATS
from stepmask.grammar.json_schema.patterns import accepts, lengths
from stepmask.grammar.json_schema.strings import StringConstraint, string_expression
from stepmask.grammar.regex_ecma import ecma_pattern

NODE = shutil.which("node")
DATA = Path(os.environ.get("STEPMASK_DATA", Path(__file__).parents[4] / "shared"))


def conforms(name: str, text: str) -> bool:
    return accepts(FORMATS[name].expression, text)


def near(text: str, chance: random.Random, letters: str) -> str:
    """`text` with a character or two changed."""
    for _ in range(chance.randint(0, 2)):
        at = chance.randrange(len(text) + 1)
        text = text[:at] + chance.choice([*letters, ""]) + text[at + chance.randint(0, 1) :]
    return text


# The suite

#: Valid strings that the notes leave out: A-labels, named groups and back-references.
LEFT_OUT = {
    "hostname": re.compile(r"(?:.*\.)?xn--", re.IGNORECASE),
    "regex": re.compile(r"\(\?<[a-z]"),
}


def suite() -> Iterator[tuple[str, str, str, bool]]:
    """(draft, format, string, whether it is of the format)."""
    with tarfile.open(DATA / "data" / "json-schema-test-suite.tar.gz") as archive:
        for member in archive:
            if "/optional/format/" not in member.name or not member.name.endswith(".json"):
                continue
            file = archive.extractfile(member)
            assert file is not None
            for group in json.load(file):
                for test in group["tests"]:
                    name = group["schema"].get("format")
                    if name in FORMATS and isinstance(test["data"], str):
                        yield member.name, name, test["data"], test["valid"]


@pytest.mark.skipif(not (DATA / "data").is_dir(), reason="the shared data is not here")
def test_the_suite() -> None:
    tested: dict[str, set[bool]] = {}
    for draft, name, text, valid in suite():
        left_out = name in LEFT_OUT and LEFT_OUT[name].match(text) is not None
        assert conforms(name, text) == (valid and not left_out), (draft, name, text)
        tested.setdefault(name, set()).add(valid)
    assert set(tested) == {name for name, entry in FORMATS.items() if entry.drafts} and set(tested["hostname"]) == {
        True,
        False,
    }


@pytest.mark.skipif(not (DATA / "data").is_dir(), reason="the shared data is not here")
def test_drafts_are_those_that_the_suite_tests_a_format_in() -> None:
    found: dict[str, set[str]] = {}
    for path, name, *_ in suite():
        found.setdefault(name, set()).update(part for part in path.split("/") if part in DRAFTS)
    for name, drafts in found.items():
        assert drafts <= set(FORMATS[name].drafts), name


def test_every_format_says_what_it_is_and_has_strings() -> None:
    assert not (set(FORMATS) & set(ANNOTATION_FORMATS)) and not (set(REFUSED_FORMATS) & {*FORMATS, *ANNOTATION_FORMATS})
    for name, entry in FORMATS.items():
        assert entry.name == name and entry.note and entry.drafts[-1:] in ((), (DRAFTS[-1],))
        expression = string_expression(StringConstraint(formats=frozenset({name})))
        assert expression is not None
        assert lengths(entry.expression)[0] <= 36
        assert compile_grammar(Grammar("test", "", {"start": expression})) is not None


# Dates and times

DAYS = st.builds("{:04}-{:02}-{:02}".format, st.integers(0, 9999), st.integers(0, 13), st.integers(0, 32))


@given(DAYS)
def test_days_are_those_of_the_calendar(day: str) -> None:
    year, month, date = map(int, day.split("-"))
    # The calendar repeats every 400 years; Python's has no year 0.
    valid = 1 <= month <= 12 and 1 <= date <= calendar.monthrange(year or 400, month)[1]
    assert conforms("date", day) == valid


def test_leap_days() -> None:
    for year in range(10_000):
        assert conforms("date", f"{year:04}-02-29") == calendar.isleap(year)


OFFSETS = st.builds("{}{:02}:{:02}".format, st.sampled_from("+-"), st.integers(0, 24), st.integers(0, 61))


@given(
    st.integers(0, 25),
    st.integers(0, 61),
    st.integers(58, 61),
    st.sampled_from(["", ".5", ".123456789012", "."]),
    st.one_of(st.sampled_from(["Z", "z", "", "+01"]), OFFSETS),
    st.booleans(),
)
def test_times(hour: int, minute: int, second: int, fraction: str, offset: str, leap: bool) -> None:
    shift = 0
    known = offset in ("Z", "z")
    if len(offset) == 6:
        hours, minutes = int(offset[1:3]), int(offset[4:])
        known = hours < 24 and minutes < 60
        shift = (hours * 60 + minutes) * (1 if offset[0] == "+" else -1)
    if leap and known:  # the local time of 23:59 in UTC
        hour, minute = divmod((23 * 60 + 59 + shift) % 1440, 60)
        second = 60
    text = f"{hour:02}:{minute:02}:{second:02}{fraction}{offset}"
    valid = hour < 24 and minute < 60 and second < 61 and fraction != "." and known
    if second == 60:
        is_leap = (hour * 60 + minute - shift) % 1440 == 23 * 60 + 59
        valid = valid and is_leap and shift % 30 == 0
    assert conforms("time", text) == valid
    assert conforms("date-time", f"2024-02-29T{text}") == valid
    assert not conforms("date-time", f"2023-02-29T{text}") and not conforms("date-time", f"2024-02-29 {text}")


DURATION = re.compile(
    r"P(?=.)(?:\d+W|(?:\d+Y(?!\d+D))?(?:\d+M)?(?:\d+D)?(?:T(?=.)(?:\d+H(?!\d+S))?(?:\d+M)?(?:\d+S)?)?)", re.ASCII
)


@given(st.text(st.sampled_from("PT1230YMWDHS"), max_size=9).map("P".__add__))
def test_durations(text: str) -> None:
    assert conforms("duration", text) == (DURATION.fullmatch(text) is not None)


# Addresses


@given(st.one_of(st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map(str)), st.randoms())
def test_addresses_are_those_of_the_standard_library(text: str, chance: random.Random) -> None:
    if ":" in text and chance.random() < 0.5:
        text = text[: text.rindex(":") + 1] + "1.2.3.4"
    text = near(text, chance, "0:.1fF2")
    for name, parser in (("ipv4", ipaddress.IPv4Address), ("ipv6", ipaddress.IPv6Address)):
        try:
            parser(text)
            valid = True
        except ValueError:
            valid = False
        assert conforms(name, text) == valid, text


@given(st.text(st.sampled_from("ab0-.xn_é"), max_size=12))
def test_hostnames(text: str) -> None:
    label = re.compile(r"(?!xn--)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
    assert conforms("hostname", text) == all(label.fullmatch(part) for part in text.split("."))


@pytest.mark.parametrize(
    "sizes, valid",
    [
        ([63], True),
        ([64], False),
        ([63, 63, 63], True),
        ([63, 63, 63, 61], True),
        ([63, 63, 63, 62], False),
        ([35] * 7, True),
        ([15] * 15, True),
        ([1] * 15, True),
    ],
)
def test_lengths_of_hostnames(sizes: list[int], valid: bool) -> None:
    name = ".".join("a" * size for size in sizes)
    assert conforms("hostname", name) == valid
    assert len(name) <= 253 or not valid


MAILBOXES = [
    ("a@b", True),
    ("a.b+c@d-e.f", True),
    ('"a b\\"c\\\\"@d', True),
    ('"a"b"@d', False),
    ("a@b.", False),
    ("a@-b", False),
    ("a@b_c", False),
    ("a@[1.2.3.4]", True),
    ("a@[1.2.3]", False),
    ("a@[IPv6:1::2]", True),
    ("a@[ipv6:1:2:3:4:5:6:7::]", False),  # RFC 5321: the colons stand for two groups at least
    ("a@[tag:x]", False),
    ("é@b", False),
    ("a@é", False),
    ("a\n@b", False),
]


@pytest.mark.parametrize("text, valid", MAILBOXES)
def test_mailboxes(text: str, valid: bool) -> None:
    assert conforms("email", text) == valid
    assert conforms("idn-email", text) == (valid or "é" in text)


# Identifiers

#: RFC 3986, appendix B and section 3: the parts of a reference, checked one by one.
_PARTS = re.compile(r"(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_PCHAR = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"


def reference_parts(text: str) -> tuple[bool, bool]:
    """Whether `text` is a URI reference, and whether it has a scheme."""
    match = _PARTS.fullmatch(text)
    assert match is not None
    scheme, authority, path, query, fragment = match.groups()
    good = re.fullmatch(rf"(?:{_PCHAR}|/)*", path) is not None
    good = good and all(part is None or re.fullmatch(rf"(?:{_PCHAR}|[/?])*", part) for part in (query, fragment))
    if scheme is not None and not re.fullmatch("[A-Za-z][A-Za-z0-9+.-]*", scheme):
        good = False
    if authority is not None:
        user, _, host = authority.rpartition("@")
        good = good and re.fullmatch(rf"(?:(?!@){_PCHAR})*", user) is not None
        literal = re.fullmatch(r"\[([^\]]*)\](?::[0-9]*)?", host)
        if literal:
            try:
                ipaddress.IPv6Address(literal[1])
            except ValueError:
                good = good and re.fullmatch(r"[vV][0-9A-Fa-f]+\.[A-Za-z0-9._~!$&'()*+,;=:-]+", literal[1]) is not None
        else:
            good = good and re.fullmatch(rf"(?:(?![:@]){_PCHAR})*(?::[0-9]*)?", host) is not None
    elif path.startswith("//"):
        good = False
    return bool(good), scheme is not None


@given(
    st.sampled_from(
        ["http://u@h.x:80/a/b?c=d#e", "//[::1]:1/%4a", "urn:a:b", "a/b", "", "?q", "#f", "x://[v1.a]", "a:b/c", "/a//b"]
    ),
    st.randoms(),
)
def test_references(text: str, chance: random.Random) -> None:
    text = near(text, chance, ':/?#@[]%a0.é "\\|')
    good, has_scheme = reference_parts(text)
    assert conforms("uri-reference", text) == good, text
    assert conforms("uri", text) == (good and has_scheme), text
    if good:
        assert conforms("iri-reference", text) and conforms("iri", text) == has_scheme


@pytest.mark.parametrize(
    "text, valid",
    [
        ("http://é.日本/ü?\ue000#ö", True),
        ("http://a/\ue000", False),
        ("http://a/\u200e", False),
        ("x:\U000efffe", False),
    ],
)
def test_letters_of_identifiers(text: str, valid: bool) -> None:
    assert conforms("iri", text) == valid and not conforms("uri", text)


# Others


_POINTER = r"(?:/(?:[^~/]|~[01])*)*"


@given(st.text(st.sampled_from("/~01a#é\n"), max_size=6))
def test_pointers(text: str) -> None:
    assert conforms("json-pointer", text) == (re.fullmatch(_POINTER, text) is not None)
    for levels in ("", "0", "1"):
        valid = re.fullmatch(rf"(?:0|[1-9][0-9]*)(?:#|{_POINTER})", levels + text) is not None
        assert conforms("relative-json-pointer", levels + text) == valid


@given(st.text(st.sampled_from("ab1^$\\.*+?()[]{}|/-,:=!<>dwpuxLé"), max_size=9))
def test_patterns_of_the_format_regex_are_patterns(text: str) -> None:
    if conforms("regex", text):
        try:
            ecma_pattern(text)
        except GrammarError as error:
            # Known, and not enforced where a pattern is: word boundaries and lookbehind.
            assert "not supported" in error.message, text


@pytest.mark.parametrize(
    "text",
    [
        r"^[a-zA-Z0-9_]{3,16}$",
        "^value1|value2$",
        r"(?:(a|b)*c){2,}?",
        r"[^\]\-\d!-~-]+",
        r"\p{Lu}\u{1F600}\cJ",
        "(?=a)(?<!b)",
        "",
        "|",
    ],
)
def test_patterns_that_are_in_the_format(text: str) -> None:
    assert conforms("regex", text)


@pytest.mark.parametrize(
    "text",
    ["*", "\\", "(", ")", "[", "]", "{1}", "a{2,1}", "a**", "[b-a]", r"\q", "^*", "(?a)", "[\\d-a]", "a{", "(?=a)*"],
)
def test_no_patterns(text: str) -> None:
    assert not conforms("regex", text)


EXAMPLES: list[tuple[str, list[str], list[str]]] = [
    (
        "uuid",
        ["f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6"],
        ["f81d4fae7dec11d0a76500a0c91e6bf6", "{f81d4fae-7dec-11d0-a765-00a0c91e6bf6}"],
    ),
    ("uri-template", ["http://x/~{u}/", "{?q,l*}", "{a:3}", "{%41.b}", "é"], ["{", "{!a}", "{a:0}", "a b", "%4"]),
]


@pytest.mark.parametrize("name, valid, invalid", EXAMPLES)
def test_examples(name: str, valid: list[str], invalid: list[str]) -> None:
    assert all(conforms(name, text) for text in valid)
    assert not any(conforms(name, text) for text in invalid)


@pytest.mark.skipif(NODE is None, reason="there is no JavaScript engine here")
def test_patterns_of_the_format_regex_are_patterns_of_a_javascript_engine() -> None:
    automaton = compile_grammar(Grammar("test", "", {"start": FORMATS["regex"].expression}))
    chance = random.Random(3)
    texts = []
    for _ in range(200):
        matcher, data = ReferenceMatcher(automaton), bytearray()
        while not (matcher.is_complete and chance.random() < 0.05):
            choices = sorted(matcher.live_bytes())
            byte = chance.choice([b for b in choices if b < 0x7F] or choices)
            if len(data) > 60:  # go to an end by the shortest way
                byte = min(choices, key=lambda b: _distance(matcher, b))
            assert matcher.accept(bytes([byte]))
            data.append(byte)
        texts.append(data.decode())
    script = """
        const texts = JSON.parse(require("fs").readFileSync(0));
        const valid = (p) => { try { new RegExp(p, "u"); return true } catch { return false } };
        console.log(JSON.stringify(texts.map(valid)));
    """
    assert NODE is not None
    answer = subprocess.run(
        [NODE, "-e", script], input=json.dumps(texts), capture_output=True, text=True, check=True, timeout=300
    )
    assert [text for text, valid in zip(texts, json.loads(answer.stdout), strict=True) if not valid] == []


def _distance(matcher: ReferenceMatcher, byte: int) -> int:
    after = matcher.copy()
    after.accept(bytes([byte]))
    return min(after.sections["state_distance"][stack[-1][0]] for stack in after.heads)
