"""Tool calls in the formats of models: against xgrammar, and what each choice of tools allows."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from tag_formats import by_matcher, strings_of, token_verdict

from stepmask.grammar.errors import GrammarError, GrammarSyntaxError, GrammarUnsupported
from stepmask.grammar.model_tags import MODELS, model_format, model_structural_tag
from stepmask.grammar.structural_tag import structural_tag
from stepmask.masks.compiled import compile
from stepmask.masks.vocabulary import Vocabulary

FIXED = {"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}, "required": ["a"]}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": FIXED}} for name in ("f", "g")]
THIS = {"type": "function", "function": {"name": "g"}}
#: (choice, reasoning, whether calls may be several), in turn for each model.
SETTINGS = [("auto", "enabled", True), ("required", "disabled", True), (THIS, "auto", True), ("auto", "auto", False)]
SETTINGS += [("required", "auto", False), ("none", "enabled", True), ("auto", "disabled", True)]


def arguments_of(value: Any) -> list[str]:
    """Arguments of a call, well written and not, in the style that a structural tag asks for."""
    style = next(iter(styles_of(value)), "json")
    return {
        "json": ['{"a": "x"}', '{"a": "x", "n": 1}', '{"n": 1}'],
        "qwen_xml": ["<parameter=a>x</parameter>", "<parameter=n>1</parameter>"],
        "minimax_xml": ['<parameter name="a">x</parameter>', '<parameter name="n">1</parameter>'],
        "glm_xml": ["<arg_key>a</arg_key><arg_value>x</arg_value>", "<arg_key>n</arg_key><arg_value>1</arg_value>"],
        "gemma": ['{a:<|"|>x<|"|>}', '{a:<|"|>x<|"|>,n:1}', "{n:1}"],
        "cohere_xml": [
            '<cofl:value name="a" type="raw">x</cofl:value>',
            '<cofl:value name="n" type="json">1</cofl:value>',
        ],
        "kimi_k3_xml": [
            '<|open|>argument key="a" type="string"<|sep|>x<|close|>argument<|sep|>',
            "<|close|>call<|sep|>",
        ],
        "minimax_m3_xml": ["]<]minimax[>[<a>x]<]minimax[>[</a>", "]<]minimax[>[<n>1]<]minimax[>[</n>"],
        "deepseek_xml": ['<｜DSML｜parameter name="a" string="true">x</｜DSML｜parameter>'],
        "deepseek_v4_1_xml": ['<｜DSML｜ parameter name="a" string="true">x</｜DSML｜ parameter>'],
    }[style]


def styles_of(value: Any) -> list[str]:
    if isinstance(value, list):
        return [style for inner in value for style in styles_of(inner)]
    if not isinstance(value, dict):
        return []
    own = [value["style"]] if value.get("type") == "json_schema" and value.get("style", "json") != "json" else []
    return own + [style for inner in value.values() for style in styles_of(inner)]


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("model", MODELS)
def test_as_in_xgrammar(model: str, number: int) -> None:
    xgrammar = pytest.importorskip("xgrammar")
    from xgrammar.testing import _is_grammar_accept_string

    choice, reasoning, parallel = SETTINGS[(MODELS.index(model) + 2 * number) % len(SETTINGS)]
    value = xgrammar.get_model_structural_tag(
        model, tools=TOOLS, tool_choice=choice, reasoning=reasoning, parallel_tool_calls=parallel
    )
    value = json.loads(value.model_dump_json())["format"]
    their_grammar = xgrammar.Grammar.from_structural_tag(json.dumps({"type": "structural_tag", "format": value}))
    own = model_format(model, TOOLS, tool_choice=choice, reasoning=reasoning, parallel=parallel)
    ours = by_matcher(structural_tag(own))
    pieces = [*dict.fromkeys(text for text in (*strings_of(value), *strings_of(own)) if text)]
    pieces += [*arguments_of(own), "text", "\n", "7"]
    # Walks that go on only where the text may, by the piece least used: nearly all random texts would be dead.
    taken = 0
    for seed in range(3):
        text = ""
        for step in range(14):
            order = sorted(pieces, key=lambda piece: (text.count(piece), hash_of(f"{seed} {step} {piece}")))
            for piece in [*order[:3], ""]:
                expected = _is_grammar_accept_string(their_grammar, text + piece)
                if model == "harmony" and choice not in ("auto", "none"):
                    expected = expected and "<|call|>" in text + piece  # xgrammar does not ask for a call
                assert ours(text + piece)[0] == expected, text + piece
            taken += ours(text)[0]
            text = next((text + piece for piece in order if ours(text + piece)[1]), text)
    assert taken or choice not in ("auto", "none")


def hash_of(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


CALL = '<tool_call>\n{"name": "g", "arguments": {"a": "x"}}\n</tool_call>'


def test_choices() -> None:
    def verdict(**options: Any) -> Any:
        return by_matcher(model_structural_tag("qwen_3", TOOLS, reasoning="disabled", **options))

    auto, none, required = verdict(), verdict(tool_choice="none"), verdict(tool_choice="required")
    assert auto("")[0] and auto(f"I look.{CALL}")[0] and auto(CALL + CALL.replace('"g"', '"f"'))[0]
    assert none("text")[0] and not none("<think>")[1]
    assert required(CALL)[0] and not required("")[0] and not required(f"I look.{CALL}")[0]
    this = verdict(tool_choice=THIS)
    assert this(CALL)[0] and not this(CALL.replace('"g"', '"f"'))[1] and not this(CALL + CALL)[0]
    once = verdict(parallel=False)
    assert once(f"I look.{CALL}")[0] and not once(CALL + CALL)[1] and not once(CALL + "text")[1]
    allowed = verdict(tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [THIS]}})
    assert allowed(CALL)[0] and not allowed("")[0] and not allowed(CALL.replace('"g"', '"f"'))[1]
    free = verdict(exclude_markers=False, tool_choice="none")
    assert free("<think>")[0]


def test_arguments() -> None:
    tool = {"name": "g", "parameters": FIXED}
    in_order = by_matcher(model_structural_tag("qwen_3", [tool], reasoning="disabled"))
    swapped = CALL.replace('{"a": "x"}', '{"n": 1, "a": "x"}')
    assert not in_order(swapped)[1] and not in_order(CALL.replace('"a"', '"b"'))[0]
    assert by_matcher(model_structural_tag("qwen_3", [tool], reasoning="disabled", any_order=True))(swapped)[0]
    loose = by_matcher(model_structural_tag("qwen_3", [{**tool, "strict": False}], reasoning="disabled"))
    assert loose(CALL.replace('"a"', '"b"'))[0]
    wide = CALL.replace('{"a"', '{     "a"')
    assert in_order(wide)[0]
    assert not by_matcher(model_structural_tag("qwen_3", [tool], reasoning="disabled", max_whitespace=4))(wide)[1]


def test_a_required_call_of_gpt_oss_is_there() -> None:
    final = "<|channel|>analysis<|message|>I look.<|end|>"
    call = '<|channel|>commentary to=functions.f<|constrain|>json<|message|>{"a": "x"}<|call|>'
    for parallel in (True, False):
        verdict = by_matcher(model_structural_tag("harmony", TOOLS, tool_choice="required", parallel=parallel))
        assert verdict(call)[0] and verdict(f"{final}<|start|>assistant{call}")[0]
        assert not verdict("")[0] and not verdict(final)[0]
        assert verdict(f"{call}<|start|>assistant{call}")[0] == parallel
    search = {"type": "web_search", "name": "browser.search", "parameters": FIXED}
    verdict = by_matcher(model_structural_tag("harmony", [search, *TOOLS], tool_choice={"type": "web_search"}))
    assert (
        verdict('<|channel|>commentary to=browser.search code<|message|>{"a": "x"}<|call|>')[0] and not verdict(call)[1]
    )


def test_markers_that_are_special_tokens() -> None:
    names = ["<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|constrain|>", "<|eot|>"]
    tokens = [bytes([byte]) for byte in range(256)] + [name.encode() for name in names] + [b""]
    ids = {name: 256 + number for number, name in enumerate(names)}
    vocabulary = Vocabulary.from_bytes(tokens, eos=[264], special=[*ids.values(), 264], names=ids)
    grammar = model_structural_tag("harmony", TOOLS, special_tokens=vocabulary.special_names)
    accepts = token_verdict(compile(grammar, vocabulary, use_cache=False))
    channel, message, end, call, _, start, constrain, _ = ids.values()
    assert accepts(channel, "final", message, "Hi <|end|> there", end)
    said = (channel, "analysis", message, "so", end, start, "assistant")
    assert accepts(*said, channel, "commentary to=functions.f", constrain, "json", message, '{"a": "x"}', call)
    assert not accepts("<|channel|>final", message, "Hi", end) and not accepts(channel, "final", message, "Hi")
    # Without the names they are text, which special tokens are not.
    plain = token_verdict(compile(model_structural_tag("harmony", TOOLS), vocabulary, use_cache=False))
    assert plain("<|channel|>final<|message|>Hi<|end|>") and not plain(channel, "final", message, "Hi", end)


WRONG: list[tuple[dict[str, Any], type[GrammarError], str]] = [
    ({"model": "gpt"}, GrammarUnsupported, "model"),
    ({"tools": [1]}, GrammarSyntaxError, "tools/0"),
    ({"tools": [{"type": "function", "function": 1}]}, GrammarSyntaxError, "tools/0/function"),
    ({"tools": [{"type": "function", "function": {}}]}, GrammarSyntaxError, "tools/0"),
    ({"tools": [{"name": "f", "parameters": 1}]}, GrammarSyntaxError, "tools/0/parameters"),
    ({"tools": [TOOLS[0], TOOLS[0]]}, GrammarSyntaxError, "tools/1"),
    ({"tools": [{"type": "web_search"}]}, GrammarUnsupported, "tools/0"),
    ({"tool_choice": "required"}, GrammarSyntaxError, "tool_choice"),
    ({"tool_choice": "f"}, GrammarSyntaxError, "tool_choice"),
    ({"tool_choice": THIS}, GrammarSyntaxError, "tool_choice"),
    ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": []}}}, GrammarSyntaxError, "tool_choice"),
    ({"tool_choice": {}}, GrammarSyntaxError, "tool_choice"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "kind", "place"), WRONG, ids=str)
def test_what_is_refused(options: dict[str, Any], kind: type[GrammarError], place: str) -> None:
    with pytest.raises(kind) as caught:
        model_structural_tag(**{"model": "llama", **options})
    assert caught.value.place == place


def test_reasoning_is_one_of_three() -> None:
    with pytest.raises(ValueError, match="reasoning"):
        model_structural_tag("llama", reasoning="yes")  # type: ignore[arg-type]
