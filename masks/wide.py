"""Wide states: most tokens at once, by what they are made of.

Inside a JSON string, `[^,]*` or `\\w+`, nearly every token is alive, and walking the trie would touch
nearly every node. But such a state stays alive on a set of bytes whatever their order. So the tokens made
of these alone are accepted with a few bitmap operations (`masks.trie`), and only tokens that hold a
byte which leaves the set, or are no complete UTF-8 text, are walked one by one. Compare llguidance's slices
(FIELD 1.3), which are fixed patterns; here the sets are found in the automaton.
"""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import COUNTER, HAS_CALLS
from .layout import (
    CONFIG_FLAGS,
    CONFIG_HEADS,
    G_LOOP_BITS,
    G_LOOP_RANK_BITS,
    G_SINGLE,
    HEAD_DEPTH,
    HEAD_WORDS,
    L_CLASS,
    L_EXACT,
    L_LEAVE,
    L_LIMIT,
    L_STATES,
    L_STAY,
    L_TEXT,
    MAX_LOOP_STATES,
    NO_LIMIT,
)
from .machine import (
    AT_FRAME_KIND,
    AT_FRAME_MAXIMUM,
    AT_FRAME_START,
    AT_STATE_LOOP,
    close,
    delta,
    flags_of,
    frame_of,
    head_at,
    restart_of,
    top_register,
    top_state,
)
from .memory import count_bits, count_trailing_zeros, load_i32, load_i64, load_u8, section, store_i64
from .trie import (
    V_LENGTH,
    V_MAX_LENGTH,
    V_PRESENCE,
    V_RANK_LENGTH,
    V_RANK_PRESENCE,
    V_RANK_VALID,
    V_RANK_WORDS,
    V_RANKS,
    V_VALID,
    V_WORDS,
)

#: A set of fewer ASCII bytes is not worth the bitmaps: walking it is cheaper.
MIN_WIDE_BYTES = 12


@helper
def local_step(automaton, state, byte, register):  # type: ignore[no-untyped-def]
    """Target of `byte` inside the frame, another item of a counter included; -1: none."""
    target = delta(automaton, state, byte)
    if target < 0:
        start = restart_of(automaton, state, register)
        if start >= 0:
            target = delta(automaton, start, byte)
    return target


@helper
def _continuations(automaton, state, low, high, more, register):  # type: ignore[no-untyped-def]
    """The one state that every continuation (first byte low..high, then `more` of 80..BF) leads to, or -1."""
    found = -1
    previous = -1
    for byte in range(low, high + 1):
        target = local_step(automaton, state, byte, register)
        if target < 0:
            return -1
        if more > 0 and target != previous:
            previous = target
            for second in range(0x80, 0xC0):
                inner = local_step(automaton, target, second, register)
                if inner < 0:
                    return -1
                if more > 1:
                    last = -1
                    for third in range(0x80, 0xC0):
                        end = local_step(automaton, inner, third, register)
                        if end < 0 or (last >= 0 and end != last):
                            return -1
                        last = end
                    inner = last
                if found >= 0 and inner != found:
                    return -1
                found = inner
        elif more == 0:
            if found >= 0 and target != found:
                return -1
            found = target
    return found


@helper
def text_target(automaton, state, register):  # type: ignore[no-untyped-def]
    """The one state that every code point above U+007F leads to from `state`, or -1 (RFC 3629's ranges)."""
    found = -1
    checked = -1
    for lead in range(0xC2, 0xF5):
        target = local_step(automaton, state, lead, register)
        if target < 0:
            return -1
        special = lead == 0xE0 or lead == 0xED or lead == 0xF0 or lead == 0xF4
        if target == checked and not special and lead != 0xE1 and lead != 0xF1:
            continue
        checked = target
        low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
        high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
        more = 0 if lead < 0xE0 else 1 if lead < 0xF0 else 2
        end = _continuations(automaton, target, low, high, more, register)
        if end < 0 or (found >= 0 and end != found):
            return -1
        found = end
    return found


@helper
def _weight(low, high, text):  # type: ignore[no-untyped-def]
    return count_bits(low) + count_bits(high) + (128 if text else 0)


