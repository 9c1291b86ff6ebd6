"""The pool's mirror holds every mask that a step ships, through every epoch, and copies none twice."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from device_problems import DEVICE
from mask_sets import byte_vocabulary

import stepmask
from stepmask.masks.batch import Batch
from stepmask.masks.device.mirror import PoolMirror
from stepmask.masks.tables import KIND_DENSE, KIND_LIST, KIND_SHIFT

MORE = [bytes([a, b]) for a in range(97, 107) for b in range(97, 123)]
VOCABULARY = byte_vocabulary(*MORE)
END = VOCABULARY.width - 1


def shipped_equals_host(batch: Batch, mirror: PoolMirror, ids: np.ndarray) -> set[int]:
    """The mask behind each id on the device is the host's; returns the kinds of mask seen."""
    kinds = set()
    for mask_id in ids.tolist():
        kind, index = mask_id >> KIND_SHIFT, mask_id & ((1 << KIND_SHIFT) - 1)
        kinds.add(kind)
        own, host = mirror.tables, batch.tables
        if kind == KIND_DENSE:
            np.testing.assert_array_equal(own.dense[index].cpu().numpy().view(np.uint32), host.dense[index])
        if kind == KIND_LIST:
            offset, length = int(own.list_offset[index]), int(own.list_length[index])
            assert (offset, length) == (host.list_offset[index], host.list_length[index])
            tokens = own.list_tokens[offset : offset + length].cpu().numpy()
            np.testing.assert_array_equal(tokens, host.list_tokens[offset : offset + length])
    return kinds


@pytest.mark.parametrize("staging_words", [64, 1 << 18])
def test_every_shipped_mask_is_there(staging_words: int) -> None:
    """Epochs turn often in a pool of 16 masks; masks of the step before stay readable while the next is prepared."""
    rng = np.random.default_rng(3)
    slots = 8
    batch = Batch(VOCABULARY, slots, None, pool_masks=16)
    mirror = PoolMirror(batch, DEVICE, resident_masks=0, staging_words=staging_words)
    patterns = [f"[^{a}{b}]+({a}|{b}x)[{a}-z]" for a in "abcdefghij" for b in "klmnopqrst"]
    compiled = [stepmask.compile(stepmask.regex(pattern), VOCABULARY, use_cache=False) for pattern in patterns]
    chosen = np.array([batch.add(compiled[i], eos=[END]) for i in range(slots)], np.int32)
    kinds: set[int] = set()
    epochs = set()
    before = None
    for _ in range(120):
        plan = batch.plan(chosen)
        ids = plan.mask_ids.copy()
        shipment = mirror.ship(plan)
        np.testing.assert_array_equal(shipment.mask_ids.cpu().numpy(), ids)
        np.testing.assert_array_equal(shipment.end_allowed.cpu().numpy(), plan.end_allowed.view(np.int32))
        np.testing.assert_array_equal(shipment.status.cpu().numpy(), plan.status)
        epochs.add(shipment.generation)
        kinds |= shipped_equals_host(batch, mirror, ids)
        if before is not None:
            assert shipment.generation - before[1].generation <= 1
            assert torch.equal(before[1].mask_ids.cpu(), torch.from_numpy(before[0]))
            shipped_equals_host(batch, mirror, before[0])
        before = (ids, shipment)
        mirror.shipped(shipment)
        place = int(rng.integers(slots))
        batch.remove(int(chosen[place]))
        chosen[place] = batch.add(compiled[int(rng.integers(len(compiled)))], eos=[END])
        for _ in range(3):  # some are not legal, which changes nothing
            batch.advance(chosen, rng.integers(97, 107, slots).astype(np.int32))
    assert kinds >= {KIND_DENSE, KIND_LIST} and len(epochs) > 2
    assert mirror.steps == 120 and mirror.generation in epochs


@pytest.mark.parametrize("skipped", [0, 2])
def test_an_epoch_may_begin_within_a_plan(skipped: int) -> None:
    """Masks that a plan has put into the half it leaves behind are shipped by that plan all the same.

    `skipped`: plans between two shipments, so that more than one epoch may begin.
    """
    rng = np.random.default_rng(5)
    slots = 4
    batch = Batch(VOCABULARY, slots, None, pool_masks=2 * slots)
    mirror = PoolMirror(batch, DEVICE, resident_masks=0)
    rules = [f'root ::= "(" root [^{a}]* ")" [^{b}] | [^({b}]+' for a in "abcdefgh" for b in "klmnopqr"]
    compiled = [stepmask.compile(stepmask.gbnf(rule), VOCABULARY, use_cache=False) for rule in rules]
    chosen = np.array([batch.add(compiled[i], eos=[END]) for i in range(slots)], np.int32)
    behind = 0
    for _ in range(150):
        for _ in range(skipped):
            batch.plan(chosen)
            batch.advance(chosen, rng.choice([*b"(((ab)"], slots).astype(np.int32))
        plan = batch.plan(chosen)
        shipment = mirror.ship(plan)
        shipped_equals_host(batch, mirror, plan.mask_ids)
        half = batch.tables.dense.shape[0] // 2
        dense = plan.mask_ids[plan.mask_ids >> KIND_SHIFT == KIND_DENSE]
        behind += int((dense // half != shipment.generation % 2).sum())
        mirror.shipped(shipment)
        place = int(rng.integers(slots))
        batch.remove(int(chosen[place]))
        chosen[place] = batch.add(compiled[int(rng.integers(len(compiled)))], eos=[END])
        batch.advance(chosen, rng.choice([*b"(((ab)"], slots).astype(np.int32))
    assert behind > 0


def test_a_step_without_new_masks_copies_none() -> None:
    batch = Batch(VOCABULARY, 2, None)
    mirror = PoolMirror(batch, DEVICE)
    slot = batch.add(stepmask.compile(stepmask.regex("[a-z]+0"), VOCABULARY), eos=[END])
    rows = np.array([slot, -1], np.int32)
    for _ in range(2):  # the masks of both states
        mirror.shipped(mirror.ship(batch.plan(rows)))
        batch.advance(rows, np.array([ord("a"), 0], np.int32))
    copied = mirror.uploaded_bytes
    assert copied >= 4 * batch.tables.dense.shape[1]
    for _ in range(3):
        mirror.shipped(mirror.ship(batch.plan(rows)))
        batch.advance(rows, np.array([ord("a"), 0], np.int32))
    assert mirror.uploaded_bytes == copied


def test_a_staging_buffer_must_hold_a_mask() -> None:
    with pytest.raises(ValueError, match="words of a mask"):
        PoolMirror(Batch(VOCABULARY, 1, None), DEVICE, staging_words=1)
