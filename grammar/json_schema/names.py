"""The texts of property names."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate

import numpy as np

from ..build import build_positions, closed_positions
from ..determinize import determinize
from ..expression import ALL_CODE_POINTS, EMPTY, ByteAutomaton, Characters, Expression, Machine, Sequence
from ..limits import Limits
from ..name_trie import FIRST_OTHER, FREE, other_texts, plain_bytes
from ..position import Int32Array
from ..ranges import normalise, subtract
from ..simplify import Simplifier
from .escapes import QUOTE, RAW, Escapes, content, spelled_characters

#: ASCII that stands for itself in a string, and all code points that are something else.
_PLAIN = tuple((low, high) for low, high in ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7F)))
_SPECIAL = subtract(ALL_CODE_POINTS, _PLAIN)
_PLAIN_BYTES = plain_bytes(_PLAIN)

#: States of a language of names that is looked at to list it.
_MOST_STATES = 4096


def other_names(names: Iterable[str], escapes: Escapes, unicode_escapes: bool) -> Expression:
    """Any property name but `names`, with its quotes.

    A trie of `names`, every way out of which leads to one state behind which any text may follow: as many states as
    the names have characters.
    """
    names = list(names)
    if escapes == "canonical" and all(map(_is_plain, names)):
        return _other_plain_names(names, unicode_escapes)
    sources: list[int] = []
    labels: list[Expression] = []
    targets: list[int] = []

    def edge(source: int, label: Expression, target: int) -> None:
        sources.append(source)
        labels.append(label)
        targets.append(target)

    # 0 is the root, 1 behind a way out, 2 the end, and 3 where a code point that is not plain leads out.
    children: dict[int, dict[str, int]] = {0: {}}
    ends: set[int] = set()
    count = 4
    for name in names:
        at = 0
        for letter in name:
            below = children[at].get(letter)
            if below is None:
                below = children[at][letter] = count
                children[below] = {}
                count += 1
            at = below
        ends.add(at)
    edge(1, content(escapes, unicode_escapes), 1)
    edge(1, QUOTE, 2)
    edge(3, spelled_characters(_SPECIAL, escapes, unicode_escapes), 1)
    for node, ways in children.items():
        taken = normalise((ord(letter), ord(letter)) for letter in ways)
        plain = not subtract(taken, _PLAIN) and escapes == "canonical"
        if plain:
            edge(node, Characters(subtract(_PLAIN, taken)), 1)
            edge(node, EMPTY, 3)
        else:
            edge(node, spelled_characters(subtract(ALL_CODE_POINTS, taken), escapes, unicode_escapes), 1)
        for letter, target in ways.items():
            code = ord(letter)
            label: Expression = Characters(((code, code),))
            if not plain or subtract(((code, code),), _PLAIN):
                label = spelled_characters(((code, code),), escapes, unicode_escapes)
            edge(node, label, target)
        if node not in ends:
            edge(node, QUOTE, 2)
    return Sequence((QUOTE, Machine(tuple(sources), tuple(labels), tuple(targets), (2,))))


def _is_plain(name: str) -> bool:
    return name.isascii() and name.isprintable() and '"' not in name and "\\" not in name


def _other_plain_names(names: list[str], unicode_escapes: bool) -> ByteAutomaton:
    """The same for names of plain characters alone, as the table of an automaton."""
    ends = np.fromiter(accumulate(map(len, names)), np.int64, len(names))
    text = np.frombuffer(bytearray("".join(names), "ascii") or bytearray(1), np.uint8)
    rows, final = other_texts(text, ends, _PLAIN_BYTES, *_special_rows(unicode_escapes))
    return ByteAutomaton(rows.tobytes(), final.tobytes(), (RAW,))


@lru_cache(maxsize=2)
def _special_rows(unicode_escapes: bool) -> tuple[Int32Array, Int32Array, int]:
    """Rows (source, low, high, target) that read one character that is not plain and lead to `name_trie.FREE`.

    Those of the first byte, without their source; the others; and how many states these have, from `FIRST_OTHER` on.
    """
    limits = Limits()
    spelled = Simplifier({}, limits).simplify(spelled_characters(_SPECIAL, "canonical", unicode_escapes))
    part = build_positions(spelled, limits)
    source = np.repeat(np.arange(part.n_states), np.diff(part.edge_start))
    target = np.where(part.final[part.target], FREE, part.target + FIRST_OTHER)
    rows = np.stack([source + FIRST_OTHER, part.low, part.high, target], axis=1).astype(np.int32)
    return rows[source == 0], rows[source != 0], part.n_states


def listed(language: Expression, most: int, limits: Limits) -> list[str] | None:
    """The strings of a language of code points, sorted; None where there are more than `most`."""
    positions = closed_positions(Simplifier({}, limits).simplify(language), limits)
    dfa = None if positions.is_empty else determinize(positions, 256, _MOST_STATES, limits.max_dfa_work)
    if dfa is None:
        return [] if positions.is_empty else None
    table = dfa.columns(0, 256)
    found: list[bytes] = []
    work = [(0, b"")]
    while work:
        state, text = work.pop()
        # All states lead to an end, so what is longer than there are states goes round for ever.
        if len(text) > dfa.n_states or len(work) + len(found) > 256 * most:
            return None
        if dfa.final[state]:
            found.append(text)
            if len(found) > most:
                return None
        work += [(int(table[state, byte]), text + bytes((byte,))) for byte in (table[state] >= 0).nonzero()[0].tolist()]
    return sorted(text.decode() for text in found)
