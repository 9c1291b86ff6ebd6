"""The program of a model's process: forward passes for `model_process`, until the other end of the channel closes."""

from __future__ import annotations

import pickle
import signal
import socket
from typing import Any

from ..messages import Channel, Closed, contents
from .model import RunModel
from .model_process import SharedArrays


def main(descriptor: int) -> None:
    """Serve the channel whose descriptor this process was started with."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: it is for the engine, and its end is ours
    channel = Channel(socket.socket(fileno=descriptor))
    worker: _Worker | None = None
    try:
        while True:
            message, descriptors = channel.receive()
            try:
                if worker is None:
                    worker = _Worker(contents(*descriptors))
                    answer: dict[str, Any] | None = {
                        "width": worker.model.vocabulary_size,
                        "prefill_chunk": worker.model.prefill_chunk,
                    }
                else:
                    answer = worker.take(message, descriptors)
            except Exception as error:
                answer = {"error": type(error).__name__, "text": str(error)[:10_000]}
            if answer is not None:
                channel.send(answer)
    except Closed:
        return


class _Worker:
    def __init__(self, payload: Any) -> None:
        with payload:
            load = pickle.loads(payload[:])
        self.model: Any = load()
        if not isinstance(self.model, RunModel):
            raise ValueError("this model's forward pass takes one token a slot (it has no decode_runs)")
        #: By number: a cache, and what goes in and out with it.
        self._caches: dict[int, tuple[Any, SharedArrays]] = {}

    def take(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any] | None:
        """Do what a message asks for; the answer, if it has one."""
        model = self.model
        if "open" in message:
            slots, (descriptor,) = message["slots"], descriptors
            arrays = SharedArrays(descriptor, slots, model.prefill_chunk, model.vocabulary_size)
            self._caches[message["open"]] = model.open(slots, message["max_length"]), arrays
        elif "close" in message:
            del self._caches[message["close"]]
            return None
        elif "prefill" in message:
            cache, arrays = self._caches[message["prefill"]]
            model.prefill(cache, message["slot"], arrays.prompt[: message["count"]].copy(), message["start"])
        else:
            cache, arrays = self._caches[message["decode"]]
            # Copies, as a model may keep or change what it is given.
            tokens, positions = arrays.tokens.copy(), arrays.positions.copy()
            if message["runs"]:
                arrays.logits[:] = model.decode_runs(cache, tokens, positions, arrays.slots.copy())
            else:
                arrays.logits[:] = model.decode(cache, tokens, positions)
        return {}
