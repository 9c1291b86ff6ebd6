"""Tokens that are looked up instead of stepped: the stack that they leave is always what stepping them would leave."""

from __future__ import annotations

import random

import numpy as np
import pytest
from earley import Earley
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mask_sets import byte_vocabulary, tokens_of
from random_rules import ALL_LIMITS, FRAMES, Rules, alt, is_language, ref, rules, seq
from recursive_cases import Run, build, rows, vocabulary_for, walking_directly

from stepmask.grammar.json_value import json_value
from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex
from stepmask.masks.arena import ACCEPTED, ENDED, LEAST_COMPACTED, REFUSED
from stepmask.masks.batch import Batch
from stepmask.masks.compiled import CompiledGrammar, compile
from stepmask.masks.layout import B_ARENA_NEXT, B_ARENA_USED, B_TRANSITION_BUCKETS
from stepmask.masks.transitions import LEARNING_COST, TRANSITION_COST, TRANSITIONS
from stepmask.masks.vocabulary import Vocabulary
from stepmask.masks.whole_stack import KEY_COST, MOST_READ

SEEDS = st.integers(0, 2**32 - 1)
TEXT = b'{"a":[1,{"b":[-2.5e3,"xy",null]}],"c":"d"}'


def json_batch(vocabulary: Vocabulary, slots: int) -> tuple[Batch, CompiledGrammar]:
    return Batch(vocabulary, slots, None), compile(json_value(), vocabulary, use_cache=False)


def looked_up(batch: Batch) -> int:
    return batch.counters["looked_up"]


