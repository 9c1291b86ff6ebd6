"""Budgets delay tokens and never change them: rows without masks are verified or deferred, others do not wait."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engine_cases import LETTERS, VOCABULARY, WIDTH, answers, random_grammars, random_requests, served

import stepmask
from stepmask.grammar.limits import Limits
from stepmask.integrations.engine.engine import Engine
from stepmask.integrations.engine.request import Request
from stepmask.integrations.engine.synthetic import SyntheticModel


@pytest.fixture(scope="module")
def vocabulary() -> stepmask.Vocabulary:
    return VOCABULARY


@pytest.fixture(scope="module")
def grammars() -> list[Any]:
    return random_grammars()


def test_every_budget_gives_the_same_tokens(grammars: list[Any]) -> None:
    """At 0, tiny and normal, whichever rows share a batch; the rows without masks are of both kinds, many of each."""
    rng = np.random.default_rng(1)
    outcomes = {"ready": 0, "verified": 0, "deferred": 0}
    for number in range(10):
        requests = random_requests(rng, grammars, 20 if number else 6)
        free, handles = served(requests, None)
        assert free.recorder.outcomes()["verified"] == free.recorder.outcomes()["deferred"] == 0
        expected = answers(handles)
        # A budget of 0 does one unit of work a step: thousands of steps a mask, so few of them.
        smallest = 0.0 if number == 0 else 0.5
        for budget, slots in ((smallest, 6), (1.0, 3), (4.0, 8), (200.0, 6)):
            engine, handles = served(requests, budget, slots)
            assert answers(handles) == expected
            for name, count in engine.recorder.outcomes().items():
                outcomes[name] += count
            counters = engine._rows._batch.counters
            assert counters["verified"] == engine.recorder.outcomes()["verified"]
            assert counters["deferred"] == engine.recorder.outcomes()["deferred"]
    assert outcomes["verified"] > 500 and outcomes["deferred"] > 500


def test_prefetch_changes_no_token(grammars: list[Any]) -> None:
    """At every budget the same tokens, with what prefetch made and without it; some of it is used."""
    rng = np.random.default_rng(2)
    counters: dict[str, int] = {}
    for number in range(4):
        requests = random_requests(rng, grammars, 16 if number else 5)
        expected = answers(served(requests, None)[1])
        # Masks are made ahead while the model waits.
        for budget, slots, seconds in ((0.0, 6, 0.0), (1.0, 3, 0.0), (200.0, 6, 0.002), (None, 4, 0.002)):
            engine, handles = served(requests, budget, slots, seconds, prefetch=True)
            assert answers(handles) == expected
            for name, count in engine._rows._batch.prefetcher.counters.items():  # type: ignore[union-attr]
                counters[name] = counters.get(name, 0) + count
    assert counters["finished"] > 0 and counters["ahead"] > 0 and counters["hits"] > 0


def test_prefetch_stops_where_the_model_fails(vocabulary: stepmask.Vocabulary, grammars: list[Any]) -> None:
    class Failing(SyntheticModel):
        fails = False

        def decode(self, cache, tokens, positions):
            if self.fails:
                raise RuntimeError("no")
            return super().decode(cache, tokens, positions)

    model = Failing(WIDTH, seed=1)
    engine = Engine(model, vocabulary, 4, 160, budget_us=0.0, prefetch=True)
    handle = engine.submit(Request([5], grammars[0], max_tokens=8, temperature=1.0))
    engine.step()
    model.fails = True
    with pytest.raises(RuntimeError, match="no"):
        for _ in range(10_000):
            engine.step()
    prefetcher = engine._rows._batch.prefetcher
    assert prefetcher is not None and not prefetcher.running
    model.fails = False
    engine.run()
    assert handle.finish_reason in ("stop", "length")


class Counting(SyntheticModel):
    """Adds to each row's logits what no other forward pass adds to them: whoever samples twice sees other logits."""

    forwards = 0

    def decode(self, cache, tokens, positions):
        self.forwards += 1
        logits = super().decode(cache, tokens, positions)
        logits += np.random.default_rng(self.forwards).normal(size=logits.shape).astype(np.float32)
        return logits


