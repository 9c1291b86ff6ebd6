"""Rules solved and inlined: the same language with fewer frames, and what recursive grammars may not hold."""

from __future__ import annotations

import random

import pytest
from earley import Earley
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from random_rules import BOTH_LIMITS, FRAMES, SOLVED, Rules, alt, grammar, is_language, opt, ref, rep, rules, seq

from stepmask.grammar.automaton import COUNTER, H_N_STATES, RECURSIVE, Automaton
from stepmask.grammar.compile import compile_grammar
from stepmask.grammar.errors import GrammarError, GrammarTooLarge, GrammarUnsatisfiable, GrammarUnsupported
from stepmask.grammar.expression import (
    Bytes,
    Characters,
    Complement,
    EndAnchor,
    Expression,
    Intersection,
    Lookahead,
    Reference,
    Repeat,
    Source,
    StartAnchor,
)
from stepmask.grammar.limits import Limits
from stepmask.grammar.rule_graph import needed_rules, references
from stepmask.grammar.rules import reduced_rules

BOTH = pytest.mark.parametrize("limits", BOTH_LIMITS, ids=["frames", "solved"])


def reduced(found: Rules, limits: Limits = SOLVED, start: str = "S") -> dict[str, Expression]:
    return reduced_rules(found, start, *needed_rules(found, start), limits)


def compiled(found: Rules, limits: Limits = SOLVED) -> Automaton:
    return compile_grammar(grammar(found), limits)


def frames(found: Rules, limits: Limits = SOLVED) -> int:
    return len(compiled(found, limits)["frame_start"])


def equal_languages(first: Rules, second: Rules, rng: random.Random, texts: int = 12, length: int = 9) -> None:
    """Random texts, and at each place all bytes that follow, are alike for both."""
    one, two = Earley(first, "S"), Earley(second, "S")
    begin, other = one.start(), two.start()
    assert (begin is None) == (other is None)
    for _ in range(texts if begin else 0):
        state, twin = begin, other
        for _ in range(length):
            assert state is not None and twin is not None
            assert state.complete == twin.complete
            # Names of tokens are numbered as each grammar meets them.
            symbols = {s for s in one.live_symbols(state) if s < 256}
            assert symbols == {s for s in two.live_symbols(twin) if s < 256}
            if not symbols:
                break
            byte = rng.choice(sorted(symbols))
            state, twin = one.step(state, byte), two.step(twin, byte)


@given(rules(tokens=True, members=True), st.integers(0, 2**32 - 1))
def test_reduced_rules_keep_the_language(found: Rules, seed: int) -> None:
    assume(is_language(found))
    for limits in (*BOTH_LIMITS, Limits(max_inlined_positions=10)):
        kept = reduced(found, limits)
        assert "S" in kept
        equal_languages(found, kept, random.Random(seed))


def test_an_intersection_beside_a_rule_itself() -> None:
    """It matches more than the empty string, whose DFA begins where it comes back to."""
    pairs = Repeat(seq(Characters(((97, 98),)), b"b"), 0, None)
    both = Intersection((Repeat(Characters(((97, 98),)), 0, None), pairs))
    found: Rules = {"S": ref("T"), "T": alt(ref("T"), both)}
    for seed in range(5):
        equal_languages(found, reduced(found, SOLVED), random.Random(seed))


@settings(suppress_health_check=[HealthCheck.filter_too_much])  # most match something
@given(rules(members=True))
def test_what_matches_nothing_is_refused(found: Rules) -> None:
    assume(not is_language(found))
    for limits in BOTH_LIMITS:
        with pytest.raises(GrammarUnsatisfiable):
            compiled(found, limits)


@given(rules(tokens=True, members=True))
def test_rules_left_over_are_needed_and_match_something(found: Rules) -> None:
    assume(is_language(found))
    for limits in BOTH_LIMITS:
        kept = reduced(found, limits)
        used = {name for body in kept.values() for name in references(body)}
        assert set(kept) == used | {"S"}
        for name in kept:
            assert Earley(kept, name).start() is not None


# ---------------------------------------------------------------------- fewer frames


NUMBER = rep(Characters(((0x30, 0x39),)), 1)
ARITHMETIC: Rules = {
    "S": alt(seq(ref("S"), b"+", ref("T")), ref("T")),
    "T": alt(seq(ref("T"), b"*", ref("U")), ref("U")),
    "U": alt(seq(b"(", ref("S"), b")"), ref("V")),
    "V": NUMBER,
}


