"""Batches: clear errors, masks that stay exact while the pool is flushed, and work within the budget."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from mask_sets import brute_mask, byte_vocabulary, tokens_of
from oracles import ReferenceMatcher

from stepmask.grammar.gbnf import gbnf
from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex
from stepmask.masks import resident as resident_module
from stepmask.masks import slots as slots_module
from stepmask.masks.batch import Batch, Plan
from stepmask.masks.compiled import CompiledGrammar, compile
from stepmask.masks.errors import VocabularyError
from stepmask.masks.layout import (
    B_CONFIGS,
    B_POSITION,
    CONFIG_FIRST_HEAD,
    G_LAZY_CAPACITY,
    G_LAZY_UNUSED_COUNT,
    HEAD_STATES,
    PENDING,
    READY,
)
from stepmask.masks.lazy import HISTORY_COST, SWEPT_ENTRIES
from stepmask.masks.tables import (
    ALL_ENDS,
    INDEX_BITS,
    KIND_DENSE,
    KIND_EMPTY,
    KIND_LIST,
    KIND_SHIFT,
    KIND_SINGLE,
    UNCONSTRAINED,
    MaskTables,
)

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 ,"
VOCABULARY = byte_vocabulary(
    *((x + y).encode() for x in LETTERS for y in LETTERS), *((x + "é" + y).encode() for x in "abc" for y in LETTERS)
)
END = VOCABULARY.size - 1
LAZY = Limits(max_dfa_states=1)
ON_DEMAND = Limits(max_eager_contexts=0)
#: Fuel that the largest step between two looks at the budget may use beyond it.
LARGEST_UNIT = 4000


def build(pattern: str, limits: Limits = ON_DEMAND) -> CompiledGrammar:
    return compile(regex(pattern), VOCABULARY, limits, use_cache=False)


#: Each state refuses another character: as many different masks of many tokens.
CHANGING = "".join(f"[^{c}]" for c in LETTERS)
GRAMMARS = [
    build(CHANGING),
    build("(?:[^a,]{1,5},){1,40}"),
    build("(?:ab|bc|é|[0-9]{2}){2,90}"),
    build(r"(?:\w+ )*\w{1,30}"),
    build(".*[ab].{9}", LAZY),
    build("(?!.*aa)[a-f ]*", LAZY),
]
#: These and recursive ones, which need memory for a stack.
MIXED = [
    *GRAMMARS,
    compile(gbnf('root ::= "a" | [b-d]+ | "0" root "1" | root " " root'), VOCABULARY, use_cache=False),
    compile(gbnf('root ::= item ("," item)*\nitem ::= [^,01]{1,9} | "0" root "1"'), VOCABULARY, use_cache=False),
]


def expand(mask_id: int, tables: MaskTables) -> set[int]:
    """The tokens of a mask id."""
    kind, index = int(mask_id) >> KIND_SHIFT, int(mask_id) & INDEX_BITS
    if kind == KIND_DENSE:
        return tokens_of(tables.dense[index])
    if kind == KIND_LIST:
        offset = tables.list_offset[index]
        return set(tables.list_tokens[offset : offset + tables.list_length[index]].tolist())
    assert kind in (KIND_SINGLE, KIND_EMPTY)
    return {index} if kind == KIND_SINGLE else set()


def rows(*slots: int) -> np.ndarray:
    return np.array(slots, np.int32)


def planned(batch: Batch, plan: Plan, row: int) -> set[int]:
    """The row's legal tokens, end tokens included."""
    ends = {end for i, end in enumerate(VOCABULARY.eos or ()) if plan.end_allowed[row] >> i & 1}
    return expand(plan.mask_ids[row], batch.tables) | ends


# ---------------------------------------------------------------------- errors


