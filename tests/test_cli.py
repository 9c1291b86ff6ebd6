"""The command line: exit codes and what `check` says."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmask import cli


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = cli.main(arguments)
    return code, capsys.readouterr().out


def test_a_complete_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "check", "[0-9]{3}", "123") == (0, "complete\n")


def test_a_complete_text_that_may_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, "check", "[0-9]{3}[a-f]?", "123")
    assert code == 0
    assert out == "complete\nexpected: 'a'-'f', the end of the text\n"


def test_an_alive_text_says_what_may_follow(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, "check", "[0-9]{4}-[0-9]{2}", "2024")
    assert code == 1
    assert out == "alive: the text may not end yet, at byte 4 (line 1, column 5)\nexpected: '-'\n"


def test_a_dead_text_says_where_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, "check", "[0-9]{4}-[0-9a-f]{2}", "2024x")
    assert code == 2
    assert out == "dead at byte 4 (line 1, column 5): found 'x'\nexpected: '-'\n"
    code, out = run(capsys, "check", "ü\nö", "ü\nä")
    assert code == 2
    # The first byte of both letters is the same.
    assert out == "dead at byte 4 (line 2, column 2): found byte A4 of 'ä'\nexpected: byte B6\n"


def test_text_after_the_end_is_dead(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, "check", "ab", "abc")
    assert code == 2
    assert out.splitlines()[1] == "expected: the end of the text"


def test_bad_grammars(capsys: pytest.CaptureFixture[str]) -> None:
    for pattern in ("(", r"(a)\1"):
        code, out = run(capsys, "check", pattern, "x")
        assert code == 3
        assert out.startswith("bad grammar: ")
        assert "column" in out
    assert run(capsys, "check", "--kind", "choice", "[1]", "x")[0] == 3
    assert run(capsys, "check", "--kind", "choice", "[", "x")[0] == 3
    assert run(capsys, "check", "--kind", "choice", "[]", "x")[0] == 3


def test_choices_from_json_and_lines_and_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(capsys, "check", "--kind", "choice", '["yes", "no"]', "no")[0] == 0
    code, out = run(capsys, "check", "--kind", "choice", "yes\nno", "")
    assert (code, out.splitlines()[1]) == (1, "expected: 'n', 'y'")
    path = tmp_path / "colours.txt"
    path.write_text("red\nblue\n")
    assert run(capsys, "check", "--kind", "choice", "--file", str(path), "red")[0] == 0
    path.write_text("a+\n")
    assert run(capsys, "check", "--file", str(path), "aa")[0] == 0
    assert run(capsys, "check", "--file", str(tmp_path / "none"), "aa")[0] == cli.USAGE


def test_text_from_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("añ".encode())))
    assert run(capsys, "check", "a.", "-")[0] == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\xff")))
    code, out = run(capsys, "check", "a.", "-")
    assert code == 2
    assert "found byte FF" in out
    assert "any non-ASCII character" in out


def test_a_wrong_command_line_is_told_from_a_dead_text(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ([], ["check", "a"], ["check", "--kind", "none", "a", "a"], ["demo", "--slots", "0"], ["no-such-command"])
    for arguments in wrong:
        with pytest.raises(SystemExit) as exit_info:
            cli.main(arguments)
        assert exit_info.value.code == cli.USAGE
    capsys.readouterr()


def test_benchmarks_are_listed_and_unknown_ones_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(["bench", "no-such-benchmark"])
    assert code == cli.USAGE
    assert "no-such-benchmark" in capsys.readouterr().err or not list(Path(cli.__file__).parent.glob("bench/*.py"))


def test_bytes_in_words() -> None:
    assert cli.describe([]) == []
    assert cli.describe(sorted(b"0123abcXYZ-_")) == ["'-'", "'0'-'3'", "'X'-'Z'", "'_'", "'a'-'c'"]
    assert cli.describe(list(range(128))) == ["any ASCII character"]
    everything = [*range(128), *range(0xC2, 0xF5)]
    assert cli.describe(everything) == ["any ASCII character", "any non-ASCII character"]
    assert cli.describe([byte for byte in everything if byte != 10]) == [
        "any ASCII character but '\\n'",
        "any non-ASCII character",
    ]
    assert cli.describe([0xC3, 0xC4, 0xC5, 0xE2]) == ["bytes C3-C5", "byte E2"]


@given(st.binary(max_size=6), st.binary(min_size=1, max_size=4))
def test_any_text_has_a_place(before: bytes, rest: bytes) -> None:
    """`check` on any bytes whatever gives a verdict."""
    compiled = _digits()
    code, lines = cli.judge(compiled.matcher(), before + rest)
    assert code in (cli.COMPLETE, cli.ALIVE, cli.DEAD)
    assert lines


def _digits():  # type: ignore[no-untyped-def]
    import stepmask

    tokens = [bytes([byte]) for byte in range(256)] + [b""]
    vocabulary = stepmask.Vocabulary.from_bytes(tokens, eos=[256], special=[256])
    return stepmask.compile(stepmask.regex(r"[0-9é]+\n?"), vocabulary)


def test_the_module_runs_as_a_program() -> None:
    done = subprocess.run([sys.executable, "-m", "stepmask", "--help"], capture_output=True, text=True, check=True)
    for command in ("demo", "check", "warm-up", "bench"):
        assert command in done.stdout
