"""Languages of constrained numbers against exact arithmetic on their texts."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from number_texts import language, lives, takes

from stepmask.grammar.errors import GrammarTooLarge
from stepmask.grammar.expression import Source
from stepmask.grammar.json_schema.numbers import NumberConstraint, number_expression
from stepmask.grammar.limits import Limits

#: RFC 8259, section 6: sign, integer part, fraction, exponent.
SYNTAX = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?([eE][-+]?[0-9]+)?")
F = Fraction


def decimal(text: str | int) -> Fraction:
    return Fraction(str(text))


def decimals(*texts: str | int) -> frozenset[Fraction]:
    return frozenset(map(decimal, texts))


def is_multiple(value: Fraction, step: Fraction) -> bool:
    return value % step == 0


def satisfies(constraint: NumberConstraint, value: Fraction) -> bool:
    """The constraint's meaning, keyword by keyword."""
    wrong = [
        constraint.integer and not is_multiple(value, F(1)),
        constraint.fractional and is_multiple(value, F(1)),
        constraint.minimum is not None and not constraint.exclusive_minimum and value < constraint.minimum,
        constraint.minimum is not None and constraint.exclusive_minimum and value <= constraint.minimum,
        constraint.maximum is not None and not constraint.exclusive_maximum and value > constraint.maximum,
        constraint.maximum is not None and constraint.exclusive_maximum and value >= constraint.maximum,
        not all(is_multiple(value, step) for step in constraint.multiples),
        any(is_multiple(value, step) for step in constraint.non_multiples),
        constraint.allowed is not None and value not in constraint.allowed,
        value in constraint.excluded,
    ]
    return not any(wrong)


def expected(constraint: NumberConstraint, text: str, max_digits: int | None = 40) -> bool:
    """Whether a text without exponent is in the language."""
    match = SYNTAX.fullmatch(text)
    if match is None or match[4]:
        return False
    runs = re.findall("[0-9]+", text)
    return all(max_digits is None or len(run) <= max_digits for run in runs) and satisfies(constraint, decimal(text))


# ------------------------------------------------------------------------------------------------ random constraints

STEPS = ["1", "2", "3", "7", "12", "20", "100", "0.1", "0.25", "0.01", "1.5", "2.5", "0.15", "0.3"]


@st.composite
def constraints(draw: st.DrawFn, values: st.SearchStrategy[Fraction]) -> NumberConstraint:
    """Constraints whose constants are drawn from `values`; each keyword is there with some chance."""

    def maybe(chance: int) -> bool:
        return draw(st.integers(1, 10)) <= chance

    def steps(chance: int) -> frozenset[Fraction]:
        count = draw(st.integers(1, 2)) if maybe(chance) else 0
        return decimals(*(draw(st.sampled_from(STEPS)) for _ in range(count)))

    minimum = draw(values) if maybe(5) else None
    maximum = draw(values) if maybe(5) else None
    if minimum is not None and maximum is not None and maybe(8):
        minimum, maximum = min(minimum, maximum), max(minimum, maximum)
    return NumberConstraint(
        integer=maybe(3),
        fractional=maybe(2),
        minimum=minimum,
        exclusive_minimum=minimum is not None and draw(st.booleans()),
        maximum=maximum,
        exclusive_maximum=maximum is not None and draw(st.booleans()),
        multiples=steps(3),
        non_multiples=steps(2),
        allowed=draw(st.frozensets(values, max_size=5)) if maybe(2) else None,
        excluded=draw(st.frozensets(values, max_size=3)) if maybe(3) else frozenset(),
    )


def written(value: Fraction) -> str:
    """A decimal number's shortest text without exponent."""
    sign, value = "-" if value < 0 else "", abs(value)
    whole, rest = divmod(value, 1)
    digits = ""
    while rest:
        digit, rest = divmod(10 * rest, 1)
        digits += str(digit)
    return f"{sign}{whole}{'.' if digits else ''}{digits}"


small = st.integers(-120, 120).map(lambda tenths: F(tenths, 10))

#: All texts of numbers with runs of at most one digit, and without exponent.
SHORT = [
    sign + whole + fraction
    for sign in ("", "-")
    for whole in "0123456789"
    for fraction in ("", *(f".{digit}" for digit in range(10)))
]


