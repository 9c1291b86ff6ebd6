"""Times of single sequences: what a compile, a first mask, cold and warm masks and accepting a token take."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns, thread_time_ns
from typing import Any

import numpy as np
from cases import Case
from common import versions
from peers import Refused

#: `cpu` is the time of the thread alone, without what other processes took meanwhile.
CLOCKS: dict[str, Callable[[], int]] = {"wall": perf_counter_ns, "cpu": thread_time_ns}
#: A grammar that took longer to compile is compiled once only, so later texts find warm what earlier ones visited.
SLOW_COMPILE_SECONDS = 1
#: A sequence that took longer is cut there.
PATIENCE_SECONDS = 20


@dataclass
class Times:
    """Nanoseconds of one library on one grammar. `cold_accept` and `accept` belong to `cold` and `warm`, one each.

    `cut` counts sequences that were cut after `PATIENCE_SECONDS`.
    """

    compile: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    cold: list[int] = field(default_factory=list)
    cold_accept: list[int] = field(default_factory=list)
    warm: list[int] = field(default_factory=list)
    accept: list[int] = field(default_factory=list)
    cut: int = 0
    refused: str = ""
    compiled: Any = None


class Splitter:
    """Texts to token ids, so that the tokens' bytes are the text's."""

    def __init__(self, path: Path) -> None:
        import tokenizers

        import stepmask

        self.vocabulary = stepmask.Vocabulary.from_file(path)
        self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        text = np.flatnonzero(self.vocabulary.is_text).tolist()
        self._ids = {self.vocabulary.token(i): i for i in reversed(text)}
        self._longest = max(map(len, self._ids))

    def _greedy(self, text: bytes) -> list[int]:
        ids = []
        while text:
            n = next(n for n in range(min(self._longest, len(text)), 0, -1) if text[:n] in self._ids)
            ids.append(self._ids[text[:n]])
            text = text[n:]
        return ids

    def in_bytes(self, text: bytes) -> list[int]:
        """One byte a token."""
        return [i for byte in text for i in self._greedy(bytes([byte]))]

    def characters(self, text: str) -> list[int]:
        """One character a token (more tokens where the vocabulary has none for a character)."""
        return [i for character in text for i in self._greedy(character.encode())]

    def tokens(self, text: str) -> list[int]:
        """As the tokenizer splits it (longest match where the tokenizer changes the text)."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids if self.vocabulary.decode(ids) == text.encode() else self._greedy(text.encode())

    def scripts(self, text: str) -> list[list[int]]:
        """As the tokenizer splits it, and by characters."""
        return [self.tokens(text), self.characters(text)]


def run_steps(
    compiled: Any, script: Sequence[int], masks: list[int], accepts: list[int], clock: Callable[[], int]
) -> bool:
    """One sequence through a grammar; appends the times of its masks and of its accepts. False: it was cut."""
    matcher = compiled.matcher()
    patience = perf_counter_ns() + PATIENCE_SECONDS * 10**9
    for token in script:
        if perf_counter_ns() > patience:
            return False
        start = clock()
        matcher.mask()
        middle = clock()
        accepted = matcher.accept(token)
        end = clock()
        masks.append(middle - start)
        accepts.append(end - middle)
        if not accepted:
            matcher.check()
            raise Refused(f"refuses token {token} of a text of the language")
    matcher.mask()
    matcher.check()
    if not matcher.may_end():
        raise Refused("does not let a text of the language end")
    return True


def measure(library: Any, case: Case, scripts: Sequence[Sequence[int]], repeats: int = 1, clock: str = "wall") -> Times:
    """All single-sequence times of a library on a grammar. A step of several repeats took what its fastest took."""
    times = Times()
    try:
        for script in scripts:
            runs = []
            while len(runs) < repeats and not (runs and runs[-1].cut):
                runs.append(_once(library, case, script, times, CLOCKS[clock]))
            times.cut += runs[-1].cut
            for name in ("cold", "cold_accept", "warm", "accept"):
                series = zip(*(getattr(run, name) for run in runs), strict=False)  # one that was cut is shorter
                getattr(times, name).extend(map(min, series))
    except Refused as error:
        times.refused = str(error)
    return times


def _once(library: Any, case: Case, script: Sequence[int], times: Times, clock: Callable[[], int]) -> Times:
    """One cold and one warm sequence. Compiling goes into `times`, and so does what was compiled."""
    gc.collect()  # cheap where what was there before is frozen
    run = Times()
    if _is_fast(times):
        start = clock()
        times.compiled = library.compile(case)
        middle = clock()
        times.compiled.matcher().mask()
        times.first.append(clock() - start)
        times.compile.append(middle - start)
    if _is_fast(times):
        times.compiled = library.compile(case)
    if run_steps(times.compiled, script, run.cold, run.cold_accept, clock):
        run.cut = 1 - run_steps(times.compiled, script, run.warm, run.accept, clock)
    else:
        run.cut = 1
    return run


def _is_fast(times: Times) -> bool:
    return not times.first or times.first[-1] < SLOW_COMPILE_SECONDS * 10**9


def frozen(make: Callable[[], Any]) -> Any:
    """What `make` returns, with garbage collection off from then on."""
    made = make()
    gc.collect()
    gc.freeze()
    gc.disable()
    return made


def installed() -> dict[str, str]:
    """Versions of everything that takes part."""
    return versions("stepmask", "xgrammar", "llguidance", "numpy", "numba", "torch", "tokenizers", "transformers")
