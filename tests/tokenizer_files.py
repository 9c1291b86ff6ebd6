"""Small tokenizer files of every format, written from scratch."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stepmask.masks.tokenizers.table import BYTE_ALPHABET
from stepmask.masks.vocabulary import Vocabulary

SPELLING = {value: char for char, value in BYTE_ALPHABET.items()}


def byte_level(tokens: Iterable[bytes], **extra: Any) -> dict[str, Any]:
    """A tokenizer.json of byte-level BPE with these tokens."""
    pieces = {"".join(SPELLING[byte] for byte in token): token_id for token_id, token in enumerate(tokens)}
    base = {
        "added_tokens": [],
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": pieces, "merges": []},
    }
    return base | extra


def metaspace(pieces: dict[str, int], *steps: dict[str, Any], **model: Any) -> dict[str, Any]:
    decoder = {"type": "Sequence", "decoders": [REPLACE, {"type": "ByteFallback"}, {"type": "Fuse"}, *steps]}
    return {"added_tokens": [], "decoder": decoder, "model": {"type": "BPE", "vocab": pieces, "merges": [], **model}}


REPLACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
SINGLE = [bytes([value]) for value in range(256)]


def added(token: int, content: str, special: bool) -> dict[str, Any]:
    return {"id": token, "content": content, "special": special}


def write(folder: Path, name: str, value: Any) -> Path:
    path = folder / name
    path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
    return path


def tokens_of(vocabulary: Vocabulary) -> list[bytes]:
    return [vocabulary.token(token) for token in range(vocabulary.size)]


def tekken(ranks: int = 256, **extra: Any) -> dict[str, Any]:
    """A tekken.json of the first single bytes after five control tokens; a fifth of the ranks is cut."""
    entries = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode()} for rank, token in enumerate(SINGLE[:ranks])
    ]
    config = {
        "pattern": ".",
        "default_vocab_size": 5 + ranks * 4 // 5,
        "default_num_special_tokens": 5,
        "version": "v3",
    }
    return {"config": config, "vocab": entries} | extra


def varint(value: int) -> bytes:
    head = b""
    while value > 0x7F:
        head, value = head + bytes([value & 0x7F | 0x80]), value >> 7
    return head + bytes([value])


def message(number: int, body: bytes | int) -> bytes:
    if isinstance(body, int):
        return varint(number << 3) + varint(body)
    return varint(number << 3 | 2) + varint(len(body)) + body


def sentencepiece(pieces: list[tuple[str, int]], **settings: bytes) -> bytes:
    """A .model file of these (text, type) pieces, with the bodies of its settings messages."""
    numbers = {"trainer": 2, "normalizer": 3, "denormalizer": 5}
    score = b"\x15\0\0\x80\xbf"
    body = b"".join(
        message(1, message(1, text.encode()) + score + (message(3, kind) if kind != 1 else b""))
        for text, kind in pieces
    )
    return body + b"".join(message(numbers[name], value) for name, value in settings.items())


PIECES = [
    ("<unk>", 2),
    ("<s>", 3),
    ("</s>", 3),
    ("<0x0A>", 6),
    ("▁a", 1),
    ("x" * 200, 1),
    ("<b>", 4),
    ("<u>▁", 5),
    ("▁", 1),
]


def gguf(values: dict[str, Any], order: str = "<", version: int = 3) -> bytes:
    """A GGUF header without tensors. int -> u32, bool, str, list of str or of int (i32)."""

    def text(value: str) -> bytes:
        data = value.encode()
        return struct.pack(order + "Q", len(data)) + data

    def item(value: Any) -> bytes:
        if isinstance(value, bool):
            return struct.pack(order + "I?", 7, value)
        if isinstance(value, int):
            return struct.pack(order + "II", 4, value)
        if isinstance(value, str):
            return struct.pack(order + "I", 8) + text(value)
        if value and isinstance(value[0], str):
            return struct.pack(order + "IIQ", 9, 8, len(value)) + b"".join(map(text, value))
        return struct.pack(f"{order}IIQ{len(value)}i", 9, 5, len(value), *value)

    body = b"".join(text(key) + item(value) for key, value in values.items())
    return b"GGUF" + struct.pack(order + "IQQ", version, 0, len(values)) + body


def ggml(model: str, tokens: list[str], kinds: list[int], **extra: Any) -> dict[str, Any]:
    base = {"general.name": "x", "tokenizer.ggml.merges": ["a b", "c d"], "tokenizer.ggml.scores": [1, 2, 3]}
    named = {"model": model, "tokens": tokens, "token_type": kinds, **extra}
    return base | {f"tokenizer.ggml.{key}": value for key, value in named.items()} | {"general.more": [4]}
