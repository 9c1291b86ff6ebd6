"""The formats in which models write tool calls and their reasoning, as data.

They are those of the models' chat templates, by the names that xgrammar and vLLM have for them.
"""

from __future__ import annotations

from dataclasses import dataclass

_THINK = ("<think>", "</think>")


@dataclass(frozen=True)
class ModelFormat:
    """How a model writes: perhaps a reasoning section, then free text with calls of tools.

    In texts ``$NAME`` stands for the name of a tool, ``$NUMBER`` for some digits, ``$ARGUMENTS`` for what the tool is
    given.
    """

    #: One call.
    call: str
    #: What free text turns into calls with: the beginning of a call, or of the section that holds them.
    trigger: str
    #: How arguments are written: a style of the format `json_schema`.
    style: str = "json"
    #: What stands before and behind all calls, where they are a section, and what between two of them.
    section: tuple[str, str] | None = None
    separator: str = ""
    #: What stands before a section that has to be there.
    lead: str = ""
    #: Whether a section that has to be there is free text's first, with more behind it; and whether nothing may follow
    #: one that need not be there.
    text_follows_section: bool = False
    section_ends: bool = False
    #: What the reasoning stands between, None for models without; whether the prompt has begun it already; what stands
    #: behind it.
    reasoning: tuple[str, str] | None = _THINK
    prompt_begins_reasoning: bool = True
    behind_reasoning: str = ""
    #: What stands for no reasoning at all, where something does; and what may stand for it where it is optional.
    no_reasoning: str = ""
    skipped_reasoning: str = ""
    #: What free text, free text where there are no tools, reasoning, and reasoning that is optional do not hold, and
    #: what strings among the arguments do not.
    text_excludes: tuple[str, ...] = _THINK
    plain_excludes: tuple[str, ...] | None = None
    reasoning_excludes: tuple[str, ...] = _THINK
    optional_excludes: tuple[str, ...] | None = None
    argument_excludes: tuple[str, ...] = ()


_DEEPSEEK_SECTION = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
_GLM_ARGUMENTS = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
_MIMO = (*_THINK, "</tool_call>", "<function=")
_GEMMA = ("<|channel>", "<channel|>")
_M3 = "]<]minimax[>["
_M3_TEXT = ("<mm:think>", "</mm:think>", f"{_M3}</tool_call>", f"{_M3}<invoke", f"{_M3}</invoke>")


def _qwen_xml() -> ModelFormat:
    return ModelFormat(
        call="<tool_call>\n<function=$NAME>\n$ARGUMENTS\n</function>\n</tool_call>",
        trigger="<tool_call>\n<function=",
        style="qwen_xml",
        behind_reasoning="\n\n",
    )


def _dsml(calls: str, space: str = "", *, style: str, ends: bool, plain: tuple[str, ...] | None = None) -> ModelFormat:
    """DeepSeek's markup from V3.2 on."""
    return ModelFormat(
        call=f'<｜DSML｜{space}invoke name="$NAME">\n$ARGUMENTS</｜DSML｜{space}invoke>\n',
        trigger=f"<｜DSML｜{calls}>",
        style=style,
        section=(f"<｜DSML｜{calls}>\n", f"</｜DSML｜{calls}>"),
        lead="\n\n",
        section_ends=ends,
        plain_excludes=plain,
    )


