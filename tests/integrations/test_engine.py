"""The engine with the synthetic model: how requests run, end, fail and stream, without and with grammars."""

from __future__ import annotations

import re

import numpy as np
import pytest

import stepmask
from stepmask.integrations.engine.engine import Engine, NoLegalToken
from stepmask.integrations.engine.request import Request
from stepmask.integrations.engine.synthetic import SyntheticModel
from stepmask.masks.batch import Plan
from stepmask.masks.layout import B_ARENA_WORDS, LIMIT

EOS = 256
WIDTH = 260


@pytest.fixture(scope="module")
def vocabulary() -> stepmask.Vocabulary:
    """All single bytes, an end token, and a model that is three ids wider."""
    tokens = [bytes([byte]) for byte in range(256)] + [b""]
    return stepmask.Vocabulary.from_bytes(tokens, eos=[EOS], special=[EOS])


def prompt(number: int) -> list[int]:
    """Prompts of different lengths, some longer than a prefill chunk."""
    return [(7 * number + 3 * i) % 256 for i in range(1 + 23 * (number % 8))]


def requests(count: int, **settings: object) -> list[Request]:
    return [Request(prompt(number), max_tokens=20 + number, seed=number, **settings) for number in range(count)]


def engine_of(vocabulary: stepmask.Vocabulary, slots: int = 8, model: SyntheticModel | None = None) -> Engine:
    return Engine(model or SyntheticModel(WIDTH, prefill_chunk=64, seed=1), vocabulary, slots, 256)


def text_of(vocabulary: stepmask.Vocabulary, tokens: tuple[int, ...]) -> str:
    return vocabulary.decode(tokens).decode()


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.01}])
def test_one_at_a_time_and_eight_at_once_give_the_same_tokens(
    vocabulary: stepmask.Vocabulary, settings: dict[str, float]
) -> None:
    work = requests(12, **settings)
    alone = []
    engine = engine_of(vocabulary)
    for request in work:
        alone.append(engine.submit(request).result().token_ids)
    engine = engine_of(vocabulary)
    together = [engine.submit(request) for request in work]
    engine.run()
    assert [tuple(handle.token_ids) for handle in together] == alone
    narrow = engine_of(vocabulary, slots=3)
    handles = [narrow.submit(request) for request in work]
    narrow.run()
    assert [tuple(handle.token_ids) for handle in handles] == alone


def test_seed_decides_when_sampling(vocabulary: stepmask.Vocabulary) -> None:
    def answer(seed: int) -> tuple[int, ...]:
        request = Request([1, 2, 3], max_tokens=30, temperature=1.0, seed=seed, ignore_eos=True)
        return engine_of(vocabulary).submit(request).result().token_ids

    assert answer(5) == answer(5)
    assert answer(5) != answer(6)


def test_iterating_streams_tokens_while_others_run(vocabulary: stepmask.Vocabulary) -> None:
    engine = engine_of(vocabulary)
    other = engine.submit(Request([9], max_tokens=50, ignore_eos=True))
    handle = engine.submit(Request([1, 2], max_tokens=5, ignore_eos=True))
    seen = []
    for token in handle:
        seen.append(token)
        assert len(other.token_ids) == len(seen)
    assert seen == handle.token_ids
    assert len(seen) == 5
    assert list(handle) == seen


def test_a_callback_gets_every_token_and_its_log_probability(vocabulary: stepmask.Vocabulary) -> None:
    calls: list[tuple[int, float]] = []
    request = Request(
        [1], max_tokens=6, ignore_eos=True, temperature=1.0, logprobs=True, on_token=lambda *call: calls.append(call)
    )
    result = engine_of(vocabulary).submit(request).result()
    assert tuple(token for token, _ in calls) == result.token_ids
    assert tuple(logprob for _, logprob in calls) == result.log_probabilities
    assert all(logprob <= 0.0 for logprob in result.log_probabilities)


