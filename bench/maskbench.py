"""How many real JSON schemas are enforced exactly, and what do their masks take? MaskBench, stepmask beside its peers.

    python bench/maskbench.py --tokenizer tokenizer.json [--n 500] [--libraries stepmask llguidance xgrammar ...]
    python bench/maskbench.py --tokenizer tokenizer.json --explain ID

The schemas come with valid and invalid instances (guidance-ai/jsonschemabench). A schema that has any is
  pass     every valid instance is accepted to its end and every invalid one is not;
  order    as pass, but a valid instance breaks the declared order of properties and is accepted in any order;
  over     a valid instance is accepted in neither order;    under   an invalid one is accepted;
  refused  the library says that it does not take it;        crash   anything else, no answer in time included.
A schema both over and under is counted in both. Schemas without instances are compiled only.
*First mask* (TTFM) is from the schema on: its grammar, compiled, a matcher and its mask. *Masks* (TBM) are all masks
asked for before a token of an instance, each schema's first instance finding nothing computed. Every library runs in a
process of its own, on one thread, from empty caches. The masks of the libraries are compared over the valid instances
of the schemas that all of them pass: there all take the same steps.
Reads FOLDER/data/maskbench.dev.jsonl.gz of the environment's STEPMASK_DATA unless --data names a file. Prints tables
and whether the bars are met, and writes maskbench-TOKENIZER.json and .png, and for each library the schemas that do
not pass, one a line, as maskbench-TOKENIZER-LIBRARY.jsonl.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import json
import os
import random
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import numpy as np
from common import OUT, bar_plot, machine, number, summary, table, write_json
from numpy.typing import NDArray
from peers import SCHEMA_LIBRARIES
from schema_explain import explain
from schema_replay import Outcome, Settings, Worker
from sequences import CLOCKS, installed

#: What stepmask is to reach: shares of schemas, counts, microseconds.
PASS_SHARE = 0.97
MASK_BARS = {"p50": 8, "p99": 80, "p99.9": 300}
FIRST_MASK_BARS = {"p50": 3_000, "p99": 60_000, "max": 1_000_000}
PERCENTILES = ("p50", "p90", "p99", "p99.9", "max")
SLOWEST = 12

Items = list[dict[str, Any]]


def load(path: Path, seed: int) -> Items:
    """The schemas in an order that depends on the seed alone."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        items = [json.loads(line) for line in lines]
    random.Random(seed).shuffle(items)
    return items


