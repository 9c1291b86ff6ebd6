r"""The format ``regex``: patterns of ECMA 262 (section 22.2.1, with the flag u), as far as an automaton can check them.

Left out is what no regular language has, or what needs names or large numbers compared; `NOTE` says what.
"""

from __future__ import annotations

NOTE = (
    "Patterns of ECMA 262 with the flag u, in which groups are nested at most 2 deep, and lookarounds hold no groups; "
    "without named groups, back-references, and \\0. Ends of ranges in classes are letters or digits of one kind, or "
    "characters of different kinds, in order; {n,m} has an n of one digit"
)
_DEPTH = 2
_SYNTAX = "^$\\.*+?()[]{}|/"
_HEXADECIMAL = "[0-9A-Fa-f]"
_CATEGORIES = "C[cfno]?|L[lmotuC]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?"
#: Kinds of characters, in the order of their code points, less those that must be escaped in a class and the hyphen.
_KINDS = ("\\0-,./", "0-9", ":-@", "A-Z", "\\[\\^_`", "a-z", "{-\\x7F", "\\x80-\\u{10FFFF}")


def _quoted(characters: str) -> str:
    return "".join(f"\\{character}" for character in characters)


def _escape(more: str) -> str:
    """An escape that means one character or a set of them."""
    codes = (
        f"x{_HEXADECIMAL}{{2}}|u(?:{_HEXADECIMAL}{{4}}|\\{{0*(?:{_HEXADECIMAL}{{1,5}}|10{_HEXADECIMAL}{{4}})\\}})"
        f"|c[A-Za-z]|[pP]\\{{(?:{_CATEGORIES})\\}}"
    )
    return f"\\\\(?:[dDwWsSfnrtv{_quoted(_SYNTAX)}{more}]|{codes})"


def _class() -> str:
    """A character class: a hyphen stands first, last or in a range."""
    ranges = [f"[{kind}]-[{''.join(_KINDS[i + 1 :])}]" for i, kind in enumerate(_KINDS[:-1])]
    for kind in ("09", "AZ", "az"):
        ranges += [f"{chr(low)}-[{chr(low)}-{kind[1]}]" for low in range(ord(kind[0]), ord(kind[1]) + 1)]
    return f"\\[\\^?-?(?:{'|'.join(ranges)}|[{''.join(_KINDS)}]|{_escape('b' + _quoted('-'))})*-?\\]"


def _bounds() -> str:
    r"""``{n}``, ``{n,}``, and ``{n,m}`` where n is one digit and m is not less."""
    ordered = "|".join(f"{least},(?:[{least}-9]|[1-9][0-9]+)" for least in range(10))
    return f"\\{{(?:[0-9]+,?|{ordered})\\}}"


def regex() -> str:
    """A disjunction with groups in it. Alternatives may be empty, so that bars may stand anywhere."""
    atom = f"[^{_quoted(_SYNTAX)}]|\\.|/|{_escape('')}|{_class()}"
    quantifier = f"(?:(?:[*+?]|{_bounds()})\\??)?"
    flat = inner = f"(?:(?:{atom}){quantifier}|[\\^$|]|\\\\[bB])*"
    for _ in range(_DEPTH):
        inner = f"(?:(?:{atom}|\\((?:\\?:)?{inner}\\)){quantifier}|[\\^$|]|\\\\[bB]|\\(\\?<?[=!]{flat}\\))*"
    return inner
