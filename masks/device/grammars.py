"""Token-level DFAs on the device: rows of small grammars go from sampled tokens to their next masks without the host.

What is a context of `masks.ready` is a state here; from it and a token the next one follows by the token's bytes
through the byte automaton, which is small (a table of states by tokens would be gigabytes). Grammars, vocabulary and
states lie in arrays of fixed size, so that a whole decode loop can be captured in a CUDA graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...grammar.automaton import CALLS, LAZY, RECURSIVE
from ..layout import MAX_ENDS
from ..ready import Ready, build
from ..tables import KIND_DENSE, KIND_EMPTY, KIND_LIST, KIND_SHIFT, KIND_SINGLE, UNCONSTRAINED
from ..trie import V_TOKEN_BYTES, V_TOKEN_START, V_TOKEN_TEXT, tables_of
from .regions import Region
from .sampler import triton_is_usable
from .tables import DeviceEnds, device_array

if TYPE_CHECKING:
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
    D_CLASSES,
    D_FIELDS,
) = range(12)
_BYTE_SECTIONS = {D_BYTE_CLASS: "byte_class", D_FLAGS: "state_flags", D_SINGLE_BYTE: "single_byte"}
_WORD_SECTIONS = {
    D_EDGES: "edges", D_DENSE: "dense", D_SINGLE_TARGET: "single_target", D_TOKEN_START: "token_start",
    D_TOKEN_TARGET: "token_target",
}  # fmt: skip
#: State of a row that has accepted an end token.
FINISHED_STATE = -1
#: Grammar of a row that the device does not advance.
HOST_ROW = -1
#: Outcome of an advance, as of `Batch.advance`.
REFUSED, ACCEPTED = 0, 1
#: States with masks of one grammar: passing it leaves the grammar to the host.
MAX_CONTEXTS = 1 << 16


@dataclass(frozen=True)
class _Held:
    """Where a grammar begins in the image, and its masks in the mirror's tables; how many places it has of each."""

    image: int
    dense: int
    lists: int
    tokens: int
    counts: tuple[int, ...]


