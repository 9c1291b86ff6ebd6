"""Random recursive grammars: every mask, whatever happened before it, is what Earley's algorithm finds."""

from __future__ import annotations

import random

import numpy as np
import pytest
from earley import Earley
from hypothesis import assume, given
from hypothesis import strategies as st
from recursive_cases import BOTH_LIMITS, FRAMES, Rules, Run, build, is_language, rules, vocabulary_for

from stepmask.grammar.errors import GrammarUnsatisfiable
from stepmask.masks.batch import Batch

SEEDS = st.integers(0, 2**32 - 1)
LIMITS = st.sampled_from(BOTH_LIMITS)


def wander(runs: list[Run], rng: random.Random, steps: int) -> None:
    """Accept, refuse, roll back, fork, reset in any order, each mask checked, some by walking the stack itself."""
    for _ in range(steps):
        at = rng.randrange(len(runs))
        run = runs[at]
        legal = run.check(directly=rng.random() < 0.3)
        assert legal or run.place.finished, run.describe()
        what = rng.random()
        if what < 0.65 and legal:
            long = [t for t in sorted(legal) if len(run.vocabulary.token(t)) > 1]
            assert run.accept(rng.choice(long if long and rng.random() < 0.6 else sorted(legal)))
        elif what < 0.72:
            refused = [t for t in range(run.vocabulary.width) if t not in legal]
            if refused:
                assert not run.accept(rng.choice(refused))
        elif what < 0.77:
            run.accept_bytes(b"".join(rng.choice((b"a", b"b", b"(", b")", b"a)")) for _ in range(rng.randint(0, 3))))
        elif what < 0.87:
            run.rollback(rng.randint(0, run.kept))
        elif what < 0.93 and run.batch.free_slots:
            runs.append(run.fork())
        elif what < 0.96:
            run.reset()
        elif what < 0.98 and len(runs) > 1:
            runs.pop(at).remove()
        else:
            run.check_allows()
    for run in runs:
        run.check()


@given(rules(tokens=True), SEEDS, LIMITS)
def test_masks_along_random_walks(found: Rules, seed: int, limits: object) -> None:
    rng = random.Random(seed)
    oracle = Earley(found, "S")
    vocabulary = vocabulary_for([found] if is_language(found) else [], rng, every_byte=rng.random() < 0.2)
    if oracle.start() is None:
        with pytest.raises(GrammarUnsatisfiable):
            build(found, vocabulary, limits)  # type: ignore[arg-type]
        return
    compiled = build(found, vocabulary, limits)  # type: ignore[arg-type]
    runs = [Run(Batch(vocabulary, 4, None, max_rollback=rng.randint(1, 8)), compiled, oracle)]
    wander(runs, rng, 14)
    fresh = runs[-1].replayed(Batch(vocabulary, 1, None))
    fresh.check()
    assert np.array_equal(fresh.batch.mask(fresh.slot), runs[-1].batch.mask(runs[-1].slot))
