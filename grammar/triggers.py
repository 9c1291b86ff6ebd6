"""Free text in which some strings switch to something else.

Free text is any valid UTF-8 text without certain strings. It is written here as a complement; determinised, that is the
automaton of Aho and Corasick, "Efficient string matching", 1975.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .errors import GrammarUnsatisfiable
from .expression import (
    ALL_CODE_POINTS,
    ANY_CHARACTER,
    Alternation,
    Bytes,
    Characters,
    Complement,
    Expression,
    Intersection,
    Repeat,
    Sequence,
)
from .ranges import normalise, subtract

_ANYTHING = Repeat(ANY_CHARACTER, 0, None)
_SOMETHING = Repeat(ANY_CHARACTER, 1, None)


def text_without(strings: Iterable[str], max_characters: int | None = None) -> Expression:
    """Texts that hold none of `strings` (none of them empty), of at most `max_characters` code points."""
    strings = tuple(dict.fromkeys(strings))
    limited = Repeat(ANY_CHARACTER, 0, max_characters)
    if not strings:
        return limited
    held = Complement(Sequence((_ANYTHING, _any_of(strings), _ANYTHING)))
    if max_characters is not None:
        return Intersection((held, limited))
    # The option without the first characters changes nothing; it names a class that most of the text loops on.
    firsts = normalise((ord(text[0]), ord(text[0])) for text in strings)
    return Alternation((Repeat(Characters(subtract(ALL_CODE_POINTS, firsts)), 0, None), held))


def text_up_to(string: str) -> Expression:
    """Texts that end with `string` and do not hold it before."""
    return _up_to(string, (string,), ())


def dispatch(
    continuations: Mapping[str, Expression],
    excluded: Iterable[str] = (),
    *,
    repeated: bool = True,
    place: str | None = None,
) -> Expression:
    """Free text where each trigger, a key of `continuations`, must be followed by its continuation.

    The trigger whose occurrence is complete first counts; where one that ends another is complete with it, either
    does. None of `excluded` may be in the free text. After a continuation free text begins anew if `repeated`,
    otherwise the whole ends there. Raises `GrammarUnsatisfiable` for a trigger that can never be written.
    """
    triggers = tuple(continuations)
    excluded = tuple(dict.fromkeys(excluded))
    free = text_without((*triggers, *excluded))
    direct: list[Expression] = []
    steps: list[Expression] = []
    for trigger, continuation in continuations.items():
        hidden = next(
            (other for other in (*triggers, *excluded) if _comes_first(other, trigger, other in excluded)), None
        )
        if hidden is not None:
            what = "excluded text" if hidden in excluded else "trigger"
            raise GrammarUnsatisfiable(
                f"the trigger {trigger!r} can never be reached: it holds the {what} {hidden!r}", place
            )
        if _stands_alone(trigger, triggers, excluded):
            direct.append(Sequence((Bytes(trigger.encode()), continuation)))
        else:
            steps.append(Sequence((_up_to(trigger, triggers, excluded), continuation)))
    if direct:
        steps.append(Sequence((free, Alternation(tuple(direct)))))
    step = Alternation(tuple(steps))
    return Sequence((Repeat(step, 0, None), free)) if repeated else Alternation((free, step))


def _any_of(strings: Iterable[str]) -> Expression:
    return Alternation(tuple(Bytes(text.encode()) for text in strings))


def _comes_first(other: str, trigger: str, excluded: bool) -> bool:
    """Whether `other` is complete within every occurrence of `trigger`, before its end (or at it if `excluded`)."""
    return other in (trigger if excluded else trigger[:-1])


def _stands_alone(trigger: str, triggers: tuple[str, ...], excluded: tuple[str, ...]) -> bool:
    """Whether after free text that holds none of the strings `trigger` is always the first of them that is complete."""
    for strings, last in ((triggers, len(trigger) - 1), (excluded, len(trigger))):
        for text in strings:
            if any(text.endswith(trigger[:size]) for size in range(1, min(last, len(text) - 1) + 1)):
                return False
    return True


def _up_to(trigger: str, triggers: tuple[str, ...], excluded: tuple[str, ...]) -> Expression:
    """Texts that end with `trigger`, where no trigger ends before and nothing excluded is held."""
    if _stands_alone(trigger, triggers, excluded):
        return Sequence((text_without((*triggers, *excluded)), Bytes(trigger.encode())))
    too_early = Sequence((_ANYTHING, _any_of((*triggers, *excluded)), _SOMETHING))
    held = Sequence((_ANYTHING, _any_of(excluded)))
    ended = Sequence((_ANYTHING, Bytes(trigger.encode())))
    return Intersection((ended, Complement(Alternation((too_early, held)))))
