"""Requests whose grammar or prompt is not there yet. They hold no slot, and no step waits for them."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...grammar.expression import Grammar
from .admission import Admission
from .request import Handle

if TYPE_CHECKING:
    from ..compile_service import CompileService


class Compiling:
    """Gives requests to the compile service, and to `enqueue` when everything they need is there.

    What fails ends its request with the error. `enqueue` is called on the thread that made it, and may raise ValueError
    for a request that cannot be served.
    """

    def __init__(
        self, service: CompileService | None, enqueue: Callable[[Handle], None], admission: Admission | None = None
    ) -> None:
        """`admission`: compiles take turns by its classes too."""
        self._service = service
        self._admission = admission
        self._enqueue = enqueue
        self._waiting: dict[Handle, list[Future[Any]]] = {}
        self._changed = threading.Lock()
        self._bell = -1

    @property
    def count(self) -> int:
        """Requests that something is not there for yet."""
        return len(self._waiting)

    def add(self, handle: Handle) -> None:
        """Take a request, from any thread.

        Raises what `CompileService.submit` raises, and ValueError for a grammar to compile where there is no service.
        """
        grammar, prompt_ids = handle.request.grammar, handle.request.prompt_ids
        if isinstance(grammar, (Grammar, Mapping)):
            if self._service is None:
                raise ValueError(
                    "the grammar is not compiled, and this engine has no compile service (Engine(compiler=...))"
                )
            group = "" if self._admission is None else self._admission.of(handle.request).name
            handle.compiling = self._service.submit(
                grammar, priority=handle.request.priority, tenant=handle.request.tenant, group=group
            )
        elif isinstance(grammar, Future):
            handle.compiling = grammar
        futures = [future for future in (handle.compiling, prompt_ids) if isinstance(future, Future)]
        if not futures:
            self._enqueue(handle)
            return
        with self._changed:
            if self._bell < 0:
                self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
                weakref.finalize(self, os.close, self._bell)
            self._waiting[handle] = list(futures)
        if handle.cancel_requested:
            handle.cancel()
        grammar = handle.compiling
        for future in futures:
            future.add_done_callback(lambda done: self._finish(handle, grammar, done))

    def descriptors(self) -> list[int]:
        """What can be read when something is there or, of a service that is polled, may be."""
        polled = [] if self._service is None or self._service.is_threaded else [self._service.fileno()]
        return [descriptor for descriptor in (self._bell, *polled) if descriptor >= 0]

    def patience(self) -> float | None:
        """Seconds until the service must be polled, whatever can be read; None: there is no such time."""
        return None if self._service is None or self._service.is_threaded else self._service.patience()

    def poll(self) -> None:
        """Let a service without a thread do what there is to do; between steps or during the forward pass."""
        if self._service is not None and not self._service.is_threaded:
            self._service.poll()

    def quiet(self) -> None:
        """Take note of what came: `descriptors` are readable again when more has come."""
        if self._bell >= 0:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._bell)

    def _finish(self, handle: Handle, grammar: Future[Any] | None, future: Future[Any]) -> None:
        """One of the futures that a request waits for, of which `grammar` is one, is done."""
        with self._changed:
            left = self._waiting.get(handle)
            if left is None:  # another one has failed
                return
            left.remove(future)
            error = None if future.cancelled() else future.exception()
            if left and error is None and not future.cancelled():
                return
        if future.cancelled():
            handle.finish_reason = "cancelled"
        elif error is not None:
            self._fail(handle, error)
        else:
            self._use(handle, grammar)
        with self._changed:
            del self._waiting[handle]
        handle.compiling = None
        for other in left:
            other.cancel()
        os.eventfd_write(self._bell, 1)

    def _use(self, handle: Handle, grammar: Future[Any] | None) -> None:
        """Everything is there."""
        request = handle.request
        if grammar is not None:
            request = replace(request, grammar=grammar.result())
        if isinstance(request.prompt_ids, Future):
            request = replace(request, prompt_ids=request.prompt_ids.result())
        handle.request = request
        handle.compiling = None
        try:
            self._enqueue(handle)
        except ValueError as error:
            self._fail(handle, error)

    def _fail(self, handle: Handle, error: BaseException) -> None:
        handle.error = error
        handle.finish_reason = "error"
