"""The Lark front end: grammars in the language of the Python parser generator lark, read by its own loader."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

from lark.grammar import NonTerminal, Symbol
from lark.grammar import Terminal as Terminal_
from lark.lexer import PatternStr, Token
from lark.tree import Tree

from .errors import GrammarSyntaxError, GrammarTooLarge, GrammarUnsupported
from .expression import (
    ANY_CHARACTER,
    Alternation,
    Bytes,
    Characters,
    Expression,
    Grammar,
    Intersection,
    Ranges,
    Reference,
    Repeat,
    Source,
)
from .expression import Sequence as Series
from .expression import Token as SpecialToken
from .lark_ignored import Ignored
from .lark_lexer import Lexer
from .lark_loader import Loaded, load
from .lark_longest import Splitter, followers
from .lark_terminals import Place, Terminal, literal
from .limits import Limits, checked_limits
from .match_order import first_characters
from .ranges import negate, subtract, union

#: Rules that are not in the text; no name in Lark has such a sign.
_START, _IGNORED, _IGNORED_LAST = "%start", "%ignore", "%ignore at the end"
_LEXERS = ("dynamic", "longest")
#: Repeats from which on lark makes rules of their turns, so that a rule within itself counts as used.
_LARGE = 50


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
    * Ignored text is skipped as far as it matches, as in lark: with ``%ignore / +/`` no terminal that begins with a
      blank finds one behind another, and ``%ignore /#.*/`` takes the rest of the line. Where more than the next
      character would decide how far that is, the grammar is refused.
    * lark refuses a rule of which two alternatives become equal when its options are left out. Here that is one more
      way to parse the same text.

    With ``lexer="longest"`` a text is first cut into tokens as lark's basic lexer does it, and the language is context-
    free over these: the one of ``Lark(text, parser="lalr", lexer="basic")`` where lark finds no conflict. Terminals are
    tried in order of priority, width and length, each as far as it matches, and a string such as a keyword is preferred
    to a pattern that matches the same text. It is refused where more than the character behind a token decides where
    the token ends, as with ``NUMBER: /[0-9]+(\.[0-9]+)?/`` where a ``.`` may follow it.

    ``%declare`` makes a terminal without a pattern: `tokens` names the special token that it stands for, by text or id
    (``tokens={"EOT": "<|eot|>"}``). It may also be written in a rule itself, as ``<|eot|>`` or ``<[128]>``. Ignored
    text may stand around it as around all terminals.

    Raises `GrammarSyntaxError` for what lark refuses, `GrammarUnsupported` for what is known and not enforced (besides
    the above: declared terminals that `tokens` lacks, as Python's indentation has; ``%json``, ``%regex`` and other
    extensions), and `GrammarTooLarge` past a field of `limits`; each names line and column.
    """
    if not isinstance(text, str):
        raise TypeError(f"a Lark grammar must be str, not {type(text).__name__}: {text!r:.60}")
    if lexer not in _LEXERS:
        raise ValueError(f"lexer is one of {', '.join(_LEXERS)}, not {lexer!r}")
    known = checked_limits(limits)
    if tokens is not None and not isinstance(tokens, Mapping):
        raise TypeError(f"tokens are a mapping of names to texts or ids, not {type(tokens).__name__}: {tokens!r:.60}")
    declared = dict(tokens or {})
    for name, token in declared.items():
        if isinstance(token, bool) or not isinstance(token, (str, int)):
            raise TypeError(f"tokens: {name} is a token's text or id, not {type(token).__name__}: {token!r:.60}")
    if isinstance(import_paths, (str, bytes)) or not isinstance(import_paths, Iterable):
        raise TypeError(f"import_paths are a list of folders, not {import_paths!r:.60}: write import_paths=[...]")
    for folder in import_paths:
        if not isinstance(folder, (str, PathLike)):
            raise TypeError(f"import_paths: a folder is str or a path, not {type(folder).__name__}: {folder!r:.60}")
    try:
        loaded = load(text, import_paths, known)
        for name in declared:
            if name not in loaded.declared:
                raise GrammarSyntaxError(f"tokens names {name}, which the grammar does not declare (%declare {name})")
        builder = _Rules(loaded, {**declared, **loaded.tokens}, known)
        rules = builder.rules_from(start) if lexer == "dynamic" else builder.longest_rules_from(start)
    except RecursionError:
        message = "groups are nested too deeply for lark's loader; write inner ones as rules of their own"
        raise GrammarUnsupported(message) from None
    return Grammar("lark", text, rules, builder.start, {"lexer": lexer, "tokens": declared})


