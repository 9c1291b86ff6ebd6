"""The CPU sampling kernel against its NumPy reference, against exact distributions, and against itself."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
import sampling_reference as reference
from hypothesis import given
from hypothesis import strategies as st
from mask_tables import DENSE, EMPTY, LIST, SINGLE, bfloat16_bits, random_ends, tables
from numpy.typing import NDArray

from stepmask.masks import noise
from stepmask.masks.keys_numba import scaled
from stepmask.masks.sampling import Sampler, SampleResult, SamplingParameters, apply_masks, sample
from stepmask.masks.sampling_numba import sample_rows_32
from stepmask.masks.scan_numba import lowest_key_of
from stepmask.masks.tables import KIND_SHIFT, UNCONSTRAINED, EndSets, MaskTables

# --- against the reference ------------------------------------------------------------------------


@st.composite
def problems(draw: Any) -> dict[str, Any]:
    """A batch of rows of every mask kind over a small vocabulary; logits with ties, infinities and NaN."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    vocabulary = draw(st.sampled_from([1, 2, 31, 32, 33, 63, 64, 65, 100, 129, 300]))
    width = vocabulary + draw(st.integers(0, 40))
    rows = draw(st.integers(1, 12))
    style = draw(st.sampled_from(["smooth", "ties", "flat", "wild"]))
    logits = (rng.normal(size=(rows, width)) * {"flat": 0.01, "wild": 1e3}.get(style, 3.0)).astype(np.float32)
    if style == "ties":
        logits = np.round(logits).astype(np.float32) * np.float32(0.5)
    if style == "wild":
        special = rng.random(logits.shape)
        for chance, value in ((0.15, np.nan), (0.3, -np.inf), (0.32, np.inf), (0.36, -0.0), (0.4, 0.0), (0.42, 3e38)):
            logits[(special < chance) & (special >= chance - 0.15)] = value
        logits[rng.random(logits.shape) < 0.01] = np.float32("nan") * -1
    half = draw(st.booleans())
    density = rng.choice([0.02, 0.3, 0.95, 1.0], size=(4, 1))
    masks = rng.random((4, vocabulary)) < density
    lists = [
        sorted(rng.choice(vocabulary, rng.integers(0, min(vocabulary, 12) + 1), replace=False).tolist())
        for _ in range(3)
    ]
    ids = [UNCONSTRAINED, *(DENSE | i for i in range(4)), *(LIST | i for i in range(3)), EMPTY]
    ids.append(SINGLE | int(rng.integers(vocabulary)))
    end_sets, end_allowed = random_ends(rng, rows, vocabulary)
    return {
        "logits": bfloat16_bits(logits) if half else logits,
        "vocabulary": vocabulary,
        "pool": tables(masks, lists),
        "mask_ids": rng.choice(np.array(ids, np.int32), rows),
        "end_allowed": end_allowed,
        "end_sets": end_sets,
        "rows": rng.permutation(rows).astype(np.int64),
        "parameters": SamplingParameters.build(
            rows,
            temperature=rng.choice([0, 1e-7, 0.1, 0.7, 1, 1.9, 50], rows),
            top_k=rng.choice([0, 0, 1, 2, 7, 40, 1000], rows),
            top_p=rng.choice([1, 1, 1e-6, 0.3, 0.9, 0.999999], rows),
            min_p=rng.choice([0, 0, 1e-9, 0.05, 0.5, 1], rows),
            seed=rng.integers(0, 2**64, rows, np.uint64),
            position=rng.integers(0, 2**40, rows),
            want_logprob=rng.integers(0, 2, rows),
        ),
    }


def check(problem: dict[str, Any]) -> SampleResult:
    result = sample(**problem)
    tokens, logprobs = reference.sample(**problem)
    np.testing.assert_array_equal(result.tokens, tokens)
    np.testing.assert_array_equal(result.logprobs, logprobs)
    return result


@given(problems())
def test_equals_the_reference(problem: dict[str, Any]) -> None:
    check(problem)


