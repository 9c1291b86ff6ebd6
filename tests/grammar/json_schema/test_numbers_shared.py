"""Numbers in the shared cases and in the JSON Schema Test Suite: schemas of numeric keywords alone."""

from __future__ import annotations

import gzip
import json
import os
import re
import tarfile
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from number_texts import language, lives, takes

from stepmask.grammar.errors import GrammarTooLarge
from stepmask.grammar.json_schema.numbers import NumberConstraint

DATA = Path(os.environ.get("STEPMASK_DATA", Path(__file__).parents[4] / "shared"))
KEYWORDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
#: Inputs refused because their remainders are too many.
REFUSED = {"multipleOf1000003", "float division = inf"}


def constraint_of(schema: Any) -> NumberConstraint | None:
    """What a schema asks of numbers; None where it has other keywords, or none for numbers."""
    if not isinstance(schema, dict) or not schema.keys() - {"$schema"} <= KEYWORDS | {"type"}:
        return None
    kind = schema.get("type", "number")
    if kind not in ("number", "integer") or not schema.keys() & (KEYWORDS | {"type"}):
        return None
    result = NumberConstraint(integer=kind == "integer")
    for keyword, value in schema.items():
        exclusive = schema.get(f"exclusive{keyword.capitalize()}") is True  # draft 4
        if keyword == "minimum":
            result = result.intersect(NumberConstraint(minimum=Fraction(value), exclusive_minimum=exclusive))
        elif keyword == "maximum":
            result = result.intersect(NumberConstraint(maximum=Fraction(value), exclusive_maximum=exclusive))
        elif keyword == "exclusiveMinimum" and value is not True and value is not False:
            result = result.intersect(NumberConstraint(minimum=Fraction(value), exclusive_minimum=True))
        elif keyword == "exclusiveMaximum" and value is not True and value is not False:
            result = result.intersect(NumberConstraint(maximum=Fraction(value), exclusive_maximum=True))
        elif keyword == "multipleOf":
            result = result.intersect(NumberConstraint(multiples=frozenset({Fraction(value)})))
    return result


def parsed(text: str) -> Any:
    """JSON with exact numbers."""
    return json.loads(text, parse_float=Decimal)


def cases() -> list[Any]:
    """(constraint, taken, refused, beginnings that live, that do not) of the cases and hard inputs."""
    found = []
    for path in sorted((DATA / "cases").glob("*.json")):
        case = json.loads(path.read_text("utf-8"))
        constraint = constraint_of(parsed(case["grammar"])) if case["kind"] == "json_schema" else None
        if constraint is not None:
            texts = [case.get(key, []) for key in ("accept", "reject", "alive_prefixes", "dead_prefixes")]
            found.append(pytest.param(constraint, *texts, id=case["id"]))
    path = DATA / "data" / "hard.dev.jsonl.gz"
    if path.exists():
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for case in map(json.loads, lines):
                constraint = constraint_of(parsed(case["grammar"])) if case["kind"] == "json_schema" else None
                if constraint is not None:
                    texts = [
                        [test["text"] for test in case["tests"] if test["valid"] is valid] for valid in (True, False)
                    ]
                    found.append(pytest.param(constraint, *texts, [], [], id=case["id"]))
    return found


@pytest.mark.skipif(not (DATA / "cases").exists(), reason="needs the shared data")
@pytest.mark.parametrize(("constraint", "taken", "refused", "alive", "dead"), cases())
def test_shared_cases(
    request: pytest.FixtureRequest,
    constraint: NumberConstraint,
    taken: list[str],
    refused: list[str],
    alive: list[str],
    dead: list[str],
) -> None:
    if request.node.callspec.id in REFUSED:
        with pytest.raises(GrammarTooLarge):
            language(constraint)
        return
    matcher = language(constraint)
    assert matcher is not None
    assert [text for text in taken if not takes(matcher, text)] == []
    assert [text for text in refused if takes(matcher, text)] == []
    assert [text for text in [*taken, *alive] if not lives(matcher, text)] == []
    assert [text for text in dead if lives(matcher, text)] == []


#: In draft 4 "some languages do not distinguish" 1.0 from 1; here, as in all later drafts, it is an integer.
OPTIONAL = "draft4/optional/zeroTerminatedFloats.json"
SUITE = DATA / "data" / "json-schema-test-suite.tar.gz"


@pytest.mark.skipif(not SUITE.exists(), reason="needs the shared data")
def test_json_schema_test_suite() -> None:
    """Every instance that is a number, as Python writes it."""
    seen = 0
    wrong = []
    with tarfile.open(SUITE) as archive:
        for member in archive:
            file = archive.extractfile(member) if re.search(r"\btests/.*\.json$", member.name) else None
            for group in parsed(file.read().decode()) if file is not None else []:
                constraint = constraint_of(group.get("schema"))
                if constraint is None:
                    continue
                try:
                    matcher = language(constraint, None)
                except GrammarTooLarge:
                    assert group["description"] in REFUSED
                    continue
                for test in group["tests"]:
                    value = test["data"]
                    if isinstance(value, int | Decimal) and not isinstance(value, bool):
                        seen += 1
                        text = json.dumps(float(value) if isinstance(value, Decimal) else value)
                        if takes(matcher, text) != test["valid"] and not member.name.endswith(OPTIONAL):
                            wrong.append((member.name, group["description"], text))
    assert seen > 100
    assert wrong == []
