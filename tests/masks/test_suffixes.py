"""The table of suffixes holds each token's suffix from the first of each byte on, and nothing else."""

from __future__ import annotations

from mask_sets import byte_vocabulary, tokens_of
from wide_vocabulary import VOCABULARY

from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex
from stepmask.masks.batch import Batch
from stepmask.masks.compiled import compile
from stepmask.masks.suffixes import SUFFIX_BYTES
from stepmask.masks.trie import V_SUFFIX_BYTE, V_SUFFIX_NODE, V_SUFFIX_TOKEN_START, V_SUFFIX_TOKENS, V_VALID, tables_of

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def test_the_table() -> None:
    block = tables_of(VOCABULARY).block
    node, start, tokens = (block.arrays[i] for i in (V_SUFFIX_NODE, V_SUFFIX_TOKEN_START, V_SUFFIX_TOKENS))
    found: set[tuple[int, bytes]] = set()
    todo = [(int(at), b"") for at in block.arrays[V_SUFFIX_BYTE] if at >= 0]
    while todo:
        at, before = todo.pop()
        word = int(node[at])
        suffix = before + bytes([word & 0xFF])
        found |= {(int(entry[1]) & 0xFFFFFFFF, suffix) for entry in tokens[start[at] : start[at + 1]]}
        todo += [((word >> 32) + i, suffix) for i in range((word >> 16) & 0xFFFF)]
    valid = block.arrays[V_VALID].reshape(-1)
    expected = set()
    for token in range(VOCABULARY.size):
        text = VOCABULARY.token(token)
        if VOCABULARY.is_text[token] and (int(valid[token >> 6]) >> (token & 63)) & 1:
            for byte in set(text) & set(SUFFIX_BYTES):
                if text.index(byte) > 0:
                    expected.add((token, text[text.index(byte) :]))
    assert found == expected and len(expected) > 500


def test_tokens_with_one_suffix_are_walked_once() -> None:
    """The work of a state that one byte leaves is that of the suffixes, and one more a token that has one."""
    words = [f"{first}{second}{third};".encode() for first in LETTERS for second in LETTERS for third in "abc"]
    vocabulary = byte_vocabulary(*words, *(word[:-1] for word in words))
    compiled = compile(regex("(?:[^;]+;x)*"), vocabulary, Limits(max_eager_contexts=0), use_cache=False)
    batch = Batch(vocabulary, 1, None)
    slot = batch.add(compiled)
    assert batch.accept_bytes(slot, b"a")
    before = batch.counters["work"]
    mask = tokens_of(batch.mask(slot))
    assert batch.counters["work"] - before < 2 * len(words)
    assert mask == {token for token in range(vocabulary.size) if batch.allows(slot, token)}
