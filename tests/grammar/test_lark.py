"""Lark grammars: the texts that they match, against lark's own Earley parser with the complete dynamic lexer."""

from __future__ import annotations

import functools
import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import lark
import pytest
from earley import Earley
from hypothesis import assume, given
from hypothesis import strategies as st
from lark_grammars import GRAMMARS
from sentences import Sentences, near

import stepmask
from stepmask.grammar.expression import Grammar, Repeat, Token
from stepmask.grammar.limits import Limits

DATA = Path(os.environ.get("STEPMASK_DATA", Path(__file__).parents[3] / "shared"))


def parser(text: str) -> lark.Lark:
    return lark.Lark(text, parser="earley", lexer="dynamic_complete")


def parses(known: lark.Lark, text: str) -> bool:
    try:
        known.parse(text)
    except lark.UnexpectedInput:
        return False
    return True


def oracle(grammar: Grammar) -> Earley:
    return Earley(grammar.rules, grammar.start)


@functools.cache
def loaded(name: str) -> tuple[lark.Lark, Earley, Sentences, str]:
    text, letters = GRAMMARS[name]
    grammar = stepmask.lark(text)
    return parser(text), oracle(grammar), Sentences(grammar.rules, grammar.start), letters


@pytest.mark.parametrize("name", GRAMMARS)
@given(seed=st.integers(0, 2**32))
def test_grammars_that_people_use(name: str, seed: int) -> None:
    known, grammar, sentences, letters = loaded(name)
    chance = random.Random(seed)
    text = sentences.text(chance)
    assume(len(text) < 60)
    assert grammar.complete(text.encode())
    assert parses(known, text)
    for _ in range(2):
        other = near(text, chance, letters)
        assert grammar.complete(other.encode()) == parses(known, other), other


# Random grammars.

IGNORED = ["/c+/", '"c"', "/c[ab]*/", "/c.*?c/", "/[ac]+/", "/b?c/", "A", "/ca?/", "/(cb?)+/", "/c|cab/", '"ca"']
TERMINALS = [
    '"a"',
    '"b"',
    '"ab"',
    "/a+/",
    "/[ab]/",
    "/a|ab/",
    "/b*?a/",
    "A",
    "B",
    '"A"i',
    "/a?b/",
    "/(?!ab)[ab]c?b/",
    "/c[ab]/",
    '"c"',
    "/[abc]/",
]
OPERATORS = ["", "", "", "", "?", "*", "+", "~2", "~1..2", "~0..3", "~0"]


def expansions(groups: int) -> st.SearchStrategy[str]:
    atoms = [st.sampled_from(TERMINALS), st.sampled_from(["start", "x", "y"])]
    atoms.append(st.sampled_from(["x", "A", '"a"', "_many{A}"]).map(lambda item: f'listed{{{item}, "b"}}'))
    if groups:
        atoms += [expansions(groups - 1).map("({})".format), expansions(groups - 1).map("[{}]".format)]
    items = st.tuples(st.one_of(atoms), st.sampled_from(OPERATORS)).map("".join)
    return st.lists(st.lists(items, max_size=3).map(" ".join), min_size=1, max_size=3).map(" | ".join)


@st.composite
def random_grammars(draw: st.DrawFn) -> str:
    ignored = "".join(f"%ignore {name}\n" for name in draw(st.lists(st.sampled_from(IGNORED), max_size=2)))
    second = draw(st.sampled_from(['"a"', '"a" "b"?', '("a"|"ab")', '"a".."b"', '"a"~2', '/a|b/ "b"']))
    rules = [f"start: {draw(expansions(1))}", f"?x: {draw(expansions(0))}", f"!y.2: {draw(expansions(0))}"]
    more = ["listed{item, between}: item (between item)*", "_many{item}: item+", f"A: {second}", 'B.3: "b"+']
    return "\n".join([*rules, *more]) + f"\n{ignored}"


