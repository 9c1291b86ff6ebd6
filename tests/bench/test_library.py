"""bench/library.py runs and says what is shared."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from small_tokenizer import byte_tokenizer

ROOT = Path(__file__).resolve().parents[2]


def test_it_measures_and_writes_its_report(tmp_path: Path) -> None:
    file, out = tmp_path / "small.json", tmp_path / "out"
    byte_tokenizer().save(str(file))
    command = [sys.executable, str(ROOT / "bench" / "library.py"), "--tokenizer", str(file), "--schemas", "2"]
    done = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads((out / "library-small.json").read_text())
    assert set(report["mask_ns"]) == {"without", "library", "library, new process"}
    taken = {way: rest["contexts_taken"] for way, rest in report["rest"].items()}
    assert taken["without"] == 0 < taken["library"] == taken["library, new process"]
    assert report["frames"] >= 3 and f"{report['frames']} frames" in done.stdout
