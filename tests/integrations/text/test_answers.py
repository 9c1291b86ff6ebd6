"""Text of answers: stop strings wherever tokens cut them, characters in pieces, log-probabilities as JSON; the ring."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stepmask
from stepmask.integrations.text import InProcessText
from stepmask.integrations.text.answers import END, Answers, AnswerText, TokenBytes
from stepmask.integrations.text.ring import RECORD, Ring

PIECES = st.lists(st.binary(max_size=4) | st.sampled_from(["é", "日", "ab", "aab"]).map(str.encode), max_size=12)
STOPS = st.lists(st.text("abé日", min_size=1, max_size=4), max_size=3)


def reference(pieces: list[bytes], stops: list[bytes]) -> tuple[int, bytes, bool]:
    """Tokens kept, bytes, whether stopped: one byte at a time, the first byte at which a stop string ends."""
    data = b""
    for number, piece in enumerate(pieces, 1):
        for byte in piece:
            data += bytes([byte])
            found = [stop for stop in stops if data.endswith(stop)]
            if found:
                return number, data[: -max(map(len, found))], True
    return len(pieces), data, False


@given(PIECES, STOPS)
def test_an_answer_ends_before_the_first_stop_string(pieces: list[bytes], stops: list[str]) -> None:
    encoded = [stop.encode() for stop in stops]
    answer = AnswerText(encoded)
    seen = ""
    for piece in pieces:
        answer.add(piece, 0.0)
        # What was shown once stays.
        assert answer.text.startswith(seen)
        seen = answer.text
    kept, data, is_stopped = reference(pieces, encoded)
    assert (answer.kept, answer.is_stopped, answer.whole) == (kept, is_stopped, data.decode("utf-8", "replace"))
    assert answer.whole.startswith(seen)


@given(st.text(max_size=20), st.data())
def test_it_does_not_matter_how_bytes_are_cut_into_tokens(text: str, data: st.DataObject) -> None:
    encoded = text.encode()
    stops = data.draw(STOPS)
    found = []
    for _ in range(3):
        answer = AnswerText([stop.encode() for stop in stops])
        at = 0
        while at < len(encoded):
            size = data.draw(st.integers(1, 6))
            answer.add(encoded[at : at + size], 0.0)
            at += size
        found.append((answer.whole, answer.is_stopped))
    assert found[0] == found[1] == found[2]


def test_log_probabilities_are_json() -> None:
    answer = AnswerText(logprobs=True)
    for piece, value in ((b'a"', -0.5), (b"\xff", -1.25), (b"", 0.0)):
        answer.add(piece, value)
    assert json.loads(answer.logprobs) == [
        {"token": 'a"', "logprob": -0.5, "bytes": [97, 34]},
        {"token": "\ufffd", "logprob": -1.25, "bytes": [255]},
        {"token": "", "logprob": 0.0, "bytes": []},
    ]
    assert AnswerText().logprobs == ""


def records(*rows: tuple[int, int]) -> np.ndarray:
    return np.array([(*row, 0.0) for row in rows], RECORD)


def test_what_comes_for_an_answer_that_is_over_is_dropped() -> None:
    answers = Answers(TokenBytes(b"abc", np.array([0, 1, 3], np.int64)))
    answers.open(1, [b"c"], logprobs=False)
    answers.open(2, [], logprobs=False)
    ended = answers.take(records((1, 0), (2, 0), (1, 1), (1, 0), (1, END)))
    assert [(one.number, one.answer.kept, one.answer.is_stopped, one.answer.whole) for one in ended] == [
        (1, 2, True, "ab")
    ]
    (ended_2,) = answers.take(records((2, 999), (2, END)))
    assert (ended_2.answer.kept, ended_2.answer.whole, ended_2.answer.is_stopped) == (2, "a", False)
    assert answers.get(1) is None and answers.is_known(2) and not answers.is_known(3)


def test_encoding_needs_a_tokenizer() -> None:
    vocabulary = stepmask.Vocabulary.from_bytes([b"a", b"b"], eos=None)
    with pytest.raises(ValueError, match="tokenizer"):
        InProcessText(vocabulary).encode("a").result()


# ------------------------------------------------------------------------------------------------------------- the ring
@given(
    st.integers(1, 9),
    st.lists(st.tuples(st.sampled_from(["write", "read", "release"]), st.integers(0, 12)), max_size=40),
)
def test_the_ring_loses_and_invents_nothing(capacity: int, steps: list[tuple[str, int]]) -> None:
    """What was read keeps its place until the reader lets go of it."""
    descriptor = Ring.create(capacity)
    writer, reader = Ring(descriptor, capacity), Ring(descriptor, capacity)
    os.close(descriptor)
    written: list[int] = []
    read: list[int] = []
    released = number = 0
    for what, amount in steps:
        if what == "write":
            block = np.zeros(amount, RECORD)
            block["answer"] = number + np.arange(amount)
            block["token"] = -block["answer"]
            block["logprob"] = block["answer"] / 7
            n = writer.write(block)
            assert n == min(amount, capacity - (len(written) - released))
            written += block["answer"][:n].tolist()
            number += n
        elif what == "read":
            found = reader.read(min(amount, len(written) - len(read)))
            assert len(found) == min(amount, len(written) - len(read))
            assert (found["token"] == -found["answer"]).all()
            assert (found["logprob"] == (found["answer"] / 7).astype(np.float32)).all()
            read += found["answer"].tolist()
        else:
            reader.release()
            released = len(read)
        assert writer.unread == reader.unread == len(written) - released
    assert read == written[: len(read)]
    writer.close()
    reader.close()


def test_a_ring_has_room() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Ring.create(0)
