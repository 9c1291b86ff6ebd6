"""A list of tools, as chat interfaces take it, to one grammar."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import referencing

from ..errors import GrammarSyntaxError
from ..expression import Grammar
from .dialects import Dialect, dialect_of
from .front_end import json_schema


def tools(
    tools: Iterable[Mapping[str, Any]],
    *,
    parallel: bool = False,
    name_key: str = "name",
    arguments_key: str = "arguments",
    **options: Any,
) -> Grammar:
    """The calls of `tools` as JSON: ``{"name": ..., "arguments": ...}`` with the name and the parameters of one tool.

    A tool is ``{"type": "function", "function": {"name": ..., "parameters": {...}}}``, or what is under "function"
    alone; parameters that are missing are an object with no properties. References in a tool's parameters lead into
    these parameters. With `parallel` the text is a list of one or more calls. `options` are those of `json_schema`.

    Raises `GrammarSyntaxError` for what is no list of tools, and what `json_schema` raises.
    """
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Iterable):
        raise TypeError(f"tools is a list of tools, not {type(tools).__name__}: {tools!r:.60}")
    if not isinstance(name_key, str) or not isinstance(arguments_key, str) or name_key == arguments_key:
        raise ValueError(f"name_key and arguments_key are two names, not {name_key!r} and {arguments_key!r}")
    registry = options.pop("registry", None)
    if registry is not None and not isinstance(registry, referencing.Registry):
        raise TypeError(f"registry must be a referencing.Registry, not {type(registry).__name__}")
    registry = referencing.Registry() if registry is None else registry
    calls: list[dict[str, Any]] = []
    names: set[str] = set()
    for i, tool in enumerate(tools):
        place = f"#/{i}"
        if not isinstance(tool, Mapping):
            raise GrammarSyntaxError("a tool is a JSON object", place)
        if "function" in tool:
            tool, place = tool["function"], f"{place}/function"
        if not isinstance(tool, Mapping):
            raise GrammarSyntaxError("a function is a JSON object", place)
        name = tool.get("name")
        if not isinstance(name, str) or not name or name in names:
            raise GrammarSyntaxError("a tool needs a name that no other tool has", f"{place}/name")
        names.add(name)
        parameters = tool.get("parameters")
        if parameters is None:
            parameters = {"type": "object", "properties": {}, "additionalProperties": False}
        if not isinstance(parameters, (bool, Mapping)):
            raise GrammarSyntaxError("the parameters of a tool are a JSON Schema", f"{place}/parameters")
        dialect = Dialect.DRAFT2020_12
        if isinstance(parameters, Mapping) and "$schema" in parameters:
            dialect = dialect_of(parameters["$schema"], f"{place}/parameters/$schema")
        uri = f"urn:stepmask:tool:{i}"
        resource = dialect.specification.create_resource(parameters)
        registry = registry.with_resource(uri, resource)
        calls.append(
            {
                "type": "object",
                "properties": {name_key: {"const": name}, arguments_key: {"$ref": uri}},
                "required": [name_key, arguments_key],
                "additionalProperties": False,
            }
        )
    if not calls:
        raise GrammarSyntaxError("there are no tools", "#")
    schema: dict[str, Any] = {"anyOf": calls}
    if parallel:
        schema = {"type": "array", "items": schema, "minItems": 1}
    return json_schema(schema, registry=registry, **options)
