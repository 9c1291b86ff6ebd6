"""Wide states: most tokens at once, by what they are made of.

Inside a JSON string, `[^,]*` or `\\w+`, nearly every token is alive, and walking the trie would touch
nearly every node. But such a state stays alive on a set of bytes whatever their order. So the tokens made
of these alone are accepted with a few bitmap operations (`masks.trie`), and only tokens that hold a
byte which leaves the set, or are no complete UTF-8 text, are walked one by one. Compare llguidance's slices
(FIELD 1.3), which are fixed patterns; here the sets are found in the automaton.
"""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import COUNTER, FINAL, H_FLAGS, HAS_CALLS, UTF8
from .layout import (
    CONFIG_FLAGS,
    CONFIG_HEADS,
    G_AUTOMATON,
    G_LOOP_BITS,
    G_LOOP_EXACT,
    G_LOOP_RANK_BITS,
    G_LOOP_SIZE,
    G_SINGLE,
    HEAD_DEPTH,
    HEAD_REGISTERS,
    HEAD_STATES,
    HEAD_WORDS,
    L_CLASS,
    L_EXACT,
    L_LEAVE,
    L_LIMIT,
    L_SELF,
    L_SPACED,
    L_STATES,
    L_STAY,
    L_TEXT,
    LOOP_WORDS,
    MAX_HEADS,
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
    next_register,
    restart_of,
    top_register,
    top_state,
)
from .memory import count_bits, count_trailing_zeros, load_i32, load_i64, load_u8, section, store_i64
from .trie import (
    V_ABSENT,
    V_LENGTH,
    V_MAX_LENGTH,
    V_PRESENCE,
    V_RANK_LENGTH,
    V_RANK_PRESENCE,
    V_RANK_REST,
    V_RANK_SPACED,
    V_RANK_VALID,
    V_RANK_WORDS,
    V_RANKS,
    V_REST,
    V_SPACED,
    V_VALID,
    V_WORDS,
)

#: A set of fewer ASCII bytes is not worth the bitmaps: walking it is cheaper.
MIN_WIDE_BYTES = 12
#: Nor is a class of which fewer tokens are made.
MIN_CLASS_TOKENS = 2048


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
def _keep_state(loop, state, only):  # type: ignore[no-untyped-def]
    """Is `state` one of L_STATES, or can it be added (fewer than `only` are there)?"""
    if state < 0:
        return False
    states = loop + 8 * L_STATES
    n = load_i64(states, MAX_LOOP_STATES)
    for i in range(n):
        if load_i64(states, i) == state:
            return True
    if n >= only:
        return False
    store_i64(states, n, state)
    store_i64(states, MAX_LOOP_STATES, n + 1)
    return True


@helper
def _keep_both(loop, one, two, only):  # type: ignore[no-untyped-def]
    """`_keep_state` for those of two targets that exist; False where neither does."""
    if one < 0 and two < 0:
        return False
    return (one < 0 or _keep_state(loop, one, only)) and (two < 0 or _keep_state(loop, two, only))


@helper
def _after(automaton, state, byte):  # type: ignore[no-untyped-def]
    return -1 if state < 0 else delta(automaton, state, byte)


@helper
def _text_stays(automaton, vocabulary, state, register, loop, only):  # type: ignore[no-untyped-def]
    """Does every code point above U+007F lead from `state` to L_STATES only (RFC 3629's ranges)?

    A lead byte may go on with the item and begin another one, so two states are followed. Bytes that no
    token has do not count. Neighbours with equal targets are looked at once.
    """
    absent = load_i64(vocabulary, V_ABSENT)
    start = restart_of(automaton, state, register)
    before1, before2 = -2, -2
    for lead in range(0xC2, 0xF5):
        if (load_i64(absent, lead >> 6) >> (lead & 63)) & 1 != 0:
            continue
        a1, b1 = delta(automaton, state, lead), _after(automaton, start, lead)
        special = lead == 0xE0 or lead == 0xED or lead == 0xF0 or lead == 0xF4
        if a1 == before1 and b1 == before2 and not special:
            continue
        before1, before2 = (-2, -2) if special else (a1, b1)
        low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
        high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
        p1, q1 = -2, -2
        for byte2 in range(low, high + 1):
            a2, b2 = _after(automaton, a1, byte2), _after(automaton, b1, byte2)
            if a2 == p1 and b2 == q1:
                continue
            p1, q1 = a2, b2
            if lead < 0xE0:
                if not _keep_both(loop, a2, b2, only):
                    return False
                continue
            p2, q2 = -2, -2
            for byte3 in range(0x80, 0xC0):
                a3, b3 = _after(automaton, a2, byte3), _after(automaton, b2, byte3)
                if a3 == p2 and b3 == q2:
                    continue
                p2, q2 = a3, b3
                if lead < 0xF0:
                    if not _keep_both(loop, a3, b3, only):
                        return False
                    continue
                p3, q3 = -2, -2
                for byte4 in range(0x80, 0xC0):
                    a4, b4 = _after(automaton, a3, byte4), _after(automaton, b3, byte4)
                    if a4 == p3 and b4 == q3:
                        continue
                    p3, q3 = a4, b4
                    if not _keep_both(loop, a4, b4, only):
                        return False
    return True


