"""The ways in which JSON can write a string."""

from __future__ import annotations

import json
import random


def any_spelling(text: str, chance: random.Random, *, unicode_escapes: bool = True) -> str:
    """One of the ways to write each character of `text`, without quotes. Without `unicode_escapes` it must have one."""
    return "".join(_spelling(character, chance, unicode_escapes) for character in text)


def _spelling(character: str, chance: random.Random, unicode_escapes: bool) -> str:
    ways = [json.dumps(character, ensure_ascii=False)[1:-1]]
    if character == "/":
        ways.append("\\/")
    units = character.encode("utf-16-be", "surrogatepass").hex()
    digits = [chance.choice((digit, digit.upper())) for digit in units]
    ways.append("".join("\\u" + "".join(digits[i : i + 4]) for i in range(0, len(digits), 4)))
    return chance.choice([way for way in ways if unicode_escapes or not way.startswith("\\u")])
