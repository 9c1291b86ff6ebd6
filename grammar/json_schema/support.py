"""What is enforced of each keyword: the table of the documentation, kept beside the code that enforces it."""

from __future__ import annotations

from .formats import ANNOTATION_FORMATS, FORMATS, REFUSED_FORMATS
from .scalar_keywords import FORMAT_ALIASES, NUMBER_FORMATS

#: Keyword -> how far it is enforced, and what is beyond that.
SUPPORT: dict[str, tuple[str, str]] = {
    "type": ("exact", "`1.0` is an integer"),
    "enum": ("exact", 'values of any kind; strings in their canonical spelling unless `escapes="any"`'),
    "const": ("exact", "as `enum`"),
    "properties": ("exact", "in declared order, or in any order while the sets of names seen stay within a limit"),
    "required": ("exact", "names that `properties` does not declare come behind those that it does"),
    "additionalProperties": ("exact", ""),
    "patternProperties": (
        "exact",
        "patterns may sort the names of one object into 256 classes; of any number of them if no two match one name",
    ),
    "propertyNames": ("exact", ""),
    "minProperties": (
        "exact within a limit",
        "refused where two or more names that no keyword gives would have to be told apart",
    ),
    "maxProperties": ("exact", "a name written twice counts twice"),
    "dependencies": ("exact", "in every draft"),
    "dependentRequired": ("exact", ""),
    "dependentSchemas": ("exact", ""),
    "unevaluatedProperties": (
        "exact within a limit",
        "an `anyOf` in its scope has up to 8 schemas; its negation is refused",
    ),
    "unevaluatedItems": ("exact within a limit", "as `unevaluatedProperties`"),
    "items": ("exact", "a schema or a list of schemas, in every draft"),
    "prefixItems": ("exact", ""),
    "additionalItems": ("exact", "beside a list of `items`"),
    "contains": ("exact", ""),
    "minContains": ("exact", "beside `contains`"),
    "maxContains": ("exact", "beside `contains`"),
    "minItems": ("exact", ""),
    "maxItems": ("exact", ""),
    "uniqueItems": (
        "exact within a limit",
        "where there is at most one item, or all are of up to 64 scalars (12 where the items are not alike); otherwise "
        "refused, and its negation",
    ),
    "minLength": ("exact", "in code points; an escaped surrogate pair is one"),
    "maxLength": ("exact", "as `minLength`"),
    "pattern": ("exact", "ECMA 262, found anywhere; back-references, lookbehind and `\\b` are refused"),
    "format": ("exact", 'the formats below; others are refused unless `formats="known"`'),
    "minimum": ("exact", "in decimal; a number under a constraint may have to be written without an exponent"),
    "maximum": ("exact", "as `minimum`"),
    "exclusiveMinimum": ("exact", "a number, or the boolean of draft 4"),
    "exclusiveMaximum": ("exact", "as `exclusiveMinimum`"),
    "multipleOf": ("exact within a limit", "`Limits.max_remainder_states`"),
    "allOf": ("exact", ""),
    "anyOf": (
        "exact",
        "alternatives of objects that multiply are one automaton, of up to `Limits.max_schema_states` states; those of "
        "others, and with unevaluated keywords, up to `Limits.max_schema_alternatives`",
    ),
    "oneOf": ("exact", "exactly one; as `anyOf`"),
    "not": ("exact", "of all keywords but `uniqueItems` and the unevaluated ones"),
    "if": ("exact", "with `then` and `else`"),
    "then": ("exact", ""),
    "else": ("exact", ""),
    "$ref": ("exact", "into the schema or a document of `registry`; nothing is fetched"),
    "$dynamicRef": ("exact", "where the resources passed on the way to it settle it"),
    "$recursiveRef": ("exact", "as `$dynamicRef`"),
}


def support_table() -> str:
    """The table of keywords and the list of formats, in Markdown."""
    lines = ["| keyword | enforced | |", "|---|---|---|"]
    lines += [f"| `{name}` | {how} | {note} |" for name, (how, note) in SUPPORT.items()]
    formats = ", ".join(f"`{name}`" for name in sorted(FORMATS))
    notes = [f"- `{name}`: {found.note}" for name, found in sorted(FORMATS.items()) if found.note]
    lines += ["", f"Formats: {formats}.", "", *notes, ""]
    names = ", ".join(f"`{name}` (of {bits} bits)" if bits else f"`{name}`" for name, bits in NUMBER_FORMATS.items())
    lines.append(f"Formats of numbers: {names}.")
    aliases = ", ".join(f"`{name}` is `{meant}`" for name, meant in FORMAT_ALIASES.items())
    lines.append(f"Other names: {aliases}.")
    others = ", ".join(
        f"`{name}`" for name in sorted(ANNOTATION_FORMATS) if name not in FORMAT_ALIASES and name not in NUMBER_FORMATS
    )
    lines.append(f"Formats that only comment, by the OpenAPI registry and draft 3: {others}.")
    lines += [f"Refused: `{name}`, since {why}." for name, why in REFUSED_FORMATS.items()]
    return "\n".join(lines) + "\n"
