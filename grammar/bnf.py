"""What the GBNF and EBNF front ends share: rules ``name ::= alternatives``, parsed with a lark grammar.

A dialect brings its lark grammar and its escapes; here its parse tree becomes rules of expressions. Nothing recurses:
lark's LALR parser keeps a stack of its own, and so does what reads the tree.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from .bnf_dialect import Dialect, GrammarText, describe
from .bnf_tree import TreeReader
from .errors import GrammarSyntaxError
from .expression import Grammar
from .limits import Limits

if TYPE_CHECKING:
    import lark

    from .bnf_dialect import Tree

#: Terminals as messages call them.
_WORDS = {
    "RULE": "a rule, name ::= ...",
    "ASSIGN": "::=",
    "STRING": "a string",
    "CLASS": "a character class",
    "NAME": "a rule name",
    "INTEGER": "a number",
    "LPAR": "(",
    "RPAR": ")",
    "RBRACE": "}",
    "COMMA": ",",
    "EQUAL": "=",
    "PIPE": "|",
    "_NEWLINE": "the end of the line",
    "$END": "the end of the grammar",
}


def parse(text: str, dialect: Dialect, start: str, limits: Limits) -> Grammar:
    """The grammar that `text` writes in `dialect`, with the rule `start` to begin with."""
    if not isinstance(text, str):
        raise TypeError(f"{dialect.kind} grammars are text, not {type(text).__name__}: {text!r:.60}")
    where = GrammarText(text)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = "the grammar holds a lone surrogate, which is not a character; write the character itself"
        raise where.wrong(message, error.start) from None
    tree = _tree(where, dialect)
    reader = TreeReader(where, dialect, limits)
    rules = reader.rules(tree)
    if start not in rules:
        known = ", ".join(list(rules)[:5]) + (", ..." if len(rules) > 5 else "")
        advice = f"name it, or pass start= with one of: {known}" if rules else "the grammar has no rules"
        raise where.wrong(f"there is no rule {start} to start with; {advice}", 0)
    reader.check_references(rules)
    return Grammar(dialect.kind, text, rules, start)


@functools.cache
def _parser(dialect: Dialect) -> lark.Lark:
    import lark

    class PostLexer(lark.lark.PostLex):
        def process(self, stream: Iterator[lark.Token]) -> Iterator[lark.Token]:
            return dialect.line_ends(stream)

    options: dict[str, Any] = {"lexer": "basic", "postlex": PostLexer()}
    return lark.Lark(dialect.grammar, parser="lalr", **options)


def _tree(where: GrammarText, dialect: Dialect) -> Tree:
    import lark

    try:
        return _parser(dialect).parse(where.text)
    except lark.UnexpectedCharacters as error:
        raise _character_error(where, dialect, cast(int, error.pos_in_stream)) from None
    except lark.UnexpectedToken as error:
        raise _token_error(where, dialect, error) from None


def _character_error(where: GrammarText, dialect: Dialect, offset: int) -> GrammarSyntaxError:
    character = where.text[offset]
    if character == '"':
        return where.wrong('the string is not closed; add ", or write \\" for a quote within it', offset)
    if character == "[":
        return where.wrong("the character class is not closed; add ], or write \\[ for a bracket within one", offset)
    if character == "'":
        return where.wrong('strings are written in double quotes: "..."', offset)
    advice = dialect.explain_character(character)
    return where.wrong(f"unexpected character {character!r}" + (f"; {advice}" if advice else ""), offset)


def _token_error(where: GrammarText, dialect: Dialect, error: lark.UnexpectedToken) -> GrammarSyntaxError:
    import lark

    token, expected = error.token, set(error.expected)
    offset = len(where.text) if token.type == "$END" else cast(int, token.start_pos)
    read = error.state.value_stack
    previous = read[-1].type if read and isinstance(read[-1], lark.Token) else ""
    opened = [value for value in read if isinstance(value, lark.Token) and value.type == "LPAR"]
    if opened and token.type in ("$END", "ASSIGN", "RULE"):
        return where.wrong("the group is not closed; add )", cast(int, opened[-1].start_pos))
    explained = dialect.explain(token, previous, expected)
    if explained is not None:
        return where.wrong(explained, offset)
    if previous == "LBRACE":
        return where.wrong("a number must follow {" + ("; write {0,n} for at most n" if token == "," else ""), offset)
    if token.type == "RPAR" and not opened:
        return where.wrong('this parenthesis closes no group; write ")" for a parenthesis', offset)
    if token.type in ("SIGN", "LBRACE"):
        return where.wrong(f"nothing to repeat before {token}", offset)
    wanted = " or ".join(word for name, word in _WORDS.items() if name in expected)
    return where.wrong(f"unexpected {describe(token)}" + (f"; expected {wanted}" if len(wanted) < 60 else ""), offset)
