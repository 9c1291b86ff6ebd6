"""What the service remembers of finished compiles."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from ...masks.compiled import CompiledGrammar
from .failures import Failure
from .limits import ServiceLimits


class KeptResults:
    """Compiled grammars and grammar errors by the key of their request, the last used ones of each."""

    def __init__(self, bounds: ServiceLimits) -> None:
        self._bounds = bounds
        self._compiled: OrderedDict[str, CompiledGrammar] = OrderedDict()
        self._failures: OrderedDict[str, Failure] = OrderedDict()

    def get(self, key: str) -> CompiledGrammar | Failure | None:
        """What is known of a request."""
        if key in self._compiled:
            self._compiled.move_to_end(key)
            return self._compiled[key]
        if key in self._failures:
            self._failures.move_to_end(key)
            return self._failures[key]
        return None

    def put(self, key: str, result: CompiledGrammar | Failure) -> None:
        """Remember a result; an error only where the grammar is what is wrong."""
        if isinstance(result, CompiledGrammar):
            self._compiled[key] = result
            if len(self._compiled) > self._bounds.max_kept:
                self._compiled.popitem(last=False)
        elif result.is_lasting:
            self._failures[key] = result
            if len(self._failures) > self._bounds.max_kept_errors:
                self._failures.popitem(last=False)


@dataclass
class ServiceCounts:
    """What a service has done so far, in requests or jobs."""

    #: Requests taken, whatever became of them; not those that `submit` refused.
    submitted: int = 0
    #: Requests refused because too much was waiting.
    refused: int = 0
    #: Requests answered from memory: with a compiled grammar, with an error.
    answered: int = 0
    answered_with_error: int = 0
    #: Requests that joined a job that was there already.
    coalesced: int = 0
    #: Jobs given to workers, a second time after a worker's death included.
    started: int = 0
    #: Jobs that ended with a compiled grammar; those of them that the worker took from the cache on disk; those whose
    #: result came in an unnamed file because the cache's was not to be had or not worth it.
    compiled: int = 0
    from_cache: int = 0
    unnamed: int = 0
    #: Jobs that ended with an error of the grammar or of the worker's program.
    failed: int = 0
    timed_out: int = 0
    out_of_memory: int = 0
    #: Jobs that nobody waited for any more: taken out of the queue, or given up by a worker.
    dropped: int = 0
    given_up: int = 0
    #: Results that arrived damaged, and were made again.
    damaged: int = 0
    #: Worker processes started, and those that ended without being told to.
    workers_started: int = 0
    workers_died: int = 0
