"""Sampling one token a row under mask ids, and masking logits in place.

The meaning, which every back end keeps token for token:

1. Legal tokens are the mask's, but of the row's end tokens those whose bits in `end_allowed` are set, whatever the mask
   says of them. A logit of NaN or -inf is not legal; +inf counts as the largest finite float32.
2. x = logit * (1 / temperature), in float32. Temperature 0 takes the largest logit, ties to the lowest id.
3. Of the legal tokens in the order (logit descending, id ascending), top-k keeps the first k; of those, top-p
   keeps each token while the probability before it is below `top_p`; of those, min-p keeps the tokens with at least
   `min_p` times the largest probability. Probabilities are the integers of `noise.weight`.
4. The token is the one of the largest x + gumbel(seed, position, token), ties to the lowest id. Logits of +inf
   absorb the noise, so among them the lowest id is taken.

A row without a legal token gives -1. The log-probability is that of the token among all legal ones at the row's
temperature (1 for greedy rows), before truncation.

A row whose mask is not there yet (`status`) is not sampled: it gives -1 and candidates instead (`masks.candidates`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import converted, whole
from .candidates import CANDIDATES, Candidates
from .candidates_numba import candidate_rows_16, candidate_rows_32
from .layout import PENDING
from .noise import MAX_VOCABULARY
from .sampling_numba import apply_rows_16, apply_rows_32, sample_rows_16, sample_rows_32
from .selection_numba import BINS
from .tables import EndSets, MaskTables, end_bits, plain

_MINUS_INFINITY = {"float32": 0xFF800000, "bfloat16": 0xFF80, "float16": 0xFC00}


@dataclass
class SamplingParameters:
    """Parameters of each row, as arrays of one length.

    `temperature` float32: 0 (or below 2**-20) is greedy. `top_k` int32: 0 is off. `top_p` float32: 1 is off. `min_p`
    float32: 0 is off. `seed` uint64 and `position` int64 key the noise. `want_logprob` uint8.
    """

    temperature: NDArray[np.float32]
    top_k: NDArray[np.int32]
    top_p: NDArray[np.float32]
    min_p: NDArray[np.float32]
    seed: NDArray[np.uint64]
    position: NDArray[np.int64]
    want_logprob: NDArray[np.uint8]

    def __post_init__(self) -> None:
        self.temperature = plain(self.temperature, np.float32, 1)
        self.top_k = plain(self.top_k, np.int32, 1)
        self.top_p = plain(self.top_p, np.float32, 1)
        self.min_p = plain(self.min_p, np.float32, 1)
        self.seed = plain(self.seed, np.uint64, 1)
        self.position = plain(self.position, np.int64, 1)
        self.want_logprob = plain(self.want_logprob, np.uint8, 1)
        sizes = {len(getattr(self, name)) for name in self.__dataclass_fields__}
        if len(sizes) != 1:
            raise ValueError("sampling parameters differ in length")

    @classmethod
    def build(
        cls,
        rows: int,
        *,
        temperature: ArrayLike = 1.0,
        top_k: ArrayLike = 0,
        top_p: ArrayLike = 1.0,
        min_p: ArrayLike = 0.0,
        seed: ArrayLike = 0,
        position: ArrayLike = 0,
        want_logprob: ArrayLike = False,
    ) -> SamplingParameters:
        """Parameters for `rows` rows, each a number for all rows or a sequence of one a row."""

        if whole(rows, "rows") < 0:
            raise ValueError(f"rows must be at least 0, not {rows}")

        def full(what: str, value: ArrayLike, dtype: type[np.generic]) -> NDArray[Any]:
            array = converted(value, dtype, what)
            if array.ndim and array.shape not in ((rows,), (1,)):
                raise ValueError(f"{what}: a number, or one for each of {rows} rows, not of shape {array.shape}")
            return np.array(np.broadcast_to(array, (rows,)))

        return cls(
            temperature=full("temperature", temperature, np.float32),
            top_k=full("top_k", top_k, np.int32),
            top_p=full("top_p", top_p, np.float32),
            min_p=full("min_p", min_p, np.float32),
            seed=full("seed", seed, np.uint64),
            position=full("position", position, np.int64),
            want_logprob=full("want_logprob", want_logprob, np.uint8),
        )

    def check(self) -> None:
        """Raise `ValueError` for a value out of range. The kernel is safe for any, so this need not run each step."""
        if not np.all(np.isfinite(self.temperature) & (self.temperature >= 0)):
            raise ValueError("temperature must be finite and at least 0")
        if np.any(self.top_k < 0):
            raise ValueError("top_k must be at least 1, or 0 for off")
        if not np.all((self.top_p > 0) & (self.top_p <= 1)):
            raise ValueError("top_p must be above 0 and at most 1")
        if not np.all((self.min_p >= 0) & (self.min_p <= 1)):
            raise ValueError("min_p must be from 0 to 1")


@dataclass(frozen=True)
class SampleResult:
    """`tokens` int32[rows], -1 where nothing is legal; `logprobs` float32[rows], NaN where not asked for.

    `candidates`: of the rows that wait for their masks, where the call said which do; valid until the sampler's next
    call. ``tokens, candidates = sample(...)`` unpacks those two.
    """

    tokens: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    candidates: Candidates | None = None

    def __iter__(self) -> Iterator[Any]:
        return iter((self.tokens, self.candidates))

    @classmethod
    def empty(cls, rows: int) -> SampleResult:
        """Room for the results of `rows` rows."""
        return cls(np.zeros(rows, np.int32), np.zeros(rows, np.float32))


class _Bits:
    """Logits as one flat array of their bits: row r starts at `origin + r * stride` (in elements)."""

    __slots__ = ("bits", "format", "origin", "rows", "stride", "width")

    def __init__(self, logits: Any, write: bool) -> None:
        array, self.format = _array_of(logits)
        if array.ndim != 2:
            raise ValueError(f"logits must have 2 dimensions, not {array.ndim}")
        self.rows, self.width = array.shape
        if self.width > 1 and array.strides[1] != array.itemsize:
            raise ValueError("the last dimension of logits must be contiguous")
        if write and not array.flags.writeable:
            raise ValueError("logits are read-only")
        unsigned = np.uint32 if array.itemsize == 4 else np.uint16
        if array.flags.c_contiguous and array.flags.writeable:
            self.origin, self.stride = 0, self.width
            self.bits = array.reshape(-1).view(unsigned)
            return
        step, remainder = divmod(array.strides[0], array.itemsize)
        if remainder:
            raise ValueError("the row stride of logits must be a whole number of elements")
        if self.rows <= 1:
            step = 0
        self.stride = step
        self.origin = max(0, -step * (self.rows - 1))
        length = abs(step) * (self.rows - 1) + self.width if array.size else 0
        self.bits = np.asarray(_Memory(array, self.origin * array.itemsize, length, unsigned))


class _Memory:
    """A flat view of an array's memory from `before` bytes below its first element on, writable as kernels want it."""

    def __init__(self, array: NDArray[Any], before: int, length: int, dtype: type[np.generic]) -> None:
        self._keep_alive = array
        self.__array_interface__ = {
            "data": (array.__array_interface__["data"][0] - before, False),
            "shape": (length,),
            "typestr": np.dtype(dtype).str,
            "version": 3,
        }


