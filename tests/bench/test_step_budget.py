"""bench/step_budget.py runs, and the adversaries do to the step what the scenario says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("STEPMASK_DATA", Path(__file__).parents[3] / "shared"))


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "bench" / "step_budget.py"), "--quick", "--no-plot", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "STEPMASK_DATA": str(DATA)})


def test_it_measures_and_writes_its_report(tmp_path: Path) -> None:
    done = bench(
        "--out", str(tmp_path), "--scenarios", "mix", "fresh", "burst", "killed", "small pool",
        "--backends", "stepmask", "stepmask, no budget", "stepmask, compile in threads",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "victims p99.9" in done.stdout and "ready/verified/deferred" in done.stdout
    results = json.loads((tmp_path / "step-budget.json").read_text())["results"]
    assert list(results) == ["alone", "mix", "fresh", "burst", "killed", "small pool"]
    for scenario, by_name in results.items():
        # Without its service there is no worker to kill.
        assert len(by_name) == (2 if scenario == "killed" else 3)
        for one in by_name.values():
            # Every other step is timed by the clock, the others by what the processor did.
            assert one["step_ms"]["count"] == 30
            assert one["grammar_ms"]["count"] == one["grammar_cpu_ms"]["count"] == 15
            assert one["step_ms"]["p50"] >= 1.0  # the forward pass is a real wait
            assert one["victims_ms"]["count"] > 0 and one["stall_amplification"] > 0
            assert sum(one["outcomes"].values()) > 0 and one["overruns"] == 0
            assert bool(one["adversary"]) == (scenario not in ("alone", "mix"))
    assert results["alone"]["stepmask"]["stall_amplification"] == 1.0
    assert sum(results["burst"]["stepmask"]["adversary"].values()) == 64
    assert results["killed"]["stepmask"]["workers_killed"] >= 1
    # Without a budget no row waits for its mask.
    free = results["mix"]["stepmask, no budget"]["outcomes"]
    assert free["verified"] == free["deferred"] == 0


@pytest.mark.skipif(not (DATA / "data" / "hard.dev.jsonl.gz").exists(), reason="needs the shared data")
def test_hard_inputs_and_a_tiny_budget(tmp_path: Path) -> None:
    """At almost no budget rows without masks are counted, and no step passes it by more than a walk."""
    done = bench(
        "--out", str(tmp_path), "--scenarios", "hard", "--hard", "maxLength10000", "--backends", "stepmask",
        "--budget-us", "1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    hard = json.loads((tmp_path / "step-budget.json").read_text())["results"]["hard maxLength10000"]["stepmask"]
    assert hard["outcomes"]["verified"] + hard["outcomes"]["deferred"] > 0


def test_the_check_and_several_shapes(tmp_path: Path) -> None:
    """What is asked of stepmask is said at the end; each shape has a report of its own."""
    done = bench("--out", str(tmp_path), "--scenarios", "steady", "texts", "mix, hot", "--backends", "stepmask")
    assert done.returncode == 0, done.stderr
    assert "overruns in counted work: 0" in done.stdout and "grammar on the step thread, cold, p99.9" in done.stdout
    results = json.loads((tmp_path / "step-budget.json").read_text())["results"]
    assert list(results) == ["alone", "alone, texts", "mix, hot", "steady", "steady, hot", "texts"]
    assert all(by_name["stepmask"]["overruns"] == 0 for by_name in results.values())


def test_a_soak_leaves_nothing_behind(tmp_path: Path) -> None:
    """A few seconds of it: random requests, killed workers and text processes, cancellation storms."""
    done = bench("--out", str(tmp_path), "--soak", "0.1")
    assert done.returncode == 0, done.stderr
    assert "left behind: nothing" in done.stdout and "requests: " in done.stdout


@pytest.mark.parametrize("arguments", [["--scenarios", "nonsense"], ["--backends", "nonsense"]], ids=str)
def test_wrong_names_are_refused(arguments: list[str]) -> None:
    done = bench(*arguments)
    assert done.returncode == 2
    assert "nonsense" in done.stderr
