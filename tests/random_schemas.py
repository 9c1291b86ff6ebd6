"""Random JSON schemas of draft 2020-12 and values near them, both from a `random.Random`.

Schemas mix all keywords over few names, characters and numbers, so that they meet. They stay where the validators of
`jsonschema` say what the specification says: patterns mean the same to Python, and a reference that is not below
`properties`, `items` or the like leads to a later definition, so no validator runs for ever.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

KEYS = ("a", "b", "ab", "c", "é")
CHARACTERS = ("a", "b", "1", "é", "😀", '"', "\\", " ")
PATTERNS = ("^a", "b$", "^[ab]*$", "a.b", "^(a|b1)", "^.?$", "[^a]", "^[a-z]+$", "1|é")
KINDS = ("null", "boolean", "integer", "number", "string", "array", "object")
NUMBERS = (-2, -1, 0, 1, 2, 3, 10, 12, 0.5, 1.5, -0.1, 0.3, 2.0)
MULTIPLES = (1, 2, 3, 0.5, 0.1, 1.5, 5)
DEFINITIONS = ("d0", "d1", "d2")

#: Values that every schema is tried with; all kinds, sizes and keys that schemas speak of.
POOL: tuple[Any, ...] = (
    None, True, False, *NUMBERS, 4, 5, 6, 0.2, 2.5, 100, "", *KEYS, "a1", "aab", "b1", "1", "a b", 'a"', "\\", "😀",
    "😀a", "aaaa", [], [1], [None], ["a"], [1, 1], [1, 2], [1, 1.0], ["a", "b"], [True, 1], [1, "a", None], [[], []],
    [{}], [{"a": 1}], [1, 2, 3], ["a", "a", "b", 0], {}, {"a": 1}, {"a": "a"}, {"b": 1}, {"c": None}, {"ab": True},
    {"é": 2}, {"a": 1, "b": 2}, {"b": "b", "a": "a"}, {"a": 1, "c": 1}, {"a": None, "b": [], "c": {}}, {"a": {}},
    {"a": {"a": 1}}, {"a": {"b": {"a": {}}}}, {"a": [1]}, {"x": 1}, {"x": "a", "y": "b"}, {"a": 1, "x": 2},
    {"a": 1, "b": 1, "ab": 1, "c": 1},
    {"1": 1}, {"": 0}, {"b": {"a": [{}]}, "c": 0.5},
)  # fmt: skip


class Schemas:
    """Writes schemas. `recursive`: references may lead back; `supported` are the groups of keywords to use."""

    def __init__(self, rng: random.Random, *, deepest: int = 3, recursive: bool = True) -> None:
        self._rng = rng
        self._deepest = deepest
        self._recursive = recursive

    def document(self) -> Any:
        """A whole schema, definitions included."""
        rng = self._rng
        self._definitions = list(DEFINITIONS[: rng.choice((0, 0, 1, 2, 3))])
        schema = self._schema(self._deepest, -1)
        if self._definitions and isinstance(schema, dict):
            # A definition may refer on to later ones without anything between.
            schema["$defs"] = {
                name: self._schema(self._deepest - 1, at) for at, name in enumerate(self._definitions)
            }  # fmt: skip
        return schema

    def _schema(self, depth: int, at: int) -> Any:
        """A schema in definition `at` (-1: the root)."""
        rng = self._rng
        if rng.random() < 0.06:
            return rng.random() < 0.7
        kinds: list[Callable[[int, int], dict[str, Any]]] = [self._typed, self._named, self._string, self._number]
        if depth > 0:
            kinds += [self._array, self._object, self._object, self._object, self._applied]
            if self._definitions:
                kinds.append(self._reference)
        schema: dict[str, Any] = {}
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3)) if depth > 0 else 1):
            schema.update(rng.choice(kinds)(depth - 1, at))
        return schema

    def _inner(self, depth: int) -> Any:
        """A schema of a part of the value: any definition may be referred to."""
        return self._schema(depth, -1 if self._recursive else len(self._definitions))

    def _some(self, options: tuple[Any, ...], least: int = 0, most: int = 3) -> list[Any]:
        return self._rng.sample(options, min(len(options), self._rng.randint(least, most)))

    def _typed(self, depth: int, at: int) -> dict[str, Any]:
        rng = self._rng
        return {"type": rng.choice(KINDS) if rng.random() < 0.8 else self._some(KINDS, 1)}

    def _named(self, depth: int, at: int) -> dict[str, Any]:
        if self._rng.random() < 0.4:
            return {"const": self._rng.choice(POOL)}
        return {"enum": self._some(POOL, 1, 4)}

    def _string(self, depth: int, at: int) -> dict[str, Any]:
        rng = self._rng
        schema: dict[str, Any] = {}
        if rng.random() < 0.6:
            schema["minLength"] = rng.randint(0, 3)
        if rng.random() < 0.6:
            schema["maxLength"] = rng.randint(0, 4)
        if rng.random() < 0.5:
            schema["pattern"] = rng.choice(PATTERNS)
        return schema | ({"type": "string"} if rng.random() < 0.6 else {})

    def _number(self, depth: int, at: int) -> dict[str, Any]:
        rng = self._rng
        names = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        schema: dict[str, Any] = {name: rng.choice(NUMBERS) for name in self._some(names, 0, 2)}
        if rng.random() < 0.4:
            schema["multipleOf"] = rng.choice(MULTIPLES)
        return schema | ({"type": rng.choice(("integer", "number"))} if rng.random() < 0.6 else {})

    def _array(self, depth: int, at: int) -> dict[str, Any]:
        rng = self._rng
        schema: dict[str, Any] = {"type": "array"} if rng.random() < 0.7 else {}
        if rng.random() < 0.5:
            schema["items"] = self._inner(depth)
        if rng.random() < 0.3:
            schema["prefixItems"] = [self._inner(depth - 1) for _ in range(rng.randint(1, 2))]
        if rng.random() < 0.3:
            schema["minItems"] = rng.randint(0, 2)
        if rng.random() < 0.3:
            schema["maxItems"] = rng.randint(0, 3)
        if rng.random() < 0.25:
            schema["contains"] = self._inner(depth - 1)
            if rng.random() < 0.5:
                schema["minContains"] = rng.randint(0, 2)
            if rng.random() < 0.3:
                schema["maxContains"] = rng.randint(0, 2)
        if rng.random() < 0.1:
            schema["uniqueItems"] = True
            schema["items"] = {"enum": self._some(POOL, 1, 4)}
        if rng.random() < 0.08:
            schema["unevaluatedItems"] = rng.random() < 0.3 or self._inner(depth - 1)
        return schema

    def _object(self, depth: int, at: int) -> dict[str, Any]:
        rng = self._rng
        schema: dict[str, Any] = {"type": "object"} if rng.random() < 0.7 else {}
        if rng.random() < 0.8:
            schema["properties"] = {key: self._inner(depth) for key in self._some(KEYS)}
        if rng.random() < 0.5:
            schema["required"] = self._some(KEYS, 0, 2)
        if rng.random() < 0.5:
            schema["additionalProperties"] = False if rng.random() < 0.6 else self._inner(depth - 1)
        if rng.random() < 0.2:
            schema["patternProperties"] = {key: self._inner(depth - 1) for key in self._some(PATTERNS[:5], 1, 2)}
        if rng.random() < 0.12:
            schema["propertyNames"] = rng.choice(({"maxLength": 1}, {"pattern": "a"}, {"enum": ["a", "b", "x"]}, False))
        if rng.random() < 0.2:
            schema["minProperties"] = rng.randint(0, 2)
        if rng.random() < 0.2:
            schema["maxProperties"] = rng.randint(0, 3)
        if rng.random() < 0.15:
            schema["dependentRequired"] = {key: self._some(KEYS, 1, 2) for key in self._some(KEYS, 1, 2)}
        if rng.random() < 0.1:
            schema["dependentSchemas"] = {rng.choice(KEYS): self._schema(depth - 1, len(self._definitions))}
        if rng.random() < 0.08:
            schema["unevaluatedProperties"] = rng.random() < 0.2 and self._inner(depth - 1)
        return schema

    def _applied(self, depth: int, at: int) -> dict[str, Any]:
        rng = self._rng
        name = rng.choice(("allOf", "anyOf", "anyOf", "oneOf", "oneOf", "not", "not", "if", "nots"))
        if name == "not":
            return {"not": self._schema(depth, at)}
        if name == "nots":  # what must be wrong with a value may be wrong in one place of it
            return {"allOf": [{"not": self._schema(depth, at)} for _ in range(2)]}
        if name == "if":
            schema = {"if": self._schema(depth, at)}
            return schema | {word: self._schema(depth, at) for word in self._some(("then", "else"), 1, 2)}
        return {name: [self._schema(depth, at) for _ in range(rng.choice((1, 2, 2, 2, 3)))]}

    def _reference(self, depth: int, at: int) -> dict[str, Any]:
        later = self._definitions[at + 1 :]
        return {"$ref": f"#/$defs/{self._rng.choice(later)}"} if later else {}


class Values:
    """Writes values that a schema is likely to accept, and changes values a little."""

    def __init__(self, schema: Any, rng: random.Random) -> None:
        self._root = schema
        self._rng = rng

    def near(self) -> Any:
        """A value made after the schema."""
        return self._value(self._root, 4)

    def _value(self, schema: Any, depth: int) -> Any:
        rng = self._rng
        if not isinstance(schema, dict) or depth <= 0:
            return rng.choice(POOL[:40])
        merged = dict(schema)
        for _ in range(4):  # what applies to the same value is laid over it
            inner = self._applied(merged)
            if inner is None:
                break
            for key, value in inner.items():
                if key == "properties" and isinstance(merged.get(key), dict):
                    merged[key] = {**merged[key], **value}
                elif key == "required" and isinstance(merged.get(key), list):
                    merged[key] = [*merged[key], *value]
                else:
                    merged[key] = value
        return self._merged(merged, depth)

    def _applied(self, schema: dict[str, Any]) -> dict[str, Any] | None:
        rng = self._rng
        names = [name for name in ("$ref", "allOf", "anyOf", "oneOf", "then", "else") if name in schema]
        if not names:
            return None
        name = rng.choice(names)
        value = schema.pop(name)
        if name == "$ref":
            found = self._root.get("$defs", {}).get(value.rpartition("/")[2])
        else:
            found = rng.choice(value) if isinstance(value, list) else value
        return found if isinstance(found, dict) else None

    def _merged(self, schema: dict[str, Any], depth: int) -> Any:
        rng = self._rng
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return rng.choice(schema["enum"])
        kinds = schema.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else kinds
        hints = {
            "object": ("properties", "required", "patternProperties", "minProperties", "additionalProperties"),
            "array": ("items", "prefixItems", "contains", "minItems"),
            "string": ("pattern", "minLength", "maxLength"),
            "number": ("minimum", "maximum", "multipleOf", "exclusiveMinimum", "exclusiveMaximum"),
        }
        hinted = [kind for kind, words in hints.items() if any(word in schema for word in words)]
        kind = rng.choice(kinds or hinted or KINDS)
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            least = max(schema.get("minItems", 0), schema.get("minContains", 0))
            items = [self._value(one, depth - 1) for one in schema.get("prefixItems", ())]
            sources = [schema[name] for name in ("items", "contains") if name in schema]
            while len(items) < least or rng.random() < 0.4:
                items.append(self._value(rng.choice(sources or [True]), depth - 1))
            return items
        if kind == "string":
            length = rng.randint(
                schema.get("minLength", 0), max(schema.get("minLength", 0), schema.get("maxLength", 3))
            )
            return "".join(rng.choice(CHARACTERS) for _ in range(length))
        if kind in ("integer", "number"):
            step = schema.get("multipleOf", 1)
            return round(step * rng.randint(-3, 14), 6) if rng.random() < 0.8 else rng.choice(NUMBERS)
        return None if kind == "null" else rng.random() < 0.5

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        rng = self._rng
        properties = schema.get("properties", {})
        keys = [key for key in properties if rng.random() < 0.6] + list(schema.get("required", ()))
        while len(set(keys)) < schema.get("minProperties", 0) or rng.random() < 0.2:
            keys.append(rng.choice((*KEYS, "x", "y", "a1")))
        rest = schema.get("additionalProperties", True)
        return {key: self._value(properties.get(key, rest), depth - 1) for key in keys}

    def changed(self, value: Any) -> Any:
        """A value that differs in one place."""
        rng = self._rng
        if isinstance(value, dict) and value and rng.random() < 0.9:
            found = dict(value)
            key = rng.choice(list(found))
            kind = rng.randrange(4)
            if kind == 0:
                del found[key]
            elif kind == 1:
                found[rng.choice((*KEYS, "x"))] = rng.choice(POOL[:30])
            else:
                found[key] = self.changed(found[key])
            return found
        if isinstance(value, list) and value and rng.random() < 0.9:
            found_items = list(value)
            at = rng.randrange(len(found_items))
            kind = rng.randrange(4)
            if kind == 0:
                del found_items[at]
            elif kind == 1:
                found_items.insert(at, rng.choice(POOL[:30]))
            else:
                found_items[at] = self.changed(found_items[at])
            return found_items
        if isinstance(value, str) and rng.random() < 0.8:
            at = rng.randint(0, len(value))
            return value[:at] + rng.choice(("", *CHARACTERS)) + value[at + rng.randint(0, 1) :]
        if isinstance(value, (int, float)) and not isinstance(value, bool) and rng.random() < 0.8:
            return rng.choice((value + 1, -value, value / 2, value * 10, value - 0.1))
        return rng.choice(POOL)


# ------------------------------------------------------------------------------------------------------- older drafts

DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
}
_NEW_IN = {
    "draft2019-09": {"dependentSchemas", "dependentRequired", "minContains", "maxContains", "unevaluatedItems"}
    | {"unevaluatedProperties"},
    "draft7": {"if", "then", "else"},
    "draft6": {"const", "contains", "propertyNames"},
}


class _Lacking(Exception):
    """The draft has no word for it."""


def in_draft(schema: Any, draft: str) -> Any:
    """The schema in the words of an older draft, or None where that has none for it."""
    try:
        older = _older(schema, draft)
    except _Lacking:
        return None
    if not isinstance(older, dict):
        return older
    older = {"$schema": DRAFTS[draft], **older}
    if "$ref" in older and draft != "draft2019-09":  # what stands beside a reference would be ignored
        definitions = older.pop("definitions", {})
        rest = {key: value for key, value in older.items() if key not in ("$ref", "$schema")}
        older = {"$schema": DRAFTS[draft], "allOf": [{"$ref": older["$ref"]}, rest], "definitions": definitions}
    return older


def _older(schema: Any, draft: str) -> Any:
    if isinstance(schema, bool):
        if draft == "draft4":
            return {} if schema else {"not": {}}
        return schema
    names = list(DRAFTS)
    at = names.index(draft)
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "dependentRequired" and at < 3:
            found["dependencies"] = value
            continue
        if any(key in words and at < names.index(since) for since, words in _NEW_IN.items()):
            raise _Lacking(key)
        if key == "unevaluatedProperties" and "additionalProperties" in schema:
            raise _Lacking(key)  # jsonschema errs on the two together in 2019-09
        if key == "$defs" and at < 3:
            found["definitions"] = {name: _older(one, draft) for name, one in value.items()}
        elif key == "$ref" and at < 3:
            found["$ref"] = value.replace("$defs", "definitions")
        elif key in ("exclusiveMinimum", "exclusiveMaximum") and draft == "draft4":
            bound = key.replace("exclusiveM", "m")
            if bound in schema:
                raise _Lacking(key)
            found |= {bound: value, key: True}
        elif key == "items" and "prefixItems" in schema:
            found["additionalItems"] = _older(value, draft)
        elif key == "prefixItems":
            found["items"] = [_older(one, draft) for one in value]
        elif key in ("required", "enum") and not value and draft == "draft4":
            raise _Lacking(key)
        else:
            found[key] = _older_part(key, value, draft)
    if "$ref" in found and len(found) > 1 and at < 3 and "definitions" not in found:
        found = {"allOf": [{"$ref": found.pop("$ref")}, found]}
    return found


def _older_part(key: str, value: Any, draft: str) -> Any:
    if key in ("properties", "patternProperties", "dependentSchemas", "$defs"):
        return {name: _older(one, draft) for name, one in value.items()}
    if key in ("allOf", "anyOf", "oneOf"):
        return [_older(one, draft) for one in value]
    words = ("not", "if", "then", "else", "items", "contains", "additionalProperties", "propertyNames")
    return _older(value, draft) if key in (*words, "unevaluatedItems", "unevaluatedProperties") else value
