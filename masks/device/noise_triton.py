"""`masks.noise` for Triton: the same IEEE single operations in the same order.

Kernels must be compiled with `enable_fp_fusion=False`; then each operation here is one rounding, on the device as in
Triton's interpreter. `masks.noise` says what each function means and where it is from.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from .. import noise

WEIGHT_BITS = tl.constexpr(noise.WEIGHT_BITS)
WEIGHT_SCALE = tl.constexpr(2.0**noise.WEIGHT_BITS)
FLOAT_MAX = tl.constexpr(float(noise.FLOAT_MAX))
LOG2_E = tl.constexpr(float(noise.LOG2_E))
LN2_HIGH = tl.constexpr(float(noise.LN2_HIGH))
LN2_LOW = tl.constexpr(float(noise.LN2_LOW))
ROUND_MAGIC = tl.constexpr(float(noise.ROUND_MAGIC))
EXP_LOWEST = tl.constexpr(float(noise.EXP_LOWEST))
EXP_0 = tl.constexpr(float(noise.EXP_0))
EXP_1 = tl.constexpr(float(noise.EXP_1))
EXP_2 = tl.constexpr(float(noise.EXP_2))
EXP_3 = tl.constexpr(float(noise.EXP_3))
EXP_4 = tl.constexpr(float(noise.EXP_4))
EXP_5 = tl.constexpr(float(noise.EXP_5))
LOG_0 = tl.constexpr(float(noise.LOG_0))
LOG_1 = tl.constexpr(float(noise.LOG_1))
LOG_2 = tl.constexpr(float(noise.LOG_2))
LOG_3 = tl.constexpr(float(noise.LOG_3))
LOG_4 = tl.constexpr(float(noise.LOG_4))
LOG_5 = tl.constexpr(float(noise.LOG_5))
LOG_6 = tl.constexpr(float(noise.LOG_6))
LOG_7 = tl.constexpr(float(noise.LOG_7))
LOG_8 = tl.constexpr(float(noise.LOG_8))
SQRT_HALF_BITS = tl.constexpr(int(noise.SQRT_HALF_BITS))
LOG_OFFSET = tl.constexpr(int(noise.LOG_OFFSET))
TWO_POW_MINUS_32 = tl.constexpr(2.0**-32)
SMALL_WORD = tl.constexpr(int(noise.SMALL_WORD))
PHILOX_M0 = tl.constexpr(int(noise.PHILOX_M0))
PHILOX_M1 = tl.constexpr(int(noise.PHILOX_M1))
PHILOX_W0 = tl.constexpr(int(noise.PHILOX_W0))
PHILOX_W1 = tl.constexpr(int(noise.PHILOX_W1))
#: ln(2) / 2**23, rounded up: the natural logarithm of one step in a float32's bits is at most this near a power of two.
LN2_STEP = tl.constexpr(8.262960e-08)
#: What `gumbel_bound` is above by, for the roundings of `gumbel` and of its own.
BOUND_SLACK = tl.constexpr(1e-4)
LN2_HIGH_64 = tl.constexpr(6.93147180369123816490e-01)
LN2_LOW_64 = tl.constexpr(1.90821492927058770002e-10)


@triton.jit
def philox(group, seed, position):
    """The four uint32 words of the tokens 4 * group to 4 * group + 3; `seed` and `position` are int64."""
    c0 = (position & 0xFFFFFFFF).to(tl.uint32) + tl.zeros_like(group).to(tl.uint32)
    c1 = ((position >> 32) & 0xFFFFFFFF).to(tl.uint32) + tl.zeros_like(group).to(tl.uint32)
    c2 = group.to(tl.uint32)
    c3 = tl.zeros_like(c2)
    k0 = (seed & 0xFFFFFFFF).to(tl.uint32)
    k1 = ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32)
    m0 = tl.full((), PHILOX_M0, tl.uint32)
    m1 = tl.full((), PHILOX_M1, tl.uint32)
    w0 = tl.full((), PHILOX_W0, tl.uint32)
    w1 = tl.full((), PHILOX_W1, tl.uint32)
    for _ in tl.static_range(10):
        high_0 = tl.umulhi(c0, m0)
        high_1 = tl.umulhi(c2, m1)
        low_0 = c0 * m0
        low_1 = c2 * m1
        c0 = high_1 ^ c1 ^ k0
        c2 = high_0 ^ c3 ^ k1
        c1 = low_1
        c3 = low_0
        k0 = k0 + w0
        k1 = k1 + w1
    return c0, c1, c2, c3


@triton.jit
def random_words(token, seed, position):
    """The uint32 of each token, whatever their order."""
    a, b, c, d = philox(token >> 2, seed, position)
    which = token & 3
    return tl.where(which < 2, tl.where(which == 0, a, b), tl.where(which == 2, c, d))


@triton.jit
def random_tile(first, seed, position, GROUPS: tl.constexpr):
    """The uint32 of the tokens from `first` on, a tile of GROUPS rows of 8. `first` is a multiple of 4: there is one
    Philox for four tokens."""
    group = (first >> 2) + 2 * tl.arange(0, GROUPS)[:, None] + tl.arange(0, 2)[None, :]
    a, b, c, d = philox(group, seed, position)
    return tl.interleave(tl.interleave(a, c), tl.interleave(b, d))


@triton.jit
def _log_near_one(f):
    p = f * LOG_0 + LOG_1
    p = p * f + LOG_2
    p = p * f + LOG_3
    p = p * f + LOG_4
    p = p * f + LOG_5
    p = p * f + LOG_6
    p = p * f + LOG_7
    p = p * f + LOG_8
    return (f * (f * f)) * p


@triton.jit
def log32(x):
    bits = x.to(tl.int32, bitcast=True) + LOG_OFFSET
    exponent = ((bits >> 23) - 127).to(tl.float32)
    f = ((bits & 0x007FFFFF) + SQRT_HALF_BITS).to(tl.float32, bitcast=True) - 1.0
    y = _log_near_one(f)
    y = y + exponent * LN2_LOW
    y = y - 0.5 * (f * f)
    return (f + y) + exponent * LN2_HIGH


@triton.jit
def gumbel(word):
    f = -((word.to(tl.float32) + 0.5) * TWO_POW_MINUS_32)
    y = _log_near_one(f)
    y = y - 0.5 * (f * f)
    small = f + y
    large = log32(((word ^ 0xFFFFFFFF).to(tl.float32) + 0.5) * TWO_POW_MINUS_32)
    return -log32(-tl.where(word < SMALL_WORD, small, large))


@triton.jit
def gumbel_bound(word):
    """At least `gumbel(word)`, by some seven operations, and at most 0.07 above it where it is large.

    -log(-log(1 - v)) <= -log(v), and a straight line between powers of two lies below log(v).
    """
    v = (word.to(tl.float32) + 0.5) * TWO_POW_MINUS_32
    steps = (0x3F800000 - v.to(tl.int32, bitcast=True)).to(tl.float32)
    return steps * LN2_STEP + BOUND_SLACK


@triton.jit
def exp32(x):
    y = tl.maximum(x, EXP_LOWEST)
    n = (y * LOG2_E + ROUND_MAGIC) - ROUND_MAGIC
    r = (y - n * LN2_HIGH) - n * LN2_LOW
    p = r * EXP_0 + EXP_1
    p = p * r + EXP_2
    p = p * r + EXP_3
    p = p * r + EXP_4
    p = p * r + EXP_5
    p = (p * (r * r) + r) + 1.0
    return p * ((n.to(tl.int32) + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def weight(x):
    """int64: exp(x) * 2**WEIGHT_BITS, rounded."""
    return (exp32(x) * WEIGHT_SCALE + 0.5).to(tl.int64)


@triton.jit
def log64(x):
    """Of a float64 >= 1."""
    bits = x.to(tl.int64, bitcast=True)
    mantissa = ((bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000).to(tl.float64, bitcast=True)
    power = (bits >> 52) - 1023
    # As the loop of `masks.noise` leaves it: below sqrt(2), halved once more where the mantissa is above that.
    above = mantissa >= 1.4142135623730951
    m = tl.where(above, mantissa * 0.5, mantissa)
    exponent = (power + above.to(tl.int64)).to(tl.float64)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    p = z * 0.0
    for k in tl.static_range(11, -1, -1):
        p = p * z + 1.0 / (2.0 * k + 1.0)
    return exponent * LN2_HIGH_64 + (2.0 * s * p + exponent * LN2_LOW_64)
