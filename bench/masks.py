"""How long does a mask take, cold and warm, alone and for a whole batch? stepmask beside xgrammar and llguidance.

    python bench/masks.py --tokenizer tokenizer.json [...] [--only NAME ...] [--libraries stepmask xgrammar llguidance]

All libraries get the same grammars and the same steps: texts that the grammar accepts, as the tokenizer splits them and
again one character a token. *First mask* is compile, matcher and its first mask. *Cold* steps are those of the first
sequence through a newly compiled grammar, *warm* ones those of a second sequence through the same; each from empty
caches, nothing made ahead for the vocabulary but its tables (no library of frames). With ``--repeats`` a step counts
with its fastest repeat, with ``--clock cpu`` by the time of the thread alone, for a busy machine. A *batch step* is
the masks of all rows and then one token accepted for each, rows of different grammars at different depths, all warm;
for the peers through their batch call (and in a Python loop). One thread for everything. *Evicted*: between steps an
array is streamed through the caches as a forward pass would. stepmask's batch step ends with mask ids, which is what it
ships; the peers' with dense masks, which is what they ship. Long repeats are left out of the larger batches, where a
peer's step is then nothing else, and get a batch of their own.
Prints tables, and writes bench/out/masks-TOKENIZER.json and .png.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import cases
import numpy as np
from common import OUT, Evictor, bar_plot, machine, number, summary, table, write_json
from peers import LIBRARIES
from sequences import CLOCKS, Splitter, Times, frozen, installed, measure

BATCHES = (1, 32, 256)
#: A batch slower than this is timed for fewer steps, down to `MIN_STEPS`.
PATIENCE_SECONDS = 10
MIN_STEPS = 20


def measure_batch(
    make: Callable[[Sequence[Any]], Any], rows: list[tuple[Any, list[int]]], steps: int, evict: Evictor | None
) -> list[int]:
    """Nanoseconds of whole-batch steps of `rows` (compiled grammar, script), the rows at different depths.

    A batch that is slower than `PATIENCE_SECONDS` for its untimed steps or for the timed ones is cut short there.
    """
    batch = make([compiled for compiled, _ in rows])
    # A row's first pass stops at a place of its own, so that rows of one script are not in step afterwards; its second
    # pass is whole, so everything timed is warm.
    stop = [1 + 5 * row % len(script) for row, (_, script) in enumerate(rows)]
    at = [0] * len(rows)
    tokens = np.zeros(len(rows), np.int32)
    times: list[int] = []
    untimed = 2 * max(len(script) for _, script in rows)
    patience = perf_counter_ns() + PATIENCE_SECONDS * 10**9
    while len(times) < steps and (len(times) < MIN_STEPS or perf_counter_ns() < patience):
        ended = [row for row in range(len(rows)) if at[row] == stop[row]]
        batch.restart(ended)
        for row in ended:
            at[row], stop[row] = 0, len(rows[row][1])
        for row, (_, script) in enumerate(rows):
            tokens[row] = script[at[row]]
            at[row] += 1
        if untimed > 0:
            batch.warm(tokens)
            untimed -= 1
            if untimed == 0 or perf_counter_ns() > patience:
                untimed, patience = 0, perf_counter_ns() + PATIENCE_SECONDS * 10**9
            continue
        if evict is not None:
            evict()
        start = perf_counter_ns()
        batch.step(tokens)
        times.append(perf_counter_ns() - start)
    if batch.late:
        print(f"{batch.late} of {len(times)} warm steps put a mask off", flush=True)
    return times


def batch_steps(
    made: Sequence[Any],
    results: dict[str, dict[str, Times]],
    common: Sequence[cases.Case],
    scripts: dict[str, list[list[int]]],
    options: argparse.Namespace,
) -> dict[str, dict[str, dict[str, float]]]:
    """Summaries of whole-batch steps by setting and library; `common` are the grammars that all libraries take."""
    groups = {
        "": [case for case in common if case.family != "long repeat"],
        "long repeats ": [case for case in common if case.family == "long repeat"],
    }
    evict = Evictor(options.evict_mb)
    steps: dict[str, dict[str, dict[str, float]]] = {}
    for group, members in groups.items():
        if not members:
            continue
        print(f"\n{group}batch rows: {', '.join(case.name for case in members)}", flush=True)
        for library in made:
            # Only the tokenizer's own splitting; rows of one grammar take its texts in turn.
            kinds = [(results[library.name][case.name].compiled, scripts[case.name][::2]) for case in members]
            for size in BATCHES if not group else (32,):
                numbers = range(max(size, len(kinds)))
                rows = [(kinds[i % len(kinds)][0], kinds[i % len(kinds)][1]) for i in numbers]
                chosen = [(one, texts[i // len(kinds) % len(texts)]) for i, (one, texts) in enumerate(rows)]
                # A batch of one takes each grammar in turn.
                batches = [[row] for row in chosen] if size == 1 else [chosen[:size]]
                for name, between in (("hot", None), ("evicted", evict)):
                    count = max(MIN_STEPS, (options.steps if between is None else options.steps // 5) // len(batches))
                    for way, make in library.batches.items():
                        times = [t for batch in batches for t in measure_batch(make, batch, count, between)]
                        steps.setdefault(f"{group}B={size} {name}", {})[way] = summary(times)
    return steps


def single_table(results: dict[str, dict[str, Times]], chosen: Sequence[cases.Case]) -> str:
    """One line a grammar and library: first mask in ms, masks and accept in us, cold p99 relative to stepmask's."""
    rows, refusals = [], []
    for case in chosen:
        ours = summary(results["stepmask"][case.name].cold).get("p99") if "stepmask" in results else None
        for library, by_case in results.items():
            times = by_case[case.name]
            if times.refused:
                rows.append([case.name, library, "refused", *[""] * 9])
                refusals.append(f"{library} on {case.name!r}: {times.refused}")
                continue
            cold, warm, accept = summary(times.cold), summary(times.warm), summary(times.accept)
            figures = [summary(times.first)["p50"] / 1000, *(t[k] for t in (cold, warm) for k in ("p50", "p99", "max"))]
            figures += [accept["p50"], accept["p99"]]
            ratio = f"{cold['p99'] / ours:.3g}x" if ours else ""
            rows.append([case.name, library, *map(number, figures), ratio])
    headings = [
        "grammar",
        "library",
        "first ms",
        "cold p50",
        "p99",
        "max",
        "warm p50",
        "p99",
        "max",
        "accept p50",
        "p99",
    ]
    return "\n".join([table([*headings, "cold p99 ratio"], rows), *refusals])


