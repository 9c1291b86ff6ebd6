"""Drafts against stepping, and forced bytes against brute force."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mask_sets import byte_vocabulary, tokens_of
from oracles import ReferenceMatcher

from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex
from stepmask.masks.compiled import CompiledGrammar, compile
from stepmask.masks.matcher import Matcher
from stepmask.masks.vocabulary import Vocabulary

WORDS = [b"ab", b"abc", b"bc", b"ca", b"aa", "é".encode(), b"a\xc3", b"12", b" a", b" "]
VOCABULARY = byte_vocabulary(*WORDS)
END = VOCABULARY.size - 1
LAZY = Limits(max_dfa_states=1)
BOTH = pytest.mark.parametrize("limits", [Limits(), LAZY], ids=["states", "lazy"])
PATTERNS = ["(?:ab|a)c*", "(?:ab|bc|é){2,40}", "(?:[ab]{1,3}1?){3}", "(?!.*aa)[abc]{0,9}", r"\w*,?"]


def build(pattern: str, limits: Limits = Limits(), vocabulary: Vocabulary = VOCABULARY) -> CompiledGrammar:  # noqa: B008
    return compile(regex(pattern), vocabulary, limits, use_cache=False)


def state(matcher: Matcher) -> tuple[bytes, bool, bool]:
    return matcher.mask().tobytes(), matcher.is_complete, matcher.is_finished


@BOTH
@given(st.sampled_from(PATTERNS), st.integers(0, 10_000))
def test_drafts_equal_stepping(limits: Limits, pattern: str, seed: int) -> None:
    rng = random.Random(seed)
    matcher = build(pattern, limits).matcher()
    for _ in range(rng.randint(0, 3)):
        if choices := sorted(tokens_of(matcher.mask())):
            matcher.accept(rng.choice(choices))
    before = state(matcher)
    good = [97, 98, 99, 49, *range(256, VOCABULARY.size)]
    draft = [
        rng.choice(good) if rng.random() < 0.95 else rng.choice([-1, 2**40, 120]) for _ in range(rng.randint(0, 9))
    ]
    parents = None if rng.random() < 0.3 else [rng.randint(-1, i - 1) for i in range(len(draft))]
    masks = matcher.draft_masks(draft, parents)
    assert state(matcher) == before and len(masks) == len(draft) + 1
    for i in range(-1, len(draft)):
        path, at = [], i
        while at >= 0:
            path.append(draft[at])
            at = parents[at] if parents else at - 1
        fork = matcher.fork()
        if all(fork.accept(t) for t in reversed(path)):
            assert np.array_equal(masks[i + 1], fork.mask())
        else:
            assert masks[i + 1] is None
    stepped = matcher.fork()
    expected = len(list(itertools.takewhile(stepped.accept, draft)))
    assert matcher.try_accept(draft) == expected
    assert state(matcher) == state(stepped)


@pytest.mark.parametrize("depth", [0, 1, 4])
def test_drafts_leave_the_history_as_it_was(depth: int) -> None:
    matcher = build("[ab]*").matcher(max_rollback=depth)
    assert matcher.try_accept([97] * depth) == depth
    masks = matcher.draft_masks([97, 98, 97, 98, 97, 98])
    assert all(mask is not None for mask in masks)
    matcher.rollback(depth)
    with pytest.raises(ValueError, match="0 are kept"):
        matcher.rollback(1)


def test_wrong_parents() -> None:
    matcher = build("a*").matcher()
    for tokens, parents in (([97], []), ([97], [0]), ([97, 97], [-1, 1]), ([97], [-2])):
        with pytest.raises(ValueError, match="parents"):
            matcher.draft_masks(tokens, parents)


@BOTH
@given(
    st.sampled_from([*PATTERNS, "abc(?:de|df)g", "é|è", "(?:abc){3}(?:a{2}|ab)", "x[^a]y?", "(?:日本){2,30}"]),
    st.integers(0, 999),
)
def test_forced_bytes_equal_brute_force(limits: Limits, pattern: str, seed: int) -> None:
    rng = random.Random(seed)
    compiled = build(pattern, limits)
    matcher, reference = compiled.matcher(), ReferenceMatcher(compiled.automaton)
    for _ in range(8):
        walker, forced = reference.copy(), b""
        while not walker.is_complete and len(live := walker.live_bytes()) == 1:
            forced += bytes(live)
            assert walker.accept(forced[-1:])
        assert matcher.forced_bytes() == forced
        if forced:
            assert matcher.accept_bytes(forced)
            matcher.rollback(1)
        choices = sorted(reference.live_bytes())
        if not choices:
            break
        byte = rng.choice(choices)
        assert matcher.accept(byte) and reference.accept_byte(byte)
