"""Rank files: tiktoken's (`base64 rank` a line) and Mistral's tekken.json; and `tiktoken.Encoding` objects."""

from __future__ import annotations

import base64
from typing import Any

from ..errors import VocabularyError
from .table import MAX_TOKENS, TokenTable, member


def read(data: bytes, where: str) -> TokenTable:
    """Read a tiktoken rank file. It names no special tokens and no end tokens."""
    ranks: dict[int, bytes] = {}
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        parts = line.split()
        if len(parts) != 2 or not parts[1].isdigit():
            raise VocabularyError(f"{where}, line {number}: expected base64 and a rank")
        rank = int(parts[1]) if len(parts[1]) < 10 else MAX_TOKENS
        if rank in ranks or rank >= MAX_TOKENS:
            raise VocabularyError(f"{where}, line {number}: rank {parts[1].decode()} is there twice or out of range")
        ranks[rank] = _decoded(parts[0], f"{where}, line {number}")
    if not ranks:
        raise VocabularyError(f"{where} holds no tokens")
    table = TokenTable([b""] * (max(ranks) + 1))
    for rank, token in ranks.items():
        table.tokens[rank] = token
    return table


def _decoded(text: bytes | str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise VocabularyError(f"{where}: damaged base64 ({error})") from error


#: Control tokens of tekken files that do not list their own (versions up to v7 of mistral-common).
_TEKKEN_CONTROL = (
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]",
    "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
)  # fmt: skip


def read_tekken(value: dict[str, Any], where: str) -> TokenTable:
    """Read a parsed tekken.json (mistral-common, `Tekkenizer`).

    Ids 0 to `default_num_special_tokens` - 1 are control tokens, then come the ranks in order, cut so that
    there are `default_vocab_size` ids in all. Unlisted control tokens are called `<SPECIAL_n>`.
    """
    config = member(value, "config", dict, where)
    size = member(config, "default_vocab_size", int, f"{where}, config")
    reserved = member(config, "default_num_special_tokens", int, f"{where}, config")
    vocabulary = member(value, "vocab", list, where)
    if not 0 <= reserved <= size <= min(reserved + len(vocabulary), MAX_TOKENS):
        raise VocabularyError(
            f"{where}: {len(vocabulary)} ranks do not fill {size} ids of which {reserved} are special"
        )
    table = TokenTable([b""] * size)
    for rank, entry in enumerate(vocabulary[: size - reserved]):
        if member(entry, "rank", int, f"{where}, vocab[{rank}]") != rank:
            raise VocabularyError(f"{where}, vocab[{rank}]: its rank is {entry['rank']}")
        text = member(entry, "token_bytes", str, f"{where}, vocab[{rank}]")
        table.tokens[reserved + rank] = _decoded(text, f"{where}, vocab[{rank}]")
    for token, name in _tekken_control(value, reserved, where).items():
        table.add(token, name, special=True, text=b"")
    end = table.names.get("</s>")
    table.eos = None if end is None else (end,)
    return table


def _tekken_control(value: dict[str, Any], reserved: int, where: str) -> dict[int, str]:
    names = {token: f"<SPECIAL_{token}>" for token in range(reserved)}
    if value.get("special_tokens") is None:
        names.update(enumerate(_TEKKEN_CONTROL[:reserved]))
        return names
    for entry in member(value, "special_tokens", list, where):
        token = member(entry, "rank", int, f"{where}, special_tokens")
        if token not in names:
            raise VocabularyError(f"{where}, special_tokens: rank {token} is out of range")
        names[token] = member(entry, "token_str", str, f"{where}, special_tokens")
    return names


def from_encoding(encoding: Any) -> TokenTable:
    """From a `tiktoken.Encoding`."""
    table = TokenTable([b""] * (encoding.max_token_value + 1))
    for token in range(encoding.max_token_value + 1):
        try:
            table.tokens[token] = encoding.decode_single_token_bytes(token)
        except KeyError:
            continue  # a hole
    for name in encoding.special_tokens_set:
        table.add(encoding.encode_single_token(name), name, special=True, text=b"")
    return table
