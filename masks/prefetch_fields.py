"""The memory of what is made ahead: of each batch, and of the thread that serves one or several in turn."""

from __future__ import annotations

#: Tokens that are followed from one row: at most so many, and as many are remembered for each place of a grammar.
SUCCESSORS = 4
#: Places of grammars whose next tokens are remembered; 72 bytes each.
PLACES = 1 << 12
#: Key, then (token, times) of each.
PLACE_WORDS = 1 + 2 * SUCCESSORS
#: Times are halved when one of them reaches this.
MOST_TIMES = 1 << 16

(
    P_BATCH,  # address of the batch's block
    P_LANES,  # address of lanes of its own, as in B_LANES
    P_PLAN_ROWS,  # address of the kernel step.plan_rows
    P_ADVANCE_ROWS,  # address of the kernel advance.advance_rows
    P_SLICE,  # fuel between two looks at Q_STOP
    P_EPOCH,  # pool epoch of the plan whose masks are in use meanwhile
    P_ROWS,  # rows of that plan
    P_SLOTS,  # int32[slots] their slots
    P_MASKS,  # int32[slots] their mask ids
    P_STATUS,  # uint8[slots] their status
    P_LEARN_FROM,  # row with which the next counting of tokens begins
    P_OPEN,  # uint8[slots] 1: the row has tokens to follow
    P_WAITING,  # slots that wait for their masks
    P_WAIT_SLOTS,  # int32[slots] which
    P_ONE,  # int32[1] scratch: the slot that is followed
    P_OUT_MASKS,  # int32[slots] scratch for plan_rows
    P_OUT_END,  # uint32[slots]
    P_OUT_STATUS,  # uint8[slots]
    P_TOKEN,  # int32[SUCCESSORS] scratch: tokens to follow
    P_KEPT,  # int64[COUNTERS] the batch's counters, which are those of steps
    P_PLACES,  # int64[PLACES][PLACE_WORDS]
    P_MADE,  # int32[slots][SUCCESSORS] tokens that lead to masks made ahead; -1
    P_MADE_AT,  # int64[slots] tokens that the slot had then
    P_DONE,  # int64[slots] bit i: the i-th of its tokens to follow is done with
    P_NEXT,  # int64[slots] which of them comes next
    P_EFFORT,  # int64[slots] work after which one is set aside
    P_SERVED,  # float64[slots + 1] by slot, then of all that wait: how long it has been served, see `_choose`
    P_NOW,  # float64[1] the same of whoever was served last
    P_SPENT,  # int64[slots] work for tokens of the slot's sequence that had not been chosen
    P_EXPECT,  # int64[slots] 1 + position at which a mask made ahead is the row's, 0: none
    P_COUNTERS,  # int64[PREFETCH_COUNTERS]
    P_FIELDS,
) = range(32)
(
    Q_COUNT,  # batches that are served
    Q_MEMBERS,  # int64[Q_COUNT] addresses of their P_ blocks
    Q_WEIGHTS,  # float64[Q_COUNT] their weights; 0: not served in this run
    Q_SERVED,  # float64[Q_COUNT] as P_SERVED
    Q_NOW,  # float64[1]
    Q_ACTIVE,  # int64[Q_COUNT] 1: something is left to do for it
    Q_FUEL,  # fuel of one run
    Q_STOP,  # 1: stop after this slice
    Q_FIELDS,
) = range(9)
(
    PREFETCH_RUNS,
    PREFETCH_WORK,  # units of fuel spent
    PREFETCH_WAITED,  # of these for rows that waited
    PREFETCH_FINISHED,  # masks finished that rows waited for
    PREFETCH_AHEAD,  # masks made for a token that had not been chosen
    PREFETCH_TRIED,  # tokens followed
    PREFETCH_ASIDE,  # times that one was left unfinished, as it took more than others or the run ended
    PREFETCH_HITS,  # rows that a plan found READY by one of those masks
    PREFETCH_MISSES,  # rows that a plan left PENDING
    PREFETCH_WASTED,  # masks made for a token that was not chosen
    PREFETCH_FULL,  # runs that ended because the pool was full
    PREFETCH_COUNTERS,
) = range(12)
