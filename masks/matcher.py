"""One sequence: a batch of one."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .arena import ACCEPTED, TOO_DEEP
from .arguments import token_ids, whole
from .batch import Batch
from .errors import StackLimitError
from .finish import fewest_tokens, text_tokens

if TYPE_CHECKING:
    from .compiled import CompiledGrammar
    from .vocabulary import Vocabulary

#: Sequences of one batch behind matchers; another batch is made when all are taken.
SLOTS = 64


class _Shared:
    """The batches behind all matchers of one vocabulary and rollback depth, and their lock."""

    def __init__(self, vocabulary: Vocabulary, max_rollback: int) -> None:
        self._vocabulary = weakref.ref(vocabulary)
        self._max_rollback = max_rollback
        self.lock = threading.RLock()
        self.batches: list[Batch] = []

    def room(self) -> Batch:
        for batch in self.batches:
            if batch.free_slots:
                return batch
        vocabulary = self._vocabulary()
        assert vocabulary is not None, "a matcher holds its vocabulary"
        self.batches.append(Batch(vocabulary, SLOTS, None, max_rollback=self._max_rollback))
        return self.batches[-1]


_LOCK = threading.Lock()
DEFAULT_ROLLBACK = 256


def _shared_of(vocabulary: Vocabulary, max_rollback: int) -> _Shared:
    with _LOCK:
        # Kept by the vocabulary itself: the batches refer to it, so a table of weak keys would keep it for ever.
        by_depth: dict[int, _Shared] = vocabulary.shared
        if max_rollback not in by_depth:
            by_depth[max_rollback] = _Shared(vocabulary, max_rollback)
        return by_depth[max_rollback]


@contextlib.contextmanager
def shared_batch(vocabulary: Vocabulary) -> Iterator[Batch]:
    """A batch of matchers for a while, alone."""
    shared = _shared_of(vocabulary, DEFAULT_ROLLBACK)
    with shared.lock:
        yield shared.room()


def _release(shared: _Shared, batch: Batch, slot: int) -> None:
    with shared.lock:
        batch.remove(slot)


class Matcher:
    """One sequence of a compiled grammar. Its calls are exact and not bounded; for a bound use `Batch`.

    Matchers may be used from several threads: those of one vocabulary take turns.
    """

    def __init__(
        self,
        compiled: CompiledGrammar,
        *,
        eos: Sequence[int] | None = None,
        min_tokens: int = 0,
        text_start: bool = False,
        max_rollback: int = DEFAULT_ROLLBACK,
    ) -> None:
        shared = _shared_of(compiled.vocabulary, max_rollback)
        with shared.lock:
            batch = shared.room()
            slot = batch.add(compiled, eos=eos, min_tokens=min_tokens, text_start=text_start)
        self._attach(compiled, shared, batch, slot)

    def _attach(self, compiled: CompiledGrammar, shared: _Shared, batch: Batch, slot: int) -> None:
        self.compiled = compiled
        self._shared, self._batch, self._slot = shared, batch, slot
        self._finalizer = weakref.finalize(self, _release, shared, batch, slot)
        self._finalizer.atexit = False
        self._token = np.zeros(1, np.int32)
        self._row = np.array([slot], np.int32)

    def accept(self, token_id: int) -> bool:
        """Accept one token. False: it is not legal here, and nothing changed.

        Raises `StackLimitError` where the text would be nested deeper than there is room for (nothing changed either).
        """
        token = whole(token_id, "a token id")
        if not 0 <= token < 2**31:
            return False
        with self._shared.lock:
            self._token[0] = token
            answer = self._batch.advance(self._row, self._token)[0]
        if answer == TOO_DEEP:
            raise StackLimitError("the text is nested deeper than there is room for (Batch: stack_bytes)")
        return bool(answer == ACCEPTED)

    def accept_bytes(self, data: bytes) -> bool:
        """Accept text, whatever tokens spell it; rolled back as one. False: refused, and nothing changed."""
        with self._shared.lock:
            return self._batch.accept_bytes(self._slot, data)

    def try_accept(self, draft: Sequence[int]) -> int:
        """Accept tokens up to the first refused one; returns how many were accepted."""
        draft = token_ids(draft, "a token id")
        with self._shared.lock:
            return self._batch.accept_draft(self._slot, draft)

    def mask(self) -> npt.NDArray[np.uint32]:
        """Legal tokens, end tokens included: uint32[ceil(width / 32)], LSB first, 1 = allowed."""
        with self._shared.lock:
            return self._batch.mask(self._slot)

    def draft_masks(
        self, tokens: Sequence[int], parents: Sequence[int] | None = None
    ) -> list[npt.NDArray[np.uint32] | None]:
        """Masks along a draft: 1 + len(tokens) of them, the first for the state now, then after each token.

        `parents[i]` is the index of the token that token i follows, -1 for none, always below i (default: a chain).
        None stands for a mask after a token that is not legal. The matcher is left as it was.
        """
        if parents is None:
            parents = list(range(-1, len(tokens) - 1))
        if len(parents) != len(tokens) or any(not -1 <= p < i for i, p in enumerate(parents)):
            raise ValueError("parents: one for each token, -1 or the index of an earlier one")
        masks: list[npt.NDArray[np.uint32] | None] = [self.mask()]
        after: list[Matcher | None] = [self]
        for token, parent in zip(tokens, parents, strict=True):
            before = after[parent + 1]
            here = before.fork() if before is not None and before.allows(token) else None
            if here is not None:
                here.accept(token)
            after.append(here)
            masks.append(None if here is None else here.mask())
        return masks

    def allows(self, token_id: int) -> bool:
        """Would `accept` take this token? Changes nothing."""
        with self._shared.lock:
            return self._batch.allows(self._slot, token_id)

    def rollback(self, n: int) -> None:
        """Take back the last `n` accepted tokens. Raises `ValueError` where fewer are kept (`max_rollback`)."""
        with self._shared.lock:
            self._batch.rollback(self._slot, n)

    def reset(self) -> None:
        """Begin anew."""
        with self._shared.lock:
            self._batch.reset(self._slot)

    def fork(self) -> Matcher:
        """An independent copy."""
        other = Matcher.__new__(Matcher)
        with self._shared.lock:
            batch, slot = self._batch, -1
            if batch.free_slots:
                slot = batch.fork(self._slot)
            else:
                batch = self._shared.room()
                slot = batch.adopt(self._batch, self._slot)
        other._attach(self.compiled, self._shared, batch, slot)
        return other

    def forced_bytes(self) -> bytes:
        """The bytes with which every continuation begins (jump-forward); empty where the text may end."""
        with self._shared.lock:
            return self._batch.forced_bytes(self._slot)

    def shortest_completion(self) -> bytes | None:
        """A shortest text after which the sequence may end (empty if it may now); None beyond 1 MB."""
        with self._shared.lock:
            return self._batch.shortest_completion(self._slot)

    def tokens_to_finish(self) -> int | None:
        """Tokens within which the sequence can certainly be brought to an end, the end token not counted.

        They are the fewest that spell the shortest completion; a longer text may need fewer, which is not searched
        for. None where no tokens spell it.
        """
        text = self.shortest_completion()
        return None if text is None else fewest_tokens(text, text_tokens(self.compiled.vocabulary))

    @property
    def is_complete(self) -> bool:
        """May the text end here?"""
        with self._shared.lock:
            return self._batch.is_complete(self._slot)

    @property
    def is_finished(self) -> bool:
        """Was an end token accepted?"""
        with self._shared.lock:
            return self._batch.is_finished(self._slot)
