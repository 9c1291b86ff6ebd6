"""JSON strings under constraints: which texts they have.

All constraints but `allowed` are languages of code points, met by intersection; then each code point is replaced by its
spellings (`escapes`). Without a pattern, a format or given values, a string may be spelled in any way JSON has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from ..expression import (
    ANY_CHARACTER,
    NOTHING,
    Alternation,
    Bytes,
    Complement,
    Expression,
    Intersection,
    Repeat,
    Sequence,
    Source,
)
from ..limits import DEFAULT_LIMITS, Limits
from ..simplify import Simplifier, contains
from .escapes import ANY_TEXT, QUOTE, Escapes, Speller, content, is_text, one_of, plain_content, spelled_text
from .formats import FORMATS
from .patterns import CLOSED, accepts, bounded, is_empty, lengths, nesting_checked, pattern_content


@dataclass(frozen=True)
class StringConstraint:
    """What a string must satisfy, all of it. Lengths are in code points, `max_length` None is without bound.

    `patterns` (ECMA 262) are found in it and `not_patterns` are not; it is of all `formats` and of none of
    `not_formats`, names in `FORMATS`; it is one of `allowed`, unless that is None, and none of `excluded`; of each set
    in `options` it satisfies one.
    """

    min_length: int = 0
    max_length: int | None = None
    patterns: frozenset[str] = frozenset()
    not_patterns: frozenset[str] = frozenset()
    formats: frozenset[str] = frozenset()
    not_formats: frozenset[str] = frozenset()
    allowed: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()
    options: frozenset[frozenset[StringConstraint]] = frozenset()

    def intersect(self, other: StringConstraint) -> StringConstraint:
        """What both ask for."""
        if self is ANY_STRING:
            return other
        longest = [bound for bound in (self.max_length, other.max_length) if bound is not None]
        allowed = self.allowed if other.allowed is None else other.allowed
        if self.allowed is not None and other.allowed is not None:
            allowed = self.allowed & other.allowed
        return StringConstraint(
            max(self.min_length, other.min_length),
            min(longest, default=None),
            self.patterns | other.patterns,
            self.not_patterns | other.not_patterns,
            self.formats | other.formats,
            self.not_formats | other.not_formats,
            allowed,
            self.excluded | other.excluded,
            self.options | other.options,
        )

    @property
    def is_spelled_freely(self) -> bool:
        """Whether only lengths, if anything, are asked for, so that every escape of JSON may be used."""
        named = self.patterns or self.not_patterns or self.formats or self.not_formats or self.excluded
        return not named and not self.options and self.allowed is None

    @property
    def only_excludes(self) -> bool:
        """Whether at most some values are excluded, and nothing else is asked for."""
        lengths_asked = self.min_length or self.max_length is not None
        named = self.patterns or self.not_patterns or self.formats or self.not_formats
        return not lengths_asked and not named and not self.options and self.allowed is None

    @property
    def all_patterns(self) -> frozenset[str]:
        """All patterns that it asks about."""
        inner = (constraint.all_patterns for options in self.options for constraint in options)
        return (self.patterns | self.not_patterns).union(*inner)


#: Nothing is asked.
ANY_STRING = StringConstraint()


def string_expression(
    constraint: StringConstraint,
    *,
    escapes: Escapes = "canonical",
    allow_unicode_escapes: bool = True,
    source: Source | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Expression | None:
    r"""The texts, with their quotes, of the strings that satisfy `constraint`; None where there are none, exactly.

    `escapes` is how strings are spelled that a pattern, a format or given values constrain: in the one canonical form
    (see `escapes`), or in any. `allow_unicode_escapes` False leaves out every ``\u``, and strings that cannot be
    written without. Halves of surrogate pairs are no characters: they may be escaped where nothing at all is asked
    for, or only that the string is not empty, and in `allowed` where it names them.

    Raises `GrammarError` for a pattern that is none or not supported, and `GrammarTooLarge`.
    """
    with nesting_checked():
        found = _string_expression(constraint, escapes, allow_unicode_escapes, limits)
    return found if found is None or source is None else replace(found, source=source)


@lru_cache(maxsize=4096)
def _string_expression(
    constraint: StringConstraint, escapes: Escapes, allow_unicode_escapes: bool, limits: Limits
) -> Expression | None:
    minimum, maximum = max(constraint.min_length, 0), constraint.max_length
    if maximum is not None and maximum < minimum:
        return None
    if constraint.allowed is not None:
        return _values(constraint, escapes, allow_unicode_escapes, limits)
    if constraint.is_spelled_freely:
        return _free(minimum, maximum, allow_unicode_escapes)
    language, is_certain = _language(constraint, limits)
    if language == NOTHING:
        return None
    # Without \u, control characters have no spelling.
    return _quoted(language, escapes, allow_unicode_escapes, limits, is_certain and allow_unicode_escapes)


def key_expression(
    language: Expression,
    *,
    escapes: Escapes = "canonical",
    allow_unicode_escapes: bool = True,
    limits: Limits = DEFAULT_LIMITS,
) -> Expression | None:
    """The texts, with their quotes, of the strings in a `language` of code points; None where there are none."""
    with nesting_checked():
        return _quoted(language, escapes, allow_unicode_escapes, limits, False)


def _quoted(
    language: Expression, escapes: Escapes, allow_unicode_escapes: bool, limits: Limits, is_certain: bool
) -> Expression | None:
    """`language` spelled and quoted; None if it is empty. `is_certain`: it is known not to be."""
    speller = Speller(escapes, allow_unicode_escapes)
    spelled = Simplifier({}, limits).simplify(speller.spell(language))
    return None if not is_certain and is_empty(spelled, limits) else Sequence((QUOTE, spelled, QUOTE))


def _free(minimum: int, maximum: int | None, allow_unicode_escapes: bool) -> Expression:
    plain = plain_content(allow_unicode_escapes)
    if maximum is None and minimum <= 1:  # an escaped pair of surrogates may count as one or as two
        return Sequence((QUOTE, replace(plain, minimum=minimum), QUOTE))
    item = content("any", allow_unicode_escapes).body
    return Sequence((QUOTE, Repeat(item, minimum, maximum), QUOTE))


def string_content(constraint: StringConstraint, limits: Limits = DEFAULT_LIMITS) -> Expression:
    """The strings that satisfy `constraint`, as a language of code points; `NOTHING` if that is easily seen."""
    if constraint.allowed is not None:
        values = _satisfying(constraint, limits)
        return Alternation(tuple(Bytes(value.encode()) for value in values if is_text(value))) if values else NOTHING
    return _language(constraint, limits)[0]


def _language(constraint: StringConstraint, limits: Limits) -> tuple[Expression, bool]:
    """The strings that satisfy `constraint` (without `allowed`), and whether it is certain that there are some."""
    wanted, unwanted = _operands(constraint, limits)
    minimum, maximum = max(constraint.min_length, 0), constraint.max_length
    values = [value for value in sorted(constraint.excluded) if is_text(value) and _fits(value, constraint)]
    if values and not values[0]:  # the empty string
        minimum = max(minimum, 1)
        del values[0]
    if values:
        unwanted.append(Alternation(tuple(Bytes(value.encode()) for value in values)))
    wanted = [operand for operand in wanted if operand != ANY_TEXT]
    low = max((lengths(operand)[0] for operand in wanted), default=0)
    highs = [high for high in (lengths(operand)[1] for operand in wanted) if high is not None]
    high = min(highs, default=None)
    # One operand alone has a string of its least length, if nothing in it is an automaton to be built.
    is_certain = len(wanted) == 1 and not unwanted and low >= minimum and not contains(wanted[0], CLOSED)
    if low < minimum or (maximum is not None and (high is None or high > maximum)):
        for index, operand in enumerate(wanted):
            inner = bounded(operand, minimum, maximum)
            if inner is not None:
                wanted[index] = inner
                break
        else:
            wanted.append(Repeat(ANY_CHARACTER, minimum, maximum))
    if NOTHING in wanted or (maximum is not None and maximum < minimum):
        return NOTHING, False
    if len(wanted) == 1 and not unwanted:
        return wanted[0], is_certain
    if not wanted and not unwanted:
        return ANY_TEXT, True
    return Intersection((*wanted, *map(Complement, unwanted))), is_certain


def _operands(constraint: StringConstraint, limits: Limits) -> tuple[list[Expression], list[Expression]]:
    """The languages that strings must be in, and those that they must not be in."""
    alternatives = [
        one_of(sorted({string_content(option, limits) for option in options}, key=repr))
        for options in sorted(constraint.options, key=repr)
    ]
    return (
        [pattern_content(pattern, limits) for pattern in sorted(constraint.patterns)]
        + [FORMATS[name].expression for name in sorted(constraint.formats)]
        + alternatives,
        [pattern_content(pattern, limits) for pattern in sorted(constraint.not_patterns)]
        + [FORMATS[name].expression for name in sorted(constraint.not_formats)],
    )


def _fits(value: str, constraint: StringConstraint) -> bool:
    longest = constraint.max_length
    return constraint.min_length <= len(value) and (longest is None or len(value) <= longest)


def _satisfying(constraint: StringConstraint, limits: Limits) -> list[str]:
    """The values of `allowed` that satisfy everything else, sorted."""
    assert constraint.allowed is not None
    values = [value for value in constraint.allowed - constraint.excluded if _fits(value, constraint)]
    wanted, unwanted = _operands(constraint, limits)
    for operand in wanted:
        values = [value for value in values if accepts(operand, value, limits)]
    for operand in unwanted:
        values = [value for value in values if not accepts(operand, value, limits)]
    return sorted(values)


def _values(
    constraint: StringConstraint, escapes: Escapes, allow_unicode_escapes: bool, limits: Limits
) -> Expression | None:
    """The texts of those of the values in `allowed` that satisfy everything else."""
    options = [spelled_text(value, escapes, allow_unicode_escapes) for value in _satisfying(constraint, limits)]
    options = [option for option in options if option != NOTHING]
    if len(options) < 2:
        return options[0] if options else None
    return Alternation(tuple(options))
