"""What README and docs say is so: the set-up commands, the Python blocks, the console commands, the limits' table."""

from __future__ import annotations

import dataclasses
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from small_tokenizer import END, byte_tokenizer

import stepmask
from stepmask import cli

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def blocks(text: str, language: str) -> list[str]:
    return [body for name, body in BLOCK.findall(text) if name == language]


SETUP = [line for body in blocks(README, "sh") for line in body.splitlines() if "venv" in line]


def test_there_are_exactly_two_set_up_commands_of_one_line_each() -> None:
    assert len(SETUP) == 2
    demo, tests = SETUP
    assert demo.endswith("stepmask demo") and "[demo]" in demo
    assert ".venv/bin/pytest" in tests and "[test]" in tests
    for command in SETUP:
        assert command.startswith("python3 -m venv .venv && ")
        assert all("-c constraints.txt" in part for part in command.split(" && ") if "pip install" in part)


def test_ci_runs_the_second_set_up_command_as_it_stands() -> None:
    """`.ci/run` takes the line out of README by this expression, so README's command is what ran."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (expression,) = re.findall(r"grep -E '([^']+)' README.md", script)
    assert [line for line in README.splitlines() if re.search(expression, line)] == [SETUP[1]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_console_commands_exist(page: Path) -> None:
    """Each `stepmask COMMAND` that a page names has a help text."""
    commands = set(re.findall(r"(?:^|bin/|`)stepmask ([a-z][a-z-]*)", page.read_text(encoding="utf-8"), re.M))
    for command in sorted(commands):
        done = subprocess.run([sys.executable, "-m", "stepmask.cli", command, "--help"], capture_output=True, text=True)
        assert done.returncode == 0, f"stepmask {command}: {done.stderr}"


CONSOLE = re.compile(r"^( *)```console\n(.*?)^\1```$", re.M | re.S)


def test_console_blocks_print_what_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    """A block is one command after a dollar sign, with its output; a quoted argument may go over several lines."""
    bodies = [textwrap.dedent(body) for _, body in CONSOLE.findall(README)]
    assert bodies
    for body in bodies:
        # The command ends with the first line end outside of quotes.
        ((command, output),) = re.findall(r"\A\$ stepmask ((?:'[^']*'|[^'\n])+)\n(.*)\Z", body, re.S)
        cli.main(shlex.split(command))
        assert capsys.readouterr().out == output


def names_a_reader_has() -> dict[str, Any]:
    """`tokenizer`, `model` and `inputs`, which a reader brings along: a random model of 300 tokens."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer(), eos_token=END, pad_token=END)
    config = transformers.LlamaConfig(
        vocab_size=300, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        bos_token_id=None, eos_token_id=256, pad_token_id=256,
    )  # fmt: skip
    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(config).eval()
    return {"tokenizer": tokenizer, "model": model, "inputs": tokenizer("good:", return_tensors="pt")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page: Path) -> None:
    names: dict[str, Any] = {}
    for block in blocks(page.read_text(encoding="utf-8"), "python"):
        if "model." in block:
            names.update(names_a_reader_has())
        exec(compile(block, str(page), "exec"), names)


def test_limits_page_has_every_field_and_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+) \|", (ROOT / "docs" / "limits.md").read_text(encoding="utf-8"), re.M)
    assert {name: int(value.replace(",", "")) for name, value in rows} == dataclasses.asdict(stepmask.Limits())
