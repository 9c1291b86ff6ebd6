"""bench/ambiguity.py: however ambiguous a grammar is, few heads are carried along and a byte costs little."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
#: Heads at most, work a byte at most: about twice what was measured.
BOUNDS = {
    "S -> S S | a": (16, 80),
    "S -> S S S | S S | a": (16, 150),
    "dangling else": (16, 45),
    "dangling else, nested": (16, 45),
    "three objects, 12 deep": (16, 15),
    "(foo|bar|foobar){1,1000}": (1, 326),
}


@pytest.fixture(scope="module")
def ambiguity() -> ModuleType:
    sys.path.insert(0, str(BENCH))
    try:
        spec = importlib.util.spec_from_file_location("ambiguity", BENCH / "ambiguity.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["ambiguity"] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCH))
    return module


@pytest.mark.parametrize("name", BOUNDS)
def test_heads_and_work_stay_small(ambiguity: ModuleType, name: str) -> None:
    heads, work = BOUNDS[name]
    for seed in range(2):
        cost = ambiguity.measure(*ambiguity.CASES[name], seed=seed)
        assert cost.heads <= heads
        assert cost.mean_work <= work and cost.max_work <= work  # the mean with all compacting


def test_long_texts_cost_no_more_a_byte(ambiguity: ModuleType) -> None:
    for name in ("S -> S S S | S S | a", "three objects, 12 deep"):
        short, long = (ambiguity.measure(*ambiguity.CASES[name], tokens=n) for n in (300, 1200))
        assert long.max_work <= short.max_work + 1 and long.heads <= short.heads
        assert long.mean_work <= short.mean_work + 1  # with all compacting


def test_it_prints_a_table_and_writes_its_report(ambiguity: ModuleType, tmp_path: Path) -> None:
    assert set(BOUNDS) == set(ambiguity.CASES)
    command = [sys.executable, str(BENCH / "ambiguity.py"), "--tokens", "20", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in BOUNDS)
    assert set(json.loads((tmp_path / "ambiguity.json").read_text())["costs"]) == set(BOUNDS)
