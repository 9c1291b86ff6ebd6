"""Matchers: end tokens, tokens that are refused, token symbols, text start, drafts, forks, rollback, threads."""

from __future__ import annotations

import gc
import random
import threading
import weakref

import numpy as np
import pytest
from mask_sets import brute_mask, byte_vocabulary, tokens_of
from oracles import ReferenceMatcher

from stepmask.grammar.expression import Alternation, Bytes, Expression, Grammar, Repeat, Sequence, Token
from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex
from stepmask.masks.compiled import CompiledGrammar, compile
from stepmask.masks.errors import VocabularyError
from stepmask.masks.matcher import SLOTS, Matcher
from stepmask.masks.vocabulary import Vocabulary

WORDS = [b"ab", b"abc", b"bc", b"ca", b"aa", "é".encode(), b"a\xc3", b"12", b" a", b" "]
VOCABULARY = byte_vocabulary(*WORDS)
END = VOCABULARY.size - 1
LAZY = Limits(max_dfa_states=1)
BOTH = pytest.mark.parametrize("limits", [Limits(), LAZY], ids=["states", "lazy"])
PATTERNS = ["(?:ab|a)c*", "(?:ab|bc|é){2,40}", "(?:[ab]{1,3}1?){3}", "(?!.*aa)[abc]{0,9}", r"\w*,?"]


def build(pattern: str, limits: Limits = Limits(), vocabulary: Vocabulary = VOCABULARY) -> CompiledGrammar:  # noqa: B008
    return compile(regex(pattern), vocabulary, limits, use_cache=False)


def hand_made(*parts: Expression, vocabulary: Vocabulary) -> CompiledGrammar:
    return compile(Grammar("hand", "", {"start": Sequence(parts)}), vocabulary, use_cache=False)


def legal(matcher: Matcher) -> set[int]:
    """The mask as a set; checked against `allows` on the way."""
    found = tokens_of(matcher.mask())
    assert found == {t for t in range(-1, matcher.compiled.vocabulary.width + 2) if matcher.allows(t)}
    return found


def state(matcher: Matcher) -> tuple[bytes, bool, bool]:
    return matcher.mask().tobytes(), matcher.is_complete, matcher.is_finished


# ---------------------------------------------------------------------- ends


def test_one_end_token_ends_the_text() -> None:
    matcher = build("a|ab").matcher()
    assert END not in legal(matcher) and not matcher.accept(END)
    assert matcher.accept(97) and matcher.is_complete and not matcher.is_finished
    assert legal(matcher) == {98, END}
    assert matcher.accept(END) and matcher.is_finished and matcher.is_complete
    before = state(matcher)
    for token in (END, 97, 98, -1, 2**40):
        assert not matcher.accept(token)
    assert not matcher.accept_bytes(b"b") and matcher.try_accept([98]) == 0 and matcher.forced_bytes() == b""
    assert state(matcher) == before and legal(matcher) == set()
    matcher.rollback(1)
    assert legal(matcher) == {98, END}
    matcher.rollback(1)
    assert not matcher.is_complete and matcher.accept(97)


@BOTH
def test_several_end_tokens_none_and_a_requests_own(limits: Limits) -> None:
    tokens = [bytes([b]) for b in range(256)] + [b"", b"", b"<stop>"]
    vocabulary = Vocabulary.from_bytes(tokens, eos=[256, 257], special=[256, 257])
    compiled = build("a+", limits, vocabulary)
    matcher = compiled.matcher()
    assert matcher.accept(97)
    assert legal(matcher) == {97, 256, 257}
    for end in (256, 257):
        assert matcher.accept(end) and matcher.is_finished
        matcher.rollback(1)
    own = compiled.matcher(eos=[257, 258, 257])
    assert legal(own) == {97} and own.accept(97)
    assert legal(own) == {97, 257, 258}
    assert not own.accept(256) and own.accept(258) and own.is_finished
    without = compiled.matcher(eos=[])
    assert without.accept(97) and legal(without) == {97} and without.is_complete and not without.accept(256)
    assert legal(matcher) == {97, 256, 257}, "the others' end tokens are their own"


