"""What do the device kernels compile to, and how many bytes do they move? No GPU is needed for either.

    python bench/device_code.py [--targets cuda:80 cuda:90 cuda:100 hip:gfx942] [--vocabulary 128256] [--no-bytes]

The first table is of every kernel compiled ahead of time for each target, as it is launched for that vocabulary:
registers a thread, bytes of stack, spilled bytes, shared memory, and fused multiply-adds of float32, of which there
must be none. The second counts, in Triton's interpreter, the 32-byte sectors that the kernels read and write for one
row (each sector once a program, as a cache would have it), beside the floor: the logits that a legal token shares a
sector with, read once, and the mask. Log-probabilities and top-p need the sum of the weights, which are relative to the
largest logit, so the logits are read twice. Prints tables, and writes bench/out/device-code.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "0")

from common import OUT, table, versions, write_json

TARGETS = ("cuda:80", "cuda:90", "cuda:100", "hip:gfx942")
#: Rows of the byte count: name, mask density (None: unconstrained), parameters of its row.
ROWS: tuple[tuple[str, float | None, dict[str, Any]], ...] = (
    ("unconstrained", None, {}),
    ("half allowed", 0.5, {}),
    ("1,000 allowed", 1000.0, {}),
    ("20 allowed", 20.0, {}),
    ("20 allowed, in a list", -20.0, {}),
    ("half allowed, log-probability", 0.5, {"want_logprob": True}),
    ("half allowed, top-k 50", 0.5, {"top_k": 50}),
    ("half allowed, top-p 0.9", 0.5, {"top_p": 0.9}),
    ("half allowed, min-p 0.05", 0.5, {"min_p": 0.05}),
)


def launches(vocabulary: int, dtype: Any) -> dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """Every kernel with the arguments and constants of its launch."""
    import numpy as np
    import torch

    from stepmask.masks.device import advance_triton, pushdown_triton
    from stepmask.masks.device.pushdowns import LEVELS, MAX_PUSHED
    from stepmask.masks.device.sampler import CAPACITY, TILE
    from stepmask.masks.device.sampling_triton import TritonSampler
    from stepmask.masks.device.tables import (
        DeviceCandidates,
        DeviceEnds,
        DeviceParameters,
        DeviceResult,
        DeviceTables,
    )
    from stepmask.masks.layout import MAX_ENDS
    from stepmask.masks.sampling import SamplingParameters
    from stepmask.masks.tables import EndSets, MaskTables

    found: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {}

    def note(kernel: Any, grid: Any, arguments: tuple[Any, ...], constants: dict[str, Any]) -> None:
        name = kernel.__name__
        if constants.get("TRUNCATES") is False:
            name += " (plain rows)"
        found[name] = (kernel, arguments, constants)

    rows, device = 4, torch.device("cpu")
    sampler = TritonSampler(vocabulary, rows, device, tile=TILE, capacity=CAPACITY, most=16, launch=note)
    logits = torch.zeros(rows, -(-vocabulary // 64) * 64, dtype=dtype)
    numbers, ids = torch.arange(rows), torch.zeros(rows, dtype=torch.int32)
    pool = DeviceTables.of(
        MaskTables(np.zeros((2, -(-vocabulary // 32)), np.uint32), *[np.zeros(2, np.int32)] * 3), device
    )
    flags = torch.ones(rows, dtype=torch.uint8)
    allowed, ends = torch.ones(rows, dtype=torch.int32), DeviceEnds.of(EndSets.same(rows, [1, 2]), device, most=4)
    out = DeviceResult.empty(rows, device)
    for values in ({}, {"top_p": 0.9, "want_logprob": True}):
        parameters = DeviceParameters.of(SamplingParameters.build(rows, **values), device)
        sampler.sample(logits, numbers, ids, pool, allowed, ends, parameters, out)
    candidates = DeviceCandidates.empty(rows, device)
    sampler.look_ahead(logits, numbers, flags, pool.dense[0], ends, parameters, out.tokens, candidates)
    sampler.apply_masks(logits, numbers, ids, pool, allowed, ends)
    # `DeviceGrammars` needs a batch, and that its kernels; the types of its arrays are enough here.
    words, numbers64 = torch.zeros(rows, dtype=torch.int32), torch.zeros(rows, dtype=torch.int64)
    grammars: Any = SimpleNamespace(
        images=SimpleNamespace(image=words, directory=numbers64), token_start=words,
        token_bytes=flags, token_text=flags,
        vocabulary=SimpleNamespace(size=vocabulary), grammar=words, state=words, position=words, min_tokens=words,
        ends=SimpleNamespace(tokens=torch.zeros(rows, MAX_ENDS, dtype=torch.int32), count=words),
        end_names=torch.zeros(rows, MAX_ENDS, dtype=torch.int32), mask_ids=words,
        end_allowed=allowed, accepted=flags, escaped=flags,
    )  # fmt: skip
    arguments, constants = advance_triton.launch_of(grammars, ids)
    found["advance"] = (advance_triton.advance, arguments, constants)
    pushdowns: Any = SimpleNamespace(
        rows=grammars, images=grammars.images, grammar=words, state=words, depth=words,
        stack=torch.zeros(rows, LEVELS, dtype=torch.int32), fresh=torch.zeros(rows, MAX_PUSHED, dtype=torch.int32),
    )  # fmt: skip
    arguments, constants = pushdown_triton.launch_of(pushdowns, ids)
    found["advance_pushdown"] = (pushdown_triton.advance_pushdown, arguments, constants)
    return found


def source_of(kernel: Any, arguments: tuple[Any, ...], constants: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """(what Triton compiles for such a launch, its options): a type for each argument, and which divide by 16."""
    import torch
    from triton.compiler import ASTSource

    types = {
        torch.int32: "*i32", torch.int64: "*i64", torch.int16: "*i16", torch.uint8: "*u8", torch.float32: "*fp32",
    }  # fmt: skip
    signature: dict[str, str] = {}
    fixed: dict[str, Any] = {}
    attributes: dict[tuple[int, ...], list[Any]] = {}
    values = dict(zip(kernel.arg_names, arguments, strict=False))
    options = {name: value for name, value in constants.items() if name not in kernel.arg_names}
    for i, name in enumerate(kernel.arg_names):
        value = constants[name] if name in constants else values[name]
        if name in constants:
            signature[name], fixed[name] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[name] = types[value.dtype]
            attributes[(i,)] = [["tt.divisibility", 16]]
        else:
            signature[name] = "i32"
            if value % 16 == 0 and not kernel.params[i].do_not_specialize:
                attributes[(i,)] = [["tt.divisibility", 16]]
    return ASTSource(fn=kernel, signature=signature, constexprs=fixed, attrs=attributes), options


def compile_for(target: str, kernel: Any, arguments: tuple[Any, ...], constants: dict[str, Any]) -> dict[str, int]:
    """Compile one kernel for `cuda:NN` or `hip:gfxNNN`; its figures."""
    import triton
    from triton.backends.compiler import GPUTarget

    kind, _, arch = target.partition(":")
    source, options = source_of(kernel, arguments, constants)
    if kind == "hip":
        options.pop("maxnreg", None)
        compiled = triton.compile(source, target=GPUTarget("hip", arch, 64), options=options)
        return hip_figures(compiled.asm["amdgcn"], compiled.metadata)
    compiled = triton.compile(source, target=GPUTarget("cuda", int(arch), 32), options=options)
    return cuda_figures(compiled.asm["cubin"], compiled.asm["ptx"], options["num_warps"])


def cuda_figures(cubin: bytes, ptx: str, warps: int) -> dict[str, int]:
    """From NVIDIA's own disassembler, which comes with Triton."""
    import triton

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        usage = subprocess.run(
            [tools / "cuobjdump", "--dump-resource-usage", path], capture_output=True, text=True, check=True
        ).stdout
        code = subprocess.run([tools / "nvdisasm", "-c", path], capture_output=True, text=True, check=True).stdout
    registers, stack, shared, local = map(int, re.findall(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", usage)[0])
    # The division of float64, once a row, has two of them that only compare.
    fused = len(re.findall(r"\bFFMA\b(?![^;]*\bRZ\b)", code))
    return {
        "warps": warps, "registers": registers, "stack": stack + local,
        "spills": len(re.findall(r"\b(?:STL|LDL)\b", code)), "shared": shared, "fused": fused,
        "flushed": len(re.findall(r"\.ftz", ptx)), "wide_loads": len(re.findall(r"\bLDG\.E\.128", code)),
    }  # fmt: skip


def hip_figures(code: str, metadata: Any) -> dict[str, int]:
    """From the assembler's own notes. Its fused multiply-adds are exact parts of conversions to int64, one each."""

    def of(name: str) -> int:
        found = re.search(rf"\.{name}:\s+(\d+)", code)
        return int(found[1]) if found else 0

    return {
        "warps": metadata.num_warps, "registers": of("vgpr_count"), "stack": of("private_segment_fixed_size"),
        "spills": of("vgpr_spill_count"), "shared": of("group_segment_fixed_size"),
        "fused": len(re.findall(r"\bv_(?:pk_)?fma\w*_f32", code)), "flushed": 0,
        "wide_loads": len(re.findall(r"(?:global|buffer)_load_dwordx4", code)),
    }  # fmt: skip


def report_code(targets: list[str], vocabulary: int) -> dict[str, Any]:
    """Compile everything for all targets and print the table."""
    import torch

    report: dict[str, Any] = {}
    rows = []
    for name, (kernel, arguments, constants) in launches(vocabulary, torch.float32).items():
        for target in targets:
            figures = compile_for(target, kernel, arguments, constants)
            report.setdefault(name, {})[target] = figures
            shown = ("warps", "registers", "stack", "spills", "shared", "fused", "wide_loads")
            rows.append([name, target, *(str(figures[key]) for key in shown)])
    headings = ["kernel", "target", "warps", "registers", "stack", "spills", "shared", "fused", "16-byte loads"]
    print(table(headings, rows))
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--targets", nargs="+", default=list(TARGETS))
    parser.add_argument("--vocabulary", type=int, default=128_256)
    parser.add_argument("--no-bytes", action="store_true", help="compile only")
    parser.add_argument("--bytes-only", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    if options.bytes_only:
        from device_bytes import count_advances, count_rows

        print(json.dumps({"rows": count_rows(options.vocabulary, ROWS), "advances": count_advances()}))
        return 0
    report: dict[str, Any] = {"versions": versions("triton", "torch", "numpy"), "vocabulary": options.vocabulary}
    print(", ".join(f"{name} {version}" for name, version in report["versions"].items()))
    report["code"] = report_code(options.targets, options.vocabulary)
    if not options.no_bytes:
        # Triton decides at its import whether kernels are interpreted.
        command = [sys.executable, __file__, "--bytes-only", "--vocabulary", str(options.vocabulary)]
        done = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return 1
        counted_bytes = json.loads(done.stdout)
        report["bytes"], report["advances"] = counted_bytes["rows"], counted_bytes["advances"]
        print()
        rows = [
            [name, form, *(f"{counted[key]:,}" for key in ("read", "written", "floor")), f"{counted['ratio']:.2f}"]
            for name, forms in report["bytes"].items()
            for form, counted in forms.items()
        ]
        print(table(["bytes of one row", "logits", "read", "written", "floor", "of the floor"], rows))
        rows = [
            [name, str(moved["tokens"]), f"{moved['mean']:,.0f}", f"{moved['most']:,.0f}"]
            for name, moved in report["advances"].items()
        ]
        print(table(["bytes of advancing", "tokens", "mean", "most"], rows))
    print(f"\n{write_json(options.out, 'device-code', report)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
