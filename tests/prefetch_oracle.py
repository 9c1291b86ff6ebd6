"""What is learned of next tokens, and what is counted of masks made ahead, in plain Python."""

from __future__ import annotations

from dataclasses import dataclass, field

from stepmask.masks.prefetch_fields import MOST_TIMES, PLACES, SUCCESSORS

_WORD = (1 << 64) - 1


def mix(h: int, value: int) -> int:
    """`masks.lazy.mix` on unsigned words."""
    h = ((h ^ value) * -0x61C8864680B583EB) & _WORD
    h = ((h ^ (h >> 29)) * -0x4B47D0C5A6B1E0A3) & _WORD
    return h ^ (h >> 32)


def key_of(grammar: int, states: tuple[int, ...]) -> int:
    """Of a grammar's number and the states that a sequence may be in."""
    key = mix(0x13198A2E03707344, grammar)
    for state in states:
        key = mix(key, state)
    return key


def place_of(key: int) -> int:
    """The number of the place that a key has, among those that it shares it with."""
    return (key >> 1) % PLACES


@dataclass
class Sequence:
    """`expect`: the position at which a mask made ahead is its own; `made`: tokens with masks ahead, from `made_at`."""

    grammar: int = 0
    states: tuple[int, ...] = ()
    position: int = 0
    expect: int | None = None
    made: list[int] = field(default_factory=list)
    made_at: int | None = None


@dataclass
class Entry:
    """A place: whose it is, and the next tokens that are counted there, four of [token, times]."""

    key: int
    tokens: list[list[int]] = field(default_factory=lambda: [[0, 0] for _ in range(SUCCESSORS)])


@dataclass
class Foresight:
    """All of it for some sequences, by slot; those of grammar 0 are free."""

    sequences: list[Sequence]
    entries: dict[int, Entry] = field(default_factory=dict)
    hits: int = 0
    misses: int = 0
    wasted: int = 0

    def learn(self, slot: int, token: int) -> None:
        """The row is about to take this token."""
        if slot < 0 or token < 0 or not self.sequences[slot].grammar:
            return
        one = self.sequences[slot]
        one.expect = None
        if one.made_at == one.position:
            if token in one.made:
                one.expect = one.position + 1
            self.wasted += sum(other != token for other in one.made)
            one.made_at = None
        self._count(key_of(one.grammar, one.states), token)

    def _count(self, key: int, token: int) -> None:
        entry = self.entries.get(place_of(key))
        if entry is not None and entry.key | 1 != key | 1:
            # Each time that another key comes by, all that was counted is one less; what has come to nothing gives way.
            for pair in entry.tokens:
                pair[1] = max(0, pair[1] - 1)
            if any(times for _, times in entry.tokens):
                return
            entry = None
        if entry is None:
            entry = self.entries[place_of(key)] = Entry(key)
        known = [pair for pair in entry.tokens if pair[1] and pair[0] == token]
        rarest = min(entry.tokens, key=lambda pair: pair[1])
        if known:
            known[0][1] += 1
        elif rarest[1] == 0:
            rarest[:] = token, 1
        else:
            rarest[1] -= 1
        if any(times == MOST_TIMES for _, times in entry.tokens):
            for pair in entry.tokens:
                pair[1] //= 2

    def usual(self, slot: int) -> list[int]:
        """The tokens that most often came next where the sequence is, the most frequent first."""
        key = key_of(self.sequences[slot].grammar, self.sequences[slot].states)
        entry = self.entries.get(place_of(key))
        if entry is None or entry.key | 1 != key | 1:
            return []
        return [token for token, times in sorted(entry.tokens, key=lambda pair: -pair[1]) if times]

    def score(self, slot: int, *, ready: bool, pending: bool) -> None:
        """A plan found the row so."""
        if slot < 0:
            return
        one = self.sequences[slot]
        self.misses += pending
        self.hits += ready and one.expect == one.position
        one.expect = None
