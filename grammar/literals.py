"""An alternation of plain strings: a sorted trie with equal rests merged, without any construction by sets.

The result is the minimal acyclic DFA (as in J. Daciuk et al., "Incremental construction of minimal
acyclic finite-state automata", Computational Linguistics 26, 2000; here the whole trie is built first
and merged bottom up, which needs no deletion).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .._numba import kernel
from .assemble import coarsest_classes, loop_sections
from .automaton import FINAL, FINITE, PLAIN, Automaton
from .errors import GrammarTooLarge
from .expression import Alternation, Bytes, Expression
from .limits import Limits
from .position import Int32Array, Uint8Array

#: Fewer options than this take the general way, which gives the same automaton.
_FEWEST = 32


def literal_options(node: Expression) -> list[bytes] | None:
    """The options of an alternation of many plain strings, or None where `node` is something else."""
    if not isinstance(node, Alternation) or len(node.options) < _FEWEST:
        return None
    texts = [option.text for option in node.options if isinstance(option, Bytes)]
    return texts if len(texts) == len(node.options) else None


def compile_literals(options: list[bytes], limits: Limits) -> Automaton:
    """The automaton of exactly these strings (at least one). Raises `GrammarTooLarge`."""
    texts = sorted(set(options))
    starts = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=starts[1:])
    data = np.frombuffer(bytearray(b"".join(texts)), np.uint8)
    n_states, edges, single_byte, single_target, row, byte, target, final, distance = _merge_trie(
        data, starts, limits.max_choice_states
    )
    if n_states < 0:
        raise GrammarTooLarge("the strings of a choice are too many or too long", limit="max_choice_states")
    n_rows = int(edges.max(initial=-1)) + 1
    byte_class, n_classes, dense = _dense_rows(n_rows, row, byte, target)
    arrays: dict[str, Any] = {
        "byte_class": byte_class,
        "edges": edges,
        "dense": dense,
        "single_byte": single_byte,
        "single_target": single_target,
        "state_flags": final * np.uint8(FINAL),
        "state_frame": np.zeros(n_states, np.int32),
        "state_loop": np.full(n_states, -1, np.int32),
        "state_distance": distance,
        "call_start": np.zeros(n_states + 1, np.int32),
        "token_start": np.zeros(n_states + 1, np.int32),
        "frame_start": np.zeros(1, np.int32),
        "frame_kind": np.array([PLAIN], np.uint8),
        "frame_minimum": np.zeros(1, np.int64),
        "frame_maximum": np.zeros(1, np.int64),
        "frame_length": distance[:1].astype(np.int64),
        "frame_first": _bits({text[0] for text in texts if text}),
        "frame_follow": _bits(set()),
        **loop_sections([]),
    }
    return Automaton.build(arrays, n_classes=n_classes, root_frame=0, flags=FINITE, metadata={"tokens": []})


def _bits(found: set[int]) -> npt.NDArray[np.int64]:
    """A set of bytes, a bit each."""
    flags = np.zeros(256, np.bool_)
    flags[list(found)] = True
    return np.packbits(flags, bitorder="little").view(np.int64)


def _dense_rows(
    n_rows: int, row: Int32Array, byte: Uint8Array, target: Int32Array
) -> tuple[Uint8Array, int, Int32Array]:
    """(byte classes, their number, the flat table) of the states with several edges, given as triples."""
    if n_rows == 0:
        return np.zeros(256, np.uint8), 1, np.zeros(0, np.int32)
    used = np.unique(byte)
    unused = next((b for b in range(256) if b not in set(used.tolist())), None)
    columns = used if unused is None else np.append(used, np.uint8(unused))
    column_of = np.full(256, len(columns) - 1, np.int64)
    column_of[used] = np.arange(len(used))
    table = np.full((n_rows, len(columns)), -1, np.int32)
    table[row, column_of[byte]] = target
    keys: dict[bytes, int] = {}
    merged = np.array([keys.setdefault(c.tobytes(), len(keys)) for c in np.ascontiguousarray(table.T)], np.int64)
    byte_class, first_of = coarsest_classes([merged[column_of][None, :]])
    return byte_class, len(first_of), table[:, column_of[first_of]].reshape(-1)


@kernel("(uint8[::1], int64[::1], int64)", allocates=True)
def _merge_trie(
    data: Uint8Array, starts: npt.NDArray[np.int64], max_nodes: int
) -> tuple[int, Int32Array, Uint8Array, Int32Array, Int32Array, Uint8Array, Int32Array, Uint8Array, Int32Array]:
    """The minimal DFA of sorted, distinct strings, numbered breadth first.

    Returns the number of states (-1 where the trie would pass `max_nodes`); `edges`, `single_byte` and
    `single_target` as in `Automaton`; (row, byte, target) of each edge in a dense row; final flags and
    the fewest bytes to a final state.
    """
    n_texts = len(starts) - 1
    # Pass 0: how many nodes (a string adds one for each byte behind what it shares with the one before).
    n_nodes = 1
    shared = np.zeros(n_texts, np.int32)
    longest = 0
    for i in range(n_texts):
        size = starts[i + 1] - starts[i]
        longest = max(longest, size)
        k = 0
        if i > 0:
            before = starts[i] - starts[i - 1]
            while k < size and k < before and data[starts[i] + k] == data[starts[i - 1] + k]:
                k += 1
        shared[i] = k
        n_nodes += size - k
    too_large = n_nodes > max_nodes
    if too_large:
        n_nodes = 1
        n_texts = 0
    # Pass 1: the trie in preorder; children of a node in the order of their bytes.
    node_byte = np.zeros(n_nodes, np.uint8)
    first_child = np.full(n_nodes, -1, np.int32)
    sibling = np.full(n_nodes, -1, np.int32)
    final = np.zeros(n_nodes, np.uint8)
    path = np.zeros(longest + 1, np.int32)
    count = 1
    for i in range(n_texts):
        size = starts[i + 1] - starts[i]
        for k in range(shared[i], size):
            node = count
            count += 1
            node_byte[node] = data[starts[i] + k]
            parent = path[k]
            if k == shared[i] and first_child[parent] >= 0:
                sibling[path[k + 1]] = node  # the newest child so far: the previous string went through it
            else:
                first_child[parent] = node
            path[k + 1] = node
        final[path[size]] = 1
    # Pass 2: bottom up, a node stands for the first one met with the same rests.
    same_as = np.empty(n_nodes, np.int32)
    distance = np.empty(n_nodes, np.int32)
    hashes = np.empty(n_nodes, np.uint64)
    size = 64
    while size < 2 * n_nodes:
        size *= 2
    table = np.full(size, -1, np.int32)
    mask = np.uint64(size - 1)
    n_states = 0
    for node in range(n_nodes - 1, -1, -1):
        value = np.uint64(final[node]) + np.uint64(0x9E3779B97F4A7C15)
        least = np.int32(2147483646)
        child = first_child[node]
        while child >= 0:
            value = (value ^ np.uint64(same_as[child])) * np.uint64(0xBF58476D1CE4E5B9)
            value = (value ^ (value >> np.uint64(29)) ^ np.uint64(node_byte[child])) * np.uint64(0x94D049BB133111EB)
            value ^= value >> np.uint64(32)
            least = min(least, distance[child])
            child = sibling[child]
        distance[node] = 0 if final[node] else least + 1
        hashes[node] = value
        slot = np.int64(value & mask)
        found = -1
        while table[slot] >= 0:
            other = table[slot]
            if hashes[other] == value and final[other] == final[node]:
                a = first_child[node]
                b = first_child[other]
                while a >= 0 and b >= 0 and node_byte[a] == node_byte[b] and same_as[a] == same_as[b]:
                    a = sibling[a]
                    b = sibling[b]
                if a < 0 and b < 0:
                    found = other
                    break
            slot = (slot + 1) & (size - 1)
        if found < 0:
            found = node
            table[slot] = node
            n_states += 1
        same_as[node] = found
    # Pass 3: number the states breadth first and write their edges.
    number = np.full(n_nodes, -1, np.int32)
    queue = np.empty(n_states, np.int32)
    queue[0] = same_as[0]
    number[same_as[0]] = 0
    count = 1
    edges = np.empty(n_states, np.int32)
    state_final = np.empty(n_states, np.uint8)
    state_distance = np.empty(n_states, np.int32)
    n_single = 0
    n_rows = 0
    single_byte = np.empty(n_states, np.uint8)
    single_target = np.empty(n_states, np.int32)
    row = np.empty(n_nodes, np.int32)
    row_byte = np.empty(n_nodes, np.uint8)
    row_target = np.empty(n_nodes, np.int32)
    n_entries = 0
    for i in range(n_states):
        node = queue[i]
        state_final[i] = final[node]
        state_distance[i] = distance[node]
        child = first_child[node]
        branching = child >= 0 and sibling[child] >= 0
        edges[i] = -1
        if branching:
            edges[i] = n_rows
            n_rows += 1
        elif child >= 0:
            edges[i] = -2 - n_single
        while child >= 0:
            to = same_as[child]
            if number[to] < 0:
                number[to] = count
                queue[count] = to
                count += 1
            if branching:
                row[n_entries] = edges[i]
                row_byte[n_entries] = node_byte[child]
                row_target[n_entries] = number[to]
                n_entries += 1
            else:
                single_byte[n_single] = node_byte[child]
                single_target[n_single] = number[to]
                n_single += 1
            child = sibling[child]
    return (
        -1 if too_large else n_states,
        edges,
        single_byte[:n_single].copy(),
        single_target[:n_single].copy(),
        row[:n_entries].copy(),
        row_byte[:n_entries].copy(),
        row_target[:n_entries].copy(),
        state_final,
        state_distance,
    )
