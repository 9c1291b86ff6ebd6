"""Rows of recursive grammars, or with counters, on the device: a number and a bounded stack (`masks.device.pushdown`).

From the sampled token's bytes follow the next number and stack, and from these the next mask by the contexts that were
built ahead (`masks.device.pushdown_contexts`). A row *escapes* to the host where the device cannot tell: two ways to
read the text, more levels than its stack has, a context past the limits. It then keeps nothing, allows no token, and is
flagged; up to the token before, all it did is what the host would have done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...grammar.automaton import LAZY
from ..layout import MAX_LIST
from ..tables import KIND_DENSE, KIND_EMPTY, KIND_LIST, KIND_SHIFT, KIND_SINGLE
from ..trie import tables_of
from .images import Images, MaskSet
from .pushdown import MAX_NUMBERS, pushdown
from .pushdown_contexts import MAX_CONTEXTS, UNKNOWN, Contexts, contexts

if TYPE_CHECKING:
    from ..compiled import CompiledGrammar
    from .grammars import DeviceGrammars

#: Levels of a row's stack: JSON takes one or two a level of nesting.
LEVELS = 128
#: Numbers that one token may leave on the stack; a token that leaves more makes its row escape.
MAX_PUSHED = 64
#: Named tokens of a grammar that may also be end tokens of a row.
MAX_NAMED = 32
#: Grammar of a row that is none of these.
NO_GRAMMAR = -1

#: Fields of a grammar in the directory: places of int32 sections in the image, and numbers.
(
    P_COLUMN,  # int32[256] column of each byte
    P_ACTION,  # int32[numbers * columns]
    P_PUSH,  # int32[pushes * 3] where its numbers begin in PUSHED, how many, and the next number
    P_PUSHED,  # int32[...]
    P_RETURNS,  # int32[numbers] 1 where the frame may return
    P_ROOT,  # int32[numbers] context
    P_MASK,  # int32[contexts] mask id, DEEPER or UNKNOWN
    P_SLOT,  # int32[slots * 3] context, number below (the number of numbers: the bottom), the next context; -1: free
    P_TOKEN,  # int32[tokens] ids of the named tokens, which have the last columns
    P_NAMED,  # int32[contexts] which of them the context's mask has: bit i for the i-th
    P_COLUMNS,
    P_NUMBERS,
    P_TOKENS,
    P_SLOTS,  # of the table, a power of 2, less 1
    P_FIELDS,
) = range(15)
#: The place of (context, number) in the table is a product's, a little mixed.
HASH_CONTEXT, HASH_NUMBER, HASH_SHIFT = 0x1E3779B1, 0x05EBCA6B, 15


@dataclass(frozen=True, eq=False)
class Prepared:
    """A grammar with calls as a device will have it: sections and numbers of its fields, masks, and for the host the
    number of the empty text and the tokens that the grammar names.
    """

    sections: dict[int, NDArray[Any]]
    numbers: dict[int, int]
    masks: MaskSet
    start: int
    named: tuple[int, ...]


def prepare(
    compiled: CompiledGrammar, *, most_numbers: int = MAX_NUMBERS, most_contexts: int = MAX_CONTEXTS
) -> Prepared | None:
    """A grammar with calls for `DeviceGrammars.add`, or None where it must stay with the host.

    Takes about a second for any JSON and 128k tokens, nearly all of it for the masks, and touches nothing that others
    use: for any thread or process but that of the steps.
    """
    tables, ids = tables_of(compiled.vocabulary), compiled.token_ids
    if compiled.boundary is not None or compiled.automaton.flags & LAZY or compiled.vocabulary.is_text[ids].any():
        return None
    automaton = pushdown(compiled.automaton, len(ids), most_numbers)
    found = contexts(automaton, tables, ids, compiled.vocabulary.width, most_contexts)
    if found.mask[found.root[automaton.start]] == UNKNOWN:
        return None
    numbers = len(automaton.actions)
    pushed = [number for some, _ in automaton.pushes for number in some]
    counts = np.array([len(some) for some, _ in automaton.pushes], np.int32)
    targets = np.array([target for _, target in automaton.pushes], np.int32)
    slots = _slots(found.children, numbers)
    sections = {
        P_COLUMN: automaton.columns,
        P_ACTION: automaton.actions,
        P_PUSH: np.stack([np.cumsum(counts) - counts, counts, targets], axis=1),
        P_PUSHED: np.array(pushed, np.int32),
        P_RETURNS: automaton.returns,
        P_ROOT: found.root,
        P_SLOT: slots,
        P_TOKEN: ids,
        P_NAMED: _named_next(found, ids),
    }
    sizes = {
        P_COLUMNS: automaton.actions.shape[1], P_NUMBERS: numbers, P_TOKENS: len(ids), P_SLOTS: len(slots) - 1,
    }  # fmt: skip
    return Prepared(sections, sizes, _mask_set(found, 2 * tables.words), automaton.start, tuple(ids.tolist()))


class DevicePushdowns:
    """The grammars with calls of one `DeviceGrammars`, and what its rows have of their own in them."""

    def __init__(self, rows: DeviceGrammars, grammars: int, image_bytes: int, levels: int) -> None:
        count, device = len(rows.state), rows.device

        def zeros(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        self.rows = rows
        self.levels = levels
        self.images = Images(
            rows.mirror, grammars=grammars, image_bytes=image_bytes, fields=P_FIELDS, mask_field=P_MASK
        )
        self._start: dict[int, int] = {}
        self._named: dict[int, tuple[int, ...]] = {}
        #: int32[rows]: the row's grammar here or NO_GRAMMAR, the number on top (-1: finished), and the levels below it.
        self.grammar = torch.full((count,), NO_GRAMMAR, dtype=torch.int32, device=device)
        self.state = zeros(count)
        self.depth = zeros(count)
        #: int32[rows, levels]: the numbers below; int32[rows, MAX_PUSHED]: those of the token that is being read.
        self.stack = zeros(count, levels)
        self.fresh = zeros(count, MAX_PUSHED)

    def add(self, prepared: Prepared) -> int | None:
        """Put a grammar on the device; its number, or None where there is no room."""
        number = self.images.add(prepared.sections, prepared.numbers, prepared.masks)
        if number is not None:
            self._start[number] = prepared.start
            self._named[number] = prepared.named
        return number

    def remove(self, number: int) -> None:
        """As `DeviceGrammars.remove`."""
        self.images.remove(number)
        del self._start[number], self._named[number]

    def named(self, number: int) -> tuple[int, ...]:
        """The tokens that a grammar names, in the order of their bits."""
        return self._named[number]

    def start(self, row: int, number: int | None) -> None:
        """Put a row before the first token of a grammar, or of none of these."""
        self.grammar[row] = NO_GRAMMAR if number is None else number
        self.state[row] = 0 if number is None else self._start[number]
        self.depth[row] = 0

    def run(self, tokens: torch.Tensor | None) -> None:
        """Advance the rows by `tokens`; None: only look up their masks."""
        if self.rows.backend == "triton":
            from .pushdown_triton import run
        else:
            from .pushdown_torch import run
        run(self, tokens)


def place_of(context: int, number: int, slots: int) -> int:
    """Where to look first for a pair in a table of `slots` + 1 places."""
    mixed = context * HASH_CONTEXT + number * HASH_NUMBER
    return (mixed ^ (mixed >> HASH_SHIFT)) & slots


def _slots(children: dict[tuple[int, int], int], numbers: int) -> NDArray[np.int32]:
    """The table of the contexts' children, at most half full; `numbers` stands for the bottom."""
    size = 1 << max(1, (2 * len(children)).bit_length())
    table = np.full((size, 3), -1, np.int32)
    for (context, below), child in children.items():
        number = numbers if below < 0 else below
        at = place_of(context, number, size - 1)
        while table[at, 0] >= 0:
            at = (at + 1) & (size - 1)
        table[at] = context, number, child
    return table


