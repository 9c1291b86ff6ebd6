"""Lists of members in any order: their automaton, and what a run must know of the members that were there.

The frame is a plain automaton over bytes, calls and *operations*: after the key of an option stands a symbol that reads
nothing, needs the option's bit to be clear and sets it. Its register holds the bits, and above them the number of
members as far as it matters. A list can still be completed where a condition is not violated and has room for the
members it lacks; since any other member may be added one by one, no more than that need be asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .determinize import Dfa
from .errors import GrammarUnsupported
from .expression import Alternation, Condition, Expression, Member, Members, Repeat, Sequence
from .position import Uint8Array

#: In a set of bits: members without a bit.
ANY = 64
#: Bits of a register: of members that all have one, whose number they are, and of members and their number together
#: where there are others.
MAX_MEMBER_BITS, MAX_COUNTED_BITS = 64, 62
#: The bit of members without one in `Guards.keys` and in `state_keys`, where the number of members is counted.
ANY_KEY = 62
#: In the place of how far members are counted: their number is that of the bits.
BY_BITS = -1
_NO_MAXIMUM = 1 << 62
#: More bytes than any list has.
FAR = 2**31 - 1


def as_word(bits: int) -> int:
    """A set of up to 64 bits as the number that int64 has for it."""
    return bits - (bits >> 63 << 64)


@dataclass(frozen=True)
class Operation(Expression):
    """Reads nothing; the member with this bit (`ANY`: with none) begins."""

    bit: int


@dataclass(frozen=True)
class Part(Expression):
    """`body` as a frame of its own."""

    body: Expression


class Term(NamedTuple):
    """A condition that can be met (`Condition` has the fields); without a maximum it is `_NO_MAXIMUM`."""

    required: int
    forbidden: int
    minimum: int
    maximum: int
    groups: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Guards:
    """What is asked of the register of a frame of members.

    `keys` [states] int64: the members that may begin next, a bit each; `asked` [states]: whether going on from a state
    needs one of them to be allowed. `operations`: (state, bit, target), sorted. `terms`: the conditions that can
    be met. The number of members is counted up to `most`, from bit
    `shift` of the register on; BY_BITS: that of the bits is it.
    """

    keys: npt.NDArray[np.int64]
    asked: npt.NDArray[np.bool_]
    operations: list[tuple[int, int, int]]
    terms: list[Term]
    shift: int
    most: int
    #: Byte edges, (state, target) [edges, 2], and whether the list may end before another member begins [states].
    edges: npt.NDArray[np.int64]
    ends: npt.NDArray[np.bool_]

    def costs(self, distance: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Fewest bytes from each state to the end of a member that begins next, by its bit, the last column for none.

        `distance`: fewest bytes from each state to a final one. [states, shift + 1]
        """
        found = np.full((len(self.keys), self.shift + 1), FAR, np.int64)
        for state, bit, target in self.operations:
            column = self.shift if bit == ANY else bit
            found[state, column] = min(found[state, column], distance[target])
        source, target_ = self.edges[:, 0], self.edges[:, 1]
        while len(source):
            before = found.copy()
            np.minimum.at(found, source, found[target_] + 1)
            if (found == before).all():
                break
        return np.minimum(found, FAR)

    def shortest(self, costs: npt.NDArray[np.int64]) -> int:
        """Fewest bytes of a list of at least one member."""
        between = costs[self.ends].min(axis=0, initial=FAR)
        return min((int(costs[0, i]) + self._rest(i, between) for i in range(self.shift + 1)), default=FAR)

    def _rest(self, first: int, between: npt.NDArray[np.int64]) -> int:
        """Fewest bytes that a list of one member lacks."""
        best = FAR
        bits = 0 if first == self.shift else 1 << first
        for required, forbidden, minimum, maximum, groups in self.terms:
            lacking = [bit for bit in range(self.shift) if required & ~bits & 1 << bit]
            for mask in groups:
                if not mask & bits:
                    lacking.append(min((b for b in range(self.shift) if mask & 1 << b), key=lambda b: between[b]))
            if forbidden & bits or 1 + len(lacking) > maximum:
                continue
            total = sum(int(between[bit]) for bit in lacking)
            used = bits | forbidden | sum(1 << bit for bit in lacking)
            others = [int(between[b]) for b in range(self.shift) if not used & 1 << b]
            more = max(minimum - 1 - len(lacking), 0)
            others = sorted([*others, *[int(between[self.shift])] * more])[:more]
            best = min(best, total + sum(others) if len(others) == more else FAR)
        return best


def accepts_none(node: Members) -> bool:
    """Whether the list may be empty."""
    return accepts(node, 0, 0)


def after_member(node: Members, bits: int, count: int, option: Member) -> tuple[int, int] | None:
    """The members that were there and their number after one more; None where no condition can be met then."""
    if option.bit is not None:
        if bits >> option.bit & 1:
            return None
        bits |= 1 << option.bit
    for condition in node.accept:
        lacking = (condition.required & ~bits).bit_count() + sum(not mask & bits for mask in condition.groups)
        enough = condition.maximum is None or count + 1 + lacking <= condition.maximum
        if enough and not condition.forbidden & bits:
            return bits, count + 1
    return None


