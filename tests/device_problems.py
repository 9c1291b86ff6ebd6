"""Batches for the device's sampling kernels, and how tests call them: on the CPU through Triton's interpreter.

STEPMASK_TEST_DEVICE=cuda runs the same tests on a GPU.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from hypothesis import Phase, settings
from hypothesis import strategies as st
from mask_tables import DENSE, EMPTY, LIST, SINGLE, bfloat16_bits, random_ends, tables
from numpy.typing import NDArray

from stepmask.masks.device.sampler import DeviceSampler
from stepmask.masks.device.tables import DeviceCandidates, DeviceEnds, DeviceParameters, DeviceResult, DeviceTables
from stepmask.masks.layout import PENDING, READY
from stepmask.masks.sampling import SamplingParameters
from stepmask.masks.tables import KIND_SHIFT, UNCONSTRAINED

DEVICE = os.environ.get("STEPMASK_TEST_DEVICE", "cpu")
#: The interpreter needs some 0.3 s an example: there are few, and none to make a failing one smaller.
few = settings(max_examples=max(8, settings.default.max_examples // 6), phases=[Phase.explicit, Phase.generate])
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bits": torch.bfloat16}


def tensor(array: NDArray[Any]) -> torch.Tensor:
    """A tensor on the device under test; unsigned integers as the signed ones of the same bits, uint16 as bfloat16."""
    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16).to(DEVICE)
    signed = {np.dtype(np.uint32): np.int32, np.dtype(np.uint64): np.int64}.get(array.dtype, array.dtype)
    return torch.from_numpy(array.view(signed).copy()).to(DEVICE)


@st.composite
def problems(draw: Any, form: str | None = None) -> dict[str, Any]:
    """Rows of every kind of mask; logits with ties, infinities and NaN, in rows of any stride."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    vocabulary = draw(st.sampled_from([1, 7, 33, 64, 100, 128, 129, 300]))
    width = vocabulary + draw(st.sampled_from([0, 1, 40]))
    rows = draw(st.integers(1, 4))
    style = draw(st.sampled_from(["smooth", "ties", "flat", "wild"]))
    form = draw(st.sampled_from(sorted(DTYPES))) if form is None else form
    logits: NDArray[Any] = (rng.normal(size=(rows, width)) * {"flat": 0.01, "wild": 1e3}.get(style, 3.0)).astype(
        np.float32
    )
    if style == "ties":
        logits = np.round(logits).astype(np.float32) * np.float32(0.5)
    if style == "wild":
        special = rng.random(logits.shape)
        for chance, value in ((0.15, np.nan), (0.3, -np.inf), (0.32, np.inf), (0.36, -0.0), (0.4, 0.0), (0.42, 3e38)):
            logits[(special < chance) & (special >= chance - 0.15)] = value
        logits[rng.random(logits.shape) < 0.01] = np.float32("nan") * -1
    if form == "bits":
        logits = bfloat16_bits(logits)
    elif form == "float16":
        with np.errstate(over="ignore"):
            logits = logits.astype(np.float16)
    density = rng.choice([0.0, 0.02, 0.3, 0.95, 1.0], size=(4, 1))
    masks = rng.random((4, vocabulary)) < density
    most = min(vocabulary, 12)
    lists = [sorted(rng.choice(vocabulary, rng.integers(0, most + 1), replace=False).tolist()) for _ in range(2)]
    lists.append(rng.permutation(vocabulary).tolist())
    ids = [UNCONSTRAINED, *(DENSE | i for i in range(4)), *(LIST | i for i in range(3)), EMPTY]
    ids += [SINGLE | int(rng.integers(vocabulary)), 5 << KIND_SHIFT]
    end_sets, end_allowed = random_ends(rng, rows, vocabulary)
    truncated, wanted = rng.random() < 0.7, rng.random() < 0.7
    return {
        "logits": logits,
        "vocabulary": vocabulary,
        "pool": tables(masks, lists),
        "mask_ids": rng.choice(np.array(ids, np.int32), rows),
        "end_allowed": end_allowed,
        "end_sets": end_sets,
        "rows": rng.permutation(rows).astype(np.int64),
        "parameters": SamplingParameters.build(
            rows,
            temperature=rng.choice([0, 1e-7, 0.1, 0.7, 1, 1.9, 50], rows),
            top_k=rng.choice([0, 1, 2, 7, 40, 1000], rows) if truncated else 0,
            top_p=rng.choice([1, 1, 1e-6, 0.3, 0.9, 0.999999], rows) if truncated else 1,
            min_p=rng.choice([0, 0, 1e-9, 0.05, 0.5, 1], rows) if truncated else 0,
            seed=rng.integers(0, 2**64, rows, np.uint64),
            position=rng.integers(0, 2**40, rows),
            want_logprob=rng.integers(0, 2, rows) if wanted else 0,
        ),
    }


def strided(logits: torch.Tensor, extra: int) -> torch.Tensor:
    """The same logits in rows that are `extra` elements longer."""
    whole = torch.zeros(logits.shape[0], logits.shape[1] + extra, dtype=logits.dtype, device=logits.device)
    whole[:, : logits.shape[1]] = logits
    return whole[:, : logits.shape[1]]


def row_arguments(problem: dict[str, Any]) -> dict[str, Any]:
    return {
        "end_allowed": tensor(problem["end_allowed"]),
        "ends": DeviceEnds.of(problem["end_sets"], DEVICE),
        "rows": tensor(problem["rows"]),
    }


def sample(problem: dict[str, Any], backend: str, *, capacity: int = 40, extra: int = 0) -> DeviceResult:
    """The problem's rows through one back end of `DeviceSampler`, in tiles of 128 tokens."""
    count = len(problem["mask_ids"])
    sampler = DeviceSampler(problem["vocabulary"], count, DEVICE, backend=backend, tile=128, capacity=capacity)
    with np.errstate(all="ignore"):
        return sampler.sample(
            strided(tensor(problem["logits"]), extra),
            tensor(problem["mask_ids"]),
            DeviceTables.of(problem["pool"], DEVICE),
            parameters=DeviceParameters.of(problem["parameters"], DEVICE),
            **row_arguments(problem),
        )


def look_ahead(
    problem: dict[str, Any], backend: str, status: NDArray[np.uint8], possible: NDArray[np.uint32] | None, most: int
) -> tuple[DeviceCandidates, torch.Tensor]:
    """(candidates, the step's tokens) of the rows that wait."""
    count = len(status)
    sampler = DeviceSampler(problem["vocabulary"], count, DEVICE, backend=backend, tile=128, candidates=most)
    sampled = torch.full((count,), 7, dtype=torch.int32, device=DEVICE)
    arguments = row_arguments(problem)
    del arguments["end_allowed"]
    with np.errstate(all="ignore"):
        found = sampler.look_ahead(
            tensor(problem["logits"]),
            tensor(status),
            possible=None if possible is None else tensor(possible),
            parameters=DeviceParameters.of(problem["parameters"], DEVICE),
            sampled=sampled,
            **arguments,
        )
    return found, sampled


def statuses(draw: Any, rows: int) -> NDArray[np.uint8]:
    return np.array([draw(st.sampled_from([READY, PENDING, PENDING])) for _ in range(rows)], np.uint8)
