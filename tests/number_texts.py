"""Texts of JSON numbers read by the compiled language of a constraint, byte by byte."""

from __future__ import annotations

from mask_sets import byte_vocabulary

import stepmask
from stepmask.grammar.expression import Grammar
from stepmask.grammar.json_schema.numbers import NumberConstraint, number_expression
from stepmask.masks.matcher import Matcher


def language(constraint: NumberConstraint, max_digits: int | None = 40) -> Matcher | None:
    """A matcher at its start; None where the constraint admits no number."""
    expression = number_expression(constraint, max_digits=max_digits)
    if expression is None:
        return None
    return Matcher(stepmask.compile(Grammar("number", "", {"start": expression}), byte_vocabulary()))


def takes(matcher: Matcher | None, text: str) -> bool:
    """Whether `text` is in the language."""
    if matcher is None:
        return False
    matcher.reset()
    return matcher.accept_bytes(text.encode()) and matcher.is_complete


def lives(matcher: Matcher, text: str) -> bool:
    """Whether some text of the language begins with `text`."""
    matcher.reset()
    return matcher.accept_bytes(text.encode())
