"""Vocabularies that suit recursive grammars, and sequences that are stepped beside the Earley oracle."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from earley import Earley, State
from mask_sets import tokens_of
from random_rules import FRAMES, LETTERS, TOKEN, WIDE, Rules, grammar

from stepmask.grammar.limits import Limits
from stepmask.masks.arena import ACCEPTED, UNFINISHED
from stepmask.masks.batch import Batch, Plan
from stepmask.masks.compiled import CompiledGrammar, compile
from stepmask.masks.layout import B_DIRECT
from stepmask.masks.tables import INDEX_BITS, KIND_DENSE, KIND_LIST, KIND_SHIFT, KIND_SINGLE
from stepmask.masks.vocabulary import Vocabulary

#: What rules name, and what vocabularies have a token for.
BYTES = b'ab() "' + WIDE.encode()


def random_text(oracle: Earley, rng: random.Random, length: int) -> bytes:
    """A live text of at most `length` bytes, tokens left out."""
    text, state = bytearray(), oracle.start()
    while state is not None and len(text) < length:
        live = sorted(symbol for symbol in oracle.live_symbols(state) if symbol < 256)
        # Classes lead everywhere: rather stay with bytes that rules name, and that the vocabulary has.
        live = [byte for byte in live if byte in b"ab()"] or [byte for byte in live if byte in BYTES]
        if not live:
            break
        text.append(rng.choice(live))
        state = oracle.step(state, text[-1])
    return bytes(text)


def vocabulary_for(
    grammars: list[Rules], rng: random.Random, *, spaces: bool = False, every_byte: bool = False
) -> Vocabulary:
    """All single bytes that the grammars need, tokens cut out of live texts and made up, duplicates, special tokens.

    The last tokens are the end token and `TOKEN`. `spaces`: some tokens begin with one, which texts may drop.
    """
    pieces = [bytes([b]) for b in (range(256) if every_byte else sorted(set(BYTES) | {0xBE, 0xAA}))]
    for found in grammars:
        oracle = Earley(found, "S")
        for _ in range(3):
            text = random_text(oracle, rng, 24)
            for _ in range(6 if text else 0):
                at = rng.randrange(len(text))
                pieces.append(text[at : at + rng.randint(2, 7)])
    for _ in range(rng.randint(4, 16)):
        pieces.append(b"".join(rng.choice(LETTERS) for _ in range(rng.randint(2, 5))))
    for _ in range(rng.randint(4, 10)):
        pieces.append(
            b"".join(rng.choice((b"a", b"b", b" ", b" ", b'"', b")", b"(")) for _ in range(rng.randint(2, 6)))
        )
    pieces += [" é".encode(), "üb".encode(), "語a".encode(), b"a" * 9, b" " * 3, "a語".encode()[:3]]
    pieces += [b")" * n for n in (2, 3, 5)] + [b"(" * n for n in (2, 3)] + [b"))((", b"", b"a", pieces[-1]]
    if spaces:
        pieces += [b" ", *(b" " + rng.choice(pieces) for _ in range(8)), b"  a"]
    rng.shuffle(pieces)
    pieces += [b"", b"<t>"]
    size = len(pieces)
    vocabulary = Vocabulary.from_bytes(
        pieces, eos=[size - 2], special=[size - 2, size - 1], names={TOKEN: size - 1}, width=size + rng.randint(0, 40)
    )
    if not spaces:
        return vocabulary
    arrays = (vocabulary.token_bytes, vocabulary.token_offsets, vocabulary.special)
    return Vocabulary(*arrays, vocabulary.eos, vocabulary.width, True, vocabulary.names)


def build(found: Rules, vocabulary: Vocabulary, limits: Limits = FRAMES) -> CompiledGrammar:
    return compile(grammar(found), vocabulary, limits, use_cache=False)


# ---------------------------------------------------------------------- sequences beside the oracle


@contextlib.contextmanager
def walking_directly(batch: Batch) -> Iterator[None]:
    """Masks of recursive grammars without contexts: by walking each sequence's own stack."""
    batch.drop_unfinished()
    batch._block.header[B_DIRECT] = 1
    try:
        yield
    finally:
        batch.drop_unfinished()
        batch._block.header[B_DIRECT] = 0


def rows(*values: int) -> npt.NDArray[np.int32]:
    return np.array(values, np.int32)


def legal_of(plan: Plan, batch: Batch, row: int) -> set[int]:
    """The legal tokens of a planned row, end tokens included; the row must be ready."""
    mask_id = int(plan.mask_ids[row])
    kind, index = mask_id >> KIND_SHIFT, mask_id & INDEX_BITS
    found = {end for i, end in enumerate(batch.vocabulary.eos or ()) if plan.end_allowed[row] >> i & 1}
    if kind == KIND_DENSE:
        found |= tokens_of(batch.tables.dense[index])
    elif kind == KIND_LIST:
        offset, length = batch.tables.list_offset[index], batch.tables.list_length[index]
        found |= set(batch.tables.list_tokens[offset : offset + length].tolist())
    elif kind == KIND_SINGLE:
        found.add(index)
    return found


@dataclass(frozen=True)
class Place:
    """Where the oracle is after some tokens."""

    state: State
    at_start: bool
    finished: bool = False


