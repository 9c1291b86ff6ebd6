"""Why a text goes no further: which rules are open at a place in it, and what each of them expects there.

An Earley recogniser over the expressions of a grammar as its front end made them, so that rules have the names and
places of their text (J. Earley, "An efficient context-free parsing algorithm", 1970). It is slow and made for messages;
masks come from the automaton.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .build import build_positions, closed_positions
from .expression import (
    Alternation,
    Bytes,
    Characters,
    Complement,
    Expression,
    Grammar,
    Intersection,
    Machine,
    Members,
    Reference,
    Repeat,
    Sequence,
    Source,
    Token,
)
from .limits import DEFAULT_LIMITS, Limits
from .members import MAX_MEMBER_BITS, accepts, after_member
from .rule_graph import references
from .simplify import CONTEXTUAL, Simplifier, children
from .utf8 import fragment

#: Items that one recognition comes upon, about 2 us each. Ambiguity lets them grow as the text's length cubed.
MAX_ITEMS = 1_000_000

#: The white space of JSON, in which tabs, line ends and spaces are one thing.
_WHITE_SPACE = ((0x09, 0x0A), (0x0D, 0x0D), (0x20, 0x20))
_ALL_BITS = (1 << MAX_MEMBER_BITS) - 1
#: Edges of an automaton by state: (lowest byte, highest, target).
_Edges = Mapping[int, list[tuple[int, int, int]]]


@dataclass(frozen=True)
class Expected:
    """Something that may come next: `what` as it is written, its `place`, and the rules open around it.

    `rules` are names and after how many symbols they began, outermost first.
    """

    what: str
    place: str | None
    rules: tuple[tuple[str, int], ...]


@dataclass(frozen=True, eq=False)
class _Rest:
    """What is left of a rule: `node` as far as `state` says (bytes read, turns done, ...), and `then` after it."""

    node: Expression
    state: int
    then: _Rest | None


@dataclass(eq=False)
class _Call:
    """A rule that began at a symbol: who waits for its end. The first of these is what it is shown within."""

    rule: str
    begin: int
    waiting: list[tuple[_Rest | None, _Call]] = field(default_factory=list)
    is_empty: bool = False  # it ends where it began


def token_text(name: str | int) -> str:
    """A special token as it is shown: its text, or ``<[id]>``."""
    return name if isinstance(name, str) else f"<[{name}]>"


def token_names(grammar: Grammar) -> list[str | int]:
    """The special tokens that a grammar names, by text or id."""
    found: dict[str | int, None] = {}
    stack: list[Expression] = list(grammar.rules.values())
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            stack.extend(children(node))
            if isinstance(node, Token):
                found[node.name] = None
    return list(found)


def expected_at(
    grammar: Grammar,
    text: Iterable[int | str],
    allowed: Iterable[int | str],
    limits: Limits = DEFAULT_LIMITS,
    max_items: int = MAX_ITEMS,
) -> list[Expected] | None:
    """What may follow `text`, the beginning of a text of the grammar, with a symbol of `allowed`.

    Symbols are bytes, and special tokens as `token_text` has them.

    The rules that began last come first. None where that takes more than `max_items` items, or is nested too deeply.
    """
    try:
        recogniser = _Recogniser(grammar, limits, max_items)
        return recogniser.expected(frozenset(allowed)) if recogniser.read(text) else None
    except RecursionError:
        return None


class _Recogniser:
    def __init__(self, grammar: Grammar, limits: Limits, max_items: int) -> None:
        self._rules = grammar.rules
        self._limits = limits
        self._left = max_items
        self._rests: dict[tuple[int, int, _Rest | None], _Rest] = {}
        self._edges: dict[int, tuple[_Edges, frozenset[int]]] = {}
        self._sources: dict[int, Source | None] = {}
        self._machines: dict[int, dict[int, list[tuple[Expression, int]]]] = {}
        self._calls: dict[str, _Call] = {}  # that began here
        self._seen: set[tuple[_Rest | None, _Call]] = set()
        self._queue: list[tuple[_Rest | None, _Call]] = []
        self._at = 0
        #: Items before something that reads a byte.
        self._reading: list[tuple[_Rest, _Call]] = []
        start = grammar.rules[grammar.start]
        self._whole: Expression | None = None  # taken as one automaton
        if any(_looks_around(body) for body in self._needed(grammar.start)):
            # What an anchor or a lookahead sees is beyond its rule. No rule of such a grammar is recursive.
            self._whole = start = Simplifier(grammar.rules, limits).rule(grammar.start)
        self._start = self._calls[grammar.start] = _Call(grammar.start, 0)
        self._add(self._rest(start, 0, None), self._start)
        self._close()

    def _needed(self, start: str) -> list[Expression]:
        names = [start]
        for name in names:  # grows while it is read
            names += [other for other in references(self._rules[name]) if other not in names]
        return [self._rules[name] for name in names]

    def read(self, text: Iterable[int | str]) -> bool:
        """Read symbols. False: there are too many items."""
        for symbol in text:
            before, self._reading = self._reading, []
            self._seen, self._calls = set(), {}
            self._at += 1
            for rest, call in before:
                for target in self._targets(rest, symbol):
                    self._add(target, call)
            self._close()
            if self._left < 0:
                return False
        return self._left >= 0

    def expected(self, allowed: frozenset[int | str]) -> list[Expected]:
        found: dict[Expected, None] = {}
        for rest, call in sorted(self._reading, key=lambda item: -item[1].begin):
            if not any(self._targets(rest, symbol) for symbol in allowed):
                continue
            source = self._sources.get(id(rest.node))
            what, place = (source.text, source.place) if source else (_written(rest.node), None)
            found[Expected(what, place, self._open_rules(call))] = None
        return list(found)

    def _open_rules(self, call: _Call) -> tuple[tuple[str, int], ...]:
        """The rules around an item. What first called a rule was open before it, so this ends."""
        rules = [(call.rule, call.begin)]
        while call is not self._start:
            call = call.waiting[0][1]
            rules.append((call.rule, call.begin))
        return tuple(reversed(rules))

    # ------------------------------------------------------------------------------------------------------- items
    def _rest(self, node: Expression, state: int, then: _Rest | None, within: Expression | None = None) -> _Rest:
        key = (id(node), state, then)
        if key not in self._rests:
            self._rests[key] = _Rest(node, state, then)
            source = node.source or (self._sources.get(id(within)) if within is not None else None)
            self._sources.setdefault(id(node), source)
        return self._rests[key]

    def _add(self, rest: _Rest | None, call: _Call) -> None:
        self._left -= 1
        if (rest, call) not in self._seen:
            self._seen.add((rest, call))
            self._queue.append((rest, call))

    def _close(self) -> None:
        while self._queue and self._left >= 0:
            rest, call = self._queue.pop()
            if rest is None:
                call.is_empty = call.begin == self._at
                for waiting in call.waiting:
                    self._add(*waiting)
            else:
                self._expand(rest, call)

    def _expand(self, rest: _Rest, call: _Call) -> None:
        node, then = rest.node, rest.then
        if isinstance(node, Sequence) and node is not self._whole:
            for part in reversed(node.parts):
                then = self._rest(part, 0, then, node)
            self._add(then, call)
        elif isinstance(node, Alternation) and node is not self._whole:
            for option in node.options:
                self._add(self._rest(option, 0, then, node), call)
        elif isinstance(node, Repeat) and node is not self._whole:
            turns = rest.state
            if turns >= node.minimum:
                self._add(then, call)
            if node.maximum is None or turns < node.maximum:
                done = min(turns + 1, node.minimum) if node.maximum is None else turns + 1
                self._add(self._rest(node.body, 0, self._rest(node, done, then), node), call)
        elif isinstance(node, Members):
            # The state: 0 before any member, else one more than their bits and, above these, their number.
            written = max(rest.state - 1, 0)
            bits, count = written & _ALL_BITS, written >> MAX_MEMBER_BITS
            if accepts(node, bits, count):
                self._add(then, call)
            for option in node.options:
                after = after_member(node, bits, count, option)
                if after is not None:
                    self._sources.setdefault(id(option), option.source or self._sources.get(id(node)))
                    turn = self._rest(node, 1 + after[0] + (after[1] << MAX_MEMBER_BITS), then)
                    member = self._rest(option.key, 0, self._rest(option.rest, 0, turn, option), option)
                    self._add(self._rest(node.separator, 0, member, node) if rest.state else member, call)
        elif isinstance(node, Reference):
            self._call(node.rule, then, call)
        elif isinstance(node, Machine) and node is not self._whole:
            if rest.state in node.finals:
                self._add(then, call)
            for label, target in self._leaving(node).get(rest.state, ()):
                self._add(self._rest(label, 0, self._rest(node, target, then), node), call)
        elif isinstance(node, Bytes):
            if rest.state == len(node.text):
                self._add(then, call)
            else:
                self._reading.append((rest, call))
        else:
            self._reading.append((rest, call))
            if not isinstance(node, Token) and rest.state in self._automaton(node)[1]:
                self._add(then, call)

    def _leaving(self, node: Machine) -> Mapping[int, list[tuple[Expression, int]]]:
        """The edges of a machine by the state they leave."""
        found = self._machines.get(id(node))
        if found is None:
            found = self._machines[id(node)] = {}
            for source, label, target in zip(node.sources, node.labels, node.targets, strict=True):
                found.setdefault(source, []).append((label, target))
        return found

    def _call(self, rule: str, then: _Rest | None, caller: _Call) -> None:
        call = self._calls.get(rule)
        if call is None:
            call = self._calls[rule] = _Call(rule, self._at)
            self._add(self._rest(self._rules[rule], 0, None), call)
        call.waiting.append((then, caller))
        if call.is_empty:
            self._add(then, caller)

    def _targets(self, rest: _Rest, symbol: int | str) -> list[_Rest | None]:
        """What is left after a symbol; nothing where it may not come next."""
        node, state, then = rest.node, rest.state, rest.then
        if isinstance(node, Bytes):
            return [self._rest(node, state + 1, then)] if node.text[state] == symbol else []
        if isinstance(node, Token):
            return [then] if token_text(node.name) == symbol else []
        if isinstance(symbol, str):
            return []
        edges = self._automaton(node)[0].get(state, ())
        return [self._rest(node, target, then) for low, high, target in edges if low <= symbol <= high]

    def _automaton(self, node: Expression) -> tuple[_Edges, frozenset[int]]:
        """Edges and final states of a character, or of an operation on regular languages."""
        found = self._edges.get(id(node))
        if found is None:
            edges: dict[int, list[tuple[int, int, int]]] = {}
            if isinstance(node, Characters):
                final = frozenset((1,))
                for state, low, high, target in fragment(node.ranges).edges:
                    edges.setdefault(state, []).append((low, high, target))
            else:
                inner = Simplifier(self._rules, self._limits).simplify(node)
                is_closed = isinstance(inner, Intersection | Complement)
                automaton = (closed_positions if is_closed else build_positions)(inner, self._limits)
                final = frozenset(automaton.final.nonzero()[0].tolist())
                for state in range(automaton.n_states):
                    row = slice(automaton.edge_start[state], automaton.edge_start[state + 1])
                    columns = (automaton.low[row], automaton.high[row], automaton.target[row])
                    edges[state] = list(zip(*(column.tolist() for column in columns), strict=True))
            found = self._edges[id(node)] = edges, final
        return found


def _looks_around(node: Expression) -> bool:
    """Whether an anchor or a lookahead stands in `node`, outside the operands of intersections and complements."""
    if isinstance(node, Intersection | Complement):
        return False
    return isinstance(node, CONTEXTUAL) or any(map(_looks_around, children(node)))


def _written(node: Expression) -> str:
    """A construct that no text stands behind."""
    if isinstance(node, Bytes):
        return repr(node.text.decode("utf-8", "replace"))
    if isinstance(node, Token):
        return f"the token {token_text(node.name)}"
    if not isinstance(node, Characters):
        return "what it allows"
    if node.ranges == _WHITE_SPACE:
        return "white space"
    pieces = [chr(low) if low == high else f"{chr(low)}-{chr(high)}" for low, high in node.ranges[:4]]
    return f"[{repr(''.join(pieces))[1:-1]}{'...' if len(node.ranges) > len(pieces) else ''}]"
