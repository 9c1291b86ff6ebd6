"""How a sequence can be brought to an end: its shortest completion, and the fewest tokens that spell it."""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .._numba import helper, kernel
from ..grammar.automaton import H_FLAGS, LAZY, RECURSIVE, Automaton
from .graph_call import call_completion
from .history import current_config
from .layout import (
    B_SCRATCH,
    B_SET_SCRATCH,
    B_SLOT_GRAMMAR,
    COMPLETE,
    CONFIG_FIRST_HEAD,
    CONFIG_FLAGS,
    CONFIG_HEADS,
    CONFIG_WORDS,
    FINISHED,
    G_AUTOMATON,
    G_LAZY_SETS,
    G_LAZY_WORDS,
    HEAD_DEPTH,
    HEAD_REGISTERS,
    HEAD_STATES,
    HEAD_WORDS,
)
from .lazy import lazy_is_final, lazy_step
from .machine import head_at, level_distance, step_config
from .memory import count_trailing_zeros, load_i64, store_i64, store_u8

if TYPE_CHECKING:
    from .vocabulary import Vocabulary

_FAR = 1 << 60


@helper
def _config_distance(automaton, config):  # type: ignore[no-untyped-def]
    """Fewest bytes to the end of the text."""
    if load_i64(config, CONFIG_FLAGS) & COMPLETE:
        return 0
    best = _FAR
    for i in range(load_i64(config, CONFIG_HEADS)):
        head = head_at(config, i)
        total = 0
        for level in range(load_i64(head, HEAD_DEPTH)):
            state = load_i64(head, HEAD_STATES + level)
            total += level_distance(automaton, state, load_i64(head, HEAD_REGISTERS + level))
        best = min(best, total)
    return best


@helper
def _set_distance(address, words, distances):  # type: ignore[no-untyped-def]
    best = _FAR
    for word in range(words):
        bits = load_i64(address, word)
        while bits != 0:
            best = min(best, distances[word * 64 + count_trailing_zeros(bits)])
            bits &= bits - 1
    return best


@kernel("int64(int64, int64, int64[::1], int64, int64, int64)")
def shortest_completion(batch, slot, distances, spare, out, most):  # type: ignore[no-untyped-def]
    """Write a shortest byte string that completes the slot's text to `out`; returns its length, or -1 past `most`.

    `distances`: bytes to the end from each position of a lazy grammar (empty for others); `spare`: address of
    int64[2][CONFIG_WORDS] scratch. Each step takes the byte after which least is missing.
    """
    grammar = load_i64(load_i64(batch, B_SLOT_GRAMMAR), slot)
    automaton = load_i64(grammar, G_AUTOMATON)
    lazy = load_i64(automaton, H_FLAGS) & LAZY != 0
    source = current_config(batch, slot)
    if load_i64(source, CONFIG_FLAGS) & (COMPLETE | FINISHED):
        return 0
    if load_i64(automaton, H_FLAGS) & RECURSIVE:
        return call_completion(batch, grammar, slot, source, out, most)
    here, there = spare, spare + 8 * CONFIG_WORDS
    for word in range(CONFIG_FIRST_HEAD + load_i64(source, CONFIG_HEADS) * HEAD_WORDS):
        store_i64(here, word, load_i64(source, word))
    words = load_i64(grammar, G_LAZY_WORDS)
    sets = load_i64(batch, B_SET_SCRATCH)
    current = sets
    if lazy:
        stored = load_i64(grammar, G_LAZY_SETS) + 8 * words * load_i64(here, CONFIG_FIRST_HEAD + HEAD_STATES)
        for word in range(words):
            store_i64(current, word, load_i64(stored, word))
    reached = sets + 8 * words
    n = 0
    while n < most:
        best, chosen = _FAR, -1
        for byte in range(256):
            distance = _FAR
            if lazy:
                if lazy_step(automaton, current, words, byte, reached) >= 0:
                    distance = _set_distance(reached, words, distances)
            elif step_config(automaton, here, byte, load_i64(batch, B_SCRATCH), there):
                distance = _config_distance(automaton, there)
            if distance < best:
                best, chosen = distance, byte
        if chosen < 0:
            return -1
        store_u8(out, n, chosen)
        n += 1
        if lazy:
            lazy_step(automaton, current, words, chosen, reached)
            current, reached = reached, current
            if lazy_is_final(automaton, current, words):
                return n
        else:
            step_config(automaton, here, chosen, load_i64(batch, B_SCRATCH), here)
            if load_i64(here, CONFIG_FLAGS) & COMPLETE:
                return n
    return -1


def lazy_distances(automaton: Automaton) -> npt.NDArray[np.int64]:
    """Fewest bytes to the end from each position of a lazy automaton; empty for others."""
    starts = automaton["lazy_edge_start"]
    if not len(starts):
        return np.zeros(0, np.int64)
    source = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    target = automaton["lazy_edges"].reshape(-1, 3)[:, 2]
    order = np.argsort(target, kind="stable")
    before = np.searchsorted(target[order], np.arange(len(starts)))
    distances = np.full(len(starts) - 1, _FAR, np.int64)
    queue = deque(np.flatnonzero(automaton["lazy_final"]).tolist())
    distances[list(queue)] = 0
    while queue:
        state = queue.popleft()
        for previous in source[order[before[state] : before[state + 1]]].tolist():
            if distances[previous] == _FAR:
                distances[previous] = distances[state] + 1
                queue.append(previous)
    return distances


_SPELLED: weakref.WeakKeyDictionary[Vocabulary, frozenset[bytes]] = weakref.WeakKeyDictionary()


def text_tokens(vocabulary: Vocabulary) -> frozenset[bytes]:
    """The byte strings of all text tokens, kept with the vocabulary."""
    if vocabulary not in _SPELLED:
        _SPELLED[vocabulary] = frozenset(vocabulary.token(i) for i in np.flatnonzero(vocabulary.is_text).tolist())
    return _SPELLED[vocabulary]


def fewest_tokens(text: bytes, spelled: frozenset[bytes]) -> int | None:
    """The fewest text tokens that spell `text`; None where none do."""
    longest = max(map(len, spelled), default=0)
    fewest: list[int | None] = [0] + [None] * len(text)
    for end in range(1, len(text) + 1):
        for begin in range(max(0, end - longest), end):
            so_far = fewest[begin]
            if so_far is not None and text[begin:end] in spelled:
                before = fewest[end]
                fewest[end] = so_far + 1 if before is None else min(before, so_far + 1)
    return fewest[len(text)]
