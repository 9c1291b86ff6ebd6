"""The command line: its commands and their exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stepmask import cli


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


def test_the_module_runs_as_a_program() -> None:
    done = subprocess.run([sys.executable, "-m", "stepmask", "--help"], capture_output=True, text=True, check=True)
    for command in ("demo", "check", "warm-up", "bench"):
        assert command in done.stdout
