"""The JSON Schema Test Suite: every test is right, or its schema is refused and written down as such."""

from __future__ import annotations

import json

import pytest
from json_schema_suite import ARCHIVE, DRAFTS, PARTS, REFUSALS, Result, judge_all, refusals

pytestmark = pytest.mark.skipif(not ARCHIVE.exists(), reason="needs the JSON Schema Test Suite (STEPMASK_DATA)")

#: Share of the required groups that must be fully right, by draft.
LEAST_RIGHT = {"draft2020-12": 0.9}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("draft", DRAFTS)
def test_groups_are_right_or_refused_as_written_down(draft: str, part: str) -> None:
    results = judge_all(draft, part)
    assert results
    wrong = {result.group.name: result.wrong for result in results if result.wrong and not result.is_departure}
    assert not wrong
    assert refusals(results) == json.loads(REFUSALS.read_text("utf-8"))[draft][part]
    if part == "required":
        assert share_right(results) >= LEAST_RIGHT.get(draft, 0)


def share_right(results: list[Result]) -> float:
    return sum(result.is_right for result in results) / len(results)
