"""One grammar within another: its rules renamed apart, its anchors confined to its own text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from .errors import GrammarUnsupported
from .expression import (
    EMPTY,
    Alternation,
    Complement,
    EndAnchor,
    Expression,
    Grammar,
    Intersection,
    Reference,
    Sequence,
    StartAnchor,
    Token,
)
from .simplify import CONTEXTUAL, children, contains, place_of, with_children

#: Nodes within nodes through which an anchor at an edge is looked for; one further in is confined instead.
_EDGE_LEVELS = 50


def embed(grammar: Grammar, prefix: str) -> tuple[dict[str, Expression], str]:
    """The rules that `grammar` needs, named ``prefix.name``, and the name of its start rule among them.

    Anchors and lookaheads speak of the whole text. Here they go on to speak of the text that `grammar` itself matches:
    those at its edges always hold and are left out, and around any others the whole becomes an intersection of one
    operand, which is a text of its own. Raises `GrammarUnsupported` where that is not possible because the grammar
    is recursive or names tokens.
    """
    names = _reachable(grammar.rules, grammar.start)
    rules = {name: grammar.rules[name] for name in names}
    start = f"{prefix}.{grammar.start}"
    if any(_is_contextual(rule) for rule in rules.values()):
        return {start: _confined(_inlined(grammar, names))}, start

    def rename(node: Expression) -> Expression:
        return replace(node, rule=f"{prefix}.{node.rule}") if isinstance(node, Reference) else node

    return {f"{prefix}.{name}": _mapped(rule, rename) for name, rule in rules.items()}, start


def _reachable(rules: Mapping[str, Expression], start: str) -> list[str]:
    """`start` and the rules that it leads to. Those that do not exist are left to the compiler, which names them."""
    found = dict.fromkeys([start] if start in rules else [])
    queue = list(found)
    for name in queue:  # grows while it is read
        for used in _references(rules[name]):
            if used in rules and used not in found:
                found[used] = None
                queue.append(used)
    return queue


def _references(node: Expression) -> list[str]:
    found: dict[str, None] = {}
    stack, seen = [node], set()
    while stack:
        at = stack.pop()
        if isinstance(at, Reference):
            found[at.rule] = None
        if id(at) not in seen:
            seen.add(id(at))
            stack.extend(reversed(children(at)))
    return list(found)


def _is_contextual(node: Expression) -> bool:
    """Whether an anchor or lookahead in `node` looks at the text around `node`."""
    stack, seen = [node], set()
    while stack:
        at = stack.pop()
        if isinstance(at, CONTEXTUAL):
            return True
        if id(at) not in seen and not isinstance(at, Intersection | Complement):
            seen.add(id(at))
            stack.extend(children(at))
    return False


def _mapped(root: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """`root` with every leaf changed. Shared nodes stay shared; without recursion, as nodes may be nested deeply."""
    done: dict[int, Expression] = {}
    stack = [root]
    while stack:
        at = stack[-1]
        inner = children(at)
        waiting = [child for child in inner if id(child) not in done]
        if id(at) in done:
            stack.pop()
        elif waiting:
            stack.extend(waiting)
        else:
            stack.pop()
            parts = tuple(done[id(child)] for child in inner)
            same = all(part is child for part, child in zip(parts, inner, strict=True))
            done[id(at)] = change(at) if not inner else at if same else with_children(at, parts)
    return done[id(root)]


def _inlined(grammar: Grammar, names: list[str]) -> Expression:
    """The start rule with every reference replaced by its rule. Raises `GrammarUnsupported`."""
    done: dict[str, Expression] = {}
    waiting = {name: {used for used in _references(grammar.rules[name]) if used in grammar.rules} for name in names}
    while grammar.start not in done:
        ready = [name for name in names if name not in done and waiting[name] <= done.keys()]
        if not ready:
            raise _unsupported(grammar, "a recursive grammar")
        for name in ready:
            done[name] = _mapped(
                grammar.rules[name],
                lambda node: done.get(node.rule, node) if isinstance(node, Reference) else node,
            )
    if contains(done[grammar.start], Token):
        raise _unsupported(grammar, "a grammar that names tokens")
    return done[grammar.start]


def _unsupported(grammar: Grammar, what: str) -> GrammarUnsupported:
    place = next(
        (
            place_of(node.source)
            for rule in grammar.rules.values()
            for node in _walk(rule)
            if isinstance(node, CONTEXTUAL)
        ),
        None,
    )
    return GrammarUnsupported(f"anchors and lookaheads in {what} cannot be confined to a part of the text", place)


def _walk(root: Expression) -> list[Expression]:
    stack, seen = [root], {id(root)}
    for at in stack:  # grows while it is read
        for child in children(at):
            if id(child) not in seen:
                seen.add(id(child))
                stack.append(child)
    return stack


def _confined(node: Expression) -> Expression:
    node = _without_edge(_without_edge(node, StartAnchor, _EDGE_LEVELS), EndAnchor, _EDGE_LEVELS)
    return Intersection((node,), source=node.source) if _is_contextual(node) else node


def _without_edge(node: Expression, kind: type[Expression], levels: int) -> Expression:
    """`node` less the anchors of `kind` at its own edge, the first one for start anchors, where they always hold."""
    if isinstance(node, kind):
        return EMPTY
    if levels and isinstance(node, Alternation):
        return replace(node, options=tuple(_without_edge(option, kind, levels - 1) for option in node.options))
    if levels and isinstance(node, Sequence):
        parts = list(node.parts)
        numbers = range(len(parts))
        for number in numbers if kind is StartAnchor else reversed(numbers):
            parts[number] = _without_edge(parts[number], kind, levels - 1)
            if parts[number] != EMPTY:
                break
        return replace(node, parts=tuple(parts))
    return node
