"""The program of a text process: tokens from the ring, messages from the engine, until the engine's end closes.

It imports neither Numba nor torch, and is ready within a quarter of a second.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket

import numpy as np

from ..messages import Channel, Closed, contents
from . import protocol
from .answers import Answers, TokenBytes
from .in_process import final_of
from .output import Tokenizer
from .ring import Ring

#: Records taken from the ring at a time.
_MOST = 1024


def main(descriptor: int) -> None:
    """Serve the channel whose descriptor this process was started with."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: it is for the engine, and its end is ours
    channel = Channel(socket.socket(fileno=descriptor))
    try:
        settings, (ring, bell, tokens) = channel.receive()
        worker = _Worker(channel, Ring(ring, settings["capacity"]), bell, tokens, settings["tokenizer"])
        protocol.send(channel, protocol.READY)
        gc.collect()
        gc.freeze()
        worker.serve()
    except Closed:
        return


class _Worker:
    def __init__(self, channel: Channel, ring: Ring, bell: int, tokens: int, tokenizer: str | None) -> None:
        self._channel = channel
        self._ring = ring
        self._bell = bell
        with contents(tokens) as data:
            count = int(np.frombuffer(data, np.int64, 1)[0])
            offsets = np.frombuffer(data, np.int64, count + 1, 8).copy()
            self._answers = Answers(TokenBytes(data[8 * (count + 2) :], offsets))
        self._tokenizer = Tokenizer(tokenizer)
        self._poll = select.poll()
        self._poll.register(channel.fileno(), select.POLLIN)
        self._poll.register(bell, select.POLLIN)

    def serve(self) -> None:
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._bell:
                    self._take_tokens()
                else:
                    self._take_message()

    def _take_tokens(self) -> None:
        try:
            count = os.eventfd_read(self._bell)  # as many records as were written since the last time
        except BlockingIOError:
            return
        while count:
            records = self._ring.read(min(count, _MOST))
            count -= len(records)
            # The message that opens an answer was sent before its first token was written.
            newest = int(records["answer"].max())
            while not self._answers.is_known(newest):
                self._take_message()
            for ended in self._answers.take(records):
                final = final_of(ended)
                found = int(final.is_stopped)
                protocol.send(
                    self._channel, protocol.FINAL, final.number, final.kept, found, final.text, final.logprobs
                )
            self._ring.release()

    def _take_message(self) -> None:
        message, descriptors = self._channel.receive()
        if "open" in message:
            stops = [stop.encode() for stop in message["stops"]]
            self._answers.open(message["open"], stops, logprobs=message["logprobs"])
        elif "encode" in message:
            self._encode(message, descriptors)
        else:
            self._take_tokens()
            answer = self._answers.get(message["text"])
            text = "" if answer is None else answer.text
            protocol.send(self._channel, protocol.TEXT, message["text"], one=text.encode())

    def _encode(self, message: dict[str, object], descriptors: list[int]) -> None:
        number = message["encode"]
        assert isinstance(number, int)
        try:
            text = str(message["text"])
            if descriptors:
                with contents(descriptors[0]) as data:
                    text = bytes(data).decode()
            ids = np.asarray(self._tokenizer.encode(text), np.int32)
        except Exception as error:
            protocol.send(self._channel, protocol.FAILED, number, one=str(error)[:4000].encode("utf-8", "replace"))
        else:
            protocol.send(self._channel, protocol.IDS, number, one=ids.tobytes())
