"""From the tree that lark's parser builds to rules of expressions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from .bnf_dialect import Dialect, GrammarText
from .errors import GrammarTooLarge
from .expression import (
    EMPTY,
    Alternation,
    Bytes,
    Characters,
    Expression,
    Ranges,
    Reference,
    Repeat,
    Sequence,
    Source,
)
from .limits import Limits
from .ranges import negate, normalise

if TYPE_CHECKING:
    import lark

    from .bnf_dialect import Tree

_SIGNS = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def _token(part: lark.Token | Tree) -> lark.Token:
    return cast("lark.Token", part)


def _start(token: lark.Token | Tree) -> int:
    return cast(int, _token(token).start_pos)


def _end(token: lark.Token | Tree) -> int:
    return cast(int, _token(token).end_pos)


@dataclass(frozen=True)
class _Built:
    """What a part of the tree has become, where it stands, and how deeply its groups and repeats are nested."""

    expression: Expression
    start: int
    end: int
    depth: int = 0
    is_repeat: bool = False


#: Where nothing is written.
_BLANK = _Built(EMPTY, -1, -1)


class TreeReader:
    """Turns the tree of one grammar into rules.

    The tree: `start` holds each `rule` (its name first, then ASSIGN and choices); `choices` hold each `sequence`, with
    a PIPE between two; a `sequence` holds atoms, `repeat` (an item, then SIGN, or LBRACE, counts and COMMA, RBRACE) and
    `group` (LPAR choices RPAR). Atoms are the tokens STRING, CLASS and NAME and what the dialect adds. It is read from
    its leaves up, without recursion.
    """

    def __init__(self, where: GrammarText, dialect: Dialect, limits: Limits) -> None:
        self.where = where
        self.dialect = dialect
        self.limits = limits
        #: What subtrees have become, by identity.
        self.built: dict[int, _Built] = {}
        self.references: list[tuple[int, str]] = []

    def rules(self, tree: Tree) -> dict[str, Expression]:
        readers = {
            "rule": self.rule,
            "choices": self.choices,
            "sequence": self.sequence,
            "repeat": self.repeat,
            "group": self.group,
        }
        for part in tree.iter_subtrees():  # from the leaves up
            if part is not tree:
                self.built[id(part)] = readers.get(part.data, self.other)(part)
        rules: dict[str, Expression] = {}
        offsets: dict[str, int] = {}
        for rule in tree.children:
            name = _token(rule.children[0])  # type: ignore[union-attr]
            if name in rules and not self.dialect.redefines:
                first = self.where.place(offsets[name])
                raise self.where.wrong(f"the rule {name} is defined twice, first at {first}", _start(name))
            rules[str(name)] = self.built[id(rule)].expression
            offsets[str(name)] = _start(name)
        return rules

    def check_references(self, rules: dict[str, Expression]) -> None:
        missing = min(((offset, name) for offset, name in self.references if name not in rules), default=None)
        if missing is not None:
            raise self.where.wrong(f"the rule {missing[1]} is not defined", missing[0])

    def rule(self, rule: Tree) -> _Built:
        self.dialect.check_rule(self.where, rule)
        _, assign, choices = rule.children
        return self.filled(self.built[id(choices)], _end(assign))

    def group(self, group: Tree) -> _Built:
        start, end = _start(group.children[0]), _end(group.children[-1])
        inner = self.filled(self.built.get(id(group.children[1]), _BLANK), start + 1)
        depth = self.deeper(inner, start)
        return _Built(inner.expression, start, end, depth)

    def choices(self, choices: Tree) -> _Built:
        options = [self.built[id(part)] for part in choices.children[::2]]
        if len(options) == 1:
            return options[0]
        pipes = choices.children[1::2]
        options = [
            self.filled(option, _end(pipes[index - 1]) if index else _start(pipes[0]))
            for index, option in enumerate(options)
        ]
        alternation = Alternation(tuple(option.expression for option in options), source=self.source(options))
        return _Built(alternation, options[0].start, options[-1].end, max(option.depth for option in options))

    def sequence(self, sequence: Tree) -> _Built:
        items = [self.item(child) for child in sequence.children]
        if len(items) == 1:
            return items[0]
        if not items:
            return _BLANK
        whole = Sequence(tuple(item.expression for item in items), source=self.source(items))
        return _Built(whole, items[0].start, items[-1].end, max(item.depth for item in items))

    def repeat(self, repeat: Tree) -> _Built:
        body = self.item(repeat.children[0])
        operator = [_token(child) for child in repeat.children[1:]]
        end = _end(operator[-1])
        minimum, maximum = _SIGNS.get(operator[0]) or self.bounds(operator)
        depth = self.deeper(body, body.start) if body.is_repeat else body.depth
        source = self.where.source(body.start, end)
        if maximum == 0:
            repeated: Expression = Bytes(b"", source=source)
        elif (minimum, maximum) == (1, 1):
            repeated = body.expression
        else:
            repeated = Repeat(body.expression, minimum, maximum, source=source)
        return _Built(repeated, body.start, end, depth, is_repeat=True)

    def other(self, part: Tree) -> _Built:
        start, end = _start(part.children[0]), _end(part.children[-1])
        return _Built(self.dialect.construct(self.where, part, self.where.source(start, end)), start, end)

    def source(self, parts: list[_Built]) -> Source:
        return self.where.source(parts[0].start, parts[-1].end)

    def filled(self, inner: _Built, offset: int) -> _Built:
        """`inner`; where nothing is written, the empty string at `offset`."""
        if inner.start >= 0:
            return inner
        return _Built(Bytes(b"", source=self.where.source(offset, offset)), offset, offset)

    def deeper(self, inner: _Built, offset: int) -> int:
        limit = self.limits.max_depth
        if inner.depth >= limit:
            message = f"groups are nested more than {limit} deep"
            raise GrammarTooLarge(message, self.where.place(offset), limit="max_depth")
        return inner.depth + 1

    def bounds(self, operator: list[lark.Token]) -> tuple[int, int | None]:
        """The numbers of ``{m}``, ``{m,}`` and ``{m,n}``, as the tokens from brace to brace."""
        minimum = self.bound(operator[1])
        if len(operator) == 3:
            return minimum, minimum
        maximum = self.bound(operator[3]) if len(operator) == 5 and operator[3] != "-1" else None
        if maximum is not None and maximum < minimum:
            raise self.where.wrong(f"the bounds {{{minimum},{maximum}}} are in the wrong order", _start(operator[0]))
        return minimum, maximum

    def bound(self, digits: lark.Token) -> int:
        if not (digits.isascii() and digits.isdigit()):
            raise self.where.wrong(f"{digits} is no number of repetitions", _start(digits))
        limit = self.limits.max_repeat
        if len(digits.lstrip("0")) > 18 or int(digits) > limit:
            number = str(digits) if len(digits) <= 20 else digits[:17] + "..."
            message = f"{number} repetitions are over the limit of {limit}"
            raise GrammarTooLarge(message, self.where.place(_start(digits)), limit="max_repeat")
        return int(digits)

    # Atoms

    def item(self, part: lark.Token | Tree) -> _Built:
        if id(part) in self.built:
            return self.built[id(part)]
        token = _token(part)
        start, end = _start(token), _end(token)
        source = self.where.source(start, end)
        if token.type == "NAME":
            self.references.append((start, str(token)))
            atom: Expression = Reference(str(token), source=source)
        elif token.type == "STRING":
            atom = Bytes(self.string(start + 1, end - 1).encode(), source=source)
        elif token.type == "CLASS":
            atom = Characters(self.ranges(start, end - 1), source=source)
        else:
            atom = self.dialect.atom(self.where, token, source)
        return _Built(atom, start, end)

    def string(self, start: int, end: int) -> str:
        """What the string written at [start, end) stands for."""
        pieces: list[str] = []
        while (backslash := self.where.text.find("\\", start, end)) >= 0:
            code_point, after = self.dialect.read_escape(self.where, backslash, in_class=False)
            if 0xD800 <= code_point <= 0xDFFF:
                written = self.where.text[backslash:after]
                message = f"{written} is half of a surrogate pair, not a character; write \\U and eight digits"
                raise self.where.wrong(message, backslash)
            pieces += [self.where.text[start:backslash], chr(code_point)]
            start = after
        return "".join([*pieces, self.where.text[start:end]])

    def ranges(self, start: int, end: int) -> Ranges:
        """The characters of the class with brackets at `start` and `end`. Surrogates are none: they are left out."""
        text = self.where.text
        negated = text[start + 1] == "^"
        position = start + 1 + negated
        if position == end:
            self.dialect.check_empty_class(self.where, start, negated)
        pairs: list[tuple[int, int]] = []
        while position < end:
            begin = position
            low, position = self.class_character(position)
            high = low
            if text[position] == "-" and position + 1 < end:
                high, position = self.class_character(position + 1)
                if high < low:
                    raise self.where.wrong(f"the range {text[begin:position]} is in the wrong order", begin)
            pairs.append((low, high))
        ranges = normalise(pairs)
        return negate(ranges) if negated else ranges

    def class_character(self, position: int) -> tuple[int, int]:
        if self.where.text[position] == "\\":
            return self.dialect.read_escape(self.where, position, in_class=True)
        return ord(self.where.text[position]), position + 1
