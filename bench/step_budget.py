"""What does one bad grammar do to everybody else's step?

    python bench/step_budget.py --tokenizer tokenizer.json [--scenarios NAME ...] [--backends NAME ...] [--hard ID ...]

The bundled engine with a model that writes given texts: half of the rows unconstrained or the adversary's (an eighth),
half well-behaved structured answers. A forward pass is a real wait, in which an array is streamed through the caches;
the loop is the overlapped one.
Scenarios: *alone* (unconstrained rows only), *mix* (no adversary), *hard ID* (inputs of the file named by
STEPMASK_DATA, JSON Schemas and regular expressions, each in all of the adversary's rows), *fresh* (a schema that nobody
had before every few milliseconds), *burst* (64 distinct cold grammars at once), *long compile* (a choice of 50,000
options), *killed* (the compile service's worker, every 40 steps), *small pool* (masks of two steps, all grammars),
*texts* (all structured rows want text and log-probabilities as JSON; compared with *alone, texts*, where such rows have
no grammar: on a CPU the step samples log-probabilities, whoever wants them), *steady* (120 different well-behaved
grammars in all rows but the victims'), and *mix* and *steady* with caches that nothing evicts (*hot*).
Back ends: stepmask; without its budget; without masks made ahead; with the plain loop; without its compile service (in
threads of the same process instead); without its text process (the step loop makes the text); xgrammar and llguidance
with their calls made the way vLLM makes them (`step_engine`). Everything is sampled by the same kernel.

Prints step times, the time between two tokens of unconstrained rows, the step thread's time for grammars (by the clock,
and in every other step as processor time: `cpu`), stall amplification (the p99 between tokens over that of *alone* of
the same back end), outcomes of rows, overruns (steps whose counted work passed the budget) and the most fuel that any
step spent. p99.9 is near the maximum where there are fewer than 1,000 values. On a machine that does other things as
well only `cpu` and the counts mean anything; as its speed changes, *alone* is measured again every minute, and see
`--rounds`.
Writes bench/out/step-budget.json and .png.
`--quick` takes a few seconds and needs no tokenizer. `--check` asks of a quiet machine what is claimed: no overruns,
the budget kept in time, no victims, a warm step beside the best peer's. Everything:

    python bench/step_budget.py --tokenizer tokenizer.json --hard all --batch 64 256 --forward-ms 8 20

`--soak MINUTES` runs random requests with random faults (killed workers and text processes, bad and slow grammars,
cancelled requests) and asserts at its end that memory stays flat and that no process, file or shared memory is left.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import numpy as np
import step_cases
from common import OUT, bar_plot, machine, number, table, write_json
from sequences import Splitter, installed
from step_engine import BACK_ENDS, BackEnd
from step_scenarios import BURST, Measured, Scenario, Settings, run
from step_soak import soak

import stepmask

#: Hard inputs that are tried unless others are named: a long string, a wide choice, a late decision, much ambiguity.
HARD = ("maxLength10000", "enum5k_sharedprefix", "oneOf200_tag_last", "pat_.*[ab].{20}$")
NAMES = (
    "alone", "mix", "mix, hot", "steady", "hard", "fresh", "burst", "long compile", "killed", "small pool", "texts",
)  # fmt: skip
#: Different grammars of *steady*.
MIXED = 120
#: Steps before *steady* is timed, at least: three answers of each row.
KNOWN_WARM = 100
#: Seconds after which a control is measured again before a scenario is compared with it: the machine's speed changes.
CONTROL_AGE_S = 60
#: What --check leaves to the peers.
CHECKED = ("alone", "alone, texts", "mix", "steady", "fresh", "burst", "texts")


def scenarios(names: Sequence[str], hard: Sequence[str] | None) -> list[Scenario]:
    """Those of these names, "alone" and "mix" first."""
    wanted = {"alone", *names}
    found = [Scenario("alone", structured=False), Scenario("mix")]
    if "texts" in wanted:
        wanted.add("alone, texts")
        found.insert(1, Scenario("alone, texts", texts=True, is_free=True))
    if "hard" in wanted:
        for case in step_cases.hard(None if hard is None else list(hard)):
            found.append(Scenario(f"hard {case.name}", cases=(case,), pattern="resident"))
    burst = tuple(step_cases.fresh(10**6 + i) for i in range(BURST))
    options = "|".join(f"option{i * 7919 % 50_000:05d}x{i}" for i in range(50_000))
    wide = step_cases.StepCase("wide", "regex", options, "option00000x0")
    mixed = step_cases.mixed(MIXED)
    found += [
        Scenario("mix, hot", is_hot=True),
        Scenario("steady", known=mixed),
        Scenario("steady, hot", known=mixed, is_hot=True),
        Scenario("texts", texts=True, control="alone, texts"),
        Scenario("fresh", pattern="fresh"),
        Scenario("burst", cases=burst, pattern="burst"),
        Scenario("long compile", cases=(wide,), pattern="resident"),
        Scenario("killed", pattern="kill"),
        Scenario("small pool", cases=step_cases.MIX, pattern="resident", is_pool_small=True),
    ]
    wanted |= {"steady, hot"} if "steady" in wanted else set()
    return [one for one in found if one.name in wanted or (one.name.startswith("hard ") and "hard" in wanted)]


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Count, p50, p99, p99.9 and max, milliseconds."""
    if not seconds:
        return {"count": 0}
    p50, p99, p999 = np.percentile(1e3 * np.asarray(seconds), (50, 99, 99.9)).tolist()
    return {"count": len(seconds), "p50": p50, "p99": p99, "p99.9": p999, "max": 1e3 * max(seconds)}


