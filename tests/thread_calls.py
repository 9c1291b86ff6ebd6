"""What threads run in Python, counted call by call."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def counted_calls() -> Iterator[Counter[tuple[str, str]]]:
    """Calls of Python's functions and of C's in threads begun meanwhile: (thread, "" while it begins; function)."""
    seen: Counter[tuple[str, str]] = Counter()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        name = frame.f_code.co_name if event == "call" else argument.__name__ if event == "c_call" else None
        # Not `current_thread`, which would register a thread that is only just beginning as another one.
        thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
        if name is not None:
            seen["" if thread is None else thread.name, name] += 1

    threading.setprofile(note)
    try:
        yield seen
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
