"""What can be wrong with a vocabulary."""

from __future__ import annotations


class VocabularyError(ValueError):
    """A vocabulary, a tokenizer file or a token id that cannot be used; the message says which and why."""


class StackLimitError(RuntimeError):
    """A text is nested deeper, or can be read in more ways, than there is room for. It ends its own sequence only."""
