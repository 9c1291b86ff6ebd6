"""The compile service with real workers: what it gives, how requests share jobs, their order, and how they end."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from compile_cases import PATIENCE, VOCABULARY, Gate, Make, Runs, check, error_of, is_running, spec, wait_until

import stepmask
from stepmask.integrations.compile_service import (
    CompileFailed,
    CompileOutOfMemory,
    CompileQueueFull,
    CompileServiceClosed,
    CompileTimeout,
    CompileWorkerDied,
    process,
)


# -------------------------------------------------------------------------------------------------------------- results
def test_results_and_errors_are_those_of_compile(make: Make, runs: Runs) -> None:
    service = make()
    for pattern in ("[a-z]{1,300}x*", "yes|no|maybe"):
        compiled = service.compile(spec(pattern))
        check(compiled, pattern)
        assert service.compile(spec(pattern)) is compiled
        check(service.compile(stepmask.regex(pattern)), pattern)
    assert service.compile(stepmask.gbnf('root ::= "(" root ")" | "a"')).matcher().accept(ord("("))
    before = len(runs())
    for grammar in (spec("a{3"), spec("(b"), {"kind": "gbnf", "text": "root ::= other"}, spec("^a$b|c", search=True)):
        for _ in range(2):
            try:
                stepmask_error = None
                front_end = getattr(stepmask, grammar["kind"])
                options = {name: value for name, value in grammar.items() if name not in ("kind", "text")}
                stepmask.compile(front_end(grammar["text"], **options), VOCABULARY, use_cache=False)
            except stepmask.GrammarError as error:
                stepmask_error = error
            error = error_of(service.submit(grammar))
            assert type(error) is type(stepmask_error) and str(error) == str(stepmask_error)
            if error is not None:
                assert vars(error) == vars(stepmask_error)
    assert len(runs()) == before + 4
    counts = service.counts
    assert counts.answered >= 2 and counts.answered_with_error >= 2 and counts.workers_died == 0
    unknown = stepmask.reasoning(stepmask.regex("a"), {"token": "<think>"})
    assert isinstance(error_of(service.submit(unknown)), stepmask.GrammarError)
    assert isinstance(error_of(service.submit(spec("a", no_such_option=1))), TypeError)
    limited = make(limits=stepmask.Limits(max_positions=10))
    error = error_of(limited.submit(spec("[ab]{3}x{30,40}y")))
    assert isinstance(error, stepmask.GrammarTooLarge) and error.limit == "max_positions"


def test_equal_requests_share_one_compile(make: Make, tmp_path: Path, runs: Runs) -> None:
    service = make()
    gate = Gate(service, tmp_path, runs)
    futures = [service.submit(spec(f"[a-c]{{{number % 3 + 1}}}")) for number in range(60)]
    # Some of them lose interest; the others do not notice.
    for future in futures[:30]:
        assert future.cancel() and future.cancelled()
    assert service.counts.coalesced == 57
    gate.open()
    for number, future in enumerate(futures[30:], 30):
        check(future.result(PATIENCE), f"[a-c]{{{number % 3 + 1}}}")
        assert future.result() is futures[30 + number % 3].result()
    assert not futures[40].cancel()
    assert len(runs()) == 4 and service.counts.started == 4
    # The one that runs can be joined too, and left by the one that began it.
    gate = Gate(service, tmp_path, runs)
    joined = service.submit(spec(gate.text))
    assert gate.future.cancel()
    gate.open()
    check(joined.result(PATIENCE), "gate")
    assert service.counts.given_up == 0 and service.counts.workers_started == 1


def test_priorities_tenants_and_bounds_of_the_queue(make: Make, tmp_path: Path, runs: Runs) -> None:
    service = make(max_queue=6, max_queue_per_tenant=3, max_queue_bytes=6_000)
    gate = Gate(service, tmp_path, runs)
    futures = [service.submit(spec(f"loud{number}"), tenant="loud") for number in range(3)]
    with pytest.raises(CompileQueueFull, match="max_queue_per_tenant") as refused:
        service.submit(spec("loud3"), tenant="loud")
    assert refused.value.limit == "max_queue_per_tenant"
    futures.append(service.submit(spec("loud1"), tenant="loud"))  # joins
    futures.append(service.submit(spec("quiet"), tenant="quiet"))
    with pytest.raises(CompileQueueFull, match="max_queue_bytes"):
        service.submit(spec("x" * 6_000))
    futures.append(service.submit(spec("first"), priority=2))
    futures.append(service.submit(spec("second"), priority=1))
    with pytest.raises(CompileQueueFull, match=r"max_queue\)"):
        service.submit(spec("other"), tenant="other", priority=9)
    assert service.waiting == 6 and service.counts.refused == 3
    dropped = service.submit(spec("loud2"), tenant="loud")
    assert dropped.cancel() and service.waiting == 6  # another waits for it
    futures.append(service.submit(spec("loud2"), priority=3))  # with the one that waits, before all others
    gate.open()
    for future in futures:
        assert future.result(PATIENCE)
    assert runs()[1:4] == ["loud2", "first", "second"]
    assert sorted(runs()[4:]) == ["loud0", "loud1", "quiet"]
    assert service.submit(spec("other"), tenant="other").result(PATIENCE)  # there is room again


def test_cancelling_hundreds(make: Make, tmp_path: Path, runs: Runs) -> None:
    service = make(max_queue=2_000, grace_s=60.0)
    gate = Gate(service, tmp_path, runs)
    kept = [service.submit(spec(f"kept{number}")) for number in range(5)]
    storm = [service.submit(spec(f"storm{number % 200}[a-z]")) for number in range(600)]
    threads = [threading.Thread(target=lambda i=i: [f.cancel() for f in storm[i::4]]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(future.cancelled() for future in storm)
    assert service.counts.dropped == 200 and service.waiting == 5
    assert gate.future.cancel()  # the one that runs, too: nobody opens the gate
    for number, future in enumerate(kept):
        check(future.result(PATIENCE), f"kept{number}")
    for number in range(20):  # each is given up as soon as it has begun
        text = f"!gate {tmp_path}/never{number};x"
        future = service.submit(spec(text))
        wait_until(lambda text=text: text in runs())
        assert future.cancel()
    check(service.compile(spec("after")), "after")
    counts = service.counts
    assert counts.given_up == 21 and counts.workers_started == 1 and counts.workers_died == 0
    assert not any(text.startswith("storm") for text in runs())


def test_a_worker_that_does_not_give_up_is_replaced(make: Make, runs: Runs) -> None:
    service = make(grace_s=0.2)
    future = service.submit(spec("!deaf"))
    wait_until(lambda: "!deaf" in runs())
    (deaf,) = service.worker_pids
    waiting = service.submit(spec("waiting"))
    assert future.cancel()
    check(waiting.result(PATIENCE), "waiting")
    assert service.worker_pids != [deaf] and not is_running(deaf)
    assert service.counts.given_up == 1 and service.counts.workers_died == 0


# ------------------------------------------------------------------------------------------------------- limits of jobs
def test_time_memory_and_processor_limits(make: Make, tmp_path: Path, runs: Runs) -> None:
    service = make(grace_s=60.0, memory_limit_bytes=300 << 20, max_kept_errors=10)
    path = tmp_path / "late"
    late = spec(f"!gate {path};late")
    error = error_of(service.submit(late, time_limit_s=0.2))
    assert isinstance(error, CompileTimeout) and error.limit == "time_limit_s" and error.seconds == 0.2
    error = error_of(service.submit(spec("!spin"), cpu_limit_s=0.2))
    assert isinstance(error, CompileTimeout) and error.limit == "cpu_limit_s"
    assert isinstance(error_of(service.submit(spec("!translate"), cpu_limit_s=0.2)), CompileTimeout)
    assert service.counts.workers_started == 1  # given up, not killed
    # Nothing of this was remembered: with more time the same request succeeds.
    again = service.submit(late, time_limit_s=PATIENCE)
    path.touch()
    check(again.result(PATIENCE), "late")
    error = error_of(service.submit(spec("!hoard")))
    assert isinstance(error, CompileOutOfMemory) and error.limit_bytes == 300 << 20
    error = error_of(service.submit(spec("!hoard")))
    assert isinstance(error, CompileOutOfMemory)
    check(service.compile(spec("other")), "other")
    assert runs().count("!hoard") == 2
    counts = service.counts
    assert (counts.timed_out, counts.out_of_memory, counts.workers_died) == (3, 2, 0)
    with pytest.raises(ValueError, match="positive"):
        service.submit(spec("a"), time_limit_s=0)


def test_a_real_grammar_that_takes_long(make: Make) -> None:
    """Time runs out in the middle of the compiler itself, and what the worker compiles next is right."""
    words = [f"{number * 7919 % 99991:05d}" for number in range(60_000)]
    slow = spec("|".join(f"{word}[xy]*" for word in words))
    service = make(grace_s=60.0)
    assert isinstance(error_of(service.submit(slow, cpu_limit_s=0.5)), CompileTimeout)
    assert isinstance(error_of(service.submit(slow, time_limit_s=0.5)), CompileTimeout)
    for pattern in ("[a-z]{1,300}x*", "yes|no|maybe"):
        check(service.compile(spec(pattern)), pattern)
    assert service.counts.timed_out == 2 and service.counts.workers_started == 1


def test_deaf_and_late(make: Make, runs: Runs) -> None:
    service = make(grace_s=0.2, time_limit_s=0.2)
    assert isinstance(error_of(service.submit(spec("!deaf"))), CompileTimeout)
    check(service.submit(spec("other"), time_limit_s=PATIENCE).result(PATIENCE), "other")
    assert service.counts.workers_started == 2 and service.counts.timed_out == 1


# ----------------------------------------------------------------------------------------------------- ends of workers
def test_killed_workers_are_replaced_and_nothing_is_lost(make: Make, tmp_path: Path, runs: Runs) -> None:
    service = make(workers=2)
    assert service.wait_until_ready(PATIENCE) and len(service.worker_pids) == 2
    gate = Gate(service, tmp_path, runs)
    futures = {pattern: service.submit(spec(pattern)) for pattern in (f"[a-z]{{{n}}}" for n in range(1, 30))}
    victim = service.submit(spec(f"!die_once {tmp_path}/died;victim"))
    poison = service.submit(spec("!die"))
    broken = service.submit(spec("!bug"))
    gate.open()
    for pattern, future in futures.items():
        check(future.result(PATIENCE), pattern)
    check(gate.future.result(PATIENCE), "gate")
    check(victim.result(PATIENCE), "victim")
    error = error_of(poison)
    assert isinstance(error, CompileWorkerDied) and "SIGKILL" in str(error) and "2 times" in str(error)
    error = error_of(broken)
    assert (
        isinstance(error, CompileFailed) and "a bug in the compiler" in str(error) and "compile_jobs.py" in str(error)
    )
    assert all(runs().count(pattern) == 1 for pattern in futures)
    assert service.counts.workers_died == 3
    # From outside, in the middle of a job and between jobs.
    gate = Gate(service, tmp_path, runs)
    for pid in service.worker_pids:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: runs().count(gate.text) == 2)
    gate.open()
    check(gate.future.result(PATIENCE), "gate")
    assert service.wait_until_ready(PATIENCE)
    for pid in service.worker_pids:
        os.kill(pid, signal.SIGKILL)
    check(service.submit(spec("after")).result(PATIENCE), "after")


def test_a_worker_that_ends_before_it_begins_is_not_the_jobs_fault(make: Make, runs: Runs) -> None:
    service = make(max_retries=0)
    assert service.wait_until_ready(PATIENCE)
    (pid,) = service.worker_pids
    os.kill(pid, signal.SIGSTOP)
    future = service.submit(spec("patient"))
    wait_until(lambda: service.counts.started == 1)
    os.kill(pid, signal.SIGKILL)
    check(future.result(PATIENCE), "patient")
    assert runs() == ["patient"] and service.counts.started == 2


def test_workers_that_never_start(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "JOB_FUNCTION", "no_such_module:run")
    service = make(max_failed_starts=2)
    futures = [service.submit(spec(pattern)) for pattern in ("a", "b")]
    for future in futures:
        error = error_of(future)
        assert isinstance(error, CompileWorkerDied) and "no worker starts" in str(error) and "exit code 1" in str(error)
    assert not service.wait_until_ready(PATIENCE)
    monkeypatch.setattr(process, "JOB_FUNCTION", "compile_jobs:run")
    check(service.submit(spec("a")).result(PATIENCE), "a")
    slow = make(start_limit_s=0.01, max_failed_starts=1)
    assert "0.01 s" in str(error_of(slow.submit(spec("a"))))
    monkeypatch.setattr("sys.executable", "/no/such/python")
    nothing = make(max_failed_starts=1)
    assert isinstance(error_of(nothing.submit(spec("a"))), CompileWorkerDied)


def test_a_process_that_can_start_no_thread(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    service = make()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="new thread"):
                service.submit(spec("a"))
    assert service.waiting == 0
    check(service.compile(spec("a")), "a")
    other = make()
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="new thread"):
        patch.setattr(threading.Thread, "start", fail)
        other.start()


def test_workers_are_light(make: Make) -> None:
    service = make()
    names = "torch transformers triton tokenizers pytest asyncio multiprocessing stepmask.integrations.engine numba"
    assert str(error_of(service.submit(spec(f"!modules {names}")))) == "numba"
    assert str(error_of(service.submit(spec("!threads")))) == "2"


# ----------------------------------------------------------------------------------------------------- ends of services
@pytest.mark.parametrize("spare", [0, 1, 1 << 10])
def test_workers_leave_processors_to_the_step(make: Make, spare: int) -> None:
    """The first of those that this process may use, unless these are all; and they give way on the others."""
    own = sorted(os.sched_getaffinity(0))
    service = make(spare_processors=spare, nice=3)
    assert service.submit(spec("done")).result(PATIENCE)
    (pid,) = service.worker_pids
    assert sorted(os.sched_getaffinity(pid)) == (own[spare:] or own)
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 3)


def test_closing_ends_everything(make: Make, tmp_path: Path, runs: Runs) -> None:
    with make(workers=2) as service:
        done = service.submit(spec("done"))
        assert done.result(PATIENCE)
        gate = Gate(service, tmp_path, runs)
        deaf = service.submit(spec("!deaf"))
        wait_until(lambda: "!deaf" in runs())
        waiting = service.submit(spec("waiting"))
        pids = service.worker_pids
    assert not any(is_running(pid) for pid in pids)
    for future in (gate.future, deaf, waiting):
        assert isinstance(error_of(future), CompileServiceClosed)
    assert done.result()
    for call in (lambda: service.submit(spec("a")), service.start, service.wait_until_ready):
        with pytest.raises(CompileServiceClosed):
            call()
    service.close()
    make().close()  # one that never did anything


def test_a_callback_may_close_and_submit(make: Make) -> None:
    service = make()
    seen: list[Any] = []
    ended = threading.Event()

    def next_one(future: Any) -> None:
        seen.append(service.submit(spec("second")))
        seen[0].add_done_callback(lambda _: (service.close(), ended.set()))

    service.submit(spec("first")).add_done_callback(next_one)
    assert ended.wait(PATIENCE)
    check(seen[0].result(PATIENCE), "second")
    with pytest.raises(CompileServiceClosed):
        service.submit(spec("third"))
    wait_until(lambda: not service.worker_pids)


def test_the_synchronous_form(make: Make, tmp_path: Path, runs: Runs) -> None:
    service = make()
    gate = Gate(service, tmp_path, runs)
    with pytest.raises(concurrent.futures.TimeoutError):
        service.compile(spec("waits"), timeout=0.01)
    assert service.waiting == 0  # nobody waits for it any more
    gate.open()
    assert service.compile(spec("waits"), timeout=PATIENCE, priority=1, tenant="a")
    with pytest.raises(stepmask.GrammarSyntaxError):
        service.compile(spec("(a"))


# -------------------------------------------------------------------------------------------------------------- asyncio
def test_asyncio(make: Make, tmp_path: Path, runs: Runs) -> None:
    service = make()

    async def one(text: str) -> stepmask.CompiledGrammar:
        return await service.submit(spec(text))

    async def main() -> None:
        path = tmp_path / "opens"
        blocked = asyncio.create_task(one(f"!gate {path};gate"))
        shared = [asyncio.create_task(one("shared")) for _ in range(3)]
        failing = asyncio.create_task(one("(a"))
        alone = asyncio.create_task(one("alone"))
        while not runs():
            await asyncio.sleep(0.01)
        for task in (shared[0], alone):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        path.touch()
        check(await asyncio.wait_for(blocked, PATIENCE), "gate")
        assert (await shared[1]) is (await shared[2])
        with pytest.raises(stepmask.GrammarSyntaxError):
            await failing
        check(await one("shared"), "shared")

    asyncio.run(main())
    assert "alone" not in runs() and runs().count("shared") == 1


def test_words_of_patterns_are_not_special() -> None:
    """The texts that these tests use as patterns mean themselves."""
    assert all(re.fullmatch("[a-z0-9]+", text) for text in ("gate", "late", "victim", "kept1", "loud2"))
