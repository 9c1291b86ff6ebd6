"""Recorded steps as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing.

The format is the JSON object form of the Trace Event Format (Google, "Trace Event Format", 2016): complete events "X",
counters "C" and metadata "M", times in microseconds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .recorder import MODEL_PHASES, OUTCOMES, PHASES, Recorder

_PROCESS = 1
#: Lines of the trace.
_STEPS, _STEP_THREAD, _MODEL, _SLOW = 1, 2, 3, 4
_LINES = {_STEPS: "steps", _STEP_THREAD: "step thread", _MODEL: "model", _SLOW: "slow calls"}


def chrome_trace(recorder: Recorder) -> dict[str, Any]:
    """The recorded steps, their phases, rows by outcome, fuel, and the slow calls by request, as JSON values.

    A phase is shown in one piece, the phases of a step one after the other in the order of `PHASES`; a phase that came
    in several pieces (hooks and everything else between them) is as long as these together. Time 0 is the beginning of
    the first step.
    """
    steps = recorder.recorded()
    origin = float(steps.starts[0]) if len(steps) else 0.0
    events: list[dict[str, Any]] = [_named("process_name", "stepmask engine")]
    for line, name in _LINES.items():
        events += [_named("thread_name", name, line), _named("thread_sort_index", line, line)]
    first = recorder.steps - len(steps)
    for i in range(len(steps)):
        begin = 1e6 * (float(steps.starts[i]) - origin)
        rows = dict(zip(OUTCOMES, steps.outcomes[i].tolist(), strict=True))
        fuel = int(steps.fuel[i])
        times = dict(zip(PHASES, (1e6 * steps.times[i]).tolist(), strict=True))
        arguments = {"step": first + i, "fuel": fuel, **rows}
        arguments |= {"forced": int(steps.forced[i]), "chunked": int(steps.chunked[i])}
        events.append(_span(f"step {first + i}", _STEPS, begin, sum(times.values()), arguments))
        events += [_counter("rows", begin, rows), _counter("fuel", begin, {"fuel": fuel})]
        for phase, duration in times.items():
            if duration > 0:
                events.append(_span(phase, _MODEL if phase in MODEL_PHASES else _STEP_THREAD, begin, duration, {}))
            begin += duration
    for call in recorder.charges.slow_calls:
        begin = 1e6 * (call.start - origin)
        if begin >= 0:
            events.append(_span(f"{call.what}, {call.who}", _SLOW, begin, 1e6 * call.seconds, {"who": call.who}))
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def write_chrome_trace(recorder: Recorder, path: str | Path) -> None:
    """Write `chrome_trace` to a file; about 1.5 kB a step."""
    Path(path).write_text(json.dumps(chrome_trace(recorder)), encoding="utf-8")


def _span(name: str, line: int, begin: float, duration: float, arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name, "ph": "X", "pid": _PROCESS, "tid": line, "ts": begin, "dur": duration, "args": arguments,
    }  # fmt: skip


def _counter(name: str, at: float, values: dict[str, int]) -> dict[str, Any]:
    return {"name": name, "ph": "C", "pid": _PROCESS, "ts": at, "args": values}


def _named(kind: str, value: str | int, line: int = 0) -> dict[str, Any]:
    key = "sort_index" if kind.endswith("sort_index") else "name"
    return {"name": kind, "ph": "M", "pid": _PROCESS, "tid": line, "args": {key: value}}
