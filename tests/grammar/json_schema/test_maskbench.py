"""MaskBench: what does not pass is what is written down, on a sample, or on all schemas with ``--deep``."""

from __future__ import annotations

import random

import pytest
from json_schema_maskbench import DATA, FAILURES, WRITTEN, failures, items, written

pytestmark = pytest.mark.skipif(not DATA.exists(), reason="needs the schemas of MaskBench (STEPMASK_DATA)")

#: Tests that share the schemas, and the schemas of each in the sample.
SHARES, SAMPLE = 8, 25
#: Characters of a schema up to which it is in the sample: large ones take seconds.
LONGEST = 30_000


@pytest.mark.parametrize("share", range(SHARES))
def test_what_does_not_pass_is_written_down(share: int, request: pytest.FixtureRequest) -> None:
    chosen = list(items()[share::SHARES])
    if not request.config.getoption("--deep"):
        small = [item for item in chosen if len(str(item["schema"])) <= LONGEST]
        chosen = sorted(random.Random(share).sample(small, SAMPLE), key=lambda item: str(item["id"]))
    assert failures(chosen) == written(chosen)


def test_nothing_wrong_is_written_down() -> None:
    lines = [line.split(" ") for line in FAILURES.read_text("utf-8").splitlines()]
    known = {str(item["id"]) for item in items()}
    assert all(line[0] in WRITTEN and line[1] in known for line in lines)
    assert len({line[1] for line in lines}) == len(lines)
