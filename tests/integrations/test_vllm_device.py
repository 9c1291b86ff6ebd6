"""vLLM's own V2 classes, on a CPU: rows masked on the device are where a matcher on the host is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_tokenizer import END, byte_tokenizer

import stepmask

pytest.importorskip("vllm.v1.worker.gpu.sample.logits_processor.interface")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SLOTS, LENGTH = 6, 96
JSON = {"kind": "json_schema", "text": {"type": "object", "properties": {"a": {"type": "integer"}}}}
SPECIFICATIONS = [{"kind": "regex", "text": "(ab|c)+d"}, JSON, {"kind": "choice", "text": ["yes", "no"]}, None]


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> Any:
    """vLLM's request state, with the buffers that it has where there is no pinned memory."""
    from vllm.platforms import current_platform
    from vllm.v1.worker.gpu import buffer_utils
    from vllm.v1.worker.gpu.states import RequestState

    monkeypatch.setattr(buffer_utils, "is_uva_available", lambda: False)
    monkeypatch.setattr(type(current_platform), "device_type", "cpu")
    return RequestState(SLOTS, LENGTH, 64, 0, 257, torch.device("cpu"))


@pytest.fixture
def config(tmp_path: Path) -> Any:
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer(), eos_token=END)
    tokenizer.save_pretrained(tmp_path)
    model = SimpleNamespace(tokenizer=str(tmp_path), tokenizer_revision=None, trust_remote_code=False)
    return SimpleNamespace(model_config=model, speculative_config=None)


def processor_of(config: Any, states: Any) -> Any:
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcRequestState

    from stepmask.integrations.vllm_device import GrammarProcessor

    return GrammarProcessor(config, LogitsProcRequestState.from_request_state(states))


def params_of(specification: Any, **values: Any) -> Any:
    from vllm import SamplingParams

    params = SamplingParams(extra_args=None if specification is None else {"stepmask": specification}, **values)
    params.update_from_generation_config({}, 256)
    return params


class Request:
    """A request in a slot, and its grammar on the host."""

    def __init__(self, states: Any, processor: Any, name: str, specification: Any, tokens: list[int], prompt: int):
        states.add_request(name, prompt, tokens, 0, 64)
        self.name, self.slot, self.specification = name, states.req_id_to_index[name], specification
        self.tokens, self.prompt = list(tokens), prompt
        # What vLLM's kernel writes.
        states.all_token_ids.gpu[self.slot, : len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
        states.prompt_len.copy_to_uva()
        states.prefill_len.copy_to_uva()
        self.adds = processor.add_request(self.slot, params_of(specification))
        processor.apply_staged_writes()
        self.matcher = None
        if specification is not None:
            grammar = getattr(stepmask, specification["kind"])(specification["text"])
            self.matcher = stepmask.compile(grammar, processor._vocabulary).matcher(eos=[256])
            assert self.matcher.try_accept(tokens[prompt:]) == len(tokens) - prompt

    def legal(self, width: int) -> np.ndarray:
        if self.matcher is None:
            return np.ones(width, np.bool_)
        return np.unpackbits(self.matcher.mask().view(np.uint8), bitorder="little")[:width] != 0


def step(processor: Any, requests: list[Request], rng: np.random.Generator) -> None:
    """One step of rows in any order: masked logits are checked, and each row takes a legal token."""
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext

    rows = [requests[i] for i in rng.permutation(len(requests))]
    slots = torch.tensor([row.slot for row in rows], dtype=torch.int32)
    ctx = LogitsContext(
        expanded_idx_mapping=slots,
        idx_mapping=slots,
        idx_mapping_np=slots.numpy(),
        expanded_local_pos=torch.zeros(len(rows), dtype=torch.int32),
        input_ids=torch.tensor([row.tokens[-1] for row in rows], dtype=torch.int32),
        pos=torch.tensor([len(row.tokens) - 1 for row in rows], dtype=torch.int64),
        seq_lens_upper_bound_np=np.array([len(row.tokens) for row in rows]),
    )
    logits = torch.from_numpy(rng.normal(size=(len(rows), 257)).astype(np.float32))
    before = logits.clone()
    masked = processor.apply(logits, ctx)
    for i, row in enumerate(rows):
        legal = row.legal(257)
        expected = before[i].masked_fill(~torch.from_numpy(legal), float("-inf"))
        assert torch.equal(masked[i], expected)
        token = int(rng.choice(np.flatnonzero(legal)))
        row.tokens.append(token)
        assert row.matcher is None or row.matcher.accept(token)


def test_rows_are_where_the_host_is(states: Any, config: Any) -> None:
    """Requests come, end, are preempted and come again, in slots that others had; rows in any order."""
    rng = np.random.default_rng(1)
    processor = processor_of(config, states)
    requests: list[Request] = []
    made = resumed = 0
    for _ in range(60):
        while len(requests) < 4:
            specification = SPECIFICATIONS[made % len(SPECIFICATIONS)]
            prompt = rng.integers(0, 256, rng.integers(1, 6)).tolist()
            requests.append(Request(states, processor, f"r{made}", specification, prompt, len(prompt)))
            assert requests[-1].adds == (specification is not None)
            made += 1
        step(processor, requests, rng)
        for request in list(requests):
            ended = request.matcher is not None and request.matcher.is_finished
            if ended or len(request.tokens) > 40:
                states.remove_request(request.name)
                requests.remove(request)
            elif rng.random() < 0.1:
                states.remove_request(request.name)
                requests.remove(request)
                again = (f"{request.name}+", request.specification, request.tokens, request.prompt)
                requests.append(Request(states, processor, *again))
                resumed += 1
    assert made > 10 and resumed > 5
    assert not processor.escaped.any()


def test_what_cannot_be_used(states: Any, config: Any) -> None:
    from stepmask.integrations.vllm_device import GrammarProcessor

    GrammarProcessor.validate_params(params_of(None))
    GrammarProcessor.validate_params(params_of(JSON))
    for wrong in ({"kind": "regex", "text": "(a"}, {"kind": "nonsense", "text": "a"}, ["a"], {"kind": "regex"}):
        with pytest.raises(ValueError, match="stepmask"):
            GrammarProcessor.validate_params(params_of(wrong))
    with pytest.raises(ValueError, match="ignore_eos needs stop_token_ids"):
        GrammarProcessor.validate_params(params_of(JSON, ignore_eos=True))
    config.speculative_config = object()
    with pytest.raises(ValueError, match="speculative"):
        processor_of(config, states)
    config.speculative_config = None
    # Its automaton is determinised at run time, which is the host's: the request may only end.
    processor = processor_of(config, states)
    lazy = {"kind": "regex", "text": "(.*[ab].{20})"}
    request = Request(states, processor, "r", None, [1, 2], 2)
    assert processor.add_request(request.slot, params_of(lazy))
    logits = torch.zeros(1, 257)
    slots = torch.tensor([request.slot], dtype=torch.int32)
    ctx = SimpleNamespace(expanded_idx_mapping=slots, pos=torch.tensor([1]), input_ids=torch.tensor([2]))
    processor.apply(logits, ctx)
    assert torch.isfinite(logits[0]).nonzero().flatten().tolist() == [256]


def test_the_loader_takes_it(states: Any, config: Any) -> None:
    loader = pytest.importorskip("vllm.v1.worker.gpu.sample.logits_processor.loader")
    from stepmask.integrations.vllm_device import GrammarProcessor

    name = "stepmask.integrations.vllm_device:GrammarProcessor"
    assert loader._load_v2_logitsprocs_by_fqcns([name]) == [GrammarProcessor]
