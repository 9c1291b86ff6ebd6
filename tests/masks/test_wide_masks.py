"""Masks of states that most tokens keep alive, against `allows` for each token, which walks no trie."""

from __future__ import annotations

import random

import pytest
from mask_sets import byte_vocabulary, tokens_of
from wide_vocabulary import END, VOCABULARY

from stepmask.grammar.expression import Grammar
from stepmask.grammar.gbnf import gbnf
from stepmask.grammar.json_schema.front_end import json_schema
from stepmask.grammar.json_value import json_object
from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex
from stepmask.grammar.structural_tag import structural_tag
from stepmask.masks.batch import Batch
from stepmask.masks.compiled import compile
from stepmask.masks.layout import COUNT_WORK
from stepmask.masks.matcher import Matcher
from stepmask.masks.suffixes import SUFFIX_COST

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PATTERNS = [
    '"[^"\\\\]*"',
    '"(?:[^"\\\\\\x00-\\x1f]|\\\\["\\\\nt]){0,40}"',
    r"\w+",
    r"(?:\w+ )*\w{1,30}[.]",
    r"\S{3,}(?:\s\S+)*",
    "[^,]{0,4}(?:,[^,]{1,3})*",
    "[a-zA-Z0-9_-]{1,9}/.*",
    r"[\w ]{2,30}",
    r"(?:[^a]|ab)*",
    r"(?:\p{L}{1,5}[ ,]){1,9}",
    ".{0,7}",
    r"(?:.|\n){5}x*",
    "[ a-zé日]*;.*",
    r".*[ab].{3}",
    r"(?!.*[0-9]{2})[^ ]*",
    r"(?:[a-z ]{2,5}|[^a-z]{3})*",
    r"[\u4e00-\u9fff]+|[а-я ]+",
    # What follows the repeat is one of its own characters, and leads on to others.
    r"[b-f]{1,500}b[A-F]/",
    r"\w{1,300}é,;\w",
    # Few bytes leave the set: suffixes from these on, where one state or two stay in it.
    r"(?:- [^\n]+\n){1,20}",
    r"[^,\n]+(?:,[^,\n]+){2,5}",
    r'(?:[^"]+"[a-z]*)+;',
    r"[^/;]+(?:/[^/;]*;)?",
    # States whose characters lead to others like them: what is alive there is not what is alive at first.
    r"(.*a){5}",
    r"(?:.*b){3};?",
    r"(?=.*[A-Z])(?=.*[0-9])(?=.*[a-z])[^,\n]{3,}",
    r"(?:[^\nя]*[cd]){2}[^\n]*я.",
    r"(?:\S+\s+){0,40}\S+",
    # A byte that leaves the set leads to a state that has fewer; a first byte leads to another loop, left by others.
    r"[a-z0-9._,;+-]+/[a-z0-9-]+(?:[.][a-z0-9-]+)*",
    r"(?:-[ ;][^\n;]+[\n;])*",
    r"(?:a[ /][^;]*;)*",
    r'(?:é ?[^",]+[",])*',
    r"(?:\w+[ ,])*x[0-9]*[^0-9 ]+",
    # Code points above U+007F begin another item, and are dead within one.
    r"(?:[^a]|a[\x00-\x7f]){0,300};?",
    r"(?:[^a]|a[\x00-\x7f]){40}",
]


