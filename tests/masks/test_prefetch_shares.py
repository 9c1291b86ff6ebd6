"""What is made ahead is shared: no row, and no batch, has more than its part while others have something to do."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mask_sets import byte_vocabulary

from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex
from stepmask.masks.batch import Batch, Plan
from stepmask.masks.compiled import CompiledGrammar, compile
from stepmask.masks.layout import B_JOB, J_KEY_LOW, J_SLOT, J_TAKEN, PENDING, READY
from stepmask.masks.prefetch import SLICE_FUEL, PrefetchGroup
from stepmask.masks.prefetch_numba import FIRST_TURN, NEXT_TURN

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 ,"
VOCABULARY = byte_vocabulary(*("".join(word).encode() for word in itertools.product(LETTERS[:22], repeat=3)))
ON_DEMAND = Limits(max_eager_contexts=0)
#: A slice ends at most the beginning of one walk later.
LARGEST_SLICE = 2 * SLICE_FUEL
#: What the mask of one of the states below takes at least: more than a turn.
MASK_FUEL = 2 * FIRST_TURN


def build(pattern: str) -> CompiledGrammar:
    return compile(regex(pattern), VOCABULARY, ON_DEMAND, use_cache=False)


def fork_in_four(number: int) -> CompiledGrammar:
    """Four legal tokens, each of which leads to a state whose mask is found by walking the vocabulary."""
    letters = [LETTERS[(5 * number + 3 * i) % 26] for i in range(4)]
    return build("|".join(f"(?:\\x0{1 + i}(?:[^{x}]{{1,5}}{x}){{2,40}})" for i, x in enumerate(letters)))


FORKS = [fork_in_four(number) for number in range(6)]
#: Masks that take many plans without a budget: a walk of the vocabulary each.
HARD = [build(f"(?:[^{x}]{{1,{2 + i}}}{x}){{2,40}}") for i, x in enumerate("abcdefgh")]


def planned(batch: Batch, slots: list[int], ready: list[int]) -> Plan:
    """A plan in which the rows of `ready` have their masks."""
    for slot in ready:
        batch.mask(slot)
    plan = batch.plan(np.array(slots, np.int32))
    assert all(plan.status[slots.index(slot)] == READY for slot in ready)
    return plan


def wait(batch: Batch) -> None:
    """Until the run has come to its end by itself, so that it does as much each time."""
    assert batch.prefetcher is not None
    thread = batch.prefetcher._group.thread
    assert thread._done.acquire(timeout=60)
    thread._done.release()
    batch.prefetch_stop()


def run(batch: Batch, fuel: int | None) -> None:
    batch.prefetch_start(fuel)
    wait(batch)


def open_batch(slots: int, budget_us: float | None = 0.0) -> Batch:
    batch = Batch(VOCABULARY, slots, budget_us, pool_masks=4096)
    batch.prefetch_start()
    batch.prefetch_stop()
    return batch


@settings(max_examples=25)
@given(st.lists(st.sampled_from([0.25, 0.5, 1.0, 2.0]), min_size=2, max_size=6), st.integers(1, 100 * FIRST_TURN))
def test_rows_have_work_done_ahead_in_proportion_to_their_shares(shares: list[float], fuel: int) -> None:
    batch = open_batch(len(shares))
    slots = [batch.add(grammar) for grammar in FORKS[: len(shares)]]
    batch.shares[slots] = shares
    planned(batch, slots, slots)
    run(batch, fuel)
    assert batch.prefetcher is not None
    spent, counters = batch.prefetcher.spent, batch.prefetcher.counters
    assert spent.sum() == counters["work"] and counters["waited"] == 0
    if counters["tried"] + counters["aside"] and counters["tried"] < 4:  # no row has done all of its tokens
        # A turn, which a row begins when no other has been served less, is at most the next try.
        most = NEXT_TURN * FIRST_TURN + LARGEST_SLICE
        for a, b in itertools.permutations(slots, 2):
            assert spent[a] / batch.shares[a] <= (spent[b] + most) / batch.shares[b] + most / batch.shares[a]
    assert counters["work"] <= fuel + LARGEST_SLICE or counters["tried"] == 4 * len(slots)


def tenants(victims: int, adversaries: int) -> tuple[Batch, list[int], list[int]]:
    """Rows that have their masks, and rows that want hard ones; the rows of each have one share together."""
    batch = open_batch(victims + adversaries)
    good = [batch.add(grammar) for grammar in FORKS[:victims]]
    bad = [batch.add(HARD[number % len(HARD)]) for number in range(adversaries)]
    for rows in (good, bad):
        batch.shares[rows] = 1 / max(1, len(rows))
    return batch, good, bad


def test_hard_masks_that_others_wait_for_leave_half_to_a_tenants_next_tokens() -> None:
    """In counted work: as many masks are made ahead as for the tenant alone, once the fuel is twice what those take."""
    alone, good, _ = tenants(2, 0)
    planned(alone, good, good)
    run(alone, None)
    assert alone.prefetcher is not None
    wanted = int(alone.prefetcher.spent.sum())
    assert alone.prefetcher.counters["ahead"] == 8 and wanted > 8 * MASK_FUEL

    batch, good, bad = tenants(2, 8)
    plan = planned(batch, [*bad, *good], good)
    assert (plan.status == PENDING).sum() >= 4
    run(batch, 2 * wanted + 2 * LARGEST_SLICE)
    assert batch.prefetcher is not None
    counters = batch.prefetcher.counters
    assert counters["ahead"] == 8 and batch.prefetcher.spent[good].sum() <= 1.05 * wanted
    # The others have the other half.
    assert abs(counters["waited"] - counters["work"] / 2) <= FIRST_TURN * NEXT_TURN
    # The masks are there in the next step, whichever of the tokens is chosen.
    tokens = np.array([1, 3], np.int32)
    rows = np.array(good, np.int32)
    batch.advance(rows, tokens)
    work = batch.counters["work"]
    assert batch.plan(rows).all_ready and batch.counters["work"] == work
    assert batch.prefetcher.counters["hits"] == 2


def test_next_tokens_leave_half_to_the_rows_that_wait() -> None:
    """However many rows have tokens to follow."""
    batch, good, bad = tenants(6, 1)
    batch.shares[:] = 1.0
    planned(batch, [*good, *bad], good)
    run(batch, 8 * MASK_FUEL)
    assert batch.prefetcher is not None
    counters = batch.prefetcher.counters
    assert counters["finished"] == 1 or counters["waited"] >= counters["work"] / 2 - FIRST_TURN
    assert batch.plan(np.array(bad, np.int32)).all_ready == (counters["finished"] == 1)


def test_runs_of_equal_fuel_do_the_same() -> None:
    found = []
    for _ in range(2):
        batch, good, bad = tenants(3, 5)
        for fuel in (3000, 120_000, 17_000):
            planned(batch, [*good, *bad], good)
            run(batch, fuel)
        assert batch.prefetcher is not None
        counters = batch.prefetcher.counters
        for name in ("runs", "waits", "wait_ns", "longest_wait_ns"):  # of the clock
            del counters[name]
        found.append((counters, batch.prefetcher.spent.tolist()))
    assert found[0] == found[1]


def test_a_row_that_had_nothing_to_do_has_saved_nothing_up() -> None:
    """It has as much as the others from then on, not all they have had before."""
    batch = open_batch(4)
    first, second = batch.add(FORKS[0]), batch.add(FORKS[1])
    planned(batch, [first], [first])
    run(batch, None)
    assert batch.prefetcher is not None
    before = int(batch.prefetcher.spent[first])
    batch.prefetcher.forget(first)
    third = batch.add(FORKS[2])
    for slot in (second, third):
        planned(batch, [second, third], [slot])
    run(batch, 2 * before)
    spent = batch.prefetcher.spent
    assert abs(spent[second] - spent[third]) <= NEXT_TURN * FIRST_TURN + LARGEST_SLICE


def test_what_rows_wait_for_is_not_given_up_for_the_next_tokens_of_others() -> None:
    """Unfinished masks of the step's own lanes go on from where they were."""
    batch, good, bad = tenants(2, 2)
    slots = [*good, *bad]
    taken, followed = 0, 0
    for _ in range(100):
        plan = planned(batch, slots, good)
        if not (plan.status == PENDING).any():
            break
        job = batch._block.arrays[B_JOB]
        before = job[[J_KEY_LOW, J_SLOT, J_TAKEN]].tolist()
        run(batch, 700)
        after = batch._block.arrays[B_JOB][[J_KEY_LOW, J_SLOT, J_TAKEN]].tolist()
        if after[1] >= 0 and before[1] == after[1]:
            assert before[0] == after[0] and before[2] <= after[2]
            taken += 1
        assert batch.prefetcher is not None
        followed = int(batch.prefetcher.spent.sum())
    assert taken > 2 and followed > 2 * SLICE_FUEL
    free = Batch(VOCABULARY, 4, None)
    for slot, grammar in zip(bad, HARD, strict=False):
        assert np.array_equal(batch.mask(slot), free.mask(free.add(grammar)))