def _array_of(logits: Any) -> tuple[NDArray[Any], str]:
    """Logits as a NumPy array that shares their memory, and the float format of its elements."""
    if isinstance(logits, np.ndarray):
        if logits.dtype == np.uint16:
            return logits, "bfloat16"
        if logits.dtype == np.float32 or logits.dtype == np.float16:
            return logits, logits.dtype.name
        raise TypeError(f"logits must be float32, float16 or bfloat16 (as uint16), not {logits.dtype}")
    if type(logits).__module__.partition(".")[0] != "torch":
        raise TypeError(f"logits must be a NumPy array or a torch tensor, not {type(logits).__name__}")
    import torch

    if logits.device.type != "cpu":
        raise TypeError(f"logits must be on the CPU, not {logits.device}")
    tensor = logits.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16), "bfloat16"
    if tensor.dtype in (torch.float32, torch.float16):
        return tensor.numpy(), str(tensor.dtype).partition(".")[2]
    raise TypeError(f"logits must be float32, float16 or bfloat16, not {tensor.dtype}")


def _columns(logits: Any) -> int:
    """How many tokens logits are of. Raises `TypeError` and `ValueError` for what are none."""
    array, _ = _array_of(logits)
    if array.ndim != 2:
        raise ValueError(f"logits must have 2 dimensions, not {array.ndim}")
    return int(array.shape[1])


