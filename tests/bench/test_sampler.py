"""bench/sampler.py runs on the CPU, and says that it has no figures of a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_cpu_part(tmp_path: Path) -> None:
    command = [
        sys.executable, str(ROOT / "bench" / "sampler.py"), "--device", "cpu", "--vocabulary", "1000", "--batches", "2",
        "--dtype", "float32", "--masks", "half", "20", "--repeats", "2", "--out", str(tmp_path),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "no GPU figures" in done.stdout
    us = json.loads((tmp_path / "sampler-cpu.json").read_text())["us"]
    assert len(us) == 6
    for found in us.values():
        assert found["stepmask"]["count"] == found["torch"]["count"] == 2
    # 20 tokens a row: each in a sector of its own, nearly, and 125 bytes of mask.
    assert us["float32 B=2 mask 20, plain"]["floor_bytes"] <= 2 * (20 * 32 + 125)
