"""The table of an automaton of all texts but some: a trie, every way out of which leads to one state."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._numba import kernel
from .position import Int32Array, Uint8Array

#: States of the table: before the quote, at the trie's root, behind a way out, at the end; others from here on.
OUTSIDE, ROOT, FREE, END, FIRST_OTHER = range(5)
_QUOTE = 0x22


@kernel("(uint8[::1], int64[::1], uint8[::1], int32[:, ::1], int32[:, ::1], int64)", allocates=True)
def other_texts(
    text: Uint8Array,
    text_end: npt.NDArray[np.int64],
    plain: Uint8Array,
    entering: Int32Array,
    inside: Int32Array,
    n_special: int,
) -> tuple[Int32Array, Uint8Array]:
    """(rows (source, low, high, target), final flags) of all quoted texts but some (see `ByteAutomaton`).

    `text`: those texts, one behind the other up to ``text_end[i]``, of bytes that are `plain` (uint8[256]); a plain
    byte is a character by itself. Other characters are read by rows that lead to `FREE`: `entering` those of their
    first bytes, which stand at every state but for their source, and `inside` those between the `n_special` states from
    `FIRST_OTHER` on.
    """
    most = len(text) + 1
    first_child = np.full(most, -1, np.int32)
    next_child = np.full(most, -1, np.int32)
    letter = np.empty(most, np.int32)
    is_end = np.zeros(most, np.uint8)
    count = 1
    begin = 0
    for i in range(len(text_end)):
        at = 0
        for k in range(begin, text_end[i]):
            below = first_child[at]
            while below >= 0 and letter[below] != text[k]:
                below = next_child[below]
            if below < 0:
                below = count
                count += 1
                letter[below] = text[k]
                next_child[below] = first_child[at]
                first_child[at] = below
            at = below
        is_end[at] = 1
        begin = text_end[i]
    n_ranges = 0
    for b in range(256):
        if plain[b] and (b == 0 or not plain[b - 1]):
            n_ranges += 1
    rows = np.empty((3 + len(inside) + (count + 1) * (n_ranges + 1 + len(entering)) + 2 * count, 4), np.int32)
    n = 0
    for k in range(2):  # the opening quote, and the closing one behind a way out
        rows[n, 0] = OUTSIDE if k == 0 else FREE
        rows[n, 1] = _QUOTE
        rows[n, 2] = _QUOTE
        rows[n, 3] = ROOT if k == 0 else END
        n += 1
    for k in range(len(inside)):
        for column in range(4):
            rows[n, column] = inside[k, column]
        n += 1
    taken = np.empty(256, np.uint8)
    for node in range(-1, count):
        source = FREE if node < 0 else ROOT if node == 0 else FIRST_OTHER + n_special + node - 1
        for b in range(256):
            taken[b] = 1 - plain[b]
        if node >= 0:
            below = first_child[node]
            while below >= 0:
                taken[letter[below]] = 1
                rows[n, 0] = source
                rows[n, 1] = letter[below]
                rows[n, 2] = letter[below]
                rows[n, 3] = FIRST_OTHER + n_special + below - 1
                n += 1
                below = next_child[below]
            if not is_end[node]:
                rows[n, 0] = source
                rows[n, 1] = _QUOTE
                rows[n, 2] = _QUOTE
                rows[n, 3] = END
                n += 1
        for b in range(256):
            if taken[b]:
                continue
            if b > 0 and not taken[b - 1]:
                rows[n - 1, 2] = b
                continue
            rows[n, 0] = source
            rows[n, 1] = b
            rows[n, 2] = b
            rows[n, 3] = FREE
            n += 1
        for k in range(len(entering)):
            rows[n, 0] = source
            for column in range(1, 4):
                rows[n, column] = entering[k, column]
            n += 1
    final = np.zeros(FIRST_OTHER + n_special + count - 1, np.uint8)
    final[END] = 1
    return rows[:n].copy(), final


def plain_bytes(ranges: tuple[tuple[int, int], ...]) -> npt.NDArray[np.uint8]:
    """Flags of the bytes of `ranges`, uint8[256]."""
    plain = np.zeros(256, np.uint8)
    for low, high in ranges:
        plain[low : high + 1] = 1
    return plain
