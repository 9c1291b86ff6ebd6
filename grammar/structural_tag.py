"""The structural-tag front end: free text and tags whose contents follow grammars, as models write tool calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .errors import GrammarSyntaxError
from .expression import Expression, Grammar
from .json_fields import Fields, described, parse_json
from .limits import Limits, checked_limits
from .structural_formats import FormatReader


def structural_tag(
    tags: str | Mapping[str, Any] | Iterable[Mapping[str, Any]],
    triggers: Iterable[str | int] | None = None,
    *,
    at_least_one: bool = False,
    stop_after_first: bool = False,
    excludes: Iterable[str] = (),
    special_tokens: Iterable[str] = (),
    limits: Limits | None = None,
) -> Grammar:
    r"""A grammar of free text with tags, or of any other shape of structural tag.

    From a list of tags, each ``{"begin": ..., "content": ..., "end": ...}``::

        call = {"begin": "<tool_call>", "content": stepmask.json_value(), "end": "</tool_call>"}
        stepmask.structural_tag([call])

    The text is free until one of `triggers` stands in it (the begins of the tags where none are given). What follows
    must make it the begin of a tag, then come the tag's content and end, and the text is free again. A trigger is a
    prefix of the begins of its tags. With `at_least_one` the text begins with a tag, with `stop_after_first` it ends
    behind the first. None of `excludes` may be in the free text. Free text is any valid UTF-8 text.

    A content is a `Grammar`, or a format of the JSON shapes. An end is a string, or a list of strings of which any will
    do. Where all begins are special tokens, ``{"token": "<|call|>"}`` by name or id, `triggers` are such names or ids.

    From a dict or JSON text in the shapes of xgrammar and vLLM: ``{"type": "structural_tag", "format": {...}}``, a
    format alone, or the older ``{"structures": [{"begin", "schema", "end"}], "triggers": [...]}``. The formats are
    those of xgrammar's `structural_tag` module; docs/structural-tags.md says where their meaning differs.

    `special_tokens` are names of special tokens (``vocabulary.special_names``): wherever one stands in what tags begin
    and end with, in triggers, separators and constants, it is that token and not its text, which no such token is.

    Raises `GrammarUnsupported` for formats and fields that are not known or not enforced, `GrammarSyntaxError` for
    what is not of these shapes, and what the contents' own front ends raise; each names the JSON pointer.
    """
    reader = FormatReader(checked_limits(limits), special_tokens)
    if isinstance(tags, (str, Mapping)):
        if triggers is not None or at_least_one or stop_after_first or tuple(excludes):
            raise TypeError("a whole structural tag has its own triggers and options: give them within it")
        start = _read_whole(reader, parse_json(tags, "") if isinstance(tags, str) else tags)
        text = tags if isinstance(tags, str) else described(tags, "")
    else:
        for name, value in (("tags", tags), ("triggers", triggers), ("excludes", excludes)):
            if isinstance(value, str):
                raise TypeError(f"{name} is a list of strings, not one string: write {name}=[...]")
            if not isinstance(value, Iterable) and not (value is None and name == "triggers"):
                raise TypeError(f"{name} is a list, not {type(value).__name__}: {value!r:.60}")
        tags = list(tags)
        value = _triggered(tags, triggers, at_least_one, stop_after_first, tuple(excludes))
        start = reader.read(value, "")
        text = described(value, "")
    return Grammar(
        "structural_tag", text, {"start": start, **reader.rules}, options=reader.options, frames=reader.frames
    )


def _triggered(
    tags: list[Mapping[str, Any]],
    triggers: Iterable[str | int] | None,
    at_least_one: bool,
    stop_after_first: bool,
    excludes: tuple[str, ...],
) -> dict[str, Any]:
    """The format that a list of tags stands for."""
    begins = [tag.get("begin") if isinstance(tag, Mapping) else None for tag in tags]
    by_token = bool(begins) and all(isinstance(begin, Mapping) for begin in begins)
    if triggers is None:
        triggers = [begin.get("token") if isinstance(begin, Mapping) else begin for begin in begins]  # type: ignore[misc]
    value: dict[str, Any] = {
        "type": "token_triggered_tags" if by_token else "triggered_tags",
        "trigger_tokens" if by_token else "triggers": list(triggers),
        "tags": tags,
        "at_least_one": at_least_one,
        "stop_after_first": stop_after_first,
    }
    if excludes:
        value["excludes"] = list(excludes)
    return value


def _read_whole(reader: FormatReader, value: Any) -> Expression:
    if not isinstance(value, Mapping):
        raise GrammarSyntaxError("a structural tag is a JSON object", "/")
    if "type" in value and value["type"] != "structural_tag":
        return reader.read(value, "")
    if "structures" in value:
        return reader.structures(value)
    if "format" not in value:
        raise GrammarSyntaxError("a structural tag needs a format, or structures and triggers", "/")
    Fields(value, "structural tag", "").only(("type", "format"))
    return reader.read(value["format"], "/format")
