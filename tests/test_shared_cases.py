"""The shared cases and the inputs that are hard for engines: verdicts, and that masks, `allows` and `accept` agree.

The meaning of a case is that of `tools/run_cases.py` in the shared folder.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mask_sets import byte_vocabulary, tokens_of

import stepmask
from stepmask.grammar.expression import Grammar
from stepmask.masks.compiled import CompiledGrammar
from stepmask.masks.vocabulary import Vocabulary

DATA = Path(os.environ.get("STEPMASK_DATA", Path(__file__).parents[2] / "shared"))
#: Front ends by the name that cases give them.
KINDS: dict[str, Callable[[Any], Grammar]] = {"regex": stepmask.regex}
#: Hard inputs that are refused with a clear error.
REFUSED: set[str] = set()
#: Bytes of a string at which everything must agree.
LONGEST_CHECK = 300


def read_cases() -> list[Any]:
    cases = [json.loads(path.read_text("utf-8")) for path in sorted((DATA / "cases").glob("*.json"))]
    return [pytest.param(case, id=case["id"]) for case in cases if case["kind"] in KINDS]


def read_hard() -> list[Any]:
    path = DATA / "data" / "hard.dev.jsonl.gz"
    if not path.exists():
        return []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    return [pytest.param(case, id=case["id"]) for case in cases if case["kind"] in KINDS]


CASES, HARD = read_cases(), read_hard()


def front_end(case: dict[str, Any]) -> Grammar:
    return KINDS[case["kind"]](case["grammar"])


@functools.cache
def plain_bytes() -> Vocabulary:
    return byte_vocabulary()


@functools.cache
def bytes_and_words() -> Vocabulary:
    words = "the of and to in is that it for was on are as with at be this have from or by one had not but what all"
    rng = random.Random(0)
    texts = [w for word in words.split() for w in (word, " " + word, word.capitalize())]
    texts += [
        '",',
        '":',
        '{"',
        '"}',
        '\\"',
        "\\n",
        "  ",
        "\n\n",
        ", ",
        "...",
        "привет",
        "日本",
        "語",
        "é",
        "foo",
        "bar",
    ]
    texts += [
        "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(n)) for n in (2, 3, 4) for _ in range(150)
    ]
    texts += [f"{n}" for n in range(10, 1000, 7)] + ["a" * n for n in (2, 4, 8, 16)]
    return byte_vocabulary(*(text.encode() for text in dict.fromkeys(texts)), b"\xd0", b"\xe6\x97", b"\xaa\xe8")


def alive_and_complete(compiled: CompiledGrammar, data: bytes) -> tuple[bool, bool]:
    matcher = compiled.matcher()
    alive = not data or matcher.accept_bytes(data)
    return alive, alive and matcher.is_complete


def check_agreement(compiled: CompiledGrammar, data: bytes) -> None:
    """At each byte of an accepted string the mask, `allows`, `accept` and `is_complete` say the same."""
    matcher = compiled.matcher()
    for byte in data[:LONGEST_CHECK]:
        mask = tokens_of(matcher.mask())
        assert mask == {token for token in range(257) if matcher.allows(token)}
        assert (256 in mask) == matcher.is_complete
        assert byte in mask
        assert matcher.accept(byte)
    if len(data) <= LONGEST_CHECK:
        assert matcher.is_complete and matcher.accept(256)


@pytest.mark.skipif(not CASES, reason="the shared cases are not there")
@pytest.mark.parametrize("case", CASES)
def test_case(case: dict[str, Any]) -> None:
    try:
        compiled = stepmask.compile(front_end(case), plain_bytes(), use_cache=False)
    except stepmask.GrammarError:
        assert case.get("must_refuse") or case.get("may_refuse"), "refused"
        return
    assert not case.get("must_refuse"), "not refused"
    unchecked = set(case.get("unchecked", ()))

    def data_of(field: str) -> list[bytes]:
        texts = [text.encode() for text in case.get(field, ()) if text not in unchecked]
        return texts + [bytes.fromhex(digits) for digits in case.get(f"{field}_hex", ())]

    for data in data_of("accept"):
        assert alive_and_complete(compiled, data)[1], data
        check_agreement(compiled, data)
    for data in data_of("reject"):
        assert not alive_and_complete(compiled, data)[1], data
    for data in data_of("alive_prefixes"):
        assert alive_and_complete(compiled, data)[0], data
    for data in data_of("dead_prefixes"):
        assert not alive_and_complete(compiled, data)[0], data
    if "tokens" in case:
        check_tokens(case)


def check_tokens(case: dict[str, Any]) -> None:
    """The case's own vocabulary: exact masks, token sequences and drafts."""
    given = case["tokens"]
    tokens = [bytes.fromhex(t[4:]) if t.startswith("hex:") else t.encode() for t in given["vocab"]]
    vocabulary = Vocabulary.from_bytes(tokens, eos=given.get("eos", []), special=given.get("special", []))
    compiled = stepmask.compile(front_end(case), vocabulary, use_cache=False)
    for expected in given.get("masks", ()):
        matcher = compiled.matcher()
        assert matcher.try_accept(expected["after"]) == len(expected["after"])
        assert tokens_of(matcher.mask()) == set(expected["allowed"])
        assert [t for t in range(len(tokens)) if matcher.allows(t)] == sorted(expected["allowed"])
    for field, accepted in (("accept_ids", True), ("reject_ids", False)):
        for ids in given.get(field, ()):
            assert (compiled.matcher().try_accept(ids) == len(ids)) == accepted
    if "draft" in given:
        draft, good = given["draft"], given["draft_accepted"]
        matcher = compiled.matcher()
        masks = matcher.draft_masks(draft)
        assert [mask is not None for mask in masks] == [i <= good for i in range(len(draft) + 1)]
        assert matcher.try_accept(draft) == good
        assert np.array_equal(matcher.mask(), masks[good])


