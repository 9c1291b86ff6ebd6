"""What can be wrong with a vocabulary, and what ends a sequence."""

from __future__ import annotations

from ..grammar.errors import GrammarError


class VocabularyError(ValueError):
    """A vocabulary, a tokenizer file or a token id that cannot be used; the message says which and why."""


class UnknownTokenError(VocabularyError, GrammarError):
    """A grammar names a special token that the vocabulary does not have."""

    def __init__(self, message: str) -> None:
        GrammarError.__init__(self, message)


class StackLimitError(RuntimeError):
    """A text is nested deeper, or can be read in more ways, than there is room for. It ends its own sequence only."""
