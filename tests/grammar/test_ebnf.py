"""EBNF: what its constructs mean, by an Earley oracle and by xgrammar; what is refused, and where."""

from __future__ import annotations

from types import ModuleType

import pytest
from bnf_texts import ALPHABET, TEXTS, Writer, children, random_rules, verdicts
from earley import Earley
from hypothesis import given
from hypothesis import strategies as st

from stepmask.grammar.ebnf import ebnf
from stepmask.grammar.errors import GrammarSyntaxError, GrammarUnsupported
from stepmask.grammar.expression import Alternation, Bytes, Characters, Expression, Reference, Repeat, Sequence, Token


@pytest.fixture
def xgrammar() -> ModuleType:
    return pytest.importorskip("xgrammar")


def by_xgrammar(module: ModuleType, text: str, words: list[str]) -> list[bool]:
    from xgrammar.testing import _is_grammar_accept_string

    grammar = module.Grammar.from_ebnf(text)
    return [_is_grammar_accept_string(grammar, word) for word in words]


def by_oracle(text: str, words: list[str]) -> list[bool]:
    grammar = ebnf(text)
    oracle = Earley(grammar.rules, grammar.start)
    return [oracle.complete(word.encode()) for word in words]


MEANINGS = [
    ('root ::= "ab" "c"', ["abc"], ["ab", "ab c"]),
    ('root ::= "a" | ""', ["a", ""], ["aa"]),
    ('root ::= ("a" | "b") "c"', ["ac", "bc"], ["a", "abc"]),
    ('root ::= () "a" ( )', ["a"], ["", "()"]),
    ('root ::= "ab"* "c"+ "d"?', ["c", "ababccd"], ["ab", "abbc"]),
    ('root ::= "a"{2} "b"{1,} "c"{0,2}', ["aab", "aabbbcc"], ["ab", "aabccc"]),
    ('root ::= "a" { 2 ,\n 3 }', ["aa", "aaa"], ["a", "aaaa"]),
    ('root ::= "a"{2,-1}', ["aa", "aaaa"], ["a"]),
    ('root ::= "a"{0} "b"', ["b"], ["ab"]),
    ('root ::= ("a"?){2} ("b"+)*', ["", "aabbb"], ["aaa"]),
    ("root ::= [a-cx]+", ["abcx"], ["d", "-"]),
    ("root ::= [^a-c]", ["d", "\n", "é", "😀"], ["a", "", "dd"]),
    ("root ::= [^]", ["a", "\n", "é", "😀"], ["", "ab"]),
    ("root ::= [] | [^^]", ["a"], ["^", ""]),
    ("root ::= [a-]+ [-b]+", ["a-b", "--b-"], ["ab-c"]),
    ("root ::= [--0]+", ["-./0"], ["1"]),
    (r"root ::= [\^\$\\\.\*\+\?\(\)\[\]\{\}\|\/\-]+", [r"^$\.*+?()[]{}|/-"], ["a"]),
    (r"root ::= [\x41-\x43\u00e9\U0001F600\n]+", ["ABCé😀\n"], ["D"]),
    ("root ::= [ぁ-ゟ]+", ["ひらがな"], ["カタ"]),
    (r'root ::= "\a\b\e\f\n\r\t\v\0\"\\\/\'\?"', ["\a\b\x1b\f\n\r\t\v\0\"\\/'?"], [""]),
    (r'root ::= "\x41g\x1F600\u00e9\U0001F600"', ["Ag😀é😀"], ["A"]),
    ('root ::= "#" [#|]* # not "this"', ["#|#"], ["#x"]),
    ('# a\n\troot # b\n ::= # ::=\n\n"a"\r\n| "b"\n\n  c # d\nc ::= "c"', ["a", "bc"], ["b"]),
    ('root ::= x.y-z _1\nx.y-z ::= "a"\n_1 ::= "b"', ["ab"], ["a"]),
    ('root ::= Tokens\nTokens ::= "a"', ["a"], [""]),
    ('root ::= root "a" | "b"', ["b", "baa"], ["a"]),
    ('root ::= "(" root ")" | "x"', ["x", "((x))"], ["((x)"]),
    ('root ::= root | "a"', ["a"], [""]),
    (
        r"""
        root ::= "SELECT " columns " FROM " name where? ";"
        columns ::= "*" | name ("," " "? name){0,3}
        where ::= " WHERE " condition (" AND " condition)*
        condition ::= name " = " (number | text)   # no other operators
        name ::= [A-Za-z_] [A-Za-z0-9_]*
        number ::= "-"? [0-9]+
        text ::= "'" ([^'] | "''")* "'"
        """,
        ["SELECT * FROM t;", "SELECT a, b,c FROM t WHERE a = -1 AND b = 'it''s é';"],
        ["SELECT FROM t;", "SELECT a,b,c,d,e FROM t;", "SELECT a FROM t WHERE a = 'x;"],
    ),
    (
        r"""root ::= array | object
any ::= number | string | array | object | "true" | "null"
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)?
string ::= ["] string_rest
string_rest ::= ["] | [^"\\\0-\x1F] string_rest | "\\" ["\\/bfnrt] string_rest
array ::= "[" ("" | ws any (ws "," ws any)*) ws "]"
object ::= "{" ("" | ws string ws ":" ws any (ws "," ws string ws ":" ws any)*) ws "}"
ws ::= [ \n\t]*
""",
        ["[]", '{"a":[1, -2.5,{"b" :null}], "é\\n":"x"}', "[ [true] ]"],
        ["[1,]", '{"a"}', '["\n"]', "[01]", "null"],
    ),
]


