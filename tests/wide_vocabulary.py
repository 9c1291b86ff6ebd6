"""A vocabulary large enough for a character class to be worth its bitmaps."""

from __future__ import annotations

import random

from mask_sets import byte_vocabulary

#: Enough for a character class to be worth its bitmaps (`wide.MIN_CLASS_TOKENS`): words of several scripts, with and
#: without a space before them, punctuation, and parts of characters.
_RANDOM = random.Random(7)
_SCRIPTS = [
    "abcdefghijklmnopqrstuvwxyz",
    "ABCdef0123456789_-",
    "àéîöüß",
    "абвгде",
    "日本語一二",
    "🙂🙃",
    ' ,.:;"\\\n\t/',
]
_TEXTS = {
    _RANDOM.choice(["", " "]) + "".join(_RANDOM.choice(script) for _ in range(_RANDOM.randint(1, 6)))
    for script in _SCRIPTS * 4 + _SCRIPTS[:1] * 8
    for _ in range(150)
}
_MIXED = {"".join(_RANDOM.choice("".join(_SCRIPTS)) for _ in range(_RANDOM.randint(2, 5))) for _ in range(800)}
_WHOLE = sorted(text.encode() for text in _TEXTS | _MIXED)
_PARTS = {text[_RANDOM.randint(0, 2) : -_RANDOM.randint(1, 2)] for text in _RANDOM.sample(_WHOLE, 800)}
# A part of a character with something else after it is no text, whatever its other bytes are.
_BROKEN = {part + tail for part in _RANDOM.sample(sorted(_PARTS), 200) for tail in (b'"', b",", b" a", b"a")}
VOCABULARY = byte_vocabulary(*_WHOLE, *sorted((_PARTS | _BROKEN) - {b""}))
END = VOCABULARY.size - 1
