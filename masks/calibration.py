"""How much fuel this machine burns in a microsecond: measured once with cold caches, kept beside the compiled kernels.

The work of a step is counted in units of fuel, which kinds of work take unequal times. So a few masks of each kind are
computed, each after the caches have been emptied, and the slowest kind decides: a budget in microseconds holds for it,
and other work takes less time than it was allowed.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._numba import source_digest
from .fuel import NO_FUEL_LIMIT
from .layout import COUNT_WORK

if TYPE_CHECKING:
    from ..grammar.expression import Grammar
    from .batch import Batch
    from .compiled import CompiledGrammar
    from .vocabulary import Vocabulary

#: Environment variable that says the units in a microsecond, instead of a measurement: the same for a whole fleet.
VARIABLE = "STEPMASK_FUEL_PER_US"
#: Bytes written between two masks, so that what they touch leaves the caches.
EVICTED_BYTES = 32 << 20
#: Tokens of the vocabulary for measuring, in which masks of all kinds take from some 10 us to some 1 ms.
TOKENS = 12_000
#: Masks of less work are lost in the time that a call takes.
LEAST_WORK = 2000
#: Of the times of one kind's masks, each the least of so many tries.
TRIES = 3
#: The share of masks that take no longer than what is reckoned with.
QUANTILE = 0.9

_LOCK = threading.Lock()
_MEASURED: list[float] = []


def fuel_of(budget_us: float, fuel_per_us: float | None = None) -> int:
    """Units of fuel in a budget, at least 1. Raises `ValueError` for less than no budget, or units not above 0."""
    if not budget_us >= 0:
        raise ValueError(f"budget_us must be at least 0, not {budget_us}")
    units = fuel_per_microsecond() if fuel_per_us is None else fuel_per_us
    if not 0 < units < float("inf"):
        raise ValueError(f"fuel_per_us must be above 0, not {units}")
    return max(1, int(min(budget_us * units, NO_FUEL_LIMIT)))


def fuel_per_microsecond() -> float:
    """The units in a microsecond on this machine: from the environment, the file, or measured now (a second or so)."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return float(named)
    with _LOCK:
        if not _MEASURED:
            path = _path()
            known = _read(path)
            _MEASURED.append(known if known is not None else _measure_and_keep(path))
        return _MEASURED[0]


def _path() -> Path:
    """The file of this machine's processor and these kernels, where Numba keeps what it has compiled."""
    from llvmlite import binding

    from .walk import run_job

    folder = Path(str(run_job._cache.cache_path))  # type: ignore[attr-defined]
    return folder / f"fuel-{binding.get_host_cpu_name()}-{source_digest()[:12]}.json"


def _read(path: Path) -> float | None:
    try:
        value = json.loads(path.read_text())["fuel_per_us"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return float(value) if isinstance(value, (int, float)) and 0 < value < 1e6 else None


def _measure_and_keep(path: Path) -> float:
    found = nanoseconds_by_kind()
    slowest = max(float(np.quantile(times, QUANTILE)) for times in found.values() if times)
    units = 1000.0 / slowest
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        own = path.with_suffix(f".{os.getpid()}")
        own.write_text(json.dumps({"fuel_per_us": units}))
        own.replace(path)
    except OSError:
        pass  # measured again by the next process
    return units


def kinds() -> dict[str, Grammar]:
    """A grammar for each kind of work on masks."""
    from ..grammar.gbnf import gbnf
    from ..grammar.regex import regex

    return {
        "trie": regex("(?:[a-f]{2}|[b-z]{3}|é|[0-9]{2} )*"),
        "bitmaps": regex('(?:[^",]*[",]){20}'),
        "counters": regex("(?:[^a,]{1,50},){1,400}"),
        "sets": regex("(?:[a-e]{1,9}[^c]|[b-w][^a ]{2}){9}"),
        "contexts": gbnf('root ::= "{" (root ("," root)*)? "}" | [a-h0-9 ]+ | "\\"" [^"]* "\\""'),
    }


def sample_vocabulary() -> Vocabulary:
    """Single bytes and random words, the same in every run."""
    from .vocabulary import Vocabulary

    draw = random.Random(1)
    letters = 'abcdefghijklmnopqrstuvwxyz0123456789 ,"{}é日\n'
    words = {"".join(draw.choices(letters, k=draw.randint(2, 7))).encode() for _ in range(TOKENS)}
    return Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), *sorted(words)], eos=None)


def nanoseconds_by_kind() -> dict[str, list[float]]:
    """Nanoseconds per unit of fuel of some masks of each kind, with cold caches, of the thread's own time."""
    from ..grammar.limits import Limits
    from .compiled import compile

    vocabulary = sample_vocabulary()
    found = {}
    for name, grammar in kinds().items():
        limits = Limits(max_eager_contexts=0, max_dfa_states=1) if name == "sets" else Limits(max_eager_contexts=0)
        found[name] = nanoseconds_per_unit(compile(grammar, vocabulary, limits, use_cache=False))
    return found


def nanoseconds_per_unit(compiled: CompiledGrammar, masks: int = 4, seed: int = 0) -> list[float]:
    """Nanoseconds per unit of fuel of the first masks of LEAST_WORK that random legal tokens meet, with cold caches."""
    from .batch import Batch

    evicted = np.zeros(EVICTED_BYTES // 8, np.int64)
    times: dict[int, float] = {}
    for _ in range(TRIES):
        batch = Batch(compiled.vocabulary, 1, None, pool_masks=64)
        draw = random.Random(seed)
        slot = batch.add(compiled)
        for number in range(4 * masks):
            if len(times) >= masks and number > max(times):
                break
            evicted += 1
            time_ns, work = _timed_plan(batch, slot)
            if work >= LEAST_WORK:
                # Again with the mask there: what is left is the call, whose code and data are cold as well.
                evicted += 1
                call_ns, call_work = _timed_plan(batch, slot)
                if work - call_work >= LEAST_WORK and time_ns > call_ns:
                    own = (time_ns - call_ns) / (work - call_work)
                    times[number] = min(times.get(number, float("inf")), own)
            words = batch.mask(slot)
            legal = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
            if not len(legal):
                break
            batch.advance(np.array([slot], np.int32), np.array([legal[draw.randrange(len(legal))]], np.int32))
    return list(times.values())


def _timed_plan(batch: Batch, slot: int) -> tuple[int, int]:
    """(nanoseconds, units of fuel) that the mask of a slot takes."""
    counters: Any = batch.counter_values
    row = np.array([slot], np.int32)
    before = int(counters[COUNT_WORK])
    begin = time.thread_time_ns()
    batch.plan_within(row, NO_FUEL_LIMIT)
    return time.thread_time_ns() - begin, int(counters[COUNT_WORK]) - before
