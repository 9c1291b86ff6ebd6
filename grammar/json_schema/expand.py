"""Sets of schemas as unions of clauses: the disjunctive normal form, for one kind of value at a time.

Only what can matter to a value of that kind is looked at: an alternative for another kind is gone at once, and the
negation of a schema of another kind holds. Negations are pushed down to the keywords (De Morgan), each of which says
in `Keyword.negative` what violates it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import GrammarError, GrammarSyntaxError, GrammarTooLarge
from ..expression import Expression
from ..limits import Limits
from .clauses import CLAUSES, Clause, StringClause
from .conditions import in_place, keyword_presence, presence
from .keywords import check_keywords
from .patterns import pattern_content
from .presence import Formula, negated
from .schemas import ANYTHING, NOTHING_VALID, Literal, Literals, Schema, SchemaStore
from .strings import ANY_STRING, StringConstraint, string_expression
from .values import KINDS, kind_of

if TYPE_CHECKING:
    from .emptiness import Emptiness
    from .options import Formats, PropertyOrder
    from .values import Named

Result = TypeVar("Result")

#: A literal and the scopes, of unevaluated keywords around it, that see what it evaluates.
Item = tuple[int, bool, tuple[int, ...]]
#: Adds something to a clause; False: that contradicts what is there.
Fact = Callable[[Any], bool]


@dataclass(frozen=True)
class Option:
    """One way to go on: more literals, and more facts."""

    items: tuple[Item, ...] = ()
    facts: tuple[Fact, ...] = ()


#: Keywords that may leave a choice.
_HAS_CHOICE = {"anyOf", "oneOf", "not", "if", "dependencies", "dependentSchemas", "allOf"}
#: Schemas within schemas, for the same value, that are looked into for the kinds that they leave.
_MAX_NESTED = 16
_TYPE_ALONE = {"type"}
_ALL_KINDS = frozenset(KINDS)
_KINDS_OF_TYPE = {kind: frozenset((kind,)) for kind in KINDS} | {"integer": frozenset(("number",))}
#: Steps of expansion, about 30 us each, beyond which objects are one formula if they can be. In any order a clause is a
#: few states, and a formula as many as there are sets of names.
_MANY_STEPS: dict[PropertyOrder, int] = {"declared": 300, "any": 4_000}
#: Clauses of strings that choices may multiply to, for each option of the longest; beyond it they are one clause.
_MANY_STRINGS = 8
_UNEVALUATED = {"object": "unevaluatedProperties", "array": "unevaluatedItems"}
#: A negation that holds for every value of a kind.
HOLDS: list[Option] = [Option()]


@cache
def _in_order(kinds: frozenset[str]) -> tuple[str, ...]:
    return tuple(kind for kind in KINDS if kind in kinds)


@cache
def _plain_clauses(kind: str, integer: bool) -> list[Any]:
    """The clause of all values of a kind; `integer`: of the numbers that are integers."""
    clause = CLAUSES[kind]()
    if integer:
        clause.intersect(integer=True)
    return [clause]


@dataclass(eq=False)
class State:
    """A clause being made: what is still to be looked at, the choices still to be taken, and what is known."""

    todo: list[Item]
    choices: list[list[Option]] = field(default_factory=list)
    clause: Any = None
    scopes: int = 0
    seen: set[Item] = field(default_factory=set)

    def copy(self) -> State:
        return State(self.todo.copy(), self.choices.copy(), self.clause.copy(), self.scopes, self.seen.copy())

    def push(self, literal: Literal, scopes: tuple[int, ...] = ()) -> bool:
        """Ask for a literal too."""
        if literal[0] <= NOTHING_VALID:
            return literal[0] == ANYTHING
        self.todo.append((*literal, scopes))
        return True


@dataclass(frozen=True)
class Keyword:
    """How a keyword is enforced on values of `kinds`: `positive` adds to a state, `negative` gives what violates it."""

    kinds: frozenset[str]
    positive: Callable[[Expander, Schema, Any, State, tuple[int, ...]], bool]
    negative: Callable[[Expander, Schema, Any], list[Option]]


def _before_choices(clause: Any) -> Any:
    """The clause without unevaluated keywords: what the choices add may be what they are not about."""
    if not clause.unevaluated:
        return clause
    other = clause.copy()
    other.unevaluated = []
    return other


def _unless(formula: Formula) -> list[Option]:
    """What violates a condition on names."""
    opposite = negated(formula)
    if isinstance(opposite, bool):
        return HOLDS if opposite else []
    return [Option(facts=(lambda clause: clause.condition(opposite),))]


class _ManyStepsError(Exception):
    """The clauses of a set are very many."""


class Expander:
    """Clauses of sets of schemas, remembered."""

    def __init__(
        self,
        store: SchemaStore,
        limits: Limits,
        emptiness: Emptiness,
        formats: Formats,
        order: PropertyOrder = "declared",
    ) -> None:
        from .keyword_table import KEYWORDS  # they need what is defined here

        self.store = store
        self.emptiness = emptiness
        self.limits = limits
        self.kind = ""
        self.formats = formats
        self.many_steps = _MANY_STEPS[order]
        #: Where each pattern stands first, for messages.
        self.places: dict[str, str] = {}
        #: What is known of schemas: the values of `enum` and `const`, and conditions on names.
        self.named: dict[tuple[int, str], Named] = {}
        self.listed: dict[tuple[int, str], frozenset[Any] | None] = {}
        self.presences: dict[int, Formula | None] = {}
        self._keywords: dict[str, Keyword] = KEYWORDS
        self._done: dict[tuple[Literals, str], list[Any]] = {}
        self._checked: set[int] = set()
        self._kinds: dict[Literals, tuple[str, ...]] = {}
        self._schema_kinds: dict[int, frozenset[str]] = {}

    def kinds(self, literals: Literals) -> tuple[str, ...]:
        """The kinds of value that a set may leave, as far as that is easily seen: of others there are no clauses."""
        found = self._kinds.get(literals)
        if found is None:
            left = _ALL_KINDS
            for number, positive in sorted(literals):
                if positive and number > NOTHING_VALID:
                    left &= self._kinds_of(self.store[number], _MAX_NESTED)
            found = self._kinds[literals] = _in_order(left)
        return found

    def _kinds_of(self, schema: Schema, depth: int) -> frozenset[str]:
        """The same of a schema; it looks into schemas for the same value, so far nested."""
        found = self._schema_kinds.get(schema.number)
        if found is not None:
            return found
        left = _ALL_KINDS
        if schema.number <= NOTHING_VALID or depth == 0:
            return left
        if schema.options is not None:
            parts = [self._kinds_of(self.store[number], depth - 1) for number, positive in schema.options if positive]
            left = frozenset().union(*parts) if len(parts) == len(schema.options) else left
        else:
            keywords = self.checked(schema).keywords  # which is not in itself, then
            for name, value in keywords.items():
                if name == "type":
                    types = _KINDS_OF_TYPE.get(value) if isinstance(value, str) else None
                    left &= types or frozenset().union(*(_KINDS_OF_TYPE[one] for one in value))
                elif name == "const":
                    left &= {kind_of(value, schema.place(name))}
                elif name == "enum":
                    left &= {kind_of(item, schema.place(name)) for item in value}
                elif name in ("anyOf", "oneOf"):
                    branches = [self.store.child(schema, name, i) for i in range(len(value))]
                    left &= frozenset().union(*(self._kinds_of(branch, depth - 1) for branch in branches))
                elif name == "$ref":
                    left &= self._kinds_of(self.store.resolve(schema, name), depth - 1)
        self._schema_kinds[schema.number] = left
        return left

    def clauses(self, literals: Literals, kind: str) -> list[Any]:
        """The clauses of a set for values of `kind`; none: no such value is valid. Raises `GrammarError`."""
        key = literals, kind
        found = self._done.get(key)
        if found is None and kind not in self.kinds(literals):
            found = self._done[key] = []
        if found is None:
            found = self._plain(literals, kind)
            if found is not None:
                self._done[key] = found
        if found is None:
            outer, self.kind = self.kind, kind
            try:
                items: list[Item] = [(number, positive, ()) for number, positive in sorted(literals)]
                found = self._formula_where_many(literals, items)
            finally:
                self.kind = outer
            self._done[key] = found
        return found

    def _formula_where_many(self, literals: Literals, items: list[Item]) -> list[Any]:
        """The clauses of a set; of objects, where these are very many, one with a formula instead, if there is one."""
        if self.kind == "object":
            try:
                return list(self._expanded(State(items.copy(), clause=CLAUSES[self.kind]()), self.many_steps))
            except _ManyStepsError:
                from .object_formulas import object_formula  # it needs what is defined here

                clause = object_formula(self, literals)
                if clause is not None:
                    return [clause]
        return list(self._expanded(State(items, clause=CLAUSES[self.kind]())))

    def _plain(self, literals: Literals, kind: str) -> list[Any] | None:
        """The clause of a set that asks for no more than a type, which most sets are; None for others."""
        integer = False
        if literals:
            (number, positive), *more = literals
            schema = self.store[number]
            if more or not positive or schema.options is not None or schema.keywords.keys() != _TYPE_ALONE:
                return None
            integer = kind == "number" and schema.keywords["type"] == "integer"
            if not integer and schema.keywords["type"] != kind:
                return None
        return _plain_clauses(kind, integer)

    def _expanded(self, start: State, most_steps: int | None = None) -> Iterator[Clause]:
        """Raises `_ManyStepsError` where more than `most_steps` are taken, those of the longest choice not counted."""
        work = [start]
        made = steps = longest = 0
        while work:
            steps += 1
            if most_steps is not None and steps > most_steps + longest:
                raise _ManyStepsError
            state = work.pop()
            if not self._close(state):
                continue
            if not state.choices:
                made += 1
                yield state.clause
                continue
            if self.emptiness.is_contradictory(self.kind, _before_choices(state.clause)):
                continue
            longest = max(longest, *map(len, state.choices))
            if self.kind == "string" and prod(map(len, state.choices)) > _MANY_STRINGS * longest:
                if self._as_options(state):
                    made += 1
                    yield state.clause
                continue
            choice = min(state.choices, key=len)
            state.choices.remove(choice)
            if made + len(work) + len(choice) > self.limits.max_schema_alternatives:
                raise GrammarTooLarge(
                    "the alternatives of a schema multiply to too many",
                    self.store[start.todo[0][0]].pointer if start.todo else None,
                    limit="max_schema_alternatives",
                )
            for option in reversed(choice):
                other = state.copy()
                if self.take(other, option):
                    work.append(other)

    def _as_options(self, state: State) -> bool:
        """Make choices between strings part of the clause: a language may be a union. False: one cannot be made."""
        for choice in state.choices:
            found = []
            for option in choice:
                alone = State([], clause=StringClause())
                if self.take(alone, option):
                    found += [clause.constraint for clause in self._expanded(alone)]  # type: ignore[attr-defined]
            if not found:
                return False
            if ANY_STRING not in found:
                state.clause.intersect(options=frozenset((frozenset(found),)))
        return True

    def take(self, state: State, option: Option) -> bool:
        """Go one way. False: it is contradictory."""
        for number, positive, scopes in option.items:
            if not state.push((number, positive), scopes):
                return False
        return all(fact(state.clause) for fact in option.facts)

    def choose(self, state: State, options: list[Option]) -> bool:
        """One of `options` must hold."""
        if any(not option.items and not option.facts for option in options):
            return True
        if len(options) == 1:
            return self.take(state, options[0])
        if options:
            state.choices.append(options)
        return bool(options)

    def _close(self, state: State) -> bool:
        """Look at everything in which there is no choice."""
        while state.todo:
            # What an item asks for comes before what was asked for after it, as in the schema's text.
            item, later = state.todo[0], state.todo[1:]
            state.todo.clear()
            if not self._look_at(state, item):
                return False
            state.todo += later
        return True

    def _look_at(self, state: State, item: Item) -> bool:
        if item in state.seen:
            return True
        number, positive, scopes = item
        if number <= NOTHING_VALID:
            return (number == ANYTHING) == positive
        if (number, not positive, scopes) in state.seen:
            return False
        state.seen.add(item)
        schema = self.store[number]
        if schema.options is not None:
            return self._either(state, schema.options, positive, scopes)
        self.checked(schema)
        if self.kind == "object" and not scopes and _HAS_CHOICE & schema.keywords.keys():
            formula = presence(self, schema, positive)
            if formula is not None:
                return bool(state.clause.condition(formula))
        return self._positive(state, schema, scopes) if positive else self._negative(state, schema)

    def is_about(self, name: str) -> bool:
        """Whether a keyword may ask something of values of the kind that is looked at."""
        keyword = self._keywords.get(name)
        return keyword is not None and self.kind in keyword.kinds

    def strings(self, constraint: StringConstraint, **options: Any) -> Expression | None:
        """The texts of strings (`strings.string_expression`); errors of a pattern say where it stands."""
        try:
            return string_expression(constraint, limits=self.limits, **options)
        except GrammarError as error:
            for pattern in sorted(constraint.all_patterns):
                self.located(pattern, lambda pattern=pattern: pattern_content(pattern, self.limits))  # type: ignore[misc]
            raise error

    def located(self, pattern: str, build: Callable[[], Result]) -> Result:
        """Do something with a pattern; what is wrong with it is said to be where it stands."""
        try:
            return build()
        except GrammarError as error:
            place = self.places.get(pattern)
            if place is None:
                raise
            error.args = (f"{error.message} ({error.place or 'somewhere'} of the pattern {pattern!r}, {place})",)
            error.place = place
            raise

    def checked(self, schema: Schema) -> Schema:
        """The schema, its keywords known to have values of the right form."""
        if schema.number not in self._checked:
            self._check_from(schema)
        return schema

    def _check_from(self, start: Schema) -> None:
        """Check a schema and all that it applies to the same value. Raises `GrammarSyntaxError` for one in itself."""
        check_keywords(start)
        inner = in_place(self, start)
        if not inner:
            self._checked.add(start.number)
            return
        path = [(start, inner)]
        opened = {start.number}
        while path:
            schema, left = path[-1]
            if left:
                other = left.pop()
                if other.number in opened:
                    raise GrammarSyntaxError("the schema applies itself to the same value, without end", schema.pointer)
                if other.number not in self._checked:
                    check_keywords(other)
                    opened.add(other.number)
                    path.append((other, in_place(self, other)))
            else:
                path.pop()
                opened.discard(schema.number)
                self._checked.add(schema.number)

    def _either(self, state: State, options: tuple[Literal, ...], positive: bool, scopes: tuple[int, ...]) -> bool:
        if positive:
            return self.choose(state, [Option(((*literal, scopes),)) for literal in options])
        return all(state.push(self.negated(literal)) for literal in options)

    def negated(self, literal: Literal) -> Literal:
        return self.store.literal(self.store[literal[0]], not literal[1])

    def _positive(self, state: State, schema: Schema, scopes: tuple[int, ...]) -> bool:
        keywords = schema.keywords
        unevaluated = _UNEVALUATED.get(self.kind)
        if unevaluated is not None and unevaluated in keywords:
            state.scopes += 1
            scope = state.scopes
            literal = self.store.literal(self.store.child(schema, unevaluated))
            state.clause.unevaluated.append((scope, literal))
            for outer in scopes:
                state.clause.evaluation(outer).everything = True
            scopes = (*scopes, scope)
        kind = self.kind
        for name, value in keywords.items():
            keyword = self._keywords.get(name)
            if keyword is None or kind not in keyword.kinds:
                continue
            formula = self._formula(schema, name, scopes) if name in _HAS_CHOICE else None
            if formula is not None:
                if not state.clause.condition(formula):
                    return False
                continue
            if not keyword.positive(self, schema, value, state, scopes):
                return False
        return True

    def _formula(self, schema: Schema, name: str, scopes: tuple[int, ...]) -> Formula | None:
        """A keyword that leaves a choice, and only between names of an object, as one condition."""
        if self.kind != "object" or scopes or name not in _HAS_CHOICE:
            return None
        return keyword_presence(self, schema, name)

    def _negative(self, state: State, schema: Schema) -> bool:
        options: list[Option] = []
        for name, value in schema.keywords.items():
            keyword = self._keywords.get(name)
            if keyword is not None and self.kind in keyword.kinds:
                formula = self._formula(schema, name, ())
                found = keyword.negative(self, schema, value) if formula is None else _unless(formula)
                if found is HOLDS:
                    return True
                options += found
        return self.choose(state, options)
