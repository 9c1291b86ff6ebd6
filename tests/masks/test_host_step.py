"""A host's step in kernels beside the same step of a batch, with the NumPy lines that they stand for around it."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mask_sets import byte_vocabulary

from stepmask.grammar.json_value import json_value
from stepmask.grammar.regex import regex
from stepmask.masks.batch import Batch
from stepmask.masks.compiled import CompiledGrammar, compile
from stepmask.masks.host_step import (
    ANY_ENDS,
    ANY_PENDING,
    H_ADVANCE_FUEL,
    H_ADVANCE_LEFT,
    H_ANSWERS,
    H_DECODING,
    H_ENDS,
    H_LIMIT,
    H_MASK_IDS,
    H_MIN_TOKENS,
    H_ONLY_END,
    H_PLAN_FUEL,
    H_PLAN_LEFT,
    H_POSITIONS,
    H_SETTLE_FUEL,
    H_SETTLE_LEFT,
    H_SLOTS,
    H_SPENT,
    H_STATUS,
    NO_SLOT,
    advance_step,
    host_block,
    plan_step,
)
from stepmask.masks.layout import LIMIT, PENDING, READY
from stepmask.masks.memory import Block
from stepmask.masks.tables import ALL_ENDS, KIND_EMPTY, KIND_SHIFT

ROWS = 6
NOTHING = KIND_EMPTY << KIND_SHIFT
VOCABULARY = byte_vocabulary(b"ab", b'":', b"[1", b"]]")


@pytest.fixture(scope="module")
def grammars() -> list[CompiledGrammar]:
    made = (json_value(), regex("[ab]{1,3}"), regex(".{0,9}x|y"))
    return [compile(grammar, VOCABULARY, use_cache=False) for grammar in made]


def host_of(batch: Batch, slots: list[int], positions: np.ndarray, min_tokens: np.ndarray) -> Block:
    host = host_block(ROWS)
    host.set_array(H_POSITIONS, positions)
    host.arrays[H_SLOTS][:] = slots
    host.arrays[H_MIN_TOKENS][:] = min_tokens
    host.header[H_PLAN_FUEL], host.header[H_SETTLE_FUEL] = batch.plan_fuel, batch.settle_fuel
    host.header[H_ADVANCE_FUEL] = batch.advance_fuel
    return host


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from([None, 0.0, 3.0]))
def test_a_step_is_that_of_its_batch(grammars: list[CompiledGrammar], seed: int, budget_us: float | None) -> None:
    """Masks, ends, status, answers, positions, counters and fuel, whichever rows decode and take tokens."""
    rng = random.Random(seed)
    own, other = (Batch(VOCABULARY, ROWS, budget_us, fuel_per_us=100.0) for _ in range(2))
    slots = []
    for _ in range(ROWS):
        grammar = rng.choice([*grammars, None])
        added = {NO_SLOT if grammar is None else batch.add(grammar) for batch in (own, other)}
        slots += sorted(added)
    of_rows = np.array(slots, np.int32)
    positions, min_tokens = np.zeros(ROWS, np.int64), np.array([rng.randint(0, 3) for _ in slots])
    made = positions.copy()
    host = host_of(own, slots, positions, min_tokens)
    numbers, arrays = host.header, host.arrays
    begun = other.counters["work"]
    for _ in range(10):
        again = False
        for _ in range(rng.randint(1, 2)):
            decoding = np.array([rng.random() < 0.8 for _ in slots])
            fuel = int(numbers[H_PLAN_LEFT]) if again else own.plan_fuel
            before = other.counters["work"]
            plan = other.plan_within(np.where(decoding, of_rows, NO_SLOT), fuel)
            left, used = other._fuel_left, other.counters["work"] - before
            found = plan_step(own.address, host.address, decoding, again)
            again = True
            ready = decoding & (plan.status == READY)
            has_grammar = of_rows != NO_SLOT
            may_end = np.where(made >= min_tokens, np.uint32(ALL_ENDS), np.uint32(0))
            np.testing.assert_array_equal(arrays[H_DECODING], decoding)
            np.testing.assert_array_equal(arrays[H_STATUS], plan.status)
            np.testing.assert_array_equal(arrays[H_MASK_IDS], np.where(ready, plan.mask_ids, NOTHING))
            ends = np.where(ready, np.where(has_grammar, plan.end_allowed, may_end), 0)
            np.testing.assert_array_equal(arrays[H_ENDS], ends)
            only_end = ready & has_grammar & (plan.mask_ids == NOTHING)
            np.testing.assert_array_equal(arrays[H_ONLY_END], only_end)
            np.testing.assert_array_equal(arrays[H_LIMIT], decoding & (plan.status == LIMIT))
            assert found & ANY_ENDS == ANY_ENDS * bool(only_end.any() or (plan.status == LIMIT).any())
            assert found & ANY_PENDING == ANY_PENDING * bool((plan.status == PENDING).any())
            assert numbers[H_PLAN_LEFT] == max(1, fuel - used)
            assert numbers[H_SETTLE_LEFT] == max(0, own.settle_fuel + left)
        advance_left = own.advance_fuel
        for decoded in rng.sample((True, False), 2):
            tokens = np.array([rng.choice([-1, *b'[1ab"]x', 256, 257]) for _ in slots], np.int32)
            takes = (tokens >= 0) & (decoding if decoded else True)
            chosen = np.where(takes, of_rows, NO_SLOT).astype(np.int32)
            other.advance_fuel, other.settler.left = advance_left, int(numbers[H_SETTLE_LEFT])
            before, counted = other.counters["work"], own.counters["ready"]
            answers = other.advance(chosen, tokens, ends=decoded)
            advance_step(own.address, host.address, tokens, decoded)
            np.testing.assert_array_equal(arrays[H_ANSWERS], answers)
            made += takes & decoded
            np.testing.assert_array_equal(positions, made)
            advance_left = max(0, advance_left - (other.counters["work"] - before))
            assert numbers[H_ADVANCE_LEFT] == advance_left and numbers[H_SETTLE_LEFT] == 0
            assert own.counters["ready"] == counted + (int((ready & has_grammar).sum()) if decoded else 0)
        assert own.counters["work"] == other.counters["work"]
        assert numbers[H_SPENT] == other.counters["work"] - begun
