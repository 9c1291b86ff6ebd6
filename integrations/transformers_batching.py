"""Grammars in transformers' continuous batching (`model.init_continuous_batching`), one a request.

    grammars = BatchingGrammars(vocabulary)
    manager = model.init_continuous_batching(generation_config=config)
    grammars.attach(manager)                      # before manager.start()
    manager.start()
    manager.add_request(ids, grammar=grammars.add(compiled))

Runs on the host between the forward pass and sampling, so it needs synchronous batching without CUDA graphs.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers.generation.continuous_batching.cb_logits_processors import ContinuousBatchingLogitsProcessor

from ..masks.outcome import Late
from .sequences import CLOSED_ROW, FREE_ROW, Row, Sequences
from .transformers import masked

if TYPE_CHECKING:
    from ..masks.compiled import CompiledGrammar
    from ..masks.vocabulary import Vocabulary


class GrammarHandle(int):
    """What names a grammar in a request; a type of its own, so that a manager refuses anything else."""


class BatchingGrammars(ContinuousBatchingLogitsProcessor):
    """The grammars of a continuous-batching manager's requests. Requests without ``grammar=`` are unconstrained.

    `eos`: the end tokens (default: the vocabulary's); pass what the generation config has where that differs.
    `min_tokens`, `budget_us`, `late`, `counters`: as of `StepmaskLogitsProcessor`.
    """

    supported_kwargs: dict[str, type] = {"grammar": GrammarHandle}  # noqa: RUF012 - as the base class has it
    ignored_kwargs: tuple[str, ...] = ()

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        eos: int | Sequence[int] | None = None,
        min_tokens: int = 0,
        budget_us: float | None = 200,
        late: Late | str = Late.FINISH,
    ) -> None:
        ends = [eos] if isinstance(eos, int) else eos
        self._sequences = Sequences(vocabulary, eos=ends, min_tokens=min_tokens, budget_us=budget_us, late=late)
        self._grammars: dict[GrammarHandle, CompiledGrammar] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()  # `add` and `remove` are called beside the manager's thread

    @property
    def counters(self) -> dict[str, int]:
        """Work and outcomes so far, see `Sequences.counters`; empty before the first step."""
        return self._sequences.counters

    def add(self, compiled: CompiledGrammar) -> GrammarHandle:
        """The handle by which requests name this grammar. Equal for equal grammars."""
        if compiled.vocabulary != self._sequences.vocabulary:
            raise ValueError("the grammar was compiled for another vocabulary")
        with self._lock:
            for handle, known in self._grammars.items():
                if known.fingerprint == compiled.fingerprint:
                    return handle
            handle = GrammarHandle(next(self._numbers))
            self._grammars[handle] = compiled
            return handle

    def remove(self, handle: GrammarHandle) -> None:
        """Forget a grammar. A request that still names it may only end."""
        with self._lock:
            del self._grammars[handle]

    def attach(self, manager: Any) -> None:
        """Put this into a manager that has not started. Raises `ValueError` where its settings rule that out."""
        config = manager.continuous_batching_config
        if config.use_async_batching:
            raise ValueError("grammars need synchronous batching: ContinuousBatchingConfig(use_async_batching=False)")
        graphs = config.use_cuda_graph
        if any(graphs) if isinstance(graphs, (tuple, list)) else graphs:
            raise ValueError("grammars run on the host: ContinuousBatchingConfig(use_cuda_graph=False)")
        processors = manager.logit_processor
        processors.logits_processor.append(self)
        processors.tensors_required += 1
        processors._retrieve_processors_kwargs()
        processors.do_processing = True

    def fill_defaults(self, int32_tensor: torch.Tensor) -> None:
        """Rows without a request are unconstrained."""
        int32_tensor.fill_(FREE_ROW)

    def prepare_tensor_args(self, requests_with_new_token: Sequence[Any]) -> torch.Tensor:
        """Advance each request by the token that it got; int32, the slot of each row."""
        rows, gone = [], []
        for request in requests_with_new_token:
            state = request.state
            handle = state.logit_processor_kwargs.get("grammar")
            # A request that lost its cache starts again with what it had generated as a part of its prompt.
            again = state.initial_tokens[state._true_initial_tokens :] if state._true_initial_tokens else []
            with self._lock:
                grammar = self._grammars.get(handle)
            gone.append(handle is not None and grammar is None)
            rows.append(Row((state.request_id, handle), grammar, (*again, *state.generated_tokens)))
        slots = self._sequences.follow(rows)
        slots[gone] = CLOSED_ROW
        return torch.from_numpy(slots)

    def __call__(self, scores: torch.Tensor, tensor_arg: torch.Tensor) -> torch.Tensor:
        """Scores [rows, width] with -inf where a token is not legal."""
        slots = tensor_arg[: scores.shape[0]].cpu().numpy().astype(np.int32)
        return masked(scores, self._sequences, slots)