def test_arithmetic_is_one_frame_that_calls_itself() -> None:
    assert frames(ARITHMETIC) == 1
    automaton = compiled(ARITHMETIC)
    assert automaton.flags & RECURSIVE and set(automaton["call_frame"].tolist()) == {0}
    assert frames(ARITHMETIC, FRAMES) == 3, "numbers are no rule that calls itself"
    equal_languages(ARITHMETIC, reduced(ARITHMETIC), random.Random(0), texts=60, length=20)


REGULAR = {
    "left recursive": {"S": alt(seq(ref("S"), b"a"), b"b")},
    "right recursive": {"S": alt(seq(b"a", ref("S")), b"b")},
    "at both ends": {"S": alt(seq(ref("S"), b",", ref("S")), seq(ref("S"), b"!"), seq(b"-", ref("S")), b"a")},
    "S S": {"S": alt(seq(ref("S"), ref("S")), b"a")},
    "mutually right linear": {
        "S": alt(seq(b"a", ref("T")), b"b"), "T": alt(seq(b"c", ref("U")), seq(b"d", ref("S"))),
        "U": alt(seq(b"e", ref("T")), b"")
    },
    "unit cycle": {"S": alt(ref("T"), b"a"), "T": alt(ref("S"), b"b")},
    "optional": {"S": seq(b"a", opt(ref("S")))},
    "itself alone": {"S": alt(ref("S"), b"a")},
    "nullable": {"S": alt(seq(b"a", ref("S")), b"")},
}  # fmt: skip


@pytest.mark.parametrize("name", REGULAR)
def test_what_is_no_real_recursion_is_a_plain_automaton(name: str) -> None:
    found = REGULAR[name]
    automaton = compiled(found)
    assert not automaton.flags & RECURSIVE and len(automaton["frame_start"]) == 1
    equal_languages(found, reduced(found), random.Random(0), texts=40)


@BOTH
def test_long_chains(limits: Limits) -> None:
    """Unit rules one after the other, around a pair of parentheses and in a circle."""
    n = 400
    chain: Rules = {f"R{i}": ref(f"R{i + 1}") for i in range(n)}
    open_: Rules = {"S": ref("R0"), **chain, f"R{n}": alt(b"a", seq(b"(", ref("S"), b")"))}
    assert frames(open_, limits) == (1 if limits is SOLVED else n + 2)
    circle: Rules = {"S": ref("R0"), **chain, f"R{n}": alt(b"a", seq(b"a", b"b"), ref("S"))}
    assert frames(circle, limits) == (1 if limits is SOLVED else n + 2)
    dead: Rules = {"S": alt(b"x", ref("R0")), **chain, f"R{n}": ref("R0")}
    assert frames(dead, limits) == 1
    equal_languages(open_, reduced(open_, limits), random.Random(0), texts=3)


def test_large_rules_stay_frames() -> None:
    words = alt(*(f"word{i:04}".encode() for i in range(600)))
    found: Rules = {"S": alt(ref("W"), seq(b"(", ref("S"), ref("W"), ref("S"), b")")), "W": words}
    assert frames(found) == 2
    once: Rules = {"S": alt(ref("W"), seq(b"(", ref("S"), b")")), "W": words}
    assert frames(once) == 1, "used once only, it costs nothing to put it there"


def test_repeats_count_as_often_as_they_are_unrolled() -> None:
    body = alt(b"a", seq(b"(", ref("T"), b")"))
    found: Rules = {"S": rep(ref("T"), 900, 1000), "T": body}
    unrolled = Limits(max_unrolled_positions=10**9)
    assert frames(found, unrolled) == 2
    assert 900 < compiled(found, unrolled).header[H_N_STATES] < 1100
    with pytest.raises(GrammarTooLarge):
        compiled(
            {"S": rep(rep(ref("T"), 1, 1000), 1, 1001), "T": rep(body, 2, 3)},
            Limits(max_positions=100_000, max_unrolled_positions=10**9),
        )


# ---------------------------------------------------------------------- counted repeats


