"""Rules that call each other to the frames of one automaton."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .assemble import Frame, assemble
from .automaton import Automaton
from .build import Symbols, build_positions
from .determinize import determinize
from .errors import GrammarTooLarge, GrammarUnsatisfiable
from .expression import EMPTY, Alternation, Expression, Reference
from .limits import Limits
from .loops import loop_classes, without_absent
from .position import Int32Array, PositionAutomaton, trimmed
from .repeats import Sizes
from .rules import Nullable, references
from .simplify import place_of

#: Name of the rule around a start rule that matches the empty string and is called: a called frame must not.
_ROOT = ""


def compile_rules(rules: Mapping[str, Expression], start: str, limits: Limits, absent: frozenset[int]) -> Automaton:
    """The automaton of reduced rules (`rules.reduced_rules`). Raises `GrammarTooLarge`, `GrammarUnsatisfiable`."""
    nullable = Nullable(rules, limits)
    rules = dict(rules)
    if nullable.rules[start] and any(start in references(body) for body in rules.values()):
        rules[_ROOT] = Alternation((EMPTY, Reference(start)))
        start = _ROOT
    total = 0
    for name, body in rules.items():
        total += Sizes(body, {}, with_counters=False).total
        if total > limits.max_positions:
            raise GrammarTooLarge(
                f"the rules up to {name!r} have {total} positions", place_of(body.source), limit="max_positions"
            )
    symbols = Symbols()

    def call_of(node: Expression) -> tuple[int | None, bool] | None:
        if not isinstance(node, Reference):
            return None
        # Equal references are one symbol whatever their sources are.
        return symbols.call(Reference(node.rule)), nullable.rules[node.rule]

    positions: dict[str, PositionAutomaton] = {}
    for name, body in rules.items():
        built = build_positions(body, limits, symbols, call_of).without_bytes(absent)
        positions[name] = built if name == start else built.without_empty_string()
    rule_of = {symbol: node.rule for node, symbol in symbols.calls.items() if isinstance(node, Reference)}
    positions = _without_empty_rules(positions, rule_of)
    if positions[start].is_empty:
        lacking = " that this vocabulary has the bytes for" if absent else ""
        raise GrammarUnsatisfiable("no string matches" + lacking, place_of(rules[start].source))
    frames: dict[str, Frame] = {}
    for name, automaton in positions.items():
        if automaton.is_empty:
            continue
        most = limits.max_dfa_states + 2 * automaton.n_states
        dfa = determinize(automaton, symbols.alphabet, most, limits.max_dfa_work)
        if dfa is None:
            raise GrammarTooLarge(
                f"rule {name!r} of a recursive grammar has too many states",
                place_of(rules[name].source),
                limit="max_dfa_states",
            )
        frames[name] = Frame(dfa)
    called = {symbol: frames[rule] for symbol, rule in rule_of.items() if rule in frames}
    loops = {ranges: None for body in rules.values() for ranges in loop_classes(body)}
    found = [without_absent(ranges, absent) for ranges in loops]
    return assemble(frames[start], called, symbols, found, recursive=True)


def _without_empty_rules(
    positions: dict[str, PositionAutomaton], rule_of: dict[int, str]
) -> dict[str, PositionAutomaton]:
    """The automata without calls of rules that match nothing (but the empty string, which callers bypass)."""
    symbol_of = {rule: symbol for symbol, rule in rule_of.items()}
    callers: dict[str, list[str]] = {}
    for name, automaton in positions.items():
        for symbol in np.unique(automaton.low[automaton.low >= 256]).tolist():
            if symbol in rule_of:
                callers.setdefault(rule_of[symbol], []).append(name)
    dead = dict.fromkeys(rule_of)

    def alive(name: str) -> PositionAutomaton:
        return _without_symbols(positions[name], np.array(list(dead), np.int32))

    work = [name for name in positions if name in symbol_of]  # callees come last, and are asked first
    while work:
        name = work.pop()
        if symbol_of[name] in dead and not alive(name).is_empty:
            del dead[symbol_of[name]]
            work += [caller for caller in callers.get(name, ()) if caller in symbol_of]
    return {name: alive(name) for name in positions}


def _without_symbols(automaton: PositionAutomaton, symbols: Int32Array) -> PositionAutomaton:
    gone = np.isin(automaton.low, symbols)
    if not gone.any():
        return automaton
    source = np.repeat(np.arange(automaton.n_states), np.diff(automaton.edge_start))[~gone]
    edge_start = np.searchsorted(source, np.arange(automaton.n_states + 1)).astype(np.int32)
    low, high, target = (column[~gone] for column in (automaton.low, automaton.high, automaton.target))
    return trimmed(edge_start, low, high, target, automaton.final)
