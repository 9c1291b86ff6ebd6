"""Decimal texts whose value is a multiple of a given number, as byte automata over remainders."""

from __future__ import annotations

from array import array
from fractions import Fraction
from math import gcd

from ..expression import ByteAutomaton

_ZERO, _NINE, _DOT, _MINUS, _PLUS = 0x30, 0x39, 0x2E, 0x2D, 0x2B
_EXPONENTS = (0x45, 0x65)


class TooManyRemainders(Exception):
    """The automaton for the multiples of `step` would need more states than allowed."""

    def __init__(self, step: Fraction) -> None:
        super().__init__(f"multiples of {step}")
        self.step = step


def scaled(value: Fraction) -> tuple[int, int]:
    """(n, s) with ``value == n / 10**s``, s as small as may be. Raises `ValueError` where there are none."""
    twos = fives = 0
    rest = value.denominator
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    if rest != 1:
        raise ValueError(f"{value} is not a decimal number")
    places = max(twos, fives)
    return int(value * 10**places), places


def multiples_automaton(step: Fraction, *, negated: bool, most: int) -> tuple[ByteAutomaton, int]:
    """The texts whose value is a multiple of `step` (or is not), and how many states their integer parts need.

    Loose in syntax: any minus signs before the digits, no digits at all and any exponent (behind a multiple; none where
    `negated`) are taken, and an exponent is not looked at: it is for the caller to take only those of no minus sign.

    Let ``step = modulus / 10**places``. With the integer part P read so far, t more digits to come before the point
    and `places` behind it, these must be a number congruent to ``-P * 10**(t + places)`` by the modulus, and less than
    10**(t + places). Two integer parts for which that says the same for all t are one state: the least t for which
    there is such a number, and the least such number. This is the minimal automaton (B. Alexeev, "Minimal DFA for
    testing divisibility", 2004), made without the others: factors 2 and 5 of the modulus cost few states.
    Raises `TooManyRemainders` where it has more than `most` states.
    """
    modulus, places = scaled(step)
    powers = [10**places]
    while powers[-1] < modulus:
        powers.append(10 * powers[-1])
    last = len(powers) - 1
    if modulus // gcd(modulus, powers[-1]) > most:
        raise TooManyRemainders(step)
    edges = array("i")
    final = bytearray()
    # (True, t, number) for integer parts; (False, digits still to come, number they must be) behind the point.
    number: dict[tuple[bool, int, int], int] = {(True, 0, 0): 0}
    order = [(True, 0, 0)]

    def state(key: tuple[bool, int, int]) -> int:
        found = number.get(key)
        if found is None:
            found = number[key] = len(order)
            order.append(key)
            if found >= most:
                raise TooManyRemainders(step)
        return found

    dead = (False, -1, -1)
    for at, (whole, left, wanted) in enumerate(order):  # grows while it is read
        final.append((wanted != 0 or (whole and left > 0)) == negated)
        targets = []
        for digit in range(10):
            key = dead
            if whole:
                t = max(left - 1, 0)
                rest = (wanted - digit * powers[t] if left else 10 * wanted - digit * powers[0]) % modulus
                while t < last and rest >= powers[t]:
                    rest, t = 10 * rest % modulus, t + 1
                key = (True, t, rest)
            elif left > 0:
                power = 10 ** (left - 1)
                rest = (wanted - digit * power) % modulus
                key = (False, left - 1, rest) if rest < power else dead
            elif left == 0 and digit == 0:
                key = (False, 0, 0)
            targets.append(state(key) if key != dead or negated else -1)
        _add_runs(edges, at, targets)
        if whole:
            key = (False, places, wanted) if left == 0 else dead
            if key != dead or negated:
                edges.extend((at, _DOT, _DOT, state(key)))
        if final[at] and not negated:
            for byte in _EXPONENTS:
                edges.extend((at, byte, byte, -1))
    edges.extend((0, _MINUS, _MINUS, 0))
    if not negated:
        exponent = len(order)
        final.append(1)
        for byte, last_byte in ((_PLUS, _PLUS), (_MINUS, _MINUS), (_ZERO, _NINE)):
            edges.extend((exponent, byte, last_byte, exponent))
        for i in range(3, len(edges), 4):
            if edges[i] < 0:
                edges[i] = exponent
    return ByteAutomaton(edges.tobytes(), bytes(final)), sum(whole for whole, _, _ in order)


def _add_runs(edges: array[int], source: int, targets: list[int]) -> None:
    """Edges on the ten digits, one for each run of equal targets; -1 is none."""
    begin = 0
    for digit in range(1, 11):
        if digit == 10 or targets[digit] != targets[begin]:
            if targets[begin] >= 0:
                edges.extend((source, _ZERO + begin, _ZERO + digit - 1, targets[begin]))
            begin = digit
