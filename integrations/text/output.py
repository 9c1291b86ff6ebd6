"""What the engine's loop does with the tokens it makes: one contract for text made here and text made elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


class Source(Protocol):
    """Where an answer's tokens are kept, from which its text can be made again."""

    token_ids: list[int]
    log_probabilities: list[float]


@dataclass(frozen=True)
class Final:
    """An answer whose text is complete."""

    #: The number that `TextOutput.open` gave.
    number: int
    #: How many of its tokens belong to it; what was sampled behind a stop string does not.
    kept: int
    #: Whether a stop string ended it.
    is_stopped: bool
    #: UTF-8 of its text and of its log-probabilities as JSON (b"" unless asked for); turned into strings by who wants
    #: them, not by the step.
    text: bytes
    logprobs: bytes


class TextOutput(ABC):
    """Takes the tokens of answers and makes their text. One thread uses it, the step's; no call but those that say so
    waits for anything.
    """

    @abstractmethod
    def open(self, source: Source, stops: Sequence[str], *, logprobs: bool) -> int:
        """A new answer, whose tokens will be appended to `source`. Returns its number."""

    @abstractmethod
    def put(self, number: int, token: int, logprob: float) -> None:
        """One more token; it is in the source already."""

    @abstractmethod
    def end(self, number: int) -> None:
        """No more tokens. The answer's `Final` comes later."""

    @abstractmethod
    def flush(self) -> None:
        """Let go of what was put since the last call; once a step."""

    @abstractmethod
    def finals(self) -> list[Final]:
        """The answers that are complete by now, each once."""

    @abstractmethod
    def text_of(self, number: int) -> str:
        """The text of an answer so far that nothing can change any more. May wait for another process."""

    @abstractmethod
    def encode(self, text: str) -> Future[list[int]]:
        """Token ids of a text, without tokens that the tokenizer would add of itself. Needs a tokenizer."""

    @abstractmethod
    def fileno(self) -> int:
        """A descriptor that can be read when there is something to take by `finals`; -1: there never is."""

    @abstractmethod
    def patience(self) -> float | None:
        """Seconds until `flush` and `finals` should be called in any case; None: there is no such time."""

    @abstractmethod
    def close(self) -> None:
        """Give up everything. May be called again."""

    def __enter__(self) -> TextOutput:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Tokenizer:
    """A tokenizer.json, read by the package `tokenizers` when it is first used."""

    def __init__(self, path: str | Path | None) -> None:
        self._path = path
        self._tokenizer: Any = None

    def encode(self, text: str) -> list[int]:
        """Token ids. Raises ValueError where there is no tokenizer, or it cannot encode the text."""
        if self._tokenizer is None:
            if self._path is None:
                raise ValueError("a text can only be encoded with a tokenizer (tokenizer=...)")
            from tokenizers import Tokenizer as Reader

            self._tokenizer = Reader.from_file(str(self._path))
        try:
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of the package's Rust code is no Exception
            raise ValueError(f"the text cannot be encoded: {error}") from error
        return ids
