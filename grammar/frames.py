"""Grammars of frames: every rule is a frame as it is, and a reference a call.

Most rules go through a few kernels together (`nets`, `rule_dfas`, `link`). Rules without calls, such as strings,
patterns, formats and ranges of numbers, are made one by one and remembered in the process: JSON Schema's library rules
are the same objects in every grammar. Made one by one too, but not remembered, are rules that count what they call or
have members in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np

from .assemble import Frame, automaton_of, frames_of
from .automaton import PLAIN, UTF8, Automaton
from .errors import GrammarError, GrammarTooLarge, GrammarUnsatisfiable
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
from .link import Frames
from .loops import loop_classes, without_absent
from .members import FAR
from .nets import Apart, Nets, NotFlat
from .recursive import RuleFrames, rule_frames
from .remembered import Remembered
from .rule_dfas import RuleDfas, rule_dfas
from .rule_graph import references
from .simplify import Simplifier, children, contains, place_of
from .text import expression_is_text
from .utf8 import count_code_points

#: Rules without calls whose frames are remembered: so many, and so many bytes of them.
REMEMBERED_RULES, REMEMBERED_BYTES = 1024, 32 << 20
#: Copies of a repeat's body up to which a rule without calls is unrolled whatever its size.
_FEW_COPIES = 4


@dataclass(frozen=True, eq=False)
class Piece:
    """A rule made by itself: its frames, the classes that its states may loop on, whether its strings are UTF-8."""

    made: RuleFrames
    loops: tuple[Ranges, ...]
    is_text: bool
    body: Expression

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return sum(frame.dfa.nbytes for frame in self.made.frames)


#: What a rule's frames depend on: the rule, by its identity, limits, bytes that no token has.
PieceKey = tuple[int, Limits, frozenset[int]]
# The bodies are kept alive by their pieces, so that no other object gets the identity of one.
REMEMBERED: Remembered[PieceKey, Piece] = Remembered(REMEMBERED_RULES, REMEMBERED_BYTES)
# The frames of several remembered pieces, by their identities: most schemas have the same few in one of a few orders.
_LIBRARIES: Remembered[tuple[int, ...], tuple[Frames, list[Piece]]] = Remembered(64, 4 << 20)
_NO_FRAMES = frames_of([], [], [])


def compile_frames(rules: Mapping[str, Expression], start: str, limits: Limits, absent: frozenset[int]) -> Automaton:
    """The automaton of a grammar of frames. Raises `GrammarError`, and `NotFlat` for what is left to `recursive`."""
    if start not in rules or not contains(rules[start], Reference):
        raise NotFlat(start)
    try:
        return _compiled(rules, start, limits, absent, {})
    except _Dead as found:  # once more without them: all others have strings that do not need them
        return _compiled(rules, start, limits, absent, found.rules)


class _Dead(Exception):
    """`rules`: those that match nothing but perhaps the empty string, and whether they match that. None may be called.

    Most grammars have none, and which rules they are is known only when all frames are linked.
    """

    def __init__(self, rules: dict[str, bool]) -> None:
        self.rules = rules


def _compiled(
    rules: Mapping[str, Expression], start: str, limits: Limits, absent: frozenset[int], dead: dict[str, bool]
) -> Automaton:
    nets = Nets(limits, dead)
    flat: list[str] = []
    pieces: dict[str, Piece] = {}
    counted: list[str] = []
    found = {start: None}
    order = [start]
    for name in order:  # grows while it is read
        if name not in rules:
            raise GrammarError(f"there is no rule {name!r}")
        body = rules[name]
        key = id(body), limits, absent
        piece = REMEMBERED.find(key)
        if piece is None and _is_worth_remembering(body):
            piece = make_piece(name, body, {}, limits, absent)
            REMEMBERED.add(key, piece, piece.nbytes)
        if piece is not None:
            pieces[name] = piece
            continue
        try:
            calls = nets.add(body)
            flat.append(name)
        except Apart:
            calls = list(references(body))
            counted.append(name)
        for other in calls:
            if other not in found:
                found[other] = None
                order.append(other)
    if start in counted:
        raise NotFlat(start)  # the root frame comes first
    nullable_of = dict.fromkeys(order, False) | {name: piece.made.nullable for name, piece in pieces.items()}
    for name in counted:
        pieces[name] = make_piece(name, rules[name], nullable_of, limits, absent)
    # By rule, its first frame.
    number = {name: i for i, name in enumerate(flat)}
    total = len(flat)
    for name, piece in pieces.items():
        number[name] = total
        total += len(piece.made.frames)
    nullable = np.zeros(total, np.uint8)
    for name, piece in pieces.items():
        nullable[number[name]] = piece.made.nullable
    callees = [[number[other] for other in calls] for calls in nets.calls]
    made = rule_dfas(nets, callees, nullable, 0, limits, absent)
    if made.failed >= 0:
        raise _too_large(flat[made.failed], rules[flat[made.failed]], made.too_many_edges)
    # Rules that count took these rules for not nullable, and a called frame must not match the empty string.
    if (counted and nullable[: len(flat)].any()) or (nullable[0] and any(0 in numbers for numbers in callees)):
        raise NotFlat(start)
    for name, piece in pieces.items():
        for calls_of in piece.made.calls:
            base = number[name]
            callees.append([number[c] if isinstance(c, str) else base + c if c >= 0 else -1 for c in calls_of])
    frames = _joined(made, _frames_of(list(pieces.values()), not counted), callees)
    loops = dict(nets.loops)
    for piece in pieces.values():
        loops.update(dict.fromkeys(piece.loops))
    classes = sorted(loops, key=lambda ranges: (-count_code_points(ranges), ranges))
    is_text = nets.is_text and all(piece.is_text for piece in pieces.values())
    automaton = automaton_of(
        frames,
        [without_absent(ranges, absent) for ranges in classes],
        [],
        recursive=True,
        flags=UTF8 if is_text else 0,
    )
    lengths = automaton["frame_length"].tolist()
    if FAR in lengths:
        lost = {name: bool(nullable[i]) for name, i in number.items() if lengths[i] == FAR}
        called = {other for name in counted for other in references(rules[name])}
        if dead or not lost or start in lost or not called.isdisjoint(lost):
            raise NotFlat(start)
        raise _Dead(lost)
    return automaton


def _too_large(name: str, body: Expression, too_many_edges: bool) -> GrammarTooLarge:
    what = "edges between its positions" if too_many_edges else "states"
    limit = "max_positions" if too_many_edges else "max_dfa_states"
    return GrammarTooLarge(f"rule {name!r} has too many {what}", place_of(body.source), limit=limit)


def _frames_of(pieces: list[Piece], remembered: bool) -> Frames:
    """The frames of pieces, which call nothing that is known yet; `remembered`: whether the pieces are."""
    if not pieces:
        return _NO_FRAMES
    key = tuple(map(id, pieces))
    found = _LIBRARIES.find(key) if remembered else None
    if found is None:
        frames = frames_of([frame for piece in pieces for frame in piece.made.frames], [], [])
        found = frames, pieces
        if remembered:
            _LIBRARIES.add(key, found, sum(piece.nbytes for piece in pieces))
    return found[0]


def _joined(made: RuleDfas, others: Frames, callees: list[list[int]]) -> Frames:
    """The frames of the nets, and behind them others."""
    n = len(made.state_at) - 1
    symbols = np.array(list(chain.from_iterable(callees)), np.int32)
    return Frames(
        np.concatenate([made.state_at[:-1], others.state_at + made.state_at[-1]]),
        np.concatenate([made.class_at[:-1], others.class_at + made.class_at[-1]]),
        np.concatenate([made.edge_start, others.edge_start[1:] + made.edge_start[-1]]),
        np.concatenate([made.edge_low, others.edge_low]),
        np.concatenate([made.edge_high, others.edge_high]),
        np.concatenate([made.edge_target, others.edge_target]),
        np.concatenate([made.final, others.final]),
        np.concatenate([made.class_of, others.class_of]),
        symbols,
        np.full(len(symbols), -1, np.int32),
        np.concatenate([np.full(n, PLAIN, np.uint8), others.kind]),
        np.concatenate([np.zeros(n, np.int64), others.minimum]),
        np.concatenate([np.zeros(n, np.int64), others.maximum]),
        {n + number: guards for number, guards in others.guards.items()},
    )


def _is_worth_remembering(body: Expression) -> bool:
    """Whether a rule has no calls, and is more than literal texts and tables: other grammars may have it too."""
    found = False
    stack = [body]
    while stack:
        at = stack.pop()
        kind = type(at)
        if kind is Reference:
            return False
        if kind is Bytes or kind is ByteAutomaton:
            continue
        if kind is Sequence:
            stack.extend(at.parts)  # type: ignore[attr-defined]
        elif kind is Machine:
            stack.extend(at.labels)  # type: ignore[attr-defined]
        elif kind is Alternation:
            stack.extend(at.options)  # type: ignore[attr-defined]
        else:
            found = True
            stack.extend(children(at))
    return found


def _is_small(body: Expression) -> bool:
    """Whether a rule without calls is as well unrolled."""
    stack = [body]
    while stack:
        at = stack.pop()
        if isinstance(at, Repeat):
            if max(at.minimum, at.maximum or 0) > _FEW_COPIES:
                return False
        elif not isinstance(at, Bytes | Characters | Sequence | Alternation | ByteAutomaton):
            return False
        stack.extend(children(at))
    return True


def _small_piece(name: str, body: Expression, limits: Limits, absent: frozenset[int]) -> Piece:
    nets = Nets(limits)
    nets.add(body)
    nullable = np.zeros(1, np.uint8)
    made = rule_dfas(nets, [[]], nullable, -1, limits, absent)
    if made.failed >= 0:
        raise _too_large(name, body, made.too_many_edges)
    alone = RuleFrames((Frame(made.dfa(0)),), ((),), bool(nullable[0]))
    return Piece(alone, tuple(nets.loops), nets.is_text, body)


def make_piece(
    name: str, body: Expression, nullable: Mapping[str, bool], limits: Limits, absent: frozenset[int]
) -> Piece:
    """Make a rule by itself; `nullable` says of the rules that it calls what they match. Raises `GrammarError`."""
    if contains(body, Token):
        raise NotFlat(name)
    if _is_small(body):
        try:
            return _small_piece(name, body, limits, absent)
        except Apart:  # few copies, but of something large
            pass
    simple = Simplifier({}, limits, frozenset(references(body))).simplify(body)
    try:
        made = rule_frames(name, simple, nullable, limits, absent)
    except GrammarUnsatisfiable:
        raise NotFlat(name) from None  # calls of it must go
    return Piece(made, tuple(loop_classes(simple)), expression_is_text(body), body)