def test_wrong_slots() -> None:
    batch = Batch(VOCABULARY, 3)
    slots = [batch.add(GRAMMARS[0]) for _ in range(3)]
    assert sorted(slots) == [0, 1, 2] and batch.free_slots == 0
    with pytest.raises(ValueError, match="all 3 slots are taken"):
        batch.add(GRAMMARS[0])
    with pytest.raises(ValueError, match="all 3 slots are taken"):
        batch.fork(0)
    with pytest.raises(ValueError, match="below 3"):
        batch.plan(rows(3))
    for wrong in (-2, -5, -(1 << 31)):
        with pytest.raises(ValueError, match="or -1"):
            batch.plan(rows(0, wrong))
        with pytest.raises(ValueError, match="or -1"):
            batch.advance(rows(wrong), rows(97))
    with pytest.raises(ValueError, match="at most 3 rows"):
        batch.plan(rows(0, 1, 2, -1))
    with pytest.raises(ValueError, match="below 3"):
        batch.advance(rows(0, 7), rows(97, 97))
    with pytest.raises(ValueError, match="2 slots but 1 tokens"):
        batch.advance(rows(0, 1), rows(97))
    batch.remove(1)
    for slot in (1, 3, -1):
        for call in (batch.remove, batch.reset, batch.fork, batch.mask, batch.is_complete, batch.forced_bytes):
            with pytest.raises(ValueError, match=f"slot {slot} is not in use"):
                call(slot)
        with pytest.raises(ValueError, match="not in use"):
            batch.rollback(slot, 0)
        with pytest.raises(ValueError, match="not in use"):
            batch.allows(slot, 97)
        with pytest.raises(ValueError, match="not in use"):
            batch.accept_bytes(slot, b"a")
    assert batch.add(GRAMMARS[1]) == 1


def test_rows_of_slots_that_are_not_in_use() -> None:
    batch = Batch(VOCABULARY, 2)
    batch.remove(batch.add(GRAMMARS[0]))
    with pytest.raises(ValueError, match="not in use"):
        batch.plan(rows(0))


def test_wrong_parameters() -> None:
    for parameters in ({"slots": 0}, {"slots": 2, "max_rollback": -1}, {"slots": 4, "pool_masks": 7}):
        with pytest.raises(ValueError, match="at least"):
            Batch(VOCABULARY, **parameters)


def test_another_vocabulary() -> None:
    batch = Batch(VOCABULARY, 2)
    other = compile(regex("a"), byte_vocabulary(), use_cache=False)
    with pytest.raises(VocabularyError, match="another vocabulary"):
        batch.add(other)
    assert batch.free_slots == 2
    twin = compile(regex("a"), VOCABULARY.with_eos(VOCABULARY.eos), use_cache=False)
    assert batch.add(twin) == 0, "an equal one will do"
    for eos in ([VOCABULARY.width], [-1], range(33)):
        with pytest.raises(VocabularyError, match="end tokens"):
            batch.add(twin, eos=list(eos))
    assert batch.free_slots == 1


def test_unconstrained_rows() -> None:
    batch = Batch(VOCABULARY, 3, None)
    slot = batch.add(GRAMMARS[2])
    plan = batch.plan(rows(-1, slot, -1))
    assert plan.mask_ids.tolist()[::2] == [UNCONSTRAINED] * 2 and plan.end_allowed.tolist() == [ALL_ENDS, 0, ALL_ENDS]
    assert plan.all_ready
    assert batch.advance(rows(-1, slot, -1), rows(5, 120, END)).tolist() == [1, 0, 1]
    assert len(batch.plan(rows()).mask_ids) == 0


# ---------------------------------------------------------------------- the pool


def test_masks_stay_exact_while_the_pool_is_flushed() -> None:
    """Two sequences through some 38 masks each, in a pool of four; an id is good for one more plan at least."""
    small = Batch(VOCABULARY, 2, None, pool_masks=4)
    large = Batch(VOCABULARY, 2, None)
    rng = random.Random(3)
    slots = rows(*(small.add(GRAMMARS[0]) for _ in range(2)))
    assert rows(*(large.add(GRAMMARS[0]) for _ in range(2))).tolist() == slots.tolist()
    earlier: list[tuple[int, set[int]]] = []
    for step in range(42):
        if step % 14 == 0:  # the same masks again, after they were forgotten
            for slot in slots:
                small.reset(int(slot))
                large.reset(int(slot))
            references = [ReferenceMatcher(GRAMMARS[0].automaton) for _ in slots]
        plan, other = small.plan(slots), large.plan(slots)
        assert plan.all_ready and other.all_ready
        sets = [planned(small, plan, row) for row in range(2)]
        assert sets == [planned(large, other, row) for row in range(2)]
        for mask_id, tokens in earlier:
            assert expand(mask_id, small.tables) == tokens
        earlier = [(int(i), expand(i, small.tables)) for i in plan.mask_ids]
        if step % 10 == 0:
            assert sets == [brute_mask(reference, VOCABULARY) for reference in references]
        # The second lags behind.
        tokens = rows(rng.choice(sorted(sets[0] - {END})), rng.choice(sorted(t for t in sets[1] if t < 128)))
        for batch in (small, large):
            assert batch.advance(slots, tokens).all()
        for reference, token in zip(references, tokens, strict=True):
            assert reference.accept(VOCABULARY.token(int(token)))
    assert small.counters["flushes"] >= 5
    assert large.counters["flushes"] == 0


