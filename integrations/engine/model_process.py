"""A model in a process of its own, so that its forward pass goes on while the step's process does other things.

A forward pass on the CPU is work of the thread that calls it, and a second thread for it would run Python beside the
step. In another process it disturbs nothing, and the model becomes an `OverlappedModel`. Tokens and logits are in
memory that both share and that has no name; a forward pass costs two messages of some bytes and a copy of the logits.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import subprocess
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..messages import Channel, Closed, program_of, start_helper, unnamed_file
from .model import OverlappedForward, RunModel

_PROGRAM = program_of(f"{__name__.rpartition('.')[0]}.model_worker")
#: What a model raises that keeps its type; anything else becomes a RuntimeError.
_ERRORS: dict[str, type[Exception]] = {kind.__name__: kind for kind in (ValueError, TypeError, MemoryError, OSError)}


class ModelProcessEnded(RuntimeError):
    """The model's process has ended."""


class SharedArrays:
    """What goes in and out of a model with one cache: views of memory that two processes share.

    `tokens`, `positions` and `slots` are int32[rows], `prompt` int32[prefill_chunk], `logits` float32[rows, width].
    """

    def __init__(self, descriptor: int, rows: int, prefill_chunk: int, width: int) -> None:
        """`descriptor`: of a file that is made as large as needed; it is closed."""
        counts = (rows, rows, rows, prefill_chunk, rows * width)
        starts = np.cumsum([0, *(-(-4 * count // 64) * 64 for count in counts)]).tolist()
        try:
            os.ftruncate(descriptor, starts[-1])
            memory = mmap.mmap(descriptor, starts[-1])
        finally:
            os.close(descriptor)
        kinds = (np.int32, np.int32, np.int32, np.int32, np.float32)
        parts = [
            np.frombuffer(memory, kind, count, start) for kind, count, start in zip(kinds, counts, starts, strict=False)
        ]
        self.tokens, self.positions, self.slots, self.prompt = parts[:4]
        self.logits: npt.NDArray[Any] = parts[4].reshape(rows, width)


@dataclass(eq=False)
class RemoteCache:
    """A cache of the model, which is in the model's process."""

    number: int
    arrays: SharedArrays


class ModelProcess(OverlappedForward):
    """See `Model`, `RunModel` and `OverlappedModel`: those of the model that `load` makes, in a process of its own.

    `load`, which must be picklable (``functools.partial(LlamaModel.load, folder)``), is called in that process. Logits
    are those that the model makes here, bit for bit. If the process ends, every call raises `ModelProcessEnded`. It
    ends with this object, with `close`, and when this process does.
    """

    def __init__(self, load: Callable[[], RunModel]) -> None:
        """Start it, and wait until the model is loaded. Raises OSError where no process can be started, and what `load`
        raises; ValueError for a model that has no `decode_runs`.
        """
        self._channel, theirs = Channel.pair()
        try:
            self._process = start_helper(_PROGRAM, theirs)
        except BaseException:
            self._channel.close()
            raise
        finally:
            theirs.close()
        _CHANNELS.add(self._channel)
        #: Ends the process.
        self.close = weakref.finalize(self, _end, self._channel, self._process)
        self._begun = False
        self._last = 0
        payload = unnamed_file(pickle.dumps(load))
        try:
            self._send({}, [payload])
            answer = self._answer()
        except BaseException:
            self.close()
            raise
        finally:
            os.close(payload)
        self._width, self._prefill_chunk = int(answer["width"]), int(answer["prefill_chunk"])

    def __enter__(self) -> ModelProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    @property
    def vocabulary_size(self) -> int:
        return self._width

    @property
    def prefill_chunk(self) -> int:
        return self._prefill_chunk

    def open(self, slots: int, max_length: int) -> RemoteCache:
        """See `Model.open`."""
        self._last += 1
        descriptor = os.memfd_create("stepmask")
        try:
            self._send({"open": self._last, "slots": slots, "max_length": max_length}, [descriptor])
            self._answer()
        except BaseException:
            os.close(descriptor)
            raise
        cache = RemoteCache(self._last, SharedArrays(descriptor, slots, self._prefill_chunk, self._width))
        weakref.finalize(cache, _forget, self._channel, cache.number).atexit = False
        return cache

    def prefill(self, cache: RemoteCache, slot: int, tokens: npt.NDArray[np.int32], start: int) -> None:
        """See `Model.prefill`."""
        self._settle()
        cache.arrays.prompt[: len(tokens)] = tokens
        self._send({"prefill": cache.number, "slot": slot, "count": len(tokens), "start": start})
        self._answer()

    def begin(
        self,
        cache: RemoteCache,
        tokens: npt.NDArray[np.int32],
        positions: npt.NDArray[np.int32],
        slots: npt.NDArray[np.int32] | None,
    ) -> None:
        """See `OverlappedModel.begin`."""
        self._settle()
        arrays = cache.arrays
        arrays.tokens[:], arrays.positions[:] = tokens, positions
        if slots is not None:
            arrays.slots[:] = slots
        self._send({"decode": cache.number, "runs": slots is not None})
        self._begun = True

    def finish(self, cache: RemoteCache) -> npt.NDArray[np.float32]:
        """See `OverlappedModel.finish`."""
        self._begun = False
        self._answer()
        return cache.arrays.logits

    def _settle(self) -> None:
        """A forward pass that was begun and not finished, as the step failed, is over before anything else begins."""
        if self._begun:
            self._begun = False
            with contextlib.suppress(Exception):
                self._answer()

    def _send(self, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
        try:
            self._channel.send(message, descriptors or [])
        except (Closed, OSError) as error:
            raise self._ended() from error

    def _answer(self) -> dict[str, Any]:
        """The answer to what was sent last. Raises what the model raised."""
        try:
            answer, _ = self._channel.receive()
        except (Closed, OSError) as error:
            raise self._ended() from error
        if "error" in answer:
            raise _ERRORS.get(answer["error"], RuntimeError)(answer["text"])
        return answer

    def _ended(self) -> ModelProcessEnded:
        self.close()
        return ModelProcessEnded(f"the model's process has ended (exit code {self._process.poll()})")


#: Channels of processes that have not been ended. Keeps none alive.
_CHANNELS: weakref.WeakSet[Channel] = weakref.WeakSet()


def _end(channel: Channel, process: subprocess.Popen[bytes]) -> None:
    """Kill it, and wait for its end. In a forked child only what connects with it goes."""
    if channel in _CHANNELS:
        _CHANNELS.discard(channel)
        process.kill()
        process.wait()
    channel.close()


def _forget(channel: Channel, cache: int) -> None:
    """A cache is not needed any more."""
    if channel in _CHANNELS:
        with contextlib.suppress(Closed, OSError):
            channel.send({"close": cache})


def _leave_all() -> None:
    """In a forked child: the processes are the parent's, and must not outlive it because a child holds a channel."""
    for channel in list(_CHANNELS):
        _CHANNELS.discard(channel)
        channel.close()


os.register_at_fork(after_in_child=_leave_all)
