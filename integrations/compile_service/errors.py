"""What can go wrong with a compile besides the grammar itself. None of these says that the grammar is invalid."""

from __future__ import annotations

from ...grammar.errors import GrammarError


class CompileError(RuntimeError):
    """A grammar was not compiled for a reason that is not the grammar's, so it may be tried again."""


class CompileQueueFull(CompileError):
    """Refused at once: too much is waiting already. `limit` is the field of `ServiceLimits` that was reached."""

    def __init__(self, message: str, limit: str) -> None:
        super().__init__(f"{message} (ServiceLimits.{limit})")
        self.limit = limit


class CompileTimeout(CompileError):
    """The job passed `seconds` of the clock (`limit` "time_limit_s") or of the processor ("cpu_limit_s")."""

    def __init__(self, limit: str, seconds: float) -> None:
        of = "processor time" if limit == "cpu_limit_s" else "time"
        super().__init__(f"compiling took more than {seconds:g} s of {of} (ServiceLimits.{limit})")
        self.limit = limit
        self.seconds = seconds


class CompileOutOfMemory(CompileError):
    """The job asked for more than `ServiceLimits.memory_limit_bytes`."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"compiling took more than {limit_bytes} bytes of memory (ServiceLimits.memory_limit_bytes)")
        self.limit_bytes = limit_bytes


class CompileWorkerDied(CompileError):
    """The worker ended in the middle of the job, and so did the one that the job was given to after it."""


class CompileServiceClosed(CompileError):
    """The service was closed before the job was done, or is closed already."""


class CompileFailed(CompileError):
    """An error inside the worker that is no error of the grammar; the message holds the worker's traceback."""


class GrammarTextTooLarge(GrammarError):
    """The text is larger than the service reads (`ServiceLimits.max_text_bytes`)."""