@given(constraints(small))
@example(NumberConstraint(minimum=F(0), exclusive_minimum=True, maximum=F(1, 10), exclusive_maximum=True))
@example(NumberConstraint(minimum=F(1), exclusive_minimum=True, maximum=F(2), exclusive_maximum=True, integer=True))
@example(NumberConstraint(multiples=decimals("0.01"), non_multiples=decimals("0.1")))
@example(NumberConstraint(multiples=decimals("20")))
def test_all_short_texts(constraint: NumberConstraint) -> None:
    """Every text is taken or not as its value says; no number: no expression; every live prefix leads to a number."""
    wanted = {text for text in SHORT if expected(constraint, text, 1)}
    matcher = language(constraint, 1)
    assert (matcher is None) == (not wanted)
    if matcher is None:
        return
    prefixes = {text[:end] for text in wanted for end in range(len(text) + 1)}
    taken, alive = set(), set()
    work = [""]
    while work:
        text = work.pop()
        alive.add(text)
        lives(matcher, text)
        if matcher.is_complete:
            taken.add(text)
        work += [text + symbol for symbol in "-0123456789." if matcher.allows(ord(symbol))]
    assert taken == wanted
    assert alive == prefixes
    for text in ("+1", "01", "-01", "1.", ".5", "1.1.1", "--1", "1,5", "0x1", " 1", "1 ", "NaN", "", "-", "11", "1.11"):
        assert not takes(matcher, text)


@given(constraints(small), constraints(small))
def test_intersect(one: NumberConstraint, other: NumberConstraint) -> None:
    both = one.intersect(other)
    assert both == other.intersect(one)
    matchers = [language(constraint, 1) for constraint in (one, other, both)]
    for text in SHORT:
        value = decimal(text)
        assert both.admits(value) == (one.admits(value) and other.admits(value)) == satisfies(both, value)
        first, second, third = (takes(matcher, text) for matcher in matchers)
        assert third == (first and second)


large = st.one_of(
    small,
    st.builds(lambda digits, places: F(digits, 10**places), st.integers(-(10**12), 10**12), st.integers(0, 14)),
    st.sampled_from(["0", "9007199254740993", "-9007199254740992", "1e39", "1e40", "-1e308", "1e-40", "1e-41"]).map(F),
)


@st.composite
def near(draw: st.DrawFn, constraint: NumberConstraint) -> str:
    """A text of a number at one of the constants of the constraint or some multiples away from it, perhaps spoilt."""
    bounds = [bound for bound in (constraint.minimum, constraint.maximum) if bound is not None]
    centres = sorted({*bounds, *constraint.excluded, *(constraint.allowed or ()), F(0)})
    value = draw(st.sampled_from(centres))
    steps = sorted({*constraint.multiples, *constraint.non_multiples, F(1)})
    if constraint.multiples and draw(st.booleans()):
        value -= value % draw(st.sampled_from(steps))
    value += draw(st.integers(-30, 30)) * draw(st.sampled_from([*steps, F(1, 10), F(1, 10**9), F(10**7), F(0)]))
    text = written(value)
    for _ in range(draw(st.integers(0, 2))):
        kind = draw(st.integers(0, 5))
        at = draw(st.integers(0, len(text)))
        if kind == 0:
            text += draw(st.sampled_from(["0", "00", ".0", ".", "5", "e", "0" * 40]))
        elif kind == 1:
            text = text[:at] + draw(st.sampled_from("0123456789.-")) + text[at + draw(st.integers(0, 1)) :]
        elif kind == 2:
            text = text[:at] + text[at + 1 :]
        elif kind == 3:
            text = text[1:] if text.startswith("-") else "-" + text
        elif kind == 4:
            text = draw(st.sampled_from(["-0", "-0.0", "0.00", "0"]))
    return text


@given(st.data(), st.sampled_from([None, 1, 3, 14, 40]))
def test_texts_near_the_constants(data: st.DataObject, max_digits: int | None) -> None:
    constraint = data.draw(constraints(large))
    matcher = language(constraint, max_digits)
    for text in data.draw(st.lists(near(constraint), min_size=1, max_size=12)):
        assert takes(matcher, text) == expected(constraint, text, max_digits), text
        if matcher is not None and expected(constraint, text, max_digits):
            assert all(lives(matcher, text[:end]) for end in range(len(text)))


EXPONENTS = ["e0", "E+1", "e2", "e+07", "E30", "e-0", "E-1", "e-30", "e", "e+", "e1.0", "e--1"]