class Run:
    """One slot of a batch beside the oracle: its history is that of the slot."""

    def __init__(
        self,
        batch: Batch,
        compiled: CompiledGrammar,
        oracle: Earley,
        *,
        text_start: bool = False,
        min_tokens: int = 0,
    ) -> None:
        self.batch, self.compiled, self.oracle = batch, compiled, oracle
        self.text_start, self.min_tokens = text_start, min_tokens
        self.slot = batch.add(compiled, text_start=text_start, min_tokens=min_tokens)
        state = oracle.start()
        assert state is not None
        self.places = [Place(state, text_start)]
        self.said: list[int | bytes] = []
        self.kept = 0  # tokens that can be taken back

    @property
    def vocabulary(self) -> Vocabulary:
        return self.batch.vocabulary

    @property
    def place(self) -> Place:
        return self.places[-1]

    def after(self, token: int) -> State | None:
        """The oracle's state after a token that is not an end token."""
        vocabulary = self.vocabulary
        state = self.place.state
        if token == vocabulary.names.get(TOKEN):
            symbol = self.oracle.tokens.get(TOKEN)
            return None if symbol is None else self.oracle.step(state, symbol)
        if not 0 <= token < vocabulary.size or not vocabulary.is_text[token]:
            return None
        text = vocabulary.token(token)
        if self.place.at_start and text.startswith(b" "):
            text = text[1:]
        return self.oracle.read(state, text) if text else None

    def expected(self) -> set[int]:
        """The legal tokens, the end token included."""
        if self.place.finished:
            return set()
        assert self.vocabulary.eos is not None
        (end,) = self.vocabulary.eos
        legal = {token for token in range(self.vocabulary.size) if token != end and self.after(token) is not None}
        if self.place.state.complete and (len(self.said) >= self.min_tokens or not legal):
            legal.add(end)
        return legal

    def check(self, *, directly: bool = False) -> set[int]:
        """The slot's mask, `allows` and `is_complete` are the oracle's; returns the legal tokens."""
        expected = self.expected()
        if directly:
            with walking_directly(self.batch):
                found = tokens_of(self.batch.mask(self.slot))
        else:
            found = tokens_of(self.batch.mask(self.slot))
        assert found == expected, self.describe(found ^ expected)
        assert self.batch.is_complete(self.slot) == (self.place.finished or self.place.state.complete), self.describe()
        assert self.batch.is_finished(self.slot) == self.place.finished, self.describe()
        return expected

    def check_allows(self) -> None:
        """`allows` says the same as the mask, of every id and a few that are none."""
        expected = self.expected()
        found = {t for t in range(-2, self.vocabulary.width + 2) if self.batch.allows(self.slot, t)}
        assert found == expected, self.describe(found ^ expected)

    def describe(self, tokens: set[int] = frozenset()) -> str:  # type: ignore[assignment]
        spelled = [t if isinstance(t, bytes) else self.vocabulary.token(t) for t in self.said]
        differ = {t: self.vocabulary.token(t) if t < self.vocabulary.size else None for t in sorted(tokens)}
        return f"after {spelled}, differing: {differ}"

    def _push(self, place: Place, what: int | bytes) -> None:
        self.places.append(place)
        self.said.append(what)
        self.kept = min(self.kept + 1, self.batch.max_rollback)

    def accept(self, token: int) -> bool:
        """Accept or refuse a token, as the oracle does."""
        legal = token in self.expected()
        place = self.place
        position = self.batch.position(self.slot)
        status = int(self.batch.advance(rows(self.slot), rows(token))[0])
        answer = status == ACCEPTED
        if status == UNFINISHED:  # asking for the position takes it to its end
            answer = self.batch.position(self.slot) == position + 1
        assert answer == legal, self.describe({token})
        if legal:
            assert self.vocabulary.eos is not None
            if token in self.vocabulary.eos:
                self._push(Place(place.state, False, True), token)
            else:
                state = self.after(token)
                assert state is not None
                self._push(Place(state, False), token)
        return legal

    def accept_bytes(self, text: bytes) -> bool:
        state = None if self.place.finished else self.oracle.read(self.place.state, text)
        if not text:  # nothing to refuse
            state = self.place.state
        assert self.batch.accept_bytes(self.slot, text) == (state is not None), self.describe()
        if state is not None and text:
            self._push(Place(state, False), text)
        return state is not None

    def rollback(self, n: int) -> None:
        self.batch.rollback(self.slot, n)
        if n:
            del self.places[-n:], self.said[-n:]
            self.kept -= n

    def reset(self) -> None:
        self.batch.reset(self.slot)
        del self.places[1:], self.said[:]
        self.kept = 0

    def fork(self) -> Run:
        other = object.__new__(Run)
        other.__dict__.update(self.__dict__, places=list(self.places), said=list(self.said))
        other.slot = self.batch.fork(self.slot)
        return other

    def replayed(self, batch: Batch) -> Run:
        """The same sequence in another batch."""
        other = Run(batch, self.compiled, self.oracle, text_start=self.text_start, min_tokens=self.min_tokens)
        for what in self.said:
            assert other.accept_bytes(what) if isinstance(what, bytes) else other.accept(what)
        return other

    def remove(self) -> None:
        self.batch.remove(self.slot)
