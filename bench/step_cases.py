"""What the requests of bench/step_budget.py ask for: well-behaved grammars, hard ones, and fresh ones in any number."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class StepCase:
    """A grammar: the `kind` of a specification and its `text`; `sample` is a text that the model tries to write."""

    name: str
    kind: str
    text: str
    sample: str


def _schema(name: str, properties: dict[str, Any], sample: Any) -> StepCase:
    schema = {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False,
    }  # fmt: skip
    return StepCase(name, "json_schema", json.dumps(schema), json.dumps(sample))


_STRING, _INTEGER = {"type": "string"}, {"type": "integer"}
_PROSE = "the river runs past old mills where nobody has ground any corn since the railway came to town"
MIX: tuple[StepCase, ...] = (
    _schema("person", {"name": _STRING, "age": _INTEGER}, {"name": "Ada Lovelace", "age": 36}),
    _schema(
        "call", {"tool": {"enum": ["search", "read", "write"]}, "query": _STRING}, {"tool": "search", "query": _PROSE}
    ),
    _schema(
        "list", {"items": {"type": "array", "items": _INTEGER}, "done": {"type": "boolean"}},
        {"items": [1, 22, 333, 4444], "done": True},
    ),
    _schema("note", {"title": {"type": "string", "maxLength": 80}, "body": _STRING}, {"title": "Mill", "body": _PROSE}),
    _schema("place", {"at": {"type": "number"}, "name": {"type": ["string", "null"]}}, {"at": 12.5, "name": None}),
    StepCase("date", "regex", r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])", "2025-11-29"),
    StepCase("mail", "regex", r"[a-z0-9._]{1,32}@[a-z0-9]{1,32}\.(com|org|net)", "miller.of.the.river@example.org"),
)  # fmt: skip


def fresh(number: int) -> StepCase:
    """A schema like no other number's, with strings, whose masks are wide, and an enumeration."""
    words = [f"w{number}_{i * 7919 % 1000}" for i in range(20)]
    return _schema(
        f"fresh {number}",
        {f"field_{number}": {"enum": words}, f"text_{number}": {"type": "string", "maxLength": 50 + number % 50}},
        {f"field_{number}": words[3], f"text_{number}": _PROSE[:40]},
    )


def mixed(count: int) -> tuple[StepCase, ...]:
    """So many different well-behaved grammars: objects of two to six members of every usual kind, and patterns."""
    kinds: tuple[tuple[dict[str, Any], Any], ...] = (
        (_STRING, "the river"), (_INTEGER, 17), ({"type": "number"}, 2.5), ({"type": "boolean"}, True),
        ({"enum": ["low", "middle", "high"]}, "high"), ({"type": "array", "items": _INTEGER}, [1, 22]),
        ({"type": ["string", "null"]}, None), ({"type": "string", "maxLength": 40}, "an old mill"),
    )  # fmt: skip
    found = []
    for number in range(count):
        if number % 10 == 9:
            low, high = 2 + number % 7, 12 + number % 11
            found.append(StepCase(f"mixed {number}", "regex", f"[a-z]{{{low},{high}}}-[0-9]{{3}}", "millstone-417"))
            continue
        members = [kinds[(number * 5 + 3 * i) % len(kinds)] for i in range(2 + number % 5)]
        schemas = {f"m{number}_{i}": schema for i, (schema, _) in enumerate(members)}
        found.append(
            _schema(f"mixed {number}", schemas, {f"m{number}_{i}": value for i, (_, value) in enumerate(members)})
        )
    return tuple(found)


def hard(names: list[str] | None = None) -> list[StepCase]:
    """The hard inputs of the file data/hard.dev.jsonl.gz in the folder STEPMASK_DATA, all or those of `names`.

    Raises FileNotFoundError where it is not there, KeyError for a name that it does not have.
    """
    path = Path(os.environ.get("STEPMASK_DATA", "")) / "data" / "hard.dev.jsonl.gz"
    found = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            if entry["kind"] in ("json_schema", "regex"):
                sample = next((test["text"] for test in entry["tests"] if test["valid"]), "")
                found[entry["id"]] = StepCase(entry["id"], entry["kind"], entry["grammar"], sample)
    return list(found.values()) if names is None else [found[name] for name in names]
