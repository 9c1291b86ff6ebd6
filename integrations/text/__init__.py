"""The text of answers: token bytes, stop strings, formatted log-probabilities, in this process or in another."""

from __future__ import annotations

from .in_process import InProcessText
from .limits import TextLimits
from .output import Final, TextOutput
from .process import TextProcess

__all__ = ["Final", "InProcessText", "TextLimits", "TextOutput", "TextProcess"]
