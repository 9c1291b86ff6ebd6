"""What says whether a JSON text belongs to a schema: `jsonschema`'s validators over exact numbers; and texts to ask of.

Nothing here knows how a grammar is made.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import jsonschema
from mask_sets import byte_vocabulary, tokens_of

import stepmask

#: Exponents of numbers beyond this are not written out.
MAX_EXPONENT = 400


class TooLarge(ValueError):
    """A number whose exact value is not worth having."""


def exact_number(text: str) -> int | Fraction:
    """The value of a JSON number; a whole one is an `int`, as 1.0 is an integer."""
    number = Decimal(text)
    if number and abs(number.adjusted()) > MAX_EXPONENT:
        raise TooLarge(text)
    fraction = Fraction(number)
    return int(fraction) if fraction.denominator == 1 else fraction


def exact(text: str, *, first_key: bool = False) -> Any:
    """A JSON text's value with exact numbers. Of equal keys the last counts, or the first (`first_key`)."""

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        return dict(reversed(found)) if first_key else dict(found)

    return json.loads(text, parse_float=exact_number, object_pairs_hook=pairs)


def canonical(value: Any) -> str:
    """The canonical text of a value: only what must be escaped is."""
    return json.dumps(value, ensure_ascii=False)


class Validator:
    """The package jsonschema on one schema, with exact numbers, formats not looked at."""

    def __init__(self, schema: Any, default: Any = jsonschema.Draft202012Validator) -> None:
        schema = exact(canonical(schema))
        self._validator = jsonschema.validators.validator_for(schema, default=default)(schema)

    def is_valid(self, text: str) -> bool:
        """Whether the value of a JSON text is valid."""
        return bool(self._validator.is_valid(exact(text)))

    def is_valid_whichever(self, text: str) -> bool:
        """The same whichever of equal keys counts; True where a number has an exponent beyond reason."""
        try:
            return self.is_valid(text) and bool(self._validator.is_valid(exact(text, first_key=True)))
        except TooLarge:
            return True


@functools.cache
def bytes_only() -> stepmask.Vocabulary:
    """One token a byte, so that tokens change nothing; 256 ends."""
    return byte_vocabulary()


class Language:
    """The texts that stepmask takes of a schema. Raises `GrammarError`."""

    def __init__(self, schema: Any, vocabulary: stepmask.Vocabulary | None = None, **options: Any) -> None:
        self.compiled = stepmask.compile(
            stepmask.json_schema(schema, **options), vocabulary or bytes_only(), use_cache=False
        )

    def has(self, text: str) -> bool:
        """Whether the whole text is one of them."""
        matcher = self.compiled.matcher()
        return matcher.accept_bytes(text.encode()) and matcher.is_complete

    def is_alive(self, text: str) -> bool:
        """Whether some text of them begins so."""
        return self.compiled.matcher().accept_bytes(text.encode())


class Nothing(Language):
    """The texts of a schema that no value is valid against."""

    def __init__(self) -> None:
        pass

    def has(self, text: str) -> bool:
        return False

    def is_alive(self, text: str) -> bool:
        return False


def language(schema: Any, **options: Any) -> Language:
    """The language of a schema; that of an unsatisfiable one is empty. Raises other `GrammarError`s."""
    try:
        return Language(schema, **options)
    except stepmask.GrammarUnsatisfiable:
        return Nothing()


def shuffled(value: Any, rng: random.Random) -> Any:
    """The same value with the keys of all its objects in another order."""
    if isinstance(value, dict):
        items = list(value.items())
        rng.shuffle(items)
        return {key: shuffled(item, rng) for key, item in items}
    return [shuffled(item, rng) for item in value] if isinstance(value, list) else value


def orders(value: Any, most: int) -> Iterator[Any]:
    """The same value with its keys in other orders, at most about so many of them."""
    return itertools.islice(_orders(value), most)


def _orders(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for keys in itertools.permutations(value):
            for items in itertools.product(*(list(orders(value[key], 24)) for key in keys)):
                yield dict(zip(keys, items, strict=True))
    elif isinstance(value, list):
        for items in itertools.product(*(list(orders(item, 24)) for item in value)):
            yield list(items)
    else:
        yield value


#: Bytes that a random text rather goes on with than with others, so that it does not stay in strings and white space.
_STRUCTURE = frozenset(b'{}[]",:ab1')


def random_text(language: Language, rng: random.Random, length: int) -> str:
    """A text of the language, about `length` random legal bytes and then the shortest way to an end.

    Asserts that from every state on the way some text goes on, and that the way to an end is one.
    """
    matcher = language.compiled.matcher()
    text = bytearray()
    for _ in range(length):
        legal = tokens_of(matcher.mask())
        assert legal, f"a dead end after {bytes(text)!r}"
        assert (256 in legal) == matcher.is_complete
        legal -= {256}
        if not legal or (matcher.is_complete and rng.random() < 0.3):
            break
        liked = sorted(legal & _STRUCTURE)
        byte = rng.choice(liked if liked and rng.random() < 0.8 else sorted(legal))
        assert matcher.accept(byte)
        text.append(byte)
    rest = matcher.shortest_completion()
    assert rest is not None, f"no way to an end after {bytes(text)!r}"
    assert matcher.accept_bytes(rest) and matcher.is_complete, (bytes(text), rest)
    return (bytes(text) + rest).decode()


def equal_sets(language: Language, vocabulary: stepmask.Vocabulary, text: bytes) -> None:
    """At every token of a text, greedily split, the mask is what trying every token's bytes gives."""
    matcher = language.compiled.matcher()
    tokens = [token for token in range(vocabulary.size) if vocabulary.is_text[token] and vocabulary.token(token)]
    spelled = {vocabulary.token(token): token for token in reversed(tokens)}
    longest = max(map(len, spelled))
    at = 0
    while True:
        texts = {text for text in spelled if matcher.fork().accept_bytes(text)}
        tried = {token for token in tokens if vocabulary.token(token) in texts}
        if matcher.is_complete:
            tried |= set(vocabulary.eos or ())
        assert tokens_of(matcher.mask()) == tried, f"after {text[:at]!r}"
        if at >= len(text):
            return
        piece = next(text[at : at + n] for n in range(longest, 0, -1) if text[at : at + n] in spelled)
        assert matcher.accept(spelled[piece]), f"refuses {piece!r} after {text[:at]!r}"
        at += len(piece)
