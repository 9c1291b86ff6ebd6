"""Python's garbage collector runs between the engine's steps, never within one, and is afterwards as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

import stepmask
from stepmask.integrations.engine import Engine, Request
from stepmask.integrations.engine.collector import StepCollector
from stepmask.integrations.engine.synthetic import SyntheticModel


@pytest.fixture
def collections() -> Iterator[list[int]]:
    """Generations of the collections so far; the collector is on, with small thresholds."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append(info["generation"])

    before, enabled = gc.get_threshold(), gc.isenabled()
    gc.enable()
    gc.set_threshold(100, 5, 5)
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    gc.set_threshold(*before)
    if not enabled:
        gc.disable()


def garbage(count: int) -> None:
    for _ in range(count):
        cycle: list[Any] = []
        cycle.append(cycle)


@pytest.fixture(scope="module")
def vocabulary() -> stepmask.Vocabulary:
    return stepmask.Vocabulary.from_bytes([bytes([byte]) for byte in range(256)] + [b""], eos=[256], special=[256])


class Littering(Engine):
    """Makes garbage in every step; notes the collections within steps."""

    within = 0

    def step(self) -> None:
        before = len(self.collections)
        garbage(300)
        super().step()
        garbage(300)
        self.within += len(self.collections) - before

    collections: list[int]


def engine_of(vocabulary: stepmask.Vocabulary, collections: list[int]) -> Littering:
    engine = Littering(SyntheticModel(257, seed=1), vocabulary, 2, 64)
    engine.collections = collections
    return engine


def test_collections_are_between_steps(vocabulary: stepmask.Vocabulary, collections: list[int]) -> None:
    engine = engine_of(vocabulary, collections)
    engine.submit(Request([1], max_tokens=60, ignore_eos=True))
    collections.clear()
    engine.run()
    assert engine.recorder.steps == 60 and engine.within == 0
    # One after each step, by the usual rule of generations.
    assert len(collections) >= 60
    assert {0, 1, 2} == set(collections) and collections.count(0) > collections.count(1) > 0
    (entry,) = engine.recorder.charges.longest("collect")
    assert entry.count >= 60
    assert gc.isenabled() and gc.get_freeze_count() == 0


def test_collections_of_an_overlapped_loop_are_within_forward_passes(
    vocabulary: stepmask.Vocabulary, collections: list[int]
) -> None:
    """While the model is at work: nobody waits for them. Steps made one by one collect nothing."""
    elsewhere: list[int] = []

    class Noting(SyntheticModel):
        def begin(self, *arguments: Any) -> None:
            super().begin(*arguments)
            elsewhere.extend(collections)
            collections.clear()
            garbage(300)

        def finish(self, cache: Any) -> Any:
            within.extend(collections)
            collections.clear()
            return super().finish(cache)

    within: list[int] = []
    engine = Engine(Noting(257, seed=1), vocabulary, 2, 64, overlap=True)
    for count in (60, 5):
        engine.submit(Request([1], max_tokens=count, ignore_eos=True))
    collections.clear()
    engine.run()
    assert not elsewhere and len(within) >= 60 and {0, 1, 2} == set(within)
    (entry,) = engine.recorder.charges.longest("collect")
    assert entry.count >= 60
    engine.submit(Request([1], max_tokens=5, ignore_eos=True))
    gc.disable()
    while not engine.is_idle:
        engine.step()
    gc.enable()
    assert len(within) == entry.count


def test_a_single_result_is_made_so_too(vocabulary: stepmask.Vocabulary, collections: list[int]) -> None:
    engine = engine_of(vocabulary, collections)
    assert len(engine.submit(Request([1], max_tokens=9, ignore_eos=True)).result().token_ids) == 9
    assert engine.within == 0


def test_without_it_they_are_within(vocabulary: stepmask.Vocabulary, collections: list[int]) -> None:
    engine = engine_of(vocabulary, collections)
    engine.submit(Request([1], max_tokens=9, ignore_eos=True))
    while not engine.is_idle:
        engine.step()
    assert engine.within > 0


def test_the_state_is_restored(collections: list[int]) -> None:
    with pytest.raises(ValueError, match="stop"), StepCollector():
        assert not gc.isenabled() and gc.get_freeze_count() > 0
        with StepCollector() as inner:  # leaves everything to the outer one
            garbage(500)
            assert not inner.between_steps()
        assert not gc.isenabled() and gc.get_freeze_count() > 0
        raise ValueError("stop")
    assert gc.isenabled() and gc.get_freeze_count() == 0
    gc.disable()
    with StepCollector() as collector:
        garbage(500)
        assert not collector.between_steps()
        assert gc.get_freeze_count() == 0
    assert not gc.isenabled()
    gc.enable()


def test_what_others_have_frozen_stays_so(collections: list[int]) -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with StepCollector() as collector:
            garbage(500)
            collections.clear()
            assert collector.between_steps() and len(collections) == 1
        assert gc.get_freeze_count() <= frozen and gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
