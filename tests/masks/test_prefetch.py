"""Masks made ahead on another thread: the same masks, nothing of a sequence changed, one writer at a time."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from mask_sets import byte_vocabulary

from stepmask.grammar.gbnf import gbnf
from stepmask.grammar.json_schema.front_end import json_schema
from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex
from stepmask.masks import prefetch as prefetch_module
from stepmask.masks.batch import Batch, Plan
from stepmask.masks.compiled import CompiledGrammar, compile
from stepmask.masks.layout import B_CONFIGS, B_OLDEST, B_POSITION, B_WAITING, G_STATE_MASK, PENDING, READY
from stepmask.masks.prefetch import Prefetcher
from stepmask.masks.tables import KIND_DENSE, KIND_LIST, KIND_SHIFT

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 ,"
VOCABULARY = byte_vocabulary(*((x + y).encode() for x, y in itertools.product(LETTERS, repeat=2)))
END = VOCABULARY.size - 1
ON_DEMAND = Limits(max_eager_contexts=0)


def build(number: int) -> CompiledGrammar:
    """Of each way to step some, with other masks after each token."""
    c, d = LETTERS[number % 26], LETTERS[number * 7 % 25 + 1]
    members = {"type": "object", "properties": {c: {"type": "integer"}, d: {"enum": [True, "ab"]}, "1": {}}}
    grammar = [
        regex("".join(f"[^{x}]" for x in LETTERS[number % 5 :] + LETTERS)),
        regex(f"(?:[^{c}{d}]{{1,5}}{c}){{2,40}}"),
        gbnf(f'root ::= "(" (root ("," root)*)? ")" | [{min(c, "y")}-z0-9]+ root | "{d}"'),
        regex(f".*[{c}{d}].{{9}}"),
        json_schema(members, property_order="any"),
        regex(f"(?:{c}{d}|[{min(c, 'y')}-z]x){{3,9}}"),
    ][number % 6]
    limits = Limits(max_dfa_states=1) if number % 6 == 3 else ON_DEMAND
    return compile(grammar, VOCABULARY, limits, use_cache=False)


GRAMMARS = [build(number) for number in range(12)]


def finish(batch: Batch) -> None:
    """Prefetch until nothing is left to do, but for what does not fit."""
    assert batch.prefetcher is not None
    batch.prefetch_start()
    thread = batch.prefetcher._group.thread
    # What was begun ends by itself: have it end without being stopped.
    assert thread._done.acquire(timeout=60)
    thread._done.release()
    batch.prefetch_stop()


def snapshot(batch: Batch, slots: list[int]) -> list[bytes]:
    """What a sequence is: its history and what stands at each of its places."""
    arrays = batch._block.arrays
    found = [arrays[field].tobytes() for field in (B_POSITION, B_OLDEST, B_WAITING)]
    for slot in slots:
        history = arrays[B_CONFIGS].shape[1]
        for position in range(int(arrays[B_OLDEST][slot]), int(arrays[B_POSITION][slot]) + 1):
            found.append(arrays[B_CONFIGS][slot, position % history].tobytes())
    return found


def shipped(batch: Batch, plan: Plan) -> list[bytes]:
    """The masks that a plan's ids name."""
    found = []
    tables = batch.tables
    for mask_id in plan.mask_ids.tolist():
        kind, index = mask_id >> KIND_SHIFT, mask_id & ((1 << KIND_SHIFT) - 1)
        content = b""
        if kind == KIND_DENSE:
            content = tables.dense[index].tobytes()
        elif kind == KIND_LIST:
            begin = int(tables.list_offset[index])
            content = tables.list_tokens[begin : begin + int(tables.list_length[index])].tobytes()
        found.append(content)
    return found


