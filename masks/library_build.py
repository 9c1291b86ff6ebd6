"""Making entries of the library (`masks.library`): each state of a frame is walked, whatever may follow the frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..grammar.automaton import COUNTER, H_FLAGS, UTF8, Automaton, aligned_bytes
from .errors import StackLimitError
from .layout import (
    B_CONFIGS,
    BLOCK_COUNT,
    BLOCK_TRIPLES,
    CONFIG_BLOCK,
    CONFIG_BLOCK_HEADS,
    CONFIG_HEADS,
    CONTEXT_ADDED,
    CONTEXT_ITEM,
    CONTEXT_ITEMS,
    CONTEXT_MASK,
    CONTEXT_RETURN,
    CONTEXT_ROOM,
    CONTEXT_STATE,
    G_CONTEXT_COUNT,
    G_CONTEXTS,
    G_ITEMS,
    G_LIST_NODES,
    G_LISTS,
    G_LIVE,
    ITEM_ADDED,
    ITEM_CALL,
    ITEM_LIST,
    KIND_DENSE,
    KIND_LIST,
    KIND_SHIFT,
    KIND_SINGLE,
    LIST_BEGIN,
    LIST_LENGTH,
    MASK_INDEX,
    MAX_LIST,
    WHOLE,
)
from .library import Entry
from .matcher import shared_batch
from .trie import V_NODE, tables_of

if TYPE_CHECKING:
    from .batch import Batch
    from .compiled import CompiledGrammar

#: Nodes in the lists of one state, at most; a state that leaves its frame nearly anywhere is not kept.
MAX_NODES = 1 << 10
#: More items than any sequence has.
FAR_MAXIMUM = 1 << 40


def build_entries(compiled: CompiledGrammar, frames: Sequence[int]) -> list[Entry]:
    """The entries of these frames of a recursive grammar, in their order."""
    automaton = _open(compiled.automaton, frames)
    alone = replace(compiled, automaton=automaton, boundary=None, ready=None, library=(), library_keys=None)
    with shared_batch(compiled.vocabulary) as batch:
        slot = batch.add(alone)
        try:
            # Whatever the grammar has elsewhere: any byte may be on an edge.
            batch._used(slot).block.arrays[G_LIVE][:] = -1
            return [_entry(batch, slot, automaton, frame) for frame in frames]
        finally:
            batch.remove(slot)
            del batch._residents[id(alone)]
            batch.drop_unfinished()


def _open(automaton: Automaton, frames: Sequence[int]) -> Automaton:
    """A copy in which anything may follow these frames, and counters have no bounds that a token gets to."""
    memory = aligned_bytes(automaton.memory.nbytes)
    memory[:] = automaton.memory
    copy = Automaton.adopt(memory, check=False)
    copy.header[H_FLAGS] &= ~UTF8
    for frame in frames:
        copy["frame_follow"].reshape(-1, 4)[frame] = -1
        if copy["frame_kind"][frame] == COUNTER:
            # Not without a maximum: then items are not counted.
            copy["frame_minimum"][frame], copy["frame_maximum"][frame] = 1, FAR_MAXIMUM
    return copy


def _entry(batch: Batch, slot: int, automaton: Automaton, frame: int) -> Entry:
    states = np.flatnonzero(automaton["state_frame"] == frame)
    first, n = int(states[0]), len(states)
    calls = int(automaton["call_start"][first])
    known = np.zeros(n, np.uint8)
    row, added, room = np.full(n, -1, np.int32), np.zeros(n, np.int64), np.zeros(n, np.int64)
    rows: list[npt.NDArray[np.int64]] = []
    lists: dict[str, list[npt.NDArray[np.int32]]] = {"tokens": [], "returns": []}
    items: list[list[tuple[int, int, npt.NDArray[np.int32]]]] = []
    none = np.zeros(0, np.int32)
    for local, state in enumerate(states.tolist()):
        found = _context(batch, slot, state) if automaton["edges"][state] != -1 else None
        tokens, returns, own = none, none, []
        if found is not None:
            context, mask, returns, own = found
            if len(returns) + sum(len(nodes) for _, _, nodes in own) <= MAX_NODES:
                known[local] = 1
                added[local], room[local] = context[CONTEXT_ADDED], context[CONTEXT_ROOM]
                tokens = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).astype(np.int32)
                if len(tokens) > MAX_LIST:
                    row[local] = len(rows)
                    rows.append(mask)
                    tokens = none
            else:
                returns, own = none, []
        lists["tokens"].append(tokens)
        lists["returns"].append(returns)
        items.append([(call - calls, more, nodes) for call, more, nodes in own])
    token_start, tokens = _joined(lists["tokens"])
    return_start, returns = _joined(lists["returns"])
    item_start, _ = _joined([np.zeros(len(own), np.int32) for own in items])
    bounds, item_nodes = _joined([nodes for own in items for _, _, nodes in own])
    flat = [(call, more) for own in items for call, more, _ in own]
    table = np.array([(*pair, a, b) for pair, a, b in zip(flat, bounds[:-1], bounds[1:], strict=True)], np.int64)
    arrays: dict[str, npt.NDArray[Any]] = {
        "known": known,
        "row": row,
        "rows": np.stack(rows) if rows else np.zeros((0, batch.words), np.int64),
        "token_start": token_start,
        "tokens": tokens,
        "return_start": return_start,
        "returns": returns,
        "return_bytes": _children_bytes(batch, returns),
        "item_start": item_start,
        "items": table.reshape(-1, 4),
        "item_nodes": item_nodes,
        "added": added,
        "room": room,
    }
    return Entry(arrays)


def _joined(parts: list[npt.NDArray[np.int32]]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """(where each begins, and the end of the last; all of them behind each other)."""
    start = np.cumsum([0] + [len(part) for part in parts]).astype(np.int32)
    return start, np.concatenate([np.zeros(0, np.int32), *parts]).astype(np.int32)


def _context(batch: Batch, slot: int, state: int) -> Any:
    """(the context's words, its mask, its return nodes, its calls) of a state, or None where it has none."""
    batch.reset(slot)
    config = batch._block.arrays[B_CONFIGS][slot, 0]
    heads = batch.arena(slot)[int(config[CONFIG_BLOCK]) :]
    heads[BLOCK_COUNT] = 1
    heads[BLOCK_TRIPLES + 1 : BLOCK_TRIPLES + 3] = state, 0
    config[CONFIG_HEADS] = config[CONFIG_BLOCK_HEADS] = 1
    batch.forget_stack(slot)
    try:
        batch.mask(slot)
    except StackLimitError:
        return None
    block = batch._used(slot).block
    contexts = block.arrays[G_CONTEXTS][: int(block.header[G_CONTEXT_COUNT])]
    at = np.flatnonzero(contexts[:, CONTEXT_STATE] == state | (WHOLE << 32))
    if len(at) != 1:
        return None
    context = contexts[at[0]].copy()
    returns = np.zeros(0, np.int32) if context[CONTEXT_RETURN] < 0 else _list(block, int(context[CONTEXT_RETURN]))
    begin = int(context[CONTEXT_ITEM])
    own = [
        (int(item[ITEM_CALL]), int(item[ITEM_ADDED]), _list(block, int(item[ITEM_LIST])))
        for item in block.arrays[G_ITEMS][begin : begin + int(context[CONTEXT_ITEMS])]
    ]
    return context, _mask(batch, int(context[CONTEXT_MASK]) & 0x7FFFFFFF), returns, own


def _list(block: Any, number: int) -> npt.NDArray[np.int32]:
    entry = block.arrays[G_LISTS][number]
    begin = int(entry[LIST_BEGIN])
    nodes: npt.NDArray[np.int32] = block.arrays[G_LIST_NODES][begin : begin + int(entry[LIST_LENGTH])].copy()
    return nodes


def _mask(batch: Batch, mask_id: int) -> npt.NDArray[np.int64]:
    """The bitmap of a mask id, int64[words]."""
    words = np.zeros(batch.words, np.int64)
    kind, index = mask_id >> KIND_SHIFT, mask_id & MASK_INDEX
    tables = batch.tables
    if kind == KIND_DENSE:
        words[:] = tables.dense[index].view(np.int64)
    elif kind in (KIND_LIST, KIND_SINGLE):
        tokens = np.array([index], np.int32)
        if kind == KIND_LIST:
            begin = int(tables.list_offset[index])
            tokens = tables.list_tokens[begin : begin + int(tables.list_length[index])]
        bits = np.zeros(64 * batch.words, np.uint8)
        bits[tokens] = 1
        words[:] = np.packbits(bits, bitorder="little").view(np.int64)
    return words


def _children_bytes(batch: Batch, nodes: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """int64[nodes][4]: the bytes of each trie node's children, a bit each."""
    table = tables_of(batch.vocabulary).block.arrays[V_NODE]
    packed = table[nodes]
    first, children = packed >> 32, (packed >> 16) & 0xFFFF
    bits = np.zeros((len(nodes), 256), np.uint8)
    of = np.repeat(np.arange(len(nodes)), children)
    places = np.arange(len(of)) - np.repeat(np.cumsum(children) - children, children) + np.repeat(first, children)
    bits[of, table[places] & 0xFF] = 1
    return np.ascontiguousarray(np.packbits(bits, axis=1, bitorder="little")).view(np.int64).reshape(-1, 4)
