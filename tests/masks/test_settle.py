"""Rows without masks: a token that was settled is the one that the whole mask gives, and the work is bounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sampling_reference as reference
from hypothesis import given
from hypothesis import strategies as st
from mask_sets import byte_vocabulary, tokens_of
from numpy.typing import NDArray
from settle_reference import CLOSING, LEGAL, REFUSED, settle_row

from stepmask.grammar.choice import choice
from stepmask.grammar.expression import Grammar
from stepmask.grammar.gbnf import gbnf
from stepmask.grammar.json_schema.front_end import json_schema
from stepmask.grammar.lark import lark
from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex
from stepmask.masks.batch import Batch, Plan
from stepmask.masks.compiled import compile
from stepmask.masks.layout import (
    B_ARENA_USED,
    B_CONFIGS,
    B_OLDEST,
    B_POSITION,
    DEFERRED,
    G_LAZY_COUNT,
    G_LAZY_UNUSED_COUNT,
    LIMIT,
    PENDING,
    READY,
    VERIFIED,
)
from stepmask.masks.outcome import Outcome
from stepmask.masks.path import CONFIG_COST
from stepmask.masks.sampling import Sampler, SamplingParameters
from stepmask.masks.settle import CHECK_COST, DECISION_COST
from stepmask.masks.step import ROW_COST
from stepmask.masks.tables import KIND_EMPTY, KIND_SHIFT
from stepmask.masks.vocabulary import Vocabulary

WORDS = [a + b for a in 'abcdefgh0123 ,"' for b in "abcdef01 ,:}"] + ["abc", "true", "}}", "],", "\n  ", "éa", "日"]
VOCABULARY = byte_vocabulary(*(word.encode() for word in WORDS))
#: The same tokens, some special ones, two end tokens, holes, and a model that is wider.
SPECIAL = Vocabulary.from_bytes(
    [*(VOCABULARY.token(i) for i in range(VOCABULARY.size - 1)), b"", b"", b"<s>", b"", b""],
    eos=[VOCABULARY.size - 1, VOCABULARY.size],
    special=[VOCABULARY.size - 1, VOCABULARY.size, VOCABULARY.size + 1],
    width=VOCABULARY.size + 40,
    names={"<s>": VOCABULARY.size + 1, "<end>": VOCABULARY.size},
)
ON_DEMAND = Limits(max_eager_contexts=0)
EMPTY = KIND_EMPTY << KIND_SHIFT
#: What a sequence is, in the batch's block.
SEQUENCE_FIELDS = (B_CONFIGS, B_POSITION, B_OLDEST, B_ARENA_USED)


def grammars(vocabulary: Vocabulary) -> list[Any]:
    """One of each way to step: plain, counters, lazy, recursive, special tokens."""

    def build(grammar: Grammar, limits: Limits = ON_DEMAND) -> Any:
        return compile(grammar, vocabulary, limits, use_cache=False)

    found = [
        build(regex("[^a,]*(?:,[^b]*)?")),
        build(regex("(?:[^a,]{1,5},){1,40}")),
        build(regex("(?:ab|bc|é|[0-9]{2}|日)*")),
        build(regex(".*[ab].{9}"), Limits(max_dfa_states=1)),
        build(gbnf('root ::= "{" (root ("," root)*)? "}" | [a-h0-9 ]+ | "\\"" [^"]* "\\""')),
    ]
    members = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": [True, "ab"]}, "1": {}}}
    found.append(build(json_schema(members, property_order="any")))
    if vocabulary.special_names:
        found.append(build(lark("start: (/[a-d ]+/ <s>)* (<end> | /[0-9]+/)")))
    return found


def waiting(plan: Plan) -> Plan:
    """The plan of a step in which no constrained row's mask was there in time."""
    slots = plan.slots
    status = np.where((slots >= 0) & (plan.status == READY), PENDING, plan.status).astype(np.uint8)
    mask_ids = np.where(status == PENDING, EMPTY, plan.mask_ids).astype(np.int32)
    return Plan(slots, mask_ids, np.where(status == PENDING, np.uint32(0), plan.end_allowed), status)


