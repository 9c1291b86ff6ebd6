"""Random schemas beside the validators of jsonschema: what is accepted, what can be written, and masks."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from json_schema_oracles import (
    Language,
    Nothing,
    Validator,
    bytes_only,
    canonical,
    equal_sets,
    exact_number,
    language,
    orders,
    random_text,
    shuffled,
)
from random_schemas import DRAFTS, KEYS, POOL, Schemas, Values, in_draft

import stepmask
from stepmask.grammar.json_schema import expand
from stepmask.masks.vocabulary import Vocabulary

SEEDS = st.integers(0, 2**32 - 1)
#: The most of random schemas that may be refused.
MAX_REFUSED = 0.1
#: What schemas of single properties ask.
VALUES: tuple[Any, ...] = (True, {}, {"const": 1}, {"type": "integer"}, {"type": "string"}, {"not": {"const": 2}})
#: In how many orders of keys a valid value is tried before none is said to be accepted.
MOST_ORDERS = 500


def drawn(seed: int) -> tuple[Any, random.Random]:
    rng = random.Random(seed)
    return Schemas(rng).document(), rng


def values_near(schema: Any, rng: random.Random, count: int = 40) -> list[Any]:
    """The pool, values made after the schema, and changed ones."""
    writer = Values(schema, rng)
    found = list(POOL)
    for _ in range(count):
        value = writer.near()
        found += [value, writer.changed(value)]
    return found


def language_of(schema: Any, **options: Any) -> Language | None:
    """The language of a schema, or None where it is refused."""
    try:
        return language(schema, **options)
    except (stepmask.GrammarUnsupported, stepmask.GrammarTooLarge):
        return None


@given(SEEDS)
def test_any_order_accepts_the_valid_values_and_no_others(seed: int) -> None:
    schema, rng = drawn(seed)
    found = language_of(schema, property_order="any")
    validator = Validator(schema)
    for value in values_near(schema, rng) if found is not None else ():
        assert found is not None
        text = canonical(shuffled(value, rng))
        assert found.has(text) == validator.is_valid(text), (schema, text)


@given(SEEDS)
def test_declared_order_accepts_every_valid_value_in_some_order(seed: int) -> None:
    schema, rng = drawn(seed)
    declared, any_order = (language_of(schema, property_order=order) for order in ("declared", "any"))
    validator = Validator(schema)
    for value in values_near(schema, rng, 20) if declared is not None else ():
        assert declared is not None
        text = canonical(value)
        if not validator.is_valid(text):
            assert not declared.has(text), (schema, text)
        else:
            texts = map(canonical, orders(value, MOST_ORDERS))
            accepted = next((one for one in texts if declared.has(one)), None)
            assert accepted is not None, (schema, text)
            assert any_order is None or any_order.has(accepted), (schema, accepted)


@given(SEEDS)
def test_what_can_be_written_is_valid_and_never_gets_stuck(seed: int) -> None:
    schema, rng = drawn(seed)
    validator = Validator(schema)
    for order in ("declared", "any"):
        found = language_of(schema, property_order=order)
        if found is None or isinstance(found, Nothing):
            continue
        texts = [random_text(found, rng, rng.choice((0, 4, 12, 30))) for _ in range(6)]
        for text in texts:
            assert validator.is_valid_whichever(text), (schema, order, text)
        if order == "declared" and (any_order := language_of(schema, property_order="any")) is not None:
            for text in texts:
                assert any_order.has(text), (schema, text)


def small_vocabulary(rng: random.Random) -> Vocabulary:
    """All single bytes and tokens that cross the structure of JSON texts."""
    pieces = [
        b'{"',
        b'":',
        b'": ',
        b'", "',
        b'"}',
        b'"]',
        b"}}",
        b"]}",
        b", ",
        b"[[",
        b"[{",
        b'"a"',
        b'"a":',
        b'"b',
        b"ab",
    ]
    pieces += [
        b"a1",
        b"10",
        b"0.5",
        b".5",
        b"-1",
        b"1,",
        b"1}",
        b"12]",
        b"true",
        b"null,",
        b"fal",
        b"se}",
        b"  ",
        b"\n",
    ]
    pieces += [
        "é".encode(),
        "é".encode()[1:] + b'"',
        "😀".encode()[:2],
        b"\\u00",
        b'\\"',
        b"\\\\",
        b'a"',
        b'b": {',
        b"{}",
    ]
    for _ in range(12):
        text = canonical(rng.choice(POOL)).encode()
        start = rng.randrange(len(text))
        pieces.append(text[start : start + rng.randint(2, 7)])
    return Vocabulary.from_bytes([bytes([b]) for b in range(256)] + [*pieces, b""], eos=[256 + len(pieces)])


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(SEEDS)
def test_masks_are_those_of_trying_every_token(seed: int) -> None:
    schema, rng = drawn(seed)
    order = rng.choice(("declared", "any"))
    plain = language_of(schema, property_order=order)
    if plain is None or isinstance(plain, Nothing):
        return
    vocabulary = small_vocabulary(rng)
    found = Language(schema, vocabulary, property_order=order)
    for _ in range(2):
        equal_sets(found, vocabulary, random_text(plain, rng, rng.choice((5, 15))).encode())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SEEDS)
def test_objects_as_formulas_are_the_same(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Objects whose alternatives are too many for a clause each, were any number too many."""
    monkeypatch.setattr(expand, "_MANY_STEPS", {"declared": -1, "any": -1})
    schema, rng = drawn(seed)
    validator = Validator(schema)
    found = language_of(schema, property_order="any")
    for value in values_near(schema, rng) if found is not None else ():
        assert found is not None
        text = canonical(shuffled(value, rng))
        assert found.has(text) == validator.is_valid(text), (schema, text)
    declared = language_of(schema)
    if declared is not None and not isinstance(declared, Nothing):
        for _ in range(6):
            text = random_text(declared, rng, rng.choice((0, 4, 12, 30)))
            assert validator.is_valid_whichever(text), (schema, text)


