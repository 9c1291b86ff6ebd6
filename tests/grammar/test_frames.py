"""Grammars of frames: flat nets, their DFAs, linking, and what is remembered of one grammar for the next."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from earley import Earley
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from linking import as_lists, linked
from random_rules import alt, ref, rep, rules, seq

import stepmask
from stepmask.grammar import assemble, build, frames
from stepmask.grammar.automaton import COUNTER, UTF8, Automaton
from stepmask.grammar.build import Symbols, build_positions
from stepmask.grammar.compile import compile_grammar
from stepmask.grammar.determinize import determinize
from stepmask.grammar.errors import GrammarTooLarge, GrammarUnsatisfiable
from stepmask.grammar.expression import (
    ANY_CHARACTER,
    Bytes,
    Complement,
    EndAnchor,
    Expression,
    Grammar,
    Intersection,
    Lookahead,
    Machine,
    Reference,
    StartAnchor,
)
from stepmask.grammar.limits import Limits
from stepmask.grammar.link import Frames, link
from stepmask.grammar.nets import Apart, Nets, NotFlat
from stepmask.grammar.remembered import Remembered
from stepmask.grammar.rule_dfas import rule_dfas
from stepmask.grammar.rules import Nullable
from stepmask.grammar.simplify import Simplifier

BYTES = stepmask.Vocabulary.from_bytes([bytes([i]) for i in range(256)] + [b""], eos=[256])
COUNTING = Limits(max_unrolled_positions=0)
Rules = dict[str, Expression]

SCHEMAS: list[Any] = [
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["b"]},
    {"type": "array", "items": {"enum": ["x", "y", 3, None]}, "minItems": 2, "maxItems": 40},
    {"type": "object", "properties": {"n": {"type": "string", "maxLength": 100}, "m": {"$ref": "#"}}},
    {"type": "object", "patternProperties": {"^x_": {"type": "number", "minimum": 1.5}}, "additionalProperties": False},
    {"type": ["object", "null"], "properties": {"né": {"format": "date"}, 'q"': True}, "additionalProperties": True},
]


def frames_grammar(found: Rules, start: str = "S") -> Grammar:
    return Grammar("hand", "", dict(found), start, frames=True)


def walk(compiled: stepmask.CompiledGrammar, oracle: Earley, rng: random.Random, steps: int) -> None:
    """The legal bytes along a random text are those of the oracle."""
    matcher, state = compiled.matcher(), oracle.start()
    for _ in range(steps):
        assert state is not None
        live = oracle.live_symbols(state)
        mask = np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")
        assert set(np.flatnonzero(mask[:256]).tolist()) == live
        assert bool(mask[256]) == state.complete == matcher.is_complete
        if not live:
            return
        byte = rng.choice(sorted(live))
        assert matcher.accept(byte)
        state = oracle.step(state, byte)


@settings(max_examples=150, deadline=None)
@given(rules(), st.integers(0, 2**20), st.sampled_from([Limits(), COUNTING]))
def test_the_language_is_that_of_the_rules(found: Rules, seed: int, limits: Limits) -> None:
    oracle = Earley(found, "S")
    if oracle.start() is None:
        with pytest.raises(GrammarUnsatisfiable):
            compile_grammar(frames_grammar(found), limits)
        return
    compiled = stepmask.compile(frames_grammar(found), BYTES, limits, use_cache=False)
    walk(compiled, oracle, random.Random(seed), 12)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**20))
def test_machines(seed: int) -> None:
    """A machine whose labels are calls and texts, beside right-linear rules that mean the same."""
    rng = random.Random(seed)
    n = rng.randint(1, 5)
    labels: list[Expression] = [Bytes(b""), Bytes(b"a"), Bytes(b"ab"), ref("X"), seq(b"(", ref("N"), b")"), ref("N")]
    labels += [alt(b"b", b""), rep(Bytes(b"a"), 1), rep(ref("X"), 0, 2)]
    edges = [(rng.randrange(n), rng.choice(labels), rng.randrange(n)) for _ in range(rng.randint(1, 8))]
    finals = tuple({rng.randrange(n) for _ in range(2)})
    called: Rules = {"X": alt(b"x", "é".encode()), "N": rep(Bytes(b"n"), 0, 3)}
    sources, texts, targets = zip(*edges, strict=True)
    machine: Rules = {"S": seq(b"<", Machine(sources, texts, targets, finals), b">"), **called}
    linear: Rules = {"S": seq(b"<", ref("Q0"), b">"), **called}
    for state in range(n):
        ways = [seq(label, ref(f"Q{target}")) for source, label, target in edges if source == state]
        linear[f"Q{state}"] = alt(*ways, *([b""] if state in finals else []))
    oracle = Earley(linear, "S")
    assume(oracle.start() is not None)
    walk(stepmask.compile(frames_grammar(machine), BYTES, use_cache=False), oracle, rng, 12)


@settings(max_examples=150, deadline=None)
@given(rules())
def test_dfas_of_nets_are_those_of_positions(found: Rules) -> None:
    """The tables of the kernel for all rules and of the way of one rule by itself are equal."""
    limits = Limits()
    nullable = Nullable(found, limits).rules
    nets = Nets(limits)
    names = list(found)
    try:
        called = [nets.add(body) for body in found.values()]
    except Apart:
        assume(False)
    flags = np.zeros(len(names), np.uint8)
    made = rule_dfas(nets, [[names.index(other) for other in calls] for calls in called], flags, 0, limits, frozenset())
    assert made.failed < 0
    assert dict(zip(names, flags.astype(bool).tolist(), strict=True)) == nullable
    simplifier = Simplifier(found, limits, frozenset(found))
    for i, (name, calls) in enumerate(zip(names, called, strict=True)):
        symbols = Symbols()
        for other in calls:
            symbols.call(Reference(other))

        def call_of(node: Expression, symbols: Symbols = symbols) -> tuple[int | None, bool] | None:
            return (symbols.call(node), nullable[node.rule]) if isinstance(node, Reference) else None

        positions = build_positions(simplifier.kept_rule(name), limits, symbols, call_of)
        expected = determinize(
            positions if i == 0 else positions.without_empty_string(), symbols.alphabet, 10_000, 1_000_000
        )
        assert expected is not None
        one, other_one = made.dfa(i), expected
        assert one.columns(0, symbols.alphabet).tolist() == other_one.columns(0, symbols.alphabet).tolist()
        assert one.final.tolist() == other_one.final.tolist()
        for dfa in (one, other_one):
            # Neighbouring classes of bytes that lead to one state are one edge, a symbol has its own, all in order.
            n_bytes = dfa.class_of[255] + 1
            expected_edges: list[list[int]] = []
            for state, row in enumerate(dfa.delta.tolist()):
                for c, target in enumerate(row):
                    if c and c < n_bytes and target >= 0 and target == row[c - 1]:
                        expected_edges[-1][2] = c
                    elif target >= 0:
                        expected_edges.append([state, c, c, target])
            source = np.repeat(np.arange(dfa.n_states), np.diff(dfa.edge_start))
            columns = (source, dfa.edge_low, dfa.edge_high, dfa.edge_target)
            assert np.stack(columns, axis=1).tolist() == expected_edges


class Spy:
    """Keeps what was linked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[Frames] = []
        monkeypatch.setattr(assemble, "link", self)

    def __call__(self, found: Frames) -> Any:
        self.seen.append(found)
        return link(found)


