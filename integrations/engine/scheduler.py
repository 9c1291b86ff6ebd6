"""Which request sits in which slot: a queue, and slots that are filled again the moment they empty."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Slots(Generic[T]):
    """A fixed number of slots and the queue of those who wait for one, first come, first served.

    With `refill` (continuous batching) an empty slot takes the next waiting one at once. Without it
    (static batching, for comparison) the slots are filled together, when all of them are empty.
    """

    def __init__(self, count: int, *, refill: bool = True) -> None:
        if count < 1:
            raise ValueError(f"there must be at least one slot, not {count}")
        self._occupants: list[T | None] = [None] * count
        self._refill = refill
        self._waiting: deque[T] = deque()
        self._occupied = 0

    def __len__(self) -> int:
        return len(self._occupants)

    def __getitem__(self, slot: int) -> T | None:
        """Who sits in `slot`, or None."""
        return self._occupants[slot]

    @property
    def occupied(self) -> int:
        """The number of slots in use."""
        return self._occupied

    @property
    def waiting(self) -> int:
        """The number of those who wait for a slot."""
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Nobody sits in a slot and nobody waits for one."""
        return self._occupied == 0 and not self._waiting

    def enqueue(self, occupant: T) -> None:
        """Wait for a slot. May be called from any thread."""
        self._waiting.append(occupant)

    def assign(self) -> list[tuple[int, T]]:
        """Seat as many of the waiting as may sit now; the new (slot, occupant) pairs, by slot."""
        if not self._waiting or (self._occupied and not self._refill):
            return []
        seated: list[tuple[int, T]] = []
        for slot, present in enumerate(self._occupants):
            if not self._waiting:
                break
            if present is None:
                occupant = self._waiting.popleft()
                self._occupants[slot] = occupant
                self._occupied += 1
                seated.append((slot, occupant))
        return seated

    def free(self, slot: int) -> None:
        """Empty `slot`, which must be in use."""
        if self._occupants[slot] is None:
            raise ValueError(f"slot {slot} is empty already")
        self._occupants[slot] = None
        self._occupied -= 1
