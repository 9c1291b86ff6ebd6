"""A model in a process of its own: the same bits, a forward pass that goes on by itself, and its ends."""

from __future__ import annotations

import gc
import os
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_cases import VOCABULARY, WIDTH, answers, forcing_grammars, random_grammars, random_requests
from process_models import Failing, Single, Waiting, refuse

from stepmask.integrations.engine import Engine, Request
from stepmask.integrations.engine.model import OverlappedModel, RunModel
from stepmask.integrations.engine.model_process import ModelProcess, ModelProcessEnded
from stepmask.integrations.engine.synthetic import SyntheticModel


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_answers_are_those_of_the_model_in_this_process() -> None:
    """In both loops, with forced tokens in runs, prefetch and any budget; and no thread is begun for it."""
    rng = np.random.default_rng(5)
    grammars = [*random_grammars(6), *forcing_grammars() * 2]
    requests = random_requests(rng, grammars, 20)
    before = set(threading.enumerate())
    with ModelProcess(partial(SyntheticModel, WIDTH, seed=9)) as model:
        assert isinstance(model, RunModel) and isinstance(model, OverlappedModel)
        assert set(threading.enumerate()) == before
        for budget, overlap, forced in (
            (None, False, False),
            (None, True, True),
            (1.0, True, False),
            (2.0, True, True),
        ):
            found = []
            for one in (SyntheticModel(WIDTH, seed=9), model):
                engine = Engine(
                    one, VOCABULARY, 6, 160, budget_us=budget, prefetch=budget is not None, overlap=overlap,
                    forced=forced, spare_rows=2 * forced,
                )  # fmt: skip
                handles = [engine.submit(request) for request in requests]
                engine.run()
                found.append(answers(handles))
            assert found[0] == found[1]
        assert engine.recorder.chunked > 0


def test_logits_are_the_same_bits_and_caches_are_apart() -> None:
    here = SyntheticModel(WIDTH, seed=3, prefill_chunk=16)
    with ModelProcess(partial(SyntheticModel, WIDTH, seed=3, prefill_chunk=16)) as model:
        assert (model.vocabulary_size, model.prefill_chunk) == (WIDTH, 16)
        caches = [(here.open(rows, 64), model.open(rows, 64)) for rows in (3, 5)]
        rng = np.random.default_rng(1)
        for turn in range(6):
            for rows, (one, other) in zip((3, 5), caches, strict=True):
                prompt = rng.integers(0, WIDTH, 16 if turn % 2 else 5).astype(np.int32)
                tokens, positions = rng.integers(0, WIDTH, rows).astype(np.int32), np.full(rows, 16 + turn, np.int32)
                for target, cache in ((here, one), (model, other)):
                    target.prefill(cache, turn % rows, prompt, 0)  # type: ignore[attr-defined]
                slots = rng.permutation(rows).astype(np.int32) if turn > 2 else None
                if slots is None:
                    expected, found = here.decode(one, tokens, positions), model.decode(other, tokens, positions)
                else:
                    expected = here.decode_runs(one, tokens, positions, slots)
                    found = model.decode_runs(other, tokens, positions, slots)
                np.testing.assert_array_equal(found, expected)
                found += 1  # the engine may write to them
        del caches, cache, one, other
        gc.collect()
        model.open(2, 64)


def test_a_forward_pass_goes_on_by_itself(tmp_path: Path) -> None:
    """It has begun, and waits for what this process does only then."""
    begun, go = tmp_path / "begun", tmp_path / "go"
    with ModelProcess(partial(Waiting, WIDTH, begun, go)) as model:
        cache = model.open(2, 64)
        tokens, positions = np.array([5, 6], np.int32), np.zeros(2, np.int32)
        model.begin(cache, tokens, positions, None)
        tokens[:] = 0  # they are the caller's again
        end = time.monotonic() + 60
        while not begun.exists():
            assert time.monotonic() < end
            time.sleep(0.001)
        go.touch()
        here = SyntheticModel(WIDTH, seed=1)
        expected = here.decode(here.open(2, 64), np.array([5, 6], np.int32), positions)
        np.testing.assert_array_equal(model.finish(cache), expected)


def test_errors_are_the_models() -> None:
    with pytest.raises(ValueError, match="no such model"):
        ModelProcess(refuse)
    with pytest.raises(ValueError, match="decode_runs"):
        ModelProcess(Single)  # type: ignore[arg-type]
    with ModelProcess(partial(Failing, WIDTH, 3)) as model:
        engine = Engine(model, VOCABULARY, 2, 64, overlap=True)
        bad, good = (engine.submit(Request([first, 3], max_tokens=9, ignore_eos=True)) for first in (1, 2))
        with pytest.raises(RuntimeError, match="a forward pass failed"):
            engine.run()
        assert isinstance(bad.error, MemoryError) and len(good.token_ids) == 2
        again = engine.submit(Request([2, 3], max_tokens=4, ignore_eos=True))
        engine.run()
        assert again.finish_reason == "length"
        # One that was begun and not finished is over when something else begins.
        cache = model.open(1, 64)
        model.begin(cache, np.zeros(1, np.int32), np.zeros(1, np.int32), None)
        model.prefill(cache, 0, np.array([4], np.int32), 0)


def test_when_the_process_ends_every_call_says_so() -> None:
    model = ModelProcess(partial(Failing, WIDTH, 2, ends=True))
    engine = Engine(model, VOCABULARY, 2, 64, overlap=True)
    handle = engine.submit(Request([2, 3], max_tokens=9, ignore_eos=True))
    with pytest.raises(ModelProcessEnded, match="exit code"):
        engine.run()
    assert isinstance(handle.error, ModelProcessEnded) and not is_running(model.pid)
    with pytest.raises(ModelProcessEnded):
        model.open(2, 64)
    model.close()


def test_the_process_ends_with_the_model() -> None:
    model: Any = ModelProcess(partial(SyntheticModel, WIDTH))
    cache, pid = model.open(1, 32), model.pid
    assert is_running(pid)
    del model
    gc.collect()
    assert not is_running(pid)
    del cache
    with ModelProcess(partial(SyntheticModel, WIDTH)) as model:
        pid = model.pid
    assert not is_running(pid)
    model.close()
