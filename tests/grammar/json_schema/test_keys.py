"""Conditions on keys leave no dead ends: from every state that can be reached, some text goes on to an end."""

from __future__ import annotations

import random
from typing import Any

import pytest
from json_schema_oracles import Language, Validator, canonical, language, orders, random_text

import stepmask

ORDERS = ("declared", "any")
LETTERS = "abcdefgh"
ANY_VALUES: dict[str, Any] = {key: {"type": "integer"} for key in LETTERS}
#: Object schemas whose keys depend on each other.
CASES: dict[str, dict[str, Any]] = {
    "dependentRequired forwards and backwards": {
        "properties": ANY_VALUES,
        "dependentRequired": {"a": ["d"], "d": ["b"], "f": ["c", "h"], "h": ["a"]},
        "additionalProperties": False,
    },
    "dependentRequired in a circle, two keys at most": {
        "properties": ANY_VALUES,
        "dependentRequired": {"a": ["b"], "b": ["c"], "c": ["a"], "d": ["e"]},
        "maxProperties": 2,
        "additionalProperties": False,
    },
    "dependentRequired on keys that are not declared": {
        "properties": {"b": {"type": "integer"}},
        "dependentRequired": {"b": ["x", "y"], "x": ["b"], "z": ["y"]},
    },
    "maxProperties with required keys to come": {
        "properties": ANY_VALUES,
        "required": ["e", "h"],
        "maxProperties": 3,
    },
    "maxProperties with a required key that is not declared": {
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["z", "b"],
        "maxProperties": 2,
    },
    "maxProperties, required and dependentRequired": {
        "properties": ANY_VALUES,
        "required": ["h"],
        "dependentRequired": {"a": ["b", "c"], "b": ["g"]},
        "maxProperties": 4,
        "additionalProperties": False,
    },
    "anyOf of required lists": {
        "properties": ANY_VALUES,
        "anyOf": [{"required": ["a", "e"]}, {"required": ["b", "f"]}, {"required": ["d"]}],
        "maxProperties": 3,
        "additionalProperties": False,
    },
    "oneOf of required lists": {
        "properties": ANY_VALUES,
        "oneOf": [{"required": ["a"]}, {"required": ["c"]}, {"required": ["h", "g"]}],
        "additionalProperties": False,
    },
    "one of each of three pairs, one of them shared": {
        "properties": ANY_VALUES,
        "allOf": [
            {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"anyOf": [{"required": ["b"]}, {"required": ["c"]}, {"required": ["d"]}]},
            {"anyOf": [{"required": ["e"]}, {"required": ["f"]}]},
        ],
        "not": {"required": ["a", "e"]},
        "maxProperties": 3,
        "additionalProperties": False,
    },
    "not required": {"properties": ANY_VALUES, "not": {"required": ["a", "h"]}, "minProperties": 2},
    "minProperties of few closed keys": {
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "integer"}},
        "minProperties": 2,
        "additionalProperties": False,
    },
    "minProperties of additional keys": {"additionalProperties": {"type": "integer"}, "minProperties": 3},
    "minProperties and pattern keys": {
        "patternProperties": {"^x[0-2]$": {"type": "integer"}},
        "additionalProperties": False,
        "minProperties": 2,
        "maxProperties": 3,
    },
    "required among pattern keys": {
        "properties": {"a": {"type": "integer"}},
        "patternProperties": {"^x[0-9]$": {"type": "integer"}},
        "additionalProperties": False,
        "required": ["x3", "a"],
        "maxProperties": 3,
    },
    "names of one letter": {"propertyNames": {"pattern": "^[ab]$"}, "minProperties": 2, "required": ["b"]},
}


#: Whether a name repeats is not tracked where there is no end of names: refused rather than counted wrongly.
REFUSED = {"not required": "minProperties", "minProperties of additional keys": "minProperties"}


def schema_of(case: str) -> dict[str, Any]:
    return {"type": "object", **CASES[case]}


def language_of(case: str, order: str) -> Language:
    """The language of a case; skips the test where the schema is refused by name, as is written down."""
    if case in REFUSED:
        with pytest.raises(stepmask.GrammarUnsupported, match=REFUSED[case]):
            Language(schema_of(case), property_order=order)
        pytest.skip(f"refused: {REFUSED[case]}")
    return Language(schema_of(case), property_order=order)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("case", CASES)
def test_no_dead_ends(case: str, order: str) -> None:
    schema = schema_of(case)
    found = language_of(case, order)
    validator = Validator(schema)
    rng = random.Random(case)
    for _ in range(40):
        text = random_text(found, rng, rng.randint(0, 60))
        assert validator.is_valid_whichever(text), text


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("case", CASES)
def test_objects_of_declared_keys(case: str, order: str) -> None:
    schema = schema_of(case)
    found = language_of(case, order)
    validator = Validator(schema)
    rng = random.Random(case)
    declared = list(schema.get("properties", {}))
    others = [key for key in ("x", "y", "z", "x0", "x1", "x3", *LETTERS[:2]) if key not in declared]
    for _ in range(200):
        keys = [key for key in declared if rng.random() < 0.4]
        keys += rng.sample(others, min(len(others), rng.choice((0, 0, 1, 2, 3))))
        if order == "any":
            rng.shuffle(keys)
        value = {key: rng.randint(0, 9) for key in keys}
        text = canonical(value)
        # Names that only conditions speak of have an order of their own, behind the declared ones.
        is_valid = validator.is_valid(text)
        texts = [text] if order == "any" else map(canonical, orders(value, 5000 if is_valid else 20))
        assert any(map(found.has, texts)) == is_valid, text


