"""Conditions on names, against every set of names there is."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from stepmask.grammar.json_schema.presence import Formula, all_of, alternatives, any_of, has, lacks, settled

NAMES = "abcde"
#: More ways than formulas over so few names have.
MANY = 1_000


def random_formula(rng: random.Random, depth: int) -> Formula:
    if depth == 0 or rng.random() < 0.3:
        return (has if rng.random() < 0.7 else lacks)(rng.choice(NAMES))
    return (all_of if rng.random() < 0.5 else any_of)(random_formula(rng, depth - 1) for _ in range(rng.randint(1, 4)))


@pytest.mark.parametrize("seed", range(200))
def test_alternatives_say_the_same(seed: int) -> None:
    formula = random_formula(random.Random(seed), 3)
    found = alternatives(formula, MANY)
    assert found is not None
    for wanted in found:
        sets = [wanted.required, wanted.forbidden, *wanted.groups]
        assert sum(map(len, wanted.groups)) + len(wanted.required) == len(wanted.required.union(*wanted.groups))
        assert all(wanted.forbidden.isdisjoint(names) for names in sets if names is not wanted.forbidden)
    for size in range(len(NAMES) + 1):
        for chosen in map(frozenset, combinations(NAMES, size)):
            holds = settled(formula, {name: name in chosen for name in NAMES})
            assert holds == any(
                wanted.required <= chosen
                and chosen.isdisjoint(wanted.forbidden)
                and all(group & chosen for group in wanted.groups)
                for wanted in found
            )


def test_a_conjunction_of_pairs_is_one_way() -> None:
    """Two to the power of thirty ways, were it multiplied out."""
    pairs = [any_of((has(f"a{i}"), has(f"b{i}"))) for i in range(30)]
    found = alternatives(all_of(pairs), 1)
    assert found is not None
    assert [len(wanted.groups) for wanted in found] == [30]


def test_too_many_ways_are_not_listed() -> None:
    pairs = [any_of((lacks(f"a{i}"), lacks(f"b{i}"))) for i in range(30)]
    assert alternatives(all_of(pairs), 64) is None
