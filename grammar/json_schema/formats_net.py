"""Addresses, names of hosts, and identifiers of resources as patterns."""

from __future__ import annotations

MAILBOX = "Of address literals those of IPv4 and IPv6, the only tags that are registered. No limits of length"
IDN_MAILBOX = (
    "Labels of the domain are of ASCII letters, digits and hyphens and of other letters, marks and digits but capital "
    "ones; whether they are valid U-labels (RFC 5891) is not checked"
)
HOSTNAME = (
    "Labels that begin with xn-- are left out: whether they are valid (RFC 5891) no automaton can say. Of the names of "
    "at most 253 characters those of up to 3 labels of any length, 4 with 61 characters in the last one, 7 of up to 35 "
    "characters, or 15 of up to 15"
)

_HEXADECIMAL = "[0-9A-Fa-f]"
_OCTET = "(?:[0-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])"
#: One to four digits; written out, as such short runs are not worth a counter each.
_GROUP = f"{_HEXADECIMAL}(?:{_HEXADECIMAL}(?:{_HEXADECIMAL}{_HEXADECIMAL}?)?)?"
PERCENT = f"%{_HEXADECIMAL}{{2}}"
#: ucschar of RFC 3987, less the formatting characters that its section 4.1 forbids.
UCS = (
    "\\xA0-\\u200D\\u2010-\\u2029\\u202F-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF"
    + "".join(f"\\u{{{plane:X}0000}}-\\u{{{plane:X}FFFD}}" for plane in range(1, 0xE))
    + "\\u{E1000}-\\u{EFFFD}"
)
PRIVATE = "\\uE000-\\uF8FF\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}"


def ipv4() -> str:
    """Four numbers from 0 to 255."""
    return f"{_OCTET}(?:\\.{_OCTET}){{3}}"


def ipv6(least_zeros: int = 1) -> str:
    """IPv6address of RFC 3986, appendix A; ``::`` stands for `least_zeros` groups at least."""
    pairs = f"(?:{_GROUP}:)"
    whole, begun = [f"{pairs}{{7}}{_GROUP}"], [f"{pairs}{{6}}"]  # without an IPv4 address at the end, and before one
    for before in range(9 - least_zeros):
        # So many groups before `::`, and at most the others behind it.
        prefix = f"{pairs}{{{before - 1}}}{_GROUP}::" if before else "::"
        room = 8 - least_zeros - before
        whole.append(f"{prefix}(?:{pairs}{{0,{room - 1}}}{_GROUP})?" if room else prefix)
        if room >= 2:
            begun.append(f"{prefix}{pairs}{{0,{room - 2}}}")
    return f"(?:{'|'.join(whole)}|(?:{'|'.join(begun)}){ipv4()})"


def hostname() -> str:
    """LDH labels that begin and end with a letter or digit, at most 63 characters each."""

    def label(longest: int) -> str:
        return f"[A-Za-z0-9](?:[A-Za-z0-9-]{{0,{longest - 2}}}[A-Za-z0-9])?"

    return "|".join(
        f"(?:{label(longest)}\\.){{0,{count - 1}}}{label(last)}"
        for count, longest, last in ((3, 63, 63), (4, 63, 61), (7, 35, 35), (15, 15, 15))
    )


def encoded_hostname() -> str:
    """Names with a label that begins as A-labels do."""
    return "(?:[^]*\\.)?[Xx][Nn]--[^]*"


def _mailbox(atom: str, quoted: str, label: str) -> str:
    local = f'(?:{atom}+(?:\\.{atom}+)*|"(?:{quoted}|\\\\[ -~])*")'
    literal = f"\\[(?:{ipv4()}|[Ii][Pp][Vv]6:{ipv6(least_zeros=2)})\\]"
    return f"{local}@(?:{label}(?:\\.{label})*|{literal})"


_ATEXT = "A-Za-z0-9!#$%&'*+/=?^_`{|}~\\-"


def email() -> str:
    """Mailbox of RFC 5321, section 4.1.2."""
    return _mailbox(f"[{_ATEXT}]", "[ !#-\\[\\]-~]", "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?")


def idn_email() -> str:
    """Mailbox of RFC 5321 as RFC 6531, section 3.3, extends it."""
    other = "\\u0080-\\u{10FFFF}"
    letters = "A-Za-z0-9\\p{Ll}\\p{Lo}\\p{Lm}\\p{Nd}"
    label = f"[{letters}](?:[{letters}\\p{{Mn}}\\p{{Mc}}-]*[{letters}\\p{{Mn}}\\p{{Mc}}])?"
    return _mailbox(f"[{_ATEXT}{other}]", f"[ !#-\\[\\]-~{other}]", label)


# Identifiers of resources (RFC 3986, appendix A; RFC 3987, section 2.2, for the letters beyond ASCII)


def _identifier(letters: str, private: str, *, relative: bool) -> str:
    plain = f"A-Za-z0-9._~!$&'()*+,;=\\-{letters}"

    def pieces(more: str, count: str) -> str:
        return f"(?:[{plain}{more}]|{PERCENT}){count}"

    segment, begun = pieces(":@", "*"), pieces(":@", "+")
    future = "[Vv][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:\\-]+"
    host = f"(?:\\[(?:{ipv6()}|{future})\\]|{pieces('', '*')})"
    authority = f"//(?:{pieces(':', '*')}@)?{host}(?::[0-9]*)?(?:/{segment})*"
    absolute = f"/(?:{begun}(?:/{segment})*)?"
    tail = f"(?:\\?{pieces(':@/?' + private, '*')})?(?:#{pieces(':@/?', '*')})?"
    scheme, more = "[A-Za-z][A-Za-z0-9+.\\-]*:", f"(?:/{segment})*"
    if not relative:
        return f"{scheme}(?:{authority}|{absolute}|{begun}{more}|){tail}"
    # Without a scheme there is no colon in the first segment.
    return f"(?:(?:{scheme})?(?:{authority}|{absolute}|)|{scheme}{begun}{more}|{pieces('@', '+')}{more}){tail}"


def uri() -> str:
    """URI: with a scheme."""
    return _identifier("", "", relative=False)


def uri_reference() -> str:
    """URI-reference."""
    return _identifier("", "", relative=True)


def iri() -> str:
    """IRI: with a scheme."""
    return _identifier(UCS, PRIVATE, relative=False)


def iri_reference() -> str:
    """IRI-reference."""
    return _identifier(UCS, PRIVATE, relative=True)
