"""Tool calls and reasoning in the format of a model: structural tags made from the formats of `model_formats`.

Harmony (gpt-oss) and Kimi K3 write messages of several channels, which are put together here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from .errors import GrammarSyntaxError, GrammarUnsupported
from .expression import Grammar
from .limits import Limits
from .model_formats import MODEL_FORMATS, ModelFormat
from .structural_tag import structural_tag

Reasoning = Literal["enabled", "disabled", "auto"]
_Format = dict[str, Any]
#: Models whose formats are written out here.
_HARMONY, _KIMI_K3 = "harmony", "kimi_k3"
#: The models there are.
MODELS = (*MODEL_FORMATS, _HARMONY, _KIMI_K3)


def model_structural_tag(
    model: str,
    tools: Iterable[Mapping[str, Any]] = (),
    *,
    tool_choice: str | Mapping[str, Any] | None = "auto",
    reasoning: Reasoning = "enabled",
    parallel: bool = True,
    any_order: bool = False,
    exclude_markers: bool = True,
    max_whitespace: int | None = None,
    special_tokens: Iterable[str] = (),
    limits: Limits | None = None,
) -> Grammar:
    """What a model may write that has `tools`, in its own format: reasoning, free text and calls of tools.

    `model` is one of `MODELS`, the names that xgrammar has: ``llama``, ``qwen_3``, ``deepseek_r1``, ``harmony``, ....
    A tool is ``{"type": "function", "function": {"name": ..., "parameters": {...}}}`` or what is under "function"
    alone; parameters that are missing, or of a function with ``"strict": False``, are any JSON. For ``harmony`` a tool
    may be a built-in one, ``{"type": "web_search_preview", "name": "browser.search", "parameters": {...}}``.

    `tool_choice` is ``auto``, ``none`` (text alone), ``required`` (at least one call), one tool that must be called, by
    ``{"type": "function", "function": {"name": ...}}`` or its type, or ``{"type": "allowed_tools", "allowed_tools":
    {"mode": "auto" | "required", "tools": [...]}}``. `reasoning` ``enabled`` goes on from the end of the model's own
    prompt, ``auto`` lets the section be left out, ``disabled`` has none. Without `parallel` there is at most one call.
    `exclude_markers` keeps the markers of reasoning and calls out of free text. `any_order`, `max_whitespace`: of
    arguments, as for `structural_tag`.

    `special_tokens` are the names of the vocabulary's special tokens, ``vocabulary.special_names``: a marker that is
    one of them is that token, otherwise text.

    Raises `GrammarSyntaxError` for what are no tools or no choice among them, and what `structural_tag` raises.
    """
    value = model_format(
        model,
        tools,
        tool_choice=tool_choice,
        reasoning=reasoning,
        parallel=parallel,
        any_order=any_order,
        exclude_markers=exclude_markers,
        max_whitespace=max_whitespace,
    )
    return structural_tag(value, special_tokens=special_tokens, limits=limits)


def model_format(
    model: str,
    tools: Iterable[Mapping[str, Any]] = (),
    *,
    tool_choice: str | Mapping[str, Any] | None = "auto",
    reasoning: Reasoning = "enabled",
    parallel: bool = True,
    any_order: bool = False,
    exclude_markers: bool = True,
    max_whitespace: int | None = None,
) -> dict[str, Any]:
    """The structural tag of `model_structural_tag` in the shape of JSON, to be looked at or sent on."""
    if model not in MODELS:
        raise GrammarUnsupported(f"there is no model {model!r}; there are: {', '.join(MODELS)}", "model")
    if reasoning not in ("enabled", "disabled", "auto"):
        raise ValueError(f"reasoning is enabled, disabled or auto, not {reasoning!r}")
    functions, built_in, needed = _chosen([_Tool(tool, f"tools/{i}") for i, tool in enumerate(tools)], tool_choice)
    if built_in and model != _HARMONY:
        raise GrammarUnsupported(f"{model} has no built-in tools", built_in[0].place)
    options: dict[str, Any] = {"any_order": any_order} if any_order else {}
    if max_whitespace is not None:
        options["max_whitespace_cnt"] = max_whitespace
    if model == _HARMONY:
        content = _harmony(functions, built_in, needed, reasoning != "disabled", parallel, options)
    elif model == _KIMI_K3:
        content = _kimi_k3(functions, needed, reasoning, parallel, exclude_markers, options)
    else:
        content = _Builder(MODEL_FORMATS[model], parallel, exclude_markers, options).whole(functions, needed, reasoning)
    return {"type": "structural_tag", "format": content}


# Tools


class _Tool:
    """A tool: its `name` in what the model writes, its `type`, and the schema of its arguments."""

    def __init__(self, value: Any, place: str) -> None:
        if not isinstance(value, Mapping):
            raise GrammarSyntaxError("a tool is a JSON object", place)
        self.place = place
        self.type = value.get("type", "function")
        function = value.get("function", value) if self.type == "function" else value
        if not isinstance(function, Mapping):
            raise GrammarSyntaxError("a function is a JSON object", f"{place}/function")
        self.name = function.get("name", self.type if self.type != "function" else None)
        if not isinstance(self.name, str) or not self.name or not isinstance(self.type, str):
            raise GrammarSyntaxError("a tool needs a name", place)
        parameters = function.get("parameters")
        self.parameters: Any = True if parameters is None or function.get("strict") is False else parameters
        if not isinstance(self.parameters, (bool, Mapping)):
            raise GrammarSyntaxError("the parameters of a tool are a JSON Schema", f"{place}/parameters")


#: How many calls there must be.
_Needed = Literal["any", "some", "this"]


def _chosen(tools: list[_Tool], choice: Any) -> tuple[list[_Tool], list[_Tool], _Needed]:
    """The functions and the built-in tools that may be called, and whether one must be: some or "this" one."""
    needed: _Needed = "any"
    if isinstance(choice, Mapping):
        kind = choice.get("type")
        if kind == "allowed_tools":
            allowed = choice.get("allowed_tools", choice)
            if not isinstance(allowed, Mapping) or allowed.get("mode") not in ("auto", "required"):
                raise GrammarSyntaxError("allowed tools have the mode auto or required", "tool_choice")
            tools = [tool for named in allowed.get("tools", ()) for tool in _named(tools, named)]
            needed = "some" if allowed["mode"] == "required" else "any"
        else:
            tools, needed = _named(tools, choice), "this"
    elif choice == "none":
        tools = []
    elif choice == "required":
        needed = "some"
    elif choice not in (None, "auto"):
        raise GrammarSyntaxError(f"there is no choice of tools {choice!r}", "tool_choice")
    if needed != "any" and not tools:
        raise GrammarSyntaxError("there is no tool to be called", "tool_choice")
    names = [(tool.type == "function", tool.name) for tool in tools]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise GrammarSyntaxError(f"there are two tools {name[1]!r}", tools[number].place)
    return [t for t in tools if t.type == "function"], [t for t in tools if t.type != "function"], needed


def _named(tools: list[_Tool], reference: Any) -> list[_Tool]:
    """The one tool that is meant: a function by its name, a built-in tool by its type."""
    if not isinstance(reference, Mapping) or not isinstance(reference.get("type"), str):
        raise GrammarSyntaxError("a choice of a tool has its type", "tool_choice")
    kind = reference["type"]
    function = reference.get("function", reference)
    name = function.get("name") if isinstance(function, Mapping) else None
    found = [tool for tool in tools if tool.type == kind and (kind != "function" or tool.name == name)]
    if len(found) != 1:
        what = f"{kind} {name!r}" if kind == "function" else kind
        raise GrammarSyntaxError(f"the choice {what} is not one of the tools", "tool_choice")
    return found


# Parts of formats


def _text(value: str) -> _Format:
    return {"type": "const_string", "value": value}


def _tag(begin: str, content: _Format, end: str | list[str]) -> _Format:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def _sequence(*elements: _Format | None) -> _Format:
    found = [element for element in elements if element is not None]
    return found[0] if len(found) == 1 else {"type": "sequence", "elements": found}


def _one_of(elements: list[_Format]) -> _Format:
    return elements[0] if len(elements) == 1 else {"type": "or", "elements": elements}


def _any_text(excludes: Iterable[str]) -> _Format:
    return {"type": "any_text", "excludes": list(excludes)}


def _listed(tags: list[_Format], separator: str, parallel: bool, *, needed: bool = True) -> _Format:
    return {
        "type": "tags_with_separator",
        "tags": tags,
        "separator": separator,
        "at_least_one": needed,
        "stop_after_first": not parallel,
    }


def _triggered(trigger: str, tags: list[_Format], excludes: Iterable[str], *, needed: bool, once: bool) -> _Format:
    return {
        "type": "triggered_tags",
        "triggers": [trigger],
        "tags": tags,
        "excludes": list(excludes),
        "at_least_one": needed,
        "stop_after_first": once,
    }


class _Builder:
    """Puts a format together for some tools."""

    def __init__(self, form: ModelFormat, parallel: bool, exclude_markers: bool, options: _Format) -> None:
        self._form = form
        self._parallel = parallel
        self._exclude_markers = exclude_markers
        self._options = options

    def whole(self, tools: list[_Tool], needed: _Needed, reasoning: Reasoning) -> _Format:
        """Reasoning and all that follows it."""
        return _sequence(self._reasoning(reasoning), self._calls(tools, needed))

    def _excluded(self, markers: tuple[str, ...]) -> tuple[str, ...]:
        return markers if self._exclude_markers else ()

    def _reasoning(self, mode: Reasoning) -> _Format | None:
        form = self._form
        if form.reasoning is None:
            return None
        if mode == "disabled":
            return _text(form.no_reasoning) if form.no_reasoning else None
        begin, end = form.reasoning
        excludes = form.reasoning_excludes
        if mode == "auto" and form.optional_excludes is not None:
            excludes = form.optional_excludes
        opened = mode == "enabled" and form.prompt_begins_reasoning
        section = _tag("" if opened else begin, _any_text(self._excluded(excludes)), end)
        if form.behind_reasoning:
            section = _sequence(section, _text(form.behind_reasoning))
        if mode == "enabled":
            return section
        if form.skipped_reasoning:
            section = _one_of([section, _text(form.skipped_reasoning)])
        return {"type": "optional", "content": section}

    def _call(self, tool: _Tool) -> _Format:
        """One call, as a tag."""
        form = self._form
        before, end = form.call.split("$ARGUMENTS")
        begin, number, middle = before.partition("$NUMBER")
        arguments: _Format = {"type": "json_schema", "json_schema": tool.parameters, **self._options}
        if form.style != "json":
            arguments["style"] = form.style
        if self._excluded(form.argument_excludes):
            arguments["excludes"] = list(form.argument_excludes)
        if number:
            digits = {"type": "regex", "pattern": "[0-9]+"}
            arguments = _sequence(digits, _text(middle.replace("$NAME", tool.name)), arguments)
        return _tag(begin.replace("$NAME", tool.name), arguments, end)

    def _calls(self, tools: list[_Tool], needed: _Needed) -> _Format:
        form = self._form
        once = not self._parallel
        if not tools:
            plain = form.text_excludes if form.plain_excludes is None else form.plain_excludes
            return _any_text(self._excluded(plain))
        calls = [self._call(tool) for tool in tools]
        excludes = self._excluded(form.text_excludes)
        if form.section is None:
            if needed == "this":
                return calls[0]
            return _triggered(form.trigger, calls, excludes, needed=needed == "some", once=once)
        begin, end = form.section
        content = calls[0] if needed == "this" else _listed(calls, form.separator, self._parallel)
        if needed == "any" or (needed == "some" and form.text_follows_section):
            section = _tag(begin, content, end)
            once = once or form.section_ends
            return _triggered(form.trigger, [section], excludes, needed=needed == "some", once=once)
        return _tag(form.lead + begin, content, end)


# Formats of several channels


def _harmony(
    functions: list[_Tool], built_in: list[_Tool], needed: _Needed, reasons: bool, parallel: bool, options: _Format
) -> _Format:
    """Messages of gpt-oss: cookbook.openai.com/articles/openai-harmony."""
    calls: list[_Format] = []
    for tool, names in [
        *((tool, (f"commentary to={tool.name} code", f" to={tool.name}", "commentary code")) for tool in built_in),
        *((tool, None) for tool in functions),
    ]:
        arguments = {"type": "json_schema", "json_schema": tool.parameters, **options}
        if names is not None:
            begins = [f"<|channel|>{names[0]}<|message|>", f"{names[1]}<|channel|>{names[2]}<|message|>"]
        else:
            to = f"to=functions.{tool.name}"
            begins = [
                f"<|channel|>commentary {to}<|constrain|>json<|message|>",
                f" {to}<|channel|>commentary <|constrain|>json<|message|>",
                f" {to}<|channel|>commentary json<|message|>",
            ]
        calls += [_tag(begin, arguments, "<|call|>") for begin in begins]
    ends = ["<|end|>", "<|return|>"]
    channels = (["final"] if needed == "any" else []) + (["analysis"] if reasons else [])
    messages = [_tag(f"<|channel|>{channel}<|message|>", _any_text(()), list(ends)) for channel in channels]
    separator = "<|start|>assistant"
    if needed == "any" and (parallel or not calls):
        return _listed([*calls, *messages], separator, True, needed=False)
    # Messages, a call, and more of both where there may be more calls than one.
    before = {"type": "star", "content": _sequence(_one_of(messages), _text(separator))} if messages else None
    more = {"type": "star", "content": _sequence(_text(separator), _one_of([*calls, *messages]))} if parallel else None
    called = _sequence(before, _one_of(calls), more)
    if needed != "any":
        return called
    return _one_of([_listed(messages, separator, True, needed=False), called])


def _kimi_k3(
    tools: list[_Tool], needed: _Needed, reasoning: Reasoning, parallel: bool, exclude_markers: bool, options: _Format
) -> _Format:
    """Blocks of Kimi K3: reasoning, the response and the calls; the prompt has opened the first one."""
    markers = ["<|open|>", "<|close|>", "<|sep|>"]
    excludes = markers[:2] if exclude_markers else []
    calls = []
    for tool in tools:
        arguments = {"type": "json_schema", "json_schema": tool.parameters, "style": "kimi_k3_xml", **options}
        if exclude_markers:
            arguments["excludes"] = list(markers)
        content = _sequence({"type": "regex", "pattern": "[0-9]+"}, _text('"<|sep|>'), arguments)
        calls.append(_tag(f'<|open|>call tool="{tool.name}" index="', content, "<|close|>call<|sep|>"))
    think: _Format | None = None
    if reasoning != "disabled":
        opened = "" if reasoning == "enabled" else "<|open|>think<|sep|>"
        think = _tag(opened, _any_text(excludes), "<|close|>think<|sep|>")
        if reasoning == "auto":
            think = {"type": "optional", "content": think}
    begin = "" if reasoning == "disabled" else "<|open|>response<|sep|>"
    response = _tag(begin, _any_text(excludes), "<|close|>response<|sep|>")
    section: _Format | None = None
    if calls:
        content = calls[0] if needed == "this" else _listed(calls, "", parallel)
        section = _tag("<|open|>tools<|sep|>", content, "<|close|>tools<|sep|>")
        if needed == "any":
            section = {"type": "optional", "content": section}
    return _sequence(think, response, section, _text("<|close|>message<|sep|>"))
