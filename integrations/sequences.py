"""Sequences of a host that shows its rows' tokens at each step, and says nothing about which row was which before.

Rows are recognised by their tokens: a row whose tokens without the last are a known state goes on from it, so beams
may split, move and end as the host likes. A row that is not recognised is replayed from its first token. States are
therefore only a cache, and the oldest ones are dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..masks.arena import ACCEPTED
from ..masks.batch import Batch
from ..masks.late import legal_candidates
from ..masks.layout import LIMIT, MAX_ENDS, PENDING
from ..masks.outcome import Late
from ..masks.sampling import Sampler, SamplingParameters
from ..masks.tables import ALL_ENDS, KIND_EMPTY, KIND_LIST, KIND_SHIFT, UNCONSTRAINED, EndSets, MaskTables

if TYPE_CHECKING:
    from typing import Any

    from ..masks.compiled import CompiledGrammar
    from ..masks.vocabulary import Vocabulary

#: A row without a grammar, in place of its slot.
FREE_ROW = -1
#: A row that accepts nothing more but end tokens: its grammar is finished, or the host took a token that is not legal.
CLOSED_ROW = -2

#: Which sequence (of the rows with this name, whichever has these tokens) and its tokens so far.
State = tuple[Hashable, tuple[int, ...]]


@dataclass(frozen=True)
class Row:
    """A row of a step. `name` (a prompt, a request) tells rows apart that begin alike; `tokens` are generated."""

    name: Hashable
    grammar: CompiledGrammar | None
    tokens: tuple[int, ...]


class Sequences:
    """States of rows by their tokens, and the masks of a step's rows.

    `eos`: the end tokens (default: the vocabulary's). `pad`: a token that finished rows may also take. `min_tokens`,
    `text_start`: as of `Batch.add`. `budget_us`: as of `Batch`. `late`: what a row gets whose mask is not there within
    it, FINISH or PARTIAL (or their values). Raises `ValueError` where no end token is known or there are more than 32,
    `pad` among them, or for another `late`.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        eos: Sequence[int] | None = None,
        pad: int | None = None,
        min_tokens: int = 0,
        text_start: bool = False,
        budget_us: float | None = 200,
        late: Late | str = Late.FINISH,
    ) -> None:
        self._late = Late(late)
        if self._late is Late.DEFER:
            raise ValueError("this host needs a token of every row: late must be 'finish' or 'partial'")
        self._budget_us = budget_us
        ends = vocabulary.eos if eos is None else eos
        if not ends:
            raise ValueError("the vocabulary has no known end token: name them with eos=")
        self.vocabulary = vocabulary
        self.ends = tuple(dict.fromkeys(int(token) for token in ends))
        self._closing = self.ends if pad is None else tuple(dict.fromkeys([*self.ends, int(pad)]))
        if len(self._closing) > MAX_ENDS:
            raise ValueError(f"at most {MAX_ENDS} end tokens, the padding token among them")
        self._min_tokens = min_tokens
        self._text_start = text_start
        self._states: OrderedDict[State, int] = OrderedDict()  # state -> slot or CLOSED_ROW, least recently used first
        self._batch: Batch | None = None
        self._sampler = Sampler(vocabulary.width, 1)
        self._sampler_rows = 1

    def clear(self) -> None:
        """Forget all states, but not the masks that were found."""
        self._drop(len(self._states), set())

    def knows(self, row: Row) -> bool:
        """Is the state of this row, or the one before its last token, still there?"""
        return (row.name, row.tokens) in self._states or (row.name, row.tokens[:-1]) in self._states

    def follow(self, rows: Sequence[Row]) -> npt.NDArray[np.int32]:
        """The slot of each row, or `FREE_ROW`, or `CLOSED_ROW`; valid until the next call."""
        needed = {(row.name, row.tokens): row for row in rows if row.grammar is not None}
        self._make_room(needed)
        assert self._batch is not None
        forked: list[State] = []
        for state, row in needed.items():
            if state in self._states:
                continue
            before = self._states.get((row.name, row.tokens[:-1])) if row.tokens else None
            if before is None:
                self._states[state] = self._replay(row)
            elif before == CLOSED_ROW:
                self._states[state] = CLOSED_ROW
            else:
                self._states[state] = self._batch.fork(before)
                forked.append(state)
        if forked:
            slots = np.array([self._states[state] for state in forked], np.int32)
            accepted = self._batch.advance(slots, np.array([tokens[-1] for _, tokens in forked], np.int32))
            for state, good in zip(forked, accepted.tolist(), strict=True):
                slot = self._states[state]
                if good != ACCEPTED or (state[1][-1] in self.ends and self._batch.is_finished(slot)):
                    self._batch.remove(slot)
                    self._states[state] = CLOSED_ROW
        slots_of = [FREE_ROW if row.grammar is None else self._states[row.name, row.tokens] for row in rows]
        return np.array(slots_of, np.int32)

    def _replay(self, row: Row) -> int:
        assert self._batch is not None and row.grammar is not None
        slot = self._batch.add(row.grammar, eos=self.ends, min_tokens=self._min_tokens, text_start=self._text_start)
        if self._batch.accept_draft(slot, row.tokens) < len(row.tokens) or self._batch.is_finished(slot):
            self._batch.remove(slot)
            return CLOSED_ROW
        return slot

    def _make_room(self, needed: dict[State, Row]) -> None:
        """Slots for all new states of this step, however few are free."""
        keep = set(needed) | {(name, tokens[:-1]) for name, tokens in needed}
        for state in keep & self._states.keys():
            self._states.move_to_end(state)
        if self._batch is None or self._batch.slots < 2 * len(needed):  # each row, and the state that it goes on from
            self._states.clear()
            slots = max(64, 2 * len(needed) + 32)
            self._batch = Batch(self.vocabulary, slots, self._budget_us, max_rollback=0)
        new = sum(state not in self._states for state in needed)
        self._drop(max(0, len(self._states) + new - self._batch.slots), keep)

    def _drop(self, count: int, keep: set[State]) -> None:
        for state in [state for state in self._states if state not in keep][:count]:
            slot = self._states.pop(state)
            if slot != CLOSED_ROW and self._batch is not None:
                self._batch.remove(slot)

    @property
    def counters(self) -> dict[str, int]:
        """`Batch.counters`; "overruns": rows whose masks were finished over the budget, "partial": given a part."""
        return {} if self._batch is None else self._batch.counters

    def apply(self, logits: Any, slots: npt.NDArray[np.int32], scores: Any = None) -> None:
        """Set the logits of tokens that are not legal to -inf, in place; rows without a grammar are left alone.

        `logits`: [rows, at least the vocabulary's width], as `stepmask.apply_masks` takes them; `slots` from `follow`.
        `scores`: where `logits` are not what the host samples from, that (a tensor on any device).
        """
        chosen = np.flatnonzero(slots != FREE_ROW)
        if not chosen.size:
            return
        assert self._batch is not None
        closed = slots[chosen] == CLOSED_ROW
        plan = self._batch.plan(np.where(closed, UNCONSTRAINED, slots[chosen]).astype(np.int32), self._late)
        closed |= plan.status == LIMIT  # such a row cannot go on
        mask_ids = np.where(closed, KIND_EMPTY << KIND_SHIFT, plan.mask_ids).astype(np.int32)
        end_allowed = np.where(closed, np.uint32(ALL_ENDS), plan.end_allowed)
        there = plan.status != PENDING
        self._apply(logits, chosen[there], mask_ids[there], end_allowed[there], closed[there])
        if not there.all():
            self._apply_parts(logits, chosen, slots[chosen], plan.status.copy(), logits if scores is None else scores)

    def _apply(
        self,
        logits: Any,
        rows: npt.NDArray[np.int64],
        mask_ids: npt.NDArray[np.int32],
        end_allowed: npt.NDArray[np.uint32],
        closed: npt.NDArray[np.bool_],
        tables: MaskTables | None = None,
    ) -> None:
        assert self._batch is not None
        ends = [self._closing if one else self.ends for one in closed.tolist()]
        start = np.zeros(len(ends) + 1, np.int32)
        np.cumsum([len(one) for one in ends], out=start[1:])
        sets = EndSets(start, np.array([token for one in ends for token in one], np.int32))
        self._sampler_of(rows.size).apply_masks(
            logits, tables or self._batch.tables, mask_ids, end_allowed=end_allowed, end_sets=sets, rows=rows
        )

    def _apply_parts(
        self,
        logits: Any,
        rows: npt.NDArray[np.int64],
        slots: npt.NDArray[np.int32],
        status: npt.NDArray[np.uint8],
        scores: Any,
    ) -> None:
        """Of the planned rows those that wait: masks of their best tokens that are legal, whole ones where none is."""
        assert self._batch is not None
        waiting = status == PENDING
        best = scores[rows[waiting]]
        if not isinstance(best, np.ndarray):
            best = best.detach().float().cpu().numpy()
        _, candidates = self._sampler_of(rows.size).sample(
            best.astype(np.float32, copy=False),
            np.full(rows.size, KIND_EMPTY << KIND_SHIFT, np.int32),
            self._batch.tables,
            end_sets=EndSets.same(rows.size, self.ends),
            parameters=SamplingParameters.build(rows.size, temperature=0.0),
            rows=np.maximum(np.cumsum(waiting) - 1, 0),
            status=status,
            possible=self._batch.possible,
        )
        legal = legal_candidates(self._batch, candidates)
        found = legal.any(axis=1)
        lists = [candidates.tokens[row, legal[row]] for row in np.flatnonzero(found).tolist()]
        lengths = np.array([len(tokens) for tokens in lists], np.int32)
        starts = (np.cumsum(lengths) - lengths).astype(np.int32)
        none = np.zeros(0, np.int32)
        tables = MaskTables(
            np.zeros((0, self._sampler.words), np.uint32), starts, lengths, np.concatenate([none, *lists])
        )
        ends = np.zeros(rows.size, np.uint32)
        for i, end in enumerate(self.ends):
            ends |= ((candidates.tokens[: rows.size] == end) & legal).any(axis=1).astype(np.uint32) << np.uint32(i)
        ids = (KIND_LIST << KIND_SHIFT | np.arange(len(lists))).astype(np.int32)
        self._apply(logits, rows[found], ids, ends[found], np.zeros(len(lists), np.bool_), tables)
        rest = waiting & ~found
        if rest.any():
            plan = self._batch.plan(slots[rest], Late.FINISH)
            closed = plan.status == LIMIT
            end_allowed = np.where(closed, np.uint32(ALL_ENDS), plan.end_allowed)
            self._apply(logits, rows[rest], plan.mask_ids, end_allowed, closed)

    def _sampler_of(self, rows: int) -> Sampler:
        if self._sampler_rows < rows:
            self._sampler_rows = rows
            self._sampler = Sampler(self.vocabulary.width, rows)
        return self._sampler
