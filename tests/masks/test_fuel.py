"""No step does more counted work than its fuel and a named slack, whatever the rows hold; no budget stops progress."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mask_sets import byte_vocabulary, tokens_of

from stepmask.grammar.choice import choice
from stepmask.grammar.gbnf import gbnf
from stepmask.grammar.json_schema.front_end import json_schema
from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex
from stepmask.masks.arena import ACCEPTED, REFUSED, TOO_DEEP, UNFINISHED
from stepmask.masks.batch import Batch
from stepmask.masks.compiled import CompiledGrammar, compile
from stepmask.masks.layout import B_ADVANCE_TOKEN, LIMIT, PENDING, READY
from stepmask.masks.outcome import PIECE_FUEL
from stepmask.masks.sampling import Sampler, SamplingParameters

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 ,"
LONG = [(a * 60 + b * 60).encode() for a in "ab1(" for b in "ab1)"]
VOCABULARY = byte_vocabulary(*((x + y).encode() for x, y in itertools.product(LETTERS, repeat=2)), *LONG)
END = VOCABULARY.size - 1
ON_DEMAND = Limits(max_eager_contexts=0)
#: A mask of each kind; the last ones have a great many open ways to read a text.
AMBIGUOUS = (
    'root ::= root root | root root root | "a" | "b" root | "(" root ")" | '
    + " | ".join(f'"{c}" r{i}' for i, c in enumerate("acegikmoqsuwy"))
    + "".join(
        f'\nr{i} ::= "{c}" r{(i * 5 + 1) % 13} r{(i + 1) % 13}? | root | "{c}"' for i, c in enumerate("abcdefghijklm")
    )
)
_MEMBERS = {name: {"type": ["integer", "string"], "maxLength": 20} for name in ("id", "name", "note", "tag", "unit")}


def build() -> list[CompiledGrammar]:
    grammars: list[tuple[Any, Limits]] = [
        (regex("".join(f"[^{x}]" for x in LETTERS)), ON_DEMAND),
        (regex('(?:[^",]*[",]){20}'), ON_DEMAND),
        (regex("(?:[^a,]{1,50},){1,400}"), ON_DEMAND),
        (regex(r"(?:\w+ )*\w{1,30}"), ON_DEMAND),
        (regex(".*[ab].{19}"), Limits(max_eager_contexts=0, max_dfa_states=1)),
        (regex("(?:[^x]*[ab][^x]{12}|[^y]*[cd].{13}){2}"), Limits(max_eager_contexts=0, max_dfa_states=1)),
        (json_schema({"type": "object", "properties": _MEMBERS}, property_order="any"), ON_DEMAND),
        (json_schema({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "number"}]}}), ON_DEMAND),
        (choice(["ab" * n + c for n in range(9) for c in LETTERS]), Limits()),
        (gbnf('root ::= "{" (root ("," root)*)? "}" | [a-h0-9 ]+ | "\\"" [^"]* "\\""'), ON_DEMAND),
        (gbnf('root ::= root "+" term | term\nterm ::= [0-9]+ | "(" root ")" | [a-z ]+'), ON_DEMAND),
        (gbnf(AMBIGUOUS), ON_DEMAND),
    ]
    return [compile(grammar, VOCABULARY, limits, use_cache=False) for grammar, limits in grammars]


GRAMMARS = build()


class Stepper:
    """Rows with random grammars, logits of their own, and a batch; tokens depend on (row, position) alone."""

    def __init__(self, seed: int, count: int, budget_us: float | None, **options: Any) -> None:
        rng = np.random.default_rng(seed)
        self.numbers = [int(n) for n in rng.integers(len(GRAMMARS), size=count)]
        self.batch = Batch(VOCABULARY, count, budget_us, fuel_per_us=150, **options)
        self.seed = seed
        self.slots = np.array([self.batch.add(GRAMMARS[n]) for n in self.numbers], np.int32)
        self.sampler = Sampler(VOCABULARY.size, count)
        self.texts: list[list[int]] = [[] for _ in self.slots]
        self.done = np.zeros(count, np.bool_)
        self.unfinished = 0
        self.most = 0

    def logits(self, row: int) -> Any:
        return np.random.default_rng([self.seed, row, len(self.texts[row])]).normal(size=VOCABULARY.size)

    def step(self) -> None:
        """One step of all rows that are not done: its counted work is within the fuel."""
        batch, count = self.batch, len(self.slots)
        before = batch.counters
        slots = np.where(self.done, -1, self.slots).astype(np.int32)
        plan = batch.plan(slots)
        logits = np.array([self.logits(row) for row in range(count)], np.float32)
        ends = batch.end_sets(slots)
        parameters = SamplingParameters.build(
            count, temperature=1.0, top_p=0.95, seed=np.arange(count),
            position=np.array([len(text) for text in self.texts]),
        )  # fmt: skip
        sampled = self.sampler.sample(
            logits, plan.mask_ids, batch.tables, end_allowed=plan.end_allowed, end_sets=ends, parameters=parameters,
            status=plan.status, possible=batch.possible,
        )  # fmt: skip
        tokens = batch.settle(sampled.candidates).tokens if sampled.candidates is not None else sampled.tokens
        limit = plan.status == LIMIT
        taken = ~self.done & (tokens >= 0) & ~limit
        answers = batch.advance(np.where(taken, self.slots, -1).astype(np.int32), tokens)
        spent = sum(batch.counters[name] - before[name] for name in ("work", "looked"))
        self.most = max(self.most, spent - batch.fuel)
        assert spent <= batch.fuel + batch.fuel_slack
        self.done |= limit | (~self.done & (tokens < 0) & (plan.status == READY))
        for row in np.flatnonzero(taken).tolist():
            assert answers[row] in (ACCEPTED, UNFINISHED, TOO_DEEP)
            self.unfinished += int(answers[row] == UNFINISHED)
            self.texts[row].append(int(tokens[row]))
            if tokens[row] == END or answers[row] == TOO_DEEP or len(self.texts[row]) >= 12:
                self.done[row] = True

    def run(self, steps: int) -> list[list[int]]:
        for _ in range(steps):
            if self.done.all():
                break
            self.step()
        assert self.done.all(), "some row makes no progress"
        return self.texts


@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.3, 2.0, 10.0, 40.0, 200.0]), st.sampled_from([1, 4, 24]))
def test_no_step_exceeds_its_fuel_and_no_token_changes(seed: int, budget_us: float, count: int) -> None:
    """Random rows, grammars and budgets, small pools and short stacks: the tokens are those without a budget."""
    rng = np.random.default_rng(seed)
    options = {"pool_masks": int(rng.choice([2 * count + 2, 512])), "stack_bytes": int(rng.choice([1 << 19, 1 << 20]))}
    stepper, free = Stepper(seed, count, budget_us, **options), Stepper(seed, count, None, **options)
    for _ in range(60):
        stepper.step()
    free.run(20)
    for text, whole in zip(stepper.texts, free.texts, strict=True):
        assert text == whole[: len(text)]
    assert budget_us < 200 or count > 4 or all(stepper.texts)


@pytest.mark.parametrize("budget_us", [0.0, 0.4])
@pytest.mark.parametrize("number", range(len(GRAMMARS)))
def test_the_least_budget_makes_progress(number: int, budget_us: float) -> None:
    """Off no step, with no prefetch, in a small pool: every mask comes, and is right."""
    batch, free = Batch(VOCABULARY, 2, budget_us, fuel_per_us=150, pool_masks=4), Batch(VOCABULARY, 2, None)
    slots = np.array([batch.add(GRAMMARS[number]), batch.add(GRAMMARS[(number + 5) % len(GRAMMARS)])], np.int32)
    assert [free.add(GRAMMARS[number]), free.add(GRAMMARS[(number + 5) % len(GRAMMARS)])] == slots.tolist()
    rng = np.random.default_rng(number)
    for _ in range(2):
        masks = [free.mask(int(slot)) for slot in slots]
        waiting = list(range(2))
        for _ in range(100_000):
            plan = batch.plan(slots)
            waiting = [row for row in waiting if plan.status[row] == PENDING]
            if not waiting:
                break
        assert not waiting
        for row, mask in enumerate(masks):
            if batch._of_slot[slots[row]] is not None:
                assert np.array_equal(batch.mask(int(slots[row])), mask)
            legal = sorted(tokens_of(mask) - {END})
            if legal:
                token = np.array([rng.choice(legal)], np.int32)
                assert batch.advance(slots[row : row + 1], token)[0] in (ACCEPTED, UNFINISHED)
                assert free.advance(slots[row : row + 1], token)[0] == ACCEPTED


@pytest.mark.parametrize("number", [3, 6, 7, 9, 10])
def test_finding_what_a_state_stays_on_is_done_in_pieces(number: int) -> None:
    """A state of many kinds of bytes, and what leaves many states, is looked at by and by: no plan does much."""
    rng = np.random.default_rng(number)
    for _ in range(6):
        batch = Batch(VOCABULARY, 1, 0.0, fuel_per_us=150)
        slots = np.array([batch.add(GRAMMARS[number])], np.int32)
        for _ in range(6):
            for _ in range(100_000):
                before = batch.counters["work"]
                plan = batch.plan(slots)
                # A piece of each lane, one of them with what it takes to look the mask up and to keep it.
                assert batch.counters["work"] - before <= 3 * PIECE_FUEL // 2
                if plan.status[0] != PENDING:
                    break
            legal = sorted(tokens_of(batch.mask(int(slots[0]))) - {END})
            if not legal:
                break
            assert batch.accept_draft(int(slots[0]), [int(rng.choice(legal))]) == 1


def test_a_token_may_take_several_steps() -> None:
    """Long tokens in rows of every kind at once: some are unfinished; each row ends where it would have at once."""
    count = 24
    for seed in range(6):
        rng = np.random.default_rng(seed)
        batch, free = (Batch(VOCABULARY, count, b, fuel_per_us=150, max_rollback=4) for b in (0.5, None))
        numbers = rng.integers(len(GRAMMARS), size=count)
        slots = np.array([batch.add(GRAMMARS[n]) for n in numbers], np.int32)
        assert [free.add(GRAMMARS[n]) for n in numbers] == slots.tolist()
        unfinished = 0
        for _ in range(4):
            tokens = np.full(count, END, np.int32)
            for row, slot in enumerate(slots.tolist()):
                legal = sorted(tokens_of(free.mask(slot)) - {END}, key=lambda token: -len(VOCABULARY.token(token)))
                tokens[row] = legal[0] if legal else END
                if rng.random() < 0.2:
                    tokens[row] = int(rng.integers(VOCABULARY.size))  # as a rule not legal
            expected = free.advance(slots, tokens).copy()
            answers = batch.advance(slots, tokens).copy()
            late = answers == UNFINISHED
            unfinished += int(late.sum())
            np.testing.assert_array_equal(answers[~late], expected[~late])
            for _ in range(20_000):
                plan = batch.plan(slots)
                if not (batch._block.arrays[B_ADVANCE_TOKEN][slots] >= 0).any():
                    break
                middle = batch._block.arrays[B_ADVANCE_TOKEN][slots] >= 0
                assert (plan.status[middle] == PENDING).all()
            refused = late & (expected == REFUSED)
            assert (plan.status[refused] == LIMIT).all() and (plan.status[late & ~refused] != LIMIT).all()
            for row in np.flatnonzero(refused | (expected == REFUSED)).tolist():
                batch.reset(int(slots[row]))
                free.reset(int(slots[row]))
            for slot in slots.tolist():
                assert batch.position(slot) == free.position(slot)
                assert np.array_equal(batch.mask(slot), free.mask(slot))
        assert unfinished > 5


def test_what_is_asked_of_a_row_in_the_middle_of_a_token() -> None:
    """Each use of one sequence sees it after its token; removing it or putting it back forgets the token."""
    for use in ("mask", "fork", "rollback", "allows", "remove", "reset", "position", "accept"):
        batch, free = (Batch(VOCABULARY, 24, b, fuel_per_us=150, max_rollback=4) for b in (0.5, None))
        slots = np.array([batch.add(GRAMMARS[4 + 5 * (row % 2)]) for row in range(20)], np.int32)
        assert [free.add(GRAMMARS[4 + 5 * (row % 2)]) for row in range(20)] == slots.tolist()
        token = next(t for t in range(VOCABULARY.size) if VOCABULARY.token(t) == b"a" * 120)
        tokens = np.full(20, token, np.int32)
        late = np.flatnonzero(batch.advance(slots, tokens) == UNFINISHED).tolist()
        assert free.advance(slots, tokens).all() and len(late) > 8
        for row in late:
            slot = int(slots[row])
            if use == "remove":
                batch.remove(slot)
                free.remove(slot)
                assert batch.add(GRAMMARS[0]) == free.add(GRAMMARS[0]) == slot
            elif use == "reset":
                batch.reset(slot)
                free.reset(slot)
            elif use == "rollback":
                batch.rollback(slot, 1)
                free.rollback(slot, 1)
            elif use == "fork" and batch.free_slots:
                assert batch.fork(slot) == free.fork(slot)
            elif use == "allows":
                assert batch.allows(slot, token) == free.allows(slot, token)
            elif use == "accept":
                assert batch.accept_bytes(slot, b"b") == free.accept_bytes(slot, b"b")
            elif use == "position":
                assert batch.position(slot) == 1
            assert np.array_equal(batch.mask(slot), free.mask(slot))


# ---------------------------------------------------------------------- who is served


def outstanding(grammar: CompiledGrammar, tokens: list[int]) -> int:
    """Work of the mask after these tokens, nothing of its grammar being there yet."""
    batch = Batch(VOCABULARY, 1, None)
    slot = batch.add(grammar)
    assert batch.accept_draft(slot, tokens) == len(tokens)
    before = batch.counters["work"]
    batch.mask(slot)
    return batch.counters["work"] - before


CHEAP = [
    compile(regex(f"(?:{a}{b}|{b}[0-9]){{2,9}}"), VOCABULARY, ON_DEMAND, use_cache=False)
    for a, b in itertools.islice(itertools.combinations(LETTERS[:20], 2), 40)
]


def test_cheap_rows_do_not_wait_for_hard_ones() -> None:
    """Half of the fuel is theirs: rows that need little are served as if the hard ones were not there."""
    batch = Batch(VOCABULARY, 48, 4.0, fuel_per_us=150)
    hard = [batch.add(GRAMMARS[11])]
    for _ in range(4):
        assert batch.plan(np.array(hard, np.int32)).status[0] == PENDING
    cheap = [batch.add(grammar) for grammar in CHEAP]
    slots = np.array([*hard, *cheap], np.int32)
    work = sum(outstanding(grammar, []) for grammar in CHEAP)
    half = batch.plan_fuel // 2
    for plans in itertools.count(1):
        plan = batch.plan(slots)
        if (plan.status[len(hard) :] == READY).all():
            break
        assert plans <= math.ceil(2 * work / half) + 1
    assert plan.status[0] == PENDING


def served(shares: dict[int, float], steps: int) -> list[int]:
    """How many masks each of two tenants got, whose rows always want new ones of the same kind: of 12 rows and of 2."""
    batch = Batch(VOCABULARY, 14, 8.0, fuel_per_us=150, pool_masks=4096)
    numbers = itertools.count()

    def fresh() -> CompiledGrammar:
        a, b, c = (LETTERS[next(numbers) * k % 36] for k in (1, 5, 7))
        return compile(regex(f"[^{a}{b}]{{2}}[^{c}]{{3}}{a}{next(numbers)}"), VOCABULARY, ON_DEMAND, use_cache=False)

    slots = np.array([batch.add(fresh()) for _ in range(14)], np.int32)
    counts = [0, 0]
    for _ in range(steps):
        for row in range(14):
            batch.shares[slots[row]] = shares[int(row >= 12)]
        plan = batch.plan(slots)
        for row in np.flatnonzero(plan.status == READY).tolist():
            counts[int(row >= 12)] += 1
            batch.remove(int(slots[row]))
            slots[row] = batch.add(fresh())
    return counts


def test_shares_keep_a_tenant_of_many_rows_from_the_others_fuel() -> None:
    """With equal shares a tenant gets as its rows are many; with each tenant's divided among its rows, the same."""
    many, few = served({0: 1.0, 1: 1.0}, 150)
    assert many > 4 * few > 0
    many, few = served({0: 1 / 12, 1: 1 / 2}, 150)
    assert few > 0.6 * many > 0


