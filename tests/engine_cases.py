"""What the tests of the engine's loops share: a vocabulary, grammars, random requests, and what is compared of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

import stepmask
from stepmask.grammar.limits import Limits
from stepmask.integrations.engine import Engine, Handle, Request
from stepmask.integrations.engine.synthetic import SyntheticModel

EOS = 256
LETTERS = "abcdefghijklmnopqrstuvwxyz"
#: Single bytes, an end token, pairs of letters; the model is three ids wider.
WIDTH = 257 + 26 * 26 + 3
VOCABULARY = stepmask.Vocabulary.from_bytes(
    [
        *(bytes([byte]) for byte in range(256)),
        b"",
        *((a + b).encode() for a, b in itertools.product(LETTERS, repeat=2)),
    ],
    eos=[EOS],
    special=[EOS],
)


def compiled(grammar: stepmask.Grammar) -> stepmask.CompiledGrammar:
    """Compiled so that masks are found on demand, state by state."""
    return stepmask.compile(grammar, VOCABULARY, Limits(max_eager_contexts=0), use_cache=False)


def random_grammars(count: int = 24) -> list[Any]:
    rng = np.random.default_rng(0)
    built = []
    for number in range(count):
        c, d, e = rng.choice(list(LETTERS), 3, replace=False).tolist()
        grammar = [
            stepmask.regex(f"[^{c}]{{2,9}}{c}[{d}-z ]*"),
            stepmask.regex(f"(?:[^{c},]{{1,5}},){{1,20}}"),
            stepmask.regex(f"(?:{c}{d}|{d}[a-m]|é|[0-9]{{2}}|[{min(e, 'y')}-z]{{3}}){{2,30}}"),
            stepmask.gbnf(f'root ::= "(" (root ("," root)*)? ")" | [{c}-z0-9]+ | "\\"" [^"{d}]* "\\""'),
        ][number % 4]
        built.append(compiled(grammar))
    return built


def forcing_grammars() -> list[Any]:
    """Grammars that often leave one token only: runs of digits and marks, which no longer token spells."""
    record = stepmask.json_schema(
        {
            "type": "object",
            "properties": {
                "id 1": {"type": "integer", "minimum": 0},
                "OK": {"type": "boolean"},
                "5": {"const": "3.14"},
            },
            "required": ["id 1", "OK", "5"],
            "additionalProperties": False,
        },
        whitespace="compact",
    )
    return [
        compiled(stepmask.regex("(?:2026-0[1-9]-0[1-3]T00:00:00Z;){1,3}")),
        compiled(stepmask.regex("(?:A1B2C3|A1B2C4|X-0-0-0-0-9)+!!!")),
        compiled(record),
        compiled(stepmask.gbnf('root ::= "<<<1>>>" item "<<<2>>>"\nitem ::= "[" item "]" | "0123456789" | "#" [a-z]')),
    ]


def random_requests(rng: np.random.Generator, grammars: Sequence[Any], count: int, **settings: Any) -> list[Request]:
    return [
        Request(
            prompt_ids=rng.integers(0, 256, rng.integers(1, 90)).tolist(),
            grammar=None if rng.random() < 0.1 else grammars[rng.integers(len(grammars))],
            max_tokens=int(rng.integers(1, 25)),
            temperature=float(rng.choice([0.0, 0.5, 1.0, 2.0])),
            top_k=int(rng.choice([0, 0, 3, 30])),
            top_p=float(rng.choice([1.0, 0.5, 0.95])),
            min_p=float(rng.choice([0.0, 0.0, 0.05])),
            seed=int(rng.integers(0, 2**60)),
            min_tokens=int(rng.choice([0, 0, 1])),
            logprobs=bool(rng.random() < 0.1),
            **settings,
        )
        for _ in range(count)
    ]


def served(
    requests: Sequence[Request], budget: float | None, slots: int = 6, forward_seconds: float = 0.0, **options: Any
) -> tuple[Engine, list[Handle]]:
    """An engine that has served them, in slots that they share, and their handles."""
    engine = Engine(
        SyntheticModel(WIDTH, seed=1, forward_seconds=forward_seconds),
        VOCABULARY,
        slots,
        160,
        budget_us=budget,
        **options,
    )
    handles = [engine.submit(request) for request in requests]
    engine.run()
    return engine, handles


def answers(handles: Sequence[Handle]) -> list[Any]:
    """Everything of the answers that must not depend on how they were made."""
    return [
        (result.token_ids, result.log_probabilities, result.finish_reason, result.text, result.logprobs_json)
        for result in (handle.result() for handle in handles)
    ]
