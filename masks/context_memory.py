"""The memory in which the contexts of one grammar are kept, handed on from a grammar that is gone to the next."""

from __future__ import annotations

import math
import mmap

import numpy as np

from .layout import (
    CONTEXT_BUCKETS,
    CONTEXT_WORDS,
    G_CONTEXT_TABLE,
    G_CONTEXTS,
    G_FIELDS,
    G_ITEMS,
    G_LIST_NODES,
    G_LIST_TABLE,
    G_LISTS,
    ITEM_WORDS,
    LIST_BUCKETS,
    LIST_WORDS,
    MAX_CONTEXTS,
    MAX_ITEMS,
    MAX_LIST_NODES,
    MAX_LISTS,
)
from .memory import Block

#: Its arrays, and how many pages of each are touched at once: room for some 150 contexts. A page that a step touches
#: first costs it 2-3 us.
_ARRAYS: tuple[tuple[int, tuple[int, ...], type[np.generic], int], ...] = (
    (G_CONTEXTS, (MAX_CONTEXTS, CONTEXT_WORDS), np.int64, 3),
    (G_CONTEXT_TABLE, (CONTEXT_BUCKETS,), np.int32, 2),
    (G_LISTS, (MAX_LISTS, LIST_WORDS), np.int64, 2),
    (G_LIST_TABLE, (LIST_BUCKETS,), np.int32, 4),
    (G_ITEMS, (MAX_ITEMS, ITEM_WORDS), np.int64, 1),
    (G_LIST_NODES, (MAX_LIST_NODES,), np.int32, 1),
)


class ContextMemory:
    """Arrays of which most pages are never touched, so that they exist only in part."""

    def __init__(self) -> None:
        sizes = [-(-math.prod(shape) * np.dtype(dtype).itemsize // mmap.PAGESIZE) for _, shape, dtype, _ in _ARRAYS]
        # Pages of this process alone, where the system can tell: shared ones take longer to make.
        private = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
        options = {"flags": private} if private else {}
        memory = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE * sum(sizes), **options), np.uint8)
        self._block = Block(G_FIELDS)
        begin = 0
        for pages, (field, shape, dtype, touched) in zip(sizes, _ARRAYS, strict=True):
            part = memory[mmap.PAGESIZE * begin : mmap.PAGESIZE * (begin + pages)]
            part[: mmap.PAGESIZE * touched : mmap.PAGESIZE] = 0
            array = part[: math.prod(shape) * np.dtype(dtype).itemsize].view(dtype).reshape(shape)
            self._block.set_array(field, array)
            begin += pages

    def give(self, block: Block) -> None:
        """Let a grammar's block have the arrays, no context in them."""
        self._block.arrays[G_CONTEXT_TABLE][:] = 0
        self._block.arrays[G_LIST_TABLE][:] = 0
        block.share(self._block)
