"""Which request sits in which slot: a queue, and slots that are filled again the moment they empty."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from .admission import AdmissionClass

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
        return self._occupied == 0 and not self.waiting

    def enqueue(self, occupant: T) -> None:
        """Wait for a slot. May be called from any thread."""
        self._waiting.append(occupant)

    def assign(self) -> list[tuple[int, T]]:
        """Seat as many of the waiting as may sit now; the new (slot, occupant) pairs, by slot."""
        if not self.waiting or (self._occupied and not self._refill):
            return []
        seated: list[tuple[int, T]] = []
        for slot, present in enumerate(self._occupants):
            if present is None:
                occupant = self._next()
                if occupant is None:
                    break
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

    def _next(self) -> T | None:
        """Take who is to sit next out of the queue."""
        return self._waiting.popleft() if self._waiting else None


class FairSlots(Slots[T]):
    """Slots by class and tenant: next is the class with the fewest slots for its weight, of that the tenant with the
    fewest, of that the oldest; none beyond the class's limits.
    """

    def __init__(self, count: int, group_of: Callable[[T], tuple[AdmissionClass, str]], *, refill: bool = True) -> None:
        super().__init__(count, refill=refill)
        self._group_of = group_of
        # By class and tenant: those who wait, and how many sit. Taken over from `_waiting` by the step's thread.
        self._queues: dict[tuple[AdmissionClass, str], deque[T]] = {}
        self._of_tenant: dict[tuple[AdmissionClass, str], int] = {}
        self._of_class: dict[AdmissionClass, int] = {}

    @property
    def waiting(self) -> int:
        """The number of those who wait for a slot."""
        return len(self._waiting) + sum(map(len, self._queues.values()))

    def free(self, slot: int) -> None:
        """Empty `slot`, which must be in use."""
        occupant = self._occupants[slot]
        super().free(slot)
        assert occupant is not None
        group = self._group_of(occupant)
        self._of_class[group[0]] -= 1
        self._of_tenant[group] -= 1
        if not self._of_tenant[group]:
            del self._of_tenant[group]

    def _next(self) -> T | None:
        while self._waiting:
            occupant = self._waiting.popleft()
            self._queues.setdefault(self._group_of(occupant), deque()).append(occupant)
        open_groups = [group for group in self._queues if self._has_room(*group)]
        if not open_groups:
            return None
        group = min(open_groups, key=self._rank)
        occupant = self._queues[group].popleft()
        if not self._queues[group]:
            del self._queues[group]
        self._of_class[group[0]] = self._of_class.get(group[0], 0) + 1
        self._of_tenant[group] = self._of_tenant.get(group, 0) + 1
        return occupant

    def _has_room(self, one: AdmissionClass, tenant: str) -> bool:
        limits = (
            (one.max_slots, self._of_class.get(one, 0)),
            (one.max_slots_per_tenant, self._of_tenant.get((one, tenant), 0)),
        )
        return all(limit is None or used < limit for limit, used in limits)

    def _rank(self, group: tuple[AdmissionClass, str]) -> tuple[float, int]:
        return self._of_class.get(group[0], 0) / group[0].weight, self._of_tenant.get(group, 0)
