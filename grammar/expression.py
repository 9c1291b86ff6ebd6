"""The expression language: what every front end produces and everything behind it consumes.

Nodes are immutable and hashable. `source` (where the node came from, as a human-readable place such
as ``column 7``, and the text of the construct) takes no part in equality, so equal constructs at
different places share one automaton.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Code point ranges, both ends inclusive, sorted, disjoint, without surrogates (U+D800-DFFF).
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Source:
    """Where a construct stands: `text` is the construct itself, `place` is e.g. ``column 7``."""

    text: str
    place: str

    def __str__(self) -> str:
        text = self.text if len(self.text) <= 60 else self.text[:57] + "..."
        return f"{text!r} at {self.place}"


@dataclass(frozen=True)
class Expression:
    """Base of all nodes."""

    source: Source | None = field(default=None, compare=False, kw_only=True, repr=False)


@dataclass(frozen=True)
class Bytes(Expression):
    """Exactly these bytes; ``Bytes(b"")`` is the empty string."""

    text: bytes


@dataclass(frozen=True)
class Characters(Expression):
    """One code point (UTF-8 encoded) out of `ranges`; empty `ranges` match nothing."""

    ranges: Ranges


@dataclass(frozen=True)
class Sequence(Expression):
    """All `parts`, one after the other."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Alternation(Expression):
    """Any one of `options`; no options match nothing."""

    options: tuple[Expression, ...]


@dataclass(frozen=True)
class Repeat(Expression):
    """`body` at least `minimum` and at most `maximum` times (None: without bound)."""

    body: Expression
    minimum: int
    maximum: int | None


@dataclass(frozen=True)
class Reference(Expression):
    """The rule of that name."""

    rule: str


@dataclass(frozen=True)
class Token(Expression):
    """One special token, named by its text or its id: a symbol outside the byte alphabet."""

    name: str | int


@dataclass(frozen=True)
class Intersection(Expression):
    """The strings that all operands match. Operands are regular and contain no `Token`."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True)
class Complement(Expression):
    """The valid UTF-8 strings that `operand` (regular, no `Token`) does not match."""

    operand: Expression


@dataclass(frozen=True)
class Lookahead(Expression):
    """Empty; holds where some prefix of the whole rest of the text matches `operand` (or none does)."""

    operand: Expression
    negative: bool


@dataclass(frozen=True)
class StartAnchor(Expression):
    """Empty; holds at the start of the text only."""


@dataclass(frozen=True)
class EndAnchor(Expression):
    """Empty; holds at the end of the text only."""


@dataclass(frozen=True, eq=False)
class Machine(Expression):
    """What the paths of an automaton from state 0 to one of `finals` spell, each edge being an expression.

    Edge `i` leads from state ``sources[i]`` to ``targets[i]`` and spells ``labels[i]``, which may be empty. For shapes
    that sequences and alternations would blow up, such as a list of a hundred parts any of which may be left out.
    """

    sources: tuple[int, ...]
    labels: tuple[Expression, ...]
    targets: tuple[int, ...]
    finals: tuple[int, ...]

    # Comparing whole machines is not worth its time; the base class would take all of them for equal.
    __eq__ = object.__eq__
    __hash__ = object.__hash__


@dataclass(frozen=True)
class ByteAutomaton(Expression):
    """The strings that lead from state 0 to a final state, each edge reading one byte of a range.

    It may be non-deterministic, edges may lead back to state 0, and states may be of no use. `edges`: rows of four
    int32 in native byte order, (source, low, high, target) with ``0 <= low <= high <= 255``, in any order; `final`:
    one byte for each state, 1 where a string may end. Plain bytes, as tables may be large and are compared and hashed.
    `loops`: classes of code points that states may loop on, a hint for masks (see `loops`).
    """

    edges: bytes
    final: bytes
    loops: tuple[Ranges, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Member(Expression):
    """One way to write a member; stands only among the options of `Members`.

    `key` is the text up to where it is known which key it is (regular, never empty, without tokens), `rest` what
    follows. A member with a `bit` may stand once; several options may have the same. None: as often as one likes.
    """

    key: Expression
    rest: Expression
    bit: int | None


@dataclass(frozen=True)
class Condition:
    """What must hold of the members of a list: bit sets of those that must and must not be there, and their number.

    Of each set in `groups` at least one must be there; they have no members in common with each other or `required`.
    """

    required: int = 0
    forbidden: int = 0
    minimum: int = 0
    maximum: int | None = None
    groups: tuple[int, ...] = ()


@dataclass(frozen=True)
class Members(Expression):
    """Members in any order, `separator` (regular, without tokens) between them, such that one of `accept` holds.

    That of no members at all is the empty string. Members without a bit count, but may be equal.
    """

    options: tuple[Member, ...]
    separator: Expression
    accept: tuple[Condition, ...] = (Condition(),)


EMPTY = Bytes(b"")
NOTHING = Alternation(())
ALL_CODE_POINTS: Ranges = ((0, 0xD7FF), (0xE000, 0x10FFFF))
ANY_CHARACTER = Characters(ALL_CODE_POINTS)


@dataclass(frozen=True)
class Grammar:
    """A parsed grammar: rules of expressions, a start rule, and what to call it in messages.

    `kind` is the front end (``regex``, ``choice``, ...), `text` the text it was given. Two grammars
    with equal `rules` and `start` compile to the same automaton whatever their text; so do those of one `kind` with
    equal `identity`, all that the front end makes rules from ("": unknown). With `frames` every rule is a frame as it
    is, and a reference a call; without, rules are inlined and solved as is best.
    """

    kind: str
    text: str
    rules: Mapping[str, Expression]
    start: str = "start"
    options: Mapping[str, Any] = field(default_factory=dict)
    frames: bool = False
    identity: str = ""

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 60 else self.text[:57] + "..."
        return f"<stepmask grammar {self.kind}: {text!r}>"