@helper
def _stays(automaton, loop, register, only):  # type: ignore[no-untyped-def]
    """Shrink L_STAY and L_TEXT to what keeps L_STATES closed; states are added as they are met, but not beyond `only`."""
    states = loop + 8 * L_STATES
    n = load_i64(states, MAX_LOOP_STATES)
    changed = True
    while changed:
        changed = False
        i = 0
        while i < n:
            state = load_i64(states, i)
            i += 1
            for half in range(2):
                bits = load_i64(loop, L_STAY + half)
                rest = bits
                while rest != 0:
                    bit = count_trailing_zeros(rest)
                    rest &= rest - 1
                    target = local_step(automaton, state, 64 * half + bit, register)
                    known = False
                    for k in range(n):
                        known = known or load_i64(states, k) == target
                    if target >= 0 and not known and n < only:
                        store_i64(states, n, target)
                        n += 1
                        known = True
                    if target < 0 or not known:
                        bits &= ~(1 << bit)
                        changed = True
                store_i64(loop, L_STAY + half, bits)
            if load_i64(loop, L_TEXT) != 0:
                target = text_target(automaton, state, register)
                known = False
                for k in range(n):
                    known = known or load_i64(states, k) == target
                if target >= 0 and not known and n < only:
                    store_i64(states, n, target)
                    n += 1
                    known = True
                if target < 0 or not known:
                    store_i64(loop, L_TEXT, 0)
                    changed = True
    store_i64(states, MAX_LOOP_STATES, n)


@helper
def _try_states(automaton, loop, first, second, only, register):  # type: ignore[no-untyped-def]
    """Set L_STAY, L_TEXT and L_STATES to the fixpoint that begins with these one or two states."""
    states = loop + 8 * L_STATES
    store_i64(loop, L_STAY, -1)
    store_i64(loop, L_STAY + 1, -1)
    store_i64(loop, L_TEXT, 1)
    store_i64(states, 0, first)
    n = 1
    if second >= 0 and second != first:
        store_i64(states, 1, second)
        n = 2
    store_i64(states, MAX_LOOP_STATES, n)
    _stays(automaton, loop, register, max(only, n))
    return _weight(load_i64(loop, L_STAY), load_i64(loop, L_STAY + 1), load_i64(loop, L_TEXT) != 0)


@helper
def add_next_bytes(automaton, config, into):  # type: ignore[no-untyped-def]
    """OR the bytes that may come next in `config` (closed) into the 4 words at `into`."""
    for i in range(load_i64(config, CONFIG_HEADS)):
        head = head_at(config, i)
        state, register = top_state(head), top_register(head)
        for byte in range(256):
            if (load_i64(into, byte >> 6) >> (byte & 63)) & 1 == 0 and local_step(
                automaton, state, byte, register
            ) >= 0:
                store_i64(into, byte >> 6, load_i64(into, byte >> 6) | (1 << (byte & 63)))


@helper
def find_loop(grammar, automaton, head, follow, loop, work, spare):  # type: ignore[no-untyped-def]
    """Fill the words at `loop` for this head (one that walks inside its frame). Returns whether it is wide."""
    state, register = top_state(head), top_register(head)
    klass = load_i32(section(automaton, AT_STATE_LOOP), state)
    weight = _try_states(automaton, loop, state, -1, MAX_LOOP_STATES, register)
    # Where some bytes lead to states that narrow the set, a state that only loops on itself may be wide.
    for byte in (0x65, 0x30, 0x20, 0x2C):
        if weight >= MIN_WIDE_BYTES:
            break
        target = local_step(automaton, state, byte, register)
        if target >= 0:
            weight = _try_states(automaton, loop, state, target, 1, register)
    if weight < MIN_WIDE_BYTES and klass < 0:
        return False
    store_i64(loop, L_CLASS, klass)
    states = loop + 8 * L_STATES
    n = load_i64(states, MAX_LOOP_STATES)
    frame = frame_of(automaton, state)
    start = load_i32(section(automaton, AT_FRAME_START), frame)
    counter = load_u8(section(automaton, AT_FRAME_KIND), frame) == COUNTER
    maximum = load_i64(section(automaton, AT_FRAME_MAXIMUM), frame)
    limit = NO_LIMIT
    exact = 0
    if counter and maximum >= 0:
        limit = maximum - 1 - register
        # Items of one code point each: a longer string is dead, and before the first item there is room for one more.
        exact = load_u8(load_i64(grammar, G_SINGLE), frame)
        if exact == 1 and state == start:
            limit += 1
        for half in range(2):
            if load_i64(loop, L_STAY + half) & load_i64(follow, half) != 0:
                exact = 0
        if load_i64(follow, 2) | load_i64(follow, 3) != 0:
            exact = 0
    store_i64(loop, L_LIMIT, limit)
    store_i64(loop, L_EXACT, exact)
    leave = loop + 8 * L_LEAVE
    for word in range(4):
        store_i64(leave, word, load_i64(follow, word))
    depth = load_i64(head, HEAD_DEPTH)
    for i in range(n):
        member = load_i64(states, i)
        for word in range(HEAD_WORDS):
            store_i64(head_at(work, 0), word, load_i64(head, word))
        store_i64(head_at(work, 0), depth, member)
        store_i64(work, CONFIG_HEADS, 1)
        store_i64(work, CONFIG_FLAGS, 0)
        if flags_of(automaton, member) & HAS_CALLS or counter:
            close(automaton, work, spare)
            add_next_bytes(automaton, spare, leave)
        else:
            add_next_bytes(automaton, work, leave)
    store_i64(leave, 0, load_i64(leave, 0) & ~load_i64(loop, L_STAY))
    store_i64(leave, 1, load_i64(leave, 1) & ~load_i64(loop, L_STAY + 1))
    if load_i64(loop, L_TEXT) != 0:
        store_i64(leave, 2, 0)
        store_i64(leave, 3, 0)
    return True


