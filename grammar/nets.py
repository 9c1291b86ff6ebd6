"""Rules as flat nets: every rule a net with epsilon edges, all of a grammar in a few arrays for one kernel.

What `build` does for one expression, for the rules of a grammar of frames at once and without simplifying them first:
their nodes are few and large, and literal texts stay whole. A call is a symbol of its own rule: symbol 256 + i is the
i-th rule that this rule refers to, so that a net depends on nothing but the rule.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .build import build_positions
from .errors import GrammarTooLarge
from .expression import (
    Alternation,
    ByteAutomaton,
    Bytes,
    Characters,
    Complement,
    Expression,
    Intersection,
    Machine,
    Members,
    Ranges,
    Reference,
    Repeat,
    Sequence,
)
from .limits import Limits
from .loops import is_worth_marking
from .position import Int32Array, PositionAutomaton, Uint8Array
from .remembered import Remembered
from .repeats import PART_IN_RULES
from .simplify import Simplifier, contains, place_of
from .text import is_utf8
from .utf8 import fragment


class NotFlat(Exception):
    """The rules hold something that flat nets do not have; `recursive.compile_rules` has it."""


class Apart(Exception):
    """The rule is made by itself: a repeat in it is better counted than unrolled, or it has members in any order."""


@dataclass(frozen=True, eq=False)
class _Net:
    """The net of one rule, as it is in `Nets` where it is the first."""

    body: Expression
    edges: array[int]
    skips: array[int]
    words: array[int]
    text: bytes
    n_states: int
    calls: list[str]
    loops: dict[Ranges, None]
    is_text: bool


#: Rules that are the same objects in many grammars, by identity, and their nets; both keep the rules alive.
_SHARED: Remembered[int, Expression] = Remembered(256, 1 << 20)
_NETS: Remembered[tuple[int, Limits], _Net] = Remembered(256, 1 << 20)


def share(body: Expression) -> None:
    """Say that a rule with calls is the same object in many grammars, so that its net is remembered."""
    _SHARED.add(id(body), body, 0)


class Nets:
    """The nets of rules, added one by one; net `i` has the edges, skips and words from ``edge_at[i]`` on, and so on.

    `edges`: rows (source, low, high, target); `skips`: (source, target); `words`: (source, where its bytes begin in
    `text`, how many there are, target). Of each net state 0 is the start and state 1 the end. `dead`: rules that match
    nothing but perhaps the empty string, and whether they match that; they are not called.
    """

    def __init__(self, limits: Limits, dead: Mapping[str, bool] | None = None) -> None:
        self._limits = limits
        self._dead = dead or {}
        self.edges, self.skips, self.words = array("i"), array("i"), array("i")
        self.text = bytearray()
        self.edge_at, self.skip_at, self.word_at = array("q", [0]), array("q", [0]), array("q", [0])
        self.n_states = array("q")
        #: By net: the rules that it calls, the first being symbol 256.
        self.calls: list[list[str]] = []
        #: Classes of code points that a state may loop on (see `loops`).
        self.loops: dict[Ranges, None] = {}
        #: Those of the net that is being added and are not in the arrays yet: to grow a list is several times as quick.
        self._edges: list[int] = []
        self._skips: list[int] = []
        self._words: list[int] = []
        self._count = 2
        self._symbols: dict[str, int] = {}
        self._known: dict[int, tuple[PositionAutomaton, Expression]] = {}
        self._repeated = False
        self._total = 0
        #: Whether all literal texts are valid UTF-8, each by itself.
        self.is_text = True

    def __len__(self) -> int:
        return len(self.n_states)

    def add(self, body: Expression) -> list[str]:
        """Add the net of a rule; the rules that it calls.

        Raises `Apart` (nothing is added then), `NotFlat`, `GrammarTooLarge`.
        """
        if self._dead or _SHARED.find(id(body)) is None:
            return self._add_rule(body)
        net = _NETS.find((id(body), self._limits))
        if net is None:
            net = _net_alone(body, self._limits)
            _NETS.add((id(body), self._limits), net, 0)
        self.edges += net.edges
        self.skips += net.skips
        words = net.words[:]
        for at in range(1, len(words), 4):
            words[at] += len(self.text)
        self.words += words
        self.text += net.text
        self.loops.update(net.loops)
        self.is_text = self.is_text and net.is_text
        self._count = net.n_states
        return self._added(net.calls.copy())

    def _add_rule(self, body: Expression) -> list[str]:
        self._count = 2
        self._symbols = {}
        self._repeated = False
        try:
            self._add(body, 0, 1)
        except Apart:
            self._move()
            del self.edges[self.edge_at[-1] << 2 :]
            del self.skips[self.skip_at[-1] << 1 :]
            del self.words[self.word_at[-1] << 2 :]
            raise
        self._move()
        return self._added(list(self._symbols))

    def _added(self, calls: list[str]) -> list[str]:
        """Note where the newest net ends, which makes `calls`."""
        self._total += self._count
        if self._total + len(self.text) > self._limits.max_positions:
            raise GrammarTooLarge(
                f"the rules have more than {self._limits.max_positions} positions", limit="max_positions"
            )
        self.edge_at.append(len(self.edges) >> 2)
        self.skip_at.append(len(self.skips) >> 1)
        self.word_at.append(len(self.words) >> 2)
        self.n_states.append(self._count)
        self.calls.append(calls)
        return calls

    def _move(self) -> None:
        """Move what the lists hold to the arrays."""
        for numbers, moved in ((self.edges, self._edges), (self.skips, self._skips), (self.words, self._words)):
            numbers.fromlist(moved)
            moved.clear()

    def _state(self) -> int:
        self._count += 1
        return self._count - 1

    def _add(self, node: Expression, start: int, end: int) -> None:
        """Put no edges into `start` and none out of `end`."""
        kind = type(node)
        if kind is Bytes:
            text = node.text  # type: ignore[attr-defined]
            if text:
                self._words += (start, len(self.text), len(text), end)
                self.text += text
                if not text.isascii():
                    self.is_text = self.is_text and is_utf8(text)
            else:
                self._skips += (start, end)
        elif kind is Reference:
            rule = node.rule  # type: ignore[attr-defined]
            symbol = self._symbols.get(rule)
            if symbol is None and rule in self._dead:
                if self._dead[rule]:
                    self._skips += (start, end)
                return
            if symbol is None:
                symbol = self._symbols[rule] = 256 + len(self._symbols)
            self._edges += (start, symbol, symbol, end)
        elif kind is Sequence:
            self._sequence(node.parts, start, end)  # type: ignore[attr-defined]
        elif kind is Alternation:
            for option in node.options:  # type: ignore[attr-defined]
                self._add(option, start, end)
        elif kind is Machine:
            self._machine(node, start, end)  # type: ignore[arg-type]
        elif kind is Repeat:
            self._repeat(node, start, end)  # type: ignore[arg-type]
        elif kind is Characters:
            self._characters(node, start, end)  # type: ignore[arg-type]
        elif kind is ByteAutomaton:
            edges = np.frombuffer(node.edges, np.int32).reshape(-1, 4)  # type: ignore[attr-defined]
            self._table(edges, np.frombuffer(node.final, np.uint8), start, end)  # type: ignore[attr-defined]
            self.loops.update(dict.fromkeys(node.loops))  # type: ignore[attr-defined]
        elif isinstance(node, Intersection | Complement):
            self._closed(node, start, end)
        elif kind is Members:
            raise Apart
        else:
            raise NotFlat(type(node).__name__)

    def _sequence(self, parts: tuple[Expression, ...], start: int, end: int) -> None:
        if not parts:
            self._skips += (start, end)
            return
        last = len(parts) - 1
        edges, words, symbols, text = self._edges, self._words, self._symbols, self.text
        for i, part in enumerate(parts):
            if i == last:
                to = end
            else:
                to = self._count
                self._count = to + 1
            # The commonest here, as calls cost more than all else.
            kind = type(part)
            if kind is Reference and (symbol := symbols.get(part.rule)) is not None:  # type: ignore[attr-defined]
                edges += (start, symbol, symbol, to)
            elif kind is Bytes and (word := part.text) and word.isascii():  # type: ignore[attr-defined]
                words += (start, len(text), len(word), to)
                text += word
            elif kind is Sequence:
                self._sequence(part.parts, start, to)  # type: ignore[attr-defined]
            else:
                self._add(part, start, to)
            start = to

    def _machine(self, node: Machine, start: int, end: int) -> None:
        base = self._count
        self._count += 1 + max((0, *node.sources, *node.targets, *node.finals))
        self._skips += (start, base)
        before, self._repeated = self._repeated, True
        add, sequence = self._add, self._sequence
        for source, label, target in zip(node.sources, node.labels, node.targets, strict=True):
            if type(label) is Sequence:
                sequence(label.parts, base + source, base + target)
            else:
                add(label, base + source, base + target)
        self._repeated = before
        for final in node.finals:
            self._skips += (base + final, end)

    def _repeat(self, node: Repeat, start: int, end: int) -> None:
        minimum, maximum = node.minimum, node.maximum
        most = max(minimum, maximum or 0)
        if most > self._limits.max_repeat:
            raise GrammarTooLarge(f"a repeat of {most} is too large", place_of(node.source), limit="max_repeat")
        if maximum is not None and maximum < minimum:
            return
        before, self._repeated = self._repeated, True
        at = self._state()
        self._skips += (start, at)
        size = self._count + len(self.text)
        for copy in range(most - 1 if maximum is None else most):
            if copy >= minimum:
                self._skips += (at, end)
            to = self._state()
            self._add(node.body, at, to)
            if copy == 0 and most > 1:
                size = self._count + len(self.text) - size
                if size * most > self._limits.max_unrolled_positions // PART_IN_RULES:
                    raise Apart
            at = to
        if maximum is None:
            turn = self._state()
            again = self._state() if minimum else turn
            self._skips += (at, turn)
            self._add(node.body, turn, again)
            if minimum:
                self._skips += (again, turn)
            at = again
        self._skips += (at, end)
        self._repeated = before

    def _characters(self, node: Characters, start: int, end: int) -> None:
        part = fragment(node.ranges)
        offset = self._count - 2
        self._count += part.n_states - 2
        edges = self._edges
        for source, low, high, target in part.edges:
            edges += (start if source == 0 else source + offset, low, high, end if target == 1 else target + offset)
        if self._repeated and is_worth_marking(node):
            self.loops[node.ranges] = None

    def _closed(self, node: Expression, start: int, end: int) -> None:
        """A part that is a language of its own, by its position automaton."""
        if id(node) not in self._known:
            if contains(node, Reference):
                raise NotFlat(type(node).__name__)
            positions = build_positions(Simplifier({}, self._limits).simplify(node), self._limits)
            self._known[id(node)] = positions, node  # the node is kept alive, so that no other gets its id
        part = self._known[id(node)][0]
        source = np.repeat(np.arange(part.n_states, dtype=np.int32), np.diff(part.edge_start))
        self._table(np.stack([source, part.low, part.high, part.target], axis=1), part.final, start, end)

    def _table(self, edges: Int32Array, final: Uint8Array, start: int, end: int) -> None:
        """The strings that `edges`, rows as in `self.edges`, spell from their state 0 to one that is `final`."""
        offset = self._count
        self._count += len(final)
        self._move()
        moved = edges.copy()
        moved[:, 0] += offset
        moved[:, 3] += offset
        self.edges.frombytes(moved.tobytes())
        self._skips += (start, offset)
        for state in final.nonzero()[0].tolist():
            self._skips += (state + offset, end)

    def arrays(self) -> tuple[Int32Array, Int32Array, Int32Array]:
        """Edges, skips and words as rows."""
        return (
            np.frombuffer(self.edges or array("i"), np.int32).reshape(-1, 4),
            np.frombuffer(self.skips or array("i"), np.int32).reshape(-1, 2),
            np.frombuffer(self.words or array("i"), np.int32).reshape(-1, 4),
        )


def _net_alone(body: Expression, limits: Limits) -> _Net:
    """The net of a rule by itself. Raises what `Nets.add` does."""
    nets = Nets(limits)
    calls = nets._add_rule(body)
    return _Net(
        body, nets.edges, nets.skips, nets.words, bytes(nets.text), nets.n_states[0], calls, nets.loops, nets.is_text
    )
