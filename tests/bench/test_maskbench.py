"""bench/maskbench.py runs, and says of each schema what it should."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_tokenizer import byte_tokenizer

ROOT = Path(__file__).resolve().parents[2]


def instance(valid: bool, data: Any) -> dict[str, Any]:
    return {"valid": valid, "data": data}


ORDERED = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
ITEMS = [
    {"id": "passes", "schema": {"type": "integer"}, "tests": [instance(True, 12), instance(False, "a")]},
    {"id": "order", "schema": ORDERED, "tests": [instance(True, {"b": 1, "a": 2})]},
    # What the tests say is wrong here, so that the verdicts are.
    {"id": "over", "schema": {"type": "string"}, "tests": [instance(True, 1)]},
    {"id": "under", "schema": {"type": "string"}, "tests": [instance(False, "a"), instance(True, "b")]},
    {"id": "refused", "schema": {"type": "string", "format": "nonsense"}, "tests": [instance(True, "a")]},
    {"id": "untested", "schema": {"type": "string", "format": "nonsense"}, "tests": []},
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("maskbench")
    tokenizer, data = folder / "small.json", folder / "data.jsonl.gz"
    byte_tokenizer().save(str(tokenizer))
    with gzip.open(data, "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps(item) + "\n" for item in ITEMS)
    return tokenizer, data


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "bench" / "maskbench.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_it_measures_and_writes_its_report(files: tuple[Path, Path], tmp_path: Path) -> None:
    tokenizer, data = files
    done = bench(
        "--tokenizer", str(tokenizer), "--data", str(data), "--libraries", "stepmask", "--no-plot", "--out",
        str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "first mask" in done.stdout and "numba" in done.stdout
    report = json.loads((tmp_path / "maskbench-small.json").read_text())
    ours = report["libraries"]["stepmask"]
    assert ours["counts"] == {
        "schemas": 5, "pass": 2, "order": 1, "over": 1, "under": 1, "refused": 1, "crash": 0, "untested": 1,
        "untested refused": 1, "untested crash": 0,
    }  # fmt: skip
    assert ours["refused"] == {"format": [1, 1]}
    # One mask a byte, up to the first that is refused.
    texts = ["12", '"', '{"b": 1, "a"', "1", '"a"', '"b"']
    assert ours["mask_us"]["count"] == sum(map(len, texts)) and ours["first_mask_us"]["count"] == 4
    rows = [json.loads(line) for line in (tmp_path / "maskbench-small-stepmask.jsonl").read_text().splitlines()]
    assert {row["id"]: row["status"] for row in rows} == {
        "order": "order", "over": "over", "under": "under", "refused": "refused", "untested": "refused",
    }  # fmt: skip
    assert {bar["name"]: bar["met"] for bar in report["bars"]}["over"] is False


def test_it_explains(files: tuple[Path, Path]) -> None:
    done = bench("--data", str(files[1]), "--explain", "over", "refused")
    assert done.returncode == 0, done.stderr
    assert "dead at byte 0" in done.stdout and "nonsense" in done.stdout


@pytest.mark.parametrize("arguments", [["--only", "nothing"], ["--libraries", "nothing"], []], ids=str)
def test_wrong_arguments_are_refused(files: tuple[Path, Path], arguments: list[str]) -> None:
    done = bench("--data", str(files[1]), *arguments)
    assert done.returncode == 2
    assert "nothing" in done.stderr or "--tokenizer" in done.stderr