MODEL_FORMATS: dict[str, ModelFormat] = {
    # Llama 3 to 3.2: llama.com/docs/model-cards-and-prompt-formats/llama3_1
    "llama": ModelFormat(
        call='{"name": "$NAME", "parameters": $ARGUMENTS}', trigger='{"name": ', reasoning=None, behind_reasoning=""
    ),
    # Qwen 3 and Qwen3-Next (as Hermes wrote them first): qwen.readthedocs.io, function calling
    "qwen_3": ModelFormat(
        call='<tool_call>\n{"name": "$NAME", "arguments": $ARGUMENTS}\n</tool_call>',
        trigger="<tool_call>",
        behind_reasoning="\n\n",
    ),
    # Qwen3-Coder, Qwen 3.5 and 3.6
    "qwen_3_coder": _qwen_xml(),
    "qwen_3_5": _qwen_xml(),
    # MiMo-V2.6
    "mimo": ModelFormat(
        call="<tool_call><function=$NAME>$ARGUMENTS</function></tool_call>",
        trigger="<tool_call>",
        style="qwen_xml",
        prompt_begins_reasoning=False,
        text_excludes=_MIMO,
        plain_excludes=("<tool_call>", *_MIMO),
        reasoning_excludes=("<tool_call>", *_MIMO),
    ),
    # EXAONE 4.0
    "exaone": ModelFormat(
        call='<tool_call>{"name": "$NAME", "arguments": $ARGUMENTS}</tool_call>',
        trigger="<tool_call>",
        behind_reasoning="\n\n",
        reasoning_excludes=(),
        optional_excludes=_THINK,
    ),
    # Kimi K2 and K2.5: docs/tool_call_guidance.md of moonshotai/Kimi-K2-Instruct
    "kimi": ModelFormat(
        call="<|tool_call_begin|>functions.$NAME:$NUMBER<|tool_call_argument_begin|>$ARGUMENTS<|tool_call_end|>",
        trigger="<|tool_calls_section_begin|>",
        section=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        text_excludes=(*_THINK, "<|tool_call_begin|>"),
        plain_excludes=_THINK,
        reasoning_excludes=(),
        optional_excludes=_THINK,
    ),
    # DeepSeek-R1 and R1-0528
    "deepseek_r1": ModelFormat(
        call="<｜tool▁call▁begin｜>function<｜tool▁sep｜>$NAME\n```json\n$ARGUMENTS\n```<｜tool▁call▁end｜>",
        trigger=_DEEPSEEK_SECTION[0],
        section=_DEEPSEEK_SECTION,
        separator="\n",
    ),
    # DeepSeek-V3.1 and V3.2-Exp
    "deepseek_v3_1": ModelFormat(
        call="<｜tool▁call▁begin｜>$NAME<｜tool▁sep｜>$ARGUMENTS<｜tool▁call▁end｜>",
        trigger=_DEEPSEEK_SECTION[0],
        section=_DEEPSEEK_SECTION,
    ),
    "deepseek_v3_2": _dsml("function_calls", style="deepseek_xml", ends=False),
    "deepseek_v4": _dsml("tool_calls", style="deepseek_xml", ends=True),
    "deepseek_v4_1": _dsml(" calls", " ", style="deepseek_v4_1_xml", ends=True, plain=(*_THINK, "<｜DSML｜ calls>")),
    # MiniMax-M2.5 and M2.7
    "minimax": ModelFormat(
        call='<invoke name="$NAME">\n$ARGUMENTS</invoke>\n',
        trigger="<minimax:tool_call>",
        style="minimax_xml",
        section=("<minimax:tool_call>\n", "</minimax:tool_call>"),
        lead="\n",
        behind_reasoning="\n\n",
        no_reasoning="\n</think>\n\n\n\n",
        reasoning_excludes=(),
        optional_excludes=_THINK,
    ),
    "minimax_m3": ModelFormat(
        call=f'{_M3}<invoke name="$NAME">$ARGUMENTS{_M3}</invoke>\n',
        trigger=f"{_M3}<tool_call>",
        style="minimax_m3_xml",
        section=(f"{_M3}<tool_call>\n", f"{_M3}</tool_call>"),
        text_follows_section=True,
        reasoning=("<mm:think>", "</mm:think>"),
        skipped_reasoning="</mm:think>",
        text_excludes=_M3_TEXT,
        plain_excludes=(f"{_M3}<tool_call>", *_M3_TEXT),
        reasoning_excludes=(f"{_M3}<tool_call>", *_M3_TEXT),
    ),
    # GLM-4.7 and GLM-5
    "glm_4_7": ModelFormat(
        call="<tool_call>$NAME$ARGUMENTS</tool_call>",
        trigger="<tool_call>",
        style="glm_xml",
        text_excludes=(*_THINK, "</tool_call>", *_GLM_ARGUMENTS),
        plain_excludes=(*_THINK, "<tool_call>", "</tool_call>", *_GLM_ARGUMENTS),
        reasoning_excludes=(*_THINK, "<tool_call>", "</tool_call>", *_GLM_ARGUMENTS),
    ),
    # Gemma 4: ai.google.dev/gemma/docs/core/prompt-formatting-gemma4
    "gemma_4": ModelFormat(
        call="<|tool_call>call:$NAME$ARGUMENTS<tool_call|>",
        trigger="<|tool_call>",
        style="gemma",
        reasoning=("<|channel>thought\n", "<channel|>"),
        prompt_begins_reasoning=False,
        text_excludes=_GEMMA,
        plain_excludes=(*_GEMMA, "<|tool_call>"),
        reasoning_excludes=(*_GEMMA, "<|tool_call>"),
        argument_excludes=(*_GEMMA, "<|tool_call>", "<tool_call|>"),
    ),
    # Command models of Cohere
    "cohere": ModelFormat(
        call='<cofl:tool_call id="$NUMBER" name="$NAME">$ARGUMENTS</cofl:tool_call>',
        trigger="<cofl:tool_calls>",
        style="cohere_xml",
        section=("<cofl:tool_calls>", "</cofl:tool_calls>"),
        reasoning=("<|START_THINKING|>", "<|END_THINKING|>"),
        text_excludes=("<|START_THINKING|>", "<|END_THINKING|>"),
        reasoning_excludes=(),
        optional_excludes=("<|START_THINKING|>", "<|END_THINKING|>"),
    ),
}
