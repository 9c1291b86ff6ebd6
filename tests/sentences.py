"""Random texts of a grammar of rules, and texts near them."""

from __future__ import annotations

import random
from collections.abc import Mapping

from stepmask.grammar.expression import (
    Alternation,
    Bytes,
    Characters,
    Expression,
    Intersection,
    Reference,
    Repeat,
    Sequence,
)

_FAR = 10**9


class Sentences:
    """Writes texts of `start`; past a number of rules within rules it takes the shortest way out.

    Of an intersection it only knows the first operand: with one, a text may be of the grammar or not.
    """

    def __init__(self, rules: Mapping[str, Expression], start: str, deepest: int = 12) -> None:
        self._rules = rules
        self._start = start
        self._deepest = deepest
        self._depth = dict.fromkeys(rules, _FAR)
        changed = True
        while changed:
            changed = False
            for name, node in rules.items():
                depth = 1 + self._least(node)
                if depth < self._depth[name]:
                    self._depth[name] = depth
                    changed = True

    def _least(self, node: Expression) -> int:
        if isinstance(node, Sequence):
            return max(map(self._least, node.parts), default=0)
        if isinstance(node, Alternation):
            return min(map(self._least, node.options), default=_FAR)
        if isinstance(node, Repeat):
            return self._least(node.body) if node.minimum else 0
        if isinstance(node, Intersection):
            return self._least(node.operands[0])
        return self._depth[node.rule] if isinstance(node, Reference) else 0

    def text(self, chance: random.Random) -> str:
        """One text."""
        return self._write(Reference(self._start), 0, chance)

    def _write(self, node: Expression, depth: int, chance: random.Random) -> str:
        if isinstance(node, Bytes):
            return node.text.decode()
        if isinstance(node, Characters):
            low, high = chance.choice(node.ranges)
            return chr(min(chance.choice([low, high, chance.randint(low, min(high, low + 60))]), 0xFFFF))
        if isinstance(node, Reference):
            return self._write(self._rules[node.rule], depth + 1, chance)
        if isinstance(node, Intersection):
            return self._write(node.operands[0], depth, chance)
        if isinstance(node, Sequence):
            return "".join([self._write(part, depth, chance) for part in node.parts])
        late = depth + chance.randint(0, 3) > self._deepest
        if isinstance(node, Alternation):
            options = [option for option in node.options if self._least(option) < _FAR]
            if late:
                least = min(map(self._least, options))
                options = [option for option in options if self._least(option) == least]
            return self._write(chance.choice(options), depth, chance)
        assert isinstance(node, Repeat), node
        most = node.minimum if late or self._least(node.body) >= _FAR else node.minimum + chance.choice([0, 0, 1, 1, 2])
        count = most if node.maximum is None else min(most, node.maximum)
        return "".join([self._write(node.body, depth, chance) for _ in range(count)])


def near(text: str, chance: random.Random, letters: str) -> str:
    """`text` with a few characters taken out, put in, doubled or exchanged."""
    for _ in range(chance.choice([1, 1, 2])):
        at = chance.randint(0, len(text))
        kind = chance.randint(0, 3)
        if kind == 0:
            text = text[:at] + text[at + 1 :]
        elif kind == 1:
            text = text[:at] + chance.choice(letters + text) + text[at:]
        elif kind == 2:
            text = text[:at] + chance.choice(letters + text) + text[at + 1 :]
        else:
            end = min(len(text), at + chance.randint(1, 4))
            text = text[:at] + text[at:end] * 2 + text[end:]
    return text
