"""The formats of JSON Schema as languages of code points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from ..expression import Expression


@dataclass(frozen=True)
class Format:
    """A format: where it is defined, and what it matches. `drafts` are those of JSON Schema that know it."""

    name: str
    drafts: frozenset[str]
    note: str
    build: Callable[[], Expression]

    @cached_property
    def expression(self) -> Expression:
        """The strings of the format, as code points."""
        return self.build()


#: All formats that are enforced, by name.
FORMATS: Mapping[str, Format] = MappingProxyType({})
