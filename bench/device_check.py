"""Does a GPU give the tokens that the CPU gives? Exits with 1 where it does not.

    python bench/device_check.py [--vocabulary 128256 151669]

Few shapes and much data, because each shape is compiled anew: the fused sampler, candidates and `apply_masks` beside
the CPU's kernels, bit for bit, for float32 and bfloat16, rows of every kind of mask and every kind of truncation; a
decode loop of grammars on the device, replayed as a CUDA graph, beside the host's batch; the pool's mirror with its
streams.
`tests/masks/device` checks the same kernels on small shapes in Triton's interpreter.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import torch

import stepmask
from stepmask.masks.batch import Batch
from stepmask.masks.device.grammars import DeviceGrammars
from stepmask.masks.device.mirror import PoolMirror
from stepmask.masks.device.sampler import DeviceSampler
from stepmask.masks.device.tables import DeviceEnds, DeviceParameters, DeviceTables, device_array
from stepmask.masks.layout import PENDING, READY
from stepmask.masks.sampling import Sampler, SamplingParameters
from stepmask.masks.tables import KIND_LIST, KIND_SHIFT, KIND_SINGLE, UNCONSTRAINED, EndSets, MaskTables

ROWS = 48


def problem(vocabulary: int, rng: np.random.Generator) -> dict[str, Any]:
    """Rows of every kind of mask and parameters; a few logits are infinite or no number."""
    masks = rng.random((6, -(-vocabulary // 32) * 32)) < np.array([[0.0], [1e-4], [0.02], [0.5], [0.97], [1.0]])
    masks[:, vocabulary:] = False
    lists = [np.sort(rng.choice(vocabulary, size, replace=False)).astype(np.int32) for size in (0, 3, 200)]
    lengths = np.array([len(tokens) for tokens in lists], np.int32)
    packed = np.packbits(masks, axis=1, bitorder="little").view(np.uint32)
    pool = MaskTables(packed, (np.cumsum(lengths) - lengths).astype(np.int32), lengths, np.concatenate(lists))
    kinds = [UNCONSTRAINED, *range(6), *(KIND_LIST << KIND_SHIFT | i for i in range(3)), KIND_SINGLE << KIND_SHIFT | 77]
    logits = (rng.normal(size=(ROWS, vocabulary)) * rng.choice([0.1, 3, 10], (ROWS, 1))).astype(np.float32)
    special = rng.random(logits.shape)
    logits[special < 1e-4] = -np.inf
    logits[(special > 1e-4) & (special < 2e-4)] = np.nan
    logits[0, 5] = np.inf
    return {
        "logits": logits,
        "mask_ids": np.resize(np.array(kinds, np.int32), ROWS),
        "pool": pool,
        "end_allowed": rng.integers(0, 4, ROWS).astype(np.uint32),
        "end_sets": EndSets.same(ROWS, [3, vocabulary - 1]),
        "parameters": SamplingParameters.build(
            ROWS,
            temperature=rng.choice([0, 0.1, 0.7, 1, 2], ROWS),
            top_k=rng.choice([0, 0, 1, 50, 5000], ROWS),
            top_p=rng.choice([1, 1, 0.3, 0.9, 0.9999], ROWS),
            min_p=rng.choice([0, 0, 0.05, 1e-6], ROWS),
            seed=rng.integers(0, 2**64, ROWS, np.uint64),
            position=rng.integers(0, 2**40, ROWS),
            want_logprob=rng.integers(0, 2, ROWS),
        ),
    }


def check_sampler(vocabulary: int, dtype: torch.dtype) -> int:
    """Sampling, candidates and `apply_masks`; how many rows were compared."""
    rng = np.random.default_rng(vocabulary)
    cpu = Sampler(vocabulary, ROWS)
    gpu = DeviceSampler(vocabulary, ROWS, "cuda", backend="triton")
    status = np.where(np.arange(ROWS) % 3 == 0, PENDING, READY).astype(np.uint8)
    for _ in range(4):
        given = problem(vocabulary, rng)
        host = torch.from_numpy(given.pop("logits")).to(dtype)
        logits = host.cuda()
        pool, ids = DeviceTables.of(given["pool"], "cuda"), device_array(given["mask_ids"], "cuda")
        ends, allowed = DeviceEnds.of(given["end_sets"], "cuda", most=4), device_array(given["end_allowed"], "cuda")
        parameters = DeviceParameters.of(given["parameters"], "cuda")
        expected = cpu.sample(host, **given)
        result = gpu.sample(logits, ids, pool, end_allowed=allowed, ends=ends, parameters=parameters)
        np.testing.assert_array_equal(result.tokens.cpu().numpy(), expected.tokens)
        np.testing.assert_array_equal(result.logprobs.cpu().numpy(), expected.logprobs)
        waiting = cpu.sample(host, **given, status=status)
        assert waiting.candidates is not None
        sampled = result.tokens.clone()
        found = gpu.look_ahead(
            logits, device_array(status, "cuda"), ends=ends, parameters=parameters, sampled=sampled
        ).to_host(sampled.cpu().numpy(), given["parameters"])
        np.testing.assert_array_equal(found.count, waiting.candidates.count[:ROWS])
        for row in np.flatnonzero(found.count > 0).tolist():
            n, own = found.count[row], given["parameters"]
            names = ["tokens", "x"]
            greedy = own.temperature[row] == 0
            if not greedy and (own.top_k[row] > 0 or own.top_p[row] < 1 or own.min_p[row] > 0):
                names.append("rank")
            if not greedy and own.top_p[row] < 1:
                names += ["weight", "above"]
            for name in names:
                wanted = getattr(waiting.candidates, name)[row, :n]
                np.testing.assert_array_equal(getattr(found, name)[row, :n], wanted, err_msg=name)
        masked = host.clone()
        del given["parameters"]
        pool_of_host, ids_of_host = given.pop("pool"), given.pop("mask_ids")
        cpu.apply_masks(masked, pool_of_host, ids_of_host, **given)
        gpu.apply_masks(logits, pool, ids, end_allowed=allowed, ends=ends)
        integer = torch.int32 if dtype == torch.float32 else torch.int16
        assert torch.equal(logits.cpu().view(integer), masked.view(integer)), "apply_masks"
    return 4 * ROWS


def check_grammars(steps: int = 24) -> int:
    """A decode loop on the device as one CUDA graph a step, beside the host step by step; how many tokens."""
    more = [b"20", b"-0", b"12", b"yes", b"no", b"ab", b"abc"]
    tokens = [bytes([b]) for b in range(256)] + more + [b""]
    end = len(tokens) - 1
    vocabulary = stepmask.Vocabulary.from_bytes(tokens, eos=[end], special=[end])
    patterns = ["20[0-9]{2}-(0[1-9]|1[0-2])", "(yes|no|yesno)", "(a|ab|abc|b){1,9}", "[^x]{1,9}y", "(ab|c)*", "[a-z]+"]
    recursive = [stepmask.json_value(), stepmask.gbnf('root ::= "(" root{0,2} ")" | "[" [a-c]{2,4} "]"')]
    grammars = [*map(stepmask.regex, patterns), *recursive]
    compiled = [stepmask.compile(grammar, vocabulary) for grammar in grammars]
    rows = 4 * len(compiled)
    mirror = PoolMirror(Batch(vocabulary, 2, None), "cuda")
    device = DeviceGrammars(vocabulary, mirror, rows, backend="triton")
    numbers = [device.add(one) for one in compiled]
    assert None not in numbers

    def begin() -> None:
        for row in range(rows):
            device.start(row, numbers[row % len(compiled)], eos=(end,))

    begin()
    sampler = DeviceSampler(vocabulary.width, rows, "cuda", backend="triton")
    values = np.random.default_rng(0).normal(size=(steps, rows, vocabulary.width)).astype(np.float32)
    logits, position = (
        torch.zeros(rows, vocabulary.width, device="cuda"),
        torch.zeros(rows, dtype=torch.int64, device="cuda"),
    )
    base = DeviceParameters.of(SamplingParameters.build(rows, seed=np.arange(rows)), "cuda")
    parameters = DeviceParameters(**{**vars(base), "position": position})
    out = sampler.sample(logits, device.mask_ids, mirror.tables, parameters=parameters)

    def step() -> None:
        sampler.sample(
            logits, device.mask_ids, mirror.tables, end_allowed=device.end_allowed, ends=device.ends,
            parameters=parameters, out=out,
        )  # fmt: skip
        device.advance(out.tokens)
        position.add_(1)

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    begin()
    position.zero_()
    host = Batch(vocabulary, rows, None)
    slots = np.array([host.add(compiled[row % len(compiled)], eos=[end]) for row in range(rows)], np.int32)
    count = 0
    for number in range(steps):
        logits.copy_(torch.from_numpy(values[number]))
        graph.replay()
        plan = host.plan(slots)
        result = stepmask.sample(
            values[number], plan.mask_ids, host.tables, end_allowed=plan.end_allowed,
            end_sets=EndSets.same(rows, [end]),
            parameters=SamplingParameters.build(rows, seed=np.arange(rows), position=number),
        )  # fmt: skip
        np.testing.assert_array_equal(out.tokens.cpu().numpy(), result.tokens)
        host.advance(slots, result.tokens)
        count += int((result.tokens >= 0).sum())
    assert not device.escaped.any()
    return count


def check_mirror(steps: int = 200) -> int:
    """Masks that turn over a small pool, read on the device while the next are copied; how many steps."""
    tokens = [bytes([b]) for b in range(256)] + [bytes([a, b]) for a in range(97, 123) for b in range(97, 123)] + [b""]
    end = len(tokens) - 1
    vocabulary = stepmask.Vocabulary.from_bytes(tokens, eos=[end], special=[end])
    patterns = [f"[^{a}{b}]+({a}|{b}x)[{a}-z]" for a in "abcdefghij" for b in "klmnopqrst"]
    compiled = [stepmask.compile(stepmask.regex(pattern), vocabulary, use_cache=False) for pattern in patterns]
    rng = np.random.default_rng(0)
    slots = 8
    batch = Batch(vocabulary, slots, None, pool_masks=2 * slots)
    mirror = PoolMirror(batch, "cuda", resident_masks=0)
    sampler = DeviceSampler(vocabulary.width, slots, "cuda", backend="triton")
    chosen = np.array([batch.add(compiled[i], eos=[end]) for i in range(slots)], np.int32)
    read: list[torch.Tensor] = []
    wanted: list[np.ndarray] = []
    busy = torch.zeros(1 << 26, device="cuda")
    zeros = torch.zeros(slots, vocabulary.width, device="cuda")
    for _ in range(steps):
        plan = batch.plan(chosen)
        shipment = mirror.ship(plan)
        busy.add_(1)  # the device falls behind the host
        logits = zeros.clone()
        sampler.apply_masks(logits, mirror.tables, shipment.mask_ids)
        mirror.shipped(shipment)
        read.append((logits == 0).sum(1))
        expected = torch.zeros(slots, vocabulary.width)
        stepmask.apply_masks(expected, batch.tables, plan.mask_ids)
        wanted.append((expected == 0).sum(1).numpy())
        place = int(rng.integers(slots))
        batch.remove(int(chosen[place]))
        chosen[place] = batch.add(compiled[int(rng.integers(len(compiled)))], eos=[end])
        batch.advance(chosen, rng.integers(97, 123, slots).astype(np.int32))
    np.testing.assert_array_equal(torch.stack(read).cpu().numpy(), np.stack(wanted))
    return steps


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[128_256, 151_669])
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU: nothing was checked", file=sys.stderr)
        return 1
    stepmask.warm_up()
    checks: list[tuple[str, Callable[[], int]]] = [
        (
            f"sampler, {vocabulary:,} tokens, {str(dtype).partition('.')[2]}",
            lambda v=vocabulary, d=dtype: check_sampler(v, d),
        )
        for vocabulary in options.vocabulary
        for dtype in (torch.float32, torch.bfloat16)
    ]
    checks += [("grammars on the device, as a CUDA graph", check_grammars), ("pool mirror", check_mirror)]
    failed = 0
    for name, check in checks:
        begin = perf_counter()
        try:
            print(f"{name}: {check():,} equal ({perf_counter() - begin:.1f} s)", flush=True)
        except AssertionError as error:
            failed += 1
            print(f"{name}: WRONG\n{error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