class Sampler:
    """Scratch memory for `sample` and `apply_masks`: created once, used each step, by one thread at a time.

    `vocabulary` is the number of tokens that may be sampled, at most 2**22; logits may be wider. `rows` is the largest
    number of rows of a call. `candidates`: the most that a waiting row gives. Takes 32 bytes a token, and 28 bytes a
    row and candidate.
    """

    def __init__(self, vocabulary: int, rows: int, candidates: int = CANDIDATES) -> None:
        if not 1 <= whole(vocabulary, "vocabulary") <= MAX_VOCABULARY:
            raise ValueError(f"vocabulary must be from 1 to {MAX_VOCABULARY}, not {vocabulary}")
        self.vocabulary = vocabulary
        self.words = (vocabulary + 31) // 32
        self._row_numbers = np.arange(rows, dtype=np.int64)
        self._no_ends = EndSets.same(rows)
        self._no_end_allowed = np.zeros(rows, np.uint32)
        self._mask = np.zeros(self.words, np.uint32)
        self._marks = np.zeros(self.words, np.uint32)
        self._block_key = np.zeros(self.words, np.int32)
        self._values = np.zeros(vocabulary, np.uint64)
        self._weights = np.zeros(vocabulary, np.int64)
        self._values_scratch = np.zeros(vocabulary, np.uint64)
        self._weights_scratch = np.zeros(vocabulary, np.int64)
        self._histogram = np.zeros(BINS, np.int64)
        self._random_words = np.zeros(32, np.uint32)
        self._single = np.zeros(1, np.int32)
        self._block_keys = np.zeros(32, np.int32)
        self._block_weights = np.zeros(32, np.int64)
        self._candidates = Candidates.empty(rows, candidates)
        self._all_possible = np.full(self.words, 0xFFFFFFFF, np.uint32)

    def _rows(
        self,
        logits: _Bits,
        mask_ids: NDArray[np.int32],
        pool: MaskTables,
        end_allowed: NDArray[np.uint32] | NDArray[np.bool_] | None,
        end_sets: EndSets | None,
        rows: NDArray[np.int64] | None,
    ) -> tuple[Any, int]:
        """The kernels' shared arguments from `rows` on, checked so that no kernel reads out of bounds."""
        mask_ids = plain(mask_ids, np.int32, 1, "mask_ids")
        if not isinstance(pool, MaskTables):
            raise TypeError(f"the pool must be MaskTables, as Batch.tables, not {type(pool).__name__}: {pool!r:.60}")
        if end_sets is not None and not isinstance(end_sets, EndSets):
            raise TypeError(f"end_sets must be EndSets, not {type(end_sets).__name__}: {end_sets!r:.60}")
        count = mask_ids.size
        if count > self._row_numbers.size:
            raise ValueError(f"{count} rows, but the sampler was made for {self._row_numbers.size}")
        if rows is None:
            chosen = self._row_numbers[:count]
            if count > logits.rows:
                raise ValueError(f"{count} mask ids for {logits.rows} rows of logits")
        else:
            chosen = plain(rows, np.int64, 1, "rows")
            if chosen.size != count:
                raise ValueError(f"{count} mask ids for {chosen.size} row numbers")
            if count and not 0 <= int(chosen.min()) <= int(chosen.max()) < logits.rows:
                raise ValueError(f"row numbers must be from 0 to {logits.rows - 1}")
        if logits.width < self.vocabulary:
            raise ValueError(f"logits have {logits.width} columns for {self.vocabulary} tokens")
        if pool.dense.shape[0] and pool.dense.shape[1] < self.words:
            raise ValueError(f"dense masks have {pool.dense.shape[1]} words, {self.words} needed")
        ends = self._no_ends if end_sets is None else end_sets
        may_end = self._no_end_allowed[:count] if end_allowed is None else end_bits(end_allowed)
        if may_end.size != count or (ends is not self._no_ends and ends.start.size != count + 1):
            raise ValueError(f"end_allowed and end_sets must have {count} rows")
        tables = (pool.dense, pool.list_offset, pool.list_length, pool.list_tokens)
        return (chosen, self.vocabulary, mask_ids, *tables, may_end, ends.start, ends.tokens), count

    def sample(
        self,
        logits: Any,
        mask_ids: NDArray[np.int32],
        pool: MaskTables,
        *,
        end_allowed: NDArray[np.uint32] | NDArray[np.bool_] | None = None,
        end_sets: EndSets | None = None,
        parameters: SamplingParameters,
        rows: NDArray[np.int64] | None = None,
        status: NDArray[np.uint8] | None = None,
        possible: NDArray[np.uint32] | None = None,
        out: SampleResult | None = None,
    ) -> SampleResult:
        """Sample a token for each mask id. See the module for what that means.

        `logits` float32 or bfloat16, 2-D, at least `vocabulary` columns: a NumPy array (bfloat16 as uint16) or a
        CPU torch tensor with any row stride. `rows[i]` is the row of logits that `mask_ids[i]` and the i-th
        parameters are for (default: i). `end_allowed` uint32: bit i says whether the row's i-th end token is legal
        (`Plan.end_allowed`); bool: all of them or none; none without it. `out` takes the results and is returned;
        without it they are allocated.

        `status` uint8, one a row (`Plan.status`): rows that are PENDING give candidates, which `Batch.settle` takes.
        `possible` uint32[words] (`Batch.possible`): the tokens that any mask might have, without end tokens; all
        without it.
        """
        view = _Bits(logits, write=False)
        if view.format == "float16":
            raise TypeError("float16 logits cannot be sampled from; convert them to float32")
        shared, count = self._rows(view, mask_ids, pool, end_allowed, end_sets, rows)
        if parameters.temperature.size != count:
            raise ValueError(f"parameters of {parameters.temperature.size} rows for {count} mask ids")
        result = SampleResult.empty(count) if out is None else out
        if not isinstance(result, SampleResult):
            raise TypeError(f"out must be a SampleResult, not {type(out).__name__}: {out!r:.60}")
        if result.tokens.shape != (count,) or result.logprobs.shape != (count,):
            raise ValueError(f"out must have {count} rows")
        if plain(result.tokens, np.int32, 1) is not result.tokens:
            raise ValueError("out.tokens must be a writable contiguous int32 array")
        if plain(result.logprobs, np.float32, 1) is not result.logprobs:
            raise ValueError("out.logprobs must be a writable contiguous float32 array")
        sample_rows, shift = (sample_rows_16, 16) if view.format == "bfloat16" else (sample_rows_32, 0)
        arguments: tuple[Any, ...] = (view.bits, view.origin, view.stride, shift, *shared)
        arguments += (
            parameters.temperature,
            parameters.top_k,
            parameters.top_p,
            parameters.min_p,
            parameters.seed,
            parameters.position,
            parameters.want_logprob,
            self._mask,
            self._marks,
            self._block_key,
            self._values,
            self._weights,
            self._values_scratch,
            self._weights_scratch,
            self._histogram,
            self._random_words,
            self._single,
            result.tokens,
            result.logprobs,
        )
        sample_rows(*arguments)
        if status is None:
            return result
        found = self._look_ahead(view, shared, shift, parameters, status, possible, result.tokens)
        return replace(result, candidates=found) if result.candidates is not found else result

    def _look_ahead(
        self,
        view: _Bits,
        shared: Any,
        shift: int,
        parameters: SamplingParameters,
        status: NDArray[np.uint8],
        possible: NDArray[np.uint32] | None,
        tokens: NDArray[np.int32],
    ) -> Candidates:
        """The candidates of the rows that `status` says wait."""
        chosen, vocabulary, *_, end_start, end_tokens = shared
        found = self._candidates
        found.rows, found.sampled, found.parameters = tokens.size, tokens, parameters
        status = plain(status, np.uint8, 1, "status")
        if status.size != tokens.size:
            raise ValueError(f"status of {status.size} rows for {tokens.size} mask ids")
        if not (status == PENDING).any():
            found.count[: tokens.size] = -1
            return found
        masks = self._all_possible if possible is None else plain(possible, np.uint32, 1, "possible")
        if masks.size < self.words:
            raise ValueError(f"possible has {masks.size} words, {self.words} needed")
        candidate_rows = candidate_rows_16 if shift else candidate_rows_32
        arguments: tuple[Any, ...] = (view.bits, view.origin, view.stride, shift, chosen, vocabulary, status)
        arguments += (masks[None, :], end_start, end_tokens)
        arguments += (
            parameters.temperature,
            parameters.top_k,
            parameters.top_p,
            parameters.min_p,
            parameters.seed,
            parameters.position,
            parameters.want_logprob,
            self._mask,
            self._block_key,
            self._values,
            self._weights,
            self._values_scratch,
            self._weights_scratch,
            self._histogram,
            self._random_words,
            self._block_keys,
            self._block_weights,
        )
        arguments += (*found.arrays(), tokens)
        candidate_rows(*arguments)
        return found

    def apply_masks(
        self,
        logits: Any,
        pool: MaskTables,
        mask_ids: NDArray[np.int32],
        *,
        end_allowed: NDArray[np.uint32] | NDArray[np.bool_] | None = None,
        end_sets: EndSets | None = None,
        rows: NDArray[np.int64] | None = None,
    ) -> None:
        """Set logits of tokens that are not legal to -inf, in place; columns past the vocabulary too.

        As `sample`, for hosts that sample themselves; `logits` may also be float16.
        """
        view = _Bits(logits, write=True)
        shared, _ = self._rows(view, mask_ids, pool, end_allowed, end_sets, rows)
        apply_rows = apply_rows_32 if view.format == "float32" else apply_rows_16
        minus_infinity = _MINUS_INFINITY[view.format]
        arguments: tuple[Any, ...] = (view.bits, view.origin, view.stride, view.width, minus_infinity, *shared)
        arguments += (self._mask, self._single)
        apply_rows(*arguments)


