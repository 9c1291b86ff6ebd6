"""Masks made ahead on a thread of their own while the model runs forward: the batch is lent to it, and taken back.

There is one writer at any time. `Prefetcher.start` lends the batch to the thread, which runs one kernel without the
interpreter lock (`prefetch_numba.run_prefetch`); `stop` has it stop after its slice of fuel and waits for that. Every
use of the batch in between stops it first.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import TYPE_CHECKING

import numpy as np

from .._numba import entry_address
from .advance import advance_rows
from .arguments import whole
from .fuel import NO_FUEL_LIMIT
from .layout import B_SLOTS, B_STEP_EPOCH, COUNTERS
from .memory import Block
from .prefetch_numba import (
    P_ADVANCE_ROWS,
    P_BATCH,
    P_COUNTERS,
    P_EPOCH,
    P_EXPECT,
    P_FIELDS,
    P_FUEL,
    P_KEPT,
    P_MADE,
    P_MADE_AT,
    P_MASKS,
    P_OUT_END,
    P_OUT_MASKS,
    P_OUT_STATUS,
    P_PLACES,
    P_PLAN_ROWS,
    P_ROWS,
    P_SLICE,
    P_SLOTS,
    P_STATUS,
    P_STOP,
    P_TOKEN,
    P_WAIT_SLOTS,
    PLACE_WORDS,
    PLACES,
    PREFETCH_AHEAD,
    PREFETCH_COUNTERS,
    PREFETCH_FINISHED,
    PREFETCH_FULL,
    PREFETCH_HITS,
    PREFETCH_MISSES,
    PREFETCH_RUNS,
    PREFETCH_TRIED,
    PREFETCH_WASTED,
    PREFETCH_WORK,
    SUCCESSORS,
    learn_rows,
    run_prefetch,
    score_rows,
)
from .step import plan_rows

if TYPE_CHECKING:
    import numpy.typing as npt

    from .outcome import Plan

#: Fuel between two looks at whether to stop. A slice ends at most the beginning of one walk later.
SLICE_FUEL = 1024

#: Name in `Prefetcher.counters` -> place of the number.
_COUNTER_NAMES = {
    "runs": PREFETCH_RUNS,
    "work": PREFETCH_WORK,
    "finished": PREFETCH_FINISHED,
    "ahead": PREFETCH_AHEAD,
    "tried": PREFETCH_TRIED,
    "hits": PREFETCH_HITS,
    "misses": PREFETCH_MISSES,
    "wasted": PREFETCH_WASTED,
    "full": PREFETCH_FULL,
}


class _Thread:
    """The thread and what it shares with its owner, which it does not keep alive."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._address = block.address  # asked for here, not in Python on the thread each time
        # Both are taken: the thread waits for `_go`, the owner for `_done`.
        self._go, self._done = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._done.acquire()
        self._closing = False
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
            if self._closing:
                return
            try:
                run_prefetch(self._address)
            except BaseException as error:
                self._error = error
            self._done.release()

    def start(self) -> None:
        self._block.header[P_STOP] = 0
        self.running = True
        self._go.release()

    def stop(self) -> None:
        """Have the batch back. Raises what the thread raised."""
        if not self.running:
            return
        self._block.header[P_STOP] = 1
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
        if self._closing:
            return
        if threading.current_thread() is self._thread:
            # The owner was collected on this thread, between two runs: it goes on to its end.
            self._closing = True
            if self._go.locked():
                self._go.release()
            return
        try:
            self.stop()
        finally:
            self._closing = True
            self._go.release()
            self._thread.join()


