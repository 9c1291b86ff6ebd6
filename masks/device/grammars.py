"""Grammars that stay on the device: rows go from sampled tokens to their next masks without the host.

A *plain* grammar is one deterministic automaton. What is a context of `masks.ready` is a state here; from it and a
token the next one follows by the token's bytes through the byte automaton, which is small (a table of states by tokens
would be gigabytes). Recursive grammars, and those with counters, have a bounded stack: `masks.device.pushdowns`.
Grammars, vocabulary and states lie in arrays of fixed size, so that a whole decode loop can be captured in a CUDA
graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from ...grammar.automaton import CALLS, LAZY, RECURSIVE
from ..layout import MAX_ENDS
from ..ready import Ready, build
from ..tables import KIND_DENSE, KIND_EMPTY, KIND_LIST, KIND_SHIFT, KIND_SINGLE, UNCONSTRAINED
from ..trie import V_TOKEN_BYTES, V_TOKEN_START, V_TOKEN_TEXT, tables_of
from .images import Images, MaskSet
from .pushdowns import LEVELS, MAX_NAMED, DevicePushdowns, Prepared, prepare
from .sampler import triton_is_usable
from .tables import DeviceEnds, device_array

if TYPE_CHECKING:
    from ...grammar.automaton import Automaton
    from ..compiled import CompiledGrammar
    from ..vocabulary import Vocabulary
    from .mirror import PoolMirror

#: Fields of a grammar in the directory, int64: places in the image in bytes (BYTE_CLASS to SINGLE_BYTE) or int32 words.
(
    D_BYTE_CLASS,  # uint8[256]
    D_FLAGS,  # uint8[states]
    D_SINGLE_BYTE,  # uint8[singles]
    D_EDGES,  # int32[states], as in `grammar.automaton`
    D_DENSE,  # int32[rows * classes]
    D_SINGLE_TARGET,  # int32[singles]
    D_TOKEN_START,  # int32[states + 1]
    D_TOKEN_ID,  # int32[token edges]
    D_TOKEN_TARGET,  # int32[token edges]
    D_MASK,  # int32[states] mask id, -1 where no token can end
    D_NAMED,  # int32[states] which of the named tokens may come next: bit i for the i-th
    D_CLASSES,
    D_FIELDS,
) = range(13)
_BYTE_SECTIONS = {D_BYTE_CLASS: "byte_class", D_FLAGS: "state_flags", D_SINGLE_BYTE: "single_byte"}
_WORD_SECTIONS = {
    D_EDGES: "edges", D_DENSE: "dense", D_SINGLE_TARGET: "single_target", D_TOKEN_START: "token_start",
    D_TOKEN_TARGET: "token_target",
}  # fmt: skip
#: State of a row that has accepted an end token.
FINISHED_STATE = -1
#: Grammar of a row that the device does not advance.
HOST_ROW = -1
#: Outcomes of an advance. ESCAPED: see `DeviceGrammars.advance`.
REFUSED, ACCEPTED, ESCAPED = 0, 1, 2
#: States with masks of one grammar: passing it leaves the grammar to the host.
MAX_CONTEXTS = 1 << 16


class DeviceGrammars:
    """Grammars and rows on one device. Their masks lie in `mirror.tables`, beside those that the host ships.

    `rows`: sequences at once. `image_bytes`: memory for automata, and as much for pushdown automata (default 64 MB: a
    5,000-way choice takes 2 MB, any JSON 0.1 MB). `grammars`: how many of either at once. `levels`: of a row's stack,
    4 bytes each; 0: recursive grammars and counters stay with the host, and a step is one kernel less. `backend`: as of
    `DeviceSampler`.

    A step is `sample` with `mask_ids` and `end_allowed`, then `advance` with the sampled tokens. A row with `HOST_ROW`
    takes its mask id from the host (`set_host`), or is unconstrained.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        mirror: PoolMirror,
        rows: int,
        *,
        grammars: int = 256,
        image_bytes: int = 64 << 20,
        levels: int = LEVELS,
        backend: str = "auto",
    ) -> None:
        device = mirror.device
        self.vocabulary = vocabulary
        self.mirror = mirror
        self.device = device
        self.backend = ("triton" if triton_is_usable(device) else "torch") if backend == "auto" else backend
        if self.backend not in ("triton", "torch"):
            raise ValueError(f'backend must be "auto", "triton" or "torch", not {backend!r}')

        def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        arrays = tables_of(vocabulary).block.arrays
        self.token_start = device_array(arrays[V_TOKEN_START].astype(np.int32), device)
        self.token_bytes = device_array(np.append(arrays[V_TOKEN_BYTES].reshape(-1), np.uint8(0)), device)
        self.token_text = device_array(arrays[V_TOKEN_TEXT].reshape(-1), device)
        self.images = Images(
            mirror, grammars=grammars, image_bytes=image_bytes, fields=D_FIELDS, mask_field=D_MASK,
            byte_fields=tuple(_BYTE_SECTIONS),
        )  # fmt: skip
        self._grammars = grammars
        self._start: dict[int, int] = {}
        self._named: dict[int, tuple[int, ...]] = {}
        #: int32[rows] each: the row's plain grammar (or `HOST_ROW`), its state there, tokens accepted, and the least
        #: before an end.
        self.grammar = torch.full((rows,), HOST_ROW, dtype=torch.int32, device=device)
        self.state = zeros(rows)
        self.position = zeros(rows)
        self.min_tokens = zeros(rows)
        self.ends = DeviceEnds(torch.full((rows, MAX_ENDS), -1, dtype=torch.int32, device=device), zeros(rows))
        #: int32[rows, MAX_ENDS]: which of the grammar's named tokens an end token of the row is, -1: none.
        self.end_names = torch.full((rows, MAX_ENDS), -1, dtype=torch.int32, device=device)
        #: What the sampler takes: int32[rows] each.
        self.mask_ids = torch.full((rows,), UNCONSTRAINED, dtype=torch.int32, device=device)
        self.end_allowed = torch.full((rows,), -1, dtype=torch.int32, device=device)
        #: uint8[rows]: of the last advance. Host and unconstrained rows count as accepted.
        self.accepted = torch.ones(rows, dtype=torch.uint8, device=device)
        #: uint8[rows]: 1 where the device could not go on and the row is the host's since; see `pushdowns`.
        self.escaped = zeros(rows, dtype=torch.uint8)
        #: Rows of recursive grammars and of those with counters; None without `levels`.
        self.pushdowns = DevicePushdowns(self, grammars, image_bytes, levels) if levels else None

    def add(self, compiled: CompiledGrammar, prepared: Prepared | None = None) -> int | None:
        """Put a grammar on the device; returns its number, or None where it must stay with the host.

        Those are grammars with state sets; of plain ones those with more masks than `masks.ready` builds ahead; of
        recursive ones and those with counters the ones that would escape at once (see `pushdowns`); and any that there
        is no room for now. `prepared`: what `pushdowns.prepare` has made of it, so that this only copies.
        """
        automaton = compiled.automaton
        if automaton.flags & (CALLS | RECURSIVE) and self.pushdowns is not None:
            prepared = prepared or prepare(compiled)
            number = None if prepared is None else self.pushdowns.add(prepared)
            return None if number is None else self._grammars + number
        if automaton.flags & (CALLS | LAZY | RECURSIVE) or len(automaton["frame_start"]) != 1:
            return None
        if len(automaton["frame_kind"]) and int(automaton["frame_kind"][0]) != 0:
            return None
        ready = compiled.ready or build(compiled, MAX_CONTEXTS)
        if ready is None:
            return None
        arrays = {field: automaton[name] for field, name in (_BYTE_SECTIONS | _WORD_SECTIONS).items()}
        arrays[D_TOKEN_ID] = compiled.token_ids[automaton["token_symbol"]].astype(np.int32)
        masks = _mask_set(ready)
        arrays[D_NAMED] = _named_next(automaton, masks.ids)
        number = self.images.add(arrays, {D_CLASSES: automaton.n_classes}, masks)
        if number is None:
            return None
        self._start[number] = int(automaton["frame_start"][0])
        self._named[number] = tuple(compiled.token_ids.tolist())
        return number

    def remove(self, number: int) -> None:
        """Free a grammar that no row uses any more, once the steps that did have been launched."""
        if number >= self._grammars:
            assert self.pushdowns is not None
            self.pushdowns.remove(number - self._grammars)
            return
        self.images.remove(number)
        del self._start[number], self._named[number]

    def start(self, row: int, number: int | None, *, eos: tuple[int, ...] = (), min_tokens: int = 0) -> None:
        """Put `row` before the first token of a grammar; None: unconstrained until `set_host` gives it a mask.

        Raises `ValueError` for more than `MAX_ENDS` end tokens, and where the grammar itself names one of them and more
        than `MAX_NAMED` tokens in all: such a row must stay with the host. So must one that begins a text where the
        vocabulary then drops a leading space.
        """
        if len(eos) > MAX_ENDS:
            raise ValueError(f"at most {MAX_ENDS} end tokens, not {len(eos)}")
        recursive = number is not None and number >= self._grammars
        own = None if number is None else number - self._grammars if recursive else number
        named: tuple[int, ...] = ()
        if own is not None:
            assert self.pushdowns is not None or not recursive
            named = self.pushdowns.named(own) if recursive and self.pushdowns is not None else self._named[own]
            if len(named) > MAX_NAMED and set(named) & set(eos):
                raise ValueError(f"the grammar names an end token of the row, and more than {MAX_NAMED} tokens")
        ends, names = np.full((2, MAX_ENDS), -1, np.int32)
        ends[: len(eos)] = eos
        names[: len(eos)] = [named.index(end) if end in named else -1 for end in eos]
        self.end_names[row] = device_array(names, self.device)
        self.ends.tokens[row] = device_array(ends, self.device)
        self.ends.count[row] = len(eos)
        self.position[row] = 0
        self.min_tokens[row] = min_tokens
        self.grammar[row] = HOST_ROW if own is None or recursive else own
        self.state[row] = 0 if own is None or recursive else self._start[own]
        self.mask_ids[row] = UNCONSTRAINED
        self.end_allowed[row] = -1
        self.escaped[row] = 0
        if self.pushdowns is not None:
            self.pushdowns.start(row, own if recursive else None)
        self._run(None)

    def set_host(self, rows: torch.Tensor, mask_ids: torch.Tensor, end_allowed: torch.Tensor) -> None:
        """Masks of host rows: `rows` int64 and the host's plan for them, all on the device."""
        self.mask_ids[rows] = mask_ids
        self.end_allowed[rows] = end_allowed

    def advance(self, tokens: torch.Tensor) -> None:
        """Advance all rows by their sampled `tokens` (int32[rows]) and look up their next masks.

        A token that is not legal (-1 too) changes nothing and is REFUSED in `accepted`. ESCAPED: the row could not be
        advanced, its state and mask are gone, and it is the host's from here on, which replays its tokens with this
        one; until the host gives it a mask (`set_host`) it allows nothing. `escaped` keeps that until its next `start`.
        """
        if tokens.shape != self.state.shape:
            raise ValueError(f"{tokens.shape[0]} tokens for {self.state.shape[0]} rows")
        self._run(tokens)

    def _run(self, tokens: torch.Tensor | None) -> None:
        if self.backend == "triton":
            from .advance_triton import run
        else:
            from .advance_torch import run
        run(self, tokens)
        if self.pushdowns is not None:
            self.pushdowns.run(tokens)


