r"""The terminals of Lark grammars: what they match, against Python's `re` as lark's dynamic lexer uses it."""

from __future__ import annotations

import itertools
import re
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import expression_matches

from stepmask.grammar.errors import GrammarError, GrammarSyntaxError, GrammarTooLarge, GrammarUnsupported
from stepmask.grammar.expression import Expression, Lookahead
from stepmask.grammar.lark_terminals import Place, Terminal
from stepmask.grammar.limits import Limits
from stepmask.grammar.match_order import LazyRepeat, Lookbehind
from stepmask.grammar.simplify import contains

TEXTS = ["".join(letters) for length in range(6) for letters in itertools.product("ab", repeat=length)]


def terminal(text: str, flags: str = "", limits: Limits | None = None) -> Expression:
    return Terminal("T", text, frozenset(flags), Place(3, 10, exact=True), limits or Limits()).expression()


def lexed(compiled: re.Pattern[str], text: str, start: int) -> set[str]:
    """What lark's complete dynamic lexer takes for a token at `start`: the match, and the matches of its beginnings."""
    match = compiled.match(text, start)
    if match is None:
        return set()
    found = {match[0]}
    for length in range(1, len(match[0])):
        shorter = compiled.match(match[0][:length])
        if shorter is not None:
            found.add(shorter[0])
    return found


atoms = st.sampled_from(["a", "b", "ab", "ba", "aa", ".", "[ab]", "(?:|a)", "(?:a|ab)", "(?:ab|a)", "a??"])
quantifiers = st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,3}?", "{1,}?", "{2,}"])


def patterns(look: bool) -> st.SearchStrategy[str]:
    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        kinds = [
            st.lists(inner, min_size=1, max_size=3).map("".join),
            st.lists(inner, min_size=2, max_size=3).map(lambda options: f"(?:{'|'.join(options)})"),
            st.tuples(inner, quantifiers).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        ]
        if look:
            kinds.append(st.tuples(st.sampled_from(["(?=", "(?!"]), inner).map(lambda pair: f"{pair[0]}{pair[1]})"))
            kinds.append(st.sampled_from(["(?<=a)", "(?<!a)", "(?<!ab)", "(?<=b)", "(?<![ab]b)"]))
        return st.one_of(kinds)

    return st.recursive(atoms, larger, max_leaves=6)


def check(text: str) -> None:
    compiled = re.compile(text)
    expression = terminal(text)
    assert not contains(expression, (LazyRepeat, Lookbehind, Lookahead))
    tokens = {token for token in TEXTS if expression_matches(expression, token)}
    for whole in TEXTS:
        if len(whole) == 5:
            for start in range(5):
                rest = whole[start:]
                expected = {rest[:length] for length in range(1, len(rest) + 1)} & tokens
                assert lexed(compiled, whole, start) - {""} == expected, (whole, start)
    assert ("" in tokens) == (compiled.match("") is not None)


@given(patterns(look=False))
def test_a_terminal_matches_what_the_lexer_would_take(text: str) -> None:
    check(text)


@given(patterns(look=True))
def test_lookarounds_are_exact_or_refused(text: str) -> None:
    try:
        check(text)
    except GrammarUnsupported as error:
        assert "lookaround" in error.message or "terminal" in error.message


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        (r'".*?(?<!\\)(\\\\)*?"', ['""', '"a"', r'"\""', r'"\\"', '"é"'], ['"', r'"\"', '"a"b"', r'"\\""', '"\n"']),
        (r"/\*(.|\n)*?\*/", ["/**/", "/***/", "/* a\n*/"], ["/*/", "/**/*/", "/* */ */"]),
        (r"a|ab", ["a"], ["ab"]),
        (r"ab|a", ["a", "ab"], ["b"]),
        (r"(?!if)[a-z]+;", ["i;", "in;", "fi;"], ["if;", "ifs;"]),
        (r"[a-z](?<!x)[0-9]", ["a1"], ["x1"]),
        (r'"(?=a)[^"]*"', ['"a"', '"ab"'], ['""', '"b"']),
        (r"x(?#note)y", ["xy"], ["x"]),
        (r"(?P<name>x)+", ["x", "xx"], []),
    ],
)
def test_terminals_seen_in_grammars(text: str, yes: list[str], no: list[str]) -> None:
    expression = terminal(text)
    assert [token for token in yes if not expression_matches(expression, token)] == []
    assert [token for token in no if expression_matches(expression, token)] == []


