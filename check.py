"""`stepmask check`: whether a text is complete, alive or dead under a grammar, and where and why."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .grammar.expression import Grammar
    from .masks.compiled import CompiledGrammar
    from .masks.matcher import Matcher
    from .masks.vocabulary import Vocabulary

COMPLETE, ALIVE, DEAD, BAD_GRAMMAR = 0, 1, 2, 3
#: Wrong command line (EX_USAGE of sysexits.h): argparse's own 2 would read as "dead".
USAGE = 64

#: How much is said at most: lines of open rules, rules in a line, things in a list.
_MOST_LINES, _MOST_RULES, _MOST_ITEMS = 8, 10, 8


def add_command(commands: Any) -> None:
    """Add the command to a command line's `add_subparsers`."""
    check = commands.add_parser(
        "check",
        help="say whether a text is complete, alive or dead under a grammar, and where and why",
        description="Says whether TEXT is complete, alive (more must follow) or dead under GRAMMAR; for a dead one at "
        "which byte, what could have stood there, and which rules were open.",
        epilog="Exit code: 0 complete, 1 alive, 2 dead, 3 the grammar is wrong.",
    )
    check.add_argument(
        "grammar",
        metavar="GRAMMAR",
        help="the grammar's text, or @FILE (not for regex and choice, where @ is itself: use --file). For choice a "
        "JSON array, or one a line; for json_value, json_object and model_structural_tag a JSON object of arguments",
    )
    check.add_argument(
        "text",
        metavar="TEXT",
        help="the text, or - to read it from standard input; a special token of the grammar stands in it by its name, "
        "or as <[id]>",
    )
    check.add_argument("--kind", choices=sorted(_KINDS), default="regex", help="what the grammar is (default regex)")
    check.add_argument("--file", action="store_true", help="GRAMMAR is the name of a file that holds it")
    check.add_argument("--start", metavar="RULE", help="start rule of a gbnf, ebnf or lark grammar (root, root, start)")
    check.add_argument("--lexer", choices=("dynamic", "longest"), help="how lark cuts text into tokens (dynamic)")
    check.add_argument(
        "--tokenizer",
        metavar="FILE",
        help="say also which tokens of this tokenizer could stand there; its special tokens are tokens in what "
        "structural tags begin and end with",
    )
    check.set_defaults(run=_check)


def _regex(text: str) -> Grammar:
    from .grammar.regex import regex

    return regex(text)


def _choice(text: str) -> Grammar:
    from .grammar.choice import choice
    from .grammar.errors import GrammarSyntaxError

    if not text.lstrip().startswith("["):
        return choice(text.splitlines())
    try:
        values = json.loads(text)
    except ValueError as error:
        raise GrammarSyntaxError(f"the choices are no JSON array: {error}") from None
    if not all(isinstance(value, str) for value in values):
        raise GrammarSyntaxError("the choices must be strings")
    return choice(values)


def _json(kind: str, text: str) -> Grammar:
    from .grammar import json_value
    from .grammar.errors import GrammarSyntaxError

    try:
        options = json.loads(text)
        if not isinstance(options, dict):
            raise ValueError(f"options are a JSON object, not {text}")
        make = json_value.json_object if kind == "json_object" else json_value.json_value
        return make(**options)
    except (TypeError, ValueError) as error:
        raise GrammarSyntaxError(f"the options of {kind}: {error}") from None


def _structural_tag(text: str, **options: Any) -> Grammar:
    from .grammar.structural_tag import structural_tag

    return structural_tag(text, **options)


def _model_structural_tag(text: str, **options: Any) -> Grammar:
    from .grammar.errors import GrammarSyntaxError
    from .grammar.model_tags import model_structural_tag

    try:
        arguments = json.loads(text)
        if not isinstance(arguments, dict):
            raise ValueError(f"arguments are a JSON object, not {text}")
        return model_structural_tag(**arguments, **options)
    except (TypeError, ValueError) as error:
        raise GrammarSyntaxError(f"the arguments of model_structural_tag: {error}") from None


def _rules(kind: str, text: str, **options: str) -> Grammar:
    """A grammar of rules, as `stepmask.KIND` reads it."""
    module = importlib.import_module(f".grammar.{kind}", __package__)
    grammar: Grammar = getattr(module, kind)(text, **options)
    return grammar


