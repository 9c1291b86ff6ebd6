"""Objects in any order: every mask is exact, whatever members were there, and few contexts depend on which."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import pytest
from earley import Earley
from mask_sets import byte_vocabulary, tokens_of
from random_rules import BOTH_LIMITS, Rules, alt, grammar, opt, ref, rep, seq
from recursive_cases import Run, build, walking_directly
from wide_vocabulary import END, VOCABULARY

from stepmask.grammar.automaton import MEMBERS
from stepmask.grammar.compile import compile_grammar
from stepmask.grammar.errors import GrammarUnsatisfiable, GrammarUnsupported
from stepmask.grammar.explain import expected_at
from stepmask.grammar.expression import (
    Bytes,
    Characters,
    Complement,
    Condition,
    Expression,
    Intersection,
    Member,
    Members,
    Source,
    Token,
)
from stepmask.grammar.members import MAX_MEMBER_BITS, accepts, after_member
from stepmask.masks.batch import Batch

S = ref("S")
BOTH = pytest.mark.parametrize("limits", BOTH_LIMITS, ids=["frames", "solved"])
SPACE = rep(b" ")
PLAIN = Characters(((0x20, 0x21), (0x23, 0xD7FF), (0xE000, 0x10FFFF)))
STRING = seq(b'"', rep(PLAIN), b'"')
NUMBER = rep(Characters(((0x30, 0x39),)), 1)
FEW = (Condition(required=0b1, maximum=2),)


def members(
    names: tuple[str, ...],
    accept: tuple[Condition, ...] = (Condition(),),
    value: Expression = NUMBER,
    more: bool = False,
) -> Members:
    """Quoted names with bits 0, 1, ...; `more`: any other name as well."""
    keys = [Bytes(f'"{name}"'.encode()) for name in names]
    options = [Member(key, seq(b":", value), bit) for bit, key in enumerate(keys)]
    if more:
        options.append(Member(Intersection((STRING, Complement(alt(*keys)))), seq(b":", value), None))
    return Members(tuple(options), seq(SPACE, b",", SPACE), accept)


def object_of(found: Members) -> Expression:
    return seq(b"{", found, b"}")


NAMES = ("a", "ab", "b", "name", "na")
CONDITIONS: dict[str, tuple[Condition, ...]] = {
    "none": (Condition(),),
    "required": (Condition(required=0b10110),),
    "at most": (Condition(required=0b11, maximum=3),),
    "at least": (Condition(minimum=3, forbidden=0b1),),
    "one of each group": (Condition(groups=(0b11, 0b11100)),),
    "one of each group, few": (Condition(required=0b1, groups=(0b110, 0b11000), maximum=4),),
    "groups of which some may not be there": (Condition(forbidden=0b101, groups=(0b11, 0b11100), minimum=3),),
    "exactly": (Condition(minimum=2, maximum=2),),
    "one of two": (Condition(required=0b1, forbidden=0b10), Condition(required=0b10, forbidden=0b1)),
    "a needs b and b is alone": (Condition(forbidden=0b1), Condition(required=0b101, maximum=2)),
    "some cannot be met": (Condition(required=1 << 40), Condition(required=1, forbidden=1), Condition(minimum=1)),
}


@pytest.mark.parametrize("more", [False, True], ids=["closed", "open"])
@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions(name: str, more: bool) -> None:
    """Tokens hold parts of keys, several members, and what closes several objects."""
    found: Rules = {
        "S": alt(NUMBER, object_of(members(NAMES, CONDITIONS[name], alt(S, b"x"), more))),
    }
    vocabulary = byte_vocabulary(
        b'{"a', b'"a":', b'"name":1', b',"', b'",', b'1,"b":2', b'1,"b":2,"na', b"}}", b'1},"a":x', b'me":', b'na"',
        b'":x}', b'x,"ab":x,"b":x', b'{"a":{"b":{"', b"x}}", b'a":x,"a"', b'"zz":1', b'z":', b", ",
    )  # fmt: skip
    compiled = build(found, vocabulary)
    assert MEMBERS in compiled.automaton["frame_kind"]
    batch, oracle = Batch(vocabulary, 4, None), Earley(found, "S")
    for seed in range(3):
        rng = random.Random(seed)
        run = Run(batch, compiled, oracle)
        for step in range(18):
            legal = run.check(directly=step % 4 == 3) - {vocabulary.size - 1}
            if not legal:
                break
            likely = [t for t in legal if t > 255 or chr(t) in '{"}:,abnme1x']
            long = [t for t in likely if t > 255]
            run.accept(rng.choice(sorted(long if long and rng.random() < 0.5 else likely or legal)))
            if step == 10:
                run.fork().remove()
                run.rollback(rng.randint(0, 4))
        run.remove()


@BOTH
def test_no_dead_ends(limits: object) -> None:
    """What may not come any more is refused at the first byte that would lead there alone."""
    found: Rules = {"S": object_of(members(("aa", "ab", "ba"), (Condition(required=0b100, maximum=2),)))}
    matcher = build(found, byte_vocabulary(), limits).matcher()  # type: ignore[arg-type]
    assert matcher.accept_bytes(b'{"aa":1')
    assert not matcher.accept_bytes(b"}") and not matcher.accept_bytes(b',"a') and matcher.accept_bytes(b',"b')
    assert matcher.forced_bytes() == b'a":'
    assert matcher.accept_bytes(b'a":1')
    assert not matcher.accept_bytes(b",") and not matcher.accept_bytes(b" "), "no space where no member can follow"
    assert matcher.accept_bytes(b"}") and matcher.is_complete


def test_shortest_completions_count_what_is_missing() -> None:
    found: Rules = {"S": object_of(members(("long name", "b", "c"), (Condition(required=0b1, minimum=3),), more=True))}
    matcher = build(found, byte_vocabulary()).matcher()

    def completion() -> bytes:
        shortest = matcher.shortest_completion()
        assert shortest is not None
        return shortest

    assert len(completion()) == len(b'{"long name":0,"":0,"":0}')
    assert matcher.accept_bytes(b'{"b":1,"')
    assert len(completion()) == len(b'":0,"long name":0}')
    assert matcher.accept_bytes(b"l")
    assert completion() == b'ong name":0,"":0}'
    assert matcher.accept_bytes(b'"') and completion() == b':0,"long name":0}'


@pytest.mark.parametrize("accept", [(Condition(),), (Condition(required=0b11, maximum=3),)], ids=["any", "at most"])
@pytest.mark.parametrize("more", [False, True], ids=["closed", "open"])
def test_every_token(accept: tuple[Condition, ...], more: bool) -> None:
    """Against `allows`, which reads a token byte by byte on the stack itself, and against the walk of the stack."""
    names = ("abc", "a", "日本", "b", "c def")
    value = alt(S, STRING, rep(NUMBER, 1, 2))
    found: Rules = {"S": seq(b"{", SPACE, opt(members(names, accept, value, more)), b"}")}
    batch = Batch(VOCABULARY, 1, None)
    slot = batch.add(build(found, VOCABULARY))
    for seed in range(4):
        rng = random.Random(seed)
        batch.reset(slot)
        for _ in range(12):
            mask = tokens_of(batch.mask(slot))
            assert mask == {token for token in range(VOCABULARY.size) if batch.allows(slot, token)}
            with walking_directly(batch):
                assert mask == tokens_of(batch.mask(slot))
            ways = [t for t in mask if VOCABULARY.token(t) in (b"{", b'"', b":", b",", b"}", b"a", b"abc", b"b", b"1")]
            pick = sorted(ways if ways and rng.random() < 0.8 else mask - {END})
            if not pick:
                break
            batch.advance(_row(slot), _row(rng.choice(pick)))


def test_every_token_of_names_by_pattern() -> None:
    """A name is known by its first letter, and what else may come is another one."""
    first = seq(b'"x', rep(PLAIN), b'"')
    other = Intersection((STRING, Complement(alt(first, b'"abc"'))))
    value = seq(b":", alt(S, b"1"))
    for accept in ((Condition(),), (Condition(maximum=2),), (Condition(required=0b10, maximum=2),)):
        options = (Member(first, value, 0), Member(Bytes(b'"abc"'), value, 1), Member(other, value, None))
        batch = Batch(VOCABULARY, 1, None)
        slot = batch.add(build({"S": object_of(Members(options, Bytes(b","), accept))}, VOCABULARY))
        for text in (b'{"', b'{"x":1,"', b'{"x":1,"a', b'{"b":1,"', b'{"abc":1,"', b'{"abc":1,"x', b'{"x":1,"abc":1'):
            batch.reset(slot)
            if batch.accept_bytes(slot, text):
                mask = tokens_of(batch.mask(slot))
                assert mask == {token for token in range(VOCABULARY.size) if batch.allows(slot, token)}
                with walking_directly(batch):
                    assert mask == tokens_of(batch.mask(slot))


def _row(value: int) -> npt.NDArray[np.int32]:
    return np.array([value], np.int32)


# ---------------------------------------------------------------------- size


def test_sixty_members_are_a_trie_and_a_register() -> None:
    """No state of the automaton and no wide context depends on the members that were there."""
    names = tuple(f"key {i}" for i in range(60))
    found: Rules = {"S": object_of(members(names, value=alt(S, STRING)))}
    compiled = build(found, VOCABULARY)
    assert compiled.automaton.n_states < 200
    batch = Batch(VOCABULARY, 1, None)
    slot = batch.add(compiled)
    spent = []
    for seed in range(8):
        rng = random.Random(seed)
        batch.reset(slot)
        order = rng.sample(names, 20)
        for byte in ("{" + ",".join(f'"{name}":"é a"' for name in order) + "}").encode():
            before = batch.counters["work"]
            batch.mask(slot)
            spent.append(batch.counters["work"] - before)
            assert batch.accept_bytes(slot, bytes([byte]))
    # Lists of the ends of names are; a string takes some 4,000.
    assert max(spent[-2000:]) < 3000, "a string is not walked again for other members"


def test_too_many_members_and_what_may_not_stand_in_a_key() -> None:
    where = Source("{...}", "#/properties")
    names = tuple(f"k{i}" for i in range(MAX_MEMBER_BITS + 1))
    whole = members(names)
    beside = members(names[:60], more=True)
    for found, message in (
        (Members(whole.options, whole.separator, source=where), "64 bits.*#/properties"),
        (Members(beside.options, beside.separator, (Condition(maximum=100),)), "62 bits"),
        (Members((Member(Token("<t>"), Bytes(b"x"), 0),), Bytes(b",")), "token"),
        (Members((Member(Bytes(b"k"), Bytes(b"x"), 0),), Token("<t>")), "token"),
        (Members((Member(rep(b"k"), Bytes(b"x"), 0),), Bytes(b",")), "key of a member may not be empty"),
        (Members((Member(seq(b"k", S), Bytes(b"x"), 0),), Bytes(b",")), "refers to itself"),
    ):
        with pytest.raises(GrammarUnsupported, match=message):
            compile_grammar(grammar({"S": object_of(found)}))
    compile_grammar(grammar({"S": object_of(members(names[:-1]))}))


@pytest.mark.parametrize(
    "accept",
    [
        (Condition(),),
        (Condition(minimum=62, maximum=63),),
        (
            Condition(required=1 << 63, maximum=2),
            Condition(required=1 << 62, forbidden=1 << 63, groups=(0b11, 1 << 61)),
        ),
    ],
    ids=["any", "nearly all", "the last"],
)
def test_a_register_of_all_bits(accept: tuple[Condition, ...]) -> None:
    """As many members as a register has bits: none is taken for another, nor a register for that none is there."""
    names = [f"{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(MAX_MEMBER_BITS)]
    vocabulary = byte_vocabulary(*(f'{mark}"{name}":1'.encode() for mark in "{," for name in names))
    node = members(tuple(names), accept, Bytes(b"1"))
    batch = Batch(vocabulary, 1, None)
    slot = batch.add(build({"S": object_of(node)}, vocabulary))
    for seed in range(4):
        rng = random.Random(seed)
        order = rng.sample(range(MAX_MEMBER_BITS), MAX_MEMBER_BITS)
        if seed % 2:
            order.sort(key=lambda bit: bit < 61)
        batch.reset(slot)
        bits = 0
        for count, bit in enumerate([*order, order[0]]):
            legal = {i for i in range(MAX_MEMBER_BITS) if after_member(node, bits, count, node.options[i])}
            mask = tokens_of(batch.mask(slot))
            first = 256 + (MAX_MEMBER_BITS if count else 0)
            assert {token - first for token in mask if first <= token < first + MAX_MEMBER_BITS} == legal
            assert (ord("}") in mask) == (count > 0 and accepts(node, bits, count))
            if count % 16 == 0 or count > 60:
                assert mask == {token for token in range(vocabulary.size) if batch.allows(slot, token)}
                with walking_directly(batch):
                    assert mask == tokens_of(batch.mask(slot))
            assert bool(batch.advance(_row(slot), _row(first + bit))[0]) == (bit in legal)
            if bit not in legal:
                break
            bits |= 1 << bit


def test_lists_that_cannot_be() -> None:
    for accept in (
        (),
        (Condition(required=0b1000),),
        (Condition(required=1, forbidden=1),),
        (Condition(minimum=3, maximum=2),),
        (Condition(minimum=4),),
        (Condition(minimum=3, forbidden=1),),
        (Condition(required=0b111, maximum=2),),
        (Condition(groups=(0b1, 0b110), maximum=1),),
        (Condition(groups=(0b1000,)),),
        (Condition(forbidden=0b11, groups=(0b11,)),),
    ):
        with pytest.raises(GrammarUnsatisfiable):
            compile_grammar(grammar({"S": object_of(members(("a", "b", "c"), accept))}))
    # A value that nothing is is a member that cannot be there.
    dead = members(("a", "b"), (Condition(required=0b11),), value=alt(seq(b"x", ref("N"))))
    with pytest.raises(GrammarUnsatisfiable):
        compile_grammar(grammar({"S": object_of(dead), "N": seq(b"n", ref("N"))}))
    empty = build({"S": object_of(members(("a",), (Condition(maximum=0),)))}, byte_vocabulary()).matcher()
    assert empty.accept_bytes(b"{") and empty.forced_bytes() == b"}"


def test_what_may_follow_is_explained() -> None:
    keys = members(("a", "b"), FEW)
    options = tuple(Member(o.key, o.rest, o.bit, source=Source(f"member {o.bit}", "x")) for o in keys.options)
    found: Rules = {"S": object_of(Members(options, keys.separator, FEW))}
    expected = expected_at(grammar(found), b'{"b":1,', b'"')
    assert expected is not None and [e.what for e in expected] == ["member 0"]
    assert expected_at(grammar(found), b'{"b":1', b"}") == []
