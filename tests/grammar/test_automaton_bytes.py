"""The bytes of an automaton: equal every time, adopted without a copy, and refused where they are damaged."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stepmask.grammar.automaton import (
    HEADER_WORDS,
    SECTIONS,
    Automaton,
    aligned_bytes,
)
from stepmask.grammar.compile import compile_grammar
from stepmask.grammar.errors import GrammarError
from stepmask.grammar.json_schema.front_end import json_schema
from stepmask.grammar.regex import regex

PATTERNS = [
    r"\w+@\w+\.(com|org)",
    r"[^a]{1,5000}",
    r"(foo|bar|foobar){1,1000}",
    r"(?!ab)[a-f]{2,9}x?",
    r"(?:[a-z]{1,99},)*",
]
#: What a value may be depends on another one in six ways, told apart by the values that several `enum`s list.
_KINDS = {"allOf": [{"properties": {"kind": {"enum": ["p", "q", "r", "s"]}}}]}
_LIST = {"type": "array", "items": {"type": "number"}}
_BY_KIND = {
    "p": {"allOf": [_LIST, {"minItems": 1}]}, "q": {"items": _LIST}, "r": {"items": {"items": _LIST}},
    "s": {"allOf": [_LIST, {"maxItems": 3}]},
}  # fmt: skip
SCHEMA = {
    "oneOf": [
        *({"required": ["at"], "properties": {"kind": {"enum": [kind]}, "at": at}, **_KINDS}
          for kind, at in _BY_KIND.items()),
        {"properties": {"at": _LIST}, **_KINDS},
        {},
    ]
}  # fmt: skip
DIGESTS = """
import hashlib, sys
from stepmask.grammar.compile import compile_grammar
from stepmask.grammar.json_schema.front_end import json_schema
from stepmask.grammar.regex import regex
schema, *patterns = sys.argv[1:]
for grammar in (json_schema(schema), *map(regex, patterns)):
    sys.stdout.write(hashlib.sha256(compile_grammar(grammar).buffer).hexdigest() + "\\n")
"""


def test_equal_bytes_under_any_hash_seed() -> None:
    grammars = (json_schema(SCHEMA), *map(regex, PATTERNS))
    here = [hashlib.sha256(compile_grammar(grammar).buffer).hexdigest() for grammar in grammars]
    for seed in ("1", "2", "4"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        paths = [str(Path(sys.modules["stepmask"].__path__[0]).parent), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        arguments = [sys.executable, "-c", DIGESTS, json.dumps(SCHEMA), *PATTERNS]
        run = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True)
        assert run.stdout.split() == here


def test_adopting_shares_the_bytes_and_notices_damage() -> None:
    automaton = compile_grammar(regex(r"[a-z]+\d{1,300}"))
    copy = aligned_bytes(automaton.buffer.nbytes)
    copy[:] = automaton.buffer
    adopted = Automaton.adopt(copy)
    assert all(np.array_equal(adopted[name], automaton[name]) for name, _ in SECTIONS)
    assert adopted["edges"].base is not None and np.shares_memory(adopted["edges"], copy)
    assert adopted.metadata == automaton.metadata
    for position in (0, 8, 8 * HEADER_WORDS + 3, copy.nbytes - 1):
        damaged = copy.copy()
        damaged[position] ^= 1
        with pytest.raises(GrammarError):
            Automaton.adopt(damaged)
    for length in (0, 100, copy.nbytes - 64):
        with pytest.raises(GrammarError):
            Automaton.adopt(copy[:length])
