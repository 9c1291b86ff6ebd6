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
    strings = _Strings((string,), ())
    if strings.stands_alone(string):
        return Sequence((strings.free, Bytes(string.encode())))
    return strings.up_to(string)


def dispatch(
    continuations: Mapping[str, Expression],
    excluded: Iterable[str] = (),
    marked: Iterable[tuple[str, Expression]] = (),
    *,
    repeated: bool = True,
    place: str | None = None,
) -> Expression:
    """Free text where each trigger, a key of `continuations`, must be followed by its continuation.

    The trigger whose occurrence is complete first counts; where one that ends another is complete with it, either
    does. None of `excluded` may be in the free text. Each of `marked` is a text and what may follow free text that ends
    with it: something that begins with a special token, which is in no free text at all. After a continuation free text
    begins anew if `repeated`, otherwise the whole ends there. Raises `GrammarUnsatisfiable` for a trigger that can
    never be written.
    """
    strings = _Strings(continuations, excluded)
    direct: list[Expression] = []
    steps: list[Expression] = []
    for trigger, continuation in continuations.items():
        hidden = strings.complete_within(trigger)
        if hidden is not None:
            message = f"the trigger {trigger!r} can never be reached: it holds {hidden!r}, which comes first"
            raise GrammarUnsatisfiable(message, place)
        if strings.stands_alone(trigger):
            direct.append(Sequence((Bytes(trigger.encode()), continuation)))
        else:
            steps.append(Sequence((strings.up_to(trigger), continuation)))
    for text, continuation in marked:
        if text:
            ended = Sequence((_ANYTHING, Bytes(text.encode())))
            steps.append(Sequence((Intersection((strings.free, ended)), continuation)))
        else:
            direct.append(continuation)
    if direct:
        steps.append(Sequence((strings.free, Alternation(tuple(direct)))))
    step = Alternation(tuple(steps))
    return Sequence((Repeat(step, 0, None), strings.free)) if repeated else Alternation((strings.free, step))


def _any_of(strings: Iterable[str]) -> Expression:
    return Alternation(tuple(Bytes(text.encode()) for text in strings))


class _Strings:
    """The strings that free text does not hold: triggers and what is excluded."""

    def __init__(self, triggers: Iterable[str], excluded: Iterable[str]) -> None:
        self._triggers = tuple(triggers)
        self._excluded = tuple(dict.fromkeys(excluded))
        self._is_trigger, self._is_excluded = frozenset(self._triggers), frozenset(self._excluded)
        self._sizes = sorted({len(text) for text in (*self._triggers, *self._excluded)})
        self._ends_trigger, self._ends_excluded = _proper_suffixes(self._triggers), _proper_suffixes(self._excluded)
        self.free = text_without((*self._triggers, *self._excluded))

    def complete_within(self, trigger: str) -> str | None:
        """A string that is complete within `trigger` before its end, or one excluded that is at its end."""
        for end in range(1, len(trigger) + 1):
            for size in self._sizes:
                text = trigger[max(0, end - size) : end]
                if (text in self._is_trigger and end < len(trigger)) or text in self._is_excluded:
                    return text
        return None

    def stands_alone(self, trigger: str) -> bool:
        """Whether after any free text `trigger` is the first of the strings that is complete."""
        prefixes = [trigger[:size] for size in range(1, len(trigger))]
        return self._ends_trigger.isdisjoint(prefixes) and self._ends_excluded.isdisjoint((*prefixes, trigger))

    def up_to(self, trigger: str) -> Expression:
        """Texts that end with `trigger`, where no trigger ends before and nothing excluded is held."""
        ended = Sequence((_ANYTHING, Bytes(trigger.encode())))
        too_early = Sequence((_ANYTHING, _any_of((*self._triggers, *self._excluded)), _SOMETHING))
        held = Sequence((_ANYTHING, _any_of(self._excluded)))
        return Intersection((ended, Complement(Alternation((too_early, held)))))


def _proper_suffixes(strings: Iterable[str]) -> frozenset[str]:
    return frozenset(text[start:] for text in strings for start in range(1, len(text)))
