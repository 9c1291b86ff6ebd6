"""Many tokens at once in recursive grammars: by the byte they begin with, and by what all that is below a node is."""

from __future__ import annotations

import itertools
import random

import pytest
from mask_sets import byte_vocabulary, tokens_of

from stepmask.grammar.gbnf import gbnf
from stepmask.grammar.limits import Limits
from stepmask.masks.batch import Batch
from stepmask.masks.compiled import CompiledGrammar, compile
from stepmask.masks.trie import BYTE_GROUPS, GROUPS_SHIFT, V_BELOW, V_NODE, V_NODE_PARENT, V_RANK_NODE, tables_of

#: 1,000 names of six letters, after each of some signs; some go on with another sign.
NAMES = ["".join(letters) for letters in itertools.product("abcde", "fg", "hijkl", "mnopqrstuv", "wx", "y")]
SIGNS = ".(,;"
WORDS = [sign + name for sign in SIGNS for name in NAMES]
MORE = [
    f"{word}{sign}{name[:3]}"
    for word, name, sign in zip(WORDS[::7], itertools.cycle(NAMES), itertools.cycle("(. "), strict=False)
]
BLANKS = [" " * n + end for n in range(1, 30) for end in ("", "a", "(", "\n", "if")]
KEYWORDS = ["if", "iffy", "int", "inter", " in", "in ", "If", "IF_1", "x9", "a_b", "_", "__a", "é", "aé", ".é"]
VOCABULARY = byte_vocabulary(*(text.encode() for text in dict.fromkeys([*WORDS, *MORE, *BLANKS, *KEYWORDS])))
#: Names end items of frames, and what follows or is called begins with other bytes than they go on with.
CALLS = """
root ::= value (";" value)*
value ::= name ("." name)* | name "(" (value ("," value)*)? ")" | "[" value "]"
name ::= [a-z]+
"""
#: Keywords beside names, blanks before what may begin with a letter, names that end at a count, and calls within them.
GRAMMARS = [
    CALLS,
    """
root ::= statement+
statement ::= "if" ws "(" ws value ws ")" ws statement | "int" [ \\n]+ name ws ";" ws | value ";" ws
value ::= name ws ("(" ws (value (ws "," ws value)*)? ws ")")? (ws "." ws value)? | "(" value ")"
name ::= [a-zA-Z_] [a-zA-Z0-9_]*
ws ::= [ \\n]*
""",
    """
root ::= "(" root ")" | [a-z.,;(]{1,40} | name{2,9} root
name ::= [a-fé]+ | "." root? "y"
""",
    """
root ::= first | "(" root ")" root?
first ::= [a-z ]+ second
second ::= "." first | "," [a-y]+ second | (";" name){1,5} root?
name ::= [a-z] name?
""",
]


def compiled(rules: str) -> CompiledGrammar:
    return compile(gbnf(rules), VOCABULARY, Limits(max_eager_contexts=0), use_cache=False)


@pytest.mark.parametrize("rules", GRAMMARS)
@pytest.mark.parametrize("seed", range(3))
def test_masks_along_random_walks(rules: str, seed: int) -> None:
    grammar, rng = compiled(rules), random.Random(seed)
    batch = Batch(VOCABULARY, 1, None)
    slot = batch.add(grammar)
    for _ in range(3):
        for _ in range(6):
            mask = tokens_of(batch.mask(slot))
            assert mask == {token for token in range(VOCABULARY.size) if batch.allows(slot, token)}
            text = [token for token in mask if VOCABULARY.token(token)]
            if not text:
                break
            token = min(rng.sample(text, min(4, len(text))), key=lambda token: len(VOCABULARY.token(token)))
            assert batch.accept_draft(slot, [token]) == 1
        batch.reset(slot)


def work_of_mask(text: str, rules: str = CALLS) -> tuple[int, int]:
    """(work of the mask after this text, tokens in it that begin with a sign)."""
    batch = Batch(VOCABULARY, 1, None)
    slot = batch.add(compiled(rules))
    assert batch.accept_bytes(slot, text.encode())
    before = batch.counters["work"]
    mask = tokens_of(batch.mask(slot))
    signs = sum(VOCABULARY.token(token)[:1] in (b".", b"(", b",", b";") for token in mask)
    assert signs >= 1000
    return batch.counters["work"] - before, signs


@pytest.mark.parametrize("text", ["a", "a(b", "a(b(c", "[a"])
def test_names_are_taken_by_their_subtrees(text: str) -> None:
    """Walking each of their bytes takes more than five units a token, looking for what may leave there eighteen."""
    work, signs = work_of_mask(text)
    assert work < 9 * signs // 2, (work, signs)


def test_counters_elsewhere_do_not_matter() -> None:
    """Only in a counter's own frame the states that end an item are more than their byte edges."""
    rules = CALLS.replace("root ::=", 'root ::= "#" [a-z]{2,900} "#" |')
    work, _ = work_of_mask("a", rules)
    assert work < work_of_mask("a")[0] * 1.1


def test_what_is_below_a_node() -> None:
    """The groups of the bytes there, and the ranks of the tokens."""
    arrays = tables_of(VOCABULARY).block.arrays
    nodes, below, parents = (arrays[field].reshape(-1) for field in (V_NODE, V_BELOW, V_NODE_PARENT))
    rank_nodes = arrays[V_RANK_NODE].reshape(-1)
    groups: list[set[int]] = [set() for _ in nodes]
    ranks: list[list[int]] = [[] for _ in nodes]
    for node, parent in enumerate(parents.tolist()):
        byte = int(nodes[node]) & 0xFF
        group = next((i for i, some in enumerate(BYTE_GROUPS) if byte in some), len(BYTE_GROUPS))
        while parent >= 0:
            groups[parent].add(group)
            parent = int(parents[parent])
    for rank, node in enumerate(rank_nodes.tolist()):
        parent = int(parents[node])
        while parent >= 0:
            ranks[parent].append(rank)
            parent = int(parents[parent])
    for node in range(len(nodes)):
        bits = (int(nodes[node]) & 0xFFFF) >> GROUPS_SHIFT
        assert bits == sum(1 << group for group in groups[node])
        begin, end = int(below[node]) & 0xFFFFFFFF, int(below[node]) >> 32
        assert list(range(begin, end)) == ranks[node]
