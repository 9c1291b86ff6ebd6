"""Formats of structural tags written short, and what becomes of texts under a grammar."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from earley import Earley
from mask_sets import byte_vocabulary

from stepmask.grammar.expression import Grammar
from stepmask.masks.compiled import CompiledGrammar, compile
from stepmask.masks.vocabulary import Vocabulary

VOCABULARY = byte_vocabulary()
NAMES = {"<|call|>": 256, "<|end|>": 257, "<|other|>": 258}

Format = dict[str, Any]
#: (complete, alive) of a text.
Verdict = Callable[[str], tuple[bool, bool]]


def by_oracle(grammar: Grammar) -> Verdict:
    oracle = Earley(grammar.rules, grammar.start)
    return lambda text: (oracle.complete(text.encode()), oracle.alive(text.encode()))


def by_matcher(grammar: Grammar) -> Verdict:
    matcher = compile(grammar, VOCABULARY, use_cache=False).matcher()

    def verdict(text: str) -> tuple[bool, bool]:
        matcher.reset()
        alive = matcher.accept_bytes(text.encode())
        return alive and matcher.is_complete, alive

    return verdict


def regex_format(pattern: str) -> Format:
    return {"type": "regex", "pattern": pattern}


def literal(value: str) -> Format:
    return {"type": "const_string", "value": value}


def tag(begin: str, content: str | Format, end: Any) -> Format:
    inner = regex_format(content) if isinstance(content, str) else content
    return {"type": "tag", "begin": begin, "content": inner, "end": end}


def triggered(
    triggers: list[str], tags: list[tuple[str, str, str]], excludes: Iterable[str] = (), **options: bool
) -> Format:
    made = [tag(*parts) for parts in tags]
    return {"type": "triggered_tags", "triggers": triggers, "tags": made, "excludes": list(excludes), **options}


def token_vocabulary() -> Vocabulary:
    """The 256 single bytes, the special tokens of `NAMES`, and an end token."""
    tokens = [bytes([byte]) for byte in range(256)] + [name.encode() for name in NAMES] + [b""]
    return Vocabulary.from_bytes(tokens, eos=[259], special=[*NAMES.values(), 259], names=NAMES)


def token_verdict(compiled: CompiledGrammar) -> Callable[..., bool]:
    """Whether texts and token ids may come one after the other, and the whole may end there."""

    def accepts(*parts: str | int) -> bool:
        matcher = compiled.matcher()
        ids = [token for part in parts for token in ([part] if isinstance(part, int) else part.encode())]
        return all(matcher.accept(token) for token in ids) and matcher.is_complete

    return accepts


def strings_of(value: Any) -> list[str]:
    """All strings that tags begin or end with."""
    if isinstance(value, list):
        return [text for inner in value for text in strings_of(inner)]
    if not isinstance(value, dict):
        return []
    found = [value[key] for key in ("begin", "end", "value") if isinstance(value.get(key), str)]
    return found + [text for inner in value.values() for text in strings_of(inner)]
