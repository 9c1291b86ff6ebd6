"""Decimal texts whose value lies in given intervals, as byte automata of few states."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..expression import ByteAutomaton
from .multiples import scaled

#: What may follow a number: no exponent, one without a minus sign, one with a minus sign, any.
Exponents = Literal["none", "upward", "downward", "any"]

_ZERO, _NINE, _DOT, _MINUS, _PLUS = 0x30, 0x39, 0x2E, 0x2D, 0x2B
_EXPONENTS = (0x45, 0x65)


@dataclass(frozen=True)
class Interval:
    """The numbers from `low` to `high` (None: without bound), each end in it or not."""

    low: Fraction | None = None
    high: Fraction | None = None
    without_low: bool = False
    without_high: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether no number is in it."""
        if self.low is None or self.high is None or self.low < self.high:
            return False
        return self.low > self.high or self.without_low or self.without_high

    def mirrored(self) -> Interval:
        """The numbers of the opposite sign."""
        low, high = (None if end is None else -end for end in (self.high, self.low))
        return Interval(low, high, self.without_high, self.without_low)

    def magnitudes(self) -> Interval | None:
        """Those from 0 on."""
        if self.low is not None and self.low >= 0:
            return self
        part = Interval(Fraction(0), self.high, False, self.without_high)
        return None if part.is_empty else part


def interval_automaton(
    intervals: list[Interval],
    *,
    integer: bool,
    max_digits: int | None,
    exponents: tuple[Exponents, Exponents] = ("none", "none"),
) -> tuple[ByteAutomaton, int]:
    """The JSON numbers in `intervals` (disjoint, ascending), and how many states their integer parts need.

    `integer`: behind the point there are only zeros, and the ends of all intervals are integers. Runs of digits have
    at most `max_digits` (None: any number of) digits. `exponents` that may follow, without a minus sign and with one;
    they are not looked at: it is for the caller to allow only those that lead out of no interval.

    Digits are read from the left beside those of the ends of the intervals. An integer part that has left all of them
    is in an interval or not by the number of digits that follow alone: such states hold the set of these numbers, as
    the bits of an integer. Behind the point, a text that has left all ends is in an interval or not for good.
    """
    builder = _Builder(integer, max_digits)
    positive = [part for interval in intervals if (part := interval.magnitudes())]
    negative = [part for interval in reversed(intervals) if (part := interval.mirrored().magnitudes())]
    first = builder.side(positive, exponents[0])
    if (negative, exponents[1]) != (positive, exponents[0]):
        second = builder.side(negative, exponents[1])
    else:
        second = first
    builder.begin(first, second)
    return ByteAutomaton(builder.edges.tobytes(), bytes(builder.final)), builder.whole_states


#: Edges out of a state that is still to be made: (lowest byte, highest, target).
_Edges = list[tuple[int, int, int]]


