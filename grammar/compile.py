"""From a grammar to its automaton.

A choice of strings becomes a merged trie. Anything else is tried in this order: one DFA, its big
counted repeats as counter frames as far as these are proved to keep the run-time heads few; one DFA
with everything unrolled; a lazy automaton.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from .assemble import Frame, assemble
from .automaton import COUNTER, Automaton
from .build import Symbols, build_positions
from .determinize import determinize
from .errors import GrammarTooLarge, GrammarUnsatisfiable
from .expression import NOTHING, Expression, Grammar, Members, Repeat
from .frames import compile_frames
from .lazy import lazy_automaton
from .limits import DEFAULT_LIMITS, Limits
from .literals import compile_literals, literal_options
from .loops import loop_classes, without_absent
from .nets import NotFlat
from .position import PositionAutomaton
from .recursive import compile_rules
from .repeats import Sizes, unproved
from .rule_graph import needed_rules, references
from .rules import reduced_rules
from .simplify import Simplifier, children, contains, depth, place_of

#: Nodes that one group within another may add, as `(?:a|b)*c` does, and calls within calls for each.
_NODES_PER_GROUP, _CALLS_PER_NODE = 4, 4
#: After so many rounds of unrolling one repeat, all that are in doubt are unrolled.
_SINGLE_ROUNDS = 6


def compile_grammar(
    grammar: Grammar, limits: Limits = DEFAULT_LIMITS, absent_bytes: frozenset[int] = frozenset()
) -> Automaton:
    """The automaton of `grammar`, less the strings that hold one of `absent_bytes`; equal rules give equal bytes.

    Raises `GrammarUnsatisfiable` where nothing matches, `GrammarTooLarge` where a field of `limits`
    is passed, `GrammarUnsupported` for what is not supported.
    """
    options = literal_options(grammar.rules.get(grammar.start, NOTHING))
    if options is not None:  # before anything else: a choice may have 50,000 options
        return _compile_options(options, limits, absent_bytes)
    try:
        if grammar.frames:
            try:
                with _recursion_room(_CALLS_PER_NODE * _NODES_PER_GROUP * limits.max_depth):
                    return compile_frames(grammar.rules, grammar.start, limits, absent_bytes)
            except NotFlat:
                pass
        order, recursive = needed_rules(grammar.rules, grammar.start)
        try:
            return _compile_rules(grammar, order, recursive, limits, absent_bytes)
        except GrammarTooLarge:
            if not recursive or grammar.frames or not limits.max_inlined_positions:
                raise
            # Rules put into each other may need many more states than frames that call each other.
            frames = replace(limits, max_inlined_positions=0)
            return _compile_rules(grammar, order, recursive, frames, absent_bytes)
    except RecursionError:  # another thread may have set Python's limit back
        raise GrammarTooLarge("the expression is nested too deeply", limit="max_depth") from None


def _compile_rules(
    grammar: Grammar, order: list[str], recursive: frozenset[str], limits: Limits, absent_bytes: frozenset[int]
) -> Automaton:
    with _recursion_room(_CALLS_PER_NODE * _checked_depth((grammar.rules[name] for name in order), limits)):
        if grammar.frames:
            keeping = Simplifier(grammar.rules, limits, frozenset(order))
            rules = {name: keeping.kept_rule(name) for name in reversed(order)}  # callers first
        elif recursive or any(contains(grammar.rules[name], Members) for name in order):
            rules = reduced_rules(grammar.rules, grammar.start, order, recursive, limits)
        else:
            simplifier = Simplifier(grammar.rules, limits)
            for name in order:  # callees first, so that no rule is followed into another
                simplifier.rule(name)
            rules = {grammar.start: simplifier.rule(grammar.start)}
    node = rules[grammar.start]
    with _recursion_room(_CALLS_PER_NODE * _checked_depth(rules.values(), limits)):
        if len(rules) > 1 or references(node) or contains(node, Members):
            return compile_rules(rules, grammar.start, limits, absent_bytes)
        options = literal_options(node)
        if options is not None:
            return _compile_options(options, limits, absent_bytes)
        return _compile(node, limits, absent_bytes)


def _checked_depth(bodies: Iterable[Expression], limits: Limits) -> int:
    """How deep the deepest of `bodies` is. Raises `GrammarTooLarge`."""
    levels = max(map(depth, bodies))
    if levels > _NODES_PER_GROUP * limits.max_depth:
        raise GrammarTooLarge("the expression is nested too deeply", limit="max_depth")
    return levels


def _compile_options(options: list[bytes], limits: Limits, absent_bytes: frozenset[int]) -> Automaton:
    if absent_bytes:
        options = [text for text in options if absent_bytes.isdisjoint(text)]
        if not options:
            raise GrammarUnsatisfiable("every option holds a byte that the vocabulary does not have")
    return compile_literals(options, limits)


@contextmanager
def _recursion_room(calls: int) -> Iterator[None]:
    """Let functions that follow the expression call themselves so often: Python's own limit is 1,000 as a rule."""
    before = sys.getrecursionlimit()
    needed = calls + 100
    if needed > before // 2:
        sys.setrecursionlimit(before + needed)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _compile(node: Expression, limits: Limits, absent: frozenset[int]) -> Automaton:
    loops = [without_absent(ranges, absent) for ranges in loop_classes(node)]
    excluded: dict[Expression, None] = {}
    rounds = 0
    while True:
        sizes = Sizes(node, excluded, limits)
        _check_size(node, sizes, limits)
        attempt = _Attempt(node, sizes, limits, absent)
        if attempt.root is None:
            break
        failing = unproved([attempt.root], attempt.called)
        if not failing:
            return assemble(attempt.root, attempt.called, attempt.symbols, loops)
        rounds += 1
        bodies = {symbol: repeat for repeat, symbol in attempt.symbols.calls.items()}
        # Unrolling the smallest costs least, and may be all that the others need.
        failing.sort(key=lambda symbol: attempt.unrolled_size(bodies[symbol]))
        for symbol in failing if rounds > _SINGLE_ROUNDS else failing[:1]:
            excluded[bodies[symbol]] = None
    if sizes.counters:
        sizes = Sizes(node, {}, limits, with_counters=False)
        _check_size(node, sizes, limits)
        attempt = _Attempt(node, sizes, limits, absent)
        if attempt.root is not None:
            return assemble(attempt.root, {}, attempt.symbols, loops)
    if attempt.symbols.tokens:
        raise GrammarTooLarge(
            "the automaton is too large, and one with tokens cannot be lazy",
            place_of(node.source),
            limit="max_dfa_states",
        )
    return lazy_automaton(attempt.positions, loops)