@helper
def _weight(low, high, text):  # type: ignore[no-untyped-def]
    return count_bits(low) + count_bits(high) + (128 if text else 0)


@helper
def _stays(automaton, vocabulary, loop, register, only):  # type: ignore[no-untyped-def]
    """Shrink L_STAY and L_TEXT to what keeps L_STATES closed; at most `only` states, added as they are met."""
    states = loop + 8 * L_STATES
    changed = True
    while changed:
        changed = False
        i = 0
        while i < load_i64(states, MAX_LOOP_STATES):
            state = load_i64(states, i)
            start = restart_of(automaton, state, register)
            i += 1
            for half in range(2):
                bits = load_i64(loop, L_STAY + half)
                rest = bits
                while rest != 0:
                    bit = count_trailing_zeros(rest)
                    rest &= rest - 1
                    byte = 64 * half + bit
                    if not _keep_both(loop, delta(automaton, state, byte), _after(automaton, start, byte), only):
                        bits &= ~(1 << bit)
                        changed = True
                store_i64(loop, L_STAY + half, bits)
            if load_i64(loop, L_TEXT) != 0 and not _text_stays(automaton, vocabulary, state, register, loop, only):
                store_i64(loop, L_TEXT, 0)
                changed = True


@helper
def _try_states(automaton, vocabulary, loop, first, second, only, register, follow):  # type: ignore[no-untyped-def]
    """Set L_STAY, L_TEXT and L_STATES to the fixpoint that begins with these one or two states.

    Bytes that may follow the frame are left out: a token that leaves by one goes on who knows where.
    """
    states = loop + 8 * L_STATES
    store_i64(loop, L_STAY, ~load_i64(follow, 0))
    store_i64(loop, L_STAY + 1, ~load_i64(follow, 1))
    store_i64(loop, L_TEXT, 1 if load_i64(follow, 2) | load_i64(follow, 3) == 0 else 0)
    store_i64(states, 0, first)
    n = 1
    if second >= 0 and second != first:
        store_i64(states, 1, second)
        n = 2
    store_i64(states, MAX_LOOP_STATES, n)
    _stays(automaton, vocabulary, loop, register, max(only, n))
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
def _find_loop(grammar, automaton, vocabulary, head, follow, loop, work, spare, anyway):  # type: ignore[no-untyped-def]
    """Fill the words at `loop` for this head. Returns whether it is wide; `anyway`: with an empty set if not."""
    state, register = top_state(head), top_register(head)
    klass = load_i32(section(automaton, AT_STATE_LOOP), state)
    if klass >= 0 and load_i32(load_i64(grammar, G_LOOP_SIZE), klass) < MIN_CLASS_TOKENS:
        klass = -1
    weight = _try_states(automaton, vocabulary, loop, state, -1, MAX_LOOP_STATES, register, follow)
    # Where some bytes lead to states that narrow the set, a state that only loops on itself may be wide.
    for byte in (0x65, 0x30, 0x20, 0x2C):
        if weight >= MIN_WIDE_BYTES:
            break
        target = local_step(automaton, state, byte, register)
        if target >= 0:
            weight = _try_states(automaton, vocabulary, loop, state, target, 1, register, follow)
    if weight < MIN_WIDE_BYTES and klass < 0:
        if not anyway:
            return False
        for word in range(3):
            store_i64(loop, L_STAY + word, 0)
        store_i64(loop + 8 * L_STATES, 0, state)
        store_i64(loop + 8 * L_STATES, MAX_LOOP_STATES, 1)
    store_i64(loop, L_CLASS, klass)
    states = loop + 8 * L_STATES
    n = load_i64(states, MAX_LOOP_STATES)
    frame = frame_of(automaton, state)
    start = load_i32(section(automaton, AT_FRAME_START), frame)
    counter = load_u8(section(automaton, AT_FRAME_KIND), frame) == COUNTER
    maximum = load_i64(section(automaton, AT_FRAME_MAXIMUM), frame)
    store_i64(loop, L_SELF, 1 if n == 1 and not counter else 0)
    limit = NO_LIMIT
    exact = 0
    # The count matters only where one of the states ends an item, so that another may begin.
    counts = klass >= 0 and state == start
    for i in range(n):
        counts = counts or flags_of(automaton, load_i64(states, i)) & FINAL != 0
    if counter and maximum >= 0 and counts:
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
    if load_i64(loop, L_TEXT) != 0 or (
        klass >= 0
        and load_u8(load_i64(grammar, G_LOOP_EXACT), state) != 0
        and flags_of(automaton, state) & HAS_CALLS == 0
        and load_i64(follow, 2) | load_i64(follow, 3) == 0
    ):
        # Tokens of other code points above U+007F are dead, those of these were settled.
        store_i64(leave, 2, 0)
        store_i64(leave, 3, 0)
    return True


