"""Recursive grammars of one shape or another, what must follow a text, and what brings it to an end."""

from __future__ import annotations

import json
import random
from collections import deque

import numpy as np
import pytest
from earley import Earley, State
from hypothesis import assume, given
from hypothesis import strategies as st
from mask_sets import byte_vocabulary, tokens_of
from random_rules import ALL_LIMITS, BOTH_LIMITS, TOKEN, Rules, alt, is_language, opt, ref, rep, rules, seq
from recursive_cases import BYTES, Run, build, random_text, rows, vocabulary_for

from stepmask.grammar.automaton import RECURSIVE
from stepmask.grammar.expression import Characters, Token
from stepmask.grammar.json_value import json_value
from stepmask.grammar.limits import Limits
from stepmask.masks.arena import ACCEPTED, TOO_DEEP
from stepmask.masks.batch import Batch
from stepmask.masks.compiled import compile
from stepmask.masks.errors import StackLimitError
from stepmask.masks.finish import fewest_tokens, text_tokens
from stepmask.masks.layout import LIMIT, READY
from stepmask.masks.matcher import Matcher
from stepmask.masks.vocabulary import Vocabulary

BOTH = pytest.mark.parametrize("limits", BOTH_LIMITS, ids=["frames", "solved"])
ALL = pytest.mark.parametrize("limits", ALL_LIMITS, ids=["frames", "solved", "counted frames", "counted solved"])
LETTER = Characters(((0x61, 0x63),))
DIGIT = Characters(((0x30, 0x32),))

T, U, S = ref("T"), ref("U"), ref("S")
SHAPES: dict[str, Rules] = {
    "start within itself, nullable": {"S": alt(b"", seq(b"(", S, b")", S))},
    "nullable start called by others": {"S": rep(alt(b"a", T), 0, 2), "T": seq(b"(", S, S, b")")},
    "only the empty string": {"S": alt(b"", T), "T": seq(S, S)},
    "dangling else": {"S": alt(seq(b"i", S), seq(b"i", S, b"e", S), b"x")},
    "palindromes": {"S": alt(b"", b"a", b"b", seq(b"a", S, b"a"), seq(b"b", S, b"b"))},
    "a^n b^n or a^n b^2n": {"S": alt(T, U), "T": alt(b"", seq(b"a", T, b"b")), "U": alt(b"", seq(b"a", U, b"bb"))},
    "hidden left recursion": {"S": alt(seq(T, S, b"a"), b"b"), "T": alt(b"", b"(")},
    "right recursion before a return": {"S": seq(T, b")"), "T": alt(b"a", seq(b"a", T))},
    "indirect left recursion": {"S": alt(seq(T, b"a"), b"b"), "T": alt(seq(S, b"b"), seq(T, b"a"))},
    "counted repeats of itself": {"S": alt(b"a", seq(b"(", rep(S, 2, 3), b")"))},
    "counted items": {"S": alt(rep(DIGIT, 1, 4), seq(b"[", opt(seq(S, rep(seq(b",", S), 1, 5))), b"]"))},
    "counts within counts": {"S": alt(rep(LETTER, 2, 5), seq(b"(", rep(seq(b"<", rep(S, 1, 2), b">"), 3, None), b")"))},
    "counts in two ways": {"S": seq(b"(", rep(alt(b"a", T), 2, 7), b")"), "T": alt(S, b"b", b"bb")},
    "nullable items": {"S": seq(b"(", rep(opt(T), 3, 4), b")"), "T": alt(S, rep(b"a", 2, 3))},
    "separated lists": {"S": seq(b"[", opt(seq(T, rep(seq(b",", T)))), b"]"), "T": alt(S, LETTER)},
    "unit cycle with a way out": {"S": alt(T, seq(b"(", S, b")")), "T": alt(U, b"a"), "U": alt(S, b"b")},
    "closers that differ": {"S": rep(alt(seq(b"(", S, b")"), seq(b"[", S, b"]"), seq(b"{", S, b"}")))},
    "every rule ends at once": {
        "S": alt(seq(b"<", T), b"."), "T": alt(seq(b"<", U), b"."), "U": seq(S, opt(b">"))
    },
    "ambiguous to the utmost": {"S": alt(b"a", seq(S, S), seq(S, S, S), b"")},
    "tokens": {"S": alt(b"a", seq(Token(TOKEN), S, Token(TOKEN)), seq(b"(", S, b")"))},
}  # fmt: skip
BRACKETS = [b"]" * n for n in range(1, 6)] + [
    b"}])",
    b")]}",
    b"](",
    b"],[",
    b"[[",
    b"[a,",
    b"a]]",
    b"([{",
    b">>",
    b"<<",
    b"..",
    b"bb",
    b"bbb",
]