def some_tokens(data: bytes, vocabulary: Vocabulary, longest: bool) -> list[int]:
    """Tokens that spell `data`: the longest that fits at each place, or one of those that fit, at random."""
    ids = {vocabulary.token(t): t for t in np.flatnonzero(vocabulary.is_text).tolist()}
    most = max(map(len, ids))
    rng = random.Random(1)
    found, at = [], 0
    while at < len(data):
        fitting = [n for n in range(1, most + 1) if data[at : at + n] in ids and at + n <= len(data)]
        n = fitting[-1] if longest else rng.choice(fitting)
        found.append(ids[data[at : at + n]])
        at += n
    return found


@pytest.mark.skipif(not HARD, reason="the shared data is not there")
@pytest.mark.parametrize("case", HARD)
def test_hard_input(case: dict[str, Any]) -> None:
    vocabulary = bytes_and_words()
    try:
        compiled = stepmask.compile(front_end(case), vocabulary, use_cache=False)
    except stepmask.GrammarError:
        assert case["id"] in REFUSED
        return
    assert case["id"] not in REFUSED
    (end,) = vocabulary.eos or ()
    for test in case["tests"]:
        data = test["text"].encode()
        assert alive_and_complete(compiled, data)[1] == test["valid"]
        for longest in (True, False):
            matcher = compiled.matcher()
            accepted = True
            for token in some_tokens(data, vocabulary, longest):
                mask = matcher.mask()
                assert bool(mask[token >> 5] >> (token & 31) & 1) == matcher.allows(token)
                accepted = matcher.allows(token)
                assert matcher.accept(token) == accepted
                if not accepted:
                    break
                # A text that is alive goes on or ends, and what the mask allows is accepted.
                some = tokens_of(matcher.mask())
                assert some
                assert all(map(matcher.allows, random.Random(token).sample(sorted(some), min(3, len(some)))))
            assert (accepted and matcher.allows(end)) == test["valid"]
