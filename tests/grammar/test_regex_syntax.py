"""Regex syntax piece by piece: escapes, classes, case, structure, flags, anchors, and what is refused and where."""

from __future__ import annotations

import re

import pytest
from oracles import expression_matches

from stepmask.grammar.errors import GrammarSyntaxError, GrammarTooLarge, GrammarUnsupported
from stepmask.grammar.expression import Alternation, Bytes, Characters, Expression, Lookahead, Repeat, Sequence
from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex


def matches(pattern: str, text: str, **options: bool) -> bool:
    return expression_matches(regex(pattern, **options).rules["start"], text)  # type: ignore[arg-type]


# Escapes

ESCAPES = [
    (r"\n", "\n"),
    (r"\t", "\t"),
    (r"\r", "\r"),
    (r"\f", "\f"),
    (r"\v", "\v"),
    (r"\a", "\a"),
    (r"\e", "\x1b"),
    (r"\0", "\0"),
    (r"\cM", "\r"),
    (r"\cj", "\n"),
    (r"\x41", "A"),
    (r"\x{41}", "A"),
    (r"\x{1F600}", "😀"),
    (r"\u0041", "A"),
    (r"\u{1f600}", "😀"),
    (r"\u{A}", "\n"),
    (r"\U0001F600", "😀"),
    (r"\uD83D\uDE00", "😀"),
    (r"\ud83d\ude00", "😀"),
    (r"\uFFFF", "\uffff"),
    (r"\u{10FFFF}", "\U0010ffff"),
    (r"\/", "/"),
    (r"\-", "-"),
    (r"\_", "_"),
    (r"\ ", " "),
    ("\\\n", "\n"),
    (r"\é", "é"),
    *((re.escape(character), character) for character in "\\()[]{}*+?.^$|#&~-"),
]


@pytest.mark.parametrize(("escape", "text"), ESCAPES)
def test_escapes(escape: str, text: str) -> None:
    assert regex(escape).rules["start"] == Bytes(text.encode())
    assert regex(f"x{escape}y").rules["start"] == Bytes(f"x{text}y".encode())
    assert regex(f"{escape}*").rules["start"] == Repeat(Bytes(text.encode()), 0, None)
    assert regex(f"x{escape}{{2}}y").rules["start"] == Sequence(
        (Bytes(b"x"), Repeat(Bytes(text.encode()), 2, 2), Bytes(b"y"))
    )
    assert regex(f"x{escape}|y|z").rules["start"] == Alternation((Bytes(f"x{text}".encode()), Bytes(b"y"), Bytes(b"z")))
    code_point = ord(text)
    assert regex(f"[{escape}]").rules["start"] == Characters(((code_point, code_point),))
    if 0x20 < code_point < 0x10FFFF:
        assert regex(f"[ {escape}]").rules["start"] in (
            Characters(((0x20, 0x20), (code_point, code_point))),
            Characters(((0x20, code_point),)),
        )