@pytest.mark.parametrize("scale", [0.01, 1.0, 4.0])
def test_equals_the_reference_on_a_large_vocabulary(scale: float) -> None:
    """Large enough for every digit of the radix descent, for skipped blocks and for bounds on top-k."""
    rng = np.random.default_rng(5)
    vocabulary = 20_011
    settings_of_rows = [
        {"temperature": 0.0},
        {},
        {"temperature": 0.6},
        {"top_k": 50},
        {"top_k": 5000},
        {"top_p": 0.9},
        {"top_p": 0.999},
        {"min_p": 0.05},
        {"min_p": 1e-6},
        {"top_k": 300, "top_p": 0.8},
        {"top_p": 0.95, "min_p": 0.01},
        {"temperature": 1.7, "top_k": 4000, "top_p": 0.9, "min_p": 1e-3},
    ]
    names = ("temperature", "top_k", "top_p", "min_p")
    off = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    cases = [case for case in settings_of_rows for _ in range(3)]
    rows = len(cases)
    columns: dict[str, Any] = {name: [case.get(name, off[name]) for case in cases] for name in names}
    parameters = SamplingParameters.build(rows, **columns, seed=np.arange(rows), position=7, want_logprob=True)
    logits = (rng.normal(size=(rows, vocabulary)) * scale).astype(np.float32)
    masks = np.array([rng.random(vocabulary) < 0.5, rng.random(vocabulary) < 0.01])
    for values in (logits, bfloat16_bits(logits)):
        problem = {
            "logits": values,
            "vocabulary": vocabulary,
            "pool": tables(masks),
            "mask_ids": np.tile(np.array([UNCONSTRAINED, 0, 1], np.int32), rows // 3),
            "end_allowed": np.arange(rows, dtype=np.uint32) % 4,
            "end_sets": EndSets.same(rows, [17, 20_010]),
            "rows": np.arange(rows),
            "parameters": parameters,
        }
        check(problem)


def test_ties_are_cut_by_id() -> None:
    """Equal logits: top-k and top-p keep the lowest ids, greedy takes the lowest, and only the kept are drawn."""
    rows, vocabulary = 2000, 100
    logits = np.full((1, vocabulary), 1.5, np.float32)
    logits[0, 3:90] = -0.0
    logits[0, 50] = 0.0
    ids = np.full(rows, UNCONSTRAINED, np.int32)
    pool = MaskTables.empty(4)
    same_row = np.zeros(rows, np.int64)

    def drawn(**values: Any) -> set[int]:
        parameters = SamplingParameters.build(rows, seed=3, position=np.arange(rows), **values)
        return set(sample(logits, ids, pool, parameters=parameters, rows=same_row).tokens.tolist())

    assert drawn(temperature=0) == {0}
    assert drawn(top_k=5) == {0, 1, 2, 90, 91}
    assert drawn(top_k=15, temperature=100) == {0, 1, 2, *range(90, 100), 3, 4}
    assert drawn(top_p=0.001) == {0}
    assert drawn(min_p=1) == {0, 1, 2, *range(90, 100)}
    # Thirteen tokens share the mass above; half of it needs the first seven.
    logits[0, 3:90] = -np.inf
    assert drawn(top_p=0.5) == {0, 1, 2, 90, 91, 92, 93}


@numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
def weight_below(limit: int, maximum: int, inverse_temperature: float) -> Any:
    key = lowest_key_of(limit, maximum, inverse_temperature)
    below = scaled(np.int32(key - 1), inverse_temperature) - scaled(maximum, inverse_temperature)
    return key, noise.weight(below)


def test_bound_on_keys_leaves_out_only_lighter_tokens() -> None:
    """And not many fewer than it could: the heaviest token left out weighs at least 0.4 of the limit."""
    rng = np.random.default_rng(6)
    for limit in [1, 2, 3, 1 << noise.WEIGHT_BITS, *(2 ** rng.uniform(1, noise.WEIGHT_BITS, 300)).astype(int).tolist()]:
        maximum = np.float32(rng.normal() * 20).view(np.int32)
        maximum = maximum if maximum >= 0 else maximum ^ np.int32(0x7FFFFFFF)
        inverse = np.float32(1) / np.float32(rng.choice([0.1, 0.7, 1, 2]))
        key, weight = weight_below(np.int64(limit), maximum, inverse)
        assert key <= maximum
        assert weight < limit
        assert limit < 1000 or weight >= 0.4 * limit


# --- distributions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "truncation",
    [{}, {"temperature": 0.5}, {"top_k": 6}, {"top_p": 0.8}, {"min_p": 0.1}, {"top_k": 9, "top_p": 0.9, "min_p": 0.02}],
)
@pytest.mark.parametrize("kind", [UNCONSTRAINED, DENSE, LIST])
def test_draws_follow_the_masked_softmax(truncation: dict[str, Any], kind: int) -> None:
    rng = np.random.default_rng(11)
    vocabulary, draws = 70, 20_000
    logits = (rng.normal(size=(1, vocabulary)) * 1.5).astype(np.float32)
    allowed = sorted(rng.choice(vocabulary, 25, replace=False).tolist())
    masks = np.zeros((1, vocabulary), np.bool_)
    masks[0, allowed] = True
    pool = tables(masks, [allowed])
    parameters = SamplingParameters.build(draws, seed=99, position=np.arange(draws), **truncation)
    tokens = sample(
        logits, np.full(draws, kind, np.int32), pool, parameters=parameters, rows=np.zeros(draws, np.int64)
    ).tokens

    legal = np.arange(vocabulary) if kind == UNCONSTRAINED else np.array(allowed)
    x = logits[0, legal].astype(np.float64) / truncation.get("temperature", 1.0)
    p = np.exp(x - x.max())
    p /= p.sum()
    order = np.argsort(-p)
    kept = np.zeros(p.size, np.bool_)
    kept[order[: truncation.get("top_k", p.size)]] = True
    q = np.where(kept, p, 0)
    q /= q.sum()
    above = np.cumsum(q[order]) - q[order]
    kept[order] &= above < truncation.get("top_p", 2.0)
    kept &= p >= truncation.get("min_p", 0.0) * p.max()
    q = np.where(kept, p, 0) / p[kept].sum()

    counts = np.bincount(tokens, minlength=vocabulary)[legal]
    assert counts.sum() == draws
    assert counts[~kept].sum() == 0
    expected = q[kept] * draws
    rare = expected < 5
    observed = np.append(counts[kept][~rare], counts[kept][rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    enough = wanted > 0
    statistic = float(((observed - wanted)[enough] ** 2 / wanted[enough]).sum())
    freedom = max(int(enough.sum()) - 1, 1)
    # Wilson and Hilferty: the cube root of chi-square over its degrees of freedom is nearly normal.
    normal = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / np.sqrt(2 / (9 * freedom))
    assert normal < 3.7


# --- invariance -----------------------------------------------------------------------------------


def test_a_row_does_not_depend_on_its_batch() -> None:
    rng = np.random.default_rng(3)
    rows, vocabulary = 24, 500
    logits = (rng.normal(size=(rows, vocabulary)) * 2).astype(np.float32)
    pool = tables(rng.random((2, vocabulary)) < 0.4, [[1, 5, 499]])
    ids = np.resize(np.array([UNCONSTRAINED, 0, LIST, 1, SINGLE | 9], np.int32), rows)
    names = ("temperature", "top_k", "top_p", "min_p", "seed", "position", "want_logprob")
    parameters = SamplingParameters.build(
        rows,
        temperature=rng.choice([0, 0.5, 1], rows),
        top_k=rng.choice([0, 10], rows),
        top_p=rng.choice([1, 0.7], rows),
        seed=rng.integers(0, 9, rows),
        position=rng.integers(0, 9, rows),
        want_logprob=True,
    )

    def part(chosen: NDArray[np.int64]) -> SamplingParameters:
        return SamplingParameters(**{name: getattr(parameters, name)[chosen] for name in names})

    sampler = Sampler(vocabulary, rows)
    whole = sampler.sample(logits, ids, pool, parameters=parameters)
    shuffled = rng.permutation(rows)
    strided = np.full((rows, 2 * vocabulary + 3), np.nan, np.float32)
    strided[:, :vocabulary] = logits
    read_only = logits.copy()
    read_only.flags.writeable = False
    forms = {
        "contiguous": logits,
        "wide rows": strided[:, :vocabulary],
        "every other row": np.repeat(logits, 2, axis=0)[::2],
        "reversed": logits[::-1].copy()[::-1],
        "read-only": read_only,
    }
    for form in forms.values():
        result = sampler.sample(form, ids[shuffled], pool, parameters=part(shuffled), rows=shuffled)
        np.testing.assert_array_equal(result.tokens, whole.tokens[shuffled])
        np.testing.assert_array_equal(result.logprobs, whole.logprobs[shuffled])
    for row in range(rows):
        one = np.array([row])
        result = sample(logits[row : row + 1], ids[one], pool, parameters=part(one))
        assert result.tokens[0] == whole.tokens[row]
    assert len(sample_rows_32.signatures) == 1  # no form of logits makes the kernel compile again


def test_mask_kinds_of_the_same_tokens_agree() -> None:
    rng = np.random.default_rng(8)
    vocabulary = 77
    logits = rng.normal(size=(1, vocabulary)).astype(np.float32)
    every = list(range(vocabulary))
    one = np.zeros((1, vocabulary), np.bool_)
    one[0, 76] = True
    pool = tables(np.concatenate([np.ones((1, vocabulary), np.bool_), one, ~one & False]), [every, [76], []])
    for same in ([UNCONSTRAINED, 0, LIST], [SINGLE | 76, 1, LIST | 1], [EMPTY, 2, LIST | 2]):
        for values in ({}, {"temperature": 0}, {"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.3}):
            for ends, may_end in (
                ([4, 76, 4], False),
                ([4, 76, 4], True),
                ([4, 76], np.uint32(1)),
                ([4, 76], np.uint32(2)),
            ):
                count = len(same)
                result = sample(
                    logits,
                    same,
                    pool,
                    end_allowed=np.full(count, may_end),
                    end_sets=EndSets.same(count, ends),
                    parameters=SamplingParameters.build(count, seed=4, want_logprob=True, **values),
                    rows=np.zeros(count, np.int64),
                )
                assert len(set(result.tokens.tolist())) == 1
                assert len(set(result.logprobs.view(np.int32).tolist())) == 1


# --- edges ----------------------------------------------------------------------------------------


def test_rows_without_a_legal_token_are_reported() -> None:
    """Nothing allowed, only NaN and -inf allowed, and ids that are no mask: -1, never a crash."""
    logits = np.array([[1, 2, 3], [np.nan, -np.inf, np.nan], [1, np.nan, -np.inf]], np.float32)
    pool = tables(np.array([[False, False, False], [False, True, True]]), [[]])
    ids = [EMPTY, 0, LIST, UNCONSTRAINED, 1, SINGLE | 2, DENSE | 9, LIST | 9, SINGLE | 999, 5 << KIND_SHIFT]
    rows = np.array([0, 0, 0, 1, 2, 2, 0, 0, 0, 0])
    for temperature in (0, 1):
        parameters = SamplingParameters.build(len(ids), temperature=temperature, top_p=0.9, want_logprob=True)
        result = sample(logits, ids, pool, parameters=parameters, rows=rows)
        assert result.tokens.tolist() == [-1] * len(ids)
        assert np.all(np.isnan(result.logprobs))


def test_end_tokens() -> None:
    logits = np.array([[0, 9, 1, 2]], np.float32)
    pool = tables(np.array([[True, False, True, False]]))
    ends = EndSets.same(2, [1])
    greedy = SamplingParameters.build(2, temperature=0)
    for mask_id, barred in ((UNCONSTRAINED, 3), (DENSE, 2), (EMPTY, -1)):
        result = sample(
            logits,
            [mask_id] * 2,
            pool,
            end_allowed=np.array([0, 1], np.bool_),
            end_sets=ends,
            parameters=greedy,
            rows=np.zeros(2, np.int64),
        )
        assert result.tokens.tolist() == [barred, 1]


def test_some_end_tokens() -> None:
    """A bit for each; a bool stands for all of them, and a number of another type is refused."""
    logits = np.array([[0, 9, 8, 2]], np.float32)
    pool = tables(np.array([[True, False, True, False]]))
    arguments: dict[str, Any] = {
        "end_sets": EndSets.same(4, [1, 2]),
        "parameters": SamplingParameters.build(4, temperature=0),
        "rows": np.zeros(4, np.int64),
    }
    for mask_id, expected in ((UNCONSTRAINED, [3, 1, 2, 1]), (DENSE, [0, 1, 2, 1]), (EMPTY, [-1, 1, 2, 1])):
        result = sample(logits, [mask_id] * 4, pool, end_allowed=np.arange(4, dtype=np.uint32), **arguments)
        assert result.tokens.tolist() == expected
        result = sample(logits, [mask_id] * 4, pool, end_allowed=np.array([False, True] * 2), **arguments)
        assert result.tokens.tolist() == [expected[0], 1] * 2
    for wrong in (np.uint8, np.int64, np.int32):
        with pytest.raises(TypeError, match="end_allowed must be uint32"):
            sample(logits, [DENSE] * 4, pool, end_allowed=np.ones(4, wrong), **arguments)
    with pytest.raises(ValueError, match="more than 32 end tokens"):
        EndSets.same(2, range(33))


def test_infinite_logits() -> None:
    """+inf is the largest: the lowest id of them, also when sampling, where it absorbs the noise."""
    logits = np.array([[0, np.inf, 1, np.inf, 3e38, np.nan]], np.float32)
    for temperature in (0.0, 0.5, 1.0):
        parameters = SamplingParameters.build(50, temperature=temperature, seed=np.arange(50), want_logprob=True)
        rows = np.zeros(50, np.int64)
        result = sample(logits, [UNCONSTRAINED] * 50, MaskTables.empty(1), parameters=parameters, rows=rows)
        assert set(result.tokens.tolist()) == {1}
        assert np.all(np.isfinite(result.logprobs))


def test_bad_arguments_are_refused() -> None:
    pool = MaskTables.empty(1)
    logits = np.zeros((2, 8), np.float32)
    one = SamplingParameters.build(1)
    for name, value in (("temperature", -1), ("temperature", np.nan), ("top_p", 0), ("top_k", -1), ("min_p", 2)):
        with pytest.raises(ValueError, match=name):
            sample(logits, [-1], pool, parameters=SamplingParameters.build(1, **{name: value}))
    with pytest.raises(ValueError, match="row numbers"):
        sample(logits, [-1], pool, parameters=one, rows=np.array([2]))
    with pytest.raises(ValueError, match="columns"):
        sample(logits, [-1], pool, parameters=one, vocabulary=9)
    with pytest.raises(ValueError, match="words"):
        sample(np.zeros((1, 40), np.float32), [0], tables(np.ones((1, 8), np.bool_)), parameters=one)
    with pytest.raises(ValueError, match="contiguous"):
        sample(np.zeros((2, 8), np.float32)[:, ::2], [-1], pool, parameters=one)
    with pytest.raises(ValueError, match="int32"):
        sample(logits, [-1], pool, parameters=one, out=SampleResult(np.zeros(1), np.zeros(1, np.float32)))
    with pytest.raises(ValueError, match="vocabulary"):
        Sampler(noise.MAX_VOCABULARY + 1, 1)
    with pytest.raises(TypeError, match="float64"):
        sample(np.zeros((1, 8)), [-1], pool, parameters=one)
    with pytest.raises(TypeError, match="float16"):
        sample(np.zeros((1, 8), np.float16), [-1], pool, parameters=one)
    with pytest.raises(ValueError, match="length"):
        SamplingParameters(**{**vars(one), "top_k": np.zeros(2, np.int32)})


# --- torch and apply_masks ------------------------------------------------------------------------


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    logits = torch.from_numpy(rng.normal(size=(4, 90)).astype(np.float32))
    parameters = SamplingParameters.build(4, seed=np.arange(4), want_logprob=True)
    pool = tables(rng.random((1, 60)) < 0.5)
    ids = [-1, 0, -1, 0]
    for tensor in (logits, logits.to(torch.bfloat16)):
        wide = tensor.float().numpy()
        expected = sample(wide, ids, pool, parameters=parameters, vocabulary=60)
        for view in (tensor, torch.nn.functional.pad(tensor, (0, 7))[:, :90]):
            result = sample(view, ids, pool, parameters=parameters, vocabulary=60)
            np.testing.assert_array_equal(result.tokens, expected.tokens)
            np.testing.assert_array_equal(result.logprobs, expected.logprobs)
    with pytest.raises(TypeError, match="float64"):
        sample(logits.double(), ids, pool, parameters=parameters, vocabulary=60)


@given(problems(), st.sampled_from(["float32", "float16", "bits"]))
def test_apply_masks(problem: dict[str, Any], form: str) -> None:
    del problem["parameters"]
    values = reference.as_float32(problem["logits"])
    logits: NDArray[Any] = bfloat16_bits(values) if form == "bits" else values.clip(-6e4, 6e4).astype(form)
    minus_infinity = {"bits": 0xFF80, "float16": -np.inf, "float32": -np.inf}[form]
    expected = logits.copy()
    for i, row in enumerate(problem["rows"]):
        ends = problem["end_sets"].tokens[problem["end_sets"].start[i] : problem["end_sets"].start[i + 1]]
        legal = reference.legal_tokens(
            int(problem["mask_ids"][i]), problem["pool"], int(problem["end_allowed"][i]), ends, problem["vocabulary"]
        )
        expected[row, : legal.size][~legal] = minus_infinity
        expected[row, legal.size :] = minus_infinity
    del problem["logits"]
    apply_masks(logits, **problem)
    np.testing.assert_array_equal(logits, expected)


def test_apply_masks_to_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    pool = tables(np.array([[True, False, True, False, True]]))
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        whole = torch.arange(24, dtype=dtype).reshape(3, 8)
        view = whole[:, :6]
        apply_masks(view, pool, [0, -1, SINGLE | 3], vocabulary=5)
        infinity = float("inf")
        assert whole.float().tolist() == [
            [0, -infinity, 2, -infinity, 4, -infinity, 6, 7],
            [8, 9, 10, 11, 12, -infinity, 14, 15],
            [-infinity, -infinity, -infinity, 19, -infinity, -infinity, 22, 23],
        ]


def test_apply_masks_then_sample_equals_sample() -> None:
    rng = np.random.default_rng(21)
    logits = rng.normal(size=(6, 65)).astype(np.float32)
    pool = tables(rng.random((2, 65)) < 0.5, [[3, 64]])
    ids = [0, 1, LIST, SINGLE | 8, -1, EMPTY]
    parameters = SamplingParameters.build(6, seed=np.arange(6), top_p=0.9, want_logprob=True)
    direct = sample(logits, ids, pool, parameters=parameters)
    apply_masks(logits, pool, ids)
    masked = sample(logits, [-1] * 6, pool, parameters=parameters)
    np.testing.assert_array_equal(direct.tokens, masked.tokens)
    np.testing.assert_array_equal(direct.logprobs, masked.logprobs)


def test_read_only_logits_are_not_masked() -> None:
    logits = np.zeros((1, 4), np.float32)
    logits.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        apply_masks(logits, MaskTables.empty(1), [EMPTY])
