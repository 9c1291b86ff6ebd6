"""JSON numbers under the numeric keywords of JSON Schema, compared by their exact decimal value (RFC 8259, section 6).

Never through a double: 9007199254740993 is not 9007199254740992, 0.3 is a multiple of 0.1, 1.0 is an integer. A number
may have zeros at the end of its fraction (1.500) and zero a minus sign (-0), as RFC 8259 has it.

Exponents. A number without constraint may have any. With one, an exponent would have to be compared with the number of
digits before it, so only those are taken that no automaton need look at. A number that satisfies the constraint without
its exponent, of which the digits before it are the mantissa, may have

* one without a minus sign, where multiplying by ten never leads from a number of this sign that satisfies the
  constraint to one that does not: no upper bound on the magnitude, nothing excluded but 0, else only integers and
  multiples;
* one with a minus sign, where dividing by ten never does: no lower bound on the magnitude but 0, no integers and no
  multiples, nothing excluded but 0. So ``minimum: 0`` alone takes both, and from 0 to 1 there is 1e-05 but no 1e0;
* none, where values are listed, or integers or multiples lie between a minimum and a maximum.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import count
from math import ceil, floor, gcd

from ..errors import GrammarTooLarge
from ..expression import Expression, Intersection, Source
from ..json_value import DEFAULT_MAX_DIGITS, number
from ..limits import DEFAULT_LIMITS, Limits
from ..simplify import place_of
from .multiples import TooManyRemainders, multiples_automaton, scaled
from .number_ranges import Exponents, Interval, interval_automaton

#: So many multiples between two bounds are listed one by one, and so many if their remainders would be too many.
_LISTED, _LISTED_IF_NEEDED = 64, 2_000
#: Constraints whose expressions are remembered.
_REMEMBERED = 1024


@dataclass(frozen=True)
class NumberConstraint:
    """What a number must be. All values are decimal numbers: their denominators have no prime factors but 2 and 5."""

    #: The value must be an integer (1.0 is one), or must be none.
    integer: bool = False
    fractional: bool = False
    minimum: Fraction | None = None
    exclusive_minimum: bool = False
    maximum: Fraction | None = None
    exclusive_maximum: bool = False
    #: The value must be a multiple of each of these, and of none of those; all are positive.
    multiples: frozenset[Fraction] = frozenset()
    non_multiples: frozenset[Fraction] = frozenset()
    #: The values allowed (None: any), and those excluded.
    allowed: frozenset[Fraction] | None = None
    excluded: frozenset[Fraction] = frozenset()

    def intersect(self, other: NumberConstraint) -> NumberConstraint:
        """What must be both."""
        minimum, without_minimum = _tighter(
            (self.minimum, self.exclusive_minimum), (other.minimum, other.exclusive_minimum), 1
        )
        maximum, without_maximum = _tighter(
            (self.maximum, self.exclusive_maximum), (other.maximum, other.exclusive_maximum), -1
        )
        allowed = self.allowed
        if other.allowed is not None:
            allowed = other.allowed if allowed is None else allowed & other.allowed
        return NumberConstraint(
            integer=self.integer or other.integer,
            fractional=self.fractional or other.fractional,
            minimum=minimum,
            exclusive_minimum=without_minimum,
            maximum=maximum,
            exclusive_maximum=without_maximum,
            multiples=self.multiples | other.multiples,
            non_multiples=self.non_multiples | other.non_multiples,
            allowed=allowed,
            excluded=self.excluded | other.excluded,
        )

    def admits(self, value: Fraction) -> bool:
        """Whether `value` satisfies the constraint."""
        is_integer = value.denominator == 1
        if (self.integer and not is_integer) or (self.fractional and is_integer):
            return False
        if self.minimum is not None and (value < self.minimum or (self.exclusive_minimum and value == self.minimum)):
            return False
        if self.maximum is not None and (value > self.maximum or (self.exclusive_maximum and value == self.maximum)):
            return False
        if any((value / step).denominator != 1 for step in self.multiples):
            return False
        if any((value / step).denominator == 1 for step in self.non_multiples):
            return False
        return value not in self.excluded and (self.allowed is None or value in self.allowed)


#: Nothing is asked.
ANY_NUMBER = NumberConstraint()


def _tighter(
    one: tuple[Fraction | None, bool], other: tuple[Fraction | None, bool], sign: int
) -> tuple[Fraction | None, bool]:
    bounds = [(sign * value, without) for value, without in (one, other) if value is not None]
    if not bounds:
        return None, False
    value, without = max(bounds)
    return sign * value, without


def number_expression(
    constraint: NumberConstraint,
    *,
    max_digits: int | None = DEFAULT_MAX_DIGITS,
    limits: Limits = DEFAULT_LIMITS,
    source: Source | None = None,
) -> Expression | None:
    """The texts of the numbers that satisfy `constraint`; None where there are none.

    Runs of digits have at most `max_digits` digits (None: any number). Raises `GrammarTooLarge` where a `multipleOf`
    (or its negation) needs more states than `limits` allows, `ValueError` for values that are no decimal numbers.
    """
    try:
        expression = _expression(constraint, max_digits, limits.max_remainder_states)
    except TooManyRemainders as error:
        message = f"a multiple of {_written(error.step)} has too many remainders to tell it from other numbers"
        raise GrammarTooLarge(message, place_of(source), limit="max_remainder_states") from None
    return expression if expression is None or source is None else replace(expression, source=source)


@lru_cache(maxsize=_REMEMBERED)
def _expression(constraint: NumberConstraint, max_digits: int | None, most_states: int) -> Expression | None:
    if constraint == ANY_NUMBER:
        return number(max_digits)
    wrong = min((*constraint.multiples, *constraint.non_multiples), default=1)
    if wrong <= 0:
        raise ValueError(f"multipleOf is a positive number, not {wrong}")
    step = _common_multiple([*constraint.multiples, *([Fraction(1)] if constraint.integer else [])])
    others = sorted({*constraint.non_multiples, *([Fraction(1)] if constraint.fractional else [])})
    if step is not None and any((step / other).denominator == 1 for other in others):
        return None
    listed: Iterable[Fraction] | None = constraint.allowed
    whole = _snapped(constraint, step)
    if listed is None and step is not None and whole.low is not None and whole.high is not None:
        size = int((whole.high - whole.low) / step) + 1
        if size <= _LISTED or (size <= _LISTED_IF_NEEDED and _remainders(step) > _LISTED):
            listed = (whole.low + i * step for i in range(size))
    if listed is not None:
        values = sorted(v for v in listed if constraint.admits(v) and _is_writable(v, max_digits))
        intervals = [Interval(value, value) for value in values]
        if not intervals:
            return None
        integer = all(value.denominator == 1 for value in values)
        return interval_automaton(intervals, integer=integer, max_digits=max_digits)[0]
    intervals = _without(whole, constraint.excluded, step)
    if not any(_holds_a_number(interval, step, others, max_digits) for interval in intervals):
        return None
    exponents: tuple[Exponents, Exponents] = ("none", "none")
    if step is None or whole.low is None or whole.high is None:
        exponents = _exponents(intervals, step, others), _exponents(_mirrored(intervals), step, others)
    integer = step is not None and step.denominator == 1
    automaton, whole_states = interval_automaton(intervals, integer=integer, max_digits=max_digits, exponents=exponents)
    operands: list[Expression] = [automaton]
    for divisor, negated in ((step, False), *((other, True) for other in others)):
        if divisor is None or (divisor == 1 and not negated):
            continue
        operand, states = multiples_automaton(divisor, negated=negated, most=most_states // whole_states)
        whole_states *= states
        operands.append(operand)
    return automaton if len(operands) == 1 else Intersection(tuple(operands))


def _common_multiple(steps: Iterable[Fraction]) -> Fraction | None:
    """The least common multiple: what is a multiple of all `steps` is one of it. None for no steps."""
    result: Fraction | None = None
    for step in steps:
        if result is None:
            result = step
        else:
            numerators = result.numerator * step.numerator // gcd(result.numerator, step.numerator)
            result = Fraction(numerators, gcd(result.denominator, step.denominator))
    return result


def _remainders(step: Fraction) -> int:
    """About as many states as the integer part of a multiple needs."""
    digits, places = scaled(step)
    return digits // gcd(digits, 10 ** (places + len(str(digits))))


def _snapped(constraint: NumberConstraint, step: Fraction | None) -> Interval:
    """From `minimum` to `maximum`, with `step` from the first multiple of it to the last."""
    low, without_low = constraint.minimum, constraint.exclusive_minimum
    high, without_high = constraint.maximum, constraint.exclusive_maximum
    if step is not None:
        if low is not None:
            first = floor(low / step) + 1 if without_low else ceil(low / step)
            low, without_low = first * step, False
        if high is not None:
            last = ceil(high / step) - 1 if without_high else floor(high / step)
            high, without_high = last * step, False
    return Interval(low, high, low is not None and without_low, high is not None and without_high)


def _is_writable(value: Fraction, max_digits: int | None) -> bool:
    """Whether `value` has a text with runs of at most `max_digits` digits."""
    return max_digits is None or (abs(value) < 10**max_digits and (value * 10**max_digits).denominator == 1)


def _without(whole: Interval, excluded: frozenset[Fraction], step: Fraction | None) -> list[Interval]:
    """`whole` cut at the `excluded` values."""
    intervals = []
    low, without_low = whole.low, whole.without_low
    for value in sorted(excluded):
        if step is not None and (value / step).denominator != 1:
            continue
        if low is not None and (value < low or (value == low and without_low)):
            continue
        if whole.high is not None and value > whole.high:
            break
        intervals.append(Interval(low, value, without_low, True))
        low, without_low = value, True
    intervals.append(Interval(low, whole.high, without_low, whole.without_high))
    return [interval for interval in intervals if not interval.is_empty]


def _mirrored(intervals: list[Interval]) -> list[Interval]:
    return [interval.mirrored() for interval in reversed(intervals)]


def _exponents(intervals: list[Interval], step: Fraction | None, others: list[Fraction]) -> Exponents:
    """What may follow a text in `intervals` that has no minus sign before it, as this module's text says."""
    parts = [part for interval in intervals if (part := interval.magnitudes())]
    if others or len(parts) > 1:
        return "none"
    if not parts:
        return "none"
    grows = parts[0].high is None or parts[0].high == 0
    shrinks = step is None and parts[0].low == 0
    return "any" if grows and shrinks else "upward" if grows else "downward" if shrinks else "none"


