"""Frames of minimal DFAs into the sections of an `Automaton`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from .automaton import CALLS, FINITE, PLAIN, RECURSIVE, TOKENS, Automaton
from .build import Symbols
from .determinize import Dfa
from .expression import Ranges
from .link import Frames, link
from .loops import find_loops
from .position import Int32Array, Uint8Array


@dataclass(frozen=True, eq=False)
class Frame:
    """One frame: the DFA of a rule or of one item, and for a counted repeat how many items (`maximum` -1: no bound)."""

    dfa: Dfa
    kind: int = PLAIN
    minimum: int = 0
    maximum: int = 0

    @cached_property
    def symbols(self) -> list[int]:
        """The tokens and calls on its edges, ascending."""
        alive = np.asarray((self.dfa.delta >= 0).any(axis=0))
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
        [frame.dfa for frame in frames],
        [frame_of.get(symbol, -1) for own in all_symbols for symbol in own],
        [number_of.get(symbol, -1) for own in all_symbols for symbol in own],
        [(frame.kind, frame.minimum, frame.maximum) for frame in frames],
    )
    tokens = [token_symbols[symbol] for symbol in used_tokens]
    return automaton_of(linked, loops, tokens, recursive=recursive)


def frames_of(dfas: list[Dfa], callee: list[int], token: list[int], kinds: list[tuple[int, int, int]]) -> Frames:
    """Frames in their order; `kinds` are (kind, minimum, maximum), the rest is as in `Frames`."""
    return Frames(
        ends([dfa.n_states for dfa in dfas]),
        ends([dfa.delta.size for dfa in dfas]),
        ends([len(dfa.class_of) for dfa in dfas]),
        np.array([dfa.delta.shape[1] for dfa in dfas], np.int32),
        np.concatenate([dfa.delta.reshape(-1) for dfa in dfas]),
        np.concatenate([dfa.final for dfa in dfas]),
        np.concatenate([dfa.class_of for dfa in dfas]),
        np.array(callee, np.int32),
        np.array(token, np.int32),
        np.array([kind for kind, _, _ in kinds], np.uint8),
        np.array([minimum for _, minimum, _ in kinds], np.int64),
        np.array([maximum for _, _, maximum in kinds], np.int64),
    )


def ends(sizes: list[int], first: int = 0) -> npt.NDArray[np.int64]:
    """Where each of some parts begins if they stand one behind the other from `first` on, and where the last ends."""
    result = np.full(len(sizes) + 1, first, np.int64)
    np.cumsum(sizes, out=result[1:])
    result[1:] += first
    return result


def automaton_of(
    frames: Frames, loops: list[Ranges], tokens: list[str | int], *, recursive: bool = False, flags: int = 0
) -> Automaton:
    """The automaton of linked frames; `flags` are further ones of the header."""
    arrays, n_classes, acyclic = link(frames)
    arrays["state_loop"], found = find_loops(arrays, n_classes, loops)
    arrays.update(loop_sections(found))
    calls = len(arrays["call_frame"]) > 0
    flags |= (CALLS if calls else 0) | (TOKENS if tokens else 0)
    if len(arrays["frame_start"]) == 1 and not calls and acyclic:
        flags |= FINITE
    if recursive and calls:  # without a call it is a plain DFA after all
        flags |= RECURSIVE
    return Automaton.build(arrays, n_classes=n_classes, root_frame=0, flags=flags, metadata={"tokens": tokens})


def loop_sections(found: list[Ranges]) -> dict[str, Int32Array]:
    """The sections that list the classes of `state_loop`."""
    starts = np.cumsum([0] + [len(ranges) for ranges in found]).astype(np.int32)
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