@given(SEEDS)
def test_unevaluated_properties_around_choices(seed: int) -> None:
    """What is evaluated depends on the choice, also of names that are required."""
    rng = random.Random(seed)

    def part() -> dict[str, Any]:
        schema: dict[str, Any] = {
            "properties": {key: rng.choice(VALUES) for key in rng.sample(KEYS, rng.randint(0, 2))}
        }
        if rng.random() < 0.5:
            schema["patternProperties"] = {rng.choice(("^a", "b$", "^(a|b)$", "c")): rng.choice(VALUES)}
        if rng.random() < 0.3:
            schema["required"] = rng.sample(KEYS, 1)
        return schema

    schema: dict[str, Any] = {"unevaluatedProperties": rng.choice((False, False, {"type": "string"})), **part()}
    schema["required"] = rng.sample(KEYS, rng.randint(0, 2))
    for name in rng.sample(("anyOf", "oneOf", "if", "dependentSchemas"), rng.randint(1, 2)):
        if name == "if":
            schema |= {"if": part(), "then": part(), "else": part()}
        else:
            parts = [part() for _ in range(rng.randint(1, 3))]
            schema[name] = dict(zip(KEYS, parts, strict=False)) if name == "dependentSchemas" else parts
    found, validator = language_of(schema, property_order="any"), Validator(schema)
    for _ in range(80):
        value = {key: rng.choice((1, 2, "a", None)) for key in rng.sample((*KEYS, "x"), rng.randint(0, 4))}
        assert found is None or found.has(canonical(value)) == validator.is_valid(canonical(value)), (schema, value)


@given(SEEDS, st.sampled_from(sorted(DRAFTS)))
def test_older_drafts(seed: int, draft: str) -> None:
    schema, rng = drawn(seed)
    older = in_draft(schema, draft)
    found = language_of(older, property_order="any") if older is not None else None
    if found is None:
        return
    validator = Validator(older)
    for value in values_near(schema, rng, 20):
        text = canonical(value)
        assert found.has(text) == validator.is_valid(text), (older, text)


def test_few_schemas_are_refused() -> None:
    refused: dict[str, list[Any]] = {}
    count = 300
    for seed in range(count):
        schema, _ = drawn(seed)
        try:
            stepmask.compile(stepmask.json_schema(schema), bytes_only(), use_cache=False)
        except stepmask.GrammarUnsatisfiable:
            continue
        except stepmask.GrammarError as error:
            refused.setdefault(str(error), []).append(schema)
    share = sum(map(len, refused.values())) / count
    assert share <= MAX_REFUSED, (share, {why: len(schemas) for why, schemas in refused.items()})