@pytest.mark.parametrize(
    ("text", "flags", "yes", "no"),
    [
        ("ab", "i", ["ab", "AB", "aB"], ["a"]),
        ("a.", "s", ["a\n", "ab"], ["a"]),
        ("a.", "", ["ab"], ["a\n"]),
        ("a b # end\n", "x", ["ab"], ["a b"]),
        ("a.", "m", ["ab"], ["a\n"]),
        ("(?i)a|b", "", ["A", "B"], []),
        ("(?i:a)b", "", ["Ab"], ["AB"]),
        ("(?m:a)b", "", ["ab"], []),
    ],
)
def test_flags(text: str, flags: str, yes: list[str], no: list[str]) -> None:
    expression = terminal(text, flags)
    assert [token for token in yes if not expression_matches(expression, token)] == []
    assert [token for token in no if expression_matches(expression, token)] == []


@pytest.mark.parametrize(
    ("text", "kind", "message", "column"),
    [
        ("ab^c", GrammarUnsupported, "anchor ^ within a terminal", 12),
        ("a$", GrammarUnsupported, "anchor $ within a terminal", 11),
        (r"a\Z", GrammarUnsupported, r"anchor \Z within a terminal", 11),
        (r"a\b", GrammarUnsupported, "word boundary", 11),
        (r"ab(?=c)", GrammarUnsupported, "lookahead would see what comes after", 12),
        (r"ab(?!c)", GrammarUnsupported, "lookahead would see what comes after", 12),
        (r"(?<!c)ab", GrammarUnsupported, "lookbehind would see what comes before", 10),
        (r"a(?=b(?!c))bd", GrammarUnsupported, "lookaround within another", 15),
        (r"(a)\1", GrammarUnsupported, "back-reference", 13),
        ("[[:alpha:]]", GrammarUnsupported, "POSIX class", 10),
        ("a)", GrammarSyntaxError, "no pattern of Python's re", 11),
        (r"\p{L}", GrammarSyntaxError, "no pattern of Python's re", 10),
        (r"a(?<!b*)c", GrammarSyntaxError, "fixed-width", 10),
    ],
)
def test_what_is_refused_is_named(text: str, kind: type[GrammarError], message: str, column: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        with pytest.raises(kind) as caught:
            terminal(text)
    assert message in str(caught.value)
    assert caught.value.message.startswith("terminal T: ")
    assert caught.value.place == f"line 3:{column}"


words = st.lists(st.sampled_from(["a", "b", "ab", "aa", "ba", "aba", "abb", "bab"]), min_size=2, max_size=5)


@given(words, st.sampled_from(["", "b", "a?", "[ab]b?", "b*?"]), st.booleans())
def test_lists_of_words(options: list[str], behind: str, longer_first: bool) -> None:
    if longer_first:
        options.sort(key=len, reverse=True)
    check(f"(?:{'|'.join(options)}){behind}")


def test_long_lists_of_words() -> None:
    words = [f"w{number}" for number in range(3000)]
    for text in ("|".join(words), "|".join(reversed(words)) + "|x"):
        assert expression_matches(terminal(text), "w7")
    assert expression_matches(terminal("|".join(reversed(words))), "w2999")
    assert not expression_matches(terminal("|".join(words)), "w2999")


def test_a_terminal_past_its_limit_names_it() -> None:
    assert terminal(".{0,900}x")
    with pytest.raises(GrammarTooLarge, match=r"raise Limits.max_terminal_states to allow it \(line 3:10\)$"):
        terminal(".{0,900}x", limits=Limits(max_terminal_states=500))
