"""A reasoning section before a grammar's text."""

from __future__ import annotations

import functools
import itertools
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mask_sets import byte_vocabulary
from tag_formats import Verdict, by_matcher, by_oracle, token_verdict, token_vocabulary

from stepmask.grammar.errors import GrammarSyntaxError, GrammarUnsupported
from stepmask.grammar.expression import Grammar, Reference, Sequence, StartAnchor
from stepmask.grammar.json_value import json_value
from stepmask.grammar.reasoning import reasoning
from stepmask.grammar.regex import regex
from stepmask.masks.compiled import compile
from stepmask.masks.vocabulary import VocabularyError

ANSWER = "ab*|x"
PIECES = ["<think>", "</think>", "</thi", "nk>", "a", "b", "x", "\n", "é", "<"]


def after_section(text: str, begin: str, end: str) -> str | None:
    """What follows the section that `text` begins with; None where there is none."""
    if not text.startswith(begin):
        return None
    _, found, rest = text[len(begin) :].partition(end)
    return rest if found else None


@functools.cache
def verdict_of(begin: str | None, end: str, optional: bool) -> Verdict:
    """Under a reasoning section before `ANSWER`."""
    return by_matcher(reasoning(regex(f"^(?:{ANSWER})$"), begin, end, optional=optional))


@given(st.lists(st.sampled_from(PIECES), max_size=7).map("".join))
def test_same_as_splitting_the_text(text: str) -> None:
    begin, end = "<think>", "</think>"
    rest = after_section(text, begin, end)
    answered = rest is not None and re.fullmatch(ANSWER, rest) is not None
    assert verdict_of(begin, end, False)(text)[0] == answered
    assert verdict_of(begin, end, True)(text)[0] == (answered or re.fullmatch(ANSWER, text) is not None)
    rest = after_section(text, "", end)
    assert verdict_of(None, end, False)(text)[0] == (rest is not None and re.fullmatch(ANSWER, rest) is not None)


@given(st.text("-a\n", max_size=8))
def test_the_section_ends_where_its_end_is_first_complete(text: str) -> None:
    for end in ("--", "-a-", "\n\n", "aa-aa"):
        rest = after_section(text, "", end)
        expected = rest is not None and re.fullmatch(ANSWER, rest) is not None
        assert verdict_of(None, end, False)(text)[0] == expected


def test_oracle_and_compiled_agree() -> None:
    oracle = by_oracle(reasoning(regex(ANSWER), None, "-a-"))
    compiled = by_matcher(reasoning(regex(ANSWER), None, "-a-"))
    for size in range(7):
        for letters in itertools.product("-ab", repeat=size):
            assert oracle("".join(letters)) == compiled("".join(letters))


def test_any_answer() -> None:
    verdict = by_oracle(reasoning(json_value(), "<think>\n", "\n</think>\n\n"))
    assert verdict('<think>\nI see </think> {\n</think>\n\n{"a": 1}')[0]
    assert verdict("<think>\n\n</think>\n\n{")[1]
    assert not verdict("<think>{")[1] and not verdict("<think>\n\n</think>\n\n\n")[1]


def test_special_tokens() -> None:
    vocabulary = token_vocabulary()
    for begin, end in (
        ({"token": "<|call|>"}, {"token": "<|end|>"}),
        ({"type": "token", "token": 256}, {"token": 257}),
    ):
        accepts = token_verdict(compile(reasoning(regex("^a$"), begin, end), vocabulary, use_cache=False))
        assert accepts(256, 257, "a") and accepts(256, "<|end|>é", 257, "a")
        assert not accepts(256, "x", 257) and not accepts("a") and not accepts(256, 258, 257, "a")
    accepts = token_verdict(compile(reasoning(regex("a"), None, {"token": 257}), vocabulary, use_cache=False))
    assert accepts("x", 257, "a") and not accepts(256, "x", 257, "a")
    accepts = token_verdict(
        compile(reasoning(regex("a"), {"token": 256}, "</think>", optional=True), vocabulary, use_cache=False)
    )
    assert accepts("a") and accepts(256, "x</think>a") and not accepts("x</think>a")
    with pytest.raises(VocabularyError, match="call"):
        compile(reasoning(regex("a"), {"token": "<|call|>"}), byte_vocabulary(), use_cache=False)


def test_within_itself() -> None:
    verdict = by_matcher(reasoning(reasoning(regex("a"), "<1>", "</1>"), "<2>", "</2>"))
    assert verdict("<2></1></2><1></2></1>a")[0] and not verdict("<2></2>a")[0]


@pytest.mark.parametrize(
    ("arguments", "options", "error", "what"),
    [
        (("a",), {}, TypeError, "grammar"),
        ((regex("a"), ""), {}, GrammarSyntaxError, "begin"),
        ((regex("a"), "<", ""), {}, GrammarSyntaxError, "end"),
        ((regex("a"), "<", "\ud800"), {}, GrammarSyntaxError, "surrogate"),
        ((regex("a"), "<", 7), {}, TypeError, "end"),
        ((regex("a"), {"token": ""}), {}, GrammarSyntaxError, "begin/token"),
        ((regex("a"), {"token": 1, "id": 2}), {}, GrammarUnsupported, "begin/id"),
        ((regex("a"), None), {"optional": True}, ValueError, "optional"),
        (
            (Grammar("", "", {"start": Sequence((StartAnchor(), Reference("start")))}),),
            {},
            GrammarUnsupported,
            "anchors",
        ),
    ],
)
def test_what_is_refused(arguments: Any, options: Any, error: type[Exception], what: str) -> None:
    with pytest.raises(error, match=what):
        reasoning(*arguments, **options)