_KINDS: dict[str, Callable[..., Grammar]] = {
    "choice": _choice,
    "ebnf": partial(_rules, "ebnf"),
    "gbnf": partial(_rules, "gbnf"),
    "json_object": partial(_json, "json_object"),
    "json_schema": partial(_rules, "json_schema"),
    "json_value": partial(_json, "json_value"),
    "lark": partial(_rules, "lark"),
    "model_structural_tag": _model_structural_tag,
    "regex": _regex,
    "structural_tag": _structural_tag,
}
#: White space of JSON.
_BLANKS = b"\t\n\r "
#: Which kinds take which options.
_TAKES = {"start": ("ebnf", "gbnf", "lark"), "lexer": ("lark",)}
#: Kinds whose texts may hold special tokens of a tokenizer.
_MARKED = ("model_structural_tag", "structural_tag")
#: Kinds whose own texts may begin with @.
_PLAIN = ("choice", "regex")


@dataclass(frozen=True)
class Alphabet:
    """Single bytes and the special tokens of a grammar, as a vocabulary: byte b is token `first_byte` + b."""

    vocabulary: Vocabulary
    first_byte: int
    #: Special tokens: their text and their id.
    tokens: Mapping[str, int]

    def symbols(self, text: bytes, matcher: Matcher) -> Iterator[tuple[int, int | str, int]]:
        """(offset, byte or token's text, token id) one after the other; a special token goes first where it may stand.

        What is yielded must be accepted before the next is asked for.
        """
        by_length = sorted(self.tokens.items(), key=lambda item: -len(item[0]))
        spelled = [(token.encode(), token, number) for token, number in by_length]
        offset = 0
        while offset < len(text):
            here = (one for one in spelled if text.startswith(one[0], offset) and matcher.allows(one[2]))
            found = next(here, None)
            if found is not None:
                yield offset, found[1], found[2]
                offset += len(found[0])
            else:
                yield offset, text[offset], self.first_byte + text[offset]
                offset += 1

    def allowed(self, matcher: Matcher) -> tuple[list[int], list[str]]:
        """The bytes and the special tokens that may come next."""
        allowed = [byte for byte in range(256) if matcher.allows(self.first_byte + byte)]
        return allowed, [token for token, number in self.tokens.items() if matcher.allows(number)]


def alphabet(grammar: Grammar) -> Alphabet:
    """The alphabet of a grammar."""
    from .grammar.explain import token_names, token_text
    from .masks.vocabulary import Vocabulary

    names = token_names(grammar)
    # Tokens that are named by id have theirs.
    first_name = max((name + 1 for name in names if isinstance(name, int)), default=0)
    texts = [token_text(number) for number in range(first_name)]
    texts += [token_text(name) for name in names if isinstance(name, str)]
    first_byte = len(texts)
    end = first_byte + 256
    vocabulary = Vocabulary.from_bytes(
        [*map(str.encode, texts), *(bytes([byte]) for byte in range(256)), b""],
        eos=[end],
        special=[*range(first_byte), end],
        names={text: number for number, text in enumerate(texts)},
    )
    known = {token_text(name): vocabulary.id_of(name) for name in names}
    return Alphabet(vocabulary, first_byte, known)


@dataclass(frozen=True)
class Verdict:
    """Exit code, what to print, and what was read before the text ended or died.

    `read` are bytes and tokens, `offsets` the byte where each begins, and the end.
    """

    code: int
    lines: list[str]
    read: list[int | str]
    offsets: list[int]


