"""Grammars of frames: every rule is a frame as it is, and a reference a call.

All rules go through a few kernels together (`nets`, `rule_dfas`, `link`). Rules without calls that are costly, such as
patterns, formats, ranges of numbers and counted strings, are made one by one and remembered in the process: JSON
Schema's library rules are the same objects in every grammar.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .assemble import automaton_of, ends
from .automaton import PLAIN, UTF8, Automaton
from .build import build_positions
from .determinize import Dfa, determinize
from .errors import GrammarError, GrammarTooLarge
from .expression import (
    Alternation,
    ByteAutomaton,
    Bytes,
    Characters,
    Expression,
    Machine,
    Ranges,
    Reference,
    Repeat,
    Sequence,
    Token,
)
from .limits import Limits
from .link import FAR, Frames
from .loops import loop_classes, without_absent
from .nets import Nets, NotFlat
from .repeats import Sizes
from .rule_dfas import RuleDfas, rule_dfas
from .simplify import Simplifier, children, contains, place_of
from .text import expression_is_text
from .utf8 import count_code_points

#: Frames of rules without calls that are remembered: so many, and so many bytes of them.
REMEMBERED_FRAMES, REMEMBERED_BYTES = 1024, 32 << 20
#: Copies of a repeat's body up to which it is no costly rule.
_FEW_COPIES = 4


@dataclass(frozen=True, eq=False)
class Leaf:
    """The frame of a rule without calls: its DFA, which does not match the empty string, and whether the rule does.

    `loops`: classes that its states may loop on; `is_text`: whether its strings are valid UTF-8; `body` the rule.
    """

    dfa: Dfa
    nullable: bool
    loops: tuple[Ranges, ...]
    is_text: bool
    body: Expression

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return self.dfa.delta.nbytes + self.dfa.final.nbytes + self.dfa.class_of.nbytes + self.dfa.first_of.nbytes


class Leaves:
    """Frames of rules without calls, by the identity of the rule: the least recently used ones are forgotten."""

    def __init__(self, entries: int, nbytes: int) -> None:
        self._entries, self._most_bytes = entries, nbytes
        self._known: OrderedDict[tuple[int, Limits, frozenset[int]], Leaf] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        #: Frames made, for reports and tests.
        self.made = 0

    def find(self, body: Expression, limits: Limits, absent: frozenset[int]) -> Leaf | None:
        """The frame of a rule, if it is remembered."""
        key = id(body), limits, absent
        with self._lock:
            leaf = self._known.get(key)
            if leaf is not None:
                self._known.move_to_end(key)
            return leaf

    def make(self, name: str, body: Expression, limits: Limits, absent: frozenset[int]) -> Leaf:
        """Make the frame of a rule and remember it. Raises `GrammarError`."""
        leaf = _leaf(name, body, limits, absent)
        key = id(body), limits, absent
        with self._lock:
            self.made += 1
            self._known[key] = leaf
            self._bytes += leaf.nbytes
            while len(self._known) > self._entries or (self._bytes > self._most_bytes and len(self._known) > 1):
                self._bytes -= self._known.popitem(last=False)[1].nbytes
        return leaf


LEAVES = Leaves(REMEMBERED_FRAMES, REMEMBERED_BYTES)


def compile_frames(rules: Mapping[str, Expression], start: str, limits: Limits, absent: frozenset[int]) -> Automaton:
    """The automaton of a grammar of frames. Raises `GrammarError`, and `NotFlat` for what is left to `recursive`."""
    nets = Nets(limits)
    flat: list[str] = []
    leaves: dict[str, Leaf] = {}
    found = {start: None}
    order = [start]
    for name in order:  # grows while it is read
        if name not in rules:
            raise GrammarError(f"there is no rule {name!r}")
        body = rules[name]
        leaf = LEAVES.find(body, limits, absent)
        if leaf is None and _is_costly(body):
            leaf = LEAVES.make(name, body, limits, absent)
        if leaf is not None:
            leaves[name] = leaf
            continue
        flat.append(name)
        for other in nets.add(body):
            if other not in found:
                found[other] = None
                order.append(other)
    if not flat or flat[0] != start:
        raise NotFlat(start)
    number = {name: i for i, name in enumerate((*flat, *leaves))}
    callees = [[number[other] for other in calls] for calls in nets.calls]
    nullable = np.zeros(len(number), np.uint8)
    nullable[len(flat) :] = [leaf.nullable for leaf in leaves.values()]
    made = rule_dfas(nets, callees, nullable, 0, limits, absent)
    if made.failed >= 0:
        name = flat[made.failed]
        if made.too_many_edges:
            raise GrammarTooLarge(
                f"rule {name!r} has too many edges between its positions",
                place_of(rules[name].source),
                limit="max_positions",
            )
        raise GrammarTooLarge(
            f"rule {name!r} has too many states", place_of(rules[name].source), limit="max_dfa_states"
        )
    if nullable[0] and any(0 in numbers for numbers in callees):
        raise NotFlat(start)  # a called frame must not match the empty string
    frames = _joined(made, [leaf.dfa for leaf in leaves.values()], callees)
    loops = dict(nets.loops)
    for leaf in leaves.values():
        loops.update(dict.fromkeys(leaf.loops))
    classes = sorted(loops, key=lambda ranges: (-count_code_points(ranges), ranges))
    is_text = nets.is_text and all(leaf.is_text for leaf in leaves.values())
    automaton = automaton_of(
        frames,
        [without_absent(ranges, absent) for ranges in classes],
        [],
        recursive=True,
        flags=UTF8 if is_text else 0,
    )
    if (automaton["frame_length"] == FAR).any():
        raise NotFlat(start)  # calls of what matches nothing must go
    return automaton


def _joined(made: RuleDfas, leaves: list[Dfa], callees: list[list[int]]) -> Frames:
    """The frames of the nets, and behind them those of the leaves."""
    n = len(callees) + len(leaves)
    symbols = [number for numbers in callees for number in numbers]
    return Frames(
        np.append(made.state_at[:-1], ends([dfa.n_states for dfa in leaves], int(made.state_at[-1]))),
        np.append(made.delta_at[:-1], ends([dfa.delta.size for dfa in leaves], int(made.delta_at[-1]))),
        np.append(made.class_at[:-1], ends([256] * len(leaves), int(made.class_at[-1]))),
        np.append(made.n_classes, np.array([dfa.delta.shape[1] for dfa in leaves], np.int32)),
        np.concatenate([made.delta, *(dfa.delta.reshape(-1) for dfa in leaves)]),
        np.concatenate([made.final, *(dfa.final for dfa in leaves)]),
        np.concatenate([made.class_of, *(dfa.class_of for dfa in leaves)]),
        np.array(symbols, np.int32),
        np.full(len(symbols), -1, np.int32),
        np.full(n, PLAIN, np.uint8),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
    )


def _is_costly(body: Expression) -> bool:
    """Whether a rule has no calls, and is better made by itself and remembered."""
    costly = False
    stack = [body]
    while stack:
        at = stack.pop()
        kind = type(at)
        if kind is Reference:
            return False
        if kind is Bytes or kind is Characters or kind is ByteAutomaton:
            continue
        if kind is Sequence:
            stack.extend(at.parts)  # type: ignore[attr-defined]
        elif kind is Machine:
            stack.extend(at.labels)  # type: ignore[attr-defined]
        elif kind is Alternation:
            stack.extend(at.options)  # type: ignore[attr-defined]
        else:
            costly |= kind is not Repeat or max(at.minimum, at.maximum or 0) > _FEW_COPIES  # type: ignore[attr-defined]
            stack.extend(children(at))
    return costly


def _leaf(name: str, body: Expression, limits: Limits, absent: frozenset[int]) -> Leaf:
    if contains(body, Token):
        raise NotFlat(name)
    simple = Simplifier({}, limits).simplify(body)
    total = Sizes(simple, {}, with_counters=False).total
    if total > limits.max_positions:
        raise GrammarTooLarge(f"rule {name!r} has {total} positions", place_of(body.source), limit="max_positions")
    positions = build_positions(simple, limits).without_bytes(absent)
    nullable = bool(positions.final[0])
    positions = positions.without_empty_string()
    dfa = determinize(positions, 256, limits.max_dfa_states + 2 * positions.n_states, limits.max_dfa_work)
    if dfa is None:
        raise GrammarTooLarge(f"rule {name!r} has too many states", place_of(body.source), limit="max_dfa_states")
    return Leaf(dfa, nullable, tuple(loop_classes(simple)), expression_is_text(body), body)
