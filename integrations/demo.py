"""`stepmask demo`: structured requests of fourteen kinds, served together by a real small model."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..masks.compiled import compile as compile_grammar
from ..masks.vocabulary import Vocabulary
from .demo_tasks import TASKS, Task
from .engine import weights
from .engine.request import Handle, Request

if TYPE_CHECKING:
    from .engine.engine import Engine

#: Longer than the longest answer in single bytes of any task that has one. The others nest, and seldom go so far.
MAX_TOKENS = 200
MAX_LENGTH = 384
_SYSTEM = "You answer with the requested value and nothing else."


@dataclass
class Served:
    """One request of the demo while it runs and after."""

    task: Task
    handle: Handle
    #: Its text so far; what is not yet a whole character is left out.
    text: str = ""

    @property
    def is_valid(self) -> bool:
        return self.handle.finish_reason == "stop" and self.task.is_valid(self.text)


@dataclass(frozen=True)
class Bundled:
    """The bundled model, ready to serve."""

    model: Any
    tokenizer: Any
    vocabulary: Vocabulary

    def prompt_ids(self, prompt: str) -> list[int]:
        """Token ids of the model's chat form of `prompt`."""
        messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": prompt}]
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return [int(token) for token in self.tokenizer.encode(text, add_special_tokens=False)]


def load(progress: Callable[[str], None]) -> Bundled:
    """Load SmolLM2, its tokenizer and vocabulary. Raises `weights.MissingPackage` where a package is missing."""
    weights.require("torch", "transformers", "safetensors", "rich")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    folder: Path = weights.exported(weights.find_smollm2(), progress)
    progress("loading the model")
    from .engine.llama import LlamaModel

    tokenizer = importlib.import_module("transformers").AutoTokenizer.from_pretrained(folder)
    model = LlamaModel.load(folder)
    return Bundled(model, tokenizer, Vocabulary.from_tokenizer(tokenizer, width=model.vocabulary_size))


def submit(engine: Engine, bundled: Bundled, count: int) -> list[Served]:
    """`count` requests, the tasks in turn: the first round greedy, later ones sampled with seeds of their own."""
    compiled = [compile_grammar(task.grammar(), bundled.vocabulary) for task in TASKS[:count]]
    served: list[Served] = []
    for number in range(count):
        task = TASKS[number % len(TASKS)]
        request = Request(
            prompt_ids=bundled.prompt_ids(task.prompt),
            grammar=compiled[number % len(TASKS)],
            max_tokens=MAX_TOKENS,
            temperature=0.0 if number < len(TASKS) else 0.7,
            seed=number,
            text=True,
        )
        served.append(Served(task, engine.submit(request)))
    return served


def serve(engine: Engine, served: Sequence[Served], show: Callable[[], None]) -> float:
    """Step until all are finished, calling `show` after each step; the seconds it took."""
    start = time.perf_counter()
    while not engine.is_idle:
        engine.step_or_wait()
        for item in served:
            item.text = item.handle.text
        show()
    return time.perf_counter() - start


def run(slots: int = 8, count: int = len(TASKS)) -> int:
    """Run the demo on the terminal. Returns 0, or 1 if an answer does not have its form."""
    weights.require("torch", "transformers", "safetensors", "rich")
    from rich.console import Console

    from ..masks.warm_up import warm_up
    from .engine.engine import Engine
    from .text import TextProcess

    console = Console(highlight=False)

    def progress(line: str) -> None:
        console.print(f"stepmask: {line}", markup=False, soft_wrap=True)

    progress("compiling kernels: up to a minute the first time on a machine")
    warm_up(progress=console.is_terminal)
    bundled = load(progress)
    with TextProcess(bundled.vocabulary) as text:
        engine = Engine(bundled.model, bundled.vocabulary, slots, MAX_LENGTH, text=text, forced=True)
        return _serve_and_show(engine, bundled, count, console, progress)


def _serve_and_show(engine: Engine, bundled: Bundled, count: int, console: Any, progress: Callable[[str], None]) -> int:
    from rich.live import Live

    start = time.perf_counter()
    served = submit(engine, bundled, count)
    kinds = min(count, len(TASKS))
    milliseconds = 1e3 * (time.perf_counter() - start)
    progress(f"grammars of {kinds} kinds compiled and {count} prompts encoded in {milliseconds:.0f} ms")
    if console.is_terminal:
        with Live(_table(served, "running"), console=console, refresh_per_second=10) as live:
            seconds = serve(engine, served, lambda: live.update(_table(served, "running")))
            live.update(_table(served, "answers"))
    else:
        announced: set[int] = set()

        def announce() -> None:
            for number, item in enumerate(served):
                if item.handle.is_finished and number not in announced:
                    announced.add(number)
                    progress(f"{len(announced)} of {count}: {item.task.name}: {item.text}")

        seconds = serve(engine, served, announce)
        console.print(_table(served, "answers"))
    tokens = sum(len(item.handle.token_ids) for item in served)
    recorder = engine.recorder
    counts = f"{recorder.steps} steps, {recorder.forwards} forward passes"
    console.print(f"{tokens} tokens in {seconds:.1f} s, {counts}; a step took")
    console.print(recorder.table(), markup=False)
    for item in served:
        if item.handle.error is not None:
            console.print(f"{item.task.name}: {item.handle.error!r}", markup=False)
    return 0 if all(item.is_valid for item in served) else 1


def _table(served: Sequence[Served], title: str) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left")
    table.add_column("request", overflow="fold")
    table.add_column("prompt", ratio=1)
    table.add_column("output", ratio=1, overflow="fold")
    table.add_column("valid")
    table.add_column("tokens", justify="right")
    for item in served:
        finished = item.handle.is_finished
        valid = ("yes" if item.is_valid else "NO") if finished else ""
        # Text, not str: an answer may hold what rich would read as markup.
        cells = (item.task.name, item.task.prompt, item.text, valid, str(len(item.handle.token_ids)))
        table.add_row(*(Text(cell) for cell in cells))
    return table
