"""vLLM's model runner V2: grammars that its worker's device advances by itself.

Its logits processors see device tensors only, also where the next step is launched before the last token is known: so
rows are advanced from the tokens that the model is fed, and masked, without the host (`masks.device.grammars`).

    LLM(model, logits_processors=["stepmask.integrations.vllm_device:GrammarProcessor"])
    SamplingParams(extra_args={"stepmask": {"kind": "json_schema", "text": {...}}})

The specification is that of the compile service. There is no way for a processor to let a request wait, to fail it, or
to ask the host for a row: so a grammar that is new to the worker is compiled in the step that its request joins, and a
request whose grammar must stay with the host, or escapes to it, may only end. Never is a token allowed that the grammar
does not. Speculative decoding is refused.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from vllm.v1.worker.gpu.sample.logits_processor.interface import LogitsProcessor

from ..grammar.errors import GrammarError
from ..grammar.limits import Limits
from ..masks.batch import Batch
from ..masks.compiled import compile
from ..masks.device.grammars import DeviceGrammars
from ..masks.device.mirror import PoolMirror
from ..masks.device.sampler import DeviceSampler
from ..masks.device.tables import DeviceEnds
from ..masks.layout import MAX_ENDS
from ..masks.tables import KIND_EMPTY, KIND_SHIFT
from ..masks.vocabulary import Vocabulary
from .compile_service.limits import ServiceLimits
from .compile_service.requests import admit, grammar_of

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.sampling_params import SamplingParams
    from vllm.v1.worker.gpu.sample.logits_processor.interface import LogitsContext, LogitsProcRequestState

    from ..grammar.expression import Grammar

#: The key of `SamplingParams.extra_args`.
ARGUMENT = "stepmask"
#: Dense masks of all grammars on the device: 64 MB at 128k tokens. JSON with bounded white space has 2,000.
RESIDENT_MASKS = 4096
_EMPTY = KIND_EMPTY << KIND_SHIFT
_LOG = logging.getLogger(__name__)


def _specification(params: SamplingParams) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = (params.extra_args or {}).get(ARGUMENT)
    return found


def _read(specification: Mapping[str, Any]) -> tuple[str, Grammar]:
    """(key of equal specifications, grammar). Raises what its front end raises."""
    limits = Limits()
    request = admit(specification, limits, ServiceLimits())
    return request.key, grammar_of(memoryview(request.payload), limits)


class GrammarProcessor(LogitsProcessor):  # type: ignore[misc]
    """See the module. `escaped` says which request slots may only end because the device could not go on."""

    def __init__(self, vllm_config: VllmConfig, req_states: LogitsProcRequestState) -> None:
        if vllm_config.speculative_config is not None:
            raise ValueError("stepmask's logits processor does not work with speculative decoding")
        from transformers import AutoTokenizer

        model = vllm_config.model_config
        tokenizer = AutoTokenizer.from_pretrained(
            model.tokenizer, revision=model.tokenizer_revision, trust_remote_code=model.trust_remote_code
        )
        slots, width, device = req_states.max_num_reqs, req_states.vocab_size, req_states.device
        self._states = req_states
        self._vocabulary = Vocabulary.from_tokenizer(tokenizer, width=width)
        mirror = PoolMirror(Batch(self._vocabulary, 1, None), device, resident_masks=RESIDENT_MASKS)
        self._device = DeviceGrammars(self._vocabulary, mirror, slots)
        self._sampler = DeviceSampler(width, slots, device)
        self._tokens = torch.full((slots,), -1, dtype=torch.int32, device=device)
        self._numbers: dict[str, int] = {}
        self._number_of: list[int | None] = [None] * slots
        self._joined: list[int] = []

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Raise `ValueError` for a grammar that cannot be read, or for answers that have no end."""
        specification = _specification(sampling_params)
        if specification is None:
            return
        if sampling_params.ignore_eos and not sampling_params.stop_token_ids:
            raise ValueError("with a grammar, ignore_eos needs stop_token_ids: the text must be able to end")
        try:
            _read(specification)
        except (GrammarError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"extra_args[{ARGUMENT!r}]: {error}") from error

    @property
    def escaped(self) -> torch.Tensor:
        """bool[slots] on the device."""
        return self._device.escaped != 0

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        """As vLLM asks; see the module for what it costs."""
        self._number_of[req_idx] = None
        specification = _specification(sampling_params)
        if specification is None:
            self._device.start(req_idx, None)
            return False
        ends = list(sampling_params.stop_token_ids or ())
        if not sampling_params.ignore_eos:
            eos = sampling_params.eos_token_id
            ends += list(self._vocabulary.eos or ()) if eos is None else [eos]
        eos_ids = tuple(dict.fromkeys(ends))
        try:
            number = self._number(*_read(specification))
            if number is None:
                raise ValueError("it must stay with the host, or there is no room for it on the device")
            self._device.start(req_idx, number, eos=eos_ids, min_tokens=sampling_params.min_tokens)
        except (GrammarError, TypeError, ValueError) as error:
            _LOG.error("a request's grammar cannot be used, it may only end: %s", error)
            self._device.start(req_idx, None, eos=eos_ids[:MAX_ENDS])
            self._device.mask_ids[req_idx] = _EMPTY
            return True
        self._number_of[req_idx] = number
        self._joined.append(req_idx)
        return True

    def _number(self, key: str, grammar: Grammar) -> int | None:
        """The grammar's number on the device; others that no request uses make room for it."""
        if key not in self._numbers:
            compiled = compile(grammar, self._vocabulary)
            number = self._device.add(compiled)
            if number is None:
                for other, unused in list(self._numbers.items()):
                    if unused not in self._number_of:
                        self._device.remove(self._numbers.pop(other))
                number = self._device.add(compiled)
            if number is None:
                return None
            self._numbers[key] = number
        return self._numbers[key]

    def apply_staged_writes(self) -> None:
        """Bring requests that were preempted, and join again with part of their answer, to where they were."""
        for slot in self._joined:
            begin, end = int(self._states.prompt_len.np[slot]), int(self._states.prefill_len.np[slot])
            for place in range(begin, end):
                self._tokens.fill_(-1)
                self._tokens[slot] = self._states.all_token_ids.gpu[slot, place]
                self._device.advance(self._tokens)
        self._joined.clear()

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        """Advance the rows by the tokens that they were fed, and set the logits of illegal ones to -inf, in place."""
        device = self._device
        slots = ctx.expanded_idx_mapping.to(torch.int64)
        made = ctx.pos + 1 - self._states.prompt_len.gpu[slots]
        fed = torch.where(made == device.position[slots] + 1, ctx.input_ids, -1)
        self._tokens.fill_(-1)
        self._tokens[slots] = fed.to(torch.int32)
        device.advance(self._tokens)
        mask_ids, end_allowed = device.mask_ids[slots], device.end_allowed[slots]
        nothing = (mask_ids == _EMPTY) & (end_allowed == 0)  # finished, escaped, or not to be used: it may end
        self._sampler.apply_masks(
            logits,
            device.mirror.tables,
            mask_ids,
            end_allowed=torch.where(nothing, -1, end_allowed),
            ends=DeviceEnds(device.ends.tokens[slots], device.ends.count[slots]),
        )
        return logits
