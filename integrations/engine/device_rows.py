"""The engine's rows sampled on a device: a step ships mask ids, and the masks that are new to the device.

`Engine(model, vocabulary, slots, rows=DeviceRows(vocabulary, slots, width, budget_us, device="cuda"))`: the tokens are
those of `Rows`, whatever the device. Logits may be the host's, which are copied there, or already on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ...masks.candidates import Candidates
from ...masks.device.mirror import PoolMirror
from ...masks.device.sampler import DeviceSampler
from ...masks.device.tables import DeviceEnds, DeviceParameters, device_array
from ...masks.layout import MAX_ENDS, PENDING
from ...masks.outcome import Plan
from ...masks.sampling import SampleResult
from ...masks.vocabulary import Vocabulary
from .grammar import Rows, StepPlan
from .request import Request


class DeviceRows(Rows):
    """`Rows` that sample on a torch `device`, through the pool's mirror; other parameters as of `Rows`.

    `backend`: as of `DeviceSampler`; on a CPU plain torch operations, which are for tests.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        slots: int,
        width: int,
        budget_us: float | None,
        pool_masks: int | None = None,
        *,
        device: torch.device | str,
        backend: str = "auto",
        prefetch: bool = False,
    ) -> None:
        super().__init__(vocabulary, slots, width, budget_us, pool_masks, prefetch=prefetch)
        self._device = torch.device(device)
        #: What the steps have copied is counted there.
        self.mirror = PoolMirror(self._batch, self._device, resident_masks=0, resident_lists=0, resident_tokens=0)
        self._on_device = DeviceSampler(min(vocabulary.size, width), slots, self._device, backend=backend)
        self._logits = torch.zeros(slots, width, device=self._device)
        self._no_candidates = Candidates.empty(slots)
        self._refresh()

    def seat(self, row: int, request: Request) -> None:
        """As `Rows.seat`."""
        super().seat(row, request)
        self._is_stale = True

    def _refresh(self) -> None:
        """Copy what changes only when a request is seated: end tokens, sampling parameters, possible tokens."""
        self._device_ends = DeviceEnds.of(self._end_sets, self._device, most=MAX_ENDS)
        self._inputs = DeviceParameters.of(self._parameters, self._device)
        self._possible = device_array(self._batch.possible, self._device)
        self._is_stale = False

    def sample(self, logits: npt.NDArray[np.float32] | torch.Tensor, plan: StepPlan) -> SampleResult:
        """As `Rows.sample`; waits for the device at its end only."""
        if self._is_stale:
            self._refresh()
        self._inputs.position.copy_(torch.from_numpy(self._parameters.position))
        if isinstance(logits, np.ndarray):
            logits = self._logits.copy_(torch.from_numpy(logits))
        rows = np.arange(len(plan.status), dtype=np.int32)
        shipment = self.mirror.ship(Plan(rows, plan.mask_ids, plan.end_allowed, plan.status))
        result = self._on_device.sample(
            logits,
            shipment.mask_ids,
            self.mirror.tables,
            end_allowed=shipment.end_allowed,
            ends=self._device_ends,
            parameters=self._inputs,
        )
        finish: Callable[..., Any] | None = None
        if (plan.status == PENDING).any():
            finish = self._on_device.look_ahead(
                logits,
                shipment.status,
                possible=self._possible,
                ends=self._device_ends,
                parameters=self._inputs,
                sampled=result.tokens,
            ).to_host
        self.mirror.shipped(shipment)
        tokens = result.tokens.cpu().numpy()
        logprobs = result.logprobs.cpu().numpy()
        found = self._no_candidates if finish is None else finish(tokens, self._parameters)
        found.sampled, found.parameters = tokens, self._parameters
        return SampleResult(tokens, logprobs, found)
