"""Formats that no draft defines and that are in wide use, each as its own project defines it.

Patterns of ECMA 262 that the whole string must match.
"""

from __future__ import annotations


def semver() -> str:
    """A version of Semantic Versioning 2.0.0, by its own grammar."""
    number, word = "(?:0|[1-9][0-9]*)", "[0-9A-Za-z-]+"
    part = f"(?:{number}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
    return rf"{number}\.{number}\.{number}(?:-{part}(?:\.{part})*)?(?:\+{word}(?:\.{word})*)?"


def cidr() -> str:
    """A block of IPv4 addresses in the notation of RFC 4632, section 3.1."""
    octet = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
    return rf"{octet}(?:\.{octet}){{3}}/(?:3[0-2]|[12]?[0-9])"


def country_code() -> str:
    """The form of a code of two letters of ISO 3166-1."""
    return "[A-Z]{2}"


def path() -> str:
    """A path of POSIX (IEEE Std 1003.1, section 3.271): at least one character, none of them NUL."""
    return r"[^\0]+"


def html_selector() -> str:
    """The selector of a component as the tools of Angular check it: words of letters and digits, joined by hyphens."""
    word = "[a-zA-Z][.0-9a-zA-Z]*"
    return f"{word}(?::?-{word})*"


def ports() -> str:
    """A published port in a Compose file, in its short form: address, ports of host and container, protocol."""
    span = "[0-9]+(?:-[0-9]+)?"
    return rf"(?:(?:\[?[a-fA-F0-9.:]+\]?:)?(?:{span})?:)?{span}(?:/(?:udp|tcp|sctp))?"


def expose() -> str:
    """An exposed port in a Compose file: a port or a range of them, and a protocol."""
    return "[0-9]+(?:-[0-9]+)?(?:/[a-zA-Z]+)?"
