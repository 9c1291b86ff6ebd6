"""The grammars of bench/masks.py, each with texts it accepts.

The patterns mean the same to Python's `re` and to all libraries compared (`[0-9]` rather than `\\d`, for one, which
some read as ASCII and some as Unicode); where a library does not take one, its row says so.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Case:
    """One grammar: `options` (a choice), `pattern` (a regular expression), or `ebnf` and `lark`, which say the same.

    `family` groups the report.
    """

    name: str
    family: str
    texts: tuple[str, ...]
    pattern: str = ""
    options: tuple[str, ...] = field(default=(), repr=False)
    ebnf: str = field(default="", repr=False)
    lark: str = field(default="", repr=False)


_TEXT = "the river runs past old mills where nobody has ground any corn since the railway came to town"
_WORDS = _TEXT.split(" ")
_PROSE = " ".join(_WORDS[i * 7 % len(_WORDS)] for i in range(40))
_RUSSIAN = "Съешь ещё этих мягких французских булок да выпей же чаю".replace("ё", "е")


def _products(count: int) -> tuple[str, ...]:
    """`count` different product names, the same in every run."""
    generator = random.Random(20)
    syllables = "al ben cor dan el fi gor hal in jo kar lum mir nor ol pra quil ros sen tor ul ver wex yor zan"
    names: dict[str, None] = {}
    while len(names) < count:
        word = "".join(generator.choices(syllables.split(" "), k=generator.randint(2, 4))).capitalize()
        names[f"{word} {generator.choice(['Pro', 'Mini', 'Max', 'Lite', 'S', 'XL'])} {generator.randint(1, 99)}"] = None
    return tuple(names)


def _regex(name: str, family: str, pattern: str, *texts: str) -> Case:
    return Case(name, family, texts, pattern=pattern)


_PRODUCTS = _products(5000)

CASES: tuple[Case, ...] = (
    _regex("date", "narrow", r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])", "2025-11-29", "1987-02-07"),
    _regex("phone", "narrow", r"\+?[0-9]{1,3}[ -]?\(?[0-9]{2,4}\)?[ -]?[0-9]{3,4}[ -]?[0-9]{3,4}", "+1 (555) 123-4567"),
    _regex(
        "ipv4", "narrow", r"((25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])",
        "192.168.10.254", "8.8.8.8",
    ),
    _regex("uuid", "narrow", r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "3f2504e0-4f89-11d3-9a0c-0305e82c3301"),
    Case("yes/no", "narrow", ("yes", "no"), options=("yes", "no")),
    _regex("email", "wide", r"[a-z0-9._%+-]+@[a-z0-9-]+(\.[a-z0-9-]+)*\.[a-z]{2,8}", "jane.doe+lists@mail.example.org"),
    _regex("csv line", "wide", r"[^,\n]+(,[^,\n]+){2,5}", "Smith,Jane,42,Rue de la Paix 7,Paris", "a,b c,d"),
    _regex("quoted", "wide", r'"([^"\\\x00-\x1f]|\\["\\/bfnrt])*"', f'"{_PROSE[:90]}\\n \\"quoted\\" {_PROSE[:30]}"'),
    _regex("lines", "wide", r"(- [^\n]+\n){1,20}", f"- {_PROSE[:50]}\n- milk, bread\n- {_PROSE[60:110]}\n"),
    _regex("words", "wide", r"[A-Za-z]+( [A-Za-z]+)*", _PROSE[:150]),
    _regex("Cyrillic", "Unicode", r"[А-Яа-я]+( [А-Яа-я]+)*", _RUSSIAN),
    _regex("CJK", "Unicode", r"[一-鿿]{1,40}", "北京是中华人民共和国的首都", "東京都庁舎"),
    _regex("letters", "Unicode", r"\p{L}+( \p{L}+)*", f"Grüße aus Köln {_RUSSIAN} 北京"),
    _regex("not a", "long repeat", r"[^a]{1,5000}", _PROSE.replace("a", "o"), "零 Über 12.50 €\n"),
    _regex("any", "long repeat", r".{0,10000}", _PROSE),
    _regex("word", "long repeat", r"\w{1,1000}", "_".join(_WORDS)),
    _regex("identifier", "long repeat", r"[0-9a-zA-Z_-]{1,255}", "-".join(_WORDS)),
    _regex("200 words", "long repeat", r"(\S+\s+){0,199}\S+", _PROSE),
    Case("20 labels", "choice", _PRODUCTS[7:20:6], options=_PRODUCTS[:20]),
    Case("5,000 names", "choice", _PRODUCTS[11:5000:700], options=_PRODUCTS),
)  # fmt: skip


def check() -> None:
    """Every text belongs to its grammar, by Python's `re` where that knows the pattern."""
    for case in CASES:
        for text in case.texts:
            if case.options:
                assert text in case.options, (case.name, text)
            elif r"\p" not in case.pattern:
                assert re.fullmatch(case.pattern, text), (case.name, text)