def test_a_deferred_row_keeps_its_logits(vocabulary: stepmask.Vocabulary, grammars: list[Any]) -> None:
    """Alone in the engine it needs no second forward pass, so a model that never repeats itself gives the same."""
    request = Request([1], grammars[1], max_tokens=20, temperature=1.0, top_p=0.9, seed=4)
    results = []
    for budget in (None, 0.0):
        model = Counting(WIDTH, seed=1)
        engine = Engine(model, vocabulary, 2, 160, budget_us=budget)
        handle = engine.submit(request)
        engine.run()
        results.append((handle.token_ids, model.forwards))
    assert results[0] == results[1]
    assert engine.recorder.outcomes()["deferred"] > 0


def test_neighbours_do_not_wait(vocabulary: stepmask.Vocabulary, grammars: list[Any]) -> None:
    """Rows without a grammar, and those whose masks are there, get a token in every step."""
    engine = Engine(SyntheticModel(WIDTH, seed=1), vocabulary, 4, 160, budget_us=0.0)
    free = engine.submit(Request([3], max_tokens=30, ignore_eos=True))
    waiting = engine.submit(Request([5], grammars[0], max_tokens=30, temperature=1.0, logprobs=True))
    for step in range(1, 31):
        engine.step()
        assert len(free.token_ids) == step
    assert len(waiting.token_ids) < 30
    assert engine.recorder.outcomes()["deferred"] > 0
    waiting.cancel()
    engine.run()
    assert waiting.finish_reason == "cancelled"


def test_no_step_spends_more_than_its_fuel(vocabulary: stepmask.Vocabulary, grammars: list[Any]) -> None:
    """Also where rows end within a step and others take their place, so that it plans several times: nothing but an end
    is legal in some from the first on."""
    ending = [
        stepmask.compile(
            stepmask.regex(f"[^{c}]{{1,4}}{c}" if i % 4 else ""), vocabulary, Limits(max_dfa_states=1), use_cache=False
        )
        for i, c in enumerate(LETTERS)
    ]
    rng = np.random.default_rng(5)
    requests = [
        Request([int(i)], ending[i % len(ending)], max_tokens=9, temperature=1.0, seed=int(i))
        for i in rng.integers(0, 250, 120)
    ]
    engine = Engine(SyntheticModel(WIDTH, seed=1), vocabulary, 8, 160, budget_us=8.0)
    plans = []
    plan = engine.rows.plan
    engine.rows.plan = lambda decoding, **options: plans.append(engine.recorder.steps) or plan(decoding, **options)  # type: ignore
    for request in requests:
        engine.submit(request)
    engine.run()
    assert len(plans) > len(set(plans))  # some steps planned more than once
    fuel = engine.recorder.recorded().fuel
    assert engine.recorder.outcomes()["verified"] + engine.recorder.outcomes()["deferred"] > 0
    # Beyond it by no more than a token walk in `settle`, and a unit a plan.
    assert fuel.max() <= engine.rows.budget + 128


#: Requests of the whole identity test; without --deep every fifth.
IDENTITIES, SHARE = 200, 5


def test_identity(grammars: list[Any], request: pytest.FixtureRequest) -> None:
    """Random (grammar, seed, sampling parameters): one stream of tokens at every budget, with prefetch or not, alone
    and among any others; many rows are verified, many are deferred.
    """
    deep = request.config.getoption("--deep")
    every = random_requests(np.random.default_rng(11), grammars, IDENTITIES)
    requests = every if deep else every[::SHARE]
    expected = {}
    for number, one in enumerate(requests):  # each alone, without a budget
        (answer,) = answers(served([one], None, 1)[1])
        expected[number] = answer
    outcomes = {"ready": 0, "verified": 0, "deferred": 0}
    draw = np.random.default_rng(12)
    for budget in (0.0, 0.6, 1.5, 4.0, 200.0, None):
        for prefetch in (False, True):
            for slots in (1, 3, 8) if deep else (3, 8):
                # At a budget of 0 a step does one piece of work: a few requests of the share.
                numbers = draw.permutation(len(requests))[: len(requests) // (4 if budget == 0.0 else 1)].tolist()
                engine, handles = served([requests[number] for number in numbers], budget, slots, prefetch=prefetch)
                assert answers(handles) == [expected[number] for number in numbers]
                for name, count in engine.recorder.outcomes().items():
                    outcomes[name] += count
                if budget is None:
                    assert engine.recorder.outcomes()["deferred"] == 0
    assert outcomes["verified"] > 500 and outcomes["deferred"] > 500
