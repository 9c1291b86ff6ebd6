"""Masks within the names of objects, where any name may be: exact, and without walking what may follow elsewhere."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from mask_sets import tokens_of
from wide_vocabulary import END, VOCABULARY

from stepmask.grammar.compile import compile_grammar
from stepmask.grammar.json_schema import json_schema
from stepmask.masks import slots
from stepmask.masks.batch import Batch
from stepmask.masks.compiled import compile
from stepmask.masks.layout import COUNT_WORK, MAX_FEW
from stepmask.masks.leaving import NOTE_COST
from stepmask.masks.path import TOKEN_COST

NAMES = ["date", "day", "days", "default", "é", "name", "the name", "n\n", "zone", "-", ""]
SCHEMAS: list[dict[str, Any]] = [
    {"properties": {name: {"type": "integer"} for name in NAMES}},
    {"properties": dict.fromkeys(NAMES, True), "additionalProperties": {"type": "string"}, "required": ["day", "zone"]},
    {"properties": {name: {} for name in NAMES}, "additionalProperties": False},
    {"properties": {"abc": {}}, "patternProperties": {"^[a-f]+$": {"type": "null"}}, "additionalProperties": False},
    {
        "properties": {
            "a": {"type": "string", "pattern": "rocket|rock"},
            "b": {"type": "string", "pattern": "^\\w[^ ]*$"},
        }
    },
    {"properties": {"a": {"properties": {"d": {}}, "type": "object"}}, "minProperties": 1},
]
TEXTS = [
    '{"',
    '{"da',
    '{"day',
    '{"day": 1, "',
    '{"name": {"x": [1]}, "z',
    '{"other \n',
    '{"zz": "',
    '{"a": "rock',
    '{"b": "é',
]


def advanced(matcher: Any, text: str) -> bool:
    return all(matcher.accept(byte) for byte in text.encode())


@pytest.mark.parametrize("schema", SCHEMAS, ids=range(len(SCHEMAS)))
def test_every_token(schema: dict[str, Any]) -> None:
    compiled = compile(json_schema({"type": "object", **schema}), VOCABULARY, use_cache=False)
    rng = random.Random(json.dumps(schema))
    for text in TEXTS:
        matcher = compiled.matcher()
        if not advanced(matcher, text):
            continue
        for _ in range(3):
            mask = tokens_of(matcher.mask())
            assert mask == {token for token in range(VOCABULARY.size) if matcher.allows(token)}, text
            if not mask - {END}:
                break
            assert matcher.accept(rng.choice(sorted(mask - {END})))


def work_of_mask(compiled: Any, text: str) -> int:
    """Work of the mask after `text`, all masks before it known."""
    matcher = compiled.matcher()
    for byte in text.encode():
        matcher.mask()
        assert matcher.accept(byte)
    counters = matcher._batch.counter_values
    before = int(counters[COUNT_WORK])
    matcher.mask()
    return int(counters[COUNT_WORK]) - before


@pytest.mark.parametrize("text", ['{"', '{"d', '{"day', '{"x', '{"x": 1, "', '{"x": 1, "name'])
def test_only_what_may_leave_a_name_is_walked(text: str) -> None:
    schema = {"type": "object", "properties": {name: {} for name in NAMES if name.isascii()}}
    work = work_of_mask(compile(json_schema(schema), VOCABULARY, use_cache=False), text)
    leaving = [token for token in map(VOCABULARY.token, range(VOCABULARY.size)) if set(token) & set(b'"\\')]
    # A token's own cost and its bytes, and of every other one that it leaves the name; the bitmaps of the others.
    own = TOKEN_COST + NOTE_COST // 2
    assert work < sum(own + len(token) for token in leaving) + VOCABULARY.size // 8


def test_states_of_a_searched_pattern_loop_on_all_text() -> None:
    schema = {"type": "array", "items": {"type": "string", "pattern": "rocket|b[0-9]c"}}
    automaton = compile_grammar(json_schema(schema))
    used = {loop for loop in automaton["state_loop"].tolist() if loop >= 0}
    ranges = automaton["loop_ranges"].reshape(-1, 2)
    sizes = [int((r[:, 1] - r[:, 0] + 1).sum()) for r in np.split(ranges, automaton["loop_start"][1:-1])]
    assert used
    # Within the string every state goes on with all text, though many loop on digits by themselves.
    assert all(sizes[loop] > 0x10000 for loop in used)


def test_memory_of_contexts_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "MAX_IDLE_GRAMMARS", 30)
    batch = Batch(VOCABULARY, 1, None)
    memories = set()
    for i in range(60):
        compiled = compile(json_schema({"type": "array", "items": {"enum": [i, f"{i}é"]}}), VOCABULARY, use_cache=False)
        slot = batch.add(compiled)
        memories.add(id(batch._resident(compiled).contexts))
        assert batch.accept_bytes(slot, b'["')
        alone = compiled.matcher()
        assert alone.accept_bytes(b'["')
        for byte in f"{i}".encode():
            mask = tokens_of(batch.mask(slot))
            assert mask == {token for token in range(VOCABULARY.size) if alone.allows(token)}
            assert len(mask) <= MAX_FEW
            batch.advance(np.array([slot], np.int32), np.array([byte], np.int32))
            alone.accept(byte)
        batch.remove(slot)
    assert len(memories) <= 31