def test_waiting_rows_are_finished() -> None:
    batch, free = Batch(VOCABULARY, 12, 0.0, pool_masks=4096), Batch(VOCABULARY, 12, None)
    batch.prefetch_start()
    slots = np.array([batch.add(grammar) for grammar in GRAMMARS], np.int32)
    assert [free.add(grammar) for grammar in GRAMMARS] == slots.tolist()
    plan = batch.plan(slots)
    waiting = int((plan.status == PENDING).sum())
    assert waiting > 6
    counters, before = batch.counters, snapshot(batch, slots.tolist())
    finish(batch)
    changed = {name for name, value in batch.counters.items() if value != counters[name]}
    assert not changed and batch.prefetcher is not None
    assert snapshot(batch, slots.tolist())[:2] == before[:2] and snapshot(batch, slots.tolist())[3:] == before[3:]
    assert batch.plan(slots).all_ready
    counters = batch.prefetcher.counters
    assert counters["finished"] == waiting == counters["hits"] == counters["misses"]
    assert counters["work"] > 1000
    for slot in slots.tolist():
        assert np.array_equal(batch.mask(slot), free.mask(slot))


@pytest.mark.parametrize("pool_masks", [8, 4096])
@pytest.mark.parametrize("budget_us", [0.5, 5.0, None])
@pytest.mark.parametrize("seed", range(2))
def test_random_steps_with_prefetch(seed: int, budget_us: float | None, pool_masks: int) -> None:
    """Sequences come, go, go back and fork; each mask is that of a batch without prefetch, and no row's state moves."""
    rng = np.random.default_rng(seed)
    batch = Batch(VOCABULARY, 4, budget_us, fuel_per_us=150, max_rollback=3, pool_masks=pool_masks)
    free = Batch(VOCABULARY, 4, None, max_rollback=3)
    batch.prefetch_start()

    def fill() -> None:
        while batch.free_slots:
            grammar = GRAMMARS[int(rng.integers(len(GRAMMARS)))]
            assert batch.add(grammar) == free.add(grammar)

    fill()
    slots = np.arange(4, dtype=np.int32)
    ready = 0
    for _ in range(120):
        plan = batch.plan(slots)
        masks, before = shipped(batch, plan), snapshot(batch, slots.tolist())
        if rng.random() < 0.5:
            finish(batch)
        else:
            batch.prefetch_start(int(rng.integers(1, 3000)) if rng.random() < 0.5 else None)
        # What the plan shipped is still there, whatever was made since.
        assert shipped(batch, plan) == masks
        # Sets and blocks may have got other numbers; rows that waited may have been served.
        after = snapshot(batch, slots.tolist())
        assert after[:2] == before[:2] and (after[2] == before[2] or not plan.all_ready)
        for row in range(4):
            if plan.status[row] != READY:
                continue
            ready += 1
            assert np.array_equal(batch.mask(row), free.mask(row))
            legal = np.flatnonzero(np.unpackbits(free.mask(row).view(np.uint8), bitorder="little"))
            legal = legal[legal != END]
            one = slots[row : row + 1]
            if not len(legal) or rng.random() < 0.05:
                batch.remove(row)
                free.remove(row)
                fill()
                continue
            token = np.array([rng.choice(legal)], np.int32)
            assert batch.advance(one, token)[0] == free.advance(one, token)[0]
            if rng.random() < 0.1:
                batch.rollback(row, 1)
                free.rollback(row, 1)
        if rng.random() < 0.1:
            batch.remove(0)
            free.remove(0)
            assert batch.fork(1) == free.fork(1) == 0
    assert ready > 20


