"""The engine's loop: continuous batching over a fixed number of slots, the grammar beside the model.

`Engine._plain_step` is the place to read how stepmask is hosted: plan -> forward -> sample -> settle -> advance, each
one call for all rows. `Engine._overlapped_step` does the same with a model whose forward pass goes on by itself.
"""

from __future__ import annotations

import itertools
import math
import select
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...masks.arena import ACCEPTED, ENDED, TOO_DEEP, UNFINISHED
from ...masks.errors import StackLimitError
from ..text.in_process import InProcessText
from ..text.output import TextOutput
from .admission import Admission
from .collector import StepCollector
from .compiling import Compiling
from .feed import Feed
from .grammar import Rows, StepPlan
from .model import Model
from .recorder import Recorder, StepClock, count_outcomes
from .request import FinishReason, Handle, Request
from .scheduler import FairSlots, Slots
from .shares import SharedRows
from .texts import Texts

if TYPE_CHECKING:
    from ..compile_service import CompileService

#: Tokens of one row that are taken in one step because each is the only legal one, where that is wanted; a bound of
#: the step's work beside the budget: each costs an `advance` and a look-up in a plan.
MOST_FORCED = 32


class NoLegalToken(RuntimeError):
    """The model's logits left no token that the grammar allows."""


class TokenRefused(RuntimeError):
    """The grammar refused a token that its own mask allowed."""


