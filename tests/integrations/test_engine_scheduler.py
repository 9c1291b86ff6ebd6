"""Slots refill the moment they empty: counted with a fake clock, without a model's time."""

from __future__ import annotations

import numpy as np
import pytest

from stepmask import Vocabulary
from stepmask.integrations.engine.engine import Engine
from stepmask.integrations.engine.request import Request
from stepmask.integrations.engine.scheduler import Slots
from stepmask.integrations.engine.synthetic import SyntheticModel

SLOTS = 8
TOKENS_PER_SECOND = 40
SECONDS = 25.0
#: 16 answers of 250 to 1000 tokens, 500 in the mean.
LENGTHS = [1000, 250, 250, 250, 500, 500, 750, 750, 750, 750, 250, 500, 500, 500, 250, 250]
WIDTH = 64


class TimedModel(SyntheticModel):
    """A synthetic model whose forward pass moves a fake clock on instead of waiting."""

    def __init__(self) -> None:
        super().__init__(WIDTH)
        self.forwards = 0

    def clock(self) -> float:
        return self.forwards / TOKENS_PER_SECOND

    def decode(self, cache, tokens, positions):
        self.forwards += 1
        return super().decode(cache, tokens, positions)


def vocabulary() -> Vocabulary:
    return Vocabulary.from_bytes([bytes([33 + i]) for i in range(WIDTH - 1)] + [b""], eos=[WIDTH - 1])


def answers_in_time(refill: bool) -> int:
    model = TimedModel()
    engine = Engine(model, vocabulary(), SLOTS, 1024, refill=refill, clock=model.clock)
    handles = [engine.submit(Request([1], max_tokens=length, ignore_eos=True)) for length in LENGTHS]
    while model.clock() < SECONDS and not engine.is_idle:
        engine.step()
    finished = [handle for handle in handles if handle.is_finished]
    assert all(handle.finish_reason == "length" for handle in finished)
    assert all(len(handle.token_ids) == handle.request.max_tokens for handle in finished)
    return len(finished)


def test_lengths_are_those_of_the_task() -> None:
    assert (len(LENGTHS), np.mean(LENGTHS), min(LENGTHS), max(LENGTHS)) == (16, 500, 250, 1000)


def test_refilled_slots_give_twice_the_answers_of_static_batches() -> None:
    assert answers_in_time(refill=True) == 16
    assert answers_in_time(refill=False) == 8


def test_slots_are_seated_in_order_of_arrival() -> None:
    slots: Slots[str] = Slots(2)
    for name in "abcd":
        slots.enqueue(name)
    assert slots.assign() == [(0, "a"), (1, "b")]
    assert slots.assign() == []
    slots.free(1)
    assert slots.assign() == [(1, "c")]
    assert (slots[0], slots[1], slots.occupied, slots.waiting) == ("a", "c", 2, 1)
    slots.free(0)
    slots.free(1)
    assert slots.assign() == [(0, "d")]
    assert not slots.is_idle
    slots.free(0)
    assert slots.is_idle


def test_static_batches_wait_for_the_last() -> None:
    slots: Slots[str] = Slots(2, refill=False)
    for name in "abc":
        slots.enqueue(name)
    slots.assign()
    slots.free(0)
    assert slots.assign() == []
    slots.free(1)
    assert slots.assign() == [(0, "c")]


def test_an_empty_slot_cannot_be_freed() -> None:
    slots: Slots[str] = Slots(1)
    with pytest.raises(ValueError, match="slot 0"):
        slots.free(0)
    with pytest.raises(ValueError, match="at least one"):
        Slots(0)
