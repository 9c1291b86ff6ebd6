"""The engine's loop: continuous batching over a fixed number of slots, the grammar beside the model.

`Engine.step` is the place to read how stepmask is hosted: plan -> forward -> sample -> settle -> advance, each one
call for all rows.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...masks.arena import ACCEPTED, TOO_DEEP, UNFINISHED
from ...masks.errors import StackLimitError
from .collector import StepCollector
from .compiling import Compiling
from .grammar import Rows, StepPlan
from .model import Model
from .recorder import Recorder, StepClock, count_outcomes
from .request import FinishReason, Handle, Request
from .scheduler import Slots

if TYPE_CHECKING:
    from ..compile_service import CompileService


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
    `CompileService` for requests whose grammar is not compiled yet: they wait for it without a slot. `rows`: how the
    rows' grammars are stepped, instead of `Rows` with these settings. `submit` and `Handle.cancel` may be called from
    any thread, everything else from one thread only.
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
        clock: Callable[[], float] = time.perf_counter,
        recorder: Recorder | None = None,
        rows: Rows | None = None,
    ) -> None:
        self.recorder = recorder or Recorder()
        self.recorder.open(slots)
        self._model = model
        self._max_length = max_length
        self._slots: Slots[Handle] = Slots(slots, refill=refill)
        self._compiling = Compiling(compiler, self._slots.enqueue)
        self._cache = model.open(slots, max_length)
        self._rows = rows or Rows(vocabulary, slots, model.vocabulary_size, budget_us, prefetch=prefetch)
        self._numbers = itertools.count(1)
        self._clock = StepClock(clock)
        # One entry a slot: the token that goes into the next forward, its position, and whether the
        # prompt before it is in the cache already.
        self._tokens = np.zeros(slots, np.int32)
        self._positions = np.zeros(slots, np.int32)
        self._decoding = np.zeros(slots, np.bool_)
        # Rows that were deferred, and the logits that they are sampled from until they have a token.
        self._deferred = np.zeros(slots, np.bool_)
        self._kept = np.zeros((slots, model.vocabulary_size), np.float32)
        if budget_us is not None:
            self._kept += 0  # touch every page now rather than in a step

    @property
    def rows(self) -> Rows:
        """How the rows' grammars are stepped."""
        return self._rows

    @property
    def is_idle(self) -> bool:
        """No request is running and none is waiting, for a slot or for its grammar."""
        return self._compiling.count == 0 and self._slots.is_idle

    @property
    def compiling(self) -> int:
        """The number of requests whose grammar is being compiled."""
        return self._compiling.count

    @property
    def running(self) -> int:
        """The number of requests that hold a slot."""
        return self._slots.occupied

    def submit(self, request: Request) -> Handle:
        """Queue a request. Raises ValueError if this engine cannot serve it, and as `CompileService.submit`."""
        request.check(self._model.vocabulary_size, self._max_length)
        handle = Handle(request, self, next(self._numbers))
        self._compiling.add(handle)
        return handle

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Step until no request is left, or until `until()`, which is asked before each step.

        Python's garbage collector runs between steps only.
        """
        if until is None:
            until = self._is_done
        with StepCollector() as collector:
            while not until():
                self.step_or_wait()
                start = self._clock.read()
                if collector.between_steps():
                    self.recorder.charges.add("collect", "garbage collector", self._clock.read() - start, start)

    def _is_done(self) -> bool:
        return self.is_idle

    def step_or_wait(self) -> None:
        """A step; where no request can run, first wait for a grammar that is being compiled."""
        if self._compiling.count:
            self._compiling.wait(lambda: not self._slots.is_idle)
        self.step()

    def step(self) -> None:
        """Make one token of every running request, except those that are deferred."""
        self._clock.start()
        self._drop_cancelled()
        self._seat_waiting()
        fuel = self._rows.fuel
        plan = self._plan()
        outcomes = (0, 0, 0)
        if plan.decoding.any():
            with self._rows.prefetching():
                logits = self._forward(plan)
                self._clock.mark("forward")
            result = self._rows.sample(logits, plan)
            self._clock.mark("sampling")
            outcome = self._rows.settle(result)
            self._clock.mark("settle")
            answers = self._rows.advance(plan, outcome)
            self._clock.mark("advance")
            self.recorder.waited(outcome.status)
            self._keep(logits, outcome.deferred)
            outcomes = count_outcomes(outcome.status[plan.decoding])
            for row in np.flatnonzero(plan.decoding & ~outcome.deferred).tolist():
                self._deliver(row, int(outcome.tokens[row]), float(result.logprobs[row]), int(answers[row]))
            self._seat_waiting()
        self._clock.mark("other")
        self.recorder.add(self._clock.times, outcomes, start=self._clock.started, fuel=self._rows.fuel - fuel)

    def _forward(self, plan: StepPlan) -> npt.NDArray[np.float32]:
        """Logits of all rows: those of deferred rows are the ones they had.

        The model's one shape leaves a deferred row no way out of the others' forward pass: it takes the same token at
        the same position again, which changes nothing. If all rows are deferred there is none.
        """
        if not (plan.decoding & ~self._deferred).any():
            return self._kept
        logits = self._model.decode(self._cache, self._tokens, self._positions)
        for row in np.flatnonzero(self._deferred).tolist():
            logits[row] = self._kept[row]
        return logits

    def _keep(self, logits: npt.NDArray[np.float32], deferred: npt.NDArray[np.bool_]) -> None:
        """Keep the logits of rows that were deferred in this step."""
        if logits is not self._kept:
            for row in np.flatnonzero(deferred & ~self._deferred).tolist():
                self._kept[row] = logits[row]
        self._deferred[:] = deferred

    def _plan(self) -> StepPlan:
        """Prompts into the cache, at most one chunk a slot, and the mask id of every row that is to be sampled."""
        rows = [row for row in range(len(self._slots)) if self._slots[row] is not None and not self._decoding[row]]
        again = False
        while True:
            self._clock.mark("other")
            for row in rows:
                handle = self._handle(row)
                self._prefill(row)
                self._charge("prefill", handle, self._clock.mark("prefill"))
            plan = self._rows.plan(self._decoding, again=again)
            again = True
            self._clock.mark("plan")
            # A grammar that allows nothing but an end is at its end: no forward pass is spent on that.
            if not (plan.only_end | plan.limit).any():
                return plan
            for row in np.flatnonzero(plan.only_end).tolist():
                self._finish(row, "stop")
            for row in np.flatnonzero(plan.limit).tolist():
                made = len(self._handle(row).token_ids)
                self._finish(row, "error", StackLimitError(f"too many open ways to read the text after {made} tokens"))
            rows = self._seat_waiting()

    def _prefill(self, row: int) -> None:
        """One chunk of the prompt, except its last token, which is the first that `decode` takes."""
        prompt = self._handle(row).request.prompt_ids
        start = int(self._positions[row])
        end = min(start + self._model.prefill_chunk, len(prompt) - 1)
        try:
            if start < end:
                self._model.prefill(self._cache, row, np.asarray(prompt[start:end], np.int32), start)
        except Exception as error:
            self._finish(row, "error", error)
            return
        self._positions[row] = end
        self._tokens[row] = prompt[end]
        self._decoding[row] = end == len(prompt) - 1

    def _deliver(self, row: int, token: int, log_probability: float, answer: int) -> None:
        """Hand a sampled token to its request, and end the request if this was its last."""
        handle = self._handle(row)
        request = handle.request
        if token < 0:
            self._finish(row, "error", NoLegalToken(f"no legal token after {len(handle.token_ids)} tokens"))
        elif answer == TOO_DEEP:
            made = len(handle.token_ids)
            self._finish(row, "error", StackLimitError(f"nested deeper than there is room for after {made} tokens"))
        elif answer not in (ACCEPTED, UNFINISHED):
            self._finish(row, "error", TokenRefused(f"token {token} was refused after {len(handle.token_ids)} tokens"))
        elif self._rows.is_end(row, token):
            self._finish(row, "stop")
        else:
            handle.token_ids.append(token)
            if request.logprobs:
                handle.log_probabilities.append(log_probability)
            self._tokens[row] = token
            self._positions[row] += 1
            if request.on_token is not None:
                self._clock.mark("other")
                try:
                    request.on_token(token, log_probability if request.logprobs else math.nan)
                except Exception as error:
                    self._finish(row, "error", error)
                    return
                finally:
                    self._charge("on_token", handle, self._clock.mark("hooks"))
            if len(handle.token_ids) == request.max_tokens or self._positions[row] == self._max_length:
                self._finish(row, "length")

    def _seat_waiting(self) -> list[int]:
        """Give empty slots to waiting requests; the slots that were taken."""
        seated: list[int] = []
        for row, handle in self._slots.assign():
            self._positions[row] = 0
            self._tokens[row] = 0
            if handle.cancel_requested:
                self._finish(row, "cancelled")
                continue
            self.recorder.seated(row, handle.name)
            self._clock.mark("other")
            try:
                self._rows.seat(row, handle.request)
            except Exception as error:
                self._finish(row, "error", error)
                continue
            finally:
                self._charge("seat", handle, self._clock.mark("other"))
            seated.append(row)
        return seated

    def _drop_cancelled(self) -> None:
        for row in range(len(self._slots)):
            handle = self._slots[row]
            if handle is not None and handle.cancel_requested:
                self._finish(row, "cancelled")

    def _finish(self, row: int, reason: FinishReason, error: BaseException | None = None) -> None:
        """End the request in `row` and empty the slot."""
        handle = self._handle(row)
        self._rows.clear(row)
        self._slots.free(row)
        self.recorder.left(row)
        self._decoding[row] = False
        self._deferred[row] = False
        self._positions[row] = 0
        self._tokens[row] = 0
        handle.error = error
        handle.finish_reason = reason

    def _charge(self, what: str, handle: Handle, seconds: float) -> None:
        """Say whose work the last mark of the clock was."""
        self.recorder.charges.add(what, handle.name, seconds, self._clock.last - seconds)

    def _handle(self, row: int) -> Handle:
        handle = self._slots[row]
        if handle is None:
            raise RuntimeError(f"slot {row} is empty")
        return handle
