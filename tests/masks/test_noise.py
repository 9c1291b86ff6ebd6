"""Noise, exp and log of the sampling kernels against their NumPy reference and against what they stand for."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
import sampling_reference as reference

from stepmask.masks import noise


@numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
def run_noise(words: Any, x: Any, y: Any, z: Any) -> Any:
    gumbels = np.empty(words.size, np.float32)
    for i in range(words.size):
        gumbels[i] = noise.gumbel(words[i])
    exps = np.empty(x.size, np.float32)
    weights = np.empty(x.size, np.int64)
    for i in range(x.size):
        exps[i] = noise.exp32(x[i])
        weights[i] = noise.weight(x[i])
    logs = np.empty(y.size, np.float32)
    for i in range(y.size):
        logs[i] = noise.log32(y[i])
    logs64 = np.empty(z.size)
    for i in range(z.size):
        logs64[i] = noise.log64(z[i])
    return gumbels, exps, weights, logs, logs64


@numba.njit  # type: ignore[untyped-decorator]
def run_philox(counter: Any, key: Any) -> Any:
    return noise.philox(counter[0], counter[1], counter[2], counter[3], key[0], key[1])


PHILOX_ANSWERS = [  # from the known-answer tests of Random123
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@pytest.mark.parametrize(("counter", "key", "answer"), PHILOX_ANSWERS)
def test_philox_known_answers(counter: str, key: str, answer: str) -> None:
    c, k, a = ([int(word, 16) for word in text.split()] for text in (counter, key, answer))
    assert list(run_philox(np.array(c, np.uint32), np.array(k, np.uint32))) == a
    assert [int(word) for word in reference.philox(c, (k[0], k[1]))] == a


def test_noise_is_the_reference_and_accurate() -> None:
    rng = np.random.default_rng(1)
    edges = np.array([0, 1, 2, 2**24 - 1, 2**30 - 1, 2**30, 2**31, 2**32 - 2, 2**32 - 1], np.uint32)
    words = np.concatenate([edges, rng.integers(0, 2**32, 50_000, np.uint32), np.arange(2000, dtype=np.uint32)])
    x = np.concatenate([-np.float32([0, 1e-30, 27.5, 28.4, 28.5, 87, 1e9, np.inf]), -rng.exponential(9, 50_000)])
    x = x.astype(np.float32)
    y = np.exp(rng.uniform(-80, 80, 50_000)).astype(np.float32)
    z = 1 + rng.exponential(1000, 5000)
    gumbels, exps, weights, logs, logs64 = run_noise(words, x, y, z)
    np.testing.assert_array_equal(gumbels, reference.gumbel(words))
    np.testing.assert_array_equal(exps, reference.exp32(x))
    np.testing.assert_array_equal(weights, reference.weights(x))
    np.testing.assert_array_equal(logs, reference.log32(y))

    v = (words.astype(np.float64) + 0.5) / 2**32
    exact = -np.log(-np.log1p(-v))
    assert np.all(np.abs(gumbels - exact) <= 3e-7 * np.maximum(1, np.abs(exact)))
    assert gumbels.max() < noise.NOISE_MAX
    assert np.all(np.isfinite(gumbels))
    inside = x >= -87
    assert np.all(np.abs(exps[inside] / np.exp(x[inside].astype(np.float64)) - 1) < 1.5e-7)
    assert np.all(np.abs(weights - np.exp(x.astype(np.float64)) * 2.0**noise.WEIGHT_BITS) <= 0.51 + weights * 2e-7)
    assert weights[0] == 2**noise.WEIGHT_BITS
    assert weights[x < -28.5].max() == 0
    exact_log = np.log(y.astype(np.float64))
    assert np.all(np.abs(logs - exact_log) <= 1.5e-7 * np.maximum(np.abs(exact_log), 0.1))
    assert np.all(np.abs(logs64 - np.log(z)) <= 4.5e-16 * np.maximum(1, np.log(z)))


def test_machine_code_has_no_fused_multiply_add() -> None:
    """Of noise, exp and log; kernels loaded from the on-disk cache cannot be inspected."""
    one = np.ones(1, np.float32)
    run_noise(np.ones(1, np.uint32), -one, one, np.ones(1))
    (text,) = run_noise.inspect_asm().values()
    assert "mul" in text
    for fused in ("fmadd", "fmsub", "fmla", "fmls"):
        assert fused not in text


def test_noise_is_independent_between_seeds_positions_and_tokens() -> None:
    """Pairs of draws with neighbouring keys are uncorrelated."""
    tokens = np.arange(4096)
    base = reference.gumbel(reference.random_words(5, 9, tokens))
    for other in (
        reference.random_words(6, 9, tokens),
        reference.random_words(5, 10, tokens),
        reference.random_words(5 + 2**32, 9, tokens),
        reference.random_words(5, 9 + 2**32, tokens),
        np.roll(reference.random_words(5, 9, tokens), 1),
    ):
        assert abs(np.corrcoef(base, reference.gumbel(other))[0, 1]) < 4 / np.sqrt(tokens.size)
    assert abs(base.mean() - np.euler_gamma) < 0.1
