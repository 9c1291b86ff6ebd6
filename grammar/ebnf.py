r"""The EBNF front end: the grammar format of XGrammar, which vLLM's and SGLang's EBNF fields take.

Source: XGrammar's documentation of its EBNF and its parser, `cpp/grammar_parser.cc`, as of version 0.2.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from .bnf import parse
from .bnf_dialect import Dialect, GrammarText
from .expression import Alternation, Expression, Grammar, Source, Token
from .limits import Limits, checked_limits

if TYPE_CHECKING:
    import lark

# A name is a rule's where ::= follows, perhaps after options; what comes between must match in one way only.
_GRAMMAR = r"""
start: rule*
rule: RULE OPTIONS? ASSIGN choices (LOOKAHEAD choices RPAR)?
choices: sequence (PIPE sequence)*
sequence: _item+
_item: item
?item: atom
    | atom SIGN -> repeat
    | atom LBRACE INTEGER (COMMA (INTEGER | NAME)?)? RBRACE -> repeat
?atom: STRING | CLASS | NAME
    | LPAR choices RPAR -> group
    | LPAR RPAR -> group
    | MACRO LPAR (_argument (COMMA _argument)*)? RPAR -> macro
_argument: _value | NAME EQUAL _value
_value: STRING | INTEGER | NAME | LPAR (_value (COMMA _value)* COMMA?)? RPAR

RULE.3: /[A-Za-z_.\-][A-Za-z0-9_.\-]*(?=(?:[ \t\r\n]|#[^\r\n]*[\r\n])*(?:\[[^\]\r\n]*\][ \t]*)?::=)/
OPTIONS.2: /\[[^\]\r\n]*\](?=[ \t]*::=)/
MACRO.1: /(?:Regex|Substring|TagDispatch|Token|ExcludeToken|TokenTagDispatch)(?![A-Za-z0-9_.\-])/
NAME: /(?!\.(?![A-Za-z0-9_.\-]))[A-Za-z_.\-][A-Za-z0-9_.\-]*/
INTEGER: /[0-9]+/
ASSIGN: "::="
EQUAL: "="
PIPE: "|"
SIGN: /[*+?]/
LBRACE: "{"
RBRACE: "}"
COMMA: ","
LOOKAHEAD: "(="
LPAR: "("
RPAR: ")"
STRING: /"[^"\\\r\n]*(?:\\[^\r\n][^"\\\r\n]*)*"/
CLASS: /\[[^\]\\\r\n]*(?:\\[^\r\n][^\]\\\r\n]*)*\]/
COMMENT: /#[^\r\n]*/
BLANKS: /[ \t\r\n]+/
%ignore COMMENT
%ignore BLANKS
"""

_ESCAPES = dict(zip("abtnvfre0'\"?\\/", b"\a\b\t\n\v\f\r\x1b\0'\"?\\/", strict=True))
_HEXADECIMAL = {"x": 0, "u": 4, "U": 8}
_CLASS_ESCAPES = "^$.*+()[]{}|-"
_SHORTHANDS = {"d": "0-9", "w": "a-zA-Z0-9_", "s": r" \t\n\r", "D": "[^0-9]", "W": "[^a-zA-Z0-9_]", "S": r"[^ \t\n\r]"}


def ebnf(text: str, *, start: str = "root", limits: Limits | None = None) -> Grammar:
    r"""The texts that the rule `start` of an EBNF grammar, as XGrammar and the servers that use it take it, matches.

    Rules ``name ::= ...``, each at the beginning of a line; ``|``, groups, ``* + ?``, ``{m}``, ``{m,}``, ``{m,n}``,
    strings, character classes (``[^]`` for any character), ``#`` comments, C's escapes, ``\xN...``, ``\uNNNN`` and
    ``\UNNNNNNNN``, and ``Token(id, ...)``, any one of these tokens. Line ends mean nothing else.

    Raises `GrammarSyntaxError` for what is not a grammar, also for a rule that is not defined or defined twice;
    `GrammarUnsupported` for lookahead assertions ``(= ...)``, rule options like ``name[max_tokens=9]``, and the macros
    ``Regex``, ``Substring``, ``TagDispatch``, ``TokenTagDispatch`` and ``ExcludeToken``; and `GrammarTooLarge` past
    `limits.max_repeat` or `limits.max_depth`. Each names line and column. `TypeError` where `text` is not `str`.
    """
    return parse(text, _DIALECT, start, checked_limits(limits))


class _Ebnf(Dialect):
    kind = "ebnf"
    grammar = _GRAMMAR
    redefines = False
    escapes = _ESCAPES
    hexadecimal = _HEXADECIMAL

    def read_escape(self, where: GrammarText, position: int, in_class: bool) -> tuple[int, int]:
        letter = where.text[position + 1]
        if in_class and letter in _CLASS_ESCAPES:
            return ord(letter), position + 2
        if in_class and letter in _SHORTHANDS:
            message = f"\\{letter} is not supported in a character class; write {_SHORTHANDS[letter]}"
            raise where.unsupported(message, position)
        return super().read_escape(where, position, in_class)

    def check_rule(self, where: GrammarText, rule: lark.Tree[lark.Token]) -> None:
        tokens = [child for child in rule.children if not hasattr(child, "data")]
        for token in tokens:
            offset = cast(int, token.start_pos)
            if token.type == "RULE" and not where.begins_line(offset):
                raise where.wrong(f"begin the rule {token} on a line of its own", offset)
            if token.type == "OPTIONS":
                raise where.unsupported(f"the rule options {token} are not supported; leave them out", offset)
            if token.type == "LOOKAHEAD":
                message = "the lookahead assertion (= ...) is not supported; leave it out: XGrammar does not enforce it"
                raise where.unsupported(message, offset)

    def construct(self, where: GrammarText, part: lark.Tree[lark.Token], source: Source) -> Expression:
        name, _, *arguments, _ = cast("list[lark.Token]", part.children)
        start = cast(int, name.start_pos)
        if name != "Token":
            raise where.unsupported(f"the macro {name} is not supported; write out what it stands for", start)
        if not arguments or any(argument.type != "INTEGER" for argument in arguments[::2]):
            raise where.wrong("Token(...) takes one or more token ids", start)
        tokens = tuple(Token(where.token_id(argument, start), source=source) for argument in arguments[::2])
        return tokens[0] if len(tokens) == 1 else Alternation(tokens, source=source)

    def explain_character(self, character: str) -> str | None:
        return "any character is written [^]" if character == "." else None

    def explain(self, token: lark.Token, previous: str, expected: set[str]) -> str | None:
        if token.type in ("SIGN", "LBRACE") and previous in ("SIGN", "RBRACE"):
            return f"{token} after another repetition; use parentheses: (...){token}"
        if token.type == "ASSIGN" or expected <= {"RULE", "$END"}:
            return "a rule begins with its name and ::="
        if "STRING" in expected and previous in ("ASSIGN", "PIPE", "LPAR") and token.type not in ("SIGN", "LBRACE"):
            return 'an alternative is empty; write "" for the empty string'
        return None


_DIALECT = _Ebnf()
