"""`CompileService`: grammars are compiled in worker processes, and the step never waits for one."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any

from ...grammar.expression import Grammar
from ...grammar.limits import Limits, checked_limits
from ...masks.compiled import CompiledGrammar
from ...masks.vocabulary import Vocabulary, checked_vocabulary
from .errors import CompileError, CompileQueueFull, CompileServiceClosed
from .failures import Failure
from .futures import CompileFuture
from .jobs import Job, JobQueue
from .kept import KeptResults, ServiceCounts
from .limits import ServiceLimits
from .requests import Admitted, CompileRequest
from .supervisor import Supervisor


class CompileService:
    """Compiles grammars for one vocabulary in processes of its own.

    Equal requests share one compile. `limits` bound the counted work of a compile, as in `stepmask.compile`; `bounds`
    bound everything else. Workers start with the first request, or with `start`. All methods may be called from any
    thread; none but `compile`, `wait_until_ready` and `close` waits for anything. One thread of this process waits for
    the workers, in the operating system. For each job it runs for about 0.6 ms. With
    `threaded=False` there is no such thread: whoever owns the process calls `poll`, from one thread, when it suits him;
    the bundled engine does.

    Use it in a ``with`` statement or call `close`. When this process ends without that, even by a kill, the workers
    notice it and end too; nothing of them is left behind.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        workers: int = 1,
        limits: Limits | None = None,
        bounds: ServiceLimits | None = None,
        *,
        threaded: bool = True,
    ) -> None:
        if not isinstance(workers, int) or workers < 1:
            raise ValueError(f"there must be at least one worker, not {workers}")
        self.vocabulary = checked_vocabulary(vocabulary)
        self.limits = checked_limits(limits)
        self.bounds = ServiceLimits() if bounds is None else bounds
        if not isinstance(self.bounds, ServiceLimits):
            raise TypeError(f"bounds must be stepmask.ServiceLimits(...), not {type(bounds).__name__}")
        #: Held for microseconds only, never while anything waits.
        self._lock = threading.Lock()
        self._queue = JobQueue()
        self._open: dict[tuple[str, float, float], Job] = {}  # jobs that an equal request may join
        self._all: dict[int, Job] = {}
        self._kept = KeptResults(self.bounds)
        self._admitted = Admitted(self.limits, self.bounds)
        self._counts = ServiceCounts()
        self._next_number = 0
        self._closed: str | None = None
        self._process = os.getpid()
        self._supervisor = Supervisor(self, workers, is_threaded=threaded)
        _SERVICES.add(self)

    # ------------------------------------------------------------------------------------------------- for the callers
    def submit(
        self,
        grammar: Grammar | Mapping[str, Any],
        *,
        priority: int = 0,
        tenant: str = "",
        group: str = "",
        time_limit_s: float | None = None,
        cpu_limit_s: float | None = None,
    ) -> CompileFuture:
        """Have a grammar compiled; the result is a `CompiledGrammar`, or the error that `stepmask.compile` would raise.

        `grammar` is one from `stepmask.regex` and so on, or a specification that the worker reads itself:
        ``{"kind": "lark", "text": ..., "start": "root"}``, the kind's function with its arguments. A specification
        costs the caller 10 us, a grammar 0.3 ms as a rule and 1.4 s with 50,000 options. Jobs of a higher `priority`
        go first; among equals the `group` that has had the least, and of that the `tenant`. The limits of time are
        those of `bounds` unless given.

        Raises at once: `CompileQueueFull`; `CompileServiceClosed`; the `GrammarError`s that are cheap to see (too large
        a text, no JSON, an unknown kind); `TypeError` for what is no grammar. The future raises besides `GrammarError`:
        `CompileTimeout`, `CompileOutOfMemory`, `CompileWorkerDied`, `CompileServiceClosed`, `CompileFailed`, none of
        which is remembered: the same request may succeed another time.
        """
        times = (
            self.bounds.time_limit_s if time_limit_s is None else time_limit_s,
            self.bounds.cpu_limit_s if cpu_limit_s is None else cpu_limit_s,
        )
        if min(times) <= 0:
            raise ValueError(f"limits of time must be positive, not {min(times)}")
        request = self._admitted(grammar)
        future = CompileFuture()
        with self._lock:
            if self._closed is not None:
                raise CompileServiceClosed(self._closed)
            known = self._kept.get(request.key)
            if known is None:
                self._wait_in_line(request, future, priority, (group, tenant), times)
            self._counts.submitted += 1
            self._counts.answered += isinstance(known, CompiledGrammar)
            self._counts.answered_with_error += isinstance(known, Failure)
        if isinstance(known, CompiledGrammar):
            future.succeed(known)
        elif known is not None:
            future.fail(known.error())
        else:
            try:
                self._supervisor.wake()
            except BaseException:  # no thread, or no descriptor, is to be had
                future.cancel()
                raise
        return future

    def compile(
        self, grammar: Grammar | Mapping[str, Any], *, timeout: float | None = None, **options: Any
    ) -> CompiledGrammar:
        """`submit` and wait. `timeout` in seconds includes the time in the queue; past it
        `concurrent.futures.TimeoutError`.
        """
        future = self.submit(grammar, **options)
        end = float("inf") if timeout is None else time.monotonic() + timeout
        try:
            while not self.is_threaded and not future.done() and time.monotonic() < end:
                self._supervisor.turn(min(self.patience() or 1.0, end - time.monotonic(), 1.0))
            return future.result(timeout if self.is_threaded else 0)
        finally:
            future.cancel()  # no effect on one that is done

    def start(self) -> None:
        """Start the workers now rather than with the first request."""
        with self._lock:
            if self._closed is not None:
                raise CompileServiceClosed(self._closed)
        self._supervisor.start_all()

    def wait_until_ready(self, timeout: float | None = None) -> bool:
        """Start the workers and wait for them, in seconds; False where they are not ready by then."""
        self.start()
        return self._supervisor.wait_until_ready(timeout)

    @property
    def is_threaded(self) -> bool:
        """Whether a thread of the service does its work; otherwise `poll` does."""
        return self._supervisor.is_threaded

    def poll(self) -> None:
        """Do what there is to do, without waiting; for a service that has no thread. See `patience`."""
        if not self.is_threaded:
            self._supervisor.turn(0.0)

    def fileno(self) -> int:
        """A descriptor that can be read when `poll` has something to do; -1 before the first request."""
        return self._supervisor.fileno()

    def patience(self) -> float | None:
        """Seconds after which `poll` has something to do in any case; None: there is no such time."""
        return self._supervisor.patience()

    @property
    def counts(self) -> ServiceCounts:
        """What was done so far; a copy."""
        with self._lock:
            return replace(self._counts)

    @property
    def waiting(self) -> int:
        """Jobs that wait for a worker."""
        return self._queue.total

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers that run."""
        return self._supervisor.pids

    def close(self) -> None:
        """End the workers. What is not done gets `CompileServiceClosed`. May be called again."""
        if os.getpid() != self._process:
            return
        reason = "the compile service is closed"
        with self._lock:
            self._closed = self._closed or reason
        self._supervisor.stop()
        self.end(reason, CompileServiceClosed(reason))
        _SERVICES.discard(self)

    def __enter__(self) -> CompileService:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---------------------------------------------------------------------------------------------- with the lock held
    def _wait_in_line(
        self,
        request: CompileRequest,
        future: CompileFuture,
        priority: int,
        owner: tuple[str, str],
        times: tuple[float, float],
    ) -> None:
        job = self._open.get((request.key, *times))
        if job is None:
            group, tenant = owner
            self._check_room(request, tenant)
            self._next_number += 1
            job = Job(self._next_number, request, tenant, priority, *times, group=group)
            self._open[job.key] = self._all[job.number] = job
            self._queue.push(job)
        else:
            self._counts.coalesced += 1
            self._queue.raise_priority(job, priority)
        job.futures.append(future)
        future.on_cancel(_Release(self, job, future))

    def _check_room(self, request: CompileRequest, tenant: str) -> None:
        bounds, size = self.bounds, len(request.payload)
        if self._queue.total >= bounds.max_queue:
            full = f"{self._queue.total} grammars are waiting to be compiled", "max_queue"
        elif self._queue.waiting(tenant) >= bounds.max_queue_per_tenant:
            full = f"{self._queue.waiting(tenant)} grammars of this tenant are waiting", "max_queue_per_tenant"
        elif self._queue.total_bytes + size > bounds.max_queue_bytes:
            full = f"{self._queue.total_bytes} bytes are waiting, and this has {size}", "max_queue_bytes"
        else:
            return
        self._counts.refused += 1
        raise CompileQueueFull(*full)

    def _forget(self, job: Job) -> None:
        self._all.pop(job.number, None)
        if self._open.get(job.key) is job:
            del self._open[job.key]

    # ---------------------------------------------------------------------------------------------- for the supervisor
    def next_job(self) -> Job | None:
        """The job whose turn it is, if one waits."""
        with self._lock:
            job = self._queue.pop()
            self._counts.started += job is not None
            return job

    def count(self, **amounts: int) -> None:
        """Add to the counts of these names."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self._counts, name, getattr(self._counts, name) + amount)

    def used(self, job: Job, seconds: float) -> None:
        """A worker was busy with a job for so long, and is no more."""
        with self._lock:
            self._queue.finished(job, seconds)

    def again(self, job: Job) -> None:
        """Give a job to another worker, unless nobody waits for it any more."""
        with self._lock:
            if job.number in self._all and job.futures:
                self._queue.push(job, again=True)

    def finish(self, job: Job, result: CompiledGrammar | Failure | CompileError) -> None:
        """A job has its result."""
        with self._lock:
            self._forget(job)
            futures, job.futures = job.futures, []
            if not isinstance(result, CompileError):
                self._kept.put(job.request.key, result)
        for future in futures:
            if isinstance(result, CompiledGrammar):
                future.succeed(result)
            else:
                future.fail(result.error() if isinstance(result, Failure) else result)

    def finish_waiting(self, error: CompileError) -> None:
        """Nothing that waits for a worker will get one."""
        with self._lock:
            jobs = [job for job in self._all.values() if self._queue.remove(job)]
        for job in jobs:
            self.finish(job, error)

    def end(self, reason: str, error: CompileError) -> None:
        """Take no more requests, and fail those that are not done."""
        with self._lock:
            self._closed = self._closed or reason
            jobs = list(self._all.values())
        for job in jobs:
            self.finish(job, error)


class _Release:
    """Takes a cancelled request off its job."""

    def __init__(self, service: CompileService, job: Job, future: CompileFuture) -> None:
        self._of = service, job, future

    def __call__(self) -> None:
        service, job, future = self._of
        with service._lock:
            if future not in job.futures:
                return
            job.futures.remove(future)
            if job.futures:
                return
            service._forget(job)
            dropped = service._queue.remove(job)
            service._counts.dropped += dropped
        if not dropped:
            service._supervisor.wake()


#: Services of this process that are not closed.
_SERVICES: weakref.WeakSet[CompileService] = weakref.WeakSet()


def _close_all() -> None:
    for service in list(_SERVICES):
        with contextlib.suppress(Exception):
            service.close()


def _leave_all() -> None:
    """In a forked child: the workers are the parent's, and must not outlive it because a child holds their channel."""
    for service in list(_SERVICES):
        service._lock = threading.Lock()  # another thread may have held it
        service._closed = "the compile service is that of the process which this one was forked from"
        service._supervisor.leave()
    _SERVICES.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_leave_all)
