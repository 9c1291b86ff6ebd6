"""Grammars as bytes: expressions flattened, children before parents, so that depth costs no recursion."""

from __future__ import annotations

import pickle
from typing import Any

from ...grammar.expression import Expression, Grammar

#: Kinds of a field's value.
_PLAIN, _NODE, _NODES = range(3)


def encode_grammar(grammar: Grammar) -> bytes:
    """The grammar as bytes, for `decode_grammar`. Nodes that are used in several places stay shared."""
    numbers: dict[int, int] = {}  # id of a node, all of which `grammar` keeps alive -> its place in `nodes`
    nodes: list[tuple[type[Expression], dict[str, tuple[int, Any]]]] = []
    for root in grammar.rules.values():
        work = [root]
        while work:
            node = work[-1]
            if id(node) in numbers:
                work.pop()
                continue
            missing = [child for child in _children(node) if id(child) not in numbers]
            if missing:
                work.extend(reversed(missing))
                continue
            work.pop()
            numbers[id(node)] = len(nodes)
            nodes.append((type(node), {name: _encoded(value, numbers) for name, value in vars(node).items()}))
    rules = {name: numbers[id(node)] for name, node in grammar.rules.items()}
    return pickle.dumps((grammar.kind, grammar.text, rules, grammar.start, dict(grammar.options), nodes), 5)


def decode_grammar(data: bytes | memoryview) -> Grammar:
    """What `encode_grammar` made. The bytes must come from there: they are a pickle."""
    kind, text, rules, start, options, entries = pickle.loads(data)
    nodes: list[Expression] = []
    for node_class, fields in entries:
        nodes.append(node_class(**{name: _decoded(value, nodes) for name, value in fields.items()}))
    return Grammar(kind, text, {name: nodes[number] for name, number in rules.items()}, start, options)


def _children(node: Expression) -> list[Expression]:
    found: list[Expression] = []
    for value in vars(node).values():
        if isinstance(value, Expression):
            found.append(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Expression):
            found.extend(value)
    return found


def _encoded(value: Any, numbers: dict[int, int]) -> tuple[int, Any]:
    if isinstance(value, Expression):
        return _NODE, numbers[id(value)]
    if isinstance(value, tuple) and value and isinstance(value[0], Expression):
        return _NODES, [numbers[id(child)] for child in value]
    return _PLAIN, value


def _decoded(value: tuple[int, Any], nodes: list[Expression]) -> Any:
    kind, content = value
    if kind == _NODE:
        return nodes[content]
    return tuple(nodes[number] for number in content) if kind == _NODES else content
