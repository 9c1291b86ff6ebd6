"""Deep nesting: what a stack may hold, what happens past it, and that what is no longer needed makes room."""

from __future__ import annotations

import random

import numpy as np
import pytest
from earley import Earley
from mask_sets import byte_vocabulary, tokens_of
from random_rules import BOTH_LIMITS, Rules, alt, opt, ref, rep, seq
from recursive_cases import Run, build, legal_of, rows

from stepmask.grammar.limits import Limits
from stepmask.masks.arena import ACCEPTED, LEAST_COMPACTED, TOO_DEEP
from stepmask.masks.batch import MIN_STACK_BYTES, Batch
from stepmask.masks.errors import StackLimitError
from stepmask.masks.layout import B_ARENA_USED, B_CONFIGS, B_DIRECT, CONFIG_BLOCK
from stepmask.masks.matcher import SLOTS
from stepmask.masks.outcome import PIECE_FUEL

BOTH = pytest.mark.parametrize("limits", BOTH_LIMITS, ids=["frames", "solved"])
WORDS = [b"((", b"))", b"((((", b"))))", b"()", b")(", b"(" * 16, b")" * 16, b"aa", b"a" * 16]
VOCABULARY = byte_vocabulary(*WORDS)
OPEN, CLOSE = b"("[0], b")"[0]
OPEN_16 = 256 + WORDS.index(b"(" * 16)
PARENTHESES: Rules = {"S": alt(b"a", seq(b"(", ref("S"), b")"))}
#: As deep, with more to remember of each level.
LISTS: Rules = {"S": alt(b"a", seq(b"(", opt(seq(ref("S"), rep(seq(b",", ref("S"))))), b")"))}
RIGHT: Rules = {"S": alt(b"b", seq(b"a", ref("S")), seq(b"(", ref("S"), b")"))}


def used(batch: Batch, slot: int) -> int:
    """Words in use of the slot's stack memory."""
    return int(batch._block.arrays[B_ARENA_USED][slot])


def accept(batch: Batch, slot: int, *tokens: int) -> list[int]:
    return [int(batch.advance(rows(slot), rows(token))[0]) for token in tokens]


@BOTH
@pytest.mark.parametrize("found", [PARENTHESES, LISTS], ids=["parentheses", "lists"])
def test_ten_thousand_levels(found: Rules, limits: Limits) -> None:
    levels = 10_000
    compiled = build(found, VOCABULARY, limits)
    batch = Batch(VOCABULARY, 2, None, max_rollback=4)
    by_token, by_text = batch.add(compiled), batch.add(compiled)
    tokens = np.full(1, OPEN, np.int32)
    for _ in range(levels):
        assert batch.advance(rows(by_token), tokens)[0] == ACCEPTED
    assert batch.accept_bytes(by_text, b"(" * levels)
    assert np.array_equal(batch.mask(by_text), batch.mask(by_token))
    for slot in (by_token, by_text):
        assert not batch.is_complete(slot) and batch.allows(slot, CLOSE) == (found is LISTS)
        assert batch.accept_bytes(slot, b"a")
        assert CLOSE in tokens_of(batch.mask(slot))
    tokens[0] = CLOSE
    for _ in range(levels):
        assert not batch.is_complete(by_token)
        assert batch.advance(rows(by_token), tokens)[0] == ACCEPTED
    assert not batch.accept_bytes(by_text, b")" * (levels + 1))
    assert batch.accept_bytes(by_text, b")" * levels)
    for slot in (by_token, by_text):
        assert batch.is_complete(slot) and tokens_of(batch.mask(slot)) == {VOCABULARY.size - 1}
        assert accept(batch, slot, CLOSE) == [0]