@pytest.mark.parametrize("weights", [(1.0, 1.0), (3.0, 1.0), (1.0, 0.0), (0.5, 2.0)])
def test_batches_have_parts_by_their_weights(weights: tuple[float, float]) -> None:
    batches = [Batch(VOCABULARY, 6, 0.0, pool_masks=4096) for _ in weights]
    group = PrefetchGroup(batches)
    for batch in batches:
        slots = [batch.add(grammar) for grammar in FORKS]
        planned(batch, slots, slots)
    group.start(weights, 20 * MASK_FUEL)
    assert group.running and all(batch.prefetcher is not None and batch.prefetcher.running for batch in batches)
    wait(batches[0])
    assert not group.running
    work = [batch.prefetcher.counters["work"] for batch in batches if batch.prefetcher is not None]
    most = NEXT_TURN * FIRST_TURN + LARGEST_SLICE
    assert abs(work[0] * weights[1] - work[1] * weights[0]) <= most * sum(weights)
    assert 20 * MASK_FUEL <= sum(work) <= 20 * MASK_FUEL + LARGEST_SLICE
    # What one does not need, as it has nothing left to do, goes to the other.
    group.start((1.0, 1.0))
    wait(batches[1])
    assert [batch.prefetcher.counters["ahead"] for batch in batches if batch.prefetcher is not None] == [24, 24]


