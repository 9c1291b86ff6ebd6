"""The never-blocking form: all sequences of a step in flat arrays, one call for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from . import advance as _advance
from . import step as _step
from .arena import ACCEPTED, REFUSED, TOO_DEEP
from .arguments import token_ids, whole
from .calibration import fuel_of
from .errors import StackLimitError
from .finish import lazy_distances, shortest_completion
from .fuel import NO_FUEL_LIMIT
from .host_rows import copy_rows
from .known_rows import advance_all, plan_all
from .late import finish
from .layout import (
    B_ADVANCE_FUEL,
    B_COUNTERS,
    B_DENSE,
    B_LIST_LENGTH,
    B_LIST_OFFSET,
    B_LIST_TOKENS,
    B_LOOK_EXTRA,
    B_POSITION,
    B_TELLS_ENDS,
    COMPLETE,
    CONFIG_WORDS,
    FINISHED,
    PENDING,
    READY,
    SCRATCH_BLOCK_WORDS,
)
from .leaving import NOTE_COST
from .outcome import ADVANCE_SHARE, COUNTER_NAMES, LOOK_SHARE, PIECE_FUEL, ROWS_SHARE, SETTLE_SHARE, Late, Outcome, Plan
from .pool import WORDS_OF_A_MASK
from .prefetch import PrefetchGroup
from .settle import Settler
from .slots import Slots
from .tables import EndSets, MaskTables, plain
from .warm_up import warm_up

if TYPE_CHECKING:
    from .candidates import Candidates
    from .vocabulary import Vocabulary

#: The least memory for one stack: what one token may need at once.
MIN_STACK_BYTES = 8 * SCRATCH_BLOCK_WORDS


class Batch(Slots):
    """Sequences of many grammars over one vocabulary, stepped together.

    One thread at a time may use a batch. Between two calls nothing runs, but for what `prefetch_start` begins; any use
    of the batch ends that first.

    Parameters: `slots`, sequences at once. `budget_us`, microseconds that `plan`, `settle` and `advance` of one
    step may spend together (counted as fuel, not timed; None: no limit; `outcome.SETTLE_SHARE` has the shares).
    `fuel_per_us`, units of fuel in a microsecond (None: as this machine was measured, `masks.calibration`).
    `max_rollback`, tokens that can be taken back (about 1.7 KB a token and slot).
    `pool_masks`, dense masks in each half of the pool (V/8 bytes each, default 512 or twice the slots, whichever is
    more). `stack_bytes`, memory for the stack of one sequence of a recursive grammar (8 words of 8 bytes a level of
    nesting as a rule, the default is enough for some 18,000; touched only where used, but for 32 KB a slot): a token
    that needs more is not accepted, see `advance`.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        slots: int = 256,
        budget_us: float | None = 200,
        *,
        fuel_per_us: float | None = None,
        max_rollback: int = 32,
        pool_masks: int | None = None,
        stack_bytes: int = 1 << 20,
    ) -> None:
        slots, max_rollback = whole(slots, "slots"), whole(max_rollback, "max_rollback")
        if whole(stack_bytes, "stack_bytes") < MIN_STACK_BYTES:
            raise ValueError(f"stack_bytes must be at least {MIN_STACK_BYTES}")
        if slots < 1 or max_rollback < 0:
            raise ValueError("slots must be at least 1, max_rollback at least 0")
        rows = max(512, 2 * slots) if pool_masks is None else whole(pool_masks, "pool_masks")
        if rows < 2 * slots:
            raise ValueError(f"pool_masks must be at least twice the slots ({2 * slots}): a step may need a mask a row")
        warm_up()
        super().__init__(vocabulary, slots, max_rollback + 2, rows, stack_bytes // 8)
        self.max_rollback = max_rollback
        self.fuel = NO_FUEL_LIMIT if budget_us is None else fuel_of(budget_us, fuel_per_us)
        #: The parts of it that `settle` and `advance` have to themselves, and what look-ups and `plan` have.
        self.settle_fuel, self.advance_fuel = int(self.fuel * SETTLE_SHARE), int(self.fuel * ADVANCE_SHARE)
        self.rows_fuel = min(slots * _step.ROW_COST, int(self.fuel * ROWS_SHARE))
        self.plan_fuel = self.fuel - self.settle_fuel - self.advance_fuel - self.rows_fuel
        #: Units by which a step may exceed `fuel`: what is done at once, and the least that each phase does.
        self.fuel_slack = slots * _step.ROW_COST - self.rows_fuel + 2 * _step.WALK_FUEL + 3 * PIECE_FUEL
        self.fuel_slack += 2 * self._tables.words // WORDS_OF_A_MASK + (NOTE_COST + 2) * self._tables.max_bytes
        self._mask_ids = np.zeros(slots, np.int32)
        self._end_allowed = np.zeros(slots, np.uint32)
        self._status = np.zeros(slots, np.uint8)
        self._accepted = np.zeros(slots, np.uint8)
        self.settler = Settler(slots, self._memory.arrays[B_COUNTERS])
        self._fuel_left = 0
        self._words = np.zeros(self._tables.words, np.int64)
        self._whole_mask: npt.NDArray[np.uint32] = self._words.view(np.uint32)[: vocabulary.words]
        self._token = np.zeros(1, np.int32)
        self._step_slots, self._step_tokens = np.zeros(slots, np.int32), np.zeros(slots, np.int32)
        # Where kernels find these: NumPy takes a microsecond to say it, in every step.
        self._plan_at = tuple(array.ctypes.data for array in (self._mask_ids, self._end_allowed, self._status))
        self._accepted_at, self._words_at, self._row_at, self._slots_at, self._tokens_at = (
            array.ctypes.data for array in (self._accepted, self._words, self._row, self._step_slots, self._step_tokens)
        )
        block = self._memory
        block.set_number(B_LOOK_EXTRA, min(int(self.settle_fuel * LOOK_SHARE), NO_FUEL_LIMIT // 4))
        #: What the mask ids of this batch point into.
        self.tables = MaskTables(
            block.arrays[B_DENSE], block.arrays[B_LIST_OFFSET], block.arrays[B_LIST_LENGTH], block.arrays[B_LIST_TOKENS]
        )

    # ------------------------------------------------------------------ the step

    def plan(self, slots: npt.NDArray[np.int32], late: Late = Late.DEFER) -> Plan:
        """Masks of the rows in `slots` (int32; -1 is an unconstrained row), within the budget.

        `late`: what becomes of rows whose masks are not there by then. Raises `MemoryError` where they are to be
        finished and the pool cannot hold those of one step (`pool_masks`).
        """
        plan = self.plan_within(slots, self.fuel if late is Late.FINISH else self.plan_fuel)
        if late is Late.FINISH and (plan.status == PENDING).any():
            plan = finish(self, plan)
        self.settler.take(plan, max(0, self.settle_fuel + self._fuel_left))
        if self.prefetcher is not None:
            self.prefetcher.planned(plan)
        return plan

    def prefetch_start(self, fuel: int | None = None) -> None:
        """Make masks ahead on another thread, for at most `fuel` units of work, while nothing else needs the batch.

        First those that rows of the last plan wait for, then those after the rows' likely next tokens. What the plan
        shipped stays valid. For the time of the forward pass, between `plan` and `settle`. The first call only makes
        the thread: there is something to do from the next plan on.
        """
        if self.prefetcher is None:
            PrefetchGroup((self,))
        assert self.prefetcher is not None
        self.prefetcher.start(fuel)

    def settle(self, candidates: Candidates) -> Outcome:
        """Tokens of the rows that the last `plan` left PENDING, where their candidates prove which they are.

        `candidates`: what sampling under that plan gave (row i is the plan's), from any back end; the parameters' end
        tokens must be the slots'. Within the budget; see `masks.settle` for what is proved and how. Between `plan` and
        this call no sequence may change. Raises `ValueError` where the rows are not the plan's.
        """
        return self.settler.settle(self._address, candidates)

    def plan_within(self, slots: npt.NDArray[np.int32], fuel: int) -> Plan:
        """`plan` with so much fuel, and nothing around it."""
        slots = self._checked(slots)
        rows = len(slots)
        left = plan_all(self._address, self._slots_at, rows, fuel, *self._plan_at)
        if left == _step.NO_SUCH_SLOT:
            raise ValueError("a row names a slot that is not in use (-1 is an unconstrained row)")
        self._fuel_left = left
        return Plan(slots, self._mask_ids[:rows], self._end_allowed[:rows], self._status[:rows])

    def advance(
        self, slots: npt.NDArray[np.int32], tokens: npt.NDArray[np.int32], *, ends: bool = False
    ) -> npt.NDArray[np.uint8]:
        """Accept one token a row; uint8, valid until the next call. 1 (`arena.ACCEPTED`): accepted.

        0 (REFUSED): not legal, nothing changed. 2 (TOO_DEEP): legal, but the row's stack has no room for it (see
        `stack_bytes`), nothing changed: the sequence should be ended. 3 (UNFINISHED): the budget did not suffice. The
        row is where it was, and the next plans go on: it is PENDING until the token is accepted, and then as if it had
        been at once. If it turns out to be one of the other two, the row's status is LIMIT from then on.
        4 (ENDED), only where `ends` is asked for: accepted, and all that the grammar allows now is an end. Where that
        takes a mask to see, the answer is 1, and the next plan says so.
        """
        slots = self._checked(slots)
        tokens = plain(tokens, np.int32, 1, "tokens")
        rows = len(slots)
        if len(tokens) != rows:
            raise ValueError(f"{rows} slots but {len(tokens)} tokens")
        if self.prefetcher is not None:
            self.prefetcher.advancing(slots, tokens)
        self._memory.header[B_ADVANCE_FUEL] = self.advance_fuel + self.settler.left
        self.settler.left = 0
        self._memory.header[B_TELLS_ENDS] = ends
        copy_rows(tokens, self._tokens_at)
        advance_all(self._address, self._slots_at, rows, self._tokens_at, self._accepted_at)
        return self._accepted[:rows]

    def _advance(self, slots: npt.NDArray[np.int32], tokens: npt.NDArray[np.int32], mode: int) -> int:
        at = slots.ctypes.data, len(tokens), tokens.ctypes.data, self._accepted_at
        return int(_advance.advance_rows(self._address, *at, mode))

    def _checked(self, slots: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """A step's slots in the form that kernels take, copied to `_slots_at` too: NumPy takes a microsecond to say
        where an array is."""
        slots = plain(slots, np.int32, 1, "slots")
        if len(slots) > self.slots or copy_rows(slots, self._slots_at) >= self.slots:
            raise ValueError(f"at most {self.slots} rows, each a slot below {self.slots} or -1")
        return slots

    # ------------------------------------------------------------------ one sequence

    def mask(self, slot: int) -> npt.NDArray[np.uint32]:
        """The slot's whole mask, end tokens included: uint32[ceil(width / 32)], LSB first, 1 = allowed. Not bounded."""
        self._used(slot)
        self._row[0] = slot
        address, status = self._address, PENDING
        while status == PENDING:  # `plan_within`, without what a single row has no use for
            self._fuel_left = _step.plan_rows(address, self._row_at, 1, NO_FUEL_LIMIT, *self._plan_at)
            status = int(self._status[0])
        if status != READY:
            raise StackLimitError("the grammar has too many open ways to read this text")
        _step.write_mask(address, slot, int(self._mask_ids[0]), int(self._end_allowed[0]), self._words_at)
        words: npt.NDArray[np.uint32] = self._whole_mask.copy()
        return words

    def allows(self, slot: int, token: int) -> bool:
        """Would `token` be accepted? Changes nothing."""
        self._used(slot)
        token = whole(token, "a token id")
        if abs(token) >= 2**31:
            return False
        self._row[0], self._token[0] = slot, token
        self._advance(self._row, self._token, _step.ASK)
        return bool(self._accepted[0] != REFUSED)

    def accept_bytes(self, slot: int, data: bytes) -> bool:
        """Accept text that is no token; counts as one step of the history."""
        self._used(slot)
        if not isinstance(data, bytes):
            if not isinstance(data, (bytearray, memoryview)):
                raise TypeError(f"text must be bytes, not {type(data).__name__}: {data!r:.60}")
            data = bytes(data)
        if not data:
            return True
        array = np.frombuffer(data, np.uint8)
        answer = _advance.accept_bytes(self._address, slot, array.ctypes.data, len(array))
        if answer == TOO_DEEP:
            raise StackLimitError("the text is nested deeper than there is room for (stack_bytes)")
        return bool(answer == ACCEPTED)

    def accept_draft(self, slot: int, tokens: Sequence[int]) -> int:
        """Accept a draft of tokens up to the first refused one; returns how many."""
        self._used(slot)
        array = np.array(token_ids(tokens, "a token id"), np.int32)
        self._row[0] = slot
        return self._advance(self._row, array, _step.DRAFT)

    def forced_bytes(self, slot: int, most: int = 1024) -> bytes:
        """The bytes with which every continuation begins (none where the text may end)."""
        if self._used(slot).compiled.boundary is not None:
            return b""  # bytes that no token can spell are no real alternatives, which this does not see
        out = np.zeros(most, np.uint8)
        return out[: _advance.forced(self._address, slot, out.ctypes.data, most)].tobytes()

    def shortest_completion(self, slot: int, most: int = 1 << 20) -> bytes | None:
        """A shortest text after which the slot's text may end; None where it has more than `most` bytes."""
        compiled = self._used(slot).compiled
        spare = np.zeros((2, CONFIG_WORDS), np.int64)
        out = np.zeros(most, np.uint8)
        distances = lazy_distances(compiled.automaton)
        n = shortest_completion(self._address, slot, distances, spare.ctypes.data, out.ctypes.data, most)
        return None if n < 0 else out[:n].tobytes()

    def is_complete(self, slot: int) -> bool:
        """May the text end here?"""
        return bool(self._flags(slot) & COMPLETE)

    def is_finished(self, slot: int) -> bool:
        """Was an end token accepted?"""
        return bool(self._flags(slot) & FINISHED)

    def position(self, slot: int) -> int:
        """Tokens accepted so far."""
        self._used(slot)
        return int(self._block.arrays[B_POSITION][slot])

    def _flags(self, slot: int) -> int:
        self._used(slot)
        return int(_advance.flags_after(self._address, slot, int(self._block.arrays[B_POSITION][slot])))

    def end_sets(self, slots: npt.NDArray[np.int32]) -> EndSets:
        """The end tokens of each row, for the sampler, in the order of `Plan.end_allowed`'s bits.

        Unconstrained rows get the vocabulary's.
        """
        default = self.vocabulary.eos or ()
        ends = [self._eos[s] if s >= 0 and self._of_slot[s] is not None else default for s in slots.tolist()]
        start = np.zeros(len(ends) + 1, np.int32)
        np.cumsum([len(e) for e in ends], out=start[1:])
        return EndSets(start, np.array([i for e in ends for i in e], np.int32))

    @property
    def counter_values(self) -> npt.NDArray[np.int64]:
        """The counters themselves, by `layout`'s numbers."""
        return self._block.arrays[B_COUNTERS]

    @property
    def counters(self) -> dict[str, int]:
        """Work and outcomes since the batch was made."""
        return {name: int(self.counter_values[i]) for name, i in COUNTER_NAMES.items()}
