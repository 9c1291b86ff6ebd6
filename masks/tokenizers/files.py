"""Which format a file has, told by its content, and what the files beside it add."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from ..errors import VocabularyError
from . import gguf, hf_json, sentencepiece, tiktoken
from .table import TokenTable, member

_RANK_LINE = re.compile(rb"\s*[A-Za-z0-9+/]+={0,2} \d+\s")


def read(path: str | os.PathLike[str]) -> TokenTable:
    """Read any supported tokenizer file with what the configuration files in its folder add.

    VocabularyError for a damaged or unsupported file, OSError for one that cannot be read.
    """
    path = Path(path)
    if path.is_dir():
        raise VocabularyError(f"{path.name} is a folder; name the tokenizer file in it")
    with path.open("rb") as file:
        if file.read(4) == gguf.MAGIC:
            return gguf.read(path)
    data, where = path.read_bytes(), path.name
    if not data.strip():
        raise VocabularyError(f"{where} is empty")
    if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{":
        value = hf_json.parse(data, where)
        if "model" in value:
            table = hf_json.from_object(value, where)
        elif "vocab" in value and "config" in value:
            return tiktoken.read_tekken(value, where)
        else:
            raise VocabularyError(f"{where} is JSON, but neither a tokenizer.json nor a tekken.json")
    elif _RANK_LINE.match(data):
        table = tiktoken.read(data, where)
    else:
        table = sentencepiece.read(data, where)
    _read_beside(table, path)
    return table


def _read_beside(table: TokenTable, path: Path) -> None:
    """Added tokens and end tokens from the configuration files in the tokenizer's folder."""
    config = _optional(path.with_name("tokenizer_config.json"))
    added = config.get("added_tokens_decoder")
    if added is not None:
        _add_declared(table, member(config, "added_tokens_decoder", dict, "tokenizer_config.json"), path.name)
    ends: list[int] = []
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        declared = _optional(path.with_name(name)).get("eos_token")
        text = declared.get("content") if isinstance(declared, dict) else declared
        if text is None:
            continue
        found = table.find(text) if isinstance(text, str) else None
        if found is None:
            raise VocabularyError(f"{name} names the end token {text!r}, which {path.name} does not have")
        ends.append(found)
    declared = _optional(path.with_name("generation_config.json")).get("eos_token_id")
    for token in declared if isinstance(declared, list) else [] if declared is None else [declared]:
        if type(token) is not int or not 0 <= token < len(table.tokens):
            raise VocabularyError(f"generation_config.json names end token {token!r}, which {path.name} does not have")
        ends.append(token)
    if ends:
        table.eos = tuple(sorted(set(ends)))


def _add_declared(table: TokenTable, added: dict[str, Any], where: str) -> None:
    """Take in `added_tokens_decoder`: tokens the tokenizer file does not hold, and which of them all are special."""
    for key, entry in added.items():
        content = member(entry, "content", str, "tokenizer_config.json, added_tokens_decoder")
        special = entry.get("special") is True
        token = int(key) if key.isdecimal() and len(key) < 10 else -1
        found = table.find(content)
        if found is None:
            if token < len(table.tokens) and (token < 0 or table.tokens[token] or token in table.special):
                raise VocabularyError(f"tokenizer_config.json gives id {key} to {content!r}, {where} to another token")
            text = content.encode("utf-8", "replace")
            table.add(token, content, special=special, text=text, where="tokenizer_config.json")
        elif found != token:
            raise VocabularyError(f"tokenizer_config.json gives {content!r} id {key}, {where} gives it id {found}")
        else:
            table.add(token, content, special=special or token in table.special, text=table.tokens[token])


def _optional(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    return hf_json.parse(data, path.name)
