"""The traffic of bench/step_budget.py: unconstrained and well-behaved rows, and one adversary at a time."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from common import Evictor
from step_cases import MIX, StepCase, fresh
from step_engine import BackEnd, CallTimer, PeerRows, ScriptedModel

from stepmask.integrations.engine import Engine, Handle, Request
from stepmask.integrations.engine.grammar import Rows
from stepmask.integrations.engine.recorder import PHASES
from stepmask.masks.fuel import NO_FUEL_LIMIT

#: Unconstrained rows whose tokens are timed.
VICTIMS = 8
#: Cold grammars of a burst.
BURST = 64
#: Steps between two kills of a worker.
KILL_EVERY = 40
#: Waiting requests past which a scenario adds none of its own: the rest would wait for slots only.
MOST_WAITING = 64


@dataclass(frozen=True)
class Settings:
    """Rows, forward time and steps of each run."""

    batch: int
    forward_s: float
    evict_mb: int
    warm_steps: int
    steps: int
    fresh_s: float
    #: Warm steps, at least, where grammars are to be warm that all rows have: some answers of each.
    known_warm_steps: int = 0


@dataclass(frozen=True)
class Scenario:
    """`structured`: whether well-behaved structured rows take part. `cases`: what the adversary asks for, in turn.

    `pattern` is when: "resident" (as many requests as the adversary has slots, all the time), "fresh" (one every
    `Settings.fresh_s`), "burst" (`BURST` at once, when the timed steps begin), "kill" (as fresh, and the compile
    service's worker is killed every `KILL_EVERY` steps) or "" (no adversary).
    """

    name: str
    structured: bool = True
    cases: tuple[StepCase, ...] = ()
    pattern: str = ""
    is_pool_small: bool = False
    #: What well-behaved rows ask for, if not `MIX`: then all rows but the victims are well-behaved.
    known: tuple[StepCase, ...] = ()
    #: Whether all structured rows want their text and its log-probabilities as JSON.
    texts: bool = False
    #: Whether the structured rows are without grammars, but as they are else.
    is_free: bool = False
    #: The scenario in which nothing is there but what this one does not ask about: its victims' times are compared.
    control: str = "alone"
    #: Whether the caches are left alone by the forward passes.
    is_hot: bool = False

    @property
    def is_control(self) -> bool:
        """Whether others are compared with it, and it with itself."""
        return self.name.startswith("alone")

    def fits(self, back_end: BackEnd) -> bool:
        """Whether it means anything for this back end."""
        is_stepmask = back_end.name.startswith("stepmask")
        return (self.pattern != "kill" or back_end.service is not None) and (not self.is_pool_small or is_stepmask)


@dataclass
class Measured:
    """What one scenario did to one back end; times in seconds, one entry a step or a token."""

    steps: list[float] = field(default_factory=list)
    #: The step thread's time for masks and tokens of grammars (plan, settle, advance; a peer's filling of masks), of
    #: every other step.
    grammar: list[float] = field(default_factory=list)
    #: The same of the steps between as processor time of the step thread, which other processes do not disturb.
    grammar_cpu: list[float] = field(default_factory=list)
    #: Time between two tokens of an unconstrained row.
    victims: list[float] = field(default_factory=list)
    outcomes: dict[str, int] = field(default_factory=dict)
    #: Steps whose counted work passed the budget by more than `Batch.fuel_slack`; the most units of fuel in any step.
    overruns: int = 0
    most_fuel: int = 0
    #: The adversary's requests by how they ended.
    ends: dict[str, int] = field(default_factory=dict)
    workers_killed: int = 0
    report: str = ""

    def add(self, other: Measured) -> None:
        """What another run of the scenario gave."""
        for mine, more in (
            (self.steps, other.steps), (self.grammar, other.grammar), (self.grammar_cpu, other.grammar_cpu),
            (self.victims, other.victims),
        ):  # fmt: skip
            mine.extend(more)
        self.outcomes = {name: count + other.outcomes[name] for name, count in self.outcomes.items()}
        self.ends = dict(Counter(self.ends) + Counter(other.ends))
        self.overruns += other.overruns
        self.most_fuel = max(self.most_fuel, other.most_fuel)
        self.workers_killed += other.workers_killed
        self.report = other.report


class Driver:
    """Keeps the engine's slots full, and adds what the scenario adds. Called before each step."""

    def __init__(self, engine: Engine, back_end: BackEnd, scenario: Scenario, settings: Settings, timer: CallTimer):
        self._engine = engine
        self._back_end = back_end
        self._scenario = scenario
        self._settings = settings
        self._timer = timer
        self._last_cpu = 0.0
        #: Of each step so far, whether its processor time was asked for.
        self._clocked: list[bool] = []
        self._adversary_slots = max(1, settings.batch // 8) if scenario.pattern else 0
        structured = settings.batch // 2 if scenario.structured else 0
        if scenario.known:
            structured = max(1, settings.batch - VICTIMS)
        self._known = scenario.known or MIX
        self._structured: list[Handle | None] = [None] * structured
        self._free: list[Handle | None] = [None] * (settings.batch - structured - self._adversary_slots)
        self._adversaries: list[Handle] = []
        self._asked = 0
        self._seen = 0
        self._last_fresh = 0.0
        self._made = 0
        self._timed = False
        self._times: list[list[float]] = []
        self.measured = Measured()
        self._ends: Counter[str] = Counter()
        self._fuel: tuple[int, int, int] | None = None
        if scenario.known:
            self._limit_warming(True)

    def __call__(self) -> bool:
        """Between two steps; whether the run is over."""
        engine, settings = self._engine, self._settings
        if engine.recorder.steps != self._seen:
            self._clocked.append(self._timer.is_on)
            if self._timer.is_on:
                self.measured.grammar_cpu.append(self._timer.seconds - self._last_cpu)
            self._last_cpu = self._timer.seconds
            self._timer.is_on = not self._timer.is_on
        if not self._timed and engine.recorder.steps >= settings.warm_steps:
            self._timed = True
            self._limit_warming(False)
            engine.recorder.clear()
            self._times = []
            self.measured.grammar_cpu.clear()
            for i, handle in enumerate(self._free[:VICTIMS]):  # with hooks from now on
                if handle is not None:
                    handle.cancel()
                self._free[i] = self._victim()
            if self._scenario.pattern == "burst":
                for _ in range(BURST):
                    self._ask()
        elif self._timed and engine.recorder.steps >= settings.steps:
            return True
        self._seen = engine.recorder.steps
        for i, handle in enumerate(self._free):
            if handle is None or handle.is_finished:
                self._free[i] = self._victim() if self._timed and i < VICTIMS else self._unconstrained(None)
        for i, handle in enumerate(self._structured):
            if handle is None or handle.is_finished:
                self._structured[i] = self._well_behaved(i)
        if self._timed:
            self._adversary()
        return False

    def _limit_warming(self, begins: bool) -> None:
        """Steps before the timed ones have no budget where masks of many grammars are to be there by then."""
        rows = self._engine.rows
        if (
            begins
            and isinstance(rows, Rows)
            and not isinstance(rows, PeerRows)
            and self._back_end.budget_us is not None
        ):
            self._fuel = rows.phase_fuel
            rows.share(*(NO_FUEL_LIMIT // 8,) * 3)
        elif self._fuel is not None:
            rows.share(*self._fuel)
            self._fuel = None

    def _victim(self) -> Handle:
        times: list[float] = []
        self._times.append(times)
        return self._unconstrained(lambda token, log_probability: times.append(time.perf_counter()))

    def _unconstrained(self, hook: Callable[[int, float], None] | None) -> Handle:
        return self._engine.submit(Request([0], max_tokens=10**6, ignore_eos=True, on_token=hook))

    def _well_behaved(self, place: int) -> Handle:
        number = self._made % len(self._known)
        self._made += 1
        grammar = None if self._scenario.is_free else self._back_end.known(self._known[number])
        texts = self._scenario.texts
        # Every eighth row asks for log-probabilities, so it always waits for its mask.
        request = Request(
            [1 + number], grammar, max_tokens=300, logprobs=texts or place % 8 == 7, text=texts, seed=self._made
        )
        return self._engine.submit(request)

    def _adversary(self) -> None:
        pattern = self._scenario.pattern
        for handle in [handle for handle in self._adversaries if handle.is_finished]:
            self._adversaries.remove(handle)
            self._count(handle)
        if pattern == "resident":
            while len(self._adversaries) < self._adversary_slots:
                self._ask()
        elif pattern in ("fresh", "kill"):
            now = time.perf_counter()
            if now - self._last_fresh >= self._settings.fresh_s and len(self._adversaries) < MOST_WAITING:
                self._last_fresh = now
                self._ask()
        if pattern == "kill" and self._engine.recorder.steps % KILL_EVERY == KILL_EVERY // 2:
            service = self._back_end.service
            for pid in (service.worker_pids if service is not None else ())[:1]:
                os.kill(pid, signal.SIGKILL)
                self.measured.workers_killed += 1

    def _ask(self) -> None:
        cases = self._scenario.cases
        number = self._asked % len(cases) if cases else 0
        case = cases[number] if cases else fresh(self._asked)
        self._asked += 1
        script = 1 + len(self._known) + number
        short = 300 if self._scenario.pattern == "resident" else 8
        request = Request([script], self._back_end.compiling(case), max_tokens=short, seed=self._asked)
        self._adversaries.append(self._engine.submit(request))

    def _count(self, handle: Handle) -> None:
        reason = type(handle.error).__name__ if handle.error is not None else str(handle.finish_reason)
        self._ends[reason] += 1

    def finish(self) -> Measured:
        """What was measured. Ends all requests."""
        engine, measured = self._engine, self.measured
        for handle in self._adversaries:
            waits = handle.compiling is not None
            if handle.is_finished:
                self._count(handle)
            else:
                self._ends["still compiling" if waits else "still running"] += 1
            handle.cancel()
        steps = engine.recorder.recorded()
        measured.steps = steps.times.sum(axis=1).tolist()
        columns = [PHASES.index(phase) for phase in ("plan", "settle", "advance")]
        grammar = steps.times[:, columns].sum(axis=1)
        rows = engine.rows
        if isinstance(rows, PeerRows):
            grammar = grammar + np.asarray(rows.fill_s[-len(grammar) :])
        measured.grammar = grammar[~np.array(self._clocked[-len(grammar) :])].tolist()
        measured.victims = [gap for times in self._times for gap in np.diff(times).tolist()]
        measured.outcomes = engine.recorder.outcomes()
        if self._back_end.budget_us is not None and not isinstance(rows, PeerRows):
            measured.overruns = int((steps.fuel > rows.budget + rows.slack).sum())
        measured.most_fuel = int(steps.fuel.max())
        measured.ends = dict(self._ends)
        measured.report = engine.recorder.table()
        for left in (*self._structured, *self._free):
            if left is not None:
                left.cancel()
        engine.run()  # what the text process knows of them is over too
        return measured


def run(back_end: BackEnd, scenario: Scenario, split: Callable[[str], list[int]], settings: Settings) -> Measured:
    """One scenario with a new engine."""
    known = scenario.known or MIX
    if scenario.known:
        settings = replace(settings, warm_steps=max(settings.warm_steps, settings.known_warm_steps))
    for case in known:
        back_end.known(case)
    free = split(" the river runs past old mills" * 40)
    samples = [case.sample for case in scenario.cases] or [fresh(0).sample]
    scripts = [free, *(split(case.sample) for case in known), *map(split, samples)]
    evict = Evictor(0 if scenario.is_hot else settings.evict_mb)
    model = ScriptedModel(back_end.vocabulary, scripts, settings.forward_s, evict)
    rows = back_end.rows(settings.batch, 2 * settings.batch if scenario.is_pool_small else None)
    engine = Engine(
        model, back_end.vocabulary, settings.batch, 4 * (settings.steps + settings.warm_steps) + 1024,
        budget_us=back_end.budget_us, compiler=back_end.service, rows=rows, text=back_end.text,
        overlap=back_end.overlap,
    )  # fmt: skip
    timer = CallTimer(rows, "plan", "settle", "advance", *(("fill",) if isinstance(rows, PeerRows) else ()))
    if isinstance(rows, PeerRows):
        model.during = rows.fill
    driver = Driver(engine, back_end, scenario, settings, timer)
    engine.run(until=driver)
    return driver.finish()
