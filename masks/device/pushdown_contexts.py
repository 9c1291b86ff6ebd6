"""The masks of a pushdown automaton, built ahead: a tree of contexts that is walked along a stack.

What a mask depends on is the number on top of the stack, and as many of those below as one token can pop. From a number
on an unknown stack all tokens are walked at once, level by level of the vocabulary's trie; where a token's byte is left
for what the frame returns to, its trie node stays *pending*. A context without pending nodes has its mask. Others have
a child for each number that may be below, from which the pending nodes alone are walked, and so on down. Where two
actions are possible both are followed: a mask is right whatever the device can step.

Contexts with the same tokens so far and the same pending nodes are one, and so are those with the same mask.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..trie import V_NEXT_SAME, V_NODE, V_NODE_TOKEN, V_ROOT, VocabularyTables
from .pushdown import BEYOND, Pushdown

#: Contexts of one grammar (V/8 bytes each on the host while they are built), and pairs of a trie node and a stack that
#: are looked at for all of them (about half a microsecond each, with all that follows from them). What is past either
#: is not known: a row that gets there is the host's.
MAX_CONTEXTS = 1 << 14
MAX_WORK = 20_000_000
#: Stacks of one walk: more, in grammars with many ways to read a text, and its context is not known.
MAX_STACKS = 4096
#: In place of a context's mask: the number below decides, or it is not known.
DEEPER, UNKNOWN = -1, -2


@dataclass(frozen=True, eq=False)
class Contexts:
    """`root` int32[numbers]: the context of each number. `mask` int32[contexts]: which of `masks`, DEEPER or UNKNOWN.

    `children`: (context, number below or -1 for the bottom) -> context. `masks`: the tokens of each mask, bits of
    uint8[width / 8 rounded up], LSB first.
    """

    root: NDArray[np.int32]
    mask: NDArray[np.int32]
    children: dict[tuple[int, int], int]
    masks: list[NDArray[np.uint8]]


@dataclass(frozen=True, eq=False)
class _Walked:
    """What a walk found: packed bits of the tokens, and the pending nodes in order."""

    tokens: NDArray[np.uint8]
    pending: NDArray[np.int64]


class _Walker:
    """Walks of one automaton over one vocabulary. Named tokens are nodes of their own after those of the trie."""

    def __init__(self, automaton: Pushdown, tables: VocabularyTables, token_ids: NDArray[np.int32], width: int) -> None:
        self._p = automaton
        self._width = width
        arrays = tables.block.arrays
        node = arrays[V_NODE].reshape(-1)
        named = len(token_ids)
        zeros = np.zeros(named, np.int64)
        self._first = np.concatenate([node >> 32, zeros])
        self._children = np.concatenate([(node >> 16) & 0xFFFF, zeros])
        self._column = np.concatenate(
            [automaton.columns[node & 0xFF], automaton.actions.shape[1] - named + np.arange(named)]
        )
        self._token = np.concatenate([arrays[V_NODE_TOKEN].reshape(-1), token_ids]).astype(np.int64)
        self._next_same = arrays[V_NEXT_SAME].reshape(-1).astype(np.int64)
        root = int(tables.block.header[V_ROOT])
        top = (root >> 32) + np.arange((root >> 16) & 0xFFFF)
        #: The nodes with which any token begins.
        self.tops = np.concatenate([top, len(node) + np.arange(named)]).astype(np.int64)
        self.work = 0
        self._stacks: list[tuple[int, ...]] = []
        self._number_of: dict[tuple[int, ...], int] = {}
        self._steps: dict[int, tuple[list[int], bool] | None] = {}
        self._known: dict[tuple[int, bytes], _Walked | None] = {}

    def walk(self, number: int, nodes: NDArray[np.int64]) -> _Walked | None:
        """From `number` on an unknown stack, the tokens below `nodes`, whose own bytes come first; None: not known."""
        key = number, nodes.tobytes()
        if key not in self._known:
            self._known[key] = self._walk(number, nodes)
        return self._known[key]

    def _stack(self, stack: tuple[int, ...]) -> int:
        number = self._number_of.setdefault(stack, len(self._stacks))
        if number == len(self._stacks):
            self._stacks.append(stack)
        return number

    def _step(self, key: int) -> tuple[list[int], bool] | None:
        """(stacks after a column, whether it is left for what is below) of a stack * columns + column."""
        if key not in self._steps:
            stack, column = divmod(key, self._p.actions.shape[1])
            self._steps[key] = self._find_step(self._stacks[stack], column)
        return self._steps[key]

    def _find_step(self, stack: tuple[int, ...], column: int) -> tuple[list[int], bool] | None:
        found: list[int] = []
        while stack:
            options = self._p.options[stack[-1]]
            if options is None:
                return None
            found += [self._stack((*stack[:-1], *pushed, target)) for pushed, target in options.get(column, ())]
            if not self._p.returns[stack[-1]]:
                return list(dict.fromkeys(found)), False
            stack = stack[:-1]
        return list(dict.fromkeys(found)), True

    def _walk(self, number: int, nodes: NDArray[np.int64]) -> _Walked | None:
        self._stacks, self._number_of, self._steps = [], {}, {}
        stacks = np.full(len(nodes), self._stack((number,)), np.int64)
        columns = self._p.actions.shape[1]
        alive = np.zeros(len(self._token), np.bool_)
        pending = []
        while len(nodes):
            self.work += len(nodes)
            if len(self._stacks) > MAX_STACKS or self.work > MAX_WORK:
                return None
            keys, which = np.unique(stacks * columns + self._column[nodes], return_inverse=True)
            steps = [self._step(key) for key in keys.tolist()]
            if None in steps:
                return None
            after = [step for step in steps if step is not None]
            pending.append(nodes[np.array([left for _, left in after])[which]])
            counts = np.array([len(reached) for reached, _ in after])
            flat = np.array([stack for reached, _ in after for stack in reached], np.int64)
            nodes, places = _spread(nodes, (np.cumsum(counts) - counts)[which], counts[which])
            alive[nodes] = True
            stacks, (nodes, places) = (
                flat[places],
                _spread(np.arange(len(nodes)), self._first[nodes], self._children[nodes]),
            )
            stacks, nodes = stacks[nodes], places
            if int(counts.max()) > 1:
                pairs = np.unique(np.stack([nodes, stacks]), axis=1)
                nodes, stacks = pairs[0], pairs[1]
        return _Walked(self._tokens_of(alive), np.unique(np.concatenate([nodes[:0], *pending])))

    def _tokens_of(self, alive: NDArray[np.bool_]) -> NDArray[np.uint8]:
        legal = np.zeros(self._width, np.bool_)
        tokens = self._token[alive]
        tokens = tokens[tokens >= 0]
        while len(tokens):
            legal[tokens] = True
            tokens = tokens[tokens < len(self._next_same)]
            tokens = self._next_same[tokens]
            tokens = tokens[tokens >= 0]
        return np.packbits(legal, bitorder="little")


def _spread(
    values: NDArray[np.int64], first: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each value `counts` times, and beside it the numbers from its `first` on."""
    total = np.cumsum(counts)
    places = np.arange(int(total[-1]) if len(total) else 0) + np.repeat(first - total + counts, counts)
    return np.repeat(values, counts), places