class _Rules:
    """The rules of a loaded grammar that the start rule needs, as expressions."""

    def __init__(self, loaded: Loaded, tokens: Mapping[str, str | int], limits: Limits) -> None:
        self.start = ""
        self._loaded = loaded
        self._tokens = tokens
        self._limits = limits
        self._rules: dict[str, Expression] = {}
        self._patterns: dict[str, Terminal] = {}
        #: What stands in rules for a terminal: itself and the ignored text beside it.
        self._uses: dict[str, Expression] = {}
        self._within = ""  # the rule being made

    def rules_from(self, start: str) -> dict[str, Expression]:
        """The expressions of `start` and all that it needs."""
        names, terminals = self._needed(start)
        self.start = start
        self._uses = {name: self._terminal(name) for name in terminals}
        if self._loaded.ignored:
            self._ignore(start)
        self._translate(names)
        return self._rules

    def longest_rules_from(self, start: str) -> dict[str, Expression]:
        """The same where terminals are the tokens of lark's basic lexer."""
        loaded = self._loaded
        names, terminals = self._needed(start)
        self._uses = {name: Reference(name) for name in terminals}
        self._translate(names)
        tokens = {}
        used = list(dict.fromkeys([*self._lexed(start), *loaded.ignored]))
        for name in [*terminals, *used]:
            terminal = self._terminal(name)
            if isinstance(terminal, SpecialToken):
                tokens[name] = terminal
        rules = {name: self._rules[name] for name in names}
        ignored = list(dict.fromkeys(loaded.ignored))
        lexed = [name for name in used if name not in tokens]
        lexer = Lexer(
            [loaded.terminals[name] for name in lexed],
            {name: self._pattern(name) for name in lexed},
            {name: loaded.places[name].at(0) for name in lexed},
            ignored,
            followers(rules, ignored),
            self._limits,
        )
        self._rules, self.start = Splitter(rules, list(lexer.variants()), tokens, self._limits).rules_from(start)
        return self._rules

    def _lexed(self, start: str) -> list[str]:
        """The terminals of all rules that lark keeps: those that some other rule uses."""
        kept = set(self._loaded.rules)
        symbols = {name: list(_symbols(tree)) for name, tree in self._loaded.rules.items()}
        while True:
            used = {symbol.name for name in kept for symbol, apart in symbols[name] if apart or symbol.name != name}
            used.add(start)
            if kept <= used:
                break
            kept &= used
        found = [symbol.name for name in symbols if name in kept for symbol, _ in symbols[name]]
        return [name for name in dict.fromkeys(found) if name not in symbols]

    def _translate(self, names: list[str]) -> None:
        for name in names:
            self._within = name
            self._rules[name] = self._expression(self._loaded.rules[name])

    def _needed(self, start: str) -> tuple[list[str], list[str]]:
        """The rules and the terminals that `start` needs."""
        if start not in self._loaded.rules:
            raise GrammarSyntaxError(f"there is no rule {start}, where the grammar is to start")
        names, known, terminals = [start], {start}, dict[str, None]()
        for name in names:  # grows while it is read
            for symbol, _ in _symbols(self._loaded.rules[name]):
                if isinstance(symbol, Terminal_):
                    terminals[symbol.name] = None
                elif symbol.name not in known:
                    known.add(symbol.name)
                    names.append(symbol.name)
        return names, list(terminals)

    def _source(self, text: str, token: Token | None = None) -> Source:
        place = self._loaded.places[self._within]
        if token is not None and token.line and self._within.split("{")[0] in self._loaded.own:
            place = Place(token.line, token.column or 1)
        return Source(text, place.at(0))

    def _expression(self, node: Any) -> Expression:
        if isinstance(node, Terminal_):
            return self._uses[node.name]
        if isinstance(node, NonTerminal):
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
        if operator != "~":
            body = self._expression(inner)
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
        return Repeat(self._expression(inner), low, high, source=source) if high else Bytes(b"")

    # Terminals

    def _terminal(self, name: str) -> Expression:
        """A plain string as it is, and a reference to the rule of any other terminal."""
        place = self._loaded.places[name] if name in self._loaded.places else Place(1, 1)
        source = Source(name, place.at(0))
        if name in self._loaded.declared and name in self._loaded.ignored:
            raise GrammarUnsupported(f"the declared terminal {name} cannot be ignored", place.at(0))
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
            return literal(name, pattern.value, place)
        if name not in self._rules:
            self._rules[name] = self._pattern(name).expression()
            if pattern.min_width == 0:
                message = f"the terminal {name} can match the empty string, which lark does not take"
                raise GrammarSyntaxError(message, place.at(0))
        return Reference(name, source=source)

    def _pattern(self, name: str) -> Terminal:
        """The pattern of a terminal that may be a plain string."""
        if name not in self._patterns:
            pattern, place = self._loaded.terminals[name].pattern, self._loaded.places[name]
            text = pattern.value
            if isinstance(pattern, PatternStr):
                text, place = re.escape(text), Place(place.line, place.column)
            self._patterns[name] = Terminal(name, text, frozenset(pattern.flags), place, self._limits)
        return self._patterns[name]

    # Ignored text

    def _ignore(self, start: str) -> None:
        """Put ignored text beside the terminals in `_uses`, and a rule around the start rule."""
        loaded, rules = self._loaded, self._rules
        first = {name: self._first(self._uses[name]) for name in self._uses}
        names = list(dict.fromkeys(loaded.ignored))
        for name in names:
            self._terminal(name)  # for what it refuses
            if name not in self._uses:
                rules.pop(name, None)
        starters = {
            name: (characters, self._pattern(name).automaton)
            for name, characters in first.items()
            if characters
        }  # fmt: skip
        places = {name: loaded.places[name].at(0) for name in names}
        ignored = Ignored({name: self._pattern(name).automaton() for name in names}, starters, places, self._limits)
        before = {name: ignored.classes_before(characters) for name, characters in first.items()}
        kinds = set(before.values()) or {ignored.classes}
        usual = next(iter(kinds))
        cut = any(subtract(first[name], ignored.forbidden[k]) for name in first for k in ignored.classes - before[name])
        if len(kinds) == 1 and not cut and ignored.splits(usual):
            # The same may stand before every terminal: then it may as well stand behind, where fewer ways begin.
            rules[_IGNORED] = ignored.run(usual)
            around: list[Expression] = [Reference(_IGNORED), Reference(start)]
            if usual != ignored.classes:
                rules[_IGNORED_LAST] = ignored.run(ignored.classes - usual, ignored.classes - usual)
                around.append(Reference(_IGNORED_LAST))
            self._uses = {name: Series((use, Reference(_IGNORED))) for name, use in self._uses.items()}
        else:
            self._uses = {name: self._behind(use, first[name], ignored) for name, use in self._uses.items()}
            rules[_IGNORED_LAST] = ignored.run(ignored.classes)
            around = [Reference(start), Reference(_IGNORED_LAST)]
        rules[_START] = Series(tuple(around))
        self.start = _START

    def _first(self, use: Expression) -> Ranges:
        return first_characters(self._rules[use.rule] if isinstance(use, Reference) else use)

    def _behind(self, use: Expression, first: Ranges, ignored: Ignored) -> Expression:
        """A terminal and the ignored text that may come before it."""
        ways: list[Expression] = []
        free = ignored.classes_before(first)
        for kinds in (free, *({kind} for kind in sorted(ignored.classes - free))):
            name = " ".join([_IGNORED, *map(str, sorted(kinds))])
            forbidden = union(*(ignored.forbidden[kind] for kind in kinds - free))
            rest = subtract(first, forbidden)
            if not rest and first:
                continue
            if not kinds:
                ways.append(use)
                continue
            if name not in self._rules:
                self._rules[name] = ignored.run(frozenset(kinds))
            what = use
            if rest != first:
                anything = Repeat(ANY_CHARACTER, 0, None)
                what = self._rules[use.rule] if isinstance(use, Reference) else use
                what = Intersection((what, Series((Characters(negate(forbidden)), anything))))
            ways.append(Series((Reference(name), what)))
        return _either(ways)


def _either(options: list[Expression]) -> Expression:
    return options[0] if len(options) == 1 else Alternation(tuple(options))


def _symbols(tree: Tree[Any]) -> Iterator[tuple[Symbol, bool]]:
    """The rules and terminals that a tree needs, in order, and whether lark would make a rule of what they stand in."""
    stack: list[tuple[Any, bool]] = [(tree, False)]
    while stack:
        node, apart = stack.pop()
        if isinstance(node, Symbol):
            yield node, apart
        elif isinstance(node, Tree) and node.data == "expr":
            children: list[Any] = node.children
            inner, operator, *numbers = children
            if not numbers or any(number.strip("+-0") for number in numbers):  # what stands no times is not needed
                large = any(len(number) > 2 or int(number) >= _LARGE for number in numbers)
                stack.append((inner, apart or operator in ("+", "*") or large))
        elif isinstance(node, Tree):
            parts = node.children[:1] if node.data == "alias" else reversed(node.children)
            stack += [(part, apart) for part in parts]
