"""A real tokenizer of 257 tokens."""

from __future__ import annotations

from typing import Any

import pytest

END = "<end>"


def byte_tokenizer() -> Any:
    """A `tokenizers.Tokenizer`: the 256 single bytes in byte-level spelling, then `END`, which is special."""
    tokenizers = pytest.importorskip("tokenizers")
    characters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(characters)}, []))
    tokenizer.add_special_tokens([END])
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer
