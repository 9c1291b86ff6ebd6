"""All keywords that decide what is valid, and how each is enforced."""

from __future__ import annotations

from .applicators import APPLICATORS
from .array_keywords import ARRAY_KEYWORDS
from .object_keywords import OBJECT_KEYWORDS
from .scalar_keywords import SCALAR_KEYWORDS

KEYWORDS = {**APPLICATORS, **SCALAR_KEYWORDS, **ARRAY_KEYWORDS, **OBJECT_KEYWORDS}
