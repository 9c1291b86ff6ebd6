"""Random recursive grammars: every mask, whatever happened before it, is what Earley's algorithm finds."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import tempfile

import numpy as np
import pytest
from earley import Earley
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mask_sets import tokens_of
from random_rules import ALL_LIMITS, Rules, alt, is_language, ref, rules, seq
from recursive_cases import Run, build, legal_of, rows, vocabulary_for, walking_directly

from stepmask.grammar.errors import GrammarUnsatisfiable
from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex
from stepmask.masks.arena import ACCEPTED
from stepmask.masks.batch import Batch
from stepmask.masks.compiled import CompiledGrammar, compile
from stepmask.masks.layout import B_DIRECT, READY

SEEDS = st.integers(0, 2**32 - 1)
LIMITS = st.sampled_from(ALL_LIMITS)


def wander(runs: list[Run], rng: random.Random, steps: int) -> None:
    """Accept, refuse, roll back, fork, reset in any order, each mask checked, some by walking the stack itself."""
    for _ in range(steps):
        at = rng.randrange(len(runs))
        run = runs[at]
        legal = run.check(directly=rng.random() < 0.3)
        assert legal or run.place.finished, run.describe()
        what = rng.random()
        if what < 0.65 and legal:
            long = [t for t in sorted(legal) if len(run.vocabulary.token(t)) > 1]
            assert run.accept(rng.choice(long if long and rng.random() < 0.6 else sorted(legal)))
        elif what < 0.72:
            refused = [t for t in range(run.vocabulary.width) if t not in legal]
            if refused:
                assert not run.accept(rng.choice(refused))
        elif what < 0.77:
            run.accept_bytes(b"".join(rng.choice((b"a", b"b", b"(", b")", b"a)")) for _ in range(rng.randint(0, 3))))
        elif what < 0.87:
            run.rollback(rng.randint(0, run.kept))
        elif what < 0.93 and run.batch.free_slots:
            runs.append(run.fork())
        elif what < 0.96:
            run.reset()
        elif what < 0.98 and len(runs) > 1:
            runs.pop(at).remove()
        else:
            run.check_allows()
    for run in runs:
        run.check()


@given(rules(tokens=True, members=True), SEEDS, LIMITS)
def test_masks_along_random_walks(found: Rules, seed: int, limits: Limits) -> None:
    rng = random.Random(seed)
    oracle = Earley(found, "S")
    vocabulary = vocabulary_for([found] if is_language(found) else [], rng, every_byte=rng.random() < 0.2)
    if oracle.start() is None:
        with pytest.raises(GrammarUnsatisfiable):
            build(found, vocabulary, limits)
        return
    compiled = build(found, vocabulary, limits)
    runs = [Run(Batch(vocabulary, 4, None, max_rollback=rng.randint(1, 8)), compiled, oracle)]
    wander(runs, rng, 14)
    fresh = runs[-1].replayed(Batch(vocabulary, 1, None))
    fresh.check()
    assert np.array_equal(fresh.batch.mask(fresh.slot), runs[-1].batch.mask(runs[-1].slot))


@settings(max_examples=25)
@given(rules(tokens=True, members=True), SEEDS, LIMITS)
def test_masks_of_texts_that_begin_with_a_dropped_space(found: Rules, seed: int, limits: Limits) -> None:
    assume(is_language(found))
    rng = random.Random(seed)
    vocabulary = vocabulary_for([found], rng, spaces=True)
    compiled = build(found, vocabulary, limits)
    batch = Batch(vocabulary, 4, None)
    runs = [Run(batch, compiled, Earley(found, "S"), text_start=begins) for begins in (True, False)]
    wander(runs, rng, 8)


@settings(max_examples=25)
@given(st.lists(rules(tokens=True, members=True), min_size=2, max_size=4), SEEDS, st.sampled_from([0.0, 0.05, 1.0]))
def test_a_batch_of_several_grammars_within_a_budget(many: list[Rules], seed: int, budget: float) -> None:
    """However many plans a mask takes, and whatever other rows do meanwhile, it ends as what it should be."""
    rng = random.Random(seed)
    many = [*filter(is_language, many)]
    assume(many)
    vocabulary = vocabulary_for(many, rng)
    batch = Batch(vocabulary, 8, budget)
    of_regex = compile(regex("(?:[ab]{1,3}\\)|\\(+)*"), vocabulary, use_cache=False)
    plain = batch.add(of_regex)
    alone = of_regex.matcher()
    runs = [Run(batch, build(found, vocabulary, rng.choice(ALL_LIMITS)), Earley(found, "S")) for found in many]
    for _ in range(6):
        slots = rows(-1, plain, *(run.slot for run in runs))
        ready: dict[int, set[int]] = {}
        for turn in range(4000):
            plan = batch.plan(slots)
            for row in range(1, len(slots)):
                if plan.status[row] == READY:
                    ready[row] = legal_of(plan, batch, row)
            # Rows may go on before others have their masks.
            if plan.all_ready or (rng.random() < 0.1 and len(ready) > 1):
                break
            assert turn < 3999, "the masks are never finished"
            if budget == 0.0 and rng.random() < 0.02:
                batch.allows(runs[0].slot, rng.randrange(vocabulary.size))
        for row, found_mask in ready.items():
            expected = runs[row - 2].expected() if row > 1 else tokens_of(alone.mask())
            assert found_mask == expected
            if not expected:
                continue
            token = rng.choice(sorted(expected))
            if row == 1:
                assert alone.accept(token) and batch.advance(rows(plain), rows(token))[0] == ACCEPTED
            else:
                assert runs[row - 2].accept(token)
        if rng.random() < 0.3:
            run = rng.choice(runs)
            run.rollback(rng.randint(0, run.kept))
        if rng.random() < 0.2 and batch.free_slots > 1:
            runs.append(rng.choice(runs).fork())


def test_unfinished_masks_were_tried() -> None:
    """The budget of the test above is small enough for masks to take many plans."""
    found: Rules = {"S": alt(b"a", seq(b"(", ref("S"), b")"), seq(ref("S"), b"b"), seq(b"(", ref("S")))}
    vocabulary = vocabulary_for([found], random.Random(1))
    batch = Batch(vocabulary, 2, 0.0)
    run = Run(batch, build(found, vocabulary), Earley(found, "S"))
    for direct in (False, True):
        run.accept_bytes(b"(((((")
        plans = 1
        with walking_directly(batch) if direct else contextlib.nullcontext():
            while not batch.plan(rows(run.slot)).all_ready:
                plans += 1
        assert plans > 10
        run.check()


def test_rows_that_walk_their_stacks_keep_what_they_have_found() -> None:
    """Several such rows all become ready, whatever the budget, and then cost nothing until they move on."""
    found: Rules = {"S": alt(b"a", seq(b"(", ref("S"), b")"), seq(ref("S"), b"b"))}
    vocabulary = vocabulary_for([found], random.Random(1))
    batch = Batch(vocabulary, 4, 0.0)
    runs = [Run(batch, build(found, vocabulary), Earley(found, "S")) for _ in range(3)]
    batch._block.header[B_DIRECT] = 1
    slots = rows(*(run.slot for run in runs))
    for text in (b"((", b"(a", b")", b"b"):
        for depth, run in enumerate(runs):
            run.accept_bytes(b"(" * depth + text)
        for _ in range(10_000):
            plan = batch.plan(slots)
            if plan.all_ready:
                break
        assert [legal_of(plan, batch, row) for row in range(3)] == [run.expected() for run in runs]
        before = batch.counters["work"]
        assert batch.plan(slots).all_ready and batch.counters["work"] == before
        runs[0].rollback(1)
        runs[0].check()
        runs[0].accept_bytes(text)


def test_rows_that_walk_their_stacks_are_told_apart() -> None:
    """Slots and places in their stacks are small numbers: what is kept of one row is never another's."""
    found: Rules = {"S": alt(b"a", seq(b"(", ref("S"), b")"), seq(b"b", ref("S"), b"b"), seq(b" ", ref("S")))}
    vocabulary = vocabulary_for([found], random.Random(1))
    batch = Batch(vocabulary, 8, None)
    batch._block.header[B_DIRECT] = 1
    compiled, oracle = build(found, vocabulary), Earley(found, "S")
    runs = [Run(batch, compiled, oracle) for _ in range(8)]
    rng = random.Random(0)
    for _ in range(30):
        for run in runs:
            run.check()
            run.accept_bytes(rng.choice((b"(", b"b", b" ", b"((", b"b(", b"  ")))