def accepts(node: Members, bits: int, count: int) -> bool:
    """Whether a list of these members, so many in all, is one of `node`."""
    return any(
        not condition.required & ~bits
        and not condition.forbidden & bits
        and all(mask & bits for mask in condition.groups)
        and condition.minimum <= count
        and (condition.maximum is None or count <= condition.maximum)
        for condition in node.accept
    )


def list_of(node: Members) -> Expression:
    """The members, at least one, as an expression with `Operation` and `Part` in it."""
    item = Alternation(
        tuple(
            Sequence((option.key, Operation(ANY if option.bit is None else option.bit), Part(option.rest)))
            for option in node.options
        )
    )
    return Sequence((item, Repeat(Sequence((node.separator, item)), 0, None)))


def check_bits(node: Members) -> None:
    """Raise `GrammarUnsupported` where the register has not enough bits."""
    bits = max((option.bit + 1 for option in node.options if option.bit is not None), default=0)
    others = any(option.bit is None for option in node.options)
    most = max((_counted(condition) for condition in node.accept), default=0) if others else 0
    most_bits = MAX_COUNTED_BITS if others else MAX_MEMBER_BITS
    if bits + most.bit_length() > most_bits or min((o.bit or 0 for o in node.options), default=0) < 0:
        raise GrammarUnsupported(
            f"at most {most_bits} bits: {bits} members in any order, counted up to {most}, need more",
            node.source.place if node.source else None,
        )


def _counted(condition: Condition) -> int:
    """How far members must be counted."""
    return max(condition.minimum, 0 if condition.maximum is None else condition.maximum + 1)


def terms_of(node: Members, available: int) -> list[Term]:
    """The conditions that lists of at least one of the `available` members (a set of bits) can meet."""
    found: dict[Term, None] = {}
    keys = available & ~(1 << ANY)
    for condition in node.accept:
        maximum = _NO_MAXIMUM if condition.maximum is None else condition.maximum
        minimum = max(condition.minimum, 0)
        forbidden = condition.forbidden & keys
        others = keys & ~forbidden
        groups = tuple(mask & others for mask in condition.groups)
        if condition.required & ~others or not all(groups) or minimum > maximum:
            continue
        if condition.required.bit_count() + len(groups) > maximum:
            continue
        if maximum < 1 or (not others and not available >> ANY & 1):
            continue
        if not available >> ANY & 1 and others.bit_count() < minimum:
            continue
        found[Term(condition.required, forbidden, minimum, maximum, groups)] = None
    return list(found)


def guards_of(node: Members, dfa: Dfa, operations: dict[int, int]) -> Guards:
    """What the frame of `node` asks; `operations`: the bit of each symbol. Raises `GrammarUnsupported`."""
    alphabet = len(dfa.class_of)
    table = dfa.columns(0, alphabet).copy()
    found = []
    for symbol, bit in sorted(operations.items()):
        states = np.flatnonzero(table[:, symbol] >= 0)
        found += [(int(state), bit, int(table[state, symbol])) for state in states]
        table[:, symbol] = -1
    found.sort()
    available = 0
    begun = {target for *_, target in found}
    for state, bit, _ in found:
        available |= 1 << bit
        if state == 0 or state in begun:
            raise GrammarUnsupported("the key of a member may not be empty", node.source.place if node.source else None)
    terms = terms_of(node, available)
    others = available >> ANY & 1 != 0
    keys, ends = _next_members(table, dfa.final, found)
    # A member without a bit does no harm where no number of members is too large.
    free = others and all(term.maximum == _NO_MAXIMUM for term in terms)
    open_ = ends | (free & (keys >> ANY_KEY & 1 != 0))
    asked = ~open_
    for state in np.flatnonzero(open_ & (dfa.final != 0)).tolist():
        # It may end here; to go on may need a member all the same.
        onward = table[state][table[state] >= 0]
        asked[state] = len(onward) > 0 and not open_[onward].any()
    shift = max((bit + 1 for _, bit, _ in found if bit != ANY), default=0)
    most = max((_counted(condition) for condition in node.accept), default=0) if others else BY_BITS
    edges = np.array(sorted(_pairs(table)), np.int64).reshape(-1, 2)
    return Guards(np.where(asked, keys, -1), asked, found, terms, shift, most, edges, ends)


def _pairs(table: npt.NDArray[np.int32]) -> set[tuple[int, int]]:
    return {(s, t) for s, row in enumerate(table) for t in np.unique(row[row >= 0]).tolist()}


def _next_members(
    table: npt.NDArray[np.int32], final: Uint8Array, operations: list[tuple[int, int, int]]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """By state: the members that may begin before any other does; whether the list may end before."""
    keys = np.zeros(len(table), np.int64)
    for state, bit, _ in operations:
        keys[state] |= as_word(1 << (ANY_KEY if bit == ANY else bit))
    ends = final != 0
    source, target = np.array(sorted(_pairs(table)), np.int64).reshape(-1, 2).T
    while len(source):
        before = keys.copy(), ends.copy()
        np.bitwise_or.at(keys, source, keys[target])
        np.logical_or.at(ends, source, ends[target])
        if (before[0] == keys).all() and (before[1] == ends).all():
            break
    return keys, ends
