"""Answers as text: the bytes of tokens, UTF-8, stop strings, log-probabilities as JSON. Knows nothing of processes."""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: The token of a record that says that an answer has ended.
END = -1


class TokenBytes:
    """The bytes of every token: those of id i are data[offsets[i]:offsets[i + 1]]."""

    def __init__(self, data: bytes, offsets: npt.NDArray[np.int64]) -> None:
        self._data = data
        self._offsets = offsets.tolist()

    def __getitem__(self, token: int) -> bytes:
        """b"" for an id that is no text, padding ids among them."""
        offsets = self._offsets
        return self._data[offsets[token] : offsets[token + 1]] if 0 <= token < len(offsets) - 1 else b""


class AnswerText:
    """The text of one answer. It ends before the first stop string that its bytes hold.

    The first is the one that ends first, of those the longest: so it does not matter how the bytes are cut into tokens.
    """

    def __init__(self, stops: Sequence[bytes] = (), *, logprobs: bool = False) -> None:
        self._bytes = bytearray()
        self._stops = stops
        self._logprobs: list[str] | None = [] if logprobs else None
        #: Tokens that belong to the answer, those of a stop string included, but nothing after it.
        self.kept = 0
        self.is_stopped = False

    def add(self, piece: bytes, logprob: float) -> None:
        """Append a token, of which `piece` are the bytes; no effect behind a stop string."""
        if self.is_stopped:
            return
        data, before = self._bytes, len(self._bytes)
        data += piece
        self.kept += 1
        if self._logprobs is not None:
            token = piece.decode("utf-8", "replace")
            self._logprobs.append(json.dumps({"token": token, "logprob": logprob, "bytes": list(piece)}))
        found = []
        for stop in self._stops:
            at = data.find(stop, max(0, before - len(stop) + 1))
            if at >= 0:
                found.append((at + len(stop), at))
        if found:
            del data[min(found)[1] :]
            self.is_stopped = True

    @property
    def text(self) -> str:
        """What is there for certain: without what may yet be the beginning of a stop string or half a character."""
        if self.is_stopped:
            return self.whole
        data = self._bytes
        held = 0
        for stop in self._stops:
            for n in range(min(len(stop) - 1, len(data)), held, -1):
                if data.endswith(stop[:n]):
                    held = n
                    break
        return codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(data[: len(data) - held]), final=False)

    @property
    def whole(self) -> str:
        """All of it, when nothing more will come. Bytes that are no UTF-8 become U+FFFD."""
        return self._bytes.decode("utf-8", "replace")

    @property
    def logprobs(self) -> str:
        """A JSON array of one object a token, as the usual servers have it; "" unless asked for."""
        return "" if self._logprobs is None else f"[{', '.join(self._logprobs)}]"


@dataclass(frozen=True)
class Ended:
    """An answer that is over: by its end, or (`is_stopped`) because a stop string was found."""

    number: int
    answer: AnswerText


class Answers:
    """The answers that are being written, by number."""

    def __init__(self, tokens: TokenBytes) -> None:
        self._tokens = tokens
        self._open: dict[int, AnswerText] = {}
        self._last = 0

    def open(self, number: int, stops: Sequence[bytes], *, logprobs: bool) -> None:
        """Begin an answer. Numbers grow."""
        self._open[number] = AnswerText(stops, logprobs=logprobs)
        self._last = number

    def is_known(self, number: int) -> bool:
        """Whether the answer was begun, also where it is over."""
        return number <= self._last

    def get(self, number: int) -> AnswerText | None:
        """An answer that is not over."""
        return self._open.get(number)

    def take(self, records: npt.NDArray[np.void]) -> list[Ended]:
        """Append tokens; the answers that are over with that. What comes for an answer that is over is dropped."""
        ended = []
        for number, token, logprob in records.tolist():
            answer = self._open.get(number)
            if answer is None:
                continue
            if token != END:
                answer.add(self._tokens[token], logprob)
            if token == END or answer.is_stopped:
                del self._open[number]
                ended.append(Ended(number, answer))
        return ended
