"""GGUF: the tokenizer in the key-values of a model file's header. Tensors are never read.

Layout: magic, version, tensor count, key-value count, then pairs of key (length, bytes), type and value.
What a token stands for follows llama.cpp's `token_to_piece`.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

from ..errors import VocabularyError
from .sentencepiece import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED
from .table import MAX_TOKENS, SPACE_MARK, TokenTable, byte_token, from_byte_alphabet

MAGIC = b"GGUF"
_MODEL, _TOKENS, _TYPES = "tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"
_SPACE_PREFIX = "tokenizer.ggml.add_space_prefix"
_END_KEYS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
_WANTED = frozenset({_MODEL, _TOKENS, _TYPES, _SPACE_PREFIX, *_END_KEYS})
# struct codes by value type; strings (8) and arrays (9) are read apart.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_ARRAY_DEPTH = 8


def read(path: Path) -> TokenTable:
    """Read the tokenizer of a .gguf file. VocabularyError when damaged or of an unknown model type."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            values = _Reader(data).key_values(_WANTED)
            return _table(values)
        except (struct.error, UnicodeError) as error:
            raise VocabularyError(f"{path.name} is damaged: {error}") from error
        except VocabularyError as error:
            raise VocabularyError(f"{path.name}: {error}") from error.__cause__


def _table(values: dict[str, Any]) -> TokenTable:
    model = values.get(_MODEL)
    if not isinstance(model, bytes):
        raise VocabularyError("it has no tokenizer")
    raw = values.get(_TOKENS)
    if not isinstance(raw, list) or not raw or not isinstance(raw[0], bytes):
        raise VocabularyError("it has no list of tokens")
    kinds = values.get(_TYPES, [NORMAL] * len(raw))
    if not isinstance(kinds, list) or len(kinds) != len(raw):
        raise VocabularyError("its token types do not match its tokens")
    texts = [text.decode("utf-8") for text in raw]
    name = model.decode("utf-8", "replace")
    if name == "gpt2":
        tokens = from_byte_alphabet(texts)
    elif name in ("llama", "t5"):
        tokens = [text.replace(SPACE_MARK, " ").encode("utf-8") for text in texts]
    else:
        raise VocabularyError(f"tokenizer model {name!r} is not supported; gpt2, llama and t5 are")
    table = TokenTable(tokens)
    table.text_start = name != "gpt2" and values.get(_SPACE_PREFIX, True) is True
    for token, (text, kind) in enumerate(zip(texts, kinds, strict=True)):
        if kind == NORMAL:
            continue
        if kind == USER_DEFINED:  # as written: converters have put the spaces in already
            table.add(token, text, special=False, text=raw[token])
        elif kind in (UNKNOWN, CONTROL):
            table.add(token, text, special=True, text=b"")
        elif kind == UNUSED:  # padding to the model's width; llama.cpp prints nothing for it
            table.tokens[token] = b""
            table.special.add(token)
        elif kind == BYTE:
            value = byte_token(text)
            if value is None:
                raise VocabularyError(f"token {token}, {text!r}, is no byte")
            table.tokens[token] = value
        else:
            raise VocabularyError(f"token {token} has the unknown type {kind}")
    table.eos = _end_tokens(values, table)
    return table


def _end_tokens(values: dict[str, Any], table: TokenTable) -> tuple[int, ...] | None:
    ends = set()
    for key in _END_KEYS:
        token = values.get(key)
        if token is None:
            continue
        if type(token) is not int or not 0 <= token < len(table.tokens):
            raise VocabularyError(f"{key} {token!r} is out of range")
        ends.add(token)
    return tuple(sorted(ends)) or None


class _Reader:
    """Reads values one after the other; anything that passes the end of the file is a VocabularyError."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.end = len(data)
        self.position = 4
        # A file of the other byte order shows its small version number in the high bytes.
        self.order = "<"
        version = self.scalar("I")
        if version > 0xFFFF:
            self.order, self.position = ">", 4
            version = self.scalar("I")
        if version not in (2, 3):
            raise VocabularyError(f"GGUF version {version} is not supported; 2 and 3 are")

    def key_values(self, wanted: frozenset[str]) -> dict[str, Any]:
        """The values of the wanted keys that the file has. Strings stay bytes."""
        self.scalar("Q")  # tensors
        found: dict[str, Any] = {}
        for _ in range(self.scalar("Q")):
            key = self.string().decode("utf-8")
            keep = key in wanted
            value = self.value(self.scalar("I"), keep)
            if keep:
                found[key] = value
        return found

    def scalar(self, code: str) -> Any:
        layout = self.order + code
        (value,) = struct.unpack_from(layout, self.data, self.position)
        self.position += struct.calcsize(layout)
        return value

    def string(self) -> bytes:
        length = self.scalar("Q")
        start = self._advance(length)
        return self.data[start : self.position]

    def value(self, kind: int, keep: bool, depth: int = 0) -> Any:
        """One value; arrays that are not kept are passed over and read as None."""
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self._array(keep, depth)
        if kind not in _SCALARS:
            raise VocabularyError(f"damaged: unknown value type {kind}")
        return self.scalar(_SCALARS[kind])

    def _array(self, keep: bool, depth: int) -> list[Any] | None:
        kind, count = self.scalar("I"), self.scalar("Q")
        if keep and count > MAX_TOKENS:
            raise VocabularyError(f"an array of {count} values is more than {MAX_TOKENS}")
        if kind in _SCALARS:
            code = _SCALARS[kind]
            start = self._advance(count * struct.calcsize("<" + code))
            return list(struct.unpack_from(f"{self.order}{count}{code}", self.data, start)) if keep else None
        if count > self.end - self.position or depth > _MAX_ARRAY_DEPTH:
            raise VocabularyError("damaged: cut short")
        if kind == _STRING:
            return self._strings(count, keep)
        values = [self.value(kind, keep, depth + 1) for _ in range(count)]
        return values if keep else None

    def _strings(self, count: int, keep: bool) -> list[bytes] | None:
        # The one long loop of a header: hundreds of thousands of tokens and merges.
        unpack, data, position, end = struct.Struct(self.order + "Q").unpack_from, self.data, self.position, self.end
        strings = []
        for _ in range(count):
            (length,) = unpack(data, position)
            start, position = position + 8, position + 8 + length
            if position > end:
                raise VocabularyError("damaged: cut short")
            if keep:
                strings.append(data[start:position])
        self.position = position
        return strings if keep else None

    def _advance(self, length: int) -> int:
        start = self.position
        if length > self.end - start:
            raise VocabularyError("damaged: cut short")
        self.position = start + length
        return start