def replay_all(library: str, items: Items, settings: Settings, seconds: float, jobs: int) -> list[Outcome]:
    """The outcome of every schema, in their order."""
    outcomes: list[Outcome | None] = [None] * len(items)
    waiting = iter(enumerate(items))
    lock = threading.Lock()

    def work() -> None:
        worker = Worker(library, settings, seconds)
        done = 0
        while True:
            with lock:
                at, item = next(waiting, (-1, None))
            if item is None:
                break
            outcomes[at] = worker.replay(item)
            done += 1
            if done % 500 == 0:
                print(f"{library}: {at + 1} of {len(items)} schemas", file=sys.stderr, flush=True)
        worker.close()

    threads = [threading.Thread(target=work) for _ in range(min(jobs, max(1, len(items))))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [outcome for outcome in outcomes if outcome is not None]
    if len(found) < len(items):
        raise RuntimeError(f"{library}: a worker did not start")
    return found


def count(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Schemas that have instances, by what came of them; `untested refused` and `untested crash` are the others'."""
    tested = [one for one in outcomes if one.tested]
    found = collections.Counter(one.status for one in tested)
    counts = {"schemas": len(tested), "pass": found["pass"] + found["order"], "order": found["order"]}
    counts["over"] = sum(bool(one.over) for one in tested)
    counts["under"] = sum(bool(one.under) for one in tested)
    counts |= {name: found[name] for name in ("refused", "crash")}
    counts["untested"] = len(outcomes) - len(tested)
    for name in ("refused", "crash"):
        counts[f"untested {name}"] = sum(one.status == name for one in outcomes if not one.tested)
    return counts


def masks_of(outcomes: Sequence[Outcome], ids: set[str] | None = None) -> NDArray[np.int64]:
    """Nanoseconds of masks: all of them, or those of the valid instances of some schemas."""
    series = [
        masks
        for one in outcomes
        if ids is None or one.id in ids
        for masks, is_valid in zip(one.masks, one.valid, strict=True)
        if is_valid or ids is None
    ]
    return np.concatenate(series) if series else np.zeros(0, np.int64)


def first_masks(outcomes: Sequence[Outcome], ids: set[str] | None = None) -> list[int]:
    """Nanoseconds to the first mask, of all schemas that got one or of some."""
    return [one.first_mask for one in outcomes if one.first_mask is not None and (ids is None or one.id in ids)]


Results = dict[str, list[Outcome]]


def counts_table(results: Results) -> str:
    """One line a library."""
    counts = {library: count(outcomes) for library, outcomes in results.items()}
    columns = ["schemas", "pass", "order", "over", "under", "refused", "crash", "untested refused", "untested crash"]
    rows = []
    for library, found in counts.items():
        share = f"{100 * found['pass'] / max(1, found['schemas']):.1f}%"
        row = [library, *(str(found[name]) for name in columns)]
        row.insert(3, share)
        rows.append(row)
    columns.insert(2, "%")
    return table(["library", *columns], rows)


def refusals(outcomes: Sequence[Outcome]) -> list[tuple[str, int, int, str]]:
    """Refused schemas by keyword, most first: keyword, schemas with instances, without, and a message."""
    groups: dict[str, list[Outcome]] = collections.defaultdict(list)
    for one in outcomes:
        if one.status == "refused":
            groups[one.keyword or "other"].append(one)
    rows = [
        (keyword, sum(one.tested for one in group), sum(not one.tested for one in group), group[0].message)
        for keyword, group in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row[1], -row[2], row[0]))


def times_table(results: Results, common: set[str] | None) -> str:
    """First masks and masks, in microseconds; `common` limits both to what all libraries did."""
    rows = []
    for library, outcomes in results.items():
        for what, times in (("first mask", first_masks(outcomes, common)), ("mask", masks_of(outcomes, common))):
            found = summary(times)
            figures = [number(found.get(key)) for key in PERCENTILES]
            rows.append([library, what, f"{found['count']:,}", number(found.get("mean")), *figures])
    return table(["library", "us", "count", "mean", *PERCENTILES], rows)


def slowest_table(outcomes: Sequence[Outcome]) -> str:
    """The schemas with the longest first masks and with the longest masks."""
    rows = []
    first = sorted((one for one in outcomes if one.first_mask is not None), key=lambda one: -(one.first_mask or 0))
    rows += [["first mask", number((one.first_mask or 0) / 1000), one.id] for one in first[:SLOWEST]]
    longest = [(int(masks.max()), one.id) for one in outcomes for masks in one.masks if len(masks)]
    rows += [["mask", number(time / 1000), name] for time, name in sorted(longest, reverse=True)[:SLOWEST]]
    return table(["slowest of stepmask", "us", "schema"], rows)


def bars_of(outcomes: Sequence[Outcome]) -> list[tuple[str, float, float, bool]]:
    """Name, figure, what is allowed, and whether it is met."""
    counts = count(outcomes)
    bars = [(name, float(counts[name]), 0.0, counts[name] == 0) for name in ("over", "under", "crash")]
    share = counts["pass"] / max(1, counts["schemas"])
    bars.append(("share of schemas that pass, at least", share, PASS_SHARE, share >= PASS_SHARE))
    for what, times, allowed in (
        ("mask", masks_of(outcomes), MASK_BARS), ("first mask", first_masks(outcomes), FIRST_MASK_BARS),
    ):  # fmt: skip
        found = summary(times)
        if found["count"]:
            bars += [(f"{what} {key}, us", found[key], most, found[key] <= most) for key, most in allowed.items()]
    return bars


def common_ids(results: Results) -> set[str]:
    """Schemas that every library passes in declared order."""
    passed = [{one.id for one in outcomes if one.tested and one.status == "pass"} for outcomes in results.values()]
    return set.intersection(*passed)


def report(results: Results, settings: Settings, options: argparse.Namespace, schemas: int) -> None:
    """Print everything and write it."""
    print(counts_table(results), flush=True)
    for library, outcomes in results.items():
        rows = [[keyword, str(tested), str(rest), text[:90]] for keyword, tested, rest, text in refusals(outcomes)]
        if rows:
            print(f"\n{table([f'{library} refuses', 'schemas', 'untested', 'one of the messages'], rows)}")
    common = common_ids(results)
    print("\n" + times_table(results, None))
    if len(results) > 1:
        print(f"\nover the {len(common):,} schemas that all pass:\n{times_table(results, common)}")
    bars = bars_of(results["stepmask"]) if "stepmask" in results else []
    if bars:
        print("\n" + slowest_table(results["stepmask"]) + "\n")
    for name, figure, allowed, is_met in bars:
        print(f"{'met   ' if is_met else 'MISSED'}  {name}: {number(figure)}, allowed {number(allowed)}")

    path = settings.tokenizer
    name = "maskbench-" + (path.parent.parent.name if path.stem == "tokenizer" else path.stem)
    data = {
        "machine": machine(), "versions": installed(), "tokenizer": name, "schemas": schemas, "seed": options.seed,
        "clock": settings.clock, "compact": settings.compact, "common": len(common),
        "bars": [{"name": n, "figure": f, "allowed": a, "met": m} for n, f, a, m in bars],
        "libraries": {
            library: {
                "counts": count(outcomes),
                "refused": {row[0]: row[1:3] for row in refusals(outcomes)},
                "first_mask_us": summary(first_masks(outcomes)), "mask_us": summary(masks_of(outcomes)),
                "common_first_mask_us": summary(first_masks(outcomes, common)),
                "common_mask_us": summary(masks_of(outcomes, common)),
            } for library, outcomes in results.items()
        },
    }  # fmt: skip
    written = [write_json(options.out, name, data)]
    for library, outcomes in results.items():
        rows_path = options.out / f"{name}-{library.replace(', ', '-').replace(' ', '-')}.jsonl"
        failed = [one.row() for one in outcomes if one.status != "pass"]
        rows_path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in failed), encoding="utf-8")
        written.append(rows_path)
    if not options.no_plot:
        panels: dict[str, dict[str, dict[str, float]]] = {"first mask, us": {}, "mask, us": {}}
        for library, outcomes in results.items():
            for panel, times in zip(panels, (first_masks(outcomes, common), masks_of(outcomes, common)), strict=True):
                found = summary(times)
                panels[panel][library] = {key: found[key] for key in PERCENTILES if key in found}
        title = f"{name}: {len(common):,} schemas that all pass, one thread"
        written.append(bar_plot(options.out, name, title, panels, "us"))
    print("written: " + ", ".join(str(one) for one in written))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, metavar="FILE", help="a tokenizer.json (not needed for --explain)")
    parser.add_argument("--data", type=Path, metavar="FILE", help="the schemas, one a line, gzipped")
    parser.add_argument("--n", type=int, default=None, help="only so many schemas")
    parser.add_argument("--seed", type=int, default=1, help="the order in which schemas are taken (1)")
    parser.add_argument("--only", nargs="+", metavar="ID", help="only the schemas of these ids")
    parser.add_argument("--explain", nargs="+", metavar="ID", help="say what stepmask makes of these schemas, no more")
    parser.add_argument("--libraries", nargs="+", default=list(SCHEMA_LIBRARIES), choices=SCHEMA_LIBRARIES)
    parser.add_argument("--no-masks", action="store_true", help="ask for no masks, only accept: verdicts alone, fast")
    parser.add_argument("--compact", action="store_true", help="instances without spaces")
    parser.add_argument("--seconds", type=float, default=60, help="for one schema; past it counts as a crash (60)")
    parser.add_argument("--memory-gb", type=int, default=8, help="writable memory of a library's process (8)")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once; with more than one, times mean less")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="what is measured (wall)")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help="where to write (bench/out)")
    parser.add_argument("--no-plot", action="store_true", help="write no plot (then matplotlib is not needed)")
    options = parser.parse_args(arguments)
    folder = os.environ.get("STEPMASK_DATA")
    if options.data is None and folder is None:
        parser.error("name the schemas: --data FILE, or STEPMASK_DATA in the environment")
    items = load(options.data or Path(folder or "") / "data" / "maskbench.dev.jsonl.gz", options.seed)
    named = options.explain or options.only
    if named:
        unknown = set(named) - {item["id"] for item in items}
        if unknown:
            parser.error(f"unknown schemas {sorted(unknown)}")
        items = [item for item in items if item["id"] in set(named)]
    items = items[: options.n]
    if options.explain:
        print("\n\n".join(explain(item, compact=options.compact) for item in items))
        return
    if options.tokenizer is None:
        parser.error("--tokenizer is needed")
    print("machine:", ", ".join(f"{key} {value}" for key, value in machine().items()))
    print("versions:", ", ".join(f"{key} {value}" for key, value in installed().items()))
    settings = Settings(
        options.tokenizer.resolve(), not options.no_masks, options.compact, options.clock, options.memory_gb
    )
    instances = sum(len(item["tests"]) for item in items)
    print(f"{settings.tokenizer}: {len(items):,} schemas, {instances:,} instances, {options.clock} time\n", flush=True)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["STEPMASK_CACHE"] = cache
        results = {
            library: replay_all(library, items, settings, options.seconds, options.jobs)
            for library in options.libraries
        }
    report(results, settings, options, len(items))


if __name__ == "__main__":
    main(sys.argv[1:])
