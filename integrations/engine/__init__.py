"""The bundled engine: continuous batching, a grammar for each request. `Engine.step` shows how to host stepmask."""

from __future__ import annotations

from .admission import Admission, AdmissionClass
from .engine import Engine, NoLegalToken, TokenRefused
from .recorder import Recorder
from .request import FinishReason, Handle, Request, Result

__all__ = [
    "Admission",
    "AdmissionClass",
    "Engine",
    "FinishReason",
    "Handle",
    "NoLegalToken",
    "Recorder",
    "Request",
    "Result",
    "TokenRefused",
]
