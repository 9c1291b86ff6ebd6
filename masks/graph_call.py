"""The one kernel that changes stack graphs, and how others call it: compiled into each of them it would be large."""

from __future__ import annotations

from .._numba import helper, kernel
from .arena import accept_graph, accept_symbol_graph, start_graph
from .graph_finish import complete_graph, forced_graph
from .layout import (
    B_GRAPH_CALL,
    B_REQUEST,
    R_BEGIN,
    R_CONFIG,
    R_DATA,
    R_END,
    R_GRAMMAR,
    R_KEEP,
    R_KIND,
    R_SLOT,
    R_TARGET,
)
from .memory import call_kernel, load_i64, store_i64

_START, _BYTES, _SYMBOL, _FORCED, _COMPLETION = range(5)


@kernel("int64(int64, int64)")
def graph_call(batch, request):  # type: ignore[no-untyped-def]
    """Do what the request's words (R_...) say."""
    kind = load_i64(request, R_KIND)
    grammar, slot = load_i64(request, R_GRAMMAR), load_i64(request, R_SLOT)
    config, target = load_i64(request, R_CONFIG), load_i64(request, R_TARGET)
    data, begin, end = load_i64(request, R_DATA), load_i64(request, R_BEGIN), load_i64(request, R_END)
    keep = load_i64(request, R_KEEP) != 0
    if kind == _START:
        return 1 if start_graph(batch, grammar, slot, config) else 0
    if kind == _BYTES:
        return accept_graph(batch, grammar, slot, config, data, begin, end, target, keep)
    if kind == _SYMBOL:
        return accept_symbol_graph(batch, grammar, slot, config, data, target, keep)
    if kind == _FORCED:
        return forced_graph(batch, grammar, slot, config, data, end)
    return complete_graph(batch, grammar, slot, config, data, end)


@helper
def _call(batch, kind, grammar, slot, config, data, begin, end, target, keep):  # type: ignore[no-untyped-def]
    request = load_i64(batch, B_REQUEST)
    store_i64(request, R_KIND, kind)
    store_i64(request, R_GRAMMAR, grammar)
    store_i64(request, R_SLOT, slot)
    store_i64(request, R_CONFIG, config)
    store_i64(request, R_TARGET, target)
    store_i64(request, R_DATA, data)
    store_i64(request, R_BEGIN, begin)
    store_i64(request, R_END, end)
    store_i64(request, R_KEEP, 1 if keep else 0)
    return call_kernel(load_i64(batch, B_GRAPH_CALL), batch, request)


@helper
def call_start(batch, grammar, slot, config):  # type: ignore[no-untyped-def]
    """`arena.start_graph`."""
    return _call(batch, _START, grammar, slot, config, 0, 0, 0, 0, True) != 0


@helper
def call_accept(batch, grammar, slot, config, data, begin, end, target, keep):  # type: ignore[no-untyped-def]
    """`arena.accept_graph`."""
    return _call(batch, _BYTES, grammar, slot, config, data, begin, end, target, keep)


@helper
def call_symbol(batch, grammar, slot, config, token, target, keep):  # type: ignore[no-untyped-def]
    """`arena.accept_symbol_graph`."""
    return _call(batch, _SYMBOL, grammar, slot, config, token, 0, 0, target, keep)


@helper
def call_forced(batch, grammar, slot, config, out, most):  # type: ignore[no-untyped-def]
    """`graph_finish.forced_graph`."""
    return _call(batch, _FORCED, grammar, slot, config, out, 0, most, 0, False)


@helper
def call_completion(batch, grammar, slot, config, out, most):  # type: ignore[no-untyped-def]
    """`graph_finish.complete_graph`."""
    return _call(batch, _COMPLETION, grammar, slot, config, out, 0, most, 0, False)
