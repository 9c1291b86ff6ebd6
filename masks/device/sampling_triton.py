"""Launching the Triton kernels: two for plain rows, five where a row may be truncated.

What a call writes is allocated when the sampler is made, its launches depend on shapes and on `DeviceParameters`'
two flags alone, and it never waits for the device: so it can be captured in a CUDA graph.
"""

from __future__ import annotations

from typing import Any

import torch
import triton

from .scan_triton import gather, scan, weigh
from .select_triton import bound, finish
from .tables import DeviceEnds, DeviceParameters, DeviceResult, DeviceTables

_FORMATS = {torch.float32: (torch.int32, 32), torch.bfloat16: (torch.int16, 16), torch.float16: (torch.int16, 10)}
#: Contraction of a product and a sum into one rounding is off: back ends would differ.
OPTIONS: dict[str, Any] = {"enable_fp_fusion": False}
#: Warps of a program that holds a tile of 4,096 tokens, and of one that holds 1,024.
WIDE_WARPS = 8
NARROW_WARPS = 4


def bits_of(logits: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Logits as integers of the same bits, and the kernels' number for the format."""
    if logits.dtype not in _FORMATS:
        raise TypeError(f"logits must be float32, float16 or bfloat16, not {logits.dtype}")
    integer, form = _FORMATS[logits.dtype]
    return logits.detach().view(integer), form


class TritonSampler:
    """Scratch memory and launches for up to `rows` rows. `tile`: tokens of one program, a power of 2 and at least 128.

    `capacity`: tokens of a row that are kept for truncation, 16 bytes each. A row where more can survive is read again
    from its logits at each step of the search, which is slow and gives the same token.
    """

    def __init__(self, vocabulary: int, rows: int, device: torch.device, *, tile: int, capacity: int) -> None:
        self.vocabulary = vocabulary
        self.tile = tile
        self.capacity = capacity
        self.narrow = min(tile, 1024)

        def empty(*shape: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        # A list may hold every token, and end tokens beside them.
        self.parts = triton.cdiv(vocabulary + tile // 2, tile)
        self._groups = self.parts * tile // 32
        self._first = empty(rows, self.parts, dtype=torch.int64)
        self._score = empty(rows, self.parts, dtype=torch.int64)
        self._legal = empty(rows, self.parts, dtype=torch.int32)
        self._weight = empty(rows, self.parts, dtype=torch.int64)
        self._group_keys = empty(rows, self._groups, dtype=torch.int32)
        self._lowest = empty(rows, dtype=torch.int32)
        self._count = empty(rows, dtype=torch.int32)
        self._candidates = empty(rows, capacity, dtype=torch.int64)
        self._candidate_weights = empty(rows, capacity, dtype=torch.int64)

    def sample(
        self,
        logits: torch.Tensor,
        rows: torch.Tensor,
        mask_ids: torch.Tensor,
        pool: DeviceTables,
        end_allowed: torch.Tensor,
        ends: DeviceEnds,
        parameters: DeviceParameters,
        out: DeviceResult,
    ) -> None:
        count = mask_ids.shape[0]
        bits, form = bits_of(logits)
        dense = pool.dense.view(torch.uint8)
        p = parameters
        shared = (
            *(bits, bits.stride(0), rows, self.vocabulary, mask_ids, dense, dense.stride(0), dense.shape[0]),
            *(pool.list_offset, pool.list_length, pool.list_tokens, pool.list_offset.shape[0]),
            *(ends.tokens, ends.count, end_allowed, p.temperature),
        )
        shape = {"ENDS": ends.tokens.shape[1], "GROUPS": self.tile // 8, "FORMAT": form}
        padded = triton.next_power_of_2(self.parts)
        wide = {**OPTIONS, "num_warps": WIDE_WARPS}
        grid = (count, self.parts)
        scan[grid](
            *(*shared, p.top_k, p.top_p, p.min_p, p.seed, p.position),
            *(self._first, self._score, self._legal, self._group_keys),
            **{**shape, "TRUNCATES": p.truncates, **wide},
        )
        if p.truncates or p.logprobs:
            weigh[grid](
                *(*shared, p.top_k, p.top_p, p.want_logprob, self._first, self._weight),
                **{**shape, "PARTS": padded, **wide},
            )
        if p.truncates:
            bound[(count,)](
                *(self.vocabulary, mask_ids, dense.shape[0], pool.list_offset.shape[0], p.temperature),
                *(p.top_k, p.top_p, p.min_p, self._first, self._legal, self._weight, self._group_keys),
                *(self._lowest, self._count, self.parts, self._groups),
                **{"PARTS": padded, "TILE": self.narrow, "num_warps": NARROW_WARPS, **OPTIONS},
            )
            gather[grid](
                *(*shared, p.top_p, self._first, self._lowest, self._count),
                *(self._candidates, self._candidate_weights, self.capacity),
                **{**shape, "PARTS": padded, **wide},
            )
        shape["GROUPS"] = self.narrow // 8
        finish[(count,)](
            *(*shared, p.top_k, p.top_p, p.min_p, p.seed, p.position, p.want_logprob),
            *(self._first, self._score, self._weight, self._lowest, self._count),
            *(self._candidates, self._candidate_weights, self.capacity, out.tokens, out.logprobs, self.parts),
            **{**shape, "PARTS": padded, "TRUNCATES": p.truncates, "LOGPROBS": p.logprobs},
            **{"num_warps": NARROW_WARPS, **OPTIONS},
        )
