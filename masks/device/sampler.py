"""Sampling on the device, by whichever back end is there: Triton's kernels, or plain torch operations.

The meaning is that of `masks.sampling`, and every back end gives the same tokens, log-probabilities and candidates,
bit for bit.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import torch

from ..candidates import CANDIDATES
from ..noise import MAX_VOCABULARY
from .tables import DeviceCandidates, DeviceEnds, DeviceParameters, DeviceResult, DeviceTables, device_end_bits

#: Tokens of one program.
TILE = 2048
#: Tokens of a row that are kept while top-k, top-p and min-p are found: 128 KB a row. See `TritonSampler`.
CAPACITY = 8192


def triton_is_usable(device: torch.device) -> bool:
    """Is there a Triton that can run on this device? In its interpreter (TRITON_INTERPRET=1) it runs on any."""
    if importlib.util.find_spec("triton") is None:
        return False
    return device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"


class DeviceSampler:
    """Scratch memory for `sample`, `look_ahead` and `apply_masks` on one device: created once, used each step.

    `vocabulary` is the number of tokens that may be sampled, at most 2**22; logits may be wider. `rows` is the largest
    number of rows of a call. `backend`: "triton", "torch", or "auto" for Triton where it is usable. `candidates`: the
    most that a waiting row gives. `tile`, `capacity`: see `TILE` and `CAPACITY`.

    No call waits for the device. Arguments are checked by shape and type alone, since looking at values would wait; the
    kernels are safe for any mask id, end token and parameter, but not for row numbers past the logits.
    """

    def __init__(
        self,
        vocabulary: int,
        rows: int,
        device: torch.device | str,
        *,
        backend: str = "auto",
        candidates: int = CANDIDATES,
        tile: int = TILE,
        capacity: int = CAPACITY,
    ) -> None:
        if not 1 <= vocabulary <= MAX_VOCABULARY:
            raise ValueError(f"vocabulary must be from 1 to {MAX_VOCABULARY}, not {vocabulary}")
        if tile < 128 or tile & (tile - 1):
            raise ValueError(f"tile must be a power of 2 and at least 128, not {tile}")
        if candidates < 1 or capacity < 1 or rows < 1:
            raise ValueError("candidates, capacity and rows must be at least 1")
        self.device = torch.device(device)
        self.vocabulary = vocabulary
        self.rows = rows
        if backend == "auto":
            backend = "triton" if triton_is_usable(self.device) else "torch"
        self.backend = backend
        self._row_numbers = torch.arange(rows, dtype=torch.int64, device=self.device)
        self._no_ends = DeviceEnds(
            torch.full((rows, 1), -1, dtype=torch.int32, device=self.device),
            torch.zeros(rows, dtype=torch.int32, device=self.device),
        )
        self._no_end_allowed = torch.zeros(rows, dtype=torch.int32, device=self.device)
        self._candidates = candidates
        self._kernels: Any
        if backend == "triton":
            from .sampling_triton import TritonSampler

            self._kernels = TritonSampler(vocabulary, rows, self.device, tile=tile, capacity=capacity, most=candidates)
        elif backend == "torch":
            from .sampling_torch import TorchSampler

            self._kernels = TorchSampler(vocabulary, candidates)
        else:
            raise ValueError(f'backend must be "auto", "triton" or "torch", not {backend!r}')

    def sample(
        self,
        logits: torch.Tensor,
        mask_ids: torch.Tensor,
        pool: DeviceTables,
        *,
        end_allowed: torch.Tensor | None = None,
        ends: DeviceEnds | None = None,
        parameters: DeviceParameters,
        rows: torch.Tensor | None = None,
        out: DeviceResult | None = None,
    ) -> DeviceResult:
        """Sample a token for each mask id (int32, see `masks.tables`).

        `logits` float32, bfloat16 or float16, 2-D, at least `vocabulary` columns, any row stride. `rows` int64: the row
        of logits of each mask id (default: its own number). `end_allowed` int32 (the bits of `Plan.end_allowed`'s
        uint32): bit i, the row's i-th end token is legal; or bool, all of them or none; none without it. `out` takes
        the results and is returned; without it they are allocated. Log-probabilities are written where
        `parameters.logprobs` says that any are wanted.
        """
        count = self._checked(logits, mask_ids, rows)
        result = DeviceResult.empty(count, self.device) if out is None else out
        if result.tokens.shape != (count,) or result.logprobs.shape != (count,):
            raise ValueError(f"out must have {count} rows")
        if parameters.top_k.shape != (count,):
            raise ValueError(f"parameters of {parameters.top_k.shape[0]} rows for {count} mask ids")
        self._checked_pool(pool)
        if count:
            self._kernels.sample(
                logits,
                self._rows(rows, count),
                mask_ids,
                pool,
                *self._ends(end_allowed, ends, count),
                parameters,
                result,
            )
        return result

    def look_ahead(
        self,
        logits: torch.Tensor,
        status: torch.Tensor,
        *,
        possible: torch.Tensor | None = None,
        ends: DeviceEnds | None = None,
        parameters: DeviceParameters,
        sampled: torch.Tensor,
        rows: torch.Tensor | None = None,
        out: DeviceCandidates | None = None,
    ) -> DeviceCandidates:
        """The candidates of the rows whose `status` (uint8, `Plan.status`) is PENDING; writes -1 to `sampled` there.

        `possible` int32[words] (`Batch.possible`): the tokens that any mask might have, without end tokens; all without
        it. `sampled` int32: the tokens of `sample`.
        """
        count = self._checked(logits, status, rows)
        found = DeviceCandidates.empty(count, self.device, self._candidates) if out is None else out
        if found.tokens.shape[0] < count or found.tokens.shape[1] != self._candidates:
            raise ValueError(f"out must have {count} rows of {self._candidates} candidates")
        if possible is not None and possible.shape[0] < (self.vocabulary + 31) // 32:
            raise ValueError(f"possible has {possible.shape[0]} words, {(self.vocabulary + 31) // 32} needed")
        if count:
            _, own_ends = self._ends(None, ends, count)
            self._kernels.look_ahead(
                logits, self._rows(rows, count), status, possible, own_ends, parameters, sampled, found
            )
        return found

    def apply_masks(
        self,
        logits: torch.Tensor,
        pool: DeviceTables,
        mask_ids: torch.Tensor,
        *,
        end_allowed: torch.Tensor | None = None,
        ends: DeviceEnds | None = None,
        rows: torch.Tensor | None = None,
    ) -> None:
        """Set logits of tokens that are not legal to -inf, in place; columns past the vocabulary too."""
        count = self._checked(logits, mask_ids, rows)
        self._checked_pool(pool)
        if count:
            self._kernels.apply_masks(
                logits, self._rows(rows, count), mask_ids, pool, *self._ends(end_allowed, ends, count)
            )

    def _checked(self, logits: torch.Tensor, per_row: torch.Tensor, rows: torch.Tensor | None) -> int:
        count = per_row.shape[0]
        if logits.ndim != 2 or (logits.shape[1] > 1 and logits.stride(1) != 1):
            raise ValueError("logits must have 2 dimensions, the last of them contiguous")
        if logits.shape[1] < self.vocabulary:
            raise ValueError(f"logits have {logits.shape[1]} columns for {self.vocabulary} tokens")
        if count > self.rows:
            raise ValueError(f"{count} rows, but the sampler was made for {self.rows}")
        if rows is None and count > logits.shape[0]:
            raise ValueError(f"{count} mask ids for {logits.shape[0]} rows of logits")
        if rows is not None and rows.shape != (count,):
            raise ValueError(f"{count} mask ids for {rows.shape[0]} row numbers")
        return count

    def _checked_pool(self, pool: DeviceTables) -> None:
        words = (self.vocabulary + 31) // 32
        if pool.dense.shape[0] and pool.dense.shape[1] < words:
            raise ValueError(f"dense masks have {pool.dense.shape[1]} words, {words} needed")

    def _rows(self, rows: torch.Tensor | None, count: int) -> torch.Tensor:
        return self._row_numbers[:count] if rows is None else rows

    def _ends(
        self, end_allowed: torch.Tensor | None, ends: DeviceEnds | None, count: int
    ) -> tuple[torch.Tensor, DeviceEnds]:
        allowed = self._no_end_allowed[:count] if end_allowed is None else device_end_bits(end_allowed)
        if allowed.shape != (count,) or (ends is not None and ends.count.shape != (count,)):
            raise ValueError(f"end_allowed and ends must have {count} rows")
        return allowed, self._no_ends if ends is None else ends
