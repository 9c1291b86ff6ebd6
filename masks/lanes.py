"""Who is served when masks are wanting: two lanes, each with an unfinished mask of its own and half of the fuel.

The lane of the oldest works for one row until its mask is there: the one whose waiting time, times its share, is the
largest. With equal shares rows are served in the order in which they began to wait, and no newcomer passes a waiting
row; with others, the times that rows wait are in the inverse proportion of their shares in the long run. The lane of
the cheapest works for the row of which least work is known not to suffice, relative to its share, and gives a mask up
that takes more than twice that: a row that needs little never waits behind one that needs much. Work that was given up
is at most as much as the lane's next try at the same row. Both lanes share what they finish.
"""

from __future__ import annotations

from .._numba import helper
from .layout import (
    B_ADVANCE_TOKEN,
    B_BLOCKED,
    B_EFFORT,
    B_FINISHED,
    B_JOB,
    B_LANES,
    B_LOOKING,
    B_OTHER_JOB,
    B_PAIRS,
    B_PLANS,
    B_POSITION,
    B_ROW_OF,
    B_SHARE,
    B_VISIT,
    B_WAITING,
    IDLE,
    J_GRAMMAR,
    J_KEY_HIGH,
    J_KEY_LOW,
    J_MOST,
    J_POSITION,
    J_SLOT,
    J_STAGE,
    J_TAKEN,
    LANE_CHEAPEST,
    LANE_FIELDS,
    LANE_LOOK,
    LANE_OF,
    LANE_OLDEST,
    PENDING,
    ROW_BITS,
    VISIT_LOW,
)
from .memory import load_f64, load_i32, load_i64, load_u8, store_i64

#: Place of B_VISIT among a lane's fields; the first of them are those of the job.
LANE_OF_VISIT = LANE_OF.index(B_VISIT)
JOB_FIELDS = LANE_OF.index(B_PAIRS)
#: Units of work that the lane of the cheapest tries a row for at first; twice as many at each further try.
FIRST_EFFORT = 1024
#: The least share that counts.
LEAST_SHARE = 2.0**-20


@helper
def switch_lane(batch, lane):  # type: ignore[no-untyped-def]
    """Let the block's fields of jobs and visits be those of this lane."""
    lanes = load_i64(batch, B_LANES)
    own = lanes + 8 * LANE_FIELDS * lane
    for i in range(LANE_FIELDS):
        store_i64(batch, LANE_OF[i], load_i64(own, i))
    # The job is the first of the fields.
    other = LANE_CHEAPEST if lane == LANE_OLDEST else LANE_OLDEST
    store_i64(batch, B_OTHER_JOB, load_i64(lanes, LANE_FIELDS * other))
    store_i64(batch, B_LOOKING, 1 if lane == LANE_LOOK else 0)


@helper
def share_of(batch, slot):  # type: ignore[no-untyped-def]
    """The slot's share of the fuel, above 0."""
    return max(load_f64(load_i64(batch, B_SHARE), slot), LEAST_SHARE)


@helper
def row_of(batch, slot):  # type: ignore[no-untyped-def]
    """The slot's row in the plan that is being made, or -1."""
    place = load_i64(load_i64(batch, B_ROW_OF), slot)
    return place & ((1 << ROW_BITS) - 1) if place >> ROW_BITS == load_i64(batch, B_PLANS) else -1


@helper
def _in_token(batch, slot):  # type: ignore[no-untyped-def]
    """Is the slot in the middle of a token, so that its mask is another one?"""
    return load_i32(load_i64(batch, B_ADVANCE_TOKEN), slot) >= 0


@helper
def _owner(batch, lane, status):  # type: ignore[no-untyped-def]
    """Row that the lane works for, if it still waits in the same place and may go on; else -1, and the lane is free."""
    lanes = load_i64(batch, B_LANES)
    job = load_i64(lanes, LANE_FIELDS * lane)
    slot = load_i64(job, J_SLOT)
    if slot < 0 or load_i64(load_i64(batch, B_POSITION), slot) != load_i64(job, J_POSITION):
        return -1
    row = row_of(batch, slot)
    if row < 0 or load_u8(status, row) != PENDING or is_blocked(batch, slot) or _in_token(batch, slot):
        return -1
    most = load_i64(job, J_MOST)
    if most > 0:
        if load_i64(load_i64(lanes, LANE_FIELDS * LANE_OLDEST), J_SLOT) == slot:
            return -1
        if load_i64(job, J_TAKEN) >= most:
            store_i64(load_i64(batch, B_EFFORT), slot, most)
            return -1
    return row


@helper
def is_blocked(batch, slot):  # type: ignore[no-untyped-def]
    """Is the slot's mask the one that the other lane is at, or can nothing be done for it in this plan?"""
    return load_i64(load_i64(batch, B_BLOCKED), slot) == load_i64(batch, B_FINISHED)


