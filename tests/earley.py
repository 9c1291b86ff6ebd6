"""The oracle for grammars of rules: Earley's algorithm over the expression language, slow and obviously right.

It shares no code with the package. Everything becomes one plain context-free grammar over symbols 0-255 (bytes) and
256 and more (tokens). What derives nothing is taken out. Then every item of the chart belongs to some whole text, and
a prefix is alive exactly when its chart is not empty.

    oracle = Earley(grammar.rules, grammar.start)
    oracle.complete(b"..."), oracle.alive(b"...")
    state = oracle.start()                         # None where the language is empty
    state = oracle.step(state, byte)               # None where no text of the language goes on like that
    state.complete, oracle.live_symbols(state), oracle.read(state, b"..."), oracle.allowed(state, tokens)

States are immutable and remember their successors, so texts with a common prefix share its states.

Earley, "An efficient context-free parsing algorithm", 1970; nullable rules as in Aycock and Horspool, "Practical
Earley parsing", 2002; regular parts by derivatives, Brzozowski, "Derivatives of regular expressions", 1964.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as SequenceType
from typing import Any

from stepmask.grammar.expression import (
    ALL_CODE_POINTS,
    Alternation,
    ByteAutomaton,
    Bytes,
    Characters,
    Complement,
    Expression,
    Intersection,
    Members,
    Reference,
    Repeat,
    Sequence,
    Token,
)

_Span = tuple[int, int]  # terminal: any symbol in [low, high]
_Symbol = int | _Span  # number of a nonterminal, or a terminal


class State:
    """One set of the chart; what it holds of the sets before it, it holds through its items' origins."""

    __slots__ = ("complete", "following", "scanning", "waiting")

    def __init__(self) -> None:
        #: Items before a nonterminal, by it: (dot, origin).
        self.waiting: dict[int, list[tuple[int, State]]] = {}
        #: Items before a terminal.
        self.scanning: list[tuple[int, State]] = []
        #: Whether the text so far is in the language.
        self.complete = False
        self.following: dict[int, State | None] = {}


class Earley:
    """The language of `start` under `rules`.

    Lookaheads and anchors raise `NotImplementedError`; the operands of an intersection or complement may refer to
    rules that are not recursive. A missing rule is a `KeyError`.
    """

    def __init__(self, rules: Mapping[str, Expression], start: str) -> None:
        plain = _PlainGrammar(rules, start)
        #: Name of a token -> its symbol, 256 or more.
        self.tokens = plain.tokens
        productive = _least_fixpoint(plain, terminals_hold=True)
        self._nullable = _least_fixpoint(plain, terminals_hold=False)
        # Dots: every place in every production has a number; the next place is the next number.
        self._next_symbol: list[_Symbol | None] = []  # None at the end of a production
        self._head: list[int] = []
        self._entries: list[list[int]] = [[] for _ in productive]
        for head, body in plain.productions:
            if all(isinstance(symbol, tuple) or productive[symbol] for symbol in body):
                self._entries[head].append(len(self._head))
                self._next_symbol += [*body, None]
                self._head += [head] * (len(body) + 1)
        self._start = self._first_state() if productive[0] else None

    def start(self) -> State | None:
        """The state before any text; None where the language is empty."""
        return self._start

    def step(self, state: State, symbol: int) -> State | None:
        """The state after one more byte or token; None where no text of the language goes on like that."""
        if symbol not in state.following:
            state.following[symbol] = self._scan(state, symbol)
        return state.following[symbol]

    def read(self, state: State | None, text: Iterable[int]) -> State | None:
        """`step` for every symbol of `text`."""
        for symbol in text:
            if state is None:
                return None
            state = self.step(state, symbol)
        return state

    def complete(self, text: Iterable[int]) -> bool:
        """Whether `text` is in the language."""
        state = self.read(self._start, text)
        return state is not None and state.complete

    def alive(self, text: Iterable[int]) -> bool:
        """Whether some text of the language begins with `text`."""
        return self.read(self._start, text) is not None

    def live_symbols(self, state: State) -> set[int]:
        """The bytes and tokens that `step` takes."""
        spans = {self._next_symbol[dot] for dot, _ in state.scanning}
        return {symbol for low, high in spans for symbol in range(low, high + 1)}  # type: ignore[misc]

    def allowed(self, state: State, tokens: SequenceType[bytes]) -> list[bool]:
        """For each of a vocabulary's token bytes, whether a text may go on with it; never with none at all."""
        return [bool(token) and self.read(state, token) is not None for token in tokens]

    def _first_state(self) -> State:
        state = State()
        self._close(state, [(dot, state) for dot in self._entries[0]])
        state.complete = self._nullable[0]
        return state

    def _scan(self, state: State, symbol: int) -> State | None:
        items = []
        for dot, origin in state.scanning:
            low, high = self._next_symbol[dot]  # type: ignore[misc]
            if low <= symbol <= high:
                items.append((dot + 1, origin))
        if not items:
            return None
        following = State()
        self._close(following, items)
        return following

    def _close(self, state: State, items: list[tuple[int, State]]) -> None:
        """Predict and complete until nothing is new."""
        seen = set(items)
        predicted: set[int] = set()

        def add(item: tuple[int, State]) -> None:
            if item not in seen:
                seen.add(item)
                items.append(item)

        for dot, origin in items:  # grows while it is read
            symbol = self._next_symbol[dot]
            if isinstance(symbol, tuple):
                state.scanning.append((dot, origin))
            elif symbol is not None:
                state.waiting.setdefault(symbol, []).append((dot, origin))
                if symbol not in predicted:
                    predicted.add(symbol)
                    for entry in self._entries[symbol]:
                        add((entry, state))
                if self._nullable[symbol]:
                    add((dot + 1, origin))
            elif origin is not state:  # what is complete and empty was stepped over as nullable
                head = self._head[dot]
                for waiting, below in origin.waiting.get(head, ()):
                    add((waiting + 1, below))
                if head == 0:  # nothing refers to it, so it began with the text
                    state.complete = True


