"""What does it take to make room in a full table of state sets? Thread time and counted work.

    python bench/lazy_room.py

Grammars that are kept as a position automaton, along random texts of letters, until the table of sets is full in the
middle of a step. *usual* is the step before; nothing else of the step differs. Prints a table and writes
bench/out/lazy_room.json.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from common import OUT, number, table, write_json

from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex
from stepmask.masks.batch import Batch
from stepmask.masks.compiled import compile
from stepmask.masks.layout import G_LAZY_CAPACITY, G_LAZY_COUNT, G_LAZY_UNUSED_COUNT
from stepmask.masks.vocabulary import Vocabulary

#: (pattern, slots)
CASES = [
    (".*[ab].{20}", 64),
    (".*[ab].{20}", 256),
    ("(?:.*[ab].{16}|.*[cd].{9}x){1,60}", 64),
    ("(?:.*[ab].{16}|.*[cd].{9}x){1,200}", 64),
]
#: Steps after which a case is given up.
MOST_STEPS = 1_000_000


def fill(pattern: str, slots: int) -> dict[str, int]:
    """Advance random letters until the table has been full: what that step took, and the one before."""
    vocabulary = Vocabulary.from_bytes([bytes([byte]) for byte in range(256)], eos=None)
    grammar = compile(regex(pattern), vocabulary, Limits(max_dfa_states=1), use_cache=False)
    batch = Batch(vocabulary, slots, None)
    rows = np.array([batch.add(grammar) for _ in range(slots)], np.int32)
    (resident,) = batch._residents.values()
    header = resident.block.header
    rng = np.random.default_rng(0)
    unused = time_ns = work = 0
    for _ in range(MOST_STEPS):
        usual_ns, usual_work = time_ns, work
        tokens = rng.integers(97, 123, slots).astype(np.int32)
        before = batch.counters["work"]
        begin = time.thread_time_ns()
        batch.advance(rows, tokens)
        time_ns = time.thread_time_ns() - begin
        work = batch.counters["work"] - before
        if header[G_LAZY_UNUSED_COUNT] > unused:
            return {
                "slots": slots,
                "words": resident.lazy_words,
                "sets": int(header[G_LAZY_CAPACITY]),
                "kept": int(header[G_LAZY_COUNT] - header[G_LAZY_UNUSED_COUNT]),
                "usual_ns": usual_ns,
                "usual_work": usual_work,
                "ns": time_ns,
                "work": work,
            }
        unused = int(header[G_LAZY_UNUSED_COUNT])
    raise RuntimeError(f"the table of {pattern} was not full after {MOST_STEPS} steps")


def main() -> int:
    results = [{"pattern": pattern, **fill(pattern, slots)} for pattern, slots in CASES]
    lines = [
        (r["pattern"], *(number(r[name]) for name in ("slots", "words", "sets", "kept", "usual_work", "work")),
         f"{r['usual_ns'] / 1e6:.2f}", f"{r['ns'] / 1e6:.2f}")
        for r in results
    ]  # fmt: skip
    head = ("pattern", "slots", "words", "sets", "kept", "usual work", "work", "usual ms", "ms")
    print(table(head, lines))
    write_json(OUT, "lazy_room", results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
