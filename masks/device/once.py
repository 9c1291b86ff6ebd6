"""`stepmask.sample` and `apply_masks` for logits on a device: all else is copied there, and the results back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..sampling import SampleResult, SamplingParameters
from ..tables import EndSets, MaskTables, end_bits
from .sampler import DeviceSampler
from .tables import DeviceEnds, DeviceParameters, DeviceTables, device_array


def _rows(
    device: torch.device,
    end_allowed: NDArray[np.uint32] | NDArray[np.bool_] | None,
    end_sets: EndSets | None,
    rows: NDArray[np.int64] | None,
    logits: torch.Tensor,
) -> dict[str, Any]:
    """The arguments that say what rows are, on the device."""
    if rows is not None and len(rows) and not 0 <= int(np.min(rows)) <= int(np.max(rows)) < logits.shape[0]:
        raise ValueError(f"row numbers must be from 0 to {logits.shape[0] - 1}")
    return {
        "end_allowed": None if end_allowed is None else device_array(end_bits(end_allowed), device),
        "ends": None if end_sets is None else DeviceEnds.of(end_sets, device),
        "rows": None if rows is None else device_array(np.asarray(rows, np.int64), device),
    }


def sample_once(
    logits: torch.Tensor,
    mask_ids: NDArray[np.int32],
    pool: MaskTables,
    *,
    end_allowed: NDArray[np.uint32] | NDArray[np.bool_] | None,
    end_sets: EndSets | None,
    parameters: SamplingParameters,
    rows: NDArray[np.int64] | None,
    status: NDArray[np.uint8] | None,
    possible: NDArray[np.uint32] | None,
    out: SampleResult | None,
    vocabulary: int | None,
    candidates: int,
) -> SampleResult:
    """Arguments and result as of `masks.sampling.sample`."""
    device, count = logits.device, mask_ids.size
    sampler = DeviceSampler(
        logits.shape[1] if vocabulary is None else vocabulary, max(1, count), device, candidates=candidates
    )
    shared = _rows(device, end_allowed, end_sets, rows, logits)
    inputs = DeviceParameters.of(parameters, device)
    ids = device_array(mask_ids, device)
    result = sampler.sample(logits, ids, DeviceTables.of(pool, device), parameters=inputs, **shared)
    found = None
    if status is not None:
        del shared["end_allowed"]
        found = sampler.look_ahead(
            logits,
            device_array(np.asarray(status, np.uint8), device),
            possible=None if possible is None else device_array(np.asarray(possible, np.uint32), device),
            parameters=inputs,
            sampled=result.tokens,
            **shared,
        )
    host = SampleResult.empty(count) if out is None else out
    host.tokens[:] = result.tokens.cpu().numpy()
    host.logprobs[:] = result.logprobs.cpu().numpy()
    ahead = None if found is None else found.to_host(host.tokens, parameters)
    return host if out is not None and ahead is None else SampleResult(host.tokens, host.logprobs, ahead)


def apply_once(
    logits: torch.Tensor,
    mask_ids: NDArray[np.int32],
    pool: MaskTables,
    *,
    end_allowed: NDArray[np.uint32] | NDArray[np.bool_] | None,
    end_sets: EndSets | None,
    rows: NDArray[np.int64] | None,
    vocabulary: int | None,
) -> None:
    """Arguments as of `masks.sampling.apply_masks`."""
    device = logits.device
    sampler = DeviceSampler(logits.shape[1] if vocabulary is None else vocabulary, max(1, mask_ids.size), device)
    shared = _rows(device, end_allowed, end_sets, rows, logits)
    sampler.apply_masks(logits, DeviceTables.of(pool, device), device_array(mask_ids, device), **shared)