def _named_next(found: Contexts, ids: NDArray[np.int32]) -> NDArray[np.int32]:
    """`P_NAMED` of all contexts; 0 for those without a mask."""
    of_mask = np.zeros(len(found.masks) + 1, np.uint32)
    for place, bits in enumerate(found.masks):
        for i, token in enumerate(ids[:MAX_NAMED].tolist()):
            of_mask[place] |= np.uint32((int(bits[token >> 3]) >> (token & 7) & 1) << i)
    return np.where(found.mask >= 0, of_mask[found.mask], np.uint32(0)).view(np.int32)


def _mask_set(found: Contexts, words: int) -> MaskSet:
    """The masks of each context, as the host's pool would keep them."""
    rows: list[NDArray[np.uint8]] = []
    lists: list[NDArray[np.int32]] = []
    ids: list[int] = []
    for bits in found.masks:
        tokens = np.flatnonzero(np.unpackbits(bits, bitorder="little")).astype(np.int32)
        if len(tokens) == 0:
            ids.append(KIND_EMPTY << KIND_SHIFT)
        elif len(tokens) == 1:
            ids.append((KIND_SINGLE << KIND_SHIFT) | int(tokens[0]))
        elif len(tokens) <= MAX_LIST:
            ids.append((KIND_LIST << KIND_SHIFT) | len(lists))
            lists.append(tokens)
        else:
            ids.append((KIND_DENSE << KIND_SHIFT) | len(rows))
            rows.append(bits)
    dense = np.zeros((len(rows), 4 * words), np.uint8)
    for row, bits in enumerate(rows):
        dense[row, : len(bits)] = bits
    of_context = np.where(found.mask >= 0, np.array([*ids, 0], np.int32)[found.mask], found.mask)
    return MaskSet(dense.view(np.uint32), lists, of_context.astype(np.int32))
