"""`Batch.advance(ends=True)`: tokens that leave nothing but an end, told with the token instead of by the next mask."""

from __future__ import annotations

import random

import numpy as np
import pytest
from earley import Earley
from hypothesis import assume, given
from hypothesis import strategies as st
from mask_sets import byte_vocabulary, tokens_of
from random_rules import ALL_LIMITS, Rules, is_language, rules
from recursive_cases import build, vocabulary_for

from stepmask.grammar.choice import choice
from stepmask.grammar.expression import Expression
from stepmask.grammar.json_schema import json_schema
from stepmask.grammar.lark import lark
from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex
from stepmask.masks.arena import ACCEPTED, ENDED
from stepmask.masks.batch import Batch
from stepmask.masks.compiled import compile
from stepmask.masks.errors import StackLimitError


@given(rules(tokens=True, members=True), st.integers(0, 2**32 - 1), st.sampled_from(ALL_LIMITS))
def test_an_end_is_one_and_the_rest_is_not_changed(found: Rules, seed: int, limits: Limits) -> None:
    """A row that is told to be at its end has a mask of end tokens alone; without being asked the answer is 1."""
    rng = random.Random(seed)
    assume(is_language(found))
    vocabulary = vocabulary_for([found], rng)
    compiled, oracle = build(found, vocabulary, limits), Earley(found, "S")
    batch = Batch(vocabulary, 2, None)
    asked, plain = batch.add(compiled), batch.add(compiled)
    slots = np.array([asked, -1], np.int32)
    assert oracle is not None
    for _ in range(12):
        try:
            legal = sorted(tokens_of(batch.mask(asked)) - set(vocabulary.eos or ()))
        except StackLimitError:  # named, and of no interest here
            break
        if not legal:
            break
        token = rng.choice(legal)
        answers = batch.advance(slots, np.array([token, token], np.int32), ends=True)
        assert answers[0] in (ACCEPTED, ENDED) and answers[1] == ACCEPTED
        assert batch.advance(np.array([plain], np.int32), np.array([token], np.int32)).tolist() == [ACCEPTED]
        try:
            after = tokens_of(batch.mask(asked))
        except StackLimitError:
            assert answers[0] == ACCEPTED
            break
        assert after == tokens_of(batch.mask(plain))
        if answers[0] == ENDED:
            assert batch.is_complete(asked) and after <= set(vocabulary.eos or ())


@pytest.mark.parametrize(
    ("expression", "text", "ended"),
    [
        (regex(r"\d{3}"), b"123", True),
        (regex(r"\d{2,4}"), b"123", False),
        (regex(r"a|bc*"), b"a", True),
        (regex(r"a|bc*"), b"b", False),
        (choice(["yes", "yesterday", "no"]), b"no", True),
        (choice(["yes", "yesterday", "no"]), b"yes", False),
        (
            json_schema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}),
            b'{"a": 1}',
            True,
        ),
        (json_schema({"type": "integer"}), b"1", False),
        (lark('start: "(" start ")" | "x"'), b"((x))", True),
        (lark('start: "(" start ")" | "x"'), b"((x)", False),
        (lark('start: "x" start | "x"'), b"xx", False),
    ],
)
def test_it_is_seen_of_what_people_use(expression: Expression, text: bytes, ended: bool) -> None:
    vocabulary = byte_vocabulary()
    batch = Batch(vocabulary, 1, None)
    slots = np.array([batch.add(compile(expression, vocabulary, use_cache=False))], np.int32)
    answers = [int(batch.advance(slots, np.array([byte], np.int32), ends=True)[0]) for byte in text]
    assert answers == [ACCEPTED] * (len(text) - 1) + [ENDED if ended else ACCEPTED]


def test_what_is_refused_is_not_an_end() -> None:
    vocabulary = byte_vocabulary()
    batch = Batch(vocabulary, 1, None)
    slots = np.array([batch.add(compile(regex("ab"), vocabulary, use_cache=False))], np.int32)
    assert batch.advance(slots, np.array([ord("b")], np.int32), ends=True).tolist() == [0]
    assert batch.position(int(slots[0])) == 0