@given(st.data())
def test_what_is_taken_satisfies_the_constraint_whatever_its_exponent(data: st.DataObject) -> None:
    constraint = data.draw(constraints(large))
    matcher = language(constraint)
    assume(matcher is not None)
    for text in data.draw(st.lists(near(constraint), min_size=1, max_size=12)):
        for exponent in (*EXPONENTS, "e5" + "0" * 39):
            if takes(matcher, text + exponent):
                assert SYNTAX.fullmatch(text + exponent) and expected(constraint, text)
                if len(exponent) < 10:
                    assert satisfies(constraint, decimal(text + exponent)), text + exponent


# ---------------------------------------------------------------------------------------------------------- examples


@pytest.mark.parametrize(
    ("constraint", "upward", "downward", "none"),
    [
        (NumberConstraint(), "1 -2.5 0.1 0", "1 -2.5 0.1 0", ""),
        (NumberConstraint(minimum=F(0)), "1 2.5 0 -0", "1 2.5 0 -0", ""),
        (NumberConstraint(maximum=F(0), exclusive_maximum=True), "-1 -2.5", "-1 -2.5", ""),
        (NumberConstraint(excluded=decimals(0)), "1 -2.5", "1 -2.5", ""),
        (NumberConstraint(integer=True), "1 -2 5.0 0", "", ""),
        (NumberConstraint(integer=True, minimum=F(10)), "10 12.0", "", ""),
        (NumberConstraint(minimum=F(-5)), "0 7 0.5", "0 7 0.5 -4 -0.5", ""),
        (NumberConstraint(maximum=F(7)), "-8 -0.5", "-8 -0.5 7 0.3", ""),
        (NumberConstraint(minimum=F(5)), "5 7", "", ""),
        (NumberConstraint(maximum=F(-5), exclusive_maximum=True), "-5.1", "", ""),
        (NumberConstraint(minimum=F(0), maximum=F(1)), "", "1 0.5", ""),
        (NumberConstraint(minimum=F(-180), maximum=F(180)), "", "-180 0.01", ""),
        (NumberConstraint(minimum=F(0), exclusive_minimum=True, maximum=F(1)), "", "1.0", ""),
        (NumberConstraint(minimum=F(-1), maximum=F(1), excluded=decimals("0.1")), "", "-1", "0.2 1"),
        (NumberConstraint(minimum=F(1), maximum=F(9)), "", "", "5"),
        (NumberConstraint(integer=True, minimum=F(0), maximum=F(9)), "", "", "5 0 -0"),
        (NumberConstraint(multiples=decimals("0.25")), "0.25 -3", "", ""),
        (NumberConstraint(integer=True, excluded=decimals(100)), "-1", "", "1 5"),
        (NumberConstraint(minimum=F(0), maximum=F(10**9)), "", "1 0", ""),
        (NumberConstraint(fractional=True), "", "", "0.1"),
        (NumberConstraint(non_multiples=decimals(3)), "", "", "1"),
        (NumberConstraint(allowed=decimals(0, 1)), "", "", "0 1"),
    ],
)
def test_exponents(constraint: NumberConstraint, upward: str, downward: str, none: str) -> None:
    matcher = language(constraint)
    for text in upward.split():
        assert takes(matcher, text)
        for exponent in ("e1", "E+0", "e308", "e+" + "9" * 40):
            assert takes(matcher, text + exponent)
        assert not takes(matcher, text + "e" + "9" * 41)
        assert takes(matcher, text + "e-1") == (text in downward.split())
    for text in downward.split():
        assert takes(matcher, text + "e-07") and takes(matcher, text + "E-0")
        assert takes(matcher, text + "e+1") == takes(matcher, text + "e0") == (text in upward.split())
    for text in none.split():
        assert takes(matcher, text) and not takes(matcher, text + "e0") and not takes(matcher, text + "e-1")


