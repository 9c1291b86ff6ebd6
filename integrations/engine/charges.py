"""Whose work took how long: times charged to what was done and for whom, and the longest single ones."""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from dataclasses import dataclass


@dataclass
class Charge:
    """What one kind of work has taken for one request (or another `who`), times in seconds."""

    what: str
    who: str
    count: int = 0
    total: float = 0.0
    longest: float = 0.0


@dataclass(frozen=True)
class SlowCall:
    """One call that took long: it began at `start` on the engine's clock; both times in seconds."""

    what: str
    who: str
    start: float
    seconds: float


#: Entries that are looked at for the one to forget: few, as this is done in a step, and for each new entry.
LOOKED_AT = 8


class Charges:
    """Sums by (what, who), and single calls that took at least `slow_s` seconds.

    `most`: entries that are kept, 0.2 kB each. With each more one is forgotten: of those that have been passed over
    for the longest time, the one with the smallest total, so that what is large stays. `slow_calls`: how many slow
    calls are kept, the last ones, 0.2 kB each.
    """

    def __init__(self, most: int = 512, slow_s: float = 0.001, slow_calls: int = 4096) -> None:
        if most < 1 or slow_calls < 1:
            raise ValueError("most and slow_calls must be at least 1")
        self._most = most
        self._slow_s = slow_s
        self._entries: OrderedDict[tuple[str, str], Charge] = OrderedDict()
        self._slow: deque[SlowCall] = deque(maxlen=slow_calls)

    def add(self, what: str, who: str, seconds: float, start: float) -> None:
        """One call that began at `start`."""
        entry = self._entries.get((what, who))
        if entry is None:
            if len(self._entries) >= self._most:
                self._forget_one()
            entry = self._entries[what, who] = Charge(what, who)
        entry.count += 1
        entry.total += seconds
        entry.longest = max(entry.longest, seconds)
        if seconds >= self._slow_s:
            self._slow.append(SlowCall(what, who, start, seconds))

    def _forget_one(self) -> None:
        oldest = [self._entries.popitem(last=False) for _ in range(min(LOOKED_AT, len(self._entries)))]
        smallest = min(oldest, key=lambda item: item[1].total)[0]
        self._entries.update(item for item in oldest if item[0] != smallest)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._slow.clear()

    @property
    def slow_calls(self) -> list[SlowCall]:
        """The last calls that took long, oldest first."""
        return list(self._slow)

    def longest(self, what: str | None = None, most: int = 5) -> list[Charge]:
        """The entries (of one kind of work) with the longest single calls, longest first."""
        chosen = [entry for entry in self._entries.values() if what is None or entry.what == what]
        return heapq.nlargest(most, chosen, key=lambda entry: entry.longest)
