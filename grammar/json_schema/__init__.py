"""The JSON Schema front end."""

from .front_end import json_schema
from .tools import tools

__all__ = ["json_schema", "tools"]