class _Builder:
    """Makes the states of the texts of both signs. State 0 is the start."""

    def __init__(self, integer: bool, max_digits: int | None) -> None:
        self.integer = integer
        self.max_digits = max_digits
        self.edges = array("i")
        self.final = bytearray(1)
        self.whole_states = 0
        self._tails: dict[tuple[bool, Exponents], _Tail] = {}
        self._free: dict[tuple[int, Exponents], int] = {}
        self._beyond: dict[tuple[int, Exponents], int] = {}

    def begin(self, positive: _Edges, negative: _Edges) -> None:
        """Edges of the start."""
        for low, high, target in positive:
            self.edges.extend((0, low, high, target))
        if negative:
            minus = self.state(False)
            self.edges.extend((0, _MINUS, _MINUS, minus))
            for low, high, target in negative:
                self.edges.extend((minus, low, high, target))

    def state(self, final: bool) -> int:
        """A new state."""
        self.final.append(final)
        return len(self.final) - 1

    def side(self, magnitudes: list[Interval], exponents: Exponents) -> _Edges:
        """Edges on the first digit of the texts without sign in `magnitudes`."""
        return _Side(self, magnitudes, exponents).first() if magnitudes else []

    def tail(self, zeros: bool, exponents: Exponents) -> _Tail:
        """The states behind a point from which on all digits will do, or all zeros."""
        tail = self._tails.get((zeros, exponents))
        if tail is None:
            edges, final = _tail_table(zeros, self.max_digits, exponents)
            base = len(self.final)
            self.edges.frombytes((edges + np.array((base, 0, 0, base), np.int32)).tobytes())
            self.final += final
            tail = self._tails[zeros, exponents] = _Tail(base, self.max_digits)
        return tail

    def leave(self, state: int, exponents: Exponents, *, dot: int = -1) -> None:
        """Edges that end the integer part or fraction that `state` is in: on the point, and, if final, on exponents."""
        if dot >= 0:
            self.edges.extend((state, _DOT, _DOT, dot))
        if exponents != "none" and self.final[state]:
            exponent = self.tail(self.integer, exponents).exponent
            for byte in _EXPONENTS:
                self.edges.extend((state, byte, byte, exponent))

    def free(self, counts: int, exponents: Exponents) -> int:
        """The state from which on any integer part will do of which bit `i` of `counts` is set, `i` its digits."""
        if (counts, exponents) in self._free:
            return self._free[counts, exponents]
        tail = self.tail(self.integer, exponents)
        leaving = [(_DOT, tail.behind(0))]
        if exponents != "none":
            leaving += [(byte, tail.exponent) for byte in _EXPONENTS]
        first = state = len(self.final)
        edges: list[int] = []
        while counts and (counts, exponents) not in self._free:
            self._free[counts, exponents] = state
            self.final.append(counts & 1)
            if counts & 1:
                for byte, target in leaving:
                    edges += (state, byte, byte, target)
            edges += (state, _ZERO, _NINE, state + 1)
            counts >>= 1
            state += 1
        self.whole_states += state - first
        edges[-1] = self._free[counts, exponents] if counts else -1  # of the last state
        self.edges.extend(edges if counts else edges[:-4])
        return first

    def beyond(self, digits: int, exponents: Exponents) -> int:
        """The state behind `digits` digits of a fraction, of which one more must not be zero; -1: none may follow."""
        first = before = -1
        while digits != self.max_digits:
            key = (0 if self.max_digits is None else digits, exponents)
            known = self._beyond.get(key)
            state = self.state(False) if known is None else known
            if before < 0:
                first = state
            else:
                self.edges.extend((before, _ZERO, _ZERO, state))
            if known is not None:
                break
            self._beyond[key] = before = state
            digits += 1
            self.edges.extend((state, _ZERO + 1, _NINE, self.tail(False, exponents).behind(digits)))
        return first


@dataclass(frozen=True)
class _Tail:
    """Where the states of a `_tail_table` are."""

    base: int
    max_digits: int | None

    def behind(self, digits: int) -> int:
        """The state behind the point and so many digits."""
        return self.base + (min(digits, 1) if self.max_digits is None else digits)

    @property
    def exponent(self) -> int:
        """The state behind an ``e``."""
        return self.base + (1 if self.max_digits is None else self.max_digits) + 1