def test_slots_that_had_a_stack_are_forked_and_adopted() -> None:
    """A slot keeps the memory that an earlier sequence of a recursive grammar had; others need not have any."""
    recursive, plain = MIXED[-1], GRAMMARS[2]
    batch, other = Batch(VOCABULARY, 2, None), Batch(VOCABULARY, 2, None)
    for of, grammar in ((batch, recursive), (other, plain)):
        slot = of.add(grammar)
        of.accept_bytes(slot, b"00a" if grammar is recursive else b"ab")
        of.remove(slot)
    slot = batch.add(plain)
    assert batch.accept_bytes(slot, b"ab")
    batch.shares[slot], batch.shares[1] = 0.5, 7
    fork = batch.fork(slot)
    assert fork != slot and batch.shares[fork] == 0.5
    assert np.array_equal(batch.mask(fork), batch.mask(slot))
    batch.remove(slot)
    moved = other.add(plain)
    assert other.accept_bytes(moved, b"ab")
    assert np.array_equal(batch.mask(batch.adopt(other, moved)), batch.mask(fork))


def test_the_same_mask_is_kept_once() -> None:
    batch = Batch(VOCABULARY, 8, None)
    slots = rows(*(batch.add(GRAMMARS[i % 3]) for i in range(8)))
    plan = batch.plan(slots)
    assert len(set(plan.mask_ids[::3].tolist())) == 1 and len(set(plan.mask_ids.tolist())) == 3
    made, work = batch.counters["masks"], batch.counters["work"]
    assert batch.plan(slots).all_ready
    assert (batch.counters["masks"], batch.counters["work"]) == (made, work)


# ---------------------------------------------------------------------- the budget


@pytest.mark.parametrize("index", range(len(GRAMMARS)))
@pytest.mark.parametrize("budget_us", [0.01, 1.0, 5.0])
def test_a_small_budget_defers_and_changes_nothing(index: int, budget_us: float) -> None:
    batch, free = Batch(VOCABULARY, 1, budget_us, fuel_per_us=150), Batch(VOCABULARY, 1, None)
    slot = rows(batch.add(GRAMMARS[index]))
    assert free.add(GRAMMARS[index]) == slot[0]
    assert batch.fuel == max(1, int(budget_us * 150))
    rng = random.Random(index)
    deferred = 0
    for _ in range(6):
        before = free.counters["work"]
        expected = planned(free, free.plan(slot), 0)
        outstanding = free.counters["work"] - before
        for plans in range(math.ceil(outstanding / batch.plan_fuel) + 1):
            before = batch.counters["work"]
            plan = batch.plan(slot)
            assert batch.counters["work"] - before <= batch.fuel + LARGEST_UNIT
            if plan.status[0] == READY:
                break
            assert plan.status[0] == PENDING and planned(batch, plan, 0) == set()
            deferred += plans == 0
        assert plan.all_ready
        assert planned(batch, plan, 0) == expected == tokens_of(batch.mask(int(slot[0])))
        choices = sorted(expected - {END})
        if not choices:
            break
        token = rows(rng.choice(choices))
        assert batch.advance(slot, token)[0] and free.advance(slot, token)[0]
    # A lazy state of one loop is one unit: nothing is left to defer.
    assert deferred or budget_us > 1 or index == 4


@pytest.mark.parametrize("index", range(4))
def test_all_work_is_counted(index: int) -> None:
    """A mask costs as much in many plans as in one."""
    batch, free = Batch(VOCABULARY, 1, 0.1), Batch(VOCABULARY, 1, None)
    slot = rows(batch.add(GRAMMARS[index]))
    free.plan(rows(free.add(GRAMMARS[index])))
    while not batch.plan(slot).all_ready:
        pass
    assert batch.counters["work"] >= free.counters["work"]


def test_finished_masks_are_planned_without_fuel() -> None:
    """Rows whose masks are there are ready whatever the others need, and the waiting ones take turns."""
    batch = Batch(VOCABULARY, 6, 0.5)
    warm = batch.add(GRAMMARS[1])
    while not batch.plan(rows(warm)).all_ready:
        pass
    cold = [batch.add(GRAMMARS[i]) for i in (0, 3, 4, 5)]
    slots = rows(*cold, warm)
    pending = len(cold) + 1
    for _ in range(4000):
        plan = batch.plan(slots)
        assert plan.status[-1] == READY
        left = int((plan.status == PENDING).sum())
        assert left <= pending, "what is ready stays ready"
        pending = left
        if not pending:
            break
    assert pending == 0
    assert batch.counters["pending"] > 4


