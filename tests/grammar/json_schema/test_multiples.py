"""Remainder automata: as small as they can be, and their languages are those of test_numbers."""

from __future__ import annotations

from fractions import Fraction
from math import gcd

import pytest

from stepmask.grammar.json_schema.multiples import TooManyRemainders, multiples_automaton, scaled


def fewest_states(modulus: int) -> int:
    """Of an automaton for the multiples of a whole number (Alexeev, 2004, theorem 1, base 10)."""
    sizes = []
    for levels in range(len(str(modulus)) + 1):
        size = modulus // gcd(modulus, 10**levels)
        sizes.append(size + sum(10**i // gcd(10**i, modulus) for i in range(levels)))
    return min(sizes)


@pytest.mark.parametrize("modulus", [*range(1, 130), 256, 1000, 1024, 1250, 3 * 10**6, 10**30])
def test_whole_steps_need_the_fewest_states(modulus: int) -> None:
    for negated in (False, True):
        _, states = multiples_automaton(Fraction(modulus), negated=negated, most=10_000)
        assert states == fewest_states(modulus)


@pytest.mark.parametrize(
    ("step", "states"), [("0.01", 1), ("0.25", 1), ("2.5", 3), ("1.5", 3), ("0.0007", 7), ("6.75", 27)]
)
def test_places_behind_the_point_cost_integer_parts_nothing(step: str, states: int) -> None:
    assert multiples_automaton(Fraction(step), negated=False, most=1000)[1] == states


def test_limit() -> None:
    for step in ("1009", "0.1009", "1024"):
        with pytest.raises(TooManyRemainders):
            multiples_automaton(Fraction(step), negated=False, most=50)


@pytest.mark.parametrize(
    ("value", "digits", "places"), [("0", 0, 0), ("12", 12, 0), ("1e3", 1000, 0), ("0.25", 25, 2), ("-1e-3", -1, 3)]
)
def test_scaled(value: str, digits: int, places: int) -> None:
    assert scaled(Fraction(value)) == (digits, places)
