"""What is found out about the loops of a grammar when it meets a vocabulary, against reading every code point."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loop_oracles import PositionSets, exact_states
from loop_oracles import lazy_loops as plain_lazy_loops

from stepmask.grammar.automaton import LAZY, SPREAD, Automaton
from stepmask.grammar.compile import compile_grammar
from stepmask.grammar.errors import GrammarTooLarge, GrammarUnsatisfiable
from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex
from stepmask.masks.describe import describe
from stepmask.masks.layout import G_FIELDS, G_LOOP_EXACT
from stepmask.masks.memory import Block
from stepmask.masks.prepare import lazy_loops
from stepmask.masks.warm_up import warm_up

CLASSES = [
    ".", "[^a]", '[^"\\\\]', "\\w", "[a-z]", "[à-ÿ]", "[^\\x00-\\x7f]", "[\\u0900-\\u0fff]", "\\p{L}",
    "[^\\U00010000-\\U0010ffff]", "[\\x80-\\U0010ffff]", "[a-z\\x80-\\U0010ffff]",
]  # fmt: skip
atoms = st.sampled_from([*CLASSES, "a", "é", "(?:b|é)", "中"])
suffixes = st.sampled_from(["", "*", "+", "{1,3}", "{2,40}", "{0,900}"])


@st.composite
def patterns(draw: Any) -> str:
    """Sequences of repeated classes, some of them in a repeated group or an alternative."""

    def sequence(parts: int) -> str:
        return "".join(draw(atoms) + draw(suffixes) for _ in range(draw(st.integers(1, parts))))

    text = sequence(3)
    form = draw(st.sampled_from(["{}", "(?:{}){{1,50}}", "(?:{}|{other})", "{}(?:{other}){{0,99}}x"]))
    return str(form.format(text, other=sequence(2)))


def compiled(pattern: str, limits: Limits) -> Automaton | None:
    try:
        return compile_grammar(regex(pattern), limits)
    except (GrammarTooLarge, GrammarUnsatisfiable):
        return None


def check_exact(automaton: Automaton) -> int:
    """How many states are exact."""
    warm_up()
    block = Block(G_FIELDS)
    if not describe(block, automaton).size:
        return 0
    exact, expected = block.arrays[G_LOOP_EXACT].astype(bool), np.array(exact_states(automaton))
    spread = automaton["state_flags"] & SPREAD != 0
    assert exact[~spread].tolist() == expected[~spread].tolist()
    # Of a state whose class leads to others it is said of those as well.
    assert not (exact & ~expected).any()
    return int(exact.sum())


@settings(max_examples=25)
@given(patterns())
def test_exact_loops_are_those_whose_class_is_all_that_may_come_next(pattern: str) -> None:
    automaton = compiled(pattern, Limits(max_unrolled_positions=2))
    if automaton is not None and not automaton.flags & LAZY:
        check_exact(automaton)


@pytest.mark.parametrize(
    ("pattern", "some"), [('"[^"]*"', True), ("[à-ÿ]*é?x", True), ("[à-ÿ]*中", False), ("(?:[^a]{1,900}a)*", True)]
)
def test_some_loops_are_exact_and_some_are_not(pattern: str, some: bool) -> None:
    """The test above meets both."""
    assert (check_exact(compile_grammar(regex(pattern))) > 0) == some


def found_lazy(automaton: Automaton) -> list[tuple[set[int], bool]]:
    warm_up()
    n = len(automaton["lazy_edge_start"]) - 1
    words = -(-n // 64)
    loops = np.zeros((n, 3), np.int64)
    scratch = np.zeros((5, words), np.int64)
    lazy_loops(automaton.address, words, scratch.ctypes.data, loops)
    return [
        ({byte for byte in range(128) if int(ascii_words[byte >> 6]) >> (byte & 63) & 1}, bool(ascii_words[2]))
        for ascii_words in loops
    ]


@settings(max_examples=25)
@given(patterns(), st.data())
def test_lazy_loops_are_what_leads_back(pattern: str, data: Any) -> None:
    automaton = compiled(pattern, Limits(max_dfa_states=1, max_unrolled_positions=100))
    if automaton is None or not automaton.flags & LAZY:
        return
    found = found_lazy(automaton)
    assert found == plain_lazy_loops(automaton)
    # What they are for: no string over a position's loop ends where the position stands.
    sets = PositionSets(automaton)
    for position, (letters, text) in enumerate(found):
        choices = [bytes([byte]) for byte in sorted(letters)]
        choices += ["é".encode(), "中".encode(), "\U0001f600".encode()] if text else []
        if choices:
            at = frozenset({position})
            for byte in b"".join(data.draw(st.lists(st.sampled_from(choices), max_size=6))):
                at = sets.after(at, byte)
                assert at


@pytest.mark.parametrize("pattern", [".*[ab].{5}", "(?:é|[^\\x00-\\x7f])*a[à-ÿ]*.{3}", "[a-z]*x?[a-z]*.*"])
def test_lazy_loops_of_these(pattern: str) -> None:
    automaton = compile_grammar(regex(pattern), Limits(max_dfa_states=1))
    assert automaton.flags & LAZY
    found = found_lazy(automaton)
    assert found == plain_lazy_loops(automaton)
    assert any(letters for letters, _ in found) or "é" in pattern