@lru_cache(maxsize=256)
def _tail_table(zeros: bool, max_digits: int | None, exponents: Exponents) -> tuple[npt.NDArray[np.int32], bytes]:
    """Edges and final states: behind a point (state 0) and 1, 2, ... digits; behind an ``e``, its sign, its digits."""
    most = 1 if max_digits is None else max_digits
    edges = [(i, _ZERO, _ZERO if zeros else _NINE, i + 1) for i in range(most)]
    final = bytearray((0, *[1] * most))
    if max_digits is None:
        edges.append((1, _ZERO, _ZERO if zeros else _NINE, 1))
    if exponents != "none":
        mark, sign = most + 1, most + 2
        for byte in _EXPONENTS:
            edges += [(i, byte, byte, mark) for i in range(1, most + 1)]
        if exponents != "upward":
            edges.append((mark, _MINUS, _MINUS, sign))
        if exponents != "downward":
            edges += [(mark, _PLUS, _PLUS, sign), (mark, _ZERO, _NINE, sign + 1)]
        edges.append((sign, _ZERO, _NINE, sign + 1))
        edges += [(sign + i, _ZERO, _NINE, sign + i + 1) for i in range(1, most)]
        if max_digits is None:
            edges.append((sign + 1, _ZERO, _NINE, sign + 1))
        final += bytes((0, 0, *[1] * most))
    return np.array(edges, np.int32), bytes(final)


class _Node:
    """How the integer parts of some ends begin: by the next digit what follows, and the ends that are complete here."""

    __slots__ = ("first", "following", "past")

    def __init__(self) -> None:
        self.following: dict[int, _Node] = {}
        self.first, self.past = -1, -1


