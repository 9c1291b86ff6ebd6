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
    L_REACHED,
    L_SELF,
    L_STATES,
    L_STAY,
    L_TEXT,
    LEAVE_AWAY,
    LEAVE_BYTES,
    LEAVE_STATE,
    LEAVE_WORDS,
    LOOP_WORDS,
    MAX_LOOP_STATES,
    MEMO_AWAY,
    MEMO_CALL,
    MEMO_LEAVES,
    MEMO_LEFT,
    MEMO_UNFINISHED,
    NO_LIMIT,
)
from .loop_class import add_spread_bytes, ends_item, has_ascii, is_exact, landing
from .loop_sets import ALL, add_work, leading_away, set_worth, spend, take_up, try_states
from .machine import (
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
from .stays import after_byte, local_step, text_stays
from .trie import V_MAX_LENGTH, V_RANKS

#: A set of fewer ASCII bytes is not worth the bitmaps: walking it is cheaper.
MIN_WIDE_BYTES = 12
#: First bytes that lead to one state, at most: their rows are memory traffic, a few for an alphabet.
MAX_FIRST = 128
#: What takes the place of a loop must be worth so many bytes more.
WIDER_BYTES = 8
#: Less than any set is worth: it stands beside the loop.
ANY_WORTH = -(1 << 40)
#: States, at most, beside a class of which three in four tokens are made: more settle few more tokens than it does.
#: With 24 the work of the masks at the beginning of a name in an object is a fifth to a fourth more.
CLASS_STATES = 4
#: "e", "0", the space and the comma, from the lowest byte on.
_BYTES_OF_LOOPS = 0x2C203065
#: Nor is a class of which fewer tokens are made.
MIN_CLASS_TOKENS = 2048


@helper
def add_state_bytes(grammar, automaton, state, register, into, below):  # type: ignore[no-untyped-def]
    """OR the bytes that may come next in a state's own frame into the 4 words at `into`, which hold whole kinds.

    Kinds that have no byte below `below` are left out.
    """
    kinds = load_i64(grammar, G_KINDS)
    for kind in range(load_i64(kinds, KIND_COUNT)):
        byte = load_i64(kinds, KIND_FIRST + kind)
        if (
            byte < below
            and (load_i64(into, byte >> 6) >> (byte & 63)) & 1 == 0
            and local_step(automaton, state, byte, register) >= 0
        ):
            for word in range(4):
                more = load_i64(kinds, KIND_BYTES + 4 * kind + word)
                store_i64(into, word, load_i64(into, word) | more)


@helper
def add_first_bytes(grammar, automaton, state, register, loop, into):  # type: ignore[no-untyped-def]
    """`add_state_bytes` of a wide head, with all bytes above U+007F where it does not matter which are alive."""
    stays = load_i64(loop, L_STAY) | load_i64(loop, L_STAY + 1) | load_i64(loop, L_TEXT)
    if stays != 0 and load_i64(loop, L_LEAVE + 2) | load_i64(loop, L_LEAVE + 3) == 0:
        store_i64(into, 2, -1)
        store_i64(into, 3, -1)
        add_state_bytes(grammar, automaton, state, register, into, 128)
    else:
        add_state_bytes(grammar, automaton, state, register, into, 256)


@helper
def add_next_bytes(grammar, automaton, config, into):  # type: ignore[no-untyped-def]
    """OR the bytes that may come next in `config` (closed) into the 4 words at `into`, which hold whole kinds."""
    for i in range(load_i64(config, CONFIG_HEADS)):
        head = head_at(config, i)
        add_state_bytes(grammar, automaton, top_state(head), top_register(head), into, 256)


@helper
def _find_leaving(grammar, automaton, register, follow, loop, land, settled, memo):  # type: ignore[no-untyped-def]
    """Set L_LEAVE to what may come next in the states of the loop and in `land`, the state after a string of its class.

    Or to a part of it, where that is interrupted (MEMO_UNFINISHED): it goes on from the state in `memo` then.
    """
    number = load_i64(memo, MEMO_AWAY)
    store_i64(memo, MEMO_AWAY, number + 1)
    entry = memo + 8 * (MEMO_LEAVES + LEAVE_WORDS * number)
    states = loop + 8 * L_STATES
    n = load_i64(states, MAX_LOOP_STATES)
    leave = entry + 8 * LEAVE_BYTES
    kinds = load_i64(grammar, G_KINDS)
    i = load_i64(entry, LEAVE_STATE)
    while i <= n and load_i64(memo, MEMO_LEFT) > 0:
        member = load_i64(states, i) if i < n else land
        restart = restart_of(automaton, member, register)
        add_state_bytes(grammar, automaton, member, register, leave, 128 if settled else 256)
        # At the first state calls and returns are matters of other heads, unless it is come back to. What may follow
        # the frame leaves the loop only where a state of it may return: `leading_away` knows.
        first = i == 0 and load_i64(loop, L_AGAIN) == 0
        if i == n and load_i64(loop, L_CLASS) < 0:
            first = True
        for turn in range(0 if first else 3):
            a, b, c, d = leading_away(automaton, member, restart, follow, turn)
            store_i64(leave, 0, load_i64(leave, 0) | a)
            store_i64(leave, 1, load_i64(leave, 1) | b)
            store_i64(leave, 2, load_i64(leave, 2) | c)
            store_i64(leave, 3, load_i64(leave, 3) | d)
            away = (load_i64(loop, L_STAY) & a) | (load_i64(loop, L_STAY + 1) & b)
            if away != 0 or (load_i64(loop, L_TEXT) != 0 and c | d != 0):
                store_i64(entry, LEAVE_AWAY, 1)
        i += 1
        add_work(loop, load_i64(kinds, KIND_COUNT))
        spend(memo, load_i64(kinds, KIND_COUNT))
    store_i64(entry, LEAVE_STATE, i)
    if i <= n:
        store_i64(memo, MEMO_UNFINISHED, 1)
    for word in range(4):
        more = load_i64(leave, word)
        if load_i64(entry, LEAVE_AWAY) != 0:
            # A byte of the set may lead away as well: from there on any byte of the grammar may be alive.
            more |= load_i64(load_i64(grammar, G_LIVE), word)
        store_i64(loop, L_LEAVE + word, more)


@helper
def find_loop(grammar, automaton, vocabulary, state, register, follow, loop, empty, again, memo):  # type: ignore[no-untyped-def]
    """Fill the words at `loop` for a head, with `empty` for one that stays nowhere. Returns whether it is wide.

    `again`: 1 where bytes were read before `state`, so that calls of it and returns may follow at once.
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
    # Beside a class a small set counts as well.
    least = MIN_WIDE_BYTES if klass < 0 else 0
    most = MAX_LOOP_STATES
    if klass >= 0 and 4 * load_i32(load_i64(grammar, G_LOOP_SIZE), klass) > 3 * load_i64(vocabulary, V_RANKS):
        most = CLASS_STATES
    # Where some bytes lead to states that narrow the set, a state that only loops on itself may be wide. In one place,
    # as each would be compiled with a copy of it.
    for attempt in range(6):
        if empty or weight >= MIN_WIDE_BYTES:
            break
        second, only = -1, most
        if 0 < attempt < 5:
            second, only = local_step(automaton, state, (_BYTES_OF_LOOPS >> 8 * (attempt - 1)) & 255, register), 1
            if second < 0 or flags_of(automaton, second) & (GUARDED | HAS_OPERATIONS) != 0:
                continue
        elif near == (attempt == 0):
            continue
        weight = try_states(
            automaton, vocabulary, kinds, loop, state, second, only, register, follow, memo, least, again
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
    if itself:
        # Not where the path may lead away in the middle of a run. In a context no byte of the set does.
        flags = flags_of(automaton, load_i64(states, 0))
        contexts = load_i64(automaton, H_FLAGS) & RECURSIVE != 0
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
        add_state_bytes(grammar, automaton, state, register, loop + 8 * L_LEAVE, 128)
        for half in range(2):
            if (load_i64(loop, L_STAY + half) | load_i64(loop, L_LEAVE + half)) & load_i64(follow, half) != 0:
                exact = 0
        if load_i64(follow, 2) | load_i64(follow, 3) != 0:
            exact = 0
    store_i64(loop, L_LIMIT, limit)
    store_i64(loop, L_EXACT, exact)
    # Tokens of other code points above U+007F are dead, those of these were settled.
    own_calls = flags_of(automaton, state) & HAS_CALLS != 0 and (land == state or load_i64(loop, L_AGAIN) != 0)
    settled = load_i64(loop, L_TEXT) != 0 or (
        klass >= 0
        and is_exact(grammar, automaton, state, klass, loop)
        and is_exact(grammar, automaton, land, klass, loop)
        and not own_calls
        and flags_of(automaton, land) & HAS_CALLS == 0
        and load_i64(follow, 2) | load_i64(follow, 3) == 0
    )
    _find_leaving(grammar, automaton, register, follow, loop, land, settled, memo)
    if spread:
        add_spread_bytes(grammar, state, follow, loop)
    leave = loop + 8 * L_LEAVE
    store_i64(leave, 0, load_i64(leave, 0) & ~load_i64(loop, L_STAY))
    store_i64(leave, 1, load_i64(leave, 1) & ~load_i64(loop, L_STAY + 1))
    if settled:
        store_i64(leave, 2, 0)
        store_i64(leave, 3, 0)
    return True


@helper
def _find_after(grammar, automaton, vocabulary, state, register, follow, loop, wide, instead, memo):  # type: ignore[no-untyped-def]
    """`find_loop` for the state after a first byte, into the second half of `loop`; False where not wide.

    It is the state after a space, as half of all tokens begin with one, or else the one to which most bytes that leave
    the loop lead: all that lead there are L_FIRST. With `instead` it is to take the place of the loop: most of its
    bytes have to lead there, and it has to be worth that much.
    """
    start = restart_of(automaton, state, register)
    kinds = load_i64(grammar, G_KINDS)
    after = loop + 8 * LOOP_WORDS
    for attempt in range(2):
        target, reached = -1, register
        low, high = 0, 0
        most = 0
        # Turn 0 chooses the state, turn 1 finds all bytes that lead to it.
        for turn in range(2):
            add_work(after, 2 * load_i64(kinds, KIND_COUNT))
            for kind in range(load_i64(kinds, KIND_COUNT)):
                members = kinds + 8 * (KIND_BYTES + 4 * kind)
                more_low, more_high = load_i64(members, 0), load_i64(members, 1)
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
        if instead > ANY_WORTH:
            own_low, own_high = load_i64(loop, L_STAY), load_i64(loop, L_STAY + 1)
            common = count_bits(low & own_low) + count_bits(high & own_high)
            if 2 * common <= count_bits(own_low) + count_bits(own_high):
                continue
        if low | high == 0 or not find_loop(
            grammar, automaton, vocabulary, target, reached, follow, after, False, 1, memo
        ):
            continue
        if set_worth(after) < instead:
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
        store_i64(after, L_REACHED, reached)
        text = (
            load_i64(after, L_TEXT) != 0
            and load_i64(memo, MEMO_UNFINISHED) == 0
            and start < 0
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
    beside = wide and klass >= 0 and load_i64(loop, L_TEXT) == 0
    # Of a class that most tokens are made of a first byte outside its set settles no more, unless that is the space and
    # not of the class. Nor does what may take its place settle as many.
    most = wide and klass >= 0 and 2 * load_i32(load_i64(grammar, G_LOOP_SIZE), klass) > load_i64(vocabulary, V_RANKS)
    if most and (load_i64(loop, L_LEAVE) >> 0x20) & 1 != 0:
        most = has_ascii(automaton, klass, 1 << 0x20, 0)
    leaves = load_i64(loop, L_LEAVE) | load_i64(loop, L_LEAVE + 1)
    calls = 0
    # Turn 0 is what follows a first byte beside the loop, turn 1 what takes its place, turn 2 as turn 0 again, as the
    # second half has what was tried. In one place, as each would be compiled with a copy of it.
    for turn in range(3):
        beside_it = wide
        instead = ANY_WORTH
        if turn == 0:
            needed = not most and (not wide or leaves != 0)
        elif turn == 1:
            # What most bytes lead to may be wider than the set in which some of them would stay. What follows a space
            # counts for half of all tokens, so it has to be wider than that.
            worth = set_worth(loop)
            instead = worth + WIDER_BYTES
            if after:
                instead = worth + 1 if set_worth(loop + 8 * LOOP_WORDS) > worth else ALL + 1
            needed = wide and leaves != 0 and load_i64(loop, L_SELF) == 0 and instead <= ALL and not most
            beside_it = False
            calls = load_i64(memo, MEMO_CALL)
        else:
            needed = after and wide and load_i64(memo, MEMO_CALL) != calls
        if not needed or load_i64(memo, MEMO_UNFINISHED) != 0:
            continue
        found = _find_after(grammar, automaton, vocabulary, state, register, follow, loop, beside_it, instead, memo)
        if turn != 1:
            after = found
        elif found:
            after = True
            wide = False
    if after and not wide:
        limit, exact = load_i64(loop, L_LIMIT), load_i64(loop, L_EXACT)
        find_loop(grammar, automaton, vocabulary, state, register, follow, loop, True, 0, memo)
        if beside:
            # A class goes on to tell of characters that are no such first bytes.
            store_i64(loop, L_CLASS, klass)
            store_i64(loop, L_LIMIT, limit)
            store_i64(loop, L_EXACT, exact)
    store_i64(loop, L_AFTER, 1 if after else 0)
    return wide or after
