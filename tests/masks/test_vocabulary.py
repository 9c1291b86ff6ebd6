"""Vocabulary: the class itself, from raw bytes and from tokenizer.json files written here."""

from __future__ import annotations

import base64
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_files import REPLACE, SINGLE, STRIP, added, byte_level, metaspace, tokens_of, write

from stepmask.masks.vocabulary import Vocabulary, VocabularyError


def test_attributes() -> None:
    vocabulary = Vocabulary.from_bytes([b"a", b"", b"\xff\x00", b"</s>", b"<x>"], eos=[3], special=[4], width=70)
    assert (vocabulary.size, vocabulary.width, vocabulary.words, vocabulary.eos) == (5, 70, 3, (3,))
    assert vocabulary.token_bytes.dtype == np.uint8 and vocabulary.token_offsets.dtype == np.int64
    assert vocabulary.token_offsets.tolist() == [0, 1, 1, 3, 7, 10]
    assert vocabulary.special.tolist() == [False] * 4 + [True]
    assert vocabulary.is_text.tolist() == [True, False, True, False, False]
    assert vocabulary.decode([0, 1, 2, 3, 4, 0]) == b"a\xff\x00a"
    assert not vocabulary.text_start and len(repr(vocabulary)) < 100
    for array in (vocabulary.token_bytes, vocabulary.token_offsets, vocabulary.special, vocabulary.is_text):
        assert array.flags.writeable  # read-only arrays have another Numba type


@given(
    st.lists(st.binary(max_size=6), max_size=30),
    st.none() | st.sets(st.integers(0, 40), max_size=3),
    st.sets(st.integers(0, 29), max_size=5),
    st.integers(0, 50),
)
def test_any_tokens(tokens: list[bytes], eos: set[int] | None, special: set[int], more: int) -> None:
    special = {token for token in special if token < len(tokens)}
    width = max([len(tokens), *(token + 1 for token in eos or ())]) + more
    vocabulary = Vocabulary.from_bytes(tokens, eos if eos is None else list(eos), list(special), width=width)
    assert tokens_of(vocabulary)[: len(tokens)] == tokens
    assert not any(tokens_of(vocabulary)[len(tokens) :])  # end tokens among the padding ids are holes
    assert vocabulary.eos == (None if eos is None else tuple(sorted(eos)))
    assert vocabulary.width == width and vocabulary.words == (width + 31) // 32
    hidden = special | (eos or set())
    assert np.flatnonzero(vocabulary.is_text).tolist() == [i for i, t in enumerate(tokens) if t and i not in hidden]
    copy = pickle.loads(pickle.dumps(vocabulary))
    assert copy == vocabulary and hash(copy) == hash(vocabulary) and tokens_of(copy) == tokens_of(vocabulary)
    for token in (-1, vocabulary.size):
        with pytest.raises(VocabularyError, match="out of range"):
            vocabulary.token(token)


def test_with_eos() -> None:
    vocabulary = Vocabulary.from_bytes([b"a", b"b", b"c"], eos=None, names={"<b>": 1}, width=5)
    assert vocabulary.eos is None and vocabulary.is_text.all() and not vocabulary.special_names
    ended = vocabulary.with_eos([2, 1, 2])
    assert ended.eos == (1, 2) and ended.is_text.tolist() == [True, False, False]
    assert ended.special_names == {"<b>": 1} and ended.token(1) == b"b" and ended.token_bytes is vocabulary.token_bytes
    assert ended.with_eos(None) == vocabulary and vocabulary.is_text.all()
    padded = vocabulary.with_eos([4])
    assert (padded.size, padded.width, padded.token(4), padded.token(3)) == (5, 5, b"", b"")
    for bad in ([5], [-1], [True], ["1"]):
        with pytest.raises(VocabularyError):
            vocabulary.with_eos(bad)  # type: ignore[arg-type]


def test_fingerprint_covers_everything() -> None:
    def build(tokens: tuple[bytes, ...] = (b"ab", b"c"), eos: Any = None, **options: Any) -> str:
        return Vocabulary.from_bytes(tokens, eos, **options).fingerprint

    variants = [
        build(), build((b"a", b"bc")), build((b"ab", b"d")), build(eos=[]), build(eos=[1]), build(special=[1]),
        build(width=3), build(names={"c": 1}), build(names={"c": 0}),
    ]  # fmt: skip
    assert len(set(variants)) == len(variants) and build() == variants[0]


def test_immutable() -> None:
    vocabulary = Vocabulary.from_bytes([b"a"], eos=None)
    with pytest.raises(AttributeError, match="immutable"):
        vocabulary.eos = (0,)
    with pytest.raises(AttributeError, match="immutable"):
        del vocabulary.eos
    with pytest.raises(TypeError):
        vocabulary.names["x"] = 1  # type: ignore[index]