def _least_fixpoint(plain: _PlainGrammar, terminals_hold: bool) -> list[bool]:
    """Which nonterminals have a production whose symbols all hold."""
    holds = [False] * plain.count
    missing: list[int] = []
    users: dict[int, list[int]] = {}
    pending: list[int] = []
    for number, (_, body) in enumerate(plain.productions):
        missing.append(sum(isinstance(symbol, int) or not terminals_hold for symbol in body))
        for symbol in body:
            if isinstance(symbol, int):
                users.setdefault(symbol, []).append(number)
        if not missing[number]:
            pending.append(number)
    while pending:
        head = plain.productions[pending.pop()][0]
        if holds[head]:
            continue
        holds[head] = True
        for number in users.get(head, ()):
            missing[number] -= 1
            if not missing[number]:
                pending.append(number)
    return holds


class _PlainGrammar:
    """Productions (nonterminal, symbols) for rules of expressions; nonterminal 0 is the start."""

    def __init__(self, rules: Mapping[str, Expression], start: str) -> None:
        self.rules = rules
        self.tokens: dict[str | int, int] = {}
        self.productions: list[tuple[int, tuple[_Symbol, ...]]] = []
        self.count = 0
        self.numbers: dict[Any, int] = {}  # by rule name or by identity: equality of deep nodes recurses
        self.pending: list[tuple[int, Expression]] = []
        top = self.new()
        self.add(top, self.rule(start))
        while self.pending:
            self.expand(*self.pending.pop())

    def new(self) -> int:
        self.count += 1
        return self.count - 1

    def add(self, head: int, *body: _Symbol) -> None:
        self.productions.append((head, body))

    def rule(self, name: str) -> int:
        return self.number(name, self.rules[name])

    def number(self, key: Any, node: Expression) -> int:
        if key not in self.numbers:
            self.numbers[key] = self.new()
            self.pending.append((self.numbers[key], node))
        return self.numbers[key]

    def symbol(self, node: Expression) -> _Symbol:
        if isinstance(node, Reference):
            return self.rule(node.rule)
        if isinstance(node, Token):
            symbol = self.tokens.setdefault(node.name, 256 + len(self.tokens))
            return symbol, symbol
        if isinstance(node, Characters):
            return self.number(("characters", node.ranges), node)
        return self.number(id(node), node)

    def expand(self, head: int, node: Expression) -> None:
        if isinstance(node, Bytes):
            self.add(head, *((byte, byte) for byte in node.text))
        elif isinstance(node, Characters):
            for spans in encoded_spans(node.ranges):
                self.add(head, *spans)
        elif isinstance(node, Sequence):
            self.add(head, *map(self.symbol, node.parts))
        elif isinstance(node, Alternation):
            for option in node.options:
                self.add(head, self.symbol(option))
        elif isinstance(node, Reference | Token):
            self.add(head, self.symbol(node))
        elif isinstance(node, Repeat):
            self.expand_repeat(head, node)
        elif isinstance(node, Members):
            self.expand_members(head, node)
        elif isinstance(node, Intersection | Complement | ByteAutomaton):
            self.expand_regular(head, node)
        else:
            raise NotImplementedError(f"the oracle does not know {node!r}")

    def expand_repeat(self, head: int, node: Repeat) -> None:
        """One nonterminal for each number of bodies, each that of one less and a body."""
        body = self.symbol(node.body)
        so_far = self.new()
        self.add(so_far)
        for count in range(node.minimum if node.maximum is None else node.maximum + 1):
            if count >= node.minimum:
                self.add(head, so_far)
            more = self.new()
            self.add(more, so_far, body)
            so_far = more
        if node.maximum is None:
            self.add(so_far, so_far, body)
            self.add(head, so_far)

    def expand_members(self, head: int, node: Members) -> None:
        """One nonterminal for each set of members and their number: lists of these."""

        def accepted(bits: int, count: int) -> bool:
            return any(
                (bits & c.required) == c.required
                and not bits & c.forbidden
                and all(bits & group for group in c.groups)
                and c.minimum <= count
                and (c.maximum is None or count <= c.maximum)
                for c in node.accept
            )

        # All larger numbers are alike.
        most = max((max(c.minimum, 0 if c.maximum is None else c.maximum + 1) for c in node.accept), default=0)
        lists: dict[tuple[int, int] | None, int] = {None: self.new()}  # None: no member yet
        self.add(lists[None])
        if accepted(0, 0):
            self.add(head)
        pending: list[tuple[int, int] | None] = [None]
        for before in pending:  # grows while it is read
            bits, count = before or (0, 0)
            for option in node.options:
                if option.bit is not None and bits >> option.bit & 1:
                    continue
                after = bits | (0 if option.bit is None else 1 << option.bit), min(count + 1, most)
                if after not in lists:
                    lists[after] = self.new()
                    pending.append(after)
                    if accepted(*after):
                        self.add(head, lists[after])
                between = [] if before is None else [self.symbol(node.separator)]
                self.add(lists[after], lists[before], *between, self.symbol(option.key), self.symbol(option.rest))

    def expand_regular(self, head: int, node: Expression) -> None:
        """The DFA of `node`: a nonterminal for each state is what leads from the start to it."""
        form = regular_form(node, self.rules)
        bounds = {0, 256}
        _collect_bounds(form, bounds)
        borders = sorted(bounds)
        numbers = {form: self.new()}
        self.add(numbers[form])
        states = [form]
        for state in states:  # grows while it is read
            if can_be_empty(state):
                self.add(head, numbers[state])
            for low, after in itertools.pairwise(borders):
                target = derivative(state, low)
                if target == NOTHING:
                    continue
                if target not in numbers:
                    numbers[target] = self.new()
                    states.append(target)
                self.add(numbers[target], numbers[state], (low, after - 1))


