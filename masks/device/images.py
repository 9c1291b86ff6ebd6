"""Grammars as arrays in device memory of fixed size: one image for all of them, and a directory of where each lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..tables import KIND_DENSE, KIND_LIST, KIND_SHIFT
from .regions import Region
from .tables import device_array

if TYPE_CHECKING:
    from .mirror import PoolMirror


@dataclass(frozen=True)
class MaskSet:
    """Masks of one grammar: `rows` uint32[n, words], `lists` of int32 tokens, `ids` int32 that count from its own first
    row and list. Negative ids are no masks.
    """

    rows: NDArray[np.uint32]
    lists: list[NDArray[np.int32]]
    ids: NDArray[np.int32]


@dataclass(frozen=True)
class _Held:
    """Where a grammar begins in the image, and its masks in the mirror's tables; how many places it has of each."""

    image: int
    dense: int
    lists: int
    tokens: int
    counts: tuple[int, ...]


class Images:
    """Up to `grammars` grammars in `image_bytes` of memory. Their masks lie in `mirror.tables`.

    `image` int32 words; `directory` int64[grammars, fields]: for each field where a section begins, in words or, for
    those of `byte_fields`, in bytes; or a number. `mask_field`: the section of mask ids.
    """

    def __init__(
        self,
        mirror: PoolMirror,
        *,
        grammars: int,
        image_bytes: int,
        fields: int,
        mask_field: int,
        byte_fields: Sequence[int] = (),
    ) -> None:
        device = mirror.device
        self._mirror = mirror
        self._fields, self._mask_field, self._byte_fields = fields, mask_field, frozenset(byte_fields)
        self.image = torch.zeros(image_bytes // 4, dtype=torch.int32, device=device)
        self.directory = torch.zeros(grammars, fields, dtype=torch.int64, device=device)
        self._regions = (
            Region(image_bytes // 4), mirror.dense_region, mirror.list_region, mirror.token_region
        )  # fmt: skip
        self._numbers = Region(grammars)
        self._held: dict[int, _Held] = {}

    def add(self, sections: dict[int, NDArray[Any]], numbers: dict[int, int], masks: MaskSet) -> int | None:
        """Put a grammar on the device; returns its number, or None where there is no room."""
        number = self._numbers.take(1)
        if number is None:
            return None
        image, places = self._pack({**sections, self._mask_field: masks.ids})
        held = self._take(len(image), len(masks.rows), len(masks.lists), sum(map(len, masks.lists)))
        if held is None:
            self._numbers.give(number, 1)
            return None
        self._mirror.put(held.dense, masks.rows, held.lists, masks.lists, held.tokens)
        # Mask ids so far count from the grammar's own first row and list.
        own = image[places[self._mask_field] :][: len(masks.ids)]
        kinds = own >> KIND_SHIFT
        first = np.where(kinds == KIND_DENSE, held.dense, np.where(kinds == KIND_LIST, held.lists, 0))
        own += np.where(own >= 0, first, 0).astype(np.int32)
        self.image[held.image : held.image + len(image)] = device_array(image, self.image.device)
        entry = np.zeros(self._fields, np.int64)
        for field, place in places.items():
            entry[field] = place + held.image * (4 if field in self._byte_fields else 1)
        for field, value in numbers.items():
            entry[field] = value
        self.directory[number] = device_array(entry, self.image.device)
        self._held[number] = held
        return number

    def remove(self, number: int) -> None:
        """Free a grammar that no row uses any more, once the steps that did have been launched."""
        held = self._held.pop(number)
        places = (held.image, held.dense, held.lists, held.tokens)
        for region, begin, count in zip(self._regions, places, held.counts, strict=True):
            region.give(begin, count)
        self._numbers.give(number, 1)

    def _take(self, *counts: int) -> _Held | None:
        """Room for so many words of the image, dense rows, lists and tokens of lists, or none of it."""
        taken: list[int] = []
        for region, count in zip(self._regions, counts, strict=True):
            place = region.take(count)
            if place is None:
                for other, begin, length in zip(self._regions, taken, counts, strict=False):
                    other.give(begin, length)
                return None
            taken.append(place)
        return _Held(taken[0], taken[1], taken[2], taken[3], counts)

    def _pack(self, sections: dict[int, NDArray[Any]]) -> tuple[NDArray[np.int32], dict[int, int]]:
        """One int32 image of all sections, and where each begins in it: in bytes or in words, as its field has it."""
        places: dict[int, int] = {}
        parts: list[NDArray[np.int32]] = []
        words = 0
        for field, array in sections.items():
            data = np.ascontiguousarray(array).reshape(-1)
            if field in self._byte_fields:
                padded = np.zeros(-(-data.size // 4) * 4, np.uint8)
                padded[: data.size] = data
                part, places[field] = padded.view(np.int32), 4 * words
            else:
                part, places[field] = data.astype(np.int32), words
            parts.append(part)
            words += part.size
        return np.concatenate(parts), places
