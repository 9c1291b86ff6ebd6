"""A reasoning section before the text that a grammar describes, as reasoning models write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .compose import embed
from .errors import GrammarSyntaxError
from .expression import EMPTY, Alternation, Expression, Grammar, Reference, Sequence
from .json_fields import literal
from .structural_formats import token_of
from .triggers import text_up_to, text_without


def reasoning(
    grammar: Grammar,
    begin: str | Mapping[str, Any] | None = "<think>",
    end: str | Mapping[str, Any] = "</think>",
    *,
    optional: bool = False,
) -> Grammar:
    """`grammar` after a reasoning section: `begin`, free text, `end`.

    A tag is text, or a special token by name or id: ``{"token": "<think>"}``. A model whose vocabulary has the tag as a
    special token writes that token, which is no text. The free text is any valid UTF-8 text; it ends where `end` is
    first complete. Text may hold more than the tag itself, as ``</think>`` and two newlines. `begin` None: the prompt
    has opened the section already. `optional`: the text may also begin with `grammar` at once.

    Raises `GrammarSyntaxError` for what is no tag, `GrammarUnsupported` for a grammar that cannot be embedded, and
    `ValueError` where the section is both open and optional.
    """
    if not isinstance(grammar, Grammar):
        raise TypeError(f"reasoning takes a grammar made by stepmask.regex, ..., not {type(grammar).__name__}")
    if begin is None and optional:
        raise ValueError("a section that the prompt has opened must be closed: it cannot be optional")
    parts: list[Expression] = []
    if begin is not None:
        parts.append(_tag(begin, "begin"))
    closing = _tag(end, "end")
    if isinstance(end, str):
        parts.append(text_up_to(end))
    else:
        parts += [text_without(()), closing]
    section: Expression = Sequence(tuple(parts))
    if optional:
        section = Alternation((section, EMPTY))
    rules, start = embed(grammar, "answer")
    text = f"{begin!r} ... {end!r}, then {grammar.kind}: {grammar.text}"
    whole = {"start": Sequence((section, Reference(start))), **rules}
    return Grammar("reasoning", text, whole, options=grammar.options, frames=grammar.frames)


def _tag(tag: str | Mapping[str, Any], place: str) -> Expression:
    if isinstance(tag, Mapping):
        return token_of(tag, place)
    if not isinstance(tag, str):
        raise TypeError(f"{place} is text or a token such as {{'token': '<think>'}}, not {type(tag).__name__}")
    if not tag:
        raise GrammarSyntaxError("a tag cannot be empty", place)
    return literal(tag, place)
