"""How long does a mask of a recursive grammar take? stepmask beside xgrammar and llguidance.

    python bench/grammars.py --tokenizer tokenizer.json [...] [--only NAME ...] [--libraries stepmask xgrammar ...]

JSON, arithmetic, SQL, a C-like language and ambiguous grammars. All libraries get the same languages, in EBNF
(stepmask, xgrammar) or in Lark (stepmask lark, llguidance), and the same steps: texts of the language, as the tokenizer
splits them and again one character a token; the ambiguous ones by characters only. Each sequence starts from empty
caches, stepmask's without its library of frames (which `bench/library.py` measures).
*Compile* is from the grammar's text on, *first mask* is that, a matcher and its first mask. *Cold* steps are those of
the first sequence through a newly compiled grammar, *warm* ones those of a second sequence through the same. Every
sequence is repeated, and a step counts with its fastest repeat: what other processes took of one is left out (so does
``--clock cpu``, for a busy machine). One thread for everything. Afterwards the masks of all libraries are compared,
untimed.
Prints tables and whether the bars are met, and writes bench/out/grammars-TOKENIZER.json and .png.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import grammar_cases
import numpy as np
from cases import Case
from common import OUT, bar_plot, machine, number, summary, table, write_json
from grammar_cases import AMBIGUOUS
from numpy.typing import NDArray
from peers import GRAMMAR_LIBRARIES
from sequences import CLOCKS, PATIENCE_SECONDS, Splitter, Times, frozen, installed, measure

PEERS = ("xgrammar", "llguidance")
#: The longest that a step of an ambiguous grammar may take, mask and accepting the token.
AMBIGUOUS_STEP_US = 1000
#: How much shorter than the better peer's the longest cold mask must be.
MAX_RATIO = 5
SLOWEST = 12

Scripts = dict[str, list[list[int]]]
Results = dict[str, dict[str, Times]]
#: By library and grammar.
Differences = dict[tuple[str, str], "Difference"]


@dataclass(frozen=True)
class Bar:
    """What was wanted, in microseconds, and what came out."""

    name: str
    ours: float
    allowed: float

    @property
    def is_met(self) -> bool:
        return self.ours <= self.allowed

    def __str__(self) -> str:
        verdict = "met   " if self.is_met else "MISSED"
        return f"{verdict}  {self.name}: {number(self.ours)} us, allowed {number(self.allowed)}"


def steps_of(times: Times) -> list[int]:
    """Nanoseconds of whole steps, mask and accept, cold and warm."""
    pairs = [*zip(times.cold, times.cold_accept, strict=True), *zip(times.warm, times.accept, strict=True)]
    return [mask + accept for mask, accept in pairs]


def times_table(results: Results, chosen: Sequence[Case]) -> str:
    """One line a grammar and library: compile and first mask in ms, masks and accepts in us."""
    rows, remarks = [], []
    for case in chosen:
        for library, by_case in results.items():
            times = by_case[case.name]
            if times.cut:
                remarks.append(
                    f"{library} on {case.name!r}: cut after {PATIENCE_SECONDS} s and {len(times.cold)} masks"
                )
            if times.refused:
                rows.append([case.name, library, "refused", *[""] * 10])
                remarks.append(f"{library} on {case.name!r}: {times.refused}")
                continue
            cold, warm, accept = summary(times.cold), summary(times.warm), summary(times.cold_accept)
            figures = [summary(times.compile)["p50"] / 1000, summary(times.first)["p50"] / 1000]
            figures += [one.get(key) for one in (cold, warm) for key in ("p50", "p99", "max")]
            figures += [accept["p50"], accept["max"], summary(steps_of(times))["max"]]
            rows.append([case.name, library, *map(number, figures)])
    headings = ["grammar", "library", "compile ms", "first ms", "cold p50", "p99", "max", "warm p50", "p99", "max"]
    return "\n".join([table([*headings, "accept p50", "max", "step max"], rows), *remarks])


def slowest_table(name: str, by_case: dict[str, Times], scripts: Scripts, splitter: Splitter) -> str:
    """The slowest cold masks of a library and where they stood."""
    places = [
        (time, case, i)
        for case, times in by_case.items()
        if not times.refused
        for i, time in enumerate(times.cold)
    ]  # fmt: skip
    rows = []
    for time, case, i in sorted(places, reverse=True)[:SLOWEST]:
        script, at = next(_places(scripts[case], i))
        before = splitter.vocabulary.decode(script[:at]).decode("utf-8", "replace")
        rows.append([f"{name}: {case}", number(time / 1000), str(len(before)), repr(before[-40:])])
    return table(["slowest cold masks", "us", "after", "the text so far ends with"], rows)


def _places(scripts: Sequence[list[int]], i: int) -> Iterable[tuple[list[int], int]]:
    """The script that step i of all belongs to, and the step within it."""
    for script in scripts:
        if i < len(script):
            yield script, i
        i -= len(script)
        if i < 0:
            return


def _bits(mask: Any, width: int) -> NDArray[np.bool_]:
    words = np.ascontiguousarray(np.asarray(mask).reshape(-1)).view(np.uint8)
    return np.unpackbits(words, bitorder="little")[:width].astype(bool)


@dataclass
class Difference:
    """How the masks of a peer differ from stepmask's on a grammar, special tokens aside.

    llguidance allows one spelling only of a text that is forced, which is no matter of the language: `forced` counts
    such masks, `others` the rest, of `steps`. `example` is one of the rest, or else of the forced.
    """

    steps: int = 0
    forced: int = 0
    others: int = 0
    example: str = ""

    def __str__(self) -> str:
        forced = f"{self.forced} where the text is forced" if self.forced else ""
        return " and ".join(filter(None, (forced, f"{self.others} others" if self.others else ""))) + (
            f" of {self.steps} masks differ; {self.example}"
        )


def differences(results: Results, chosen: Sequence[Case], scripts: Scripts, splitter: Splitter) -> Differences:
    """The masks of all others beside stepmask's, for grammars that both take and that were not cut."""
    reference = results.get("stepmask", {})
    found: Differences = {}
    for case in chosen:
        for library, by_case in results.items():
            ours, theirs = reference.get(case.name), by_case[case.name]
            if ours is not None and ours is not theirs and not (ours.refused or theirs.refused or theirs.cut):
                difference = _difference(ours.compiled, theirs.compiled, scripts[case.name], splitter)
                if difference.example:
                    found[library, case.name] = difference
    return found


