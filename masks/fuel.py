"""Fuel: the units of work that a phase of a step may still do. `layout`'s COUNT_WORK counts all of it.

A phase begins with `give_fuel`. Before each piece of work it asks `affords`, after it it says what it took (`count` of
COUNT_WORK). The first piece of a phase is always done, whatever it takes, so that no budget stops progress. So no
phase takes more than its fuel and its largest piece, and where every piece is asked for, no more than the larger of the
two.
"""

from __future__ import annotations

from .._numba import helper
from .layout import B_COUNTERS, B_WORK_BEGIN, B_WORK_LIMIT, COUNT_WORK
from .memory import load_i64, store_i64

NO_FUEL_LIMIT = 1 << 62


@helper
def count(batch, counter, amount):  # type: ignore[no-untyped-def]
    """Add to one of the batch's counters."""
    counters = load_i64(batch, B_COUNTERS)
    store_i64(counters, counter, load_i64(counters, counter) + amount)


@helper
def work_done(batch):  # type: ignore[no-untyped-def]
    """Units of work since the batch was made."""
    return load_i64(load_i64(batch, B_COUNTERS), COUNT_WORK)


@helper
def give_fuel(batch, fuel):  # type: ignore[no-untyped-def]
    """Begin a phase that may do so much work."""
    work = work_done(batch)
    store_i64(batch, B_WORK_BEGIN, work)
    store_i64(batch, B_WORK_LIMIT, work + fuel)


@helper
def fuel_left(batch):  # type: ignore[no-untyped-def]
    """What is left of it; negative where a piece took more."""
    return load_i64(batch, B_WORK_LIMIT) - work_done(batch)


@helper
def affords(batch, amount):  # type: ignore[no-untyped-def]
    """Is there fuel for a piece of so much work, or is it the first of the phase?"""
    work = work_done(batch)
    return work + amount <= load_i64(batch, B_WORK_LIMIT) or work == load_i64(batch, B_WORK_BEGIN)
