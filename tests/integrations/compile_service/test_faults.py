"""Faults from outside: damaged and unwritable files, the end of the service's process, jobs given up anywhere."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import compile_jobs
import pytest
from compile_cases import PATIENCE, Make, Runs, check, error_of, is_running, spec, wait_until
from hypothesis import given, settings
from hypothesis import strategies as st

import stepmask
from stepmask.integrations.compile_service import CompileFailed, CompileServiceClosed, CompileTimeout, CompileWorkerDied
from stepmask.integrations.compile_service.supervisor import Supervisor
from stepmask.masks import cache

#: Takes longer than `cache.MIN_SECONDS`.
BIG = "|".join(f"{number:03d}[xy]*" for number in range(100))


# ------------------------------------------------------------------------------------------------------- files on disk
def test_damaged_cache_files_are_noticed_and_replaced(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = make(max_kept=0)
    check(service.compile(spec(BIG)), BIG)
    (path,) = (tmp_path / "cache" / "grammars").glob("*.stepmask")
    good = path.read_bytes()
    counts = service.counts
    assert counts.unnamed == counts.from_cache == 0
    check(service.compile(spec(BIG)), BIG)
    assert service.counts.from_cache == 1

    @settings(max_examples=40)
    @given(
        st.sampled_from(["bits", "cut", "longer", "zeros"]),
        st.integers(0, len(good) - 1),
        st.integers(1, 255),
        st.sampled_from([0, cache.MAP_FROM]),
    )
    def damage(how: str, offset: int, bits: int, map_from: int) -> None:
        monkeypatch.setattr(cache, "MAP_FROM", map_from)  # here, where the result is adopted
        bad = bytearray(good)
        if how == "bits":
            bad[offset] ^= bits
        elif how == "cut":
            del bad[offset:]
        elif how == "longer":
            bad += bytes(bits)
        else:
            bad[offset : offset + 64] = bytes(len(bad[offset : offset + 64]))
        path.write_bytes(bad)
        check(service.compile(spec(BIG)), BIG)
        check(stepmask.CompiledGrammar.load(path, service.vocabulary), BIG)  # the file is whole again

    damage()
    counts = service.counts
    assert counts.workers_started == 1 and counts.workers_died == counts.damaged == 0


@pytest.mark.parametrize("reason", [compile_jobs.FULL, compile_jobs.READ_ONLY])
def test_a_disk_that_takes_nothing(make: Make, tmp_path: Path, reason: int) -> None:
    service = make(max_kept=0)
    check(service.compile(spec(f"!disk {reason};{BIG}")), BIG)
    assert not list(tmp_path.rglob("*.stepmask"))
    assert service.counts.unnamed == 1
    check(service.compile(spec(BIG)), BIG)
    (path,) = (tmp_path / "cache" / "grammars").glob("*.stepmask")
    # What lies there may be damaged and not replaceable.
    path.write_bytes(b"\0" * 1000)
    check(service.compile(spec(f"!disk {reason};{BIG}")), BIG)
    counts = service.counts
    assert (counts.unnamed, counts.damaged, counts.compiled) == (2, 0, 3)


def test_folders_that_cannot_be_used(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache" / "grammars"
    folder.mkdir(parents=True)
    folder.chmod(0o555)
    service = make(max_kept=0)
    try:
        check(service.compile(spec(BIG)), BIG)
        if not os.access(folder, os.W_OK):  # an administrator may write anywhere
            assert service.counts.unnamed == 1
    finally:
        folder.chmod(0o755)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("STEPMASK_CACHE", str(tmp_path / "file"))
    other = make()
    check(other.compile(spec(BIG)), BIG)
    assert other.counts.unnamed == 1


def test_results_damaged_on_their_way_are_made_again(make: Make, tmp_path: Path) -> None:
    service = make(max_kept=0)
    check(service.compile(spec(f"!garble {tmp_path}/one 1;{BIG}")), BIG)
    assert service.counts.damaged == 1 and service.counts.started == 2
    error = error_of(service.submit(spec(f"!garble {tmp_path}/two 2;{BIG}")))
    assert isinstance(error, CompileFailed) and "damaged 2 times" in str(error)
    check(service.compile(spec(BIG)), BIG)


def test_a_worker_killed_while_it_writes_leaves_nothing(make: Make, tmp_path: Path) -> None:
    service = make(max_retries=0)
    assert isinstance(error_of(service.submit(spec(f"!half_written;{BIG}"))), CompileWorkerDied)
    assert list((tmp_path / "cache").rglob(".tmp-*"))
    check(service.compile(spec("other")), "other")
    service.close()
    assert not list((tmp_path / "cache").rglob(".tmp-*"))
    assert cache.folder() == tmp_path / "cache"


# ------------------------------------------------------------------------------------- the end of the service's process
PROGRAM = """
import os, sys, time, warnings
import stepmask
from stepmask.integrations.compile_service import CompileService, process