def _difference(ours: Any, theirs: Any, scripts: Sequence[list[int]], splitter: Splitter) -> Difference:
    vocabulary = splitter.vocabulary
    is_text = np.asarray(vocabulary.is_text, bool)
    found = Difference()
    for script in scripts:
        one, other = ours.matcher(), theirs.matcher()
        for at, token in enumerate(script):
            found.steps += 1
            mine, its = (_bits(matcher.mask(), len(is_text)) & is_text for matcher in (one, other))
            odd = np.flatnonzero(mine != its)
            if len(odd):
                is_forced = one.is_forced()
                if not found.example or (not is_forced and not found.others):
                    text = vocabulary.token(int(odd[0]))
                    found.example = f"after {vocabulary.decode(script[:at])[-30:]!r} it " + (
                        f"lacks {text!r}" if mine[odd[0]] else f"has {text!r} besides"
                    )
                    if mine[odd[0]] and not is_forced and _accepts(theirs, script[:at], splitter.in_bytes(text)):
                        found.example += ", which it accepts byte by byte"
                found.forced += is_forced
                found.others += not is_forced
            one.accept(token)
            other.accept(token)
    return found


def _accepts(compiled: Any, before: Sequence[int], rest: Sequence[int]) -> bool:
    matcher = compiled.matcher()
    return all(matcher.accept(token) for token in (*before, *rest))


def bars_of(results: Results, chosen: Sequence[Case], differing: Differences) -> list[Bar]:
    """The bars as far as what was measured decides them.

    A peer that refuses a grammar, or whose masks lack tokens of its language, is out of that comparison.
    """
    bars = []

    def takes_part(peer: str, names: Sequence[str]) -> bool:
        odd = [differing.get((peer, case)) for case in names]
        return (
            peer in results
            and not any(results[peer][case].refused for case in names)
            and not any(one is not None and one.others for one in odd)
        )

    def peers(names: Sequence[str]) -> list[dict[str, Times]]:
        return [results[peer] for peer in PEERS if takes_part(peer, names)]

    for ours in [name for name in results if name not in PEERS]:
        by_case = results[ours]
        everyday = [case.name for case in chosen if case.family != AMBIGUOUS]
        ambiguous = [case.name for case in chosen if case.family == AMBIGUOUS]
        for what, names in (("all grammars", everyday + ambiguous), ("all but the ambiguous", everyday)):
            if not names or not peers(names) or any(by_case[n].refused for n in names):
                continue
            pooled = [summary([t for n in names for t in one[n].cold]) for one in (by_case, *peers(names))]
            best = {key: min(one[key] for one in pooled[1:]) for key in ("p99", "max")}
            bars.append(Bar(f"{ours}, {what}: cold mask p99, at most the better peer's", pooled[0]["p99"], best["p99"]))
            allowed = best["max"] / MAX_RATIO
            bars.append(Bar(f"{ours}, {what}: cold mask max, at most 1/5 of theirs", pooled[0]["max"], allowed))
        for name in everyday + ambiguous:
            if peers([name]) and not by_case[name].refused:
                allowed = min(summary(one[name].cold)["p99"] for one in peers([name]))
                bars.append(Bar(f"{ours}, {name}: cold mask p99", summary(by_case[name].cold)["p99"], allowed))
        for name in ambiguous:
            if not by_case[name].refused:
                longest = summary(steps_of(by_case[name]))["max"]
                bars.append(Bar(f"{ours}, {name}: longest step, cold or warm", longest, AMBIGUOUS_STEP_US))
    return bars