class Step:
    """One step of a batch: the tokens under the masks, and what settling makes of the same rows without them."""

    def __init__(self, batch: Batch, slots: NDArray[np.int32], logits: NDArray[Any], parameters: SamplingParameters):
        self.batch, self.slots, self.logits, self.parameters = batch, slots, logits, parameters
        self.vocabulary = min(batch.vocabulary.size, logits.shape[1])
        self.sampler = Sampler(self.vocabulary, len(slots))
        self.ends = batch.end_sets(slots)
        self.plan = batch.plan(slots)
        assert self.plan.all_ready
        self.expected = self._sample(self.plan).tokens

    def _sample(self, plan: Plan) -> Any:
        return self.sampler.sample(
            self.logits,
            plan.mask_ids,
            self.batch.tables,
            end_allowed=plan.end_allowed,
            end_sets=self.ends,
            parameters=self.parameters,
            status=plan.status,
            possible=self.batch.possible,
        )

    def settle(self, fuel: int | None = None, most: int = 16) -> Outcome:
        """What is settled with so much fuel, checked against the masks."""
        plan = waiting(self.plan)
        self.sampler = Sampler(self.vocabulary, len(self.slots), most)
        self.tokens, self.candidates = self._sample(plan)
        self.batch.settler.take(plan, self.batch.settle_fuel if fuel is None else fuel)
        outcome = self.batch.settle(self.candidates)
        assert outcome.tokens is self.tokens
        verified = outcome.status == VERIFIED
        np.testing.assert_array_equal(outcome.tokens[verified], self.expected[verified])
        assert (verified | (outcome.status == DEFERRED))[plan.status == PENDING].all()
        assert (outcome.tokens[outcome.deferred] == -1).all()
        ready = outcome.status == READY
        np.testing.assert_array_equal(outcome.tokens[ready], self.expected[ready])
        return outcome

    def reference(self, row: int, min_tokens: int = 0, most: int = 16) -> int | None:
        """The row settled in plain Python, its tokens looked up in its mask."""
        batch, slot, parameters = self.batch, int(self.slots[row]), self.parameters
        if parameters.want_logprob[row]:
            return None
        legal = tokens_of(batch.mask(slot))
        ends = set(self.ends.tokens[self.ends.start[row] : self.ends.start[row + 1]].tolist())
        complete = batch.is_complete(slot) and not batch.is_finished(slot)
        state = CLOSING if complete else REFUSED
        every = complete and batch.position(slot) >= min_tokens
        # Those that the grammar names are legal beside others.
        named: set[int] = set() if every or self.plan.mask_ids[row] == EMPTY else ends & legal
        possible = np.zeros(self.vocabulary, np.bool_)
        possible[[token for token in tokens_of(batch.possible) | ends if token < self.vocabulary]] = True

        def look_up(token: int) -> str:
            if token in ends:
                return LEGAL if every or token in named else state
            return LEGAL if token in legal else REFUSED

        found = reference.candidates_of(
            self.logits[row],
            possible,
            float(parameters.temperature[row]),
            int(parameters.seed[row]),
            int(parameters.position[row]),
            most,
        )
        return settle_row(
            found,
            int(possible.sum()),
            look_up,
            float(parameters.temperature[row]),
            int(parameters.top_k[row]),
            float(parameters.top_p[row]),
            float(parameters.min_p[row]),
        )


def random_logits(rng: np.random.Generator, rows: int, width: int, style: str) -> NDArray[Any]:
    logits = (rng.normal(size=(rows, width)) * rng.choice([0.5, 2.0, 6.0], (rows, 1))).astype(np.float32)
    if style == "ties":
        logits = np.round(logits)
    if style == "equal":
        logits[:] = rng.integers(0, 2, (rows, width))
    if style == "far":  # a few tokens far above all others
        logits[:, rng.integers(0, width, 3)] += rng.choice([20, 60, 1e4])
    if style == "gaps":
        logits[rng.random(logits.shape) < 0.6] = -np.inf
        logits[rng.random(logits.shape) < 0.02] = np.nan
    if style == "infinite":
        logits[rng.random(logits.shape) < 0.02] = np.inf
    return (logits.view(np.uint32) >> 16).astype(np.uint16) if rng.random() < 0.5 else logits


STYLES = ["smooth", "ties", "equal", "far", "gaps", "infinite"]


