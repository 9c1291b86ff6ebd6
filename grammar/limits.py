"""Every limit of compiling a grammar, in one place."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Limits:
    """Limits of compilation. Passing one raises `GrammarTooLarge` unless a field says otherwise."""

    #: Position-automaton states of one expression, repeats unrolled. About 1 us and 60 bytes each.
    max_positions: int = 1_000_000
    #: States of one deterministic frame. Past it a regular grammar becomes a *lazy* frame, determinised
    #: at run time, instead of a refusal. About 0.5-2 us and 4 * classes bytes each.
    #: So many, and twice the positions that it is made from.
    max_dfa_states: int = 20_000
    #: Work of one subset construction, in set members visited (about 5 ns each); past it: as above.
    max_dfa_work: int = 20_000_000
    #: States of the operand of a complement or of a lookahead, which must be determinised. No fallback.
    max_complement_states: int = 50_000
    #: Pairs of an intersection's product automaton. No fallback. About 1 us each.
    max_product_states: int = 200_000
    #: Nodes of the trie of a choice of plain strings, before equal rests are merged: at most its bytes. About 0.2 us
    #: and 50 bytes each while it is built. `max_dfa_states` does not apply to it.
    max_choice_states: int = 4_000_000
    #: Positions of a counted repeat, unrolled, up to which it is unrolled; larger ones are counted by a frame of their
    #: own (a few states, and a head that waits behind it) where that is proved to need few heads. In grammars of
    #: rules, where calls cost less, an eighth of it.
    max_unrolled_positions: int = 256
    #: Upper bound of a counted repeat as written, e.g. `a{0,100000}`.
    max_repeat: int = 1_000_000
    #: Nesting depth of the expression (groups within groups).
    max_depth: int = 250
    #: Token-level states that are built ahead for a finite grammar; above it they are built on demand.
    max_eager_contexts: int = 10_000
    #: States of the automaton of one Lark terminal whose pattern depends on the order of matching (lazy repeats, a
    #: longer option after a shorter one, lookarounds), and parts of the expression made from it. About 50 us each.
    max_terminal_states: int = 2_000
    #: States of the integer part of a JSON number that must be a multiple of something, or must not: about the digits
    #: it may have times the remainders, which factors 2 and 5 add little to. About 5 us and 80 bytes each. No fallback.
    max_remainder_states: int = 50_000
    #: Positions up to which rules of a recursive grammar are inlined and solved into their callers (about 1 us each);
    #: larger ones stay frames that are called, and all do where a frame becomes too large otherwise. 0: every recursive
    #: rule is a frame.
    max_inlined_positions: int = 2_000
    #: Ways to satisfy one JSON Schema, for one kind of value, after its `anyOf`, `oneOf`, `if` and negations have been
    #: multiplied out. Objects with more than some hundreds become one automaton instead, unless unevaluated keywords or
    #: numbers of properties are in the alternatives. About 20 us each.
    max_schema_alternatives: int = 5_000
    #: States of one object or array of a JSON Schema: which of its properties have been settled, how many there are.
    #: About 50 us each.
    max_schema_states: int = 10_000

    def __post_init__(self) -> None:
        values = tuple(getattr(self, name) for name in _NAMES)
        for name, value in zip(_NAMES, values, strict=True):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"Limits.{name} must be an integer from 0 on, not {value!r:.60}")
        # Limits are in the keys of much that is remembered.
        object.__setattr__(self, "_hash", hash(values))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined, no-any-return]


#: The names of the limits.
_NAMES = tuple(field.name for field in fields(Limits))
#: The limits where none are given: always the same object, which is quicker to compare.
DEFAULT_LIMITS = Limits()


def checked_limits(limits: Any) -> Limits:
    """`limits`, the default ones for None. Raises `TypeError` where they are none."""
    if limits is None:
        return DEFAULT_LIMITS
    if not isinstance(limits, Limits):
        raise TypeError(f"limits must be stepmask.Limits(...), not {type(limits).__name__}: {limits!r:.60}")
    return limits
