"""What starts workers, gives them jobs, takes their answers and ends what is late: a thread, or who polls it.

The thread waits in the operating system for whatever comes first: an answer, the end of a worker, a new request, a
deadline.
"""

from __future__ import annotations

import errno
import os
import selectors
import threading
import time
from typing import TYPE_CHECKING, Any

from ...grammar.errors import GrammarError
from ...masks import cache
from ...masks.compiled import CompiledGrammar
from ..messages import Closed
from .errors import CompileError, CompileFailed, CompileOutOfMemory, CompileTimeout, CompileWorkerDied
from .failures import Failure
from .jobs import Job
from .process import WorkerProcess, packed_for_workers

if TYPE_CHECKING:
    from .service import CompileService


class Supervisor:
    """The workers of one service. `wake`, `start_all`, `wait_until_ready` and `stop` are for any thread, the rest is
    the thread's own, or that of the one thread which calls `turn` where `is_threaded` is false."""

    def __init__(self, service: CompileService, workers: int, *, is_threaded: bool) -> None:
        self.is_threaded = is_threaded
        self._service = service
        self._bounds = service.bounds
        self._most = workers
        self._wanted = 0
        self._workers: list[WorkerProcess] = []
        self._failed_starts = 0
        self._vocabulary = -1
        self._past_workers: list[int] = []
        self._stopping = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._selector: selectors.BaseSelector | None = None
        self._bell = -1

    # --------------------------------------------------------------------------------------------------- any thread
    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in list(self._workers)]

    def wake(self) -> None:
        """There is something to do. Starts the thread the first time."""
        with self._changed:
            if self._stopping:
                return
            if self._bell < 0:
                self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            if self._selector is None:
                self._selector = selectors.DefaultSelector()
                self._selector.register(self._bell, selectors.EVENT_READ)
            if self._thread is None and self.is_threaded:
                thread = threading.Thread(target=self._run, name="stepmask compile service", daemon=True)
                thread.start()
                self._thread = thread
            os.eventfd_write(self._bell, 1)

    def start_all(self) -> None:
        with self._changed:
            self._wanted = self._most
        self.wake()

    def wait_until_ready(self, timeout: float | None) -> bool:
        """Whether all workers are ready, at the latest after so many seconds."""
        if not self.is_threaded:
            end = float("inf") if timeout is None else time.monotonic() + timeout
            while not self._is_settled() and time.monotonic() < end:
                self.turn(min(self.patience() or 1.0, end - time.monotonic(), 1.0))
        with self._changed:
            self._changed.wait_for(self._is_settled, timeout if self.is_threaded else 0)
            return not self._stopping and self._ready() == self._most

    def _is_settled(self) -> bool:
        return self._stopping or self._ready() == self._most or self._wanted < self._most

    def _ready(self) -> int:
        return sum(worker.is_ready for worker in list(self._workers))

    def stop(self) -> None:
        """End all workers, and wait for that."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            thread = self._thread
            if thread is None and self._selector is None:  # it never came to that
                self._close_descriptors()
                return
            if self._bell >= 0:
                os.eventfd_write(self._bell, 1)
        if thread is None:
            self._end_all()
        elif thread is not threading.current_thread():
            thread.join()

    def leave(self) -> None:
        """In a forked child, where the thread is not: close what it held."""
        self._stopping = True
        for worker in self._workers:
            worker.channel.close()
        self._close_descriptors()

    # --------------------------------------------------------------------------------------------------- the thread
    def _run(self) -> None:
        while not self._stopping:
            self.turn(self.patience())
        self._end_all()

    def turn(self, timeout: float | None) -> None:
        """Wait so many seconds at most for something to do, and do it, of answers so many as a poll may take.

        An error ends the service.
        """
        selector = self._selector
        if selector is None or self._stopping:
            return
        try:
            left = None if self.is_threaded else self._bounds.max_answers_per_poll
            for key, _ in selector.select(timeout):
                if key.data is None:
                    os.eventfd_read(self._bell)
                elif key.data in self._workers and left != 0:
                    left = None if left is None else left - 1
                    self._receive(key.data)
            self._end_what_is_late(time.monotonic())
            self._fill(time.monotonic())
        except BaseException as error:
            # Nobody would ever hear of what waits here.
            reason = f"the compile service stopped: {error!r}"
            self._service.end(reason, CompileFailed(reason))
            self._end_all()
            raise

    def fileno(self) -> int:
        """A descriptor that can be read when there is something to do; -1 before the first `wake`."""
        return -1 if self._selector is None else self._selector.fileno()  # type: ignore[attr-defined]

    def _end_all(self) -> None:
        assert self._selector is not None
        for worker in list(self._workers):
            self._remove(worker)
        self._sweep()
        with self._changed:
            self._close_descriptors()
            self._stopping = True
            self._changed.notify_all()

    def _close_descriptors(self) -> None:
        if self._selector is not None:
            self._selector.close()
        for descriptor in (self._bell, self._vocabulary):
            if descriptor >= 0:
                os.close(descriptor)
        self._bell = self._vocabulary = -1

    def patience(self) -> float | None:
        """Seconds until the next deadline."""
        first = min((worker.deadline for worker in self._workers), default=float("inf"))
        return None if first == float("inf") else max(0.0, first - time.monotonic())

    def _fill(self, now: float) -> None:
        """Jobs for the workers, and workers for the jobs."""
        for worker in list(self._workers):
            # Nobody waits for it any more.
            if worker.job is not None and not worker.job.futures and not worker.was_told:
                self._give_up(worker, now)
        for worker in list(self._workers):
            if worker.is_ready and worker.job is None:
                job = self._service.next_job()
                if job is None:
                    break
                self._give(worker, job, now)
        starting = sum(not worker.is_ready for worker in self._workers)
        busy = sum(worker.job is not None for worker in self._workers)
        with self._changed:
            self._wanted = min(self._most, max(self._wanted, busy + self._service.waiting))
        for _ in range(self._wanted - busy - starting - self._idle()):
            if not self._start(now):
                break

    def _idle(self) -> int:
        return sum(worker.is_ready and worker.job is None for worker in self._workers)

    def _start(self, now: float) -> bool:
        assert self._selector is not None
        try:
            if self._vocabulary < 0:
                self._vocabulary = packed_for_workers(self._service.vocabulary, self._service.limits)
            worker = WorkerProcess(self._vocabulary, self._bounds, now)
        except (OSError, Closed) as error:
            self._failed_start(repr(error))
            return False
        self._service.count(workers_started=1)
        self._workers.append(worker)
        self._selector.register(worker.channel, selectors.EVENT_READ, worker)
        return True

    def _failed_start(self, how: str) -> None:
        self._failed_starts += 1
        if self._failed_starts >= self._bounds.max_failed_starts:
            self._failed_starts = 0
            with self._changed:
                self._wanted = 0
                self._changed.notify_all()
            self._service.finish_waiting(CompileWorkerDied(f"no worker starts; the last one ended with {how}"))

    def _give(self, worker: WorkerProcess, job: Job, now: float) -> None:
        try:
            worker.give(job, now)
        except Closed:
            self._ended(worker)
        except OSError as error:
            worker.take_job()
            self._service.used(job, 0.0)
            self._service.finish(job, CompileFailed(f"the job could not be passed on: {error}"))

    def _give_up(self, worker: WorkerProcess, now: float) -> None:
        try:
            worker.ask_to_give_up(now)
        except Closed:
            self._ended(worker)

    def _end_what_is_late(self, now: float) -> None:
        for worker in list(self._workers):
            if now < worker.deadline:
                continue
            if worker.job is not None and not worker.was_told:
                worker.is_late = True
                self._give_up(worker, now)
            else:
                self._ended(worker, killed=True)

    # ------------------------------------------------------------------------------------------------------ answers
    def _receive(self, worker: WorkerProcess) -> None:
        try:
            message, descriptors = worker.channel.receive()
        except Closed:
            self._ended(worker)
            return
        if "ready" in message:
            self._failed_starts = 0
            with self._changed:
                worker.is_ready = True
                worker.deadline = float("inf")
                self._changed.notify_all()
            return
        is_late = worker.is_late
        job = self._take_job(worker)
        assert job is not None and job.number == message["job"]
        if message["retires"]:
            self._remove(worker)
        self._answer(job, message, descriptors, is_late)

    def _take_job(self, worker: WorkerProcess) -> Job | None:
        job = worker.take_job()
        if job is not None:
            self._service.used(job, time.monotonic() - worker.job_since)
        return job

    def _answer(self, job: Job, message: dict[str, Any], descriptors: list[int], is_late: bool) -> None:
        outcome = message["outcome"]
        service = self._service
        if outcome == "done":
            self._adopt(job, message, descriptors)
        elif outcome == "error":
            service.count(failed=1)
            service.finish(job, Failure.from_message(message["failure"]))
        elif outcome == "memory":
            service.count(out_of_memory=1)
            service.finish(job, CompileOutOfMemory(self._bounds.memory_limit_bytes))
        elif outcome == "cpu":
            service.count(timed_out=1)
            service.finish(job, CompileTimeout("cpu_limit_s", job.cpu_limit_s))
        else:
            self._stopped(job, is_late)

    def _stopped(self, job: Job, is_late: bool) -> None:
        if is_late:
            self._service.count(timed_out=1)
            self._service.finish(job, CompileTimeout("time_limit_s", job.time_limit_s))
        else:
            self._service.count(given_up=1)
            # Nobody waits for it, unless the worker did what it was not asked to.
            self._service.finish(job, CompileFailed("the worker gave up the compile unasked"))

    def _adopt(self, job: Job, message: dict[str, Any], descriptors: list[int]) -> None:
        """Map the file of a result. One that does not fit its checksum is made again."""
        result: CompiledGrammar | CompileError
        try:
            if not descriptors:  # the system drops those that there is no room for
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            result = CompiledGrammar.load(descriptors[0], self._service.vocabulary)
        except GrammarError as error:
            self._service.count(damaged=1)
            job.damaged += 1
            if job.damaged <= self._bounds.max_retries:
                self._service.again(job)
                return
            result = CompileFailed(f"the result arrived damaged {job.damaged} times: {error}")
        except OSError as error:
            result = CompileFailed(f"the result could not be mapped: {error}")
        else:
            self._service.count(compiled=1, from_cache=message["from_cache"], unnamed=not message["kept"])
        self._service.finish(job, result)

    # --------------------------------------------------------------------------------------------- ends of workers
    def _ended(self, worker: WorkerProcess, *, killed: bool = False) -> None:
        """A worker has ended by itself, or is to be killed now because it is late."""
        is_late, has_begun = worker.is_late, worker.has_begun
        job = self._take_job(worker)
        how = self._remove(worker)
        service = self._service
        service.count(workers_died=not killed)
        if not worker.is_ready:
            self._failed_start(f"{how} after {self._bounds.start_limit_s:g} s" if killed else how)
        if job is None:
            return
        if not job.futures or is_late:
            self._stopped(job, is_late)
            return
        job.deaths += has_begun
        job.lost += not has_begun
        if job.deaths > self._bounds.max_retries:
            text = f"the worker ended in the middle of the compile ({how}), {job.deaths} times"
            service.finish(job, CompileWorkerDied(text))
        elif job.lost > self._bounds.max_failed_starts + self._most:
            service.finish(job, CompileWorkerDied(f"no worker begins; the last one ended with {how}"))
        else:
            service.again(job)

    def _remove(self, worker: WorkerProcess) -> str:
        assert self._selector is not None
        self._selector.unregister(worker.channel)
        with self._changed:
            self._workers.remove(worker)
        how = worker.end()
        # It may have been writing a file, or have given up a job at that moment.
        self._past_workers.append(worker.pid)
        if len(self._past_workers) > 100:
            self._sweep()
        return how

    def _sweep(self) -> None:
        cache.remove_temporaries(self._past_workers)
        self._past_workers.clear()
