r"""The regex front end: a pattern becomes a `Grammar` of one rule.

The syntax is Python's, with the escapes and properties of ECMAScript and PCRE. What matches is the whole text, so lazy
quantifiers and groups of any kind only group. One pass over the pattern, without recursion: open groups are on a list.
"""

from __future__ import annotations

import re

from .errors import GrammarTooLarge
from .expression import (
    ALL_CODE_POINTS,
    ANY_CHARACTER,
    Alternation,
    Bytes,
    Characters,
    EndAnchor,
    Expression,
    Grammar,
    Lookahead,
    Repeat,
    Sequence,
    Source,
    StartAnchor,
)  # fmt: skip
from .limits import Limits, checked_limits
from .ranges import normalise, subtract
from .regex_syntax import (
    DOTALL,
    IGNORE_CASE,
    UNICODE,
    VERBOSE,
    CharacterSet,
    read_class,
    read_escape,
    read_flags,
    refuse_group,
    syntax_error,
    unsupported,
)  # fmt: skip
from .unicode import case_orbit, fold

_NO_NEWLINE = subtract(ALL_CODE_POINTS, ((10, 10),))

# Literal text: plain characters and escaped punctuation. The loops are unrolled, so that none of them backtracks.
_PLAIN = re.compile(r"[^\\\[(){.*+?|^$]*(?:\\[^A-Za-z0-9][^\\\[(){.*+?|^$]*)*")
_PLAIN_VERBOSE = re.compile(_PLAIN.pattern.replace("|^$", r"|^$# \t\n\r\f\v"))
_PLAIN_OPTION = re.compile(rf"({_PLAIN.pattern})\|")
_PLAIN_OPTIONS = re.compile(rf"(?:{_PLAIN.pattern}\|)+")
_PIECE = re.compile(r"\\?(.)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_BLANKS = re.compile(r"(?:[ \t\n\r\f\v]+|#[^\n]*)+")
_BRACES = re.compile(r"\{(?=[0-9,])([0-9]*)(?:(,)([0-9]*))?\}")
_NAME = re.compile(r"\(\?P?<([^\W\d]\w*)>")
_ONCE = (StartAnchor, EndAnchor, Lookahead)
_NOTHING_TO_REPEAT, _REPEATABLE, _REPEATED = 0, 1, 2


def regex(
    pattern: str,
    *,
    unicode: bool = True,
    search: bool = False,
    dotall: bool = False,
    ignore_case: bool = False,
    verbose: bool = False,
    limits: Limits | None = None,
) -> Grammar:
    r"""The texts that `pattern` matches as a whole, or, with `search`, those that it matches somewhere in.

    `unicode` gives ``\d``, ``\w`` and ``\s`` and the ignoring of case their Unicode meaning, otherwise the ASCII one;
    `dotall`, `ignore_case` and `verbose` are the flags ``s``, ``i`` and ``x``, which a pattern may also set itself:
    ``(?i)`` from there to the end of the group, ``(?i-s:...)`` within. ``(?a)`` and ``(?u)`` switch `unicode`.
    ``^`` and ``\A`` hold at the start of the text, ``$``, ``\Z`` and ``\z`` at its end, with no allowance for newlines.

    Raises `GrammarSyntaxError` for what is not a pattern, `GrammarUnsupported` for back-references, lookbehind, word
    boundaries and the other constructs that are known and not enforced, and `GrammarTooLarge` past
    `limits.max_repeat` or `limits.max_depth`; each names the column. `TypeError` where `pattern` is not `str`.
    """
    if not isinstance(pattern, str):
        raise TypeError(f"a regex pattern must be str, not {type(pattern).__name__}: {pattern!r:.60}")
    try:
        pattern.encode()
    except UnicodeEncodeError as error:
        message = "the pattern holds a lone surrogate, which is not a character; write the character itself or \\u{...}"
        raise syntax_error(message, error.start) from None
    options = {"unicode": unicode, "search": search, "dotall": dotall, "ignore_case": ignore_case, "verbose": verbose}
    bits = {"unicode": UNICODE, "dotall": DOTALL, "ignore_case": IGNORE_CASE, "verbose": VERBOSE}
    flags = sum(bit for name, bit in bits.items() if options[name])
    expression = PatternParser(pattern, flags, checked_limits(limits)).parse()
    if search:
        around = Repeat(ANY_CHARACTER, 0, None, source=expression.source)
        expression = Sequence((around, expression, around), source=expression.source)
    return Grammar("regex", pattern, {"start": expression}, options=options)


class _Group:
    """An open group: where it began, what it will become, the finished options and the items of the one being read."""

    __slots__ = ("body", "flags", "items", "look", "options", "start")

    def __init__(self, start: int, body: int, flags: int, look: str) -> None:
        self.start = start  # of the parenthesis
        self.body = body  # where the option being read begins
        self.flags = flags  # of the pattern around it
        self.look = look  # "", "=", "!", "<=" or "<!"
        self.options: list[Expression] = []
        self.items: list[Expression] = []


class PatternParser:
    """The parser of one pattern. What a language does not need, but the order of matching does, is left to heirs:
    `quantified` learns what is lazy, `lookaround` of the kinds in `lookarounds`.
    """

    lookarounds: tuple[str, ...] = ("=", "!")
    #: Whether the flag m is taken: for heirs that refuse anchors.
    multiline = False

    def __init__(self, pattern: str, flags: int, limits: Limits) -> None:
        self.pattern = pattern
        self.flags = flags
        self.limits = limits
        self.groups: list[_Group] = []
        self.group = _Group(0, 0, flags, "")
        # Literal text not yet made into a `Bytes`; a quantifier takes its last character off again.
        self.literal: list[str] = []
        self.literal_start = 0
        self.literal_end = 0
        # The last item, for a quantifier: whether it can take one, and where it begins.
        self.state = _NOTHING_TO_REPEAT
        self.item_start = 0

    def source(self, start: int, end: int) -> Source:
        return Source(self.pattern[start:end], f"column {start + 1}")

    def quantified(self, body: Expression, minimum: int, maximum: int | None, lazy: bool, source: Source) -> Expression:
        """The repetition of `body`."""
        return Repeat(body, minimum, maximum, source=source)

    def lookaround(self, operand: Expression, kind: str, source: Source) -> Expression:
        """The assertion of a group that begins with ``(?`` and `kind`."""
        return Lookahead(operand, kind == "!", source=source)

    def parse(self) -> Expression:
        pattern, position, length = self.pattern, 0, len(self.pattern)
        while position < length:
            if self.flags & VERBOSE:
                blanks = _BLANKS.match(pattern, position)
                if blanks is not None:
                    position = blanks.end()
                    continue
            elif not self.literal and not self.group.items and not self.flags & IGNORE_CASE:
                options = _PLAIN_OPTIONS.match(pattern, position)
                if options is not None:
                    position = self.plain_options(position, options.end())
                    continue
            plain = (_PLAIN_VERBOSE if self.flags & VERBOSE else _PLAIN).match(pattern, position)
            if plain is not None and plain.end() > position:
                position = self.plain_text(plain[0], position)
                continue
            position = self.special(pattern[position], position)
        if self.groups:
            raise syntax_error("the group is not closed; add ), or write \\( for a parenthesis", self.group.start)
        return self.close_group(length)

    def special(self, character: str, position: int) -> int:
        """Read the construct that begins with `character`; returns where it ends."""
        if character == "\\":
            return self.escape(position)
        if character in "*+?{":
            return self.quantifier(character, position)
        if character == "(":
            return self.open_group(position)
        if character == ")":
            if not self.groups:
                raise syntax_error("this parenthesis closes no group; write \\) for a parenthesis", position)
            group = self.group
            expression = self.close_group(position)
            self.group = self.groups.pop()
            self.flags = group.flags
            if group.look:
                expression = self.lookaround(expression, group.look, self.source(group.start, position + 1))
            self.add(expression, group.start)
        elif character == "|":
            self.close_option(position)
            self.group.body = position + 1
        elif character == "[":
            unicode, ignore_case = bool(self.flags & UNICODE), bool(self.flags & IGNORE_CASE)
            ranges, end = read_class(self.pattern, position, unicode, ignore_case)
            self.add(Characters(ranges, source=self.source(position, end)), position)
            return end
        else:
            source = self.source(position, position + 1)
            if character == ".":
                ranges = ALL_CODE_POINTS if self.flags & DOTALL else _NO_NEWLINE
                self.add(Characters(ranges, source=source), position)
            else:
                self.add(StartAnchor(source=source) if character == "^" else EndAnchor(source=source), position)
        return position + 1

    # Items and literal text

    def add(self, expression: Expression, start: int) -> None:
        if self.literal:
            self.flush()
        self.group.items.append(expression)
        self.state = _REPEATABLE
        self.item_start = start

    def plain_text(self, written: str, start: int) -> int:
        """Add literal text as it is `written`: plain characters and escaped punctuation."""
        end = start + len(written)
        if self.flags & IGNORE_CASE:
            for piece in _PIECE.finditer(written):
                self.add_character(piece[1], start + piece.start(), start + piece.end())
            return end
        text, last = written, end - 1
        if "\\" in written:
            text = _ESCAPED.sub(r"\1", written)
            last = start + [piece.start() for piece in _PIECE.finditer(written)][-1]
        self.add_text(text, start, end, last)
        return end

    def add_character(self, character: str, start: int, end: int) -> None:
        """Add one literal character, with its other cases where they are to be ignored."""
        if self.flags & IGNORE_CASE:
            orbit = case_orbit(ord(character), bool(self.flags & UNICODE))
            if len(orbit) > 1:
                ranges = normalise((code_point, code_point) for code_point in orbit)
                self.add(Characters(ranges, source=self.source(start, end)), start)
                return
        self.add_text(character, start, end, start)

    def add_text(self, text: str, start: int, end: int, last: int) -> None:
        """Add literal `text`, written at [start, end), its last character from `last` on."""
        if not self.literal:
            self.literal_start = start
        self.literal.append(text)
        self.literal_end = end
        self.state = _REPEATABLE
        self.item_start = last

    def flush(self) -> None:
        source = self.source(self.literal_start, self.literal_end)
        self.group.items.append(Bytes("".join(self.literal).encode(), source=source))
        self.literal.clear()

    def plain_options(self, start: int, end: int) -> int:
        """A run of ``literal|literal|...|`` at once: long lists of words are common, and this is most of their time."""
        group = self.group
        run = self.pattern[start : end - 1]
        for option in _PLAIN_OPTION.findall(run + "|") if "\\" in run else run.split("|"):
            text = _ESCAPED.sub(r"\1", option) if "\\" in option else option
            group.options.append(Bytes(text.encode(), source=self.source(start, start + len(option))))
            start += len(option) + 1
        group.body = end
        self.state = _NOTHING_TO_REPEAT
        return end

    def escape(self, position: int) -> int:
        letter = self.pattern[position + 1 : position + 2]
        if letter and letter in "AzZ":
            source = self.source(position, position + 2)
            self.add(StartAnchor(source=source) if letter == "A" else EndAnchor(source=source), position)
            return position + 2
        value, end = read_escape(self.pattern, position, bool(self.flags & UNICODE), in_class=False)
        if isinstance(value, CharacterSet):
            ranges = value.ranges
            if value.folds and self.flags & IGNORE_CASE:
                ranges = fold(ranges, bool(self.flags & UNICODE))
            self.add(Characters(ranges, source=self.source(position, end)), position)
        else:
            self.add_character(chr(value), position, end)
        return end

    # Quantifiers

    def quantifier(self, character: str, position: int) -> int:
        end = position + 1
        minimum, maximum = 0, None
        if character == "{":
            braces = _BRACES.match(self.pattern, position)
            if braces is None:
                self.add_text("{", position, end, position)
                return end
            end = braces.end()
            low, comma, high = braces.groups()
            minimum = self.bound(low or "0", position)
            maximum = self.bound(high, position) if high else None if comma else minimum
        elif character == "+":
            minimum = 1
        elif character == "?":
            maximum = 1
        written = self.pattern[position:end]
        if self.state == _NOTHING_TO_REPEAT:
            advice = f"write \\{character} for the character itself"
            raise syntax_error(f"nothing to repeat before {written}; {advice}", position)
        if self.state == _REPEATED:
            advice = f"group what is to be repeated: (?:...){written}"
            raise syntax_error(f"{written} after another quantifier; {advice}", position)
        if maximum is not None and maximum < minimum:
            raise syntax_error(f"the bounds of {written} are in the wrong order", position)
        following = self.pattern[end : end + 1]
        if following == "+":
            why = "it depends on the order of matching"
            raise unsupported(
                f"the possessive quantifier {written}+ is not supported: {why}; write {written}", position
            )
        if following == "?":
            end += 1
        self.repeat(minimum, maximum, following == "?", end)
        return end

    def bound(self, digits: str, position: int) -> int:
        limit = self.limits.max_repeat
        if len(digits.lstrip("0")) > 18 or int(digits) > limit:
            number = digits if len(digits) <= 20 else digits[:17] + "..."
            message = f"{number} repetitions are over the limit of {limit}"
            raise GrammarTooLarge(message, f"column {position + 1}", limit="max_repeat")
        return int(digits)

    def repeat(self, minimum: int, maximum: int | None, lazy: bool, end: int) -> None:
        """Replace the last item by its repetition."""
        start = self.item_start
        if self.literal:
            last = self.literal.pop()
            body: Expression = Bytes(last[-1].encode(), source=self.source(start, self.literal_end))
            if len(last) > 1:
                self.literal.append(last[:-1])
            if self.literal:
                self.literal_end = start
                self.flush()
        else:
            body = self.group.items.pop()
        source = self.source(start, end)
        if maximum == 0 or (minimum == 0 and isinstance(body, _ONCE)):
            repeated: Expression = Bytes(b"", source=source)
        elif (minimum == 1 and maximum == 1) or isinstance(body, _ONCE):
            repeated = body
        else:
            repeated = self.quantified(body, minimum, maximum, lazy, source)
        self.group.items.append(repeated)
        self.state = _REPEATED

    # Groups

    def close_option(self, end: int) -> None:
        group = self.group
        if self.literal:
            self.flush()
        if len(group.items) == 1:
            option = group.items[0]
        elif group.items:
            option = Sequence(tuple(group.items), source=self.source(group.body, end))
        else:
            option = Bytes(b"", source=self.source(group.body, end))
        group.options.append(option)
        group.items = []
        self.state = _NOTHING_TO_REPEAT

    def close_group(self, end: int) -> Expression:
        self.close_option(end)
        group = self.group
        if len(group.options) == 1:
            return group.options[0]
        return Alternation(tuple(group.options), source=self.source(group.start, end + 1))

    def open_group(self, position: int) -> int:
        pattern = self.pattern
        if not pattern.startswith("(?", position):
            return self.push(position, position + 1, self.flags, "")
        kind = pattern[position + 2 : position + 3]
        if kind == ":":
            return self.push(position, position + 3, self.flags, "")
        for look in self.lookarounds:
            if pattern.startswith(look, position + 2):
                return self.push(position, position + 2 + len(look), self.flags, look)
        if kind == "#":
            close = pattern.find(")", position)
            if close < 0:
                raise syntax_error("the comment is not closed; add )", position)
            return close + 1
        refuse_group(pattern, position)
        name = _NAME.match(pattern, position)
        if name is not None:
            return self.push(position, name.end(), self.flags, "")
        if kind in ("<", "P"):
            message = (
                "a group name is written (?P<name>...), with a name of letters, digits and _ that begins with no digit"
            )
            raise syntax_error(message, position)
        return self.inline_flags(position)

    def inline_flags(self, position: int) -> int:
        flags, scoped, end = read_flags(self.pattern, position, self.flags, multiline=self.multiline)
        if scoped:
            return self.push(position, end, flags, "")
        self.flags = flags
        self.state = _NOTHING_TO_REPEAT
        return end

    def push(self, start: int, body: int, flags: int, look: str) -> int:
        if self.literal:
            self.flush()
        self.groups.append(self.group)
        if len(self.groups) > self.limits.max_depth:
            message = f"groups are nested deeper than {self.limits.max_depth}"
            raise GrammarTooLarge(message, f"column {start + 1}", limit="max_depth")
        self.group = _Group(start, body, self.flags, look)
        self.flags = flags
        self.state = _NOTHING_TO_REPEAT
        return body
