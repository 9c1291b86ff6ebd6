"""What the text process and the engine say to one another besides the ring's records: small messages with a head.

From the engine: JSON (`Channel.send`), {"open": number, "stops": [...], "logprobs": ...}, {"text": number} or
{"encode": number, "text": ...} (or a descriptor of the text). From the text process: a head and two texts, beside them
or, where they are large, in a file without a name.
"""

from __future__ import annotations

import os
import struct

from ..messages import Channel, contents, unnamed_file

#: Kinds of messages of the text process: it is ready; an answer is complete; the text so far that was asked for; token
#: ids that were asked for, int32; the same, but that failed.
READY, FINAL, TEXT, IDS, FAILED = range(5)
#: Kind, number, tokens kept, whether a stop string was found, bytes of the first and of the second text.
_HEAD = struct.Struct("<iqiiqq")
#: Texts of more bytes go in a file.
MOST_INLINE = 64 << 10


def send(
    channel: Channel, kind: int, number: int = 0, kept: int = 0, stopped: int = 0, one: bytes = b"", two: bytes = b""
) -> None:
    """Send a message, and wait until the other side has room for it. Raises `Closed`."""
    head = _HEAD.pack(kind, number, kept, stopped, len(one), len(two))
    if len(one) + len(two) <= MOST_INLINE:
        channel.send_data(head + one + two)
        return
    descriptor = unnamed_file(one + two)
    try:
        channel.send_data(head, [descriptor])
    finally:
        os.close(descriptor)


def receive(channel: Channel) -> tuple[int, int, int, int, bytes, bytes]:
    """The next message: kind, number, kept, stopped, both texts. Raises as `Channel.receive_data`."""
    data, descriptors = channel.receive_data()
    kind, number, kept, stopped, first, second = _HEAD.unpack_from(data)
    texts = data[_HEAD.size :]
    if descriptors:
        with contents(descriptors[0]) as mapped:
            texts = bytes(mapped)
    return kind, number, kept, stopped, texts[:first], texts[first : first + second]