def test_the_next_token_is_foreseen() -> None:
    """Single legal tokens, few legal tokens, and tokens that others took in the same place before."""
    grammar = compile(regex("".join(f"[^{x}]" for x in LETTERS)), VOCABULARY, ON_DEMAND, use_cache=False)
    batch = Batch(VOCABULARY, 2, None, pool_masks=4096)
    batch.prefetch_start()
    assert batch.prefetcher is not None
    text = [VOCABULARY.size - 2 - i for i in range(8)]
    taught, other = batch.add(grammar), batch.add(GRAMMARS[5])
    row = np.array([taught], np.int32)
    for token in text:
        batch.plan(row)
        batch.advance(row, np.array([token], np.int32))
    # The same places, the masks of which are forgotten: another grammar of the same kind would not be foreseen.
    resident = batch._of_slot[taught]
    assert resident is not None
    batch.reset(taught)
    resident.block.arrays[G_STATE_MASK][:] = -1
    for number, token in enumerate(text):
        work = batch.counters["work"]
        batch.plan(row)
        if number:
            assert batch.counters["work"] == work, "the mask was made ahead"
        finish(batch)
        batch.advance(row, np.array([token], np.int32))
    counters = batch.prefetcher.counters
    assert counters["hits"] == len(text) - 1 and counters["ahead"] == len(text) and counters["wasted"] == 0
    row[0] = other
    plan = batch.plan(row)
    legal = np.flatnonzero(np.unpackbits(batch.mask(other).view(np.uint8), bitorder="little"))
    assert plan.all_ready and len(legal) > 4  # too many to follow, and nothing known of them
    ahead = batch.prefetcher.counters["ahead"]
    finish(batch)
    assert batch.prefetcher.counters["ahead"] == ahead


def test_few_legal_tokens_are_all_followed() -> None:
    batch = Batch(VOCABULARY, 1, None, pool_masks=4096)
    batch.prefetch_start()
    slot = batch.add(compile(regex("[\\x01\\x02\\x03][^a][^b]"), VOCABULARY, ON_DEMAND, use_cache=False))
    row = np.array([slot], np.int32)
    batch.plan(row)
    finish(batch)
    assert batch.prefetcher is not None
    counters = batch.prefetcher.counters
    assert counters["tried"] == 3 and counters["ahead"] == 1  # all lead to the same state
    batch.advance(row, np.array([2], np.int32))
    work = batch.counters["work"]
    assert batch.plan(row).all_ready and batch.counters["work"] == work


def test_sequences_that_have_gone_are_left_out() -> None:
    """Between the plan and the run rows are removed, others come in their places, or a sequence goes back."""
    batch = Batch(VOCABULARY, 12, 2.0, fuel_per_us=150, pool_masks=4096)
    batch.prefetch_start()
    slots = np.array([batch.add(grammar) for grammar in GRAMMARS], np.int32)
    for turn in range(20):
        batch.plan(slots)
        for slot in range(turn % 3, 12, 3):
            batch.remove(slot)
        if turn % 2:
            finish(batch)
        else:
            while batch.free_slots > 2:
                batch.add(GRAMMARS[(turn + batch.free_slots) % 12])
            finish(batch)
        while batch.free_slots:
            batch.add(GRAMMARS[(turn + batch.free_slots) % 12])
    assert batch.prefetcher is not None and batch.prefetcher.counters["finished"] > 0


def test_its_plans_are_as_wide_as_the_batchs() -> None:
    """One kernel writes both, by address."""
    batch = Batch(VOCABULARY, 12, 0.0, pool_masks=4096)
    batch.prefetch_start()
    batch.prefetch_stop()
    assert batch.prefetcher is not None
    plan = batch.plan(np.full(12, -1, np.int32))
    scratch = batch.prefetcher.block.arrays
    fields = (prefetch_module.P_OUT_MASKS, prefetch_module.P_OUT_END, prefetch_module.P_OUT_STATUS)
    for field, own in zip(fields, (plan.mask_ids, plan.end_allowed, plan.status), strict=True):
        assert scratch[field].dtype == own.dtype and scratch[field].nbytes == own.nbytes


def test_the_fuel_of_a_run_is_kept() -> None:
    batch = Batch(VOCABULARY, 12, 0.0, pool_masks=4096)
    batch.prefetch_start()
    slots = np.array([batch.add(grammar) for grammar in GRAMMARS], np.int32)
    batch.plan(slots)
    assert batch.prefetcher is not None
    batch.prefetch_start(1)
    batch.prefetch_stop()
    assert batch.prefetcher.counters["work"] < 20_000


