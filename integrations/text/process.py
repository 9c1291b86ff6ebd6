"""The engine's side of a text process: tokens go out over a ring, and complete answers come back."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import struct
import time
import weakref
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..messages import MAX_MESSAGE, Closed, unnamed_file
from . import protocol
from .answers import END, Answers
from .connection import Connection, give_up
from .in_process import encode_into, final_of, token_bytes
from .limits import TextLimits
from .output import Final, Source, TextOutput, Tokenizer
from .ring import RECORD

if TYPE_CHECKING:
    from ...masks.vocabulary import Vocabulary

#: Records that are collected before they go into the ring, at most.
_BLOCK = 256
#: `RECORD`, for one at a time.
_RECORD = struct.Struct("<qif")
#: Seconds after which an engine that has nothing else to do looks again whether a full ring has room.
_RETRY_S = 0.005


@dataclass
class _Open:
    """An answer that has no `Final` yet."""

    source: Source
    stops: list[str]
    logprobs: bool
    has_ended: bool = False


@dataclass
class TextCounts:
    """What a `TextProcess` has done so far."""

    #: Records written to the ring, those of answers that were made again included.
    written: int = 0
    #: Calls of `flush` that left records waiting in the engine because the ring was full, and the most that waited.
    full: int = 0
    most_waiting: int = 0
    #: Processes started, and those that ended or were ended because they did nothing.
    started: int = 0
    died: int = 0
    #: Answers that were made again from their tokens.
    rebuilt: int = 0


class TextProcess(TextOutput):
    """See `TextOutput`: token bytes, stop strings, log-probabilities and tokenising are another process's work.

    The step writes one record of 24 bytes for each token; it takes some 0.3 us a token and 10 us a step. Stop strings
    are found a step or more later: what was sampled meanwhile is dropped, so answers are those of `InProcessText`.
    Where the process ends, another one makes the text again from the tokens that the engine has; where none can be had,
    this process makes it (`pid` is None then). Nothing is left behind, however either process ends: the ring has no
    name, and the text process ends with its channel.
    """

    def __init__(
        self, vocabulary: Vocabulary, *, tokenizer: str | Path | None = None, bounds: TextLimits | None = None
    ) -> None:
        """Start it; it is ready some 0.3 s later, and what is put meanwhile waits in the ring. `tokenizer`: a
        tokenizer.json, for `encode`. Raises OSError where no process can be started.
        """
        self.bounds = bounds or TextLimits()
        self.counts = TextCounts()
        offsets = np.ascontiguousarray(vocabulary.token_offsets, np.int64)
        head = np.array([len(offsets) - 1], np.int64)
        self._tokens = unnamed_file(head.tobytes() + offsets.tobytes() + vocabulary.token_bytes.tobytes())
        self._tokenizer = None if tokenizer is None else str(tokenizer)
        self._vocabulary = vocabulary
        self._answers: Answers | None = None  # makes the text where no process does
        self._open: dict[int, _Open] = {}
        self._encoding: dict[int, tuple[str, Future[list[int]]]] = {}
        self._last = 0
        self._bytes = bytearray(_BLOCK * RECORD.itemsize)
        self._block = np.frombuffer(self._bytes, RECORD)
        self._count = 0
        self._waiting: deque[npt.NDArray[np.void]] = deque()
        self._messages: deque[tuple[dict[str, Any], bytes]] = deque()
        self._finals: list[Final] = []
        self._texts: dict[int, str] = {}
        self._failures = 0
        self._progress = time.monotonic()
        self._unread = 0
        self._worker: Connection | None = None
        #: Ends the process, also when this object goes away or the interpreter ends.
        self._finalizer: Any = weakref.finalize(self, os.close, self._tokens)
        self._start()

    # ------------------------------------------------------------------------------------------------- for the step
    def open(self, source: Source, stops: Sequence[str], *, logprobs: bool) -> int:
        self._last += 1
        self._begin(self._last, _Open(source, list(stops), logprobs))
        return self._last

    def put(self, number: int, token: int, logprob: float) -> None:
        self._append(number, token, logprob)

    def end(self, number: int) -> None:
        answer = self._open.get(number)
        if answer is not None:
            answer.has_ended = True
            self._append(number, END, 0.0)

    def flush(self) -> None:
        worker = self._worker
        if worker is None or not (self._count or self._waiting or self._messages):
            return
        try:
            self._send_messages(worker)
        except Closed:
            self._replace()
            return
        written = 0
        # A token never overtakes the message that opens its answer.
        if not (self._waiting or self._messages):
            written = worker.ring.write(self._block[: self._count])
        if written < self._count:
            self._waiting.append(self._block[written : self._count].copy())
        self._count = 0
        while self._waiting and not self._messages:
            block = self._waiting[0]
            n = worker.ring.write(block)
            written += n
            if n < len(block):
                self._waiting[0] = block[n:]
                break
            self._waiting.popleft()
        if self._waiting:
            self.counts.full += 1
            self.counts.most_waiting = max(self.counts.most_waiting, sum(map(len, self._waiting)))
        if written:
            self.counts.written += written
            os.eventfd_write(worker.bell, written)

    def finals(self) -> list[Final]:
        self._receive_all()
        self._end_if_stalled()
        finals, self._finals = self._finals, []
        return finals

    def fileno(self) -> int:
        return -1 if self._worker is None else self._worker.channel.fileno()

    def patience(self) -> float | None:
        if self._worker is None:
            return None
        return _RETRY_S if self._waiting or self._messages else self.bounds.stall_s

    # ------------------------------------------------------------------------------------------------ for the others
    def text_of(self, number: int) -> str:
        """Waits for the process; what was put before is in the text."""
        asked: Connection | None = None
        while number in self._open and self._worker is not None:
            self.flush()
            if self._worker is not asked:  # another one does not know that it was asked
                asked = self._worker
                self._messages.append(({"text": number}, b""))
                continue
            if number in self._texts:
                return self._texts.pop(number)
            self._wait(self.patience() or 0.0)
            self._receive_all()
            self._end_if_stalled()
        for final in self._finals:
            if final.number == number:
                return final.text.decode()
        answer = None if self._answers is None else self._answers.get(number)
        return "" if answer is None else answer.text

    def encode(self, text: str) -> Future[list[int]]:
        future: Future[list[int]] = Future()
        self._last += 1
        self._encoding[self._last] = text, future
        self._ask_to_encode(self._last, text)
        self.flush()
        return future

    def wait_until_ready(self, timeout: float) -> bool:
        """Whether the process is ready, at the latest after so many seconds."""
        end = time.monotonic() + timeout
        while self._worker is not None and not self._worker.is_ready and time.monotonic() < end:
            self._wait(end - time.monotonic())
            self._receive_all()
        return self._worker is not None and self._worker.is_ready

    @property
    def pid(self) -> int | None:
        """The process's number, None where there is none."""
        return None if self._worker is None else self._worker.process.pid

    def close(self) -> None:
        """End the process. Answers that are not complete will not be."""
        self._end_worker()
        self._finalizer()
        for _, future in self._encoding.values():
            future.cancel()
        self._encoding.clear()
        self._open.clear()

    # --------------------------------------------------------------------------------------------------- the process
    def _start(self) -> None:
        self._worker = Connection(self._tokens, self._tokenizer, self.bounds)
        self._finalizer.detach()
        self._finalizer = weakref.finalize(self, give_up, self._worker, self._tokens)
        self.counts.started += 1
        self._progress, self._unread = time.monotonic(), 0

    def _end_worker(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def _replace(self) -> None:
        """The process has ended. Another one gets everything again that is not complete."""
        worker = self._worker
        assert worker is not None
        self.counts.died += 1
        self._failures = 1 if worker.has_worked else self._failures + 1
        self._end_worker()
        self._messages.clear()
        self._waiting.clear()
        self._count = 0
        if self._failures < self.bounds.max_failed_starts:
            with contextlib.suppress(OSError):
                self._start()
        if self._worker is None:
            self._answers = Answers(token_bytes(self._vocabulary))
        for number, answer in list(self._open.items()):
            self.counts.rebuilt += 1
            self._begin(number, answer)
            tokens = answer.source.token_ids
            logprobs = answer.source.log_probabilities if answer.logprobs else [0.0] * len(tokens)
            for token, logprob in zip(tokens, logprobs, strict=True):
                self._append(number, token, logprob)
            if answer.has_ended:
                self._append(number, END, 0.0)
        for number, (text, _) in list(self._encoding.items()):
            self._ask_to_encode(number, text)

    def _end_if_stalled(self) -> None:
        worker = self._worker
        if worker is None:
            return
        unread = worker.ring.unread
        now = time.monotonic()
        if not (unread or self._waiting or self._encoding) or unread < self._unread:
            self._progress = now
        self._unread = unread
        if now - self._progress > self.bounds.stall_s:
            self._replace()

    # ----------------------------------------------------------------------------------------------------- messages
    def _begin(self, number: int, answer: _Open) -> None:
        self._open[number] = answer
        if self._answers is not None:
            self._answers.open(number, [stop.encode() for stop in answer.stops], logprobs=answer.logprobs)
        else:
            self._messages.append(({"open": number, "stops": answer.stops, "logprobs": answer.logprobs}, b""))

    def _ask_to_encode(self, number: int, text: str) -> None:
        if self._worker is None:
            _, future = self._encoding.pop(number)
            encode_into(future, Tokenizer(self._tokenizer), text)
            return
        data = text.encode("utf-8", "surrogatepass")
        large = len(data) > MAX_MESSAGE // 8  # JSON may need six bytes for one
        self._messages.append(({"encode": number, "text": "" if large else text}, data if large else b""))

    def _append(self, number: int, token: int, logprob: float) -> None:
        if self._count == len(self._block):
            self._waiting.append(self._block.copy())
            self._count = 0
        _RECORD.pack_into(self._bytes, RECORD.itemsize * self._count, number, token, logprob)
        self._count += 1
        if self._answers is not None:
            for ended in self._answers.take(self._block[: self._count]):
                del self._open[ended.number]
                self._finals.append(final_of(ended))
            self._count = 0

    def _send_messages(self, worker: Connection) -> None:
        while self._messages:
            message, data = self._messages[0]
            try:
                if data:
                    descriptor = unnamed_file(data)
                    try:
                        worker.channel.send(message, [descriptor], wait=False)
                    finally:
                        os.close(descriptor)
                else:
                    worker.channel.send(message, wait=False)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS):
                    raise
                return
            self._messages.popleft()

    def _receive_all(self) -> None:
        while self._worker is not None and self._worker.poll.poll(0):
            try:
                message = protocol.receive(self._worker.channel)
            except Closed:
                self._replace()
                return
            self._progress = time.monotonic()
            self._take(self._worker, *message)

    def _take(
        self, worker: Connection, kind: int, number: int, kept: int, stopped: int, one: bytes, two: bytes
    ) -> None:
        if kind == protocol.READY:
            worker.is_ready = True
            return
        worker.has_worked = True
        if kind == protocol.FINAL:
            del self._open[number]
            self._finals.append(Final(number, kept, bool(stopped), one, two))
        elif kind == protocol.TEXT:
            if number in self._open:
                self._texts[number] = one.decode()
        else:
            _, future = self._encoding.pop(number)
            if not future.set_running_or_notify_cancel():
                return
            if kind == protocol.IDS:
                future.set_result(np.frombuffer(one, np.int32).tolist())
            else:
                future.set_exception(ValueError(one.decode("utf-8", "replace")))

    def _wait(self, seconds: float) -> None:
        if self._worker is not None:
            select.select([self._worker.channel], [], [], max(0.0, seconds))
