"""What the recorder says of steps, with a clock that the test moves: phases, outcomes, fuel, culprits, traces."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmask
from stepmask.grammar.limits import Limits
from stepmask.integrations.engine import Engine, Request
from stepmask.integrations.engine.charges import Charges
from stepmask.integrations.engine.recorder import MAX_WAITS, PHASES, Recorder, StepClock
from stepmask.integrations.engine.report import bottleneck, table
from stepmask.integrations.engine.synthetic import SyntheticModel
from stepmask.integrations.engine.trace import chrome_trace, write_chrome_trace
from stepmask.masks.layout import DEFERRED, READY, VERIFIED

WIDTH = 257


class Clock:
    """A clock that stands still until it is moved, in seconds."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += seconds


class SlowModel(SyntheticModel):
    """Its calls move the clock."""

    def __init__(self, clock: Clock, decode_s: float, prefill_s: float) -> None:
        super().__init__(WIDTH, seed=1, prefill_chunk=4)
        self._clock, self._decode_s, self._prefill_s = clock, decode_s, prefill_s

    def decode(self, cache: Any, tokens: Any, positions: Any) -> Any:
        self._clock.move(self._decode_s)
        return super().decode(cache, tokens, positions)

    def prefill(self, cache: Any, slot: int, tokens: Any, start: int) -> None:
        self._clock.move(self._prefill_s)
        super().prefill(cache, slot, tokens, start)


@pytest.fixture(scope="module")
def vocabulary() -> stepmask.Vocabulary:
    return stepmask.Vocabulary.from_bytes([bytes([byte]) for byte in range(256)] + [b""], eos=[256], special=[256])


def record(recorder: Recorder, steps: list[dict[str, float]], clock: Clock) -> None:
    step_clock = StepClock(clock)
    for times in steps:
        step_clock.start()
        for phase, seconds in times.items():
            clock.move(seconds)
            assert step_clock.mark(phase) == pytest.approx(seconds)
        recorder.add(step_clock.times, (3, 2, 1), start=step_clock.started, fuel=10)


def test_each_phase_is_charged() -> None:
    recorder = Recorder(capacity=4)
    clock = StepClock(fake := Clock())
    for step in range(6):
        clock.start()
        for phase, seconds in (("forward", 1.0 + step), ("plan", 0.25), ("sampling", 0.5), ("plan", 0.25)):
            fake.move(seconds)
            clock.mark(phase)
        recorder.add(clock.times)
    assert recorder.steps == 6
    assert recorder.times().shape == (4, len(PHASES))
    # The ring holds the last steps, oldest first.
    assert recorder.times()[:, PHASES.index("forward")] == pytest.approx([3.0, 4.0, 5.0, 6.0])
    percentiles = recorder.percentiles()
    assert percentiles["plan"].p50 == pytest.approx(0.5)
    assert percentiles["forward"].p50 == pytest.approx(4.5)
    assert percentiles["step"].maximum == pytest.approx(7.0)
    assert percentiles["prefill"].maximum == 0.0
    assert recorder.table().splitlines()[0].split() == ["ms", "p50", "p99", "max"]
    recorder.clear()
    assert recorder.percentiles()["step"].p99 == 0.0
    assert not bottleneck(recorder).step and recorder.table().endswith("0 deferred")