def test_bad_arguments() -> None:
    with pytest.raises(VocabularyError, match="token 1 is str"):
        Vocabulary.from_bytes([b"a", "b"], None)  # type: ignore[list-item]
    for options in (
        {"eos": [2]},
        {"eos": None, "special": [2]},
        {"eos": None, "width": 1},
        {"eos": None, "names": {"x": 2}},
    ):
        with pytest.raises(VocabularyError):
            Vocabulary.from_bytes([b"a", b"b"], **options)  # type: ignore[arg-type]
    with pytest.raises(VocabularyError, match="no fast tokenizer"):
        Vocabulary.from_tokenizer(object())


def test_names() -> None:
    vocabulary = Vocabulary.from_bytes([b"a", b"<tool>", b""], None, [2], names={"<tool>": 1, "<|end|>": 2})
    assert vocabulary.id_of("<tool>") == 1 and vocabulary.id_of(np.int64(2)) == 2
    assert vocabulary.special_names == {"<|end|>": 2}
    with pytest.raises(VocabularyError, match=r"did you mean '<\|end\|>'"):
        vocabulary.id_of("<|ends|>")


def test_import_is_light() -> None:
    heavy = "{'torch', 'transformers', 'tokenizers', 'sentencepiece', 'tiktoken', 'gguf'}"
    code = f"import sys, stepmask.masks.vocabulary; print({heavy} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"


# --- tokenizer.json --------------------------------------------------------------------------------------------------


def test_byte_level(tmp_path: Path) -> None:
    value = byte_level([*SINGLE, b" the", b"\xe2\x82"], added_tokens=[
        added(258, "<|x|>", True), added(259, "é Ġ\n", False), added(262, "<｜y｜>", False),
    ])  # fmt: skip
    vocabulary = Vocabulary.from_file(write(tmp_path, "t.json", value))
    expected = [*SINGLE, b" the", b"\xe2\x82", b"", "é Ġ\n".encode(), b"", b"", "<｜y｜>".encode()]
    assert tokens_of(vocabulary) == expected and not vocabulary.text_start and vocabulary.eos is None
    assert vocabulary.special_names == {"<|x|>": 258} and set(vocabulary.names.values()) == {258, 259, 262}
    value["decoder"], value["pre_tokenizer"] = None, {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}]}
    assert Vocabulary.from_file(write(tmp_path, "u.json", value)) == vocabulary
    value["model"]["vocab"] |= {"a b": 263, "▁": 264}  # characters that spell no byte: the token is its own UTF-8
    vocabulary = Vocabulary.from_file(write(tmp_path, "v.json", value))
    assert (
        vocabulary.token(263) == b"a b" and vocabulary.token(264) == "▁".encode() and vocabulary.token(256) == b" the"
    )


def test_byte_fallback_and_unknown(tmp_path: Path) -> None:
    pieces = {"<unk>": 0, "<0x0A>": 1, "<0xE2>": 2, "▁a▁b": 3, "é": 4, "<0xag>": 5, "▁▁": 7}
    value = metaspace(pieces, STRIP, unk_token="<unk>", byte_fallback=True)
    value["added_tokens"] = [added(7, "▁▁", False), added(8, "\n\n", False)]
    vocabulary = Vocabulary.from_file(write(tmp_path, "t.json", value))
    assert tokens_of(vocabulary) == [b"", b"\n", b"\xe2", b" a b", "é".encode(), b"<0xag>", b"", b"  ", b"\n\n"]
    assert vocabulary.text_start and vocabulary.special_names == {"<unk>": 0}
    value["decoder"]["decoders"].pop()
    assert not Vocabulary.from_file(write(tmp_path, "t.json", value)).text_start


@pytest.mark.parametrize(
    "options,start",
    [({"prepend_scheme": "always"}, True), ({"prepend_scheme": "first"}, True), ({"prepend_scheme": "never"}, False),
     ({"add_prefix_space": True}, True), ({"add_prefix_space": False}, False), ({}, True)],
)  # fmt: skip
def test_unigram_metaspace(tmp_path: Path, options: dict[str, Any], start: bool) -> None:
    model = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["▁hi", -1.0], ["x", -2.0]]}
    value = {"model": model, "decoder": {"type": "Metaspace", "replacement": "▁", **options}}
    vocabulary = Vocabulary.from_file(write(tmp_path, "t.json", value))
    assert tokens_of(vocabulary) == [b"", b" hi", b"x"] and vocabulary.text_start is start