def entry_of(measured: Measured, amplified: Sequence[float]) -> dict[str, Any]:
    """What is written of a scenario; `amplified`: how many times the control's p99 the victims' is, by round."""
    return {
        "step_ms": percentiles(measured.steps), "grammar_ms": percentiles(measured.grammar),
        "grammar_cpu_ms": percentiles(measured.grammar_cpu), "victims_ms": percentiles(measured.victims),
        "stall_amplification": float(np.median(amplified)) if amplified else None,
        "amplified_by_round": list(amplified), "outcomes": measured.outcomes, "overruns": measured.overruns,
        "most_fuel": measured.most_fuel, "adversary": measured.ends, "workers_killed": measured.workers_killed,
        "recorder": measured.report,
    }  # fmt: skip


def results_table(results: dict[str, dict[str, Any]]) -> str:
    """One line a scenario and back end, milliseconds."""
    kinds, keys = ("step_ms", "victims_ms", "grammar_ms", "grammar_cpu_ms"), ("p50", "p99", "p99.9", "max")
    rows = []
    for scenario, by_name in results.items():
        for name, one in by_name.items():
            cells = [number(one[kind].get(key)) for kind in kinds for key in keys]
            outcomes = "/".join(str(one["outcomes"][key]) for key in ("ready", "verified", "deferred"))
            amplification = number(one["stall_amplification"])
            ends = ", ".join(f"{count} {end}" for end, count in one["adversary"].items())
            ends += f", {one['workers_killed']} workers killed" if one["workers_killed"] else ""
            rows.append(
                [scenario, name, *cells, amplification, outcomes, str(one["overruns"]), str(one["most_fuel"]), ends]
            )
    headings = ["scenario", "back end"]
    headings += [f"{what} {key}" for what in ("step", "victims", "grammar", "cpu") for key in keys]
    return table([*headings, "amplified", "ready/verified/deferred", "overruns", "most fuel", "adversary"], rows)


