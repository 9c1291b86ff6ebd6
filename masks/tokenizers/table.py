"""What every tokenizer format is read into, and the rules the formats share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..errors import VocabularyError

T = TypeVar("T")

#: Largest number of token ids read from a file; a larger id is taken for damage, not for a reason to allocate.
MAX_TOKENS = 1 << 24

#: Names that mark the end of an answer where no file beside the tokenizer says which tokens do.
END_TOKEN_NAMES = (
    "</s>", "<eos>", "<|eos|>", "[EOS]", "<EOS>",
    "<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "<|END_OF_TURN_TOKEN|>",
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<turn|>", "<|eot|>", "<|eom|>", "<|return|>",
    "<|call|>", "<|end_of_turn|>", "<|end_of_sentence|>", "<|EOT|>", "<EOT>", "<|end|>", "<end_of_utterance>",
)  # fmt: skip
# In the Harmony format <|end|> closes one message of several; <|return|> and <|call|> close the answer.
_MESSAGE_END, _ANSWER_END = "<|end|>", "<|return|>"

SPACE_MARK = "\u2581"
_BYTE_TOKENS = {f"<0x{value:02X}>": bytes([value]) for value in range(256)}


@dataclass
class TokenTable:
    """Tokens of one tokenizer file.

    `tokens[id]` are the exact bytes the token stands for, b"" for special tokens and holes. `special`
    are ids that never stand for text. `names` are the texts of added, control and special tokens.
    `eos` are the end tokens the file itself declares (None: it does not say). `text_start`: the first
    token of a text drops one leading space. `pieces` finds ordinary tokens by their text in the
    file's own spelling, to look up end tokens that are not listed as added.
    """

    tokens: list[bytes]
    special: set[int] = field(default_factory=set)
    names: dict[str, int] = field(default_factory=dict)
    eos: tuple[int, ...] | None = None
    text_start: bool = False
    pieces: Mapping[str, int] = field(default_factory=dict)

    def find(self, name: str) -> int | None:
        """Id of the token called `name`, or None."""
        found = self.names.get(name)
        return self.pieces.get(name) if found is None else found

    def add(self, token: int, name: str, *, special: bool, text: bytes, where: str = "the tokenizer") -> None:
        """Add or replace one named token, making room for its id."""
        if not 0 <= token < MAX_TOKENS:
            raise VocabularyError(f"{where}: token {name!r} has id {token}, which no vocabulary has")
        missing = token + 1 - len(self.tokens)
        if missing > 0:
            self.tokens.extend([b""] * missing)
        self.tokens[token] = b"" if special else text
        self.names[name] = token
        if special:
            self.special.add(token)
        else:
            self.special.discard(token)

    def end_tokens(self) -> tuple[int, ...] | None:
        """The declared end tokens, else those with a well-known name (`END_TOKEN_NAMES`), else None."""
        if self.eos is not None:
            return self.eos
        return well_known_end_tokens(self.names)


def well_known_end_tokens(names: Mapping[str, int]) -> tuple[int, ...] | None:
    """Ids of the names that are in `END_TOKEN_NAMES`; None when there is none."""
    found = [name for name in END_TOKEN_NAMES if name in names]
    if _ANSWER_END in found and _MESSAGE_END in found:
        found.remove(_MESSAGE_END)
    return tuple(sorted({names[name] for name in found})) or None


def _byte_alphabet() -> dict[str, int]:
    """Character -> byte of GPT-2's printable spelling of bytes (`bytes_to_unicode` of its encoder).

    Printable bytes stand for themselves; the others are numbered from U+0100 in byte order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in printable]
    return {chr(value): value for value in printable} | {chr(0x100 + k): value for k, value in enumerate(others)}


BYTE_ALPHABET = _byte_alphabet()
# Characters below 256 that spell no byte are sent out of Latin-1, so that encoding fails on them.
_TO_LATIN = dict.fromkeys(range(256), 0xFFFF) | {ord(char): value for char, value in BYTE_ALPHABET.items()}


def from_byte_alphabet(texts: list[str]) -> list[bytes]:
    """Bytes of tokens in GPT-2's spelling. A token with any other character stands for its own UTF-8."""
    try:
        joined = "".join(texts).translate(_TO_LATIN).encode("latin-1")
    except UnicodeEncodeError:
        if len(texts) == 1:
            return [texts[0].encode("utf-8")]
        half = len(texts) // 2  # few tokens are like that: close in on them
        return from_byte_alphabet(texts[:half]) + from_byte_alphabet(texts[half:])
    tokens, start = [], 0
    for text in texts:
        end = start + len(text)
        tokens.append(joined[start:end])
        start = end
    return tokens


def byte_token(text: str) -> bytes | None:
    """The single byte that `<0xNN>` stands for, None for any other text."""
    return _BYTE_TOKENS.get(text)


def member(value: Any, key: str, kind: type[T], where: str) -> T:
    """`value[key]`, checked to be a `kind`; VocabularyError names `where` it was looked for."""
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise VocabularyError(f"{where}: {key!r} is missing or not of type {kind.__name__}")
    return found
