"""The masks of a finite grammar, all built ahead: its complete token-level DFA.

A context is a state in which a token can end. From a context and a token the next context follows
by the token's bytes, so only the masks are stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..grammar.automaton import CALLS, LAZY, Automaton
from .layout import MAX_LIST
from .prepare import build_ready

if TYPE_CHECKING:
    from .compiled import CompiledGrammar

#: Tokens in all lists together, and dense rows, that are built ahead for one grammar: 4 MB, and V/8 bytes each.
MAX_LIST_TOKENS = 1 << 20
MAX_DENSE_ROWS = 64
#: Fuel for all of it: about 10 ms. Past any of these masks are computed on demand instead.
MAX_WORK = 2_000_000


#: A plain DFA of so many states is larger than the processor's nearest caches: its first mask, which every sequence
#: needs, is made with the grammar.
START_STATES = 4096


@dataclass(frozen=True, eq=False)
class Ready:
    """`bounds` int32[states][2]: where the list of a state is in `tokens`, -1: no context; `dense_row`
    int32[states]: row of `rows` (int64[n][words]) or -1; `contexts`, `distinct`: their number, and of different masks.
    """

    bounds: npt.NDArray[np.int32]
    tokens: npt.NDArray[np.int32]
    dense_row: npt.NDArray[np.int32]
    rows: npt.NDArray[np.int64]
    contexts: int
    distinct: int

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        counts = np.array([self.contexts, self.distinct], np.int64)
        return {
            "ready_bounds": self.bounds,
            "ready_tokens": self.tokens,
            "ready_dense_row": self.dense_row,
            "ready_rows": self.rows,
            "ready_counts": counts,
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> Ready | None:
        if "ready_bounds" not in arrays:
            return None
        contexts, distinct = arrays["ready_counts"].tolist()
        bounds, tokens = arrays["ready_bounds"], arrays["ready_tokens"]
        return cls(bounds, tokens, arrays["ready_dense_row"], arrays["ready_rows"], contexts, distinct)

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arrays().values())


def start_tokens(compiled: CompiledGrammar) -> npt.NDArray[np.int32] | None:
    """The legal tokens before the first one, end tokens left out, of a grammar that is one large DFA; else None."""
    from .matcher import shared_batch

    automaton = compiled.automaton
    if automaton.n_states < START_STATES or automaton.flags & (LAZY | CALLS) or compiled.boundary is not None:
        return None
    with shared_batch(compiled.vocabulary) as batch:
        slot = batch.add(compiled, eos=())
        words = batch.mask(slot)
        batch.remove(slot)
    return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).astype(np.int32)


def only_start(automaton: Automaton, tokens: npt.NDArray[np.int32], words: int) -> Ready:
    """`start_tokens` in the form of masks of all states, of which there is one."""
    bounds, dense_row = np.full((automaton.n_states, 2), -1, np.int32), np.full(automaton.n_states, -1, np.int32)
    start = int(automaton["frame_start"][0])
    rows = np.zeros((0, words), np.int64)
    if len(tokens) > MAX_LIST:
        bits = np.zeros(64 * words, np.uint8)
        bits[tokens] = 1
        rows = np.packbits(bits, bitorder="little").view(np.int64).reshape(1, words)
        dense_row[start] = 0
    else:
        bounds[start] = 0, len(tokens)
    return Ready(bounds, tokens, dense_row, rows, 1, 1)


def build(compiled: CompiledGrammar, most: int) -> Ready | None:
    """All masks of a finite grammar, or None where a limit is passed."""
    from .matcher import shared_batch

    automaton = compiled.automaton
    states = automaton.n_states
    with shared_batch(compiled.vocabulary) as batch:
        resident = batch.private_resident(compiled)
        queue = np.zeros(min(most, states), np.int32)
        bounds = np.full((states, 2), -1, np.int32)
        tokens = np.zeros(min(MAX_LIST_TOKENS, 512 * states), np.int32)
        dense_row = np.full(states, -1, np.int32)
        rows = np.zeros((min(MAX_DENSE_ROWS, states), batch.words), np.int64)
        start = int(automaton["frame_start"][0])
        contexts = build_ready(
            batch.address,
            resident.block.address,
            start,
            queue,
            bounds,
            tokens,
            dense_row,
            rows,
            len(queue),
            MAX_WORK,
        )
        batch.drop_unfinished()
    if contexts < 0:
        return None
    dense = int(dense_row.max(initial=-1)) + 1
    used = int(bounds.max(initial=0))
    lists = {tokens[a:b].tobytes() for a, b in bounds[(bounds[:, 1] > bounds[:, 0])].tolist()}
    distinct = len(lists) + len({rows[i].tobytes() for i in range(dense)})
    return Ready(bounds, tokens[:used].copy(), dense_row, rows[:dense].copy(), contexts, distinct)