CLASS_CASES = [
    ("[a-c]", "abc", "d-A"),
    ("[^a-c]", "d-\n😀", "abc"),
    ("[]a]", "]a", "["),
    ("[^]a]", "[b", "]a"),
    ("[[a]", "[a", "]"),
    ("[a^]", "a^", "b"),
    ("[-a]", "-a", "b"),
    ("[a-]", "-a", "b"),
    (r"[a\-c]", "a-c", "b"),
    (r"[\w-.]", "a-.", ",/"),
    (r"[+-\d]", "+-5", ",a"),
    ("[--/]", "-./", ",0"),
    ("[+--]", "+,-", "*."),
    (r"[\b]", "\b", "b"),
    (r"[\d\s]", "1 ", "a"),
    (r"[^\d\s]", "a", "1 "),
    (r"[\D]", "a", "1"),
    (r"[^\W]", "aé_1", "- "),
    (r"[\p{Lu}\p{Nd}]", "AÉ1", "a-"),
    (r"[^\p{L}]", "1 ", "aé"),
    (r"[\P{L}]", "1 ", "aé"),
    (r"[\p{^L}]", "1 ", "aé"),
    ("[[:alpha:]]", "aZ", "é1:["),
    ("[[:^alpha:]1]", "é1:[", "aZ"),
    ("[^[:space:]]", "a", " \n"),
    ("[[:upper:][:digit:]_]", "A1_", "a-"),
    ("[[:]", "[:", "a"),
    ("[:a:]", ":a", "["),
    ("[é-ü]", "éíü", "eu"),
    ("[😀-😂]", "😀😁😂", "😃"),
    (r"[\uD83D\uDE00-\uD83D\uDE02]", "😀😁😂", "😃"),
    (r"[a||b]", "a|b", "&"),
    ("[&&a]", "&a", "b"),
    ("[a&&]", "&a", "b"),
    ("[a-c--]", "b-", "d"),
    ("[.*+?(){}$|]", ".*+?(){}$|", "a^"),
    (r"\p{L}", "aéЖ日", "1 "),
    (r"\pL", "aé", "1"),
    (r"\P{L}", "1", "a"),
    (r"\PL", "1", "a"),
    (r"\p{^Greek}", "a", "α"),
    (r"\p{Script=Greek}", "α", "a"),
    (r"\p{L&}", "aA", "日"),
    (".", "a😀\r\u2028", "\n"),
    ("(?s).", "a\n", ""),
    (r"\d", "1٣", "a"),
    (r"(?a)\d", "1", "٣a"),
    (r"\w", "aé_日", "-"),
    (r"(?a)\w", "a_", "é"),
    (r"\s", " \n\u2003\x1c", "a"),
    (r"(?a)\s", " \n", "\u2003\x1c"),
]


@pytest.mark.parametrize(("pattern", "inside", "outside"), CLASS_CASES)
def test_sets(pattern: str, inside: str, outside: str) -> None:
    start = regex(pattern).rules["start"]
    assert isinstance(start, Characters)
    assert [c for c in inside if not expression_matches(start, c)] == []
    assert [c for c in outside if expression_matches(start, c)] == []
    assert not expression_matches(start, "") and not expression_matches(start, inside[:1] * 2)


def test_class_of_nothing() -> None:
    assert regex(r"[^\u0000-\u007f\u0080-\U0010FFFF]").rules["start"] == Characters(())


CASE_CASES = [
    ("k", "kK\u212a", "j"),
    ("s", "sSſ", "z"),
    ("é", "éÉ", "e"),
    ("ß", "ßẞ", "s"),
    ("[a-c]", "aBc", "dD"),
    ("[^a-c]", "dD", "aBc"),
    ("[^k]", "j", "kK\u212a"),
    (r"[\u212a]", "kK\u212a", "j"),
    (r"\u212a", "kK\u212a", "j"),
    (r"\W", "-\u0345", "ι"),
    (r"\p{Lu}", "aA", "日"),
    (r"[\p{Lu}1]", "aA1", "日"),
    ("[[:upper:]]", "aA", "é"),
    ("(?a)k", "kK", "\u212a"),
    ("(?a)[é]", "é", "É"),
    ("(?-i:k)", "k", "K"),
    ("1", "1", "2"),
]


@pytest.mark.parametrize(("pattern", "inside", "outside"), CASE_CASES)
def test_ignoring_case(pattern: str, inside: str, outside: str) -> None:
    assert [c for c in inside if not matches(pattern, c, ignore_case=True)] == []
    assert [c for c in outside if matches(pattern, c, ignore_case=True)] == []


# Structure

