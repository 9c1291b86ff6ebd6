"""Taking a sequence over from another batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..grammar.automaton import RECURSIVE
from . import advance as _advance
from .errors import StackLimitError
from .layout import (
    B_ARENA_USED,
    B_ARENA_WORDS,
    B_CONFIGS,
    B_MIN_TOKENS,
    B_OLDEST,
    B_POSITION,
    B_TEXT_START,
    CONFIG_FIRST_HEAD,
    CONFIG_HEADS,
    G_LAZY_SETS,
    HEAD_STATES,
)

if TYPE_CHECKING:
    from .slots import Slots


def adopt(batch: Slots, other: Slots, slot: int) -> int:
    """A new slot of `batch` with the sequence of `slot` in `other`, which has an equal history."""
    resident = other._used(slot)
    new = batch.add(resident.compiled, eos=other._eos[slot])
    mine, theirs = batch._block.arrays, other._block.arrays
    for field in (B_CONFIGS, B_POSITION, B_OLDEST, B_MIN_TOKENS, B_TEXT_START):
        mine[field][new] = theirs[field][slot]
    if resident.compiled.automaton.flags & RECURSIVE:
        used = int(theirs[B_ARENA_USED][slot])
        if used > int(batch._block.header[B_ARENA_WORDS]):
            batch.remove(new)
            raise StackLimitError("the stack is larger than this batch has room for (stack_bytes)")
        batch.arena(new, used)[:used] = other.arena(slot)[:used]
        mine[B_ARENA_USED][new] = used
    if resident.lazy_words:
        # State sets have other numbers here.
        sets = resident.block.arrays[G_LAZY_SETS]
        own = batch._of_slot[new]
        assert own is not None
        history = mine[B_CONFIGS].shape[1]
        for position in range(int(mine[B_OLDEST][new]), int(mine[B_POSITION][new]) + 1):
            config = mine[B_CONFIGS][new, position % history]
            if config[CONFIG_HEADS]:
                at = CONFIG_FIRST_HEAD + HEAD_STATES
                number = _advance.import_set(own.block.address, sets[config[at]].ctypes.data)
                if number < 0:
                    batch.remove(new)
                    raise MemoryError("no room for the state sets of this grammar")
                config[at] = number
    return new
