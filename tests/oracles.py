"""Slow and obviously right versions of what the package computes fast, for tests."""

from __future__ import annotations

import struct

from stepmask.grammar.automaton import COUNTER, FINAL, H_ROOT_FRAME, LAZY, Automaton
from stepmask.grammar.expression import (
    Alternation,
    ByteAutomaton,
    Bytes,
    Characters,
    Complement,
    EndAnchor,
    Expression,
    Intersection,
    Lookahead,
    Repeat,
    Sequence,
    StartAnchor,
    Token,
)


def expression_matches(expression: Expression, text: str | bytes) -> bool:
    """Whether `expression`, which refers to no rules, matches the whole `text`."""
    data = text.encode() if isinstance(text, str) else text
    return len(data) in _ends(expression, data, 0, {})


def _ends(node: Expression, data: bytes, start: int, known: dict[tuple[int, int], frozenset[int]]) -> frozenset[int]:
    """All positions where a match of `node` that begins at `start` can end."""
    key = (id(node), start)
    if key not in known:
        known[key] = frozenset(_find_ends(node, data, start, known))
    return known[key]


def _find_ends(node: Expression, data: bytes, start: int, known: dict[tuple[int, int], frozenset[int]]) -> set[int]:
    def step(body: Expression, positions: set[int]) -> set[int]:
        return {end for position in positions for end in _ends(body, data, position, known)}

    if isinstance(node, Bytes):
        return {start + len(node.text)} if data.startswith(node.text, start) else set()
    if isinstance(node, Characters):
        ends = range(start + 1, min(start + 4, len(data)) + 1)
        read = {end: text for end in ends if (text := _decoded(data[start:end])) is not None and len(text) == 1}
        return {end for end, text in read.items() if any(low <= ord(text) <= high for low, high in node.ranges)}
    if isinstance(node, Sequence):
        positions = {start}
        for part in node.parts:
            positions = step(part, positions)
        return positions
    if isinstance(node, Alternation):
        return {end for option in node.options for end in _ends(option, data, start, known)}
    if isinstance(node, Repeat):
        positions = {start}
        for _ in range(node.minimum):
            positions = step(node.body, positions)
        found = set(positions)
        more = None if node.maximum is None else node.maximum - node.minimum
        while positions and more != 0:
            positions = step(node.body, positions) - found
            found |= positions
            more = None if more is None else more - 1
        return found
    if isinstance(node, Intersection):
        return set.intersection(*(set(_ends(operand, data, start, known)) for operand in node.operands))
    if isinstance(node, Complement):
        texts = {end for end in range(start, len(data) + 1) if _decoded(data[start:end]) is not None}
        return texts - _ends(node.operand, data, start, known)
    if isinstance(node, Lookahead):
        return {start} if bool(_ends(node.operand, data, start, known)) != node.negative else set()
    if isinstance(node, StartAnchor):
        return {start} if start == 0 else set()
    if isinstance(node, EndAnchor):
        return {start} if start == len(data) else set()
    if isinstance(node, Token):
        return set()
    if isinstance(node, ByteAutomaton):
        ends, states, at = set(), {0}, start
        while states:
            ends |= {at} if any(node.final[state] for state in states) else set()
            if at == len(data):
                break
            edges = struct.iter_unpack("4i", node.edges)
            states = {target for source, low, high, target in edges if source in states and low <= data[at] <= high}
            at += 1
        return ends
    raise TypeError(f"no meaning without rules: {node!r}")


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


# --- grammar: the automaton, as its module's text defines it ---

_Stack = tuple[tuple[int, int], ...]  # (state, register) of each open frame, the innermost last


