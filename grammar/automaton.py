"""The compiled form of a grammar: flat arrays in one contiguous, checked buffer.

A *frame* is a deterministic byte automaton for one rule or one counted repeat. A *state* belongs to
one frame and has byte edges, call edges (callee frame, return state), token edges and a final flag.
The same bytes are the on-disk cache entry, the message between processes, and what the kernels read:
they get the buffer's address and find each section through the header.

How to read a state `s`:

* ``edges[s] >= 0``: a dense row; the target for byte `b` is ``dense[edges[s] * n_classes + byte_class[b]]``
  (-1 where there is none);
* ``edges[s] == -1``: no byte edges;
* ``edges[s] <= -2``: one edge, ``k = -2 - edges[s]``: ``single_byte[k]`` leads to ``single_target[k]``.

Final states: a plain frame may return there. In a *counter* frame (a counted repeat; its automaton is
that of one item) they end an item: with `r` completed items before the current one, the frame may
return if ``r + 1 >= frame_minimum`` and may begin another item, by the edges of the frame's start
state, if ``frame_maximum < 0 or r + 1 < frame_maximum``. `r` is the frame's *register*: 0 at the
call; where there is no maximum it saturates at ``max(frame_minimum - 1, 0)``.
In a frame of *members* (an object's, in any order) the register holds a bit for each member that was there, and from
bit `frame_minimum` on their number, up to `frame_maximum`; if that is -1, all members have bits, and their number is
that of the bits. The frame's conditions are the terms `term_start[f]` to
`term_start[f + 1]`: one is met where all of `term_required` and none of `term_forbidden` were there, one of each group
(`group_mask[i]`, i from `group_start[term]` on; none has members in common with another or with the required), at
least `term_minimum` and at most `term_maximum` members in all. It can still be met where none of the forbidden were
there and the members that are there, with the required ones that lack and one of each group of which none is there,
are not too many. The frame may return in a final state if a condition is met. A state's *operations* read nothing:
``operation_bit`` must be clear and is set (`ANY`: there is no bit), the number goes up, and the state becomes
``operation_target``, if a condition can still be met then.
`state_keys` of a state with the flag GUARDED: the members that may begin next (`ANY_KEY`: those without a bit, where
members are counted); the state is dead, or if it is final may only return, unless one of them is allowed.
A called frame never matches the empty string; callers bypass it where the repeat may be empty.

A grammar whose DFA would be too large is one *lazy* frame: a position automaton (edge lists by byte
class) that is determinised at run time. Its `edges` array is empty and the root frame's start is 0,
the first *lazy* state set being {0}.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import GrammarError

MAGIC = 0x4B534D50455453  # "STEPMSK"
VERSION = 6
HEADER_WORDS = 64

# Header words (int64).
H_MAGIC, H_VERSION, H_TOTAL_BYTES, H_CHECKSUM, H_N_STATES, H_N_CLASSES, H_N_FRAMES, H_ROOT_FRAME = range(8)
H_N_LOOPS, H_LAZY_STATES, H_FLAGS, H_UNUSED = range(8, 12)
H_SECTIONS = 16  # from here: byte offset of each section from the buffer's start, in SECTIONS' order

# Flags of the automaton (header) and of a state.
LAZY, FINITE, CALLS, TOKENS = 1, 2, 4, 8
UTF8 = 16  # every string of the language is certainly valid UTF-8
RECURSIVE = 32  # stacks have no bound: frames may call themselves
FINAL, HAS_CALLS, HAS_TOKENS, GUARDED, HAS_OPERATIONS = 1, 2, 4, 8, 16
SPREAD = 32  # the code points of its loop class lead to states that loop on it too, not all to one

# Kinds of frame.
PLAIN, COUNTER, LAZY_FRAME, MEMBERS = 0, 1, 2, 3

#: Sections in the order of the buffer: (name, dtype). Each is aligned to 64 bytes.
SECTIONS: tuple[tuple[str, type[np.generic]], ...] = (
    ("byte_class", np.uint8),  # [256]
    ("edges", np.int32),  # [n_states]
    ("dense", np.int32),  # [rows * n_classes]
    ("single_byte", np.uint8),  # [singles]
    ("single_target", np.int32),  # [singles]
    ("state_flags", np.uint8),  # [n_states] FINAL | HAS_CALLS | HAS_TOKENS | GUARDED | HAS_OPERATIONS | SPREAD
    ("state_frame", np.int32),  # [n_states]
    ("state_loop", np.int32),  # [n_states] index of the code point class the state loops on, or -1
    ("state_distance", np.int32),  # [n_states] fewest bytes to a final state of the frame (calls included)
    ("call_start", np.int32),  # [n_states + 1] where the call edges of a state begin
    ("call_frame", np.int32),  # [calls]
    ("call_target", np.int32),  # [calls] the state the caller is in after the return
    ("token_start", np.int32),  # [n_states + 1]
    ("token_symbol", np.int32),  # [token edges] index into the metadata's "tokens"
    ("token_target", np.int32),  # [token edges]
    ("frame_start", np.int32),  # [n_frames] start state
    ("frame_kind", np.uint8),  # [n_frames] PLAIN | COUNTER | LAZY_FRAME | MEMBERS
    ("frame_minimum", np.int64),  # [n_frames] counters: items; members: bits of the register below their number
    ("frame_maximum", np.int64),  # [n_frames] counters: items, -1: no bound; members: how far they are counted, or -1
    ("frame_length", np.int64),  # [n_frames] fewest bytes of a string of the frame
    ("frame_first", np.int64),  # [n_frames * 4] bytes that its strings begin with, a bit each
    ("frame_follow", np.int64),  # [n_frames * 4] bytes that may come next when it has returned
    # From here to `group_mask`: empty where there is no frame of members.
    ("state_keys", np.int64),  # [n_states] the members that may begin next, a bit each, of GUARDED states
    ("operation_start", np.int32),  # [n_states + 1] where the operations of a state begin
    ("operation_bit", np.int32),  # [operations] bit of the member that begins, or ANY
    ("operation_target", np.int32),  # [operations]
    (
        "state_costs",
        np.int32,
    ),  # [n_states] its row of `member_cost`; -1: the list may end without a member more
    ("frame_costs", np.int32),  # [n_frames] the row after a member; -1
    ("member_cost", np.int32),  # rows by bit, the last for none: fewest bytes to the end of a member that begins next
    ("term_start", np.int32),  # [n_frames + 1] where the conditions of a frame begin
    ("term_required", np.int64),  # [terms] bit sets
    ("term_forbidden", np.int64),  # [terms]
    ("term_minimum", np.int64),  # [terms] members
    ("term_maximum", np.int64),  # [terms]
    ("group_start", np.int32),  # [terms + 1] where the groups of a condition begin
    ("group_mask", np.int64),  # [groups] bit sets
    ("loop_start", np.int32),  # [n_loops + 1] where the code point ranges of a loop class begin, in pairs
    ("loop_ranges", np.int32),  # [2 * ranges] first, last, first, last, ...
    ("lazy_edge_start", np.int32),  # [lazy_states + 1]
    ("lazy_edges", np.int32),  # [3 * edges] lowest class, highest class, target
    ("lazy_final", np.uint8),  # [lazy_states]
    ("lazy_loop", np.int32),  # [lazy_states] index of a code point class of which all strings go on, or -1
    ("metadata", np.uint8),  # JSON: {"tokens": [names], ...}
)
SECTION_INDEX = {name: i for i, (name, _) in enumerate(SECTIONS)}
_SECTION_TYPES = [(name, np.dtype(dtype)) for name, dtype in SECTIONS]
_EMPTY_SECTIONS = {name: np.zeros(0, dtype) for name, dtype in SECTIONS}
_ALIGN = 64
_metadata_text = json.JSONEncoder(sort_keys=True).encode


def _words(numbers: list[int]) -> bytes:
    """Numbers as int64."""
    return array("q", numbers).tobytes()


def _checksum(buffer: npt.NDArray[np.uint8]) -> int:
    """63 bits, not all 0, over everything but the checksum's own header word."""
    digest = hashlib.blake2b(digest_size=8)
    digest.update(buffer[: 8 * H_CHECKSUM].data)
    digest.update(buffer[8 * (H_CHECKSUM + 1) :].data)
    return int.from_bytes(digest.digest(), "little") >> 1 or 1