class Engine:
    """Serves many requests with one model, one step at a time, on the thread that calls `step`.

    `vocabulary` is the `stepmask.Vocabulary` that the grammars were compiled for; `max_length` bounds prompt
    and answer together. A slot is taken by the next waiting request as soon as it is empty; with
    `refill=False` only when all are (static batching, for comparison). `budget_us` bounds the grammar work
    of a step (None: unbounded): a row whose mask is not there in time and whose token is not certain without
    it gets none in that step, keeps its logits, and takes the same token from them later. With `prefetch` a
    second thread makes masks ahead during each forward pass, which changes no token either. `compiler` is the
    `CompileService` for requests whose grammar is not compiled yet: they wait for it without a slot. `text` makes the
    text of answers: `InProcessText`, the default, or `TextProcess`, so that nothing but the loop runs in this process.
    `admission`: classes and tenants have shares of slots, fuel and compiles; without it, first come, first served.
    `rows`: how the rows' grammars are stepped, instead of `Rows` or `SharedRows` with these settings.

    `overlap`: the forward pass goes on while the host plans (`OverlappedModel`). `forced`: a token that is the only
    legal one is taken without logits, and a run of such tokens goes through one forward pass (`RunModel`), as far as it
    has free rows: those of empty slots, of deferred rows, and `spare_rows` more, which it then has in every step.
    Neither changes a token, but for one thing: a model that gives the only legal token a logit of -inf ends the request
    with `NoLegalToken` where it is asked, and with `forced` it is not.

    `submit` and `Handle.cancel` may be called from any thread, everything else from one thread only.
    """

    def __init__(
        self,
        model: Model,
        vocabulary: Any,
        slots: int = 8,
        max_length: int = 512,
        *,
        refill: bool = True,
        budget_us: float | None = None,
        prefetch: bool = False,
        compiler: CompileService | None = None,
        text: TextOutput | None = None,
        overlap: bool = False,
        forced: bool = False,
        spare_rows: int = 0,
        admission: Admission | None = None,
        clock: Callable[[], float] = time.perf_counter,
        recorder: Recorder | None = None,
        rows: Rows | SharedRows | None = None,
    ) -> None:
        self.recorder = recorder or Recorder()
        self.recorder.open(slots)
        self._model = model
        self._max_length = max_length
        self._admission = admission
        self._slots: Slots[Handle] = Slots(slots, refill=refill)
        if admission is not None:
            self._slots = FairSlots(
                slots, lambda handle: (admission.of(handle.request), handle.request.tenant), refill=refill
            )
        line = self._slots

        def enqueue(handle: Handle) -> None:  # without the engine, which so goes with its last reference
            handle.request.check(model.vocabulary_size, max_length)
            line.enqueue(handle)

        self._compiling = Compiling(compiler, enqueue, admission)
        self._texts = Texts(text or InProcessText(vocabulary))
        self._feed = Feed(model, slots, max_length, spare_rows, runs=forced, overlap=overlap)
        width = model.vocabulary_size
        self._rows: Rows | SharedRows
        if rows is not None:
            self._rows = rows
        elif admission is not None:
            self._rows = SharedRows(vocabulary, slots, width, budget_us, admission, prefetch=prefetch)
        else:
            self._rows = Rows(vocabulary, slots, width, budget_us, prefetch=prefetch)
        self._numbers = itertools.count(1)
        self._clock = StepClock(clock)
        self._overlap = overlap
        self._collector: StepCollector | None = None
        self._most_forced = MOST_FORCED if forced else 0
        #: Whether each row's prompt is in the cache, all but its last token.
        self._decoding = np.zeros(slots, np.bool_)
        # Of this step: whether each row's prompt has had its chunk, and whether a plan has had the budget.
        self._was_prefilled = np.zeros(slots, np.bool_)
        self._has_planned = False
        #: Callbacks that wait for the next forward pass: a row's handle, a token and its log-probability.
        self._hooks: list[tuple[Handle, int, float]] = []
        if budget_us is not None:
            self._feed.touch()

    @property
    def rows(self) -> Rows | SharedRows:
        """How the rows' grammars are stepped."""
        return self._rows

    @property
    def is_idle(self) -> bool:
        """No request is running and none is waiting, for a slot, for its grammar, or for the end of its text."""
        return self._compiling.count == 0 and self._slots.is_idle and self._texts.ending == 0

    @property
    def compiling(self) -> int:
        """The number of requests whose grammar, or prompt, is not there yet."""
        return self._compiling.count

    @property
    def running(self) -> int:
        """The number of requests that hold a slot."""
        return self._slots.occupied

    def submit(self, request: Request) -> Handle:
        """Queue a request. Raises ValueError if this engine cannot serve it, and as `CompileService.submit`."""
        request.check(self._model.vocabulary_size, self._max_length)
        if self._admission is not None:
            self._admission.of(request)
        handle = Handle(request, self, next(self._numbers))
        self._compiling.add(handle)
        return handle

    def encode(self, text: str) -> Future[list[int]]:
        """A prompt's token ids, made where answers' texts are; a request may have the future as its `prompt_ids`."""
        return self._texts.encode(text)

    def text_of(self, answer: int) -> str:
        """`TextOutput.text_of` of a request's answer."""
        return self._texts.text_of(answer)

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Step until no request is left, or until `until()`, which is asked before each step.

        Python's garbage collector runs between steps only; of an overlapped loop, during forward passes.
        """
        if until is None:
            until = self._is_done
        outer = self._collector
        try:
            with StepCollector() as self._collector:
                while not until():
                    self.step_or_wait()
                    if not self._overlap:
                        self._collect()
        finally:
            self._collector = outer

    def _collect(self) -> None:
        """Garbage whose time has come, unless the collector is not the engine's."""
        if self._collector is None:
            return
        start = self._clock.read()
        if self._collector.between_steps():
            self.recorder.charges.add("collect", "garbage collector", self._clock.read() - start, start)

    def _is_done(self) -> bool:
        return self.is_idle

    def step_or_wait(self) -> None:
        """A step; where no request can run, first wait for a grammar, a prompt or a text that is being made."""
        if self._slots.is_idle and (self._compiling.count or self._texts.ending):
            descriptors = self._compiling.descriptors()
            if self._texts.output.fileno() >= 0:
                descriptors.append(self._texts.output.fileno())
            self._compiling.quiet()
            if descriptors and self._slots.is_idle and (self._compiling.count or self._texts.ending):
                times = (self._compiling.patience(), self._texts.output.patience())
                select.select(descriptors, [], [], min((time for time in times if time is not None), default=None))
        self.step()

    def step(self) -> None:
        """Make one token of every running request, except those that are deferred."""
        self._clock.start()
        self._begin_step()
        fuel, forwards, chunked = self._rows.fuel, self._feed.forwards, self._feed.chunked
        if self._overlap:
            outcomes, forced = self._overlapped_step()
        else:
            outcomes, forced = self._plain_step()
        self._clock.mark("other")
        self._take_texts()
        self._clock.mark("text")
        self._seat_waiting()
        self._clock.mark("other")
        self.recorder.add(
            self._clock.times, outcomes, start=self._clock.started, fuel=self._rows.fuel - fuel, forced=forced,
            chunked=self._feed.chunked - chunked, forwards=self._feed.forwards - forwards,
        )  # fmt: skip

    def _plain_step(self) -> tuple[tuple[int, int, int], int]:
        """Rows by outcome, and tokens that needed no logits."""
        plan, forced = self._plan_seated()
        if not plan.decoding.any():
            return (0, 0, 0), forced
        ready = self._feed.arrange(plan.decoding)
        if (plan.decoding & ~ready).any():
            plan = self._plan(ready)
        with self._rows.prefetching():
            logits = self._feed.forward()
            self._clock.mark("forward")
        return self._take(logits, plan), forced

    def _overlapped_step(self) -> tuple[tuple[int, int, int], int]:
        """The same; the model is at work from the first moment on, and the host plans meanwhile.

        A row that needs no logits, as its grammar is at its end or leaves one token, is known only then: it has been in
        this forward pass for nothing.
        """
        self._prefill_seated()
        self._feed.arrange(self._decoding)
        self._feed.begin()
        self._clock.mark("forward")
        self._call_hooks()
        plan, forced = self._take_forced(self._plan(self._decoding))
        self._end_planned(plan)
        ready = self._feed.ready(self._decoding)
        if (plan.decoding != ready).any():
            plan = self._plan(ready)
        try:
            with self._rows.prefetching():
                self._meanwhile()
                logits = self._feed.finish()
        except Exception as error:
            # Tokens may have been taken meanwhile that stand on this forward pass.
            for row in np.flatnonzero(self._decoding).tolist():
                self._finish(row, "error", error)
            raise
        self._clock.mark("forward")
        return self._take(logits, plan), forced

    def _take(self, logits: npt.NDArray[np.float32], plan: StepPlan) -> tuple[int, int, int]:
        """Sample the planned rows, and hand out their tokens; rows by outcome."""
        if not plan.decoding.any():
            return 0, 0, 0
        result = self._rows.sample(logits, plan)
        self._clock.mark("sampling")
        outcome = self._rows.settle(result)
        self._clock.mark("settle")
        answers = self._rows.advance(plan, outcome)
        self._clock.mark("advance")
        self.recorder.waited(outcome.status)
        self._feed.keep(logits, outcome.deferred)
        for row in np.flatnonzero(plan.decoding & ~outcome.deferred).tolist():
            self._deliver(row, int(outcome.tokens[row]), float(result.logprobs[row]), int(answers[row]))
        return count_outcomes(outcome.status[plan.decoding])

    # ------------------------------------------------------------------------------------------- the parts of a step
    def _begin_step(self) -> None:
        self._has_planned = False
        self._was_prefilled[:] = False
        if not self._overlap:
            self._compiling.poll()
        self._drop_cancelled()
        self._seat_waiting()

    def _meanwhile(self) -> None:
        """What an overlapped step does during the forward pass, beside the prefetch: the compile service, garbage."""
        self._compiling.poll()
        self._collect()
        self._clock.mark("other")

    def _plan(self, decoding: npt.NDArray[np.bool_]) -> StepPlan:
        """The mask id of every row in `decoding`. The plans of one step share its budget."""
        self._clock.mark("other")
        plan = self._rows.plan(decoding, again=self._has_planned)
        self._has_planned = True
        self._clock.mark("plan")
        return plan

    def _plan_seated(self) -> tuple[StepPlan, int]:
        """Prompts into the cache, at most one chunk a slot, and the mask id of every row that may be sampled; how many
        tokens were taken meanwhile.
        """
        forced = 0
        while True:
            self._prefill_seated()
            plan, taken = self._take_forced(self._plan(self._decoding))
            forced += taken
            # A grammar that allows nothing but an end is at its end: no forward pass is spent on that.
            if not self._end_planned(plan):
                return plan, forced
            self._seat_waiting()

    def _end_planned(self, plan: StepPlan) -> bool:
        """End the requests whose plan says so; whether there were any."""
        if not plan.any_ends:
            return False
        for row in np.flatnonzero(plan.only_end).tolist():
            self._finish(row, "stop")
        for row in np.flatnonzero(plan.limit).tolist():
            made = len(self._handle(row).token_ids)
            self._finish(row, "error", StackLimitError(f"too many open ways to read the text after {made} tokens"))
        return True

    def _take_forced(self, plan: StepPlan) -> tuple[StepPlan, int]:
        """Take the tokens that are each the only legal one, one after the other; the plan behind them, and how many."""
        count = 0
        for _ in range(self._most_forced):
            tokens = self._rows.forced(plan)
            tokens[self._feed.ahead >= self._most_forced] = -1
            rows = np.flatnonzero(tokens >= 0)
            if not len(rows):
                break
            answers = self._rows.take(tokens)
            self._clock.mark("advance")
            # A token that there is no room for changes nothing: the row is sampled, and ends then. One that takes
            # several steps is taken.
            for row in rows[(answers[rows] == ACCEPTED) | (answers[rows] == UNFINISHED)].tolist():
                self._deliver(row, int(tokens[row]), 0.0, ACCEPTED)
                count += 1
            plan = self._plan(self._decoding)
            if (answers[rows] != ACCEPTED).any():
                break
        return plan, count

    def _prefill_seated(self) -> None:
        """A chunk of the prompt of each row that has none, or not all of it, in the cache.

        The prompt's last token is the first that the forward pass of all rows takes.
        """
        self._clock.mark("other")
        for row in np.flatnonzero(~self._decoding).tolist():
            handle = self._slots[row]
            if handle is None or self._was_prefilled[row]:
                continue
            prompt = handle.prompt
            start = int(self._feed.positions[row])
            end = min(start + self._model.prefill_chunk, len(prompt) - 1)
            self._was_prefilled[row] = True
            try:
                self._feed.prefill(row, np.asarray(prompt[start:end], np.int32))
            except Exception as error:
                self._finish(row, "error", error)
            else:
                self._feed.begin_row(row, prompt[end])
                self._decoding[row] = end == len(prompt) - 1
            self._charge("prefill", handle, self._clock.mark("prefill"))

    def _deliver(self, row: int, token: int, log_probability: float, answer: int) -> None:
        """Hand a token to its request, and end the request if this was its last."""
        handle = self._handle(row)
        request = handle.request
        made = len(handle.token_ids)
        if token < 0:
            self._finish(row, "error", NoLegalToken(f"no legal token after {made} tokens"))
        elif answer == TOO_DEEP:
            self._finish(row, "error", StackLimitError(f"nested deeper than there is room for after {made} tokens"))
        elif answer not in (ACCEPTED, UNFINISHED, ENDED):
            self._finish(row, "error", TokenRefused(f"token {token} was refused after {made} tokens"))
        elif self._rows.is_end(row, token):
            self._finish(row, "stop")
        else:
            handle.token_ids.append(token)
            if request.logprobs:
                handle.log_probabilities.append(log_probability)
            self._texts.put(handle, token, log_probability)
            self._feed.push(row, token)
            made += 1
            is_last = made == request.max_tokens or len(handle.prompt) - 1 + made == self._max_length
            ends = is_last or answer == ENDED
            if request.on_token is not None:
                self._hooks.append((handle, token, log_probability if request.logprobs else math.nan))
                if not self._overlap or ends:
                    self._call_hooks()
            if ends and self._slots[row] is handle:
                self._finish(row, "length" if is_last else "stop")

    def _call_hooks(self) -> None:
        """Call the callbacks that wait. One that fails ends its request."""
        self._clock.mark("other")
        for handle, token, log_probability in self._hooks:
            on_token = handle.request.on_token
            assert on_token is not None
            try:
                on_token(token, log_probability)
            except Exception as error:
                self._finish_running(handle, "error", error)
            finally:
                self._charge("on_token", handle, self._clock.mark("hooks"))
        self._hooks.clear()

    def _seat_waiting(self) -> None:
        """Give empty slots to waiting requests."""
        for row, handle in self._slots.assign():
            self._feed.clear(row)
            self._was_prefilled[row] = False
            if handle.cancel_requested:
                self._finish(row, "cancelled")
                continue
            self.recorder.seated(row, handle.name)
            self._clock.mark("other")
            try:
                self._rows.seat(row, handle.request)
                self._texts.open(handle)
            except Exception as error:
                self._finish(row, "error", error)
            finally:
                self._charge("seat", handle, self._clock.mark("other"))

    def _drop_cancelled(self) -> None:
        for row in range(len(self._slots)):
            handle = self._slots[row]
            if handle is not None and handle.cancel_requested:
                self._finish(row, "cancelled")

    def _take_texts(self) -> None:
        """Let go of the step's tokens, and end the requests whose text is complete."""
        self._texts.flush()
        for handle in self._texts.take():
            self._finish_running(handle, "stop")

    def _finish_running(self, handle: Handle, reason: FinishReason, error: BaseException | None = None) -> None:
        """End a request, unless it has no slot any more."""
        for row in range(len(self._slots)):
            if self._slots[row] is handle:
                self._finish(row, reason, error)
                return

    def _finish(self, row: int, reason: FinishReason, error: BaseException | None = None) -> None:
        """End the request in `row` and empty the slot."""
        handle = self._handle(row)
        self._rows.clear(row)
        self._slots.free(row)
        self.recorder.left(row)
        self._decoding[row] = False
        self._feed.clear(row)
        handle.error = error
        self._texts.end(handle, reason)

    def _charge(self, what: str, handle: Handle, seconds: float) -> None:
        """Say whose work the last mark of the clock was."""
        self.recorder.charges.add(what, handle.name, seconds, self._clock.last - seconds)

    def _handle(self, row: int) -> Handle:
        handle = self._slots[row]
        if handle is None:
            raise RuntimeError(f"slot {row} is empty")
        return handle
