"""Sequences of many grammars in the slots of one batch: how they come, go, begin anew, fork and go back."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..grammar.automaton import LAZY, RECURSIVE
from . import advance as _advance
from . import step as _step
from .adopt import adopt
from .arguments import whole
from .blocks import batch_block
from .errors import StackLimitError, VocabularyError
from .fuel import NO_FUEL_LIMIT
from .layout import (
    B_ARENAS,
    B_BEHIND,
    B_END_BITS,
    B_END_COUNT,
    B_ENDS,
    B_MIN_TOKENS,
    B_OLDEST,
    B_PLACES,
    B_POSITION,
    B_ROW_FLAGS,
    B_ROW_MASK,
    B_SHARE,
    B_SLOT_GRAMMAR,
    B_TEXT_START,
    B_WORK_LIMIT,
    MAX_ENDS,
)
from .prefetch import Prefetcher
from .resident import Resident
from .trie import tables_of
from .vocabulary import checked_ids

if TYPE_CHECKING:
    from .compiled import CompiledGrammar
    from .context_memory import ContextMemory
    from .memory import Block
    from .vocabulary import Vocabulary

#: Grammars that a batch keeps ready, also after their last sequence has gone, with what is known of their masks; some
#: 80 KB each. Of more, those that have been used least lately are dropped, and are new when they come again.
MAX_IDLE_GRAMMARS = 256
#: So many of those that are kept as position automata, whose state sets may take `resident.LAZY_BYTES` each.
MAX_IDLE_LAZY = 64


class Slots:
    """The sequences of a batch, and the grammars that they use. `Batch` is this, and steps them.

    `history`: configurations kept for each slot; `rows`: dense masks in each half of the pool; `stack_words`: words of
    8 bytes for the stack of one sequence of a recursive grammar. Kernels must be warm.
    """

    def __init__(self, vocabulary: Vocabulary, slots: int, history: int, rows: int, stack_words: int) -> None:
        self.vocabulary = vocabulary
        self.slots = slots
        self._tables = tables_of(vocabulary)
        self._start_tables = tables_of(vocabulary, drop_space=True)
        words = self._tables.words
        self._path = max(self._tables.max_bytes, self._start_tables.max_bytes) + 8
        self._memory, self._lanes = batch_block(
            self._tables, self._start_tables, slots, history, self._path, rows, stack_words
        )
        self._memory_at = self._memory.address
        #: Makes masks ahead; None before the first `Batch.prefetch_start`.
        self.prefetcher: Prefetcher | None = None
        self._lazy_words = 1
        self._residents: dict[int, Resident] = {}
        self._of_slot: list[Resident | None] = [None] * slots
        self._eos: list[tuple[int, ...]] = [()] * slots
        self._free = list(range(slots - 1, -1, -1))
        self._numbers = itertools.count(1)
        self._row = np.zeros(1, np.int32)
        #: Each slot's share of the fuel when masks are wanting, float64[slots], above 0; 1 for a new sequence. Only how
        #: the shares of waiting rows compare matters: with equal ones the row that has waited longest comes first.
        self.shares: npt.NDArray[np.float64] = self._memory.arrays[B_SHARE]
        #: Tokens that any mask of this batch may have: text, and those that its grammars name. uint32, LSB first.
        self.possible = np.zeros(2 * words, np.uint32)
        text = np.packbits(vocabulary.is_text, bitorder="little")
        self.possible.view(np.uint8)[: len(text)] = text

    def add(
        self,
        compiled: CompiledGrammar,
        *,
        eos: Sequence[int] | None = None,
        min_tokens: int = 0,
        text_start: bool = False,
    ) -> int:
        """A new sequence; returns its slot.

        `eos`: its end tokens (default: the vocabulary's; at most 32). `min_tokens`: no end before so many
        tokens, unless nothing but an end is legal. `text_start`: the sequence begins a text rather than going on
        after a prompt, so that a SentencePiece vocabulary drops the first token's leading space. Raises
        `ValueError` where all slots are taken, `VocabularyError` for another vocabulary's grammar or bad ids.
        """
        if not hasattr(compiled, "automaton"):
            raise TypeError(f"a grammar compiled by stepmask.compile is needed, not {type(compiled).__name__}")
        min_tokens = min(whole(min_tokens, "min_tokens"), 2**31 - 1)
        if min_tokens < 0:
            raise ValueError(f"min_tokens must be at least 0, not {min_tokens}")
        if (
            compiled.vocabulary is not self.vocabulary
            and compiled.vocabulary.fingerprint != self.vocabulary.fingerprint
        ):
            raise VocabularyError("the grammar was compiled for another vocabulary")
        if not self._free:
            raise ValueError(f"all {self.slots} slots are taken")
        ends = self.vocabulary.eos if eos is None else eos
        ends = tuple(dict.fromkeys(checked_ids(() if ends is None else ends, None, "end token")))
        if len(ends) > MAX_ENDS or any(not 0 <= i < self.vocabulary.width for i in ends):
            raise VocabularyError(
                f"end tokens must be at most {MAX_ENDS} ids below {self.vocabulary.width}, not {ends}"
            )
        resident = self._resident(compiled)
        slot = self._free.pop()
        arrays = self._block.arrays
        arrays[B_ENDS][slot, : len(ends)] = ends
        arrays[B_END_COUNT][slot] = len(ends)
        arrays[B_END_BITS][slot] = _end_bits(ends)
        arrays[B_MIN_TOKENS][slot] = min_tokens
        arrays[B_TEXT_START][slot] = bool(text_start) and self.vocabulary.text_start
        arrays[B_SLOT_GRAMMAR][slot] = resident.block.address
        self.shares[slot] = 1.0
        resident.users += 1
        self._of_slot[slot] = resident
        self._eos[slot] = ends
        try:
            self.reset(slot)
        except (MemoryError, StackLimitError):
            self.remove(slot)
            raise
        return slot

    def arena(self, slot: int, words: int = 0) -> npt.NDArray[np.int64]:
        """The memory that the slot's stack is in; for so many words, the large one if they need it."""
        large, small = self._lanes.large_arenas[slot], self._lanes.small_arenas[slot]
        addresses = self._block.arrays[B_ARENAS]
        if words > len(small):
            addresses[slot] = large.ctypes.data
        own: npt.NDArray[np.int64] = large if addresses[slot] == large.ctypes.data else small
        return own

    def forget_stack(self, slot: int) -> None:
        """The sequence's stack was written by the caller: nothing is known of it, or of its mask."""
        self._block.arrays[B_PLACES][slot] = -1
        self._forget_row(slot)

    def _forget_row(self, slot: int) -> None:
        """The sequence is about to be in another place: nothing is known of its mask, finished or not."""
        self._block.arrays[B_ROW_MASK][slot] = self._block.arrays[B_ROW_FLAGS][slot] = -1
        _advance.drop_jobs(self._address, 0, slot)

    def _resident(self, compiled: CompiledGrammar) -> Resident:
        key = id(compiled)
        if key not in self._residents:
            contexts = None
            if len(self._residents) >= MAX_IDLE_GRAMMARS:
                contexts = self._drop_idle(self._residents)
            elif compiled.automaton.flags & LAZY:
                lazy = [other for other, old in self._residents.items() if old.lazy_words]
                if len(lazy) >= MAX_IDLE_LAZY:
                    contexts = self._drop_idle(lazy)
            resident = Resident(compiled, next(self._numbers), self._tables.words, contexts)
            if resident.lazy_words > self._lazy_words:
                self._lazy_words = resident.lazy_words
                self.prefetch_stop()
                self._lanes.give_sets(self._path, self._lazy_words)
            self._residents[key] = resident
            for token in compiled.token_ids.tolist():
                self.possible[token >> 5] |= np.uint32(1 << (token & 31))
        found = self._residents[key] = self._residents.pop(key)  # the one used last is the last
        return found

    def _drop_idle(self, keys: Iterable[int]) -> ContextMemory | None:
        """Drop the first grammar of these, by key, that no sequence has; the memory of its contexts."""
        for key in keys:
            old = self._residents[key]
            if old.users == 0:
                # An unfinished mask may still be that grammar's.
                _advance.drop_jobs(self._address, old.block.address, -1)
                del self._residents[key]
                return old.contexts
        return None

    @property
    def _block(self) -> Block:
        """The memory, which is this thread's from here on."""
        self.prefetch_stop()
        return self._memory

    @property
    def _address(self) -> int:
        if self.prefetcher is not None:
            self.prefetcher.stop()
        return self._memory_at

    @property
    def free_slots(self) -> int:
        """How many slots are free."""
        return len(self._free)

    @property
    def address(self) -> int:
        """Address of the batch's block, for kernels."""
        return self._address

    @property
    def memory(self) -> Block:
        """The batch's block."""
        return self._block

    def lanes_ahead(self) -> int:
        """`blocks.Lanes.give_ahead`."""
        self.prefetch_stop()
        return self._lanes.give_ahead()

    @property
    def words(self) -> int:
        """int64 words of a mask."""
        return self._tables.words

    def private_resident(self, compiled: CompiledGrammar) -> Resident:
        """A block of `compiled` that no sequence uses, for computing its masks ahead."""
        return Resident(compiled, next(self._numbers), self._tables.words)

    def drop_unfinished(self) -> None:
        """Forget the masks that are being computed."""
        self.prefetch_stop()
        self._lanes.drop()

    def adopt(self, other: Slots, slot: int) -> int:
        """A new slot with the sequence of `slot` in another batch of equal history."""
        return adopt(self, other, slot)

    def remove(self, slot: int) -> None:
        """Free `slot`."""
        resident = self._in_use(slot)
        self._forget_row(slot)
        _advance.drop_token(self._address, slot)
        resident.users -= 1
        self._of_slot[slot] = None
        self._block.arrays[B_SLOT_GRAMMAR][slot] = 0
        self._free.append(slot)

    def reset(self, slot: int) -> None:
        """Put `slot` before its first token."""
        resident = self._in_use(slot)
        self._forget_row(slot)
        if self.prefetcher is not None:
            self.prefetcher.begin(slot)
        if not _advance.start(self._address, slot):
            if resident.compiled.automaton.flags & RECURSIVE:
                raise StackLimitError("the grammar has too many open ways to begin a text")
            raise MemoryError("no room for the state sets of this grammar: fewer slots or a smaller max_rollback")

    def fork(self, slot: int) -> int:
        """A new slot with the same sequence, history included."""
        resident = self._used(slot)
        if not self._free:
            raise ValueError(f"all {self.slots} slots are taken")
        other = self._free.pop()
        self._of_slot[other] = resident
        if self.prefetcher is not None:
            self.prefetcher.begin(other)
        _advance.fork_slot(self._address, slot, other)
        resident.users += 1
        self._of_slot[other] = resident
        self._eos[other] = self._eos[slot]
        self.shares[other] = self.shares[slot]
        return other

    def rollback(self, slot: int, n: int) -> None:
        """Take back the last `n` accepted tokens. Raises `ValueError` where the history is shorter."""
        self._used(slot)
        n = whole(n, "the number of tokens to take back")
        arrays = self._block.arrays
        position, oldest = int(arrays[B_POSITION][slot]), int(arrays[B_OLDEST][slot])
        if not 0 <= n <= position - oldest:
            raise ValueError(f"cannot take back {n} tokens: {position - oldest} are kept (max_rollback)")
        self._forget_row(slot)
        if self.prefetcher is not None:
            self.prefetcher.forget(slot)
        arrays[B_POSITION][slot] = position - n

    def prefetch_stop(self) -> None:
        """End what `prefetch_start` began; the wait is counted in `prefetcher.counters`."""
        if self.prefetcher is not None:
            self.prefetcher.stop()

    def _used(self, slot: int) -> Resident:
        """The slot's grammar; the slot is not in the middle of a token."""
        resident = self._in_use(slot)
        if self._memory.header[B_BEHIND]:
            self._row[0] = slot
            self._block.header[B_WORK_LIMIT] = NO_FUEL_LIMIT
            _advance.advance_rows(self._address, self._row.ctypes.data, 1, 0, 0, _step.RESUME)
        return resident

    def _in_use(self, slot: int) -> Resident:
        resident = self._of_slot[slot] if 0 <= whole(slot, "a slot") < self.slots else None
        if resident is None:
            raise ValueError(f"slot {slot} is not in use")
        return resident


def _end_bits(ends: Iterable[int]) -> int:
    """What B_END_BITS has for these end tokens, as a signed number."""
    bits = 0
    for end in ends:
        bits |= 1 << (end & 63)
    return bits - (bits >> 63 << 64)
