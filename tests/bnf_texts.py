"""Random grammars, written as GBNF or EBNF in ways drawn by hypothesis, and what languages have in common."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from earley import Earley
from hypothesis import strategies as st

from stepmask.grammar.expression import (
    Alternation,
    Bytes,
    Characters,
    Expression,
    Reference,
    Repeat,
    Sequence,
)

#: Characters that the random grammars are about: plain, special in strings or classes, of several bytes.
ALPHABET = 'ab0"\\]-^\né😀'
#: Short texts over some of them, for comparing languages.
TEXTS = ["".join(text) for length in range(4) for text in itertools.product('ab"\n', repeat=length)] + [
    "".join(text) for text in itertools.product(ALPHABET, repeat=2)
]


def characters(chosen: Iterable[str], negated: bool) -> Characters:
    """A class, with its complement found by hand."""
    points = sorted(map(ord, chosen))
    if not negated:
        return Characters(tuple((point, point) for point in points))
    borders = [-1, *(point for point in points if point < 0xD800), 0xD800]
    above = [0xDFFF, *(point for point in points if point > 0xDFFF), 0x110000]
    gaps = [*itertools.pairwise(borders), *itertools.pairwise(above)]
    return Characters(tuple((low + 1, high - 1) for low, high in gaps if low + 1 < high))


def _extend(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    parts = st.lists(inner, max_size=3).map(tuple)
    bounds = st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (2, 3), (0, 2), (2, None), (0, 0), (1, 1)])
    repeated = st.builds(lambda body, bound: Repeat(body, *bound), inner, bounds)
    options = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.builds(Sequence, parts) | st.builds(Alternation, options) | repeated


_leaves = (
    st.builds(lambda text: Bytes(text.encode()), st.text(ALPHABET, max_size=2))
    | st.builds(characters, st.sets(st.sampled_from(ALPHABET), min_size=1, max_size=4), st.booleans())
    | st.sampled_from([Reference("root"), Reference("other"), Reference("x-1")])
)
_expressions = st.recursive(_leaves, _extend, max_leaves=6)
#: Rules `root`, `other` and `x-1`.
random_rules = st.fixed_dictionaries({"root": _expressions, "other": _expressions, "x-1": _expressions})


def children(node: Expression) -> tuple[Expression, ...]:
    """What `node` is made of."""
    if isinstance(node, Repeat):
        return (node.body,)
    return node.parts if isinstance(node, Sequence) else node.options if isinstance(node, Alternation) else ()


class Writer:
    """Writes expressions as text; where there is a choice, `draw` makes it."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any], dialect: str) -> None:
        self.draw = draw
        self.gbnf = dialect == "gbnf"

    def one_of(self, *options: str) -> str:
        return self.draw(st.sampled_from(options))

    def grammar(self, rules: Mapping[str, Expression]) -> str:
        lines = [self.one_of("", "# c\n", "\n \n")]
        for name, body in rules.items():
            after = self.one_of(" ", "\n", " # ::= |\n")
            lines.append(f"{name} ::={after}{self.choices(body, nested=False)}{self.one_of('', ' ')}")
            lines.append(self.one_of("\n", "\n", "\r\n", " # x\n", "\n\n\t"))
        return "".join(lines)

    def blank(self, nested: bool) -> str:
        line_ends = ["\n", " # )\n "] if nested or not self.gbnf else []
        return self.one_of(" ", "  ", "\t", *line_ends)

    def choices(self, node: Expression, nested: bool) -> str:
        if not isinstance(node, Alternation):
            return self.sequence(node, nested)
        written = self.sequence(node.options[0], nested)
        for option in node.options[1:]:
            written += self.blank(nested) + "|" + self.one_of("", " ", "\n", " #\n") + self.sequence(option, nested)
        return written

    def sequence(self, node: Expression, nested: bool) -> str:
        if isinstance(node, Sequence) and node.parts:
            return "".join(self.item(part, nested) + self.blank(nested) for part in node.parts)
        if node == Sequence(()) and self.gbnf and nested:
            return self.one_of("", " ", "()")
        return self.item(node, nested)

    def item(self, node: Expression, nested: bool, repeatable: bool = False) -> str:
        if isinstance(node, Bytes):
            return '"' + "".join(self.character(c, in_class=False) for c in node.text.decode()) + '"'
        if isinstance(node, Characters):
            return self.character_class(node)
        if isinstance(node, Reference):
            return node.rule
        if isinstance(node, Repeat) and (self.gbnf or not repeatable):
            body = self.item(node.body, nested, repeatable=True)
            return body + self.one_of("", " ") + self.operator(node.minimum, node.maximum)
        if node == Sequence(()):
            return self.one_of('""', "()", "( )")
        return f"({self.one_of('', ' ', chr(10))}{self.choices(node, nested=True)})"

    def operator(self, minimum: int, maximum: int | None) -> str:
        signs = {(0, None): ["*"], (1, None): ["+"], (0, 1): ["?"]}.get((minimum, maximum), [])
        if maximum is None:
            signs = [*signs, f"{{{minimum},}}", f"{{ {minimum} , }}"]
        else:
            signs = [*signs, f"{{{minimum},{maximum}}}"] + [f"{{{minimum}}}"] * (minimum == maximum)
        return self.one_of(*signs)

    def character(self, character: str, in_class: bool) -> str:
        special = {'"': ['\\"'], "\\": ["\\\\"], "\n": ["\\n"], "]": ["]"], "-": ["-"], "^": ["^"]}
        if in_class:
            special |= {'"': ['"', '\\"'], "]": ["\\]"], "-": ["\\-"], "^": ["\\u005E"]}
        if self.gbnf:
            special["\n"] = ["\\n", "\n"]
        spellings = list(special.get(character, [character]))
        point = ord(character)
        # XGrammar's \x takes as many digits as there are, so that what follows matters.
        spellings += [f"\\x{point:02X}"] * (self.gbnf and point < 256)
        spellings += [f"\\u{point:04x}"] * (point < 0x10000) + [f"\\U{point:08X}"]
        return self.one_of(*spellings)

    def character_class(self, node: Characters) -> str:
        listed = [chr(low) for low, high in node.ranges if low == high]
        negated = len(listed) < len(node.ranges)
        if negated:
            listed = [c for c in ALPHABET if not any(low <= ord(c) <= high for low, high in node.ranges)]
        written = "".join(self.character(c, in_class=True) for c in self.draw(st.permutations(listed)))
        if self.draw(st.booleans()):
            first = self.draw(st.sampled_from(listed))
            written += f"{self.character(first, in_class=True)}-{self.character(first, in_class=True)}"
        return f"[{'^' * negated}{written}]"


def verdicts(rules: Mapping[str, Expression], texts: Iterable[str], start: str = "root") -> list[tuple[bool, int]]:
    """For each text whether it is in the language, and how many of its bytes keep it alive (-1: nothing does)."""
    oracle = Earley(rules, start)
    found = []
    for text in texts:
        state, alive = oracle.start(), -1
        for byte in text.encode():
            alive += state is not None
            state = state and oracle.step(state, byte)
        found.append((state is not None and state.complete, alive + (state is not None)))
    return found
