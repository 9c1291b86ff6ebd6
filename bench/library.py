"""How long does the first mask in a JSON string, a number or any value take in a schema that nobody has sent before?

    python bench/library.py --tokenizer tokenizer.json [...] [--schemas 20]

Every schema is new: its property names are its own. *Without*: nothing is shared, each grammar's masks are found anew.
*Library*: the masks of frames that other grammars have too (`stepmask.masks.library`) were made once for the vocabulary
and are read from the cache folder. *New process* reads them in a process that has compiled nothing before. The time of
making them is a row of its own; it is spent once for a vocabulary, as other libraries spend it when they load one. The
cache folder is empty at the start, and no compiled grammar is in it that is measured. Times are those of the thread
alone, and every step counts with the fastest of its schemas (and their median): what is lacking in the processor's
caches costs more. Prints a table, and writes bench/out/library-TOKENIZER.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, thread_time_ns
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import numpy as np
from common import OUT, machine, number, table, versions, write_json

#: What a text goes on with, and what the mask after it is the first of.
STEPS = (
    ('{{"name{0}": "', "a string"),
    ("\\", "after a backslash"),
    ('n", "size{0}": -', "a number"),
    ('1.5e3, "any{0}": ', "any value"),
    ('[true, "', "a string in it"),
)


def schema(i: int) -> dict[str, Any]:
    """A schema whose property names no other has."""
    properties = {"name": {"type": "string"}, "size": {"type": "number"}, "any": {}}
    return {"type": "object", "properties": {f"{name}{i}": kind for name, kind in properties.items()}}


def measure(vocabulary: Any, schemas: int, first: int, use_cache: bool) -> tuple[list[list[int]], dict[str, float]]:
    """Nanoseconds of the mask at each of `STEPS`, one a schema; and how the compiles went."""
    import stepmask

    times: list[list[int]] = [[] for _ in STEPS]
    compiles, taken = [], 0
    for i in range(first, first + schemas):
        start = perf_counter()
        compiled = stepmask.compile(stepmask.json_schema(schema(i)), vocabulary, use_cache=use_cache)
        compiles.append(1000 * (perf_counter() - start))
        batch = stepmask.Batch(vocabulary, slots=1)
        slot = batch.add(compiled)
        for step, (text, _) in enumerate(STEPS):
            assert batch.accept_bytes(slot, text.format(i).encode())
            before = thread_time_ns()
            batch.mask(slot)
            times[step].append(thread_time_ns() - before)
        taken += batch.counters["library"]
    return times, {"compile_ms": float(np.median(compiles)), "contexts_taken": taken / schemas}


def run_tokenizer(path: Path, options: argparse.Namespace) -> None:
    """All measurements with one tokenizer, printed and written."""
    import stepmask
    from stepmask.masks.library import folder, prepare_library

    vocabulary = stepmask.Vocabulary.from_file(path)
    measure(vocabulary, 2, 0, False)  # whatever is set up on first use
    results = {"without": measure(vocabulary, options.schemas, 1000, False)}
    start = perf_counter()
    frames = prepare_library(vocabulary)
    seconds = perf_counter() - start
    size = sum(file.stat().st_size for file in folder(vocabulary).iterdir())
    results["library"] = measure(vocabulary, options.schemas, 2000, True)
    command = [sys.executable, __file__, "--tokenizer", str(path), "--schemas", str(options.schemas), "--inner"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    results["library, new process"] = tuple(json.loads(ran.stdout))  # type: ignore[assignment]
    print(f"\n{path}: {vocabulary.width:,} ids, {options.schemas} schemas")
    print(f"preparing: {frames} frames in {1000 * seconds:.0f} ms, {size:,} bytes, once for the vocabulary")
    rows = [
        [way, what, *(number(float(f(series)) / 1000) for f in (np.min, np.median))]
        for way, (times, _) in results.items()
        for (_, what), series in zip(STEPS, times, strict=True)
    ]
    print(table(["", "first mask of", "fastest us", "median us"], rows))
    for way, (_, more) in results.items():
        print(f"{way}: compile {number(more['compile_ms'])} ms, {more['contexts_taken']:.1f} contexts taken a text")
    name = "library-" + (path.parent.parent.name if path.stem == "tokenizer" else path.stem)
    report = {
        "machine": machine(), "versions": versions("stepmask", "numpy", "numba"), "ids": vocabulary.width,
        "prepare_ms": 1000 * seconds, "frames": frames, "bytes": size,
        "mask_ns": {
            way: {what: series for (_, what), series in zip(STEPS, times, strict=True)}
            for way, (times, _) in results.items()
        },
        "rest": {way: more for way, (_, more) in results.items()},
    }  # fmt: skip
    print(f"written: {write_json(options.out, name, report)}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, nargs="+", required=True, metavar="FILE", help="tokenizer.json files")
    parser.add_argument("--schemas", type=int, default=20, help="schemas of each kind (20)")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help="where to write (bench/out)")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.inner:
        import stepmask

        stepmask.warm_up()
        vocabulary = stepmask.Vocabulary.from_file(options.tokenizer[0])
        print(json.dumps(measure(vocabulary, options.schemas, 3000, True)))
        return
    print("machine:", ", ".join(f"{key} {value}" for key, value in machine().items()))
    with tempfile.TemporaryDirectory() as cache:
        os.environ["STEPMASK_CACHE"] = cache
        for path in options.tokenizer:
            run_tokenizer(path.resolve(), options)


if __name__ == "__main__":
    main(sys.argv[1:])
