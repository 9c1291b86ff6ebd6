"""Everything that can be wrong with a grammar, one class a cause."""

from __future__ import annotations


class GrammarError(ValueError):
    """Something is wrong with a grammar. `place` says where (``column 7``, a JSON pointer, ``line 3:9``)."""

    def __init__(self, message: str, place: str | None = None) -> None:
        super().__init__(f"{message} ({place})" if place else message)
        self.message = message
        self.place = place


class GrammarSyntaxError(GrammarError):
    """The text is not a grammar of its kind."""


class GrammarUnsupported(GrammarError):
    """The construct is known, and this library does not enforce it; it is never ignored."""


class GrammarUnsatisfiable(GrammarError):
    """No string matches, or none that the vocabulary can spell."""


class GrammarTooLarge(GrammarError):
    """A named limit (`stepmask.Limits`) was passed; `limit` is the name of its field."""

    def __init__(self, message: str, place: str | None = None, *, limit: str) -> None:
        super().__init__(f"{message}; raise Limits.{limit} to allow it", place)
        self.limit = limit
