"""Rules over tokens as rules over text, where what a token is depends on the character behind it.

A token leaves a *class*: the characters that may not stand behind it. Every rule is split by the class that is left
before it and the one that it leaves, as in the intersection of a grammar with an automaton (Bar-Hillel, Perles and
Shamir, "On formal properties of simple phrase structure grammars", 1961), of which only what can be used is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Sequence_

from .errors import GrammarTooLarge
from .expression import (
    ANY_CHARACTER,
    EMPTY,
    Alternation,
    Characters,
    Expression,
    Intersection,
    Ranges,
    Reference,
    Repeat,
    Sequence,
    Token,
)
from .lark_lexer import Variant
from .limits import Limits
from .ranges import intersect, negate, subtract, union
from .simplify import place_of

#: Turns of a bounded repeat that are told apart where they leave different classes.
_TURNS = 100


class Splitter:
    """Splits `rules`, in which references to no rule are terminals and `tokens` stand for themselves."""

    def __init__(
        self,
        rules: Mapping[str, Expression],
        variants: Sequence_[Variant],
        tokens: Mapping[str, Token],
        limits: Limits,
    ) -> None:
        self._rules = rules
        self._tokens = tokens
        self._limits = limits
        #: Class -> the characters that may not follow. Class 0 is that of the start.
        self._classes: list[Ranges] = [()]
        self._variants: dict[str, list[tuple[Variant, int]]] = {}
        self._pieces: list[tuple[Variant, int]] = []
        for variant in variants:
            left = self._class(variant.forbidden)
            if variant.ignored:
                self._pieces.append((variant, left))
            else:
                self._variants.setdefault(variant.name, []).append((variant, left))
        # No ignored text comes right behind a run of it: there only what terminals begin with matters.
        wanted = union(*(variant.first for found in self._variants.values() for variant, _ in found), ())
        self._outside = [self._class(intersect(ranges, wanted)) for ranges in list(self._classes)]
        self._outside += range(len(self._outside), len(self._classes))
        #: (rule, class before) -> classes that it can leave.
        self._leaves: dict[tuple[str, int], set[int]] = {}
        self._known: dict[tuple[int, int], set[int]] = {}
        self._result: dict[str, Expression] = {}
        self._parts = 0  # rules that are no rules of the grammar
        self._pending: list[tuple[str, int, int]] = []

    def rules_from(self, start: str) -> tuple[dict[str, Expression], str]:
        """All rules, and the name of the one to start with."""
        self._find_leaves(start)
        result = self._result
        begin = "%start"
        options: list[Expression] = []
        for before in sorted(self._after_ignored(0)):
            for left in sorted(self._leaves.get((start, before), ())):
                options.append(Sequence((self._ignored(0, before), self._rule(start, before, left))))
        result[begin] = Alternation(tuple(options))
        while self._pending:
            name, before, left = self._pending.pop()
            key = _split_name(name, before, left)
            if key not in result:
                result[key] = EMPTY  # taken; its own use of itself is a reference
                result[key] = self._split(self._rules[name], before, left, key)
        return result, begin

    def _class(self, forbidden: Ranges) -> int:
        if forbidden not in self._classes:
            self._classes.append(forbidden)
        return self._classes.index(forbidden)

    # Which classes can be left

    def _after_ignored(self, before: int) -> set[int]:
        """The classes after all ignored text, or none."""
        found = {before}
        stack = [before]
        while stack:
            at = stack.pop()
            for piece, left in self._pieces:
                if left not in found and subtract(piece.first, self._classes[at]):
                    found.add(left)
                    stack.append(left)
        return {self._outside[at] for at in found}

    def _find_leaves(self, start: str) -> None:
        wanted = {(start, before) for before in self._after_ignored(0)}
        while True:
            size = (len(wanted), sum(map(len, self._leaves.values())))
            for key in list(wanted):
                name, before = key
                self._leaves[key] = self._leaves.get(key, set()) | self._leave(self._rules[name], before, wanted)
            if size == (len(wanted), sum(map(len, self._leaves.values()))):
                return

    def _leave(self, node: Expression, before: int, wanted: set[tuple[str, int]]) -> set[int]:
        """The classes that `node` can leave, as far as is known; adds the rules that it asks for to `wanted`."""
        if isinstance(node, Reference):
            if node.rule in self._rules:
                wanted.add((node.rule, before))
                return self._leaves.get((node.rule, before), set())
            found: set[int] = set()
            for left in self._terminal_leaves(node.rule, before):
                found |= self._after_ignored(left)
            return found
        if isinstance(node, Sequence):
            at = {before}
            for part in node.parts:
                at = {left for one in at for left in self._leave(part, one, wanted)}
            return at
        if isinstance(node, Alternation):
            return {left for option in node.options for left in self._leave(option, before, wanted)}
        if isinstance(node, Repeat):
            at, reached = {before}, {before} if node.minimum == 0 else set()
            turns = 0
            while turns != node.maximum and turns < node.minimum + 2 * _TURNS:
                turns += 1
                after = {left for one in at for left in self._leave(node.body, one, wanted)}
                if turns >= node.minimum or after == at:
                    reached |= after
                if after == at:
                    break
                at = after
            return reached
        return {before}

    def _terminal_leaves(self, name: str, before: int) -> set[int]:
        if name in self._tokens:
            return {0}
        forbidden = self._classes[before]
        return {left for variant, left in self._variants.get(name, ()) if subtract(variant.first, forbidden)}

    # Split rules

    def _rule(self, name: str, before: int, left: int) -> Expression:
        self._pending.append((name, before, left))
        return Reference(_split_name(name, before, left))

    def _can(self, node: Expression, before: int) -> set[int]:
        """The classes that `node` can leave, once all are found."""
        key = id(node), before
        if key not in self._known:
            self._known[key] = self._leave(node, before, set())
        return self._known[key]

    def _helper(self, key: str, expression: Expression) -> Expression:
        """A rule of its own for what several ways share."""
        self._parts += 1
        name = f"{key} part {self._parts}"
        self._result[name] = expression
        return Reference(name)

    def _split(self, node: Expression, before: int, left: int, key: str) -> Expression:
        """The texts of `node` behind class `before` that leave class `left`."""
        if isinstance(node, Reference):
            return self._rule(node.rule, before, left) if node.rule in self._rules else self._use(node, before, left)
        if isinstance(node, Sequence):
            return self._sequence(node.parts, before, left, key)
        if isinstance(node, Alternation):
            options = [option for option in node.options if left in self._can(option, before)]
            return _either([self._split(option, before, left, key) for option in options])
        if isinstance(node, Repeat):
            return self._repeat(node, before, left, key)
        return node

    def _sequence(self, parts: Sequence_[Expression], before: int, left: int, key: str) -> Expression:
        reached = [{before}]
        for part in parts:
            reached.append({after for at in reached[-1] for after in self._can(part, at)})
        rests: dict[int, Expression] = {left: EMPTY}
        for part, starts in zip(reversed(parts), reversed(reached[:-1]), strict=True):
            ways = {at: sorted(self._can(part, at) & set(rests)) for at in sorted(starts)}
            for after in rests:
                if sum(after in targets for targets in ways.values()) > 1 and isinstance(
                    rests[after], Sequence | Alternation
                ):
                    rests[after] = self._helper(key, rests[after])
            rests = {
                at: _either([_then(self._split(part, at, after, key), rests[after]) for after in targets])
                for at, targets in ways.items()
                if targets
            }
        return rests[before]

    def _repeat(self, node: Repeat, before: int, left: int, key: str) -> Expression:
        body = node.body
        after_one = self._can(body, before)
        options: list[Expression]
        if all(self._can(body, after) <= {after} for after in after_one):
            options = [EMPTY] if node.minimum == 0 and left == before else []
            if left in after_one and node.maximum != 0:
                more = [self._split(body, left, left, key)] if left in self._can(body, left) else []
                least, most = max(node.minimum - 1, 0), None if node.maximum is None else node.maximum - 1
                rest = Repeat(_either(more), least, most, source=node.source)
                options.append(_then(self._split(body, before, left, key), rest))
            return _either(options)
        turns = node.minimum if node.maximum is None else node.maximum
        if turns > _TURNS:
            message = f"with lexer='longest' the turns of this repeat have to be told apart, and {turns} are too many"
            raise GrammarTooLarge(message, place_of(node.source), limit="max_repeat")
        rests: dict[int, Expression] = {}
        every = sorted(self._closure(body, before))
        self._parts += 1
        names = {at: f"{key} part {self._parts} from {at}" for at in every}
        if node.maximum is None:  # any number of turns more: a rule for each class that uses itself
            ends = self._ending(body, every, left)
            for at in ends:
                options = [EMPTY] if at == left else []
                for after in sorted(self._can(body, at) & ends):
                    options.append(_then(self._split(body, at, after, key), Reference(names[after])))
                self._result[names[at]] = _either(options)
            rests = {at: Reference(names[at]) for at in ends}
        else:
            rests = {left: EMPTY} if left in every else {}
        for turn in range(turns, 0, -1):
            # What may come from turn `turn` on; a turn past the minimum may also be the end.
            later: dict[int, Expression] = {}
            for at in every:
                options = [EMPTY] if turn > node.minimum and at == left else []
                for after in sorted(self._can(body, at) & set(rests)):
                    options.append(_then(self._split(body, at, after, key), rests[after]))
                if options:
                    option = _either(options)
                    later[at] = option if isinstance(option, Reference) else self._helper(key, option)
            rests = later
        return rests[before]

    def _closure(self, body: Expression, before: int) -> set[int]:
        found = {before}
        stack = [before]
        while stack:
            for after in self._can(body, stack.pop()):
                if after not in found:
                    found.add(after)
                    stack.append(after)
        return found

    def _ending(self, body: Expression, every: Sequence_[int], left: int) -> set[int]:
        """The classes from which turns lead to `left`."""
        ends = {left} & set(every)
        grown = True
        while grown:
            more = {at for at in every if self._can(body, at) & ends}
            grown = not more <= ends
            ends |= more
        return ends

    def _use(self, node: Reference, before: int, left: int) -> Expression:
        """A terminal and the ignored text behind it."""
        name = f"{_split_name(node.rule, before, left)}"
        if name not in self._result:
            options: list[Expression] = []
            for at in sorted(self._terminal_leaves(node.rule, before)):
                if left in self._after_ignored(at):
                    options.append(_then(self._token(node.rule, before, at), self._ignored(at, left)))
            self._result[name] = _either(options)
        return Reference(name, source=node.source)

    def _token(self, name: str, before: int, left: int) -> Expression:
        if name in self._tokens:
            return self._tokens[name]
        return _either(
            [self._behind(v, before) for v, at in self._variants[name] if at == left and self._fits(v, before)]
        )

    def _fits(self, variant: Variant, before: int) -> bool:
        return bool(subtract(variant.first, self._classes[before]))

    def _behind(self, variant: Variant, before: int) -> Expression:
        forbidden = self._classes[before]
        if not intersect(variant.first, forbidden):
            return variant.expression
        anything = Repeat(ANY_CHARACTER, 0, None)
        return Intersection((variant.expression, Sequence((Characters(negate(forbidden)), anything))))

    def _ignored(self, before: int, left: int) -> Expression:
        """Pieces of ignored text, or none, behind class `before` that leave class `left`."""
        if not self._pieces:
            return EMPTY
        name = f"%ignore {before} {left}"
        if name not in self._result:
            self._result[name] = EMPTY  # taken; its own use of itself is a reference
            options: list[Expression] = [EMPTY] if self._outside[before] == left else []
            for piece, at in self._pieces:
                if self._fits(piece, before) and left in self._after_ignored(at):
                    options.append(_then(self._behind(piece, before), self._ignored(at, left)))
            self._result[name] = _either(options)
        return Reference(name)


def _split_name(name: str, before: int, left: int) -> str:
    return f"{name} {before}-{left}"


def _then(first: Expression, second: Expression) -> Expression:
    return first if second == EMPTY else second if first == EMPTY else Sequence((first, second))


def _either(options: list[Expression]) -> Expression:
    return options[0] if len(options) == 1 else Alternation(tuple(options))


def followers(rules: Mapping[str, Expression], ignored: Sequence_[str]) -> dict[str, set[str]]:
    """For each terminal those that may stand right behind it. `rules` refer to terminals by names of no rule."""
    nullable: set[str] = set()
    firsts: dict[str, set[str]] = {name: set() for name in rules}
    lasts: dict[str, set[str]] = {name: set() for name in rules}
    found: dict[str, set[str]] = {}

    def look(node: Expression) -> tuple[bool, set[str], set[str]]:
        """Whether it may be empty, and the terminals that it may begin and end with, as far as is known."""
        if isinstance(node, Reference):
            if node.rule in rules:
                return node.rule in nullable, firsts[node.rule], lasts[node.rule]
            found.setdefault(node.rule, set())
            return False, {node.rule}, {node.rule}
        if isinstance(node, Alternation):
            looked = [look(option) for option in node.options]
            return (
                any(n for n, _, _ in looked),
                set().union(*[f for _, f, _ in looked]),
                set().union(*[b for *_, b in looked]),
            )
        if isinstance(node, Repeat):
            empty, first, last = look(node.body)
            if node.maximum is None or node.maximum > 1:
                for name in last:
                    found[name] |= first
            return empty or node.minimum == 0, first, last
        if isinstance(node, Sequence):
            empty, first, last = True, set[str](), set[str]()
            for part in node.parts:
                part_empty, part_first, part_last = look(part)
                for name in last:
                    found[name] |= part_first
                first = first | part_first if empty else first
                last = last | part_last if part_empty else set(part_last)
                empty = empty and part_empty
            return empty, first, last
        return True, set(), set()

    size = -1
    while True:
        for name, node in rules.items():
            empty, first, last = look(node)
            if empty:
                nullable.add(name)
            firsts[name] = firsts[name] | first
            lasts[name] = lasts[name] | last
        now = (
            sum(map(len, found.values()))
            + sum(map(len, firsts.values()))
            + sum(map(len, lasts.values()))
            + len(nullable)
        )
        if now == size:
            break
        size = now
    for name in found:
        found[name] |= set(ignored)
    for name in ignored:
        found[name] = {*found, *ignored}
    return found
