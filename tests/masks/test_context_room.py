"""The memory of contexts has room for what is begun, however many jobs store theirs at once."""

from __future__ import annotations

from typing import Any

import numba
import pytest

from stepmask.masks import context_store
from stepmask.masks.layout import (
    G_CONTEXT_COUNT,
    G_FIELDS,
    G_ITEM_COUNT,
    G_LIST_COUNT,
    G_LIST_NODES_USED,
    LANE_LOOK,
    MAX_CONTEXTS,
    MAX_EVENTS,
    MAX_ITEMS,
    MAX_KEYS,
    MAX_LIST_NODES,
    MAX_LISTS,
)
from stepmask.masks.memory import Block


@numba.njit  # type: ignore[untyped-decorator]
def has_room(grammar: int) -> Any:
    return context_store._has_room(grammar)


@pytest.mark.parametrize(
    ("field", "most", "each"),
    [
        (G_CONTEXT_COUNT, MAX_CONTEXTS, 1),
        (G_LIST_COUNT, MAX_LISTS, MAX_KEYS),
        (G_ITEM_COUNT, MAX_ITEMS, MAX_KEYS),
        (G_LIST_NODES_USED, MAX_LIST_NODES, MAX_EVENTS),
    ],
)
def test_a_job_begins_to_store_only_where_all_that_have_begun_can_end(field: int, most: int, each: int) -> None:
    """Those of the lanes and the one that is made ahead: each may have seen that there is room, and stored nothing."""
    jobs = LANE_LOOK + 1
    block = Block(G_FIELDS)
    assert has_room(block.address)
    for left in (jobs * each, jobs * each - 1):
        block.header[field] = most - left
        assert has_room(block.address) == (left >= jobs * each)