def vocabulary_of(found: Rules) -> Vocabulary:
    """Every byte, pieces of texts, and tokens that close and open several levels at once."""
    oracle, rng = Earley(found, "S"), random.Random(0)
    pieces = [bytes([b]) for b in range(256)] + BRACKETS
    for _ in range(12):
        text = random_text(oracle, rng, 30)
        pieces += [text[at : at + size] for size in (2, 3, 5) for at in range(0, len(text) - size, 4)]
    size = len(pieces) + 2
    return Vocabulary.from_bytes(
        [*pieces, b"", b"<t>"], eos=[size - 2], special=[size - 2, size - 1], names={TOKEN: size - 1}
    )


@ALL
@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str, limits: Limits) -> None:
    found = SHAPES[name]
    vocabulary = vocabulary_of(found)
    compiled = build(found, vocabulary, limits)
    batch = Batch(vocabulary, 4, None)
    for seed in range(4):
        rng = random.Random(seed)
        run = Run(batch, compiled, Earley(found, "S"))
        for step in range(14):
            legal = run.check(directly=step % 5 == 4)
            if step == 3:
                run.check_allows()
            text = [t for t in sorted(legal) if t not in (vocabulary.eos or ())]
            if not text:
                break
            long = [t for t in text if len(vocabulary.token(t)) > 1]
            run.accept(rng.choice(long if long and rng.random() < 0.7 else text))
        run.rollback(rng.randint(0, run.kept))
        run.check()


@BOTH
def test_tokens_that_close_many_levels(limits: Limits) -> None:
    vocabulary = byte_vocabulary(*BRACKETS)
    batch = Batch(vocabulary, 2, None)
    slot = batch.add(build(SHAPES["separated lists"], vocabulary, limits))
    token = {text: 256 + i for i, text in enumerate(BRACKETS)}
    assert batch.accept_bytes(slot, b"[[[[a")
    assert {token[b"]" * n] for n in range(1, 5)} <= tokens_of(batch.mask(slot))
    assert token[b"]]]]]"] not in tokens_of(batch.mask(slot)) and not batch.allows(slot, token[b"]]]]]"])
    assert batch.advance(rows(slot), rows(token[b"]]]"]))[0] == ACCEPTED
    assert tokens_of(batch.mask(slot)) == {ord(","), ord("]"), token[b"]"]}
    batch.rollback(slot, 1)
    assert batch.advance(rows(slot), rows(token[b"]]]]"]))[0] == ACCEPTED
    assert batch.is_complete(slot) and tokens_of(batch.mask(slot)) == {vocabulary.size - 1}


# ---------------------------------------------------------------------- larger ones


@BOTH
def test_three_hundred_keywords(limits: Limits) -> None:
    words = [f"{chr(97 + i % 26)}{chr(97 + i // 26)}{i}".encode() for i in range(300)]
    found: Rules = {
        "S": alt(b".", seq(b"(", ref("S"), b")"), *(seq(word, b" ", ref("S")) for word in words)),
    }
    vocabulary = byte_vocabulary(*words, *(word[:2] for word in words[::7]), *(word + b" (" for word in words[::11]))
    batch = Batch(vocabulary, 2, None)
    run = Run(batch, build(found, vocabulary, limits), Earley(found, "S"))
    for text in (b"", b"(", words[4] + b" (", words[7][:1], words[7][1:] + b" .", b")"):
        assert run.accept_bytes(text)
        run.check()


def test_too_many_frames_to_begin_with_are_refused_and_leave_the_slot() -> None:
    names = [f"R{i}" for i in range(600)]
    found: Rules = {"S": alt(*map(ref, names))}
    found |= {name: alt(b"x", seq(b"%d" % i, ref("S"), b"!")) for i, name in enumerate(names)}
    vocabulary = byte_vocabulary(b"ab")
    compiled = build(found, vocabulary)
    batch = Batch(vocabulary, 1, None)
    for _ in range(3):
        with pytest.raises(StackLimitError):
            batch.add(compiled)
        assert batch.free_slots == 1
    with pytest.raises(StackLimitError):
        compiled.matcher()


DOCUMENTS = [
    {"a": [1, 2.5e-3, {"b": None, "ü": "x\\\"\u20ac"}], "": [[], {}, [[[]]]], "t": True},
    [[[[[[{"k": [{}]}]]]]]], "only a string", -0.5,
]  # fmt: skip


