"""Both back ends of the device's sampler against the NumPy reference, bit for bit."""

from __future__ import annotations

from typing import Any

import device_problems as device
import numpy as np
import pytest
import sampling_reference as reference
import torch
import triton
import triton.language as tl
from device_problems import DEVICE, DTYPES, few, problems, tensor
from hypothesis import given, settings
from hypothesis import strategies as st
from mask_tables import EMPTY, LIST, SINGLE, bfloat16_bits, pack, tables

import stepmask
from stepmask.masks import noise
from stepmask.masks.device.noise_triton import gumbel, gumbel_bound
from stepmask.masks.device.sampler import DeviceSampler
from stepmask.masks.device.tables import DeviceEnds, DeviceParameters, DeviceResult, DeviceTables
from stepmask.masks.layout import PENDING
from stepmask.masks.sampling import SamplingParameters
from stepmask.masks.tables import UNCONSTRAINED, EndSets, MaskTables


@triton.jit
def both(words, noises, bounds, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.arange(0, SIZE)
    word = tl.load(words + place).to(tl.uint32, bitcast=True)
    tl.store(noises + place, gumbel(word))
    tl.store(bounds + place, gumbel_bound(word))


def check(problem: dict[str, Any], backend: str, **options: Any) -> None:
    result = device.sample(problem, backend, **options)
    wide = problem["logits"] if problem["logits"].dtype == np.uint16 else problem["logits"].astype(np.float32)
    tokens, logprobs = reference.sample(**{**problem, "logits": wide})
    np.testing.assert_array_equal(result.tokens.cpu().numpy(), tokens)
    np.testing.assert_array_equal(result.logprobs.cpu().numpy(), logprobs)


@few
@given(problems(), st.sampled_from([0, 1, 7, 64]))
def test_triton_equals_the_reference(problem: dict[str, Any], extra: int) -> None:
    check(problem, "triton", extra=extra)


@given(problems(), st.sampled_from([0, 1, 7, 64]))
def test_torch_equals_the_reference(problem: dict[str, Any], extra: int) -> None:
    check(problem, "torch", extra=extra)


@few
@given(problems())
def test_more_survivors_than_there_is_room_for(problem: dict[str, Any]) -> None:
    """They are then looked for in the logits themselves."""
    check(problem, "triton", capacity=2)


@pytest.mark.parametrize(
    ("backend", "form"), [*(("torch", form) for form in sorted(DTYPES)), ("triton", "float32"), ("triton", "bits")]
)
def test_a_large_vocabulary(backend: str, form: str) -> None:
    """Several parts of several tiles, cuts far from both ends, parts that are skipped."""
    rng = np.random.default_rng(5)
    vocabulary = 5003
    values = {"temperature": [0, 1, 0.6, 1, 1, 1.7], "top_k": [0, 0, 50, 900, 0, 300], "top_p": [1, 1, 1, 1, 0.95, 0.8]}
    rows = len(values["top_k"])
    logits: Any = (rng.normal(size=(rows, vocabulary)) * 3).astype(np.float32)
    logits = bfloat16_bits(logits) if form == "bits" else logits.astype(form)
    sparse = np.zeros(vocabulary, np.bool_)
    sparse[3000:3020] = True
    problem = {
        "logits": logits,
        "vocabulary": vocabulary,
        "pool": tables(np.array([rng.random(vocabulary) < 0.5, sparse])),
        "mask_ids": np.array([UNCONSTRAINED, 0, 1, 0, 0, UNCONSTRAINED], np.int32),
        "end_allowed": np.arange(rows, dtype=np.uint32),
        "end_sets": EndSets.same(rows, [17, 5002]),
        "rows": np.arange(rows),
        "parameters": SamplingParameters.build(
            rows, **values, min_p=[0, 0, 0, 0, 0.001, 0], seed=np.arange(rows), position=7, want_logprob=True
        ),
    }
    wide = logits if form == "bits" else logits.astype(np.float32)
    tokens, logprobs = reference.sample(**{**problem, "logits": wide})
    sampler = DeviceSampler(vocabulary, rows, DEVICE, backend=backend, tile=1024, capacity=1024)
    with np.errstate(all="ignore"):
        result = sampler.sample(
            tensor(logits),
            tensor(problem["mask_ids"]),
            DeviceTables.of(problem["pool"], DEVICE),
            parameters=DeviceParameters.of(problem["parameters"], DEVICE),
            **device.row_arguments(problem),
        )
    np.testing.assert_array_equal(result.tokens.cpu().numpy(), tokens)
    np.testing.assert_array_equal(result.logprobs.cpu().numpy(), logprobs)


@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_a_large_batch(backend: str, request: pytest.FixtureRequest) -> None:
    """1,024 rows, each with its own parameters, plain and truncated ones mixed; so many in the interpreter only if
    asked to be thorough, as it takes half a minute.
    """
    rng = np.random.default_rng(3)
    interpreted = backend == "triton" and DEVICE == "cpu" and not request.config.getoption("--deep")
    vocabulary, rows = 40, 66 if interpreted else 1024
    problem = {
        "logits": (rng.normal(size=(rows, vocabulary)) * 3).astype(np.float32),
        "vocabulary": vocabulary,
        "pool": tables(rng.random((5, vocabulary)) < 0.4),
        "mask_ids": rng.choice(np.array([UNCONSTRAINED, 0, 1, 2, 3, 4], np.int32), rows),
        "end_allowed": rng.integers(0, 4, rows).astype(np.uint32),
        "end_sets": EndSets.same(rows, [17, 39]),
        "rows": rng.permutation(rows).astype(np.int64),
        "parameters": SamplingParameters.build(
            rows, temperature=rng.choice([0.0, 0.7, 1.0], rows), seed=np.arange(rows), position=5,
            top_k=np.where(np.arange(rows) % 64 == 5, 3, 0), want_logprob=np.arange(rows) % 64 == 9,
        ),
    }  # fmt: skip
    tokens, logprobs = reference.sample(**problem)
    result = device.sample(problem, backend)
    np.testing.assert_array_equal(result.tokens.cpu().numpy(), tokens)
    np.testing.assert_array_equal(result.logprobs.cpu().numpy(), logprobs)


@pytest.mark.parametrize(("backend", "top_p"), [("torch", 0.9), ("triton", 1.0)])
def test_draws_follow_the_masked_softmax(backend: str, top_p: float) -> None:
    """Chi-square against the exact distribution of one row, drawn at many positions. The interpreter takes few."""
    rng = np.random.default_rng(11)
    vocabulary, draws = 70, 100 if backend == "triton" and DEVICE == "cpu" else 6000
    logits = (rng.normal(size=(1, vocabulary)) * 1.5).astype(np.float32)
    allowed = sorted(rng.choice(vocabulary, 25, replace=False).tolist())
    problem = {
        "logits": np.repeat(logits, draws, axis=0),
        "vocabulary": vocabulary,
        "pool": tables(np.zeros((0, vocabulary), np.bool_), [allowed]),
        "mask_ids": np.full(draws, LIST, np.int32),
        "end_allowed": np.zeros(draws, np.uint32),
        "end_sets": EndSets.same(draws),
        "rows": np.arange(draws),
        "parameters": SamplingParameters.build(draws, seed=99, position=np.arange(draws), top_p=top_p),
    }
    tokens = device.sample(problem, backend).tokens.cpu().numpy()
    x = logits[0, allowed].astype(np.float64)
    p = np.exp(x - x.max())
    p /= p.sum()
    order = np.argsort(-p)
    kept = np.zeros(p.size, np.bool_)
    kept[order[np.cumsum(p[order]) - p[order] < top_p]] = True
    expected = p[kept] / p[kept].sum() * draws
    counts = np.bincount(tokens, minlength=vocabulary)[allowed]
    assert counts[kept].sum() == draws
    rare = expected < 5
    observed = np.append(counts[kept][~rare], counts[kept][rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    wanted, observed = wanted[wanted > 0], observed[wanted > 0]
    statistic, freedom = float(((observed - wanted) ** 2 / wanted).sum()), max(wanted.size - 1, 1)
    normal = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / np.sqrt(2 / (9 * freedom))
    assert normal < 3.7


@pytest.mark.parametrize("backend", ["torch", "triton"])
@few
@given(st.data())
def test_candidates(backend: str, data: Any) -> None:
    problem = data.draw(problems(data.draw(st.sampled_from(["float32", "bits"]))))
    vocabulary, parameters, most = problem["vocabulary"], problem["parameters"], data.draw(st.sampled_from([1, 3, 16]))
    status = device.statuses(data.draw, len(problem["mask_ids"]))
    chosen = data.draw(st.sampled_from([None, 0.0, 0.4]))
    allowed = np.ones(vocabulary, np.bool_)
    if chosen is not None:
        allowed = np.random.default_rng(data.draw(st.integers(0, 99))).random(vocabulary) < chosen
    possible = None if chosen is None else pack(allowed[None, :])[0]
    found, sampled = device.look_ahead(problem, backend, status, possible, most)
    host = found.to_host(sampled.cpu().numpy(), parameters)
    np.testing.assert_array_equal(sampled.cpu().numpy(), np.where(status == PENDING, -1, 7))
    for i in range(len(status)):
        if status[i] != PENDING or parameters.want_logprob[i]:
            assert host.count[i] == (-1 if status[i] != PENDING else 0)
            continue
        wanted = allowed.copy()
        wanted[problem["end_sets"].tokens[problem["end_sets"].start[i] : problem["end_sets"].start[i + 1]]] = True
        temperature = float(parameters.temperature[i])
        expected = reference.candidates_of(
            problem["logits"][problem["rows"][i]],
            wanted,
            temperature,
            int(parameters.seed[i]),
            int(parameters.position[i]),
            most,
        )
        n = len(expected.tokens)
        assert host.count[i] == n
        np.testing.assert_array_equal(host.tokens[i, :n], expected.tokens)
        np.testing.assert_array_equal(host.x[i, :n], expected.x)
        if n == 0 or temperature < 2.0**-20:
            continue
        if parameters.top_k[i] > 0 or parameters.top_p[i] < 1 or parameters.min_p[i] > 0:
            np.testing.assert_array_equal(host.rank[i, :n], expected.rank)
            assert host.largest[i] == np.float32(expected.largest)
        if parameters.top_p[i] < 1:
            np.testing.assert_array_equal(host.weight[i, :n], expected.weight)
            np.testing.assert_array_equal(host.above[i, :n], expected.above)
            assert host.total[i] == expected.total
            assert host.possible[i] == wanted.sum()


@pytest.mark.parametrize("backend", ["torch", "triton"])
@few
@given(problem=problems())
def test_apply_masks(backend: str, problem: dict[str, Any]) -> None:
    logits = strided = tensor(problem["logits"])
    expected = logits.clone()
    vocabulary = problem["vocabulary"]
    for i, row in enumerate(problem["rows"]):
        ends = problem["end_sets"].tokens[problem["end_sets"].start[i] : problem["end_sets"].start[i + 1]]
        legal = reference.legal_tokens(
            int(problem["mask_ids"][i]), problem["pool"], int(problem["end_allowed"][i]), ends, vocabulary
        )
        whole = np.zeros(logits.shape[1], np.bool_)
        whole[:vocabulary] = legal
        expected[row] = expected[row].masked_fill(~tensor(whole), float("-inf"))
    strided = device.strided(logits, 3)
    sampler = DeviceSampler(vocabulary, len(problem["rows"]), DEVICE, backend=backend, tile=128)
    sampler.apply_masks(
        strided, DeviceTables.of(problem["pool"], DEVICE), tensor(problem["mask_ids"]), **device.row_arguments(problem)
    )
    integer = torch.int32 if logits.dtype == torch.float32 else torch.int16
    assert torch.equal(strided.contiguous().view(integer), expected.view(integer))


@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_rows_without_a_legal_token_are_reported(backend: str) -> None:
    logits = tensor(np.array([[1, 2, 3], [np.nan, -np.inf, np.nan]], np.float32))
    pool = DeviceTables.of(tables(np.array([[False, False, False]]), [[]]), DEVICE)
    ids = np.array([EMPTY, 0, LIST, UNCONSTRAINED, SINGLE | 999, 9, LIST | 9], np.int32)
    rows = tensor(np.array([0, 0, 0, 1, 0, 0, 0]))
    sampler = DeviceSampler(3, len(ids), DEVICE, backend=backend, tile=128, capacity=8)
    for temperature in (0, 1):
        parameters = SamplingParameters.build(len(ids), temperature=temperature, top_p=0.9, want_logprob=True)
        out = DeviceResult.empty(len(ids), DEVICE)
        with np.errstate(all="ignore"):
            result = sampler.sample(
                logits, tensor(ids), pool, parameters=DeviceParameters.of(parameters, DEVICE), rows=rows, out=out
            )
        assert result is out
        assert result.tokens.tolist() == [-1] * len(ids)
        assert torch.isnan(result.logprobs).all()


def test_the_bound_on_noise_is_above_it() -> None:
    """And close, where noise is large: the number of tokens that are scored exactly rests on that."""
    size = 1 << 15
    rng = np.random.default_rng(1)
    words = rng.integers(0, 2**32, size, np.uint32)
    # All that is near a power of two, where the bound is closest.
    near = (np.uint64(1) << np.arange(32, dtype=np.uint64))[:, None] + np.arange(-40, 41).astype(np.uint64)
    words[: near.size] = near.reshape(-1).astype(np.uint32)
    noises, bounds = torch.zeros(size, device=DEVICE), torch.zeros(size, device=DEVICE)
    both[(1,)](tensor(words), noises, bounds, size, enable_fp_fusion=False)
    exact = reference.gumbel(words)
    np.testing.assert_array_equal(noises.cpu().numpy(), exact)
    above = bounds.cpu().numpy() - exact
    assert above.min() > 0
    assert above[exact > 3].max() < 0.09
    assert bounds.max() < noise.NOISE_MAX + 1e-3


@settings(max_examples=20)
@given(st.data())
def test_the_public_functions_take_device_tensors(data: Any) -> None:
    """`sample` and `apply_masks` give the same for logits on a device (here: taken for such) as on the host."""
    problem = data.draw(problems("float32"))
    status = device.statuses(data.draw, len(problem["mask_ids"]))
    possible = pack(np.random.default_rng(len(status)).random((1, problem["vocabulary"])) < 0.5)[0]
    logits = problem.pop("logits")
    expected = stepmask.sample(logits, **problem, status=status, possible=possible)
    on_device = tensor(logits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stepmask.masks.sampling._on_device", lambda logits: isinstance(logits, torch.Tensor))
        if DEVICE == "cpu":
            patch.setattr("stepmask.masks.device.sampler.triton_is_usable", lambda device: False)
        found = stepmask.sample(on_device, **problem, status=status, possible=possible)
        np.testing.assert_array_equal(found.tokens, expected.tokens)
        np.testing.assert_array_equal(found.logprobs, expected.logprobs)
        assert found.candidates is not None and expected.candidates is not None
        assert found.candidates.sampled is found.tokens
        for i in range(len(status)):
            n = found.candidates.count[i]
            assert n == expected.candidates.count[i]
            np.testing.assert_array_equal(
                found.candidates.tokens[i, : max(n, 0)], expected.candidates.tokens[i, : max(n, 0)]
            )
        del problem["parameters"]
        stepmask.apply_masks(on_device, **problem)
        with pytest.raises(ValueError, match="row numbers"):
            stepmask.apply_masks(on_device, **{**problem, "rows": problem["rows"] + 99})
    stepmask.apply_masks(logits, **problem)
    np.testing.assert_array_equal(on_device.cpu().numpy(), logits)


def test_bad_arguments_are_refused() -> None:
    sampler = DeviceSampler(40, 2, DEVICE, backend="torch")
    pool = DeviceTables.of(MaskTables.empty(2), DEVICE)
    ids = torch.full((1,), -1, dtype=torch.int32, device=DEVICE)
    one = DeviceParameters.of(SamplingParameters.build(1), DEVICE)
    logits = torch.zeros(2, 40, device=DEVICE)
    short = MaskTables(np.zeros((1, 1), np.uint32), *[np.zeros(0, np.int32)] * 3)
    for message, arguments in (
        ("2 dimensions", (logits[0], ids, pool)),
        ("39 columns for 40", (logits[:, :39], ids, pool)),
        ("made for 2", (logits, ids.repeat(3), pool)),
        ("1 words, 2 needed", (logits, ids, DeviceTables.of(short, DEVICE))),
        ("parameters of 1 rows for 2", (logits, ids.repeat(2), pool)),
    ):
        with pytest.raises(ValueError, match=message):
            sampler.sample(*arguments, parameters=one)
    with pytest.raises(TypeError, match="float64"):
        DeviceSampler(40, 2, DEVICE, backend="triton").sample(logits.double(), ids, pool, parameters=one)
    with pytest.raises(ValueError, match="there is room for 1"):
        DeviceEnds.of(EndSets.same(1, [1, 2]), DEVICE, most=1)
    for wrong in ({"backend": "nonsense"}, {"tile": 100}, {"capacity": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            DeviceSampler(40, 2, DEVICE, **wrong)
