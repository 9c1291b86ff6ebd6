"""Frames of minimal DFAs into the sections of an `Automaton`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from .automaton import CALLS, FINITE, GUARDED, HAS_OPERATIONS, PLAIN, RECURSIVE, TOKENS, Automaton
from .build import Symbols
from .determinize import Dfa
from .expression import Ranges
from .link import Frames, link
from .loops import find_loops
from .members import ANY_KEY, BY_BITS, FAR, Guards, Term, as_word
from .position import Int32Array, Uint8Array


@dataclass(frozen=True, eq=False)
class Frame:
    """One frame: the DFA of a rule or of one item, and for a counted repeat how many items (`maximum` -1: no bound)."""

    dfa: Dfa
    kind: int = PLAIN
    minimum: int = 0
    maximum: int = 0
    guards: Guards | None = None

    @cached_property
    def symbols(self) -> list[int]:
        """The tokens and calls on its edges, ascending."""
        alive = np.zeros(len(self.dfa.first_of), np.bool_)
        alive[self.dfa.edge_low] = True  # each symbol has an edge of its own
        found: list[int] = (256 + np.flatnonzero(alive[self.dfa.class_of[256:]])).tolist()
        return found


def assemble(
    root: Frame, called: dict[int, Frame], symbols: Symbols, loops: list[Ranges], *, recursive: bool = False
) -> Automaton:
    """The automaton of `root` and the frames it calls, `called` being by symbol; frames are numbered breadth first.

    `recursive`: stacks have no bound that is known, and `root` itself may be among the called.
    """
    token_symbols = {symbol: name for name, symbol in symbols.tokens.items()}
    frames = [root]
    frame_of = {symbol: 0 for symbol, frame in called.items() if frame is root}
    for frame in frames:  # grows while it is read
        for symbol in frame.symbols:
            if symbol in called and symbol not in frame_of:
                frame_of[symbol] = len(frames)
                frames.append(called[symbol])
    used_tokens = sorted({symbol for frame in frames for symbol in frame.symbols if symbol in token_symbols})
    number_of = {symbol: i for i, symbol in enumerate(used_tokens)}
    all_symbols = [range(256, len(frame.dfa.class_of)) for frame in frames]
    linked = frames_of(
        frames,
        [frame_of.get(symbol, -1) for own in all_symbols for symbol in own],
        [number_of.get(symbol, -1) for own in all_symbols for symbol in own],
    )
    tokens = [token_symbols[symbol] for symbol in used_tokens]
    return automaton_of(linked, loops, tokens, recursive=recursive)


def frames_of(frames: list[Frame], callee: list[int], token: list[int]) -> Frames:
    """Frames in their order; the rest is as in `Frames`."""
    dfas = [frame.dfa for frame in frames]
    kind, minimum, maximum, guards = _bounds_of(frames)
    return Frames(
        _ends([dfa.n_states for dfa in dfas]),
        _ends([len(dfa.class_of) for dfa in dfas]),
        _edge_starts(dfas),
        _concatenated([dfa.edge_low for dfa in dfas], np.int32),
        _concatenated([dfa.edge_high for dfa in dfas], np.int32),
        _concatenated([dfa.edge_target for dfa in dfas], np.int32),
        _concatenated([dfa.final for dfa in dfas], np.uint8),
        _concatenated([dfa.class_of for dfa in dfas], np.int32),
        np.array(callee, np.int32),
        np.array(token, np.int32),
        kind,
        minimum,
        maximum,
        guards,
    )


def _bounds_of(
    frames: list[Frame],
) -> tuple[Uint8Array, npt.NDArray[np.int64], npt.NDArray[np.int64], dict[int, Guards]]:
    """`kind`, `minimum`, `maximum` and `guards` of frames."""
    n = len(frames)
    kind, minimum, maximum = np.zeros(n, np.uint8), np.zeros(n, np.int64), np.zeros(n, np.int64)
    guards: dict[int, Guards] = {}
    for i, frame in enumerate(frames):
        kind[i], minimum[i], maximum[i] = frame.kind, frame.minimum, frame.maximum
        if frame.guards is not None:
            guards[i] = frame.guards
            minimum[i], maximum[i] = frame.guards.shift, frame.guards.most
    return kind, minimum, maximum, guards


def _ends(sizes: list[int]) -> npt.NDArray[np.int64]:
    """Where each of some parts begins if they stand one behind the other, and where the last ends."""
    return np.fromiter(accumulate(sizes, initial=0), np.int64, len(sizes) + 1)


def _edge_starts(dfas: list[Dfa]) -> npt.NDArray[np.int64]:
    """Where the edges of each state of some DFAs begin, and the last end, if they stand one behind the other."""
    parts, end = [np.zeros(1, np.int64)], 0
    for dfa in dfas:
        parts.append(dfa.edge_start[1:] + np.int64(end))
        end += len(dfa.edge_low)
    return np.concatenate(parts)


def _concatenated(arrays: list[npt.NDArray[Any]], dtype: type[np.generic]) -> npt.NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype)


def automaton_of(
    frames: Frames, loops: list[Ranges], tokens: list[str | int], *, recursive: bool = False, flags: int = 0
) -> Automaton:
    """The automaton of linked frames; `flags` are further ones of the header."""
    arrays, n_classes, acyclic = link(frames)
    asked = np.zeros(len(arrays["edges"]), np.bool_)
    if frames.guards:
        _add_guards(arrays, frames)
        keys = arrays["state_keys"]
        counted = frames.maximum[arrays["state_frame"]] != BY_BITS
        asked = (arrays["state_flags"] & GUARDED != 0) & ~(counted & (keys >> ANY_KEY & 1 != 0))
    arrays["state_loop"], found = find_loops(arrays, n_classes, asked, loops)
    arrays.update(loop_sections(found))
    calls = len(arrays["call_frame"]) > 0
    flags |= (CALLS if calls else 0) | (TOKENS if tokens else 0)
    if len(arrays["frame_start"]) == 1 and not calls and acyclic:
        flags |= FINITE
    if recursive and calls:  # without a call it is a plain DFA after all
        flags |= RECURSIVE
    return Automaton.build(arrays, n_classes=n_classes, root_frame=0, flags=flags, metadata={"tokens": tokens})


def _add_guards(arrays: dict[str, Any], frames: Frames) -> None:
    """Adds the sections of frames of members, and the flags of their states."""
    flags, n_states, n_frames = arrays["state_flags"], int(frames.state_at[-1]), len(frames.kind)
    keys, asked = np.full(n_states, -1, np.int64), np.zeros(n_states, np.bool_)
    state_costs, frame_costs = np.full(n_states, -1, np.int32), np.full(n_frames, -1, np.int32)
    operations: list[tuple[int, int, int]] = []
    terms: list[Term] = []
    term_count = np.zeros(n_frames + 1, np.int32)
    rows: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
    used = 0
    for number, guards in frames.guards.items():
        offset, end = map(int, frames.state_at[number : number + 2])
        keys[offset:end], asked[offset:end] = guards.keys, guards.asked
        operations += [(state + offset, bit, target + offset) for state, bit, target in guards.operations]
        terms += guards.terms
        term_count[number + 1] = len(guards.terms)
        costs = guards.costs(arrays["state_distance"][offset:end].astype(np.int64))
        chosen = np.flatnonzero(~guards.ends)
        table = np.concatenate([costs[guards.ends].min(axis=0, initial=FAR)[None, :], costs[chosen]])
        frame_costs[number] = used
        state_costs[offset + chosen] = used + table.shape[1] * (1 + np.arange(len(chosen)))
        rows.append(table.reshape(-1))
        used += table.size
    start = np.zeros(n_states + 1, np.int32)
    table = np.array(operations, np.int64).reshape(-1, 3)
    np.cumsum(np.bincount(table[:, 0], minlength=n_states), out=start[1:])
    flags[asked] |= GUARDED
    flags[np.unique(table[:, 0])] |= HAS_OPERATIONS
    arrays["state_keys"], arrays["operation_start"] = keys, start
    arrays["operation_bit"], arrays["operation_target"] = (table[:, i].astype(np.int32) for i in (1, 2))
    arrays["term_start"] = np.cumsum(term_count, dtype=np.int32)
    for name in ("required", "forbidden", "minimum", "maximum"):
        arrays[f"term_{name}"] = np.array([as_word(getattr(term, name)) for term in terms], np.int64)
    arrays["group_start"] = np.cumsum([0, *(len(term.groups) for term in terms)], dtype=np.int32)
    arrays["group_mask"] = np.array([as_word(mask) for term in terms for mask in term.groups], np.int64)
    arrays["state_costs"], arrays["frame_costs"] = state_costs, frame_costs
    arrays["member_cost"] = np.concatenate(rows).astype(np.int32)


def loop_sections(found: list[Ranges]) -> dict[str, Int32Array]:
    """The sections that list the classes of `state_loop`."""
    starts = np.array(list(accumulate(map(len, found), initial=0)), np.int32)
    pairs = [end for ranges in found for pair in ranges for end in pair]
    return {"loop_start": starts, "loop_ranges": np.array(pairs, np.int32)}


def coarsest_classes(columns: list[npt.NDArray[Any]]) -> tuple[Uint8Array, Int32Array]:
    """Byte classes from tables [rows, 256]: (class of each byte, first byte of each class), by first occurrence."""
    keys: list[list[bytes]] = []
    for table in columns:
        turned = np.ascontiguousarray(table.T)
        keys.append([row.tobytes() for row in turned])
    byte_class = np.zeros(256, np.uint8)
    numbers: dict[tuple[bytes, ...], int] = {}
    firsts: list[int] = []
    for byte, key in enumerate(zip(*keys, strict=True) if keys else [()] * 256):
        if key not in numbers:
            numbers[key] = len(firsts)
            firsts.append(byte)
        byte_class[byte] = numbers[key]
    return byte_class, np.array(firsts, np.int32)
