"""Candidates of waiting rows: the CPU kernel against the NumPy reference, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sampling_reference as reference
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stepmask.masks.candidates import CANDIDATES, Candidates
from stepmask.masks.layout import LIMIT, PENDING, READY
from stepmask.masks.sampling import Sampler, SamplingParameters, sample
from stepmask.masks.tables import KIND_EMPTY, KIND_SHIFT, UNCONSTRAINED, EndSets, MaskTables

EMPTY = KIND_EMPTY << KIND_SHIFT


def bits_of(mask: NDArray[np.bool_]) -> NDArray[np.uint32]:
    padded = np.zeros(-(-mask.size // 32) * 32, np.bool_)
    padded[: mask.size] = mask
    return np.packbits(padded, bitorder="little").view(np.uint32)


def check(found: Candidates, problem: dict[str, Any], possible: NDArray[np.bool_] | None) -> None:
    parameters, vocabulary = problem["parameters"], problem["vocabulary"]
    for i in range(len(problem["mask_ids"])):
        if problem["status"][i] != PENDING:
            assert found.count[i] == -1
            continue
        assert found.sampled is not None and found.sampled[i] == -1
        if parameters.want_logprob[i]:
            assert found.count[i] == 0
            continue
        wanted = np.ones(vocabulary, np.bool_) if possible is None else possible.copy()
        ends = problem["end_sets"].tokens[problem["end_sets"].start[i] : problem["end_sets"].start[i + 1]]
        wanted[ends[ends < vocabulary]] = True
        expected = reference.candidates_of(
            problem["logits"][problem["rows"][i]],
            wanted,
            float(parameters.temperature[i]),
            int(parameters.seed[i]),
            int(parameters.position[i]),
            problem["candidates"],
        )
        n = len(expected.tokens)
        assert found.count[i] == n
        np.testing.assert_array_equal(found.tokens[i, :n], expected.tokens)
        np.testing.assert_array_equal(found.x[i, :n], expected.x)
        greedy = parameters.temperature[i] < 2.0**-20
        if n == 0 or greedy:
            continue
        if parameters.top_k[i] > 0 or parameters.top_p[i] < 1 or parameters.min_p[i] > 0:
            np.testing.assert_array_equal(found.rank[i, :n], expected.rank)
            assert found.largest[i] == np.float32(expected.largest)
        if parameters.top_p[i] < 1:
            np.testing.assert_array_equal(found.weight[i, :n], expected.weight)
            np.testing.assert_array_equal(found.above[i, :n], expected.above)
            assert found.total[i] == expected.total
            assert found.possible[i] == wanted.sum()


@st.composite
def problems(draw: Any) -> tuple[dict[str, Any], NDArray[np.bool_] | None]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    vocabulary = draw(st.sampled_from([1, 2, 31, 33, 64, 100, 300, 1500]))
    rows = draw(st.integers(1, 8))
    style = draw(st.sampled_from(["smooth", "ties", "flat", "wild", "equal", "rising"]))
    logits = (rng.normal(size=(rows, vocabulary + 5)) * {"flat": 0.01, "wild": 1e3}.get(style, 3.0)).astype(np.float32)
    if style == "ties":
        logits = np.round(logits)
    if style == "equal":
        logits[:] = -0.0
        logits[:, ::2] = 0.0
    if style == "rising":
        logits = np.sort(logits, axis=1)
    if style == "wild":
        special = rng.random(logits.shape)
        for chance, value in ((0.2, np.nan), (0.5, -np.inf), (0.52, np.inf), (0.55, -0.0), (0.58, 3e38)):
            logits[(special < chance) & (special >= chance - 0.2)] = value
    if draw(st.booleans()):
        logits = (logits.view(np.uint32) >> 16).astype(np.uint16)
    counts = rng.integers(0, 3, rows)
    problem = {
        "logits": logits,
        "vocabulary": vocabulary,
        "pool": MaskTables.empty(-(-vocabulary // 32)),
        "end_sets": EndSets(
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            rng.integers(0, vocabulary + 5, counts.sum()).astype(np.int32),
        ),
        "rows": rng.permutation(rows).astype(np.int64),
        "parameters": SamplingParameters.build(
            rows,
            temperature=rng.choice([0, 1e-7, 0.1, 0.7, 1, 1.9, 50], rows),
            top_k=rng.choice([0, 0, 1, 7, 40, 1000], rows),
            top_p=rng.choice([1, 1e-6, 0.3, 0.9, 0.999999], rows),
            min_p=rng.choice([0, 0, 1e-9, 0.05, 1], rows),
            seed=rng.integers(0, 2**64, rows, np.uint64),
            position=rng.integers(0, 2**40, rows),
            want_logprob=rng.random(rows) < 0.2,
        ),
        "status": rng.choice(np.array([READY, PENDING, PENDING, LIMIT], np.uint8), rows),
        "candidates": draw(st.sampled_from([1, 2, 16, 40])),
    }
    problem["end_allowed"] = problem["status"] == READY
    problem["mask_ids"] = np.where(problem["status"] == READY, UNCONSTRAINED, EMPTY).astype(np.int32)
    possible = draw(st.sampled_from([None, 0.0, 0.1, 0.9]))
    return problem, None if possible is None else rng.random(vocabulary) < possible


@given(problems())
def test_equals_the_reference(case: tuple[dict[str, Any], NDArray[np.bool_] | None]) -> None:
    problem, possible = case
    result = sample(**problem, possible=None if possible is None else bits_of(possible))
    assert result.candidates is not None
    check(result.candidates, problem, possible)
    expected, _ = reference.sample(
        **{name: value for name, value in problem.items() if name not in ("status", "candidates")}
    )
    expected[problem["status"] == PENDING] = -1
    np.testing.assert_array_equal(result.tokens, expected)


@pytest.mark.parametrize("scale", [0.01, 1.0, 4.0])
def test_equals_the_reference_on_a_large_vocabulary(scale: float) -> None:
    """Blocks are skipped by key and by noise; half of the tokens are not possible."""
    rng = np.random.default_rng(5)
    vocabulary, rows = 20_011, 8
    logits = (rng.normal(size=(rows, vocabulary)) * scale).astype(np.float32)
    possible = rng.random(vocabulary) < 0.5
    problem = {
        "logits": logits,
        "vocabulary": vocabulary,
        "pool": MaskTables.empty(-(-vocabulary // 32)),
        "mask_ids": np.full(rows, EMPTY, np.int32),
        "end_sets": EndSets.same(rows, [17, 20_010]),
        "end_allowed": np.zeros(rows, np.bool_),
        "rows": np.arange(rows),
        "parameters": SamplingParameters.build(
            rows,
            temperature=[0, 1, 1, 1, 0.3, 2, 1, 1],
            top_k=[0, 0, 50, 0, 0, 0, 7, 0],
            top_p=[0.9, 1, 1, 0.9, 0.95, 0.5, 0.9, 1],
            min_p=[0, 0, 0, 0, 0.1, 0, 0, 0.02],
            seed=np.arange(rows),
            position=9,
        ),
        "status": np.full(rows, PENDING, np.uint8),
        "candidates": CANDIDATES,
    }
    for values in (logits, (logits.view(np.uint32) >> 16).astype(np.uint16)):
        problem["logits"] = values
        found = sample(**problem, possible=bits_of(possible)).candidates
        assert found is not None
        check(found, problem, possible)


def test_tokens_and_candidates_unpack() -> None:
    """Where no row waits there is nothing to settle, and no call without `status` makes candidates."""
    logits = np.zeros((2, 40), np.float32)
    arguments: dict[str, Any] = {"pool": MaskTables.empty(2), "parameters": SamplingParameters.build(2)}
    tokens, candidates = sample(logits, [UNCONSTRAINED, EMPTY], **arguments)
    assert candidates is None and tokens.tolist()[1] == -1
    status = np.array([READY, PENDING], np.uint8)
    again, candidates = sample(logits, [UNCONSTRAINED, EMPTY], **arguments, status=status)
    assert again.tolist() == tokens.tolist()
    assert candidates.sampled is again and candidates.count.tolist() == [-1, CANDIDATES]
    sampler = Sampler(40, 2)
    first = sampler.sample(logits, np.array([-1, -1], np.int32), **arguments, status=status)
    second = sampler.sample(logits, np.array([-1, -1], np.int32), **arguments, status=status * 0, out=first)
    assert second is first and first.candidates is not None
    assert first.candidates.count.tolist() == [-1, -1]


def test_bad_arguments_are_refused() -> None:
    logits = np.zeros((1, 40), np.float32)
    arguments: dict[str, Any] = {"pool": MaskTables.empty(2), "parameters": SamplingParameters.build(1)}
    waiting = np.array([PENDING], np.uint8)
    with pytest.raises(ValueError, match="status of 2 rows"):
        sample(logits, [EMPTY], **arguments, status=np.array([0, 1], np.uint8))
    with pytest.raises(ValueError, match="possible has 1 words, 2 needed"):
        sample(logits, [EMPTY], **arguments, status=waiting, possible=np.zeros(1, np.uint32))
    with pytest.raises(ValueError, match="at least one candidate"):
        Sampler(40, 1, candidates=0)