def _named_next(automaton: Automaton, masks: NDArray[np.int32]) -> NDArray[np.int32]:
    """`D_NAMED` of all states; tokens after which no token can end may not come."""
    edges = np.repeat(np.arange(automaton.n_states), np.diff(automaton["token_start"]))
    symbols = automaton["token_symbol"].astype(np.int64)
    legal = (masks[automaton["token_target"]] != -1) & (symbols < MAX_NAMED)
    bits = np.zeros(automaton.n_states, np.uint32)
    np.bitwise_or.at(bits, edges[legal], np.uint32(1) << symbols[legal].astype(np.uint32))
    return bits.view(np.int32)


def _mask_set(ready: Ready) -> MaskSet:
    """The masks of each state; equal lists are one."""
    masks = np.full(len(ready.bounds), -1, np.int32)
    lists: list[NDArray[np.int32]] = []
    numbers: dict[bytes, int] = {}
    for state in np.flatnonzero(ready.bounds[:, 0] >= 0).tolist():
        begin, end = ready.bounds[state].tolist()
        tokens = ready.tokens[begin:end]
        if ready.dense_row[state] >= 0:
            masks[state] = (KIND_DENSE << KIND_SHIFT) | int(ready.dense_row[state])
        elif len(tokens) == 0:
            masks[state] = KIND_EMPTY << KIND_SHIFT
        elif len(tokens) == 1:
            masks[state] = (KIND_SINGLE << KIND_SHIFT) | int(tokens[0])
        else:
            number = numbers.setdefault(tokens.tobytes(), len(lists))
            if number == len(lists):
                lists.append(tokens)
            masks[state] = (KIND_LIST << KIND_SHIFT) | number
    return MaskSet(ready.rows.view(np.uint32), lists, masks)
