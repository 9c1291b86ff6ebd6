"""The table of keywords in the documentation."""

from __future__ import annotations

from pathlib import Path

import stepmask
from stepmask.grammar.json_schema.dialects import KEYWORDS
from stepmask.grammar.json_schema.keyword_table import KEYWORDS as ENFORCED
from stepmask.grammar.json_schema.support import SUPPORT, support_table

PAGE = Path(stepmask.__file__).parent / "docs" / "json-schema.md"


def test_every_keyword_is_in_the_table() -> None:
    assert set(SUPPORT) == set(KEYWORDS)


def test_every_keyword_is_enforced_or_read_beside_another_one() -> None:
    assert set(KEYWORDS) - set(ENFORCED) == {"then", "else", "minContains", "maxContains"}


def test_the_page_has_the_table_as_it_is() -> None:
    assert PAGE.read_text(encoding="utf-8").endswith(support_table())
