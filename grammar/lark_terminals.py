"""The terminals of a Lark grammar: patterns of Python's `re` as expressions without anything that looks around."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .eliminate import expression_of
from .errors import GrammarError, GrammarSyntaxError, GrammarTooLarge, GrammarUnsupported
from .expression import Alternation, Bytes, Expression, Lookahead, Repeat, Source
from .limits import Limits
from .match_order import ASSERTIONS, LazyRepeat, Lookbehind, first_words, prefers_longest, without_order
from .match_threads import ThreadAutomaton, Threads
from .regex import PatternParser
from .regex_syntax import DOTALL, IGNORE_CASE, UNICODE, VERBOSE
from .simplify import contains

_FLAGS = {"i": IGNORE_CASE, "s": DOTALL, "x": VERBOSE, "m": 0, "u": 0}
#: `re` takes a POSIX class for the set of its letters, and the parser here does not.
_POSIX = re.compile(r"\[[^\]]*\[:\^?[A-Za-z]*:\]")


@dataclass(frozen=True)
class Place:
    """Where something stands in the text of a grammar; `exact` where what follows stands behind it column by column."""

    line: int
    column: int
    exact: bool = False
    #: What the place is in where it is no part of the text itself, as ``the imported``.
    remark: str = ""

    def at(self, offset: int) -> str:
        """The place `offset` characters on."""
        return f"line {self.line}:{self.column + (offset if self.exact else 0)}{self.remark}"


class _TerminalParser(PatternParser):
    """Keeps what the order of matching depends on."""

    lookarounds = ("=", "!", "<=", "<!")
    multiline = True

    def __init__(self, pattern: str, flags: int, limits: Limits, place: Place) -> None:
        super().__init__(pattern, flags, limits)
        self._place = place

    def source(self, start: int, end: int) -> Source:
        return Source(self.pattern[start:end], self._place.at(start))

    def quantified(self, body: Expression, minimum: int, maximum: int | None, lazy: bool, source: Source) -> Expression:
        return (LazyRepeat if lazy else Repeat)(body, minimum, maximum, source=source)

    def lookaround(self, operand: Expression, kind: str, source: Source) -> Expression:
        look = Lookbehind if kind.startswith("<") else Lookahead
        return look(operand, kind.endswith("!"), source=source)


def literal(name: str, text: str, place: Place) -> Expression:
    """The terminal of a plain string."""
    if not text:
        raise GrammarSyntaxError(f"the terminal {name} is empty, which lark does not take", place.at(0))
    try:
        return Bytes(text.encode(), source=Source(text, place.at(0)))
    except UnicodeEncodeError:
        message = f"the terminal {name} holds a lone surrogate, which is not a character"
        raise GrammarSyntaxError(message, place.at(0)) from None


class Terminal:
    """A terminal with a pattern of Python's `re`: the strings that it matches whole, as its first match on them.

    Raises `GrammarSyntaxError` where it is not a pattern, `GrammarUnsupported` for what cannot be enforced within the
    terminal alone, and `GrammarTooLarge`.
    """

    def __init__(self, name: str, text: str, flags: frozenset[str], place: Place, limits: Limits) -> None:
        self._name = name
        self._place = place
        self._limits = limits
        with self._named():
            _check(text, flags)
            bits = sum(_FLAGS[flag] for flag in flags)
            self.node = _TerminalParser(text, UNICODE | bits, limits, place).parse()

    def expression(self) -> Expression:
        """The strings as an expression that does not look around."""
        node = self.node
        with self._named():
            if not contains(node, ASSERTIONS) and prefers_longest(node):
                return without_order(node)
            words = first_words(node) if isinstance(node, Alternation) else None
            if words is not None:
                return words
            threads = Threads([node], self._limits)
            if threads.always_longest():
                return without_order(node)
            automaton = threads.automaton()
            size = self._limits.max_terminal_states
            return expression_of(automaton.classes, automaton.moves, automaton.final, node, size)

    def automaton(self) -> ThreadAutomaton:
        """The strings as an automaton, with what may be a longer match behind each."""
        with self._named():
            return Threads([self.node], self._limits).automaton()

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Adds to errors which terminal and where."""
        try:
            yield
        except GrammarError as error:
            offset = re.fullmatch(r"column (\d+)", error.place or "")
            where = self._place.at(int(offset[1]) - 1) if offset else error.place or self._place.at(0)
            message = f"terminal {self._name}: {error.message}"
            if isinstance(error, GrammarTooLarge):
                raise GrammarTooLarge(message.split("; raise Limits.")[0], where, limit=error.limit) from None
            raise type(error)(message, where) from None


def _check(text: str, flags: frozenset[str]) -> None:
    """Raise where Python has no such pattern, or another meaning for it than the parser here."""
    surrogate = re.search("[\ud800-\udfff]", text)
    if surrogate is not None:
        raise GrammarSyntaxError("a lone surrogate is not a character", f"column {surrogate.start() + 1}")
    prefix = f"(?{''.join(sorted(flags))}:" if flags else "(?:"
    try:
        re.compile(f"{prefix}{text})" if flags else text)
    except (re.error, OverflowError, RecursionError) as error:
        position = getattr(error, "pos", None)
        offset = len(prefix) if flags else 0
        where = None if position is None else f"column {max(position - offset, 0) + 1}"
        raise GrammarSyntaxError(f"no pattern of Python's re: {getattr(error, 'msg', error)}", where) from None
    posix = _POSIX.search(text)
    if posix is not None:
        message = "a POSIX class such as [:alpha:] has no such meaning in Python's re; write the ranges"
        raise GrammarUnsupported(message, f"column {posix.start() + 1}")