def counters(found: Rules, limits: Limits = SOLVED) -> list[tuple[int, int]]:
    """(minimum, maximum) of the frames that count; the automaton must be recursive."""
    automaton = compiled(found, limits)
    assert automaton.flags & RECURSIVE
    chosen = automaton["frame_kind"] == COUNTER
    return sorted(
        zip(automaton["frame_minimum"][chosen].tolist(), automaton["frame_maximum"][chosen].tolist(), strict=True)
    )


LETTERS = Characters(((0x61, 0x7A),))
BLANKS = rep(Characters(((9, 10), (13, 13), (32, 32))), 0, 64)


@BOTH
def test_large_repeats_of_rules_are_counters(limits: Limits) -> None:
    items = rep(seq(b",", BLANKS, ref("S")), 0, 999)
    lists: Rules = {"S": alt(seq(b'"', rep(LETTERS, 5, 100_000), b'"'), seq(b"[", opt(seq(ref("S"), items)), b"]"))}
    assert counters(lists, limits) == [(1, 64), (1, 999), (5, 100_000)]
    assert compiled(lists, limits).n_states < 40
    # Nested ones, an unbounded one, and items that are nullable by rules.
    nested: Rules = {
        "S": alt(b"!", seq(b"(", rep(seq(b"<", rep(ref("S"), 2, 50), b">"), 40, None), rep(ref("T"), 50, 60), b")")),
        "T": alt(b"", ref("S")),
    }
    assert counters(nested, limits) == [(1, 60), (2, 50), (40, -1)]


@BOTH
def test_small_and_ambiguous_repeats_are_unrolled(limits: Limits) -> None:
    for body, bounds in (
        (Characters(((0x30, 0x39),)), (0, 20)),  # small
        (alt(b"a", b"aa"), (0, 90)),  # two items or one
        (seq(b"a", rep(LETTERS, 0, 1)), (0, 90)),  # an item may go on with what begins another
        (alt(ref("S"), seq(ref("S"), b"-", ref("S")), seq(ref("S"), ref("S"))), (0, 90)),
    ):
        found: Rules = {"S": alt(b"!", seq(b"<", ref("S"), b">"), seq(b"(", rep(body, *bounds), b")"))}
        assert counters(found, limits) == []
    # What follows goes on with the same characters, again and again.
    found = {"S": alt(b"!", seq(b"(", rep(alt(b"-", rep(LETTERS, 1, 90))), ref("S"), b")"))}
    assert counters(found, limits) == []
    # ... or only once, and is as short as that.
    found = {"S": alt(b"!", seq(b"(", rep(LETTERS, 1, 90), b"x", ref("S"), b")"))}
    assert counters(found, limits) == []
    found = {"S": alt(seq(b"!", rep(LETTERS, 1, 90), b"x"), seq(b"(", ref("S"), b")"))}
    assert counters(found, limits) == [(1, 90)]


def test_an_item_that_is_too_large_is_named_with_its_place() -> None:
    where = Source("[ab]{0,400}", "line 2, column 3")
    letter = Characters(((0x61, 0x62),))
    item = seq(rep(letter), b"a", rep(letter, 14, 14), b",")
    found: Rules = {"S": alt(b"!", seq(b"(", Repeat(item, 0, 400, source=where), ref("S"), b")"))}
    with pytest.raises(GrammarTooLarge, match="line 2, column 3"):
        compiled(found, Limits(max_dfa_states=1000))


def test_rules_stay_frames_where_one_frame_would_be_too_large() -> None:
    word = rep(Characters(((97, 122), (192, 40959))), 1, 3)
    pair = seq(b"b", ref("S"), b"b", word, b"a", rep(word, 1, 3))
    found: Rules = {"S": alt(opt(b"aba"), rep(ref("T"), 1, 3)), "T": rep(pair, 2, 2)}
    assert frames(found) == frames(found, FRAMES) > 1
    with pytest.raises(GrammarTooLarge):
        compiled(found, Limits(max_dfa_work=10))


@BOTH
def test_three_hundred_keywords(limits: Limits) -> None:
    words = [f"{chr(97 + i % 26)}{i}".encode() for i in range(300)]
    found: Rules = {
        "S": alt(*(seq(word, b" ", ref("S")) for word in words), *(seq(b"(", ref("S"), word) for word in words), b".")
    }
    automaton = compiled(found, limits)
    assert automaton.header[H_N_STATES] < 2000


# ---------------------------------------------------------------------- what is refused


