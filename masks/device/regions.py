"""Ranges of a fixed array that are taken and given back."""

from __future__ import annotations


class Region:
    """The places `begin` to begin + size - 1. First fit; neighbouring free ranges become one."""

    def __init__(self, size: int, begin: int = 0) -> None:
        self._free = [(begin, size)] if size else []

    def take(self, count: int) -> int | None:
        """The first place of a range of `count`, or None where there is none so long. An empty range is anywhere."""
        if count == 0:
            return 0
        for i, (begin, size) in enumerate(self._free):
            if size >= count:
                if size == count:
                    del self._free[i]
                else:
                    self._free[i] = (begin + count, size - count)
                return begin
        return None

    def give(self, begin: int, count: int) -> None:
        """Free a range that was taken."""
        if count == 0:
            return
        joined: list[tuple[int, int]] = []
        for start, size in sorted([*self._free, (begin, count)]):
            if joined and sum(joined[-1]) == start:
                joined[-1] = (joined[-1][0], joined[-1][1] + size)
            else:
                joined.append((start, size))
        self._free = joined

    @property
    def free(self) -> int:
        """How many places are free."""
        return sum(size for _, size in self._free)