@BOTH
def test_right_recursion_needs_no_room(limits: Limits) -> None:
    """A call in the last place leaves nothing on the stack, nor do calls that have returned."""
    for found, text in ((RIGHT, b"a"), (LISTS, b"((a,(a,a),()),"), ({"S": alt(b"a", seq(ref("S"), ref("S")))}, b"a")):
        compiled = build(found, VOCABULARY, limits)
        batch = Batch(VOCABULARY, 2, None, max_rollback=2, stack_bytes=MIN_STACK_BYTES)
        slot, other = batch.add(compiled), batch.add(compiled)
        if found is LISTS:
            assert batch.accept_bytes(slot, b"(") and batch.accept_bytes(other, b"(")
        for _ in range(20_000 // len(text)):
            for byte in text:
                assert accept(batch, slot, byte) == [ACCEPTED]
        assert used(batch, slot) <= MIN_STACK_BYTES // 8
        assert batch.accept_bytes(other, text * (20_000 // len(text))), "as one text"
        assert batch.accept_bytes(other, text * (20_000 // len(text)))
        assert np.array_equal(batch.mask(slot), batch.mask(other))


@BOTH
@pytest.mark.parametrize("depth", [1, 200])
def test_making_room_takes_as_long_as_the_stack_is_high(depth: int, limits: Limits) -> None:
    """In counted work, whatever the room: a long text of few levels never takes a phase more than a piece at once."""
    compiled = build(LISTS, VOCABULARY, limits)
    batch = Batch(VOCABULARY, 2, None, max_rollback=8)
    slot = batch.add(compiled)
    assert batch.accept_bytes(slot, b"(" * depth)
    height = used(batch, slot)
    most, works, highest = 0, 0, 0
    for number in range(8000):
        before = batch.counters["work"]
        assert accept(batch, slot, b"a,(a,a),"[number % 8]) == [ACCEPTED]
        work = batch.counters["work"] - before
        works += work
        most, highest = max(most, work), max(highest, used(batch, slot))
    assert highest <= LEAST_COMPACTED + 4 * height and highest > LEAST_COMPACTED / 2
    assert most <= PIECE_FUEL + height and works < 8000 * 40
    other = batch.fork(slot)
    assert accept(batch, slot, OPEN) == accept(batch, other, OPEN) == [ACCEPTED]
    assert np.array_equal(batch.mask(slot), batch.mask(other))


@BOTH
def test_past_the_limit_nothing_changes(limits: Limits) -> None:
    compiled = build(PARENTHESES, VOCABULARY, limits)
    batch = Batch(VOCABULARY, 3, None, max_rollback=16, stack_bytes=MIN_STACK_BYTES)
    slot, other = batch.add(compiled), batch.add(compiled)
    assert accept(batch, other, OPEN, OPEN) == [ACCEPTED] * 2
    before = batch.mask(other)
    depth = 0
    while True:
        answers = batch.advance(rows(slot, other, -1), rows(OPEN_16, OPEN, 0)).tolist()
        assert answers[1:] == [ACCEPTED] * 2
        batch.rollback(other, 1)
        if answers[0] == TOO_DEEP:
            break
        assert answers[0] == ACCEPTED
        depth += 16
    assert depth > 5000
    position, mask = batch.position(slot), batch.mask(slot)
    assert np.array_equal(batch.mask(other), before)
    for _ in range(3):
        assert accept(batch, slot, OPEN_16) == [TOO_DEEP]
        with pytest.raises(StackLimitError):
            batch.accept_bytes(slot, b"(" * 9000)
    assert batch.position(slot) == position and np.array_equal(batch.mask(slot), mask)
    assert accept(batch, other, OPEN) == [ACCEPTED], "other rows go on"
    batch.rollback(slot, 3)
    depth -= 48
    assert accept(batch, slot, OPEN_16) == [ACCEPTED]
    depth += 16
    assert batch.accept_bytes(slot, b"a" + b")" * depth) and batch.is_complete(slot)
    batch.rollback(slot, 1)
    fork = batch.fork(slot)
    assert batch.accept_bytes(fork, b"a" + b")" * depth) and batch.is_complete(fork)
    batch.reset(slot)
    assert batch.accept_bytes(slot, b"(" * 5000 + b"a" + b")" * 5000) and batch.is_complete(slot)


def test_matchers_say_so_too() -> None:
    matcher = build(PARENTHESES, VOCABULARY).matcher()
    with pytest.raises(StackLimitError, match="stack_bytes"):
        for _ in range(2000):
            matcher.accept(OPEN_16)
    with pytest.raises(StackLimitError, match="stack_bytes"):
        matcher.accept_bytes(b"(" * 20_000)
    assert matcher.try_accept([OPEN_16]) == 0
    matcher.rollback(200)
    assert matcher.accept_bytes(b"(((a)))") and not matcher.is_complete
    assert CLOSE in tokens_of(matcher.mask())


def test_forks_into_another_batch() -> None:
    """More forks than one batch has slots for: those in the next have the whole stack and its history too."""
    matcher = build(LISTS, VOCABULARY).matcher(max_rollback=3)
    assert matcher.accept_bytes(b"(" * 300) and matcher.accept_bytes(b"a,(")
    forks = [matcher.fork() for _ in range(SLOTS + 2)]
    for fork in (forks[0], forks[-1]):
        assert np.array_equal(fork.mask(), matcher.mask())
        assert not fork.accept_bytes(b")" * 302) and fork.accept_bytes(b")" * 301) and fork.is_complete
        fork.rollback(2)
        assert fork.accept_bytes(b"a" + b")" * 300) and fork.is_complete
    assert (
        not matcher.is_complete and matcher.accept_bytes(b"a))") and np.array_equal(forks[-2].mask(), forks[1].mask())
    )


def test_smaller_stacks_than_one_token_may_need_are_refused() -> None:
    with pytest.raises(ValueError, match="stack_bytes"):
        Batch(VOCABULARY, 1, stack_bytes=MIN_STACK_BYTES - 8)


#: Several calls a byte that all stay on the stack.
CHAIN: Rules = {
    "S": seq(ref("T"), b"1"), "T": seq(ref("U"), b"2"), "U": seq(ref("V"), b"3"), "V": alt(b"a", seq(b"(", ref("S")))
}  # fmt: skip


@BOTH
@pytest.mark.parametrize("found", [PARENTHESES, LISTS, CHAIN], ids=["parentheses", "lists", "chain"])
def test_garbage_is_no_reason_to_refuse(found: Rules, limits: Limits) -> None:
    """Whatever was said and taken back before, there is as much room as in a new sequence."""
    compiled = build(found, VOCABULARY, limits)
    batch = Batch(VOCABULARY, 2, None, max_rollback=4, stack_bytes=MIN_STACK_BYTES)
    slot = batch.add(compiled)
    most = 100
    while True:
        try:
            batch.accept_bytes(slot, b"(" * most)
        except StackLimitError:
            break
        batch.reset(slot)
        most += 100
    most -= 100
    assert most > 1500
    for part in (0.5, 1, 0.6, 1, 0.65, 1, 0.7, 1, 0.75, 1, 0.8, 0.9, 1, 1, 0.2, 0.3, 1):
        length = int(part * most)
        assert batch.accept_bytes(slot, b"(" * length), length
        batch.rollback(slot, 1)


@BOTH
@pytest.mark.parametrize("seed", range(2))
def test_compaction_keeps_the_history(seed: int, limits: Limits) -> None:
    """Little room, so that it is cleared again and again; positions gone back to and forks are what they were."""
    rng = random.Random(seed)
    compiled = build(LISTS, VOCABULARY, limits)
    oracle = Earley(LISTS, "S")
    batch = Batch(VOCABULARY, 3, None, max_rollback=12, stack_bytes=MIN_STACK_BYTES)
    runs = [Run(batch, compiled, oracle)]
    cleared = 0
    for _ in range(100):
        at = rng.randrange(len(runs))
        run = runs[at]
        before = used(batch, run.slot)
        depth = deepest(run)
        text = b"(" * rng.randint(1, 900) if depth < 5000 else b"a" + b")" * min(depth - 1, rng.randint(1, 3000)) + b","
        run.accept_bytes(text if rng.random() < 0.9 else b"a,")
        cleared += used(batch, run.slot) < before
        run.check(directly=rng.random() < 0.5)
        if rng.random() < 0.25:
            run.rollback(rng.randint(0, run.kept))
            run.check()
        if rng.random() < 0.15:
            if len(runs) == 3:
                runs.pop(rng.randrange(3)).remove()
            runs.append(rng.choice(runs).fork())
            runs[-1].check()
    assert cleared > 1


def test_an_unfinished_mask_is_dropped_where_its_stack_moves() -> None:
    """A mask begun on a sequence's own stack must not go on over what has taken the place of that stack."""
    same, other = alt(seq(b"a", ref("S")), seq(b",", ref("T"))), alt(seq(b"a", ref("T")), seq(b",", ref("S")))
    found: Rules = {"S": alt(same, b"("), "T": alt(other, b")")}
    always = {ord("a"), ord(","), *(256 + i for i, word in enumerate(WORDS) if set(word) == set(b"a"))}
    expected = [always | {OPEN}, always | {CLOSE}]
    compiled = build(found, VOCABULARY)
    batch = Batch(VOCABULARY, 1, 0.0, max_rollback=0, stack_bytes=MIN_STACK_BYTES)
    batch._block.header[B_DIRECT] = 1
    slot = batch.add(compiled)
    configs = batch._block.arrays[B_CONFIGS][slot]
    planned, planned_state, tried = -1, 0, 0
    rng = random.Random(1)
    state = 0
    for step in range(40_000):
        block = int(configs[batch.position(slot) % len(configs), CONFIG_BLOCK])
        if planned == block and planned_state != state:
            while not (plan := batch.plan(rows(slot))).all_ready:
                pass
            assert legal_of(plan, batch, 0) == expected[state]
            tried, planned = tried + 1, -1
        elif step % 12_007 == 500:
            planned, planned_state = block, state
            assert not batch.plan(rows(slot)).all_ready
        change = rng.random() < 0.3
        assert accept(batch, slot, b"a,"[change]) == [ACCEPTED]
        state ^= change
    assert tried


def deepest(run: Run) -> int:
    text = b"".join(part if isinstance(part, bytes) else VOCABULARY.token(part) for part in run.said)
    return text.count(b"(") - text.count(b")")
