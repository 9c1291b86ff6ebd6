"""GBNF: what its constructs mean, by Earley; random grammars, written and read back; what is refused where."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

import pytest
from bnf_texts import ALPHABET, TEXTS, Writer, children, random_rules, verdicts
from earley import Earley
from hypothesis import given
from hypothesis import strategies as st

from stepmask.grammar.ebnf import ebnf
from stepmask.grammar.errors import GrammarError, GrammarSyntaxError, GrammarTooLarge, GrammarUnsupported
from stepmask.grammar.expression import Alternation, Bytes, Expression, Reference, Repeat, Sequence, Token
from stepmask.grammar.gbnf import gbnf
from stepmask.grammar.limits import Limits

DATA = Path(os.environ.get("STEPMASK_DATA", Path(__file__).parents[3] / "shared"))


def accepts(text: str, *words: str) -> list[bool]:
    grammar = gbnf(text)
    oracle = Earley(grammar.rules, grammar.start)
    return [oracle.complete(word.encode()) for word in words]


@pytest.mark.parametrize(
    ("text", "taken", "refused"),
    [
        ('root ::= "ab" "c"', ["abc"], ["ab", "ab c"]),
        ('root ::= "a" | "b"', ["a", "b"], ["", "ab"]),
        ('root ::= "a" |', ["a", ""], ["aa"]),
        ('root ::= | "a"', ["a", ""], ["|"]),
        ("root ::=", [""], ["a"]),
        ('root ::= ("a" | "b") "c"', ["ac", "bc"], ["a", "abc"]),
        ('root ::= () "a" (|"b")', ["a", "ab"], ["b"]),
        ('root ::= "ab"* "c"', ["c", "ababc"], ["abbc"]),
        ('root ::= "a"+ "b"?', ["a", "aab"], ["b", "abb"]),
        ('root ::= "a" + \t? "b"', ["b", "aab"], ["a"]),
        ('root ::= "a"{2}', ["aa"], ["a", "aaa"]),
        ('root ::= "a"{2,}', ["aa", "aaaa"], ["a"]),
        ('root ::= "a"{ 1 , 2 }', ["a", "aa"], ["", "aaa"]),
        ('root ::= "a"{0,2}{3}', ["", "aaaaaa"], ["aaaaaaa"]),
        ('root ::= "a"{0} "b"', ["b"], ["ab"]),
        ('root ::= "a"{2,2001}', ["aa", "a" * 2001], ["a", "a" * 2002]),
        ("root ::= [abc]", ["a", "c"], ["d", "ab", ""]),
        ("root ::= [a-cx-z]+", ["abcxyz"], ["d", "-"]),
        ("root ::= [^a-c]", ["d", "\n", "é", "😀"], ["a", "", "dd"]),
        ("root ::= [a-]+ [-b]+", ["a-b", "--b-"], ["ab-c"]),
        ("root ::= [+--]+", ["+,-"], ["."]),
        (r"root ::= [\]\[\\\-^]+", [r"][\-^"], ["a"]),
        (r"root ::= [\x41-\x43\u00e9\U0001F600]+", ["ABCé😀"], ["D"]),
        ("root ::= [ぁ-ゟ]+", ["ひらがな"], ["カタ"]),
        (r"root ::= [^\uD800-\uDFFF]", ["a"], [""]),
        ("root ::= .", ["a", "\n", "é", "😀"], ["", "ab"]),
        ("root ::= .{2} [.]", ["ab."], ["abc"]),
        (r'root ::= "\x41\u00e9\U0001F600\n\t\r\"\\\[\]\-"', ['Aé😀\n\t\r"\\[]-'], ["A"]),
        ('root ::= "#" [#|]* # not "this"', ["#|#"], ["#x"]),
        ('root ::= "a\nb"', ["a\nb"], ["ab"]),
        ('# first\n\n \t# second\n root\t::=\n\n"a"\r\n\r\nother ::= "b"\n', ["a"], ["b"]),
        ('root ::= "a" |\n # or\n\n "b"', ["a", "b"], ["ab"]),
        ('root ::= ( # open\n "a"\n "b"\n\n | "c"\r\n)\n\nb ::= "x"', ["ab", "c"], ["x"]),
        ('root ::= ("a"\n"b")\n', ["ab"], ["a"]),
        ('root ::= x-1 _y\nx-1 ::= "a"\n_y ::= 2\n2 ::= "b"', ["ab"], ["a"]),
        ("root ::= root \"a\" | 'b'".replace("'", '"'), ["b", "baa"], ["a"]),
        ('root ::= "(" root ")" | "x"', ["x", "((x))"], ["((x)"]),
        ('root ::= "a"\nroot ::= "b"', ["b"], ["a"]),
        ('root ::= a b\na ::= "a" | b\nb ::= a "b" | ""', ["a", "aab", "ab", ""], ["b" * 3 + "a"]),
    ],
)
def test_meaning(text: str, taken: list[str], refused: list[str]) -> None:
    assert accepts(text, *taken) == [True] * len(taken)
    assert accepts(text, *refused) == [False] * len(refused)


def test_start_and_other_rules() -> None:
    grammar = gbnf('a ::= "a" b\nb ::= "b"\nc ::= "c"', start="b")
    assert (grammar.kind, grammar.start, list(grammar.rules)) == ("gbnf", "b", ["a", "b", "c"])
    assert Earley(grammar.rules, grammar.start).complete(b"b")


def test_tokens() -> None:
    grammar = gbnf('root ::= <think> "a"* </think> <[7]> <a b>?')
    assert grammar.rules["root"] == Sequence(
        (
            Token("<think>"),
            Repeat(Bytes(b"a"), 0, None),
            Token("</think>"),
            Token(7),
            Repeat(Token("<a b>"), 0, 1),
        )
    )


def test_repeats() -> None:
    rules = gbnf('root ::= "a"{0} "b"{1} "c"{2}{0} "d"?').rules
    empty = Bytes(b"")
    assert rules["root"] == Sequence((empty, Bytes(b"b"), empty, Repeat(Bytes(b"d"), 0, 1)))


def test_sources() -> None:
    rules = gbnf('# c\nroot ::= "a" (b | "é")*\r  b ::= [x-y]{2} |\n   <[1]>').rules
    found = []
    work = list(rules.values())
    for node in work:
        assert node.source is not None
        found.append((node.source.place, node.source.text))
        work += children(node)
    assert found == [
        ("line 2:10", '"a" (b | "é")*'),
        ("line 3:9", "[x-y]{2} |\n   <[1]>"),
        ("line 2:10", '"a"'),
        ("line 2:14", '(b | "é")*'),
        ("line 3:9", "[x-y]{2}"),
        ("line 4:4", "<[1]>"),
        ("line 2:15", 'b | "é"'),
        ("line 3:9", "[x-y]"),
        ("line 2:15", "b"),
        ("line 2:19", '"é"'),
    ]


REFUSALS = [
    ("", "line 1:1", "no rules"),
    ('a ::= "a"', "line 1:1", "no rule root"),
    ("root", "line 1:5", "::= must follow"),
    ('root\n::= "a"', "line 1:5", "::= must follow"),
    ('root ::= "a"\n| "b"', "line 2:1", "cannot begin with |"),
    ('root ::= "a" b ::= "b"', "line 1:16", "line of its own"),
    ('root ::= ("a"\n', "line 1:10", "not closed"),
    ('root ::= (("a")\nb ::= "b"', "line 1:10", "not closed"),
    ('root ::= "a")', "line 1:13", "closes no group"),
    ("root ::= *", "line 1:10", "nothing to repeat"),
    ('root ::= ("a" | +)', "line 1:17", "nothing to repeat"),
    ("root ::= {2}", "line 1:10", "nothing to repeat"),
    ('root ::= "a"{,2}', "line 1:14", "write {0,n}"),
    ('root ::= "a"{}', "line 1:14", "a number must follow"),
    ('root ::= "a"{2', "line 1:15", "expected }"),
    ('root ::= "a"{2\n}', "line 1:15", "end of the line"),
    ('root ::= "a"{2 3}', "line 1:16", "unexpected '3'"),
    ('root ::= "a"{b}', "line 1:14", "no number"),
    ('root ::= "a"{3,2}', "line 1:13", "wrong order"),
    ('root ::= "a', "line 1:10", "string is not closed"),
    ("root ::=\n [a", "line 2:2", "class is not closed"),
    ("root ::= 'a'", "line 1:10", "double quotes"),
    ("root ::= [z-a]", "line 1:11", "wrong order"),
    (r'root ::= "ab\q"', "line 1:13", "unknown escape \\q"),
    (r"root ::= [ab\d]", "line 1:13", "unknown escape \\d"),
    (r'root ::= "\x4"', "line 1:11", "2 hexadecimal digits"),
    (r'root ::= "\u12G4"', "line 1:11", "4 hexadecimal digits"),
    (r'root ::= "\U00110000"', "line 1:11", "no character"),
    (r'root ::= "\uD83D\uDE00"', "line 1:11", "surrogate"),
    (r'root ::= "a\uDE00"', "line 1:12", "surrogate"),
    ('root ::= "\ud83d"', "line 1:11", "surrogate"),
    ('root ::= a\nb ::= "b" c', "line 1:10", "rule a is not defined"),
    ('root ::= "a"\nb ::= "b" c', "line 2:11", "rule c is not defined"),
    ('root ::= "a" , "b"', "line 1:14", "unexpected ','"),
    ("root ::= <[x]>", "line 1:10", "<[id]> or <text>"),
    ("root ::= <>", "line 1:10", "<[id]> or <text>"),
    ('root ::= !"a"', "line 1:10", "only a token"),
    ('root ::= "a";', "line 1:13", "unexpected character ';'"),
    ('\r\r\nroot ::= "a"\r  ; "b"', "line 4:3", "unexpected character ';'"),
]


@pytest.mark.parametrize(("text", "place", "message"), REFUSALS)
def test_refusals(text: str, place: str, message: str) -> None:
    with pytest.raises(GrammarSyntaxError) as caught:
        gbnf(text)
    assert caught.value.place == place
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("root ::= !<[7]>", "line 1:10", "!<[7]>"),
        ("root ::= <a> !</a>*", "line 1:14", "!</a>"),
        ("root ::= [a]\nb ::= []", "line 2:7", "[]"),
        ("root ::= [^]", "line 1:10", "[^]"),
    ],
)
def test_known_and_not_supported(text: str, place: str, message: str) -> None:
    with pytest.raises(GrammarUnsupported) as caught:
        gbnf(text)
    assert caught.value.place == place
    assert message in caught.value.message


@pytest.mark.parametrize("read", [gbnf, ebnf])
def test_limits(read: Any) -> None:
    for bounds in ["{11}", "{3,11}", "{11,}", "{99999999999999999999999}"]:
        with pytest.raises(GrammarTooLarge, match=r"raise Limits.max_repeat .*\(line 2:9\)"):
            read(f'root ::=\n    "a"{bounds}'.replace("{3,", "{"), limits=Limits(max_repeat=10))
    read('root ::= "a"{10}', limits=Limits(max_repeat=10))
    for text, fits in [('root ::= (("a"))', 2), ('root ::= ((("a")) "b")', 3), ('root ::= (("a")+)+', 2)]:
        read(text, limits=Limits(max_depth=fits))
        with pytest.raises(GrammarTooLarge, match=r"raise Limits.max_depth .*\(line 1:10\)"):
            read(text, limits=Limits(max_depth=fits - 1))


def test_repeats_of_repeats_count_as_nesting() -> None:
    with pytest.raises(GrammarTooLarge, match="max_depth"):
        gbnf('root ::= "a"' + "*" * 300)


@pytest.mark.parametrize("read", [gbnf, ebnf])
def test_type(read: Any) -> None:
    with pytest.raises(TypeError, match="not bytes"):
        read(b'root ::= "a"')


@pytest.mark.parametrize("read", [gbnf, ebnf])
def test_long_and_deep(read: Any) -> None:
    rules = [f'r{number} ::= r{number + 1} | "x" ("y" r{number // 2})?' for number in range(5000)]
    grammar = read("\n".join(["root ::= r0", *rules, 'r5000 ::= "q"']))
    assert len(grammar.rules) == 5002
    assert grammar.rules["r4999"] == Alternation(
        (Reference("r5000"), Sequence((Bytes(b"x"), Repeat(Sequence((Bytes(b"y"), Reference("r2499"))), 0, 1))))
    )
    nested = read("root ::= " + '("a" ' * 200 + '"b"' + ')? "c"' * 200)
    assert Earley(nested.rules, "root").complete(b"a" * 200 + b"b" + b"c" * 200)
    wide = read("root ::= " + ' "a"' * 5_000 + ' | "b"' * 5_000).rules["root"]
    assert isinstance(wide, Alternation) and len(wide.options) == 5_001
    assert read('root ::= "' + r"\n" * 50_000 + '"').rules["root"] == Bytes(b"\n" * 50_000)
    assert read("root ::= " + "# " * 20_000 + '\n"a"' + "\n" * 50_000).rules["root"] == Bytes(b"a")


# --- written and read back ---


@given(st.data(), random_rules, st.lists(st.text(ALPHABET, max_size=8), max_size=8))
def test_round_trip(data: st.DataObject, rules: dict[str, Expression], texts: list[str]) -> None:
    text = Writer(data.draw, "gbnf").grammar(rules)
    grammar = gbnf(text)
    assert verdicts(grammar.rules, TEXTS + texts) == verdicts(rules, TEXTS + texts), text


@given(st.text('rot:=ab \n|()*{1,}"[]\\-^#<>!.', max_size=40))
def test_any_text_is_read_or_refused_with_a_place(text: str) -> None:
    for read in (gbnf, ebnf):
        for whole in (text, "root ::= " + text):
            try:
                read(whole)
            except GrammarError as error:
                assert error.place is not None and error.place.startswith("line ")


# --- grammars of the kind that people use ---

USED: dict[str, tuple[str, list[str], list[str]]] = {
    "json": (
        r"""
