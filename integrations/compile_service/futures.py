"""What a caller holds while a grammar is compiled."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any

from ...masks.compiled import CompiledGrammar


class CompileFuture(Future[CompiledGrammar]):
    """The result of one `CompileService.submit`: a `concurrent.futures.Future` that can also be awaited.

    `cancel` works until the result is there. It ends this request; the compile itself is given up when nobody else
    waits for it. Callbacks run on the service's thread (or the caller's, where the result was there already, or was
    cancelled): keep them short.
    """

    def __init__(self) -> None:
        super().__init__()
        self._on_cancel: Callable[[], None] | None = None

    def cancel(self) -> bool:
        """Give up this request. False where it is finished already."""
        cancelled = super().cancel()
        on_cancel, self._on_cancel = self._on_cancel, None
        if cancelled and on_cancel is not None:
            on_cancel()
        return cancelled

    def on_cancel(self, action: Callable[[], None]) -> None:
        """Call `action` once, when `cancel` has worked. For the service."""
        self._on_cancel = action

    def succeed(self, compiled: CompiledGrammar) -> None:
        """Set the result, unless cancelled. For the service."""
        self._on_cancel = None
        if self.set_running_or_notify_cancel():
            self.set_result(compiled)

    def fail(self, error: BaseException) -> None:
        """Set the error, unless cancelled. For the service."""
        self._on_cancel = None
        if self.set_running_or_notify_cancel():
            self.set_exception(error)

    def __await__(self) -> Generator[Any, None, CompiledGrammar]:
        """Wait in asyncio's running loop. Cancelling the task that waits cancels this request."""
        import asyncio  # here, because workers import this module too

        return asyncio.wrap_future(self).__await__()
