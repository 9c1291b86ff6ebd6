"""UUIDs, JSON pointers and templates of URIs as patterns."""

from __future__ import annotations

from .formats_net import PERCENT, PRIVATE, UCS

RELATIVE_POINTER = (
    "Relative JSON Pointers, draft-handrews-01, section 3; without the index manipulation that draft-bhutton-00 adds"
)
TEMPLATE = "Without the operators that its section 2.2 reserves"


def uuid() -> str:
    """Hexadecimal digits of either case in five groups."""
    four = 4 * "[0-9A-Fa-f]"  # written out, as such short runs are not worth a counter each
    return f"{2 * four}(?:-{four}){{3}}-{3 * four}"


def json_pointer() -> str:
    """Reference tokens, each behind a slash; ``~`` only as ``~0`` or ``~1``."""
    return "(?:/(?:[^~/]|~[01])*)*"


def relative_json_pointer() -> str:
    """How many levels up, then a JSON Pointer or ``#``."""
    return f"(?:0|[1-9][0-9]*)(?:#|{json_pointer()})"


def uri_template() -> str:
    """Literals and expressions; an apostrophe is a literal (erratum 6937 to RFC 6570)."""
    literal = f"(?:[!#$&-;=?-\\[\\]_a-z~{UCS}{PRIVATE}]|{PERCENT})"
    character = f"(?:[A-Za-z0-9_]|{PERCENT})"
    variable = f"{character}(?:\\.?{character})*(?::[1-9][0-9]{{0,3}}|\\*)?"
    return f"(?:{literal}|\\{{[+#./;?&]?{variable}(?:,{variable})*\\}})*"
