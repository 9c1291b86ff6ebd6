"""A ring of fixed records in memory that two processes share: one writes, the other reads, and neither waits."""

from __future__ import annotations

import mmap
import os

import numpy as np
import numpy.typing as npt

#: A token of an answer (`finish` 0), or an answer's end (`finish` > 0, `token` -1). `check` says that the record is
#: whole and of this round, so that nothing depends on the order in which a processor makes its stores visible.
RECORD = np.dtype(
    [("answer", "<i8"), ("token", "<i4"), ("logprob", "<f4"), ("finish", "<i4"), ("check", "<u4")], align=False
)
#: Bytes before the records: how many were read and how many were written, each in a cache line of its own.
_HEADER = 128
_READ, _WRITTEN = 0, 8  # words
_FACTOR = np.uint32(0x9E3779B1)


def _checks(records: npt.NDArray[np.void], first: int) -> npt.NDArray[np.uint32]:
    """The `check` of records of which the first is number `first`."""
    numbers = (first + np.arange(len(records), dtype=np.uint64)).astype(np.uint32)
    answers = records["answer"].astype(np.uint32)
    tokens = records["token"].view(np.uint32) + records["finish"].view(np.uint32) * _FACTOR
    mixed = ((numbers * _FACTOR ^ answers) * _FACTOR ^ tokens) * _FACTOR
    checks: npt.NDArray[np.uint32] = mixed ^ records["logprob"].view(np.uint32) ^ _FACTOR
    return checks


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
        self._written = int(self._header[_WRITTEN])
        self._read = int(self._header[_READ])

    @staticmethod
    def create(capacity: int) -> int:
        """The descriptor of a new file for a ring, every page of it there."""
        if capacity < 1:
            raise ValueError(f"a ring holds at least 1 record, not {capacity}")
        descriptor = os.memfd_create("stepmask ring")
        os.ftruncate(descriptor, _HEADER + capacity * RECORD.itemsize)
        os.posix_fallocate(descriptor, 0, _HEADER + capacity * RECORD.itemsize)
        return descriptor

    @property
    def unread(self) -> int:
        """Records that were written and not read yet."""
        return int(self._header[_WRITTEN] - self._header[_READ])

    def write(self, records: npt.NDArray[np.void]) -> int:
        """Append as many of `records` as there is room for; how many. For the writer only; sets their `check`."""
        n = min(len(records), self.capacity - (self._written - int(self._header[_READ])))
        if n <= 0:
            return 0
        records = records[:n]
        records["check"] = _checks(records, self._written)
        at = self._written % self.capacity
        first = min(n, self.capacity - at)
        self._records[at : at + first] = records[:first]
        self._records[: n - first] = records[first:]
        self._written += n
        self._header[_WRITTEN] = self._written
        return n

    def read(self, most: int) -> npt.NDArray[np.void]:
        """Take the next records, at most so many, as a copy. For the reader only."""
        n = min(most, int(self._header[_WRITTEN]) - self._read)
        numbers = np.arange(self._read, self._read + max(n, 0)) % self.capacity
        records: npt.NDArray[np.void] = self._records[numbers]
        wrong = np.flatnonzero(records["check"] != _checks(records, self._read))
        if len(wrong):  # not all of it is visible yet
            records = records[: wrong[0]]
        self._read += len(records)
        self._header[_READ] = self._read
        return records

    def close(self) -> None:
        """Give up the map."""
        del self._header, self._records
        self._map.close()