STRUCTURES: list[tuple[str, Expression]] = [
    ("", Bytes(b"")),
    ("abc", Bytes(b"abc")),
    ("a日😀", Bytes("a日😀".encode())),
    (r"a\.b\x41", Bytes(b"a.bA")),
    ("ab*", Sequence((Bytes(b"a"), Repeat(Bytes(b"b"), 0, None)))),
    ("日本+", Sequence((Bytes("日".encode()), Repeat(Bytes("本".encode()), 1, None)))),
    ("(ab)+?", Repeat(Bytes(b"ab"), 1, None)),
    ("a{3}", Repeat(Bytes(b"a"), 3, 3)),
    ("a{3,}", Repeat(Bytes(b"a"), 3, None)),
    ("a{,3}", Repeat(Bytes(b"a"), 0, 3)),
    ("a{0,100000}", Repeat(Bytes(b"a"), 0, 100_000)),
    ("a{1}", Bytes(b"a")),
    ("a{0}b", Sequence((Bytes(b""), Bytes(b"b")))),
    ("a{", Bytes(b"a{")),
    ("{a}", Bytes(b"{a}")),
    ("a{}", Bytes(b"a{}")),
    ("a{1,b}", Bytes(b"a{1,b}")),
    ("a{ 1}", Bytes(b"a{ 1}")),
    ("a{{2}", Sequence((Bytes(b"a"), Repeat(Bytes(b"{"), 2, 2)))),
    ("}]", Bytes(b"}]")),
    ("a|b", Alternation((Bytes(b"a"), Bytes(b"b")))),
    ("|a", Alternation((Bytes(b""), Bytes(b"a")))),
    ("a|", Alternation((Bytes(b"a"), Bytes(b"")))),
    ("a||b", Alternation((Bytes(b"a"), Bytes(b""), Bytes(b"b")))),
    ("()", Bytes(b"")),
    ("(|a)b", Sequence((Alternation((Bytes(b""), Bytes(b"a"))), Bytes(b"b")))),
    (r"a\|b|c\\|d", Alternation((Bytes(b"a|b"), Bytes(b"c\\"), Bytes(b"d")))),
    ("(?=a)*b", Sequence((Bytes(b""), Bytes(b"b")))),
    ("(?!a){2}b", Sequence((Lookahead(Bytes(b"a"), True), Bytes(b"b")))),
    ("(?:(?:(?:a)))", Bytes(b"a")),
    ("(?<n>a)(?P<m>b)", Sequence((Bytes(b"a"), Bytes(b"b")))),
    ("a(?#no b)c", Bytes(b"ac")),
    ("a(?#no b)*", Repeat(Bytes(b"a"), 0, None)),
    ("(?x) a b # no c\n d \\  [ ] ", Sequence((Bytes(b"abd "), Characters(((32, 32),))))),
    ("(?x)a *", Repeat(Bytes(b"a"), 0, None)),
    ("(?x: a )b c", Sequence((Bytes(b"a"), Bytes(b"b c")))),
    ("(?-x)a b", Bytes(b"a b")),
]


@pytest.mark.parametrize(("pattern", "expected"), STRUCTURES)
def test_structure(pattern: str, expected: Expression) -> None:
    assert regex(pattern).rules["start"] == expected


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("a(?i)b", ["ab", "aB"], ["Ab"]),
        ("(a(?i)b)c", ["abc", "aBc"], ["abC", "ABc"]),
        ("(a(?i)b|c)d", ["ab" + "d", "Cd"], ["CD"]),
        ("(?i:a)b", ["ab", "Ab"], ["aB"]),
        ("(?i)a(?-i:b)c", ["AbC"], ["ABC"]),
        ("(?is)a.", ["A\n"], ["A"]),
        ("(?s-i:.)", ["\n"], []),
        (".(?s:.).", ["a\nb"], ["\n\n\n"]),
        (r"(?a:\d)(?u:\d)", ["1٣"], ["٣٣"]),
        ("(?i)straße", ["STRAẞE", "ſtraße"], ["strasse"]),
    ],
)
def test_inline_flags(pattern: str, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not matches(pattern, text)] == []
    assert [text for text in bad if matches(pattern, text)] == []


