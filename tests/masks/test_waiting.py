"""No row waits for its mask longer than the work before it takes, however many newcomers there are."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from mask_sets import byte_vocabulary, tokens_of

from stepmask.grammar.gbnf import gbnf
from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex
from stepmask.masks.batch import Batch
from stepmask.masks.compiled import CompiledGrammar, compile
from stepmask.masks.layout import PENDING, READY
from stepmask.masks.outcome import Late

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 ,"
VOCABULARY = byte_vocabulary(*((x + y).encode() for x, y in itertools.product(LETTERS, repeat=2)))
ON_DEMAND = Limits(max_eager_contexts=0)


def build(number: int) -> CompiledGrammar:
    """Another mask after each token, of hundreds to thousands of units of work."""
    c, d = LETTERS[number % 36], LETTERS[number * 7 % 35 + 1]
    grammar = [
        regex("".join(f"[^{x}]" for x in LETTERS[number % 5 :] + LETTERS)),
        regex(f"(?:[^{c}{d}]{{1,5}}{c}){{2,40}}"),
        gbnf(f'root ::= "(" (root ("," root)*)? ")" | [{min(c, "y")}-z0-9]+ root | "{d}"'),
    ][number % 3]
    return compile(grammar, VOCABULARY, ON_DEMAND, use_cache=False)


GRAMMARS = [build(number) for number in range(12)]


def outstanding(grammar: CompiledGrammar, tokens: list[int]) -> int:
    """Work of the mask after these tokens, nothing of its grammar being there yet."""
    batch = Batch(VOCABULARY, 1, None)
    slot = batch.add(grammar)
    assert batch.accept_draft(slot, tokens) == len(tokens)
    before = batch.counters["work"]
    batch.mask(slot)
    return batch.counters["work"] - before


@pytest.mark.parametrize("budget_us", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("seed", range(3))
def test_no_row_starves(seed: int, budget_us: float) -> None:
    """Rows that always want new masks, at places before and after those that wait; each row takes its turn."""
    rng = np.random.default_rng(seed)
    batch = Batch(VOCABULARY, 8, budget_us, pool_masks=4096)
    numbers = [int(rng.integers(len(GRAMMARS))) for _ in range(8)]
    slots = np.array([batch.add(GRAMMARS[number]) for number in numbers], np.int32)
    texts: list[list[int]] = [[] for _ in slots]
    own = [outstanding(GRAMMARS[number], []) for number in numbers]
    # Of each waiting row: plans so far, and the work of all that waited when it came.
    plans, before = [0] * 8, [sum(own)] * 8
    longest = 0
    for _ in range(400):
        plan = batch.plan(slots)
        for row in range(8):
            plans[row] += 1
            if plan.status[row] == PENDING:
                # Half of the fuel is that of the row that has waited longest.
                assert plans[row] <= math.ceil(before[row] / (batch.plan_fuel - batch.plan_fuel // 2)) + 1
        fresh = [row for row in range(8) if plan.status[row] == READY]
        for row in fresh:
            longest = max(longest, plans[row])
            legal = sorted(tokens_of(batch.mask(int(slots[row]))) - {VOCABULARY.size - 1})
            token = int(rng.choice(legal)) if legal else -1
            if token < 0 or len(texts[row]) > 12 or not batch.advance(slots[row : row + 1], np.array([token]))[0]:
                batch.remove(int(slots[row]))
                numbers[row] = int(rng.integers(len(GRAMMARS)))
                assert batch.add(GRAMMARS[numbers[row]]) == slots[row]
                texts[row] = []
            else:
                texts[row].append(token)
            own[row] = outstanding(GRAMMARS[numbers[row]], texts[row])
        for row in fresh:
            plans[row], before[row] = 0, sum(own)
    assert longest > 2


def test_the_minimum_finishes_every_mask() -> None:
    """One unit of work a plan: rows are done one after the other, those that came first before the others."""
    batch = Batch(VOCABULARY, 6, 0.0)
    slots = np.array([batch.add(GRAMMARS[number]) for number in (2, 5, 0, 1)], np.int32)
    total = sum(outstanding(GRAMMARS[number], []) for number in (2, 5, 0, 1))
    done: list[int] = []
    for number in itertools.count():
        assert number < total + 8
        if number == 3:  # a newcomer in the first place of the next plans
            slots = np.array([batch.add(GRAMMARS[3]), *slots], np.int32)
            total += outstanding(GRAMMARS[3], [])
        plan = batch.plan(slots)
        done += [slot for slot, status in zip(slots.tolist(), plan.status, strict=True) if status == READY]
        slots = np.array([slot for slot in slots.tolist() if slot not in done], np.int32)
        if not len(slots):
            break
    assert sorted(done) == [0, 1, 2, 3, 4]
    assert done[-1] == 4


def test_late_masks_are_finished_and_counted() -> None:
    """Late.FINISH: the same masks as without a budget; what it took beyond is counted, nothing where all were there."""
    batch, free = Batch(VOCABULARY, 4, 1.0), Batch(VOCABULARY, 4, None)
    slots = np.array([batch.add(grammar) for grammar in GRAMMARS[:4]], np.int32)
    assert [free.add(grammar) for grammar in GRAMMARS[:4]] == slots.tolist()
    before = batch.counters["work"]
    plan = batch.plan(slots, Late.FINISH)
    counters = batch.counters
    assert plan.all_ready and 1 <= counters["overruns"] <= 4
    assert counters["over"] >= counters["work"] - before - batch.fuel - 4000
    for slot in slots.tolist():
        assert np.array_equal(batch.mask(slot), free.mask(slot))
    assert batch.plan(slots, Late.FINISH).all_ready
    assert batch.counters["overruns"] == counters["overruns"] and batch.counters["over"] == counters["over"]
    assert free.plan(slots, Late.FINISH).all_ready
    assert free.counters["overruns"] == 0


def test_late_masks_that_do_not_fit_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch(VOCABULARY, 2, 0.0)
    slots = np.array([batch.add(GRAMMARS[0])], np.int32)
    plan = batch.plan(slots)
    monkeypatch.setattr(batch, "plan_within", lambda slots, fuel: plan)
    with pytest.raises(MemoryError, match="pool_masks"):
        batch.plan(slots, Late.FINISH)
