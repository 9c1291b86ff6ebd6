"""Replays the instances of JSON schemas through one library, in a process of its own that can be ended.

`replay` gives the `Outcome` of one schema in this process; a `Worker` asks a child process for it, and says that the
library crashed where the child dies or takes longer than its limit.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import resource
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from peers import SCHEMA_LIBRARIES, Refused
from sequences import CLOCKS, Splitter, frozen

#: An outcome is one of these; a schema that is both over and under counts as over here, and `Outcome` says both.
STATUSES = ("pass", "order", "over", "under", "refused", "crash")
#: How long a child may take to load its library, in seconds: the first one on a machine compiles its kernels.
START_SECONDS = 600
#: Keywords by which refusals are grouped, as they stand in the library's message.
KEYWORDS = (
    "unevaluatedProperties", "unevaluatedItems", "dependentRequired", "dependentSchemas", "dependencies",
    "patternProperties", "additionalProperties", "propertyNames", "minProperties", "maxProperties", "properties",
    "required", "uniqueItems", "prefixItems", "additionalItems", "minContains", "maxContains", "contains", "minItems",
    "maxItems", "items", "minLength", "maxLength", "pattern", "format", "multipleOf", "exclusiveMinimum",
    "exclusiveMaximum", "minimum", "maximum", "enum", "const", "allOf", "anyOf", "oneOf", "not", "if", "then", "else",
    "$dynamicRef", "$recursiveRef", "$ref", "$schema", "$id", "extends", "disallow", "type",
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """What a replay does: `masks` asks for a mask before every token, `compact` writes instances without spaces."""

    tokenizer: Path
    masks: bool = True
    compact: bool = False
    clock: str = "wall"
    #: Writable memory of a child, in gigabytes.
    memory_gb: int = 8


@dataclass
class Outcome:
    """What came out for one schema. Times are in nanoseconds.

    `over` and `under` are the indices of instances wrongly refused and wrongly accepted, `order` of those that only
    any order of properties takes. `masks` has one array an instance, valid or not.
    """

    id: str
    tested: bool
    status: str = "pass"
    message: str = ""
    keyword: str = ""
    first_mask: int | None = None
    masks: list[NDArray[np.int64]] = field(default_factory=list)
    valid: list[bool] = field(default_factory=list)
    over: list[int] = field(default_factory=list)
    under: list[int] = field(default_factory=list)
    order: list[int] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        """As it is written, without times; what is empty is left out."""
        named = ("id", "status", "tested", "keyword", "message", "over", "under", "order")
        return {name: value for name in named if (value := getattr(self, name)) not in ("", [])}


def text_of(data: Any, compact: bool = False) -> str:
    """The text of an instance."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":") if compact else None)


def keyword_in(message: str, place: str | None) -> str:
    """The keyword that a refusal is about: the last of its JSON pointer, or else the first that its message quotes."""
    steps = [step for step in (place or "").split("/") if step in KEYWORDS]
    if steps:
        return steps[-1]
    quoted = [(at, word) for word in KEYWORDS for mark in "\"'` " if (at := message.find(mark + word)) >= 0]
    return min(quoted, key=lambda one: (one[0], -len(one[1])))[1] if quoted else ""


