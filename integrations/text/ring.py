"""A ring of fixed records in memory that two processes share: one writes, the other reads, and neither waits.

How many records are there to read is not read from the memory: the writer adds it to a counter of the operating system
(`eventfd`) when it has written them, from which the reader takes it. So nothing depends on the order in which a
processor makes its stores visible.
"""

from __future__ import annotations

import mmap
import os

import numpy as np
import numpy.typing as npt

#: A token of an answer; or, `token` negative, the end of one.
RECORD = np.dtype([("answer", "<i8"), ("token", "<i4"), ("logprob", "<f4")], align=False)
#: Bytes before the records: how many were read and how many were written, each in a cache line of its own.
_HEADER = 128
_READ, _WRITTEN = 0, 8  # words


class Ring:
    """One end of a ring; each process has its own object on the same file.

    The file has no name, so it goes with the last process that has it open, however that ends.
    """

    def __init__(self, descriptor: int, capacity: int) -> None:
        """Map the file of a ring of `capacity` records. The descriptor stays the caller's."""
        self.capacity = capacity
        self._map = mmap.mmap(descriptor, _HEADER + capacity * RECORD.itemsize)
        self._header = np.frombuffer(self._map, np.int64, _HEADER // 8)
        self._records = np.frombuffer(self._map, RECORD, capacity, _HEADER)
        self._written = self._read = 0

    @staticmethod
    def create(capacity: int) -> int:
        """The descriptor of a new file for a ring, every page of it there."""
        if capacity < 1:
            raise ValueError(f"a ring holds at least 1 record, not {capacity}")
        descriptor = os.memfd_create("stepmask ring")
        os.posix_fallocate(descriptor, 0, _HEADER + capacity * RECORD.itemsize)
        return descriptor

    @property
    def unread(self) -> int:
        """Records that were written and that the reader is not known to be done with."""
        return int(self._header[_WRITTEN] - self._header[_READ])

    def write(self, records: npt.NDArray[np.void]) -> int:
        """Append as many of `records` as there is room for; how many. For the writer only, who then says so."""
        n = min(len(records), self.capacity - (self._written - int(self._header[_READ])))
        if n <= 0:
            return 0
        at = self._written % self.capacity
        first = min(n, self.capacity - at)
        self._records[at : at + first] = records[:first]
        if n > first:
            self._records[: n - first] = records[first:n]
        self._written += n
        self._header[_WRITTEN] = self._written
        return n

    def read(self, count: int) -> npt.NDArray[np.void]:
        """The next so many records, a copy; they must be there. For the reader only."""
        at = self._read % self.capacity
        records = np.concatenate([self._records[at : at + count], self._records[: max(0, at + count - self.capacity)]])
        self._read += count
        return records

    def release(self) -> None:
        """Let the writer have the place of what was read. For the reader only, who has looked at all of it: a store
        that depends on what a load gave is never made visible before it.
        """
        self._header[_READ] = self._read

    def close(self) -> None:
        """Give up the map."""
        del self._header, self._records
        self._map.close()
