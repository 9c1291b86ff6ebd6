"""The texts of property names."""

from __future__ import annotations

from collections.abc import Iterable

from ..expression import ALL_CODE_POINTS, EMPTY, Characters, Expression, Machine, Sequence
from ..ranges import normalise, subtract
from .escapes import QUOTE, Escapes, content, spelled_characters

#: ASCII that stands for itself in a string, and all code points that are something else.
_PLAIN = tuple((low, high) for low, high in ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7F)))
_SPECIAL = subtract(ALL_CODE_POINTS, _PLAIN)


def other_names(names: Iterable[str], escapes: Escapes, unicode_escapes: bool) -> Expression:
    """Any property name but `names`, with its quotes.

    A trie of `names`, every way out of which leads to one state behind which any text may follow: as many states as
    the names have characters.
    """
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