@pytest.mark.parametrize("limits", [Limits(max_eager_contexts=0), Limits(max_dfa_states=1)], ids=["states", "lazy"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_token(pattern: str, limits: Limits) -> None:
    rng = random.Random(pattern)
    compiled = compile(regex(pattern), VOCABULARY, limits, use_cache=False)
    for _ in range(2):
        matcher = compiled.matcher()
        for _ in range(5):
            mask = tokens_of(matcher.mask())
            assert mask == {token for token in range(VOCABULARY.size) if matcher.allows(token)}
            if not mask - {END}:
                break
            assert matcher.accept(rng.choice(sorted(mask - {END})))


#: Words of one script, alone and with what may stand beside them.
_HAN = [chr(point) for point in range(0x4E00, 0x4E00 + 50)]
_BESIDE = ["!", "a", "b", "1", "é", "ü", "é!", "aü", "一!", "一a", "一一b", "一ü!", "一1", "1一", "一1一x", "aa一"]
_HAN_WORDS = byte_vocabulary(*(text.encode() for text in [a + b for a in _HAN for b in _HAN] + _BESIDE))
_HAN_CLASS = r"[\u4e00-\u4e80]"


@pytest.mark.parametrize(
    "pattern",
    [
        f"{_HAN_CLASS}{_HAN_CLASS}*!",
        f"{_HAN_CLASS}(?:{_HAN_CLASS}|ü!)*",
        f"(?:{_HAN_CLASS}|a)(?:{_HAN_CLASS}|ü!|a)*",
        f"a?{_HAN_CLASS}(?:{_HAN_CLASS}|b!|a)*x",
        f"(?:{_HAN_CLASS}|[0-9]x?)*",
        f"(?:{_HAN_CLASS}|a){{1,300}}[!é]",
        f"(?:{_HAN_CLASS}|a1?){{1,300}}",
        f"(?:(?:{_HAN_CLASS}|[!a])*b){{1,3}}é?",
    ],
)
def test_what_a_class_leads_to(pattern: str) -> None:
    """A state may go on like another one on the characters of a class, and allow less or more besides."""
    compiled = compile(regex(pattern), _HAN_WORDS, Limits(max_eager_contexts=0), use_cache=False)
    for text in ("", "一", "a", "1", "a一", "一" * 298, "a" * 299):
        matcher = compiled.matcher()
        if not text or matcher.accept_bytes(text.encode()):
            mask = tokens_of(matcher.mask())
            assert mask == {token for token in range(_HAN_WORDS.size) if matcher.allows(token)}


def work_of_mask(pattern: str, before: bytes, *more: bytes) -> int:
    """Units of work of the mask after a text, which is compared with `allows`; `more`: the tokens but single bytes."""
    vocabulary = byte_vocabulary(*more) if more else VOCABULARY
    compiled = compile(regex(pattern), vocabulary, Limits(max_eager_contexts=0), use_cache=False)
    batch = Batch(vocabulary, 1, None)
    slot = batch.add(compiled)
    assert batch.accept_bytes(slot, before)
    begin = batch.counters["work"]
    mask = tokens_of(batch.mask(slot))
    work = batch.counters["work"] - begin
    assert mask == {token for token in range(vocabulary.size) if batch.allows(slot, token)}
    return work


WORDS = [f"{first}{second}{third}" for first in LETTERS for second in LETTERS for third in "abc"]


def test_few_tokens_after_a_first_byte_are_walked_by_themselves() -> None:
    """No token begins with `@`, so nothing is to be found out of the full stops after one."""
    words = [f"{word}.{word}%{word[0]}".encode() for word in WORDS]
    assert work_of_mask(r"[a-z0-9.%+]+@[a-z0-9-]+(\.[a-z0-9-]+)*;", b"j", *words) < len(words) // 4


def test_tokens_of_several_heads_are_walked_once() -> None:
    """What the repeat accepts, or the word after it, is not looked at again for the other one."""
    assert work_of_mask(r"(\S+\s+){0,199}\S+", b"") < VOCABULARY.size


def test_suffixes_after_a_first_byte_are_walked_once() -> None:
    """A space leads to the loop that the tokens leave: by their suffixes, as those do that begin in it."""
    words = [f" {word};".encode() for word in WORDS]
    work = work_of_mask("(?:- [^;]+;x)*", b"-", *words, *(word[:-1] for word in words))
    assert work < (1 + SUFFIX_COST) * len(words)


def test_tokens_that_leave_a_frame_together_are_walked_once() -> None:
    """What follows the end of a string is walked from where the string returns to, so one token tells of the others."""
    strings = [f"{first}{second}" for first in LETTERS for second in LETTERS]
    leaving = [f'{text}"{more}'.encode() for text in strings for more in ",;:!?.()ab"]
    vocabulary = byte_vocabulary(*leaving, *(f"{text}{letter}".encode() for text in strings for letter in LETTERS))
    lists = 'root ::= "[" item ("," item)* "]" | string\nitem ::= root | string\nstring ::= "\\"" [^"\\n]* "\\""'
    matcher = compile(gbnf(lists), vocabulary, use_cache=False).matcher()
    assert matcher.accept_bytes(b'["a')
    assert _work_of_mask(matcher) < 16 * len(leaving)
    assert tokens_of(matcher.mask()) == {token for token in range(vocabulary.size) if matcher.allows(token)}


def test_narrow_states_are_not_looked_into() -> None:
    """Of a state of few bytes it is soon known that it is not wide, however many states these lead to."""
    names = "|".join(word + suffix for word in WORDS for suffix in ("lia", "mon", "nus"))
    others = [f"0{word}{i}".encode() for word in WORDS for i in range(3)]
    assert work_of_mask(f"(?:{names})+", b"k", *others) < 420


def test_states_of_two_classes_do_not_walk_the_trie() -> None:
    """They make one loop together, although the code points of each lie in many ranges."""
    matcher = compile(regex(r"(\S+\s+){0,199}\S+"), VOCABULARY, use_cache=False).matcher()
    assert matcher.accept_bytes(b"one two")
    counters = matcher._batch.counter_values
    before = int(counters[COUNT_WORK])
    mask = tokens_of(matcher.mask())
    assert int(counters[COUNT_WORK]) - before < VOCABULARY.size // 2
    assert mask == {token for token in range(VOCABULARY.size) if matcher.allows(token)}


EAGER, SETS = Limits(max_eager_contexts=0), Limits(max_dfa_states=1)


@pytest.mark.parametrize(
    ("pattern", "text", "limits"),
    [
        (r'"(.*a){20}"', '"xa', EAGER),
        (r'"[^"\u2028]*[ab][^"\u2028]{12}"', '"aba', SETS),
        (r'"(?:[^"\\\n]|\\.){500}"', '"' + "x" * 497, EAGER),
        (r'"(?:[^"\\\n\u2028]|\\n){500}"', '"' + "x" * 497, EAGER),
    ],
    ids=["many states", "positions", "nearly full", "nearly full of a class"],
)
def test_what_a_class_settles_is_not_walked(pattern: str, text: str, limits: Limits) -> None:
    """All but what leaves the class, or is too long, however many states its characters lead to."""
    matcher = compile(regex(pattern), VOCABULARY, limits, use_cache=False).matcher()
    assert matcher.accept_bytes(text.encode())
    work = _work_of_mask(matcher)
    assert work < 5 * VOCABULARY.size // 2
    leaving = sum(bool(set(VOCABULARY.token(token)) & set(b'"\\\n')) for token in range(VOCABULARY.size))
    assert work < 24 * leaving


@pytest.mark.parametrize("names", [[letter + "x" for letter in LETTERS[:15]], ["   position", "data", "alpha"]])
def test_first_letters_of_names_do_not_lose_their_class(names: list[str]) -> None:
    """All characters but the quote go on in a name, whatever it begins with and however many names have values."""
    properties = {name: {"type": "integer"} for name in names}
    matcher = compile(json_schema({"type": "object", "properties": properties}), VOCABULARY, use_cache=False).matcher()
    assert matcher.accept_bytes(b'{"')
    assert _work_of_mask(matcher) < 3 * VOCABULARY.size // 2
    assert tokens_of(matcher.mask()) == {token for token in range(VOCABULARY.size) if matcher.allows(token)}


@pytest.mark.parametrize("text", ["if", "if ", "if a+"])
def test_what_begins_with_itself_is_wide(text: str) -> None:
    """Calls before the first byte are known: they do not keep names from being settled by what they are made of."""
    names = 'e ::= e [-+*/] e | [a-z_] [a-z_0-9]* | [0-9]+ | "(" e ")"'
    grammar = gbnf(f'root ::= ("if " e ";")+\n{names}')
    matcher = compile(grammar, VOCABULARY, use_cache=False).matcher()
    assert matcher.accept_bytes(text.encode())
    assert _work_of_mask(matcher) < 3 * VOCABULARY.size // 2
    assert tokens_of(matcher.mask()) == {token for token in range(VOCABULARY.size) if matcher.allows(token)}


def _tag(begin: str, end: str) -> dict[str, object]:
    return {"begin": begin, "content": json_object(), "end": end}


_EXCLUDES = ["<think>", "</think>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"]
IN_TAGS = structural_tag([_tag("<tool_call>", "</tool_call>")], excludes=_EXCLUDES)
#: A trigger that ends with the byte that half of all tokens begin with.
IN_JSON = structural_tag([_tag('{"name": "f", "parameters": ', "}")], ['{"name": '], excludes=["<think>", "</think>"])
#: One that ends with a letter, which most tokens hold: the underscore goes instead.
IN_WORDS = structural_tag([_tag(begin, "\n") for begin in ("TOOL:", "Action:", "tool_code")])
#: Characters above U+007F lead to its states as well.
IN_SIGNS = structural_tag([_tag("<｜tool▁calls｜>", "<｜end｜>")], excludes=["<think>", "</think>"])
#: Several long ones: free text has 56 states.
IN_LONG = structural_tag(
    [_tag("<｜tool▁calls▁begin｜>", "</｜tool▁calls▁end｜>")],
    ["<｜tool▁calls▁begin｜>"],
    excludes=["<think>", "</think>", "<|START_THINKING|>"],
)


@pytest.mark.parametrize(
    ("grammar", "read"),
    [
        *((IN_TAGS, read) for read in ("Well ", "a <", "a <to", "x </", "x <tool_<")),
        *((IN_JSON, read) for read in ("Well ", "a {", 'a {"name', 'a {"name":', "x <", "x </thi")),
        *((IN_WORDS, read) for read in ("Well ", "T", "a to", "a tool", "a tool_", "a tool_c", "a Action")),
        *((IN_LONG, read) for read in ("Well ", "a <", "a <｜", "a <｜tool▁ca", "a </", "a <|START")),
        *((IN_SIGNS, read) for read in ("Well ", "a <", "a <｜", "a <｜to", "a </")),
    ],
)
def test_states_within_a_trigger_do_not_walk_the_trie(grammar: Grammar, read: str) -> None:
    """Of free text only what ends a trigger narrows what may come, so few tokens are looked at one by one."""
    matcher = compile(grammar, VOCABULARY, use_cache=False).matcher()
    assert matcher.accept_bytes(read.encode())
    work = _work_of_mask(matcher)
    assert tokens_of(matcher.mask()) == {token for token in range(VOCABULARY.size) if matcher.allows(token)}
    # Many tokens hold what ends a trigger, or half of one; walking them all takes up to fourteen units each.
    assert work < 3 * VOCABULARY.size


def test_a_letter_is_worth_more_than_a_sign() -> None:
    """What most bytes lead to lacks the underscore, the state itself a letter that many tokens hold: that is left."""
    some = "tATfghijklmnpqrsuvwxy"
    words = [f"{a}{b}{e}{c}".encode() for e in ("e", "") for a in some for b in some for c in some]
    vocabulary = byte_vocabulary(*words)
    matcher = compile(IN_WORDS, vocabulary, use_cache=False).matcher()
    assert matcher.accept_bytes(b"a tool_")
    work = _work_of_mask(matcher)
    assert tokens_of(matcher.mask()) == {token for token in range(vocabulary.size) if matcher.allows(token)}
    assert work < 2 * vocabulary.size, (work, vocabulary.size)


def _work_of_mask(matcher: Matcher) -> int:
    counters = matcher._batch.counter_values
    before = int(counters[COUNT_WORK])
    matcher.mask()
    return int(counters[COUNT_WORK]) - before
