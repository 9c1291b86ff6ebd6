"""The device kernels compile for every target without spilling or fusing, and move about the bytes they must."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

ROOT = Path(__file__).resolve().parents[2]
KERNELS = {
    "scan (plain rows)", "finish (plain rows)", "scan", "weigh", "bound", "gather", "finish", "score_parts",
    "merge_parts", "measure", "apply", "advance", "advance_pushdown",
}  # fmt: skip


def bench(*arguments: str, interpret: bool) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    if not interpret:
        del environment["TRITON_INTERPRET"]
    command = [sys.executable, str(ROOT / "bench" / "device_code.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_machine_code(tmp_path: Path) -> None:
    """The table is printed, so that CI's log has it."""
    done = bench("--no-bytes", "--out", str(tmp_path), interpret=False)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    code = json.loads((tmp_path / "device-code.json").read_text())["code"]
    assert set(code) == KERNELS
    for name, targets in code.items():
        assert set(targets) == {"cuda:80", "cuda:90", "cuda:100", "hip:gfx942"}
        for target, figures in targets.items():
            assert figures["stack"] == figures["spills"] == 0, (name, target, figures)
            assert figures["registers"] <= 168, (name, target)
            if target.startswith("cuda"):
                assert figures["fused"] == figures["flushed"] == 0, (name, target)
    for name in ("scan", "weigh", "gather", "measure"):
        assert code[name]["cuda:90"]["wide_loads"] >= 2  # logits in groups of 8, two loads of 16 bytes


def test_bytes() -> None:
    """Plain rows read each sector of a legal logit and the mask once, and little else."""
    done = bench("--bytes-only", "--vocabulary", "8192", interpret=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    counted, advances = report["rows"], report["advances"]
    for name in ("unconstrained", "half allowed"):
        for form in ("float32", "bfloat16"):
            assert counted[name][form]["ratio"] < 1.15, (name, form, counted[name][form])
    assert counted["20 allowed"]["float32"]["read"] < 8192 // 8 + 20 * 32 + 1500
    assert counted["half allowed, log-probability"]["float32"]["ratio"] < 2.3
    # A row's own words, an entry for each byte of its token, and where its mask is: some dozens of sectors.
    assert advances["date"]["most"] < 30 * 32 and advances["JSON"]["most"] < 48 * 32
