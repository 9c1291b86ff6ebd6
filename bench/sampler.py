"""How long does a token for each row take, masks included? stepmask's sampler beside what servers do.

    python bench/sampler.py [--device auto|cpu|cuda] [--vocabulary 128256] [--batches 1 32 256] [--dtype float32 ...]

Every contender gets the same logits and the same masks and draws one token a row:

* *stepmask*: one call of the fused sampler with mask ids (on the CPU the Numba kernel, on a GPU the Triton kernels,
  also replayed as a CUDA graph, where launching costs nothing);
* *torch*: a boolean mask that is there already, `masked_fill`, `softmax`, `multinomial`;
* *xgrammar, torch* (GPU, if installed): its kernel that applies a token bitmask in place, then softmax, multinomial;
* *xgrammar, FlashInfer* (GPU, if installed): the same with FlashInfer's sampler.

On a GPU the caches are flushed before each call, and the *floor* is the bytes that must be read (the logits that a
legal token shares a sector with, and the mask) at the measured bandwidth of a copy. Prints a table, and writes
bench/out/sampler-DEVICE.json.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from common import OUT, Evictor, machine, number, summary, table, versions, write_json

from stepmask.masks.sampling import Sampler, SamplingParameters
from stepmask.masks.tables import UNCONSTRAINED, MaskTables
from stepmask.masks.warm_up import warm_up

#: Masks of the rows of a batch: name, tokens allowed (None: no mask).
MASKS: tuple[tuple[str, int | None], ...] = (("none", None), ("half", -2), ("1,000", 1000), ("20", 20))
#: Parameters of the rows: name, values.
PARAMETERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("plain", {}),
    ("top-p", {"top_p": 0.9}),
    ("top-k", {"top_k": 50}),
)
SECTOR = 32
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

Call = Callable[[], Any]


class Case:
    """A batch: logits on the device, and its masks in every form that a contender takes."""

    def __init__(self, rows: int, vocabulary: int, dtype: torch.dtype, allowed: int | None, device: str) -> None:
        rng = np.random.default_rng(rows)
        self.rows, self.vocabulary, self.device = rows, vocabulary, device
        values = (rng.normal(size=(rows, vocabulary)) * 3).astype(np.float32)
        self.logits = torch.from_numpy(values).to(dtype).to(device)
        distinct = min(rows, 64)
        bits = np.ones((distinct, -(-vocabulary // 32) * 32), bool)
        bits[:, vocabulary:] = False
        if allowed is not None:
            for row in bits:
                row[:vocabulary] = rng.random(vocabulary) < 0.5 if allowed < 0 else False
                if allowed > 0:
                    row[rng.choice(vocabulary, allowed, replace=False)] = True
        self.bits = bits[:, :vocabulary]
        self.packed = np.packbits(bits, axis=1, bitorder="little").view(np.uint32)
        none = np.zeros(0, np.int32)
        self.tables = MaskTables(self.packed, none, none, none)
        self.ids = (
            np.full(rows, UNCONSTRAINED, np.int32) if allowed is None else np.arange(rows, dtype=np.int32) % distinct
        )
        share = SECTOR // self.logits.element_size()
        sectors = [np.unique(np.flatnonzero(row) // share).size for row in self.bits]
        mask_bytes = 0 if allowed is None else -(-vocabulary // 8)
        self.floor_bytes = sum(SECTOR * sectors[i % distinct] + mask_bytes for i in range(rows))

    def dense(self) -> torch.Tensor:
        """bool[rows, vocabulary] on the device: True where not allowed."""
        return torch.from_numpy(~self.bits[np.arange(self.rows) % len(self.bits)]).to(self.device)

    def bitmask(self) -> torch.Tensor:
        """int32[rows, words] on the device."""
        return torch.from_numpy(self.packed[np.arange(self.rows) % len(self.packed)].view(np.int32).copy()).to(
            self.device
        )


def parameters_of(rows: int, values: dict[str, Any]) -> SamplingParameters:
    return SamplingParameters.build(rows, temperature=0.8, seed=np.arange(rows), position=3, **values)


def torch_call(case: Case, values: dict[str, Any]) -> Call:
    """The usual way, with top-k and top-p by sorting."""
    barred, logits = case.dense(), case.logits

    def run() -> torch.Tensor:
        x = logits.float().masked_fill(barred, float("-inf")) / 0.8
        if "top_k" in values:
            least = x.topk(values["top_k"], dim=1).values[:, -1:]
            x = x.masked_fill(x < least, float("-inf"))
        p = x.softmax(1)
        if "top_p" in values:
            ordered, place = p.sort(dim=1, descending=True)
            ordered[ordered.cumsum(1) - ordered >= values["top_p"]] = 0
            p = torch.zeros_like(p).scatter_(1, place, ordered)
        return p.multinomial(1)

    return run


def cpu_calls(case: Case, values: dict[str, Any]) -> dict[str, Call]:
    sampler, parameters = Sampler(case.vocabulary, case.rows), parameters_of(case.rows, values)
    found: dict[str, Call] = {
        "stepmask": lambda: sampler.sample(case.logits, case.ids, case.tables, parameters=parameters)
    }
    usual = torch_call(case, values)
    if usual is not None:
        found["torch"] = usual
    return found


def gpu_calls(case: Case, values: dict[str, Any]) -> dict[str, Call]:
    from stepmask.masks.device.sampler import DeviceSampler
    from stepmask.masks.device.tables import DeviceParameters, DeviceResult, DeviceTables

    sampler = DeviceSampler(case.vocabulary, case.rows, case.device, backend="triton")
    parameters = DeviceParameters.of(parameters_of(case.rows, values), case.device)
    pool, ids = DeviceTables.of(case.tables, case.device), torch.from_numpy(case.ids).to(case.device)
    out = DeviceResult.empty(case.rows, case.device)

    def fused() -> Any:
        return sampler.sample(case.logits, ids, pool, parameters=parameters, out=out)

    found: dict[str, Call] = {"stepmask": fused}
    fused()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fused()
    found["stepmask, graph"] = graph.replay
    found["torch"] = torch_call(case, values)
    return found | peer_calls(case, values)


def peer_calls(case: Case, values: dict[str, Any]) -> dict[str, Call]:
    """xgrammar's mask kernel, with torch's sampling and with FlashInfer's, as far as installed."""
    try:
        import xgrammar
    except ImportError:
        return {}
    bitmask = case.bitmask()
    # It writes into the logits, which each call must find as they were: the copy is timed and reported by itself.
    work = case.logits.clone()

    def masked() -> torch.Tensor:
        work.copy_(case.logits)
        xgrammar.apply_token_bitmask_inplace(work, bitmask)
        return work

    found: dict[str, Call] = {"copy of the logits": lambda: work.copy_(case.logits)}
    if not values:
        found["copy, xgrammar, torch"] = lambda: (masked().float() / 0.8).softmax(1).multinomial(1)
    try:
        import flashinfer
    except ImportError:
        return found
    sampling = flashinfer.sampling
    if "top_p" in values:
        found["copy, xgrammar, FlashInfer"] = lambda: sampling.top_p_sampling_from_probs(
            (masked().float() / 0.8).softmax(1), values["top_p"]
        )
    elif "top_k" in values:
        found["copy, xgrammar, FlashInfer"] = lambda: sampling.top_k_sampling_from_probs(
            (masked().float() / 0.8).softmax(1), values["top_k"]
        )
    else:
        found["copy, xgrammar, FlashInfer"] = lambda: sampling.sampling_from_logits(masked().float() / 0.8)
    return found