def _holds_a_number(interval: Interval, step: Fraction | None, others: list[Fraction], max_digits: int | None) -> bool:
    """Whether some number that can be written is in `interval`, a multiple of `step` and of none of `others`."""
    grid = step
    low, high, without_low, without_high = interval.low, interval.high, interval.without_low, interval.without_high
    if max_digits is not None:
        grid = _common_multiple([Fraction(1, 10**max_digits), *([step] if step is not None else [])])
        most = Fraction(10**max_digits)
        if low is None or low <= -most:
            low, without_low = -most, True
        if high is None or high >= most:
            high, without_high = most, True
    if grid is None:  # all decimal numbers: between any two of them is one that is no multiple
        return low is None or low != high or not any((low / other).denominator == 1 for other in others)
    first = None if low is None else floor(low / grid) + 1 if without_low else ceil(low / grid)
    last = None if high is None else ceil(high / grid) - 1 if without_high else floor(high / grid)
    periods = [(grid / other).denominator for other in others]
    if 1 in periods:
        return False
    if first is None:
        multiples: Iterable[int] = count(1) if last is None else count(last, -1)
    else:
        multiples = count(first) if last is None else range(first, last + 1)
    # Runs of integers each of which some period divides are short: at most the Jacobsthal function of their product.
    return any(all(multiple % period for period in periods) for multiple in multiples)


def _written(value: Fraction) -> str:
    """A decimal number as JSON has it."""
    digits, places = scaled(value)
    if not places:
        return str(digits)
    text = str(abs(digits)).zfill(places + 1)
    return f"{'-' * (digits < 0)}{text[:-places]}.{text[-places:]}"
