"""bench/grammars.py runs, measures what it says, and all its texts are accepted in both front ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from small_tokenizer import byte_tokenizer

import stepmask

ROOT = Path(__file__).resolve().parents[2]
NAMES = ["JSON", "arithmetic", "SQL", "C-like", "SS", "SSS", "brackets", "sums", "dangling else", "three objects"]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "bench" / "grammars.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def cases() -> dict[str, object]:
    """The cases as a program of the folder bench sees them."""
    code = (
        "import json, grammar_cases as g; g.check();"
        "print(json.dumps({c.name: [c.ebnf, c.lark, c.texts] for c in g.CASES}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT / "bench", check=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_it_measures_and_writes_its_report(tmp_path: Path) -> None:
    file, out = tmp_path / "small.json", tmp_path / "out"
    byte_tokenizer().save(str(file))
    done = bench(
        "--tokenizer", str(file), "--libraries", "stepmask", "stepmask lark", "--only", "SSS", "arithmetic",
        "--repeats", "2", "--no-plot", "--out", str(out),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "longest step" in done.stdout and "numba" in done.stdout
    report = json.loads((out / "grammars-small.json").read_text())
    times = report["times_us"]
    assert set(times) == {"stepmask", "stepmask lark"} and set(times["stepmask"]) == {"SSS", "arithmetic"}
    sss = times["stepmask"]["SSS"]
    # One mask a token, of 300; a step is a mask and an accept, cold and warm; every repeat compiles anew.
    assert sss["cold"]["count"] == sss["warm"]["count"] == sss["cold_accept"]["count"] == 300
    assert sss["step"]["count"] == 600 and sss["compile"]["count"] == 2
    assert sss["step"]["max"] >= sss["cold"]["max"]
    assert report["masks"] == []  # both front ends have equal masks
    # Without peers only the bar that needs none is decided.
    assert [bar["name"] for bar in report["bars"]] == [
        f"{library}, SSS: longest step, cold or warm" for library in ("stepmask", "stepmask lark")
    ]


@pytest.mark.parametrize("name", NAMES)
def test_both_front_ends_accept_the_texts_and_nothing_longer(cases: dict[str, object], name: str) -> None:
    assert list(cases) == NAMES
    ebnf, lark, texts = cases[name]  # type: ignore[misc]
    tokens = [bytes([byte]) for byte in range(256)] + [b""]
    vocabulary = stepmask.Vocabulary.from_bytes(tokens, eos=[256], special=[256])
    for grammar in (stepmask.ebnf(ebnf), stepmask.lark(lark)):
        compiled = stepmask.compile(grammar, vocabulary)
        for text in texts:
            matcher = compiled.matcher()
            assert matcher.accept_bytes(text.encode()) and matcher.is_complete
            assert not matcher.accept_bytes(b")")


@pytest.mark.parametrize("arguments", [["--only", "nonsense"], ["--libraries", "nonsense"]], ids=str)
def test_wrong_names_are_refused(arguments: list[str], tmp_path: Path) -> None:
    done = bench("--tokenizer", str(tmp_path / "none.json"), *arguments)
    assert done.returncode == 2
    assert "nonsense" in done.stderr
