"""`masks.noise` in plain torch operations, one rounding each, in the same order."""

from __future__ import annotations

import torch

from .. import noise

_LOW = 0xFFFFFFFF
_LOG = [float(getattr(noise, f"LOG_{i}")) for i in range(9)]
_EXP = [float(getattr(noise, f"EXP_{i}")) for i in range(6)]
_LN2_HIGH = float(noise.LN2_HIGH)
_LN2_LOW = float(noise.LN2_LOW)
_SQRT_HALF_BITS = int(noise.SQRT_HALF_BITS)
_LOG_OFFSET = int(noise.LOG_OFFSET)
_TWO_POW_MINUS_32 = 2.0**-32


def _product(a: torch.Tensor, b: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(high, low) 32 bits of products of 32-bit numbers, all in int64, which wraps around."""
    product = a * b
    return (product >> 32) & _LOW, product & _LOW


def random_words(token: torch.Tensor, seed: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """The uint32 (in int64) of each token; all three int64 and broadcast."""
    c3 = torch.zeros_like(token + position + seed)
    c0, c1, c2 = (position & _LOW) + c3, ((position >> 32) & _LOW) + c3, (token >> 2) + c3
    k0, k1 = seed & _LOW, (seed >> 32) & _LOW
    for _ in range(10):
        high_0, low_0 = _product(c0, int(noise.PHILOX_M0))
        high_1, low_1 = _product(c2, int(noise.PHILOX_M1))
        c0, c1, c2, c3 = high_1 ^ c1 ^ k0, low_1, high_0 ^ c3 ^ k1, low_0
        k0 = (k0 + int(noise.PHILOX_W0)) & _LOW
        k1 = (k1 + int(noise.PHILOX_W1)) & _LOW
    which = token & 3
    return torch.where(which < 2, torch.where(which == 0, c0, c1), torch.where(which == 2, c2, c3))


def _polynomial(f: torch.Tensor, coefficients: list[float]) -> torch.Tensor:
    p = f * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        p = p * f + coefficient
    return p


def log32(x: torch.Tensor) -> torch.Tensor:
    """Natural logarithm of positive normal float32."""
    bits = x.view(torch.int32) + _LOG_OFFSET
    exponent = ((bits >> 23) - 127).to(torch.float32)
    f = ((bits & 0x007FFFFF) + _SQRT_HALF_BITS).view(torch.float32) - 1.0
    y = (f * (f * f)) * _polynomial(f, _LOG)
    y = y + exponent * _LN2_LOW
    y = y - (f * f) * 0.5
    return (f + y) + exponent * _LN2_HIGH


def gumbel(word: torch.Tensor) -> torch.Tensor:
    """Standard Gumbel noise of random words (int64), float32."""
    f = -((word.to(torch.float32) + 0.5) * _TWO_POW_MINUS_32)
    y = (f * (f * f)) * _polynomial(f, _LOG)
    small = f + (y - (f * f) * 0.5)
    large = log32(((word ^ _LOW).to(torch.float32) + 0.5) * _TWO_POW_MINUS_32)
    return -log32(-torch.where(word < int(noise.SMALL_WORD), small, large))


def weight(x: torch.Tensor) -> torch.Tensor:
    """int64: exp(x) * 2**WEIGHT_BITS rounded, for float32 x <= 0."""
    y = torch.clamp(x, min=float(noise.EXP_LOWEST))
    magic = float(noise.ROUND_MAGIC)
    n = (y * float(noise.LOG2_E) + magic) - magic
    r = (y - n * _LN2_HIGH) - n * _LN2_LOW
    p = _polynomial(r, _EXP)
    p = (p * (r * r) + r) + 1.0
    e = p * ((n.to(torch.int32) + 127) << 23).view(torch.float32)
    return (e * 2.0**noise.WEIGHT_BITS + 0.5).to(torch.int64)


def log64(x: torch.Tensor) -> torch.Tensor:
    """Natural logarithm of float64 >= 1."""
    bits = x.view(torch.int64)
    mantissa = ((bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000).view(torch.float64)
    above = mantissa >= 1.4142135623730951
    m = torch.where(above, mantissa * 0.5, mantissa)
    exponent = ((bits >> 52) - 1023 + above.to(torch.int64)).to(torch.float64)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    p = z * 0.0
    for k in range(11, -1, -1):
        p = p * z + 1.0 / (2.0 * k + 1.0)
    return exponent * 6.93147180369123816490e-01 + (s * 2.0 * p + exponent * 1.90821492927058770002e-10)
