"""How the kernels are shared out over two processes, and that compiling them leaves Numba and Python as they were."""

from __future__ import annotations

import gc
import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import numba
import pytest
from numba.core import base, event, ir
from numba.core.types.functions import BaseFunction

import stepmask
from stepmask import _compiler, _numba
from stepmask.masks import warm_up

NAMES = [f"stepmask.kernel_{number}" for number in range(7)]


class Kernel:
    """Stands for a kernel in `REGISTRY`."""

    def __init__(self, name: str) -> None:
        self.__module__, _, self.__qualname__ = name.rpartition(".")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is compiled, of `NAMES`: the first has two signatures."""
    made: list[tuple[str, str]] = []
    kernels = [(Kernel(name), "void()") for name in NAMES] + [(Kernel(NAMES[0]), "void(int64)")]
    monkeypatch.setattr(_numba, "REGISTRY", kernels)
    monkeypatch.setattr(_numba, "compile_kernel", lambda kernel, text: made.append((kernel.__qualname__, text)))
    return made


@pytest.fixture
def tickets() -> Iterator[int]:
    reader, writer = os.pipe()
    os.write(writer, bytes(range(len(NAMES))))
    os.close(writer)
    yield reader
    os.close(reader)


@pytest.mark.parametrize("turns", [[0] * 8, [1] * 8, [0, 1] * 4, [1, 1, 0] * 3, [0, 0, 0, 1] * 2])
def test_two_that_begin_at_their_ends_make_each_kernel_once(
    compiled: list[tuple[str, str]], tickets: int, turns: list[int]
) -> None:
    """However fast each of them is."""
    sides = [warm_up._compile_by_ticket(tickets, NAMES), warm_up._compile_by_ticket(tickets, reversed(NAMES))]
    begun = [next(sides[side], None) for side in turns]
    for side in sides:
        begun += list(side)
    numbers = [one[0] for one in begun if one is not None]
    assert numbers == list(range(len(NAMES)))
    assert sorted(compiled) == sorted(
        [(name.partition(".")[2], "void()") for name in NAMES] + [("kernel_0", "void(int64)")]
    )


def test_a_child_that_dies_is_made_up_for(compiled: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """All tickets are left to this process, which begins at the end of the list."""
    monkeypatch.setattr(warm_up.sys, "executable", "/bin/false")
    reported: list[tuple[int, int, str]] = []
    assert warm_up._share(NAMES, lambda *one: reported.append(one))
    assert [name for name, text in compiled if text == "void()"] == [name.partition(".")[2] for name in reversed(NAMES)]
    assert [done for done, _, _ in reported] == [*range(len(NAMES)), len(NAMES) - 1]


def test_an_interrupted_parent_leaves_no_tickets(
    compiled: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child then ends after the kernel it is at."""
    left: list[bytes] = []

    class Child:
        def __init__(self, arguments: list[str], pass_fds: list[int], **_: Any) -> None:
            self.tickets = os.dup(pass_fds[0])
            children.append(self)

    children: list[Child] = []
    monkeypatch.setattr(subprocess, "Popen", Child)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        warm_up._share(NAMES, interrupt)
    left.append(os.read(children[0].tickets, 100))
    os.close(children[0].tickets)
    assert left == [b""] and compiled == []


def test_few_kernels_need_no_child(compiled: list[tuple[str, str]]) -> None:
    assert not warm_up._share(NAMES[: warm_up.SHARED_FROM - 1], False)
    assert compiled == []


def test_every_kernel_has_its_place_and_is_then_in_the_cache() -> None:
    stepmask.warm_up()
    package = [(d, s) for d, s in _numba.REGISTRY if d.__module__.startswith("stepmask.")]
    assert [warm_up._name(d) for d, s in package if not warm_up._is_cached(d, s)] == []
    assert not any(warm_up._is_cached(d, "void(int8)") for d, _ in package)
    names = warm_up._in_order(d for d, _ in package)
    assert sorted(names) == sorted({warm_up._name(d) for d, _ in package})
    modules = list(dict.fromkeys(f".{name.partition('.')[2].rpartition('.')[0]}" for name in names))
    assert tuple(modules[: len(warm_up.FIRST_IN_CHILD)]) == warm_up.FIRST_IN_CHILD
    assert tuple(modules[: -len(warm_up.FIRST_HERE) - 1 : -1]) == warm_up.FIRST_HERE


@pytest.fixture
def cached_elsewhere(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))


def declared(function: Callable[..., Any], signature: str) -> Any:
    kernel = _numba.kernel(signature)(function)
    _numba.REGISTRY.pop()
    return kernel


@pytest.mark.usefixtures("cached_elsewhere")
def test_compiling_leaves_numba_and_python_as_they_were() -> None:
    replaced = [(BaseFunction, "get_call_type"), (base, "_has_loc"), (ir.Inst, "_rec_list_vars")]
    replaced += [(event, "start_event"), (event, "end_event")]

    def state() -> list[Any]:
        return [gc.get_threshold(), *(getattr(holder, name) for holder, name in replaced)]

    before = state()
    seen: list[Any] = []

    def twice(x):  # type: ignore[no-untyped-def]
        return x + x

    def wrong(x):  # type: ignore[no-untyped-def]
        return x.nothing

    kernel = declared(twice, "int64(int64)")
    _numba.compile_kernel(kernel, "int64(int64)")
    assert kernel(4) == 8
    with _compiler.cheap_compiler():
        seen += state()
    with pytest.raises(numba.TypingError):
        _numba.compile_kernel(declared(wrong, "int64(int64)"), "int64(int64)")
    assert seen[0][0] == _compiler.COLLECT_EVERY
    assert all(now is not old for now, old in zip(seen[1:], before[1:], strict=True))
    assert state() == before


@pytest.mark.usefixtures("cached_elsewhere")
def test_operations_are_remembered_by_all_their_types() -> None:
    """The same operation on other types, or on numbers known beforehand, is another."""

    def mixed(a, b, values):  # type: ignore[no-untyped-def]
        return a // 2 + b * 2 + (a + b) + values[1] + (2 + 3) + (a > 1) + (b > 1)

    expected = mixed(7, 2.5, [1.25, 2.25])
    signatures = ["float64(int64, float64, float64[::1])", "float64(float64, int64, float32[::1])"]
    first, second = (declared(mixed, signature) for signature in signatures)
    for kernel, signature in ((first, signatures[0]), (second, signatures[1])):
        _numba.compile_kernel(kernel, signature)
    values = _numba.np.array([1.25, 2.25])
    assert first(7, 2.5, values) == expected
    assert second(7.5, 2, values.astype(_numba.np.float32)) == mixed(7.5, 2, [1.25, 2.25])


def test_nothing_is_compiled_once_all_is() -> None:
    """A call with types that were not declared takes the declared ones, or is refused: compiling it would take seconds,
    and the step would wait for them."""
    stepmask.warm_up()
    declared: dict[Any, int] = {}
    for dispatcher, _ in _numba.REGISTRY:
        declared[dispatcher] = declared.get(dispatcher, 0) + 1
    kernels = {d: n for d, n in declared.items() if d.__module__.startswith("stepmask.")}
    for kernel, signatures in kernels.items():
        assert len(kernel.signatures) == signatures, kernel
        with pytest.raises(TypeError):
            kernel(*["text"] * len(kernel.signatures[0]))
        assert len(kernel.signatures) == signatures
    assert len(kernels) > 30
