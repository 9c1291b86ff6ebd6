"""One compile and all who wait for it, and the order in which compiles take their turns."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from .futures import CompileFuture
from .requests import CompileRequest

K = TypeVar("K", bound=Hashable)


@dataclass(eq=False)
class Job:
    """One compile. Equal requests share it."""

    number: int
    request: CompileRequest
    tenant: str
    priority: int
    time_limit_s: float
    cpu_limit_s: float
    futures: list[CompileFuture] = field(default_factory=list)
    #: Workers that died in the middle of it, and before they began it, which is not its fault.
    deaths: int = 0
    lost: int = 0
    #: Results of it that were damaged when they arrived.
    damaged: int = 0
    #: The admission class, or whatever else shares out before tenants do.
    group: str = ""

    @property
    def owner(self) -> tuple[str, str]:
        """Group and tenant."""
        return self.group, self.tenant

    @property
    def key(self) -> tuple[str, float, float]:
        """Requests with equal keys share a job."""
        return self.request.key, self.time_limit_s, self.cpu_limit_s


class _Turns(Generic[K]):
    """Whose turn it is: who has the fewest jobs running, then who has had the least time.

    Who was away starts level with the one served last: time that was not used is not saved up.
    """

    def __init__(self) -> None:
        self._running: dict[K, int] = {}
        self._used: dict[K, float] = {}
        self._level = 0.0

    def pick(self, names: Iterable[K]) -> K:
        return min(names, key=lambda name: (self._running.get(name, 0), self._used.get(name, 0.0)))

    def begin(self, name: K) -> None:
        self._running[name] = self._running.get(name, 0) + 1
        self._level = max(self._level, self._used.get(name, 0.0))

    def finish(self, name: K, seconds: float, most: int) -> None:
        """`most`: entries to keep beyond 1,024."""
        self._running[name] -= 1
        if not self._running[name]:
            del self._running[name]
        self._used[name] = max(self._used.get(name, 0.0), self._level) + seconds
        if len(self._used) > most + 1024:
            self._used = {name: used for name, used in self._used.items() if used > self._level}


class JobQueue:
    """Jobs that wait for a worker.

    The highest priority goes first; of one priority the group with the fewest jobs running, then the one that has had
    the least time so far; of one group the tenant in the same way; of one tenant the oldest job.
    """

    def __init__(self) -> None:
        self._lanes: dict[tuple[int, tuple[str, str]], OrderedDict[int, Job]] = {}
        self._groups: _Turns[str] = _Turns()
        self._owners: _Turns[tuple[str, str]] = _Turns()
        self._count: dict[str, int] = {}
        self.total = 0
        self.total_bytes = 0

    def waiting(self, tenant: str) -> int:
        """Jobs of one tenant that wait."""
        return self._count.get(tenant, 0)

    def push(self, job: Job, *, again: bool = False) -> None:
        """Let a job wait; `again`: in front of its tenant's others, because it had its turn already."""
        lane = self._lanes.setdefault((job.priority, job.owner), OrderedDict())
        lane[job.number] = job
        if again:
            lane.move_to_end(job.number, last=False)
        self.total += 1
        self.total_bytes += len(job.request.payload)
        self._count[job.tenant] = self._count.get(job.tenant, 0) + 1

    def remove(self, job: Job) -> bool:
        """Take a job out; False where it does not wait."""
        lane = self._lanes.get((job.priority, job.owner))
        if lane is None or lane.pop(job.number, None) is None:
            return False
        if not lane:
            del self._lanes[job.priority, job.owner]
        self.total -= 1
        self.total_bytes -= len(job.request.payload)
        self._count[job.tenant] -= 1
        if not self._count[job.tenant]:
            del self._count[job.tenant]
        return True

    def raise_priority(self, job: Job, priority: int) -> None:
        """Let a waiting job have the highest priority of those who wait for it."""
        if priority > job.priority and self.remove(job):
            job.priority = priority
            self.push(job)

    def pop(self) -> Job | None:
        """The job whose turn it is, which counts as running from now on; None where none waits."""
        if not self._lanes:
            return None
        highest = max(priority for priority, _ in self._lanes)
        owners = [owner for priority, owner in self._lanes if priority == highest]
        group = self._groups.pick(name for name, _ in owners)
        owner = self._owners.pick(owner for owner in owners if owner[0] == group)
        job = next(iter(self._lanes[highest, owner].values()))
        self.remove(job)
        self._groups.begin(group)
        self._owners.begin(owner)
        return job

    def finished(self, job: Job, seconds: float) -> None:
        """A job that `pop` gave has used a worker for so long."""
        most = 2 * len(self._count)
        self._groups.finish(job.group, seconds, most)
        self._owners.finish(job.owner, seconds, most)
