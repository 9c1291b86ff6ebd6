"""Large schemas: what alternatives multiply to, many patterns, many definitions. Counted, not timed."""

from __future__ import annotations

import random
from typing import Any

import pytest
from json_schema_oracles import Language, Validator, canonical, language, orders, random_text

import stepmask
from stepmask.grammar.json_schema.emptiness import Emptiness
from stepmask.grammar.json_schema.name_classes import name_classes
from stepmask.grammar.json_schema.patterns import matches
from stepmask.grammar.limits import Limits

PATTERNS = ("^a", "b$", "^[ab]*$", "a.b", "^(a|b1)", "^ab$", "^b", "c", "^(?!a)", "^x-", "^x-y", "^$")
NAMES = ("", "a", "b", "ab", "b1", "a1b", "abc", "x-", "x-y", "xx", "bab", "c", "é")


@pytest.mark.parametrize("seed", range(60))
def test_each_name_is_in_one_class(seed: int) -> None:
    rng = random.Random(seed)
    patterns = rng.sample(PATTERNS, rng.randint(1, 6))
    classes = name_classes(patterns, Limits())
    assert classes is not None
    for name in NAMES:
        found = {pattern for pattern in patterns if matches(pattern, name)}
        of = [one for one in classes if one.matched <= found and one.unmatched.isdisjoint(found)]
        assert len(of) == 1 and of[0].matched == found, (patterns, name)


def test_patterns_that_exclude_each_other_are_a_class_each() -> None:
    patterns = [f"^prefix_{i}_(en|nl)$" for i in range(30)]
    classes = name_classes(patterns, Limits())
    assert classes is not None and len(classes) == len(patterns) + 1


def test_patterns_that_overlap_in_all_ways_are_too_many() -> None:
    assert name_classes([f"{letter}" for letter in "abcdefghijkl"], Limits()) is None
    with pytest.raises(stepmask.GrammarTooLarge, match="12 patterns"):
        language({"patternProperties": {letter: {"minimum": i} for i, letter in enumerate("abcdefghijkl")}})


def test_thirty_patterns_sort_the_names_of_an_object() -> None:
    kinds = ("integer", "string", "boolean")
    schema = {
        "patternProperties": {f"^name:{i}:(en|nl)$": {"type": kinds[i % 3]} for i in range(30)},
        "additionalProperties": {"type": "null"},
    }
    found, validator = language(schema), Validator(schema)
    for name in ("name:0:en", "name:7:nl", "name:29:en", "name:29:", "other"):
        for value in (1, "a", True, None):
            text = canonical({name: value})
            assert found.has(text) == validator.is_valid(text), text


# --------------------------------------------------------------------------------- alternatives that are not exclusive
def _variants(count: int, **more: Any) -> list[dict[str, Any]]:
    """Object schemas that differ in the value of a property that need not be there, and in what else they have."""
    return [
        {
            "type": "object",
            "properties": {"kind": {"const": f"k{i}"}, "a": {"type": "integer"}, f"b{i % 4}": {"type": "string"}},
            **more,
        }
        for i in range(count)
    ]


OVERLAPPING: dict[str, Any] = {
    "a tag that need not be there": {"oneOf": _variants(12)},
    "closed": {"oneOf": _variants(12, additionalProperties=False)},
    "required one by one": {
        "oneOf": [
            {"type": "object", "properties": {f"p{i}": {"type": "integer"}}, "required": [f"p{i}"]} for i in range(9)
        ]
    },
    "not": {"type": "object", "allOf": [{"not": one} for one in _variants(9)]},
    "if and then": {
        "type": "object",
        "properties": {"kind": {"enum": [f"k{i}" for i in range(10)]}},
        "allOf": [
            {"if": {"properties": {"kind": {"const": f"k{i}"}}}, "then": {"required": [f"p{i}"], "minProperties": 0}}
            for i in range(10)
        ],
    },
    "tags of which some are shared": {
        "oneOf": [
            {"properties": {"kind": {"enum": kinds}, "a": {"type": kind}}, "required": ["kind"]}
            for kinds in (["k1"], ["k3"], ["k9", "k1"], ["k3"])
            for kind in ("integer", "string")
        ]
        + [{"properties": {"kind": {"type": "null"}}, "required": ["x"]}, {"required": ["p1"]}]
    },
    "patterns in some": {
        "oneOf": [
            {"type": "object", "patternProperties": {f"^[a-{letter}]": {"type": kind}}, "required": [letter]}
            for letter in "bcdef"
            for kind in ("integer", "string")
        ]
    },
}