def run_all(
    vocabulary: Any, split: Callable[[str], list[int]], options: argparse.Namespace, settings: Settings
) -> dict[str, dict[str, Any]]:
    """All scenarios with all back ends, which take turns, so that what is compared was measured in the same minutes."""
    chosen = scenarios(options.scenarios, options.hard)
    results: dict[str, dict[str, Any]] = {scenario.name: {} for scenario in chosen}
    back_ends: list[BackEnd] = []
    controls: dict[tuple[str, str], tuple[float, dict[str, float]]] = {}
    by_name = {scenario.name: scenario for scenario in chosen}

    def measure(scenario: Scenario, back_end: BackEnd) -> Measured:
        measured = run(back_end, scenario, split, settings)
        gc.collect()  # the engine: requests that are left in it refer to it, and its logits are 128 MB and more
        if scenario.is_control:
            controls[back_end.name, scenario.name] = time.monotonic(), percentiles(measured.victims)
        return measured

    def control_of(scenario: Scenario, back_end: BackEnd) -> dict[str, float]:
        """What it is compared with, of this minute."""
        at, control = controls[back_end.name, scenario.control]
        if options.rounds > 1 or time.monotonic() - at > CONTROL_AGE_S:
            measure(by_name[scenario.control], back_end)
            at, control = controls[back_end.name, scenario.control]
        return control

    def left_out(scenario: Scenario, back_end: BackEnd) -> bool:
        is_peers = options.check and back_end.name != "stepmask"
        return (is_peers and scenario.name not in CHECKED) or not scenario.fits(back_end)

    try:
        for name in options.backends:
            back_ends.append(BackEnd(name, vocabulary, options.tokenizer, options.budget_us))
        for scenario in chosen:
            gathered: dict[str, tuple[Measured, list[float]]] = {}
            for number in range(1 if scenario.is_control else options.rounds):
                for back_end in back_ends:
                    if left_out(scenario, back_end):
                        continue
                    control = {} if scenario.is_control else control_of(scenario, back_end)
                    found = measure(scenario, back_end)
                    measured, amplified = gathered.setdefault(back_end.name, (found, []))
                    if number:
                        measured.add(found)
                    if scenario.is_control:
                        amplified.append(1.0)
                    elif found.victims and control["count"]:
                        amplified.append(percentiles(found.victims)["p99"] / control["p99"])
            for name, (measured, amplified) in gathered.items():
                results[scenario.name][name] = entry_of(measured, amplified)
                print(f"{scenario.name}, {name}: done", flush=True)
                if options.report:
                    print(measured.report, flush=True)
    finally:
        for back_end in back_ends:
            back_end.close()
    return results


def verdicts(results: dict[str, dict[str, Any]], budget_us: float) -> str:
    """What is asked of stepmask: overruns, its grammars' time beside the budget, victims, and the steady ratio."""
    lines = []
    ours = {scenario: by_name["stepmask"] for scenario, by_name in results.items() if "stepmask" in by_name}
    if ours:
        lines.append(f"overruns in counted work: {sum(one['overruns'] for one in ours.values())}")
        for what, hot in (("hot", True), ("cold", False)):
            chosen = {scenario: one for scenario, one in ours.items() if scenario.endswith(", hot") == hot}
            for key in ("p50", "p99", "p99.9", "max"):
                values = {scenario: 1e3 * one["grammar_cpu_ms"].get(key, 0.0) for scenario, one in chosen.items()}
                if values:
                    worst = max(values, key=values.__getitem__)
                    lines.append(
                        f"grammar on the step thread, {what}, {key}: at most {values[worst]:.0f} us ({worst}), "
                        f"budget {budget_us:g} us"
                    )
        worst = max(ours, key=lambda scenario: ours[scenario]["stall_amplification"] or 0.0)
        lines.append(f"stall amplification: at most {number(ours[worst]['stall_amplification'])} ({worst})")
    steady = results.get("steady", {})
    # A peer whose grammars were not all compiled by then had fewer rows, and is no peer.
    served = 0.9 * steady["stepmask"]["outcomes"]["ready"] if "stepmask" in steady else 0
    peers = {
        name: one["grammar_ms"]["p50"]
        for name, one in steady.items()
        if not name.startswith("stepmask") and one["outcomes"]["ready"] >= served
    }
    if peers and "stepmask" in steady:
        best = min(peers, key=peers.__getitem__)
        own = steady["stepmask"]["grammar_ms"]["p50"]
        lines.append(f"{MIXED} grammars, warm: {1e3 * own:.0f} us a step, {best} {peers[best] / own:.0f} times that")
    return "\n".join(lines)


