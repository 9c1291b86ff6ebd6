"""Hugging Face `tokenizer.json`: byte-level BPE, and SentencePiece-like BPE or Unigram.

What a token stands for is decided by the file's decoder (tokenizers library, `decoders`), because that is
what makes text of what a model says; the model's own type only says where the texts are.
"""

from __future__ import annotations

import json
from typing import Any

from ..errors import VocabularyError
from .table import MAX_TOKENS, SPACE_MARK, TokenTable, byte_token, from_byte_alphabet, member


def read(data: bytes, where: str) -> TokenTable:
    """Read the bytes of a tokenizer.json; `where` names it in errors. VocabularyError if it cannot be used."""
    return from_object(parse(data, where), where)


def parse(data: bytes, where: str) -> dict[str, Any]:
    """Parse a JSON object."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise VocabularyError(f"{where} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise VocabularyError(f"{where} is not a JSON object")
    return value


def from_object(value: dict[str, Any], where: str) -> TokenTable:
    """As `read`, from the parsed object."""
    model = member(value, "model", dict, where)
    try:
        decoder = _Decoder(value, where)
    except RecursionError as error:
        raise VocabularyError(f"{where}: its decoder is nested too deeply") from error
    pieces = _pieces(model, where)
    size = _size(pieces, where)
    ids = list(pieces.values())
    table = TokenTable([b""] * size, pieces=pieces, text_start=decoder.text_start)
    try:
        for token, text in zip(ids, decoder.tokens(list(pieces)), strict=True):
            table.tokens[token] = text
        _add_tokens(table, value.get("added_tokens") or [], decoder, where)
    except UnicodeEncodeError as error:
        raise VocabularyError(f"{where} holds a token that is not valid Unicode: {error}") from error
    unknown = _unknown_piece(model, table)
    if unknown is not None and table.names.get(unknown) is None:
        table.add(pieces[unknown], unknown, special=True, text=b"")
    return table


def _pieces(model: dict[str, Any], where: str) -> dict[str, int]:
    """Text -> id of the model's own vocabulary."""
    vocabulary = model.get("vocab")
    kind = model.get("type")
    if kind is None:  # old files: the model is told by its fields
        kind = "Unigram" if isinstance(vocabulary, list) else "BPE" if "merges" in model else "WordLevel"
    if kind == "BPE":
        for key in ("continuing_subword_prefix", "end_of_word_suffix"):
            if model.get(key):
                raise VocabularyError(f"{where}: BPE with {key}={model[key]!r} has no exact token bytes")
        pieces = member(model, "vocab", dict, f"{where}, model")
        if set(map(type, pieces.values())) - {int}:
            raise VocabularyError(f"{where}: a token id of the vocabulary is not an integer")
        return pieces
    if kind == "Unigram":
        pairs = member(model, "vocab", list, f"{where}, model")
        if not all(isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs):
            raise VocabularyError(f"{where}: the Unigram vocabulary is not a list of pairs of piece and score")
        pieces = {pair[0]: token for token, pair in enumerate(pairs)}
        if len(pieces) != len(pairs):
            raise VocabularyError(f"{where}: the Unigram vocabulary holds a piece twice")
        return pieces
    raise VocabularyError(f"{where}: a {kind} model has no exact token bytes; BPE and Unigram have")


def _size(pieces: dict[str, int], where: str) -> int:
    if not pieces:
        return 0
    if len(set(pieces.values())) != len(pieces):
        raise VocabularyError(f"{where}: two tokens of the vocabulary share an id")
    lowest, largest = min(pieces.values()), max(pieces.values())
    if lowest < 0 or largest >= MAX_TOKENS:
        raise VocabularyError(f"{where}: token id {lowest if lowest < 0 else largest} is out of range")
    return largest + 1


def _unknown_piece(model: dict[str, Any], table: TokenTable) -> str | None:
    """The piece that stands for whatever cannot be spelled: it has no bytes of its own."""
    name = model.get("unk_token")
    if isinstance(name, str) and name in table.pieces:
        return name
    token = model.get("unk_id")
    if isinstance(token, int) and 0 <= token < len(table.pieces):
        return next((text for text, piece in table.pieces.items() if piece == token), None)
    return None


