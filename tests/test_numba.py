"""What Numba's cache is told of a kernel: all that it is made of, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from stepmask import _numba
from stepmask._numba import helper, kernel
from stepmask.masks.memory import load_i64
from stepmask.masks.warm_up import KERNEL_MODULES

TEXT = """
    LIMIT = 7

    @helper
    def _inner(x):
        return x + LIMIT

    @helper
    def _outer(x):
        return _inner(x) * 3

    @kernel("int64(int64)")
    def top(x):
        return _outer(x) + load_i64(x, 0)
"""


def digest_of(text: str) -> str:
    names = {"helper": helper, "kernel": kernel, "load_i64": load_i64, "np": np, "__name__": __name__}
    exec(compile(textwrap.dedent(text), __file__, "exec"), names)
    _numba.REGISTRY.pop()
    return _numba._digest(names["top"])


def test_comments_and_places_change_nothing() -> None:
    changed = "\n\n    # a comment" + TEXT.replace("return x + LIMIT", "# another\n        return x + LIMIT")
    assert digest_of(changed) == digest_of(TEXT)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 7", "LIMIT = 8"),
        ("x + LIMIT", "x - LIMIT"),
        ("* 3", "* 4"),
        ("load_i64(x, 0)", "load_i64(x, 1)"),
        ("_outer(x) +", "_inner(x) +"),
        ("+ load_i64", "+ np.int64(3) + load_i64"),
    ],
)
def test_what_a_kernel_calls_and_the_numbers_it_names_count(old: str, new: str) -> None:
    assert old in TEXT
    assert digest_of(TEXT.replace(old, new)) != digest_of(TEXT)


def test_what_is_not_known_takes_all_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    text = TEXT.replace("return _inner(x) * 3", "return _inner(x) * unknown.x").replace(
        "LIMIT = 7", "LIMIT = 7\n    class unknown:\n        __module__ = 'stepmask.masks'\n        x = 3"
    )
    before = digest_of(text)
    monkeypatch.setattr(_numba, "source_digest", lambda: "changed")
    assert digest_of(text) != before


def test_the_cache_is_told_whoever_compiles_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is called before `warm_up`: both would otherwise throw away what the other has put there."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    def kernel_of(text: str) -> Any:
        names: dict[str, Any] = {"kernel": kernel, "helper": helper, "__name__": __name__}
        exec(compile(textwrap.dedent(text), __file__, "exec"), names)
        _numba.REGISTRY.pop()
        return names["top"]

    text = """
        @kernel("int64(int64)")
        def top(x):
            return later(x) + 1

        @helper
        def later(x):
            return x * 2
    """
    assert kernel_of(text)(np.int64(4)) == 9
    again, other = kernel_of(text), kernel_of(text.replace("x * 2", "x * 3"))
    for one in (again, other):
        one(np.int64(4))
    assert list(again.stats.cache_hits.values()) == [1]
    assert list(other.stats.cache_misses.values()) == [1] and not other.stats.cache_hits


def test_every_kernel_is_known_and_the_same_in_each_process() -> None:
    code = (
        "import importlib, json\n"
        "from stepmask import _numba\n"
        "_numba.source_digest = None\n"  # calling it would fail: every part of every kernel is of a known kind
        f"for module in {KERNEL_MODULES!r}: importlib.import_module(module, 'stepmask')\n"
        "print(json.dumps([_numba._digest(d) for d, _ in _numba.REGISTRY]))\n"
    )
    found = [
        json.loads(subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True).stdout)
        for env in ({**environment(), "PYTHONHASHSEED": seed} for seed in ("1", "2"))
    ]
    assert found[0] == found[1]
    assert len(set(found[0])) > 30


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
