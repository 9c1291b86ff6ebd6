"""Every limit of the compile service, in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class ServiceLimits:
    """Limits of a `CompileService`, besides the `stepmask.Limits` that bound the counted work of one compile.

    Costs were measured with the Llama 3 vocabulary (128,256 tokens) on two busy cores.
    """

    #: Seconds of the clock that one job may take in its worker; waiting in the queue does not count. Past it the
    #: job's requests get `CompileTimeout`. A backstop: it also ends what waits for a disk or a stopped processor.
    time_limit_s: float = 60.0
    #: Seconds of processor time that one job may take. Past it `CompileTimeout`, however busy the machine is.
    cpu_limit_s: float = 20.0
    #: Bytes of address space that one job may add to its worker. Past it `CompileOutOfMemory`, and the worker is
    #: replaced. A worker itself holds about 260 MB, 100 MB of it shared files; 50,000 options of 12 bytes add 90 MB.
    memory_limit_bytes: int = 2 << 30
    #: Seconds that a worker has to give up a job that was cancelled or is late. It does so within milliseconds, unless
    #: it is in a long call of a library. Then it is killed and replaced, which takes 1.5 s of one core.
    grace_s: float = 0.5
    #: Seconds from starting a worker until it is ready. Past it the worker is killed. It takes 1.5 s of one core where
    #: the kernels are in Numba's cache, a minute where they have to be compiled first (`stepmask.warm_up`).
    start_limit_s: float = 180.0
    #: Workers that end one after the other before they are ready, until all that waits gets `CompileWorkerDied`. A job
    #: may be given to so many more workers than there are at once that end before they begin it.
    max_failed_starts: int = 3
    #: Times that a job is given to another worker after its worker died in the middle. Then `CompileWorkerDied`.
    max_retries: int = 1
    #: Jobs that wait for a worker; requests that share a job count once. Past it `submit` raises `CompileQueueFull`.
    max_queue: int = 1024
    #: The same for one tenant.
    max_queue_per_tenant: int = 1024
    #: Bytes of all jobs that wait. Past it `submit` raises `CompileQueueFull`.
    max_queue_bytes: int = 64 << 20
    #: UTF-8 bytes of a grammar's text. Past it `submit` raises `GrammarTextTooLarge`. It takes the caller about
    #: 3 ms for each megabyte.
    max_text_bytes: int = 4 << 20
    #: Bytes of the specifications asked about last that are remembered, with what was made of them, so that the same
    #: one is not checked and packed again: 10 us instead of 0.6 ms for 12 kB, 0.6 instead of 3 ms for 0.9 MB. Past it
    #: the oldest ones go.
    max_admitted_bytes: int = 16 << 20
    #: JSON texts up to this size are parsed by `submit` already, so that a syntax error is known at once; about
    #: 0.2 ms for this many bytes. Larger ones are parsed in the worker alone.
    max_checked_json_bytes: int = 32 << 10
    #: Answers of workers that one `poll` of a service without a thread takes, about 0.7 ms of processor time each; the
    #: rest waits for the next one.
    max_answers_per_poll: int = 1
    #: Compiled grammars that are kept for the next request, the last used ones: 2 to 200 kB each as a rule. From
    #: `masks.cache.MAP_FROM` bytes on they are the mapped file, which the system can drop from memory. Past it a worker
    #: takes the grammar from the cache on disk.
    max_kept: int = 256
    #: Grammar errors that are kept for the next request, about 1 kB each. Past it the grammar is tried again.
    max_kept_errors: int = 1024
    #: How much less than others workers get of a busy processor (`os.nice`): the step has precedence.
    nice: int = 5
    #: Processors that workers keep off, which the step then has to itself: the first ones of those that the
    #: engine's process may use, unless these are all. `nice` is not enough: whoever is woken on the step's processor
    #: has it for a millisecond. 0: none.
    spare_processors: int = 1

    def __post_init__(self) -> None:
        """Raises ValueError for a limit that no request could keep."""
        positive = (
            "max_failed_starts", "max_queue", "max_queue_per_tenant", "max_queue_bytes", "max_answers_per_poll",
        )  # fmt: skip
        least = dict.fromkeys(positive, 1)
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_s"):
                if not (math.isfinite(value) and value > 0):
                    raise ValueError(f"{field.name} must be a positive number of seconds, not {value}")
            elif value < least.get(field.name, 0):
                raise ValueError(f"{field.name} must be at least {least.get(field.name, 0)}, not {value}")