@pytest.mark.parametrize(("text", "taken", "refused"), MEANINGS)
def test_meaning(text: str, taken: list[str], refused: list[str]) -> None:
    assert by_oracle(text, taken) == [True] * len(taken)
    assert by_oracle(text, refused) == [False] * len(refused)


@pytest.mark.parametrize(("text", "taken", "refused"), MEANINGS)
def test_meaning_in_xgrammar(xgrammar: ModuleType, text: str, taken: list[str], refused: list[str]) -> None:
    assert by_xgrammar(xgrammar, text, taken) == [True] * len(taken)
    assert by_xgrammar(xgrammar, text, refused) == [False] * len(refused)


def test_start_and_other_rules() -> None:
    grammar = ebnf('a ::= "a" b\nb ::= "b"\nc ::= "c"', start="b")
    assert (grammar.kind, grammar.start, list(grammar.rules)) == ("ebnf", "b", ["a", "b", "c"])
    assert Earley(grammar.rules, grammar.start).complete(b"b")


def test_tokens() -> None:
    rules = ebnf("root ::= Token(7) Token ( 8,\n 9 )? [a]").rules
    either = Alternation((Token(8), Token(9)))
    assert rules["root"] == Sequence((Token(7), Repeat(either, 0, 1), Characters(((97, 97),))))


def test_sources() -> None:
    rules = ebnf('root ::= "a" (b |\n [é]{2})\n  b ::= Token(1)').rules
    whole = rules["root"]
    assert isinstance(whole, Sequence)
    group = whole.parts[1]
    assert isinstance(group, Alternation)
    repeat = group.options[1]
    assert isinstance(repeat, Repeat)
    nodes: list[Expression] = [whole, whole.parts[0], group, group.options[0], repeat, repeat.body, rules["b"]]
    assert [(node.source.text, node.source.place) for node in nodes if node.source] == [
        ('"a" (b |\n [é]{2})', "line 1:10"),
        ('"a"', "line 1:10"),
        ("b |\n [é]{2}", "line 1:15"),
        ("b", "line 1:15"),
        ("[é]{2}", "line 2:2"),
        ("[é]", "line 2:2"),
        ("Token(1)", "line 3:9"),
    ]


REFUSALS = [
    ("", "line 1:1", "no rules"),
    ('a ::= "a"', "line 1:1", "no rule root"),
    ("root", "line 1:1", "begins with its name"),
    ('::= "a"', "line 1:1", "begins with its name"),
    ('5 ::= "a"', "line 1:1", "begins with its name"),
    ("root ::=", "line 1:9", "alternative is empty"),
    ('root ::= | "a"', "line 1:10", "alternative is empty"),
    ('root ::= "a" |\nb ::= "b"', "line 2:1", "alternative is empty"),
    ('root ::= (|"a")', "line 1:11", "alternative is empty"),
    ('root ::= "a" b ::= "b"', "line 1:14", "line of its own"),
    ('root ::= "a"\nroot ::= "b"', "line 2:1", "defined twice, first at line 1:1"),
    ('root ::= ("a"\n', "line 1:10", "not closed"),
    ('root ::= (("a")\nb ::= "b"', "line 1:10", "not closed"),
    ('root ::= "a")', "line 1:13", "closes no group"),
    ("root ::= *", "line 1:10", "nothing to repeat"),
    ('root ::= (* "a" *) "b"', "line 1:11", "nothing to repeat"),
    ('root ::= "a"+*', "line 1:14", "use parentheses"),
    ('root ::= "a"{2}{3}', "line 1:16", "use parentheses"),
    ('root ::= "a"{,2}', "line 1:14", "write {0,n}"),
    ('root ::= "a"{2', "line 1:15", "expected }"),
    ('root ::= "a"{2,-2}', "line 1:16", "no number"),
    ('root ::= "a"{3,2}', "line 1:13", "wrong order"),
    ('root ::= "a', "line 1:10", "string is not closed"),
    ('root ::= "a\n"', "line 1:10", "string is not closed"),
    ("root ::=\n [a\n]", "line 2:2", "class is not closed"),
    ("root ::= 'a'", "line 1:10", "double quotes"),
    ("root ::= [z-a]", "line 1:11", "wrong order"),
    (r'root ::= "ab\-"', "line 1:13", "unknown escape \\-"),
    (r'root ::= "\xg"', "line 1:11", "hexadecimal digits"),
    (r'root ::= "\u12G4"', "line 1:11", "4 hexadecimal digits"),
    (r'root ::= "\x110000"', "line 1:11", "no character"),
    (r'root ::= "\uD83D\uDE00"', "line 1:11", "surrogate"),
    ('root ::= a\nb ::= "b" c', "line 1:10", "rule a is not defined"),
    ('root ::= "a" . "b"', "line 1:14", "written [^]"),
    ('root ::= "a" ; "b"', "line 1:14", "unexpected character ';'"),
    ("root ::= <[7]>", "line 1:10", "unexpected character '<'"),
    ("root ::= Token", "line 1:15", "expected ("),
    ('root ::= Token("a")', "line 1:10", "token ids"),
    ("root ::= Token()", "line 1:10", "token ids"),
    ("root ::= Token(1, x=2)", "line 1:10", "token ids"),
    ("root ::= Token(99999999999999999999)", "line 1:10", "no token id"),
]