class Replayer:
    """One library, ready."""

    def __init__(self, library: str, settings: Settings) -> None:
        self._library = SCHEMA_LIBRARIES[library](settings.tokenizer)
        self._splitter = Splitter(settings.tokenizer)
        self._settings = settings
        self._clock: Callable[[], int] = CLOCKS[settings.clock]
        #: Its masks say exactly what it accepts; others are not held to that (llguidance's are narrower by design).
        self._is_exact = library == "stepmask"

    def replay(self, item: dict[str, Any]) -> Outcome:
        """The outcome of a line of MaskBench: `id`, `schema` and `tests`."""
        gc.collect()  # cheap where what was there before is frozen
        outcome = Outcome(item["id"], bool(item["tests"]))
        try:
            self._replay(item, outcome)
        except Exception as error:  # a crash is an outcome
            place = getattr(error, "place", None)
            is_refusal = isinstance(error, Refused) or self._is_grammar_error(error)
            outcome.status = "refused" if is_refusal else "crash"
            kind = "" if isinstance(error, Refused) else f"{type(error).__name__}: "
            outcome.message = f"{kind}{error}"[:400]
            if not is_refusal:
                at = traceback.extract_tb(error.__traceback__)[-1]
                outcome.message += f" ({Path(at.filename).name}, line {at.lineno}, in {at.name})"
            limit = getattr(error, "limit", None)
            outcome.keyword = f"Limits.{limit}" if limit else keyword_in(outcome.message, place)
        return outcome

    @staticmethod
    def _is_grammar_error(error: Exception) -> bool:
        import stepmask

        return isinstance(error, stepmask.GrammarError)

    def _replay(self, item: dict[str, Any], outcome: Outcome) -> None:
        start = self._clock()
        compiled = self._library.compile_schema(item["schema"])
        compiled.matcher().mask()
        outcome.first_mask = self._clock() - start
        any_order: Any = None
        for index, test in enumerate(item["tests"]):
            tokens = self._splitter.tokens(text_of(test["data"], self._settings.compact))
            times: list[int] = []
            accepted = self._accepts(compiled, tokens, times)
            outcome.masks.append(np.array(times, np.int64))
            outcome.valid.append(bool(test["valid"]))
            if test["valid"] and not accepted:
                any_order = any_order or self._in_any_order(item["schema"])
                found = any_order is not None and self._accepts(any_order, tokens, None)
                (outcome.order if found else outcome.over).append(index)
            elif accepted and not test["valid"]:
                outcome.under.append(index)
        outcome.status = next((name for name in ("over", "under", "order") if getattr(outcome, name)), "pass")

    def _in_any_order(self, schema: Any) -> Any:
        try:
            return self._library.compile_schema(schema, any_order=True)
        except Refused:
            return None

    def _accepts(self, compiled: Any, tokens: list[int], times: list[int] | None) -> bool:
        """Whether all the tokens are accepted and the text may end there. None for `times`: ask for no masks."""
        matcher = compiled.matcher()
        clock = self._clock
        for token in tokens:
            if times is None or not self._settings.masks:
                accepted = matcher.accept(token)
            else:
                start = clock()
                mask = matcher.mask()
                times.append(clock() - start)
                accepted = matcher.accept(token)
                if self._is_exact and bool(mask[token >> 5] >> (token & 31) & 1) != accepted:
                    raise AssertionError(f"the mask says {not accepted}, accept says {accepted} of token {token}")
            if not accepted:
                return False
        return bool(matcher.may_end())


def _serve(connection: Connection, library: str, settings: Settings) -> None:
    """A child: one outcome for each item that comes, until None does."""
    os.environ["OMP_NUM_THREADS"] = "1"
    limit = settings.memory_gb * 2**30
    replayer = frozen(lambda: Replayer(library, settings))
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    connection.send(None)
    while (item := connection.recv()) is not None:
        connection.send(replayer.replay(item))


class Worker:
    """A child process with one library. One that dies or takes longer than `seconds` is replaced."""

    def __init__(self, library: str, settings: Settings, seconds: float) -> None:
        self._arguments = (library, settings)
        self._seconds = seconds
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, *self._arguments), daemon=True)
        self._process.start()
        theirs.close()
        if (why := self._answer(START_SECONDS)) is not None:
            raise RuntimeError(f"{self._arguments[0]} did not start: {why}")

    def _answer(self, seconds: float) -> Any:
        """What the child sends, or the string that says why nothing came."""
        why = f"no answer within {seconds:g} s"
        try:
            if self._connection.poll(seconds):
                return self._connection.recv()
        except EOFError:
            self._process.join()
            why = f"the process died (exit code {self._process.exitcode})"
        self._process.kill()
        self._process.join()
        return why

    def replay(self, item: dict[str, Any]) -> Outcome:
        """`Replayer.replay` in the child."""
        self._connection.send(item)
        answer = self._answer(self._seconds)
        if isinstance(answer, Outcome):
            return answer
        self._start()
        return Outcome(item["id"], bool(item["tests"]), "crash", str(answer))

    def close(self) -> None:
        """End the child."""
        self._connection.send(None)
        self._process.join()
