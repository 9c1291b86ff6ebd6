"""Structural tags: by splitting the text, by an Earley oracle, as compiled, and against xgrammar."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterable
from types import ModuleType

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tag_formats import Format, by_matcher, by_oracle, literal, regex_format, strings_of, tag, triggered

from stepmask.grammar.errors import (
    GrammarUnsatisfiable,
)
from stepmask.grammar.structural_tag import structural_tag


def tags_split(
    text: str,
    triggers: list[str],
    tags: list[tuple[str, str, str]],
    excludes: Iterable[str] = (),
    *,
    stop: bool = False,
) -> bool:
    """Whether `text` is free text with tags (begin, pattern, end), found by looking for what is complete first."""

    def rest(position: int) -> bool:
        for end in range(position, len(text) + 1):
            read = text[position:end]
            if any(read.endswith(exclude) for exclude in excludes):
                return False
            found = [trigger for trigger in triggers if read.endswith(trigger)]
            if found:
                return any(after_tag(end - len(trigger), trigger) for trigger in found)
        return True

    def after_tag(position: int, trigger: str) -> bool:
        return any(
            rest(end) if not stop else end == len(text)
            for begin, pattern, closing in tags
            if begin.startswith(trigger) and text.startswith(begin, position)
            for end in ends(position + len(begin), pattern, closing)
        )

    def ends(position: int, pattern: str, closing: str) -> list[int]:
        return [
            end + len(closing)
            for end in range(position, len(text) + 1)
            if text.startswith(closing, end) and re.fullmatch(pattern, text[position:end])
        ]

    return rest(0)


TRIGGERS = ["<", "<a", "<b", "aa", "ab", "aba", "bb", "<<", "é", "a<a"]
PATTERNS = ["", "x", "a*", "[ab]+", "^<?$", "(?!a).*", "é|", "<a"]
CLOSINGS = [">", "/", "a", "aa", "<", "é"]


@st.composite
def tag_sets(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, str, str]], list[str]]:
    triggers = draw(st.lists(st.sampled_from(TRIGGERS), min_size=1, max_size=3, unique=True))
    begins = [trigger + draw(st.sampled_from(["", "", "a", "b>", "é"])) for trigger in triggers]
    begins += [draw(st.sampled_from(triggers)) + "b" for _ in range(draw(st.integers(0, 1)))]
    tags = [(begin, draw(st.sampled_from(PATTERNS)), draw(st.sampled_from(CLOSINGS))) for begin in begins]
    return triggers, tags, draw(st.lists(st.sampled_from(["b<", "aab", "ba", "é<", ">"]), max_size=2, unique=True))


TEXTS = st.lists(st.sampled_from(["a", "b", "<", ">", "é", "x", "/", "<a", "<b", "aa", "ab>"]), max_size=9).map("".join)


@given(tag_sets(), st.booleans(), st.booleans(), st.lists(TEXTS, min_size=5, max_size=20))
def test_same_as_splitting_the_text(
    tag_set: tuple[list[str], list[tuple[str, str, str]], list[str]], first: bool, stop: bool, texts: list[str]
) -> None:
    triggers, tags, excludes = tag_set
    try:
        grammar = structural_tag(triggered(triggers, tags, excludes, at_least_one=first, stop_after_first=stop))
    except GrammarUnsatisfiable as error:
        hidden = [
            t for t in triggers for o in triggers if o != t and o in t and not t.startswith(o) and not t.endswith(o)
        ]
        assert hidden or any(exclude in trigger for trigger in triggers for exclude in excludes), error
        return
    compiled = by_matcher(grammar)
    for text in texts:
        if first:
            wanted = any(
                (end == len(text) if stop else tags_split(text[end:], triggers, tags, excludes))
                for begin, pattern, closing in tags
                if text.startswith(begin)
                for end in range(len(begin), len(text) + 1)
                if text.endswith(closing, len(begin), end)
                and re.fullmatch(pattern, text[len(begin) : end - len(closing)])
                and end - len(closing) >= len(begin)
            )
        else:
            wanted = tags_split(text, triggers, tags, excludes, stop=stop)
        assert compiled(text)[0] == wanted, text


@given(tag_sets(), st.lists(TEXTS, min_size=3, max_size=8))
def test_oracle_and_compiled_agree(
    tag_set: tuple[list[str], list[tuple[str, str, str]], list[str]], texts: list[str]
) -> None:
    triggers, tags, excludes = tag_set
    tags = [(begin, pattern if pattern[:1] not in "^(" else "[ab]*", end) for begin, pattern, end in tags]
    try:
        grammar = structural_tag(triggered(triggers, tags, excludes))
    except GrammarUnsatisfiable:
        return
    oracle, compiled = by_oracle(grammar), by_matcher(grammar)
    for text in texts:
        for size in range(len(text) + 1):
            assert oracle(text[:size]) == compiled(text[:size]), text[:size]


@pytest.mark.parametrize(
    ("triggers", "excludes"),
    [(["aa", "aba"], ["bbb"]), (["aba"], ["bab"]), (["ab"], ["bb"]), (["aab", "bb"], ["abaa"])],
)
def test_every_short_text(triggers: list[str], excludes: list[str]) -> None:
    tags = [(triggers[0], "b?", "a"), (triggers[-1] + "b", "", "b")]
    verdict = by_oracle(structural_tag(triggered(triggers, tags, excludes)))
    texts = ["".join(letters) for size in range(9) for letters in itertools.product("ab", repeat=size)]
    complete = {text for text in texts if tags_split(text, triggers, tags, excludes)}
    assert {text for text in texts if verdict(text)[0]} == complete
    # A tag that has begun can be ended within four characters, so this is exact for the shorter ones.
    alive = {text[:size] for text in complete for size in range(len(text) + 1)}
    assert {text for text in texts if len(text) < 5 and verdict(text)[1]} == {text for text in alive if len(text) < 5}


# --- xgrammar ---


@pytest.fixture(scope="module")
def xgrammar() -> ModuleType:
    return pytest.importorskip("xgrammar")


def by_xgrammar(module: ModuleType, value: Format) -> Callable[[str], bool]:
    from xgrammar.testing import _is_grammar_accept_string

    grammar = module.Grammar.from_structural_tag(json.dumps({"type": "structural_tag", "format": value}))
    return lambda text: bool(_is_grammar_accept_string(grammar, text))


@given(tag_sets(), st.booleans(), st.booleans(), st.lists(TEXTS, min_size=5, max_size=12))
def test_triggered_tags_as_in_xgrammar(
    xgrammar: ModuleType,
    tag_set: tuple[list[str], list[tuple[str, str, str]], list[str]],
    first: bool,
    stop: bool,
    texts: list[str],
) -> None:
    triggers, tags, excludes = tag_set
    # Not where we differ: a trigger or excluded text within another one, lookaheads, and empty patterns.
    strings = [*triggers, *excludes]
    assume(not any(a != b and a in b for a in strings for b in strings))
    tags = [(begin, "[ab]+" if pattern in ("", "^<?$", "(?!a).*") else pattern, end) for begin, pattern, end in tags]
    value = triggered(triggers, tags, excludes, at_least_one=first, stop_after_first=stop)
    ours, theirs = by_matcher(structural_tag(value)), by_xgrammar(xgrammar, value)
    for text in texts:
        assert ours(text)[0] == theirs(text), text


CALLS = [tag("<f=a>", "[0-9]+", "</f>"), tag("<f=b>", "[a-z]*", ["</f>", "</b>"])]
THINK = tag("<think>", {"type": "any_text"}, "</think>")
FORMATS: list[tuple[Format, str, str]] = [
    (literal("<é>"), "<é>", "|<|<é>x"),
    (regex_format("^a+$"), "a|aaa", "|b|aab"),
    ({"type": "any_text"}, "|x|<f>\n", ""),
    ({"type": "any_text", "excludes": ["ab", "<"]}, "|a|ba|aa", "ab|<|xabx"),
    ({"type": "any_text", "max_chars": 2}, "|a|éé", "abc|ééé"),
    ({"type": "any_text", "excludes": ["ab"], "max_chars": 3}, "|aab"[:3] + "|éaé", "aab|abab|aaaa"),
    ({"type": "any_text", "max_tokens": 0}, "", "a"),
    ({"type": "any_text", "max_tokens": None, "excludes": ["<"]}, "|a", "<"),
    ({"type": "sequence", "elements": [literal("a"), regex_format("b+")]}, "ab|abb", "|a|b|ba"),
    ({"type": "or", "elements": [literal("a"), regex_format("b+")]}, "a|b|bb", "|ab"),
    ({"type": "optional", "content": literal("a")}, "|a", "aa"),
    ({"type": "star", "content": literal("ab")}, "|ab|abab", "a|aba"),
    ({"type": "plus", "content": literal("ab")}, "ab|abab", "|a|aba"),
    ({"type": "repeat", "min": 2, "max": 3, "content": regex_format("[ab]")}, "ab|bbb", "|a|abab"),
    ({"type": "repeat", "min": 1, "max": -1, "content": literal("a")}, "a|aaaa", "|b"),
    ({"type": "repeat", "min": 0, "max": 0, "content": literal("a")}, "", "a"),
    (tag("<a>", "x*", "</a>"), "<a></a>|<a>xx</a>", "|<a>|<a>x</b>"),
    (tag("<a>", "x*", ["</a>", "</b>"]), "<a></a>|<a>x</b>", "<a>x|<a>x</a></b>"),
    (
        THINK,
        "<think></think>|<think>a</think</think>",
        "<think>|x<think></think>|<think></think>x|<think></think></think>",
    ),
    (
        tag("<t>", {"type": "sequence", "elements": [{"type": "any_text"}, literal("!")]}, "</t>"),
        "<t>!</t>|<t>a!!</t>",
        "<t></t>|<t>a</t>!</t>",
    ),
    (
        triggered(["<f="], []) | {"tags": CALLS},
        "|a|<f|<f=a>1</f>|x<f=b></b>y<f=a>0</f>",
        "<f=|<f=c>|<f=a></f>|<f=a>1</b>",
    ),
    (
        triggered(["<f="], []) | {"tags": CALLS, "at_least_one": True},
        "<f=a>1</f>|<f=a>1</f>x<f=b></f>",
        "|x|x<f=a>1</f>",
    ),
    (
        triggered(["<f="], []) | {"tags": CALLS, "stop_after_first": True},
        "|x|x<f=a>1</f>",
        "<f=a>1</f>x|<f=a>1</f><f=a>1</f>",
    ),
    (
        triggered(["<f="], []) | {"tags": CALLS, "stop_after_first": True, "at_least_one": True},
        "<f=a>1</f>|<f=b>x</b>",
        "|x|x<f=a>1</f>|<f=a>1</f>x",
    ),
    (triggered(["<f=a", "<f=b"], []) | {"tags": CALLS}, "<f=|<f=c|<f=a>1</f>", "<f=a|<f=ab"),
    (triggered(["<f="], []) | {"tags": CALLS, "excludes": ["no"]}, "n|<f=b>no</f>", "no|a no"),
    (
        tag("<r>", triggered(["<f="], []) | {"tags": CALLS}, "</r>"),
        "<r></r>|<r>a<f=a>1</f>b</r>|<r><f=b></b></r>",
        "<r>|<r></r></r>|<r></r>x",
    ),
    (
        {"type": "tags_with_separator", "tags": CALLS, "separator": ", "},
        "|<f=a>1</f>|<f=a>1</f>, <f=b></b>",
        ", |<f=a>1</f>, |x",
    ),
    (
        {"type": "tags_with_separator", "tags": CALLS, "separator": "", "at_least_one": True},
        "<f=a>1</f>|<f=a>1</f><f=b></b>",
        "|<f=a>1</f>,<f=b></b>",
    ),
    (
        {"type": "tags_with_separator", "tags": CALLS, "separator": ",", "stop_after_first": True},
        "|<f=a>1</f>",
        "<f=a>1</f>,<f=b></b>",
    ),
    (
        {"type": "dispatch", "rules": [["<a", regex_format("1+")], ["<b", literal("!")]]},
        "|<|<a1<b!x|<a11",
        "<a|<b|<b1|<ax",
    ),
    ({"type": "dispatch", "rules": [["<a", literal("1")]], "loop": False}, "|x|x<a1", "<a1x|<a1<a1"),
    ({"type": "dispatch", "rules": [["<a", literal("1")]], "excludes": ["</"]}, "|x|<a1<", "</|<a1</"),
    (
        tag("<r>", {"type": "dispatch", "rules": [["<a", literal("1")]], "excludes": ["</r>"]}, "</r>"),
        "<r></r>|<r>x<a1</r>",
        "<r></r></r>|<r><a</r>",
    ),
    (
        {"type": "sequence", "elements": [THINK, triggered(["<f="], []) | {"tags": CALLS}]},
        "<think></think>|<think><f=</think>a<f=a>1</f>",
        "|a",
    ),
]


@pytest.mark.parametrize(("value", "taken", "refused"), FORMATS, ids=lambda value: str(value)[:40])
def test_formats(xgrammar: ModuleType, value: Format, taken: str, refused: str) -> None:
    grammar = structural_tag({"type": "structural_tag", "format": value})
    theirs = by_xgrammar(xgrammar, value)
    for verdict in (by_oracle(grammar) if "^" not in str(value) else by_matcher(grammar), by_matcher(grammar)):
        for texts, expected in ((taken, True), (refused, False)):
            for text in texts.split("|") if texts or expected else []:
                assert verdict(text)[0] == expected, text
                assert theirs(text) == expected, text


def test_differences_from_xgrammar(xgrammar: ModuleType) -> None:
    # A trigger within what may become a longer one.
    value = triggered(["abcd", "bc"], [("abcd", "x", "/"), ("bc", "y", "/")])
    with pytest.raises(GrammarUnsatisfiable, match="'abcd'"):
        structural_tag(value)
    value = triggered(["abd", "b"], [("b", "y", "/"), ("abd", "x", "/")])
    with pytest.raises(GrammarUnsatisfiable, match="'abd'"):
        structural_tag(value)
    value = triggered(["<ab", "b<a"], [("<ab", "x", "/"), ("b<a", "y", "/")])
    text = "b<ay/"
    assert by_matcher(structural_tag(value))(text)[0] and by_xgrammar(xgrammar, value)(text)
    # One tag for two triggers: the shorter one is always the first.
    value = triggered(["<", "<a"], [("<a", "x", "/"), ("<b", "x", "/")])
    with pytest.raises(Exception, match="multiple triggers"):
        by_xgrammar(xgrammar, value)
    assert by_matcher(structural_tag(value))("a<ax/<bx/")[0]


MODELS = ["llama", "qwen_3", "qwen_3_5", "qwen_3_coder", "kimi", "deepseek_r1", "deepseek_v3_1", "deepseek_v3_2"]
MODELS += ["minimax", "glm_4_7", "deepseek_v4", "deepseek_v4_1", "exaone", "harmony"]


@pytest.mark.parametrize(("model", "choice"), [*zip(MODELS, ["auto", "required"] * 7, strict=True)])
def test_what_xgrammar_writes_for_models(xgrammar: ModuleType, model: str, choice: str) -> None:
    functions = [{"name": name, "parameters": {"type": "object"}} for name in ("f", "g")]
    tools = [{"type": "function", "function": function} for function in functions]
    value = xgrammar.get_model_structural_tag(model, tools=tools, tool_choice=choice, exclude_special_tokens=False)
    value = json.loads(value.model_dump_json())["format"]
    strings = [text for text in strings_of(value) if text]
    ours, theirs = by_oracle(structural_tag(value)), by_xgrammar(xgrammar, value)
    pieces = [*dict.fromkeys(strings), "{}", '{"a": [1, "x"]}', "text", "\n", "0"]
    # Walks that go on only where the text may, by the piece least used: nearly all random texts would be dead.
    taken = 0
    for seed in range(4):
        text = ""
        for step in range(16):
            order = sorted(pieces, key=lambda piece: (text.count(piece), hash_of(f"{seed} {step} {piece}")))
            for piece in [*order[:3], ""]:
                assert ours(text + piece)[0] == theirs(text + piece), text + piece
            taken += ours(text)[0]
            text = next((text + piece for piece in order if ours(text + piece)[1]), text)
    assert taken


def hash_of(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
