"""Where the time of a step goes: a ring of the last steps' times by phase, and percentiles of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: The phases of a step in the order of the recorder's columns: prompts into the cache; the model's
#: forward pass; plan and advance; sampling; everything else (seating, stop checks, callbacks).
PHASES = ("prefill", "forward", "grammar", "sampling", "other")


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
    """Times of the last `capacity` steps by phase, in a ring allocated once."""

    def __init__(self, capacity: int = 65_536) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self._times = np.zeros((capacity, len(PHASES)))
        self._steps = 0

    @property
    def steps(self) -> int:
        """Steps recorded since the start or the last `clear`, also those no longer in the ring."""
        return self._steps

    def add(self, times: Sequence[float] | npt.NDArray[np.float64]) -> None:
        """Record one step: seconds by phase, in the order of `PHASES`."""
        self._times[self._steps % len(self._times)] = times
        self._steps += 1

    def clear(self) -> None:
        """Forget all steps."""
        self._steps = 0

    def times(self) -> npt.NDArray[np.float64]:
        """A copy of the recorded times, float64[steps in the ring, len(PHASES)], seconds, in no particular order."""
        recorded: npt.NDArray[np.float64] = self._times[: min(self._steps, len(self._times))].copy()
        return recorded

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
        """The percentiles as lines of text, in milliseconds."""
        lines = [f"{'ms':<10}{'p50':>10}{'p99':>10}{'max':>10}"]
        for name, phase in self.percentiles().items():
            numbers = (phase.p50, phase.p99, phase.maximum)
            lines.append(f"{name:<10}" + "".join(f"{1e3 * number:>10.3f}" for number in numbers))
        return "\n".join(lines)
