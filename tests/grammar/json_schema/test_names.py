"""Property names that are none of some: against looking them up."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from stepmask.grammar.build import build_positions
from stepmask.grammar.determinize import Dfa, determinize
from stepmask.grammar.json_schema.names import other_names
from stepmask.grammar.limits import Limits
from stepmask.grammar.simplify import Simplifier

#: Names of plain characters alone are a table of their own, those with others are not.
PLAIN = st.text(st.sampled_from("ab ~z"), max_size=4)
ANY = st.text(st.sampled_from('ab"\\é\n\x01😀'), max_size=3)


def table(names: list[str]) -> Dfa:
    limits = Limits()
    expression = Simplifier({}, limits).simplify(other_names(names, "canonical", True))
    dfa = determinize(build_positions(expression, limits), 256, 10_000, 1_000_000)
    assert dfa is not None
    return dfa


def reads(dfa: Dfa, text: bytes) -> bool:
    state = 0
    for byte in text:
        state = int(dfa.delta[state, dfa.class_of[byte]])
        if state < 0:
            return False
    return bool(dfa.final[state])


@settings(max_examples=60, deadline=None)
@given(st.lists(PLAIN, max_size=6), st.lists(ANY, max_size=3), st.lists(st.one_of(PLAIN, ANY), max_size=20))
def test_all_names_but_some(plain: list[str], others: list[str], asked: list[str]) -> None:
    for names in (plain, plain + others):
        dfa = table(names)
        for name in [*names, *(name[:-1] for name in names), *(name + "b" for name in names), *asked]:
            text = json.dumps(name, ensure_ascii=False).encode()
            assert reads(dfa, text) == (name not in names), (names, name)
            assert not reads(dfa, text[:-1]) and not reads(dfa, text + b'"')


def test_the_table_of_plain_names_is_that_of_the_expression() -> None:
    names = ["", "a", "ab", "abc", "b c", "~"]
    plain, spelled = table(names), table([*names, "\x7f"])
    assert reads(plain, b'"\x7f"') and not reads(spelled, b'"\x7f"')
    for dfa in (plain, spelled):
        assert [reads(dfa, text) for text in (b'""', b'"abd"', b'"\\u0001"', b'"\\u0009"', b'"\\t"', b'"\t"')] == [
            False, True, True, False, True, False
        ]  # fmt: skip
