"""What the register of a frame of members allows (`grammar.automaton` says what it is).

A condition can still be met where no forbidden member was there and there is room for those that lack; any other member
may then come as long as there is room for one more. So nothing is allowed that could not be brought to an end.
"""

from __future__ import annotations

from .._numba import helper
from ..grammar.automaton import FINAL, GUARDED, H_SECTIONS, SECTION_INDEX
from ..grammar.members import ANY, ANY_KEY, BY_BITS
from .memory import count_bits, load_i32, load_i64, load_u8, section

_AT = {name: H_SECTIONS + i for name, i in SECTION_INDEX.items()}
_STATE_FLAGS, _STATE_FRAME, _STATE_KEYS = _AT["state_flags"], _AT["state_frame"], _AT["state_keys"]
_SHIFT, _MOST = _AT["frame_minimum"], _AT["frame_maximum"]
_STATE_COSTS, _FRAME_COSTS, _MEMBER_COST = _AT["state_costs"], _AT["frame_costs"], _AT["member_cost"]
AT_OPERATION_START, AT_OPERATION_BIT = _AT["operation_start"], _AT["operation_bit"]
AT_OPERATION_TARGET = _AT["operation_target"]
_TERM_START, _REQUIRED, _FORBIDDEN = _AT["term_start"], _AT["term_required"], _AT["term_forbidden"]
_MINIMUM, _MAXIMUM = _AT["term_minimum"], _AT["term_maximum"]
_GROUP_START, _GROUP_MASK = _AT["group_start"], _AT["group_mask"]


#: More bytes than any list has.
NEVER_ENDS = 1 << 31


@helper
def _seen(automaton, frame, register):  # type: ignore[no-untyped-def]
    """The members that were there, as bits, and their number as far as it is counted."""
    shift = load_i64(section(automaton, _SHIFT), frame)
    bits, count = register, 0
    if load_i64(section(automaton, _MOST), frame) == BY_BITS:
        count = count_bits(bits)
    else:
        bits, count = register & ((1 << shift) - 1), register >> shift
    return bits, count


@helper
def _term(automaton, at, term):  # type: ignore[no-untyped-def]
    return load_i64(section(automaton, at), term)


@helper
def _lacking(automaton, term, bits):  # type: ignore[no-untyped-def]
    """The members that a condition lacks, as bits, and of how many at least one each: required ones, and groups."""
    found = _term(automaton, _REQUIRED, term) & ~bits
    number = count_bits(found)
    starts = section(automaton, _GROUP_START)
    for group in range(load_i32(starts, term), load_i32(starts, term + 1)):
        mask = _term(automaton, _GROUP_MASK, group)
        if mask & bits == 0:
            found |= mask
            number += 1
    return found, number


@helper
def is_met(automaton, frame, register):  # type: ignore[no-untyped-def]
    """May the list of members end?"""
    bits, count = _seen(automaton, frame, register)
    starts = section(automaton, _TERM_START)
    for term in range(load_i32(starts, frame), load_i32(starts, frame + 1)):
        if (
            _lacking(automaton, term, bits)[1] == 0
            and _term(automaton, _FORBIDDEN, term) & bits == 0
            and _term(automaton, _MINIMUM, term) <= count <= _term(automaton, _MAXIMUM, term)
        ):
            return True
    return False


@helper
def after_member(automaton, frame, register, bit):  # type: ignore[no-untyped-def]
    """Whether a member with this bit (ANY: with none) may begin, and the register when it has."""
    bits, count = _seen(automaton, frame, register)
    most = load_i64(section(automaton, _MOST), frame)
    count += 1
    if bit != ANY:
        if (bits >> bit) & 1 != 0:
            return False, register
        bits |= 1 << bit
    after = bits
    if most != BY_BITS:
        count = min(count, most)
        after |= count << load_i64(section(automaton, _SHIFT), frame)
    starts = section(automaton, _TERM_START)
    for term in range(load_i32(starts, frame), load_i32(starts, frame + 1)):
        number = count + _lacking(automaton, term, bits)[1]
        if _term(automaton, _FORBIDDEN, term) & bits == 0 and number <= _term(automaton, _MAXIMUM, term):
            return True, after
    return False, register


@helper
def may_go_on(automaton, state, register):  # type: ignore[no-untyped-def]
    """Is one of the members that may begin next from `state` (GUARDED) allowed?"""
    frame = load_i32(section(automaton, _STATE_FRAME), state)
    bits, count = _seen(automaton, frame, register)
    fresh = load_i64(section(automaton, _STATE_KEYS), state) & ~bits
    starts = section(automaton, _TERM_START)
    for term in range(load_i32(starts, frame), load_i32(starts, frame + 1)):
        forbidden = _term(automaton, _FORBIDDEN, term)
        if forbidden & bits != 0:
            continue
        lacking, number = _lacking(automaton, term, bits)
        room = _term(automaton, _MAXIMUM, term) - count - number
        if (room > 0 and fresh & ~forbidden != 0) or (room == 0 and fresh & lacking != 0):
            return True
    return False