@pytest.mark.parametrize(
    "change,message",
    [
        ({"model": {"type": "WordPiece", "vocab": {"a": 0}}}, "WordPiece"),
        ({"model": {"type": "WordLevel", "vocab": {"a": 0}}}, "WordLevel"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "end_of_word_suffix": "</w>"}}, "end_of_word_suffix"),
        ({"model": {"type": "BPE", "vocab": {"a": 0, "b": 0}}}, "share an id"),
        ({"model": {"type": "BPE", "vocab": {"a": -1}}}, "out of range"),
        ({"model": {"type": "BPE", "vocab": {"a": 10**15}}}, "out of range"),
        ({"model": {"type": "BPE", "vocab": {"a": 1.5}}}, "not an integer"),
        ({"model": {"type": "BPE", "vocab": {"\ud800": 0}}}, "Unicode"),
        ({"model": {"type": "Unigram", "vocab": [["a"]]}}, "Unigram"),
        ({"model": 3}, "model"),
        ({"decoder": None}, "no decoder"),
        ({"decoder": {"type": "WordPiece"}}, "decoder WordPiece"),
        ({"decoder": {"type": "CTC"}}, "decoder CTC"),
        ({"decoder": {"type": "Strip", "content": " ", "start": 1, "stop": 0}}, "decoder Strip"),
        ({"decoder": {"type": "Replace", "pattern": {"Regex": "a+"}, "content": " "}}, "regular expression"),
        ({"decoder": {"type": "Sequence", "decoders": [{"type": "ByteLevel"}, REPLACE]}}, "byte-level"),
        ({"added_tokens": [added(1, "a", True)]}, "id 0 in the vocabulary"),
        ({"added_tokens": [added(1 << 40, "z", True)]}, "no vocabulary has"),
        ({"added_tokens": [{"id": 1}]}, "content"),
        ({"added_tokens": {}, "model": {"type": "BPE", "vocab": []}}, "vocab"),
    ],
)
def test_unusable_tokenizer_json(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(VocabularyError, match=message):
        Vocabulary.from_file(write(tmp_path, "t.json", byte_level([b"a"]) | change))


def test_end_tokens(tmp_path: Path) -> None:
    names = ["<|endoftext|>", "<|im_end|>", "<|end|>", "<|return|>", "<other>"]
    value = byte_level(SINGLE, added_tokens=[added(256 + k, name, True) for k, name in enumerate(names)])
    path = write(tmp_path, "tokenizer.json", value)
    assert Vocabulary.from_file(path).eos == (256, 257, 259)  # <|end|> beside <|return|> ends a message only
    write(tmp_path, "tokenizer_config.json", {"eos_token": {"content": "<|im_end|>"}, "bos_token": None})
    assert Vocabulary.from_file(path).eos == (257,)
    write(tmp_path, "generation_config.json", {"eos_token_id": [256, 257]})
    write(tmp_path, "special_tokens_map.json", {"eos_token": "a"})  # an ordinary token
    assert Vocabulary.from_file(path).eos == (97, 256, 257)
    write(tmp_path, "generation_config.json", {"eos_token_id": 261})
    with pytest.raises(VocabularyError, match="generation_config"):
        Vocabulary.from_file(path)
    write(tmp_path, "generation_config.json", {"eos_token_id": 260})
    assert Vocabulary.from_file(path, width=300).eos == (97, 257, 260)
    write(tmp_path, "special_tokens_map.json", {"eos_token": "<nope>"})
    with pytest.raises(VocabularyError, match="<nope>"):
        Vocabulary.from_file(path)
    write(tmp_path, "special_tokens_map.json", b"{")
    with pytest.raises(VocabularyError, match="special_tokens_map"):
        Vocabulary.from_file(path)


def test_added_tokens_of_the_configuration(tmp_path: Path) -> None:
    path = write(tmp_path, "x.tiktoken", b"\n".join(base64.b64encode(t) + b" %d" % k for k, t in enumerate(SINGLE)))
    assert tokens_of(Vocabulary.from_file(path)) == SINGLE and Vocabulary.from_file(path).eos is None
    entries = {"256": {"content": "<|eos|>", "special": True}, "258": {"content": "<think>", "special": False}}
    write(tmp_path, "tokenizer_config.json", {"added_tokens_decoder": entries, "eos_token": "<|eos|>"})
    vocabulary = Vocabulary.from_file(path)
    assert tokens_of(vocabulary) == [*SINGLE, b"", b"", b"<think>"] and vocabulary.eos == (256,)
    write(tmp_path, "tokenizer_config.json", {"added_tokens_decoder": {"7": {"content": "<|eos|>"}}})
    with pytest.raises(VocabularyError, match="another token"):
        Vocabulary.from_file(path)
