"""Text made by the step's own thread: the plain form, for small use."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .answers import END, Answers, Ended, TokenBytes
from .output import Final, Source, TextOutput, Tokenizer
from .ring import RECORD

if TYPE_CHECKING:
    from ...masks.vocabulary import Vocabulary


def final_of(ended: Ended) -> Final:
    """What is sent of an answer that is over."""
    answer = ended.answer
    text, logprobs = answer.whole.encode(), answer.logprobs.encode()
    return Final(ended.number, answer.kept, answer.is_stopped, text, logprobs)


def token_bytes(vocabulary: Vocabulary) -> TokenBytes:
    """The bytes of its tokens, looked up faster than in arrays."""
    return TokenBytes(vocabulary.token_bytes.tobytes(), vocabulary.token_offsets)


def encode_into(future: Future[list[int]], tokenizer: Tokenizer, text: str) -> None:
    """Encode a text now, unless nobody waits for it any more."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(tokenizer.encode(text))
    except Exception as error:
        future.set_exception(error)


class InProcessText(TextOutput):
    """See `TextOutput`. A token costs the step some 3 us, 8 us with log-probabilities."""

    def __init__(self, vocabulary: Vocabulary, *, tokenizer: str | Path | None = None) -> None:
        """`tokenizer`: a tokenizer.json, for `encode`."""
        self._answers = Answers(token_bytes(vocabulary))
        self._tokenizer = Tokenizer(tokenizer)
        self._record = np.zeros(1, RECORD)
        self._finals: list[Final] = []
        self._last = 0

    def open(self, source: Source, stops: Sequence[str], *, logprobs: bool) -> int:
        self._last += 1
        self._answers.open(self._last, [stop.encode() for stop in stops], logprobs=logprobs)
        return self._last

    def put(self, number: int, token: int, logprob: float) -> None:
        # Through a record, so that a log-probability is the same number here as in another process.
        self._record[0] = number, token, logprob
        self._finals += map(final_of, self._answers.take(self._record))

    def end(self, number: int) -> None:
        self.put(number, END, 0.0)

    def flush(self) -> None:
        """Nothing waits."""

    def finals(self) -> list[Final]:
        finals, self._finals = self._finals, []
        return finals

    def text_of(self, number: int) -> str:
        for final in self._finals:
            if final.number == number:
                return final.text.decode()
        answer = self._answers.get(number)
        return "" if answer is None else answer.text

    def encode(self, text: str) -> Future[list[int]]:
        future: Future[list[int]] = Future()
        encode_into(future, self._tokenizer, text)
        return future

    def fileno(self) -> int:
        return -1

    def patience(self) -> float | None:
        return None

    def close(self) -> None:
        """Nothing is held."""
