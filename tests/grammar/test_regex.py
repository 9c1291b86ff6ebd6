"""The regex parser: what its expressions match, against Python's `re` and interegular, and on real inputs."""

from __future__ import annotations

import gzip
import json
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import interegular
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import expression_matches

from stepmask.grammar.errors import GrammarError, GrammarSyntaxError
from stepmask.grammar.expression import (
    ALL_CODE_POINTS,
    Alternation,
    Bytes,
    Characters,
    Expression,
    Grammar,
)
from stepmask.grammar.regex import regex

DATA = Path(os.environ.get("STEPMASK_DATA", Path(__file__).parents[3] / "shared"))


def nodes(expression: Expression) -> Iterator[Expression]:
    yield expression
    for name in ("parts", "options"):
        for part in getattr(expression, name, ()):
            yield from nodes(part)
    for name in ("body", "operand"):
        if hasattr(expression, name):
            yield from nodes(getattr(expression, name))


# Random patterns in the syntax that Python shares. `$` is written \Z for Python, whose `$` allows a newline after it.

LITERALS = ["a", "b", "ab", "A", "1", "-", "é", "\n", " ", r"\.", r"\-", r"\n", r"\x61", r"\u00e9", "]", "k", "İ"]
CLASSES = [
    "[ab]",
    "[^a]",
    "[a-c1]",
    r"[^\d]",
    r"[\w-]",
    "[]a]",
    "[^]a]",
    r"[\n\x61-b]",
    "[é-ü]",
    "[-a]",
    "[a-]",
    "[^a-zA-Z]",
]
SETS = [".", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S"]
QUANTIFIERS = ["*", "+", "?", "{2}", "{1,2}", "{,2}", "{1,}", "{0}", "{,}", "*?", "+?", "??", "{1,2}?"]
TEXTS = st.text("abAB1-é\n K]ci", max_size=5)

plain_atoms = st.sampled_from(["a", "b", "ab", "1", "[ab]", "[^a]", "[a-c1]", "."])
atoms = st.sampled_from([*LITERALS, *CLASSES, *SETS, "^", "$", r"\A"])


def patterns(leaves: st.SearchStrategy[str], groups: list[str]) -> st.SearchStrategy[str]:
    def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        grouped = st.builds(lambda opening, body: f"{opening}{body})", st.sampled_from(groups), inner)
        repeated = st.builds(lambda body, quantifier: f"(?:{body}){quantifier}", inner, st.sampled_from(QUANTIFIERS))
        single = st.builds(str.__add__, leaves, st.sampled_from(QUANTIFIERS))
        sequence = st.lists(inner, max_size=3).map("".join)
        alternation = st.lists(inner, min_size=2, max_size=3).map(lambda options: f"(?:{'|'.join(options)})")
        return grouped | repeated | single | sequence | alternation | st.builds("{}|{}".format, inner, inner)

    return st.recursive(leaves, extend, max_leaves=8)


GROUPS = ["(", "(?:", "(?P<n>", "(?=", "(?!", "(?i:", "(?s:", "(?a:", "(?x:", "(?s-i:", "(?#c)(?:"]
all_patterns = patterns(atoms, GROUPS)


def for_python(pattern: str) -> str:
    """The pattern with names made unique and `$` made to mean the end."""
    number = iter(range(1000))
    return re.sub(r"\?P<n>", lambda _: f"?P<n{next(number)}>", pattern.replace("$", r"\Z"))


def compiled(pattern: str, flags: int) -> re.Pattern[str]:
    try:
        return re.compile(for_python(pattern), flags)
    except re.error as error:
        # Python does not repeat an anchor, which is harmless here; nobody repeats a newline that (?x) takes away.
        assume("nothing to repeat" not in str(error))
        raise


FLAGS = st.sampled_from([0, re.IGNORECASE, re.DOTALL, re.VERBOSE, re.ASCII, re.IGNORECASE | re.ASCII])


def options_of(flags: int) -> dict[str, bool]:
    return {
        "unicode": not flags & re.ASCII,
        "ignore_case": bool(flags & re.IGNORECASE),
        "dotall": bool(flags & re.DOTALL),
        "verbose": bool(flags & re.VERBOSE),
    }


@given(all_patterns, FLAGS, st.lists(TEXTS, min_size=1, max_size=8))
def test_agrees_with_fullmatch(pattern: str, flags: int, texts: list[str]) -> None:
    python = compiled(pattern, flags)
    start = regex(pattern, **options_of(flags)).rules["start"]
    for text in texts:
        assert expression_matches(start, text) == bool(python.fullmatch(text)), text


@given(all_patterns, FLAGS, st.lists(TEXTS, min_size=1, max_size=8))
def test_agrees_with_search(pattern: str, flags: int, texts: list[str]) -> None:
    python = compiled(pattern, flags)
    start = regex(pattern, search=True, **options_of(flags)).rules["start"]
    for text in texts:
        assert expression_matches(start, text) == bool(python.search(text)), text


@given(patterns(plain_atoms, ["(", "(?:"]), st.lists(st.text("ab1c", max_size=5), min_size=1, max_size=8))
def test_agrees_with_interegular(pattern: str, texts: list[str]) -> None:
    assume("{,}" not in pattern and "{,2}" not in pattern)  # interegular takes these for text
    try:
        machine = interegular.parse_pattern(pattern).to_fsm()
    except interegular.InvalidSyntax:
        assume(False)
    start = regex(pattern).rules["start"]
    for text in texts:
        assert expression_matches(start, text) == machine.accepts(text), text


@given(all_patterns.filter(lambda pattern: "(?x" not in pattern))
def test_every_node_says_where_it_stands(pattern: str) -> None:
    for node in nodes(regex(pattern, search=True).rules["start"]):
        if node == Characters(ALL_CODE_POINTS):
            continue
        assert node.source is not None
        column = int(node.source.place.removeprefix("column "))
        assert pattern[column - 1 :].startswith(node.source.text)


def python_error(pattern: str) -> str | None:
    """Why Python refuses the pattern, or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except re.error as error:
        return str(error)
    return None


# What Python refuses and this parser takes on purpose, and the other way round.
MORE = r"nothing to repeat|bad character range|global flags|redefinition|bad escape \\[pP]|incomplete escape \\[xu]"
LESS = "octal|POSIX"


@given(st.text(r"ab[](){}|*+?.^$\-,12:=!<>Pixsdu#&", max_size=12))
def test_any_text_is_parsed_or_refused_with_a_column(text: str) -> None:
    refused = python_error(text)
    try:
        regex(text)
    except GrammarError as error:
        assert error.place is not None
        assert 1 <= int(error.place.removeprefix("column ")) <= len(text)
        if isinstance(error, GrammarSyntaxError):
            assert refused is not None or re.search(LESS, str(error))
    else:
        assert refused is None or re.search(MORE, refused)


# The grammar object, and real inputs


def test_grammar_object() -> None:
    grammar = regex("a+", search=True, unicode=False)
    assert isinstance(grammar, Grammar)
    assert (grammar.kind, grammar.text, grammar.start) == ("regex", "a+", "start")
    assert grammar.options == {
        "unicode": False,
        "search": True,
        "dotall": False,
        "ignore_case": False,
        "verbose": False,
    }
    assert regex("(a)+?").rules == regex("a+").rules


def test_long_lists_of_words() -> None:
    words = [f"word-{number * 7919 % 5000:04}.x" for number in range(5000)]
    expected = tuple(Bytes(word.encode()) for word in words)
    for pattern in ("|".join(map(re.escape, words)), "(" + "|".join(map(re.escape, words)) + ")"):
        start = regex(pattern).rules["start"]
        assert isinstance(start, Alternation) and start.options == expected
        for option in start.options[::500]:
            assert option.source is not None
            column = int(option.source.place.removeprefix("column "))
            assert pattern[column - 1 :].startswith(option.source.text + "|")


CASES = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((DATA / "cases").glob("*.json"))]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES if case["kind"] == "regex"])
def test_reported_cases(case: dict[str, Any]) -> None:
    start = regex(case["grammar"]).rules["start"]
    assert [text for text in case["accept"] if not expression_matches(start, text)] == []
    assert [text for text in case["reject"] if expression_matches(start, text)] == []


@pytest.mark.skipif(not (DATA / "data" / "hard.dev.jsonl.gz").exists(), reason="needs the shared data")
def test_hard_inputs() -> None:
    count = 0
    with gzip.open(DATA / "data" / "hard.dev.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            case = json.loads(line)
            if case["kind"] != "regex":
                continue
            start = regex(case["grammar"]).rules["start"]
            count += 1
            for test in case["tests"]:
                if len(test["text"]) < 100:
                    assert expression_matches(start, test["text"]) == test["valid"], case["id"]
    assert count > 5