@settings(max_examples=25)
@given(rules(members=True), SEEDS)
def test_saved_and_loaded(found: Rules, seed: int) -> None:
    assume(is_language(found))
    rng = random.Random(seed)
    vocabulary = vocabulary_for([found], rng)
    compiled = build(found, vocabulary, rng.choice(ALL_LIMITS))
    with tempfile.TemporaryDirectory() as folder:
        compiled.save(f"{folder}/saved")
        loaded = CompiledGrammar.load(f"{folder}/saved", vocabulary)
    assert np.array_equal(loaded.automaton.buffer, compiled.automaton.buffer)
    run = Run(Batch(vocabulary, 2, None), loaded, Earley(found, "S"))
    wander([run], rng, 5)


_PROGRAM = r"""
import hashlib, random
from random_rules import ALL_LIMITS, grammar, is_language, random_rules
from stepmask.grammar.compile import compile_grammar
for seed in range(40):
    found = random_rules(random.Random(seed), tokens=True, members=True)
    if is_language(found):
        for limits in ALL_LIMITS:
            print(hashlib.sha256(compile_grammar(grammar(found), limits).buffer).hexdigest())
"""


def test_equal_arrays_under_any_hash_seed() -> None:
    outputs = []
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout.splitlines())
    assert len(outputs[0]) > 50
    assert outputs[0] == outputs[1]
