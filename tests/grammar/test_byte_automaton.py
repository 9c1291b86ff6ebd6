"""Automata of byte edges as parts of grammars: rules that call each other, other grammars, explanations."""

from __future__ import annotations

import itertools
import struct

import pytest
from earley import Earley
from mask_sets import byte_vocabulary
from random_rules import FRAMES, SOLVED, alt, opt, ref, rep, seq

import stepmask
from stepmask.grammar.compose import embed
from stepmask.grammar.explain import expected_at
from stepmask.grammar.expression import ByteAutomaton, Expression, Grammar, Source
from stepmask.grammar.limits import Limits


def automaton(final: bytes, *edges: tuple[int, int, int, int], source: Source | None = None) -> ByteAutomaton:
    return ByteAutomaton(struct.pack(f"{4 * len(edges)}i", *itertools.chain(*edges)), final, source=source)


A_STAR = automaton(b"\1\1", (0, 97, 97, 0), (0, 98, 98, 1))  # a*b?
WORDS = automaton(b"\0\0\0\1", (0, 97, 98, 2), (0, 97, 97, 1), (1, 98, 98, 2), (2, 99, 99, 3))  # (a|b|ab)c
EMPTY_STRING = automaton(b"\1")
NOTHING = automaton(b"\0\0", (0, 97, 97, 1), (1, 97, 97, 0))
AUTOMATA = [A_STAR, WORDS, EMPTY_STRING, NOTHING]
RULES = {
    "bracket": lambda part: {"S": alt(seq(b"(", ref("S"), b")"), part)},
    "left": lambda part: {"S": alt(seq(ref("S"), part), b"c")},
    "mutual": lambda part: {"S": alt(seq(part, ref("T")), b"("), "T": alt(seq(ref("S"), b")"), part)},
    "repeat": lambda part: {"S": seq(b"(", rep(part, 1, 2), opt(seq(b")", ref("S"))))},
}


@pytest.mark.parametrize("limits", [FRAMES, SOLVED], ids=["frames", "solved"])
@pytest.mark.parametrize("part", AUTOMATA, ids=["a_star", "words", "empty_string", "nothing"])
@pytest.mark.parametrize("shape", RULES)
def test_in_recursive_rules(shape: str, part: ByteAutomaton, limits: Limits) -> None:
    rules: dict[str, Expression] = RULES[shape](part)
    oracle = Earley(rules, "S")
    grammar = Grammar("test", "", rules, "S")
    if oracle.start() is None:
        with pytest.raises(stepmask.GrammarUnsatisfiable):
            stepmask.compile(grammar, byte_vocabulary(), limits=limits)
        return
    matcher = stepmask.Matcher(stepmask.compile(grammar, byte_vocabulary(), limits=limits))
    for text in map(bytes, itertools.chain(*(itertools.product(b"abc()", repeat=n) for n in range(5)))):
        matcher.reset()
        assert matcher.accept_bytes(text) == oracle.alive(text), text
        if oracle.alive(text):
            assert matcher.is_complete == oracle.complete(text), text


def test_within_another_grammar() -> None:
    rules, start = embed(Grammar("test", "", {"start": seq(b"(", WORDS, b")")}), "inner")
    matcher = stepmask.Matcher(stepmask.compile(Grammar("test", "", rules, start), byte_vocabulary()))
    assert matcher.accept_bytes(b"(abc)") and matcher.is_complete


def test_is_explained() -> None:
    part = automaton(WORDS.final, *struct.iter_unpack("4i", WORDS.edges), source=Source("words", "line 1"))  # type: ignore
    grammar = Grammar("test", "", {"start": seq(b"(", part, b")")})
    for text, byte in ((b"(", b"a"), (b"(a", b"b"), (b"(ab", b"c")):
        (expected,) = expected_at(grammar, text, byte)
        assert (expected.what, expected.place) == ("words", "line 1")
    assert not expected_at(grammar, b"(a", b"a")
    assert expected_at(grammar, b"(ac", b")") and expected_at(grammar, b"(ac", b"c") == []


def test_equal_tables_are_equal_expressions() -> None:
    again = ByteAutomaton(bytes(bytearray(WORDS.edges)), bytes(bytearray(WORDS.final)))
    assert again == WORDS and hash(again) == hash(WORDS)
    assert again != A_STAR