@pytest.mark.parametrize(
    ("constraint", "taken", "refused"),
    [
        (NumberConstraint(minimum=F(9007199254740993)), "9007199254740993 9007199254740993.0", "9007199254740992"),
        (NumberConstraint(minimum=F(9007199254740993), exclusive_minimum=True), "9007199254740994", "9007199254740993"),
        (NumberConstraint(allowed=decimals(9007199254740993)), "9007199254740993", "9007199254740992 9007199254740994"),
        (NumberConstraint(multiples=decimals("0.1")), "0.1 0.3 0.7 -1.10 3", "0.11 0.30000000000000004"),
        (NumberConstraint(integer=True), "1.0 -0 -0.000 12 1e2", "1.5 0.1 01 1."),
        (NumberConstraint(multiples=decimals("0.01")), "4.35 1.01 19.99 -0.070", "4.355"),
        (NumberConstraint(minimum=decimal("0.5"), maximum=decimal("0.5")), "0.5 0.50", "0.49 0.51 0 -0.5"),
        (NumberConstraint(excluded=decimals("1.5")), "1.4999 1.50001 15 1", "1.5 1.500"),
        (NumberConstraint(maximum=decimal("1.79769e308")), "1" * 40 + " -5", "1" * 41),
        (NumberConstraint(fractional=True), "0.5 -1.01 3." + "0" * 39 + "1", "1 1.0 3." + "0" * 40 + "1"),
        (NumberConstraint(integer=True, multiples=decimals("0.4")), "2 4.0 -6", "1 0.4 3"),
        (NumberConstraint(multiples=decimals("1e-8"), integer=True), "12391239123", "0.00000001"),
    ],
)
def test_exact_values(constraint: NumberConstraint, taken: str, refused: str) -> None:
    matcher = language(constraint)
    assert all(takes(matcher, text) for text in taken.split())
    assert not any(takes(matcher, text) for text in refused.split())


@pytest.mark.parametrize(
    "constraint",
    [
        NumberConstraint(minimum=F(1), maximum=F(2), exclusive_minimum=True, exclusive_maximum=True, integer=True),
        NumberConstraint(minimum=F(2), maximum=F(1)),
        NumberConstraint(minimum=F(1), maximum=F(1), exclusive_maximum=True),
        NumberConstraint(multiples=decimals(7), minimum=F(1), maximum=F(6)),
        NumberConstraint(integer=True, fractional=True),
        NumberConstraint(multiples=decimals("0.5"), non_multiples=decimals("0.25")),
        NumberConstraint(allowed=decimals()),
        NumberConstraint(allowed=decimals(1, 2), excluded=decimals(1, 2)),
        NumberConstraint(allowed=decimals("1.5"), integer=True),
        NumberConstraint(minimum=decimal("1e40")),
        NumberConstraint(minimum=F(0), exclusive_minimum=True, maximum=decimal("1e-41")),
        NumberConstraint(integer=True, minimum=F(5), maximum=F(6), excluded=decimals(5, 6)),
        NumberConstraint(integer=True, minimum=F(6), maximum=F(10**9), non_multiples=decimals(1)),
        NumberConstraint(multiples=decimals(1000003), minimum=F(1), maximum=F(1000002)),
    ],
)
def test_no_number(constraint: NumberConstraint) -> None:
    assert number_expression(constraint) is None


def test_the_expression_of_a_constraint_is_made_once() -> None:
    expressions = [number_expression(NumberConstraint(integer=True, minimum=F(low))) for low in (3, 3)]
    assert expressions[0] is expressions[1]


def test_multiples_of_a_large_number() -> None:
    constraint = NumberConstraint(integer=True, multiples=decimals(1000003))
    where = Source("{...}", "/properties/n/multipleOf")
    with pytest.raises(GrammarTooLarge, match=r"1000003 .*max_remainder_states.* \(/properties/n/multipleOf\)"):
        number_expression(constraint, source=where)
    with pytest.raises(GrammarTooLarge):
        number_expression(NumberConstraint(non_multiples=decimals("1000.003")))
    few = constraint.intersect(NumberConstraint(minimum=F(0), maximum=F(10**8)))
    matcher = language(few)
    assert takes(matcher, "77000231") and not takes(matcher, "77000232")
    more = number_expression(NumberConstraint(multiples=decimals(1009)), limits=Limits(max_remainder_states=60_000))
    assert more is not None
    with pytest.raises(GrammarTooLarge):
        number_expression(NumberConstraint(multiples=decimals(1009)), limits=Limits(max_remainder_states=20_000))


@pytest.mark.parametrize(
    "constraint",
    [
        NumberConstraint(multiples=decimals(0)),
        NumberConstraint(non_multiples=decimals(-1)),
        NumberConstraint(minimum=F(1, 3)),
        NumberConstraint(multiples=frozenset({F(1, 7)})),
    ],
)
def test_constants_that_are_none(constraint: NumberConstraint) -> None:
    with pytest.raises(ValueError, match=r"not -?[0-9]|is not a decimal number"):
        number_expression(constraint)