def run_tokenizer(path: Path, options: argparse.Namespace) -> None:
    """All measurements with one tokenizer, printed and written."""
    chosen = [case for case in grammar_cases.CASES if not options.only or case.name in options.only]
    splitter = Splitter(path)
    scripts: Scripts = {}
    for case in chosen:
        if case.family == AMBIGUOUS:
            scripts[case.name] = [splitter.characters(text) for text in case.texts]
        else:
            scripts[case.name] = [script for text in case.texts for script in splitter.scripts(text)]
    libraries = frozen(lambda: [GRAMMAR_LIBRARIES[name](path) for name in options.libraries])
    steps = sum(len(script) for one in scripts.values() for script in one)
    print(
        f"\n{path}: {splitter.vocabulary.width:,} ids, {len(chosen)} grammars, {steps:,} steps, "
        f"{options.repeats} repeats, {options.clock} time",
        flush=True,
    )

    results: Results = {}
    for library in libraries:
        measure(library, chosen[0], scripts[chosen[0].name][:1])  # whatever a library sets up on first use
        results[library.name] = {}
        for case in chosen:
            print(f"measuring {library.name} on {case.name}", file=sys.stderr, flush=True)
            results[library.name][case.name] = measure(
                library, case, scripts[case.name], options.repeats, options.clock
            )
    print(times_table(results, chosen), flush=True)
    for library_name, by_case in results.items():
        if library_name not in PEERS:
            print("\n" + slowest_table(library_name, by_case, scripts, splitter), flush=True)
    differing = differences(results, chosen, scripts, splitter)
    masks = [f"{library} on {case!r}: {one}" for (library, case), one in differing.items()]
    print("\nmasks that are not stepmask's:\n" + ("\n".join(masks) or "none"), flush=True)
    bars = bars_of(results, chosen, differing)
    print("\n" + "\n".join(map(str, bars)), flush=True)

    name = "grammars-" + (path.parent.parent.name if path.stem == "tokenizer" else path.stem)
    report = {
        "machine": machine(), "versions": installed(), "tokenizer": name, "ids": splitter.vocabulary.width,
        "repeats": options.repeats, "clock": options.clock, "masks": masks,
        "bars": [{"name": one.name, "us": one.ours, "allowed_us": one.allowed, "met": one.is_met} for one in bars],
        "times_us": {
            library: {
                case: {"refused": times.refused} if times.refused else
                {k: summary(getattr(times, k)) for k in ("compile", "first", "cold", "cold_accept", "warm", "accept")}
                | {"step": summary(steps_of(times))}
                for case, times in by_case.items()
            } for library, by_case in results.items()
        },
    }  # fmt: skip
    written = [write_json(options.out, name, report)]
    if not options.no_plot:
        panels = {
            f"{label}, us": {
                library: {c: summary(getattr(t, which))[key] for c, t in by_case.items() if getattr(t, which)}
                for library, by_case in results.items()
            }
            for label, which, key in (
                ("first mask, p50", "first", "p50"), ("cold mask, p99", "cold", "p99"),
                ("cold mask, max", "cold", "max"), ("warm mask, p99", "warm", "p99"),
            )
        }  # fmt: skip
        title = f"{name}, {splitter.vocabulary.width:,} ids, one thread"
        written.append(bar_plot(options.out, name, title, panels, "us"))
    print("written: " + ", ".join(str(one) for one in written))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, nargs="+", required=True, metavar="FILE", help="tokenizer.json files")
    parser.add_argument("--libraries", nargs="+", default=list(GRAMMAR_LIBRARIES), choices=GRAMMAR_LIBRARIES)
    parser.add_argument("--only", nargs="+", metavar="GRAMMAR", help="only the grammars of these names")
    parser.add_argument("--repeats", type=int, default=3, help="sequences from empty caches; the fastest counts (3)")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="what is measured (wall)")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help="where to write (bench/out)")
    parser.add_argument("--no-plot", action="store_true", help="write no plot (then matplotlib is not needed)")
    options = parser.parse_args(arguments)
    grammar_cases.check()
    unknown = set(options.only or ()) - {case.name for case in grammar_cases.CASES}
    if unknown:
        parser.error(f"unknown grammars {sorted(unknown)}; there are {[case.name for case in grammar_cases.CASES]}")
    print("machine:", ", ".join(f"{key} {value}" for key, value in machine().items()))
    print("versions:", ", ".join(f"{key} {value}" for key, value in installed().items()))
    with tempfile.TemporaryDirectory() as cache:
        os.environ["STEPMASK_CACHE"] = cache
        for path in options.tokenizer:
            run_tokenizer(path.resolve(), options)


if __name__ == "__main__":
    main(sys.argv[1:])