def contexts(
    automaton: Pushdown, tables: VocabularyTables, token_ids: NDArray[np.int32], width: int, most: int = MAX_CONTEXTS
) -> Contexts:
    """The contexts of all numbers, over a vocabulary of `width` tokens; past `most` of them they are UNKNOWN."""
    walker = _Walker(automaton, tables, token_ids, width)
    masks: dict[bytes, int] = {}
    known: dict[tuple[int, int, bytes], int] = {}
    mask: list[int] = []
    children: dict[tuple[int, int], int] = {}
    waiting: list[tuple[int, NDArray[np.uint8], int, NDArray[np.int64]]] = []

    def context(found: _Walked | None, before: NDArray[np.uint8] | None, frame: int) -> int:
        """The number of the context of these tokens and pending nodes, on top of a level of `frame`."""
        if found is None:
            key = (UNKNOWN, -1, b"")
        else:
            tokens = found.tokens if before is None else found.tokens | before
            number = masks.setdefault(tokens.tobytes(), len(masks))
            key = (number, frame if len(found.pending) else -1, found.pending.tobytes())
        if key not in known:
            if len(known) >= most:
                key = (UNKNOWN, -1, b"")
            if key not in known:
                known[key] = len(mask)
                mask.append(UNKNOWN if key[0] == UNKNOWN else DEEPER if key[2] else key[0])
                if key[2]:
                    assert found is not None
                    waiting.append((known[key], tokens, frame, found.pending))
        return known[key]

    root = np.array(
        [
            context(None if number == BEYOND else walker.walk(number, walker.tops), None, int(frame))
            for number, frame in enumerate(automaton.frame.tolist())
        ],
        np.int32,
    )
    at = 0
    while at < len(waiting):
        number, tokens, frame, pending = waiting[at]
        at += 1
        for under in sorted(automaton.below.get(frame, ())):
            if under < 0:
                found: _Walked | None = _Walked(tokens, pending[:0])
            else:
                found = walker.walk(under, pending)
            children[number, under] = context(found, tokens, -1 if under < 0 else int(automaton.frame[under]))
    # Masks of contexts that go deeper are not needed.
    used = sorted({place for place in mask if place >= 0})
    new = {place: i for i, place in enumerate(used)}
    packed = list(masks)
    return Contexts(
        root,
        np.array([new.get(place, place) for place in mask], np.int32),
        children,
        [np.frombuffer(packed[place], np.uint8) for place in used],
    )
