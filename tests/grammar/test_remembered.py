"""What is remembered, and what is forgotten."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from stepmask.grammar.remembered import Remembered


def test_the_least_recently_used_is_forgotten() -> None:
    remembered: Remembered[str, object] = Remembered(2, 100)
    values = [object() for _ in range(3)]
    remembered.add("a", values[0], 1)
    remembered.add("b", values[1], 1)
    assert remembered.find("a") is values[0]
    remembered.add("c", values[2], 1)
    assert remembered.find("b") is None
    assert remembered.find("a") is values[0] and remembered.find("c") is values[2]
    assert remembered.made == 3


@given(
    st.integers(1, 4),
    st.integers(1, 30),
    st.lists(st.tuples(st.booleans(), st.integers(0, 6), st.integers(0, 20)), max_size=40),
)
def test_as_a_list_that_is_cut(entries: int, most: int, asked: list[tuple[bool, int, int]]) -> None:
    remembered: Remembered[int, tuple[int, int]] = Remembered(entries, most)
    known: OrderedDict[int, tuple[int, int]] = OrderedDict()
    for adds, key, nbytes in asked:
        if adds:
            known.setdefault(key, (key, nbytes))
            remembered.add(key, (key, nbytes), nbytes)
            while len(known) > entries or (sum(size for _, size in known.values()) > most and len(known) > 1):
                known.popitem(last=False)
        else:
            assert remembered.find(key) == known.get(key)
            if key in known:
                known.move_to_end(key)
    for key in range(7):
        assert remembered.find(key) == known.get(key)