def test_any_use_of_one_batch_takes_back_all() -> None:
    batches = [Batch(VOCABULARY, 2, 0.0, pool_masks=4096) for _ in range(2)]
    group = PrefetchGroup(batches)
    slots = [[batch.add(HARD[0]), batch.add(HARD[1])] for batch in batches]
    for batch, own in zip(batches, slots, strict=True):
        batch.plan(np.array(own, np.int32))
    group.start((1.0, 1.0))
    assert batches[0].position(slots[0][0]) == 0
    assert not group.running
    with pytest.raises(ValueError, match="one thread"):
        PrefetchGroup(batches)
    assert batches[0].prefetcher is not None and batches[1].prefetcher is not None
    batches[0].prefetcher.paused = batches[1].prefetcher.paused = True
    group.start((1.0, 1.0))
    assert not group.running
    batches[0].prefetcher.close()
    batches[1].prefetcher.paused = False
    group.start((1.0, 1.0))
    assert not group.running


def test_a_place_that_is_come_to_again_is_looked_at_again() -> None:
    """After going back, and in a copy: what was followed from the place before is no longer what comes next."""
    batch = open_batch(2)
    slot = batch.add(FORKS[0])
    row = np.array([slot], np.int32)
    planned(batch, [slot], [slot])
    run(batch, None)
    assert batch.prefetcher is not None
    assert batch.prefetcher.counters["tried"] == 4
    run(batch, None)
    assert batch.prefetcher.counters["tried"] == 4, "each is followed once"
    batch.advance(row, np.array([1], np.int32))
    batch.rollback(slot, 1)
    planned(batch, [slot], [slot])
    run(batch, None)
    assert batch.prefetcher.counters["tried"] == 8
    other = batch.fork(slot)
    planned(batch, [other], [other])
    run(batch, None)
    assert batch.prefetcher.counters["tried"] == 12
