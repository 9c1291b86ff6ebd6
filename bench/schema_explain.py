"""What stepmask makes of one schema of MaskBench and its instances, in words."""

from __future__ import annotations

import json
from typing import Any

from schema_replay import text_of

#: Characters of a schema and of an instance that are shown, and around the place where one died.
LONGEST_SCHEMA, LONGEST_TEXT, AROUND = 20_000, 2_000, 60


def explain(item: dict[str, Any], *, compact: bool = False, only_wrong: bool = False) -> str:
    """The schema, and each instance with its verdict: where it died, or why it is invalid after all.

    `only_wrong`: only instances whose verdict is not the expected one.
    """
    import stepmask
    from stepmask import check

    schema = json.dumps(item["schema"], indent=1, ensure_ascii=False)
    lines = [f"{item['id']}", schema[:LONGEST_SCHEMA] + (" ..." if len(schema) > LONGEST_SCHEMA else "")]
    matchers = {}
    for order in ("declared", "any"):
        try:
            grammar = stepmask.json_schema(item["schema"], property_order=order)
            letters = check.alphabet(grammar)
            compiled = stepmask.compile(grammar, letters.vocabulary, use_cache=False)
        except stepmask.GrammarError as error:
            lines.append(f"property_order={order!r}: {type(error).__name__}: {error}")
            continue
        matchers[order] = (compiled, letters)
    for index, test in enumerate(item["tests"]):
        text = text_of(test["data"], compact)
        verdicts = {
            order: check.judge(compiled.matcher(), text.encode(), letters)
            for order, (compiled, letters) in matchers.items()
        }
        accepted = {order: verdict.code == check.COMPLETE for order, verdict in verdicts.items()}
        # An invalid instance must be refused in declared order, a valid one accepted in either.
        is_right = any(accepted.values()) if test["valid"] else not accepted.get("declared", False)
        if only_wrong and is_right:
            continue
        lines.append(f"\ninstance {index}, {'valid' if test['valid'] else 'invalid'}: {text[:LONGEST_TEXT]}")
        lines += [f"  {order}: {_verdict(verdict, text)}" for order, verdict in verdicts.items()]
        if not is_right and not test["valid"]:
            lines.append(f"  {_objection(item['schema'], test['data'])}")
    return "\n".join(lines)


def _verdict(verdict: Any, text: str) -> str:
    offset = verdict.offsets[-1]
    data = text.encode()
    before, after = (part.decode("utf-8", "replace") for part in (data[:offset][-AROUND:], data[offset:][:AROUND]))
    return "; ".join(verdict.lines) + (f"; at {before!r} + {after!r}" if after else "")


def _objection(schema: Any, data: Any) -> str:
    """What the validator of the package jsonschema says against an instance."""
    try:
        import jsonschema
    except ImportError:
        return "install jsonschema to see why this is invalid"
    validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)(schema)
    try:
        errors = [
            f"{error.json_path} against {'/'.join(map(str, error.absolute_schema_path))}: {error.message[:300]}"
            for error in validator.iter_errors(data)
        ]
    except Exception as error:  # a reference that cannot be followed, a pattern that Python does not read
        return f"jsonschema gave up: {error}"
    return "jsonschema: " + ("; ".join(errors) or "valid")
