"""The service's side of one worker process."""

from __future__ import annotations

import os
import pickle
import signal
from typing import Any

from ..messages import Channel, program_of, start_helper, unnamed_file
from .jobs import Job
from .limits import ServiceLimits

_PACKAGE = __name__.rpartition(".")[0]
#: What a worker calls for each job, and the program that makes a process a worker.
JOB_FUNCTION = f"{_PACKAGE}.worker:compile_job"
#: Libraries that would start threads of their own: a compile uses one.
_ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class WorkerProcess:
    """A worker: started, given one job at a time, and ended. All calls from one thread.

    It is a new interpreter, not a fork, and it does not import the script that started it.
    """

    def __init__(self, vocabulary: int, bounds: ServiceLimits, now: float) -> None:
        """Start it; `vocabulary` is the descriptor of the pickled vocabulary and limits. Raises OSError or
        `Closed` where that fails."""
        self.job: Job | None = None
        self._payload = -1
        self.is_ready = False
        #: Whether the job that runs is past its time, and whether the worker was asked to give it up.
        self.is_late = False
        self.was_told = False
        #: When the present state is over: starting, a job's time, or the time to give one up.
        self.deadline = now + bounds.start_limit_s
        self.job_since = 0.0
        self._bounds = bounds
        self.channel, theirs = Channel.pair()
        try:
            self._process = start_helper(
                program_of(f"{_PACKAGE}.worker"), theirs, _ENVIRONMENT,
                nice=bounds.nice, spare_processors=bounds.spare_processors,
            )  # fmt: skip
        except BaseException:
            self.channel.close()
            raise
        finally:
            theirs.close()
        settings = {"memory_limit_bytes": bounds.memory_limit_bytes, "function": JOB_FUNCTION}
        try:
            self.channel.send(settings, [vocabulary])
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def give(self, job: Job, now: float) -> None:
        """Let it compile. Raises `Closed` where it has ended; OSError where there is no descriptor for the message, and
        then it has no job."""
        self._payload = unnamed_file(job.request.payload)
        self.job = job
        self.job_since = now
        self.deadline = now + job.time_limit_s
        self.channel.send({"job": job.number, "cpu_limit_s": job.cpu_limit_s}, [self._payload])

    @property
    def has_begun(self) -> bool:
        """Whether it has begun its job: it then makes the payload's file a byte longer."""
        return self.job is not None and os.fstat(self._payload).st_size > len(self.job.request.payload)

    def ask_to_give_up(self, now: float) -> None:
        """Ask it to end the job that runs; it is late when it has not at `deadline`. Raises `Closed`."""
        assert self.job is not None
        self.was_told = True
        self.deadline = now + self._bounds.grace_s
        self.channel.send({"give_up": self.job.number})

    def take_job(self) -> Job | None:
        """The job it had, which is over."""
        job, self.job = self.job, None
        if self._payload >= 0:
            os.close(self._payload)
            self._payload = -1
        self.is_late = False
        self.was_told = False
        self.deadline = float("inf")
        return job

    def end(self) -> str:
        """Kill it if it still runs, and wait for its end, which is returned in words."""
        self.take_job()
        self.channel.close()
        self._process.kill()
        code = self._process.wait()
        if code >= 0:
            return f"exit code {code}"
        try:
            return f"signal {signal.Signals(-code).name}"
        except ValueError:
            return f"signal {-code}"

    def __repr__(self) -> str:
        return f"WorkerProcess(pid={self.pid}, ready={self.is_ready}, job={self.job and self.job.number})"


def packed_for_workers(vocabulary: Any, limits: Any) -> int:
    """The descriptor of an unnamed file that every worker reads its vocabulary and limits from."""
    return unnamed_file(pickle.dumps((vocabulary, limits), 5))
