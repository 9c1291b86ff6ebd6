"""Random recursive grammars, and short ways to write such grammars by hand."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from earley import Earley
from hypothesis import strategies as st

from stepmask.grammar.expression import (
    Alternation,
    Bytes,
    Characters,
    Complement,
    Condition,
    Expression,
    Grammar,
    Intersection,
    Member,
    Members,
    Reference,
    Repeat,
    Sequence,
    Token,
)
from stepmask.grammar.limits import Limits
from stepmask.grammar.rule_graph import needed_rules
from stepmask.grammar.simplify import contains

#: Every recursive rule a frame that is called; the default solves and inlines what it can.
FRAMES, SOLVED = Limits(max_inlined_positions=0), Limits()
BOTH_LIMITS = (FRAMES, SOLVED)
#: The same with every repeat of more than one a counter, where that is proved to need few heads.
COUNTED, COUNTED_SOLVED = Limits(max_inlined_positions=0, max_unrolled_positions=0), Limits(max_unrolled_positions=0)
ALL_LIMITS = (*BOTH_LIMITS, COUNTED, COUNTED_SOLVED)
NAMES = ("S", "T", "U", "V")
TOKEN = "<t>"
Rules = dict[str, Expression]

# ---------------------------------------------------------------------- writing grammars by hand


def ref(name: str) -> Reference:
    return Reference(name)


def seq(*parts: Expression | bytes) -> Sequence:
    return Sequence(tuple(map(_node, parts)))


def alt(*options: Expression | bytes) -> Alternation:
    return Alternation(tuple(map(_node, options)))


def rep(body: Expression | bytes, minimum: int = 0, maximum: int | None = None) -> Repeat:
    return Repeat(_node(body), minimum, maximum)


def opt(body: Expression | bytes) -> Repeat:
    return rep(body, 0, 1)


def _node(part: Expression | bytes) -> Expression:
    return Bytes(part) if isinstance(part, bytes) else part


def grammar(rules: Mapping[str, Expression], start: str = "S") -> Grammar:
    return Grammar("hand", "", dict(rules), start)


# ---------------------------------------------------------------------- random ones

LETTERS = (b"a", b"b", b"(", b")")
WIDE = "éü語🙂"  # two bytes with one first byte, three, four


#: Leaves; the empty string and what matches nothing among them.
LITERALS: tuple[Expression, ...] = (
    *map(Bytes, LETTERS),
    *map(Bytes, (b"ab", b"aa", b"(a", b"b)", b")(", b"))", b"aba", b"")),
    *(Bytes(character.encode()) for character in WIDE),
    Characters(((0x61, 0x62),)),
    Characters(((0x28, 0x29), (0x61, 0x61))),
    Characters(((0x61, 0x61), (0xE9, 0xFC), (0x8A9E, 0x8A9F))),
    Characters(()),
    Intersection((rep(Characters(((0x61, 0x62),))), rep(seq(Characters(((0x61, 0x62),)), b"b")))),
    Intersection((rep(alt(b"a", "é".encode()), 1, 3), Complement(Bytes(b"aa")))),
    Intersection((Bytes(b"a"), Bytes(b"b"))),
    Intersection((rep(b"a", 0, 2), rep(alt(b"b", b"aaa")))),
    # Wide ones, in which texts may go on for long.
    rep(Characters(((0x20, 0x27), (0x2A, 0xD7FF), (0xE000, 0x10FFFF)))),
    rep(Characters(((0x61, 0x7A), (0xC0, 0x9FFF))), 1, 3),
    rep(alt(b" ", Characters(((0x61, 0x7A),))), 1),
    seq(b" ", rep(Characters(((0x61, 0x62), (0xE9, 0xE9))))),
    seq(b'"', rep(Characters(((0x20, 0x21), (0x23, 0xD7FF)))), b'"'),
)
BOUNDS = ((0, 1), (0, None), (1, None), (0, 2), (2, 2), (1, 3), (2, None), (3, 3), (0, 6), (4, 5), (5, None))


def random_expression(
    rng: random.Random, names: tuple[str, ...], depth: int, tokens: bool, members: bool = False
) -> Expression:
    """An expression over rules of these names."""

    def inner() -> Expression:
        return random_expression(rng, names, depth - 1, tokens, members)

    if members and depth and rng.random() < 0.15:
        return random_members(rng, inner)

    kind = 0 if depth == 0 else rng.randrange(12)
    if kind < 3:
        if rng.random() < 0.5:
            return Reference(rng.choice(names))
        return Token(TOKEN) if tokens and rng.random() < 0.1 else rng.choice(LITERALS)
    if kind < 6:
        return Sequence(tuple(inner() for _ in range(rng.randint(1, 3))))
    if kind < 8:
        return Sequence((Bytes(rng.choice(LETTERS)), inner(), Bytes(rng.choice(LETTERS))))
    if kind < 10:
        return Alternation(tuple(inner() for _ in range(rng.randint(1, 3))))
    return Repeat(inner(), *rng.choice(BOUNDS))


KEYS: tuple[Expression, ...] = (
    *map(Bytes, (b'"a"', b'"b"', b'"ab"', b'"aa"', b"a", b"ab", b"b", '"é"'.encode())),
    seq(b'"', rep(Characters(((0x61, 0x62),)), 1, 2), b'"'),
    seq(b'"', rep(Characters(((0x20, 0x21), (0x23, 0xD7FF)))), b'"'),
    seq(b'"', Intersection((rep(Characters(((0x20, 0x21), (0x23, 0xD7FF)))), Complement(alt(b"a", b"b")))), b'"'),
)
SEPARATORS: tuple[Expression, ...] = (
    *map(Bytes, (b" ", b")", b"ab")), seq(rep(b" "), b"("), seq(b"(", opt(b" ")), opt(b" "), Bytes(b"")
)  # fmt: skip


def random_members(rng: random.Random, value: Callable[[], Expression]) -> Members:
    """Members with values of that kind: keys that overlap, bits of several keys, conditions of any sort."""
    options = []
    for i in range(rng.randint(1, 4)):
        rest = value() if rng.random() < 0.5 else rng.choice(LITERALS)
        rest = seq(b"(", rest) if rng.random() < 0.5 else rest
        bit = None if rng.random() < 0.25 else rng.choice((i, i, i, 5, 0))
        options.append(Member(rng.choice(KEYS), rest, bit))

    def bits(chance: float) -> int:
        return sum(1 << (o.bit or 0) for o in {o.bit: o for o in options}.values() if rng.random() < chance)

    def condition() -> Condition:
        required, taken, groups = bits(0.4), 0, []
        for _ in range(rng.choice((0, 0, 1, 2))):
            group = bits(0.7) & ~required & ~taken
            groups += [group] if group else []
            taken |= group
        least, most = rng.choice((0, 0, 0, 1, 2, 3)), rng.choice((None, None, None, 1, 2, 3, 4))
        return Condition(required, bits(0.2), least, most, tuple(groups))

    accept = [Condition()]
    if rng.random() < 0.8:
        accept = [condition() for _ in range(rng.randint(1, 3))]
    return Members(tuple(options), rng.choice(SEPARATORS), tuple(accept))


def random_rules(rng: random.Random, tokens: bool = False, members: bool = False) -> Rules:
    """Rules S, T, ...: nullable, left, right and mutually recursive, unit cycles, dead ones, as it comes."""
    for _ in range(4):
        names = NAMES[: rng.randint(1, len(NAMES))]
        found = {name: random_expression(rng, names, rng.randint(1, 3), tokens, members) for name in names}
        for name in names:
            if rng.random() < 0.6:  # a way out makes fewer rules that match nothing
                found[name] = Alternation((found[name], rng.choice(LITERALS)))
        if needed_rules(found, "S")[1] or (members and any(contains(found[name], Members) for name in names)):
            break
    return found


def rules(tokens: bool = False, members: bool = False) -> st.SearchStrategy[Rules]:
    """`random_rules`."""
    return st.randoms(use_true_random=False).map(lambda rng: random_rules(rng, tokens, members))


def is_language(found: Rules) -> bool:
    """Does S match anything?"""
    return Earley(found, "S").start() is not None
