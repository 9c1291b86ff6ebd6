"""Rank files, SentencePiece and GGUF written here, and damaged files of every kind."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_files import (
    PIECES,
    SINGLE,
    added,
    byte_level,
    ggml,
    gguf,
    message,
    sentencepiece,
    tekken,
    tokens_of,
    write,
)

from stepmask.masks.vocabulary import Vocabulary, VocabularyError

# --- rank files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [b"YQ== 1 2", b"YQ== x", b"Y 1", b"YQ= 1", b"YQ== 0", b"YQ== 99999999999", b"\xff 1"])
def test_damaged_ranks(tmp_path: Path, line: bytes) -> None:
    with pytest.raises(VocabularyError, match="line 2"):
        Vocabulary.from_file(write(tmp_path, "x.tiktoken", b"YQ== 0\n" + line + b"\n"))


def test_tekken(tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_file(write(tmp_path, "tekken.json", tekken()))
    assert tokens_of(vocabulary) == [b""] * 5 + SINGLE[:204] and vocabulary.eos == (2,)
    assert list(vocabulary.names) == ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    listed = [{"rank": 1, "token_str": "</s>", "is_control": True}]
    vocabulary = Vocabulary.from_file(write(tmp_path, "tekken.json", tekken(special_tokens=listed)))
    assert vocabulary.eos == (1,) and vocabulary.id_of("<SPECIAL_4>") == 4 and vocabulary.special.sum() == 5
    for bad in (
        {"special_tokens": [{"rank": 5, "token_str": "x"}]},
        {"config": {"default_vocab_size": 300, "default_num_special_tokens": 5}},
        {"vocab": [{"rank": 1, "token_bytes": "YQ=="}] * 256},
        {"vocab": [{"rank": 0, "token_bytes": "Y"}] * 256},
    ):
        with pytest.raises(VocabularyError):
            Vocabulary.from_file(write(tmp_path, "tekken.json", tekken(**bad)))


# --- SentencePiece ---------------------------------------------------------------------------------------------------


def test_sentencepiece(tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_file(write(tmp_path, "x.model", sentencepiece(PIECES)))
    assert tokens_of(vocabulary) == [b"", b"", b"", b"\n", b" a", b"x" * 200, b"<b>", b"<u> ", b" "]
    assert vocabulary.eos == (2,) and vocabulary.text_start
    assert vocabulary.names == {"<unk>": 0, "<s>": 1, "</s>": 2, "<b>": 6}
    plain = message(3, 0) + message(4, 0)
    settings = {"trainer": message(47, b"<s>") + message(4, 70000), "normalizer": plain}
    vocabulary = Vocabulary.from_file(write(tmp_path, "x.model", sentencepiece(PIECES, **settings)))
    assert vocabulary.eos == (1,) and not vocabulary.text_start
    # What the configuration beside it declares special is special, whatever the piece's type.
    entries = {"6": {"content": "<b>", "special": True}, "8": {"content": "▁", "special": False}}
    write(tmp_path, "tokenizer_config.json", {"added_tokens_decoder": entries})
    vocabulary = Vocabulary.from_file(tmp_path / "x.model")
    assert vocabulary.special_names.keys() == {"<unk>", "<s>", "</s>", "<b>"} and not vocabulary.token(6)
    assert vocabulary.token(8) == b" " and vocabulary.id_of("▁") == 8


@pytest.mark.parametrize(
    "data,problem",
    [
        (sentencepiece([("<0xZZ>", 6)]), "no byte"),
        (sentencepiece([("a", 9)]), "unknown type 9"),
        (sentencepiece(PIECES, trainer=message(24, 1)), "whitespace_as_suffix"),
        (sentencepiece(PIECES, denormalizer=message(2, b"x")), "denormalizer"),
        (sentencepiece(PIECES)[:-1], "cut short"),
        (message(1, message(1, b"\xff")), "UTF-8"),
        (message(1, 7), "a number"),
        (b"\x0b\0\0", "no tokenizer file"),
        (message(9, b"x"), "without pieces"),
        (b"\xff" * 40, "no tokenizer file"),
        (b" \n ", "empty"),
        (b"{}", "neither"),
        (b"[", "no tokenizer file"),
        (b"{nonsense}", "not valid JSON"),
        (b'{"a":' + b"[" * 100_000, "not valid JSON"),
    ],
)
def test_unusable_files(tmp_path: Path, data: bytes, problem: str) -> None:
    with pytest.raises(VocabularyError, match=problem):
        Vocabulary.from_file(write(tmp_path, "x.model", data))


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Vocabulary.from_file(tmp_path / "nothing.json")
    with pytest.raises(VocabularyError, match="folder"):
        Vocabulary.from_file(tmp_path)


# --- GGUF ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", "<>")
def test_gguf_byte_level(tmp_path: Path, order: str) -> None:
    values = ggml("gpt2", ["Ġa", "<|im_end|>", "é x", "[PAD3]", "Ċ"], [1, 3, 4, 5, 1], eos_token_id=1, eot_token_id=4)
    vocabulary = Vocabulary.from_file(write(tmp_path, "x.bin", gguf(values, order)))
    assert tokens_of(vocabulary) == [b" a", b"", "é x".encode(), b"", b"\n"]
    assert vocabulary.eos == (1, 4) and vocabulary.is_text.tolist() == [True, False, True, False, False]
    assert vocabulary.names == {"<|im_end|>": 1, "é x": 2} and not vocabulary.text_start


def test_gguf_sentencepiece(tmp_path: Path) -> None:
    values = ggml("llama", ["<unk>", "</s>", "<0xE2>", "▁a"], [2, 3, 6, 1])
    vocabulary = Vocabulary.from_file(write(tmp_path, "x.gguf", gguf(values, version=2)))
    assert tokens_of(vocabulary) == [b"", b"", b"\xe2", b" a"] and vocabulary.text_start and vocabulary.eos == (1,)
    values = ggml("llama", ["a"], [1], add_space_prefix=False)
    vocabulary = Vocabulary.from_file(write(tmp_path, "x.gguf", gguf(values)))
    assert not vocabulary.text_start and vocabulary.eos is None


@pytest.mark.parametrize(
    "data,problem",
    [
        (gguf(ggml("gpt2", ["a"], [1]))[:-3], "damaged"),
        (gguf(ggml("gpt2", ["a"], [1]), version=1), "version 1"),
        (gguf(ggml("bert", ["a"], [1])), "'bert'"),
        (gguf(ggml("gpt2", ["a"], [1, 1])), "token types"),
        (gguf(ggml("gpt2", ["a"], [7])), "unknown type 7"),
        (gguf(ggml("llama", ["a"], [6])), "no byte"),
        (gguf(ggml("gpt2", ["a"], [1], eos_token_id=1)), "out of range"),
        (gguf({"general.name": "x"}), "no tokenizer"),
        (gguf({"tokenizer.ggml.model": "gpt2"}), "no list of tokens"),
        (b"GGUF", "damaged"),
    ],
)
def test_unusable_gguf(tmp_path: Path, data: bytes, problem: str) -> None:
    with pytest.raises(VocabularyError, match=problem):
        Vocabulary.from_file(write(tmp_path, "x.gguf", data))


# --- damage ----------------------------------------------------------------------------------------------------------

INTACT = {
    "json": json.dumps(byte_level([*SINGLE[90:100], b" the"], added_tokens=[added(11, "<|x|>", True)])).encode(),
    "model": sentencepiece(PIECES, trainer=message(47, b"</s>"), normalizer=message(3, 1)),
    "tiktoken": b"\n".join(base64.b64encode(token) + b" %d" % rank for rank, token in enumerate(SINGLE[:20])),
    "tekken": json.dumps(tekken(12)).encode(),
    "gguf": gguf(ggml("gpt2", ["Ġa", "<|im_end|>", "é x", "[PAD3]", "Ċ"], [1, 3, 4, 5, 1], eos_token_id=1)),
}  # fmt: skip


@pytest.mark.parametrize("kind", INTACT)
def test_intact(kind: str, tmp_path: Path) -> None:
    assert Vocabulary.from_file(write(tmp_path, "intact", INTACT[kind])).is_text.any()


@pytest.mark.parametrize("kind", INTACT)
@given(data=st.data())
def test_damaged_files_are_vocabulary_errors(
    kind: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    damaged = bytearray(INTACT[kind])
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    damaged = damaged[: data.draw(st.just(len(damaged)) | st.integers(0, len(damaged)))]
    path = write(tmp_path_factory.getbasetemp(), "damaged", bytes(damaged))
    try:
        vocabulary = Vocabulary.from_file(path)
    except VocabularyError as error:
        assert "damaged" in str(error)  # the file's name
    else:
        assert len(tokens_of(vocabulary)) == vocabulary.size <= vocabulary.width
