"""The bytes of an automaton: equal every time, adopted without a copy, and refused where they are damaged."""

from __future__ import annotations

import hashlib
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
from stepmask.grammar.regex import regex

PATTERNS = [
    r"\w+@\w+\.(com|org)",
    r"[^a]{1,5000}",
    r"(foo|bar|foobar){1,1000}",
    r"(?!ab)[a-f]{2,9}x?",
    r"(?:[a-z]{1,99},)*",
]
DIGESTS = """
import hashlib, sys
from stepmask.grammar.compile import compile_grammar
from stepmask.grammar.regex import regex
for pattern in sys.argv[1:]:
    sys.stdout.write(hashlib.sha256(compile_grammar(regex(pattern)).buffer).hexdigest() + "\\n")
"""


def test_equal_bytes_under_any_hash_seed() -> None:
    here = [hashlib.sha256(compile_grammar(regex(pattern)).buffer).hexdigest() for pattern in PATTERNS]
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        paths = [str(Path(sys.modules["stepmask"].__path__[0]).parent), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        run = subprocess.run(
            [sys.executable, "-c", DIGESTS, *PATTERNS], env=environment, capture_output=True, text=True, check=True
        )
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
