"""The sets of bytes on which a wide state stays alive, whatever their order: fixpoints over the states they lead to.

Finding one looks at the byte edges of each state that it stays among. It is interrupted now and then, in the
middle of a state too, and taken up again from the beginning, with the sets that have been found by then.
"""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import FINAL, H_FLAGS, HAS_CALLS, RECURSIVE
from .layout import (
    KIND_BYTES,
    KIND_COUNT,
    KIND_FIRST,
    L_AGAIN,
    L_ASKED,
    L_CLASS,
    L_STATES,
    L_STAY,
    L_TEXT,
    L_WORK,
    LEAVE_WORDS,
    LOOP_WORDS,
    MAX_LEAVES,
    MAX_LOOP_STATES,
    MAX_SETS,
    MEMO_AWAY,
    MEMO_CALL,
    MEMO_CUTS,
    MEMO_DONE,
    MEMO_ENTRY,
    MEMO_HEAD,
    MEMO_HIGH,
    MEMO_KIND,
    MEMO_LEAVES,
    MEMO_LED,
    MEMO_LED_TEXT,
    MEMO_LEFT,
    MEMO_LOW,
    MEMO_SPENT,
    MEMO_STATE,
    MEMO_TURN,
    MEMO_UNFINISHED,
)
from .machine import AT_CALL_FRAME, AT_CALL_START, AT_FRAME_FIRST, delta, flags_of, restart_of
from .memory import count_bits, load_i32, load_i64, section, store_i64
from .stays import after_byte, keep_both, local_step, text_stays
from .trie import V_WORDS

#: Byte edges of neighbouring bytes that are looked at in the time of one of the walk's (`bench/fuel.py`).
EDGES_A_UNIT = 2
#: Byte edges that are looked at before finding is interrupted, but for those of one byte, or of all code points.
FOUND_AT_ONCE = 256
#: Byte edges that are looked at in all, for each word of a mask: past that no more sets are found, tokens are walked. A
#: word of them takes 32 units of fuel, walking its tokens in a wide state up to 900. With 32 edges a trigger of 30
#: bytes is too long for a vocabulary of 6,500 tokens.
MOST_EDGES_A_WORD = 64
#: Letters, bytes from 0x40 on, and the space: a set without one of them leaves many tokens to be walked one by one.
COMMON_HIGH = 0x07FFFFFE07FFFFFE
COMMON_LOW = 1 << 0x20
#: So many other bytes are in as many tokens as one of these, about.
MANY_TOKENS = 8
#: Weight of all ASCII bytes and all other code points.
ALL = 256


@helper
def begin_finding(memo):  # type: ignore[no-untyped-def]
    """Nothing is known of the sets that will be asked for."""
    store_i64(memo, MEMO_DONE, 0)
    store_i64(memo, MEMO_TURN, 0)
    store_i64(memo, MEMO_SPENT, 0)
    for word in range(LEAVE_WORDS * MAX_LEAVES):
        store_i64(memo, MEMO_LEAVES + word, 0)


@helper
def take_up(memo):  # type: ignore[no-untyped-def]
    """Find sets once more from the beginning, with what is known of them."""
    store_i64(memo, MEMO_CALL, 0)
    store_i64(memo, MEMO_AWAY, 0)
    store_i64(memo, MEMO_LEFT, FOUND_AT_ONCE)
    store_i64(memo, MEMO_UNFINISHED, 0)


@helper
def add_work(loop, edges):  # type: ignore[no-untyped-def]
    """Count so many byte edges that were looked at."""
    store_i64(loop, L_WORK, load_i64(loop, L_WORK) + edges)


@helper
def spend(memo, edges):  # type: ignore[no-untyped-def]
    """Take so many byte edges from those that may be looked at before finding is interrupted."""
    store_i64(memo, MEMO_LEFT, load_i64(memo, MEMO_LEFT) - edges)


@helper
def loop_work(loop):  # type: ignore[no-untyped-def]
    """Fuel of finding what the words at `loop`, both halves, say; counted once."""
    work = load_i64(loop, L_WORK) + load_i64(loop, LOOP_WORDS + L_WORK)
    store_i64(loop, L_WORK, 0)
    store_i64(loop, LOOP_WORDS + L_WORK, 0)
    return work // EDGES_A_UNIT