@dataclass(frozen=True, eq=False)
class Automaton:
    """A compiled grammar: `memory` (uint8, 64-byte aligned); by name, ``automaton[name]``, views of its sections."""

    memory: npt.NDArray[np.uint8]
    header: npt.NDArray[np.int64]
    #: How many elements each section has.
    _lengths: npt.NDArray[np.int64] = field(repr=False)
    #: Those views that were asked for: most are not.
    _views: dict[str, npt.NDArray[Any]] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def build(
        cls,
        arrays: dict[str, npt.NDArray[Any]],
        *,
        n_classes: int,
        root_frame: int,
        flags: int,
        metadata: dict[str, Any],
    ) -> Automaton:
        """Pack `arrays` (those of SECTIONS but metadata; missing ones are empty) into a new buffer."""
        arrays = dict(arrays)
        arrays["metadata"] = np.frombuffer(_metadata_text(metadata).encode(), np.uint8)
        unknown = arrays.keys() - SECTION_INDEX.keys()
        assert not unknown, unknown
        position = 8 * HEADER_WORDS
        starts: list[int] = []
        lengths: list[int] = []
        pieces: list[bytes] = []
        for name, dtype in _SECTION_TYPES:
            starts.append(position)
            part = arrays.get(name)
            if part is None or not part.size:
                lengths.append(0)
                continue
            lengths.append(part.size)
            data = part.tobytes() if part.dtype == dtype else part.astype(dtype).tobytes()
            padding = -len(data) % _ALIGN
            pieces += (data, bytes(padding))
            position += len(data) + padding
        # After the sections: the number of elements of each.
        n_bytes = position + 8 * len(SECTIONS)
        header = [0] * HEADER_WORDS
        header[H_SECTIONS : H_SECTIONS + len(starts)] = starts
        header[H_MAGIC], header[H_VERSION] = MAGIC, VERSION
        header[H_TOTAL_BYTES] = n_bytes
        header[H_N_STATES] = len(arrays.get("edges", ()))
        header[H_N_CLASSES] = n_classes
        header[H_N_FRAMES] = len(arrays.get("frame_start", ()))
        header[H_ROOT_FRAME] = root_frame
        header[H_N_LOOPS] = max(0, len(arrays.get("loop_start", ())) - 1)
        header[H_LAZY_STATES] = max(0, len(arrays.get("lazy_edge_start", ())) - 1)
        header[H_FLAGS] = flags
        buffer = _from_alignment(np.empty(n_bytes + _ALIGN, np.uint8), n_bytes)
        # One copy of all is quicker than one for each section.
        memoryview(buffer)[:] = b"".join((_words(header), *pieces, _words(lengths)))  # type: ignore[arg-type]
        return cls.adopt(buffer, check=False)

    @classmethod
    def adopt(cls, buffer: npt.NDArray[np.uint8], *, check: bool = True) -> Automaton:
        """Use `buffer` (from a file, a memory map or another process) as it is. Raises `GrammarError` if damaged."""
        if buffer.nbytes < 8 * (HEADER_WORDS + len(SECTIONS)):
            raise GrammarError("not a compiled grammar: too short")
        header = buffer[: 8 * HEADER_WORDS].view(np.int64)
        if header[H_MAGIC] != MAGIC or header[H_VERSION] != VERSION or header[H_TOTAL_BYTES] != buffer.nbytes:
            raise GrammarError("not a compiled grammar of this version, or cut short")
        if check and header[H_CHECKSUM] != _checksum(buffer):
            raise GrammarError("a damaged compiled grammar: its checksum does not fit")
        return cls(buffer, header, buffer[buffer.nbytes - 8 * len(SECTIONS) :].view(np.int64))

    def add_flags(self, flags: int) -> None:
        """Set `flags` in the header too. For the builder of the automaton, before anyone else has it."""
        self.header[H_FLAGS] |= flags
        self.header[H_CHECKSUM] = 0

    @property
    def buffer(self) -> npt.NDArray[np.uint8]:
        """`memory` with its checksum, which is made when it is first asked for: most never leave the process."""
        if not self.header[H_CHECKSUM]:
            self.header[H_CHECKSUM] = _checksum(self.memory)
        return self.memory

    def __getitem__(self, section: str) -> npt.NDArray[Any]:
        found = self._views.get(section)
        if found is None:
            number = SECTION_INDEX[section]
            found, length = _EMPTY_SECTIONS[section], int(self._lengths[number])
            if length:
                found = np.frombuffer(self.memory, found.dtype, length, int(self.header[H_SECTIONS + number]))
            self._views[section] = found
        return found

    @property
    def sections(self) -> dict[str, npt.NDArray[Any]]:
        """All sections by name."""
        return {name: self[name] for name in SECTION_INDEX}

    @property
    def address(self) -> int:
        """Where the buffer starts in memory: what the kernels take."""
        return int(self.memory.ctypes.data)

    @property
    def n_states(self) -> int:
        return int(self.header[H_N_STATES])

    @property
    def n_classes(self) -> int:
        return int(self.header[H_N_CLASSES])

    @property
    def flags(self) -> int:
        return int(self.header[H_FLAGS])

    @property
    def metadata(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(bytes(self["metadata"]))
        return result


def aligned_bytes(n: int) -> npt.NDArray[np.uint8]:
    """`n` zero bytes that start at a multiple of 64."""
    return _from_alignment(np.zeros(n + _ALIGN, np.uint8), n)


def _from_alignment(raw: npt.NDArray[np.uint8], n: int) -> npt.NDArray[np.uint8]:
    offset = -int(raw.ctypes.data) % _ALIGN
    return raw[offset : offset + n]