def test_every_use_takes_the_batch_back_and_pausing_keeps_it() -> None:
    batch = Batch(VOCABULARY, 4, 0.0, pool_masks=4096)
    slots = np.array([batch.add(GRAMMARS[number]) for number in range(3)], np.int32)
    batch.prefetch_start()
    prefetcher = batch.prefetcher
    assert isinstance(prefetcher, Prefetcher)
    for use in (
        lambda: batch.plan(slots),
        lambda: batch.add(GRAMMARS[3]),
        lambda: batch.mask(0),
        lambda: batch.advance(slots[:1], np.array([END], np.int32)),
        lambda: batch.allows(0, 1),
        lambda: batch.reset(0),
        lambda: batch.rollback(0, 0),
        lambda: batch.remove(3),
        lambda: batch.fork(0),
        lambda: batch.counters,
        lambda: batch.position(0),
        lambda: batch.address,
    ):
        batch.prefetch_start()
        assert prefetcher.running
        use()
        assert not prefetcher.running, use
    prefetcher.paused = True
    batch.prefetch_start()
    assert not prefetcher.running
    prefetcher.paused = False
    batch.prefetch_start()
    batch.prefetch_start()
    batch.prefetch_stop()
    batch.prefetch_stop()


def test_nothing_is_written_while_it_is_stopped() -> None:
    batch = Batch(VOCABULARY, 6, 0.0, pool_masks=4096)
    slots = np.array([batch.add(GRAMMARS[number]) for number in range(6)], np.int32)
    batch.prefetch_start()
    for _ in range(300):
        batch.plan(slots)
        batch.prefetch_start()
        batch.prefetch_stop()
    batch.plan(slots)
    batch.prefetch_start()
    batch.prefetch_stop()
    memory = {field: array.tobytes() for field, array in batch._memory.arrays.items() if array.nbytes < 1 << 22}
    for _ in range(20):
        threading.Event().wait(0.001)
        for field, content in memory.items():
            assert batch._memory.arrays[field].tobytes() == content
    assert batch.prefetcher is not None
    counters = batch.prefetcher.counters
    assert counters["waits"] <= 302 and counters["longest_wait_ns"] <= counters["wait_ns"]


def test_an_error_of_the_thread_is_raised_by_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch(VOCABULARY, 1, 0.0)
    slot = np.array([batch.add(GRAMMARS[0])], np.int32)
    batch.prefetch_start()
    batch.prefetch_stop()
    begun = threading.Event()

    def fail(address: int) -> None:
        begun.set()
        raise RuntimeError("no")

    monkeypatch.setattr(prefetch_module, "run_prefetch", fail)
    batch.prefetch_start()
    assert begun.wait(60)
    with pytest.raises(RuntimeError, match="no"):
        batch.plan(slot)
    monkeypatch.undo()
    batch.plan(slot)
    finish(batch)
    assert batch.plan(slot).all_ready


def test_the_thread_ends_with_the_batch() -> None:
    batch = Batch(VOCABULARY, 1, 0.0)
    batch.add(GRAMMARS[0])
    batch.prefetch_start()
    assert batch.prefetcher is not None
    thread, gone = batch.prefetcher._group.thread._thread, weakref.ref(batch)
    del batch
    gc.collect()
    assert gone() is None
    thread.join(60)
    assert not thread.is_alive()
    batch = Batch(VOCABULARY, 1, 0.0)
    batch.prefetch_start()
    assert batch.prefetcher is not None
    batch.prefetcher.close()
    batch.prefetch_start()
    assert not batch.prefetcher.running


def test_the_interpreter_ends_while_it_runs() -> None:
    code = """
import numpy as np, stepmask
from stepmask.masks.batch import Batch
from stepmask.grammar.limits import Limits
vocabulary = stepmask.Vocabulary.from_bytes([bytes([b]) for b in range(256)], eos=None)
batch = Batch(vocabulary, 1, 0.0)
slot = batch.add(stepmask.compile(stepmask.regex("(?:[^a]{1,50},){1,99}"), vocabulary, Limits(max_eager_contexts=0)))
batch.prefetch_start()
batch.plan(np.array([slot], np.int32))
batch.prefetch_start()
print("begun")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "begun", "")
