"""Wide states: most tokens at once, by what they are made of.

Inside a JSON string, `[^,]*` or `\\w+`, nearly every token is alive, and walking the trie would touch
nearly every node. But such a state stays alive on a set of bytes whatever their order. So the tokens made
of these alone are accepted with a few bitmap operations (`masks.trie`), and only tokens that hold a
byte which leaves the set, or are no complete UTF-8 text, are walked one by one. Compare llguidance's slices
(FIELD 1.3), which are fixed patterns; here the sets are found in the automaton.
"""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import COUNTER, FINAL, GUARDED, H_FLAGS, HAS_CALLS, HAS_OPERATIONS, RECURSIVE, SPREAD
from .layout import (
    CONFIG_HEADS,
    G_KINDS,
    G_LIVE,
    G_LOOP_SIZE,
    G_SINGLE,
    KIND_BYTES,
    KIND_COUNT,
    KIND_FIRST,
    L_AFTER,
    L_AGAIN,
    L_ASKED,
    L_CLASS,
    L_EXACT,
    L_FIRST,
    L_FIRST_TEXT,
    L_LEAVE,
    L_LIMIT,
    L_SELF,
    L_STATES,
    L_STAY,
    L_TEXT,
    L_WORK,
    LOOP_WORDS,
    MAX_LOOP_STATES,
    MAX_SETS,
    MEMO_CALL,
    MEMO_CHANGED,
    MEMO_DONE,
    MEMO_ENTRY,
    MEMO_HEAD,
    MEMO_LEFT,
    MEMO_SPENT,
    MEMO_STATE,
    MEMO_TURN,
    MEMO_UNFINISHED,
    NO_LIMIT,
)
from .loop_class import add_spread_bytes, ends_item, is_exact, landing
from .machine import (
    AT_CALL_FRAME,
    AT_CALL_START,
    AT_FRAME_FIRST,
    AT_FRAME_KIND,
    AT_FRAME_MAXIMUM,
    AT_FRAME_START,
    AT_STATE_LOOP,
    delta,
    flags_of,
    frame_of,
    head_at,
    next_register,
    restart_of,
    top_register,
    top_state,
)
from .members import asks, goes_on_with_any
from .memory import count_bits, load_i32, load_i64, load_u8, section, store_i64
from .stays import after_byte, keep_both, local_step, text_stays
from .trie import V_MAX_LENGTH, V_RANKS, V_WORDS

#: A set of fewer ASCII bytes is not worth the bitmaps: walking it is cheaper.
MIN_WIDE_BYTES = 12
#: First bytes that lead to one state, at most: their rows are memory traffic, a few for an alphabet.
MAX_FIRST = 128
#: Byte edges of neighbouring bytes that are looked at in the time of one of the walk's (`bench/fuel.py`).
EDGES_A_UNIT = 2
#: Byte edges that are looked at before finding is interrupted, but for one state's.
FOUND_AT_ONCE = 128
#: Byte edges that are looked at in all, for each word of a mask: past that walking is the shorter way.
MOST_EDGES_A_WORD = 32
#: Nor is a class of which fewer tokens are made.
MIN_CLASS_TOKENS = 2048


@helper
def begin_finding(memo):  # type: ignore[no-untyped-def]
    """Nothing is known of the sets that will be asked for."""
    store_i64(memo, MEMO_DONE, 0)
    store_i64(memo, MEMO_TURN, 0)
    store_i64(memo, MEMO_SPENT, 0)


@helper
def take_up(memo):  # type: ignore[no-untyped-def]
    """Find sets once more from the beginning, with what is known of them."""
    store_i64(memo, MEMO_CALL, 0)
    store_i64(memo, MEMO_LEFT, FOUND_AT_ONCE)
    store_i64(memo, MEMO_UNFINISHED, 0)


@helper
def _add_work(loop, edges):  # type: ignore[no-untyped-def]
    """Count so many byte edges that were looked at."""
    store_i64(loop, L_WORK, load_i64(loop, L_WORK) + edges)