def check_linked(found: Frames) -> None:
    sections, n_classes, acyclic = link(found)
    expected, expected_classes, expected_acyclic = linked(found)
    given_lists = as_lists(sections)
    assert given_lists.keys() == expected.keys()
    for name, values in expected.items():
        assert given_lists[name] == [int(value) for value in values], name
    assert (n_classes, acyclic) == (expected_classes, expected_acyclic)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_linked_frames_of_schemas(schema: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    compile_grammar(stepmask.json_schema(schema))
    for found in spy.seen:
        check_linked(found)
    assert spy.seen


@settings(max_examples=100, deadline=None)
@given(rules(tokens=True), st.sampled_from([Limits(max_inlined_positions=0), COUNTING]))
def test_linked_frames_of_rules(found: Rules, limits: Limits) -> None:
    with pytest.MonkeyPatch.context() as patch:
        spy = Spy(patch)
        try:
            compile_grammar(Grammar("hand", "", found, "S"), limits)
        except GrammarUnsatisfiable:
            return
        for linked_frames in spy.seen:
            check_linked(linked_frames)


def sizes(automaton: Automaton) -> list[tuple[int, ...]]:
    """By frame: states, kind, bounds and fewest bytes."""
    states = np.bincount(automaton["state_frame"])
    columns = (states, *(automaton[f"frame_{name}"] for name in ("kind", "minimum", "maximum", "length")))
    return sorted(tuple(map(int, row)) for row in zip(*columns, strict=True))


def test_library_rules_are_made_once() -> None:
    """Of a second schema with the same parts, nothing is made by itself; with others, those alone."""
    first = {"type": "object", "properties": {"a": {"type": "string", "format": "uuid"}, "b": {"type": "number"}}}
    compile_grammar(stepmask.json_schema(first))
    made = frames.REMEMBERED.made
    second = {"type": "array", "items": {"type": "object", "properties": {"id": {"format": "uuid", "type": "string"}}}}
    compile_grammar(stepmask.json_schema(second))
    compile_grammar(stepmask.json_schema(first))
    assert frames.REMEMBERED.made == made
    second["items"]["properties"]["x"] = {"type": "string", "minLength": 3, "maxLength": 77}  # type: ignore[index]
    compile_grammar(stepmask.json_schema(second))
    assert frames.REMEMBERED.made == made + 1


def test_what_is_remembered_changes_no_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = [compile_grammar(stepmask.json_schema(schema)).buffer.tobytes() for schema in SCHEMAS]
    monkeypatch.setattr(frames, "REMEMBERED", Remembered(1, 1))
    monkeypatch.setattr(build, "REMEMBERED", Remembered(1, 1))
    for schema, before in zip(reversed(SCHEMAS), reversed(compiled), strict=True):
        assert compile_grammar(stepmask.json_schema(schema)).buffer.tobytes() == before


def test_rules_that_count_are_made_by_themselves() -> None:
    item = seq(b"[", ref("S"), b"]")
    found: Rules = {"S": alt(seq(b"(", rep(item, 1, 500), b")"), ref("T")), "T": seq(b"x", ref("L")), "L": Bytes(b"y")}
    with pytest.raises(Apart):
        Nets(Limits()).add(found["S"])
    found = {"R": seq(b"<", ref("S"), b">"), **found}
    automaton = compile_grammar(frames_grammar(found, "R"))
    assert automaton["frame_kind"].tolist().count(COUNTER) == 1
    assert automaton["frame_maximum"].max() == 500


def test_few_copies_of_something_large_are_counted() -> None:
    """A rule without calls."""
    found: Rules = {"S": seq(b"<", ref("T"), b">"), "T": rep(Bytes(b"0123456789" * 2), 1, 4)}
    automaton = compile_grammar(frames_grammar(found))
    assert automaton["frame_kind"].tolist().count(COUNTER) == 1
    walk(stepmask.compile(frames_grammar(found), BYTES, use_cache=False), Earley(found, "S"), random.Random(0), 90)


def test_calls_of_what_matches_nothing_are_left_out() -> None:
    """A rule that never ends, one that calls it and one of the empty string alone: the frames are those without."""
    dead: Rules = {
        "S": seq(b"<", alt(seq(b"a", ref("T")), seq(b"b", ref("E"), b"c"), seq(ref("U"), b"d"), ref("S")), b">"),
        "T": seq(b"(", ref("T"), b")"),
        "U": alt(seq(b"u", ref("T")), seq(ref("T"), ref("S"))),
        "E": seq(ref("F"), b""),
        "F": alt(b"", ref("T")),
    }
    automaton = frames.compile_frames(dead, "S", Limits(), frozenset())
    plain: Rules = {"S": seq(b"<", alt(b"bc", ref("S")), b">")}
    assert automaton.buffer.tobytes() == frames.compile_frames(plain, "S", Limits(), frozenset()).buffer.tobytes()
    for seed in range(5):
        walk(stepmask.compile(frames_grammar(dead), BYTES, use_cache=False), Earley(dead, "S"), random.Random(seed), 9)


def test_what_flat_nets_do_not_have_goes_the_other_way() -> None:
    never: Rules = {"S": seq(b"a", ref("T")), "T": seq(b"(", ref("T"), b")")}
    with pytest.raises(NotFlat):
        frames.compile_frames(never, "S", Limits(), frozenset())
    with pytest.raises(GrammarUnsatisfiable):
        compile_grammar(frames_grammar(never))
    item = seq(b"[", alt(ref("T"), ref("S")), b"]")
    counted: Rules = {
        "R": seq(b"<", ref("S"), b">"),
        "S": alt(seq(b"(", rep(item, 1, 500), b")"), b"x"),
        "T": seq(b"t", ref("T")),
    }
    with pytest.raises(NotFlat):  # a rule that counts is made with the calls that it has
        frames.compile_frames(counted, "R", Limits(), frozenset())
    walk(
        stepmask.compile(frames_grammar(counted, "R"), BYTES, use_cache=False),
        Earley(counted, "R"),
        random.Random(0),
        9,
    )


#: Languages of their own that look around, beside the same without.
LOOKING: list[tuple[Expression, Expression]] = [
    (Intersection((seq(StartAnchor(), rep(alt(b"a", b"b"), 1, 3), EndAnchor()),)), rep(alt(b"a", b"b"), 1, 3)),
    (
        Intersection((seq(Lookahead(seq(b"a", EndAnchor()), negative=True), rep(alt(b"a", b"b"), 0, 2)),)),
        alt(b"", b"b", seq(alt(b"a", b"b"), alt(b"a", b"b"))),
    ),
    (
        Intersection((rep(alt(b"a", b"b"), 2, 2), Complement(seq(rep(ANY_CHARACTER), b"b", EndAnchor())))),
        seq(alt(b"a", b"b"), b"a"),
    ),
    (
        Intersection((seq(rep(ANY_CHARACTER), b"b"), seq(Lookahead(Bytes(b"ab"), negative=False), rep(b"a"), b"b"))),
        Bytes(b"ab"),
    ),
]


@pytest.mark.parametrize(("looking", "plain"), LOOKING)
def test_languages_of_their_own_that_look_around_are_flat(looking: Expression, plain: Expression) -> None:
    """Within an operand they see only it, so that nothing keeps the rules from going through the kernels together."""

    def around(inner: Expression) -> Rules:
        return {"S": seq(b"[", rep(seq(inner, alt(b",", ref("S"))), 0, 2), b"]"), "T": inner}

    frames.compile_frames(around(looking), "S", Limits(), frozenset())
    oracle = Earley(around(plain), "S")
    for seed in range(9):
        walk(stepmask.compile(frames_grammar(around(looking)), BYTES, use_cache=False), oracle, random.Random(seed), 20)


def test_objects_whose_names_look_ahead_are_flat() -> None:
    value = {"type": "object", "patternProperties": {"^(?!pattern$).*$": {"$ref": "#"}}, "additionalProperties": False}
    grammar = stepmask.json_schema(value)
    frames.compile_frames(grammar.rules, grammar.start, Limits(), frozenset())
    compiled = stepmask.compile(grammar, BYTES, use_cache=False)
    for text, wanted in ((b'{"patter": {"patterns": {}}}', True), (b'{"a": {"pattern": {}}}', False), (b"{}", True)):
        matcher = compiled.matcher()
        assert (all(map(matcher.accept, text)) and matcher.is_complete) == wanted


def test_limits() -> None:
    long: Rules = {"S": seq(b"a", ref("T")), "T": seq(b"x" * 300, ref("S"))}
    with pytest.raises(GrammarTooLarge):
        compile_grammar(frames_grammar(long), Limits(max_positions=200))
    with pytest.raises(GrammarTooLarge, match="'T'"):
        compile_grammar(frames_grammar(wide_rule()), Limits(max_dfa_work=100))


def wide_rule() -> Rules:
    letter = alt(b"a", b"b")
    return {"S": seq(b"<", ref("T"), b">"), "T": alt(seq(rep(letter), b"a", *[letter] * 8), ref("S"))}


def test_bytes_that_are_not_there() -> None:
    found: Rules = {"S": seq(alt(b"a", b"bz", b"c"), ref("T")), "T": alt(b"z", b"d")}
    automaton = compile_grammar(frames_grammar(found), Limits(), frozenset(b"z"))
    plain = compile_grammar(
        frames_grammar({"S": seq(alt(b"a", b"c"), ref("T")), "T": Bytes(b"d")}), Limits(), frozenset(b"z")
    )
    assert sizes(automaton) == sizes(plain)


def test_text_is_noticed() -> None:
    for text, flag in ((b"\xff", 0), ("é".encode(), UTF8)):
        automaton = compile_grammar(frames_grammar({"S": alt(text, seq(b"a", ref("S")))}))
        assert automaton.flags & UTF8 == flag
