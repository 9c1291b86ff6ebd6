"""The text process: the same texts as here, whatever happens to it, and nothing is left of it."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compile_cases import PATIENCE, children, descriptors, is_running, wait_until
from engine_cases import VOCABULARY, WIDTH, answers, forcing_grammars, random_grammars, random_requests, served
from small_tokenizer import byte_tokenizer

from stepmask.integrations.engine import Engine, Request
from stepmask.integrations.engine.synthetic import SyntheticModel
from stepmask.integrations.text import InProcessText, TextLimits, TextProcess
from stepmask.integrations.text import connection as connections


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    gc.collect()
    before = descriptors(), children()
    yield
    gc.collect()
    assert (descriptors(), children()) == before


@pytest.fixture(scope="module")
def grammars() -> list[Any]:
    return [*random_grammars(8), *forcing_grammars()]


def requests(grammars: list[Any], count: int = 20) -> list[Request]:
    rng = np.random.default_rng(4)
    return random_requests(rng, grammars, count, text=True, stop=("é", "ab", "0T", ")"))


def engine_of(text: TextProcess | None, slots: int = 4, **options: Any) -> Engine:
    return Engine(SyntheticModel(WIDTH, seed=1), VOCABULARY, slots, 160, text=text, **options)


def test_texts_are_those_of_this_process(grammars: list[Any]) -> None:
    work = requests(grammars)
    _, here = served(work, None)
    expected = answers(here)
    assert any(reason == "stop" and text for _, _, reason, text, _ in expected)
    assert any(logprobs for *_, logprobs in expected)
    with TextProcess(VOCABULARY) as text:
        assert text.wait_until_ready(PATIENCE)
        for _ in range(2):
            assert answers(served(work, None, text=text)[1]) == expected
        assert (text.counts.started, text.counts.died, text.counts.rebuilt) == (1, 0, 0)


def test_text_so_far_is_there_while_the_answer_is_made() -> None:
    for text in (None, TextProcess(VOCABULARY)):
        engine = engine_of(text)
        handle = engine.submit(Request([7], max_tokens=60, temperature=1.0, seed=3, text=True, ignore_eos=True))
        without = engine.submit(Request([7], max_tokens=60, temperature=1.0, seed=3, ignore_eos=True))
        seen = handle.text
        while not handle.is_finished:
            engine.step_or_wait()
            now = handle.text
            assert now.startswith(seen)
            whole = VOCABULARY.decode(handle.token_ids)
            assert len(whole) - 3 <= len(now.encode()) <= 3 * len(whole) + 3
            seen = now
        assert handle.text == handle.result().text == VOCABULARY.decode(handle.token_ids).decode("utf-8", "replace")
        assert without.text == without.result().text == ""
        if text is not None:
            text.close()
            text.close()


def test_a_full_ring_holds_up_no_step(grammars: list[Any]) -> None:
    """Tokens wait in the engine while the process does nothing, and none is lost."""
    work = [Request([i], max_tokens=50, ignore_eos=True, temperature=1.0, seed=i, text=True) for i in range(8)]
    _, here = served(work, None)
    with TextProcess(VOCABULARY, bounds=TextLimits(ring_records=5)) as text:
        assert text.wait_until_ready(PATIENCE) and text.pid is not None
        os.kill(text.pid, signal.SIGSTOP)
        engine = engine_of(text)
        handles = [engine.submit(request) for request in work]
        while sum(len(handle.token_ids) for handle in handles) < 8 * 50:
            engine.step()
        assert engine.recorder.steps == 100 and not any(handle.is_finished for handle in handles)
        assert all(len(handle.token_ids) == 50 for handle in handles)
        assert engine.running == 0 and text.counts.full >= 99 and text.counts.most_waiting >= 8 * 51 - 5
        os.kill(text.pid, signal.SIGCONT)
        engine.run()
        assert answers(handles) == answers(here)
        assert text.counts.written == 8 * 51 and text.counts.died == 0


@pytest.mark.parametrize("budget", [None, 1.0])
def test_a_process_that_dies_is_replaced_and_nothing_is_lost(grammars: list[Any], budget: float | None) -> None:
    work = requests(grammars, 24)
    expected = answers(served(work, None)[1])
    rng = np.random.default_rng(5)
    with TextProcess(VOCABULARY, bounds=TextLimits(max_failed_starts=1000)) as text:
        engine = engine_of(text, budget_us=budget)
        handles = [engine.submit(request) for request in work]
        killed: set[int] = set()
        while not engine.is_idle:
            engine.step_or_wait()
            pid = text.pid
            if pid is not None and pid not in killed and len(killed) < 12 and rng.random() < 0.3:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
                wait_until(lambda pid=pid: not is_running(pid))
                if rng.random() < 0.5 and not handles[-1].is_finished:
                    assert isinstance(handles[-1].text, str)  # also while it is being replaced
        assert answers(handles) == expected
        assert text.counts.died == len(killed) > 3 and text.counts.rebuilt > 0
        assert text.counts.started == text.counts.died + 1


def test_a_process_that_does_nothing_is_replaced(grammars: list[Any]) -> None:
    with TextProcess(VOCABULARY, bounds=TextLimits(stall_s=0.5)) as text:
        assert text.wait_until_ready(PATIENCE) and text.pid is not None
        first = text.pid
        os.kill(first, signal.SIGSTOP)
        engine = engine_of(text)
        handle = engine.submit(Request([7], max_tokens=9, text=True, ignore_eos=True))
        engine.run()
        assert handle.result().text and text.counts.died >= 1
        assert not is_running(first)


def test_without_a_process_this_one_makes_the_text(grammars: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    work = requests(grammars, 12)
    expected = answers(served(work, None)[1])
    with TextProcess(VOCABULARY, bounds=TextLimits(max_failed_starts=2)) as text:
        monkeypatch.setattr(connections, "program_of", lambda module: "raise SystemExit(3)")
        assert text.wait_until_ready(PATIENCE) and text.pid is not None
        engine = engine_of(text)
        handles = [engine.submit(request) for request in work]
        engine.step()
        os.kill(text.pid, signal.SIGKILL)
        engine.run()
        assert text.pid is None
        assert answers(handles) == expected
        again = engine_of(text)
        handle = again.submit(work[0])
        again.step()
        assert handle.is_finished or isinstance(handle.text, str)
        assert answers([handle]) == expected[:1]
        assert isinstance(text.encode("a").exception(), ValueError)


def test_prompts_are_encoded_there(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    byte_tokenizer().save(str(path))
    expected = None
    for text in (InProcessText(VOCABULARY, tokenizer=path), TextProcess(VOCABULARY, tokenizer=path)):
        engine = engine_of(text)  # type: ignore[arg-type]
        for prompt in ("to be or not", "日本" * 30_000):
            ids = engine.encode(prompt)
            while not ids.done():
                engine.step_or_wait()
            assert len(ids.result()) == len(prompt.encode())
        handle = engine.submit(Request(engine.encode("a prompt"), max_tokens=5, ignore_eos=True, text=True))
        long = engine.submit(Request(engine.encode("x" * 500), max_tokens=5))
        failed = engine.submit(Request(engine.encode("\ud800"), max_tokens=5))
        cancelled = engine.submit(Request(engine.encode("nobody wants it"), max_tokens=5))
        cancelled.cancel()
        engine.run()
        assert cancelled.finish_reason == "cancelled" and cancelled.token_ids == []
        assert isinstance(long.error, ValueError) and "max_length" in str(long.error)
        assert failed.finish_reason == "error" and isinstance(failed.error, ValueError)
        expected = expected or answers([handle])
        assert answers([handle]) == expected
        text.close()


def test_cancelled_requests_have_the_text_of_their_tokens() -> None:
    with TextProcess(VOCABULARY) as text:
        engine = engine_of(text, slots=1)
        running = engine.submit(Request([7], max_tokens=100, text=True, ignore_eos=True))
        queued = engine.submit(Request([7], max_tokens=100, text=True, ignore_eos=True))
        for _ in range(5):
            engine.step()
        running.cancel()
        queued.cancel()
        engine.run()
        assert (running.finish_reason, len(running.token_ids)) == ("cancelled", 5)
        assert running.text == VOCABULARY.decode(running.token_ids).decode("utf-8", "replace")
        assert (queued.finish_reason, queued.text) == ("cancelled", "")


PROGRAM = """
import os, sys, time
sys.path[:0] = [{tests!r}]
from engine_cases import VOCABULARY, WIDTH
from stepmask.integrations.engine import Engine, Request
from stepmask.integrations.engine.synthetic import SyntheticModel
from stepmask.integrations.text import TextProcess

