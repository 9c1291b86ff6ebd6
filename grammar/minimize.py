"""Minimal partial DFAs with canonical numbering.

Partition refinement that splits blocks of states by where they lead, the smaller part of each being what others are
split by next: J. Hopcroft, "An n log n algorithm for minimizing states in a finite automaton" (1971), with the sets as
in A. Valmari, "Fast brief practical DFA minimization", Information Processing Letters 112 (2012). Of a state that leads
to another from many neighbouring classes only the ends of that run are looked at: the states that lead to a block from
class `c`, but not from `c - 1`, or the other way round, are a set that equivalent states are all in or all out of, and
of these sets all others are made. O(r log n) for n states and r runs, besides reading the edges. States that no cycle
leads to, which are most in tries of names, need no refinement (`_blocks`), as in D. Revuz, "Minimisation of acyclic
deterministic automata in linear time", Theoretical Computer Science 92 (1992).
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
def _core_blocks(  # type: ignore[no-untyped-def]
    core, n_core, edge_start, edge_low, edge_high, edge_target, final, n_classes, block_of
):
    """Set `block_of` for the states in `core`, which lead to no others; the number of blocks, and a state of each.

    Hopcroft's refinement: states are in one block where they have the same language.
    """
    n = len(final)
    # Runs of classes in order of where they lead: from which state, the first class and the one after the last.
    back_start = np.zeros(n + 1, np.int32)
    for i in range(n_core):
        for e in range(edge_start[core[i]], edge_start[core[i] + 1]):
            back_start[edge_target[e] + 1] += 1
    for s in range(n):
        back_start[s + 1] += back_start[s]
    n_runs = back_start[n]
    source = np.empty(n_runs, np.int32)
    first = np.empty(n_runs, np.int32)
    past = np.empty(n_runs, np.int32)
    place = back_start[:n].copy()
    for i in range(n_core):
        for e in range(edge_start[core[i]], edge_start[core[i] + 1]):
            k = place[edge_target[e]]
            place[edge_target[e]] = k + 1
            source[k] = core[i]
            first[k] = edge_low[e]
            past[k] = edge_high[e] + 1
    block_element = core[:n_core].copy()
    block_location = np.empty(n, np.int32)
    for i in range(n_core):
        block_location[core[i]] = i
        block_of[core[i]] = 0
    block_first = np.zeros(n_core + 1, np.int32)
    block_past = np.zeros(n_core + 1, np.int32)
    block_past[0] = n_core
    marked = np.zeros(n_core + 1, np.int32)
    touched = np.empty(n_core + 1, np.int32)
    items = np.empty(n_core, np.int32)
    n_items = 0
    for i in range(n_core):
        if final[core[i]]:
            items[n_items] = core[i]
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
    waiting = _identity(n_core + 1)
    n_waiting = n_blocks
    while n_waiting > 0:
        n_waiting -= 1
        b = waiting[n_waiting]
        n_ends = 0
        n_met = 0
        for i in range(block_first[b], block_past[b]):
            t = block_element[i]
            for r in range(back_start[t], back_start[t + 1]):
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
    leader = np.empty(n_blocks, np.int32)
    for b in range(n_blocks):
        leader[b] = block_element[block_first[b]]
    return n_blocks, leader


@helper
def _signature(  # type: ignore[no-untyped-def]
    s, at, edge_start, edge_low, edge_high, edge_target, block_of, sign_low, sign_high, sign_block
):
    """Write the edges of a state from `at` on, neighbouring ones into one block joined; where they end."""
    begin = at
    for e in range(edge_start[s], edge_start[s + 1]):
        b = block_of[edge_target[e]]
        if at > begin and sign_block[at - 1] == b and sign_high[at - 1] + 1 == edge_low[e]:
            sign_high[at - 1] = edge_high[e]
            continue
        sign_low[at] = edge_low[e]
        sign_high[at] = edge_high[e]
        sign_block[at] = b
        at += 1
    return at


@helper
def _hash(begin, end, is_final, sign_low, sign_high, sign_block):  # type: ignore[no-untyped-def]
    """Of a signature; the multiplier is that of Fibonacci hashing (2^64 over the golden ratio)."""
    value = np.uint64(is_final)
    for k in range(begin, end):
        value = (value ^ np.uint64(sign_block[k])) * np.uint64(0x9E3779B97F4A7C15)
        value ^= value >> np.uint64(29)
        value = (value ^ np.uint64(np.int64(sign_low[k]) << 32 | sign_high[k])) * np.uint64(0x9E3779B97F4A7C15)
        value ^= value >> np.uint64(32)
    return value


@allocating_helper
def _blocks(edge_start, edge_low, edge_high, edge_target, final, n_classes):  # type: ignore[no-untyped-def]
    """(number of blocks, the block of each state, a state of each block); a block holds the states of one language.

    What no cycle leads to, as in a trie, is told apart from its ends on: such a state is like another one if both lead
    to the same blocks by the same classes. O(r) for their edges; refinement is left with what a cycle leads to.
    """
    n = len(final)
    n_edges = edge_start[n]
    waits = np.zeros(n, np.int32)  # edges into a state from those that a cycle may lead to
    for e in range(n_edges):
        waits[edge_target[e]] += 1
    order = np.empty(n, np.int32)  # those that no cycle leads to come first, each behind what leads to it
    n_free = 0
    if waits[0] == 0:
        order[0] = 0
        n_free = 1
    i = 0
    while i < n_free:
        for e in range(edge_start[order[i]], edge_start[order[i] + 1]):
            t = edge_target[e]
            waits[t] -= 1
            if waits[t] == 0:
                order[n_free] = t
                n_free += 1
        i += 1
    n_core = 0
    for s in range(n):
        if waits[s] > 0 or (s == 0 and n_free == 0):
            order[n_free + n_core] = s
            n_core += 1
    block_of = np.empty(n, np.int32)
    n_blocks = 0
    leader = np.empty(n, np.int32)
    if n_core > 0:
        n_blocks, found = _core_blocks(
            order[n_free:], n_core, edge_start, edge_low, edge_high, edge_target, final, n_classes, block_of
        )
        for b in range(n_blocks):
            leader[b] = found[b]
    sign_low = np.empty(n_edges, np.int32)
    sign_high = np.empty(n_edges, np.int32)
    sign_block = np.empty(n_edges, np.int32)
    sign_start = np.zeros(n + 1, np.int32)
    slots = 16
    while slots < 2 * n:
        slots *= 2
    table = np.full(slots, -1, np.int32)
    n_known = n_blocks  # of these no two are alike
    for turn in range(n_known + n_free):
        is_core = turn < n_known
        s = leader[turn] if is_core else order[n_known + n_free - 1 - turn]
        known = turn if is_core else n_blocks
        begin = sign_start[known]
        end = _signature(
            s, begin, edge_start, edge_low, edge_high, edge_target, block_of, sign_low, sign_high, sign_block
        )
        slot = np.int64(_hash(begin, end, final[s], sign_low, sign_high, sign_block) & np.uint64(slots - 1))
        b = np.int32(-1)
        while table[slot] >= 0:
            other = table[slot]
            if (
                not is_core
                and sign_start[other + 1] - sign_start[other] == end - begin
                and final[leader[other]] == final[s]
            ):
                j = 0
                k = sign_start[other]
                while (
                    j < end - begin
                    and sign_block[begin + j] == sign_block[k + j]
                    and sign_low[begin + j] == sign_low[k + j]
                    and sign_high[begin + j] == sign_high[k + j]
                ):
                    j += 1
                if j == end - begin:
                    b = other
                    break
            slot = (slot + 1) & (slots - 1)
        if b < 0:
            table[slot] = known
            leader[known] = s
            sign_start[known + 1] = end
            if not is_core:
                b = np.int32(n_blocks)
                n_blocks += 1
        if not is_core:
            block_of[s] = b
    return n_blocks, block_of, leader


@allocating_helper
def minimized(
    edge_start: Int32Array,
    edge_low: Int32Array,
    edge_high: Int32Array,
    edge_target: Int32Array,
    final: Uint8Array,
    n_classes: int,
    n_bytes: int,
) -> tuple[int, Int32Array, Int32Array, Int32Array, Int32Array, Uint8Array]:
    """The minimal DFA of a trimmed one; state 0 is the start, and edges are as in `determinize.Dfa`.

    The first `n_bytes` classes are of bytes. States are numbered breadth first by class, so equal languages over equal
    classes give equal arrays. Returns (states, edge_start, edge_low, edge_high, edge_target, final flags), the arrays
    with room to spare.
    """
    n_blocks, block_of, leader = _blocks(edge_start, edge_low, edge_high, edge_target, final, n_classes)
    # Number the blocks breadth first from the start's.
    number = np.full(n_blocks, -1, np.int32)
    queue = np.empty(n_blocks, np.int32)
    number[block_of[0]] = 0
    queue[0] = block_of[0]
    count = 1
    n_edges = edge_start[len(final)]
    out_start = np.zeros(n_blocks + 1, np.int32)
    out_low = np.empty(n_edges, np.int32)
    out_high = np.empty(n_edges, np.int32)
    out_target = np.empty(n_edges, np.int32)
    out_final = np.zeros(n_blocks, np.uint8)
    n_out = 0
    i = 0
    while i < count:
        s = leader[queue[i]]
        out_final[i] = final[s]
        for e in range(edge_start[s], edge_start[s + 1]):
            b = block_of[edge_target[e]]
            if number[b] < 0:
                number[b] = count
                queue[count] = b
                count += 1
            to = number[b]
            low = edge_low[e]
            if n_out > out_start[i] and out_target[n_out - 1] == to and out_high[n_out - 1] + 1 == low < n_bytes:
                out_high[n_out - 1] = edge_high[e]
                continue
            out_low[n_out] = low
            out_high[n_out] = edge_high[e]
            out_target[n_out] = to
            n_out += 1
        i += 1
        out_start[i] = n_out
    return count, out_start, out_low, out_high, out_target, out_final