def write(results: dict[str, dict[str, Any]], options: argparse.Namespace, width: int) -> list[Path]:
    """The report and the plot."""
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
    report = {
        "machine": machine(), "versions": installed(), "ids": width, "settings": settings, "results": results,
    }  # fmt: skip
    name = f"step-budget{options.suffix}"
    written = [write_json(options.out, name, report)]
    if not options.no_plot:
        panels: dict[str, dict[str, dict[str, float]]] = {}
        titles = {
            "step, p99": "step_ms",
            "grammar on the step thread, processor time, p99": "grammar_cpu_ms",
            "between two tokens of an unconstrained row, p99": "victims_ms",
        }
        for title, kind in titles.items():
            panels[f"{title}, ms"] = {
                name: {scenario: by_name[name][kind]["p99"] for scenario, by_name in results.items() if name in by_name}
                for name in options.backends
            }
        title = (
            f"{options.batch} rows, {width:,} ids, forward {options.forward_ms:g} ms, budget {options.budget_us:g} us"
        )
        written.append(bar_plot(options.out, name, title, panels, "ms"))
    return written


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, metavar="FILE", help="a tokenizer.json")
    parser.add_argument("--backends", nargs="+", default=list(BACK_ENDS), choices=BACK_ENDS, metavar="NAME")
    parser.add_argument("--scenarios", nargs="+", default=list(NAMES), choices=NAMES, metavar="NAME")
    parser.add_argument("--hard", nargs="+", default=list(HARD), metavar="ID", help="hard inputs, or `all`")
    parser.add_argument("--batch", nargs="+", type=int, default=[64], help="rows (64); each with each forward time")
    parser.add_argument("--forward-ms", nargs="+", type=float, default=[20.0], help="forward passes, milliseconds (20)")
    parser.add_argument("--budget-us", type=float, default=200.0, help="stepmask's budget a step, microseconds (200)")
    parser.add_argument("--evict-mb", type=int, default=32, help="megabytes streamed in each forward pass (32)")
    parser.add_argument("--fresh-ms", type=float, default=5.0, help="between two fresh schemas, milliseconds (5)")
    parser.add_argument("--warm", type=int, default=100, help="untimed steps before each scenario (100)")
    parser.add_argument("--steps", type=int, help="timed steps of each scenario (1000; with --check 60, --quick 30)")
    parser.add_argument(
        "--rounds", type=int, default=1, metavar="N",
        help="each scenario so often, right after what it is compared with; the median amplification counts (1)",
    )  # fmt: skip
    parser.add_argument("--report", action="store_true", help="print the recorder's table of each run")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help="where to write (bench/out)")
    parser.add_argument("--no-plot", action="store_true", help="write no plot (then matplotlib is not needed)")
    parser.add_argument("--quick", action="store_true", help="a few seconds: 8 rows, few steps, a vocabulary of bytes")
    parser.add_argument(
        "--check", action="store_true", help="some 7 minutes: 256 rows, all hard inputs, peers in a few scenarios"
    )
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="instead: random traffic with random faults")
    options = parser.parse_args(arguments)
    if options.quick:
        options.batch, options.warm, options.forward_ms, options.evict_mb = [8], 5, [1.0], 1
    if options.check:
        options.batch, options.warm, options.forward_ms, options.hard = [256], 30, [8.0], ["all"]
        options.backends = [name for name in options.backends if not name.startswith("stepmask,")]
    options.steps = options.steps or (60 if options.check else 30 if options.quick else 1000)
    if options.hard == ["all"]:
        options.hard = None
    split: Callable[[str], list[int]]
    if options.tokenizer is not None:
        options.tokenizer = options.tokenizer.resolve()
        splitter = Splitter(options.tokenizer)
        vocabulary, split = splitter.vocabulary, lambda text: splitter.scripts(text)[0]
    elif options.quick:
        tokens = [*(bytes([byte]) for byte in range(256)), b""]
        vocabulary = stepmask.Vocabulary.from_bytes(tokens, eos=[256], special=[256])
        split = lambda text: list(text.encode())  # noqa: E731
    else:
        parser.error("--tokenizer is needed (except with --quick)")
    print("machine:", ", ".join(f"{key} {value}" for key, value in machine().items()))
    print("versions:", ", ".join(f"{key} {value}" for key, value in installed().items()))
    with tempfile.TemporaryDirectory() as cache:
        os.environ["STEPMASK_CACHE"] = cache
        stepmask.warm_up()
        if options.soak is not None:
            print(soak(vocabulary, split, 60 * options.soak, options.batch[0]))
            return
        shapes = [(batch, forward) for batch in options.batch for forward in options.forward_ms]
        for options.batch, options.forward_ms in shapes:
            options.suffix = f"-{options.batch}-{options.forward_ms:g}" if len(shapes) > 1 else ""
            settings = Settings(
                options.batch, options.forward_ms / 1e3, options.evict_mb, options.warm, options.steps,
                options.fresh_ms / 1e3, 0 if options.quick else KNOWN_WARM,
            )  # fmt: skip
            results = run_all(vocabulary, split, options, settings)
            print(f"\n{options.batch} rows, {vocabulary.width:,} ids, forward {options.forward_ms:g} ms; milliseconds")
            print(results_table(results))
            print(verdicts(results, options.budget_us))
            print("written: " + ", ".join(map(str, write(results, options, vocabulary.width))))


if __name__ == "__main__":
    main(sys.argv[1:])