text = TextProcess(VOCABULARY)
engine = Engine(SyntheticModel(WIDTH), VOCABULARY, 2, 64, text=text)
engine.submit(Request([1], max_tokens=50, text=True, ignore_eos=True))
engine.step()
if sys.argv[1] == "fork":
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
else:
    child = 0
print(child, text.pid, flush=True)
sys.stdin.readline()
if sys.argv[1] == "abrupt":
    os._exit(7)
if sys.argv[1] == "error":
    raise SystemExit(7)
"""


@pytest.mark.parametrize("how", ["exit", "error", "abrupt", "kill", "fork"])
def test_nothing_outlives_the_engine(how: str) -> None:
    before = set(os.listdir("/dev/shm"))
    tests = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(tests=tests), how],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    ) as program:  # fmt: skip
        assert program.stdout and program.stdin
        child, worker = map(int, program.stdout.readline().split())
        assert is_running(worker)
        if how in ("kill", "fork"):
            program.kill()
        else:
            program.stdin.write("\n")
            program.stdin.close()
        assert program.wait(PATIENCE) == {"exit": 0, "error": 7, "abrupt": 7}.get(how, -signal.SIGKILL)
        wait_until(lambda: not is_running(worker))
        if child:
            assert is_running(child)
            os.kill(child, signal.SIGKILL)
    assert set(os.listdir("/dev/shm")) <= before


def test_it_leaves_processors_to_the_step() -> None:
    own = sorted(os.sched_getaffinity(0))
    with TextProcess(VOCABULARY, bounds=TextLimits(spare_processors=1, nice=2)) as text:
        assert text.wait_until_ready(PATIENCE)
        assert text.pid is not None
        assert sorted(os.sched_getaffinity(text.pid)) == (own[1:] or own)
        assert os.getpriority(os.PRIO_PROCESS, text.pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 2)


def test_limits_that_nothing_could_keep_are_refused() -> None:
    for settings in (
        {"ring_records": 0},
        {"max_failed_starts": 0},
        {"nice": -1},
        {"spare_processors": -1},
        {"stall_s": 0.0},
    ):
        with pytest.raises(ValueError, match=r"must be"):
            TextLimits(**settings)
    for stop in ("text", ["a", ""]):
        with pytest.raises(ValueError, match="stop"):
            engine_of(None).submit(Request([1], stop=stop))
    with pytest.raises(UnicodeEncodeError):
        engine_of(None).submit(Request([1], stop=["\ud800"]))