class _Attempt:
    """The frames of `node` with the counters of `sizes`; `root` is None where a DFA passes a limit."""

    def __init__(self, node: Expression, sizes: Sizes, limits: Limits, absent: frozenset[int]) -> None:
        self._sizes = sizes
        self._limits = limits
        self._absent = absent
        self.symbols = Symbols()
        self._items: dict[Expression, tuple[PositionAutomaton, bool]] = {}
        self.positions = build_positions(node, limits, self.symbols, self._call_of).without_bytes(absent)
        if self.positions.is_empty:
            lacking = " that this vocabulary has the bytes for" if absent else ""
            raise GrammarUnsatisfiable("no string matches" + lacking, place_of(node.source))
        self.called: dict[int, Frame] = {}
        self.root: Frame | None = None
        for repeat, symbol in self.symbols.calls.items():
            assert isinstance(repeat, Repeat)
            item, nullable = self._items[repeat]
            frame = self._frame(
                item,
                COUNTER,
                1 if nullable else max(repeat.minimum, 1),
                -1 if repeat.maximum is None else repeat.maximum,
            )
            if frame is None:
                return
            self.called[symbol] = frame
        self.root = self._frame(self.positions)

    def unrolled_size(self, repeat: Expression) -> int:
        """Positions that unrolling `repeat` would bring."""
        assert isinstance(repeat, Repeat)
        return max(repeat.minimum, repeat.maximum or 0) * self._sizes.of(repeat.body)

    def _frame(self, positions: PositionAutomaton, kind: int = 0, minimum: int = 0, maximum: int = 0) -> Frame | None:
        limits = self._limits
        # A large expression may have as many states again, as a choice among many words repeated has.
        most = limits.max_dfa_states + 2 * positions.n_states if limits.max_dfa_states > 1 else 1
        dfa = determinize(positions, self.symbols.alphabet, most, limits.max_dfa_work)
        return None if dfa is None else Frame(dfa, kind, minimum, maximum)

    def _call_of(self, repeat: Expression) -> tuple[int | None, bool] | None:
        if not isinstance(repeat, Repeat) or id(repeat) not in self._sizes.counters:
            return None
        if repeat not in self._items:
            body = build_positions(repeat.body, self._limits, self.symbols, self._call_of).without_bytes(self._absent)
            self._items[repeat] = body.without_empty_string(), bool(body.final[0])
        item, nullable = self._items[repeat]
        return None if item.is_empty else self.symbols.call(repeat), nullable or repeat.minimum == 0


def _check_size(node: Expression, sizes: Sizes, limits: Limits) -> None:
    """Raise `GrammarTooLarge`, naming the largest repeat, if unrolling would pass the limit."""
    if sizes.total <= limits.max_positions:
        return
    largest: Expression = node
    stack, best = [node], 0
    while stack:
        at = stack.pop()
        if isinstance(at, Repeat) and id(at) not in sizes.counters and sizes.of(at) > best:
            largest, best = at, sizes.of(at)
        stack.extend(child for child in children(at) if sizes.knows(child))
    what = f": {largest.source}" if largest.source else ""
    raise GrammarTooLarge(f"the expression has {sizes.total} positions{what}", limit="max_positions")
