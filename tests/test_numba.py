"""What Numba's cache is told of a kernel: all that it is made of, and nothing else."""

from __future__ import annotations

import importlib
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
from numba.core.dispatcher import Dispatcher

from stepmask import _numba
from stepmask._numba import allocating_helper, helper, kernel
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


def test_a_helper_is_compiled_once_for_all_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    @helper
    def scaled(x: int, factor: int, negated: bool) -> int:
        return -x * factor if negated else x * factor

    @kernel("int64(int64)")
    def top(x: int) -> int:
        return scaled(x, 2, False) + 10 * scaled(x, 3, negated=True) + 100 * scaled(x, x, x > 3)

    _numba.compile_kernel(*_numba.REGISTRY.pop())
    assert [top(x) for x in (3, 4)] == [6 - 90 + 900, 8 - 120 - 1600]
    assert [str(kind) for (kinds,) in [scaled.overloads] for kind in kinds] == ["int64", "int64", "bool"]


@pytest.mark.parametrize("makes", ["np.zeros(n, np.int64)", "values.copy()", "values[1:]", "made(n)"])
def test_only_who_says_so_makes_arrays(makes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the step nothing is allocated: what would be is refused, in a kernel and in what it calls."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    text = f"""
        @allocating_helper
        def made(n):
            return np.zeros(n, np.int64)

        @helper
        def some(values, n):
            return {makes}

        @kernel("int64(int64[::1], int64)"ALLOCATES)
        def top(values, n):
            return some(values, n).size
    """

    def compiled(text: str) -> Any:
        names = {"kernel": kernel, "helper": helper, "allocating_helper": allocating_helper, "np": np}
        exec(compile(textwrap.dedent(text), __file__, "exec"), names | {"__name__": __name__})
        dispatcher, signature = _numba.REGISTRY.pop()
        _numba.compile_kernel(dispatcher, signature)
        return dispatcher

    with pytest.raises(numba.TypingError):
        compiled(text.replace("ALLOCATES", ""))
    allowed = text.replace("ALLOCATES", ", allocates=True").replace("@helper", "@allocating_helper")
    assert compiled(allowed)(np.arange(4), 3) in (3, 4)


def test_who_allocates_is_called_by_none_that_does_not() -> None:
    """An array that is made and handed to a function without counts of references would never be given back; one that
    such a function hands on would be given back twice."""
    for module in KERNEL_MODULES:
        importlib.import_module(module, "stepmask")
    seen: set[Any] = set()
    todo = [dispatcher for dispatcher, _ in _numba.REGISTRY]
    while todo:
        caller = todo.pop()
        if caller in seen or caller.targetoptions.get("inline") == "always":  # inlined: part of its callers
            continue
        seen.add(caller)
        function = caller.py_func
        for name in function.__code__.co_names:
            called = function.__globals__.get(name)
            if isinstance(called, Dispatcher):
                todo.append(called)
                assert caller.targetoptions["_nrt"] or not called.targetoptions.get("_nrt"), (function, name)
        if not caller.targetoptions["_nrt"]:
            assert "rray" not in function.__annotations__.get("return", ""), function
    step = {"plan_step", "advance_step", "plan_all", "advance_all", "plan_rows", "advance_rows", "settle_rows"}
    step |= {"_sample_rows", "_candidate_rows", "_apply_rows"}
    quiet = {d.py_func.__name__ for d in seen if not d.targetoptions["_nrt"]}
    assert step <= quiet


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