def _add_tokens(table: TokenTable, added: Any, decoder: _Decoder, where: str) -> None:
    if not isinstance(added, list):
        raise VocabularyError(f"{where}: 'added_tokens' is not a list")
    for entry in added:
        token = member(entry, "id", int, f"{where}, added_tokens")
        content = member(entry, "content", str, f"{where}, added_tokens")
        if table.pieces.get(content, token) != token:
            raise VocabularyError(
                f"{where}: added token {content!r} has id {token}, but id {table.pieces[content]} in the vocabulary"
            )
        special = entry.get("special") is True
        table.add(token, content, special=special, text=b"" if special else decoder.added(content), where=where)


class _Decoder:
    """The decoder of a tokenizer.json as a function of single tokens."""

    def __init__(self, value: dict[str, Any], where: str) -> None:
        self.where = where
        self.byte_level = False
        self.byte_fallback = False
        self.replacements: list[tuple[str, str]] = []
        self.text_start = False
        decoder = value.get("decoder")
        if decoder is None:
            # Without one the library joins tokens with spaces; a byte-level spelling is still exact.
            if not (_has_byte_level(value.get("pre_tokenizer")) or _has_byte_level(value.get("normalizer"))):
                raise VocabularyError(f"{where} has no decoder, so its tokens have no exact bytes")
            self.byte_level = True
            return
        self._step(decoder, fused=False)

    def _step(self, step: Any, fused: bool) -> bool:
        """Take in one decoder step; returns whether tokens are joined after it."""
        kind = member(step, "type", str, f"{self.where}, decoder")
        if kind == "Sequence":
            for inner in member(step, "decoders", list, f"{self.where}, decoder"):
                fused = self._step(inner, fused)
        elif kind == "ByteLevel":
            self.byte_level = True
        elif kind == "ByteFallback":
            self.byte_fallback = True
        elif kind == "Fuse":
            return True
        elif kind == "Replace":
            pattern = step.get("pattern")
            if not isinstance(pattern, dict) or not isinstance(pattern.get("String"), str):
                raise VocabularyError(f"{self.where}: a decoder that replaces a regular expression is not supported")
            self.replacements.append((pattern["String"], member(step, "content", str, f"{self.where}, decoder")))
        elif kind == "Metaspace":
            scheme = step.get("prepend_scheme")
            if scheme is None:
                scheme = "never" if step.get("add_prefix_space") is False else "always"
            self.text_start = self.text_start or scheme != "never"
            self.replacements.append((str(step.get("replacement") or SPACE_MARK), " "))
        elif kind == "Strip" and fused and (step.get("content"), step.get("start"), step.get("stop")) == (" ", 1, 0):
            self.text_start = True
        else:
            raise VocabularyError(f"{self.where}: decoder {kind} ({step}) does not give single tokens exact bytes")
        return fused

    def tokens(self, texts: list[str]) -> list[bytes]:
        """Bytes of the model's tokens."""
        if self.byte_level and not self.replacements and not self.byte_fallback:
            return from_byte_alphabet(texts)
        if self.byte_level:
            raise VocabularyError(f"{self.where}: a byte-level decoder with other steps is not supported")
        if len(self.replacements) == 1:
            old, new = self.replacements[0]
            tokens = [text.replace(old, new).encode("utf-8") for text in texts]
        else:
            tokens = [self._replaced(text) for text in texts]
        if self.byte_fallback:
            tokens = [byte_token(text) or token for text, token in zip(texts, tokens, strict=True)]
        return tokens

    def added(self, text: str) -> bytes:
        """Bytes of an added token that stands for text.

        It is matched in plain text, so with a byte-level decoder it is its own UTF-8 (the
        library would take an added token of Latin-1 letters for bytes when it decodes).
        """
        value = byte_token(text) if self.byte_fallback else None
        return self._replaced(text) if value is None else value

    def _replaced(self, text: str) -> bytes:
        for old, new in self.replacements:
            text = text.replace(old, new)
        return text.encode("utf-8")


def _has_byte_level(step: Any) -> bool:
    if not isinstance(step, dict):
        return False
    inner = step.get("pretokenizers") or step.get("normalizers") or []
    return step.get("type") == "ByteLevel" or (isinstance(inner, list) and any(map(_has_byte_level, inner)))
