"""The formats of JSON Schema as languages of code points: the registry.

Each is written as a pattern of ECMA 262 that the whole string must match. Where a standard is regular, all of it is
there. Notes say what is left out, which is only ever strings that are valid: what is not regular, or would be out of
all proportion in states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

from ..expression import Alternation, Complement, Expression, Intersection, Repeat, Sequence, Source
from ..limits import Limits
from ..regex_ecma import EcmaParser
from ..regex_syntax import UNICODE
from ..simplify import Simplifier
from . import formats_net, formats_other, formats_regex, formats_text, formats_time

#: Drafts of JSON Schema, oldest first.
DRAFTS = ("draft4", "draft6", "draft7", "draft2019-09", "draft2020-12")


_Pattern = Callable[[], str]


class _FormatParser(EcmaParser):
    """Reads the pattern of a format: places are that of the format, not in its pattern."""

    name = ""

    def source(self, start: int, end: int) -> Source:
        return Source(self.pattern[start:end], f"format {self.name}")


@dataclass(frozen=True)
class Format:
    """A format: what it matches, the `drafts` of JSON Schema that define it, and a `note` for the documentation.

    `pattern` is of the whole string, and `exclusion`, where there is one, of strings that are left out.
    """

    name: str
    pattern: _Pattern
    drafts: tuple[str, ...]
    note: str
    exclusion: _Pattern | None = None

    @cached_property
    def expression(self) -> Expression:
        """The strings of the format, as code points; equal parts are one object."""
        found = self._read(self.pattern())
        if self.exclusion is not None:
            found = Intersection((found, Complement(self._read(self.exclusion()))))
        return _shared(Simplifier({}, Limits()).simplify(found), {})

    def _read(self, pattern: str) -> Expression:
        parser = _FormatParser(pattern, UNICODE, Limits())
        parser.name = self.name
        return parser.parse()


def _shared(node: Expression, known: dict[Expression, Expression]) -> Expression:
    """`node` with one object for equal parts, so that whatever goes through it later does each once."""
    if node in known:
        return known[node]
    result = node
    if isinstance(node, Sequence):
        result = replace(node, parts=tuple(_shared(part, known) for part in node.parts))
    elif isinstance(node, Alternation):
        result = replace(node, options=tuple(_shared(option, known) for option in node.options))
    elif isinstance(node, Repeat):
        result = replace(node, body=_shared(node.body, known))
    elif isinstance(node, Intersection):
        result = replace(node, operands=tuple(_shared(operand, known) for operand in node.operands))
    elif isinstance(node, Complement):
        result = replace(node, operand=_shared(node.operand, known))
    known[node] = result
    return result


def _formats() -> Mapping[str, Format]:
    found: dict[str, Format] = {}

    def add(name: str, pattern: _Pattern, since: str, note: str, without: _Pattern | None = None) -> None:
        found[name] = Format(name, pattern, DRAFTS[DRAFTS.index(since) :], note, without)

    add("date-time", formats_time.date_time, "draft4", "RFC 3339, section 5.6. " + formats_time.LEAP_SECONDS)
    add("date", formats_time.date, "draft7", "RFC 3339, full-date, with the days of each month and leap years")
    add("time", formats_time.time, "draft7", "RFC 3339, full-time: with an offset. " + formats_time.LEAP_SECONDS)
    add("duration", formats_time.duration, "draft2019-09", "RFC 3339, appendix A, in upper case")
    add("email", formats_net.email, "draft4", "RFC 5321, Mailbox. " + formats_net.MAILBOX)
    add("idn-email", formats_net.idn_email, "draft7", "RFC 6531, Mailbox. " + formats_net.IDN_MAILBOX)
    add(
        "hostname",
        formats_net.hostname,
        "draft4",
        "RFC 1123, section 2.1. " + formats_net.HOSTNAME,
        formats_net.encoded_hostname,
    )
    add("ipv4", formats_net.ipv4, "draft4", "RFC 2673, section 3.2: four decimal numbers, without leading zeros")
    add("ipv6", formats_net.ipv6, "draft4", "RFC 4291, section 2.2, without zones and prefixes")
    add("uri", formats_net.uri, "draft4", "RFC 3986, URI")
    add("uri-reference", formats_net.uri_reference, "draft6", "RFC 3986, URI-reference")
    add("iri", formats_net.iri, "draft7", "RFC 3987, IRI, without the formatting characters of its section 4.1")
    add("iri-reference", formats_net.iri_reference, "draft7", "RFC 3987, IRI-reference, otherwise as iri")
    add("uuid", formats_text.uuid, "draft2019-09", "RFC 4122, section 3, of any version and variant")
    add("json-pointer", formats_text.json_pointer, "draft6", "RFC 6901, section 3: the form as a string")
    add("relative-json-pointer", formats_text.relative_json_pointer, "draft7", formats_text.RELATIVE_POINTER)
    add("uri-template", formats_text.uri_template, "draft6", "RFC 6570, section 2. " + formats_text.TEMPLATE)
    add("regex", formats_regex.regex, "draft7", formats_regex.NOTE)
    for name, pattern in (
        ("semver", formats_other.semver),
        ("cidr", formats_other.cidr),
        ("country-code", formats_other.country_code),
        ("path", formats_other.path),
        ("html-selector", formats_other.html_selector),
        ("ports", formats_other.ports),
        ("expose", formats_other.expose),
    ):
        found[name] = Format(name, pattern, (), f"Of no draft. {(pattern.__doc__ or '').rstrip('.')}")
    return MappingProxyType(found)


#: All formats that are enforced, by name.
FORMATS: Mapping[str, Format] = _formats()

#: Formats of JSON Schema that are not enforced, and why: they are refused by name.
REFUSED_FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "idn-hostname": (
            "whether a label is valid (RFC 5891) depends on the length of its Punycode form and on normalisation, "
            "which no automaton of a sensible size can say; use hostname, or a pattern"
        ),
    }
)

_OPENAPI = "OpenAPI Format Registry"
_DRAFT_3 = "draft 3 of JSON Schema"
_OPENAPI_NAMES = (
    "base64url", "binary", "byte", "char", "commonmark", "date-time-local", "decimal", "decimal128", "double",
    "double-int", "float", "html", "http-date", "int8", "int16", "int32", "int64", "media-range", "password",
    "sf-binary", "sf-boolean", "sf-decimal", "sf-integer", "sf-string", "sf-token", "time-local", "uint8", "uint16",
    "uint32", "uint64", "unixtime",
)  # fmt: skip
#: Formats with a meaning elsewhere that JSON Schema does not know, so that to it they are annotations, and where from.
ANNOTATION_FORMATS: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(_OPENAPI_NAMES, _OPENAPI)
    | dict.fromkeys(["color", "host-name", "ip-address", "phone", "style", "utc-millisec"], _DRAFT_3)
)