@settings(max_examples=60)
@given(
    st.lists(rules(tokens=True, members=True), min_size=1, max_size=2), SEEDS, st.sampled_from(ALL_LIMITS),
    st.sampled_from([1, 4, TRANSITIONS // 2]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_stacks_are_those_of_stepping(
    many: list[Rules], seed: int, limits: Limits, buckets: int, starts: bool, compacts: bool
) -> None:
    """Whatever is replaced, compacted, rolled back, forked, looked at ahead or reset meanwhile.

    Sequences take the first token of their mask in an order that is the same for all, so most of them are looked up.
    """
    rng = random.Random(seed)
    many = [found for found in many if is_language(found)]
    assume(many)
    vocabulary = vocabulary_for(many, rng, spaces=starts)
    batch = Batch(vocabulary, 8, None, max_rollback=6)
    batch._block.header[B_TRANSITION_BUCKETS] = buckets
    runs: list[Run] = []
    for found in many:
        compiled, oracle = build(found, vocabulary, limits), Earley(found, "S")
        runs += [Run(batch, compiled, oracle, text_start=starts and i == 0) for i in range(3)]
    order = rng.sample(range(vocabulary.width), vocabulary.width)
    for turn in range(14):
        for run in list(runs):
            legal = run.check()
            choice = rng.random()
            if choice < 0.1:
                run.rollback(rng.randint(0, run.kept))
            elif choice < 0.15 and batch.free_slots:
                runs.append(run.fork())
            elif choice < 0.2:
                run.reset()
            elif choice < 0.3:
                batch.accept_draft(run.slot, sorted(legal)[:1])  # as who looks ahead: there and back
                batch.rollback(run.slot, batch.position(run.slot) - len(run.said))
                run.kept = min(run.kept, batch.max_rollback - 1)
            if choice < 0.3:
                continue
            if compacts:
                batch._block.arrays[B_ARENA_NEXT][run.slot] = batch._block.arrays[B_ARENA_USED][run.slot]
            if legal:
                run.accept(min(legal, key=order.__getitem__) if turn % 4 else rng.choice(sorted(legal)))
            elif rng.random() < 0.5:
                run.reset()
    for run in runs:
        run.check(directly=True)


def test_each_token_is_stepped_once() -> None:
    """In another slot, behind another text, the same tokens are a look each, and every mask is that of walking."""
    vocabulary = byte_vocabulary(b'":', b"[1", b'"xy"', b"]}")
    batch, compiled = json_batch(vocabulary, 3)
    first, second, third = (batch.add(compiled) for _ in range(3))
    for slot, before in ((first, b""), (second, b""), (third, b'{"key":[true,')):
        batch.accept_bytes(slot, before)
        for at in range(len(TEXT) - 1):
            batch.mask(slot)
            work, known, learned = batch.counters["work"], looked_up(batch), batch.counters["learned"]
            assert batch.advance(rows(slot), rows(TEXT[at])).tolist() == [ACCEPTED]
            assert batch.counters["learned"] - learned <= KEY_COST + MOST_READ + LEARNING_COST
            assert (batch.counters["learned"] == learned) == (looked_up(batch) > known)
            if slot == second:
                assert looked_up(batch) == known + 1, TEXT[:at]
                assert batch.counters["work"] - work <= TRANSITION_COST + 4  # the last of them for blocks
            found = batch.mask(slot)
            with walking_directly(batch):
                batch._forget_row(slot)
                assert np.array_equal(batch.mask(slot), found), TEXT[:at]
    # What is behind a value depends on what it is in: there the stacks differ, and within strings they do not.
    assert looked_up(batch) > len(TEXT)


def test_an_end_token_of_a_row_is_never_looked_up() -> None:
    """Another row, whose end tokens are others, may have taken it as text."""
    vocabulary = byte_vocabulary(b'"}')
    batch, compiled = json_batch(vocabulary, 2)
    quote = ord('"')
    first, second = batch.add(compiled), batch.add(compiled, eos=[quote])
    for slot, answer in ((first, ACCEPTED), (second, REFUSED)):
        batch.accept_bytes(slot, b'["a')
        assert (quote in tokens_of(batch.mask(slot))) == (answer == ACCEPTED)
        assert batch.advance(rows(slot), rows(quote)).tolist() == [answer]
    assert looked_up(batch) == 0


def test_the_end_of_a_text_is_told() -> None:
    """A token after which nothing but an end may come is ENDED when it is looked up too."""
    vocabulary = byte_vocabulary()
    found: Rules = {"S": alt(b"x", seq(b"(", ref("S"), b")"))}
    batch, compiled = Batch(vocabulary, 2, None), build(found, vocabulary)
    for _ in range(2):
        slot = batch.add(compiled)
        for number, byte in enumerate(b"((x))"):
            batch.mask(slot)
            answer = batch.advance(rows(slot), rows(byte), ends=True).tolist()
            assert answer == [ENDED if number == 4 else ACCEPTED]
        batch.mask(slot)
        batch.remove(slot)
    assert looked_up(batch) == 5


def test_a_slot_of_another_grammar_knows_nothing_of_the_last_one() -> None:
    """Neither of a recursive one nor of one without a stack."""
    vocabulary = byte_vocabulary()
    batch = Batch(vocabulary, 1, None)
    texts: tuple[tuple[CompiledGrammar, bytes], ...] = (
        (build({"S": alt(b"x", seq(b"a", ref("S"), b"a"))}, vocabulary), b"aaaxaa"),
        (compile(regex("[ab]{2,9}x?[ab]*"), vocabulary, use_cache=False), b"ababab"),
        (build({"S": alt(b"x", seq(b"a", ref("S"), b"b"))}, vocabulary), b"aaaxbb"),
    )
    for compiled, text in texts * 3:
        slot = batch.add(compiled)
        for byte in text:
            assert byte in tokens_of(batch.mask(slot))
            assert batch.advance(rows(slot), rows(byte)).tolist() == [ACCEPTED]
        batch.remove(slot)


def test_a_stack_too_large_for_a_key_is_no_end_of_a_text() -> None:
    """Neither has a key; what is found of the one says nothing of the other."""
    vocabulary = byte_vocabulary()
    batch, end = Batch(vocabulary, 1, None), vocabulary.size - 1
    small = build({"S": alt(b"x", seq(b"(", ref("S"), b")"))}, vocabulary)
    letters = [bytes([byte]) for byte in range(ord("a"), ord("a") + MOST_READ + 4)]
    parts: Rules = {f"R{i}": alt(letter, seq(letter, ref("S"), letter)) for i, letter in enumerate(letters)}
    large = build({"S": alt(*(ref(name) for name in parts)), **parts}, vocabulary)
    for _ in range(3):
        slot = batch.add(small)
        for byte in b"(x)":  # no mask is asked for, so none is known of what comes
            assert batch.advance(rows(slot), rows(byte)).tolist() == [ACCEPTED]
        batch.remove(slot)
        assert batch.add(large) == slot
        assert tokens_of(batch.mask(slot)) == {letter[0] for letter in letters}
        batch.remove(slot)
    slot = batch.add(small)
    for byte in b"(x)":
        batch.advance(rows(slot), rows(byte))
    assert looked_up(batch) == 9 and tokens_of(batch.mask(slot)) == {end}


@pytest.mark.parametrize("limits", [FRAMES])
def test_a_stack_that_outgrows_its_small_arena(limits: Limits) -> None:
    """It moves once, with its history; forks and other batches have all of it, and a new sequence begins small."""
    vocabulary = byte_vocabulary(b"(" * 16, b")" * 16)
    compiled = build({"S": alt(b"x", seq(b"(", ref("S"), b")"))}, vocabulary, limits)
    batch, other = Batch(vocabulary, 3, None), Batch(vocabulary, 2, None)
    slot = batch.add(compiled)
    small = batch.arena(slot)
    assert len(small) == LEAST_COMPACTED
    depth = 0
    while len(batch.arena(slot)) == LEAST_COMPACTED:
        batch.mask(slot)
        assert batch.advance(rows(slot), rows(256)).tolist() == [ACCEPTED]
        depth += 16
    assert batch._block.arrays[B_ARENA_USED][slot] > LEAST_COMPACTED / 2
    copies = [(batch, slot), (batch, batch.fork(slot)), (other, other.adopt(batch, slot))]
    masks = [where.mask(copy) for where, copy in copies]
    assert all(np.array_equal(mask, masks[0]) for mask in masks)
    for where, copy in copies:
        assert where.accept_bytes(copy, b"x" + b")" * depth)
        assert where.is_complete(copy)
        where.reset(copy)
        assert len(where.arena(copy)) == LEAST_COMPACTED
        assert where.accept_bytes(copy, b"((x)") and not where.is_complete(copy)
    assert batch.arena(slot) is not None and np.shares_memory(batch.arena(slot), small)