@pytest.mark.parametrize("budget_us", [1.0, 20.0, None])
@pytest.mark.parametrize("seed", range(4))
def test_random_steps(seed: int, budget_us: float | None) -> None:
    """Sequences come, go, fork and are rolled back while masks are unfinished: what is ready is right."""
    rng = random.Random(seed)
    batch = Batch(VOCABULARY, 5, budget_us, max_rollback=3, pool_masks=10)
    live: dict[int, tuple[CompiledGrammar, list[int]]] = {}
    oldest: dict[int, int] = {}  # how far back each can be taken
    ready = 0
    for _ in range(80):
        if batch.free_slots and rng.random() < 0.4:
            grammar = rng.choice(MIXED)
            slot = batch.add(grammar)
            live[slot], oldest[slot] = (grammar, []), 0
        elif live and rng.random() < 0.1:
            slot = rng.choice(sorted(live))
            batch.remove(slot)
            del live[slot]
        elif live and batch.free_slots and rng.random() < 0.2:
            slot = rng.choice(sorted(live))
            other = batch.fork(slot)
            live[other], oldest[other] = (live[slot][0], list(live[slot][1])), oldest[slot]
        if not live:
            continue
        slots = rng.sample(sorted(live), rng.randint(1, len(live)))
        before = batch.counters["work"]
        plan = batch.plan(rows(*slots))
        if budget_us is not None:
            assert batch.counters["work"] - before <= batch.fuel + LARGEST_UNIT
        moves: list[tuple[int, int]] = []
        for row, slot in enumerate(slots):
            grammar, path = live[slot]
            fresh = grammar.matcher()
            assert fresh.try_accept(path) == len(path)
            legal = tokens_of(fresh.mask())
            if plan.status[row] == READY:
                ready += 1
                assert planned(batch, plan, row) == legal
            elif rng.random() < 0.7:
                continue
            if legal:  # a row may also go on by a token that was checked by itself
                moves.append((slot, rng.choice(sorted(legal - {END} or legal))))
        if moves:
            assert batch.advance(rows(*(s for s, _ in moves)), rows(*(t for _, t in moves))).all()
        for slot, token in moves:
            live[slot][1].append(token)
            oldest[slot] = max(oldest[slot], len(live[slot][1]) - 3)
        slot = rng.choice(sorted(live))
        if rng.random() < 0.3:
            kept = rng.randint(oldest[slot], len(live[slot][1]))
            batch.rollback(slot, len(live[slot][1]) - kept)
            del live[slot][1][kept:]
            with pytest.raises(ValueError, match="max_rollback"):
                batch.rollback(slot, kept - oldest[slot] + 1)
    assert ready > 10 or budget_us == 1.0


# ---------------------------------------------------------------------- state sets


def test_few_state_sets_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """More state sets than there is room for: those in use are kept, the others come anew."""
    monkeypatch.setattr(resident_module, "LAZY_BYTES", 0)
    grammar = build(".*[ab].{12}", LAZY)
    batch = Batch(VOCABULARY, 2, None, max_rollback=8)
    rng = random.Random(1)
    first, second = batch.add(grammar), batch.add(grammar)
    assert batch.accept_bytes(second, b"xxaxbaaxb")
    kept = batch.mask(second)
    text = b""
    for _ in range(40):
        part = bytes(rng.choice(b"abcd") for _ in range(100))
        assert batch.accept_draft(first, list(part)) == 100
        text += part
        fresh = grammar.matcher()
        assert fresh.accept_bytes(text)
        assert np.array_equal(batch.mask(first), fresh.mask())
        assert batch.is_complete(first) == fresh.is_complete
        batch.rollback(first, 8)
        assert batch.accept_draft(first, list(part[-8:])) == 8
        assert np.array_equal(batch.mask(first), fresh.mask())
        assert np.array_equal(batch.mask(second), kept)


