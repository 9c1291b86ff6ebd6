"""Masks of recursive rows that are remembered: always what walking the row itself would give, and hardly any work."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import numpy as np
import pytest
from earley import Earley
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mask_sets import byte_vocabulary, tokens_of
from random_rules import ALL_LIMITS, Rules, alt, is_language, ref, rep, rules, seq
from recursive_cases import Run, build, rows, vocabulary_for, walking_directly

from stepmask.grammar.json_value import json_value
from stepmask.grammar.limits import Limits
from stepmask.masks.batch import Batch
from stepmask.masks.compiled import compile
from stepmask.masks.layout import B_LISTS, B_MEMO, B_MEMO_BUCKETS, G_CONTEXT_COUNT, MAX_CONTEXTS
from stepmask.masks.memo import MAX_STEPS, STEP_COST, STEP_NUMBER
from stepmask.masks.whole_stack import KEY_COST, MOST_READ

SEEDS = st.integers(0, 2**32 - 1)
CLOSING = [b"]" * n for n in range(2, 6)] + [b"]}", b"}]", b"],[", b"[[", b'":', b"[]", b'"]', b"1,"]


@settings(max_examples=40)
@given(
    st.lists(rules(tokens=True, members=True), min_size=1, max_size=2), SEEDS, st.sampled_from(ALL_LIMITS),
    st.sampled_from([1, 2, 7, 1 << 13]), st.booleans(),
)  # fmt: skip
def test_masks_are_those_of_walking(many: list[Rules], seed: int, limits: Limits, buckets: int, starts: bool) -> None:
    """Whatever is remembered, replaced, forgotten by the pool or the contexts, rolled back, forked or reset meanwhile.

    Sequences of several grammars and texts go the same ways twice, so that most of the second time is remembered.
    """
    rng = random.Random(seed)
    many = [found for found in many if is_language(found)]
    assume(many)
    vocabulary = vocabulary_for(many, rng, spaces=starts)
    batch = Batch(vocabulary, 6, None, max_rollback=6, pool_masks=12)
    batch._block.header[B_LISTS] = 20
    batch._block.header[B_MEMO_BUCKETS] = buckets
    runs = []
    for found in many:
        compiled, oracle = build(found, vocabulary, limits), Earley(found, "S")
        runs += [Run(batch, compiled, oracle, text_start=starts and i == 0) for i in range(2)]
    for _ in range(8):
        choice = rng.random()
        for run in list(runs):
            draw = random.Random(choice)
            remembered = batch.mask(run.slot)
            with walking_directly(batch):
                batch._forget_row(run.slot)
                assert np.array_equal(batch.mask(run.slot), remembered), run.describe()
            batch._forget_row(run.slot)
            legal = run.check(directly=False)
            if draw.random() < 0.15:
                run.rollback(draw.randint(0, run.kept))
            elif draw.random() < 0.1 and batch.free_slots:
                runs.append(run.fork())
            elif draw.random() < 0.05:
                run.reset()
            elif legal:
                run.accept(draw.choice(sorted(legal)))
        if rng.random() < 0.2:
            for resident in {run.slot: batch._of_slot[run.slot] for run in runs}.values():
                assert resident is not None
                resident.block.header[G_CONTEXT_COUNT] = MAX_CONTEXTS  # the next new one forgets them all
    for run in runs:
        run.check(directly=False)


def test_rows_like_an_earlier_one_are_remembered() -> None:
    """In another slot, deeper down, with another text: what is left is a few steps. A longer stack is told apart."""
    vocabulary = byte_vocabulary(*CLOSING)
    compiled = compile(json_value(), vocabulary, use_cache=False)
    batch = Batch(vocabulary, 3, None)
    first, second, third = (batch.add(compiled) for _ in range(3))
    text = b'[[[[[[[[{"a":[1,[2,["x'
    for at in range(len(text)):
        batch.accept_bytes(first, text[at : at + 1])
        batch.mask(first)
    for slot, before in ((second, b""), (third, b'[{"key":' * 20)):
        batch.accept_bytes(slot, before + text[:8])
        for at in range(8, len(text)):
            batch.accept_bytes(slot, text[at : at + 1])
            before_work, recalled = batch.counters["work"], batch.counters["recalled"]
            found = batch.mask(slot)
            # Within a string the row is where it was, and walking from there, below, has left its mask.
            assert batch.counters["recalled"] == recalled + (0 if text[at : at + 1].isalpha() else 1)
            # What is read first of all of the stack, which is too large, and then its path.
            assert batch.counters["work"] - before_work <= MOST_READ + STEP_COST * 8
            with walking_directly(batch):
                batch._forget_row(slot)
                assert np.array_equal(batch.mask(slot), found)
    closes = 256 + CLOSING.index(b"]" * 4)
    batch.reset(first)
    batch.accept_bytes(first, b"[[[1")
    assert closes not in tokens_of(batch.mask(first))
    batch.reset(second)
    batch.accept_bytes(second, b"[[[[1")
    assert closes in tokens_of(batch.mask(second))


def test_a_small_stack_is_found_as_a_whole() -> None:
    """In another slot, behind another text: one look. Unequal stacks and other starts of a text are told apart."""
    vocabulary = byte_vocabulary(*CLOSING)
    compiled = compile(json_value(), vocabulary, use_cache=False)
    batch = Batch(vocabulary, 2, None)
    first, second = batch.add(compiled), batch.add(compiled)
    text = b'{"a":[1,{"b":[-2.5e3,"x'
    for at in range(len(text)):
        batch.accept_bytes(first, text[at : at + 1])
        batch.mask(first)
    batch.accept_bytes(second, b'{"key":[true,')
    for at in range(text.index(b"1"), len(text)):
        batch.accept_bytes(second, text[at : at + 1])
        before, recalled = batch.counters["work"], batch.counters["recalled"]
        found = batch.mask(second)
        if not text[at : at + 1].isalpha():  # within a string walking from there, below, has left the mask
            assert batch.counters["recalled"] == recalled + 1
            assert batch.counters["work"] - before <= KEY_COST + MOST_READ
        with walking_directly(batch):
            batch._forget_row(second)
            assert np.array_equal(batch.mask(second), found)


def test_counters_are_there_as_tokens_can_ask() -> None:
    """Registers that no token can tell apart are the same; the others are not."""
    found: Rules = {"S": alt(b"a", seq(b"(", rep(ref("S"), 0, 60), b")"))}
    vocabulary = byte_vocabulary(b"aa", b"aaa")
    batch = Batch(vocabulary, 2, None)
    run = Run(batch, build(found, vocabulary), Earley(found, "S"))
    run.accept_bytes(b"(")
    recalled = []
    for _ in range(60):
        before = batch.counters["recalled"]
        run.check()
        recalled.append(batch.counters["recalled"] - before)
        run.accept_bytes(b"a")
    assert sum(recalled) >= 50
    run.check()
    assert recalled[-1] == recalled[-2] == 0


def test_masks_that_the_pool_forgot_are_found_again() -> None:
    vocabulary = byte_vocabulary(*CLOSING)
    batch = Batch(vocabulary, 1, None, max_rollback=64)
    batch._block.header[B_LISTS] = 4
    slot = batch.add(compile(json_value(), vocabulary, use_cache=False))
    expected = {}
    for turn in range(3):
        batch.reset(slot)
        for at, byte in enumerate(b'{"a":[true,[null,{"b":1.5e3}]]}'):
            found = batch.mask(slot)
            assert np.array_equal(found, expected.setdefault(at, found)), (turn, at)
            batch.accept_bytes(slot, bytes([byte]))
    assert batch.counters["flushes"] > 3


@pytest.mark.parametrize("heads", [3, MAX_STEPS + 1])
def test_rows_of_too_many_heads_are_visited(heads: int) -> None:
    """Masks are the same, and nothing is remembered of a row with more heads than there are steps."""
    ways = (seq(b"(", ref("S"), bytes([0x61 + i % 2, 0x61 + i // 2 % 2, 0x30 + i])) for i in range(heads))
    found: Rules = {"S": alt(*ways, b"a")}
    vocabulary = byte_vocabulary(b"(a", b"aa", b"ab")
    batch = Batch(vocabulary, 2, None)
    compiled, oracle = build(found, vocabulary), Earley(found, "S")
    for _ in range(2):
        run = Run(batch, compiled, oracle)
        for text in (b"(", b"(", b"a", b"a"):
            run.check()
            run.accept_bytes(text)
        run.check()
    steps = batch._block.arrays[B_MEMO][..., STEP_NUMBER]
    assert (steps > 0).any()
    assert batch.plan(rows(0)).all_ready


_BESIDE_SECTIONS = r"""
from dataclasses import replace
from stepmask.grammar.automaton import Automaton, aligned_bytes
from stepmask.grammar.gbnf import gbnf
from stepmask.masks.batch import Batch
from stepmask.masks.compiled import compile
from stepmask.masks.vocabulary import Vocabulary

vocabulary = Vocabulary.from_bytes([bytes([byte]) for byte in range(256)] + [b"<end>"], eos=[256], special=[256])
compiled = compile(gbnf('root ::= "[" (root ("," root)*)? "]"'), vocabulary, use_cache=False)
memory = aligned_bytes(compiled.automaton.memory.nbytes)
memory[:] = compiled.automaton.memory
automaton = Automaton.adopt(memory, check=False)
end = automaton["state_flags"].ctypes.data + automaton.n_states - memory.ctypes.data
begin = automaton["state_frame"].ctypes.data - memory.ctypes.data
assert end + 4 <= begin
memory[end:begin] = 0x7F
batch = Batch(vocabulary, 1, None)
slot = batch.add(replace(compiled, automaton=automaton))
for text in (b"[", b"[", b"]", b",", b"[", b"]", b"]"):
    batch.mask(slot)
    assert batch.accept_bytes(slot, text)
batch.mask(slot)
"""


def test_nothing_beside_a_section_is_read() -> None:
    """Below its root frame a stack has no state: looking for that one's frame read what stands before the first's."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    program = [sys.executable, "-c", _BESIDE_SECTIONS]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
