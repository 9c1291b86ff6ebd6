"""Services whose workers obey the tests."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compile_cases import VOCABULARY, Make, Runs, children, descriptors, is_running

import stepmask
from stepmask.integrations.compile_service import CompileService, ServiceLimits, process


@pytest.fixture(scope="session", autouse=True)
def warm() -> None:
    """Workers take the kernels from the cache on disk."""
    stepmask.warm_up()


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """The texts whose compile has begun, in order."""
    path = tmp_path / "runs"
    path.touch()
    monkeypatch.setenv("STEPMASK_TEST_RUNS", str(path))
    return lambda: path.read_text().splitlines()


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: Any) -> Iterator[Make]:
    """Makes services whose workers obey `compile_jobs`; afterwards nothing of them may be left."""
    monkeypatch.setenv("STEPMASK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(process, "JOB_FUNCTION", "compile_jobs:run")
    gc.collect()
    before = descriptors(), threading.active_count()
    made: list[CompileService] = []

    def new(
        workers: int = 1, limits: stepmask.Limits | None = None, *, threaded: bool = True, **bounds: Any
    ) -> CompileService:
        made.append(CompileService(VOCABULARY, workers, limits, ServiceLimits(**bounds), threaded=threaded))
        return made[-1]

    yield new
    pids = [pid for service in made for pid in service.worker_pids]
    for service in made:
        service.close()
    assert not any(is_running(pid) for pid in pids)
    assert children() == []
    made.clear()
    gc.collect()
    assert (descriptors(), threading.active_count()) == before
    assert [path for path in (tmp_path / "cache").rglob("*") if path.name.startswith(".")] == []