def _on_device(logits: Any) -> bool:
    """Is it a torch tensor, and not in the host's memory?"""
    return type(logits).__module__.partition(".")[0] == "torch" and logits.device.type != "cpu"


def sample(
    logits: Any,
    mask_ids: NDArray[np.int32] | Sequence[int],
    pool: MaskTables,
    *,
    end_allowed: NDArray[np.uint32] | NDArray[np.bool_] | None = None,
    end_sets: EndSets | None = None,
    parameters: SamplingParameters,
    rows: NDArray[np.int64] | None = None,
    status: NDArray[np.uint8] | None = None,
    possible: NDArray[np.uint32] | None = None,
    out: SampleResult | None = None,
    vocabulary: int | None = None,
    candidates: int = CANDIDATES,
) -> SampleResult:
    """`Sampler.sample` with scratch memory of its own and checked parameters; for a loop make a `Sampler`.

    `vocabulary` defaults to the columns of `logits`; `candidates` is the most that a waiting row gives. Logits may also
    be a torch tensor on a device: they are sampled there, and everything else is copied there and back, so for a loop
    make a `masks.device.sampler.DeviceSampler`.
    """
    if not isinstance(parameters, SamplingParameters):
        raise TypeError(f"parameters must be SamplingParameters, not {type(parameters).__name__}: {parameters!r:.60}")
    parameters.check()
    ids = plain(mask_ids, np.int32, 1, "mask_ids")
    if _on_device(logits):
        from .device.once import sample_once

        return sample_once(
            logits, ids, pool, end_allowed=end_allowed, end_sets=end_sets, parameters=parameters, rows=rows,
            status=status, possible=possible, out=out, vocabulary=vocabulary, candidates=candidates,
        )  # fmt: skip
    sampler = Sampler(_columns(logits) if vocabulary is None else vocabulary, ids.size, candidates)
    return sampler.sample(
        logits,
        ids,
        pool,
        end_allowed=end_allowed,
        end_sets=end_sets,
        parameters=parameters,
        rows=rows,
        status=status,
        possible=possible,
        out=out,
    )


def apply_masks(
    logits: Any,
    pool: MaskTables,
    mask_ids: NDArray[np.int32] | Sequence[int],
    *,
    end_allowed: NDArray[np.uint32] | NDArray[np.bool_] | None = None,
    end_sets: EndSets | None = None,
    rows: NDArray[np.int64] | None = None,
    vocabulary: int | None = None,
) -> None:
    """`Sampler.apply_masks` with scratch memory of its own; `vocabulary` defaults to the columns of `logits`.

    Logits may also be a torch tensor on a device: see `sample`.
    """
    ids = plain(mask_ids, np.int32, 1, "mask_ids")
    if _on_device(logits):
        from .device.once import apply_once

        apply_once(logits, ids, pool, end_allowed=end_allowed, end_sets=end_sets, rows=rows, vocabulary=vocabulary)
        return
    sampler = Sampler(_columns(logits) if vocabulary is None else vocabulary, ids.size)
    sampler.apply_masks(logits, pool, ids, end_allowed=end_allowed, end_sets=end_sets, rows=rows)
