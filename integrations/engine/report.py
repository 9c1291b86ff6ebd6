"""A recorder in words: is the step thread or the model the bottleneck, and which request or hook is the culprit?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .recorder import MODEL_PHASES, PHASES, Recorder

#: The part of the steps that `Bottleneck` calls slow.
SLOW_PART = 0.01
#: Phase -> the kind of call whose longest is named as the culprit where that phase makes steps slow.
_CALLS = {"prefill": "prefill", "hooks": "on_token", "other": "seat"}
#: Phases that take long for rows whose masks are not there.
_MASKS = ("plan", "settle")


@dataclass(frozen=True)
class Bottleneck:
    """What the recorded steps spend their time on, in seconds."""

    #: Mean times of a step: all of it, and the model's part.
    step: float
    model: float
    #: The phase of the step thread that takes most, and its mean.
    phase: str
    phase_seconds: float
    #: How much longer the slowest steps (`SLOW_PART`, at least one) are than the median step, which phase grows most in
    #: them, and by how much.
    excess: float
    slow_phase: str
    slow_seconds: float
    #: What is most likely the cause of those, in words; "" where nothing is known.
    culprit: str

    @property
    def is_model(self) -> bool:
        """Whether the model takes at least half of the steps' time."""
        return self.model >= self.step / 2


def bottleneck(recorder: Recorder) -> Bottleneck:
    """What the recorded steps say; zeros before the first step."""
    times = recorder.times()
    if not len(times):
        times = np.zeros((1, len(PHASES)))
    means = times.mean(axis=0)
    is_model = np.array([phase in MODEL_PHASES for phase in PHASES])
    most = int(np.argmax(np.where(is_model, -1.0, means)))
    totals = times.sum(axis=1)
    slowest = np.argsort(totals)[-max(1, int(len(totals) * SLOW_PART)) :]
    growth = times[slowest].mean(axis=0) - np.median(times, axis=0)
    grown = int(np.argmax(growth))
    return Bottleneck(
        step=float(totals.mean()),
        model=float(means[is_model].sum()),
        phase=PHASES[most],
        phase_seconds=float(means[most]),
        excess=float(totals[slowest].mean() - np.median(totals)),
        slow_phase=PHASES[grown],
        slow_seconds=float(growth[grown]),
        culprit=_culprit(recorder, PHASES[grown]),
    )


def _culprit(recorder: Recorder, phase: str) -> str:
    if phase in _MASKS:
        waits = recorder.waits(1)
        if not waits:
            return ""
        worst = waits[0]
        return f"{worst.who}, without a mask in {worst.verified + worst.deferred} steps, deferred in {worst.deferred}"
    calls = recorder.charges.longest(_CALLS[phase], 1) if phase in _CALLS else []
    if not calls:
        return "the model" if phase in MODEL_PHASES else ""
    return f"{calls[0].what} of {calls[0].who}, at most {_ms(calls[0].longest)}"


def table(recorder: Recorder, most: int = 5) -> str:
    """Times by phase in milliseconds, rows by outcome, fuel, the bottleneck, and the `most` worst calls and waits."""
    lines = [f"{'ms':<10}{'p50':>10}{'p99':>10}{'max':>10}"]
    for name, phase in recorder.percentiles().items():
        numbers = (phase.p50, phase.p99, phase.maximum)
        lines.append(f"{name:<10}" + "".join(f"{1e3 * number:>10.3f}" for number in numbers))
    lines.append("rows: " + ", ".join(f"{count} {name}" for name, count in recorder.outcomes().items()))
    steps = recorder.recorded()
    if not len(steps):
        return "\n".join(lines)
    lines.append(f"fuel: {int(np.median(steps.fuel))} a step at the median, {int(steps.fuel.max())} at most")
    if recorder.forced:
        lines.append(
            f"forced: {recorder.forced} tokens, the only legal ones, needed no logits; {recorder.chunked} shared "
            f"a forward pass with one of their row, {recorder.forwards} forward passes in all"
        )
    found = bottleneck(recorder)
    whose = "the model" if found.is_model else "the step thread"
    lines.append(
        f"bottleneck: {whose}; the model takes {_ms(found.model)} of {_ms(found.step)} a step, the step thread most "
        f"for {found.phase} ({_ms(found.phase_seconds)})"
    )
    lines.append(
        f"slowest steps: {_ms(found.excess)} longer than the median, most of it in {found.slow_phase} "
        f"({_ms(found.slow_seconds)})" + (f": {found.culprit}" if found.culprit else "")
    )
    calls = recorder.charges.longest(most=most)
    if calls:
        lines.append(f"{'longest calls, ms':<40}{'longest':>10}{'total':>10}{'count':>10}")
        for call in calls:
            name = f"{call.what}, {call.who}"
            lines.append(f"{name:<40}{1e3 * call.longest:>10.3f}{1e3 * call.total:>10.3f}{call.count:>10}")
    waits = recorder.waits(most)
    if waits:
        lines.append(f"{'steps without a mask':<40}{'verified':>10}{'deferred':>10}")
        lines.extend(f"{wait.who:<40}{wait.verified:>10}{wait.deferred:>10}" for wait in waits)
    return "\n".join(lines)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3f} ms"