# --- UTF-8 ---

_FIRST_OF_LENGTH = (0, 0x80, 0x800, 0x10000, 0x110000)


def encoded_spans(ranges: Iterable[tuple[int, int]]) -> list[tuple[_Span, ...]]:
    """The UTF-8 forms of code point ranges, as sequences of byte spans."""
    found: list[tuple[_Span, ...]] = []
    for low, high in ranges:
        for first, after in itertools.pairwise(_FIRST_OF_LENGTH):
            if max(low, first) <= min(high, after - 1):
                found += _spans_between(chr(max(low, first)).encode(), chr(min(high, after - 1)).encode())
    return found


def _spans_between(low: bytes, high: bytes) -> list[tuple[_Span, ...]]:
    """All that lies between two encodings of one length, whose later bytes are 0x80-0xBF."""
    if len(low) == 1:
        return [((low[0], high[0]),)]
    if low[0] == high[0]:
        return [((low[0], low[0]), *rest) for rest in _spans_between(low[1:], high[1:])]
    least, most = b"\x80" * (len(low) - 1), b"\xbf" * (len(low) - 1)
    found = _spans_between(low, bytes([low[0]]) + most)
    if low[0] + 1 < high[0]:
        found.append(((low[0] + 1, high[0] - 1), *[(0x80, 0xBF)] * (len(low) - 1)))
    return found + _spans_between(bytes([high[0]]) + least, high)


# --- regular parts ---

# Forms: ("empty",), ("span", low, high), ("then", a, b), ("or", set), ("and", set), ("not", a) within all byte strings,
# ("repeat", a, minimum, maximum), ("automaton", edges, final states, states that the text so far may have led to).
Form = tuple[Any, ...]
NOTHING: Form = ("or", frozenset())
_EMPTY: Form = ("empty",)


