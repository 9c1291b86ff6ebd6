"""What a vocabulary can spell of a language: where its tokens may end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .._numba import helper, kernel
from ..grammar.automaton import FINAL, HAS_TOKENS, LAZY, RECURSIVE, Automaton
from ..grammar.errors import GrammarUnsatisfiable, GrammarUnsupported
from .describe import live_bytes
from .machine import AT_STATE_FLAGS, delta
from .memory import load_i64, load_u8, section
from .trie import TOKEN_ENDS, V_NODE, V_ROOT, VocabularyTables

if TYPE_CHECKING:
    from .vocabulary import Vocabulary


@helper
def _token_to_good(automaton, vocabulary, state, good, path, work):  # type: ignore[no-untyped-def]
    """(does a whole token lead from `state` to a good one, work left)."""
    table = load_i64(vocabulary, V_NODE)
    root = load_i64(vocabulary, V_ROOT)
    child = root >> 32
    end = child + ((root >> 16) & 0xFFFF)
    path[0, 0] = state
    depth = 0
    while work >= 0:
        if child == end:
            if depth == 0:
                break
            depth -= 1
            child, end = path[depth, 1], path[depth, 2]
            continue
        work -= 1
        packed = load_i64(table, child)
        child += 1
        target = delta(automaton, path[depth, 0], packed & 0xFF)
        if target < 0:
            continue
        if good[target] and packed & TOKEN_ENDS != 0:
            return True, work
        path[depth, 1] = child
        path[depth, 2] = end
        depth += 1
        path[depth, 0] = target
        child = packed >> 32
        end = child + ((packed >> 16) & 0xFFFF)
    return False, work


@kernel("int64(int64, int64, int64, uint8[::1], int64, int64)", allocates=True)
def _spell(automaton, vocabulary, n_states, good, longest, work):  # type: ignore[no-untyped-def]
    """Mark the states from which the end can be reached by whole tokens; those from which no token goes on with 2.

    `longest`: bytes of a token, at most. Returns the work left, negative: too much.
    """
    path = np.empty((longest + 1, 3), np.int64)
    changed = True
    while changed and work >= 0:
        changed = False
        for state in range(n_states - 1, -1, -1):
            if good[state]:
                continue
            some, work = _token_to_good(automaton, vocabulary, state, good, path, work)
            if some:
                good[state] = 1
                changed = True
    for state in range(n_states):
        if good[state] and load_u8(section(automaton, AT_STATE_FLAGS), state) & HAS_TOKENS == 0:
            some, work = _token_to_good(automaton, vocabulary, state, good, path, work)
            if not some:
                good[state] = 2
    return work


def spelling(
    automaton: Automaton, tables: VocabularyTables, vocabulary: Vocabulary, token_ids: npt.NDArray[np.int32]
) -> npt.NDArray[np.uint8] | None:
    """uint8[states], where tokens may end: 0 no, 1 yes, 2 yes and no token goes on; None: everywhere.

    Everywhere is where every live byte is a token by itself.

    Raises `GrammarUnsatisfiable` where no string of the language can be spelled, `GrammarUnsupported` where
    bytes are missing from the vocabulary and the automaton is not one deterministic frame.
    """
    if tables.has_single_bytes:
        return None
    missing = np.flatnonzero(live_bytes(automaton) & ~tables.single_bytes)
    if not len(missing):
        return None
    if len(automaton["frame_start"]) != 1 or automaton.flags & (LAZY | RECURSIVE):
        named = ", ".join(f"0x{b:02x}" for b in missing[:8])
        raise GrammarUnsupported(
            f"the vocabulary has no single-byte token for {named}, and this grammar needs counters, calls or state "
            "sets; write its repeats out, or use a vocabulary with all bytes"
        )
    good = (automaton["state_flags"] & FINAL).astype(np.uint8)
    for state in range(automaton.n_states):
        begin, end = automaton["token_start"][state : state + 2]
        if end > begin:
            good[state] = 1  # a special token is always spelled; where it leads is checked like any other state
    if _spell(automaton.address, tables.address, automaton.n_states, good, tables.max_bytes, 2_000_000_000) < 0:
        raise GrammarUnsupported("too much work to find out what this vocabulary can spell")
    if not good[automaton["frame_start"][0]]:
        named = ", ".join(f"0x{b:02x}" for b in missing[:8])
        raise GrammarUnsatisfiable(f"the vocabulary cannot spell any match: it has no single-byte token for {named}")
    return good