@helper
def _find_after_space(grammar, automaton, vocabulary, head, follow, loop, work, spare):  # type: ignore[no-untyped-def]
    """`_find_loop` for the state after one space, into the second half of `loop`; False where not wide."""
    state, register = top_state(head), top_register(head)
    if (load_i64(follow, 0) >> 0x20) & 1 != 0 or flags_of(automaton, state) & HAS_CALLS:
        return False
    target = delta(automaton, state, 0x20)
    start = restart_of(automaton, state, register)
    if start >= 0:
        other = delta(automaton, start, 0x20)
        if flags_of(automaton, start) & HAS_CALLS or (target >= 0 and other >= 0):
            return False
        if other >= 0:
            target = other
            register = next_register(automaton, state, register)
    if target < 0:
        return False
    depth = load_i64(head, HEAD_DEPTH)
    moved = head_at(spare, MAX_HEADS - 1)
    for word in range(HEAD_WORDS):
        store_i64(moved, word, load_i64(head, word))
    store_i64(moved, HEAD_STATES + depth - 1, target)
    store_i64(moved, HEAD_REGISTERS + depth - 1, register)
    return _find_loop(grammar, automaton, vocabulary, moved, follow, loop + 8 * LOOP_WORDS, work, spare, False)


@helper
def find_loops(grammar, automaton, vocabulary, head, follow, loop, work, spare):  # type: ignore[no-untyped-def]
    """`_find_loop` for the head, and for the state that it is in after one space, where half of all tokens begin."""
    wide = _find_loop(grammar, automaton, vocabulary, head, follow, loop, work, spare, False)
    spaced = False
    if not wide or (load_i64(loop, L_LEAVE) >> 0x20) & 1 != 0:
        spaced = _find_after_space(grammar, automaton, vocabulary, head, follow, loop, work, spare)
    if spaced and not wide:
        _find_loop(grammar, automaton, vocabulary, head, follow, loop, work, spare, True)
    store_i64(loop, L_SPACED, 1 if spaced else 0)
    return wide or spaced


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
def _outside_rows(loop, rows, wanted):  # type: ignore[no-untyped-def]
    """Segment rows of the bytes that are not in the loop's set."""
    store_i64(wanted, 0, ~load_i64(loop, L_STAY))
    store_i64(wanted, 1, ~load_i64(loop, L_STAY + 1))
    text = load_i64(loop, L_TEXT) != 0
    store_i64(wanted, 2, 0 if text else -1)
    store_i64(wanted, 3, 0 if text else -1)
    return presence_rows(wanted, rows)


# Whole-bitmap passes: short loops without branches, which LLVM turns into vector code.


@helper
def _copy(target, source, words):  # type: ignore[no-untyped-def]
    for word in range(words):
        store_i64(target, word, load_i64(source, word))


@helper
def _or(target, source, words):  # type: ignore[no-untyped-def]
    for word in range(words):
        store_i64(target, word, load_i64(target, word) | load_i64(source, word))


@helper
def _and_not(target, source, words):  # type: ignore[no-untyped-def]
    for word in range(words):
        store_i64(target, word, load_i64(target, word) & ~load_i64(source, word))


@helper
def _or_and_not(target, source, without, words):  # type: ignore[no-untyped-def]
    for word in range(words):
        store_i64(target, word, load_i64(target, word) | (load_i64(source, word) & ~load_i64(without, word)))


@helper
def _or_and(target, source, other, words):  # type: ignore[no-untyped-def]
    for word in range(words):
        store_i64(target, word, load_i64(target, word) | (load_i64(source, word) & load_i64(other, word)))


@helper
def _and(target, source, words):  # type: ignore[no-untyped-def]
    for word in range(words):
        store_i64(target, word, load_i64(target, word) & load_i64(source, word))


@helper
def _any_row(target, table, rows, n, words):  # type: ignore[no-untyped-def]
    """`target` = OR of `n` rows of a table of bitmaps."""
    for word in range(words):
        store_i64(target, word, 0)
    for i in range(n):
        _or(target, table + 8 * words * load_i64(rows, i), words)


