"""The drafts of JSON Schema: which keywords each has, and what the others are to it."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from referencing.jsonschema import DRAFT4, DRAFT6, DRAFT7, DRAFT201909, DRAFT202012

from ..errors import GrammarUnsupported


class Dialect(IntEnum):
    """A draft; later ones compare greater."""

    DRAFT4 = 4
    DRAFT6 = 6
    DRAFT7 = 7
    DRAFT2019_09 = 2019
    DRAFT2020_12 = 2020

    __hash__ = int.__hash__  # that of `Enum` is a call

    @property
    def specification(self) -> Any:
        """What `referencing` calls it."""
        return _SPECIFICATIONS[self]


_SPECIFICATIONS = {
    Dialect.DRAFT4: DRAFT4,
    Dialect.DRAFT6: DRAFT6,
    Dialect.DRAFT7: DRAFT7,
    Dialect.DRAFT2019_09: DRAFT201909,
    Dialect.DRAFT2020_12: DRAFT202012,
}
_URIS = {
    "json-schema.org/draft-04/schema": Dialect.DRAFT4,
    "json-schema.org/draft-06/schema": Dialect.DRAFT6,
    "json-schema.org/draft-07/schema": Dialect.DRAFT7,
    "json-schema.org/draft/2019-09/schema": Dialect.DRAFT2019_09,
    "json-schema.org/draft/2020-12/schema": Dialect.DRAFT2020_12,
    # Without a version it means the latest.
    "json-schema.org/schema": Dialect.DRAFT2020_12,
}

#: Keywords whose value is a schema, a list of schemas, and an object of schemas.
SCHEMA_KEYWORDS = (
    "not", "if", "then", "else", "additionalProperties", "propertyNames", "unevaluatedProperties", "items",
    "additionalItems", "contains", "unevaluatedItems",
)  # fmt: skip
LIST_KEYWORDS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
MAP_KEYWORDS = ("properties", "patternProperties", "dependentSchemas", "dependencies")
#: The other keywords that decide whether a value is valid.
VALUE_KEYWORDS = (
    "type", "enum", "const", "required", "minProperties", "maxProperties", "dependentRequired", "minContains",
    "maxContains", "minItems", "maxItems", "uniqueItems", "minLength", "maxLength", "pattern", "format", "minimum",
    "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "$ref", "$dynamicRef", "$recursiveRef",
)  # fmt: skip
KEYWORDS = frozenset((*SCHEMA_KEYWORDS, *LIST_KEYWORDS, *MAP_KEYWORDS, *VALUE_KEYWORDS))

#: Keywords that change what is valid in drafts before 4 or elsewhere, and mean nothing in the drafts supported.
FOREIGN_KEYWORDS = {
    "extends": "of draft 3: use allOf",
    "disallow": "of draft 3: use not",
    "divisibleBy": "of draft 3: use multipleOf",
}
#: The first draft with a keyword; before it, it is an unknown one, which means nothing.
_SINCE = {
    "const": Dialect.DRAFT6,
    "contains": Dialect.DRAFT6,
    "propertyNames": Dialect.DRAFT6,
    "if": Dialect.DRAFT7,
    "then": Dialect.DRAFT7,
    "else": Dialect.DRAFT7,
    "dependentRequired": Dialect.DRAFT2019_09,
    "dependentSchemas": Dialect.DRAFT2019_09,
    "minContains": Dialect.DRAFT2019_09,
    "maxContains": Dialect.DRAFT2019_09,
    "unevaluatedItems": Dialect.DRAFT2019_09,
    "unevaluatedProperties": Dialect.DRAFT2019_09,
    "$recursiveRef": Dialect.DRAFT2019_09,
    "prefixItems": Dialect.DRAFT2020_12,
    "$dynamicRef": Dialect.DRAFT2020_12,
}
#: The last draft with a keyword that later ones dropped or renamed.
_UNTIL = {"$recursiveRef": Dialect.DRAFT2019_09}


def has_keyword(dialect: Dialect, keyword: str) -> bool:
    """Whether `keyword` decides what is valid in `dialect`.

    `dependencies`, and `items` with `additionalItems` for tuples, are also read where a draft has other words for them:
    who writes them there means them.
    """
    return (
        keyword in KEYWORDS
        and dialect >= _SINCE.get(keyword, dialect)
        and dialect <= _UNTIL.get(keyword, Dialect.DRAFT2020_12)
    )


#: The keywords of each draft that decide what is valid.
KEYWORDS_OF = {dialect: frozenset(key for key in KEYWORDS if has_keyword(dialect, key)) for dialect in Dialect}


def dialect_of(uri: Any, place: str) -> Dialect:
    """The dialect that ``$schema`` names. Raises `GrammarUnsupported`."""
    if isinstance(uri, str):
        found = _URIS.get(uri.removeprefix("http://").removeprefix("https://").rstrip("#"))
        if found is not None:
            return found
    raise GrammarUnsupported(f"$schema {uri!r} is none of the drafts 4, 6, 7, 2019-09 and 2020-12", place)