def test_cancelled_requests_leave_their_slot_to_the_next(vocabulary: stepmask.Vocabulary) -> None:
    engine = engine_of(vocabulary, slots=1)
    running = engine.submit(Request([1], max_tokens=100, ignore_eos=True))
    queued = engine.submit(Request([2], max_tokens=100, ignore_eos=True))
    last = engine.submit(Request([3], max_tokens=3, ignore_eos=True))
    engine.step()
    running.cancel()
    queued.cancel()
    engine.run()
    assert running.result().finish_reason == "cancelled"
    assert len(running.token_ids) == 1
    assert (queued.finish_reason, queued.token_ids) == ("cancelled", [])
    assert (last.finish_reason, len(last.token_ids)) == ("length", 3)


def test_an_error_costs_only_its_request(vocabulary: stepmask.Vocabulary) -> None:
    class Stumbling(SyntheticModel):
        def prefill(self, cache, slot, tokens, start):
            if tokens[0] == 13:
                raise RuntimeError("prefill failed")
            super().prefill(cache, slot, tokens, start)

    def fail(token: int, logprob: float) -> None:
        raise KeyError("callback")

    good = Request([1, 2, 3], max_tokens=10, ignore_eos=True)
    other = stepmask.Vocabulary.from_bytes([b"a", b"b", b""], eos=[2], special=[2])
    foreign = stepmask.compile(stepmask.regex("a"), other)
    expected = engine_of(vocabulary).submit(good).result().token_ids
    engine = engine_of(vocabulary, slots=3, model=Stumbling(WIDTH, seed=1))
    handles = [
        engine.submit(request)
        for request in (
            good,
            Request([13, 1], max_tokens=10),
            Request([4], max_tokens=10, ignore_eos=True, on_token=fail),
            Request([5], max_tokens=10, grammar=foreign),
            good,
        )
    ]
    results = [handle.result() for handle in handles]
    assert [result.finish_reason for result in results] == ["length", "error", "error", "error", "length"]
    assert results[0].token_ids == results[4].token_ids == expected
    assert isinstance(results[1].error, RuntimeError)
    assert isinstance(results[2].error, KeyError)
    assert isinstance(results[3].error, stepmask.VocabularyError)


class Scripted(SyntheticModel):
    """Every row gets the same logits: highest for the first of `order`, then the second, ..."""

    def __init__(self, order: list[int]) -> None:
        super().__init__(WIDTH)
        self.order = order

    def decode(self, cache, tokens, positions):
        logits = super().decode(cache, tokens, positions)
        logits[:] = -5.0
        for rank, token in enumerate(self.order):
            logits[:, token] = 5.0 - rank
        return logits


def test_end_tokens_stop_and_are_not_part_of_the_answer(vocabulary: stepmask.Vocabulary) -> None:
    engine = engine_of(vocabulary, model=Scripted([EOS, 65]))
    result = engine.submit(Request([1], max_tokens=5)).result()
    assert (result.token_ids, result.finish_reason) == ((), "stop")
    result = engine.submit(Request([1], max_tokens=5, min_tokens=2)).result()
    assert (result.token_ids, result.finish_reason) == ((65, 65), "stop")
    result = engine.submit(Request([1], max_tokens=3, ignore_eos=True)).result()
    assert (result.finish_reason, len(result.token_ids)) == ("length", 3)
    engine = engine_of(vocabulary, model=Scripted([66, 65]))
    result = engine.submit(Request([1], max_tokens=5, stop_token_ids=[66], min_tokens=1)).result()
    assert (result.token_ids, result.finish_reason) == ((65,), "stop")


