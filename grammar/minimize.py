"""Minimal partial DFAs with canonical numbering.

Partition refinement over blocks of states and cords of edges: A. Valmari and P. Lehtinen, "Efficient
minimization of DFAs with partial transition functions", STACS 2008; A. Valmari, "Fast brief practical
DFA minimization", Information Processing Letters 112 (2012). O(m log m) for m edges.
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
    head_start = np.zeros(n + 1, np.int32)
    label_start = np.zeros(n_classes + 1, np.int32)
    for k in range(m):
        head_start[edge_target[k] + 1] += 1
        label_start[edge_class[k] + 1] += 1
    for s in range(n):
        head_start[s + 1] += head_start[s]
    for c in range(n_classes):
        label_start[c + 1] += label_start[c]
    tail = np.empty(m, np.int32)
    into = np.empty(m, np.int32)  # edges by the state they lead to
    place = head_start[:n].copy()
    # Cords: a partition of the edges, at first by label. Edges are numbered in the order of their labels.
    size = max(n, m) + 1
    cord_element = _identity(m)
    cord_location = _identity(m)
    cord_of = np.empty(m, np.int32)
    cord_first = np.zeros(size, np.int32)
    cord_past = np.zeros(size, np.int32)
    n_cords = 0
    number_of = np.empty(n_classes, np.int32)  # the cord of each label
    next_of = label_start[:n_classes].copy()
    for c in range(n_classes):
        number_of[c] = n_cords
        if label_start[c] == label_start[c + 1]:
            continue
        cord_first[n_cords] = label_start[c]
        cord_past[n_cords] = label_start[c + 1]
        n_cords += 1
    for s in range(n):
        for k in range(edge_start[s], edge_start[s + 1]):
            c = edge_class[k]
            e = next_of[c]
            next_of[c] += 1
            t = edge_target[k]
            tail[e] = s
            into[place[t]] = e
            place[t] += 1
            cord_of[e] = number_of[c]
    block_element = _identity(n)
    block_location = _identity(n)
    block_of = np.zeros(n, np.int32)
    block_first = np.zeros(size, np.int32)
    block_past = np.zeros(size, np.int32)
    block_past[0] = n
    n_blocks = 1
    marked = np.zeros(size, np.int32)
    touched = np.empty(size, np.int32)
    items = np.empty(size, np.int32)
    # The first split is by finality; then blocks are split by the tails of each cord, cords by the heads' blocks.
    b = 1
    c = -1
    while c < n_cords:
        n_items = 0
        if c < 0:
            for s in range(n):
                if final[s]:
                    items[n_items] = s
                    n_items += 1
        else:
            for i in range(cord_first[c], cord_past[c]):
                items[n_items] = tail[cord_element[i]]
                n_items += 1
        n_blocks = _split(
            items, n_items, n_blocks, block_element, block_location, block_of, block_first, block_past, marked, touched
        )
        c += 1
        while b < n_blocks:
            n_items = 0
            for i in range(block_first[b], block_past[b]):
                s = block_element[i]
                for j in range(head_start[s], head_start[s + 1]):
                    items[n_items] = into[j]
                    n_items += 1
            n_cords = _split(
                items, n_items, n_cords, cord_element, cord_location, cord_of, cord_first, cord_past, marked, touched
            )
            b += 1
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
        for k in range(edge_start[s], edge_start[s + 1]):
            block = block_of[edge_target[k]]
            if number[block] < 0:
                number[block] = count
                queue[count] = block
                count += 1
            out_class[n_out] = edge_class[k]
            out_target[n_out] = number[block]
            n_out += 1
        i += 1
        out_start[i] = n_out
    return count, out_start, out_class, out_target, out_final
