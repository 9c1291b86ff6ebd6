"""What a caller asks of the engine, and what it holds while the answer is made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ..text.output import Final
    from .engine import Engine

#: Why a request ended: an end token or a finished grammar; `max_tokens` or the model's length;
#: `Handle.cancel`; something went wrong in this request (`Handle.error` says what).
FinishReason = Literal["stop", "length", "cancelled", "error"]

#: Called on the step thread with (token id, its log-probability under the masked distribution or NaN).
TokenCallback = Callable[[int, float], None]


@dataclass(frozen=True)
class Request:
    """One prompt, and how its answer is to be made. Field names follow those of the usual servers.

    Sampling works on the distribution that is left after the grammar's mask: `temperature` 0 is greedy,
    `top_k` 0, `top_p` 1 and `min_p` 0 are off. Equal seeds give equal tokens for equal logits, whatever
    else is in the batch.
    """

    #: Token ids of the prompt, at least one; or a `concurrent.futures.Future` of them (`Engine.encode`), for which the
    #: request waits without a slot.
    prompt_ids: Sequence[int] | Future[list[int]]
    #: What the answer must match: a `stepmask.CompiledGrammar`; a `concurrent.futures.Future` of one; a
    #: `stepmask.Grammar`, or a specification as `CompileService.submit` takes it, which the engine's compile service
    #: compiles while the request holds no slot; or None.
    grammar: Any | None = None
    #: Longest answer in tokens, the end token not counted.
    max_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    #: End tokens of this request, besides the vocabulary's own.
    stop_token_ids: Sequence[int] = ()
    #: Do not end at the vocabulary's end tokens (those of `stop_token_ids` still end).
    ignore_eos: bool = False
    #: No end token before this many tokens, unless the grammar allows nothing else.
    min_tokens: int = 0
    #: Keep the log-probability of every token in `Result.log_probabilities`.
    logprobs: bool = False
    #: Whether to make the answer's text (`Handle.text`), and its log-probabilities as JSON where there are some.
    text: bool = False
    #: The answer ends before the first of these in its text, which it then has. Tokens behind are dropped.
    stop: Sequence[str] = ()
    #: Whose compiles go first, and whom this one counts for (`CompileService.submit`).
    priority: int = 0
    tenant: str = ""
    #: Its class, where the engine has some (`Admission`): "structured", "untrusted"; None: by whether it has a grammar.
    admission: str | None = None
    #: Called for every token as it is made. It runs on the step thread: keep it short.
    on_token: TokenCallback | None = None

    @property
    def has_text(self) -> bool:
        """Whether its text is made."""
        return self.text or len(self.stop) > 0

    def check(self, vocabulary_size: int, max_length: int) -> None:
        """Raise ValueError if a model of this width and length cannot serve the request."""
        prompt_ids = () if isinstance(self.prompt_ids, Future) else self.prompt_ids
        if len(prompt_ids) == 0 and not isinstance(self.prompt_ids, Future):
            raise ValueError("prompt_ids is empty: a prompt has at least one token")
        if len(prompt_ids) >= max_length:
            raise ValueError(f"the prompt has {len(prompt_ids)} tokens; max_length {max_length} leaves no room")
        # What is no UTF-8 (a lone surrogate) raises UnicodeEncodeError, which is a ValueError.
        if isinstance(self.stop, str) or not all(stop.encode() for stop in self.stop):
            raise ValueError("stop must be a sequence of texts that are not empty")
        for name, tokens in (("prompt_ids", prompt_ids), ("stop_token_ids", self.stop_token_ids)):
            if any(not 0 <= token < vocabulary_size for token in tokens):
                raise ValueError(f"{name} has an id outside 0..{vocabulary_size - 1}")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, not {self.max_tokens}")
        if not 0 <= self.min_tokens <= self.max_tokens:
            raise ValueError(f"min_tokens must be between 0 and max_tokens, not {self.min_tokens}")
        if not (math.isfinite(self.temperature) and self.temperature >= 0.0):
            raise ValueError(f"temperature must be 0 (greedy) or above, not {self.temperature}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be 0 (off) or above, not {self.top_k}")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if not 0.0 <= self.min_p <= 1.0:
            raise ValueError(f"min_p must be between 0 and 1, not {self.min_p}")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be between 0 and 2**63 - 1, not {self.seed}")


@dataclass(frozen=True)
class Result:
    """A finished answer."""

    #: The answer's tokens, without the end token.
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    #: What went wrong, where `finish_reason` is "error".
    error: BaseException | None = None
    #: One number a token, natural logarithm; empty unless `Request.logprobs`.
    log_probabilities: tuple[float, ...] = ()
    #: Its text, and its log-probabilities as a JSON array of {"token", "logprob", "bytes"}; "" unless asked for.
    text: str = ""
    logprobs_json: str = ""


@dataclass(eq=False)
class Handle:
    """A request in the engine. Iterating over it gives the tokens as they are made."""

    request: Request
    engine: Engine = field(repr=False)
    #: Its place in the order in which the engine's requests came, from 1.
    number: int = 0
    #: Tokens made so far, without the end token.
    token_ids: list[int] = field(default_factory=list)
    log_probabilities: list[float] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    error: BaseException | None = None
    #: Set by `cancel`; the engine acts on it at its next step.
    cancel_requested: bool = False
    #: The compile that the request waits for before it can have a slot.
    compiling: Future[Any] | None = field(default=None, repr=False)
    #: The number of its text, where it has one and a slot, and the text when it is complete.
    answer: int | None = None
    final: Final | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """What the recorder calls it."""
        return f"request {self.number}" + (f" of {self.request.tenant}" if self.request.tenant else "")

    @property
    def prompt(self) -> Sequence[int]:
        """Token ids of the prompt of a request that has a slot or had one."""
        prompt_ids = self.request.prompt_ids
        return prompt_ids.result() if isinstance(prompt_ids, Future) else prompt_ids

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def text(self) -> str:
        """The text so far, without what a stop string might yet take away; "" unless the request asks for text."""
        if self.final is not None:
            return self.final.text.decode()
        return "" if self.answer is None else self.engine.text_of(self.answer)

    def cancel(self) -> None:
        """Stop this request at the engine's next step, or what it waits for at once (also a future that it came with).

        May be called from any thread; no effect when finished.
        """
        self.cancel_requested = True
        for future in (self.compiling, self.request.prompt_ids):
            if isinstance(future, Future):
                future.cancel()

    def __iter__(self) -> Iterator[int]:
        """The tokens, from the first, each as soon as it is there. Runs the engine's steps as needed."""
        position = 0
        while True:
            while position < len(self.token_ids):
                yield self.token_ids[position]
                position += 1
            if self.is_finished:
                return
            self.engine.step_or_wait()

    def result(self) -> Result:
        """Run the engine until this request is finished. An "error" is reported in the result, not raised."""
        self.engine.run(until=lambda: self.is_finished)
        assert self.finish_reason is not None
        logprobs = "" if self.final is None else self.final.logprobs.decode()
        return Result(
            tuple(self.token_ids), self.finish_reason, self.error, tuple(self.log_probabilities), self.text, logprobs
        )