def test_prompt_and_answer_fit_the_length(vocabulary: stepmask.Vocabulary) -> None:
    engine = engine_of(vocabulary)
    result = engine.submit(Request([1] * 250, max_tokens=100, ignore_eos=True)).result()
    # The last token needs no place of its own: nothing follows it.
    assert (len(result.token_ids), result.finish_reason) == (7, "length")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prompt_ids": []}, "empty"),
        ({"prompt_ids": [WIDTH]}, "prompt_ids"),
        ({"prompt_ids": [1] * 256}, "max_length"),
        ({"stop_token_ids": [-1]}, "stop_token_ids"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"min_tokens": 300}, "min_tokens"),
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"min_p": 1.5}, "min_p"),
        ({"seed": -1}, "seed"),
    ],
)
def test_impossible_requests_are_refused_at_once(
    vocabulary: stepmask.Vocabulary, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        engine_of(vocabulary).submit(Request(**{"prompt_ids": [1], **settings}))


PATTERNS = [
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
    r"(yes|no), because [a-z ]{5,20}\.",
    r"[a-z]{3,8}@[a-z]{3,8}\.(com|org)",
    r"(red|blue)",
]


def test_grammars_and_none_share_a_batch(vocabulary: stepmask.Vocabulary) -> None:
    """Every answer matches its own pattern, and none changes another's tokens."""
    work = []
    for number in range(12):
        pattern = [*PATTERNS, None][number % 5]
        grammar = None if pattern is None else stepmask.compile(stepmask.regex(pattern), vocabulary)
        request = Request(prompt(number), grammar, max_tokens=60, temperature=float(number % 2), seed=number)
        work.append((pattern, request))
    engine = engine_of(vocabulary)
    handles = [engine.submit(request) for _, request in work]
    engine.run()
    for (pattern, request), handle in zip(work, handles, strict=True):
        result = handle.result()
        assert result.token_ids == engine_of(vocabulary).submit(request).result().token_ids
        if pattern is not None:
            assert result.finish_reason == "stop"
            assert re.fullmatch(pattern, text_of(vocabulary, result.token_ids))


def test_a_finished_grammar_frees_its_slot_without_a_forward_pass(vocabulary: stepmask.Vocabulary) -> None:
    class Counting(SyntheticModel):
        forwards = 0

        def decode(self, cache, tokens, positions):
            self.forwards += 1
            return super().decode(cache, tokens, positions)

    model = Counting(WIDTH, seed=1)
    engine = engine_of(vocabulary, slots=1, model=model)
    grammar = stepmask.compile(stepmask.regex("abc"), vocabulary)
    handles = [engine.submit(Request([1], grammar)) for _ in range(4)]
    engine.run()
    assert [text_of(vocabulary, handle.result().token_ids) for handle in handles] == ["abc"] * 4
    assert model.forwards == 12


def test_a_model_that_allows_nothing_legal_ends_in_an_error(vocabulary: stepmask.Vocabulary) -> None:
    class Forbidding(SyntheticModel):
        def decode(self, cache, tokens, positions):
            logits = super().decode(cache, tokens, positions)
            logits[:, ord("a")] = -np.inf
            return logits

    engine = engine_of(vocabulary, model=Forbidding(WIDTH, seed=1))
    impossible = engine.submit(Request([1], stepmask.compile(stepmask.regex("[b-d]a"), vocabulary)))
    neighbour = engine.submit(Request([1], stepmask.compile(stepmask.regex("[b-d]{4}"), vocabulary)))
    engine.run()
    assert impossible.finish_reason == "error"
    assert isinstance(impossible.error, NoLegalToken)
    assert len(impossible.token_ids) == 1
    assert neighbour.finish_reason == "stop"


def test_min_tokens_yields_to_a_grammar_that_allows_only_an_end(vocabulary: stepmask.Vocabulary) -> None:
    grammar = stepmask.compile(stepmask.regex("ab?"), vocabulary)
    engine = engine_of(vocabulary, model=Scripted([EOS, ord("a"), ord("b")]))
    short = engine.submit(Request([1], grammar, max_tokens=9)).result()
    longer = engine.submit(Request([1], grammar, max_tokens=9, min_tokens=9)).result()
    assert (text_of(vocabulary, short.token_ids), short.finish_reason) == ("a", "stop")
    assert (text_of(vocabulary, longer.token_ids), longer.finish_reason) == ("ab", "stop")


def test_stop_tokens_of_a_request_are_no_text_of_its_grammar(vocabulary: stepmask.Vocabulary) -> None:
    grammar = stepmask.compile(stepmask.regex("a[bx]*c"), vocabulary)
    engine = engine_of(vocabulary, model=Scripted([ord("x"), ord("a"), ord("c")]))
    result = engine.submit(Request([1], grammar, max_tokens=9, stop_token_ids=[ord("x")])).result()
    assert (text_of(vocabulary, result.token_ids), result.finish_reason) == ("ac", "stop")


def test_a_budget_delays_tokens_and_never_changes_them(vocabulary: stepmask.Vocabulary) -> None:
    grammar = stepmask.compile(stepmask.regex("[a-z ]{5,30}|[0-9]{5,30}|[^a]{9}"), vocabulary)
    results, steps = [], []
    for budget in (None, 0.001):
        engine = Engine(SyntheticModel(WIDTH, seed=1), vocabulary, 8, 256, budget_us=budget)
        handles = [engine.submit(Request([number], grammar, temperature=1.0, seed=number)) for number in range(10)]
        handles.append(engine.submit(Request([1], max_tokens=9, ignore_eos=True)))
        engine.run()
        results.append([(handle.token_ids, handle.finish_reason) for handle in handles])
        steps.append(engine.recorder.steps)
    assert results[0] == results[1]
    assert steps[0] < steps[1]


@pytest.mark.parametrize("late", [False, True], ids=["no room", "no mask"])
def test_a_stack_limit_ends_its_own_request(
    vocabulary: stepmask.Vocabulary, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """Past the room for its stack, or without a mask within the limits, a request ends; its neighbours go on."""
    opening = " | ".join(f'"{chr(c)}" root ")"' for c in range(ord("a"), ord("z")))
    deep = stepmask.compile(stepmask.gbnf(f'root ::= {opening} | "z"'), vocabulary, use_cache=False)
    flat = stepmask.compile(stepmask.regex("[ab]{5}"), vocabulary)
    engine = engine_of(vocabulary)
    batch = engine._rows._batch
    batch._block.header[B_ARENA_WORDS] = 60  # a few levels
    if late:
        plan = batch.plan

        def limited(slots: np.ndarray) -> Plan:
            found = plan(slots)
            found.status[slots == 0] = LIMIT
            return found

        monkeypatch.setattr(batch, "plan", limited)
    nested = [engine.submit(Request([65], deep, temperature=1.0, seed=i, max_tokens=900)) for i in range(7)]
    other = engine.submit(Request([65], flat, temperature=1.0, seed=2))
    engine.run()
    assert other.finish_reason == "stop" and len(other.token_ids) > 0
    failed = [handle for handle in nested if handle.finish_reason == "error"]
    assert failed and all(isinstance(handle.error, stepmask.StackLimitError) for handle in failed)
    assert all(handle.finish_reason == "stop" for handle in nested if handle not in failed)


def test_synthetic_logits_depend_on_the_row_alone() -> None:
    model = SyntheticModel(1000, seed=3)
    cache = model.open(4, 32)
    for slot in (0, 2):
        model.prefill(cache, slot, np.arange(5, dtype=np.int32), 0)
    tokens = np.array([7, 8, 7, 9], np.int32)
    logits = model.decode(cache, tokens, np.array([5, 0, 5, 0], np.int32)).copy()
    assert (logits[0] == logits[2]).all()
    assert not (logits[0] == logits[1]).all()
    assert 3.0 < logits[0].std() < 6.0
    assert abs(logits[0].mean()) < 1.0
    # The same row one token at a time, elsewhere.
    other = model.open(1, 32)
    for position in range(5):
        model.decode(other, np.array([position], np.int32), np.array([position], np.int32))
    alone = model.decode(other, np.array([7], np.int32), np.array([5], np.int32))
    assert (alone[0] == logits[0]).all()
