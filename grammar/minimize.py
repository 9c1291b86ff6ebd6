"""Minimal partial DFAs with canonical numbering.

Partition refinement that splits blocks of states by where they lead, the smaller part of each being what others are
split by next: J. Hopcroft, "An n log n algorithm for minimizing states in a finite automaton" (1971), with the sets as
in A. Valmari, "Fast brief practical DFA minimization", Information Processing Letters 112 (2012). Of a state that leads
to another from many neighbouring classes only the ends of that run are looked at: the states that lead to a block from
class `c`, but not from `c - 1`, or the other way round, are a set that equivalent states are all in or all out of, and
of these sets all others are made. O(r log n) for n states and r runs, besides reading the edges.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._numba import allocating_helper, helper

Int32Array = npt.NDArray[np.int32]
Uint8Array = npt.NDArray[np.uint8]


@allocating_helper
def _identity(n: int) -> Int32Array:
    result = np.empty(n, np.int32)
    for i in range(n):
        result[i] = i
    return result


@helper
def _split(
    items: Int32Array,
    n_items: int,
    n_sets: int,
    elements: Int32Array,
    location: Int32Array,
    set_of: Int32Array,
    first: Int32Array,
    past: Int32Array,
    marked: Int32Array,
    touched: Int32Array,
) -> int:
    """Split every set of a partition into the part that is among `items` (distinct) and the rest.

    Set `s` holds ``elements[first[s] : past[s]]``; `location` is the inverse of `elements`. The smaller
    part becomes a new set; returns the new number of sets. `marked` is all 0 before and after; `touched`
    is scratch.
    """
    n_touched = 0
    for k in range(n_items):
        item = items[k]
        s = set_of[item]
        i = location[item]
        j = first[s] + marked[s]  # the marked ones are kept at the front
        elements[i] = elements[j]
        location[elements[i]] = i
        elements[j] = item
        location[item] = j
        if marked[s] == 0:
            touched[n_touched] = s
            n_touched += 1
        marked[s] += 1
    while n_touched > 0:
        n_touched -= 1
        s = touched[n_touched]
        j = first[s] + marked[s]
        if j < past[s]:
            if marked[s] <= past[s] - j:
                first[n_sets] = first[s]
                past[n_sets] = j
                first[s] = j
            else:
                first[n_sets] = j
                past[n_sets] = past[s]
                past[s] = j
            for i in range(first[n_sets], past[n_sets]):
                set_of[elements[i]] = n_sets
            n_sets += 1
        marked[s] = 0
    return n_sets


@allocating_helper
def minimized(
    edge_start: Int32Array, edge_class: Int32Array, edge_target: Int32Array, final: Uint8Array, n_classes: int
) -> tuple[int, Int32Array, Int32Array, Int32Array, Uint8Array]:
    """The minimal DFA of a trimmed one; state 0 is the start, and each state's edges are in the order of classes.

    States are numbered breadth first by class, so equal languages over equal classes give equal arrays.
    Returns (states, edge_start, edge_class, edge_target, final flags), the arrays with room to spare.
    """
    n = len(final)
    m = edge_start[n]
    # Runs of classes: from which state, the first class and the one after the last, in order of where they lead.
    of = np.empty(m, np.int32)
    begin = np.empty(m + 1, np.int32)
    run_start = np.zeros(n + 1, np.int32)
    n_runs = 0
    for s in range(n):
        t = np.int32(-1)
        after = np.int32(-1)
        for k in range(edge_start[s], edge_start[s + 1]):
            if edge_target[k] != t or edge_class[k] != after:
                t = edge_target[k]
                run_start[t + 1] += 1
                of[n_runs] = s
                begin[n_runs] = k
                n_runs += 1
            after = edge_class[k] + np.int32(1)
    begin[n_runs] = m
    for s in range(n):
        run_start[s + 1] += run_start[s]
    source = np.empty(n_runs, np.int32)
    first = np.empty(n_runs, np.int32)
    past = np.empty(n_runs, np.int32)
    place = run_start[:n].copy()
    for k in range(n_runs):
        t = edge_target[begin[k]]
        r = place[t]
        place[t] = r + 1
        source[r] = of[k]
        first[r] = edge_class[begin[k]]
        past[r] = edge_class[begin[k + 1] - 1] + 1
    block_element = _identity(n)
    block_location = _identity(n)
    block_of = np.zeros(n, np.int32)
    block_first = np.zeros(n + 1, np.int32)
    block_past = np.zeros(n + 1, np.int32)
    block_past[0] = n
    marked = np.zeros(n + 1, np.int32)
    touched = np.empty(n + 1, np.int32)
    items = np.empty(n, np.int32)
    n_items = 0
    for s in range(n):
        if final[s]:
            items[n_items] = s
            n_items += 1
    n_blocks = _split(
        items, n_items, 1, block_element, block_location, block_of, block_first, block_past, marked, touched
    )
    # Ends of runs into a block, a list for each class.
    head = np.full(n_classes + 1, -1, np.int32)
    met = np.empty(n_classes + 1, np.int32)
    behind = np.empty(2 * n_runs, np.int32)
    end_source = np.empty(2 * n_runs, np.int32)
    odd = np.zeros(n, np.uint8)
    # The smallest come last and are taken first: a block that waits is often split until it is taken.
    waiting = _identity(n + 1)
    n_waiting = n_blocks
    while n_waiting > 0:
        n_waiting -= 1
        b = waiting[n_waiting]
        n_ends = 0
        n_met = 0
        for i in range(block_first[b], block_past[b]):
            t = block_element[i]
            for r in range(run_start[t], run_start[t + 1]):
                for c in (first[r], past[r]):
                    if head[c] < 0:
                        met[n_met] = c
                        n_met += 1
                    behind[n_ends] = head[c]
                    end_source[n_ends] = source[r]
                    head[c] = n_ends
                    n_ends += 1
        for j in range(n_met):
            # A run that begins where another one of the same state ends is no end at all.
            k = head[met[j]]
            while k >= 0:
                odd[end_source[k]] ^= 1
                k = behind[k]
            k = head[met[j]]
            head[met[j]] = -1
            n_items = 0
            while k >= 0:
                s = end_source[k]
                if odd[s]:
                    odd[s] = 0
                    items[n_items] = s
                    n_items += 1
                k = behind[k]
            before = n_blocks
            n_blocks = _split(
                items, n_items, n_blocks, block_element, block_location, block_of, block_first, block_past, marked,
                touched,
            )  # fmt: skip
            for new in range(before, n_blocks):
                waiting[n_waiting] = new
                n_waiting += 1
    # Number the blocks breadth first from the start's.
    number = np.full(n_blocks, -1, np.int32)
    queue = np.empty(n_blocks, np.int32)
    number[block_of[0]] = 0
    queue[0] = block_of[0]
    count = 1
    out_start = np.zeros(n_blocks + 1, np.int32)
    out_class = np.empty(m, np.int32)
    out_target = np.empty(m, np.int32)
    out_final = np.zeros(n_blocks, np.uint8)
    n_out = 0
    i = 0
    while i < count:
        s = block_element[block_first[queue[i]]]
        out_final[i] = final[s]
        t = np.int32(-1)
        to = np.int32(-1)
        for k in range(edge_start[s], edge_start[s + 1]):
            if edge_target[k] != t:
                t = edge_target[k]
                if number[block_of[t]] < 0:
                    number[block_of[t]] = count
                    queue[count] = block_of[t]
                    count += 1
                to = number[block_of[t]]
            out_class[n_out] = edge_class[k]
            out_target[n_out] = to
            n_out += 1
        i += 1
        out_start[i] = n_out
    return count, out_start, out_class, out_target, out_final
