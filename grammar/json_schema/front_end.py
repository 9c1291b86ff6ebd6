"""JSON Schema to a grammar."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import GrammarSyntaxError, GrammarUnsatisfiable
from ..expression import Expression, Grammar, Reference
from ..json_fields import described
from ..json_value import DEFAULT_MAX_DIGITS, DEFAULT_MAX_WHITESPACE, Whitespace
from ..limits import Limits, checked_limits
from .dialects import Dialect
from .options import Escapes, Formats, PropertyOrder, TextOptions
from .schemas import SchemaStore, parse_json
from .writer import Writer

if TYPE_CHECKING:
    import referencing

_START = "value"


def json_schema(
    schema: Any,
    *,
    property_order: PropertyOrder = "declared",
    whitespace: Whitespace = "flexible",
    max_whitespace: int | None = DEFAULT_MAX_WHITESPACE,
    max_digits: int | None = DEFAULT_MAX_DIGITS,
    escapes: Escapes = "canonical",
    unicode_escapes: bool = True,
    separators: tuple[str, str] | None = None,
    indent: int | None = None,
    formats: Formats = "enforce",
    excludes: Iterable[str] = (),
    registry: referencing.Registry[Any] | None = None,
    limits: Limits | None = None,
) -> Grammar:
    r"""The JSON texts of the values that are valid against a schema.

    `schema` is a dict, a boolean, JSON text, or a pydantic model (or anything with `model_json_schema`). Its draft is
    that of ``$schema`` (4, 6, 7, 2019-09 or 2020-12), else 2020-12. References lead into the schema or into a document
    of `registry`, a `referencing.Registry`; nothing is ever fetched. Every keyword is enforced exactly or refused.

    How the text is written: `property_order` ``declared`` has the properties in the schema's order, those it does not
    declare behind them, ``any`` in any order. `whitespace`, `max_whitespace` and `max_digits` are as for `json_value`;
    `separators` and `indent` fix the white space as in `json.dumps`, and with `indent` values are nested at most 24
    levels deep. Strings that a pattern, a format, `enum` or `const` constrains are written without needless escapes,
    or, with `escapes` ``any``, with all that JSON has; `unicode_escapes` False forbids ``\u``. `formats` ``enforce``
    refuses a `format` that is not known, ``known`` takes it as a comment, and ``ignore`` takes all of them so. None of
    `excludes` stands within the quotes of a string or a name, as it is written there.

    Raises `GrammarSyntaxError` for what is no schema, `GrammarUnsupported` for what is not enforced,
    `GrammarUnsatisfiable` where nothing is valid, `GrammarTooLarge` where a field of `limits` is passed; each names
    the JSON pointer.
    """
    if isinstance(separators, list):
        separators = tuple(separators)  # what is made for options is remembered by them
    options = TextOptions(
        property_order, whitespace, max_whitespace, max_digits, escapes, unicode_escapes, separators, indent, formats,
        _listed(excludes),
    )  # fmt: skip
    root = _loaded(schema)
    text = schema if isinstance(schema, str) else described(root, "")
    store = SchemaStore(root, registry, Dialect.DRAFT2020_12, None if isinstance(schema, str) else text)
    writer = Writer(store, options, checked_limits(limits))
    start: Expression | None = writer.value(frozenset((store.literal(store.root),)) - {(0, True)}, 0)
    if start is None:
        raise GrammarUnsatisfiable("no value is valid against the schema", "#")
    writer.finish()
    rules, name = {_START: start, **writer.rules}, _START
    while isinstance(start, Reference):  # a schema for one kind of value is one rule
        name = start.rule
        start = rules[name]
    # With documents besides, and for values that JSON text shows only by their representation, there is none.
    known = registry is None and (isinstance(schema, str) or "Decimal(" not in text)
    identity = f"{options!r}|{writer.limits!r}|{text}" if known else ""
    return Grammar("json_schema", text, rules, start=name, frames=True, identity=identity)


def _listed(excludes: Iterable[str]) -> tuple[str, ...]:
    if isinstance(excludes, str):
        raise ValueError("excludes is a list of strings, not one string: write excludes=[...]")
    return tuple(excludes)


def _loaded(schema: Any) -> Any:
    if isinstance(schema, (str, bytes)):
        try:
            return parse_json(schema if isinstance(schema, str) else schema.decode())
        except UnicodeDecodeError as error:
            raise GrammarSyntaxError(f"not a JSON text: byte {error.start} is no UTF-8", "/") from None
    if isinstance(schema, (bool, Mapping)):
        return schema
    made = getattr(schema, "model_json_schema", None)
    if made is not None:
        return made()
    raise GrammarSyntaxError(f"a schema is a dict, a boolean, JSON text or a pydantic model, not {schema!r}", "#")
