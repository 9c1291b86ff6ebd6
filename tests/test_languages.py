"""What compiled regexes match, against Python's `re`, against interegular, and by trying every string."""

from __future__ import annotations

import itertools
import re

import interegular
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interegular.fsm import FSM, anything_else
from mask_sets import byte_vocabulary
from oracles import ReferenceMatcher

from stepmask.grammar.errors import GrammarUnsatisfiable
from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex
from stepmask.masks.compiled import CompiledGrammar, compile
from stepmask.masks.matcher import Matcher

VOCABULARY = byte_vocabulary()
#: As a DFA or counter frames, and determinised at run time.
LIMITS = [Limits(), Limits(max_dfa_states=1)]
QUANTIFIERS = ["*", "+", "?", "{2}", "{1,2}", "{0,3}", "{2,}", "{3,17}", "{20}"]
TEXTS = st.text("aabbc1é\n -", max_size=12)


def combined(leaves: st.SearchStrategy[str], quantifiers: list[str]) -> st.SearchStrategy[str]:
    def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        repeated = st.builds("(?:{}){}".format, inner, st.sampled_from(quantifiers))
        sequence = st.lists(inner, min_size=1, max_size=3).map("".join)
        alternation = st.lists(inner, min_size=1, max_size=3).map(lambda options: f"(?:{'|'.join(options)})")
        return repeated | sequence | alternation

    return st.recursive(leaves, extend, max_leaves=7)


plain_leaves = st.sampled_from(["a", "b", "ab", "c", "[ab]", "[^a]", "[a-c]", ".", "é", "[^é]", "[b-ü]", ""])
all_leaves = plain_leaves | st.sampled_from([r"\d", r"\w", r"\W", r"\s", r"\S", "[^a-c]", "(?=a)", "(?!b)", "(?!.*c)"])


def compiled_or_none(pattern: str, limits: Limits) -> CompiledGrammar | None:
    """None where nothing matches."""
    try:
        return compile(regex(pattern), VOCABULARY, limits, use_cache=False)
    except GrammarUnsatisfiable:
        return None


def verdict(matcher: Matcher, text: bytes) -> tuple[bool, bool]:
    """(alive, complete) after `text`."""
    matcher.reset()
    alive = matcher.accept_bytes(text)
    return alive, alive and matcher.is_complete


@pytest.mark.parametrize("limits", LIMITS, ids=["states", "lazy"])
@given(combined(all_leaves, QUANTIFIERS), st.lists(TEXTS, min_size=1, max_size=20))
def test_same_matches_as_python(limits: Limits, pattern: str, texts: list[str]) -> None:
    compiled = compiled_or_none(pattern, limits)
    matcher = compiled.matcher() if compiled else None
    for text in texts:
        expected = re.fullmatch(pattern, text) is not None
        if matcher is None:
            assert not expected
            continue
        assert verdict(matcher, text.encode())[1] == expected
        if expected:  # however the text is cut up
            matcher.reset()
            assert all(matcher.accept(byte) for byte in text.encode())
            assert matcher.is_complete
            matcher.reset()
            assert all(matcher.accept_bytes(character.encode()) for character in text)
            assert matcher.is_complete


def after(machine: FSM, state: int | None, character: str) -> int | None:
    """State after one character; None: no text goes on like that."""
    symbol = character if character in machine.alphabet else anything_else
    state = None if state is None else machine.map.get(state, {}).get(machine.alphabet[symbol])
    return state if state is not None and machine.islive(state) else None


@pytest.mark.parametrize("limits", LIMITS, ids=["states", "lazy"])
@given(combined(plain_leaves, QUANTIFIERS[:-2]))
def test_same_language_as_interegular(limits: Limits, pattern: str) -> None:
    """All pairs of states that a text leads to agree, so the languages do: on these characters, of any length."""
    machine = interegular.parse_pattern(pattern).to_fsm()
    compiled = compiled_or_none(pattern, limits)
    assert (compiled is not None) == machine.islive(machine.initial)
    if compiled is None:
        return
    matcher = compiled.matcher()
    first = ReferenceMatcher(compiled.automaton)
    seen = {(machine.initial, first.closure())}
    queue = [(machine.initial, first, b"")]
    for state, reference, text in queue:
        assert verdict(matcher, text) == (True, state in machine.finals)
        for character in "abcéz\n":
            target = after(machine, state, character)
            moved = reference.copy()
            assert moved.accept(character.encode()) == (target is not None)
            assert verdict(matcher, text + character.encode())[0] == (target is not None)
            pair = (target, moved.closure())
            if target is not None and pair not in seen and len(seen) < 300:
                seen.add(pair)
                queue.append((target, moved, text + character.encode()))


ALPHABET, LONGEST = "ab1", 6
bounded = combined(st.sampled_from(["a", "b", "1", "ab", "[ab]", "1?", "a{0,2}", ""]), ["?", "{2}", "{0,2}", "{1,3}"])


@pytest.mark.parametrize("limits", LIMITS, ids=["states", "lazy"])
@given(bounded)
def test_prefixes_are_alive_if_they_can_be_completed(limits: Limits, pattern: str) -> None:
    """Every string of up to six characters, in a language cut to these."""
    pattern = rf"(?=.{{0,{LONGEST}}}\Z)(?:{pattern})"
    strings = [s for n in range(LONGEST + 1) for s in map("".join, itertools.product(ALPHABET, repeat=n))]
    matches = {s for s in strings if re.fullmatch(pattern, s)}
    prefixes = {s[:n] for s in matches for n in range(len(s) + 1)}
    compiled = compiled_or_none(pattern, limits)
    assert (compiled is not None) == bool(matches)
    if compiled is None:
        return
    matcher = compiled.matcher()
    queue = [""]
    for text in queue:
        assert verdict(matcher, text.encode()) == (True, text in matches)
        for character in ALPHABET:
            alive = matcher.allows(ord(character))
            assert alive == (text + character in prefixes)
            if alive:
                queue.append(text + character)
    assert set(queue) == prefixes


@pytest.mark.parametrize(
    ("pattern", "alive", "dead"),
    [
        ("[à-ü]", [b"\xc3", b"\xc3\xa0"], [b"\xc3\x80", b"\xc2", b"\xe0"]),
        ("[^a]", [b"\xe0\xa0", b"\xf4\x8f", b"\xed\x9f"], [b"\xe0\x80", b"\xf4\x90", b"\xed\xa0", b"\xc0", b"\xff"]),
        ("日|本", [b"\xe6\x97", b"\xe6\x9c"], [b"\xe6\x98", b"\xe7"]),
        (".{3}é", [b"a\xf0\x9f\x98", "日本語".encode() + b"\xc3"], ["日本語".encode() + b"\xc2", "abéè".encode()]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("limits", LIMITS, ids=["states", "lazy"])
def test_parts_of_characters(limits: Limits, pattern: str, alive: list[bytes], dead: list[bytes]) -> None:
    compiled = compile(regex(pattern), VOCABULARY, limits, use_cache=False)
    for text in alive:
        assert verdict(compiled.matcher(), text)[0], text
    for text in dead:
        assert not verdict(compiled.matcher(), text)[0], text