@given(random_grammars(), st.lists(st.text("abcA", max_size=6), min_size=10, max_size=10), st.integers(0, 2**32))
def test_random_grammars(text: str, strings: list[str], seed: int) -> None:
    try:
        known = parser(text)
    except lark.GrammarError as error:
        # lark takes no rule that becomes the same twice; the language is none the worse for it.
        assert "Rules defined twice" in str(error)
        return
    try:
        grammar = stepmask.lark(text)
    except stepmask.GrammarUnsupported as error:
        assert "the ignored terminal" in error.message and "the characters after that decide" in error.message
        return
    judge = oracle(grammar)
    chance = random.Random(seed)
    if judge.alive(b""):
        sentences = Sentences(grammar.rules, grammar.start, 5)
        strings += [written for written in (sentences.text(chance) for _ in range(5)) if len(written) < 12]
    for string in strings:
        try:
            expected = parses(known, string)
        except RuntimeError:  # an ambiguity that lark gives up at
            continue
        assert judge.complete(string.encode()) == expected, (text, string)


def accepts(text: str, *args: Any, **options: Any) -> Earley:
    return oracle(stepmask.lark(text, *args, **options))


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        # Ignored text is skipped as far as it matches.
        ('start: "a" " b"\n%ignore / +/', ["a b", "  a b  "], ["a  b"]),
        ('start: "a" "b"\n%ignore /#.*/\n%ignore /\\s/', ["a#b\nb#", "#\na b"], ["a#b", "#a b"]),
        ('start: "a" WORD\nWORD: /[^a]+/\n%ignore " "\n%ignore /#[^;]*;?/', ["a b", "a#b;b", "a  b", "a#b"], ["a"]),
        ('start: "a" "b"\n%ignore /(\\r?\\n)+/', ["\r\n\na\n\r\nb"], ["a\rb"]),
        ('start: "a" ~ 2..3', ["aa", "aaa"], ["a", "aaaa"]),
        ('start: ["a" "b"] ("c" | "d")+', ["c", "abcd"], ["ac", "ab"]),
        ("start: A\nA: /x/ | \"y\"i\n", ["x", "y", "Y"], ["X"]),
        ("start: A\nA: \"a\"\n%extend A: \"b\"", ["a", "b"], ["ab"]),
        ("start: A\nA: \"a\"\n%override A: \"b\"", ["b"], ["a"]),
        ("start: x\nx: \"a\"\n%extend x: \"b\" x", ["a", "bba"], ["b"]),
        ("%import common.INT -> NUMBER\nstart: NUMBER", ["12"], ["", "x"]),
        ("%import common (INT, WS)\n%ignore WS\nstart: INT INT", ["1 2", " 12 "], ["1"]),
        ("%import unicode.WS_INLINE\nstart: WS_INLINE", ["\xa0 "], ["\n"]),
        ('?start: _x -> y\n_x: "a" -> z\n', None, None),
        ('?start: x -> y\n!x: "a"\n', ["a"], ["b"]),
        (r'start: "\x41b" /[\x30-\x39]/' "\n", ["Ab7"], ["ab7", r"\x41b7"]),
        (r'start: "a\"b" "\\" "\n" "é" "\u00e9"', ['a"b\\\néé'], []),
        ('start: "a"\n%ignore " "\n%ignore "-"+', ["a", " -a- -"], ["-", "aa"]),
        ('start: "a"*\n%ignore " "', ["", "  ", "a a "], ["b"]),
        ('start: A B\nA: /a|b/ "c"\nB: "x"', ["ax", "bcx"], ["acx", "bx"]),
        ('start: "(" start ")" | \n', ["", "(())"], ["(", ")("]),
        ("start: b\nb: a\na: b | \"x\"", ["x"], ["xx"]),
    ],
)  # fmt: skip
def test_constructs_of_lark(text: str, yes: list[str] | None, no: list[str]) -> None:
    if yes is None:
        with pytest.raises(lark.GrammarError):
            parser(text)
        return
    judge, known = accepts(text), parser(text)
    for string in yes:
        assert judge.complete(string.encode()) and parses(known, string), string
    for string in no:
        assert not judge.complete(string.encode()) and not parses(known, string), string


def test_the_start_rule_is_a_choice() -> None:
    text = 'start: "a"\nother: "b" start'
    assert accepts(text, "other").complete(b"ba")
    assert not accepts(text).complete(b"ba")


def test_large_repeats_stay_repeats() -> None:
    grammar = stepmask.lark('start: ("a" | x)~0..5000 x~3\nx: "b" start?')
    assert len(grammar.rules) == 2
    repeats = [part for part in grammar.rules["start"].parts if isinstance(part, Repeat)]  # type: ignore[attr-defined]
    assert [(repeat.minimum, repeat.maximum) for repeat in repeats] == [(0, 5000), (3, 3)]
    assert repeats[0].source is not None
    assert str(repeats[0].source) == "'~0..5000' at line 1:17"


