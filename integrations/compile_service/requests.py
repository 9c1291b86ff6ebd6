"""What may be submitted, checked at once as far as that is cheap, and read in the worker."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...grammar.errors import GrammarUnsupported
from ...grammar.expression import Grammar
from ...grammar.json_fields import parse_json
from ...grammar.limits import Limits
from ...grammar.remembered import Remembered
from ...masks.cache import grammar_digest
from .encoding import decode_grammar, encode_grammar
from .errors import GrammarTextTooLarge
from .limits import ServiceLimits

#: Kinds of a specification -> what their text is. Each is the public function of that name.
_TEXT, _JSON, _NONE, _SPECIFICATION = "text", "JSON", "no text", "a specification"
KINDS = {
    "choice": _JSON,
    "ebnf": _TEXT,
    "gbnf": _TEXT,
    "json_object": _NONE,
    "json_schema": _JSON,
    "json_value": _NONE,
    "lark": _TEXT,
    "model_structural_tag": _TEXT,
    "reasoning": _SPECIFICATION,
    "regex": _TEXT,
    "structural_tag": _JSON,
}
#: Options that a specification cannot have: the service has its own limits, and files may change between two requests
#: that are equal otherwise.
_EXCLUDED = {"limits": "the service's own apply", "import_paths": "parse the grammar with stepmask.lark instead"}
_GRAMMAR, _SPEC = b"g", b"s"
#: Bytes that remembering a specification takes beside its texts.
_REMEMBERED_BYTES = 1 << 10


@dataclass(frozen=True)
class CompileRequest:
    """What is to be compiled: `payload` for the worker, and `key`, equal where the result would be."""

    key: str
    payload: bytes


def admit(grammar: Grammar | Mapping[str, Any], limits: Limits, bounds: ServiceLimits) -> CompileRequest:
    """Check what costs little and pack it.

    `grammar` is one that a front end has read, or a specification that the worker reads:
    ``{"kind": "regex", "text": "[a-z]+", "ignore_case": True}``, the kind's public function, its first argument, and
    its other arguments. Raises `GrammarTextTooLarge`, `GrammarSyntaxError` for a small text that is no JSON where it
    should be, `GrammarUnsupported` for a kind that is not known, and `TypeError` for what is none of this.
    """
    if isinstance(grammar, Grammar):
        _check_size(grammar.text, bounds)
        special = grammar.options.get("special_tokens", ())
        digest = _digest(repr(sorted(map(repr, special))).encode())
        return CompileRequest(f"{grammar_digest(grammar, limits)}-{digest}", _GRAMMAR + encode_grammar(grammar))
    if not isinstance(grammar, Mapping):
        raise TypeError(
            "a grammar made by stepmask.regex, ..., or a mapping such as {'kind': 'regex', 'text': ...} is needed, "
            f"not {type(grammar).__name__}"
        )
    _check_specification(grammar, bounds)
    try:
        # Options in any order are the same; the order within the text may matter.
        text = json.dumps(dict(sorted(grammar.items(), key=lambda item: item[0]))).encode()
    except (TypeError, ValueError) as error:
        raise TypeError(f"the specification holds what JSON cannot: {error}") from None
    if len(text) > 2 * bounds.max_text_bytes:  # texts are checked above; this is for what JSON escapes, and options
        raise _too_large(len(text), bounds)
    return CompileRequest(_digest(text), _SPEC + text)


class Admitted:
    """`admit`, which remembers the specifications that it was asked about last: as a rule the same tool's or client's
    schema comes with each of its requests; checking and packing one of 50 bytes takes 0.05 ms, of 12 kB 0.6 ms, of a
    megabyte 3 ms. Safe to call from any thread.
    """

    def __init__(self, limits: Limits, bounds: ServiceLimits) -> None:
        self._limits, self._bounds = limits, bounds
        self._known: Remembered[tuple[Any, ...], CompileRequest] = Remembered(
            1 + bounds.max_admitted_bytes // _REMEMBERED_BYTES, bounds.max_admitted_bytes
        )

    def __call__(self, grammar: Grammar | Mapping[str, Any]) -> CompileRequest:
        """See `admit`."""
        text = grammar.get("text") if isinstance(grammar, Mapping) else None
        if not isinstance(text, str) or len(text) > self._bounds.max_text_bytes:
            return admit(grammar, self._limits, self._bounds)
        assert isinstance(grammar, Mapping)
        items = sorted(grammar.items(), key=lambda item: str(item[0]))
        if not all(isinstance(value, (str, int, type(None))) for _, value in items):
            return admit(grammar, self._limits, self._bounds)
        key = tuple((name, type(value), value) for name, value in items)  # 1 and True are equal else
        request = self._known.find(key)
        if request is None:
            request = admit(grammar, self._limits, self._bounds)
            self._known.add(key, request, _REMEMBERED_BYTES + 2 * len(request.payload))  # the key's text is as long
        return request


def grammar_of(payload: memoryview, limits: Limits) -> Grammar:
    """The grammar of a payload that `admit` packed. Raises what its front end raises."""
    if payload[:1] == _GRAMMAR:
        return decode_grammar(payload[1:])
    return _read(json.loads(bytes(payload[1:])), limits)


def _read(specification: dict[str, Any], limits: Limits) -> Grammar:
    package = importlib.import_module(__name__.partition(".")[0])
    options = dict(specification)
    kind = options.pop("kind")
    front_end = getattr(package, kind)
    arguments = [] if KINDS[kind] == _NONE else [options.pop("text")]
    if KINDS[kind] == _SPECIFICATION:
        arguments = [_read(arguments[0], limits)]
    if "limits" in inspect.signature(front_end).parameters:
        options["limits"] = limits
    grammar: Grammar = front_end(*arguments, **options)
    return grammar


def available_kinds() -> list[str]:
    """Those of `KINDS` that this version has. Asking does not import the front ends, which takes its time."""
    package = importlib.import_module(__name__.partition(".")[0])
    return [kind for kind in KINDS if kind in package.__all__]


def _check_specification(specification: Mapping[str, Any], bounds: ServiceLimits) -> None:
    kind = specification.get("kind")
    takes = KINDS.get(kind) if isinstance(kind, str) and kind in available_kinds() else None
    if takes is None:
        raise GrammarUnsupported(f"no kind of grammar {kind!r}; there are: {', '.join(available_kinds())}", "/kind")
    for option, instead in _EXCLUDED.items():
        if option in specification:
            raise GrammarUnsupported(f"a specification has no {option}: {instead}", f"/{option}")
    if takes == _NONE:
        if "text" in specification:
            raise TypeError(f"{kind} takes no text")
        return
    if "text" not in specification:
        raise TypeError(f"{kind} needs its text: {{'kind': {kind!r}, 'text': ...}}")
    text = specification["text"]
    if takes == _SPECIFICATION:
        if not isinstance(text, Mapping):
            raise TypeError(f"the text of {kind} is the specification of the answer, not {type(text).__name__}")
        _check_specification(text, bounds)
    elif isinstance(text, str):
        size = _check_size(text, bounds)
        if takes == _JSON and size <= bounds.max_checked_json_bytes:
            parse_json(text, "")
    elif takes == _TEXT:
        raise TypeError(f"the text of {kind} is a str, not {type(text).__name__}")


def _check_size(text: str, bounds: ServiceLimits) -> int:
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size > bounds.max_text_bytes:
        raise _too_large(size, bounds)
    return size


def _too_large(size: int, bounds: ServiceLimits) -> GrammarTextTooLarge:
    return GrammarTextTooLarge(
        f"the grammar's text has {size} bytes; ServiceLimits.max_text_bytes is {bounds.max_text_bytes}"
    )


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
