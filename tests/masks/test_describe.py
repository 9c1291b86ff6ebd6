"""What kernels are told of an automaton besides its sections, against plain Python."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loop_oracles import edge_table, next_after_class

import stepmask
from stepmask.grammar.automaton import SPREAD, Automaton
from stepmask.grammar.compile import compile_grammar
from stepmask.masks.describe import describe, live_bytes
from stepmask.masks.layout import (
    G_FIELDS,
    G_KINDS,
    G_LIVE,
    G_SPREAD_BYTES,
    G_SPREAD_GROUP,
    G_STATE_MASK,
    KIND_BYTES,
    KIND_COUNT,
    KIND_FIRST,
    KIND_NEXT,
    KIND_OF,
)
from stepmask.masks.loop_class import SPREAD_WORDS
from stepmask.masks.memory import Block
from stepmask.masks.warm_up import warm_up


def bytes_in(words: Any) -> set[int]:
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


def check_kinds(automaton: Automaton, kinds: list[int]) -> None:
    """Bytes of one kind lead alike from every state, and the lists of a kind's bytes are right."""
    of = kinds[KIND_OF : KIND_OF + 256]
    assert sorted(set(of)) == list(range(kinds[KIND_COUNT]))
    table = edge_table(automaton)
    for kind in range(kinds[KIND_COUNT]):
        own = [byte for byte in range(256) if of[byte] == kind]
        assert (table[:, own] == table[:, own[:1]]).all()
        assert kinds[KIND_FIRST + kind] == own[0]
        words = np.array(kinds[KIND_BYTES + 4 * kind : KIND_BYTES + 4 * kind + 4], np.int64)
        assert bytes_in(words) == set(own)
    ends = [b + 1 for b in range(255) if of[b] != of[b + 1]] + [256]
    begins = [0, *ends[:-1]]
    for begin, end in zip(begins, ends, strict=True):
        assert kinds[KIND_NEXT + begin : KIND_NEXT + end] == [end] * (end - begin)


def check(automaton: Automaton) -> int:
    """How many groups of SPREAD states there are, and that all is right."""
    warm_up()
    block = Block(G_FIELDS)
    sizes = describe(block, automaton)
    arrays = block.arrays
    ranges = automaton["loop_ranges"].reshape(-1, 2).tolist()
    bounds = automaton["loop_start"].tolist()
    assert sizes.tolist() == [
        sum(max(0, high - max(low, 0x80) + 1) for low, high in ranges[a:b]) for a, b in pairwise(bounds)
    ]
    assert (arrays[G_STATE_MASK] == -1).all() and len(arrays[G_STATE_MASK]) >= automaton.n_states
    live = set(np.flatnonzero((edge_table(automaton) >= 0).any(axis=0)).tolist())
    assert bytes_in(arrays[G_LIVE]) == set(np.flatnonzero(live_bytes(automaton)).tolist()) == live
    check_kinds(automaton, arrays[G_KINDS].tolist())
    spread = np.flatnonzero(automaton["state_flags"] & SPREAD).tolist()
    if not spread:
        assert G_SPREAD_BYTES not in arrays
        return 0
    group, entries = arrays[G_SPREAD_GROUP], arrays[G_SPREAD_BYTES].reshape(-1, SPREAD_WORDS)
    assert set(np.flatnonzero(group >= 0).tolist()) == set(spread)
    for state in spread:
        entry = entries[group[state]]
        assert (bytes_in(entry[:4]), bool(entry[4])) == next_after_class(automaton, state)
    return len(entries)


names = st.lists(st.sampled_from(["a", "ab", "abc", "é", "日本", "b1", "a b"]), min_size=1, max_size=4, unique=True)
scalars = st.sampled_from(
    [{"type": "string"}, {"type": "integer"}, {"type": "string", "pattern": "x[ab]*y"}, {"maxLength": 9},
     {"enum": ["é", 1, None]}]
)  # fmt: skip


@settings(max_examples=25)
@given(st.lists(st.tuples(names, st.data()), min_size=1, max_size=2), scalars, st.booleans())
def test_of_schemas(objects: list[tuple[list[str], Any]], other: dict[str, Any], closed: bool) -> None:
    schema: dict[str, Any] = {"type": "array", "items": other}
    for own, data in objects:
        properties = {name: data.draw(scalars) for name in own}
        schema = {"type": "object", "properties": {**properties, "in": schema}, "required": own[:1]}
        if closed:
            schema["additionalProperties"] = False
    check(compile_grammar(stepmask.json_schema(schema)))


@pytest.mark.parametrize(
    ("pattern", "groups"),
    [
        ("[a-z]+", 0),
        ('"[^"]*"', 0),
        (".*ab.*", 1),
        ("(?:.*cd.*|[^x]*ab[^x]*)", 2),
        ("(?:ab|\\d{1,900})x", 0),
        ("é?", 0),
    ],
)
def test_of_these(pattern: str, groups: int) -> None:
    assert check(compile_grammar(stepmask.regex(pattern))) == groups


def test_groups_have_room() -> None:
    """More frames with states that lead to others than there is room for at first."""
    names = [["ab", "ba"], ["bc", "cb"], ["cd", "dc"], ["de", "ed"], ["ef", "fe"], ["fg", "gf"], ["gh", "hg"]]
    shapes = [{"type": "object", "properties": {name: {"type": "integer"} for name in own}} for own in names]
    schema = {"type": "array", "prefixItems": shapes, "items": False}
    assert check(compile_grammar(stepmask.json_schema(schema))) > 4
