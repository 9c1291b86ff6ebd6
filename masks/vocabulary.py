"""Vocabulary: token id -> exact bytes, and which ids are text, special, or ends."""

from __future__ import annotations

import difflib
import hashlib
import json
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import VocabularyError
from .tokenizers import files, hf_json, tiktoken
from .tokenizers.table import TokenTable

__all__ = ["Vocabulary", "VocabularyError"]


class Vocabulary:
    """The tokens of one tokenizer as flat arrays. Immutable: nothing may write to its arrays.

    The arrays are not flagged read-only, because Numba would compile every kernel anew for that type.

    Attributes:
        size: number of token ids, the largest id + 1. Ids without a token (holes) have no bytes.
        width: number of logits of the model, at least `size`; models pad it.
        words: uint32 words of one token bitmask, ceil(width / 32).
        token_bytes: uint8[total], the bytes of all tokens one after the other.
        token_offsets: int64[size + 1]; token i is `token_bytes[token_offsets[i]:token_offsets[i + 1]]`.
        special: bool[size], tokens that never stand for text.
        is_text: bool[size], tokens that have bytes and are neither special nor an end token.
        eos: end tokens in ascending order, or None while unknown. They never stand for text.
        text_start: the first token of a text may drop one leading space (SentencePiece's dummy prefix).
        names: text -> id of added, control and special tokens.
        special_names: the part of `names` that is special or an end token.
        fingerprint: hex digest over everything above.
    """

    __slots__ = (
        "__weakref__", "eos", "fingerprint", "is_text", "names", "shared", "size", "special", "special_names",
        "text_start", "token_bytes", "token_offsets", "width", "words",
    )  # fmt: skip

    size: int
    width: int
    words: int
    token_bytes: NDArray[np.uint8]
    token_offsets: NDArray[np.int64]
    special: NDArray[np.bool_]
    is_text: NDArray[np.bool_]
    eos: tuple[int, ...] | None
    text_start: bool
    names: Mapping[str, int]
    special_names: Mapping[str, int]
    fingerprint: str
    #: What matchers of this vocabulary share (`masks.matcher`), by rollback depth. Not part of its value.
    shared: dict[int, Any]

    def __init__(
        self,
        token_bytes: NDArray[np.uint8],
        token_offsets: NDArray[np.int64],
        special: NDArray[np.bool_],
        eos: tuple[int, ...] | None,
        width: int | None,
        text_start: bool,
        names: Mapping[str, int],
    ) -> None:
        """Use the `from_*` constructors. Arrays are taken as they are, not copied."""
        size = len(special)
        if width is not None and (isinstance(width, bool) or not isinstance(width, (int, np.integer))):
            raise VocabularyError(f"width is a number of logits, not {width!r:.60}")
        width = size if width is None else int(width)
        if not width < 2**31:
            raise VocabularyError(f"width {width} is more than the {2**31 - 1} that there can be")
        if width < size:
            raise VocabularyError(f"width {width} is less than the {size} token ids")
        ends = None if eos is None else tuple(sorted(set(eos)))
        for token in ends or ():
            if not 0 <= token < width:
                raise VocabularyError(f"end token {token} is out of range, there are {width} ids")
        if ends and ends[-1] >= size:  # an end token among the padding ids: make it a hole with a number
            missing = ends[-1] + 1 - size
            token_offsets = np.concatenate([token_offsets, np.repeat(token_offsets[-1:], missing)])
            special = np.concatenate([special, np.zeros(missing, np.bool_)])
            size += missing
        is_text = (np.diff(token_offsets) > 0) & ~special
        if ends:
            is_text[list(ends)] = False
        put = super().__setattr__
        put("shared", {})
        put("size", size)
        put("width", width)
        put("words", -(-width // 32))
        put("token_bytes", token_bytes)
        put("token_offsets", token_offsets)
        put("special", special)
        put("is_text", is_text)
        put("eos", ends)
        put("text_start", bool(text_start))
        put("names", MappingProxyType(dict(names)))
        hidden = {name: token for name, token in names.items() if special[token] or token in (ends or ())}
        put("special_names", MappingProxyType(hidden))
        put("fingerprint", self._digest())

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Vocabulary is immutable, {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Vocabulary is immutable, {name} cannot be deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        arrays = (self.token_bytes, self.token_offsets, self.special)
        return Vocabulary, (*arrays, self.eos, self.width, self.text_start, dict(self.names))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        padded = f", width={self.width}" if self.width != self.size else ""
        return f"Vocabulary(size={self.size}{padded}, eos={self.eos}, fingerprint={self.fingerprint[:8]})"

    def _digest(self) -> str:
        rest = [self.size, self.width, self.eos, self.text_start, sorted(self.names.items())]
        digest = hashlib.blake2b(digest_size=16)
        digest.update(json.dumps(rest).encode())
        for array in (self.token_offsets, self.special, self.token_bytes):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @classmethod
    def _from_table(cls, table: TokenTable, eos: Iterable[int] | None, width: int | None) -> Vocabulary:
        size = len(table.tokens)
        lengths = np.fromiter(map(len, table.tokens), np.int64, size)
        offsets = np.zeros(size + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        # A bytearray's buffer is writeable: see the class's docstring.
        data = np.frombuffer(bytearray().join(table.tokens), np.uint8)
        special = np.zeros(size, np.bool_)
        special[list(table.special)] = True
        ends = None if eos is None else tuple(eos)
        return cls(data, offsets, special, ends, width, table.text_start, table.names)

    @classmethod
    def from_bytes(
        cls,
        tokens: Sequence[bytes],
        eos: Sequence[int] | None,
        special: Sequence[int] = (),
        *,
        width: int | None = None,
        names: Mapping[str, int] | None = None,
    ) -> Vocabulary:
        """From the bytes of each token id, b"" where a token has no text.

        `eos`: the end tokens, None while unknown. `special`: ids that never stand for text.
        `names`: texts by which a grammar may name tokens, for `id_of`.
        VocabularyError when a token is not bytes or an id is out of range.
        """
        if isinstance(tokens, (str, bytes)) or not isinstance(tokens, Iterable):
            raise VocabularyError(f"tokens are a list of bytes, not {tokens!r:.60}")
        tokens = list(tokens)
        for index, token in enumerate(tokens):
            if not isinstance(token, (bytes, bytearray, memoryview)):
                raise VocabularyError(f"token {index} is {type(token).__name__}, not bytes")
        table = TokenTable([bytes(token) for token in tokens])
        table.special = set(checked_ids(special, len(table.tokens), "special token"))
        if names is not None and not (isinstance(names, Mapping) and all(isinstance(name, str) for name in names)):
            raise VocabularyError(f"names are texts and the token id of each, not {names!r:.60}")
        table.names = dict(names or {})
        checked_ids(table.names.values(), len(table.tokens), "named token")
        return cls._from_table(table, None if eos is None else checked_ids(eos, None, "end token"), width)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, width: int | None = None) -> Vocabulary:
        """From a tokenizer file, recognised by its content.

        tokenizer.json (Hugging Face), SentencePiece .model, tiktoken ranks, tekken.json, or .gguf.
        End tokens: as the file says (SentencePiece, tekken, GGUF), or as tokenizer_config.json,
        special_tokens_map.json and generation_config.json beside it say; otherwise the tokens with a
        well-known name (`tokenizers.table.END_TOKEN_NAMES`); None if there are none.
        VocabularyError for a damaged or unsupported file, OSError for one that cannot be read.
        """
        table = files.read(path)
        return cls._from_table(table, table.end_tokens(), width)

    @classmethod
    def from_tokenizer(cls, hf_tokenizer: Any, *, width: int | None = None) -> Vocabulary:
        """From a `tokenizers.Tokenizer` or a fast tokenizer of transformers.

        End tokens: the tokenizer's `eos_token_id`, otherwise those with a well-known name.
        """
        if hasattr(hf_tokenizer, "token_byte_values"):
            return cls.from_tiktoken(hf_tokenizer, width=width)
        backend = getattr(hf_tokenizer, "backend_tokenizer", hf_tokenizer)
        if not hasattr(backend, "to_str"):
            raise VocabularyError(
                f"{type(hf_tokenizer).__name__} is no fast tokenizer; load its file with Vocabulary.from_file"
            )
        table = hf_json.read(backend.to_str().encode("utf-8"), "tokenizer")
        declared = getattr(hf_tokenizer, "eos_token_id", None)
        if declared is None:
            return cls._from_table(table, table.end_tokens(), width)
        ends = declared if isinstance(declared, (list, tuple)) else [declared]
        return cls._from_table(table, checked_ids(ends, None, "end token"), width)

    @classmethod
    def from_tiktoken(cls, encoding: Any, *, eos: Sequence[int] | None = None, width: int | None = None) -> Vocabulary:
        """From a `tiktoken.Encoding`. Without `eos`, special tokens with a well-known name end a text."""
        if not hasattr(encoding, "decode_single_token_bytes"):
            raise VocabularyError(f"a tiktoken.Encoding is needed, not {type(encoding).__name__}")
        table = tiktoken.from_encoding(encoding)
        ends = table.end_tokens() if eos is None else checked_ids(eos, None, "end token")
        return cls._from_table(table, ends, width)

    def with_eos(self, ids: Iterable[int] | None) -> Vocabulary:
        """The same vocabulary with other end tokens; its arrays of bytes are shared."""
        ends = None if ids is None else tuple(checked_ids(ids, None, "end token"))
        arrays = (self.token_bytes, self.token_offsets, self.special)
        return Vocabulary(*arrays, ends, self.width, self.text_start, self.names)

    def token(self, token_id: int) -> bytes:
        """The bytes of one token, b"" where it has none. VocabularyError when out of range."""
        token_id = self.id_of(token_id)
        return self.token_bytes[self.token_offsets[token_id] : self.token_offsets[token_id + 1]].tobytes()

    def id_of(self, text_or_id: str | int) -> int:
        """Id of an added or special token given by its text (`"<|end|>"`), or an id, checked to be in range."""
        if isinstance(text_or_id, str):
            found = self.names.get(text_or_id)
            if found is None:
                near = difflib.get_close_matches(text_or_id, self.names, 3)
                hint = f"; did you mean {', '.join(map(repr, near))}?" if near else ""
                raise VocabularyError(f"the vocabulary has no special or added token {text_or_id!r}{hint}")
            return found
        try:
            token = operator.index(text_or_id)
        except TypeError:
            raise VocabularyError(f"token {text_or_id!r:.60} is no token id, nor the text of a token") from None
        if not 0 <= token < self.size:
            raise VocabularyError(f"token id {token} is out of range, there are {self.size}")
        return token

    def decode(self, ids: Iterable[int]) -> bytes:
        """The bytes of a token sequence; special and end tokens add none. Keeps a leading space (`text_start`)."""
        return b"".join(self.token(token_id) for token_id in ids if self.is_text[self.id_of(token_id)])


def checked_vocabulary(value: Any) -> Vocabulary:
    """`value`. Raises `TypeError` where it is no vocabulary."""
    if not isinstance(value, Vocabulary):
        raise TypeError(f"a stepmask.Vocabulary is needed, not {type(value).__name__}: {value!r:.60}")
    return value


def checked_ids(ids: Iterable[int], size: int | None, what: str) -> list[int]:
    """Token ids as ints, each at least 0 and below `size`. Raises `VocabularyError`, which says `what` they are."""
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        raise VocabularyError(f"{what}s are a list of token ids, not {ids!r:.60}")
    checked = []
    for token in ids:
        if isinstance(token, bool) or not isinstance(token, (int, np.integer)):
            raise VocabularyError(f"{what} {token!r} is no token id")
        if token < 0 or (size is not None and token >= size):
            if size is None:
                raise VocabularyError(f"{what}s are ids from 0 on, not {token}")
            raise VocabularyError(f"{what} {token} is out of range, there are {size} ids")
        checked.append(int(token))
    return checked
