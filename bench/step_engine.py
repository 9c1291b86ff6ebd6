"""The engine of bench/step_budget.py: a model that writes given texts, and back ends in place of one another.

A peer's calls are made the way vLLM makes them: grammars are compiled, and each request's matcher is made, in a pool of
(cores + 1) / 2 threads while the request waits without a slot; masks are filled on the engine's thread during the
forward pass, one call a request, up to 128 requests one after the other and else in pieces of 16 by a pool of threads;
tokens are accepted one call a request. What vLLM does besides (copying the masks to the device) is left out, in the
peers' favour.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from common import Evictor
from numpy.typing import NDArray
from peers import _hf_tokenizer, _ids
from step_cases import StepCase

import stepmask
from stepmask.integrations.compile_service import CompileService, ServiceLimits
from stepmask.integrations.engine.grammar import Rows, StepPlan
from stepmask.integrations.engine.model import OverlappedForward
from stepmask.integrations.engine.request import Request
from stepmask.integrations.text.in_process import InProcessText
from stepmask.integrations.text.output import TextOutput
from stepmask.integrations.text.process import TextProcess
from stepmask.masks.arena import ACCEPTED, REFUSED
from stepmask.masks.layout import READY
from stepmask.masks.outcome import Outcome
from stepmask.masks.sampling import SampleResult
from stepmask.masks.tables import ALL_ENDS, KIND_DENSE, KIND_EMPTY, KIND_SHIFT, UNCONSTRAINED, MaskTables, end_bits

#: What is added to the logit of the token that the model wants to write.
_PEAK = np.float32(20.0)
#: From how many masks on vLLM uses threads, and how many masks each takes at a time.
_SERIAL_MASKS, _CHUNK = 128, 16


class ScriptedModel(OverlappedForward):
    """Writes texts: a prompt's last token says which. Everything else about the logits is noise that stays the same.

    A forward pass takes `forward_s`. At its beginning `evict` streams through the caches; before its end is waited for,
    `during` is called.
    """

    prefill_chunk = 64

    def __init__(self, vocabulary: Any, scripts: Sequence[Sequence[int]], forward_s: float, evict: Evictor) -> None:
        self.vocabulary_size = vocabulary.width
        end = (vocabulary.eos or (0,))[0]
        longest = max(map(len, scripts))
        self._scripts = np.full((len(scripts), longest + 1), end, np.int64)
        for number, script in enumerate(scripts):
            self._scripts[number, : len(script)] = script
        self._forward_s = forward_s
        self._evict = evict
        self._deadline = 0.0
        self.during: Callable[[], None] | None = None

    def open(self, slots: int, max_length: int) -> NDArray[np.float32]:
        """The logits, and no cache."""
        noise = np.random.default_rng(0).normal(size=self.vocabulary_size).astype(np.float32)
        self._script = np.zeros(slots, np.int64)
        self._peaks = np.zeros(slots, np.int64)
        self._under = np.zeros(slots, np.float32)
        logits = np.stack([np.roll(noise, 7919 * row) for row in range(slots)])
        self._under[:] = logits[:, 0]
        return logits

    def prefill(self, cache: Any, slot: int, tokens: Any, start: int) -> None:
        """Nothing: prompts are of one token."""

    def begin(
        self,
        cache: NDArray[np.float32],
        tokens: NDArray[np.int32],
        positions: NDArray[np.int32],
        slots: NDArray[np.int32] | None,
    ) -> None:
        """See `OverlappedModel.begin`; `slots` is None."""
        self._deadline = time.perf_counter() + self._forward_s
        rows = np.arange(len(tokens))
        cache[rows, self._peaks] = self._under
        self._script = np.where(positions == 0, np.minimum(tokens, len(self._scripts) - 1), self._script)
        self._peaks = self._scripts[self._script, np.minimum(positions, self._scripts.shape[1] - 1)]
        self._under = cache[rows, self._peaks]
        cache[rows, self._peaks] = self._under + _PEAK
        self._evict()

    def finish(self, cache: NDArray[np.float32]) -> NDArray[np.float32]:
        """See `OverlappedModel.finish`."""
        if self.during is not None:
            self.during()
        remaining = self._deadline - time.perf_counter()
        if remaining > 0:
            time.sleep(remaining)
        return cache


class CallTimer:
    """Processor time of the step thread in calls of given methods, which is not disturbed by what else runs.

    What a method has other threads do is not in it. Only while `is_on`: with cold caches, asking for the time twice a
    call takes a good part of what a warm step takes.
    """

    def __init__(self, rows: Rows, *names: str) -> None:
        self.seconds = 0.0
        self.is_on = True
        for name in names:
            setattr(rows, name, self._timed(getattr(rows, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            if not self.is_on:
                return method(*arguments, **options)
            start = time.thread_time()
            try:
                return method(*arguments, **options)
            finally:
                self.seconds += time.thread_time() - start

        return timed


class PeerRows(Rows):
    """Rows whose masks a peer fills."""

    def __init__(self, vocabulary: Any, slots: int, peer: Any) -> None:
        """Grammars of requests are `peer`'s matchers."""
        import torch

        super().__init__(vocabulary, slots, vocabulary.width, None)
        self._peer = peer
        self._matchers: dict[int, Any] = {}
        words = -(-vocabulary.width // 32)
        self._bits = torch.full((slots, words), -1, dtype=torch.int32)
        none = np.zeros(0, np.int32)
        self._dense = self._bits.numpy().view(np.uint32)
        self._masks = MaskTables(self._dense, none, none, none)
        self._end = (vocabulary.eos or (0,))[0]
        self._threads = ThreadPoolExecutor(max(1, min((os.cpu_count() or 1) // 2, 8)))
        self._current: StepPlan | None = None
        #: Seconds of each step's masks.
        self.fill_s: list[float] = []

    def seat(self, row: int, request: Request) -> None:
        super().seat(row, replace(request, grammar=None))
        if request.grammar is not None:
            self._matchers[row] = request.grammar

    def clear(self, row: int) -> None:
        self._matchers.pop(row, None)

    def plan(self, decoding: NDArray[np.bool_], *, again: bool = False) -> StepPlan:
        rows = len(decoding)
        mask_ids = np.where(decoding, UNCONSTRAINED, KIND_EMPTY << KIND_SHIFT).astype(np.int32)
        for row in filter(decoding.__getitem__, self._matchers):
            mask_ids[row] = KIND_DENSE << KIND_SHIFT | row
        none = np.zeros(rows, np.bool_)
        status = np.full(rows, READY, np.uint8)
        self._current = StepPlan(decoding.copy(), status, none, mask_ids, end_bits(decoding), none, False)
        return self._current

    def fill(self) -> None:
        """The masks of the step; called during the forward pass."""
        start = time.perf_counter()
        plan = self._current
        assert plan is not None
        rows = [row for row in self._matchers if plan.decoding[row]]
        if len(rows) > _SERIAL_MASKS:
            pieces = [rows[at : at + _CHUNK] for at in range(0, len(rows), _CHUNK)]
            for done in [self._threads.submit(self._fill, piece) for piece in pieces]:
                done.result()
        else:
            self._fill(rows)
        for row in rows:
            legal = self._dense[row, self._end >> 5] >> (self._end & 31) & 1
            plan.end_allowed[row] = ALL_ENDS if legal else 0
        self.fill_s.append(time.perf_counter() - start)

    def _fill(self, rows: Sequence[int]) -> None:
        for row in rows:
            self._peer.fill(self._matchers[row], self._bits, row)

    def sample(self, logits: NDArray[np.float32], plan: StepPlan) -> SampleResult:
        return self._sampler.sample(
            logits, plan.mask_ids, self._masks, end_allowed=plan.end_allowed, end_sets=self._end_sets,
            parameters=self._parameters,
        )  # fmt: skip

    def settle(self, result: SampleResult) -> Outcome:
        rows = len(result.tokens)
        return Outcome(np.arange(rows, dtype=np.int32), result.tokens, np.full(rows, READY, np.uint8))

    def advance(self, plan: StepPlan, outcome: Outcome) -> NDArray[np.uint8]:
        answers = np.full(len(outcome.tokens), ACCEPTED, np.uint8)
        for row, matcher in self._matchers.items():
            token = int(outcome.tokens[row])
            if plan.decoding[row] and token >= 0 and not self._peer.accept(matcher, token):
                answers[row] = REFUSED
        self._parameters.position += plan.decoding & (outcome.tokens >= 0)
        return answers


class _Xgrammar:
    def __init__(self, tokenizer: Path) -> None:
        import xgrammar

        self._library = xgrammar
        hf = _hf_tokenizer(tokenizer)
        info = xgrammar.TokenizerInfo.from_huggingface(hf, vocab_size=_ids(hf))
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=8)

    def matcher(self, case: StepCase) -> Any:
        """Its compiler remembers grammars."""
        make = self._compiler.compile_json_schema if case.kind == "json_schema" else self._compiler.compile_regex
        return self._library.GrammarMatcher(make(case.text))

    def fill(self, matcher: Any, bits: Any, row: int) -> None:
        matcher.fill_next_token_bitmask(bits, row)

    def accept(self, matcher: Any, token: int) -> bool:
        return bool(matcher.accept_token(token))


class _Llguidance:
    def __init__(self, tokenizer: Path) -> None:
        import llguidance
        import llguidance.hf
        from llguidance.torch import fill_next_token_bitmask

        self._matcher = llguidance.LLMatcher
        hf = _hf_tokenizer(tokenizer)
        self._tokenizer = llguidance.hf.from_tokenizer(hf, n_vocab=_ids(hf))
        self._fill = fill_next_token_bitmask

    def matcher(self, case: StepCase) -> Any:
        if case.kind == "json_schema":
            grammar = self._matcher.grammar_from_json_schema(case.text)
        else:
            grammar = self._matcher.grammar_from_regex(case.text)
        matcher = self._matcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise ValueError(matcher.get_error().splitlines()[0])
        return matcher

    def fill(self, matcher: Any, bits: Any, row: int) -> None:
        self._fill(matcher, bits, row)

    def accept(self, matcher: Any, token: int) -> bool:
        return bool(matcher.consume_token(token))


class BackEnd:
    """One way to serve: how grammars are compiled (`compiling`), and rows stepped (`rows`).

    `BACK_ENDS` has the names: `stepmask` as it should be used; with a cure switched off each: no budget, no masks made
    ahead, nothing done during forward passes (but making masks ahead), grammars compiled by threads of the engine's own
    process, or text made by the step loop; the peers.
    """

    def __init__(self, name: str, vocabulary: Any, tokenizer: Path | None, budget_us: float) -> None:
        self.name = name
        self.vocabulary = vocabulary
        self.service: CompileService | None = None
        self.overlap = name != "stepmask, plain loop"
        self.budget_us = None if name == "stepmask, no budget" else budget_us
        self._known: dict[StepCase, Any] = {}
        self._peer: Any = None
        self._threads: ThreadPoolExecutor | None = None
        if name in _PEERS:
            if tokenizer is None:
                raise ValueError(f"{name} needs a tokenizer")
            self._peer = _PEERS[name](tokenizer)
        #: Where answers' text is made: in another process, where nothing else is said.
        self.text: TextOutput = InProcessText(vocabulary)
        if name.startswith("stepmask") and name != "stepmask, text in the loop":
            self.text = TextProcess(vocabulary)
        if self._peer is not None or name == "stepmask, compile in threads":
            self._threads = ThreadPoolExecutor(((os.cpu_count() or 1) + 1) // 2)
        else:
            self.service = CompileService(vocabulary, bounds=ServiceLimits(time_limit_s=30), threaded=False)
            self.service.wait_until_ready(120)

    def rows(self, slots: int, pool_masks: int | None) -> Rows:
        """Empty rows for a new engine."""
        if self._peer is not None:
            return PeerRows(self.vocabulary, slots, self._peer)
        prefetch = self.name != "stepmask, no prefetch"
        return Rows(self.vocabulary, slots, self.vocabulary.width, self.budget_us, pool_masks, prefetch=prefetch)

    def compiling(self, case: StepCase) -> Any:
        """What a request has as its grammar where nobody has asked for it before."""
        if self._threads is None:
            return {"kind": case.kind, "text": case.text}
        return self._threads.submit(self._compile, case)

    def known(self, case: StepCase) -> Any:
        """What a request has as its grammar that was asked for before: for stepmask compiled, for peers as always."""
        if self._peer is not None:
            return self.compiling(case)
        if case not in self._known:
            grammar = self.compiling(case)
            if isinstance(grammar, Future):
                self._known[case] = grammar.result()
            else:
                assert self.service is not None
                self._known[case] = self.service.compile(grammar)
        return self._known[case]

    def _compile(self, case: StepCase) -> Any:
        if self._peer is not None:
            return self._peer.matcher(case)
        make = stepmask.json_schema if case.kind == "json_schema" else stepmask.regex
        return stepmask.compile(make(case.text), self.vocabulary, use_cache=False)

    def close(self) -> None:
        """End its processes; compiles that threads have begun cannot be ended."""
        self.text.close()
        if self.service is not None:
            self.service.close()
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)


_PEERS: dict[str, Callable[[Path], Any]] = {"xgrammar": _Xgrammar, "llguidance": _Llguidance}
BACK_ENDS = (
    "stepmask", "stepmask, no budget", "stepmask, no prefetch", "stepmask, plain loop", "stepmask, compile in threads",
    "stepmask, text in the loop", *_PEERS,
)  # fmt: skip
