"""The JSON Schema front end."""

from .front_end import json_schema

__all__ = ["json_schema"]
