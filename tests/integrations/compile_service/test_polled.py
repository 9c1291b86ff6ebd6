"""A service without a thread: whoever owns the process polls it, as the engine does between steps."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any

import pytest
from compile_cases import PATIENCE, VOCABULARY, Make, Runs, check, children, error_of, is_running, spec, wait_until
from thread_calls import counted_calls

import stepmask
from stepmask.integrations.compile_service import (
    CompileFailed,
    CompileServiceClosed,
    CompileTimeout,
    CompileWorkerDied,
)
from stepmask.integrations.compile_service.supervisor import Supervisor
from stepmask.integrations.engine import Engine, Handle, Request
from stepmask.integrations.engine.synthetic import SyntheticModel

PATTERNS = [f"[a-f]{{{n},{n + 4}}}x" for n in range(1, 9)]


def serve(service: Any, patterns: list[str], overlap: bool = False) -> list[Handle]:
    engine = Engine(SyntheticModel(257, seed=1), VOCABULARY, 4, 64, compiler=service, overlap=overlap)
    handles = [
        engine.submit(Request([n], spec(pattern), max_tokens=30, temperature=1.0, seed=n))
        for n, pattern in enumerate(patterns)
    ]
    engine.run()
    return handles


@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlapped"])
def test_the_engine_polls_it_and_answers_are_the_same(make: Make, overlap: bool) -> None:
    before = threading.active_count()
    with counted_calls() as calls:
        polled = serve(make(threaded=False), PATTERNS, overlap)
        assert threading.active_count() == before and not calls
        threaded = serve(make(), PATTERNS, overlap)
        assert threading.active_count() == before + 1
    # That thread is what a step loop does not want beside it.
    assert sum(count for (name, _), count in calls.items() if name == "stepmask compile service") > 100
    assert [handle.token_ids for handle in polled] == [handle.token_ids for handle in threaded]
    assert all(handle.finish_reason == "stop" for handle in polled)


def test_waiting_calls_poll_for_themselves(make: Make, tmp_path: Path) -> None:
    service = make(threaded=False, grace_s=0.2)
    assert service.wait_until_ready(PATIENCE)
    check(service.compile(spec("[ab]{2,5}")), "[ab]{2,5}")
    check(service.compile(stepmask.regex("a|b")), "a|b")
    with pytest.raises(stepmask.GrammarSyntaxError):
        service.compile(spec("(a"))
    with pytest.raises(FutureTimeout):
        service.compile(spec("!deaf"), timeout=0.3)
    with pytest.raises(CompileTimeout):
        service.compile(spec("!deaf"), time_limit_s=0.2)
    check(service.compile(spec("c")), "c")
    assert service.patience() is None


def test_it_is_told_when_to_poll(make: Make, tmp_path: Path, runs: Runs) -> None:
    service = make(threaded=False)
    assert service.fileno() == -1 and service.patience() is None
    service.poll()
    future = service.submit(spec("abc"))
    assert service.fileno() >= 0
    service.poll()  # starts the worker, which has a time limit to be ready
    patience = service.patience()
    assert patience is not None and 0 < patience <= service.bounds.start_limit_s
    end = time.monotonic() + PATIENCE
    while not future.done():
        assert time.monotonic() < end
        service.poll()
        time.sleep(0.005)
    check(future.result(), "abc")


def test_killed_workers_are_replaced(make: Make, tmp_path: Path) -> None:
    service = make(threaded=False)
    assert service.wait_until_ready(PATIENCE)
    first = service.worker_pids[0]
    os.kill(first, signal.SIGKILL)
    handles = serve(service, [*PATTERNS, "!die"])
    assert all(handle.finish_reason == "stop" for handle in handles[:-1])
    assert isinstance(handles[-1].error, CompileWorkerDied)
    assert not is_running(first) and service.counts.workers_died >= 3


@pytest.mark.parametrize("most", [1, 2])
def test_a_poll_takes_so_many_answers_and_no_more(make: Make, tmp_path: Path, runs: Runs, most: int) -> None:
    service = make(workers=2, threaded=False, max_answers_per_poll=most)
    assert service.wait_until_ready(PATIENCE)
    gates = [f"!gate {tmp_path}/gate;{pattern}" for pattern in ("a", "b")]
    futures = [service.submit(spec(gate)) for gate in gates]
    service.poll()
    wait_until(lambda: set(gates) <= set(runs()))
    (tmp_path / "gate").touch()
    seen = []
    while not all(future.done() for future in futures):
        time.sleep(0.3)  # both answers may be there by then
        service.poll()
        seen.append(sum(future.done() for future in futures))
    assert all(after - before <= most for before, after in zip([0, *seen], seen, strict=False))
    for future, pattern in zip(futures, ("a", "b"), strict=True):
        check(future.result(), pattern)


def test_closing_ends_everything(make: Make, tmp_path: Path) -> None:
    service = make(threaded=False)
    assert service.wait_until_ready(PATIENCE)
    future = service.submit(spec("!spin"))
    service.poll()
    service.close()
    service.close()
    assert isinstance(error_of(future), CompileServiceClosed) and children() == []
    with pytest.raises(CompileServiceClosed):
        service.submit(spec("a"))
    service.poll()


def test_an_error_in_it_is_raised_where_it_is_polled(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Supervisor, job: object, message: object, descriptors: list[int]) -> None:
        os.close(descriptors[0])
        raise RuntimeError("a bug in the supervisor")

    monkeypatch.setattr(Supervisor, "_adopt", broken)
    service = make(threaded=False)
    future = service.submit(spec("a"))
    with pytest.raises(RuntimeError, match="a bug"):
        service.wait_until_ready(PATIENCE)
        while True:
            service.poll()
    assert isinstance(error_of(future), CompileFailed) and service.worker_pids == []
    service.poll()
    with pytest.raises(CompileServiceClosed, match="a bug"):
        service.submit(spec("b"))


def test_a_request_that_waits_for_a_grammar_is_cancelled_at_once(make: Make, tmp_path: Path) -> None:
    service = make(threaded=False)
    engine = Engine(SyntheticModel(257, seed=1), VOCABULARY, 2, 64, compiler=service)
    handle = engine.submit(Request([1], spec("!spin")))
    engine.step()
    handle.cancel()
    assert handle.finish_reason == "cancelled"
    other = engine.submit(Request([1], spec("abc")))
    engine.run()
    assert other.finish_reason == "stop"