@helper
def weight_of(low, high, text):  # type: ignore[no-untyped-def]
    return count_bits(low) + count_bits(high) + (ALL // 2 if text else 0)


@helper
def _call_bytes(automaton, state):  # type: ignore[no-untyped-def]
    """Bytes, 4 words, with which the frames that `state` calls begin."""
    first = section(automaton, AT_FRAME_FIRST)
    starts = section(automaton, AT_CALL_START)
    a, b, c, d = 0, 0, 0, 0
    if state >= 0 and flags_of(automaton, state) & HAS_CALLS:
        for call in range(load_i32(starts, state), load_i32(starts, state + 1)):
            frame = load_i32(section(automaton, AT_CALL_FRAME), call)
            a |= load_i64(first, 4 * frame)
            b |= load_i64(first, 4 * frame + 1)
            c |= load_i64(first, 4 * frame + 2)
            d |= load_i64(first, 4 * frame + 3)
    return a, b, c, d


@helper
def leading_away(automaton, state, start, follow, turn):  # type: ignore[no-untyped-def]
    """Bytes, 4 words, that may begin a call of `state` (turn 0) or `start` (1), or follow the frame's return (2)."""
    a, b, c, d = 0, 0, 0, 0
    if turn < 2:
        a, b, c, d = _call_bytes(automaton, state if turn == 0 else start)
    elif flags_of(automaton, state) & FINAL:
        a, b, c, d = load_i64(follow, 0), load_i64(follow, 1), load_i64(follow, 2), load_i64(follow, 3)
    return a, b, c, d


@helper
def _without_leading_away(automaton, loop, state, start, follow, low, high):  # type: ignore[no-untyped-def]
    """A set, 2 words, and L_TEXT, without what may begin a call of these states or follow the frame's return.

    Such a byte leads to places that are not looked at here. A context must know where that happens; elsewhere
    `find_loop` takes care of it.
    """
    for turn in range(3):
        a, b, c, d = leading_away(automaton, state, start, follow, turn)
        low &= ~a
        high &= ~b
        if c | d != 0:
            store_i64(loop, L_TEXT, 0)
    return low, high


@helper
def _is_common(kinds, kind):  # type: ignore[no-untyped-def]
    """Is one of the bytes of this kind in many tokens?"""
    members = kinds + 8 * (KIND_BYTES + 4 * kind)
    return (load_i64(members, 0) & COMMON_LOW) | (load_i64(members, 1) & COMMON_HIGH) != 0


@helper
def _note_new(kinds, loop, memo, before, parent, kind):  # type: ignore[no-untyped-def]
    """What led to the states that were added after the `before` first ones, from `parent`: MEMO_LED, MEMO_CUTS.

    They are cut off by bytes of this kind, if it is a single one that is in few tokens; else as the parent is.
    `kind` -1: code points above U+007F led there.
    """
    count = load_i64(loop + 8 * L_STATES, MAX_LOOP_STATES)
    if before == count:
        return
    cut = load_i64(memo, MEMO_CUTS + parent)
    if kind < 0:
        store_i64(memo, MEMO_LED_TEXT, 1)
    else:
        members = kinds + 8 * (KIND_BYTES + 4 * kind)
        low, high = load_i64(members, 0), load_i64(members, 1)
        store_i64(memo, MEMO_LED, load_i64(memo, MEMO_LED) | low)
        store_i64(memo, MEMO_LED + 1, load_i64(memo, MEMO_LED + 1) | high)
        if count_bits(low) + count_bits(high) == 1 and not _is_common(kinds, kind):
            cut = kind
    for i in range(before, count):
        store_i64(memo, MEMO_CUTS + i, cut)


@helper
def _led_astray(loop, memo):  # type: ignore[no-untyped-def]
    """Were states added in the first turn by bytes, or code points, that were dropped since?"""
    low = load_i64(memo, MEMO_LED) & ~load_i64(loop, L_STAY)
    high = load_i64(memo, MEMO_LED + 1) & ~load_i64(loop, L_STAY + 1)
    return low | high != 0 or load_i64(memo, MEMO_LED_TEXT) > load_i64(loop, L_TEXT)


@helper
def _stays(automaton, vocabulary, kinds, loop, register, only, follow, memo, least, turn):  # type: ignore[no-untyped-def]
    """Shrink L_STAY and L_TEXT to what keeps L_STATES closed; at most `only` states, added as they are met.

    Once it weighs less than `least` the rest does not matter: it is empty then. False where it was interrupted: it goes
    on from MEMO_KIND of MEMO_STATE. In turn 4 all code points are known to stay. What holds for a state goes on to
    hold, as the set only shrinks and the states only become more, so each of them is looked at once. But in turn 1,
    instead of a byte that is in many tokens, one goes without which the state is not reached: the next turn sees what
    that comes to.
    """
    states = loop + 8 * L_STATES
    contexts = load_i64(automaton, H_FLAGS) & RECURSIVE != 0
    n_kinds = load_i64(kinds, KIND_COUNT)
    i, kind = load_i64(memo, MEMO_STATE), load_i64(memo, MEMO_KIND)
    low, high = load_i64(memo, MEMO_LOW), load_i64(memo, MEMO_HIGH)
    while i < load_i64(states, MAX_LOOP_STATES):
        state = load_i64(states, i)
        start = restart_of(automaton, state, register)
        before = load_i64(loop, L_WORK)
        if kind < 0 and load_i64(memo, MEMO_LEFT) > 0:
            kind = 0
            low, high = load_i64(loop, L_STAY), load_i64(loop, L_STAY + 1)
            if contexts and i > 0:
                low, high = _without_leading_away(automaton, loop, state, start, follow, low, high)
            count = load_i64(states, MAX_LOOP_STATES)
            # Code points that go on from a state, and begin no other item there, lead where they do from the first one.
            known = load_i64(states, 0) if i > 0 else -1
            if known >= 0 and restart_of(automaton, known, register) >= 0:
                known = -1
            if (
                load_i64(loop, L_TEXT) != 0
                and turn != 4
                and not text_stays(automaton, vocabulary, kinds, state, register, loop, only, known)
            ):
                store_i64(loop, L_TEXT, 0)
                store_i64(states, MAX_LOOP_STATES, count)
            if turn == 1:
                _note_new(kinds, loop, memo, count, i, -1)
        enough = weight_of(low, high, load_i64(loop, L_TEXT) != 0) >= least
        last = before + load_i64(memo, MEMO_LEFT)
        while 0 <= kind < n_kinds and enough and load_i64(loop, L_WORK) < last:
            members = kinds + 8 * (KIND_BYTES + 4 * kind)
            if (low & load_i64(members, 0)) | (high & load_i64(members, 1)) != 0:
                add_work(loop, 1)
                byte = load_i64(kinds, KIND_FIRST + kind)
                one, two = delta(automaton, state, byte), after_byte(automaton, start, byte)
                count = load_i64(states, MAX_LOOP_STATES)
                kept = keep_both(automaton, kinds, loop, one, two, register, only)
                if turn == 1:
                    _note_new(kinds, loop, memo, count, i, kind)
                    cut = load_i64(memo, MEMO_CUTS + i)
                    if not kept and cut >= 0 and _is_common(kinds, kind):
                        members = kinds + 8 * (KIND_BYTES + 4 * cut)
                if not kept:
                    low &= ~load_i64(members, 0)
                    high &= ~load_i64(members, 1)
                    enough = weight_of(low, high, load_i64(loop, L_TEXT) != 0) >= least
            kind += 1
        looked = load_i64(loop, L_WORK) - before
        spend(memo, looked)
        store_i64(memo, MEMO_SPENT, load_i64(memo, MEMO_SPENT) + looked)
        if kind < 0 or (kind < n_kinds and enough):
            store_i64(memo, MEMO_STATE, i)
            store_i64(memo, MEMO_KIND, kind)
            store_i64(memo, MEMO_LOW, low)
            store_i64(memo, MEMO_HIGH, high)
            return False
        i += 1
        kind = -1
        if not enough:
            low, high = 0, 0
            store_i64(loop, L_TEXT, 0)
            i = load_i64(states, MAX_LOOP_STATES)
        store_i64(loop, L_STAY, low)
        store_i64(loop, L_STAY + 1, high)
    # At the first state calls and returns are matters of other heads, unless it is come back to.
    if contexts and load_i64(loop, L_AGAIN) != 0:
        state = load_i64(states, 0)
        low, high = load_i64(loop, L_STAY), load_i64(loop, L_STAY + 1)
        start = restart_of(automaton, state, register)
        low, high = _without_leading_away(automaton, loop, state, start, follow, low, high)
        store_i64(loop, L_STAY, low)
        store_i64(loop, L_STAY + 1, high)
    return True


@helper
def _keep_set(loop, entry):  # type: ignore[no-untyped-def]
    """Remember the set that has been found, or what there is of it."""
    for word in range(3):
        store_i64(entry, word, load_i64(loop, L_STAY + word))
    store_i64(entry, 3, load_i64(loop, L_ASKED))
    store_i64(entry, 4, load_i64(loop, L_AGAIN))
    n = load_i64(loop + 8 * L_STATES, MAX_LOOP_STATES)
    store_i64(entry, 5, n)
    for i in range(n):
        store_i64(entry, 6 + i, load_i64(loop + 8 * L_STATES, i))


@helper
def _take_set(loop, entry):  # type: ignore[no-untyped-def]
    """Have the set as it was remembered."""
    for word in range(3):
        store_i64(loop, L_STAY + word, load_i64(entry, word))
    store_i64(loop, L_ASKED, load_i64(loop, L_ASKED) | load_i64(entry, 3))
    store_i64(loop, L_AGAIN, load_i64(entry, 4))
    n = load_i64(entry, 5)
    store_i64(loop + 8 * L_STATES, MAX_LOOP_STATES, n)
    for i in range(n):
        store_i64(loop + 8 * L_STATES, i, load_i64(entry, 6 + i))


@helper
def _take_all(automaton, kinds, loop, state, register):  # type: ignore[no-untyped-def]
    """Begin with all bytes that may come next in the first state, and all code points above U+007F if any may."""
    low = high = above = 0
    for kind in range(load_i64(kinds, KIND_COUNT)):
        if local_step(automaton, state, load_i64(kinds, KIND_FIRST + kind), register) >= 0:
            members = kinds + 8 * (KIND_BYTES + 4 * kind)
            low |= load_i64(members, 0)
            high |= load_i64(members, 1)
            above |= load_i64(members, 2) | load_i64(members, 3)
    add_work(loop, load_i64(kinds, KIND_COUNT))
    store_i64(loop, L_STAY, low)
    store_i64(loop, L_STAY + 1, high)
    store_i64(loop, L_TEXT, 1 if above != 0 else 0)


@helper
def set_weight(loop):  # type: ignore[no-untyped-def]
    """Weight of the set in the words at `loop`."""
    return weight_of(load_i64(loop, L_STAY), load_i64(loop, L_STAY + 1), load_i64(loop, L_TEXT) != 0)


@helper
def set_worth(loop):  # type: ignore[no-untyped-def]
    """Weight of the set in the words at `loop`, less MANY_TOKENS for each letter that it lacks, which many tokens hold.

    But not where a class settles most of these. A space is the first byte of most tokens that hold one.
    """
    lacking = count_bits(COMMON_HIGH & ~load_i64(loop, L_STAY + 1)) if load_i64(loop, L_CLASS) < 0 else 0
    return set_weight(loop) - MANY_TOKENS * lacking


@helper
def try_states(  # type: ignore[no-untyped-def]
    automaton, vocabulary, kinds, loop, first, second, only, register, follow, memo, least, again
):
    """Set L_STAY, L_TEXT and L_STATES to the fixpoint that begins with these one or two states; its weight.

    One that weighs less than `least` is left empty. `again`: 1 where bytes were read before the first state.

    Where all of this is interrupted (MEMO_UNFINISHED) nothing that follows matters: it is found again, from `memo`.
    """
    call = load_i64(memo, MEMO_CALL)
    store_i64(memo, MEMO_CALL, call + 1)
    entry = memo + 8 * (MEMO_HEAD + MEMO_ENTRY * call)
    states = loop + 8 * L_STATES
    n = 2 if second >= 0 and second != first else 1
    spent = load_i64(memo, MEMO_SPENT) > MOST_EDGES_A_WORD * load_i64(vocabulary, V_WORDS)
    if load_i64(memo, MEMO_UNFINISHED) != 0 or call >= MAX_SETS or (call >= load_i64(memo, MEMO_DONE) and spent):
        for word in range(3):
            store_i64(loop, L_STAY + word, 0)
        store_i64(states, 0, first)
        store_i64(states, MAX_LOOP_STATES, 1)
        return 0
    if call < load_i64(memo, MEMO_DONE):
        _take_set(loop, entry)
        return set_weight(loop)
    turn = load_i64(memo, MEMO_TURN)
    if turn > 0:
        _take_set(loop, entry)
    else:
        _take_all(automaton, kinds, loop, first, register)
        store_i64(states, 0, first)
        store_i64(states, 1, second)
        for word in range(MEMO_LED, MEMO_LED_TEXT + 1):
            store_i64(memo, word, 0)
        store_i64(memo, MEMO_CUTS, -1)
        store_i64(memo, MEMO_CUTS + 1, -1)
    # The second turn leaves out the states that only bytes led to that were dropped; the third has all bytes that lead
    # from the others to the others, some of which were dropped for want of an edge from one left out. In its place the
    # fourth has them where all code points are known to stay.
    while True:
        if load_i64(memo, MEMO_TURN) == 0:
            turn += 1
            if turn < 3:
                store_i64(states, MAX_LOOP_STATES, n)
            else:
                turn += load_i64(loop, L_TEXT)
                _take_all(automaton, kinds, loop, first, register)
            store_i64(memo, MEMO_TURN, turn)
            store_i64(memo, MEMO_STATE, 0)
            store_i64(memo, MEMO_KIND, -1)
            store_i64(loop, L_AGAIN, again)
        most = load_i64(states, MAX_LOOP_STATES) if turn >= 3 else max(only, n)
        if not _stays(automaton, vocabulary, kinds, loop, register, most, follow, memo, least, turn):
            store_i64(memo, MEMO_UNFINISHED, 1)
            _keep_set(loop, entry)
            return 0
        store_i64(memo, MEMO_TURN, 0)
        weight = set_weight(loop)
        if turn >= 3 or weight == 0 or (turn == 1 and not _led_astray(loop, memo)):
            break
    _keep_set(loop, entry)
    store_i64(memo, MEMO_DONE, call + 1)
    return weight
