"""The Earley oracle against a fixpoint over all spans of a text, and that what it calls alive can be finished."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from earley import Earley, State, encoded_spans
from hypothesis import given
from hypothesis import strategies as st
from oracles import expression_matches

from stepmask.grammar.expression import (
    ALL_CODE_POINTS,
    ANY_CHARACTER,
    NOTHING,
    Alternation,
    Bytes,
    Characters,
    Complement,
    Condition,
    Expression,
    Intersection,
    Lookahead,
    Member,
    Members,
    Reference,
    Repeat,
    Sequence,
    Token,
)

Spans = frozenset[tuple[int, int]]
A, B, S = Bytes(b"a"), Bytes(b"b"), Reference("start")
TEXTS = [bytes(text) for length in range(6) for text in itertools.product(b"ab", repeat=length)]


def is_in(rules: Mapping[str, Expression], text: bytes) -> bool:
    """The least solution of the rules over spans of `text`, by trying until nothing changes."""
    places = range(len(text) + 1)
    empty: Spans = frozenset((place, place) for place in places)
    known: dict[str, Spans] = dict.fromkeys(rules, frozenset())

    def joined(first: Spans, second: Spans) -> Spans:
        return frozenset((a, d) for a, b in first for c, d in second if b == c)

    def spans(node: Expression) -> Spans:
        if isinstance(node, Reference):
            return known[node.rule]
        if isinstance(node, Sequence):
            whole = empty
            for part in node.parts:
                whole = joined(whole, spans(part))
            return whole
        if isinstance(node, Alternation):
            return frozenset().union(*map(spans, node.options))
        if isinstance(node, Repeat):
            body, power, whole = spans(node.body), empty, frozenset()
            # Past so many bodies, further ones are empty and add nothing.
            enough = node.minimum + len(text) + 1
            for count in range(enough if node.maximum is None else min(node.maximum + 1, enough)):
                whole |= power if count >= node.minimum else frozenset()
                power = joined(power, body)
            return whole
        return frozenset((a, b) for a in places for b in places if a <= b and expression_matches(node, text[a:b]))

    while True:
        new = {name: spans(body) for name, body in rules.items()}
        if new == known:
            return (0, len(text)) in known["start"]
        known = new


leaves = st.sampled_from(
    [
        A,
        B,
        Bytes(b""),
        Bytes(b"ab"),
        Bytes(b"ba"),
        NOTHING,
        Characters(((97, 98),)),
        S,
        S,
        Reference("other"),
        Reference("third"),
        Intersection((Repeat(Sequence((A, B)), 0, None), Repeat(ANY_CHARACTER, 1, 4))),
        Complement(Alternation((A, Sequence((B, Repeat(ANY_CHARACTER, 0, None)))))),
    ]
)


def _extend(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    parts = st.lists(inner, max_size=3).map(tuple)
    bounds = st.sampled_from([(0, None), (1, None), (0, 1), (2, 3), (0, 2), (3, None), (0, 0)])
    repeated = st.builds(lambda body, bound: Repeat(body, *bound), inner, bounds)
    return parts.map(Sequence) | parts.map(Alternation) | repeated


expressions = st.recursive(leaves, _extend, max_leaves=6)
grammars = st.fixed_dictionaries({"start": expressions, "other": expressions, "third": expressions})


@given(grammars)
def test_complete(rules: dict[str, Expression]) -> None:
    oracle = Earley(rules, "start")
    for text in TEXTS[:31]:
        assert oracle.complete(text) == is_in(rules, text), text


@given(grammars)
def test_alive(rules: dict[str, Expression]) -> None:
    oracle = Earley(rules, "start")
    for text in TEXTS:
        if oracle.complete(text):
            assert all(oracle.alive(text[:length]) for length in range(len(text) + 1))
    for text in TEXTS[:31]:
        state = oracle.read(oracle.start(), text)
        if state is not None:
            completion = shortest(oracle, state)
            assert oracle.complete(text + completion)
            if len(completion) < 10:
                assert is_in(rules, text + completion)


def shortest(oracle: Earley, state: State) -> bytes:
    level = [(b"", state)]
    while level:
        for text, state in level:
            if state.complete:
                return text
        # Of a letter and the other bytes beside it, one is enough.
        level = [
            (text + bytes([byte]), following)
            for text, state in level[:50]
            for byte in sorted(oracle.live_symbols(state) & {*b"ab", 0x80, 0xC2})
            if (following := oracle.step(state, byte)) is not None
        ]
    raise AssertionError("alive, and no text ends")


@pytest.mark.parametrize(
    ("rules", "complete", "alive", "dead"),
    [
        ({"start": Alternation((Sequence((S, Bytes(b"+"), A)), A))}, ["a", "a+a+a"], ["", "a+"], ["+", "aa"]),
        ({"start": Alternation((Sequence((A, S)), B))}, ["b", "aab"], ["aaa"], ["ba", "c"]),
        ({"start": Alternation((Sequence((A, S, B)), Bytes(b"")))}, ["", "ab", "aabb"], ["aab"], ["b", "aba"]),
        ({"start": Alternation((S, Sequence((S, S)), A))}, ["a", "aaaa"], [""], ["b"]),
        ({"start": Alternation((Sequence((A, S)), Bytes(b"bb"), Sequence((B, NOTHING, A))))}, ["abb"], ["ab"], ["ba"]),
        ({"start": Alternation((Sequence((A, S)),))}, [], [], ["", "a"]),
        ({"start": Alternation((A, Sequence((B, Reference("x"))))), "x": Reference("x")}, ["a"], [""], ["b"]),
        ({"start": Repeat(Repeat(Alternation((A, Bytes(b""))), 0, None), 3, 5)}, ["", "aaaaaaa"], [], ["b"]),
        ({"start": Repeat(Alternation((A, Bytes(b"bb"))), 2, 3)}, ["aa", "abba"], ["", "ab"], ["aaaa", "bab"]),
        ({"start": Characters(((0xE9, 0x4E2D), (0x1F600, 0x1F64F)))}, ["é", "中", "😀"], [""], ["a", "龠"]),
    ],
)
def test_known(rules: dict[str, Expression], complete: list[str], alive: list[str], dead: list[str]) -> None:
    oracle = Earley(rules, "start")
    assert [oracle.complete(text.encode()) for text in complete] == [True] * len(complete)
    assert [oracle.complete(text.encode()) for text in alive + dead] == [False] * len(alive + dead)
    assert [oracle.alive(text.encode()) for text in complete + alive] == [True] * len(complete + alive)
    assert [oracle.alive(text.encode()) for text in dead] == [False] * len(dead)


def test_regular_parts_refer_to_rules() -> None:
    word = Reference("word")
    rules = {
        "start": Sequence((Intersection((word, Complement(Bytes(b"if;")))), Repeat(S, 0, 1))),
        "word": Sequence((Repeat(Characters(((97, 122),)), 1, 2), Bytes(b";"))),
    }
    oracle = Earley(rules, "start")
    assert (
        oracle.complete(b"a;ig;") and oracle.alive(b"i") and not oracle.alive(b"if;") and oracle.alive(b"if") is False
    )
    with pytest.raises(NotImplementedError, match="recursion"):
        Earley({"start": Complement(S)}, "start")


def test_prefix_without_any_ending_is_dead_in_regular_parts() -> None:
    # Only "ab" is in both; "aa" leads on in each alone.
    both = Intersection((Sequence((A, Characters(((97, 98),)))), Alternation((Bytes(b"aac"), Bytes(b"ab")))))
    oracle = Earley({"start": both}, "start")
    assert oracle.alive(b"a") and not oracle.alive(b"aa") and oracle.complete(b"ab")


def test_tokens_and_vocabulary() -> None:
    oracle = Earley({"start": Sequence((A, Token("<end>"), Repeat(Token(7), 0, None), B))}, "start")
    end, seven = oracle.tokens["<end>"], oracle.tokens[7]
    assert min(end, seven) >= 256
    assert oracle.complete([97, end, seven, seven, 98]) and not oracle.alive([97, seven])
    state = oracle.read(oracle.start(), [97, end])
    assert state is not None and oracle.live_symbols(state) == {seven, 98}
    assert oracle.allowed(state, [b"b", b"", b"a", b"bb"]) == [True, False, False, False]
    assert oracle.step(state, 98) is oracle.step(state, 98)


def test_encoded_spans() -> None:
    for ranges in [ALL_CODE_POINTS, ((0x7E, 0x81), (0x7FE, 0x900), (0xFFF0, 0x10010))]:
        spans = encoded_spans(ranges)
        for code_point in [*range(0x1200), *range(0xD000, 0xD800), *range(0xE000, 0xE100), *range(0xFF00, 0x10100)]:
            text = chr(code_point).encode()
            fits = [
                row
                for row in spans
                if len(row) == len(text)
                and all(low <= byte <= high for byte, (low, high) in zip(text, row, strict=True))
            ]
            assert len(fits) == any(low <= code_point <= high for low, high in ranges)


CONDITIONS = st.lists(
    st.builds(
        Condition,
        required=st.integers(0, 7),
        forbidden=st.integers(0, 7),
        minimum=st.integers(0, 3),
        maximum=st.none() | st.integers(0, 4),
    ),
    min_size=1,
    max_size=3,
)


@given(CONDITIONS, st.booleans())
def test_members_are_all_orders_of_all_sets(accept: list[Condition], more: bool) -> None:
    bits = [0, 1, 2] + [None] * more
    options = tuple(Member(Bytes(b"%c" % (97 + i)), Bytes(b"1"), bit) for i, bit in enumerate(bits))
    oracle = Earley({"start": Members(options, Bytes(b","), tuple(accept))}, "start")
    lists = [order for n in range(6) for order in itertools.product(range(len(bits)), repeat=n)]
    language = set()
    for order in lists:
        keys = [bits[i] for i in order if bits[i] is not None]
        seen = sum(1 << key for key in keys if key is not None)
        if len(set(keys)) == len(keys) and any(
            c.required & seen == c.required
            and not c.forbidden & seen
            and c.minimum <= len(order) <= (len(order) if c.maximum is None else c.maximum)
            for c in accept
        ):
            language.add(b",".join(b"%c1" % (97 + i) for i in order))
    for order in lists:
        text = b",".join(b"%c1" % (97 + i) for i in order)
        assert oracle.complete(text) == (text in language)
    if not more:
        begun = {text[:end] for text in language for end in range(len(text) + 1)}
        for end in range(12):
            assert {text for text in begun if len(text) == end} == {
                text for text in _texts(oracle, end) if oracle.alive(text)
            }


def _texts(oracle: Earley, length: int) -> set[bytes]:
    """The live texts of that length."""
    found: dict[bytes, State | None] = {b"": oracle.start()} if oracle.start() else {}
    for _ in range(length):
        found = {
            text + bytes([byte]): oracle.step(state, byte)
            for text, state in found.items()
            if state is not None
            for byte in oracle.live_symbols(state)
        }
    return set(found)


def test_what_it_does_not_know() -> None:
    with pytest.raises(NotImplementedError):
        Earley({"start": Lookahead(A, False)}, "start")
    with pytest.raises(KeyError):
        Earley({"start": Reference("missing")}, "start")


def test_deep_and_long() -> None:
    node: Expression = A
    for _ in range(2000):
        node = Sequence((node,))
    rules: dict[str, Expression] = {f"r{number}": Reference(f"r{number + 1}") for number in range(5000)}
    assert Earley({**rules, "r5000": node}, "r0").complete(b"a")
    assert Earley({"start": Alternation((Sequence((S, S)), A))}, "start").complete(b"a" * 40)