# Neither a main guard nor a `with` statement: workers do not run this file, and end by themselves.
process.JOB_FUNCTION = "compile_jobs:run"
vocabulary = stepmask.Vocabulary.from_bytes([bytes([b]) for b in range(256)], eos=None)
service = CompileService(vocabulary, workers=2)
assert service.wait_until_ready()
service.submit({"kind": "regex", "text": "!spin"})
while not os.path.getsize(os.environ["STEPMASK_TEST_RUNS"]):
    time.sleep(0.01)
child = 0
if sys.argv[1] == "fork":
    warnings.simplefilter("ignore")  # of forks beside threads
    child = os.fork()
    if child == 0:
        try:
            service.submit({"kind": "regex", "text": "a"})
        except stepmask.integrations.compile_service.CompileServiceClosed:
            service.close()
            time.sleep(600)
        os._exit(1)
print(child, *service.worker_pids, flush=True)
sys.stdin.readline()
if sys.argv[1] == "error":
    raise SystemExit(7)
if sys.argv[1] == "abrupt":
    os._exit(7)
"""


@pytest.mark.parametrize("how", ["exit", "error", "abrupt", "kill", "fork"])
def test_workers_end_with_the_process(how: str, tmp_path: Path, runs: Runs) -> None:
    """However it ends, in the middle of a job too, and even if a forked child of it goes on."""
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-W", "error", str(script), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    ) as program:
        assert program.stdout and program.stdin and program.stderr
        child, *workers = map(int, program.stdout.readline().split())
        assert len(workers) == 2 and all(map(is_running, workers))
        if how in ("kill", "fork"):
            program.kill()
        else:
            program.stdin.write("\n")
            program.stdin.close()
        assert program.wait(PATIENCE) == {"exit": 0, "error": 7, "abrupt": 7}.get(how, -signal.SIGKILL)
        wait_until(lambda: not any(map(is_running, workers)))
        if child:
            assert is_running(child)
            os.kill(child, signal.SIGKILL)
        assert program.stderr.read() == ""


def test_nothing_waits_for_a_thread_that_is_no_more(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Supervisor, job: object, message: object, descriptors: list[int]) -> None:
        os.close(descriptors[0])
        raise RuntimeError("a bug in the supervisor")

    reported: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(str(args.exc_value)))
    service = make()
    monkeypatch.setattr(Supervisor, "_adopt", broken)
    futures = [service.submit(spec(pattern)) for pattern in ("a", "b", "c")]
    for future in futures:
        error = error_of(future)
        assert isinstance(error, CompileFailed) and "a bug in the supervisor" in str(error)
    with pytest.raises(CompileServiceClosed, match="a bug in the supervisor"):
        service.submit(spec("d"))
    wait_until(lambda: reported)
    assert reported == ["a bug in the supervisor"] and service.worker_pids == []


# ---------------------------------------------------------------------------------------------------- given up anywhere
def test_what_is_compiled_after_jobs_given_up_anywhere_is_right(make: Make) -> None:
    """A worker goes on after a job that it gave up at any moment; what it makes then is what a fresh process makes."""
    words = [f"{number * 7919 % 99991:05d}" for number in range(4_000)]
    opening = " | ".join(f'"{word}" root "x"' for word in words[:400])
    slow = [
        spec("|".join(f"{word}[xy]*" for word in words)),
        {"kind": "choice", "text": words},
        {"kind": "gbnf", "text": f'root ::= {opening} | "z"'},
        {"kind": "lark", "text": "start: " + " | ".join(f'"{word}" start' for word in words[:200]) + ' | "z"'},
        {"kind": "json_value"},
    ]
    service = make(max_kept=0, grace_s=60.0)
    service.compile(spec("warm"))
    rng = random.Random(7)
    given_up = 0
    for number in range(40):
        grammar = {**slow[number % len(slow)]}
        if "text" in grammar and grammar["kind"] == "regex":
            grammar["text"] = f"{number}|{grammar['text']}"
        error = error_of(service.submit(grammar, time_limit_s=rng.choice([0.002, 0.01, 0.03, 0.1, 0.3]) * rng.random()))
        assert error is None or isinstance(error, CompileTimeout)
        given_up += error is not None
    assert given_up > 10 and service.counts.workers_started == 1
    for pattern in (BIG, "yes|no|maybe", "(?:a|b)*c{2,9}"):
        check(service.compile(spec(pattern)), pattern)
    for grammar in slow[1:]:
        here = {**grammar}
        front_end = getattr(stepmask, here.pop("kind"))
        arguments = [here.pop("text")] if "text" in here else []
        expected = stepmask.compile(front_end(*arguments), service.vocabulary, use_cache=False)
        found = service.compile(grammar)
        assert found.automaton.buffer.tobytes() == expected.automaton.buffer.tobytes()
        assert (found.ready is None) == (expected.ready is None)
        if found.ready is not None and expected.ready is not None:
            for name, array in expected.ready.arrays().items():
                assert array.tobytes() == found.ready.arrays()[name].tobytes()


def test_random_traffic_with_kills(make: Make, runs: Runs) -> None:
    """Many threads, cancellations, and workers killed from outside: every request that stays gets its own result."""
    service = make(workers=2, max_retries=50, max_failed_starts=50)
    rng = random.Random(11)
    patterns = [f"[a-d]{{{n},{n + 3}}}x" for n in range(1, 25)]
    results: list[tuple[str, object]] = []
    stop = threading.Event()

    def client(seed: int) -> None:
        own = random.Random(seed)
        for _ in range(60):
            pattern = own.choice(patterns)
            future = service.submit(spec(pattern), priority=own.randrange(3), tenant=str(seed))
            if own.random() < 0.4:
                future.cancel()
            else:
                results.append((pattern, future.result(PATIENCE)))

    def killer() -> None:
        for _ in range(4):
            if stop.wait(0.3) or not (pids := service.worker_pids):
                continue
            os.kill(rng.choice(pids), signal.SIGKILL)

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(6)]
    threads.append(threading.Thread(target=killer))
    for thread in threads:
        thread.start()
    for thread in threads[:-1]:
        thread.join()
    stop.set()
    threads[-1].join()
    assert len(results) > 100
    by_pattern: dict[str, set[int]] = {}
    for pattern, compiled in results:
        assert isinstance(compiled, stepmask.CompiledGrammar)
        by_pattern.setdefault(pattern, set()).add(id(compiled))
    for pattern, compiled in dict(results).items():
        assert isinstance(compiled, stepmask.CompiledGrammar)
        check(compiled, pattern)
        assert len(by_pattern[pattern]) == 1
    wait_until(lambda: service.waiting == 0)