class DeviceGrammars:
    """Grammars and rows on one device. Their masks lie in `mirror.tables`, beside those that the host ships.

    `rows`: sequences at once. `image_bytes`: memory for automata (default 64 MB: a 5,000-way choice takes 2 MB).
    `grammars`: how many at once. `backend`: as of `DeviceSampler`.

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
        self.image = zeros(image_bytes // 4)
        self.directory = zeros(grammars, D_FIELDS, dtype=torch.int64)
        self._regions = (
            Region(image_bytes // 4), mirror.dense_region, mirror.list_region, mirror.token_region
        )  # fmt: skip
        self._numbers = Region(grammars)
        self._held: dict[int, _Held] = {}
        self._start: dict[int, int] = {}
        self._named: dict[int, frozenset[int]] = {}
        #: int32[rows] each: the row's grammar (or `HOST_ROW`), state, tokens accepted, and the least before an end.
        self.grammar = torch.full((rows,), HOST_ROW, dtype=torch.int32, device=device)
        self.state = zeros(rows)
        self.position = zeros(rows)
        self.min_tokens = zeros(rows)
        self.ends = DeviceEnds(torch.full((rows, MAX_ENDS), -1, dtype=torch.int32, device=device), zeros(rows))
        #: What the sampler takes: int32[rows] each.
        self.mask_ids = torch.full((rows,), UNCONSTRAINED, dtype=torch.int32, device=device)
        self.end_allowed = torch.full((rows,), -1, dtype=torch.int32, device=device)
        #: uint8[rows]: of the last advance. Host and unconstrained rows count as accepted.
        self.accepted = torch.ones(rows, dtype=torch.uint8, device=device)

    def add(self, compiled: CompiledGrammar) -> int | None:
        """Put a grammar on the device; returns its number, or None where it must stay with the host.

        Those are grammars with counters, calls or state sets, with more masks than `masks.ready` builds ahead, and any
        that there is no room for now.
        """
        automaton = compiled.automaton
        if automaton.flags & (CALLS | LAZY | RECURSIVE) or len(automaton["frame_start"]) != 1:
            return None
        if len(automaton["frame_kind"]) and int(automaton["frame_kind"][0]) != 0:
            return None
        ready = compiled.ready or build(compiled, MAX_CONTEXTS)
        if ready is None:
            return None
        number = self._numbers.take(1)
        if number is None:
            return None
        lists, mask_of = _mask_lists(ready)
        token_count = sum(len(tokens) for tokens in lists)
        arrays = {field: automaton[name] for field, name in (_BYTE_SECTIONS | _WORD_SECTIONS).items()}
        arrays[D_TOKEN_ID] = compiled.token_ids[automaton["token_symbol"]].astype(np.int32)
        arrays[D_MASK] = mask_of
        image, places = _pack(arrays)
        held = self._take(len(image), len(ready.rows), len(lists), token_count)
        if held is None:
            self._numbers.give(number, 1)
            return None
        words, dense, first_list = held.image, held.dense, held.lists
        self.mirror.put(dense, ready.rows.view(np.uint32), first_list, lists, held.tokens)
        # Mask ids so far count from the grammar's own first row and list.
        at = int(places[D_MASK])
        own = image[at : at + len(mask_of)]
        kinds = own >> KIND_SHIFT
        own += np.where(own >= 0, np.where(kinds == KIND_DENSE, dense, np.where(kinds == KIND_LIST, first_list, 0)), 0)
        self.image[words : words + len(image)] = device_array(image, self.device)
        entry = np.array(places, np.int64)
        entry[:D_EDGES] += 4 * words
        entry[D_EDGES:D_CLASSES] += words
        entry[D_CLASSES] = automaton.n_classes
        self.directory[number] = device_array(entry, self.device)
        self._held[number] = held
        self._start[number] = int(automaton["frame_start"][0])
        self._named[number] = frozenset(arrays[D_TOKEN_ID].tolist())
        return number

    def remove(self, number: int) -> None:
        """Free a grammar that no row uses any more, once the steps that did have been launched."""
        self._give(self._held.pop(number))
        del self._start[number], self._named[number]
        self._numbers.give(number, 1)

    def _take(self, *counts: int) -> _Held | None:
        """Room for so many words of the image, dense rows, lists and tokens of lists, or none of it."""
        taken: list[int] = []
        for region, count in zip(self._regions, counts, strict=True):
            place = region.take(count)
            if place is None:
                for other, begin, length in zip(self._regions, taken, counts, strict=False):
                    other.give(begin, length)
                return None
            taken.append(place)
        return _Held(taken[0], taken[1], taken[2], taken[3], counts)

    def _give(self, held: _Held) -> None:
        places = (held.image, held.dense, held.lists, held.tokens)
        for region, begin, count in zip(self._regions, places, held.counts, strict=True):
            region.give(begin, count)

    def start(self, row: int, number: int | None, *, eos: tuple[int, ...] = (), min_tokens: int = 0) -> None:
        """Put `row` before the first token of a grammar; None: unconstrained until `set_host` gives it a mask.

        Raises `ValueError` for more than `MAX_ENDS` end tokens, and where the grammar itself names one of them: such a
        row must stay with the host. So must one that begins a text where the vocabulary then drops a leading space.
        """
        if len(eos) > MAX_ENDS:
            raise ValueError(f"at most {MAX_ENDS} end tokens, not {len(eos)}")
        if number is not None and self._named[number] & set(eos):
            raise ValueError("the grammar names an end token of the row")
        ends = np.full(MAX_ENDS, -1, np.int32)
        ends[: len(eos)] = eos
        self.ends.tokens[row] = device_array(ends, self.device)
        self.ends.count[row] = len(eos)
        self.position[row] = 0
        self.min_tokens[row] = min_tokens
        self.grammar[row] = HOST_ROW if number is None else number
        self.state[row] = 0 if number is None else self._start[number]
        self.mask_ids[row] = UNCONSTRAINED
        self.end_allowed[row] = -1
        self._run(None)

    def set_host(self, rows: torch.Tensor, mask_ids: torch.Tensor, end_allowed: torch.Tensor) -> None:
        """Masks of host rows: `rows` int64 and the host's plan for them, all on the device."""
        self.mask_ids[rows] = mask_ids
        self.end_allowed[rows] = end_allowed

    def advance(self, tokens: torch.Tensor) -> None:
        """Advance all rows by their sampled `tokens` (int32[rows]) and look up their next masks.

        A token that is not legal (-1 too) changes nothing and is REFUSED in `accepted`.
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


def _mask_lists(ready: Ready) -> tuple[list[NDArray[np.int32]], NDArray[np.int32]]:
    """(lists, mask id of each state): indices count from the grammar's own; equal lists are one."""
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
    return lists, masks


def _pack(arrays: dict[int, NDArray[Any]]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """One int32 image of all arrays, and where each begins: in bytes or in words, as the directory has it."""
    places = np.zeros(D_FIELDS, np.int64)
    parts: list[NDArray[np.int32]] = []
    words = 0
    for field, array in arrays.items():
        data = np.ascontiguousarray(array)
        if field in _BYTE_SECTIONS:
            padded = np.zeros(-(-data.size // 4) * 4, np.uint8)
            padded[: data.size] = data
            part, places[field] = padded.view(np.int32), 4 * words
        else:
            part, places[field] = data.astype(np.int32), words
        parts.append(part)
        words += part.size
    return np.concatenate(parts), places