@pytest.mark.parametrize(("text", "place", "message"), REFUSALS)
def test_refusals(text: str, place: str, message: str) -> None:
    with pytest.raises(GrammarSyntaxError) as caught:
        ebnf(text)
    assert caught.value.place == place
    assert message in caught.value.message


# XGrammar takes any number for a character or a token id, and lets it match nothing.
@pytest.mark.parametrize(
    "text", [text for text, _, message in REFUSALS if message not in ("surrogate", "no character", "no token id")]
)
def test_xgrammar_refuses_these_too(xgrammar: ModuleType, text: str) -> None:
    with pytest.raises(RuntimeError):
        xgrammar.Grammar.from_ebnf(text)


UNSUPPORTED = [
    ('root ::= a "b"\na ::= "a" (="b")', "line 2:11", "lookahead assertion"),
    ('root[max_tokens=3] ::= "a"', "line 1:5", "[max_tokens=3]"),
    ('root[capture="x", lazy] ::= "a"', "line 1:5", "lazy"),
    (r"root ::= [ab\d]", "line 1:13", "\\d"),
    (r'root ::= Regex("\\d+", flags="i")', "line 1:10", "Regex"),
    ('root ::= "a" (Substring("abc", "de"))', "line 1:15", "Substring"),
    ('root ::= TagDispatch(("<a>", a), loop_after_dispatch=false, excludes=("x",))\na ::= "a"', "line 1:10", "TagD"),
    ('root ::= TokenTagDispatch((7, a), excludes=())\na ::= "a"', "line 1:10", "TokenTagDispatch"),
    ("root ::= ExcludeToken(7, 8)", "line 1:10", "ExcludeToken"),
]


@pytest.mark.parametrize(("text", "place", "message"), UNSUPPORTED)
def test_known_and_not_supported(text: str, place: str, message: str) -> None:
    with pytest.raises(GrammarUnsupported) as caught:
        ebnf(text)
    assert caught.value.place == place
    assert message in caught.value.message


@given(st.data(), random_rules, st.lists(st.text(ALPHABET, max_size=8), max_size=8))
def test_round_trip(data: st.DataObject, rules: dict[str, Expression], texts: list[str]) -> None:
    text = Writer(data.draw, "ebnf").grammar(rules)
    grammar = ebnf(text)
    assert verdicts(grammar.rules, TEXTS + texts) == verdicts(rules, TEXTS + texts), text


def repeats_a_rule(node: Expression, within: bool = False) -> bool:
    within = within or isinstance(node, Repeat)
    return (within and isinstance(node, Reference)) or any(repeats_a_rule(child, within) for child in children(node))


def renamed(node: Expression, names: dict[str, str]) -> Expression:
    """`node` with other rules in place of those that it refers to; "a" in place of those without."""
    if isinstance(node, Reference):
        return Reference(names[node.rule]) if node.rule in names else Bytes(b"a")
    if isinstance(node, Repeat):
        return Repeat(renamed(node.body, names), node.minimum, node.maximum)
    parts = tuple(renamed(child, names) for child in children(node))
    return Sequence(parts) if isinstance(node, Sequence) else Alternation(parts) if parts else node


@given(st.data(), random_rules, st.lists(st.text(ALPHABET, max_size=8), max_size=8))
def test_same_language_as_xgrammar(data: st.DataObject, rules: dict[str, Expression], texts: list[str]) -> None:
    xgrammar = pytest.importorskip("xgrammar")
    if any(map(repeats_a_rule, rules.values())):  # xgrammar 0.2.9 crashes where a rule repeats itself
        names = {"root": {"root": "other", "other": "x-1", "x-1": "x-1"}, "other": {"root": "x-1"}, "x-1": {}}
        rules = {name: renamed(body, names[name]) for name, body in rules.items()}
    text = Writer(data.draw, "ebnf").grammar(rules)
    words = TEXTS[:40] + texts
    assert by_oracle(text, words) == by_xgrammar(xgrammar, text, words), text