def random_parameters(rng: np.random.Generator, rows: int) -> SamplingParameters:
    return SamplingParameters.build(
        rows,
        temperature=rng.choice([0, 0.3, 1, 1, 1.7], rows),
        top_k=rng.choice([0, 0, 1, 2, 5, 40], rows),
        top_p=rng.choice([1, 1, 0.05, 0.5, 0.9, 0.99], rows),
        min_p=rng.choice([0, 0, 0.001, 0.1, 0.7], rows),
        seed=rng.integers(0, 2**63, rows),
        position=rng.integers(0, 1000, rows),
        want_logprob=rng.random(rows) < 0.05,
    )


def walk_to(batch: Batch, slot: int, rng: np.random.Generator, steps: int) -> None:
    """Some legal tokens, of text."""
    for _ in range(steps):
        legal = [t for t in tokens_of(batch.mask(slot)) if not batch.vocabulary.special[t]]
        if not legal or batch.is_finished(slot):
            return
        assert batch.advance(np.array([slot], np.int32), np.array([rng.choice(legal)], np.int32))[0]


PLAIN, NAMED = grammars(VOCABULARY), grammars(SPECIAL)


@given(st.integers(0, 2**32), st.sampled_from(STYLES), st.booleans(), st.sampled_from([1, 3, 16, 64]))
def test_settled_is_sampled_under_the_mask(seed: int, style: str, special: bool, most: int) -> None:
    """And as much is settled as the rules in plain Python settle."""
    rng = np.random.default_rng(seed)
    vocabulary, compiled = (SPECIAL, NAMED) if special else (VOCABULARY, PLAIN)
    batch = Batch(vocabulary, 10, None, pool_masks=20)
    minimum = rng.choice([0, 0, 1, 4], 8)
    slots = []
    for i in range(8):
        ends = [*(vocabulary.eos or ()), int(rng.integers(vocabulary.size))][rng.integers(2) :]
        slots.append(batch.add(compiled[rng.integers(len(compiled))], eos=ends, min_tokens=int(minimum[i])))
        walk_to(batch, slots[-1], rng, int(rng.integers(0, 4)))
    rows = np.array([*slots, -1], np.int32)
    width = vocabulary.width + int(rng.integers(-3, 4))
    step = Step(batch, rows, random_logits(rng, 9, width, style), random_parameters(rng, 9))
    outcome = step.settle(most=most)
    assert outcome.status[-1] == READY
    for row in range(8):
        if outcome.status[row] in (VERIFIED, DEFERRED):
            token = step.reference(row, int(minimum[row]), most)
            assert outcome.tokens[row] == (-1 if token is None else token)


@pytest.mark.parametrize("style", STYLES)
def test_no_wrong_token_in_many_cases(style: str) -> None:
    """Random sets of legal tokens of every density; much is settled even so, least where most logits are equal."""
    rng = np.random.default_rng(STYLES.index(style))
    batch = Batch(VOCABULARY, 48, None)
    slots = []
    for density in np.linspace(0.005, 0.995, 48):
        tokens = [bytes([b]) for b in range(1, 256) if rng.random() < density] or [b"a"]
        slots.append(batch.add(compile(choice(tokens), VOCABULARY, ON_DEMAND, use_cache=False)))
    rows = np.array(slots, np.int32)
    settled, total = 0, 0
    for _ in range(120):
        logits = random_logits(rng, 48, VOCABULARY.size, style)
        step = Step(batch, rows, logits, random_parameters(rng, 48))
        outcome = step.settle()
        settled += int((outcome.status == VERIFIED).sum())
        total += 48
        row = int(rng.integers(48))
        token = step.reference(row)
        assert outcome.tokens[row] == (-1 if token is None else token)
    assert settled > 0.2 * total


def test_likely_tokens_are_settled() -> None:
    """Where the model agrees with the grammar nearly every row is, whatever the truncation."""
    rng = np.random.default_rng(3)
    batch = Batch(VOCABULARY, 40, None)
    rows = np.array([batch.add(PLAIN[i % len(PLAIN)]) for i in range(40)], np.int32)
    settled = 0
    for _ in range(20):
        logits = (rng.normal(size=(40, VOCABULARY.size)) * 2).astype(np.float32)
        for row, slot in enumerate(rows):
            legal = sorted(tokens_of(batch.mask(int(slot))))
            logits[row, rng.choice(legal, 3)] += 12
        parameters = random_parameters(rng, 40)
        parameters.want_logprob[:] = 0
        settled += int((Step(batch, rows, logits, parameters).settle().status == VERIFIED).sum())
    assert settled > 0.9 * 20 * 40