class ReferenceMatcher:
    """Runs an `Automaton` on explicit stacks: every head is a tuple of (state, register), the innermost last."""

    def __init__(self, automaton: Automaton) -> None:
        self.automaton = automaton
        self.sections = {name: section.tolist() for name, section in automaton.sections.items()}
        self.lazy = bool(automaton.flags & LAZY)
        root = int(automaton.header[H_ROOT_FRAME])
        start = 0 if self.lazy else self.sections["frame_start"][root]
        #: Heads before anything is called, returned or begun.
        self.heads: frozenset[_Stack] = frozenset({((start, 0),)})
        self._closure: tuple[frozenset[_Stack], frozenset[_Stack]] | None = None

    def copy(self) -> ReferenceMatcher:
        """An independent matcher in the same state."""
        other = ReferenceMatcher.__new__(ReferenceMatcher)
        other.__dict__.update(self.__dict__)
        return other

    def next_state(self, state: int, byte: int) -> int:
        """The target of a byte edge, or -1."""
        a = self.sections
        row: int = a["edges"][state]
        if row >= 0:
            return int(a["dense"][row * self.automaton.n_classes + a["byte_class"][byte]])
        if row == -1 or a["single_byte"][-2 - row] != byte:
            return -1
        return int(a["single_target"][-2 - row])

    def closure(self) -> frozenset[_Stack]:
        """The heads and all that calls, returns and new items make of them without reading anything.

        The empty stack stands for the end of the root frame: the text may end here.
        """
        if self._closure is None or self._closure[0] is not self.heads:
            self._closure = self.heads, self._find_closure()
        return self._closure[1]

    def _find_closure(self) -> frozenset[_Stack]:
        a = self.sections
        if self.lazy:
            final = any(a["lazy_final"][stack[-1][0]] for stack in self.heads)
            return self.heads | ({()} if final else frozenset())
        found, pending = set(self.heads), list(self.heads)
        while pending:
            stack = pending.pop()
            if not stack:
                continue
            below, (state, register) = stack[:-1], stack[-1]
            frame = a["state_frame"][state]
            new: list[_Stack] = []
            for edge in range(a["call_start"][state], a["call_start"][state + 1]):
                entry = a["frame_start"][a["call_frame"][edge]]
                new.append((*below, (a["call_target"][edge], register), (entry, 0)))
            if a["state_flags"][state] & FINAL:
                may_return = True
                if a["frame_kind"][frame] == COUNTER:
                    minimum, maximum = a["frame_minimum"][frame], a["frame_maximum"][frame]
                    may_return = register + 1 >= minimum
                    if maximum < 0 or register + 1 < maximum:
                        items = register + 1 if maximum >= 0 else min(register + 1, max(minimum - 1, 0))
                        new.append((*below, (a["frame_start"][frame], items)))
                if may_return:
                    new.append(below)
            for stack in new:
                if stack not in found:
                    found.add(stack)
                    pending.append(stack)
        return frozenset(found)

    @property
    def is_complete(self) -> bool:
        """Whether the text so far matches."""
        return () in self.closure()

    def live_bytes(self) -> set[int]:
        """The bytes that `accept_byte` would take."""
        return {byte for byte in range(256) if self._after(byte)}

    def accept_byte(self, byte: int) -> bool:
        """Read a byte; False, with the state unchanged, where no text goes on like that."""
        return self._take(self._after(byte))

    def _after(self, byte: int) -> set[_Stack]:
        a = self.sections
        heads: set[_Stack] = set()
        for stack in self.closure():
            if not stack:
                continue
            below, (state, register) = stack[:-1], stack[-1]
            if self.lazy:
                symbol = a["byte_class"][byte]
                for edge in range(a["lazy_edge_start"][state], a["lazy_edge_start"][state + 1]):
                    low, high, target = a["lazy_edges"][3 * edge : 3 * edge + 3]
                    if low <= symbol <= high:
                        heads.add(((target, 0),))
                continue
            target = self.next_state(state, byte)
            if target >= 0:
                heads.add((*below, (target, register)))
        return heads

    def accept_token(self, name: str | int) -> bool:
        """Read a token symbol; as `accept_byte`."""
        a = self.sections
        names = self.automaton.metadata["tokens"]
        heads: set[_Stack] = set()
        for stack in () if self.lazy else self.closure():
            if not stack:
                continue
            below, (state, register) = stack[:-1], stack[-1]
            for edge in range(a["token_start"][state], a["token_start"][state + 1]):
                if names[a["token_symbol"][edge]] == name:
                    heads.add((*below, (a["token_target"][edge], register)))
        return self._take(heads)

    def _take(self, heads: set[_Stack]) -> bool:
        if heads:
            self.heads = frozenset(heads)
        return bool(heads)

    def accept(self, data: bytes) -> bool:
        """Read all of `data`; False, with the state unchanged, where no text goes on like that."""
        before = self.heads
        for byte in data:
            if not self.accept_byte(byte):
                self.heads = before
                return False
        return True
