"""End tokens that a grammar names: masks, matcher, sampler and settling agree on each of a row's end tokens.

A grammar may name an end token as a symbol of its own, one of several, before or after other text. Then some of the
row's end tokens are legal and others are not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mask_sets import tokens_of

from stepmask.grammar.lark import lark
from stepmask.grammar.limits import Limits
from stepmask.masks.batch import Batch
from stepmask.masks.compiled import CompiledGrammar, compile
from stepmask.masks.layout import PENDING
from stepmask.masks.outcome import Plan
from stepmask.masks.sampling import Sampler, SamplingParameters
from stepmask.masks.tables import KIND_EMPTY, KIND_SHIFT
from stepmask.masks.vocabulary import Vocabulary

TEXT = [b"a", b"b", b"ab", b"ba", b"(", b")"]
ENDS = [6, 7, 8]
VOCABULARY = Vocabulary.from_bytes(
    [*TEXT, b"", b"", b""], eos=ENDS, special=ENDS, names={f"<e{i}>": token for i, token in enumerate(ENDS)}
)
TOKENS = range(VOCABULARY.size)

# A language over symbols (bytes, and the numbers of special tokens from 256 on) as an expression: ("symbol", s),
# ("seq", x, y), ("or", x, y), ("star", x), or one of the two below.
NOTHING, NULL = ("nothing",), ("null",)
Expression = tuple[Any, ...]


def nullable(e: Expression) -> bool:
    kind = e[0]
    if kind == "seq":
        return nullable(e[1]) and nullable(e[2])
    if kind == "or":
        return nullable(e[1]) or nullable(e[2])
    return kind in ("star", "null")


def seq(x: Expression, y: Expression) -> Expression:
    return NOTHING if NOTHING in (x, y) else y if x == NULL else x if y == NULL else ("seq", x, y)


def either(x: Expression, y: Expression) -> Expression:
    return y if x == NOTHING or x == y else x if y == NOTHING else ("or", x, y)


def after(e: Expression, symbol: int) -> Expression:
    """The expression of what may follow `symbol`; NOTHING where it may not come."""
    kind = e[0]
    if kind == "symbol":
        return NULL if e[1] == symbol else NOTHING
    if kind == "seq":
        first = seq(after(e[1], symbol), e[2])
        return either(first, after(e[2], symbol)) if nullable(e[1]) else first
    if kind == "or":
        return either(after(e[1], symbol), after(e[2], symbol))
    return seq(after(e[1], symbol), e) if kind == "star" else NOTHING


def text_of(e: Expression) -> str:
    """As Lark writes it."""
    kind = e[0]
    if kind == "symbol":
        return f'"{chr(e[1])}"' if e[1] < 256 else f"<e{ENDS.index(e[1] - 256)}>"
    if kind == "star":
        return f"({text_of(e[1])})*"
    return f"({text_of(e[1])} {'|' if kind == 'or' else ''} {text_of(e[2])})"


symbols = st.sampled_from([*b"ab", *(256 + end for end in ENDS)]).map(lambda s: ("symbol", s))
expressions = st.recursive(
    symbols,
    lambda inner: st.one_of(
        st.tuples(st.just("seq"), inner, inner),
        st.tuples(st.just("or"), inner, inner),
        st.tuples(st.just("star"), inner),
    ),
    max_leaves=8,
)


class Oracle:
    """A sequence, by expressions alone."""

    def __init__(self, expression: Expression, ends: list[int], min_tokens: int) -> None:
        self.expression, self.ends, self.min_tokens = expression, ends, min_tokens
        self.position, self.finished = 0, False

    def _next(self, token: int) -> Expression:
        if token >= len(TEXT):
            return after(self.expression, 256 + token)
        here = self.expression
        for byte in TEXT[token]:
            here = after(here, byte)
        return here

    def legal(self) -> set[int]:
        if self.finished:
            return set()
        alive = {token for token in TOKENS if self._next(token) != NOTHING}
        named = {token for token in alive & set(self.ends) if token >= len(TEXT)}
        found = (alive - set(self.ends)) | named
        if nullable(self.expression) and (self.position >= self.min_tokens or not alive):
            found |= set(self.ends)
        return found

    def accept(self, token: int) -> None:
        if token in self.ends:
            self.finished = True
        else:
            self.expression = self._next(token)
        self.position += 1


def sampled_from(batch: Batch, plan: Plan, row: int, slots: np.ndarray) -> set[int]:
    """The tokens that the sampler may take for a row, by masking zeros."""
    logits = np.zeros((1, VOCABULARY.width), np.float32)
    Sampler(VOCABULARY.width, 1).apply_masks(
        logits,
        batch.tables,
        plan.mask_ids[row : row + 1],
        end_allowed=plan.end_allowed[row : row + 1],
        end_sets=batch.end_sets(slots[row : row + 1]),
    )
    return set(np.flatnonzero(logits[0] == 0).tolist())


def settled_from(batch: Batch, slot: int) -> set[int]:
    """The tokens that settling takes where no mask is there; those that are legal only beside nothing else may lack."""
    one = np.array([slot], np.int32)
    status = np.array([PENDING], np.uint8)
    batch.settler.take(Plan(one, np.array([KIND_EMPTY << KIND_SHIFT], np.int32), np.zeros(1, np.uint32), status), 10**6)
    _, candidates = Sampler(VOCABULARY.width, 1, VOCABULARY.width).sample(
        np.zeros((1, VOCABULARY.width), np.float32),
        np.array([KIND_EMPTY << KIND_SHIFT], np.int32),
        batch.tables,
        end_sets=batch.end_sets(one),
        parameters=SamplingParameters.build(1, temperature=0.0),
        status=status,
        possible=batch.possible,
    )
    legal = batch.settler.legal(batch.address, candidates)[0]
    return set(candidates.tokens[0, legal].tolist())


def check_all(batch: Batch, slots: np.ndarray, row: int) -> set[int]:
    """All that speaks of a row's legal tokens agrees; returns them."""
    slot = int(slots[row])
    legal = tokens_of(batch.mask(slot))
    assert {token for token in TOKENS if batch.allows(slot, token)} == legal
    plan = batch.plan(slots)
    assert plan.all_ready
    assert sampled_from(batch, plan, row, slots) == legal
    empty = plan.mask_ids[row] == KIND_EMPTY << KIND_SHIFT
    found = settled_from(batch, slot)
    assert found <= legal if empty else found == legal
    return legal