def _near(rng: random.Random) -> dict[str, Any]:
    names = ["kind", "a", "b0", "b1", "b2", "p1", "p8", "x", "c", "f"]
    values = [1, "a", "k1", "k3", "k9", None]
    return {name: rng.choice(values) for name in rng.sample(names, rng.randint(0, 4))}


@pytest.mark.parametrize("name", OVERLAPPING)
def test_alternatives_that_overlap(name: str) -> None:
    schema = OVERLAPPING[name]
    found, validator, rng = Language(schema), Validator(schema), random.Random(1)
    seen = set()
    for _ in range(300):
        value = _near(rng)
        is_valid = validator.is_valid(canonical(value))
        seen.add(is_valid)
        # Names that are not declared have their places behind the others.
        assert any(found.has(canonical(one)) for one in orders(value, 30)) == is_valid, value
    assert seen == {True, False}
    for _ in range(20):
        assert validator.is_valid_whichever(random_text(found, rng, rng.randint(0, 40)))


class Counted:
    """Counts the calls of a method."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self.calls = 0
        method = getattr(owner, name)

        def counted(*arguments: Any) -> Any:
            self.calls += 1
            return method(*arguments)

        monkeypatch.setattr(owner, name, counted)


def test_what_is_required_by_many_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"p{i}" for i in range(8)]
    levels = 5
    definitions: dict[str, Any] = {f"level{levels}": {"type": "string", "maxLength": 3}}
    for i in range(levels):
        definitions[f"level{i}"] = {
            "type": "object",
            "properties": {name: {"$ref": f"#/$defs/level{i + 1}"} for name in names},
            "required": names,
        }
    counted = Counted(monkeypatch, Emptiness, "is_contradictory")
    stepmask.json_schema({"$ref": "#/$defs/level0", "$defs": definitions})
    assert 0 < counted.calls < 5 * levels  # eight times as many at each level where answers are not remembered


def test_what_needs_itself_is_empty_whatever_was_asked_before() -> None:
    """An answer that hangs on another question is not remembered as if it did not."""
    definitions: dict[str, Any] = {
        "a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/b"}}, "required": ["b"]},
        "b": {"anyOf": [{"$ref": "#/$defs/c"}, {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}},
                                                "required": ["a"]}]},
        "c": {"type": "integer", "minimum": 3, "maximum": 2},
    }  # fmt: skip
    for order in ("abc", "cba", "bac"):
        schema = {"properties": {name: {"$ref": f"#/$defs/{name}"} for name in order}, "$defs": definitions}
        found = language(schema)
        assert found.has("{}") and not any(found.has(f'{{"{name}": {{}}}}') for name in order)
        assert not found.has('{"c": 2}') and not found.has('{"b": 3}')


@pytest.mark.parametrize("count", [20, 120])
def test_branches_with_a_tag_meet_only_those_that_share_it(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    branches = [
        {"properties": {"tag": {"enum": [f"t{i}", f"t{i + 1}"]}, "a": {"minimum": i}}, "required": ["tag"]}
        for i in range(0, 2 * count, 2)
    ]
    branches[-1]["properties"]["tag"] = {"const": "t1"}  # type: ignore[index]
    schema = {"oneOf": branches}
    counted = Counted(monkeypatch, Emptiness, "is_empty_kind")
    found = language(schema)
    assert counted.calls < 40 * count  # and not the square of it, for each kind of value
    assert found.has('{"tag": "t0", "a": 0}') and not found.has('{"tag": "t0", "a": -1}')
    assert found.has(f'{{"tag": "t1", "a": {2 * count - 3}}}') and not found.has(f'{{"tag": "t1", "a": {2 * count}}}')
    # What none of the branches asks anything of satisfies all of them.
    assert not any(found.has(text) for text in ("1", '"t0"', "[]", "null", "{}"))


def test_what_would_take_too_long_is_refused() -> None:
    schema = {"oneOf": _variants(200)}
    schema["oneOf"] = [
        {**one, "properties": {**one["properties"], f"c{i}": {"type": "string"}}}
        for i, one in enumerate(schema["oneOf"])
    ]
    with pytest.raises(stepmask.GrammarTooLarge, match="depend on each other"):
        language(schema)


def test_strings_whose_alternatives_multiply() -> None:
    """Nine to the third power of ways, were they multiplied out."""
    groups = [[{"pattern": f"{first}{second}"} for second in "abc"] for first in "abc"]
    schema = {
        "type": "string",
        "maxLength": 12,
        "allOf": [{"anyOf": [*group, {"minLength": 11}]} for group in groups * 2],
    }
    found, validator, rng = language(schema), Validator(schema), random.Random(1)
    for _ in range(300):
        text = canonical("".join(rng.choice("abc") for _ in range(rng.randint(0, 13))))
        assert found.has(text) == validator.is_valid(text), text


def test_a_union_of_listed_values_is_a_list() -> None:
    values = [*range(50), *(f"v{i}" for i in range(50)), None, True, 2.5]
    anyof = {"anyOf": [{"const": value} for value in values] + [{"type": "string", "pattern": "^w"}]}
    oneof = {"oneOf": [{"enum": [value, i % 7]} for i, value in enumerate(values)]}
    whole = {
        "oneOf": [{"enum": [1, 2, 2.5], "type": "integer"}, {"const": 1.0}, {"$ref": "#/$defs/a"}],
        "$defs": {"a": {"enum": ["a", 3]}},
    }
    for schema in (anyof, oneof, whole, {"not": oneof}, {"not": anyof}):
        found, validator = language(schema), Validator(schema)
        for value in [*values, 51, 3.5, False, "w", "x", "a", [], {}]:
            text = canonical(value)
            assert found.has(text) == validator.is_valid(text), (schema, text)


# ------------------------------------------------------------------------------------------------------------ documents
def resources(count: int, types: int) -> dict[str, Any]:
    """A document of the shape of FHIR's: resources told apart by a tag, types that refer to each other, patterns."""
    rng = random.Random(1)
    plain = {
        "id": {"type": "string", "pattern": "^[A-Za-z0-9\\-\\.]{1,64}$"},
        "code": {"type": "string", "pattern": "^[^\\s]+(\\s[^\\s]+)*$"},
        "decimal": {"type": "number"},
        "flag": {"type": "boolean"},
        "html": {},
    }
    definitions: dict[str, Any] = dict(plain)
    names = [f"Type{i}" for i in range(types)]
    tags = [f"Resource{i}" for i in range(count)]

    def one() -> dict[str, Any]:
        chosen = rng.random()
        inner: dict[str, Any] = {"$ref": "#/definitions/" + rng.choice([*plain, *names])}
        if chosen < 0.1:
            inner = {"enum": [f"code-{rng.randint(0, 99)}" for _ in range(rng.randint(2, 9))]}
        elif chosen < 0.13:
            inner = {"$ref": "#/definitions/ResourceList"}
        return {"type": "array", "items": inner} if rng.random() < 0.3 else inner

    for name in (*names, *tags):
        properties = {"resourceType": {"const": name}} if name in tags else {}
        properties |= {"id": {"$ref": "#/definitions/id"}}
        for i in sorted(rng.sample(range(60), rng.randint(3, 20))):
            properties |= {f"property{i}": one(), f"_property{i}": {"$ref": "#/definitions/Type0"}}
        definitions[name] = {"properties": properties, "additionalProperties": False}
        if name in tags:
            definitions[name]["required"] = ["resourceType"]
    definitions["ResourceList"] = {"oneOf": [{"$ref": f"#/definitions/{tag}"} for tag in tags]}
    return {
        "$schema": "http://json-schema.org/draft-06/schema#",
        "oneOf": [{"$ref": f"#/definitions/{tag}"} for tag in tags],
        "definitions": definitions,
    }


def test_a_document_of_the_shape_of_fhir() -> None:
    schema = resources(30, 100)
    found, validator, rng = language(schema), Validator(schema), random.Random(2)
    for _ in range(10):
        assert validator.is_valid_whichever(random_text(found, rng, rng.randint(0, 200)))
    assert found.has('{"resourceType": "Resource7"}') and not found.has('{"resourceType": "Resource99"}')
    assert not found.has('{"id": "a"}')


def test_two_thousand_optional_properties_whose_names_begin_alike() -> None:
    names = [f"property_{i}" for i in range(2000)]
    found = language({"properties": {name: {"type": "integer"} for name in names}, "additionalProperties": False})
    assert found.has(canonical(dict.fromkeys(names, 1))) and found.has('{"property_7": 1, "property_1999": 2}')
    assert not found.has('{"property_1999": 1, "property_7": 2}') and not found.has('{"property_2000": 1}')