@BOTH
@pytest.mark.parametrize("whitespace", ["compact", "flexible"])
def test_json(whitespace: str, limits: Limits) -> None:
    grammar = json_value(whitespace=whitespace)  # type: ignore[arg-type]
    vocabulary = byte_vocabulary(
        b'":', b'","', b'"}', b"}]", b"]]", b'{"', b"[[", b'": [', b"true", b'"}]}', b"\\u20", b" " * 4
    )
    compiled = compile(grammar, vocabulary, limits, use_cache=False)
    assert compiled.automaton.flags & RECURSIVE
    oracle = Earley(grammar.rules, grammar.start)
    batch = Batch(vocabulary, 2, None)
    for document in DOCUMENTS:
        run = Run(batch, compiled, oracle)
        text = json.dumps(
            document,
            separators=(",", ":") if whitespace == "compact" else (",\n ", ": "),
            ensure_ascii=len(str(document)) > 60,
        ).encode()
        rng, at = random.Random(1), 0
        while at < len(text):
            fits = [
                t
                for t in tokens_of(batch.mask(run.slot))
                if t < vocabulary.size - 1 and text.startswith(vocabulary.token(t), at)
            ]
            if at % 9 == 0:
                run.check(directly=at % 2 == 1)
            token = rng.choice(sorted(fits))
            assert run.accept(token)
            at += len(vocabulary.token(token))
        run.check()
        assert batch.is_complete(run.slot)
        run.remove()


def test_more_ways_to_read_a_text_than_there_is_room_for() -> None:
    """The count of words is open: each possible one is a head. The row says so, nothing changes, others go on."""
    found: Rules = {"S": rep(ref("W"), 1, 3000), "W": alt(b"a", b"aa", seq(b"(", ref("S"), b")"))}
    vocabulary = byte_vocabulary(b"a" * 8)
    batch = Batch(vocabulary, 2, None, max_rollback=40)
    compiled = build(found, vocabulary, BOTH_LIMITS[0])
    slot, other = batch.add(compiled), batch.add(compiled)
    assert batch.accept_bytes(slot, b"a" * 2000) and batch.accept_bytes(other, b"a(")
    before = batch.position(slot)
    answers = []
    while TOO_DEEP not in answers:
        answers = batch.advance(rows(slot, other), rows(256, 97)).tolist()
        assert answers[1] == ACCEPTED
    position = batch.position(slot)
    assert before < position < 20
    with pytest.raises(StackLimitError):
        batch.accept_bytes(slot, b"a" * 100)
    plan = batch.plan(rows(slot, other))
    assert plan.status.tolist() == [LIMIT, READY] and batch.position(slot) == position
    with pytest.raises(StackLimitError):
        batch.mask(slot)
    assert batch.advance(rows(slot), rows(ord("(")))[0] == ACCEPTED, "what needs no more heads is still taken"
    batch.rollback(slot, 6)
    assert {97, 256} <= tokens_of(batch.mask(slot)) and batch.advance(rows(slot), rows(256))[0] == ACCEPTED


# ---------------------------------------------------------------------- what must follow


def live_bytes(oracle: Earley, state: State) -> list[int]:
    """The bytes that may follow; of a wide class a few, which stand for the others."""
    live = sorted(symbol for symbol in oracle.live_symbols(state) if symbol < 256)
    return live if len(live) < 20 else [byte for byte in live if byte in BYTES]


def shortest_length(oracle: Earley, state: State, most: int = 10) -> int | None:
    """Bytes of a shortest completion by breadth-first search; None beyond `most` or where that takes too long."""
    queue, seen = deque([(state, 0)]), 0
    while queue:
        at, length = queue.popleft()
        if at.complete:
            return length
        seen += 1
        if length == most or seen > 150:
            return None
        queue.extend((after, length + 1) for byte in live_bytes(oracle, at) if (after := oracle.step(at, byte)))
    return None


def forced(oracle: Earley, state: State, most: int) -> bytes:
    text = bytearray()
    while len(text) < most and not state.complete:
        symbols = oracle.live_symbols(state)
        if len(symbols) != 1 or max(symbols) > 255:
            break
        text.append(symbols.pop())
        after = oracle.step(state, text[-1])
        assert after is not None
        state = after
    return bytes(text)


def check_ends(matcher: Matcher, oracle: Earley, text: bytes) -> None:
    state = oracle.read(oracle.start(), text)
    assert state is not None
    assert matcher.forced_bytes()[:40] == forced(oracle, state, 40)
    completion = matcher.shortest_completion()
    assert completion is not None
    after = oracle.read(state, completion)
    assert after is not None and after.complete
    length = shortest_length(oracle, state)
    if length is not None:
        assert len(completion) == length, (text, completion)
    else:
        assert len(completion) > 0
    spelled = text_tokens(matcher.compiled.vocabulary)
    assert matcher.tokens_to_finish() == fewest_tokens(completion, spelled)


