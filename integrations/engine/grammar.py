"""The engine's rows as stepmask sees them: one call a step for plan, sample, settle and advance each, for all rows.

What a request brings (grammar, end tokens, sampling parameters) is written into arrays when it is
seated; a step only reads and writes arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...masks.arena import ACCEPTED, UNFINISHED
from ...masks.batch import Batch
from ...masks.errors import VocabularyError
from ...masks.host_step import (
    ANY_ENDS,
    ANY_PENDING,
    H_ADVANCE_FUEL,
    H_ADVANCE_LEFT,
    H_AHEAD,
    H_ANSWERS,
    H_CHOSEN,
    H_DECODING,
    H_ENDS,
    H_LIMIT,
    H_MASK_IDS,
    H_MIN_TOKENS,
    H_ONLY_END,
    H_PLAN_FUEL,
    H_PLAN_LEFT,
    H_POSITIONS,
    H_READY,
    H_SETTLE_FUEL,
    H_SETTLE_LEFT,
    H_SLOTS,
    H_SPENT,
    H_STATUS,
    NO_SLOT,
    advance_step,
    host_block,
    plan_step,
)
from ...masks.layout import COUNT_WORK, MAX_ENDS
from ...masks.outcome import Outcome, Plan
from ...masks.sampling import Sampler, SampleResult, SamplingParameters
from ...masks.tables import INDEX_BITS, KIND_EMPTY, KIND_SHIFT, KIND_SINGLE, EndSets
from ...masks.vocabulary import Vocabulary
from .request import Request

#: Mask id that allows nothing: rows that are not sampled cost the sampling kernel nothing.
_NOTHING = np.int32(KIND_EMPTY << KIND_SHIFT)


@dataclass
class StepPlan:
    """What one step does with each row, arrays of one entry a row, valid until the rows' next plan."""

    #: Rows that are to get a token: bool.
    decoding: npt.NDArray[np.bool_]
    #: `Plan.status` of each: uint8. Rows that are not decoding are READY, with a mask of nothing.
    status: npt.NDArray[np.uint8]
    #: Rows whose grammar allows nothing but an end: bool.
    only_end: npt.NDArray[np.bool_]
    mask_ids: npt.NDArray[np.int32]
    #: Which of the row's end tokens may be sampled, as `Plan.end_allowed`: uint32.
    end_allowed: npt.NDArray[np.uint32]
    #: Rows that cannot have a mask within the limits of stack graphs, now or later: bool.
    limit: npt.NDArray[np.bool_]
    #: Whether `only_end` or `limit` is true of any row.
    any_ends: bool