@pytest.mark.parametrize("order", ORDERS)
def test_thirty_pairs_of_required_lists(order: str) -> None:
    """2^30 combinations of what is still owed, were each a state."""
    keys = [f"{side}{i}" for i in range(30) for side in "ab"]
    schema = {
        "type": "object",
        "properties": {key: {"type": "integer"} for key in keys},
        "additionalProperties": False,
        "allOf": [{"anyOf": [{"required": [f"a{i}"]}, {"required": [f"b{i}"]}]} for i in range(30)],
    }
    found = Language(schema, property_order=order)
    rng = random.Random(1)
    for _ in range(20):
        chosen = [f"{side}{i}" for i in range(30) for side in rng.choice(("a", "b", "ab"))]
        if order == "any":
            rng.shuffle(chosen)
        value = dict.fromkeys(chosen, 1)
        assert found.has(canonical(value))
        pair = rng.randrange(30)
        for side in "ab":
            value.pop(f"{side}{pair}", None)
        assert not found.has(canonical(value))
    validator = Validator(schema)
    for _ in range(3):
        assert validator.is_valid_whichever(random_text(found, rng, rng.randint(0, 80)))


@pytest.mark.parametrize("order", ORDERS)
def test_one_anyof_of_thirty_pairs(order: str) -> None:
    keys = [f"{side}{i}" for i in range(30) for side in "ab"]
    schema = {
        "type": "object",
        "properties": {key: {"type": "integer"} for key in keys},
        "additionalProperties": False,
        "anyOf": [{"required": [f"a{i}", f"b{i}"]} for i in range(30)],
    }
    found = Language(schema, property_order=order)
    validator = Validator(schema)
    rng = random.Random(2)
    for _ in range(40):
        chosen = [key for key in keys if rng.random() < rng.choice((0.1, 0.3))]
        if order == "any":
            rng.shuffle(chosen)
        text = canonical(dict.fromkeys(chosen, 1))
        assert found.has(text) == validator.is_valid(text), text
    for _ in range(5):
        assert validator.is_valid_whichever(random_text(found, rng, rng.randint(0, 80)))


@pytest.mark.parametrize("order", ORDERS)
def test_equal_keys_do_not_count_twice(order: str) -> None:
    names = {"patternProperties": {"^x[12]$": {"type": "integer"}}, "additionalProperties": False}
    found = Language({"type": "object", "minProperties": 2, **names}, property_order=order)
    assert found.has('{"x1": 1, "x2": 1}')
    assert not found.has('{"x1": 1, "x1": 1}') and not found.has('{"x1": 1, "x1": 2, "x2": 1}')
    found = Language({"type": "object", "required": ["x1"], "minProperties": 2}, property_order=order)
    assert found.has('{"x1": 1, "x2": 1}')
    assert not found.has('{"x1": 1, "x1": 1}')
    # Equal but for how they are written.
    assert not found.has('{"x1": 1, "\\u00781": 1}')


@pytest.mark.parametrize("order", ORDERS)
def test_declared_keys_never_repeat(order: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    for rest in ({}, {"additionalProperties": False}):
        found = Language(schema | rest, property_order=order)
        assert found.has('{"a": 1, "b": 2}')
        assert not found.has('{"a": 1, "a": 1}') and not found.has('{"a": 1, "b": 2, "a": 3}')
        assert found.has('{"b": 2, "a": 1}') == (order == "any")


def test_more_keys_required_than_allowed() -> None:
    for schema in (
        {"required": ["a", "b"], "maxProperties": 1},
        {"required": ["a"], "properties": {"a": False}},
        {"required": ["a"], "dependentRequired": {"a": ["b"], "b": ["c"]}, "maxProperties": 2},
        {"required": ["a"], "propertyNames": {"pattern": "^b"}},
        {"minProperties": 3, "properties": {"a": {}, "b": {}}, "additionalProperties": False},
        {"minProperties": 2, "propertyNames": {"enum": ["a"]}},
        {"required": ["a"], "not": {"required": ["a"]}},
    ):
        for order in ORDERS:
            with pytest.raises(stepmask.GrammarUnsatisfiable):
                Language({"type": "object", **schema}, property_order=order)


@pytest.mark.parametrize("order", ORDERS)
def test_patterns_that_exclude_each_other(order: str) -> None:
    first, second = "^.*[ab].{20}$", "^.*[cd].{20}$"
    with pytest.raises(stepmask.GrammarUnsatisfiable):
        Language({"type": "string", "allOf": [{"pattern": first}, {"pattern": second}]}, property_order=order)
    # An optional property of such a value can only be left out; a required one makes its object impossible.
    none = {"type": "string", "pattern": first, "allOf": [{"pattern": second}]}
    schema = {"type": "object", "properties": {"a": none, "b": {"type": "integer"}}, "additionalProperties": False}
    found = Language(schema, property_order=order)
    assert found.has('{"b": 1}') and not found.is_alive('{"a"')
    with pytest.raises(stepmask.GrammarUnsatisfiable):
        Language(schema | {"required": ["a"]}, property_order=order)


def test_impossible_branches_are_dropped() -> None:
    schema = {
        "anyOf": [{"type": "integer", "minimum": 3, "maximum": 2}, {"type": "string", "minLength": 2, "maxLength": 1}]
    }
    assert not language(schema).has("3")
    schema["anyOf"].append({"const": "ok"})
    found = language(schema)
    assert found.has('"ok"') and not found.is_alive('"k') and not found.is_alive("3")