def test_making_room_for_state_sets_takes_as_long_as_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """In counted work: the table, the places of the histories and the sets at them, however large a set is."""
    monkeypatch.setattr(resident_module, "LAZY_BYTES", 0)
    for pattern in (".*[ab].{20}", "(?:.*[ab].{12}|.*[cd].{9}x){1,20}"):
        grammar = build(pattern, LAZY)
        batch = Batch(VOCABULARY, 5, None, max_rollback=6)
        slots = np.array([batch.add(grammar) for _ in range(5)], np.int32)
        (resident,) = batch._residents.values()
        header = resident.block.header
        assert header[G_LAZY_CAPACITY] == 1024 and (resident.lazy_words > 20) == (pattern[0] == "(")
        rng = np.random.default_rng(1)
        work, made = 0, 0
        for _ in range(2000):
            unused, usual = int(header[G_LAZY_UNUSED_COUNT]), work
            before = batch.counters["work"]
            assert batch.advance(slots, rng.integers(97, 101, 5).astype(np.int32)).all()
            work = batch.counters["work"] - before
            if header[G_LAZY_UNUSED_COUNT] > unused:
                made += 1
                # Each sequence has 7 places and one more when it has its token; a step takes 5 numbers again at most.
                kept = 1024 - int(header[G_LAZY_UNUSED_COUNT])
                most = 1024 // SWEPT_ENTRIES + HISTORY_COST * (5 * 8 + kept)
                assert kept <= 5 * 8 + 5 and most / 2 < work - usual / 2 < most + 2 * usual
        assert made > 3


def test_unfinished_masks_of_state_sets_whose_numbers_others_get(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident_module, "LAZY_BYTES", 0)
    grammar = build("(?:[a-d]*[ab][a-d]{12}[e-h]|x[^a][0-9]*)", LAZY)
    batch = Batch(VOCABULARY, 2, 0.01, max_rollback=1)
    waiting, busy = batch.add(grammar), batch.add(grammar)
    rng = random.Random(0)

    def letters(n: int) -> bytes:
        part = bytes(rng.choice(b"abcd") for _ in range(n))
        assert batch.accept_draft(busy, list(part)) == n
        return part

    text = letters(30)
    assert batch.accept_bytes(waiting, b"x")
    assert batch.plan(rows(waiting)).status[0] == PENDING
    states, position = batch._block.arrays[B_CONFIGS], batch._block.arrays[B_POSITION]

    def number(slot: int) -> int:
        return int(states[slot, position[slot] % states.shape[1], CONFIG_FIRST_HEAD + HEAD_STATES])

    before = number(waiting)
    for _ in range(4):
        assert batch.accept_bytes(waiting, b"1")
    kept = number(waiting)
    assert kept != before
    while number(busy) != before:
        text += letters(1)
    assert number(waiting) == kept
    fresh = grammar.matcher()
    assert fresh.accept_bytes(text)
    while not (plan := batch.plan(rows(busy))).all_ready:
        pass
    assert planned(batch, plan, 0) == tokens_of(fresh.mask())


def test_more_grammars_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grammars without sequences go, their unfinished masks with them; those that come again are as new."""
    monkeypatch.setattr(slots_module, "MAX_IDLE_GRAMMARS", 64)
    batch = Batch(VOCABULARY, 2, 0.05)
    grammars = [build(f"[^{LETTERS[i % 36]}]{{{1 + i // 36},4}}") for i in range(73)]
    fixed = batch.add(GRAMMARS[3])
    for grammar in [*grammars, *grammars[:5]]:
        slot = batch.add(grammar)
        batch.plan(rows(slot, fixed))
        while grammar in grammars[::8] and not (plan := batch.plan(rows(slot))).all_ready:
            pass
        if grammar in grammars[::8]:
            assert planned(batch, plan, 0) == tokens_of(grammar.matcher().mask())
        batch.remove(slot)
    assert tokens_of(batch.mask(fixed)) == tokens_of(GRAMMARS[3].matcher().mask())


def test_grammars_used_least_lately_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those that have a sequence; of those kept as position automata there are fewer."""
    monkeypatch.setattr(slots_module, "MAX_IDLE_GRAMMARS", 4)
    monkeypatch.setattr(slots_module, "MAX_IDLE_LAZY", 2)
    batch = Batch(VOCABULARY, 3, None)
    grammars = [build(f"{letter}+") for letter in "abcdef"]
    lazy = [build(f".*[ab].{{5}}{letter}", LAZY) for letter in "abc"]

    def kept() -> list[int]:
        own = [resident.compiled for resident in batch._residents.values()]
        return [number for number, grammar in enumerate((*grammars, *lazy)) if any(grammar is one for one in own)]

    held = batch.add(grammars[0])
    for number in (1, 2, 3, 1, 4):
        batch.remove(batch.add(grammars[number]))
    assert kept() == [0, 1, 3, 4]
    batch.remove(held)
    for number in (0, 5):
        batch.remove(batch.add(grammars[number]))
    assert kept() == [0, 1, 4, 5]
    monkeypatch.setattr(slots_module, "MAX_IDLE_GRAMMARS", 9)
    for number in range(3):
        batch.remove(batch.add(lazy[number]))
    assert kept() == [0, 1, 4, 5, 7, 8]