@helper
def _made_of(target, valid, table, rows, n, members, spare, words):  # type: ignore[no-untyped-def]
    """`target` = the `valid` tokens with no byte of these rows, and the `members` (an address, or 0)."""
    _any_row(spare, table, rows, n, words)
    _copy(target, valid, words)
    _and_not(target, spare, words)
    if members != 0:
        _or(target, members, words)


@helper
def fill_wide(grammar, vocabulary, loop, mask, ranks, rows, spare):  # type: ignore[no-untyped-def]
    """Set `mask` to the tokens accepted wholesale and `ranks` to those that must be walked. Returns the work done.

    `rows` is scratch of 4 * 256 + 4 words, `spare` of 4 bitmaps.
    """
    wanted = rows + 8 * 1024
    leaving_rows, after_rows, after_leaving_rows = rows + 8 * 256, rows + 8 * 512, rows + 8 * 768
    after = loop + 8 * LOOP_WORDS
    spaced = load_i64(loop, L_SPACED) != 0
    outside = _outside_rows(loop, rows, wanted)
    leaving = presence_rows(loop + 8 * L_LEAVE, leaving_rows)
    after_outside, after_leaving = 0, 0
    if spaced:
        after_outside = _outside_rows(after, after_rows, wanted)
        after_leaving = presence_rows(after + 8 * L_LEAVE, after_leaving_rows)
    # Where every string is text, a token that is none is dead, or holds a byte that leaves the set.
    text_only = load_i64(load_i64(grammar, G_AUTOMATON), H_FLAGS) & UTF8 != 0
    longest = load_i64(vocabulary, V_MAX_LENGTH)
    limit, after_limit = max(load_i64(loop, L_LIMIT), 0), max(load_i64(after, L_LIMIT), 0) + 1
    limited, after_limited = limit < longest, after_limit < longest
    exact, after_exact = load_i64(loop, L_EXACT) != 0, load_i64(after, L_EXACT) != 0
    klass, after_class = load_i64(loop, L_CLASS), load_i64(after, L_CLASS)
    for order in range(2):
        words = load_i64(vocabulary, V_WORDS if order == 0 else V_RANK_WORDS)
        presence = load_i64(vocabulary, V_PRESENCE if order == 0 else V_RANK_PRESENCE)
        rest = load_i64(vocabulary, V_REST if order == 0 else V_RANK_REST)
        valid = load_i64(vocabulary, V_VALID if order == 0 else V_RANK_VALID)
        space = load_i64(vocabulary, V_SPACED if order == 0 else V_RANK_SPACED)
        length = load_i64(vocabulary, V_LENGTH if order == 0 else V_RANK_LENGTH)
        classes = load_i64(grammar, G_LOOP_BITS if order == 0 else G_LOOP_RANK_BITS)
        accepted, made = spare, spare + 8 * words
        after_made, other = spare + 16 * words, spare + 24 * words
        members = classes + 16 * words * klass if klass >= 0 else 0
        _made_of(made, valid, presence, rows, outside, members, other, words)
        _copy(accepted, made, words)
        if limited:
            _and(accepted, length + 8 * words * limit, words)
        if spaced:
            members = classes + 16 * words * after_class + 8 * words if after_class >= 0 else 0
            _made_of(after_made, space, rest, after_rows, after_outside, members, other, words)
            if after_limited:
                _or_and(accepted, after_made, length + 8 * words * after_limit, words)
            else:
                _or(accepted, after_made, words)
        if order == 0:
            _copy(mask, accepted, words)
            continue
        # What is left: tokens with a byte that leaves the set, and those that are no text by themselves.
        _any_row(ranks, presence, leaving_rows, leaving, words)
        _and_not(ranks, made, words)
        if limited and not exact:
            _or_and_not(ranks, made, length + 8 * words * limit, words)
        if spaced:
            # Tokens that begin with the space leave by it; what counts is how they go on.
            _and_not(ranks, space, words)
            _any_row(other, rest, after_leaving_rows, after_leaving, words)
            _and_not(other, after_made, words)
            _or_and(ranks, space, other, words)
            if after_limited and not after_exact:
                _or_and_not(ranks, after_made, length + 8 * words * after_limit, words)
        if not text_only:
            for word in range(words):
                store_i64(ranks, word, load_i64(ranks, word) | ~load_i64(valid, word))
        _and_not(ranks, accepted, words)
        if load_i64(vocabulary, V_RANKS) & 63 != 0:
            tail = (1 << (load_i64(vocabulary, V_RANKS) & 63)) - 1
            store_i64(ranks, words - 1, load_i64(ranks, words - 1) & tail)
    return load_i64(vocabulary, V_WORDS) * (2 * outside + leaving + 2 * after_outside + after_leaving + 20) // 64
