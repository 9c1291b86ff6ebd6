"""Patterns of ECMA 262: against Python's `re`, a JavaScript engine, and real schemas; lengths, bounds and emptiness."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import expression_matches

from stepmask.grammar.errors import GrammarError, GrammarSyntaxError, GrammarTooLarge, GrammarUnsupported
from stepmask.grammar.expression import (
    ANY_CHARACTER,
    EMPTY,
    NOTHING,
    Bytes,
    Characters,
    Complement,
    EndAnchor,
    Expression,
    Intersection,
    Lookahead,
    Repeat,
    Sequence,
    StartAnchor,
)
from stepmask.grammar.json_schema.escapes import ANY_TEXT
from stepmask.grammar.json_schema.patterns import accepts, bounded, is_empty, lengths, matches, pattern_content
from stepmask.grammar.limits import Limits
from stepmask.grammar.simplify import contains

DATA = Path(os.environ.get("STEPMASK_DATA", Path(__file__).parents[4] / "shared"))
NODE = shutil.which("node")

# Random patterns in the syntax and with the meaning that Python shares, given ASCII sets, and `$` written `\Z` there.

ATOMS = ["a", "b", "ab", "1", "-", "é", r"\.", r"\-", r"\_", r"\n", r"\x61", r"\u00e9", r"\/", "[ab]", "[^a]", "[a-c1]"]
ATOMS += [
    r"[^\d]",
    r"[\w-]",
    r"[\w-.]",
    "[é-ü]",
    "[-a]",
    "[a-]",
    ".",
    r"\d",
    r"\w",
    r"\s",
    r"\D",
    r"\W",
    r"\S",
    "^",
    "$",
]
QUANTIFIERS = ["*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "{0}"]
TEXT = st.text(st.sampled_from("ab1c-é.\n _/"), max_size=7)


def patterns() -> st.SearchStrategy[str]:
    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        group = st.builds(lambda kind, body: f"({kind}{body})", st.sampled_from(["", "?:", "?=", "?!"]), inner)
        repeated = st.builds(lambda body, quantifier: f"(?:{body}){quantifier}", inner, st.sampled_from(QUANTIFIERS))
        joined = st.lists(inner, max_size=3).map("".join)
        return st.one_of(group, repeated, joined, st.lists(inner, min_size=2, max_size=3).map("|".join))

    return st.recursive(st.sampled_from(ATOMS), larger, max_leaves=7)


def in_python(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace("$", r"\Z"), re.ASCII)


@given(patterns(), st.lists(TEXT, min_size=1, max_size=6))
def test_a_pattern_is_found_where_python_finds_it(pattern: str, texts: list[str]) -> None:
    compiled = in_python(pattern)
    for text in texts:
        assert matches(pattern, text) == (compiled.search(text) is not None), (pattern, text)


@given(patterns(), st.lists(TEXT, min_size=1, max_size=6))
def test_anchors_are_left_within_intersections_only(pattern: str, texts: list[str]) -> None:
    content = pattern_content(pattern)
    stack = [content]
    while stack:
        at = stack.pop()
        assert not isinstance(at, StartAnchor | EndAnchor | Lookahead)
        if not isinstance(at, Intersection):
            stack.extend(getattr(at, "parts", ()) + getattr(at, "options", ()))
            stack.extend([at.body] if isinstance(at, Repeat) else [])
    # Within a larger text it is the same language.
    larger = Sequence((Bytes(b'"'), content, Bytes(b'"')))
    for text in texts:
        assert accepts(larger, f'"{text}"') == accepts(content, text)


CONTENTS = [
    ("^[a-z]+$", Repeat(Characters(((97, 122),)), 1, None)),
    ("^a?$", Repeat(Bytes(b"a"), 0, 1)),
    ("^a", Sequence((Bytes(b"a"), ANY_TEXT))),
    ("a$", Sequence((ANY_TEXT, Bytes(b"a")))),
    ("[0-9]+", Sequence((ANY_TEXT, Characters(((48, 57),)), ANY_TEXT))),
    ("^a[b-c]{2,9}", Sequence((Bytes(b"a"), Repeat(Characters(((98, 99),)), 2, 2), ANY_TEXT))),
    ("x*", ANY_TEXT),
    ("^", ANY_TEXT),
    ("", ANY_TEXT),
    ("^(a|)", ANY_TEXT),
    ("^$", EMPTY),
    ("$^", EMPTY),
    ("a^", NOTHING),
    ("$a", NOTHING),
    ("[]", NOTHING),
    ("\\ud800", NOTHING),
]


@pytest.mark.parametrize("pattern, content", CONTENTS, ids=[pattern for pattern, _ in CONTENTS])
def test_contents_are_small(pattern: str, content: Expression) -> None:
    assert pattern_content(pattern) == content


ECMA = [
    (r"^\s$", "\ufeff\u00a0\u2029\u3000\v\f ", "\x85\x1c\u200b"),
    (r"^\S$", "\x85a😀", "\u2028 "),
    (r"^\d$", "07", "٣"),
    (r"^\w$", "a_9", "é\u212a"),
    (r"^\W$", "é-", "_"),
    (".", "é😀\x85\v", "\n\r\u2028\u2029"),
    ("^[^]$", "\na😀", ""),
    (r"^[\b]$", "\b", "b"),
    (r"^\cJ$", "\n", "J"),
    (r"^\0$", "\0", "0"),
    (r"^\x41$", "A", "x"),
    (r"^\u{1F600}$", "😀", "u"),
    (r"^\ud83d\ude00$", "😀", "\ufffd"),
    (r"^[\ud83d\ude00-\ud83d\ude02]$", "😀😂", "😃"),
    (r"^[^\ud800-\udfff]$", "a😀\ufffd", ""),
    (r"^[\w-z]$", "-z_", "."),
    (r"^[a-\d]$", "a-5", "b"),
    (r"^[+--]$", "+,-", "."),
    (r"^[&&a]$", "&a", "b"),
    (r"^[[a]$", "[a", "b"),
    (r"^]}{$", "", "]"),
    (r"^\p{Letter}$", "éπ", "1"),
    (r"^\p{Script=Greek}$", "π", "p"),
    (r"^\P{Lu}$", "aé1", "É"),
    (r"^\p{digit}$", "৪4", "a"),
    ("^(?<year>a)$", "a", "b"),
    ("^(?P<year>a)$", "a", "b"),
    ("(?i)^é$", "éÉ", "e"),
    ("^(?i:a)$", "aA", "b"),
    ("(?s)^.$", "\na", ""),
    ("^(?=.*a)(?=.*1).$", "", "a1"),
    ("^a*?$", "a", "b"),
    (r"^\-\_\@\é$", "", "-"),
]


@pytest.mark.parametrize("pattern, found, missing", ECMA, ids=[pattern for pattern, *_ in ECMA])
def test_what_differs_from_other_flavours(pattern: str, found: str, missing: str) -> None:
    for text in found:
        assert matches(pattern, text), text
    for text in missing:
        assert not matches(pattern, text), text


def test_longer_texts() -> None:
    assert matches("^]}{$", "]}{")
    assert matches(r"^\-\_\@\é$", "-_@é")
    assert matches("^(?=.*a)(?=.*1)", "b1ca") and not matches("^(?=.*a)(?=.*1)", "bb1c")
    assert matches("^a|b$", "axx") and matches("^a|b$", "xxb") and not matches("^a|b$", "xbx")
    assert not matches("^abc$", "abc\n")
    assert matches("a{", "xa{") and matches("a{}", "a{}") and matches("{a}", "{a}")
    assert matches("^(?:(?!no).)*$", "yes") and not matches("^(?:(?!no).)*$", "ano")
    # Both sides of an anchor within a repeated group.
    assert matches("(?:^a|b$)+", "ab") and matches("^(?:a$|ab)+$", "aba") and not matches("^(?:a$|ab)+$", "aab")


REFUSED = [
    (r"(a)\1", GrammarUnsupported, "back-reference", 4),
    (r"(?<n>a)\k<n>", GrammarUnsupported, "back-reference", 8),
    ("(?<=a)b", GrammarUnsupported, "lookbehind", 1),
    ("(?<!a)b", GrammarUnsupported, "lookbehind", 1),
    (r"\ba", GrammarUnsupported, "word boundary", 1),
    (r"a\B", GrammarUnsupported, "non-boundary", 2),
    (r"\Aa", GrammarUnsupported, "write ^", 1),
    (r"a\Z", GrammarUnsupported, "write $", 2),
    (r"\a", GrammarUnsupported, "no escape of ECMA 262", 1),
    (r"[\q]", GrammarUnsupported, "no escape of ECMA 262", 2),
    ("[[:alpha:]]", GrammarUnsupported, "POSIX", 2),
    ("a{,3}", GrammarUnsupported, "{0,...}", 2),
    ("(?m)^a", GrammarUnsupported, "flag m", 1),
    ("(?x)a", GrammarUnsupported, "flags x", 1),
    ("a++", GrammarUnsupported, "possessive", 2),
    ("(?>a)", GrammarUnsupported, "atomic", 1),
    (r"\pL", GrammarSyntaxError, "braces", 1),
    (r"\x{41}", GrammarSyntaxError, "two hexadecimal digits", 1),
    (r"\u{110000}", GrammarSyntaxError, "10FFFF", 1),
    (r"\p{Nonsense}", GrammarSyntaxError, "unknown character property", 1),
    ("(a", GrammarSyntaxError, "not closed", 1),
    ("a)", GrammarSyntaxError, "closes no group", 2),
    ("[a", GrammarSyntaxError, "not closed", 1),
    ("[b-a]", GrammarSyntaxError, "wrong order", 2),
    ("*a", GrammarSyntaxError, "nothing to repeat", 1),
    ("^*", GrammarSyntaxError, "anchor", 2),
    ("a{2,1}", GrammarSyntaxError, "wrong order", 2),
    ("a\\", GrammarSyntaxError, "backslash", 2),
    ("\ud800", GrammarSyntaxError, "lone surrogate", 1),
    ("a{2000000}", GrammarTooLarge, "limit", 2),
]


@pytest.mark.parametrize("pattern, kind, message, column", REFUSED, ids=[ascii(pattern) for pattern, *_ in REFUSED])
def test_what_is_refused_is_named_with_its_place(
    pattern: str, kind: type[GrammarError], message: str, column: int
) -> None:
    with pytest.raises(kind, match=re.escape(message)) as caught:
        pattern_content(pattern)
    assert caught.value.place == f"column {column}"


# Lengths, bounds, emptiness


@given(patterns(), st.lists(TEXT, min_size=1, max_size=6))
def test_lengths_are_bounds(pattern: str, texts: list[str]) -> None:
    content = pattern_content(pattern)
    low, high = lengths(content)
    for text in texts:
        if accepts(content, text):
            assert low <= len(text) and (high is None or len(text) <= high)


@given(patterns(), st.integers(0, 4), st.integers(0, 6), st.lists(TEXT, min_size=1, max_size=6))
def test_bounds_within_an_expression(pattern: str, minimum: int, maximum: int, texts: list[str]) -> None:
    content = pattern_content(f"^(?:{pattern})$")
    for upper in (maximum, None):
        inner = bounded(content, minimum, upper)
        for text in texts:
            wanted = accepts(content, text) and minimum <= len(text) and (upper is None or len(text) <= upper)
            assert inner is None or accepts(inner, text) == wanted


BOUNDED = [
    ("^[a-z]+$", 0, 64, Repeat(Characters(((97, 122),)), 1, 64)),
    ("^[a-z]+$", 3, None, Repeat(Characters(((97, 122),)), 3, None)),
    ("^(?:ab)*$", 3, 9, Repeat(Bytes(b"ab"), 2, 4)),
    ("^a[0-9]*b$", 0, 10, Sequence((Bytes(b"a"), Repeat(Characters(((48, 57),)), 0, 8), Bytes(b"b")))),
    ("^a[0-9]*b$", 0, 1, NOTHING),
    ("^[a-c]{3}$", 4, None, NOTHING),
    ("^[a-c]*$", 0, 0, EMPTY),
    ("a", 0, 5, None),
]


@pytest.mark.parametrize("pattern, minimum, maximum, wanted", BOUNDED, ids=[repr(case[:3]) for case in BOUNDED])
def test_bounds_go_into_repeats(pattern: str, minimum: int, maximum: int | None, wanted: Expression | None) -> None:
    assert bounded(pattern_content(pattern), minimum, maximum) == wanted


def test_a_part_with_a_few_lengths_becomes_options() -> None:
    inner = bounded(pattern_content("^https?://.+$"), 0, 1000)
    assert inner is not None and not contains(inner, Intersection)
    assert accepts(inner, "https://" + "é" * 992) and not accepts(inner, "https://" + "é" * 993)
    assert accepts(inner, "http://" + "é" * 993) and not accepts(inner, "http://" + "é" * 994)
    assert not accepts(inner, "http://")


def test_emptiness_is_exact() -> None:
    left, right = pattern_content("^.*[ab].{20}$"), pattern_content("^.*[cd].{20}$")
    assert is_empty(Intersection((left, right)))
    assert not is_empty(Intersection((left, pattern_content("^.*[cd].{19}$"))))
    some = pattern_content("^(a|é)*b?$")
    assert is_empty(Intersection((some, Complement(some)))) and not is_empty(Complement(some))
    assert is_empty(NOTHING) and is_empty(Repeat(NOTHING, 1, None)) and not is_empty(EMPTY)
    assert is_empty(pattern_content("^(?=a)b$")) and not is_empty(pattern_content("^(?=a)[ab]$"))


def test_matching_needs_no_small_dfa() -> None:
    pattern = "^.*[ab].{20}$"
    chance = random.Random(2)
    for _ in range(50):
        text = "".join(chance.choice("abcdé") for _ in range(chance.randint(0, 40)))
        assert matches(pattern, text) == (re.search(pattern, text) is not None)


def test_emptiness_has_limits() -> None:
    limits = Limits(max_product_states=20)
    with pytest.raises(GrammarTooLarge):
        is_empty(Intersection((pattern_content("^[ab]{30}$"), Repeat(ANY_CHARACTER, 10, 30))), limits)


def test_deep_nesting_is_no_crash() -> None:
    for depth in (50, 200, 249):
        pattern = "^" + "(?:a(?:b|" * (depth // 2) + "c" + ")*)?" * (depth // 2) + "$"
        try:
            assert matches(pattern, "aabb" * (depth // 2))
        except GrammarTooLarge as error:
            assert depth > 100 and error.limit == "max_depth"


def test_lone_surrogates_are_characters_of_no_kind() -> None:
    assert matches("^.$", "\ud800") and not matches("[a-zé]", "\udfff") and matches("^[^a]{2}$", "\ud800😀")


# Real patterns


def schemas_and_instances() -> Iterator[tuple[Any, list[Any]]]:
    with gzip.open(DATA / "data" / "maskbench.dev.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            yield entry["schema"], [test["data"] for test in entry["tests"]]
    with tarfile.open(DATA / "data" / "json-schema-test-suite.tar.gz") as archive:
        for member in archive:
            if member.isfile() and "tests/draft" in member.name and member.name.endswith(".json"):
                file = archive.extractfile(member)
                assert file is not None
                for group in json.load(file):
                    yield group["schema"], [test["data"] for test in group["tests"]]


def strings_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from strings_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings_in(inner)


def patterns_in(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        if isinstance(schema.get("patternProperties"), dict):
            yield from schema["patternProperties"]
    if isinstance(schema, dict | list):
        for inner in schema.values() if isinstance(schema, dict) else schema:
            yield from patterns_in(inner)


@pytest.mark.skipif(not (DATA / "data").is_dir(), reason="the shared data is not here")
def test_real_patterns_are_parsed_or_refused_by_name_and_agree_with_javascript() -> None:
    found: dict[str, list[str]] = {}
    for schema, instances in schemas_and_instances():
        texts = list(dict.fromkeys(strings_in(instances)))[:40]
        for pattern in patterns_in(schema):
            found[pattern] = [*found.get(pattern, []), *texts][:60]
    assert len(found) > 1_000
    chance = random.Random(1)
    jobs, refused = [], []
    for pattern, texts in sorted(found.items()):
        try:
            content = pattern_content(pattern)
        except GrammarUnsupported as error:
            refused.append(error.message)
            continue
        texts = [*texts, *(changed(text, chance) for text in texts[:20])]
        jobs.append((pattern, texts, [accepts(content, text) for text in texts]))
    assert len(refused) <= 2 and all("word boundary" in why or "back-reference" in why for why in refused)
    if NODE is None:
        return
    # A backtracking engine may go on for ever: such a pattern is left out.
    script = """
        const vm = require("vm");
        const jobs = JSON.parse(require("fs").readFileSync(0));
        const compile = (p) => { try { return new RegExp(p, "u") } catch { return new RegExp(p) } };
        const found = ([p, texts]) => {
            const context = vm.createContext({ pattern: compile(p), texts });
            try { return [...vm.runInContext("texts.map((t) => pattern.test(t))", context, { timeout: 2000 })] }
            catch { return null }
        };
        console.log(JSON.stringify(jobs.map(found)));
    """
    text = json.dumps([job[:2] for job in jobs])
    answer = subprocess.run([NODE, "-e", script], input=text, capture_output=True, text=True, check=True, timeout=300)
    answers = json.loads(answer.stdout)
    assert answers.count(None) < 10
    for (pattern, texts, ours), theirs in zip(jobs, answers, strict=True):
        if theirs is None:
            continue
        different = [t for t, mine, other in zip(texts, ours, theirs, strict=True) if mine != other]
        assert not different, pattern


def changed(text: str, chance: random.Random) -> str:
    at = chance.randrange(len(text) + 1)
    return text[:at] + chance.choice('aZ0 _-./:é😀\n\u2028"\\') + text[at + chance.randrange(2) :]


def test_matching_uses_no_more_than_the_expression_says() -> None:
    content = pattern_content("^a(b|é)*$")
    for text in ("a", "abé", "abx", "", "é"):
        assert accepts(content, text) == expression_matches(content, text)
