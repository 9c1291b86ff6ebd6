"""Grammars in Lark's language, read by lark's own loader up to the trees that its EBNF operators are still in.

lark would go on and turn repeats and options into rules of its own, up to thousands of them, and spread alternatives
out over sequences. The language is in the trees, so they are taken as they are then: imports, templates, ``%extend``
and ``%override`` done, patterns joined, and strings within rules made terminals.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import lark.load_grammar
from lark.exceptions import GrammarError as LarkGrammarError
from lark.exceptions import UnexpectedInput, VisitError
from lark.lexer import Pattern, PatternRE, TerminalDef, Token
from lark.load_grammar import GrammarBuilder, PrepareLiterals, TerminalTreeToPattern, ValidateSymbols
from lark.tree import Tree

from .errors import GrammarError, GrammarSyntaxError, GrammarTooLarge, GrammarUnsupported
from .lark_terminals import Place
from .limits import Limits

#: The same module, for what it has without types.
_LARK: Any = lark.load_grammar

#: What the text of a grammar is made of, as far as it matters here: in strings, patterns and comments nothing else is.
#: A quote or slash that begins none of these is not closed; lark would look for its end in exponential time.
_PIECES = re.compile(
    r"""
    "(?:\\.|[^"\\\n])*" | /(?!/)(?:\\[\s\S]|[^/\\])*/ | //[^\n]* | \#[^\n]*
    | (?P<open> ["/] )
    | (?P<token> <[^<>\s"]+> )
    | (?P<directive> %(?:json|regex|lark|llguidance)\b )
    """,
    re.VERBOSE,
)
_TOKEN_ID = re.compile(r"<\[(\d{1,18})\]>")
_WHERE = re.compile(r",? at line (\d+) column (\d+)(?: in .*?(?=:|$))?", re.MULTILINE)
#: Signs of other engines' extensions, where lark stops with an error.
_FOREIGN = {
    r"\[[^\]]*\]\s*:": "attributes of a rule in [brackets] are not supported: they are no part of Lark; leave them out",
    "@": "references to other grammars (@name) are not supported: they are no part of Lark",
    "&": "the intersection & is not supported: it is no part of Lark",
    "<": "a special token is written <name> or <[id]>, without blanks or quotes",
}


@dataclass
class Loaded:
    """What lark's loader found. Names are lark's."""

    #: The trees of rules: expansions, expansion, alias, expr, maybe and symbols.
    rules: dict[str, Tree[Any]] = field(default_factory=dict)
    terminals: dict[str, TerminalDef] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    #: Terminals without a pattern.
    declared: set[str] = field(default_factory=set)
    #: Terminals that stand for special tokens written in the grammar.
    tokens: dict[str, str | int] = field(default_factory=dict)
    #: Where rules and terminals are defined.
    places: dict[str, Place] = field(default_factory=dict)
    #: Names that the text itself defines: places within these are places of the text.
    own: set[str] = field(default_factory=set)


def load(text: str, import_paths: Sequence[str], limits: Limits) -> Loaded:
    """Read `text`, with grammars that it imports from the folders `import_paths` or from lark's own library.

    Raises `GrammarSyntaxError` for what lark refuses, `GrammarUnsupported` for extensions of other engines, and
    `GrammarTooLarge` where templates or groups are nested deeper than `limits.max_depth`.
    """
    prepared, tokens = _without_tokens(text)
    builder = _Builder(text, import_paths)
    try:
        builder.load_grammar(prepared, "<string>")
        loaded = _load(builder, limits)
    except (LarkGrammarError, UnexpectedInput, VisitError, AssertionError, OSError, ValueError, ImportError) as error:
        raise _own_error(error, builder) from None
    loaded.tokens = tokens
    return loaded


def _load(builder: _Builder, limits: Limits) -> Loaded:
    grammar = builder.build()
    loaded = Loaded(ignored=list(grammar.ignore), own=set(builder.places))
    terminals: list[TerminalDef] = []
    literals = _Literals()
    to_pattern = literals * TerminalTreeToPattern()
    for name, (tree, priority) in grammar.term_defs:
        loaded.places[name] = builder.place(name)
        if tree is None:
            loaded.declared.add(name)
            continue
        parts = list(tree.find_data("expansion"))
        if len(parts) == 1 and not parts[0].children:
            raise LarkGrammarError(f"Terminals cannot be empty ({name})")
        written = _only_literal(tree)
        if written is not None and name in loaded.own:
            loaded.places[name] = Place(written.line or 1, (written.column or 1) + 1)
        literals.within = name in loaded.own
        definition = TerminalDef(name, to_pattern.transform(_LARK.nr_deepcopy_tree(tree)), priority)
        if written is not None and definition.pattern.value == written.rstrip("imslux")[1:-1]:
            place = loaded.places[name]
            loaded.places[name] = Place(place.line, place.column, exact=name in loaded.own, remark=place.remark)
        terminals.append(definition)
    strings = _LARK.PrepareAnonTerminals(terminals)
    strings.term_set |= loaded.declared
    definitions: list[tuple[str, Sequence[str], Any, None]] = []
    for name, parameters, tree, _ in grammar.rule_defs:
        if tree is None:
            message = f"the rule {name} is declared without a body, which is not supported; write it, or leave it out"
            raise GrammarUnsupported(message, builder.place(name).at(0))
        definitions.append((name, parameters, _LARK.nr_deepcopy_tree(tree), None))
    transformer = literals * ValidateSymbols() * strings * _LARK.ApplyTemplates(definitions)
    for name, params, tree, _ in definitions:  # grows while it is read: uses of templates
        if params:
            continue
        if name.count("{") > limits.max_depth:
            message = f"the template {name.split('{')[0]} uses itself without end"
            raise GrammarTooLarge(message, builder.place(name).at(0), limit="max_depth")
        loaded.places[name] = builder.place(name)
        literals.within = name.split("{")[0] in loaded.own
        loaded.rules[name] = transformer.transform(tree)
    for definition in terminals:
        loaded.terminals[definition.name] = definition
        if definition.name not in loaded.places:
            loaded.places[definition.name] = literals.places.get(definition.pattern, Place(1, 1))
    return loaded


class _Literals(PrepareLiterals):
    """Remembers where the strings and patterns of rules stand."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[Pattern, Place] = {}
        self.within = True  # whether what is read now stands in the text itself

    def literal(self, children: list[Token]) -> Tree[Any]:
        (token,) = children
        try:
            pattern = _LARK._literal_to_pattern(token)
        except LarkGrammarError as error:
            place = Place(token.line or 1, token.column or 1).at(0) if self.within else None
            raise GrammarSyntaxError(str(error), place) from None
        if self.within and pattern not in self.places:
            exact = pattern.value == token.rstrip("imslux")[1:-1]
            self.places[pattern] = Place(token.line or 1, (token.column or 1) + 1, exact=exact)
        return Tree("pattern", [pattern])

    def range(self, children: list[Token]) -> Tree[Any]:  # type: ignore[override]  # the base's is wrapped
        low, high = children
        place = Place(low.line or 1, low.column or 1) if self.within else Place(1, 1)
        if any(token.endswith("i") or len(_LARK.eval_escaping(token[1:-1])) != 1 for token in children):
            raise GrammarSyntaxError(f"the ends of the range {low}..{high} are not single characters", place.at(0))
        pattern = PatternRE(f"[{low[1:-1]}-{high[1:-1]}]")
        if self.within:
            self.places.setdefault(pattern, place)
        return Tree("pattern", [pattern])


def _only_literal(tree: Tree[Any]) -> Token | None:
    """The string or pattern that a terminal consists of, if it is no more than that."""
    node: Any = tree
    while isinstance(node, Tree) and len(node.children) == 1 and node.data != "maybe":
        node = node.children[0]
    return node if isinstance(node, Token) and node.type in ("STRING", "REGEXP") else None


class _Builder(GrammarBuilder):
    """Remembers where things are defined. Imports are read by the class that it is made from."""

    def __init__(self, text: str, import_paths: Sequence[str]) -> None:
        super().__init__(False, list(import_paths))
        self.text = text
        self.places: dict[str, Place] = {}
        #: (path, names, place) of each import.
        self.imports: list[tuple[tuple[str, ...], set[str], Place]] = []

    def _unpack_definition(self, tree: Tree[Any], mangle: Any) -> Any:
        name: Any = tree.children[0] if tree.data == "term" else tree.children[1]
        self.places[str(name)] = Place(name.line, name.column)
        unpack: Any = super()._unpack_definition
        return unpack(tree, mangle)

    def _unpack_import(self, stmt: Tree[Any], grammar_name: str) -> Any:
        unpack: Any = super()._unpack_import
        path, _, aliases = unpack(stmt, grammar_name)
        first = next(stmt.scan_values(lambda value: isinstance(value, Token)))
        remark = f" (in the imported {'.'.join(path)})"
        self.imports.append((path, set(aliases.values()), Place(first.line, first.column, remark=remark)))
        # lark would look beside the running program for a relative import; here it is a path like the others.
        return path, None, aliases

    def place(self, name: str) -> Place:
        """Where a rule or terminal is defined, or imported."""
        name = name.split("{")[0]
        if name in self.places:
            return self.places[name]
        for path, names, place in self.imports:
            if name in names or name.lstrip("_").startswith("__".join(path).lstrip("_") + "__"):
                return place
        declared = re.search(rf"%declare\b[^\n]*?\b{re.escape(name)}\b", self.text)
        return Place(*_position(self.text, declared.start() if declared else 0))

    def use_of(self, name: str) -> Place | None:
        """Where a name that is not defined stands."""
        found = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", self.text)
        return Place(*_position(self.text, found.start())) if found else None


def _without_tokens(text: str) -> tuple[str, dict[str, str | int]]:
    """The grammar with terminals in place of special tokens such as ``<|eot|>``, and what these stand for.

    Raises `GrammarUnsupported` where another engine's directive or token set stands.
    """
    unused = (f"T{i}" for i in itertools.count() if re.search(rf"\bT{i}\b", text) is None)
    names: dict[str, str] = {}
    tokens: dict[str, str | int] = {}
    pieces: list[str] = []
    done = 0
    for piece in _PIECES.finditer(text):
        written = piece["token"] or piece["directive"]
        if piece["open"]:
            what = "string" if piece["open"] == '"' else "pattern"
            message = f"the {what} that begins here is not closed"
            raise GrammarSyntaxError(message, _place_of(text, piece.start()))
        if not written:
            continue
        if piece["directive"]:
            message = f"{written} is not supported: it is no part of Lark; write the rule itself"
            raise GrammarUnsupported(message, _place_of(text, piece.start()))
        number = _TOKEN_ID.fullmatch(written)
        if written.startswith("<[") and number is None:
            message = f"the set of tokens {written} is not supported; name one token, as in <[123]>"
            raise GrammarUnsupported(message, _place_of(text, piece.start()))
        if written not in names:
            names[written] = next(unused)
            tokens[names[written]] = written if number is None else int(number[1])
        pieces += [text[done : piece.start()], names[written]]
        done = piece.end()
    if not tokens:
        return text, tokens
    return f"{''.join(pieces)}{text[done:]}\n%declare {' '.join(tokens)}\n", tokens


def _position(text: str, index: int) -> tuple[int, int]:
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def _place_of(text: str, index: int) -> str:
    return Place(*_position(text, index)).at(0)


def _own_error(error: Exception, builder: _Builder) -> GrammarError:
    """What went wrong in lark's loader, as an error of this library with its place."""
    if isinstance(error, VisitError):
        error = error.orig_exc
    if isinstance(error, GrammarError):
        return error
    text = builder.text
    line, column = getattr(error, "line", None), getattr(error, "column", None)
    if isinstance(error, FileNotFoundError):
        wanted = str(error.filename)
        places = [place for path, _, place in builder.imports if os.path.join(*path) + ".lark" == wanted]
        message = f"there is no grammar {wanted} to import, neither in import_paths nor in lark's library"
        return GrammarSyntaxError(message, f"line {places[0].line}:{places[0].column}" if places else None)
    if type(error) in (ValueError, ImportError):  # of a pattern whose width lark asks for
        return GrammarSyntaxError(f"no pattern of Python's re: {error.args[-1]!s:.60}")
    message = next(iter(str(error).strip().splitlines()), "") or "the grammar is not one that lark's loader takes"
    found = _WHERE.search(message)
    if found is not None:
        line, column = int(found[1]), int(found[2])
        message = (message[: found.start()] + message[found.end() :]).strip(" :,")
    if isinstance(line, int) and isinstance(column, int) and line > 0:
        row = text.split("\n")[line - 1] if line <= text.count("\n") + 1 else ""
        for sign, what in _FOREIGN.items():
            if re.match(sign, row[column - 1 :]):
                return GrammarUnsupported(what, f"line {line}:{column}")
        return GrammarSyntaxError(message, f"line {line}:{column}")
    for name in re.findall(r"'(\w+)'", message):
        place = builder.places.get(name) or builder.use_of(name)
        if place is not None:
            return GrammarSyntaxError(message, place.at(0))
    for name in re.findall(r"\b_?[A-Za-z]\w*\b", message):
        if name in builder.places:
            return GrammarSyntaxError(message, builder.places[name].at(0))
    return GrammarSyntaxError(message)