@BOTH
def test_anchors_and_lookarounds_are_refused_by_name(limits: Limits) -> None:
    where = Source("^", "column 7")
    for placed in (StartAnchor(source=where), EndAnchor(source=where), Lookahead(Bytes(b"a"), True, source=where)):
        for found in (
            {"S": alt(b"a", seq(placed, b"(", ref("S"), b")"))},
            {"S": alt(b"a", seq(ref("T"), b"(", ref("S"), b")")), "T": seq(placed, b"b")},
        ):
            with pytest.raises(GrammarUnsupported, match=r"anchor or lookahead.*column 7"):
                compiled(found, limits)
    # Within an operand they are a language of their own.
    inner = Intersection((seq(StartAnchor(), rep(Characters(((0x61, 0x62),))), EndAnchor()), rep(Bytes(b"ab"), 1)))
    assert frames({"S": alt(inner, seq(b"(", ref("S"), b")"))}, limits) == 1


@BOTH
def test_recursive_operands_are_refused_by_name(limits: Limits) -> None:
    where = Source("a & b", "line 2, column 3")
    for operand in (
        Intersection((ref("S"), Bytes(b"a")), source=where),
        Complement(seq(b"a", ref("T")), source=where),
        Intersection((Bytes(b"a"), opt(ref("T"))), source=where),
    ):
        kind = type(operand).__name__.lower()
        found: Rules = {"S": alt(b"a", seq(b"(", operand, b")")), "T": alt(b"b", seq(b"<", ref("S"), b">"))}
        with pytest.raises(GrammarUnsupported, match=rf"operand of an? {kind} .*rule '[ST]'") as raised:
            compiled(found, limits)
        assert "line 2, column 3" in str(raised.value)


def test_a_missing_rule_is_named_with_its_place() -> None:
    missing = Reference("nothing", source=Source("nothing", "line 3, column 9"))
    for found in (
        {"S": alt(b"a", seq(b"(", ref("S"), missing))},
        {"S": missing},
        {"S": ref("T"), "T": alt(ref("S"), missing)},
    ):
        with pytest.raises(GrammarError, match="no rule 'nothing'") as raised:
            compiled(found)
        assert "line 3, column 9" in str(raised.value)
    with pytest.raises(GrammarError, match="no rule 'S'"):
        compiled({"T": Bytes(b"a")})


@BOTH
def test_unsatisfiable_rules(limits: Limits) -> None:
    for found in (
        {"S": ref("S")},
        {"S": seq(b"a", ref("S"))},
        {"S": alt(seq(ref("T"), b"a"), ref("S")), "T": ref("S")},
        {"S": seq(b"(", ref("T"), b")"), "T": rep(seq(b"x", ref("T")), 1, 2)},
        {"S": alt(seq(b"(", ref("S"), b")"), Characters(()))},
        {"S": alt(seq(b"(", ref("S"), b")"), Intersection((Bytes(b"a"), Bytes(b"b"))))},
    ):
        with pytest.raises(GrammarUnsatisfiable, match=r"matches no string|no string matches"):
            compiled(found, limits)


@BOTH
def test_what_the_vocabulary_lacks_bytes_for(limits: Limits) -> None:
    absent = frozenset(b"[]")
    found: Rules = {"S": alt(b"a", seq(b"(", ref("S"), b")"), seq(b"[", ref("S"), b"]"))}
    without: Rules = {"S": alt(b"a", seq(b"(", ref("S"), b")"))}
    assert (
        compile_grammar(grammar(found), limits, absent).buffer.tobytes() == compiled(without, limits).buffer.tobytes()
    )
    with pytest.raises(GrammarUnsatisfiable, match="vocabulary"):
        compile_grammar(grammar({"S": seq(b"[", opt(ref("S")), b"]")}), limits, absent)


@BOTH
def test_rules_of_the_empty_string_alone(limits: Limits) -> None:
    found: Rules = {"S": alt(b"", seq(ref("T"), ref("S"), ref("T"))), "T": rep(ref("S"), 2, 3)}
    automaton = compiled(found, limits)
    assert not automaton.flags & RECURSIVE and automaton.header[H_N_STATES] == 1
    around: Rules = {"S": seq(ref("T"), alt(b"a", seq(b"(", ref("S"), b")")), ref("T")), "T": alt(b"", ref("T"))}
    assert frames(around, limits) == 1
