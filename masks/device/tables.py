"""What the device kernels read, as torch tensors: mask tables, end tokens and sampling parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..candidates import CANDIDATES, Candidates
from ..layout import MAX_ENDS
from ..sampling_numba import TEMPERATURE_LOWEST

if TYPE_CHECKING:
    from ..sampling import SamplingParameters
    from ..tables import EndSets, MaskTables


def device_array(array: NDArray[Any], device: torch.device | str) -> torch.Tensor:
    """A copy of a NumPy array on the device. Unsigned integers become the signed ones of the same bits."""
    signed = {"uint32": np.int32, "uint64": np.int64}.get(array.dtype.name)
    view = np.ascontiguousarray(array) if signed is None else np.ascontiguousarray(array).view(signed)
    return torch.from_numpy(view.copy()).to(device)


@dataclass(frozen=True)
class DeviceTables:
    """`masks.tables.MaskTables` on the device: `dense` int32[masks, words] and int32 lists, all contiguous."""

    dense: torch.Tensor
    list_offset: torch.Tensor
    list_length: torch.Tensor
    list_tokens: torch.Tensor

    @classmethod
    def of(cls, tables: MaskTables, device: torch.device | str) -> DeviceTables:
        """A copy of host tables."""
        names = ("dense", "list_offset", "list_length", "list_tokens")
        return cls(*(device_array(getattr(tables, name), device) for name in names))


@dataclass(frozen=True)
class DeviceEnds:
    """End tokens of each row: `tokens` int32[rows, most], `count` int32[rows], how many of them are used.

    Those of a row are distinct; `most` is at most `layout.MAX_ENDS`.
    """

    tokens: torch.Tensor
    count: torch.Tensor

    @classmethod
    def of(cls, ends: EndSets, device: torch.device | str, most: int | None = None) -> DeviceEnds:
        """A copy of host end sets, with room for `most` tokens a row (default: what the longest needs)."""
        count = np.diff(ends.start).astype(np.int32)
        width = max(1, int(count.max(initial=0))) if most is None else min(most, MAX_ENDS)
        if int(count.max(initial=0)) > width:
            raise ValueError(f"a row has {int(count.max())} end tokens, there is room for {width}")
        tokens = np.full((count.size, width), -1, np.int32)
        for row in range(count.size):
            tokens[row, : count[row]] = ends.tokens[ends.start[row] : ends.start[row + 1]]
        return cls(device_array(tokens, device), device_array(count, device))


def device_end_bits(allowed: torch.Tensor) -> torch.Tensor:
    """`masks.tables.end_bits` on the device: int32 of the uint32's bits; bool is all of a row's end tokens or none."""
    if allowed.dtype == torch.bool:
        return -allowed.to(torch.int32)
    if allowed.dtype != torch.int32:
        raise TypeError(f"end_allowed must be int32 (a bit for each end token) or bool, not {allowed.dtype}")
    return allowed


def inverse_temperature(temperature: torch.Tensor) -> torch.Tensor:
    """1 / temperature, rounded once, in float32; 0 for greedy rows."""
    greedy = ~(temperature >= float(TEMPERATURE_LOWEST))
    return torch.where(greedy, 0.0, 1.0 / torch.where(greedy, 1.0, temperature))


@dataclass(frozen=True)
class DeviceParameters:
    """`masks.sampling.SamplingParameters` on the device; `seed` is int64 of the same bits.

    `inverse_temperature` float32 is what kernels read of the temperature (see the function of this name).

    `truncates`, `logprobs`: may any row have top-k, top-p or min-p, or ask for a log-probability? Known to the host,
    since they say which kernels a step launches; where false, the rows' own values are not looked at.
    """

    inverse_temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    seed: torch.Tensor
    position: torch.Tensor
    want_logprob: torch.Tensor
    truncates: bool = True
    logprobs: bool = True

    @classmethod
    def of(cls, parameters: SamplingParameters, device: torch.device | str) -> DeviceParameters:
        """A copy of host parameters."""
        names = ("top_k", "top_p", "min_p", "seed", "position", "want_logprob")
        truncates = bool(np.any((parameters.top_k > 0) | (parameters.top_p < 1) | (parameters.min_p > 0)))
        inverse = inverse_temperature(device_array(parameters.temperature, device))
        tensors = {name: device_array(getattr(parameters, name), device) for name in names}
        return cls(inverse, **tensors, truncates=truncates, logprobs=bool(np.any(parameters.want_logprob)))


@dataclass(frozen=True)
class DeviceResult:
    """`tokens` int32[rows], -1 where nothing is legal; `logprobs` float32[rows], NaN where not asked for."""

    tokens: torch.Tensor
    logprobs: torch.Tensor

    @classmethod
    def empty(cls, rows: int, device: torch.device | str) -> DeviceResult:
        """Room for the results of `rows` rows."""
        tokens = torch.zeros(rows, dtype=torch.int32, device=device)
        return cls(tokens, torch.full((rows,), float("nan"), dtype=torch.float32, device=device))


@dataclass(frozen=True)
class DeviceCandidates:
    """`masks.candidates.Candidates` on the device: the same fields, defined where those are."""

    count: torch.Tensor
    tokens: torch.Tensor
    x: torch.Tensor
    rank: torch.Tensor
    weight: torch.Tensor
    above: torch.Tensor
    possible: torch.Tensor
    total: torch.Tensor
    largest: torch.Tensor

    @classmethod
    def empty(cls, rows: int, device: torch.device | str, most: int = CANDIDATES) -> DeviceCandidates:
        """Room for `rows` rows of up to `most` candidates."""
        host = Candidates.empty(rows, most)
        return cls(*(device_array(array, device) for array in host.arrays()))

    def to_host(self, sampled: NDArray[np.int32], parameters: SamplingParameters) -> Candidates:
        """A copy that `Batch.settle` takes; waits for the device. `sampled`: the step's tokens, on the host."""
        arrays: dict[str, Any] = {name: tensor.cpu().numpy() for name, tensor in vars(self).items()}
        return Candidates(len(sampled), **arrays, sampled=sampled, parameters=parameters)
