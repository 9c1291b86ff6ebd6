"""From expression to automaton: languages against brute force, the form chosen, and limits."""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import ReferenceMatcher, expression_matches

from stepmask.grammar import literals, repeats
from stepmask.grammar.assemble import Frame
from stepmask.grammar.automaton import (
    CALLS,
    COUNTER,
    FINITE,
    H_LAZY_STATES,
    LAZY,
    LAZY_FRAME,
    PLAIN,
    SECTIONS,
    TOKENS,
    Automaton,
)
from stepmask.grammar.build import build_positions
from stepmask.grammar.compile import compile_grammar
from stepmask.grammar.determinize import determinize
from stepmask.grammar.errors import GrammarError, GrammarTooLarge, GrammarUnsatisfiable
from stepmask.grammar.expression import (
    ANY_CHARACTER,
    EMPTY,
    NOTHING,
    Alternation,
    ByteAutomaton,
    Bytes,
    Characters,
    Complement,
    EndAnchor,
    Expression,
    Grammar,
    Intersection,
    Lookahead,
    Reference,
    Repeat,
    Sequence,
    Source,
    StartAnchor,
    Token,
)
from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex
from stepmask.grammar.repeats import unproved

AB = Characters(((97, 98),))
LOWER = Characters(((97, 122),))
LETTERS = [b"a", b"b", "é".encode(), b"c"]
TEXTS = [b"".join(letters) for n in range(5) for letters in itertools.product(LETTERS, repeat=n)]


def compiled(expression: Expression, limits: Limits | None = None) -> Automaton:
    return compile_grammar(Grammar("test", "", {"start": expression}), limits or Limits())


def matches(automaton: Automaton, data: bytes) -> bool:
    matcher = ReferenceMatcher(automaton)
    return matcher.accept(data) and matcher.is_complete


COUNTED = Limits(max_unrolled_positions=2)


@contextmanager
def counters_of_any_size() -> Iterator[None]:
    """With `COUNTED`, make even small repeats candidates for counter frames."""
    with (
        patch.object(repeats, "_LEAST_WIDE_BOUND", 2),
        patch.object(repeats, "is_wide", lambda node: isinstance(node, Characters)),
    ):
        yield


def automaton(final: bytes, *edges: tuple[int, int, int, int]) -> ByteAutomaton:
    return ByteAutomaton(struct.pack(f"{4 * len(edges)}i", *itertools.chain(*edges)), final)


#: a*b or a*, back to its start; (a|ab|b)c, non-deterministic; nothing.
AUTOMATA = (
    automaton(b"\1\1", (0, 97, 97, 0), (0, 98, 98, 1)),
    automaton(b"\0\0\0\1", (0, 97, 98, 2), (0, 97, 97, 1), (1, 98, 98, 2), (2, 99, 99, 3)),
    automaton(b"\0\0", (0, 97, 97, 1), (1, 97, 97, 0)),
)
plain_leaves = st.sampled_from(
    [
        *(Bytes(text.encode()) for text in ("a", "b", "é", "ab")),
        *(EMPTY, AB, Characters(((98, 99), (0xE8, 0xEA)))),
        *AUTOMATA,
    ]
)


@st.composite
def bounds(draw: st.DrawFn) -> tuple[int, int | None]:
    low = draw(st.integers(0, 3))
    return low, draw(st.sampled_from([None, low, low + 1, low + 2, low + 5]))