@helper
def loop_work(loop):  # type: ignore[no-untyped-def]
    """Fuel of finding what the words at `loop`, both halves, say; counted once."""
    work = load_i64(loop, L_WORK) + load_i64(loop, LOOP_WORDS + L_WORK)
    store_i64(loop, L_WORK, 0)
    store_i64(loop, LOOP_WORDS + L_WORK, 0)
    return work // EDGES_A_UNIT


@helper
def _weight(low, high, text):  # type: ignore[no-untyped-def]
    return count_bits(low) + count_bits(high) + (128 if text else 0)


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
def _leading_away(automaton, state, start, follow, turn):  # type: ignore[no-untyped-def]
    """Bytes, 4 words, that may begin a call of `state` (turn 0) or `start` (1), or follow the frame's return (2)."""
    a, b, c, d = 0, 0, 0, 0
    if turn < 2:
        a, b, c, d = _call_bytes(automaton, state if turn == 0 else start)
    elif flags_of(automaton, state) & FINAL:
        a, b, c, d = load_i64(follow, 0), load_i64(follow, 1), load_i64(follow, 2), load_i64(follow, 3)
    return a, b, c, d


@helper
def _stays(automaton, vocabulary, kinds, loop, register, only, follow, memo):  # type: ignore[no-untyped-def]
    """Shrink L_STAY and L_TEXT to what keeps L_STATES closed; at most `only` states, added as they are met.

    False where it was interrupted: it goes on from MEMO_STATE.
    """
    states = loop + 8 * L_STATES
    contexts = load_i64(automaton, H_FLAGS) & RECURSIVE != 0
    i = load_i64(memo, MEMO_STATE)
    changed = load_i64(memo, MEMO_CHANGED) != 0
    while True:
        if i >= load_i64(states, MAX_LOOP_STATES):
            if not changed:
                break
            i = 0
            changed = False
        if load_i64(memo, MEMO_LEFT) <= 0:
            store_i64(memo, MEMO_STATE, i)
            store_i64(memo, MEMO_CHANGED, 1 if changed else 0)
            return False
        state = load_i64(states, i)
        start = restart_of(automaton, state, register)
        i += 1
        before, again = load_i64(loop, L_WORK), load_i64(loop, L_AGAIN)
        low, high = load_i64(loop, L_STAY), load_i64(loop, L_STAY + 1)
        # A byte that may begin a call, or follow the frame's return, leads to places that are not looked at here.
        # A context must know where that happens, but for before the first byte; elsewhere `find_loop` takes care of it.
        if contexts and (i > 1 or again != 0):
            for turn in range(3):
                a, b, c, d = _leading_away(automaton, state, start, follow, turn)
                changed = changed or (low & a) | (high & b) != 0
                low &= ~a
                high &= ~b
                if c | d != 0 and load_i64(loop, L_TEXT) != 0:
                    store_i64(loop, L_TEXT, 0)
                    changed = True
        for kind in range(load_i64(kinds, KIND_COUNT)):
            members = kinds + 8 * (KIND_BYTES + 4 * kind)
            if (low & load_i64(members, 0)) | (high & load_i64(members, 1)) != 0:
                byte = load_i64(kinds, KIND_FIRST + kind)
                one, two = delta(automaton, state, byte), after_byte(automaton, start, byte)
                if not keep_both(automaton, loop, one, two, register, only):
                    low &= ~load_i64(members, 0)
                    high &= ~load_i64(members, 1)
                    changed = True
        _add_work(loop, load_i64(kinds, KIND_COUNT))
        store_i64(loop, L_STAY, low)
        store_i64(loop, L_STAY + 1, high)
        if load_i64(loop, L_TEXT) != 0 and not text_stays(automaton, vocabulary, kinds, state, register, loop, only):
            store_i64(loop, L_TEXT, 0)
            changed = True
        changed = changed or (contexts and load_i64(loop, L_AGAIN) != again)
        looked = load_i64(loop, L_WORK) - before
        store_i64(memo, MEMO_LEFT, load_i64(memo, MEMO_LEFT) - looked)
        store_i64(memo, MEMO_SPENT, load_i64(memo, MEMO_SPENT) + looked)
    store_i64(memo, MEMO_STATE, 0)
    store_i64(memo, MEMO_CHANGED, 0)
    return True


