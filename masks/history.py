"""Where the configurations of a slot's history are."""

from __future__ import annotations

from .._numba import helper
from .layout import B_CONFIGS, B_HISTORY, B_POSITION, CONFIG_WORDS
from .memory import load_i64


@helper
def config_at(batch, slot, position):  # type: ignore[no-untyped-def]
    """Configuration of `slot` after `position` tokens."""
    history = load_i64(batch, B_HISTORY)
    return load_i64(batch, B_CONFIGS) + 8 * CONFIG_WORDS * (slot * history + position % history)


@helper
def current_config(batch, slot):  # type: ignore[no-untyped-def]
    return config_at(batch, slot, load_i64(load_i64(batch, B_POSITION), slot))
