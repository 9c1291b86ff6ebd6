"""Launching the Triton kernels: two for plain rows, five where a row may be truncated, three more where rows wait.

What a call writes is allocated when the sampler is made, its launches depend on shapes and on the flags of its
arguments alone, and it never waits for the device: so it can be captured in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton

from .apply_triton import apply
from .candidates_triton import measure, merge_parts, score_parts
from .scan_triton import STEPS, gather, scan, weigh
from .select_triton import bound, finish
from .tables import DeviceCandidates, DeviceEnds, DeviceParameters, DeviceResult, DeviceTables

_FORMATS = {torch.float32: (torch.int32, 32), torch.bfloat16: (torch.int16, 16), torch.float16: (torch.int16, 10)}
#: -inf as an integer of the same bits, by format.
_MINUS_INFINITY = {32: -0x800000, 16: -0x80, 10: -0x400}
#: Tokens that a warp holds: one group of 8 a thread.
TOKENS_A_WARP = 256
#: Registers that a thread of the wide kernels may have: two programs of 256 threads on a multiprocessor, three where
#: fewer do. Without a number ptxas keeps to fewer for some targets, and spills.
MAX_REGISTERS = 96
#: The same for `finish`, of which there is one program a row.
FINISH_REGISTERS = 168


def bits_of(logits: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Logits as integers of the same bits, and the kernels' number for the format."""
    if logits.dtype not in _FORMATS:
        raise TypeError(f"logits must be float32, float16 or bfloat16, not {logits.dtype}")
    integer, form = _FORMATS[logits.dtype]
    return logits.detach().view(integer), form