_WRONG_TWICE: dict[str, tuple[Any, Any, Any]] = {
    "patternProperties": (
        {"patternProperties": {"a": {"maximum": 1}}}, {"patternProperties": {"a": {"maximum": 60}}}, {"a": 81},
    ),
    "propertyNames": ({"propertyNames": {"enum": ["b", "c"]}}, {"propertyNames": {"enum": ["c", "d"]}}, {"a": 1}),
    "additionalProperties": (
        {"additionalProperties": {"maximum": 1}}, {"additionalProperties": {"maximum": 60}}, {"a": 81},
    ),
    "items": ({"items": {"maximum": 1}}, {"items": {"maximum": 60}}, [81]),
}  # fmt: skip


@pytest.mark.parametrize("order", ["declared", "any"])
@pytest.mark.parametrize("keyword", _WRONG_TWICE)
def test_one_place_may_be_wrong_in_several_ways(keyword: str, order: str) -> None:
    first, second, value = _WRONG_TWICE[keyword]
    schema = {"allOf": [{"not": first}, {"not": second}]}
    assert Validator(schema).is_valid(canonical(value))
    assert language(schema, property_order=order).has(canonical(value))


# ------------------------------------------------------------------------------------------------------------- numbers

_DIGITS = st.text("0123456789", min_size=1, max_size=12)
_NUMBERS = st.builds(
    lambda sign, whole, fraction, exponent: sign + (whole.lstrip("0") or "0") + fraction + exponent,
    st.sampled_from(["", "-"]),
    _DIGITS,
    st.one_of(st.just(""), _DIGITS.map(lambda digits: "." + digits)),
    st.sampled_from(["", "", "", "e0", "E1", "e+2", "e-1", "e-03", "E12"]),
)


def _json_number(value: Fraction) -> Any:
    """A number of Python whose `repr` is exact for the values used here."""
    return int(value) if value.denominator == 1 else float(value)


@given(st.data())
def test_numbers_compare_exactly(data: st.DataObject) -> None:
    bounds = st.decimals(-2000, 2000, places=data.draw(st.integers(0, 3))).map(Fraction)
    schema: dict[str, Any] = {"type": data.draw(st.sampled_from(["number", "integer"]))}
    for name in data.draw(st.sets(st.sampled_from(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]))):
        schema[name] = _json_number(data.draw(bounds))
    if data.draw(st.booleans()):
        schema["multipleOf"] = data.draw(st.sampled_from([1, 2, 3, 7, 12, 100, 0.5, 0.1, 0.25, 0.01, 1.5, 0.3]))
    found = language_of(schema)
    limits = {name: exact_number(canonical(value)) for name, value in schema.items() if name != "type"}
    near = st.builds(lambda bound, text: _near(bound, text), st.sampled_from(list(limits.values()) or [0]), _NUMBERS)
    for text in data.draw(st.lists(st.one_of(_NUMBERS, near), min_size=20, max_size=20)):
        value = exact_number(text)
        is_valid = (
            (schema["type"] == "number" or isinstance(value, int))
            and value >= limits.get("minimum", value)
            and value <= limits.get("maximum", value)
            and ("exclusiveMinimum" not in limits or value > limits["exclusiveMinimum"])
            and ("exclusiveMaximum" not in limits or value < limits["exclusiveMaximum"])
            and value % limits.get("multipleOf", Fraction(1, 10**30)) == 0
        )
        # A constrained number may have to be written without an exponent.
        if found is not None and ("e" not in text.lower() or not is_valid):
            assert found.has(text) == is_valid, (schema, text)


def _near(bound: int | Fraction, text: str) -> str:
    """A number that begins as a bound does."""
    whole = str(int(bound)) if isinstance(bound, int) else repr(float(bound))
    tail = "".join(digit for digit in text if digit.isdigit())[:4]
    return whole + tail if "." in whole else f"{whole}.{tail}"


@pytest.mark.parametrize("order", ["declared", "any"])
def test_big_and_precise_numbers(order: str) -> None:
    found = language({"const": 9007199254740993}, property_order=order)
    assert found.has("9007199254740993") and not found.has("9007199254740992")
    assert not found.has("9007199254740994") and found.has("9007199254740993.0")
    tenth = language({"multipleOf": 0.1}, property_order=order)
    assert tenth.has("0.3") and tenth.has("1.1") and tenth.has("7") and not tenth.has("0.35")
    assert language({"type": "integer"}, property_order=order).has("1.0")
