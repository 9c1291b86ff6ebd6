"""Where the time of a step goes: a ring of the last steps' times by phase, percentiles of it, and rows by outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...masks.layout import DEFERRED, READY, VERIFIED

#: The phases of a step in the order of the recorder's columns: prompts into the cache; the model's
#: forward pass; plan and advance; sampling; everything else (seating, stop checks, callbacks).
PHASES = ("prefill", "forward", "grammar", "sampling", "other")
#: What became of a row in a step: sampled under its mask, or none needed; without it, the same token; no token yet.
OUTCOMES = ("ready", "verified", "deferred")


def count_outcomes(status: npt.NDArray[np.uint8]) -> tuple[int, int, int]:
    """How many rows of `Outcome.status` are of each of `OUTCOMES`."""
    counts = np.bincount(status, minlength=DEFERRED + 1)
    return int(counts[READY]), int(counts[VERIFIED]), int(counts[DEFERRED])


@dataclass(frozen=True)
class PhaseTimes:
    """Percentiles of one phase over the recorded steps, in seconds."""

    p50: float
    p99: float
    maximum: float


class StepClock:
    """Times one step: each call of `mark` charges the time since the last one to a phase."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times = np.zeros(len(PHASES))
        self._last = 0.0

    def start(self) -> None:
        """Begin a step: all phases back to zero."""
        self._times[:] = 0.0
        self._last = self._clock()

    def mark(self, phase: str) -> None:
        """Charge the time since `start` or the last mark to `phase`; a phase may be charged repeatedly."""
        now = self._clock()
        self._times[PHASES.index(phase)] += now - self._last
        self._last = now

    @property
    def times(self) -> npt.NDArray[np.float64]:
        """Seconds by phase of the step so far, float64[len(PHASES)]. Valid until the next `start`."""
        return self._times


class Recorder:
    """Times by phase of the last `capacity` steps, in a ring allocated once, and rows by outcome of all steps."""

    def __init__(self, capacity: int = 65_536) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self._times = np.zeros((capacity, len(PHASES)))
        self._outcomes = np.zeros(len(OUTCOMES), np.int64)
        self._steps = 0

    @property
    def steps(self) -> int:
        """Steps recorded since the start or the last `clear`, also those no longer in the ring."""
        return self._steps

    def add(self, times: Sequence[float] | npt.NDArray[np.float64], outcomes: Sequence[int] = (0, 0, 0)) -> None:
        """Record one step: seconds by phase, in the order of `PHASES`; rows by outcome, in that of `OUTCOMES`."""
        self._times[self._steps % len(self._times)] = times
        self._outcomes += outcomes
        self._steps += 1

    def clear(self) -> None:
        """Forget all steps."""
        self._steps = 0
        self._outcomes[:] = 0

    def times(self) -> npt.NDArray[np.float64]:
        """A copy of the recorded times, float64[steps in the ring, len(PHASES)], seconds, in no particular order."""
        recorded: npt.NDArray[np.float64] = self._times[: min(self._steps, len(self._times))].copy()
        return recorded

    def outcomes(self) -> dict[str, int]:
        """Rows by outcome in all steps since the start or the last `clear`."""
        return dict(zip(OUTCOMES, self._outcomes.tolist(), strict=True))

    def percentiles(self) -> dict[str, PhaseTimes]:
        """p50, p99 and maximum of every phase and of the whole "step"; zeros before the first step."""
        times = self.times()
        if not len(times):
            times = np.zeros((1, len(PHASES)))
        columns = np.column_stack([times, times.sum(axis=1)])
        rows = np.percentile(columns, (50, 99, 100), axis=0)
        return {
            name: PhaseTimes(float(rows[0, i]), float(rows[1, i]), float(rows[2, i]))
            for i, name in enumerate((*PHASES, "step"))
        }

    def table(self) -> str:
        """The percentiles as lines of text, in milliseconds, and the rows by outcome."""
        lines = [f"{'ms':<10}{'p50':>10}{'p99':>10}{'max':>10}"]
        for name, phase in self.percentiles().items():
            numbers = (phase.p50, phase.p99, phase.maximum)
            lines.append(f"{name:<10}" + "".join(f"{1e3 * number:>10.3f}" for number in numbers))
        lines.append("rows: " + ", ".join(f"{count} {name}" for name, count in self.outcomes().items()))
        return "\n".join(lines)
