"""What was made is remembered for the next that asks, up to a number of entries and of bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    """At most so many values and bytes of them; the least recently used ones are forgotten, the newest never is."""

    def __init__(self, entries: int, nbytes: int) -> None:
        self._entries, self._most_bytes = entries, nbytes
        self._known: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        #: Values added, for reports and tests.
        self.made = 0

    def find(self, key: Key) -> Value | None:
        """The value of `key`, if it is remembered."""
        with self._lock:
            found = self._known.get(key)
            if found is None:
                return None
            self._known.move_to_end(key)
            return found[0]

    def add(self, key: Key, value: Value, nbytes: int) -> None:
        """Remember a value of so many bytes."""
        with self._lock:
            self.made += 1
            if key not in self._known:
                self._known[key] = value, nbytes
                self._bytes += nbytes
            while len(self._known) > self._entries or (self._bytes > self._most_bytes and len(self._known) > 1):
                self._bytes -= self._known.popitem(last=False)[1][1]
