"""Beside the step runs no Python: what other threads of its process do is counted, call by call."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
from engine_cases import VOCABULARY, WIDTH, forcing_grammars, random_grammars
from thread_calls import counted_calls

from stepmask.integrations.engine import Engine, Request
from stepmask.integrations.engine.synthetic import SyntheticModel
from stepmask.integrations.text import TextProcess

PREFETCH = "stepmask prefetch"


def run(engine: Engine, grammars: list[Any], count: int = 16, **settings: Any) -> None:
    for number in range(count):
        engine.submit(
            Request([number], grammars[number % len(grammars)], max_tokens=30, temperature=1.0, seed=number, **settings)
        )
    engine.run()


@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlapped"])
def test_no_other_thread_runs_python_while_the_engine_steps(overlap: bool) -> None:
    """Text, tokenising and log-probabilities are another process's; the prefetch thread waits or is in its kernel."""
    before = set(threading.enumerate())
    model = SyntheticModel(WIDTH, seed=1, forward_seconds=0.002)
    with counted_calls() as calls, TextProcess(VOCABULARY) as text:
        engine = Engine(
            model,
            VOCABULARY,
            4,
            160,
            budget_us=2.0,
            prefetch=True,
            text=text,
            overlap=overlap,
            forced=True,
            spare_rows=2,
        )
        seen: set[threading.Thread] = set()

        class Watching(type(engine.rows)):  # type: ignore[misc]
            """Looks at all threads in the middle of a step."""

            def sample(self, *arguments: Any) -> Any:
                seen.update(threading.enumerate())
                frames = sys._current_frames()
                for thread in set(threading.enumerate()) - before:
                    names = []
                    frame = frames.get(thread.ident or 0)
                    while frame is not None:
                        names.append(frame.f_code.co_name)
                        frame = frame.f_back
                    assert names == ["_serve", "run", "_bootstrap_inner", "_bootstrap"]
                return super().sample(*arguments)

        engine.rows.__class__ = Watching
        run(engine, [*random_grammars(8), *forcing_grammars()], text=True, logprobs=True, stop=("zz",))
        steps = engine.recorder.steps
        prefetcher = engine.rows._batch.prefetcher
        assert prefetcher is not None and prefetcher.counters["runs"] > 0
        prefetcher.close()
    assert {thread.name for thread in seen - before} == {PREFETCH}
    assert {thread for thread, _ in calls} <= {PREFETCH, ""}
    # Its kernel is native and holds no interpreter lock. Around it there are three calls a step (also one that needs no
    # forward pass, all rows being deferred), besides what begins and ends a thread.
    loop = {name: count for (thread, name), count in calls.items() if thread}
    # Python 3.12 and later do not report calls of compiled functions.
    assert max(loop.pop("acquire"), loop.pop("release"), loop.pop("run_prefetch", 0)) <= steps + 4
    assert sum(loop.values()) < 16
