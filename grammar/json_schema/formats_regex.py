r"""The format ``regex``: patterns of ECMA 262, as far as an automaton can check them.

Left out is what no regular language has or what needs names or numbers compared: groups nested deeper than `_DEPTH`,
named groups and back-references, ranges whose ends are both beyond ASCII, and bounds other than those of `_bounds`.
"""

from __future__ import annotations

NOTE = (
    "Patterns of ECMA 262 with the flag u, in which groups are nested at most 3 deep; without named groups, "
    "back-references, ranges with both ends beyond ASCII, and lower bounds of repeats over 9 below an upper bound"
)
_DEPTH = 3
_SYNTAX = "^$\\.*+?()[]{}|/"
_HEXADECIMAL = "[0-9A-Fa-f]"
_CATEGORIES = "C[cfno]?|L[lmotuC]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?"


def _quoted(characters: str) -> str:
    return "".join(f"\\{character}" for character in characters)


def _escape(in_class: bool) -> str:
    """An escape that means one character or a set of them."""
    codes = (
        f"x{_HEXADECIMAL}{{2}}|u(?:{_HEXADECIMAL}{{4}}|\\{{0*(?:{_HEXADECIMAL}{{1,5}}|10{_HEXADECIMAL}{{4}})\\}})"
        f"|c[A-Za-z]|[pP]\\{{(?:{_CATEGORIES})\\}}"
    )
    return f"\\\\(?:[dDwWsSfnrtv{_quoted(_SYNTAX)}{'b' + _quoted('-') if in_class else ''}]|{codes})"


def _class() -> str:
    """A character class: a hyphen stands first, last or in a range, whose ends are in order."""
    plain = "[^\\]\\\\\\-]"
    # What must be escaped in a class, and the hyphen, are no end of a range here.
    ranges = "|".join(
        f"\\u{{{low:X}}}-[^\\0-\\u{{{low - 1:X}}}\\]\\\\\\-]" for low in range(0x20, 0x7F) if chr(low) not in "\\]-"
    )
    item = f"(?:{ranges}|{plain}|{_escape(True)})"
    return f"\\[\\^?-?{item}*-?\\]"


def _bounds() -> str:
    r"""``{n}``, ``{n,}``, and ``{n,m}`` where n is one digit and m is not less."""
    ordered = "|".join(f"{least},(?:[{least}-9]|[1-9][0-9]+)" for least in range(10))
    return f"\\{{(?:[0-9]+,?|{ordered})\\}}"


def regex() -> str:
    """A disjunction with groups in it."""
    quantifier = f"(?:(?:[*+?]|{_bounds()})\\??)?"
    atom = f"[^{_quoted(_SYNTAX)}]|/|\\.|{_escape(False)}|{_class()}"
    disjunction = ""
    for _ in range(_DEPTH + 1):
        group = f"|\\((?:\\?:)?{disjunction}\\)" if disjunction else ""
        look = f"|\\(\\?<?[=!]{disjunction}\\)" if disjunction else ""
        term = f"(?:(?:{atom}{group}){quantifier}|[\\^$]|\\\\[bB]{look})"
        disjunction = f"{term}*(?:\\|{term}*)*"
    return disjunction
