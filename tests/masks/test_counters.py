"""Counted repeats in grammars of rules: exact near their bounds, and as cheap as if they had none elsewhere."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import pytest
from mask_sets import tokens_of
from random_rules import ALL_LIMITS, Rules, alt, opt, ref, rep, seq
from recursive_cases import build, walking_directly
from wide_vocabulary import END, VOCABULARY

from stepmask.grammar.automaton import COUNTER
from stepmask.grammar.expression import Characters
from stepmask.grammar.limits import Limits
from stepmask.masks.batch import Batch

S = ref("S")
DIGIT = Characters(((0x30, 0x39),))
LETTER = Characters(((0x61, 0x7A),))
WORD = Characters(((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x24F), (0x400, 0x4FF), (0x4E00, 0x9FFF)))
PLAIN = Characters(((0x20, 0x21), (0x23, 0x5B), (0x5D, 0xD7FF), (0xE000, 0x10FFFF)))
CHARACTER = alt(PLAIN, seq(b"\\", Characters(((0x22, 0x22), (0x5C, 0x5C), (0x6E, 0x6E), (0x74, 0x74)))))
BLANKS = rep(Characters(((9, 10), (32, 32))), 0, 3)


def rules_with(low: int, high: int) -> dict[str, Rules]:
    """Rules with a repeat of `low` to `high` characters or items."""
    return {
        "strings": {"S": alt(seq(b'"', rep(CHARACTER, low, high), b'"'), seq(b"[", rep(seq(S, b",")), b"]"))},
        "words": {"S": alt(seq(rep(WORD, low, high), b"."), seq(b"(", S, b")"))},
        "what follows goes on": {"S": alt(seq(b"!", rep(WORD, low, high), rep(LETTER), b"."), seq(b"(", S, b")"))},
        "a rule that goes on": {"S": alt(seq(b"!", ref("T"), opt(LETTER)), b"(", seq(b"(", S, b")")),
                                "T": rep(WORD, low, high)},
        "blanks": {"S": alt(rep(LETTER, 1), seq(b"(", BLANKS, rep(seq(S, BLANKS, b",", BLANKS), low, high), b")"))},
        "lists": {"S": alt(rep(DIGIT, 1, 2), b"a", seq(b"[", rep(seq(S, b","), low, high), b"]"))},
        "nested": {"S": alt(b"a", seq(b"[", rep(seq(b"-", rep(alt(b" ", S), 2, high), b","), low, high), b"]"))},
    }  # fmt: skip


@pytest.mark.parametrize("bounds", [(0, 4), (3, 9), (5, 300)], ids=str)
@pytest.mark.parametrize("name", rules_with(0, 0))
def test_every_token(name: str, bounds: tuple[int, int]) -> None:
    """Against `allows`, which reads a token byte by byte on the stack itself, and against the walk of the stack."""
    compiled = build(rules_with(*bounds)[name], VOCABULARY, Limits(max_unrolled_positions=0))
    assert COUNTER in compiled.automaton["frame_kind"]
    batch = Batch(VOCABULARY, 1, None)
    slot = batch.add(compiled)
    for seed in range(3):
        rng = random.Random(seed)
        batch.reset(slot)
        for _ in range(9):
            mask = tokens_of(batch.mask(slot))
            assert mask == {token for token in range(VOCABULARY.size) if batch.allows(slot, token)}
            with walking_directly(batch):
                assert mask == tokens_of(batch.mask(slot))
            if not mask - {END}:
                break
            opening = sorted(t for t in mask - {END} if VOCABULARY.token(t) in (b"!", b"(", b"[", b'"', b"-", b","))
            pick = opening if opening and rng.random() < 0.4 else sorted(mask - {END})
            batch.advance(*(_row(value) for value in (slot, rng.choice(pick))))


def _row(value: int) -> npt.NDArray[np.int32]:
    return np.array([value], np.int32)


def work_along(found: Rules, text: bytes, limits: Limits = ALL_LIMITS[0]) -> tuple[list[int], int]:
    """(work of the mask at each byte of a legal text, contexts in all)."""
    compiled = build(found, VOCABULARY, limits)
    batch = Batch(VOCABULARY, 1, None)
    slot = batch.add(compiled)
    spent = []
    for byte in text:
        before = batch.counters["work"]
        batch.mask(slot)
        spent.append(batch.counters["work"] - before)
        assert batch.accept_bytes(slot, bytes([byte]))
    return spent, batch.counters["contexts"]


@pytest.mark.parametrize("name", ["strings", "words", "blanks", "lists"])
def test_a_large_bound_costs_nothing_far_from_it(name: str) -> None:
    text = {
        "strings": b'[["' + b"ab" * 600, "words": b"((" + b"ab" * 600,
        "blanks": b"(" + b"ab, " * 300, "lists": b"[[" + b"a,7," * 300,
    }[name]  # fmt: skip
    unbounded, contexts = work_along({**rules_with(0, 10**6)[name]}, text)
    bounded, more = work_along(rules_with(0, 2000)[name], text)
    assert more == contexts < 30 and bounded == unbounded
    assert max(bounded[200:]) < 1500


def test_contexts_near_a_bound_are_as_many_as_tokens_can_tell_apart() -> None:
    text = b"[" + b"a," * 400 + b"]"
    _, far = work_along(rules_with(0, 10**6)["lists"], text)
    _, near = work_along(rules_with(0, 400)["lists"], text)
    # Items of two bytes in tokens of at most six.
    longest = max(len(VOCABULARY.token(t)) for t in range(VOCABULARY.size))
    assert far < near <= far + 4 * longest
    _, least = work_along(rules_with(400, 500)["lists"], text)
    assert far < least <= far + 4 * longest
