"""What the engine asks of a model: a cache for a fixed number of slots, and two calls on it; more is optional."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt


class Model(Protocol):
    """A language model that keeps its past tokens' state in a cache of slots.

    Both calls have one fixed shape, and a row's logits may depend on the row's own tokens only, never on
    its neighbours, its slot, or how many slots are in use: the engine then gives the same tokens whatever
    else it serves. What is written at a position replaces what was there, and a position is read only by
    positions at or after it: so an idle row may be fed any token at its next position.
    """

    @property
    def vocabulary_size(self) -> int:
        """The number of logits in a row, padding included."""
        ...

    @property
    def prefill_chunk(self) -> int:
        """The most tokens that one call of `prefill` takes."""
        ...

    def open(self, slots: int, max_length: int) -> Any:
        """A new cache for `slots` sequences of up to `max_length` tokens. Raises ValueError if the model is shorter."""
        ...

    def prefill(self, cache: Any, slot: int, tokens: npt.NDArray[np.int32], start: int) -> None:
        """Take in a run of one slot's tokens, int32[1..prefill_chunk], at positions from `start`.

        `start` is a multiple of `prefill_chunk`.
        """
        ...

    def decode(
        self, cache: Any, tokens: npt.NDArray[np.int32], positions: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.float32]:
        """Take in one token a slot, int32[slots], at `positions`, int32[slots].

        Returns the logits of what follows, float32[slots, vocabulary_size]; valid until the next call, and the
        engine may write to them until then.
        """
        ...


@runtime_checkable
class RunModel(Protocol):
    """A model that takes several tokens of one slot in one forward pass, each in a row of its own."""

    def decode_runs(
        self,
        cache: Any,
        tokens: npt.NDArray[np.int32],
        positions: npt.NDArray[np.int32],
        slots: npt.NDArray[np.int32],
    ) -> npt.NDArray[np.float32]:
        """As `Model.decode`, where row i takes a token of the slot slots[i].

        A row sees those of its slot that are at earlier positions, in the same call too. Shape, cache and logits are,
        bit for bit, those of as many calls of `decode` with one of the tokens each.
        """
        ...


@runtime_checkable
class OverlappedModel(Protocol):
    """A model whose forward pass goes on while the caller does other things, as one on a device does."""

    def begin(
        self,
        cache: Any,
        tokens: npt.NDArray[np.int32],
        positions: npt.NDArray[np.int32],
        slots: npt.NDArray[np.int32] | None,
    ) -> None:
        """Begin a forward pass as `Model.decode`, or as `RunModel.decode_runs` where `slots` is given.

        The arrays are the caller's again when this returns.
        """
        ...

    def finish(self, cache: Any) -> npt.NDArray[np.float32]:
        """Wait for its end; the logits, as `Model.decode` returns them."""
        ...


class OverlappedForward:
    """`Model.decode` and `RunModel.decode_runs` of a model that has `begin` and `finish`, for it to inherit."""

    def decode(
        self: OverlappedModel, cache: Any, tokens: npt.NDArray[np.int32], positions: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.float32]:
        """See `Model.decode`."""
        self.begin(cache, tokens, positions, None)
        return self.finish(cache)

    def decode_runs(
        self: OverlappedModel,
        cache: Any,
        tokens: npt.NDArray[np.int32],
        positions: npt.NDArray[np.int32],
        slots: npt.NDArray[np.int32],
    ) -> npt.NDArray[np.float32]:
        """See `RunModel.decode_runs`."""
        self.begin(cache, tokens, positions, slots)
        return self.finish(cache)