@pytest.mark.parametrize("fuel", [0, 1, 30, 100, 500, 5000])
def test_work_is_bounded(fuel: int) -> None:
    """Beyond its fuel settling does one token walk at most, and what it settles is right."""
    rng = np.random.default_rng(fuel)
    batch = Batch(SPECIAL, 24, None)
    rows = np.array([batch.add(NAMED[i % len(NAMED)]) for i in range(24)], np.int32)
    for slot in rows:
        walk_to(batch, int(slot), rng, 2)
    longest = CONFIG_COST * (1 + max(len(SPECIAL.token(t)) for t in range(SPECIAL.size)))
    lazy_and_graphs = 400  # a byte of these visits more than one configuration
    verified = 0
    for _ in range(120):
        parameters = random_parameters(rng, 24)
        step = Step(batch, rows, random_logits(rng, 24, SPECIAL.width, "smooth"), parameters)
        before = batch.counters
        outcome = step.settle(fuel)
        after = batch.counters
        settled = after["settled"] - before["settled"]
        assert settled <= max(fuel, 1) + longest + lazy_and_graphs + CHECK_COST + DECISION_COST
        assert settled >= CHECK_COST * (after["checks"] - before["checks"])
        for name, status in (("ready", READY), ("verified", VERIFIED), ("deferred", DEFERRED)):
            assert after[name] - before[name] == (outcome.status == status).sum()
        verified += after["verified"] - before["verified"]
    assert verified > (0 if fuel < 30 else 10)


def test_nothing_changes_by_looking_up() -> None:
    """Not the sequence, nor its history, nor the state sets of a lazy grammar."""
    batch = Batch(VOCABULARY, 6, None, max_rollback=3)
    rng = np.random.default_rng(1)
    rows = np.array([batch.add(grammar) for grammar in PLAIN], np.int32)
    for slot in rows:
        walk_to(batch, int(slot), rng, 3)
    masks = [batch.mask(int(slot)) for slot in rows]
    arrays = {name: array.copy() for name, array in batch._block.arrays.items() if name in SEQUENCE_FIELDS}
    sets = [resident.block.header.copy() for resident in batch._residents.values()]
    n = len(rows)
    step = Step(batch, rows, random_logits(rng, n, VOCABULARY.size, "smooth"), SamplingParameters.build(n))
    for _ in range(20):
        step.settle()
    for name, array in arrays.items():
        np.testing.assert_array_equal(batch._block.arrays[name], array)
    for resident, header in zip(batch._residents.values(), sets, strict=True):
        counts = [G_LAZY_COUNT, G_LAZY_UNUSED_COUNT]
        np.testing.assert_array_equal(resident.block.header[counts], header[counts])
    for slot, mask in zip(rows, masks, strict=True):
        assert np.array_equal(batch.mask(int(slot)), mask)


def test_rows_of_another_plan_are_refused() -> None:
    batch = Batch(VOCABULARY, 3, None)
    rows = np.array([batch.add(PLAIN[0]) for _ in range(3)], np.int32)
    step = Step(batch, rows, np.zeros((3, VOCABULARY.size), np.float32), SamplingParameters.build(3))
    step.settle()
    batch.plan(rows[:2])
    with pytest.raises(ValueError, match="candidates of 3 rows for a plan of 2"):
        batch.settle(step.candidates)


def test_rows_past_a_limit_stay_so() -> None:
    batch = Batch(VOCABULARY, 2, None)
    rows = np.array([batch.add(PLAIN[0]) for _ in range(2)], np.int32)
    step = Step(batch, rows, np.zeros((2, VOCABULARY.size), np.float32), SamplingParameters.build(2))
    step.plan.status[1] = LIMIT
    step.plan.mask_ids[1] = EMPTY
    assert step.settle().status.tolist() == [VERIFIED, LIMIT]


def test_the_budget_is_shared() -> None:
    batch = Batch(VOCABULARY, 2, 100.0)
    assert batch.plan_fuel + batch.settle_fuel + batch.advance_fuel + batch.rows_fuel == batch.fuel == 15_000
    assert (batch.settle_fuel, batch.advance_fuel, batch.rows_fuel) == (3750, 1875, 2 * ROW_COST)
    batch = Batch(VOCABULARY, 2, 0)
    assert (batch.plan_fuel, batch.settle_fuel, batch.advance_fuel, batch.rows_fuel) == (1, 0, 0, 0)
