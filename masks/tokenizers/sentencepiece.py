"""SentencePiece `.model`: a protobuf of which only pieces, their types, and a few settings matter.

Field numbers are those of `sentencepiece_model.proto`:
ModelProto { pieces = 1, trainer_spec = 2, normalizer_spec = 3, denormalizer_spec = 5 },
SentencePiece { piece = 1, score = 2, type = 3 },
TrainerSpec { treat_whitespace_as_suffix = 24, eos_piece = 47 },
NormalizerSpec { precompiled_charsmap = 2, add_dummy_prefix = 3, remove_extra_whitespaces = 4 }.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import VocabularyError
from .table import MAX_TOKENS, SPACE_MARK, TokenTable, byte_token

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def read(data: bytes, where: str) -> TokenTable:
    """Read the bytes of a .model file; `where` names it in errors.

    Unknown and control pieces are special, all others stand for their text, as SentencePiece decodes them.
    `text_start` follows SentencePiece too: a dummy prefix or the removal of extra white space drops a leading space.
    VocabularyError when the file is damaged or of another kind.
    """
    pieces: list[tuple[str, int]] = []
    end_piece, space_after = "</s>", False
    drops_space = {3: True, 4: True}
    for number, value in _fields(data, where):
        if number == 1:
            pieces.append(_piece(_nested(value, where), where))
            if len(pieces) > MAX_TOKENS:
                raise VocabularyError(f"{where} has more than {MAX_TOKENS} pieces")
        elif number == 2:
            for inner, setting in _fields(_nested(value, where), where):
                if inner == 24:
                    space_after = setting == 1
                elif inner == 47:
                    end_piece = _text(setting, where)
        elif number == 3:
            for inner, setting in _fields(_nested(value, where), where):
                if inner in drops_space:
                    drops_space[inner] = setting == 1
        elif number == 5 and any(inner == 2 and setting for inner, setting in _fields(_nested(value, where), where)):
            raise VocabularyError(f"{where}: it rewrites decoded text (denormalizer_spec), tokens have no exact bytes")
    if not pieces:
        raise VocabularyError(f"{where} is no tokenizer file of a known kind, or a SentencePiece model without pieces")
    if space_after:
        raise VocabularyError(f"{where}: treat_whitespace_as_suffix is not supported")
    return _table(pieces, end_piece, any(drops_space.values()), where)


def _table(pieces: list[tuple[str, int]], end_piece: str, text_start: bool, where: str) -> TokenTable:
    table = TokenTable([text.replace(SPACE_MARK, " ").encode("utf-8") for text, _ in pieces], text_start=text_start)
    table.pieces = {text: token for token, (text, _) in enumerate(pieces)}
    for token, (text, kind) in enumerate(pieces):
        if kind == NORMAL:
            continue
        if kind == BYTE:
            value = byte_token(text)
            if value is None:
                raise VocabularyError(f"{where}, piece {token}: {text!r} is no byte")
            table.tokens[token] = value
        elif kind in (UNKNOWN, CONTROL):
            table.add(token, text, special=True, text=b"")
        elif kind == USER_DEFINED:
            table.names[text] = token
        elif kind != UNUSED:
            raise VocabularyError(f"{where}, piece {token}: unknown type {kind}")
    end = table.names.get(end_piece)
    table.eos = None if end is None or end not in table.special else (end,)
    return table


def _piece(data: bytes, where: str) -> tuple[str, int]:
    if len(data) > 6 and data[0] == 0x0A and len(data) == data[1] + 7 and data[-5] == 0x15:
        return _text(data[2:-5], where), NORMAL  # nearly all are like this: text, then score, and no type
    text, kind = "", NORMAL
    for number, value in _fields(data, where):
        if number == 1:
            text = _text(value, where)
        elif number == 3:
            kind = value if isinstance(value, int) else -1
    return text, kind


def _nested(value: bytes | int, where: str) -> bytes:
    if isinstance(value, int):
        raise VocabularyError(f"{where}: damaged, a number where a message should be")
    return value


def _text(value: bytes | int, where: str) -> str:
    try:
        return _nested(value, where).decode("utf-8")
    except UnicodeDecodeError as error:
        raise VocabularyError(f"{where}: not valid UTF-8") from error


def _fields(data: bytes, where: str) -> Iterator[tuple[int, bytes | int]]:
    """Fields of one protobuf message: number, and the value of a varint or the bytes of anything else."""
    position, end = 0, len(data)
    while position < end:
        key, position = _varint(data, position, where)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, position = _varint(data, position, where)
            yield number, value
            continue
        if kind == _BYTES:
            length, position = _varint(data, position, where)
        elif kind in (_FIXED32, _FIXED64):
            length = 4 if kind == _FIXED32 else 8
        else:
            raise VocabularyError(f"{where}: damaged, or no tokenizer file of a known kind")
        if length > end - position:
            raise VocabularyError(f"{where}: cut short, or no tokenizer file of a known kind")
        yield number, data[position : position + length]
        position += length


def _varint(data: bytes, position: int, where: str) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise VocabularyError(f"{where}: cut short, or no tokenizer file of a known kind")