@helper
def presence_rows(wanted, rows):  # type: ignore[no-untyped-def]
    """Rows of the segment tree whose union is the byte set at `wanted` (4 words); returns how many.

    From the left: the largest aligned block of wanted bytes that begins at each place.
    """
    n = 0
    byte = 0
    while byte < 256:
        if (load_i64(wanted, byte >> 6) >> (byte & 63)) & 1 == 0:
            byte += 1
            continue
        size = 1
        while size < 256 and byte % (2 * size) == 0:
            whole = True
            for other in range(byte + size, byte + 2 * size):
                if (load_i64(wanted, other >> 6) >> (other & 63)) & 1 == 0:
                    whole = False
                    break
            if not whole:
                break
            size *= 2
        store_i64(rows, n, (256 + byte) // size)
        n += 1
        byte += size
    return n


@helper
def fill_wide(grammar, vocabulary, loop, mask, ranks, rows, wanted):  # type: ignore[no-untyped-def]
    """Set `mask` to the tokens accepted wholesale and `ranks` to those that must be walked. Returns the work done."""
    words = load_i64(vocabulary, V_WORDS)
    rank_words = load_i64(vocabulary, V_RANK_WORDS)
    text = load_i64(loop, L_TEXT) != 0
    limit = load_i64(loop, L_LIMIT)
    limited = limit < load_i64(vocabulary, V_MAX_LENGTH)
    exact = load_i64(loop, L_EXACT) != 0
    klass = load_i64(loop, L_CLASS)
    store_i64(wanted, 0, ~load_i64(loop, L_STAY))
    store_i64(wanted, 1, ~load_i64(loop, L_STAY + 1))
    store_i64(wanted, 2, 0 if text else -1)
    store_i64(wanted, 3, 0 if text else -1)
    outside = presence_rows(wanted, rows)
    inside = rows + 8 * 256
    leaving = presence_rows(loop + 8 * L_LEAVE, inside)
    presence = load_i64(vocabulary, V_PRESENCE)
    valid = load_i64(vocabulary, V_VALID)
    length = load_i64(vocabulary, V_LENGTH) + 8 * words * max(limit, 0)
    members = 0
    if klass >= 0:
        members = load_i64(grammar, G_LOOP_BITS) + 8 * words * klass
    for word in range(words):
        other = 0
        for i in range(outside):
            other |= load_i64(presence + 8 * words * load_i64(rows, i), word)
        bits = load_i64(valid, word) & ~other
        if klass >= 0:
            bits |= load_i64(members, word)
        if limited:
            bits &= load_i64(length, word)
        store_i64(mask, word, bits)
    presence = load_i64(vocabulary, V_RANK_PRESENCE)
    valid = load_i64(vocabulary, V_RANK_VALID)
    length = load_i64(vocabulary, V_RANK_LENGTH) + 8 * rank_words * max(limit, 0)
    if klass >= 0:
        members = load_i64(grammar, G_LOOP_RANK_BITS) + 8 * rank_words * klass
    n_ranks = load_i64(vocabulary, V_RANKS)
    for word in range(rank_words):
        other = 0
        for i in range(outside):
            other |= load_i64(presence + 8 * rank_words * load_i64(rows, i), word)
        made = load_i64(valid, word) & ~other
        if klass >= 0:
            made |= load_i64(members, word)
        leave = ~load_i64(valid, word)
        for i in range(leaving):
            leave |= load_i64(presence + 8 * rank_words * load_i64(inside, i), word)
        if limited and not exact:
            leave |= made & ~load_i64(length, word)
            made &= load_i64(length, word)
        leave &= ~made
        if word == rank_words - 1 and n_ranks & 63 != 0:
            leave &= (1 << (n_ranks & 63)) - 1
        store_i64(ranks, word, leave)
    return (words * (outside + 2) + rank_words * (outside + leaving + 3)) // 16
