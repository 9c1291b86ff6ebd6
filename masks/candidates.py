"""What sampling says of a row whose mask is not there yet: its best tokens, and what proves one of them right.

With the noise keyed by (seed, position, token), the token sampled from the masked distribution is the best-scoring
*legal* one, and a token's score does not depend on the mask. So the best tokens of all are looked up in the grammar one
by one, and the first legal one is the row's token (`masks.settle`), provided that top-k, top-p and min-p, which
apply to legal tokens only, keep it. What follows from the unmasked row about that is in these arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .arguments import whole

if TYPE_CHECKING:
    from .sampling import SamplingParameters

#: Candidates of a row. Each costs 28 bytes a row, and a token walk where it is looked up (about 100 ns).
CANDIDATES = 16


@dataclass
class Candidates:
    """The best tokens of each waiting row by score, any back end's: flat arrays, row i of the step in place i.

    The *possible* tokens of a row are those that its grammar could allow at all (`Batch.possible`) and the row's end
    tokens. None with a logit of NaN or -inf is a candidate or above one. The score is that of `masks.sampling`: x +
    gumbel(seed, position, token) in float32 with x = logit * (1 / temperature), or the logit itself in a greedy row.
    Entries of a row are ordered by (score descending, id ascending); what is above a token is so in the truncation
    order (logit descending, id ascending), equal logits with a lower id included. Weights are the integers of
    `noise.weight` relative to the row's largest x of a possible token.

    Arrays have at least `rows` rows and are C-contiguous. `count` int32[rows]: candidates of the row, -1 where it was
    not waiting for its mask; all entries past it are undefined. `tokens` int32[rows, most]; `x` float32[rows, most].
    For rows that are not greedy and truncate: `rank` int32[rows, most], possible tokens above the candidate; `largest`
    float32[rows], the largest x of a possible token. For such rows with top-p: `weight` and `above` int64[rows,
    most], the candidate's weight and the sum of weights above it; `possible` int32[rows], number of possible tokens,
    whatever their logits; `total` int64[rows], sum of their weights. Undefined for other rows.

    `sampled` int32[rows]: the step's tokens (`SampleResult.tokens` itself), -1 in waiting rows; settling writes
    theirs. `parameters`: those that the rows were sampled with. A row that asks for the log-probability of its token
    has no candidates: the sum over the legal tokens is not known.
    """

    rows: int
    count: NDArray[np.int32]
    tokens: NDArray[np.int32]
    x: NDArray[np.float32]
    rank: NDArray[np.int32]
    weight: NDArray[np.int64]
    above: NDArray[np.int64]
    possible: NDArray[np.int32]
    total: NDArray[np.int64]
    largest: NDArray[np.float32]
    sampled: NDArray[np.int32] | None = None
    parameters: SamplingParameters | None = None

    @classmethod
    def empty(cls, rows: int, most: int = CANDIDATES) -> Candidates:
        """Room for `rows` rows of up to `most` candidates, none of them waiting."""
        if whole(rows, "rows") < 0:
            raise ValueError(f"rows must be at least 0, not {rows}")
        if whole(most, "candidates") < 1:
            raise ValueError(f"there must be room for at least one candidate a row, not {most}")
        return cls(
            rows=rows,
            count=np.full(rows, -1, np.int32),
            tokens=np.zeros((rows, most), np.int32),
            x=np.zeros((rows, most), np.float32),
            rank=np.zeros((rows, most), np.int32),
            weight=np.zeros((rows, most), np.int64),
            above=np.zeros((rows, most), np.int64),
            possible=np.zeros(rows, np.int32),
            total=np.zeros(rows, np.int64),
            largest=np.zeros(rows, np.float32),
        )

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """What a kernel fills and `masks.settle` reads, in the order of the fields."""
        return (
            self.count, self.tokens, self.x, self.rank, self.weight, self.above, self.possible, self.total, self.largest
        )  # fmt: skip
