"""Masks that are not there within the budget, for hosts that need one of every row at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .fuel import NO_FUEL_LIMIT
from .layout import COUNT_MASKS, COUNT_OVER, COUNT_OVERRUNS, COUNT_PARTIAL, COUNT_WORK, PENDING
from .outcome import Plan

if TYPE_CHECKING:
    from .batch import Batch
    from .candidates import Candidates


def finish(batch: Batch, plan: Plan) -> Plan:
    """The plan with all its masks, whatever that takes; rows and work over the budget are counted."""
    counters = batch.counter_values
    waiting, work, made = int((plan.status == PENDING).sum()), int(counters[COUNT_WORK]), -1
    while (plan.status == PENDING).any():
        if made == counters[COUNT_MASKS]:
            raise MemoryError("the masks of one step do not fit into the pool: more pool_masks or fewer slots")
        made = int(counters[COUNT_MASKS])
        plan = batch.plan_within(plan.slots, NO_FUEL_LIMIT)
    counters[COUNT_OVERRUNS] += waiting
    counters[COUNT_OVER] += counters[COUNT_WORK] - work
    return plan


def legal_candidates(batch: Batch, candidates: Candidates) -> npt.NDArray[np.bool_]:
    """Which candidates of the rows that the last plan left PENDING are known to be legal: bool[rows, most].

    Within the budget; rows that have any are counted as partial. Arguments as of `Batch.settle`.
    """
    legal = batch.settler.legal(batch.address, candidates)
    batch.counter_values[COUNT_PARTIAL] += legal.any(axis=1).sum()
    return legal