def test_the_engine_charges_time_to_the_phase_and_the_request_that_took_it(vocabulary: stepmask.Vocabulary) -> None:
    clock = Clock()

    def hook(seconds: float) -> Callable[[int, float], None]:
        return lambda token, log_probability: clock.move(seconds)

    engine = Engine(SlowModel(clock, 0.008, 0.5), vocabulary, 2, 64, clock=clock)
    for prompt, seconds, tenant in (([1], 0.001, ""), ([1] * 9, 0.03, "b")):
        request = Request(prompt, max_tokens=5, ignore_eos=True, on_token=hook(seconds), tenant=tenant)
        engine.submit(request)
    engine.run()
    totals = dict(zip(PHASES, engine.recorder.times().sum(axis=0).tolist(), strict=True))
    # A prompt of nine tokens: two chunks of four before the last, the first step with the other request alone.
    steps = engine.recorder.steps
    assert steps == 6
    assert totals["prefill"] == pytest.approx(1.0)
    assert totals["forward"] == pytest.approx(steps * 0.008)
    assert totals["hooks"] == pytest.approx(5 * 0.001 + 5 * 0.03)
    assert totals["plan"] == totals["sampling"] == totals["settle"] == totals["advance"] == totals["other"] == 0.0
    by_name = {(entry.what, entry.who): entry for entry in engine.recorder.charges.longest(most=100)}
    slow = by_name["on_token", "request 2 of b"]
    assert (slow.count, slow.longest) == (5, pytest.approx(0.03))
    assert by_name["on_token", "request 1"].total == pytest.approx(0.005)
    assert by_name["prefill", "request 2 of b"].longest == pytest.approx(0.5)
    starts = engine.recorder.recorded().starts
    assert starts[0] == 100.0 and starts[1:] == pytest.approx(100 + np.cumsum(engine.recorder.times().sum(axis=1))[:-1])


def test_a_failing_hook_is_charged_too(vocabulary: stepmask.Vocabulary) -> None:
    clock = Clock()

    def fail(token: int, log_probability: float) -> None:
        clock.move(0.25)
        raise ValueError

    engine = Engine(SlowModel(clock, 0.001, 0.0), vocabulary, 1, 64, clock=clock)
    assert engine.submit(Request([1], on_token=fail, ignore_eos=True)).result().finish_reason == "error"
    assert engine.recorder.percentiles()["hooks"].maximum == pytest.approx(0.25)


def test_the_report_names_the_bottleneck_and_the_culprit() -> None:
    clock, recorder = Clock(), Recorder()
    recorder.open(3)
    record(recorder, [{"forward": 0.008, "sampling": 0.001, "hooks": 0.0001}] * 300, clock)
    recorder.charges.add("on_token", "request 7", 0.05, clock.now)
    recorder.charges.add("on_token", "request 8", 0.0001, clock.now)
    record(recorder, [{"forward": 0.008, "sampling": 0.001, "hooks": 0.0501}], clock)
    found = bottleneck(recorder)
    assert found.is_model and found.phase == "sampling"
    assert found.excess == pytest.approx(0.05 / 3, rel=1e-3)  # the slowest 1% are three steps
    assert found.slow_phase == "hooks" and "on_token of request 7" in found.culprit and "50.000 ms" in found.culprit
    text = table(recorder)
    assert "bottleneck: the model" in text and "on_token, request 7" in text
    assert "rows: 903 ready, 602 verified, 301 deferred" in text and "fuel: 10 a step" in text


def test_the_step_thread_can_be_the_bottleneck_and_a_request_without_masks_the_culprit() -> None:
    clock, recorder = Clock(), Recorder()
    recorder.open(3)
    recorder.seated(0, "request 1")
    recorder.seated(2, "request 2")
    for _ in range(4):
        recorder.waited(np.array([VERIFIED, READY, DEFERRED], np.uint8))
    recorder.left(2)
    recorder.seated(2, "request 3")
    recorder.waited(np.array([READY, READY, VERIFIED], np.uint8))
    record(recorder, [{"forward": 0.001, "plan": 0.002}] * 50 + [{"forward": 0.001, "plan": 0.009}], clock)
    waits = [(wait.who, wait.verified, wait.deferred) for wait in recorder.waits()]
    assert waits == [("request 2", 0, 4), ("request 1", 4, 0), ("request 3", 1, 0)]
    found = bottleneck(recorder)
    assert not found.is_model and found.phase == found.slow_phase == "plan"
    assert found.culprit.startswith("request 2,") and "deferred in 4" in found.culprit
    assert "bottleneck: the step thread" in recorder.table()
    recorder.clear()
    assert recorder.waits() == []


