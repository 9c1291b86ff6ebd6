"""Counting the bytes that device kernels move, in Triton's interpreter (for `device_code.py`).

Every load and store is seen with its addresses and its mask. A program's sectors count once each for reading and for
writing, as if they stayed in its cache; between programs nothing is shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

SECTOR = 32


class Counter:
    """Patches the interpreter's memory operations; `read` and `written` are bytes of whole sectors."""

    def __init__(self) -> None:
        from triton.runtime import interpreter

        builder = interpreter.interpreter_builder
        self.read = self.written = 0
        self._sectors: dict[bool, set[int]] = {False: set(), True: set()}
        load, store, grid = builder.create_masked_load, builder.create_masked_store, builder.set_grid_idx

        def masked_load(ptrs: Any, mask: Any, *rest: Any) -> Any:
            self._note(ptrs, mask, False)
            return load(ptrs, mask, *rest)

        def masked_store(ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
            self._note(ptrs, mask, True)
            return store(ptrs, value, mask, *rest)

        def next_program(*place: int) -> Any:
            self.settle()
            return grid(*place)

        builder.create_masked_load, builder.create_masked_store = masked_load, masked_store
        builder.set_grid_idx = next_program

    def _note(self, ptrs: Any, mask: Any, write: bool) -> None:
        addresses, chosen = np.broadcast_arrays(ptrs.data, mask.data)
        self._sectors[write].update(np.unique(addresses[chosen.astype(bool)] // SECTOR).tolist())

    def settle(self) -> None:
        """Add up what one program has touched."""
        self.read += SECTOR * len(self._sectors[False])
        self.written += SECTOR * len(self._sectors[True])
        self._sectors[False].clear()
        self._sectors[True].clear()

    def reset(self) -> None:
        self.settle()
        self.read = self.written = 0


def count_rows(vocabulary: int, rows: Sequence[tuple[str, float | None, dict[str, Any]]]) -> dict[str, Any]:
    """For each row and format of logits: bytes read and written, the floor, and how often the floor was moved."""
    import torch

    from stepmask.masks.device.sampler import DeviceSampler
    from stepmask.masks.device.tables import DeviceParameters, DeviceTables
    from stepmask.masks.sampling import SamplingParameters
    from stepmask.masks.tables import KIND_LIST, KIND_SHIFT, UNCONSTRAINED, MaskTables

    counter = Counter()
    rng = np.random.default_rng(0)
    # A copy of torch's own, which begins at a sector as an allocation on a device does.
    values = torch.from_numpy((rng.normal(size=(1, vocabulary)) * 3).astype(np.float32)).clone()
    sampler = DeviceSampler(vocabulary, 1, "cpu", backend="triton")
    report: dict[str, Any] = {}
    for name, density, parameters in rows:
        listed = density is not None and density < 0
        size = 0.0 if density is None else abs(density)
        allowed = rng.random(vocabulary) < (1.0 if density is None else size)
        if size > 1:
            allowed = np.zeros(vocabulary, bool)
            allowed[rng.choice(vocabulary, int(size), replace=False)] = True
        bits = np.zeros(-(-vocabulary // 32) * 32, bool)
        bits[:vocabulary] = allowed
        tokens = np.flatnonzero(allowed).astype(np.int32) if listed else np.zeros(1, np.int32)
        pool = MaskTables(
            np.packbits(bits, bitorder="little").view(np.uint32)[None, :], np.zeros(1, np.int32),
            np.array([tokens.size], np.int32), tokens,
        )  # fmt: skip
        mask_id = UNCONSTRAINED if density is None else (KIND_LIST << KIND_SHIFT if listed else 0)
        report[name] = {}
        for dtype in (torch.float32, torch.bfloat16):
            ids = torch.full((1,), mask_id, dtype=torch.int32)
            logits = values.to(dtype)
            inputs = DeviceParameters.of(SamplingParameters.build(1, seed=3, **parameters), "cpu")
            tables = DeviceTables.of(pool, "cpu")
            counter.reset()
            with np.errstate(all="ignore"):
                sampler.sample(logits, ids, tables, parameters=inputs)
            counter.settle()
            share = SECTOR // logits.element_size()
            sectors = np.unique(np.flatnonzero(allowed) // share).size
            mask_bytes = 0 if density is None else (4 * tokens.size if listed else -(-vocabulary // 8))
            floor = SECTOR * sectors + mask_bytes
            report[name][str(dtype).partition(".")[2]] = {
                "read": counter.read, "written": counter.written, "floor": floor,
                "ratio": (counter.read + counter.written) / floor,
            }  # fmt: skip
    return report


def count_advances() -> dict[str, dict[str, float]]:
    """Bytes that advancing one row moves, of each token of a text: the mean, and of the token of the most.

    The bytes of the text are tokens by themselves, and so are some longer pieces of it.
    """
    import torch

    import stepmask
    from stepmask.masks.batch import Batch
    from stepmask.masks.device.grammars import ACCEPTED, DeviceGrammars
    from stepmask.masks.device.mirror import PoolMirror

    pieces = [b'{"', b'": ', b'", "', b'"}, {"', b"]}", b"name", b"value", b"20", b"-0"]
    tokens = [*(bytes([byte]) for byte in range(256)), *pieces, b""]
    end = len(tokens) - 1
    vocabulary = stepmask.Vocabulary.from_bytes(tokens, eos=[end], special=[end])
    date = (stepmask.regex("20[0-9]{2}-[01][0-9]-[0-3][0-9]"), b"2026-08-31")
    text = b'{"name": "some value", "list": [{"name": 1.5e3}, {"name": [true, [[null]]]}], "last": "20-08"}'
    counter = Counter()
    report = {}
    for name, (grammar, spelled) in {"date": date, "JSON": (stepmask.json_value(), text)}.items():
        device = DeviceGrammars(vocabulary, PoolMirror(Batch(vocabulary, 1, None), "cpu"), 1, backend="triton")
        device.start(0, device.add(stepmask.compile(grammar, vocabulary)), eos=(end,))
        moved = []
        while spelled:
            token = max((t for t in range(end) if spelled.startswith(tokens[t])), key=lambda t: len(tokens[t]))
            spelled = spelled[len(tokens[token]) :]
            counter.reset()
            device.advance(torch.tensor([token], dtype=torch.int32))
            counter.settle()
            assert device.accepted.tolist() == [ACCEPTED]
            moved.append(counter.read + counter.written)
        report[name] = {"mean": float(np.mean(moved)), "most": float(max(moved)), "tokens": len(moved)}
    return report
