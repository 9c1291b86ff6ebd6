"""What the calls of a step say of each row, and how the step's fuel is shared between them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from .layout import (
    COUNT_ACCEPTED,
    COUNT_ADVANCED,
    COUNT_CHECKS,
    COUNT_CONTEXTS,
    COUNT_DEFERRED,
    COUNT_FLUSHES,
    COUNT_HITS,
    COUNT_LEARNED,
    COUNT_LIBRARY,
    COUNT_LOOKED,
    COUNT_LOOKED_UP,
    COUNT_MASKS,
    COUNT_MISSES,
    COUNT_OVER,
    COUNT_OVERRUNS,
    COUNT_PARTIAL,
    COUNT_PENDING,
    COUNT_PROMOTED,
    COUNT_READY,
    COUNT_RECALLED,
    COUNT_REFUSED,
    COUNT_SETTLED,
    COUNT_UNFINISHED,
    COUNT_VERIFIED,
    COUNT_VISITED,
    COUNT_WORK,
    DEFERRED,
    READY,
)

#: The shares of a step's fuel that settling waiting rows and taking tokens have to themselves. Looking up rows whose
#: masks are there has `step.ROW_COST` a slot, at most ROWS_SHARE; `plan` has the rest. What one of them leaves, the
#: next one has on top.
SETTLE_SHARE, ADVANCE_SHARE, ROWS_SHARE = 0.25, 0.125, 0.25
#: Of the part of `settle`, what looking up masks may have besides: a row whose mask is there needs no settling.
LOOK_SHARE = 0.75

#: Units that a phase may do beyond its fuel at once, besides a pass over a mask: what the bytes of a state, a position
#: of a stack graph or one chunk of a table take (`docs/step_contract.md`).
PIECE_FUEL = 512

#: Name in `Batch.counters` -> place of the number.
COUNTER_NAMES = {
    "work": COUNT_WORK,
    "hits": COUNT_HITS,
    "misses": COUNT_MISSES,
    "contexts": COUNT_CONTEXTS,
    "masks": COUNT_MASKS,
    "flushes": COUNT_FLUSHES,
    "promoted": COUNT_PROMOTED,
    "pending": COUNT_PENDING,
    "accepted": COUNT_ACCEPTED,
    "refused": COUNT_REFUSED,
    "ready": COUNT_READY,
    "verified": COUNT_VERIFIED,
    "deferred": COUNT_DEFERRED,
    "checks": COUNT_CHECKS,
    "settled": COUNT_SETTLED,
    "overruns": COUNT_OVERRUNS,
    "over": COUNT_OVER,
    "partial": COUNT_PARTIAL,
    "visited": COUNT_VISITED,
    "library": COUNT_LIBRARY,
    "recalled": COUNT_RECALLED,
    "looked_up": COUNT_LOOKED_UP,
    "learned": COUNT_LEARNED,
    "looked": COUNT_LOOKED,
    "advanced": COUNT_ADVANCED,
    "unfinished": COUNT_UNFINISHED,
}


class Late(Enum):
    """What a host gets for a row whose mask is not there within the budget. `docs/step_contract.md` compares them."""

    #: Bounded and exact: the row is PENDING. The host samples candidates, has them settled, and lets a deferred row sit
    #: the step out; its tokens are the same at every budget.
    DEFER = "defer"
    #: Exact: the mask is finished over the budget, counted as an overrun. For hosts that need every mask at once.
    FINISH = "finish"
    #: Biased, and bounded where the model agrees with the grammar: the row is PENDING, and the host samples among those
    #: of the row's best tokens that are found legal, counted as partial. Where none is, its mask is finished.
    PARTIAL = "partial"


@dataclass(frozen=True)
class Plan:
    """What `Batch.plan` found for each row; views of the batch's buffers, valid until its next `plan`.

    `mask_ids` int32 (see `masks.tables`), `end_allowed` uint32 (bit i: the i-th of the row's end tokens, as
    `Batch.end_sets` orders them, is legal; bits past its last mean nothing), `status` uint8: READY, PENDING (the row
    has no mask yet and must not be sampled from `mask_ids`) or LIMIT (it cannot have one, the sequence must be ended).
    """

    slots: npt.NDArray[np.int32]
    mask_ids: npt.NDArray[np.int32]
    end_allowed: npt.NDArray[np.uint32]
    status: npt.NDArray[np.uint8]

    @property
    def all_ready(self) -> bool:
        return not (self.status != READY).any()


@dataclass(frozen=True)
class Outcome:
    """What `Batch.settle` made of each planned row; views of buffers, valid until the next `plan` or `sample`.

    `tokens` int32: the rows' tokens, those that were sampled and those that were verified; -1 where there is none.
    `status` uint8: READY (sampled under its mask), VERIFIED (the token that its mask would have given, with the same
    noise), DEFERRED (no token yet: keep the row's logits and sample from them again in the next step, at the same
    position of the noise) or LIMIT (as in the plan).
    """

    slots: npt.NDArray[np.int32]
    tokens: npt.NDArray[np.int32]
    status: npt.NDArray[np.uint8]

    @property
    def deferred(self) -> npt.NDArray[np.bool_]:
        """bool, one a row."""
        deferred: npt.NDArray[np.bool_] = self.status == DEFERRED
        return deferred