def walk(grammar: CompiledGrammar, ends: list[int], min_tokens: int, rng: np.random.Generator, oracle: Any) -> int:
    """A sequence of legal tokens, with refused ones between; how many times some end tokens were legal and some not."""
    batch = Batch(VOCABULARY, 3, None, pool_masks=8)
    other = batch.add(grammar, eos=ENDS)
    slot = batch.add(grammar, eos=ends, min_tokens=min_tokens)
    slots = np.array([other, -1, slot], np.int32)
    mixed = 0
    for _ in range(7):
        legal = check_all(batch, slots, 2)
        if oracle is not None:
            assert legal == oracle.legal()
        mixed += 0 < len(legal & set(ends)) < len(ends)
        refused = [token for token in TOKENS if token not in legal]
        if refused:
            assert not batch.advance(slots[2:], np.array([rng.choice(refused)], np.int32))[0]
        if not legal:
            break
        token = int(rng.choice(sorted(legal)))
        assert batch.advance(slots[2:], np.array([token], np.int32))[0]
        assert batch.is_finished(slot) == (token in ends)
        if oracle is not None:
            oracle.accept(token)
    return mixed


end_sets = st.sampled_from([ENDS, ENDS[:1], [7, 8], [8, 6], [6, 1], [1, 7, 3], [*ENDS, 0], []])


@given(expressions, end_sets, st.sampled_from([0, 0, 1, 3]), st.integers(0, 2**32), st.booleans())
def test_equals_the_oracle(expression: Expression, ends: list[int], least: int, seed: int, ahead: bool) -> None:
    limits = Limits() if ahead else Limits(max_eager_contexts=0)
    grammar = compile(lark(f"start: {text_of(expression)}"), VOCABULARY, limits, use_cache=False)
    walk(grammar, ends, least, np.random.default_rng(seed), Oracle(expression, ends, least))


@given(expressions, end_sets, st.sampled_from([0, 0, 2]), st.integers(0, 2**32))
def test_recursive_grammars_agree_with_themselves(
    expression: Expression, ends: list[int], least: int, seed: int
) -> None:
    text = f'start: {text_of(expression)} | "(" start ")" <e1>? start? | <e2> "a"'
    grammar = compile(lark(text), VOCABULARY, use_cache=False)
    walk(grammar, ends, least, np.random.default_rng(seed), None)


@pytest.mark.parametrize("counted", [False, True])
def test_one_of_several(counted: bool) -> None:
    """What a single bit gets wrong: of three end tokens the grammar names one, and the text is not complete."""
    body = '"a"~2..900 ' if counted else '"a" "a" '
    grammar = compile(lark(f'start: {body} <e1> | "b" <e0>?'), VOCABULARY, use_cache=False)
    batch = Batch(VOCABULARY, 1, None, pool_masks=4)
    slots = np.array([batch.add(grammar)], np.int32)
    assert batch.plan(slots).end_allowed.tolist() == [0]
    batch.advance(slots, np.array([0], np.int32))
    batch.advance(slots, np.array([0], np.int32))
    assert batch.plan(slots).end_allowed.tolist() == [0b010]
    assert check_all(batch, slots, 0) - {0} == {7}
    for token, accepted in ((6, 0), (8, 0), (7, 1)):
        assert batch.advance(slots, np.array([token], np.int32)).tolist() == [accepted]
    assert batch.is_finished(int(slots[0])) and check_all(batch, slots, 0) == set()