def _check(options: argparse.Namespace) -> int:
    from .grammar.errors import GrammarError
    from .masks.compiled import compile as compile_grammar
    from .masks.errors import StackLimitError
    from .masks.vocabulary import Vocabulary, VocabularyError

    extra: dict[str, Any] = {name: getattr(options, name) for name in _TAKES if getattr(options, name)}
    for name in extra:
        if options.kind not in _TAKES[name]:
            print(f"stepmask: --{name} is for {', '.join(_TAKES[name])}, not for {options.kind}", file=sys.stderr)
            return USAGE
    in_file = options.file or (options.grammar.startswith("@") and options.kind not in _PLAIN)
    try:
        name = options.grammar if options.file else options.grammar[1:]
        grammar_text = Path(name).read_text("utf-8") if in_file else options.grammar
        text = sys.stdin.buffer.read() if options.text == "-" else os.fsencode(options.text)
        tokenizer = Vocabulary.from_file(options.tokenizer) if options.tokenizer else None
    except (OSError, UnicodeDecodeError, VocabularyError) as error:
        print(f"stepmask: {error}", file=sys.stderr)
        return USAGE
    if in_file and options.kind in _PLAIN:
        grammar_text = grammar_text.removesuffix("\n")
    try:
        if tokenizer is not None and options.kind in _MARKED:
            extra["special_tokens"] = list(tokenizer.special_names)
        grammar = _KINDS[options.kind](grammar_text, **extra)
        letters = alphabet(grammar)
        matcher = compile_grammar(grammar, letters.vocabulary).matcher()
        verdict = judge(matcher, text, letters)
        lines = list(verdict.lines)
        if verdict.code == DEAD:
            lines += _reasons(grammar, verdict, letters.allowed(matcher))
        if tokenizer is not None:
            lines.append(_legal_tokens(compile_grammar(grammar, tokenizer), verdict.read))
    except (GrammarError, VocabularyError) as error:
        print(f"bad grammar: {error}")
        return BAD_GRAMMAR
    except StackLimitError as error:
        print(f"stepmask: {error}", file=sys.stderr)
        return USAGE
    print("\n".join(lines))
    return verdict.code


def judge(matcher: Matcher, text: bytes, letters: Alphabet) -> Verdict:
    """Feed `text` to a matcher over `letters`."""
    read: list[int | str] = []
    offsets: list[int] = []
    for offset, symbol, token in letters.symbols(text, matcher):
        offsets.append(offset)
        if not matcher.accept(token):
            lines = [f"dead at {_place(text, offset)}: found {_found(text, offset)}", _expected(matcher, letters)]
            return Verdict(DEAD, lines, read, offsets)
        read.append(symbol)
    offsets.append(len(text))
    if not matcher.is_complete:
        lines = [f"alive: the text may not end yet, at {_place(text, len(text))}", _expected(matcher, letters)]
        return Verdict(ALIVE, lines, read, offsets)
    lines = ["complete"]
    if any(letters.allowed(matcher)):
        lines.append(_expected(matcher, letters))
    return Verdict(COMPLETE, lines, read, offsets)


def _reasons(grammar: Grammar, verdict: Verdict, allowed: tuple[list[int], list[str]]) -> list[str]:
    """Which rules are open after what was read, one line for each chain of them, and what each expects."""
    from .grammar.explain import expected_at

    if grammar.kind == "choice":
        return _options_left(grammar, verdict)
    found = expected_at(grammar, verdict.read, [*allowed[0], *allowed[1]])
    if found is None:
        return ["which rules were open there takes too long to find out"]
    by_rules: dict[str, list[str]] = {}
    for one in found:
        within = "in the pattern" if grammar.kind == "regex" else _chain(one.rules, verdict.offsets)
        # What is written in several lines is shown in one.
        what = one.what if one.what.isprintable() else repr(one.what)
        by_rules.setdefault(within, []).append(f"{what} at {one.place}" if one.place else what)
    lines = [f"{within}: {_listed(what)}" for within, what in by_rules.items()]
    return lines[:_MOST_LINES] + ([f"and {len(lines) - _MOST_LINES} more"] if len(lines) > _MOST_LINES else [])


def _options_left(grammar: Grammar, verdict: Verdict) -> list[str]:
    """The strings of a choice that begin with what was read, one line of them."""
    from .grammar.expression import Alternation, Bytes

    read = bytes(symbol for symbol in verdict.read if isinstance(symbol, int))
    start = grammar.rules[grammar.start]
    options = start.options if isinstance(start, Alternation) else (start,)
    texts = [option.text for option in options if isinstance(option, Bytes) and option.text.startswith(read)]
    left = [repr(text.decode("utf-8", "replace")) for text in texts]
    return [f"choices that begin so: {_listed(left)}"]


def _chain(rules: Sequence[tuple[str, int]], offsets: Sequence[int]) -> str:
    # What a front end adds to a rule's name stands behind a blank.
    names = [name.partition(" ")[0] for name, _ in rules if name != "%start"]
    if len(names) > _MOST_RULES:
        names = [*names[:2], "...", *names[2 - _MOST_RULES :]]
    return f"in {' > '.join(names)} (from byte {offsets[rules[-1][1]]})"


