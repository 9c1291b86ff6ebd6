"""Rows that the device advances are where the host's matcher is, after any tokens, legal or not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from device_problems import DEVICE, tensor
from mask_sets import byte_vocabulary

import stepmask
from stepmask.masks.batch import Batch
from stepmask.masks.compiled import CompiledGrammar
from stepmask.masks.device.grammars import ACCEPTED, HOST_ROW, DeviceGrammars
from stepmask.masks.device.mirror import PoolMirror
from stepmask.masks.device.regions import Region
from stepmask.masks.device.sampler import DeviceSampler
from stepmask.masks.device.tables import DeviceParameters
from stepmask.masks.sampling import SamplingParameters
from stepmask.masks.tables import EndSets
from stepmask.masks.vocabulary import Vocabulary

VOCABULARY = byte_vocabulary(b"ab", b"abc", b"yes", b" no", b"20", b"01", b"-0", b"12", b"pos", b"itive", b"neg", b"bb")
END = VOCABULARY.width - 1
#: Finite ones, and small ones that are not: both are plain DFAs with all masks known.
GRAMMARS = {
    "date": stepmask.regex("20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"),
    "choice": stepmask.choice(["positive", "negative", "neg", "yes", "yesterday"]),
    "short": stepmask.regex("(a|ab|abc|b){1,4}"),
    "text": stepmask.regex("[^x]{1,3}y?"),
    "loop": stepmask.regex("(ab|bc)*c"),
    "space": stepmask.regex("( no| yes)+"),
}
BACKENDS = ["torch", "triton"]


def make(backend: str, rows: int, slots: int = 16) -> tuple[Batch, PoolMirror, DeviceGrammars]:
    batch = Batch(VOCABULARY, slots, None)
    mirror = PoolMirror(batch, DEVICE)
    # Recursive grammars stay with the host here; on the device they are in `test_pushdowns.py`.
    device = DeviceGrammars(VOCABULARY, mirror, rows, grammars=16, image_bytes=1 << 20, levels=0, backend=backend)
    return batch, mirror, device


def mask_of(device: DeviceGrammars, row: int) -> np.ndarray:
    """bool[width]: the row's whole mask as the sampler would see it, by masking zeros."""
    sampler = DeviceSampler(VOCABULARY.width, len(device.state), DEVICE, backend="torch")
    logits = torch.zeros(len(device.state), VOCABULARY.width, device=DEVICE)
    sampler.apply_masks(logits, device.mirror.tables, device.mask_ids, end_allowed=device.end_allowed, ends=device.ends)
    return (logits[row] == 0).cpu().numpy()


def host_mask(batch: Batch, slot: int) -> np.ndarray:
    return np.unpackbits(batch.mask(slot).view(np.uint8), bitorder="little")[: VOCABULARY.width] != 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", range(2))
