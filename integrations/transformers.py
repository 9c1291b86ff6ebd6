"""Grammars in transformers' `generate`: a `LogitsProcessor` for any mix of grammars, beams and return sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from transformers import LogitsProcessor

from ..masks.outcome import Late
from .sequences import Row, Sequences

if TYPE_CHECKING:
    from ..masks.compiled import CompiledGrammar

_IN_PLACE = (torch.float32, torch.float16, torch.bfloat16)


class StepmaskLogitsProcessor(LogitsProcessor):
    """Restricts what `model.generate` may pick to what a grammar allows.

        model.generate(**inputs, logits_processor=[StepmaskLogitsProcessor(compiled)])

    `grammars`: one grammar for all rows, or one a prompt (None: that prompt is unconstrained). Prompts may be of any
    lengths (padded on the left, as `generate` wants them); with beams or several return sequences, each prompt's
    grammar holds for all its rows. `eos`: the end tokens (default: the vocabulary's); pass what `generate` gets where
    that differs. `pad_token_id`: a token that finished rows may take beside the end tokens. `min_tokens`: no end before
    so many tokens. `text_start`: the generated text starts a text rather than going on after a prompt (SentencePiece).
    `budget_us`: microseconds a step may spend on masks (counted, not timed; None: no limit). `late`: what a row gets
    whose mask is not there by then: "finish", it is finished all the same, exact and counted as an overrun; "partial",
    only those of the row's best 16 tokens that are legal (all legal ones where none of these is), bounded but biased
    and counted. `counters` has both numbers.

    A row whose grammar is finished allows only end tokens, and so does one where something else (a forced token, a beam
    that ran out of legal tokens and has a score of -inf) took a token that is not legal.

    A processor may serve several `generate` calls, one after the other, and is faster from the second on. It takes a
    call for a new one unless all rows go on from rows of the last steps; call `reset` before generating from a prompt
    that is exactly an output of the call before.
    """

    supports_continuous_batching = False

    def __init__(
        self,
        grammars: CompiledGrammar | Sequence[CompiledGrammar | None],
        *,
        eos: int | Sequence[int] | None = None,
        pad_token_id: int | None = None,
        min_tokens: int = 0,
        text_start: bool = False,
        budget_us: float | None = 200,
        late: Late | str = Late.FINISH,
    ) -> None:
        self._grammars = list(grammars) if isinstance(grammars, Sequence) else [grammars]
        self._for_all = not isinstance(grammars, Sequence)
        present = [grammar for grammar in self._grammars if grammar is not None]
        self._sequences: Sequences | None = None
        if present:
            if any(grammar.vocabulary != present[0].vocabulary for grammar in present):
                raise ValueError("the grammars were compiled for different vocabularies")
            ends = [eos] if isinstance(eos, int) else eos
            self._sequences = Sequences(
                present[0].vocabulary,
                eos=ends,
                pad=pad_token_id,
                min_tokens=min_tokens,
                text_start=text_start,
                budget_us=budget_us,
                late=late,
            )
        self._start = -1  # length of the prompts of the `generate` call in progress

    @property
    def counters(self) -> dict[str, int]:
        """Work and outcomes so far, see `Sequences.counters`; empty before the first step."""
        return {} if self._sequences is None else self._sequences.counters

    def reset(self) -> None:
        """Take the next call for the first step of a new `generate`."""
        self._start = -1
        if self._sequences is not None:
            self._sequences.clear()

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores [rows, width] with -inf where a token is not legal; `input_ids` [rows, length] with the prompts."""
        if self._sequences is None:
            return scores
        ids = input_ids.cpu().numpy()
        prompts = len(ids) if self._for_all else len(self._grammars)
        if not prompts or len(ids) % prompts:
            raise ValueError(f"{len(ids)} rows for {len(self._grammars)} grammars: not a whole number of rows each")
        rows = self._continued(ids, prompts)
        if rows is None:
            self.reset()
            self._start = ids.shape[1]
            rows = self._rows(ids, prompts)
        return masked(scores, self._sequences, self._sequences.follow(rows))

    def _rows(self, ids: npt.NDArray[np.int64], prompts: int) -> list[Row]:
        """The rows, each named by its prompt's tokens and by its grammar."""
        rows, start = [], self._start
        for number, tokens in enumerate(ids):
            which = 0 if self._for_all else number * prompts // len(ids)
            rows.append(Row((which, tokens[:start].tobytes()), self._grammars[which], tuple(tokens[start:].tolist())))
        return rows

    def _continued(self, ids: npt.NDArray[np.int64], prompts: int) -> list[Row] | None:
        """The rows as a further step of the `generate` call in progress; None where they are not."""
        if not 0 <= self._start <= ids.shape[1]:
            return None
        rows = self._rows(ids, prompts)
        assert self._sequences is not None
        return rows if all(row.grammar is None or self._sequences.knows(row) for row in rows) else None


def masked(scores: torch.Tensor, sequences: Sequences, slots: npt.NDArray[np.int32]) -> torch.Tensor:
    """A copy of `scores` with -inf where a token is not legal."""
    if scores.device.type == "cpu" and scores.dtype in _IN_PLACE:
        result = scores.clone(memory_format=torch.contiguous_format)
        sequences.apply(result, slots)
        return result
    forbidden = torch.zeros(scores.shape, dtype=torch.bfloat16)
    sequences.apply(forbidden, slots, scores)
    return scores.masked_fill((forbidden != 0).to(scores.device), float("-inf"))