def expressions(leaves: st.SearchStrategy[Expression], closed: bool = True) -> st.SearchStrategy[Expression]:
    """Expressions over `LETTERS`; `closed`: with intersections and complements of `plain_leaves`."""

    def extend(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        parts = st.lists(inner, max_size=3).map(tuple)
        options = [
            parts.map(Sequence),
            parts.map(Alternation),
            st.tuples(inner, bounds()).map(lambda pair: Repeat(pair[0], *pair[1])),
        ]
        return st.one_of(options)

    result = st.recursive(leaves, extend, max_leaves=8)
    if not closed:
        return result
    regular = expressions(plain_leaves, closed=False)
    operations = st.one_of(
        st.tuples(regular, regular).map(Intersection),
        regular.map(Complement),
        st.tuples(regular.map(Complement), regular).map(Intersection),
    )
    return st.one_of(result, expressions(st.one_of(leaves, operations), closed=False))


contextual_leaves = st.one_of(
    plain_leaves,
    st.sampled_from([StartAnchor(), EndAnchor()]),
    st.builds(
        Lookahead,
        expressions(st.one_of(plain_leaves, st.sampled_from([StartAnchor(), EndAnchor()])), closed=False),
        st.booleans(),
    ),
)


def check_language(expression: Expression, limits: Limits) -> None:
    """Complete texts are those of the language, and their beginnings are alive; returns nothing, raises if not."""
    wanted = {text for text in TEXTS if expression_matches(expression, text)}
    try:
        automaton = compiled(expression, limits)
    except GrammarUnsatisfiable:
        assert not wanted
        return
    alive = {b"": ReferenceMatcher(automaton)}
    for text in TEXTS[1:]:
        before = alive.get(text[:-2] if text.endswith("é".encode()) else text[:-1])
        matcher = before.copy() if before else None
        if matcher is None or not matcher.accept(text[-2:] if text.endswith("é".encode()) else text[-1:]):
            assert text not in wanted
        else:
            alive[text] = matcher
    assert {text for text, matcher in alive.items() if matcher.is_complete} == wanted
    if not automaton.flags & LAZY:
        assert max(len(matcher.heads) for matcher in alive.values()) <= 16
        assert_distances(automaton)


def assert_distances(automaton: Automaton) -> None:
    """`state_distance` is the fewest bytes to a final state: final ones have 0, others one edge more than the best."""
    distance = automaton["state_distance"].tolist()
    matcher = ReferenceMatcher(automaton)
    for state in range(automaton.n_states):
        steps = [1 + distance[to] for byte in range(256) if (to := matcher.next_state(state, byte)) >= 0]
        for edge in range(automaton["call_start"][state], automaton["call_start"][state + 1]):
            length = int(automaton["frame_length"][automaton["call_frame"][edge]])
            steps.append(length + distance[automaton["call_target"][edge]])
        final = automaton["state_flags"][state] & 1
        assert distance[state] == (0 if final else min(steps))  # every state leads to a final one
    root_length = int(automaton["frame_length"][0])
    assert root_length == distance[int(automaton["frame_start"][0])]


@given(expressions(plain_leaves))
def test_language_is_that_of_the_expression(expression: Expression) -> None:
    check_language(expression, Limits())


@given(expressions(contextual_leaves, closed=False))
def test_anchors_and_lookaheads_hold_where_they_should(expression: Expression) -> None:
    check_language(expression, Limits())


@given(expressions(plain_leaves))
def test_counter_frames_change_nothing(expression: Expression) -> None:
    with counters_of_any_size():
        check_language(expression, COUNTED)


@given(expressions(contextual_leaves, closed=False))
def test_lazy_automata_change_nothing(expression: Expression) -> None:
    check_language(expression, Limits(max_dfa_states=1))


@given(expressions(plain_leaves), expressions(plain_leaves))
def test_equal_languages_have_equal_automata(left: Expression, right: Expression) -> None:
    """(L | R) and its rewriting by De Morgan are one minimal DFA."""
    union = Alternation((left, right))
    turned = Complement(Intersection((Complement(left), Complement(right))))
    try:
        automaton = compiled(union)
    except GrammarUnsatisfiable:
        with pytest.raises(GrammarUnsatisfiable):
            compiled(turned)
        return
    if automaton.flags & CALLS:
        return
    assert_equal_but_loops(automaton, compiled(turned))


def assert_equal_but_loops(one: Automaton, other: Automaton) -> None:
    for name, _ in SECTIONS:
        if name not in ("state_loop", "loop_start", "loop_ranges"):
            assert np.array_equal(one[name], other[name]), name


@pytest.mark.parametrize(
    ("pattern", "frame"),
    [
        (r"[^a]{1,5000}", (1, 5000)),
        (r".{0,10000}", (1, 10000)),
        (r"\w{1,1000}", (1, 1000)),
        (r"[a-z]{5000}", (5000, 5000)),
        (r"\p{L}{1,200}", (1, 200)),
        (r"(?:\S+\s+){0,199}\S+", (1, 199)),
        (r"(a{0,100}){0,100}", (1, 10000)),
        (r"(?:ab){300,}", (300, -1)),
        (r"[a-z]{1,8}(?:-[a-z]{1,8})*", (1, 8)),
        (r'"(?:[^"\\]|\\.){0,500}"', (1, 500)),
        (r"[a-z]{5000}[a-z0-9]{0,30}", (1, 30)),
    ],
)
def test_big_repeats_are_counter_frames(pattern: str, frame: tuple[int, int]) -> None:
    automaton = compile_grammar(regex(pattern))
    assert automaton.flags & CALLS
    assert automaton["frame_kind"][0] == PLAIN
    frames = zip(automaton["frame_minimum"].tolist(), automaton["frame_maximum"].tolist(), strict=True)
    assert frame in list(frames)[1:]
    assert automaton.n_states < 400


def test_counters_nest() -> None:
    automaton = compile_grammar(regex(r"(?:(?:[a-z]{1,200},){300,};)*X"))
    assert automaton["frame_kind"].tolist() == [PLAIN, COUNTER, COUNTER]
    item = b"ab,"
    assert matches(automaton, item * 300 + b";" + item * 301 + b";X")
    assert not matches(automaton, item * 299 + b";X")
    assert not matches(automaton, b"a" * 201 + b"," + item * 300 + b";X")
    # 300 times "a,", then ";": as far away from the end as the frames say.
    assert automaton["frame_length"].tolist() == [1, 600, 1]


@pytest.mark.parametrize("pattern", [r"(foo|bar|foobar){1,1000}", r".*[ab].{16}"])
def test_what_cannot_be_counted_or_determinised_is_lazy(pattern: str) -> None:
    automaton = compile_grammar(regex(pattern))
    assert automaton.flags == LAZY
    assert automaton["frame_kind"].tolist() == [LAZY_FRAME]
    assert automaton.n_states == 0 and automaton.header[H_LAZY_STATES] > 0
    assert automaton["frame_start"].tolist() == [0]


@pytest.mark.parametrize(
    ("pattern", "shortest", "longest"),
    [
        (r"[a-z]{1,300}[a-z]{1,400}", 2, 700),
        (r"[a-z]{1,300}x?[a-z]{1,40}", 2, 340),
        (r"(?:[a-z]{1,60} ?){1,5}z", 2, 301),
    ],
)
def test_ambiguous_repeats_stay_exact_with_few_heads(pattern: str, shortest: int, longest: int) -> None:
    """Two counters in a row, or one in another, would need a head for each way to share the text between them."""
    automaton = compile_grammar(regex(pattern))
    matcher = ReferenceMatcher(automaton)
    for count in range(1, longest + 1):
        assert matcher.accept(b"z")
        assert matcher.is_complete == (count >= shortest)
        assert automaton.flags & LAZY or len(matcher.heads) <= 8
    assert not matcher.accept(b"z")


@given(st.lists(st.text("abc", max_size=5).map(str.encode), min_size=1, max_size=60))
def test_choices_take_a_short_cut_to_the_same_bytes(options: list[bytes]) -> None:
    quick = literals.compile_literals(options, Limits())
    general = compiled(Alternation(tuple(Bytes(option) for option in options)))
    assert bytes(quick.buffer) == bytes(general.buffer)


def test_a_choice_may_have_more_states_than_other_grammars() -> None:
    options = [hashlib.sha256(bytes([n & 255, n >> 8])).digest()[:20] for n in range(3000)]
    grammar = Alternation(tuple(Bytes(option) for option in options))
    automaton = compiled(grammar, Limits(max_dfa_states=10))
    assert automaton.flags & FINITE
    assert automaton["frame_length"].tolist() == [20]
    assert all(matches(automaton, option) for option in options[::100])
    assert not matches(automaton, options[0][:-1])
    with pytest.raises(GrammarTooLarge) as error:
        compiled(grammar, Limits(max_choice_states=1000))
    assert error.value.limit == "max_choice_states"


def test_tokens_are_edges_of_their_own() -> None:
    automaton = compiled(Sequence((Token("<call>"), Repeat(AB, 1, None), Alternation((Token(7), Bytes(b"c"))))))
    assert automaton.flags & TOKENS
    assert automaton.metadata["tokens"] == ["<call>", 7]
    matcher = ReferenceMatcher(automaton)
    assert not matcher.accept_byte(97) and not matcher.accept_token(7)
    assert matcher.accept_token("<call>") and matcher.accept(b"ab")
    other = matcher.copy()
    assert matcher.accept_token(7) and matcher.is_complete
    assert not other.accept_token("<call>") and other.accept(b"c") and other.is_complete


def test_a_token_ends_what_a_lookahead_can_see() -> None:
    after = Alternation((Token("t"), Bytes(b"b")))
    positive = compiled(Sequence((Lookahead(Bytes(b"ab"), negative=False), Bytes(b"a"), after)))
    negative = compiled(Sequence((Lookahead(Bytes(b"ab"), negative=True), Bytes(b"a"), after)))
    for automaton, takes_token in ((positive, False), (negative, True)):
        matcher = ReferenceMatcher(automaton)
        assert matcher.accept(b"a")
        assert matcher.copy().accept_token("t") == takes_token
        assert matcher.accept(b"b") != takes_token


def test_a_lazy_automaton_cannot_have_tokens() -> None:
    hard = Sequence((Token("t"), regex(r".*[ab].{16}").rules["start"]))
    with pytest.raises(GrammarTooLarge, match="token"):
        compiled(hard)


@pytest.mark.parametrize(
    ("expression", "alive"),
    [
        (Sequence((Bytes(b"a"), EndAnchor(), Bytes(b"b"))), False),
        (Sequence((Bytes(b"a"), StartAnchor())), False),
        (Sequence((Bytes(b"a"), EndAnchor(), Repeat(Bytes(b"b"), 0, None))), True),
        (Sequence((Repeat(Bytes(b"a"), 0, None), StartAnchor(), Bytes(b"b"))), True),
        (Lookahead(NOTHING, negative=False), False),
        (Sequence((Lookahead(EMPTY, negative=True), Bytes(b"a"))), False),
        (Intersection((Bytes(b"a"), Bytes(b"b"))), False),
        (Complement(Repeat(ANY_CHARACTER, 0, None)), False),
        (NOTHING, False),
        (Characters(()), False),
        (Repeat(NOTHING, 1, None), False),
        (Repeat(NOTHING, 0, None), True),
    ],
)
def test_empty_languages_are_refused(expression: Expression, alive: bool) -> None:
    if alive:
        compiled(expression)
        return
    with pytest.raises(GrammarUnsatisfiable):
        compiled(expression)


def test_intersections_are_found_empty_without_determinising() -> None:
    """Either DFA alone would have two million states."""
    one, two = (regex(pattern).rules["start"] for pattern in (r".*[ab].{20}", r".*[cd].{20}"))
    with pytest.raises(GrammarUnsatisfiable):
        compiled(Intersection((one, two)), Limits(max_product_states=50_000))


def test_operands_are_languages_of_their_own() -> None:
    """In an operand, anchors are the ends of the operand's own text, so that a searched pattern can be embedded."""
    inner = Intersection((Sequence((StartAnchor(), Repeat(AB, 0, None), EndAnchor())),))
    automaton = compiled(Sequence((Bytes(b"<"), inner, Bytes(b">"))))
    assert matches(automaton, b"<ab>") and not matches(automaton, b"ab")


def test_rules_are_inlined() -> None:
    rules = {
        "start": Sequence((Reference("pair"), Reference("pair"))),
        "pair": Alternation((Bytes(b"a"), Bytes(b"bc"))),
    }
    automaton = compile_grammar(Grammar("test", "", rules))
    assert matches(automaton, b"bca") and not matches(automaton, b"a")
    with pytest.raises(GrammarError):
        compile_grammar(Grammar("test", "", {"start": Reference("none")}))


def test_limits_name_the_construct_and_its_place() -> None:
    big = Repeat(Alternation((Bytes(b"aa"), Bytes(b"a"))), 1, 5000, source=Source("(aa|a){1,5000}", "column 7"))
    with pytest.raises(GrammarTooLarge, match=r"\(aa\|a\)\{1,5000\}.*column 7.*max_positions"):
        compiled(Sequence((Bytes(b"x"), big)), Limits(max_positions=1000))
    with pytest.raises(GrammarTooLarge) as error:
        compiled(Complement(regex(r".*[ab].{16}").rules["start"]), Limits(max_complement_states=100))
    assert error.value.limit == "max_complement_states"
    with pytest.raises(GrammarTooLarge) as error:
        compiled(Intersection((Repeat(AB, 0, 500), Repeat(AB, 0, 400))), Limits(max_product_states=100))
    assert error.value.limit == "max_product_states"
    with pytest.raises(GrammarTooLarge) as error:
        compiled(Repeat(AB, 0, 2_000_000))
    assert error.value.limit == "max_repeat"


def test_very_deep_expressions_are_refused_not_crashed_on() -> None:
    expression: Expression = Bytes(b"a")
    for _ in range(5000):
        expression = Repeat(Sequence((Bytes(b"a"), expression)), 0, 1)
    with pytest.raises(GrammarTooLarge) as error:
        compiled(expression)
    assert error.value.limit == "max_depth"


def test_loops_are_states_that_stay_alive_on_a_class() -> None:
    automaton = compile_grammar(regex(r'"[^"\\]*"'))
    matcher = ReferenceMatcher(automaton)
    matcher.accept(b'"')
    ((state, _),) = next(iter(matcher.heads))
    index = int(automaton["state_loop"][state])
    assert index >= 0
    start, end = automaton["loop_start"][index : index + 2]
    ranges = automaton["loop_ranges"].reshape(-1, 2)[start:end].tolist()
    assert ranges == [[0, 33], [35, 91], [93, 0xD7FF], [0xE000, 0x10FFFF]]
    for text in ("a", "é", "€", "\U0001f600"):
        assert matcher.accept(text.encode()) and matcher.heads == {((state, 0),)}


@given(expressions(st.one_of(plain_leaves, st.just(LOWER))), st.text("abcdefé", max_size=6))
def test_loop_states_survive_every_text_of_their_class(expression: Expression, text: str) -> None:
    with counters_of_any_size():
        try:
            automaton = compiled(expression, COUNTED)
        except GrammarUnsatisfiable:
            return
    matcher = ReferenceMatcher(automaton)
    for state in range(automaton.n_states):
        frame = int(automaton["state_frame"][state])
        index = int(automaton["state_loop"][state])
        if index < 0 or automaton["frame_kind"][frame] == COUNTER:
            continue
        start, end = automaton["loop_start"][index : index + 2]
        ranges = automaton["loop_ranges"].reshape(-1, 2)[start:end].tolist()
        at = state
        for byte in "".join(c for c in text if any(low <= ord(c) <= high for low, high in ranges)).encode():
            at = matcher.next_state(at, byte)
            assert at >= 0


def test_finite_languages_are_marked() -> None:
    assert compile_grammar(regex("a?(b|cd){2}")).flags & FINITE
    assert not compile_grammar(regex("a+")).flags & FINITE
    assert not compile_grammar(regex(r"\w{1,1000}")).flags & FINITE  # finite, but not one frame


def test_where_nothing_is_counted_no_table_is_made() -> None:
    """Over all bytes that of a large automaton takes hundreds of megabytes."""
    dfa = determinize(build_positions(Bytes(b"abc"), Limits()), 256, 10, 100)
    assert dfa is not None
    assert unproved([Frame(dfa)], {}) == []
    assert "delta" not in vars(dfa)
