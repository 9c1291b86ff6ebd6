"""The Lark front end: grammars in the language of the Python parser generator lark, read by its own loader."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lark.grammar import NonTerminal, Terminal
from lark.lexer import PatternStr, Token
from lark.tree import Tree

from . import lark_terminals
from .errors import GrammarSyntaxError, GrammarTooLarge, GrammarUnsupported
from .expression import Alternation, Bytes, Expression, Grammar, Reference, Repeat, Source
from .expression import Sequence as Series
from .expression import Token as SpecialToken
from .lark_loader import Loaded, load
from .lark_terminals import Place
from .limits import Limits

#: Rules that are not in the text; no name in Lark has such a sign.
_START, _IGNORED = "%start", "%ignore"
_LEXERS = ("dynamic", "longest")


def lark(
    text: str,
    start: str = "start",
    *,
    lexer: str = "dynamic",
    tokens: Mapping[str, str | int] | None = None,
    import_paths: Sequence[str] = (),
    limits: Limits | None = None,
) -> Grammar:
    r"""The texts that the rule `start` of a Lark grammar matches as a whole.

    Everything that decides what a grammar means is lark's own loader: templates, ``%import`` (from lark's library and
    from the folders `import_paths`; never from anywhere else), ``%extend``, ``%override``, EBNF operators, strings and
    patterns. What only shapes trees (``?rule``, ``_rule``, ``!rule``, aliases, priorities) leaves the language alone.

    The language is context-free over terminals, and a terminal matches each of its strings wherever it stands. This is
    what ``Lark(text, parser="earley", lexer="dynamic_complete")`` parses. Text that ``%ignore`` names may stand before,
    between and after terminals, also in a text of no terminal.

    * A terminal's strings are those that are their own first match by Python's `re`. So ``/a|ab/`` matches no ``ab``,
      and ``/".*?"/`` ends at the first quote. Strings joined within a terminal (``A: "a" | "ab"``) are tried longest
      first, as lark sorts them.
    * Lookarounds are enforced where the terminal's own text decides them. Where they would see what is around it they
      are refused, and so are anchors and word boundaries. The flag ``m`` concerns anchors alone.
    * What lark does and this does not: it skips ignored text only as far as that matches, so with ``%ignore / +/`` a
      terminal that begins with a blank finds none left; here any part of the blanks may be the ignored one. And it
      refuses two alternatives of a rule that become equal when options are left out; here that is one more way to
      parse the same text.

    ``%declare`` makes a terminal without a pattern: `tokens` names the special token that it stands for, by text or id
    (``tokens={"EOT": "<|eot|>"}``). It may also be written in a rule itself, as ``<|eot|>`` or ``<[128]>``. Ignored
    text may stand around it as around all terminals.

    Raises `GrammarSyntaxError` for what lark refuses, `GrammarUnsupported` for what is known and not enforced (besides
    the above: declared terminals that `tokens` lacks, as Python's indentation has; ``%json``, ``%regex`` and other
    extensions; ``lexer="longest"``), and `GrammarTooLarge` past a field of `limits`; each names line and column.
    """
    if not isinstance(text, str):
        raise TypeError(f"a Lark grammar must be str, not {type(text).__name__}: {text!r:.60}")
    if lexer not in _LEXERS:
        raise ValueError(f"lexer is one of {', '.join(_LEXERS)}, not {lexer!r}")
    if lexer == "longest":
        message = "lexer='longest' is not supported; leave it out for the language whatever the lexer"
        raise GrammarUnsupported(message)
    known = limits or Limits()
    loaded = load(text, import_paths, known)
    declared = dict(tokens or {})
    for name in declared:
        if name not in loaded.declared:
            raise GrammarSyntaxError(f"tokens names {name}, which the grammar does not declare (%declare {name})")
    builder = _Rules(loaded, {**declared, **loaded.tokens}, known)
    options = {"lexer": lexer, "tokens": declared}
    return Grammar("lark", text, builder.rules_from(start), builder.start, options)


class _Rules:
    """The rules of a loaded grammar that the start rule needs, as expressions."""

    def __init__(self, loaded: Loaded, tokens: Mapping[str, str | int], limits: Limits) -> None:
        self.start = _START if loaded.ignored else ""
        self._loaded = loaded
        self._tokens = tokens
        self._limits = limits
        self._rules: dict[str, Expression] = {}
        self._pending: list[str] = []
        self._uses: dict[str, Expression] = {}
        self._within = ""  # the rule being made

    def rules_from(self, start: str) -> dict[str, Expression]:
        """The expressions of `start` and all that it needs."""
        loaded, rules = self._loaded, self._rules
        if start not in loaded.rules:
            raise GrammarSyntaxError(f"there is no rule {start}, where the grammar is to start")
        if loaded.ignored:
            names = dict.fromkeys(loaded.ignored)
            rules[_START] = Series((Reference(_IGNORED), Reference(start)))
            rules[_IGNORED] = Repeat(_either([self._terminal(name) for name in names]), 0, None)
        else:
            self.start = start
        self._pending.append(start)
        while self._pending:
            name = self._pending.pop()
            if name not in rules:
                self._within = name
                rules[name] = self._expression(loaded.rules[name])
        return rules

    def _source(self, text: str, token: Token | None = None) -> Source:
        place = self._loaded.places[self._within]
        if token is not None and token.line and self._within.split("{")[0] in self._loaded.own:
            place = Place(token.line, token.column or 1)
        return Source(text, place.at(0))

    def _expression(self, node: Any) -> Expression:
        if isinstance(node, Terminal):
            return self._use(node.name)
        if isinstance(node, NonTerminal):
            self._pending.append(node.name)
            return Reference(node.name, source=self._source(node.name))
        assert isinstance(node, Tree)
        if node.data == "expansions":
            return _either([self._expression(option) for option in node.children])
        if node.data == "expansion":
            parts = tuple(self._expression(part) for part in node.children)
            return parts[0] if len(parts) == 1 else Series(parts) if parts else Bytes(b"")
        if node.data == "alias":
            return self._expression(node.children[0])
        if node.data == "maybe":
            return Repeat(self._expression(node.children[0]), 0, 1)
        assert node.data == "expr", node.data
        inner, operator, *numbers = node.children
        return self._repeat(inner, operator, numbers)

    def _repeat(self, inner: Any, operator: Any, numbers: list[Any]) -> Expression:
        body = self._expression(inner)
        if operator != "~":
            minimum, maximum = {"?": (0, 1), "*": (0, None), "+": (1, None)}[str(operator)]
            return Repeat(body, minimum, maximum, source=self._source(self._within, operator))
        written = "~" + "..".join(numbers)
        source = self._source(written, operator)
        limit = self._limits.max_repeat
        for number in numbers:
            if len(number.lstrip("+-0")) > 18 or int(number) > limit:
                message = f"{written:.30} is over the limit of {limit} repetitions"
                raise GrammarTooLarge(message, source.place, limit="max_repeat")
        low, high = int(numbers[0]), int(numbers[-1])
        if not 0 <= low <= high:
            raise GrammarSyntaxError(f"the bounds of {written} are negative or in the wrong order", source.place)
        return Repeat(body, low, high, source=source)

    # Terminals

    def _use(self, name: str) -> Expression:
        """A terminal within a rule, with the ignored text that may come after it."""
        use = self._uses.get(name)
        if use is None:
            use = self._terminal(name)
            if self._loaded.ignored:
                use = Series((use, Reference(_IGNORED)))
            self._uses[name] = use
        return use

    def _terminal(self, name: str) -> Expression:
        """A plain string as it is, and a reference to the rule of any other terminal."""
        place = self._loaded.places[name] if name in self._loaded.places else Place(1, 1)
        source = Source(name, place.at(0))
        if name in self._tokens:
            return SpecialToken(self._tokens[name], source=source)
        if name in self._loaded.declared:
            message = (
                f"the terminal {name} is declared without a pattern, as for a postlexer, which is not supported; "
                f"if it is a special token, give tokens={{{name!r}: ...}}"
            )
            raise GrammarUnsupported(message, place.at(0))
        pattern = self._loaded.terminals[name].pattern
        if isinstance(pattern, PatternStr) and not pattern.flags:
            return lark_terminals.literal(name, pattern.value, place)
        if name not in self._rules:
            text = pattern.value
            if isinstance(pattern, PatternStr):
                text, place = re.escape(text), Place(place.line, place.column)
            flags = frozenset(pattern.flags)
            self._rules[name] = lark_terminals.pattern(name, text, flags, place, self._limits)
            if pattern.min_width == 0:
                message = f"the terminal {name} can match the empty string, which lark does not take"
                raise GrammarSyntaxError(message, place.at(0))
        return Reference(name, source=source)


def _either(options: list[Expression]) -> Expression:
    return options[0] if len(options) == 1 else Alternation(tuple(options))