def batch_table(steps: dict[str, dict[str, dict[str, float]]]) -> str:
    """One line a setting and library: a whole-batch step in us, p50 relative to stepmask's."""
    rows = []
    for setting, by_library in steps.items():
        ours = by_library.get("stepmask", {}).get("p50")
        for library, times in by_library.items():
            ratio = f"{times['p50'] / ours:.3g}x" if ours else ""
            rows.append([setting, library, *(number(times[k]) for k in ("p50", "p90", "p99", "max")), ratio])
    return table(["batch step", "library", "p50 us", "p90", "p99", "max", "p50 ratio"], rows)


def run_tokenizer(path: Path, options: argparse.Namespace) -> None:
    """All measurements with one tokenizer, printed and written."""
    chosen = [case for case in cases.CASES if not options.only or case.name in options.only]
    splitter = Splitter(path)
    scripts = {case.name: [s for text in case.texts for s in splitter.scripts(text)] for case in chosen}
    made = frozen(lambda: [LIBRARIES[name](path) for name in options.libraries])
    print(f"\n{path}: {splitter.vocabulary.width:,} ids, {len(chosen)} grammars, "
          f"{sum(len(s) for one in scripts.values() for s in one):,} steps", flush=True)  # fmt: skip

    results: dict[str, dict[str, Times]] = {}
    for library in made:
        measure(library, chosen[0], scripts[chosen[0].name])  # whatever a library sets up on first use
        results[library.name] = {
            case.name: measure(library, case, scripts[case.name], options.repeats, options.clock) for case in chosen
        }
    print(single_table(results, chosen), flush=True)

    common = [case for case in chosen if not any(by_case[case.name].refused for by_case in results.values())]
    steps = batch_steps(made, results, common, scripts, options)
    print(batch_table(steps), flush=True)

    name = "masks-" + (path.parent.parent.name if path.stem == "tokenizer" else path.stem)
    report = {
        "machine": machine(), "versions": installed(), "tokenizer": name, "ids": splitter.vocabulary.width,
        "evict_mb": options.evict_mb, "repeats": options.repeats, "clock": options.clock, "batch_us": steps,
        "single_us": {
            library: {
                case: {"refused": t.refused} if t.refused else
                {k: summary(getattr(t, k)) for k in ("first", "cold", "warm", "accept")}
                for case, t in by_case.items()
            } for library, by_case in results.items()
        },
    }  # fmt: skip
    written = [write_json(options.out, name, report)]
    if not options.no_plot:
        panels = {
            f"{which} mask, p99, us": {
                library: {c: summary(getattr(t, which))["p99"] for c, t in by_case.items() if getattr(t, which)}
                for library, by_case in results.items()
            }
            for which in ("cold", "warm")
        }
        panels["whole-batch step, p50, us"] = {
            way: {setting: by_way[way]["p50"] for setting, by_way in steps.items()}
            for library in made
            for way in library.batches
        }
        written.append(
            bar_plot(options.out, name, f"{name}, {splitter.vocabulary.width:,} ids, one thread", panels, "us")
        )
    print("written: " + ", ".join(str(one) for one in written))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, nargs="+", required=True, metavar="FILE", help="tokenizer.json files")
    parser.add_argument("--libraries", nargs="+", default=list(LIBRARIES), choices=LIBRARIES)
    parser.add_argument("--only", nargs="+", metavar="GRAMMAR", help="only the grammars of these names")
    parser.add_argument("--repeats", type=int, default=1, help="sequences from empty caches; the fastest counts (1)")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="what single sequences are measured by (wall)")
    parser.add_argument("--steps", type=int, default=300, help="timed whole-batch steps of each setting (300)")
    parser.add_argument("--evict-mb", type=int, default=128, help="megabytes streamed between steps (128)")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help="where to write (bench/out)")
    parser.add_argument("--no-plot", action="store_true", help="write no plot (then matplotlib is not needed)")
    options = parser.parse_args(arguments)
    cases.check()
    unknown = set(options.only or ()) - {case.name for case in cases.CASES}
    if unknown:
        parser.error(f"unknown grammars {sorted(unknown)}; there are {[case.name for case in cases.CASES]}")
    print("machine:", ", ".join(f"{key} {value}" for key, value in machine().items()))
    print("versions:", ", ".join(f"{key} {value}" for key, value in installed().items()))
    with tempfile.TemporaryDirectory() as cache:
        os.environ["STEPMASK_CACHE"] = cache
        for path in options.tokenizer:
            run_tokenizer(path.resolve(), options)


if __name__ == "__main__":
    main(sys.argv[1:])
