"""Where the time of a step goes: a ring of the last steps by phase, rows by outcome, fuel, and whose work it was.

`report.table` and `trace.chrome_trace` show what was recorded. `docs/recorder.md` says how to read them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from ...masks.layout import DEFERRED, READY, VERIFIED
from .charges import Charges

#: The phases of a step, in the order of their first work in it and of the recorder's columns: prompts into the cache;
#: masks; the model's forward pass; sampling; tokens of rows without masks; taking the tokens in; the callers'
#: `on_token`; tokens handed to whoever makes text of them, and texts taken; everything else (seating, stop checks).
PHASES = ("prefill", "plan", "forward", "sampling", "settle", "advance", "hooks", "text", "other")
#: Those that are the model's. The others are the step thread's.
MODEL_PHASES = ("prefill", "forward")
#: What became of a row in a step: sampled under its mask, or none needed; without it, the same token; no token yet.
OUTCOMES = ("ready", "verified", "deferred")
#: Finished requests that are kept of those that were without a mask, the worst; 0.1 kB each.
MAX_WAITS = 256
_COLUMN = {phase: i for i, phase in enumerate(PHASES)}


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
        self._times = [0.0] * len(PHASES)
        self._started = 0.0
        self._last = 0.0

    def start(self) -> None:
        """Begin a step: all phases back to zero."""
        self._times = [0.0] * len(PHASES)
        self._started = self._last = self._clock()

    def mark(self, phase: str) -> float:
        """Charge the time since `start` or the last mark to `phase`, which may be charged repeatedly; those seconds."""
        now = self._clock()
        seconds = now - self._last
        self._times[_COLUMN[phase]] += seconds
        self._last = now
        return seconds

    def read(self) -> float:
        """The time now."""
        return self._clock()

    @property
    def started(self) -> float:
        """When the step began."""
        return self._started

    @property
    def last(self) -> float:
        """When the last phase ended."""
        return self._last

    @property
    def times(self) -> list[float]:
        """Seconds by phase of the step so far."""
        return self._times


@dataclass(frozen=True)
class Steps:
    """The recorded steps, oldest first; arrays of one entry a step."""

    #: When each began, float64, seconds on the engine's clock.
    starts: npt.NDArray[np.float64]
    #: Seconds by phase, float64[steps, len(PHASES)].
    times: npt.NDArray[np.float64]
    #: Rows by outcome, int64[steps, len(OUTCOMES)].
    outcomes: npt.NDArray[np.int64]
    #: Units of fuel that `plan`, `settle` and `advance` spent, int64.
    fuel: npt.NDArray[np.int64]
    #: Tokens taken without logits because they were the only legal ones; tokens that went through a forward pass beside
    #: another one of the same row; and forward passes, 0 or 1; int32.
    forced: npt.NDArray[np.int32]
    chunked: npt.NDArray[np.int32]
    forwards: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True)
class Waits:
    """Steps in which one request had no mask: with a token all the same, and without."""

    who: str
    verified: int
    deferred: int


def _badness(waits: Waits) -> tuple[int, int]:
    return waits.deferred, waits.verified


class Recorder:
    """The last `capacity` steps, in a ring allocated once (124 bytes a step), and sums over all steps.

    `charges` holds calls by request: "seat" (a request into its slot), "prefill", "on_token", "collect" (Python's
    garbage collector, between steps or in forward passes).
    """

    def __init__(self, capacity: int = 65_536, charges: Charges | None = None) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self._steps = 0
        self._ring = Steps(
            np.zeros(capacity), np.zeros((capacity, len(PHASES))), np.zeros((capacity, len(OUTCOMES)), np.int64),
            np.zeros(capacity, np.int64), *(np.zeros(capacity, np.int32) for _ in range(3)),
        )  # fmt: skip
        #: Sums of `Steps.forced`, `Steps.chunked` and `Steps.forwards` over all steps.
        self.forced = self.chunked = self.forwards = 0
        self._outcomes = np.zeros(len(OUTCOMES), np.int64)
        self.charges = charges or Charges()
        # Of the rows' present requests, by slot; they go into `_waited` when they leave.
        self._names: list[str] = []
        self._verified = np.zeros(0, np.int64)
        self._deferred = np.zeros(0, np.int64)
        # A heap of (badness, number, what waited): the least bad first.
        self._waited: list[tuple[int, int, int, Waits]] = []
        self._left = 0

    @property
    def steps(self) -> int:
        """Steps recorded since the start or the last `clear`, also those no longer in the ring."""
        return self._steps

    def open(self, slots: int) -> None:
        """Make room for the rows of an engine."""
        self._names = [""] * slots
        self._verified = np.zeros(slots, np.int64)
        self._deferred = np.zeros(slots, np.int64)

    def seated(self, row: int, who: str) -> None:
        """A request has taken an empty row."""
        self._names[row] = who
        self._verified[row] = self._deferred[row] = 0

    def left(self, row: int) -> None:
        """The request in `row` is over."""
        if self._verified[row] or self._deferred[row]:
            waits = self._waits_of(row)
            self._left += 1
            keep = heapq.heappush if len(self._waited) < MAX_WAITS else heapq.heappushpop
            keep(self._waited, (*_badness(waits), self._left, waits))
        self._names[row] = ""
        self._verified[row] = self._deferred[row] = 0

    def waited(self, status: npt.NDArray[np.uint8]) -> None:
        """`Outcome.status` of a step, one entry a row."""
        self._verified += status == VERIFIED
        self._deferred += status == DEFERRED

    def add(
        self,
        times: Sequence[float] | npt.NDArray[np.float64],
        outcomes: Sequence[int] = (0, 0, 0),
        *,
        start: float = 0.0,
        fuel: int = 0,
        forced: int = 0,
        chunked: int = 0,
        forwards: int = 0,
    ) -> None:
        """Record one step: seconds by phase, in the order of `PHASES`; rows by outcome, in that of `OUTCOMES`."""
        at = self._steps % len(self._ring)
        self._ring.starts[at] = start
        self._ring.times[at] = times
        self._ring.outcomes[at] = outcomes
        self._ring.fuel[at] = fuel
        self._ring.forced[at] = forced
        self._ring.chunked[at] = chunked
        self._ring.forwards[at] = forwards
        self.forced += forced
        self.chunked += chunked
        self.forwards += forwards
        self._outcomes += outcomes
        self._steps += 1

    def clear(self) -> None:
        """Forget all steps, and whose work they were."""
        self._steps = self.forced = self.chunked = self.forwards = 0
        self._outcomes[:] = 0
        self._verified[:] = 0
        self._deferred[:] = 0
        self.charges.clear()
        self._waited.clear()

    def waits(self, most: int = 5) -> list[Waits]:
        """The requests that were without a mask in the most steps, those with the most deferrals first."""
        late = np.flatnonzero(self._verified + self._deferred).tolist()
        return heapq.nlargest(
            most, [*(waited[-1] for waited in self._waited), *map(self._waits_of, late)], key=_badness
        )

    def _waits_of(self, row: int) -> Waits:
        return Waits(self._names[row], int(self._verified[row]), int(self._deferred[row]))

    def recorded(self) -> Steps:
        """A copy of the steps in the ring."""
        size, ring = len(self._ring), self._ring
        order = np.arange(max(0, self._steps - size), self._steps) % size
        arrays = (getattr(ring, field.name)[order] for field in fields(Steps))
        return Steps(*arrays)

    def times(self) -> npt.NDArray[np.float64]:
        """A copy of the recorded times, float64[steps in the ring, len(PHASES)], seconds, oldest first."""
        return self.recorded().times

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
        """`report.table` of this recorder."""
        from .report import table

        return table(self)
