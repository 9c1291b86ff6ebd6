"""The choice front end: one of some given strings."""

from __future__ import annotations

from collections.abc import Iterable

from .errors import GrammarSyntaxError, GrammarUnsatisfiable
from .expression import Alternation, Bytes, Grammar, Source


def choice(options: Iterable[str | bytes]) -> Grammar:
    """A grammar of exactly these strings: `str` as UTF-8, `bytes` as they are.

    The order given is kept and later duplicates are dropped; neither changes what is accepted. An option may be a
    prefix of another one, or empty. Raises `GrammarUnsatisfiable` where there is no option, `GrammarSyntaxError` for a
    string with a lone surrogate, which has no UTF-8 form, and `TypeError` for anything but strings.
    """
    if isinstance(options, (str, bytes)):
        raise TypeError(f"choice takes a list of strings, not one {type(options).__name__}: write choice([...])")
    if not isinstance(options, Iterable):
        raise TypeError(f"choice takes a list of strings, not {type(options).__name__}: {options!r:.60}")
    unique: dict[bytes, Bytes] = {}
    for index, option in enumerate(options):
        if isinstance(option, str):
            try:
                text = option.encode()
            except UnicodeEncodeError as error:
                message = f"option {option!r} holds a lone surrogate, which is not text"
                raise GrammarSyntaxError(message, f"option {index}, column {error.start + 1}") from None
        elif isinstance(option, bytes):
            text = option
        else:
            kind = type(option).__name__
            raise TypeError(f"option {index} of a choice must be str or bytes, not {kind}: {option!r:.60}")
        if text not in unique:
            written = option if isinstance(option, str) else repr(option)
            unique[text] = Bytes(text, source=Source(written, f"option {index}"))
    if not unique:
        raise GrammarUnsatisfiable("a choice needs at least one option; this one has none")
    described = ", ".join(repr(text.decode(errors="backslashreplace")) for text in unique)
    whole = Source(described if len(described) <= 60 else described[:57] + "...", f"{len(unique)} options")
    start = next(iter(unique.values())) if len(unique) == 1 else Alternation(tuple(unique.values()), source=whole)
    return Grammar("choice", f"[{described}]", {"start": start})
