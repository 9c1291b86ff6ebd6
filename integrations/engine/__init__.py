"""The bundled engine: continuous batching with a grammar for each request. `Engine.step` shows how stepmask is hosted."""

from __future__ import annotations

from .engine import Engine, NoLegalToken, TokenRefused
from .recorder import Recorder
from .request import FinishReason, Handle, Request, Result
from .synthetic import SyntheticModel

__all__ = [
    "Engine",
    "FinishReason",
    "Handle",
    "NoLegalToken",
    "Recorder",
    "Request",
    "Result",
    "SyntheticModel",
    "TokenRefused",
]