@pytest.mark.parametrize(
    ("pattern", "search", "good", "bad"),
    [
        ("^a$", False, ["a"], ["a\n", "aa", ""]),
        ("a|^b|c$", True, ["xax", "bx", "xc"], ["xb", "cx", ""]),
        ("^a", True, ["a", "ab", "a\n"], ["ba", "\na"]),
        ("a$", True, ["a", "ba"], ["ab", "a\n"]),
        (r"\Aa\z", True, ["a"], ["ab", "ba"]),
        ("^a|b$", True, ["ax", "xb"], ["xa", "bx"]),
        ("", True, ["", "a\n😀"], []),
        ("a^b", False, [], ["ab", "a^b", ""]),
        ("(^|x)a($|y)", True, ["a", "bxay", "xa"], ["ba", "ab"]),
        ("(?=a.c)..c", False, ["abc"], ["bbc"]),
        ("(?!.*b)[a-z]+", False, ["ac"], ["abc"]),
        ("(?:(?!nop|mnoq)[m-q])*", False, ["", "mno", "noq"], ["mnop", "qmnopm"]),
        ("^(?!a$)", True, ["", "ab", "b"], ["a"]),
        ("(?:^)*a", False, ["a"], ["ba"]),
    ],
)
def test_anchors_and_lookaheads(pattern: str, search: bool, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not matches(pattern, text, search=search)] == []
    assert [text for text in bad if matches(pattern, text, search=search)] == []


# Refusals

SYNTAX_ERRORS = [
    ("*a", 1, "nothing to repeat"),
    ("a|*", 3, "nothing to repeat"),
    ("(+)", 2, "nothing to repeat"),
    ("{2}", 1, "nothing to repeat"),
    ("(?i)*", 5, "nothing to repeat"),
    ("a**", 3, "another quantifier"),
    ("a{2}{3}", 5, "another quantifier"),
    ("a+?*", 4, "another quantifier"),
    ("(?x)a* +", 8, "another quantifier"),
    ("a{3,2}", 2, "wrong order"),
    ("ab(c", 3, "not closed"),
    ("a(b(c)", 2, "not closed"),
    ("ab)", 3, "closes no group"),
    ("a[bc", 2, "not closed"),
    ("a[]", 2, "not closed"),
    ("[z-a]", 2, "wrong order"),
    ("[ab\\", 4, "backslash at the end"),
    ("ab\\", 3, "backslash at the end"),
    (r"a\q", 2, "unknown escape"),
    (r"\y", 1, "unknown escape"),
    (r"[\z]", 2, "unknown escape"),
    (r"[a\B]", 3, "unknown escape"),
    (r"\01", 1, "octal"),
    (r"[\1]", 2, "octal"),
    (r"\x4", 1, "hexadecimal"),
    (r"\x{}", 1, "hexadecimal"),
    (r"\u004", 1, "hexadecimal"),
    (r"\U0001F60", 1, "hexadecimal"),
    (r"\U{1F600}", 1, "hexadecimal"),
    (r"\U00110000", 1, "past the last"),
    (r"\u{110000}", 1, "past the last"),
    (r"a\uD83D", 2, "lone surrogate"),
    (r"\uDE00\uD83D", 1, "lone surrogate"),
    (r"\u{D83D}\u{DE00}", 1, "lone surrogate"),
    (r"[\uD83D-\uDE00]", 2, "lone surrogate"),
    (r"\c1", 1, "ASCII letter"),
    (r"a\p{Foo}", 2, "unknown character property 'Foo'"),
    (r"\p{Greeek}", 1, "did you mean greek"),
    (r"\p{L", 1, "not closed"),
    (r"\p", 1, "needs a property"),
    (r"[\p{Foo}]", 2, "unknown character property"),
    ("[[:foo:]]", 2, "unknown POSIX class"),
    ("(?P<1a>b)", 1, "group name"),
    ("(?<>b)", 1, "group name"),
    ("(?z)", 1, "unknown flag"),
    ("(?-a)", 1, "cannot be turned off"),
    ("(?)", 1, "no flags"),
    ("(?*a)", 1, "unknown kind of group"),
    ("a(?#b", 2, "comment is not closed"),
]