def options(tile: int, registers: int | None = None) -> dict[str, Any]:
    """How a kernel with a tile of so many tokens is compiled. A product and a sum must not become one rounding."""
    result: dict[str, Any] = {"num_warps": max(1, tile // TOKENS_A_WARP), "enable_fp_fusion": False}
    if registers is not None and torch.version.hip is None:
        result["maxnreg"] = registers
    return result


#: A kernel, its grid, its arguments and its constants and options.
Launch = Callable[[Any, tuple[int, ...], tuple[Any, ...], dict[str, Any]], None]


def launch(kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], constants: dict[str, Any]) -> None:
    """Run a kernel."""
    kernel[grid](*arguments, **constants)


class TritonSampler:
    """Scratch memory and launches for up to `rows` rows. `tile`: tokens of one program, a power of 2 and at least 128.

    `capacity`: tokens of a row that are kept for truncation, 16 bytes each. A row where more can survive is read again
    from its logits at each step of the search, which is slow and gives the same token.
    `most`: candidates of a row. `launch`: what is done with each launch.
    """

    def __init__(
        self,
        vocabulary: int,
        rows: int,
        device: torch.device,
        *,
        tile: int,
        capacity: int,
        most: int,
        launch: Launch = launch,
    ) -> None:
        self.vocabulary = vocabulary
        self.tile = tile
        self.capacity = capacity
        self.most = most
        self.narrow = min(tile, 1024)
        self._launch = launch

        def empty(*shape: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        # A list may hold every token, and end tokens beside them.
        self.parts = triton.cdiv(vocabulary + tile // 2, tile)
        self._padded = triton.next_power_of_2(self.parts)
        self._groups = self.parts * tile // 32
        self._first = empty(rows, self.parts, dtype=torch.int64)
        self._score = empty(rows, self.parts, dtype=torch.int64)
        self._legal = empty(rows, self.parts, dtype=torch.int32)
        self._weight = empty(rows, self.parts, dtype=torch.int64)
        self._steps = empty(rows, self.parts, STEPS.value, dtype=torch.int64)
        self._group_keys = empty(rows, self._groups, dtype=torch.int32)
        self._lowest = empty(rows, dtype=torch.int32)
        self._count = empty(rows, dtype=torch.int32)
        self._survivors = empty(rows, capacity, dtype=torch.int64)
        self._survivor_weights = empty(rows, capacity, dtype=torch.int64)
        self._part_best = empty(rows, self.parts, most, dtype=torch.int64)
        self._orders = empty(rows, most, dtype=torch.int64)

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
        p = parameters
        shared = (*self._row_arguments(bits, rows, mask_ids, pool, end_allowed, ends), p.inverse_temperature)
        shape = {"ENDS": ends.tokens.shape[1], "GROUPS": self.tile // 8, "FORMAT": form}
        grid = (count, self.parts)
        self._launch(
            scan,
            grid,
            (
                *(*shared, p.top_k, p.top_p, p.min_p, p.seed, p.position),
                *(self._first, self._score, self._legal, self._group_keys),
            ),
            {**shape, "TRUNCATES": p.truncates, **options(self.tile, MAX_REGISTERS)},
        )
        padded = {"PARTS": self._padded}
        if p.truncates or p.logprobs:
            self._launch(
                weigh,
                grid,
                (*shared, p.top_k, p.top_p, p.want_logprob, self._first, self._weight, self._steps),
                {**shape, **padded, "TRUNCATES": p.truncates, **options(self.tile, MAX_REGISTERS)},
            )
        if p.truncates:
            self._launch(
                bound,
                (count,),
                (
                    *(self.vocabulary, mask_ids, pool.dense.shape[0], pool.list_offset.shape[0], p.inverse_temperature),
                    *(p.top_k, p.top_p, p.min_p, self._first, self._legal, self._weight, self._steps, self._group_keys),
                    *(self._lowest, self._count, self.parts, self._groups),
                ),
                {**padded, "TILE": self.narrow, **options(self.narrow)},
            )
            self._launch(
                gather,
                grid,
                (
                    *(*shared, p.top_p, self._first, self._group_keys, self._lowest, self._count),
                    *(self._survivors, self._survivor_weights, self.capacity),
                ),
                {**shape, **padded, **options(self.tile, MAX_REGISTERS)},
            )
        shape["GROUPS"] = self.narrow // 8
        finishing = options(self.narrow, FINISH_REGISTERS)
        self._launch(
            finish,
            (count,),
            (
                *(*shared, p.top_k, p.top_p, p.min_p, p.seed, p.position, p.want_logprob),
                *(self._first, self._score, self._weight, self._lowest, self._count),
                *(self._survivors, self._survivor_weights, self.capacity, out.tokens, out.logprobs, self.parts),
            ),
            {**shape, **padded, "TRUNCATES": p.truncates, "LOGPROBS": p.logprobs, **finishing},
        )

    def look_ahead(
        self,
        logits: torch.Tensor,
        rows: torch.Tensor,
        status: torch.Tensor,
        possible: torch.Tensor | None,
        ends: DeviceEnds,
        parameters: DeviceParameters,
        sampled: torch.Tensor,
        out: DeviceCandidates,
    ) -> None:
        count = status.shape[0]
        bits, form = bits_of(logits)
        p = parameters
        inputs = (bits, bits.stride(0), rows)
        masks = sampled if possible is None else possible
        tokens = (self.vocabulary, status, masks.view(torch.uint8), ends.tokens, ends.count)
        shape = {"ENDS": ends.tokens.shape[1], "GROUPS": self.tile // 8, "FORMAT": form, "MOST": self.most}
        shape["EVERY"] = possible is None
        grid = (count, self.parts)
        self._launch(
            score_parts,
            grid,
            (
                *(*inputs, *tokens, p.inverse_temperature, p.seed, p.position, p.want_logprob),
                *(self._first, self._legal, self._part_best),
            ),
            {**shape, **options(self.tile)},
        )
        self._launch(
            merge_parts,
            (count,),
            (
                *(*inputs, status, p.inverse_temperature, p.want_logprob, self.parts),
                *(self._first, self._legal, self._part_best, sampled, out.count, out.tokens, out.x, out.rank),
                *(out.weight, out.above, out.possible, out.total, out.largest, self._orders),
            ),
            {"FORMAT": form, "PARTS": self._padded, "MOST": self.most, **options(self.narrow)},
        )
        if p.truncates:
            self._launch(
                measure,
                grid,
                (
                    *(*inputs, *tokens, p.inverse_temperature, p.top_k, p.top_p, p.min_p, p.want_logprob),
                    *(self._first, self._orders, out.rank, out.above, out.total),
                ),
                {**shape, "PARTS": self._padded, **options(self.tile)},
            )

    def apply_masks(
        self,
        logits: torch.Tensor,
        rows: torch.Tensor,
        mask_ids: torch.Tensor,
        pool: DeviceTables,
        end_allowed: torch.Tensor,
        ends: DeviceEnds,
    ) -> None:
        bits, form = bits_of(logits)
        width = logits.shape[1]
        shape = {"ENDS": ends.tokens.shape[1], "GROUPS": self.tile // 8, "MINUS_INFINITY": _MINUS_INFINITY[form]}
        self._launch(
            apply,
            (mask_ids.shape[0], triton.cdiv(width, self.tile)),
            (*self._row_arguments(bits, rows, mask_ids, pool, end_allowed, ends), width),
            {**shape, **options(self.tile)},
        )

    def _row_arguments(
        self,
        bits: torch.Tensor,
        rows: torch.Tensor,
        mask_ids: torch.Tensor,
        pool: DeviceTables,
        end_allowed: torch.Tensor,
        ends: DeviceEnds,
    ) -> tuple[Any, ...]:
        """What the passes over rows begin with."""
        # Tables without any mask have no bytes to view; no row is looked at then.
        dense = pool.dense.view(torch.uint8) if pool.dense.shape[0] else pool.dense
        return (
            *(bits, bits.stride(0), rows, self.vocabulary, mask_ids, dense, dense.stride(0), dense.shape[0]),
            *(pool.list_offset, pool.list_length, pool.list_tokens, pool.list_offset.shape[0]),
            *(ends.tokens, ends.count, end_allowed),
        )
