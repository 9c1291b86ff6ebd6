"""Masks made ahead on a thread of their own while the model runs forward: batches are lent to it, and taken back.

There is one writer at any time. `PrefetchGroup.start` lends its batches to the thread, which runs one kernel without
the interpreter lock (`prefetch_numba.run_prefetch`); `stop` has it stop after its slice of fuel and waits for that.
Every use of one of the batches in between stops it first.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._numba import entry_address
from .advance import advance_rows
from .arguments import whole
from .foresight import learn_rows, note_plan
from .fuel import NO_FUEL_LIMIT
from .layout import B_SLOTS, COUNTERS
from .memory import Block
from .prefetch_fields import (
    P_ADVANCE_ROWS,
    P_BATCH,
    P_COUNTERS,
    P_DONE,
    P_EFFORT,
    P_EXPECT,
    P_FIELDS,
    P_KEPT,
    P_LANES,
    P_MADE,
    P_MADE_AT,
    P_MASKS,
    P_NEXT,
    P_NOW,
    P_ONE,
    P_OPEN,
    P_OUT_END,
    P_OUT_MASKS,
    P_OUT_STATUS,
    P_PLACES,
    P_PLAN_ROWS,
    P_SERVED,
    P_SLICE,
    P_SLOTS,
    P_SPENT,
    P_STATUS,
    P_TOKEN,
    P_WAIT_SLOTS,
    PLACE_WORDS,
    PLACES,
    PREFETCH_AHEAD,
    PREFETCH_ASIDE,
    PREFETCH_COUNTERS,
    PREFETCH_FINISHED,
    PREFETCH_FULL,
    PREFETCH_HITS,
    PREFETCH_MISSES,
    PREFETCH_RUNS,
    PREFETCH_TRIED,
    PREFETCH_WAITED,
    PREFETCH_WASTED,
    PREFETCH_WORK,
    Q_ACTIVE,
    Q_COUNT,
    Q_FIELDS,
    Q_FUEL,
    Q_MEMBERS,
    Q_NOW,
    Q_SERVED,
    Q_STOP,
    Q_WEIGHTS,
    SUCCESSORS,
)
from .prefetch_numba import run_prefetch
from .step import plan_rows

if TYPE_CHECKING:
    import numpy.typing as npt

    from .outcome import Plan
    from .slots import Slots

#: Fuel between two looks at whether to stop. A slice ends at most the beginning of one walk later.
SLICE_FUEL = 1024

#: Name in `Prefetcher.counters` -> place of the number.
_COUNTER_NAMES = {
    "runs": PREFETCH_RUNS,
    "work": PREFETCH_WORK,
    "waited": PREFETCH_WAITED,
    "finished": PREFETCH_FINISHED,
    "ahead": PREFETCH_AHEAD,
    "tried": PREFETCH_TRIED,
    "aside": PREFETCH_ASIDE,
    "hits": PREFETCH_HITS,
    "misses": PREFETCH_MISSES,
    "wasted": PREFETCH_WASTED,
    "full": PREFETCH_FULL,
}


class _Thread:
    """The thread and what it shares with its owners, which it does not keep alive."""

    def __init__(self, block: Block, members: list[Block]) -> None:
        self._block = block
        self._members = members  # they and their batches' memory stay as long as the thread
        self._address = block.address  # asked for here, not in Python on the thread each time
        # Both are taken: the thread waits for `_go`, the owner for `_done`.
        self._go, self._done = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._done.acquire()
        self.is_closed = False
        self._error: BaseException | None = None
        self.running = False
        self.waits = 0
        self.wait_ns = 0
        self.longest_wait_ns = 0
        # A daemon, so that it never keeps the interpreter from ending; `close` is called before that.
        self._thread = threading.Thread(target=self._serve, name="stepmask prefetch", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            self._go.acquire()
            if self.is_closed:
                return
            try:
                run_prefetch(self._address)
            except BaseException as error:
                self._error = error
            self._done.release()

    def start(self) -> None:
        self._block.header[Q_STOP] = 0
        self.running = True
        self._go.release()

    def stop(self) -> None:
        """Have the batch back. Raises what the thread raised."""
        if not self.running:
            return
        self._block.header[Q_STOP] = 1
        begin = time.perf_counter_ns()
        # A thread that has not begun does not begin.
        if not self._go.acquire(blocking=False) and not self._done.acquire(blocking=False):
            self._done.acquire()
            self.waits += 1
        self.running = False
        waited = time.perf_counter_ns() - begin
        self.wait_ns += waited
        self.longest_wait_ns = max(self.longest_wait_ns, waited)
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def close(self) -> None:
        """Stop, and end the thread."""
        if self.is_closed:
            return
        if threading.current_thread() is self._thread:
            # The owner was collected on this thread, between two runs: it goes on to its end.
            self.is_closed = True
            if self._go.locked():
                self._go.release()
            return
        try:
            self.stop()
        finally:
            self.is_closed = True
            self._go.release()
            self._thread.join()


class PrefetchGroup:
    """One thread that makes masks ahead for several batches in turn.

    Each batch gets a `Prefetcher`. The end of any of them ends the thread. Raises `ValueError` where one has a thread
    already.
    """

    def __init__(self, batches: Sequence[Slots]) -> None:
        if any(batch.prefetcher is not None for batch in batches):
            raise ValueError("a batch has one thread that makes masks ahead for it")
        n = len(batches)
        #: Batches for which `start` does nothing.
        self.paused = [False] * n
        own = [Prefetcher(batch, self, number) for number, batch in enumerate(batches)]
        block = Block(Q_FIELDS)
        block.set_number(Q_COUNT, n)
        block.set_array(Q_MEMBERS, np.array([one.block.address for one in own], np.int64))
        block.set_array(Q_WEIGHTS, np.zeros(n, np.float64))
        block.set_array(Q_SERVED, np.zeros(n, np.float64))
        block.set_array(Q_NOW, np.zeros(1, np.float64))
        block.set_array(Q_ACTIVE, np.zeros(n, np.int64))
        self._block = block
        self.thread = _Thread(block, [one.block for one in own])
        for batch, one in zip(batches, own, strict=True):
            one.close = weakref.finalize(batch, self.thread.close)
            batch.prefetcher = one

    @property
    def running(self) -> bool:
        """Are the batches lent?"""
        return self.thread.running

    def start(self, weights: Sequence[float], fuel: int | None = None) -> None:
        """Lend the batches to the thread for `fuel` units of work in all (None: until it is stopped).

        `weights`, one a batch: its part of that fuel, relative to the others that have something to do; 0: none.
        """
        if self.thread.is_closed or self.running:
            return
        given = [0.0 if paused else weight for paused, weight in zip(self.paused, weights, strict=True)]
        if any(given):
            self._block.arrays[Q_WEIGHTS][:] = given
            self._block.header[Q_FUEL] = NO_FUEL_LIMIT if fuel is None else min(whole(fuel, "fuel"), NO_FUEL_LIMIT)
            self.thread.start()

    def stop(self) -> None:
        """Have the batches back; at once where they are not lent. Raises what the thread raised, if anything."""
        self.thread.stop()

    @property
    def waits(self) -> dict[str, int]:
        """Since the beginning: `waits`, stops that had to wait; `wait_ns` and `longest_wait_ns`, how long they took."""
        thread = self.thread
        return {"waits": thread.waits, "wait_ns": thread.wait_ns, "longest_wait_ns": thread.longest_wait_ns}


class Prefetcher:
    """Makes masks ahead for one batch. `Batch.prefetch_start` and `prefetch_stop` use it.

    `batch` is number `number` of those that the thread of `group` serves; its end ends the thread.
    """

    #: Ends the thread, also when a batch goes away, before its memory does, and when the interpreter ends.
    close: weakref.finalize[[], Slots]

    def __init__(self, batch: Slots, group: PrefetchGroup, number: int) -> None:
        memory = batch.memory
        slots = int(memory.header[B_SLOTS])
        block = Block(P_FIELDS)
        for field, value in (
            (P_BATCH, memory.address),
            (P_LANES, batch.lanes_ahead()),
            (P_PLAN_ROWS, entry_address(plan_rows)),
            (P_ADVANCE_ROWS, entry_address(advance_rows)),
            (P_SLICE, SLICE_FUEL),
        ):
            block.set_number(field, value)
        for field, array in (
            (P_SLOTS, np.zeros(slots, np.int32)),
            (P_MASKS, np.zeros(slots, np.int32)),
            (P_STATUS, np.zeros(slots, np.uint8)),
            (P_OPEN, np.zeros(slots, np.uint8)),
            (P_WAIT_SLOTS, np.zeros(slots, np.int32)),
            (P_ONE, np.zeros(1, np.int32)),
            (P_OUT_MASKS, np.zeros(slots, np.int32)),
            (P_OUT_END, np.zeros(slots, np.uint32)),
            (P_OUT_STATUS, np.zeros(slots, np.uint8)),
            (P_TOKEN, np.zeros(SUCCESSORS, np.int32)),
            (P_KEPT, np.zeros(COUNTERS, np.int64)),
            (P_PLACES, np.zeros((PLACES, PLACE_WORDS), np.int64)),
            (P_MADE, np.full((slots, SUCCESSORS), -1, np.int32)),
            (P_MADE_AT, np.full(slots, -1, np.int64)),
            (P_DONE, np.zeros(slots, np.int64)),
            (P_NEXT, np.zeros(slots, np.int64)),
            (P_EFFORT, np.zeros(slots, np.int64)),
            (P_SERVED, np.zeros(slots + 1, np.float64)),
            (P_NOW, np.zeros(1, np.float64)),
            (P_SPENT, np.zeros(slots, np.int64)),
            (P_EXPECT, np.zeros(slots, np.int64)),
            (P_COUNTERS, np.zeros(PREFETCH_COUNTERS, np.int64)),
        ):
            array += 0  # touch every page now rather than in a step
            block.set_array(field, array)
        self._memory = memory
        self.block = block
        self._group, self._number = group, number

    @property
    def running(self) -> bool:
        """Is the batch lent?"""
        return self._group.running

    @property
    def paused(self) -> bool:
        """While True, `start` does nothing for this batch."""
        return self._group.paused[self._number]

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._group.paused[self._number] = paused

    def planned(self, plan: Plan) -> None:
        """The batch has made this plan: its masks must keep their places until the next one."""
        self.stop()
        at = (array.ctypes.data for array in (plan.mask_ids, plan.status))
        note_plan(self.block.address, plan.slots.ctypes.data, len(plan.slots), *at)

    def advancing(self, slots: npt.NDArray[np.int32], tokens: npt.NDArray[np.int32]) -> None:
        """The batch is about to accept these tokens; the plan is done with."""
        self.stop()
        learn_rows(self.block.address, slots.ctypes.data, len(slots), tokens.ctypes.data)

    def begin(self, slot: int) -> None:
        """The sequence of `slot` is another one now, which has been served like others so far."""
        self.forget(slot)
        self.block.arrays[P_SPENT][slot] = 0
        self.block.arrays[P_SERVED][slot] = 0

    def forget(self, slot: int) -> None:
        """The sequence of `slot` is in another place now."""
        self.stop()
        arrays = self.block.arrays
        arrays[P_EXPECT][slot] = 0
        arrays[P_MADE_AT][slot] = -1

    def start(self, fuel: int | None = None) -> None:
        """Lend the batch to the thread for `fuel` units of work (None: until it is stopped)."""
        weights = [0.0] * len(self._group.paused)
        weights[self._number] = 1.0
        self._group.start(weights, fuel)

    def stop(self) -> None:
        """Have the batch back; at once where it is not lent. Raises what the thread raised, if anything."""
        self._group.stop()

    @property
    def spent(self) -> npt.NDArray[np.int64]:
        """Units of work for tokens that had not been chosen, by slot, of its present sequence: int64[slots]."""
        self.stop()
        spent: npt.NDArray[np.int64] = self.block.arrays[P_SPENT].copy()
        return spent

    @property
    def counters(self) -> dict[str, int]:
        """Since the beginning: `runs`; `work`, fuel spent, `waited` of it for rows that waited; `finished`, masks
        finished that rows waited for; `ahead`, masks made for a token not yet chosen, of `tried` tokens; `aside`, times
        that such a mask was left unfinished; `hits`, rows that a plan found READY by one of those masks; `misses`, rows
        that a plan left PENDING; `wasted`, masks ahead for a token that was not chosen; `full`, runs that ended because
        the pool had no room; and `PrefetchGroup.waits`.
        """
        self.stop()
        values = self.block.arrays[P_COUNTERS]
        return {name: int(values[i]) for name, i in _COUNTER_NAMES.items()} | self._group.waits
