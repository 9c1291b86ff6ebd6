"""Rows of which all is known, served by themselves: beside the kernels that serve any row."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mask_sets import byte_vocabulary, tokens_of

from stepmask.grammar.choice import choice
from stepmask.grammar.json_schema.front_end import json_schema
from stepmask.grammar.json_value import json_value
from stepmask.grammar.regex import regex
from stepmask.masks.advance import advance_rows
from stepmask.masks.arena import ACCEPTED, ENDED, REFUSED, UNFINISHED
from stepmask.masks.batch import Batch
from stepmask.masks.compiled import CompiledGrammar, compile
from stepmask.masks.known_rows import REST_ROWS
from stepmask.masks.layout import B_ADVANCE_FROM, B_ADVANCE_FUEL, B_POSITION, B_REST, B_TELLS_ENDS, B_WORK_LIMIT, READY
from stepmask.masks.outcome import Plan
from stepmask.masks.step import NO_SUCH_SLOT, ROWS, plan_rows

VOCABULARY = byte_vocabulary(b"ab", b'":', b"[1", b"]]", b'{"')
#: Of those that a test compares; what is counted for remembering depends on the order of the rows.
COUNTERS = (
    "hits",
    "pending",
    "accepted",
    "refused",
    "unfinished",
    "looked_up",
    "recalled",
    "looked",
    "misses",
    "masks",
)


class General(Batch):
    """A batch whose rows are all served by the kernels for any row."""

    def plan_within(self, slots: npt.NDArray[np.int32], fuel: int) -> Plan:
        slots = self._checked(slots)
        left = plan_rows(self._address, self._slots_at, len(slots), fuel, *self._plan_at)
        assert left != NO_SUCH_SLOT
        self._fuel_left = left
        n = len(slots)
        return Plan(slots, self._mask_ids[:n], self._end_allowed[:n], self._status[:n])

    def advance(
        self, slots: npt.NDArray[np.int32], tokens: npt.NDArray[np.int32], *, ends: bool = False
    ) -> npt.NDArray[np.uint8]:
        slots = self._checked(slots)
        self._memory.header[B_ADVANCE_FUEL] = self.advance_fuel
        self._memory.header[B_TELLS_ENDS] = ends
        self._step_tokens[: len(tokens)] = tokens
        advance_rows(self._address, self._slots_at, len(slots), self._tokens_at, self._accepted_at, ROWS)
        return self._accepted[: len(slots)]


@cache
def grammars() -> list[CompiledGrammar]:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", 1]}}}
    made = (json_value(), json_schema(schema), regex("[ab]{1,3}"), regex(".{0,9}x|y"), choice(["ab", "a[1"]))
    return [compile(grammar, VOCABULARY, use_cache=False) for grammar in made]


def apply(batches: tuple[Batch, Batch], name: str, *arguments: Any) -> Any:
    """Call a method of both; its answer, which is one for both."""
    one, other = (getattr(batch, name)(*arguments) for batch in batches)
    assert one == other
    return one


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from([None, 12]))
def test_all_is_as_for_any_row(seed: int, pool_masks: int | None) -> None:
    """Masks, ends, answers, positions and counters, whatever is seated, forked, taken back or left out meanwhile, in
    whatever order the rows are, some slots twice, and while the pool's halves change."""
    rng = random.Random(seed)
    batches = tuple(kind(VOCABULARY, 6, None, max_rollback=4, pool_masks=pool_masks) for kind in (Batch, General))
    live: list[int] = []
    for _ in range(30):
        what = rng.random()
        if len(live) < 6 and (what < 0.3 or not live):
            eos, least = rng.choice([None, [97], [256, 34]]), rng.choice([0, 0, 3])
            grammar = rng.choice(grammars())
            added = {batch.add(grammar, eos=eos, min_tokens=least) for batch in batches}
            live += sorted(added)
        elif what < 0.4:
            apply(batches, "remove", live.pop(rng.randrange(len(live))))
        elif what < 0.45 and len(live) < 6:
            live.append(apply(batches, "fork", rng.choice(live)))
        elif what < 0.55:
            slot = rng.choice(live)
            if batches[0].position(slot):
                apply(batches, "rollback", slot, 1)
        if not live:
            continue
        rows = np.array([rng.choice([*live, *live, -1]) for _ in range(rng.randint(1, 6))], np.int32)
        if rng.random() < 0.7:
            rows = np.array(sorted(set(rows.tolist())), np.int32)
        one, other = (batch.plan(rows) for batch in batches)
        for name in ("status", "end_allowed"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        chosen = []
        for row, slot in enumerate(rows.tolist()):
            tokens = [97]
            if slot >= 0:
                assert one.status[row] == READY
                tokens = sorted(tokens_of(batches[0].mask(slot))) or [97]
                assert tokens == (sorted(tokens_of(batches[1].mask(slot))) or [97])
            chosen.append(rng.choice([min(tokens), min(tokens), rng.choice(tokens), rng.randrange(-1, 260)]))
        taken = np.array(chosen, np.int32)
        ends = rng.random() < 0.5
        answers = [batch.advance(rows, taken, ends=ends) for batch in batches]
        np.testing.assert_array_equal(*answers)
        assert batches[0].counters.keys() >= set(COUNTERS)
        for name in COUNTERS:
            assert batches[0].counters[name] == batches[1].counters[name], name
        for slot in live:
            assert batches[0].position(slot) == batches[1].position(slot)


def test_a_warm_step_hands_nothing_on() -> None:
    batch = Batch(VOCABULARY, 4, None)
    rows = np.array([2, -1, 0, 1], np.int32)
    text = b'{"a":17,"b":"x"}'
    for turn in range(3):
        for _ in range(3):
            batch.add(grammars()[1])
        for position, token in enumerate(text):
            batch.memory.header[B_WORK_LIMIT] = 77
            batch.memory.arrays[B_REST][REST_ROWS] = -5
            plan = batch.plan(rows)
            assert (plan.status == READY).all() and plan.mask_ids[1] == -1
            # Of a new sequence, the first mask is found when it is seated.
            assert turn == 0 or batch.memory.header[B_WORK_LIMIT] == 77
            answers = batch.advance(rows, np.full(4, token, np.int32), ends=True)
            is_last = position == len(text) - 1
            assert answers.tolist() == [ENDED if is_last and row != 1 else ACCEPTED for row in range(4)]
            assert turn == 0 or (batch.memory.arrays[B_REST][REST_ROWS] == -5).all()
        for slot in range(3):
            batch.remove(slot)


def test_rows_that_lack_fuel_come_first_next_time() -> None:
    """Also where others before them were known, and numbers of rows that are handed on are not those of the step."""
    batch = Batch(VOCABULARY, 70, None)
    known = [batch.add(grammars()[1]) for _ in range(10)]
    batch.advance(np.array(known[:1], np.int32), np.array([123], np.int32))  # what is known afterwards
    batch.reset(known[0])
    deep = [batch.add(grammars()[0]) for _ in range(60)]
    for depth, slot in enumerate(deep):  # each at another stack
        assert batch.accept_bytes(slot, b"[" * depth)
    rows = np.array([slot for i in range(10) for slot in (*deep[6 * i : 6 * i + 6], known[i])], np.int32)
    batch.plan(rows)
    batch.advance_fuel, batch.settler.left = 1, 0
    answers = batch.advance(rows, np.array([*[49] * 6, 123] * 10, np.int32))
    assert set(answers.tolist()) == {ACCEPTED, UNFINISHED} and (answers[6::7] == ACCEPTED).all()
    assert batch.memory.header[B_ADVANCE_FROM] == np.flatnonzero(answers == UNFINISHED)[0]
    batch.advance_fuel = 1 << 40
    assert (batch.plan(rows).status == READY).all()
    positions = batch.memory.arrays[B_POSITION]
    assert (positions[known] == 1).all() and (positions[deep[1:]] == 2).all() and positions[deep[0]] == 1


def test_a_row_of_a_free_slot_is_refused() -> None:
    batch = Batch(VOCABULARY, 2, None)
    slot = batch.add(grammars()[0])
    rows = np.array([slot], np.int32)
    batch.plan(rows)
    batch.remove(slot)
    with pytest.raises(ValueError, match="not in use"):
        batch.plan(rows)
    assert batch.advance(rows, np.array([49], np.int32)).tolist() == [REFUSED]