def test_unknown_end_tokens_until_a_request_names_them() -> None:
    vocabulary = Vocabulary.from_bytes([b"a", b"b", b"</s>", b"ab"], eos=None)
    compiled = build("a?b?", vocabulary=vocabulary)
    matcher = compiled.matcher()
    assert legal(matcher) == {0, 1, 3} and matcher.is_complete
    named = compiled.matcher(eos=[2])
    assert legal(named) == {0, 1, 2, 3} and named.accept(3) and legal(named) == {2}
    assert named.accept(2) and named.is_finished
    for wrong in ([4], [-1], list(range(40))):
        with pytest.raises(VocabularyError):
            compiled.matcher(eos=wrong)


def test_an_end_token_with_text_is_no_text_for_its_request() -> None:
    """A request may end at a token that is text elsewhere, such as a newline."""
    compiled = build("a[ab]*", vocabulary=byte_vocabulary(b"ab"))
    matcher = compiled.matcher(eos=[98])
    assert legal(matcher) == {97, 256} and not matcher.accept(98)
    assert matcher.accept(97) and legal(matcher) == {97, 98, 256}
    assert matcher.accept(98) and matcher.is_finished


@BOTH
def test_min_tokens(limits: Limits) -> None:
    compiled = build("[ab]*|1", limits)
    matcher = compiled.matcher(min_tokens=2)
    assert matcher.is_complete and END not in legal(matcher) and not matcher.accept(END)
    assert matcher.accept(97) and END not in legal(matcher) and not matcher.accept(END)
    assert matcher.accept(98) and END in legal(matcher) and matcher.accept(END)
    matcher.rollback(2)
    assert END not in legal(matcher)
    matcher.reset()
    assert matcher.accept(49), "after this nothing but an end is legal, which overrides min_tokens"
    assert legal(matcher) == {END} and matcher.accept(END) and matcher.is_finished


def test_min_tokens_where_what_follows_cannot_be_spelled() -> None:
    vocabulary = Vocabulary.from_bytes([b"a", b"dbc", b""], eos=[2], special=[2])
    matcher = build("a(bcd)?", vocabulary=vocabulary).matcher(min_tokens=5)
    assert matcher.accept(0)
    assert legal(matcher) == {2} and matcher.accept(2)


# ---------------------------------------------------------------------- tokens


@BOTH
def test_what_is_no_text_is_refused(limits: Limits) -> None:
    """Special tokens with bytes, holes, ids past the size, ids that are no ids."""
    tokens = [b"a", b"<s>", b"", b"b", b"a", b"</s>"]
    tokens += [bytes([b]) for b in b"<s>/"]
    vocabulary = Vocabulary.from_bytes(tokens, eos=[5], special=[1, 5], width=70)
    matcher = build("(?:a|b|<s>|</s>)*", limits, vocabulary).matcher()
    assert legal(matcher) == {0, 3, 4, 5, 6}
    assert matcher.mask().shape == (3,) and vocabulary.words == 3
    before = state(matcher)
    for token in (1, 2, 9, 10, 69, 70, 71, -1, -(2**31), 2**31 - 1, 2**31, 2**40, -(2**40), 2**70):
        assert not matcher.allows(token), token
        assert not matcher.accept(token), token
        assert matcher.try_accept([token, 0]) == 0, token
    assert state(matcher) == before
    for duplicate in (0, 4):
        assert matcher.accept(duplicate)
        matcher.rollback(1)
    assert matcher.accept(np.int64(3)) and matcher.accept(np.uint8(4))


