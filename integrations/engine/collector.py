"""Python's garbage collector, kept out of the steps."""

from __future__ import annotations

import gc
from types import TracebackType


class StepCollector:
    """While this context lasts, garbage is collected in `between_steps` only, at the usual thresholds.

    What is there at the start is frozen (`gc.freeze`), so that collections look at nothing older: with a model and its
    libraries loaded a full collection takes 100 ms and more, afterwards some 10 us. What is garbage by then waits for
    the end, when everything is as it was before; a process that has frozen objects of its own keeps them so. May be
    nested.
    """

    def __init__(self) -> None:
        self._was_enabled = False
        self._has_frozen = False

    def __enter__(self) -> StepCollector:
        self._was_enabled = gc.isenabled()
        gc.disable()
        self._has_frozen = self._was_enabled and gc.get_freeze_count() == 0
        if self._has_frozen:
            gc.freeze()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._has_frozen:
            gc.unfreeze()
        if self._was_enabled:
            gc.enable()

    def between_steps(self) -> bool:
        """Collect the oldest generation whose time has come; whether there was one.

        Does nothing where the collector was off before: then it is the caller's.
        """
        if self._was_enabled:
            counts = gc.get_count()
            for generation, threshold in reversed(list(enumerate(gc.get_threshold()))):
                if counts[generation] > threshold > 0:
                    gc.collect(generation)
                    return True
        return False
