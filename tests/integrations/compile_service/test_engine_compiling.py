"""The engine with a compile service: a request whose grammar is being compiled holds no slot, and no step waits."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from compile_cases import PATIENCE, VOCABULARY, Gate, Make, Runs, spec, wait_until

import stepmask
from stepmask.integrations.compile_service import (
    CompileOutOfMemory,
    CompileQueueFull,
    CompileService,
    CompileTimeout,
    CompileWorkerDied,
)
from stepmask.integrations.engine import Engine, Handle, Request
from stepmask.integrations.engine.synthetic import SyntheticModel

WIDTH = 257
PATTERNS = [
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
    r"(?:yes|no), because [a-z ]{5,20}\.",
    r"[a-z]{3,8}@[a-z]{3,8}\.com",
    "red|blue",
]


def engine_of(compiler: CompileService | None, slots: int = 4) -> Engine:
    return Engine(SyntheticModel(WIDTH, seed=1), VOCABULARY, slots, 256, compiler=compiler)


def request(number: int, grammar: Any, **settings: Any) -> Request:
    return Request([number % 256, 7], grammar, **{"max_tokens": 60, "temperature": 1.0, "seed": number, **settings})


def alone(number: int, pattern: str) -> tuple[list[int], str | None]:
    """The answer that an engine of its own gives, the grammar compiled before."""
    handle = engine_of(None).submit(request(number, stepmask.compile(stepmask.regex(pattern), VOCABULARY)))
    handle.result()
    return handle.token_ids, handle.finish_reason


def outcome(handle: Handle) -> tuple[list[int], str | None]:
    return handle.token_ids, handle.finish_reason


def test_specifications_grammars_futures_and_compiled_give_the_same_answers(make: Make) -> None:
    service = make(workers=2)
    engine = engine_of(service)
    handles = []
    for number in range(24):
        pattern = PATTERNS[number % 4]
        forms = [
            lambda p: spec(p),
            stepmask.regex,
            lambda p: service.submit(spec(p)),
            lambda p: stepmask.compile(stepmask.regex(p), VOCABULARY),
        ]
        handles.append(engine.submit(request(number, forms[number // 4 % 4](pattern))))
    engine.run()
    assert engine.is_idle and engine.compiling == 0
    for number, handle in enumerate(handles):
        assert outcome(handle) == alone(number, PATTERNS[number % 4])
    assert service.counts.started <= 2 * len(PATTERNS)  # by text and by rules


def test_no_slot_is_held_and_no_step_waits(make: Make, tmp_path: Path, runs: Runs) -> None:
    service = make()
    engine = engine_of(service, slots=1)
    gate = Gate(service, tmp_path, runs)
    compiling = [engine.submit(request(number, spec(gate.text))) for number in range(3)]
    assert engine.compiling == 3 and not engine.is_idle and engine.running == 0
    # Meanwhile the only slot serves others, to their end.
    other = engine.submit(request(9, stepmask.compile(stepmask.regex(PATTERNS[0]), VOCABULARY)))
    plain = engine.submit(request(10, None, max_tokens=5, ignore_eos=True))
    while not (other.is_finished and plain.is_finished):
        engine.step()
        assert engine.running <= 1 and not any(handle.is_finished for handle in compiling)
    assert outcome(other) == alone(9, PATTERNS[0])
    engine.step()  # with nothing to run it returns at once
    assert engine.running == 0
    steps = engine.recorder.steps
    # Where there is nothing else to do, the engine sleeps until the grammar is there.
    opener = threading.Timer(0.3, gate.open)
    opener.start()
    engine.run()
    opener.join()
    assert all(handle.finish_reason == "stop" and len(handle.token_ids) == 4 for handle in compiling)
    assert engine.recorder.steps - steps <= 3 * 5 + 3
    assert list(engine.submit(request(1, spec("abc")))) == [97, 98, 99]


def test_failures_end_only_their_own_request(make: Make, tmp_path: Path, runs: Runs) -> None:
    service = make(workers=2, time_limit_s=PATIENCE)
    engine = engine_of(service)
    late = service.submit(spec("!deaf"), time_limit_s=0.2)
    failing = {
        "syntax": engine.submit(request(0, spec("(a"))),
        "killed": engine.submit(request(0, spec("!die"))),
        "late": engine.submit(request(0, late)),
        "no grammar": engine.submit(request(0, "a text")),
    }
    wrong: Future[object] = Future()
    failing["wrong"] = engine.submit(request(0, wrong))
    wrong.set_result("not a grammar")
    good = [engine.submit(request(number, spec(PATTERNS[number % 4]))) for number in range(8)]
    engine.run()
    for number, handle in enumerate(good):
        assert outcome(handle) == alone(number, PATTERNS[number % 4])
    assert all(handle.finish_reason == "error" and handle.token_ids == [] for handle in failing.values())
    assert isinstance(failing["syntax"].error, stepmask.GrammarSyntaxError)
    assert isinstance(failing["killed"].error, CompileWorkerDied)
    assert isinstance(failing["late"].error, CompileTimeout)
    assert all(failing[name].error is not None for name in ("no grammar", "wrong"))
    # What can be seen at once is.
    with pytest.raises(stepmask.GrammarUnsupported):
        engine.submit(request(0, {"kind": "perl", "text": "a"}))
    with pytest.raises(ValueError, match="compile service"):
        engine_of(None).submit(request(0, spec("a")))
    with pytest.raises(ValueError, match="prompt_ids"):
        engine.submit(Request([], spec("a")))
    assert engine.is_idle


def test_cancelling_a_request_that_waits_for_its_grammar(make: Make, tmp_path: Path, runs: Runs) -> None:
    service = make(max_queue=2)
    engine = engine_of(service)
    gate = Gate(service, tmp_path, runs)
    first = engine.submit(request(1, spec("shared"), priority=1))
    second = engine.submit(request(2, spec("shared"), tenant="a"))
    lonely = engine.submit(request(3, spec("lonely")))
    with pytest.raises(CompileQueueFull):
        engine.submit(request(4, spec("more")))
    lonely.cancel()
    first.cancel()
    assert outcome(lonely) == outcome(first) == ([], "cancelled") and engine.compiling == 1
    assert lonely.result().finish_reason == "cancelled"  # no step is needed for that
    gate.open()
    engine.run()
    assert outcome(second) == alone(2, "shared")
    assert "lonely" not in runs()


def test_killed_workers_change_no_answer(make: Make, tmp_path: Path, runs: Runs) -> None:
    service = make(workers=2)
    assert service.wait_until_ready(PATIENCE)
    engine = engine_of(service)
    victims = [engine.submit(request(n, spec(f"!die_once {tmp_path}/died{n};{PATTERNS[n]}"))) for n in range(2)]
    handles = [engine.submit(request(number, spec(PATTERNS[number % 4]))) for number in range(4)]
    while any(handle.compiling for handle in handles):
        engine.step_or_wait()
    for pid in service.worker_pids:
        os.kill(pid, signal.SIGKILL)
    handles += [engine.submit(request(number, spec(PATTERNS[number % 4] + "|x"))) for number in range(4, 8)]
    engine.run()
    for number, handle in enumerate(handles):
        assert outcome(handle) == alone(number, PATTERNS[number % 4] + ("|x" if number >= 4 else ""))
    for number, handle in enumerate(victims):
        assert outcome(handle) == alone(number, PATTERNS[number])
    wait_until(lambda: service.waiting == 0)


def test_storms_and_limits_change_no_other_answer(make: Make, tmp_path: Path, runs: Runs) -> None:
    """Cancellation storms, a worker out of memory, a compile that times out and is asked for again, killed workers: all
    while others are served, whose answers are those that they have alone.
    """
    service = make(workers=2, grace_s=60.0, memory_limit_bytes=300 << 20)
    engine = engine_of(service, slots=6)
    good = [engine.submit(request(number, spec(PATTERNS[number % 4]))) for number in range(12)]
    late, memory = spec(f"!gate {tmp_path}/late;{PATTERNS[1]}"), engine.submit(request(0, spec("!hoard")))
    timed_out = engine.submit(request(50, service.submit(late, time_limit_s=0.2)))
    storms: list[Handle] = []
    for wave in range(4):
        storms += [engine.submit(request(100 + n, spec(PATTERNS[n % 4] + f"|{wave}{n}"))) for n in range(30)]
        for _ in range(3):
            engine.step()
        for handle in storms:
            handle.cancel()
        for pid in service.worker_pids[: wave % 2]:
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: timed_out.is_finished or engine.step() is not None)
    (tmp_path / "late").touch()
    again = engine.submit(request(50, late))
    engine.run()
    for number, handle in enumerate(good):
        assert outcome(handle) == alone(number, PATTERNS[number % 4])
    assert isinstance(memory.error, (CompileOutOfMemory, CompileWorkerDied))
    assert isinstance(timed_out.error, (CompileTimeout, CompileWorkerDied))
    assert outcome(again) == alone(50, PATTERNS[1])
    assert all(handle.is_finished for handle in storms) and engine.is_idle
    wait_until(lambda: service.waiting == 0)


def test_closing_the_service_ends_what_compiles(make: Make, tmp_path: Path, runs: Runs) -> None:
    service = make()
    engine = engine_of(service)
    Gate(service, tmp_path, runs)
    waiting = engine.submit(request(1, spec("waits")))
    running = engine.submit(request(2, stepmask.compile(stepmask.regex(PATTERNS[0]), VOCABULARY)))
    engine.step()
    service.close()
    engine.run()
    assert waiting.finish_reason == "error" and outcome(running) == alone(2, PATTERNS[0])
