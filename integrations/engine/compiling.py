"""Requests whose grammar is being compiled. They hold no slot, and no step waits for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...grammar.expression import Grammar
from .request import Handle

if TYPE_CHECKING:
    from ..compile_service import CompileService


class Compiling:
    """Gives requests to the compile service, and to `enqueue` when their grammar is there.

    A compile that fails ends its request with the error. `enqueue` is called on the service's thread.
    """

    def __init__(self, service: CompileService | None, enqueue: Callable[[Handle], None]) -> None:
        self._service = service
        self._enqueue = enqueue
        self._waiting: set[Handle] = set()
        self._changed = threading.Condition()

    @property
    def count(self) -> int:
        """Requests whose grammar is not there yet."""
        return len(self._waiting)

    def add(self, handle: Handle) -> None:
        """Take a request, from any thread.

        Raises what `CompileService.submit` raises, and ValueError for a grammar to compile where there is no service.
        """
        grammar = handle.request.grammar
        if not isinstance(grammar, (Future, Grammar, Mapping)):
            self._enqueue(handle)
            return
        if isinstance(grammar, Future):
            future: Future[Any] = grammar
        elif self._service is None:
            raise ValueError(
                "the grammar is not compiled, and this engine has no compile service (Engine(compiler=...))"
            )
        else:
            future = self._service.submit(grammar, priority=handle.request.priority, tenant=handle.request.tenant)
        with self._changed:
            self._waiting.add(handle)
        handle.compiling = future
        if handle.cancel_requested:
            future.cancel()
        future.add_done_callback(lambda done: self._finish(handle, done))

    def wait(self, is_there_work: Callable[[], bool]) -> None:
        """Wait in the operating system until a grammar is there, unless there is work or no grammar to wait for."""
        with self._changed:
            self._changed.wait_for(lambda: is_there_work() or not self._waiting)

    def _finish(self, handle: Handle, future: Future[Any]) -> None:
        handle.compiling = None
        if future.cancelled():
            handle.finish_reason = "cancelled"
        elif (error := future.exception()) is not None:
            handle.error = error
            handle.finish_reason = "error"
        else:
            handle.request = replace(handle.request, grammar=future.result())
            self._enqueue(handle)
        with self._changed:
            self._waiting.discard(handle)
            self._changed.notify_all()