@helper
def _keep_set(loop, entry):  # type: ignore[no-untyped-def]
    """Remember the set that has been found, or what there is of it."""
    for word in range(3):
        store_i64(entry, word, load_i64(loop, L_STAY + word))
    store_i64(entry, 3, load_i64(loop, L_ASKED))
    for word in range(MAX_LOOP_STATES + 1):
        store_i64(entry, 4 + word, load_i64(loop + 8 * L_STATES, word))
    store_i64(entry, MEMO_ENTRY - 1, load_i64(loop, L_AGAIN))


@helper
def _take_set(loop, entry):  # type: ignore[no-untyped-def]
    """Have the set as it was remembered."""
    for word in range(3):
        store_i64(loop, L_STAY + word, load_i64(entry, word))
    store_i64(loop, L_ASKED, load_i64(loop, L_ASKED) | load_i64(entry, 3))
    for word in range(MAX_LOOP_STATES + 1):
        store_i64(loop + 8 * L_STATES, word, load_i64(entry, 4 + word))
    store_i64(loop, L_AGAIN, load_i64(entry, MEMO_ENTRY - 1))


@helper
def _set_weight(loop):  # type: ignore[no-untyped-def]
    return _weight(load_i64(loop, L_STAY), load_i64(loop, L_STAY + 1), load_i64(loop, L_TEXT) != 0)


@helper
def _try_states(automaton, vocabulary, kinds, loop, first, second, only, register, follow, again, memo):  # type: ignore[no-untyped-def]
    """Set L_STAY, L_TEXT and L_STATES to the fixpoint that begins with these one or two states; its weight.

    `again`: 1 where bytes were read before. Where all of this is interrupted (MEMO_UNFINISHED) nothing that follows
    matters: it is found again, from `memo`.
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
        store_i64(loop, L_AGAIN, 1)
        return 0
    if call < load_i64(memo, MEMO_DONE):
        _take_set(loop, entry)
        return _set_weight(loop)
    turn = load_i64(memo, MEMO_TURN)
    if turn > 0:
        _take_set(loop, entry)
    else:
        store_i64(loop, L_STAY, -1)
        store_i64(loop, L_STAY + 1, -1)
        store_i64(loop, L_TEXT, 1)
        store_i64(states, 0, first)
        store_i64(states, 1, second)
    # The second turn leaves out the states that only bytes led to that were dropped.
    while turn <= 2:
        if load_i64(memo, MEMO_TURN) == 0:
            turn += 1
            store_i64(memo, MEMO_TURN, turn)
            store_i64(memo, MEMO_STATE, 0)
            store_i64(memo, MEMO_CHANGED, 0)
            store_i64(states, MAX_LOOP_STATES, n)
            store_i64(loop, L_AGAIN, again)
        if not _stays(automaton, vocabulary, kinds, loop, register, max(only, n), follow, memo):
            store_i64(memo, MEMO_UNFINISHED, 1)
            _keep_set(loop, entry)
            return 0
        store_i64(memo, MEMO_TURN, 0)
        if turn == 2 or load_i64(states, MAX_LOOP_STATES) == n:
            break
    _keep_set(loop, entry)
    store_i64(memo, MEMO_DONE, call + 1)
    return _set_weight(loop)


@helper
def add_state_bytes(grammar, automaton, state, register, into):  # type: ignore[no-untyped-def]
    """OR the bytes that may come next in a state's own frame into the 4 words at `into`, which hold whole kinds."""
    kinds = load_i64(grammar, G_KINDS)
    for kind in range(load_i64(kinds, KIND_COUNT)):
        byte = load_i64(kinds, KIND_FIRST + kind)
        if (load_i64(into, byte >> 6) >> (byte & 63)) & 1 == 0 and local_step(automaton, state, byte, register) >= 0:
            for word in range(4):
                more = load_i64(kinds, KIND_BYTES + 4 * kind + word)
                store_i64(into, word, load_i64(into, word) | more)


@helper
def add_next_bytes(grammar, automaton, config, into):  # type: ignore[no-untyped-def]
    """OR the bytes that may come next in `config` (closed) into the 4 words at `into`, which hold whole kinds."""
    for i in range(load_i64(config, CONFIG_HEADS)):
        head = head_at(config, i)
        add_state_bytes(grammar, automaton, top_state(head), top_register(head), into)


