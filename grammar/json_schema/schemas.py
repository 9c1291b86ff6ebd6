"""Schemas as they are met: parsed, each with its place and its base URI, equal ones being one.

References are resolved by the `referencing` library, in the schema itself and in the documents of a registry that is
given; nothing is ever fetched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import urljoin

import referencing
import referencing.exceptions
from referencing.jsonschema import lookup_recursive_ref

from ..errors import GrammarSyntaxError, GrammarUnsupported
from .dialects import (
    FOREIGN_KEYWORDS,
    KEYWORDS,
    KEYWORDS_OF,
    LIST_KEYWORDS,
    MAP_KEYWORDS,
    SCHEMA_KEYWORDS,
    Dialect,
    dialect_of,
)

#: A schema by its number, and whether a value is to be valid against it or not to be.
Literal = tuple[int, bool]
#: A conjunction.
Literals = frozenset[Literal]

#: The schemas that everything and nothing is valid against have these numbers.
ANYTHING, NOTHING_VALID = 0, 1
ANY: Literals = frozenset()
NONE: Literals = frozenset({(NOTHING_VALID, True)})

#: What a schema means depends on these; what the value of each may be that schemas stand in.
_MEANT = {
    key: tuple(
        form
        for form, keys in (("map", MAP_KEYWORDS), ("list", LIST_KEYWORDS), ("schema", SCHEMA_KEYWORDS))
        if key in keys
    )
    for key in sorted(KEYWORDS | {"$id", "id", "$schema"})
}
_FOREIGN = frozenset(FOREIGN_KEYWORDS)


def parse_json(text: str) -> Any:
    """A JSON text with exact numbers. Raises `GrammarSyntaxError`."""
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_no_constant)
    except ValueError as error:
        raise GrammarSyntaxError(f"not a JSON text: {error}", "/") from None
    except RecursionError:
        raise GrammarSyntaxError("the JSON text is nested too deeply", "/") from None


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON number")


#: Where a schema stands: a JSON pointer, or the schema it is in and the path there.
Place = str | tuple["Schema", tuple[Any, ...]]


class Schema:
    """One schema: `value` is a boolean or an object, `pointer` where it stands first."""

    #: A JSON pointer.
    pointer: str

    def __init__(self, value: Any, place: Place, dialect: Dialect, resolver: Any, number: int) -> None:
        self.value = value
        self._place = place
        self.dialect = dialect
        self.resolver = resolver
        self.number = number
        #: The keywords that decide what is valid, in their order.
        self.keywords: dict[str, Any] = {} if isinstance(value, bool) else _keywords(value, dialect)
        #: For a schema that stands nowhere: it is valid where one of these is.
        self.options: tuple[Literal, ...] | None = None

    def __getattr__(self, name: str) -> Any:
        # It is made when it is first asked for; `functools.cached_property` takes a lock.
        if name != "pointer":
            raise AttributeError(name)
        found = self.__dict__[name] = _pointer(self._place)
        return found

    def place(self, *path: object) -> str:
        """The JSON pointer of a part."""
        return pointer_of(self.pointer, *path)


def _keywords(value: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    if "$ref" in value and dialect <= Dialect.DRAFT7:  # what stands beside it is ignored there
        return {"$ref": value["$ref"]}
    known = KEYWORDS_OF[dialect]
    found = {key: value[key] for key in value if key in known}
    if "type" in found:  # first, as it may settle all
        found = {"type": found.pop("type"), **found}
    return found


def pointer_of(base: str, *path: object) -> str:
    """A JSON pointer as a URI fragment with `path` added (RFC 6901)."""
    return "/".join([base, *[str(part).replace("~", "~0").replace("/", "~1") for part in path]])


class SchemaStore:
    """All schemas that one compilation comes upon, by number. Raises `GrammarError` for what is wrong with them."""

    def __init__(
        self, root: Any, registry: referencing.Registry[Any] | None, dialect: Dialect, text: str | None = None
    ) -> None:
        """`text`: `root` as JSON text with as few escapes as there may be, if that is known."""
        if registry is not None and not isinstance(registry, referencing.Registry):
            raise TypeError(f"registry must be a referencing.Registry, not {type(registry).__name__}")
        self._registry = registry if registry is not None else referencing.Registry()
        self.schemas: list[Schema] = []
        self._numbers: dict[Any, int] = {}
        self._contents: dict[int, Any] = {}
        #: Short stand-ins for the contents.
        self._content_numbers: dict[tuple[Any, ...], int] = {}
        self._kept: list[Any] = []
        self._children: dict[tuple[int, tuple[Any, ...]], Schema] = {}
        self._resolved: dict[tuple[int, str], Schema] = {}
        if isinstance(root, Mapping) and "$schema" in root:
            dialect = dialect_of(root["$schema"], "#/$schema")
        resource = dialect.specification.create_resource(root)
        identifier = resource.id() if _has_identifier(root) else None
        base = identifier or ""
        self._root, self._base = root, base
        self._registry = self._registry.with_resource(base, resource)
        #: Which schema a dynamic reference leads to depends on the resources passed on the way to it.
        self._is_dynamic = _mentions(root, text, ("$dynamicRef", "$recursiveRef")) or bool(len(self._registry) > 1)
        resolver = self._registry.resolver(base)
        for value in (True, False):
            self._add(value, "#", dialect, resolver, value)
        self.root = self._intern(root, "#", dialect, resolver)

    def __getitem__(self, number: int) -> Schema:
        return self.schemas[number]

    def literal(self, schema: Schema, positive: bool = True) -> Literal:
        """The literal of a schema; those of the boolean schemas are one each."""
        if schema.number <= NOTHING_VALID:
            return (ANYTHING if (schema.number == ANYTHING) == positive else NOTHING_VALID), True
        return schema.number, positive

    def child(self, schema: Schema, *path: Any) -> Schema:
        """The schema at `path` within `schema`."""
        key = schema.number, path
        found = self._children.get(key)
        if found is None:
            value = schema.value
            for part in path:
                value = value[part]
            dialect, resolver = schema.dialect, schema.resolver
            if _has_identifier(value):
                subresource = dialect.specification.create_resource(value)
                if subresource.id() is not None:
                    resolver = resolver.in_subresource(subresource)
            found = self._children[key] = self._intern(value, (schema, path), dialect, resolver)
        return found

    def derived(self, value: Any, schema: Schema) -> Schema:
        """A schema of the latest draft that stands for a part of `schema`; it refers to nothing."""
        return self._intern(value, schema.pointer, Dialect.DRAFT2020_12, schema.resolver)

    def either(self, options: Iterable[Literal]) -> Literal:
        """A schema that is valid where one of `options` is."""
        kept = tuple(dict.fromkeys(options))
        if len(kept) == 1:
            return kept[0]
        number = self._numbers.get(("either", kept))
        if number is None:
            first = self.schemas[kept[0][0]]
            number = self._add(("either", kept), first.pointer, first.dialect, first.resolver, {}).number
            self.schemas[number].options = kept
        return number, True

    def resolve(self, schema: Schema, keyword: str) -> Schema:
        """The schema that a reference keyword leads to. Raises `GrammarError`."""
        found = self._resolved.get((schema.number, keyword))
        if found is None:
            found = self._resolved[schema.number, keyword] = self._resolve(schema, keyword)
        return found

    def _resolve(self, schema: Schema, keyword: str) -> Schema:
        reference, place = schema.value[keyword], schema.place(keyword)
        if not isinstance(reference, str):
            raise GrammarSyntaxError(f"{keyword} must be a string", place)
        resolver = schema.resolver
        found = self._within_root(reference, resolver)
        if found is not None:
            return self._intern(found, reference, schema.dialect, resolver)
        try:
            if keyword == "$recursiveRef":
                resolved = lookup_recursive_ref(resolver)
            else:
                resolved = resolver.lookup(reference)
        except referencing.exceptions.Unresolvable:
            raise GrammarUnsupported(
                f"{keyword} {reference!r} leads nowhere: it is in no document that was given (references are never "
                "fetched; pass registry=...)",
                place,
            ) from None
        except RecursionError:
            raise GrammarUnsupported(f"{keyword} {reference!r} is nested too deeply", place) from None
        except Exception as error:  # a pointer into something that is no object or list, a URI that is none
            raise GrammarSyntaxError(f"{keyword} {reference!r} cannot be resolved: {error}", place) from None
        dialect = schema.dialect
        if not reference.startswith("#"):
            dialect = self._dialect_of(urljoin(resolver._base_uri, reference).partition("#")[0], dialect)
        pointer = reference if reference.startswith("#") else f"{reference}"
        return self._intern(resolved.contents, pointer, dialect, resolved.resolver)

    def _within_root(self, reference: str, resolver: Any) -> Any:
        """What a plain pointer from the root leads to, past no schema with a URI of its own; None: ask `referencing`.

        That takes some 50 us, and large documents have hundreds.
        """
        if self._is_dynamic or not reference.startswith("#/") or resolver._base_uri != self._base:
            return None
        if "~" in reference or "%" in reference:
            return None
        at = self._root
        for part in reference[2:].split("/"):
            if at is not self._root and _has_identifier(at):
                return None
            if not isinstance(at, Mapping) or part not in at:
                return None
            at = at[part]
        return None if _has_identifier(at) or not isinstance(at, (bool, Mapping)) else at

    def _dialect_of(self, uri: str, dialect: Dialect) -> Dialect:
        """The dialect of the document at `uri`."""
        try:
            contents = self._registry.get_or_retrieve(uri).value.contents
        except referencing.exceptions.Unretrievable:
            return dialect
        if isinstance(contents, Mapping) and "$schema" in contents:
            return dialect_of(contents["$schema"], f"{uri}#/$schema")
        return dialect

    # -------------------------------------------------------------------------------------------------- equal schemas
    def _intern(self, value: Any, place: Place, dialect: Dialect, resolver: Any) -> Schema:
        if not isinstance(value, (bool, dict, Mapping)):
            raise GrammarSyntaxError(f"a schema is an object or a boolean, not {_shown(value)}", _pointer(place))
        if not isinstance(value, bool) and not _FOREIGN.isdisjoint(value):
            keyword = next(keyword for keyword in FOREIGN_KEYWORDS if keyword in value)
            raise GrammarUnsupported(f"{keyword} is {FOREIGN_KEYWORDS[keyword]}", pointer_of(_pointer(place), keyword))
        content = self._content(value)
        if content is True or content is False:
            return self.schemas[ANYTHING if content else NOTHING_VALID]
        # A schema with references means what its base URI makes of them.
        key: Any = (content, dialect, resolver._base_uri)
        if self._is_dynamic:
            key = (*key, tuple(dict.fromkeys(uri for uri, _ in resolver.dynamic_scope())))
        number = self._numbers.get(key)
        if number is not None:
            return self.schemas[number]
        return self._add(key, place, dialect, resolver, value)

    def _add(self, key: Any, place: Place, dialect: Dialect, resolver: Any, value: Any) -> Schema:
        schema = Schema(value, place, dialect, resolver, len(self.schemas))
        self._numbers[key] = schema.number
        self.schemas.append(schema)
        return schema

    def _content(self, value: Any) -> Any:
        """What decides the meaning of a schema, hashable: equal contents are equal schemas (but for base URIs)."""
        if not isinstance(value, (dict, Mapping)):  # which a dict is, but asking whether it is one is quicker
            return value if isinstance(value, bool) else (repr(value),)
        found = self._contents.get(id(value))
        if found is None:
            parts: list[Any] = []
            content = self._content
            for key, item in value.items():
                form = _MEANT.get(key)
                if form is None:
                    continue
                inner: Any
                if isinstance(item, str):
                    parts += key, item
                    continue
                if "map" in form and isinstance(item, (dict, Mapping)):
                    inner = tuple([(name, content(part)) for name, part in item.items()])
                elif "list" in form and isinstance(item, list):
                    inner = tuple([content(part) for part in item])
                elif "schema" in form:
                    inner = content(item)
                else:
                    inner = (repr(item),)  # which no text is
                parts += key, inner
            numbers = self._content_numbers
            # From 2 on: 0 and 1 equal the boolean schemas.
            found = numbers.setdefault(tuple(parts), 2 + len(numbers)) if parts else True
            self._contents[id(value)] = found
            self._kept.append(value)  # so that no other object gets its id
        return found


def _has_identifier(value: Any) -> bool:
    """Whether a schema may have a URI of its own: not where `id` is something else, as under a misplaced keyword."""
    if not isinstance(value, (dict, Mapping)) or ("$id" not in value and "id" not in value):
        return False
    return isinstance(value.get("$id"), str) or isinstance(value.get("id"), str)


def _pointer(place: Place) -> str:
    """A place as a JSON pointer."""
    return place if isinstance(place, str) else place[0].place(*place[1])


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _mentions(value: Any, text: str | None, keywords: tuple[str, ...]) -> bool:
    if text is not None and not any(keyword in text for keyword in keywords):
        return False
    stack = [value]
    while stack:
        at = stack.pop()
        if isinstance(at, Mapping):
            if any(keyword in at for keyword in keywords):
                return True
            stack.extend(at.values())
        elif isinstance(at, list):
            stack.extend(at)
    return False
