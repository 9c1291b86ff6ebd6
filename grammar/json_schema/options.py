"""How a JSON text may be written: the order of keys, white space, escapes and the lengths of runs of digits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

from ..expression import EMPTY, Bytes, Characters, Expression, Reference, Repeat, Sequence
from ..json_value import DEFAULT_MAX_DIGITS, DEFAULT_MAX_WHITESPACE, Whitespace

PropertyOrder = Literal["declared", "any"]
Escapes = Literal["canonical", "any"]
Formats = Literal["enforce", "known", "ignore"]

#: The rule of a run of white space.
WHITESPACE_RULE = "whitespace"
#: Spaces of one level of `indent`, at most; each level of each value is written out, a position a space.
MAX_INDENT = 64
_BLANKS = Characters(((0x09, 0x0A), (0x0D, 0x0D), (0x20, 0x20)))


#: The values that options may have.
_KINDS = (
    ("property_order", get_args(PropertyOrder)),
    ("whitespace", get_args(Whitespace)),
    ("escapes", get_args(Escapes)),
    ("formats", get_args(Formats)),
)


@dataclass(frozen=True)
class TextOptions:
    """The options of `json_schema` that say how a text is written; its docstring has their meaning."""

    property_order: PropertyOrder = "declared"
    whitespace: Whitespace = "flexible"
    max_whitespace: int | None = DEFAULT_MAX_WHITESPACE
    max_digits: int | None = DEFAULT_MAX_DIGITS
    escapes: Escapes = "canonical"
    unicode_escapes: bool = True
    separators: tuple[str, str] | None = None
    indent: int | None = None
    formats: Formats = "enforce"
    excludes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, kinds in _KINDS:
            value = getattr(self, name)
            if value not in kinds:
                raise ValueError(f"{name} is one of {', '.join(kinds)}, not {value!r}")
        for name, least in (("max_whitespace", 0), ("max_digits", 1), ("indent", 0)):
            bound = getattr(self, name)
            if bound is not None and (not isinstance(bound, int) or isinstance(bound, bool) or bound < least):
                raise ValueError(f"{name} is None or a number from {least} on, not {bound!r}")
        if self.indent is not None and self.indent > MAX_INDENT:
            raise ValueError(f"indent is at most {MAX_INDENT}, not {self.indent}")
        if not all(isinstance(text, str) and text for text in self.excludes):
            raise ValueError(f"excludes are strings that are not empty, not {self.excludes!r}")
        if self.separators is not None:
            separators = self.separators
            if not isinstance(separators, (tuple, list)) or len(separators) != 2:
                raise ValueError(f"separators are two texts, one around ',' and one around ':', not {separators!r:.60}")
            for text, mark in zip(separators, ",:", strict=True):
                if not isinstance(text, str) or text.strip(" \t\r\n") != mark:
                    raise ValueError(f"a separator is {mark!r} with white space around it, not {text!r}")


@cache
def _blanks(most: int | None) -> Expression:
    """A run of white space; one and the same object for all schemas, so that its frame is made once."""
    return Repeat(_BLANKS, 0, most)


class Layout:
    """The white space of a text, as expressions.

    With `indent`, lines are broken as ``json.dumps(indent=...)`` does, and `depth` says how far: the members of a value
    at depth 0 are one level in. Without, depth makes no difference.
    """

    def __init__(self, options: TextOptions) -> None:
        self._indent = options.indent
        self.rules: dict[str, Expression] = {}
        comma, colon = options.separators or (",", ":")
        between: Expression = EMPTY
        fixed = options.separators is not None or options.indent is not None
        if options.indent is not None and options.separators is None:
            colon = ": "
        if options.whitespace == "flexible" and not fixed and options.max_whitespace != 0:
            self.rules[WHITESPACE_RULE] = _blanks(options.max_whitespace)
            between = Reference(WHITESPACE_RULE)
        elif options.whitespace == "single" and not fixed:
            comma, colon = ", ", ": "
        #: Behind an opening and before a closing bracket.
        self._inside = between
        self._comma = Sequence((between, Bytes(comma.encode()), between))
        #: Between a key and its value.
        self.colon = Sequence((between, Bytes(colon.encode()), between))

    @property
    def depends_on_depth(self) -> bool:
        """Whether the text of a value depends on how deep it stands."""
        return self._indent is not None

    def _line(self, depth: int) -> Expression:
        return self._inside if self._indent is None else Bytes(b"\n" + b" " * (self._indent * depth))

    def opening(self, bracket: bytes, depth: int) -> Expression:
        """A bracket with the white space behind it, a member following."""
        return Sequence((Bytes(bracket), self._line(depth + 1)))

    def closing(self, bracket: bytes, depth: int) -> Expression:
        """A bracket with the white space between it and the member before."""
        return Sequence((self._line(depth), Bytes(bracket)))

    def empty(self, opening: bytes, closing: bytes) -> Expression:
        """Both brackets with nothing but white space between."""
        return Sequence((Bytes(opening), self._inside, Bytes(closing)))

    def comma(self, depth: int) -> Expression:
        """A comma with the white space around it."""
        if self._indent is None:
            return self._comma
        return Sequence((Bytes(b","), self._line(depth + 1)))
