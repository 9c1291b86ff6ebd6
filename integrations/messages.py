"""Messages between a process and its helpers: small ones over a socket, with file descriptors beside them.

Everything large (the vocabulary, a grammar, a compiled grammar) is in a file that has no name (`memfd_create`), or in
the cache file, and only its descriptor is sent. So when a process ends, however it ends, nothing of it is left behind.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import socket
import subprocess
import sys
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

#: Longest message in bytes; a Unix socket takes any of this size at once, in one piece.
MAX_MESSAGE = 128 << 10
_MOST_DESCRIPTORS = 3
_INT = array("i")


class Closed(Exception):
    """The other side has ended."""


class Channel:
    """One end of a connection that keeps the bounds of messages (`SOCK_SEQPACKET`)."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Two connected ends."""
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(one), cls(other)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(self, message: dict[str, Any], descriptors: Sequence[int] = (), *, wait: bool = True) -> None:
        """Send a JSON message; see `send_data`."""
        self.send_data(json.dumps(message).encode(), descriptors, wait=wait)

    def send_data(self, data: bytes, descriptors: Sequence[int] = (), *, wait: bool = True) -> None:
        """Send a message; the receiver gets descriptors of its own.

        Raises `Closed`, and without `wait` BlockingIOError where the receiver has not taken those before.
        """
        if len(data) > MAX_MESSAGE:
            raise ValueError(f"a message of {len(data)} bytes; large data go into a file")
        flags = 0 if wait else socket.MSG_DONTWAIT
        try:
            socket.send_fds(self._socket, [data], descriptors, flags)
        except (BrokenPipeError, ConnectionResetError, ConnectionRefusedError):
            raise Closed from None

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        """The next JSON message; see `receive_data`."""
        data, descriptors = self.receive_data()
        message: dict[str, Any] = json.loads(data)
        return message, descriptors

    def receive_data(self) -> tuple[bytes, list[int]]:
        """The next message and its descriptors, which are the caller's to close. Raises `Closed`."""
        size = socket.CMSG_LEN(_MOST_DESCRIPTORS * _INT.itemsize)
        try:
            # Not `socket.recv_fds`, which ignores flags: programs started meanwhile would inherit the descriptors.
            data, ancillary, _, _ = self._socket.recvmsg(MAX_MESSAGE, size, socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:
            raise Closed from None
        if not data:
            raise Closed
        found = array("i")
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                found.frombytes(content[: len(content) - len(content) % _INT.itemsize])
        return data, found.tolist()


def unnamed_file(data: bytes | memoryview) -> int:
    """The descriptor of a new file in memory that holds `data`."""
    descriptor = os.memfd_create("stepmask")
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def contents(descriptor: int, *, mark: bool = False) -> mmap.mmap:
    """A map of the whole of a file, which is closed. `mark`: the file becomes a byte longer, as a sign of that."""
    try:
        size = os.fstat(descriptor).st_size
        data = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
        if mark:
            os.ftruncate(descriptor, size + 1)
        return data
    finally:
        os.close(descriptor)


def program_of(module: str) -> str:
    """The program of a helper, for `start_helper`: `main` of this module, which gets the descriptor of its channel."""
    return f"import sys, json; sys.path[:] = json.loads(sys.argv[2]); from {module} import main; main(int(sys.argv[1]))"


def start_helper(
    program: str,
    theirs: Channel,
    environment: Mapping[str, str] | None = None,
    *,
    nice: int = 0,
    spare_processors: int = 0,
) -> subprocess.Popen[bytes]:
    """A new interpreter, not a fork, that runs this program and finds the modules that this process does.

    It gets the other end of a channel. It has no standard output: this is its parent's, of which nobody expects the
    words of a helper. It gives way by `nice` more than its parent, and keeps off the first `spare_processors` of those
    that the caller's thread may use, if that leaves any. Raises OSError where none can be started.
    """
    paths = json.dumps([path or os.getcwd() for path in sys.path])
    helper = subprocess.Popen(
        [sys.executable, "-c", program, str(theirs.fileno()), paths],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(theirs.fileno(),),
        env=None if environment is None else {**os.environ, **environment},
    )
    # From here rather than by itself: an interpreter that starts would hold the step's processor until it came to that.
    with contextlib.suppress(OSError):  # it has ended already
        if spare_processors and hasattr(os, "sched_setaffinity"):
            own = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(helper.pid, own[spare_processors:] or own)
        if nice:
            os.setpriority(os.PRIO_PROCESS, helper.pid, min(19, os.getpriority(os.PRIO_PROCESS, 0) + nice))
    return helper
