"""How many ways to read a text does a sequence carry along, and what does a byte of it cost? Counted, not timed.

    python bench/ambiguity.py [--tokens N] [--seed N]

Grammars that are as ambiguous as they can be, along random texts of single-byte tokens. *Heads* are the places in
the grammar at which a sequence is at once, *work* the units of fuel that accepting a byte takes (one for each head,
call, edge and continuation looked at). Bytes at which the stack is compacted are a column of their own: it is when it
has doubled, and takes a unit for 64 of its words. Every rule stays a frame that is called. Prints a table and writes
bench/out/ambiguity.json.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from common import OUT, number, table, write_json

from stepmask.grammar.automaton import RECURSIVE
from stepmask.grammar.expression import Alternation, Bytes, Expression, Grammar, Reference, Repeat, Sequence
from stepmask.grammar.limits import Limits
from stepmask.masks.arena import ACCEPTED
from stepmask.masks.batch import Batch
from stepmask.masks.compiled import compile
from stepmask.masks.layout import B_CONFIGS, B_MOVES, CONFIG_BLOCK_HEADS, CONFIG_HEADS
from stepmask.masks.vocabulary import Vocabulary

FRAMES = Limits(max_inlined_positions=0)


@dataclass(frozen=True)
class Cost:
    """What a text cost: the most heads, and units of work a byte; the most of one at which the stack was compacted."""

    heads: int
    mean_work: float
    max_work: int
    compacting: int


def sequence(*parts: Expression | bytes) -> Sequence:
    """The parts one after the other; bytes stand for themselves, names in capitals for rules."""
    return Sequence(tuple(map(_node, parts)))


def choice(*options: Expression | bytes) -> Alternation:
    return Alternation(tuple(map(_node, options)))


def _node(part: Expression | bytes) -> Expression:
    if not isinstance(part, bytes):
        return part
    return Reference(part.decode()) if part.isupper() else Bytes(part)


def objects() -> Alternation:
    """A union of three objects that differ in their last member only; each holds another such value."""
    return choice(b"n", *(sequence(b'{"k":', b"S", b',"' + member + b'":n}') for member in (b"x", b"y", b"z")))


#: Rules, and the text to be repeated as often as it is needed (none: random texts).
CASES: dict[str, tuple[Mapping[str, Expression], bytes]] = {
    "S -> S S | a": ({"S": choice(sequence(b"S", b"S"), b"a")}, b""),
    "S -> S S S | S S | a": ({"S": choice(sequence(b"S", b"S", b"S"), sequence(b"S", b"S"), b"a")}, b""),
    "dangling else": ({"S": choice(sequence(b"i", b"S"), sequence(b"i", b"S", b"e", b"S"), b"x")}, b""),
    "dangling else, nested": ({"S": choice(sequence(b"i", b"S"), sequence(b"i", b"S", b"e", b"S"), b"x")}, b"i" * 300),
    "three objects, 12 deep": ({"S": objects()}, b'{"k":' * 12 + b"n" + b',"z":n}' * 12),
    "(foo|bar|foobar){1,1000}": ({"S": Repeat(choice(b"foo", b"bar", b"foobar"), 1, 1000)}, b"foobar"),
}


def count_heads(batch: Batch, slot: int) -> int:
    """The heads of a slot's configuration."""
    configs = batch._block.arrays[B_CONFIGS][slot]
    config = configs[batch.position(slot) % len(configs)]
    resident = batch._of_slot[slot]
    assert resident is not None
    if resident.compiled.automaton.flags & RECURSIVE and config[CONFIG_HEADS]:
        return int(config[CONFIG_BLOCK_HEADS])
    return int(config[CONFIG_HEADS])


def legal_bytes(batch: Batch, slot: int) -> list[int]:
    bits: list[int] = np.flatnonzero(np.unpackbits(batch.mask(slot).view(np.uint8), bitorder="little")[:256]).tolist()
    return bits


def measure(rules: Mapping[str, Expression], text: bytes, tokens: int = 300, seed: int = 0) -> Cost:
    """The cost of `tokens` tokens of one byte; where the text can only end it begins anew."""
    vocabulary = Vocabulary.from_bytes([bytes([b]) for b in range(256)] + [b""], eos=[256], special=[256])
    compiled = compile(Grammar("hand", "", dict(rules), "S"), vocabulary, FRAMES, use_cache=False)
    batch = Batch(vocabulary, 1, None)
    slot = batch.add(compiled)
    rng = random.Random(seed)
    row, token = np.array([slot], np.int32), np.zeros(1, np.int32)
    heads, work, compacting = 0, [], [0]
    for step in range(tokens):
        legal = legal_bytes(batch, slot)
        if not legal:
            batch.reset(slot)
            legal = legal_bytes(batch, slot)
        token[0] = text[step % len(text)] if text else rng.choice(legal)
        batch.forget_stack(slot)  # or what an equal stack did with the token would be looked up
        before, moves = batch.counters["work"], int(batch._block.arrays[B_MOVES][slot])
        if batch.advance(row, token)[0] != ACCEPTED:
            raise ValueError(f"{text!r} is not in the language")
        is_compacted = batch._block.arrays[B_MOVES][slot] != moves
        (compacting if is_compacted else work).append(batch.counters["work"] - before)
        heads = max(heads, count_heads(batch, slot))
    return Cost(heads, (sum(work) + sum(compacting)) / tokens, max(work), max(compacting))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    costs = {name: measure(*case, arguments.tokens, arguments.seed) for name, case in CASES.items()}
    rows = [[name, str(c.heads), number(c.mean_work), str(c.max_work), str(c.compacting)] for name, c in costs.items()]
    print(table(["grammar", "heads, most", "work a byte, mean", "most", "compacting"], rows))
    costs_of = {name: vars(cost) for name, cost in costs.items()}
    write_json(arguments.out, "ambiguity", {"tokens": arguments.tokens, "costs": costs_of})
    return 0


if __name__ == "__main__":
    sys.exit(main())
