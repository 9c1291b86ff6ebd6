"""How many nanoseconds is a unit of fuel, with cold caches, over grammars that are hard in different ways?

    python bench/fuel.py [--tokenizer tokenizer.json] [--masks N]

Each mask is computed alone, after an array has been streamed through the caches, by random legal tokens; times are the
thread's own, each the least of three. *Off* is a grammar's median over the lowest median: within 4 the weights of the
kinds of work are right. The calibration itself (`stepmask.masks.calibration`) uses the first five grammars and a
vocabulary of its own. Prints a table and writes bench/out/fuel.json.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from common import OUT, machine, number, table, write_json

from stepmask.grammar.gbnf import gbnf
from stepmask.grammar.json_schema.front_end import json_schema
from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex
from stepmask.masks.calibration import (
    QUANTILE,
    fuel_per_microsecond,
    kinds,
    nanoseconds_per_unit,
    sample_vocabulary,
)
from stepmask.masks.compiled import compile
from stepmask.masks.vocabulary import Vocabulary
from stepmask.masks.warm_up import warm_up

#: How far apart the grammars' medians may be.
MOST_OFF = 4
LAZY = Limits(max_eager_contexts=0, max_dfa_states=1)
ON_DEMAND = Limits(max_eager_contexts=0)
_MEMBERS = {name: {"type": ["integer", "string"], "maxLength": 20} for name in ("id", "name", "note", "tag", "unit")}


def hard_grammars() -> dict[str, tuple[Any, Limits]]:
    """The kinds that are calibrated with, then others."""
    found = {name: (grammar, LAZY if name == "sets" else ON_DEMAND) for name, grammar in kinds().items()}
    found["letters of any script"] = regex(r"[\p{L}]{3,9}( [\p{L}]{1,20}){5}"), ON_DEMAND
    found["counter of code points"] = regex('"[^"\\\\]{10,300}"'), ON_DEMAND
    found["sets that grow"] = regex("(?:[^x]*[ab][^x]{12}|[^y]*[cd].{13}){2}"), LAZY
    found["any order"] = json_schema({"type": "object", "properties": _MEMBERS}, property_order="any"), ON_DEMAND
    found["left recursion"] = gbnf('root ::= root "+" term | term\nterm ::= [0-9]+ | "(" root ")" | [a-z ]+'), ON_DEMAND
    found["ambiguous"] = gbnf('root ::= root root | [a-z] | "," root | "{" root "}"'), ON_DEMAND
    return found


def measure(vocabulary: Vocabulary, masks: int) -> dict[str, list[float]]:
    """Nanoseconds per unit of each mask, by grammar."""
    return {
        name: nanoseconds_per_unit(compile(grammar, vocabulary, limits, use_cache=False), masks)
        for name, (grammar, limits) in hard_grammars().items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--masks", type=int, default=8)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    warm_up()
    vocabulary = Vocabulary.from_file(arguments.tokenizer) if arguments.tokenizer else sample_vocabulary()
    times = measure(vocabulary, arguments.masks)
    medians = {name: float(np.median(values)) for name, values in times.items() if values}
    lowest = min(medians.values())
    rows = []
    for name, median in medians.items():
        figures = (min(times[name]), median, float(np.quantile(times[name], QUANTILE)), median / lowest)
        rows.append([name, str(len(times[name])), *map(number, figures)])
    print(table(["grammar", "masks", "ns a unit, least", "median", f"p{100 * QUANTILE:.0f}", "off"], rows))
    off = max(medians.values()) / lowest
    verdict = "within" if off <= MOST_OFF else "NOT within"
    print(f"{verdict} {MOST_OFF}x: {off:.1f}; this machine's fuel in a microsecond: {fuel_per_microsecond():.0f}")
    report = {"machine": machine(), "tokens": vocabulary.size, "nanoseconds": times, "off": off}
    write_json(arguments.out, "fuel", report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
