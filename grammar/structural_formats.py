"""The formats that structural tags consist of, read from their JSON shapes.

They are those of xgrammar's `structural_tag` module, and mean the same but for what docs/structural-tags.md says of
triggers, tokens and JSON Schemas. What is not enforced is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .compose import embed
from .ebnf import ebnf
from .errors import GrammarError, GrammarSyntaxError, GrammarTooLarge, GrammarUnsupported
from .expression import EMPTY, Alternation, Expression, Grammar, Reference, Repeat, Sequence, Source, Token
from .json_fields import Fields, parse_json
from .limits import Limits
from .markers import Markers
from .regex import regex
from .structural_schemas import SchemaReader
from .triggers import dispatch, text_without

#: Kind -> its fields; `type` is one of all.
KINDS: dict[str, frozenset[str]] = {
    kind: frozenset(fields.split())
    for kind, fields in {
        "any_text": "excludes max_tokens max_chars",
        "any_tokens": "exclude_tokens max_tokens",
        "const_string": "value",
        "dispatch": "rules loop excludes",
        "exclude_token": "exclude_tokens",
        "grammar": "grammar syntax",
        "json_schema": "json_schema style any_order max_whitespace_cnt excludes",
        "optional": "content",
        "or": "elements",
        "plus": "content",
        "qwen_xml_parameter": "json_schema",
        "regex": "pattern",
        "repeat": "min max content",
        "sequence": "elements",
        "star": "content",
        "tag": "begin content end",
        "tags_with_separator": "tags separator at_least_one stop_after_first",
        "token": "token",
        "token_dispatch": "rules loop exclude_tokens",
        "token_triggered_tags": "trigger_tokens tags exclude_tokens at_least_one stop_after_first",
        "triggered_tags": "triggers tags at_least_one stop_after_first excludes",
    }.items()
}


class FormatReader:
    """Reads formats into expressions; `rules` are the rules that these refer to.

    `options` names under ``special_tokens`` the tokens that are excluded as being special.
    """

    def __init__(self, limits: Limits, special_tokens: Iterable[str] = ()) -> None:
        self.rules: dict[str, Expression] = {}
        self.options: dict[str, Any] = {}
        #: Whether what is embedded is made to stay as it is.
        self.frames = False
        self._limits = limits
        self._markers = Markers(special_tokens)
        self._schemas = SchemaReader(self._embedded, self.rules, self._markers)
        self._depth = 0
        self._known: dict[Any, tuple[Reference, Any]] = {}  # the second part keeps what an id stands for alive

    def read(self, value: Any, place: str, ends: tuple[str, ...] = ()) -> Expression:
        """The format `value` at the JSON pointer `place`, within a tag that ends with one of `ends`."""
        if isinstance(value, Grammar):
            return self._embedded(("grammar", id(value)), place, lambda: value, value)
        if not isinstance(value, Mapping):
            raise GrammarSyntaxError("a format is a JSON object", place or "/")
        if "type" not in value:
            raise GrammarSyntaxError("a format needs a type", place or "/")
        kind = value["type"]
        if not isinstance(kind, str) or kind not in KINDS:
            raise GrammarUnsupported(f"there is no format {kind!r}", f"{place}/type")
        fields = Fields(value, kind, place)
        fields.only(("type", *KINDS[kind]))
        self._depth += 1
        if self._depth > self._limits.max_depth:
            message = f"formats are nested deeper than {self._limits.max_depth}"
            raise GrammarTooLarge(message, place, limit="max_depth")
        expression: Expression = getattr(self, f"_{kind}")(fields, ends)
        self._depth -= 1
        return expression

    def structures(self, value: Mapping[str, Any]) -> Expression:
        """The older shape of a whole structural tag: triggered tags whose contents are schemas."""
        fields = Fields(value, "structural tag", "")
        fields.only(("type", "structures", "triggers"))
        return self._triggered_tags(fields, (), "structures")

    # Text

    def _const_string(self, fields: Fields, ends: tuple[str, ...]) -> Expression:
        return self._markers.literal(fields.string("value"), fields.place_of("value"))

    def _any_text(self, fields: Fields, ends: tuple[str, ...]) -> Expression:
        self._refuse_budget(fields)
        if fields.get("max_tokens", None) == 0:
            return EMPTY
        most = fields.number("max_chars", None)
        return text_without(self._excluded(fields, ends), most)

    def _excluded(self, fields: Fields, ends: tuple[str, ...] = ()) -> list[str]:
        """What free text may not hold, being within a tag with such ends; it holds none that are special tokens."""
        return [*fields.strings("excludes"), *(end for end in ends if end and not self._markers.stand_in(end))]

    def _refuse_budget(self, fields: Fields) -> None:
        if fields.number("max_tokens", None):
            message = "max_tokens is not supported: a grammar knows no tokens of text; use max_chars"
            raise GrammarUnsupported(message, fields.place_of("max_tokens"))

    def _regex(self, fields: Fields, ends: tuple[str, ...]) -> Expression:
        pattern = fields.string("pattern")
        place = fields.place_of("pattern")
        return self._embedded(("regex", pattern), place, lambda: regex(pattern, limits=self._limits))

    def _grammar(self, fields: Fields, ends: tuple[str, ...]) -> Expression:
        text = fields.string("grammar")
        place = fields.place_of("grammar")
        syntax = fields.get("syntax", "ebnf")
        if syntax not in ("ebnf", "lark"):
            raise GrammarUnsupported(f"there is no grammar syntax {syntax!r}", fields.place_of("syntax"))
        if syntax == "ebnf":
            return self._embedded((syntax, text), place, lambda: ebnf(text, limits=self._limits))
        from .lark import lark

        return self._embedded((syntax, text), place, lambda: lark(text, limits=self._limits))

    def _json_schema(self, fields: Fields, ends: tuple[str, ...]) -> Expression:
        return self._schemas.read(fields)

    def _qwen_xml_parameter(self, fields: Fields, ends: tuple[str, ...]) -> Expression:
        return self._schemas.read(fields, "qwen_xml")

    def _embedded(self, key: Any, place: str, make: Callable[[], Grammar], kept: Any = None) -> Reference:
        """A reference to the start rule of a grammar, which is made once for each `key`."""
        if key not in self._known:
            try:
                grammar = make()
                rules, start = embed(grammar, place or "/")
            except GrammarError as error:
                raise _placed(error, place) from None
            self.frames |= grammar.frames
            self.rules.update(rules)
            self._known[key] = Reference(start, source=Source(start, place)), kept
        return self._known[key][0]

    # Combinations

    def _sequence(self, fields: Fields, ends: tuple[str, ...]) -> Expression:
        return Sequence(self._elements(fields, ends))

    def _or(self, fields: Fields, ends: tuple[str, ...]) -> Expression:
        return Alternation(self._elements(fields, ends))

    def _elements(self, fields: Fields, ends: tuple[str, ...]) -> tuple[Expression, ...]:
        return tuple(self.read(value, place, ends) for value, place in fields.items("elements"))

    def _optional(self, fields: Fields, ends: tuple[str, ...]) -> Expression:
        return self._repeated(fields, ends, 0, 1)

    def _plus(self, fields: Fields, ends: tuple[str, ...]) -> Expression:
        return self._repeated(fields, ends, 1, None)

    def _star(self, fields: Fields, ends: tuple[str, ...]) -> Expression:
        return self._repeated(fields, ends, 0, None)

    def _repeat(self, fields: Fields, ends: tuple[str, ...]) -> Expression:
        least, most = fields.number("min"), fields.number("max", least=-1)
        assert least is not None and most is not None
        if -1 < most < least:
            raise GrammarSyntaxError("the bounds of repeat are in the wrong order", fields.place or "/")
        return self._repeated(fields, ends, least, None if most == -1 else most)

    def _repeated(self, fields: Fields, ends: tuple[str, ...], least: int, most: int | None) -> Expression:
        source = Source(fields.kind, fields.place)
        return Repeat(self.read(fields.get("content"), fields.place_of("content"), ends), least, most, source=source)

    # Tags

    def _tag(self, fields: Fields, ends: tuple[str, ...]) -> Expression:
        begin = fields.get("begin")
        opening: Expression
        if isinstance(begin, Mapping):
            opening = token_of(begin, fields.place_of("begin"))
        else:
            opening = self._markers.literal(fields.string("begin"), fields.place_of("begin"))
        return Sequence((opening, *self._rest(fields)))

    def _rest(self, fields: Fields) -> tuple[Expression, Expression]:
        """Content and end of a tag."""
        end, place = fields.get("end"), fields.place_of("end")
        closing: Expression
        strings: tuple[str, ...] = ()
        if isinstance(end, Mapping):
            closing = token_of(end, place)
        elif isinstance(end, str):
            strings = (end,)
            closing = self._markers.literal(end, place)
        else:
            strings = tuple(fields.strings("end", required=True, empty=True))
            closing = Alternation(tuple(self._markers.literal(text, place) for text in strings))
        if "schema" in fields.value:
            return self._schema_text(fields), closing
        return self.read(fields.get("content"), fields.place_of("content"), strings), closing

    def _schema_text(self, fields: Fields) -> Expression:
        """The schema of a tag in the older shape, which may be JSON text."""
        schema, place = fields.get("schema"), fields.place_of("schema")
        return self._schemas.json(parse_json(schema, place) if isinstance(schema, str) else schema, place, {})

    def _tags(self, fields: Fields, key: str = "tags") -> list[Fields]:
        found = []
        for value, place in fields.items(key):
            if not isinstance(value, Mapping):
                raise GrammarSyntaxError("a tag is a JSON object", place)
            if value.get("type", "tag") != "tag":
                raise GrammarUnsupported(f"a tag is needed here, not {value['type']!r}", f"{place}/type")
            tag = Fields(value, "tag", place)
            tag.only(("type", "begin", "schema" if "schema" in value else "content", "end"))
            found.append(tag)
        return found

    def _tags_with_separator(self, fields: Fields, ends: tuple[str, ...]) -> Expression:
        tag = Alternation(tuple(self._tag(tag, ends) for tag in self._tags(fields)))
        separator = self._markers.literal(fields.string("separator"), fields.place_of("separator"))
        tags: Expression = tag
        if not fields.flag("stop_after_first", False):
            tags = Sequence((tag, Repeat(Sequence((separator, tag)), 0, None)))
        return tags if fields.flag("at_least_one", False) else Repeat(tags, 0, 1)

    def _triggered_tags(self, fields: Fields, ends: tuple[str, ...], key: str = "tags") -> Expression:
        triggers = fields.strings("triggers", required=True)
        tags = self._tags(fields, key)
        begins = [tag.string("begin") for tag in tags]
        rests = [self._rest(tag) for tag in tags]
        for tag, begin in zip(tags, begins, strict=True):
            if not any(begin.startswith(trigger) for trigger in triggers):
                raise GrammarSyntaxError(f"the tag {begin!r} begins with none of the triggers", tag.place)
        options: dict[str, list[Expression]] = {}
        for number, trigger in enumerate(triggers):
            found = [number for number, begin in enumerate(begins) if begin.startswith(trigger)]
            if not found:
                place = f"{fields.place}/triggers/{number}"
                raise GrammarSyntaxError(f"no tag begins with the trigger {trigger!r}", place)
            for index in found:
                begin, tag = begins[index], tags[index]
                whole = self._markers.whole(begin, trigger)
                rest = Sequence((self._markers.literal(begin[len(whole) :], tag.place), *rests[index]))
                options.setdefault(whole, []).append(rest)
        continuations = {
            whole: Alternation(tuple(rests))
            for whole, rests in options.items()
            if not any(
                other != whole and whole.startswith(other) and self._markers.whole(whole, other) == other
                for other in options
            )
        }
        excluded = self._excluded(fields, ends)
        tag_first = Alternation(
            tuple(
                Sequence((self._markers.literal(begin, tag.place_of("begin")), *rest))
                for tag, begin, rest in zip(tags, begins, rests, strict=True)
            )
        )

        def dispatched(repeated: bool) -> Expression:
            return self._dispatched(continuations, excluded, repeated, fields.place_of("triggers"))

        return _triggered(fields, tag_first, dispatched)

    def _dispatch(self, fields: Fields, ends: tuple[str, ...]) -> Expression:
        continuations: dict[str, Expression] = {}
        for trigger, content, place in self._dispatch_rules(fields, ends):
            if not isinstance(trigger, str) or not trigger:
                raise GrammarSyntaxError("a pattern to dispatch on is a string that is not empty", f"{place}/0")
            self._markers.literal(trigger, f"{place}/0")
            known = continuations.get(trigger)
            continuations[trigger] = content if known is None else Alternation((known, content))
        return self._dispatched(
            continuations, self._excluded(fields), fields.flag("loop", True), fields.place_of("rules")
        )

    def _dispatched(
        self, continuations: Mapping[str, Expression], excluded: list[str], repeated: bool, place: str
    ) -> Expression:
        """`dispatch` on triggers that may hold special tokens."""
        marked = []
        for trigger in continuations:
            pieces = self._markers.pieces(trigger)
            if self._markers.stand_in(trigger):
                text = "" if pieces[0][1] else pieces[0][0]
                rest = self._markers.literal(trigger[len(text) :], place)
                marked.append((text, Sequence((rest, continuations[trigger]))))
        plain = {text: then for text, then in continuations.items() if not self._markers.stand_in(text)}
        return dispatch(plain, excluded, marked, repeated=repeated, place=place)

    def _dispatch_rules(self, fields: Fields, ends: tuple[str, ...]) -> list[tuple[Any, Expression, str]]:
        found = []
        for pair, place in fields.items("rules"):
            if isinstance(pair, str) or not isinstance(pair, (list, tuple)) or len(pair) != 2:
                raise GrammarSyntaxError("a rule to dispatch by is a pattern and a format", place)
            found.append((pair[0], self.read(pair[1], f"{place}/1", ends), place))
        return found

    # Tokens

    def _token(self, fields: Fields, ends: tuple[str, ...]) -> Expression:
        return _token(fields.get("token"), fields.place_of("token"))

    def _exclude_token(self, fields: Fields, ends: tuple[str, ...]) -> Expression:
        message = "the format 'exclude_token' is not supported: a grammar knows no tokens of text"
        raise GrammarUnsupported(message, fields.place_of("type"))

    def _any_tokens(self, fields: Fields, ends: tuple[str, ...]) -> Expression:
        self._refuse_budget(fields)
        self._exclude(fields)
        return EMPTY if fields.get("max_tokens", None) == 0 else text_without(())

    def _exclude(self, fields: Fields) -> None:
        """Take note of tokens that free text, which holds no special token, excludes only if they are special."""
        names = [_token(value, place).name for value, place in fields.items("exclude_tokens", [])]
        if names:
            self.options["special_tokens"] = [*dict.fromkeys([*self.options.get("special_tokens", ()), *names])]

    def _token_dispatch(self, fields: Fields, ends: tuple[str, ...]) -> Expression:
        self._exclude(fields)
        rules = self._dispatch_rules(fields, ends)
        steps = [Sequence((_token(name, f"{place}/0"), content)) for name, content, place in rules]
        return _token_dispatched(Alternation(tuple(steps)), repeated=fields.flag("loop", True))

    def _token_triggered_tags(self, fields: Fields, ends: tuple[str, ...]) -> Expression:
        self._exclude(fields)
        triggers = [_token(value, place) for value, place in fields.items("trigger_tokens")]
        tags = self._tags(fields)
        begins = []
        for tag in tags:
            begin = tag.get("begin")
            if not isinstance(begin, Mapping):
                raise GrammarSyntaxError("a tag among token_triggered_tags begins with a token", tag.place_of("begin"))
            begins.append(token_of(begin, tag.place_of("begin")))
            if begins[-1] not in triggers:
                message = f"the tag {begins[-1].name!r} begins with none of the triggers"
                raise GrammarSyntaxError(message, tag.place_of("begin"))
        for number, trigger in enumerate(triggers):
            if trigger not in begins:
                place = f"{fields.place}/trigger_tokens/{number}"
                raise GrammarSyntaxError(f"no tag begins with the trigger {trigger.name!r}", place)
        tag_first = Alternation(
            tuple(Sequence((begin, *self._rest(tag))) for tag, begin in zip(tags, begins, strict=True))
        )
        return _triggered(fields, tag_first, lambda repeated: _token_dispatched(tag_first, repeated=repeated))


def _triggered(fields: Fields, tag_first: Expression, dispatched: Callable[[bool], Expression]) -> Expression:
    """Free text with tags, and how many of them there may be."""
    stop = fields.flag("stop_after_first", False)
    if not fields.flag("at_least_one", False):
        return dispatched(not stop)
    return tag_first if stop else Sequence((tag_first, dispatched(True)))


def _token_dispatched(step: Expression, *, repeated: bool) -> Expression:
    free = text_without(())
    step = Sequence((free, step))
    return Sequence((Repeat(step, 0, None), free)) if repeated else Alternation((free, step))


def token_of(value: Mapping[str, Any], place: str) -> Token:
    """A special token in the shape of the format `token`, whose type need not be there."""
    if value.get("type", "token") != "token":
        raise GrammarSyntaxError("a string or a token is needed here", place)
    fields = Fields(value, "token", place)
    fields.only(("type", "token"))
    return _token(fields.get("token"), f"{place}/token")


def _token(name: Any, place: str) -> Token:
    if isinstance(name, bool) or not isinstance(name, (str, int)) or name == "" or (isinstance(name, int) and name < 0):
        raise GrammarSyntaxError("a token is named by its text or its id", place)
    return Token(name, source=Source(str(name), place))


def _placed(error: GrammarError, place: str) -> GrammarError:
    """`error` of a grammar that stands at `place`."""
    inner = error.place
    error.place = place if inner is None or inner.startswith(place) else f"{place or '/'}, {inner}"
    error.args = (f"{error.message} ({error.place})",)
    return error