def _listed(items: Sequence[str]) -> str:
    rest = len(items) - _MOST_ITEMS
    return ", ".join(items[:_MOST_ITEMS]) + (f" and {rest:,} more" if rest > 0 else "")


def _legal_tokens(compiled: CompiledGrammar, read: Sequence[int | str]) -> str:
    """Which tokens of a real vocabulary may come next."""
    matcher, vocabulary = compiled.matcher(), compiled.vocabulary
    for symbol in read:
        if isinstance(symbol, int):
            accepted = matcher.accept_bytes(bytes([symbol]))
        else:
            number = int(symbol[2:-2]) if symbol not in vocabulary.names else vocabulary.names[symbol]
            accepted = matcher.accept(number)
        if not accepted:
            return "tokens: none, for none of them spell the text so far"
    legal = [token for token in range(vocabulary.size) if matcher.allows(token)]
    names = {number: name for name, number in vocabulary.special_names.items()}
    spelled = [names.get(token) or repr(vocabulary.token(token).decode("utf-8", "replace")) for token in legal]
    shown = [f"{token} {text}" for token, text in zip(legal, spelled, strict=True)]
    return f"tokens: {len(legal):,} of {vocabulary.size:,}: {_listed(shown)}"


def _place(text: bytes, offset: int) -> str:
    before = text[:offset].decode("utf-8", "replace")
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1) + 1
    return f"byte {offset} (line {line}, column {column})"


def _found(text: bytes, offset: int) -> str:
    byte = text[offset]
    if byte < 0x80:
        return _show(byte)
    start = offset
    while start > 0 and 0x80 <= text[start] < 0xC0:
        start -= 1
    for end in range(offset + 1, min(start + 4, len(text)) + 1):
        try:
            return f"byte {byte:02X} of {text[start:end].decode()!r}"
        except UnicodeDecodeError:
            continue
    return f"byte {byte:02X}"


def _expected(matcher: Matcher, letters: Alphabet) -> str:
    allowed, tokens = letters.allowed(matcher)
    options = [*describe(allowed), *(f"the token {token}" for token in tokens)]
    if matcher.is_complete:
        options.append("the end of the text")
    return "expected: " + (", ".join(options) if options else "nothing")


def _show(byte: int) -> str:
    return repr(chr(byte)) if byte < 0x80 else f"byte {byte:02X}"


def describe(allowed: Sequence[int]) -> list[str]:
    """A sorted set of bytes in words: runs as ranges, nearly everything by what is missing."""
    ascii_bytes = [byte for byte in allowed if byte < 0x80]
    lead = [byte for byte in allowed if byte >= 0x80]
    parts: list[str] = []
    if set(_BLANKS) <= set(ascii_bytes) and len(ascii_bytes) < 64:
        parts.append("white space")
        ascii_bytes = [byte for byte in ascii_bytes if byte not in _BLANKS]
    for first, what in ((0, "any ASCII character"), (0x20, "any ASCII character but controls")):
        missing = sorted(set(range(first, 0x80)) - set(ascii_bytes))
        if len(missing) <= _MOST_ITEMS:
            also = " and" if first else " but"
            parts.append(what + (f"{also} {' '.join(map(_show, missing))}" if missing else ""))
            ascii_bytes = [byte for byte in ascii_bytes if byte < first]
            break
    parts += [_range(*run) for run in _runs(ascii_bytes)]
    if lead == list(range(0xC2, 0xF5)):
        parts.append("any non-ASCII character")
    else:
        parts += [_range(*run) for run in _runs(lead)]
    return parts


def _range(first: int, last: int) -> str:
    if first == last:
        return _show(first)
    return f"{_show(first)}-{_show(last)}" if first < 0x80 else f"bytes {first:02X}-{last:02X}"


def _runs(values: Sequence[int]) -> list[tuple[int, int]]:
    """Consecutive runs of sorted numbers as (first, last); none mixes digits, capitals, small letters and others."""
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and value == runs[-1][1] + 1 and _class(value) == _class(value - 1):
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    return runs


def _class(byte: int) -> int:
    for number, (first, last) in enumerate((b"09", b"AZ", b"az")):
        if first <= byte <= last:
            return number
    return -1