def time_cpu(call: Call, repeats: int, evict: Evictor) -> list[int]:
    call()
    times = []
    for _ in range(repeats):
        evict()
        begin = perf_counter_ns()
        call()
        times.append(perf_counter_ns() - begin)
    return times


def time_gpu(call: Call, repeats: int, flush: torch.Tensor) -> list[int]:
    """Nanoseconds of device time from before a call's first kernel to after its last."""
    for _ in range(3):
        call()
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
    for begin, end in pairs:
        flush.zero_()
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return [int(begin.elapsed_time(end) * 1e6) for begin, end in pairs]


def bandwidth(flush: torch.Tensor) -> float:
    """Bytes a nanosecond that a large copy reads and writes."""
    other = torch.empty_like(flush)
    best = min(time_gpu(lambda: other.copy_(flush), 10, flush[:1]))
    return 2 * flush.numel() * flush.element_size() / best


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--vocabulary", type=int, default=128_256)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32, 256])
    parser.add_argument("--dtype", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument("--masks", nargs="+", choices=[name for name, _ in MASKS], default=[name for name, _ in MASKS])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    on_gpu = options.device == "cuda" or (options.device == "auto" and torch.cuda.is_available())
    device = "cuda" if on_gpu else "cpu"
    torch.set_num_threads(1)
    report: dict[str, Any] = {
        "machine": machine(), "vocabulary": options.vocabulary, "us": {},
        "versions": versions("torch", "triton", "numba", "numpy", "xgrammar", "flashinfer-python"),
    }  # fmt: skip
    speed = 0.0
    if on_gpu:
        report["gpu"] = torch.cuda.get_device_name()
        flush = torch.zeros(512 << 20, dtype=torch.uint8, device=device)
        speed = bandwidth(flush)
        report["bytes_per_ns"] = speed
        print(f"{report['gpu']}, a copy moves {speed:,.0f} GB/s")
    else:
        warm_up()
        evict = Evictor(64)
        print(f"{report['machine']['processor']}, one thread; no GPU figures: this run has no GPU")
    print(", ".join(f"{name} {version}" for name, version in report["versions"].items()))
    rows: list[list[str]] = []
    for dtype in options.dtype:
        for batch in options.batches:
            for mask, allowed in MASKS:
                if mask not in options.masks:
                    continue
                case = Case(batch, options.vocabulary, DTYPES[dtype], allowed, device)
                for name, values in PARAMETERS:
                    calls = gpu_calls(case, values) if on_gpu else cpu_calls(case, values)
                    key = f"{dtype} B={batch} mask {mask}, {name}"
                    found: dict[str, Any] = {"floor_bytes": case.floor_bytes}
                    for contender, call in calls.items():
                        times = (
                            time_gpu(call, options.repeats, flush) if on_gpu else time_cpu(call, options.repeats, evict)
                        )
                        found[contender] = summary(times)
                        floor = number(case.floor_bytes / speed / 1000) if on_gpu else "-"
                        rows.append([key, contender, number(found[contender]["p50"]), floor])
                    report["us"][key] = found
    print(table(["rows", "contender", "us (p50)", "floor us"], rows))
    print(f"\n{write_json(options.out, f'sampler-{device}', report)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
