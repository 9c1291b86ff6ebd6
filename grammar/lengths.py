"""Fewest bytes of the strings of frames that call each other, and from each state to a final one."""

from __future__ import annotations

import numpy as np

from .._numba import allocating_helper, kernel
from .automaton import COUNTER
from .members import FAR


@allocating_helper
def _measure(edge_start, edge_low, edge_target, first_state, n, final, weight, distance):  # type: ignore[no-untyped-def]
    """Set `distance` to the least weight from each of a frame's `n` states to a final one; whether it has no cycle.

    Neighbouring edges that lead to one state with one weight are one edge.
    """
    begin = edge_start[first_state]
    kept = np.empty(edge_start[first_state + n] - begin, np.int32)
    kept_source = np.empty(len(kept), np.int32)
    back_start = np.zeros(n + 1, np.int64)
    waiting = np.zeros(n, np.int64)  # edges out of a state that are not known to be on no cycle
    total = 0
    for s in range(n):
        t = np.int32(-1)
        own = np.int64(-1)
        before = total
        for k in range(edge_start[first_state + s], edge_start[first_state + s + 1]):
            if edge_target[k] != t or weight[edge_low[k]] != own:
                t = edge_target[k]
                own = weight[edge_low[k]]
                back_start[t + 1] += 1
                kept[total] = k - begin
                kept_source[total] = s
                total += 1
        waiting[s] = total - before
    for s in range(n):
        back_start[s + 1] += back_start[s]
    place = back_start[:n].copy()
    source = np.empty(total, np.int32)
    cost = np.empty(total, np.int64)
    for i in range(total):
        k = begin + kept[i]
        t = edge_target[k]
        source[place[t]] = kept_source[i]
        cost[place[t]] = weight[edge_low[k]]
        place[t] += 1
    queue = np.empty(n + 1, np.int32)  # a ring: a state is in it at most once
    queued = np.zeros(n, np.uint8)
    head = 0
    size = 0
    for s in range(n):
        distance[first_state + s] = FAR
        if final[first_state + s]:
            distance[first_state + s] = 0
            queue[size] = s
            queued[s] = 1
            size += 1
    while size > 0:
        s = queue[head]
        head = (head + 1) % (n + 1)
        size -= 1
        queued[s] = 0
        for k in range(back_start[s], back_start[s + 1]):
            p = source[k]
            if distance[first_state + s] + cost[k] < distance[first_state + p]:
                distance[first_state + p] = distance[first_state + s] + cost[k]
                if not queued[p]:
                    queued[p] = 1
                    queue[(head + size) % (n + 1)] = p
                    size += 1
    removed = 0
    top = 0
    for s in range(n):
        if waiting[s] == 0:
            queue[top] = s
            top += 1
    while top > 0:
        top -= 1
        s = queue[top]
        removed += 1
        for k in range(back_start[s], back_start[s + 1]):
            p = source[k]
            waiting[p] -= 1
            if waiting[p] == 0:
                queue[top] = p
                top += 1
    return removed == n


@kernel(
    "boolean(int64[::1], int64[::1], int64[::1], int32[::1], int32[::1], uint8[::1], int32[::1], int32[::1], "
    "uint8[::1], int64[::1], uint8[::1], int64[::1], int64[::1])",
    allocates=True,
)
def frame_lengths(  # type: ignore[no-untyped-def]
    state_at,
    class_at,
    edge_start,
    edge_low,
    edge_target,
    final,
    class_of,
    callee,
    kind,
    minimum,
    fixed,
    length,
    distance,
):
    """Set `distance` and `length`, fewest bytes of a string by frame (not of the `fixed`); has the root no cycle?

    Frames may call each other: a least fixpoint from below the callees' lengths that are known already. A frame is
    looked at again where the length of one that it calls has changed.
    """
    n_frames = len(kind)
    stale = np.ones(n_frames, np.uint8)
    symbol_at = np.zeros(n_frames + 1, np.int64)
    for f in range(n_frames):
        symbol_at[f + 1] = symbol_at[f] + class_at[f + 1] - class_at[f] - 256
    caller_at = np.zeros(n_frames + 1, np.int64)
    for k in range(len(callee)):
        if callee[k] >= 0:
            caller_at[callee[k] + 1] += 1
    for f in range(n_frames):
        caller_at[f + 1] += caller_at[f]
    place = caller_at.copy()
    caller = np.empty(caller_at[n_frames], np.int32)
    for f in range(n_frames):
        for k in range(symbol_at[f], symbol_at[f + 1]):
            if callee[k] >= 0:
                caller[place[callee[k]]] = f
                place[callee[k]] += 1
    # Callees first, but where they call each other.
    order = np.empty(n_frames, np.int32)
    entered = np.zeros(n_frames, np.uint8)
    stack = np.empty(n_frames, np.int32)
    at = symbol_at.copy()
    count = 0
    for root in range(n_frames):
        top = 0
        if not entered[root]:
            entered[root] = 1
            stack[0] = root
            top = 1
        while top > 0:
            f = stack[top - 1]
            if at[f] == symbol_at[f + 1]:
                order[count] = f
                count += 1
                top -= 1
                continue
            other = callee[at[f]]
            at[f] += 1
            if other >= 0 and not entered[other]:
                entered[other] = 1
                stack[top] = other
                top += 1
    acyclic = False
    changed = True
    while changed:
        changed = False
        for i in range(n_frames):
            f = order[i]
            if not stale[f]:
                continue
            stale[f] = 0
            weight = np.ones(class_of[class_at[f + 1] - 1] + 1, np.int64)
            for k in range(symbol_at[f + 1] - symbol_at[f]):
                other = callee[symbol_at[f] + k]
                weight[class_of[class_at[f] + 256 + k]] = length[other] if other >= 0 else 0
            n = state_at[f + 1] - state_at[f]
            no_cycle = _measure(edge_start, edge_low, edge_target, state_at[f], n, final, weight, distance)
            if f == 0:
                acyclic = no_cycle
            # A counter's frame must have one item at least: it never matches the empty string.
            items = max(minimum[f], 1) if kind[f] == COUNTER else 1
            total = min(distance[state_at[f]] * items, FAR)
            if total < length[f] and not fixed[f]:
                length[f] = total
                changed = True
                for k in range(caller_at[f], caller_at[f + 1]):
                    stale[caller[k]] = 1
    return acyclic
