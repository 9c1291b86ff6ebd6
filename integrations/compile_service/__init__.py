"""Grammars compiled off the step, in worker processes: `CompileService`."""

from __future__ import annotations

from .errors import (
    CompileError,
    CompileFailed,
    CompileOutOfMemory,
    CompileQueueFull,
    CompileServiceClosed,
    CompileTimeout,
    CompileWorkerDied,
    GrammarTextTooLarge,
)
from .futures import CompileFuture
from .kept import ServiceCounts
from .limits import ServiceLimits
from .service import CompileService

__all__ = [
    "CompileError",
    "CompileFailed",
    "CompileFuture",
    "CompileOutOfMemory",
    "CompileQueueFull",
    "CompileService",
    "CompileServiceClosed",
    "CompileTimeout",
    "CompileWorkerDied",
    "GrammarTextTooLarge",
    "ServiceCounts",
    "ServiceLimits",
]
