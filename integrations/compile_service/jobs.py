"""One compile and all who wait for it, and the order in which compiles take their turns."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from .futures import CompileFuture
from .requests import CompileRequest


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

    @property
    def key(self) -> tuple[str, float, float]:
        """Requests with equal keys share a job."""
        return self.request.key, self.time_limit_s, self.cpu_limit_s


class JobQueue:
    """Jobs that wait for a worker.

    The highest priority goes first; of one priority the tenant with the fewest jobs running, then the one that has had
    the least time so far; of one tenant the oldest job. A tenant that was away starts level with the one served
    last: time that it did not use is not saved up.
    """

    def __init__(self) -> None:
        self._lanes: dict[tuple[int, str], OrderedDict[int, Job]] = {}
        self._running: dict[str, int] = {}
        self._used: dict[str, float] = {}
        self._level = 0.0
        self._count: dict[str, int] = {}
        self.total = 0
        self.total_bytes = 0

    def waiting(self, tenant: str) -> int:
        """Jobs of one tenant that wait."""
        return self._count.get(tenant, 0)

    def push(self, job: Job, *, again: bool = False) -> None:
        """Let a job wait; `again`: in front of its tenant's others, because it had its turn already."""
        lane = self._lanes.setdefault((job.priority, job.tenant), OrderedDict())
        lane[job.number] = job
        if again:
            lane.move_to_end(job.number, last=False)
        self.total += 1
        self.total_bytes += len(job.request.payload)
        self._count[job.tenant] = self._count.get(job.tenant, 0) + 1

    def remove(self, job: Job) -> bool:
        """Take a job out; False where it does not wait."""
        lane = self._lanes.get((job.priority, job.tenant))
        if lane is None or lane.pop(job.number, None) is None:
            return False
        if not lane:
            del self._lanes[job.priority, job.tenant]
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
        tenants = [tenant for priority, tenant in self._lanes if priority == highest]
        tenant = min(tenants, key=lambda name: (self._running.get(name, 0), self._used.get(name, 0.0)))
        job = next(iter(self._lanes[highest, tenant].values()))
        self.remove(job)
        self._running[tenant] = self._running.get(tenant, 0) + 1
        self._level = max(self._level, self._used.get(tenant, 0.0))
        return job

    def finished(self, job: Job, seconds: float) -> None:
        """A job that `pop` gave has used a worker for so long."""
        tenant = job.tenant
        self._running[tenant] -= 1
        if not self._running[tenant]:
            del self._running[tenant]
        self._used[tenant] = max(self._used.get(tenant, 0.0), self._level) + seconds
        if len(self._used) > 2 * len(self._count) + 1024:
            self._used = {name: used for name, used in self._used.items() if used > self._level}
