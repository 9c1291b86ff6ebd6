"""Compiled grammars on disk: one checked file each, named by its content.

The folder is `STEPMASK_CACHE`, or ``stepmask`` in the user's cache folder. A file is written under a
temporary name and renamed, so readers see it whole or not at all; one that is cut short, altered or of another
version is noticed by its checksum and made anew. A folder that cannot be written to costs the cache, nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import tempfile
from collections.abc import Callable, Iterable
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..grammar.automaton import VERSION, aligned_bytes
from ..grammar.errors import GrammarError
from ..grammar.expression import Expression, Grammar
from ..grammar.limits import Limits
from .errors import VocabularyError

T = TypeVar("T")
_MAGIC = b"stepmask"
_HEADER = 64  # magic 8, version 8, total 8, metadata length 8, digest 32
_ALIGN = 64
#: Grammars that compile faster than this are not worth a file, seconds.
MIN_SECONDS = 0.005
#: Bytes from which a file is mapped. Smaller ones are read: that takes less time than the faults of their pages, and a
#: map keeps a file descriptor, of which a server may have no more than 1,024.
MAP_FROM = 256 << 10


def folder() -> Path:
    """Where compiled grammars are kept."""
    named = os.environ.get("STEPMASK_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stepmask"


def path_of(fingerprint: str) -> Path:
    return folder() / "grammars" / f"{fingerprint}.stepmask"


@lru_cache(maxsize=1)
def _front_ends() -> str:
    """Hex digest of what makes rules out of a text: others make others of the same text."""
    digest = hashlib.blake2b(digest_size=16)
    root = Path(__file__).parent.parent / "grammar"
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def grammar_digest(grammar: Grammar, limits: Limits) -> str:
    """Hex digest of what a grammar compiles from: its rules, its start, the limits and the format's version."""
    digest = hashlib.blake2b(digest_size=16)
    if grammar.identity:
        digest.update(
            f"{VERSION}|{_front_ends()}|{grammar.kind}|{limits!r}|{grammar.identity}".encode(errors="surrogatepass")
        )
        return digest.hexdigest()
    parts: list[bytes] = [f"{VERSION}|{grammar.start}|{grammar.frames}|{limits!r}".encode()]
    for name, node in grammar.rules.items():
        parts.append(f"\x00rule {name!r}".encode())
        work: list[Any] = [node]
        while work:
            item = work.pop()
            if isinstance(item, Expression):
                fields = [v for k, v in vars(item).items() if k != "source"]
                parts.append(type(item).__name__.encode())
                work.append(len(fields))
                work.extend(reversed(fields))
            elif isinstance(item, tuple) and item and isinstance(item[0], Expression):
                parts.append(b"(%d" % len(item))
                work.extend(reversed(item))
            else:
                parts.append(repr(item).encode())
    digest.update(b"\x01".join(parts))
    return digest.hexdigest()


def _digest(buffer: npt.NDArray[np.uint8]) -> bytes:
    digest = hashlib.blake2b(digest_size=32)
    digest.update(buffer[:32].data)
    digest.update(buffer[_HEADER:].data)
    return digest.digest()


def pack(arrays: dict[str, npt.NDArray[Any]], metadata: dict[str, Any]) -> npt.NDArray[np.uint8]:
    """The bytes of a file of `arrays` and `metadata`, uint8[total]."""
    table = {}
    position = 0
    for name, array in arrays.items():
        table[name] = [position, array.dtype.str, list(array.shape)]
        position += -(-array.nbytes // _ALIGN) * _ALIGN
    text = json.dumps({"arrays": table, **metadata}, sort_keys=True).encode()
    begin = -(-(_HEADER + len(text)) // _ALIGN) * _ALIGN
    buffer = aligned_bytes(begin + position)
    buffer[:8] = np.frombuffer(_MAGIC, np.uint8)
    buffer[8:32] = np.array([VERSION, buffer.nbytes, len(text)], np.int64).view(np.uint8)
    buffer[_HEADER : _HEADER + len(text)] = np.frombuffer(text, np.uint8)
    for name, array in arrays.items():
        start = begin + table[name][0]
        buffer[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    buffer[32:64] = np.frombuffer(_digest(buffer), np.uint8)
    return buffer


def write(path: str | PathLike[str], arrays: dict[str, npt.NDArray[Any]], metadata: dict[str, Any]) -> None:
    """Write `arrays` and `metadata` to one file, by way of a temporary file in the same folder."""
    path = Path(path)
    buffer = pack(arrays, metadata)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=_temporary_prefix(os.getpid()))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(buffer.data)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _temporary_prefix(process: int) -> str:
    return f".tmp-{process}-"


def remove_temporaries(processes: Iterable[int]) -> None:
    """Remove what these processes, which have ended, left of files that they were writing to the folder."""
    prefixes = tuple(map(_temporary_prefix, processes))
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder() / "grammars") if prefixes else ():
            if entry.name.startswith(prefixes):
                os.unlink(entry.path)


def read(path: str | PathLike[str] | int) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Map a file that `write` wrote: (arrays, metadata). Raises `GrammarError` where it is damaged.

    A file descriptor may stand for the path; it is closed. Files smaller than `MAP_FROM` are read.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < _HEADER:
            raise GrammarError(f"{path} is not a compiled grammar: too short")
        if size < MAP_FROM:
            buffer = aligned_bytes(size)
            if os.preadv(file.fileno(), [buffer.data], 0) != size:
                raise GrammarError(f"{path} is damaged: it was cut short while it was read")
        else:
            # Private and writable: kernels are compiled for writable arrays, and no page is ever written to.
            memory = mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
            buffer = np.frombuffer(memory, np.uint8)
    version, total, length = buffer[8:32].view(np.int64).tolist()
    if bytes(buffer[:8]) != _MAGIC or version != VERSION:
        raise GrammarError(f"{path} is not a compiled grammar of this version")
    if total != size or bytes(buffer[32:64]) != _digest(buffer):
        raise GrammarError(f"{path} is damaged: its checksum does not fit")
    metadata = json.loads(bytes(buffer[_HEADER : _HEADER + length]))
    begin = -(-(_HEADER + length) // _ALIGN) * _ALIGN
    arrays = {}
    for name, (position, dtype, shape) in metadata.pop("arrays").items():
        count = int(np.prod(shape))
        start = begin + position
        arrays[name] = buffer[start : start + count * np.dtype(dtype).itemsize].view(dtype).reshape(shape)
    return arrays, metadata


def load_quietly(path: Path, load: Callable[[], T]) -> T | None:
    """`load()`, or None where the file is not there, not readable, or not what it should be."""
    try:
        return load()
    except (OSError, GrammarError, VocabularyError):
        return None


def write_quietly(path: Path, arrays: dict[str, npt.NDArray[Any]], metadata: dict[str, Any]) -> None:
    """`write`, making the folder; a full or read-only disk costs the entry only."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, arrays, metadata)
    except OSError:
        return
