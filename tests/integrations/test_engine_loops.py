"""However the loop runs, tokens are the same: plain or overlapped, one by one or in runs, text here or elsewhere."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from engine_cases import VOCABULARY, WIDTH, answers, forcing_grammars, random_grammars, random_requests, served

import stepmask
from stepmask.integrations.engine import Admission, Engine, Request
from stepmask.integrations.engine.synthetic import SyntheticModel
from stepmask.integrations.text import InProcessText, TextProcess

BUDGETS = (0.0, 1.0, 200.0, None, 0.5)


@pytest.fixture(scope="module")
def grammars() -> list[Any]:
    return [*random_grammars(12), *forcing_grammars() * 3]


@pytest.fixture(scope="module")
def text() -> Iterator[TextProcess]:
    with TextProcess(VOCABULARY) as process:
        yield process


@pytest.mark.parametrize("forced", [False, True], ids=["sampled", "forced"])
@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlapped"])
def test_every_loop_gives_the_same_answers(grammars: list[Any], text: TextProcess, overlap: bool, forced: bool) -> None:
    """At every budget, with and without prefetch, whoever shares the batch, wherever the text is made."""
    rng = np.random.default_rng(3 + 2 * overlap + forced)
    counts = {"verified": 0, "deferred": 0}
    taken = chunked = 0
    for number in range(6):
        # With a budget of 0 a mask takes thousands of steps.
        requests = random_requests(rng, grammars, 24 if number else 4, text=True, stop=("zz", "0T", "}"))
        expected = answers(served(requests, None)[1])
        for i, budget in enumerate(BUDGETS if number == 0 else (0.5, *BUDGETS[1:])):
            engine, handles = served(
                requests, budget, slots=(6, 3, 8, 5, 4)[i], overlap=overlap, forced=forced, spare_rows=(i + number) % 3,
                prefetch=(i + number) % 2 == 0, text=text if (i + number) % 3 == 0 else None,
            )  # fmt: skip
            assert answers(handles) == expected
            for name in counts:
                counts[name] += engine.recorder.outcomes()[name]
            taken += engine.recorder.forced
            chunked += engine.recorder.chunked
    assert counts["verified"] > 50 and counts["deferred"] > 50
    assert (taken > 500 and chunked > 100) if forced else taken == chunked == 0


def test_a_forced_token_has_the_log_probability_that_sampling_gives_it(grammars: list[Any]) -> None:
    requests = [
        Request([i], grammar, max_tokens=40, temperature=float(i % 3), seed=i, logprobs=True)
        for i, grammar in enumerate(forcing_grammars() * 3)
    ]
    _, sampled = served(requests, None)
    engine, forced = served(requests, None, forced=True, spare_rows=2)
    assert answers(forced) == answers(sampled)
    values = [value for handle in forced for value in handle.log_probabilities]
    assert engine.recorder.forced > 100 and values.count(0.0) >= engine.recorder.forced
    assert not any(np.signbit(value) for value in values if value == 0.0)


def test_a_text_that_is_forced_needs_no_forward_pass() -> None:
    grammar = stepmask.compile(stepmask.regex("12-34"), VOCABULARY)
    model = SyntheticModel(WIDTH, seed=1)
    engine = Engine(model, VOCABULARY, 1, 64, forced=True)
    handles = [engine.submit(Request([1], grammar, max_tokens=9)) for _ in range(4)]
    engine.run()
    assert [VOCABULARY.decode(handle.token_ids) for handle in handles] == [b"12-34"] * 4
    assert all(handle.finish_reason == "stop" for handle in handles)
    assert (engine.recorder.forwards, engine.recorder.forced, engine.recorder.chunked) == (0, 20, 0)


def test_a_run_goes_through_one_forward_pass_where_there_is_room() -> None:
    grammar = stepmask.compile(stepmask.regex("[ab]0123456789[ab]"), VOCABULARY)
    request = Request([1], grammar, max_tokens=20, temperature=1.0)
    for slots, spare in ((1, 0), (1, 10), (1, 20), (4, 0), (1, 3), (2, 7)):
        engine = Engine(SyntheticModel(WIDTH, seed=1), VOCABULARY, slots, 64, forced=True, spare_rows=spare)
        handle = engine.submit(request)
        engine.run()
        assert len(handle.token_ids) == 12
        assert engine.recorder.forced == 10
        # One for the prompt; then the first letter and ten digits, as many at a time as there are rows.
        forwards = 1 + -(-11 // (slots + spare))
        assert engine.recorder.forwards == forwards
        steps = engine.recorder.recorded()
        assert steps.forced.sum() == 10 and steps.forwards.sum() == forwards
        assert steps.chunked.sum() == engine.recorder.chunked
    assert "forced: 10 tokens" in engine.recorder.table()


def test_what_a_model_cannot_do_is_refused() -> None:
    class Plain:
        vocabulary_size = WIDTH
        prefill_chunk = 8

        def open(self, slots: int, max_length: int) -> None: ...
        def prefill(self, *arguments: Any) -> None: ...
        def decode(self, *arguments: Any) -> None: ...

    for options, message in (({"overlap": True}, "begin"), ({"forced": True}, "decode_runs")):
        with pytest.raises(ValueError, match=message):
            Engine(Plain(), VOCABULARY, 2, 64, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="spare_rows"):
        Engine(SyntheticModel(WIDTH), VOCABULARY, 2, 64, spare_rows=-1)


class Failing(SyntheticModel):
    """Fails in the forward pass when it is told to."""

    fails = False

    def begin(self, *arguments: Any) -> None:
        super().begin(*arguments)
        if self.fails:
            raise RuntimeError("no")

    def finish(self, cache: Any) -> Any:
        if self.fails:
            raise RuntimeError("not any more")
        return super().finish(cache)


def test_a_forward_pass_that_fails_is_made_again_or_ends_its_requests() -> None:
    grammar = stepmask.compile(stepmask.regex("[ab]0123456789[ab]{9}"), VOCABULARY)
    request = Request([1], grammar, max_tokens=20, temperature=1.0, seed=3)
    expected = answers(served([request], None)[1])
    for overlap in (False, True):
        model = Failing(WIDTH, seed=1)
        engine = Engine(model, VOCABULARY, 3, 160, forced=True, spare_rows=4, overlap=overlap)
        handle = engine.submit(request)
        engine.step()
        model.fails = True
        with pytest.raises(RuntimeError, match="no"):
            engine.step()
        model.fails = False
        engine.run()
        assert answers([handle]) == expected
        # Begun, it cannot be taken back: what was planned meanwhile stands on it.
        model.finish = None  # type: ignore[method-assign, assignment]
        handle = engine.submit(request)
        if overlap:
            with pytest.raises(TypeError):
                engine.run()
            assert handle.finish_reason == "error" and isinstance(handle.error, TypeError)
            assert engine.is_idle


def test_callbacks_of_an_overlapped_loop_come_in_order_and_all(grammars: list[Any]) -> None:
    calls: dict[int, list[int]] = {}
    rng = np.random.default_rng(9)
    base = random_requests(rng, grammars, 12)
    requests = [
        Request(
            request.prompt_ids, request.grammar, max_tokens=request.max_tokens, temperature=1.0, seed=number,
            on_token=lambda token, _, number=number: calls.setdefault(number, []).append(token),
        )
        for number, request in enumerate(base)
    ]  # fmt: skip
    _, handles = served(requests, 1.0, overlap=True, forced=True, spare_rows=3)
    for number, handle in enumerate(handles):
        assert calls.get(number, []) == handle.token_ids

    def fail(token: int, _: float) -> None:
        raise KeyError(token)

    engine = Engine(SyntheticModel(WIDTH, seed=1), VOCABULARY, 2, 64, overlap=True)
    failing = engine.submit(Request([1], max_tokens=9, ignore_eos=True, on_token=fail))
    other = engine.submit(Request([1], max_tokens=9, ignore_eos=True))
    engine.run()
    assert isinstance(failing.error, KeyError) and len(failing.token_ids) == 1
    assert (other.finish_reason, len(other.token_ids)) == ("length", 9)


@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlapped"])
def test_an_overlapped_loop_plans_while_the_model_is_at_work(grammars: list[Any], overlap: bool) -> None:
    """So do callbacks; of the plain loop only prefetch does."""
    events: list[str] = []

    class Noting(SyntheticModel):
        def begin(self, *arguments: Any) -> None:
            events.append("begin")
            super().begin(*arguments)

        def finish(self, cache: Any) -> Any:
            events.append("finish")
            return super().finish(cache)

    engine = Engine(Noting(WIDTH, seed=1), VOCABULARY, 3, 160, budget_us=4.0, overlap=overlap)
    plan = engine.rows.plan
    engine.rows.plan = lambda *arguments, **options: events.append("plan") or plan(*arguments, **options)  # type: ignore
    for number in range(6):
        engine.submit(
            Request([number], grammars[number], max_tokens=9, seed=number, on_token=lambda *_: events.append("hook"))
        )
    engine.run()
    at_work, inside = False, set()
    for event in events:
        if event in ("begin", "finish"):
            assert at_work == (event == "finish")
            at_work = event == "begin"
        elif at_work:
            inside.add(event)
    assert inside == ({"plan", "hook"} if overlap else set())
    assert events.count("begin") == engine.recorder.forwards > 9


@pytest.mark.parametrize(
    "options", [{}, {"prefetch": True}, {"overlap": True, "forced": True}, {"admission": Admission()}]
)
def test_an_engine_goes_with_its_last_reference(options: dict[str, Any]) -> None:
    """Nothing in it refers back to it: its masks and logits do not wait for Python's collector."""
    engine, handles = served(random_requests(np.random.default_rng(1), random_grammars(4), 4), 1.0, **options)
    rows = weakref.ref(engine.rows)
    gc.collect()
    gc.disable()
    try:
        del engine, handles
        assert rows() is None
    finally:
        gc.enable()


def test_what_was_left_in_the_text_output_is_nobodys() -> None:
    """An answer that an engine, or whoever had it before, left there: it is over, and nobody took it."""
    text = InProcessText(VOCABULARY)
    left = text.open(SimpleNamespace(token_ids=[], log_probabilities=[]), (), logprobs=False)
    text.end(left)
    engine = Engine(SyntheticModel(WIDTH, seed=1), VOCABULARY, 2, 160, text=text)
    handle = engine.submit(Request([5], max_tokens=2, ignore_eos=True, text=True))
    engine.run()
    assert handle.is_finished and len(handle.token_ids) == 2
