"""The mask pool's mirror on the device: a step ships mask ids, and only the rows that are new to the device.

The host pool has two halves; a mask id names a place in one of them for as long as the pool's *epoch* or the one before
it lasts (`masks.pool`). The mirror has the same places, and behind them a part of its own for masks that stay on the
device (`masks.device.grammars`). Two rules make every id valid when a kernel reads it:

* New masks are copied on a side stream before the ids that name them, and the compute stream waits for that copy.
* When an epoch begins, its half held masks of the epoch before the last. Its first copy waits for the last step that
  shipped ids of those (`shipped`), so no place is reused while a step may still read it.

An epoch may begin within a plan, which then ships ids of both halves: of the half that it left behind, what these need
is copied too.

On a device without streams the same copies are made at once, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..layout import (
    B_DENSE_USED,
    B_EPOCH,
    B_HALF,
    B_LIST_TOKENS_HALF,
    B_LIST_TOKENS_USED,
    B_LIST_USED,
    B_LISTS,
)
from ..tables import INDEX_BITS, KIND_DENSE, KIND_LIST, KIND_SHIFT
from .regions import Region
from .tables import DeviceTables, device_array

if TYPE_CHECKING:
    from ..batch import Batch
    from ..outcome import Plan

#: Words (int32) of each of the two staging buffers: some 60 masks of a vocabulary of 128k.
STAGING_WORDS = 1 << 18


class _Event:
    """A CUDA event; on other devices, where every call is over when it returns, nothing."""

    def __init__(self, streams: bool) -> None:
        cuda: Any = torch.cuda
        self._event = cuda.Event() if streams else None

    def record(self) -> None:
        """On the current stream."""
        if self._event is not None:
            self._event.record()

    def wait(self) -> None:
        """Let the current stream wait."""
        if self._event is not None:
            self._event.wait()

    def synchronize(self) -> None:
        """Let the host wait."""
        if self._event is not None:
            self._event.synchronize()


@dataclass(frozen=True)
class Shipment:
    """A step's rows on the device, valid until the next but one: `mask_ids` int32, `end_allowed` int32 (the bits of
    `Plan.end_allowed`), `status` uint8.

    `generation`: the pool's epoch that the ids are of; `behind`: some are of the one before. `place`: which of the two
    buffers holds them.
    """

    mask_ids: torch.Tensor
    end_allowed: torch.Tensor
    status: torch.Tensor
    generation: int
    behind: bool
    place: int


class PoolMirror:
    """A copy of one batch's mask pool on a device.

    `resident_masks`, `resident_lists`, `resident_tokens`: places for masks that stay (dense rows of V/8 bytes, lists,
    and tokens of lists). `staging_words`: see `STAGING_WORDS`.

    Each step: ``shipment = mirror.ship(plan)``, launch what reads it, ``mirror.shipped(shipment)``.
    """

    def __init__(
        self,
        batch: Batch,
        device: torch.device | str,
        *,
        resident_masks: int = 256,
        resident_lists: int = 1 << 14,
        resident_tokens: int = 1 << 20,
        staging_words: int = STAGING_WORDS,
    ) -> None:
        self._batch = batch
        self._header = batch._block.header
        self.device = torch.device(device)
        host = batch.tables
        self._words = host.dense.shape[1]
        if staging_words < max(self._words, 1):
            raise ValueError(f"staging_words must be at least the {self._words} words of a mask")

        def zeros(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=self.device)

        masks, lists, tokens = host.dense.shape[0], host.list_offset.size, host.list_tokens.size
        #: What mask ids point into, of the host's plans and of `put`.
        self.tables = DeviceTables(
            zeros(masks + resident_masks, self._words),
            zeros(lists + resident_lists),
            zeros(lists + resident_lists),
            zeros(tokens + resident_tokens),
        )
        self.dense_region = Region(resident_masks, masks)
        self.list_region = Region(resident_lists, lists)
        self.token_region = Region(resident_tokens, tokens)
        self._streams = self.device.type == "cuda"
        pinned: dict[str, Any] = {"dtype": torch.int32, "pin_memory": self._streams}
        self._staging = [torch.zeros(staging_words, **pinned) for _ in range(2)]
        self._staged = [_Event(self._streams) for _ in range(2)]
        self._turn = 0
        slots = batch.slots
        plan_words = 2 * slots + -(-slots // 4)
        self._plan_host = [torch.zeros(plan_words, **pinned) for _ in range(2)]
        self._plan_device = [zeros(plan_words) for _ in range(2)]
        self._plan_copied = [_Event(self._streams) for _ in range(2)]
        self._plan_read = [_Event(self._streams) for _ in range(2)]
        cuda: Any = torch.cuda
        self._side = cuda.Stream(self.device) if self._streams else None
        #: Of each half of the pool: the last step that shipped its ids.
        self._last_use = [_Event(self._streams) for _ in range(2)]
        #: Of each half: its epoch, and how many dense masks, lists and tokens of lists of it have been copied.
        self._epoch_of = [-1, -1]
        self._done = [(0, 0, 0), (0, 0, 0)]
        self._shipped_generation = -1
        #: Copied so far: bytes of masks and lists, and how many steps shipped ids.
        self.uploaded_bytes = 0
        self.steps = 0

    @property
    def generation(self) -> int:
        """The pool's epoch now: ids of it and of the one before are valid."""
        return int(self._header[B_EPOCH])

    def upload(self) -> int:
        """Copy the masks that are new since the last call; returns the generation.

        Waits for a staging buffer that is still being read, and for nothing else on the device.
        """
        header = self._header
        self._bring(
            self.generation, (int(header[B_DENSE_USED]), int(header[B_LIST_USED]), int(header[B_LIST_TOKENS_USED]))
        )
        return self.generation

    def _bring(self, epoch: int, used: tuple[int, int, int]) -> None:
        """Copy what is new among the first `used` dense masks, lists and tokens of lists of an epoch."""
        side = epoch & 1
        if self._epoch_of[side] != epoch:
            # What this half held is forgotten; steps that shipped it must be over before it is written.
            self._on_side(self._last_use[side].wait)
            self._epoch_of[side], self._done[side] = epoch, (0, 0, 0)
        header, done = self._header, self._done[side]
        begin = (side * int(header[B_HALF]), side * int(header[B_LISTS]), side * int(header[B_LIST_TOKENS_HALF]))
        host, own = self._batch.tables, self.tables
        for array, tensor, kind, width in (
            (host.dense, own.dense, 0, self._words),
            (host.list_offset, own.list_offset, 1, 1),
            (host.list_length, own.list_length, 1, 1),
            (host.list_tokens, own.list_tokens, 2, 1),
        ):
            first, last = begin[kind] + done[kind], begin[kind] + used[kind]
            self._copy(array.reshape(-1).view(np.int32), tensor.view(-1), first * width, last * width)
        self._done[side] = (max(done[0], used[0]), max(done[1], used[1]), max(done[2], used[2]))

    def _needed_behind(self, ids: NDArray[np.int32]) -> tuple[int, int, int]:
        """How many dense masks, lists and tokens of lists of the epoch before this one the ids need."""
        header, side = self._header, 1 - (self.generation & 1)
        half, lists, tokens = int(header[B_HALF]), int(header[B_LISTS]), int(header[B_LIST_TOKENS_HALF])
        kinds, index = ids >> KIND_SHIFT, ids & INDEX_BITS
        dense = index[(kinds == KIND_DENSE) & (index // half == side)]
        listed = index[(kinds == KIND_LIST) & (index // lists == side)]
        ends = self._batch.tables.list_offset[listed] + self._batch.tables.list_length[listed]
        return (
            int(dense.max(initial=side * half - 1)) + 1 - side * half,
            int(listed.max(initial=side * lists - 1)) + 1 - side * lists,
            int(ends.max(initial=side * tokens)) - side * tokens,
        )

    def ship(self, plan: Plan) -> Shipment:
        """Copy what is new and the plan's rows; the compute stream (the current one) waits for both."""
        generation = self.upload()
        behind = False
        if generation != self._shipped_generation:
            needed = self._needed_behind(plan.mask_ids)
            behind = any(needed)
            if behind:
                self._bring(generation - 1, needed)
            self._shipped_generation = generation
        rows = len(plan.mask_ids)
        place = self.steps & 1
        self._plan_copied[place].synchronize()
        buffer = self._plan_host[place].numpy()
        slots = self._batch.slots
        buffer[:rows] = plan.mask_ids
        buffer[slots : slots + rows] = plan.end_allowed.view(np.int32)
        buffer[2 * slots :].view(np.uint8)[:rows] = plan.status
        device = self._plan_device[place]
        self._on_side(self._plan_read[place].wait)
        self._on_side(partial(device.copy_, self._plan_host[place], non_blocking=True))
        self._on_side(self._plan_copied[place].record)
        self._plan_copied[place].wait()
        self.steps += 1
        status = device[2 * slots :].view(torch.uint8)[:rows]
        return Shipment(device[:rows], device[slots : slots + rows], status, generation, behind, place)

    def shipped(self, shipment: Shipment) -> None:
        """To be called when all that reads a shipment has been launched on the current stream."""
        self._last_use[shipment.generation & 1].record()
        if shipment.behind:
            self._last_use[1 - (shipment.generation & 1)].record()
        self._plan_read[shipment.place].record()

    def put(
        self,
        dense: int,
        rows: NDArray[np.uint32],
        first_list: int,
        lists: Sequence[NDArray[np.int32]],
        tokens: int,
    ) -> None:
        """Write masks that stay: dense rows from row `dense` on, lists from number `first_list` and place `tokens` on.

        The places are those of `dense_region`, `list_region` and `token_region`. In the current stream's order.
        """
        if len(rows):
            self.tables.dense[dense : dense + len(rows)] = device_array(rows[:, : self._words], self.device)
        if len(lists):
            lengths = np.array([len(listed) for listed in lists], np.int32)
            offsets = (tokens + np.cumsum(lengths) - lengths).astype(np.int32)
            last = first_list + len(lists)
            self.tables.list_offset[first_list:last] = device_array(offsets, self.device)
            self.tables.list_length[first_list:last] = device_array(lengths, self.device)
            flat = device_array(np.concatenate(lists), self.device)
            self.tables.list_tokens[tokens : tokens + flat.shape[0]] = flat

    def _copy(self, array: NDArray[np.int32], tensor: torch.Tensor, first: int, last: int) -> None:
        """Copy places `first` to last - 1 through the staging buffers, one after the other."""
        size = self._staging[0].shape[0]
        for begin in range(first, last, size):
            end = min(begin + size, last)
            place = self._turn
            self._turn ^= 1
            self._staged[place].synchronize()
            staging = self._staging[place]
            staging.numpy()[: end - begin] = array[begin:end]
            self._on_side(partial(tensor[begin:end].copy_, staging[: end - begin], non_blocking=True))
            self._on_side(self._staged[place].record)
            self.uploaded_bytes += 4 * (end - begin)

    def _on_side(self, action: Any) -> None:
        """Run `action` with the side stream as the current one."""
        if self._side is None:
            action()
        else:
            with torch.cuda.stream(self._side):
                action()
