"""stepmask: token masks for structured LLM output that a decoding step never waits for.

The public names load on first use, so `import stepmask` imports no NumPy, Numba or torch and compiles nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .grammar.choice import choice
    from .grammar.ebnf import ebnf
    from .grammar.errors import (
        GrammarError,
        GrammarSyntaxError,
        GrammarTooLarge,
        GrammarUnsatisfiable,
        GrammarUnsupported,
    )
    from .grammar.expression import Grammar
    from .grammar.gbnf import gbnf
    from .grammar.json_schema import json_schema, tools
    from .grammar.json_value import json_object, json_value
    from .grammar.lark import lark
    from .grammar.limits import Limits
    from .grammar.model_tags import model_structural_tag
    from .grammar.reasoning import reasoning
    from .grammar.regex import regex
    from .grammar.structural_tag import structural_tag
    from .integrations.compile_service import CompileError, CompileService, ServiceLimits
    from .masks.batch import Batch
    from .masks.candidates import Candidates
    from .masks.compiled import CompiledGrammar, compile
    from .masks.errors import StackLimitError
    from .masks.library import prepare_library
    from .masks.matcher import Matcher
    from .masks.outcome import Late, Outcome
    from .masks.sampling import apply_masks, sample
    from .masks.vocabulary import Vocabulary, VocabularyError
    from .masks.warm_up import warm_up

__version__ = "0.1.0"

#: Public name -> the module that defines it.
_HOMES = {
    "Batch": ".masks.batch",
    "Candidates": ".masks.candidates",
    "CompileError": ".integrations.compile_service",
    "CompileService": ".integrations.compile_service",
    "CompiledGrammar": ".masks.compiled",
    "Grammar": ".grammar.expression",
    "GrammarError": ".grammar.errors",
    "GrammarSyntaxError": ".grammar.errors",
    "GrammarTooLarge": ".grammar.errors",
    "GrammarUnsatisfiable": ".grammar.errors",
    "GrammarUnsupported": ".grammar.errors",
    "Late": ".masks.outcome",
    "Limits": ".grammar.limits",
    "Matcher": ".masks.matcher",
    "Outcome": ".masks.outcome",
    "ServiceLimits": ".integrations.compile_service",
    "StackLimitError": ".masks.errors",
    "Vocabulary": ".masks.vocabulary",
    "VocabularyError": ".masks.vocabulary",
    "apply_masks": ".masks.sampling",
    "choice": ".grammar.choice",
    "compile": ".masks.compiled",
    "ebnf": ".grammar.ebnf",
    "gbnf": ".grammar.gbnf",
    "json_object": ".grammar.json_value",
    "json_schema": ".grammar.json_schema",
    "json_value": ".grammar.json_value",
    "lark": ".grammar.lark",
    "model_structural_tag": ".grammar.model_tags",
    "prepare_library": ".masks.library",
    "reasoning": ".grammar.reasoning",
    "regex": ".grammar.regex",
    "sample": ".masks.sampling",
    "structural_tag": ".grammar.structural_tag",
    "tools": ".grammar.json_schema",
    "warm_up": ".masks.warm_up",
}

__all__ = [
    "Batch",
    "Candidates",
    "CompileError",
    "CompileService",
    "CompiledGrammar",
    "Grammar",
    "GrammarError",
    "GrammarSyntaxError",
    "GrammarTooLarge",
    "GrammarUnsatisfiable",
    "GrammarUnsupported",
    "Late",
    "Limits",
    "Matcher",
    "Outcome",
    "ServiceLimits",
    "StackLimitError",
    "Vocabulary",
    "VocabularyError",
    "__version__",
    "apply_masks",
    "choice",
    "compile",
    "ebnf",
    "gbnf",
    "json_object",
    "json_schema",
    "json_value",
    "lark",
    "model_structural_tag",
    "prepare_library",
    "reasoning",
    "regex",
    "sample",
    "structural_tag",
    "tools",
    "warm_up",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
