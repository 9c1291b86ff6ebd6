"""bench/masks.py runs, measures what it says, and its grammars accept its texts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from small_tokenizer import byte_tokenizer

ROOT = Path(__file__).resolve().parents[2]


def bench(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "bench" / "masks.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def test_it_measures_and_writes_its_report(tmp_path: Path) -> None:
    file, out = tmp_path / "small.json", tmp_path / "out"
    byte_tokenizer().save(str(file))
    done = bench(
        "--tokenizer", str(file), "--libraries", "stepmask", "--only", "date", "yes/no", "not a", "--steps", "4",
        "--evict-mb", "1", "--no-plot", "--out", str(out),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "batch step" in done.stdout and "numba" in done.stdout
    report = json.loads((out / "masks-small.json").read_text())
    single = report["single_us"]["stepmask"]
    assert set(single) == {"date", "yes/no", "not a"}
    # One mask a token: two dates, split by the tokenizer and by characters.
    assert single["date"]["cold"]["count"] == single["date"]["warm"]["count"] == single["date"]["accept"]["count"] > 20
    assert {"B=1 hot", "B=32 evicted", "B=256 hot", "long repeats B=32 hot"} <= set(report["batch_us"])


@pytest.mark.parametrize("arguments", [["--only", "nonsense"], ["--libraries", "nonsense"]], ids=str)
def test_wrong_names_are_refused(arguments: list[str], tmp_path: Path) -> None:
    done = bench("--tokenizer", str(tmp_path / "none.json"), *arguments)
    assert done.returncode == 2
    assert "nonsense" in done.stderr