def test_a_small_share_is_served_at_last() -> None:
    """However small its share, and however many others always come."""
    batch = Batch(VOCABULARY, 8, 4.0, fuel_per_us=150, pool_masks=4096)
    slots = np.array([batch.add(GRAMMARS[0]) for _ in range(8)], np.int32)
    batch.shares[slots[0]] = 0.02
    rng = np.random.default_rng(1)
    for plans in itertools.count():
        assert plans < 3000
        plan = batch.plan(slots)
        if plan.status[0] == READY:
            break
        for row in np.flatnonzero(plan.status == READY).tolist():
            batch.remove(int(slots[row]))
            slots[row] = batch.add(GRAMMARS[int(rng.integers(4))])


def test_the_first_recursive_grammar_disturbs_nobody() -> None:
    """Its memory is there from the beginning: what others have begun goes on, with no more work than without it."""

    def works(grammar: CompiledGrammar, comes: bool) -> int:
        batch = Batch(VOCABULARY, 2, 0.0)
        slots = np.array([batch.add(grammar)], np.int32)
        assert not batch.plan(slots).all_ready
        begun = batch.counters["work"]
        if comes:
            batch.remove(batch.add(GRAMMARS[9]))
        begun -= batch.counters["work"]
        while not batch.plan(slots).all_ready:
            pass
        assert tokens_of(batch.mask(int(slots[0]))) == tokens_of(grammar.matcher().mask())
        return batch.counters["work"] + begun

    for grammar in GRAMMARS[4:6]:
        assert works(grammar, True) == works(grammar, False)