UNSUPPORTED = [
    (r"(a)\1", 4, r"back-reference \\1"),
    (r"(a)b\12", 5, r"back-reference \\12"),
    ("(?P<n>a)(?P=n)", 9, "back-reference"),
    (r"(?P<n>a)\k<n>", 9, "back-reference"),
    ("a(?<=b)", 2, "lookbehind"),
    ("a(?<!b)", 2, "negative lookbehind"),
    (r"a\b", 2, r"word boundary \\b"),
    (r"a\B", 2, r"\\B"),
    (r"\Ga", 1, r"\\G"),
    (r"a\K", 2, r"\\K"),
    (r"\R", 1, r"\\R"),
    (r"\X", 1, r"\\X"),
    ("(a)(?(1)b|c)", 4, "conditionals"),
    ("a(?R)?", 2, "recursion"),
    ("(a)(?1)", 4, "recursion"),
    ("(?P<n>a)(?P>n)", 9, "recursion"),
    ("(?P<n>a)(?&n)", 9, "recursion"),
    ("a(?>b)", 2, "atomic"),
    ("a*+", 2, "possessive"),
    ("a{2}+", 2, "possessive"),
    ("(?m)^a", 1, "flag m"),
    ("(?im:a)", 1, "flag m"),
    ("[a-z&&[^b]]", 5, "intersection &&"),
    ("[a-z--b]", 5, "difference --"),
    ("[a--b]", 3, "difference --"),
    (r"[\w--\d]", 4, "difference --"),
    (r"\Qa\E", 1, "quoting"),
]


@pytest.mark.parametrize(("pattern", "column", "message"), SYNTAX_ERRORS)
def test_syntax_errors(pattern: str, column: int, message: str) -> None:
    with pytest.raises(GrammarSyntaxError, match=message) as caught:
        regex(pattern)
    assert caught.value.place == f"column {column}"


@pytest.mark.parametrize(("pattern", "column", "message"), UNSUPPORTED)
def test_unsupported(pattern: str, column: int, message: str) -> None:
    with pytest.raises(GrammarUnsupported, match=message) as caught:
        regex(pattern)
    assert caught.value.place == f"column {column}"


@pytest.mark.parametrize("bad", [None, b"a+", 7, re.compile("a"), ["a"]])
def test_pattern_is_text(bad: object) -> None:
    with pytest.raises(TypeError, match=type(bad).__name__):
        regex(bad)  # type: ignore[arg-type]


def test_surrogates_in_the_pattern() -> None:
    with pytest.raises(GrammarSyntaxError, match="surrogate") as caught:
        regex("ab\udc80c")
    assert caught.value.place == "column 3"


@pytest.mark.parametrize(("pattern", "column"), [("ab{1000001}", 3), ("a{2,9999999}", 2), ("a{" + "9" * 5000 + "}", 2)])
def test_too_many_repetitions(pattern: str, column: int) -> None:
    with pytest.raises(GrammarTooLarge, match=r"Limits\.max_repeat") as caught:
        regex(pattern)
    assert (caught.value.place, caught.value.limit) == (f"column {column}", "max_repeat")


def test_limits_are_parameters() -> None:
    assert regex("a{2000000}", limits=Limits(max_repeat=2_000_000)).rules["start"] == Repeat(
        Bytes(b"a"), 2000000, 2000000
    )
    with pytest.raises(GrammarTooLarge):
        regex("a{11}", limits=Limits(max_repeat=10))


def test_nesting_is_bounded_by_the_limit_not_by_the_interpreter() -> None:
    depth = Limits().max_depth
    assert regex("(" * depth + "a" + ")" * depth).rules["start"] == Bytes(b"a")
    for pattern in ("(" * (depth + 1) + "a" + ")" * (depth + 1), "(?=" * 100_000):
        with pytest.raises(GrammarTooLarge, match="nested") as caught:
            regex(pattern)
        assert caught.value.limit == "max_depth"
    assert regex("((?:a)b?)" * 5000).kind == "regex"
