"""Random traffic with random faults for a while: what is left behind at the end, and whether memory grows."""

from __future__ import annotations

import gc
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import Evictor
from step_cases import MIX, StepCase, fresh, mixed
from step_engine import BackEnd, ScriptedModel

import stepmask
from stepmask.integrations.compile_service import CompileQueueFull
from stepmask.integrations.engine import Engine, Handle, Request

#: Requests that are there at once.
MOST_REQUESTS = 96
#: Kinds of requests that fail: refused, unsatisfiable, not JSON, too slow or too large for the service's limits.
BAD = (
    StepCase("no regex", "regex", "(a", ""),
    StepCase("no schema", "json_schema", "{", ""),
    StepCase("nothing", "json_schema", '{"enum": []}', ""),
    StepCase("too many", "regex", "(?:a{1,900}b{1,900}c?){1,900}(?:[ab]{3,700}d){2,800}", ""),
)
#: Growth of resident memory from the second quarter on that is allocation noise, not a leak: of it, and in megabytes.
MOST_GROWTH, MOST_GROWTH_MB = 0.05, 32


def resident_mb() -> float:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def left_behind() -> dict[str, set[str]]:
    """Child processes, open files, threads and shared memory of this process, by name."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    files = {}
    for link in Path("/proc/self/fd").iterdir():
        try:
            files[link.name] = os.readlink(link)
        except OSError:
            continue
    shared = Path("/dev/shm")
    return {
        "processes": set(children),
        "files": {f"{number}: {name}" for number, name in files.items()},
        "shared memory": {path.name for path in shared.iterdir()} if shared.is_dir() else set(),
        "threads": {path.name for path in Path("/proc/self/task").iterdir()},
    }


class _Traffic:
    """Requests that come and go, and what happens to the processes that serve them."""

    def __init__(self, engine: Engine, back_end: BackEnd, seconds: float, seed: int) -> None:
        self._engine, self._back_end = engine, back_end
        self._begin = time.monotonic()
        self._until = self._begin + seconds
        self._draw = random.Random(seed)
        self._cases = (*MIX, *mixed(40))
        self._handles: list[Handle] = []
        self._number = 0
        self.ends: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        #: (seconds since the beginning, megabytes).
        self.memory: list[tuple[float, float]] = []

    def __call__(self) -> bool:
        """Between two steps; whether the time is over."""
        now, draw = time.monotonic(), self._draw
        if not self.memory or now - self._begin - self.memory[-1][0] > 1.0:
            self.memory.append((now - self._begin, resident_mb()))
        for handle in [one for one in self._handles if one.is_finished]:
            self._handles.remove(handle)
            reason = type(handle.error).__name__ if handle.error is not None else str(handle.finish_reason)
            self.ends[reason] += 1
        if now >= self._until:
            for handle in self._handles:
                handle.cancel()
            return not self._handles
        if len(self._handles) < MOST_REQUESTS and draw.random() < 0.6:
            self._ask()
        if self._handles and draw.random() < 0.03:
            draw.choice(self._handles).cancel()
        if draw.random() < 0.002:
            self._storm()
        if draw.random() < 0.003:
            self._kill()
        return False

    def _ask(self) -> None:
        draw = self._draw
        self._number += 1
        choice = draw.random()
        grammar: Any = None
        if choice < 0.5:
            grammar = self._back_end.known(draw.choice(self._cases))
        elif choice < 0.8:
            grammar = self._back_end.compiling(fresh(self._number % 5000))
        elif choice < 0.9:
            grammar = self._back_end.compiling(draw.choice(BAD))
        texts = draw.random() < 0.5
        request = Request(
            [draw.randrange(1 + len(self._cases))], grammar, max_tokens=draw.randint(1, 120), seed=self._number,
            temperature=draw.choice([0.0, 1.0]), top_p=draw.choice([1.0, 0.9]), text=texts,
            logprobs=texts and draw.random() < 0.5, stop=("mill",) if draw.random() < 0.1 else (),
        )  # fmt: skip
        try:
            self._handles.append(self._engine.submit(request))
        except (CompileQueueFull, stepmask.GrammarError) as error:
            self.ends[f"at once {type(error).__name__}"] += 1

    def _storm(self) -> None:
        self.faults["cancelled at once"] += 1
        for handle in self._handles:
            handle.cancel()

    def _kill(self) -> None:
        service, text = self._back_end.service, self._back_end.text
        pids = list(service.worker_pids) if service is not None else []
        what = "worker killed"
        if self._draw.random() < 0.3:
            pid = getattr(text, "pid", None)
            pids, what = ([] if pid is None else [pid]), "text process killed"
        for pid in pids[:1]:
            os.kill(pid, signal.SIGKILL)
            self.faults[what] += 1


def soak(vocabulary: Any, split: Callable[[str], list[int]], seconds: float, slots: int, seed: int = 0) -> str:
    """Serve random traffic for so long. Raises AssertionError where memory grows or anything is left behind."""
    gc.collect()
    before = left_behind()
    back_end = BackEnd("stepmask", vocabulary, None, 200.0)
    scripts = [split(" the river runs past old mills" * 8)]
    scripts += [split(case.sample) for case in (*MIX, *mixed(40))]
    model = ScriptedModel(vocabulary, scripts, 0.001, Evictor(1))
    rows = back_end.rows(slots, 2 * slots)
    for case in (*MIX, *mixed(40)):
        back_end.known(case)
    engine = Engine(
        model, vocabulary, slots, 1024, budget_us=200.0, compiler=back_end.service, rows=rows, text=back_end.text,
        overlap=back_end.overlap,
    )  # fmt: skip
    traffic = _Traffic(engine, back_end, seconds, seed)
    try:
        engine.run(until=traffic)
    finally:
        back_end.close()
    steps = engine.recorder.steps
    memory = [megabytes for at, megabytes in traffic.memory if at >= seconds / 4]
    first, last = sorted(memory[: max(1, len(memory) // 4)]), sorted(memory[-max(1, len(memory) // 4) :])
    early, late = first[len(first) // 2], last[len(last) // 2]
    ends, faults = traffic.ends, traffic.faults
    del traffic, engine, rows, model, back_end
    gc.collect()
    deadline = time.monotonic() + 10
    left: dict[str, set[str]] = {}
    while time.monotonic() < deadline:
        left = {what: names - before[what] for what, names in left_behind().items()}
        if not any(left.values()):
            break
        time.sleep(0.1)
    lines = [
        f"{steps} steps; requests: " + ", ".join(f"{count} {end}" for end, count in ends.most_common()),
        "faults: " + ", ".join(f"{count} {what}" for what, count in faults.most_common()),
        f"resident memory: {early:.0f} MB in the second quarter, {late:.0f} MB in the last",
        "left behind: " + ("; ".join(f"{what} {sorted(names)}" for what, names in left.items() if names) or "nothing"),
    ]
    report = "\n".join(lines)
    assert not any(left.values()), report
    assert late - early <= max(MOST_GROWTH * early, MOST_GROWTH_MB), report
    return report