@helper
def _to_end(automaton, frame, register):  # type: ignore[no-untyped-def]
    """Fewest bytes of the members that a list lacks, after one."""
    shift = load_i64(section(automaton, _SHIFT), frame)
    bits, count = _seen(automaton, frame, register)
    costs = section(automaton, _MEMBER_COST) + 4 * load_i32(section(automaton, _FRAME_COSTS), frame)
    starts = section(automaton, _TERM_START)
    best = NEVER_ENDS
    for term in range(load_i32(starts, frame), load_i32(starts, frame + 1)):
        required, forbidden = _term(automaton, _REQUIRED, term), _term(automaton, _FORBIDDEN, term)
        lacking = required & ~bits
        number = count + _lacking(automaton, term, bits)[1]
        if forbidden & bits != 0 or number > _term(automaton, _MAXIMUM, term):
            continue
        total = 0
        for bit in range(shift):
            if (lacking >> bit) & 1 != 0:
                total += load_i32(costs, bit)
        used = bits | required | forbidden
        groups = section(automaton, _GROUP_START)
        for group in range(load_i32(groups, term), load_i32(groups, term + 1)):
            mask = _term(automaton, _GROUP_MASK, group)
            if mask & bits == 0:
                cheapest, chosen = NEVER_ENDS, shift
                for bit in range(shift):
                    if (mask >> bit) & 1 != 0 and load_i32(costs, bit) < cheapest:
                        cheapest, chosen = load_i32(costs, bit), bit
                used |= 1 << chosen
                total += cheapest
        while number < _term(automaton, _MINIMUM, term) and total < best:
            cheapest, chosen = load_i32(costs, shift), shift
            for bit in range(shift):
                if (used >> bit) & 1 == 0 and load_i32(costs, bit) < cheapest:
                    cheapest, chosen = load_i32(costs, bit), bit
            if chosen < shift:
                used |= 1 << chosen
            total += cheapest
            number += 1
        best = min(best, total)
    return best


@helper
def members_distance(automaton, state, register, to_final):  # type: ignore[no-untyped-def]
    """Fewest bytes until the list can end; `to_final`: until it is in a final state."""
    frame = load_i32(section(automaton, _STATE_FRAME), state)
    row = load_i32(section(automaton, _STATE_COSTS), state)
    if row < 0:
        return to_final + _to_end(automaton, frame, register)
    shift = load_i64(section(automaton, _SHIFT), frame)
    best = NEVER_ENDS
    for bit in range(shift + 1):
        cost = load_i32(section(automaton, _MEMBER_COST), row + bit)
        if cost < best:
            allowed, after = after_member(automaton, frame, register, bit if bit < shift else ANY)
            if allowed:
                best = min(best, cost + _to_end(automaton, frame, after))
    return best


@helper
def may_add_any(automaton, frame, register):  # type: ignore[no-untyped-def]
    """May a member without a bit come next, and so whatever may begin one?"""
    bits, count = _seen(automaton, frame, register)
    starts = section(automaton, _TERM_START)
    for term in range(load_i32(starts, frame), load_i32(starts, frame + 1)):
        number = count + _lacking(automaton, term, bits)[1]
        if _term(automaton, _FORBIDDEN, term) & bits == 0 and number < _term(automaton, _MAXIMUM, term):
            return True
    return False


@helper
def goes_on_with_any(automaton, state, register):  # type: ignore[no-untyped-def]
    """Is what may come next from `state` a member without a bit, and one allowed?"""
    frame = load_i32(section(automaton, _STATE_FRAME), state)
    return (
        load_i64(section(automaton, _MOST), frame) != BY_BITS
        and (load_i64(section(automaton, _STATE_KEYS), state) >> ANY_KEY) & 1 != 0
        and may_add_any(automaton, frame, register)
    )


@helper
def asks(automaton, state):  # type: ignore[no-untyped-def]
    """Does it depend on the register whether a head may come to `state`?"""
    return load_u8(section(automaton, _STATE_FLAGS), state) & (GUARDED | FINAL) == GUARDED


@helper
def is_dead_end(automaton, state, register):  # type: ignore[no-untyped-def]
    """Can no head come to `state` with this register?"""
    return asks(automaton, state) and not may_go_on(automaton, state, register)