class Rows:
    """Grammar and sampling state of the engine's slots.

    `width` is the model's number of logits, which may be more or fewer than the vocabulary has tokens; `prefetch`,
    whether `prefetching` makes masks ahead.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        slots: int,
        width: int,
        budget_us: float | None,
        pool_masks: int | None = None,
        *,
        prefetch: bool = False,
    ) -> None:
        """`budget_us` and `pool_masks` are the `Batch`'s."""
        self._prefetch = prefetch
        self._batch = Batch(vocabulary, slots=slots, budget_us=budget_us, pool_masks=pool_masks)
        self._batch_at = self._batch.address
        #: Units of fuel that `plan`, `settle` and `advance` have in one step.
        self.budget = self._batch.fuel
        #: `Batch.fuel_slack`.
        self.slack = self._batch.fuel_slack
        self._host = host_block(slots)
        self._host_at, self._numbers = self._host.address, self._host.header
        self.share(self._batch.plan_fuel, self._batch.settle_fuel, self._batch.advance_fuel)
        self._sampler = Sampler(min(vocabulary.size, width), slots)
        self._parameters = SamplingParameters.build(slots, temperature=0.0)
        self._vocabulary_ends = tuple(vocabulary.eos or ())
        self._host.set_array(H_POSITIONS, self._parameters.position)
        arrays = self._host.arrays
        self._batch_slots, self._min_tokens = arrays[H_SLOTS], arrays[H_MIN_TOKENS]
        self._chosen, self._answers = arrays[H_CHOSEN], arrays[H_ANSWERS]
        self._plan = StepPlan(
            decoding=arrays[H_DECODING],
            status=arrays[H_STATUS],
            only_end=arrays[H_ONLY_END],
            mask_ids=arrays[H_MASK_IDS],
            end_allowed=arrays[H_ENDS],
            limit=arrays[H_LIMIT],
            any_ends=False,
        )
        self._is_ahead_known = False
        #: Whether a row of the last plan waits for its mask.
        self._any_pending = False
        # What sampling writes to, and what becomes of it where no row waits: made once.
        self._result = SampleResult.empty(slots)
        self._outcome = Outcome(self._chosen, self._result.tokens, self._plan.status)
        self._ends: list[tuple[int, ...]] = [()] * slots
        self._own_end_sets: EndSets | None = None

    def seat(self, row: int, request: Request) -> None:
        """Take a request into an empty row. Raises what `Batch.add` raises; the row then stays empty."""
        vocabulary_ends = () if request.ignore_eos else self._vocabulary_ends
        ends = tuple(dict.fromkeys((*vocabulary_ends, *request.stop_token_ids)))
        if len(ends) > MAX_ENDS:
            raise VocabularyError(f"a request may have at most {MAX_ENDS} end tokens, not {len(ends)}")
        if request.grammar is not None:
            self._batch_slots[row] = self._batch.add(request.grammar, eos=ends, min_tokens=request.min_tokens)
        self._min_tokens[row] = request.min_tokens
        self._ends[row] = ends
        self._own_end_sets = None
        parameters = self._parameters
        parameters.temperature[row] = request.temperature
        parameters.top_k[row] = request.top_k
        parameters.top_p[row] = request.top_p
        parameters.min_p[row] = request.min_p
        parameters.seed[row] = request.seed
        parameters.position[row] = 0
        parameters.want_logprob[row] = request.logprobs

    def clear(self, row: int) -> None:
        """Empty a row; no effect if it is empty."""
        if self._batch_slots[row] != NO_SLOT:
            self._batch.remove(int(self._batch_slots[row]))
            self._batch_slots[row] = NO_SLOT

    @property
    def batch(self) -> Batch:
        """What steps the rows' grammars."""
        return self._batch

    @property
    def fuel(self) -> int:
        """Units of fuel that all steps have spent so far."""
        return int(self._numbers[H_SPENT])

    @property
    def plan_left(self) -> int:
        """What the plans of this step have left of its fuel."""
        return int(self._numbers[H_PLAN_LEFT])

    @plan_left.setter
    def plan_left(self, fuel: int) -> None:
        self._numbers[H_PLAN_LEFT] = fuel

    @property
    def phase_fuel(self) -> tuple[int, int, int]:
        """Units of fuel that plans, `settle` and `advance` have to themselves in a step, as `share` takes them."""
        numbers = self._numbers
        return int(numbers[H_PLAN_FUEL]), int(numbers[H_SETTLE_FUEL]), int(numbers[H_ADVANCE_FUEL])

    def share(self, plan_fuel: int, settle_fuel: int, advance_fuel: int) -> None:
        """Have so much fuel from here on, in a step, instead of what the budget gives."""
        numbers = self._numbers
        numbers[H_PLAN_FUEL] = numbers[H_PLAN_LEFT] = max(1, plan_fuel)
        numbers[H_SETTLE_FUEL] = max(1, settle_fuel)
        numbers[H_ADVANCE_FUEL] = numbers[H_ADVANCE_LEFT] = max(0, advance_fuel)

    def weigh(self, row: int, share: float) -> None:
        """Let a row have so much of the fuel for masks, relative to the other rows, which have 1 at first."""
        if self._batch_slots[row] != NO_SLOT:
            self._batch.shares[self._batch_slots[row]] = share

    def settle_more(self, fuel: int) -> None:
        """Have so much more of it in this step, behind its last plan."""
        self._numbers[H_SETTLE_LEFT] += fuel

    def nothing(self, rows: int) -> npt.NDArray[np.int32]:
        """Mask ids of rows that are not sampled, int32[rows]."""
        return np.full(rows, _NOTHING, np.int32)

    @property
    def prefetch_counters(self) -> dict[str, int]:
        """`Prefetcher.counters`; empty before the first forward pass with prefetch, or without."""
        prefetcher = self._batch.prefetcher
        return {} if prefetcher is None else prefetcher.counters

    def is_end(self, row: int, token: int) -> bool:
        """Whether `token` ends the row's answer."""
        return token in self._ends[row]

    def plan(self, decoding: npt.NDArray[np.bool_], *, again: bool = False) -> StepPlan:
        """Mask ids of the rows in `decoding`, bool[rows], those that are there within the budget.

        `again`: within the same step, whose plans share one budget.
        """
        if not self._is_ahead_known:
            self._know_ahead()
        found = plan_step(self._batch_at, self._host_at, decoding, again)
        plan = self._plan
        plan.any_ends = found & ANY_ENDS != 0
        self._any_pending = found & ANY_PENDING != 0
        if self._any_pending:
            self._batch.settler.take(Plan(self._chosen, plan.mask_ids, plan.end_allowed, plan.status), 0)
        return plan

    def _know_ahead(self) -> None:
        """Let kernels find what makes masks ahead, once there is anything. It has the batch in `prefetching` only."""
        prefetcher = self._batch.prefetcher
        if prefetcher is not None:
            self._numbers[H_AHEAD] = prefetcher.block.address
            self._is_ahead_known = True

    @contextmanager
    def prefetching(self) -> Iterator[None]:
        """While the block runs, which must leave the rows alone, masks are made ahead on another thread, if at all."""
        if self._prefetch:
            self._batch.prefetch_start()
        try:
            yield
        finally:
            self._batch.prefetch_stop()

    def sample(self, logits: npt.NDArray[np.float32], plan: StepPlan) -> SampleResult:
        """A token of every row with a mask, -1 where none is legal; candidates of every row that waits for its mask."""
        return self._sampler.sample(
            logits,
            plan.mask_ids,
            self._batch.tables,
            end_allowed=plan.end_allowed,
            end_sets=self._end_sets,
            parameters=self._parameters,
            status=plan.status,
            possible=self._batch.possible,
            out=self._result,
        )

    def settle(self, result: SampleResult) -> Outcome:
        """Tokens of the waiting rows too, where they are certain within the budget; the others are deferred."""
        if not self._any_pending:  # as a rule
            own = result.tokens is self._result.tokens
            return self._outcome if own else Outcome(self._chosen, result.tokens, self._plan.status)
        assert result.candidates is not None
        numbers, settler = self._numbers, self._batch.settler
        before = int(self._batch.counter_values[COUNT_WORK])
        settler.fuel = int(numbers[H_SETTLE_LEFT])
        outcome = self._batch.settle(result.candidates)
        numbers[H_SETTLE_LEFT], settler.left = settler.left, 0
        numbers[H_SPENT] += int(self._batch.counter_values[COUNT_WORK]) - before
        numbers[H_READY] = 0
        return outcome

    def advance(self, plan: StepPlan, outcome: Outcome) -> npt.NDArray[np.uint8]:
        """Take the tokens of the rows last planned into their grammars; uint8[rows] as `Batch.advance`, with ENDED.

        ACCEPTED where a row has no grammar.
        """
        return self._advance(outcome.tokens, decoded=True)

    def forced(self, plan: StepPlan) -> npt.NDArray[np.int32]:
        """The token of each planned row that has only one legal one, no end among them; -1 for others; int32[rows].

        Sampling would give it, whatever the logits (but -inf), with a log-probability of 0.
        """
        single = plan.decoding & (plan.mask_ids >> KIND_SHIFT == KIND_SINGLE) & (plan.end_allowed == 0)
        tokens = np.where(single, plan.mask_ids & INDEX_BITS, -1).astype(np.int32)
        for row in np.flatnonzero(single).tolist():
            if self.is_end(row, int(tokens[row])) or tokens[row] >= self._sampler.vocabulary:
                tokens[row] = -1
        return tokens

    def take(self, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
        """Take tokens that were not sampled into the rows' grammars, int32[rows], -1: none; answers as `advance`."""
        answers = self._advance(tokens, decoded=False)
        self._parameters.position += (tokens >= 0) & ((answers == ACCEPTED) | (answers == UNFINISHED))
        return answers

    def _advance(self, tokens: npt.NDArray[np.int32], *, decoded: bool) -> npt.NDArray[np.uint8]:
        """`advance_step`; those of one step share its fuel."""
        advance_step(self._batch_at, self._host_at, tokens, decoded)
        return self._answers

    @property
    def _end_sets(self) -> EndSets:
        """End tokens of all rows, put together once for all that were seated before a step."""
        if self._own_end_sets is None:
            start = np.zeros(len(self._ends) + 1, np.int32)
            np.cumsum([len(ends) for ends in self._ends], out=start[1:])
            self._own_end_sets = EndSets(start, np.asarray([end for ends in self._ends for end in ends], np.int32))
        return self._own_end_sets
