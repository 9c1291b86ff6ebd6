"""What leaves a frame is looked for only where it may: the work of a mask is that of its tokens' bytes."""

from __future__ import annotations

import itertools

import pytest
from mask_sets import byte_vocabulary, tokens_of

from stepmask.grammar.gbnf import gbnf
from stepmask.grammar.limits import Limits
from stepmask.masks.batch import Batch
from stepmask.masks.compiled import CompiledGrammar, compile

#: 1,000 names of six letters, after each of some signs.
NAMES = ["".join(letters) for letters in itertools.product("abcde", "fg", "hijkl", "mnopqrstuv", "wx", "y")]
SIGNS = ".(,;"
VOCABULARY = byte_vocabulary(*((sign + name).encode() for sign in SIGNS for name in NAMES))
#: Names end items of frames, and what follows or is called begins with other bytes than they go on with.
CALLS = """
root ::= value (";" value)*
value ::= name ("." name)* | name "(" (value ("," value)*)? ")" | "[" value "]"
name ::= [a-z]+
"""


def compiled(rules: str) -> CompiledGrammar:
    return compile(gbnf(rules), VOCABULARY, Limits(max_eager_contexts=0), use_cache=False)


@pytest.mark.parametrize("text", ["a", "a(b", "a(b(c", "[a"])
def test_bytes_of_names_cost_one_unit(text: str) -> None:
    batch = Batch(VOCABULARY, 1, None)
    slot = batch.add(compiled(CALLS))
    assert batch.accept_bytes(slot, text.encode())
    before = batch.counters["work"]
    mask = tokens_of(batch.mask(slot))
    work = batch.counters["work"] - before
    assert mask == {token for token in range(VOCABULARY.size) if batch.allows(slot, token)}
    walked = sum(VOCABULARY.token(token)[:1] in (b".", b"(", b",", b";") for token in mask)
    assert walked >= 1000
    # Names of many tokens share their bytes. Looking at each byte for what may leave there takes fifteen units a token.
    assert work < 7 * walked, (work, walked)