@given(rules(members=True), st.integers(0, 2**32 - 1), st.sampled_from(ALL_LIMITS))
def test_ends_of_random_grammars(found: Rules, seed: int, limits: Limits) -> None:
    assume(is_language(found))
    rng = random.Random(seed)
    oracle = Earley(found, "S")
    vocabulary = vocabulary_for([found], rng, every_byte=True)
    batch_of_one = build(found, vocabulary, limits).matcher(max_rollback=4)
    for _ in range(4):
        text = random_text(oracle, rng, rng.randint(0, 10))
        batch_of_one.reset()
        assert batch_of_one.accept_bytes(text)
        check_ends(batch_of_one, oracle, text)


@ALL
@pytest.mark.parametrize("name", [name for name in SHAPES if name != "tokens"])
def test_ends_of_shapes(name: str, limits: Limits) -> None:
    found = SHAPES[name]
    oracle, rng = Earley(found, "S"), random.Random(1)
    matcher = build(found, byte_vocabulary(b"))", b")]", b"]]", b"bb"), limits).matcher(max_rollback=4)
    for _ in range(8):
        text = random_text(oracle, rng, rng.randint(0, 12))
        matcher.reset()
        assert matcher.accept_bytes(text)
        check_ends(matcher, oracle, text)


@BOTH
def test_ends_of_deep_texts(limits: Limits) -> None:
    """What closes 5,000 levels is long and is forced only as far as nothing else may come; asking changes nothing."""
    closing = bytes.maketrans(b"([{", b")]}")
    matcher = build(SHAPES["closers that differ"], byte_vocabulary(b"))))", b"]]]"), limits).matcher()
    rng = random.Random(0)
    text = bytes(rng.choice(b"([{") for _ in range(5000))
    assert matcher.accept_bytes(text)
    mask = matcher.mask()
    assert matcher.shortest_completion() == text[::-1].translate(closing)
    assert matcher.forced_bytes() == b"" and np.array_equal(matcher.mask(), mask)
    chain: Rules = {"S": alt(b"a", seq(b"(", ref("S"), b")>"))}
    deep = build(chain, byte_vocabulary(b")>)>", b">)"), limits).matcher()
    assert deep.accept_bytes(b"(" * 5000 + b"a")
    assert deep.forced_bytes() == (b")>" * 512), "as many as there is room for"
    assert deep.shortest_completion() == b")>" * 5000
    assert deep.tokens_to_finish() == 2500
    assert deep.accept_bytes(b")>" * 5000) and deep.is_complete and deep.shortest_completion() == b""


@BOTH
def test_ends_of_a_text_with_tokens(limits: Limits) -> None:
    """A token that may come is a choice, so nothing is forced."""
    found: Rules = {"S": alt(seq(b"abc", opt(ref("S")), b"d"), seq(b"x", Token(TOKEN), ref("S")))}
    vocabulary = vocabulary_of(found)
    matcher = build(found, vocabulary, limits).matcher()
    assert matcher.forced_bytes() == b""
    assert matcher.accept_bytes(b"a") and matcher.forced_bytes() == b"bc"
    assert matcher.shortest_completion() == b"bcd"
    matcher.reset()
    assert matcher.accept_bytes(b"x") and matcher.forced_bytes() == b"" and matcher.accept(vocabulary.names[TOKEN])
    assert matcher.accept_bytes(b"ab") and matcher.forced_bytes() == b"c"


def test_a_byte_that_leaves_one_head_is_one_unit_of_work() -> None:
    """Within a string nothing is made for a byte; and the stack is what it was, byte by byte or at once."""
    vocabulary = byte_vocabulary()
    batch = Batch(vocabulary, 2, None)
    compiled = compile(json_value(), vocabulary, use_cache=False)
    once, singly = batch.add(compiled), batch.add(compiled)
    for slot in (once, singly):
        assert batch.accept_bytes(slot, b'{"a": [1, "')
    before = batch.counters["work"]
    assert batch.accept_bytes(once, b"x" * 1000)
    assert batch.counters["work"] - before <= 1010
    for _ in range(1000):
        assert batch.accept_bytes(singly, b"x")
    for slot in (once, singly):
        assert batch.accept_bytes(slot, b'"]}') and batch.is_complete(slot)