def test_unused_rules_and_terminals_are_left_out() -> None:
    grammar = stepmask.lark("start: A\nA: /a/\nunused: B\nB: /(?<=x)y$/\n%declare C")
    assert set(grammar.rules) == {"start", "A"}


def test_sources_are_places_in_the_grammar() -> None:
    grammar = stepmask.lark('start: A x+\n    | /b[cd]/\nx: "y"\nA: /a(bc)?/\n')
    assert [str(grammar.rules[name].source) for name in ("A",)] == ["'a(bc)?' at line 4:5"]
    option = grammar.rules["start"].options[1]  # type: ignore[attr-defined]
    assert str(grammar.rules[option.rule].source) == "'b[cd]' at line 2:8"


def test_tokens() -> None:
    grammar = stepmask.lark('start: "a" END <|x|> <[7]> <|x|>\n%declare END OTHER', tokens={"END": "<|eot|>"})
    parts = grammar.rules["start"].parts  # type: ignore[attr-defined]
    assert [part.name for part in parts if isinstance(part, Token)] == ["<|eot|>", "<|x|>", 7, "<|x|>"]
    assert oracle(stepmask.lark('start: "<|x|>" /<y>/ // <|z|>\n')).complete(b"<|x|><y>")
    assert oracle(stepmask.lark('start: "end"\n%declare END')).complete(b"end")


def test_imports_come_from_the_given_folders_only(tmp_path: Path) -> None:
    (tmp_path / "words.lark").write_text("word: LETTER+\n%import .letters.LETTER\n")
    (tmp_path / "letters.lark").write_text('LETTER: "x" | "y"\n')
    text = "start: word\n%import {}words.word"
    for dots in ("", "."):
        assert accepts(text.format(dots), import_paths=[str(tmp_path)]).complete(b"xyx")
        with pytest.raises(stepmask.GrammarSyntaxError, match=r"there is no grammar words.lark to import.*\(line 2:"):
            stepmask.lark(text.format(dots))


REFUSED = [
    ("start: b", "'b' used but not defined", "line 1:8"),
    ('start: "a" b\n\nb: C', "'C' used but not defined", "line 3:4"),
    ("start: (", "Unclosed parenthesis", "line 1:9"),
    ('start: "a\nx: "b"', "the string that begins here is not closed", "line 1:8"),
    ('start: "' + "\\\\" * 50, "the string that begins here is not closed", "line 1:8"),
    ("start: /a" + "\\\\" * 50, "the pattern that begins here is not closed", "line 1:8"),
    ("start: a::", "Unexpected colon", "line 1:9"),
    ('start: ""', "Empty terminals", "line 1:8"),
    ("start: A\nA:", "Terminals cannot be empty", "line 2:1"),
    ("start: A\nA: B\nB: A", "Recursion in terminal", "line 2:1"),
    ("start: /a*/", "can match the empty string", "line 1:9"),
    ("start: A\nA: \"a\"?", "can match the empty string", "line 2:1"),
    ('start: "a"\n%ignore /x?/', "can match the empty string", None),
    ('start: "b"\n | /x(/', "no pattern of Python's re", "line 2:6"),
    (r'start: "\ud800"', "lone surrogate", "line 1:9"),
    ('start: "ab".."c"', "not single characters", "line 1:8"),
    ('start: "a"~3..2', "wrong order", "line 1:11"),
    ('x: "a"', "no rule start", None),
    ("%import nope.X\nstart: X", "there is no grammar nope.lark", "line 1:9"),
    ("start: \"a\"\nstart: \"b\"", "defined more than once", "line 2:1"),
    ("%override A: \"y\"\nstart: A", "Cannot override", "line 1:11"),
    ("start: t{A}\nt{x, y}: x y\nA: \"a\"", "Wrong number of template arguments", "line 2:1"),
]  # fmt: skip
UNSUPPORTED = [
    ("%declare X\nstart: X", "X is declared without a pattern", "line 1:1"),
    ("start: x\n%declare x", "the rule x is declared", "line 2:1"),
    ("start: A\nA: /a$/", "anchor $", "line 2:6"),
    ("start: /a/ /^b/m", "anchor ^", "line 1:13"),
    (r"start: /a\b/ /c/", "word boundary", "line 1:10"),
    ("start: /if(?![a-z])/", "lookahead would see what comes after", "line 1:11"),
    ("start: A\nA: \"a\"i /b(?=c)/", "lookahead would see what comes after", "line 2:1"),
    ("%import python.STRING\nstart: STRING", "(in the imported python)", "line 1:9 (in the imported python)"),
    ('%declare X\nstart: "a"\n%ignore X', "the declared terminal X cannot be ignored", "line 1:1"),
    ("start: <[1-4]>", "the set of tokens <[1-4]>", "line 1:8"),
    ("start: %json {\"type\": \"string\"}", "%json", "line 1:8"),
    ("start: %regex { \"a\" }", "%regex", "line 1:8"),
    ("%llguidance {}\nstart: \"a\"", "%llguidance", "line 1:1"),
    ("start: a\na[lazy]: \"a\"", "attributes of a rule", "line 2:2"),
    ("start: @name", "references to other grammars", "line 1:8"),
    ('start: "b" "a"\n%ignore /a(ba)?/', "the ignored terminal __IGNORE_0 may or may not go on where 'b'", "line 1:1"),
    ("start: A & B\nA: \"a\"\nB: \"b\"", "intersection &", "line 1:10"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "place"), REFUSED)
