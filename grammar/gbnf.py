r"""The GBNF front end: llama.cpp's grammar format.

Source: `grammars/README.md` and the parser in `src/llama-grammar.cpp` of llama.cpp, as of 2026, with token references.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from .bnf import parse
from .bnf_dialect import Dialect, GrammarText, describe
from .expression import ALL_CODE_POINTS, Characters, Expression, Grammar, Source, Token
from .limits import Limits, checked_limits

if TYPE_CHECKING:
    import lark

_GRAMMAR = r"""
start: (rule (_NEWLINE rule)*)?
rule: NAME ASSIGN choices
choices: sequence (PIPE sequence)*
sequence: _item*
_item: item
?item: atom
    | item SIGN -> repeat
    | item LBRACE NAME (COMMA NAME?)? RBRACE -> repeat
?atom: STRING | CLASS | DOT | NAME | TOKEN | OTHER_TOKEN
    | LPAR choices RPAR -> group

NAME: /[A-Za-z0-9_-]+/
ASSIGN: "::="
PIPE: "|"
SIGN: /[*+?]/
LBRACE: "{"
RBRACE: "}"
COMMA: ","
LPAR: "("
RPAR: ")"
DOT: "."
STRING: /"[^"\\]*(?:\\[\s\S][^"\\]*)*"/
CLASS: /\[[^\]\\]*(?:\\[\s\S][^\]\\]*)*\]/
TOKEN: /<(?:\[[0-9]+\]|[^\[>][^>]*)>/
OTHER_TOKEN: /!<(?:\[[0-9]+\]|[^\[>][^>]*)>/
_NEWLINE: /\r\n|\r|\n/
COMMENT: /#[^\r\n]*/
BLANKS: /[ \t]+/
%ignore COMMENT
%ignore BLANKS
"""

_ESCAPES = {"t": 9, "r": 13, "n": 10, "\\": 92, '"': 34, "[": 91, "]": 93, "-": 45}
_HEXADECIMAL = {"x": 2, "u": 4, "U": 8}


def gbnf(text: str, *, start: str = "root", limits: Limits | None = None) -> Grammar:
    r"""The texts that the rule `start` of a GBNF grammar matches.

    All of llama.cpp's format: rules ``name ::= ...``, ``|``, groups, ``* + ?``, ``{m}``, ``{m,}``, ``{m,n}``, character
    classes, ``.`` for any character, comments, the escapes ``\n \r \t \\ \" \[ \] \- \xNN \uNNNN \UNNNNNNNN`` (each of
    them a character), and the tokens ``<[id]>`` and ``<text>``. A line's end ends a rule, except within parentheses and
    after ``::=`` or ``|``. A rule that is defined again replaces the earlier one, as in llama.cpp.

    Where llama.cpp gives up or changes the meaning, the grammar means what it says: left recursion works, and so do
    repetitions over 2,000 (where llama.cpp makes ``{0,2001}`` unbounded).

    Raises `GrammarSyntaxError` for what is not a grammar, also for a rule that is not defined; `GrammarUnsupported` for
    ``!<...>`` (any token but one) and for ``[]`` and ``[^]``, which llama.cpp reads as the empty string; and
    `GrammarTooLarge` past `limits.max_repeat` or `limits.max_depth`. Each names line and column. `TypeError` where
    `text` is not `str`.
    """
    return parse(text, _DIALECT, start, checked_limits(limits))


class _Gbnf(Dialect):
    kind = "gbnf"
    grammar = _GRAMMAR
    redefines = True
    escapes = _ESCAPES
    hexadecimal = _HEXADECIMAL

    def line_ends(self, tokens: Iterator[lark.Token]) -> Iterator[lark.Token]:
        """Of the line ends only those that separate rules, one between two."""
        depth, previous, line_end = 0, None, None
        for token in tokens:
            if token.type == "_NEWLINE":
                if previous not in (None, "ASSIGN", "PIPE") and not depth:
                    line_end = line_end or token
                continue
            if line_end is not None:
                yield line_end
            depth += (token.type == "LPAR") - (token.type == "RPAR")
            previous, line_end = token.type, None
            yield token

    def check_empty_class(self, where: GrammarText, start: int, negated: bool) -> None:
        written, advice = ("[^]", ".") if negated else ("[]", '""')
        meant = "any character" if negated else "the empty string"
        message = f"{written} is not supported: llama.cpp reads it as the empty string; write {advice} for {meant}"
        raise where.unsupported(message, start)

    def atom(self, where: GrammarText, token: lark.Token, source: Source) -> Expression:
        if token.type == "DOT":
            return Characters(ALL_CODE_POINTS, source=source)
        start = cast(int, token.start_pos)
        if token.type == "OTHER_TOKEN":
            message = f"{token} (any token but one) is not supported; write which text may stand there"
            raise where.unsupported(message, start)
        return Token(where.token_id(token[2:-2], start) if token[1] == "[" else str(token), source=source)

    def explain_character(self, character: str) -> str | None:
        return {"<": "a token is written <[id]> or <text>", "!": "only a token can be negated: !<[id]>"}.get(character)

    def explain(self, token: lark.Token, previous: str, expected: set[str]) -> str | None:
        if expected == {"ASSIGN"}:
            return f"::= must follow the name of the rule, not {describe(token)}"
        if token.type == "PIPE" and expected <= {"NAME", "$END"}:
            return "a line cannot begin with |: the line before ended the rule; put | at its end, or use parentheses"
        if token.type == "ASSIGN":
            return "::= within a rule; begin every rule on a line of its own"
        return None


_DIALECT = _Gbnf()