def regular_form(node: Expression, rules: Mapping[str, Expression], inside: tuple[str, ...] = ()) -> Form:
    if isinstance(node, Bytes):
        return _chain([("span", byte, byte) for byte in node.text])
    if isinstance(node, Characters):
        return _either(_chain([("span", *span) for span in spans]) for spans in encoded_spans(node.ranges))
    if isinstance(node, Sequence):
        return _chain([regular_form(part, rules, inside) for part in node.parts])
    if isinstance(node, Alternation):
        return _either(regular_form(option, rules, inside) for option in node.options)
    if isinstance(node, Repeat):
        return _repeat(regular_form(node.body, rules, inside), node.minimum, node.maximum)
    if isinstance(node, Intersection):
        return _both(regular_form(operand, rules, inside) for operand in node.operands)
    if isinstance(node, Complement):
        text = _repeat(regular_form(Characters(ALL_CODE_POINTS), rules), 0, None)
        return _both([text, _other(regular_form(node.operand, rules, inside))])
    if isinstance(node, ByteAutomaton):
        final = frozenset(state for state, flag in enumerate(node.final) if flag)
        return "automaton", frozenset(struct.iter_unpack("4i", node.edges)), final, frozenset({0})
    if isinstance(node, Reference):
        if node.rule in inside:
            raise NotImplementedError(f"the oracle takes no recursion within a regular part: {node.rule}")
        return regular_form(rules[node.rule], rules, (*inside, node.rule))
    raise NotImplementedError(f"the oracle does not know {node!r}")


def _chain(forms: list[Form]) -> Form:
    whole = _EMPTY
    for form in reversed(forms):
        whole = _then(form, whole)
    return whole


def _then(first: Form, second: Form) -> Form:
    if NOTHING in (first, second):
        return NOTHING
    if first == _EMPTY:
        return second
    if second == _EMPTY:
        return first
    if first[0] == "then":
        return "then", first[1], _then(first[2], second)
    return "then", first, second


def _either(forms: Iterable[Form]) -> Form:
    options: set[Form] = set()
    for form in forms:
        options |= form[1] if form[0] == "or" else {form}
    return next(iter(options)) if len(options) == 1 else ("or", frozenset(options))


def _both(forms: Iterable[Form]) -> Form:
    operands: set[Form] = set()
    for form in forms:
        operands |= form[1] if form[0] == "and" else {form}
    if NOTHING in operands:
        return NOTHING
    return next(iter(operands)) if len(operands) == 1 else ("and", frozenset(operands))


def _other(form: Form) -> Form:
    return form[1] if form[0] == "not" else ("not", form)


def _repeat(body: Form, minimum: int, maximum: int | None) -> Form:
    if maximum == 0:
        return _EMPTY
    return body if (minimum, maximum) == (1, 1) else ("repeat", body, minimum, maximum)


def can_be_empty(form: Form) -> bool:
    kind = form[0]
    if kind == "then":
        return can_be_empty(form[1]) and can_be_empty(form[2])
    if kind == "or":
        return any(map(can_be_empty, form[1]))
    if kind == "and":
        return all(map(can_be_empty, form[1]))
    if kind == "not":
        return not can_be_empty(form[1])
    if kind == "repeat":
        return form[2] == 0 or can_be_empty(form[1])
    if kind == "automaton":
        return not form[2].isdisjoint(form[3])
    return kind == "empty"


def derivative(form: Form, byte: int) -> Form:
    """What may follow `byte` in the strings of `form`."""
    kind = form[0]
    if kind == "empty":
        return NOTHING
    if kind == "span":
        return _EMPTY if form[1] <= byte <= form[2] else NOTHING
    if kind == "then":
        after = _then(derivative(form[1], byte), form[2])
        return _either([after, derivative(form[2], byte)]) if can_be_empty(form[1]) else after
    if kind == "or":
        return _either(derivative(option, byte) for option in form[1])
    if kind == "and":
        return _both(derivative(operand, byte) for operand in form[1])
    if kind == "not":
        return _other(derivative(form[1], byte))
    if kind == "automaton":
        _, edges, final, states = form
        after = frozenset(to for source, low, high, to in edges if source in states and low <= byte <= high)
        return ("automaton", edges, final, after) if after else NOTHING
    _, body, minimum, maximum = form
    less = _repeat(body, max(minimum - 1, 0), None if maximum is None else maximum - 1)
    return _then(derivative(body, byte), less)


def _collect_bounds(form: Form, bounds: set[int]) -> None:
    if form[0] == "span":
        bounds |= {form[1], form[2] + 1}
    if form[0] == "automaton":
        for _, low, high, _ in form[1]:
            bounds |= {low, high + 1}
        return
    for part in form[1:]:
        for inner in part if isinstance(part, frozenset) else [part]:
            if isinstance(inner, tuple):
                _collect_bounds(inner, bounds)
