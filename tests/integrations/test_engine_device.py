"""An engine that samples on a device gives the tokens of one that samples on the host, at every budget."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from engine_cases import random_requests

import stepmask
from stepmask.grammar.limits import Limits
from stepmask.integrations.engine.engine import Engine
from stepmask.integrations.engine.grammar import Rows
from stepmask.integrations.engine.request import Request
from stepmask.integrations.engine.synthetic import SyntheticModel

pytest.importorskip("torch")

from stepmask.integrations.engine.device_rows import DeviceRows

LETTERS = "abcdefghijklmnop"
#: Two end tokens, the second of which a grammar names, and a model that is three ids wider.
ENDS = [256, 257]
WIDTH = 258 + len(LETTERS) ** 2 + 3
DEVICE = "cpu"


@pytest.fixture(scope="module")
def vocabulary() -> stepmask.Vocabulary:
    pairs = [(a + b).encode() for a, b in itertools.product(LETTERS, repeat=2)]
    tokens = [*(bytes([byte]) for byte in range(256)), b"", b"", *pairs]
    return stepmask.Vocabulary.from_bytes(tokens, eos=ENDS, special=ENDS, names={"<end>": 256, "<stop>": 257})


@pytest.fixture(scope="module")
def grammars(vocabulary: stepmask.Vocabulary) -> list[Any]:
    """Masks of all of them are found on demand, state by state."""
    built = []
    for number in range(15):
        c, d = LETTERS[number], LETTERS[-1 - number]
        grammar = [
            stepmask.regex("".join(f"[^{x}]" for x in LETTERS[number:]) + f"{c}*"),
            stepmask.gbnf(f'root ::= "(" (root ("," root)*)? ")" | [{c}-z0-9]+ | "\\"" [^"{d}]* "\\""'),
            stepmask.lark(f'start: /[{c}-z]/ start? <stop> | "{d}"'),
        ][number % 3]
        built.append(stepmask.compile(grammar, vocabulary, Limits(max_eager_contexts=0), use_cache=False))
    return built


def requests_with_stops(rng: np.random.Generator, grammars: list[Any], count: int) -> list[Request]:
    """Some of them end at another token, too."""
    return [
        replace(request, stop_token_ids=(int(rng.integers(97, 110)),) if rng.random() < 0.3 else ())
        for request in random_requests(rng, grammars, count)
    ]


def run(
    vocabulary: stepmask.Vocabulary, requests: list[Request], slots: int, rows: Rows | None, **modes: Any
) -> tuple[Engine, Any]:
    engine = Engine(SyntheticModel(WIDTH, seed=1), vocabulary, slots, 160, rows=rows, **modes)
    handles = [engine.submit(request) for request in requests]
    engine.run()
    return engine, [(handle.token_ids, handle.log_probabilities, handle.finish_reason) for handle in handles]


@pytest.mark.parametrize(
    ("budget", "prefetch", "modes"),
    [(None, False, {}), (1.0, False, {}), (1.0, True, {}), (2.0, False, {"overlap": True, "forced": True})],
)
def test_tokens_are_the_hosts(
    vocabulary: stepmask.Vocabulary, grammars: list[Any], budget: float | None, prefetch: bool, modes: dict[str, bool]
) -> None:
    """Rows ready, verified and deferred, requests that come and go, a pool that turns over."""
    rng = np.random.default_rng(6)
    slots, waited, epochs = 4, 0, 0
    for _ in range(2):
        requests = requests_with_stops(rng, grammars, 24)
        _, expected = run(vocabulary, requests, slots, None)
        rows = DeviceRows(
            vocabulary, slots, WIDTH, budget, 2 * slots, device=DEVICE, backend="torch", prefetch=prefetch
        )
        begin = rows.mirror.generation
        engine, answers = run(vocabulary, requests, slots, rows, **modes)
        assert answers == expected
        outcomes = engine.recorder.outcomes()
        waited += outcomes["verified"] + outcomes["deferred"]
        assert rows.mirror.steps > 0 and rows.mirror.uploaded_bytes > 0
        epochs += rows.mirror.generation - begin
    assert epochs > 0
    assert (waited > 0) == (budget is not None)


def test_too_many_end_tokens_end_the_request(vocabulary: stepmask.Vocabulary) -> None:
    request = Request(prompt_ids=[1], max_tokens=3, stop_token_ids=tuple(range(31)))
    _, [(_, _, reason)] = run(vocabulary, [request], 2, None)
    assert reason == "error"
