"""Masks, allows, accept and Batch against brute force over the vocabulary, for random regexes and vocabularies."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import ReferenceMatcher

from stepmask.grammar.choice import choice
from stepmask.grammar.errors import GrammarError, GrammarUnsatisfiable
from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex
from stepmask.masks.batch import Batch
from stepmask.masks.compiled import CompiledGrammar
from stepmask.masks.compiled import compile as compile_for
from stepmask.masks.vocabulary import Vocabulary

ATOMS = ["a", "b", "c", ".", "[ab]", "[^a]", "[a-c]", r"\w", "é", "[à-ü]", r"\d", "ab", "日"]


@st.composite
def patterns(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0:
        return draw(st.sampled_from(ATOMS))
    kind = draw(st.integers(0, 6))
    if kind <= 1:
        return draw(st.sampled_from(ATOMS))
    if kind == 2:
        return "".join(draw(st.lists(patterns(depth - 1), min_size=1, max_size=3)))
    if kind == 3:
        return "(?:" + "|".join(draw(st.lists(patterns(depth - 1), min_size=2, max_size=3))) + ")"
    low = draw(st.integers(0, 4))
    bound = draw(st.sampled_from(["*", "+", "?", f"{{{low},{low + draw(st.integers(1, 8))}}}", f"{{{low},}}"]))
    return "(?:" + draw(patterns(depth - 1)) + ")" + bound


TEXTS = ["a", "b", "c", "ab", "bc", "abc", "aa", "é", "aé", "日", "日a", "1", " ", "a1", "\n", "ü", "cab", "bb", "abab"]


@st.composite
def vocabularies(draw: st.DrawFn, complete: bool = True) -> Vocabulary:
    texts = draw(st.lists(st.sampled_from(TEXTS), max_size=12))
    tokens = [t.encode() for t in texts] + draw(
        st.lists(st.sampled_from([b"\xc3", b"\xa9", b"\xe6\x97", b"a\xc3", b"\xa9b", b"\xe6", b"\xa5"]), max_size=4)
    )
    if complete:
        tokens += [bytes([b]) for b in range(256)]
    else:
        tokens += [bytes([b]) for b in b"abc"]
    draw(st.randoms()).shuffle(tokens)
    return Vocabulary.from_bytes([*tokens, b"", b"</s>", b""], eos=[len(tokens) + 1], special=[len(tokens) + 1])


def brute_mask(reference: ReferenceMatcher, vocabulary: Vocabulary) -> set[int]:
    """Every token by itself, byte by byte."""
    legal = set()
    for token in range(vocabulary.size):
        if not vocabulary.is_text[token]:
            continue
        walker = reference.copy()
        if all(walker.accept_byte(b) for b in vocabulary.token(token)):
            legal.add(token)
    if reference.is_complete:
        legal |= set(vocabulary.eos or ())
    return legal


def tokens_of(mask: np.ndarray, width: int) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")[:width]).tolist())


def check_walk(compiled: CompiledGrammar, seed: int, steps: int = 8) -> None:
    """A random walk along legal tokens: everything agrees with brute force at each state."""
    vocabulary = compiled.vocabulary
    rng = random.Random(seed)
    matcher = compiled.matcher()
    reference = ReferenceMatcher(compiled.automaton)
    batch = Batch(vocabulary, 2, None)
    slot = batch.add(compiled)
    row = np.array([slot], np.int32)
    for _ in range(steps):
        expected = brute_mask(reference, vocabulary)
        assert tokens_of(matcher.mask(), vocabulary.width) == expected
        plan = batch.plan(row)
        assert plan.all_ready
        assert tokens_of(batch.mask(slot), vocabulary.width) == expected
        assert bool(plan.end_allowed[0]) == reference.is_complete == matcher.is_complete
        for token in [*rng.sample(range(vocabulary.size), 5), -1, vocabulary.size]:
            assert matcher.allows(token) == (token in expected)
            if token not in expected:
                assert not matcher.accept(token)
        choices = sorted(expected - set(vocabulary.eos or ()))
        if not choices:
            assert reference.is_complete
            break
        token = rng.choice(choices)
        assert matcher.accept(token)
        matcher.rollback(1)
        assert tokens_of(matcher.mask(), vocabulary.width) == expected
        assert matcher.accept(token)
        assert batch.advance(row, np.array([token], np.int32))[0]
        for byte in vocabulary.token(token):
            assert reference.accept_byte(byte)


@given(patterns(), vocabularies(), st.integers(0, 1000))
def test_masks_equal_brute_force(pattern: str, vocabulary: Vocabulary, seed: int) -> None:
    try:
        compiled = compile_for(regex(pattern), vocabulary, use_cache=False)
    except GrammarUnsatisfiable:
        return
    check_walk(compiled, seed)


@given(patterns(), vocabularies(), st.integers(0, 1000))
def test_lazy_masks_equal_brute_force(pattern: str, vocabulary: Vocabulary, seed: int) -> None:
    try:
        compiled = compile_for(regex(pattern), vocabulary, Limits(max_dfa_states=1), use_cache=False)
    except GrammarUnsatisfiable:
        return
    check_walk(compiled, seed)


@pytest.mark.parametrize(
    "pattern",
    [
        "[^a]{1,9}", ".{0,12}", r"\w{1,7}b", "(?:[^ab]{1,5}a){2,6}", r"(?:\S+\s+){0,5}\S+", "[a-z]{3,}c",
        r"x[^,]{0,6},\d{4}",
        r"(?:\w{2,5},){1,4}", "(?:ab|cd){5,300}", r"[à-ü]{2,8}", ".*[ab].{16}", "(foo|bar|foobar){1,100}", "(a|aa)+",
    ],
)  # fmt: skip
@pytest.mark.parametrize("seed", range(6))
def test_counters_and_lazy_states(pattern: str, seed: int) -> None:
    rng = random.Random(seed)
    texts = ["".join(rng.choice("abcd ,é日1\n") for _ in range(rng.randint(1, 9))) for _ in range(60)]
    tokens = [bytes([b]) for b in range(256)] + [t.encode() for t in texts]
    tokens += [t.encode()[rng.randint(0, 3) : -1] for t in texts]
    vocabulary = Vocabulary.from_bytes([*tokens, b""], eos=[len(tokens)], special=[len(tokens)])
    compiled = compile_for(regex(pattern), vocabulary, use_cache=False)
    check_walk(compiled, seed, steps=14)


@given(patterns(), vocabularies(complete=False), st.integers(0, 1000))
def test_vocabularies_that_lack_bytes(pattern: str, vocabulary: Vocabulary, seed: int) -> None:
    """No dead ends in tokens: every legal token can be continued to an end by tokens."""
    try:
        compiled = compile_for(regex(pattern), vocabulary, use_cache=False)
    except GrammarError:
        return
    rng = random.Random(seed)
    matcher = compiled.matcher()
    for _ in range(30):
        legal = tokens_of(matcher.mask(), vocabulary.width)
        assert legal, "a dead end"
        token = rng.choice(sorted(legal))
        assert matcher.accept(token)
        if matcher.is_finished:
            break


@pytest.mark.parametrize("length", [4096, 4097, 9000])
@pytest.mark.parametrize("single", [True, False])
def test_long_tokens(length: int, single: bool) -> None:
    """As long as they may be, also where the vocabulary has no token for one of their bytes alone."""
    texts = [b"a" * length, b"a" * (length - 1) + b"b", b"b", *([b"a"] if single else [])]
    end = len(texts)
    vocabulary = Vocabulary.from_bytes([*texts, b""], eos=[end])
    options = choice([texts[0] + b"b", texts[1] + b"b"])
    matcher = compile_for(options, vocabulary, use_cache=False).matcher()
    begin = {0, 1, 3} if single else {0, 1}
    for legal, token in ((begin, 0), ({2}, 2), ({end}, end)):
        assert tokens_of(matcher.mask(), vocabulary.width) == legal
        assert matcher.accept(token)
    matcher = compile_for(regex("(?:a|b)*"), vocabulary, use_cache=False).matcher()
    for token in (0, 1, 2, 1, 0):
        assert tokens_of(matcher.mask(), vocabulary.width) == set(range(end + 1))
        assert matcher.accept(token)
