"""Fuel in a microsecond: named, or kept, or measured; and the weights of the kinds of work."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from mask_sets import byte_vocabulary

from stepmask.masks import calibration
from stepmask.masks.batch import Batch
from stepmask.masks.fuel import NO_FUEL_LIMIT

VOCABULARY = byte_vocabulary()


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Nothing named, nothing measured; the file that would be kept."""
    monkeypatch.delenv(calibration.VARIABLE, raising=False)
    monkeypatch.setattr(calibration, "_MEASURED", [])
    path = tmp_path / "new" / "fuel.json"
    monkeypatch.setattr(calibration, "_path", lambda: path)
    return path


def test_units_that_are_named_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(calibration.VARIABLE, "20")
    assert Batch(VOCABULARY, 1, 10.0, fuel_per_us=7).fuel == 70
    batch = Batch(VOCABULARY, 1, 10.0)
    assert batch.fuel == 200 == batch.plan_fuel + batch.settle_fuel + batch.advance_fuel + batch.rows_fuel
    assert Batch(VOCABULARY, 1, 0.0).fuel == 1
    assert Batch(VOCABULARY, 1, None).fuel == NO_FUEL_LIMIT


@pytest.mark.parametrize("units", [0.0, -1.0, float("inf"), float("nan")])
def test_units_that_make_no_sense_are_refused(units: float) -> None:
    with pytest.raises(ValueError, match="fuel_per_us"):
        Batch(VOCABULARY, 1, 10.0, fuel_per_us=units)


def test_what_was_measured_is_kept(unmeasured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slowest kind decides; a second process reads it; a damaged file is measured again."""
    calls = []

    def measure() -> dict[str, list[float]]:
        calls.append(1)
        return {"fast": [1.0, 2.0], "slow": [4.0, 5.0, 5.0], "none": []}

    monkeypatch.setattr(calibration, "nanoseconds_by_kind", measure)
    assert calibration.fuel_per_microsecond() == 200.0 == calibration.fuel_per_microsecond()
    assert json.loads(unmeasured.read_text()) == {"fuel_per_us": 200.0}
    monkeypatch.setattr(calibration, "_MEASURED", [])
    assert calibration.fuel_per_microsecond() == 200.0 and len(calls) == 1
    for content in ("", "[]", '{"fuel_per_us": -1}', '{"fuel_per_us": "x"}'):
        unmeasured.write_text(content)
        monkeypatch.setattr(calibration, "_MEASURED", [])
        assert calibration.fuel_per_microsecond() == 200.0
    assert len(calls) == 5


def test_a_folder_that_cannot_be_written_is_no_error(unmeasured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "nanoseconds_by_kind", lambda: {"one": [10.0]})
    unmeasured.parent.write_text("a file where the folder would be")
    assert calibration.fuel_per_microsecond() == 100.0


def test_a_measurement_finds_every_kind() -> None:
    found = calibration.nanoseconds_by_kind()
    assert set(found) == set(calibration.kinds())
    for name, times in found.items():
        assert times and np.isfinite(times).all() and min(times) > 0, name


def test_no_budget_needs_no_measurement(unmeasured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> dict[str, list[float]]:
        raise AssertionError("measured")

    monkeypatch.setattr(calibration, "nanoseconds_by_kind", fail)
    Batch(VOCABULARY, 1, None)
    Batch(VOCABULARY, 1, 5.0, fuel_per_us=150)
    assert not unmeasured.exists()