@helper
def find_loop(grammar, automaton, vocabulary, state, register, follow, loop, empty, again, memo):  # type: ignore[no-untyped-def]
    """Fill the words at `loop` for a head, with `empty` for one that stays nowhere. Returns whether it is wide.

    `again`: 1 where bytes were read before, as then a context must know as well what this state calls and returns to.
    """
    klass = load_i32(section(automaton, AT_STATE_LOOP), state)
    if klass >= 0 and load_i32(load_i64(grammar, G_LOOP_SIZE), klass) < MIN_CLASS_TOKENS:
        klass = -1
    kinds = load_i64(grammar, G_KINDS)
    frame = frame_of(automaton, state)
    start = load_i32(section(automaton, AT_FRAME_START), frame)
    counter = load_u8(section(automaton, AT_FRAME_KIND), frame) == COUNTER
    maximum = load_i64(section(automaton, AT_FRAME_MAXIMUM), frame)
    # Near a counter's end a set in which each code point is an item comes first: then it is known which are too long.
    near = counter and maximum >= 0 and maximum - 1 - register < load_i64(vocabulary, V_MAX_LENGTH)
    weight = 0
    if not empty and not near:
        weight = _try_states(
            automaton, vocabulary, kinds, loop, state, -1, MAX_LOOP_STATES, register, follow, again, memo
        )
    # Where some bytes lead to states that narrow the set, a state that only loops on itself may be wide.
    for byte in (0x65, 0x30, 0x20, 0x2C):
        if empty or weight >= MIN_WIDE_BYTES:
            break
        target = local_step(automaton, state, byte, register)
        if target >= 0 and flags_of(automaton, target) & (GUARDED | HAS_OPERATIONS) == 0:
            weight = _try_states(automaton, vocabulary, kinds, loop, state, target, 1, register, follow, again, memo)
    if not empty and near and weight < MIN_WIDE_BYTES:
        weight = _try_states(
            automaton, vocabulary, kinds, loop, state, -1, MAX_LOOP_STATES, register, follow, again, memo
        )
    if weight < MIN_WIDE_BYTES and klass < 0 and not empty:
        return False
    if empty:
        klass = -1
        for word in range(3):
            store_i64(loop, L_STAY + word, 0)
        store_i64(loop + 8 * L_STATES, 0, state)
        store_i64(loop + 8 * L_STATES, MAX_LOOP_STATES, 1)
        store_i64(loop, L_AGAIN, again)
    if klass >= 0 and asks(automaton, state):
        # Its class goes on with members without a bit.
        allowed = goes_on_with_any(automaton, state, register)
        store_i64(loop, L_ASKED, load_i64(loop, L_ASKED) | (1 if allowed else 2))
        if not allowed:
            klass = -1
            if weight < MIN_WIDE_BYTES:
                return False
    store_i64(loop, L_CLASS, klass)
    states = loop + 8 * L_STATES
    n = load_i64(states, MAX_LOOP_STATES)
    # The code points of its class lead to `land`: itself as a rule; or to others that are not known here.
    land = state
    spread = False
    if klass >= 0:
        spread = flags_of(automaton, state) & SPREAD != 0
        if not spread:
            land = landing(automaton, state, klass, register)
            if land < 0:
                land = state  # there is no room for another item
    itself = n == 1
    contexts = load_i64(automaton, H_FLAGS) & RECURSIVE != 0
    if itself:
        # Not where the path may lead away in the middle of a run. In a context no byte of the set does.
        flags = flags_of(automaton, load_i64(states, 0))
        itself = not (counter and flags & FINAL) and (contexts or flags & HAS_CALLS == 0)
    store_i64(loop, L_SELF, 1 if itself else 0)
    limit = NO_LIMIT
    exact = 0
    # The count matters only where one of the states ends an item, so that another may begin.
    counts = klass >= 0 and (state == start or flags_of(automaton, land) & FINAL != 0)
    for i in range(n):
        counts = counts or flags_of(automaton, load_i64(states, i)) & FINAL != 0
    if counter and maximum >= 0 and counts:
        limit = maximum - 1 - register
        # Items of one code point each: a longer string is dead, and before the first item there is room for one more.
        exact = load_u8(load_i64(grammar, G_SINGLE), frame)
        if exact == 0 and (klass < 0 or ends_item(automaton, land, start)):
            exact = 1
            for i in range(n):
                if not ends_item(automaton, load_i64(states, i), start):
                    exact = 0
        if exact == 1 and state == start:
            limit += 1
        # What may as well follow the frame is not dead.
        for word in range(4):
            store_i64(loop, L_LEAVE + word, 0)
        add_state_bytes(grammar, automaton, state, register, loop + 8 * L_LEAVE)
        for half in range(2):
            if (load_i64(loop, L_STAY + half) | load_i64(loop, L_LEAVE + half)) & load_i64(follow, half) != 0:
                exact = 0
        if load_i64(follow, 2) | load_i64(follow, 3) != 0:
            exact = 0
    store_i64(loop, L_LIMIT, limit)
    store_i64(loop, L_EXACT, exact)
    # What may follow the frame leaves the loop only where a state of it may return: `_leading_away` knows.
    leave = loop + 8 * L_LEAVE
    for word in range(4):
        store_i64(leave, word, 0)
    away = False
    _add_work(loop, (n + 2) * load_i64(kinds, KIND_COUNT))
    for i in range(n + 1):
        member = load_i64(states, i) if i < n else land
        again = restart_of(automaton, member, register)
        add_state_bytes(grammar, automaton, member, register, leave)
        if i == 0 and contexts and load_i64(loop, L_AGAIN) == 0:
            continue  # what happens before the first byte is known
        for turn in range(3):
            a, b, c, d = _leading_away(automaton, member, again, follow, turn)
            store_i64(leave, 0, load_i64(leave, 0) | a)
            store_i64(leave, 1, load_i64(leave, 1) | b)
            store_i64(leave, 2, load_i64(leave, 2) | c)
            store_i64(leave, 3, load_i64(leave, 3) | d)
            away = away or (load_i64(loop, L_STAY) & a) | (load_i64(loop, L_STAY + 1) & b) != 0
            away = away or (load_i64(loop, L_TEXT) != 0 and c | d != 0)
    if spread:
        add_spread_bytes(grammar, state, follow, loop)
    if away:
        # A byte of the set may lead away as well: from there on any byte of the grammar may be alive.
        for word in range(4):
            store_i64(leave, word, load_i64(leave, word) | load_i64(load_i64(grammar, G_LIVE), word))
    store_i64(leave, 0, load_i64(leave, 0) & ~load_i64(loop, L_STAY))
    store_i64(leave, 1, load_i64(leave, 1) & ~load_i64(loop, L_STAY + 1))
    if load_i64(loop, L_TEXT) != 0 or (
        klass >= 0
        and is_exact(grammar, automaton, state, klass, loop)
        and is_exact(grammar, automaton, land, klass, loop)
        and (flags_of(automaton, state) | flags_of(automaton, land)) & HAS_CALLS == 0
        and load_i64(follow, 2) | load_i64(follow, 3) == 0
    ):
        # Tokens of other code points above U+007F are dead, those of these were settled.
        store_i64(leave, 2, 0)
        store_i64(leave, 3, 0)
    return True


