"""Counter-based noise, exp and log that every back end reproduces bit for bit.

* Only IEEE single operations in a written order: no library exp or log, no fused multiply-add, no
  reassociation. A GPU version must switch contraction off.
* Random words are Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) with the
  request's seed as key and (position low, position high, token // 4, 0) as counter; token t takes
  word t % 4. A token's noise thus depends on seed, position and token alone: not on the batch, the mask or the
  order of evaluation.
* Range reductions and coefficients of exp and log are those of the Cephes library (S. Moshier), single precision.
* Probabilities are integers: `weight` of a scaled logit is exp(x - maximum) * 2**WEIGHT_BITS, rounded. Sums of them
  are exact, so the same in any order.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from .._numba import helper

#: The row's most likely legal token weighs 2**WEIGHT_BITS; below exp(-28.4) of that a weight is 0.
WEIGHT_BITS = 40
#: Largest vocabulary: its weights sum to at most 2**62.
MAX_VOCABULARY = 1 << 22
#: No noise exceeds this: the largest is -log(2**-33) = 22.874.
NOISE_MAX = np.float32(22.88)
#: Largest finite float32. Scaled logits are clamped to it, so scores are never infinite or NaN.
FLOAT_MAX = np.float32(3.4028235e38)

PHILOX_M0 = np.uint64(0xD2511F53)
PHILOX_M1 = np.uint64(0xCD9E8D57)
PHILOX_W0 = np.uint64(0x9E3779B9)
PHILOX_W1 = np.uint64(0xBB67AE85)
LOW_32 = np.uint64(0xFFFFFFFF)
HIGH_32 = np.uint64(32)

LOG2_E = np.float32(1.44269504088896341)
LN2_HIGH = np.float32(0.693359375)
LN2_LOW = np.float32(-2.12194440e-4)
#: Adding and subtracting it rounds a float32 below 2**22 to the nearest integer.
ROUND_MAGIC = np.float32(12582912.0)
EXP_LOWEST = np.float32(-87.0)
EXP_0 = np.float32(1.9875691500e-4)
EXP_1 = np.float32(1.3981999507e-3)
EXP_2 = np.float32(8.3334519073e-3)
EXP_3 = np.float32(4.1665795894e-2)
EXP_4 = np.float32(1.6666665459e-1)
EXP_5 = np.float32(5.0000001201e-1)
LOG_0 = np.float32(7.0376836292e-2)
LOG_1 = np.float32(-1.1514610310e-1)
LOG_2 = np.float32(1.1676998740e-1)
LOG_3 = np.float32(-1.2420140846e-1)
LOG_4 = np.float32(1.4249322787e-1)
LOG_5 = np.float32(-1.6668057665e-1)
LOG_6 = np.float32(2.0000714765e-1)
LOG_7 = np.float32(-2.4999993993e-1)
LOG_8 = np.float32(3.3333331174e-1)
#: Bits of sqrt(1/2) in float32 and the offset that moves the binade to [sqrt(1/2), sqrt(2)).
SQRT_HALF_BITS = np.int32(0x3F3504F3)
LOG_OFFSET = np.int32(0x3F800000 - 0x3F3504F3)
TWO_POW_MINUS_32 = np.float32(2.0**-32)
#: Below this random word (a quarter), log(1 - v) is taken from v itself, which keeps the tail's resolution.
SMALL_WORD = np.uint32(0x40000000)

ONE = np.float32(1.0)
HALF = np.float32(0.5)
_WEIGHT_SCALE = np.float32(2.0**WEIGHT_BITS)
_LN2_HIGH_64 = 6.93147180369123816490e-01
_LN2_LOW_64 = 1.90821492927058770002e-10


@numba.njit(inline="always", error_model="numpy")
def philox(
    counter_0: int, counter_1: int, counter_2: int, counter_3: int, key_0: int, key_1: int
) -> tuple[int, int, int, int]:
    """Philox4x32-10: four uint32 words (in uint64) of a counter of four and a key of two uint32 words."""
    # In uint64 throughout and inlined before compilation: so a loop around this becomes vector code (8 times faster).
    c0 = np.uint64(counter_0)
    c1 = np.uint64(counter_1)
    c2 = np.uint64(counter_2)
    c3 = np.uint64(counter_3)
    k0 = np.uint64(key_0)
    k1 = np.uint64(key_1)
    for _ in range(10):
        product_0 = (c0 & LOW_32) * PHILOX_M0
        product_1 = (c2 & LOW_32) * PHILOX_M1
        c0 = (product_1 >> HIGH_32) ^ c1 ^ k0
        c2 = (product_0 >> HIGH_32) ^ c3 ^ k1
        c1 = product_1 & LOW_32
        c3 = product_0 & LOW_32
        k0 = (k0 + PHILOX_W0) & LOW_32
        k1 = (k1 + PHILOX_W1) & LOW_32
    return c0, c1, c2, c3


@helper
def random_word(seed: int, position: int, token: int) -> Any:
    """The uint32 of one token."""
    place = np.uint64(position)
    key = np.uint64(seed)
    a, b, c, d = philox(place & LOW_32, place >> HIGH_32, token >> 2, 0, key & LOW_32, key >> HIGH_32)
    which = token & 3
    if which == 0:
        return np.uint32(a)
    if which == 1:
        return np.uint32(b)
    if which == 2:
        return np.uint32(c)
    return np.uint32(d)


@helper
def random_block(seed: int, position: int, block: int, words: NDArray[Any]) -> None:
    """The words of tokens 32 * block + 4 * g + w, for g below 8 and w below 4, into words[8 * w + g]."""
    place = np.uint64(position)
    key = np.uint64(seed)
    for group in range(8):
        a, b, c, d = philox(
            place & LOW_32,
            place >> HIGH_32,
            np.uint64(block << 3) + np.uint64(group),
            0,
            key & LOW_32,
            key >> HIGH_32,
        )
        words[group] = a
        words[8 + group] = b
        words[16 + group] = c
        words[24 + group] = d


@helper
def _log_near_one(f: float) -> Any:
    """The part of log(1 + f) beyond f itself, for f in [sqrt(1/2) - 1, sqrt(2) - 1], without its square term."""
    p = LOG_0
    p = p * f + LOG_1
    p = p * f + LOG_2
    p = p * f + LOG_3
    p = p * f + LOG_4
    p = p * f + LOG_5
    p = p * f + LOG_6
    p = p * f + LOG_7
    p = p * f + LOG_8
    return (f * (f * f)) * p


@helper
def log32(x: float) -> Any:
    """Natural logarithm of a positive normal float32, in float32."""
    bits = np.int32(np.float32(x).view(np.int32) + LOG_OFFSET)
    exponent = np.float32(np.int32((bits >> 23) - 127))
    f = np.int32((bits & 0x007FFFFF) + SQRT_HALF_BITS).view(np.float32) - ONE
    y = _log_near_one(f)
    y = y + exponent * LN2_LOW
    y = y - HALF * (f * f)
    return (f + y) + exponent * LN2_HIGH


@helper
def gumbel(word: int) -> Any:
    """Standard Gumbel noise of a random uint32: -log(-log(1 - v)) with v = (word + 1/2) / 2**32, in float32.

    v is never 0 or 1. Large noise comes from small v, where float32 is finest, so the upper tail is
    resolved down to 2**-33.
    """
    if np.uint32(word) < SMALL_WORD:
        f = -((np.float32(np.uint32(word)) + HALF) * TWO_POW_MINUS_32)
        y = _log_near_one(f)
        y = y - HALF * (f * f)
        return -log32(-(f + y))
    return -log32(-log32((np.float32(np.uint32(~np.uint32(word))) + HALF) * TWO_POW_MINUS_32))


@helper
def exp32(x: float) -> Any:
    """exp of a float32 in [-87, 0], in float32; lower values count as -87."""
    y = max(np.float32(x), EXP_LOWEST)
    n = (y * LOG2_E + ROUND_MAGIC) - ROUND_MAGIC
    r = (y - n * LN2_HIGH) - n * LN2_LOW
    p = EXP_0
    p = p * r + EXP_1
    p = p * r + EXP_2
    p = p * r + EXP_3
    p = p * r + EXP_4
    p = p * r + EXP_5
    p = (p * (r * r) + r) + ONE
    return p * np.int32((np.int32(n) + 127) << 23).view(np.float32)


@helper
def weight(x: float) -> Any:
    """exp(x) * 2**WEIGHT_BITS rounded to int64, for x <= 0 a scaled logit less the row's maximum."""
    return np.int64(exp32(x) * _WEIGHT_SCALE + HALF)


@helper
def log64(x: float) -> float:
    """Natural logarithm of a float64 >= 1 (log-probabilities: once a row), within 2 units in the last place."""
    exponent = 0.0
    m = x
    while m >= 65536.0:
        m = m * 0.0000152587890625
        exponent += 16.0
    while m >= 1.4142135623730951:
        m = m * 0.5
        exponent += 1.0
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    p = 0.0
    for k in range(11, -1, -1):
        p = p * z + 1.0 / (2.0 * k + 1.0)
    return exponent * _LN2_HIGH_64 + (2.0 * s * p + exponent * _LN2_LOW_64)
