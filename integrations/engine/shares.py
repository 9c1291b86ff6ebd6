"""Rows in lanes that share a step's fuel: what one lane's grammars need does not come out of another's part.

A lane is a `Rows` of its own, so it has its own unfinished mask, mask pool and contexts. One thread makes masks ahead
for all of them, in turn and by their weights. The price is memory, a few calls more in a step, and that a grammar used
in two lanes has its masks made in each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...masks.arena import ACCEPTED
from ...masks.layout import PENDING, READY
from ...masks.outcome import Outcome
from ...masks.prefetch import PrefetchGroup
from ...masks.sampling import SampleResult
from ...masks.vocabulary import Vocabulary
from .admission import Admission, AdmissionClass
from .grammar import Rows, StepPlan
from .request import Request


@dataclass(eq=False)
class Lane:
    """One lane. `members`: whose rows it has, bool[rows]; `tenants`: how many rows of each tenant."""

    belongs_to: AdmissionClass
    rows: Rows
    members: npt.NDArray[np.bool_]
    tenants: dict[str, int] = field(default_factory=dict)
    #: Rows that had no mask in the last plan, in which the lane took part.
    pending: int = 0
    plan: StepPlan | None = None
    result: SampleResult | None = None
    outcome: Outcome | None = None


class SharedRows:
    """As `Rows`, of which it has one a lane.

    In each step a class with rows to plan has a part of the fuel by its weight, and its lanes with such rows have equal
    parts of that. What a lane does not need goes to those that do. So a lane is left without a mask for no longer than
    if it were alone with a budget of its part.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        slots: int,
        width: int,
        budget_us: float | None,
        admission: Admission,
        pool_masks: int | None = None,
        *,
        prefetch: bool = False,
    ) -> None:
        self._admission = admission
        self.lanes = [
            Lane(one, Rows(vocabulary, slots, width, budget_us, pool_masks), np.zeros(slots, np.bool_))
            for one in (admission.structured, admission.untrusted)
            for _ in range(one.lanes)
        ]
        self._prefetch = prefetch
        #: Makes masks ahead; None before the first forward pass with prefetch.
        self.ahead: PrefetchGroup | None = None
        first = self.lanes[0].rows
        #: As in `Rows`.
        self.budget = first.budget
        self._phase_fuel = first.phase_fuel
        self._lane_of: list[Lane | None] = [None] * slots
        self._tenant_of = [""] * slots
        self._active: list[Lane] = []
        self._step = 0

    @property
    def fuel(self) -> int:
        """As in `Rows`."""
        return sum(lane.rows.fuel for lane in self.lanes)

    def seat(self, row: int, request: Request) -> None:
        """See `Rows.seat`. A tenant goes where it is already, else where the fewest rows wait or tenants are."""
        lanes = self.lanes
        if request.grammar is not None:
            wanted = self._admission.of(request)
            lanes = [lane for lane in lanes if lane.belongs_to is wanted]
        at_home = [lane for lane in lanes if request.tenant in lane.tenants]
        lane = min(at_home or lanes, key=lambda one: (one.pending, len(one.tenants)))
        lane.rows.seat(row, request)
        lane.members[row] = True
        lane.tenants[request.tenant] = lane.tenants.get(request.tenant, 0) + 1
        self._lane_of[row], self._tenant_of[row] = lane, request.tenant
        self._weigh(lane, request.tenant)

    def clear(self, row: int) -> None:
        """See `Rows.clear`."""
        lane, tenant = self._lane_of[row], self._tenant_of[row]
        if lane is None:
            return
        lane.rows.clear(row)
        lane.members[row] = False
        lane.tenants[tenant] -= 1
        if not lane.tenants[tenant]:
            del lane.tenants[tenant]
        self._lane_of[row] = None
        self._weigh(lane, tenant)

    def _weigh(self, lane: Lane, tenant: str) -> None:
        """A tenant's rows share what one row has: tenants of one lane are equals, however many rows they have."""
        for row in np.flatnonzero(lane.members).tolist():
            if self._tenant_of[row] == tenant:
                lane.rows.weigh(row, 1 / lane.tenants[tenant])

    def is_end(self, row: int, token: int) -> bool:
        """See `Rows.is_end`."""
        lane = self._lane_of[row]
        return lane is not None and lane.rows.is_end(row, token)

    def plan(self, decoding: npt.NDArray[np.bool_], *, again: bool = False) -> StepPlan:
        """See `Rows.plan`."""
        self._active = [lane for lane in self.lanes if (decoding & lane.members).any()]
        if not again:
            self._share()
        self._step += not again
        for lane in self._active:
            self._plan_lane(lane, decoding, again=again)
        self._hand_over(decoding)
        return self._whole(decoding)

    def _classes(self) -> tuple[dict[str, int], dict[str, int]]:
        """Of each class that takes part: how many lanes of it do, and its weight."""
        lanes: dict[str, int] = {}
        weights: dict[str, int] = {}
        for lane in self._active:
            name = lane.belongs_to.name
            lanes[name] = lanes.get(name, 0) + 1
            weights[name] = lane.belongs_to.weight
        return lanes, weights

    def _share(self) -> None:
        """Give each lane that takes part its part of the step's fuel; one that begins within the step has none."""
        lanes, weights = self._classes()
        total = sum(weights.values())
        for lane in self.lanes:
            if lane not in self._active:
                lane.rows.share(1, 1, 0)
        for lane in self._active:
            name = lane.belongs_to.name
            lane.rows.share(*(fuel * weights[name] // (total * lanes[name]) for fuel in self._phase_fuel))

    def _plan_lane(self, lane: Lane, decoding: npt.NDArray[np.bool_], *, again: bool) -> None:
        lane.plan = lane.rows.plan(decoding & lane.members, again=again)
        lane.pending = int((lane.plan.status == PENDING).sum())

    def _hand_over(self, decoding: npt.NDArray[np.bool_]) -> None:
        """What some lanes do not need goes to those that do, each of which is the first in its turn."""
        waiting = [lane for lane in self._active if lane.pending]
        if not waiting or len(waiting) == len(self._active):
            return
        givers = [lane for lane in self._active if not lane.pending]
        left = sum(lane.rows.plan_left - 1 for lane in givers)
        for lane in givers:
            lane.rows.plan_left = 1
        first = self._step % len(waiting)
        for lane in (*waiting[first:], *waiting[:first]):
            if left > 0:
                lane.rows.plan_left += left
                self._plan_lane(lane, decoding, again=True)
                left = 0 if lane.pending else lane.rows.plan_left - 1
        settle = sum(lane.rows.phase_fuel[1] for lane in givers)
        for lane in waiting:
            lane.rows.settle_more(settle // len(waiting))

    def _whole(self, decoding: npt.NDArray[np.bool_]) -> StepPlan:
        """The lanes' plans in one."""
        rows = len(decoding)
        none = np.zeros(rows, np.bool_)
        any_ends = any(lane.plan is not None and lane.plan.any_ends for lane in self._active)
        whole = StepPlan(
            decoding.copy(), np.full(rows, READY, np.uint8), none, self.lanes[0].rows.nothing(rows),
            np.zeros(rows, np.uint32), none.copy(), any_ends,
        )  # fmt: skip
        for lane in self._active:
            plan, members = lane.plan, lane.members
            assert plan is not None
            for name in ("status", "only_end", "mask_ids", "end_allowed", "limit"):
                getattr(whole, name)[members] = getattr(plan, name)[members]
        return whole

    @contextmanager
    def prefetching(self) -> Iterator[None]:
        """See `Rows.prefetching`. Lanes that take part have parts of what is done ahead as of a step's fuel."""
        if self._prefetch and self._active:
            if self.ahead is None:
                self.ahead = PrefetchGroup([lane.rows.batch for lane in self.lanes])
            lanes, weights = self._classes()
            names = [lane.belongs_to.name if lane in self._active else "" for lane in self.lanes]
            self.ahead.start([weights[name] / lanes[name] if name else 0.0 for name in names])
        try:
            yield
        finally:
            if self.ahead is not None:
                self.ahead.stop()

    @property
    def prefetch_counters(self) -> dict[str, int]:
        """See `Rows.prefetch_counters`; sums over the lanes, but for the waits for the one thread."""
        if self.ahead is None:
            return {}
        sums: dict[str, int] = {}
        for lane in self.lanes:
            for name, count in lane.rows.prefetch_counters.items():
                sums[name] = sums.get(name, 0) + count
        return sums | self.ahead.waits

    def forced(self, plan: StepPlan) -> npt.NDArray[np.int32]:
        """See `Rows.forced`."""
        tokens = np.full(len(plan.decoding), -1, np.int32)
        for lane in self._active:
            assert lane.plan is not None
            tokens[lane.members] = lane.rows.forced(lane.plan)[lane.members]
        return tokens

    def take(self, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
        """See `Rows.take`."""
        answers = np.full(len(tokens), ACCEPTED, np.uint8)
        for lane in self._active:
            answers[lane.members] = lane.rows.take(np.where(lane.members, tokens, -1).astype(np.int32))[lane.members]
        return answers

    def sample(self, logits: npt.NDArray[np.float32], plan: StepPlan) -> SampleResult:
        """See `Rows.sample`."""
        whole = SampleResult.empty(len(plan.decoding))
        for lane in self._active:
            assert lane.plan is not None
            lane.result = lane.rows.sample(logits, lane.plan)
            whole.tokens[lane.members] = lane.result.tokens[lane.members]
            whole.logprobs[lane.members] = lane.result.logprobs[lane.members]
        return whole

    def settle(self, result: SampleResult) -> Outcome:
        """See `Rows.settle`."""
        rows = len(result.tokens)
        whole = Outcome(np.arange(rows, dtype=np.int32), result.tokens, np.full(rows, READY, np.uint8))
        for lane in self._active:
            assert lane.result is not None
            lane.outcome = lane.rows.settle(lane.result)
            whole.tokens[lane.members] = lane.outcome.tokens[lane.members]
            whole.status[lane.members] = lane.outcome.status[lane.members]
        return whole

    def advance(self, plan: StepPlan, outcome: Outcome) -> npt.NDArray[np.uint8]:
        """See `Rows.advance`."""
        answers = np.full(len(plan.decoding), ACCEPTED, np.uint8)
        for lane in self._active:
            assert lane.plan is not None and lane.outcome is not None
            answers[lane.members] = lane.rows.advance(lane.plan, lane.outcome)[lane.members]
        return answers
