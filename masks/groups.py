"""Groups of first bytes: what follows a byte that leads from a state to one that is wide.

Half of all tokens begin with a space, many others with a point, a bracket or a line feed. After such a byte the head is
in another state, which may stay alive on a set of bytes too (`masks.wide`): then the tokens of a group are accepted
with bitmaps of what their other bytes are.
"""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import FINAL, GUARDED, HAS_OPERATIONS
from .layout import (
    G_KINDS,
    KIND_BYTES,
    KIND_COUNT,
    KIND_FIRST,
    L_AFTER,
    L_BASE,
    L_CLASS,
    L_COVERED,
    L_FIRST,
    L_FIRST_TEXT,
    L_GROUPS,
    L_LEAVE,
    L_STATES,
    L_STAY,
    L_TEXT,
    LOOP_WORDS,
    MAX_GROUPS,
    MAX_LOOP_STATES,
)
from .machine import delta, flags_of, next_register, restart_of
from .memory import count_bits, count_trailing_zeros, load_i32, load_i64, store_i64
from .stays import after_byte, text_stays
from .trie import V_FIRST_RANK
from .wide import find_loop

#: First bytes that lead to one state, at most: their rows are memory traffic, a few for an alphabet.
MAX_FIRST = 128
#: Nor are first bytes with which fewer tokens begin.
MIN_GROUP_TOKENS = 1024
#: As the higher word of a set of ASCII bytes.
LETTERS = sum(1 << (byte - 64) for byte in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


@helper
def _count_tokens(vocabulary, low, high):  # type: ignore[no-untyped-def]
    """How many tokens begin with one of these ASCII bytes."""
    first_rank = load_i64(vocabulary, V_FIRST_RANK)
    total = 0
    for word in range(2):
        bits = low if word == 0 else high
        while bits != 0:
            byte = 64 * word + count_trailing_zeros(bits)
            total += load_i32(first_rank, byte + 1) - load_i32(first_rank, byte)
            bits &= bits - 1
    return total


@helper
def _find_after(grammar, automaton, vocabulary, state, register, follow, loop, wide, most_first):  # type: ignore[no-untyped-def]
    """`find_loop` for the state after a first byte, into the second half of `loop`; False where not wide.

    It is the state after a space, as half of all tokens begin with one, or else a state to which bytes lead that many
    tokens begin with; with `most_first` that to which most bytes of the set lead. All that lead there are L_FIRST, but
    for those in L_COVERED. What else a first byte may begin, a call or what follows the frame's return, is a head of
    its own.
    """
    # Code points are asked about where no byte of theirs may follow the frame's return.
    returns = 0
    if flags_of(automaton, state) & FINAL:
        returns = -1
    start = restart_of(automaton, state, register)
    kinds = load_i64(grammar, G_KINDS)
    after = loop + 8 * LOOP_WORDS
    tried_low, tried_high = load_i64(loop, L_COVERED), load_i64(loop, L_COVERED + 1)
    if wide:
        tried_low |= load_i64(loop, L_STAY)
        tried_high |= load_i64(loop, L_STAY + 1)
    for attempt in range(1 if most_first else 0, 4):
        target, reached = -1, register
        low, high = 0, 0
        most = 0
        # Turn 0 chooses the state, turn 1 finds all bytes that lead to it.
        for turn in range(2):
            for kind in range(load_i64(kinds, KIND_COUNT)):
                members = kinds + 8 * (KIND_BYTES + 4 * kind)
                more_low, more_high = load_i64(members, 0) & ~tried_low, load_i64(members, 1) & ~tried_high
                byte = load_i64(kinds, KIND_FIRST + kind)
                one, other = delta(automaton, state, byte), after_byte(automaton, start, byte)
                # A byte that may go on with an item as well as begin another one leads to two states.
                if more_low | more_high == 0 or (one >= 0) == (other >= 0):
                    continue
                if one >= 0 and flags_of(automaton, one) & (GUARDED | HAS_OPERATIONS) != 0:
                    continue
                own = register
                if other >= 0:
                    one = other
                    own = next_register(automaton, state, register)
                if turn == 0:
                    n = (more_low >> 0x20) & 1
                    if attempt > 0 and most_first:
                        n = count_bits(more_low & load_i64(loop, L_STAY))
                        n += count_bits(more_high & load_i64(loop, L_STAY + 1))
                    elif attempt > 0:
                        n = _count_tokens(vocabulary, more_low, more_high)
                    if n > most:
                        most = n
                        target, reached = one, own
                elif one == target and own == reached:
                    low |= more_low
                    high |= more_high
        if attempt > 0 and most == 0:
            break
        space = (low >> 0x20) & 1 != 0
        if count_bits(low) + count_bits(high) > MAX_FIRST:
            low, high = low & (1 << 0x20), 0
        tried_low |= low
        tried_high |= high
        # With few tokens, a walk of the trie takes less time.
        if _count_tokens(vocabulary, low, high) < MIN_GROUP_TOKENS or not find_loop(
            grammar, automaton, vocabulary, target, reached, follow, after, False
        ):
            if attempt > 0 and low | high == 0:
                break
            continue
        if load_i64(after, L_CLASS) >= 0:
            # The members of a class are known for strings after one space only.
            if load_i64(after, L_TEXT) != 0:
                store_i64(after, L_CLASS, -1)
            elif space:
                low, high = 1 << 0x20, 0
            else:
                continue
        store_i64(after, L_FIRST, low)
        store_i64(after, L_FIRST + 1, high)
        text = (
            load_i64(after, L_TEXT) != 0
            and load_i64(loop, L_GROUPS) == 0
            and start < 0
            and (load_i64(follow, 2) | load_i64(follow, 3)) & returns == 0
            and text_stays(
                automaton, vocabulary, kinds, state, register, after, load_i64(after, L_STATES + MAX_LOOP_STATES)
            )
        )
        store_i64(after, L_FIRST_TEXT, 1 if text else 0)
        return True
    return False


@helper
def copy_part(loop, source, target):  # type: ignore[no-untyped-def]
    """Copy the words of one part of a loop to another part."""
    for word in range(LOOP_WORDS):
        store_i64(loop, LOOP_WORDS * target + word, load_i64(loop, LOOP_WORDS * source + word))


@helper
def _is_much_wider(other, loop):  # type: ignore[no-untyped-def]
    """Has the set of `other` a letter, or code points above U+007F, that the set of `loop` lacks?"""
    letters = load_i64(other, L_STAY + 1) & ~load_i64(loop, L_STAY + 1) & LETTERS
    return letters != 0 or load_i64(other, L_TEXT) > load_i64(loop, L_TEXT)


@helper
def find_loops(grammar, automaton, vocabulary, state, register, follow, loop):  # type: ignore[no-untyped-def]
    """`find_loop` for a head, and for the states after its first bytes, as a space begins half of all tokens.

    `follow`: 4 words, the bytes that may come next when the head's frame has returned. Behind the words of the state
    are those of the first group of first bytes, where there is one (L_AFTER), and behind these those of all groups.
    """
    for word in range(2):
        store_i64(loop, L_COVERED + word, 0)
    store_i64(loop, L_GROUPS, 0)
    wide = find_loop(grammar, automaton, vocabulary, state, register, follow, loop, False)
    other = loop + 8 * LOOP_WORDS
    own = wide
    after = False
    # Turn 0: the first group. Turn 1: the state to which most bytes lead may stay in more than the set in which some of
    # them would, and take its place; turn 2: it does not do for most of that set. Then more groups.
    turn = 0
    groups = 0
    low, high = load_i64(loop, L_STAY), load_i64(loop, L_STAY + 1)
    while groups < MAX_GROUPS and (not wide or load_i64(loop, L_LEAVE) | load_i64(loop, L_LEAVE + 1) != 0):
        found = _find_after(grammar, automaton, vocabulary, state, register, follow, loop, own, turn == 1)
        if turn == 0:
            turn = 3
            leads_off = load_i64(loop, L_BASE) != state or (found and _is_much_wider(other, loop))
            # Code points above U+007F begin no group as a rule.
            if wide and leads_off and load_i64(loop, L_TEXT) == 0 and load_i64(loop, L_CLASS) < 0:
                turn = 1
                own = False
                continue
        elif turn == 1:
            turn = 3
            common = count_bits(low & load_i64(other, L_FIRST)) + count_bits(high & load_i64(other, L_FIRST + 1))
            if found and _is_much_wider(other, loop) and 2 * common > count_bits(low) + count_bits(high):
                wide = False
            else:
                own = True
                continue
        if not found:
            break
        after = True
        copy_part(loop, 1, 2 + groups)
        groups += 1
        store_i64(loop, L_GROUPS, groups)
        for word in range(2):
            more = load_i64(loop, L_COVERED + word) | load_i64(other, L_FIRST + word)
            store_i64(loop, L_COVERED + word, more)
    if after:
        copy_part(loop, 2, 1)
        if not wide:
            find_loop(grammar, automaton, vocabulary, state, register, follow, loop, True)
    store_i64(loop, L_AFTER, 1 if after else 0)
    return wide or after