# any JSON, with little white space
root    ::= ws value
value   ::= (object | array | text | number | "true" | "false" | "null") ws
object  ::= "{" ws (member ("," ws member)*)? "}"
member  ::= text ws ":" ws value
array   ::= "[" ws (
                value
                ("," ws value)*
            )? "]"
text    ::= "\"" (
    [^"\\\x00-\x1F\x7F] |   # all but controls
    "\\" (["\\/bfnrt] | "u" [0-9A-Fa-f]{4})
)* "\""
number  ::= "-"? ("0" | [1-9] [0-9]{0,14}) ("." [0-9]+)? ([eE] [+-]? [0-9]{1,3})?

ws ::= | " " | "\n" [ \t]{0,8}
""",
        ["{}", '{"a":[1, -2.5e+1,{"b" :null}], "é\\u00e9\\n":"x"}', '{\n  "k": true\n}', " 7"],
        ["[1", '{"a":}', '{"a":01}', '{"a":"\n"}', '{"a":1,}'],
    ),
    "equations": (
        r"""root    ::= (side "=" blank side ";" blank)+
side    ::= product ([-+] blank product)*
product ::= factor ([*/] blank factor)*
factor  ::= ([a-z] [a-z0-9_]* | [0-9]+ | "(" blank side ")") blank
blank   ::= [ \t\n]*
""",
        ["1+2=3;", "( a1 - 2 ) *b = x;\n1=1;"],
        ["1+=2;", "1=2", "A=1;"],
    ),
    "moves": (
        """
# Two players, move by move.
root ::= (
    # the first
    "1. " move " " move "\\n"

    # and the others
    ([2-9] ". " move " " move "\\n")+
)
move   ::= (pawn | piece | castle) [+#]?
pawn   ::= ([a-h] "x")? square ("=" [NBRQ])?
piece  ::= [KQRBN] [a-h]? [1-8]? "x"? square
castle ::= "O-O" "-O"?
square ::= [a-h] [1-8]
""",
        ["1. e4 e5\n2. Nf3 Nc6\n", "1. e4 d5\n2. exd5 Qxd5+\n3. O-O O-O-O#\n"],
        ["1. e4 e5\n", "1. e9 e5\n2. a3 a4\n"],
    ),
    "statements": (
        r"""
root ::= function*
function ::= type name "(" ( type name )? ")" "{" statement* "}"
type ::= ("int" | "float") space
name ::= [a-zA-Z_] [a-zA-Z_0-9]*
statement ::=
    ( type name " "? "=" " "? sum ";" ) |
    ( "while" "(" sum ("<" | "<=" | "==") sum ")" "{" statement* "}" ) |
    ( "return" space sum ";" ) |
    ( "/*" ( [^*] | ("*" [^/]) )* "*/" )
sum ::= term (("+" | "-") term)*
term ::= atom (("*" | "/") atom)*
atom ::= name | "-"? [0-9]+ | "(" sum ")"
space ::= ([ \t\n]+)
""",
        ["", "int f(){}", "int f(float x){int y = (1+x)*2;while(y<3){/* ** */return y;}}"],
        ["int f(", "f(){}"],
    ),
    "list": (
        r"""root ::= ("* " entry)+
# Not the line ends of Unicode.
entry ::= [^\n\r\x0b\x0c\x85\u2028\u2029]+ "\n"
""",
        ["* a\n* é\n"],
        ["* a", "* a\x85\n"],
    ),
    "scripts": (
        """# By blocks
root   ::= letter+ ([ \\t\\n] letter+)*
letter ::= kana | mark | han | greek
kana   ::= [ぁ-ゟ] | [ァ-ヿ]
mark   ::= [、-〾]
han    ::= [一-鿿]
greek  ::= [\\u0391-\\u03C9]
""",
        ["日本語、ひらがな カタ", "αΩ"],
        ["abc", "日 "],
    ),
    "marks": (
        """root ::= word ([ \\t\\n] word)*
word ::= ([A-Za-z0-9] | mark)+
mark ::= [!"#$%&'()*+,./:;<=>?@[\\\\\\]^_`{|}~-]
""",
        ["Hello, world!", "a\\b [c] {d} - e"],
        ["é", "a  b"],
    ),
    "thought": (
        'root ::= "<think>" ([^<] | "<" [^/])* "</think>" .*\n',
        ["<think>a<b</think>c\n"],
        ["a"],
    ),
}


@pytest.mark.parametrize("name", USED)
def test_used(name: str) -> None:
    text, taken, refused = USED[name]
    assert accepts(text, *taken) == [True] * len(taken)
    assert accepts(text, *refused) == [False] * len(refused)


# --- the shared cases ---


@functools.cache
def cases() -> list[dict[str, Any]]:
    loaded = [json.loads(path.read_text()) for path in sorted((DATA / "cases").glob("*.json"))]
    return [case for case in loaded if case["kind"] in ("gbnf", "ebnf")]


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["id"])
def test_shared_cases(case: dict[str, Any]) -> None:
    grammar = {"gbnf": gbnf, "ebnf": ebnf}[case["kind"]](case["grammar"])
    oracle = Earley(grammar.rules, grammar.start)
    for text in case["accept"]:
        assert oracle.complete(text.encode()), text
    for text in case["reject"]:
        assert not oracle.complete(text.encode()), text
    for prefix in [*map(str.encode, case["alive_prefixes"]), *map(bytes.fromhex, case.get("alive_prefixes_hex", []))]:
        assert oracle.alive(prefix), prefix
    for prefix in map(bytes.fromhex, case.get("dead_prefixes_hex", [])):
        assert not oracle.alive(prefix), prefix
