"""The JSON Schema Test Suite: its groups by draft, its remote documents, and what stepmask makes of a group.

    python tests/json_schema_suite.py      # write down anew which groups are refused, after an improvement

The suite is read from the archive in the folder that STEPMASK_DATA names.
"""

from __future__ import annotations

import collections
import functools
import json
import os
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mask_sets import byte_vocabulary

import stepmask

ARCHIVE = Path(os.environ.get("STEPMASK_DATA", Path(__file__).parents[1] / "shared")) / "data"
ARCHIVE /= "json-schema-test-suite.tar.gz"
#: Which groups are refused: by draft, part and reason.
REFUSALS = Path(__file__).parent / "grammar" / "json_schema" / "suite_refusals.json"
#: Drafts by the folder of their tests, with what ``$schema`` calls them.
DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
#: The tests every validator must pass, those of optional behaviour, and those of formats.
PARTS = ("required", "optional", "format")
#: The draft that a schema without ``$schema`` is of.
DEFAULT_DRAFT = "draft2020-12"
_REMOTE = "http://localhost:1234/"


@dataclass(frozen=True)
class Group:
    """One schema and its instances, each with whether it is valid."""

    draft: str
    part: str
    file: str
    name: str
    schema: Any
    tests: tuple[tuple[str, Any, bool], ...]


@dataclass(frozen=True)
class Result:
    """What came of a group: refused with a reason, or the tests whose verdict is wrong."""

    group: Group
    refused: str = ""
    wrong: tuple[str, ...] = ()

    @property
    def is_right(self) -> bool:
        return not self.refused and not self.wrong

    @property
    def is_departure(self) -> bool:
        """Wrong, but as is written down."""
        return self.group.part in ("optional", "format") and self.group.file in DEPARTURES


@functools.cache
def _files() -> dict[str, Any]:
    """The parsed files of the archive by their path."""
    found = {}
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            if member.isfile() and member.name.endswith(".json"):
                stream = archive.extractfile(member)
                assert stream is not None
                found[member.name.removeprefix("./")] = json.loads(stream.read())
    return found


@functools.cache
def groups(draft: str, part: str) -> tuple[Group, ...]:
    """The groups of a draft, in the order of the files' names."""
    places = {"required": r"[^/]+", "optional": r"optional/[^/]+", "format": r"optional/format/[^/]+"}
    wanted = re.compile(rf"tests/{re.escape(draft)}/({places[part]})\.json")
    found = []
    for path, content in sorted(_files().items()):
        match = wanted.fullmatch(path)
        for group in content if match else ():
            assert match is not None
            file = match[1].rpartition("/")[2]
            name = f"{file}: {group['description']}"
            tests = tuple((test["description"], test["data"], test["valid"]) for test in group["tests"])
            found.append(Group(draft, part, file, name, group["schema"], tests))
    return tuple(found)


@functools.cache
def registry(draft: str) -> Any:
    """The remote documents that schemas of a draft refer to, and the drafts' own schemas."""
    import jsonschema_specifications
    from referencing import Resource
    from referencing.jsonschema import DRAFT3, DRAFT4, DRAFT6, DRAFT7, DRAFT201909, DRAFT202012

    by_draft = {
        "draft3": DRAFT3, "draft4": DRAFT4, "draft6": DRAFT6, "draft7": DRAFT7, "draft2019-09": DRAFT201909,
        "draft2020-12": DRAFT202012,
    }  # fmt: skip
    resources = []
    for path, content in _files().items():
        folder = path.removeprefix("remotes/").partition("/")[0]
        if path.startswith("remotes/") and folder != "v1":
            default = by_draft.get(folder, by_draft[draft])
            resource = Resource.from_contents(content, default_specification=default)
            resources.append((_REMOTE + path.removeprefix("remotes/"), resource))
    return jsonschema_specifications.REGISTRY.with_resources(resources)


def schema_of(group: Group) -> Any:
    """The schema with its draft named, where it would be taken for another."""
    schema = group.schema
    if isinstance(schema, dict) and "$schema" not in schema and group.draft != DEFAULT_DRAFT:
        return {"$schema": DRAFTS[group.draft], **schema}
    return schema


def reason_of(error: stepmask.GrammarError) -> str:
    """Why a schema is refused, in few words: the limit, or the message without what is particular to the schema."""
    if isinstance(error, stepmask.GrammarTooLarge):
        return f"Limits.{error.limit}"
    return re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "...", error.message).partition(":")[0][:100]


@functools.cache
def _vocabulary() -> stepmask.Vocabulary:
    return byte_vocabulary()


def judge(group: Group, **options: Any) -> Result:
    """Compile a group's schema with keys in any order, and check the verdict of every instance's canonical text."""
    try:
        grammar = stepmask.json_schema(
            schema_of(group), property_order="any", registry=registry(group.draft), **options
        )
        compiled = stepmask.compile(grammar, _vocabulary(), use_cache=False)
    except stepmask.GrammarUnsatisfiable:
        compiled = None  # no instance is valid
    except stepmask.GrammarError as error:
        return Result(group, refused=reason_of(error))
    wrong = []
    for description, data, is_valid in group.tests:
        accepted = False
        if compiled is not None:
            matcher = compiled.matcher()
            accepted = matcher.accept_bytes(json.dumps(data, ensure_ascii=False).encode()) and matcher.is_complete
        if accepted != is_valid:
            wrong.append(f"{'accepts' if accepted else 'rejects'} {description}")
    return Result(group, wrong=tuple(wrong))


def refusals(results: list[Result]) -> dict[str, list[str]]:
    """The names of refused groups by reason."""
    found: dict[str, list[str]] = collections.defaultdict(list)
    for result in results:
        if result.refused:
            found[result.refused].append(result.group.name)
    return {reason: sorted(found[reason]) for reason in sorted(found)}


#: Options of groups that ask for what is not the default.
_OPTIONS: dict[str, dict[str, Any]] = {
    # Formats decide nothing in 2020-12; here they do unless told not to.
    "format": {"formats": "ignore"},
    "unknown": {"formats": "known"},
    # Numbers longer than the default takes.
    "bignum": {"max_digits": None},
    "float-overflow": {"max_digits": None},
}
#: Groups of optional behaviour that is not stepmask's in any setting, by the file: what it has instead.
DEPARTURES = {
    "hostname": "labels that begin with xn-- are left out: whether they are valid no automaton can say",
    "ecmascript-regex": "patterns with named groups are left out of the format regex",
    "content": "contentEncoding and contentMediaType are comments, as later drafts have it",
    "zeroTerminatedFloats": "1.0 is an integer in draft 4 too, as in all others",
}


def options_for(group: Group) -> dict[str, Any]:
    """Options without which a group asks for what a grammar does not do by default."""
    return _OPTIONS.get(group.file, {}) if group.part != "format" or group.file == "unknown" else {}


def judge_all(draft: str, part: str) -> list[Result]:
    """The results of all groups of a part."""
    return [judge(group, **options_for(group)) for group in groups(draft, part)]


def write() -> None:
    """Write `REFUSALS`, and print how many groups are right."""
    found: dict[str, dict[str, Any]] = {}
    for draft in DRAFTS:
        for part in PARTS:
            results = judge_all(draft, part)
            right = sum(result.is_right for result in results)
            found.setdefault(draft, {})[part] = refusals(results)
            wrong = [f"{one.group.name}: {one.wrong}" for one in results if one.wrong and not one.is_departure]
            print(f"{draft}, {part}: {right} of {len(results)} groups right, {len(wrong)} wrong")
            for line in wrong:
                print("  WRONG " + line)
    REFUSALS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
