"""Errors as plain data, so that one raised in a worker can be raised again, any number of times, in the service."""

from __future__ import annotations

import importlib
import traceback
from dataclasses import dataclass
from typing import Any

from ...grammar.errors import GrammarError
from .errors import CompileFailed

#: Longest text of an error that is passed on, characters. Messages name a sub-pattern, which may be long.
MAX_TEXT = 4_000
_PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True)
class Failure:
    """An error: the module and name of its class, its arguments and its fields, all of them JSON values."""

    module: str
    name: str
    arguments: tuple[Any, ...]
    fields: dict[str, Any]

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """What `error` is made of; one that is neither a grammar's nor the caller's becomes a `CompileFailed`."""
        kind = type(error)
        if isinstance(error, GrammarError) or kind in (TypeError, ValueError):
            fields = {name: _plain(value) for name, value in vars(error).items() if not name.startswith("_")}
            return cls(kind.__module__, kind.__qualname__, tuple(map(_plain, error.args)), fields)
        text = "".join(traceback.format_exception(error))
        return cls(CompileFailed.__module__, CompileFailed.__qualname__, (_plain(text[-MAX_TEXT:]),), {})

    def as_message(self) -> dict[str, Any]:
        return {"module": self.module, "name": self.name, "arguments": list(self.arguments), "fields": self.fields}

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> Failure:
        return cls(message["module"], message["name"], tuple(message["arguments"]), message["fields"])

    @property
    def is_lasting(self) -> bool:
        """Whether the same grammar would fail again: it is the grammar's error."""
        return issubclass(self._class(), GrammarError)

    def error(self) -> Exception:
        """A new error like the one that was raised: same class, message, place and other fields."""
        kind = self._class()
        error = kind.__new__(kind, *self.arguments)
        error.args = self.arguments
        error.__dict__.update(self.fields)
        return error

    def _class(self) -> type[Exception]:
        if self.module == "builtins":
            return {"TypeError": TypeError, "ValueError": ValueError}[self.name]
        if self.module.partition(".")[0] != _PACKAGE:
            return CompileFailed
        found = getattr(importlib.import_module(self.module), self.name)
        return found if issubclass(found, Exception) else CompileFailed


def _plain(value: Any) -> Any:
    """A JSON value like `value`."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = str(value)
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}... ({len(text)} characters)"
    # Text from a grammar may hold surrogates, which no UTF-8 text can.
    return text.encode("utf-8", "backslashreplace").decode()