class Prefetcher:
    """Makes masks ahead for one batch. `Batch.prefetch_start` and `prefetch_stop` use it.

    `memory`: the block of the batch `owner`, whose end ends the thread. `paused`: while True, `start` does nothing.
    """

    def __init__(self, memory: Block, owner: object) -> None:
        slots = int(memory.header[B_SLOTS])
        block = Block(P_FIELDS)
        for field, number in (
            (P_BATCH, memory.address),
            (P_PLAN_ROWS, entry_address(plan_rows)),
            (P_ADVANCE_ROWS, entry_address(advance_rows)),
            (P_SLICE, SLICE_FUEL),
        ):
            block.set_number(field, number)
        for field, array in (
            (P_SLOTS, np.zeros(slots, np.int32)),
            (P_MASKS, np.zeros(slots, np.int32)),
            (P_STATUS, np.zeros(slots, np.uint8)),
            (P_WAIT_SLOTS, np.zeros(slots, np.int32)),
            (P_OUT_MASKS, np.zeros(slots, np.int32)),
            (P_OUT_END, np.zeros(slots, np.uint32)),
            (P_OUT_STATUS, np.zeros(slots, np.uint8)),
            (P_TOKEN, np.zeros(SUCCESSORS, np.int32)),
            (P_KEPT, np.zeros(COUNTERS, np.int64)),
            (P_PLACES, np.zeros((PLACES, PLACE_WORDS), np.int64)),
            (P_MADE, np.full((slots, SUCCESSORS), -1, np.int32)),
            (P_MADE_AT, np.full(slots, -1, np.int64)),
            (P_EXPECT, np.zeros(slots, np.int64)),
            (P_COUNTERS, np.zeros(PREFETCH_COUNTERS, np.int64)),
        ):
            array += 0  # touch every page now rather than in a step
            block.set_array(field, array)
        self._memory = memory
        self._block = block
        self._thread = _Thread(block)
        #: Ends the thread, also when the owner goes away, before its memory does, and when the interpreter ends.
        self.close = weakref.finalize(owner, self._thread.close)
        self.paused = False

    @property
    def running(self) -> bool:
        """Is the batch lent?"""
        return self._thread.running

    def planned(self, plan: Plan) -> None:
        """The batch has made this plan: its masks must keep their places until the next one."""
        self.stop()
        block, rows = self._block, len(plan.slots)
        block.header[P_EPOCH] = self._memory.header[B_STEP_EPOCH]
        block.header[P_ROWS] = rows
        block.arrays[P_SLOTS][:rows] = plan.slots
        block.arrays[P_MASKS][:rows] = plan.mask_ids
        block.arrays[P_STATUS][:rows] = plan.status
        score_rows(block.address, plan.slots.ctypes.data, rows, plan.status.ctypes.data)

    def advancing(self, slots: npt.NDArray[np.int32], tokens: npt.NDArray[np.int32]) -> None:
        """The batch is about to accept these tokens; the plan is done with."""
        self.stop()
        self._block.header[P_ROWS] = 0
        learn_rows(self._block.address, slots.ctypes.data, len(slots), tokens.ctypes.data)

    def forget(self, slot: int) -> None:
        """The sequence of `slot` is another one now."""
        self.stop()
        self._block.arrays[P_EXPECT][slot] = 0
        self._block.arrays[P_MADE_AT][slot] = -1

    def start(self, fuel: int | None = None) -> None:
        """Lend the batch to the thread for `fuel` units of work (None: until it is stopped)."""
        if self.paused or not self.close.alive or self.running:
            return
        self._block.header[P_FUEL] = NO_FUEL_LIMIT if fuel is None else min(whole(fuel, "fuel"), NO_FUEL_LIMIT)
        self._thread.start()

    def stop(self) -> None:
        """Have the batch back; at once where it is not lent. Raises what the thread raised, if anything."""
        self._thread.stop()

    @property
    def counters(self) -> dict[str, int]:
        """Since the beginning: `runs`; `work`, fuel spent; `finished`, masks finished that rows waited for; `ahead`,
        masks made for a token not yet chosen, of `tried` tokens; `hits`, rows that a plan found READY by one of those
        masks; `misses`, rows that a plan left PENDING; `wasted`, masks ahead for a token that was not chosen; `full`,
        runs that ended because the pool had no room; `waits`, stops that had to wait, `wait_ns` and `longest_wait_ns`,
        how long stops took.
        """
        self.stop()
        values = self._block.arrays[P_COUNTERS]
        thread = self._thread
        found = {name: int(values[i]) for name, i in _COUNTER_NAMES.items()}
        found.update(waits=thread.waits, wait_ns=thread.wait_ns, longest_wait_ns=thread.longest_wait_ns)
        return found
