"""Every limit of the text process, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TextLimits:
    """Limits of a `TextProcess`."""

    #: Records that the ring holds, a token each, 24 bytes. Past it tokens wait in the engine's memory, which is
    #: counted; the step never waits. The default is 64 steps of 256 rows.
    ring_records: int = 16_384
    #: Seconds without any progress while something is to be done, after which the process is killed and replaced.
    stall_s: float = 30.0
    #: Processes that end one after the other without having done anything, until all text requests fail.
    max_failed_starts: int = 3
    #: How much less than others the process gets of a busy processor (`os.nice`): the step has precedence.
    nice: int = 5
    #: Processors that the process keeps off, which the step then has to itself: the first ones of those that the
    #: engine's process may use, unless these are all. `nice` is not enough: whoever is woken on the step's processor
    #: has it for a millisecond. 0: none.
    spare_processors: int = 1

    def __post_init__(self) -> None:
        """Raises ValueError for a limit that nothing could keep."""
        if self.ring_records < 1 or self.max_failed_starts < 1 or self.nice < 0 or self.spare_processors < 0:
            raise ValueError(
                "ring_records and max_failed_starts must be at least 1, nice and spare_processors at least 0"
            )
        if not self.stall_s > 0:
            raise ValueError(f"stall_s must be a positive number of seconds, not {self.stall_s}")