@helper
def block_slot(batch, slot):  # type: ignore[no-untyped-def]
    """Leave the slot alone until a lane has finished something, or to the next plan."""
    store_i64(load_i64(batch, B_BLOCKED), slot, load_i64(batch, B_FINISHED))


@helper
def choose_row(batch, slots, rows, status, lane):  # type: ignore[no-untyped-def]
    """The row that the lane works for next, -1: there is none. The lane is made its own."""
    row = _owner(batch, lane, status)
    if row >= 0:
        return row
    lanes = load_i64(batch, B_LANES)
    busy = -1
    if lane == LANE_CHEAPEST:
        busy = load_i64(load_i64(lanes, LANE_FIELDS * LANE_OLDEST), J_SLOT)
    waiting, efforts = load_i64(batch, B_WAITING), load_i64(batch, B_EFFORT)
    now = load_i64(batch, B_PLANS) + 1
    best = 0.0
    chosen = -1
    for row in range(rows):
        if load_u8(status, row) != PENDING:
            continue
        slot = load_i32(slots, row)
        if slot == busy or is_blocked(batch, slot) or _in_token(batch, slot):
            continue
        if lane == LANE_OLDEST:
            value = (now - load_i64(waiting, slot)) * share_of(batch, slot)
        else:
            value = share_of(batch, slot) / (load_i64(efforts, slot) + FIRST_EFFORT)
        if chosen < 0 or value > best:
            best, chosen = value, row
    if chosen >= 0:
        slot = load_i32(slots, chosen)
        job = load_i64(lanes, LANE_FIELDS * lane)
        store_i64(job, J_STAGE, IDLE)
        store_i64(job, J_SLOT, slot)
        store_i64(job, J_POSITION, load_i64(load_i64(batch, B_POSITION), slot))
        store_i64(job, J_TAKEN, 0)
        store_i64(job, J_MOST, 0 if lane == LANE_OLDEST else max(2 * load_i64(efforts, slot), FIRST_EFFORT))
        visit = load_i64(lanes, LANE_FIELDS * lane + LANE_OF_VISIT)
        if visit != 0:  # there are recursive grammars
            store_i64(visit, VISIT_LOW, 0)
    return chosen


@helper
def _take_job(batch):  # type: ignore[no-untyped-def]
    """Let the lane of the oldest have what the other lane has done; that one is free then."""
    lanes = load_i64(batch, B_LANES)
    own, other = load_i64(batch, B_JOB), load_i64(batch, B_OTHER_JOB)
    for word in range(J_SLOT, J_MOST + 1):
        kept = load_i64(own, word)
        store_i64(own, word, load_i64(other, word))
        store_i64(other, word, kept)
    for i in range(JOB_FIELDS):
        address = load_i64(lanes, LANE_FIELDS * LANE_CHEAPEST + i)
        store_i64(lanes, LANE_FIELDS * LANE_CHEAPEST + i, load_i64(lanes, LANE_FIELDS * LANE_OLDEST + i))
        store_i64(lanes, LANE_FIELDS * LANE_OLDEST + i, address)
        store_i64(batch, LANE_OF[i], address)
    store_i64(batch, B_OTHER_JOB, own)
    store_i64(own, J_STAGE, IDLE)


@helper
def may_run(batch, low, high):  # type: ignore[no-untyped-def]
    """May the lane's job be the one of this key: is it, or does it begin? Another one that the lane had is given up.

    Not in a look. If the other lane is at it, the lane of the oldest takes it over, and that of the cheapest leaves it.
    """
    if load_i64(batch, B_LOOKING) != 0:
        return False
    other = load_i64(batch, B_OTHER_JOB)
    if load_i64(other, J_STAGE) != IDLE and load_i64(other, J_KEY_LOW) == low and load_i64(other, J_KEY_HIGH) == high:
        if load_i64(load_i64(batch, B_JOB), J_MOST) > 0:
            block_slot(batch, load_i64(load_i64(batch, B_JOB), J_SLOT))
            return False
        _take_job(batch)
    job = load_i64(batch, B_JOB)
    if load_i64(job, J_KEY_LOW) != low or load_i64(job, J_KEY_HIGH) != high:
        store_i64(job, J_STAGE, IDLE)
    return True


@helper
def drop_job(batch, grammar, slot):  # type: ignore[no-untyped-def]
    """Forget unfinished masks of this grammar (address; 0: of any), or of this slot (-1: of any)."""
    lanes = load_i64(batch, B_LANES)
    for lane in range(LANE_LOOK):
        job = load_i64(lanes, LANE_FIELDS * lane)
        if (grammar == 0 or load_i64(job, J_GRAMMAR) == grammar) and (slot < 0 or load_i64(job, J_SLOT) == slot):
            store_i64(job, J_STAGE, IDLE)
            store_i64(job, J_SLOT, -1)