def test_the_worst_are_kept_when_there_are_many() -> None:
    for most in (1, 4, 40):
        charges = Charges(most=most, slow_s=0.5, slow_calls=3)
        for number in range(100):
            charges.add("seat", f"request {number}", 10.0 if number == 3 else 0.001 * number, float(number))
            assert len(charges.longest(most=100)) <= most
        assert (charges.longest(most=1)[0].who == "request 3") == (most > 1)
        assert charges.longest(most=100)[-1].longest < 0.1
        assert [call.who for call in charges.slow_calls] == ["request 3"]
    # Of random calls the largest sums stay, whenever they came.
    charges, draw = Charges(most=64), random.Random(1)
    totals: Counter[str] = Counter()
    for number in range(5000):
        who, seconds = f"request {number // 2}", draw.random() ** 30
        totals[who] += seconds
        charges.add("seat", who, seconds, float(number))
    kept = {entry.who: entry.total for entry in charges.longest(most=100)}
    assert all(kept.get(who) == pytest.approx(total) for who, total in totals.most_common(10))
    recorder = Recorder()
    recorder.open(1)
    for number in range(2000):
        recorder.seated(0, f"request {number}")
        for _ in range(5 if number == 2 else 1):
            recorder.waited(np.array([DEFERRED], np.uint8))
        recorder.left(0)
    assert recorder.waits(1)[0].who == "request 2"
    assert len(recorder.waits(10_000)) == MAX_WAITS


def test_the_trace_has_every_step_and_phase_where_it_was(tmp_path: Path) -> None:
    clock, recorder = Clock(), Recorder(capacity=3)
    record(recorder, [{"forward": 0.004, "plan": 0.001, "other": 0.0005}] * 5, clock)
    recorder.charges.add("on_token", "request 9", 0.002, clock.now - 0.002)
    write_chrome_trace(recorder, tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert trace == chrome_trace(recorder)
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    steps = [span for span in spans if span["name"].startswith("step ")]
    assert [span["args"]["step"] for span in steps] == [2, 3, 4]
    assert [span["ts"] for span in steps] == pytest.approx([0.0, 5500.0, 11000.0])
    assert all(span["args"]["deferred"] == 1 and span["args"]["fuel"] == 10 for span in steps)
    # The phases fill the step without a gap, in the order of PHASES.
    first = sorted((span for span in spans if span["ts"] < 5499 and span not in steps), key=lambda span: span["ts"])
    assert [span["name"] for span in first] == ["plan", "forward", "other"]
    assert [span["ts"] for span in first] == pytest.approx([0.0, 1000.0, 5000.0])
    (slow,) = [span for span in spans if span["name"] == "on_token, request 9"]
    assert slow["ts"] + slow["dur"] == pytest.approx(16500.0)
    lines = {event["tid"]: event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    assert {lines[span["tid"]] for span in first} == {"step thread", "model"}
    assert chrome_trace(Recorder())["traceEvents"]  # none recorded: names only


def test_steps_record_outcomes_and_fuel(vocabulary: stepmask.Vocabulary) -> None:
    """The sums over the recorded steps are those of the batch's own counters, the fuel within the budget and a walk."""
    grammar = stepmask.compile(
        stepmask.regex("(?:[^,]{1,5},){1,20}"), vocabulary, Limits(max_eager_contexts=0), use_cache=False
    )
    engine = Engine(SyntheticModel(WIDTH, seed=1), vocabulary, 2, 64, budget_us=1.0)
    engine.submit(Request([1], grammar, max_tokens=30, temperature=1.0, seed=3, logprobs=True))
    engine.submit(Request([1], max_tokens=30, ignore_eos=True))
    engine.run()
    steps = engine.recorder.recorded()
    assert dict(zip(("ready", "verified", "deferred"), steps.outcomes.sum(axis=0).tolist(), strict=True)) == (
        engine.recorder.outcomes()
    )
    deferred = engine.recorder.outcomes()["deferred"]
    assert deferred > 0 and steps.fuel.sum() == engine._rows.fuel > 0
    assert [(wait.who, wait.deferred) for wait in engine.recorder.waits()] == [("request 1", deferred)]
