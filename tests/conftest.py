"""Hypothesis profiles: `ci` (the default: derandomised, bounded) and `deep` (``pytest --deep``: random, long)."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# Before anything imports triton: without a GPU its kernels run in its interpreter. To test them on a GPU, set
# STEPMASK_TEST_DEVICE=cuda.
if os.environ.get("STEPMASK_TEST_DEVICE", "cpu") == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
# Budgets in microseconds are the same work on every machine.
os.environ.setdefault("STEPMASK_FUEL_PER_US", "150")

# No deadline: the first example may compile a kernel.
settings.register_profile("ci", derandomize=True, max_examples=50, deadline=None, database=None)
settings.register_profile(
    "deep", max_examples=3000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--deep", action="store_true", help="many random examples for every property (minutes to hours)")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("deep" if config.getoption("--deep") else "ci")


@pytest.fixture(autouse=True, scope="module")
def _collect() -> Iterator[None]:
    """Python looks at old objects the less the more there are of them; failed examples hold whole batches."""
    yield
    gc.collect()