def test_what_lark_refuses(text: str, message: str, place: str | None) -> None:
    with pytest.raises(stepmask.GrammarSyntaxError) as caught:
        stepmask.lark(text)
    assert message in str(caught.value)
    assert place is None or caught.value.place == place


@pytest.mark.parametrize(("text", "message", "place"), UNSUPPORTED)
def test_what_is_not_enforced_is_refused_by_name(text: str, message: str, place: str) -> None:
    with pytest.raises(stepmask.GrammarUnsupported) as caught:
        stepmask.lark(text)
    assert message in str(caught.value)
    assert caught.value.place == place


def test_larks_python_grammar_is_refused_by_name() -> None:
    text = (Path(lark.__file__).parent / "grammars" / "python.lark").read_text()
    with pytest.raises(stepmask.GrammarUnsupported, match="_INDENT is declared without a pattern"):
        stepmask.lark(text, "file_input")


def test_limits_are_named() -> None:
    with pytest.raises(stepmask.GrammarTooLarge, match=r"~0\.\.99 .* Limits.max_repeat .*\(line 1:11\)"):
        stepmask.lark('start: "a"~0..99', limits=Limits(max_repeat=50))
    with pytest.raises(stepmask.GrammarTooLarge, match="the template u uses itself without end") as caught:
        stepmask.lark('start: t{"x"}\nt{x}: x t{u{x, x}}\nu{x, y}: x y | "b"')
    assert caught.value.limit == "max_depth"
    with pytest.raises(stepmask.GrammarUnsupported, match="nested too deeply"):
        stepmask.lark(f'start: {"(" * 2000}"a"{")" * 2000}')


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match="must be str"):
        stepmask.lark(b"start: x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="lexer is one of"):
        stepmask.lark('start: "x"', lexer="basic")
    with pytest.raises(stepmask.GrammarSyntaxError, match="tokens names END"):
        stepmask.lark('start: "x"', tokens={"END": 1})


CASES = [json.loads(path.read_text("utf-8")) for path in sorted((DATA / "cases").glob("*.json"))]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES if case["kind"] == "lark"])
def test_shared_cases(case: dict[str, Any]) -> None:
    judge = oracle(stepmask.lark(case["grammar"]))
    if case.get("token_syntax"):  # its texts are not bytes alone
        return
    assert [text for text in case["accept"] if not judge.complete(text.encode())] == []
    assert [text for text in case["reject"] if judge.complete(text.encode())] == []
    assert [text for text in case["alive_prefixes"] if not judge.alive(text.encode())] == []


def read_hard() -> list[Any]:
    path = DATA / "data" / "hard.dev.jsonl.gz"
    if not path.exists():
        return []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    return [pytest.param(case, id=case["id"]) for case in cases if case["kind"] == "lark"]


@pytest.mark.parametrize("case", read_hard())
def test_hard_inputs(case: dict[str, Any]) -> None:
    judge = oracle(stepmask.lark(case["grammar"], **case.get("options", {})))
    for test in case["tests"]:
        if len(test["text"]) <= 60:
            assert judge.complete(test["text"].encode()) == test["valid"]
