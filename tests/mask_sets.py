"""Masks as sets of token ids, and the same found by brute force."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from oracles import ReferenceMatcher

from stepmask.masks.vocabulary import Vocabulary


def tokens_of(mask: npt.NDArray[np.uint32]) -> set[int]:
    """The token ids whose bits are set."""
    return set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist())


def byte_vocabulary(*more: bytes) -> Vocabulary:
    """The 256 single bytes (token id = byte), then `more`, then one end token."""
    tokens = [bytes([b]) for b in range(256)] + list(more)
    return Vocabulary.from_bytes([*tokens, b""], eos=[len(tokens)], special=[len(tokens)])


def brute_mask(
    reference: ReferenceMatcher, vocabulary: Vocabulary, eos: Iterable[int] | None = None, *, drop_space: bool = False
) -> set[int]:
    """The legal tokens: every token by itself, byte by byte, and the end tokens where the text may end.

    `drop_space`: a token's leading space counts for nothing, as that of a SentencePiece text's first token.
    """
    ends = set(vocabulary.eos or () if eos is None else eos)
    legal = set(ends) if reference.is_complete else set()
    for token in np.flatnonzero(vocabulary.is_text).tolist():
        data = vocabulary.token(token)
        if drop_space and data.startswith(b" "):
            data = data[1:]
        if data and token not in ends and reference.copy().accept(data):
            legal.add(token)
    return legal