class _Side:
    """The texts of one sign. `ends` are the ends of the intervals and 0; `at[i]` and `after[i]` say whether end `i` and
    what lies between it and the next one are in an interval."""

    def __init__(self, builder: _Builder, magnitudes: list[Interval], exponents: Exponents) -> None:
        self._builder = builder
        self._exponents = exponents
        limit = None if builder.max_digits is None else 10**builder.max_digits
        ends, self._at, self._after = [Fraction(0)], [False], [False]
        for interval in magnitudes:
            assert interval.low is not None
            if interval.low != ends[-1]:
                self._add_end(ends, interval.low)
            self._at[-1] |= not interval.without_low
            if interval.high is None:
                self._after[-1] = True
            elif interval.high != interval.low:
                self._after[-1] = True
                self._add_end(ends, interval.high)
                self._at[-1] = not interval.without_high
        self._work: list[Callable[[], None]] = []
        while limit is not None and ends[-1] >= limit:  # no text goes so far
            ends.pop()
        self._floors = [end.numerator // end.denominator for end in ends]
        self._fractions = [_digits_behind_point(end) for end in ends]
        lengths = {1}
        self._trie = _Node()
        for i, floor in enumerate(self._floors):
            node, text = self._trie, str(floor)
            lengths.add(len(text))
            for digit in map(int, text):
                following = node.following.get(digit)
                if following is None:
                    following = node.following[digit] = _Node()
                node = following
            node.first, node.past = (i if node.first < 0 else node.first), i + 1
        self._lengths = sorted(lengths)
        self._plain_counts = self._counts_of_plain_lengths()

    def _add_end(self, ends: list[Fraction], end: Fraction) -> None:
        ends.append(end)
        self._at.append(False)
        self._after.append(False)

    def _counts_of_plain_lengths(self) -> int:
        """Bit n: all integer parts of n digits are in an interval, n being no length of the integer part of an end."""
        counts = 0
        for length, following in zip(self._lengths, [*self._lengths[1:], None], strict=True):
            last = bisect_right(self._floors, 10**length - 1) - 1
            if not self._after[last]:
                continue
            most = self._builder.max_digits if following is None else following - 1
            counts |= (-1 if most is None else (1 << (most + 1)) - 1) & (-1 << (length + 1))
        return counts

    def first(self) -> _Edges:
        """Edges on the first digit."""
        edges = [(_ZERO, _ZERO, self._whole(self._trie.following.pop(0), 0, 1)), *self._digit_edges(self._trie, 0, 0)]
        while self._work:
            self._work.pop()()
        return edges

    def _digit_edges(self, node: _Node, value: int, digits: int) -> _Edges:
        """Edges on one more digit of the integer part, `value` being its `digits` digits so far."""
        edges: _Edges = []
        value, digits = 10 * value, digits + 1
        counts_so_far = self._plain_counts >> digits
        begin = 1 if digits == 1 else 0
        for digit in (*sorted(node.following), 10):
            if begin < digit:
                counts = self._counts(counts_so_far, value + begin, digits)
                if counts:
                    edges.append((_ZERO + begin, _ZERO + digit - 1, self._builder.free(counts, self._exponents)))
            if digit < 10:
                target = self._whole(node.following[digit], value + digit, digits)
                edges.append((_ZERO + digit, _ZERO + digit, target))
            begin = digit + 1
        return edges

    def _counts(self, counts: int, value: int, digits: int) -> int:
        """Bit n: integer parts that begin with these `digits` digits, in which no end's begins, and have n more."""
        for length in self._lengths:
            if length >= digits:
                i = bisect_right(self._floors, value * 10 ** (length - digits)) - 1
                counts |= self._after[i] << (length - digits)
        return counts

    def _whole(self, node: _Node, value: int, digits: int) -> int:
        """The state behind `digits` digits of an integer part, with which that of some end begins."""
        builder = self._builder
        dot = -1
        if node.first >= 0:
            state = builder.state(self._holds(node.first, 0))
            if not builder.integer:
                dot = self._fraction(node.first, node.past, 0)
            elif self._at[node.first]:
                dot = builder.tail(True, self._exponents).behind(0)
        else:
            state = builder.state(self._after[bisect_right(self._floors, value) - 1])
            if builder.final[state]:
                dot = builder.tail(builder.integer, self._exponents).behind(0)
        builder.whole_states += 1
        if dot >= 0:
            builder.leave(state, self._exponents, dot=dot)
        if value and digits != builder.max_digits:
            self._work.append(partial(self._go_on, state, node, value, digits))
        return state

    def _go_on(self, state: int, node: _Node, value: int, digits: int) -> None:
        for edge in self._digit_edges(node, value, digits):
            self._builder.edges.append(state)
            self._builder.edges.extend(edge)

    def _holds(self, i: int, digits: int) -> bool:
        """Whether the number that ends `i` and later ones begin with, to `digits` digits behind the point, is in."""
        return self._at[i] if len(self._fractions[i]) <= digits else self._after[i - 1]

    def _fraction(self, i: int, past: int, digits: int) -> int:
        """The state behind `digits` digits of a fraction, with which those of ends `i` to `past` begin; -1 if there is
        none."""
        builder, exponents = self._builder, self._exponents
        if past == i + 1 and len(self._fractions[i]) <= digits:
            if self._at[i]:
                return builder.tail(not self._after[i], exponents).behind(digits)
            return builder.beyond(digits, exponents) if self._after[i] else -1
        state = builder.state(digits > 0 and self._holds(i, digits))
        builder.leave(state, exponents)
        if digits != builder.max_digits:
            self._work.append(partial(self._go_on_behind_point, state, i, past, digits))
        return state

    def _go_on_behind_point(self, state: int, i: int, past: int, digits: int) -> None:
        builder, exponents = self._builder, self._exponents
        following = [int(self._fractions[k][digits : digits + 1] or "0") for k in range(i, past)]
        begin, k = 0, i
        while begin < 10:
            digit = following[k - i] if k < past else 10
            if begin < digit and self._after[k - 1]:
                target = builder.tail(False, exponents).behind(digits + 1)
                builder.edges.extend((state, _ZERO + begin, _ZERO + digit - 1, target))
            if digit < 10:
                first = k
                while k < past and following[k - i] == digit:
                    k += 1
                target = self._fraction(first, k, digits + 1)
                if target >= 0:
                    builder.edges.extend((state, _ZERO + digit, _ZERO + digit, target))
            begin = digit + 1


def _digits_behind_point(value: Fraction) -> str:
    """The digits of the fraction of a decimal number from 0 on, without zeros at its end."""
    if value.denominator == 1:
        return ""
    digits, places = scaled(value)
    return str(digits % 10**places).zfill(places)
