"""Library frames: masks that frames have in every grammar, made once for a vocabulary and kept on disk.

A JSON string or number, white space, any JSON value, a format or a pattern is the same frame wherever it is used. What
a context of one of its states holds, the walk of the whole vocabulary within the frame, depends on the frame alone: on
its byte edges, on the first bytes of the frames that it calls, and on which bytes may follow its return. Here the last
is left open: all nodes are kept at which the frame may return, with the bytes of their children, and each grammar takes
those that something of its own may follow (`masks.known`). Trie nodes beyond a return or a call are walked from what
the grammar has there, as always.

A frame is known by a digest of its content. It is worth an entry when a second grammar has it; the entry is a file of
the cache folder, `library/VOCABULARY/FRAME.stepmask`, written and checked as compiled grammars are, and mapped by every
process that needs it. `prepare_library` makes the entries of JSON's own frames ahead. The bitmaps of code point classes
(`masks.class_members`), which grammars share too, are kept beside them.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..grammar.automaton import (
    COUNTER,
    FINAL,
    GUARDED,
    HAS_OPERATIONS,
    HAS_TOKENS,
    PLAIN,
    RECURSIVE,
    Automaton,
)
from . import cache
from .class_members import class_members, keep_members
from .errors import VocabularyError
from .layout import (
    E_ADDED,
    E_FIELDS,
    E_ITEM_NODES,
    E_ITEM_START,
    E_ITEMS,
    E_KNOWN,
    E_RETURN_BYTES,
    E_RETURN_START,
    E_RETURNS,
    E_ROOM,
    E_ROW,
    E_ROWS,
    E_TOKEN_START,
    E_TOKENS,
)
from .memory import Block
from .trie import VocabularyTables, tables_of

if TYPE_CHECKING:
    from .compiled import CompiledGrammar
    from .vocabulary import Vocabulary

#: Of the layout of entries and of tries. Another number: other files.
LIBRARY_VERSION = 2
#: States of a frame that is worth an entry, at most, and bytes on which one of them is alive, at least.
MAX_STATES, MIN_BYTES = 64, 10
#: Frames of one grammar that are looked for, and that are made, at most (about 1 ms each, once).
MAX_FRAMES, MAX_MADE = 64, 16
#: Digest of a frame's content.
KEY_BYTES = 16

#: Entry arrays: (name, field, dtype).
_ARRAYS: tuple[tuple[str, int, type[np.generic]], ...] = (
    ("known", E_KNOWN, np.uint8),
    ("row", E_ROW, np.int32),
    ("rows", E_ROWS, np.int64),
    ("token_start", E_TOKEN_START, np.int32),
    ("tokens", E_TOKENS, np.int32),
    ("return_start", E_RETURN_START, np.int32),
    ("returns", E_RETURNS, np.int32),
    ("return_bytes", E_RETURN_BYTES, np.int64),
    ("item_start", E_ITEM_START, np.int32),
    ("items", E_ITEMS, np.int64),
    ("item_nodes", E_ITEM_NODES, np.int32),
    ("added", E_ADDED, np.int64),
    ("room", E_ROOM, np.int64),
)


class Entry:
    """What is known of one frame with one vocabulary: `layout`'s E_ arrays, and the block that kernels read."""

    def __init__(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        self.arrays = arrays
        self._block = Block(E_FIELDS)
        for name, index, dtype in _ARRAYS:
            if arrays[name].dtype != dtype:
                raise VocabularyError(f"an entry of the library has {name} of type {arrays[name].dtype}")
            self._block.set_array(index, arrays[name])

    @property
    def address(self) -> int:
        return self._block.address

    @property
    def states(self) -> int:
        """How many states have masks here."""
        return int(self.arrays["known"].sum())


@dataclass
class Library:
    """The entries of one vocabulary in this process.

    `found`, `read`, `made`: how often a frame's entry was there, was read from disk, was made.
    """

    entries: dict[bytes, Entry] = field(default_factory=dict)
    #: Frames without an entry, and the first grammar that had each.
    seen: dict[bytes, str] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    found: int = 0
    read: int = 0
    made: int = 0


_LOCK = threading.Lock()
_LIBRARIES: weakref.WeakKeyDictionary[VocabularyTables, Library] = weakref.WeakKeyDictionary()


def library_of(vocabulary: Vocabulary) -> Library:
    """The library of `vocabulary`, kept with its tables."""
    tables = tables_of(vocabulary)
    with _LOCK:
        return _LIBRARIES.setdefault(tables, Library())


def _byte_table(automaton: Automaton, states: slice) -> npt.NDArray[np.int32]:
    """int32[states, 256]: where each byte leads, -1: nowhere."""
    edges = automaton["edges"][states]
    table = np.full((len(edges), 256), -1, np.int32)
    rows = np.flatnonzero(edges >= 0)
    if len(rows):
        dense = automaton["dense"].reshape(-1, automaton.n_classes)
        table[rows] = dense[edges[rows]][:, automaton["byte_class"]]
    single = np.flatnonzero(edges <= -2)
    at = -2 - edges[single]
    table[single, automaton["single_byte"][at]] = automaton["single_target"][at]
    return table


def frame_keys(automaton: Automaton) -> list[tuple[int, bytes]]:
    """(frame, digest of its content) of the frames that may be in a library."""
    if not automaton.flags & RECURSIVE:
        return []
    state_frame, flags = automaton["state_frame"], automaton["state_flags"]
    n_frames = len(automaton["frame_start"])
    # Bytes alive in each dense row, most of each frame.
    sizes = np.bincount(automaton["byte_class"], minlength=automaton.n_classes)
    alive = (automaton["dense"].reshape(-1, automaton.n_classes) >= 0) @ sizes
    most = np.zeros(n_frames, np.int64)
    wide = automaton["edges"] >= 0
    np.maximum.at(most, state_frame[wide], alive[automaton["edges"][wide]])
    count = np.bincount(state_frame, minlength=n_frames)
    odd = np.zeros(n_frames, np.bool_)
    odd[state_frame[flags & (HAS_TOKENS | GUARDED | HAS_OPERATIONS) != 0]] = True
    kind = automaton["frame_kind"]
    good = (most >= MIN_BYTES) & (count <= MAX_STATES) & ~odd & ((kind == PLAIN) | (kind == COUNTER))
    first = np.searchsorted(state_frame, np.arange(n_frames + 1))
    keys = []
    for frame in np.flatnonzero(good).tolist()[:MAX_FRAMES]:
        begin, end = int(first[frame]), int(first[frame + 1])
        if end - begin != count[frame]:
            continue  # its states are not neighbours
        digest = hashlib.blake2b(digest_size=KEY_BYTES)
        table = _byte_table(automaton, slice(begin, end))
        calls = automaton["call_start"][begin : end + 1]
        called = automaton["call_frame"][calls[0] : calls[-1]]
        parts = (
            np.array([LIBRARY_VERSION, kind[frame], automaton["frame_start"][frame] - begin], np.int64),
            np.where(table >= 0, table - begin, -1).astype(np.int32),
            flags[begin:end] & FINAL,
            calls - calls[0],
            automaton["call_target"][calls[0] : calls[-1]] - begin,
            automaton["frame_first"].reshape(-1, 4)[called],
        )
        for part in parts:
            digest.update(np.ascontiguousarray(part).tobytes())
        keys.append((frame, digest.digest()))
    return keys


def folder(vocabulary: Vocabulary) -> Path:
    """Where the entries of a vocabulary are kept."""
    return cache.folder() / "library" / vocabulary.fingerprint[:32]


def _read(vocabulary: Vocabulary, key: bytes, words: int) -> Entry | None:
    path = folder(vocabulary) / f"{key.hex()}.stepmask"

    def load() -> Entry:
        arrays, metadata = cache.read(path)
        if metadata != {"library": LIBRARY_VERSION, "vocabulary": vocabulary.fingerprint, "frame": key.hex()}:
            raise VocabularyError(f"{path} is of another vocabulary, frame or version")
        if set(arrays) != {name for name, _, _ in _ARRAYS} or arrays["rows"].shape[1:] != (words,):
            raise VocabularyError(f"{path} is no entry of the library")
        return Entry(arrays)

    return cache.load_quietly(path, load)


def _write(vocabulary: Vocabulary, key: bytes, entry: Entry) -> None:
    metadata = {"library": LIBRARY_VERSION, "vocabulary": vocabulary.fingerprint, "frame": key.hex()}
    cache.write_quietly(folder(vocabulary) / f"{key.hex()}.stepmask", entry.arrays, metadata)


def frames_known(
    compiled: CompiledGrammar, keys: Sequence[tuple[int, bytes]], *, make: bool
) -> tuple[tuple[int, Entry], ...]:
    """The entries of a grammar's frames, from memory or disk; with `make`, missing ones are made at the second sight.

    `keys` as `frame_keys` gives them.
    """
    from .library_build import build_entries

    vocabulary = compiled.vocabulary
    library = library_of(vocabulary)
    words = tables_of(vocabulary).words
    result: dict[int, Entry] = {}
    wanted: dict[bytes, list[int]] = {}
    with library.lock:
        for frame, key in keys:
            entry = library.entries.get(key)
            if entry is None and key not in library.seen:
                entry = _read(vocabulary, key, words)
                if entry is None:
                    library.seen[key] = compiled.fingerprint
                else:
                    library.entries[key] = entry
                    library.read += 1
            if entry is not None:
                result[frame] = entry
                library.found += 1
            elif make and library.seen[key] != compiled.fingerprint and (key in wanted or len(wanted) < MAX_MADE):
                wanted.setdefault(key, []).append(frame)
        if wanted:
            made = build_entries(compiled, [frames[0] for frames in wanted.values()])
            for (key, frames), entry in zip(wanted.items(), made, strict=True):
                library.entries[key] = entry
                result |= dict.fromkeys(frames, entry)
                library.seen.pop(key, None)
                library.made += 1
                _write(vocabulary, key, entry)
    return tuple(result.items())


def classes_known(vocabulary: Vocabulary, automaton: Automaton) -> None:
    """Have the bitmaps of a grammar's code point classes, from disk where they are there, and keep them there."""
    tables = tables_of(vocabulary)
    bounds = automaton["loop_start"]
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        ranges = automaton["loop_ranges"][2 * begin : 2 * end]
        digest = hashlib.blake2b(ranges.tobytes(), digest_size=KEY_BYTES).hexdigest()
        metadata = {"library": LIBRARY_VERSION, "vocabulary": vocabulary.fingerprint, "class": digest}
        path = folder(vocabulary) / f"class-{digest}.stepmask"

        def load(
            path: Path = path, metadata: dict[str, Any] = metadata, ranges: npt.NDArray[np.int32] = ranges
        ) -> npt.NDArray[np.int64]:
            arrays, found = cache.read(path)
            members = arrays.get("members")
            if found != metadata or members is None or members.shape != (2, tables.words) or members.dtype != np.int64:
                raise VocabularyError(f"{path} is of another vocabulary, class or version")
            keep_members(tables, ranges, members)
            return members

        known = ranges.tobytes() in tables.class_members
        if not (path.exists() if known else cache.load_quietly(path, load) is not None):
            cache.write_quietly(path, {"members": class_members(tables, ranges).bits}, metadata)


def prepare_library(vocabulary: Vocabulary) -> int:
    """Make the entries of JSON's own frames for `vocabulary`, or read them; returns how many there are.

    What `compile` does by itself when a second grammar has a frame. A server calls it before its first request.
    """
    from ..grammar.json_schema.front_end import json_schema
    from .compiled import compile

    known: dict[bytes, bool] = {}
    # Two grammars, so that each frame is seen twice.
    for names in (("first",), ("first", "second")):
        kinds = ("string", "number", "integer", "boolean")
        properties: dict[str, Any] = {f"{name} {kind}": {"type": kind} for name in names for kind in kinds}
        properties |= {f"{name} any": {} for name in names}
        compiled = compile(json_schema({"type": "object", "properties": properties}), vocabulary)
        known |= {key: True for frame, key in frame_keys(compiled.automaton) if frame in dict(compiled.library)}
    return len(known)
