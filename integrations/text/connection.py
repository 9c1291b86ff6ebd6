"""A text process that was started, and what connects this process with it."""

from __future__ import annotations

import os
import select
import subprocess
import weakref
from dataclasses import dataclass, field

from ..messages import Channel, Closed, program_of, start_helper
from .limits import TextLimits
from .ring import Ring

_WORKER = f"{__name__.rpartition('.')[0]}.worker"


@dataclass(eq=False)
class Connection:
    """One process and the ends of its ring and channel. `tokens`: the descriptor of the file of token bytes."""

    tokens: int
    tokenizer: str | None
    bounds: TextLimits
    is_ready: bool = False
    #: Whether it has ever answered anything.
    has_worked: bool = False
    channel: Channel = field(init=False)
    ring: Ring = field(init=False)
    bell: int = field(init=False)
    process: subprocess.Popen[bytes] = field(init=False)
    #: Says whether there is a message, or the process has ended.
    poll: select.poll = field(init=False)

    def __post_init__(self) -> None:
        """Start it. Raises OSError where that fails."""
        self.channel, theirs = Channel.pair()
        self.poll = select.poll()
        self.poll.register(self.channel.fileno(), select.POLLIN)
        descriptors: list[int] = []
        try:
            self.bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            descriptors.append(self.bell)
            memory = Ring.create(self.bounds.ring_records)
            descriptors.append(memory)
            self.ring = Ring(memory, self.bounds.ring_records)
            bounds = self.bounds
            self.process = start_helper(
                program_of(_WORKER), theirs, nice=bounds.nice, spare_processors=bounds.spare_processors
            )
            _CONNECTIONS.add(self)
            settings = {"capacity": self.bounds.ring_records, "tokenizer": self.tokenizer}
            self.channel.send(settings, [memory, self.bell, self.tokens])
            os.close(descriptors.pop())
        except BaseException as error:
            self.channel.close()
            for descriptor in descriptors:
                os.close(descriptor)
            if hasattr(self, "process"):
                _CONNECTIONS.discard(self)
                self.process.kill()
                self.process.wait()
            if isinstance(error, Closed):
                raise OSError("the text process ended at once") from None
            raise
        finally:
            theirs.close()

    def end(self) -> None:
        """Kill it, and wait for its end."""
        if self not in _CONNECTIONS:
            return
        _CONNECTIONS.discard(self)
        self.leave()
        self.process.kill()
        self.process.wait()

    def leave(self) -> None:
        """Close what connects this process with it."""
        self.channel.close()
        os.close(self.bell)
        self.ring.close()


#: Those that were not ended yet. Keeps none alive.
_CONNECTIONS: weakref.WeakSet[Connection] = weakref.WeakSet()


def give_up(worker: Connection, tokens: int) -> None:
    """End it and close its file of tokens."""
    worker.end()
    os.close(tokens)


def _leave_all() -> None:
    """In a forked child: the processes are the parent's, and must not outlive it because a child holds a channel."""
    for worker in list(_CONNECTIONS):
        _CONNECTIONS.discard(worker)
        worker.leave()


os.register_at_fork(after_in_child=_leave_all)