def test_width_beyond_the_size() -> None:
    for width in (257, 258, 288, 289, 4096):
        vocabulary = Vocabulary.from_bytes([bytes([b]) for b in range(256)] + [b""], eos=[256], width=width)
        matcher = build("a*", vocabulary=vocabulary).matcher()
        assert matcher.mask().dtype == np.uint32 and matcher.mask().shape == (-(-width // 32),)
        assert legal(matcher) == {97, 256}


def test_end_token_among_the_padding_ids() -> None:
    vocabulary = Vocabulary.from_bytes([b"a", b"b"], eos=[40], width=64)
    matcher = build("ab?", vocabulary=vocabulary).matcher()
    assert matcher.accept(0) and legal(matcher) == {1, 40} and matcher.accept(40) and matcher.is_finished


# ---------------------------------------------------------------------- token symbols


def test_a_named_token_that_is_also_an_end_token() -> None:
    vocabulary = Vocabulary.from_bytes([b"hi", b" ", b"<|end|>"], eos=[2], special=[2], names={"<|end|>": 2})
    for name in ("<|end|>", 2):
        matcher = hand_made(Bytes(b"hi"), Token(name), vocabulary=vocabulary).matcher()
        assert legal(matcher) == {0} and not matcher.accept(2)
        assert matcher.accept(0) and not matcher.is_complete and legal(matcher) == {2}
        assert matcher.accept(2) and matcher.is_finished
        assert not matcher.accept(0) and not matcher.accept(2)
        matcher.rollback(1)
        assert legal(matcher) == {2}


def test_named_tokens_by_text_and_id() -> None:
    tokens = [bytes([b]) for b in range(256)] + [b"<call>", b"<done>", b"", b"ab"]
    vocabulary = Vocabulary.from_bytes(tokens, eos=[258], special=[256, 257, 258], names={"<call>": 256, "<done>": 257})
    body = Repeat(Sequence((Token("<call>"), Repeat(Bytes(b"ab"), 1, None), Token(257))), 0, None)
    compiled = hand_made(body, vocabulary=vocabulary)
    matcher = compiled.matcher()
    assert legal(matcher) == {256, 258}
    assert not matcher.accept_bytes(b"<call>") and matcher.accept(256)
    assert matcher.forced_bytes() == b"ab" and legal(matcher) == {97, 259}
    assert matcher.accept(259) and legal(matcher) == {97, 257, 259} and matcher.forced_bytes() == b""
    fork = matcher.fork()
    assert matcher.accept(257) and legal(matcher) == {256, 258} and matcher.is_complete
    assert legal(fork) == {97, 257, 259}
    assert matcher.try_accept([256, 97, 98, 257, 257]) == 4
    assert matcher.accept(258) and matcher.is_finished
    # Named where the request ends at it: it ends the text.
    own = compiled.matcher(eos=[257])
    assert own.try_accept([256, 259]) == 2 and legal(own) == {97, 257, 259}
    assert own.accept(257) and own.is_finished and legal(own) == set()
    # min_tokens does not keep a token from coming that the grammar asks for.
    late = compiled.matcher(eos=[257], min_tokens=9)
    assert late.try_accept([256, 259]) == 2 and legal(late) == {97, 257, 259}
    with pytest.raises(VocabularyError, match="<cal>"):
        hand_made(Token("<cal>"), vocabulary=vocabulary)
    with pytest.raises(VocabularyError):
        hand_made(Token(260), vocabulary=vocabulary)


def test_a_named_token_may_be_text_as_well() -> None:
    vocabulary = byte_vocabulary(b"ab")
    compiled = hand_made(Alternation((Sequence((Token(256), Bytes(b"c"))), Bytes(b"abd"))), vocabulary=vocabulary)
    assert legal(compiled.matcher()) == {97, 256}


def test_min_tokens_beside_a_named_end_token() -> None:
    tokens = [bytes([b]) for b in range(256)] + [b"", b""]
    vocabulary = Vocabulary.from_bytes(tokens, eos=[256, 257], special=[256, 257])
    matcher = hand_made(Bytes(b"a"), Repeat(Token(257), 0, 1), vocabulary=vocabulary).matcher(min_tokens=5)
    assert matcher.accept(97)
    assert legal(matcher) == {257}


# ---------------------------------------------------------------------- text start


@BOTH
@pytest.mark.parametrize("pattern", ["[ab]{1,9}", " ?a[ab ]*", r"\w+(?: \w+)*", "(?:ab|é| a){2,30}"])
def test_text_start_drops_one_space(pattern: str, limits: Limits) -> None:
    tokens = [bytes([b]) for b in range(256)] + [
        b" a",
        b" ab",
        b"  a",
        "é".encode(),
        " é".encode(),
        b" \xc3",
        b"ab",
        b"",
    ]
    plain = Vocabulary.from_bytes(tokens, eos=[263])
    vocabulary = Vocabulary(plain.token_bytes, plain.token_offsets, plain.special, plain.eos, None, True, {})
    compiled = build(pattern, limits, vocabulary)
    reference = ReferenceMatcher(compiled.automaton)
    start = compiled.matcher(text_start=True)
    later = compiled.matcher()
    expected = brute_mask(reference, vocabulary, drop_space=True)
    assert 256 in expected
    assert legal(start) - {32} == expected - {32}  # what a lone space stands for there is not fixed
    assert legal(later) == brute_mask(reference, vocabulary)
    other = compiled.matcher(text_start=True)
    assert other.fork().accept(256) and other.accept(256) and start.accept(97)
    assert state(other) == state(start), "only the first token's space is dropped, and from then on all is the same"
    assert reference.accept(b"a")
    assert legal(other) == brute_mask(reference, vocabulary)
    other.rollback(1)
    assert legal(other) - {32} == expected - {32}
    other.reset()
    assert other.accept(256)
    assert legal(build(pattern, limits).matcher(text_start=True)) == legal(build(pattern, limits).matcher())


# ---------------------------------------------------------------------- rollback, fork, reset


@BOTH
@pytest.mark.parametrize("pattern", PATTERNS)
def test_random_moves(pattern: str, limits: Limits) -> None:
    """Accept, refuse, roll back, reset and fork at random: always the state of the tokens that are left."""
    compiled = build(pattern, limits)
    rng = random.Random(pattern)
    walks: list[tuple[Matcher, list[int]]] = [(compiled.matcher(), [])]
    for _ in range(120):
        index = rng.randrange(len(walks))
        matcher, taken = walks[index]
        move = rng.random()
        if move < 0.6:
            choices = sorted(tokens_of(matcher.mask()) - {END} or {END})
            token = rng.choice(choices if rng.random() < 0.8 else range(VOCABULARY.size))
            if matcher.accept(token):
                taken.append(token)
        elif move < 0.8:
            n = rng.randint(0, len(taken))
            matcher.rollback(n)
            del taken[len(taken) - n :]
        elif move < 0.85:
            matcher.reset()
            taken.clear()
        elif len(walks) < 5:
            walks.append((matcher.fork(), list(taken)))
        else:
            walks.pop(index)
        for other, path in walks:
            fresh = compiled.matcher()
            assert fresh.try_accept(path) == len(path)
            assert state(other) == state(fresh)
        if not walks:
            walks.append((compiled.matcher(), []))


@BOTH
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_rollback_beyond_the_history(depth: int, limits: Limits) -> None:
    matcher = build("a*", limits).matcher(max_rollback=depth)
    for n in range(7):
        kept = min(n, depth)
        with pytest.raises(ValueError, match=rf"{kept} are kept"):
            matcher.rollback(kept + 1)
        with pytest.raises(ValueError, match="cannot take back -1"):
            matcher.rollback(-1)
        if kept:
            matcher.rollback(kept)
            assert matcher.try_accept([97] * kept) == kept
        for _ in range(3):  # refused tokens use up no history
            assert not matcher.accept(98)
        if kept:
            matcher.rollback(kept)
            assert matcher.try_accept([97] * kept) == kept
        assert matcher.accept(97)


def test_accept_bytes_is_taken_back_as_one() -> None:
    matcher = build("(?:ab|é)*c").matcher()
    assert matcher.accept_bytes(b"ab\xc3") and matcher.forced_bytes() == b"\xa9"
    before = state(matcher)
    assert not matcher.accept_bytes(b"\xa9x") and matcher.accept_bytes(b"")
    assert state(matcher) == before
    assert matcher.accept(0xA9) and matcher.accept_bytes("éabc".encode()) and matcher.is_complete
    matcher.rollback(2)
    assert state(matcher) == before
    matcher.rollback(1)
    assert state(matcher) == state(matcher.compiled.matcher())


@pytest.mark.parametrize("pattern", ["(?:ab|bc){2,40}", "[ab]*c"])
def test_forks_in_many_batches(pattern: str) -> None:
    compiled = build(pattern)
    path = [97, 98, 256]
    first = compiled.matcher()
    assert first.try_accept(path[: 3 if "{" in pattern else 2]) >= 2
    want = state(first)
    forks = [first.fork() for _ in range(SLOTS + 6)]
    assert len({id(f._batch) for f in forks}) > 1
    assert all(state(f) == want for f in forks)
    for fork in forks[::7] + forks[-3:]:
        assert fork.accept_bytes(b"ab")
        fork.rollback(1)
        assert state(fork) == want
        fork.rollback(2)
        assert fork.is_complete == compiled.matcher().is_complete
        fork.reset()
    assert state(first) == want


def test_lazy_forks_in_many_batches() -> None:
    first = build(".*[ab].{3}", LAZY).matcher()
    assert first.accept_bytes(b"xxab")
    forks = [first.fork() for _ in range(SLOTS + 6)]
    assert len({id(f._batch) for f in forks}) > 1
    assert all(state(f) == state(first) for f in forks)
    for fork in forks[-3:]:
        assert fork.accept_bytes(b"bb") and fork.is_complete and not first.is_complete
        fork.rollback(2)
        assert state(fork) == state(first.compiled.matcher())


def test_two_hundred_matchers() -> None:
    compiled = [build(p, limits) for p in PATTERNS for limits in (Limits(), LAZY)]
    rng = random.Random(5)
    matchers = [rng.choice(compiled).matcher() for _ in range(200)]
    paths: list[list[int]] = [[] for _ in matchers]
    for _ in range(400):
        i = rng.randrange(200)
        token = rng.choice(sorted(tokens_of(matchers[i].mask())))
        if token != END:
            assert matchers[i].accept(token)
            paths[i].append(token)
    for matcher, path in zip(matchers, paths, strict=True):
        fresh = matcher.compiled.matcher()
        assert fresh.try_accept(path) == len(path) and state(fresh) == state(matcher)
    shared = matchers[0]._shared
    del matchers, matcher, fresh
    gc.collect()
    used = len(shared.batches)
    again = [compiled[0].matcher() for _ in range(200)]
    assert len(shared.batches) == used, "slots of matchers that are gone are used again"
    del again


@BOTH
def test_two_threads(limits: Limits) -> None:
    compiled = [build(p, limits) for p in PATTERNS]
    failures: list[str] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(40):
            grammar = rng.choice(compiled)
            matcher, reference = grammar.matcher(), ReferenceMatcher(grammar.automaton)
            for _ in range(6):
                expected = brute_mask(reference, VOCABULARY)
                if tokens_of(matcher.mask()) != expected:
                    failures.append(f"{seed}: {grammar}")
                choices = sorted(expected - {END})
                if not choices:
                    break
                token = rng.choice(choices)
                if not (matcher.fork().accept(token) and matcher.accept(token)):
                    failures.append(f"{seed}: {grammar} refuses {token}")
                reference.accept(VOCABULARY.token(token))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_vocabulary_can_go() -> None:
    vocabulary = byte_vocabulary(b"only here")
    matcher = build("a*", vocabulary=vocabulary).matcher()
    assert matcher.accept(97)
    gone = weakref.ref(vocabulary)
    del vocabulary, matcher
    gc.collect()
    assert gone() is None


def test_masks_built_ahead_with_named_tokens() -> None:
    """A token that a finite grammar names leads on by its own edge, whatever bytes the vocabulary gives it."""
    tokens = [bytes([b]) for b in range(256)] + [b"<t>", b"", b"ab", b""]
    vocabulary = Vocabulary.from_bytes(tokens, eos=[259], special=[256, 257, 259], names={"<t>": 256, "<u>": 257})
    body = Alternation(
        (Sequence((Token("<t>"), Token(257), Bytes(b"ab"))), Token(97), Sequence((Bytes(b"ab"), Token(258))))
    )
    compiled = hand_made(body, vocabulary=vocabulary)
    assert compiled.ready is not None and compiled.stats["complete"]
    matcher = compiled.matcher()
    assert legal(matcher) == {256, 97, 258}
    assert matcher.accept(256) and legal(matcher) == {257}
    assert matcher.accept(257) and legal(matcher) == {97, 258}
    assert matcher.accept(258) and legal(matcher) == {259}
    matcher.reset()
    assert matcher.accept(97) and legal(matcher) == {259}, "as the token that the grammar names, not as text"
    matcher.reset()
    assert matcher.accept(258) and legal(matcher) == {258}
