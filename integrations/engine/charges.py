"""Whose work took how long: times charged to what was done and for whom, and the longest single ones."""

from __future__ import annotations

import heapq
from collections import deque
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


class Charges:
    """Sums by (what, who), and single calls that took at least `slow_s` seconds.

    `most`: entries that are kept. When there are twice as many, those of the smallest totals are forgotten, which
    takes about 0.1 ms for each `most` new entries; 0.2 kB each. `slow_calls`: how many slow calls are kept, the last
    ones, 0.2 kB each.
    """

    def __init__(self, most: int = 256, slow_s: float = 0.001, slow_calls: int = 4096) -> None:
        if most < 1 or slow_calls < 1:
            raise ValueError("most and slow_calls must be at least 1")
        self._most = most
        self._slow_s = slow_s
        self._entries: dict[tuple[str, str], Charge] = {}
        self._slow: deque[SlowCall] = deque(maxlen=slow_calls)

    def add(self, what: str, who: str, seconds: float, start: float) -> None:
        """One call that began at `start`."""
        entry = self._entries.get((what, who))
        if entry is None:
            if len(self._entries) >= 2 * self._most:
                kept = heapq.nlargest(self._most, self._entries.items(), key=lambda item: item[1].total)
                self._entries = dict(kept)
            entry = self._entries[what, who] = Charge(what, who)
        entry.count += 1
        entry.total += seconds
        entry.longest = max(entry.longest, seconds)
        if seconds >= self._slow_s:
            self._slow.append(SlowCall(what, who, start, seconds))

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
