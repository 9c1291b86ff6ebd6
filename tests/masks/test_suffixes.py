"""The table of suffixes holds each token's suffix from the first of each byte on, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from mask_sets import byte_vocabulary, tokens_of
from wide_vocabulary import VOCABULARY

from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex
from stepmask.masks.batch import Batch
from stepmask.masks.compiled import compile
from stepmask.masks.suffixes import SUFFIX_BYTES, SUFFIX_COST
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


WORDS = [f"{first}{second}{third};".encode() for first in LETTERS for second in LETTERS for third in LETTERS[:12]]
SAME = byte_vocabulary(*WORDS, *(word[:-1] for word in WORDS))
BEFORE = compile(regex("(?:[^;]+;x)*"), SAME, Limits(max_eager_contexts=0), use_cache=False)


def test_tokens_with_one_suffix_are_walked_once() -> None:
    """The work of a state that one byte leaves is that of the suffixes, and SUFFIX_COST more a token that has one."""
    batch = Batch(SAME, 1, None)
    slot = batch.add(BEFORE)
    assert batch.accept_bytes(slot, b"a")
    before = batch.counters["work"]
    mask = tokens_of(batch.mask(slot))
    assert batch.counters["work"] - before < (1 + SUFFIX_COST) * len(WORDS)
    assert mask == {token for token in range(SAME.size) if batch.allows(slot, token)}


@pytest.mark.parametrize("budget_us", [0.0, 1.0, 5.0])
def test_looking_at_them_is_interrupted_when_the_fuel_is_spent(budget_us: float) -> None:
    """As many as may be, of as many rows as there are: no plan takes much more than its fuel, and masks are right."""
    batch = Batch(SAME, 2, budget_us, fuel_per_us=50.0)
    other = compile(regex("(?:[^;b]+;x)*"), SAME, Limits(max_eager_contexts=0), use_cache=False)
    slots = np.array([batch.add(BEFORE), batch.add(other)], np.int32)
    for slot in slots.tolist():
        assert batch.accept_bytes(slot, b"a")
    plans, is_ready = 0, False
    while not is_ready:
        before = batch.counters["work"]
        is_ready = batch.plan(slots).all_ready
        plans += 1
        assert batch.counters["work"] - before <= batch.plan_fuel + batch.fuel_slack < SUFFIX_COST * len(WORDS) / 2
    assert plans > 5
    for slot in slots.tolist():
        assert tokens_of(batch.mask(slot)) == {token for token in range(SAME.size) if batch.allows(slot, token)}
