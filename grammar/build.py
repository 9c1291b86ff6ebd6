"""Expressions to position automata."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from .determinize import Dfa, determinize, positions_of_dfa
from .errors import GrammarTooLarge, GrammarUnsupported
from .expression import (
    ALL_CODE_POINTS,
    Alternation,
    ByteAutomaton,
    Bytes,
    Characters,
    Complement,
    EndAnchor,
    Expression,
    Intersection,
    Lookahead,
    Machine,
    Members,
    Reference,
    Repeat,
    Sequence,
    StartAnchor,
    Token,
)
from .limits import Limits
from .members import Operation, Part
from .position import END_SKIP, LOOKAHEAD, START_SKIP, Net, PositionAutomaton
from .product import intersection, resolve_lookaheads
from .remembered import Remembered
from .simplify import contains, place_of
from .utf8 import fragment

#: Up to so many copies of a class or literal are added one by one, about 5 us each; others by copying arrays, about
#: 40 us in all.
_FEW_COPIES = 4
#: Members of state sets visited for each position of an operand of an intersection, about 5 ns each, to have its DFA,
#: and states before that is minimal for each position. What comes of an intersection is worth more: it has grown, and
#: grows again with each further operand.
_REDUCING_WORK, _REDUCING_STATES = 64, 1
_PRODUCT_WORK, _PRODUCT_STATES = 4096, 64
#: In the alphabet of a lookahead: any symbol that is no byte.
OTHER = 256


@dataclass
class Symbols:
    """The symbols above 255 of one grammar, by number - 256: token names, called frames, operations on registers."""

    tokens: dict[str | int, int] = field(default_factory=dict)
    calls: dict[Expression, int] = field(default_factory=dict)
    operations: dict[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.tokens) + len(self.calls) + len(self.operations)

    @property
    def alphabet(self) -> int:
        return 256 + len(self)

    def token(self, name: str | int) -> int:
        """The symbol of a token."""
        return self.tokens.setdefault(name, 256 + len(self))

    def call(self, node: Expression) -> int:
        """The symbol of the call of the frame of a repeat, a rule, members or their parts; equal ones share one."""
        return self.calls.setdefault(node, 256 + len(self))

    def operation(self, bit: int) -> int:
        """The symbol of the beginning of a member with this bit."""
        return self.operations.setdefault(bit, 256 + len(self))


#: Decides on a repeat: None to unroll it, else (symbol of its call or None if it has no string but "", nullable).
#: For a reference, members and parts of them it is never None.
CallOf = Callable[[Expression], "tuple[int | None, bool] | None"]


def build_positions(
    node: Expression, limits: Limits, symbols: Symbols | None = None, call_of: CallOf | None = None
) -> PositionAutomaton:
    """The position automaton of a simplified expression.

    Without `symbols` the expression may hold no tokens; `call_of` says which repeats are calls.
    Raises `GrammarTooLarge`, `GrammarUnsupported`.
    """
    builder = _Builder(limits, symbols, call_of)
    net = builder.net
    builder.add(node, net.start, net.accept)
    return builder.positions()


class _Builder:
    """Adds expressions to a net. `add` puts no edges into its start and none out of its end."""

    def __init__(self, limits: Limits, symbols: Symbols | None, call_of: CallOf | None) -> None:
        self.net = Net()
        self._limits = limits
        self._symbols = symbols
        self._call_of = call_of
        self._lookaheads: list[Lookahead] = []

    def positions(self) -> PositionAutomaton:
        if not self._lookaheads:
            return self.net.positions(self._limits.max_positions)
        obligations = [lookahead_dfas(lookahead, self._limits) for lookahead in self._lookaheads]
        return resolve_lookaheads(self.net, obligations, OTHER, self._limits.max_product_states)

    def add(self, node: Expression, start: int, end: int) -> None:
        net = self.net
        if isinstance(node, Bytes):
            self._literal(node.text, start, end)
        elif isinstance(node, Characters):
            net.fragment(fragment(node.ranges), start, end)
        elif isinstance(node, Sequence):
            at = start
            for part in node.parts[:-1]:
                to = net.state()
                self.add(part, at, to)
                at = to
            self.add(node.parts[-1], at, end)
        elif isinstance(node, Alternation):
            for option in node.options:
                self.add(option, start, end)
        elif isinstance(node, Operation) and self._symbols is not None:
            number = self._symbols.operation(node.bit)
            net.edge(start, number, number, end)
        elif isinstance(node, Repeat | Reference | Members | Part):
            called = self._call_of(node) if self._call_of is not None else None
            if called is not None:
                symbol, nullable = called
                if symbol is not None:
                    net.edge(start, symbol, symbol, end)
                if nullable:
                    net.skip(start, end)
            elif isinstance(node, Repeat):
                self._repeat(node, start, end)
            else:
                kind = "a reference" if isinstance(node, Reference) else "a list of members"
                raise GrammarUnsupported(f"{kind} may not stand here", place_of(node.source))
        elif isinstance(node, StartAnchor):
            net.skip(start, end, START_SKIP)
        elif isinstance(node, EndAnchor):
            net.skip(start, end, END_SKIP)
        elif isinstance(node, Lookahead):
            net.skip(start, end, LOOKAHEAD + len(self._lookaheads))
            self._lookaheads.append(node)
        elif isinstance(node, Intersection | Complement):
            net.automaton(closed_positions(node, self._limits), start, end)
        elif isinstance(node, Machine):
            states = [net.state() for _ in range(1 + max((0, *node.sources, *node.targets, *node.finals)))]
            net.skip(start, states[0])
            for source, label, target in zip(node.sources, node.labels, node.targets, strict=True):
                self._edge(label, states[source], states[target])
            for final in node.finals:
                net.skip(states[final], end)
        elif isinstance(node, ByteAutomaton):
            edges = np.frombuffer(node.edges, np.int32).reshape(-1, 4)
            net.table(edges, np.frombuffer(node.final, np.uint8), start, end)
        elif isinstance(node, Token) and self._symbols is not None:
            symbol = self._symbols.token(node.name)
            net.edge(start, symbol, symbol, end)
        else:
            kind = type(node).__name__.lower()
            raise GrammarUnsupported(f"a {kind} may not stand here", place_of(node.source))

    def _edge(self, label: Expression, source: int, target: int) -> None:
        """As `add`, but the states may have edges in and out."""
        if isinstance(label, Bytes | Reference | Token):
            self.add(label, source, target)
            return
        start, end = self.net.state(), self.net.state()
        self.net.skip(source, start)
        self.add(label, start, end)
        self.net.skip(end, target)

    def _literal(self, text: bytes, start: int, end: int) -> None:
        if not text:
            self.net.skip(start, end)
            return
        for byte in text[:-1]:
            to = self.net.state()
            self.net.edge(start, byte, byte, to)
            start = to
        self.net.edge(start, text[-1], text[-1], end)

    def _repeat(self, node: Repeat, start: int, end: int) -> None:
        net = self.net
        at = net.state()
        net.skip(start, at)
        if node.maximum is None:
            if node.minimum > 1:
                at = self._copies(node.body, at, node.minimum - 1)
            turn = net.state()
            again = net.state() if node.minimum else turn
            net.skip(at, turn)
            self.add(node.body, turn, again)
            if node.minimum:
                net.skip(again, turn)
            net.skip(again, end)
            return
        if node.maximum == 1 or (node.maximum <= _FEW_COPIES and isinstance(node.body, Characters | Bytes)):
            for copy in range(node.maximum):
                if copy >= node.minimum:
                    net.skip(at, end)
                to = net.state()
                self.add(node.body, at, to)
                at = to
            net.skip(at, end)
            return
        first = at
        last = self._copies(node.body, at, node.maximum)
        net.skip(last, end)
        stride = (last - first) // node.maximum
        for copy in range(node.minimum, node.maximum):
            net.skip(first + copy * stride, end)

    def _copies(self, body: Expression, start: int, count: int) -> int:
        """`count` (at least 1) copies of `body` in a row from the newest state, `start`, on; where the last ends."""
        net = self.net
        edges, skips = len(net.source), len(net.skip_source)
        end = net.placeholder()
        self.add(body, start, end)
        return net.repeat_part(edges, skips, start, end, count)


#: Languages of their own whose automata are remembered: so many, and so many bytes of them. A schema's are asked for
#: when it is read, which tells whether it has strings, and when it is compiled, and its conditions share operands.
REMEMBERED_LANGUAGES, REMEMBERED_BYTES = 1024, 16 << 20
REMEMBERED: Remembered[tuple[Expression, Limits, bool], PositionAutomaton] = Remembered(
    REMEMBERED_LANGUAGES, REMEMBERED_BYTES
)


def closed_positions(node: Expression, limits: Limits) -> PositionAutomaton:
    """The automaton of an expression that is a language of its own: anchors and lookaheads within see only it.

    So are the operands of intersections and complements.
    """
    return _remembered(node, limits, False)


def _remembered(node: Expression, limits: Limits, reduced: bool) -> PositionAutomaton:
    """The automaton of a language of its own; `reduced`: as an operand of an intersection."""
    key = node, limits, reduced
    found = REMEMBERED.find(key)
    if found is None:
        found = _reduced(_remembered(node, limits, False)) if reduced else _closed_positions(node, limits)
        REMEMBERED.add(key, found, found.nbytes)
    return found


def _closed_positions(node: Expression, limits: Limits) -> PositionAutomaton:
    if isinstance(node, Intersection):
        operands = node.operands or (ANY_TEXT,)
        if len(operands) == 1:
            return closed_positions(operands[0], limits)
        parts = [_remembered(operand, limits, True) for operand in operands]
        try:
            return _met(parts, limits, node, smallest_first=True)
        except GrammarTooLarge:
            if len(parts) == 2:
                raise
            return _met(parts, limits, node, smallest_first=False)
    if isinstance(node, Complement):
        dfa = complement_operand(closed_positions(node.operand, limits), 256, limits, node.operand)
        # As large as the operand is allowed to be: within a code point a text is at one of 8 places.
        room = max(limits.max_product_states, 8 * dfa.n_states)
        return intersection(positions_of_dfa(dfa, complement=True), build_positions(ANY_TEXT, limits), room)
    return build_positions(node, limits)


def _met(
    parts: list[PositionAutomaton], limits: Limits, node: Expression, *, smallest_first: bool
) -> PositionAutomaton:
    """The intersection of at least two automata, two at a time. Raises `GrammarTooLarge`.

    Mostly it is best to take the smallest two: what counts far, as a bound of the length does, multiplies all that it
    is met with. Where that passes the limit, their own order may not.
    """
    waiting = [(part.n_states if smallest_first else 0, number, part) for number, part in enumerate(parts)]
    heapq.heapify(waiting)
    while True:
        _, number, left = heapq.heappop(waiting)
        result = intersection(left, heapq.heappop(waiting)[2], limits.max_product_states, place_of(node.source))
        if not waiting:
            return result
        result = _reduced(result, _PRODUCT_WORK, _PRODUCT_STATES)
        heapq.heappush(waiting, (result.n_states if smallest_first else 0, number, result))


def _reduced(
    automaton: PositionAutomaton, work: int = _REDUCING_WORK, states: int = _REDUCING_STATES
) -> PositionAutomaton:
    """The minimal DFA of an operand where that is quickly found and not larger: it makes the product smaller."""
    n = automaton.n_states
    dfa = determinize(automaton, 256, states * n, work * n)
    return automaton if dfa is None or dfa.n_states > n else positions_of_dfa(dfa)


def complement_operand(automaton: PositionAutomaton, alphabet: int, limits: Limits, node: Expression) -> Dfa:
    """The DFA of an operand that must have one. Raises `GrammarTooLarge`."""
    dfa = determinize(automaton, alphabet, limits.max_complement_states, limits.max_dfa_work)
    if dfa is None:
        what = f": {node.source}" if node.source else ""
        raise GrammarTooLarge(
            f"the operand of a complement or lookahead is too large to determinise{what}", limit="max_complement_states"
        )
    return dfa


ANY_TEXT = Repeat(Characters(ALL_CODE_POINTS), 0, None)


def lookahead_dfas(node: Lookahead, limits: Limits) -> tuple[Dfa, Dfa]:
    """DFAs over bytes and `OTHER` of the rests of a text for which a lookahead holds: at its start, and elsewhere."""
    elsewhere = _lookahead_dfa(node, limits, at_start=False)
    if not contains(node.operand, StartAnchor):
        return elsewhere, elsewhere
    return _lookahead_dfa(node, limits, at_start=True), elsewhere


def _lookahead_dfa(node: Lookahead, limits: Limits, *, at_start: bool) -> Dfa:
    builder = _Builder(limits, None, None)
    net = builder.net
    net.at_text_start = at_start
    matched = net.state()
    builder.add(node.operand, net.start, matched)
    net.skip(matched, net.accept)
    anything = net.state()
    net.skip(matched, anything)
    net.edge(anything, 0, OTHER, anything)
    net.skip(anything, net.accept)
    dfa = complement_operand(builder.positions(), OTHER + 1, limits, node)
    if not node.negative:
        return dfa
    return complement_operand(positions_of_dfa(dfa, complement=True), OTHER + 1, limits, node)
