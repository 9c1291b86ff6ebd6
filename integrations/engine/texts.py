"""Which requests have text, and when that is complete: between the engine's handles and a `TextOutput`."""

from __future__ import annotations

from concurrent.futures import Future

from ..text.output import Final, TextOutput
from .request import FinishReason, Handle


class Texts:
    """Requests with text. The slot of one is free when its last token is made; the request is over when its text is.

    Another engine may have used `output` before: what that left behind is nobody's.
    """

    def __init__(self, output: TextOutput) -> None:
        self.output = output
        self._handles: dict[int, Handle] = {}
        self._reasons: dict[int, FinishReason] = {}
        #: What the step has made so far: number, token (None: the end), log-probability.
        self._made: list[tuple[int, int | None, float]] = []

    @property
    def ending(self) -> int:
        """Requests that have all their tokens, but not all of their text."""
        return len(self._reasons)

    def open(self, handle: Handle) -> None:
        """A request has a slot now."""
        request = handle.request
        if request.has_text:
            handle.answer = self.output.open(handle, request.stop, logprobs=request.logprobs)
            self._handles[handle.answer] = handle

    def put(self, handle: Handle, token: int, log_probability: float) -> None:
        """One more token of a request, with text or without."""
        if handle.answer is not None:
            self._made.append((handle.answer, token, log_probability if handle.request.logprobs else 0.0))

    def end(self, handle: Handle, reason: FinishReason) -> None:
        """The request has all its tokens."""
        number = handle.answer
        if number is None:
            handle.finish_reason = reason
        elif number in self._handles:
            self._reasons[number] = reason
            self._made.append((number, None, 0.0))

    def flush(self) -> None:
        """Hand over what was made since the last call."""
        for number, token, log_probability in self._made:
            if token is None:
                self.output.end(number)
            else:
                self.output.put(number, token, log_probability)
        self._made.clear()
        self.output.flush()

    def encode(self, text: str) -> Future[list[int]]:
        """`TextOutput.encode`."""
        self.flush()
        return self.output.encode(text)

    def text_of(self, number: int) -> str:
        """`TextOutput.text_of`, of everything that was made."""
        self.flush()
        return self.output.text_of(number)

    def take(self) -> list[Handle]:
        """Take the texts that are complete. The requests of them that still have a slot, which a stop string ended."""
        stopped = []
        for final in self.output.finals():
            handle = self._handles.pop(final.number, None)
            if handle is None:  # of an engine that was left before its requests were over
                continue
            reason = self._reasons.pop(final.number, None)
            self._finish(handle, final, "stop" if final.is_stopped or reason is None else reason)
            if reason is None:
                stopped.append(handle)
        return stopped

    def _finish(self, handle: Handle, final: Final, reason: FinishReason) -> None:
        # Of what was sampled while a stop string was being looked for nothing stays.
        del handle.token_ids[final.kept :]
        del handle.log_probabilities[final.kept :]
        if final.is_stopped:
            handle.error = None
        handle.final = final
        handle.finish_reason = reason