@helper
def _find_after(grammar, automaton, vocabulary, state, register, follow, loop, wide, instead, memo):  # type: ignore[no-untyped-def]
    """`find_loop` for the state after a first byte, into the second half of `loop`; False where not wide.

    It is the state after a space, as half of all tokens begin with one, or else the one to which most bytes that leave
    the loop lead: all that lead there are L_FIRST. With `instead` it is to take the place of the loop: most of its
    bytes have to lead there.
    """
    # What may follow the frame counts only where it may return; neither that nor calls in a context, where it is known
    # what happens before the first byte.
    contexts = load_i64(automaton, H_FLAGS) & RECURSIVE != 0
    returns = 0
    if flags_of(automaton, state) & FINAL and not contexts:
        returns = -1
    start = restart_of(automaton, state, register)
    calls = flags_of(automaton, state) & HAS_CALLS != 0 or (start >= 0 and flags_of(automaton, start) & HAS_CALLS != 0)
    if calls and not contexts:
        return False
    kinds = load_i64(grammar, G_KINDS)
    after = loop + 8 * LOOP_WORDS
    for attempt in range(2):
        target, reached = -1, register
        low, high = 0, 0
        most = 0
        # Turn 0 chooses the state, turn 1 finds all bytes that lead to it.
        for turn in range(2):
            _add_work(after, 2 * load_i64(kinds, KIND_COUNT))
            for kind in range(load_i64(kinds, KIND_COUNT)):
                members = kinds + 8 * (KIND_BYTES + 4 * kind)
                more_low = load_i64(members, 0) & ~(load_i64(follow, 0) & returns)
                more_high = load_i64(members, 1) & ~(load_i64(follow, 1) & returns)
                if wide:
                    more_low &= ~load_i64(loop, L_STAY)
                    more_high &= ~load_i64(loop, L_STAY + 1)
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
                    n = count_bits(more_low) + count_bits(more_high)
                    if attempt == 0:
                        n = (more_low >> 0x20) & 1
                    if n > most:
                        most = n
                        target, reached = one, own
                elif one == target and own == reached:
                    low |= more_low
                    high |= more_high
        space = (low >> 0x20) & 1 != 0
        if count_bits(low) + count_bits(high) > MAX_FIRST:
            low, high = low & (1 << 0x20), 0
        if instead:
            own_low, own_high = load_i64(loop, L_STAY), load_i64(loop, L_STAY + 1)
            common = count_bits(low & own_low) + count_bits(high & own_high)
            if 2 * common <= count_bits(own_low) + count_bits(own_high):
                continue
        if low | high == 0 or not find_loop(
            grammar, automaton, vocabulary, target, reached, follow, after, False, 1, memo
        ):
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
def find_loops(grammar, automaton, vocabulary, state, register, follow, loop, memo):  # type: ignore[no-untyped-def]
    """`find_loop` for a head, and for the state after a first byte, as a space begins half of all tokens.

    `follow`: 4 words, the bytes that may come next when the head's frame has returned. `memo`: see `begin_finding`. It
    looks at FOUND_AT_ONCE byte edges, about, and is interrupted then (MEMO_UNFINISHED), to be taken up again.
    """
    take_up(memo)
    wide = find_loop(grammar, automaton, vocabulary, state, register, follow, loop, False, 0, memo)
    if load_i64(memo, MEMO_UNFINISHED) != 0:
        return False
    after = False
    klass = load_i64(loop, L_CLASS)
    # Of a class that most tokens are made of no more can be settled, whatever a first byte leads to, unless that is the
    # space.
    most = wide and klass >= 0 and 2 * load_i32(load_i64(grammar, G_LOOP_SIZE), klass) > load_i64(vocabulary, V_RANKS)
    most = most and (load_i64(loop, L_LEAVE) >> 0x20) & 1 == 0
    if not most and (not wide or load_i64(loop, L_LEAVE) | load_i64(loop, L_LEAVE + 1) != 0):
        after = _find_after(grammar, automaton, vocabulary, state, register, follow, loop, wide, False, memo)
    if after and wide:
        other = loop + 8 * LOOP_WORDS
        own_weight = _weight(load_i64(loop, L_STAY), load_i64(loop, L_STAY + 1), load_i64(loop, L_TEXT) != 0)
        if own_weight < _weight(load_i64(other, L_STAY), load_i64(other, L_STAY + 1), load_i64(other, L_TEXT) != 0):
            # What most bytes lead to is wider than the set in which some of them would stay.
            calls = load_i64(memo, MEMO_CALL)
            wide = not _find_after(grammar, automaton, vocabulary, state, register, follow, loop, False, True, memo)
            if wide and load_i64(memo, MEMO_CALL) != calls:  # the second half has what was tried
                after = _find_after(grammar, automaton, vocabulary, state, register, follow, loop, wide, False, memo)
    if after and not wide:
        find_loop(grammar, automaton, vocabulary, state, register, follow, loop, True, 0, memo)
    store_i64(loop, L_AFTER, 1 if after else 0)
    return wide or after