def test_equals_the_host_on_random_tokens(backend: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = 2 * len(GRAMMARS) + 1
    batch, _, device = make(backend, rows)
    compiled = [stepmask.compile(grammar, VOCABULARY) for grammar in GRAMMARS.values()]
    numbers = [device.add(c) for c in compiled]
    assert all(number is not None for number in numbers)
    slots = []
    for row in range(rows - 1):
        minimum = int(rng.integers(0, 4))
        slots.append(batch.add(compiled[row // 2], eos=[END], min_tokens=minimum))
        device.start(row, numbers[row // 2], eos=(END,), min_tokens=minimum)
    device.start(rows - 1, None)
    for _ in range(12):
        plan = batch.plan(np.array(slots, np.int32))
        np.testing.assert_array_equal(device.end_allowed[:-1].cpu().numpy(), plan.end_allowed.view(np.int32))
        tokens = np.full(rows, 5, np.int32)
        for row, slot in enumerate(slots):
            mask = host_mask(batch, slot)
            np.testing.assert_array_equal(mask_of(device, row), mask)
            legal = np.flatnonzero(mask)
            tokens[row] = rng.choice(legal) if legal.size and rng.random() < 0.85 else rng.integers(-1, END + 3)
        before = device.state.clone()
        device.advance(tensor(tokens))
        accepted = batch.advance(np.array(slots, np.int32), tokens[:-1])
        np.testing.assert_array_equal(device.accepted[:-1].cpu().numpy(), accepted)
        assert device.accepted[-1] == ACCEPTED
        refused = np.flatnonzero(accepted != ACCEPTED).tolist()
        assert torch.equal(device.state[refused], before[refused])
        for row, slot in enumerate(slots):
            if batch.is_finished(slot):  # begin again, as the next request in this slot would
                batch.reset(slot)
                device.start(row, numbers[row // 2], eos=(END,), min_tokens=int(device.min_tokens[row]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_end_tokens_that_the_grammar_names(backend: str) -> None:
    """One of a row's end tokens may come where the text is not complete, or go on; the others where it is."""
    vocabulary = Vocabulary.from_bytes(
        [b"a", b"b", b"ab", b"", b"", b""], eos=[3, 4, 5], special=[3, 4, 5], names={"<x>": 3, "<y>": 4, "<z>": 5}
    )
    texts = ['start: ("a" | "b")+ <y>', 'start: ("a" <x> | "ab")* "b" <z>?', 'start: <z> "a" | "b" (<x> | <y>)']
    compiled = [stepmask.compile(stepmask.lark(text), vocabulary, use_cache=False) for text in texts]
    ends = [(3, 4, 5), (4,), (5, 3), (4, 1), ()]
    rows = [(grammar, end) for grammar in range(len(texts)) for end in ends]
    batch = Batch(vocabulary, len(rows), None)
    mirror = PoolMirror(batch, DEVICE)
    device = DeviceGrammars(vocabulary, mirror, len(rows), grammars=4, image_bytes=1 << 16, levels=0, backend=backend)
    numbers = [device.add(grammar) for grammar in compiled]
    assert None not in numbers
    rng = np.random.default_rng(2)
    slots = np.zeros(len(rows), np.int32)
    for row, (grammar, end) in enumerate(rows):
        slots[row] = batch.add(compiled[grammar], eos=end, min_tokens=row % 3)
        device.start(row, numbers[grammar], eos=end, min_tokens=row % 3)
    some = 0
    for _ in range(8):
        plan = batch.plan(slots)
        bits = device.end_allowed.cpu().numpy().view(np.uint32)
        tokens = np.zeros(len(rows), np.int32)
        for row, (_, end) in enumerate(rows):
            used = (1 << len(end)) - 1
            assert int(bits[row]) & used == int(plan.end_allowed[row]) & used
            some += 0 < int(bits[row]) & used < used
            legal = np.flatnonzero(np.unpackbits(batch.mask(int(slots[row])).view(np.uint8), bitorder="little"))
            tokens[row] = rng.choice(legal) if legal.size and rng.random() < 0.8 else rng.integers(6)
        device.advance(tensor(tokens))
        np.testing.assert_array_equal(device.accepted.cpu().numpy(), batch.advance(slots, tokens))
        for row, (grammar, end) in enumerate(rows):
            if batch.is_finished(int(slots[row])):
                batch.reset(int(slots[row]))
                device.start(row, numbers[grammar], eos=end, min_tokens=row % 3)
    assert some > 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_many_steps_without_the_host(backend: str) -> None:
    """Sampling and advancing on the device alone writes what the host writes step by step; some rows are the host's."""
    names = ["date", "choice", "short", "loop"]
    compiled = [stepmask.compile(GRAMMARS[name], VOCABULARY) for name in names]
    recursive = stepmask.compile(stepmask.gbnf('root ::= "a" root? "b"'), VOCABULARY)
    batch, mirror, device = make(backend, 6)
    numbers = [device.add(c) for c in compiled]
    assert device.add(recursive) is None
    grammars: Sequence[CompiledGrammar] = [*compiled, recursive]
    slots = np.array([batch.add(c, eos=[END]) for c in grammars] + [-1], np.int32)
    for row, number in enumerate([*numbers, None, None]):
        device.start(row, number, eos=(END,))
    rng = np.random.default_rng(4)
    steps, rows, width = 14, 6, VOCABULARY.width
    logits = rng.normal(size=(steps, rows, width)).astype(np.float32)
    logits[:, 5, :] = -np.inf
    logits[:, 5, 7] = 1
    on_device = tensor(logits)
    sampler = DeviceSampler(width, rows, DEVICE, backend=backend, tile=512)
    parameters = [SamplingParameters.build(rows, seed=np.arange(rows), position=step) for step in range(steps)]
    written = []
    host_rows = torch.tensor([4], device=DEVICE)
    for step in range(steps):
        shipment = mirror.ship(batch.plan(slots[4:5]))
        device.set_host(host_rows, shipment.mask_ids, shipment.end_allowed)
        with np.errstate(all="ignore"):
            result = sampler.sample(
                on_device[step],
                device.mask_ids,
                mirror.tables,
                end_allowed=device.end_allowed,
                ends=device.ends,
                parameters=DeviceParameters.of(parameters[step], DEVICE),
            )
        mirror.shipped(shipment)
        device.advance(result.tokens)
        written.append(result.tokens.cpu().numpy())
        batch.advance(slots[4:5], written[-1][4:5])
    host = Batch(VOCABULARY, 8, None)
    slots = np.array([host.add(c, eos=[END]) for c in grammars] + [-1], np.int32)
    ends = EndSets.same(rows, [END])
    for step in range(steps):
        plan = host.plan(slots)
        result = stepmask.sample(
            logits[step], plan.mask_ids, host.tables, end_allowed=plan.end_allowed, end_sets=ends,
            parameters=parameters[step],
        )  # fmt: skip
        np.testing.assert_array_equal(result.tokens, written[step])
        host.advance(slots, result.tokens)
    assert np.array(written)[:, 0].tolist().count(END) == 1
    assert device.grammar.tolist()[4:] == [HOST_ROW, HOST_ROW]


def test_grammars_come_and_go() -> None:
    """Places are given back: more grammars than there is room for at once; equal lists are stored once."""
    batch = Batch(VOCABULARY, 4, None)
    mirror = PoolMirror(batch, DEVICE, resident_masks=1, resident_lists=16, resident_tokens=200)
    device = DeviceGrammars(VOCABULARY, mirror, 2, grammars=2, image_bytes=1 << 15, backend="torch")
    date, text = (stepmask.compile(GRAMMARS[name], VOCABULARY) for name in ("date", "text"))
    for _ in range(5):
        first = device.add(date)
        assert first is not None
        second = device.add(stepmask.compile(GRAMMARS["short"], VOCABULARY))
        assert second is not None and second != first
        assert device.add(date) is None
        device.start(0, first, eos=(END,))
        assert set(np.flatnonzero(mask_of(device, 0)).tolist()) == {ord("2"), 256 + 4}
        device.remove(first)
        device.remove(second)
    # Its masks of nearly all tokens are more rows than there is room for: nothing of it stays.
    free = mirror.token_region.free
    assert device.add(text) is None
    assert mirror.token_region.free == free == 200
    assert mirror.list_region.free == 16


def test_what_stays_with_the_host() -> None:
    _, _, device = make("torch", 1)
    for grammar in (stepmask.regex("[ab]{1,500}c[ab]{3,900}"), stepmask.json_value()):
        assert device.add(stepmask.compile(grammar, VOCABULARY)) is None
    number = device.add(stepmask.compile(GRAMMARS["date"], VOCABULARY))
    with pytest.raises(ValueError, match="at most 32 end tokens"):
        device.start(0, number, eos=tuple(range(40)))
    with pytest.raises(ValueError, match="3 tokens for 1 rows"):
        device.advance(torch.zeros(3, dtype=torch.int32, device=DEVICE))
    with pytest.raises(ValueError, match="backend"):
        DeviceGrammars(VOCABULARY, device.mirror, 1, backend="nonsense")


def test_regions() -> None:
    region = Region(10, 100)
    first, second, third = region.take(4), region.take(4), region.take(4)
    assert (first, second, third) == (100, 104, None)
    region.give(100, 4)
    assert region.take(5) is None and region.free == 6
    region.give(104, 4)
    assert region.take(10) == 100
    assert region.take(0) == 0 and Region(0).take(1) is None
