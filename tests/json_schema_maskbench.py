"""MaskBench: its schemas and instances, and what stepmask makes of them, the tokens being single bytes.

    python tests/json_schema_maskbench.py      # write down anew what does not pass, after an improvement

The words are those of bench/maskbench.py, which measures as well.
"""

from __future__ import annotations

import concurrent.futures
import functools
import gzip
import json
import multiprocessing
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from json_schema_oracles import Language, canonical

import stepmask

DATA = Path(os.environ.get("STEPMASK_DATA", Path(__file__).parents[1] / "shared")) / "data" / "maskbench.dev.jsonl.gz"
#: The schemas that do not pass, one a line: status, id, and why.
FAILURES = Path(__file__).parent / "grammar" / "json_schema" / "maskbench_failures.txt"
#: What a schema may be written down as; `over`, `under` and `crash` never are.
WRITTEN = ("order", "refused")
#: Processes that write `FAILURES`.
PROCESSES = 2


@functools.cache
def items() -> tuple[dict[str, Any], ...]:
    """All schemas, by id."""
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        return tuple(sorted((json.loads(line) for line in lines), key=lambda item: str(item["id"])))


def outcome(item: dict[str, Any]) -> str:
    """`pass`, `order`, `over`, `under` or both, or `refused` and which error it was."""
    try:
        declared = Language(item["schema"])
        any_order: Language | None = None
        found = set()
        for test in item["tests"]:
            text = canonical(test["data"])
            accepted = declared.has(text)
            if test["valid"] and not accepted:
                any_order = any_order or Language(item["schema"], property_order="any")
                found.add("order" if any_order.has(text) else "over")
            elif accepted and not test["valid"]:
                found.add("under")
    except stepmask.GrammarError as error:
        return f"refused {type(error).__name__} {error.place or ''}".rstrip()
    return " ".join(sorted(found - {"order"})) or ("order" if found else "pass")


def line(item: dict[str, Any], found: str) -> str:
    """A line of `FAILURES`."""
    status, _, rest = found.partition(" ")
    return f"{status} {item['id']} {rest}".rstrip()


def failures(chosen: Iterable[dict[str, Any]]) -> list[str]:
    """The lines of the schemas that do not pass."""
    found = ((item, outcome(item)) for item in chosen)
    return [line(item, status) for item, status in found if status != "pass"]


def written(chosen: Iterable[dict[str, Any]]) -> list[str]:
    """What `FAILURES` says of some schemas."""
    ids = {str(item["id"]) for item in chosen}
    lines = FAILURES.read_text("utf-8").splitlines()
    return [one for one in lines if one.split(" ")[1] in ids]


def _line(item: dict[str, Any]) -> str:
    try:
        found = outcome(item)
    except Exception as error:  # a crash is to be seen, and is never to be written down
        found = f"crash {type(error).__name__} {error}"
    return "" if found == "pass" else line(item, found)


def main() -> None:
    """Write `FAILURES`."""
    found = []
    with concurrent.futures.ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        for at, one in enumerate(pool.map(_line, items(), chunksize=20), 1):
            found += [one] if one else []
            if at % 500 == 0:
                print(f"{at} of {len(items())} schemas, {len(found)} do not pass", flush=True)
    FAILURES.write_text("".join(one + "\n" for one in found), encoding="utf-8")
    print(f"{len(found)} of {len(items())} schemas do not pass")
    for one in found:
        if one.split(" ")[0] not in WRITTEN:
            print(one)


if __name__ == "__main__":
    main()
